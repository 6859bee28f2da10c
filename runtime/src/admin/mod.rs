//! The operator's listener: liveness, readiness, metrics, what the command line asks about actors and about
//! key-value classes, and the service door for the operator.
//!
//! It runs on its own thread and executor, so that it answers while cores are busy, and never touches a core's state: what it asks
//! of cores goes through [`Cores`]. On a loopback address it needs no token; elsewhere all but `/healthz` and `/readyz` do.

pub mod client;
mod json;
mod kv;
mod routes;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use wasmkeep_storage::Address;

pub use self::json::rows_to_json;
use crate::config::{NativeConfig, OPERATOR, Secret};
use crate::core::Cores;
use crate::data_dir::DataDir;
use crate::door::Book;
use crate::event::Problem;
use crate::limits::{ADMIN_CONNECTIONS_MAX, ADMIN_WALL_MS_MAX, HEAD_WAIT_MS_MAX};
use crate::metrics::Metrics;
use crate::moves::Moves;
use crate::node::Phase;

/// How often samples are moved into their buckets.
const UPKEEP: Duration = Duration::from_secs(1);

/// What the command line asks about actors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AdminRequest {
    /// `{"actors": [{"address": "class/name", ...}], "next": null | "class/name"}`, by address.
    List {
        /// Of this class only.
        class: Option<String>,
        /// Behind this address.
        after: Option<String>,
        /// At most this many.
        limit: usize,
    },
    /// An object about one actor.
    Show(Address),
    /// Runs a statement in one actor's database: `{"columns": [...], "rows": [[...]], "changed": n}`, see [`rows_to_json`].
    Sql {
        /// The actor.
        address: Address,
        /// The statement.
        sql: String,
    },
}

/// What the operator is told instead of an answer.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum AdminError {
    /// A problem that users know too.
    #[error("{0}")]
    Problem(Problem),
    /// There is nothing of that name.
    #[error("{0}")]
    NotFound(String),
    /// The request makes no sense.
    #[error("{0}")]
    BadRequest(String),
    /// No token, or a wrong one.
    #[error("a bearer token is needed: give --admin-token FILE")]
    Unauthorized,
    /// The statement failed.
    #[error("{0}")]
    Sql(String),
    /// Something that is under way excludes it.
    #[error("{0}")]
    Conflict(String),
}

impl From<Problem> for AdminError {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// What the admin listener works with.
pub(crate) struct AdminSetup {
    pub(crate) token: Option<Secret>,
    /// Only this machine reaches the listener.
    pub(crate) loopback: bool,
    pub(crate) phase: Phase,
    pub(crate) metrics: Arc<Metrics>,
    /// Empty until the cores are prepared.
    pub(crate) cores: Arc<OnceLock<Cores>>,
    /// The classes of the service door.
    pub(crate) natives: Vec<NativeConfig>,
    /// What keeps the numbers of shards.
    pub(crate) data: Arc<DataDir>,
}

/// What the operator's thread keeps.
struct Desk {
    /// The service door's classes.
    book: Book,
    /// Who the operator is to actors.
    operator: Address,
    moves: Moves,
}

/// Serves until told to stop. Runs on a `LocalSet`.
pub(crate) async fn serve(listener: TcpListener, setup: AdminSetup, mut stopped: watch::Receiver<bool>) {
    let desk =
        Rc::new(Desk { book: Book::new(&setup.natives), operator: Address::new(OPERATOR, "admin"), moves: Moves::default() });
    let setup = Arc::new(setup);
    let places = Arc::new(Semaphore::new(ADMIN_CONNECTIONS_MAX));
    let mut upkeep = tokio::time::interval(UPKEEP);
    loop {
        // A connection is accepted only when there is a place for it.
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            _ = upkeep.tick() => setup.metrics.upkeep(),
            (place, accepted) = next => match accepted {
                Ok((stream, _)) => {
                    let (setup, desk) = (Arc::clone(&setup), Rc::clone(&desk));
                    tokio::task::spawn_local(async move {
                        serve_connection(setup, desk, stream).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!("admin listener: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
}

async fn serve_connection(setup: Arc<AdminSetup>, desk: Rc<Desk>, stream: TcpStream) {
    let service = service_fn(move |request| {
        let (setup, desk) = (Arc::clone(&setup), Rc::clone(&desk));
        async move {
            let wall = Duration::from_millis(ADMIN_WALL_MS_MAX);
            let answer = tokio::time::timeout(wall, routes::answer(&setup, &desk, request)).await;
            Ok::<_, Infallible>(answer.unwrap_or_else(|_| routes::failure(&Problem::Deadline.into())))
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(Duration::from_millis(HEAD_WAIT_MS_MAX));
    // An operator's broken connection is not worth a line.
    let _ended = builder.serve_connection(TokioIo::new(stream), service).await;
}
