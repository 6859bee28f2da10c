//! One actor's event over loopback HTTP: warm, out of sleep (row A1), and the first one of its life.
//!
//! Latencies are those of the client, so a wake's holds the request and its answer too; the node's own `wasmkeep_wake_seconds`
//! tells the part that is the wake.

use std::path::Path;

use hdrhistogram::Histogram;
use tempfile::TempDir;
use wasmkeep_storage::clock::Clock;

use crate::machine::{histogram, pin_to_last_cpu};
use crate::node::{Client, Node};

/// Rows of one actor's database: with their values and the key's index, more than 1 MB.
const ROWS: u32 = 1000;
const VALUE_BYTES: u32 = 1000;

/// A node whose actors have a database of 1 MB each, asleep, everything in base files, which the page cache holds.
#[derive(Debug)]
pub struct Sleepers {
    node: Node,
    client: Client,
    actors: usize,
    next: usize,
    news: usize,
    _data: TempDir,
}

impl Sleepers {
    /// Makes them.
    #[must_use]
    pub fn new(actors: usize) -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let node = Node::start(data.path(), &["--cores", "1"]);
        let mut client = node.client();
        let rows = format!(
            "INSERT INTO kept WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {ROWS}) \
             SELECT 'k' || x, hex(zeroblob({})) FROM n",
            VALUE_BYTES / 2
        );
        let statement = serde_json::json!([{ "op": "exec_durable", "sql": rows }]).to_string();
        for actor in 0..actors {
            let answer = client.ok("POST", &format!("/test/a{actor}/sql"), &statement);
            assert!(answer.contains(&format!("\"changed\":{ROWS}")), "{answer}");
        }
        node.stop();
        assert_databases_of_a_megabyte(data.path(), actors);
        // Asleep as soon as a sweep looks.
        let node = Node::start(data.path(), &["--cores", "1", "--idle", "100ms"]);
        let client = node.client();
        Self { node, client, actors, next: actors, news: 0, _data: data }
    }

    /// Wakes so many and returns the latencies, µs, and how many wakes the node counted meanwhile.
    pub fn wake(&mut self, wakes: usize) -> (Histogram<u64>, f64) {
        let counted = self.node.metric("wasmkeep_wake_seconds_count", "test");
        let mut latencies = histogram();
        for _ in 0..wakes {
            latencies.saturating_record(self.wake_one() / 1000);
        }
        (latencies, self.node.metric("wasmkeep_wake_seconds_count", "test") - counted)
    }

    /// Wakes one, reading a row from the middle of its database; returns the latency, ns.
    pub fn wake_one(&mut self) -> u64 {
        if self.next >= self.actors {
            self.node.until_all_sleep();
            self.next = 0;
        }
        let path = format!("/test/a{}/read?key=k{}", self.next, ROWS / 2);
        self.next += 1;
        let (ns, answer) = timed(&mut self.client, "GET", &path);
        assert_eq!(answer.len(), VALUE_BYTES as usize, "{answer}");
        ns
    }

    /// Asks an actor that has never been before, whose `on-init` writes durably; returns the latency, ns.
    pub fn first_one(&mut self) -> u64 {
        self.news += 1;
        timed(&mut self.client, "GET", &format!("/counter/new{}", self.news)).0
    }
}

/// Warm events of one actor.
#[derive(Debug)]
pub struct Warm {
    client: Client,
    _node: Node,
    _data: TempDir,
}

impl Warm {
    /// Starts a node and wakes one actor.
    #[must_use]
    pub fn new() -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let node = Node::start(data.path(), &["--cores", "1"]);
        let mut client = node.client();
        client.ok("POST", "/counter/warm", "");
        Self { client, _node: node, _data: data }
    }

    /// One event that reads; its latency, ns.
    pub fn read(&mut self) -> u64 {
        timed(&mut self.client, "GET", "/counter/warm").0
    }

    /// One event that writes a row durably; its latency, ns.
    pub fn write(&mut self) -> u64 {
        timed(&mut self.client, "POST", "/counter/warm").0
    }
}

impl Default for Warm {
    fn default() -> Self {
        Self::new()
    }
}

fn timed(client: &mut Client, method: &str, path: &str) -> (u64, String) {
    let start_ns = Clock::System.monotonic_ns();
    let answer = client.ok(method, path, "");
    (Clock::System.monotonic_ns() - start_ns, answer)
}

fn assert_databases_of_a_megabyte(data: &Path, actors: usize) {
    let dirs = std::fs::read_dir(data.join("actors/test")).expect("the class has base files");
    let files = dirs.flat_map(|dir| std::fs::read_dir(dir.expect("an entry").path()).expect("a directory"));
    let sizes: Vec<u64> = files.map(|file| file.expect("an entry").metadata().expect("a file").len()).collect();
    assert!(sizes.len() == actors && sizes.iter().all(|bytes| *bytes >= 1_000_000), "{sizes:?}");
}

/// Row A1: so many wakes of a sleeping actor with a database of 1 MB; the client on the last processor.
#[must_use]
pub fn wakes(actors: usize, wakes: usize) -> Histogram<u64> {
    let mut sleepers = Sleepers::new(actors);
    let measure = || {
        pin_to_last_cpu();
        sleepers.wake(actors);
        sleepers.wake(wakes)
    };
    let (latencies, counted) = std::thread::scope(|scope| scope.spawn(measure).join().expect("measures"));
    #[expect(clippy::cast_precision_loss, reason = "a count of a bench")]
    let expected = wakes as f64;
    assert!((counted - expected).abs() < 0.5, "{counted} wakes were counted, {expected} events were sent to sleeping actors");
    latencies
}
