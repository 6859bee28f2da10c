//! What a simulated disk remembers: the bytes of a file, the names of a directory, and what a power cut leaves of both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(super) const SECTOR_BYTES: usize = 512;

#[derive(Clone, Default)]
pub(super) struct Content {
    pub(super) live: Vec<u8>,
    pub(super) durable: Vec<u8>,
    /// Sectors of `live` that `durable` has not got.
    pub(super) dirty: BTreeSet<u64>,
    /// Sectors that a failed journal write may have left: what it would have written.
    pub(super) uncertain: BTreeMap<u64, [u8; SECTOR_BYTES]>,
}

#[derive(Clone, Default)]
pub(super) struct Names {
    pub(super) files: BTreeMap<PathBuf, usize>,
    pub(super) dirs: BTreeSet<PathBuf>,
}

#[derive(Clone)]
pub(super) enum Change {
    Create(PathBuf, usize),
    MakeDir(PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl Change {
    pub(super) fn paths(&self) -> [&Path; 2] {
        match self {
            Self::Create(path, _) | Self::MakeDir(path) | Self::Remove(path) => [path, path],
            Self::Rename(from, to) => [from, to],
        }
    }
}

impl Names {
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Create(path, content) => {
                self.files.insert(path.clone(), *content);
            }
            Change::MakeDir(path) => {
                self.dirs.insert(path.clone());
            }
            Change::Remove(path) => {
                self.files.remove(path);
                self.dirs.remove(path);
            }
            Change::Rename(from, to) => {
                if let Some(content) = self.files.remove(from) {
                    self.files.insert(to.clone(), content);
                } else if self.dirs.contains(from) {
                    let moved = |path: &PathBuf| path.strip_prefix(from).ok().map(|rest| join(to, rest));
                    self.files = self.files.iter().map(|(path, c)| (moved(path).unwrap_or_else(|| path.clone()), *c)).collect();
                    self.dirs = self.dirs.iter().map(|path| moved(path).unwrap_or_else(|| path.clone())).collect();
                }
            }
        }
    }

    /// Forgets what lies in directories that are not there.
    pub(super) fn drop_orphans(&mut self) {
        let dirs = std::mem::take(&mut self.dirs);
        let reachable =
            |path: &Path| path.ancestors().skip(1).all(|a| a.parent().is_none() || a.as_os_str().is_empty() || dirs.contains(a));
        self.files.retain(|path, _| reachable(path));
        self.dirs = dirs.iter().filter(|path| reachable(path)).cloned().collect();
    }
}

fn join(base: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { base.to_owned() } else { base.join(rest) }
}

pub(super) fn sectors(offset: u64, len_bytes: usize) -> std::ops::Range<u64> {
    offset / SECTOR_BYTES as u64..(offset + len_bytes as u64).div_ceil(SECTOR_BYTES as u64)
}

pub(super) fn to_index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// Copies one sector of `from` into `to`, as far as both reach.
fn copy_sector(from: &[u8], to: &mut [u8], sector: u64) {
    let start = to_index(sector * SECTOR_BYTES as u64);
    let end = (start + SECTOR_BYTES).min(from.len()).min(to.len());
    if start < end {
        to[start..end].copy_from_slice(&from[start..end]);
    }
}

pub(super) fn put(bytes: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let start = to_index(offset);
    if bytes.len() < start + data.len() {
        bytes.resize(start + data.len(), 0);
    }
    bytes[start..start + data.len()].copy_from_slice(data);
}

impl Content {
    /// A write that is durable as a whole: a journal write that completed.
    pub(super) fn put_durable(&mut self, offset: u64, data: &[u8]) {
        put(&mut self.live, offset, data);
        put(&mut self.durable, offset, data);
        for sector in sectors(offset, data.len()) {
            self.uncertain.remove(&sector);
        }
    }

    pub(super) fn put_uncertain(&mut self, offset: u64, data: &[u8]) {
        for (n, chunk) in data.chunks(SECTOR_BYTES).enumerate() {
            let mut sector = [0; SECTOR_BYTES];
            sector[..chunk.len()].copy_from_slice(chunk);
            self.uncertain.insert(offset / SECTOR_BYTES as u64 + n as u64, sector);
        }
    }

    pub(super) fn sync(&mut self) {
        self.durable.resize(self.live.len(), 0);
        for sector in std::mem::take(&mut self.dirty) {
            copy_sector(&self.live, &mut self.durable, sector);
        }
    }

    /// What a power cut leaves of it.
    pub(super) fn after_crash(&self, rng: &mut fastrand::Rng) -> Vec<u8> {
        let mut image = self.durable.clone();
        if self.live.len() != image.len() && rng.bool() {
            image.resize(self.live.len(), 0);
        }
        for &sector in &self.dirty {
            if rng.bool() {
                copy_sector(&self.live, &mut image, sector);
            }
        }
        for (&sector, new) in &self.uncertain {
            let mut new = *new;
            match rng.u8(..8) {
                0..4 => {}
                4..7 => put_existing(&mut image, sector, &new),
                _ => {
                    rng.fill(&mut new);
                    put_existing(&mut image, sector, &new);
                }
            }
        }
        image
    }
}

fn put_existing(image: &mut [u8], sector: u64, new: &[u8; SECTOR_BYTES]) {
    let start = to_index(sector * SECTOR_BYTES as u64);
    if start + SECTOR_BYTES <= image.len() {
        image[start..start + SECTOR_BYTES].copy_from_slice(new);
    }
}
