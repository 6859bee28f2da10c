//! The event core: what one core owns, and the way into it.
//!
//! One event's life, in the order of these modules: `router` and [`CoreHandle::request`] bring it to its core, the `pump` takes it
//! into a `mailbox`, the actor's task wakes and runs it (`actor`), its output waits at a `gate` until what it depends on is
//! durable, and a `reply` takes it to whoever waits. `native` is where the node itself
//! serves an actor, `calls` sends events from one actor to another, `operator` answers the admin listener.
//!
//! Everything of a core lives on its thread: no lock, no atomic, no other core's memory. Cores talk through bounded channels.

mod actor;
mod alarms;
mod calls;
mod disk;
mod gate;
mod mailbox;
mod native;
mod operator;
mod pump;
mod reply;
mod shrink;
mod start;
mod wake;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use tokio::sync::Notify;
use wasmkeep_storage::clock::Clock;
use wasmkeep_storage::store::CoreStore;
use wasmkeep_storage::{Address, Lsn, Positions};

use self::actor::Actor;
pub use self::disk::{NodeDisk, OpenBackend};
use self::gate::{Gates, Held};
pub use self::operator::Cores;
use self::reply::{ReplyTo, Slot, Wait};
pub use self::start::{CoreSeed, check_component, inspect_journal, prepare, run};
use self::wake::{Event, Remote, Wake, Work};
use crate::config::NodeConfig;
use crate::event::{Outcome, Problem, Request};
use crate::http::Actors;
use crate::limits::{EVENTS_PER_CORE_MAX, GATE_BYTES_MAX};
use crate::metrics::{ClassMetrics, CoreMetrics};
use crate::router;
use crate::wasm::Program;

/// A class as this core serves it.
pub(crate) struct Class {
    pub(crate) name: Arc<str>,
    kind: Kind,
    env: RefCell<Arc<BTreeMap<String, String>>>,
    pub(crate) metrics: ClassMetrics,
}

/// What runs a class's actors.
pub(crate) enum Kind {
    /// A component.
    Guest(Program),
    /// The node itself.
    Native(Rc<native::Native>),
}

/// One core.
pub(crate) struct Core {
    index: usize,
    config: Arc<NodeConfig>,
    clock: Clock,
    store: CoreStore,
    classes: HashMap<Arc<str>, Rc<Class>>,
    metrics: CoreMetrics,
    /// What waits for the pump, from this thread.
    inbox: RefCell<VecDeque<Wake>>,
    /// Something was committed or finished since the pump last ended a turn.
    turn_wanted: Cell<bool>,
    pump: RefCell<Option<Waker>>,
    /// What goes to each core; this core's own stays empty.
    outboxes: Vec<Outbox>,
    /// Actors with a task: awake, waking, or broken and about to be reloaded.
    actors: RefCell<HashMap<Address, Rc<Actor>>>,
    /// Actors that hold an instance, in the order in which they are looked at for eviction.
    residents: RefCell<VecDeque<Rc<Actor>>>,
    residents_max: usize,
    gates: RefCell<Gates>,
    /// Requests sent to other cores.
    slots: RefCell<HashMap<u64, Rc<Slot<Outcome>>>>,
    slots_given: Cell<u64>,
    /// Events taken and not answered yet.
    events: Cell<usize>,
    /// Told whenever memory that was full may have room again, the journal has restarted or an instance was dropped.
    room: Notify,
    /// Broken actors that still hold what was lost. The journal restarts when there is none.
    breaking: Cell<usize>,
    /// What the last failed group took with it: positions past the first and up to the second. None of them is used again.
    lost: Cell<(Lsn, Lsn)>,
    alarms: RefCell<alarms::Alarms>,
    /// Tells `alarms::keep` to look at once.
    alarms_wanted: Notify,
    /// When to give memory back.
    peak: Cell<shrink::Peak>,
}

/// What waits to be sent to another core. A task of its own sends it, so that a full channel stops nobody else.
struct Outbox {
    queue: RefCell<VecDeque<Remote>>,
    filled: Notify,
}

impl Core {
    fn now_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    fn event_wall_ns(&self) -> u64 {
        u64::try_from(self.config.budgets.event_wall.as_nanos()).unwrap_or(u64::MAX)
    }

    fn event_cpu_ns(&self) -> u64 {
        u64::try_from(self.config.budgets.event_cpu.as_nanos()).unwrap_or(u64::MAX)
    }

    fn core_of(&self, address: &Address) -> usize {
        router::core_of(address, self.outboxes.len())
    }

    /// Hands something to the pump.
    fn submit(&self, wake: Wake) {
        self.inbox.borrow_mut().push_back(wake);
        self.wake_pump();
    }

    /// Asks the pump to end a turn: to cut the journal's group, and to look at everything again.
    fn want_turn(&self) {
        if !self.turn_wanted.replace(true) {
            self.wake_pump();
        }
    }

