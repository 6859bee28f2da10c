//! Times to live: lazily on read, by alarm, under clocks that step.

use super::*;
use crate::limits::KV_SWEEP_MAX;

#[test]
fn a_row_past_its_time_is_absent_for_everything() {
    let mut host = Host::new();
    for key in [b"a", b"b", b"c", b"d", b"e"] {
        host.put_with(key, b"7", Expect::Any, Some(100)).expect("is put");
    }
    host.now += 99;
    assert_eq!(host.get(b"a").map(|(.., ttl)| ttl), Some(Some(1)));
    assert_eq!((host.count(), host.keys(b"", None, 10).0.len()), (5, 5));
    let version = host.get(b"d").expect("is there").1;
    host.now += 1;
    assert_eq!((host.get(b"a"), host.count(), host.keys(b"", None, 10), host.rows()), (None, 0, (vec![], false), 5));
    assert_eq!(host.delete(b"a", Expect::Any), Ok(false));
    assert_eq!(host.delete(b"a", Expect::Absent), Ok(false));
    assert!(host.put_with(b"b", b"1", Expect::Absent, None).is_ok());
    assert_eq!(host.increment(b"c", 1).map(|(sum, _)| sum), Ok(1));
    assert_eq!(host.put_with(b"d", b"1", Expect::Version(version), None), Err(Error::Conflict { current: None }));
    assert_eq!(host.delete(b"d", Expect::Version(version)), Err(Error::Conflict { current: None }));
    let creation = Write::Put { key: b"d", value: b"1", expect: Expect::Absent, ttl_ms: None };
    assert!(host.write_many(&[creation, Write::Increment { key: b"e", delta: 1 }], true).is_ok());
    assert_eq!((host.value(b"d"), host.value(b"e")), (Some(b"1".to_vec()), Some(b"1".to_vec())));
    host.now += 1_000_000;
    assert_eq!(host.count(), 4);
}

#[test]
fn a_put_without_a_time_to_live_clears_it_with_any_expectation() {
    let mut host = Host::new();
    let first = host.put_with(b"a", b"1", Expect::Any, Some(100)).expect("is put");
    let second = host.put_with(b"a", b"2", Expect::Version(first), None).expect("is put");
    assert_eq!(host.get(b"a"), Some((b"2".to_vec(), second, None)));
    host.put_with(b"a", b"3", Expect::Version(second), Some(50)).expect("is put");
    host.put(b"a", b"4");
    host.now += 1_000;
    assert_eq!(host.value(b"a"), Some(b"4".to_vec()));
}

#[test]
fn an_increment_keeps_the_time_to_live() {
    let mut host = Host::new();
    host.put_with(b"n", b"1", Expect::Any, Some(100)).expect("is put");
    host.now += 60;
    assert_eq!(host.increment(b"n", 1).map(|(sum, _)| sum), Ok(2));
    assert_eq!(host.get(b"n").map(|(.., ttl)| ttl), Some(Some(40)));
    host.now += 40;
    assert_eq!(host.get(b"n"), None);
}

#[test]
fn the_alarm_is_set_for_the_next_row_that_ends_and_a_quiet_shard_has_none() {
    let mut host = Host::new();
    host.put(b"for ever", b"1");
    assert_eq!(host.machine.alarm(), None);
    host.put_with(b"late", b"1", Expect::Any, Some(500)).expect("is put");
    host.put_with(b"soon", b"1", Expect::Any, Some(100)).expect("is put");
    assert_eq!(host.machine.alarm(), Some(START + 100));
    host.wake();
    assert_eq!(host.machine.alarm(), Some(START + 100));
    host.now += 100;
    let swept = host.fire();
    assert_eq!((swept.rows, swept.effect, host.rows(), host.machine.alarm()), (1, Effect::Local, 2, Some(START + 500)));
    host.now += 400;
    assert_eq!((host.fire().rows, host.machine.alarm(), host.value(b"for ever")), (1, None, Some(b"1".to_vec())));
}

#[test]
fn an_alarm_that_comes_early_or_for_a_row_that_is_gone_deletes_nothing() {
    let mut host = Host::new();
    host.put_with(b"a", b"1", Expect::Any, Some(100)).expect("is put");
    let early = host.fire();
    assert_eq!((early.rows, early.effect, host.machine.alarm()), (0, Effect::Read, Some(START + 100)));
    host.put(b"a", b"2");
    host.now += 100;
    assert_eq!((host.fire().rows, host.machine.alarm(), host.value(b"a")), (0, None, Some(b"2".to_vec())));
}

