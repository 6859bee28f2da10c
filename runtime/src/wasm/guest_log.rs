//! A guest's log: `log.write`, its stdout and stderr, and what the node has to say about its failures.
//!
//! Everything a guest can make us write goes through here, because it is bounded here: lines are cut, control characters
//! escaped (so that a guest cannot fake a line of another actor or drive a terminal), and lines that come too fast dropped.

use super::limits::{LOG_LINE_BYTES_MAX, LOG_LINES_PER_SECOND_MAX};
use std::cell::Cell;
use wasmkeep_storage::Address;
use wasmkeep_storage::clock::Clock;

/// How much a line matters.
pub(crate) use tracing::Level;

/// The log of one actor's instance.
pub(crate) struct GuestLog {
    address: Address,
    clock: Clock,
    second: Cell<u64>,
    lines: Cell<u32>,
    dropped: Cell<u64>,
}

impl GuestLog {
    pub(crate) fn new(address: Address, clock: Clock) -> Self {
        Self { address, clock, second: Cell::new(0), lines: Cell::new(0), dropped: Cell::new(0) }
    }

    /// Writes one line, or several where `text` holds line breaks; none for blank ones.
    pub(crate) fn write(&self, level: Level, text: &str) {
        if !enabled(level) {
            return;
        }
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match self.admit() {
                Admission::Write => emit(level, &self.address, &clean(line)),
                Admission::WriteAfter(dropped) => {
                    emit(
                        Level::WARN,
                        &self.address,
                        &format!("{dropped} lines of this actor's log were dropped: they came too fast"),
                    );
                    emit(level, &self.address, &clean(line));
                }
                Admission::Drop => {}
            }
        }
    }

    fn admit(&self) -> Admission {
        let second = self.clock.monotonic_ns() / 1_000_000_000;
        let dropped = if self.second.replace(second) == second {
            0
        } else {
            self.lines.set(0);
            self.dropped.take()
        };
        if self.lines.get() == LOG_LINES_PER_SECOND_MAX {
            self.dropped.set(self.dropped.get() + 1);
            return Admission::Drop;
        }
        self.lines.set(self.lines.get() + 1);
        if dropped > 0 { Admission::WriteAfter(dropped) } else { Admission::Write }
    }
}

#[derive(PartialEq, Eq, Debug)]
enum Admission {
    Write,
    WriteAfter(u64),
    Drop,
}

/// The line as it may stand in a log: cut, without control characters.
fn clean(line: &str) -> String {
    let cut = cut(line, LOG_LINE_BYTES_MAX);
    let mut clean = String::with_capacity(cut.len());
    for c in cut.chars() {
        if c.is_control() && c != '\t' {
            clean.extend(c.escape_default());
        } else {
            clean.push(c);
        }
    }
    if cut.len() < line.len() {
        clean.push('…');
    }
    clean
}

/// The longest beginning of `text` that is at most `bytes` long.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

fn enabled(level: Level) -> bool {
    tracing::level_filters::LevelFilter::current() >= level
}

/// `tracing` wants its level at compile time.
fn emit(level: Level, actor: &Address, line: &str) {
    match level {
        Level::TRACE => tracing::trace!(target: "guest", %actor, "{line}"),
        Level::DEBUG => tracing::debug!(target: "guest", %actor, "{line}"),
        Level::INFO => tracing::info!(target: "guest", %actor, "{line}"),
        Level::WARN => tracing::warn!(target: "guest", %actor, "{line}"),
        Level::ERROR => tracing::error!(target: "guest", %actor, "{line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_past_the_rate_are_dropped_and_counted_in_the_next_second() {
        let (clock, hand) = Clock::manual();
        let log = GuestLog::new(Address::new("a", "b"), clock);
        hand.advance_ms(5_000);
        for _ in 0..LOG_LINES_PER_SECOND_MAX {
            assert_eq!(log.admit(), Admission::Write);
        }
        for _ in 0..7 {
            assert_eq!(log.admit(), Admission::Drop);
        }
        hand.advance_ms(1_000);
        assert_eq!(log.admit(), Admission::WriteAfter(7));
        assert_eq!(log.admit(), Admission::Write);
    }

    #[test]
    fn a_line_is_cut_at_a_character_and_cannot_hold_control_characters() {
        let long = "ä".repeat(LOG_LINE_BYTES_MAX);
        let cut = clean(&long);
        assert!(cut.len() <= LOG_LINE_BYTES_MAX + '…'.len_utf8());
        assert!(cut.ends_with('…'));
        assert_eq!(clean("a\u{1b}[31mb\rc\td"), "a\\u{1b}[31mb\\rc\td");
    }
}
