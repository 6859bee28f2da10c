//! Every bound of the state machines: its name, why this number, what happens when it is reached.

// Queues.

/// The largest message body, bytes. SQLite walks a chain of pages to read what stands behind a body, so larger ones belong into an
/// object store; eight fit one delivery. Above it: 413.
pub const QUEUE_MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// The largest request or reply, bytes: what a request body may have. Above it: 413.
pub const QUEUE_REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Messages in one send and outcomes in one settle: one short transaction. Above it: 413.
pub const QUEUE_BATCH_MAX: usize = 1_000;

/// Messages in one lease or delivery: what one settle can answer. Above it: 400.
pub const QUEUE_LEASE_MAX: u32 = 1_000;

/// Bytes of message bodies that one lease, delivery, page of dead letters or batch of moved messages holds: half of a request, and
/// moving them fits one transaction. Reached: the rest stays for the next one; the first message is always taken.
pub const QUEUE_LEASE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The longest dedupe id or ordering key, bytes: a UUID, a hash or a path fits; they are index keys. Above it: 400.
pub const QUEUE_KEY_BYTES_MAX: usize = 128;

/// The longest delay of a message or a retry, ms: a year. Later than that is a mistake in a unit. Above it: 400.
pub const QUEUE_DELAY_MS_MAX: u64 = 366 * 24 * 3_600 * 1_000;

/// The longest lease, ms: 12 hours. Longer work extends its lease. Above it, or 0: 400.
pub const QUEUE_VISIBILITY_MS_MAX: u64 = 12 * 3_600 * 1_000;

/// The most leases a message may be allowed: with the longest backoff that is a year of trying. Above it, or 0: a bad
/// configuration.
pub const QUEUE_ATTEMPTS_MAX: u32 = 100_000;

/// The longest dedupe window, ms: a week. Its ids are rows of the queue's database. Above it: a bad configuration.
pub const QUEUE_DEDUPE_WINDOW_MS_MAX: u64 = 7 * 24 * 3_600 * 1_000;

/// Deliveries of one queue that may be out at once: each holds a batch in memory. Above it, or 0: a bad configuration.
pub const QUEUE_CONCURRENCY_MAX: u32 = 64;

/// Bytes kept of an error text: a line and its context, not a trace. The rest is cut off.
pub const QUEUE_ERROR_BYTES_MAX: usize = 1024;

/// Messages that one redrive, purge or sweep moves or deletes: about a millisecond's work. Reached: the reply says there is more,
/// or the alarm comes again at once.
pub const QUEUE_MOVED_MAX: usize = 500;

/// The first backoff of a retry, ms; it doubles with each attempt.
pub const QUEUE_BACKOFF_MS_MIN: u64 = 1_000;

/// The longest backoff of a retry, ms.
pub const QUEUE_BACKOFF_MS_MAX: u64 = 5 * 60 * 1_000;

/// Dedupe ids are swept this long after the first of them ran out, ms, so that one sweep takes many; until then they are ignored.
pub const QUEUE_SWEEP_LINGER_MS: u64 = 10_000;

/// How old the time in a queue's database may get while it writes, ms. A clock that stepped back while the queue slept lengthens
/// what was pending by at most this much.
pub const QUEUE_CLOCK_EVERY_MS: i64 = 10_000;

/// The latest time taken from a clock, ms since 1970: adding any delay stays far from overflow. A later clock stands still there.
pub const QUEUE_TIME_MS_MAX: i64 = 1 << 52;

/// How long a consumer remembers what it handled unless it says otherwise, ms: longer than any message is redelivered by itself.
pub const QUEUE_HANDLED_RETENTION_MS: u64 = 7 * 24 * 3_600 * 1_000;
