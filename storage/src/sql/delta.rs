//! What a commit changed, as bytes: page deltas, and their decoder.
//!
//! A *body* is, per page: `pgno u32 LE, n u16 LE`, then `n` times `offset u16 LE, len u16 LE, bytes`. Values are absolute, not
//! differences, so applying a body twice equals applying it once. A page that did not exist before is encoded against zeros.
//!
//! Bodies come back from disk, so the decoder trusts nothing: it never panics and never reads or writes outside a page.

use std::fmt;

use crate::limits::PAGE_BYTES;

/// One page of a database.
pub type Page = [u8; PAGE_BYTES];

/// What a page that does not exist holds.
pub(super) static ZERO_PAGE: Page = [0; PAGE_BYTES];

/// Bytes before the ranges of a page: its number and the count of ranges.
const PAGE_HEADER_BYTES: usize = 6;
/// Bytes before the content of a range: offset and length.
const RANGE_HEADER_BYTES: usize = 4;
/// Equal bytes between two changed ones that are cheaper to repeat than to skip: a range header is 4 bytes and a copy of its own.
const GAP_BYTES_MAX: usize = 8;
/// Bytes compared at once while looking for a difference.
const BLOCK_BYTES: usize = 64;

/// Why a body could not be read. It came from a damaged disk or another program.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeltaError {
    /// The body ends inside a page or a range.
    #[error("the delta ends early at byte {at}")]
    Truncated {
        /// Byte within the body.
        at: usize,
    },
    /// A range reaches past its page, or is empty.
    #[error("a range at byte {at} is outside its page {pgno}")]
    Range {
        /// Byte within the body.
        at: usize,
        /// The page.
        pgno: u32,
    },
    /// A page number is 0 or past the size of the database.
    #[error("page {pgno} at byte {at} is outside the database of {size_pages} pages")]
    Page {
        /// Byte within the body.
        at: usize,
        /// The page.
        pgno: u32,
        /// The size that the record states.
        size_pages: u32,
    },
}

/// Appends what turns `old` into `new`; returns whether anything differs. Appends nothing when the pages are equal.
pub(super) fn encode(body: &mut Vec<u8>, pgno: u32, old: &Page, new: &Page) -> bool {
    let Some(first) = next_difference(old, new, 0) else { return false };
    let header = body.len();
    body.reserve(PAGE_HEADER_BYTES + RANGE_HEADER_BYTES + 64);
    body.extend_from_slice(&pgno.to_le_bytes());
    body.extend_from_slice(&[0, 0]);
    let mut ranges = 0u16;
    let mut start = first.0;
    let mut end = first.1;
    let mut at = first.0 / 8 * 8 + 8;
    while let Some((s, e)) = next_difference(old, new, at) {
        if s - end > GAP_BYTES_MAX {
            push_range(body, start, &new[start..end]);
            ranges += 1;
            start = s;
        }
        end = e;
        at = s / 8 * 8 + 8;
    }
    push_range(body, start, &new[start..end]);
    ranges += 1;
    body[header + 4..header + 6].copy_from_slice(&ranges.to_le_bytes());
    true
}

#[inline]
fn push_range(body: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let [o0, o1] = (offset as u16).to_le_bytes();
    let [l0, l1] = (bytes.len() as u16).to_le_bytes();
    body.extend_from_slice(&[o0, o1, l0, l1]);
    body.extend_from_slice(bytes);
}

#[inline]
fn word(page: &Page, at: usize) -> u64 {
    let mut w = [0; 8];
    w.copy_from_slice(&page[at..at + 8]);
    u64::from_le_bytes(w)
}

/// The first and one-past-last differing byte of the first differing word at or after `at` (a multiple of 8).
#[inline]
fn next_difference(old: &Page, new: &Page, mut at: usize) -> Option<(usize, usize)> {
    // Word by word to the next block, then block by block (the compiler compares those with vectors), then inside the block found.
    while !at.is_multiple_of(BLOCK_BYTES) {
        if let Some(found) = difference_in_word(old, new, at) {
            return Some(found);
        }
        at += 8;
    }
    while at < PAGE_BYTES {
        let mut acc = 0u64;
        let (a, b) = (&old[at..at + BLOCK_BYTES], &new[at..at + BLOCK_BYTES]);
        for (x, y) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
            let (mut wx, mut wy) = ([0; 8], [0; 8]);
            wx.copy_from_slice(x);
            wy.copy_from_slice(y);
            acc |= u64::from_ne_bytes(wx) ^ u64::from_ne_bytes(wy);
        }
        if acc == 0 {
            at += BLOCK_BYTES;
            continue;
        }
        while at < PAGE_BYTES {
            if let Some(found) = difference_in_word(old, new, at) {
                return Some(found);
            }
            at += 8;
        }
    }
    None
}

