//! Which crate may depend on which. An arrow that is not listed does not exist, and neither does a crate.

use crate::{assert_none, metadata, read, root};
use cargo_metadata::{Metadata, Package};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Every package of the workspace and those of ours it may depend on, in any section of its manifest.
const ALLOWED: [(&str, &[&str]); 17] = [
    ("wasmkeep", &["wasmkeep-storage", "wasmkeep-classes"]),
    ("wasmkeep-storage", &[]),
    ("wasmkeep-classes", &[]),
    ("wasmkeep-sdk", &["wasmkeep-classes"]),
    ("wasmkeep-benches", &["wasmkeep", "wasmkeep-storage", "wasmkeep-classes", "wasmkeep-sdk"]),
    ("wasmkeep-compare", &["wasmkeep-storage", "wasmkeep-classes"]),
    ("xtask", &[]),
    ("counter", &["wasmkeep-sdk"]),
    ("notes", &["wasmkeep-sdk"]),
    ("hello-http", &[]),
    ("jobs-web", &["wasmkeep-sdk"]),
    ("jobs-consumer", &["wasmkeep-sdk"]),
    ("jobs-receiver", &["wasmkeep-sdk"]),
    ("jobs-queue", &["wasmkeep-sdk"]),
    ("jobs-settings", &["wasmkeep-sdk"]),
    ("test-guest", &["wasmkeep-sdk"]),
    ("test-queue", &["wasmkeep-sdk"]),
];

/// Crates of the outside that only some of ours may know, whatever section they stand in.
const RESERVED: [(&str, &[&str]); 4] = [
    ("wasmtime", &["wasmkeep"]),
    ("hyper", &["wasmkeep", "wasmkeep-benches"]),
    ("rusqlite", &["wasmkeep-storage", "wasmkeep-classes", "wasmkeep", "wasmkeep-sdk", "wasmkeep-benches", "wasmkeep-compare"]),
    ("wit-bindgen", &["wasmkeep-sdk"]),
];

fn members(metadata: &Metadata) -> BTreeMap<&str, &Package> {
    metadata.workspace_packages().into_iter().map(|package| (package.name.as_str(), package)).collect()
}

#[test]
fn crates_depend_on_each_other_only_as_the_architecture_allows() {
    let metadata = metadata();
    let members = members(&metadata);
    let listed: BTreeSet<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
    assert_eq!(members.keys().copied().collect::<BTreeSet<_>>(), listed, "members of the workspace, and those this test knows");
    let mut problems = Vec::new();
    for (name, allowed) in ALLOWED {
        let ours = members[name].dependencies.iter().map(|dependency| dependency.name.as_str());
        let forbidden = ours.filter(|other| members.contains_key(other) && !allowed.contains(other));
        problems.extend(forbidden.map(|other| format!("{name} -> {other}")));
    }
    assert_none("edges that ARCHITECTURE.md does not allow", &problems);
}

#[test]
fn only_the_crates_meant_to_know_a_library() {
    let metadata = metadata();
    let mut problems = Vec::new();
    for (name, package) in members(&metadata) {
        for (library, allowed) in RESERVED {
            // A library's own family counts: wasmtime-wasi is wasmtime.
            let of_family = |other: &str| other == library || other.starts_with(&format!("{library}-"));
            let knows = package.dependencies.iter().any(|dependency| of_family(&dependency.name));
            if knows && !allowed.contains(&name) {
                problems.push(format!("{name} -> {library}"));
            }
        }
    }
    assert_none("libraries that are reserved for other crates", &problems);
}

#[test]
fn runtime_classes_and_sdk_keep_sqlite_to_their_tests() {
    let metadata = metadata();
    let in_production = |dependency: &&cargo_metadata::Dependency| dependency.kind == cargo_metadata::DependencyKind::Normal;
    let kept = [
        ("wasmkeep", "reaches SQLite through wasmkeep-storage only"),
        ("wasmkeep-classes", "is given its database"),
        ("wasmkeep-sdk", "reaches SQLite through the node only"),
    ];
    for (name, why) in kept {
        let package = members(&metadata)[name];
        let mut names = package.dependencies.iter().filter(in_production).map(|dependency| dependency.name.as_str());
        assert!(!names.any(|dependency| dependency == "rusqlite"), "{name} {why}");
    }
}

#[test]
fn every_crate_takes_the_workspaces_lints_and_licence() {
    let metadata = metadata();
    let mut problems = Vec::new();
    for package in metadata.workspace_packages() {
        let manifest = package.manifest_path.as_std_path();
        let manifest = manifest.strip_prefix(root()).unwrap_or(Path::new(manifest));
        let text = read(manifest);
        for line in ["[lints]\nworkspace = true", "license.workspace = true", "rust-version.workspace = true"] {
            if !text.contains(line) {
                problems.push(format!("{} lacks {line:?}", manifest.display()));
            }
        }
    }
    assert_none("manifests that go their own way", &problems);
}
