//! What a queue asks of the node, and the actor's own database as the state machine sees it. The machine's logic stands in
//! `guest`; nothing here decides anything.

use crate::actors::{self, Address, CallError};
use crate::{Request, Response, alarm, db};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wasmkeep_classes::database::{Database, DatabaseError, Param, Row};
use wasmkeep_classes::host::Effect;

/// What a queue asks of the node, so that its logic runs in tests as well.
pub(super) trait Node: Database {
    fn now_ms(&mut self) -> u64;
    fn begin(&mut self) -> Result<(), DatabaseError>;
    /// Commits; durably if that is the effect.
    fn commit(&mut self, effect: Effect) -> Result<(), DatabaseError>;
    fn roll_back(&mut self);
    fn set_alarm(&mut self, at_ms: Option<u64>);
    fn call(&mut self, target: &Address, request: &Request, timeout: Duration) -> Result<Response, CallError>;
}

/// The actor's own database and the node it runs on.
pub(super) struct OwnDatabase;

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
pub(super) struct Values<'a>(pub(super) &'a [db::Value]);

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

pub(super) fn values(params: &[Param<'_>]) -> Vec<db::Value> {
    let value = |param: &Param<'_>| match *param {
        Param::Null => db::Value::Null,
        Param::Integer(value) => db::Value::Integer(value),
        Param::Text(text) => db::Value::Text(text.to_owned()),
        Param::Blob(bytes) => db::Value::Blob(bytes.to_vec()),
    };
    params.iter().map(value).collect()
}

pub(super) fn database_error(error: db::Error) -> DatabaseError {
    match error {
        db::Error::Full => DatabaseError::Full,
        db::Error::TooLarge => DatabaseError::TooLarge,
        db::Error::Deadline => DatabaseError::Deadline,
        other => DatabaseError::Other(other.to_string()),
    }
}

/// The time, ms since 1970.
#[allow(clippy::disallowed_methods, reason = "inside a guest this asks the node, whose clock is the injected one")]
pub(super) fn now_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a caller is one of `allow`, each a `class` or a `class/name`; without any, all are allowed.
pub(super) fn is_allowed<A: AsRef<str>>(caller: &Address, allow: &[A]) -> bool {
    let is_caller = |allowed: &A| match allowed.as_ref().split_once('/') {
        Some((class, name)) => class == caller.class && name == caller.name,
        None => allowed.as_ref() == caller.class,
    };
    allow.is_empty() || allow.iter().any(is_caller)
}
