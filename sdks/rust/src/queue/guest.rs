//! A queue class in a component: the state machine, hosted by the SDK.
//!
//! One event is one transaction, a delivery is two: one that leases the batch, then the call, then one that settles it. The
//! machine in memory always stands for what is committed: whatever fails drops it, and the next event reads it anew from the
//! tables.

use super::config::Config;
use super::node::{Node, OwnDatabase, is_allowed};
use crate::actors::{Address, CallError};
use crate::{Actor, Error, Request, Response, env};
use core::marker::PhantomData;
use std::cell::RefCell;
use std::time::Duration;
use wasmkeep_classes::database::DatabaseError;
use wasmkeep_classes::host::{self, Effect};
use wasmkeep_classes::queue::{Delivery, Machine};

/// How long a delivery waits that the node did not take, as when it is about to stop.
const WITHDRAWN_MS: u64 = 1_000;

thread_local! {
    /// A component's instance is one actor, so one machine.
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

/// Makes this component a queue class: every actor of it is a queue, and behaves as the expression of type
/// [`queue::Config`](crate::queue::Config) says, which may read [`env::get`](crate::env::get). Use it once, in the root of a
/// `cdylib` crate; it needs nothing else.
///
/// ```no_run
/// use wasmkeep_sdk::queue::Config;
///
/// wasmkeep_sdk::queue_class!(Config::new().consumer("mailer/main").max_attempts(3));
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! queue_class {
    ($config:expr) => {
        const _: () = {
            struct Settings;
            impl $crate::queue::Configure for Settings {
                fn config() -> $crate::queue::Config {
                    $config
                }
            }
            $crate::export!($crate::queue::Queue<Settings>);
        };
    };
}

/// How the queues of a class behave. Mostly written by [`queue_class!`](crate::queue_class).
pub trait Configure: 'static {
    /// Called for every event, so let it be cheap.
    fn config() -> Config;
}

/// The actor that is a queue. Mostly exported by [`queue_class!`](crate::queue_class).
#[derive(Debug)]
pub struct Queue<C>(PhantomData<C>);

impl<C: Configure> Actor for Queue<C> {
    fn init() -> Result<(), Error> {
        init(&C::config())
    }

    fn request(request: Request) -> Result<Response, Error> {
        Ok(handle(&request, &C::config()))
    }

    fn alarm(_attempt: u32) -> Result<(), Error> {
        alarm(&C::config())
    }
}

/// For an actor that is a queue and more: what its `init` does. It owns the actor's alarm and the tables `wasmkeep_queue*`.
///
/// # Errors
/// A configuration that is out of range; as the database does.
pub fn init(config: &Config) -> Result<(), Error> {
    config.check().map_err(Error::internal)?;
    with_machine(|machine| open_only(&mut OwnDatabase, machine, config)).map_err(|error| event_error(&error))
}

/// For an actor that is a queue and more: answers a request of a queue's client. A request from outside is answered 403.
pub fn handle(request: &Request, config: &Config) -> Response {
    handle_allowing(request, config, &[])
}

/// Like [`handle`], for these callers alone, each a `class` or a `class/name`, in addition to what the configuration allows;
/// none in both: every actor of the application.
pub fn handle_allowing(request: &Request, config: &Config, allow: &[&str]) -> Response {
    let allow: Vec<&str> = config.allow.iter().map(String::as_str).chain(allow.iter().copied()).collect();
    let caller = env::caller();
    with_machine(|machine| answer(&mut OwnDatabase, machine, config, &allow, caller.as_ref(), request))
}

/// For an actor that is a queue and more: what its `alarm` does.
///
/// # Errors
/// As the database does. The alarm then comes again.
pub fn alarm(config: &Config) -> Result<(), Error> {
    with_machine(|machine| on_alarm(&mut OwnDatabase, machine, config)).map_err(|error| event_error(&error))
}

fn with_machine<T>(work: impl FnOnce(&mut Option<Machine>) -> T) -> T {
    MACHINE.with_borrow_mut(work)
}

