//! A node whose disk is full, fails or stalls: what it answers meanwhile, and that it goes on by itself afterwards.

mod common;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use common::disk::{Op, TestDisk, errno, is_base};
use common::{Client, TestNode, until};
use wasmkeep::config::NodeConfig;
use wasmkeep_storage::disk::sim::{Fate, Fault};

fn ok(body: &str) -> (u16, String) {
    (200, body.to_string())
}

/// Serves the test guest alone, with a journal of three small segments, and has the actor `reader` awake.
fn start(disk: &TestDisk, change: impl FnOnce(&mut NodeConfig)) -> TestNode {
    let node = TestNode::start_on(Some(disk), 1, |config| {
        config.classes.retain(|class| &*class.name == "test");
        config.budgets.journal_bytes = 3 * 256 * 1024;
        change(config);
    });
    assert_eq!(node.post("/test/reader/durable-insert?key=k&value=v", ""), ok("v"));
    node
}

fn write(client: &mut Client, n: usize) -> (u16, String) {
    client.send("POST", &format!("/test/writer/durable-insert?key=k{n}&value={}", "x".repeat(3_000)), "")
}

fn is_segment(path: &std::path::Path) -> bool {
    path.extension().is_some_and(|extension| extension == "seg")
}

/// Writes until storage is full; returns how many writes were acknowledged.
fn fill(node: &TestNode) -> usize {
    let mut client = node.client();
    for n in 0..2_000 {
        match write(&mut client, n) {
            (200, _) => {}
            (507, body) => {
                assert!(body.contains("\"type\":\"storage-full\""), "{body}");
                return n;
            }
            (status, body) => panic!("write {n}: {status} {body}"),
        }
    }
    panic!("it was never full");
}

