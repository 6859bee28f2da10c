//! Random SQL on a connection of ours and on SQLite's own in-memory database, with refused commits, interrupts, checkpoints,
//! lost suffixes and starts anew in between: what the one holds must be what the other holds.
//!
//! `WASMKEEP_SEEDS` says how many seeds run, `WASMKEEP_SEED` runs one.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::types::ValueRef;

use super::{Fixture, Recorder, open_with};
use crate::disk::File;
use crate::error::{Refused, SqlError};
use crate::limits::PAGE_BYTES;
use crate::sql::{CheckpointSet, Pages};
use crate::types::{Lsn, Value};

/// A base file in memory.
#[derive(Default)]
struct MemoryFile(Mutex<Vec<u8>>);

impl MemoryFile {
    fn with<T>(&self, f: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What a start finds: the bytes that are there, and how many whole pages they are.
    fn found(&self) -> (Arc<Self>, u32) {
        let bytes = self.with(|bytes| bytes.clone());
        let pages = u32::try_from(bytes.len() / PAGE_BYTES).expect("small");
        (Arc::new(Self(Mutex::new(bytes))), pages)
    }
}

impl File for MemoryFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.with(|bytes| {
            let from = usize::try_from(offset).expect("small").min(bytes.len());
            let count = buf.len().min(bytes.len() - from);
            buf[..count].copy_from_slice(&bytes[from..from + count]);
            Ok(count)
        })
    }

    fn write_at(&self, offset: u64, new: &[u8]) -> io::Result<()> {
        self.with(|bytes| {
            let from = usize::try_from(offset).expect("small");
            bytes.resize(bytes.len().max(from + new.len()), 0);
            bytes[from..from + new.len()].copy_from_slice(new);
            Ok(())
        })
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.with(|bytes| bytes.resize(usize::try_from(len_bytes).expect("small"), 0));
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|bytes| Ok(bytes.len() as u64))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn raw_fd(&self) -> Option<std::os::fd::RawFd> {
        None
    }
}

/// SQLite's own database, and what ran on it.
struct Peer {
    db: rusqlite::Connection,
    history: Vec<String>,
}

impl Peer {
    fn new(history: Vec<String>) -> Self {
        let peer = Self { db: rusqlite::Connection::open_in_memory().expect("opens"), history };
        for sql in &peer.history {
            // Some failed the first time too.
            let _as_then = peer.db.execute_batch(sql);
        }
        peer
    }

    fn exec(&mut self, sql: &str) -> Result<(), rusqlite::Error> {
        self.history.push(sql.into());
        self.db.execute_batch(sql)
    }

    fn rows(&self, sql: &str) -> Vec<Value> {
        let mut statement = self.db.prepare(sql).expect("prepares");
        let columns = statement.column_count();
        let mut rows = statement.query([]).expect("runs");
        let mut values = Vec::new();
        while let Some(row) = rows.next().expect("steps") {
            values.extend((0..columns).map(|column| match row.get_ref(column).expect("a column") {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(integer) => Value::Integer(integer),
                ValueRef::Real(real) => Value::Real(real),
                ValueRef::Text(text) => Value::Text(String::from_utf8(text.to_vec()).expect("text")),
                ValueRef::Blob(blob) => Value::Blob(blob.to_vec()),
            }));
        }
        values
    }
}

/// What both must agree about: schema, rows and what a full-text search finds, but not a full-text index's own tables, whose
/// layout depends on transactions that were taken back.
fn content(rows: impl Fn(&str) -> Vec<Value>) -> Vec<Value> {
    let mut all = rows("SELECT type, name, sql FROM sqlite_schema WHERE name NOT GLOB 'f_*' ORDER BY name");
    let named = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 'f_*' AND name <> 'f' ORDER BY name";
    for table in rows(named) {
        let Value::Text(table) = table else { panic!("a name is text") };
        let count = rows(&format!("SELECT * FROM pragma_table_info('{table}')")).len() / 6;
        let order: Vec<String> = (1..=count).map(|n| n.to_string()).collect();
        all.extend(rows(&format!("SELECT * FROM \"{table}\" ORDER BY {}", order.join(", "))));
    }
    all.extend(rows("SELECT rowid, body FROM f ORDER BY rowid"));
    all.extend(rows("SELECT rowid FROM f WHERE f MATCH 'common' ORDER BY rowid"));
    all
}

