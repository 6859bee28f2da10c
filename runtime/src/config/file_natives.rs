//! Reading `[queues.NAME]` and `[kv.NAME]` of `wasmkeep.toml`.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::DeValue;
use wasmkeep_classes::{kv, queue};

use super::file::{Doc, Value, kind};
use super::native::{CALLERS, NativeConfig, NativeKind};
use super::values::{check_actor_name, check_class_name, parse_duration, shown};

const QUEUE_KEYS: &[&str] =
    &["allow", "batch", "concurrency", "consumer", "dedupe-window", "max-attempts", "ordering", "visibility"];

const KV_KEYS: &[&str] = &["allow", "operation-window", "shards"];

/// One `[queues.name]` or `[kv.name]`.
#[derive(Debug)]
pub(super) struct FileNative {
    pub(super) config: NativeConfig,
    /// `file:line` of its name, for errors.
    pub(super) place: String,
}

impl Doc<'_> {
    pub(super) fn queue(&mut self, key: &Spanned<Cow<'_, str>>, value: &Value<'_>) -> Option<FileNative> {
        let name = key.get_ref().as_ref();
        self.keep(key.span(), check_class_name(name))?;
        let within = format!("in [queues.{name}]");
        let (mut config, mut allow) = (queue::Config::default(), Vec::new());
        for (key, value) in self.table(&format!("queues.{name}"), value)? {
            match key.get_ref().as_ref() {
                "consumer" => {
                    let text = self.string("consumer", value).map(str::to_owned);
                    config.consumer = text.and_then(|text| self.keep(value.span(), check_address(&text).map(|()| text)));
                }
                "allow" => allow = self.allow(value),
                "batch" => self.count("batch", value, &mut config.batch),
                "concurrency" => self.count("concurrency", value, &mut config.concurrency),
                "max-attempts" => self.count("max-attempts", value, &mut config.max_attempts),
                "visibility" => self.duration_ms("visibility", value, &mut config.visibility_ms),
                "dedupe-window" => self.duration_ms("dedupe-window", value, &mut config.dedupe_window_ms),
                "ordering" => match value.get_ref().as_bool() {
                    Some(flag) => config.ordering = flag,
                    None => self.report(value.span(), format!("ordering must be true or false, not {}", kind(value))),
                },
                _ => self.unknown(key, &within, QUEUE_KEYS),
            }
        }
        self.keep(key.span(), config.check().map_err(|bad| format!("{within}: {bad}")))?;
        let config = NativeConfig { name: name.into(), allow, kind: NativeKind::Queue(config) };
        Some(FileNative { config, place: self.place(&key.span()) })
    }

    pub(super) fn kv(&mut self, key: &Spanned<Cow<'_, str>>, value: &Value<'_>) -> Option<FileNative> {
        let name = key.get_ref().as_ref();
        self.keep(key.span(), check_class_name(name))?;
        let within = format!("in [kv.{name}]");
        let (mut config, mut allow, mut shards) = (kv::Config::default(), Vec::new(), None);
        for (key, value) in self.table(&format!("kv.{name}"), value)? {
            match key.get_ref().as_ref() {
                "shards" => self.count("shards", value, shards.insert(1)),
                "allow" => allow = self.allow(value),
                "operation-window" => self.duration_ms("operation-window", value, &mut config.operation_window_ms),
                _ => self.unknown(key, &within, KV_KEYS),
            }
        }
        if shards.is_none() {
            self.report(
                key.span(),
                format!("{within}: shards is missing; how many is part of the layout of the data, 8 for example"),
            );
        }
        config.shards = shards;
        self.keep(key.span(), config.check().map_err(|bad| format!("{within}: {bad}")))?;
        let config = NativeConfig { name: name.into(), allow, kind: NativeKind::Kv(config) };
        Some(FileNative { config, place: self.place(&key.span()) })
    }

    fn allow(&mut self, value: &Value<'_>) -> Vec<String> {
        let Some(list) = value.get_ref().as_array() else {
            self.report(value.span(), format!("allow must be a list of classes and addresses, not {}", kind(value)));
            return Vec::new();
        };
        if list.is_empty() {
            self.report(value.span(), "allow is empty: nobody could call this class; name who may, or leave allow out");
        }
        let mut allowed = Vec::new();
        for value in list {
            let Some(text) = self.string("an entry of allow", value).map(str::to_owned) else { continue };
            let checked = check_caller(&text);
            allowed.extend(self.keep(value.span(), checked.map(|()| text)));
        }
        allowed
    }

    fn count(&mut self, what: &str, value: &Value<'_>, into: &mut u32) {
        let number = match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().replace('_', "").parse().ok(),
            _ => None,
        };
        match number {
            Some(number) => *into = number,
            None => self.report(value.span(), format!("{what} must be a whole number up to {}", u32::MAX)),
        }
    }

    fn duration_ms(&mut self, what: &str, value: &Value<'_>, into: &mut u64) {
        let Some(text) = self.string(what, value).map(str::to_owned) else { return };
        if let Some(duration) = self.keep(value.span(), parse_duration(&text).map_err(|problem| format!("{what}: {problem}"))) {
            *into = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        }
    }
}

/// Checks `class` or `class/name` of a caller.
fn check_caller(text: &str) -> Result<(), String> {
    match text.split_once('/') {
        Some((CALLERS, name)) => check_actor_name(name),
        None if text == CALLERS => Ok(()),
        Some(_) => check_address(text),
        None => check_class_name(text),
    }
}

/// Checks `class/name`.
fn check_address(text: &str) -> Result<(), String> {
    let Some((class, name)) = text.split_once('/') else {
        return Err(format!("{} is not an address; write \"class/name\"", shown(text)));
    };
    check_class_name(class)?;
    check_actor_name(name)
}
