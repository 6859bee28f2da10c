//! What one instance's imports work with, and the memory it may take.

use super::guest_log::{GuestLog, Level};
use super::hooks::Hooks;
use super::limits::{RESOURCES_MAX, TABLE_ELEMENTS_MAX};
use super::meter::Meter;
use super::sql::Connection;
use super::stdio::Stdio;
use super::{ActorHost, http};
use send_wrapper::SendWrapper;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use wasmkeep_storage::Address;
use wasmkeep_storage::clock::Clock;
use wasmtime::ResourceLimiter;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

/// The data of one instance's store.
pub(crate) struct HostState {
    pub(crate) limiter: Limiter,
    /// What belongs to the core's thread. wasmtime wants a store's data to be `Send`; an instance never leaves its thread,
    /// and if it did this would panic rather than race.
    pub(crate) local: SendWrapper<Local>,
    table: ResourceTable,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    outbound: http::NoOutbound,
}

/// The actor's side of its imports.
pub(crate) struct Local {
    pub(crate) address: Address,
    pub(crate) env: Arc<BTreeMap<String, String>>,
    pub(crate) connection: Rc<Connection>,
    pub(crate) hooks: Hooks,
    pub(crate) meter: Rc<Meter>,
    pub(crate) log: Rc<GuestLog>,
    /// Who sent the event at hand.
    pub(crate) caller: Option<Address>,
    /// Whether a statement of the event at hand was refused because storage is full.
    pub(crate) met_full: Rc<Cell<bool>>,
    stdio: [Stdio; 2],
}

impl HostState {
    pub(crate) fn new(host: ActorHost, clock: &Clock) -> Self {
        let ActorHost { address, env, connection, budget, hooks, memory_bytes_max } = host;
        let log = Rc::new(GuestLog::new(address.clone(), clock.clone()));
        let stdio = [Stdio::new(Rc::clone(&log), Level::INFO), Stdio::new(Rc::clone(&log), Level::WARN)];
        let mut wasi = WasiCtx::builder();
        wasi.stdout(stdio[0].clone())
            .stderr(stdio[1].clone())
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .wall_clock(GuestClock(clock.clone()))
            .monotonic_clock(GuestClock(clock.clone()));
        for (name, value) in &*env {
            wasi.env(name, value);
        }
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES_MAX);
        let meter = Rc::new(Meter::new(clock.clone(), budget));
        Self {
            limiter: Limiter { bytes: 0, growing: 0, bytes_max: memory_bytes_max, refused: None },
            local: SendWrapper::new(Local {
                address,
                env,
                connection,
                hooks,
                meter,
                log,
                caller: None,
                met_full: Rc::default(),
                stdio,
            }),
            table,
            wasi: wasi.build(),
            http: WasiHttpCtx::new(),
            outbound: http::NoOutbound,
        }
    }

    /// Forgets what only the event before knew.
    pub(crate) fn begin_event(&mut self, caller: Option<Address>) {
        self.local.caller = caller;
        self.local.met_full.set(false);
        self.limiter.refused = None;
    }

    /// Ends what belongs to this event only.
    pub(crate) fn end_event(&mut self) {
        self.local.stdio.iter().for_each(Stdio::finish_line);
    }
}

impl WasiView for HostState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for HostState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { ctx: &mut self.http, table: &mut self.table, hooks: &mut self.outbound }
    }
}

/// The node's clock as guests see it.
struct GuestClock(Clock);

impl HostWallClock for GuestClock {
    fn resolution(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.0.wall_ms())
    }
}

impl HostMonotonicClock for GuestClock {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        self.0.monotonic_ns()
    }
}

/// Counts an instance's linear memories together and refuses growth past their limit: the guest's allocator sees a failed
/// allocation.
pub(crate) struct Limiter {
    /// Bytes of all memories.
    pub(crate) bytes: usize,
    /// Bytes by which they were allowed to grow last, in case that fails.
    growing: usize,
    pub(crate) bytes_max: usize,
    /// The size that was refused last in the event at hand, bytes.
    pub(crate) refused: Option<usize>,
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let growth = desired.saturating_sub(current);
        let bytes = self.bytes.saturating_add(growth);
        if bytes > self.bytes_max || maximum.is_some_and(|maximum| desired > maximum) {
            self.refused = Some(bytes);
            return Ok(false);
        }
        self.growing = growth;
        self.bytes = bytes;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.bytes = self.bytes.saturating_sub(std::mem::take(&mut self.growing));
        Ok(())
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_ELEMENTS_MAX)
    }
}
