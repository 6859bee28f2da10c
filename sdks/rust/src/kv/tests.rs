//! What a client's errors say. Shards and caches are tested where they are, in `wasmkeep-classes`.

use super::{Client, Error, Expect};
use crate::actors::CallError;
use wasmkeep_classes::kv::client as wire;

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
