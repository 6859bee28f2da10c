//! Why an operation on a key gave no result, told apart by what a caller can do about it.

use crate::actors::CallError;
use core::fmt;
use wasmkeep_classes::kv::client;
use wasmkeep_classes::kv::protocol::Invalid;

/// Why an operation on a key gave no result.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The key is not what was expected. Nothing was done.
    Conflict {
        /// The version it has, `None` if it is absent.
        current: Option<i64>,
    },
    /// The value that was to be incremented is no number, or the sum does not fit. Nothing was done.
    NotANumber(String),
    /// The request breaks a rule, or the class has another number of shards; the text says which. Nothing was done.
    Invalid(String),
    /// Too much at once; the text names the bound. Nothing was done.
    TooLarge(String),
    /// This actor may not use that class. Nothing was done.
    Forbidden,
    /// The shard's storage is full. Nothing was done.
    Full,
    /// The keys are being moved and take no writes. Nothing was done; try again later.
    Moving,
    /// The shard could not be asked. Nothing was done; trying again later may help.
    NotReached(CallError),
    /// Whether it was done is not known. Read the key again before a compare-and-set is repeated.
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
            Self::Conflict { current: Some(version) } => write!(f, "the key is not as expected: it has version {version}"),
            Self::Conflict { current: None } => f.write_str("the key is not as expected: it is absent"),
            Self::NotANumber(words) | Self::Invalid(words) | Self::TooLarge(words) => f.write_str(words),
            Self::Forbidden => f.write_str("this actor may not use the keys"),
            Self::Full => f.write_str("the shard's storage is full"),
            Self::Moving => f.write_str("the keys are being moved and take no writes"),
            Self::NotReached(error) => write!(f, "the shard could not be asked: {error}"),
            Self::UnknownOutcome(words) => write!(f, "whether the shard did it is not known: {words}"),
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
        use client::Error as Wire;
        match error {
            Wire::Conflict { current } => Self::Conflict { current },
            Wire::NotANumber | Wire::Overflow => Self::NotANumber(error.to_string()),
            Wire::Moving { .. } => Self::Moving,
            Wire::Moved { .. } | Wire::OperationReused | Wire::NotApplied(_) => Self::Invalid(error.to_string()),
            Wire::Refused(words) => Self::Invalid(words),
            Wire::TooLarge(words) => Self::TooLarge(words),
            Wire::Forbidden => Self::Forbidden,
            Wire::Full => Self::Full,
            Wire::Failed { .. } | Wire::Malformed => Self::UnknownOutcome(error.to_string()),
        }
    }
}

impl From<Error> for crate::Error {
    fn from(error: Error) -> Self {
        let (status, kind) = match &error {
            Error::Conflict { .. } => (409, "conflict"),
            Error::NotANumber(_) => (422, "not-a-number"),
            Error::Invalid(_) | Error::Forbidden => (500, "key-value"),
            Error::TooLarge(_) => (413, "too-large"),
            Error::Full => (507, "storage-full"),
            Error::Moving => (503, "unavailable"),
            Error::NotReached(call) => return Self::from(*call),
            Error::UnknownOutcome(_) => (503, "unknown-outcome"),
        };
        Self::new(status, kind, error.to_string())
    }
}
