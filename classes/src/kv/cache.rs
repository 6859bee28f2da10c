//! A client's read cache: what it read or wrote not long ago. Other clients' writes are seen up to the cache's age late; its own at
//! once. It lives in memory, has no clock, and never outlives its client.
//!
//! Calls of one client may overlap, so each begins with a [`Ticket`]: an answer that was on its way when the client wrote the same
//! key is not kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::protocol::Found;

/// A row as it was read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Arc<[u8]>,
    /// Its version.
    pub version: i64,
    /// What was left of its time to live, ms; `None` if it has none.
    pub ttl_ms: Option<u64>,
}

impl From<&Found<'_>> for Entry {
    fn from(found: &Found<'_>) -> Self {
        Self { value: found.value.into(), version: found.version, ttl_ms: found.ttl_ms }
    }
}

/// The moment at which a call began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What is known of a key.
#[derive(Clone, Debug)]
enum Known {
    Row(Entry),
    Absent,
    /// Only that this client wrote it.
    Unknown,
}

impl From<Option<&Found<'_>>> for Known {
    fn from(found: Option<&Found<'_>>) -> Self {
        found.map_or(Self::Absent, |found| Self::Row(Entry::from(found)))
    }
}

#[derive(Clone, Debug)]
struct Cached {
    known: Known,
    stored_at_ms: u64,
    stamp: u64,
    /// The stamp of this client's last write of the key, 0 for none.
    own: u64,
}

/// What was read or written, by key: bounded in age, number and bytes. The oldest go first.
#[derive(Clone, Debug)]
pub struct ReadCache {
    max_age_ms: u64,
    entries_max: usize,
    bytes_max: usize,
    bytes: usize,
    stamp: u64,
    /// What began before this may have missed a write of this client's that is not in the cache any more.
    floor: u64,
    cached: HashMap<Arc<[u8]>, Cached>,
    order: BTreeMap<u64, Arc<[u8]>>,
}

fn size(key: &[u8], known: &Known) -> usize {
    // Two maps' worth of keys and pointers beside the bytes.
    128 + key.len() + if let Known::Row(entry) = known { entry.value.len() } else { 0 }
}

impl ReadCache {
    /// An empty cache. An age of 0 caches nothing.
    #[must_use]
    pub fn new(max_age_ms: u64, entries_max: usize, bytes_max: usize) -> Self {
        Self { max_age_ms, entries_max, bytes_max, bytes: 0, stamp: 0, floor: 0, cached: HashMap::new(), order: BTreeMap::new() }
    }

    /// What is known of a key: `None` if it must be asked for, `Some(None)` if it is known to be absent. A reader who wants it
    /// fresh does not ask here.
    #[must_use]
    pub fn get(&self, key: &[u8], now_ms: u64) -> Option<Option<Entry>> {
        let cached = self.cached.get(key)?;
        let age = now_ms.checked_sub(cached.stored_at_ms).filter(|age| *age < self.max_age_ms)?;
        let entry = match &cached.known {
            Known::Row(entry) => entry,
            Known::Absent => return Some(None),
            Known::Unknown => return None,
        };
        match entry.ttl_ms {
            Some(ttl) if ttl <= age => None,
            ttl => Some(Some(Entry { ttl_ms: ttl.map(|ttl| ttl - age), ..entry.clone() })),
        }
    }

    /// To be taken before a call is sent, a read or a write.
    #[must_use]
    pub const fn begin(&mut self) -> Ticket {
        self.stamp += 1;
        Ticket(self.stamp)
    }

    /// Takes the answer to a read.
    pub fn read(&mut self, ticket: Ticket, key: &[u8], found: Option<&Found<'_>>, now_ms: u64) {
        let cached = self.cached.get(key);
        let own = cached.map_or(0, |cached| cached.own);
        let newer = cached.filter(|cached| cached.stamp > ticket.0).map(|cached| match &cached.known {
            Known::Row(entry) => found.is_some_and(|found| found.version < entry.version),
            Known::Absent | Known::Unknown => false,
        });
        if ticket.0 > self.floor && ticket.0 > own && newer != Some(true) {
            self.keep(key, found.into(), now_ms, own);
        }
    }

    /// Takes the row that a write of this client's left, `None` for a delete.
    pub fn wrote(&mut self, ticket: Ticket, key: &[u8], row: Option<&Found<'_>>, now_ms: u64) {
        let own = self.cached.get(key).map_or(0, |cached| cached.own);
        // Which of two writes that overlapped came first, the answers do not tell.
        let is_alone = ticket.0 > self.floor && ticket.0 > own;
        self.keep(key, if is_alone { row.into() } else { Known::Unknown }, now_ms, self.stamp + 1);
    }

    /// Knows nothing of a key any more: after a write whose outcome is unknown, a conflict, or an increment.
    pub fn forget(&mut self, key: &[u8]) {
        self.keep(key, Known::Unknown, 0, self.stamp + 1);
    }

    /// Bytes it takes, about.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many keys it knows.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.cached.len()
    }

    fn remove(&mut self, key: &[u8]) -> Option<Cached> {
        let cached = self.cached.remove(key)?;
        self.order.remove(&cached.stamp);
        self.bytes -= size(key, &cached.known);
        Some(cached)
    }

    fn keep(&mut self, key: &[u8], mut known: Known, now_ms: u64, own: u64) {
        self.remove(key);
        self.stamp += 1;
        if size(key, &known) > self.bytes_max {
            known = Known::Unknown;
        }
        let added = size(key, &known);
        if self.max_age_ms == 0 || self.entries_max == 0 || added > self.bytes_max {
            self.floor = self.floor.max(own);
            return;
        }
        while self.cached.len() >= self.entries_max || self.bytes + added > self.bytes_max {
            let Some(oldest) = self.order.first_key_value().map(|(_, key)| Arc::clone(key)) else { break };
            self.floor = self.floor.max(self.remove(&oldest).map_or(0, |removed| removed.own));
        }
        let key: Arc<[u8]> = key.into();
        self.bytes += added;
        self.order.insert(self.stamp, Arc::clone(&key));
        self.cached.insert(key, Cached { known, stored_at_ms: now_ms, stamp: self.stamp, own });
    }
}
