//! An actor's database as a state machine sees it.

use wasmkeep_classes::database::{Database, DatabaseError, Param, Row};
use wasmkeep_storage::SqlError;
use wasmkeep_storage::sql;

/// A session of the node's own within a transaction.
pub(super) struct Tables<'a, 'c>(pub(super) &'a mut sql::Session<'c>);

struct Found<'a>(sql::Row<'a>);

impl Row for Found<'_> {
    fn integer(&self, column: usize) -> i64 {
        self.0.integer(column).unwrap_or(0)
    }

    fn integer_or_null(&self, column: usize) -> Option<i64> {
        self.0.integer(column)
    }

    fn bytes(&self, column: usize) -> &[u8] {
        self.0.bytes(column)
    }

    fn text_or_null(&self, column: usize) -> Option<&str> {
        self.0.text(column)
    }
}

const fn bound<'a>(param: &Param<'a>) -> sql::Param<'a> {
    match *param {
        Param::Null => sql::Param::Null,
        Param::Integer(integer) => sql::Param::Integer(integer),
        Param::Text(text) => sql::Param::Text(text),
        Param::Blob(blob) => sql::Param::Blob(blob),
    }
}

/// What a failed statement means to a state machine.
#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
pub(super) fn database_error(error: SqlError) -> DatabaseError {
    match error {
        SqlError::Full => DatabaseError::Full,
        SqlError::TooLarge(_) => DatabaseError::TooLarge,
        SqlError::Deadline => DatabaseError::Deadline,
        SqlError::Sql { .. } | SqlError::NotAllowed(_) | SqlError::Unavailable => DatabaseError::Other(error.to_string()),
    }
}

impl Database for Tables<'_, '_> {
    fn execute(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<u64, DatabaseError> {
        self.0.exec(sql, params.iter().map(bound)).map_err(database_error)
    }

    fn query(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
        each: &mut dyn FnMut(&dyn Row) -> bool,
    ) -> Result<(), DatabaseError> {
        self.0.query(sql, params.iter().map(bound), |row| each(&Found(row))).map_err(database_error)
    }
}
