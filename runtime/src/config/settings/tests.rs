//! Where settings come from, which one wins, and what is refused in which words.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use wasmkeep_classes::{kv, queue};

use super::*;
use crate::config::NativeKind;

struct Fixture {
    directory: tempfile::TempDir,
    settings: Settings,
    environment: BTreeMap<&'static str, &'static str>,
}

impl Fixture {
    fn new(file: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("wasmkeep.toml");
        fs::write(&path, file).expect("writes");
        let settings = Settings { config: Some(path), ..Settings::default() };
        Self { directory, settings, environment: BTreeMap::new() }
    }

    fn load(&self) -> Result<NodeConfig, ConfigError> {
        load_with(&self.settings, &|name| self.environment.get(name).map(ToString::to_string))
    }

    fn config(&self) -> NodeConfig {
        self.load().unwrap_or_else(|error| panic!("{error}"))
    }

    fn problems(&self) -> Vec<String> {
        self.load().expect_err("it is wrong").problems
    }
}

/// Writes a file `tokens` that only its owner may read.
fn write_tokens(fixture: &Fixture, text: &str) {
    let path = fixture.directory.path().join("tokens");
    fs::write(&path, text).expect("writes");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("sets");
}

fn list(items: &[&str]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

#[test]
fn without_anything_said_the_defaults_are_the_documented_ones() {
    let config = Fixture::new("").config();
    assert_eq!((config.cores, config.pinned), (cores_max(), true));
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.admin.to_string(), "127.0.0.1:9090");
    assert_eq!(config.data_dir, PathBuf::from("wasmkeep-data"));
    assert_eq!(config.app.to_string(), "local/default");
    assert_eq!(config.budgets, Budgets::default());
    assert_eq!((config.io, config.log, config.accept_journal_loss), (IoChoice::Auto, LogFormat::Text, false));
}

#[test]
fn every_key_of_the_file_is_read() {
    let mut fixture = Fixture::new(
        "app = \"acme/shop\"\n[node]\ncores = 1\nlisten = \"127.0.0.1:1\"\nadmin = \"0.0.0.0:2\"\nadmin-token = \"token\"\napi = \"0.0.0.0:3\"\n\
         api-tokens = \"tokens\"\ndata = \"d\"\n\
         io = \"threads\"\naccept-journal-loss = true\nidle = \"1s\"\ndrain = \"2s\"\nevent-wall = \"4s\"\nevent-cpu = \"3s\"\n\
         memory-mb = 5\ndatabase-mb = 6\njournal-mb = 70\nlog = \"json\"\n",
    );
    fs::write(fixture.directory.path().join("token"), "0123456789abcdef\n").expect("writes");
    write_tokens(&fixture, "shop fedcba9876543210\n");
    let config = fixture.config();
    let seconds = Duration::from_secs;
    let expected = NodeConfig {
        app: config.app.clone(),
        cores: 1,
        pinned: true,
        listen: SocketAddr::from(([127, 0, 0, 1], 1)),
        admin: SocketAddr::from(([0, 0, 0, 0], 2)),
        admin_token: Some(Secret("0123456789abcdef".into())),
        api: Some(SocketAddr::from(([0, 0, 0, 0], 3))),
        api_tokens: Some(vec![ApiToken { name: "shop".into(), token: Secret("fedcba9876543210".into()) }]),
        data_dir: fixture.directory.path().join("d"),
        classes: Vec::new(),
        natives: Vec::new(),
        io: IoChoice::Threads,
        accept_journal_loss: true,
        budgets: Budgets {
            idle: seconds(1),
            drain: seconds(2),
            event_wall: seconds(4),
            event_cpu: seconds(3),
            memory_bytes: 5 * MB,
            database_bytes: 6 * MB,
            journal_bytes: 70 * MB,
        },
        log: LogFormat::Json,
    };
    assert_eq!(config, expected);
    assert_eq!(config.app.to_string(), "acme/shop");
    // And a flag goes before each.
    fixture.settings.idle = Some(seconds(9));
    fixture.settings.accept_journal_loss = Some(false);
    fixture.settings.memory_mb = Some(8);
    let config = fixture.config();
    assert_eq!((config.budgets.idle, config.budgets.memory_bytes, config.accept_journal_loss), (seconds(9), 8 * MB, false));
}

