//! Row A2: how much memory of a node an actor takes that it knows and that sleeps.
//!
//! Actors are made as clients make them: one HTTP request to each, which runs `on-init` and writes a row. The memory is the
//! private memory of the node's process in RAM, before and after, both times when all sleep and base files and catalogs have
//! everything. What comes before lets pools and allocators reach their size.

use std::time::Duration;

use tempfile::TempDir;
use wasmkeep_storage::clock::Clock;

use crate::machine::private_bytes;
use crate::node::Node;

/// The goals of row A2: bytes of a sleeping actor, and how many are known.
pub const SLEEPING_BYTES_MAX: f64 = 4096.0;
/// See `SLEEPING_BYTES_MAX`.
pub const KNOWN_MIN: u64 = 1_000_000;

const CLIENTS: u64 = 8;
/// Actors before the first measurement: more than may be awake at once.
const FIRST: u64 = 20_000;

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// How many actors were made between the two measurements.
    pub actors: u64,
    /// Private memory before, bytes.
    pub before_bytes: u64,
    /// Private memory after, bytes.
    pub after_bytes: u64,
    /// The same once the node was stopped and started again, before any actor was asked, bytes.
    pub restarted_bytes: u64,
    /// Actors made per second.
    pub rate: f64,
}

impl Known {
    /// Bytes per sleeping actor.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "bytes of one process")]
    pub fn bytes_each(&self) -> f64 {
        self.after_bytes.saturating_sub(self.before_bytes) as f64 / self.actors as f64
    }
}

/// Makes so many actors and measures.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts of a bench")]
pub fn known(actors: u64) -> Known {
    let data: TempDir = tempfile::tempdir().expect("a directory");
    let flags = ["--idle", "1s"];
    let node = Node::start(data.path(), &flags);
    let first = FIRST.min(actors);
    make(&node, 0..first);
    at_rest(&node);
    let before_bytes = private_bytes(node.pid());
    let start_ns = Clock::System.monotonic_ns();
    make(&node, first..first + actors);
    let rate = actors as f64 / Duration::from_nanos(Clock::System.monotonic_ns() - start_ns).as_secs_f64();
    at_rest(&node);
    let after_bytes = private_bytes(node.pid());
    // It knows them: the second event of each finds what the first one wrote.
    let mut client = node.client();
    for n in 0..1000_u64 {
        let actor = n * 7919 % (first + actors);
        assert_eq!(client.ok("GET", &format!("/counter/a{actor}"), ""), "{\"count\":1}", "a{actor}");
    }
    drop(client);
    node.stop();
    let node = Node::start(data.path(), &flags);
    let restarted_bytes = private_bytes(node.pid());
    Known { actors, before_bytes, after_bytes, restarted_bytes, rate }
}

fn make(node: &Node, actors: std::ops::Range<u64>) {
    std::thread::scope(|scope| {
        for part in 0..CLIENTS {
            let (mut client, actors) = (node.client(), actors.clone());
            scope.spawn(move || {
                for actor in actors.filter(|actor| actor % CLIENTS == part) {
                    client.ok("POST", &format!("/counter/a{actor}"), "");
                }
            });
        }
    });
}

/// Waits until all sleep, checkpoints have nothing left to write, and freed memory was given back.
fn at_rest(node: &Node) {
    node.until_all_sleep();
    let pages = || node.metric("wasmkeep_checkpoint_pages_total", "");
    let (mut before, mut quiet) = (pages(), 0);
    while quiet < 8 {
        std::thread::sleep(Duration::from_secs(1));
        let now = pages();
        quiet = if (now - before).abs() < 0.5 { quiet + 1 } else { 0 };
        before = now;
    }
}
