//! One transaction of a native actor: whatever waited for it, and one commit.
//!
//! Failing is rare and costs a second run: if one item fails, all of them are taken back and the task does each alone. Savepoints
//! around every item would save that, and cost every batch an eighth of its time.

use wasmkeep_classes::database::DatabaseError;
use wasmkeep_classes::host::{self, Effect, Reply};
use wasmkeep_classes::queue::Delivery;
use wasmkeep_storage::sql::Session;

use super::database::{Tables, database_error};
use super::machine::Machine;
use crate::limits::{DELIVERY_WITHDRAWN_MS, NATIVE_REPLY_BYTES_MAX};

/// One thing to do.
pub(super) enum Item {
    /// A request of an actor's.
    Request { path: String, body: bytes::Bytes, caller: String },
    /// A delivery has ended.
    Ended { number: u64, end: End },
    /// The alarm is due, or seems to be: what is due is done after every batch, this only brings one about.
    Alarm,
}

/// How a delivery ended.
pub(super) enum End {
    /// The consumer's answer.
    Answer(bytes::Bytes),
    /// Why there is none, in words for a dead letter.
    Failed(String),
    /// It certainly did not reach the consumer.
    NeverRan,
}

/// What came of an item. Only a request is answered.
pub(super) type Done = Result<Option<Reply>, DatabaseError>;

/// What one transaction did. Nothing of it is kept unless it was committed, which is what it being here means.
pub(super) struct Batch {
    /// For each item, in order, as far as the answers' sizes let it go on: the rest is left to another batch.
    pub(super) done: Vec<Done>,
    pub(super) deliveries: Vec<Delivery>,
    /// See [`super::machine::Due::has_more`].
    pub(super) has_more_due: bool,
    pub(super) effect: Effect,
}

/// Why nothing of a transaction is kept.
pub(super) enum Failed {
    /// One of the items failed.
    Item(DatabaseError),
    /// What was due failed.
    Due(DatabaseError),
    /// It could not be begun or committed.
    Commit(DatabaseError),
}

/// Does the items, then what is due if that may be begun now. After an error the machine's memory is as it was before.
pub(super) fn run(
    db: &mut Session<'_>,
    machine: &mut Machine,
    now_ms: u64,
    items: &[Item],
    may_begin: bool,
) -> Result<Batch, Failed> {
    let is_due = may_begin && machine.alarm().is_some_and(|at_ms| at_ms <= now_ms);
    let only_reads = |item: &Item| matches!(item, Item::Request { path, .. } if machine.only_reads(path));
    let before = machine.state();
    let result = if !is_due && items.iter().all(only_reads) {
        do_items(db, machine, now_ms, items)
    } else {
        transaction(db, machine, now_ms, items, may_begin)
    };
    if result.is_err() {
        db.rollback();
        machine.restore(before);
    }
    result
}

fn transaction(db: &mut Session<'_>, machine: &mut Machine, now_ms: u64, items: &[Item], may_begin: bool) -> Result<Batch, Failed> {
    db.begin().map_err(|error| Failed::Commit(database_error(error)))?;
    let mut batch = do_items(db, machine, now_ms, items)?;
    if may_begin && machine.alarm().is_some_and(|at_ms| at_ms <= now_ms) {
        let due = machine.on_due(&mut Tables(db), now_ms).map_err(Failed::Due)?;
        batch.effect = due.effect.map_or(batch.effect, |effect| batch.effect.max(effect));
        batch.has_more_due = due.has_more;
        batch.deliveries = due.deliveries;
    }
    db.commit(batch.effect == Effect::Durable).map_err(|error| Failed::Commit(database_error(error)))?;
    Ok(batch)
}

fn do_items(db: &mut Session<'_>, machine: &mut Machine, now_ms: u64, items: &[Item]) -> Result<Batch, Failed> {
    let done = Vec::with_capacity(items.len());
    let mut batch = Batch { done, deliveries: Vec::new(), has_more_due: false, effect: Effect::Read };
    let mut bytes = 0;
    for item in items {
        if bytes > NATIVE_REPLY_BYTES_MAX {
            break;
        }
        let (reply, effect) = one(&mut Tables(db), machine, now_ms, item).map_err(Failed::Item)?;
        bytes += reply.as_ref().map_or(0, |reply| reply.body.len());
        batch.effect = batch.effect.max(effect);
        batch.done.push(Ok(reply));
    }
    Ok(batch)
}

fn one(db: &mut Tables<'_, '_>, machine: &mut Machine, now_ms: u64, item: &Item) -> Result<(Option<Reply>, Effect), DatabaseError> {
    match item {
        Item::Request { path, body, caller } => {
            let reply = machine.handle(db, now_ms, host::Request { path, body, caller })?;
            let effect = reply.effect;
            Ok((Some(reply), effect))
        }
        Item::Ended { number, end } => {
            let Some(queue) = machine.queue() else { return Ok((None, Effect::Read)) };
            let effect = match end {
                End::Answer(body) => queue.delivered(db, now_ms, *number, Ok(body))?,
                End::Failed(words) => queue.delivered(db, now_ms, *number, Err(words))?,
                End::NeverRan => queue.withdraw(db, now_ms, *number, DELIVERY_WITHDRAWN_MS)?,
            };
            Ok((None, effect))
        }
        Item::Alarm => Ok((None, Effect::Read)),
    }
}
