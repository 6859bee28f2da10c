//! Random lives of a data directory. `WASMKEEP_SEEDS` says how many, `WASMKEEP_SEED` replays one.
//!
//! After each power cut the content of every actor, facts included, is a prefix of its runs that holds every acknowledged one and
//! none that was lost; the prefixes of one core's actors together are a prefix of that core's log; each database is sound.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use wasmkeep_storage::disk::sim::{Fate, Fault};
use wasmkeep_storage::store::{Alarm, Meta, Opened, Progress};
use wasmkeep_storage::{Lsn, StorageError, Value};

use crate::bed::{Bed, Node, address, run};

const SEEDS: u64 = 300;
const ACTORS: usize = 7;

#[test]
fn after_any_life_and_power_cut_nothing_acknowledged_is_lost_and_nothing_lost_comes_back() {
    let seed = std::env::var("WASMKEEP_SEED").ok().map(|seed| seed.parse().expect("WASMKEEP_SEED is a number"));
    let seeds = std::env::var("WASMKEEP_SEEDS").map_or(SEEDS, |n| n.parse().expect("WASMKEEP_SEEDS is a number"));
    let mut seen = Seen::default();
    for seed in seed.map_or(0..seeds, |seed: u64| seed..seed + 1) {
        match std::panic::catch_unwind(|| run(Life::new(seed).live())) {
            Ok(life) => seen.add(&life),
            Err(panic) => {
                eprintln!("seed {seed} failed; replay it with WASMKEEP_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    eprintln!("{seen:?}");
    assert!(seed.is_some() || seeds < 200 || seen.all(), "the lives never went through something: {seen:?}");
}

/// What the lives went through together.
#[derive(Default, Debug)]
struct Seen {
    acknowledged: u64,
    kept_unacknowledged: u64,
    refused: u64,
    failures: u64,
    restarts: u64,
    power_cuts: u64,
    clean_stops: u64,
    pages_checkpointed: u64,
    hibernations: u64,
}

impl Seen {
    fn add(&mut self, other: &Self) {
        let [mine, theirs] = [self.fields(), other.fields()];
        let sum: Vec<_> = mine.iter().zip(theirs).map(|(a, b)| a + b).collect();
        let [a, b, c, d, e, f, g, h, i] = sum[..] else { return };
        (self.acknowledged, self.kept_unacknowledged, self.refused, self.failures, self.restarts) = (a, b, c, d, e);
        (self.power_cuts, self.clean_stops, self.pages_checkpointed, self.hibernations) = (f, g, h, i);
    }

    const fn fields(&self) -> [u64; 9] {
        let Self { acknowledged, kept_unacknowledged, refused, failures, restarts, .. } = self;
        let Self { power_cuts, clean_stops, pages_checkpointed, hibernations, .. } = self;
        [
            *acknowledged,
            *kept_unacknowledged,
            *refused,
            *failures,
            *restarts,
            *power_cuts,
            *clean_stops,
            *pages_checkpointed,
            *hibernations,
        ]
    }

    fn all(&self) -> bool {
        self.fields().iter().all(|n| *n > 10)
    }
}

/// What one run of an actor did, as one transaction and perhaps new facts.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Never used twice, so that content that comes back is recognised.
    id: u64,
    row: bool,
    meta: bool,
    core: usize,
    first: Lsn,
    last: Lsn,
}

#[derive(Clone, Default, Debug)]
struct Model {
    runs: Vec<Run>,
    /// Runs that must be there.
    acknowledged: usize,
    /// From this run on they were lost with a group, though a crash before the restart may bring them back.
    lost_from: Option<usize>,
}

/// What is in a database, and what is known of its actor.
type State = (Vec<(i64, i64, i64)>, u128);

impl Model {
    /// The state after so many runs: each adds a row, grows with its id, and now and then deletes all but the newest rows.
    fn state(&self, runs: usize) -> State {
        let (mut rows, mut meta): State = (Vec::new(), 0);
        for run in &self.runs[..runs] {
            if run.row {
                let n = rows.last().map_or(0, |(n, ..)| *n) + 1;
                rows.push((n, run.id.cast_signed(), length(run.id)));
                if run.id.is_multiple_of(11) {
                    rows.retain(|(old, ..)| *old > n - 2);
                }
            }
            if run.meta {
                meta = u128::from(run.id);
            }
        }
        (rows, meta)
    }
}

fn length(id: u64) -> i64 {
    if id.is_multiple_of(5) { 9_000 } else { i64::try_from(id % 400).unwrap() }
}

struct Life {
    rng: fastrand::Rng,
    bed: Bed,
    models: Vec<Model>,
    next_id: u64,
    /// Faults given to this incarnation's disk.
    faults: u64,
    seen: Seen,
}

fn name(actor: usize) -> String {
    format!("a{actor}")
}

fn meta_of(id: u64) -> Meta {
    let alarm = id.is_multiple_of(2).then_some(Alarm { at_ms: id, generation: id, attempt: 1 });
    Meta { init_version: u128::from(id), alarm }
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let segment_bytes = 4096 * rng.u64(16..40);
        let bed = Bed { segment_bytes, journal_bytes_max: segment_bytes * rng.u64(3..8), ..Bed::new() };
        Self { rng, bed, models: vec![Model::default(); ACTORS], next_id: 0, faults: 0, seen: Seen::default() }
    }

    async fn live(mut self) -> Seen {
        for _ in 0..self.rng.u64(2..5) {
            if self.rng.u8(..3) > 0 {
                self.bed.sim.cut_power_after(self.rng.u64(..1_500));
            }
            self.incarnation().await;
            self.seen.power_cuts += u64::from(self.bed.sim.is_dead());
            self.bed = self.bed.crashed(self.rng.u64(..));
        }
        let cores = self.rng.usize(1..4);
        let node = self.bed.serve(cores).await;
        self.check(&node);
        self.seen
    }

    async fn incarnation(&mut self) {
        let cores = self.rng.usize(1..4);
        let node = match self.bed.start(cores) {
            Ok(node) => node,
            Err(error) => return assert!(self.bed.sim.is_dead(), "a start failed: {error}"),
        };
        for _ in 0..3 {
            node.pump().await;
        }
        if self.bed.sim.is_dead() {
            return;
        }
        assert!(node.stores.iter().all(|store| store.durable() == store.newest()));
        // Reading needs the disk too: the power may go meanwhile.
        let power_left = self.bed.sim.clone();
        if self.rng.bool() {
            power_left.cut_power_after(u64::MAX);
            self.check(&node);
            if self.rng.bool() {
                power_left.cut_power_after(self.rng.u64(..1_200));
            }
        } else {
            self.check_on_copy(&node).await;
        }
        let mut opened: BTreeMap<usize, Opened> = BTreeMap::new();
        self.bed.sim.pause();
        self.faults = 0;
        for _ in 0..self.rng.u64(..100) {
            self.step(&node, &mut opened).await;
            if self.bed.sim.is_dead() {
                break;
            }
        }
        if !self.bed.sim.is_dead() && self.rng.u8(..3) == 0 {
            self.stop(node, opened).await;
        } else {
            self.seen.pages_checkpointed += node.stores.iter().map(|store| store.stats().pages_checkpointed).sum::<u64>();
        }
    }

    /// Checks what a start found on another node over a crash image of the disk as it is: the true one stays untouched.
    async fn check_on_copy(&mut self, node: &Node) {
        let mut copy = self.bed.crashed(self.rng.u64(..));
        let cores = node.stores.len();
        let second = copy.serve(cores).await;
        self.check(&second);
    }

    async fn stop(&mut self, node: Node, opened: BTreeMap<usize, Opened>) {
        drop(opened);
        self.bed.sim.resume();
        self.bed.sim.fail_files(None);
        self.bed.sim.fail_all(None);
        for _ in 0..20 {
            self.listen(&node, &mut BTreeMap::new()).await;
            node.stores.iter().for_each(wasmkeep_storage::store::CoreStore::sweep);
        }
        self.seen.pages_checkpointed += node.stores.iter().map(|store| store.stats().pages_checkpointed).sum::<u64>();
        let stopped = node.close().await;
        // A fault still to come may have struck the stop's own records: then it was none, and the journal has everything.
        let struck = self.faults > 0 && matches!(stopped, Err(StorageError::Restarting));
        if !self.bed.sim.is_dead() && !struck {
            stopped.unwrap();
            self.seen.clean_stops += 1;
            self.models.iter_mut().for_each(|model| model.acknowledged = model.runs.len());
        }
    }

    async fn step(&mut self, node: &Node, opened: &mut BTreeMap<usize, Opened>) {
        match self.rng.u8(..40) {
            0..20 => self.run_actor(node, opened),
            20..28 => {
                for _ in 0..self.rng.usize(..3) {
                    let in_flight = self.bed.sim.in_flight();
                    if in_flight > 0 {
                        self.bed.sim.complete(self.rng.usize(..in_flight));
                    }
                }
                self.listen(node, opened).await;
            }
            28..32 => {
                self.bed.sim.resume();
                self.listen(node, opened).await;
                self.bed.sim.pause();
            }
            32..34 => {
                let actor = self.rng.usize(..ACTORS);
                self.seen.hibernations += u64::from(opened.remove(&actor).is_some());
            }
            34..37 => {
                node.time.advance_ms(self.rng.u64(..2_000));
                node.stores.iter().for_each(wasmkeep_storage::store::CoreStore::sweep);
                self.listen(node, opened).await;
            }
            37 => {
                let fault = self.rng.choice([Fault::Eio, Fault::Enospc, Fault::Short]).unwrap();
                let fate = self.rng.choice([Fate::Lost, Fate::Kept, Fate::Undecided]).unwrap();
                self.faults += 1;
                self.bed.sim.fail_next(fault, fate);
            }
            38 => {
                let errno = self.rng.choice([None, None, Some(28), Some(5)]).unwrap();
                self.bed.sim.fail_files(errno);
            }
            _ => self.listen(node, opened).await,
        }
    }

    /// One run: perhaps a transaction, perhaps new facts; nothing is cut in between.
    fn run_actor(&mut self, node: &Node, opened: &mut BTreeMap<usize, Opened>) {
        let actor = self.rng.usize(..ACTORS);
        let store = node.store(&name(actor)).clone();
        self.next_id += 1;
        let id = self.next_id;
        let mut done =
            Run { id, row: false, meta: false, core: node.core(&name(actor)), first: store.newest().next(), last: store.newest() };
        if self.rng.u8(..5) > 0 {
            if let Entry::Vacant(entry) = opened.entry(actor) {
                match node.try_open(&name(actor)) {
                    Ok(open) => {
                        entry.insert(open);
                    }
                    Err(error) => {
                        assert!(store.is_failed() || self.bed.sim.is_dead(), "{error}");
                        return;
                    }
                }
            }
            let keep = if id.is_multiple_of(11) { "DELETE FROM log WHERE n <= (SELECT max(n) FROM log) - 2;" } else { "" };
            let sql = format!(
                "BEGIN; CREATE TABLE IF NOT EXISTS log (n INTEGER PRIMARY KEY, id INTEGER, v BLOB);
                 INSERT INTO log SELECT coalesce(max(n), 0) + 1, {id}, CAST(printf('%.*c', {}, 'x') AS BLOB) FROM log; {keep} COMMIT",
                length(id)
            );
            let connection = &opened[&actor].connection;
            done.row = connection.exec_now(&sql, &[], self.rng.bool()).is_ok();
            connection.end_event();
            self.seen.refused += u64::from(!done.row);
        }
        if self.rng.u8(..4) == 0 {
            done.meta = store.record_meta(&address(&name(actor)), meta_of(id), self.rng.bool()).is_ok();
        }
        done.last = store.newest();
        if done.row || done.meta {
            self.models[actor].runs.push(done);
        }
        if self.rng.bool() {
            store.cut();
        }
    }

    /// Hears what the journals say, and does what a core does about it.
    async fn listen(&mut self, node: &Node, opened: &mut BTreeMap<usize, Opened>) {
        for _ in 0..8 {
            let heard = node.pump().await;
            let quiet = heard.is_empty();
            for (core, progress) in heard {
                let on_core = |actor: &usize| node.core(&name(*actor)) == core;
                match progress {
                    Progress::Durable(durable) => self.acknowledge(on_core, durable),
                    Progress::Failed { durable } => {
                        self.seen.failures += 1;
                        self.acknowledge(on_core, durable);
                        for actor in (0..ACTORS).filter(on_core) {
                            let model = &mut self.models[actor];
                            model.lost_from =
                                model.lost_from.or((model.acknowledged < model.runs.len()).then_some(model.acknowledged));
                        }
                        opened.retain(|actor, _| !on_core(actor));
                        node.stores[core].restart();
                    }
                    Progress::Restarted => {
                        self.seen.restarts += 1;
                        for actor in (0..ACTORS).filter(on_core) {
                            let model = &mut self.models[actor];
                            model.runs.truncate(model.lost_from.take().unwrap_or(usize::MAX));
                        }
                    }
                    Progress::RestartFailed => {}
                }
            }
            if quiet {
                break;
            }
        }
    }

    fn acknowledge(&mut self, on_core: impl Fn(&usize) -> bool, durable: Lsn) {
        for actor in (0..ACTORS).filter(on_core) {
            let model = &mut self.models[actor];
            let end = model.lost_from.unwrap_or(model.runs.len());
            while model.acknowledged < end && model.runs[model.acknowledged].last <= durable {
                model.acknowledged += 1;
                self.seen.acknowledged += 1;
            }
        }
    }

    /// Every actor is what some prefix of its runs made it; from now on that is its history.
    fn check(&mut self, node: &Node) {
        // Per core of the node before: the newest position found, and the oldest not found.
        let mut logs: BTreeMap<usize, (Lsn, Lsn)> = BTreeMap::new();
        for actor in 0..ACTORS {
            let found = read(node, &name(actor));
            let model = &mut self.models[actor];
            let fits = (model.acknowledged..=model.runs.len()).rev().find(|runs| model.state(*runs) == found);
            let Some(runs) = fits else {
                panic!("actor {actor}: found {found:?}, acknowledged {} of {model:?}", model.acknowledged)
            };
            self.seen.kept_unacknowledged += (runs - model.acknowledged) as u64;
            for (n, run) in model.runs.iter().enumerate().filter(|(_, run)| run.last > Lsn::ZERO) {
                let (newest, oldest) = logs.entry(run.core).or_insert((Lsn::ZERO, Lsn(u64::MAX)));
                if n < runs { *newest = run.last.max(*newest) } else { *oldest = run.first.min(*oldest) }
            }
            model.runs.truncate(runs);
            model.acknowledged = runs;
            model.lost_from = None;
            // Positions of an earlier node mean nothing to the next one.
            model.runs.iter_mut().for_each(|run| (run.first, run.last) = (Lsn::ZERO, Lsn::ZERO));
        }
        assert!(logs.values().all(|(newest, oldest)| newest < oldest), "what was found is no prefix of a core's log: {logs:?}");
    }
}

fn read(node: &Node, name: &str) -> State {
    let opened = node.open(name);
    let check = opened.connection.query_now("PRAGMA integrity_check", &[]).unwrap();
    assert_eq!(check.values, [Value::Text("ok".into())], "{name}");
    let found = opened.connection.query_now("SELECT n, id, length(v) FROM log ORDER BY n", &[]).unwrap_or_default();
    let integer = |value: &Value| if let Value::Integer(n) = value { *n } else { panic!("{value:?}") };
    let rows = found.values.chunks_exact(3).map(|row| (integer(&row[0]), integer(&row[1]), integer(&row[2]))).collect();
    let meta = node.store(name).meta(&address(name)).unwrap().unwrap_or_default();
    let id = u64::try_from(meta.init_version).unwrap();
    assert_eq!(meta, if id == 0 { Meta::default() } else { meta_of(id) }, "{name}: facts of several records are mixed");
    (rows, meta.init_version)
}
