//! The flags of `wasmkeep serve`, and how flags, environment, file and defaults become one [`NodeConfig`].
//!
//! Every setting has a flag, an environment variable `WASMKEEP_…` and a key: the flag's name in `[node]`, or for classes a key
//! of `[actors.*]`. Texts of all three are read by the same functions.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;

use super::file::{self, FileConfig};
use super::file_natives::FileNative;
use super::native::CALLERS;
use super::values::{check_class_name, check_env, nearest, parse_access, parse_duration, parse_socket_address, shown};
use super::{
    Access, ApiToken, Budgets, ClassConfig, ConfigError, Env, IoChoice, LogFormat, MB, NativeConfig, NodeConfig, Secret, cores_max,
    tokens,
};
use crate::limits::{CLASS_ENV_BYTES_MAX, CLASSES_MAX};

/// The file that is read when none is named, if it is there.
const DEFAULT_FILE: &str = "wasmkeep.toml";
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// The flags of `wasmkeep serve`. `None` and empty lists mean "not given".
#[derive(clap::Args, Clone, Default)]
pub struct Settings {
    /// The configuration file [default: wasmkeep.toml, if it is there]
    #[arg(long, value_name = "FILE", env = "WASMKEEP_CONFIG")]
    pub config: Option<PathBuf>,
    /// Cores: threads bound to one CPU each, every one with its own actors and journal [default: the CPUs this process may use]
    #[arg(long, value_name = "N", env = "WASMKEEP_CORES")]
    pub cores: Option<usize>,
    /// Where requests arrive, HTTP/1.1 and h2c [default: 127.0.0.1:8080]
    #[arg(long, value_name = "HOST:PORT", env = "WASMKEEP_LISTEN", value_parser = parse_socket_address)]
    pub listen: Option<SocketAddr>,
    /// The operator's listener: /healthz, /readyz, /metrics and what the command line asks [default: 127.0.0.1:9090]
    #[arg(long, value_name = "HOST:PORT", env = "WASMKEEP_ADMIN", value_parser = parse_socket_address)]
    pub admin: Option<SocketAddr>,
    /// A file whose text every admin request must carry as a bearer token; needed when --admin is not a loopback address
    #[arg(long, value_name = "FILE", env = "WASMKEEP_ADMIN_TOKEN")]
    pub admin_token: Option<PathBuf>,
    /// The service door: key-value and queues for programs that are no actors [default: none]
    #[arg(long, value_name = "HOST:PORT", env = "WASMKEEP_API", value_parser = parse_socket_address)]
    pub api: Option<SocketAddr>,
    /// A file of lines `name token`: who may use the service door; needed when --api is not a loopback address
    #[arg(long, value_name = "FILE", env = "WASMKEEP_API_TOKENS")]
    pub api_tokens: Option<PathBuf>,
    /// The data directory; one process at a time [default: ./wasmkeep-data]
    #[arg(long, value_name = "DIR", env = "WASMKEEP_DATA")]
    pub data: Option<PathBuf>,
    /// Serve the component FILE as class CLASS; may be repeated [env: WASMKEEP_ACTOR, one CLASS=FILE a line]
    #[arg(long, value_name = "CLASS=FILE")]
    pub actor: Vec<String>,
    /// Who may send a class requests: anyone (public) or only actors (internal); may be repeated
    /// [env: WASMKEEP_ACCESS, one a line] [default: public]
    #[arg(long, value_name = "CLASS=public|internal")]
    pub access: Vec<String>,
    /// A variable of a class; may be repeated [env: WASMKEEP_ENV, one CLASS:NAME=VALUE a line]
    #[arg(long, value_name = "CLASS:NAME=VALUE")]
    pub env: Vec<String>,
    /// How the journal reaches the disk [default: auto]
    #[arg(long, value_name = "HOW", env = "WASMKEEP_IO", value_enum)]
    pub io: Option<IoChoice>,
    /// Start even if a journal is damaged where it had been durable: acknowledged writes behind the damage are given up
    #[arg(long, value_name = "BOOL", env = "WASMKEEP_ACCEPT_JOURNAL_LOSS", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = clap::builder::BoolishValueParser::new())]
    pub accept_journal_loss: Option<bool>,
    /// An actor without events for this long leaves memory [default: 60s]
    #[arg(long, value_name = "TIME", env = "WASMKEEP_IDLE", value_parser = parse_duration)]
    pub idle: Option<Duration>,
    /// On SIGTERM, finish what is in flight within this time [default: 30s]
    #[arg(long, value_name = "TIME", env = "WASMKEEP_DRAIN", value_parser = parse_duration)]
    pub drain: Option<Duration>,
    /// Wall time one event may take [default: 30s]
    #[arg(long, value_name = "TIME", env = "WASMKEEP_EVENT_WALL", value_parser = parse_duration)]
    pub event_wall: Option<Duration>,
    /// CPU time one event may take, its code and its SQL together [default: 5s]
    #[arg(long, value_name = "TIME", env = "WASMKEEP_EVENT_CPU", value_parser = parse_duration)]
    pub event_cpu: Option<Duration>,
    /// Memory of one actor's instance, MB [default: 128]
    #[arg(long, value_name = "MB", env = "WASMKEEP_MEMORY_MB")]
    pub memory_mb: Option<u64>,
    /// Size of one actor's database, MB [default: 1024]
    #[arg(long, value_name = "MB", env = "WASMKEEP_DATABASE_MB")]
    pub database_mb: Option<u64>,
    /// Size of one core's journal, MB [default: 256]
    #[arg(long, value_name = "MB", env = "WASMKEEP_JOURNAL_MB")]
    pub journal_mb: Option<u64>,
    /// How log lines on stderr look; RUST_LOG chooses which [default: text]
    #[arg(long, value_name = "HOW", env = "WASMKEEP_LOG", value_enum)]
    pub log: Option<LogFormat>,
}

