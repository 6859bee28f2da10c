//! What a connection refuses, what ends a statement, and that the connection is sound afterwards.

use std::cell::Cell;
use std::rc::Rc;

use super::{ENDLESS, Fixture, fixture, open, text};
use crate::error::{Refused, SqlError};
use crate::limits::{RESULT_BYTES_MAX, STATEMENTS_CACHED_MAX};
use crate::sql::Pages;
use crate::types::{Lsn, Value};

/// The connection still writes, reads and replays.
fn assert_sound(db: &Fixture) {
    db.connection.end_event();
    db.exec("CREATE TABLE IF NOT EXISTS sound (v); INSERT INTO sound VALUES (1)").expect("it still writes");
    assert_eq!(db.rows("PRAGMA integrity_check"), [text("ok")]);
    assert_eq!(db.replayed(db.newest()).dump(), db.dump());
}

#[test]
fn pragmas_that_bounds_or_capture_rest_on_cannot_be_set() {
    let db = fixture();
    db.exec("CREATE TABLE t (v)").expect("runs");
    for pragma in [
        "journal_mode = DELETE",
        "locking_mode = NORMAL",
        "synchronous = FULL",
        "cache_spill = ON",
        "cache_size = 1000000",
        "temp_store = 1",
        "temp_store_directory = '/tmp'",
        "max_page_count = 4000000",
        "hard_heap_limit = 1",
        "soft_heap_limit = 1",
        "auto_vacuum = FULL",
        "incremental_vacuum",
        "writable_schema = ON",
        "mmap_size = 1000000",
        "wal_checkpoint",
        "threads = 8",
        "trusted_schema = ON",
        "schema_version = 7",
        "encoding = 'UTF-16'",
    ] {
        let name = pragma.split(' ').next().expect("a name");
        match db.exec(&format!("PRAGMA {pragma}")) {
            Err(SqlError::NotAllowed(reason)) => assert!(reason.contains(name), "{pragma}: {reason}"),
            other => panic!("{pragma}: {other:?}"),
        }
    }
    assert!(matches!(db.exec("SELECT * FROM pragma_cache_size"), Err(SqlError::NotAllowed(_))), "nor as a table");
    db.exec("PRAGMA user_version = 5; PRAGMA foreign_keys = ON").expect("these may be set");
    assert_eq!(db.rows("PRAGMA user_version"), [Value::Integer(5)]);
    assert_sound(&db);
}

#[test]
fn zeros_stay_reals_and_keep_their_sign_except_in_real_columns() {
    let db = fixture();
    db.exec("CREATE TABLE t (v, r REAL)").expect("runs");
    for zero in [0.0_f64, -0.0] {
        db.exec("DELETE FROM t").expect("runs");
        db.connection.exec_now("INSERT INTO t VALUES (?1, ?1)", &[Value::Real(zero)], false).expect("runs");
        let [Value::Real(plain), Value::Real(column)] = db.rows("SELECT v, r FROM t")[..] else { panic!("they are reals") };
        assert_eq!(
            (plain.to_bits(), column.to_bits()),
            (zero.to_bits(), 0),
            "{zero:?}: SQLite stores whole reals as integers there"
        );
    }
}

#[test]
fn too_many_parameters_are_refused_like_too_few_and_nothing_is_written() {
    let db = fixture();
    db.exec("CREATE TABLE t (v)").expect("runs");
    for count in [0, 1, 3] {
        let given = vec![Value::Integer(1); count];
        let error = db.connection.exec_now("INSERT INTO t VALUES (?), (?)", &given, false).expect_err("two are wanted");
        assert!(error.to_string().contains(&format!("2 parameters and was given {count}")), "{error}");
    }
    assert_eq!(db.rows("SELECT count(*) FROM t"), [Value::Integer(0)]);
}

#[test]
fn a_refusal_names_its_kind_for_single_statements_and_for_whole_transactions() {
    for (refused, is_right) in [
        (Refused::Full, (|error| *error == SqlError::Full) as fn(&SqlError) -> bool),
        (Refused::Failed, |error| *error == SqlError::Unavailable),
        (Refused::TooLarge, |error| matches!(error, SqlError::TooLarge(_))),
    ] {
        let db = fixture();
        db.exec("CREATE TABLE t (v UNIQUE); INSERT INTO t VALUES (1)").expect("runs");
        let before = (db.newest(), db.dump());
        db.recorder.refuse.set(Some(refused));
        let error = db.connection.exec_now("INSERT INTO t SELECT randomblob(9000) FROM t", &[], true).expect_err("refused");
        assert!(is_right(&error), "{refused:?}: {error:?}");
        db.exec("BEGIN; INSERT INTO t VALUES (2); SAVEPOINT s; INSERT INTO t VALUES (zeroblob(30000))").expect("runs");
        let error = db.exec("COMMIT").expect_err("refused");
        assert!(is_right(&error), "{refused:?} of a COMMIT: {error:?}");
        db.recorder.refuse.set(None);
        db.exec("INSERT INTO t VALUES (3)").expect_err("the transaction is gone and nobody said ROLLBACK");
        db.exec("ROLLBACK").expect("is accepted");
        assert_eq!((db.newest(), db.dump()), before, "{refused:?} left a trace");
        db.exec("INSERT INTO t VALUES (3)").expect("writes again");
        assert!(!db.recorder.records.borrow().last().expect("a record").durable, "the class of a refused commit ends with it");
        assert_sound(&db);
    }
}

