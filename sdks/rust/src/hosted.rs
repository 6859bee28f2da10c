//! The state machines of queues and shards, hosted by an actor: what they ask of the node, the actor's own database as they see
//! it, and the event around each of their steps.
//!
//! One step is one transaction. A machine in memory always stands for what is committed: whatever fails drops it, and the next
//! event reads it anew from the tables.

use crate::actors::{self, Address, CallError};
use crate::{Error, Request, Response, alarm, db};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wasmkeep_classes::database::{Database, DatabaseError, Param, Row};
use wasmkeep_classes::host::{self, Effect, Reply};

/// What is asked of the node, so that the logic runs in tests as well.
pub(crate) trait Node: Database {
    fn now_ms(&mut self) -> u64;
    fn begin(&mut self) -> Result<(), DatabaseError>;
    /// Commits; durably if that is the effect.
    fn commit(&mut self, effect: Effect) -> Result<(), DatabaseError>;
    fn roll_back(&mut self);
    fn set_alarm(&mut self, at_ms: Option<u64>);
    fn call(&mut self, target: &Address, request: &Request, timeout: Duration) -> Result<Response, CallError>;
}

/// The actor's own database and the node it runs on.
pub(crate) struct OwnDatabase;

impl Node for OwnDatabase {
    fn now_ms(&mut self) -> u64 {
        now_ms()
    }

    fn begin(&mut self) -> Result<(), DatabaseError> {
        db::exec("BEGIN", &[]).map(drop).map_err(database_error)
    }

    fn commit(&mut self, effect: Effect) -> Result<(), DatabaseError> {
        let commit = if effect == Effect::Durable { db::exec_durable } else { db::exec };
        commit("COMMIT", &[]).map(drop).map_err(database_error)
    }

    fn roll_back(&mut self) {
        // SQLite may have rolled back on its own already, which makes this fail; there is nothing left to undo then.
        let _ = db::exec("ROLLBACK", &[]);
    }

    fn set_alarm(&mut self, at_ms: Option<u64>) {
        match at_ms.and_then(|at_ms| UNIX_EPOCH.checked_add(Duration::from_millis(at_ms))) {
            Some(at) => alarm::set(at),
            None => alarm::clear(),
        }
    }

    fn call(&mut self, target: &Address, request: &Request, timeout: Duration) -> Result<Response, CallError> {
        actors::call_timeout(target, request, timeout)
    }
}

impl Database for OwnDatabase {
    fn execute(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<u64, DatabaseError> {
        db::exec(sql, &values(params)).map_err(database_error)
    }

    fn query(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
        each: &mut dyn FnMut(&dyn Row) -> bool,
    ) -> Result<(), DatabaseError> {
        let rows = db::query(sql, &values(params)).map_err(database_error)?;
        for row in rows.iter() {
            if !each(&Values(row.values())) {
                break;
            }
        }
        Ok(())
    }
}

/// One row of a result.
pub(crate) struct Values<'a>(pub(crate) &'a [db::Value]);

impl Row for Values<'_> {
    fn integer(&self, column: usize) -> i64 {
        self.integer_or_null(column).unwrap_or(0)
    }

    fn integer_or_null(&self, column: usize) -> Option<i64> {
        match self.0.get(column) {
            Some(db::Value::Integer(value)) => Some(*value),
            _ => None,
        }
    }

    fn bytes(&self, column: usize) -> &[u8] {
        match self.0.get(column) {
            Some(db::Value::Blob(bytes)) => bytes,
            Some(db::Value::Text(text)) => text.as_bytes(),
            _ => &[],
        }
    }

    fn text_or_null(&self, column: usize) -> Option<&str> {
        match self.0.get(column) {
            Some(db::Value::Text(text)) => Some(text),
            _ => None,
        }
    }
}

pub(crate) fn values(params: &[Param<'_>]) -> Vec<db::Value> {
    let value = |param: &Param<'_>| match *param {
        Param::Null => db::Value::Null,
        Param::Integer(value) => db::Value::Integer(value),
        Param::Text(text) => db::Value::Text(text.to_owned()),
        Param::Blob(bytes) => db::Value::Blob(bytes.to_vec()),
    };
    params.iter().map(value).collect()
}

pub(crate) fn database_error(error: db::Error) -> DatabaseError {
    match error {
        db::Error::Full => DatabaseError::Full,
        db::Error::TooLarge => DatabaseError::TooLarge,
        db::Error::Deadline => DatabaseError::Deadline,
        other => DatabaseError::Other(other.to_string()),
    }
}

