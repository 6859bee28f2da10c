//! The statements of a queue, constants so that a host keeps them prepared. What runs per batch comes first.
//!
//! The index on `visible_at` holds the id as well, so "oldest first" reads its head and never sorts. A message that waits behind
//! another of its ordering key stands at the index's far end ([`BLOCKED`]) until its turn, so that neither a lease nor a count
//! walks over it.

/// `visible_at` of a message that waits behind another one of its ordering key. Its own due time is in `wasmkeep_queue_order`.
pub(super) const BLOCKED: i64 = i64::MAX;

/// Tables and indices. The first two are what applications know; the rest is ours.
pub(super) const TABLES: [&str; 12] = [
    "CREATE TABLE IF NOT EXISTS wasmkeep_queue (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL,
                            enqueued_at INTEGER NOT NULL, visible_at INTEGER NOT NULL,
                            attempts INTEGER NOT NULL DEFAULT 0, last_error TEXT)",
    "CREATE TABLE IF NOT EXISTS wasmkeep_queue_dead (id INTEGER PRIMARY KEY, body BLOB NOT NULL, enqueued_at INTEGER NOT NULL,
                                 attempts INTEGER NOT NULL, failed_at INTEGER NOT NULL, reason TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS wasmkeep_queue_visible ON wasmkeep_queue (visible_at)",
    "CREATE INDEX IF NOT EXISTS wasmkeep_queue_failed ON wasmkeep_queue_dead (failed_at)",
    // One row per lease that was neither settled nor followed by another one, run out or not. `is_last`: none may follow it.
    "CREATE TABLE IF NOT EXISTS wasmkeep_queue_lease (id INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, epoch INTEGER NOT NULL,
        until INTEGER NOT NULL, is_last INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS wasmkeep_queue_lease_last ON wasmkeep_queue_lease (until) WHERE is_last = 1",
    "CREATE TABLE IF NOT EXISTS wasmkeep_queue_order (id INTEGER PRIMARY KEY, ordering_key BLOB NOT NULL, due_at INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS wasmkeep_queue_order_key ON wasmkeep_queue_order (ordering_key)",
    "CREATE TABLE IF NOT EXISTS wasmkeep_queue_dead_order (id INTEGER PRIMARY KEY, ordering_key BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS wasmkeep_queue_dedupe (dedupe_id BLOB PRIMARY KEY, id INTEGER NOT NULL, due_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS wasmkeep_queue_dedupe_expires ON wasmkeep_queue_dedupe (expires_at)",
    "CREATE TABLE IF NOT EXISTS wasmkeep_queue_meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
];

pub(super) const INSERT: &str = "INSERT INTO wasmkeep_queue (id, body, enqueued_at, visible_at) VALUES (?1, ?2, ?3, ?4)";

/// `INSERT` for ten messages sent together: a statement on a table with AUTOINCREMENT reads and writes the sequence each time.
pub(super) const INSERT_TEN: &str = "INSERT INTO wasmkeep_queue (enqueued_at, id, body, visible_at) VALUES
    (?1, ?2, ?3, ?4), (?1, ?5, ?6, ?7), (?1, ?8, ?9, ?10), (?1, ?11, ?12, ?13), (?1, ?14, ?15, ?16),
    (?1, ?17, ?18, ?19), (?1, ?20, ?21, ?22), (?1, ?23, ?24, ?25), (?1, ?26, ?27, ?28), (?1, ?29, ?30, ?31)";

pub(super) const DUE: &str = "SELECT id, attempts, enqueued_at, body, NULL FROM wasmkeep_queue
    WHERE visible_at <= ?1 ORDER BY visible_at, id LIMIT ?2";

/// `DUE` with the ordering key, if any, as the fifth column.
pub(super) const DUE_KEYED: &str = "SELECT q.id, q.attempts, q.enqueued_at, q.body, o.ordering_key FROM wasmkeep_queue q
    LEFT JOIN wasmkeep_queue_order o ON o.id = q.id WHERE q.visible_at <= ?1 ORDER BY q.visible_at, q.id LIMIT ?2";

// Batches are written run by run of consecutive ids, which mostly means at once. Neither a subquery nor RETURNING here: both make
// SQLite build a temporary table, which costs more than the rest of a small batch.

