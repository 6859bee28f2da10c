//! Moves against the shards' state machines in memory: interrupted at every request, with every reply
//! lost once, and beside writers.

use std::collections::BTreeMap;
use std::time::Duration;

use wasmkeep_classes::kv::client::{self, Error};
use wasmkeep_classes::kv::protocol::{Expect, Options, Write};
use wasmkeep_classes::kv::{Phase, Shards, shard_of};
use wasmkeep_storage::Address;

use super::{Import, Operator, Progress, Reshard};
use crate::door::tests::shards::Machines;
use crate::event::Problem;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn of(count: u32) -> Shards {
    Shards::new(count).expect("is valid")
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("builds").block_on(future)
}

fn operator(machines: &Machines) -> Operator<Machines> {
    let mut operator = Operator::new(machines.clone(), Address::new("_operator", "test"), Progress::default());
    operator.first_wait = Duration::ZERO;
    operator
}

fn reshard(machines: &Machines, old: u32, new: u32) -> Result<(), String> {
    run(Reshard { class: "kv".into(), old: of(old), new: of(new) }.run(&operator(machines)))
}

fn import(machines: &Machines, from: &str, shards: u32, is_overwriting: bool) -> Result<u64, String> {
    let operator = operator(machines);
    let job = Import { class: "kv".into(), shards: of(shards), from: from.into(), from_shards: None, is_overwriting };
    run(job.run(&operator)).map(|()| operator.progress.0.borrow().rows)
}

/// A client's put, with the version it gave.
fn put(machines: &Machines, class: &str, shards: u32, key: &[u8], value: &[u8]) -> Result<i64, Error> {
    let write = Write::Put { key, value, expect: Expect::Any, ttl_ms: None };
    let call = client::write(of(shards), &write, Options::new()).expect("is valid");
    let reply = machines.call(class, shard_of(key, shards), &call, "web/main");
    client::put(reply.status, &reply.body)
}

fn get(machines: &Machines, shards: u32, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let call = client::get(of(shards), key).expect("is valid");
    let reply = machines.call("kv", shard_of(key, shards), &call, "web/main");
    Ok(client::got(reply.status, &reply.body)?.map(|found| found.value.to_vec()))
}

fn fill(machines: &Machines, class: &str, shards: u32, count: usize) -> Rows {
    let rows: Rows = (0..count).map(|i| (format!("key-{i}").into_bytes(), format!("value {i}").into_bytes())).collect();
    for (key, value) in &rows {
        put(machines, class, shards, key, value).expect("is put");
    }
    rows
}

/// What one shard has, whatever its layout.
fn held(machines: &Machines, class: &str, shard: u32) -> Rows {
    let reply = machines.call(class, shard, &client::export(None).expect("is valid"), "_operator/test");
    let page = client::exported(reply.status, &reply.body).expect("a page");
    assert!(!page.has_more);
    page.rows.iter().map(|row| (row.key.to_vec(), row.value.to_vec())).collect()
}

/// All keys are served by so many shards, each by its own, and no other of the first `known` has any.
#[track_caller]
fn is_served(machines: &Machines, shards: u32, known: u32, rows: &Rows) {
    let mut found = Rows::new();
    for shard in 0..known {
        let held = held(machines, "kv", shard);
        assert!(held.keys().all(|key| shard_of(key, shards) == shard), "shard {shard} of {shards} has what is not its own");
        found.extend(held);
    }
    assert_eq!(&found, rows);
    for (key, value) in rows {
        assert_eq!(get(machines, shards, key), Ok(Some(value.clone())));
    }
}

const NUMBERS: [(u32, u32); 6] = [(1, 2), (2, 5), (5, 2), (3, 1), (4, 6), (6, 4)];

#[test]
fn every_key_is_where_its_new_number_says_and_takes_writes() {
    for (n, m) in NUMBERS {
        let machines = Machines::configured(n);
        let mut rows = fill(&machines, "kv", n, 60);
        let version = put(&machines, "kv", n, b"key-0", b"again").expect("is put");
        reshard(&machines, n, m).expect("moves");
        rows.insert(b"key-0".to_vec(), b"again".to_vec());
        is_served(&machines, m, n.max(m), &rows);
        assert!(put(&machines, "kv", m, b"key-0", b"newer").expect("is put") > version, "versions go on, {n} to {m}");
        let old = get(&machines, n, b"key-1");
        assert!(matches!(old, Err(Error::Moved { shards }) if shards == m), "{old:?}");
        assert_eq!(reshard(&machines, m, m), Ok(()), "there is nothing to do");
        // And back.
        rows.insert(b"key-0".to_vec(), b"newer".to_vec());
        reshard(&machines, m, n).expect("moves");
        is_served(&machines, n, n.max(m), &rows);
    }
}

