//! How deliveries end on a node, other than by a consumer's answer; and what becomes of a queue that sleeps or whose node stops.

use std::time::Duration;

use wasmkeep_classes::queue::Config;
use wasmkeep_classes::queue::protocol::Which;

use crate::bed::{Bed, CONSUMER, Host, Place, hold};
use crate::common::until;
use crate::queue::{keyed, later};

fn pushed() -> Config {
    Config { consumer: Some(CONSUMER.into()), ..Config::default() }
}

fn a_consumer_without_room_for_a_delivery_gets_it_later_and_that_is_no_attempt(place: Place) {
    let bed = Bed::of_queues(place, Config { max_attempts: 1, ..pushed() });
    let queue = bed.queue();
    let mut holder = bed.node.client();
    holder.start("POST", &format!("/{CONSUMER}/sleep?ms=1500"), "").expect("sends");
    until("it is held", || bed.is(CONSUMER, "running"));
    // Two of the largest bodies fill a mailbox, but for 64 KiB.
    let large = vec![b'x'; 16 * 1024 * 1024 - 32 * 1024];
    let mut fillers = [bed.node.client(), bed.node.client()];
    for filler in &mut fillers {
        filler.start_with("POST", &format!("/{CONSUMER}/instance"), "", &large).expect("sends");
    }
    until("its mailbox is full", || {
        let (status, _) = bed.node.client().try_send_bytes(&format!("/{CONSUMER}/instance"), &large).expect("an answer");
        status == 503
    });
    let body = "m".repeat(100 * 1024);
    queue.send_all(&[&body]);
    queue.until("it was leased and given back", |stats| stats.counters.leased >= 1 && stats.delayed == 1);
    for filler in &mut fillers {
        assert_eq!(filler.answer().expect("an answer").0, 200);
    }
    assert_eq!(holder.answer().expect("an answer").0, 200);
    bed.advance(Duration::from_secs(1));
    queue.until("it is settled", |stats| stats.counters.acked == 1);
    let stats = queue.stats();
    assert!(stats.counters.leased >= 2 && stats.dead == 0 && stats.counters.retried == 0, "{stats:?}");
}

fn a_consumer_that_does_not_answer_in_time_has_failed_and_its_late_answer_changes_nothing(place: Place) {
    let bed = Bed::of_queues_with(place, Config { max_attempts: 1, ..pushed() }, |node| match place.host {
        Host::Native => node.budgets.event_wall = Duration::from_millis(400),
        // The queue's own event lasts longer than its consumer's.
        Host::Guest => {
            let mail = node.classes.iter_mut().find(|class| &*class.name == "mail").expect("it is served");
            mail.env.0.insert("delivery-timeout-ms".into(), "400".into());
        }
    });
    bed.plan("sleep-ms", "900");
    let queue = bed.queue();
    let id = queue.send_all(&["slow"])[0];
    queue.until("it is dead", |stats| stats.dead == 1);
    let dead = queue.dead();
    assert!(dead[0].id == id && dead[0].attempts == 1 && dead[0].reason.contains("time"), "{dead:?}");
    until("the consumer is done", || !bed.is(CONSUMER, "running"));
    assert_eq!((queue.live(), queue.stats().dead, queue.stats().counters.acked), (0, 1, 0));
    bed.forget("sleep-ms");
    assert_eq!(queue.redrive(&Which::DeadIds(vec![id])).count, 1);
    queue.until("it is settled", |stats| stats.counters.acked == 1);
}

fn a_queue_that_sleeps_keeps_its_messages_and_wakes_when_one_is_due(place: Place) {
    let bed = Bed::of_queues_with(place, pushed(), |node| node.budgets.idle = Duration::from_millis(50));
    let queue = bed.queue();
    let address = queue.address.to_string();
    queue.send(&[later("later", 60_000)]);
    until("it sleeps", || bed.is(&address, "asleep"));
    assert_eq!(bed.deliveries(), 0);
    bed.advance(Duration::from_secs(60));
    // Nobody touches the queue.
    until("it is delivered", || bed.consumed(&queue.address.name) == ["1:later"]);
    until("it sleeps again", || bed.is(&address, "asleep"));
    assert_eq!((queue.live(), queue.dead()), (0, vec![]));
}

fn a_pulled_queue_that_slept_gives_what_it_was_given_and_knows_its_leases(place: Place) {
    let bed = Bed::of_queues_with(place, Config::default(), |node| node.budgets.idle = Duration::from_millis(50));
    let queue = bed.queue();
    let asleep = || until("it sleeps", || bed.is(&queue.address.to_string(), "asleep"));
    queue.send_all(&["a", "b"]);
    asleep();
    let got = queue.lease(1, 60_000);
    asleep();
    assert_eq!((queue.lease(10, 60_000).len(), queue.stats().leased), (1, 2));
    asleep();
    assert_eq!(queue.ack(got[0].lease), wasmkeep_classes::queue::protocol::Settled::Done);
    asleep();
    assert_eq!(queue.live(), 1);
}

