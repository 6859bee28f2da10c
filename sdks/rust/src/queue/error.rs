//! Why an operation on a queue gave no result. It tells apart what a caller can do about it: mend the request, try again, or
//! reckon with both outcomes.

use crate::actors::CallError;
use core::fmt;
use wasmkeep_classes::queue::client;
use wasmkeep_classes::queue::protocol::Invalid;

/// Why an operation on a queue gave no result.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The request breaks a rule; the text names it. Nothing was done.
    Invalid(String),
    /// Too much at once; the text names the bound. Nothing was done.
    TooLarge(String),
    /// This actor may not use that queue. Nothing was done.
    Forbidden,
    /// The queue's storage is full. Nothing was done.
    Full,
    /// The queue could not be asked. Nothing was done; trying again later may help.
    NotReached(CallError),
    /// Whether it was done is not known. A send may be repeated with the same dedupe id; settling twice does no harm.
    UnknownOutcome(String),
}

impl Error {
    /// Whether the operation may have been done.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::UnknownOutcome(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(words) | Self::TooLarge(words) => write!(f, "the queue refused: {words}"),
            Self::Forbidden => f.write_str("this actor may not use the queue"),
            Self::Full => f.write_str("the queue's storage is full"),
            Self::NotReached(error) => write!(f, "the queue could not be asked: {error}"),
            Self::UnknownOutcome(words) => write!(f, "whether the queue did it is not known: {words}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        if invalid.status() == 413 { Self::TooLarge(invalid.to_string()) } else { Self::Invalid(invalid.to_string()) }
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Forbidden => Self::Forbidden,
            CallError::Timeout | CallError::UnknownOutcome => Self::UnknownOutcome(error.to_string()),
            _ => Self::NotReached(error),
        }
    }
}

impl From<client::Error> for Error {
    fn from(error: client::Error) -> Self {
        match error {
            client::Error::Refused(words) => Self::Invalid(words),
            client::Error::TooLarge(words) => Self::TooLarge(words),
            client::Error::Forbidden => Self::Forbidden,
            client::Error::Full => Self::Full,
            client::Error::Failed { .. } | client::Error::Malformed => Self::UnknownOutcome(error.to_string()),
        }
    }
}

impl From<Error> for crate::Error {
    fn from(error: Error) -> Self {
        let (status, kind) = match &error {
            Error::Invalid(_) | Error::Forbidden => (500, "queue"),
            Error::TooLarge(_) => (413, "too-large"),
            Error::Full => (507, "storage-full"),
            Error::NotReached(call) => return Self::from(*call),
            Error::UnknownOutcome(_) => (503, "unknown-outcome"),
        };
        Self::new(status, kind, error.to_string())
    }
}
