//! Push: batches brought to a consumer, what its answer does, and what becomes of a batch without one.

use std::time::Duration;

use wasmkeep_classes::queue::Config;

use crate::bed::{Bed, CONSUMER, Host, Place, hold};
use crate::common::until;
use crate::queue::{later, message};

fn pushed() -> Config {
    Config { consumer: Some(CONSUMER.into()), ..Config::default() }
}

fn what_is_sent_is_brought_to_the_consumer_once_and_settled(place: Place) {
    let bed = Bed::of_queues(place, pushed());
    for number in 0..3 {
        let queue = bed.queue_named(&bed.name(number));
        queue.send_all(&["a", "b"]);
        queue.until("both are settled", |stats| stats.counters.acked == 2);
        assert_eq!((bed.consumed(&queue.address.name), queue.live()), (vec!["1:a".into(), "2:b".into()], 0));
    }
}

fn batches_follow_one_another_until_nothing_is_ready(place: Place) {
    let bed = Bed::of_queues(place, Config { batch: 4, ..pushed() });
    let queue = bed.queue();
    let names: Vec<String> = (0..10).map(|n| format!("m{n}")).collect();
    queue.send(&names.iter().map(|name| message(name)).collect::<Vec<_>>());
    queue.until("all are settled", |stats| stats.counters.acked == 10);
    assert_eq!((bed.deliveries(), bed.consumed(&queue.address.name).len()), (3, 10));
}

fn a_consumer_that_fails_gets_the_whole_batch_again_after_its_backoff_until_all_of_it_is_dead(place: Place) {
    let bed = Bed::of_queues(place, Config { max_attempts: 3, ..pushed() });
    bed.plan("fail", "1");
    let queue = bed.queue();
    queue.send_all(&["a", "b"]);
    for (attempt, backoff_s) in [(1, 1), (2, 2)] {
        queue.until("it was tried", |stats| stats.counters.retried == 2 * attempt);
        assert_eq!(queue.live(), 2);
        bed.advance(Duration::from_secs(backoff_s));
    }
    queue.until("both are dead", |stats| stats.dead == 2);
    let dead = queue.dead();
    assert!(dead.iter().all(|dead| dead.attempts == 3 && dead.reason.contains("answered 500")), "{dead:?}");
    assert_eq!((queue.live(), bed.deliveries(), bed.consumed(&queue.address.name)), (0, 3, vec![]));
}

fn a_message_that_the_answer_does_not_mention_waits_until_its_lease_runs_out(place: Place) {
    let bed = Bed::of_queues(place, Config { visibility_ms: 60_000, ..pushed() });
    let queue = bed.queue();
    queue.send_all(&["ignore", "fine"]);
    queue.until("the other one is settled", |stats| stats.counters.acked == 1);
    assert_eq!((queue.stats().leased, bed.deliveries()), (1, 1));
    bed.advance(Duration::from_secs(60));
    queue.until("it was leased again", |stats| stats.counters.leased == 3);
    assert_eq!((queue.stats().counters.acked, bed.consumed(&queue.address.name)), (1, vec!["2:fine".to_owned()]));
}

fn an_outcome_of_retry_is_for_its_message_alone_and_its_words_are_the_dead_letters_reason(place: Place) {
    let bed = Bed::of_queues(place, Config { max_attempts: 2, ..pushed() });
    let queue = bed.queue();
    queue.send_all(&["retry-at-once", "fine"]);
    queue.until("one is dead and one is acked", |stats| stats.dead == 1 && stats.counters.acked == 1);
    let dead = queue.dead();
    assert_eq!((dead[0].attempts, dead[0].reason.as_str(), dead[0].body.as_str()), (2, "told to", "retry-at-once"));
}

fn delayed_messages_are_brought_in_time_without_further_sends_and_over_a_restart(place: Place) {
    let mut bed = Bed::of_queues(place, Config { batch: 100, ..pushed() });
    let name = bed.name(0);
    let names: Vec<String> = (10..50).map(|n| format!("m{n}")).collect();
    // In two waves, each due within a second: the first one before the restart and the second one after it.
    let messages: Vec<_> = names.iter().zip(0..).map(|(name, n)| later(name, 60_000 + n % 2 * 120_000)).collect();
    bed.queue_named(&name).send(&messages);
    assert_eq!(bed.deliveries(), 0);
    bed.advance(Duration::from_secs(60));
    until("the first wave is there", || bed.consumed(&name).len() == 20);
    bed.restart();
    assert_eq!((bed.consumed(&name).len(), bed.queue_named(&name).stats().delayed), (20, 20));
    bed.advance(Duration::from_secs(120));
    // Nobody touches the queue: it is its alarm that was kept.
    until("the second wave is there", || bed.consumed(&name).len() == 40);
}

