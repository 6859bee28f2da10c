//! The data directory: made once, held by one process at a time, with its layout written down.
//!
//! It knows two files, `lock` and `node.json`; what else lies in the directory is storage's. Nothing in it depends on the
//! machine's name or on where the directory is.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use wasmkeep_storage::store::PARTITIONS;

use crate::fatal::Fatal;

/// The newest layout this version reads and the one it writes.
const FORMAT: u32 = 2;

/// `node.json`: the facts about a data directory that must never change under it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
struct Layout {
    format: u32,
    partitions: u32,
    /// Starts so far.
    incarnation: u64,
    /// How many shards each key-value class has that was ever served here.
    #[serde(default)]
    kv: BTreeMap<String, u32>,
}

/// A data directory that this process holds until it is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    layout: Mutex<Layout>,
    /// Holds the lock; the kernel releases it with the process, however that ends.
    lock: File,
}

impl DataDir {
    /// Makes or opens the directory, takes its lock and counts this start.
    ///
    /// # Errors
    /// [`Fatal::DataDirBusy`] with the other process's pid; [`Fatal::DataDir`] for a directory that is not ours, is of a
    /// newer version, or cannot be written.
    pub fn open(path: &Path) -> Result<Self, Fatal> {
        let wrong = |detail: String| Fatal::DataDir { path: path.to_path_buf(), detail };
        make(path).map_err(|error| wrong(format!("cannot be created: {error}")))?;
        if !path.join("node.json").exists() {
            check_empty(path)?;
        }
        let lock = take_lock(path)?;
        // An existing directory may be open to others, as a container's volume is; ours are not.
        if let Err(error) = fs::set_permissions(path, fs::Permissions::from_mode(0o700)) {
            tracing::warn!("data directory {} stays readable for others: {error}", path.display());
        }
        let mut layout =
            read_layout(path)?.unwrap_or(Layout { format: FORMAT, partitions: PARTITIONS, incarnation: 0, kv: BTreeMap::new() });
        layout.incarnation += 1;
        write_layout(path, &layout).map_err(|error| wrong(format!("writing node.json: {error}")))?;
        Ok(Self { path: path.to_path_buf(), layout: Mutex::new(layout), lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many times a node has started on this directory, this start included. Durable before anything is served.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.layout().incarnation
    }

    /// Holds the numbers of shards in the configuration against those that the data was written with, and keeps those of classes
    /// that are new here.
    ///
    /// # Errors
    /// [`Fatal::DataDir`], which says what to do about a number that has changed.
    pub fn settle_shards<'a>(&self, classes: impl Iterator<Item = (&'a str, u32)>) -> Result<(), Fatal> {
        let mut layout = self.layout();
        let mut next = layout.clone();
        for (class, shards) in classes {
            let kept = *next.kv.entry(class.to_owned()).or_insert(shards);
            if kept != shards {
                let detail = format!(
                    "has key-value class {class:?} in {kept} shards, and the configuration says {shards}: write shards = {kept}, start \
                     the node, and run `wasmkeep kv reshard {class} {shards}`, which moves the keys"
                );
                return Err(Fatal::DataDir { path: self.path.clone(), detail });
            }
        }
        if next.kv == layout.kv {
            return Ok(());
        }
        self.replace(&mut layout, next)
    }

    /// The number of shards of a key-value class; `None` for a class that was never served from here.
    #[must_use]
    pub fn shards(&self, class: &str) -> Option<u32> {
        self.layout().kv.get(class).copied()
    }

    /// Keeps that a class has so many shards from now on.
    ///
    /// # Errors
    /// [`Fatal::DataDir`] if it cannot be written; the old number then stays.
    pub fn set_shards(&self, class: &str, shards: u32) -> Result<(), Fatal> {
        let mut layout = self.layout();
        let mut next = layout.clone();
        next.kv.insert(class.to_owned(), shards);
        self.replace(&mut layout, next)
    }

