//! Every bound of the state machines: its name, why this number, what happens when it is reached.

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

/// The latest time taken from a clock, ms since 1970: adding any time to live stays far from overflow. A later clock stands still
/// there.
pub const KV_TIME_MS_MAX: i64 = 1 << 52;

/// Shards of one class. A listing is a call to each, so that more would only slow it down. Above it, or 0: refused by the client.
pub const KV_SHARDS_MAX: u32 = 4_096;
