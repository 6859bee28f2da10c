//! A core that had many actors awake and now has few gives the memory back, once it has been so for a while.
//!
//! It is not what bounds memory while actors are awake: the pool of instances and the limits of each queue are.

use super::Core;
use crate::limits::{TRIM_ACTORS_MIN, TRIM_SWEEPS};
use crate::memory;

/// What a core had in memory since it last gave memory back.
#[derive(Clone, Copy, Default)]
pub(super) struct Peak {
    /// The most at any sweep.
    most: usize,
    /// For how many sweeps there has been far less.
    sweeps: u32,
}

impl Peak {
    /// Takes in what is in memory at this sweep; says whether it is time to give back.
    fn look(&mut self, now: usize) -> bool {
        if self.most < TRIM_ACTORS_MIN || now >= self.most / 2 {
            *self = Self { most: self.most.max(now), sweeps: 0 };
            return false;
        }
        self.sweeps += 1;
        let is_time = self.sweeps >= TRIM_SWEEPS;
        if is_time {
            *self = Self { most: now, sweeps: 0 };
        }
        is_time
    }
}

impl Core {
    /// To be called at each sweep with how many actors are awake. Those that sleep count for as long as the store has something of
    /// them in memory: pages that are not in their base files, facts that are not in a catalog.
    pub(super) fn give_memory_back(&self, loaded: usize) {
        if self.residents.borrow().len() > 2 * loaded.max(TRIM_ACTORS_MIN) {
            self.drop_gone_residents();
        }
        let in_memory = loaded.max(self.store.in_memory());
        let mut peak = self.peak.get();
        let is_time = peak.look(in_memory);
        self.peak.set(peak);
        if is_time {
            self.shrink();
            memory::give_back_own();
            memory::give_back_shared();
        }
    }

    /// Lets go of what held far more than it does now.
    fn shrink(&self) {
        self.drop_gone_residents();
        self.residents.borrow_mut().shrink_to_fit();
        self.actors.borrow_mut().shrink_to_fit();
        self.slots.borrow_mut().shrink_to_fit();
        self.inbox.borrow_mut().shrink_to_fit();
        for outbox in &self.outboxes {
            outbox.queue.borrow_mut().shrink_to_fit();
        }
        self.store.shrink();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_when_most_has_stayed_away_and_not_for_a_few_or_a_moment() {
        let mut peak = Peak::default();
        assert!(!(0..1000).any(|_| peak.look(TRIM_ACTORS_MIN - 1) || peak.look(0)), "a few");
        assert!(!peak.look(1000));
        assert!(!(1..TRIM_SWEEPS).any(|_| peak.look(10)), "not yet");
        assert!(!peak.look(600), "they came back");
        assert!(!(1..TRIM_SWEEPS).any(|_| peak.look(10)), "not yet");
        assert!(peak.look(10));
        assert!(!(0..1000).any(|_| peak.look(10)), "once");
    }
}
