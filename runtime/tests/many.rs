//! Ten thousand actors on one node: all answer, all hibernate, all answer again.

mod common;

use std::time::Duration;

use common::{Client, TestNode, until};

const ACTORS: usize = 10_000;
const CLIENTS: usize = 8;

/// The sum of a gauge over all cores, of one state.
fn loaded(node: &TestNode) -> f64 {
    let (_, page) = Client::connect(node.admin()).send("GET", "/metrics", "");
    let lines = page.lines().filter(|line| line.starts_with("wasmkeep_actors{") && line.contains("loaded"));
    lines.map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a value")).sum()
}

#[test]
fn ten_thousand_actors_answer_hibernate_and_answer_again() {
    let node = TestNode::start_with(2, |config| config.budgets.idle = Duration::from_secs(1));
    assert_eq!(node.post("/counter/first", "").0, 200);
    until("the first one sleeps", || loaded(&node) < 0.5);
    let add_to_all = |expected: &str| {
        std::thread::scope(|scope| {
            for part in 0..CLIENTS {
                let mut client = node.client();
                scope.spawn(move || {
                    for actor in (part..ACTORS).step_by(CLIENTS) {
                        assert_eq!(client.send("POST", &format!("/counter/a{actor}"), ""), (200, expected.to_string()));
                    }
                });
            }
        });
    };
    add_to_all("{\"count\":1}");
    until("all sleep", || loaded(&node) < 0.5);
    add_to_all("{\"count\":2}");
}
