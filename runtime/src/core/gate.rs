//! The gate: outputs of finished events wait here until what they depend on is durable.
//!
//! It does not decide what an output depends on (the actor's positions say that) nor what is durable (the store says that).
//! Invariant: an output leaves exactly once, as itself when its position is durable, as `unknown-outcome` otherwise.

use std::collections::BTreeMap;
use std::rc::Rc;

use wasmkeep_storage::Lsn;

use super::Class;
use super::reply::ReplyTo;
use crate::event::{Outcome, Problem};

/// An output that waits.
pub(crate) struct Held {
    /// What leaves.
    pub(crate) outcome: Outcome,
    /// To whom.
    pub(crate) reply: ReplyTo,
    /// When it must have left, monotonic ns.
    pub(crate) deadline_ns: u64,
    /// Since when it waits, monotonic ns.
    pub(crate) since_ns: u64,
    /// The actor's class, for its metrics.
    pub(crate) class: Rc<Class>,
}

impl Held {
    fn size_bytes(&self) -> usize {
        match &self.outcome {
            Outcome::Response(response) => response.body.len() + 256,
            Outcome::Problem(_) => 256,
        }
    }

    /// The same wait, ending without knowing.
    pub(crate) fn into_unknown(self) -> Self {
        Self { outcome: Outcome::Problem(Problem::UnknownOutcome), ..self }
    }
}

/// All outputs of a core that wait, by position, then by arrival.
#[derive(Default)]
pub(crate) struct Gates {
    held: BTreeMap<(Lsn, u64), Held>,
    arrivals: u64,
    bytes: usize,
}

impl Gates {
    /// Lets an output wait for `position`.
    pub(crate) fn hold(&mut self, position: Lsn, held: Held) {
        self.bytes += held.size_bytes();
        self.arrivals += 1;
        self.held.insert((position, self.arrivals), held);
    }

    /// Takes out what may leave now that everything up to `durable` is durable, in the order it must leave.
    pub(crate) fn open(&mut self, durable: Lsn) -> Vec<Held> {
        match self.held.first_key_value() {
            Some((first, _)) if first.0 <= durable => {}
            _ => return Vec::new(),
        }
        let later = self.held.split_off(&(durable.next(), 0));
        self.take(later)
    }

    /// Takes out everything that waits: after a failed group nothing that still waits can be known.
    pub(crate) fn fail(&mut self) -> Vec<Held> {
        self.take(BTreeMap::new()).into_iter().map(Held::into_unknown).collect()
    }

    /// Takes out what has waited past its deadline.
    pub(crate) fn expire(&mut self, now_ns: u64) -> Vec<Held> {
        let late: Vec<_> = self.held.iter().filter(|(_, held)| held.deadline_ns <= now_ns).map(|(key, _)| *key).collect();
        let held: Vec<_> = late.iter().filter_map(|key| self.held.remove(key)).collect();
        self.bytes -= held.iter().map(Held::size_bytes).sum::<usize>();
        held.into_iter().map(Held::into_unknown).collect()
    }

    /// Bytes held.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn take(&mut self, rest: BTreeMap<(Lsn, u64), Held>) -> Vec<Held> {
        let out: Vec<_> = std::mem::replace(&mut self.held, rest).into_values().collect();
        self.bytes -= out.iter().map(Held::size_bytes).sum::<usize>();
        out
    }
}
