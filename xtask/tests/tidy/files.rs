//! Rules about single source files.

use crate::{assert_none, files_ending_in, metadata, read, root};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const LINE_CHARS_MAX: usize = 132;
/// The same for lines that hold a text in quotes.
const TEXT_CHARS_MAX: usize = 200;
const FILE_LINES_MAX: usize = 700;

/// This test's own sources, which spell out what they forbid.
fn is_own(path: &Path) -> bool {
    path.starts_with("xtask/tests/tidy")
}

/// Numbered lines of a file that a rule holds true of, for its report.
fn lines_where(path: &Path, rule: impl Fn(&str) -> bool) -> Vec<String> {
    let text = read(path);
    let numbered = text.lines().enumerate().filter(|(_, line)| rule(line));
    numbered.map(|(index, line)| format!("{}:{}: {}", path.display(), index + 1, line.trim())).collect()
}

#[test]
fn lines_are_narrow_enough_to_read_side_by_side() {
    let sources = files_ending_in(&[".rs", ".wit"]);
    let of_ours = sources.iter().filter(|path| !path.starts_with("wit/deps"));
    // rustfmt sees to code; a text within quotes, which it leaves alone, may be wider where breaking it would hide what it says.
    let is_wide = |line: &str| line.chars().count() > if line.contains('"') { TEXT_CHARS_MAX } else { LINE_CHARS_MAX };
    let problems: Vec<String> = of_ours.flat_map(|path| lines_where(path, is_wide)).collect();
    assert_none(&format!("lines of more than {LINE_CHARS_MAX} characters"), &problems);
}

#[test]
fn files_hold_one_subject() {
    let counted = files_ending_in(&[".rs"]).into_iter().map(|path| (read(&path).lines().count(), path));
    let long = counted.filter(|(lines, _)| *lines > FILE_LINES_MAX);
    let problems: Vec<String> = long.map(|(lines, path)| format!("{}: {lines} lines", path.display())).collect();
    assert_none(&format!("files of more than {FILE_LINES_MAX} lines; split them by subject"), &problems);
}

#[test]
fn every_module_says_what_it_is() {
    let sources = files_ending_in(&[".rs"]);
    let silent = sources.iter().filter(|path| !read(path).trim_start().starts_with("//!"));
    let problems: Vec<String> = silent.map(|path| path.display().to_string()).collect();
    assert_none("files without a header (//! ...)", &problems);
}

#[test]
fn no_test_is_switched_off() {
    let sources = files_ending_in(&[".rs"]);
    let others = sources.iter().filter(|path| !is_own(path));
    let off = |line: &str| line.trim_start().starts_with("#[ignore");
    let problems: Vec<String> = others.flat_map(|path| lines_where(path, off)).collect();
    assert_none("tests that are ignored", &problems);
}

#[test]
fn sources_speak_of_the_product_only() {
    // Paths and words of the place where the code was written, and marks of unfinished work.
    let words = ["/work/", "shared/design", "worktree", "subagent", "todo:", "fixme", "xxx:"];
    let spoken = |line: &str| {
        let line = line.to_lowercase();
        words.iter().any(|word| line.contains(word))
    };
    let texts = files_ending_in(&[".rs", ".toml", ".wit", ".md", "run"]);
    let others = texts.iter().filter(|path| !is_own(path) && !path.starts_with("wit/deps"));
    let problems: Vec<String> = others.flat_map(|path| lines_where(path, spoken)).collect();
    assert_none("words that do not belong here", &problems);
}

#[test]
fn every_source_file_is_compiled() {
    let mut reachable: BTreeSet<PathBuf> = BTreeSet::new();
    let metadata = metadata();
    let targets = metadata.workspace_packages().into_iter().flat_map(|package| &package.targets);
    for target in targets {
        let path = target.src_path.as_std_path().strip_prefix(root()).expect("sources lie in the repository");
        follow(path, true, &mut reachable);
    }
    let dead = files_ending_in(&[".rs"]).into_iter().filter(|path| !reachable.contains(path));
    let problems: Vec<String> = dead.map(|path| path.display().to_string()).collect();
    assert_none("files that no target reaches through `mod`", &problems);
}

/// Adds a file and all modules it declares. A root and a `mod.rs` have their modules beside them, others below.
fn follow(path: &Path, is_root: bool, reachable: &mut BTreeSet<PathBuf>) {
    if !reachable.insert(path.to_path_buf()) {
        return;
    }
    let beside = is_root || path.file_name().is_some_and(|name| name == "mod.rs");
    let dir = if beside { path.parent().unwrap_or(Path::new("")).to_path_buf() } else { path.with_extension("") };
    for module in read(path).lines().filter_map(declared_module) {
        let candidates = [dir.join(format!("{module}.rs")), dir.join(&module).join("mod.rs")];
        if let Some(file) = candidates.iter().find(|file| root().join(file).is_file()) {
            follow(file, false, reachable);
        }
    }
}

/// The name in `mod name;`, whatever its visibility.
fn declared_module(line: &str) -> Option<String> {
    let words = line.trim().strip_suffix(';')?;
    let (before, name) = words.rsplit_once("mod ").unwrap_or(("?", ""));
    let is_module = before.is_empty() || before.starts_with("pub");
    (is_module && name.chars().all(|c| c.is_alphanumeric() || c == '_')).then(|| name.to_owned())
}

#[test]
fn module_declarations_are_recognized() {
    let found = |line: &str| declared_module(line);
    assert_eq!(found("mod a;").as_deref(), Some("a"));
    assert_eq!(found("    pub(crate) mod b_2;").as_deref(), Some("b_2"));
    assert_eq!(found("mod tests {"), None);
    assert_eq!(found("let x = mod_y;"), None);
}
