//! A node with a class under test, and clients that reach it as actors do: their calls are forwarded, byte for byte, by an actor of
//! the test guest.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use wasmkeep::config::{ClassConfig, NativeConfig, NodeConfig};
use wasmkeep::router;
use wasmkeep_classes::host::Call;
use wasmkeep_classes::queue;
use wasmkeep_storage::Address;

use crate::common::disk::TestDisk;
use crate::common::{Client, TestNode, guest};

/// Who runs a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Host {
    /// The node itself.
    Native,
    /// A component.
    Guest,
}

/// Where a promise is to be held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) host: Host,
    pub(crate) cores: usize,
}

/// The actor that forwards, unless a promise wants another one.
pub(crate) const FORWARDER: &str = "forwarder";

/// The actor that queues push to.
pub(crate) const CONSUMER: &str = "test/consumer";

/// The number of shards of a key-value class.
pub(crate) const SHARDS: u32 = 3;

/// Holds a promise everywhere.
pub(crate) fn hold(host: Host, promise: fn(Place)) {
    for cores in [1, 2, 8] {
        eprintln!("{host:?}, {cores} cores");
        promise(Place { host, cores });
    }
}

/// Makes two tests of each promise, `native::name` and `guest::name`.
macro_rules! promises {
    ($($name:ident,)+) => {
        mod native {
            $(#[test]
            fn $name() {
                crate::bed::hold(crate::bed::Host::Native, super::$name);
            })+
        }
        mod guest {
            $(#[test]
            fn $name() {
                crate::bed::hold(crate::bed::Host::Guest, super::$name);
            })+
        }
    };
}

/// The node.
pub(crate) struct Bed {
    pub(crate) node: TestNode,
    pub(crate) place: Place,
    class: &'static str,
    /// Kept connections; a restart closes them.
    client: RefCell<Option<Client>>,
}

impl Bed {
    /// Serves a queue class.
    pub(crate) fn of_queues(place: Place, config: queue::Config) -> Self {
        Self::of_queues_with(place, config, |_| {})
    }

    pub(crate) fn of_queues_with(place: Place, config: queue::Config, change: impl FnOnce(&mut NodeConfig)) -> Self {
        Self::start(place, "mail", |node| {
            serve_queues(node, place, config);
            change(node);
        })
    }

    /// Serves a queue class that may have messages of any size.
    pub(crate) fn of_large_queues(place: Place, config: queue::Config) -> Self {
        let disk = TestDisk::sim().with_segments(2 * 1024 * 1024);
        Self::start_on(&disk, place, "mail", |node| serve_queues(node, place, config))
    }

    /// Serves a key-value class.
    pub(crate) fn of_shards(place: Place) -> Self {
        Self::start(place, "settings", |node| serve_shards(node, place))
    }

    /// Serves a key-value class that may have values of any size.
    pub(crate) fn of_large_shards(place: Place) -> Self {
        let disk = TestDisk::sim().with_segments(10 * 1024 * 1024);
        Self::start_on(&disk, place, "settings", |node| serve_shards(node, place))
    }

    fn start(place: Place, class: &'static str, change: impl FnOnce(&mut NodeConfig)) -> Self {
        // In memory and small: these promises are about what is kept and not about the disk, and a start takes a tenth of the time.
        Self::start_on(&TestDisk::sim(), place, class, change)
    }

    fn start_on(disk: &TestDisk, place: Place, class: &'static str, change: impl FnOnce(&mut NodeConfig)) -> Self {
        let mut node = TestNode::prepare(Some(disk), place.cores, |config| {
            config.classes.retain(|class| &*class.name == "test");
            change(config);
        });
        share_compiled(&node.config.data_dir);
        node.again();
        Self { node, place, class, client: RefCell::default() }
    }

    /// A stop and a start on the same data.
    pub(crate) fn restart(&mut self) {
        self.client.take();
        self.node.again();
    }

    /// The power goes: only what was flushed is there at the next start.
    pub(crate) fn power_cut(&mut self) {
        let crashed = self.node.disk.as_ref().expect("it has one of its own").crashed(7);
        self.client.take();
        self.node.abort();
        self.node.disk = Some(crashed);
        self.node.again();
    }

    /// Puts the clock forward; less than ten minutes in all between two starts, or alarms that come into view are late.
    pub(crate) fn advance(&self, time: Duration) {
        self.node.time.advance_ms(u64::try_from(time.as_millis()).expect("it is short"));
    }