#[test]
fn a_move_that_ends_at_any_request_goes_on_when_it_is_asked_for_again() {
    for (n, m) in NUMBERS {
        for stop in 0.. {
            let machines = Machines::configured(n);
            let mut rows = fill(&machines, "kv", n, 20);
            machines.stop_after(stop);
            let ended = reshard(&machines, n, m);
            if !machines.heal() {
                ended.expect("nothing stopped it");
                assert!(stop > 8, "there were requests to stop at");
                break;
            }
            ended.expect_err("it was stopped");
            // Clients go on meanwhile; what they are told is what counts.
            for (shards, key) in [(n, b"key-3"), (m, b"key-4"), (n, b"new-1"), (m, b"new-2")] {
                if put(&machines, "kv", shards, key, b"meanwhile").is_ok() {
                    rows.insert(key.to_vec(), b"meanwhile".to_vec());
                }
            }
            reshard(&machines, n, m).unwrap_or_else(|words| panic!("{n} to {m}, stopped at {stop}: {words}"));
            is_served(&machines, m, n.max(m), &rows);
        }
    }
}

#[test]
fn every_reply_may_get_lost() {
    for (n, m) in [(2, 3), (3, 2)] {
        for lost in 0.. {
            let machines = Machines::configured(n);
            let rows = fill(&machines, "kv", n, 20);
            machines.lose_reply_after(lost);
            reshard(&machines, n, m).expect("moves");
            is_served(&machines, m, 3, &rows);
            if !machines.heal() {
                break;
            }
        }
    }
}

#[test]
fn until_all_is_copied_a_move_can_be_given_up() {
    for (n, m) in NUMBERS {
        let mut given_up = 0;
        for stop in 0.. {
            let machines = Machines::configured(n);
            let rows = fill(&machines, "kv", n, 20);
            machines.stop_after(stop);
            let ended = reshard(&machines, n, m);
            if !machines.heal() {
                ended.expect("nothing stopped it");
                break;
            }
            if let Err(words) = reshard(&machines, n, n) {
                assert!(words.contains(&format!("finish it with {m} shards, then")), "{words}");
                continue;
            }
            given_up += 1;
            is_served(&machines, n, n, &rows);
            put(&machines, "kv", n, b"key-3", b"after").expect("is put");
            reshard(&machines, n, m + 1).expect("moves");
            let after = Rows::from([(b"key-3".to_vec(), b"after".to_vec())]);
            is_served(&machines, m + 1, n.max(m + 1), &rows.into_iter().chain(after).collect());
        }
        assert!(given_up > n, "{n} to {m}: {given_up}");
    }
}

#[test]
fn giving_up_can_itself_be_interrupted() {
    for stop in 0.. {
        let machines = Machines::configured(2);
        let rows = fill(&machines, "kv", 2, 20);
        // Behind the four layouts, the two that are looked at and emptied, and the two that stop writes: at the first copies.
        machines.stop_after(4 + 2 + 4 + 2 + 1);
        reshard(&machines, 2, 4).expect_err("it was stopped");
        machines.heal();
        machines.stop_after(stop);
        let ended = reshard(&machines, 2, 2);
        let was_stopped = machines.heal();
        assert_eq!(ended.is_err(), was_stopped);
        reshard(&machines, 2, 2).expect("goes on");
        is_served(&machines, 2, 4, &rows);
        if !was_stopped {
            assert!(stop > 8);
            break;
        }
    }
}

#[test]
fn while_keys_are_copied_they_are_read_and_not_written() {
    let machines = Machines::configured(2);
    fill(&machines, "kv", 2, 20);
    machines.set(0, Phase::Moving(3), 3);
    machines.set(1, Phase::Moving(3), 3);
    // Behind the layouts, the shard that is emptied and the two that stop writes: at the first page.
    machines.stop_after(3 + 3 + 2 + 1);
    reshard(&machines, 2, 3).expect_err("it was stopped");
    machines.heal();
    assert_eq!(get(&machines, 2, b"key-1"), Ok(Some(b"value 1".to_vec())));
    assert_eq!(put(&machines, "kv", 2, b"key-1", b""), Err(Error::Moving { shards: 3 }));
    let words = reshard(&machines, 2, 5).expect_err("another move has begun");
    assert_eq!(words, "a move of the keys to 3 shards has begun: finish it with 3 shards, or give it up with 2");
}