/// Leases of a run of messages. Replaces those that ran out.
pub(super) const LEASE_MARK: &str = "INSERT OR REPLACE INTO wasmkeep_queue_lease (id, attempt, epoch, until, is_last)
    SELECT id, attempts + 1, ?3, ?4, attempts + 1 >= ?5 FROM wasmkeep_queue WHERE id BETWEEN ?1 AND ?2";

pub(super) const LEASE_HIDE: &str = "UPDATE wasmkeep_queue SET attempts = attempts + 1, visible_at = ?3 WHERE id BETWEEN ?1 AND ?2";

/// Which of a run of messages have a lease of this attempt and epoch.
pub(super) const LEASE_FIND: &str = "SELECT id, until FROM wasmkeep_queue_lease WHERE id BETWEEN ?1 AND ?2
    AND attempt = ?3 AND epoch = ?4";

pub(super) const LEASE_TAKE: &str = "DELETE FROM wasmkeep_queue_lease WHERE id BETWEEN ?1 AND ?2 AND attempt = ?3 AND epoch = ?4";

pub(super) const DELETE: &str = "DELETE FROM wasmkeep_queue WHERE id BETWEEN ?1 AND ?2";

pub(super) const EARLIEST: &str = "SELECT visible_at FROM wasmkeep_queue ORDER BY visible_at LIMIT 1";

pub(super) const OLDEST: &str = "SELECT id, enqueued_at FROM wasmkeep_queue ORDER BY id LIMIT 1";

pub(super) const BECAME_VISIBLE: &str = "SELECT count(*), 0 FROM wasmkeep_queue WHERE visible_at > ?1 AND visible_at <= ?2";

/// `BECAME_VISIBLE`, and how many of them because a lease ran out.
pub(super) const BECAME_VISIBLE_LEASED: &str = "SELECT count(*), count(l.id) FROM wasmkeep_queue q
    LEFT JOIN wasmkeep_queue_lease l ON l.id = q.id WHERE q.visible_at > ?1 AND q.visible_at <= ?2";

pub(super) const META_PUT: &str = "INSERT OR REPLACE INTO wasmkeep_queue_meta (name, value) VALUES (?1, ?2)";

pub(super) const SHOW_AGAIN: &str =
    "UPDATE wasmkeep_queue SET visible_at = ?2, last_error = coalesce(?3, last_error) WHERE id = ?1";

pub(super) const GIVE_BACK: &str = "UPDATE wasmkeep_queue SET visible_at = ?2, attempts = attempts - 1 WHERE id = ?1";

pub(super) const LEASE_EXTEND: &str = "UPDATE wasmkeep_queue_lease SET until = ?2 WHERE id = ?1";

pub(super) const SET_VISIBLE: &str = "UPDATE wasmkeep_queue SET visible_at = ?2 WHERE id = ?1";

pub(super) const LEASE_DROP: &str = "DELETE FROM wasmkeep_queue_lease WHERE id = ?1";

pub(super) const LAST_UNTIL: &str = "SELECT until FROM wasmkeep_queue_lease WHERE is_last = 1 ORDER BY until LIMIT 1";

/// Messages whose last lease ran out.
pub(super) const LAST_RAN_OUT: &str = "SELECT l.id, length(q.body) FROM wasmkeep_queue_lease l JOIN wasmkeep_queue q ON q.id = l.id
    WHERE l.is_last = 1 AND l.until <= ?1 ORDER BY l.until LIMIT ?2";

pub(super) const ORDER_ANY: &str = "SELECT 1 FROM wasmkeep_queue_order WHERE ordering_key = ?1 LIMIT 1";

pub(super) const ORDER_INSERT: &str = "INSERT INTO wasmkeep_queue_order (id, ordering_key, due_at) VALUES (?1, ?2, ?3)";

pub(super) const ORDER_FIND: &str = "SELECT ordering_key FROM wasmkeep_queue_order WHERE id BETWEEN ?1 AND ?2";

pub(super) const ORDER_TAKE: &str = "DELETE FROM wasmkeep_queue_order WHERE id BETWEEN ?1 AND ?2";

pub(super) const ORDER_NEXT: &str = "SELECT id, due_at FROM wasmkeep_queue_order WHERE ordering_key = ?1 ORDER BY id LIMIT 1";

