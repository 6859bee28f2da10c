//! Ten thousand actors on one node, in a process of its own: all answer, all hibernate, its memory is back, and they answer again.

mod common;

use std::time::Duration;

use common::Client;
use common::process::Process;

const ACTORS: usize = 10_000;
const CLIENTS: usize = 8;
const MB: u64 = 1024 * 1024;

/// The sum of a gauge over all cores, of one state.
fn loaded(node: &Process) -> f64 {
    let (_, page) = Client::connect(node.admin).send("GET", "/metrics", "");
    let lines = page.lines().filter(|line| line.starts_with("wasmkeep_actors{") && line.contains("loaded"));
    lines.map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a value")).sum()
}

/// Asks again and again until it is so.
fn until(what: impl Fn() -> String, is_so: impl Fn() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("a minute went by and still not: {}", what());
}

fn until_all_sleep(node: &Process) {
    until(|| format!("all sleep, {} are awake", loaded(node)), || loaded(node) < 0.5);
}

/// Every actor counts one further.
fn add_to_all(node: &Process, expected: &str) {
    std::thread::scope(|scope| {
        for part in 0..CLIENTS {
            let mut client = Client::connect(node.http);
            scope.spawn(move || {
                for actor in (part..ACTORS).step_by(CLIENTS) {
                    assert_eq!(client.send("POST", &format!("/counter/a{actor}"), ""), (200, expected.to_string()));
                }
            });
        }
    });
}

fn ten_thousand_actors_sleep_without_memory(io: &str, cores: usize) {
    let data = tempfile::tempdir().expect("a directory");
    let classes = [("test", "test_guest"), ("counter", "counter"), ("notes", "notes"), ("hello", "hello_http")];
    let node = Process::start(data.path(), io, cores, &classes);
    for path in ["/test/first/none", "/counter/first", "/notes/first", "/hello/first"] {
        let (status, body) = Client::connect(node.http).send("GET", path, "");
        assert!(matches!(status, 200 | 404), "{path}: {status} {body}");
    }
    let before = node.resident_bytes();
    let allowed = before * 6 / 5 + 32 * MB;
    for count in 1..=2 {
        add_to_all(&node, &format!("{{\"count\":{count}}}"));
        let awake = node.resident_bytes();
        until_all_sleep(&node);
        let what = || format!("{} MB are at most {} MB; {} MB before", node.resident_bytes() / MB, allowed / MB, before / MB);
        until(what, || node.resident_bytes() <= allowed);
        eprintln!("{} MB before, {} MB awake, {} MB asleep", before / MB, awake / MB, node.resident_bytes() / MB);
    }
    add_to_all(&node, "{\"count\":3}");
}

#[test]
fn ten_thousand_actors_answer_hibernate_give_their_memory_back_and_answer_again_on_two_cores() {
    ten_thousand_actors_sleep_without_memory("auto", 2);
}

#[test]
fn ten_thousand_actors_answer_hibernate_give_their_memory_back_and_answer_again_on_threads() {
    ten_thousand_actors_sleep_without_memory("threads", 1);
}
