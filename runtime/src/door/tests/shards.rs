//! State machines in memory that take the place of cores.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, params_from_iter};
use wasmkeep_classes::database::{Database, DatabaseError, Param, Row};
use wasmkeep_classes::host::{self, Call};
use wasmkeep_classes::kv::{self, Phase, Shards, shard_name};
use wasmkeep_classes::queue;
use wasmkeep_storage::Address;

use crate::config::NativeConfig;
use crate::door::Book;
use crate::event::{Outcome, Problem, Request, Response};
use crate::http::Actors;

/// The classes that tests ask for.
pub(super) fn book(shards: u32) -> Book {
    let queue = queue::Config { ordering: true, ..queue::Config::default() };
    Book::new(&[NativeConfig::queue("mail", queue), NativeConfig::kv("kv", shards)])
}

/// Polls a future that never waits.
pub(super) fn run<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits for something"),
    }
}

enum Machine {
    Kv(kv::Machine),
    Queue(Box<queue::Machine>),
}

/// An actor for each address that is asked for.
#[derive(Clone, Default)]
pub(crate) struct Machines(Rc<Inner>);

#[derive(Default)]
struct Inner {
    actors: RefCell<HashMap<Address, (Memory, Machine)>>,
    /// Every request that came, by its path.
    seen: RefCell<Vec<String>>,
    /// What is answered instead, once, by an address.
    broken: RefCell<HashMap<Address, Problem>>,
    now_ms: Cell<u64>,
    /// What goes wrong after how many requests: all that follow are refused, or one reply is lost.
    stops: Cell<Option<(usize, bool)>>,
    has_stopped: Cell<bool>,
    /// With how many shards `kv` is configured.
    shards: Cell<Option<u32>>,
}

impl Machines {
    /// Machines of a class `kv` that is configured with so many shards.
    pub(crate) fn configured(shards: u32) -> Self {
        let machines = Self::default();
        machines.0.shards.set(Some(shards));
        machines
    }

    /// Lets time go by.
    pub(crate) fn pass(&self, ms: u64) {
        self.0.now_ms.set(self.0.now_ms.get() + ms);
    }

    pub(crate) fn seen(&self) -> Vec<String> {
        self.0.seen.take()
    }

    /// The next request to a shard ends so.
    pub(crate) fn fail(&self, shard: u32, problem: Problem) {
        self.0.broken.borrow_mut().insert(Address::new("kv", &shard_name(shard)), problem);
    }

    /// From the request after so many on, every one is refused, until [`Self::heal`].
    pub(crate) fn stop_after(&self, requests: usize) {
        self.0.stops.set(Some((requests, false)));
    }

    /// The reply to the request after so many gets lost.
    pub(crate) fn lose_reply_after(&self, requests: usize) {
        self.0.stops.set(Some((requests, true)));
    }

    /// All is well again; whether anything had gone wrong as it was told to.
    pub(crate) fn heal(&self) -> bool {
        self.0.stops.take();
        self.0.has_stopped.take()
    }

    /// An operator's call to a shard.
    pub(crate) fn operate(&self, shard: u32, call: &Call) {
        assert_eq!(self.call("kv", shard, call, "_operator/test").status, 200);
    }

    /// A call to a shard by this caller.
    pub(crate) fn call(&self, class: &str, shard: u32, call: &Call, caller: &str) -> host::Reply {
        self.handle(&Address::new(class, &shard_name(shard)), call.path, &call.body, caller)
    }

    pub(crate) fn set(&self, shard: u32, phase: Phase, shards: u32) {
        let call = kv::client::set_layout(phase, Shards::new(shards).expect("is valid")).expect("is valid");
        self.operate(shard, &call);
    }