pub(super) const DEDUPE_FIND: &str = "SELECT id, due_at FROM wasmkeep_queue_dedupe WHERE dedupe_id = ?1 AND expires_at > ?2";

pub(super) const DEDUPE_PUT: &str = "INSERT OR REPLACE INTO wasmkeep_queue_dedupe (dedupe_id, id, due_at, expires_at)
    VALUES (?1, ?2, ?3, ?4)";

pub(super) const DEDUPE_SWEEP: &str = "DELETE FROM wasmkeep_queue_dedupe WHERE dedupe_id IN
    (SELECT dedupe_id FROM wasmkeep_queue_dedupe WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";

pub(super) const DEDUPE_EARLIEST: &str = "SELECT expires_at FROM wasmkeep_queue_dedupe ORDER BY expires_at LIMIT 1";

pub(super) const DEAD_INSERT: &str = "INSERT INTO wasmkeep_queue_dead (id, body, enqueued_at, attempts, failed_at, reason)
    SELECT id, body, enqueued_at, attempts, ?2, coalesce(?3, last_error, ?4) FROM wasmkeep_queue WHERE id = ?1";

pub(super) const DEAD_ORDER_INSERT: &str = "INSERT INTO wasmkeep_queue_dead_order (id, ordering_key)
    SELECT id, ordering_key FROM wasmkeep_queue_order WHERE id = ?1";

pub(super) const DEAD_PAGE: &str = "SELECT d.id, d.enqueued_at, d.attempts, d.failed_at, d.reason, o.ordering_key, d.body
    FROM wasmkeep_queue_dead d LEFT JOIN wasmkeep_queue_dead_order o ON o.id = d.id WHERE d.id > ?1 ORDER BY d.id LIMIT ?2";

pub(super) const DEAD_FAILED_BY: &str = "SELECT id, length(body) FROM wasmkeep_queue_dead WHERE failed_at <= ?1
    ORDER BY failed_at, id LIMIT ?2";

pub(super) const DEAD_SIZE: &str = "SELECT length(body) FROM wasmkeep_queue_dead WHERE id = ?1";

pub(super) const DEAD_DELETE: &str = "DELETE FROM wasmkeep_queue_dead WHERE id = ?1";

pub(super) const DEAD_ORDER_TAKE: &str = "DELETE FROM wasmkeep_queue_dead_order WHERE id = ?1 RETURNING ordering_key";

pub(super) const REDRIVE: &str = "INSERT INTO wasmkeep_queue (id, body, enqueued_at, visible_at)
    SELECT id, body, enqueued_at, ?2 FROM wasmkeep_queue_dead WHERE id = ?1 RETURNING enqueued_at";

pub(super) const LIVE_UP_TO: &str = "SELECT id, visible_at, length(body) FROM wasmkeep_queue WHERE id <= ?1 ORDER BY id LIMIT ?2";

// What runs once, when a queue is opened.

pub(super) const META: &str = "SELECT name, value FROM wasmkeep_queue_meta";

pub(super) const LAST_ID: &str = "SELECT seq FROM sqlite_sequence WHERE name = 'wasmkeep_queue'";

pub(super) const NEWEST: &str = "SELECT enqueued_at FROM wasmkeep_queue ORDER BY id DESC LIMIT 1";

/// Later than any dead letter's `enqueued_at`.
pub(super) const LAST_DEATH: &str = "SELECT failed_at FROM wasmkeep_queue_dead ORDER BY failed_at DESC LIMIT 1";

/// A lower max-attempts makes last leases of running ones, a higher one the other way round.
pub(super) const LEASES_ADJUST: &str = "UPDATE wasmkeep_queue_lease SET is_last = (attempt >= ?1) WHERE is_last <> (attempt >= ?1)";

/// All, visible, blocked; leased and not visible; dead; with an ordering key.
pub(super) const COUNTS: &str = "SELECT count(*), count(*) FILTER (WHERE visible_at <= ?1),
    count(*) FILTER (WHERE visible_at = 9223372036854775807),
    (SELECT count(*) FROM wasmkeep_queue_lease WHERE until > ?1), (SELECT count(*) FROM wasmkeep_queue_dead),
    (SELECT count(*) FROM wasmkeep_queue_order) FROM wasmkeep_queue";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_what_is_blocked_is_the_one_that_is_counted() {
        assert!(COUNTS.contains(&BLOCKED.to_string()));
    }
}
