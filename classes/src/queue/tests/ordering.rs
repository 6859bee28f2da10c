//! Ordering keys: one message of a key at a time, in the order sent.

use super::*;

fn ordered() -> Config {
    Config { ordering: true, ..Config::default() }
}

fn keyed(key: &'static str, delay_ms: u64) -> Message<'static> {
    Message { body: b"x", ordering_key: Some(key.as_bytes()), delay_ms, ..Message::default() }
}

#[test]
fn a_head_in_flight_blocks_its_key_and_nothing_else() {
    let mut host = Host::new(ordered());
    host.send(&[keyed("a", 0), keyed("a", 0), keyed("b", 0), message("free"), keyed("b", 0), message("free")]);
    let got = host.lease(10, 1_000);
    assert_eq!((ids(&got), host.counts()), (vec![1, 3, 4, 6], (0, 0, 4, 2, 0)));
    assert_eq!((got[0].key.as_deref(), got[2].key.as_deref()), (Some(&b"a"[..]), None));
    assert_eq!(host.lease(10, 1_000), vec![]);
    host.ack(got[1].lease);
    assert_eq!((ids(&host.lease(10, 1_000)), host.counts()), (vec![5], (0, 0, 4, 1, 0)));
    host.ack(got[0].lease);
    assert_eq!(ids(&host.lease(10, 1_000)), [2]);
}

#[test]
fn a_head_that_is_retried_later_keeps_its_key_waiting() {
    let mut host = Host::new(Config { ordering: true, ..pushed() });
    host.send(&[keyed("a", 0), keyed("a", 0), keyed("b", 0)]);
    let got = contents(&host.fire().expect("due"));
    host.answer(1, &[(got[0].lease, Outcome::Retry { delay_ms: Some(9_000), error: "later" }), (got[1].lease, Outcome::Ack)]);
    assert_eq!((host.machine.alarm(), host.counts()), (Some(START + 9_000), (0, 1, 0, 1, 0)));
    host.wake();
    let again = host.fire_when_due().expect("due");
    assert_eq!(ids(&contents(&again)), [1]);
    host.answer(again.number, &[(contents(&again)[0].lease, Outcome::Ack)]);
    assert_eq!((ids(&contents(&host.fire_when_due().expect("due"))), host.now), (vec![2], START + 9_000));
}

#[test]
fn order_is_that_of_sending_even_if_the_first_is_delayed() {
    let mut host = Host::new(ordered());
    host.send(&[keyed("a", 5_000), keyed("a", 0), keyed("a", 9_000)]);
    assert_eq!((host.lease(10, 1_000), host.counts()), (vec![], (0, 1, 0, 2, 0)));
    host.now += 5_000;
    let first = host.lease(10, 1_000);
    host.ack(first[0].lease);
    let second = host.lease(10, 1_000);
    host.ack(second[0].lease);
    assert_eq!((ids(&first), ids(&second), host.counts()), (vec![1], vec![2], (0, 1, 0, 0, 0)));
    host.now += 4_000;
    assert_eq!(ids(&host.lease(10, 1_000)), [3]);
}

#[test]
fn a_dead_head_frees_its_key_and_a_redriven_one_lines_up_by_id() {
    let mut host = Host::new(Config { max_attempts: 1, ..ordered() });
    host.send(&[keyed("a", 0), keyed("a", 0), keyed("a", 0)]);
    host.lease(10, 10);
    host.now += 10;
    let second = host.lease(10, 1_000);
    assert_eq!((ids(&second), host.dead().len()), (vec![2], 1));
    host.redrive(&Which::DeadIds(vec![1]));
    assert_eq!((host.lease(10, 10), host.counts()), (vec![], (0, 0, 1, 2, 0)));
    host.ack(second[0].lease);
    let first = host.lease(10, 1_000);
    assert_eq!(ids(&first), [1]);
    host.ack(first[0].lease);
    assert_eq!(ids(&host.lease(10, 1_000)), [3]);
}

#[test]
fn redriven_messages_of_one_key_come_in_the_order_sent() {
    let mut host = Host::new(Config { max_attempts: 1, ..ordered() });
    host.send(&[keyed("a", 0), keyed("a", 0)]);
    for _ in 0..2 {
        let lease = host.lease(10, 10)[0].lease;
        host.settle(&[(lease, retry("bad"))]);
    }
    assert_eq!(host.redrive(&Which::DeadIds(vec![2, 1])).count, 2);
    let first = host.lease(10, 1_000);
    assert_eq!((ids(&first), first[0].key.as_deref()), (vec![1], Some(&b"a"[..])));
    host.ack(first[0].lease);
    assert_eq!(ids(&host.lease(10, 1_000)), [2]);
}

#[test]
fn messages_with_keys_go_on_after_ordering_is_switched_off() {
    let mut host = Host::new(ordered());
    host.send(&[keyed("a", 0), keyed("a", 0)]);
    host.config.ordering = false;
    host.wake();
    assert_eq!(host.call(&client::send(&[keyed("a", 0)]).expect("valid")).status, 400);
    let first = host.lease(10, 1_000);
    host.ack(first[0].lease);
    assert_eq!((ids(&first), ids(&host.lease(10, 1_000))), (vec![1], vec![2]));
}

#[test]
fn a_purge_cut_in_a_line_leaves_the_rest_of_it_deliverable() {
    let mut host = Host::new(ordered());
    host.send(&vec![keyed("a", 0); 502]);
    let moved = host.purge(&Which::Live);
    assert_eq!((moved.count, host.counts()), (500, (1, 0, 0, 1, 0)));
    let got = host.lease(10, 1_000);
    host.ack(got[0].lease);
    assert_eq!((ids(&got), ids(&host.lease(10, 1_000))), (vec![501], vec![502]));
}

#[test]
fn a_hot_key_with_a_hundred_thousand_waiting_is_as_quick_as_a_short_one() {
    // A memory database and no checks: only the number of rows that statements step over is of interest.
    let mut memory = Memory::new();
    let mut machine = Machine::open(&mut memory, ordered(), START).expect("opens");
    memory.connection.execute_batch("BEGIN").expect("runs");
    let mut call = |call: &Call| {
        let request = Request { path: call.path, body: &call.body, caller: "web/main" };
        machine.handle(&mut memory, START, request).expect("the database works").body
    };
    let batch = client::send(&vec![keyed("hot", 0); 1_000]).expect("valid");
    for _ in 0..100 {
        call(&batch);
    }
    call(&client::send(&[message("free")]).expect("valid"));
    // A scan of what waits would take a thousand times 100,000 steps here: minutes.
    for id in 1..=1_000 {
        let body = call(&client::lease(10, 1_000).expect("valid"));
        let got = owned(&client::leased(200, &body).expect("leased"));
        assert_eq!(got[0].lease.id, id);
        let settled = call(&client::ack(got[0].lease).expect("valid"));
        assert_eq!(client::settled(200, &settled), Ok(vec![Settled::Done]));
        assert_eq!(got.len(), if id == 1 { 2 } else { 1 });
    }
}
