//! From a file to a program that can be instantiated in microseconds: recognise, compile (or take from the cache), link, and
//! find out which world it is of. Everything that can be wrong with a component is found here, before it serves anyone.

use super::cache::Cache;
use super::engine::Engine;
use super::host::{INTERFACES, WASI_PACKAGES};
use super::http::HandleParams;
use super::limits::COMPONENT_BYTES_MAX;
use super::state::HostState;
use super::types::{WitRequest, WitResponse};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wasmtime::component::types::{self, ComponentItem};
use wasmtime::component::{Component, ComponentExportIndex, ComponentNamedList, InstancePre, Lift, Lower};
use xxhash_rust::xxh3::xxh3_128;

/// What a component is, by what it exports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum World {
    /// Exports `wasmkeep:actor/events`.
    Actor,
    /// Exports `wasi:http/incoming-handler`, and not `wasmkeep:actor/events`.
    HttpActor,
}

/// Why a component cannot be served. Each says what to do.
#[derive(thiserror::Error, Debug)]
#[error("component {}: {problem}", file.display())]
pub struct ComponentError {
    /// Which file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub problem: ComponentProblem,
}

/// What is wrong with a component.
#[derive(thiserror::Error, Debug)]
pub enum ComponentProblem {
    /// The file could not be read.
    #[error("cannot be read: {0}. Build it first, or correct the path")]
    Unreadable(#[source] std::io::Error),
    /// The file is larger than any component.
    #[error("has {0} bytes; the limit is {COMPONENT_BYTES_MAX}")]
    TooLarge(u64),
    /// There is nothing in it.
    #[error("the file is empty; build it again")]
    Empty,
    /// A core module.
    #[error(
        "this is a core module, not a component. Build with --target wasm32-wasip2, or wrap what you have with \
         `wasm-tools component new`"
    )]
    CoreModule,
    /// The text format.
    #[error("this is WebAssembly text. Turn it into a binary with `wasm-tools parse FILE.wat -o FILE.wasm`")]
    Text,
    /// Machine code.
    #[error(
        "this was compiled to machine code already. Give the .wasm it was made from; compiled code is cached by the node itself"
    )]
    Compiled,
    /// A component of another age.
    #[error("its binary format (version {0}) is not the component model's of today. Build it again with current tools")]
    OtherVersion(u16),
    /// Anything else.
    #[error("this is not WebAssembly. Give the .wasm that a build with --target wasm32-wasip2 wrote")]
    NotWasm,
    /// The compiler refused it.
    #[error("does not compile: {0}")]
    Invalid(String),
    /// It exports no world's entry.
    #[error("exports neither wasmkeep:actor/events@0.2.0 nor wasi:http/incoming-handler@0.2; found: {found}. {hint}")]
    NoWorld {
        /// What it exports.
        found: String,
        /// What that looks like.
        hint: &'static str,
    },
    /// An entry is not as its world says.
    #[error("its export {export} is not as the world says: {reason}. Build it against this node's wit/")]
    WrongExport {
        /// The interface.
        export: String,
        /// What differs.
        reason: String,
    },
    /// It imports what is not there.
    #[error("imports what this node does not offer: {0}")]
    UnknownImports(String),
    /// It does not fit together with what is there.
    #[error("does not link: {0}")]
    Unlinkable(String),
}

/// A component that is ready to be instantiated. Cheap to clone, shared by all cores.
#[derive(Clone)]
pub struct Program {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    prelinked: InstancePre<HostState>,
    exports: Exports,
    version: u128,
}

/// Where a component's entries are.
pub(crate) enum Exports {
    Actor { on_init: ComponentExportIndex, on_request: ComponentExportIndex, on_alarm: ComponentExportIndex },
    Http { handle: ComponentExportIndex },
}

impl Program {
    /// Loads a component from a file. Compiling takes a second or, for interpreters, ten; `cache` (a directory that is made if
    /// it is not there and should be nobody else's) makes the next time a millisecond.
    pub fn load(engine: &Engine, cache: Option<&Path>, file: &Path) -> Result<Self, ComponentError> {
        let failed = |problem| ComponentError { file: file.into(), problem };
        let bytes = read(file).map_err(failed)?;
        Self::from_bytes(engine, cache, &bytes).map_err(failed)
    }

