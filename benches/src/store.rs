//! Durable writes without a node: a core's store driven in process, and SQLite as its peer on the same disk.
//!
//! Both sides upsert one row of 100 bytes per commit, over 1,000 keys, on one thread.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use hdrhistogram::Histogram;
use wasmkeep_storage::clock::Clock;
use wasmkeep_storage::disk::background::Background;
use wasmkeep_storage::disk::os::OsFiles;
use wasmkeep_storage::disk::probe::{Io, IoMode};
use wasmkeep_storage::sql::EventBudget;
use wasmkeep_storage::store::{CoreDisk, CorePart, CoreStore, NodeStorage, NodeStorageOptions, Opened, Progress, StoreOptions};
use wasmkeep_storage::{Address, Lsn, Value};

use crate::machine::{cpu_us, histogram};

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS t (k INTEGER PRIMARY KEY, v BLOB NOT NULL)";
const UPSERT: &str = "INSERT INTO t VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET v = excluded.v";
const KEYS: i64 = 1000;
const VALUE_BYTES: usize = 100;

/// What one leg measured.
#[derive(Clone, Debug)]
pub struct Leg {
    /// Durable commits per second.
    pub rate: f64,
    /// Median latency of a commit, µs, counted from its start.
    pub p50_us: f64,
    /// The same, 99th percentile.
    pub p99_us: f64,
    /// CPU time per commit, µs, of the whole process.
    pub cpu_us: f64,
    /// Bytes of journal per commit; 0 for the peer.
    pub bytes: f64,
}

/// A core's store with open actors.
pub struct Core {
    store: CoreStore,
    actors: Vec<Opened>,
    clock: Clock,
    random: fastrand::Rng,
}

/// Opens the storage of core `core` of `cores` in `data`, as a node does, on a core's executor.
pub(crate) fn open_store(data: &Path, (core, cores): (usize, usize), part: CorePart, journal_bytes_max: u64) -> CoreStore {
    let clock = Clock::System;
    let io = Io::choose(&data.join("journal"), IoMode::Auto, &clock).expect("a way to the disk");
    let thread = |name| Background::thread(name, OsFiles::shared()).expect("a thread");
    let (segments, checkpoints) = (thread("segments"), thread("base"));
    let disk = CoreDisk { files: OsFiles::shared(), backend: io.open().expect("opens"), segments, checkpoints };
    let options = StoreOptions {
        data: data.to_owned(),
        core,
        cores,
        clock,
        database_bytes_max: 1 << 30,
        journal_bytes_max,
        segment_bytes: None,
        accept_journal_loss: false,
    };
    CoreStore::open(options, part, disk).expect("opens")
}

/// Lets everything that was committed become durable.
pub(crate) async fn settle(store: &CoreStore) {
    store.cut();
    while store.durable() < store.newest() {
        progress(store).await;
        store.cut();
    }
}

/// Waits until more is durable, or there is room again.
pub(crate) async fn progress(store: &CoreStore) {
    match poll_fn(|cx| store.poll_progress(cx)).await {
        Progress::Durable(_) => {}
        other => panic!("the journal failed: {other:?}"),
    }
}

