//! Key-value: writes and their expectations, versions, times to live, listings, operation ids, and what is refused.

use std::time::Duration;

use wasmkeep_classes::host::Call;
use wasmkeep_classes::kv::client::{self, Error};
use wasmkeep_classes::kv::merge::Merge;
use wasmkeep_classes::kv::protocol::{Expect, List, Options, Outcome, Write};
use wasmkeep_classes::kv::{Shards, shard_name};
use wasmkeep_storage::Address;

use crate::bed::{Bed, FORWARDER, Place, SHARDS};

/// A class as its clients see it, whoever runs it.
struct Store<'a> {
    bed: &'a Bed,
    shards: Shards,
    /// The actor that asks.
    through: &'a str,
}

fn store(bed: &Bed) -> Store<'_> {
    Store { bed, shards: Shards::new(SHARDS).expect("few"), through: FORWARDER }
}

fn put_of<'a>(key: &'a [u8], value: &'a [u8]) -> Write<'a> {
    Write::Put { key, value, expect: Expect::Any, ttl_ms: None }
}

impl Store<'_> {
    fn ask(&self, shard: u32, call: &Call) -> (u16, Vec<u8>) {
        self.bed.ask(self.through, &Address::new("settings", &shard_name(shard)), call)
    }

    fn written(&self, write: &Write<'_>, options: Options<'_>) -> (u16, Vec<u8>) {
        self.ask(self.shards.of(write.key()), &client::write(self.shards, write, options).expect("valid"))
    }

    fn put_if(&self, key: &[u8], value: &[u8], expect: Expect, ttl_ms: Option<u64>) -> Result<i64, Error> {
        let (status, body) = self.written(&Write::Put { key, value, expect, ttl_ms }, Options::new());
        client::put(status, &body)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> i64 {
        self.put_if(key, value, Expect::Any, None).expect("written")
    }

    fn delete_if(&self, key: &[u8], expect: Expect) -> Result<bool, Error> {
        let (status, body) = self.written(&Write::Delete { key, expect }, Options::new());
        client::deleted(status, &body)
    }

    fn increment(&self, key: &[u8], delta: i64, options: Options<'_>) -> Result<(i64, i64), Error> {
        let (status, body) = self.written(&Write::Increment { key, delta }, options);
        client::incremented(status, &body)
    }

    /// Value, version and whether it has a time to live.
    fn get(&self, key: &[u8]) -> Option<(Vec<u8>, i64, bool)> {
        let (status, body) = self.ask(self.shards.of(key), &client::get(self.shards, key).expect("valid"));
        let found = client::got(status, &body).unwrap_or_else(|error| panic!("{error}"));
        found.map(|found| (found.value.to_vec(), found.version, found.ttl_ms.is_some()))
    }

    fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.get(key).map(|(value, ..)| value)
    }

    /// Keys of all shards, and whether there are more.
    fn list(&self, prefix: &[u8], after: Option<&[u8]>, limit: u32) -> (Vec<Vec<u8>>, bool) {
        let list = List { prefix, after, limit, values: false };
        let mut merge = Merge::new(self.shards, &list).expect("valid");
        loop {
            let wanted = merge.wanted();
            let calls: Vec<_> = wanted.iter().map(|(shard, list)| (*shard, client::list(self.shards, list))).collect();
            if calls.is_empty() {
                let page = merge.finish();
                return (page.rows.into_iter().map(|row| row.key).collect(), page.has_more);
            }
            for (shard, call) in calls {
                let (status, body) = self.ask(shard, &call.expect("valid"));
                merge.give(shard, &client::listed(status, &body).expect("listed"));
            }
        }
    }
}

fn what_was_put_is_read_with_its_version_also_after_a_restart_and_absent_once_deleted(place: Place) {
    let mut bed = Bed::of_shards(place);
    let versions: Vec<i64> = (0..12_u8).map(|n| store(&bed).put(&[b'k', n], &[n; 3])).collect();
    bed.restart();
    for (n, version) in (0..12_u8).zip(versions) {
        assert_eq!(store(&bed).get(&[b'k', n]), Some((vec![n; 3], version, false)));
    }
    assert_eq!(store(&bed).delete_if(b"k\0", Expect::Any), Ok(true));
    bed.restart();
    assert_eq!((store(&bed).get(b"k\0"), store(&bed).delete_if(b"k\0", Expect::Any)), (None, Ok(false)));
}

