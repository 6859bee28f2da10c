//! An actor's life on its core: asleep, awake and idle, running one event, hibernating, broken.
//!
//! An actor with anything to do has one task (`live`), which owns its instance and its connection and runs its events one after
//! the other. Asleep it is nothing but its files. Three ends of an event's failure: a trap fails that event (the instance is made
//! anew for the next), broken fails the actor until it is reloaded from what is durable, fatal is not decided here.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use wasmkeep_storage::sql::{Connection, EventBudget};
use wasmkeep_storage::store::{Meta, Opened};
use wasmkeep_storage::{Address, Positions, StorageError};

use super::alarms::{Cause, Wish};
use super::mailbox::Mailbox;
use super::wake::{Event, Work};
use super::{Class, Core, Kind, alarms, calls, native, operator, seconds};
use crate::event::{Outcome, Problem, Response};
use crate::metrics::{EventEnd, EventKind};
use crate::wasm::{ActorHost, Failure, Instance, Program};

/// Why an actor's task is to let go of what it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// It has had no event for a while, or its place is needed.
    Hibernate,
    /// The running event's wall time is over.
    Deadline,
    /// It has seen what was lost.
    Broken,
}

/// One actor with a task.
pub(crate) struct Actor {
    pub(crate) address: Address,
    pub(crate) class: Rc<Class>,
    mailbox: RefCell<Mailbox>,
    /// The task, when it waits.
    task: RefCell<Option<Waker>>,
    stop: Cell<Option<Stop>>,
    budget: Rc<EventBudget>,
    /// What the log has of it beside its database, this run included.
    pub(super) meta: Cell<Meta>,
    /// What the running event has done to the alarm.
    pub(super) wish: Cell<Wish>,
    /// Whether the running event is the alarm.
    pub(super) running_alarm: Cell<bool>,
    pub(super) connection: RefCell<Option<Rc<Connection>>>,
    /// Every actor that waits for the running event, and this one.
    pub(crate) chain: RefCell<Vec<Address>>,
    /// Calls that it has sent and does not stand still for.
    pub(super) out: Cell<usize>,
    /// When the running event has to end; 0 when none runs.
    running_until_ns: Cell<u64>,
    active_ns: Cell<u64>,
    /// Whether it was used since eviction last looked at it.
    used: Cell<bool>,
    /// Whether it stands in `Core::residents`.
    listed: Cell<bool>,
}

/// What a task holds while its actor is awake. The instance goes first.
struct Awake {
    instance: Instance,
    opened: Opened,
}

/// How being awake ended.
#[derive(PartialEq, Eq)]
pub(super) enum Ended {
    Hibernated,
    /// The instance is dead; the next event gets a new one.
    Trapped,
    Broken,
}

impl Actor {
    pub(super) fn new(core: &Core, address: Address, class: Rc<Class>) -> Rc<Self> {
        Rc::new(Self {
            address,
            class,
            mailbox: RefCell::default(),
            task: RefCell::default(),
            stop: Cell::new(None),
            budget: Rc::new(EventBudget::new(core.clock.clone(), core.event_cpu_ns())),
            meta: Cell::default(),
            wish: Cell::default(),
            running_alarm: Cell::new(false),
            connection: RefCell::default(),
            chain: RefCell::default(),
            out: Cell::new(0),
            running_until_ns: Cell::new(0),
            active_ns: Cell::new(core.now_ns()),
            used: Cell::new(true),
            listed: Cell::new(false),
        })
    }

    /// Puts an event into the mailbox, or gives it back when that is full.
    pub(super) fn push(&self, event: Box<Event>) -> Result<(), Box<Event>> {
        self.mailbox.borrow_mut().push(event)?;
        self.used.set(true);
        self.wake();
        Ok(())
    }

    /// Whether its alarm is among the events that wait.
    pub(super) fn has_alarm_waiting(&self) -> bool {
        self.mailbox.borrow().any(|event| matches!(event.work, Work::Alarm))
    }

    pub(super) fn remove_events(&self, gone: impl Fn(&Event) -> bool) -> Vec<Event> {
        self.mailbox.borrow_mut().remove(gone)
    }

