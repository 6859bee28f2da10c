//! The read cache of a client.

use proptest::prelude::*;

use super::*;
use crate::kv::cache::{Entry, ReadCache};

fn row(value: &[u8], version: i64) -> Found<'_> {
    Found { value, version, ttl_ms: None }
}

fn known(value: &[u8], version: i64) -> Option<Option<Entry>> {
    Some(Some(Entry::from(&row(value, version))))
}

fn cache() -> ReadCache {
    ReadCache::new(1_000, 100, 100_000)
}

#[test]
fn what_was_read_is_known_until_it_is_as_old_as_allowed() {
    let mut cache = cache();
    assert_eq!(cache.get(b"a", 0), None);
    let ticket = cache.begin();
    cache.read(ticket, b"a", Some(&row(b"1", 7)), 5_000);
    assert_eq!((cache.get(b"a", 5_000), cache.get(b"a", 5_999)), (known(b"1", 7), known(b"1", 7)));
    assert_eq!((cache.get(b"a", 6_000), cache.get(b"a", 4_999), cache.get(b"b", 5_000)), (None, None, None));
}

#[test]
fn that_a_key_is_absent_is_known_too() {
    let mut cache = cache();
    let ticket = cache.begin();
    cache.read(ticket, b"a", None, 0);
    assert_eq!((cache.get(b"a", 999), cache.get(b"a", 1_000)), (Some(None), None));
}

#[test]
fn a_row_is_not_known_past_its_time_to_live() {
    let mut cache = cache();
    let ticket = cache.begin();
    cache.read(ticket, b"a", Some(&Found { ttl_ms: Some(100), ..row(b"1", 7) }), 0);
    assert_eq!(cache.get(b"a", 60).map(|entry| entry.map(|entry| entry.ttl_ms)), Some(Some(Some(40))));
    assert_eq!((cache.get(b"a", 99).is_some(), cache.get(b"a", 100)), (true, None));
}

#[test]
fn own_writes_are_known_at_once() {
    let mut cache = cache();
    let ticket = cache.begin();
    cache.read(ticket, b"a", Some(&row(b"1", 7)), 0);
    let ticket = cache.begin();
    cache.wrote(ticket, b"a", Some(&row(b"2", 8)), 10);
    assert_eq!(cache.get(b"a", 10), known(b"2", 8));
    let ticket = cache.begin();
    cache.wrote(ticket, b"a", None, 20);
    assert_eq!(cache.get(b"a", 20), Some(None));
    cache.forget(b"a");
    assert_eq!(cache.get(b"a", 20), None);
}

#[test]
fn a_fresh_read_replaces_what_is_known() {
    let mut cache = cache();
    for (value, version) in [(b"1", 7), (b"2", 8)] {
        let ticket = cache.begin();
        cache.read(ticket, b"a", Some(&row(value, version)), 0);
    }
    assert_eq!(cache.get(b"a", 0), known(b"2", 8));
}

#[test]
fn an_answer_that_was_on_its_way_when_the_client_wrote_is_not_kept() {
    let mut cache = cache();
    let (late, later) = (cache.begin(), cache.begin());
    let ticket = cache.begin();
    cache.wrote(ticket, b"a", None, 0);
    cache.read(late, b"a", Some(&row(b"1", 7)), 0);
    assert_eq!(cache.get(b"a", 0), Some(None));
    let ticket = cache.begin();
    cache.read(ticket, b"a", None, 0);
    cache.read(later, b"a", Some(&row(b"1", 7)), 0);
    assert_eq!(cache.get(b"a", 0), Some(None), "also after another read");
    let late = cache.begin();
    cache.forget(b"a");
    cache.read(late, b"a", Some(&row(b"1", 7)), 0);
    assert_eq!(cache.get(b"a", 0), None);
}

#[test]
fn of_two_reads_that_overlap_the_newer_version_is_kept() {
    let mut cache = cache();
    let (first, second) = (cache.begin(), cache.begin());
    cache.read(second, b"a", Some(&row(b"2", 8)), 0);
    cache.read(first, b"a", Some(&row(b"1", 7)), 0);
    assert_eq!(cache.get(b"a", 0), known(b"2", 8));
}

#[test]
fn two_writes_that_overlap_leave_nothing_known() {
    let mut cache = cache();
    let (first, second) = (cache.begin(), cache.begin());
    cache.wrote(second, b"a", Some(&row(b"2", 8)), 0);
    cache.wrote(first, b"a", None, 0);
    assert_eq!(cache.get(b"a", 0), None);
    let ticket = cache.begin();
    cache.wrote(ticket, b"a", Some(&row(b"3", 9)), 0);
    assert_eq!(cache.get(b"a", 0), known(b"3", 9));
}

#[test]
fn an_evicted_write_still_keeps_older_answers_out() {
    let mut cache = ReadCache::new(1_000, 1, 100_000);
    let late = cache.begin();
    let ticket = cache.begin();
    cache.wrote(ticket, b"a", Some(&row(b"2", 8)), 0);
    let ticket = cache.begin();
    cache.read(ticket, b"b", None, 0);
    cache.read(late, b"a", Some(&row(b"1", 7)), 0);
    assert_eq!((cache.get(b"a", 0), cache.get(b"b", 0)), (None, Some(None)));
    let ticket = cache.begin();
    cache.read(ticket, b"a", Some(&row(b"2", 8)), 0);
    assert_eq!(cache.get(b"a", 0), known(b"2", 8));
}

#[test]
fn an_age_of_zero_and_a_value_that_is_too_large_cache_nothing() {
    let mut none = ReadCache::new(0, 100, 100_000);
    let ticket = none.begin();
    none.read(ticket, b"a", Some(&row(b"1", 7)), 0);
    assert_eq!((none.get(b"a", 0), none.entries()), (None, 0));
    let mut small = ReadCache::new(1_000, 100, 1_000);
    let ticket = small.begin();
    small.read(ticket, b"a", Some(&row(b"1", 7)), 0);
    let ticket = small.begin();
    small.wrote(ticket, b"a", Some(&row(&[0; 2_000], 8)), 0);
    assert_eq!(small.get(b"a", 0), None);
}

proptest! {
    #[test]
    fn a_cache_keeps_to_its_bounds(steps in prop::collection::vec((0..20_u8, 0..400_usize, 0..4_u8), 0..200)) {
        let mut cache = ReadCache::new(1_000, 8, 2_000);
        let mut tickets = vec![cache.begin()];
        for (key, length, kind) in steps {
            let value = vec![0; length];
            let row = row(&value, 1);
            let ticket = *tickets.last().expect("one at least");
            match kind {
                0 => cache.read(ticket, &[key], Some(&row), 0),
                1 => cache.wrote(ticket, &[key], Some(&row), 0),
                2 => cache.forget(&[key]),
                _ => tickets.push(cache.begin()),
            }
            prop_assert!(cache.entries() <= 8 && cache.bytes() <= 2_000);
        }
        if cache.entries() == 0 {
            prop_assert_eq!(cache.bytes(), 0);
        }
    }
}
