//! Operation ids: a retried write applies once.

use super::*;
use crate::limits::{KV_OPERATION_LINGER_MS, KV_OPERATION_WINDOW_MS, KV_SWEEP_MAX};

fn increment(host: &mut Host, id: &[u8], delta: i64) -> Result<(i64, i64), Error> {
    let reply = host.write(&Write::Increment { key: b"n", delta }, Options::new().operation(id));
    assert_eq!(reply.effect, Effect::Durable);
    client::incremented(reply.status, &reply.body)
}

#[test]
fn a_retried_increment_applies_once_and_gets_the_first_outcome_again() {
    let mut host = Host::new();
    let first = increment(&mut host, b"op", 1);
    host.increment(b"n", 10).expect("is a number");
    assert_eq!((increment(&mut host, b"op", 1), host.value(b"n")), (first.clone(), Some(b"11".to_vec())));
    host.crash();
    assert_eq!((increment(&mut host, b"op", 1), host.value(b"n")), (first, Some(b"11".to_vec())));
}

#[test]
fn a_retry_gets_the_conflict_that_the_first_one_met() {
    let mut host = Host::new();
    let version = host.put(b"a", b"1");
    let creation = Write::Put { key: b"a", value: b"2", expect: Expect::Absent, ttl_ms: None };
    let mut create = || {
        let reply = host.write(&creation, Options::new().operation(b"op"));
        host.delete(b"a", Expect::Any).expect("is deleted");
        client::put(reply.status, &reply.body)
    };
    assert_eq!(
        (create(), create()),
        (Err(Error::Conflict { current: Some(version) }), Err(Error::Conflict { current: Some(version) }))
    );
    assert_eq!(host.value(b"a"), None);
}

#[test]
fn an_id_of_another_request_is_refused_and_writes_nothing() {
    let mut host = Host::new();
    let first = increment(&mut host, b"op", 1);
    assert_eq!(increment(&mut host, b"op", 2), Err(Error::OperationReused));
    let reply = host.write(&put(b"n", b"0"), Options::new().operation(b"op"));
    assert_eq!(client::put(reply.status, &reply.body), Err(Error::OperationReused));
    let many = client::write_many(shards(), &[put(b"n", b"0")], false, Options::new().operation(b"op")).expect("is valid");
    let reply = host.call(&many);
    assert_eq!(client::written_many(reply.status, &reply.body), Err(Error::OperationReused));
    assert_eq!((increment(&mut host, b"op", 1), host.value(b"n")), (first, Some(b"1".to_vec())));
}

#[test]
fn an_id_belongs_to_its_caller() {
    let mut host = Host::new();
    let call = client::write(shards(), &Write::Increment { key: b"n", delta: 1 }, Options::new().operation(b"op"));
    let call = call.expect("is valid");
    for caller in ["web/a", "web/b", "web/a"] {
        assert_eq!(host.handle(call.path, &call.body, caller).status, 200);
    }
    assert_eq!(host.value(b"n"), Some(b"2".to_vec()));
}

#[test]
fn many_writes_with_one_id_apply_once_together() {
    let mut host = Host::new();
    let writes = [put(b"a", b"1"), Write::Increment { key: b"n", delta: 1 }, Write::Delete { key: b"x", expect: Expect::Any }];
    let call = client::write_many(shards(), &writes, true, Options::new().operation(b"op")).expect("is valid");
    let (first, second) = (host.call(&call), host.call(&call));
    assert_eq!((first.status, &first.body), (second.status, &second.body));
    assert_eq!(host.value(b"n"), Some(b"1".to_vec()));
}

#[test]
fn a_lost_local_write_takes_its_id_with_it() {
    let mut host = Host::new();
    host.put(b"x", b"");
    let write = Write::Increment { key: b"n", delta: 1 };
    assert_eq!(host.write(&write, Options::new().local().operation(b"op")).effect, Effect::Local);
    host.crash();
    assert_eq!(host.value(b"n"), None);
    host.write(&write, Options::new().local().operation(b"op"));
    host.write(&write, Options::new().local().operation(b"op"));
    assert_eq!(host.value(b"n"), Some(b"1".to_vec()));
}

#[test]
fn a_request_taken_back_takes_back_its_id() {
    let mut host = Host::new();
    let call = client::write(shards(), &Write::Increment { key: b"n", delta: 1 }, Options::new().operation(b"op"));
    host.undone(&call.expect("is valid"));
    assert_eq!(increment(&mut host, b"op", 1).map(|(sum, _)| sum), Ok(1));
}

#[test]
fn an_id_is_remembered_for_an_hour_and_then_swept() {
    let mut host = Host::new();
    for _ in 0..3 {
        assert_eq!(increment(&mut host, b"op", 1).map(|(sum, _)| sum), Ok(1));
        host.now += KV_OPERATION_WINDOW_MS / 3 - 1;
    }
    host.now += 3;
    assert_eq!(increment(&mut host, b"op", 1).map(|(sum, _)| sum), Ok(2));
    assert_eq!(host.machine.alarm(), Some(START + KV_OPERATION_WINDOW_MS + KV_OPERATION_LINGER_MS));
    host.now = host.machine.alarm().expect("is set");
    assert_eq!((host.fire().operations, host.number("SELECT count(*) FROM wasmkeep_kv_operations")), (0, 1));
    host.now = host.machine.alarm().expect("is set");
    let swept = host.fire();
    assert_eq!((swept.operations, swept.effect, host.machine.alarm()), (1, Effect::Local, None));
    assert_eq!(host.number("SELECT count(*) FROM wasmkeep_kv_operations"), 0);
}

#[test]
fn ids_are_swept_five_hundred_at_a_time() {
    let mut host = Host::with(Config { operation_window_ms: 100, ..Config::default() });
    for id in 0..700_u32 {
        increment(&mut host, &id.to_be_bytes(), 1).expect("is a number");
    }
    host.now = host.machine.alarm().expect("is set");
    assert_eq!(host.fire().operations, KV_SWEEP_MAX as u64);
    assert!(host.machine.alarm().is_some_and(|at| at <= host.now + KV_OPERATION_LINGER_MS));
    assert_eq!((host.fire().operations, host.machine.alarm()), (200, None));
}

#[test]
fn an_id_has_up_to_sixty_four_bytes_of_any_kind() {
    let mut host = Host::new();
    increment(&mut host, &[0; 64], 1).expect("is a number");
    increment(&mut host, &[0; 63], 1).expect("is a number");
    assert_eq!(host.value(b"n"), Some(b"2".to_vec()));
    for id in [&[0; 65][..], b""] {
        let write = Write::Increment { key: b"n", delta: 1 };
        let refused = client::write(shards(), &write, Options::new().operation(id)).expect_err("breaks a rule").to_string();
        assert!(refused.ends_with("must be from 1 to 64"));
        let body = [&[1, 0, 0, 0, 0, 1][..], &u32::try_from(id.len()).expect("small").to_le_bytes(), id].concat();
        let reply = host.handle("wasmkeep-kv/v1/increment", &body, CALLER);
        assert_eq!((reply.status, String::from_utf8(reply.body)), (400, Ok(refused)));
    }
}
