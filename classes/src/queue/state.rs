//! What a queue keeps in memory, so that a host can take it back together with what was written.

use crate::clock::Clock;

use std::sync::Arc;

use super::protocol::{Counters, Lease};
use super::sql::BLOCKED;

/// Memory of a queue at one moment. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub(super) clock: Clock,
    /// When the time was last written to the database.
    pub(super) clock_written_at: i64,
    /// The id of the newest message there ever was.
    pub(super) last_id: i64,
    /// The epoch in the database, and whether leases of now may carry it.
    pub(super) epoch: i64,
    pub(super) is_epoch_ours: bool,
    pub(super) is_paused: bool,
    pub(super) counts: Counts,
    /// Rows in `wasmkeep_queue_order`: without any, no statement asks for one.
    pub(super) keyed: u64,
    pub(super) dead: u64,
    /// The live message with the smallest id and when it was enqueued.
    pub(super) oldest: Cached<(i64, i64)>,
    /// The smallest `visible_at`, `BLOCKED` left out.
    pub(super) earliest: Cached<i64>,
    /// When the first of the last leases runs out.
    pub(super) last_until: Cached<i64>,
    /// When the first dedupe id runs out.
    pub(super) dedupe_until: Option<i64>,
    pub(super) deliveries: u64,
    pub(super) out: Arc<Vec<Out>>,
    pub(super) counters: Counters,
}

/// A delivery whose outcome is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Out {
    pub(super) number: u64,
    pub(super) leases: Arc<[Lease]>,
}

/// A minimum of a table: known, or to be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cached<T> {
    Known(Option<T>),
    Unknown,
}

impl<T: Copy + Ord> Cached<T> {
    pub(super) fn add(&mut self, value: T) {
        if let Self::Known(known) = self {
            *known = Some(known.map_or(value, |known| known.min(value)));
        }
    }

    pub(super) const fn get(&self) -> Option<T> {
        match self {
            Self::Known(known) => *known,
            Self::Unknown => None,
        }
    }
}

/// How many live messages are visible as of a moment, and why the others are not. What happens to a message moves it between the
/// four; what time does to it is counted when the moment moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) as_of: i64,
    pub(super) visible: u64,
    pub(super) delayed: u64,
    pub(super) leased: u64,
    pub(super) blocked: u64,
}

impl Counts {
    const fn class(&mut self, visible_at: i64, is_leased: bool) -> &mut u64 {
        if visible_at == BLOCKED {
            &mut self.blocked
        } else if visible_at <= self.as_of {
            &mut self.visible
        } else if is_leased {
            &mut self.leased
        } else {
            &mut self.delayed
        }
    }

    pub(super) const fn add(&mut self, visible_at: i64, is_leased: bool) {
        *self.class(visible_at, is_leased) += 1;
    }

    pub(super) const fn remove(&mut self, visible_at: i64, is_leased: bool) {
        let class = self.class(visible_at, is_leased);
        debug_assert!(*class > 0, "what is taken away was counted");
        *class = class.saturating_sub(1);
    }

    pub(super) const fn live(&self) -> u64 {
        self.visible + self.delayed + self.leased + self.blocked
    }
}

/// What a host shows of a queue without asking its database, also while the queue sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Gauges {
    /// Messages that are neither acked nor dead.
    pub depth: u64,
    /// Dead letters.
    pub dead: u64,
    /// When the oldest of the former was enqueued, ms by the host's clock.
    pub oldest_enqueued_at_ms: Option<u64>,
    /// Whether it is paused.
    pub is_paused: bool,
}
