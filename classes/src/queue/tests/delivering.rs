//! Push: alarms, deliveries, what consumers answer.

use super::*;
use crate::queue::Handled;

fn one_out(host: &mut Host) -> (u64, Vec<Got>) {
    let delivery = host.fire_when_due().expect("something is due");
    assert_eq!((delivery.consumer.as_str(), delivery.path), ("mailer/main", "wasmkeep-queue/v1/deliver"));
    (delivery.number, contents(&delivery))
}

#[test]
fn a_batch_of_ten_with_seven_acked_one_retried_and_two_ignored_brings_back_those_three() {
    let mut host = Host::new(pushed());
    host.send_all(&["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
    let (number, got) = one_out(&mut host);
    let mut outcomes: Vec<_> = got[..7].iter().map(|got| (got.lease, Outcome::Ack)).collect();
    outcomes.push((got[7].lease, Outcome::Retry { delay_ms: Some(5_000), error: "limited" }));
    host.answer(number, &outcomes);
    assert_eq!((host.counts(), host.machine.alarm()), ((0, 1, 2, 0, 0), Some(host.now + 5_000)));
    let (number, got) = one_out(&mut host);
    assert_eq!((ids(&got), host.now), (vec![8], START + 5_000));
    host.answer(number, &[(got[0].lease, Outcome::Ack)]);
    let (number, got) = one_out(&mut host);
    assert_eq!((ids(&got), host.now), (vec![9, 10], START + 30_000));
    host.answer(number, &[(got[0].lease, Outcome::Ack), (got[1].lease, Outcome::Ack)]);
    assert_eq!((host.counts(), host.machine.alarm()), ((0, 0, 0, 0, 0), None));
}

#[test]
fn a_quiet_queue_has_no_alarm_and_neither_has_one_that_is_pulled() {
    let mut host = Host::new(pushed());
    assert_eq!((host.machine.alarm(), host.fire()), (None, None));
    let mut host = Host::new(Config::default());
    host.send_all(&["a"]);
    assert_eq!((host.machine.alarm(), host.fire()), (None, None));
}

#[test]
fn batches_follow_one_another_at_once_and_sends_get_their_turn_between() {
    let mut host = Host::new(Config { batch: 2, ..pushed() });
    host.send_all(&["1", "2", "3"]);
    let (number, got) = one_out(&mut host);
    // One batch is out: there is no alarm, and firing gives nothing.
    assert_eq!((host.machine.alarm(), host.fire()), (None, None));
    host.send_all(&["4"]);
    assert_eq!(host.machine.alarm(), None);
    host.answer(number, &[(got[0].lease, Outcome::Ack), (got[1].lease, Outcome::Ack)]);
    assert_eq!(host.machine.alarm(), Some(START));
    assert_eq!(ids(&one_out(&mut host).1), [3, 4]);
    assert_eq!(host.now, START);
}

#[test]
fn a_call_that_fails_retries_the_whole_batch_with_backoff_and_keeps_the_error() {
    let mut host = Host::new(Config { max_attempts: 2, ..pushed() });
    host.send_all(&["a", "b"]);
    let (number, _) = one_out(&mut host);
    host.delivered(number, Err("it trapped"));
    assert_eq!((host.counts(), host.machine.alarm()), ((0, 2, 0, 0, 0), Some(START + 1_000)));
    assert_eq!(host.count("SELECT count(*) FROM wasmkeep_queue WHERE last_error = 'it trapped'"), 2);
    let (number, _) = one_out(&mut host);
    host.delivered(number, Err(&format!("it spun{}", "ä".repeat(1_000))));
    let dead = host.dead();
    assert_eq!((dead.len(), dead[0].0, dead[0].1, dead[0].2.len()), (2, 1, 2, 1_023));
    assert!(dead[1].2.starts_with("it spunä"));
    assert_eq!((host.counts(), host.machine.alarm()), ((0, 0, 0, 0, 2), None));
}

#[test]
fn an_answer_that_means_nothing_is_a_failed_call() {
    let mut host = Host::new(pushed());
    host.send_all(&["a"]);
    for garbage in [&b"OK"[..], b"", &[0; 5], &[255; 64]] {
        let (number, _) = one_out(&mut host);
        host.delivered(number, Ok(garbage));
        assert_eq!(host.counts(), (0, 1, 0, 0, 0));
    }
    let errors = "SELECT count(*) FROM wasmkeep_queue WHERE last_error LIKE 'the consumer''s answer was refused: %'";
    assert_eq!(host.count(errors), 1);
}

#[test]
fn an_empty_answer_list_lets_every_lease_run_out() {
    let mut host = Host::new(Config { visibility_ms: 700, ..pushed() });
    host.send_all(&["a"]);
    let (number, _) = one_out(&mut host);
    host.answer(number, &[]);
    assert_eq!((host.counts(), host.machine.alarm()), ((0, 0, 1, 0, 0), Some(START + 700)));
    assert_eq!(one_out(&mut host).1[0].lease.attempt, 2);
}

#[test]
fn poison_is_dead_lettered_and_the_queue_goes_on() {
    let mut host = Host::new(Config { batch: 1, max_attempts: 3, ..pushed() });
    host.send_all(&["poison", "good"]);
    let mut acked = Vec::new();
    while host.machine.alarm().is_some() {
        let (number, got) = one_out(&mut host);
        if got[0].body == b"poison" {
            host.delivered(number, Err("trap"));
        } else {
            host.answer(number, &[(got[0].lease, Outcome::Ack)]);
            acked.push((got[0].lease.id, host.now));
        }
    }
    assert_eq!((acked, host.dead()), (vec![(2, START)], vec![(1, 3, "trap".to_owned())]));
    assert_eq!((host.now, host.counts()), (START + 3_000, (0, 0, 0, 0, 1)));
}

#[test]
fn as_many_batches_are_out_as_concurrency_says() {
    let mut host = Host::new(Config { batch: 1, concurrency: 2, ..pushed() });
    host.send_all(&["1", "2", "3"]);
    let (first, _) = one_out(&mut host);
    let (second, got) = one_out(&mut host);
    assert_eq!((first, second, ids(&got), host.machine.alarm(), host.fire()), (1, 2, vec![2], None, None));
    host.answer(second, &[(got[0].lease, Outcome::Ack)]);
    assert_eq!(ids(&one_out(&mut host).1), [3]);
    host.delivered(first, Err("late"));
    assert_eq!(host.machine.alarm(), Some(START + 1_000));
}

#[test]
fn a_delivery_that_a_crash_forgot_runs_out_and_its_answer_is_ignored() {
    let mut host = Host::new(pushed());
    host.send_all(&["a"]);
    let (number, got) = one_out(&mut host);
    host.crash();
    host.answer(number, &[(got[0].lease, Outcome::Ack)]);
    assert_eq!((host.counts(), host.machine.alarm()), ((0, 0, 1, 0, 0), Some(START + 30_000)));
    assert_eq!(one_out(&mut host).1[0].lease.attempt, 2);
}

#[test]
fn an_answer_that_comes_after_another_lease_is_stale() {
    let mut host = Host::new(Config { visibility_ms: 10, ..pushed() });
    host.send_all(&["a"]);
    let (number, got) = one_out(&mut host);
    host.now += 10;
    let pulled = host.lease(1, 60_000);
    host.answer(number, &[(got[0].lease, Outcome::Ack)]);
    assert_eq!((host.counts(), host.stats().counters.stale), ((0, 0, 1, 0, 0), 1));
    assert_eq!(host.ack(pulled[0].lease), Settled::Done);
}

#[test]
fn a_failed_call_does_not_revive_what_was_settled_meanwhile() {
    let mut host = Host::new(pushed());
    host.send_all(&["a", "b"]);
    let (number, got) = one_out(&mut host);
    host.ack(got[0].lease);
    host.delivered(number, Err("timeout"));
    host.now += 60_000;
    assert_eq!(ids(&host.lease(10, 1)), [2]);
}

#[test]
fn a_withdrawn_delivery_was_no_attempt() {
    let mut host = Host::new(Config { max_attempts: 1, ..pushed() });
    host.send_all(&["a"]);
    let (number, got) = one_out(&mut host);
    let now = host.now;
    let effect = host.machine.withdraw(&mut host.memory, now, number, 50).expect("withdraws");
    host.check();
    assert_eq!((effect, host.counts(), host.machine.alarm()), (Effect::Local, (0, 1, 0, 0, 0), Some(now + 50)));
    let (number, again) = one_out(&mut host);
    assert_eq!((again[0].lease.attempt, host.ack(got[0].lease)), (1, Settled::Stale));
    host.answer(number, &[(again[0].lease, Outcome::Ack)]);
    assert_eq!(host.counts(), (0, 0, 0, 0, 0));
}

#[test]
fn a_consumer_recognises_what_it_handled_per_queue_and_for_as_long_as_it_said() {
    let mut memory = Memory::new();
    let handled = Handled::keeping_ms(1_000);
    handled.create(&mut memory).expect("creates");
    handled.create(&mut memory).expect("is there already");
    assert_eq!(handled.record(&mut memory, START, "mail/a", 7), Ok(true));
    assert_eq!(handled.record(&mut memory, START + 1, "mail/a", 7), Ok(false));
    assert_eq!(handled.record(&mut memory, START + 1, "mail/b", 7), Ok(true));
    assert_eq!(handled.is_handled(&mut memory, "mail/a", 7), Ok(true));
    assert_eq!(handled.is_handled(&mut memory, "mail/a", 8), Ok(false));
    assert_eq!(handled.sweep(&mut memory, START + 1_000), Ok(false));
    assert_eq!(handled.is_handled(&mut memory, "mail/a", 7), Ok(false));
    assert_eq!(handled.is_handled(&mut memory, "mail/b", 7), Ok(true));
    for id in 0..501 {
        handled.record(&mut memory, START, "mail/c", id).expect("records");
    }
    assert_eq!((handled.sweep(&mut memory, START + 9_000), handled.sweep(&mut memory, START + 9_000)), (Ok(true), Ok(false)));
    assert_eq!(Handled::default().sweep(&mut memory, 5), Ok(false));
}
