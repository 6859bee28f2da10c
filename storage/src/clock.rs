//! Time, injected. The only module of the product that asks the operating system what time it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A source of time. Cheap to clone; `manual` clocks are shared by all their clones.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The operating system's.
    #[default]
    System,
    /// A test's: moves only when told.
    Manual(Arc<ManualClock>),
    /// A test's: the operating system's, with a wall clock that is put forward when told. What runs goes on in real time, so a
    /// whole node can live by it.
    Ahead(Arc<AheadClock>),
}

/// The state of a clock that a test moves.
#[derive(Debug, Default)]
pub struct ManualClock {
    monotonic_ns: AtomicU64,
    wall_ms: AtomicU64,
}

impl ManualClock {
    /// Moves both times forward.
    pub fn advance_ms(&self, ms: u64) {
        self.monotonic_ns.fetch_add(ms * 1_000_000, Ordering::Relaxed);
        self.wall_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

/// How far a wall clock was put forward.
#[derive(Debug, Default)]
pub struct AheadClock {
    ahead_ms: AtomicU64,
}

impl AheadClock {
    /// Puts the wall clock forward.
    pub fn advance_ms(&self, ms: u64) {
        self.ahead_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Clock {
    /// A clock at zero that moves only when told, and the handle to move it.
    #[must_use]
    pub fn manual() -> (Self, Arc<ManualClock>) {
        let state = Arc::new(ManualClock::default());
        (Self::Manual(Arc::clone(&state)), state)
    }

    /// Nanoseconds since some fixed point; never goes back.
    #[must_use]
    pub fn monotonic_ns(&self) -> u64 {
        match self {
            Self::System | Self::Ahead(_) => {
                let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                // SAFETY: `ts` is a valid timespec to write to, and CLOCK_MONOTONIC always exists on Linux.
                unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut ts) };
                u64::try_from(ts.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(ts.tv_nsec).unwrap_or(0)
            }
            Self::Manual(state) => state.monotonic_ns.load(Ordering::Relaxed),
        }
    }

    /// Milliseconds since the Unix epoch; may step.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one module that may")]
    pub fn wall_ms(&self) -> u64 {
        match self {
            Self::System => {
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
            }
            Self::Manual(state) => state.wall_ms.load(Ordering::Relaxed),
            Self::Ahead(state) => Self::System.wall_ms().saturating_add(state.ahead_ms.load(Ordering::Relaxed)),
        }
    }
}
