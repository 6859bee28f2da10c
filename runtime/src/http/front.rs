//! What the connections of one core share: their registry, the bytes they hold, a coarse clock.
//!
//! All of it is the core's own and changes between polls only. The clock moves once per sweep, so that a request costs no look
//! at the real one; every wait that depends on it is exact to one sweep.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use tokio::sync::Notify;
use wasmkeep_storage::clock::Clock;

use crate::config::LiveClasses;
use crate::event::Problem;
use crate::limits::{
    BODY_BYTES_IN_FLIGHT_MAX, CONNECTIONS_MAX, HEAD_WAIT_MS_MAX, KEEP_ALIVE_MS_MAX, LINGER_MS_MAX, TRANSFER_MS_MAX,
    TRANSFER_STALL_MS_MAX,
};
use crate::metrics::CoreMetrics;

/// The shared part of one core's HTTP.
pub(super) struct Front {
    pub(super) classes: RefCell<Arc<LiveClasses>>,
    pub(super) metrics: CoreMetrics,
    clock: Clock,
    now_ms: Cell<u64>,
    body_bytes: Cell<usize>,
    stopping: Cell<bool>,
    connections: RefCell<HashMap<u64, Rc<Conn>>>,
    next_id: Cell<u64>,
    /// Told when the last connection of a stopping node is gone.
    pub(super) gone: Notify,
}

impl Front {
    pub(super) fn new(classes: Arc<LiveClasses>, metrics: CoreMetrics, clock: Clock) -> Rc<Self> {
        let now_ms = Cell::new(clock.monotonic_ns() / 1_000_000);
        Rc::new(Self {
            classes: RefCell::new(classes),
            metrics,
            clock,
            now_ms,
            body_bytes: Cell::new(0),
            stopping: Cell::new(false),
            connections: RefCell::default(),
            next_id: Cell::new(0),
            gone: Notify::new(),
        })
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    pub(super) fn stopping(&self) -> bool {
        self.stopping.get()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connections.borrow().is_empty()
    }

    /// Enters a new connection, unless there are too many.
    pub(super) fn enter(self: &Rc<Self>) -> Option<Registered> {
        if self.connections.borrow().len() >= CONNECTIONS_MAX {
            self.metrics.http_connections_refused.increment(1);
            return None;
        }
        let id = self.next_id.replace(self.next_id.get() + 1);
        let conn = Rc::new(Conn::new(Rc::clone(self)));
        self.connections.borrow_mut().insert(id, Rc::clone(&conn));
        self.metrics.http_connections.increment(1.0);
        self.metrics.http_connections_total.increment(1);
        Some(Registered { conn, id })
    }

    /// No new request from now on; connections end when what they have in hand is done.
    pub(super) fn stop(&self) {
        self.stopping.set(true);
        for conn in self.connections.borrow().values() {
            conn.tell(if conn.lingering_since.get().is_some() { Command::Abort } else { Command::Finish });
        }
    }

    /// Every connection ends now.
    pub(super) fn abort(&self) {
        self.stopping.set(true);
        for conn in self.connections.borrow().values() {
            conn.tell(Command::Abort);
        }
    }

    /// Moves the coarse clock and ends connections that overstay.
    pub(super) fn sweep(&self) {
        let now_ms = self.clock.monotonic_ns() / 1_000_000;
        self.now_ms.set(now_ms);
        #[expect(clippy::cast_precision_loss, reason = "a gauge")]
        self.metrics.http_body_bytes.set(self.body_bytes.get() as f64);
        for conn in self.connections.borrow().values() {
            let lingering = conn.lingering_since.get().is_some();
            if conn.overstays(now_ms, self.stopping()) && conn.tell(Command::Abort) && !lingering {
                self.metrics.http_connections_expired.increment(1);
            }
        }
    }
}

/// Bytes of bodies that one exchange holds; given back when dropped.
pub(super) struct Hold {
    front: Rc<Front>,
    bytes: usize,
}

impl Hold {
    /// Holds nothing yet, but only if there is room at all.
    pub(super) fn new(front: &Rc<Front>) -> Result<Self, Problem> {
        let mut hold = Self { front: Rc::clone(front), bytes: 0 };
        hold.grow(0)?;
        Ok(hold)
    }

    /// Holds more, if there is room.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Problem> {
        if self.front.body_bytes.get() + bytes > BODY_BYTES_IN_FLIGHT_MAX {
            return Err(Problem::Unavailable(
                "too many bytes of other requests are in flight; nothing ran, try again later".into(),
            ));
        }
        self.replace(self.bytes + bytes);
        Ok(())
    }

    /// Holds exactly this much: an answer that exists is never refused.
    pub(super) fn replace(&mut self, bytes: usize) {
        self.front.body_bytes.set(self.front.body_bytes.get() - self.bytes + bytes);
        self.bytes = bytes;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.replace(0);
    }
}