#[test]
fn flags_go_before_environment_and_file_for_each_class_and_variable() {
    let mut fixture = Fixture::new(
        "[actors.a]\ncomponent = \"/file/a\"\naccess = \"internal\"\nenv = { X = \"file\", Y = \"file\", Z = \"file\" }\n\
         [actors.b]\ncomponent = \"/file/b\"\n",
    );
    fixture.environment.insert("WASMKEEP_ACTOR", "b=/environment/b\n  a=/environment/a\n\n");
    fixture.environment.insert("WASMKEEP_ENV", "a:Y=environment\na:Z=environment");
    fixture.settings.actor = list(&["a=/flag/a", "c=/flag/c"]);
    fixture.settings.access = list(&["b=internal"]);
    fixture.settings.env = list(&["a:Z=flag=with=signs"]);
    let config = fixture.config();
    let classes: Vec<(&str, &str, Access)> =
        config.classes.iter().map(|class| (&*class.name, class.component.to_str().expect("UTF-8"), class.access)).collect();
    let expected =
        [("a", "/flag/a", Access::Internal), ("b", "/environment/b", Access::Internal), ("c", "/flag/c", Access::Public)];
    assert_eq!(classes, expected);
    let env: Vec<(&str, &str)> = config.classes[0].env.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(env, [("X", "file"), ("Y", "environment"), ("Z", "flag=with=signs")]);
}

#[test]
fn flags_about_a_class_that_is_not_served_are_typos() {
    let mut fixture = Fixture::new("[actors.orders]\ncomponent = \"o\"\n");
    fixture.settings.access = list(&["ordres=internal", "orders=pubic", "orders"]);
    fixture.settings.env = list(&["ordres:A=1", "secretvalue", "orders=1:A"]);
    fixture.settings.actor = list(&["x", "X=f", "y=", "z=a", "z=b"]);
    let problems = fixture.problems();
    assert_eq!(problems.len(), 10, "{problems:#?}");
    assert!(problems.contains(&"--access is about class \"ordres\", which is not served; did you mean \"orders\"?".to_string()));
    assert!(problems.iter().all(|problem| !problem.contains("secretvalue")), "{problems:#?}");
}

#[test]
fn values_out_of_bounds_say_the_bounds_and_where_they_stand() {
    let fixture =
        Fixture::new("[node]\nmemory-mb = 0\nidle = \"2 minutes\"\nio = \"urng\"\njournal-mb = 10\nevent-wall = \"2h\"\n");
    let problems = fixture.problems();
    assert_eq!(problems.len(), 5, "{problems:#?}");
    assert!(problems.contains(&"memory-mb is 0 MB; it must be between 1 MB and 4096 MB".to_string()), "{problems:#?}");
    let io = problems.iter().find(|problem| problem.contains("urng")).expect("it is named");
    assert!(io.contains("wasmkeep.toml:4: io: ") && io.contains("did you mean \"uring\"?"), "{io}");
}

#[test]
fn more_cores_than_cpus_are_refused() {
    let mut fixture = Fixture::new("");
    for cores in [0, cores_max() + 1] {
        fixture.settings.cores = Some(cores);
        assert!(fixture.problems()[0].contains(&format!("may use 1 to {}", cores_max())));
    }
}

#[test]
fn an_admin_listener_that_others_reach_needs_a_token() {
    let mut fixture = Fixture::new("");
    fixture.settings.admin = Some(SocketAddr::from(([0, 0, 0, 0], 9090)));
    assert!(fixture.problems()[0].contains("--admin-token"));
    let token = fixture.directory.path().join("token");
    fixture.settings.admin_token = Some(token.clone());
    assert!(fixture.problems()[0].contains("No such file"));
    for text in ["", "short", "two\nlines of some length"] {
        fs::write(&token, text).expect("writes");
        assert!(fixture.problems()[0].contains("at least 16 visible"), "{text:?}");
    }
    fs::write(&token, "0123456789abcdef\n").expect("writes");
    let config = fixture.config();
    assert!(!format!("{config:?}").contains("0123456789abcdef"), "a secret is printed");
}

