//! Settling: what ends a lease, or lengthens it.

use super::codec;
use super::machine::{Done, Machine};
use super::protocol::{Lease, Outcome, Settled, Settlement};
use super::send::number;
use super::sql;
use super::state::Cached;
use crate::database::{Database, DatabaseError, Param};
use crate::host::Effect;
use crate::limits::{QUEUE_BACKOFF_MS_MAX, QUEUE_BACKOFF_MS_MIN};

/// How long a message rests after its `attempt`th lease was given up, ms.
pub(super) fn backoff_ms(attempt: u32) -> u64 {
    let doublings = attempt.saturating_sub(1).min(16);
    (QUEUE_BACKOFF_MS_MIN << doublings).min(QUEUE_BACKOFF_MS_MAX)
}

impl Machine {
    pub(super) fn settle(&mut self, db: &mut dyn Database, now: i64, body: &[u8]) -> Done {
        let settled = self.apply(db, now, &codec::decode_outcomes(body)?)?;
        let is_any = settled.iter().any(|settled| *settled != Settled::Stale);
        Ok((codec::encode_settled(&settled), if is_any { Effect::Local } else { Effect::Read }))
    }

    /// Applies outcomes in their order.
    pub(super) fn apply(
        &mut self,
        db: &mut dyn Database,
        now: i64,
        settlements: &[Settlement<'_>],
    ) -> Result<Vec<Settled>, DatabaseError> {
        let mut settled = Vec::with_capacity(settlements.len());
        let mut rest = settlements;
        while let Some(first) = rest.first() {
            let count = match first.outcome {
                Outcome::Ack => run_of_acks(rest),
                _ => 1,
            };
            match first.outcome {
                Outcome::Ack => self.ack(db, first.lease, count, &mut settled)?,
                Outcome::Retry { delay_ms, error } => {
                    let error = if error.is_empty() { None } else { Some(error) };
                    settled.push(self.retry(db, now, first.lease, delay_ms, error)?);
                }
                Outcome::Extend { visibility_ms } => {
                    settled.push(self.extend(db, first.lease, now + number(visibility_ms))?);
                }
            }
            rest = &rest[count..];
        }
        self.state.counters.stale += settled.iter().filter(|settled| **settled == Settled::Stale).count() as u64;
        Ok(settled)
    }

    /// Acks `count` leases of one attempt and epoch and of consecutive ids: what a batch mostly is.
    fn ack(&mut self, db: &mut dyn Database, first: Lease, count: usize, settled: &mut Vec<Settled>) -> Result<(), DatabaseError> {
        let taken = self.take_leases(db, first, count as u64)?;
        self.state.counters.acked += taken.len() as u64;
        if taken.len() == count {
            settled.resize(settled.len() + count, Settled::Done);
            return self.delete_rows(db, number(first.id), number(first.id + count as u64 - 1));
        }
        let start = settled.len();
        settled.resize(start + count, Settled::Stale);
        for id in taken {
            self.delete_rows(db, id, id)?;
            if let Ok(index) = usize::try_from(id.unsigned_abs() - first.id) {
                settled[start + index] = Settled::Done;
            }
        }
        Ok(())
    }

    /// Makes a message visible again after `delay_ms`, or a dead letter if it may not be leased again.
    pub(super) fn retry(
        &mut self,
        db: &mut dyn Database,
        now: i64,
        lease: Lease,
        delay_ms: Option<u64>,
        error: Option<&str>,
    ) -> Result<Settled, DatabaseError> {
        if self.take_leases(db, lease, 1)?.is_empty() {
            return Ok(Settled::Stale);
        }
        let id = number(lease.id);
        if lease.attempt >= self.config.max_attempts {
            self.dead_letter(db, now, id, error, "given back after its last attempt")?;
            return Ok(Settled::Dead);
        }
        let visible_at = now + number(delay_ms.unwrap_or_else(|| backoff_ms(lease.attempt)));
        db.execute(sql::SHOW_AGAIN, &[Param::Integer(id), Param::Integer(visible_at), error.into()])?;
        self.state.counts.add(visible_at, false);
        self.state.counters.retried += 1;
        Ok(Settled::Done)
    }

    fn extend(&mut self, db: &mut dyn Database, lease: Lease, until: i64) -> Result<Settled, DatabaseError> {
        let mut found = None;
        let [id, attempt, epoch] = params(lease);
        db.query(sql::LEASE_FIND, &[id, id, attempt, epoch], &mut |row| {
            found = Some(row.integer(1));
            false
        })?;
        let Some(before) = found else { return Ok(Settled::Stale) };
        db.execute(sql::LEASE_EXTEND, &[id, Param::Integer(until)])?;
        db.execute(sql::SET_VISIBLE, &[id, Param::Integer(until)])?;
        self.state.counts.remove(before, true);
        self.state.counts.add(until, true);
        self.state.last_until = Cached::Unknown;
        self.forget_earliest();
        Ok(Settled::Done)
    }

    /// Ends those of `count` leases that are current. Their messages are no longer counted. Returns the messages.
    pub(super) fn take_leases(&mut self, db: &mut dyn Database, first: Lease, count: u64) -> Result<Vec<i64>, DatabaseError> {
        let [id, attempt, epoch] = params(first);
        let last = Param::Integer(number(first.id.saturating_add(count - 1)));
        let (mut taken, state) = (Vec::new(), &mut self.state);
        db.query(sql::LEASE_FIND, &[id, last, attempt, epoch], &mut |row| {
            let until = row.integer(1);
            state.counts.remove(until, true);
            if state.last_until.get() == Some(until) {
                state.last_until = Cached::Unknown;
            }
            taken.push(row.integer(0));
            true
        })?;
        if !taken.is_empty() {
            db.execute(sql::LEASE_TAKE, &[id, last, attempt, epoch])?;
            self.forget_earliest();
        }
        Ok(taken)
    }

    /// Deletes messages, none of them blocked and none of them counted any longer. What waits behind them comes up.
    pub(super) fn delete_rows(&mut self, db: &mut dyn Database, from: i64, to: i64) -> Result<(), DatabaseError> {
        db.execute(sql::DELETE, &[Param::Integer(from), Param::Integer(to)])?;
        self.forget_oldest(from, to);
        for key in self.take_keys(db, from, to)? {
            self.unblock(db, &key)?;
        }
        Ok(())
    }

    /// Takes messages out of their lines. Returns the keys.
    pub(super) fn take_keys(&mut self, db: &mut dyn Database, from: i64, to: i64) -> Result<Vec<Vec<u8>>, DatabaseError> {
        let mut keys = Vec::new();
        if self.state.keyed > 0 {
            let run = [Param::Integer(from), Param::Integer(to)];
            db.query(sql::ORDER_FIND, &run, &mut |row| {
                keys.push(row.bytes(0).to_vec());
                true
            })?;
            if !keys.is_empty() {
                let taken = db.execute(sql::ORDER_TAKE, &run)?;
                self.state.keyed = self.state.keyed.saturating_sub(taken);
            }
        }
        Ok(keys)
    }

    /// The next message of a key whose head is gone becomes its head. What was the earliest is forgotten together with the head.
    pub(super) fn unblock(&mut self, db: &mut dyn Database, key: &[u8]) -> Result<(), DatabaseError> {
        let mut next = None;
        db.query(sql::ORDER_NEXT, &[Param::Blob(key)], &mut |row| {
            next = Some((row.integer(0), row.integer(1)));
            false
        })?;
        if let Some((id, due_at)) = next {
            db.execute(sql::SET_VISIBLE, &[Param::Integer(id), Param::Integer(due_at)])?;
            self.state.counts.remove(sql::BLOCKED, false);
            self.state.counts.add(due_at, false);
        }
        Ok(())
    }

    pub(super) const fn forget_earliest(&mut self) {
        self.state.earliest = Cached::Unknown;
    }

    pub(super) fn forget_oldest(&mut self, from: i64, to: i64) {
        if self.state.oldest.get().is_some_and(|(id, _)| (from..=to).contains(&id)) {
            self.state.oldest = Cached::Unknown;
        }
    }
}

/// How many outcomes from the first on are acks of one attempt and epoch and of consecutive ids.
fn run_of_acks(settlements: &[Settlement<'_>]) -> usize {
    let follows = |pair: &&[Settlement<'_>]| {
        let [before, after] = [pair[0].lease, pair[1].lease];
        let is_next = before.id.checked_add(1) == Some(after.id);
        pair[1].outcome == Outcome::Ack && is_next && (before.attempt, before.epoch) == (after.attempt, after.epoch)
    };
    1 + settlements.windows(2).take_while(follows).count()
}

fn params(lease: Lease) -> [Param<'static>; 3] {
    [Param::Integer(number(lease.id)), Param::Integer(lease.attempt.into()), Param::Integer(number(lease.epoch))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_from_a_second_to_five_minutes() {
        let steps: Vec<u64> = [0, 1, 2, 3, 8, 9, 10, 11, 100_000, u32::MAX].map(backoff_ms).to_vec();
        assert_eq!(steps, [1_000, 1_000, 2_000, 4_000, 128_000, 256_000, 300_000, 300_000, 300_000, 300_000]);
    }
}