fn of_many_creations_at_once_exactly_one_succeeds(place: Place) {
    let bed = Bed::of_shards(place);
    let shards = Shards::new(SHARDS).expect("few");
    let names: Vec<String> = (0..50).map(|n| format!("owner-{n}")).collect();
    let mut clients: Vec<_> = names.iter().map(|_| bed.node.client()).collect();
    let shard = shard_name(shards.of(b"owner"));
    for (n, (name, http)) in names.iter().zip(&mut clients).enumerate() {
        let write = Write::Put { key: b"owner", value: name.as_bytes(), expect: Expect::Absent, ttl_ms: None };
        let call = client::write(shards, &write, Options::new()).expect("valid");
        let path = format!("/test/f{n}/call?class=settings&name={shard}&path=/{}", call.path);
        http.start_with("POST", &path, "", &call.body).expect("sends");
    }
    let answers = clients.iter_mut().map(|http| http.answer_bytes().expect("an answer"));
    let results: Vec<_> = answers.map(|(status, body)| client::put(status, &body)).collect();
    let winners: Vec<_> = results.iter().zip(&names).filter(|(result, _)| result.is_ok()).collect();
    assert_eq!(winners.len(), 1, "{results:?}");
    let lost = |result: &&Result<i64, Error>| matches!(result, Err(Error::Conflict { current: Some(_) }));
    assert_eq!(results.iter().filter(lost).count(), 49);
    assert_eq!(store(&bed).value(b"owner"), Some(winners[0].1.clone().into_bytes()));
}

fn a_write_that_expects_another_version_changes_nothing_and_is_told_the_right_one(place: Place) {
    let bed = Bed::of_shards(place);
    let store = store(&bed);
    let first = store.put(b"k", b"1");
    let second = store.put_if(b"k", b"2", Expect::Version(first), None).expect("it is that");
    let conflict = |current| Err(Error::Conflict { current });
    assert_eq!(store.put_if(b"k", b"3", Expect::Version(first), None), conflict(Some(second)));
    assert_eq!(store.put_if(b"k", b"3", Expect::Absent, None), conflict(Some(second)));
    assert_eq!(store.delete_if(b"k", Expect::Version(first)), Err(Error::Conflict { current: Some(second) }));
    assert_eq!(store.get(b"k"), Some((b"2".to_vec(), second, false)));
    assert_eq!(store.delete_if(b"k", Expect::Version(second)), Ok(true));
    assert_eq!(store.put_if(b"k", b"3", Expect::Version(second), None), conflict(None));
    assert_eq!(store.get(b"k"), None);
}

fn a_version_is_never_given_twice_not_after_a_delete_and_not_after_a_restart(place: Place) {
    let mut bed = Bed::of_shards(place);
    let mut last = 0;
    for _ in 0..3 {
        for _ in 0..2 {
            let version = store(&bed).put(b"k", b"v");
            assert!(version > last, "{version} after {last}");
            last = version;
            assert_eq!(store(&bed).delete_if(b"k", Expect::Version(version)), Ok(true));
        }
        bed.restart();
    }
}

fn a_key_is_absent_as_soon_as_its_time_is_over_also_after_a_restart(place: Place) {
    let mut bed = Bed::of_shards(place);
    for key in [b"a", b"b"] {
        store(&bed).put_if(key, b"v", Expect::Any, Some(60_000)).expect("written");
    }
    assert!(store(&bed).get(b"a").is_some_and(|(_, _, is_mortal)| is_mortal));
    bed.advance(Duration::from_secs(60));
    assert_eq!((store(&bed).get(b"a"), store(&bed).list(b"", None, 10)), (None, (vec![], false)));
    bed.restart();
    assert_eq!(store(&bed).get(b"b"), None);
    store(&bed).put_if(b"a", b"new", Expect::Absent, None).expect("it is absent");
}

fn a_put_clears_a_time_to_live_and_an_increment_keeps_it(place: Place) {
    let bed = Bed::of_shards(place);
    let store = store(&bed);
    for key in [&b"cleared"[..], b"kept", b"checked"] {
        store.put_if(key, b"1", Expect::Any, Some(60_000)).expect("written");
    }
    store.put(b"cleared", b"2");
    assert_eq!(store.increment(b"kept", 1, Options::new()).expect("a number").0, 2);
    let version = store.get(b"checked").expect("it is there").1;
    store.put_if(b"checked", b"2", Expect::Version(version), None).expect("it is that");
    let is_mortal = |key: &[u8]| store.get(key).expect("it is there").2;
    assert_eq!((is_mortal(b"cleared"), is_mortal(b"kept"), is_mortal(b"checked")), (false, true, false));
    bed.advance(Duration::from_secs(60));
    assert_eq!((store.value(b"cleared"), store.value(b"kept")), (Some(b"2".to_vec()), None));
}

