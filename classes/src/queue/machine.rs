//! The state machine: opening it, what every request passes through, the alarm it wants.

use std::sync::Arc;

use super::Config;
use super::codec;
use super::protocol::{self, Counters, Invalid, Stats};
use super::sql;
use super::state::{Cached, Counts, Gauges, State};
use crate::clock::Clock;
use crate::database::{Database, DatabaseError, Param};
use crate::host::{Effect, Reply, Request};
use crate::limits::{QUEUE_CLOCK_EVERY_MS, QUEUE_REQUEST_BYTES_MAX, QUEUE_SWEEP_LINGER_MS};

/// A queue in the database of its actor. Whoever lets a transaction with it fail drops it and opens it anew.
#[derive(Debug)]
pub struct Machine {
    pub(super) config: Config,
    pub(super) state: State,
}

/// Why a request was not done.
pub(super) enum Fail {
    /// It broke a rule, before anything was written.
    Invalid(Invalid),
    /// The database failed; the host takes back what was written.
    Database(DatabaseError),
}

impl From<Invalid> for Fail {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<DatabaseError> for Fail {
    fn from(error: DatabaseError) -> Self {
        Self::Database(error)
    }
}

/// A reply's body, and what must happen before it leaves.
pub(super) type Done = Result<(Vec<u8>, Effect), Fail>;

impl Machine {
    /// Makes the tables that are missing and reads what is kept in memory: one pass over an index, whatever the messages hold.
    /// What this writes, if anything, is repeated by the next opening if it is lost.
    ///
    /// # Errors
    /// As the database does; `Other` for a configuration that is out of range.
    pub fn open(db: &mut dyn Database, config: Config, now_ms: u64) -> Result<Self, DatabaseError> {
        config.check().map_err(|bad| DatabaseError::Other(bad.to_string()))?;
        for table in sql::TABLES {
            db.execute(table, &[])?;
        }
        db.execute(sql::LEASES_ADJUST, &[Param::Integer(config.max_attempts.into())])?;
        let mut machine = Self { config, state: load(db, now_ms)? };
        machine.refresh(db)?;
        Ok(machine)
    }

    /// Handles one request, within a transaction of the host, which may hand in others before and after it.
    ///
    /// # Errors
    /// As the database does. The host then rolls back, to a savepoint or all of it, and calls `restore`.
    pub fn handle(&mut self, db: &mut dyn Database, now_ms: u64, request: Request<'_>) -> Result<Reply, DatabaseError> {
        let now = self.state.clock.read(now_ms);
        match self.dispatch(db, now, &request) {
            Ok((body, effect)) => {
                if effect > Effect::Read {
                    self.write_clock(db, now)?;
                    self.refresh(db)?;
                }
                Ok(Reply { status: 200, body, effect })
            }
            Err(Fail::Invalid(invalid)) => {
                Ok(Reply { status: invalid.status(), body: invalid.to_string().into_bytes(), effect: Effect::Read })
            }
            Err(Fail::Database(error)) => Err(error),
        }
    }

    fn dispatch(&mut self, db: &mut dyn Database, now: i64, request: &Request<'_>) -> Done {
        let operation = protocol::operation(request.path)?;
        if request.body.len() > QUEUE_REQUEST_BYTES_MAX {
            return Err(Invalid::RequestBytes(request.body.len()).into());
        }
        match operation {
            "send" => self.send(db, now, request.body),
            "lease" => self.lease(db, now, request.body),
            "settle" => self.settle(db, now, request.body),
            "stats" => self.stats(db, now, request.body),
            "pause" => self.set_paused(db, request.body, true),
            "resume" => self.set_paused(db, request.body, false),
            "dead" => Self::dead_letters(db, request.body),
            "redrive" => self.redrive(db, now, request.body),
            "purge" => self.purge(db, now, request.body),
            _ => Err(Invalid::NoSuchOperation.into()),
        }
    }

    /// Memory as of now, to `restore` if the request that follows is rolled back.
    #[must_use]
    pub fn state(&self) -> State {
        self.state.clone()
    }

    /// Takes memory back to where it was.
    pub fn restore(&mut self, state: State) {
        self.state = state;
    }

    /// When the host's clock shows this, ms, `on_alarm` wants to run: a delivery is due, or a sweep. `None`: nothing is to come.
    #[must_use]
    pub fn alarm(&self) -> Option<u64> {
        let state = &self.state;
        let push = if self.may_push() { state.earliest.get() } else { None };
        let linger = i64::try_from(QUEUE_SWEEP_LINGER_MS).expect("it is small");
        let sweep = state.dedupe_until.map(|until| until + linger);
        [push, state.last_until.get(), sweep].into_iter().flatten().min().map(|at| state.clock.host(at))
    }

    /// What to show of this queue.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let state = &self.state;
        Gauges {
            depth: state.counts.live(),
            dead: state.dead,
            oldest_enqueued_at_ms: state.oldest.get().map(|(_, at)| state.clock.host(at)),
            is_paused: state.is_paused,
        }
    }

    pub(super) fn may_push(&self) -> bool {
        let is_slot_free = self.state.out.len() < self.config.concurrency as usize;
        self.config.consumer.is_some() && !self.state.is_paused && is_slot_free
    }

