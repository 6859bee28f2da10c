//! The journal of one core: records become groups, groups become durable, in order, or fail together.
//!
//! What it is not: it opens no gates and knows no pages. It does not wait: every method returns at once, `poll_progress` tells
//! what became of the writes. Owner: the core's pump; nothing here may be used from another thread.
//!
//! Invariants: a group is acknowledged only after all before it. When one fails, everything after it fails too, and nothing is
//! written before a group in a fresh segment has stated, durably, where the failed epoch ended: the failed bytes may be valid on
//! disk. LSNs, group sequences and epochs are never used twice.

mod failure;
mod segments;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::clock::Clock;
use crate::disk::background::Background;
use crate::disk::{AlignedBuf, Backend, Completion};
use crate::error::{Refused, StorageError};
use crate::journal::format::{EpochEnd, GROUPS_OFFSET, JournalId, Record, RecordKind, record_bytes};
use crate::journal::group::{Group, Link, Named, Tail, bytes_in};
use crate::journal::segment::{Segment, create_journal_dir};
use crate::journal::supply::Supply;
use crate::limits::{
    FLUSHES_KEPT_MAX, GROUP_BUFFER_KEPT_BYTES_MAX, GROUP_BYTES_TARGET, GROUP_BYTES_WORTH_A_WRITE, GROUPS_IN_FLIGHT_MAX,
    JOURNAL_SEGMENTS_MIN, TRANSACTION_BYTES_MAX,
};
use crate::types::{Address, Lsn};

/// How to create a journal.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// The directory of all journals, `<data>/journal`.
    pub dir: PathBuf,
    /// This start of the node: higher than any before, made durable by the caller first.
    pub incarnation: u64,
    /// The core that writes.
    pub core: u16,
    /// Length of a segment, a multiple of 4,096.
    pub segment_bytes: u64,
    /// What all segments may take on disk. At least `JOURNAL_SEGMENTS_MIN` segments are used whatever this says.
    pub journal_bytes_max: u64,
    /// The LSN of the first record.
    pub first_lsn: Lsn,
    /// For how long a flush took.
    pub clock: Clock,
}

/// One group's way to the disk, for the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flush {
    /// Records it made durable.
    pub records: u64,
    /// From its submission until it was known to be durable, ns.
    pub ns: u64,
}

/// What became of earlier calls.
#[derive(Debug)]
pub enum Progress {
    /// Every record up to this one is durable.
    Durable(Lsn),
    /// A group failed: every record past `durable` is to be taken as lost, though it may still be found after a crash that
    /// comes before `Restarted`. The journal refuses records until `restart` has done its work. The caller breaks everything
    /// that saw a lost record before it calls `restart`: `durable()` will rise past the lost LSNs.
    Failed {
        /// The newest record that is durable.
        durable: Lsn,
        /// What the system said.
        error: io::Error,
    },
    /// The restart is durable: records are taken again, and what was lost stays lost.
    Restarted,
    /// The restart could not be written. Call `restart` again, after a while.
    RestartFailed(io::Error),
    /// No segment could be prepared. Until `retry_prepare` or `recycle_through` gives a new chance, records are taken as long as
    /// they fit what is ready, then refused as full.
    PrepareFailed(io::Error),
    /// A segment is ready where there was none: `awaits_segment` is over, and what was refused as full may be taken now.
    Room,
}

/// The journal of one core. All methods take `&self`; none may be called from within another.
pub struct Journal {
    state: RefCell<State>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.borrow();
        write!(f, "Journal({}, {:?}, newest {}, durable {})", state.journal, state.mode, state.newest(), state.durable.lsn)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// Takes records.
    Running,
    /// A group failed, or a restart did; waits for `restart`.
    Failed,
    /// The restart waits for a segment.
    AwaitingSegment,
    /// The restart's group is in flight.
    Restarting,
}

/// The newest durable record and its group.
#[derive(Clone, Copy)]
struct Durable {
    lsn: Lsn,
    epoch: u64,
    sequence: u64,
    crc: u32,
}

/// A segment that holds needed records and takes no more.
struct Sealed {
    segment: Segment,
    last_lsn: Lsn,
}

