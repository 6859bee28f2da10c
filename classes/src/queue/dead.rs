//! Dead letters: how messages become them, how they are read, redriven and purged; purging what lives.

use super::codec;
use super::machine::{Done, Machine};
use super::protocol::{DeadLetter, Invalid, Moved, Which};
use super::send::number;
use super::sql::{self, BLOCKED};
use super::state::Cached;
use crate::database::{Database, DatabaseError, Param};
use crate::host::Effect;
use crate::limits::{QUEUE_LEASE_BYTES_MAX, QUEUE_MOVED_MAX, TIME_MS_MAX};
use crate::wire::Writer;

/// What a dead letter says if no error is known.
const RAN_OUT: &str = "its last lease ran out";

/// Dead letters chosen for one batch, and what to ask for to go on.
struct Chosen {
    ids: Vec<i64>,
    next: Option<Which>,
}

impl Machine {
    /// Moves a message whose lease is over, and which is not counted any longer, to the dead letters.
    pub(super) fn dead_letter(
        &mut self,
        db: &mut dyn Database,
        now: i64,
        id: i64,
        error: Option<&str>,
        otherwise: &str,
    ) -> Result<(), DatabaseError> {
        db.execute(sql::DEAD_INSERT, &[Param::Integer(id), Param::Integer(now), error.into(), Param::Text(otherwise)])?;
        if self.state.keyed > 0 {
            db.execute(sql::DEAD_ORDER_INSERT, &[Param::Integer(id)])?;
        }
        self.delete_rows(db, id, id)?;
        self.state.dead += 1;
        self.state.counters.dead += 1;
        Ok(())
    }

    /// As `dead_letter`, for a message that is visible as of now; a lease of it has run out.
    pub(super) fn dead_letter_visible(&mut self, db: &mut dyn Database, now: i64, id: i64) -> Result<(), DatabaseError> {
        drop_lease(db, id)?;
        self.state.counts.remove(now, false);
        self.state.last_until = Cached::Unknown;
        self.forget_earliest();
        self.dead_letter(db, now, id, None, RAN_OUT)
    }

    /// Dead-letters messages whose last lease ran out.
    pub(super) fn sweep_ran_out(&mut self, db: &mut dyn Database, now: i64) -> Result<(), DatabaseError> {
        self.count_until(db, now)?;
        let (mut ids, mut bytes) = (Vec::new(), 0);
        let limit = Param::Integer(number(QUEUE_MOVED_MAX as u64));
        db.query(sql::LAST_RAN_OUT, &[Param::Integer(now), limit], &mut |row| {
            bytes += row.integer(1);
            ids.push(row.integer(0));
            bytes < number(QUEUE_LEASE_BYTES_MAX as u64)
        })?;
        for id in ids {
            self.dead_letter_visible(db, now, id)?;
        }
        Ok(())
    }

    pub(super) fn dead_letters(db: &mut dyn Database, body: &[u8]) -> Done {
        let (after, limit) = codec::decode_dead(body)?;
        let (mut writer, mut count, mut bytes, mut has_more) = (Writer::new(), 0, 0, false);
        db.query(sql::DEAD_PAGE, &[Param::Integer(number(after)), Param::Integer(i64::from(limit) + 1)], &mut |row| {
            let (key, body) = (row.bytes(5), row.bytes(6));
            has_more = count == limit || (count > 0 && bytes + body.len() > QUEUE_LEASE_BYTES_MAX);
            if has_more {
                return false;
            }
            count += 1;
            bytes += body.len();
            let letter = DeadLetter {
                id: row.integer(0).unsigned_abs(),
                enqueued_at_ms: row.integer(1).unsigned_abs(),
                attempts: u32::try_from(row.integer(2)).unwrap_or(u32::MAX),
                failed_at_ms: row.integer(3).unsigned_abs(),
                reason: row.text_or_null(4).unwrap_or_default(),
                ordering_key: if key.is_empty() { None } else { Some(key) },
                body,
            };
            codec::put_dead_letter(&mut writer, &letter);
            true
        })?;
        Ok((codec::end_dead_page(writer, has_more), Effect::Read))
    }

    /// Makes dead letters messages again: the same ids, no attempts, visible at once.
    pub(super) fn redrive(&mut self, db: &mut dyn Database, now: i64, body: &[u8]) -> Done {
        let which = codec::decode_which(body)?;
        if matches!(which, Which::Live | Which::LiveUpTo { .. }) {
            return Err(Invalid::NotDead.into());
        }
        let mut chosen = choose(db, now, which)?;
        // In the order sent, so that the first of an ordering key is its head.
        chosen.ids.sort_unstable();
        let mut count = 0;
        for id in chosen.ids {
            count += u64::from(self.redrive_one(db, now, id)?);
        }
        self.state.counters.redriven += count;
        // Their attempts count from the beginning, so a lease they had before may not look like one to come.
        self.state.is_epoch_ours = false;
        Ok((codec::encode_moved(&Moved { count, next: chosen.next }), Effect::Durable))
    }

    fn redrive_one(&mut self, db: &mut dyn Database, now: i64, id: i64) -> Result<bool, DatabaseError> {
        let mut enqueued_at = None;
        let key = take_dead_key(db, id)?;
        let visible_at = match &key {
            Some(key) => self.line_up(db, id, key, now)?,
            None => now,
        };
        db.query(sql::REDRIVE, &[Param::Integer(id), Param::Integer(visible_at)], &mut |row| {
            enqueued_at = Some(row.integer(0));
            true
        })?;
        let Some(enqueued_at) = enqueued_at else { return Ok(false) };
        db.execute(sql::DEAD_DELETE, &[Param::Integer(id)])?;
        self.state.dead = self.state.dead.saturating_sub(1);
        self.state.counts.add(visible_at, false);
        self.state.oldest.add((id, enqueued_at));
        self.show(visible_at);
        Ok(true)
    }

