//! A node as a library: starts its threads, tells them to stop, waits for them.
//!
//! Threads: one per core (bound to a CPU each when pinned), one that accepts connections, of both listeners, one for the admin
//! listener. It knows when each may start and must end; what a core does is the core's business ([`crate::core`]).
//!
//! Order of a start: data directory, addresses, admin listener (not ready), cores prepared, cores running, then connections.
//! Order of a stop: not ready, listener closed, requests finished within the drain, cores flushed, admin listener, lock.

use std::any::Any;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc as std_mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;
use wasmkeep_storage::clock::Clock;

use crate::admin::{self, AdminSetup};
use crate::config::{LiveClasses, NodeConfig, allowed_cpus};
pub use crate::core::NodeDisk;
use crate::core::{self, CoreSeed, Cores};
use crate::data_dir::DataDir;
use crate::door::Entrance;
use crate::fatal::Fatal;
use crate::http::{DoorSetup, HttpSetup, accept};
use crate::limits::{INCOMING_MAX, STOP_FLUSH_MS_MAX, SWEEP_MS};
use crate::metrics::{CoreMetrics, Metrics};
use crate::vitals;

/// How often a waiting main thread looks whether a stop takes too long.
const WAIT_STEP: Duration = Duration::from_millis(100);

/// Whether a node stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It serves.
    No,
    /// It finishes what is in flight until this time of its clock.
    Drain {
        /// Milliseconds of the clock's monotonic time.
        until_ms: u64,
    },
    /// It drops what is in flight.
    Now,
}

/// Where a node is in its life, for `/readyz`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phase(Arc<AtomicU8>);

impl Phase {
    pub(crate) const SERVING: u8 = 1;
    pub(crate) const DRAINING: u8 = 2;

    pub(crate) fn is_serving(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::SERVING
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::DRAINING
    }

    pub(crate) fn set(&self, phase: u8) {
        // A node that drains never serves again.
        self.0.fetch_max(phase, Ordering::AcqRel);
    }
}

/// How a core says that it can take requests.
#[derive(Debug)]
pub struct Ready(std_mpsc::Sender<Event>);

impl Ready {
    /// Says so.
    pub fn tell(self) {
        let _nobody_waits = self.0.send(Event::Ready);
    }
}

/// What one core is given when it starts.
pub struct CoreSetup {
    /// Its number, from 0.
    pub index: usize,
    /// How many cores there are.
    pub count: usize,
    /// The node's configuration.
    pub config: Arc<NodeConfig>,
    /// The node's data directory, locked.
    pub data: Arc<DataDir>,
    /// All cores.
    pub cores: Cores,
    /// To be handed to [`crate::http::serve`], which returns when the drain is over.
    pub http: HttpSetup,
    /// Whether the node stops.
    pub stop: watch::Receiver<Stop>,
    /// Access and variables, which may change while the node runs.
    pub classes: watch::Receiver<Arc<LiveClasses>>,
    /// The node's recorder, for the series of classes.
    pub metrics: Arc<Metrics>,
    /// This core's series.
    pub core_metrics: CoreMetrics,
    /// What time it is.
    pub clock: Clock,
    /// To be told once requests can be taken.
    pub ready: Ready,
}

/// What threads tell whoever waits for them.
#[derive(Debug)]
enum Event {
    Ready,
    Ended { thread: String, core: bool, result: Result<(), Fatal> },
}

/// A node that runs.
pub struct NodeHandle {
    http_addr: SocketAddr,
    admin_addr: SocketAddr,
    api_addr: Option<SocketAddr>,
    config: Arc<NodeConfig>,
    classes: watch::Sender<Arc<LiveClasses>>,
    stopper: Stopper,
    events: std_mpsc::Receiver<Event>,
    threads: Vec<JoinHandle<()>>,
    /// How many of these are known to have ended.
    ended: usize,
    admin: Option<(watch::Sender<bool>, JoinHandle<()>)>,
    /// Held until all threads have ended.
    _data: Arc<DataDir>,
}

/// Stops a node from any thread.
#[derive(Clone)]
pub struct Stopper {
    stop: watch::Sender<Stop>,
    phase: Phase,
    clock: Clock,
    drain: Duration,
}

