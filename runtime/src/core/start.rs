//! How cores come to be and end: components compiled, journals recovered, one core's life from its thread's start to its end.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Barrier, Notify, mpsc, watch};
use wasmkeep_storage::Lsn;
use wasmkeep_storage::clock::Clock;
use wasmkeep_storage::disk::os::OsFiles;
use wasmkeep_storage::journal::inspect;
use wasmkeep_storage::store::{CorePart, CoreStore, NodeStorage, NodeStorageOptions, StoreOptions};

use super::actor::Stop;
use super::disk::NodeDisk;
use super::gate::Gates;
use super::native::Native;
use super::operator::Cores;
use super::wake::Remote;
use super::{Class, Core, CoreHandle, Kind, Outbox, alarms, pump};
use crate::config::{LiveClasses, NodeConfig};
use crate::data_dir::DataDir;
use crate::fatal::Fatal;
use crate::http;
use crate::limits::{CORE_SWEEP_MS, REMOTE_MAX, STOP_ACTORS_MS_MAX};
use crate::memory;
use crate::node::{self, CoreSetup};
use crate::wasm::limits::RESIDENTS_DEFAULT;
use crate::wasm::{Engine, EngineOptions, Program};

/// What one core starts from.
pub struct CoreSeed {
    part: CorePart,
    disk: Arc<NodeDisk>,
    programs: Arc<Vec<(Arc<str>, Program)>>,
    residents_max: usize,
    senders: Vec<mpsc::Sender<Remote>>,
    remote: mpsc::Receiver<Remote>,
    /// Passed by every core once when its storage is open and once when it serves nobody any more: until then others may need it.
    barrier: Arc<Barrier>,
}

/// Makes everything the cores of a node need, before any of them runs: components compiled, journals recovered. Without a disk
/// of its own the node gets the machine's.
///
/// # Errors
/// Why the node cannot start.
pub fn prepare(
    config: &NodeConfig,
    data: &DataDir,
    clock: &Clock,
    disk: Option<NodeDisk>,
) -> Result<(Cores, Vec<CoreSeed>), Fatal> {
    raise_open_files();
    let (programs, residents) = compile(config, data.path(), clock)?;
    let options = NodeStorageOptions {
        data: data.path().to_owned(),
        cores: config.cores,
        incarnation: data.incarnation(),
        accept_journal_loss: config.accept_journal_loss,
    };
    let disk = Arc::new(match disk {
        Some(disk) => disk,
        None => NodeDisk::os(config, &options.data.join("journal"))?,
    });
    let parts = NodeStorage::recover(&disk.files, &options)?;
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..config.cores).map(|_| mpsc::channel(REMOTE_MAX)).unzip();
    let barrier = Arc::new(Barrier::new(config.cores));
    let seeds = parts
        .into_iter()
        .zip(receivers)
        .map(|(part, remote)| CoreSeed {
            part,
            disk: Arc::clone(&disk),
            programs: Arc::clone(&programs),
            residents_max: (residents / config.cores).max(1),
            senders: senders.clone(),
            remote,
            barrier: Arc::clone(&barrier),
        })
        .collect();
    Ok((Cores { senders }, seeds))
}

/// Every class's component, compiled; and how many instances there may be.
type Compiled = (Arc<Vec<(Arc<str>, Program)>>, usize);

fn compile(config: &NodeConfig, data: &Path, clock: &Clock) -> Result<Compiled, Fatal> {
    let component = |class: &str, detail: String| Fatal::Component { class: class.to_owned(), detail };
    if config.classes.is_empty() {
        return Ok((Arc::default(), RESIDENTS_DEFAULT as usize));
    }
    let options = EngineOptions { residents: RESIDENTS_DEFAULT, clock: clock.clone() };
    let engine = Engine::new(options).map_err(|error| component("(all)", error.to_string()))?;
    let cache = data.join("components");
    let mut programs = Vec::new();
    for class in &config.classes {
        let program =
            Program::load(&engine, Some(&cache), &class.component).map_err(|error| component(&class.name, error.to_string()))?;
        programs.push((Arc::clone(&class.name), program));
    }
    // Compiling took much more than what it made.
    memory::give_back_own();
    Ok((Arc::new(programs), engine.residents() as usize))
}