    /// Tells the task to let go. `Broken` outweighs everything.
    pub(super) fn stop(&self, stop: Stop) {
        if self.stop.get() != Some(Stop::Broken) {
            self.stop.set(Some(stop));
        }
        if stop != Stop::Hibernate {
            self.budget.abort();
        }
        self.wake();
    }

    /// What it has seen of the core's log.
    pub(super) fn positions(&self) -> Positions {
        self.connection.borrow().as_ref().map_or_else(Positions::default, |connection| connection.positions())
    }

    /// Takes in what somebody had seen who answered it.
    pub(super) fn absorb(&self, seen: Positions) {
        if let Some(connection) = &*self.connection.borrow() {
            connection.absorb(seen);
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.running_until_ns.get() != 0
    }

    pub(super) fn is_past_deadline(&self, now_ns: u64) -> bool {
        self.is_running() && self.running_until_ns.get() <= now_ns
    }

    /// An event begins, or a batch of them.
    pub(super) fn begin_running(&self, core: &Core) {
        self.budget.reset(core.event_cpu_ns());
        self.running_until_ns.set(core.now_ns().saturating_add(core.event_wall_ns()));
    }

    pub(super) fn end_running(&self, core: &Core) {
        self.running_until_ns.set(0);
        self.active_ns.set(core.now_ns());
    }

    /// When the running event began.
    pub(super) fn running_since_ns(&self, core: &Core) -> u64 {
        self.running_until_ns.get().saturating_sub(core.event_wall_ns())
    }

    /// What it was told to stop has ended. `Broken` stays.
    pub(super) fn clear_stop(&self) {
        if self.stop.get() != Some(Stop::Broken) {
            self.stop.set(None);
        }
    }

    pub(super) fn pop_if(&self, wanted: impl Fn(&Event) -> bool) -> Option<Box<Event>> {
        self.mailbox.borrow_mut().pop_if(wanted)
    }

    /// From now on it is one of those that may be evicted.
    pub(super) fn list(self: &Rc<Self>, core: &Core) {
        if !self.listed.replace(true) {
            core.residents.borrow_mut().push_back(Rc::clone(self));
        }
    }

    /// Whether it does nothing and nothing waits for it.
    fn is_at_rest(&self) -> bool {
        !self.is_running() && self.out.get() == 0 && self.mailbox.borrow().is_empty()
    }

    /// How long it has been awake without an event, 0 when it is not idle.
    pub(super) fn idle_ns(&self, now_ns: u64) -> u64 {
        let is_idle = self.is_at_rest() && self.connection.borrow().is_some();
        if is_idle { now_ns.saturating_sub(self.active_ns.get()) } else { 0 }
    }

    fn wake(&self) {
        if let Some(waker) = self.task.borrow_mut().take() {
            waker.wake();
        }
    }

    fn register(&self, cx: &Context<'_>) {
        self.task.replace(Some(cx.waker().clone()));
    }

    /// The next event, or why there is to be none.
    pub(super) fn poll_event(&self, cx: &Context<'_>) -> Poll<Result<Box<Event>, Stop>> {
        match self.stop.get() {
            // An event that came meanwhile is worth more than sleep.
            Some(Stop::Broken) => return Poll::Ready(Err(Stop::Broken)),
            // It is told again once the answers of its calls are here.
            Some(Stop::Hibernate) if self.out.get() > 0 => {
                self.stop.set(None);
                return self.poll_event(cx);
            }
            Some(_) => self.stop.set(None),
            None => {
                return match self.mailbox.borrow_mut().pop() {
                    Some(event) => Poll::Ready(Ok(event)),
                    None => {
                        self.register(cx);
                        Poll::Pending
                    }
                };
            }
        }
        match self.mailbox.borrow_mut().pop() {
            Some(event) => Poll::Ready(Ok(event)),
            None => Poll::Ready(Err(Stop::Hibernate)),
        }
    }

    /// Runs a future until it ends or the task is told to stop.
    pub(super) async fn until_stopped<F: Future>(&self, future: F) -> Result<F::Output, Stop> {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| {
            match self.stop.get() {
                Some(Stop::Hibernate) => self.stop.set(None),
                Some(stop) => return Poll::Ready(Err(stop)),
                None => {}
            }
            let poll = future.as_mut().poll(cx);
            if poll.is_pending() {
                self.register(cx);
            }
            poll.map(Ok)
        })
        .await
    }
}

