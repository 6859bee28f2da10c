//! Every bound of the state machines: its name, why this number, what happens when it is reached.

// Both.

/// The latest time taken from a clock, ms since 1970: adding any delay or time to live stays far from overflow. A later clock
/// stands still there.
pub const TIME_MS_MAX: i64 = 1 << 52;

// Key-value.

/// The longest key, bytes; the shortest is one byte. A few fit a page beside their rows. Outside of it: 400.
pub const KV_KEY_BYTES_MAX: usize = 2 * 1024;

/// The largest value, bytes: with its key it fits a request, and half of a transaction. Above it: 413.
pub const KV_VALUE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The largest request, bytes: what a request body may have. Above it: 413.
pub const KV_REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Keys or writes in one call: one short transaction. Above it: 413.
pub const KV_ITEMS_MAX: usize = 1_000;

/// Values in the reply to one call for many keys, bytes: half of what a body may have. Reached: the reply answers the first keys
/// only, at least one, and the client asks for the others.
pub const KV_REPLY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Rows in one page of a listing. Above it: a page of so many, which says that there is more.
pub const KV_LIST_MAX: u32 = 1_000;

/// Keys and values in one page of a listing, an export or an import, bytes: about a millisecond's work. Reached: the page ends and
/// says that there is more; it has at least one row.
pub const KV_PAGE_BYTES_MAX: usize = 1024 * 1024;

/// The longest time to live, ms: a thousand years. Longer, or 0: 400.
pub const KV_TTL_MS_MAX: u64 = 1_000 * 366 * 24 * 3_600 * 1_000;

/// The longest operation id, bytes: a UUID or a hash in any spelling. Above it: 400.
pub const KV_OPERATION_BYTES_MAX: usize = 64;

/// How long the outcome of a write with an operation id is remembered, ms, unless configured otherwise. A retry after that
/// is a new write.
pub const KV_OPERATION_WINDOW_MS: u64 = 3_600 * 1_000;

/// The longest such window, ms: a week. Its ids are rows of the shard's database. Above it, or 0: a bad configuration.
pub const KV_OPERATION_WINDOW_MS_MAX: u64 = 7 * 24 * 3_600 * 1_000;

/// Operation ids are swept this long after the first of them ran out, ms, so that one sweep takes many; until then they are
/// ignored.
pub const KV_OPERATION_LINGER_MS: u64 = 10_000;

/// Versions that one row of the counter reserves: it is written once per so many writes, and a crash or a sleep wastes at most as
/// many of 2^62.
pub const KV_VERSION_BLOCK: i64 = 4_096;

/// The largest version. A counter that gets there, by an import of nonsense, refuses: 400.
pub const KV_VERSION_MAX: i64 = 1 << 62;

/// Rows, and operation ids, that one sweep deletes: about a millisecond's work. Reached: the alarm comes again at once.
pub const KV_SWEEP_MAX: usize = 500;

/// Values that one sweep or prune deletes, bytes: SQLite visits every page of a long value to free it. Reached: as with rows; one
/// row is always deleted.
pub const KV_SWEEP_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How old the time in a shard's database may get while it writes, ms. A clock that stepped back while the shard slept lengthens
/// what was pending by at most this much.
pub const KV_CLOCK_EVERY_MS: i64 = 10_000;

/// Shards of one class. A listing is a call to each, so that more would only slow it down. Above it, or 0: refused by the client.
pub const KV_SHARDS_MAX: u32 = 4_096;

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

/// How long a consumer remembers what it handled unless it says otherwise, ms: longer than any message is redelivered by itself.
pub const QUEUE_HANDLED_RETENTION_MS: u64 = 7 * 24 * 3_600 * 1_000;
