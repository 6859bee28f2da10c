//! Statements of the node's own in an actor's database: many in one go on one coroutine, prepared once, nothing copied.
//!
//! A guest's statements come one by one (`Connection::exec`, `query`); what the node itself serves from a database runs whole
//! transactions in a plain closure, which is suspended within its statements like a guest's.

use std::ffi::c_int;

use rusqlite::ffi;

use super::connection::{Connection, misuse};
use super::coroutine;
use super::statement::Statement;
use crate::error::SqlError;
use crate::types::Positions;

/// A value bound to a statement, borrowed for as long as the statement runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Param<'a> {
    /// NULL.
    Null,
    /// An integer.
    Integer(i64),
    /// Text, UTF-8.
    Text(&'a str),
    /// Bytes; none are an empty blob, not NULL.
    Blob(&'a [u8]),
}

/// The current row of a query. Columns count from 0; a column of another type reads as its type's empty value.
#[derive(Clone, Copy)]
pub struct Row<'a>(&'a Statement);

impl Row<'_> {
    /// An integer, or `None` for anything else.
    #[must_use]
    pub fn integer(&self, column: usize) -> Option<i64> {
        self.0.integer(index(column))
    }

    /// Bytes of a blob or text, empty for anything else.
    #[must_use]
    pub fn bytes(&self, column: usize) -> &[u8] {
        self.0.bytes(index(column), &[ffi::SQLITE_BLOB, ffi::SQLITE_TEXT]).unwrap_or_default()
    }

    /// Text, or `None` for anything else and for what is not UTF-8.
    #[must_use]
    pub fn text(&self, column: usize) -> Option<&str> {
        self.0.bytes(index(column), &[ffi::SQLITE_TEXT]).and_then(|bytes| std::str::from_utf8(bytes).ok())
    }
}

/// SQLite reads NULL from a column that there is not.
fn index(column: usize) -> c_int {
    c_int::try_from(column).unwrap_or(c_int::MAX)
}

/// A connection within `Connection::run`. Statements are constants and stay prepared.
///
/// Once a transaction was rolled back by an interrupt or an error of its own, every statement fails until `rollback`: nothing runs
/// as if it were still open.
pub struct Session<'a> {
    connection: &'a Connection,
    /// A transaction was begun and neither committed nor rolled back by us.
    begun: bool,
}

impl Connection {
    /// Runs `work` on a coroutine, suspended within its statements after each slice. Dropping the future lets `work` run to its
    /// end with every further statement failing, so that it commits nothing.
    ///
    /// # Errors
    /// Only if another statement of this connection is still running.
    pub async fn run<R>(&self, work: impl FnOnce(&mut Session<'_>) -> R) -> Result<R, SqlError> {
        let _busy = self.claim()?;
        let session = || work(&mut Session { connection: self, begun: false });
        Ok(coroutine::run(&self.progress, &self.account, session).await)
    }
}

impl Session<'_> {
    /// Runs one statement. Returns how many rows it changed.
    ///
    /// # Errors
    /// Why it did nothing; whether its transaction is still there says `is_open`.
    pub fn exec<'p>(&mut self, sql: &'static str, params: impl ExactSizeIterator<Item = Param<'p>>) -> Result<u64, SqlError> {
        let before = self.connection.total_changes();
        self.run(sql, params, |_| true)?;
        Ok(if self.connection.total_changes() == before { 0 } else { self.connection.changes() })
    }

    /// Runs one statement and hands every row to `each`, which says whether it wants another.
    ///
    /// # Errors
    /// As `exec`.
    pub fn query<'p>(
        &mut self,
        sql: &'static str,
        params: impl ExactSizeIterator<Item = Param<'p>>,
        each: impl FnMut(Row<'_>) -> bool,
    ) -> Result<(), SqlError> {
        self.run(sql, params, each)
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// As `exec`; so do all others.
    pub fn begin(&mut self) -> Result<(), SqlError> {
        self.run("BEGIN", [].into_iter(), |_| true)?;
        self.begun = true;
        Ok(())
    }

    /// Commits. `durable` makes it durable class, whether or not anything was changed: what leaves the actor later waits for
    /// whatever was read or written here.
    ///
    /// # Errors
    /// As `exec`; the transaction is then rolled back.
    pub fn commit(&mut self, durable: bool) -> Result<(), SqlError> {
        let connection = self.connection;
        connection.shared.durable.set(durable);
        let result = self.run("COMMIT", [].into_iter(), |_| true);
        if result.is_err() {
            self.rollback();
            return result;
        }
        self.begun = false;
        connection.shared.durable.set(false);
        if durable {
            let newest = connection.pages.borrow().newest_lsn();
            connection.absorb(Positions { gate: newest, seen: newest });
        }
        Ok(())
    }

    /// Ends the transaction, and undoes all of it that was not undone already.
    pub fn rollback(&mut self) {
        self.begun = false;
        self.connection.roll_back();
    }

    /// Whether the transaction that was begun is still there.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.begun && !self.connection.is_autocommit()
    }

    fn run<'p>(
        &mut self,
        sql: &'static str,
        params: impl ExactSizeIterator<Item = Param<'p>>,
        mut each: impl FnMut(Row<'_>) -> bool,
    ) -> Result<(), SqlError> {
        let connection = self.connection;
        if self.begun && connection.is_autocommit() {
            return Err(misuse("the transaction was rolled back by an earlier error"));
        }
        if connection.shared.aborting.get() {
            return Err(SqlError::Unavailable);
        }
        // A short statement would end before SQLite asks the progress handler.
        if connection.progress.must_end() {
            return Err(SqlError::Deadline);
        }
        let statement = connection.constant(sql)?;
        statement.bind_params(params)?;
        let mut wants = true;
        let result = loop {
            match statement.step() {
                ffi::SQLITE_ROW => {
                    wants = wants && each(Row(&statement));
                    // One that writes is run to its end all the same.
                    if !wants && statement.is_readonly() {
                        break Ok(());
                    }
                }
                ffi::SQLITE_DONE => break Ok(()),
                code => break Err(connection.error(code)),
            }
        };
        statement.reset();
        connection.keep_constant(sql, statement);
        result
    }
}
