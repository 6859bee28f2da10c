//! One transaction of a queue: whatever waited for it, each item between two savepoints, and one commit.

use wasmkeep_classes::database::DatabaseError;
use wasmkeep_classes::host::{self, Effect, Reply};
use wasmkeep_classes::queue::{Delivery, Machine};
use wasmkeep_storage::sql::Session;

use super::database::{Tables, database_error};
use crate::limits::DELIVERY_WITHDRAWN_MS;

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
    pub(super) done: Vec<Done>,
    pub(super) deliveries: Vec<Delivery>,
    /// What failed of what was due, if it did.
    pub(super) due: Result<(), DatabaseError>,
    pub(super) effect: Effect,
}

/// Why nothing of a transaction is kept.
pub(super) enum Failed {
    /// It vanished under one of the items, whose error this is.
    Vanished(DatabaseError),
    /// It could not be begun or committed.
    Commit(DatabaseError),
}

/// Does the items, then what is due if it may be pushed now. After an error the machine's memory is as it was before.
pub(super) fn run(
    db: &mut Session<'_>,
    machine: &mut Machine,
    now_ms: u64,
    items: &[Item],
    may_push: bool,
) -> Result<Batch, Failed> {
    let before = machine.state();
    let result = transaction(db, machine, now_ms, items, may_push);
    if result.is_err() {
        db.rollback();
        machine.restore(before);
    }
    result
}

fn transaction(db: &mut Session<'_>, machine: &mut Machine, now_ms: u64, items: &[Item], may_push: bool) -> Result<Batch, Failed> {
    let mut batch = Batch { done: Vec::with_capacity(items.len()), deliveries: Vec::new(), due: Ok(()), effect: Effect::Read };
    db.begin().map_err(|error| Failed::Commit(database_error(error)))?;
    for what in items {
        let done = apart(db, machine, |tables, machine| one(tables, machine, now_ms, what))?;
        batch.done.push(done.map(|(reply, effect)| {
            batch.effect = batch.effect.max(effect);
            reply
        }));
    }
    while may_push && machine.alarm().is_some_and(|at_ms| at_ms <= now_ms) {
        match apart(db, machine, |tables, machine| machine.on_alarm(tables, now_ms))? {
            Ok(alarmed) => {
                batch.effect = batch.effect.max(alarmed.effect);
                let is_done = alarmed.delivery.is_none() && alarmed.effect == Effect::Read;
                batch.deliveries.extend(alarmed.delivery);
                if is_done {
                    break;
                }
            }
            Err(error) => {
                batch.due = Err(error);
                break;
            }
        }
    }
    db.commit(batch.effect == Effect::Durable).map_err(|error| Failed::Commit(database_error(error)))?;
    Ok(batch)
}

/// Does one thing between two savepoints: if it fails, it alone is undone.
fn apart<T>(
    db: &mut Session<'_>,
    machine: &mut Machine,

    what: impl FnOnce(&mut Tables<'_, '_>, &mut Machine) -> Result<T, DatabaseError>,
) -> Result<Result<T, DatabaseError>, Failed> {
    db.savepoint().map_err(|error| Failed::Vanished(database_error(error)))?;
    let before = machine.state();
    match what(&mut Tables(db), machine) {
        Ok(done) => {
            db.release().map_err(|error| Failed::Vanished(database_error(error)))?;
            Ok(Ok(done))
        }
        Err(error) if db.undo().is_ok() => {
            machine.restore(before);
            Ok(Err(error))
        }
        Err(error) => Err(Failed::Vanished(error)),
    }
}

fn one(db: &mut Tables<'_, '_>, machine: &mut Machine, now_ms: u64, item: &Item) -> Result<(Option<Reply>, Effect), DatabaseError> {
    match item {
        Item::Request { path, body, caller } => {
            let reply = machine.handle(db, now_ms, host::Request { path, body, caller })?;
            let effect = reply.effect;
            Ok((Some(reply), effect))
        }
        Item::Ended { number, end } => {
            let effect = match end {
                End::Answer(body) => machine.delivered(db, now_ms, *number, Ok(body))?,
                End::Failed(words) => machine.delivered(db, now_ms, *number, Err(words))?,
                End::NeverRan => machine.withdraw(db, now_ms, *number, DELIVERY_WITHDRAWN_MS)?,
            };
            Ok((None, effect))
        }
        Item::Alarm => Ok((None, Effect::Read)),
    }
}
