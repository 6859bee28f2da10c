//! What the world may observe of durable writes while the disk keeps them waiting, and when it fails: a whole node, asked over
//! HTTP, on a disk whose journal the test holds, lets go and fails. All actors are on one core unless a test says otherwise.

mod common;

use std::time::Duration;

use common::disk::{Op, Over, TestDisk, all, is_base};
use common::{Client, TestNode, until};
use wasmkeep::config::NodeConfig;
use wasmkeep_storage::Address;

fn answer(status: u16, body: &str) -> (u16, String) {
    (status, body.to_string())
}

fn ok(body: &str) -> (u16, String) {
    answer(200, body)
}

/// Serves the test guest alone, and has the actor `untouched` awake.
fn start(disk: &TestDisk, cores: usize, change: impl FnOnce(&mut NodeConfig)) -> TestNode {
    let node = TestNode::start_on(Some(disk), cores, |config| {
        config.classes.retain(|class| &*class.name == "test");
        change(config);
    });
    assert_eq!(node.post("/test/untouched/durable-insert?key=k&value=old", ""), ok("old"));
    node
}

fn events_ended(node: &TestNode) -> f64 {
    node.metric("wasmkeep_events_total{class=\"test\"")
}

/// Sends a request and waits until so many events of its have ended. Its answer is not there, though others of this core were
/// answered since.
fn sent(node: &TestNode, path: &str, events: u32) -> Client {
    let before = events_ended(node);
    let mut client = node.client();
    client.start("POST", path, "").expect("sends");
    until("the events end", || events_ended(node) >= before + f64::from(events));
    for _ in 0..5 {
        assert_eq!(node.get("/test/untouched/read?key=k"), ok("old"), "beside {path}");
    }
    assert!(!client.has_answer(), "{path} was answered before its time");
    client
}

fn assert_unknown(client: &mut Client) {
    let (status, body) = client.answer().expect("an answer");
    assert_eq!((status, body.contains("\"type\":\"unknown-outcome\"")), (503, true), "{body}");
    assert!(client.head.contains("content-type: application/problem+json"), "{}", client.head);
}

#[test]
fn reads_of_the_untouched_are_answered_while_whatever_saw_the_waiting_write_waits_with_it_whatever_its_status() {
    for over in all() {
        let disk = TestDisk::new(over);
        let node = start(&disk, 1, |_| {});
        assert_eq!(node.post("/test/a/durable-insert?key=k&value=old", ""), ok("old"));
        disk.pause();
        let mut write = sent(&node, "/test/a/durable-insert?key=k&value=new", 1);
        let mut read = sent(&node, "/test/a/read?key=k", 1);
        let mut error = sent(&node, "/test/a/read?key=none", 1);
        let mut trap = sent(&node, "/test/a/trap", 1);
        // A new instance on the same database.
        let mut later = sent(&node, "/test/a/read?key=k", 1);
        disk.release();
        assert_eq!(write.answer().expect("answers"), ok("new"));
        assert_eq!(read.answer().expect("answers"), ok("new"));
        assert_eq!(error.answer().expect("answers").0, 404);
        assert_eq!(trap.answer().expect("answers").0, 500);
        assert_eq!(later.answer().expect("answers"), ok("new"));
    }
}

#[test]
fn who_was_answered_by_an_actor_with_a_waiting_write_waits_and_so_does_what_it_says_later() {
    let disk = TestDisk::sim();
    let node = start(&disk, 1, |_| {});
    assert_eq!(node.get("/test/caller/self"), ok("test/caller"));
    assert_eq!(node.post("/test/a/durable-insert?key=k&value=old", ""), ok("old"));
    disk.pause();
    let mut write = sent(&node, "/test/a/durable-insert?key=k&value=new", 1);
    let mut call = sent(&node, "/test/caller/call?class=test&name=a&path=/read?key=k", 2);
    let mut later = sent(&node, "/test/caller/self", 1);
    disk.release();
    assert_eq!(write.answer().expect("answers"), ok("new"));
    assert_eq!(call.answer().expect("answers"), ok("new"));
    assert_eq!(later.answer().expect("answers"), ok("test/caller"));
}