struct InFlight {
    reached: Durable,
    since_ns: u64,
    records: u64,
    bytes: usize,
    outcome: Option<io::Result<()>>,
}

struct State {
    journal: JournalId,
    segment_bytes: u64,
    backend: Box<dyn Backend>,
    supply: Supply,
    mode: Mode,
    next_lsn: Lsn,
    next_sequence: u64,
    /// Header crc of the group submitted last, or of the durable one after a failure.
    last_crc: u32,
    durable: Durable,
    sealed: VecDeque<Sealed>,
    current: Option<Segment>,
    /// Where the next group begins in the current segment.
    offset: u64,
    named: Named,
    open: Option<Group>,
    waiting: VecDeque<Group>,
    in_flight: VecDeque<InFlight>,
    pending_bytes: usize,
    buffers: Vec<AlignedBuf>,
    completions: Vec<Completion>,
    progress: VecDeque<Progress>,
    /// Ends of older journals that this one has stated but not durably.
    ends_unconfirmed: Vec<EpochEnd>,
    recycling: bool,
    restart_beyond: bool,
    recycle_to: Lsn,
    /// Someone waits for a segment to be ready.
    wants_room: bool,
    clock: Clock,
    flushes: VecDeque<Flush>,
}

impl Journal {
    /// A new, empty journal with its first segment ready. Blocks while that is written.
    ///
    /// # Errors
    /// When its directory or first segment cannot be made.
    pub fn create(backend: Box<dyn Backend>, background: Background, options: JournalOptions) -> Result<Self, StorageError> {
        let JournalOptions { dir, incarnation, core, segment_bytes, journal_bytes_max, first_lsn, clock } = options;
        assert!(segment_bytes.is_multiple_of(4096) && segment_bytes >= 8192, "a segment is a header block and at least one more");
        assert!(u32::try_from(segment_bytes).is_ok(), "positions within a segment are 32 bits");
        let journal = JournalId { incarnation, core };
        create_journal_dir(&**background.files(), &dir, journal)?;
        let segments_max = usize::try_from(journal_bytes_max / segment_bytes).unwrap_or(usize::MAX).max(JOURNAL_SEGMENTS_MIN);
        let mut supply = Supply::new(dir.clone(), journal, segment_bytes, segments_max, background);
        let first = supply.prepare_first().map_err(StorageError::io("preparing the first segment in", dir))?;
        let durable = Durable { lsn: Lsn(first_lsn.0.saturating_sub(1)), epoch: 0, sequence: 0, crc: 0 };
        let mut state = State {
            journal,
            segment_bytes,
            backend,
            supply,
            mode: Mode::Running,
            next_lsn: Lsn(durable.lsn.0 + 1),
            next_sequence: 1,
            last_crc: 0,
            durable,
            sealed: VecDeque::new(),
            current: Some(first),
            offset: GROUPS_OFFSET,
            named: Named::default(),
            open: None,
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            pending_bytes: 0,
            buffers: Vec::new(),
            completions: Vec::new(),
            progress: VecDeque::new(),
            ends_unconfirmed: Vec::new(),
            recycling: true,
            restart_beyond: false,
            recycle_to: Lsn::ZERO,
            wants_room: false,
            clock,
            flushes: VecDeque::new(),
        };
        state.replenish();
        Ok(Self { state: RefCell::new(state) })
    }

    /// Takes a record into the pending group. It is durable when `poll_progress` says so of its LSN.
    ///
    /// # Errors
    /// `Full` when no segment has room, `TooLarge` when the record, with the others of its run, fits no segment, `Failed` between
    /// a failure and `Restarted`. Nothing was taken then.
    pub fn append(&self, record: &Record<'_>) -> Result<Lsn, Refused> {
        self.state.borrow_mut().append(record)
    }

    /// States where older journals ended. Must be the first record of this journal; nothing may be served before it is durable.
    ///
    /// # Errors
    /// As `append`.
    pub fn append_epoch_ends(&self, ends: &[EpochEnd]) -> Result<Lsn, Refused> {
        let mut state = self.state.borrow_mut();
        assert_eq!(state.next_sequence, 1, "ends of epochs come first");
        state.ends_unconfirmed = ends.to_vec();
        let lsn = state.append_ends(ends)?;
        // Recovery looks for these in groups of one record.
        state.close_open();
        Ok(lsn)
    }

