//! What a shard does without writing: get, list, count.

use super::codec::{decode_get, decode_get_many, decode_list, end_page, put_found, put_listed, whole};
use super::machine::{Done, Machine, first, ok};
use super::protocol::{Found, List, Listed};
use super::sql;
use crate::database::{Database, DatabaseError, Param, Row};
use crate::host::Effect;
use crate::limits::{KV_KEY_BYTES_MAX, KV_LIST_MAX, KV_PAGE_BYTES_MAX, KV_REPLY_BYTES_MAX};
use crate::wire::{Malformed, Writer};

/// What no key reaches.
static END: [u8; KV_KEY_BYTES_MAX + 1] = [0xff; KV_KEY_BYTES_MAX + 1];

/// Whether a row with this end is there still.
pub(super) fn is_live(expires_at: Option<i64>, now: i64) -> bool {
    expires_at.is_none_or(|at| at > now)
}

/// What is left until then, ms.
fn left(expires_at: Option<i64>, now: i64) -> Option<u64> {
    expires_at.map(|at| (at - now).max(0).unsigned_abs())
}

/// A row of `sql::GET`, if it is there still.
fn found(row: &dyn Row, now: i64) -> Option<Found<'_>> {
    let expires_at = row.integer_or_null(2);
    is_live(expires_at, now).then(|| Found { value: row.bytes(0), version: row.integer(1), ttl_ms: left(expires_at, now) })
}

/// The first key behind another.
pub(super) fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The first key behind all that begin with a prefix. Nothing follows the ones of only 0xff.
fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

impl Machine {
    pub(super) fn get(&self, db: &mut dyn Database, body: &[u8]) -> Done {
        let (shards, key) = decode_get(body)?;
        self.state.layout.admit_read(shards)?;
        let now = self.now();
        let mut reply = None;
        db.query(sql::GET, &[Param::Blob(key)], &mut |row| {
            reply = found(row, now).map(|found| {
                let mut writer = Writer::with_capacity(32 + found.value.len());
                put_found(&mut writer, Some(&found));
                writer.into_bytes()
            });
            false
        })?;
        Ok(ok(reply.unwrap_or_else(|| vec![0]), Effect::Read))
    }

    pub(super) fn get_many(&self, db: &mut dyn Database, body: &[u8]) -> Done {
        let (shards, keys) = decode_get_many(body)?;
        self.state.layout.admit_read(shards)?;
        let now = self.now();
        let mut writer = Writer::new();
        for key in keys {
            let (mut is_there, mut is_full) = (false, false);
            db.query(sql::GET, &[Param::Blob(key)], &mut |row| {
                if let Some(found) = found(row, now) {
                    is_there = true;
                    is_full = !writer.is_empty() && writer.len() + found.value.len() > KV_REPLY_BYTES_MAX;
                    if !is_full {
                        put_found(writer.u8(1), Some(&found));
                    }
                }
                false
            })?;
            if is_full {
                break;
            }
            if !is_there {
                put_found(writer.u8(1), None);
            }
        }
        writer.u8(0);
        Ok(ok(writer.into_bytes(), Effect::Read))
    }

    pub(super) fn list(&self, db: &mut dyn Database, body: &[u8]) -> Done {
        let (shards, list) = decode_list(body)?;
        self.state.layout.admit_read(shards)?;
        Ok(ok(self.page(db, &list)?, Effect::Read))
    }

    fn page(&self, db: &mut dyn Database, list: &List<'_>) -> Result<Vec<u8>, DatabaseError> {
        let (now, limit) = (self.now(), list.limit.min(KV_LIST_MAX));
        let after = list.after.map(behind);
        let from = after.as_deref().map_or(list.prefix, |after| after.max(list.prefix));
        let end = behind_prefix(list.prefix);
        let below = end.as_deref().unwrap_or(&END);
        let params = [Param::Blob(from), Param::Blob(below), Param::Integer(now), Param::Integer(i64::from(limit) + 1)];
        let (mut writer, mut count, mut has_more) = (Writer::new(), 0, false);
        db.query(if list.values { sql::LIST_VALUES } else { sql::LIST }, &params, &mut |row| {
            let value = list.values.then(|| row.bytes(3));
            let bytes = row.bytes(0).len() + value.map_or(0, <[u8]>::len);
            has_more = count == limit || (count > 0 && writer.len() + bytes > KV_PAGE_BYTES_MAX);
            if !has_more {
                let ttl_ms = left(row.integer_or_null(2), now);
                put_listed(&mut writer, &Listed { key: row.bytes(0), version: row.integer(1), ttl_ms, value });
                count += 1;
            }
            !has_more
        })?;
        Ok(end_page(writer, has_more))
    }

    pub(super) fn count(&self, db: &mut dyn Database, body: &[u8]) -> Done {
        let shards = whole::<_, Malformed>(body, |reader| reader.u32()).map_err(super::protocol::Invalid::from)?;
        self.state.layout.admit_read(shards)?;
        let count = first(db, sql::COUNT, &[Param::Integer(self.now())])?.unwrap_or(0);
        let mut writer = Writer::new();
        writer.u64(count.unsigned_abs());
        Ok(ok(writer.into_bytes(), Effect::Read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_a_prefix_comes_the_next_one_of_its_length_or_shorter() {
        assert_eq!(behind_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(behind_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!((behind_prefix(b"\xff\xff"), behind_prefix(b"")), (None, None));
    }
}
