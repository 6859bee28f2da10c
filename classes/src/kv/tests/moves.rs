//! Layouts, export, import, prune: moving rows between shards.

use super::*;
use crate::kv::protocol::{Imported, Moving};
use crate::kv::{Layout, Phase};
use crate::limits::{KV_PAGE_BYTES_MAX, KV_SWEEP_BYTES_MAX};

fn of(count: u32) -> Shards {
    Shards::new(count).expect("is valid")
}

fn set(host: &mut Host, phase: Phase, shards: u32) {
    let reply = host.operate(&client::set_layout(phase, of(shards)).expect("is valid"));
    assert_eq!((client::has_set_layout(reply.status, &reply.body), reply.effect), (Ok(()), Effect::Durable));
}

fn layout(host: &mut Host) -> Layout {
    let reply = host.operate(&client::layout());
    client::is_laid_out(reply.status, &reply.body).expect("a layout")
}

/// key, value, version, end
type Exported = Vec<(Vec<u8>, Vec<u8>, i64, Option<u64>)>;

fn export(host: &mut Host, after: Option<&[u8]>) -> (Exported, bool) {
    let reply = host.operate(&client::export(after).expect("is valid"));
    let page = client::exported(reply.status, &reply.body).expect("a page");
    let own = |row: &Moving<'_>| (row.key.to_vec(), row.value.to_vec(), row.version, row.expires_at_ms);
    (page.rows.iter().map(own).collect(), page.has_more)
}

fn import(host: &mut Host, rows: &Exported, only_if_absent: bool) -> Imported {
    let rows: Vec<_> = rows
        .iter()
        .map(|(key, value, version, expires_at_ms)| Moving { key, value, version: *version, expires_at_ms: *expires_at_ms })
        .collect();
    let reply = host.operate(&client::import(&rows, only_if_absent).expect("is valid"));
    assert_eq!(reply.effect, Effect::Durable);
    client::imported(reply.status, &reply.body).expect("imported")
}

#[test]
fn what_is_imported_has_its_value_and_end_and_a_version_above_all_it_had() {
    let (mut from, mut to) = (Host::new(), Host::new());
    for _ in 0..30 {
        from.put(b"a", b"1");
    }
    from.put_with(b"b", b"2", Expect::Any, Some(5_000)).expect("is put");
    from.put_with(b"gone", b"3", Expect::Any, Some(1)).expect("is put");
    from.now += 10;
    to.now += 110;
    let (rows, has_more) = export(&mut from, None);
    assert_eq!((rows.len(), has_more, rows[1].3), (2, false, Some(START + 5_000)));
    assert_eq!(import(&mut to, &rows, true), Imported { written: 2, skipped: 0 });
    let (value, version, ttl) = to.get(b"a").expect("is there");
    assert_eq!((value, version > 31, ttl), (b"1".to_vec(), true, None));
    assert_eq!(to.get(b"b").map(|(value, _, ttl)| (value, ttl)), Some((b"2".to_vec(), Some(4_890))));
    assert_eq!(to.machine.alarm(), Some(START + 5_000));
    assert_eq!(to.put_with(b"a", b"2", Expect::Version(30), None), Err(Error::Conflict { current: Some(version) }));
    to.crash();
    assert!(to.put(b"new", b"") > version);
}

#[test]
fn a_copy_that_is_resumed_does_not_overwrite_what_was_written_since() {
    let (mut from, mut to) = (Host::new(), Host::new());
    from.put(b"a", b"old");
    from.put(b"b", b"old");
    let (rows, _) = export(&mut from, None);
    to.put(b"a", b"newer");
    assert_eq!(import(&mut to, &rows, true), Imported { written: 1, skipped: 1 });
    assert_eq!((to.value(b"a"), to.value(b"b")), (Some(b"newer".to_vec()), Some(b"old".to_vec())));
    assert_eq!(import(&mut to, &rows, true), Imported { written: 0, skipped: 2 });
    assert_eq!(import(&mut to, &rows, false), Imported { written: 2, skipped: 0 });
    assert_eq!(to.value(b"a"), Some(b"old".to_vec()));
}

#[test]
fn a_row_whose_time_is_over_on_its_way_is_left_out_and_ends_are_told_by_the_hosts_clock() {
    let (mut from, mut to) = (Host::new(), Host::new());
    from.put_with(b"a", b"1", Expect::Any, Some(1_000)).expect("is put");
    from.now -= 50_000;
    to.now = from.now;
    let (rows, _) = export(&mut from, None);
    assert_eq!(rows[0].3, Some(from.now + 1_000));
    import(&mut to, &rows, true);
    assert_eq!(to.get(b"a").map(|(.., ttl)| ttl), Some(Some(1_000)));
    to.now += 1_000;
    assert_eq!(import(&mut to, &rows, false), Imported { written: 0, skipped: 1 });
    assert_eq!(to.get(b"a"), None);
}

