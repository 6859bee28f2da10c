//! Leases: who has a message, for how long, and which names of leases still mean something.

use super::*;

#[test]
fn a_leased_message_is_hidden_until_its_lease_runs_out_and_then_comes_again() {
    let mut host = Host::new(Config::default());
    host.send_all(&["a", "b"]);
    let first = host.lease(1, 1_000);
    assert_eq!((ids(&first), first[0].lease.attempt), (vec![1], 1));
    assert_eq!((ids(&host.lease(10, 5_000)), host.lease(10, 5_000)), (vec![2], vec![]));
    host.now += 999;
    assert_eq!((host.lease(10, 1_000), host.counts()), (vec![], (0, 0, 2, 0, 0)));
    host.now += 1;
    assert_eq!(host.counts(), (1, 0, 1, 0, 0));
    let again = host.lease(10, 1_000);
    assert_eq!((ids(&again), again[0].lease.attempt), (vec![1], 2));
    assert_eq!(
        (host.ack(first[0].lease), host.ack(again[0].lease), host.ack(again[0].lease)),
        (Settled::Stale, Settled::Done, Settled::Stale)
    );
    assert_eq!((host.stats().counters.stale, host.stats().counters.acked), (2, 1));
}

#[test]
fn a_lease_that_ran_out_and_was_not_followed_by_another_still_acks_and_nothing_revives_the_message() {
    let mut host = Host::new(pushed());
    host.send_all(&["a"]);
    let lease = host.lease(1, 1_000)[0].lease;
    host.now += 2_000;
    assert_eq!((host.counts(), host.ack(lease)), ((1, 0, 0, 0, 0), Settled::Done));
    // Whoever looks for leases that ran out finds none.
    assert_eq!((host.fire(), host.lease(10, 1_000), host.machine.alarm(), host.counts()), (None, vec![], None, (0, 0, 0, 0, 0)));
    host.wake();
    assert_eq!((host.fire(), host.counts()), (None, (0, 0, 0, 0, 0)));
}

#[test]
fn oldest_first_is_by_the_time_of_becoming_visible_and_then_by_id() {
    let mut host = Host::new(Config::default());
    let delays = [300, 100, 0, 100, 0].map(|delay_ms| Message { delay_ms, ..message("x") });
    host.send(&delays);
    host.now += 300;
    assert_eq!(ids(&host.lease(10, 1_000)), [3, 5, 2, 4, 1]);
}

#[test]
fn a_retry_hides_the_message_for_its_delay_or_the_backoff_of_its_attempt() {
    let mut host = Host::new(Config::default());
    host.send_all(&["a"]);
    for wait in [1_000, 2_000, 4_000] {
        let lease = host.lease(1, 60_000)[0].lease;
        assert_eq!(host.settle(&[(lease, retry("busy")), (lease, retry("busy"))]), [Settled::Done, Settled::Stale]);
        assert_eq!(host.counts(), (0, 1, 0, 0, 0));
        host.now += wait - 1;
        assert_eq!(host.lease(1, 1), vec![]);
        host.now += 1;
    }
    let lease = host.lease(1, 60_000)[0].lease;
    host.settle(&[(lease, Outcome::Retry { delay_ms: Some(0), error: "" })]);
    assert_eq!((host.lease(1, 1)[0].lease.attempt, host.stats().counters.retried), (5, 4));
}

