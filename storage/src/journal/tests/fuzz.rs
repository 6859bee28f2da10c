//! Thousands of random lives of a data directory: appends, cuts, failures, restarts, recycling, power cuts, other numbers of
//! cores. `WASMKEEP_SEEDS` says how many, `WASMKEEP_SEED` replays one.
//!
//! After each power cut: what was acknowledged is there, what was declared lost is not, and what is there is right.

use std::collections::{BTreeMap, BTreeSet};

use super::super::segment::parse_journal_dir;
use super::super::{JournalId, retire};
use super::*;
use crate::disk::sim::{Fate, Fault};

const ACTORS: u64 = 6;
const SEEDS: u64 = 2000;

#[test]
fn nothing_acknowledged_is_lost_and_nothing_lost_comes_back() {
    let seed = std::env::var("WASMKEEP_SEED").ok().map(|seed| seed.parse().expect("WASMKEEP_SEED is a number"));
    let seeds = std::env::var("WASMKEEP_SEEDS").map_or(SEEDS, |n| n.parse().expect("WASMKEEP_SEEDS is a number"));
    let mut seen = Seen::default();
    for seed in seed.map_or(0..seeds, |seed: u64| seed..seed + 1) {
        let run = std::panic::catch_unwind(|| Life::new(seed).live());
        match run {
            Ok(life) => seen.add(&life),
            Err(panic) => {
                eprintln!("seed {seed} failed; replay it with WASMKEEP_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    // A fuzzer that never gets anywhere proves nothing.
    assert!(seed.is_some() || seeds < 500 || seen.all(), "{seen:?}");
}

/// What the lives together went through.
#[derive(Default, Debug)]
struct Seen {
    acknowledged: u64,
    failures: u64,
    restarts: u64,
    restart_failures: u64,
    kept_unacknowledged: u64,
    recycled: u64,
    retired: u64,
    power_cuts: u64,
}

impl Seen {
    fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.failures += other.failures;
        self.restarts += other.restarts;
        self.restart_failures += other.restart_failures;
        self.kept_unacknowledged += other.kept_unacknowledged;
        self.recycled += other.recycled;
        self.retired += other.retired;
        self.power_cuts += other.power_cuts;
    }

    fn all(&self) -> bool {
        let Self { acknowledged, failures, restarts, restart_failures, kept_unacknowledged, recycled, retired, power_cuts } = self;
        [acknowledged, failures, restarts, restart_failures, kept_unacknowledged, recycled, retired, power_cuts]
            .iter()
            .all(|n| **n > 100)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fact {
    /// Neither acknowledged nor declared lost.
    Pending,
    /// Must be found, or be in a base file.
    Acknowledged,
    /// Its group failed; may be found if the power goes before the restart is durable.
    Failed,
    /// Must not be found.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    actor: u64,
    sequence: u64,
    len_bytes: usize,
    fact: Fact,
}

struct Life {
    rng: fastrand::Rng,
    bed: Bed,
    incarnation: u64,
    journals: BTreeMap<JournalId, BTreeMap<u64, Entry>>,
    /// Per actor, the newest record that is in its base file.
    base: BTreeMap<u64, u64>,
    seen: Seen,
}

fn unique_body(journal: JournalId, lsn: u64, len_bytes: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(journal.incarnation << 48 | u64::from(journal.core) << 40 | lsn);
    let mut body = vec![0; len_bytes];
    rng.fill(&mut body);
    body
}

/// The power went.
struct Dead;

impl Life {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let bed = Bed { segment_bytes: 4096 * rng.u64(4..12), segments_max: rng.u64(3..7), ..Bed::new(Disk::Sim) };
        Self { rng, bed, incarnation: 0, journals: BTreeMap::new(), base: BTreeMap::new(), seen: Seen::default() }
    }

    fn live(mut self) -> Seen {
        for _ in 0..self.rng.u64(2..6) {
            let recovery = self.bed.recover();
            self.check(&recovery);
            self.incarnation += 1;
            self.bed.sim.pause();
            if self.rng.u8(..3) > 0 {
                let steps = self.rng.u64(..400);
                self.bed.sim.cut_power_after(steps);
            }
            if self.run(&recovery).is_err() {
                self.seen.power_cuts += 1;
            }
            let sim = self.bed.sim.crash_image(self.rng.u64(..));
            let (segment_bytes, segments_max) = (self.bed.segment_bytes, self.bed.segments_max);
            self.bed = Bed { segment_bytes, segments_max, ..Bed::over(sim) };
        }
        let recovery = self.bed.recover();
        self.check(&recovery);
        self.seen
    }

    /// One incarnation, until it ends or the power goes.
    fn run(&mut self, recovery: &Recovery) -> Result<(), Dead> {
        let cores = self.rng.u16(1..4);
        let mut journals = Vec::new();
        for core in 0..cores {
            let id = JournalId { incarnation: self.incarnation, core };
            self.journals.insert(id, BTreeMap::new());
            let journal = self.bed.try_journal(self.incarnation, core).map_err(|_| Dead)?;
            journal.set_recycling(recovery.ends.is_empty());
            if core == 0 && self.incarnation > 1 {
                self.state_ends(&journal, id, recovery)?;
            }
            journals.push((id, journal));
        }
        let mut old_gone = recovery.ends.is_empty();
        for _ in 0..self.rng.u32(..300) {
            if self.bed.sim.is_dead() {
                return Err(Dead);
            }
            let n = self.rng.usize(..journals.len());
            let (id, journal) = &journals[n];
            match self.rng.u8(..40) {
                0..12 => self.append(*id, journal, cores),
                12..17 => journal.cut(),
                17..20 => journal.end_run(),
                20..32 => self.complete_one(),
                32..34 => journal.restart(),
                34 => journal.retry_prepare(),
                35 | 36 => self.recycle(*id, journal, old_gone),
                37 if !old_gone => {
                    self.retire(recovery)?;
                    old_gone = true;
                    journals.iter().for_each(|(_, journal)| journal.set_recycling(true));
                }
                38 => {
                    let errno = if self.rng.bool() { Some(libc::ENOSPC) } else { None };
                    self.bed.sim.fail_files(errno);
                }
                _ => self.bed.sim.fail_files(None),
            }
            let (id, journal) = &journals[n];
            self.hear(*id, journal);
        }
        Ok(())
    }

    /// The first group of an incarnation, which nothing may precede.
    fn state_ends(&mut self, journal: &Journal, id: JournalId, recovery: &Recovery) -> Result<(), Dead> {
        journal.append_epoch_ends(&recovery.ends).map_err(|_| Dead)?;
        while journal.durable() == Lsn::ZERO {
            journal.cut();
            journal.restart();
            self.complete_one();
            self.hear(id, journal);
            if self.bed.sim.is_dead() {
                return Err(Dead);
            }
        }
        Ok(())
    }

    fn append(&mut self, id: JournalId, journal: &Journal, cores: u16) {
        let mut actor = self.rng.u64(..ACTORS);
        actor -= actor % u64::from(cores);
        actor += u64::from(id.core);
        let len_bytes = match self.rng.u8(..10) {
            0 => self.rng.usize(..9000),
            _ => self.rng.usize(..700),
        };
        let sequence = self.next_sequence(actor);
        let body = unique_body(id, journal.newest().0 + 1, len_bytes);
        let record = Record {
            actor: actor + 100,
            address: &address(actor),
            actor_sequence: sequence,
            kind: RecordKind::Pages,
            durable: true,
            size_pages: 7,
            page_count: 1,
            body: &body,
        };
        if let Ok(lsn) = journal.append(&record) {
            let entry = Entry { actor, sequence, len_bytes, fact: Fact::Pending };
            assert!(self.journals.get_mut(&id).unwrap().insert(lsn.0, entry).is_none(), "{lsn} is used twice");
        }
    }

    fn next_sequence(&self, actor: u64) -> u64 {
        let entries = self.journals.values().flat_map(BTreeMap::values);
        let stands = entries.filter(|e| e.actor == actor && matches!(e.fact, Fact::Pending | Fact::Acknowledged));
        stands.map(|e| e.sequence).max().unwrap_or(0) + 1
    }

    fn complete_one(&mut self) {
        let in_flight = self.bed.sim.in_flight();
        if in_flight == 0 {
            return;
        }
        if self.rng.u8(..12) == 0 {
            let fault = *self.rng.choice(&[Fault::Eio, Fault::Enospc, Fault::Short]).unwrap();
            let fate = *self.rng.choice(&[Fate::Lost, Fate::Kept, Fate::Undecided]).unwrap();
            self.bed.sim.fail_next(fault, fate);
        }
        self.bed.sim.complete(self.rng.usize(..in_flight));
    }

    fn hear(&mut self, id: JournalId, journal: &Journal) {
        while let Some(progress) = next_progress(journal) {
            let entries = self.journals.get_mut(&id).unwrap();
            match progress {
                Progress::Durable(lsn) => {
                    for (_, entry) in entries.range_mut(..=lsn.0).filter(|(_, entry)| entry.fact == Fact::Pending) {
                        entry.fact = Fact::Acknowledged;
                        self.seen.acknowledged += 1;
                    }
                }
                Progress::Failed { durable, .. } => {
                    self.seen.failures += 1;
                    for (_, entry) in entries.range_mut(durable.0 + 1..) {
                        assert_eq!(entry.fact, Fact::Pending);
                        entry.fact = Fact::Failed;
                    }
                }
                Progress::Restarted => {
                    self.seen.restarts += 1;
                    entries.values_mut().filter(|e| e.fact == Fact::Failed).for_each(|e| e.fact = Fact::Lost);
                }
                Progress::RestartFailed(_) => self.seen.restart_failures += 1,
                Progress::PrepareFailed(_) | Progress::Room => {}
            }
        }
    }

    /// Checkpoints everything durable of a journal, in the model's way.
    fn recycle(&mut self, id: JournalId, journal: &Journal, old_gone: bool) {
        let through = journal.durable();
        if !old_gone {
            return;
        }
        for (_, entry) in self.journals[&id].range(..=through.0).filter(|(_, e)| e.fact == Fact::Acknowledged) {
            let base = self.base.entry(entry.actor).or_default();
            *base = (*base).max(entry.sequence);
        }
        self.seen.recycled += u64::from(journal.oldest_segment_last_lsn().is_some_and(|last| last <= through));
        journal.recycle_through(through);
    }

    /// Drains all older journals into base files, in the model's way, and retires them.
    fn retire(&mut self, recovery: &Recovery) -> Result<(), Dead> {
        for (address, records) in recovery.index.actors() {
            let actor: u64 = address.name.strip_prefix("actor ").unwrap().parse().unwrap();
            let newest = records.iter().map(|r| r.actor_sequence).max().unwrap_or(0);
            let base = self.base.entry(actor).or_default();
            *base = (*base).max(newest);
        }
        self.bed.sim.fail_files(None);
        let spares_max = self.rng.usize(..4);
        retire(&*self.bed.files, &self.bed.dir, self.incarnation, spares_max).map_err(|_| Dead)?;
        self.seen.retired += 1;
        Ok(())
    }

    /// Compares what was found with the model, and makes what was found the truth from now on.
    fn check(&mut self, recovery: &Recovery) {
        let mut found: BTreeMap<JournalId, BTreeSet<u64>> = BTreeMap::new();
        let mut buffer = Vec::new();
        for (address, records) in recovery.index.actors() {
            let actor: u64 = address.name.strip_prefix("actor ").unwrap().parse().unwrap();
            for record in records {
                let id = parse_journal_dir(recovery.segments[record.segment as usize].0.parent().unwrap()).unwrap();
                let entry = self.journals[&id].get(&record.lsn.0).unwrap_or_else(|| panic!("{id} {} never was", record.lsn));
                assert_ne!(entry.fact, Fact::Lost, "{id} {} was lost: {entry:?}", record.lsn);
                assert_eq!((entry.actor, entry.sequence), (actor, record.actor_sequence));
                let read = recovery.read_record(record, &mut buffer).unwrap();
                assert!(read.body == unique_body(id, record.lsn.0, entry.len_bytes), "{id} {} has wrong content", record.lsn);
                found.entry(id).or_default().insert(record.lsn.0);
            }
            let base = self.base.get(&actor).copied().unwrap_or(0);
            if let Some(first) = records.first() {
                assert!(
                    first.actor_sequence <= base + 1,
                    "actor {actor} lacks records between {base} and {}",
                    first.actor_sequence
                );
            }
            assert!(
                records.windows(2).all(|w| w[1].actor_sequence == w[0].actor_sequence + 1),
                "actor {actor} has gaps: {records:?}"
            );
        }
        for (id, entries) in &mut self.journals {
            let found = found.remove(id).unwrap_or_default();
            for (lsn, entry) in entries {
                let in_base = entry.sequence <= self.base.get(&entry.actor).copied().unwrap_or(0);
                match (found.contains(lsn), entry.fact) {
                    (true, Fact::Acknowledged) | (false, Fact::Lost) => {}
                    (true, _) => {
                        self.seen.kept_unacknowledged += 1;
                        entry.fact = Fact::Acknowledged;
                    }
                    (false, Fact::Acknowledged) => assert!(in_base, "{id} {lsn} was acknowledged and is gone: {entry:?}"),
                    (false, Fact::Pending | Fact::Failed) => entry.fact = Fact::Lost,
                }
            }
        }
    }
}