fn a_queue_of_which_nothing_is_due_has_no_alarm(place: Place) {
    let bed = Bed::of_queues(place, pushed());
    let queue = bed.queue();
    let path = format!("/admin/actors/mail/{}", queue.address.name);
    let has_alarm = || {
        let (_, body) = crate::common::Client::connect(bed.node.admin()).send("GET", &path, "");
        let shown: serde_json::Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{body}"));
        !shown["alarm"].is_null()
    };
    queue.send(&[later("in an hour", 3_600_000)]);
    assert!(has_alarm());
    queue.send_all(&["now"]);
    queue.until("it is settled", |stats| stats.counters.acked == 1);
    assert!(has_alarm());
    queue.purge(&wasmkeep_classes::queue::protocol::Which::Live);
    assert_eq!(queue.live(), 0);
    // An alarm that was set for the purged message may still come once, and finds nothing.
    bed.advance(Duration::from_secs(3_600));
    queue.through("another").stats();
    until("there is no alarm", || !has_alarm());
}

fn a_paused_queue_delivers_nothing_and_goes_on_when_it_is_resumed(place: Place) {
    let bed = Bed::of_queues(place, pushed());
    let queue = bed.queue();
    queue.pause();
    queue.send_all(&["a"]);
    bed.advance(Duration::from_secs(60));
    assert_eq!((queue.stats().visible, bed.deliveries()), (1, 0));
    queue.resume();
    queue.until("it is settled", |stats| stats.counters.acked == 1);
}

fn what_the_last_node_left_undelivered_is_delivered_by_the_next(place: Place) {
    let mut bed = Bed::of_queues(place, pushed());
    bed.plan("fail", "1");
    let name = bed.name(0);
    bed.queue_named(&name).send_all(&["a"]);
    bed.queue_named(&name).until("it was tried", |stats| stats.counters.retried >= 1);
    bed.restart();
    bed.forget("fail");
    bed.advance(Duration::from_secs(60));
    until("it is delivered", || bed.consumed(&name) == ["1:a"]);
}

fn a_consumer_that_keeps_what_it_handled_works_once_although_a_message_comes_twice(place: Place) {
    let bed = Bed::of_queues(place, pushed());
    bed.plan("handled", "1");
    let queue = bed.queue();
    queue.send_all(&["a", "b"]);
    queue.until("both were worked on, and nobody knows", |stats| stats.counters.retried == 2);
    bed.advance(Duration::from_secs(1));
    queue.until("both are settled", |stats| stats.counters.acked == 2);
    let handled = bed.node.get(&format!("/{CONSUMER}/handled")).1;
    assert_eq!((handled.as_str(), queue.stats().counters.leased), ("2", 4));
}

promises! {
    what_is_sent_is_brought_to_the_consumer_once_and_settled,
    batches_follow_one_another_until_nothing_is_ready,
    a_consumer_that_fails_gets_the_whole_batch_again_after_its_backoff_until_all_of_it_is_dead,
    a_message_that_the_answer_does_not_mention_waits_until_its_lease_runs_out,
    an_outcome_of_retry_is_for_its_message_alone_and_its_words_are_the_dead_letters_reason,
    delayed_messages_are_brought_in_time_without_further_sends_and_over_a_restart,
    a_queue_of_which_nothing_is_due_has_no_alarm,
    a_paused_queue_delivers_nothing_and_goes_on_when_it_is_resumed,
    what_the_last_node_left_undelivered_is_delivered_by_the_next,
    a_consumer_that_keeps_what_it_handled_works_once_although_a_message_comes_twice,
}

/// A component waits for the very answer that its consumer is about to give. (A queue of the node's does not wait.)
#[test]
fn a_consumer_that_calls_the_component_it_was_called_by_is_refused_and_its_batch_comes_again() {
    hold(Host::Guest, |place| {
        let bed = Bed::of_queues(place, Config { max_attempts: 1, ..pushed() });
        let queue = bed.queue();
        queue.send_all(&["send-back"]);
        queue.until("it is dead", |stats| stats.dead == 1);
        assert_eq!((queue.stats().counters.sent, bed.consumed(&queue.address.name)), (1, vec![]));
    });
}
