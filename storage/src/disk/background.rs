//! Work that may block, done beside the core: preparing journal segments, writing base files.
//!
//! Jobs of one `Background` run one after the other in the order they were given; their results are picked up on the core.
//! What it is not: a general thread pool. A core has one for its journal's segments and another for its checkpoints, so that a
//! long checkpoint never delays the next segment.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::{Files, cpus};
use crate::limits::BACKGROUND_JOBS_MAX;

type Work = Box<dyn FnOnce(&dyn Files) + Send>;

/// Where blocking work goes. Dropping it lets the given jobs end, then the thread.
pub struct Background {
    files: Arc<dyn Files>,
    // None: the caller's own thread does the work at once, which makes a simulation deterministic.
    queue: Option<SyncSender<Work>>,
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.queue.is_some() { "Background(thread)" } else { "Background(inline)" })
    }
}

/// `BACKGROUND_JOBS_MAX` jobs wait already; nothing was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy;

/// A job's result to come.
#[derive(Debug)]
pub struct Job<T>(oneshot::Receiver<T>);

/// The job panicked, or its thread is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobLost;

impl Background {
    /// A thread of its own.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn thread(name: &str, files: Arc<dyn Files>) -> std::io::Result<Self> {
        let (queue, jobs) = sync_channel::<Work>(BACKGROUND_JOBS_MAX);
        let thread_files = Arc::clone(&files);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            cpus::unbind_thread();
            while let Ok(work) = jobs.recv() {
                // A panicking job drops its result's sender, which its owner sees as `JobLost`; the thread goes on.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&*thread_files)));
            }
        })?;
        Ok(Self { files, queue: Some(queue) })
    }

    /// No thread: every job is done before `spawn` returns.
    #[must_use]
    pub fn inline(files: Arc<dyn Files>) -> Self {
        Self { files, queue: None }
    }

    /// The files that jobs work on.
    #[must_use]
    pub fn files(&self) -> &Arc<dyn Files> {
        &self.files
    }

    /// Gives a job away.
    ///
    /// # Errors
    /// `Busy` when too many wait; the job was not taken.
    pub fn spawn<T: Send + 'static>(&self, job: impl FnOnce(&dyn Files) -> T + Send + 'static) -> Result<Job<T>, Busy> {
        let (sender, receiver) = oneshot::channel();
        let work: Work = Box::new(move |files| {
            // The owner may have lost interest; the work was worth doing all the same.
            let _ = sender.send(job(files));
        });
        match &self.queue {
            None => work(&*self.files),
            Some(queue) => queue.try_send(work).map_err(|_| Busy)?,
        }
        Ok(Job(receiver))
    }
}

impl<T> Job<T> {
    /// The result if it is there; registers no waker.
    pub fn try_take(&mut self) -> Option<Result<T, JobLost>> {
        match self.0.try_recv() {
            Ok(result) => Some(Ok(result)),
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => Some(Err(JobLost)),
        }
    }
}

impl<T> Future for Job<T> {
    type Output = Result<T, JobLost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|result| result.map_err(|_| JobLost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::os::OsFiles;

    #[tokio::test]
    async fn jobs_run_in_order_and_their_results_come_back() {
        for background in [Background::thread("t", OsFiles::shared()).unwrap(), Background::inline(OsFiles::shared())] {
            let order = Arc::new(std::sync::Mutex::new(Vec::new()));
            let mut jobs = Vec::new();
            for n in 0..4 {
                let order = Arc::clone(&order);
                jobs.push(
                    background
                        .spawn(move |_| {
                            order.lock().unwrap().push(n);
                            n * 10
                        })
                        .unwrap(),
                );
            }
            let mut results = Vec::new();
            for job in jobs {
                results.push(job.await.unwrap());
            }
            assert_eq!((results, &*order.lock().unwrap()), (vec![0, 10, 20, 30], &vec![0, 1, 2, 3]));
        }
    }

    #[tokio::test]
    async fn a_panicking_job_is_lost_and_the_next_one_runs() {
        let background = Background::thread("t", OsFiles::shared()).unwrap();
        let lost = background.spawn(|_| -> u8 { panic!("a job's own panic, expected by this test") }).unwrap();
        let next = background.spawn(|_| 7).unwrap();
        assert_eq!((lost.await, next.await), (Err(JobLost), Ok(7)));
    }

    #[test]
    fn a_full_queue_refuses() {
        let background = Background::thread("t", OsFiles::shared()).unwrap();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let mut jobs = vec![background.spawn(move |_| held.recv().is_ok()).unwrap()];
        let refused = loop {
            match background.spawn(|_| true) {
                Ok(job) => jobs.push(job),
                Err(busy) => break busy,
            }
        };
        assert_eq!(refused, Busy);
        assert!(jobs.len() >= BACKGROUND_JOBS_MAX);
        release.send(()).unwrap();
    }
}
