//! Alarms on a whole node: at least once, after restarts and kills too, tried again until they succeed.

mod common;

use std::time::Duration;

use common::disk::TestDisk;
use common::process::{Process, serve};
use common::{Client, TestNode, until};

fn start(cores: usize) -> TestNode {
    TestNode::start_with(cores, |config| {
        config.classes.retain(|class| &*class.name == "test");
        config.budgets.idle = Duration::from_millis(100);
    })
}

fn text(node: &TestNode, path: &str) -> String {
    let (status, body) = node.get(path);
    assert_eq!(status, 200, "{path}: {body}");
    body
}

fn set(node: &TestNode, actor: &str, in_ms: u64) {
    assert_eq!(node.post(&format!("/test/{actor}/alarm-set?in-ms={in_ms}"), "").0, 204);
}

fn alarms(node: &TestNode, actor: &str) -> u64 {
    text(node, &format!("/test/{actor}/alarms")).parse().expect("a number")
}

fn is_set(node: &TestNode, actor: &str) -> bool {
    text(node, &format!("/test/{actor}/alarm-get")) == "{\"set\":true}"
}

fn plan(node: &TestNode, actor: &str, key: &str, value: u64) {
    assert_eq!(node.post(&format!("/test/{actor}/durable-insert?key={key}&value={value}"), "").0, 200);
}

#[test]
fn an_alarm_comes_once_when_it_is_due_to_a_sleeping_actor_too_and_is_cleared_then() {
    let node = start(1);
    set(&node, "soon", 0);
    set(&node, "later", 700);
    assert!(is_set(&node, "later"));
    until("the first comes", || alarms(&node, "soon") == 1);
    assert_eq!(alarms(&node, "later"), 0, "it is not due yet");
    // Asked rarely enough that it sleeps in between: it must not be asking that wakes it.
    until("all sleep", || node.metric("wasmkeep_actors{core=\"0\",state=\"loaded\"}") < 0.5);
    until("the second comes", || node.metric("wasmkeep_events_total{class=\"test\",kind=\"alarm\",outcome=\"ok\"") > 1.5);
    assert_eq!((alarms(&node, "later"), alarms(&node, "soon")), (1, 1));
    assert_eq!((is_set(&node, "later"), is_set(&node, "soon")), (false, false));
}

#[test]
fn setting_replaces_clearing_removes_and_a_trap_undoes_both() {
    let node = start(1);
    set(&node, "a", 0);
    until("it comes", || alarms(&node, "a") == 1);
    set(&node, "a", 3_600_000);
    set(&node, "a", 0);
    until("the new time counts", || alarms(&node, "a") == 2);
    assert_eq!(node.post("/test/a/alarm-set-and-trap?in-ms=0", "").0, 500);
    assert!(!is_set(&node, "a"), "the event that set it failed");
    set(&node, "a", 3_600_000);
    assert_eq!(node.post("/test/a/alarm-clear", "").0, 204);
    assert!(!is_set(&node, "a"));
    // An alarm of another actor that is set later and comes shows that theirs would have come.
    set(&node, "b", 0);
    until("another's comes", || alarms(&node, "b") == 1);
    assert_eq!(alarms(&node, "a"), 2);
}

#[test]
fn an_alarm_that_sets_itself_anew_comes_again_and_again() {
    let node = start(1);
    plan(&node, "cron", "alarm-again-ms", 20);
    set(&node, "cron", 0);
    until("it comes often", || alarms(&node, "cron") >= 5);
    assert_eq!(node.post("/test/cron/alarm-clear", "").0, 204);
}

#[test]
fn an_alarm_that_fails_comes_again_with_its_attempts_counted_over_restarts_and_what_it_did_to_itself_undone() {
    let mut node = start(2);
    plan(&node, "a", "alarm-fails", 2);
    set(&node, "a", 0);
    until("it has failed once", || text(&node, "/test/a/alarm-attempts") == "0");
    assert!(is_set(&node, "a"), "it will come again");
    node.config.cores = 1;
    node.again();
    until("it succeeds", || alarms(&node, "a") == 1);
    assert_eq!(text(&node, "/test/a/alarm-attempts"), "0 1 2");
    assert!(!is_set(&node, "a"));
}

#[test]
fn alarms_that_came_due_while_the_node_was_down_come_once_after_it_starts_and_cleared_ones_do_not() {
    let mut node = start(2);
    for actor in ["a", "b", "c", "d"] {
        set(&node, actor, 300);
    }
    assert_eq!(node.post("/test/d/alarm-clear", "").0, 204);
    node.stop();
    std::thread::sleep(Duration::from_millis(400));
    for cores in [1, 8] {
        node.config.cores = cores;
        node.again();
        for actor in ["a", "b", "c"] {
            until("it comes", || alarms(&node, actor) == 1);
        }
    }
    assert_eq!(alarms(&node, "d"), 0);
}

#[test]
fn an_alarm_that_was_acknowledged_survives_a_kill() {
    let data = tempfile::tempdir().expect("a directory");
    let run = || Process::start(serve(data.path(), "test_guest", &["--cores", "1", "--journal-mb", "64"]));
    let mut node = run();
    for n in 0..20 {
        let path = format!("/test-guest/a{n}/alarm-set?in-ms=500");
        assert_eq!(Client::connect(node.http).send("POST", &path, "").0, 204);
    }
    node.kill();
    let node = run();
    for n in 0..20 {
        let path = format!("/test-guest/a{n}/alarms");
        until("it comes", || Client::connect(node.http).send("GET", &path, "").1 == "1");
    }
}

#[test]
fn whoever_is_told_that_an_alarm_is_set_waits_until_that_is_durable_and_a_lost_one_is_as_if_it_had_never_been() {
    let disk = TestDisk::sim();
    let node = TestNode::start_on(Some(&disk), 1, |config| config.classes.retain(|class| &*class.name == "test"));
    assert_eq!((node.get("/test/a/alarms").0, node.get("/test/other/self").0), (200, 200));
    disk.pause();
    let mut client = node.client();
    client.start("POST", "/test/a/alarm-set?in-ms=3600000", "").expect("sends");
    until("the event ends", || node.metric("wasmkeep_events_total{class=\"test\",kind=\"request\",outcome=\"ok\"") > 2.5);
    assert_eq!(node.get("/test/other/self").0, 200);
    assert!(!client.has_answer());
    disk.fail();
    let (status, body) = client.answer().expect("answers");
    assert_eq!((status, body.contains("unknown-outcome")), (503, true), "{body}");
    until("it serves again", || node.get("/test/a/alarm-get").0 == 200);
    assert!(!is_set(&node, "a"));
    set(&node, "a", 0);
    until("alarms come again", || alarms(&node, "a") == 1);
}
