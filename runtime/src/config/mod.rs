//! What a node is told before it starts: one plain struct, made from flags, environment and `wasmkeep.toml`, or by hand in tests.
//!
//! It checks everything that can be checked without touching components or data: after [`load`] every name obeys its grammar
//! and every number its bounds. It opens nothing but the configuration file and the files of tokens.
//!
//! Precedence: flag, then environment, then file, then default. For `--actor`, `--access` and `--env` that holds per class (and
//! per name), so a flag can replace one component and leave the file's other classes alone.

mod cpus;
mod file;
mod file_natives;
mod live;
mod native;
mod settings;
mod tokens;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use cpus::{allowed_cpus, cores_max};
pub use live::{LiveClass, LiveClasses};
pub(crate) use native::{CALLERS, OPERATOR};
pub use native::{NativeConfig, NativeKind};
pub use settings::{Settings, load, load_with};
pub use tokens::ApiToken;
pub(crate) use tokens::LOCAL;
pub use values::{check_actor_name, check_class_name, parse_duration, parse_socket_address};
pub(crate) use values::{nearest, shown};

/// Everything `Node::start` needs to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeConfig {
    /// Whose work this is; labels metrics.
    pub app: AppName,
    /// Number of cores, at least 1.
    pub cores: usize,
    /// Each core's thread is bound to one CPU. Off, a test runs more cores than there are CPUs.
    pub pinned: bool,
    /// Where events arrive over HTTP.
    pub listen: SocketAddr,
    /// Where the operator's listener is.
    pub admin: SocketAddr,
    /// What an admin request must carry as a bearer token.
    pub admin_token: Option<Secret>,
    /// Where the service door is, if there is one.
    pub api: Option<SocketAddr>,
    /// Who may use it. `None`: every program of this machine.
    pub api_tokens: Option<Vec<ApiToken>>,
    /// The node's data directory.
    pub data_dir: PathBuf,
    /// The classes that are served, by name.
    pub classes: Vec<ClassConfig>,
    /// The classes that the node serves itself.
    pub natives: Vec<NativeConfig>,
    /// How the journal reaches the disk.
    pub io: IoChoice,
    /// Start even if a journal is damaged where it was durable.
    pub accept_journal_loss: bool,
    /// How long and how much.
    pub budgets: Budgets,
    /// How log lines look.
    pub log: LogFormat,
}

impl Default for NodeConfig {
    /// One unpinned core on ports of the system's choice and no class: where tests start from.
    fn default() -> Self {
        Self {
            app: AppName::default(),
            cores: 1,
            pinned: false,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            admin: SocketAddr::from(([127, 0, 0, 1], 0)),
            admin_token: None,
            api: None,
            api_tokens: None,
            data_dir: PathBuf::from("wasmkeep-data"),
            classes: Vec::new(),
            natives: Vec::new(),
            io: IoChoice::Auto,
            accept_journal_loss: false,
            budgets: Budgets::default(),
            log: LogFormat::Text,
        }
    }
}

/// What an event, an actor and a node may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Budgets {
    /// An actor without events for this long hibernates.
    pub idle: Duration,
    /// A stopping node finishes what is in flight within this time.
    pub drain: Duration,
    /// Wall time of one event, from its start to its end.
    pub event_wall: Duration,
    /// CPU time of one event, guest and SQL together.
    pub event_cpu: Duration,
    /// Linear memory of one instance, bytes.
    pub memory_bytes: u64,
    /// One actor's database, bytes.
    pub database_bytes: u64,
    /// One core's journal, bytes.
    pub journal_bytes: u64,
}

/// Bytes in the megabyte of the `-mb` settings.
pub const MB: u64 = 1024 * 1024;

impl Default for Budgets {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(60),
            drain: Duration::from_secs(30),
            event_wall: Duration::from_secs(30),
            event_cpu: Duration::from_secs(5),
            memory_bytes: 128 * MB,
            database_bytes: 1024 * MB,
            journal_bytes: 256 * MB,
        }
    }
}

/// One class of actors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassConfig {
    /// `[a-z][a-z0-9-]{0,62}`
    pub name: Arc<str>,
    /// The component's file.
    pub component: PathBuf,
    /// Who may send it requests.
    pub access: Access,
    /// What `env.get` answers.
    pub env: Env,
}

impl ClassConfig {
    /// A public class without environment.
    #[must_use]
    pub fn new(name: &str, component: impl Into<PathBuf>) -> Self {
        Self { name: name.into(), component: component.into(), access: Access::Public, env: Env::default() }
    }
}

/// Who may send a class requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// Anyone who reaches the listener.
    #[default]
    Public,
    /// Only actors of this node's app; over HTTP the answer is 403.
    Internal,
}

/// A class's variables. Values may be secrets: `Debug` shows the names only.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Env(pub BTreeMap<String, String>);

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// `app = "acme/shop"`: tenant acme, app shop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AppName {
    /// Before the slash.
    pub tenant: Arc<str>,
    /// Behind it.
    pub app: Arc<str>,
}

impl Default for AppName {
    fn default() -> Self {
        Self { tenant: "local".into(), app: "default".into() }
    }
}

impl fmt::Display for AppName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.app)
    }
}

/// How the journal reaches the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum IoChoice {
    /// io_uring where the kernel allows it, else threads; says so once
    #[default]
    Auto,
    /// io_uring, or do not start
    Uring,
    /// a thread per core
    Threads,
}

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// for people
    #[default]
    Text,
    /// one JSON object a line
    Json,
}

/// All that is wrong with a configuration, one line each.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("{}", problems.join("\n"))]
pub struct ConfigError {
    /// Each says where it is, what is wrong and what would be right.
    pub problems: Vec<String>,
}

impl ConfigError {
    /// One problem.
    #[must_use]
    pub fn one(problem: impl Into<String>) -> Self {
        Self { problems: vec![problem.into()] }
    }
}