#[test]
fn who_is_called_by_an_actor_with_a_waiting_write_waits_with_it() {
    let disk = TestDisk::sim();
    let node = start(&disk, 1, |_| {});
    assert_eq!(node.get("/test/callee/self"), ok("test/callee"));
    assert_eq!(node.post("/test/a/durable-insert?key=k&value=old", ""), ok("old"));
    disk.pause();
    let mut write = sent(&node, "/test/a/durable-insert?key=k&value=new", 1);
    let mut call = sent(&node, "/test/a/call?class=test&name=callee&path=/self", 2);
    let mut later = sent(&node, "/test/callee/self", 1);
    disk.release();
    assert_eq!(write.answer().expect("answers"), ok("new"));
    assert_eq!(call.answer().expect("answers"), ok("test/callee"));
    assert_eq!(later.answer().expect("answers"), ok("test/callee"));
}

#[test]
fn local_writes_hold_nothing_up_but_a_durable_insert_that_is_ignored_waits_for_the_row_it_met() {
    let disk = TestDisk::sim();
    let node = start(&disk, 1, |_| {});
    assert_eq!(node.get("/test/a/self"), ok("test/a"));
    disk.pause();
    assert_eq!(node.post("/test/a/local-insert?key=k&value=v", ""), ok("v"));
    assert_eq!(node.get("/test/a/read?key=k"), ok("v"));
    assert_eq!(node.post("/test/a/insert-or-ignore?key=k&value=w&durable=0", ""), ok("0"));
    let mut ignored = sent(&node, "/test/a/insert-or-ignore?key=k&value=w&durable=1", 1);
    disk.release();
    assert_eq!(ignored.answer().expect("answers"), ok("0"));
    assert_eq!(node.get("/test/a/read?key=k"), ok("v"));
}

#[test]
fn gates_open_in_the_order_of_the_journal_whatever_the_order_in_which_its_writes_end() {
    for over in all() {
        let disk = TestDisk::new(over);
        let node = start(&disk, 1, |_| {});
        for name in ["a", "b"] {
            assert_eq!(node.get(&format!("/test/{name}/self")).0, 200);
        }
        disk.pause();
        let written = disk.count();
        let mut first = sent(&node, "/test/a/durable-insert?key=k&value=1", 1);
        disk.wait_for(written + 1);
        let mut second = sent(&node, "/test/b/durable-insert?key=k&value=2", 1);
        disk.wait_for(written + 2);
        // Both writes are on their way, more wait behind them.
        let mut third = sent(&node, "/test/a/durable-insert?key=k&value=3", 1);
        disk.release_one(written + 2);
        let mut fourth = sent(&node, "/test/b/read?key=k", 1);
        assert!(!first.has_answer() && !second.has_answer());
        disk.release_one(written + 1);
        assert_eq!(first.answer().expect("answers"), ok("1"));
        assert_eq!(second.answer().expect("answers"), ok("2"));
        assert_eq!(fourth.answer().expect("answers"), ok("2"));
        assert_eq!(node.get("/test/untouched/read?key=k"), ok("old"));
        assert!(!third.has_answer(), "{over:?}");
        disk.release();
        assert_eq!(third.answer().expect("answers"), ok("3"));
    }
}

