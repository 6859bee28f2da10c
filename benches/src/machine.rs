//! What is asked of the machine: its disk's speed right now, CPU time, the memory and the waits of another process's threads.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;
use wasmkeep_storage::clock::Clock;

/// Durable 4 KiB writes per second right now, for judging whether two legs had the same disk.
#[must_use]
pub fn probe(data: &Path) -> f64 {
    let file = File::create(data.join("probe")).expect("a file");
    let clock = Clock::System;
    file.write_all_at(&vec![1; 1 << 20], 0).expect("writes");
    file.sync_all().expect("syncs");
    let start_ns = clock.monotonic_ns();
    let writes = 1000_u32;
    for n in 0..writes {
        file.write_all_at(&[2; 4096], u64::from(n % 256) * 4096).expect("writes");
        file.sync_data().expect("syncs");
    }
    f64::from(writes) / Duration::from_nanos(clock.monotonic_ns() - start_ns).as_secs_f64()
}

/// Latencies up to a minute, µs. With bounds: one that grows by itself clamps what it is given until it has grown.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("bounds")
}

/// CPU time of this process so far, µs.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "microseconds of one process")]
pub fn cpu_us() -> f64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut ts) };
    ts.tv_sec as f64 * 1e6 + ts.tv_nsec as f64 / 1e3
}

/// Binds the calling thread to the last processor it may use: a node binds its cores from the first one on.
pub fn pin_to_last_cpu() {
    let Some(cpu) = wasmkeep::config::allowed_cpus().last().copied() else { return };
    // SAFETY: an all-zero cpu_set_t is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the number came out of such a set, so it is below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the size is the set's own; 0 is the calling thread. Refused, the bench is only noisier.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
}

/// Private memory of a process that is in RAM, bytes: without the pages of files, which the system may drop.
#[must_use]
pub fn private_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux says so since 4.5");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// How long a thread has been ready to run and did not, because the machine ran something else.
#[derive(Debug)]
pub struct RunDelay(File);

impl RunDelay {
    /// Of the calling thread.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").expect("the system counts it"))
    }

    /// Of the thread with this name in another process.
    #[must_use]
    pub fn of_thread(pid: u32, name: &str) -> Self {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
        let paths = tasks.map(|task| task.expect("an entry").path());
        let is_it =
            |path: &std::path::PathBuf| std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name);
        let found = paths.into_iter().find(is_it).unwrap_or_else(|| panic!("process {pid} has no thread {name}"));
        Self(File::open(found.join("schedstat")).expect("the system counts it"))
    }

    /// So far, ns.
    #[must_use]
    pub fn ns(&self) -> u64 {
        let mut text = [0; 96];
        let length = self.0.read_at(&mut text, 0).expect("the thread runs");
        let text = std::str::from_utf8(&text[..length]).expect("digits");
        text.split(' ').nth(1).and_then(|field| field.parse().ok()).expect("three numbers")
    }
}

/// The machine in one line, for whoever reads numbers.
#[must_use]
pub fn describe() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name\t: ")).unwrap_or("unknown CPU").to_owned();
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let load = read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned();
    format!("{cpus} CPUs, {model}, Linux {}, load average {load} at the end", read("/proc/sys/kernel/osrelease").trim())
}
