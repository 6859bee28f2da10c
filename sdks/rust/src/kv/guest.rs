//! A key-value class in a component: the state machine of a shard, hosted by the SDK.

use crate::hosted::{Hosted, Node, OwnDatabase, answer, event_error, open_only, set_alarm, transact};
use crate::{Actor, Error, Request, Response, env};
use std::cell::RefCell;
use wasmkeep_classes::database::{Database, DatabaseError};
use wasmkeep_classes::host;
use wasmkeep_classes::kv::{self, Machine};

thread_local! {
    /// A component's instance is one actor, so one machine.
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

/// Makes this component a key-value class: its actors `shard-0`, `shard-1` and so on keep keys for any actor of the application.
/// Use it once, in the root of a `cdylib` crate; it needs nothing else.
///
/// ```no_run
/// wasmkeep_sdk::kv_class!();
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! kv_class {
    () => {
        $crate::export!($crate::kv::Shard);
    };
}

/// The actor that is a shard. Mostly exported by [`kv_class!`](crate::kv_class).
#[derive(Debug)]
pub struct Shard;

impl Actor for Shard {
    fn init() -> Result<(), Error> {
        init()
    }

    fn request(request: Request) -> Result<Response, Error> {
        Ok(handle(&request))
    }

    fn alarm(_attempt: u32) -> Result<(), Error> {
        alarm()
    }
}

impl Hosted for Machine {
    type Config = kv::Config;

    fn open(db: &mut dyn Database, config: &kv::Config, now_ms: u64) -> Result<Self, DatabaseError> {
        Self::open(db, *config, now_ms)
    }

    fn handle(&mut self, db: &mut dyn Database, now_ms: u64, request: host::Request<'_>) -> Result<host::Reply, DatabaseError> {
        self.handle(db, now_ms, request)
    }

    fn alarm(&self) -> Option<u64> {
        self.alarm()
    }
}

/// For an actor that is a shard and more: what its `init` does. It owns the actor's alarm and the tables `wasmkeep_kv*`.
///
/// # Errors
/// As the database does.
pub fn init() -> Result<(), Error> {
    let config = kv::Config::default();
    MACHINE.with_borrow_mut(|machine| open_only(&mut OwnDatabase, machine, &config)).map_err(event_error)
}

/// For an actor that is a shard and more: answers a request of a client. A request from outside is answered 403.
pub fn handle(request: &Request) -> Response {
    handle_allowing(request, &[])
}

/// Like [`handle`], for these callers alone, each a `class` or a `class/name`; none: every actor of the application.
pub fn handle_allowing(request: &Request, allow: &[&str]) -> Response {
    let (config, caller) = (kv::Config::default(), env::caller());
    MACHINE.with_borrow_mut(|machine| answer(&mut OwnDatabase, machine, &config, allow, caller.as_ref(), request))
}

/// For an actor that is a shard and more: what its `alarm` does, deleting keys whose time is over.
///
/// # Errors
/// As the database does. The alarm then comes again.
pub fn alarm() -> Result<(), Error> {
    MACHINE.with_borrow_mut(|machine| on_alarm(&mut OwnDatabase, machine, &kv::Config::default())).map_err(event_error)
}

pub(super) fn on_alarm<N: Node>(node: &mut N, kept: &mut Option<Machine>, config: &kv::Config) -> Result<(), DatabaseError> {
    transact(node, kept, config, |node, machine, now_ms| Ok(((), machine.on_alarm(node, now_ms)?.effect)))?;
    set_alarm(node, kept.as_ref());
    Ok(())
}
