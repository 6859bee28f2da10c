//! Leasing, settling, dead letters, order and pauses of a queue that is pulled from.

use std::time::Duration;

use wasmkeep_classes::queue::Config;
use wasmkeep_classes::queue::protocol::{Outcome, Settled, Which};

use crate::bed::{Bed, Place};
use crate::queue::{Dead, bodies, keyed, later, message};

const LEASE_MS: u64 = 60_000;
const LEASE: Duration = Duration::from_millis(LEASE_MS);
const ALL: Which = Which::DeadOlderThan { age_ms: 0 };

fn a_leased_message_is_hidden_until_its_lease_runs_out_and_then_comes_again_as_the_next_attempt(place: Place) {
    let bed = Bed::of_queues(place, Config::default());
    let queue = bed.queue();
    let id = queue.send_all(&["a"])[0];
    let first = queue.lease_one(LEASE_MS);
    assert_eq!((first.lease.id, first.lease.attempt, first.body.as_str()), (id, 1, "a"));
    assert_eq!((queue.lease(10, LEASE_MS), queue.stats().leased), (vec![], 1));
    bed.advance(LEASE);
    let second = queue.lease_one(LEASE_MS);
    assert_eq!((second.lease.id, second.lease.attempt, second.body.as_str()), (id, 2, "a"));
}

fn a_lease_that_is_over_is_stale_and_changes_nothing(place: Place) {
    let bed = Bed::of_queues(place, Config::default());
    let queue = bed.queue();
    queue.send_all(&["a"]);
    let old = queue.lease_one(LEASE_MS);
    bed.advance(LEASE);
    let new = queue.lease_one(LEASE_MS);
    let late = [(old.lease, Outcome::Ack), (old.lease, Outcome::Extend { visibility_ms: 1 })];
    assert_eq!(queue.settle(&late), [Settled::Stale; 2]);
    assert_eq!(queue.retry(old.lease, Some(0), "late"), Settled::Stale);
    assert_eq!((queue.stats().leased, queue.ack(new.lease)), (1, Settled::Done));
    assert_eq!((queue.ack(new.lease), queue.live()), (Settled::Stale, 0));
}

fn a_message_that_was_acked_late_but_before_anybody_else_had_it_never_comes_back(place: Place) {
    let bed = Bed::of_queues(place, Config::default());
    let queue = bed.queue();
    queue.send_all(&["a"]);
    let got = queue.lease_one(LEASE_MS);
    bed.advance(LEASE * 2);
    assert_eq!((queue.ack(got.lease), queue.lease(10, LEASE_MS)), (Settled::Done, vec![]));
    bed.advance(LEASE * 2);
    assert_eq!((queue.lease(10, LEASE_MS), queue.live()), (vec![], 0));
}

fn a_retry_comes_after_its_delay_or_after_a_backoff_that_doubles(place: Place) {
    let bed = Bed::of_queues(place, Config::default());
    let queue = bed.queue();
    queue.send_all(&["a"]);
    assert_eq!(queue.retry(queue.lease_one(LEASE_MS).lease, Some(30_000), "later"), Settled::Done);
    assert_eq!((queue.lease(10, LEASE_MS), queue.stats().delayed), (vec![], 1));
    bed.advance(Duration::from_secs(30));
    for rest_ms in [20_000, 40_000] {
        let attempt = queue.lease_one(LEASE_MS).lease;
        assert_eq!(queue.retry(attempt, Some(rest_ms), ""), Settled::Done);
        bed.advance(Duration::from_millis(rest_ms));
    }
    let fourth = queue.lease_one(LEASE_MS).lease;
    // Unless told otherwise a message rests for 1 s after its first attempt, and for 8 s after its fourth.
    assert_eq!((fourth.attempt, queue.retry(fourth, None, "")), (4, Settled::Done));
    assert_eq!(queue.lease(10, LEASE_MS), []);
    bed.advance(Duration::from_secs(8));
    assert_eq!(queue.lease_one(LEASE_MS).lease.attempt, 5);
}

