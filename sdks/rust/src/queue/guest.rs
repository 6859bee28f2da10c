//! A queue class in a component: the state machine, hosted by the SDK.
//!
//! A delivery is two transactions: one that leases the batch, then the call, then one that settles it.

use super::config::Config;
use crate::actors::{Address, CallError};
use crate::hosted::{Hosted, Node, OwnDatabase, answer, event_error, open_only, set_alarm, transact};
use crate::{Actor, Error, Request, Response, env};
use core::marker::PhantomData;
use std::cell::RefCell;
use std::time::Duration;
use wasmkeep_classes::database::{Database, DatabaseError};
use wasmkeep_classes::host;
use wasmkeep_classes::queue::{self, Delivery, Machine};

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
    with_machine(|machine| open_only(&mut OwnDatabase, machine, &config.machine)).map_err(event_error)
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
    with_machine(|machine| answer(&mut OwnDatabase, machine, &config.machine, &allow, caller.as_ref(), request))
}

/// For an actor that is a queue and more: what its `alarm` does.
///
/// # Errors
/// As the database does. The alarm then comes again.
pub fn alarm(config: &Config) -> Result<(), Error> {
    with_machine(|machine| on_alarm(&mut OwnDatabase, machine, config)).map_err(event_error)
}

fn with_machine<T>(work: impl FnOnce(&mut Option<Machine>) -> T) -> T {
    MACHINE.with_borrow_mut(work)
}

impl Hosted for Machine {
    type Config = queue::Config;

    fn open(db: &mut dyn Database, config: &queue::Config, now_ms: u64) -> Result<Self, DatabaseError> {
        Self::open(db, config.clone(), now_ms)
    }

    fn handle(&mut self, db: &mut dyn Database, now_ms: u64, request: host::Request<'_>) -> Result<host::Reply, DatabaseError> {
        self.handle(db, now_ms, request)
    }

    fn alarm(&self) -> Option<u64> {
        self.alarm()
    }
}

pub(super) fn on_alarm<N: Node>(node: &mut N, kept: &mut Option<Machine>, config: &Config) -> Result<(), DatabaseError> {
    let (delivery, _) = transact(node, kept, &config.machine, |node, machine, now_ms| {
        let alarmed = machine.on_alarm(node, now_ms)?;
        Ok((alarmed.delivery, alarmed.effect))
    })?;
    if let Some(delivery) = delivery {
        let number = delivery.number;
        let result = deliver(node, config, delivery);
        transact(node, kept, &config.machine, |node, machine, now_ms| {
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
        Err(CallError::Busy | CallError::Unavailable) => Delivered::Withdrawn,
        Err(error) => Delivered::Failed(format!("calling the consumer: {error}")),
    }
}