/// The task of one actor, from its first event until it hibernates.
pub(super) async fn live(core: Rc<Core>, actor: Rc<Actor>) {
    loop {
        // Nothing is reloaded before the failed epoch is ended durably.
        while core.store.is_failed() {
            core.room.notified().await;
        }
        let ended = match one_life(&core, &actor).await {
            Ok(ended) => {
                actor.connection.replace(None);
                core.room.notify_waiters();
                ended
            }
            Err(problem) => {
                actor.connection.replace(None);
                let event = actor.mailbox.borrow_mut().pop();
                if let Some(event) = event {
                    // Nothing ran that could have been seen; what `on-init` wrote before it failed was its own.
                    core.finish(&actor.class, event.reply, event.positions, Outcome::Problem(problem));
                }
                Ended::Trapped
            }
        };
        if actor.stop.take() == Some(Stop::Broken) || ended == Ended::Broken {
            core.has_broken();
        }
        if actor.mailbox.borrow().is_empty() {
            core.actors.borrow_mut().remove(&actor.address);
            return;
        }
    }
}

/// From waking to the end of being awake, or why it could not be woken.
async fn one_life(core: &Rc<Core>, actor: &Rc<Actor>) -> Result<Ended, Problem> {
    match &actor.class.kind {
        Kind::Guest(program) => {
            let awake = wake(core, actor, program).await?;
            Ok(be_awake(core, actor, awake).await)
        }
        Kind::Native(native) => {
            let awake = native::wake(core, actor, native).await?;
            Ok(native::be_awake(core, actor, awake).await)
        }
    }
}

/// Opens an actor's database and reads its facts.
pub(super) async fn open(core: &Rc<Core>, actor: &Rc<Actor>) -> Result<Opened, Problem> {
    make_place(core).await;
    actor.budget.reset(core.event_cpu_ns());
    let address = &actor.address;
    let opened = core.store.open_actor(address, Rc::clone(&actor.budget)).map_err(|error| storage_problem(actor, &error))?;
    actor.connection.replace(Some(Rc::clone(&opened.connection)));
    let meta = core.store.meta(address).map_err(|error| storage_problem(actor, &error))?;
    alarms::loaded(core, actor, meta.unwrap_or_default());
    Ok(opened)
}

/// Brings an actor from its files into memory, and runs `on-init` if this version has not run it.
async fn wake(core: &Rc<Core>, actor: &Rc<Actor>, program: &Program) -> Result<Awake, Problem> {
    let started_ns = core.now_ns();
    let opened = open(core, actor).await?;
    let connection = Rc::clone(&opened.connection);
    let host = ActorHost {
        address: actor.address.clone(),
        env: std::sync::Arc::clone(&actor.class.env.borrow()),
        connection: Rc::clone(&connection),
        budget: Rc::clone(&actor.budget),
        hooks: calls::hooks(core, actor),
        memory_bytes_max: usize::try_from(core.config.budgets.memory_bytes).unwrap_or(usize::MAX),
    };
    actor.running_until_ns.set(core.now_ns().saturating_add(core.event_wall_ns()));
    let woken = actor.until_stopped(start(core, actor, program, host, &connection)).await;
    actor.running_until_ns.set(0);
    connection.end_event();
    let instance = match woken {
        Ok(Ok(instance)) => instance,
        Ok(Err(failure)) => return Err(failure_problem(actor, failure)),
        Err(Stop::Broken) => return Err(Problem::Unavailable("the journal failed; try again".into())),
        Err(Stop::Deadline | Stop::Hibernate) => {
            actor.stop.set(None);
            return Err(Problem::Deadline);
        }
    };
    actor.list(core);
    actor.class.metrics.wake_seconds.record(seconds(core.now_ns() - started_ns));
    Ok(Awake { instance, opened })
}