    fn wake_pump(&self) {
        if let Some(waker) = self.pump.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Whether a new event may start: memory that waits for the disk is bounded.
    fn has_room(&self) -> bool {
        self.store.has_room() && self.gates.borrow().bytes() < GATE_BYTES_MAX
    }

    /// Waits until a new event may start.
    async fn until_room(&self) {
        loop {
            let told = self.room.notified();
            if self.has_room() {
                return;
            }
            told.await;
        }
    }

    /// Whether whoever has seen this has seen what was lost.
    fn is_lost(&self, positions: Positions) -> bool {
        let (durable, newest) = self.lost.get();
        positions.seen > durable && positions.seen <= newest
    }

    /// An event has ended: its outcome leaves when what its actor had seen is durable. To a caller on this core it leaves at once
    /// and takes the positions along, because both share one log.
    fn finish(&self, class: &Rc<Class>, reply: ReplyTo, positions: Positions, outcome: Outcome) {
        self.store.end_run();
        self.want_turn();
        self.events.set(self.events.get() - 1);
        if let ReplyTo::Caller(slot) = reply {
            slot.fill((outcome, positions));
        } else if let ReplyTo::Alarm(address) = reply {
            // Nobody is told, so nothing waits.
            self.alarm_ended(&address, &outcome);
        } else if positions.gate <= self.store.durable() {
            self.deliver(reply, outcome);
        } else {
            let since_ns = self.now_ns();
            let deadline_ns = since_ns.saturating_add(self.event_wall_ns());
            let held = Held { outcome, reply, deadline_ns, since_ns, class: Rc::clone(class) };
            self.gates.borrow_mut().hold(positions.gate, held);
        }
    }

    /// Lets what waited at the gate leave.
    fn release(&self, held: Vec<Held>) {
        let now_ns = self.now_ns();
        for Held { outcome, reply, since_ns, class, .. } in held {
            class.metrics.gate_wait_seconds.record(seconds(now_ns - since_ns));
            self.deliver(reply, outcome);
        }
    }

    fn deliver(&self, reply: ReplyTo, outcome: Outcome) {
        match reply {
            ReplyTo::Connection(slot) => slot.fill(outcome),
            ReplyTo::Caller(slot) => slot.fill((outcome, Positions::default())),
            ReplyTo::Core { core, slot } => self.send(core, Remote::Reply { slot, outcome }),
            // An operator who went away is told nothing.
            ReplyTo::Operator(answer) => drop(answer.send(outcome)),
            ReplyTo::Alarm(address) => self.alarm_ended(&address, &outcome),
        }
    }

    fn send(&self, core: usize, remote: Remote) {
        let outbox = &self.outboxes[core];
        outbox.queue.borrow_mut().push_back(remote);
        outbox.filled.notify_one();
    }

    /// Sends a request to an actor of another core and waits for its outcome, which is durable there.
    async fn request_remote(&self, address: Address, request: Request, caller: Option<Address>, chain: Vec<Address>) -> Outcome {
        if self.slots.borrow().len() >= EVENTS_PER_CORE_MAX {
            return Outcome::Problem(Problem::Unavailable(
                "too many requests are under way to other cores; try again later".into(),
            ));
        }
        let id = self.slots_given.get() + 1;
        self.slots_given.set(id);
        let slot = Slot::new();
        self.slots.borrow_mut().insert(id, Rc::clone(&slot));
        let deadline_ns = self.now_ns().saturating_add(self.event_wall_ns());
        let core = self.core_of(&address);
        self.send(core, Remote::Request { from: self.index, slot: id, address, request, caller, chain, deadline_ns });
        Wait(slot).await
    }
}

fn seconds(ns: u64) -> f64 {
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

/// The current core, for what runs on it.
#[derive(Clone)]
pub struct CoreHandle(Rc<Core>);

impl CoreHandle {
    /// Sends a request to its actor, on whichever core that is, and waits for what may leave the node. The event goes on if the
    /// future is dropped. A caller must be one that the host vouches for; without one the request comes from outside.
    pub async fn request(&self, caller: Option<Address>, address: Address, request: Request) -> Outcome {
        let core = &self.0;
        if core.core_of(&address) != core.index {
            return core.request_remote(address, request, caller, Vec::new()).await;
        }
        let slot = Slot::new();
        core.submit(Wake::Event(Box::new(Event {
            address,
            work: Work::Request(request),
            caller,
            chain: Vec::new(),
            positions: Positions::default(),
            deadline_ns: core.now_ns().saturating_add(core.event_wall_ns()),
            reply: ReplyTo::Connection(Rc::clone(&slot)),
        })));
        Wait(slot).await
    }
}

impl Actors for CoreHandle {
    fn request(&self, caller: Option<Address>, address: Address, request: Request) -> impl Future<Output = Outcome> + 'static {
        let core = self.clone();
        async move { core.request(caller, address, request).await }
    }
}