/// Every resident actor with a base file holds it open: as many files as the system lets us.
fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is a valid place to write to, and then to read from.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// One core's life, on its own thread, until the node stops.
///
/// # Errors
/// Why the node cannot go on.
pub async fn run(setup: CoreSetup, seed: CoreSeed) -> Result<(), Fatal> {
    let CoreSetup { index, config, data, http, classes, metrics, core_metrics, clock, ready, mut stop, .. } = setup;
    let CoreSeed { part, disk, programs, residents_max, senders, remote, barrier } = seed;
    let store = open_store(index, &config, data.path(), &clock, part, &disk)?;
    store.started().await?;
    if !all_here(&barrier, &mut stop).await {
        return Ok(());
    }
    let live = classes;
    let live_now = Arc::clone(&live.borrow());
    let class = |name: &Arc<str>, kind| {
        let class = Class { name: Arc::clone(name), kind, env: RefCell::default(), metrics: metrics.class(name) };
        (Arc::clone(name), Rc::new(class))
    };
    let guests = programs.iter().map(|(name, program)| class(name, Kind::Guest(program.clone())));
    let natives = config.natives.iter().map(|native| class(&native.name, Kind::Native(Native::new(native.clone()))));
    let classes = guests.chain(natives).collect();
    let core = Rc::new(Core {
        index,
        config,
        clock,
        store,
        classes,
        metrics: core_metrics,
        inbox: RefCell::new(VecDeque::new()),
        turn_wanted: Cell::new(false),
        pump: RefCell::new(None),
        outboxes: senders.iter().map(|_| Outbox { queue: RefCell::default(), filled: Notify::new() }).collect(),
        actors: RefCell::new(HashMap::new()),
        residents: RefCell::new(VecDeque::new()),
        residents_max,
        gates: RefCell::new(Gates::default()),
        slots: RefCell::new(HashMap::new()),
        slots_given: Cell::new(0),
        events: Cell::new(0),
        room: Notify::new(),
        breaking: Cell::new(0),
        lost: Cell::new((Lsn::ZERO, Lsn::ZERO)),
        alarms: RefCell::default(),
        alarms_wanted: Notify::new(),
        peak: Cell::default(),
    });
    core.reload(&live_now);
    let mut sweep = tokio::time::interval(Duration::from_millis(CORE_SWEEP_MS));
    sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    tokio::task::spawn_local(pump::run(Rc::clone(&core), remote, sweep));
    for (other, sender) in senders.into_iter().enumerate().filter(|(other, _)| *other != index) {
        tokio::task::spawn_local(pump::send_to(Rc::clone(&core), other, sender));
    }
    tokio::task::spawn_local(follow(Rc::clone(&core), live));
    tokio::task::spawn_local(core.store.clone().run_checkpoints());
    tokio::task::spawn_local(alarms::keep(Rc::clone(&core)));
    tokio::task::spawn_local(alarms::end_with(Rc::clone(&core), stop.clone()));
    ready.tell();
    http::serve(CoreHandle(Rc::clone(&core)), http).await;
    all_here(&barrier, &mut stop).await;
    core.put_to_sleep().await;
    core.store.close().await?;
    Ok(())
}

/// Waits for all cores to come here, unless the node is to end at once: one of them may have ended already.
async fn all_here(barrier: &Barrier, stop: &mut watch::Receiver<node::Stop>) -> bool {
    tokio::select! {
        _ = barrier.wait() => true,
        _ = stop.wait_for(|stop| *stop == node::Stop::Now) => false,
    }
}

fn open_store(
    index: usize,
    config: &NodeConfig,
    data: &Path,
    clock: &Clock,
    part: CorePart,
    disk: &NodeDisk,
) -> Result<CoreStore, Fatal> {
    let options = StoreOptions {
        data: data.to_owned(),
        core: index,
        cores: config.cores,
        clock: clock.clone(),
        database_bytes_max: config.budgets.database_bytes,
        journal_bytes_max: config.budgets.journal_bytes,
        segment_bytes: disk.segment_bytes,
        accept_journal_loss: config.accept_journal_loss,
    };
    Ok(CoreStore::open(options, part, disk.open(index)?)?)
}

/// Takes over changed variables of classes as they are told.
async fn follow(core: Rc<Core>, mut classes: tokio::sync::watch::Receiver<Arc<LiveClasses>>) {
    while classes.changed().await.is_ok() {
        let now = Arc::clone(&classes.borrow_and_update());
        core.reload(&now);
    }
}

impl Core {
    /// Variables reach an actor when it next wakes.
    fn reload(&self, live: &LiveClasses) {
        for class in self.classes.values() {
            if let Some(live) = live.get(&class.name) {
                class.env.replace(Arc::new(live.env.0.clone()));
            }
        }
    }

    /// Nobody asks any more: lets every actor finish and hibernate.
    async fn put_to_sleep(&self) {
        let until_ns = self.now_ns().saturating_add(STOP_ACTORS_MS_MAX * 1_000_000);
        while !self.actors.borrow().is_empty() && self.now_ns() < until_ns {
            for actor in self.actors.borrow().values() {
                if !actor.is_running() {
                    actor.stop(Stop::Hibernate);
                }
            }
            self.want_turn();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for actor in self.actors.borrow().values() {
            actor.stop(Stop::Deadline);
        }
    }
}

/// Checks a component without running it.
///
/// # Errors
/// What is wrong with it and how to fix it.
pub fn check_component(path: &Path) -> Result<(), String> {
    let options = EngineOptions { residents: crate::wasm::limits::RESIDENTS_MIN, clock: Clock::System };
    let engine = Engine::new(options).map_err(|error| error.to_string())?;
    Program::load(&engine, None, path).map(drop).map_err(|error| error.to_string())
}

/// Describes a journal file.
///
/// # Errors
/// Why it cannot be read.
pub fn inspect_journal(path: &Path, json: bool) -> Result<String, Fatal> {
    let inspection = inspect(&*OsFiles::shared(), path)?;
    // Numbers and strings: this cannot fail.
    Ok(if json { serde_json::to_string(&inspection).unwrap_or_default() } else { inspection.to_string() })
}