/// The guest's part of waking: the instance, and `on-init` once per version.
async fn start(
    core: &Rc<Core>,
    actor: &Rc<Actor>,
    program: &Program,
    host: ActorHost,
    connection: &Connection,
) -> Result<Instance, Failure> {
    let mut instance = program.instantiate(host).await?;
    let version = program.version_number();
    if actor.meta.get().init_version != version {
        let started_ns = core.now_ns();
        let result = instance.on_init().await;
        connection.end_event();
        let end = if result.is_ok() { EventEnd::Ok } else { EventEnd::Trap };
        actor.class.metrics.event(EventKind::Init, end, seconds(core.now_ns() - started_ns));
        let recorded = result.map(|()| alarms::initialised(core, actor, version));
        actor.wish.set(Wish::None);
        // Refused only when the journal is full or failed; `on-init` then runs again at the next wake.
        if let Err(refused) = recorded? {
            tracing::debug!(actor = %actor.address, %refused, "that on-init ran could not be recorded");
        }
        core.want_turn();
    }
    Ok(instance)
}

/// Runs events until the actor is to sleep or its instance is lost.
async fn be_awake(core: &Rc<Core>, actor: &Rc<Actor>, mut awake: Awake) -> Ended {
    loop {
        let next = std::future::poll_fn(|cx| actor.poll_event(cx)).await;
        let event = match next {
            Ok(event) => event,
            Err(Stop::Broken) => return Ended::Broken,
            Err(Stop::Hibernate | Stop::Deadline) => return Ended::Hibernated,
        };
        let ended = match with_room(core, actor, event).await {
            Ok(event) => run(core, actor, &mut awake, event).await,
            Err(ended) => ended,
        };
        if let Some(ended) = ended {
            return ended;
        }
    }
}

/// Waits until memory and journal have room for what an event may write, for as long as the event may wait to be started. One
/// that cannot start is answered here; what is returned then is how being awake ended, if it did.
async fn with_room(core: &Rc<Core>, actor: &Rc<Actor>, event: Box<Event>) -> Result<Box<Event>, Option<Ended>> {
    if core.has_room() {
        return Ok(event);
    }
    actor.running_until_ns.set(event.deadline_ns);
    let waited = actor.until_stopped(core.until_room()).await;
    actor.running_until_ns.set(0);
    let (problem, ended) = match waited {
        Ok(()) => return Ok(event),
        Err(Stop::Broken) => (Problem::Unavailable("the journal failed; try again".into()), Some(Ended::Broken)),
        Err(Stop::Deadline | Stop::Hibernate) => {
            actor.stop.set(None);
            (if core.store.is_full() { Problem::StorageFull } else { Problem::Deadline }, None)
        }
    };
    core.finish(&actor.class, event.reply, event.positions, Outcome::Problem(problem));
    Err(ended)
}

/// Runs one event; says how being awake ended if it did.
async fn run(core: &Rc<Core>, actor: &Rc<Actor>, awake: &mut Awake, event: Box<Event>) -> Option<Ended> {
    let Event { work, caller, chain, positions, reply, .. } = *event;
    let connection = Rc::clone(&awake.opened.connection);
    connection.absorb(positions);
    let started_ns = core.now_ns();
    actor.budget.reset(core.event_cpu_ns());
    actor.running_until_ns.set(started_ns.saturating_add(core.event_wall_ns()));
    actor.chain.replace(chain);
    let mut cause = Cause::Other;
    let kind = match (&work, &caller) {
        (Work::Alarm, _) => EventKind::Alarm,
        (_, Some(_)) => EventKind::Call,
        (_, None) => EventKind::Request,
    };
    let (mut outcome, ended) = match work {
        Work::Request(request) => {
            let ran = actor.until_stopped(awake.instance.on_request(request, caller)).await;
            ended(actor, ran.map(|result| result.map(Outcome::Response)))
        }
        Work::Alarm => match actor.until_stopped(alarms::begin(core, actor)).await {
            Ok(Ok(Some(alarm))) => {
                cause = Cause::Alarm(alarm);
                actor.running_alarm.set(true);
                let ran = actor.until_stopped(awake.instance.on_alarm(alarm.attempt)).await;
                actor.running_alarm.set(false);
                ended(actor, ran.map(|result| result.map(|()| Outcome::Response(Response::default()))))
            }
            Ok(Ok(None)) => (Outcome::Response(Response::default()), None),
            Ok(Err(problem)) => (Outcome::Problem(problem), None),
            Err(stop) => ended(actor, Err(stop)),
        },
        Work::Sql(sql) => match actor.until_stopped(operator::sql(&connection, &sql)).await {
            Ok(outcome) => (outcome, None),
            Err(Stop::Broken) => (Outcome::Problem(Problem::UnknownOutcome), Some(Ended::Broken)),
            Err(Stop::Deadline | Stop::Hibernate) => (Outcome::Problem(Problem::Deadline), None),
        },
    };
    actor.clear_stop();
    connection.end_event();
    if ended != Some(Ended::Broken)
        && let Err(problem) = alarms::settle(core, actor, cause, matches!(outcome, Outcome::Response(_)))
    {
        outcome = Outcome::Problem(problem);
    }
    let now_ns = core.now_ns();
    actor.running_until_ns.set(0);
    actor.active_ns.set(now_ns);
    actor.class.metrics.event(kind, EventEnd::of(&outcome), seconds(now_ns - started_ns));
    // What a broken actor has seen is lost and will never be durable: what is said of it need not wait.
    let positions = if ended == Some(Ended::Broken) { Positions::default() } else { connection.positions() };
    core.finish(&actor.class, reply, positions, outcome);
    ended
}