#[test]
fn an_export_is_a_page_of_a_megabyte_or_one_row() {
    let mut host = Host::new();
    let keys: Vec<_> = (0..7_u8).map(|byte| vec![byte]).collect();
    for key in &keys {
        host.put(key, &vec![1; KV_PAGE_BYTES_MAX / 3]);
    }
    host.put(&[0], &vec![1; 4 * KV_PAGE_BYTES_MAX]);
    let (mut got, mut sizes, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let (rows, has_more) = export(&mut host, after.as_deref());
        sizes.push(rows.len());
        got.extend(rows.into_iter().map(|(key, ..)| key));
        after = got.last().cloned();
        if !has_more {
            break;
        }
    }
    assert_eq!((got, sizes), (keys, vec![1, 2, 2, 2]));
}

#[test]
fn an_import_of_nonsense_versions_is_refused_and_changes_nothing() {
    let mut host = Host::new();
    let row = |version| Moving { key: b"a", value: b"", version, expires_at_ms: None };
    for version in [0, -1, i64::MAX] {
        assert!(client::import(&[row(version)], true).is_err());
    }
    let reply = host.operate(&client::import(&[row(1 << 62)], true).expect("is valid"));
    assert_eq!((reply.status, host.rows()), (400, 0));
    assert_eq!(host.put(b"a", b""), 1);
}

#[test]
fn only_operators_move_rows() {
    let mut host = Host::new();
    let row = Moving { key: b"a", value: b"", version: 1, expires_at_ms: None };
    let calls = [
        client::layout(),
        client::set_layout(Phase::Moved(2), of(1)).expect("is valid"),
        client::export(None).expect("is valid"),
        client::import(&[row], false).expect("is valid"),
        client::prune(0, of(2), None).expect("is valid"),
    ];
    for call in calls {
        assert_eq!(host.call(&call).status, 403, "{}", call.path);
        for caller in ["_api/local", "_operators/x", "operator/_operator/"] {
            assert_eq!(host.handle(call.path, &call.body, caller).status, 403, "{} by {caller}", call.path);
        }
    }
    assert_eq!((layout(&mut host), host.rows()), (Layout { phase: Phase::Open, shards: 0 }, 0));
}

#[test]
fn a_request_for_another_number_of_shards_is_told_the_right_one() {
    let mut host = Host::new();
    let get = |host: &mut Host, count| {
        let reply = host.call(&client::get(of(count), b"a").expect("is valid"));
        client::got(reply.status, &reply.body).map(seen)
    };
    assert_eq!((get(&mut host, 3), get(&mut host, 4)), (Ok(None), Ok(None)));
    let put = |host: &mut Host, count, expect| {
        let write = Write::Put { key: b"a", value: b"1", expect, ttl_ms: None };
        let reply = host.call(&client::write(of(count), &write, Options::new().local()).expect("is valid"));
        client::put(reply.status, &reply.body)
    };
    assert_eq!(put(&mut host, 9, Expect::Version(1)), Err(Error::Conflict { current: None }));
    host.effect = Effect::Read;
    assert_eq!((put(&mut host, 3, Expect::Any), host.effect), (Ok(1), Effect::Durable));
    host.crash();
    let moved = Error::Moved { shards: 3 };
    assert_eq!((get(&mut host, 4), put(&mut host, 4, Expect::Any)), (Err(moved.clone()), Err(moved.clone())));
    let list = client::list(of(4), &List { prefix: b"", after: None, limit: 1, values: false }).expect("is valid");
    let reply = host.call(&list);
    assert_eq!(client::listed(reply.status, &reply.body), Err(moved));
    assert_eq!(get(&mut host, 3).map(|seen| seen.map(|(_, version, _)| version)), Ok(Some(1)));
}