    fn handle(&self, address: &Address, path: &str, body: &[u8], caller: &str) -> host::Reply {
        let now_ms = 1_000_000 + self.0.now_ms.get();
        let mut actors = self.0.actors.borrow_mut();
        let (memory, machine) = actors.entry(address.clone()).or_insert_with(|| {
            let mut memory = Memory(Connection::open_in_memory().expect("opens"));
            let machine = if &*address.class != "mail" {
                let shards = self.0.shards.get().filter(|_| &*address.class == "kv");
                let config = kv::Config { shards, ..kv::Config::default() };
                Machine::Kv(kv::Machine::open(&mut memory, config, now_ms).expect("opens"))
            } else {
                let config = queue::Config { ordering: true, ..queue::Config::default() };
                Machine::Queue(Box::new(queue::Machine::open(&mut memory, config, now_ms).expect("opens")))
            };
            (memory, machine)
        });
        let request = host::Request { path, body, caller };
        match machine {
            Machine::Kv(machine) => machine.handle(memory, now_ms, request).expect("no statement fails"),
            Machine::Queue(machine) => machine.handle(memory, now_ms, request).expect("no statement fails"),
        }
    }
}

impl Actors for Machines {
    fn request(&self, caller: Option<Address>, address: Address, request: Request) -> impl Future<Output = Outcome> + 'static {
        self.0.seen.borrow_mut().push(request.path.clone());
        let stop = self.0.stops.get().map(|(left, loses)| {
            let is_once = left == 0 && loses;
            self.0.stops.set((!is_once).then_some((left.saturating_sub(1), loses)));
            self.0.has_stopped.set(left == 0);
            (left == 0, loses)
        });
        let outcome = match (self.0.broken.borrow_mut().remove(&address), stop) {
            (Some(problem), _) => Outcome::Problem(problem),
            (None, Some((true, false))) => Outcome::Problem(Problem::Draining),
            (None, _) => {
                let caller = caller.expect("the door says who calls").to_string();
                let reply = self.handle(&address, &request.path, &request.body, &caller);
                if stop == Some((true, true)) {
                    Outcome::Problem(Problem::UnknownOutcome)
                } else {
                    Outcome::Response(Response { status: reply.status, headers: Vec::new(), body: reply.body.into() })
                }
            }
        };
        std::future::ready(outcome)
    }
}

struct Memory(Connection);

struct Bound<'a>(Param<'a>);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Param::Null => ValueRef::Null,
            Param::Integer(value) => ValueRef::Integer(value),
            Param::Text(value) => ValueRef::Text(value.as_bytes()),
            Param::Blob(value) => ValueRef::Blob(value),
        }))
    }
}

struct Columns<'a, 's>(&'a rusqlite::Row<'s>);

impl Row for Columns<'_, '_> {
    fn integer(&self, column: usize) -> i64 {
        self.integer_or_null(column).unwrap_or(0)
    }

    fn integer_or_null(&self, column: usize) -> Option<i64> {
        self.0.get_ref(column).ok()?.as_i64().ok()
    }

    fn bytes(&self, column: usize) -> &[u8] {
        self.0.get_ref(column).ok().and_then(|value| value.as_bytes().ok()).unwrap_or_default()
    }

    fn text_or_null(&self, column: usize) -> Option<&str> {
        self.0.get_ref(column).ok()?.as_str().ok()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn words(error: rusqlite::Error) -> DatabaseError {
    DatabaseError::Other(error.to_string())
}

impl Database for Memory {
    fn execute(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<u64, DatabaseError> {
        let mut statement = self.0.prepare_cached(sql).map_err(words)?;
        let changed = statement.execute(params_from_iter(params.iter().map(|param| Bound(*param)))).map_err(words)?;
        Ok(changed as u64)
    }

    fn query(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
        each: &mut dyn FnMut(&dyn Row) -> bool,
    ) -> Result<(), DatabaseError> {
        let mut statement = self.0.prepare_cached(sql).map_err(words)?;
        let mut rows = statement.query(params_from_iter(params.iter().map(|param| Bound(*param)))).map_err(words)?;
        while let Some(row) = rows.next().map_err(words)? {
            if !each(&Columns(row)) {
                break;
            }
        }
        Ok(())
    }
}
