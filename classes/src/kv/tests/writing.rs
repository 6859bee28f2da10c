//! Expectations, increments, many writes in one call, bad input.

use super::*;
use crate::limits::{KV_ITEMS_MAX, KV_KEY_BYTES_MAX, KV_TTL_MS_MAX, KV_VALUE_BYTES_MAX};

fn conflict(current: Option<i64>) -> Error {
    Error::Conflict { current }
}

#[test]
fn of_fifty_creations_exactly_one_succeeds() {
    let mut host = Host::new();
    let created: Vec<_> = (0..50_u8).map(|value| host.put_with(b"a", &[value], Expect::Absent, None)).collect();
    let version = created[0].clone().expect("the first");
    assert!(created[1..].iter().all(|created| *created == Err(conflict(Some(version)))));
    assert_eq!(host.get(b"a"), Some((vec![0], version, None)));
}

#[test]
fn a_put_that_expects_a_version_writes_only_over_that_one() {
    let mut host = Host::new();
    assert_eq!(host.put_with(b"a", b"1", Expect::Version(1), None), Err(conflict(None)));
    assert_eq!(host.rows(), 0);
    let first = host.put(b"a", b"1");
    let second = host.put_with(b"a", b"2", Expect::Version(first), None).expect("is put");
    assert_eq!(host.put_with(b"a", b"3", Expect::Version(first), None), Err(conflict(Some(second))));
    assert_eq!(host.put_with(b"a", b"3", Expect::Version(second + 1), None), Err(conflict(Some(second))));
    assert_eq!(host.get(b"a"), Some((b"2".to_vec(), second, None)));
}

#[test]
fn a_delete_takes_the_same_expectations_and_says_whether_there_was_a_row() {
    let mut host = Host::new();
    assert_eq!((host.delete(b"a", Expect::Any), host.delete(b"a", Expect::Absent)), (Ok(false), Ok(false)));
    assert_eq!(host.delete(b"a", Expect::Version(1)), Err(conflict(None)));
    let version = host.put(b"a", b"1");
    assert_eq!(host.delete(b"a", Expect::Absent), Err(conflict(Some(version))));
    assert_eq!(host.delete(b"a", Expect::Version(version + 1)), Err(conflict(Some(version))));
    assert_eq!(host.value(b"a"), Some(b"1".to_vec()));
    assert_eq!((host.delete(b"a", Expect::Version(version)), host.value(b"a")), (Ok(true), None));
    host.put(b"a", b"1");
    assert_eq!((host.delete(b"a", Expect::Any), host.value(b"a")), (Ok(true), None));
}

#[test]
fn an_increment_counts_in_decimal_from_zero() {
    let mut host = Host::new();
    assert_eq!(host.increment(b"n", 5).expect("is a number").0, 5);
    let (sum, version) = host.increment(b"n", -12).expect("is a number");
    assert_eq!((sum, host.get(b"n")), (-7, Some((b"-7".to_vec(), version, None))));
    host.put(b"n", b"9223372036854775806");
    assert_eq!(host.increment(b"n", 1).map(|(sum, _)| sum), Ok(i64::MAX));
}

#[test]
fn an_increment_that_fails_leaves_the_value_untouched() {
    let mut host = Host::new();
    let cases: [(&[u8], i64, Error); 5] = [
        (b"9223372036854775807", 1, Error::Overflow),
        (b"-9223372036854775808", -1, Error::Overflow),
        (b"12a", 1, Error::NotANumber),
        (b"", 1, Error::NotANumber),
        (b"\xff", 1, Error::NotANumber),
    ];
    for (value, delta, error) in cases {
        let version = host.put(b"n", value);
        assert_eq!(host.increment(b"n", delta), Err(error));
        assert_eq!(host.get(b"n"), Some((value.to_vec(), version, None)));
    }
}

