//! Messages as senders and consumers see them, and what a consumer says about one.

use crate::hosted::millis;
use core::fmt;
use std::borrow::Cow;
use std::time::Duration;
use wasmkeep_classes::queue::protocol::{self, Lease, Leased};

/// A message to send: bytes, at most 1 MiB, and how to treat them.
///
/// ```
/// use std::time::Duration;
/// use wasmkeep_sdk::queue::Message;
///
/// let reminder = Message::new("water the plants").after(Duration::from_secs(3600)).dedupe_id("plants-2026-05-01");
/// # let _ = reminder;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Message<'a>(protocol::Message<'a>);

impl<'a> Message<'a> {
    /// A message that is to be delivered at once.
    pub fn new<B: AsRef<[u8]> + ?Sized>(body: &'a B) -> Self {
        Self(protocol::Message { body: body.as_ref(), ..protocol::Message::default() })
    }

    /// Not to be delivered before so long from now, at most a year.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.0.delay_ms = millis(delay);
        self
    }

    /// Sends with the same id within the queue's window are one message. 1 to 128 bytes.
    #[must_use]
    pub fn dedupe_id<B: AsRef<[u8]> + ?Sized>(mut self, id: &'a B) -> Self {
        self.0.dedupe_id = Some(id.as_ref());
        self
    }

    /// Messages with the same key are delivered one at a time, in the order sent, if the queue was configured for it.
    /// 1 to 128 bytes.
    #[must_use]
    pub fn ordering_key<B: AsRef<[u8]> + ?Sized>(mut self, key: &'a B) -> Self {
        self.0.ordering_key = Some(key.as_ref());
        self
    }

    pub(super) fn as_wire(&self) -> protocol::Message<'a> {
        self.0
    }
}

/// A message that was delivered or leased.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received<'a> {
    queue: Cow<'a, str>,
    lease: Lease,
    enqueued_at_ms: u64,
    ordering_key: Option<Cow<'a, [u8]>>,
    body: Cow<'a, [u8]>,
}

impl<'a> Received<'a> {
    pub(super) fn borrowed(queue: &'a str, leased: &Leased<'a>) -> Self {
        Self {
            queue: Cow::Borrowed(queue),
            lease: leased.lease,
            enqueued_at_ms: leased.enqueued_at_ms,
            ordering_key: leased.ordering_key.map(Cow::Borrowed),
            body: Cow::Borrowed(leased.body),
        }
    }

    /// Free of the answer that it came in.
    pub(super) fn into_owned(self) -> Received<'static> {
        Received {
            queue: Cow::Owned(self.queue.into_owned()),
            lease: self.lease,
            enqueued_at_ms: self.enqueued_at_ms,
            ordering_key: self.ordering_key.map(|key| Cow::Owned(key.into_owned())),
            body: Cow::Owned(self.body.into_owned()),
        }
    }

    /// `class/name` of the queue it comes from.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// The same in every delivery of this message, and of no other message of the queue.
    pub fn id(&self) -> u64 {
        self.lease.id
    }

    /// The how manieth delivery or lease of the message this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.lease.attempt
    }

    /// What to settle it with; only for messages that were leased.
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// When it was sent, ms since 1970 by the queue's clock.
    pub fn enqueued_at_ms(&self) -> u64 {
        self.enqueued_at_ms
    }

    /// As sent.
    pub fn ordering_key(&self) -> Option<&[u8]> {
        self.ordering_key.as_deref()
    }

    /// As sent.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}

/// What a consumer says about one message. A `Result` says it as well: `Ok` is [`Outcome::Ack`], an error
/// [`Outcome::Retry`] with its words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is done with.
    Ack,
    /// It is to be delivered again, or becomes a dead letter if this was its last attempt.
    Retry {
        /// How long to wait, at most a year; `None`: 1 s after the first attempt, doubling up to 5 min.
        after: Option<Duration>,
        /// Why, for the dead letter. Cut off at 1 KiB.
        error: String,
    },
    /// Nobody else gets it for so long from now, 1 ms to 12 h: the work on it goes on.
    Extend(Duration),
    /// Nothing: its lease runs out, and then it is delivered again.
    Leave,
}

impl Outcome {
    /// To be delivered again after the usual pause.
    pub fn retry(error: impl fmt::Display) -> Self {
        Self::Retry { after: None, error: error.to_string() }
    }

    /// To be delivered again after this pause.
    pub fn retry_after(pause: Duration, error: impl fmt::Display) -> Self {
        Self::Retry { after: Some(pause), error: error.to_string() }
    }

    /// As the queue reads it; nothing for `Leave`.
    pub(super) fn as_wire(&self) -> Option<protocol::Outcome<'_>> {
        Some(match self {
            Self::Ack => protocol::Outcome::Ack,
            Self::Retry { after, error } => protocol::Outcome::Retry { delay_ms: after.map(millis), error },
            Self::Extend(time) => protocol::Outcome::Extend { visibility_ms: millis(*time) },
            Self::Leave => return None,
        })
    }
}

impl<E: fmt::Display> From<Result<(), E>> for Outcome {
    fn from(result: Result<(), E>) -> Self {
        result.map_or_else(Self::retry, |()| Self::Ack)
    }
}
