//! Listings of one shard and of many.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::kv::merge::Merge;
use crate::kv::protocol::Page;
use crate::limits::{KV_LIST_MAX, KV_PAGE_BYTES_MAX};

fn all(prefix: &[u8]) -> List<'_> {
    List { prefix, after: None, limit: 100, values: false }
}

#[test]
fn keys_of_every_kind_are_distinct_and_listed_once_in_byte_order() {
    let mut host = Host::new();
    let mut keys: Vec<&[u8]> = vec![
        b"users/bob",
        b"users/bob/messages",
        b".",
        b"..",
        b"/",
        b"/users/bob",
        b":",
        b"a:b",
        b"%2F",
        b"users%2Fbob",
        b"\0",
        b"a\0",
        b"a\0b",
        b"a",
        b"\xff",
        b"\xff\xff",
        b"\xff\0",
        b"A",
        b" ",
        b"a ",
        "\u{e9}".as_bytes(),
        "e\u{301}".as_bytes(),
    ];
    for (key, value) in keys.iter().zip(0_u8..) {
        host.put(key, &[value]);
    }
    for (key, value) in keys.iter().zip(0_u8..) {
        assert_eq!(host.value(key), Some(vec![value]), "{key:?}");
    }
    keys.sort_unstable();
    assert_eq!(host.keys(b"", None, 100), (keys.iter().map(|key| key.to_vec()).collect(), false));
}

#[test]
fn a_prefix_selects_by_bytes() {
    let mut host = Host::new();
    for key in [&b"a"[..], b"ab", b"ab\xff", b"ab\xff\xff", b"ac", b"\xff", b"\xff\xff", b"\xff\xff\x01", b"b"] {
        host.put(key, b"");
    }
    assert_eq!(host.keys(b"ab", None, 9).0, [&b"ab"[..], b"ab\xff", b"ab\xff\xff"]);
    assert_eq!(host.keys(b"ab\xff", None, 9).0, [&b"ab\xff"[..], b"ab\xff\xff"]);
    assert_eq!(host.keys(b"\xff", None, 9).0, [&b"\xff"[..], b"\xff\xff", b"\xff\xff\x01"]);
    assert_eq!(host.keys(b"\xff\xff", None, 9).0, [&b"\xff\xff"[..], b"\xff\xff\x01"]);
    assert_eq!(host.keys(b"zz", None, 9).0.len(), 0);
    assert_eq!(host.keys(&[0xff; 2_048], None, 9).0.len(), 0);
}

#[test]
fn a_page_goes_on_behind_a_key_whether_that_exists_or_not() {
    let mut host = Host::new();
    for key in [&b"a"[..], b"b", b"b\0", b"c"] {
        host.put(key, b"");
    }
    assert_eq!(host.keys(b"", Some(b"b"), 9).0, [&b"b\0"[..], b"c"]);
    assert_eq!(host.keys(b"", Some(b"aa"), 9).0, [&b"b"[..], b"b\0", b"c"]);
    assert_eq!(host.keys(b"b", Some(b"a"), 9).0, [&b"b"[..], b"b\0"]);
    assert_eq!(host.keys(b"b", Some(b"c"), 9).0.len(), 0);
    host.put(&[0xff; 2_048], b"");
    assert_eq!(host.keys(b"", Some(b"c"), 9).0, [vec![0xff; 2_048]]);
    assert_eq!(host.keys(b"", Some(&[0xff; 2_048]), 9), (vec![], false));
}

#[test]
fn a_page_says_exactly_whether_there_is_more() {
    let mut host = Host::new();
    for key in [b"a", b"b", b"c"] {
        host.put(key, b"");
    }
    host.put_with(b"d", b"", Expect::Any, Some(1)).expect("is put");
    host.now += 1;
    assert_eq!((host.keys(b"", None, 2).1, host.keys(b"", None, 3).1, host.keys(b"", Some(b"a"), 2).1), (true, false, false));
    assert!(client::list(shards(), &List { limit: 0, ..all(b"") }).is_err());
    assert!(client::list(shards(), &all(&[0; 2_049])).is_err());
}

#[test]
fn a_listing_gives_versions_times_to_live_and_on_request_values() {
    let mut host = Host::new();
    let version = host.put_with(b"a", b"x", Expect::Any, Some(500)).expect("is put");
    let row = OwnedListed { key: b"a".to_vec(), version, ttl_ms: Some(500), value: None };
    assert_eq!(host.page(&all(b"")).0, std::slice::from_ref(&row));
    assert_eq!(host.page(&List { values: true, ..all(b"") }).0, [OwnedListed { value: Some(b"x".to_vec()), ..row }]);
}

#[test]
fn a_page_is_bounded_in_rows_and_bytes_and_has_one_row_at_least() {
    let mut host = Host::new();
    let keys: Vec<_> = (0..1_100_u32).map(u32::to_be_bytes).collect();
    for key in &keys {
        host.put(key, b"");
    }
    let (rows, has_more) = host.keys(b"", None, u32::MAX);
    assert_eq!((rows.len(), has_more), (KV_LIST_MAX as usize, true));
    for key in [b"x", b"y", b"z"] {
        host.put(key, &vec![1; KV_PAGE_BYTES_MAX / 2]);
    }
    let list = List { prefix: b"", after: Some(b"w"), limit: 100, values: true };
    let (rows, has_more) = host.page(&list);
    assert_eq!((rows.len(), has_more), (1, true));
    host.put(b"x", &vec![1; 2 * KV_PAGE_BYTES_MAX]);
    let (rows, has_more) = host.page(&list);
    assert_eq!((rows.len(), has_more), (1, true));
    assert_eq!(host.page(&List { values: false, ..list }).0.len(), 3);
}