#[test]
fn each_write_of_many_has_its_own_outcome() {
    let mut host = Host::new();
    let version = host.put(b"a", b"x");
    let writes = [
        put(b"b", b"1"),
        Write::Put { key: b"a", value: b"y", expect: Expect::Absent, ttl_ms: None },
        Write::Increment { key: b"a", delta: 1 },
        Write::Increment { key: b"b", delta: 1 },
        Write::Delete { key: b"c", expect: Expect::Any },
        Write::Delete { key: b"a", expect: Expect::Version(version) },
    ];
    let outcomes = host.write_many(&writes, false).expect("written");
    assert_eq!(outcomes.len(), 6);
    assert_eq!(outcomes[0], Outcome::Put { version: version + 1 });
    assert_eq!(outcomes[1], Outcome::Conflict { current: Some(version) });
    assert_eq!(outcomes[2], Outcome::NotANumber);
    assert_eq!(outcomes[3], Outcome::Incremented { value: 2, version: version + 2 });
    assert_eq!((outcomes[4], outcomes[5]), (Outcome::Deleted { existed: false }, Outcome::Deleted { existed: true }));
    assert_eq!((host.value(b"a"), host.value(b"b")), (None, Some(b"2".to_vec())));
}

#[test]
fn an_atomic_call_of_which_one_check_fails_writes_nothing() {
    let mut host = Host::new();
    let version = host.put(b"a", b"x");
    let failing = [
        (Write::Put { key: b"a", value: b"y", expect: Expect::Absent, ttl_ms: None }, Outcome::Conflict { current: Some(version) }),
        (Write::Delete { key: b"a", expect: Expect::Version(version + 9) }, Outcome::Conflict { current: Some(version) }),
        (Write::Put { key: b"n", value: b"y", expect: Expect::Version(1), ttl_ms: None }, Outcome::Conflict { current: None }),
        (Write::Increment { key: b"a", delta: 1 }, Outcome::NotANumber),
    ];
    for (write, outcome) in failing {
        let result = host.write_many(&[put(b"b", b"1"), write, put(b"c", b"2")], true);
        assert_eq!(result, Err(Error::NotApplied(vec![Outcome::NotApplied, outcome, Outcome::NotApplied])));
        assert_eq!((host.get(b"a"), host.rows()), (Some((b"x".to_vec(), version, None)), 1));
    }
    let writes = [
        Write::Put { key: b"a", value: b"1", expect: Expect::Version(version), ttl_ms: None },
        Write::Put { key: b"b", value: b"y", expect: Expect::Absent, ttl_ms: None },
        Write::Delete { key: b"c", expect: Expect::Absent },
    ];
    assert!(host.write_many(&writes, true).expect("written").iter().all(Outcome::is_done));
    assert_eq!((host.value(b"a"), host.value(b"b")), (Some(b"1".to_vec()), Some(b"y".to_vec())));
}

#[test]
fn a_key_twice_in_an_atomic_call_is_refused_and_in_another_one_done_in_order() {
    let mut host = Host::new();
    let writes = [put(b"a", b"1"), put(b"b", b"1"), Write::Increment { key: b"a", delta: 4 }];
    assert!(matches!(host.write_many(&writes, true), Err(Error::Refused(words)) if words.contains("only once")));
    assert_eq!(host.rows(), 0);
    host.write_many(&writes, false).expect("written");
    assert_eq!(host.value(b"a"), Some(b"5".to_vec()));
}

#[test]
fn many_keys_are_read_in_one_call_in_the_order_given() {
    let mut host = Host::new();
    host.put(b"a", b"1");
    host.put(b"b", b"2");
    let keys: [&[u8]; 4] = [b"b", b"none", b"a", b"b"];
    let reply = host.call(&client::get_many(shards(), &keys).expect("is valid"));
    let found = client::got_many(reply.status, &reply.body, 4).expect("got");
    let values: Vec<_> = found.iter().map(|found| found.map(|found| found.value)).collect();
    assert_eq!((values, reply.effect), (vec![Some(&b"2"[..]), None, Some(b"1"), Some(b"2")], Effect::Read));
}

