//! What a node knows of an actor beside its database: which version ran its `on-init`, its alarm, the stamp of its base file.
//!
//! A change of the first two is a record in the journal, of the run that made it, and that record is the only truth; the catalog
//! is its checkpoint. This module holds what no catalog has taken yet.

use std::collections::HashMap;

use crate::types::{Address, Lsn};

/// The facts of one actor. Absolute: a later record replaces an earlier one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Meta {
    /// The deployed version whose `on-init` has run; 0 before the first.
    pub init_version: u128,
    /// The alarm, if one is set.
    pub alarm: Option<Alarm>,
}

/// An actor's one alarm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alarm {
    /// When it is due, Unix ms.
    pub at_ms: u64,
    /// Which setting of it this is; completing one generation never clears a later one.
    pub generation: u64,
    /// Attempts begun, durable before the handler runs.
    pub attempt: u32,
}

const ENCODED_BYTES: usize = 16 + 1 + 8 + 8 + 4;

impl Meta {
    /// The record's body.
    pub(crate) fn encode(&self) -> [u8; ENCODED_BYTES] {
        let mut out = [0; ENCODED_BYTES];
        out[..16].copy_from_slice(&self.init_version.to_le_bytes());
        if let Some(alarm) = self.alarm {
            out[16] = 1;
            out[17..25].copy_from_slice(&alarm.at_ms.to_le_bytes());
            out[25..33].copy_from_slice(&alarm.generation.to_le_bytes());
            out[33..37].copy_from_slice(&alarm.attempt.to_le_bytes());
        }
        out
    }

    /// Reads a record's body; `None` if it is not one.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let body: &[u8; ENCODED_BYTES] = body.try_into().ok()?;
        let u64_at = |at: usize| body[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let alarm = match body[16] {
            0 => None,
            1 => Some(Alarm {
                at_ms: u64_at(17)?,
                generation: u64_at(25)?,
                attempt: body[33..37].try_into().map(u32::from_le_bytes).ok()?,
            }),
            _ => return None,
        };
        Some(Self { init_version: body[..16].try_into().map(u128::from_le_bytes).ok()?, alarm })
    }
}

/// Facts that no catalog has yet. Keeps what was durable beside what is not, so that a failed group can be taken back.
#[derive(Default)]
pub(crate) struct Metas {
    entries: HashMap<Address, Entry>,
}

struct Entry {
    /// From oldest to newest, never empty; all past the durable position may still be lost.
    versions: Vec<(Lsn, Meta)>,
    /// The oldest position that must stay in the journal until a catalog has these facts.
    needed_from: Lsn,
}

impl Metas {
    /// Actors of which there are facts here.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Lets go of room that is not used.
    pub(crate) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// The newest facts, if any are newer than the catalog's.
    pub(crate) fn get(&self, address: &Address) -> Option<Meta> {
        Some(self.entries.get(address)?.versions.last()?.1)
    }

    /// Takes in a record at `lsn`.
    pub(crate) fn put(&mut self, address: &Address, lsn: Lsn, meta: Meta) {
        let entry =
            self.entries.entry(address.clone()).or_insert_with(|| Entry { versions: Vec::with_capacity(1), needed_from: lsn });
        entry.versions.push((lsn, meta));
    }

    /// Everything up to `durable` can no longer be lost.
    pub(crate) fn durable(&mut self, address: &Address, durable: Lsn) {
        if let Some(entry) = self.entries.get_mut(address) {
            let keep = entry.versions.iter().rposition(|(lsn, _)| *lsn <= durable).unwrap_or(0);
            entry.versions.drain(..keep);
        }
    }

    /// Takes back everything past `durable`.
    pub(crate) fn revert(&mut self, durable: Lsn) {
        self.entries.retain(|_, entry| {
            entry.versions.retain(|(lsn, _)| *lsn <= durable);
            !entry.versions.is_empty()
        });
    }

    /// Up to `max` entries needed at or before `through` whose newest facts are durable.
    pub(crate) fn due(&self, through: Lsn, durable: Lsn, max: usize) -> Vec<(Address, Lsn, Meta)> {
        let settled = |(address, entry): (&Address, &Entry)| {
            let (lsn, meta) = *entry.versions.last()?;
            (entry.needed_from <= through && lsn <= durable).then(|| (address.clone(), lsn, meta))
        };
        self.entries.iter().filter_map(settled).take(max).collect()
    }

