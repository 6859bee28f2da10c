//! Every series a node exports: one table of families, and handles that are made once so that an event looks nothing up.
//!
//! No label ever names an actor, and a class gets its series when it is configured, never because a request named it: the page
//! stays small whatever is asked for. Each node has a recorder of its own; nothing here is global.

use std::borrow::Cow;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use crate::config::AppName;
use crate::event::{Outcome, Problem};

/// What a family measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Samples in buckets.
    Histogram,
}

/// One family of series.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Family {
    /// Its name, with the unit last.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its unit.
    pub unit: Unit,
    /// Its labels. Those with `class` also have `tenant` and `app`.
    pub labels: &'static [&'static str],
    /// What it tells, for people.
    pub help: &'static str,
    /// Upper bounds of a histogram's buckets, in its unit.
    pub buckets: &'static [f64],
}

/// Work of an event: a warm read takes microseconds, the longest event 30 s by default.
const EVENT_SECONDS: &[f64] =
    &[1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// Waiting for a disk: 100 µs on a fast one, seconds on one that stalls.
const FLUSH_SECONDS: &[f64] =
    &[5e-5, 1e-4, 2e-4, 3e-4, 5e-4, 7.5e-4, 1e-3, 1.5e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// How late a core runs what is due: a timer's own granularity is 1 ms, a SQL slice 2 ms.
const LAG_SECONDS: &[f64] = &[1e-3, 2e-3, 3e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
/// Commits that share one flush.
const GROUP_COMMITS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0];

const fn counter(name: &'static str, unit: Unit, labels: &'static [&'static str], help: &'static str) -> Family {
    Family { name, kind: Kind::Counter, unit, labels, help, buckets: &[] }
}

const fn gauge(name: &'static str, unit: Unit, labels: &'static [&'static str], help: &'static str) -> Family {
    Family { name, kind: Kind::Gauge, unit, labels, help, buckets: &[] }
}

const fn histogram(
    name: &'static str,
    unit: Unit,
    labels: &'static [&'static str],
    buckets: &'static [f64],
    help: &'static str,
) -> Family {
    Family { name, kind: Kind::Histogram, unit, labels, help, buckets }
}

macro_rules! families {
    ($($ident:ident = $make:expr;)*) => {
        $(#[allow(missing_docs, reason = "its help text says it")] pub const $ident: Family = $make;)*
        /// All of them, in the order they are documented.
        pub const FAMILIES: &[Family] = &[$($ident),*];
    };
}

families! {
    EVENTS = counter("wasmkeep_events_total", Unit::Count, &["class", "kind", "outcome"],
        "Events that ended, by what the caller was told. Events refused before they reached a mailbox are not among them.");
    EVENT_SECONDS_ = histogram("wasmkeep_event_seconds", Unit::Seconds, &["class", "kind"], EVENT_SECONDS,
        "From an event's start in its actor to its end. Waiting in the mailbox and at the gate is not part of it.");
    GATE_WAIT_SECONDS = histogram("wasmkeep_gate_wait_seconds", Unit::Seconds, &["class"], FLUSH_SECONDS,
        "How long finished outputs waited until what they depend on was durable. Outputs that need not wait are not counted.");
    MAILBOX_REJECTED = counter("wasmkeep_mailbox_rejected_total", Unit::Count, &["class"],
        "Events refused because their actor had too many waiting.");
    WAKE_SECONDS = histogram("wasmkeep_wake_seconds", Unit::Seconds, &["class"], EVENT_SECONDS,
        "From an event finding its actor asleep to the actor being ready to run it.");
    ACTORS = gauge("wasmkeep_actors", Unit::Count, &["core", "state"],
        "Actors in memory: `loaded` counts all of them, `running` those with an event in hand.");
    CORE_BUSY_RATIO = gauge("wasmkeep_core_busy_ratio", Unit::Count, &["core"],
        "Share of the last second in which the core was not waiting for anything, 0 to 1.");
    CORE_LAG_SECONDS = histogram("wasmkeep_core_lag_seconds", Unit::Seconds, &["core"], LAG_SECONDS,
        "How late the core came to a timer that was due, sampled ten times a second.");
    JOURNAL_FLUSH_SECONDS = histogram("wasmkeep_journal_flush_seconds", Unit::Seconds, &["core"], FLUSH_SECONDS,
        "From handing a group to the disk to knowing it durable.");
    JOURNAL_GROUP_COMMITS = histogram("wasmkeep_journal_group_commits", Unit::Count, &["core"], GROUP_COMMITS,
        "Commits that one group made durable.");
    JOURNAL_BYTES = counter("wasmkeep_journal_bytes_total", Unit::Bytes, &["core"], "Bytes written to the journal.");
    JOURNAL_USED_BYTES = gauge("wasmkeep_journal_used_bytes", Unit::Bytes, &["core"],
        "Bytes of the journal that are not in base files yet.");
    CHECKPOINT_PAGES = counter("wasmkeep_checkpoint_pages_total", Unit::Count, &["core"], "Pages written to base files.");
    HTTP_CONNECTIONS = gauge("wasmkeep_http_connections", Unit::Count, &["core"], "Client connections that are open.");
    HTTP_CONNECTIONS_TOTAL = counter("wasmkeep_http_connections_total", Unit::Count, &["core"], "Client connections taken.");
    HTTP_CONNECTIONS_REFUSED = counter("wasmkeep_http_connections_refused_total", Unit::Count, &["core"],
        "Client connections turned away because the core had too many.");
    HTTP_CONNECTIONS_EXPIRED = counter("wasmkeep_http_connections_expired_total", Unit::Count, &["core"],
        "Client connections closed because they were idle, or too slow in sending or taking bytes.");
    HTTP_BODY_BYTES = gauge("wasmkeep_http_body_bytes", Unit::Bytes, &["core"], "Bytes of bodies held for clients, either way.");
    HTTP_PROBLEMS = counter("wasmkeep_http_problems_total", Unit::Count, &["type"],
        "Requests the node answered itself, by the problem's type.");
}

/// What an event was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// The first event of a deployed version.
    Init,
    /// A request from outside.
    Request,
    /// A call from another actor.
    Call,
    /// An alarm that was due.
    Alarm,
}

impl EventKind {
    /// All, in the order of their discriminants.
    pub const ALL: [Self; 4] = [Self::Init, Self::Request, Self::Call, Self::Alarm];

    /// The label's value.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Request => "request",
            Self::Call => "call",
            Self::Alarm => "alarm",
        }
    }
}

/// How an event ended, as its caller was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventEnd {
    /// The guest answered.
    Ok,
    /// The guest failed.
    Trap,
    /// Its time ran out.
    Deadline,
    /// A write may have been kept.
    UnknownOutcome,
    /// Nothing ran.
    Unavailable,
    /// The disk or the journal is full.
    StorageFull,
}

