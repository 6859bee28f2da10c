//! Transactions of the node's own: what they bind and read, what they undo, and what an interrupt leaves of them.

use std::task::{Context, Poll, Waker};

use super::*;
use crate::sql::Param;

const NONE: [Param<'static>; 0] = [];
const TABLE: &str = "CREATE TABLE t (k INTEGER PRIMARY KEY, v)";
const INSERT: &str = "INSERT INTO t VALUES (?1, ?2)";
const ENDLESS: &str =
    "INSERT INTO t SELECT n, n FROM (WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c)";

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(future)
}

fn count(fixture: &Fixture) -> Value {
    fixture.rows("SELECT count(*) FROM t").remove(0)
}

#[test]
fn values_come_back_as_they_were_bound_and_an_empty_blob_is_no_null() {
    let fixture = fixture();
    let ran = block_on(fixture.connection.run(|db| {
        let mut seen = 0;
        let params = [Param::Integer(7), Param::Null, Param::Text("ä"), Param::Blob(b"\0\xff"), Param::Blob(b""), Param::Text("")];
        db.query("SELECT ?1, ?2, ?3, ?4, ?5, ?6, 1.5, typeof(?5)", params.into_iter(), |row| {
            seen += 1;
            assert_eq!((row.integer(0), row.integer(1), row.integer(2), row.integer(6)), (Some(7), None, None, None));
            assert_eq!((row.text(2), row.text(1), row.text(3), row.text(5)), (Some("ä"), None, None, Some("")));
            assert_eq!(
                (row.bytes(3), row.bytes(2), row.bytes(1), row.bytes(6)),
                (&b"\0\xff"[..], "ä".as_bytes(), &b""[..], &b""[..])
            );
            assert_eq!((row.text(7), row.integer(99), row.bytes(99)), (Some("blob"), None, &b""[..]));
            true
        })?;
        assert_eq!(db.exec(TABLE, NONE.into_iter())?, 0);
        assert_eq!(db.exec("INSERT INTO t VALUES (1, ?1), (2, 0)", [Param::Integer(1)].into_iter())?, 2);
        db.query("SELECT k FROM t", NONE.into_iter(), |_| {
            seen += 1;
            false
        })?;
        assert!(matches!(db.exec(INSERT, NONE.into_iter()), Err(SqlError::Sql { .. })));
        Ok::<_, SqlError>(seen)
    }));
    assert_eq!(ran, Ok(Ok(2)));
}

#[test]
fn a_durable_commit_moves_the_gate_whatever_it_changed_and_another_does_not() {
    let fixture = fixture();
    let one = |n: i64| [Param::Integer(n), Param::Null].into_iter();
    let ran = block_on(fixture.connection.run(|db| {
        db.begin()?;
        db.exec(TABLE, NONE.into_iter())?;
        for n in 1..=2 {
            db.exec(INSERT, one(n))?;
            assert!(db.is_open());
        }
        db.commit(false)
    }));
    assert_eq!(ran, Ok(Ok(())));
    assert_eq!(count(&fixture), Value::Integer(2));
    assert_eq!(fixture.connection.positions(), crate::Positions { gate: Lsn::ZERO, seen: fixture.newest() });
    let ran = block_on(fixture.connection.run(|db| {
        db.begin()?;
        db.commit(true)
    }));
    assert_eq!((ran, fixture.connection.positions().gate), (Ok(Ok(())), fixture.newest()));
    assert!(fixture.recorder.records.borrow().iter().all(|record| !record.durable));
    let ran = block_on(fixture.connection.run(|db| {
        db.begin()?;
        db.exec(INSERT, one(9))?;
        db.commit(true)
    }));
    assert_eq!(ran, Ok(Ok(())));
    assert!(fixture.recorder.records.borrow().last().expect("there is one").durable);
    assert_eq!(fixture.replayed(fixture.newest()).dump(), fixture.dump());
}

#[test]
fn a_transaction_that_an_interrupt_took_away_is_an_error_until_it_is_rolled_back() {
    let fixture = fixture();
    fixture.exec(TABLE).expect("runs");
    fixture.connection.budget().reset(20_000_000);
    let ran = block_on(fixture.connection.run(|db| {
        db.begin()?;
        db.exec(INSERT, [Param::Integer(-1), Param::Null].into_iter())?;
        assert_eq!(db.exec(ENDLESS, NONE.into_iter()), Err(SqlError::Deadline));
        assert!(!db.is_open());
        fixture.connection.budget().reset(u64::MAX);
        assert!(matches!(db.exec(INSERT, [Param::Integer(-2), Param::Null].into_iter()), Err(SqlError::Sql { .. })));
        assert!(matches!(db.commit(true), Err(SqlError::Sql { .. })));
        db.begin()?;
        db.exec(INSERT, [Param::Integer(-3), Param::Null].into_iter())?;
        db.commit(true)
    }));
    assert_eq!(ran, Ok(Ok(())));
    assert_eq!(count(&fixture), Value::Integer(1));
}

#[test]
fn a_commit_that_the_journal_refuses_leaves_nothing_and_the_next_one_works() {
    let fixture = fixture();
    fixture.exec(TABLE).expect("runs");
    for (refused, error) in [(Refused::Full, SqlError::Full), (Refused::Failed, SqlError::Unavailable)] {
        fixture.recorder.refuse.set(Some(refused));
        let ran = block_on(fixture.connection.run(|db| {
            db.begin()?;
            db.exec(INSERT, [Param::Integer(1), Param::Null].into_iter())?;
            db.commit(true)
        }));
        assert_eq!((ran, count(&fixture)), (Ok(Err(error)), Value::Integer(0)));
        fixture.recorder.refuse.set(None);
    }
    let ran = block_on(fixture.connection.run(|db| {
        db.begin()?;
        db.exec(INSERT, [Param::Integer(1), Param::Null].into_iter())?;
        db.commit(true)
    }));
    assert_eq!((ran, count(&fixture)), (Ok(Ok(())), Value::Integer(1)));
}

#[test]
fn a_long_one_lets_others_run_and_one_that_is_dropped_commits_nothing() {
    let fixture = fixture();
    fixture.exec(TABLE).expect("runs");
    {
        let mut run = std::pin::pin!(fixture.connection.run(|db| {
            db.begin()?;
            db.exec(INSERT, [Param::Integer(-1), Param::Null].into_iter())?;
            let _cut_short = db.exec(ENDLESS, NONE.into_iter());
            db.commit(true)
        }));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(matches!(run.as_mut().poll(cx), Poll::Pending));
        let second = block_on(fixture.connection.run(|_| ()));
        assert!(matches!(second, Err(SqlError::Sql { .. })), "two at once would resume each other's stack");
    }
    fixture.connection.end_event();
    assert_eq!(count(&fixture), Value::Integer(0));
    assert_eq!(block_on(fixture.connection.run(|db| db.begin())), Ok(Ok(())));
}
