//! A group that failed, and how the journal begins anew after it.
//!
//! The failed bytes may be valid on disk: nothing is written before a group in a fresh segment has stated, durably, where the
//! failed epoch ended.

use std::io;

use super::{Durable, Mode, Progress, Sealed, State};
use crate::journal::format::{EpochEnd, GROUPS_OFFSET};

impl State {
    /// Nothing past the durable point counts any more, in memory or on disk.
    pub(super) fn fail(&mut self, error: io::Error) {
        self.in_flight.clear();
        while let Some(group) = self.open.take().or_else(|| self.waiting.pop_front()) {
            self.keep_buffer(group.buffer);
        }
        self.pending_bytes = 0;
        self.named.clear();
        self.last_crc = self.durable.crc;
        if let Some(segment) = self.current.take() {
            self.sealed.push_back(Sealed { segment, last_lsn: self.durable.lsn });
        }
        // What was written past the segment of the durable point is void and free at once: the newest first, so that no crash
        // finds one of them without the one before it.
        let kept = self.sealed.partition_point(|sealed| sealed.segment.epoch <= self.durable.epoch);
        for void in self.sealed.drain(kept..).rev() {
            self.supply.give_back(void.segment.path);
        }
        if let Some(last) = self.sealed.back_mut() {
            last.last_lsn = last.last_lsn.min(self.durable.lsn);
        }
        let restarting = self.mode != Mode::Running;
        self.mode = Mode::Failed;
        self.progress.push_back(if restarting {
            Progress::RestartFailed(error)
        } else {
            Progress::Failed { durable: self.durable.lsn, error }
        });
    }

    pub(super) fn restart(&mut self) {
        if self.mode == Mode::Failed {
            self.mode = Mode::AwaitingSegment;
            self.supply.retry();
            self.replenish();
            self.begin_restart();
        }
    }

    /// Writes the end of the failed epoch if a segment is ready for it.
    pub(super) fn begin_restart(&mut self) {
        if self.mode != Mode::AwaitingSegment {
            return;
        }
        let Some(segment) = self.supply.take() else {
            if self.supply.is_idle() {
                self.mode = Mode::Failed;
                self.progress.push_back(Progress::RestartFailed(io::Error::from_raw_os_error(libc::ENOSPC)));
            }
            return;
        };
        self.current = Some(segment);
        self.offset = GROUPS_OFFSET;
        let Durable { epoch, sequence, crc, .. } = self.durable;
        let mut ends = self.ends_unconfirmed.clone();
        ends.push(EpochEnd { journal: self.journal, epoch, sequence, crc });
        // For the time of this one record the journal runs; nothing else can come between.
        self.mode = Mode::Running;
        let appended = self.append_ends(&ends);
        self.mode = Mode::Restarting;
        self.close_open();
        match (appended, self.waiting.pop_front()) {
            (Ok(_), Some(group)) => self.submit(group),
            _ => self.fail(io::Error::other("the ends of epochs do not fit a segment")),
        }
        self.replenish();
    }
}
