//! What guests may do with SQL: an allowlist of pragmas and virtual tables, and no statement that leaves the database.

use std::ffi::{CStr, c_char, c_int, c_void};

use rusqlite::ffi;

/// Pragmas a guest may read and set.
const PRAGMAS: &[&str] = &[
    "application_id",
    "case_sensitive_like",
    "collation_list",
    "compile_options",
    "data_version",
    "defer_foreign_keys",
    "foreign_key_check",
    "foreign_key_list",
    "foreign_keys",
    "function_list",
    "index_info",
    "index_list",
    "index_xinfo",
    "integrity_check",
    "optimize",
    "quick_check",
    "recursive_triggers",
    "table_info",
    "table_list",
    "table_xinfo",
    "user_version",
];

/// Pragmas a guest may only read.
const PRAGMAS_TO_READ: &[&str] = &["encoding", "freelist_count", "page_count", "page_size", "schema_version"];

/// Virtual tables a guest may create.
const MODULES: &[&str] = &["fts5", "fts5vocab", "rtree", "geopoly"];

/// Says why the last statement was refused.
#[derive(Default)]
pub(super) struct Guard {
    reason: std::cell::RefCell<Option<String>>,
}

impl Guard {
    /// Why the statement that is being prepared was refused; asked once.
    pub(super) fn take_reason(&self) -> Option<String> {
        self.reason.take()
    }

    fn refuse(&self, reason: String) -> c_int {
        self.reason.replace(Some(reason));
        ffi::SQLITE_DENY
    }

    fn check(&self, action: c_int, first: Option<&str>, second: Option<&str>) -> c_int {
        match action {
            ffi::SQLITE_ATTACH => self.refuse("ATTACH: an actor has one database".into()),
            ffi::SQLITE_DETACH => self.refuse("DETACH: an actor has one database".into()),
            ffi::SQLITE_PRAGMA => self.pragma(first.unwrap_or_default(), second),
            ffi::SQLITE_FUNCTION if second.is_some_and(|name| name.eq_ignore_ascii_case("load_extension")) => {
                self.refuse("load_extension: extensions cannot be loaded".into())
            }
            ffi::SQLITE_CREATE_VTABLE if !second.is_some_and(|module| listed(MODULES, module)) => {
                self.refuse(format!("virtual table module {}; there are {}", second.unwrap_or("?"), MODULES.join(", ")))
            }
            _ => ffi::SQLITE_OK,
        }
    }

    fn pragma(&self, name: &str, value: Option<&str>) -> c_int {
        if listed(PRAGMAS, name) || (listed(PRAGMAS_TO_READ, name) && value.is_none()) {
            ffi::SQLITE_OK
        } else if listed(PRAGMAS_TO_READ, name) {
            self.refuse(format!("PRAGMA {name} can be read but not set"))
        } else {
            self.refuse(format!("PRAGMA {name}: it is not among those that an actor may use"))
        }
    }
}

fn listed(list: &[&str], name: &str) -> bool {
    list.iter().any(|item| item.eq_ignore_ascii_case(name))
}

/// Statements that are refused by their first word, because SQLite has no finer hook for them.
pub(super) fn refused_by_name(sql: &str) -> Option<&'static str> {
    let word = first_word(sql);
    word.eq_ignore_ascii_case("vacuum").then_some("VACUUM: free pages are reused, and the base file is written by the node")
}

/// Whether a statement is `ROLLBACK` of the whole transaction, not `ROLLBACK TO` a savepoint of it.
pub(super) fn is_whole_rollback(sql: &str) -> bool {
    let (first, rest) = split_word(sql);
    let (second, rest) = split_word(rest);
    let third = split_word(rest).0;
    let to = |word: &str| word.eq_ignore_ascii_case("to");
    first.eq_ignore_ascii_case("rollback") && !to(second) && !(second.eq_ignore_ascii_case("transaction") && to(third))
}

/// The first word of a statement, behind white space, comments and empty statements.
fn first_word(sql: &str) -> &str {
    split_word(sql).0
}

/// Whether anything but white space, comments and empty statements is in a text, be it a statement or a mistake.
pub(super) fn has_statement(sql: &str) -> bool {
    split_word(sql) != ("", "")
}

/// `first_word`, and what is behind it.
fn split_word(sql: &str) -> (&str, &str) {
    let mut rest = sql;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ';' || c == '\u{feff}');
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, behind)| behind);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, behind)| behind);
        } else {
            let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
            return rest.split_at(end);
        }
    }
}

/// SQLite's hook. Its argument is the connection's `Guard`.
pub(super) unsafe extern "C" fn authorizer(
    guard: *mut c_void,
    action: c_int,
    first: *const c_char,
    second: *const c_char,
    _database: *const c_char,
    _trigger: *const c_char,
) -> c_int {
    // SAFETY: SQLite gives C strings or nulls that live during the call.
    let text = |text: *const c_char| if text.is_null() { None } else { unsafe { CStr::from_ptr(text) }.to_str().ok() };
    // SAFETY: the connection keeps its `Guard` in a box for as long as SQLite may call this.
    let guard = unsafe { &*guard.cast::<Guard>() };
    guard.check(action, text(first), text(second))
}
