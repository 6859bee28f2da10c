//! An actor's mailbox: events wait here in the order they came.

use std::collections::VecDeque;

use super::wake::Event;
use crate::limits::{MAILBOX_BYTES_MAX, MAILBOX_EVENTS_MAX};

/// Waiting events, bounded by number and by bytes.
#[derive(Default)]
pub(crate) struct Mailbox {
    events: VecDeque<Box<Event>>,
    bytes: usize,
}

impl Mailbox {
    /// Puts an event at the end, or gives it back when the mailbox is full.
    pub(crate) fn push(&mut self, event: Box<Event>) -> Result<(), Box<Event>> {
        let bytes = event.size_bytes();
        let is_full = self.events.len() >= MAILBOX_EVENTS_MAX || self.bytes + bytes > MAILBOX_BYTES_MAX;
        if is_full && !self.events.is_empty() {
            return Err(event);
        }
        self.bytes += bytes;
        self.events.push_back(event);
        Ok(())
    }

    /// Takes the next event.
    pub(crate) fn pop(&mut self) -> Option<Box<Event>> {
        let event = self.events.pop_front()?;
        self.bytes -= event.size_bytes();
        Some(event)
    }

    /// Takes the next event if it is one of those wanted.
    pub(crate) fn pop_if(&mut self, wanted: impl Fn(&Event) -> bool) -> Option<Box<Event>> {
        if self.events.front().is_some_and(|event| wanted(event)) { self.pop() } else { None }
    }

    /// Takes out events that `gone` says will never run.
    pub(crate) fn remove(&mut self, gone: impl Fn(&Event) -> bool) -> Vec<Event> {
        if !self.events.iter().any(|event| gone(event)) {
            return Vec::new();
        }
        let (removed, kept): (VecDeque<_>, VecDeque<_>) = self.events.drain(..).partition(|event| gone(event));
        self.bytes = kept.iter().map(|event| event.size_bytes()).sum();
        self.events = kept;
        removed.into_iter().map(|event| *event).collect()
    }

    /// Whether one waits that is so.
    pub(crate) fn any(&self, is_so: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(|event| is_so(event))
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}