#[test]
fn a_reply_for_many_keys_ends_where_it_is_full() {
    let mut host = Host::new();
    for key in [b"a", b"b", b"c"] {
        host.put(key, &vec![1; 3 << 20]);
    }
    host.put(b"large", &vec![2; KV_VALUE_BYTES_MAX]);
    let mut ask = |keys: &[&[u8]]| {
        let reply = host.call(&client::get_many(shards(), keys).expect("is valid"));
        client::got_many(reply.status, &reply.body, keys.len()).expect("got").len()
    };
    assert_eq!((ask(&[b"a", b"none", b"b", b"c"]), ask(&[b"large", b"a"]), ask(&[b"none", b"large"])), (3, 1, 1));
}

#[test]
fn keys_and_values_at_their_limits_are_kept_and_beyond_refused_with_the_rule() {
    let mut host = Host::new();
    let (key, value) = (vec![7; KV_KEY_BYTES_MAX], vec![8; KV_VALUE_BYTES_MAX]);
    let version = host.put(&key, &value);
    assert_eq!(host.get(&key), Some((value.clone(), version, None)));
    let (long, large) = ([&key[..], b"x"].concat(), [&value[..], b"x"].concat());
    let refused = |write: &Write<'_>| client::write(shards(), write, Options::new()).expect_err("breaks a rule").to_string();
    assert_eq!(refused(&put(b"", b"")), "a key of 0 bytes: must be from 1 to 2048");
    assert_eq!(refused(&put(&long, b"")), "a key of 2049 bytes: must be from 1 to 2048");
    let large = Write::Put { key: b"a", value: &large, expect: Expect::Any, ttl_ms: None };
    assert_eq!(refused(&large), "a value of 8388609 bytes: at most 8388608");
    assert_eq!(
        refused(&Write::Delete { key: b"a", expect: Expect::Version(0) }),
        format!("a version of 0: must be from 1 to {}", 1_i64 << 62)
    );
}

#[test]
fn a_shard_refuses_what_a_client_that_does_not_check_may_send() {
    let mut host = Host::new();
    let body = |key: &[u8], ttl: Option<u64>, value: &[u8]| {
        let mut writer = crate::wire::Writer::new();
        writer.u32(1).u8(0).u8(0).bytes(key).u8(0).option_u64(ttl).bytes(value);
        writer.into_bytes()
    };
    let (ttl, key) = (KV_TTL_MS_MAX + 1, vec![1; KV_KEY_BYTES_MAX + 1]);
    let cases = [
        (body(b"", None, b""), 400, "a key of 0 bytes"),
        (body(&key, None, b""), 400, "a key of 2049 bytes"),
        (body(b"a", Some(0), b""), 400, "a time to live of 0 ms: must be from 1 to"),
        (body(b"a", Some(ttl), b""), 400, "a time to live of"),
        (body(b"a", Some(u64::MAX), b""), 400, "a time to live of 18446744073709551615 ms"),
        (body(b"a", Some((-5_i64).cast_unsigned()), b""), 400, "a time to live of"),
        (body(b"a", None, &vec![0; KV_VALUE_BYTES_MAX + 1]), 413, "a value of 8388609 bytes"),
        (vec![0; (16 << 20) + 1], 413, "a request of 16777217 bytes"),
    ];
    for (body, status, words) in cases {
        let reply = host.handle("wasmkeep-kv/v1/put", &body, CALLER);
        let said = String::from_utf8(reply.body).expect("words");
        assert!(said.starts_with(words), "{said}");
        assert_eq!((reply.status, reply.effect, host.rows()), (status, Effect::Read, 0));
    }
    assert_eq!(host.handle("wasmkeep-kv/v1/put", &body(b"a", Some(KV_TTL_MS_MAX), b""), CALLER).status, 200);
}