#[inline]
fn difference_in_word(old: &Page, new: &Page, at: usize) -> Option<(usize, usize)> {
    let x = word(old, at) ^ word(new, at);
    (x != 0).then(|| (at + x.trailing_zeros() as usize / 8, at + 8 - x.leading_zeros() as usize / 8))
}

/// The changed ranges of one page. Already checked: every range is inside a page.
#[derive(Clone, Copy)]
pub(super) struct PageDelta<'a> {
    /// The page.
    pub(super) pgno: u32,
    count: u16,
    ranges: &'a [u8],
}

impl fmt::Debug for PageDelta<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}: {} ranges, {} bytes", self.pgno, self.count, self.ranges.len())
    }
}

impl<'a> PageDelta<'a> {
    /// The ranges: where, and the new bytes.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let mut rest = self.ranges;
        std::iter::from_fn(move || {
            let (header, tail) = rest.split_first_chunk::<RANGE_HEADER_BYTES>()?;
            let offset = usize::from(u16::from_le_bytes([header[0], header[1]]));
            let (bytes, tail) = tail.split_at_checked(usize::from(u16::from_le_bytes([header[2], header[3]])))?;
            rest = tail;
            Some((offset, bytes))
        })
    }

    /// Puts the new bytes in place.
    pub(super) fn apply(&self, page: &mut Page) {
        for (offset, bytes) in self.ranges() {
            if let Some(target) = page.get_mut(offset..offset + bytes.len()) {
                target.copy_from_slice(bytes);
            }
        }
    }

    /// Puts the new bytes in place and appends a delta that takes them back.
    pub(super) fn apply_with_undo(&self, page: &mut Page, undo: &mut Vec<u8>) {
        undo.reserve(PAGE_HEADER_BYTES + self.ranges.len());
        undo.extend_from_slice(&self.pgno.to_le_bytes());
        undo.extend_from_slice(&self.count.to_le_bytes());
        for (offset, bytes) in self.ranges() {
            if let Some(target) = page.get_mut(offset..offset + bytes.len()) {
                push_range(undo, offset, target);
                target.copy_from_slice(bytes);
            }
        }
    }
}

/// Walks a body page by page. After an error it ends.
#[derive(Clone, Debug)]
pub(super) struct PageDeltas<'a> {
    body: &'a [u8],
    at: usize,
    size_pages: u32,
}

impl<'a> PageDeltas<'a> {
    /// A walk over `body`, in which every page must be within `size_pages`.
    #[must_use]
    pub(super) const fn new(body: &'a [u8], size_pages: u32) -> Self {
        Self { body, at: 0, size_pages }
    }

    /// Checks a whole body; returns its count of pages.
    pub(super) fn validate(body: &'a [u8], size_pages: u32) -> Result<u32, DeltaError> {
        Self::new(body, size_pages).try_fold(0u32, |n, page| page.map(|_| n.saturating_add(1)))
    }

    fn read_page(&mut self) -> Result<PageDelta<'a>, DeltaError> {
        let at = self.at;
        let rest = &self.body[at..];
        let (header, mut tail) = rest.split_first_chunk::<PAGE_HEADER_BYTES>().ok_or(DeltaError::Truncated { at })?;
        let pgno = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        if pgno == 0 || pgno > self.size_pages {
            return Err(DeltaError::Page { at, pgno, size_pages: self.size_pages });
        }
        let count = u16::from_le_bytes([header[4], header[5]]);
        let ranges = tail;
        for _ in 0..count {
            let at = self.body.len() - tail.len();
            let (header, rest) = tail.split_first_chunk::<RANGE_HEADER_BYTES>().ok_or(DeltaError::Truncated { at })?;
            let offset = usize::from(u16::from_le_bytes([header[0], header[1]]));
            let len = usize::from(u16::from_le_bytes([header[2], header[3]]));
            if len == 0 || offset + len > PAGE_BYTES {
                return Err(DeltaError::Range { at, pgno });
            }
            (_, tail) = rest.split_at_checked(len).ok_or(DeltaError::Truncated { at })?;
        }
        self.at = self.body.len() - tail.len();
        Ok(PageDelta { pgno, count, ranges: &ranges[..ranges.len() - tail.len()] })
    }
}