#[test]
fn a_shard_that_moves_serves_reads_and_refuses_writes_and_one_that_moved_refuses_both() {
    let mut host = Host::new();
    host.put(b"a", b"1");
    set(&mut host, Phase::Moving(3), 1);
    host.crash();
    assert_eq!(layout(&mut host), Layout { phase: Phase::Moving(3), shards: 1 });
    assert_eq!(host.put_with(b"a", b"2", Expect::Any, None), Err(Error::Moving { shards: 3 }));
    assert_eq!(host.delete(b"a", Expect::Any), Err(Error::Moving { shards: 3 }));
    assert_eq!(host.write_many(&[put(b"a", b"2")], false), Err(Error::Moving { shards: 3 }));
    assert_eq!((host.value(b"a"), host.count()), (Some(b"1".to_vec()), 1));
    set(&mut host, Phase::Moved(3), 1);
    host.crash();
    assert_eq!(host.put_with(b"a", b"2", Expect::Any, None), Err(Error::Moved { shards: 3 }));
    let reply = host.call(&client::get(of(3), b"a").expect("is valid"));
    assert_eq!(client::got(reply.status, &reply.body), Err(Error::Moved { shards: 3 }));
    set(&mut host, Phase::Open, 1);
    assert_eq!(host.value(b"a"), Some(b"1".to_vec()));
    assert!(host.put_with(b"a", b"2", Expect::Any, None).is_ok());
}

#[test]
fn a_shard_is_pruned_only_where_it_has_moved_to() {
    let mut host = Host::new();
    host.put(b"a", b"1");
    for phase in [Phase::Open, Phase::Moving(2), Phase::Moved(3)] {
        set(&mut host, phase, 1);
        let reply = host.operate(&client::prune(0, of(2), None).expect("is valid"));
        assert_eq!((reply.status, host.rows()), (400, 1));
    }
}

fn prune(host: &mut Host, index: u32, shards: u32) -> (u32, u32) {
    let (mut count, mut calls, mut after) = (0, 0, None);
    loop {
        let reply = host.operate(&client::prune(index, of(shards), after.as_deref()).expect("is valid"));
        let pruned = client::pruned(reply.status, &reply.body).expect("pruned");
        (count, calls) = (count + pruned.count, calls + 1);
        match pruned.next {
            Some(next) => after = Some(next.to_vec()),
            None => return (count, calls),
        }
    }
}

#[test]
fn a_prune_goes_in_bounded_steps() {
    let mut host = Host::new();
    let keys: Vec<_> = (0..2_500_u32).map(u32::to_be_bytes).collect();
    for key in &keys {
        host.put(key, b"");
    }
    set(&mut host, Phase::Moved(2), 1);
    let foreign = keys.iter().filter(|key| of(2).of(&key[..]) == 1).count();
    let (count, calls) = prune(&mut host, 0, 2);
    assert_eq!((count as usize, calls, host.rows()), (foreign, 3, 2_500 - i64::try_from(foreign).expect("few")));
    set(&mut host, Phase::Open, 1);
    let large = KV_SWEEP_BYTES_MAX / 8;
    for key in 0..20_u8 {
        host.put(&[b'x', key], &vec![0; large]);
    }
    set(&mut host, Phase::Moved(1), 1);
    assert_eq!((prune(&mut host, 5, 1).1, host.rows()), (4, 0));
}

#[test]
fn a_class_goes_from_three_shards_to_five_and_to_two_with_stops_on_the_way() {
    let mut hosts: Vec<_> = (0..5).map(|_| Host::new()).collect();
    let keys: Vec<_> = (0..200_u8).map(|byte| vec![b'k', byte]).collect();
    for key in &keys {
        let call = client::write(of(3), &Write::Put { key, value: key, expect: Expect::Any, ttl_ms: None }, Options::new());
        hosts[of(3).of(key) as usize].call(&call.expect("is valid"));
    }
    for (old, new) in [(3_u32, 5_u32), (5, 2)] {
        for host in &mut hosts[..old as usize] {
            set(host, Phase::Moving(new), old);
        }
        // The copy is done twice, as after a stop.
        for _ in 0..2 {
            for from in 0..old as usize {
                for row in export(&mut hosts[from], None).0 {
                    let to = of(new).of(&row.0) as usize;
                    import(&mut hosts[to], &vec![row], true);
                }
            }
            for host in &mut hosts {
                host.crash();
            }
            for key in &keys {
                let reply = hosts[of(old).of(key) as usize].call(&client::get(of(old), key).expect("is valid"));
                assert!(client::got(reply.status, &reply.body).expect("is served").is_some());
            }
        }
        for index in 0..old.max(new) {
            set(&mut hosts[index as usize], Phase::Moved(new), old);
            prune(&mut hosts[index as usize], index, new);
            if index < new {
                set(&mut hosts[index as usize], Phase::Open, new);
            }
        }
        let rows: i64 = hosts.iter().map(Host::rows).sum();
        assert_eq!(rows, 200);
        for key in &keys {
            let reply = hosts[of(new).of(key) as usize].call(&client::get(of(new), key).expect("is valid"));
            let found = client::got(reply.status, &reply.body).expect("is served").expect("is there");
            assert_eq!(found.value, key);
        }
    }
}
