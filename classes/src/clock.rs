//! The time of a state machine: it never goes back, and it goes on while the host's clock is behind.
//!
//! Taking the larger of two readings would freeze leases and times to live for as long as a clock stepped back. So the machine
//! keeps the difference instead, and drops it once the host's clock has caught up. It is not a source of time.

use crate::limits::TIME_MS_MAX;

/// The last reading, and how far ahead of the host's clock it is, ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Clock {
    now: i64,
    ahead: i64,
}

fn bounded(host_ms: u64) -> i64 {
    i64::try_from(host_ms).unwrap_or(TIME_MS_MAX).min(TIME_MS_MAX)
}

impl Clock {
    /// The clock of a machine that was asleep, from what it left in its database. The host's counts alone unless it is
    /// behind.
    pub(crate) fn resume(seen: i64, ahead: i64, host_ms: u64) -> Self {
        let host = bounded(host_ms);
        if host >= seen {
            return Self { now: host, ahead: 0 };
        }
        let ahead = ahead.min(TIME_MS_MAX).max(seen - host);
        Self { now: host + ahead, ahead }
    }

    /// What time it is when the host says `host_ms`.
    pub(crate) fn read(&mut self, host_ms: u64) -> i64 {
        let host = bounded(host_ms);
        if host >= self.now {
            *self = Self { now: host, ahead: 0 };
        } else if host + self.ahead >= self.now {
            self.now = host + self.ahead;
        } else {
            self.ahead = self.now - host;
        }
        self.now
    }

    /// The last reading.
    pub(crate) const fn now(&self) -> i64 {
        self.now
    }

    /// How far it is ahead of the host's clock.
    pub(crate) const fn ahead(&self) -> i64 {
        self.ahead
    }

    /// What the host's clock shows when this one shows `at`.
    pub(crate) fn host(&self, at: i64) -> u64 {
        u64::try_from(at - self.ahead).unwrap_or(0)
    }

    /// What this one shows when the host's clock shows `host_ms`.
    pub(crate) fn at(&self, host_ms: u64) -> i64 {
        bounded(host_ms) + self.ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_behind_a_clock_that_stepped_back_and_joins_it_again() {
        let mut clock = Clock::default();
        assert_eq!((clock.read(10_000), clock.read(10_500)), (10_000, 10_500));
        assert_eq!((clock.read(2_000), clock.read(2_100), clock.host(11_000), clock.at(2_500)), (10_500, 10_600, 2_500, 11_000));
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
    fn time_goes_on_from_sleep_to_sleep_under_a_clock_that_is_behind() {
        let mut clock = Clock::resume(1_000_000, 0, 10_000);
        assert_eq!((clock.now(), clock.ahead(), clock.read(10_500)), (1_000_000, 990_000, 1_000_500));
        let clock = Clock::resume(1_000_000, 990_000, 20_000);
        assert_eq!((clock.now(), clock.ahead()), (1_010_000, 990_000));
        assert_eq!(Clock::resume(1_000_000, 990_000, 1_000_001), Clock { now: 1_000_001, ahead: 0 });
    }

    #[test]
    fn the_end_of_time_is_far_from_overflow() {
        let mut clock = Clock::default();
        assert_eq!((clock.read(u64::MAX), clock.read(0)), (TIME_MS_MAX, TIME_MS_MAX));
        assert_eq!((clock.read(5), clock.host(0)), (TIME_MS_MAX + 5, 0));
        let slept = clock.now();
        assert_eq!(Clock::resume(slept, clock.ahead(), 0).now(), slept, "later than the latest reading, and asleep since");
        let clock = Clock::resume(TIME_MS_MAX, i64::MAX, 0);
        assert_eq!((clock.now(), clock.at(u64::MAX)), (TIME_MS_MAX, 2 * TIME_MS_MAX));
    }
}
