//! A native actor awake: it takes what waits, does it in one transaction, and if it is a queue lets deliveries go and takes their
//! ends.
//!
//! A delivery does not hold its queue: it goes on taking requests while batches are out. For that reason a queue stands in no
//! call's chain, and whoever handles a batch may send to the queue it came from.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_util::Stream;
use futures_util::stream::FuturesUnordered;
use wasmkeep_classes::database::DatabaseError;
use wasmkeep_classes::host::{Effect, Reply};
use wasmkeep_classes::queue::Delivery;
use wasmkeep_storage::store::Opened;
use wasmkeep_storage::{Address, Positions};

use super::batch::{self, Batch, Done, End, Failed, Item};
use super::database::{Tables, database_error};
use super::machine::Machine;
use super::{Native, problem};
use crate::core::actor::{self, Actor, Ended, Stop};
use crate::core::reply::ReplyTo;
use crate::core::wake::{Event, Work};
use crate::core::{Core, alarms, calls, operator, seconds};
use crate::event::{Outcome, Problem, Request, Response};
use crate::limits::{ALARM_RETRY_MS_MIN, NATIVE_BATCH_BYTES_MAX, NATIVE_BATCH_MAX};
use crate::metrics::{EventEnd, EventKind};
use crate::wasm::CallError;

/// What stands for a component's version in a native actor's facts. Its tables are made anew at every opening if they are missing.
const VERSION: u128 = 1;

/// A delivery on its way, until it is known how it ended.
type Underway = Pin<Box<dyn Future<Output = (u64, End)>>>;

/// What a task holds while its actor is awake. Deliveries go first.
pub(in crate::core) struct Awake {
    deliveries: FuturesUnordered<Underway>,
    /// Taken, but left by the last batch.
    left: Waiting,
    machine: Machine,
    opened: Opened,
    /// When the leases of the newest delivery run out.
    leased_until_ms: u64,
}

/// What waits for the actor.
#[derive(Default)]
struct Waiting {
    items: Vec<Item>,
    /// Who waits for each item; nobody for the end of a delivery.
    askers: Vec<Option<Asker>>,
}

struct Asker {
    reply: ReplyTo,
    kind: EventKind,
}

/// Why a transaction gave nothing.
enum Lost {
    Stopped(Stop),
    Failed(Failed),
}

/// Brings a native actor from its files into memory.
pub(in crate::core) async fn wake(core: &Rc<Core>, actor: &Rc<Actor>, native: &Native) -> Result<Awake, Problem> {
    let started_ns = core.now_ns();
    let opened = actor::open(core, actor).await?;
    let connection = Rc::clone(&opened.connection);
    let (kind, now_ms) = (native.kind().clone(), core.clock.wall_ms());
    actor.begin_running(core);
    let ran = actor.until_stopped(connection.run(|db| {
        db.begin().map_err(database_error)?;
        let machine = Machine::open(&mut Tables(db), &kind, now_ms)?;
        db.commit(false).map_err(database_error)?;
        Ok(machine)
    }));
    let ran = ran.await;
    actor.end_running(core);
    connection.end_event();
    let machine = match ran {
        Ok(Ok(Ok(machine))) => machine,
        Ok(Ok(Err(error))) => return Err(failed(actor, error)),
        Ok(Err(error)) => return Err(failed(actor, database_error(error))),
        Err(Stop::Broken) => return Err(Problem::Unavailable("the journal failed; try again".into())),
        Err(Stop::Deadline | Stop::Hibernate) => return Err(Problem::Deadline),
    };
    // That it was opened is what makes it one of the node's actors.
    if actor.meta.get().init_version != VERSION
        && let Err(refused) = alarms::initialised(core, actor, VERSION)
    {
        tracing::debug!(actor = %actor.address, %refused, "that a native actor was opened could not be recorded");
    }
    core.store.end_run();
    core.want_turn();
    actor.list(core);
    actor.class.metrics.wake_seconds.record(seconds(core.now_ns() - started_ns));
    Ok(Awake { deliveries: FuturesUnordered::new(), left: Waiting::default(), machine, opened, leased_until_ms: 0 })
}

/// Works until the actor is to sleep or its memory is not to be trusted.
pub(in crate::core) async fn be_awake(core: &Rc<Core>, actor: &Rc<Actor>, mut awake: Awake) -> Ended {
    let ended = loop {
        let next = std::future::poll_fn(|cx| awake.poll_waiting(actor, cx)).await;
        let ended = match next {
            Ok(Next::Work(waiting)) => with_room(core, actor, &mut awake, waiting).await,
            Ok(Next::Sql(event)) => run_sql(core, actor, &awake, *event).await,
            Err(Stop::Broken) => Some(Ended::Broken),
            Err(Stop::Hibernate | Stop::Deadline) => Some(Ended::Hibernated),
        };
        actor.out.set(awake.deliveries.len());
        if let Some(ended) = ended {
            break ended;
        }
    };
    actor.out.set(0);
    ended
}

