//! A hosted shard against SQLite in memory, and what a client's errors say. Shards and caches themselves are tested where they
//! are, in `wasmkeep-classes`.

use super::{Client, Error, Expect, guest};
use crate::actors::{Address, CallError};
use crate::queue::tests::Fake;
use crate::{Request, Response, hosted, queue};
use wasmkeep_classes::kv::protocol::{Options, Write};
use wasmkeep_classes::kv::{Config, Machine, Shards, client as wire};

fn ask(fake: &mut Fake, kept: &mut Option<Machine>, call: wire::Call) -> Response {
    let request = Request::post(format!("/{}", call.path)).with_body(call.body);
    hosted::answer(fake, kept, &Config::default(), &[], Some(&Address::new("web", "main")), &request)
}

#[test]
fn a_shard_that_slept_still_has_its_keys_until_their_time_is_over() {
    let (mut fake, shards) = (Fake::new(queue::Config::new()), Shards::new(1).unwrap());
    let mut kept = None;
    let write = Write::Put { key: b"key", value: b"value", expect: Expect::Absent, ttl_ms: Some(5_000) };
    let put = || wire::write(shards, &write, Options::new()).unwrap();
    let answer = ask(&mut fake, &mut kept, put());
    assert!(wire::put(answer.status(), answer.body()).is_ok());
    let answer = ask(&mut fake, &mut kept, put());
    let refused = wire::put(answer.status(), answer.body()).map_err(Error::from);
    assert!(matches!(refused, Err(Error::Conflict { current: Some(_) })), "{refused:?}");
    (kept, fake.alarm) = (None, None);
    let answer = ask(&mut fake, &mut kept, wire::get(shards, b"key").unwrap());
    assert_eq!(wire::got(answer.status(), answer.body()).unwrap().map(|found| found.value), Some(&b"value"[..]));
    fake.now_ms = fake.alarm.expect("the key's end is an alarm, also after a sleep");
    guest::on_alarm(&mut fake, &mut kept, &Config::default()).unwrap();
    let answer = ask(&mut fake, &mut kept, wire::get(shards, b"key").unwrap());
    assert_eq!((wire::got(answer.status(), answer.body()), fake.alarm), (Ok(None), None));
}

#[test]
fn errors_say_whether_anything_may_have_been_done() {
    assert!(Error::from(CallError::Timeout).is_unknown() && Error::from(wire::Error::Malformed).is_unknown());
    assert_eq!(Error::from(CallError::Busy), Error::NotReached(CallError::Busy));
    assert!(!Error::from(wire::Error::Full).is_unknown());
    let conflict = Error::from(wire::Error::Conflict { current: Some(7) });
    assert_eq!((conflict.to_string().contains("version 7"), crate::Error::from(conflict).status()), (true, 409));
}

#[test]
fn a_number_of_shards_that_cannot_be_is_an_error_of_every_operation() {
    let client = Client::new("settings", 0);
    assert!(matches!(client.get("key"), Err(Error::Invalid(_))));
    assert!(matches!(client.delete_if("key", Expect::Absent), Err(Error::Invalid(_))));
}

#[test]
fn a_key_that_breaks_the_rules_is_refused_before_anything_is_called() {
    assert!(matches!(Client::new("settings", 4).put("", "value"), Err(Error::Invalid(_))));
}
