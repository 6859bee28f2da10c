//! Push: what the alarm does, what a consumer's answer does.
//!
//! Which deliveries are out is in memory only. If a crash forgets them, their leases run out.

use std::sync::Arc;

use super::codec;
use super::machine::{Machine, first};
use super::protocol::{DELIVER, Lease};
use super::send::number;
use super::sql;
use super::state::Out;
use crate::database::{Database, DatabaseError, Param};
use crate::host::Effect;
use crate::limits::{QUEUE_DELAY_MS_MAX, QUEUE_MOVED_MAX, QUEUE_SWEEP_LINGER_MS};

/// A batch for the host to carry to the consumer by one call, once its effect has happened. The host then calls `delivered`, or
/// `withdraw`, exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Names it towards the machine.
    pub number: u64,
    /// `class/name`.
    pub consumer: String,
    /// Where to.
    pub path: &'static str,
    /// The messages, for `decode_delivery`.
    pub body: Vec<u8>,
}

/// What an alarm did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarmed {
    /// What to deliver.
    pub delivery: Option<Delivery>,
    /// What must have happened before it is delivered.
    pub effect: Effect,
}

impl Machine {
    /// Sweeps what is due and leases one batch for the consumer, if it may have one now. Harmless when nothing is due.
    ///
    /// # Errors
    /// As `handle`.
    pub fn on_alarm(&mut self, db: &mut dyn Database, now_ms: u64) -> Result<Alarmed, DatabaseError> {
        let now = self.state.clock.read(now_ms);
        let mut effect = self.sweep(db, now)?;
        let mut delivery = None;
        if self.may_push() && self.state.earliest.get().is_some_and(|at| at <= now) {
            let batch = self.lease_batch(db, now, self.config.batch, self.config.visibility_ms)?;
            effect = effect.max(batch.effect);
            delivery = self.deliver(batch.leases, batch.body);
        }
        self.finish(db, now, effect)?;
        Ok(Alarmed { delivery, effect })
    }

    /// Takes the end of a delivery: the body of the consumer's answer, or why there is none in words for a dead letter. An answer
    /// of another status than 200 is the latter. Then the whole batch is retried with backoff, as it is if the answer means
    /// nothing. The outcome of an unknown delivery is ignored.
    ///
    /// # Errors
    /// As `handle`; the delivery is out again after `restore`.
    pub fn delivered(
        &mut self,
        db: &mut dyn Database,
        now_ms: u64,
        number: u64,
        result: Result<&[u8], &str>,
    ) -> Result<Effect, DatabaseError> {
        let now = self.state.clock.read(now_ms);
        let Some(leases) = self.take_out(number) else { return Ok(Effect::Read) };
        match result.map(codec::decode_outcomes) {
            Ok(Ok(settlements)) => {
                self.apply(db, now, &settlements)?;
            }
            Ok(Err(invalid)) => self.retry_all(db, now, &leases, &format!("the consumer's answer was refused: {invalid}"))?,
            Err(error) => self.retry_all(db, now, &leases, codec::cut(error))?,
        }
        self.finish(db, now, Effect::Local)?;
        Ok(Effect::Local)
    }

    /// Takes back a delivery that certainly did not reach the consumer, as when the node stops: its messages are visible again
    /// after
    /// `delay_ms`, at most a year, and this was no attempt.
    ///
    /// # Errors
    /// As `delivered`.
    pub fn withdraw(&mut self, db: &mut dyn Database, now_ms: u64, number: u64, delay_ms: u64) -> Result<Effect, DatabaseError> {
        let now = self.state.clock.read(now_ms);
        let Some(leases) = self.take_out(number) else { return Ok(Effect::Read) };
        let visible_at = now + super::send::number(delay_ms.min(QUEUE_DELAY_MS_MAX));
        for lease in leases.iter() {
            for id in self.take_leases(db, *lease, 1)? {
                db.execute(sql::GIVE_BACK, &[Param::Integer(id), Param::Integer(visible_at)])?;
                self.state.counts.add(visible_at, false);
            }
        }
        // Their next lease has the same count.
        self.state.is_epoch_ours = false;
        self.finish(db, now, Effect::Local)?;
        Ok(Effect::Local)
    }

    fn finish(&mut self, db: &mut dyn Database, now: i64, effect: Effect) -> Result<(), DatabaseError> {
        if effect > Effect::Read {
            self.write_clock(db, now)?;
        }
        self.refresh(db)
    }

    fn sweep(&mut self, db: &mut dyn Database, now: i64) -> Result<Effect, DatabaseError> {
        let mut effect = Effect::Read;
        if self.state.dedupe_until.is_some_and(|until| until + number(QUEUE_SWEEP_LINGER_MS) <= now) {
            let limit = Param::Integer(number(QUEUE_MOVED_MAX as u64));
            db.execute(sql::DEDUPE_SWEEP, &[Param::Integer(now), limit])?;
            self.state.dedupe_until = first(db, sql::DEDUPE_EARLIEST)?;
            effect = Effect::Local;
        }
        if self.state.last_until.get().is_some_and(|until| until <= now) {
            self.sweep_ran_out(db, now)?;
            effect = Effect::Local;
        }
        // A message that came up behind a dead one may be due as well.
        self.refresh(db)?;
        Ok(effect)
    }

    fn deliver(&mut self, leases: Vec<Lease>, body: Vec<u8>) -> Option<Delivery> {
        let consumer = self.config.consumer.clone().filter(|_| !leases.is_empty())?;
        self.state.deliveries += 1;
        let number = self.state.deliveries;
        Arc::make_mut(&mut self.state.out).push(Out { number, leases: leases.into() });
        Some(Delivery { number, consumer, path: DELIVER, body })
    }

    fn take_out(&mut self, number: u64) -> Option<Arc<[Lease]>> {
        let index = self.state.out.iter().position(|out| out.number == number)?;
        Some(Arc::make_mut(&mut self.state.out).swap_remove(index).leases)
    }

    fn retry_all(&mut self, db: &mut dyn Database, now: i64, leases: &[Lease], error: &str) -> Result<(), DatabaseError> {
        for lease in leases {
            self.retry(db, now, *lease, None, Some(error))?;
        }
        Ok(())
    }
}