/// What came of a guest's run, and how being awake ended if it did.
fn ended(actor: &Actor, ran: Result<Result<Outcome, Failure>, Stop>) -> (Outcome, Option<Ended>) {
    match ran {
        Ok(Ok(outcome)) => (outcome, None),
        Ok(Err(failure)) => (Outcome::Problem(failure_problem(actor, failure)), Some(Ended::Trapped)),
        Err(Stop::Broken) => (Outcome::Problem(Problem::UnknownOutcome), Some(Ended::Broken)),
        Err(Stop::Deadline | Stop::Hibernate) => (Outcome::Problem(Problem::Deadline), Some(Ended::Trapped)),
    }
}

impl Core {
    /// Those that hibernated or broke are still listed: taking one out of the middle whenever that happens would be quadratic.
    pub(super) fn drop_gone_residents(&self) {
        self.residents.borrow_mut().retain(|actor| {
            let stays = actor.connection.borrow().is_some();
            actor.listed.set(stays);
            stays
        });
    }
}

/// Makes room for one more resident: the first idle actor that was not used since it was last looked at hibernates.
async fn make_place(core: &Rc<Core>) {
    loop {
        let told = core.room.notified();
        if core.residents.borrow().len() >= core.residents_max {
            core.drop_gone_residents();
        }
        let mut looks = 2 * core.residents.borrow().len();
        if core.residents.borrow().len() < core.residents_max {
            return;
        }
        let durable = core.store.durable();
        while looks > 0 {
            looks -= 1;
            let Some(actor) = core.residents.borrow_mut().pop_front() else { break };
            let can_sleep = actor.is_at_rest() && actor.positions().seen <= durable;
            if can_sleep && !actor.used.replace(false) {
                actor.stop(Stop::Hibernate);
                core.residents.borrow_mut().push_back(actor);
                break;
            }
            core.residents.borrow_mut().push_back(actor);
        }
        told.await;
    }
}

fn failure_problem(actor: &Actor, failure: Failure) -> Problem {
    match failure {
        Failure::CpuBudget if actor.budget.is_aborted() => Problem::Deadline,
        Failure::CpuBudget => Problem::Trap("it used up its CPU time".into()),
        Failure::StorageFull => Problem::StorageFull,
        Failure::NoRoom => Problem::Unavailable("the node holds as many actors as it can; try again later".into()),
        Failure::Aborted => Problem::Unavailable("the actor's instance was lost; try again".into()),
        failure @ (Failure::Trap(_) | Failure::Memory(_) | Failure::BadResponse(_)) => Problem::Trap(failure.to_string()),
    }
}

fn storage_problem(actor: &Actor, error: &StorageError) -> Problem {
    if matches!(error, StorageError::Restarting) {
        return Problem::Unavailable("the journal is restarting after a failed write; try again".into());
    }
    tracing::error!(actor = %actor.address, %error, "an actor could not be woken");
    Problem::Unavailable("the actor's storage cannot be opened; the node's log says why".into())
}
