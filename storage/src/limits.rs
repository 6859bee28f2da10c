//! Every bound of storage: its name, why this number, what happens when it is reached.

/// SQLite's page size, bytes. Journal records and base files are in these pages.
pub const PAGE_BYTES: usize = 4096;

/// The largest text or blob, bytes: a 16 MiB HTTP body fits one column. Above it: `SqlError::TooLarge`.
pub const VALUE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The largest row, bytes (SQLite's LENGTH limit): one full value and room for its neighbours. Above it: `SqlError::TooLarge`.
pub const ROW_BYTES_MAX: usize = VALUE_BYTES_MAX + 64 * 1024;

/// The largest statement text, bytes. Above it: `SqlError::TooLarge`.
pub const SQL_BYTES_MAX: usize = 1024 * 1024;

/// The largest result of one query, bytes of its values: what one response could carry. Above it: `SqlError::TooLarge`.
pub const RESULT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The largest commit record, bytes: one full row fits, a segment holds it. Above it the commit is refused and rolled back.
pub const TRANSACTION_BYTES_MAX: usize = 24 * 1024 * 1024;

/// Memory one connection's SQLite may hold (cache, dirty pages, sorts, temporary tables), bytes. Above it SQLite sees an
/// allocation failure and the statement fails as `SqlError::TooLarge`.
pub const SQL_MEMORY_BYTES_MAX: usize = 96 * 1024 * 1024;

/// A statement runs this long before it is suspended so that its core can go on, ns.
pub const SQL_SLICE_NS: u64 = 2_000_000;

/// Stack of one SQL coroutine, bytes. Measured in a prototype as ample for SQLite's deepest parse under its depth limits.
pub const COROUTINE_STACK_BYTES: usize = 512 * 1024;

/// Suspended or running SQL coroutines per core. Above it a statement waits for one to end.
pub const COROUTINES_MAX: usize = 256;

/// Prepared statements kept per connection.
pub const STATEMENTS_CACHED_MAX: usize = 32;

/// One segment file of a journal, bytes. Holds the largest record; eight make the default journal.
pub const SEGMENT_BYTES: u64 = 32 * 1024 * 1024;

/// A group is cut at the first record past this many bytes even if more is pending, so that one flush stays short.
pub const GROUP_BYTES_TARGET: usize = 1024 * 1024;

/// A group with this many bytes of records fills a block: it is written between two events of a busy core when the disk has time.
/// Smaller ones wait for the end of the turn, because a write costs the core as much as several events.
pub const GROUP_BYTES_WORTH_A_WRITE: usize = 4096 - 64;

/// How many flushes are remembered for the metrics until they are asked for. Asked for at every turn, more never pile up; beyond
/// it the oldest are forgotten.
pub const FLUSHES_KEPT_MAX: usize = 64;

/// Groups written and not yet acknowledged, per core. Two keep the device busy; more only weaken recovery's reasoning.
pub const GROUPS_IN_FLIGHT_MAX: usize = 2;

/// Bytes waiting in memory for the journal, per core. Above it no new event starts until groups became durable.
pub const PENDING_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes of committed pages kept in memory because their base file has not got them yet, per core. Above it checkpoints hurry
/// and no new event starts.
pub const OVERLAY_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Bytes of committed pages in memory that make a checkpoint due even if the journal has room.
pub const OVERLAY_CHECKPOINT_BYTES: usize = 64 * 1024 * 1024;

/// Databases one background job writes: enough that one `syncfs` is shared by many.
pub const CHECKPOINT_BATCH_DATABASES: usize = 256;

/// Bytes of pages after which a batch is closed even with few databases in it.
pub const CHECKPOINT_BATCH_BYTES: usize = 8 * 1024 * 1024;

/// A core that has committed nothing for this long checkpoints what is dirty, so that its memory is free again.
pub const CHECKPOINT_QUIET_NS: u64 = 1_000_000_000;

/// Facts that one fold takes into the catalogs before it lets the core go on.
pub const FOLD_BATCH: usize = 256;

/// Coroutine stacks kept for reuse, per thread.
pub const COROUTINES_POOLED_MAX: usize = 32;

/// Segments kept ready beyond the one being written, per core: one for the next groups, one for the end of an epoch should a
/// group fail meanwhile. When none is ready the journal refuses commits as `Refused::Full` until one is.
pub const SEGMENTS_AHEAD: usize = 2;

/// The fewest segments a journal works with, whatever its size limit says: the one being written, and those ahead.
pub const JOURNAL_SEGMENTS_MIN: usize = 1 + SEGMENTS_AHEAD;

/// Group buffers above this size are given back to the system instead of being kept for the next group, bytes. Groups are
/// rarely larger than `GROUP_BYTES_TARGET`; one huge transaction must not hold its memory for ever.
pub const GROUP_BUFFER_KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Jobs waiting for one background thread. Above it `Background::spawn` refuses and the core tries again later.
pub const BACKGROUND_JOBS_MAX: usize = 64;

/// Clean segments kept from journals that are gone, so that the next start need not write zeros first.
pub const JOURNAL_SPARES_MAX: usize = 4;

/// Entries of a journal's ring, or writes queued per writing thread: every group in flight as a write and its flush, with room
/// to spare. A write beyond it fails as busy, which the journal, with `GROUPS_IN_FLIGHT_MAX`, never meets.
pub const RING_ENTRIES: u32 = 8;

/// Failures of a journal whose lost positions are told from those that were durable between them. Nobody asks for a position that
/// is so many failures old; of older ones all from the first lost one on are called lost.
pub const LOST_RANGES_MAX: usize = 64;

/// Catalogs that stay open on a core that does not use them. More are closed when none was used between two sweeps: each holds
/// its connection's memory, and a core has hundreds.
pub const CATALOGS_KEPT: usize = 16;

/// One part in so many of a journal's last segment is kept for the checkpoints' own records: half of it, facts of tens of thousands
/// of actors. Without it a journal filled by actors could never be emptied again. When only it is left, actors' commits are
/// refused as `Refused::Full`.
pub const FOLD_RESERVE_PART: u64 = 2;
