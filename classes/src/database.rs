//! A SQLite database as a state machine sees it.

use std::fmt;

/// A value given to a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Param<'a> {
    /// NULL.
    Null,
    /// An integer.
    Integer(i64),
    /// Text, UTF-8.
    Text(&'a str),
    /// Bytes.
    Blob(&'a [u8]),
}

impl From<Option<i64>> for Param<'_> {
    fn from(value: Option<i64>) -> Self {
        value.map_or(Self::Null, Self::Integer)
    }
}

impl<'a> From<Option<&'a str>> for Param<'a> {
    fn from(value: Option<&'a str>) -> Self {
        value.map_or(Self::Null, Self::Text)
    }
}

/// One row of a result. Columns count from 0; a column of another type reads as its type's empty value.
pub trait Row {
    /// An integer, 0 for anything else.
    fn integer(&self, column: usize) -> i64;
    /// An integer, or `None` for NULL.
    fn integer_or_null(&self, column: usize) -> Option<i64>;
    /// Bytes of a blob or text, empty for anything else.
    fn bytes(&self, column: usize) -> &[u8];
    /// Text, or `None` for NULL and for what is not UTF-8.
    fn text_or_null(&self, column: usize) -> Option<&str>;
}

/// Why a statement was not run to its end. What it did is undone; the transaction may be gone as well, which only the host knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DatabaseError {
    /// The database or the node's disk is full.
    Full,
    /// A value, a transaction or a result is larger than the host allows.
    TooLarge,
    /// The event's time is over.
    Deadline,
    /// Anything else, in words for a log.
    Other(String),
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the storage is full"),
            Self::TooLarge => f.write_str("too large for one statement or transaction"),
            Self::Deadline => f.write_str("out of time"),
            Self::Other(words) => f.write_str(words),
        }
    }
}

impl std::error::Error for DatabaseError {}

/// The database of one actor, within the transaction of the request that is being handled. Statements are constants, so that a
/// host may keep them prepared.
pub trait Database {
    /// Runs one statement. Returns how many rows it changed.
    ///
    /// # Errors
    /// As `DatabaseError` says; nothing of the statement is kept.
    fn execute(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<u64, DatabaseError>;

    /// Runs one statement and hands every row to `each`, which says whether it wants another.
    ///
    /// # Errors
    /// As `execute`.
    fn query(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
        each: &mut dyn FnMut(&dyn Row) -> bool,
    ) -> Result<(), DatabaseError>;
}