/// One seed's run.
struct Run {
    seed: u64,
    /// Whether the connection is held to what guests may do, which keeps its database from ever being shorter.
    guest: bool,
    random: fastrand::Rng,
    ours: Fixture,
    peer: Peer,
    base: Arc<MemoryFile>,
    durable: Lsn,
    taken: Option<CheckpointSet>,
    /// How much of the peer's history made each position.
    made_by: BTreeMap<Lsn, usize>,
}

const SCHEMA: [&str; 5] = [
    "CREATE TABLE t (k INTEGER PRIMARY KEY, v)",
    "CREATE TABLE a (id INTEGER PRIMARY KEY AUTOINCREMENT, v UNIQUE)",
    "CREATE TABLE w (k TEXT PRIMARY KEY, v) WITHOUT ROWID",
    "CREATE TABLE c (x)",
    "CREATE VIRTUAL TABLE f USING fts5(body)",
];

impl Run {
    fn new(seed: u64) -> Self {
        // Only statements of our own may make databases shorter; every other seed has them.
        let vacuum = (!seed.is_multiple_of(2)).then_some(["FULL", "INCREMENTAL"][(seed / 2 % 2) as usize]);
        Self::with_vacuum(seed, vacuum)
    }

    fn with_vacuum(seed: u64, vacuum: Option<&str>) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        let base = Arc::new(MemoryFile::default());
        let pages = Pages::new(Some(Arc::clone(&base) as Arc<dyn File>), 0);
        let ours = open_with(&Rc::default(), pages, 1 << 30, vacuum.is_none());
        let mut run = Self {
            seed,
            peer: Peer::new(Vec::new()),
            ours,
            base,
            durable: Lsn::ZERO,
            taken: None,
            made_by: BTreeMap::from([(Lsn::ZERO, 0)]),
            random,
            guest: vacuum.is_none(),
        };
        if let Some(mode) = vacuum {
            run.both(&format!("PRAGMA auto_vacuum = {mode}"));
        }
        for sql in SCHEMA {
            run.both(sql);
        }
        // No loss goes back behind the schema: every check asks for its tables.
        run.durable = run.newest();
        run.ours.pages.borrow_mut().durable(run.durable);
        run
    }

    fn newest(&self) -> Lsn {
        self.ours.pages.borrow().newest_lsn()
    }

    /// Runs a statement on both sides. One that ours took back for its own reasons is taken back on the other side as well.
    fn both(&mut self, sql: &str) {
        let seed = self.seed;
        let was_open = !self.peer.db.is_autocommit();
        match self.ours.exec(sql) {
            Err(SqlError::Full | SqlError::Unavailable | SqlError::TooLarge(_) | SqlError::Deadline) => self.end_event(),
            Ok(_) => self.peer.exec(sql).unwrap_or_else(|error| panic!("seed {seed}: only the peer refused {sql}: {error}")),
            Err(error) => {
                self.peer.exec(sql).expect_err(&format!("seed {seed}: only ours refused {sql}: {error}"));
                if was_open && self.peer.db.is_autocommit() {
                    self.ours.exec("INSERT INTO c VALUES (0)").expect_err("its transaction has vanished");
                    self.ours.exec("ROLLBACK").expect("it is accepted");
                }
            }
        }
        if self.peer.db.is_autocommit() {
            self.made_by.insert(self.newest(), self.peer.history.len());
        }
    }

    fn end_event(&mut self) {
        self.ours.connection.end_event();
        if !self.peer.db.is_autocommit() {
            self.peer.exec("ROLLBACK").expect("a transaction is open");
        }
    }

    fn step(&mut self) {
        let recorder = Rc::clone(&self.ours.recorder);
        match self.random.u8(0..60) {
            0..48 => {
                let refusals = [Refused::Full, Refused::Failed, Refused::TooLarge];
                recorder.refuse.set((self.random.u8(0..12) == 0).then(|| refusals[self.random.usize(0..3)]));
                self.ours.connection.budget().reset(if self.random.u8(0..15) == 0 { 1 } else { u64::MAX });
                let sql = self.statement();
                self.both(&sql);
                recorder.refuse.set(None);
                self.ours.connection.budget().reset(u64::MAX);
            }
            48..50 => self.end_event(),
            50..52 => self.harden(),
            52..54 if self.taken.is_none() => {
                self.taken = Some(self.ours.pages.borrow().checkpoint_take());
                if self.random.bool() {
                    self.harden();
                }
            }
            52..57 => self.checkpoint(),
            57 => self.check(),
            58 => self.check_replay(),
            59 => self.lose_suffix(),
            _ => {}
        }
    }

    /// Something more becomes durable, often everything.
    fn harden(&mut self) {
        let newest = self.newest();
        self.durable = if self.random.bool() { newest } else { Lsn(self.random.u64(self.durable.0..=newest.0)) };
        self.ours.pages.borrow_mut().durable(self.durable);
    }

    /// Writes the set that was taken, once it may be written; sometimes a start comes in the middle of it.
    fn checkpoint(&mut self) {
        let Some(set) = self.taken.take() else { return };
        if set.lsn > self.durable {
            self.taken = Some(set);
            return;
        }
        let stop_before = self.random.usize(0..=set.pages.len() + 1);
        let page_bytes = PAGE_BYTES as u64;
        let len = self.base.len().expect("a length");
        self.base.set_len(len.min(u64::from(set.keep_pages) * page_bytes)).expect("cuts");
        for (index, (pgno, page)) in set.pages.iter().enumerate() {
            if index == stop_before {
                self.check_replay();
            }
            self.base.write_at(u64::from(pgno - 1) * page_bytes, &page[..]).expect("writes");
        }
        self.base.set_len(u64::from(set.size_pages) * page_bytes).expect("sets");
        // All of it is there, but nobody was told yet: a start replays records from before the checkpoint as well.
        self.check_replay();
        self.ours.pages.borrow_mut().checkpoint_done(&set);
    }

    /// What both sides hold is the same, and ours is sound.
    fn check(&mut self) {
        self.end_event();
        let seed = self.seed;
        assert_eq!(self.ours.rows("PRAGMA integrity_check"), [Value::Text("ok".into())], "seed {seed}");
        self.ours.exec("INSERT INTO f (f) VALUES ('integrity-check')").unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let (ours, peers) = (content(|sql| self.ours.rows(sql)), content(|sql| self.peer.rows(sql)));
        assert!(ours == peers, "seed {seed}: at {} the connection holds\n{ours:?}\nand SQLite\n{peers:?}", self.newest());
    }

    /// The base file as it is now and the records from the oldest it may lack, or from an older one, make every page of now.
    fn check_replay(&mut self) {
        let pages = self.ours.pages.borrow();
        let newest = pages.newest_lsn();
        let oldest = pages.first_dirty().unwrap_or_else(|| newest.next());
        let from = Lsn(self.random.u64(1..=oldest.0));
        let (base, size_pages) = self.base.found();
        let mut replayed = Pages::new(Some(base as Arc<dyn File>), size_pages);
        for record in self.ours.recorder.records.borrow().iter().filter(|record| record.lsn >= from) {
            replayed.replay(record.lsn, record.size_pages, &record.body).expect("applies");
        }
        assert_same(&replayed, &pages, &format!("seed {}: records {from} to {newest} on the base file", self.seed));
        assert_same(&from_nothing(&self.ours.recorder), &pages, &format!("seed {}: records to {newest}", self.seed));
    }

    /// Everything past a position is lost; the actor is loaded again.
    fn lose_suffix(&mut self) {
        self.end_event();
        let known: Vec<Lsn> = self.made_by.range(self.durable..).map(|(lsn, _)| *lsn).collect();
        let to = known[self.random.usize(0..known.len())];
        let fresh = open_with(&Rc::default(), Pages::new(None, 0), 1 << 30, self.guest);
        let Fixture { recorder, pages, connection } = std::mem::replace(&mut self.ours, fresh);
        drop(connection);
        let mut pages = Rc::into_inner(pages).expect("nobody else has it").into_inner();
        pages.revert(to);
        recorder.records.borrow_mut().retain(|record| record.lsn <= to);
        assert_same(&pages, &from_nothing(&recorder), &format!("seed {}: reverted to {to}", self.seed));
        self.taken = self.taken.take().filter(|set| set.lsn <= to);
        self.made_by.split_off(&to.next());
        let made_by = *self.made_by.get(&to).expect("every position is known");
        self.peer = Peer::new(self.peer.history[..made_by].to_vec());
        self.ours = open_with(&recorder, pages, 1 << 30, self.guest);
        self.check();
    }

    fn statement(&mut self) -> String {
        let random = &mut self.random;
        let key = random.u32(0..200);
        let bytes = if random.u8(0..20) == 0 { random.u32(0..40_000) } else { random.u32(0..300) };
        let value = format!("printf('%.*c', {bytes}, '{}')", random.alphabetic());
        let sql = match random.u8(0..34) {
            0..=4 => format!("INSERT OR REPLACE INTO t VALUES ({key}, {value})"),
            5 => format!("INSERT INTO t SELECT k + 1000 * {key}, v FROM t WHERE k < 200 LIMIT 50"),
            6..=7 => format!("INSERT INTO a (v) VALUES ({key} || '-' || {bytes})"),
            8 => format!("INSERT OR ROLLBACK INTO a (v) SELECT v FROM a WHERE id % 3 = {} LIMIT 1", key % 3),
            9..=10 => format!("INSERT OR REPLACE INTO w VALUES ('key {key}', {value})"),
            11 => format!("DELETE FROM w WHERE k > 'key {key}'"),
            12..=13 => format!("INSERT OR REPLACE INTO f (rowid, body) VALUES ({key}, 'common word{key} and word{bytes}')"),
            14 => format!("UPDATE f SET body = 'common other{bytes}' WHERE rowid % 5 = {}", key % 5),
            15 => format!("DELETE FROM f WHERE rowid > {key}"),
            16 => "INSERT INTO f (f) VALUES ('optimize')".into(),
            17 => format!("DELETE FROM t WHERE k BETWEEN {key} AND {}", key + bytes),
            18 => "DELETE FROM t".into(),
            19 => format!("UPDATE t SET v = {value} WHERE k % 7 = {}", key % 7),
            20..=21 => "BEGIN".into(),
            22 => "COMMIT".into(),
            23 => "ROLLBACK".into(),
            24 => format!("SAVEPOINT s{}", key % 2),
            25 => format!("RELEASE s{}", key % 2),
            26 => format!("ROLLBACK TO s{}", key % 2),
            27 => format!("CREATE TABLE x{} (a, b UNIQUE, c DEFAULT {bytes})", key % 3),
            28 => format!("DROP TABLE x{}", key % 3),
            29 => format!("INSERT OR FAIL INTO x{} (a, b) VALUES ({key}, {}), ({key}, {})", key % 3, key % 11, bytes % 13),
            30 => format!(
                "ALTER TABLE x{} {}",
                key % 3,
                ["ADD COLUMN d DEFAULT 7", "DROP COLUMN c", "RENAME COLUMN a TO e"][random.usize(0..3)]
            ),
            31 => format!("CREATE INDEX IF NOT EXISTS i{0} ON t (v, {0})", key % 2),
            32 => format!("DROP INDEX IF EXISTS i{}", key % 2),
            _ => many(random),
        };
        // Pages become free again and are used anew, or a database that may shrink never does; more of it where one may.
        match random.u8(0..if self.guest { 48 } else { 16 }) {
            0 => "DELETE FROM c".into(),
            1 => format!("DELETE FROM c WHERE rowid > {key}"),
            2 if !self.guest => "PRAGMA incremental_vacuum".into(),
            2 | 3 => many(random),
            _ => sql,
        }
    }
}

