//! SQLite over captured pages.
