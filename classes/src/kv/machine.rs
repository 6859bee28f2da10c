//! The state machine: opening it, what every request passes through, the alarm it wants.

use super::codec::Kind;
use super::layout::{Layout, Misdirected, Phase};
use super::protocol::{self, Invalid};
use super::transfer::{phase_numbers, phase_of};
use super::{Config, sql};
use crate::clock::Clock;
use crate::database::{Database, DatabaseError, Param};
use crate::host::{Effect, Reply, Request};
use crate::limits::{KV_CLOCK_EVERY_MS, KV_OPERATION_LINGER_MS, KV_REQUEST_BYTES_MAX, KV_VERSION_BLOCK};
use crate::wire::Writer;

/// How callers begin that are operators: the host vouches for it, and no actor's class may begin with `_`.
const OPERATOR: &str = "_operator/";

/// A shard in the database of its actor. Whoever lets a transaction with it fail drops it and opens it anew.
#[derive(Debug)]
pub struct Machine {
    pub(super) config: Config,
    pub(super) state: State,
}

/// Memory of a shard at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub(super) clock: Clock,
    /// What the database has of the clock.
    clock_written: (i64, i64),
    /// The last version given, and the last one that may be given before another block is reserved.
    pub(super) seq: i64,
    pub(super) reserved: i64,
    /// When the first row ends, or earlier.
    pub(super) rows_due: Option<i64>,
    /// When the first operation id ends.
    pub(super) operations_due: Option<i64>,
    pub(super) layout: Layout,
}

/// Why a request was not done.
#[derive(Debug)]
pub(super) enum Fail {
    /// It broke a rule, before anything was written.
    Invalid(Invalid),
    /// Its key is elsewhere, or on its way.
    Misdirected(Misdirected),
    /// The database failed; the host takes back what was written.
    Database(DatabaseError),
}

impl From<Invalid> for Fail {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<Misdirected> for Fail {
    fn from(misdirected: Misdirected) -> Self {
        Self::Misdirected(misdirected)
    }
}

impl From<DatabaseError> for Fail {
    fn from(error: DatabaseError) -> Self {
        Self::Database(error)
    }
}

/// A reply, or why there is none.
pub(super) type Done = Result<Reply, Fail>;

/// A reply to what went well.
pub(super) const fn ok(body: Vec<u8>, effect: Effect) -> Reply {
    Reply { status: 200, body, effect }
}

impl Machine {
    /// Makes the tables that are missing and reads what is kept in memory, whatever the number of rows. What this writes, if
    /// anything, is repeated by the next opening if it is lost.
    ///
    /// # Errors
    /// As the database does; `Other` for a configuration that is out of range.
    pub fn open(db: &mut dyn Database, config: Config, now_ms: u64) -> Result<Self, DatabaseError> {
        config.check().map_err(DatabaseError::Other)?;
        for table in sql::TABLES {
            db.execute(table, &[])?;
        }
        let mut machine = Self { config, state: load(db, now_ms)? };
        if machine.state.clock.ahead() != machine.state.clock_written.1 {
            machine.write_clock(db)?;
        }
        if let (0, Some(shards)) = (machine.state.layout.shards, config.shards) {
            machine.write_layout(db, Layout { shards, ..machine.state.layout })?;
        }
        Ok(machine)
    }

    /// Handles one request, within a transaction of the host, which may hand in others before and after it; one that
    /// [`protocol::only_reads`] needs none. Requests for anybody: `get`, `get-many`, `put`, `delete`, `increment`, `write-many`,
    /// `list`, `count`; for operators, whose caller begins with `_operator/` and so is no actor: `layout`,
    /// `set-layout`, `export`, `import`, `prune`.
    ///
    /// # Errors
    /// As the database does. The host then rolls back, to a savepoint or all of it, and calls `restore`.
    pub fn handle(&mut self, db: &mut dyn Database, now_ms: u64, request: Request<'_>) -> Result<Reply, DatabaseError> {
        self.state.clock.read(now_ms);
        match self.dispatch(db, &request) {
            Ok(reply) => {
                if reply.effect > Effect::Read {
                    self.write_clock(db)?;
                }
                Ok(reply)
            }
            Err(Fail::Invalid(invalid)) => {
                Ok(Reply { status: invalid.status(), body: invalid.to_string().into_bytes(), effect: Effect::Read })
            }
            Err(Fail::Misdirected(Misdirected { is_moving, shards })) => {
                let mut writer = Writer::new();
                writer.u8(is_moving.into()).u32(shards);
                Ok(Reply { status: 421, body: writer.into_bytes(), effect: Effect::Read })
            }
            Err(Fail::Database(error)) => Err(error),
        }
    }

