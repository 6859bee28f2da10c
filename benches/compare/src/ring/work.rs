//! What every contender is given: a file, a job, a way to keep time.

use std::cell::{Cell, RefCell};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use hdrhistogram::Histogram;
use wasmkeep_storage::clock::Clock;
use wasmkeep_storage::disk::AlignedBuf;

/// The file's length, bytes: a journal segment's.
const FILE_BYTES: u64 = 32 << 20;
/// How long the busy task computes before it gives way, ns: as long as a guest runs between two epochs.
const BUSY_SLICE_NS: u64 = 1_000_000;

/// One combination of what is varied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Job {
    /// Whether another task of the executor is always ready.
    pub(crate) busy: bool,
    /// Bytes of one write.
    pub(crate) bytes: usize,
    /// Writes under way.
    pub(crate) depth: usize,
}

impl Job {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let sizes = |busy| [4 << 10, 64 << 10].into_iter().map(move |bytes| (busy, bytes));
        let depths = |(busy, bytes)| [1, 2].into_iter().map(move |depth| Self { busy, bytes, depth });
        [false, true].into_iter().flat_map(sizes).flat_map(depths)
    }

    pub(crate) const fn beside(self) -> &'static str {
        if self.busy { "a busy task" } else { "nothing" }
    }
}

/// What one contender did in one leg.
pub(crate) struct Leg {
    pub(crate) latencies: Histogram<u64>,
    /// Writes per second.
    pub(crate) rate: f64,
}

/// Latencies up to a minute, µs.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("bounds")
}

/// The file that is written.
pub(crate) struct Target(PathBuf);

impl Target {
    pub(crate) fn new(dir: &Path) -> Self {
        let path = dir.join("segment");
        std::fs::write(&path, vec![0; usize::try_from(FILE_BYTES).unwrap_or(0)]).expect("writes");
        let target = Self(path);
        target.open().sync_all().expect("syncs");
        target
    }

    /// Opens it so that every write is durable at its end and passes the page cache.
    pub(crate) fn open(&self) -> std::fs::File {
        OpenOptions::new().write(true).custom_flags(libc::O_DIRECT | libc::O_DSYNC).open(&self.0).expect("opens")
    }
}

/// Counts one leg's writes on its thread.
pub(crate) struct Meter {
    clock: Clock,
    job: Job,
    start_ns: u64,
    end_ns: u64,
    latencies: RefCell<Histogram<u64>>,
    started: Cell<u64>,
}

impl Meter {
    pub(crate) fn start(job: Job, leg: Duration) -> Rc<Self> {
        let clock = Clock::System;
        let start_ns = clock.monotonic_ns();
        let end_ns = start_ns + u64::try_from(leg.as_nanos()).unwrap_or(u64::MAX);
        Rc::new(Self { clock, job, start_ns, end_ns, latencies: RefCell::new(histogram()), started: Cell::new(0) })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.clock.monotonic_ns() >= self.end_ns
    }

    /// Where the next write goes and when it was asked for; `None` when the leg is over.
    pub(crate) fn next(&self) -> Option<(u64, u64)> {
        let now_ns = self.clock.monotonic_ns();
        let number = self.started.replace(self.started.get() + 1);
        (now_ns < self.end_ns).then_some((number * self.job.bytes as u64 % FILE_BYTES, now_ns))
    }

    /// A write that was asked for at `since_ns` has ended.
    pub(crate) fn ended(&self, since_ns: u64) {
        self.latencies.borrow_mut().saturating_record((self.clock.monotonic_ns() - since_ns) / 1000);
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    pub(crate) fn leg(&self) -> Leg {
        let latencies = self.latencies.borrow().clone();
        let seconds = Duration::from_nanos(self.clock.monotonic_ns() - self.start_ns).as_secs_f64();
        Leg { rate: latencies.len() as f64 / seconds, latencies }
    }

    /// One slice of the busy task.
    pub(crate) fn compute(&self) {
        let end_ns = self.clock.monotonic_ns() + BUSY_SLICE_NS;
        while self.clock.monotonic_ns() < end_ns {
            std::hint::spin_loop();
        }
    }

    /// A block to write, aligned as O_DIRECT wants it.
    pub(crate) fn block(&self) -> Block {
        let mut buffer = AlignedBuf::new();
        buffer.extend(&vec![0x5a; self.job.bytes]);
        Block(buffer)
    }
}

/// A buffer that both peers' rings take.
pub(crate) struct Block(pub(crate) AlignedBuf);

// SAFETY: the pointer is that of the buffer's blocks on the heap, which do not move when the buffer does, and as many bytes as
// it says are initialised.
unsafe impl tokio_uring::buf::IoBuf for Block {
    fn stable_ptr(&self) -> *const u8 {
        self.0.as_slice().as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.0.len()
    }

    fn bytes_total(&self) -> usize {
        self.0.len()
    }
}

// SAFETY: as above.
unsafe impl monoio::buf::IoBuf for Block {
    fn read_ptr(&self) -> *const u8 {
        self.0.as_slice().as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.0.len()
    }
}
