//! What an actor can learn about itself and the event at hand.

use crate::actors::Address;
use crate::bindings::wasmkeep::actor::env;

/// A setting that the operator gave to this class, in the file or with `--env CLASS:NAME=VALUE`.
pub fn get(name: &str) -> Option<String> {
    env::get(name)
}

/// Who this actor is.
pub fn self_address() -> Address {
    env::self_address()
}

/// The actor that sent the event at hand; `None` if it came from outside or is no request.
pub fn caller() -> Option<Address> {
    env::caller()
}
