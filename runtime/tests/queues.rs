//! Native queues on a whole node: what is sent is delivered, tried again, dead-lettered, kept over restarts, and gated like any
//! other output. The test guest sends and consumes.

mod common;

use std::time::Duration;

use common::disk::TestDisk;
use common::{Client, TestNode, until};
use wasmkeep::config::{NativeConfig, NodeConfig};
use wasmkeep_classes::queue::Config;
use wasmkeep_storage::Address;

fn pushed() -> Config {
    Config { consumer: Some("test/consumer".into()), ..Config::default() }
}

fn start(disk: Option<&TestDisk>, cores: usize, queue: Config, change: impl FnOnce(&mut NodeConfig)) -> TestNode {
    TestNode::start_on(disk, cores, |config| {
        config.classes.retain(|class| &*class.name == "test");
        config.natives = vec![NativeConfig::queue("mail", queue)];
        change(config);
    })
}

fn send(node: &TestNode, queue: &str, body: &str) -> (u16, String) {
    node.post(&format!("/test/sender/queue-send?queue={queue}&body={body}"), "")
}

fn stats(node: &TestNode, queue: &str) -> String {
    let (status, body) = node.get(&format!("/test/asker/queue-stats?queue={queue}"));
    assert_eq!(status, 200, "{body}");
    body
}

fn is(node: &TestNode, queue: &str, what: &str) -> bool {
    stats(node, queue).contains(what)
}

/// What the consumer got of one queue, sorted.
fn got(node: &TestNode, queue: &str) -> Vec<String> {
    let (_, keys) = node.get("/test/consumer/read");
    keys.lines().filter_map(|key| key.strip_prefix(&format!("got:{queue}:"))).map(str::to_owned).collect()
}

fn name_on(core: usize, cores: usize, class: &str) -> String {
    let core_of = |name: &str| wasmkeep::router::core_of(&Address::new(class, name), cores);
    (0..).map(|n| format!("n{n}")).find(|name| core_of(name) == core).expect("one of a few")
}

#[test]
fn what_is_sent_is_delivered_once_and_settled_and_the_queue_is_empty() {
    for cores in [1, 2] {
        let node = start(None, cores, pushed(), |_| {});
        for core in 0..cores {
            let queue = format!("mail/{}", name_on(core, cores, "mail"));
            assert_eq!(send(&node, &queue, "hello"), (200, "1".into()));
            until("it is delivered", || got(&node, &queue) == ["1:hello"]);
            until("it is settled", || is(&node, &queue, "\"live\":0"));
            assert!(is(&node, &queue, "\"acked\":1") && is(&node, &queue, "\"dead\":0"), "{}", stats(&node, &queue));
        }
    }
}

#[test]
fn a_request_that_is_refused_says_so_and_harms_nobody() {
    let node = start(None, 1, Config::default(), |_| {});
    let (status, body) = node.get("/test/asker/queue-nonsense?queue=mail/pull");
    assert_eq!(status, 400, "{body}");
    assert_eq!(send(&node, "mail/pull", "a").0, 200);
    assert!(is(&node, "mail/pull", "\"live\":1"));
}

#[test]
fn what_the_consumer_fails_is_tried_again_later_and_dead_lettered_after_its_last_attempt() {
    let node = start(None, 1, Config { max_attempts: 2, ..pushed() }, |_| {});
    assert_eq!(node.post("/test/consumer/durable-insert?key=fail&value=1", "").0, 200);
    assert_eq!(send(&node, "mail/a", "bad").0, 200);
    until("it was tried", || is(&node, "mail/a", "\"retried\":1"));
    assert!(is(&node, "mail/a", "\"live\":1"));
    until("it is dead", || is(&node, "mail/a", "\"dead\":1"));
    assert!(is(&node, "mail/a", "\"live\":0"), "{}", stats(&node, "mail/a"));
    assert_eq!(got(&node, "mail/a"), [""; 0]);
}