    /// Says that no guest run is going on: what was appended may be written, and what comes next may go to another group. Call
    /// it between runs and before waiting; it writes nothing while `GROUPS_IN_FLIGHT_MAX` groups are on their way.
    pub fn cut(&self) {
        self.state.borrow_mut().cut();
    }

    /// Says that a guest run has ended and that the core goes on with others before it will `cut`: what was appended is written if
    /// it fills a block and the disk has time, so that flushing and running overlap.
    pub fn end_run(&self) {
        self.state.borrow_mut().end_run();
    }

    /// What became of earlier calls, one thing at a time, in order. Call it until it is pending before the core goes to sleep: it
    /// registers the waker for groups and for segments being prepared.
    pub fn poll_progress(&self, cx: &mut Context<'_>) -> Poll<Progress> {
        self.state.borrow_mut().poll_progress(cx)
    }

    /// The newest durable record.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.state.borrow().durable.lsn
    }

    /// The newest record taken.
    #[must_use]
    pub fn newest(&self) -> Lsn {
        self.state.borrow().newest()
    }

    /// Bytes of records taken and not yet durable.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.state.borrow().pending_bytes
    }

    /// Bytes on disk that hold needed records: full segments, and the current one as far as it is written.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let state = self.state.borrow();
        state.sealed.len() as u64 * state.segment_bytes + if state.current.is_some() { state.offset } else { 0 }
    }

    /// The last record of the oldest full segment: what must be in base files before that segment can be used again.
    #[must_use]
    pub fn oldest_segment_last_lsn(&self) -> Option<Lsn> {
        self.state.borrow().sealed.front().map(|sealed| sealed.last_lsn)
    }

    /// Every record up to this one is in base files and catalogs, synced: segments that hold no other are used again.
    pub fn recycle_through(&self, lsn: Lsn) {
        let mut state = self.state.borrow_mut();
        state.recycle_to = state.recycle_to.max(lsn);
        state.recycle();
    }

    /// Whether segments may be used again. To be off while journals of older incarnations exist: what is left of an actor's
    /// records must be the newest of them. On at first.
    pub fn set_recycling(&self, on: bool) {
        let mut state = self.state.borrow_mut();
        state.recycling = on;
        state.recycle();
    }

    /// Whether a restart may take one segment more than the journal's size allows. For an owner whose checkpoints, which make
    /// segments free, write records to this same journal. Off at first.
    pub fn set_restart_beyond(&self, on: bool) {
        self.state.borrow_mut().restart_beyond = on;
    }

    /// Tries again to prepare segments after `PrepareFailed`.
    pub fn retry_prepare(&self) {
        let mut state = self.state.borrow_mut();
        state.supply.retry();
        state.replenish();
    }

    /// After `Failed` or `RestartFailed`: makes durable, in a fresh segment, where the failed epoch ended. Does nothing else.
    pub fn restart(&self) {
        self.state.borrow_mut().restart();
    }

    /// Whether no segment is ready beyond the current one while one is being prepared: a caller that can wait starts nothing new
    /// until `poll_progress` has something, rather than have it refused as full.
    #[must_use]
    pub fn awaits_segment(&self) -> bool {
        let state = self.state.borrow();
        !state.supply.has_ready() && !state.supply.is_idle()
    }

    /// Whether as many segments are ready as there may be: none is being prepared, none has failed to be.
    #[must_use]
    pub fn is_stocked(&self) -> bool {
        self.state.borrow().supply.is_stocked()
    }

    /// Whether a segment is ready beyond the current one.
    #[must_use]
    pub fn has_segment_ready(&self) -> bool {
        self.state.borrow().supply.has_ready()
    }

    /// Bytes that the current segment still takes.
    #[must_use]
    pub fn segment_left_bytes(&self) -> u64 {
        let state = self.state.borrow();
        if state.current.is_some() { state.segment_bytes.saturating_sub(state.offset) } else { 0 }
    }

    /// Whether records are taken.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state.borrow().mode == Mode::Running
    }

    /// Flushes that ended since this was last asked, the newest `FLUSHES_KEPT_MAX` of them.
    pub fn take_flushes(&self, mut each: impl FnMut(Flush)) {
        self.state.borrow_mut().flushes.drain(..).for_each(&mut each);
    }

    /// What writes it, for the log.
    #[must_use]
    pub fn backend_name(&self) -> &'static str {
        self.state.borrow().backend.name()
    }
}

