//! `docs/conformance.md` names tests that exist, and every promise of the suite stands in it.

use crate::{assert_none, files_ending_in, read};
use std::path::{Path, PathBuf};

const TABLE: &str = "docs/conformance.md";
/// Where promises are written as functions, for both hosts.
const SUITE: &str = "runtime/tests/conformance";

/// A test as the table names it: `file::test`, `file::native::test` or `file::guest::test`.
#[derive(Debug, PartialEq, Eq)]
struct Named<'a> {
    /// The end of the file's path, without its ending.
    file: &'a str,
    /// Whether it is one of the two tests of a promise.
    is_promise: bool,
    test: &'a str,
}

impl<'a> Named<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split("::");
        let (file, second, third) = (parts.next()?, parts.next()?, parts.next());
        match (second, third) {
            ("native" | "guest", Some(test)) => Some(Self { file, is_promise: true, test }),
            (test, None) => Some(Self { file, is_promise: false, test }),
            _ => None,
        }
    }

    fn is_in(&self, path: &Path, text: &str) -> bool {
        let path = path.with_extension("");
        let is_there = path.ends_with(self.file);
        is_there && if self.is_promise { promises(text).any(|promise| promise == self.test) } else { has_test(text, self.test) }
    }
}

/// The names in the lists `promises! { ... }` of a file.
fn promises(text: &str) -> impl Iterator<Item = &str> {
    let lists = text.split("\npromises! {").skip(1).filter_map(|rest| rest.split_once('}'));
    lists.flat_map(|(list, _)| list.split(',')).map(str::trim).filter(|name| !name.is_empty())
}

/// Whether a function of that name has the attribute of a test.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let is_it = |line: &str| {
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        function.and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with('('))
    };
    let is_marked = |index: usize| {
        let above = lines[..index].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        above.into_iter().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
    };
    (0..lines.len()).any(|index| is_it(lines[index]) && is_marked(index))
}

/// The rows of the tables: promise, tests on the node, tests in a component.
fn rows(text: &str) -> Vec<[&str; 3]> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| --- ") && !line.starts_with("| promise "));
    let cells = rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>());
    cells.map(|cells| cells.try_into().unwrap_or_else(|cells: Vec<_>| panic!("{TABLE}: {cells:?} has not three cells"))).collect()
}

/// What stands in backticks and has a colon twice.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2).filter(|text| text.contains("::"))
}

#[test]
fn every_promise_names_tests_that_exist() {
    let table = read(Path::new(TABLE));
    let sources: Vec<(PathBuf, String)> = files_ending_in(&[".rs"]).into_iter().map(|path| (path.clone(), read(&path))).collect();
    let mut problems = Vec::new();
    for [promise, node, component] in rows(&table) {
        for (host, cell) in [("on the node", node), ("in a component", component)] {
            let missing = names(cell).filter(|name| {
                let named = Named::parse(name);
                !named.is_some_and(|named| sources.iter().any(|(path, text)| named.is_in(path, text)))
            });
            problems.extend(missing.map(|name| format!("there is no test {name}")));
            if names(cell).next().is_none() && !cell.starts_with("— ") {
                problems.push(format!("nothing proves {host}, and no reason is given: {promise}"));
            }
        }
        if names(node).chain(names(component)).next().is_none() {
            problems.push(format!("nothing proves: {promise}"));
        }
    }
    assert!(rows(&table).len() > 60, "the table cannot be read");
    assert_none(TABLE, &problems);
}

#[test]
fn every_promise_of_the_suite_stands_in_the_table() {
    let table = read(Path::new(TABLE));
    let mut problems = Vec::new();
    for path in files_ending_in(&[".rs"]).into_iter().filter(|path| path.starts_with(SUITE)) {
        let (text, file) = (read(&path), path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
        for promise in promises(&text) {
            for host in ["native", "guest"] {
                let name = format!("`conformance/{file}::{host}::{promise}`");
                if !table.contains(&name) {
                    problems.push(name);
                }
            }
        }
    }
    assert_none("promises that docs/conformance.md does not name", &problems);
}

#[test]
fn names_promises_and_tests_are_recognized() {
    let suite = Named::parse("conformance/life::guest::a_life").expect("it is a name");
    assert_eq!(suite, Named { file: "conformance/life", is_promise: true, test: "a_life" });
    let text = "fn a_life(place: Place) {}\n\npromises! {\n    a_life,\n}\n";
    assert!(suite.is_in(Path::new("runtime/tests/conformance/life.rs"), text));
    assert!(!suite.is_in(Path::new("runtime/tests/life.rs"), text));
    assert_eq!(promises(text).collect::<Vec<_>>(), ["a_life"]);
    assert!(!has_test(text, "a_life") && has_test("#[test]\n/// Why.\nfn a_life() {}", "a_life"));
    assert!(has_test("    #[tokio::test]\n    async fn b() {}", "b") && !has_test("#[test]\nfn bc() {}", "b"));
    let table = "| promise | node | component |\n| --- | --- | --- |\n| A | `x/y::z` | — why |\n";
    assert_eq!(rows(table), [["A", "`x/y::z`", "— why"]]);
    assert_eq!(names("`x/y::z`<br>`w` `a::native::b`").collect::<Vec<_>>(), ["x/y::z", "a::native::b"]);
}