#[test]
fn rows_that_nobody_can_have_written_are_not_deleted() {
    let machines = Machines::configured(2);
    fill(&machines, "kv", 2, 5);
    let write = Write::Put { key: b"stray", value: b"", expect: Expect::Any, ttl_ms: None };
    let call = client::write(of(2), &write, Options::new()).expect("is valid");
    assert_eq!(machines.call("kv", 2, &call, "web/main").status, 200);
    let words = reshard(&machines, 2, 3).expect_err("it has rows");
    assert!(words.starts_with("kv/shard-2 has rows, and no client of 2 shards"), "{words}");
    assert_eq!((held(&machines, "kv", 2).len(), put(&machines, "kv", 2, b"key-1", b"").is_ok()), (1, true));
}

#[test]
fn large_classes_are_moved_page_by_page() {
    let machines = Machines::configured(2);
    let value = vec![7; 300_000];
    for i in 0..40 {
        put(&machines, "kv", 2, format!("key-{i}").as_bytes(), &value).expect("is put");
    }
    let progress = operator(&machines);
    run(Reshard { class: "kv".into(), old: of(2), new: of(7) }.run(&progress)).expect("moves");
    let exports = machines.seen().iter().filter(|path| path.ends_with("/export")).count();
    assert!(exports > 12, "{exports} pages");
    let moved =
        (0..40).filter(|i| shard_of(format!("key-{i}").as_bytes(), 2) != shard_of(format!("key-{i}").as_bytes(), 7)).count();
    assert_eq!(progress.progress.0.borrow().rows, moved as u64);
    assert!((0..40).all(|i| get(&machines, 7, format!("key-{i}").as_bytes()) == Ok(Some(value.clone()))));
}

#[test]
fn an_import_copies_what_is_missing_and_overwrites_when_told_to() {
    let machines = Machines::configured(2);
    let rows = fill(&machines, "old", 3, 50);
    put(&machines, "kv", 2, b"key-7", b"ours").expect("is put");
    put(&machines, "kv", 2, b"own", b"ours").expect("is put");
    assert_eq!(import(&machines, "old", 2, false), Ok(49));
    let mut expected = rows.clone();
    expected.extend([(b"key-7".to_vec(), b"ours".to_vec()), (b"own".to_vec(), b"ours".to_vec())]);
    is_served(&machines, 2, 2, &expected);
    assert_eq!(import(&machines, "old", 2, false), Ok(0));
    assert_eq!(import(&machines, "old", 2, true), Ok(50));
    expected.extend(rows.clone());
    is_served(&machines, 2, 2, &expected);
    assert_eq!((0..3).flat_map(|shard| held(&machines, "old", shard)).collect::<Rows>(), rows, "what is read stays");
    assert!(put(&machines, "old", 3, b"key-1", b"").is_ok(), "and serves on");
}

#[test]
fn an_import_that_is_interrupted_copies_the_rest_the_next_time() {
    for stop in 0.. {
        let machines = Machines::configured(2);
        let rows = fill(&machines, "old", 3, 20);
        fill(&machines, "kv", 2, 1);
        machines.stop_after(stop);
        let ended = import(&machines, "old", 2, false);
        if !machines.heal() {
            ended.expect("nothing stopped it");
            break;
        }
        ended.expect_err("it was stopped");
        import(&machines, "old", 2, false).expect("copies");
        is_served(&machines, 2, 2, &rows);
    }
}

#[test]
fn an_import_says_what_is_wrong_with_the_class_it_reads() {
    let machines = Machines::configured(2);
    let words = import(&machines, "mail", 2, false).expect_err("is a queue");
    assert!(words.starts_with("mail is no key-value class"), "{words}");
    let words = import(&machines, "old", 2, false).expect_err("is new");
    assert!(words.starts_with("old/shard-0 has never been written"), "{words}");
    fill(&machines, "old", 3, 20);
    let job = Import { class: "kv".into(), shards: of(2), from: "old".into(), from_shards: Some(of(2)), is_overwriting: false };
    assert_eq!(run(job.run(&operator(&machines))), Err("old has 3 shards, not 2".into()));
    fill(&machines, "kv", 2, 5);
    machines.set(1, Phase::Moving(3), 3);
    let words = import(&machines, "old", 2, false).expect_err("is moving");
    assert_eq!(words, "a move of the keys of kv to 3 shards has begun: finish it first");
}

#[test]
fn what_does_not_pass_ends_a_move_and_names_the_shard() {
    let machines = Machines::configured(2);
    fill(&machines, "kv", 2, 5);
    machines.fail(1, Problem::StorageFull);
    let words = reshard(&machines, 2, 3).expect_err("it is full");
    assert!(words.starts_with("kv/shard-1: storage is full"), "{words}");
    machines.fail(1, Problem::MailboxFull);
    reshard(&machines, 2, 3).expect("it is tried again");
}
