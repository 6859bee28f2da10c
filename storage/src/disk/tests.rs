//! The real backends, beside what the journal's own tests ask of them.

use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;

use super::os::OsFiles;
use super::probe::{Io, IoMode, WriteForm};
use super::{AlignedBuf, Backend, Completion, File, Files, Open};
use crate::clock::Clock;

const KINDS: [(bool, WriteForm); 4] =
    [(true, WriteForm::Dsync), (true, WriteForm::WriteSync), (false, WriteForm::Dsync), (false, WriteForm::WriteSync)];

fn on_every_backend(test: impl AsyncFn(Box<dyn Backend>)) {
    for (uring, form) in KINDS {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { test(Io::new(uring, form).open().unwrap()).await });
    }
}

async fn finished(backend: &mut Box<dyn Backend>, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    while done.len() < count {
        poll_fn(|cx| backend.poll_ready(cx)).await;
        backend.reap(&mut done);
    }
    done.sort_by_key(|completion| completion.token);
    done
}

fn block(byte: u8, blocks: usize) -> AlignedBuf {
    let mut buffer = AlignedBuf::new();
    buffer.extend(&vec![byte; blocks * 4096]);
    buffer
}

fn journal_file(dir: &Path) -> Arc<dyn File> {
    let path = dir.join("x");
    OsFiles.open(&path, Open::Create).unwrap().set_len(64 * 4096).unwrap();
    OsFiles.open(&path, Open::Journal).unwrap()
}

#[test]
fn writes_complete_with_their_tokens_and_buffers_and_are_on_disk() {
    on_every_backend(async |mut backend| {
        let dir = tempfile::tempdir().unwrap();
        let file = journal_file(dir.path());
        for round in 0..20_u8 {
            backend.submit(&file, 0, block(round, 1), 100);
            backend.submit(&file, 8192, block(round + 100, 9), 101);
            let done = finished(&mut backend, 2).await;
            assert!(done.iter().all(|completion| completion.result.is_ok()), "{done:?}");
            assert_eq!((done[0].token, done[0].buffer.len(), done[1].buffer.len()), (100, 4096, 9 * 4096));
            let mut back = vec![0; 12 * 4096];
            file_for_reading(dir.path()).read_at(0, &mut back).unwrap();
            assert_eq!((back[0], back[4096], back[8192], back[8192 + 9 * 4096 - 1]), (round, 0, round + 100, round + 100));
        }
    });
}

fn file_for_reading(dir: &Path) -> Arc<dyn File> {
    OsFiles.open(&dir.join("x"), Open::Read).unwrap()
}

#[test]
fn a_write_that_the_system_refuses_comes_back_as_its_error_with_the_buffer() {
    on_every_backend(async |mut backend| {
        let dir = tempfile::tempdir().unwrap();
        let good = journal_file(dir.path());
        let full = OsFiles.open(Path::new("/dev/full"), Open::Write).unwrap();
        backend.submit(&full, 0, block(1, 2), 7);
        backend.submit(&file_for_reading(dir.path()), 0, block(1, 1), 8);
        let done = finished(&mut backend, 2).await;
        let errno = |n: usize| done[n].result.as_ref().unwrap_err().raw_os_error();
        // A device driver may not know RWF_DSYNC at all; ENOSPC from one that does is passed on as it is.
        assert!([Some(libc::ENOSPC), Some(libc::EOPNOTSUPP)].contains(&errno(0)), "{}: {:?}", backend.name(), done[0]);
        assert_eq!(errno(1), Some(libc::EBADF), "{}", backend.name());
        assert_eq!((done[0].buffer.len(), done[1].buffer.len()), (8192, 4096));
        backend.submit(&good, 0, block(1, 1), 9);
        assert!(finished(&mut backend, 1).await[0].result.is_ok(), "an error is its own write's only");
    });
}

#[test]
fn a_backend_dropped_with_writes_in_flight_lets_them_end() {
    on_every_backend(async |mut backend| {
        let dir = tempfile::tempdir().unwrap();
        let file = journal_file(dir.path());
        for n in 0..2 {
            backend.submit(&file, n * 4096, block(9, 1), n);
        }
        drop(backend);
        let mut back = vec![0; 8192];
        file_for_reading(dir.path()).read_at(0, &mut back).unwrap();
        assert!(back.iter().all(|byte| *byte == 9));
    });
}

#[test]
fn where_io_uring_is_forbidden_threads_take_over_and_demanding_it_is_an_error() {
    // A filter cannot be taken off again, but it holds for one thread only.
    let forbidden = std::thread::spawn(|| {
        forbid_io_uring();
        let dir = tempfile::tempdir().unwrap();
        let io = Io::choose(dir.path(), IoMode::Auto, &Clock::System).unwrap();
        assert!(!io.uring);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut backend = io.open().unwrap();
            backend.submit(&journal_file(dir.path()), 0, block(1, 1), 1);
            assert!(finished(&mut backend, 1).await[0].result.is_ok());
            assert!(backend.name().starts_with("threads"));
        });
        let error = Io::choose(dir.path(), IoMode::Uring, &Clock::System).unwrap_err().to_string();
        assert!(error.starts_with("setting up io_uring for"), "{error}");
    });
    forbidden.join().unwrap();
}

/// Makes io_uring_setup fail with EPERM on this thread, as containers do.
fn forbid_io_uring() {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: u16::try_from(code).unwrap(), jt, jf, k };
    let number = u32::try_from(libc::SYS_io_uring_setup).unwrap();
    let errno = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
    let mut filter = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, errno),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: no pointers; it lets an unprivileged thread install a filter.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: `program` and the filter it points to live through the call, which copies them.
    let installed = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(installed, 0);
}
