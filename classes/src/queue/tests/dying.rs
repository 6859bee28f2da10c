//! Dead letters: how messages get there, and back.

use super::*;

fn kill(host: &mut Host, error: &str) {
    let outcomes: Vec<_> = host.lease(1_000, 60_000).iter().map(|got| (got.lease, retry(error))).collect();
    assert!(host.settle(&outcomes).iter().all(|settled| *settled == Settled::Dead));
}

fn once() -> Config {
    Config { max_attempts: 1, ..Config::default() }
}

#[test]
fn a_message_whose_leases_run_out_is_dead_lettered_once_at_the_next_lease() {
    let mut host = Host::new(Config { max_attempts: 2, ..Config::default() });
    host.send_all(&["a", "b"]);
    let first = host.lease(1, 10)[0].lease;
    host.settle(&[(first, Outcome::Retry { delay_ms: Some(0), error: "first" })]);
    host.now += 10;
    assert_eq!(ids(&host.lease(2, 10)), [1, 2]);
    host.now += 10;
    // The second message has an attempt left, the first does not.
    assert_eq!(ids(&host.lease(10, 10)), [2]);
    assert_eq!((host.dead(), host.counts()), (vec![(1, 2, "first".to_owned())], (0, 0, 1, 0, 1)));
    host.now += 10;
    assert_eq!((host.lease(10, 10), host.lease(10, 10)), (vec![], vec![]));
    assert_eq!(host.dead()[1], (2, 2, "its last lease ran out".to_owned()));
    assert_eq!((host.counts(), host.stats().counters.dead, host.machine.gauges().dead), ((0, 0, 0, 0, 2), 2, 2));
}

#[test]
fn the_alarm_dead_letters_what_nobody_pulls_again() {
    for config in [once(), Config { max_attempts: 1, ..pushed() }] {
        let mut host = Host::new(config);
        host.send_all(&["a"]);
        host.lease(1, 500);
        host.set_paused(true);
        assert_eq!(host.machine.alarm(), Some(START + 500));
        host.wake();
        assert_eq!((host.fire_when_due(), host.counts()), (None, (0, 0, 0, 0, 1)));
        assert_eq!((host.now, host.machine.alarm()), (START + 500, None));
    }
}

#[test]
fn the_last_error_is_the_last_one_said() {
    let mut host = Host::new(Config { max_attempts: 3, ..Config::default() });
    host.send_all(&["a"]);
    for error in ["first", "second", ""] {
        let lease = host.lease(1, 60_000)[0].lease;
        host.settle(&[(lease, Outcome::Retry { delay_ms: Some(0), error })]);
    }
    assert_eq!(host.dead(), [(1, 3, "second".to_owned())]);
    host.redrive(&Which::DeadIds(vec![1]));
    for error in ["third", ""] {
        let lease = host.lease(1, 60_000)[0].lease;
        host.settle(&[(lease, Outcome::Retry { delay_ms: Some(0), error })]);
    }
    host.lease(1, 10);
    host.fire_when_due();
    assert_eq!(host.dead(), [(1, 3, "third".to_owned())]);
}

#[test]
fn a_voluntary_retry_is_an_attempt_and_the_last_one_is_the_end() {
    let mut host = Host::new(Config { max_attempts: 3, ..Config::default() });
    host.send_all(&["a"]);
    for expected in [Settled::Done, Settled::Done, Settled::Dead] {
        let lease = host.lease(1, 60_000)[0].lease;
        assert_eq!(host.settle(&[(lease, Outcome::Retry { delay_ms: Some(0), error: "" })]), [expected]);
    }
    assert_eq!(host.dead(), [(1, 3, "given back after its last attempt".to_owned())]);
    assert_eq!((host.lease(1, 1), host.counts()), (vec![], (0, 0, 0, 0, 1)));
}

#[test]
fn the_last_lease_acks_and_extends_like_any_other() {
    let mut host = Host::new(once());
    host.send_all(&["a", "b"]);
    let got = host.lease(2, 100);
    host.settle(&[(got[0].lease, Outcome::Extend { visibility_ms: 900 })]);
    host.fire_when_due();
    assert_eq!((host.now, host.counts()), (START + 100, (0, 0, 1, 0, 1)));
    assert_eq!(
        (host.machine.alarm(), host.ack(got[0].lease), host.ack(got[1].lease)),
        (Some(START + 900), Settled::Done, Settled::Stale)
    );
    assert_eq!((host.machine.alarm(), host.counts()), (None, (0, 0, 0, 0, 1)));
}

