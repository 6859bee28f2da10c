//! What clients, queues and consumers say to each other: the values and their rules. Their bytes are in `codec`.

use std::fmt;

use crate::limits::{
    QUEUE_BATCH_MAX, QUEUE_DELAY_MS_MAX, QUEUE_KEY_BYTES_MAX, QUEUE_LEASE_MAX, QUEUE_MESSAGE_BYTES_MAX, QUEUE_REQUEST_BYTES_MAX,
    QUEUE_VISIBILITY_MS_MAX,
};
use crate::wire::Malformed;

/// What the paths of this version begin with.
pub const PREFIX: &str = "wasmkeep-queue/v1/";

/// Where a consumer takes deliveries.
pub const DELIVER: &str = "wasmkeep-queue/v1/deliver";

/// A rule that a request breaks. Nothing of the request was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalid {
    /// Too short, too long, or a value that means nothing.
    Malformed,
    /// A path of another protocol or version.
    Version,
    /// A path that names nothing this version does.
    NoSuchOperation,
    /// A request of so many bytes.
    RequestBytes(usize),
    /// So many messages, outcomes or ids at once.
    Batch(usize),
    /// A body of so many bytes.
    MessageBytes(usize),
    /// A delay of so many ms.
    Delay(u64),
    /// A dedupe id of so many bytes.
    DedupeId(usize),
    /// An ordering key of so many bytes.
    OrderingKey(usize),
    /// An ordering key for a queue without ordering.
    NoOrdering,
    /// A dedupe id for a queue that remembers none.
    NoDedupe,
    /// So many messages, or dead letters, at most.
    Limit(u32),
    /// A lease of so many ms.
    Visibility(u64),
    /// Live messages cannot be redriven.
    NotDead,
}

impl Invalid {
    /// The HTTP status that says it.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::RequestBytes(_) | Self::Batch(_) | Self::MessageBytes(_) => 413,
            Self::NoSuchOperation => 404,
            _ => 400,
        }
    }
}

impl From<Malformed> for Invalid {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("malformed message"),
            Self::Version => write!(f, "paths of queues begin with {PREFIX}"),
            Self::NoSuchOperation => f.write_str("queues have no such operation"),
            Self::RequestBytes(bytes) => write!(f, "a request has at most {QUEUE_REQUEST_BYTES_MAX} bytes, this one {bytes}"),
            Self::Batch(count) => write!(f, "a batch has at most {QUEUE_BATCH_MAX} items, this one {count}"),
            Self::MessageBytes(bytes) => write!(f, "a message has at most {QUEUE_MESSAGE_BYTES_MAX} bytes, this one {bytes}"),
            Self::Delay(ms) => write!(f, "a delay is at most {QUEUE_DELAY_MS_MAX} ms, this one {ms}"),
            Self::DedupeId(bytes) => write!(f, "a dedupe id has 1 to {QUEUE_KEY_BYTES_MAX} bytes, this one {bytes}"),
            Self::OrderingKey(bytes) => write!(f, "an ordering key has 1 to {QUEUE_KEY_BYTES_MAX} bytes, this one {bytes}"),
            Self::NoOrdering => f.write_str("this queue is configured without ordering: send without an ordering key"),
            Self::NoDedupe => f.write_str("this queue's dedupe window is 0: send without a dedupe id"),
            Self::Limit(count) => write!(f, "at least 1 and at most {QUEUE_LEASE_MAX} may be asked for, not {count}"),
            Self::Visibility(ms) => write!(f, "a lease is 1 to {QUEUE_VISIBILITY_MS_MAX} ms long, not {ms}"),
            Self::NotDead => f.write_str("only dead letters can be redriven"),
        }
    }
}

impl std::error::Error for Invalid {}

/// A message to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Message<'a> {
    /// At most 1 MiB.
    pub body: &'a [u8],
    /// Not visible before so many ms from now, at most a year.
    pub delay_ms: u64,
    /// Sends with the same id within the queue's window are one message. 1 to 128 bytes.
    pub dedupe_id: Option<&'a [u8]>,
    /// Messages with the same key are delivered one at a time, in the order sent. 1 to 128 bytes.
    pub ordering_key: Option<&'a [u8]>,
}

impl Message<'_> {
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let is_key = |key: Option<&[u8]>| key.is_none_or(|key| (1..=QUEUE_KEY_BYTES_MAX).contains(&key.len()));
        if self.body.len() > QUEUE_MESSAGE_BYTES_MAX {
            Err(Invalid::MessageBytes(self.body.len()))
        } else if self.delay_ms > QUEUE_DELAY_MS_MAX {
            Err(Invalid::Delay(self.delay_ms))
        } else if !is_key(self.dedupe_id) {
            Err(Invalid::DedupeId(self.dedupe_id.map_or(0, <[u8]>::len)))
        } else if !is_key(self.ordering_key) {
            Err(Invalid::OrderingKey(self.ordering_key.map_or(0, <[u8]>::len)))
        } else {
            Ok(())
        }
    }
}

/// What became of a message to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Never used for another message.
    pub id: u64,
    /// When it becomes, or became, visible, ms by the queue's clock; behind others of its ordering key maybe later.
    pub due_at_ms: u64,
    /// Whether its dedupe id was known, so that this is the message sent before.
    pub is_duplicate: bool,
}

/// The name of one lease of one message. Another lease of it, or one that a crash forgot, has another name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Lease {
    /// The message. The same in every delivery of it.
    pub id: u64,
    /// The how manieth lease of the message it is, from 1.
    pub attempt: u32,
    /// Tells leases with the same count apart.
    pub epoch: u64,
}

