//! Tests of shards, and the host they run under: one transaction per request, a file whose last durable image a crash goes back to.

mod caching;
mod expiring;
mod failing;
mod listing;
mod model;
mod moves;
mod once;
mod plans;
mod sleeping;
mod versions;
mod wire;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;

use super::client::{self, Call, Error};
use super::merge::OwnedListed;
use super::protocol::{Expect, Found, List, Options, Outcome, Write};
use super::{Config, Machine, Shards, Swept};
use crate::database::DatabaseError;
use crate::host::{Effect, Reply, Request};
use crate::testing::Memory;

/// Where tests begin, ms.
const START: u64 = 1_000_000_000;

/// Who asks, unless said otherwise.
const CALLER: &str = "web/main";

/// A host of one shard with its own clock.
struct Host {
    memory: Memory,
    machine: Machine,
    config: Config,
    now: u64,
    path: PathBuf,
    /// The database as of the last durable request.
    image: Vec<u8>,
    /// What was done since a test set it to `Read`.
    effect: Effect,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn connect(path: &Path) -> Memory {
    let connection = Connection::open(path).expect("opens");
    connection
        .execute_batch(
            "PRAGMA page_size = 512; PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF",
        )
        .expect("runs");
    connection.set_prepared_statement_cache_capacity(128);
    Memory { connection }
}

fn shards() -> Shards {
    Shards::new(1).expect("is valid")
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Write<'a> {
    Write::Put { key, value, expect: Expect::Any, ttl_ms: None }
}

/// A row as a test looks at it: value, version, what is left of its time.
type Seen = Option<(Vec<u8>, i64, Option<u64>)>;

fn seen(found: Option<Found<'_>>) -> Seen {
    found.map(|found| (found.value.to_vec(), found.version, found.ttl_ms))
}

impl Host {
    fn new() -> Self {
        Self::with(Config::default())
    }

    fn with(config: Config) -> Self {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let name = format!("wasmkeep-kv-{}-{}.sqlite", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
        // In memory where there is such a place: thousands of lives are lived here.
        let memory = Path::new("/dev/shm");
        let path = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }.join(name);
        let mut memory = connect(&path);
        memory.connection.execute_batch("BEGIN").expect("runs");
        let machine = Machine::open(&mut memory, config, START).expect("opens");
        memory.connection.execute_batch("COMMIT").expect("runs");
        let image = std::fs::read(&path).expect("there is a file");
        Self { memory, machine, config, now: START, path, image, effect: Effect::Read }
    }

    fn sql(&self, sql: &str) {
        self.memory.connection.execute_batch(sql).expect("runs");
    }

    fn number(&self, sql: &str) -> i64 {
        self.memory.connection.query_row(sql, [], |row| row.get(0)).expect("runs")
    }

    fn keep(&mut self, effect: Effect) {
        self.effect = self.effect.max(effect);
        if effect == Effect::Durable {
            self.image.clear();
            let mut file = std::fs::File::open(&self.path).expect("there is a file");
            std::io::Read::read_to_end(&mut file, &mut self.image).expect("reads");
        }
    }

    fn handle(&mut self, path: &str, body: &[u8], caller: &str) -> Reply {
        self.sql("BEGIN; SAVEPOINT one");
        let request = Request { path, body, caller };
        let reply = self.machine.handle(&mut self.memory, self.now, request).expect("the database works");
        self.sql("RELEASE one; COMMIT");
        self.keep(reply.effect);
        reply
    }

    fn call(&mut self, call: &Call) -> Reply {
        self.handle(call.path, &call.body, CALLER)
    }

    /// As an operator.
    fn operate(&mut self, call: &Call) -> Reply {
        self.handle(call.path, &call.body, "_operator/cli")
    }

    /// Handles a request and takes it back.
    fn undone(&mut self, call: &Call) {
        self.sql("BEGIN; SAVEPOINT one");
        let state = self.machine.state();
        let request = Request { path: call.path, body: &call.body, caller: CALLER };
        self.machine.handle(&mut self.memory, self.now, request).expect("the database works");
        self.sql("ROLLBACK TO one; RELEASE one; COMMIT");
        self.machine.restore(state);
    }

    /// Opens the shard again, as after it slept.
    fn wake(&mut self) {
        self.sql("BEGIN");
        self.machine = Machine::open(&mut self.memory, self.config, self.now).expect("opens");
        self.sql("COMMIT");
    }

    /// Goes back to what was durable and opens the shard again.
    fn crash(&mut self) {
        self.memory = Memory::new();
        std::fs::write(&self.path, &self.image).expect("writes");
        self.memory = connect(&self.path);
        self.wake();
    }