impl State {
    const fn newest(&self) -> Lsn {
        Lsn(self.next_lsn.0 - 1)
    }

    fn append(&mut self, record: &Record<'_>) -> Result<Lsn, Refused> {
        if self.mode != Mode::Running {
            return Err(Refused::Failed);
        }
        let address_fits = record.address.class.len() <= usize::from(u8::MAX) && record.address.name.len() <= usize::from(u16::MAX);
        if record.body.len() > TRANSACTION_BYTES_MAX || !address_fits {
            return Err(Refused::TooLarge);
        }
        let filled = self.open.as_ref().map_or(0, Group::records_bytes);
        if self.offset + Group::padded_bytes(filled + bytes_in(&self.named, record)) > self.segment_bytes {
            self.move_to_next_segment(record_bytes(record, true))?;
        }
        let lsn = self.next_lsn;
        self.next_lsn = lsn.next();
        let Some(mut group) = self.open.take().or_else(|| self.new_group(lsn)) else { return Err(Refused::Failed) };
        let before = group.records_bytes();
        group.push(record, lsn, &mut self.named);
        self.pending_bytes += group.records_bytes() - before;
        self.open = Some(group);
        Ok(lsn)
    }

    fn append_ends(&mut self, ends: &[EpochEnd]) -> Result<Lsn, Refused> {
        let mut body = Vec::new();
        ends.iter().for_each(|end| end.encode_into(&mut body));
        let address = Address::new("", "");
        let (actor, actor_sequence, kind) = (u64::MAX, 0, RecordKind::EpochEnds);
        self.append(&Record {
            actor,
            address: &address,
            actor_sequence,
            kind,
            durable: true,
            size_pages: 0,
            page_count: 0,
            body: &body,
        })
    }

    fn new_group(&mut self, first_lsn: Lsn) -> Option<Group> {
        let current = self.current.as_ref()?;
        let buffer = self.buffers.pop().unwrap_or_default();
        Some(Group::new(buffer, Arc::clone(&current.file), current.epoch, self.offset, first_lsn))
    }

    /// Goes to the next segment, with what the current run has appended so far and room for a record of `record_bytes`.
    fn move_to_next_segment(&mut self, record_bytes: usize) -> Result<(), Refused> {
        let tail_bytes = self.open.as_ref().map_or(0, Group::tail_bytes_max);
        if GROUPS_OFFSET + Group::padded_bytes(tail_bytes + record_bytes) > self.segment_bytes {
            return Err(Refused::TooLarge);
        }
        let Some(next) = self.supply.take() else {
            self.replenish();
            self.wants_room = true;
            return Err(Refused::Full);
        };
        let mut group = self.open.take();
        let tail = group.as_mut().map_or_else(Tail::default, |group| {
            self.pending_bytes -= group.records_bytes();
            let tail = group.split_tail();
            self.pending_bytes += group.records_bytes();
            tail
        });
        match group {
            Some(group) if !group.is_empty() => self.waiting.push_back(group),
            Some(group) => self.keep_buffer(group.buffer),
            None => {}
        }
        if let Some(segment) = self.current.replace(next) {
            self.sealed.push_back(Sealed { segment, last_lsn: Lsn(self.newest().0 - tail.record_count()) });
        }
        self.offset = GROUPS_OFFSET;
        self.named.clear();
        if tail.record_count() > 0
            && let Some(mut group) = self.new_group(self.next_lsn)
        {
            group.push_tail(&tail, &mut self.named);
            self.pending_bytes += group.records_bytes();
            self.open = Some(group);
        }
        self.replenish();
        Ok(())
    }