    /// A thread that panicked while it held the lock left what is on disk.
    fn layout(&self) -> MutexGuard<'_, Layout> {
        self.layout.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace(&self, layout: &mut Layout, next: Layout) -> Result<(), Fatal> {
        let wrong = |error| Fatal::DataDir { path: self.path.clone(), detail: format!("writing node.json: {error}") };
        write_layout(&self.path, &next).map_err(wrong)?;
        *layout = next;
        Ok(())
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // Closing is not enough: a child that is between fork and exec shares the open file and would keep the lock.
        // SAFETY: the descriptor is open for as long as `lock` lives; flock has no other precondition.
        let _released_by_the_close_then = unsafe { libc::flock(self.lock.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// Makes the directory and its name durable: a power cut must not take away what holds acknowledged writes.
fn make(path: &Path) -> std::io::Result<()> {
    if path.join("node.json").exists() {
        // Written only once all this had been done.
        return Ok(());
    }
    let mut parents = Vec::new();
    for dir in path.ancestors().skip(1) {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        parents.push(dir);
        if dir.exists() {
            break;
        }
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    parents.into_iter().try_for_each(sync_names)
}

/// Makes the names in a directory durable. What may be entered but not read was made, and is kept, by somebody else.
fn sync_names(dir: &Path) -> std::io::Result<()> {
    match File::open(dir) {
        Ok(dir) => dir.sync_all(),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

/// A directory that holds something else is more likely a mistake than a wish.
fn check_empty(path: &Path) -> Result<(), Fatal> {
    let wrong = |detail: String| Fatal::DataDir { path: path.to_path_buf(), detail };
    for entry in fs::read_dir(path).map_err(|error| wrong(format!("cannot be read: {error}")))? {
        let name = entry.map_err(|error| wrong(format!("cannot be read: {error}")))?.file_name();
        // `lock` and a half-written node.json remain when a first start was cut short.
        if name != "lost+found" && name != "lock" && name != "node.json.new" {
            let name = name.to_string_lossy().into_owned();
            return Err(wrong(format!(
                "holds {name:?} but no node.json, so it is not a node's; choose an empty directory with --data"
            )));
        }
    }
    Ok(())
}

fn take_lock(path: &Path) -> Result<File, Fatal> {
    let wrong = |error: std::io::Error| Fatal::DataDir { path: path.to_path_buf(), detail: format!("cannot be locked: {error}") };
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path.join("lock"));
    let mut lock = open.map_err(wrong)?;
    // SAFETY: the descriptor is open for as long as `lock` lives; flock has no other precondition.
    if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::WouldBlock {
            return Err(wrong(error));
        }
        let mut pid = String::new();
        let read = lock.read_to_string(&mut pid);
        let pid = if read.is_ok() && !pid.trim().is_empty() { pid.trim().to_string() } else { "(starting)".to_string() };
        return Err(Fatal::DataDirBusy { path: path.to_path_buf(), pid });
    }
    lock.set_len(0).map_err(wrong)?;
    lock.rewind().map_err(wrong)?;
    lock.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(wrong)?;
    Ok(lock)
}

fn read_layout(path: &Path) -> Result<Option<Layout>, Fatal> {
    let wrong = |detail: String| Fatal::DataDir { path: path.to_path_buf(), detail };
    let text = match fs::read(path.join("node.json")) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(format!("reading node.json: {error}"))),
    };
    let value: serde_json::Value = serde_json::from_slice(&text).map_err(|error| {
        wrong(format!(
            "node.json is damaged ({error}); restore it from a copy: {{\"format\":2,\"partitions\":256,\"incarnation\":N}}"
        ))
    })?;
    let format = value.get("format").and_then(serde_json::Value::as_u64);
    if format != Some(u64::from(FORMAT)) {
        let found = format.map_or("of no format".to_string(), |found| format!("of format {found}"));
        return Err(wrong(format!(
            "is {found}; this version reads format {FORMAT}. Use the version that wrote it, or a newer one"
        )));
    }
    let layout: Layout = serde_json::from_value(value).map_err(|error| wrong(format!("node.json is damaged: {error}")))?;
    if layout.partitions != PARTITIONS {
        return Err(wrong(format!("has {} partitions; this version serves {PARTITIONS}", layout.partitions)));
    }
    Ok(Some(layout))
}

/// Replaces `node.json` so that after any crash it is the old one or the new one.
fn write_layout(path: &Path, layout: &Layout) -> std::io::Result<()> {
    let next = path.join("node.json.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
    file.write_all(&serde_json::to_vec(layout)?)?;
    file.sync_all()?;
    fs::rename(&next, path.join("node.json"))?;
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_made_closed_to_others_and_counts_its_starts() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let path = root.path().join("a/b");
        for start in 1..=3 {
            let dir = DataDir::open(&path).expect("opens");
            assert_eq!(dir.incarnation(), start);
        }
        assert_eq!(fs::metadata(&path).expect("exists").permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_second_holder_is_refused_and_told_the_pid() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let first = DataDir::open(root.path()).expect("opens");
        let Err(Fatal::DataDirBusy { pid, .. }) = DataDir::open(root.path()) else { panic!("a second holder got in") };
        assert_eq!(pid, std::process::id().to_string());
        drop(first);
        DataDir::open(root.path()).expect("free again");
    }

    #[test]
    fn a_newer_format_and_a_damaged_file_are_refused() {
        let root = tempfile::tempdir().expect("a temporary directory");
        drop(DataDir::open(root.path()).expect("opens"));
        for (text, needle) in [
            (r#"{"format":3,"partitions":256,"incarnation":1}"#, "format 3"),
            (r#"{"format":1,"partitions":256,"incarnation":1}"#, "format 1"),
            (r#"{"format":2,"partitions":128,"incarnation":1}"#, "128 partitions"),
            ("{", "damaged"),
            ("", "damaged"),
        ] {
            fs::write(root.path().join("node.json"), text).expect("writes");
            let error = DataDir::open(root.path()).expect_err("refused").to_string();
            assert!(error.contains(needle), "{error}");
        }
    }

    #[test]
    fn the_number_of_a_class_s_shards_is_kept_and_another_one_refused_with_what_to_do() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let dir = DataDir::open(root.path()).expect("opens");
        dir.settle_shards([("a", 8), ("b", 1)].into_iter()).expect("both are new");
        drop(dir);
        let dir = DataDir::open(root.path()).expect("opens");
        let error = dir.settle_shards([("c", 2), ("a", 16)].into_iter()).expect_err("a has changed").to_string();
        assert!(error.contains("shards = 8") && error.contains("`wasmkeep kv reshard a 16`"), "{error}");
        dir.set_shards("a", 16).expect("is written");
        drop(dir);
        let dir = DataDir::open(root.path()).expect("opens");
        // A refused start has kept nothing of what it was refused for.
        dir.settle_shards([("a", 16), ("c", 3)].into_iter()).expect("the same as before, and a new one");
    }

    #[test]
    fn a_directory_of_something_else_is_refused_and_left_alone() {
        let root = tempfile::tempdir().expect("a temporary directory");
        fs::write(root.path().join("thesis.tex"), "x").expect("writes");
        let error = DataDir::open(root.path()).expect_err("refused").to_string();
        assert!(error.contains("thesis.tex"), "{error}");
        assert_eq!(fs::read_dir(root.path()).expect("reads").count(), 1);
    }
}
