//! The statements of a shard. Constants, so that a host prepares each once.

/// The tables. The first is fixed; what else there is to know stands in tables of its own.
pub(super) const TABLES: [&str; 7] = [
    "CREATE TABLE IF NOT EXISTS wasmkeep_kv (key BLOB PRIMARY KEY, value BLOB NOT NULL,
                         version INTEGER NOT NULL, expires_at INTEGER) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS wasmkeep_kv_expiry ON wasmkeep_kv (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS wasmkeep_kv_meta (seq INTEGER NOT NULL)",
    "INSERT INTO wasmkeep_kv_meta SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM wasmkeep_kv_meta)",
    "CREATE TABLE IF NOT EXISTS wasmkeep_kv_facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS wasmkeep_kv_operations (id BLOB PRIMARY KEY, hash INTEGER NOT NULL, status INTEGER NOT NULL,
                         reply BLOB NOT NULL, expires_at INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS wasmkeep_kv_operations_expiry ON wasmkeep_kv_operations (expires_at)",
];

/// The end of the last block of versions reserved.
pub(super) const SEQ: &str = "SELECT max(seq) FROM wasmkeep_kv_meta";
pub(super) const SEQ_PUT: &str = "UPDATE wasmkeep_kv_meta SET seq = ?1";

pub(super) const FACTS: &str = "SELECT name, value FROM wasmkeep_kv_facts";
pub(super) const FACT_PUT: &str = "INSERT INTO wasmkeep_kv_facts VALUES (?1, ?2)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value";

pub(super) const GET: &str = "SELECT value, version, expires_at FROM wasmkeep_kv WHERE key = ?1";
pub(super) const VERSION: &str = "SELECT version, expires_at FROM wasmkeep_kv WHERE key = ?1";

/// key, value, version, `expires_at`.
pub(super) const PUT: &str = "INSERT INTO wasmkeep_kv (key, value, version, expires_at) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version, expires_at = excluded.expires_at";
/// As `PUT`, now. Changes nothing if there is a row.
pub(super) const PUT_ABSENT: &str = "INSERT INTO wasmkeep_kv (key, value, version, expires_at) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version, expires_at = excluded.expires_at
    WHERE wasmkeep_kv.expires_at <= ?5";
/// As `PUT`, now, the version expected. Changes nothing if it is another.
pub(super) const PUT_VERSION: &str = "UPDATE wasmkeep_kv SET value = ?2, version = ?3, expires_at = ?4
    WHERE key = ?1 AND version = ?6 AND (expires_at IS NULL OR expires_at > ?5)";

/// key, now.
pub(super) const DELETE: &str = "DELETE FROM wasmkeep_kv WHERE key = ?1 AND (expires_at IS NULL OR expires_at > ?2)";
/// key, now, the version expected.
pub(super) const DELETE_VERSION: &str =
    "DELETE FROM wasmkeep_kv WHERE key = ?1 AND (expires_at IS NULL OR expires_at > ?2) AND version = ?3";

/// From, below, now, limit.
pub(super) const LIST: &str = "SELECT key, version, expires_at FROM wasmkeep_kv
    WHERE key >= ?1 AND key < ?2 AND (expires_at IS NULL OR expires_at > ?3) ORDER BY key LIMIT ?4";
pub(super) const LIST_VALUES: &str = "SELECT key, version, expires_at, value FROM wasmkeep_kv
    WHERE key >= ?1 AND key < ?2 AND (expires_at IS NULL OR expires_at > ?3) ORDER BY key LIMIT ?4";

/// Neither half reads what stands behind a value.
pub(super) const COUNT: &str = "SELECT (SELECT count(*) FROM wasmkeep_kv)
    - (SELECT count(*) FROM wasmkeep_kv WHERE expires_at IS NOT NULL AND expires_at <= ?1)";

/// From, limit.
pub(super) const KEYS: &str = "SELECT key, length(value) FROM wasmkeep_kv WHERE key >= ?1 ORDER BY key LIMIT ?2";
pub(super) const DROP: &str = "DELETE FROM wasmkeep_kv WHERE key = ?1";

pub(super) const NEXT_EXPIRY: &str = "SELECT expires_at FROM wasmkeep_kv WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1";
/// now, limit.
pub(super) const EXPIRED: &str = "SELECT length(value) FROM wasmkeep_kv WHERE expires_at IS NOT NULL AND expires_at <= ?1
    ORDER BY expires_at, key LIMIT ?2";
pub(super) const SWEEP: &str = "DELETE FROM wasmkeep_kv WHERE key IN (SELECT key FROM wasmkeep_kv
    WHERE expires_at IS NOT NULL AND expires_at <= ?1 ORDER BY expires_at, key LIMIT ?2)";

/// id, now.
pub(super) const OPERATION: &str = "SELECT hash, status, reply FROM wasmkeep_kv_operations WHERE id = ?1 AND expires_at > ?2";
pub(super) const OPERATION_PUT: &str = "INSERT OR REPLACE INTO wasmkeep_kv_operations VALUES (?1, ?2, ?3, ?4, ?5)";
pub(super) const OPERATION_NEXT: &str = "SELECT expires_at FROM wasmkeep_kv_operations ORDER BY expires_at LIMIT 1";
pub(super) const OPERATION_SWEEP: &str = "DELETE FROM wasmkeep_kv_operations WHERE id IN (SELECT id FROM wasmkeep_kv_operations
    WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";