/// A full disk, and what to do about it: at first, and when there is space again.
type Full = (&'static str, fn(&TestDisk), fn(&TestDisk));

const NO_SPACE: [Full; 3] = [
    ("the whole disk", |disk| disk.sim.set_capacity(Some(disk.sim.used_bytes())), |disk| disk.sim.set_capacity(None)),
    (
        "base files",
        |disk| disk.hook(|op, path| if op == Op::Write && is_base(path) { Err(errno(libc::ENOSPC)) } else { Ok(()) }),
        TestDisk::unhook,
    ),
    (
        "segments",
        |disk| disk.hook(|op, path| if op == Op::Write && is_segment(path) { Err(errno(libc::ENOSPC)) } else { Ok(()) }),
        TestDisk::unhook,
    ),
];

#[test]
fn while_storage_is_full_writes_are_told_so_reads_are_served_and_writes_go_on_when_there_is_space() {
    for (what, fill_disk, make_space) in NO_SPACE {
        let disk = TestDisk::sim();
        let mut node = start(&disk, |_| {});
        assert_eq!(node.get("/test/writer/self").0, 200);
        fill_disk(&disk);
        let acknowledged = fill(&node);
        for _ in 0..20 {
            assert_eq!(node.get("/test/reader/read?key=k"), ok("v"), "{what}");
            assert_eq!(node.get("/test/writer/read?key=none").0, 404, "{what}");
        }
        // The guest's `init` writes, and traps when it cannot: that is no fault of the guest's.
        let mut client = node.client();
        let (status, body) = client.send("GET", "/test/new/self", "");
        assert_eq!((status, body.contains("\"type\":\"storage-full\"")), (507, true), "{what}: {body}");
        assert!(client.head.contains("content-type: application/problem+json"), "{what}: {}", client.head);
        make_space(&disk);
        until("writes are taken again", || write(&mut client, acknowledged).0 == 200);
        assert_eq!(client.send("GET", "/test/new/self", ""), ok("test/new"), "{what}");
        node.again();
        let keys = node.get("/test/writer/read").1;
        assert_eq!(keys.lines().count(), acknowledged + 1, "{what}");
    }
}

#[test]
fn a_write_of_the_journal_that_fails_or_is_short_is_an_unknown_outcome_and_taken_back_for_ever() {
    for fault in [Fault::Eio, Fault::Enospc, Fault::Short] {
        for fate in [Fate::Lost, Fate::Kept, Fate::Undecided] {
            let disk = TestDisk::sim();
            let mut node = start(&disk, |_| {});
            assert_eq!(node.post("/test/a/durable-insert?key=k&value=old", ""), ok("old"));
            disk.sim.fail_next(fault, fate);
            let (status, body) = node.post("/test/a/durable-insert?key=k&value=lost", "");
            assert_eq!((status, body.contains("unknown-outcome")), (503, true), "{fault:?} {fate:?}: {body}");
            assert_eq!(node.get("/test/a/read?key=k"), ok("old"), "{fault:?} {fate:?}");
            assert_eq!(node.post("/test/b/durable-insert?key=k&value=kept", ""), ok("kept"), "{fault:?} {fate:?}");
            let crashed = disk.crashed(1);
            node.abort();
            node.disk = Some(crashed);
            node.again();
            assert_eq!(node.get("/test/a/read?key=k"), ok("old"), "{fault:?} {fate:?}");
            assert_eq!(node.get("/test/b/read?key=k"), ok("kept"), "{fault:?} {fate:?}");
        }
    }
}

#[test]
fn while_the_journal_cannot_be_written_at_all_what_is_awake_and_saw_nothing_of_it_is_read() {
    let disk = TestDisk::sim();
    let node = start(&disk, |_| {});
    assert_eq!(node.post("/test/a/durable-insert?key=k&value=old", ""), ok("old"));
    disk.fail_all(Some(libc::EIO));
    let (status, body) = node.post("/test/a/durable-insert?key=k&value=lost", "");
    assert_eq!((status, body.contains("unknown-outcome")), (503, true), "{body}");
    let failed = disk.count();
    // The restart is tried again and again.
    disk.wait_for(failed + 3);
    assert_eq!(node.get("/test/reader/read?key=k"), ok("v"));
    let (status, body) = node.post("/test/reader/durable-insert?key=k&value=w", "");
    assert_ne!(status, 200, "{body}");
    disk.fail_all(None);
    assert_eq!(node.get("/test/a/read?key=k"), ok("old"));
    assert_eq!(node.post("/test/a/durable-insert?key=k&value=new", ""), ok("new"));
    assert_eq!(node.get("/test/reader/read?key=k"), ok("v"));
}

#[test]
fn a_base_file_that_cannot_be_read_fails_its_actor_alone_until_it_can() {
    let disk = TestDisk::sim();
    let mut node = start(&disk, |_| {});
    let big = "b".repeat(20_000);
    for name in ["asleep", "awake"] {
        assert_eq!(node.post(&format!("/test/{name}/durable-insert?key=big&value={big}"), ""), ok(&big));
    }
    node.again();
    for name in ["reader", "awake"] {
        assert_eq!(node.get(&format!("/test/{name}/self")).0, 200);
    }
    let dir = node.config.data_dir.join("actors");
    disk.hook(move |op, path| {
        let is_reader = path.file_name().is_some_and(|name| name == "reader.sqlite");
        if op == Op::Read && path.starts_with(&dir) && !is_reader { Err(errno(libc::EIO)) } else { Ok(()) }
    });
    let (status, body) = node.get("/test/asleep/read?key=big");
    assert_eq!((status, body.contains("\"type\":\"unavailable\"")), (503, true), "{body}");
    let (status, body) = node.get("/test/awake/read?key=big");
    assert_eq!((status, body.contains("database")), (500, true), "{body}");
    assert_eq!(node.get("/test/reader/read?key=k"), ok("v"));
    disk.unhook();
    for name in ["asleep", "awake"] {
        assert_eq!(node.get(&format!("/test/{name}/read?key=big")), ok(&big), "{name}");
    }
}

#[test]
fn a_node_that_finds_no_space_or_no_disk_to_start_on_says_so_and_starts_when_it_does() {
    let disk = TestDisk::sim();
    let mut node = start(&disk, |_| {});
    let crashed = disk.crashed(3);
    node.abort();
    node.disk = Some(crashed.clone());
    crashed.sim.set_capacity(Some(crashed.sim.used_bytes()));
    let full = node.try_again().expect_err("there is no space");
    assert_eq!(full.exit_status(), 7);
    assert!(full.to_string().contains("No space left on device"), "{full}");
    crashed.sim.set_capacity(None);
    crashed.fail_all(Some(libc::EIO));
    // One of them writes; the other must not wait for it for ever.
    node.config.cores = 2;
    let broken = node.try_again().expect_err("nothing can be written");
    assert_eq!(broken.exit_status(), 7);
    assert!(broken.to_string().contains("Input/output error"), "{broken}");
    crashed.fail_all(None);
    node.again();
    assert_eq!(node.get("/test/reader/read?key=k"), ok("v"));
}

#[test]
fn on_a_disk_that_is_known_to_be_full_nobody_waits_for_the_next_attempt_to_find_space() {
    let (disk, door) = (TestDisk::sim(), Door::default());
    let node = start(&disk, |config| config.budgets.journal_bytes = 16 * 256 * 1024);
    assert_eq!(node.get("/test/writer/self").0, 200);
    let is_full = |op, path: &std::path::Path| op == Op::Write && (is_segment(path) || is_base(path));
    disk.hook(move |op, path| if is_full(op, path) { Err(errno(libc::ENOSPC)) } else { Ok(()) });
    let acknowledged = fill(&node);
    door.set(true);
    let (closed, (attempts, attempt)) = (door.clone(), std::sync::mpsc::channel());
    disk.hook(move |op, path| {
        if !is_full(op, path) {
            return Ok(());
        }
        if is_segment(path) {
            let _the_first_is_enough = attempts.send(());
            closed.pass();
        }
        Err(errno(libc::ENOSPC))
    });
    attempt.recv_timeout(Duration::from_secs(30)).expect("it is tried again and again");
    let mut client = node.client();
    let answers = (node.get("/test/reader/read?key=k"), write(&mut client, acknowledged).0);
    door.set(false);
    assert_eq!(answers, (ok("v"), 507));
    disk.unhook();
    until("writes are taken again", || write(&mut client, acknowledged).0 == 200);
}

/// A door that a test closes in front of threads.
#[derive(Clone, Default)]
struct Door(Arc<(Mutex<bool>, Condvar)>);

impl Door {
    fn set(&self, closed: bool) {
        *self.0.0.lock().expect("nobody panics with it held") = closed;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let closed = self.0.0.lock().expect("nobody panics with it held");
        drop(self.0.1.wait_while(closed, |closed| *closed).expect("nobody panics with it held"));
    }
}

#[test]
fn an_event_that_waits_for_room_in_vain_ends_at_its_deadline() {
    let (disk, door) = (TestDisk::sim(), Door::default());
    let node = start(&disk, |config| {
        config.budgets.event_wall = Duration::from_millis(400);
        // It may grow, so that a segment is on its way when none is left.
        config.budgets.journal_bytes = 16 * 256 * 1024;
    });
    assert_eq!(node.get("/test/writer/self").0, 200);
    door.set(true);
    let closed = door.clone();
    disk.hook(move |op, path| {
        if op == Op::Write && (is_segment(path) || is_base(path)) {
            closed.pass();
        }
        Ok(())
    });
    let mut client = node.client();
    let (status, body) = (0..2_000).map(|n| write(&mut client, n)).find(|(status, _)| *status != 200).expect("no room at last");
    // Opened before anything can fail: a closed door would hold the node's end up for ever.
    let read = node.get("/test/reader/read?key=k");
    door.set(false);
    assert_eq!((status, body.contains("\"type\":\"deadline\"")), (504, true), "{body}");
    assert_eq!(read.0, 504, "{}", read.1);
    until("writes are taken again", || write(&mut client, 0).0 == 200);
    assert_eq!(node.get("/test/reader/read?key=k"), ok("v"));
}
