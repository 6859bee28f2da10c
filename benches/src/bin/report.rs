//! Measures rows of the table of goals against their peers, interleaved, and writes `docs/benchmarks.md`.
//!
//! A pair is ours, peer, peer, ours; a pair whose disk probe moved by more than 1.5x between its ends is void.

use std::fmt::Write as _;
use std::time::Duration;

use wasmkeep_benches::{Core, Leg, on_core, peer, probe};

const PAIRS: usize = 7;
const LEG: Duration = Duration::from_millis(700);
const FULL_PAGES_BYTES: f64 = 8250.0;

struct Row {
    name: &'static str,
    what: &'static str,
    goal: f64,
    ratios: Vec<f64>,
    ours: Leg,
    peer: Leg,
    void: usize,
}

fn ours(actors: usize, outstanding: usize) -> Leg {
    let data = tempfile::tempdir().expect("a directory");
    on_core(async {
        let mut core = Core::open(data.path(), actors).await;
        core.run(outstanding, Duration::from_millis(200)).await;
        core.run(outstanding, LEG).await
    })
}

fn theirs(outstanding: usize) -> Leg {
    let data = tempfile::tempdir().expect("a directory");
    peer(data.path(), outstanding, LEG)
}

fn mean(a: &Leg, b: &Leg) -> f64 {
    f64::midpoint(a.rate, b.rate)
}

fn row(name: &'static str, what: &'static str, goal: f64, actors: usize, outstanding: usize) -> Row {
    let disk = tempfile::tempdir().expect("a directory");
    let (mut ratios, mut last, mut void) = (Vec::new(), None, 0);
    for _ in 0..PAIRS {
        let before = probe(disk.path());
        let (a, b, c, d) = (ours(actors, outstanding), theirs(outstanding), theirs(outstanding), ours(actors, outstanding));
        let after = probe(disk.path());
        if before.max(after) > 1.5 * before.min(after) {
            void += 1;
            continue;
        }
        ratios.push(mean(&a, &d) / mean(&b, &c));
        last = Some((a, b));
    }
    ratios.sort_by(f64::total_cmp);
    let (ours, peer) = last.unwrap_or_else(|| panic!("{name}: every pair was void; the disk is too restless to measure"));
    Row { name, what, goal, ratios, ours, peer, void }
}

fn main() {
    let rows = [
        row("D1", "one actor, 64 outstanding", 20.0, 1, 64),
        row("D2", "one actor, 1 outstanding", 1.0, 1, 1),
        row("D1/64", "64 actors, 64 outstanding", 20.0, 64, 64),
        row("D1/1024", "one actor, 1,024 outstanding", 20.0, 1, 1024),
    ];
    let mut text = String::from(
        "# Benchmarks\n\nWritten by `cargo run --release -p wasmkeep-benches --bin report`. Peer: SQLite, WAL, `synchronous=FULL`, same disk, same \
         process, interleaved.\n\n| row | what | ratio (median, range) | goal | met | ours/s | p50 µs \
         | p99 µs | CPU µs | bytes | peer/s | peer p99 µs | void |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in &rows {
        let median = row.ratios[row.ratios.len() / 2];
        let range = (row.ratios[0], row.ratios[row.ratios.len() - 1]);
        let met = if median >= row.goal { "yes" } else { "no" };
        let (ours, peer) = (&row.ours, &row.peer);
        let _infallible = writeln!(
            text,
            "| {} | {} | {median:.1}x ({:.1}–{:.1}) | {}x | {met} | {:.0} | {:.0} | {:.0} | {:.1} | {:.0} | {:.0} | {:.0} | {} |",
            row.name,
            row.what,
            range.0,
            range.1,
            row.goal,
            ours.rate,
            ours.p50_us,
            ours.p99_us,
            ours.cpu_us,
            ours.bytes,
            peer.rate,
            peer.p99_us,
            row.void
        );
    }
    let _infallible = writeln!(
        text,
        "\nD5, payload logged per one-row upsert with 64 outstanding: {:.0} bytes, {:.3} of the {FULL_PAGES_BYTES:.0} bytes of full pages (goal 1/8).",
        rows[0].ours.bytes,
        rows[0].ours.bytes / FULL_PAGES_BYTES
    );
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu =
        read("/proc/cpuinfo").lines().find_map(|line| line.strip_prefix("model name\t: ").map(str::to_owned)).unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let _infallible = writeln!(
        text,
        "\nBytes are those of records, without the padding of groups. Columns besides the ratio are of one leg.\n\n\
         What limits D1: compare its CPU per commit and rate with those of 1,024 outstanding. Where the CPU is alike and the rate \
         is not, 64 commits under way are too few to fill two flushes in flight, and a faster disk helps the peer, which flushes \
         for every commit, more than us.\n\nMachine: {cpus} CPUs, {cpu}, Linux {}.",
        read("/proc/sys/kernel/osrelease").trim()
    );
    print!("{text}");
    if let Err(error) = std::fs::write("docs/benchmarks.md", text) {
        eprintln!("docs/benchmarks.md: {error}; run it from the repository's root");
    }
}
