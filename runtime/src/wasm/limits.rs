//! Every bound of the wasm host: its name, why this number, what happens when it is reached.

/// Actors that hold an instance at the same time, per node, unless told otherwise: what Linux's default `vm.max_map_count` of
/// 65,530 bears. When all are taken, `Failure::NoRoom`: the caller evicts an idle actor and tries again.
pub const RESIDENTS_DEFAULT: u32 = 8_000;

/// The most residents an engine is made for: each reserves 8 GiB of address space, of which a process has 128 TiB.
pub const RESIDENTS_MAX: u32 = 12_000;

/// An engine for fewer residents than this is refused: the machine's limits are broken, not tight.
pub const RESIDENTS_MIN: u32 = 16;

/// Core instances in the pool per resident. A component of one language is 2 to 10; composed ones share the pool's average.
pub const CORE_INSTANCES_PER_RESIDENT: u32 = 16;

/// Linear memories in the pool per resident. Ordinary components have one.
pub const MEMORIES_PER_RESIDENT: u32 = 2;

/// Tables in the pool per resident. Ordinary components have one and the adapter's.
pub const TABLES_PER_RESIDENT: u32 = 2;

/// Elements of one table; interpreters compiled to wasm have up to about 30,000 functions in theirs. Above it growth is
/// refused, and a component that starts with more is refused at load.
pub const TABLE_ELEMENTS_MAX: usize = 65_536;

/// Tables that one core module may define.
pub const TABLES_PER_MODULE_MAX: u32 = 4;

/// Stack of guest code, bytes: deep recursion in Python and QuickJS needs more than the usual 512 KiB. Above it the guest traps.
pub const WASM_STACK_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Stack of a suspended call, bytes: the guest's and what host functions need above it.
pub const ASYNC_STACK_BYTES: usize = 3 * 1024 * 1024;

/// Memory mappings that one resident needs: two for its stack, four or five (measured) for its memory and tables.
pub const MAPS_PER_RESIDENT: u64 = 7;

/// Memory mappings left for everything that is not a resident: libraries, code of components, heaps, threads.
pub const MAPS_SPARE: u64 = 5_000;

/// How often guest code is asked whether it has used up its time, ms. Other actors of its core wait at most about this long.
pub const EPOCH_MS: u64 = 1;

/// Handles (streams, bodies, header lists, pollables) that one instance may hold. An ordinary request uses ten. Above it the
/// guest traps: it leaks them.
pub const RESOURCES_MAX: usize = 512;

/// Bytes of a request body handed to a `wasi:http` guest at once, and of one write to a response body. Small, because a guest
/// that leaks handles keeps one such piece per handle.
pub const HTTP_CHUNK_BYTES: usize = 64 * 1024;

/// Bytes of a response's body. What a guest gives above it fails the event.
pub const RESPONSE_BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of a response's header names and values. What a guest gives above it fails the event.
pub const RESPONSE_HEADER_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a component file: the largest interpreters compiled to wasm are about 40 MB. Above it the file is refused.
pub const COMPONENT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Compiled components kept on disk. When there are more, those not written for the longest time are removed.
pub const COMPONENTS_CACHED_MAX: usize = 256;

/// Bytes of one line of a guest's log. The rest of the line is cut.
pub const LOG_LINE_BYTES_MAX: usize = 8 * 1024;

/// Lines one actor may log per second. Above it lines are dropped, and one line says how many.
pub const LOG_LINES_PER_SECOND_MAX: u32 = 100;

/// Bytes of a failure's text that leave the node; a guest may have chosen some of them.
pub const FAILURE_TEXT_BYTES_MAX: usize = 256;
