//! Using a queue from another actor. Every operation is one call: it holds this event up while it runs.

use super::message::{Message, Outcome, Received};
use super::{Error, Lease, Moved, Sent, Settled, Stats, Which};
use crate::actors::{self, Address};
use crate::hosted::millis;
use crate::{Request, Response};
use std::time::Duration;
use wasmkeep_classes::queue::client as wire;
use wasmkeep_classes::queue::protocol;

/// A queue, by its address. Making one asks nothing; it may be made anew for every event.
#[derive(Clone, PartialEq, Debug)]
pub struct Client {
    target: Address,
    timeout: Option<Duration>,
}

/// A message that was not handled within its attempts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    /// The message's; it keeps it if it is redriven.
    pub id: u64,
    /// When it was sent, ms since 1970 by the queue's clock.
    pub enqueued_at_ms: u64,
    /// Leases it had.
    pub attempts: u32,
    /// When it was given up, ms since 1970 by the queue's clock.
    pub failed_at_ms: u64,
    /// Its last error, or that its last lease ran out.
    pub reason: String,
    /// As sent.
    pub ordering_key: Option<Vec<u8>>,
    /// As sent.
    pub body: Vec<u8>,
}

/// Dead letters in the order of their ids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadPage {
    /// They.
    pub letters: Vec<DeadLetter>,
    /// Whether there are more behind the last one.
    pub has_more: bool,
}

impl Client {
    /// The queue `class/name`, such as `mail/welcome`. The node checks the address when it is used.
    pub fn new(address: &str) -> Self {
        let (class, name) = address.split_once('/').unwrap_or((address, ""));
        Self { target: Address::new(class, name), timeout: None }
    }

    /// Waits no longer than this for an answer. Otherwise it is as long as the event has left.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sends one message, to be delivered at once. Once this returns it is never lost.
    ///
    /// # Errors
    /// [`Error`]. After [`Error::UnknownOutcome`] it may have been sent, so that sending again may send it twice; with a
    /// [dedupe id](Message::dedupe_id) it does not.
    pub fn send<B: AsRef<[u8]> + ?Sized>(&self, body: &B) -> Result<Sent, Error> {
        self.send_message(Message::new(body))
    }