fn a_time_to_live_out_of_range_is_refused_and_writes_nothing(place: Place) {
    let bed = Bed::of_shards(place);
    let store = store(&bed);
    let fine = Write::Put { key: b"k", value: b"v", expect: Expect::Any, ttl_ms: Some(u64::MAX - 7) };
    assert!(client::write(store.shards, &fine, Options::new()).is_err(), "a client refuses it");
    let sent = Write::Put { key: b"k", value: b"v", expect: Expect::Any, ttl_ms: Some(60_000) };
    let right = client::write(store.shards, &sent, Options::new()).expect("valid");
    let at = right.body.windows(8).position(|bytes| bytes == 60_000_u64.to_le_bytes()).expect("it is in there");
    for ttl_ms in [0, u64::MAX, (-1_i64).cast_unsigned(), 1 << 62] {
        let mut call = right.clone();
        call.body[at..at + 8].copy_from_slice(&ttl_ms.to_le_bytes());
        let (status, body) = store.ask(store.shards.of(b"k"), &call);
        let refused = client::put(status, &body);
        assert!(matches!(&refused, Err(Error::Refused(words)) if words.contains("time to live")), "{ttl_ms}: {refused:?}");
    }
    assert_eq!(store.get(b"k"), None);
}

fn keys_of_every_kind_are_distinct_and_listed_once_in_byte_order(place: Place) {
    let bed = Bed::of_shards(place);
    let store = store(&bed);
    let kinds: [&[u8]; 12] =
        [b"users/bob", b"users/bob/messages", b".", b"..", b"/lead", b":", b"%2F", b"\0", b"\xff", b"a", b"users/bo", b"\xff\xff"];
    for (n, key) in (0..).zip(kinds) {
        store.put(key, &[n]);
    }
    let mut sorted: Vec<Vec<u8>> = kinds.iter().map(|key| key.to_vec()).collect();
    sorted.sort();
    assert_eq!(store.list(b"", None, 100), (sorted.clone(), false));
    for (n, key) in (0..).zip(kinds) {
        assert_eq!(store.value(key), Some(vec![n]));
    }
    assert_eq!(store.list(b"users/bob", None, 100).0, [&b"users/bob"[..], b"users/bob/messages"]);
    assert_eq!(store.list(b"", Some(&sorted[4]), 3), (sorted[5..8].to_vec(), true));
}

fn an_increment_counts_from_zero_and_with_an_operation_id_applies_once(place: Place) {
    let mut bed = Bed::of_shards(place);
    let once = Options::new().operation(b"op-1");
    let first = store(&bed).increment(b"n", 5, once).expect("a number");
    bed.restart();
    let store = store(&bed);
    // What a caller does whose answer got lost, before and after a restart.
    assert_eq!((first.0, store.increment(b"n", 5, once)), (5, Ok(first)));
    assert_eq!(store.increment(b"n", -7, Options::new()).map(|(sum, _)| sum), Ok(-2));
    assert_eq!(store.increment(b"n", 6, once), Err(Error::OperationReused));
    assert_eq!(store.value(b"n"), Some(b"-2".to_vec()));
    store.put(b"text", b"no number");
    assert_eq!(store.increment(b"text", 1, Options::new()), Err(Error::NotANumber));
    store.put(b"large", i64::MAX.to_string().as_bytes());
    assert_eq!(store.increment(b"large", 1, Options::new()), Err(Error::Overflow));
}

fn an_atomic_batch_of_which_one_check_fails_writes_nothing(place: Place) {
    let bed = Bed::of_shards(place);
    let store = store(&bed);
    let keys: Vec<Vec<u8>> = (0..=255).map(|n| vec![n]).filter(|key| store.shards.of(key) == 0).take(3).collect();
    let taken = store.put(&keys[1], b"taken");
    let create = |key| Write::Put { key, value: b"new", expect: Expect::Absent, ttl_ms: None };
    let writes: Vec<_> = keys.iter().map(|key| create(key)).collect();
    let many = |is_atomic| {
        let call = client::write_many(store.shards, &writes, is_atomic, Options::new()).expect("valid");
        let (status, body) = store.ask(0, &call);
        client::written_many(status, &body)
    };
    let conflict = Outcome::Conflict { current: Some(taken) };
    assert_eq!(many(true), Err(Error::NotApplied(vec![Outcome::NotApplied, conflict, Outcome::NotApplied])));
    assert_eq!((store.get(&keys[0]), store.get(&keys[2])), (None, None));
    let each = many(false).expect("each by itself");
    assert!(each[0].is_done() && each[1] == conflict && each[2].is_done(), "{each:?}");
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let (status, body) = store.ask(0, &client::get_many(store.shards, &asked).expect("valid"));
    let found = client::got_many(status, &body, 3).expect("found");
    let values: Vec<_> = found.iter().map(|found| found.map(|found| found.value)).collect();
    assert_eq!(values, [Some(&b"new"[..]), Some(b"taken"), Some(b"new")]);
}

