//! `docs/benchmarks.md`, as text.

use std::fmt::Write as _;

use wasmkeep_benches::machine::describe;

use crate::ring;
use crate::row::{COMMIT, Goal, Row};

const INTRODUCTION: &str = "\
# Benchmarks

Written by `cargo xtask bench-report`, with the same rows for programs in [benchmarks.json](benchmarks.json). One row alone:
`cargo xtask bench-report --row A1`, with `--json` as one line. Row A2 with a million actors: `--row A2 --actors 1000000`.
A goal that is missed stays in the table.

";

const METHOD: &str = "
How the rows are measured:

- D: ours and the peer (SQLite, WAL, `synchronous=FULL`, same disk, same process) interleaved as ours, peer, peer, ours; the
  median ratio of seven such pairs and its range; a pair is void when the disk's speed moved by more than 1.5x meanwhile.
- A: a node in a process of its own, one core for A1 and A4, a client on the other processor. A1: five runs of 512 wakes; the
  latency is the client's, request and answer included. A2: private memory (`RssAnon`) of the process before and after so many
  actors were made over HTTP, all asleep and checkpointed both times, divided by their number. A3: from the start of the process
  to the first reply, which is the newest row of an actor that only the journal has; the journal is copied for each of five
  restarts and not in the page cache. A4: a request every 20 ms; without the time in which the kernel ran something else on the
  two threads' processors.
- `cargo bench -p wasmkeep-benches` has the same measurements as benches: `durable_write`, `event` (A1), `restart` (A3),
  `neighbour` (A4).
";

/// The table of all rows.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| row | what | ratio (range) | ours (range) | peer | goal | met | void legs |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        let number = |number: f64| shown(number, row.unit);
        let (least, most) = row.range;
        let (ratio, ours) = match row.ratio {
            Some(ratio) => (format!("{ratio:.1}x ({least:.1}–{most:.1})"), number(row.ours)),
            None => ("—".to_owned(), format!("{} ({}–{})", number(row.ours), digits(least), digits(most))),
        };
        let goal = match row.kind {
            Goal::RatioAtLeast => format!("{}x", row.goal),
            Goal::AtMost => format!("≤ {}", number(row.goal)),
        };
        let peer = row.peer.map_or_else(|| "—".to_owned(), number);
        let met = if row.met() { "yes" } else { "no" };
        let _infallible =
            writeln!(text, "| {} | {} | {ratio} | {ours} | {peer} | {goal} | {met} | {} |", row.name, row.what, row.void_legs);
    }
    let notes: Vec<_> =
        rows.iter().filter(|row| !row.note.is_empty()).map(|row| format!("- {}: {}.", row.name, row.note)).collect();
    if !notes.is_empty() {
        let _infallible = writeln!(text, "\n{}", notes.join("\n"));
    }
    text
}

/// The whole page.
pub(crate) fn page(rows: &[Row], rings: &str) -> String {
    let details: String = rows.iter().map(|row| row.details.as_str()).collect();
    format!(
        "{INTRODUCTION}{}{METHOD}\n## Durable commits in detail\n\n\
         Of the pair with the median ratio; latencies in µs from a commit's start, CPU in µs per commit, bytes of record per \
         commit.\n\n| row | p50 | p99 | CPU | bytes | peer's p50 | p99 | CPU |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n\
         {details}\n## Ways to the disk for the journal\n\nBy `{}`.\n\n{rings}\nMachine: {}. Commit: {}.\n",
        table(rows),
        ring::COMMAND,
        describe(),
        *COMMIT
    )
}

fn shown(number: f64, unit: &str) -> String {
    if unit == "/s" { format!("{number:.0}/s") } else { format!("{} {unit}", digits(number)) }
}

/// As many digits as mean something.
fn digits(number: f64) -> String {
    if number >= 100.0 || number.fract() == 0.0 {
        format!("{number:.0}")
    } else if number >= 10.0 {
        format!("{number:.1}")
    } else {
        format!("{number:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ratio: Option<f64>, ours: f64, kind: Goal, goal: f64) -> Row {
        Row {
            name: "X1",
            what: "a row".into(),
            unit: "ms",
            ratio,
            range: (0.5, 2.0),
            ours,
            peer: ratio.map(|ratio| ours / ratio),
            kind,
            goal,
            also_met: true,
            void_legs: 4,
            note: "a note".into(),
            details: String::new(),
        }
    }

    #[test]
    fn a_missed_goal_stays_in_the_table_and_says_so() {
        let text = table(&[row(None, 12.0, Goal::AtMost, 10.0), row(Some(1.5), 30.0, Goal::RatioAtLeast, 1.0)]);
        assert!(text.contains("| X1 | a row | — | 12 ms (0.500–2) | — | ≤ 10 ms | no | 4 |"), "{text}");
        assert!(text.contains("| X1 | a row | 1.5x (0.5–2.0) | 30 ms | 20 ms | 1x | yes | 4 |"), "{text}");
        assert!(text.contains("- X1: a note."), "{text}");
    }

    #[test]
    fn a_program_reads_the_same_of_a_row() {
        let json = row(None, 12.0, Goal::AtMost, 10.0).json();
        let keys: Vec<_> = json.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(keys, ["commit", "goal", "met", "ours", "peer", "range", "ratio", "row", "void_legs"]);
        assert_eq!((&json["met"], &json["ratio"], &json["ours"]), (&false.into(), &serde_json::Value::Null, &12.0.into()));
    }
}