fn a_batch_settles_each_message_by_itself(place: Place) {
    let bed = Bed::of_queues(place, Config::default());
    let queue = bed.queue();
    let names: Vec<String> = (1..=10).map(|n| format!("m{n}")).collect();
    queue.send_all(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let got = queue.lease(10, LEASE_MS);
    assert_eq!(bodies(&got), names);
    let mut outcomes: Vec<_> = got[..7].iter().map(|got| (got.lease, Outcome::Ack)).collect();
    outcomes.push((got[7].lease, Outcome::Retry { delay_ms: Some(0), error: "busy" }));
    assert_eq!(queue.settle(&outcomes), [Settled::Done; 8]);
    assert_eq!(bodies(&queue.lease(10, LEASE_MS)), ["m8"]);
    bed.advance(LEASE);
    let mut rest = queue.lease(10, LEASE_MS);
    rest.sort_by_key(|got| got.lease.id);
    assert_eq!((bodies(&rest), queue.live()), (vec!["m8", "m9", "m10"], 3));
}

fn a_message_whose_attempts_are_used_up_dies_once_with_its_last_error(place: Place) {
    let bed = Bed::of_queues(place, Config { max_attempts: 3, ..Config::default() });
    let queue = bed.queue();
    let ids = queue.send_all(&["told", "silent"]);
    for (attempt, settled) in [(1, Settled::Done), (2, Settled::Done), (3, Settled::Dead)] {
        let got = queue.lease(10, LEASE_MS);
        assert_eq!((bodies(&got), got[0].lease.attempt), (vec!["told", "silent"], attempt));
        assert_eq!(queue.retry(got[0].lease, Some(1), &format!("error {attempt}")), settled);
        // The other lease runs out: nobody says why.
        bed.advance(LEASE);
    }
    queue.until("both are dead", |stats| stats.dead == 2 || bodies(&queue.lease(10, LEASE_MS)) != [""; 0]);
    assert_eq!(queue.live(), 0);
    let dead = queue.dead();
    let told = Dead { id: ids[0], attempts: 3, reason: "error 3".into(), body: "told".into() };
    assert_eq!((dead.len(), &dead[0]), (2, &told));
    assert_eq!((dead[1].id, dead[1].attempts, dead[1].body.as_str()), (ids[1], 3, "silent"));
    assert!(dead[1].reason.contains("ran out"), "{}", dead[1].reason);
}

fn retries_of_ones_own_will_count_as_attempts(place: Place) {
    let bed = Bed::of_queues(place, Config { max_attempts: 4, ..Config::default() });
    let queue = bed.queue();
    queue.send_all(&["limited"]);
    let settled: Vec<_> = (0..4).map(|_| queue.retry(queue.lease_one(LEASE_MS).lease, Some(0), "rate limit")).collect();
    assert_eq!(settled, [Settled::Done, Settled::Done, Settled::Done, Settled::Dead]);
    assert_eq!((queue.live(), queue.dead().len(), queue.lease(10, LEASE_MS)), (0, 1, vec![]));
}

fn dead_letters_are_redriven_with_their_ids_and_fresh_attempts_or_purged(place: Place) {
    let bed = Bed::of_queues(place, Config { max_attempts: 1, ..Config::default() });
    let queue = bed.queue();
    let ids = queue.send_all(&["a", "b", "c"]);
    for got in queue.lease(10, LEASE_MS) {
        assert_eq!(queue.retry(got.lease, None, "no"), Settled::Dead);
    }
    let moved = queue.redrive(&Which::DeadIds(vec![ids[1], 999]));
    assert_eq!((moved.count, moved.next), (1, None));
    let got = queue.lease_one(LEASE_MS);
    assert_eq!((got.lease.id, got.lease.attempt, got.body.as_str()), (ids[1], 1, "b"));
    assert_eq!((queue.purge(&Which::DeadIds(vec![ids[0]])).count, queue.dead().len()), (1, 1));
    assert_eq!((queue.redrive(&ALL).count, queue.dead().len(), queue.live()), (1, 0, 2));
    assert_eq!((queue.redrive(&ALL).count, queue.purge(&Which::Live).count, queue.live()), (0, 2, 0));
    assert_eq!(queue.ack(got.lease), Settled::Stale);
}

fn a_lease_that_is_extended_lasts_so_much_longer(place: Place) {
    let bed = Bed::of_queues(place, Config::default());
    let queue = bed.queue();
    queue.send_all(&["a"]);
    let got = queue.lease_one(LEASE_MS);
    bed.advance(LEASE / 2);
    assert_eq!(queue.extend(got.lease, LEASE_MS), Settled::Done);
    bed.advance(LEASE / 2);
    assert_eq!((queue.lease(10, LEASE_MS), queue.stats().leased), (vec![], 1));
    assert_eq!(queue.ack(got.lease), Settled::Done);
    assert_eq!(queue.extend(got.lease, LEASE_MS), Settled::Stale);
}

fn a_paused_queue_gives_nothing_and_takes_everything_also_after_a_restart(place: Place) {
    let mut bed = Bed::of_queues(place, Config::default());
    let name = bed.name(0);
    let queue = bed.queue_named(&name);
    queue.send_all(&["a"]);
    let got = queue.lease_one(LEASE_MS);
    queue.pause();
    queue.send_all(&["b"]);
    assert_eq!((queue.lease(10, LEASE_MS), queue.ack(got.lease)), (vec![], Settled::Done));
    bed.restart();
    let queue = bed.queue_named(&name);
    assert!(queue.stats().is_paused && queue.lease(10, LEASE_MS).is_empty());
    queue.resume();
    assert_eq!(queue.lease_one(LEASE_MS).body, "b");
}

fn messages_of_one_key_come_one_at_a_time_in_the_order_sent(place: Place) {
    let bed = Bed::of_queues(place, Config { ordering: true, max_attempts: 2, ..Config::default() });
    let queue = bed.queue();
    queue.send(&[keyed("a1", "a"), keyed("a2", "a"), keyed("b1", "b"), message("free"), keyed("a3", "a")]);
    let got = queue.lease(10, LEASE_MS);
    assert_eq!((bodies(&got), queue.stats().blocked), (vec!["a1", "b1", "free"], 2));
    // One that waits for its retry holds up its key, and no other.
    assert_eq!(queue.retry(got[0].lease, Some(20_000), "again"), Settled::Done);
    assert_eq!(queue.ack(got[1].lease), Settled::Done);
    assert_eq!(queue.lease(10, LEASE_MS), []);
    bed.advance(Duration::from_secs(20));
    let again = queue.lease_one(LEASE_MS);
    assert_eq!(again.body, "a1");
    // A dead letter lets the next one pass.
    assert_eq!(queue.retry(again.lease, None, "no"), Settled::Dead);
    let next = queue.lease_one(LEASE_MS);
    assert_eq!((next.body.as_str(), queue.ack(next.lease)), ("a2", Settled::Done));
    assert_eq!(queue.lease_one(LEASE_MS).body, "a3");
}

fn order_is_by_the_time_of_becoming_visible_and_then_by_id(place: Place) {
    let bed = Bed::of_queues(place, Config::default());
    let queue = bed.queue();
    queue.send(&[later("late", 20_000), later("soon", 10_000), message("first"), message("second")]);
    bed.advance(Duration::from_secs(30));
    queue.send_all(&["last"]);
    assert_eq!(bodies(&queue.lease(10, LEASE_MS)), ["first", "second", "soon", "late", "last"]);
}

fn the_oldest_age_is_that_of_the_oldest_message_that_is_neither_acked_nor_dead(place: Place) {
    let bed = Bed::of_queues(place, Config::default());
    let queue = bed.queue();
    assert_eq!(queue.stats().oldest_age_ms, None);
    queue.send_all(&["old"]);
    bed.advance(Duration::from_secs(300));
    queue.send_all(&["new"]);
    let age = queue.stats().oldest_age_ms.expect("there is one");
    assert!((300_000..360_000).contains(&age), "{age}");
    let got = queue.lease(1, LEASE_MS);
    assert_eq!((bodies(&got), queue.ack(got[0].lease)), (vec!["old"], Settled::Done));
    assert!(queue.stats().oldest_age_ms.expect("there is one") < 60_000);
}

promises! {
    a_leased_message_is_hidden_until_its_lease_runs_out_and_then_comes_again_as_the_next_attempt,
    a_lease_that_is_over_is_stale_and_changes_nothing,
    a_message_that_was_acked_late_but_before_anybody_else_had_it_never_comes_back,
    a_retry_comes_after_its_delay_or_after_a_backoff_that_doubles,
    a_batch_settles_each_message_by_itself,
    a_message_whose_attempts_are_used_up_dies_once_with_its_last_error,
    retries_of_ones_own_will_count_as_attempts,
    dead_letters_are_redriven_with_their_ids_and_fresh_attempts_or_purged,
    a_lease_that_is_extended_lasts_so_much_longer,
    a_paused_queue_gives_nothing_and_takes_everything_also_after_a_restart,
    messages_of_one_key_come_one_at_a_time_in_the_order_sent,
    order_is_by_the_time_of_becoming_visible_and_then_by_id,
    the_oldest_age_is_that_of_the_oldest_message_that_is_neither_acked_nor_dead,
}