#[test]
fn what_was_acknowledged_survives_a_crash_and_a_changed_number_of_cores_and_is_delivered() {
    let disk = TestDisk::sim();
    let queue = Config { visibility_ms: 500, max_attempts: 100, ..pushed() };
    let mut node = start(Some(&disk), 2, queue, |_| {});
    assert_eq!(node.post("/test/consumer/durable-insert?key=fail&value=1", "").0, 200);
    let queues: Vec<_> = (0..2).map(|core| format!("mail/{}", name_on(core, 2, "mail"))).collect();
    for queue in &queues {
        assert_eq!(send(&node, queue, "kept").0, 200);
    }
    let crashed = disk.crashed(3);
    node.abort();
    node.disk = Some(crashed);
    node.config.cores = 1;
    node.again();
    assert_eq!(node.post("/test/consumer/sql", r#"[{"op":"exec_durable","sql":"DELETE FROM kept WHERE key = 'fail'"}]"#).0, 200);
    // Nobody touches the queues: it is their alarms that were kept.
    for queue in &queues {
        until("it is delivered", || got(&node, queue) == ["1:kept"]);
    }
}

#[test]
fn a_clean_restart_keeps_what_waits_for_its_time() {
    let mut node = start(None, 1, pushed(), |_| {});
    assert_eq!(node.post("/test/sender/queue-send?queue=mail/a&body=later&delay-ms=1500", "").0, 200);
    node.again();
    assert_eq!(got(&node, "mail/a"), [""; 0]);
    until("it is delivered", || got(&node, "mail/a") == ["1:later"]);
}

#[test]
fn outsiders_are_refused_before_there_is_a_queue_and_so_is_who_is_not_allowed() {
    let node = start(None, 1, Config::default(), |config| {
        config.natives[0].allow = vec!["test/sender".into()];
    });
    let (status, body) = node.post("/mail/a/wasmkeep-queue/v1/stats", "");
    assert_eq!((status, body.contains("\"type\":\"forbidden\"")), (403, true), "{body}");
    let (status, body) = node.get("/test/other/queue-stats?queue=mail/a");
    assert_eq!((status, body.contains("forbidden")), (502, true), "{body}");
    let mut admin = Client::connect(node.admin());
    let (_, list) = admin.send("GET", "/admin/actors?class=mail", "");
    assert!(!list.contains("mail/a"), "{list}");
    assert_eq!(send(&node, "mail/a", "m").0, 200);
}

#[test]
fn a_send_is_answered_when_it_is_durable_and_many_share_one_group() {
    let disk = TestDisk::sim();
    let node = start(Some(&disk), 1, Config::default(), |_| {});
    assert_eq!(send(&node, "mail/a", "first").0, 200);
    for n in 0..20 {
        assert_eq!(node.get(&format!("/test/s{n}/self")).0, 200);
    }
    disk.pause();
    let before = disk.count();
    let mut clients: Vec<_> = (0..20).map(|_| node.client()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.start("POST", &format!("/test/s{n}/queue-send?queue=mail/a&body=m{n}"), "").expect("sends");
    }
    let mut reader = node.client();
    until("all have been done", || node.metric("wasmkeep_events_total{class=\"mail\"") >= 21.0);
    reader.start("GET", "/test/asker/queue-stats?queue=mail/a", "").expect("sends");
    until("it was read", || node.metric("wasmkeep_events_total{class=\"mail\"") >= 22.0);
    assert!(clients.iter_mut().all(|client| !client.has_answer()) && !reader.has_answer());
    assert!(disk.count() - before <= 4, "{} groups", disk.count() - before);
    disk.release();
    for client in &mut clients {
        assert_eq!(client.answer().expect("an answer").0, 200);
    }
    assert!(reader.answer().expect("an answer").1.contains("\"live\":21"));
}

#[test]
fn what_a_failed_group_took_with_it_is_unknown_and_the_queue_goes_on_from_what_is_durable() {
    let disk = TestDisk::sim();
    let node = start(Some(&disk), 1, Config::default(), |_| {});
    assert_eq!(send(&node, "mail/a", "first").0, 200);
    disk.pause();
    let mut lost = node.client();
    lost.start("POST", "/test/sender/queue-send?queue=mail/a&body=lost", "").expect("sends");
    until("it has been done", || node.metric("wasmkeep_events_total{class=\"mail\"") >= 2.0);
    disk.fail();
    let (status, body) = lost.answer().expect("an answer");
    assert_eq!((status, body.contains("unknown-outcome")), (503, true), "{body}");
    assert!(is(&node, "mail/a", "\"live\":1"));
    assert_eq!(send(&node, "mail/a", "second").0, 200);
    assert!(is(&node, "mail/a", "\"live\":2"));
}

#[test]
fn sends_are_taken_while_a_batch_is_out_and_only_so_many_are_out_at_once() {
    let node = start(None, 1, Config { batch: 1, concurrency: 2, ..pushed() }, |_| {});
    assert_eq!(node.post("/test/consumer/durable-insert?key=sleep-ms&value=300", "").0, 200);
    for n in 0..4 {
        assert_eq!(send(&node, "mail/a", &format!("m{n}")).0, 200);
    }
    assert!(is(&node, "mail/a", "\"leased\":2") || is(&node, "mail/a", "\"acked\":1"), "{}", stats(&node, "mail/a"));
    until("all are delivered", || is(&node, "mail/a", "\"acked\":4"));
    assert_eq!(got(&node, "mail/a"), ["1:m0", "2:m1", "3:m2", "4:m3"]);
}

#[test]
fn the_operators_statement_is_run_and_an_idle_queue_leaves_memory() {
    let node = start(None, 1, Config::default(), |config| config.budgets.idle = Duration::from_millis(200));
    assert_eq!(send(&node, "mail/a", "gone").0, 200);
    let mut admin = Client::connect(node.admin());
    let sql = r#"{"sql":"DELETE FROM wasmkeep_queue"}"#;
    let (status, body) = admin.send("POST", "/admin/actors/mail/a/sql", sql);
    assert_eq!(status, 200, "{body}");
    assert!(is(&node, "mail/a", "\"live\":0"));
    until("it sleeps", || admin.send("GET", "/admin/actors/mail/a", "").1.contains("asleep"));
    assert_eq!(send(&node, "mail/a", "again").0, 200);
}

#[test]
fn whoever_finds_no_room_is_told_so_and_those_beside_it_are_served() {
    let node = start(None, 1, Config::default(), |config| config.budgets.database_bytes = 1024 * 1024);
    let big = "b".repeat(50_000);
    let mut clients: Vec<_> = (0..12).map(|_| node.client()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        let (body, copies) = if n % 4 == 0 { (big.as_str(), 40) } else { ("small", 1) };
        let path = format!("/test/s{n}/queue-send?queue=mail/a&copies={copies}&body={body}");
        client.start("POST", &path, "").expect("sends");
    }
    for (n, client) in clients.iter_mut().enumerate() {
        let (status, body) = client.answer().expect("an answer");
        assert_eq!(status, if n % 4 == 0 { 507 } else { 200 }, "{n}: {body}");
    }
    assert!(is(&node, "mail/a", "\"live\":9"), "{}", stats(&node, "mail/a"));
}

#[test]
fn who_handles_a_batch_may_send_to_the_queue_that_it_came_from() {
    for cores in [1, 2] {
        let node = start(None, cores, pushed(), |_| {});
        let consumer_on = wasmkeep::router::core_of(&Address::new("test", "consumer"), cores);
        let queue = format!("mail/{}", name_on(cores - 1 - consumer_on, cores, "mail"));
        assert_eq!(send(&node, &queue, "send-back").0, 200);
        until("both are delivered", || got(&node, &queue) == ["1:send-back", "2:sent-back"]);
        until("both are settled", || is(&node, &queue, "\"acked\":2"));
    }
}