    /// Moves the counts' moment to `now`.
    pub(super) fn count_until(&mut self, db: &mut dyn Database, now: i64) -> Result<(), DatabaseError> {
        let counts = &mut self.state.counts;
        if counts.delayed + counts.leased > 0 && now > counts.as_of {
            let statement = if counts.leased > 0 { sql::BECAME_VISIBLE_LEASED } else { sql::BECAME_VISIBLE };
            let (mut all, mut leased) = (0, 0);
            db.query(statement, &[Param::Integer(counts.as_of), Param::Integer(now)], &mut |row| {
                (all, leased) = (row.integer(0).unsigned_abs(), row.integer(1).unsigned_abs());
                false
            })?;
            counts.visible += all;
            counts.leased = counts.leased.saturating_sub(leased);
            counts.delayed = counts.delayed.saturating_sub(all.saturating_sub(leased));
        }
        counts.as_of = now;
        Ok(())
    }

    /// Reads again whatever minimum of a table is needed and unknown.
    pub(super) fn refresh(&mut self, db: &mut dyn Database) -> Result<(), DatabaseError> {
        if self.state.oldest == Cached::Unknown {
            self.state.oldest = Cached::Known(oldest(db)?);
        }
        if self.state.last_until == Cached::Unknown {
            self.state.last_until = Cached::Known(first(db, sql::LAST_UNTIL)?);
        }
        if self.may_push() && self.state.earliest == Cached::Unknown {
            self.state.earliest = Cached::Known(first(db, sql::EARLIEST)?.filter(|at| *at != sql::BLOCKED));
        }
        Ok(())
    }

    /// Leaves the time in the database now and then, for an opening under a clock that stepped back.
    pub(super) fn write_clock(&mut self, db: &mut dyn Database, now: i64) -> Result<(), DatabaseError> {
        if now >= self.state.clock_written_at.saturating_add(QUEUE_CLOCK_EVERY_MS) {
            db.execute(sql::META_PUT, &[Param::Text("clock"), Param::Integer(now)])?;
            self.state.clock_written_at = now;
        }
        Ok(())
    }

    fn set_paused(&mut self, db: &mut dyn Database, body: &[u8], is_paused: bool) -> Done {
        codec::decode_nothing(body)?;
        db.execute(sql::META_PUT, &[Param::Text("paused"), Param::Integer(is_paused.into())])?;
        self.state.is_paused = is_paused;
        Ok((Vec::new(), Effect::Durable))
    }

    fn stats(&mut self, db: &mut dyn Database, now: i64, body: &[u8]) -> Done {
        codec::decode_nothing(body)?;
        self.count_until(db, now)?;
        let State { counts, dead, oldest, is_paused, counters, .. } = &self.state;
        let age = oldest.get().map(|(_, enqueued_at)| now.saturating_sub(enqueued_at).max(0).unsigned_abs());
        let stats = Stats {
            visible: counts.visible,
            delayed: counts.delayed,
            leased: counts.leased,
            blocked: counts.blocked,
            dead: *dead,
            oldest_age_ms: age,
            is_paused: *is_paused,
            counters: *counters,
        };
        Ok((codec::encode_stats(&stats), Effect::Read))
    }
}

/// The first column of a statement's first row.
pub(super) fn first(db: &mut dyn Database, statement: &'static str) -> Result<Option<i64>, DatabaseError> {
    let mut found = None;
    db.query(statement, &[], &mut |row| {
        found = Some(row.integer(0));
        false
    })?;
    Ok(found)
}

fn oldest(db: &mut dyn Database) -> Result<Option<(i64, i64)>, DatabaseError> {
    let mut found = None;
    db.query(sql::OLDEST, &[], &mut |row| {
        found = Some((row.integer(0), row.integer(1)));
        false
    })?;
    Ok(found)
}

fn load(db: &mut dyn Database, now_ms: u64) -> Result<State, DatabaseError> {
    let (mut epoch, mut is_paused, mut clock) = (0, false, 0);
    db.query(sql::META, &[], &mut |row| {
        match row.text_or_null(0) {
            Some("epoch") => epoch = row.integer(1),
            Some("paused") => is_paused = row.integer(1) != 0,
            Some("clock") => clock = row.integer(1),
            _ => {}
        }
        true
    })?;
    let last_id = first(db, sql::LAST_ID)?.unwrap_or(0);
    let dedupe_until = first(db, sql::DEDUPE_EARLIEST)?;
    let newest = first(db, sql::NEWEST)?.max(first(db, sql::LAST_DEATH)?);
    // In an empty queue a clock that once was wrong need not be followed any longer.
    let seen = if newest.is_none() && dedupe_until.is_none() { 0 } else { clock.max(newest.unwrap_or(0)) };
    let time = Clock::resume(seen, 0, now_ms);
    let now = time.now();
    let (mut counts, mut dead, mut keyed) = (Counts { as_of: now, visible: 0, delayed: 0, leased: 0, blocked: 0 }, 0, 0);
    db.query(sql::COUNTS, &[Param::Integer(now)], &mut |row| {
        let column = |column| row.integer(column).unsigned_abs();
        (counts.visible, counts.blocked, counts.leased, dead, keyed) = (column(1), column(2), column(3), column(4), column(5));
        counts.delayed = column(0).saturating_sub(column(1) + column(2) + column(3));
        false
    })?;
    Ok(State {
        clock: time,
        clock_written_at: clock.min(seen),
        last_id,
        epoch,
        is_epoch_ours: false,
        is_paused,
        counts,
        keyed,
        dead,
        oldest: Cached::Unknown,
        earliest: Cached::Unknown,
        last_until: Cached::Unknown,
        dedupe_until,
        deliveries: 0,
        out: Arc::default(),
        counters: Counters::default(),
    })
}