impl<'a> Iterator for PageDeltas<'a> {
    type Item = Result<PageDelta<'a>, DeltaError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.body.len() {
            return None;
        }
        let page = self.read_page();
        if page.is_err() {
            self.at = self.body.len();
        }
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(rng: &mut fastrand::Rng, old: &Page) -> Page {
        let mut new = *old;
        for _ in 0..rng.usize(0..20) {
            let start = rng.usize(0..PAGE_BYTES);
            let most = if rng.bool() { 9 } else { 600 };
            let len = rng.usize(1..=(PAGE_BYTES - start).min(most));
            new[start..start + len].iter_mut().for_each(|b| *b = rng.u8(..));
        }
        new
    }

    #[test]
    fn a_delta_turns_the_old_page_into_the_new_one_and_its_undo_turns_it_back() {
        for seed in 0..2_000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut old = ZERO_PAGE;
            if rng.bool() {
                rng.fill(&mut old);
            }
            let new = changed(&mut rng, &old);
            let mut body = Vec::new();
            let differs = encode(&mut body, 7, &old, &new);
            assert_eq!(differs, old != new, "seed {seed}");
            assert_eq!(PageDeltas::validate(&body, 7), Ok(u32::from(differs)), "seed {seed}");
            let (mut page, mut undo) = (old, Vec::new());
            for delta in PageDeltas::new(&body, 7) {
                delta.unwrap().apply_with_undo(&mut page, &mut undo);
            }
            assert!(page == new, "seed {seed}");
            for delta in PageDeltas::new(&undo, 7) {
                delta.unwrap().apply(&mut page);
            }
            assert!(page == old, "seed {seed}");
            assert!(body.len() <= PAGE_BYTES + PAGE_HEADER_BYTES + RANGE_HEADER_BYTES * 456, "seed {seed}");
        }
    }

    #[test]
    fn a_wholly_changed_page_is_one_range_and_a_far_byte_is_its_own() {
        let mut body = Vec::new();
        encode(&mut body, 1, &ZERO_PAGE, &[1; PAGE_BYTES]);
        assert_eq!(body.len(), PAGE_HEADER_BYTES + RANGE_HEADER_BYTES + PAGE_BYTES);
        let mut page = ZERO_PAGE;
        (page[0], page[9], page[4095]) = (1, 1, 1);
        body.clear();
        encode(&mut body, 1, &ZERO_PAGE, &page);
        let ranges: Vec<_> = PageDeltas::new(&body, 1).next().unwrap().unwrap().ranges().map(|(o, b)| (o, b.len())).collect();
        assert_eq!(ranges, [(0, 10), (4095, 1)]);
    }

    #[test]
    fn a_damaged_body_is_an_error_never_a_panic() {
        for seed in 0..3_000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut body = Vec::new();
            for pgno in 1..=rng.u32(1..4) {
                let new = changed(&mut rng, &ZERO_PAGE);
                encode(&mut body, pgno, &ZERO_PAGE, &new);
            }
            for _ in 0..rng.usize(1..5) {
                if body.is_empty() {
                    break;
                }
                let at = rng.usize(0..body.len());
                match rng.u8(0..3) {
                    0 => body[at] = rng.u8(..),
                    1 => body.truncate(at),
                    _ => body.insert(at, rng.u8(..)),
                }
            }
            let mut page = ZERO_PAGE;
            let mut undo = Vec::new();
            for delta in PageDeltas::new(&body, 4).flatten() {
                delta.apply(&mut page);
                delta.apply_with_undo(&mut page, &mut undo);
            }
        }
    }

    #[test]
    fn each_kind_of_damage_is_named() {
        assert_eq!(PageDeltas::validate(&[1, 0, 0], 1), Err(DeltaError::Truncated { at: 0 }));
        assert_eq!(PageDeltas::validate(&[0, 0, 0, 0, 0, 0], 1), Err(DeltaError::Page { at: 0, pgno: 0, size_pages: 1 }));
        assert_eq!(PageDeltas::validate(&[2, 0, 0, 0, 0, 0], 1), Err(DeltaError::Page { at: 0, pgno: 2, size_pages: 1 }));
        assert_eq!(PageDeltas::validate(&[1, 0, 0, 0, 1, 0, 255, 15, 2, 0, 9, 9], 1), Err(DeltaError::Range { at: 6, pgno: 1 }));
        assert_eq!(PageDeltas::validate(&[1, 0, 0, 0, 1, 0, 0, 0, 0, 0], 1), Err(DeltaError::Range { at: 6, pgno: 1 }));
        assert_eq!(PageDeltas::validate(&[1, 0, 0, 0, 1, 0, 0, 0, 3, 0, 9], 1), Err(DeltaError::Truncated { at: 6 }));
    }
}