impl Stopper {
    /// Takes nothing new, finishes what is in flight within the configured drain, flushes.
    pub fn drain(&self) {
        self.phase.set(Phase::DRAINING);
        let until_ms = now_ms(&self.clock).saturating_add(u64::try_from(self.drain.as_millis()).unwrap_or(u64::MAX));
        self.stop.send_if_modified(|stop| {
            let first = *stop == Stop::No;
            if first {
                *stop = Stop::Drain { until_ms };
            }
            first
        });
    }

    /// Drops what is in flight and stops.
    pub fn abort(&self) {
        self.phase.set(Phase::DRAINING);
        self.stop.send_replace(Stop::Now);
    }
}

/// Starts nodes.
#[derive(Clone, Copy, Debug)]
pub struct Node;

impl Node {
    /// Starts a node; returns once every core takes requests.
    ///
    /// # Errors
    /// Why it could not start; nothing of it runs on.
    pub fn start(config: NodeConfig) -> Result<NodeHandle, Fatal> {
        Self::start_by(config, Clock::System, None)
    }

    /// Starts a node whose storage is on this disk instead of the machine's.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn start_on(config: NodeConfig, disk: NodeDisk) -> Result<NodeHandle, Fatal> {
        Self::start_by(config, Clock::System, Some(disk))
    }

    /// Starts a node that lives by this clock, on this disk instead of the machine's if there is one.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn start_by(config: NodeConfig, clock: Clock, disk: Option<NodeDisk>) -> Result<NodeHandle, Fatal> {
        Start::new(config, clock)?.run(disk)
    }
}

/// A node while it starts.
struct Start {
    handle: NodeHandle,
    event_sender: std_mpsc::Sender<Event>,
    metrics: Arc<Metrics>,
    clock: Clock,
    cores: Arc<std::sync::OnceLock<Cores>>,
    /// Bound; these listen once the cores are ready.
    socket: Option<TcpSocket>,
    api_socket: Option<TcpSocket>,
}

impl Start {
    /// Everything up to the admin listener.
    fn new(config: NodeConfig, clock: Clock) -> Result<Self, Fatal> {
        let config = Arc::new(config);
        let data = Arc::new(DataDir::open(&config.data_dir)?);
        data.settle_shards(config.natives.iter().filter_map(|native| Some((&*native.name, native.shards()?))))?;
        let (socket, http_addr) = bind("--listen", config.listen)?;
        let (admin_socket, admin_addr) = bind("--admin", config.admin)?;
        let (api_socket, api_addr) = config.api.map(|api| bind("--api", api)).transpose()?.unzip();
        let metrics = Arc::new(Metrics::new(config.app.clone()));
        let (phase, cores) = (Phase::default(), Arc::default());
        let (event_sender, events) = std_mpsc::channel();
        let (admin_stop, admin_stopped) = watch::channel(false);
        let admin_setup = AdminSetup {
            token: config.admin_token.clone(),
            loopback: admin_addr.ip().is_loopback(),
            phase: phase.clone(),
            metrics: Arc::clone(&metrics),
            cores: Arc::clone(&cores),
            natives: config.natives.clone(),
            data: Arc::clone(&data),
        };
        let runtime = runtime()?;
        let admin_listener = listen("--admin", &runtime, admin_socket, admin_addr)?;
        let admin = spawn("wk-admin", false, &event_sender, move || {
            let local = LocalSet::new();
            runtime.block_on(local.run_until(admin::serve(admin_listener, admin_setup, admin_stopped)));
            Ok(())
        })?;
        let (classes, _) = watch::channel(Arc::new(LiveClasses::new(&config.classes, &config.natives)));
        let stopper = Stopper { stop: watch::channel(Stop::No).0, phase, clock: clock.clone(), drain: config.budgets.drain };
        let admin = Some((admin_stop, admin));
        let handle = NodeHandle {
            http_addr,
            admin_addr,
            api_addr,
            config,
            classes,
            stopper,
            events,
            threads: Vec::new(),
            ended: 0,
            admin,
            _data: data,
        };
        Ok(Self { handle, event_sender, metrics, clock, cores, socket: Some(socket), api_socket })
    }