#[test]
fn a_service_door_that_others_reach_needs_tokens_and_none_of_them_is_printed() {
    let mut fixture = Fixture::new("");
    assert_eq!((fixture.config().api, fixture.config().api_tokens), (None, None));
    fixture.settings.api = Some(SocketAddr::from(([127, 0, 0, 1], 8081)));
    assert_eq!(fixture.config().api, fixture.settings.api);
    fixture.settings.api = Some(SocketAddr::from(([0, 0, 0, 0], 8081)));
    assert!(fixture.problems()[0].contains("--api-tokens FILE"));
    fixture.settings.api_tokens = Some(fixture.directory.path().join("tokens"));
    assert!(fixture.problems()[0].contains("No such file"));
    write_tokens(&fixture, "shop hunter2\n");
    assert!(fixture.problems()[0].ends_with("tokens:1: a token is 16 to 256 visible ASCII characters"));
    write_tokens(&fixture, "shop fedcba9876543210\n");
    let text = format!("{:?}", fixture.config());
    assert!(text.contains("shop") && !text.contains("fedcba9876543210"), "{text}");
    fixture.settings.api = None;
    assert_eq!(fixture.problems(), ["api-tokens is given and api is not: there is no service door to guard"]);
}

#[test]
fn listeners_must_differ() {
    let mut fixture = Fixture::new("");
    fixture.settings.api = Some(SocketAddr::from(([127, 0, 0, 1], 9090)));
    assert_eq!(fixture.problems(), ["admin and api are both 127.0.0.1:9090; they must differ"]);
}

#[test]
fn programs_at_the_service_door_may_be_named_among_who_may_call() {
    let natives = Fixture::new("[queues.a]\nallow = [\"_api\"]\n[queues.b]\nallow = [\"_api/shop\"]\n").config().natives;
    assert!(natives[0].allows("_api", "any") && !natives[0].allows("web", "main"));
    assert!(natives[1].allows("_api", "shop") && !natives[1].allows("_api", "other") && natives[1].allows("_operator", "admin"));
    let problems = Fixture::new("[queues.a]\nconsumer = \"_api/shop\"\n[queues.b]\nallow = [\"_operator\"]\n").problems();
    assert_eq!(problems.len(), 2, "{problems:#?}");
}

#[test]
fn a_class_needs_a_component_and_a_file_that_is_named_must_exist() {
    let problems = Fixture::new("[actors.a]\naccess = \"public\"\n").problems();
    assert_eq!(problems, ["class a has no component; give component = \"FILE.wasm\" in [actors.a]"]);
    let settings = Settings { config: Some(PathBuf::from("/nowhere/wasmkeep.toml")), ..Settings::default() };
    assert!(load_with(&settings, &|_| None).expect_err("missing").problems[0].contains("/nowhere/wasmkeep.toml"));
}

#[test]
fn variables_are_never_printed() {
    let mut fixture = Fixture::new("[actors.a]\ncomponent = \"a\"\n");
    fixture.settings.env = list(&["a:PASSWORD=hunter2"]);
    let text = format!("{:?}", fixture.config());
    assert!(text.contains("PASSWORD") && !text.contains("hunter2"), "{text}");
}