/// A leased message: what a lease gives and what a delivery brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leased<'a> {
    /// To settle it with.
    pub lease: Lease,
    /// When it was sent, ms by the queue's clock.
    pub enqueued_at_ms: u64,
    /// As sent.
    pub ordering_key: Option<&'a [u8]>,
    /// As sent.
    pub body: &'a [u8],
}

/// What to do with a leased message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome<'a> {
    /// It is done with.
    Ack,
    /// To be leased again, or dead-lettered if this was its last attempt.
    Retry {
        /// Ms from now, at most a year; `None`: 1 s after the first attempt, doubling up to 5 min.
        delay_ms: Option<u64>,
        /// Why, for the dead letter; empty: unsaid. Cut off at 1 KiB.
        error: &'a str,
    },
    /// The lease lasts so many ms from now, 1 ms to 12 h, also one that ran out and was not followed by another.
    Extend {
        /// Ms from now.
        visibility_ms: u64,
    },
}

impl Outcome<'_> {
    pub(super) fn check(&self) -> Result<(), Invalid> {
        match self {
            Self::Retry { delay_ms: Some(ms), .. } if *ms > QUEUE_DELAY_MS_MAX => Err(Invalid::Delay(*ms)),
            Self::Extend { visibility_ms } => check_visibility(*visibility_ms),
            _ => Ok(()),
        }
    }
}

/// An outcome of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settlement<'a> {
    /// Which.
    pub lease: Lease,
    /// What to do with its message.
    pub outcome: Outcome<'a>,
}

/// What became of an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// It was applied.
    Done,
    /// The lease is over: settled before, given to another, or forgotten by a crash. Nothing was changed.
    Stale,
    /// It was a retry of a message without attempts left: it is a dead letter now.
    Dead,
}

/// A queue in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Messages that a lease may take now.
    pub visible: u64,
    /// Messages that wait for their delay or backoff.
    pub delayed: u64,
    /// Messages with a lease that has not run out.
    pub leased: u64,
    /// Messages behind another one of their ordering key.
    pub blocked: u64,
    /// Dead letters.
    pub dead: u64,
    /// How long ago the oldest message was sent that is neither acked nor dead, ms.
    pub oldest_age_ms: Option<u64>,
    /// Whether leases and deliveries are paused.
    pub is_paused: bool,
    /// What happened.
    pub counters: Counters,
}

/// What happened to a queue since it was opened last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Messages stored.
    pub sent: u64,
    /// Messages not stored because their dedupe id was known.
    pub duplicates: u64,
    /// Leases given.
    pub leased: u64,
    /// Messages acked.
    pub acked: u64,
    /// Messages made visible again by a retry.
    pub retried: u64,
    /// Outcomes whose lease was over.
    pub stale: u64,
    /// Messages dead-lettered.
    pub dead: u64,
    /// Dead letters made messages again.
    pub redriven: u64,
}

/// A message that was not handled within its attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeadLetter<'a> {
    /// The message's.
    pub id: u64,
    /// When it was sent, ms by the queue's clock.
    pub enqueued_at_ms: u64,
    /// Leases it had.
    pub attempts: u32,
    /// When it was given up, ms by the queue's clock.
    pub failed_at_ms: u64,
    /// Its last error, or that its last lease ran out.
    pub reason: &'a str,
    /// As sent.
    pub ordering_key: Option<&'a [u8]>,
    /// As sent.
    pub body: &'a [u8],
}

/// Dead letters in the order of their ids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadPage<'a> {
    /// They.
    pub letters: Vec<DeadLetter<'a>>,
    /// Whether there are more after the last one.
    pub has_more: bool,
}

/// Which messages to redrive or purge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Which {
    /// Dead letters of these ids, at most 1,000; unknown ones are passed over.
    DeadIds(Vec<u64>),
    /// Dead letters given up at least so many ms ago; 0: all.
    DeadOlderThan {
        /// Ms.
        age_ms: u64,
    },
    /// Dead letters given up by then. What a redrive kills again later is not among them.
    DeadFailedBy {
        /// Ms by the queue's clock.
        at_ms: u64,
    },
    /// All messages, leased ones as well; purge only.
    Live,
    /// All messages sent by then; purge only.
    LiveUpTo {
        /// The newest of them.
        id: u64,
    },
}

/// What one redrive or purge did. Each is atomic, so that one that is not continued has lost nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moved {
    /// Messages redriven or deleted.
    pub count: u64,
    /// What to ask for to go on; `None`: all is done.
    pub next: Option<Which>,
}

/// What a path asks for.
pub(super) fn operation(path: &str) -> Result<&str, Invalid> {
    path.strip_prefix('/').unwrap_or(path).strip_prefix(PREFIX).ok_or(Invalid::Version)
}

pub(super) const fn check_visibility(ms: u64) -> Result<(), Invalid> {
    if ms >= 1 && ms <= QUEUE_VISIBILITY_MS_MAX { Ok(()) } else { Err(Invalid::Visibility(ms)) }
}

pub(super) const fn check_limit(limit: u32) -> Result<(), Invalid> {
    if limit >= 1 && limit <= QUEUE_LEASE_MAX { Ok(()) } else { Err(Invalid::Limit(limit)) }
}

pub(super) const fn check_batch(count: usize) -> Result<(), Invalid> {
    if count <= QUEUE_BATCH_MAX { Ok(()) } else { Err(Invalid::Batch(count)) }
}
