//! From the start of a killed node's process to its first reply, with 256 MB of journal per core on a cold disk (row A3).
//!
//! The goal is 3 s; this bench fails when the median exceeds twice as much. As a smoke test the journals have 16 MB.

use std::process::ExitCode;
use std::time::Duration;

use criterion::{Criterion, SamplingMode};
use wasmkeep_benches::restart::{Killed, RESTART_S_MAX};
use wasmkeep_benches::{is_smoke, node};

const MB: u64 = 1 << 20;
const CORES: usize = 2;

fn main() -> ExitCode {
    if let Some(status) = node::play_role() {
        return status;
    }
    let mut criterion = Criterion::default().configure_from_args();
    let mut took: Vec<Duration> = Vec::new();
    let mut killed = None;
    let mut group = criterion.benchmark_group("restart");
    group.sample_size(10).sampling_mode(SamplingMode::Flat).measurement_time(Duration::from_secs(1));
    group.warm_up_time(Duration::from_millis(1)).bench_function("first_reply", |bencher| {
        let killed = killed.get_or_insert_with(|| Killed::new(CORES, if is_smoke() { 16 * MB } else { 256 * MB }));
        bencher.iter_custom(|restarts| {
            let of_sample: Vec<_> = (0..restarts).map(|_| killed.restart().1).collect();
            took.extend(&of_sample);
            of_sample.iter().sum()
        });
    });
    group.finish();
    criterion.final_summary();
    took.sort_unstable();
    match took.get(took.len() / 2) {
        Some(median) if !is_smoke() && median.as_secs_f64() > 2.0 * RESTART_S_MAX => {
            println!("a restart took {median:?}, twice the goal of {RESTART_S_MAX} s");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
