//! Key-value shards and queues as plain state machines over a SQLite handle and a clock: one logic, compiled into the node and
//! into guests. It knows neither of them. Empty until the first of them is built.
