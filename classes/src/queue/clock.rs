//! The time of a queue: it never goes back, and it goes on while the host's clock is behind.
//!
//! Taking the larger of two readings would freeze leases for as long as a clock stepped back. So the queue keeps the difference
//! instead, and drops it once the host's clock has caught up.

use crate::limits::QUEUE_TIME_MS_MAX;

/// The last reading, and how far ahead of the host's clock it is, ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Clock {
    now: i64,
    ahead: i64,
}

impl Clock {
    /// A clock that has seen `now`.
    pub(super) const fn from(now: i64) -> Self {
        Self { now, ahead: 0 }
    }

    /// What time it is when the host says `host_ms`.
    pub(super) fn read(&mut self, host_ms: u64) -> i64 {
        let host = i64::try_from(host_ms).unwrap_or(QUEUE_TIME_MS_MAX).min(QUEUE_TIME_MS_MAX);
        if host >= self.now {
            *self = Self::from(host);
        } else if host + self.ahead >= self.now {
            self.now = host + self.ahead;
        } else {
            self.ahead = self.now - host;
        }
        self.now
    }

    /// What the host's clock shows when this one shows `at`.
    pub(super) fn host(&self, at: i64) -> u64 {
        u64::try_from(at - self.ahead).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_behind_a_clock_that_stepped_back_and_joins_it_again() {
        let mut clock = Clock::default();
        assert_eq!((clock.read(10_000), clock.read(10_500)), (10_000, 10_500));
        assert_eq!((clock.read(2_000), clock.read(2_100), clock.host(11_000)), (10_500, 10_600, 2_500));
        assert_eq!((clock.read(10_650), clock.read(10_660), clock.host(11_000)), (10_650, 10_660, 11_000));
    }

    #[test]
    fn a_clock_that_jitters_does_not_gain_time() {
        let mut clock = Clock::default();
        for step in 0..1_000 {
            assert_eq!(clock.read(1_000 + step / 10 - step % 2), 1_000 + i64::try_from((step - step % 2) / 10).expect("fits"));
        }
    }

    #[test]
    fn the_end_of_time_is_far_from_overflow() {
        let mut clock = Clock::default();
        assert_eq!((clock.read(u64::MAX), clock.read(0)), (QUEUE_TIME_MS_MAX, QUEUE_TIME_MS_MAX));
        assert_eq!((clock.read(5), clock.host(0)), (QUEUE_TIME_MS_MAX + 5, 0));
    }
}