impl Core {
    /// Opens a store in `data`, which must be empty, with so many actors.
    pub async fn open(data: &Path, actors: usize) -> Self {
        let node = NodeStorageOptions { data: data.to_owned(), cores: 1, incarnation: 1, accept_journal_loss: false };
        let part = NodeStorage::recover(&OsFiles::shared(), &node).expect("recovers").remove(0);
        std::fs::create_dir_all(data.join("journal")).expect("a directory");
        let clock = Clock::System;
        let store = open_store(data, (0, 1), part, 256 << 20);
        store.started().await.expect("starts");
        tokio::task::spawn_local(store.clone().run_checkpoints());
        let swept = store.clone();
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                swept.sweep();
            }
        });
        let open = |n| {
            let budget = Rc::new(EventBudget::new(Clock::System, u64::MAX));
            store.open_actor(&Address::new("bench", &format!("a{n}")), budget).expect("opens")
        };
        let actors: Vec<_> = (0..actors).map(open).collect();
        for actor in &actors {
            actor.connection.exec(SCHEMA, &[], true).await.expect("runs");
            for key in 0..KEYS {
                upsert(actor, key, 0).await;
            }
        }
        let core = Self { store, actors, clock, random: fastrand::Rng::with_seed(1) };
        settle(&core.store).await;
        core
    }

    /// Commits for so long with so many outstanding.
    pub async fn run(&mut self, outstanding: usize, duration: Duration) -> Leg {
        let end_ns = self.clock.monotonic_ns() + u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.run_while(outstanding, |_, now_ns| now_ns < end_ns).await
    }

    /// Commits so often with so many outstanding.
    pub async fn run_commits(&mut self, outstanding: usize, commits: u64) -> Leg {
        self.run_while(outstanding, |done, _| done < commits).await
    }

    async fn run_while(&mut self, outstanding: usize, more: impl Fn(u64, u64) -> bool) -> Leg {
        let (start_ns, start_cpu, start_bytes) = (self.clock.monotonic_ns(), cpu_us(), self.store.stats().journal_written_bytes);
        let mut waiting: VecDeque<(Lsn, u64)> = VecDeque::new();
        let mut latency = histogram();
        let (mut started, mut now_ns) = (0_u64, start_ns);
        loop {
            // As a node's events do: they wait for room.
            while waiting.len() < outstanding && more(started, now_ns) && self.store.has_room() {
                let index = usize::try_from(started).unwrap_or(0) % self.actors.len();
                now_ns = self.clock.monotonic_ns();
                upsert(&self.actors[index], self.random.i64(0..KEYS), self.random.u64(..)).await;
                waiting.push_back((self.actors[index].connection.positions().gate, now_ns));
                started += 1;
                self.store.end_run();
            }
            self.store.cut();
            if waiting.is_empty() && !more(started, now_ns) {
                break;
            }
            progress(&self.store).await;
            now_ns = self.clock.monotonic_ns();
            let durable = self.store.durable();
            while waiting.front().is_some_and(|(lsn, _)| *lsn <= durable) {
                if let Some((_, since_ns)) = waiting.pop_front() {
                    latency.saturating_record((now_ns - since_ns) / 1000);
                }
            }
        }
        let written = self.store.stats().journal_written_bytes - start_bytes;
        leg(started, self.clock.monotonic_ns() - start_ns, cpu_us() - start_cpu, &latency, written)
    }
}

/// A value made of a number: rows that are written again differ from what they were in all their bytes.
fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().repeat(VALUE_BYTES.div_ceil(8));
    value.truncate(VALUE_BYTES);
    value
}

async fn upsert(actor: &Opened, key: i64, number: u64) {
    let value = Value::Blob(value(number));
    actor.connection.exec(UPSERT, &[Value::Integer(key), value], true).await.expect("commits");
}

/// SQLite with WAL and `synchronous=FULL`: one commit at a time, each synced. With more outstanding the others queue, so the
/// latency of one is that of all before it.
pub fn peer(data: &Path, outstanding: usize, duration: Duration) -> Leg {
    let clock = Clock::System;
    let database = rusqlite::Connection::open(data.join("peer.sqlite")).expect("opens");
    database.pragma_update(None, "journal_mode", "WAL").expect("sets");
    database.pragma_update(None, "synchronous", "FULL").expect("sets");
    database.execute_batch(SCHEMA).expect("runs");
    let mut statement = database.prepare(UPSERT).expect("prepares");
    let mut random = fastrand::Rng::with_seed(1);
    let mut latency = histogram();
    let (start_ns, start_cpu) = (clock.monotonic_ns(), cpu_us());
    let end_ns = start_ns + u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let mut waiting: VecDeque<u64> = std::iter::repeat_n(start_ns, outstanding).collect();
    let (mut now_ns, mut done) = (start_ns, 0);
    while now_ns < end_ns {
        statement.execute(rusqlite::params![random.i64(0..KEYS), value(random.u64(..))]).expect("commits");
        now_ns = clock.monotonic_ns();
        if let Some(since_ns) = waiting.pop_front() {
            latency.saturating_record((now_ns - since_ns) / 1000);
        }
        waiting.push_back(now_ns);
        done += 1;
    }
    leg(done, now_ns - start_ns, cpu_us() - start_cpu, &latency, 0)
}

#[expect(clippy::cast_precision_loss, reason = "rates and averages of a bench")]
fn leg(commits: u64, ns: u64, cpu_us: f64, latency: &Histogram<u64>, bytes: u64) -> Leg {
    Leg {
        rate: commits as f64 / (ns as f64 / 1e9),
        p50_us: latency.value_at_quantile(0.5) as f64,
        p99_us: latency.value_at_quantile(0.99) as f64,
        cpu_us: cpu_us / commits as f64,
        bytes: bytes as f64 / commits as f64,
    }
}