/// The time, ms since 1970.
#[allow(clippy::disallowed_methods, reason = "inside a guest this asks the node, whose clock is the injected one")]
pub(crate) fn now_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a caller is one of `allow`, each a `class` or a `class/name`; without any, all are allowed. The operator always is: the
/// host vouches for it, and no class of actors has its name.
pub(crate) fn is_allowed<A: AsRef<str>>(caller: &Address, allow: &[A]) -> bool {
    let is_caller = |allowed: &A| match allowed.as_ref().split_once('/') {
        Some((class, name)) => class == caller.class && name == caller.name,
        None => allowed.as_ref() == caller.class,
    };
    allow.is_empty() || caller.class == "_operator" || allow.iter().any(is_caller)
}

/// A state machine that lives in its actor's database.
pub(crate) trait Hosted: Sized {
    type Config;
    fn open(db: &mut dyn Database, config: &Self::Config, now_ms: u64) -> Result<Self, DatabaseError>;
    fn handle(&mut self, db: &mut dyn Database, now_ms: u64, request: host::Request<'_>) -> Result<Reply, DatabaseError>;
    fn alarm(&self) -> Option<u64>;
}

/// Runs `work` on the machine in one transaction. If anything fails the machine is dropped.
pub(crate) fn transact<N: Node, M: Hosted, T>(
    node: &mut N,
    kept: &mut Option<M>,
    config: &M::Config,
    work: impl FnOnce(&mut N, &mut M, u64) -> Result<(T, Effect), DatabaseError>,
) -> Result<(T, Effect), DatabaseError> {
    let now_ms = node.now_ms();
    node.begin()?;
    let outcome = (|| {
        let mut machine = match kept.take() {
            Some(machine) => machine,
            None => M::open(node, config, now_ms)?,
        };
        let (value, effect) = work(node, &mut machine, now_ms)?;
        node.commit(effect)?;
        *kept = Some(machine);
        Ok((value, effect))
    })();
    if outcome.is_err() {
        node.roll_back();
    }
    outcome
}

pub(crate) fn open_only<N: Node, M: Hosted>(node: &mut N, kept: &mut Option<M>, config: &M::Config) -> Result<(), DatabaseError> {
    // Durable, so that empty tables need not be made again.
    transact(node, kept, config, |_, _, _| Ok(((), Effect::Durable)))?;
    set_alarm(node, kept.as_ref());
    Ok(())
}

/// Answers one request; 403 if it comes from outside or from a caller that is not allowed.
pub(crate) fn answer<N: Node, M: Hosted>(
    node: &mut N,
    kept: &mut Option<M>,
    config: &M::Config,
    allow: &[&str],
    caller: Option<&Address>,
    request: &Request,
) -> Response {
    let Some(caller) = caller.filter(|caller| is_allowed(caller, allow)) else {
        return Response::problem(403, "forbidden", "only actors that are allowed to may ask this");
    };
    let (was_open, caller) = (kept.is_some(), caller.to_string());
    let asked = host::Request { path: request.path(), body: request.body(), caller: &caller };
    let replied = transact(node, kept, config, |node, machine, now_ms| {
        let reply = machine.handle(node, now_ms, asked)?;
        let effect = reply.effect;
        Ok((reply, effect))
    });
    match replied {
        Ok((reply, effect)) => {
            // An opening may have found that a new configuration wants another alarm.
            if !was_open || effect > Effect::Read {
                set_alarm(node, kept.as_ref());
            }
            Response::new(reply.status).with_header("content-type", "application/octet-stream").with_body(reply.body)
        }
        Err(error) => {
            let (status, kind) = failure(&error);
            Response::problem(status, kind, &error.to_string())
        }
    }
}

pub(crate) fn set_alarm<N: Node, M: Hosted>(node: &mut N, machine: Option<&M>) {
    node.set_alarm(machine.and_then(M::alarm));
}

/// The status and kind that say why a statement failed.
fn failure(error: &DatabaseError) -> (u16, &'static str) {
    match error {
        DatabaseError::Full => (507, "storage-full"),
        DatabaseError::TooLarge => (413, "too-large"),
        DatabaseError::Deadline => (504, "deadline"),
        DatabaseError::Other(_) => (500, "database"),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
pub(crate) fn event_error(error: DatabaseError) -> Error {
    let (status, kind) = failure(&error);
    Error::new(status, kind, error.to_string())
}