#[test]
fn a_lower_limit_of_attempts_holds_for_messages_already_there() {
    let mut host = Host::new(Config::default());
    host.send_all(&["a", "b"]);
    let got = host.lease(2, 100);
    host.settle(&[(got[1].lease, Outcome::Retry { delay_ms: Some(0), error: "e" })]);
    host.config.max_attempts = 1;
    host.wake();
    assert_eq!((host.machine.alarm(), host.lease(5, 100)), (Some(START + 100), vec![]));
    assert_eq!(host.dead(), [(2, 1, "e".to_owned())]);
    host.fire_when_due();
    assert_eq!(host.counts(), (0, 0, 0, 0, 2));
}

#[test]
fn thousands_of_dead_messages_ahead_do_not_hide_the_living() {
    let mut host = Host::new(Config { max_attempts: 1, batch: 100, ..pushed() });
    for _ in 0..3 {
        host.send(&vec![message("x"); 1_000]);
    }
    for _ in 0..3 {
        host.lease(1_000, 10);
    }
    // As if the alarm had not been there in time, and the limit had been higher.
    host.sql("DELETE FROM wasmkeep_queue_lease");
    host.now += 10;
    host.wake();
    host.send_all(&["alive"]);
    let mut fired = 0;
    let delivery = loop {
        fired += 1;
        if let Some(delivery) = host.fire_when_due() {
            break delivery;
        }
    };
    assert_eq!((ids(&contents(&delivery)), host.counts(), host.now), (vec![3_001], (0, 0, 1, 0, 3_000), START + 10));
    assert_eq!(fired, 7);
}

#[test]
fn dead_letters_are_read_in_pages() {
    let mut host = Host::new(Config { ordering: true, ..once() });
    let keyed = Message { ordering_key: Some(b"k"), ..message("c") };
    host.send(&[message("a"), message("b"), keyed]);
    host.now += 5;
    kill(&mut host, "bad");
    let reply = host.call(&client::dead_letters(1, 1).expect("valid"));
    let page = client::dead_letters_read(reply.status, &reply.body).expect("a page");
    assert_eq!((page.letters.len(), page.letters[0].id, page.letters[0].body, page.has_more), (1, 2, &b"b"[..], true));
    let reply = host.call(&client::dead_letters(2, 5).expect("valid"));
    let page = client::dead_letters_read(reply.status, &reply.body).expect("a page");
    assert_eq!((page.letters.len(), page.letters[0].ordering_key, page.has_more), (1, Some(&b"k"[..]), false));
    assert_eq!((page.letters[0].enqueued_at_ms, page.letters[0].failed_at_ms), (START, START + 5));
}

#[test]
fn pages_and_batches_of_large_messages_are_cut_by_bytes() {
    let mut host = Host::new(once());
    let large = vec![7; 1024 * 1024];
    for _ in 0..10 {
        host.send(&[Message { body: &large, ..Message::default() }]);
    }
    kill(&mut host, "large");
    kill(&mut host, "large");
    let reply = host.call(&client::dead_letters(0, 1_000).expect("valid"));
    let page = client::dead_letters_read(reply.status, &reply.body).expect("a page");
    assert_eq!((page.letters.len(), page.has_more), (8, true));
    let moved = host.redrive(&Which::DeadIds((1..=10).collect()));
    assert_eq!(moved, Moved { count: 8, next: Some(Which::DeadIds(vec![9, 10])) });
    assert_eq!(host.redrive(&Which::DeadOlderThan { age_ms: 0 }), Moved { count: 2, next: None });
    assert_eq!(host.purge(&Which::Live), Moved { count: 8, next: Some(Which::LiveUpTo { id: 10 }) });
    assert_eq!(host.purge(&Which::LiveUpTo { id: 10 }), Moved { count: 2, next: None });
}

#[test]
fn a_redriven_message_keeps_its_id_and_begins_anew() {
    let mut host = Host::new(once());
    host.send_all(&["a", "b"]);
    let old = host.lease(1, 10)[0].lease;
    host.settle(&[(old, retry("bad"))]);
    host.now += 100;
    assert_eq!(host.redrive(&Which::DeadIds(vec![1, 7])), Moved { count: 1, next: None });
    host.crash();
    assert_eq!((host.counts(), host.stats().oldest_age_ms, host.dead()), ((2, 0, 0, 0, 0), Some(100), vec![]));
    let got = host.lease(10, 10);
    // Visible since the redrive, so behind the other; the old lease has the new one's count and not its epoch.
    assert_eq!((ids(&got), got[1].lease.attempt), (vec![2, 1], 1));
    assert_eq!((host.ack(old), host.ack(got[1].lease)), (Settled::Stale, Settled::Done));
}

