//! What moves rows between shards, for a change of their number and for a copy of another class. It moves nothing by itself: an
//! operator's client does, and may be stopped and started again at any step.
//!
//! From n shards to m, of which some are the same actors: every old shard is set `Moving(m)`: it serves reads and refuses writes.
//! Each row of each is exported, and imported, if absent, by its shard among m; `import` works in every phase. Then every old shard
//! is set `Moved(m)` and refuses everything, naming m; each is pruned of the rows that are not its own; the m new ones are set
//! `Open` with m. While rows exist twice, a listing of the old shards shows them once, because merging drops doubles.
//!
//! An import raises the counter of versions above all versions it brings: no version that a key ever had is given to it again.

use super::codec::{encode_imported, end_page, whole};
use super::layout::{Layout, Phase, shard_of};
use super::machine::{Done, Machine, ok};
use super::protocol::{Expect, Imported, Invalid, Moving, Pruned};
use super::reading::behind;
use super::sweep::within_bytes;
use super::{sql, transfer};
use crate::database::{Database, DatabaseError, Param};
use crate::host::Effect;
use crate::limits::{KV_ITEMS_MAX, KV_PAGE_BYTES_MAX, KV_VERSION_MAX};
use crate::wire::Writer;

impl Machine {
    pub(super) fn layout(&self, body: &[u8]) -> Done {
        whole::<_, Invalid>(body, |_| Ok(()))?;
        Ok(ok(transfer::encode_layout(self.state.layout), Effect::Read))
    }

    pub(super) fn set_layout(&mut self, db: &mut dyn Database, body: &[u8]) -> Done {
        let told = transfer::decode_phase(body)?;
        // A shard that moves is still asked by those who know the old number.
        let shards = if told.phase == Phase::Open { told.shards } else { self.state.layout.shards };
        self.write_layout(db, Layout { phase: told.phase, shards })?;
        Ok(ok(Vec::new(), Effect::Durable))
    }

    pub(super) fn export(&self, db: &mut dyn Database, body: &[u8]) -> Done {
        let after = transfer::decode_after(body)?.map(behind).unwrap_or_default();
        let (mut writer, mut count, mut has_more) = (Writer::new(), 0, false);
        let limit = i64::try_from(KV_ITEMS_MAX).expect("it is small") + 1;
        let end = [0xff; crate::limits::KV_KEY_BYTES_MAX + 1];
        let params = [Param::Blob(&after), Param::Blob(&end), Param::Integer(self.now()), Param::Integer(limit)];
        db.query(sql::LIST_VALUES, &params, &mut |row| {
            let (key, value) = (row.bytes(0), row.bytes(3));
            let bytes = writer.len() + key.len() + value.len();
            has_more = count == KV_ITEMS_MAX || (count > 0 && bytes > KV_PAGE_BYTES_MAX);
            if !has_more {
                let expires_at_ms = row.integer_or_null(2).map(|at| self.state.clock.host(at));
                transfer::put_moving(writer.u8(1), &Moving { key, value, version: row.integer(1), expires_at_ms });
                count += 1;
            }
            !has_more
        })?;
        // What leaves may be kept by whoever gets it, so it must not be forgotten here.
        Ok(ok(end_page(writer, has_more), Effect::Durable))
    }

    pub(super) fn import(&mut self, db: &mut dyn Database, body: &[u8]) -> Done {
        let (only_if_absent, rows) = transfer::decode_import(body)?;
        let newest = rows.iter().map(|row| row.version).max().unwrap_or(0).max(self.state.seq);
        if newest.saturating_add_unsigned(rows.len() as u64) >= KV_VERSION_MAX {
            return Err(Invalid::VersionNumber(newest).into());
        }
        self.state.seq = newest;
        self.reserve(db, rows.len())?;
        let mut imported = Imported::default();
        let expect = if only_if_absent { Expect::Absent } else { Expect::Any };
        for row in &rows {
            let is_written = self.take_in(db, row, expect)?;
            *if is_written { &mut imported.written } else { &mut imported.skipped } += 1;
        }
        Ok(ok(encode_imported(imported), Effect::Durable))
    }

    fn take_in(&mut self, db: &mut dyn Database, row: &Moving<'_>, expect: Expect) -> Result<bool, DatabaseError> {
        let expires_at = row.expires_at_ms.map(|at| self.state.clock.at(at));
        if expires_at.is_some_and(|at| at <= self.now()) {
            return Ok(false);
        }
        Ok(self.put(db, row.key, row.value, expect, expires_at)?.is_some())
    }

    pub(super) fn prune(&mut self, db: &mut dyn Database, body: &[u8]) -> Done {
        let (index, shards, after) = transfer::decode_prune(body)?;
        if self.state.layout.phase != Phase::Moved(shards) {
            return Err(Invalid::NotMoved.into());
        }
        let mut seen = Vec::new();
        let from = after.map(behind).unwrap_or_default();
        let limit = i64::try_from(KV_ITEMS_MAX).expect("it is small");
        db.query(sql::KEYS, &[Param::Blob(&from), Param::Integer(limit)], &mut |row| {
            let is_foreign = shard_of(row.bytes(0), shards) != index;
            let bytes = if is_foreign { usize::try_from(row.integer(1)).unwrap_or(0) } else { 0 };
            seen.push((row.bytes(0).to_vec(), is_foreign, bytes));
            true
        })?;
        let is_last = seen.len() < KV_ITEMS_MAX;
        let count = within_bytes(seen.iter().map(|(_, _, bytes)| *bytes));
        let (is_cut, mut pruned) = (count < seen.len(), 0);
        seen.truncate(count);
        for (key, ..) in seen.iter().filter(|(_, is_foreign, _)| *is_foreign) {
            db.execute(sql::DROP, &[Param::Blob(key)])?;
            pruned += 1;
        }
        let next = if is_last && !is_cut { None } else { seen.last().map(|(key, ..)| key.as_slice()) };
        Ok(ok(transfer::encode_pruned(&Pruned { count: pruned, next }), Effect::Durable))
    }
}