    pub(super) fn purge(&mut self, db: &mut dyn Database, now: i64, body: &[u8]) -> Done {
        let moved = match codec::decode_which(body)? {
            Which::Live => self.purge_live(db, self.state.last_id)?,
            Which::LiveUpTo { id } => self.purge_live(db, number(id))?,
            which => {
                let chosen = choose(db, now, which)?;
                self.purge_dead(db, chosen)?
            }
        };
        Ok((codec::encode_moved(&moved), Effect::Durable))
    }

    fn purge_dead(&mut self, db: &mut dyn Database, chosen: Chosen) -> Result<Moved, DatabaseError> {
        let mut count = 0;
        for id in chosen.ids {
            take_dead_key(db, id)?;
            count += db.execute(sql::DEAD_DELETE, &[Param::Integer(id)])?;
        }
        self.state.dead = self.state.dead.saturating_sub(count);
        Ok(Moved { count, next: chosen.next })
    }

    fn purge_live(&mut self, db: &mut dyn Database, up_to: i64) -> Result<Moved, DatabaseError> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let limit = Param::Integer(number(QUEUE_MOVED_MAX as u64));
        db.query(sql::LIVE_UP_TO, &[Param::Integer(up_to), limit], &mut |row| {
            rows.push((row.integer(0), row.integer(1)));
            bytes += row.integer(2);
            bytes < number(QUEUE_LEASE_BYTES_MAX as u64)
        })?;
        let is_full = rows.len() == QUEUE_MOVED_MAX || bytes >= number(QUEUE_LEASE_BYTES_MAX as u64);
        let mut headless = Vec::new();
        for (id, visible_at) in &rows {
            let is_leased = drop_lease(db, *id)?;
            db.execute(sql::DELETE, &[Param::Integer(*id), Param::Integer(*id)])?;
            self.state.counts.remove(*visible_at, is_leased);
            self.forget_oldest(*id, *id);
            let keys = self.take_keys(db, *id, *id)?;
            if *visible_at != BLOCKED {
                headless.extend(keys);
            }
        }
        // Only now: before, a message that came up might have been one of those to delete.
        for key in headless {
            self.unblock(db, &key)?;
        }
        self.state.last_until = Cached::Unknown;
        self.forget_earliest();
        let next = if is_full { Some(Which::LiveUpTo { id: up_to.unsigned_abs() }) } else { None };
        Ok(Moved { count: rows.len() as u64, next })
    }
}

/// Drops whatever lease a message has. Returns whether it had one.
fn drop_lease(db: &mut dyn Database, id: i64) -> Result<bool, DatabaseError> {
    Ok(db.execute(sql::LEASE_DROP, &[Param::Integer(id)])? > 0)
}

fn take_dead_key(db: &mut dyn Database, id: i64) -> Result<Option<Vec<u8>>, DatabaseError> {
    let mut key = None;
    db.query(sql::DEAD_ORDER_TAKE, &[Param::Integer(id)], &mut |row| {
        key = Some(row.bytes(0).to_vec());
        true
    })?;
    Ok(key)
}

/// As many of the dead letters asked for as one batch may hold.
fn choose(db: &mut dyn Database, now: i64, which: Which) -> Result<Chosen, DatabaseError> {
    match which {
        Which::DeadIds(ids) => choose_ids(db, ids),
        Which::DeadFailedBy { at_ms } => choose_failed_by(db, number(at_ms)),
        Which::DeadOlderThan { age_ms } => choose_failed_by(db, now - number(age_ms).min(TIME_MS_MAX)),
        Which::Live | Which::LiveUpTo { .. } => Ok(Chosen { ids: Vec::new(), next: None }),
    }
}

fn choose_ids(db: &mut dyn Database, mut ids: Vec<u64>) -> Result<Chosen, DatabaseError> {
    let (mut bytes, mut chosen) = (0, Vec::new());
    for id in ids.iter().take(QUEUE_MOVED_MAX).map(|id| number(*id)) {
        db.query(sql::DEAD_SIZE, &[Param::Integer(id)], &mut |row| {
            bytes += row.integer(0);
            false
        })?;
        if bytes > number(QUEUE_LEASE_BYTES_MAX as u64) && !chosen.is_empty() {
            break;
        }
        chosen.push(id);
    }
    let rest = ids.split_off(chosen.len());
    Ok(Chosen { ids: chosen, next: if rest.is_empty() { None } else { Some(Which::DeadIds(rest)) } })
}

fn choose_failed_by(db: &mut dyn Database, at: i64) -> Result<Chosen, DatabaseError> {
    let (mut ids, mut bytes) = (Vec::new(), 0);
    let limit = Param::Integer(number(QUEUE_MOVED_MAX as u64));
    let mut is_full = false;
    db.query(sql::DEAD_FAILED_BY, &[Param::Integer(at), limit], &mut |row| {
        bytes += row.integer(1);
        is_full = bytes > number(QUEUE_LEASE_BYTES_MAX as u64) && !ids.is_empty();
        if !is_full {
            ids.push(row.integer(0));
        }
        !is_full
    })?;
    let is_full = is_full || ids.len() == QUEUE_MOVED_MAX;
    let at_ms = at.max(0).unsigned_abs();
    Ok(Chosen { ids, next: if is_full { Some(Which::DeadFailedBy { at_ms }) } else { None } })
}
