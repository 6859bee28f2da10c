//! Peers measured beside our own code. Empty until the first contender is built.

fn main() {}
