//! The SQL surface that the imports call.

pub(crate) use wasmkeep_storage::sql::{Connection, EventBudget};