enum Next {
    Work(Waiting),
    /// The operator's statement, which is run alone.
    Sql(Box<Event>),
}

impl Awake {
    /// Everything that waits, as far as one transaction takes it.
    fn poll_waiting(&mut self, actor: &Actor, cx: &mut Context<'_>) -> Poll<Result<Next, Stop>> {
        if !self.left.items.is_empty() {
            return Poll::Ready(Ok(Next::Work(std::mem::take(&mut self.left))));
        }
        let mut waiting = Waiting::default();
        while let Poll::Ready(Some((number, end))) = Pin::new(&mut self.deliveries).poll_next(cx) {
            waiting.items.push(Item::Ended { number, end });
            waiting.askers.push(None);
        }
        if waiting.items.is_empty() {
            match actor.poll_event(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(stop)) => return Poll::Ready(Err(stop)),
                Poll::Ready(Ok(event)) if matches!(event.work, Work::Sql(_)) => return Poll::Ready(Ok(Next::Sql(event))),
                Poll::Ready(Ok(event)) => self.take(*event, &mut waiting),
            }
        }
        let mut bytes = 0;
        while waiting.items.len() < NATIVE_BATCH_MAX
            && bytes < NATIVE_BATCH_BYTES_MAX
            && let Some(event) = actor.pop_if(|event| !matches!(event.work, Work::Sql(_)))
        {
            bytes += event.size_bytes();
            self.take(*event, &mut waiting);
        }
        Poll::Ready(Ok(Next::Work(waiting)))
    }

    fn take(&self, event: Event, waiting: &mut Waiting) {
        let Event { work, caller, positions, reply, .. } = event;
        self.opened.connection.absorb(positions);
        let (item, kind) = match work {
            Work::Request(Request { path, body, .. }) => {
                let caller = caller.map_or_else(String::new, |caller| caller.to_string());
                (Item::Request { path, body, caller }, EventKind::Call)
            }
            // A statement is run alone and never comes here.
            Work::Alarm | Work::Sql(_) => (Item::Alarm, EventKind::Alarm),
        };
        waiting.items.push(item);
        waiting.askers.push(Some(Asker { reply, kind }));
    }

    /// When the actor wants to run next. While a delivery is out also when its leases run out: after a crash nobody else knows.
    fn alarm(&self, now_ms: u64, visibility_ms: u64, has_more_due: bool) -> Option<u64> {
        // Whatever is due already could not be done, unless it was too much.
        let again_ms = if has_more_due { now_ms } else { now_ms + ALARM_RETRY_MS_MIN };
        let due = self.machine.alarm().map(|at_ms| if at_ms <= now_ms { again_ms } else { at_ms });
        let until_ms = if self.leased_until_ms > now_ms { self.leased_until_ms } else { now_ms.saturating_add(visibility_ms) };
        let leases = (!self.deliveries.is_empty()).then_some(until_ms);
        due.into_iter().chain(leases).min()
    }
}

/// Waits until memory and journal have room for what the work may write, then does it.
async fn with_room(core: &Rc<Core>, actor: &Rc<Actor>, awake: &mut Awake, waiting: Waiting) -> Option<Ended> {
    actor.begin_running(core);
    let waited = if core.has_room() { Ok(()) } else { actor.until_stopped(core.until_room()).await };
    let ended = match waited {
        Ok(()) => work(core, actor, awake, waiting).await,
        Err(stop) => {
            let problem = match stop {
                Stop::Broken => Problem::Unavailable("the journal failed; try again".into()),
                Stop::Deadline | Stop::Hibernate if core.store.is_full() => Problem::StorageFull,
                Stop::Deadline | Stop::Hibernate => Problem::Deadline,
            };
            answer_all(core, actor, awake, waiting.askers, &problem, stop == Stop::Broken)
        }
    };
    actor.end_running(core);
    ended
}