#[test]
fn rows_are_swept_five_hundred_at_a_time() {
    let mut host = Host::new();
    let keys: Vec<_> = (0..1_203_u32).map(u32::to_be_bytes).collect();
    for key in &keys {
        host.put_with(key, b"1", Expect::Any, Some(100)).expect("is put");
    }
    host.put(b"stays", b"1");
    host.now += 150;
    for left in [703, 203, 0] {
        assert!(host.machine.alarm().is_some_and(|at| at <= host.now));
        assert!(host.fire().rows <= KV_SWEEP_MAX as u64);
        assert_eq!(host.rows(), left + 1);
    }
    assert_eq!(host.machine.alarm(), None);
}

#[test]
fn a_sweep_of_large_values_ends_early_but_never_without_one() {
    use crate::kv::sweep::within_bytes;
    let large = 8 << 20;
    assert_eq!((within_bytes([large; 20]), within_bytes([100 << 20, 1]), within_bytes([1; 7]), within_bytes([])), (8, 1, 7, 0));
}

#[test]
fn a_clock_that_steps_back_does_not_revive_a_row() {
    let mut host = Host::new();
    host.put_with(b"a", b"1", Expect::Any, Some(100)).expect("is put");
    host.now += 100;
    assert_eq!(host.get(b"a"), None);
    host.now -= 90;
    assert_eq!(host.get(b"a"), None);
    host.now -= 500_000;
    assert_eq!((host.get(b"a"), host.count()), (None, 0));
}

#[test]
fn a_clock_that_steps_back_does_not_freeze_times_to_live() {
    let mut host = Host::new();
    host.put_with(b"a", b"1", Expect::Any, Some(100)).expect("is put");
    host.now -= 900_000;
    assert_eq!(host.get(b"a").map(|(.., ttl)| ttl), Some(Some(100)));
    assert_eq!(host.machine.alarm(), Some(host.now + 100));
    host.put(b"b", b"1");
    host.now += 60;
    host.crash();
    assert_eq!(host.get(b"a").map(|(.., ttl)| ttl), Some(Some(40)));
    host.now += 40;
    assert_eq!((host.get(b"a"), host.machine.alarm()), (None, Some(host.now)));
    assert_eq!((host.fire().rows, host.machine.alarm()), (1, None));
}

#[test]
fn a_clock_that_stepped_back_while_the_shard_slept_revives_only_what_ended_just_before() {
    let mut host = Host::new();
    host.put_with(b"a", b"1", Expect::Any, Some(100)).expect("is put");
    host.put_with(b"b", b"1", Expect::Any, Some(20_000)).expect("is put");
    host.now += 10_100;
    host.put(b"c", b"1");
    host.now -= 500_000;
    host.wake();
    assert_eq!((host.value(b"a"), host.get(b"b").map(|(.., ttl)| ttl)), (None, Some(Some(9_900))));
    host.now += 9_900;
    host.wake();
    assert_eq!(host.value(b"b"), None);
}

#[test]
fn a_clock_that_once_was_far_ahead_does_not_change_how_long_a_row_lives() {
    let mut host = Host::new();
    host.now += 1_000_000_000_000;
    host.put_with(b"a", b"1", Expect::Any, Some(100)).expect("is put");
    host.delete(b"a", Expect::Any).expect("is deleted");
    host.now = START;
    host.wake();
    host.crash();
    host.put_with(b"b", b"1", Expect::Any, Some(100)).expect("is put");
    host.wake();
    assert_eq!((host.get(b"b").map(|(.., ttl)| ttl), host.machine.alarm()), (Some(Some(100)), Some(START + 100)));
}

#[test]
fn a_clock_at_the_end_of_time_overflows_nothing() {
    let mut host = Host::new();
    host.now = u64::MAX;
    host.put_with(b"a", b"1", Expect::Any, Some(crate::limits::KV_TTL_MS_MAX)).expect("is put");
    assert_eq!(host.get(b"a").map(|(.., ttl)| ttl), Some(Some(crate::limits::KV_TTL_MS_MAX)));
    host.now = 0;
    host.wake();
    assert_eq!((host.value(b"a"), host.fire().rows), (Some(b"1".to_vec()), 0));
}
