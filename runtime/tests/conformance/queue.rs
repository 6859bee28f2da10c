//! A queue as its clients see it, whoever runs it.

use wasmkeep_classes::host::Call;
use wasmkeep_classes::queue::client::{self, Error};
use wasmkeep_classes::queue::protocol::{Lease, Leased, Message, Moved, Outcome, Sent, Settled, Settlement, Stats, Which};
use wasmkeep_storage::Address;

use crate::bed::Bed;
use crate::common::until;

pub(crate) struct Queue<'a> {
    pub(crate) bed: &'a Bed,
    pub(crate) address: Address,
    /// The actor that asks.
    pub(crate) through: &'a str,
}

/// A leased message, owned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Got {
    pub(crate) lease: Lease,
    pub(crate) body: String,
}

/// A dead letter, owned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Dead {
    pub(crate) id: u64,
    pub(crate) attempts: u32,
    pub(crate) reason: String,
    pub(crate) body: String,
}

pub(crate) fn message(body: &str) -> Message<'_> {
    Message { body: body.as_bytes(), ..Message::default() }
}

pub(crate) fn later(body: &str, delay_ms: u64) -> Message<'_> {
    Message { delay_ms, ..message(body) }
}

pub(crate) fn once<'a>(body: &'a str, id: &'a str) -> Message<'a> {
    Message { dedupe_id: Some(id.as_bytes()), ..message(body) }
}

pub(crate) fn keyed<'a>(body: &'a str, key: &'a str) -> Message<'a> {
    Message { ordering_key: Some(key.as_bytes()), ..message(body) }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn bodies(got: &[Got]) -> Vec<&str> {
    got.iter().map(|got| got.body.as_str()).collect()
}

impl<'a> Queue<'a> {
    /// The same queue, asked by another actor.
    pub(crate) fn through(&self, actor: &'a str) -> Self {
        Self { bed: self.bed, address: self.address.clone(), through: actor }
    }

    pub(crate) fn ask(&self, call: &Call) -> (u16, Vec<u8>) {
        self.bed.ask(self.through, &self.address, call)
    }

    pub(crate) fn try_send(&self, messages: &[Message<'_>]) -> Result<Vec<Sent>, Error> {
        let (status, body) = self.ask(&client::send(messages).expect("valid"));
        client::sent(status, &body)
    }

    pub(crate) fn send(&self, messages: &[Message<'_>]) -> Vec<u64> {
        self.try_send(messages).expect("sent").iter().map(|sent| sent.id).collect()
    }

    pub(crate) fn send_all(&self, bodies: &[&str]) -> Vec<u64> {
        let messages: Vec<_> = bodies.iter().map(|body| message(body)).collect();
        self.send(&messages)
    }

    pub(crate) fn lease(&self, max: u32, visibility_ms: u64) -> Vec<Got> {
        let (status, body) = self.ask(&client::lease(max, visibility_ms).expect("valid"));
        let own = |leased: &Leased<'_>| Got { lease: leased.lease, body: text(leased.body) };
        client::leased(status, &body).expect("leased").iter().map(own).collect()
    }

    /// The one message there is to lease.
    pub(crate) fn lease_one(&self, visibility_ms: u64) -> Got {
        let mut got = self.lease(10, visibility_ms);
        assert_eq!(got.len(), 1, "{got:?}");
        got.remove(0)
    }

    pub(crate) fn settle(&self, outcomes: &[(Lease, Outcome<'_>)]) -> Vec<Settled> {
        let settlements: Vec<_> = outcomes.iter().map(|(lease, outcome)| Settlement { lease: *lease, outcome: *outcome }).collect();
        let (status, body) = self.ask(&client::settle(&settlements).expect("valid"));
        client::settled(status, &body).expect("settled")
    }

    pub(crate) fn ack(&self, lease: Lease) -> Settled {
        self.settle(&[(lease, Outcome::Ack)])[0]
    }

    pub(crate) fn retry(&self, lease: Lease, delay_ms: Option<u64>, error: &str) -> Settled {
        self.settle(&[(lease, Outcome::Retry { delay_ms, error })])[0]
    }

    pub(crate) fn extend(&self, lease: Lease, visibility_ms: u64) -> Settled {
        self.settle(&[(lease, Outcome::Extend { visibility_ms })])[0]
    }

    pub(crate) fn stats(&self) -> Stats {
        let (status, body) = self.ask(&client::stats());
        client::stats_read(status, &body).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Messages that are neither acked nor dead.
    pub(crate) fn live(&self) -> u64 {
        let Stats { visible, delayed, leased, blocked, .. } = self.stats();
        visible + delayed + leased + blocked
    }

    pub(crate) fn pause(&self) {
        let (status, body) = self.ask(&client::pause());
        client::done(status, &body).expect("paused");
    }

    pub(crate) fn resume(&self) {
        let (status, body) = self.ask(&client::resume());
        client::done(status, &body).expect("resumed");
    }

    pub(crate) fn dead(&self) -> Vec<Dead> {
        let (status, body) = self.ask(&client::dead_letters(0, 1_000).expect("valid"));
        let page = client::dead_letters_read(status, &body).expect("a page");
        let own = |letter: &wasmkeep_classes::queue::protocol::DeadLetter<'_>| Dead {
            id: letter.id,
            attempts: letter.attempts,
            reason: letter.reason.to_owned(),
            body: text(letter.body),
        };
        page.letters.iter().map(own).collect()
    }

    fn moved(&self, call: &Call) -> Moved {
        let (status, body) = self.ask(call);
        client::moved(status, &body).expect("moved")
    }

    pub(crate) fn redrive(&self, which: &Which) -> Moved {
        self.moved(&client::redrive(which).expect("valid"))
    }

    pub(crate) fn purge(&self, which: &Which) -> Moved {
        self.moved(&client::purge(which).expect("valid"))
    }

    /// Waits until the queue is so.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Stats) -> bool) {
        until(what, || is_so(&self.stats()));
    }
}