    fn run(mut self, disk: Option<NodeDisk>) -> Result<NodeHandle, Fatal> {
        if let Err(fatal) = self.threads(disk) {
            // Whatever has started ends before the reason is told.
            self.handle.stopper.abort();
            drop(self.event_sender);
            let _later = self.handle.wait();
            return Err(fatal);
        }
        self.handle.stopper.phase.set(Phase::SERVING);
        Ok(self.handle)
    }

    fn threads(&mut self, disk: Option<NodeDisk>) -> Result<(), Fatal> {
        let config = Arc::clone(&self.handle.config);
        let (cores, seeds) = core::prepare(&config, &self.handle._data, &self.clock, disk)?;
        let _set_once = self.cores.set(cores.clone());
        let cpus = allowed_cpus();
        let (mut senders, mut api_senders) = (Vec::new(), Vec::new());
        let entrance = self.handle.api_addr.map(|api| Entrance::new(config.api_tokens.as_deref(), api.ip().is_loopback()));
        let entrance = entrance.map(Arc::new);
        for (index, seed) in seeds.into_iter().enumerate() {
            let (sender, incoming) = mpsc::channel(INCOMING_MAX);
            senders.push(sender);
            let door = entrance.as_ref().map(|entrance| {
                let (sender, incoming) = mpsc::channel(INCOMING_MAX);
                api_senders.push(sender);
                DoorSetup { incoming, natives: config.natives.clone(), entrance: Arc::clone(entrance) }
            });
            let setup = self.setup(index, cores.clone(), incoming, door);
            let cpu = config.pinned.then(|| cpus.get(index % cpus.len().max(1)).copied()).flatten();
            let thread = spawn(&format!("wk-core-{index}"), true, &self.event_sender, move || core_thread(cpu, setup, seed))?;
            self.handle.threads.push(thread);
        }
        self.await_ready(senders.len())?;
        let runtime = runtime()?;
        let Some(socket) = self.socket.take() else { return Ok(()) };
        let listener = listen("--listen", &runtime, socket, self.handle.http_addr)?;
        let api = self.api_socket.take().zip(self.handle.api_addr);
        let api = api.map(|(socket, address)| listen("--api", &runtime, socket, address)).transpose()?;
        let (stop, api_stop) = (self.handle.stopper.stop.subscribe(), self.handle.stopper.stop.subscribe());
        let acceptor = spawn("wk-accept", false, &self.event_sender, move || {
            let api = async {
                match api {
                    Some(listener) => accept::deal(listener, api_senders, api_stop).await,
                    None => drop(api_stop),
                }
            };
            runtime.block_on(async { tokio::join!(accept::deal(listener, senders, stop), api) });
            Ok(())
        })?;
        self.handle.threads.push(acceptor);
        Ok(())
    }

    fn setup(
        &self,
        index: usize,
        cores: Cores,
        incoming: mpsc::Receiver<std::net::TcpStream>,
        door: Option<DoorSetup>,
    ) -> CoreSetup {
        let core_metrics = self.metrics.core(index);
        let (stop, classes) = (self.handle.stopper.stop.subscribe(), self.handle.classes.subscribe());
        let http = HttpSetup {
            incoming,
            door,
            stop: stop.clone(),
            classes: classes.clone(),
            metrics: core_metrics.clone(),
            clock: self.clock.clone(),
            sweep: Duration::from_millis(SWEEP_MS),
        };
        CoreSetup {
            index,
            count: cores.count(),
            config: Arc::clone(&self.handle.config),
            data: Arc::clone(&self.handle._data),
            cores,
            http,
            stop,
            classes,
            metrics: Arc::clone(&self.metrics),
            core_metrics,
            clock: self.clock.clone(),
            ready: Ready(self.event_sender.clone()),
        }
    }

    fn await_ready(&mut self, count: usize) -> Result<(), Fatal> {
        for _ in 0..count {
            match self.handle.events.recv() {
                Ok(Event::Ready) => {}
                Ok(Event::Ended { thread, core, result }) => {
                    self.handle.ended += usize::from(core);
                    return Err(result.err().unwrap_or_else(|| ended(thread)));
                }
                Err(_) => return Err(ended("every thread".into())),
            }
        }
        Ok(())
    }
}

impl NodeHandle {
    /// Where requests are served.
    #[must_use]
    pub fn http_addr(&self) -> SocketAddr {
        self.http_addr
    }

