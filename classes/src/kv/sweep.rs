//! The alarm of a shard: it deletes what is past its time, some at once, and finds when the next one is.

use super::machine::{Machine, first};
use super::sql;
use crate::database::{Database, DatabaseError, Param};
use crate::host::Effect;
use crate::limits::{KV_SWEEP_BYTES_MAX, KV_SWEEP_MAX};

/// What an alarm did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Rows deleted.
    pub rows: u64,
    /// Operation ids deleted.
    pub operations: u64,
    /// What a crash takes back of it, the next alarm does again; so never `Durable`.
    pub effect: Effect,
}

/// How many of the first rows a sweep or prune may delete: no more bytes than it may, and one at least.
pub(super) fn within_bytes(sizes: impl IntoIterator<Item = usize>) -> usize {
    let (mut count, mut bytes) = (0, 0);
    for size in sizes {
        bytes += size;
        if count > 0 && bytes > KV_SWEEP_BYTES_MAX {
            break;
        }
        count += 1;
    }
    count
}

impl Machine {
    /// Deletes up to 500 rows and 500 operation ids that are past their time. `alarm` then says when the next are, at once if there
    /// are more. An alarm that came too early deletes nothing.
    ///
    /// # Errors
    /// As the database does. The host then rolls back, to a savepoint or all of it, and calls `restore`.
    pub fn on_alarm(&mut self, db: &mut dyn Database, now_ms: u64) -> Result<Swept, DatabaseError> {
        let now = self.state.clock.read(now_ms);
        let is_due = |due: Option<i64>| due.is_some_and(|due| due <= now);
        let (mut rows, mut operations) = (0, 0);
        if is_due(self.state.rows_due) {
            rows = sweep_rows(db, now)?;
            self.state.rows_due = first(db, sql::NEXT_EXPIRY, &[])?;
        }
        if is_due(self.state.operations_due) {
            let limit = i64::try_from(KV_SWEEP_MAX).expect("it is small");
            operations = db.execute(sql::OPERATION_SWEEP, &[Param::Integer(now), Param::Integer(limit)])?;
            self.state.operations_due = first(db, sql::OPERATION_NEXT, &[])?;
        }
        let effect = if rows + operations > 0 { Effect::Local } else { Effect::Read };
        if effect == Effect::Local {
            self.write_clock(db)?;
        }
        Ok(Swept { rows, operations, effect })
    }
}

fn sweep_rows(db: &mut dyn Database, now: i64) -> Result<u64, DatabaseError> {
    let mut sizes = Vec::new();
    let limit = i64::try_from(KV_SWEEP_MAX).expect("it is small");
    db.query(sql::EXPIRED, &[Param::Integer(now), Param::Integer(limit)], &mut |row| {
        sizes.push(usize::try_from(row.integer(0)).unwrap_or(0));
        true
    })?;
    let count = i64::try_from(within_bytes(sizes)).expect("it is small");
    if count == 0 { Ok(0) } else { db.execute(sql::SWEEP, &[Param::Integer(now), Param::Integer(count)]) }
}
