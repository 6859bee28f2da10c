//! Whole nodes' storage, several cores in one thread, over a simulated disk: SQL, journals, checkpoints, catalogs, recovery.
//!
//! What it is not: a test of the journal's format or of SQL; they have their own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;
mod behaviour;
mod crash;
mod failure;
mod fuzz;
