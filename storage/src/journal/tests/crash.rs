//! Failed writes and full disks, one story each, on the simulated disk.

use super::*;
use crate::disk::sim::{Fate, Fault};

/// Lets the next group of one record fail, after `good` groups of one record each.
fn fail_after(bed: &Bed, journal: &Journal, good: u64, fate: Fate) {
    for sequence in 1..=good {
        put(journal, 1, sequence, 500).unwrap();
        journal.cut();
        assert!(matches!(next_progress(journal), Some(Progress::Durable(_))));
    }
    bed.sim.fail_next(Fault::Eio, fate);
    put(journal, 1, good + 1, 500).unwrap();
    journal.cut();
    assert!(matches!(next_progress(journal), Some(Progress::Failed { durable, .. }) if durable == Lsn(good)));
}

#[test]
fn a_failed_group_whose_bytes_are_on_disk_after_all_stays_lost_after_a_restart() {
    on_sim(async |bed| {
        let journal = bed.journal(1, 0);
        fail_after(&bed, &journal, 3, Fate::Kept);
        assert_eq!(put(&journal, 1, 4, 500), Err(Refused::Failed));
        assert_eq!((journal.durable(), journal.newest(), journal.pending_bytes()), (Lsn(3), Lsn(4), 0));
        journal.restart();
        assert!(matches!(next_progress(&journal), Some(Progress::Restarted)));
        // The same sequence again, another record.
        let lsn = put(&journal, 1, 4, 700).unwrap();
        assert_eq!(lsn, Lsn(6), "neither the lost record's LSN nor the restart's is used again");
        until_durable(&journal, lsn).await;
        let restarted = crate::journal::inspect(&*bed.files, &bed.segments(1, 0)[1]).unwrap();
        assert_eq!((restarted.groups[0].sequence, restarted.groups[0].durable_through), (5, 3), "nor is a group's sequence");
        assert_eq!(restarted.groups[0].records[0].ends.len(), 1);
        for seed in 0..20 {
            let recovery = Bed::over(bed.sim.crash_image(seed)).recover();
            assert_eq!(contents(&recovery)["thing/actor 1"], [(1, 500), (2, 500), (3, 500), (4, 700)]);
        }
    });
}

#[test]
fn a_failed_group_may_be_found_if_the_power_goes_before_the_restart_and_then_stays_found() {
    on_sim(async |bed| {
        let journal = bed.journal(1, 0);
        fail_after(&bed, &journal, 3, Fate::Kept);
        let bed = Bed::over(bed.sim.crash_image(1));
        let recovery = bed.recover();
        assert_eq!(sequences(&recovery, 1), [1, 2, 3, 4]);
        let next = bed.journal(2, 0);
        let lsn = next.append_epoch_ends(&recovery.ends).unwrap();
        until_durable(&next, lsn).await;
        let lsn = put(&next, 1, 5, 500).unwrap();
        until_durable(&next, lsn).await;
        assert_eq!(sequences(&Bed::over(bed.sim.crash_image(1)).recover(), 1), [1, 2, 3, 4, 5]);
    });
}

#[test]
fn a_group_that_succeeded_behind_a_failed_one_is_lost_with_it() {
    on_sim(async |bed| {
        let journal = bed.journal(1, 0);
        bed.sim.pause();
        for sequence in 1..=3 {
            put(&journal, 1, sequence, 500).unwrap();
            journal.cut();
        }
        bed.sim.complete(1);
        assert!(next_progress(&journal).is_none());
        bed.sim.fail_next(Fault::Short, Fate::Undecided);
        bed.sim.complete(0);
        assert!(matches!(next_progress(&journal), Some(Progress::Failed { durable: Lsn::ZERO, .. })));
        assert_eq!(bed.sim.in_flight(), 0, "the third was never written");
        bed.sim.resume();
        journal.restart();
        assert!(matches!(next_progress(&journal), Some(Progress::Restarted)));
        until_durable(&journal, put(&journal, 2, 1, 500).unwrap()).await;
        for seed in 0..50 {
            let recovery = Bed::over(bed.sim.crash_image(seed)).recover();
            assert_eq!((sequences(&recovery, 1), sequences(&recovery, 2)), (vec![], vec![1]));
        }
    });
}

