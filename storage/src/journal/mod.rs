//! The journal of one core.
