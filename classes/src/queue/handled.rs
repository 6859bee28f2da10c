//! For consumers: which messages were handled, kept in the consumer's own database and in the same transaction as what handling
//! them did there. A message that is delivered again, because its ack was lost, is then recognised.
//!
//! It cannot know of effects outside of that database.

use crate::database::{Database, DatabaseError, Param};
use crate::limits::{QUEUE_HANDLED_RETENTION_MS, QUEUE_MOVED_MAX};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS wasmkeep_queue_handled (queue TEXT NOT NULL, id INTEGER NOT NULL,
    handled_at INTEGER NOT NULL, PRIMARY KEY (queue, id)) WITHOUT ROWID";

const INDEX: &str = "CREATE INDEX IF NOT EXISTS wasmkeep_queue_handled_at ON wasmkeep_queue_handled (handled_at)";

const RECORD: &str = "INSERT OR IGNORE INTO wasmkeep_queue_handled (queue, id, handled_at) VALUES (?1, ?2, ?3)";

const FIND: &str = "SELECT 1 FROM wasmkeep_queue_handled WHERE queue = ?1 AND id = ?2";

const SWEEP: &str = "DELETE FROM wasmkeep_queue_handled WHERE (queue, id) IN
    (SELECT queue, id FROM wasmkeep_queue_handled WHERE handled_at <= ?1 ORDER BY handled_at LIMIT ?2)";

/// The handled messages of all queues that deliver to one consumer.
#[derive(Clone, Copy, Debug)]
pub struct Handled {
    retention_ms: u64,
}

impl Default for Handled {
    fn default() -> Self {
        Self { retention_ms: QUEUE_HANDLED_RETENTION_MS }
    }
}

impl Handled {
    /// Remembers for `retention_ms`, which should be longer than a message can stay in its queue.
    #[must_use]
    pub const fn keeping_ms(retention_ms: u64) -> Self {
        Self { retention_ms }
    }

    /// Makes the table if it is missing.
    ///
    /// # Errors
    /// As the database does; so do all others.
    pub fn create(&self, db: &mut dyn Database) -> Result<(), DatabaseError> {
        db.execute(TABLE, &[])?;
        db.execute(INDEX, &[]).map(drop)
    }

    /// Whether a message was handled. `queue` is the address that the host vouches for as the delivery's caller.
    ///
    /// # Errors
    /// As `create`.
    pub fn is_handled(&self, db: &mut dyn Database, queue: &str, id: u64) -> Result<bool, DatabaseError> {
        let mut found = false;
        db.query(FIND, &[Param::Text(queue), number(id)], &mut |_| {
            found = true;
            false
        })?;
        Ok(found)
    }

    /// Records that a message is handled. Returns false if it was already, so that "record it, and act if it is new" is one step.
    ///
    /// # Errors
    /// As `create`.
    pub fn record(&self, db: &mut dyn Database, now_ms: u64, queue: &str, id: u64) -> Result<bool, DatabaseError> {
        Ok(db.execute(RECORD, &[Param::Text(queue), number(id), number(now_ms)])? == 1)
    }

    /// Forgets up to 500 messages that were handled longer ago than the retention. Call it once per delivery. Returns whether there
    /// are more.
    ///
    /// # Errors
    /// As `create`.
    pub fn sweep(&self, db: &mut dyn Database, now_ms: u64) -> Result<bool, DatabaseError> {
        let Some(before) = now_ms.checked_sub(self.retention_ms) else { return Ok(false) };
        let swept = db.execute(SWEEP, &[number(before), number(QUEUE_MOVED_MAX as u64)])?;
        Ok(swept == QUEUE_MOVED_MAX as u64)
    }
}

/// An id, a time or a count as SQLite has them.
fn number(value: u64) -> Param<'static> {
    Param::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}