/// Rows that are alike, so that a page which comes back looks like what it was.
fn many(random: &mut fastrand::Rng) -> String {
    format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {}) INSERT INTO c SELECT printf('%.*c', 500, 'y') FROM n",
        random.u32(1..800)
    )
}

/// What all records make without a base file.
fn from_nothing(recorder: &Recorder) -> Pages {
    let mut pages = Pages::new(None, 0);
    for record in recorder.records.borrow().iter() {
        pages.replay(record.lsn, record.size_pages, &record.body).expect("applies");
    }
    pages
}

fn assert_same(one: &Pages, other: &Pages, what: &str) {
    assert_eq!(one.size_pages(), other.size_pages(), "{what}: size");
    let (mut left, mut right) = ([0; PAGE_BYTES], [0; PAGE_BYTES]);
    for pgno in 1..=one.size_pages() {
        one.read_page(pgno, &mut left).expect("reads");
        other.read_page(pgno, &mut right).expect("reads");
        assert!(left == right, "{what}: page {pgno} of {} differs", one.size_pages());
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("WASMKEEP_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WASMKEEP_SEEDS").unwrap_or(200),
    }
}

#[test]
fn whatever_sql_ran_the_connection_its_records_and_its_base_file_hold_what_sqlite_holds() {
    // Ours first: SQLite takes its allocator before it is used.
    drop(super::fixture());
    let (mut records, mut shrunk, mut checkpointed) = (0, 0, 0);
    for seed in seeds() {
        let mut run = Run::new(seed);
        let _seed = NameSeed(seed);
        for _ in 0..run.random.usize(20..160) {
            run.step();
        }
        run.check();
        run.check_replay();
        let kept = run.ours.recorder.records.borrow();
        records += kept.len();
        shrunk += kept.windows(2).filter(|pair| pair[1].size_pages < pair[0].size_pages).count();
        checkpointed += usize::from(run.base.len().expect("a length") > 0);
    }
    println!("{records} records, {shrunk} of them shorter than the one before; {checkpointed} seeds with a base file");
    assert!(seeds().count() < 100 || (shrunk > 0 && checkpointed > 0), "the seeds no longer reach what they are for");
}

