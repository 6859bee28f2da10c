//! The compiler and the pool that all instances of a node come from, and the clock tick that lets guest code be interrupted.

use super::host;
use super::limits::{
    ASYNC_STACK_BYTES, CORE_INSTANCES_PER_RESIDENT, EPOCH_MS, MAPS_PER_RESIDENT, MAPS_SPARE, MEMORIES_PER_RESIDENT,
    RESIDENTS_DEFAULT, RESIDENTS_MAX, RESIDENTS_MIN, TABLE_ELEMENTS_MAX, TABLES_PER_MODULE_MAX, TABLES_PER_RESIDENT,
    WASM_STACK_BYTES_MAX,
};
use super::state::HostState;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use wasmkeep_storage::clock::Clock;
use wasmtime::component::Linker;
use wasmtime::{Config, PoolingAllocationConfig};

/// What an engine is made for.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// How many instances may live at the same time, at most `RESIDENTS_MAX`. Lowered, with a warning, where the system
    /// cannot bear it; see `Engine::residents`.
    pub residents: u32,
    /// What guests are told the time is, and what their CPU time is measured with.
    pub clock: Clock,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { residents: RESIDENTS_DEFAULT, clock: Clock::System }
    }
}

/// Why there is no engine.
#[derive(thiserror::Error, Debug)]
pub enum EngineError {
    /// wasmtime refused; nearly always because address space or memory mappings are limited.
    #[error(
        "the WebAssembly engine did not start for {residents} resident actors: {reason}. Check `ulimit -v` (should be unlimited) and \
         the sysctl vm.max_map_count"
    )]
    Refused {
        /// The smallest number that was tried.
        residents: u32,
        /// wasmtime's words.
        reason: String,
    },
    /// The thread that ticks did not start.
    #[error("the WebAssembly engine's timer thread did not start: {0}")]
    Ticker(#[source] std::io::Error),
}

/// One per node; cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    engine: wasmtime::Engine,
    linker: Linker<HostState>,
    clock: Clock,
    residents: u32,
    compatibility: u64,
    _ticker: Ticker,
}

impl Engine {
    /// Reserves the pool, links the imports and starts the tick.
    pub fn new(options: EngineOptions) -> Result<Self, EngineError> {
        let residents = residents_borne(options.residents.clamp(RESIDENTS_MIN, RESIDENTS_MAX), maps_max());
        let (engine, residents) = build(residents)?;
        let refused = |error: wasmtime::Error| EngineError::Refused { residents, reason: format!("{error:#}") };
        let mut linker = Linker::new(&engine);
        host::link(&mut linker).map_err(refused)?;
        let mut hasher = xxhash_rust::xxh3::Xxh3Default::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let ticker = Ticker::start(&engine).map_err(EngineError::Ticker)?;
        let compatibility = hasher.finish();
        Ok(Self { inner: Arc::new(Inner { engine, linker, clock: options.clock, residents, compatibility, _ticker: ticker }) })
    }

    /// How many instances may live at the same time.
    #[must_use]
    pub fn residents(&self) -> u32 {
        self.inner.residents
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.inner.engine
    }

    pub(crate) fn linker(&self) -> &Linker<HostState> {
        &self.inner.linker
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// Names everything that compiled code depends on besides its source.
    pub(crate) fn compatibility(&self) -> u64 {
        self.inner.compatibility
    }
}

/// The engine for as many residents as the address space bears, halving from `residents`.
fn build(mut residents: u32) -> Result<(wasmtime::Engine, u32), EngineError> {
    loop {
        match wasmtime::Engine::new(&config(residents)) {
            Ok(engine) => return Ok((engine, residents)),
            Err(error) if residents / 2 < RESIDENTS_MIN => {
                return Err(EngineError::Refused { residents, reason: format!("{error:#}") });
            }
            Err(error) => {
                residents /= 2;
                tracing::warn!("the system has no room for that many resident actors ({error:#}); trying {residents}");
            }
        }
    }
}

fn config(residents: u32) -> Config {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(residents)
        .total_core_instances(residents * CORE_INSTANCES_PER_RESIDENT)
        .total_memories(residents * MEMORIES_PER_RESIDENT)
        .total_tables(residents * TABLES_PER_RESIDENT)
        .total_stacks(residents)
        .table_elements(TABLE_ELEMENTS_MAX)
        .max_tables_per_module(TABLES_PER_MODULE_MAX);
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        .wasm_component_model_async(true)
        .epoch_interruption(true)
        .max_wasm_stack(WASM_STACK_BYTES_MAX)
        .async_stack_size(ASYNC_STACK_BYTES)
        // Gives a hibernated actor's stack pages back to the system; costs nothing while the actor is resident.
        .async_stack_zeroing(true)
        .allocation_strategy(pool);
    config
}

/// The system's limit of memory mappings per process, if it says.
fn maps_max() -> Option<u64> {
    std::fs::read_to_string("/proc/sys/vm/max_map_count").ok()?.trim().parse().ok()
}

/// How many residents that limit bears. Says so when it is fewer than wanted.
fn residents_borne(wanted: u32, maps_max: Option<u64>) -> u32 {
    let needed = u64::from(wanted) * MAPS_PER_RESIDENT + MAPS_SPARE;
    let Some(maps_max) = maps_max.filter(|&maps_max| maps_max < needed) else { return wanted };
    let borne = u32::try_from(maps_max.saturating_sub(MAPS_SPARE) / MAPS_PER_RESIDENT).unwrap_or(wanted).max(RESIDENTS_MIN);
    tracing::warn!(
        "vm.max_map_count is {maps_max}, which bears {borne} resident actors instead of {wanted}; for more: sysctl -w vm.max_map_count={needed}"
    );
    borne
}

/// The thread that advances the epoch, so that running guest code comes to ask whether it may go on.
struct Ticker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    fn start(engine: &wasmtime::Engine) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (engine, stopped) = (engine.weak(), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("wasm-epoch".into()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                std::thread::park_timeout(Duration::from_millis(EPOCH_MS));
                let Some(engine) = engine.upgrade() else { return };
                engine.increment_epoch();
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread has nothing that could panic, and there is nobody to tell.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_residents_are_promised_where_the_system_limits_mappings() {
        assert_eq!(residents_borne(RESIDENTS_DEFAULT, Some(65_530)), RESIDENTS_DEFAULT);
        assert_eq!(residents_borne(RESIDENTS_DEFAULT, Some(40_000)), 5_000);
        assert_eq!(residents_borne(RESIDENTS_DEFAULT, Some(100)), RESIDENTS_MIN);
        assert_eq!(residents_borne(RESIDENTS_DEFAULT, None), RESIDENTS_DEFAULT);
    }
}
