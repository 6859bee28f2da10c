//! Queues: work that must happen later and reliably.
//!
//! A queue is an actor that keeps messages until somebody has handled them. An actor sends with a [`Client`]; the queue pushes
//! to its consumer, an actor that takes deliveries with [`handle_delivery`], or anybody pulls with [`Client::lease`]. What was
//! sent is delivered at least once; a message that nobody manages to handle becomes a dead letter.
//!
//! ```no_run
//! use wasmkeep_sdk::{Actor, Error, Request, Response, queue};
//!
//! struct Mailer;
//!
//! impl Actor for Mailer {
//!     fn request(request: Request) -> Result<Response, Error> {
//!         if let Some(answer) = queue::handle_delivery(&request, |message| send_mail(message.body())) {
//!             return Ok(answer);
//!         }
//!         let sent = queue::Client::new("mail/welcome").send(request.body())?;
//!         Ok(Response::text(sent.id.to_string()))
//!     }
//! }
//! # fn send_mail(_: &[u8]) -> Result<(), Error> { Ok(()) }
//! # wasmkeep_sdk::export!(Mailer);
//! # fn main() {}
//! ```
//!
//! The queue itself is a class of its own: a component with one line, [`queue_class!`](crate::queue_class).
//!
//! What this is not: a part of the caller's transaction. A send is kept even if the event that made it fails afterwards, as
//! with any call to another actor.

mod client;
mod config;
mod consumer;
mod error;
mod guest;
mod handled;
mod message;

#[cfg(test)]
pub(crate) mod tests;

pub use client::{Client, DeadLetter, DeadPage};
pub use config::Config;
pub use consumer::{handle_delivery, handle_delivery_allowing};
pub use error::Error;
pub use guest::{Configure, Queue, alarm, handle, handle_allowing, init};
pub use handled::Handled;
pub use message::{Message, Outcome, Received};
pub use wasmkeep_classes::queue::protocol::{Counters, Lease, Moved, Sent, Settled, Stats, Which};
