//! The CPU time of one event, drawn on by guest code and SQL alike.

use std::cell::Cell;

use crate::clock::Clock;

/// What an event may still use. Shared by the actor's instance and its connection.
#[derive(Debug)]
pub struct EventBudget {
    clock: Clock,
    left_ns: Cell<u64>,
    aborted: Cell<bool>,
}

impl EventBudget {
    /// A budget of `cpu_ns`.
    #[must_use]
    pub const fn new(clock: Clock, cpu_ns: u64) -> Self {
        Self { clock, left_ns: Cell::new(cpu_ns), aborted: Cell::new(false) }
    }

    /// Time, as the budget counts it.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Uses up time.
    pub fn charge(&self, ns: u64) {
        self.left_ns.set(self.left_ns.get().saturating_sub(ns));
    }

    /// Ends the event at its next look at the budget.
    pub fn abort(&self) {
        self.aborted.set(true);
    }

    /// Begins a new event.
    pub fn reset(&self, cpu_ns: u64) {
        self.left_ns.set(cpu_ns);
        self.aborted.set(false);
    }

    /// Whether the event has to end.
    #[must_use]
    pub fn exhausted(&self) -> bool {
        self.aborted.get() || self.left_ns.get() == 0
    }

    /// Whether `abort` was called since the last `reset`.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.aborted.get()
    }
}
