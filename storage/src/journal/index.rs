//! Where every actor's records lie in the journals that were found, in the order to replay them.
//!
//! What it is not: it holds no record's content. 640,000 records of a 256 MB journal take about 32 bytes each, and an actor
//! about 150.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::mem::size_of;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::format::{RawRecord, RecordKind};
use crate::types::{Address, Lsn};

/// A record that was found and verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordRef {
    /// Its LSN in its own journal.
    pub lsn: Lsn,
    /// The actor's own count.
    pub actor_sequence: u64,
    pub(super) segment: u32,
    pub(super) offset: u32,
    /// Its length on disk, bytes.
    pub len_bytes: u32,
    /// What its body is: `Pages` or `Meta`.
    pub kind: RecordKind,
    /// Whether an output may have waited for it.
    pub durable: bool,
}

const _: () = assert!(size_of::<RecordRef>() == 32);

/// Every actor with records in the journals found.
#[derive(Default, Debug)]
pub struct Index {
    addresses: Vec<Address>,
    /// Actor n's records are `records[starts[n]..starts[n + 1]]`.
    starts: Vec<u32>,
    records: Vec<RecordRef>,
    table: Table,
}

/// Finds an actor's number by its address. Addresses are kept once, in the index; here are only their hashes.
#[derive(Debug)]
struct Table {
    /// So that nobody outside can choose names that collide.
    seed: u64,
    newest: HashMap<u64, u32, BuildHasherDefault<Hashed>>,
    /// For each actor, the one before it with the same hash; `NONE` for none.
    older: Vec<u32>,
}

const NONE: u32 = u32::MAX;

/// Takes a hash for what it is.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are hashes");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl Default for Table {
    fn default() -> Self {
        Self { seed: fastrand::u64(..), newest: HashMap::default(), older: Vec::new() }
    }
}

impl Table {
    fn hash(&self, class: &str, name: &str) -> u64 {
        xxh3_64_with_seed(name.as_bytes(), xxh3_64_with_seed(class.as_bytes(), self.seed))
    }

    fn find(&self, addresses: &[Address], hash: u64, class: &str, name: &str) -> Option<u32> {
        let mut actor = *self.newest.get(&hash)?;
        while actor != NONE {
            let address = &addresses[actor as usize];
            if *address.class == *class && *address.name == *name {
                return Some(actor);
            }
            actor = self.older[actor as usize];
        }
        None
    }

    /// Takes in the next actor.
    fn add(&mut self, hash: u64) -> u32 {
        let actor = u32::try_from(self.older.len()).ok().filter(|n| *n != NONE).expect("journals hold fewer records than that");
        self.older.push(self.newest.insert(hash, actor).unwrap_or(NONE));
        actor
    }
}

impl Index {
    /// Actors found.
    #[must_use]
    pub fn actor_count(&self) -> usize {
        self.addresses.len()
    }

    /// Records found.
    #[must_use]
    pub fn record_count(&self) -> usize {
        self.records.len()
    }

    /// An actor's records, oldest first; none when it is unknown.
    #[must_use]
    pub fn records(&self, address: &Address) -> &[RecordRef] {
        let hash = self.table.hash(&address.class, &address.name);
        let actor = self.table.find(&self.addresses, hash, &address.class, &address.name);
        actor.map_or(&[], |actor| self.records_of(actor as usize))
    }

    /// Every actor with its records, in the order in which the actors were first seen.
    pub fn actors(&self) -> impl Iterator<Item = (&Address, &[RecordRef])> {
        self.addresses.iter().enumerate().map(|(actor, address)| (address, self.records_of(actor)))
    }

    fn records_of(&self, actor: usize) -> &[RecordRef] {
        &self.records[self.starts[actor] as usize..self.starts[actor + 1] as usize]
    }
}

/// An index in the making: records come journal by journal, in replay order.
#[derive(Default)]
pub(super) struct IndexBuilder {
    addresses: Vec<Address>,
    table: Table,
    classes: HashSet<Arc<str>>,
    found: Vec<(u32, RecordRef)>,
    /// The current segment's numbers of actors.
    numbers: HashMap<u64, u32, std::hash::BuildHasherDefault<super::group::ActorHasher>>,
}

impl IndexBuilder {
    /// A segment begins: it names its own actors.
    pub(super) fn begin_segment(&mut self) {
        self.numbers.clear();
    }

