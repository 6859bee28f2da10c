//! The state machines that an actor of a native class may be, as one: what its task needs of either.

use wasmkeep_classes::database::{Database, DatabaseError};
use wasmkeep_classes::host::{Effect, Reply, Request};
use wasmkeep_classes::queue::Delivery;
use wasmkeep_classes::{kv, queue};

use crate::config::NativeKind;

/// A state machine in the database of its actor.
#[derive(Debug)]
pub(super) enum Machine {
    Queue(queue::Machine),
    Kv(kv::Machine),
}

/// Memory of a machine at one moment.
pub(super) enum State {
    Queue(queue::State),
    Kv(kv::State),
}

/// What came of doing what was due.
#[derive(Default)]
pub(super) struct Due {
    pub(super) deliveries: Vec<Delivery>,
    pub(super) effect: Option<Effect>,
    /// More is due and can be done at once: it was only too much for one transaction.
    pub(super) has_more: bool,
}

impl Machine {
    pub(super) fn open(db: &mut dyn Database, kind: &NativeKind, now_ms: u64) -> Result<Self, DatabaseError> {
        Ok(match kind {
            NativeKind::Queue(config) => Self::Queue(queue::Machine::open(db, config.clone(), now_ms)?),
            NativeKind::Kv(config) => Self::Kv(kv::Machine::open(db, *config, now_ms)?),
        })
    }

    pub(super) fn state(&self) -> State {
        match self {
            Self::Queue(machine) => State::Queue(machine.state()),
            Self::Kv(machine) => State::Kv(machine.state()),
        }
    }

    pub(super) fn restore(&mut self, state: State) {
        match (self, state) {
            (Self::Queue(machine), State::Queue(state)) => machine.restore(state),
            (Self::Kv(machine), State::Kv(state)) => machine.restore(state),
            // A state goes back to the machine it was taken from.
            (Self::Queue(_), State::Kv(_)) | (Self::Kv(_), State::Queue(_)) => {}
        }
    }

    /// Whether such a request writes nothing and so needs no transaction.
    pub(super) fn only_reads(&self, path: &str) -> bool {
        match self {
            Self::Queue(_) => false,
            Self::Kv(_) => kv::protocol::only_reads(path),
        }
    }

    pub(super) fn handle(&mut self, db: &mut dyn Database, now_ms: u64, request: Request<'_>) -> Result<Reply, DatabaseError> {
        match self {
            Self::Queue(machine) => machine.handle(db, now_ms, request),
            Self::Kv(machine) => machine.handle(db, now_ms, request),
        }
    }

    /// Does what is due: of a queue all that may be out at once, of a shard one sweep.
    pub(super) fn on_due(&mut self, db: &mut dyn Database, now_ms: u64) -> Result<Due, DatabaseError> {
        let mut due = Due::default();
        match self {
            Self::Queue(machine) => {
                while machine.alarm().is_some_and(|at_ms| at_ms <= now_ms) {
                    let alarmed = machine.on_alarm(db, now_ms)?;
                    due.effect = due.effect.max(Some(alarmed.effect));
                    let is_done = alarmed.delivery.is_none() && alarmed.effect == Effect::Read;
                    due.deliveries.extend(alarmed.delivery);
                    if is_done {
                        break;
                    }
                }
            }
            Self::Kv(machine) => {
                let swept = machine.on_alarm(db, now_ms)?;
                due.effect = Some(swept.effect);
                due.has_more = swept.effect > Effect::Read;
            }
        }
        Ok(due)
    }

    /// When it wants to run next, ms.
    pub(super) fn alarm(&self) -> Option<u64> {
        match self {
            Self::Queue(machine) => machine.alarm(),
            Self::Kv(machine) => machine.alarm(),
        }
    }

    /// The queue that it is, if it is one.
    pub(super) const fn queue(&mut self) -> Option<&mut queue::Machine> {
        match self {
            Self::Queue(machine) => Some(machine),
            Self::Kv(_) => None,
        }
    }
}
