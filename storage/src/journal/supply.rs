//! A journal's stock of segments: those ready to be written, those free to be used again, the one being prepared.
//!
//! What it is not: it does not know which segments still hold needed records; the writer gives back those that do not.
//!
//! Invariants: free segments are used again in the order they were given back, one at a time, each rename durable before the
//! next. Checkpointed ones come oldest first and void ones newest first, so that what is on disk never has a hole. An epoch
//! number is used once; one whose preparation failed was never used.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::format::JournalId;
use super::segment::{Prepare, PrepareFailed, Segment, prepare};
use crate::disk::background::{Background, Job, JobLost};
use crate::limits::SEGMENTS_AHEAD;

pub(super) struct Supply {
    dir: PathBuf,
    journal: JournalId,
    segment_bytes: u64,
    segments_max: usize,
    background: Background,
    ready: VecDeque<Segment>,
    free: VecDeque<PathBuf>,
    preparing: Option<Job<Result<Segment, PrepareFailed>>>,
    next_epoch: u64,
    /// A preparation failed; nothing is tried before `retry`.
    stalled: bool,
}

impl Supply {
    pub(super) fn new(dir: PathBuf, journal: JournalId, segment_bytes: u64, segments_max: usize, background: Background) -> Self {
        let (ready, free) = (VecDeque::new(), VecDeque::new());
        Self { dir, journal, segment_bytes, segments_max, background, ready, free, preparing: None, next_epoch: 1, stalled: false }
    }

    /// A segment to write. The caller then asks for `replenish`.
    pub(super) fn take(&mut self) -> Option<Segment> {
        self.ready.pop_front()
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether the first one has just become ready.
    pub(super) fn has_one_ready(&self) -> bool {
        self.ready.len() == 1
    }

    /// Takes a segment whose records are not needed any more.
    pub(super) fn give_back(&mut self, path: PathBuf) {
        self.free.push_back(path);
    }

    /// Forgets that a preparation failed.
    pub(super) const fn retry(&mut self) {
        self.stalled = false;
    }

    /// Whether nothing is being prepared and nothing will be by itself.
    pub(super) const fn is_idle(&self) -> bool {
        self.preparing.is_none()
    }

    /// Whether nothing is being prepared and nothing has failed to be: there is what there may be.
    pub(super) const fn is_stocked(&self) -> bool {
        self.preparing.is_none() && !self.stalled
    }

    fn job(&mut self) -> Prepare {
        Prepare {
            dir: self.dir.clone(),
            journal: self.journal,
            epoch: self.next_epoch,
            segment_bytes: self.segment_bytes,
            recycle: self.free.pop_front(),
        }
    }

    /// Prepares the first segment on this thread.
    pub(super) fn prepare_first(&mut self) -> Result<Segment, io::Error> {
        let job = self.job();
        let segment = prepare(&**self.background.files(), &job).map_err(|failed| failed.error)?;
        self.next_epoch += 1;
        Ok(segment)
    }

    /// Starts preparing if fewer than `SEGMENTS_AHEAD` are ready and the journal may grow beside `live` segments in use.
    /// Returns the failure of a preparation done at once.
    pub(super) fn replenish(&mut self, live: usize) -> Result<(), io::Error> {
        while self.preparing.is_none() && !self.stalled && self.ready.len() < SEGMENTS_AHEAD {
            if self.free.is_empty() && live + self.ready.len() >= self.segments_max {
                return Ok(());
            }
            let job = self.job();
            let recycle = job.recycle.clone();
            match self.background.spawn(move |files| prepare(files, &job)) {
                Ok(mut job) => match job.try_take() {
                    Some(done) => self.done(done)?,
                    None => self.preparing = Some(job),
                },
                // The thread has enough to do; the next call tries again.
                Err(_busy) => {
                    recycle.into_iter().for_each(|path| self.free.push_front(path));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn done(&mut self, done: Result<Result<Segment, PrepareFailed>, JobLost>) -> Result<(), io::Error> {
        let failed = match done {
            Ok(Ok(segment)) => {
                self.next_epoch += 1;
                self.ready.push_back(segment);
                return Ok(());
            }
            Ok(Err(failed)) => failed,
            // Its file may exist in any state under this epoch's name: the name is not used again.
            Err(JobLost) => {
                self.next_epoch += 1;
                PrepareFailed { error: io::Error::other("the preparing thread is gone"), leftover: None }
            }
        };
        self.stalled = true;
        failed.leftover.into_iter().for_each(|path| self.free.push_front(path));
        Err(failed.error)
    }

    /// Takes in a preparation that has ended: whether a segment became ready, or why not. Pending when none has.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        let Some(job) = &mut self.preparing else { return Poll::Pending };
        match Pin::new(job).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(done) => {
                self.preparing = None;
                Poll::Ready(self.done(done))
            }
        }
    }
}
