//! The shards of the application's settings: a key-value class as a component.

wasmkeep_sdk::kv_class!();
