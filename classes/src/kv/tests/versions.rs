//! Versions are never given twice.

use super::*;
use crate::limits::KV_VERSION_BLOCK;

fn local(host: &mut Host, key: &[u8]) -> (i64, Effect) {
    let reply = host.write(&put(key, b"local"), Options::new().local());
    (client::put(reply.status, &reply.body).expect("is put"), reply.effect)
}

#[test]
fn a_version_is_not_reused_after_a_delete() {
    let mut host = Host::new();
    let old = host.put(b"a", b"1");
    host.delete(b"a", Expect::Any).expect("is deleted");
    let new = host.put(b"a", b"1");
    assert!(new > old);
    assert_eq!(host.put_with(b"a", b"2", Expect::Version(old), None), Err(Error::Conflict { current: Some(new) }));
}

#[test]
fn a_version_is_not_reused_after_a_local_write_was_lost() {
    let mut host = Host::new();
    host.put(b"a", b"durable");
    let mut lost = 0;
    for _ in 0..10 {
        let (version, effect) = local(&mut host, b"a");
        assert_eq!((effect, version > lost), (Effect::Local, true));
        lost = version;
    }
    host.crash();
    assert_eq!(host.value(b"a"), Some(b"durable".to_vec()));
    let new = host.put(b"a", b"new");
    assert!(new > lost);
    assert_eq!(host.put_with(b"a", b"2", Expect::Version(lost), None), Err(Error::Conflict { current: Some(new) }));
}

#[test]
fn a_version_is_not_reused_after_a_sleep() {
    let mut host = Host::new();
    let old = host.put(b"a", b"1");
    host.delete(b"a", Expect::Any).expect("is deleted");
    host.wake();
    assert!(host.put(b"a", b"1") > old);
}

#[test]
fn a_local_write_that_reserves_versions_is_durable() {
    let mut host = Host::new();
    assert_eq!(local(&mut host, b"a").1, Effect::Durable);
    let mut durable = 0;
    for _ in 0..2 * KV_VERSION_BLOCK {
        durable += i32::from(local(&mut host, b"a").1 == Effect::Durable);
    }
    assert_eq!(durable, 2);
    host.wake();
    assert_eq!((local(&mut host, b"a").1, local(&mut host, b"a").1), (Effect::Durable, Effect::Local));
}

#[test]
fn the_counter_is_written_once_per_block() {
    let mut host = Host::new();
    let first = host.put(b"a", b"1");
    let reserved = host.number("SELECT seq FROM wasmkeep_kv_meta");
    assert_eq!((first, reserved), (1, KV_VERSION_BLOCK));
    for _ in 1..KV_VERSION_BLOCK {
        host.put(b"a", b"1");
    }
    assert_eq!(host.number("SELECT seq FROM wasmkeep_kv_meta"), reserved);
    assert_eq!(host.put(b"a", b"1"), KV_VERSION_BLOCK + 1);
    assert_eq!(host.number("SELECT seq FROM wasmkeep_kv_meta"), 2 * KV_VERSION_BLOCK);
}

#[test]
fn a_request_that_is_taken_back_takes_back_its_reservation() {
    let mut host = Host::new();
    let call = client::write(shards(), &put(b"a", b"1"), Options::new()).expect("is valid");
    host.undone(&call);
    assert_eq!((host.rows(), host.number("SELECT seq FROM wasmkeep_kv_meta")), (0, 0));
    let version = host.put(b"a", b"1");
    assert!(version <= host.number("SELECT seq FROM wasmkeep_kv_meta"));
}

#[test]
fn a_shard_goes_on_from_a_counter_that_was_written_with_every_version() {
    let mut host = Host::new();
    host.sql("INSERT INTO wasmkeep_kv VALUES (x'61', x'31', 41, NULL); UPDATE wasmkeep_kv_meta SET seq = 41");
    host.wake();
    assert_eq!(host.get(b"a"), Some((b"1".to_vec(), 41, None)));
    assert_eq!(host.put_with(b"a", b"2", Expect::Version(41), None), Ok(42));
}

#[test]
fn a_counter_at_its_end_refuses_writes_and_keeps_what_there_is() {
    let mut host = Host::new();
    host.put(b"a", b"1");
    host.sql(&format!("UPDATE wasmkeep_kv_meta SET seq = {}", (1_i64 << 62) - 1));
    host.wake();
    assert!(matches!(host.put_with(b"a", b"2", Expect::Any, None), Err(Error::Refused(_))));
    assert_eq!(host.value(b"a"), Some(b"1".to_vec()));
}
