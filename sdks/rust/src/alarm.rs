//! The actor's one alarm: an event the actor sends to itself at a later time.
//!
//! It comes at least once, survives restarts, and comes again with growing pauses until
//! [`Actor::alarm`](crate::Actor::alarm) succeeds. What an event sets here takes effect when that event ends well, together
//! with what it wrote.

use crate::bindings::wasmkeep::actor::alarms;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Sets the alarm, in place of the one that was set. A time that has passed means at once.
pub fn set(at: SystemTime) {
    let since_epoch = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    alarms::set(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX));
}

/// Sets the alarm to a time from now.
#[allow(clippy::disallowed_methods, reason = "inside a guest this asks the node, whose clock is the injected one")]
pub fn set_in(delay: Duration) {
    let far_future = || UNIX_EPOCH + Duration::from_secs(u64::from(u32::MAX) * 4);
    set(SystemTime::now().checked_add(delay).unwrap_or_else(far_future));
}

/// When the alarm is due, if one is set.
pub fn get() -> Option<SystemTime> {
    alarms::get().and_then(|at_ms| UNIX_EPOCH.checked_add(Duration::from_millis(at_ms)))
}

/// Removes the alarm.
pub fn clear() {
    alarms::clear();
}
