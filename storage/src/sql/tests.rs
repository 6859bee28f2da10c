//! The SQL layer over a sink that keeps every record: what is captured, replayed, refused, bounded.

mod bounds;
mod model;
mod sessions;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::{Commit, CommitSink, Connection, ConnectionOptions, EventBudget, Pages};
use crate::clock::Clock;
use crate::error::{Refused, SqlError};
use crate::limits::VALUE_BYTES_MAX;
use crate::types::{Lsn, Value};

struct Kept {
    lsn: Lsn,
    size_pages: u32,
    body: Vec<u8>,
    durable: bool,
}

#[derive(Default)]
struct Recorder {
    records: RefCell<Vec<Kept>>,
    refuse: Cell<Option<Refused>>,
    /// The last position given out; those of lost records are not given again.
    last: Cell<Lsn>,
}

impl CommitSink for Recorder {
    fn append(&self, commit: &Commit<'_>) -> Result<Lsn, Refused> {
        if let Some(refused) = self.refuse.get() {
            return Err(refused);
        }
        let mut records = self.records.borrow_mut();
        let lsn = self.last.get().next();
        self.last.set(lsn);
        records.push(Kept { lsn, size_pages: commit.size_pages, body: commit.body.to_vec(), durable: commit.durable });
        Ok(lsn)
    }
}

struct Fixture {
    recorder: Rc<Recorder>,
    pages: Rc<RefCell<Pages>>,
    connection: Connection,
}

fn open(recorder: &Rc<Recorder>, pages: Pages, database_bytes_max: u64) -> Fixture {
    open_with(recorder, pages, database_bytes_max, true)
}

fn open_with(recorder: &Rc<Recorder>, pages: Pages, database_bytes_max: u64, guest: bool) -> Fixture {
    let pages = Rc::new(RefCell::new(pages));
    let budget = Rc::new(EventBudget::new(Clock::System, u64::MAX));
    let options = ConnectionOptions { database_bytes_max, guest };
    let sink: Rc<dyn CommitSink> = Rc::clone(recorder) as Rc<dyn CommitSink>;
    let connection = Connection::open(Rc::clone(&pages), sink, budget, &options).expect("opens");
    Fixture { recorder: Rc::clone(recorder), pages, connection }
}

fn fixture() -> Fixture {
    open(&Rc::default(), Pages::new(None, 0), 1 << 30)
}

impl Fixture {
    fn exec(&self, sql: &str) -> Result<u64, SqlError> {
        self.connection.exec_now(sql, &[], false)
    }

    fn rows(&self, sql: &str) -> Vec<Value> {
        self.connection.query_now(sql, &[]).expect("runs").values
    }

    /// A new database made of the records up to `through`.
    fn replayed(&self, through: Lsn) -> Self {
        let mut pages = Pages::new(None, 0);
        for record in self.recorder.records.borrow().iter().filter(|record| record.lsn <= through) {
            pages.replay(record.lsn, record.size_pages, &record.body).expect("applies");
        }
        open(&Rc::default(), pages, 1 << 30)
    }

    fn newest(&self) -> Lsn {
        self.recorder.last.get()
    }

