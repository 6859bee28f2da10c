//! Compiled components on disk, named by their content and by the engine that compiled them.
//!
//! Machine code from a file runs with all our rights, so a file is used only if it is byte for byte what we wrote under that
//! name: a checksum over both stands in front of it. That finds damage and mix-ups. Somebody who may write into this directory
//! may write into the databases next to it as well; it is made accessible to its owner only.

use super::component::ComponentProblem;
use super::engine::Engine;
use super::limits::COMPONENTS_CACHED_MAX;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use wasmtime::component::Component;
use xxhash_rust::xxh3::Xxh3Default;

const MAGIC: [u8; 8] = *b"WKCWASM1";
const HEAD_BYTES: usize = MAGIC.len() + size_of::<u128>();
const EXTENSION: &str = "cwasm";

/// One directory, as one engine sees it. Writers that meet damage each other's file at worst, which the next reader sees.
pub(crate) struct Cache<'a> {
    directory: &'a Path,
    engine: &'a Engine,
}

impl<'a> Cache<'a> {
    pub(crate) fn new(directory: &'a Path, engine: &'a Engine) -> Self {
        Self { directory, engine }
    }

    /// The component with that content, compiled now unless it was before. Trouble with the cache is logged and costs time only.
    pub(crate) fn get(
        &self,
        version: u128,
        compile: impl FnOnce() -> Result<Component, ComponentProblem>,
    ) -> Result<Component, ComponentProblem> {
        let name = format!("{version:032x}-{:016x}", self.engine.compatibility());
        let path = self.directory.join(&name).with_extension(EXTENSION);
        if let Some(component) = self.read(&name, &path) {
            return Ok(component);
        }
        let component = compile()?;
        if let Err(error) = self.write(&name, &path, &component) {
            tracing::warn!("compiled component was not kept in {}: {error}", path.display());
        }
        Ok(component)
    }

    fn read(&self, name: &str, path: &Path) -> Option<Component> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!("compiled component {} cannot be read, compiling again: {error}", path.display());
                return None;
            }
        };
        let Some(code) = checked(name, &bytes) else {
            tracing::warn!("compiled component {} is damaged, compiling again", path.display());
            return None;
        };
        // SAFETY: `deserialize` needs bytes that `serialize` of a compatible engine gave. The checksum covers the code and the
        // name, which holds the engine's compatibility hash and is written by `write` only, over exactly such bytes.
        match unsafe { Component::deserialize(self.engine.wasmtime(), code) } {
            Ok(component) => Some(component),
            Err(error) => {
                tracing::warn!("compiled component {} is of another engine, compiling again: {error:#}", path.display());
                None
            }
        }
    }

    fn write(&self, name: &str, path: &Path, component: &Component) -> io::Result<()> {
        let code = component.serialize().map_err(io::Error::other)?;
        DirBuilder::new().recursive(true).mode(0o700).create(self.directory)?;
        fs::set_permissions(self.directory, Permissions::from_mode(0o700))?;
        let temporary = self.directory.join(name).with_extension("tmp");
        let mut file = fs::File::create(&temporary)?;
        file.write_all(&MAGIC)?;
        file.write_all(&checksum(name, &code).to_le_bytes())?;
        file.write_all(&code)?;
        drop(file);
        fs::rename(&temporary, path)?;
        self.prune()
    }

    /// Removes the oldest files past the limit.
    fn prune(&self) -> io::Result<()> {
        let mut kept: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(self.directory)? {
            let entry = entry?;
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == EXTENSION) {
                kept.push((entry.metadata()?.modified()?, path));
            }
        }
        kept.sort();
        let excess = kept.len().saturating_sub(COMPONENTS_CACHED_MAX);
        kept.iter().take(excess).try_for_each(|(_, path)| fs::remove_file(path))
    }
}

/// The code in a file's bytes, if they are what was written under that name.
fn checked<'b>(name: &str, bytes: &'b [u8]) -> Option<&'b [u8]> {
    let (head, code) = bytes.split_at_checked(HEAD_BYTES)?;
    let sum = head.strip_prefix(&MAGIC)?.try_into().map(u128::from_le_bytes).ok()?;
    (sum == checksum(name, code)).then_some(code)
}

fn checksum(name: &str, code: &[u8]) -> u128 {
    let mut hasher = Xxh3Default::new();
    hasher.update(name.as_bytes());
    hasher.update(code);
    hasher.digest128()
}
