//! A host for tests: SQLite in memory.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, params_from_iter};

use crate::database::{Database, DatabaseError, Param, Row};

/// A database in memory. `connection` is for what a host does: transactions, savepoints.
pub(crate) struct Memory {
    pub(crate) connection: Connection,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self { connection: Connection::open_in_memory().expect("opens") }
    }
}

struct Bound<'a>(Param<'a>);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Param::Null => ValueRef::Null,
            Param::Integer(value) => ValueRef::Integer(value),
            Param::Text(value) => ValueRef::Text(value.as_bytes()),
            Param::Blob(value) => ValueRef::Blob(value),
        }))
    }
}

struct Found<'a, 's>(&'a rusqlite::Row<'s>);

impl Row for Found<'_, '_> {
    fn integer(&self, column: usize) -> i64 {
        self.integer_or_null(column).unwrap_or(0)
    }

    fn integer_or_null(&self, column: usize) -> Option<i64> {
        self.0.get_ref(column).ok().and_then(|value| value.as_i64().ok())
    }

    fn bytes(&self, column: usize) -> &[u8] {
        self.0.get_ref(column).ok().and_then(|value| value.as_bytes().ok()).unwrap_or_default()
    }

    fn text_or_null(&self, column: usize) -> Option<&str> {
        self.0.get_ref(column).ok().and_then(|value| value.as_str().ok())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn error(error: rusqlite::Error) -> DatabaseError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => DatabaseError::Full,
        Some(rusqlite::ErrorCode::TooBig) => DatabaseError::TooLarge,
        Some(rusqlite::ErrorCode::OperationInterrupted) => DatabaseError::Deadline,
        _ => DatabaseError::Other(error.to_string()),
    }
}

impl Database for Memory {
    fn execute(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<u64, DatabaseError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(error)?;
        let changed = statement.execute(params_from_iter(params.iter().map(|param| Bound(*param)))).map_err(error)?;
        Ok(changed as u64)
    }

    fn query(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
        each: &mut dyn FnMut(&dyn Row) -> bool,
    ) -> Result<(), DatabaseError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(error)?;
        let mut rows = statement.query(params_from_iter(params.iter().map(|param| Bound(*param)))).map_err(error)?;
        while let Some(row) = rows.next().map_err(error)? {
            if !each(&Found(row)) {
                break;
            }
        }
        Ok(())
    }
}

#[test]
fn rows_read_as_what_was_bound() {
    let mut memory = Memory::new();
    let params = [Param::Integer(7), Param::Null, Param::Text("ä"), Param::Blob(b"\0\xff")];
    let mut seen = 0;
    let mut check = |row: &dyn Row| {
        seen += 1;
        assert_eq!((row.integer(0), row.integer_or_null(1), row.text_or_null(2)), (7, None, Some("ä")));
        assert_eq!((row.bytes(3), row.integer(1), row.text_or_null(3), row.bytes(1)), (&b"\0\xff"[..], 0, None, &b""[..]));
        true
    };
    memory.query("SELECT ?1, ?2, ?3, ?4", &params, &mut check).expect("runs");
    assert_eq!((seen, memory.execute("CREATE TABLE t (x)", &[])), (1, Ok(0)));
    assert_eq!(memory.execute("INSERT INTO t VALUES (?1), (2)", &params[..1]), Ok(2));
    assert!(matches!(memory.execute("nonsense", &[]), Err(DatabaseError::Other(_))));
}