    fn dispatch(&mut self, db: &mut dyn Database, request: &Request<'_>) -> Done {
        let operation = protocol::operation(request.path)?;
        if request.caller.is_empty() {
            return Err(Invalid::Forbidden.into());
        }
        let body = request.body;
        if body.len() > KV_REQUEST_BYTES_MAX {
            return Err(Invalid::RequestBytes(body.len()).into());
        }
        match operation {
            "get" => self.get(db, body),
            "put" => self.write(db, request, Kind::Put),
            "delete" => self.write(db, request, Kind::Delete),
            "increment" => self.write(db, request, Kind::Increment),
            "get-many" => self.get_many(db, body),
            "write-many" => self.write_many(db, request),
            "list" => self.list(db, body),
            "count" => self.count(db, body),
            "layout" | "set-layout" | "export" | "import" | "prune" if !request.caller.starts_with(OPERATOR) => {
                Err(Invalid::Forbidden.into())
            }
            "layout" => self.layout(body),
            "set-layout" => self.set_layout(db, body),
            "export" => self.export(db, body),
            "import" => self.import(db, body),
            "prune" => self.prune(db, body),
            _ => Err(Invalid::NoSuchOperation.into()),
        }
    }

    /// Memory as of now, to `restore` if the request that follows is rolled back.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Takes memory back to where it was.
    pub const fn restore(&mut self, state: State) {
        self.state = state;
    }

    /// When the host's clock shows this, ms, `on_alarm` wants to run. `None`: nothing will ever end.
    #[must_use]
    pub fn alarm(&self) -> Option<u64> {
        let linger = i64::try_from(KV_OPERATION_LINGER_MS).expect("it is small");
        let operations = self.state.operations_due.map(|due| due + linger);
        [self.state.rows_due, operations].into_iter().flatten().min().map(|at| self.state.clock.host(at))
    }

    pub(super) const fn now(&self) -> i64 {
        self.state.clock.now()
    }

    /// Makes sure that `count` more versions may be given. A block is reserved before any of it is given, durably: what a crash
    /// takes back is then never given again.
    pub(super) fn reserve(&mut self, db: &mut dyn Database, count: usize) -> Result<(), DatabaseError> {
        let count = i64::try_from(count).expect("calls are bounded");
        let state = &mut self.state;
        if state.seq + count > state.reserved {
            state.reserved = state.seq + count.max(KV_VERSION_BLOCK);
            db.execute(sql::SEQ_PUT, &[Param::Integer(state.reserved)])?;
        }
        Ok(())
    }

    /// Notes that a row ends then.
    pub(super) fn note_due(&mut self, expires_at: Option<i64>) {
        if let Some(at) = expires_at {
            self.state.rows_due = Some(self.state.rows_due.map_or(at, |due| due.min(at)));
        }
    }

    /// Leaves the time in the database now and then, for an opening under a clock that stepped back.
    pub(super) fn write_clock(&mut self, db: &mut dyn Database) -> Result<(), DatabaseError> {
        let (now, ahead) = (self.state.clock.now(), self.state.clock.ahead());
        let (seen, ahead_written) = self.state.clock_written;
        if ahead != ahead_written {
            db.execute(sql::FACT_PUT, &[Param::Text("ahead"), Param::Integer(ahead)])?;
        }
        if ahead != ahead_written || now >= seen.saturating_add(KV_CLOCK_EVERY_MS) {
            db.execute(sql::FACT_PUT, &[Param::Text("seen"), Param::Integer(now)])?;
            self.state.clock_written = (now, ahead);
        }
        Ok(())
    }

    /// Keeps what is known of the layout.
    pub(super) fn write_layout(&mut self, db: &mut dyn Database, layout: Layout) -> Result<(), DatabaseError> {
        let (phase, target) = phase_numbers(layout.phase);
        let facts = [("phase", phase.into()), ("target", target.into()), ("shards", layout.shards.into())];
        for (name, value) in facts {
            db.execute(sql::FACT_PUT, &[Param::Text(name), Param::Integer(value)])?;
        }
        self.state.layout = layout;
        Ok(())
    }
}

/// The first column of a statement's first row.
pub(super) fn first(db: &mut dyn Database, sql: &'static str, params: &[Param<'_>]) -> Result<Option<i64>, DatabaseError> {
    let mut found = None;
    db.query(sql, params, &mut |row| {
        found = row.integer_or_null(0);
        false
    })?;
    Ok(found)
}

fn load(db: &mut dyn Database, now_ms: u64) -> Result<State, DatabaseError> {
    let seq = first(db, sql::SEQ, &[])?.unwrap_or(0);
    let (mut seen, mut ahead, mut phase, mut target, mut shards) = (0, 0, 0, 0, 0);
    db.query(sql::FACTS, &[], &mut |row| {
        let value = row.integer(1);
        match row.text_or_null(0) {
            Some("seen") => seen = value,
            Some("ahead") => ahead = value,
            Some("phase") => phase = value,
            Some("target") => target = value,
            Some("shards") => shards = value,
            _ => {}
        }
        true
    })?;
    let number = |value: i64| u32::try_from(value).unwrap_or(0);
    let phase = u8::try_from(phase).ok().and_then(|phase| phase_of(phase, number(target))).unwrap_or(Phase::Open);
    let rows_due = first(db, sql::NEXT_EXPIRY, &[])?;
    let operations_due = first(db, sql::OPERATION_NEXT, &[])?;
    Ok(State {
        clock: Clock::resume(seen, ahead, now_ms),
        clock_written: (seen, ahead),
        seq,
        reserved: seq,
        rows_due,
        operations_due,
        layout: Layout { phase, shards: number(shards) },
    })
}
