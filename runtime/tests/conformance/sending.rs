//! Sending to a queue: all or none, ids, delays, dedupe ids, who may, and what is refused.

use std::time::Duration;

use wasmkeep_classes::host::Call;
use wasmkeep_classes::queue::Config;
use wasmkeep_classes::queue::client::Error;
use wasmkeep_classes::queue::protocol::{Message, Settled, Which};
use wasmkeep_classes::wire::Writer;

use crate::bed::{Bed, Host, Place};
use crate::common::Client;
use crate::queue::{bodies, later, message, once};

fn a_batch_is_kept_whole_and_in_its_order_also_over_a_restart(place: Place) {
    let mut bed = Bed::of_queues(place, Config::default());
    let name = bed.name(0);
    let names: Vec<String> = (0..1_000).map(|n| format!("m{n}")).collect();
    let messages: Vec<_> = names.iter().map(|name| message(name)).collect();
    let ids = bed.queue_named(&name).send(&messages);
    assert!(ids.len() == 1_000 && ids.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    bed.restart();
    let queue = bed.queue_named(&name);
    assert_eq!(bodies(&queue.lease(1_000, 60_000)), names);
}

/// A send of these messages as a client that checks nothing would make it.
fn unchecked(count: usize, body: &[u8]) -> Call {
    let mut writer = Writer::new();
    writer.u32(u32::try_from(count).expect("it is small"));
    for _ in 0..count {
        writer.u64(0).u8(0).u8(0).bytes(body);
    }
    Call { path: "wasmkeep-queue/v1/send", body: writer.into_bytes() }
}

fn what_breaks_a_rule_is_refused_with_the_rule_and_nothing_of_it_is_kept(place: Place) {
    let bed = Bed::of_queues(place, Config::default());
    let queue = bed.queue();
    let call = |path, body: &[u8]| Call { path, body: body.to_vec() };
    let ordered = Message { ordering_key: Some(b"k"), ..message("keyed") };
    let keyed = wasmkeep_classes::queue::client::send(&[message("fine"), ordered]).expect("a client cannot know");
    let cases = [
        (unchecked(1_001, b"m"), 413, "1000"),
        (unchecked(1, &vec![7; 1024 * 1024 + 1]), 413, "1048576"),
        (call("wasmkeep-queue/v1/send", b"nonsense"), 400, "malformed"),
        (call("wasmkeep-queue/v1/lease", &[0; 12]), 400, ""),
        (call("wasmkeep-queue/v2/send", b""), 400, "wasmkeep-queue/v1/"),
        (call("wasmkeep-queue/v1/nothing", b""), 404, "operation"),
        (call("wasmkeep-queue/v1/stats", b"more"), 400, "malformed"),
        (keyed, 400, "ordering"),
    ];
    for (call, status, words) in cases {
        let (answered, body) = queue.ask(&call);
        let body = String::from_utf8_lossy(&body);
        assert!(answered == status && body.contains(words), "{} {answered} {body}", call.path);
    }
    assert_eq!((queue.live(), queue.send_all(&["fine"])), (0, vec![1]));
}

fn the_largest_message_is_taken_and_given_back(place: Place) {
    let bed = Bed::of_large_queues(place, Config::default());
    let queue = bed.queue();
    let largest = "x".repeat(1024 * 1024);
    queue.send_all(&[&largest, ""]);
    let got = queue.lease(10, 60_000);
    assert!(got.len() == 2 && got[0].body == largest && got[1].body.is_empty());
}

fn an_id_is_never_used_again_not_after_a_purge_and_not_after_a_restart(place: Place) {
    let mut bed = Bed::of_queues(place, Config::default());
    let name = bed.name(0);
    assert_eq!(bed.queue_named(&name).send_all(&["a", "b"]), [1, 2]);
    assert_eq!(bed.queue_named(&name).purge(&Which::Live).count, 2);
    assert_eq!(bed.queue_named(&name).send_all(&["c"]), [3]);
    assert_eq!(bed.queue_named(&name).purge(&Which::Live).count, 1);
    bed.restart();
    assert_eq!(bed.queue_named(&name).send_all(&["d"]), [4]);
}

fn a_delayed_message_is_hidden_until_its_time_and_a_restart_does_not_change_that(place: Place) {
    let mut bed = Bed::of_queues(place, Config::default());
    let name = bed.name(0);
    let names: Vec<String> = (0..100).map(|n| format!("m{n:02}")).collect();
    let messages: Vec<_> = (60_000..).step_by(1_000).zip(&names).map(|(delay_ms, name)| later(name, delay_ms)).collect();
    bed.queue_named(&name).send(&messages);
    let queue = bed.queue_named(&name);
    assert_eq!((queue.lease(1_000, 600_000), queue.stats().delayed), (vec![], 100));
    bed.restart();
    let queue = bed.queue_named(&name);
    bed.advance(Duration::from_secs(30));
    assert_eq!(queue.lease(1_000, 600_000), []);
    bed.advance(Duration::from_secs(79));
    let first = queue.lease(1_000, 600_000);
    // What the test takes itself may make a few more of them due.
    assert!((50..90).contains(&first.len()), "{}", first.len());
    bed.advance(Duration::from_secs(60));
    let all = [first, queue.lease(1_000, 600_000)].concat();
    assert_eq!(bodies(&all), names);
}

fn a_dedupe_id_is_one_message_with_one_time_within_its_window_and_over_a_restart(place: Place) {
    let mut bed = Bed::of_queues(place, Config { dedupe_window_ms: 300_000, ..Config::default() });
    let name = bed.name(0);
    let order = |delay_ms| Message { delay_ms, ..once("order", "order-7") };
    let first = bed.queue_named(&name).try_send(&[order(1_000)]).expect("sent")[0];
    bed.restart();
    let queue = bed.queue_named(&name);
    let again = queue.try_send(&[order(5_000)]).expect("sent")[0];
    assert_eq!((again.id, again.due_at_ms, first.is_duplicate, again.is_duplicate), (first.id, first.due_at_ms, false, true));
    bed.advance(Duration::from_secs(2));
    let got = queue.lease_one(60_000);
    queue.ack(got.lease);
    // It is remembered for longer than the message, but not for longer than the window.
    assert_eq!((queue.send(&[order(0)]), queue.live()), (vec![first.id], 0));
    bed.advance(Duration::from_secs(300));
    let new = queue.try_send(&[order(0)]).expect("sent")[0];
    assert!(new.id > first.id && !new.is_duplicate && queue.live() == 1);
}

fn a_dedupe_id_is_remembered_only_if_its_message_was_stored(place: Place) {
    let bed = Bed::of_queues(place, Config::default());
    let queue = bed.queue();
    let spoilt = Message { ordering_key: Some(b"k"), ..message("spoils it") };
    assert!(matches!(queue.try_send(&[once("a", "id"), spoilt]), Err(Error::Refused(_))));
    let sent = queue.try_send(&[once("a", "id")]).expect("sent")[0];
    assert_eq!((sent.is_duplicate, queue.live()), (false, 1));
}

fn only_actors_may_use_a_queue_and_only_those_that_are_allowed(place: Place) {
    let bed = Bed::of_queues_with(place, Config::default(), |node| match place.host {
        Host::Native => node.natives[0].allow = vec!["test/sender".into()],
        Host::Guest => {
            let mail = node.classes.iter_mut().find(|class| &*class.name == "mail").expect("it is served");
            mail.env.0.insert("allow".into(), "test/sender".into());
        }
    });
    let queue = bed.queue();
    assert!(matches!(queue.try_send(&[message("m")]), Err(Error::Forbidden | Error::Failed { status: 502, .. })));
    assert_eq!(queue.through("sender").send_all(&["m"]), [1]);
    // Nobody becomes an actor by saying so.
    let path = format!("/mail/{}/wasmkeep-queue/v1/stats", queue.address.name);
    let mut stranger = bed.node.client();
    let (status, body) = stranger.send("POST", &path, "");
    assert_eq!((status, body.contains("forbidden")), (403, true), "{body}");
    assert_eq!(forged(&mut stranger, &path), 403);
}

/// The status of a request that claims to come from an actor.
fn forged(client: &mut Client, path: &str) -> u16 {
    client.start_with("POST", path, "x-wasmkeep-caller: test/sender\r\n", b"").expect("sends");
    client.answer().expect("an answer").0
}

fn every_name_within_the_grammar_is_a_queue_of_its_own_and_others_are_refused(place: Place) {
    let bed = Bed::of_queues(place, Config::default());
    let long = "n".repeat(64);
    let names = ["a-b", &long, "%F0%9F%93%AC", "%22quoted%22", "it's", "."];
    for name in names {
        assert_eq!(bed.queue_named(name).send_all(&[name]), [1], "{name}");
    }
    for name in names {
        assert_eq!(bed.queue_named(name).lease_one(60_000).body, name);
    }
    for name in ["", "a%00b", &"n".repeat(257)] {
        let refused = bed.queue_named(name).try_send(&[message("m")]);
        assert!(matches!(refused, Err(Error::Failed { status: 502, .. } | Error::Refused(_))), "{name}: {refused:?}");
    }
}

fn what_was_acknowledged_survives_a_power_cut_and_its_ids_are_not_given_again(place: Place) {
    let mut bed = Bed::of_queues(place, Config::default());
    let name = bed.name(0);
    let queue = bed.queue_named(&name);
    assert_eq!(queue.send(&[message("a"), once("b", "id"), later("c", 60_000)]), [1, 2, 3]);
    let leased = queue.lease(1, 60_000);
    assert_eq!((bodies(&leased), queue.ack(leased[0].lease)), (vec!["a"], Settled::Done));
    bed.power_cut();
    let queue = bed.queue_named(&name);
    assert_eq!(queue.send(&[once("b", "id"), message("d")]), [2, 4]);
    // Leases and acks are not flushed one by one: losing one is another delivery.
    bed.advance(Duration::from_secs(60));
    let mut got = queue.lease(10, 60_000);
    got.retain(|got| got.body != "a");
    got.sort_by_key(|got| got.lease.id);
    assert_eq!(bodies(&got), ["b", "c", "d"]);
}

fn a_message_sent_by_an_event_that_fails_afterwards_stays(place: Place) {
    let bed = Bed::of_queues(place, Config::default());
    let queue = bed.queue();
    let (status, body) = bed.node.post(&format!("/test/sender/queue-send?queue={}&body=m&trap=1", queue.address), "");
    assert_eq!(status, 500, "{body}");
    assert_eq!(queue.lease_one(60_000).body, "m");
}

promises! {
    a_batch_is_kept_whole_and_in_its_order_also_over_a_restart,
    what_breaks_a_rule_is_refused_with_the_rule_and_nothing_of_it_is_kept,
    the_largest_message_is_taken_and_given_back,
    an_id_is_never_used_again_not_after_a_purge_and_not_after_a_restart,
    a_delayed_message_is_hidden_until_its_time_and_a_restart_does_not_change_that,
    a_dedupe_id_is_one_message_with_one_time_within_its_window_and_over_a_restart,
    a_dedupe_id_is_remembered_only_if_its_message_was_stored,
    only_actors_may_use_a_queue_and_only_those_that_are_allowed,
    every_name_within_the_grammar_is_a_queue_of_its_own_and_others_are_refused,
    what_was_acknowledged_survives_a_power_cut_and_its_ids_are_not_given_again,
    a_message_sent_by_an_event_that_fails_afterwards_stays,
}
