//! What a node's storage runs on: the machine's disk, or one that stands in for it.
//!
//! It opens; it decides nothing. Which way of writing the journal is the fastest on the machine's disk is found out here once per
//! node, before threads are pinned.

use std::io;
use std::path::Path;
use std::sync::Arc;

use wasmkeep_storage::StorageError;
use wasmkeep_storage::clock::Clock;
use wasmkeep_storage::disk::background::Background;
use wasmkeep_storage::disk::os::OsFiles;
use wasmkeep_storage::disk::probe::{Io, IoMode};
use wasmkeep_storage::disk::{Backend, Files};
use wasmkeep_storage::store::CoreDisk;

use crate::config::{IoChoice, NodeConfig};
use crate::fatal::Fatal;

/// Opens a core's way to its journal, by the core's number.
pub type OpenBackend = Box<dyn Fn(usize) -> io::Result<Box<dyn Backend>> + Send + Sync>;

/// The disk under a node. `node.json`, the lock and compiled components are on the machine's disk whatever this is.
pub struct NodeDisk {
    /// Base files, directories, recovery.
    pub files: Arc<dyn Files>,
    /// The journals' writes. Called on each core's own thread, pinned, within its runtime.
    pub backend: OpenBackend,
    /// Length of a journal segment, bytes, if not the usual one.
    pub segment_bytes: Option<u64>,
}

impl NodeDisk {
    /// The machine's own.
    pub(super) fn os(config: &NodeConfig, journals: &Path) -> Result<Self, Fatal> {
        let mode = match config.io {
            IoChoice::Auto => IoMode::Auto,
            IoChoice::Uring => IoMode::Uring,
            IoChoice::Threads => IoMode::Threads,
        };
        std::fs::create_dir_all(journals).map_err(StorageError::io("making", journals))?;
        let io = Io::choose(journals, mode, &Clock::System)?;
        Ok(Self { files: OsFiles::shared(), backend: Box::new(move |_| io.open()), segment_bytes: None })
    }

    /// One core's part, with the threads that do what may block.
    pub(super) fn open(&self, core: usize) -> Result<CoreDisk, Fatal> {
        let thread = |name: &str| {
            Background::thread(&format!("wk-{name}-{core}"), Arc::clone(&self.files))
                .map_err(|source| Fatal::System { what: "starting a thread", source })
        };
        let backend =
            (self.backend)(core).map_err(|source| Fatal::System { what: "opening the journal's way to the disk", source })?;
        Ok(CoreDisk { files: Arc::clone(&self.files), backend, segments: thread("segments")?, checkpoints: thread("base")? })
    }
}