#[test]
fn a_lease_from_before_a_redrive_is_stale_within_one_life() {
    let mut host = Host::new(once());
    host.send_all(&["a"]);
    let old = host.lease(1, 10)[0].lease;
    host.settle(&[(old, retry("bad"))]);
    host.redrive(&Which::DeadOlderThan { age_ms: 0 });
    let new = host.lease(1, 10)[0].lease;
    assert_eq!((old.attempt, host.ack(old), host.ack(new)), (new.attempt, Settled::Stale, Settled::Done));
}

#[test]
fn a_redrive_by_age_takes_the_old_ones_only() {
    let mut host = Host::new(once());
    host.send_all(&["a"]);
    kill(&mut host, "bad");
    host.now += 1_000;
    host.send_all(&["b"]);
    kill(&mut host, "bad");
    assert_eq!(host.redrive(&Which::DeadOlderThan { age_ms: 1_001 }).count, 0);
    assert_eq!(host.redrive(&Which::DeadOlderThan { age_ms: 1_000 }).count, 1);
    assert_eq!((host.dead()[0].0, host.purge(&Which::DeadOlderThan { age_ms: u64::MAX }).count), (2, 0));
}

#[test]
fn a_cancelled_redrive_loses_nothing_and_one_that_goes_on_ends_even_if_messages_die_again() {
    let mut host = Host::new(once());
    host.send(&vec![message("x"); 1_000]);
    host.send(&vec![message("x"); 200]);
    kill(&mut host, "bad");
    kill(&mut host, "bad");
    let first = host.redrive(&Which::DeadOlderThan { age_ms: 0 });
    assert_eq!((first.count, host.counts()), (500, (500, 0, 0, 0, 700)));
    host.crash();
    assert_eq!(host.counts(), (500, 0, 0, 0, 700));
    host.now += 1;
    kill(&mut host, "again");
    let second = host.redrive(&first.next.expect("more"));
    let third = host.redrive(&second.next.expect("more"));
    assert_eq!((second.count, third, host.counts()), (500, Moved { count: 200, next: None }, (700, 0, 0, 0, 500)));
    assert_eq!(host.stats().counters.redriven, 700);
}

#[test]
fn purges_delete_what_they_name_and_no_more() {
    let mut host = Host::new(once());
    host.send_all(&["a", "b", "c"]);
    kill(&mut host, "bad");
    assert_eq!(host.purge(&Which::DeadIds(vec![2, 9])), Moved { count: 1, next: None });
    host.crash();
    assert_eq!((host.dead().len(), host.purge(&Which::DeadOlderThan { age_ms: 0 }).count, host.dead().len()), (2, 2, 0));
    host.send(&vec![message("x"); 600]);
    let lease = host.lease(1, 1_000)[0].lease;
    let first = host.purge(&Which::Live);
    host.send_all(&["new"]);
    assert_eq!((first.count, host.ack(lease)), (500, Settled::Stale));
    assert_eq!(host.purge(&first.next.expect("more")), Moved { count: 100, next: None });
    assert_eq!((host.counts(), ids(&host.lease(10, 10))), ((1, 0, 0, 0, 0), vec![604]));
}

#[test]
fn a_message_redriven_under_a_clock_that_stepped_back_while_the_queue_slept_is_not_from_the_future() {
    let mut host = Host::new(once());
    host.send_all(&["a"]);
    kill(&mut host, "bad");
    host.now -= 5_000;
    host.wake();
    assert_eq!(host.redrive(&Which::DeadOlderThan { age_ms: 0 }).count, 1);
    host.wake();
    assert_eq!((ids(&host.lease(1, 10)), host.stats().oldest_age_ms), (vec![1], Some(0)));
}

#[test]
fn live_messages_cannot_be_redriven() {
    let mut host = Host::new(once());
    assert!(client::redrive(&Which::Live).is_err());
    let call = client::purge(&Which::LiveUpTo { id: 5 }).expect("valid");
    let reply = host.handle("wasmkeep-queue/v1/redrive", &call.body);
    assert_eq!((reply.status, String::from_utf8(reply.body).expect("text")), (400, "only dead letters can be redriven".to_owned()));
}