/// Names the seed when something inside panics that does not know it.
struct NameSeed(u64);

impl Drop for NameSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to see it again: WASMKEEP_SEED={}", self.0);
        }
    }
}

#[test]
fn pages_that_come_back_unwritten_hold_nothing_of_what_the_base_file_held_there() {
    drop(super::fixture());
    let mut run = Run::with_vacuum(1, Some("INCREMENTAL"));
    let grow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 800) INSERT INTO c SELECT printf('%.*c', 500, 'y') FROM n";
    let checkpoint = |run: &mut Run| {
        run.durable = run.newest();
        run.ours.pages.borrow_mut().durable(run.durable);
        run.taken = Some(run.ours.pages.borrow().checkpoint_take());
        run.checkpoint();
        run.check_replay();
    };
    run.both(grow);
    checkpoint(&mut run);
    let large = run.ours.pages.borrow().size_pages();
    run.both("DELETE FROM c");
    run.both("PRAGMA incremental_vacuum");
    assert!(run.ours.pages.borrow().size_pages() < large / 2, "it is shorter");
    // Pages that a transaction takes and frees again belong to the file, but SQLite does not write them.
    for sql in ["BEGIN", grow, "DELETE FROM c", "COMMIT"] {
        run.both(sql);
    }
    assert!(run.ours.pages.borrow().size_pages() > large / 2, "it is longer again");
    run.check_replay();
    checkpoint(&mut run);
    run.both(grow);
    run.check();
    run.check_replay();
}
