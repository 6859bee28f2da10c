//! Messages that harm their consumer: each is tried again, dead-lettered with the last error, and holds up no other message.

use std::time::Duration;

use wasmkeep_classes::queue::Config;

use crate::bed::{Bed, CONSUMER, Place};
use crate::queue::message;

/// Sends the poison between two good messages, to a consumer of one message at a time.
fn poisoned(place: Place, poison: &str, reason: &str) {
    let config = Config { consumer: Some(CONSUMER.into()), batch: 1, max_attempts: 2, ..Config::default() };
    let bed = Bed::of_queues_with(place, config, |node| {
        node.budgets.event_cpu = Duration::from_millis(200);
        node.budgets.memory_bytes = 16 * 1024 * 1024;
    });
    let queue = bed.queue();
    let ids = queue.send(&[message("before"), message(poison), message("behind")]);
    queue.until("the others are settled while it waits", |stats| stats.counters.acked == 2 && stats.counters.retried == 1);
    assert_eq!((queue.live(), queue.dead()), (1, vec![]));
    bed.advance(Duration::from_secs(1));
    queue.until("it is dead", |stats| stats.dead == 1);
    let dead = queue.dead();
    assert_eq!((queue.live(), dead.len(), dead[0].id, dead[0].attempts), (0, 1, ids[1], 2));
    assert!(dead[0].reason.contains(reason), "{}", dead[0].reason);
    // The node lives, and so do queue and consumer.
    queue.send_all(&["after"]);
    queue.until("it is settled", |stats| stats.counters.acked == 3);
    assert_eq!(bed.consumed(&queue.address.name), ["1:before", "3:behind", "4:after"]);
}

fn a_consumer_that_traps(place: Place) {
    poisoned(place, "trap", "answered 500");
}

fn a_consumer_that_computes_without_end(place: Place) {
    poisoned(place, "spin", "answered 500");
}

fn a_consumer_that_takes_all_memory(place: Place) {
    poisoned(place, "allocate", "answered 500");
}

fn a_consumer_that_answers_garbage(place: Place) {
    poisoned(place, "garbage", "answer was refused: malformed");
}

fn a_consumer_that_answers_another_status(place: Place) {
    poisoned(place, "no-content", "answered 204");
}

promises! {
    a_consumer_that_traps,
    a_consumer_that_computes_without_end,
    a_consumer_that_takes_all_memory,
    a_consumer_that_answers_garbage,
    a_consumer_that_answers_another_status,
}