    fn write(&mut self, write: &Write<'_>, options: Options<'_>) -> Reply {
        self.call(&client::write(shards(), write, options).expect("is valid"))
    }

    fn put_with(&mut self, key: &[u8], value: &[u8], expect: Expect, ttl_ms: Option<u64>) -> Result<i64, Error> {
        let reply = self.write(&Write::Put { key, value, expect, ttl_ms }, Options::new());
        client::put(reply.status, &reply.body)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> i64 {
        self.put_with(key, value, Expect::Any, None).expect("is put")
    }

    fn delete(&mut self, key: &[u8], expect: Expect) -> Result<bool, Error> {
        let reply = self.write(&Write::Delete { key, expect }, Options::new());
        client::deleted(reply.status, &reply.body)
    }

    fn increment(&mut self, key: &[u8], delta: i64) -> Result<(i64, i64), Error> {
        let reply = self.write(&Write::Increment { key, delta }, Options::new());
        client::incremented(reply.status, &reply.body)
    }

    fn write_many(&mut self, writes: &[Write<'_>], is_atomic: bool) -> Result<Vec<Outcome>, Error> {
        let reply = self.call(&client::write_many(shards(), writes, is_atomic, Options::new()).expect("is valid"));
        client::written_many(reply.status, &reply.body)
    }

    fn get(&mut self, key: &[u8]) -> Seen {
        let reply = self.call(&client::get(shards(), key).expect("is valid"));
        assert_eq!(reply.effect, Effect::Read);
        seen(client::got(reply.status, &reply.body).expect("got"))
    }

    fn value(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        self.get(key).map(|(value, ..)| value)
    }

    fn page(&mut self, list: &List<'_>) -> (Vec<OwnedListed>, bool) {
        let reply = self.call(&client::list(shards(), list).expect("is valid"));
        assert_eq!(reply.effect, Effect::Read);
        let page = client::listed(reply.status, &reply.body).expect("a page");
        (page.rows.iter().map(OwnedListed::from).collect(), page.has_more)
    }

    fn keys(&mut self, prefix: &[u8], after: Option<&[u8]>, limit: u32) -> (Vec<Vec<u8>>, bool) {
        let (rows, has_more) = self.page(&List { prefix, after, limit, values: false });
        (rows.into_iter().map(|row| row.key).collect(), has_more)
    }

    fn count(&mut self) -> u64 {
        let reply = self.call(&client::count(shards()));
        client::counted(reply.status, &reply.body).expect("counted")
    }

    /// Lets the alarm fire now.
    fn fire(&mut self) -> Swept {
        self.sql("BEGIN");
        let swept = self.machine.on_alarm(&mut self.memory, self.now).expect("the database works");
        self.sql("COMMIT");
        self.keep(swept.effect);
        swept
    }

    /// Rows in the table, past their time or not.
    fn rows(&self) -> i64 {
        self.number("SELECT count(*) FROM wasmkeep_kv")
    }
}

#[test]
fn a_shard_keeps_what_it_is_given() {
    let mut host = Host::new();
    let first = host.put(b"a", b"1");
    let second = host.put(b"a", b"2");
    assert!(second > first && first > 0);
    assert_eq!(host.get(b"a"), Some((b"2".to_vec(), second, None)));
    assert_eq!((host.get(b"b"), host.value(b"A")), (None, None));
    host.put(b"empty", b"");
    assert_eq!((host.value(b"empty"), host.count()), (Some(Vec::new()), 2));
}

#[test]
fn the_tables_are_those_that_are_promised() {
    let host = Host::new();
    let ddl: String = host
        .memory
        .connection
        .query_row("SELECT sql FROM sqlite_schema WHERE name = 'wasmkeep_kv'", [], |row| row.get(0))
        .expect("there is one");
    let promised = "CREATE TABLE wasmkeep_kv (key BLOB PRIMARY KEY, value BLOB NOT NULL,
                         version INTEGER NOT NULL, expires_at INTEGER) WITHOUT ROWID";
    assert_eq!(ddl, promised);
    assert_eq!(host.number("SELECT seq FROM wasmkeep_kv_meta"), 0);
}

#[test]
fn a_configuration_out_of_range_is_refused() {
    for operation_window_ms in [0, 7 * 24 * 3_600_000 + 1, u64::MAX] {
        let opened = Machine::open(&mut Memory::new(), Config { operation_window_ms, ..Config::default() }, START);
        assert!(matches!(opened, Err(DatabaseError::Other(words)) if words.contains("must be from 1 to")));
    }
}
