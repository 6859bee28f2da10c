//! Everything that can wake a core, on one screen.
//!
//! The enum is closed on purpose: whoever adds a way to wake a core adds it here, and the pump's `match` will not compile until
//! it is handled.

use wasmkeep_storage::store::Progress;
use wasmkeep_storage::{Address, Positions};

use super::operator::Question;
use super::reply::ReplyTo;
use crate::event::{Outcome, Request};

/// What the pump takes, one at a time.
pub(crate) enum Wake {
    /// An event for an actor of this core.
    Event(Box<Event>),
    /// The answer to a request that this core had sent to another one.
    Reply {
        /// The number this core gave the request.
        slot: u64,
        /// What the other core answered, durable there.
        outcome: Outcome,
    },
    /// Groups became durable, or one failed.
    Journal(Progress),
    /// The alarm of this actor is due.
    Alarm(Address),
    /// The coarse timer: deadlines, hibernation, retries.
    Sweep,
    /// The operator asks something about actors.
    Question(Question),
}

/// One event on its way to an actor's mailbox.
pub(crate) struct Event {
    /// Whose it is.
    pub(crate) address: Address,
    /// What is to be done.
    pub(crate) work: Work,
    /// The actor that called, vouched for by the host.
    pub(crate) caller: Option<Address>,
    /// Every actor that is waiting for this event, outermost first: none of them may be called again from here.
    pub(crate) chain: Vec<Address>,
    /// What a caller on this core had seen: the actor has seen it too once it takes the event.
    pub(crate) positions: Positions,
    /// When it must have been started, monotonic ns.
    pub(crate) deadline_ns: u64,
    /// Who waits for the outcome.
    pub(crate) reply: ReplyTo,
}

/// What an event asks of its actor.
pub(crate) enum Work {
    /// The guest's `on-request`.
    Request(Request),
    /// The guest's `on-alarm`, if its alarm is due.
    Alarm,
    /// A statement of the operator's, between two events of the guest.
    Sql(String),
}

impl Event {
    /// What the event holds in memory, bytes, for the bounds on mailboxes.
    pub(crate) fn size_bytes(&self) -> usize {
        256 + match &self.work {
            Work::Request(request) => {
                let headers: usize = request.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
                headers + request.body.len() + request.path.len()
            }
            Work::Alarm => 0,
            Work::Sql(sql) => sql.len(),
        }
    }
}

/// What crosses from one core to another: the `Send` part of `Wake`.
pub(crate) enum Remote {
    /// An event for an actor of the receiving core.
    Request {
        /// The core that waits.
        from: usize,
        /// Its number for the request.
        slot: u64,
        /// Whose event.
        address: Address,
        /// What the guest gets.
        request: Request,
        /// The calling actor.
        caller: Option<Address>,
        /// See `Event::chain`.
        chain: Vec<Address>,
        /// See `Event::deadline_ns`; cores share the monotonic clock.
        deadline_ns: u64,
    },
    /// The answer.
    Reply {
        /// The number that the receiving core had given.
        slot: u64,
        /// Durable on the sending core.
        outcome: Outcome,
    },
    /// See `Wake::Question`.
    Question(Question),
}
