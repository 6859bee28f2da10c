//! What one commit costs before it reaches a journal: `commit_cost [commits] [databases]`.
//!
//! One-row upserts of 100 bytes, each its own transaction, on one connection per database, to a sink that only counts. Prints
//! CPU time and record bytes per commit. `callgrind` sees the same loop.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use wasmkeep_storage::clock::Clock;
use wasmkeep_storage::sql::{Commit, CommitSink, Connection, ConnectionOptions, EventBudget, Pages};
use wasmkeep_storage::{Lsn, Refused, SqlError, Value};

const ROWS: u64 = 10_000;
const VALUE_BYTES: usize = 100;
const UPSERT: &str = "INSERT INTO t (k, v) VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET v = excluded.v";
/// Commits between two times that everything becomes durable.
const DURABLE_EVERY: u64 = 64;

#[derive(Default)]
struct Counter {
    commits: Cell<u64>,
    bytes: Cell<u64>,
}

impl CommitSink for Counter {
    fn append(&self, commit: &Commit<'_>) -> Result<Lsn, Refused> {
        self.commits.set(self.commits.get() + 1);
        self.bytes.set(self.bytes.get() + commit.body.len() as u64);
        Ok(Lsn(self.commits.get()))
    }
}

fn main() -> Result<(), SqlError> {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let commits = numbers.first().copied().unwrap_or(300_000);
    let databases = numbers.get(1).copied().unwrap_or(1).max(1);
    let counter: Rc<Counter> = Rc::default();
    let connections = (0..databases).map(|_| open(&counter)).collect::<Result<Vec<_>, _>>()?;
    // One sequence for all: a row written again as it is would be no commit.
    let mut random = fastrand::Rng::with_seed(1);
    measure("on the caller's stack", &counter, &connections, commits, &mut random, |db, params| {
        db.exec_now(UPSERT, params, true).map(drop)
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    measure("on a coroutine", &counter, &connections, commits, &mut random, |db, params| {
        runtime.block_on(db.exec(UPSERT, params, true)).map(drop)
    })
}

fn open(counter: &Rc<Counter>) -> Result<Connection, SqlError> {
    let pages = Rc::new(RefCell::new(Pages::new(None, 0)));
    let budget = Rc::new(EventBudget::new(Clock::System, u64::MAX));
    let options = ConnectionOptions { database_bytes_max: 1 << 30, guest: true };
    let db = Connection::open(pages, Rc::clone(counter) as Rc<dyn CommitSink>, budget, &options)?;
    db.exec_now("CREATE TABLE t (k INTEGER PRIMARY KEY, v BLOB)", &[], false)?;
    let fill = format!(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT {ROWS})
         INSERT INTO t SELECT i, zeroblob({VALUE_BYTES}) FROM n"
    );
    db.exec_now(&fill, &[], false)?;
    Ok(db)
}

fn measure(
    name: &str,
    counter: &Counter,
    connections: &[Connection],
    commits: u64,
    random: &mut fastrand::Rng,
    upsert: impl Fn(&Connection, &[Value]) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    let mut params = [Value::Null, Value::Blob(vec![0; VALUE_BYTES])];
    let (commits_before, bytes_before, before_ns) = (counter.commits.get(), counter.bytes.get(), cpu_ns());
    for n in 0..commits {
        params[0] = Value::Integer(random.i64(0..ROWS as i64));
        if let Value::Blob(bytes) = &mut params[1] {
            random.fill(bytes);
        }
        let db = &connections[(n % connections.len() as u64) as usize];
        upsert(db, &params)?;
        if n % DURABLE_EVERY == 0 {
            for db in connections {
                db.pages().borrow_mut().durable(Lsn(counter.commits.get()));
            }
        }
    }
    let used_ns = cpu_ns() - before_ns;
    let done = counter.commits.get() - commits_before;
    assert_eq!(done, commits, "each upsert is one commit");
    println!(
        "{name}: {:.2} µs of CPU and {} bytes per commit, {} databases",
        used_ns as f64 / done as f64 / 1000.0,
        (counter.bytes.get() - bytes_before) / done,
        connections.len(),
    );
    Ok(())
}

/// CPU time of this process, ns.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
