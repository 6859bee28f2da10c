//! Rows D1, D2 and D5: durable one-row commits against SQLite's own.
//!
//! A pair is ours, peer, peer, ours; a pair whose disk probe moved by more than 1.5x between its ends is void.

use std::time::Duration;

use wasmkeep_benches::machine::probe;
use wasmkeep_benches::on_core;
use wasmkeep_benches::store::{Core, Leg, peer};

use crate::row::{Goal, Row};

const PAIRS: usize = 7;
/// Void pairs are tried again, this often in all.
const TRIES_MAX: usize = 2 * PAIRS;
const LEG: Duration = Duration::from_millis(700);
const FULL_PAGES_BYTES: f64 = 8250.0;

/// The rows of this module, in their order.
pub(crate) const NAMES: [&str; 5] = ["D1", "D2", "D1/64", "D1/1024", "D5"];

/// Measures those that are asked for.
pub(crate) fn rows(is_asked: &dyn Fn(&str) -> bool) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut d5 = None;
    for (name, what, goal, actors, outstanding) in [
        ("D1", "one actor, 64 outstanding", 20.0, 1, 64),
        ("D2", "one actor, 1 outstanding", 1.0, 1, 1),
        ("D1/64", "64 actors, 64 outstanding", 20.0, 64, 64),
        ("D1/1024", "one actor, 1,024 outstanding", 20.0, 1, 1024),
    ] {
        let for_d5 = name == "D1" && is_asked("D5");
        if is_asked(name) || for_d5 {
            let (row, bytes) = row(name, what, goal, actors, outstanding);
            if is_asked(name) {
                rows.push(row);
            }
            d5 = d5.or_else(|| for_d5.then(|| payload(bytes)));
        }
    }
    rows.extend(d5);
    rows
}

fn payload(bytes: f64) -> Row {
    Row {
        name: "D5",
        what: format!("payload logged per one-row upsert, 64 outstanding, as a part of {FULL_PAGES_BYTES:.0} bytes of full pages"),
        unit: "of full pages",
        ratio: None,
        range: (bytes / FULL_PAGES_BYTES, bytes / FULL_PAGES_BYTES),
        ours: bytes / FULL_PAGES_BYTES,
        peer: None,
        kind: Goal::AtMost,
        goal: 0.125,
        also_met: true,
        void_legs: 0,
        note: format!("{bytes:.0} bytes of record; the padding of groups comes on top"),
        details: String::new(),
    }
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

/// One pair: the ratio of the rates, then one leg of each side.
type Pair = (f64, Leg, Leg);

fn pair(actors: usize, outstanding: usize) -> Option<Pair> {
    let disk = tempfile::tempdir().expect("a directory");
    let before = probe(disk.path());
    let (a, b, c, d) = (ours(actors, outstanding), theirs(outstanding), theirs(outstanding), ours(actors, outstanding));
    let after = probe(disk.path());
    let ratio = (a.rate + d.rate) / (b.rate + c.rate);
    (before.max(after) <= 1.5 * before.min(after)).then_some((ratio, a, b))
}

/// A row, and the bytes of record per commit.
fn row(name: &'static str, what: &str, goal: f64, actors: usize, outstanding: usize) -> (Row, f64) {
    let (mut pairs, mut void) = (Vec::new(), 0);
    for _ in 0..TRIES_MAX {
        match pair(actors, outstanding) {
            Some(pair) => pairs.push(pair),
            None => void += 1,
        }
        if pairs.len() == PAIRS {
            break;
        }
    }
    assert!(!pairs.is_empty(), "{name}: every pair was void; the disk is too restless to measure");
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (least, most) = (pairs[0].0, pairs[pairs.len() - 1].0);
    let (ratio, ours, peer) = pairs.swap_remove(pairs.len() / 2);
    // D1 asks for a tail that is no worse, too; the others only report theirs.
    let also_met = name != "D1" || ours.p99_us <= peer.p99_us;
    let row = Row {
        name,
        what: format!("durable commits, {what}, against SQLite"),
        unit: "/s",
        ratio: Some(ratio),
        range: (least, most),
        ours: ours.rate,
        peer: Some(peer.rate),
        kind: Goal::RatioAtLeast,
        goal,
        also_met,
        void_legs: 4 * void,
        note: if ratio < goal { limit(&ours, &peer) } else { String::new() },
        details: details(name, &ours, &peer),
    };
    (row, ours.bytes)
}

/// What kept us from more.
fn limit(ours: &Leg, peer: &Leg) -> String {
    format!(
        "limited by CPU: ours kept {:.0} % of one processor busy, the kernel's flush workers included, at {:.1} µs a commit, and the \
         core that runs the commits can have no more than one; the peer waits {:.0} µs for each of its own, most of it a flush, \
         and gains with every disk that is faster",
        ours.rate * ours.cpu_us / 1e4,
        ours.cpu_us,
        1e6 / peer.rate
    )
}

fn details(name: &str, ours: &Leg, peer: &Leg) -> String {
    format!(
        "| {name} | {:.0} | {:.0} | {:.1} | {:.0} | {:.0} | {:.0} | {:.1} |\n",
        ours.p50_us, ours.p99_us, ours.cpu_us, ours.bytes, peer.p50_us, peer.p99_us, peer.cpu_us
    )
}
