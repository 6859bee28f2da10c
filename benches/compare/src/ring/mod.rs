//! Ways for one core to write its journal: our driver on a ring, tokio-uring, monoio, and two plain threads.
//!
//! All do the same: durable writes (the file is open with O_DIRECT and O_DSYNC, so that a write's end is its durability), one
//! after the other over a file of zeros, with one or two under way, on an executor of one thread, which all share one processor.
//! Beside a busy task that executor also has a task that computes for a millisecond and gives way, for ever, as a spinning guest
//! does; it gives way as its executor wants it to. A latency is from asking for a write until the asking task goes on.
//!
//! Contenders take turns within each round, in an order that turns around from round to round.

mod contenders;
mod work;

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use serde_json::json;

use self::contenders::{CONTENDERS, Contender};
use self::work::{Job, Leg, Target, histogram};

/// One contender doing one job, over all rounds.
pub(crate) struct Cell {
    job: Job,
    contender: Contender,
    latencies: Histogram<u64>,
    rates: Vec<f64>,
}

impl Cell {
    fn add(&mut self, leg: &Leg) {
        // Of the same bounds: this cannot fail.
        let _same_bounds = self.latencies.add(&leg.latencies);
        self.rates.push(leg.rate);
        self.rates.sort_by(f64::total_cmp);
    }

    /// The median of the rounds, writes per second.
    fn rate(&self) -> f64 {
        self.rates[self.rates.len() / 2]
    }
}

/// Runs all contenders through all jobs.
pub(crate) fn compare(quick: bool) -> Vec<Cell> {
    let (rounds, leg_ms) = if quick { (1, 30) } else { (5, 400) };
    let dir = tempfile::tempdir().expect("a directory");
    let target = Target::new(dir.path());
    let mut cells = Vec::new();
    for job in Job::all() {
        let new = |contender| Cell { job, contender, latencies: histogram(), rates: Vec::new() };
        let mut of_job: Vec<Cell> = CONTENDERS.into_iter().map(new).collect();
        for round in 0..rounds {
            let mut order: Vec<usize> = (0..of_job.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let cell = &mut of_job[index];
                cell.add(&contenders::run(cell.contender, &target, job, leg_ms));
            }
        }
        cells.extend(of_job);
    }
    cells
}

/// For people.
pub(crate) fn table(cells: &[Cell]) -> String {
    let mut text = String::from(
        "| beside | write | under way | how | p50 µs | p99 µs | worst µs | writes/s |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for cell in cells {
        let Cell { job, contender, latencies, .. } = cell;
        let [p50, p99] = [0.5, 0.99].map(|quantile| latencies.value_at_quantile(quantile));
        let (beside, kib, depth, how) = (job.beside(), job.bytes / 1024, job.depth, contender.name());
        let (worst, rate) = (latencies.max(), cell.rate());
        let _infallible = match latencies.len() {
            0 => writeln!(text, "| {beside} | {kib} KiB | {depth} | {how} | — | — | — | none ended |"),
            _ => writeln!(text, "| {beside} | {kib} KiB | {depth} | {how} | {p50} | {p99} | {worst} | {rate:.0} |"),
        };
    }
    text
}

/// For programs.
pub(crate) fn json(cells: &[Cell]) -> String {
    let object = |cell: &Cell| {
        let Cell { job, contender, latencies, rates } = cell;
        let line = json!({
            "how": contender.name(), "busy": job.busy, "bytes": job.bytes, "under_way": job.depth, "rate": cell.rate().round(),
            "rate_range": [rates[0].round(), rates[rates.len() - 1].round()], "p50_us": latencies.value_at_quantile(0.5),
            "p99_us": latencies.value_at_quantile(0.99), "worst_us": latencies.max(),
        });
        format!("{line}\n")
    };
    cells.iter().map(object).collect()
}
