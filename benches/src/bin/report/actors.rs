//! Rows A1 to A4: waking, sleeping, restarting, and who waits for whom. They have no peer: the goal is a number.

use wasmkeep_benches::actors;
use wasmkeep_benches::known::{KNOWN_MIN, Known, SLEEPING_BYTES_MAX, known};
use wasmkeep_benches::neighbour::{Beside, WAIT_US_MAX, waits};
use wasmkeep_benches::restart::{Killed, RESTART_S_MAX};

use crate::row::{Goal, Row, median};

/// The rows of this module, in their order.
pub(crate) const NAMES: [&str; 4] = ["A1", "A2", "A3", "A4"];

/// Runs of a row whose range is told.
const RUNS: usize = 5;

/// Measures those that are asked for; `actors` is for A2.
pub(crate) fn rows(is_asked: &dyn Fn(&str) -> bool, actors: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |name: &str, measure: &dyn Fn() -> Row| {
        if is_asked(name) {
            rows.push(measure());
        }
    };
    add("A1", &a1);
    add("A2", &|| a2(actors));
    add("A3", &a3);
    add("A4", &a4);
    rows
}

/// A row without a peer.
fn row(name: &'static str, what: String, unit: &'static str, (ours, range): (f64, (f64, f64)), goal: f64) -> Row {
    Row {
        name,
        what,
        unit,
        ratio: None,
        range,
        ours,
        peer: None,
        kind: Goal::AtMost,
        goal,
        also_met: true,
        void_legs: 0,
        note: String::new(),
        details: String::new(),
    }
}

fn of_runs(numbers: &mut [f64]) -> (f64, (f64, f64)) {
    (median(numbers), (numbers[0], numbers[numbers.len() - 1]))
}

#[expect(clippy::cast_precision_loss, reason = "microseconds")]
fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

fn a1() -> Row {
    let runs: Vec<_> = (0..RUNS).map(|_| actors::wakes(64, 512)).collect();
    let mut medians: Vec<_> = runs.iter().map(|run| ms(run.value_at_quantile(0.5))).collect();
    let p99 = runs.iter().map(|run| ms(run.value_at_quantile(0.99))).fold(0.0, f64::max);
    let what = "wake of a sleeping actor, 1 MB database, warm disk, p50 over HTTP".to_owned();
    Row { note: format!("p99 of the worst run {p99:.2} ms"), ..row("A1", what, "ms", of_runs(&mut medians), 1.0) }
}

fn a2(actors: u64) -> Row {
    let measured = known(actors);
    let each = measured.bytes_each();
    let what = format!("memory of a sleeping actor, {actors} known on one node (goal: {KNOWN_MIN})");
    let Known { before_bytes, after_bytes, restarted_bytes, rate, .. } = measured;
    let note = format!(
        "private memory {} MB before, {} MB after, {} MB when started again; {rate:.0} actors made per second",
        before_bytes >> 20,
        after_bytes >> 20,
        restarted_bytes >> 20
    );
    let row = row("A2", what, "bytes", (each, (each, each)), SLEEPING_BYTES_MAX);
    // Fewer than the goal names show what one takes, and not that a node bears so many.
    Row { note, also_met: actors >= KNOWN_MIN, ..row }
}

fn a3() -> Row {
    const CORES: usize = 2;
    let killed = Killed::new(CORES, 256 << 20);
    let runs: Vec<_> = (0..RUNS).map(|_| killed.restart()).collect();
    let mut seconds: Vec<_> = runs.iter().map(|(_, replied)| replied.as_secs_f64()).collect();
    let mut served: Vec<_> = runs.iter().map(|(served, _)| served.as_secs_f64()).collect();
    let what = "kill -9 to the first reply after a restart, 256 MB of journal per core, cold disk".to_owned();
    let note = format!(
        "{CORES} cores, {} MB of journal in all, upserts of one row; it served after {:.2} s",
        killed.journal_bytes >> 20,
        median(&mut served)
    );
    Row { note, ..row("A3", what, "s", of_runs(&mut seconds), RESTART_S_MAX) }
}

fn a4() -> Row {
    let (mut worst, mut notes) = (Vec::new(), Vec::new());
    for beside in [Beside::Nothing, Beside::Spin, Beside::Sql, Beside::Both] {
        let waits = waits(beside, 1000);
        let (own, all) = (&waits.own, &waits.all);
        let p50 = ms(own.value_at_quantile(0.5));
        notes.push(format!("{}: p50 {p50:.1}, worst {:.1} ({:.1})", beside.name(), ms(own.max()), ms(all.max())));
        if beside != Beside::Nothing {
            worst.push(ms(own.max()));
        }
    }
    worst.sort_by(f64::total_cmp);
    let most = worst[worst.len() - 1];
    let what = "worst wait of a neighbour on the same core".to_owned();
    let note = format!("beside {}; in parentheses with what the machine did meanwhile", notes.join("; beside "));
    Row { note, ..row("A4", what, "ms", (most, (worst[0], most)), ms(WAIT_US_MAX)) }
}