    /// Every table's content and what SQLite thinks of the file.
    fn dump(&self) -> Vec<Value> {
        let mut all = self.rows("PRAGMA integrity_check");
        let tables = self.rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name");
        for table in tables {
            let Value::Text(table) = table else { continue };
            all.push(Value::Text(table.clone()));
            all.extend(self.rows(&format!("SELECT * FROM \"{table}\" ORDER BY 1")));
        }
        all
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

#[test]
fn what_is_committed_is_replayed() {
    let fixture = fixture();
    fixture.exec("CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT); CREATE INDEX i ON t (v)").expect("runs");
    for n in 0..200 {
        fixture.exec(&format!("INSERT INTO t VALUES ({n}, 'value {n}')")).expect("runs");
    }
    let replayed = fixture.replayed(fixture.newest());
    assert_eq!(replayed.dump(), fixture.dump());
    assert_eq!(replayed.rows("PRAGMA integrity_check"), [text("ok")]);
}

#[test]
fn statements_that_leave_the_database_are_refused_by_name() {
    let fixture = fixture();
    for (sql, word) in [
        ("ATTACH 'x' AS x", "ATTACH"),
        ("DETACH main", "DETACH"),
        ("VACUUM", "VACUUM"),
        (" /* */ -- \n vacuum INTO 'x'", "VACUUM"),
        ("SELECT load_extension('x')", "load_extension"),
        ("PRAGMA journal_mode=WAL", "journal_mode"),
        ("PRAGMA max_page_count=10", "max_page_count"),
        ("PRAGMA temp_store=FILE", "temp_store"),
        ("PRAGMA page_size=512", "page_size"),
        ("CREATE VIRTUAL TABLE x USING dbstat", "dbstat"),
    ] {
        match fixture.exec(sql) {
            Err(SqlError::NotAllowed(reason)) => assert!(reason.contains(word), "{sql}: {reason}"),
            other => panic!("{sql}: {other:?}"),
        }
    }
    fixture.exec("CREATE VIRTUAL TABLE f USING fts5(a); INSERT INTO f VALUES ('one two')").expect("FTS5 works");
    assert_eq!(fixture.rows("SELECT count(*) FROM f WHERE f MATCH 'two'"), [Value::Integer(1)]);
    assert_eq!(fixture.rows("PRAGMA user_version"), [Value::Integer(0)]);
}

#[test]
fn values_come_back_exactly_as_they_went() {
    let fixture = fixture();
    fixture.exec("CREATE TABLE t (v)").expect("runs");
    for value in [
        Value::Integer(i64::MIN),
        Value::Integer(i64::MAX),
        Value::Integer((1 << 53) + 1),
        text("a\0b"),
        text(""),
        Value::Blob(Vec::new()),
        Value::Blob(vec![0, 255]),
        Value::Real(1.5),
        Value::Null,
    ] {
        fixture.exec("DELETE FROM t").expect("runs");
        fixture.connection.exec_now("INSERT INTO t VALUES (?)", std::slice::from_ref(&value), false).expect("runs");
        assert_eq!(fixture.rows("SELECT v FROM t"), [value]);
    }
    fixture.connection.exec_now("UPDATE t SET v = ?", &[Value::Real(f64::NAN)], false).expect("runs");
    assert_eq!(fixture.rows("SELECT v FROM t"), [Value::Null], "SQLite has no NaN");
}

#[test]
fn a_value_at_its_limit_fits_and_one_byte_more_does_not() {
    let fixture = fixture();
    fixture.exec("CREATE TABLE t (v)").expect("runs");
    let insert = |bytes| fixture.connection.exec_now("INSERT INTO t VALUES (?)", &[Value::Blob(vec![1; bytes])], false);
    assert_eq!(insert(VALUE_BYTES_MAX - 1), Ok(1));
    assert_eq!(insert(VALUE_BYTES_MAX), Ok(1));
    assert!(matches!(insert(VALUE_BYTES_MAX + 1), Err(SqlError::TooLarge(_))));
    assert_eq!(fixture.rows("SELECT count(*) FROM t"), [Value::Integer(2)]);
}

#[test]
fn parameters_are_counted_and_go_with_one_statement() {
    let fixture = fixture();
    assert!(fixture.connection.query_now("SELECT ?", &[]).is_err());
    assert!(fixture.connection.exec_now("SELECT ?; SELECT 1", &[Value::Null], false).is_err());
    assert!(fixture.connection.query_now("SELECT 1; SELECT 2", &[]).is_err());
    assert!(fixture.connection.query_now(" -- nothing", &[]).is_err());
}

#[test]
fn an_open_transaction_is_rolled_back_at_the_end_of_its_event() {
    let fixture = fixture();
    fixture.exec("CREATE TABLE t (v)").expect("runs");
    fixture.exec("BEGIN; INSERT INTO t VALUES (1)").expect("runs");
    fixture.connection.end_event();
    assert_eq!(fixture.rows("SELECT count(*) FROM t"), [Value::Integer(0)]);
}

#[test]
fn a_transaction_is_durable_if_any_statement_or_its_commit_was() {
    let fixture = fixture();
    fixture.exec("CREATE TABLE t (k PRIMARY KEY)").expect("runs");
    let durable = |fixture: &Fixture| fixture.recorder.records.borrow().last().expect("a record").durable;
    assert!(!durable(&fixture));
    fixture.exec("BEGIN; INSERT INTO t VALUES (1)").expect("runs");
    fixture.connection.exec_now("COMMIT", &[], true).expect("commits");
    assert!(durable(&fixture));
    assert_eq!(fixture.connection.positions().gate, fixture.newest());
    fixture.exec("INSERT INTO t VALUES (2)").expect("runs");
    assert!(!durable(&fixture), "the class ends with its transaction");
    assert_eq!(fixture.connection.positions().gate.next(), fixture.connection.positions().seen);
    fixture.connection.exec_now("INSERT OR IGNORE INTO t VALUES (2)", &[], true).expect("runs");
    assert_eq!(fixture.connection.positions().gate, fixture.newest(), "an ignored insert waits for the row it met");
}

#[test]
fn a_refused_commit_rolls_back_cleanly_and_says_why() {
    let fixture = fixture();
    fixture.exec("CREATE TABLE t (v); INSERT INTO t VALUES (1)").expect("runs");
    for (refused, error) in [(Refused::Full, SqlError::Full), (Refused::Failed, SqlError::Unavailable)] {
        fixture.recorder.refuse.set(Some(refused));
        assert_eq!(fixture.exec("INSERT INTO t SELECT randomblob(5000) FROM t"), Err(error));
        fixture.recorder.refuse.set(None);
        fixture.connection.end_event();
        fixture.exec("UPDATE t SET v = v + 1").expect("runs");
    }
    assert_eq!(fixture.rows("SELECT v FROM t"), [Value::Integer(3)]);
    assert_eq!(fixture.replayed(fixture.newest()).dump(), fixture.dump());
}

#[test]
fn a_transaction_that_an_interrupt_took_away_is_not_taken_for_open() {
    let fixture = fixture();
    fixture.exec("CREATE TABLE t (v); BEGIN; INSERT INTO t VALUES (1)").expect("runs");
    fixture.connection.budget().reset(1);
    let endless = "INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
    assert_eq!(fixture.exec(endless), Err(SqlError::Deadline));
    fixture.connection.budget().reset(u64::MAX);
    if fixture.exec("INSERT INTO t VALUES (2)").is_err() {
        fixture.exec("ROLLBACK").expect("is accepted");
    }
    fixture.connection.end_event();
    assert_eq!(fixture.rows("SELECT count(*) FROM t"), [Value::Integer(0)]);
}

#[test]
fn memory_and_size_are_bounded_and_the_connection_goes_on() {
    let fixture = open(&Rc::default(), Pages::new(None, 0), 1 << 20);
    fixture.exec("CREATE TABLE t (v)").expect("runs");
    let hungry = "SELECT count(*) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 400)
        SELECT randomblob(1000000) AS b FROM n ORDER BY b)";
    assert!(matches!(fixture.connection.query_now(hungry, &[]), Err(SqlError::TooLarge(_))));
    assert_eq!(fixture.exec("INSERT INTO t VALUES (zeroblob(2000000))"), Err(SqlError::Full));
    fixture.exec("INSERT INTO t VALUES (1)").expect("runs");
    assert_eq!(fixture.rows("SELECT v FROM t"), [Value::Integer(1)]);
}

const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

#[tokio::test(flavor = "current_thread")]
async fn an_endless_query_lets_others_run_until_one_of_them_ends_it() {
    let fixture = fixture();
    // Only a neighbour that gets no turn lets it come to this.
    fixture.connection.budget().reset(60_000_000_000);
    let turns = Cell::new(0_u32);
    let neighbour = async {
        while turns.get() < 10 {
            turns.set(turns.get() + 1);
            tokio::task::yield_now().await;
        }
        fixture.connection.budget().abort();
    };
    let (result, ()) = tokio::join!(fixture.connection.query(ENDLESS, &[]), neighbour);
    assert_eq!((result, turns.get()), (Err(SqlError::Deadline), 10));
    assert!(fixture.connection.budget().is_aborted(), "it ended by itself");
}

#[test]
fn an_endless_query_ends_with_its_budget() {
    let fixture = fixture();
    fixture.connection.budget().reset(20_000_000);
    assert_eq!(fixture.connection.query_now(ENDLESS, &[]), Err(SqlError::Deadline));
}

#[tokio::test(flavor = "current_thread")]
async fn a_query_that_is_dropped_while_suspended_ends_and_leaves_a_sound_connection() {
    let fixture = fixture();
    fixture.exec("CREATE TABLE t (v)").expect("runs");
    for _ in 0..20 {
        let insert = format!("INSERT INTO t {}", ENDLESS.replace("count(*)", "i"));
        let mut future = Box::pin(fixture.connection.exec(&insert, &[], false));
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await;
        assert!(polled, "it is suspended after its first slice");
        drop(future);
        fixture.connection.end_event();
        assert_eq!(fixture.rows("SELECT count(*) FROM t"), [Value::Integer(0)]);
    }
}

#[test]
fn events_that_leave_transactions_open_use_up_no_memory() {
    let db = fixture();
    db.exec("CREATE TABLE t(x)").unwrap();
    for _ in 0..100 {
        db.exec("BEGIN; INSERT INTO t VALUES(zeroblob(2000000))").unwrap();
        db.connection.end_event();
    }
    assert!(db.connection.memory_bytes() < 8 << 20, "{} bytes", db.connection.memory_bytes());
}

#[test]
fn only_a_rollback_of_the_whole_transaction_acknowledges_that_it_vanished() {
    for to in ["ROLLBACK TO s", "rollback /* */ to s", "ROLLBACK TRANSACTION TO SAVEPOINT s"] {
        let db = fixture();
        db.exec("CREATE TABLE t(x UNIQUE)").unwrap();
        db.exec("BEGIN; INSERT INTO t VALUES(1); SAVEPOINT s").unwrap();
        db.exec("INSERT OR ROLLBACK INTO t VALUES(1)").unwrap_err();
        db.exec(to).unwrap_err();
        db.exec("INSERT INTO t VALUES(2)").unwrap_err();
        db.exec("ROLLBACK TRANSACTION").unwrap();
        assert_eq!(db.rows("SELECT count(*) FROM t"), [Value::Integer(0)]);
    }
}

#[test]
fn a_writing_statement_whose_rows_are_too_large_writes_nothing() {
    let db = fixture();
    db.exec("CREATE TABLE t(x)").unwrap();
    let insert = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 40)
                  INSERT INTO t SELECT i FROM n RETURNING hex(zeroblob(600000))";
    let before = db.newest();
    assert!(matches!(db.connection.query_now(insert, &[]), Err(SqlError::TooLarge(_))));
    assert_eq!((db.newest(), db.rows("SELECT count(*) FROM t")), (before, vec![Value::Integer(0)]));
    db.exec("BEGIN; INSERT INTO t VALUES(1)").unwrap();
    assert!(matches!(db.connection.query_now(insert, &[]), Err(SqlError::TooLarge(_))));
    db.exec("COMMIT").unwrap_err();
    db.exec("ROLLBACK").unwrap();
    assert_eq!(db.rows("SELECT count(*) FROM t"), [Value::Integer(0)]);
    db.exec("INSERT INTO t VALUES(2)").unwrap();
}