    /// Sends one message, to be delivered no sooner than `delay` from now.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_delayed<B: AsRef<[u8]> + ?Sized>(&self, body: &B, delay: Duration) -> Result<Sent, Error> {
        self.send_message(Message::new(body).after(delay))
    }

    /// Sends one message with all that can be said about it.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_message(&self, message: Message<'_>) -> Result<Sent, Error> {
        let sent = self.send_batch(&[message])?;
        sent.first().copied().ok_or_else(|| Error::UnknownOutcome("the queue's answer names no message".into()))
    }

    /// Sends at most 1,000 messages, all or none, and returns what became of each, in order.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_batch(&self, messages: &[Message<'_>]) -> Result<Vec<Sent>, Error> {
        let messages: Vec<protocol::Message<'_>> = messages.iter().map(Message::as_wire).collect();
        let answer = self.call(wire::send(&messages)?)?;
        Ok(wire::sent(answer.status(), answer.body())?)
    }

    /// Takes at most `max` messages, 1 to 1,000 and 8 MiB, oldest first. Nobody else gets them for `visibility`, 1 ms to 12 h;
    /// [settle](Self::settle) them within it.
    ///
    /// # Errors
    /// [`Error`]. After [`Error::UnknownOutcome`] messages may be hidden until `visibility` is over.
    pub fn lease(&self, max: u32, visibility: Duration) -> Result<Vec<Received<'static>>, Error> {
        let answer = self.call(wire::lease(max, millis(visibility))?)?;
        let queue = self.target.to_string();
        let leased = wire::leased(answer.status(), answer.body())?;
        Ok(leased.iter().map(|leased| Received::borrowed(&queue, leased).into_owned()).collect())
    }

    /// Says that a leased message is done with.
    ///
    /// # Errors
    /// [`Error`]; it may be repeated, the lease is [`Settled::Stale`] then.
    pub fn ack(&self, lease: Lease) -> Result<Settled, Error> {
        self.settle_one(lease, Outcome::Ack)
    }

    /// Gives a leased message back, to be leased again after `pause` (`None`: 1 s after the first attempt, doubling up to
    /// 5 min), or to become a dead letter if this was its last attempt.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub fn retry(&self, lease: Lease, pause: Option<Duration>, error: &str) -> Result<Settled, Error> {
        self.settle_one(lease, Outcome::Retry { after: pause, error: error.to_owned() })
    }

    /// Keeps a leased message hidden for so long from now, 1 ms to 12 h.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub fn extend(&self, lease: Lease, visibility: Duration) -> Result<Settled, Error> {
        self.settle_one(lease, Outcome::Extend(visibility))
    }

    /// Settles at most 1,000 leases and returns what became of each, in order. [`Outcome::Leave`] is left out, also from what
    /// is returned.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub fn settle(&self, outcomes: &[(Lease, Outcome)]) -> Result<Vec<Settled>, Error> {
        let answer = self.call(wire::settle(&settlements(outcomes))?)?;
        Ok(wire::settled(answer.status(), answer.body())?)
    }

    fn settle_one(&self, lease: Lease, outcome: Outcome) -> Result<Settled, Error> {
        let settled = self.settle(&[(lease, outcome)])?;
        settled.first().copied().ok_or_else(|| Error::UnknownOutcome("the queue's answer names no lease".into()))
    }

    /// The queue in numbers.
    ///
    /// # Errors
    /// [`Error`].
    pub fn stats(&self) -> Result<Stats, Error> {
        let answer = self.call(wire::stats())?;
        Ok(wire::stats_read(answer.status(), answer.body())?)
    }

    /// At most `limit` dead letters, 1 to 1,000 and 8 MiB, with ids above `after`, in the order of their ids.
    ///
    /// # Errors
    /// [`Error`].
    pub fn dead_letters(&self, after: u64, limit: u32) -> Result<DeadPage, Error> {
        let answer = self.call(wire::dead_letters(after, limit)?)?;
        let page = wire::dead_letters_read(answer.status(), answer.body())?;
        Ok(DeadPage { letters: page.letters.iter().map(dead_letter).collect(), has_more: page.has_more })
    }

    /// Makes dead letters messages again, with their ids and without their attempts: at most 500 in one call. It goes on with
    /// what is in [`Moved::next`]; not going on loses nothing.
    ///
    /// # Errors
    /// [`Error`]; it may be repeated.
    pub fn redrive(&self, which: &Which) -> Result<Moved, Error> {
        let answer = self.call(wire::redrive(which)?)?;
        Ok(wire::moved(answer.status(), answer.body())?)
    }

    /// Deletes dead letters or messages: at most 500 in one call. It goes on with what is in [`Moved::next`].
    ///
    /// # Errors
    /// [`Error`]; it may be repeated.
    pub fn purge(&self, which: &Which) -> Result<Moved, Error> {
        let answer = self.call(wire::purge(which)?)?;
        Ok(wire::moved(answer.status(), answer.body())?)
    }

    /// Stops deliveries and leases until [`resume`](Self::resume). Sends and settles go on.
    ///
    /// # Errors
    /// [`Error`]; it may be repeated.
    pub fn pause(&self) -> Result<(), Error> {
        let answer = self.call(wire::pause())?;
        Ok(wire::done(answer.status(), answer.body())?)
    }

    /// Ends a pause.
    ///
    /// # Errors
    /// [`Error`]; it may be repeated.
    pub fn resume(&self) -> Result<(), Error> {
        let answer = self.call(wire::resume())?;
        Ok(wire::done(answer.status(), answer.body())?)
    }

    fn call(&self, call: wire::Call) -> Result<Response, Error> {
        let request = Request::post(format!("/{}", call.path)).with_body(call.body);
        let answer = match self.timeout {
            Some(timeout) => actors::call_timeout(&self.target, &request, timeout),
            None => actors::call(&self.target, &request),
        };
        Ok(answer?)
    }
}

/// Outcomes as the queue reads them.
pub(super) fn settlements(outcomes: &[(Lease, Outcome)]) -> Vec<protocol::Settlement<'_>> {
    outcomes
        .iter()
        .filter_map(|(lease, outcome)| Some(protocol::Settlement { lease: *lease, outcome: outcome.as_wire()? }))
        .collect()
}

fn dead_letter(letter: &protocol::DeadLetter<'_>) -> DeadLetter {
    DeadLetter {
        id: letter.id,
        enqueued_at_ms: letter.enqueued_at_ms,
        attempts: letter.attempts,
        failed_at_ms: letter.failed_at_ms,
        reason: letter.reason.to_owned(),
        ordering_key: letter.ordering_key.map(<[u8]>::to_vec),
        body: letter.body.to_vec(),
    }
}