#[test]
fn a_group_without_the_one_before_it_does_not_count_even_when_all_before_that_is_in_base_files() {
    on_sim(async |bed| {
        let bed = Bed { segments_max: 3, ..bed };
        let journal = bed.journal(1, 0);
        until_durable(&journal, put(&journal, 1, 1, 55_000).unwrap()).await;
        bed.sim.pause();
        // One group in the second segment, one in the third; the first segment's records are in base files.
        put(&journal, 1, 2, 40_000).unwrap();
        journal.cut();
        put(&journal, 1, 3, 30_000).unwrap();
        journal.cut();
        assert_eq!(bed.sim.in_flight(), 2);
        journal.recycle_through(journal.durable());
        bed.sim.complete(1);
        assert_eq!(bed.segments(1, 0).first(), Some(&bed.dir.join("00000001-0000/00000002.seg")));
        let mut found = std::collections::BTreeSet::new();
        for seed in 0..200 {
            found.insert(sequences(&Bed::over(bed.sim.crash_image(seed)).recover(), 1));
        }
        assert_eq!(found, [vec![]].into(), "the second was torn each time, and the third is nothing without it");
        bed.sim.resume();
        assert_eq!(sequences(&Bed::over(bed.sim.crash_image(1)).recover(), 1), [2, 3]);
    });
}

#[test]
fn void_segments_are_used_again_newest_first_so_that_none_is_found_without_the_one_before_it() {
    on_sim(async |bed| {
        let bed = Bed { segments_max: 3, ..bed };
        let journal = bed.journal(1, 0);
        until_durable(&journal, put(&journal, 1, 1, 55_000).unwrap()).await;
        bed.sim.pause();
        put(&journal, 1, 2, 40_000).unwrap();
        journal.cut();
        put(&journal, 1, 3, 30_000).unwrap();
        journal.cut();
        journal.recycle_through(journal.durable());
        // Both fail and both are on disk after all.
        bed.sim.fail_next(Fault::Eio, Fate::Kept);
        bed.sim.fail_next(Fault::Eio, Fate::Kept);
        bed.sim.complete(0);
        bed.sim.complete(0);
        while !matches!(next_progress(&journal).expect("a failure"), Progress::Failed { .. }) {}
        let mut found = std::collections::BTreeSet::new();
        for operations in 0..40 {
            // The restart, and preparing what comes after it, stop at any step.
            let image = bed.sim.crash_image(operations);
            found.insert(sequences(&Bed::over(image).recover(), 1));
            bed.sim.cut_power_after(1);
            journal.restart();
            while next_progress(&journal).is_some() {}
        }
        assert!(found.iter().all(|found| found.is_empty() || found[0] == 2), "{found:?}");
    });
}

#[test]
fn a_failure_is_told_only_when_nothing_is_in_flight_any_more() {
    on_sim(async |bed| {
        let journal = bed.journal(1, 0);
        bed.sim.pause();
        for sequence in 1..=2 {
            put(&journal, 1, sequence, 500).unwrap();
            journal.cut();
        }
        bed.sim.fail_next(Fault::Eio, Fate::Lost);
        bed.sim.complete(0);
        assert!(next_progress(&journal).is_none());
        bed.sim.complete(0);
        assert!(matches!(next_progress(&journal), Some(Progress::Failed { durable: Lsn::ZERO, .. })));
    });
}

#[test]
fn a_restart_that_fails_is_tried_again_without_taking_more_of_the_disk() {
    on_sim(async |bed| {
        let journal = bed.journal(1, 0);
        fail_after(&bed, &journal, 3, Fate::Kept);
        for fate in [Fate::Kept, Fate::Lost, Fate::Undecided].into_iter().cycle().take(12) {
            bed.sim.fail_next(Fault::Enospc, fate);
            journal.restart();
            assert!(matches!(next_progress(&journal), Some(Progress::RestartFailed(_))));
            assert!(next_progress(&journal).is_none());
            assert_eq!(put(&journal, 1, 4, 500), Err(Refused::Failed));
            let found = sequences(&Bed::over(bed.sim.crash_image(7)).recover(), 1);
            assert!(found == [1, 2, 3] || found == [1, 2, 3, 4], "{found:?}");
        }
        assert!(bed.segments(1, 0).len() <= 6);
        journal.restart();
        assert!(matches!(next_progress(&journal), Some(Progress::Restarted)));
        until_durable(&journal, put(&journal, 1, 4, 700).unwrap()).await;
        assert_eq!(contents(&Bed::over(bed.sim.crash_image(7)).recover())["thing/actor 1"][3..], [(4, 700)]);
    });
}

#[test]
fn a_journal_that_is_full_when_a_group_fails_restarts_once_segments_can_be_used_again() {
    on_sim(async |bed| {
        let journal = bed.journal(1, 0);
        let mut sequence = 1;
        // Two blocks each, of fifteen: one stays free for the group that fails.
        while let Ok(lsn) = put(&journal, 1, sequence, 5000) {
            until_durable(&journal, lsn).await;
            sequence += 1;
        }
        bed.sim.fail_next(Fault::Eio, Fate::Kept);
        put(&journal, 1, sequence, 10).unwrap();
        journal.cut();
        let durable = journal.durable();
        assert!(matches!(next_progress(&journal), Some(Progress::Failed { .. })));
        journal.restart();
        assert!(matches!(next_progress(&journal), Some(Progress::RestartFailed(_))), "there is no segment to write to");
        journal.recycle_through(durable);
        journal.restart();
        while !matches!(next_progress(&journal).expect("a restart"), Progress::Restarted) {}
        until_durable(&journal, put(&journal, 1, sequence, 3000).unwrap()).await;
        assert!(bed.segments(1, 0).len() <= 6);
        let found = contents(&Bed::over(bed.sim.crash_image(3)).recover());
        assert_eq!(found["thing/actor 1"].last(), Some(&(sequence, 3000)));
    });
}

