//! Segments of a running journal: used again when nothing in them is needed, and made ahead of need.

use std::io;

use super::{Mode, Progress, State};

impl State {
    pub(super) fn recycle(&mut self) {
        if !self.recycling {
            return;
        }
        let through = self.recycle_to.min(self.durable.lsn);
        let mut any = false;
        while let Some(sealed) = self.sealed.pop_front_if(|sealed| sealed.last_lsn <= through) {
            self.supply.give_back(sealed.segment.path);
            any = true;
        }
        if any {
            self.supply.retry();
            self.replenish();
        }
    }

    pub(super) fn replenish(&mut self) {
        // See `set_restart_beyond`: full ones become free only through checkpoints,
        // which need a journal that takes records.
        let beyond = usize::from(self.restart_beyond && self.mode == Mode::AwaitingSegment);
        let live = (self.sealed.len() + usize::from(self.current.is_some())).saturating_sub(beyond);
        let result = self.supply.replenish(live);
        self.note_prepared(result);
    }

    pub(super) fn prepared(&mut self, result: io::Result<()>) {
        self.wants_room |= self.supply.has_one_ready();
        self.note_prepared(result);
        self.replenish();
        self.begin_restart();
    }

    pub(super) fn note_prepared(&mut self, result: io::Result<()>) {
        match result {
            Err(error) if self.mode == Mode::AwaitingSegment && !self.supply.has_ready() => {
                self.mode = Mode::Failed;
                self.progress.push_back(Progress::RestartFailed(error));
            }
            Err(error) => self.progress.push_back(Progress::PrepareFailed(error)),
            Ok(()) if self.wants_room && self.supply.has_ready() => {
                self.wants_room = false;
                self.progress.push_back(Progress::Room);
            }
            Ok(()) => {}
        }
    }
}