/// Runs `work` on the machine in one transaction. If anything fails the machine is dropped.
fn transact<N: Node, T>(
    node: &mut N,
    kept: &mut Option<Machine>,
    config: &Config,
    work: impl FnOnce(&mut N, &mut Machine, u64) -> Result<(T, Effect), DatabaseError>,
) -> Result<(T, Effect), DatabaseError> {
    let now_ms = node.now_ms();
    node.begin()?;
    let outcome = (|| {
        let mut machine = match kept.take() {
            Some(machine) => machine,
            None => Machine::open(node, config.machine.clone(), now_ms)?,
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

pub(super) fn open_only<N: Node>(node: &mut N, kept: &mut Option<Machine>, config: &Config) -> Result<(), DatabaseError> {
    // Durable, so that the tables of an empty queue need not be made again.
    transact(node, kept, config, |_, _, _| Ok(((), Effect::Durable)))?;
    set_alarm(node, kept.as_ref());
    Ok(())
}

pub(super) fn answer<N: Node>(
    node: &mut N,
    kept: &mut Option<Machine>,
    config: &Config,
    allow: &[&str],
    caller: Option<&Address>,
    request: &Request,
) -> Response {
    let Some(caller) = caller.filter(|caller| is_allowed(caller, allow)) else {
        return Response::problem(403, "forbidden", "queues answer actors that may use them");
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
            let kind = if reply.status == 200 { "application/octet-stream" } else { "text/plain; charset=utf-8" };
            Response::new(reply.status).with_header("content-type", kind).with_body(reply.body)
        }
        Err(error) => {
            let (status, kind) = failure(&error);
            Response::problem(status, kind, &error.to_string())
        }
    }
}

pub(super) fn on_alarm<N: Node>(node: &mut N, kept: &mut Option<Machine>, config: &Config) -> Result<(), DatabaseError> {
    let (delivery, _) = transact(node, kept, config, |node, machine, now_ms| {
        let alarmed = machine.on_alarm(node, now_ms)?;
        Ok((alarmed.delivery, alarmed.effect))
    })?;
    if let Some(delivery) = delivery {
        let number = delivery.number;
        let result = deliver(node, config, delivery);
        transact(node, kept, config, |node, machine, now_ms| {
            let effect = match &result {
                Delivered::Answer(body) => machine.delivered(node, now_ms, number, Ok(body))?,
                Delivered::Failed(why) => machine.delivered(node, now_ms, number, Err(why))?,
                Delivered::Withdrawn => machine.withdraw(node, now_ms, number, WITHDRAWN_MS)?,
            };
            Ok(((), effect))
        })?;
    }
    set_alarm(node, kept.as_ref());
    Ok(())
}

/// How a delivery ended.
enum Delivered {
    Answer(Vec<u8>),
    Failed(String),
    /// It certainly did not reach the consumer, and not for the consumer's fault.
    Withdrawn,
}

fn deliver<N: Node>(node: &mut N, config: &Config, delivery: Delivery) -> Delivered {
    let (class, name) = delivery.consumer.split_once('/').unwrap_or((&delivery.consumer, ""));
    let request = Request::post(format!("/{}", delivery.path)).with_body(delivery.body);
    // Longer than the leases it would bring answers that are stale.
    let timeout = config.delivery_timeout.min(Duration::from_millis(config.machine.visibility_ms));
    match node.call(&Address::new(class, name), &request, timeout) {
        Ok(answer) if answer.status() == 200 => Delivered::Answer(answer.body().to_vec()),
        Ok(answer) => {
            let words = String::from_utf8_lossy(answer.body());
            Delivered::Failed(format!("the consumer answered {}: {words}", answer.status()))
        }
        Err(CallError::Unavailable) => Delivered::Withdrawn,
        Err(error) => Delivered::Failed(format!("calling the consumer: {error}")),
    }
}

fn set_alarm<N: Node>(node: &mut N, machine: Option<&Machine>) {
    node.set_alarm(machine.and_then(Machine::alarm));
}

/// The status and kind that say why a statement failed.
pub(super) fn failure(error: &DatabaseError) -> (u16, &'static str) {
    match error {
        DatabaseError::Full => (507, "storage-full"),
        DatabaseError::TooLarge => (413, "too-large"),
        DatabaseError::Deadline => (504, "deadline"),
        DatabaseError::Other(_) => (500, "database"),
    }
}

fn event_error(error: &DatabaseError) -> Error {
    let (status, kind) = failure(error);
    Error::new(status, kind, error.to_string())
}