fn a_node_that_stops_with_a_delivery_out_uses_up_no_attempt(place: Place) {
    let mut bed = Bed::of_queues(place, Config { max_attempts: 1, visibility_ms: 60_000, ..pushed() });
    let name = bed.name(0);
    bed.plan("sleep-ms", "700");
    bed.queue_named(&name).send_all(&["out"]);
    until("it is out", || bed.is(CONSUMER, "running"));
    bed.restart();
    bed.forget("sleep-ms");
    // Whether it was settled before the stop or is delivered again: it is acked and it is not dead.
    bed.advance(Duration::from_secs(120));
    let queue = bed.queue_named(&name);
    queue.until("it is handled", |stats| stats.visible + stats.delayed + stats.leased == 0);
    assert_eq!((queue.dead(), bed.consumed(&name)), (vec![], vec!["1:out".to_owned()]));
}

fn messages_of_one_key_are_delivered_one_at_a_time(place: Place) {
    let concurrency = if place.host == Host::Native { 4 } else { 1 };
    let bed = Bed::of_queues(place, Config { ordering: true, concurrency, ..pushed() });
    let queue = bed.queue();
    queue.send(&[keyed("a1", "a"), keyed("a2", "a"), keyed("b1", "b"), keyed("a3", "a")]);
    queue.until("all are settled", |stats| stats.counters.acked == 4);
    // The first delivery may have one of each key; the others have one.
    assert!((3..=4).contains(&bed.deliveries()), "{}", bed.deliveries());
}

fn a_key_waits_for_the_retry_of_its_head_and_other_keys_do_not(place: Place) {
    let bed = Bed::of_queues(place, Config { ordering: true, max_attempts: 2, ..pushed() });
    let queue = bed.queue();
    queue.send(&[keyed("retry", "a"), keyed("behind", "a"), keyed("free", "b")]);
    queue.until("the other key is through", |stats| stats.counters.acked == 1 && stats.counters.retried == 1);
    assert_eq!((queue.stats().blocked, bed.consumed(&queue.address.name)), (1, vec!["3:free".to_owned()]));
    bed.advance(Duration::from_secs(1));
    queue.until("its head is dead and the next one passed", |stats| stats.dead == 1 && stats.counters.acked == 2);
}

fn a_consumer_may_take_more_time_for_a_message(place: Place) {
    let bed = Bed::of_queues(place, Config { visibility_ms: 60_000, ..pushed() });
    let queue = bed.queue();
    queue.send_all(&["extend"]);
    // Two minutes from its delivery instead of one.
    until("its answer was taken", || bed.deliveries() == 1 && !bed.is(CONSUMER, "running"));
    bed.advance(Duration::from_secs(61));
    assert_eq!((queue.stats().leased, queue.stats().counters.leased), (1, 1));
    bed.advance(Duration::from_secs(60));
    queue.until("it comes again", |stats| stats.counters.leased == 2);
}

promises! {
    a_consumer_without_room_for_a_delivery_gets_it_later_and_that_is_no_attempt,
    a_consumer_that_does_not_answer_in_time_has_failed_and_its_late_answer_changes_nothing,
    a_queue_that_sleeps_keeps_its_messages_and_wakes_when_one_is_due,
    a_pulled_queue_that_slept_gives_what_it_was_given_and_knows_its_leases,
    a_node_that_stops_with_a_delivery_out_uses_up_no_attempt,
    messages_of_one_key_are_delivered_one_at_a_time,
    a_key_waits_for_the_retry_of_its_head_and_other_keys_do_not,
    a_consumer_may_take_more_time_for_a_message,
}

/// A component handles one event at a time and refuses any concurrency but 1.
#[test]
fn so_many_batches_as_configured_are_out_at_once_and_no_more() {
    hold(Host::Native, |place| {
        let bed = Bed::of_queues(place, Config { batch: 1, concurrency: 3, ..pushed() });
        bed.plan("sleep-ms", "300");
        let queue = bed.queue();
        queue.send_all(&["a", "b", "c", "d", "e"]);
        queue.until("three are out", |stats| (stats.leased, stats.visible) == (3, 2));
        queue.until("all are settled", |stats| {
            assert!(stats.leased <= 3, "{stats:?}");
            stats.counters.acked == 5
        });
        assert_eq!(bed.deliveries(), 5);
    });
}

/// A component that delivers does nothing else meanwhile.
#[test]
fn what_is_purged_while_it_is_out_stays_purged_and_its_outcome_is_stale() {
    hold(Host::Native, |place| {
        let bed = Bed::of_queues(place, pushed());
        bed.plan("sleep-ms", "300");
        let queue = bed.queue();
        queue.send_all(&["a"]);
        queue.until("it is out", |stats| stats.leased == 1);
        assert_eq!(queue.purge(&Which::Live).count, 1);
        queue.until("its outcome came", |stats| stats.counters.stale == 1);
        assert_eq!((queue.live(), queue.dead(), queue.stats().counters.acked), (0, vec![], 0));
    });
}