    /// The catalog has the facts as of `lsn`: an entry that has not changed since is forgotten.
    pub(crate) fn folded(&mut self, address: &Address, lsn: Lsn) {
        let Some(entry) = self.entries.get_mut(address) else { return };
        entry.versions.retain(|(version, _)| *version > lsn);
        entry.needed_from = lsn.next();
        if entry.versions.is_empty() {
            self.entries.remove(address);
        }
    }

    /// The oldest position the journal must keep for these.
    pub(crate) fn needed_from(&self) -> Option<Lsn> {
        self.entries.values().map(|entry| entry.needed_from).min()
    }

    /// All of them, newest facts, unordered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Address, Meta)> {
        self.entries.iter().filter_map(|(address, entry)| Some((address, entry.versions.last()?.1)))
    }
}

/// What base files looked like when they were last checkpointed, as far as no catalog has it yet. A file that looks otherwise
/// when it is next opened was changed by somebody else.
#[derive(Default)]
pub(crate) struct Stamps {
    entries: HashMap<Address, (u64, Lsn)>,
}

impl Stamps {
    /// Actors of which there are stamps here.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Lets go of room that is not used.
    pub(crate) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// A base file was checkpointed from commits of which the oldest is `needed_from`: they stay in the journal until the
    /// catalog has the stamp, because recovery trusts a base file that has a tail without looking at its stamp.
    pub(crate) fn put(&mut self, address: &Address, stamp: u64, needed_from: Lsn) {
        self.entries
            .entry(address.clone())
            .and_modify(|(old, needed)| (*old, *needed) = (stamp, needed_from.min(*needed)))
            .or_insert((stamp, needed_from));
    }

    /// The newest stamp, if it is newer than the catalog's.
    pub(crate) fn get(&self, address: &Address) -> Option<u64> {
        self.entries.get(address).map(|(stamp, _)| *stamp)
    }

    /// Up to `max` of them.
    pub(crate) fn due(&self, max: usize) -> Vec<(Address, u64)> {
        self.entries.iter().take(max).map(|(address, (stamp, _))| (address.clone(), *stamp)).collect()
    }

    /// The catalog has this stamp.
    pub(crate) fn folded(&mut self, address: &Address, stamp: u64) {
        if self.get(address) == Some(stamp) {
            self.entries.remove(address);
        }
    }

    /// The oldest position the journal must keep for these.
    pub(crate) fn needed_from(&self) -> Option<Lsn> {
        self.entries.values().map(|(_, lsn)| *lsn).min()
    }
}

/// The stamp of a database whose first page is given: its change counter and its size in pages. SQLite changes the counter with
/// the first write of every connection, ours and anybody's.
pub(crate) fn stamp_of(page_one: &[u8]) -> u64 {
    page_one.get(24..32).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(version: u128) -> Meta {
        Meta { init_version: version, alarm: None }
    }

    #[test]
    fn a_record_survives_its_encoding() {
        let meta = Meta { init_version: 7 << 100, alarm: Some(Alarm { at_ms: u64::MAX, generation: 3, attempt: 9 }) };
        assert_eq!(Meta::decode(&meta.encode()), Some(meta));
        assert_eq!(Meta::decode(&Meta::default().encode()), Some(Meta::default()));
        assert_eq!(Meta::decode(&[2; ENCODED_BYTES]), None);
        assert_eq!(Meta::decode(b"short"), None);
    }

    #[test]
    fn what_was_not_durable_is_taken_back_and_what_was_stays() {
        let mut metas = Metas::default();
        let (a, b) = (Address::new("c", "a"), Address::new("c", "b"));
        metas.put(&a, Lsn(1), version(1));
        metas.put(&a, Lsn(2), version(2));
        metas.put(&b, Lsn(3), version(3));
        metas.durable(&a, Lsn(1));
        metas.revert(Lsn(1));
        assert_eq!(metas.get(&a), Some(version(1)));
        assert_eq!(metas.get(&b), None);
        assert_eq!(metas.needed_from(), Some(Lsn(1)));
    }

    #[test]
    fn a_fold_of_older_facts_keeps_the_newer() {
        let mut metas = Metas::default();
        let a = Address::new("c", "a");
        metas.put(&a, Lsn(1), version(1));
        metas.put(&a, Lsn(5), version(5));
        assert_eq!(metas.due(Lsn(9), Lsn(4), 10), vec![], "what may still be lost is not folded");
        metas.folded(&a, Lsn(1));
        assert_eq!(metas.get(&a), Some(version(5)));
        assert_eq!(metas.needed_from(), Some(Lsn(2)));
        metas.folded(&a, Lsn(5));
        assert_eq!((metas.get(&a), metas.needed_from()), (None, None));
    }
}