impl EventEnd {
    /// All, in the order of their discriminants.
    pub const ALL: [Self; 6] = [Self::Ok, Self::Trap, Self::Deadline, Self::UnknownOutcome, Self::Unavailable, Self::StorageFull];

    /// The label's value: `ok` or a problem's slug.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Trap => "trap",
            Self::Deadline => "deadline",
            Self::UnknownOutcome => "unknown-outcome",
            Self::Unavailable => "unavailable",
            Self::StorageFull => "storage-full",
        }
    }

    /// How an event ended that had this outcome.
    #[must_use]
    pub const fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Response(_) => Self::Ok,
            Outcome::Problem(Problem::Trap(_)) => Self::Trap,
            Outcome::Problem(Problem::Deadline) => Self::Deadline,
            Outcome::Problem(Problem::UnknownOutcome) => Self::UnknownOutcome,
            Outcome::Problem(Problem::StorageFull) => Self::StorageFull,
            Outcome::Problem(_) => Self::Unavailable,
        }
    }
}

/// The recorder of one node.
pub struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    app: AppName,
}

impl Metrics {
    /// A recorder that knows every family.
    #[must_use]
    pub fn new(app: AppName) -> Self {
        let mut builder = PrometheusBuilder::new();
        for family in FAMILIES.iter().filter(|family| family.kind == Kind::Histogram) {
            builder = builder
                .set_buckets_for_metric(Matcher::Full(family.name.to_string()), family.buckets)
                .unwrap_or_else(|error| unreachable!("{} has no buckets: {error}", family.name));
        }
        let recorder = builder.build_recorder();
        for family in FAMILIES {
            let (name, unit, help) = (KeyName::from_const_str(family.name), Some(family.unit), family.help.into());
            match family.kind {
                Kind::Counter => recorder.describe_counter(name, unit, help),
                Kind::Gauge => recorder.describe_gauge(name, unit, help),
                Kind::Histogram => recorder.describe_histogram(name, unit, help),
            }
        }
        let handle = recorder.handle();
        Self { recorder, handle, app }
    }

