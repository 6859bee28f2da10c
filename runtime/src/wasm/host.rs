//! Binds the imports of every world: ours to the actor's storage and hooks, wasi's to what a guest may have of it.
//!
//! wasi 0.2 is linked whole, so that ordinary toolchains' output runs; its sockets and file system refuse every call, because
//! no address and no directory is ever allowed.

use super::guest_log::Level;
use super::response::checked_request;
use super::state::HostState;
use super::types::{
    WitAddress, WitCallError, WitCallOptions, WitLevel, WitRequest, WitResponse, WitRows, WitStorageError, WitValue,
};
use send_wrapper::SendWrapper;
use std::cell::Cell;
use std::rc::Rc;
use wasmkeep_storage::{SqlError, Value};
use wasmtime::component::Linker;
use wasmtime::{Result, StoreContextMut};

type Store<'a> = StoreContextMut<'a, HostState>;

/// What a host function that may wait gives to wasmtime.
type Pending<'a, T> = Box<dyn Future<Output = Result<T>> + Send + 'a>;

/// All imports that a component may have.
pub(crate) fn link(linker: &mut Linker<HostState>) -> Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    link_storage(linker)?;
    link_alarms(linker)?;
    link_actors(linker)?;
    link_env(linker)?;
    link_log(linker)
}

/// Interfaces that are linked, without versions: what may be imported.
pub(crate) const INTERFACES: [&str; 6] = [
    "wasmkeep:actor/types",
    "wasmkeep:actor/storage",
    "wasmkeep:actor/alarms",
    "wasmkeep:actor/actors",
    "wasmkeep:actor/env",
    "wasmkeep:actor/log",
];

/// Packages of wasi 0.2 that are linked whole.
pub(crate) const WASI_PACKAGES: [&str; 7] =
    ["wasi:io/", "wasi:clocks/", "wasi:random/", "wasi:cli/", "wasi:filesystem/", "wasi:sockets/", "wasi:http/"];

fn link_storage(linker: &mut Linker<HostState>) -> Result<()> {
    let mut storage = linker.instance("wasmkeep:actor/storage@0.2.0")?;
    storage.func_wrap_async("exec", |store, params| exec(&store, params, false))?;
    storage.func_wrap_async("exec-durable", |store, params| exec(&store, params, true))?;
    storage.func_wrap_async("query", |store, params| query(&store, params))
}

type Statement = (String, Vec<WitValue>);

fn exec(store: &Store<'_>, (sql, params): Statement, durable: bool) -> Pending<'static, (Result<u64, WitStorageError>,)> {
    let local = &store.data().local;
    let (connection, meter, met_full) = (Rc::clone(&local.connection), Rc::clone(&local.meter), Rc::clone(&local.met_full));
    Box::new(SendWrapper::new(async move {
        let params = values(params);
        let result = meter.unmetered(connection.exec(&sql, &params, durable)).await;
        note_full(&met_full, &result);
        Ok((result.map_err(WitStorageError::from),))
    }))
}

fn query(store: &Store<'_>, (sql, params): Statement) -> Pending<'static, (Result<WitRows, WitStorageError>,)> {
    let local = &store.data().local;
    let (connection, meter, met_full) = (Rc::clone(&local.connection), Rc::clone(&local.meter), Rc::clone(&local.met_full));
    Box::new(SendWrapper::new(async move {
        let params = values(params);
        let result = meter.unmetered(connection.query(&sql, &params)).await;
        note_full(&met_full, &result);
        Ok((result.map(WitRows::from).map_err(WitStorageError::from),))
    }))
}

fn note_full<T>(met_full: &Cell<bool>, result: &std::result::Result<T, SqlError>) {
    if matches!(result, Err(SqlError::Full)) {
        met_full.set(true);
    }
}

fn values(params: Vec<WitValue>) -> Vec<Value> {
    params.into_iter().map(Value::from).collect()
}

fn link_alarms(linker: &mut Linker<HostState>) -> Result<()> {
    let mut alarms = linker.instance("wasmkeep:actor/alarms@0.2.0")?;
    alarms.func_wrap("set", |store: Store<'_>, (at_ms,): (u64,)| set_alarm(&store, Some(at_ms)))?;
    alarms.func_wrap("clear", |store: Store<'_>, ()| set_alarm(&store, None))?;
    alarms.func_wrap("get", |store: Store<'_>, ()| {
        let alarm = (store.data().local.hooks.get_alarm)();
        alarm.map(|at_ms| (at_ms,)).map_err(wasmtime::Error::msg)
    })
}

fn set_alarm(store: &Store<'_>, at_ms: Option<u64>) -> Result<()> {
    (store.data().local.hooks.set_alarm)(at_ms).map_err(wasmtime::Error::msg)
}

fn link_actors(linker: &mut Linker<HostState>) -> Result<()> {
    let mut actors = linker.instance("wasmkeep:actor/actors@0.2.0")?;
    actors.func_wrap_async("call", |store: Store<'_>, params| call(&store, params))
}

type CallParams = (WitAddress, WitRequest, WitCallOptions);

fn call(store: &Store<'_>, (target, request, options): CallParams) -> Pending<'static, (Result<WitResponse, WitCallError>,)> {
    let request = checked_request(request.into()).map_err(|why| wasmtime::format_err!("actors.call: the request: {why}"));
    let answer = request.map(|request| (store.data().local.hooks.call)(target.into(), request, options.timeout_ms));
    Box::new(SendWrapper::new(async move {
        let answer = answer?.await;
        Ok((answer.map(WitResponse::from).map_err(WitCallError::from),))
    }))
}

fn link_env(linker: &mut Linker<HostState>) -> Result<()> {
    let mut env = linker.instance("wasmkeep:actor/env@0.2.0")?;
    env.func_wrap("get", |store: Store<'_>, (name,): (String,)| Ok((store.data().local.env.get(&name).cloned(),)))?;
    env.func_wrap("self-address", |store: Store<'_>, ()| Ok((WitAddress::from(&store.data().local.address),)))?;
    env.func_wrap("caller", |store: Store<'_>, ()| Ok((store.data().local.caller.as_ref().map(WitAddress::from),)))
}

fn link_log(linker: &mut Linker<HostState>) -> Result<()> {
    let mut log = linker.instance("wasmkeep:actor/log@0.2.0")?;
    log.func_wrap("write", |store: Store<'_>, (level, message): (WitLevel, String)| {
        let level = match level {
            WitLevel::Trace => Level::TRACE,
            WitLevel::Debug => Level::DEBUG,
            WitLevel::Info => Level::INFO,
            WitLevel::Warn => Level::WARN,
            WitLevel::Error => Level::ERROR,
        };
        store.data().local.log.write(level, &message);
        Ok(())
    })
}
