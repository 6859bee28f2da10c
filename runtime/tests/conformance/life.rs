//! The life of a message with a restart of the node between every two of its steps.

use std::time::Duration;

use wasmkeep_classes::queue::Config;
use wasmkeep_classes::queue::protocol::{Settled, Which};

use crate::bed::{Bed, Place};
use crate::queue::{Got, Queue};

const LEASE_MS: u64 = 60_000;

/// A bed whose every step ends with a restart.
struct Life {
    bed: Bed,
    name: String,
}

impl Life {
    fn step<T>(&mut self, step: impl FnOnce(&Queue<'_>) -> T) -> T {
        let done = step(&self.bed.queue_named(&self.name));
        self.bed.restart();
        done
    }
}

fn a_restart_between_every_two_steps_of_a_message_changes_nothing(place: Place) {
    let bed = Bed::of_queues(place, Config { max_attempts: 2, ..Config::default() });
    let name = bed.name(0);
    let mut life = Life { bed, name };
    let id = life.step(|queue| queue.send_all(&["message"]))[0];
    let first = life.step(|queue| queue.lease_one(LEASE_MS));
    assert_eq!((first.lease.id, first.lease.attempt), (id, 1));
    assert_eq!(life.step(|queue| queue.lease(10, LEASE_MS)), []);
    assert_eq!(life.step(|queue| queue.retry(first.lease, Some(30_000), "first error")), Settled::Done);
    assert_eq!(life.step(|queue| (queue.stats().delayed, queue.lease(10, LEASE_MS))), (1, vec![]));
    life.bed.advance(Duration::from_secs(30));
    let second: Got = life.step(|queue| queue.lease_one(LEASE_MS));
    assert_eq!((second.lease.id, second.lease.attempt), (id, 2));
    assert_eq!(life.step(|queue| queue.extend(second.lease, 2 * LEASE_MS)), Settled::Done);
    life.bed.advance(Duration::from_millis(LEASE_MS));
    assert_eq!(life.step(|queue| queue.stats().leased), 1);
    assert_eq!(life.step(|queue| queue.retry(second.lease, None, "last error")), Settled::Dead);
    let dead = life.step(|queue| queue.dead());
    assert_eq!((dead.len(), dead[0].id, dead[0].attempts, dead[0].reason.as_str()), (1, id, 2, "last error"));
    assert_eq!(life.step(|queue| queue.redrive(&Which::DeadOlderThan { age_ms: 0 }).count), 1);
    let third = life.step(|queue| queue.lease_one(LEASE_MS));
    assert_eq!((third.lease.id, third.lease.attempt, third.body.as_str()), (id, 1, "message"));
    // The lease has the number of the very first one, and is another.
    assert_eq!(life.step(|queue| queue.ack(first.lease)), Settled::Stale);
    assert_eq!(life.step(|queue| queue.ack(third.lease)), Settled::Done);
    assert_eq!(life.step(|queue| (queue.live(), queue.dead(), queue.lease(10, LEASE_MS))), (0, vec![], vec![]));
}

promises! {
    a_restart_between_every_two_steps_of_a_message_changes_nothing,
}
