//! What ends the process, each kind with its own exit status, so that whoever supervises it can tell them apart.

use std::net::SocketAddr;
use std::path::PathBuf;

use wasmkeep_storage::StorageError;

use crate::config::ConfigError;

/// Why a node could not start or go on.
#[derive(thiserror::Error, Debug)]
pub enum Fatal {
    /// The configuration is wrong.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// A component cannot be served.
    #[error("class {class}: {detail}")]
    Component {
        /// The class.
        class: String,
        /// What is wrong and how to fix it.
        detail: String,
    },
    /// Another process has the data directory.
    #[error("data directory {} is in use by process {pid}; stop that one first, or choose another with --data", path.display())]
    DataDirBusy {
        /// The directory.
        path: PathBuf,
        /// The process that holds it, as it wrote itself down.
        pid: String,
    },
    /// The data directory cannot be used.
    #[error("data directory {}: {detail}", path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// What is wrong and how to fix it.
        detail: String,
    },
    /// Storage could not open or go on.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A listener could not be opened.
    #[error("cannot listen on {address} ({what}): {source}")]
    Listen {
        /// The setting's name.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system refused something a node cannot be without.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// A thread of the node ended on its own: a bug of ours.
    #[error("{thread} stopped unexpectedly: {detail}")]
    Thread {
        /// The thread's name.
        thread: String,
        /// Its last words.
        detail: String,
    },
}

impl Fatal {
    /// The process's exit status. 2 is the command line's own, 128 + n are signals.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Config(_) => 3,
            Self::Component { .. } => 4,
            Self::DataDirBusy { .. } => 5,
            Self::DataDir { .. } => 6,
            Self::Storage(_) => 7,
            Self::Listen { .. } => 8,
            Self::System { .. } => 9,
            Self::Thread { .. } => 70,
        }
    }
}