/// What a connection is told to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Command {
    /// Go on.
    Serve,
    /// Finish what is in hand, take nothing new.
    Finish,
    /// End now.
    Abort,
}

/// What the core knows about one connection.
pub(super) struct Conn {
    pub(super) front: Rc<Front>,
    command: Cell<Command>,
    waker: Cell<Option<Waker>>,
    /// Requests from their head's end to their answer's end.
    open: Cell<u32>,
    /// Since when there is no open request.
    idle_since: Cell<u64>,
    /// Since when a part of a head is there; HTTP/1 only.
    head_since: Cell<Option<u64>>,
    /// The last time a byte went either way.
    progress: Cell<u64>,
    /// When each body that is on its way started, in no order.
    transfers: RefCell<Vec<u64>>,
    /// Since when we only wait for the client to stop sending.
    lingering_since: Cell<Option<u64>>,
    /// Streams come and go on it; pings keep it from looking idle.
    multiplexed: Cell<bool>,
}

impl Conn {
    fn new(front: Rc<Front>) -> Self {
        let now = front.now_ms();
        Self {
            command: Cell::new(if front.stopping() { Command::Finish } else { Command::Serve }),
            front,
            waker: Cell::new(None),
            open: Cell::new(0),
            idle_since: Cell::new(now),
            head_since: Cell::new(None),
            progress: Cell::new(now),
            transfers: RefCell::default(),
            lingering_since: Cell::new(None),
            multiplexed: Cell::new(false),
        }
    }

    /// Commands only get stronger; whether this one is news.
    fn tell(&self, command: Command) -> bool {
        let news = command > self.command.get();
        if news {
            self.command.set(command);
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
        news
    }

    /// The command, and a wake when it changes.
    pub(super) fn command(&self, cx: &Context<'_>) -> Command {
        let waker = match self.waker.take() {
            Some(waker) if waker.will_wake(cx.waker()) => waker,
            _ => cx.waker().clone(),
        };
        self.waker.set(Some(waker));
        self.command.get()
    }

    pub(super) fn multiplex(&self) {
        self.multiplexed.set(true);
        self.head_since.set(None);
    }

    /// Bytes came in.
    pub(super) fn received(&self) {
        self.progress.set(self.front.now_ms());
        if self.open.get() == 0 && self.head_since.get().is_none() && !self.multiplexed.get() {
            self.head_since.set(Some(self.front.now_ms()));
        }
    }

    /// Bytes went out.
    pub(super) fn sent(&self) {
        self.progress.set(self.front.now_ms());
    }

    pub(super) fn linger(&self) {
        self.lingering_since.set(Some(self.front.now_ms()));
        if self.front.stopping() {
            self.tell(Command::Abort);
        }
    }

    fn overstays(&self, now: u64, stopping: bool) -> bool {
        let past = |since: u64, most: u64| now.saturating_sub(since) > most;
        if let Some(since) = self.lingering_since.get() {
            return stopping || past(since, LINGER_MS_MAX);
        }
        if self.open.get() == 0 {
            return match self.head_since.get() {
                Some(since) => past(since, HEAD_WAIT_MS_MAX),
                // A stopping node gives a connection it has just taken one sweep to show its request.
                None => past(self.idle_since.get(), if stopping { 0 } else { KEEP_ALIVE_MS_MAX }),
            };
        }
        let transfers = self.transfers.borrow();
        let stalled = !transfers.is_empty() && past(self.progress.get(), TRANSFER_STALL_MS_MAX);
        stalled || transfers.iter().any(|since| past(*since, TRANSFER_MS_MAX))
    }
}

/// A connection's entry; leaving the registry when dropped.
pub(super) struct Registered {
    pub(super) conn: Rc<Conn>,
    id: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let front = &self.conn.front;
        front.metrics.http_connections.decrement(1.0);
        front.connections.borrow_mut().remove(&self.id);
        if front.stopping() && front.is_empty() {
            front.gone.notify_one();
        }
    }
}

/// An open request, from its head's end to its answer's end or its client's loss.
pub(super) struct Open(Rc<Conn>);

impl Open {
    pub(super) fn new(conn: &Rc<Conn>) -> Self {
        conn.open.set(conn.open.get() + 1);
        conn.head_since.set(None);
        Self(Rc::clone(conn))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let conn = &self.0;
        conn.open.set(conn.open.get() - 1);
        if conn.open.get() == 0 {
            conn.idle_since.set(conn.front.now_ms());
        }
    }
}

/// A body on its way, either way.
pub(super) struct Transfer {
    conn: Rc<Conn>,
    since: u64,
}

impl Transfer {
    pub(super) fn new(conn: &Rc<Conn>) -> Self {
        let since = conn.front.now_ms();
        conn.transfers.borrow_mut().push(since);
        Self { conn: Rc::clone(conn), since }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let mut transfers = self.conn.transfers.borrow_mut();
        if let Some(at) = transfers.iter().position(|since| *since == self.since) {
            transfers.swap_remove(at);
        }
    }
}