/// Does what waits in one transaction; if something of it fails, each alone.
async fn work(core: &Rc<Core>, actor: &Rc<Actor>, awake: &mut Awake, waiting: Waiting) -> Option<Ended> {
    match attempt(core, actor, awake, &waiting.items, core.may_push()).await {
        Ok(batch) => settle(core, actor, awake, batch, waiting),
        Err(Lost::Stopped(stop)) => stopped(core, actor, awake, waiting.askers, stop),
        Err(Lost::Failed(Failed::Commit(error))) if error != DatabaseError::TooLarge => {
            let problem = failed(actor, error);
            answer_all(core, actor, awake, waiting.askers, &problem, false);
            Some(Ended::Trapped)
        }
        Err(Lost::Failed(failed)) => {
            if let Failed::Due(error) = failed {
                tracing::warn!(actor = %actor.address, %error, "what is due could not be done; it is tried again");
            }
            alone(core, actor, awake, waiting).await
        }
    }
}

/// Does each item in a transaction of its own, so that the one which fails fails alone.
async fn alone(core: &Rc<Core>, actor: &Rc<Actor>, awake: &mut Awake, waiting: Waiting) -> Option<Ended> {
    let mut askers = waiting.askers.into_iter();
    for item in waiting.items {
        let asker: Vec<_> = askers.by_ref().take(1).collect();
        let items = vec![item];
        let batch = match attempt(core, actor, awake, &items, false).await {
            Ok(batch) => batch,
            Err(Lost::Stopped(stop)) => return stopped(core, actor, awake, asker.into_iter().chain(askers).collect(), stop),
            Err(Lost::Failed(Failed::Item(error) | Failed::Due(error) | Failed::Commit(error))) => {
                Batch { done: vec![Err(error)], deliveries: Vec::new(), has_more_due: false, effect: Effect::Read }
            }
        };
        if let Some(ended) = settle(core, actor, awake, batch, Waiting { items, askers: asker }) {
            let problem = Problem::Unavailable("the actor is opened anew; try again".into());
            answer_all(core, actor, awake, askers.collect(), &problem, false);
            return Some(ended);
        }
    }
    None
}

async fn attempt(core: &Rc<Core>, actor: &Rc<Actor>, awake: &mut Awake, items: &[Item], may_begin: bool) -> Result<Batch, Lost> {
    let Awake { machine, opened, .. } = awake;
    let (connection, now_ms) = (&opened.connection, core.clock.wall_ms());
    actor.begin_running(core);
    let ran = actor.until_stopped(connection.run(|db| batch::run(db, machine, now_ms, items, may_begin))).await;
    connection.end_event();
    match ran {
        Ok(Ok(result)) => result.map_err(Lost::Failed),
        // Another statement of this actor runs: there is none.
        Ok(Err(error)) => Err(Lost::Failed(Failed::Commit(database_error(error)))),
        Err(stop) => Err(Lost::Stopped(stop)),
    }
}

/// A transaction was cut short, so nothing of it is kept.
fn stopped(core: &Rc<Core>, actor: &Rc<Actor>, awake: &Awake, askers: Vec<Option<Asker>>, stop: Stop) -> Option<Ended> {
    let is_broken = stop == Stop::Broken;
    let problem = if is_broken { Problem::UnknownOutcome } else { Problem::Deadline };
    let ended = answer_all(core, actor, awake, askers, &problem, is_broken);
    ended.or(Some(Ended::Trapped))
}

/// Answers all with a problem. What is returned is how being awake ended, if it did: the end of a delivery cannot be told twice.
fn answer_all(
    core: &Rc<Core>,
    actor: &Rc<Actor>,
    awake: &Awake,
    askers: Vec<Option<Asker>>,
    problem: &Problem,
    is_broken: bool,
) -> Option<Ended> {
    actor.clear_stop();
    let is_delivery_lost = askers.iter().any(Option::is_none);
    // What a broken actor has seen is lost and will never be durable: what is said of it need not wait.
    let positions = if is_broken { Positions::default() } else { awake.opened.connection.positions() };
    for Asker { reply, kind } in askers.into_iter().flatten() {
        let outcome = Outcome::Problem(problem.clone());
        actor.class.metrics.event(kind, EventEnd::of(&outcome), 0.0);
        core.finish(&actor.class, reply, positions, outcome);
    }
    if is_broken { Some(Ended::Broken) } else { is_delivery_lost.then_some(Ended::Trapped) }
}