    /// Where the admin listener is.
    #[must_use]
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// Where the service door is, if there is one.
    #[must_use]
    pub fn api_addr(&self) -> Option<SocketAddr> {
        self.api_addr
    }

    /// What it was started with.
    #[must_use]
    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    /// A handle that stops this node.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// A handle that reloads this node.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        Reloader { started: Arc::clone(&self.config), classes: self.classes.clone() }
    }

    /// Drains and stops; returns at once. [`NodeHandle::wait`] tells the end.
    pub fn shutdown(&self) {
        self.stopper.drain();
    }

    /// Waits until the node has stopped.
    ///
    /// # Errors
    /// What ended it, if nobody asked it to stop, or what went wrong while it stopped.
    pub fn wait(mut self) -> Result<(), Fatal> {
        let mut running = self.threads.len() - self.ended;
        let (mut first, mut now_since_ms) = (None, None);
        while running > 0 {
            match self.events.recv_timeout(WAIT_STEP) {
                Ok(Event::Ready) => {}
                Ok(Event::Ended { thread, core, result }) => {
                    running -= usize::from(core || thread == "wk-accept");
                    let early = *self.stopper.stop.borrow() == Stop::No;
                    let fatal = result.err().or_else(|| early.then(|| ended(thread)));
                    if let Some(fatal) = fatal {
                        self.stopper.abort();
                        first.get_or_insert(fatal);
                    }
                }
                Err(std_mpsc::RecvTimeoutError::Timeout) => {
                    if self.takes_too_long(&mut now_since_ms) {
                        return Err(first.unwrap_or_else(|| Fatal::Thread {
                            thread: format!("{running} of the node's threads"),
                            detail: "did not end in time; what was acknowledged is in the journal".into(),
                        }));
                    }
                }
                Err(std_mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        for thread in self.threads.drain(..) {
            let _told_already = thread.join();
        }
        if let Some((stop, thread)) = self.admin.take() {
            stop.send_replace(true);
            let _told_already = thread.join();
        }
        first.map_or(Ok(()), Err)
    }

    fn takes_too_long(&self, now_since_ms: &mut Option<u64>) -> bool {
        let now_ms = now_ms(&self.stopper.clock);
        let until_ms = match *self.stopper.stop.borrow() {
            Stop::No => return false,
            Stop::Drain { until_ms } => until_ms,
            Stop::Now => *now_since_ms.get_or_insert(now_ms),
        };
        now_ms > until_ms.saturating_add(STOP_FLUSH_MS_MAX)
    }
}

/// Reloads a node from any thread.
#[derive(Clone)]
pub struct Reloader {
    started: Arc<NodeConfig>,
    classes: watch::Sender<Arc<LiveClasses>>,
}

impl Reloader {
    /// Takes access and variables from a new configuration. Returns what else has changed and waits for a restart.
    #[must_use]
    pub fn reload(&self, config: &NodeConfig) -> Vec<String> {
        let old = &self.started;
        let mut waiting = Vec::new();
        let mut live = Vec::new();
        for class in &old.classes {
            match config.classes.iter().find(|new| new.name == class.name) {
                Some(new) => {
                    if new.component != class.component {
                        waiting.push(format!("the component of class {}", class.name));
                    }
                    live.push(new.clone());
                }
                None => {
                    waiting.push(format!("the removal of class {}", class.name));
                    live.push(class.clone());
                }
            }
        }
        let added = config.classes.iter().filter(|new| old.classes.iter().all(|class| class.name != new.name));
        waiting.extend(added.map(|class| format!("the new class {}", class.name)));
        let rest = NodeConfig { classes: old.classes.clone(), ..config.clone() };
        if rest != **old {
            waiting.push("settings of the node".into());
        }
        self.classes.send_replace(Arc::new(LiveClasses::new(&live, &old.natives)));
        waiting
    }
}

fn core_thread(cpu: Option<usize>, setup: CoreSetup, seed: CoreSeed) -> Result<(), Fatal> {
    if let Some(cpu) = cpu
        && let Err(error) = pin(cpu)
    {
        tracing::warn!("core {} is not bound to CPU {cpu}: {error}", setup.index);
    }
    let runtime = runtime()?;
    let local = LocalSet::new();
    local.spawn_local(vitals::watch(setup.core_metrics.clone(), setup.clock.clone()));
    runtime.block_on(local.run_until(Box::pin(core::run(setup, seed))))
}

/// Binds the calling thread to one CPU.
fn pin(cpu: usize) -> std::io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the number came out of such a set, so it is below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the size is the set's own; 0 is the calling thread.
    let refused = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } != 0;
    if refused { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

fn now_ms(clock: &Clock) -> u64 {
    clock.monotonic_ns() / 1_000_000
}

fn runtime() -> Result<Runtime, Fatal> {
    Builder::new_current_thread().enable_all().build().map_err(|source| Fatal::System { what: "starting an executor", source })
}

fn bind(what: &'static str, address: SocketAddr) -> Result<(TcpSocket, SocketAddr), Fatal> {
    let listen = |source| Fatal::Listen { what, address, source };
    let socket = accept::bind(address).map_err(listen)?;
    let bound = socket.local_addr().map_err(listen)?;
    Ok((socket, bound))
}

/// Listens on a bound socket within a runtime that will accept from it.
fn listen(what: &'static str, runtime: &Runtime, socket: TcpSocket, address: SocketAddr) -> Result<TcpListener, Fatal> {
    let _context = runtime.enter();
    accept::listen(socket).map_err(|source| Fatal::Listen { what, address, source })
}

fn ended(thread: String) -> Fatal {
    Fatal::Thread { thread, detail: "it ended although nobody asked it to".into() }
}

/// Starts a thread that tells how it ended, even by a panic: a thread of a node never dies unseen.
fn spawn(
    name: &str,
    core: bool,
    events: &std_mpsc::Sender<Event>,
    body: impl FnOnce() -> Result<(), Fatal> + Send + 'static,
) -> Result<JoinHandle<()>, Fatal> {
    let (thread, events) = (name.to_string(), events.clone());
    let run = move || {
        let result = catch_unwind(AssertUnwindSafe(body))
            .unwrap_or_else(|panic| Err(Fatal::Thread { thread: thread.clone(), detail: words(panic.as_ref()) }));
        let _nobody_waits = events.send(Event::Ended { thread, core, result });
    };
    thread::Builder::new().name(name.to_string()).spawn(run).map_err(|source| Fatal::System { what: "starting a thread", source })
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string).or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "it panicked".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Access, ClassConfig};

    #[test]
    fn a_reload_takes_access_and_variables_and_names_what_waits_for_a_restart() {
        let (classes, receiver) = watch::channel(Arc::default());
        let old =
            NodeConfig { classes: vec![ClassConfig::new("a", "a.wasm"), ClassConfig::new("b", "b.wasm")], ..NodeConfig::default() };
        let reloader = Reloader { started: Arc::new(old.clone()), classes };
        let mut new = old;
        new.classes[0].access = Access::Internal;
        new.classes[0].env.0.insert("X".into(), "1".into());
        assert_eq!(reloader.reload(&new), Vec::<String>::new());
        let live = receiver.borrow().get("a").cloned().expect("served");
        assert_eq!((live.access, live.env.0["X"].as_str()), (Access::Internal, "1"));
        new.classes[0].component = "other.wasm".into();
        new.classes.remove(1);
        new.classes.push(ClassConfig::new("c", "c.wasm"));
        new.budgets.drain = Duration::from_secs(1);
        let waiting = reloader.reload(&new);
        assert_eq!(waiting, ["the component of class a", "the removal of class b", "the new class c", "settings of the node"]);
        assert!(receiver.borrow().get("b").is_some() && receiver.borrow().get("c").is_none());
    }

    #[test]
    fn a_thread_that_panics_is_an_end_with_its_words() {
        let (sender, events) = std_mpsc::channel();
        let thread = spawn("wk-test", true, &sender, || panic!("on purpose")).expect("starts");
        thread.join().expect("the panic is caught");
        match events.recv() {
            Ok(Event::Ended { result: Err(Fatal::Thread { thread, detail }), .. }) => {
                assert_eq!((thread.as_str(), detail.as_str()), ("wk-test", "on purpose"));
            }
            other => panic!("{other:?}"),
        }
    }
}
