//! The node's log. `stdout` and `stderr` are lines of it too; these have a level.
//!
//! ```no_run
//! use wasmkeep_sdk::log;
//!
//! log::info!("imported {} notes", 3);
//! ```

use crate::bindings::wasmkeep::actor::log;

/// How much a line matters, least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Every step.
    Trace,
    /// For finding a fault.
    Debug,
    /// What an operator wants to know.
    Info,
    /// Something is odd and was dealt with.
    Warn,
    /// Something failed.
    Error,
}

/// Writes one line. The node cuts lines that are too long and drops lines that come too fast, and says so in the log.
pub fn write(level: Level, message: &str) {
    // Plain functions of an actor are tested outside a node, where a log line must not be what makes them fail.
    if cfg!(not(target_family = "wasm")) {
        eprintln!("{level:?}: {message}");
        return;
    }
    let level = match level {
        Level::Trace => log::Level::Trace,
        Level::Debug => log::Level::Debug,
        Level::Info => log::Level::Info,
        Level::Warn => log::Level::Warn,
        Level::Error => log::Level::Error,
    };
    log::write(level, message);
}

#[doc(hidden)]
#[macro_export]
macro_rules! __log_trace {
    ($($arg:tt)*) => { $crate::log::write($crate::log::Level::Trace, &::std::format!($($arg)*)) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __log_debug {
    ($($arg:tt)*) => { $crate::log::write($crate::log::Level::Debug, &::std::format!($($arg)*)) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __log_info {
    ($($arg:tt)*) => { $crate::log::write($crate::log::Level::Info, &::std::format!($($arg)*)) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __log_warn {
    ($($arg:tt)*) => { $crate::log::write($crate::log::Level::Warn, &::std::format!($($arg)*)) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __log_error {
    ($($arg:tt)*) => { $crate::log::write($crate::log::Level::Error, &::std::format!($($arg)*)) };
}

/// Writes a formatted line of level debug.
pub use crate::__log_debug as debug;
/// Writes a formatted line of level error.
pub use crate::__log_error as error;
/// Writes a formatted line of level info.
pub use crate::__log_info as info;
/// Writes a formatted line of level trace.
pub use crate::__log_trace as trace;
/// Writes a formatted line of level warn.
pub use crate::__log_warn as warn;
