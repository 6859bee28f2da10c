//! Calls from one actor to another.
//!
//! On one core a call is an event like any other that carries what its caller had seen, and its reply carries what the callee had
//! seen: one log, one order, so neither waits for the disk. A call to another core is an output: it leaves when what the caller
//! had seen is durable. An actor that waits for an event anywhere in the chain cannot be called from it.

use std::rc::{Rc, Weak};
use std::time::Duration;

use wasmkeep_storage::{Address, Positions};

use super::actor::Actor;
use super::reply::{ReplyTo, Slot, Wait};
use super::wake::{Event, Wake, Work};
use super::{Core, alarms};
use crate::config::check_actor_name;
use crate::event::{Outcome, Problem, Request, Response};
use crate::wasm::{CallError, Hooks};

/// What an actor's instance may ask of its core.
pub(super) fn hooks(core: &Rc<Core>, actor: &Rc<Actor>) -> Hooks {
    let (set_alarm, get_alarm) = alarms::hooks(actor);
    let (core, actor) = (Rc::downgrade(core), Rc::downgrade(actor));
    Hooks {
        set_alarm,
        get_alarm,
        call: Box::new(move |address, request, timeout_ms| {
            Box::pin(call(core.clone(), actor.clone(), address, request, timeout_ms))
        }),
    }
}

async fn call(
    core: Weak<Core>,
    actor: Weak<Actor>,
    address: Address,
    request: Request,
    timeout_ms: Option<u64>,
) -> Result<Response, CallError> {
    let (Some(core), Some(actor)) = (core.upgrade(), actor.upgrade()) else { return Err(CallError::Unavailable) };
    let mut chain = actor.chain.borrow().clone();
    chain.push(actor.address.clone());
    call_from(&core, &actor, address, request, chain, timeout_ms).await
}

/// A call of `actor`'s, for which everybody in `chain` waits.
pub(super) async fn call_from(
    core: &Rc<Core>,
    actor: &Rc<Actor>,
    address: Address,
    request: Request,
    chain: Vec<Address>,
    timeout_ms: Option<u64>,
) -> Result<Response, CallError> {
    if !core.classes.contains_key(&address.class) || check_actor_name(&address.name).is_err() {
        return Err(CallError::NoSuchClass);
    }
    if chain.contains(&address) {
        return Err(CallError::ReEntry);
    }
    let wall = core.config.budgets.event_wall;
    let timeout = timeout_ms.map_or(wall, |ms| wall.min(Duration::from_millis(ms)));
    let answer = async {
        if core.core_of(&address) == core.index {
            call_here(core, actor, address, request, chain, timeout).await
        } else {
            call_there(core, actor, address, request, chain).await
        }
    };
    match tokio::time::timeout(timeout, answer).await {
        Ok(outcome) => result(outcome),
        Err(_) => Err(CallError::Timeout),
    }
}

async fn call_here(
    core: &Rc<Core>,
    actor: &Actor,
    address: Address,
    request: Request,
    chain: Vec<Address>,
    timeout: Duration,
) -> Outcome {
    let slot: Rc<Slot<(Outcome, Positions)>> = Slot::new();
    let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    core.submit(Wake::Event(Box::new(Event {
        address,
        work: Work::Request(request),
        caller: Some(actor.address.clone()),
        chain,
        positions: actor.positions(),
        deadline_ns: core.now_ns().saturating_add(timeout_ns),
        reply: ReplyTo::Caller(Rc::clone(&slot)),
    })));
    let (outcome, seen) = Wait(slot).await;
    if core.is_lost(seen) {
        // A group failed while the answer was on its way: its sender is broken, and we must not be told what it had seen.
        return Outcome::Problem(Problem::UnknownOutcome);
    }
    actor.absorb(seen);
    outcome
}

async fn call_there(core: &Rc<Core>, actor: &Actor, address: Address, request: Request, chain: Vec<Address>) -> Outcome {
    core.want_turn();
    if core.store.durable_at(actor.positions().gate).await.is_err() {
        return Outcome::Problem(Problem::Unavailable("what the call depends on was lost".into()));
    }
    core.request_remote(address, request, Some(actor.address.clone()), chain).await
}

/// What a guest gets for an outcome. A callee that failed has answered: with its problem.
fn result(outcome: Outcome) -> Result<Response, CallError> {
    match outcome {
        Outcome::Response(response) => Ok(response),
        Outcome::Problem(problem) => match problem {
            Problem::UnknownClass(_) | Problem::BadAddress(_) => Err(CallError::NoSuchClass),
            Problem::Forbidden(_) => Err(CallError::Forbidden),
            Problem::MailboxFull => Err(CallError::Busy),
            Problem::Deadline => Err(CallError::Timeout),
            Problem::UnknownOutcome => Err(CallError::UnknownOutcome),
            Problem::Unavailable(_) | Problem::Draining => Err(CallError::Unavailable),
            Problem::Trap(_) | Problem::TooLarge(_) | Problem::StorageFull => Ok(Response {
                status: problem.status(),
                headers: vec![("content-type".into(), b"application/problem+json".to_vec())],
                body: problem.to_json().into(),
            }),
        },
    }
}