/// Lists a class of shards in pages of `limit`, as an application does.
fn list_all(hosts: &mut [Host], list: &List<'_>) -> (Vec<Vec<u8>>, u32) {
    let shards = Shards::new(u32::try_from(hosts.len()).expect("few")).expect("is valid");
    let (mut keys, mut calls) = (Vec::new(), 0);
    let mut after = list.after.map(<[u8]>::to_vec);
    loop {
        let mut merge = Merge::new(shards, &List { after: after.as_deref(), ..*list }).expect("is valid");
        loop {
            let wanted: Vec<_> =
                merge.wanted().iter().map(|(shard, list)| (*shard, client::list(shards, list).expect("is valid"))).collect();
            if wanted.is_empty() {
                break;
            }
            for (shard, call) in wanted {
                calls += 1;
                let reply = hosts[shard as usize].call(&call);
                merge.give(shard, &client::listed(reply.status, &reply.body).expect("a page"));
            }
        }
        let page = merge.finish();
        assert!(page.rows.len() <= list.limit as usize);
        keys.extend(page.rows.iter().map(|row| row.key.clone()));
        after = keys.last().cloned().or(after);
        if !page.has_more {
            return (keys, calls);
        }
    }
}

fn spread(hosts: &mut [Host], keys: &BTreeSet<Vec<u8>>, value: &[u8]) {
    let shards = Shards::new(u32::try_from(hosts.len()).expect("few")).expect("is valid");
    for key in keys {
        let write = Write::Put { key, value, expect: Expect::Any, ttl_ms: None };
        let call = client::write(shards, &write, Options::new().local()).expect("is valid");
        assert_eq!(hosts[shards.of(key) as usize].call(&call).status, 200);
    }
}

#[test]
fn a_listing_of_one_page_asks_each_shard_once() {
    let mut hosts: Vec<_> = (0..4).map(|_| Host::new()).collect();
    let keys: BTreeSet<_> = (0..100_u8).map(|byte| vec![byte]).collect();
    spread(&mut hosts, &keys, b"");
    assert_eq!(list_all(&mut hosts, &List { limit: 1_000, ..all(b"") }), (keys.into_iter().collect(), 4));
}

#[test]
fn a_merge_does_not_pass_over_keys_behind_a_page_that_was_full() {
    let mut hosts: Vec<_> = (0..2).map(|_| Host::new()).collect();
    let keys: BTreeSet<_> = (0..12_u8).map(|byte| vec![b'a', byte]).collect();
    spread(&mut hosts, &keys, &vec![1; KV_PAGE_BYTES_MAX / 3]);
    let (listed, calls) = list_all(&mut hosts, &List { limit: 100, values: true, ..all(b"") });
    assert_eq!(listed, keys.into_iter().collect::<Vec<_>>());
    assert!(calls > 4, "pages were full");
}

#[test]
fn a_key_in_two_shards_is_listed_once_as_its_larger_version_has_it() {
    let mut merge = Merge::new(Shards::new(2).expect("is valid"), &all(b"")).expect("is valid");
    let row = |key, version| crate::kv::protocol::Listed { key, version, ttl_ms: None, value: None };
    merge.give(0, &Page { rows: vec![row(b"a", 1), row(b"b", 9)], has_more: false });
    merge.give(1, &Page { rows: vec![row(b"a", 5), row(b"c", 2)], has_more: false });
    let page = merge.finish();
    let rows: Vec<_> = page.rows.iter().map(|row| (row.key.as_slice(), row.version)).collect();
    assert_eq!((rows, page.has_more), (vec![(&b"a"[..], 5), (b"b", 9), (b"c", 2)], false));
}

#[test]
fn a_shard_that_answers_with_nothing_but_more_does_not_hold_up_a_listing_for_ever() {
    let mut merge = Merge::new(Shards::new(1).expect("is valid"), &all(b"")).expect("is valid");
    merge.give(0, &Page { rows: vec![], has_more: true });
    merge.give(7, &Page { rows: vec![], has_more: true });
    assert!(merge.wanted().is_empty() && merge.finish().rows.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_listing_of_many_shards_is_the_sorted_set_of_their_keys(
        keys in prop::collection::btree_set(prop::collection::vec(prop_oneof![Just(0_u8), Just(0xff), Just(b'a')], 1..6), 0..60),
        prefix in prop::collection::vec(prop_oneof![Just(0_u8), Just(0xff), Just(b'a')], 0..3),
        after in prop::option::of(prop::collection::vec(prop_oneof![Just(0_u8), Just(0xff), Just(b'a')], 1..4)),
        limit in 1..20_u32,
        count in 1..6_usize,
    ) {
        let mut hosts: Vec<_> = (0..count).map(|_| Host::new()).collect();
        spread(&mut hosts, &keys, b"");
        let is_listed = |key: &Vec<u8>| key.starts_with(&prefix) && after.as_ref().is_none_or(|after| key > after);
        let expected: Vec<_> = keys.iter().filter(|key| is_listed(key)).cloned().collect();
        let list = List { prefix: &prefix, after: after.as_deref(), limit, values: false };
        prop_assert_eq!(list_all(&mut hosts, &list).0, expected);
    }
}