#[test]
fn rows_changed_are_the_statements_own() {
    let db = fixture();
    db.exec("CREATE VIRTUAL TABLE f USING fts5(x); CREATE TABLE t(x); CREATE TABLE log(x)").unwrap();
    db.exec("CREATE TRIGGER tr AFTER INSERT ON t BEGIN INSERT INTO log VALUES(new.x); END").unwrap();
    assert_eq!(db.exec("INSERT INTO f VALUES('a b c')"), Ok(1));
    assert_eq!(db.exec("INSERT INTO t VALUES(1), (2); INSERT INTO t VALUES(3)"), Ok(3));
    assert_eq!(db.exec("SELECT 1"), Ok(0));
    assert_eq!(db.exec("UPDATE t SET x = 0 WHERE x > 9"), Ok(0));
}

#[test]
fn a_statement_with_a_nul_is_refused_rather_than_cut() {
    let db = fixture();
    db.exec("CREATE TABLE a(x)\0; CREATE TABLE b(x)").unwrap_err();
    assert_eq!(db.rows("SELECT count(*) FROM sqlite_schema"), [Value::Integer(0)]);
}

#[test]
fn a_statement_on_the_callers_stack_is_charged_for_its_own_time_only() {
    let db = fixture();
    db.connection.budget().reset(30_000_000_000);
    db.exec("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5000) SELECT sum(i) FROM n").unwrap();
    assert!(!db.connection.budget().exhausted());
}

#[tokio::test(flavor = "current_thread")]
async fn a_second_statement_beside_a_suspended_one_is_refused() {
    let db = fixture();
    let slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000) SELECT count(*) FROM n";
    let (first, second) = tokio::join!(db.connection.query(slow, &[]), db.connection.query("SELECT 1", &[]));
    assert_eq!(first.unwrap().values, [Value::Integer(1_000_000)]);
    assert!(second.is_err());
    assert_eq!(db.rows("SELECT 1"), [Value::Integer(1)]);
}