/// A transaction was committed: sets the alarm with it, lets deliveries go, and answers.
fn settle(core: &Rc<Core>, actor: &Rc<Actor>, awake: &mut Awake, batch: Batch, mut waiting: Waiting) -> Option<Ended> {
    let Batch { done, deliveries, has_more_due, effect } = batch;
    let now_ms = core.clock.wall_ms();
    actor.clear_stop();
    awake.left = Waiting { items: waiting.items.split_off(done.len()), askers: waiting.askers.split_off(done.len()) };
    let visibility_ms = actor.class.kind.visibility_ms();
    if !deliveries.is_empty() {
        awake.leased_until_ms = now_ms.saturating_add(visibility_ms);
    }
    for delivery in deliveries {
        awake.deliveries.push(carry(core, actor, delivery));
    }
    let alarm = awake.alarm(now_ms, visibility_ms, has_more_due);
    let recorded = alarms::keep_until(core, actor, alarm, effect == Effect::Durable);
    let positions = awake.opened.connection.positions();
    let seconds = seconds(core.now_ns().saturating_sub(actor.running_since_ns(core)));
    let mut is_delivery_lost = false;
    for (done, asker) in done.into_iter().zip(waiting.askers) {
        let Some(Asker { reply, kind }) = asker else {
            is_delivery_lost |= done.is_err();
            continue;
        };
        let outcome = outcome(actor, done, recorded.as_ref().err());
        actor.class.metrics.event(kind, EventEnd::of(&outcome), seconds);
        core.finish(&actor.class, reply, positions, outcome);
    }
    core.store.end_run();
    core.want_turn();
    is_delivery_lost.then_some(Ended::Trapped)
}

fn outcome(actor: &Actor, done: Done, unrecorded: Option<&Problem>) -> Outcome {
    match (done, unrecorded) {
        (Ok(Some(reply)), Some(problem)) if reply.effect > Effect::Read => Outcome::Problem(problem.clone()),
        (Ok(Some(Reply { status, body, .. })), _) => {
            let kind = if status == 200 { "application/octet-stream" } else { "text/plain; charset=utf-8" };
            let headers = vec![("content-type".into(), kind.into())];
            Outcome::Response(Response { status, headers, body: body.into() })
        }
        (Ok(None), _) => Outcome::Response(Response::default()),
        (Err(error), _) => Outcome::Problem(failed(actor, error)),
    }
}

/// Carries a batch to its consumer, as a call of the queue's.
fn carry(core: &Rc<Core>, actor: &Rc<Actor>, delivery: Delivery) -> Underway {
    let (core, actor) = (Rc::clone(core), Rc::clone(actor));
    Box::pin(async move {
        let Delivery { number, consumer, path, body } = delivery;
        let (class, name) = consumer.split_once('/').unwrap_or((&consumer, ""));
        let headers = vec![("content-type".into(), b"application/octet-stream".to_vec())];
        let request = Request { method: "POST".into(), path: format!("/{path}"), headers, body: body.into() };
        let called = calls::call_from(&core, &actor, Address::new(class, name), request, Vec::new(), None).await;
        let end = match called {
            Ok(Response { status: 200, body, .. }) => End::Answer(body),
            Ok(Response { status, .. }) => End::Failed(format!("{consumer} answered {status}")),
            Err(CallError::Busy | CallError::Unavailable) => End::NeverRan,
            Err(CallError::Timeout) => End::Failed(format!("{consumer} did not answer in time")),
            Err(CallError::UnknownOutcome) => End::Failed(format!("the answer of {consumer} was lost")),
            Err(CallError::NoSuchClass | CallError::Forbidden | CallError::ReEntry) => {
                End::Failed(format!("{consumer} cannot be called"))
            }
        };
        (number, end)
    })
}

/// Runs the operator's statement. One that changed something may have changed what the machine keeps in memory.
async fn run_sql(core: &Rc<Core>, actor: &Rc<Actor>, awake: &Awake, event: Event) -> Option<Ended> {
    let Event { work: Work::Sql(sql), reply, .. } = event else { return None };
    let connection = &awake.opened.connection;
    let before = connection.total_changes();
    actor.begin_running(core);
    let ran = actor.until_stopped(operator::sql(connection, &sql)).await;
    actor.end_running(core);
    connection.end_event();
    let (outcome, positions, ended) = match ran {
        Ok(outcome) => (outcome, connection.positions(), None),
        Err(Stop::Broken) => (Outcome::Problem(Problem::UnknownOutcome), Positions::default(), Some(Ended::Broken)),
        Err(Stop::Deadline | Stop::Hibernate) => (Outcome::Problem(Problem::Deadline), connection.positions(), None),
    };
    actor.clear_stop();
    core.finish(&actor.class, reply, positions, outcome);
    ended.or_else(|| (connection.total_changes() != before).then_some(Ended::Trapped))
}

fn failed(actor: &Actor, error: DatabaseError) -> Problem {
    if let DatabaseError::Other(words) = &error {
        tracing::error!(actor = %actor.address, error = words, "a statement of the node's own failed");
    }
    problem(error)
}