#[test]
fn a_failed_group_makes_its_outputs_unknown_and_reloads_exactly_the_actors_that_saw_it() {
    for over in all() {
        let disk = TestDisk::new(over);
        let mut node = start(&disk, 1, |_| {});
        for name in ["untouched", "writer", "reader", "local"] {
            assert_eq!(node.post(&format!("/test/{name}/durable-insert?key=k&value=old"), ""), ok("old"));
            assert_eq!(node.post(&format!("/test/{name}/memory-set?value=mine"), ""), ok("mine"));
        }
        disk.pause();
        let mut write = sent(&node, "/test/writer/durable-insert?key=k&value=new", 1);
        // It has nothing of the lost write but what it keeps in memory.
        let mut call = sent(&node, "/test/reader/call?class=test&name=writer&path=/read?key=k&keep=1", 2);
        assert_eq!(node.post("/test/local/local-insert?key=k&value=new", ""), ok("new"));
        let mut read = sent(&node, "/test/writer/read?key=k", 1);
        disk.fail();
        for client in [&mut write, &mut call, &mut read] {
            assert_unknown(client);
        }
        for name in ["writer", "reader", "local"] {
            assert_eq!(node.get(&format!("/test/{name}/read?key=k")), ok("old"), "{name} on {over:?}");
            assert_eq!(node.get(&format!("/test/{name}/memory-get")).0, 404, "{name} on {over:?}");
        }
        assert_eq!(node.get("/test/untouched/memory-get"), ok("mine"), "{over:?}");
        assert_eq!(node.post("/test/writer/durable-insert?key=k&value=newer", ""), ok("newer"));
        assert_eq!(node.get("/test/reader/call?class=test&name=writer&path=/read?key=k"), ok("newer"));
        node.again();
        assert_eq!(node.get("/test/writer/read?key=k"), ok("newer"));
        assert_eq!(node.get("/test/reader/read?key=k"), ok("old"));
    }
}

#[test]
fn what_was_lost_stays_lost_though_its_bytes_are_on_the_disk_when_the_power_goes() {
    let disk = TestDisk::sim();
    let mut node = start(&disk, 1, |_| {});
    assert_eq!(node.post("/test/a/durable-insert?key=k&value=old", ""), ok("old"));
    disk.pause();
    let mut lost = sent(&node, "/test/a/durable-insert?key=k&value=lost", 1);
    disk.fail();
    assert_unknown(&mut lost);
    assert_eq!(node.post("/test/b/durable-insert?key=k&value=kept", ""), ok("kept"));
    let crashed = disk.crashed(7);
    node.abort();
    node.disk = Some(crashed);
    node.again();
    assert_eq!(node.get("/test/a/read?key=k"), ok("old"));
    assert_eq!(node.get("/test/b/read?key=k"), ok("kept"));
}

/// A node on whose disk the actor `a` has a row `big` that is read from its base file, and a durable write on its way that fails
/// at the moment in which the row is read.
fn fails_when_a_reads_its_base_file() -> (TestDisk, TestNode, Client) {
    let disk = TestDisk::sim();
    let mut node = start(&disk, 1, |_| {});
    let big = "b".repeat(20_000);
    assert_eq!(node.post(&format!("/test/a/durable-insert?key=big&value={big}"), "").0, 200);
    node.again();
    for name in ["untouched", "other"] {
        assert_eq!(node.get(&format!("/test/{name}/self")).0, 200);
    }
    assert_eq!(node.post("/test/a/memory-set?value=mine", ""), ok("mine"));
    disk.pause();
    let write = sent(&node, "/test/a/durable-insert?key=k&value=new", 1);
    let (valve, base) = (disk.clone(), wasmkeep_storage::store::base_path(&node.config.data_dir, &Address::new("test", "a")));
    disk.hook(move |op, path| {
        if op == Op::Read && is_base(path) && path == base {
            valve.fail();
        }
        Ok(())
    });
    (disk, node, write)
}

