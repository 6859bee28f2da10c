//! What can go wrong, in the kinds a caller acts on.

use std::path::PathBuf;

/// Why a statement failed. The guest sees this.
#[derive(thiserror::Error, Clone, PartialEq, Debug)]
pub enum SqlError {
    /// SQLite refused the statement.
    #[error("{message} (SQLite code {code})")]
    Sql {
        /// SQLite's extended result code.
        code: i32,
        /// SQLite's own words.
        message: String,
    },
    /// The statement is outside what guests may do.
    #[error("not allowed: {0}")]
    NotAllowed(String),
    /// A value, row, result or transaction is over its limit.
    #[error("too large: {0}")]
    TooLarge(String),
    /// The database reached its own size limit, or the node's disk or journal is full.
    #[error("storage is full")]
    Full,
    /// The event's CPU budget or deadline ran out, or the event was aborted.
    #[error("the event's time ran out")]
    Deadline,
    /// The core's journal takes no write now; nothing was kept.
    #[error("storage is unavailable; nothing was written")]
    Unavailable,
}

/// Why the journal refused a commit. The transaction is rolled back cleanly.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// No room: the journal cannot grow because the disk is full or checkpoints lag.
    #[error("the journal is full")]
    Full,
    /// One record would be larger than `TRANSACTION_BYTES_MAX`.
    #[error("the transaction is too large")]
    TooLarge,
    /// A group failed and the epoch has not been ended yet.
    #[error("the journal has failed and is restarting")]
    Failed,
}

/// Why storage could not open or go on. Ends the process (fatal) or fails one actor (broken), as the caller decides.
#[derive(thiserror::Error, Debug)]
pub enum StorageError {
    /// The operating system refused.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was being done, a verb.
        what: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A journal is damaged where it was already durable.
    #[error(
        "journal {} is damaged at byte {offset}: {detail}. Acknowledged writes may be lost behind this point. Restore the file \
         from a copy, or start once with --accept-journal-loss to go on without them", path.display()
    )]
    JournalDamaged {
        /// The segment.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What did not match.
        detail: String,
    },
    /// A base file is not what we left.
    #[error("base file {}: {detail}", path.display())]
    BaseFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// SQLite could not open a database.
    #[error("opening database {address}: {message}")]
    Open {
        /// `class/name` or the catalog's name.
        address: String,
        /// SQLite's words.
        message: String,
    },
    /// A group of the journal failed and its epoch has not been ended yet; tried again by itself.
    #[error("the journal is restarting after a failed write")]
    Restarting,
    /// A background thread is gone or has too much to do; tried again by itself.
    #[error("background work could not be done now")]
    Background,
}

impl StorageError {
    /// Whether the disk had no space.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull)
    }

    /// Wraps an I/O error with what was being done to which file.
    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}
