//! Ten thousand actors on one node, in a process of its own: all answer, all hibernate, its memory is back, and they answer again.

mod common;

use common::process::{Process, serve};
use common::{Client, guest, until};

const ACTORS: usize = 10_000;
const CLIENTS: usize = 8;
const MB: u64 = 1024 * 1024;

/// The sum of a gauge over all cores, of one state.
fn loaded(node: &Process) -> f64 {
    let (_, page) = Client::connect(node.admin).send("GET", "/metrics", "");
    let lines = page.lines().filter(|line| line.starts_with("wasmkeep_actors{") && line.contains("loaded"));
    lines.map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a value")).sum()
}

fn until_all_sleep(node: &Process) {
    until("all sleep", || loaded(node) < 0.5);
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
    let cores = cores.to_string();
    let mut command = serve(data.path(), "counter", &["--io", io, "--idle", "1s", "--cores", &cores, "--journal-mb", "64"]);
    for class in ["test_guest", "notes", "hello_http"] {
        command.arg("--actor").arg(format!("{}={}", class.replace('_', "-"), guest(class).display()));
    }
    let node = Process::start(command);
    for path in ["/test-guest/first/none", "/counter/first", "/notes/first", "/hello-http/first"] {
        let (status, body) = Client::connect(node.http).send("GET", path, "");
        assert!(matches!(status, 200 | 404), "{path}: {status} {body}");
    }
    let before = node.resident_bytes();
    let allowed = before * 6 / 5 + 32 * MB;
    for count in 1..=2 {
        add_to_all(&node, &format!("{{\"count\":{count}}}"));
        let awake = node.resident_bytes();
        until_all_sleep(&node);
        let what = format!("{} MB while awake are at most {} MB, with {} MB before", awake / MB, allowed / MB, before / MB);
        until(&what, || node.resident_bytes() <= allowed);
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
