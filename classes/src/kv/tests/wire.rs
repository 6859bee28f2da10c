//! Bytes that are no message, from clients and from shards: refused, never a panic.

use proptest::prelude::*;

use super::*;
use crate::kv::Phase;
use crate::kv::protocol::Moving;

const OPERATIONS: [&str; 13] = [
    "get",
    "get-many",
    "put",
    "delete",
    "increment",
    "write-many",
    "list",
    "count",
    "layout",
    "set-layout",
    "export",
    "import",
    "prune",
];

fn calls() -> Vec<Call> {
    let options = Options::new().operation(b"op");
    let full = Write::Put { key: b"a", value: b"12", expect: Expect::Version(1), ttl_ms: Some(9_000) };
    let writes = [full, Write::Delete { key: b"b", expect: Expect::Absent }, Write::Increment { key: b"c", delta: -1 }];
    let row = Moving { key: b"m", value: b"v", version: 3, expires_at_ms: Some(START * 2) };
    let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
    let list = List { prefix: b"a", after: Some(b"a"), limit: 7, values: true };
    [
        client::get(shards(), b"a"),
        client::get_many(shards(), &keys),
        client::write(shards(), &full, options),
        client::write(shards(), &writes[1], Options::new()),
        client::write(shards(), &writes[2], Options::new().local()),
        client::write_many(shards(), &writes, true, options),
        client::list(shards(), &list),
        Ok(client::count(shards())),
        Ok(client::layout()),
        client::set_layout(Phase::Open, shards()),
        client::export(Some(b"a")),
        client::import(&[row, row], true),
        client::prune(0, shards(), Some(b"a")),
    ]
    .into_iter()
    .map(|call| call.expect("is valid"))
    .collect()
}

#[test]
fn every_operation_has_a_call() {
    let paths: Vec<_> = calls().iter().map(|call| call.path.strip_prefix("wasmkeep-kv/v1/").expect("a path")).collect();
    assert_eq!(paths, OPERATIONS);
}

#[test]
fn a_request_cut_at_any_length_or_with_a_byte_behind_it_is_refused() {
    for call in calls() {
        let mut host = Host::new();
        for length in 0..call.body.len() {
            let reply = host.handle(call.path, &call.body[..length], "_operator/cli");
            assert_eq!((reply.status, reply.effect), (400, Effect::Read), "{} at {length}", call.path);
            assert!(std::str::from_utf8(&reply.body).is_ok_and(|words| !words.is_empty()));
        }
        let reply = host.handle(call.path, &[&call.body[..], &[0]].concat(), "_operator/cli");
        assert_eq!((reply.status, host.rows()), (400, 0), "{}", call.path);
    }
}

#[test]
fn another_version_and_another_operation_are_refused_by_name() {
    let mut host = Host::new();
    for path in ["wasmkeep-kv/v2/get", "wasmkeep-kv/v1", "wasmkeep-queue/v1/get", "", "/", "get"] {
        let reply = host.handle(path, b"", CALLER);
        assert_eq!((reply.status, reply.body.as_slice()), (400, &b"this shard speaks wasmkeep-kv/v1/"[..]), "{path}");
    }
    for path in ["wasmkeep-kv/v1/", "wasmkeep-kv/v1/Get", "wasmkeep-kv/v1/get/", "wasmkeep-kv/v1/get?x"] {
        assert_eq!(host.handle(path, b"", CALLER).status, 404, "{path}");
    }
    let call = client::get(shards(), b"a").expect("is valid");
    assert_eq!(host.handle(&format!("/{}", call.path), &call.body, CALLER).status, 200);
}

/// Hands an answer to every function that takes one.
fn decode_all(status: u16, body: &[u8]) -> Vec<(&'static str, bool)> {
    vec![
        ("get", client::got(status, body).is_ok()),
        ("get-many", client::got_many(status, body, 3).is_ok()),
        ("put", client::put(status, body).is_ok()),
        ("delete", client::deleted(status, body).is_ok()),
        ("increment", client::incremented(status, body).is_ok()),
        ("write-many", client::written_many(status, body).is_ok()),
        ("list", client::listed(status, body).is_ok()),
        ("count", client::counted(status, body).is_ok()),
        ("layout", client::is_laid_out(status, body).is_ok()),
        ("set-layout", client::has_set_layout(status, body).is_ok()),
        ("export", client::exported(status, body).is_ok()),
        ("import", client::imported(status, body).is_ok()),
        ("prune", client::pruned(status, body).is_ok()),
    ]
}

