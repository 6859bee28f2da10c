//! Write WasmKeep actors in Rust.
//!
//! An actor is addressed `class/name`, owns a SQLite database and handles one event at a time. A guest crate needs this crate
//! and nothing else:
//!
//! ```toml
//! [lib]
//! crate-type = ["cdylib"]
//!
//! [dependencies]
//! wasmkeep-sdk = { path = "../wasmkeep/sdks/rust" }
//! ```
//!
//! ```no_run
//! use wasmkeep_sdk::{Actor, Error, Request, Response, db, json, params};
//!
//! struct Counter;
//!
//! impl Actor for Counter {
//!     fn init() -> Result<(), Error> {
//!         db::exec_durable("CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)", params![])?;
//!         Ok(())
//!     }
//!
//!     fn request(_request: Request) -> Result<Response, Error> {
//!         db::exec_durable("INSERT INTO counter VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = n + 1", params![])?;
//!         let n: i64 = db::scalar("SELECT n FROM counter", params![])?.unwrap_or(0);
//!         Ok(Response::json(&json!({ "count": n })))
//!     }
//! }
//!
//! wasmkeep_sdk::export!(Counter);
//! # fn main() {}
//! ```
//!
//! `cargo build --target wasm32-wasip2 --release` makes the component; `wasmkeep serve --actor counter=FILE.wasm` serves it.
//!
//! # What is kept
//!
//! The database is: [`db::exec_durable`] before anything leaves the actor, [`db::exec`] soon after (a crash of the node may
//! lose the newest of these). Memory is not: a static lives while the actor is loaded, and an actor that traps, sleeps or
//! moves starts with fresh memory.
//!
//! # What this crate is not
//!
//! It holds no logic of the node and runs only inside one. On other targets it compiles, so that plain functions of an actor
//! can be tested, and every call to the node panics.

#![warn(missing_docs)]

pub mod actors;
pub mod alarm;
#[doc(hidden)]
pub mod bindings;
pub mod db;
pub mod env;
mod error;
mod hosted;
pub mod kv;
pub mod log;
pub mod queue;
mod request;
mod response;

pub use error::Error;
pub use request::Request;
pub use response::Response;
pub use serde;
pub use serde_json;
pub use serde_json::json;
#[doc(hidden)]
pub use wasmkeep_classes as classes;

/// What the node calls on an actor. Implement it on a type of your own (it is never instantiated) and name that type in
/// [`export!`].
///
/// The node calls one of these at a time. A panic fails that event alone: whoever sent it gets an answer with status 500, an
/// open transaction is rolled back, and the next event meets fresh memory and the same database.
pub trait Actor {
    /// Called before any other event, once for each deployed version of the component: the place for schema changes.
    ///
    /// It may run again if the node stopped before it was kept, so let it be repeatable (`CREATE TABLE IF NOT EXISTS`).
    ///
    /// # Errors
    /// An error is logged and fails the event like a panic; the actor answers nothing until `init` succeeds.
    fn init() -> Result<(), Error> {
        Ok(())
    }

    /// Called for each request, from outside or from another actor.
    ///
    /// # Errors
    /// An [`Error`] becomes an answer of type `application/problem+json`. What the event wrote before it stays written unless
    /// it happened in a [`db::transaction`] that the error ended.
    fn request(request: Request) -> Result<Response, Error>;

    /// Called when the alarm set with [`alarm::set`] is due. `attempt` is 0 at first and grows by one with each delivery that
    /// failed.
    ///
    /// # Errors
    /// An error is logged and fails the event like a panic: the alarm comes again after a pause.
    fn alarm(attempt: u32) -> Result<(), Error> {
        let _ = attempt;
        Ok(())
    }
}

/// Makes a type that implements [`Actor`] the actor of this component. Use it once, in the root of a `cdylib` crate.
///
/// ```no_run
/// use wasmkeep_sdk::{Actor, Error, Request, Response};
///
/// struct Hello;
///
/// impl Actor for Hello {
///     fn request(_request: Request) -> Result<Response, Error> {
///         Ok(Response::text("hello"))
///     }
/// }
///
/// wasmkeep_sdk::export!(Hello);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! export {
    ($actor:ty) => {
        const _: () = {
            type ExportedActor = $crate::__private::Exported<$actor>;
    $crate::bindings::export_bindings!(ExportedActor with_types_in $crate::bindings);
        };
    };
}

/// What [`export!`] expands to; no interface of its own.
#[doc(hidden)]
pub mod __private {
    use core::marker::PhantomData;

    use crate::bindings::exports::wasmkeep::actor::events::Guest;
    use crate::bindings::wasmkeep::actor::types;
    use crate::{Actor, Request};

    /// Carries an [`Actor`] over to the generated trait.
    pub struct Exported<A>(PhantomData<A>);

    impl<A: Actor + 'static> Guest for Exported<A> {
        fn on_init() {
            fail_event("init", A::init());
        }

        fn on_request(request: types::Request) -> types::Response {
            match A::request(Request::from_wire(request)) {
                Ok(response) => response.into_wire(),
                Err(error) => error.into_response().into_wire(),
            }
        }

        fn on_alarm(attempt: u32) {
            fail_event("alarm", A::alarm(attempt));
        }
    }

    /// The interface has no other way to say that an event without an answer failed than a trap.
    fn fail_event(event: &str, outcome: Result<(), crate::Error>) {
        if let Err(error) = outcome {
            panic!("{event} failed: {error}");
        }
    }
}

/// The documents' Rust, compiled like this crate's own examples.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guide/first-actor.md")]
    struct FirstActor;
}
