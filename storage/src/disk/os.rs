//! The operating system's disk: `Files` over ordinary system calls.
//!
//! What it is not: the journal's hot path, which is `uring` or `threads` on the descriptors opened here.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{File, Files, Open};

/// The machine's file systems.
#[derive(Clone, Copy, Default, Debug)]
pub struct OsFiles;

impl OsFiles {
    /// Ready to be shared.
    #[must_use]
    pub fn shared() -> Arc<dyn Files> {
        Arc::new(Self)
    }
}

struct OsFile(fs::File);

impl File for OsFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.0.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.0.set_len(len_bytes)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn sync(&self) -> io::Result<()> {
        // fdatasync: the content, and the metadata needed to read it back (the length among them).
        self.0.sync_data()
    }

    fn will_read(&self) {
        // SAFETY: the descriptor is open; the call touches no memory of ours. Its failure costs nothing but time.
        unsafe { libc::posix_fadvise(self.0.as_raw_fd(), 0, 0, libc::POSIX_FADV_WILLNEED) };
    }

    fn raw_fd(&self) -> Option<RawFd> {
        Some(self.0.as_raw_fd())
    }
}

impl Files for OsFiles {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(how != Open::Read).create(how == Open::Create).truncate(false);
        if how == Open::Journal {
            options.custom_flags(libc::O_DIRECT);
            match options.open(path) {
                Ok(file) => return Ok(Arc::new(OsFile(file))),
                // A file system without O_DIRECT says EINVAL: the page cache serves too, only slower.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    options.custom_flags(0);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Arc::new(OsFile(options.open(path)?)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        match fs::read_dir(dir) {
            Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        absent_is_fine(fs::remove_file(path))
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        absent_is_fine(fs::remove_dir(dir))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        let dir = fs::File::open(dir)?;
        // SAFETY: the descriptor is open for the whole call; syncfs touches no memory of ours.
        if unsafe { libc::syncfs(dir.as_raw_fd()) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::AlignedBuf;

    #[test]
    fn a_journal_file_takes_aligned_writes_and_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        OsFiles.open(&path, Open::Create).unwrap().set_len(8192).unwrap();
        let file = OsFiles.open(&path, Open::Journal).unwrap();
        let mut buffer = AlignedBuf::new();
        buffer.extend(&[7; 100]);
        buffer.pad();
        file.write_at(4096, buffer.as_slice()).unwrap();
        file.sync().unwrap();
        let mut back = vec![1; 9000];
        let n = OsFiles.open(&path, Open::Read).unwrap().read_at(0, &mut back).unwrap();
        assert_eq!((n, back[4095], back[4096], back[4195], back[4196]), (8192, 0, 7, 7, 0));
    }

    #[test]
    fn an_absent_directory_has_no_names_and_an_absent_file_can_be_removed() {
        let dir = tempfile::tempdir().unwrap();
        assert!(OsFiles.list(&dir.path().join("no")).unwrap().is_empty());
        OsFiles.remove(&dir.path().join("no")).unwrap();
        OsFiles.remove_dir(&dir.path().join("no")).unwrap();
        assert!(OsFiles.open(&dir.path().join("no"), Open::Read).is_err());
    }
}
