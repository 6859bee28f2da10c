//! The event core. For now a stand-in that answers every request with what it was asked, so that the front can be built on it.

use std::cell::Cell;
use std::future::Future;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use wasmkeep_storage::Address;

use crate::admin::{AdminError, AdminRequest};
use crate::config::NodeConfig;
use crate::data_dir::DataDir;
use crate::event::{Outcome, Problem, Request, Response};
use crate::fatal::Fatal;
use crate::http::{self, Actors};
use crate::metrics::Metrics;
use crate::node::CoreSetup;

/// All cores of a node, for threads that are none of them.
#[derive(Clone, Debug)]
pub struct Cores {
    count: usize,
}

impl Cores {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Answers what the operator asks about actors.
    ///
    /// # Errors
    /// What the operator is told instead.
    pub async fn admin(&self, _request: AdminRequest) -> Result<serde_json::Value, AdminError> {
        std::future::ready(()).await;
        Err(AdminError::Problem(Problem::Unavailable("actors are not served yet".into())))
    }
}

/// The current core, for what runs on it.
#[derive(Clone, Debug)]
pub struct CoreHandle {
    served: Rc<Cell<u64>>,
}

impl CoreHandle {
    /// Sends a request to its actor and waits for what may leave the node.
    pub async fn request(&self, address: Address, request: Request) -> Outcome {
        self.served.set(self.served.get() + 1);
        std::future::ready(()).await;
        let text = format!("{} {} {}\n", request.method, address, request.path);
        let mut body = text.into_bytes();
        body.extend_from_slice(&request.body);
        Outcome::Response(Response { status: 200, headers: request.headers, body: body.into() })
    }
}

impl Actors for CoreHandle {
    fn request(&self, address: Address, request: Request) -> impl Future<Output = Outcome> + 'static {
        let core = self.clone();
        async move { core.request(address, request).await }
    }
}

/// What one core starts from.
#[derive(Debug)]
pub struct CoreSeed {}

/// Makes everything the cores of a node need, before any of them runs: components compiled, journals recovered.
///
/// # Errors
/// Why the node cannot start.
pub fn prepare(config: &Arc<NodeConfig>, _data: &Arc<DataDir>, _metrics: &Arc<Metrics>) -> Result<(Cores, Vec<CoreSeed>), Fatal> {
    let seeds = (0..config.cores).map(|_| CoreSeed {}).collect();
    Ok((Cores { count: config.cores }, seeds))
}

/// One core's life, on its own thread, until the node stops.
///
/// # Errors
/// Why the node cannot go on.
pub async fn run(setup: CoreSetup, _seed: CoreSeed) -> Result<(), Fatal> {
    let core = CoreHandle { served: Rc::default() };
    setup.ready.tell();
    http::serve(core, setup.http).await;
    Ok(())
}

/// Checks a component without running it.
///
/// # Errors
/// What is wrong with it and how to fix it.
pub fn check_component(path: &Path) -> Result<(), String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    match bytes.get(..8) {
        Some(b"\0asm\x0d\0\x01\0") => Ok(()),
        Some([0, b'a', b's', b'm', ..]) => {
            Err(format!("{} is a core module, not a component; build it for wasm32-wasip2", path.display()))
        }
        _ => Err(format!("{} is not WebAssembly", path.display())),
    }
}

/// Describes a journal file.
///
/// # Errors
/// Why it cannot be read.
pub fn inspect_journal(path: &Path, _json: bool) -> Result<String, Fatal> {
    let source = std::io::Error::from(std::io::ErrorKind::Unsupported);
    Err(wasmkeep_storage::StorageError::io("inspecting", path)(source).into())
}