#[test]
fn a_failed_start_states_the_older_ends_again_when_it_restarts() {
    on_sim(async |bed| {
        let old = bed.journal(1, 0);
        fail_after(&bed, &old, 2, Fate::Lost);
        let ends = bed.recover().ends;
        // The lost group turns up later: only the statement keeps it away.
        let again = put_lost_group_back(&bed);
        let journal = bed.journal(2, 0);
        bed.sim.fail_next(Fault::Eio, Fate::Lost);
        journal.append_epoch_ends(&ends).unwrap();
        journal.cut();
        assert!(matches!(next_progress(&journal), Some(Progress::Failed { durable: Lsn::ZERO, .. })));
        journal.restart();
        assert!(matches!(next_progress(&journal), Some(Progress::Restarted)));
        let recovery = Bed::over(bed.sim.crash_image(1)).recover();
        assert_eq!((again, sequences(&recovery, 1)), (3, vec![1, 2]));
    });
}

/// Writes what the failed group of `fail_after(.., 2, ..)` would have left; returns how many records are found then.
fn put_lost_group_back(bed: &Bed) -> usize {
    let twin = Bed::new(Disk::Sim);
    let journal = twin.journal(1, 0);
    fail_after(&twin, &journal, 2, Fate::Kept);
    let read = twin.files.open(&twin.segments(1, 0)[0], crate::disk::Open::Read).unwrap();
    let mut group = vec![0; 4096];
    read.read_at(3 * 4096, &mut group).unwrap();
    let file = bed.files.open(&bed.segments(1, 0)[0], crate::disk::Open::Write).unwrap();
    file.write_at(3 * 4096, &group).unwrap();
    file.sync().unwrap();
    sequences(&bed.recover(), 1).len()
}

#[test]
fn a_disk_that_fills_up_refuses_writes_and_goes_on_when_space_returns() {
    on_sim(async |bed| {
        let journal = bed.journal(1, 0);
        bed.sim.set_capacity(Some(bed.sim.used_bytes() + 1000));
        let (mut sequence, mut told) = (1, false);
        let refused = loop {
            match put(&journal, 1, sequence, 3000) {
                Ok(_) => sequence += 1,
                Err(refused) => break refused,
            }
            journal.cut();
            while let Some(progress) = next_progress(&journal) {
                told |= matches!(progress, Progress::PrepareFailed(ref error) if error.raw_os_error() == Some(libc::ENOSPC));
            }
        };
        assert!(told);
        assert_eq!((refused, journal.durable()), (Refused::Full, Lsn(sequence - 1)), "what was taken is durable");
        assert_eq!(bed.segments(1, 0).len(), 3, "no part of a segment is left to take space");
        journal.retry_prepare();
        assert!(matches!(next_progress(&journal), Some(Progress::PrepareFailed(_))));
        bed.sim.set_capacity(None);
        journal.retry_prepare();
        assert!(matches!(next_progress(&journal), Some(Progress::Room)));
        until_durable(&journal, put(&journal, 1, sequence, 3000).unwrap()).await;
        assert_eq!(sequences(&bed.recover(), 1), (1..=sequence).collect::<Vec<_>>());
    });
}

#[test]
fn a_segment_whose_preparation_failed_half_way_is_prepared_again() {
    on_sim(async |bed| {
        let journal = bed.journal(1, 0);
        for sequence in 1..=60 {
            // Every fifth time nothing can be changed on disk, so that renaming or writing a recycled segment fails.
            bed.sim.fail_files((sequence % 5 == 0).then_some(libc::EIO));
            let lsn = loop {
                match put(&journal, 1, sequence, 9000) {
                    Ok(lsn) => break lsn,
                    Err(_) => bed.sim.fail_files(None),
                }
                journal.retry_prepare();
            };
            until_durable(&journal, lsn).await;
            if let Some(through) = journal.oldest_segment_last_lsn() {
                journal.recycle_through(through);
            }
        }
        bed.sim.fail_files(None);
        assert!(bed.segments(1, 0).len() <= 6);
        assert_eq!(sequences(&bed.recover(), 1).last(), Some(&60));
    });
}