#[test]
fn a_queue_class_is_read_with_every_key_and_its_defaults() {
    let fixture = Fixture::new(
        "[actors.mailer]\ncomponent = \"m\"\n[queues.pull]\n[queues.mail]\nconsumer = \"mailer/main\"\nbatch = 1_00\nconcurrency = 4\n\
         visibility = \"1m\"\nmax-attempts = 7\ndedupe-window = \"0s\"\nordering = true\nallow = [\"mailer\", \"pull/x\"]\n",
    );
    let natives = fixture.config().natives;
    let (mail, pull) = (&natives[0], &natives[1]);
    let NativeKind::Queue(queue) = &mail.kind else { panic!("{mail:?}") };
    let expected = queue::Config {
        consumer: Some("mailer/main".into()),
        batch: 100,
        visibility_ms: 60_000,
        max_attempts: 7,
        dedupe_window_ms: 0,
        ordering: true,
        concurrency: 4,
    };
    assert_eq!((&*mail.name, queue), ("mail", &expected));
    assert_eq!(*pull, NativeConfig::queue("pull", queue::Config::default()));
    assert!(mail.allows("mailer", "any") && mail.allows("pull", "x") && !mail.allows("pull", "y") && pull.allows("a", "b"));
}

#[test]
fn what_is_wrong_with_a_queue_class_is_said_with_its_line_and_what_would_be_right() {
    let shape = Fixture::new(
        "[queues.a]\nconsumr = \"x/y\"\n[queues.B]\n[queues.c]\nconsumer = \"mailer\"\nbatch = \"10\"\nvisibility = 30\n\
         ordering = 1\nallow = []\n[queues.d]\nbatch = 0\n",
    );
    let problems = shape.problems();
    assert_eq!(problems.len(), 8, "{problems:#?}");
    assert!(problems.iter().any(|problem| problem.contains("toml:2: ") && problem.contains("did you mean \"consumer\"?")));
    assert!(problems.iter().any(|problem| problem.ends_with("in [queues.d]: batch = 0: must be from 1 to 1000")), "{problems:#?}");
    let named = Fixture::new("[actors.mailer]\ncomponent = \"m\"\n[queues.mailer]\n[queues.q]\nconsumer = \"mailr/main\"\n");
    let problems = named.problems();
    assert_eq!(problems.len(), 2, "{problems:#?}");
    assert!(problems[0].contains("mailer is a class already"), "{problems:#?}");
    assert!(
        problems[1].ends_with("consumer names class \"mailr\", which is not served; did you mean \"mailer\"?"),
        "{problems:#?}"
    );
}

#[test]
fn a_key_value_class_has_a_number_of_shards_and_may_have_more() {
    let fixture = Fixture::new(
        "[actors.web]\ncomponent = \"w\"\n[kv.a]\nshards = 8\n[kv.b]\nshards = 1\nallow = [\"web/main\"]\noperation-window = \"5m\"\n",
    );
    let natives = fixture.config().natives;
    assert_eq!(natives[0], NativeConfig::kv("a", 8));
    assert_eq!(natives[1].kind, NativeKind::Kv(kv::Config { operation_window_ms: 300_000, shards: Some(1) }));
    assert!(natives[0].allows("a", "b") && natives[1].allows("web", "main") && !natives[1].allows("web", "x"));
}

#[test]
fn what_is_wrong_with_a_key_value_class_is_said_with_its_line_and_what_would_be_right() {
    let fixture = Fixture::new(
        "[kv.a]\n[kv.b]\nshards = 0\n[kv.c]\nshards = 4097\n[kv.d]\nshards = \"8\"\n[kv.e]\nshard = 8\n[kv.f]\nshards = 1\nconsumer = 1\n",
    );
    let problems = fixture.problems();
    for words in [
        "toml:1: in [kv.a]: shards is missing",
        "in [kv.b]: 0 shards: must be from 1 to 4096",
        "in [kv.c]: 4097 shards: must be from 1 to 4096",
        "toml:7: shards must be a whole number",
        "did you mean \"shards\"?",
        "unknown key \"consumer\" in [kv.f] (valid: allow, operation-window, shards)",
    ] {
        assert!(problems.iter().any(|problem| problem.contains(words)), "{words}: {problems:#?}");
    }
    let twice = Fixture::new("[queues.a]\n[kv.a]\nshards = 1\n").problems();
    assert!(twice[0].contains("a is a class already"), "{twice:#?}");
}
