//! The records of `wasmkeep:actor@0.2.0` as they cross into and out of guests, written by hand because generated bindings
//! cost minutes of build time. A field here is a field there, in the same order: the names are checked when a component is
//! linked.

use super::hooks::CallError;
use crate::event;
use bytes::Bytes;
use wasmkeep_storage::{Address, Rows, SqlError, Value};
use wasmtime::component::{ComponentType, Lift, Lower};

/// `types.header`
#[derive(ComponentType, Lift, Lower)]
#[component(record)]
pub(crate) struct WitHeader {
    name: String,
    value: Vec<u8>,
}

/// `types.request`
#[derive(ComponentType, Lift, Lower)]
#[component(record)]
pub(crate) struct WitRequest {
    method: String,
    path: String,
    headers: Vec<WitHeader>,
    body: Vec<u8>,
}

/// `types.response`
#[derive(ComponentType, Lift, Lower)]
#[component(record)]
pub(crate) struct WitResponse {
    status: u16,
    headers: Vec<WitHeader>,
    body: Vec<u8>,
}

/// `types.address`
#[derive(ComponentType, Lift, Lower)]
#[component(record)]
pub(crate) struct WitAddress {
    class: String,
    name: String,
}

/// `storage.value`
#[derive(ComponentType, Lift, Lower)]
#[component(variant)]
pub(crate) enum WitValue {
    #[component(name = "null")]
    Null,
    #[component(name = "integer")]
    Integer(i64),
    #[component(name = "real")]
    Real(f64),
    #[component(name = "text")]
    Text(String),
    #[component(name = "blob")]
    Blob(Vec<u8>),
}

/// `storage.sql-failure`
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct WitSqlFailure {
    code: i32,
    message: String,
}

/// `storage.error`
#[derive(ComponentType, Lower)]
#[component(variant)]
pub(crate) enum WitStorageError {
    #[component(name = "sql")]
    Sql(WitSqlFailure),
    #[component(name = "not-allowed")]
    NotAllowed(String),
    #[component(name = "too-large")]
    TooLarge,
    #[component(name = "full")]
    Full,
    #[component(name = "deadline")]
    Deadline,
}

/// `storage.rows`
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct WitRows {
    columns: Vec<String>,
    values: Vec<WitValue>,
}

/// `actors.call-options`
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct WitCallOptions {
    #[component(name = "timeout-ms")]
    pub(crate) timeout_ms: Option<u64>,
}

/// `actors.call-error`
#[derive(ComponentType, Lower, Clone, Copy)]
#[component(enum)]
#[repr(u8)]
pub(crate) enum WitCallError {
    #[component(name = "no-such-class")]
    NoSuchClass,
    #[component(name = "forbidden")]
    Forbidden,
    #[component(name = "re-entry")]
    ReEntry,
    #[component(name = "busy")]
    Busy,
    #[component(name = "timeout")]
    Timeout,
    #[component(name = "unavailable")]
    Unavailable,
    #[component(name = "unknown-outcome")]
    UnknownOutcome,
}

/// `log.level`
#[derive(ComponentType, Lift, Clone, Copy)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "made by wasmtime from the guest's number")]
pub(crate) enum WitLevel {
    #[component(name = "trace")]
    Trace,
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
}

impl From<event::Request> for WitRequest {
    fn from(request: event::Request) -> Self {
        let event::Request { method, path, headers, body } = request;
        Self { method, path, headers: headers_in(headers), body: body.into() }
    }
}

impl From<WitRequest> for event::Request {
    fn from(request: WitRequest) -> Self {
        let WitRequest { method, path, headers, body } = request;
        Self { method, path, headers: headers_out(headers), body: Bytes::from(body) }
    }
}

impl From<event::Response> for WitResponse {
    fn from(response: event::Response) -> Self {
        let event::Response { status, headers, body } = response;
        Self { status, headers: headers_in(headers), body: body.into() }
    }
}

impl From<WitResponse> for event::Response {
    fn from(response: WitResponse) -> Self {
        let WitResponse { status, headers, body } = response;
        Self { status, headers: headers_out(headers), body: Bytes::from(body) }
    }
}

fn headers_in(headers: Vec<(String, Vec<u8>)>) -> Vec<WitHeader> {
    headers.into_iter().map(|(name, value)| WitHeader { name, value }).collect()
}

fn headers_out(headers: Vec<WitHeader>) -> Vec<(String, Vec<u8>)> {
    headers.into_iter().map(|header| (header.name, header.value)).collect()
}

impl From<&Address> for WitAddress {
    fn from(address: &Address) -> Self {
        Self { class: address.class.to_string(), name: address.name.to_string() }
    }
}

impl From<WitAddress> for Address {
    fn from(address: WitAddress) -> Self {
        Self { class: address.class.into(), name: address.name.into() }
    }
}

impl From<WitValue> for Value {
    fn from(value: WitValue) -> Self {
        match value {
            WitValue::Null => Self::Null,
            WitValue::Integer(integer) => Self::Integer(integer),
            WitValue::Real(real) => Self::Real(real),
            WitValue::Text(text) => Self::Text(text),
            WitValue::Blob(blob) => Self::Blob(blob),
        }
    }
}

impl From<Value> for WitValue {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Integer(integer) => Self::Integer(integer),
            Value::Real(real) => Self::Real(real),
            Value::Text(text) => Self::Text(text),
            Value::Blob(blob) => Self::Blob(blob),
        }
    }
}

impl From<Rows> for WitRows {
    fn from(rows: Rows) -> Self {
        Self { columns: rows.columns, values: rows.values.into_iter().map(WitValue::from).collect() }
    }
}

/// SQLite's code for an I/O error: what a statement ended with when the journal took no write.
const SQLITE_IOERR: i32 = 10;

impl From<SqlError> for WitStorageError {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Sql { code, message } => Self::Sql(WitSqlFailure { code, message }),
            SqlError::NotAllowed(what) => Self::NotAllowed(what),
            SqlError::TooLarge(_) => Self::TooLarge,
            SqlError::Full => Self::Full,
            SqlError::Deadline => Self::Deadline,
            SqlError::Unavailable => Self::Sql(WitSqlFailure { code: SQLITE_IOERR, message: error.to_string() }),
        }
    }
}

impl From<CallError> for WitCallError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NoSuchClass => Self::NoSuchClass,
            CallError::Forbidden => Self::Forbidden,
            CallError::ReEntry => Self::ReEntry,
            CallError::Busy => Self::Busy,
            CallError::Timeout => Self::Timeout,
            CallError::Unavailable => Self::Unavailable,
            CallError::UnknownOutcome => Self::UnknownOutcome,
        }
    }
}