#[test]
fn statements_that_need_too_much_memory_end_and_give_it_back() {
    let n = |count: u32, what: &str| {
        format!("WITH RECURSIVE n(i, b) AS (SELECT 1, x'' UNION ALL SELECT i + 1, {what} FROM n LIMIT {count})")
    };
    for hungry in [
        format!("{} SELECT count(*) FROM (SELECT b FROM n ORDER BY b, i LIMIT 1000)", n(1000, "randomblob(1000000)")),
        format!("{} SELECT length(group_concat(hex(b))) FROM n", n(200, "zeroblob(1000000)")),
        format!("{} SELECT count(DISTINCT b) FROM n", n(400, "randomblob(1000000)")),
        "WITH RECURSIVE n(i, b) AS (SELECT 1, x'' UNION ALL SELECT i + 1, randomblob(1000000) FROM n, (SELECT 1 UNION ALL SELECT 2)
         LIMIT 100000) SELECT count(*) FROM n"
            .into(),
        // Each of them alone would fit.
        format!(
            "{} SELECT {} FROM n",
            n(15, "zeroblob(500000)"),
            (0..12).map(|m| format!("length(group_concat(hex(b) || {m}))")).collect::<Vec<_>>().join(", ")
        ),
        format!("CREATE TEMP TABLE big AS {} SELECT b FROM n", n(400, "randomblob(1000000)")),
        format!("CREATE TABLE big AS {} SELECT b FROM n", n(400, "randomblob(1000000)")),
    ] {
        let db = fixture();
        db.exec("CREATE TABLE t (v)").expect("runs");
        let before = db.newest();
        match db.exec(&hungry) {
            Err(SqlError::TooLarge(_)) => {}
            other => panic!("{hungry}: {other:?}"),
        }
        assert_eq!(db.newest(), before, "{hungry}: wrote");
        db.connection.end_event();
        assert!(db.connection.memory_bytes() < 8 << 20, "{hungry}: {} bytes are still held", db.connection.memory_bytes());
        assert_sound(&db);
    }
}

#[test]
fn a_full_database_takes_rows_again_once_some_are_deleted() {
    let db = open(&Rc::default(), Pages::new(None, 0), 64 * 4096);
    db.exec("CREATE TABLE t (k INTEGER PRIMARY KEY, v)").expect("runs");
    let mut inserted = 0;
    let error = loop {
        match db.exec("INSERT INTO t (v) VALUES (zeroblob(4000))") {
            Ok(_) => inserted += 1,
            Err(error) => break error,
        }
        assert!(inserted < 100, "the limit does not hold");
    };
    assert_eq!(error, SqlError::Full);
    assert!(db.pages.borrow().size_pages() <= 64);
    db.exec("DELETE FROM t WHERE k < 5").expect("deletes");
    db.exec("INSERT INTO t (v) VALUES (zeroblob(4000))").expect("there is room");
    assert_sound(&db);
}

#[test]
fn a_result_past_its_limit_is_refused_and_one_within_is_whole() {
    let db = fixture();
    let rows = |count: usize| {
        format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {count}) SELECT zeroblob(1048576) FROM n")
    };
    let fitting = RESULT_BYTES_MAX / (1 << 20) - 1;
    assert_eq!(db.rows(&rows(fitting)).len(), fitting);
    assert!(matches!(db.connection.query_now(&rows(fitting + 1), &[]), Err(SqlError::TooLarge(_))), "values take room, too");
    // Rows of nothing take room as well.
    let small = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT NULL FROM n";
    assert!(matches!(db.connection.query_now(small, &[]), Err(SqlError::TooLarge(_))));
    assert_sound(&db);
}