#[test]
fn a_bad_item_or_too_many_spoil_the_whole_call_before_anything_is_written() {
    let mut host = Host::new();
    let many = vec![put(b"a", b"1"); KV_ITEMS_MAX + 1];
    assert!(client::write_many(shards(), &many, false, Options::new()).is_err());
    assert!(client::write_many(shards(), &many[1..], false, Options::new()).is_ok());
    assert!(client::write_many(shards(), &[], false, Options::new()).is_err());
    let item = |key: &[u8]| [&[1][..], &u32::try_from(key.len()).expect("small").to_le_bytes(), key, &[0]].concat();
    let head = [1, 0, 0, 0, 0, 0];
    let of = |items: &[Vec<u8>]| [&head[..], &u32::try_from(items.len()).expect("small").to_le_bytes(), &items.concat()].concat();
    let (good, bad) = (of(&[item(b"a")]), of(&[item(b"a"), item(b"")]));
    host.put(b"a", b"1");
    assert_eq!(host.handle("wasmkeep-kv/v1/write-many", &bad, CALLER).status, 400);
    assert_eq!(host.handle("wasmkeep-kv/v1/write-many", &of(&vec![item(b"a"); KV_ITEMS_MAX + 1]), CALLER).status, 413);
    assert_eq!(host.handle("wasmkeep-kv/v1/write-many", &of(&[]), CALLER).status, 400);
    assert_eq!(host.rows(), 1);
    assert_eq!((host.handle("wasmkeep-kv/v1/write-many", &good, CALLER).status, host.rows()), (200, 0));
}

#[test]
fn writes_are_durable_unless_they_are_local_whatever_they_find() {
    let mut host = Host::new();
    host.put(b"a", b"x");
    let writes = [
        Write::Put { key: b"a", value: b"1", expect: Expect::Absent, ttl_ms: None },
        Write::Delete { key: b"none", expect: Expect::Any },
        Write::Increment { key: b"a", delta: 1 },
        put(b"b", b"1"),
        Write::Delete { key: b"b", expect: Expect::Any },
    ];
    for write in writes {
        assert_eq!(host.write(&write, Options::new()).effect, Effect::Durable);
        assert_eq!(host.write(&write, Options::new().local()).effect, Effect::Local);
        let many = client::write_many(shards(), &[write], true, Options::new()).expect("is valid");
        assert_eq!(host.call(&many).effect, Effect::Durable);
    }
}

#[test]
fn only_known_callers_are_answered() {
    let mut host = Host::new();
    let call = client::get(shards(), b"a").expect("is valid");
    let reply = host.handle(call.path, &call.body, "");
    assert_eq!(client::got(reply.status, &reply.body), Err(Error::Forbidden));
}

#[test]
fn a_single_write_takes_one_statement() {
    struct Counting<'a>(&'a mut Memory, u32);
    impl crate::database::Database for Counting<'_> {
        fn execute(&mut self, sql: &'static str, params: &[crate::database::Param<'_>]) -> Result<u64, DatabaseError> {
            self.1 += 1;
            self.0.execute(sql, params)
        }
        fn query(
            &mut self,
            sql: &'static str,
            params: &[crate::database::Param<'_>],
            each: &mut dyn FnMut(&dyn crate::database::Row) -> bool,
        ) -> Result<(), DatabaseError> {
            self.1 += 1;
            self.0.query(sql, params, each)
        }
    }
    let mut host = Host::new();
    let version = host.put(b"a", b"1");
    let calls = [
        client::write(shards(), &put(b"a", b"2"), Options::new()),
        client::write(shards(), &Write::Put { key: b"b", value: b"1", expect: Expect::Absent, ttl_ms: Some(5) }, Options::new()),
        client::write(
            shards(),
            &Write::Put { key: b"a", value: b"1", expect: Expect::Version(version + 1), ttl_ms: None },
            Options::new(),
        ),
        client::write(shards(), &Write::Delete { key: b"a", expect: Expect::Version(version + 3) }, Options::new()),
        client::write(shards(), &Write::Delete { key: b"b", expect: Expect::Any }, Options::new()),
        client::get(shards(), b"a"),
    ];
    for call in calls {
        let call = call.expect("is valid");
        let mut counting = Counting(&mut host.memory, 0);
        let request = Request { path: call.path, body: &call.body, caller: CALLER };
        let reply = host.machine.handle(&mut counting, host.now, request).expect("works");
        assert_eq!((reply.status, counting.1), (200, 1), "{}", call.path);
    }
}
