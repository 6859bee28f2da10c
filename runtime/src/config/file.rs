//! Reading `wasmkeep.toml`: strict, and every error names its line and what would have been right.
//!
//! The file is walked by hand, not by serde, so that one reading reports everything that is wrong, each at its own line,
//! and never quotes a line that may hold a secret.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file_natives::FileNative;
use super::values::{check_class_name, check_env, nearest, parse_access, parse_app, shown};
use super::{Access, AppName, ConfigError};
use crate::limits::CONFIG_BYTES_MAX;

/// Keys at the top of the file.
const TOP_KEYS: &[&str] = &["actors", "app", "kv", "node", "queues"];
/// Sections that later versions will read. Refused by name, so that nobody believes they have an effect.
const LATER_KEYS: &[&str] = &["connections", "dev", "keyvalue"];
const ACTOR_KEYS: &[&str] = &["access", "component", "env"];
/// Keys of `[node]`: the flags of `wasmkeep serve`, without their dashes.
pub(super) const NODE_KEYS: &[&str] = &[
    "accept-journal-loss",
    "admin",
    "admin-token",
    "api",
    "api-tokens",
    "cores",
    "data",
    "database-mb",
    "drain",
    "event-cpu",
    "event-wall",
    "idle",
    "io",
    "journal-mb",
    "listen",
    "log",
    "memory-mb",
];

/// What one file says.
#[derive(Default, Debug)]
pub(super) struct FileConfig {
    pub(super) app: Option<AppName>,
    pub(super) actors: Vec<FileActor>,
    pub(super) node: Vec<FileSetting>,
    /// By name within their kind: queues and key-value.
    pub(super) natives: Vec<FileNative>,
}

/// One `[actors.name]`.
#[derive(Debug)]
pub(super) struct FileActor {
    pub(super) name: String,
    pub(super) component: Option<PathBuf>,
    pub(super) access: Option<Access>,
    pub(super) env: Vec<(String, String)>,
}

/// One key of `[node]`, its value as a flag would have it.
#[derive(Debug)]
pub(super) struct FileSetting {
    /// One of `NODE_KEYS`.
    pub(super) key: &'static str,
    pub(super) text: String,
    /// `file:line`, for errors.
    pub(super) place: String,
}

/// Reads the file. Relative paths in it are relative to its own directory.
pub(super) fn read(path: &Path) -> Result<FileConfig, ConfigError> {
    let fail = |error: std::io::Error| ConfigError::one(format!("reading {}: {error}", path.display()));
    if std::fs::metadata(path).map_err(fail)?.len() > CONFIG_BYTES_MAX {
        return Err(ConfigError::one(format!("{} is larger than {CONFIG_BYTES_MAX} bytes", path.display())));
    }
    parse(path, &std::fs::read_to_string(path).map_err(fail)?)
}

/// Reads a file's text; `path` only names it and its directory.
pub(super) fn parse(path: &Path, text: &str) -> Result<FileConfig, ConfigError> {
    let mut doc = Doc { path, text, problems: Vec::new() };
    let mut config = FileConfig::default();
    match DeTable::parse(text) {
        Ok(table) => doc.top(table.get_ref(), &mut config),
        Err(error) => doc.report(error.span().unwrap_or(0..0), error.message()),
    }
    if doc.problems.is_empty() { Ok(config) } else { Err(ConfigError { problems: doc.problems }) }
}

pub(super) struct Doc<'a> {
    path: &'a Path,
    text: &'a str,
    problems: Vec<String>,
}

pub(super) type Value<'a> = Spanned<DeValue<'a>>;