#[test]
fn a_batch_settles_each_lease_by_itself() {
    let mut host = Host::new(Config::default());
    host.send_all(&["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
    let got: Vec<Lease> = host.lease(10, 1_000).iter().map(|got| got.lease).collect();
    host.ack(got[4]);
    let mut outcomes: Vec<_> = got[..7].iter().map(|lease| (*lease, Outcome::Ack)).collect();
    outcomes.push((got[7], Outcome::Retry { delay_ms: Some(10), error: "no" }));
    outcomes.push((Lease { epoch: 99, ..got[8] }, Outcome::Ack));
    outcomes.push((Lease { id: u64::MAX, ..got[8] }, Outcome::Ack));
    let mut expected = vec![Settled::Done; 8];
    expected[4] = Settled::Stale;
    expected.extend([Settled::Stale; 2]);
    assert_eq!(host.settle(&outcomes), expected);
    host.now += 1_000;
    assert_eq!(ids(&host.lease(10, 1_000)), [8, 9, 10]);
}

#[test]
fn an_extended_lease_lasts_from_now_on_and_a_settled_one_cannot_be_extended() {
    let mut host = Host::new(pushed());
    host.send_all(&["a"]);
    let lease = host.lease(1, 1_000)[0].lease;
    host.now += 900;
    assert_eq!(host.settle(&[(lease, Outcome::Extend { visibility_ms: 5_000 })]), [Settled::Done]);
    assert_eq!(host.machine.alarm(), Some(host.now + 5_000));
    host.now += 4_999;
    assert_eq!((host.lease(1, 1), host.counts()), (vec![], (0, 0, 1, 0, 0)));
    assert_eq!(host.settle(&[(lease, Outcome::Extend { visibility_ms: 1 }), (lease, Outcome::Ack)]), [Settled::Done; 2]);
    assert_eq!(host.settle(&[(lease, Outcome::Extend { visibility_ms: 1 })]), [Settled::Stale]);
    assert_eq!(host.machine.alarm(), None);
}

#[test]
fn a_lease_survives_sleep() {
    let mut host = Host::new(Config::default());
    host.send_all(&["a", "b"]);
    let before = host.lease(1, 60_000)[0].lease;
    host.wake();
    let after = host.lease(1, 60_000)[0].lease;
    assert!(after.epoch > before.epoch);
    assert_eq!((host.ack(before), host.ack(after)), (Settled::Done, Settled::Done));
}

#[test]
fn a_lease_that_a_crash_forgot_is_stale_even_if_the_next_one_has_its_count() {
    let mut host = Host::new(Config::default());
    host.send_all(&["a", "b"]);
    let kept = host.lease(1, 60_000)[0].lease;
    let forgotten = host.lease(1, 60_000)[0].lease;
    assert_eq!((kept.id, forgotten.id), (1, 2));
    host.crash();
    assert_eq!(host.ack(forgotten), Settled::Stale);
    let given = host.lease(10, 60_000);
    assert_eq!((ids(&given), given[0].lease.attempt, forgotten.attempt), (vec![2], 1, 1));
    assert_eq!(
        host.settle(&[(forgotten, Outcome::Ack), (forgotten, retry("")), (forgotten, Outcome::Extend { visibility_ms: 1 })]),
        [Settled::Stale; 3]
    );
    // The first lease of a life is durable together with its epoch.
    assert_eq!((host.ack(kept), host.ack(given[0].lease)), (Settled::Done, Settled::Done));
}

#[test]
fn only_the_first_lease_of_a_life_is_durable_and_what_changes_nothing_is_a_read() {
    let mut host = Host::new(Config::default());
    let effect = |host: &mut Host| host.call(&client::lease(1, 1_000).expect("valid")).effect;
    assert_eq!(effect(&mut host), Effect::Read);
    host.send_all(&["a", "b", "c"]);
    assert_eq!((effect(&mut host), effect(&mut host)), (Effect::Durable, Effect::Local));
    host.wake();
    let reply = host.call(&client::lease(1, 1_000).expect("valid"));
    let lease = client::leased(200, &reply.body).expect("leased")[0].lease;
    assert_eq!((reply.effect, effect(&mut host)), (Effect::Durable, Effect::Read));
    let settle = client::ack(lease).expect("valid");
    assert_eq!((host.call(&settle).effect, host.call(&settle).effect), (Effect::Local, Effect::Read));
}

#[test]
fn a_paused_queue_takes_sends_and_settles_and_gives_nothing_even_after_a_crash() {
    let mut host = Host::new(pushed());
    host.send_all(&["a", "b"]);
    let lease = host.lease(1, 60_000)[0].lease;
    host.set_paused(true);
    host.crash();
    host.send_all(&["c"]);
    assert_eq!((host.lease(10, 1_000), host.fire(), host.machine.alarm()), (vec![], None, None));
    assert_eq!((host.stats().is_paused, host.machine.gauges().is_paused, host.ack(lease)), (true, true, Settled::Done));
    host.set_paused(false);
    assert_eq!(host.machine.alarm(), Some(START));
    assert_eq!(ids(&contents(&host.fire().expect("resumed"))), [2, 3]);
}

#[test]
fn a_clock_that_steps_back_does_not_freeze_a_lease() {
    let mut host = Host::new(pushed());
    host.send_all(&["a"]);
    host.lease(1, 10_000);
    host.now -= 3_600_000;
    assert_eq!(host.lease(1, 1), vec![]);
    assert_eq!(host.machine.alarm(), Some(host.now + 10_000));
    host.now += 10_000;
    assert_eq!(ids(&host.lease(1, 10_000)), [1]);
    // Nor does one that stepped back while the queue slept: the lease above is durable with its epoch's clock.
    host.now -= 3_600_000;
    host.wake();
    let alarm = host.machine.alarm().expect("the lease runs out");
    assert!(alarm <= host.now + 20_000, "{alarm} is too far from {}", host.now);
    host.now += 20_000;
    assert_eq!(ids(&host.lease(1, 1_000)), [1]);
}

#[test]
fn what_was_pending_before_a_sleep_stays_so_long_pending_if_the_clock_steps_back_meanwhile() {
    let mut host = Host::new(pushed());
    host.send_all(&["a"]);
    host.now += 3_600_000;
    host.lease(1, 10_000);
    host.now -= 1_800_000;
    host.wake();
    assert_eq!(host.machine.alarm(), Some(host.now + 10_000));
}

#[test]
fn a_clock_that_was_wrong_once_is_not_followed_by_an_empty_queue() {
    let mut host = Host::new(Config::default());
    host.now = START * 1_000;
    host.send_all(&["a"]);
    let lease = host.lease(1, 1_000)[0].lease;
    host.ack(lease);
    host.now = START;
    host.wake();
    assert_eq!(host.send(&[message("b")])[0].due_at_ms, START);
}

#[test]
fn one_lease_holds_so_many_bytes_and_always_one_message() {
    let mut host = Host::new(Config::default());
    let large = vec![7; 1024 * 1024];
    for _ in 0..9 {
        host.send(&[Message { body: &large, ..Message::default() }]);
    }
    assert_eq!((ids(&host.lease(1_000, 1_000)), ids(&host.lease(1_000, 1_000))), ((1..=8).collect(), vec![9]));
}
