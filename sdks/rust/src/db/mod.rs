//! The actor's own SQLite database.
//!
//! Statements run one at a time and each is a transaction of its own, unless [`transaction`] puts several into one. A
//! transaction lasts at most until the end of its event: what is still open then is rolled back.
//!
//! | | an answer waits for it | a crash of the node |
//! | --- | --- | --- |
//! | [`exec_durable`] | yes | keeps it once anything has been answered |
//! | [`exec`] | no | may lose the newest |
//!
//! Both return at once: a durable write costs the actor no waiting, only its answers wait.

mod rows;
mod value;

pub use rows::{ColumnIndex, Row, Rows};
pub use value::{FromValue, Value};

use crate::bindings::wasmkeep::actor::storage;
use core::fmt;

/// Why a statement failed. A statement that failed has changed nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// SQLite refused it.
    Sql {
        /// The extended result code, for example 2067 for a broken UNIQUE constraint.
        code: i32,
        /// SQLite's description.
        message: String,
    },
    /// Actors may not do this; the text names what, and what to do instead.
    NotAllowed(String),
    /// A value, row, result or transaction is over its limit.
    TooLarge,
    /// The database is at its size limit, or the node's disk or journal is full.
    Full,
    /// The event's time ran out while the statement ran.
    Deadline,
    /// A row has no such column, or its value is not of the type asked for.
    Column(String),
}

impl Error {
    /// Whether a UNIQUE or PRIMARY KEY rule was broken.
    pub fn is_unique_violation(&self) -> bool {
        const SQLITE_CONSTRAINT_PRIMARYKEY: i32 = 1555;
        const SQLITE_CONSTRAINT_UNIQUE: i32 = 2067;
        matches!(self, Self::Sql { code: SQLITE_CONSTRAINT_PRIMARYKEY | SQLITE_CONSTRAINT_UNIQUE, .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sql { code, message } => write!(f, "SQLite refused the statement: {message} (code {code})"),
            Self::NotAllowed(what) => write!(f, "not allowed: {what}"),
            Self::TooLarge => f.write_str("a value, row, result or transaction is over its limit"),
            Self::Full => f.write_str("the database, the disk or the journal is full"),
            Self::Deadline => f.write_str("the event's time ran out while the statement ran"),
            Self::Column(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

impl From<storage::Error> for Error {
    fn from(error: storage::Error) -> Self {
        match error {
            storage::Error::Sql(failure) => Self::Sql { code: failure.code, message: failure.message },
            storage::Error::NotAllowed(what) => Self::NotAllowed(what),
            storage::Error::TooLarge => Self::TooLarge,
            storage::Error::Full => Self::Full,
            storage::Error::Deadline => Self::Deadline,
        }
    }
}

/// Runs one statement that changes something and returns how many rows it changed. The change is *local*: it is kept across
/// the actor's sleep and a clean stop, but a crash may lose the newest such changes, and no answer waits for them.
///
/// # Errors
/// [`Error`]; the statement has then changed nothing.
pub fn exec(sql: &str, params: &[Value]) -> Result<u64, Error> {
    Ok(storage::exec(sql, params)?)
}

/// Like [`exec`], and durable: whatever leaves this actor after this call waits until the change is on disk. The call itself
/// returns at once.
///
/// # Errors
/// [`Error`]; the statement has then changed nothing.
pub fn exec_durable(sql: &str, params: &[Value]) -> Result<u64, Error> {
    Ok(storage::exec_durable(sql, params)?)
}

/// Runs one statement and returns its rows, all at once: bound what may be many with `LIMIT`.
///
/// # Errors
/// [`Error`]; [`Error::TooLarge`] if the result is over its limit.
pub fn query(sql: &str, params: &[Value]) -> Result<Rows, Error> {
    Ok(Rows::from_wire(storage::query(sql, params)?))
}

/// The first column of the first row; `None` if there is no row.
///
/// # Errors
/// [`Error`]; [`Error::Column`] if the value is not of type `T`. Where it may be NULL, ask for an `Option`.
pub fn scalar<T: for<'a> FromValue<'a>>(sql: &str, params: &[Value]) -> Result<Option<T>, Error> {
    query(sql, params)?.first().map(|row| row.get(0)).transpose()
}

/// Runs `work` in one transaction and commits it durably if it succeeds. If it fails, everything it changed is rolled back
/// and its error is returned. Not to be nested: `BEGIN` inside a transaction is an error of SQLite.
///
/// ```no_run
/// use wasmkeep_sdk::{db, params};
///
/// fn transfer(from: &str, to: &str, amount: i64) -> Result<(), db::Error> {
///     db::transaction(|| {
///         db::exec("UPDATE account SET balance = balance - ? WHERE name = ?", params![amount, from])?;
///         db::exec("UPDATE account SET balance = balance + ? WHERE name = ?", params![amount, to])?;
///         Ok(())
///     })
/// }
/// ```
///
/// # Errors
/// That of `work`, or why `BEGIN` or `COMMIT` failed; nothing is changed then.
pub fn transaction<T, E: From<Error>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    run_transaction(exec_durable, work)
}

/// Like [`transaction`], with a local commit: see [`exec`]. A statement in it that was run with [`exec_durable`] makes the
/// whole transaction durable.
///
/// # Errors
/// As [`transaction`].
pub fn transaction_local<T, E: From<Error>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    run_transaction(exec, work)
}

fn run_transaction<T, E: From<Error>>(
    commit: fn(&str, &[Value]) -> Result<u64, Error>,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    exec("BEGIN", &[])?;
    let outcome = work().and_then(|value| {
        commit("COMMIT", &[])?;
        Ok(value)
    });
    if outcome.is_err() {
        // SQLite may have rolled back on its own already, which makes this fail; there is nothing left to undo then, and the
        // error worth returning is the first.
        let _ = exec("ROLLBACK", &[]);
    }
    outcome
}

/// The parameters of a statement: each becomes a [`Value`].
///
/// ```
/// use wasmkeep_sdk::{db::Value, params};
///
/// let name = String::from("a");
/// let list: &[Value] = params![1, 2.5, "text", &name, None::<i64>, b"raw".to_vec()];
/// assert_eq!(list[0], Value::Integer(1));
/// assert_eq!(list[4], Value::Null);
/// assert!(params![].is_empty());
/// ```
#[macro_export]
macro_rules! params {
    () => { &[] as &[$crate::db::Value] };
    ($($value:expr),+ $(,)?) => { &[$($crate::db::Value::from($value)),+] as &[$crate::db::Value] };
}