#[test]
fn an_answer_cut_at_any_length_or_with_a_byte_behind_it_is_malformed() {
    for call in calls() {
        let mut host = Host::new();
        host.put_with(b"a", b"1", Expect::Any, Some(9_000)).expect("is put");
        host.put(b"ab", b"2");
        if call.path.ends_with("prune") {
            host.operate(&client::set_layout(Phase::Moved(1), shards()).expect("is valid"));
        }
        let call = if call.path.ends_with("write-many") {
            client::write_many(shards(), &[put(b"b", b""), put(b"a", b"")], false, Options::new()).expect("is valid")
        } else {
            call
        };
        let reply = host.operate(&call);
        assert_eq!(reply.status, 200, "{}", call.path);
        let name = call.path.strip_prefix("wasmkeep-kv/v1/").expect("a path");
        let is_read = |body: &[u8]| decode_all(200, body).into_iter().any(|(operation, is_ok)| operation == name && is_ok);
        assert!(is_read(&reply.body), "{name}");
        for length in 0..reply.body.len() {
            assert!(!is_read(&reply.body[..length]), "{name} at {length}");
        }
        assert!(!is_read(&[&reply.body[..], &[0]].concat()), "{name}");
    }
}

#[test]
fn statuses_become_errors_by_what_the_caller_may_do_about_them() {
    let words = || "because".to_owned();
    let cases = [
        (400, Error::Refused(words())),
        (404, Error::Refused(words())),
        (403, Error::Forbidden),
        (413, Error::TooLarge(words())),
        (421, Error::Malformed),
        (507, Error::Full),
        (500, Error::Failed { status: 500, words: words() }),
        (503, Error::Failed { status: 503, words: words() }),
    ];
    for (status, error) in cases {
        assert_eq!(client::got(status, b"because"), Err(error.clone()));
        assert_eq!(client::put(status, b"because"), Err(error.clone()));
        assert_eq!(client::written_many(status, b"because"), Err(error.clone()));
        assert!(!error.to_string().is_empty());
    }
    assert_eq!(client::put(409, b"because"), Err(Error::Malformed));
    assert_eq!(client::put(409, &[0, 1, 0, 0, 0, 0, 0, 0, 0]), Err(Error::Malformed), "a success is no conflict");
    assert_eq!(client::put(200, &[3, 0]), Err(Error::Malformed), "a conflict is no success");
    assert_eq!(client::deleted(200, &[0, 1, 0, 0, 0, 0, 0, 0, 0]), Err(Error::Malformed), "a put is no delete");
}

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => 0..4_u8, 1 => any::<u8>()];
    let changed = (0..13_usize, any::<prop::sample::Index>(), any::<u8>()).prop_map(|(call, index, byte)| {
        let mut body = calls()[call].body.clone();
        if !body.is_empty() {
            let index = index.index(body.len());
            body[index] = byte;
        }
        body
    });
    prop_oneof![prop::collection::vec(byte, 0..60), changed]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_shard_or_a_client_panic(body in bodies(), status in 0..600_u16) {
        let mut memory = Memory::new();
        let mut machine = Machine::open(&mut memory, Config::default(), START).expect("opens");
        for operation in OPERATIONS {
            let path = format!("wasmkeep-kv/v1/{operation}");
            let request = Request { path: &path, body: &body, caller: "_operator/cli" };
            let reply = machine.handle(&mut memory, START, request).expect("the database works");
            prop_assert!([200, 400, 409, 413, 421, 422].contains(&reply.status));
            decode_all(reply.status, &body);
        }
        for status in [200, 409, 421, 422, status] {
            decode_all(status, &body);
        }
    }
}
