//! How a core feels: how busy it is and how late it comes to what is due.

use std::time::Duration;

use tokio::runtime::Handle;
use wasmkeep_storage::clock::Clock;

use crate::metrics::CoreMetrics;

/// Lag is sampled this often: often enough for a p99 over minutes, rare enough to cost nothing.
const SAMPLE: Duration = Duration::from_millis(100);
/// The busy ratio is over this many samples.
const SAMPLES_PER_RATIO: u32 = 10;

/// Samples for as long as its core lives.
pub(crate) async fn watch(metrics: CoreMetrics, clock: Clock) {
    let runtime = Handle::current().metrics();
    let mut busy = runtime.worker_total_busy_duration(0);
    let mut since_ns = clock.monotonic_ns();
    loop {
        for _ in 0..SAMPLES_PER_RATIO {
            let before_ns = clock.monotonic_ns();
            tokio::time::sleep(SAMPLE).await;
            let slept = Duration::from_nanos(clock.monotonic_ns() - before_ns);
            metrics.lag_seconds.record(slept.saturating_sub(SAMPLE).as_secs_f64());
        }
        let (busy_now, now_ns) = (runtime.worker_total_busy_duration(0), clock.monotonic_ns());
        let passed = Duration::from_nanos(now_ns - since_ns);
        let ratio = busy_now.saturating_sub(busy).as_secs_f64() / passed.as_secs_f64().max(1e-9);
        metrics.busy_ratio.set(ratio.clamp(0.0, 1.0));
        (busy, since_ns) = (busy_now, now_ns);
    }
}
