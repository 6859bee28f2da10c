//! HTTP of one core: the connections it was dealt, each request's way into an event and back.
//!
//! Connections come from two listeners, the public one and the service door's, and share their bounds. It knows addresses, bodies
//! and problems, not actors: those are behind [`Actors`]. Nothing here locks or crosses a core.
//! Invariants: a client that goes away cancels its wait, never its event; a slow or silent client costs a bounded time and bounded
//! bytes; nothing that is refused here has reached an actor.

pub mod accept;
mod conn;
mod desk;
mod exchange;
mod front;
mod problem;
mod public;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;
use wasmkeep_storage::Address;
use wasmkeep_storage::clock::Clock;

use self::desk::Desk;
use self::exchange::Service;
use self::front::Front;
use self::public::Public;
use crate::config::{LiveClasses, NativeConfig};
use crate::door::Entrance;
use crate::event::{Outcome, Request};
use crate::metrics::CoreMetrics;
use crate::node::Stop;

/// While a node stops, its connections are looked at this often.
const STOPPING_SWEEP: Duration = Duration::from_millis(50);

/// Where requests go. A core's handle; in tests of HTTP, something simpler.
pub trait Actors: Clone + 'static {
    /// Sends the request to its actor and waits for what may leave the node. Dropping the future gives up the wait only. Without a
    /// caller it comes from outside.
    fn request(&self, caller: Option<Address>, address: Address, request: Request) -> impl Future<Output = Outcome> + 'static;
}

/// What one core's HTTP works with.
pub struct HttpSetup {
    /// Connections dealt to this core; closed when no more will come.
    pub incoming: mpsc::Receiver<std::net::TcpStream>,
    /// The service door, if there is one.
    pub door: Option<DoorSetup>,
    /// Whether the node stops.
    pub stop: watch::Receiver<Stop>,
    /// The classes as they are now.
    pub classes: watch::Receiver<Arc<LiveClasses>>,
    /// This core's series.
    pub metrics: CoreMetrics,
    /// What time it is.
    pub clock: Clock,
    /// How often overstaying connections are looked for.
    pub sweep: Duration,
}

/// What one core's part of the service door works with.
pub struct DoorSetup {
    /// As `HttpSetup::incoming`.
    pub incoming: mpsc::Receiver<std::net::TcpStream>,
    /// The classes that are served there.
    pub natives: Vec<NativeConfig>,
    /// Who may come in.
    pub entrance: Arc<Entrance>,
}

/// Serves until the node stops and every connection has ended. Runs on a `LocalSet`.
pub async fn serve<A: Actors>(actors: A, mut setup: HttpSetup) {
    let front = Front::new(Arc::clone(&setup.classes.borrow()), setup.metrics.clone(), setup.clock.clone());
    let mut sweep = interval(setup.sweep);
    let (mut more, mut reloads, mut deadline_ms) = (true, true, u64::MAX);
    let (public, mut door) = (Public(actors.clone()), setup.door.map(|door| (Desk::new(actors, &door), door.incoming)));
    while more || door.is_some() || !front.is_empty() {
        tokio::select! {
            stream = setup.incoming.recv(), if more => match stream {
                Some(stream) => take(&front, &public, stream),
                None => more = false,
            },
            stream = next(&mut door), if door.is_some() => match (stream, &door) {
                (Some(stream), Some((desk, _))) => take(&front, desk, stream),
                _ => door = None,
            },
            _ = sweep.tick() => {
                front.sweep();
                if front.now_ms() >= deadline_ms {
                    front.abort();
                }
            }
            changed = setup.stop.changed(), if !front.stopping() || deadline_ms != u64::MAX => {
                let stop = if changed.is_ok() { *setup.stop.borrow_and_update() } else { Stop::Now };
                match stop {
                    Stop::No => {}
                    Stop::Drain { until_ms } => {
                        deadline_ms = until_ms;
                        front.stop();
                        sweep = interval(STOPPING_SWEEP.min(setup.sweep));
                    }
                    Stop::Now => {
                        front.abort();
                        (more, door, deadline_ms) = (false, None, u64::MAX);
                    }
                }
            }
            changed = setup.classes.changed(), if reloads => {
                reloads = changed.is_ok();
                let classes = Arc::clone(&setup.classes.borrow_and_update());
                front.classes.replace(classes);
            }
            () = front.gone.notified() => {}
        }
    }
}

/// The next connection to the service door.
async fn next<D>(door: &mut Option<(D, mpsc::Receiver<std::net::TcpStream>)>) -> Option<std::net::TcpStream> {
    match door {
        Some((_, incoming)) => incoming.recv().await,
        None => std::future::pending().await,
    }
}

fn interval(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Starts serving one connection, or turns it away.
fn take<S: Service>(front: &Rc<Front>, service: &S, stream: std::net::TcpStream) {
    let Some(entry) = front.enter() else {
        // Best effort: a new socket's buffer has room for this.
        let busy = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let _refused = std::io::Write::write(&mut &stream, busy);
        return;
    };
    match TcpStream::from_std(stream) {
        Ok(stream) => drop(tokio::task::spawn_local(conn::serve(service.clone(), entry, stream))),
        Err(error) => tracing::warn!("a connection was lost: {error}"),
    }
}
