//! What an opening finds and leaves.

use super::*;

#[test]
fn an_opening_writes_nothing_if_there_is_nothing_new() {
    let mut host = Host::new();
    host.put_with(b"a", b"1", Expect::Any, Some(1_000_000)).expect("is put");
    host.now += 100_000;
    let before = host.memory.connection.total_changes();
    host.wake();
    host.get(b"a");
    assert_eq!(host.memory.connection.total_changes(), before);
}

#[test]
fn a_shard_wakes_with_what_it_knew() {
    let mut host = Host::new();
    host.put_with(b"a", b"1", Expect::Any, Some(1_000)).expect("is put");
    host.write(&put(b"b", b"1"), Options::new().operation(b"op"));
    let before = host.machine.state();
    host.wake();
    let after = host.machine.state();
    assert_eq!((after.rows_due, after.operations_due, after.layout), (before.rows_due, before.operations_due, before.layout));
    assert!(after.seq >= before.seq && after.seq == after.reserved);
}

#[test]
fn a_step_of_the_clock_is_written_once() {
    let mut host = Host::new();
    host.put(b"a", b"1");
    host.now -= 5_000;
    let changes = [(); 3].map(|()| {
        let before = host.memory.connection.total_changes();
        host.put(b"a", b"1");
        host.memory.connection.total_changes() - before
    });
    assert_eq!(changes, [3, 1, 1]);
}

#[test]
fn the_time_is_written_every_ten_seconds_of_writing() {
    let mut host = Host::new();
    let mut changes = 0;
    for _ in 0..100 {
        let before = host.memory.connection.total_changes();
        host.put(b"a", b"1");
        changes += host.memory.connection.total_changes() - before;
        host.now += 1_000;
    }
    let (counter, layout, times) = (1, 3, 10);
    assert_eq!(changes, 100 + counter + layout + times);
}