    /// Loads a component from memory.
    pub fn from_bytes(engine: &Engine, cache: Option<&Path>, bytes: &[u8]) -> Result<Self, ComponentProblem> {
        recognise(bytes)?;
        let version = xxh3_128(bytes);
        let component = match cache {
            Some(directory) => Cache::new(directory, engine).get(version, || compile(engine, bytes))?,
            None => compile(engine, bytes)?,
        };
        check_imports(engine, &component)?;
        let unlinkable = |error: wasmtime::Error| ComponentProblem::Unlinkable(format!("{error:#}"));
        let prelinked = engine.linker().instantiate_pre(&component).map_err(unlinkable)?;
        let ty = engine.linker().substituted_component_type(&component).map_err(unlinkable)?;
        let exports = find_exports(&Linked { engine, component: &component, ty: &ty })?;
        Ok(Self { inner: Arc::new(Inner { engine: engine.clone(), prelinked, exports, version }) })
    }

    /// Names the component's content: 32 hexadecimal digits.
    #[must_use]
    pub fn version(&self) -> String {
        format!("{:032x}", self.inner.version)
    }

    /// The same as a number; never 0.
    #[must_use]
    pub fn version_number(&self) -> u128 {
        self.inner.version.max(1)
    }

    /// What the component is.
    #[must_use]
    pub fn world(&self) -> World {
        match self.inner.exports {
            Exports::Actor { .. } => World::Actor,
            Exports::Http { .. } => World::HttpActor,
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    pub(crate) fn prelinked(&self) -> &InstancePre<HostState> {
        &self.inner.prelinked
    }

    pub(crate) fn exports(&self) -> &Exports {
        &self.inner.exports
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("version", &self.version()).field("world", &self.world()).finish_non_exhaustive()
    }
}

fn read(file: &Path) -> Result<Vec<u8>, ComponentProblem> {
    let size = std::fs::metadata(file).map_err(ComponentProblem::Unreadable)?.len();
    if size > COMPONENT_BYTES_MAX {
        return Err(ComponentProblem::TooLarge(size));
    }
    std::fs::read(file).map_err(ComponentProblem::Unreadable)
}

/// The 16-bit layer after the version: 0 for core modules, 1 for components.
const COMPONENT_LAYER: [u8; 2] = [1, 0];

/// The component model's binary version since 2023.
const COMPONENT_VERSION: u16 = 0x0d;

/// What the first bytes say the file is.
fn recognise(bytes: &[u8]) -> Result<(), ComponentProblem> {
    if bytes.is_empty() {
        return Err(ComponentProblem::Empty);
    }
    if let Some([b'\0', b'a', b's', b'm', version @ .., layer_low, layer_high]) = bytes.first_chunk::<8>() {
        let version = u16::from_le_bytes(*version);
        return match [*layer_low, *layer_high] {
            COMPONENT_LAYER if version == COMPONENT_VERSION => Ok(()),
            COMPONENT_LAYER => Err(ComponentProblem::OtherVersion(version)),
            [0, 0] => Err(ComponentProblem::CoreModule),
            _ => Err(ComponentProblem::NotWasm),
        };
    }
    if wasmtime::Engine::detect_precompiled(bytes).is_some() {
        return Err(ComponentProblem::Compiled);
    }
    let text = bytes.trim_ascii_start();
    if [b"(component".as_slice(), b"(module", b";;"].iter().any(|start| text.starts_with(start)) {
        return Err(ComponentProblem::Text);
    }
    Err(ComponentProblem::NotWasm)
}

fn compile(engine: &Engine, bytes: &[u8]) -> Result<Component, ComponentProblem> {
    Component::from_binary(engine.wasmtime(), bytes).map_err(|error| ComponentProblem::Invalid(format!("{error:#}")))
}

/// Names every import that nothing answers. What is wrong inside an interface that exists is left to the linker.
fn check_imports(engine: &Engine, component: &Component) -> Result<(), ComponentProblem> {
    let ty = component.component_type();
    let unknown: Vec<String> = ty.imports(engine.wasmtime()).filter_map(|(name, _)| unknown_import(name)).collect();
    if unknown.is_empty() { Ok(()) } else { Err(ComponentProblem::UnknownImports(unknown.join("; "))) }
}

fn unknown_import(name: &str) -> Option<String> {
    let (interface, version) = name.split_once('@').unwrap_or((name, ""));
    let wasi = WASI_PACKAGES.iter().any(|package| interface.starts_with(package));
    let ours = INTERFACES.contains(&interface);
    if (wasi || ours) && version.starts_with("0.2.") {
        return None;
    }
    Some(match interface.split_once('/').map_or(interface, |(package, _)| package) {
        _ if wasi => format!("{name} (wasi 0.2 is offered; async components are not in this version)"),
        "wasmkeep:actor" => format!("{name} (wasmkeep:actor@0.2.0 is offered; build against this node's wit/)"),
        "wasmcloud:keyvalue" | "wasmkeep:connect" => format!("{name} (not in this version)"),
        _ => name.to_owned(),
    })
}

/// A component and its type once our resources stand for those it imports.
struct Linked<'a> {
    engine: &'a Engine,
    component: &'a Component,
    ty: &'a types::Component,
}

/// Finds the entries of the world the component is of.
fn find_exports(linked: &Linked<'_>) -> Result<Exports, ComponentProblem> {
    let names: Vec<&str> = linked.ty.exports(linked.engine.wasmtime()).map(|(name, _)| name).collect();
    let named = |prefix: &str| names.iter().copied().find(|name| name.starts_with(prefix));
    if let Some(events) = named("wasmkeep:actor/events@0.2.") {
        return Ok(Exports::Actor {
            on_init: entry::<(), ()>(linked, events, "on-init")?,
            on_request: entry::<(WitRequest,), (WitResponse,)>(linked, events, "on-request")?,
            on_alarm: entry::<(u32,), ()>(linked, events, "on-alarm")?,
        });
    }
    if let Some(handler) = named("wasi:http/incoming-handler@0.2.") {
        return Ok(Exports::Http { handle: entry::<HandleParams, ()>(linked, handler, "handle")? });
    }
    let found = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    Err(ComponentProblem::NoWorld { found, hint: hint(&names) })
}

fn hint(exports: &[&str]) -> &'static str {
    let has = |prefix: &str| exports.iter().any(|name| name.starts_with(prefix));
    if has("wasi:cli/run@") {
        "It is a command: it has a main function and no event handlers. Make it a library (crate-type cdylib) that exports an actor"
    } else if has("wasi:http/handler@0.3") || has("wasmkeep:actor/async") {
        "It is an async component, which this version does not serve"
    } else if has("wasmkeep:actor/events@") {
        "It was built for another version of wasmkeep:actor. Build it against this node's wit/"
    } else {
        "Export an actor with the SDK, or any wasi:http component"
    }
}

/// Finds one function and checks that it takes and gives what we will.
fn entry<P, R>(linked: &Linked<'_>, interface: &str, function: &str) -> Result<ComponentExportIndex, ComponentProblem>
where
    P: ComponentNamedList + Lower,
    R: ComponentNamedList + Lift,
{
    let wrong = |reason| ComponentProblem::WrongExport { export: interface.to_owned(), reason };
    let engine = linked.engine.wasmtime();
    let Some(ComponentItem::ComponentInstance(instance)) = linked.ty.get_export(engine, interface).map(|item| item.ty) else {
        return Err(wrong("it is no interface".to_owned()));
    };
    let Some(ComponentItem::ComponentFunc(func)) = instance.get_export(engine, function).map(|item| item.ty) else {
        return Err(wrong(format!("it has no function {function}")));
    };
    let mistyped = |error: wasmtime::Error| wrong(format!("{function} has another type: {error:#}"));
    func.typecheck::<P, R>(&linked.ty.instance_type()).map_err(mistyped)?;
    let index = linked.component.get_export_index(None, interface);
    let index = index.and_then(|instance| linked.component.get_export_index(Some(&instance), function));
    index.ok_or_else(|| wrong(format!("it has no function {function}")))
}
