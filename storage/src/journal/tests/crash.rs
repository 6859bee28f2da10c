//! Power cuts and failed writes, on the simulated disk.