    /// A name on another core than the forwarder's, if there is another one.
    pub(crate) fn name(&self, number: usize) -> String {
        let (cores, class) = (self.place.cores, self.class);
        let core_of = |class: &str, name: &str| router::core_of(&Address::new(class, name), cores);
        let there = (core_of("test", FORWARDER) + 1 + number) % cores;
        let there = if cores > 1 && there == core_of("test", FORWARDER) { (there + 1) % cores } else { there };
        (0..).map(|n| format!("n{number}-{n}")).find(|name| core_of(class, name) == there).expect("one of a few")
    }

    pub(crate) fn queue(&self) -> Queue<'_> {
        self.queue_named(&self.name(0))
    }

    pub(crate) fn queue_named(&self, name: &str) -> Queue<'_> {
        Queue { bed: self, address: Address::new("mail", name), through: FORWARDER }
    }

    /// Has a call made by an actor of the test guest.
    pub(crate) fn ask(&self, through: &str, address: &Address, call: &Call) -> (u16, Vec<u8>) {
        let Address { class, name } = address;
        let path = format!("/test/{through}/call?class={class}&name={name}&path=/{}", call.path);
        let mut kept = self.client.borrow_mut();
        let client = kept.get_or_insert_with(|| self.node.client());
        client.try_send_bytes(&path, &call.body).expect("an answer")
    }

    /// What the consumer got of a queue, `id:body`, sorted.
    pub(crate) fn consumed(&self, queue: &str) -> Vec<String> {
        let (_, keys) = self.node.get(&format!("/{CONSUMER}/read"));
        keys.lines().filter_map(|key| key.strip_prefix(&format!("got:mail/{queue}:"))).map(str::to_owned).collect()
    }

    /// Whether an actor is `asleep`, `idle` or `running`.
    pub(crate) fn is(&self, actor: &str, state: &str) -> bool {
        let (status, body) = Client::connect(self.node.admin()).send("GET", &format!("/admin/actors/{actor}"), "");
        status == 200 && body.contains(&format!("\"state\":\"{state}\""))
    }

    /// Tells the consumer something for its later deliveries.
    pub(crate) fn plan(&self, key: &str, value: &str) {
        assert_eq!(self.node.post(&format!("/{CONSUMER}/durable-insert?key={key}&value={value}"), "").0, 200);
    }

    /// Takes that back.
    pub(crate) fn forget(&self, key: &str) {
        let sql = format!(r#"[{{"op":"exec_durable","sql":"DELETE FROM kept WHERE key = '{key}'"}}]"#);
        assert_eq!(self.node.post(&format!("/{CONSUMER}/sql"), &sql).0, 200);
    }

    /// How many deliveries came to the consumer.
    pub(crate) fn deliveries(&self) -> u64 {
        self.node.get(&format!("/{CONSUMER}/deliveries")).1.parse().expect("a number")
    }
}

fn serve_queues(node: &mut NodeConfig, place: Place, config: queue::Config) {
    match place.host {
        Host::Native => node.natives = vec![NativeConfig::queue("mail", config)],
        Host::Guest => node.classes.push(component(&config)),
    }
}

fn serve_shards(node: &mut NodeConfig, place: Place) {
    match place.host {
        Host::Native => node.natives = vec![NativeConfig::kv("settings", SHARDS)],
        Host::Guest => node.classes.push(ClassConfig::new("settings", guest("jobs_settings"))),
    }
}

/// The class of queues as a component.
fn component(config: &queue::Config) -> ClassConfig {
    let mut class = ClassConfig::new("mail", guest("test_queue"));
    let settings = [
        ("batch", config.batch.to_string()),
        ("max-attempts", config.max_attempts.to_string()),
        ("visibility-ms", config.visibility_ms.to_string()),
        ("dedupe-window-ms", config.dedupe_window_ms.to_string()),
    ];
    let mut env: HashMap<_, _> = settings.into();
    env.extend(config.consumer.clone().map(|consumer| ("consumer", consumer)));
    env.extend(config.ordering.then(|| ("ordering", String::new())));
    class.env.0 = env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    class
}

/// Nodes of all tests keep what they compiled in one place: it is named by its content and checked when it is read.
fn share_compiled(data: &Path) {
    let shared = guest("compiled").with_extension("");
    std::fs::create_dir_all(&shared).expect("the guests' directory may be written to");
    drop(wasmkeep::data_dir::DataDir::open(data).expect("a new directory"));
    std::os::unix::fs::symlink(shared, data.join("components")).expect("a link");
}

pub(crate) use crate::queue::Queue;
