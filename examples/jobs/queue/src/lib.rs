//! The queue of the deliveries: a queue class as a component. Three attempts, so that a dead letter is soon to be seen.

use wasmkeep_sdk::queue::Config;

wasmkeep_sdk::queue_class!(Config::new().consumer("jobs-consumer/main").max_attempts(3).allow("jobs-web"));
