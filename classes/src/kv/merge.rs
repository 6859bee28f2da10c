//! One listing out of many shards': their pages merged in byte order. It sends nothing: it says which shard it wants a page of.
//!
//! A shard's page may end before its limit because it is full. Nothing behind its last row is given until its next page is there.

use std::collections::VecDeque;

use super::layout::Shards;
use super::protocol::{Invalid, List, Listed, Page, check_list};

/// A row of a listing that outlives its page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedListed {
    /// The key.
    pub key: Vec<u8>,
    /// Its version.
    pub version: i64,
    /// What is left of its time to live, ms; `None` if it has none.
    pub ttl_ms: Option<u64>,
    /// The value, if it was asked for.
    pub value: Option<Vec<u8>>,
}

impl From<&Listed<'_>> for OwnedListed {
    fn from(listed: &Listed<'_>) -> Self {
        let Listed { key, version, ttl_ms, value } = listed;
        Self { key: key.to_vec(), version: *version, ttl_ms: *ttl_ms, value: value.map(<[u8]>::to_vec) }
    }
}

#[derive(Clone, Debug, Default)]
struct Source {
    rows: VecDeque<OwnedListed>,
    /// The last key given by the shard: its next page begins behind it.
    last: Option<Vec<u8>>,
    has_more: bool,
}

/// A listing under way.
#[derive(Clone, Debug)]
pub struct Merge {
    prefix: Vec<u8>,
    after: Option<Vec<u8>>,
    limit: u32,
    values: bool,
    sources: Vec<Source>,
    rows: Vec<OwnedListed>,
}

impl Merge {
    /// A listing of all shards, as long as `list.limit`.
    ///
    /// # Errors
    /// The rule that the listing breaks.
    pub fn new(shards: Shards, list: &List<'_>) -> Result<Self, Invalid> {
        check_list(list)?;
        let source = Source { rows: VecDeque::new(), last: None, has_more: true };
        Ok(Self {
            prefix: list.prefix.to_vec(),
            after: list.after.map(<[u8]>::to_vec),
            limit: list.limit,
            values: list.values,
            sources: vec![source; shards.count() as usize],
            rows: Vec::new(),
        })
    }

    /// What to ask which shards for, in any order or at once. None: the listing is complete.
    #[must_use]
    pub fn wanted(&self) -> Vec<(u32, List<'_>)> {
        let left = self.limit - u32::try_from(self.rows.len()).unwrap_or(self.limit);
        let ask = |source: &Source| left > 0 && source.rows.is_empty() && source.has_more;
        let wanted = self.sources.iter().zip(0..).filter(|(source, _)| ask(source));
        wanted.map(|(source, index)| (index, self.page(source, left))).collect()
    }

    fn page<'a>(&'a self, source: &'a Source, limit: u32) -> List<'a> {
        let after = source.last.as_deref().or(self.after.as_deref());
        List { prefix: &self.prefix, after, limit, values: self.values }
    }

    /// Takes a page of a shard that was wanted. One that nobody asked for is ignored.
    pub fn give(&mut self, shard: u32, page: &Page<Listed<'_>>) {
        let Some(source) = self.sources.get_mut(shard as usize) else { return };
        if !source.rows.is_empty() || !source.has_more {
            return;
        }
        source.rows = page.rows.iter().map(OwnedListed::from).collect();
        // A page that is empty but not the last would be asked for again and again.
        source.has_more = page.has_more && !page.rows.is_empty();
        if let Some(last) = source.rows.back() {
            source.last = Some(last.key.clone());
        }
        self.advance();
    }

    /// Merges as far as every shard's next row is known.
    fn advance(&mut self) {
        while self.rows.len() < self.limit as usize {
            if self.sources.iter().any(|source| source.rows.is_empty() && source.has_more) {
                return;
            }
            let first = self.sources.iter().filter_map(|source| source.rows.front());
            let Some(key) = first.map(|row| row.key.clone()).min() else { return };
            let same = self.sources.iter_mut().filter(|source| source.rows.front().is_some_and(|row| row.key == key));
            // A key that is on its way from one shard to another may be in both. The copy has the larger version.
            self.rows.extend(same.filter_map(|source| source.rows.pop_front()).max_by_key(|row| row.version));
        }
    }

    /// The rows, once nothing is wanted. `has_more` says whether asking again behind the last key may find more.
    #[must_use]
    pub fn finish(self) -> Page<OwnedListed> {
        let has_more = self.sources.iter().any(|source| source.has_more || !source.rows.is_empty());
        Page { rows: self.rows, has_more }
    }
}
