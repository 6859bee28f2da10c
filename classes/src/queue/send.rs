//! Sending: dedupe ids, ordering keys, rows.

use super::codec;
use super::machine::{Done, Machine};
use super::protocol::{Invalid, Message, Sent};
use super::sql::{self, BLOCKED};
use crate::database::{Database, DatabaseError, Param};
use crate::host::Effect;

/// A row to insert.
struct Row<'a> {
    id: i64,
    body: &'a [u8],
    visible_at: i64,
}

/// Rows of one `sql::INSERT_TEN`.
const TEN: usize = 10;

impl Machine {
    /// Stores all messages of a request or none.
    pub(super) fn send(&mut self, db: &mut dyn Database, now: i64, body: &[u8]) -> Done {
        let messages = codec::decode_send(body)?;
        self.check_features(&messages)?;
        let mut sent = Vec::with_capacity(messages.len());
        let mut rows = Vec::with_capacity(messages.len());
        for message in &messages {
            if let Some(known) = find_duplicate(db, now, message)? {
                self.state.counters.duplicates += 1;
                sent.push(known);
                continue;
            }
            self.state.last_id += 1;
            let (id, due_at) = (self.state.last_id, now + number(message.delay_ms));
            let visible_at = match message.ordering_key {
                Some(key) => self.line_up(db, id, key, due_at)?,
                None => due_at,
            };
            if let Some(dedupe_id) = message.dedupe_id {
                self.remember(db, now, dedupe_id, id, due_at)?;
            }
            rows.push(Row { id, body: message.body, visible_at });
            sent.push(Sent { id: id.unsigned_abs(), due_at_ms: due_at.unsigned_abs(), is_duplicate: false });
        }
        self.insert(db, now, &rows)?;
        // Even if all of them are duplicates: the answer depends on rows that may not be durable yet.
        Ok((codec::encode_sent(&sent), Effect::Durable))
    }

    fn check_features(&self, messages: &[Message<'_>]) -> Result<(), Invalid> {
        if !self.config.ordering && messages.iter().any(|message| message.ordering_key.is_some()) {
            return Err(Invalid::NoOrdering);
        }
        if self.config.dedupe_window_ms == 0 && messages.iter().any(|message| message.dedupe_id.is_some()) {
            return Err(Invalid::NoDedupe);
        }
        Ok(())
    }

    /// Puts a message behind those of its key. Returns its `visible_at`.
    pub(super) fn line_up(&mut self, db: &mut dyn Database, id: i64, key: &[u8], due_at: i64) -> Result<i64, DatabaseError> {
        let mut is_blocked = false;
        if self.state.keyed > 0 {
            db.query(sql::ORDER_ANY, &[Param::Blob(key)], &mut |_| {
                is_blocked = true;
                false
            })?;
        }
        db.execute(sql::ORDER_INSERT, &[Param::Integer(id), Param::Blob(key), Param::Integer(due_at)])?;
        self.state.keyed += 1;
        Ok(if is_blocked { BLOCKED } else { due_at })
    }

    fn remember(&mut self, db: &mut dyn Database, now: i64, key: &[u8], id: i64, due_at: i64) -> Result<(), DatabaseError> {
        let until = now + number(self.config.dedupe_window_ms);
        db.execute(sql::DEDUPE_PUT, &[Param::Blob(key), Param::Integer(id), Param::Integer(due_at), Param::Integer(until)])?;
        self.state.dedupe_until = Some(self.state.dedupe_until.map_or(until, |known| known.min(until)));
        Ok(())
    }

    fn insert(&mut self, db: &mut dyn Database, now: i64, rows: &[Row<'_>]) -> Result<(), DatabaseError> {
        let (tens, rest) = rows.as_chunks::<TEN>();
        for ten in tens {
            let mut params = [Param::Integer(now); 1 + 3 * TEN];
            for (slot, row) in params[1..].chunks_exact_mut(3).zip(ten) {
                slot.copy_from_slice(&[Param::Integer(row.id), Param::Blob(row.body), Param::Integer(row.visible_at)]);
            }
            db.execute(sql::INSERT_TEN, &params)?;
        }
        for row in rest {
            let params = [Param::Integer(row.id), Param::Blob(row.body), Param::Integer(now), Param::Integer(row.visible_at)];
            db.execute(sql::INSERT, &params)?;
        }
        for row in rows {
            self.state.counts.add(row.visible_at, false);
            self.show(row.visible_at);
        }
        if let Some(first) = rows.first() {
            self.state.oldest.add((first.id, now));
        }
        self.state.counters.sent += rows.len() as u64;
        Ok(())
    }

    /// A message may become visible then.
    pub(super) fn show(&mut self, visible_at: i64) {
        if visible_at != BLOCKED {
            self.state.earliest.add(visible_at);
        }
    }
}

fn find_duplicate(db: &mut dyn Database, now: i64, message: &Message<'_>) -> Result<Option<Sent>, DatabaseError> {
    let Some(dedupe_id) = message.dedupe_id else { return Ok(None) };
    let mut found = None;
    db.query(sql::DEDUPE_FIND, &[Param::Blob(dedupe_id), Param::Integer(now)], &mut |row| {
        let (id, due_at) = (row.integer(0).unsigned_abs(), row.integer(1).unsigned_abs());
        found = Some(Sent { id, due_at_ms: due_at, is_duplicate: true });
        false
    })?;
    Ok(found)
}

/// A number of the protocol as SQLite has them. What does not fit is far beyond any id or bound.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