    pub(super) const fn len(&self) -> usize {
        self.found.len()
    }

    /// Forgets the records of a group that turned out to be bad.
    pub(super) fn truncate(&mut self, len: usize) {
        self.found.truncate(len);
    }

    pub(super) fn add(&mut self, segment: u32, offset: usize, record: &RawRecord<'_>) -> Result<(), &'static str> {
        if record.kind == RecordKind::EpochEnds {
            return Ok(());
        }
        let actor = match record.address {
            Some((class, name)) => {
                let actor = self.intern(class, name);
                self.numbers.insert(record.header.actor, actor);
                actor
            }
            None => *self.numbers.get(&record.header.actor).ok_or("a record's actor is not named in its segment")?,
        };
        let found = RecordRef {
            lsn: Lsn(record.header.lsn),
            actor_sequence: record.header.actor_sequence,
            segment,
            offset: u32::try_from(offset).map_err(|_| "the segment is too long")?,
            len_bytes: record.header.len_bytes,
            kind: record.kind,
            durable: record.durable(),
        };
        self.found.push((actor, found));
        Ok(())
    }

    fn intern(&mut self, class: &str, name: &str) -> u32 {
        let hash = self.table.hash(class, name);
        if let Some(actor) = self.table.find(&self.addresses, hash, class, name) {
            return actor;
        }
        let class = self.classes.get(class).cloned().unwrap_or_else(|| {
            let class: Arc<str> = class.into();
            self.classes.insert(Arc::clone(&class));
            class
        });
        self.addresses.push(Address { class, name: name.into() });
        self.table.add(hash)
    }

    /// Groups the records by actor, in order. With `skip_gaps`, a record that does not follow on its actor's record before it is
    /// left out: what it builds on is lost. One that is its actor's first again builds on the base file alone. Returns how many
    /// were left out.
    pub(super) fn finish(mut self, skip_gaps: bool) -> (Index, usize) {
        let before = self.found.len();
        if skip_gaps {
            let mut last: Vec<Option<u64>> = vec![None; self.addresses.len()];
            self.found.retain(|(actor, record)| {
                let last = &mut last[*actor as usize];
                let follows = record.actor_sequence == 1 || last.is_none_or(|last| record.actor_sequence == last + 1);
                if follows {
                    *last = Some(record.actor_sequence);
                }
                follows
            });
        }
        let skipped = before - self.found.len();
        let mut starts = vec![0; self.addresses.len() + 1];
        for (actor, _) in &self.found {
            starts[*actor as usize + 1] += 1;
        }
        for actor in 1..starts.len() {
            starts[actor] += starts[actor - 1];
        }
        // Each record goes to its actor's next free place, which keeps the order in which one actor's records were found.
        let mut places = starts.clone();
        let mut records = self.found.first().map_or_else(Vec::new, |(_, any)| vec![*any; self.found.len()]);
        for (actor, record) in &self.found {
            let place = &mut places[*actor as usize];
            records[*place as usize] = *record;
            *place += 1;
        }
        (Index { addresses: self.addresses, starts, records, table: self.table }, skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(sequences: &[u64]) -> Vec<u64> {
        let record = |sequence: &u64| RecordRef {
            lsn: Lsn(*sequence),
            actor_sequence: *sequence,
            segment: 0,
            offset: 0,
            len_bytes: 0,
            kind: RecordKind::Pages,
            durable: true,
        };
        let mut builder = IndexBuilder::default();
        let actor = builder.intern("c", "n");
        builder.found.extend(sequences.iter().map(|sequence| (actor, record(sequence))));
        let (index, skipped) = builder.finish(true);
        let kept: Vec<_> = index.records(&Address::new("c", "n")).iter().map(|record| record.actor_sequence).collect();
        assert_eq!(kept.len() + skipped, sequences.len());
        kept
    }

    #[test]
    fn after_a_loss_a_record_counts_if_it_follows_or_builds_on_the_base_file_alone() {
        assert_eq!(kept(&[3, 4, 5]), [3, 4, 5]);
        assert_eq!(kept(&[1, 2, 4, 5]), [1, 2]);
        assert_eq!(kept(&[1, 2, 4, 1, 2]), [1, 2, 1, 2]);
    }
}