    fn cut(&mut self) {
        if let Some(open) = &mut self.open {
            open.mark_boundary();
            if open.records_bytes() >= GROUP_BYTES_TARGET && self.in_flight.len() >= GROUPS_IN_FLIGHT_MAX {
                self.close_open();
            }
        }
        while self.mode == Mode::Running && self.in_flight.len() < GROUPS_IN_FLIGHT_MAX {
            if self.waiting.is_empty() {
                self.close_open();
            }
            match self.waiting.pop_front() {
                Some(group) => self.submit(group),
                None => break,
            }
        }
    }

    fn end_run(&mut self) {
        let Some(open) = &self.open else { return };
        if open.records_bytes() < GROUP_BYTES_WORTH_A_WRITE {
            return;
        }
        if !self.in_flight.is_empty() {
            self.reap();
        }
        self.cut();
    }

    /// Nothing is added to the open group any more.
    fn close_open(&mut self) {
        if let Some(group) = self.open.take() {
            self.offset = group.end_offset();
            self.waiting.push_back(group);
        }
    }

    fn submit(&mut self, mut group: Group) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let link = Link { journal: self.journal, sequence, durable_through: self.durable.sequence, previous_crc: self.last_crc };
        let crc = group.finish(&link);
        self.last_crc = crc;
        let reached = Durable { lsn: group.last_lsn(), epoch: group.epoch, sequence, crc };
        let since_ns = self.clock.monotonic_ns();
        let records = group.record_count();
        self.in_flight.push_back(InFlight { reached, since_ns, records, bytes: group.records_bytes(), outcome: None });
        self.backend.submit(&group.file, group.offset, group.buffer, sequence);
    }

    fn poll_progress(&mut self, cx: &mut Context<'_>) -> Poll<Progress> {
        loop {
            if let Some(progress) = self.progress.pop_front() {
                return Poll::Ready(progress);
            }
            if let Poll::Ready(prepared) = self.supply.poll(cx) {
                self.prepared(prepared);
                continue;
            }
            if self.backend.poll_ready(cx).is_pending() {
                return Poll::Pending;
            }
            self.reap();
        }
    }

    fn reap(&mut self) {
        let mut completions = std::mem::take(&mut self.completions);
        self.backend.reap(&mut completions);
        for Completion { token, result, buffer } in completions.drain(..) {
            self.keep_buffer(buffer);
            // Tokens are sequences, and those in flight are consecutive.
            let first = self.in_flight.front().map_or(token, |first| first.reached.sequence);
            let index = usize::try_from(token.wrapping_sub(first)).unwrap_or(usize::MAX);
            self.in_flight.get_mut(index).expect("a backend completes what was submitted, once").outcome = Some(result);
        }
        self.completions = completions;
        self.settle();
    }

    fn keep_buffer(&mut self, buffer: AlignedBuf) {
        if self.buffers.len() <= GROUPS_IN_FLIGHT_MAX && buffer.capacity() <= GROUP_BUFFER_KEPT_BYTES_MAX {
            self.buffers.push(buffer);
        }
    }

    /// Acknowledges in order what is durable; lets everything fail once all that is in flight has ended and one has failed.
    fn settle(&mut self) {
        let before = self.durable.lsn;
        while let Some(group) = self.in_flight.pop_front_if(|group| matches!(group.outcome, Some(Ok(())))) {
            if self.flushes.len() == FLUSHES_KEPT_MAX {
                self.flushes.pop_front();
            }
            let ns = self.clock.monotonic_ns().saturating_sub(group.since_ns);
            self.flushes.push_back(Flush { records: group.records, ns });
            self.durable = group.reached;
            self.pending_bytes -= group.bytes;
        }
        if self.durable.lsn > before {
            self.ends_unconfirmed.clear();
            if self.mode == Mode::Restarting {
                self.mode = Mode::Running;
                self.progress.push_back(Progress::Restarted);
            }
            self.progress.push_back(Progress::Durable(self.durable.lsn));
            self.recycle();
        }
        if !self.in_flight.is_empty() && self.in_flight.iter().all(|group| group.outcome.is_some()) {
            let failed = self.in_flight.front_mut().and_then(|group| group.outcome.take()).and_then(Result::err);
            self.fail(failed.unwrap_or_else(|| io::Error::other("a write failed")));
        }
    }
}