fn what_breaks_a_rule_is_refused_with_the_rule(place: Place) {
    let bed = Bed::of_shards(place);
    let store = store(&bed);
    let call = |path, body: &[u8]| Call { path, body: body.to_vec() };
    let other = Shards::new(SHARDS + 1).expect("few");
    let get = client::get(store.shards, b"k").expect("valid");
    let cases = [
        (call("wasmkeep-kv/v1/get", b"nonsense"), 400, "malformed"),
        (call("wasmkeep-kv/v1/get", &[&get.body[..], b"\0"].concat()), 400, "malformed"),
        (call("wasmkeep-kv/v2/get", &get.body), 400, "wasmkeep-kv/v1/"),
        (call("wasmkeep-kv/v1/nothing", &get.body), 404, "operation"),
    ];
    for (call, status, words) in cases {
        let (answered, body) = store.ask(0, &call);
        let body = String::from_utf8_lossy(&body);
        assert!(answered == status && body.contains(words), "{} {answered} {body}", call.path);
    }
    // Who counts on another number of shards looks for keys where they are not.
    store.put(b"k", b"v");
    let (status, body) = store.ask(store.shards.of(b"k"), &client::get(other, b"k").expect("valid"));
    assert_eq!(client::got(status, &body), Err(Error::Moved { shards: SHARDS }));
}

fn the_largest_key_and_value_are_taken_and_given_back(place: Place) {
    let bed = Bed::of_large_shards(place);
    let store = store(&bed);
    let (key, value) = (vec![b'k'; 2 * 1024], vec![b'v'; 8 * 1024 * 1024]);
    store.put(&key, &value);
    assert!(store.value(&key) == Some(value));
    assert!(client::write(store.shards, &put_of(&[b'k'; 2 * 1024 + 1], b""), Options::new()).is_err());
    assert!(client::write(store.shards, &put_of(b"", b""), Options::new()).is_err());
}

fn only_actors_may_use_a_shard(place: Place) {
    let bed = Bed::of_shards(place);
    store(&bed).put(b"k", b"v");
    let call = client::get(Shards::new(SHARDS).expect("few"), b"k").expect("valid");
    let mut stranger = bed.node.client();
    let path = format!("/settings/{}/{}", shard_name(0), call.path);
    for headers in ["", "x-wasmkeep-caller: test/forwarder\r\n"] {
        stranger.start_with("POST", &path, headers, &call.body).expect("sends");
        let (status, body) = stranger.answer().expect("an answer");
        assert_eq!((status, body.contains("forbidden")), (403, true), "{body}");
    }
}

fn what_was_acknowledged_survives_a_power_cut_and_its_versions_are_not_given_again(place: Place) {
    let mut bed = Bed::of_shards(place);
    let durable = store(&bed).put(b"durable", b"1");
    store(&bed).increment(b"n", 1, Options::new().operation(b"op")).expect("a number");
    let (status, body) = store(&bed).written(&put_of(b"local", b"1"), Options::new().local());
    let local = client::put(status, &body).expect("written");
    bed.power_cut();
    let store = store(&bed);
    assert_eq!(store.get(b"durable"), Some((b"1".to_vec(), durable, false)));
    assert_eq!(store.increment(b"n", 1, Options::new().operation(b"op")).map(|(sum, _)| sum), Ok(1));
    assert!(store.get(b"local").is_none_or(|found| found == (b"1".to_vec(), local, false)));
    for (key, version) in [(&b"durable"[..], durable), (b"local", local)] {
        assert!(store.put(key, b"2") > version);
    }
}

promises! {
    what_was_put_is_read_with_its_version_also_after_a_restart_and_absent_once_deleted,
    of_many_creations_at_once_exactly_one_succeeds,
    a_write_that_expects_another_version_changes_nothing_and_is_told_the_right_one,
    a_version_is_never_given_twice_not_after_a_delete_and_not_after_a_restart,
    a_key_is_absent_as_soon_as_its_time_is_over_also_after_a_restart,
    a_put_clears_a_time_to_live_and_an_increment_keeps_it,
    a_time_to_live_out_of_range_is_refused_and_writes_nothing,
    keys_of_every_kind_are_distinct_and_listed_once_in_byte_order,
    an_increment_counts_from_zero_and_with_an_operation_id_applies_once,
    an_atomic_batch_of_which_one_check_fails_writes_nothing,
    what_breaks_a_rule_is_refused_with_the_rule,
    the_largest_key_and_value_are_taken_and_given_back,
    only_actors_may_use_a_shard,
    what_was_acknowledged_survives_a_power_cut_and_its_versions_are_not_given_again,
}