#[test]
fn kept_statements_follow_the_schema() {
    let db = fixture();
    db.exec("CREATE TABLE t (a); INSERT INTO t VALUES (1)").expect("runs");
    let all = || db.connection.query_now("SELECT * FROM t", &[]);
    assert_eq!(all().expect("runs").columns, ["a"]);
    db.exec("ALTER TABLE t ADD COLUMN b DEFAULT 2").expect("runs");
    let rows = all().expect("runs");
    assert_eq!((rows.columns.len(), rows.values), (2, vec![Value::Integer(1), Value::Integer(2)]));
    db.exec("DROP TABLE t").expect("runs");
    assert!(matches!(all(), Err(SqlError::Sql { .. })));
    db.exec("CREATE TABLE t (c, d, e); INSERT INTO t VALUES (7, 8, 9)").expect("runs");
    assert_eq!(all().expect("runs").columns, ["c", "d", "e"]);
    for n in 0..3 * STATEMENTS_CACHED_MAX as i64 {
        assert_eq!(db.rows(&format!("SELECT c + {n} FROM t")), [Value::Integer(7 + n)]);
    }
    assert_eq!(all().expect("runs").values.len(), 3);
}

#[test]
fn an_ignored_insert_of_durable_class_waits_for_local_commits_too() {
    let db = fixture();
    db.exec("CREATE TABLE t (k PRIMARY KEY); INSERT INTO t VALUES (1)").expect("runs");
    assert_eq!((db.connection.positions().gate, db.newest()), (Lsn::ZERO, Lsn(2)));
    assert_eq!(db.connection.exec_now("INSERT OR IGNORE INTO t VALUES (1)", &[], true), Ok(0));
    assert_eq!((db.connection.positions().gate, db.newest()), (Lsn(2), Lsn(2)), "no record of its own, but a wait");
}

#[tokio::test(flavor = "current_thread")]
async fn tasks_beside_an_endless_query_get_turns_until_its_budget_ends_it() {
    let local = tokio::task::LocalSet::new();
    let turns: Rc<Cell<u32>> = Rc::default();
    let counted = Rc::clone(&turns);
    let neighbour = local.spawn_local(async move {
        loop {
            counted.set(counted.get() + 1);
            tokio::task::yield_now().await;
        }
    });
    let result = local
        .run_until(async {
            let db = fixture();
            db.connection.budget().reset(100_000_000);
            let result = db.connection.query(ENDLESS, &[]).await;
            db.connection.budget().reset(u64::MAX);
            assert_sound(&db);
            result
        })
        .await;
    neighbour.abort();
    assert_eq!(result, Err(SqlError::Deadline));
    // A hundred milliseconds in slices of two; a slice lasts longer only where the machine stops us within it.
    assert!(turns.get() >= 5, "only {} turns", turns.get());
}

#[tokio::test(flavor = "current_thread")]
async fn a_write_dropped_inside_a_transaction_takes_the_transaction_with_it() {
    let db = fixture();
    db.exec("CREATE TABLE t (v); BEGIN; INSERT INTO t VALUES (1); SAVEPOINT s").expect("runs");
    let insert = format!("INSERT INTO t {}", ENDLESS.replace("count(*)", "i"));
    let mut write = Box::pin(db.connection.exec(&insert, &[], true));
    let pending = std::future::poll_fn(|cx| std::task::Poll::Ready(write.as_mut().poll(cx).is_pending())).await;
    assert!(pending, "it is suspended after its first slice");
    drop(write);
    let before = db.newest();
    db.exec("INSERT INTO t VALUES (2)").expect_err("what it belongs to is gone");
    db.exec("COMMIT").expect_err("there is nothing to commit");
    assert_eq!(db.newest(), before);
    db.exec("ROLLBACK").expect("is accepted");
    db.exec("INSERT INTO t VALUES (3)").expect("writes again");
    assert!(!db.recorder.records.borrow().last().expect("a record").durable, "the class of what was dropped went with it");
    assert_eq!(db.rows("SELECT v FROM t"), [Value::Integer(3)]);
    assert_sound(&db);
}

#[test]
fn whatever_stands_behind_the_one_statement_is_refused_before_it_runs() {
    let db = fixture();
    db.exec("CREATE TABLE t (v)").expect("runs");
    for behind in ["SELECT 2", "123", "(SELECT 2)", "'text'", "/* */ ?"] {
        assert!(db.connection.query_now(&format!("SELECT 1; {behind}"), &[]).is_err(), "{behind}");
        let insert = format!("INSERT INTO t VALUES (?); {behind}");
        assert!(db.connection.exec_now(&insert, &[Value::Null], false).is_err(), "{behind}");
    }
    assert_eq!(db.rows("SELECT count(*) FROM t; -- only words\n ; /* and signs */ ;"), [Value::Integer(0)]);
}
