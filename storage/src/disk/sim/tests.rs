//! The simulated disk's own promises.

use super::*;

const DIR: &str = "/d";

fn disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new(DIR)).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

fn content(disk: &SimDisk, path: &Path) -> Option<Vec<u8>> {
    let file = disk.open(path, Open::Read).ok()?;
    let mut bytes = vec![0; to_index(file.len().unwrap())];
    file.read_at(0, &mut bytes).unwrap();
    Some(bytes)
}

/// All that power cuts leave of a file, over many of them.
fn outcomes(disk: &SimDisk, path: &Path) -> BTreeSet<Option<Vec<u8>>> {
    (0..200).map(|seed| content(&disk.crash_image(seed), path)).collect()
}

#[test]
fn an_unsynced_name_may_be_missing_and_a_synced_one_may_not() {
    let (disk, path) = (disk(), Path::new("/d/a"));
    let file = disk.open(path, Open::Create).unwrap();
    file.write_at(0, &[1; 10]).unwrap();
    file.sync().unwrap();
    assert_eq!(outcomes(&disk, path), BTreeSet::from([None, Some(vec![1; 10])]));
    disk.sync_dir(Path::new(DIR)).unwrap();
    assert_eq!(outcomes(&disk, path), BTreeSet::from([Some(vec![1; 10])]));
    disk.rename(path, Path::new("/d/b")).unwrap();
    assert_eq!(outcomes(&disk, path).len(), 2);
    disk.sync_dir(Path::new(DIR)).unwrap();
    assert_eq!(outcomes(&disk, path), BTreeSet::from([None]));
    disk.remove(Path::new("/d/b")).unwrap();
    assert_eq!(outcomes(&disk, Path::new("/d/b")).len(), 2);
}

#[test]
fn a_directory_whose_name_is_not_synced_may_take_its_files_with_it() {
    let (disk, path) = (disk(), Path::new("/d/e/a"));
    disk.create_dir_all(Path::new("/d/e")).unwrap();
    disk.open(path, Open::Create).unwrap().sync().unwrap();
    disk.sync_dir(Path::new("/d/e")).unwrap();
    assert_eq!(outcomes(&disk, path), BTreeSet::from([None, Some(vec![])]));
    disk.sync_dir(Path::new(DIR)).unwrap();
    assert_eq!(outcomes(&disk, path), BTreeSet::from([Some(vec![])]));
    disk.rename(Path::new("/d/e"), Path::new("/d/f")).unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    assert_eq!(outcomes(&disk, Path::new("/d/f/a")), BTreeSet::from([Some(vec![])]));
}

#[test]
fn unsynced_sectors_are_each_old_or_new() {
    let (disk, path) = (disk(), Path::new("/d/a"));
    let file = disk.open(path, Open::Create).unwrap();
    file.write_at(0, &[1; 1024]).unwrap();
    disk.sync_all(Path::new(DIR)).unwrap();
    file.write_at(0, &[2; 1024]).unwrap();
    let sectors = |a, b| Some([[a; 512], [b; 512]].concat());
    assert_eq!(outcomes(&disk, path), BTreeSet::from([sectors(1, 1), sectors(1, 2), sectors(2, 1), sectors(2, 2)]));
    file.sync().unwrap();
    assert_eq!(outcomes(&disk, path), BTreeSet::from([sectors(2, 2)]));
}

#[test]
fn a_journal_write_in_flight_may_leave_garbage_and_a_completed_one_is_durable() {
    let (disk, path) = (disk(), Path::new("/d/a"));
    let file = disk.open(path, Open::Create).unwrap();
    file.write_at(0, &[1; 4096]).unwrap();
    disk.sync_all(Path::new(DIR)).unwrap();
    disk.pause();
    let mut backend = disk.backend();
    let mut buffer = AlignedBuf::new();
    buffer.extend(&[2; 4096]);
    backend.submit(&file, 0, buffer, 9);
    let sector_kinds: BTreeSet<u8> = (0..100)
        .flat_map(|seed| content(&disk.crash_image(seed), path).unwrap().chunks(512).map(kind).collect::<Vec<_>>())
        .collect();
    assert_eq!(sector_kinds, BTreeSet::from([0, 1, 2]));
    disk.resume();
    let mut done = Vec::new();
    backend.reap(&mut done);
    assert!(done.len() == 1 && done[0].token == 9 && done[0].result.is_ok());
    assert_eq!(outcomes(&disk, path), BTreeSet::from([Some(vec![2; 4096])]));
}

/// 1 and 2 for a sector full of that, 0 for garbage.
fn kind(sector: &[u8]) -> u8 {
    if sector.iter().all(|byte| *byte == sector[0]) { sector[0] } else { 0 }
}

#[test]
fn a_disk_without_power_does_nothing_and_a_full_one_says_so() {
    let (disk, path) = (disk(), Path::new("/d/a"));
    let file = disk.open(path, Open::Create).unwrap();
    disk.set_capacity(Some(100));
    file.write_at(0, &[1; 100]).unwrap();
    assert_eq!(file.write_at(100, &[1]).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    file.write_at(0, &[2; 100]).unwrap();
    disk.sync_all(Path::new(DIR)).unwrap();
    disk.cut_power_after(1);
    file.write_at(0, &[3; 100]).unwrap();
    assert!(disk.is_dead());
    assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(outcomes(&disk, path), BTreeSet::from([Some(vec![2; 100]), Some(vec![3; 100])]));
}
