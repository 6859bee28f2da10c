//! The contenders: each does a job on an executor of its own, on the calling thread.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use wasmkeep_storage::disk::File;
use wasmkeep_storage::disk::probe::{Io, WriteForm};

use super::work::{Job, Leg, Meter, Target};

/// Who writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Contender {
    /// Our driver in tokio's current-thread runtime.
    Ours,
    /// Our threads in the same.
    OurThreads,
    TokioUring,
    Monoio,
}

pub(crate) const CONTENDERS: [Contender; 4] = [Contender::Ours, Contender::TokioUring, Contender::Monoio, Contender::OurThreads];

impl Contender {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours (ring in tokio)",
            Self::OurThreads => "plain threads",
            Self::TokioUring => "tokio-uring 0.5",
            Self::Monoio => "monoio 0.2",
        }
    }
}

/// Lets a contender do a job for so long, on a thread of its own that stays on the first processor.
pub(crate) fn run(contender: Contender, target: &Target, job: Job, leg_ms: u64) -> Leg {
    let leg = Duration::from_millis(leg_ms);
    let body = || match contender {
        Contender::Ours => backend(Io::new(true, WriteForm::Dsync), target, job, leg),
        Contender::OurThreads => backend(Io::new(false, WriteForm::Dsync), target, job, leg),
        Contender::TokioUring => tokio_uring(target, job, leg),
        Contender::Monoio => monoio(target, job, leg),
    };
    std::thread::scope(|scope| scope.spawn(body).join().expect("measures"))
}

/// Binds the calling thread to the first processor it may use.
fn pin() {
    // SAFETY: a cpu_set_t is plain bits, for which zeros are valid.
    let (mut allowed, mut one): (libc::cpu_set_t, libc::cpu_set_t) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: the sets are ours and of the size that is given; processors are counted up to what a set holds; 0 is this thread.
    unsafe {
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut allowed);
        if let Some(cpu) = (0..libc::CPU_SETSIZE.unsigned_abs() as usize).find(|cpu| libc::CPU_ISSET(*cpu, &allowed)) {
            libc::CPU_SET(cpu, &mut one);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const one);
        }
    }
}

/// A file for our backends, which know files by their descriptor.
struct Opened(std::fs::File);

impl File for Opened {
    fn read_at(&self, _: u64, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(&self.0, bytes, offset)
    }

    fn set_len(&self, len_bytes: u64) -> std::io::Result<()> {
        self.0.set_len(len_bytes)
    }

    fn len(&self) -> std::io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn sync(&self) -> std::io::Result<()> {
        self.0.sync_data()
    }

    fn raw_fd(&self) -> Option<std::os::fd::RawFd> {
        Some(std::os::fd::AsRawFd::as_raw_fd(&self.0))
    }
}

/// Our own: one task owns the backend, as a core's pump does.
fn backend(io: Io, target: &Target, job: Job, leg: Duration) -> Leg {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("an executor");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        // As a node does it: `Io` saw the free processors, so that what works for the ring stays off this one.
        pin();
        let mut backend = io.open().expect("a way to the disk");
        let file: Arc<dyn File> = Arc::new(Opened(target.open()));
        let meter = Meter::start(job, leg);
        let busy = job.busy.then(|| tokio::task::spawn_local(be_busy(Rc::clone(&meter))));
        let mut asked = Vec::new();
        let mut free: Vec<_> = (0..job.depth).map(|_| meter.block().0).collect();
        let (mut done, mut in_flight) = (Vec::new(), 0);
        loop {
            while let Some(buffer) = free.pop() {
                let Some((offset, since_ns)) = meter.next() else { break };
                let token = asked.len() as u64;
                asked.push(since_ns);
                backend.submit(&file, offset, buffer, token);
                in_flight += 1;
            }
            if in_flight == 0 {
                break;
            }
            poll_fn(|cx| backend.poll_ready(cx)).await;
            backend.reap(&mut done);
            for completion in done.drain(..) {
                completion.result.expect("writes");
                meter.ended(asked[usize::try_from(completion.token).unwrap_or(0)]);
                in_flight -= 1;
                free.push(completion.buffer);
            }
        }
        if let Some(busy) = busy {
            busy.await.expect("ends with the leg");
        }
        meter.leg()
    })
}

/// The busy task on tokio: its `yield_now` lets the driver look before the task is polled again.
async fn be_busy(meter: Rc<Meter>) {
    while !meter.is_over() {
        meter.compute();
        tokio::task::yield_now().await;
    }
}

fn tokio_uring(target: &Target, job: Job, leg: Duration) -> Leg {
    pin();
    tokio_uring::start(async {
        let file = Rc::new(tokio_uring::fs::File::from_std(target.open()));
        let meter = Meter::start(job, leg);
        let busy = job.busy.then(|| tokio_uring::spawn(be_busy(Rc::clone(&meter))));
        let writer = |_| {
            let (file, meter) = (Rc::clone(&file), Rc::clone(&meter));
            tokio_uring::spawn(async move {
                let mut block = meter.block();
                while let Some((offset, since_ns)) = meter.next() {
                    let (written, back) = file.write_at(block, offset).submit().await;
                    assert_eq!(written.expect("writes"), back.0.len());
                    meter.ended(since_ns);
                    block = back;
                }
            })
        };
        for writer in (0..job.depth).map(writer).collect::<Vec<_>>() {
            writer.await.expect("ends with the leg");
        }
        if let Some(busy) = busy {
            busy.await.expect("ends with the leg");
        }
        meter.leg()
    })
}

fn monoio(target: &Target, job: Job, leg: Duration) -> Leg {
    pin();
    let mut runtime = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new().build().expect("an executor");
    runtime.block_on(async {
        let file = Rc::new(monoio::fs::File::from_std(target.open()).expect("a file"));
        let meter = Meter::start(job, leg);
        let of_busy = Rc::clone(&meter);
        let busy = job.busy.then(|| {
            monoio::spawn(async move {
                while !of_busy.is_over() {
                    of_busy.compute();
                    give_way().await;
                }
            })
        });
        let writer = |_| {
            let (file, meter) = (Rc::clone(&file), Rc::clone(&meter));
            monoio::spawn(async move {
                let mut block = meter.block();
                while let Some((offset, since_ns)) = meter.next() {
                    let (written, back) = file.write_at(block, offset).await;
                    assert_eq!(written.expect("writes"), back.0.len());
                    meter.ended(since_ns);
                    block = back;
                }
            })
        };
        for writer in (0..job.depth).map(writer).collect::<Vec<_>>() {
            writer.await;
        }
        if let Some(busy) = busy {
            busy.await;
        }
        meter.leg()
    })
}

/// Gives way once. monoio has nothing of its own for it, and puts a task that wakes itself before all others: so another task,
/// which stands behind them, wakes it.
async fn give_way() {
    let mut polled = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        let waker = cx.waker().clone();
        monoio::spawn(async move { waker.wake() });
        Poll::Pending
    })
    .await;
}