    /// The page, in Prometheus' text format.
    #[must_use]
    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// Moves samples into their buckets. Called about once a second: until then every sample takes 8 bytes.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    fn key(&self, family: &Family, values: &[&str]) -> Key {
        assert_eq!(family.labels.len(), values.len(), "labels of {}", family.name);
        let pairs = family.labels.iter().zip(values).map(|(name, value)| Label::new(*name, value.to_string()));
        let mut labels: Vec<Label> = pairs.collect();
        if family.labels.contains(&"class") {
            labels.push(Label::new("tenant", self.app.tenant.to_string()));
            labels.push(Label::new("app", self.app.app.to_string()));
        }
        Key::from_parts(Cow::Borrowed(family.name), labels)
    }

    /// The series of a counter; the same handle for the same labels.
    pub fn counter(&self, family: &Family, labels: &[&str]) -> Counter {
        self.recorder.register_counter(&self.key(family, labels), &METADATA)
    }

    /// The series of a gauge.
    pub fn gauge(&self, family: &Family, labels: &[&str]) -> Gauge {
        self.recorder.register_gauge(&self.key(family, labels), &METADATA)
    }

    /// The series of a histogram.
    pub fn histogram(&self, family: &Family, labels: &[&str]) -> Histogram {
        self.recorder.register_histogram(&self.key(family, labels), &METADATA)
    }

    /// The handles of one core.
    #[must_use]
    pub fn core(&self, index: usize) -> CoreMetrics {
        let core = index.to_string();
        let core = core.as_str();
        CoreMetrics {
            actors_loaded: self.gauge(&ACTORS, &[core, "loaded"]),
            actors_running: self.gauge(&ACTORS, &[core, "running"]),
            busy_ratio: self.gauge(&CORE_BUSY_RATIO, &[core]),
            lag_seconds: self.histogram(&CORE_LAG_SECONDS, &[core]),
            journal_flush_seconds: self.histogram(&JOURNAL_FLUSH_SECONDS, &[core]),
            journal_group_commits: self.histogram(&JOURNAL_GROUP_COMMITS, &[core]),
            journal_bytes: self.counter(&JOURNAL_BYTES, &[core]),
            journal_used_bytes: self.gauge(&JOURNAL_USED_BYTES, &[core]),
            checkpoint_pages: self.counter(&CHECKPOINT_PAGES, &[core]),
            http_connections: self.gauge(&HTTP_CONNECTIONS, &[core]),
            http_connections_total: self.counter(&HTTP_CONNECTIONS_TOTAL, &[core]),
            http_connections_refused: self.counter(&HTTP_CONNECTIONS_REFUSED, &[core]),
            http_connections_expired: self.counter(&HTTP_CONNECTIONS_EXPIRED, &[core]),
            http_body_bytes: self.gauge(&HTTP_BODY_BYTES, &[core]),
            http_problems: Problem::SLUGS.map(|slug| self.counter(&HTTP_PROBLEMS, &[slug])),
        }
    }

    /// The handles of one class. Only for classes that are configured.
    #[must_use]
    pub fn class(&self, class: &str) -> ClassMetrics {
        ClassMetrics {
            events: EventKind::ALL.map(|kind| EventEnd::ALL.map(|end| self.counter(&EVENTS, &[class, kind.label(), end.label()]))),
            event_seconds: EventKind::ALL.map(|kind| self.histogram(&EVENT_SECONDS_, &[class, kind.label()])),
            gate_wait_seconds: self.histogram(&GATE_WAIT_SECONDS, &[class]),
            mailbox_rejected: self.counter(&MAILBOX_REJECTED, &[class]),
            wake_seconds: self.histogram(&WAKE_SECONDS, &[class]),
        }
    }
}

