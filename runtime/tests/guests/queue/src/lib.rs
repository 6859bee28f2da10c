//! A queue class as a component whose configuration is its environment, so that tests may choose it.
//!
//! Each variable is a setting of the same name; one that is not set has its default.

use std::time::Duration;
use wasmkeep_sdk::env;
use wasmkeep_sdk::queue::Config;

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    env::get(name)?.parse().ok()
}

fn config() -> Config {
    let mut config = Config::new();
    if let Some(consumer) = env::get("consumer") {
        config = config.consumer(consumer);
    }
    if let Some(allow) = env::get("allow") {
        config = config.allow(allow);
    }
    if let Some(batch) = number("batch") {
        config = config.batch(batch);
    }
    if let Some(attempts) = number("max-attempts") {
        config = config.max_attempts(attempts);
    }
    if let Some(ms) = number("visibility-ms") {
        config = config.visibility(Duration::from_millis(ms));
    }
    if let Some(ms) = number("dedupe-window-ms") {
        config = config.dedupe_window(Duration::from_millis(ms));
    }
    if let Some(ms) = number("delivery-timeout-ms") {
        config = config.delivery_timeout(Duration::from_millis(ms));
    }
    config.ordering(env::get("ordering").is_some())
}

wasmkeep_sdk::queue_class!(config());