/// Makes a node's configuration from flags (which hold their environment variables already), this process's environment,
/// the file and the defaults.
///
/// # Errors
/// All that is wrong, one line each.
pub fn load(settings: &Settings) -> Result<NodeConfig, ConfigError> {
    load_with(settings, &|name| std::env::var(name).ok())
}

/// [`load`] with an environment of the caller's, for the variables that are lists.
///
/// # Errors
/// All that is wrong, one line each.
pub fn load_with(settings: &Settings, variable: &dyn Fn(&str) -> Option<String>) -> Result<NodeConfig, ConfigError> {
    let file = match &settings.config {
        Some(path) => file::read(path)?,
        None if Path::new(DEFAULT_FILE).exists() => file::read(Path::new(DEFAULT_FILE))?,
        None => FileConfig::default(),
    };
    let mut merge = Merge { file: &file, problems: Vec::new() };
    let classes = merge.classes(settings, variable);
    let mut config = merge.node(settings, classes);
    config.natives = merge.natives(&config.classes);
    if merge.problems.is_empty() { Ok(config) } else { Err(ConfigError { problems: merge.problems }) }
}

struct Merge<'a> {
    file: &'a FileConfig,
    problems: Vec<String>,
}

/// A class while it is being put together.
#[derive(Default)]
struct Draft {
    component: Option<PathBuf>,
    access: Option<Access>,
    env: BTreeMap<String, String>,
}