const METADATA: Metadata<'static> = Metadata::new("wasmkeep", Level::INFO, None);

/// One core's series.
#[derive(Clone)]
#[allow(missing_docs, reason = "each is the family of its name")]
pub struct CoreMetrics {
    pub actors_loaded: Gauge,
    pub actors_running: Gauge,
    pub busy_ratio: Gauge,
    pub lag_seconds: Histogram,
    pub journal_flush_seconds: Histogram,
    pub journal_group_commits: Histogram,
    pub journal_bytes: Counter,
    pub journal_used_bytes: Gauge,
    pub checkpoint_pages: Counter,
    pub http_connections: Gauge,
    pub http_connections_total: Counter,
    pub http_connections_refused: Counter,
    pub http_connections_expired: Counter,
    pub http_body_bytes: Gauge,
    /// By the position of the slug in `Problem::SLUGS`; shared by all cores.
    pub http_problems: [Counter; Problem::SLUGS.len()],
}

/// One class's series, shared by all cores.
#[derive(Clone)]
pub struct ClassMetrics {
    events: [[Counter; EventEnd::ALL.len()]; EventKind::ALL.len()],
    event_seconds: [Histogram; EventKind::ALL.len()],
    /// `wasmkeep_gate_wait_seconds`
    pub gate_wait_seconds: Histogram,
    /// `wasmkeep_mailbox_rejected_total`
    pub mailbox_rejected: Counter,
    /// `wasmkeep_wake_seconds`
    pub wake_seconds: Histogram,
}

impl ClassMetrics {
    /// Counts an event that ended, and how long it ran, seconds.
    pub fn event(&self, kind: EventKind, end: EventEnd, seconds: f64) {
        self.events[kind as usize][end as usize].increment(1);
        self.event_seconds[kind as usize].record(seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_core_and_class_series_from_the_start_with_help_and_app() {
        let metrics = Metrics::new(AppName { tenant: "acme".into(), app: "shop".into() });
        let _core = metrics.core(0);
        let class = metrics.class("orders");
        class.event(EventKind::Request, EventEnd::Ok, 0.003);
        metrics.upkeep();
        let page = metrics.render();
        for line in [
            "wasmkeep_events_total{class=\"orders\",kind=\"request\",outcome=\"ok\",tenant=\"acme\",app=\"shop\"} 1",
            "wasmkeep_events_total{class=\"orders\",kind=\"alarm\",outcome=\"trap\",tenant=\"acme\",app=\"shop\"} 0",
            "wasmkeep_event_seconds_bucket{class=\"orders\",kind=\"request\",tenant=\"acme\",app=\"shop\",le=\"0.005\"} 1",
            "wasmkeep_event_seconds_bucket{class=\"orders\",kind=\"request\",tenant=\"acme\",app=\"shop\",le=\"0.0025\"} 0",
            "wasmkeep_http_connections{core=\"0\"} 0",
            "wasmkeep_http_problems_total{type=\"mailbox-full\"} 0",
            "# TYPE wasmkeep_events_total counter",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is missing in\n{page}");
        }
        assert!(page.contains("# HELP wasmkeep_journal_bytes_total Bytes written to the journal."), "{page}");
    }

    #[test]
    fn families_are_named_by_one_rule_and_never_by_actor() {
        for (index, family) in FAMILIES.iter().enumerate() {
            assert!(family.name.starts_with("wasmkeep_"), "{}", family.name);
            assert_eq!(family.name.ends_with("_total"), family.kind == Kind::Counter, "{}", family.name);
            assert_eq!(family.buckets.is_empty(), family.kind != Kind::Histogram, "{}", family.name);
            assert!(family.buckets.is_sorted(), "{}", family.name);
            assert!(!family.labels.contains(&"name") && !family.labels.contains(&"actor"), "{}", family.name);
            assert!(FAMILIES[..index].iter().all(|other| other.name != family.name), "{} is there twice", family.name);
        }
    }

    #[test]
    fn kinds_and_ends_stand_where_their_number_says() {
        assert!(EventKind::ALL.iter().enumerate().all(|(index, kind)| *kind as usize == index));
        assert!(EventEnd::ALL.iter().enumerate().all(|(index, end)| *end as usize == index));
    }
}