impl Doc<'_> {
    pub(super) fn place(&self, span: &Range<usize>) -> String {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!("{}:{line}", self.path.display())
    }

    pub(super) fn report(&mut self, span: Range<usize>, problem: impl AsRef<str>) {
        let problem = format!("{}: {}", self.place(&span), problem.as_ref());
        self.problems.push(problem);
    }

    pub(super) fn unknown(&mut self, key: &Spanned<std::borrow::Cow<'_, str>>, within: &str, valid: &[&str]) {
        let name = key.get_ref();
        self.report(
            key.span(),
            format!("unknown key {} {within}{} (valid: {})", shown(name), nearest(name, valid), valid.join(", ")),
        );
    }

    pub(super) fn table<'v, 'd>(&mut self, what: &str, value: &'v Value<'d>) -> Option<&'v DeTable<'d>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.report(value.span(), format!("{what} must be a table, not {}", kind(value)));
        }
        table
    }

    pub(super) fn string<'v>(&mut self, what: &str, value: &'v Value<'_>) -> Option<&'v str> {
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.report(value.span(), format!("{what} must be a text in quotes, not {}", kind(value)));
        }
        text
    }

    /// Keeps a checked value or reports why not.
    pub(super) fn keep<T>(&mut self, span: Range<usize>, checked: Result<T, String>) -> Option<T> {
        checked.map_err(|problem| self.report(span, problem)).ok()
    }

    fn relative(&self, text: &str) -> PathBuf {
        self.path.parent().map_or_else(|| PathBuf::from(text), |directory| directory.join(text))
    }

    fn top(&mut self, table: &DeTable<'_>, config: &mut FileConfig) {
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            match name {
                "app" => {
                    let text = self.string("app", value);
                    config.app = text.and_then(|text| self.keep(value.span(), parse_app(text)));
                }
                "actors" => {
                    for (name, value) in self.table("actors", value).into_iter().flatten() {
                        let actor = self.actor(name, value);
                        config.actors.extend(actor);
                    }
                }
                "node" => {
                    for (key, value) in self.table("node", value).into_iter().flatten() {
                        let setting = self.setting(key, value);
                        config.node.extend(setting);
                    }
                }
                "queues" => {
                    for (name, value) in self.table("queues", value).into_iter().flatten() {
                        let queue = self.queue(name, value);
                        config.natives.extend(queue);
                    }
                }
                "kv" => {
                    for (name, value) in self.table("kv", value).into_iter().flatten() {
                        let kv = self.kv(name, value);
                        config.natives.extend(kv);
                    }
                }
                later if LATER_KEYS.contains(&later) => {
                    self.report(
                        key.span(),
                        format!("[{later}] is not in this version; remove the section, it would have no effect"),
                    );
                }
                _ => self.unknown(key, "at the top of the file", TOP_KEYS),
            }
        }
    }

    fn actor(&mut self, key: &Spanned<std::borrow::Cow<'_, str>>, value: &Value<'_>) -> Option<FileActor> {
        let name = key.get_ref().as_ref();
        self.keep(key.span(), check_class_name(name))?;
        let within = format!("in [actors.{name}]");
        let mut actor = FileActor { name: name.into(), component: None, access: None, env: Vec::new() };
        for (key, value) in self.table(&format!("actors.{name}"), value)? {
            match key.get_ref().as_ref() {
                "component" => actor.component = self.string("component", value).map(|text| self.relative(text)),
                "access" => {
                    let text = self.string("access", value);
                    actor.access = text.and_then(|text| self.keep(value.span(), parse_access(text)));
                }
                "env" => {
                    for (name, value) in self.table("env", value).into_iter().flatten() {
                        let Some(text) = self.string(&format!("variable {}", shown(name.get_ref())), value) else { continue };
                        self.keep(name.span(), check_env(name.get_ref(), text));
                        actor.env.push((name.get_ref().to_string(), text.to_string()));
                    }
                }
                _ => self.unknown(key, &within, ACTOR_KEYS),
            }
        }
        Some(actor)
    }

    fn setting(&mut self, key: &Spanned<std::borrow::Cow<'_, str>>, value: &Value<'_>) -> Option<FileSetting> {
        let Some(known) = NODE_KEYS.iter().copied().find(|known| *known == key.get_ref().as_ref()) else {
            self.unknown(key, "in [node]", NODE_KEYS);
            return None;
        };
        let text = match value.get_ref() {
            DeValue::String(text) if matches!(known, "data" | "admin-token" | "api-tokens") => {
                self.relative(text).display().to_string()
            }
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_string(),
            DeValue::Boolean(flag) => flag.to_string(),
            _ => {
                self.report(value.span(), format!("{known} must be a text, a number or a boolean, not {}", kind(value)));
                return None;
            }
        };
        Some(FileSetting { key: known, text, place: self.place(&value.span()) })
    }
}

pub(super) fn kind(value: &Value<'_>) -> String {
    let name = value.get_ref().type_str();
    let article = if name.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" };
    format!("{article} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        parse(Path::new("wasmkeep.toml"), text).expect_err("the file is wrong").problems
    }

    #[test]
    fn a_typo_in_a_key_names_its_line_and_the_nearest_valid_key() {
        let found =
            problems("app = \"acme/shop\"\n[actors.orders]\ncomponent = \"o.wasm\"\nacess = \"internal\"\n[nod]\ncores = 1\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.contains(
            &"wasmkeep.toml:4: unknown key \"acess\" in [actors.orders]; did you mean \"access\"? (valid: access, component, env)".to_string()
        ));
        assert!(
            found.contains(
                &"wasmkeep.toml:5: unknown key \"nod\" at the top of the file; did you mean \"node\"? (valid: actors, app, kv, node, queues)"
                    .to_string()
            )
        );
    }

    #[test]
    fn sections_of_later_versions_are_refused_by_name() {
        for section in LATER_KEYS {
            let found = problems(&format!("\n[{section}.main]\nshards = 8\n"));
            assert_eq!(
                found,
                [format!("wasmkeep.toml:2: [{section}] is not in this version; remove the section, it would have no effect")]
            );
        }
    }

    #[test]
    fn values_of_a_wrong_kind_say_which_kind_is_right() {
        let found =
            problems("app = 5\n[actors.a]\ncomponent = true\nenv = [\"A\"]\n[actors.b]\nenv = { A = 1 }\n[node]\nlisten = [1]\n");
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(found.contains(&"wasmkeep.toml:1: app must be a text in quotes, not an integer".to_string()), "{found:?}");
        assert!(found.contains(&"wasmkeep.toml:4: env must be a table, not an array".to_string()), "{found:?}");
    }

    #[test]
    fn broken_toml_names_the_line_and_does_not_quote_it() {
        let found = problems("[actors.a]\nenv = { PASSWORD = \"hunter2\n");
        assert!(found[0].starts_with("wasmkeep.toml:2: "), "{found:?}");
        assert!(!found[0].contains("hunter2"));
    }

    #[test]
    fn names_and_accesses_obey_their_grammar() {
        let found = problems("app = \"shop\"\n[actors.Orders]\ncomponent = \"o.wasm\"\n[actors.o]\naccess = \"pubic\"\n");
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().any(|problem| problem.contains("did you mean \"public\"?")));
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let text = "[actors.a]\ncomponent = \"a.wasm\"\n[actors.b]\ncomponent = \"/b.wasm\"\n[node]\ndata = \"d\"\n";
        let config = parse(Path::new("/etc/wk/wasmkeep.toml"), text).expect("a valid file");
        let components: Vec<_> = config.actors.iter().map(|actor| actor.component.clone().expect("given")).collect();
        assert_eq!(components, [PathBuf::from("/etc/wk/a.wasm"), PathBuf::from("/b.wasm")]);
        assert_eq!(config.node[0].text, "/etc/wk/d");
    }
}
