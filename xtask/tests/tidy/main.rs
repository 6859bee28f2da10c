//! What no compiler checks: who may know whom, sizes, dead files, words, links, and that promises have their tests.
//!
//! Each rule reports everything it finds in one go. Rules that read sources leave this directory out where they would find
//! their own patterns.

mod conformance;
mod edges;
mod files;
mod links;

use cargo_metadata::{Metadata, MetadataCommand};
use std::path::{Path, PathBuf};

/// Directories with nothing of ours in them.
const SKIPPED: [&str; 4] = ["target", ".git", "wasmkeep-data", "node_modules"];

/// The repository. Asked when it runs: checkouts may share a target directory, and with it this test, built in another one.
fn root() -> PathBuf {
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR").expect("tests run through cargo");
    Path::new(&manifest_dir).parent().expect("xtask has a parent").to_path_buf()
}

/// Our packages, as cargo sees them; asks no registry.
fn metadata() -> Metadata {
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml")).no_deps().other_options(["--offline".to_owned()]);
    command.exec().expect("cargo metadata")
}

/// Every file of the repository with one of these endings, relative to its root, sorted.
fn files_ending_in(endings: &[&str]) -> Vec<PathBuf> {
    let root = root();
    let mut found = Vec::new();
    let mut pending = vec![root.clone()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(&dir).expect("a readable directory") {
            let path = entry.expect("a directory entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !SKIPPED.contains(&name.as_str()) {
                pending.push(path);
            } else if path.is_file() && endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path.strip_prefix(&root).expect("below the root").to_path_buf());
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn assert_none(rule: &str, problems: &[String]) {
    assert!(problems.is_empty(), "{rule}:\n  {}", problems.join("\n  "));
}