impl Merge<'_> {
    /// The flag's value, or the file's, or the default.
    fn pick<T>(&mut self, flag: Option<T>, key: &str, read: impl Fn(&str) -> Result<T, String>, default: T) -> T {
        debug_assert!(file::NODE_KEYS.contains(&key), "{key} is not a key of [node]");
        if let Some(value) = flag {
            return value;
        }
        let Some(setting) = self.file.node.iter().find(|setting| setting.key == key) else { return default };
        read(&setting.text).unwrap_or_else(|problem| {
            self.problems.push(format!("{}: {key}: {problem}", setting.place));
            default
        })
    }

    fn within<T: PartialOrd + Copy>(&mut self, name: &str, value: T, least: T, most: T, show: impl Fn(T) -> String) {
        if value < least || value > most {
            let problem = format!("{name} is {}; it must be between {} and {}", show(value), show(least), show(most));
            self.problems.push(problem);
        }
    }

    fn duration(&mut self, flag: Option<Duration>, key: &str, default: Duration, least: Duration, most: Duration) -> Duration {
        let value = self.pick(flag, key, parse_duration, default);
        self.within(key, value, least, most, |duration| format!("{duration:?}"));
        value
    }

    fn megabytes(&mut self, flag: Option<u64>, key: &str, default: u64, least: u64, most: u64) -> u64 {
        let value = self.pick(flag, key, parse_number, default / MB);
        self.within(key, value, least, most, |mb| format!("{mb} MB"));
        value.saturating_mul(MB)
    }

    fn node(&mut self, settings: &Settings, classes: Vec<ClassConfig>) -> NodeConfig {
        let most = cores_max();
        let cores = self.pick(settings.cores, "cores", |text| parse_number(text).and_then(whole), most);
        if cores == 0 || cores > most {
            self.problems.push(format!("cores is {cores}; this process may use 1 to {most} (its CPU affinity and cgroup quota)"));
        }
        let listen = self.pick(settings.listen, "listen", parse_socket_address, SocketAddr::from(([127, 0, 0, 1], 8080)));
        let admin = self.pick(settings.admin, "admin", parse_socket_address, SocketAddr::from(([127, 0, 0, 1], 9090)));
        let admin_token = self.admin_token(settings, admin);
        let api = self.pick(settings.api.map(Some), "api", |text| parse_socket_address(text).map(Some), None);
        let api_tokens = self.api_tokens(settings, api);
        self.differ(&[("listen", Some(listen)), ("admin", Some(admin)), ("api", api)]);
        NodeConfig {
            app: self.file.app.clone().unwrap_or_default(),
            cores,
            pinned: true,
            listen,
            admin,
            admin_token,
            api,
            api_tokens,
            data_dir: self.pick(settings.data.clone(), "data", |text| Ok(PathBuf::from(text)), PathBuf::from("wasmkeep-data")),
            classes,
            natives: Vec::new(),
            io: self.pick(settings.io, "io", parse_choice, IoChoice::Auto),
            accept_journal_loss: self.pick(settings.accept_journal_loss, "accept-journal-loss", parse_flag, false),
            budgets: self.budgets(settings),
            log: self.pick(settings.log, "log", parse_choice, LogFormat::Text),
        }
    }

    fn budgets(&mut self, settings: &Settings) -> Budgets {
        let default = Budgets::default();
        let ms = Duration::from_millis;
        let budgets = Budgets {
            idle: self.duration(settings.idle, "idle", default.idle, ms(100), 24 * HOUR),
            drain: self.duration(settings.drain, "drain", default.drain, Duration::ZERO, HOUR),
            event_wall: self.duration(settings.event_wall, "event-wall", default.event_wall, ms(10), HOUR),
            event_cpu: self.duration(settings.event_cpu, "event-cpu", default.event_cpu, ms(10), 600 * SECOND),
            memory_bytes: self.megabytes(settings.memory_mb, "memory-mb", default.memory_bytes, 1, 4096),
            database_bytes: self.megabytes(settings.database_mb, "database-mb", default.database_bytes, 1, 1024 * 1024),
            journal_bytes: self.megabytes(settings.journal_mb, "journal-mb", default.journal_bytes, 64, 1024 * 1024),
        };
        if budgets.event_cpu > budgets.event_wall && settings.event_cpu.is_some() {
            let (cpu, wall) = (budgets.event_cpu, budgets.event_wall);
            self.problems.push(format!("event-cpu ({cpu:?}) is longer than event-wall ({wall:?}); an event could never use it"));
        }
        budgets
    }

    fn differ(&mut self, addresses: &[(&str, Option<SocketAddr>)]) {
        for (at, (name, address)) in addresses.iter().enumerate() {
            let same = addresses[..at].iter().find(|(_, other)| other == address);
            if let (Some((other, _)), Some(address)) = (same, address.filter(|address| address.port() != 0)) {
                self.problems.push(format!("{other} and {name} are both {address}; they must differ"));
            }
        }
    }

    fn api_tokens(&mut self, settings: &Settings, api: Option<SocketAddr>) -> Option<Vec<ApiToken>> {
        let path = self.pick(settings.api_tokens.clone().map(Some), "api-tokens", |text| Ok(Some(PathBuf::from(text))), None);
        match (api, path) {
            (Some(api), None) if !api.ip().is_loopback() => {
                self.problems
                    .push(format!("api is {api}, which others can reach; give --api-tokens FILE, or use a loopback address"));
                None
            }
            (None, Some(_)) => {
                self.problems.push("api-tokens is given and api is not: there is no service door to guard".into());
                None
            }
            (_, path) => match tokens::read(&path?) {
                Ok(tokens) => Some(tokens),
                Err(problems) => {
                    self.problems.extend(problems);
                    None
                }
            },
        }
    }

    fn admin_token(&mut self, settings: &Settings, admin: SocketAddr) -> Option<Secret> {
        let path = self.pick(settings.admin_token.clone().map(Some), "admin-token", |text| Ok(Some(PathBuf::from(text))), None);
        let Some(path) = path else {
            if !admin.ip().is_loopback() {
                self.problems
                    .push(format!("admin is {admin}, which others can reach; give --admin-token FILE, or use a loopback address"));
            }
            return None;
        };
        match std::fs::read_to_string(&path) {
            Ok(text) if text.trim().len() >= 16 && text.trim().bytes().all(|b| b.is_ascii_graphic()) => {
                Some(Secret(text.trim().to_string()))
            }
            Ok(_) => {
                self.problems
                    .push(format!("admin-token {}: a token is one line of at least 16 visible ASCII characters", path.display()));
                None
            }
            Err(error) => {
                self.problems.push(format!("admin-token {}: {error}", path.display()));
                None
            }
        }
    }

    fn classes(&mut self, settings: &Settings, variable: &dyn Fn(&str) -> Option<String>) -> Vec<ClassConfig> {
        let lines = |name: &str| -> Vec<String> {
            let text = variable(name).unwrap_or_default();
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(String::from).collect()
        };
        let mut drafts: BTreeMap<String, Draft> = BTreeMap::new();
        for actor in &self.file.actors {
            let draft = drafts.entry(actor.name.clone()).or_default();
            draft.component.clone_from(&actor.component);
            draft.access = actor.access;
            draft.env.extend(actor.env.iter().cloned());
        }
        // Later ones win: environment first, then flags.
        for (what, list) in [("WASMKEEP_ACTOR", &lines("WASMKEEP_ACTOR")), ("--actor", &settings.actor)] {
            self.components(what, list, &mut drafts);
        }
        for (what, list) in [("WASMKEEP_ACCESS", &lines("WASMKEEP_ACCESS")), ("--access", &settings.access)] {
            self.accesses(what, list, &mut drafts);
        }
        for (what, list) in [("WASMKEEP_ENV", &lines("WASMKEEP_ENV")), ("--env", &settings.env)] {
            self.variables(what, list, &mut drafts);
        }
        self.finish(drafts)
    }

    /// Checks native classes against all others: each name is one class, and whoever is named is served.
    fn natives(&mut self, classes: &[ClassConfig]) -> Vec<NativeConfig> {
        let natives = &self.file.natives;
        let served: Vec<&str> =
            classes.iter().map(|class| &*class.name).chain(natives.iter().map(|native| &*native.config.name)).collect();
        if served.len() > CLASSES_MAX {
            self.problems.push(format!("there are {} classes; at most {CLASSES_MAX} are served by one node", served.len()));
        }
        for FileNative { config, place } in natives {
            if served.iter().filter(|name| **name == &*config.name).count() > 1 {
                self.problems.push(format!("{place}: {} is a class already; name this one otherwise", config.name));
            }
            for (key, named) in config.named() {
                let class = named.split('/').next().unwrap_or_default();
                // Programs at the service door are callers of this name; they are no class.
                let is_door = key == "allow" && class == CALLERS;
                if !served.contains(&class) && !is_door {
                    let near = nearest(class, &served);
                    self.problems.push(format!("{place}: {key} names class {}, which is not served{near}", shown(class)));
                }
            }
        }
        natives.iter().map(|native| native.config.clone()).collect()
    }

    fn components(&mut self, what: &str, list: &[String], drafts: &mut BTreeMap<String, Draft>) {
        let mut given: Vec<&str> = Vec::new();
        for item in list {
            let Some((class, file)) = item.split_once('=').filter(|(_, file)| !file.is_empty()) else {
                self.problems.push(format!("{what} {}: write CLASS=FILE", shown(item)));
                continue;
            };
            if let Err(problem) = check_class_name(class) {
                self.problems.push(format!("{what} {}: {problem}", shown(item)));
                continue;
            }
            if given.contains(&class) {
                self.problems.push(format!("{what} names class {} twice", shown(class)));
            }
            given.push(class);
            drafts.entry(class.into()).or_default().component = Some(PathBuf::from(file));
        }
    }

    fn accesses(&mut self, what: &str, list: &[String], drafts: &mut BTreeMap<String, Draft>) {
        for item in list {
            let Some((class, access)) = item.split_once('=') else {
                self.problems.push(format!("{what} {}: write CLASS=public or CLASS=internal", shown(item)));
                continue;
            };
            match parse_access(access) {
                Err(problem) => self.problems.push(format!("{what} {}: {problem}", shown(item))),
                Ok(access) => {
                    if let Some(draft) = self.known(what, class, drafts) {
                        draft.access = Some(access);
                    }
                }
            }
        }
    }

    fn variables(&mut self, what: &str, list: &[String], drafts: &mut BTreeMap<String, Draft>) {
        for item in list {
            // The value may be a secret: errors show the part before it only.
            let Some((head, value)) = item.split_once('=') else {
                self.problems.push(format!("{what}: write CLASS:NAME=VALUE (an entry has no '=')"));
                continue;
            };
            let Some((class, name)) = head.split_once(':') else {
                self.problems.push(format!("{what} {}: write CLASS:NAME=VALUE", shown(head)));
                continue;
            };
            if let Err(problem) = check_env(name, value) {
                self.problems.push(format!("{what} {}: {problem}", shown(head)));
                continue;
            }
            if let Some(draft) = self.known(what, class, drafts) {
                draft.env.insert(name.into(), value.into());
            }
        }
    }

    /// The class if it is served; a flag about a class that is not served is a typo.
    fn known<'d>(&mut self, what: &str, class: &str, drafts: &'d mut BTreeMap<String, Draft>) -> Option<&'d mut Draft> {
        if !drafts.contains_key(class) {
            let served: Vec<&str> = drafts.keys().map(String::as_str).collect();
            let near = nearest(class, &served);
            self.problems.push(format!("{what} is about class {}, which is not served{near}", shown(class)));
        }
        drafts.get_mut(class)
    }

    fn finish(&mut self, drafts: BTreeMap<String, Draft>) -> Vec<ClassConfig> {
        if drafts.len() > CLASSES_MAX {
            self.problems.push(format!("there are {} classes; at most {CLASSES_MAX} are served by one node", drafts.len()));
        }
        let mut classes = Vec::new();
        for (name, draft) in drafts {
            let Some(component) = draft.component else {
                self.problems.push(format!("class {name} has no component; give component = \"FILE.wasm\" in [actors.{name}]"));
                continue;
            };
            let env_bytes: usize = draft.env.iter().map(|(name, value)| name.len() + value.len()).sum();
            if env_bytes > CLASS_ENV_BYTES_MAX {
                self.problems.push(format!("class {name}: env has {env_bytes} bytes; at most {CLASS_ENV_BYTES_MAX} are allowed"));
            }
            classes.push(ClassConfig {
                name: Arc::from(name),
                component,
                access: draft.access.unwrap_or_default(),
                env: Env(draft.env),
            });
        }
        classes
    }
}

fn parse_number(text: &str) -> Result<u64, String> {
    text.replace('_', "").parse().map_err(|_| format!("{} is not a whole number", shown(text)))
}

fn whole(number: u64) -> Result<usize, String> {
    usize::try_from(number).map_err(|_| format!("{number} is too large"))
}

fn parse_flag(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("{} is not true or false", shown(text)))
}

fn parse_choice<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let names: Vec<String> =
            T::value_variants().iter().filter_map(|value| Some(value.to_possible_value()?.get_name().to_string())).collect();
        let valid: Vec<&str> = names.iter().map(String::as_str).collect();
        format!("{} is not one of {}{}", shown(text), valid.join(", "), nearest(text, &valid))
    })
}

#[cfg(test)]
mod tests;