#[test]
fn an_answer_that_is_on_its_way_to_a_caller_when_the_group_fails_never_arrives() {
    let (_disk, node, mut write) = fails_when_a_reads_its_base_file();
    assert_eq!(node.post("/test/other/memory-set?value=mine", ""), ok("mine"));
    let (status, body) = node.get("/test/other/call?class=test&name=a&path=/read?key=big&keep=1");
    assert_unknown(&mut write);
    assert_eq!((status, body.contains("unknown-outcome")), (502, true), "{}", &body[..body.len().min(200)]);
    // It never saw what was lost, so it is not reloaded.
    assert_eq!(node.get("/test/other/memory-get"), ok("mine"));
    assert_eq!(node.get("/test/a/memory-get").0, 404);
    assert_eq!(node.get("/test/a/read?key=k").0, 404);
}

#[test]
fn a_call_that_is_on_its_way_when_the_group_of_its_caller_fails_is_never_run() {
    let (_disk, node, mut write) = fails_when_a_reads_its_base_file();
    assert_eq!(node.post("/test/other/memory-set?value=mine", ""), ok("mine"));
    let mut call = node.client();
    let onward = "/memory-set?value=from-the-lost";
    call.start("POST", &format!("/test/a/call?class=test&name=other&send=big&path={onward}"), "").expect("sends");
    assert_unknown(&mut write);
    assert_unknown(&mut call);
    assert_eq!(node.post("/test/a/durable-insert?key=k&value=newer", ""), ok("newer"));
    assert_eq!(node.get("/test/other/memory-get"), ok("mine"));
}

#[test]
fn a_call_to_another_core_is_made_when_what_its_caller_saw_is_durable_and_not_at_all_if_that_is_lost() {
    let disk = TestDisk::sim();
    let node = start(&disk, 2, |_| {});
    let core_of = |name: &str| wasmkeep::router::core_of(&Address::new("test", name), 2);
    let here = (0..).map(|n| format!("here{n}")).find(|name| core_of(name) == 0).expect("one of a few");
    let there = (0..).map(|n| format!("there{n}")).find(|name| core_of(name) == 1).expect("one of a few");
    for name in [&here, &there] {
        assert_eq!(node.get(&format!("/test/{name}/self")).0, 200);
    }
    let onward = format!("/test/{here}/call?class=test&name={there}&path=/local-insert?key=k%26value=");
    for (value, fails) in [("lost", true), ("kept", false)] {
        disk.pause();
        let mut write = sent(&node, &format!("/test/{here}/durable-insert?key=k&value={value}"), 1);
        let runs = |is: bool| {
            until("an event runs here, or none", || (node.metric("wasmkeep_actors{core=\"0\",state=\"running\"") > 0.5) == is);
        };
        runs(false);
        let mut call = node.client();
        call.start("POST", &format!("{onward}{value}"), "").expect("sends");
        // Not before: a call that had not begun when the group fails would be made afterwards, as it should.
        runs(true);
        until("the call waits", || node.get(&format!("/test/{there}/self")).0 == 200 && !call.has_answer());
        assert_eq!(node.get(&format!("/test/{there}/read?key=k")).0, 404);
        if fails {
            disk.fail();
            assert_unknown(&mut write);
            assert_unknown(&mut call);
            assert_eq!(node.get(&format!("/test/{here}/read?key=k")).0, 404);
        } else {
            disk.release();
            assert_eq!(write.answer().expect("answers"), ok("kept"));
            assert_eq!(call.answer().expect("answers"), ok("kept"));
            assert_eq!(node.get(&format!("/test/{there}/read?key=k")), ok("kept"));
        }
    }
}

#[test]
fn a_deadline_that_strikes_at_the_gate_is_an_unknown_outcome_and_the_write_is_kept() {
    let disk = TestDisk::new(Over::Sim);
    let node = start(&disk, 1, |config| config.budgets.event_wall = Duration::from_millis(400));
    assert_eq!(node.get("/test/a/self"), ok("test/a"));
    disk.pause();
    let mut write = sent(&node, "/test/a/durable-insert?key=k&value=v", 1);
    assert_unknown(&mut write);
    disk.release();
    assert_eq!(node.get("/test/a/read?key=k"), ok("v"));
}
