//! Leasing: which messages are next, and what of them is dead instead.

use super::codec;
use super::machine::{Done, Machine};
use super::protocol::{Lease, Leased};
use super::send::number;
use super::sql;
use crate::database::{Database, DatabaseError, Param, Row};
use crate::host::Effect;
use crate::limits::{QUEUE_LEASE_BYTES_MAX, QUEUE_MOVED_MAX};
use crate::wire::Writer;

/// Messages leased together.
pub(super) struct Batch {
    pub(super) leases: Vec<Lease>,
    /// The stream of them.
    pub(super) body: Vec<u8>,
    pub(super) effect: Effect,
}

/// One look at the head of the queue.
struct Pass {
    epoch: u64,
    attempts_max: i64,
    leases: Vec<Lease>,
    exhausted: Vec<i64>,
    bytes: usize,
    writer: Writer,
}

impl Pass {
    /// Whether it wants another row.
    fn take(&mut self, row: &dyn Row) -> bool {
        let (id, attempts, body) = (row.integer(0), row.integer(1), row.bytes(3));
        if self.bytes > 0 && self.bytes + body.len() > QUEUE_LEASE_BYTES_MAX {
            return false;
        }
        self.bytes += body.len();
        if attempts >= self.attempts_max {
            self.exhausted.push(id);
        } else if self.exhausted.is_empty() {
            let attempt = u32::try_from(attempts + 1).unwrap_or(u32::MAX);
            let lease = Lease { id: id.unsigned_abs(), attempt, epoch: self.epoch };
            let key = row.bytes(4);
            let ordering_key = if key.is_empty() { None } else { Some(key) };
            let enqueued_at_ms = row.integer(2).unsigned_abs();
            codec::put_leased(&mut self.writer, &Leased { lease, enqueued_at_ms, ordering_key, body });
            self.leases.push(lease);
        }
        true
    }
}

impl Machine {
    pub(super) fn lease(&mut self, db: &mut dyn Database, now: i64, body: &[u8]) -> Done {
        let (max, visibility_ms) = codec::decode_lease(body)?;
        if self.state.is_paused {
            return Ok((codec::end_stream(Writer::new()), Effect::Read));
        }
        let batch = self.lease_batch(db, now, max, visibility_ms)?;
        Ok((batch.body, batch.effect))
    }

    /// Leases what is visible, oldest first. Messages at the head that have had all their leases are dead-lettered and the next
    /// ones looked at; with very many of them the batch may be empty although there is more.
    pub(super) fn lease_batch(
        &mut self,
        db: &mut dyn Database,
        now: i64,
        max: u32,
        visibility_ms: u64,
    ) -> Result<Batch, DatabaseError> {
        self.count_until(db, now)?;
        let (mut killed, mut bytes, mut effect) = (0, 0, Effect::Read);
        loop {
            let pass = self.look(db, now, max)?;
            if pass.exhausted.is_empty() {
                return self.give(db, now + number(visibility_ms), pass, effect);
            }
            for id in &pass.exhausted {
                self.dead_letter_visible(db, now, *id)?;
            }
            effect = Effect::Local;
            killed += pass.exhausted.len();
            bytes += pass.bytes;
            if killed >= QUEUE_MOVED_MAX || bytes >= QUEUE_LEASE_BYTES_MAX {
                return Ok(Batch { leases: Vec::new(), body: codec::end_stream(Writer::new()), effect });
            }
        }
    }

    fn look(&self, db: &mut dyn Database, now: i64, max: u32) -> Result<Pass, DatabaseError> {
        let mut pass = Pass {
            epoch: (self.state.epoch + i64::from(!self.state.is_epoch_ours)).unsigned_abs(),
            attempts_max: self.config.max_attempts.into(),
            leases: Vec::new(),
            exhausted: Vec::new(),
            bytes: 0,
            writer: Writer::new(),
        };
        if self.state.counts.visible > 0 {
            let statement = if self.state.keyed > 0 { sql::DUE_KEYED } else { sql::DUE };
            db.query(statement, &[Param::Integer(now), Param::Integer(max.into())], &mut |row| pass.take(row))?;
        }
        Ok(pass)
    }

    /// Writes the leases of a pass without exhausted messages.
    fn give(&mut self, db: &mut dyn Database, until: i64, pass: Pass, mut effect: Effect) -> Result<Batch, DatabaseError> {
        if !pass.leases.is_empty() {
            effect = effect.max(self.own_epoch(db)?);
            let (epoch, attempts_max) = (Param::Integer(self.state.epoch), self.config.max_attempts);
            for run in pass.leases.chunk_by(|before, after| before.id + 1 == after.id) {
                let [first, last] = [run[0].id, run[run.len() - 1].id].map(|id| Param::Integer(number(id)));
                let until = Param::Integer(until);
                db.execute(sql::LEASE_MARK, &[first, last, epoch, until, Param::Integer(attempts_max.into())])?;
                db.execute(sql::LEASE_HIDE, &[first, last, until])?;
            }
            if pass.leases.iter().any(|lease| lease.attempt >= attempts_max) {
                self.state.last_until.add(until);
            }
            let count = pass.leases.len() as u64;
            self.state.counts.visible = self.state.counts.visible.saturating_sub(count);
            self.state.counts.leased += count;
            self.state.counters.leased += count;
            self.forget_earliest();
        }
        Ok(Batch { leases: pass.leases, body: codec::end_stream(pass.writer), effect })
    }

    /// Before the first lease since the queue was opened, or since attempts were counted back, the epoch is raised, durably: a
    /// crash may have forgotten leases that look like the ones to come.
    fn own_epoch(&mut self, db: &mut dyn Database) -> Result<Effect, DatabaseError> {
        if self.state.is_epoch_ours {
            return Ok(Effect::Local);
        }
        self.state.epoch += 1;
        self.state.is_epoch_ours = true;
        db.execute(sql::META_PUT, &[Param::Text("epoch"), Param::Integer(self.state.epoch)])?;
        Ok(Effect::Durable)
    }
}
