//! Recognising a message that is delivered again, in the consumer's own database.

use super::message::Received;
use crate::hosted::{OwnDatabase, event_error, now_ms};
use crate::{Error, db};
use std::time::Duration;
use wasmkeep_classes::queue;

/// Which messages this actor has handled, in a table of its own database (`wasmkeep_queue_handled`).
///
/// ```no_run
/// use wasmkeep_sdk::{Error, db, params, queue::{Handled, Received}};
///
/// fn handle(message: &Received<'_>) -> Result<(), Error> {
///     Handled::new().once(message, || {
///         db::exec("UPDATE stock SET count = count - 1 WHERE item = ?", params![message.body().to_vec()])?;
///         Ok(())
///     })?;
///     Ok(())
/// }
/// ```
///
/// It knows what happened in this database and nothing of the world outside: a message whose mail was sent just before the
/// node died is delivered again, and its mail is sent again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Handled(queue::Handled);

impl Handled {
    /// Remembers for a week.
    pub fn new() -> Self {
        Self::default()
    }

    /// Remembers for so long. It should be longer than a message can stay in its queue.
    pub fn keeping(time: Duration) -> Self {
        Self(queue::Handled::keeping_ms(crate::hosted::millis(time)))
    }

    /// Makes the table if it is missing: for the actor's `init`.
    ///
    /// # Errors
    /// As the database does.
    pub fn create(&self) -> Result<(), Error> {
        self.0.create(&mut OwnDatabase).map_err(event_error)
    }

    /// Runs `work` in one transaction with the record that the message is handled, and commits durably. Returns false, and runs
    /// nothing, if it was handled before. If `work` fails, nothing of it is kept and the message is not handled.
    ///
    /// # Errors
    /// That of `work`, or the database's.
    pub fn once(&self, message: &Received<'_>, work: impl FnOnce() -> Result<(), Error>) -> Result<bool, Error> {
        db::transaction(|| {
            let is_new = self.record(message)?;
            if is_new {
                work()?;
            }
            Ok(is_new)
        })
    }

    /// Records that the message is handled, in the transaction that is open if there is one. Returns false if it was already.
    ///
    /// # Errors
    /// As the database does.
    pub fn record(&self, message: &Received<'_>) -> Result<bool, Error> {
        self.0.record(&mut OwnDatabase, now_ms(), message.queue(), message.id()).map_err(event_error)
    }

    /// Whether the message was handled.
    ///
    /// # Errors
    /// As the database does.
    pub fn is_handled(&self, message: &Received<'_>) -> Result<bool, Error> {
        self.0.is_handled(&mut OwnDatabase, message.queue(), message.id()).map_err(event_error)
    }

    /// Forgets up to 500 messages whose time is over. Call it once per delivery. Returns whether there are more.
    ///
    /// # Errors
    /// As the database does.
    pub fn sweep(&self) -> Result<bool, Error> {
        self.0.sweep(&mut OwnDatabase, now_ms()).map_err(event_error)
    }
}
