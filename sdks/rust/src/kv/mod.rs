//! Key-value: data that many actors share, such as settings, a registry, sessions.
//!
//! The keys of a class are spread over a fixed number of actors of it, its shards. A [`Client`] finds the right one:
//!
//! ```no_run
//! use wasmkeep_sdk::{Error, kv};
//!
//! fn rename(old: &str) -> Result<(), Error> {
//!     let settings = kv::Client::new("settings", 8);
//!     if let Some(entry) = settings.get("title")?.filter(|entry| *entry.value == *old.as_bytes()) {
//!         settings.compare_and_set("title", "new", kv::Expect::Version(entry.version))?;
//!     }
//!     Ok(())
//! }
//! ```
//!
//! The shards are a class of their own: a component with one line, [`kv_class!`](crate::kv_class).
//!
//! What this is not: a part of the caller's transaction, or a transaction over several keys. A write is kept even if the event
//! that made it fails afterwards, as with any call to another actor.

mod client;
mod error;
mod guest;

#[cfg(test)]
mod tests;

pub use client::{Client, Page, PutOptions};
pub use error::Error;
pub use guest::{Shard, alarm, handle, handle_allowing, init};
pub use wasmkeep_classes::kv::cache::Entry;
pub use wasmkeep_classes::kv::merge::OwnedListed as Listed;
pub use wasmkeep_classes::kv::protocol::Expect;
