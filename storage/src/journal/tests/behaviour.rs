//! What the journal promises, one sentence each.

use super::super::format::EpochEnd;
use super::super::{JournalId, retire};
use super::*;
use crate::disk::Open;

#[test]
fn what_was_durable_is_found_again_in_order() {
    on_every_disk(async |bed| {
        let journal = bed.journal(1, 0);
        for sequence in 1..=50 {
            for actor in 0..3 {
                put_soon(&journal, actor, sequence, 100 + usize::try_from(actor * 700).unwrap()).await;
            }
            journal.cut();
        }
        until_durable(&journal, journal.newest()).await;
        assert_eq!((journal.durable(), journal.pending_bytes()), (Lsn(150), 0));
        drop(journal);
        let recovery = bed.recover();
        assert_eq!((recovery.highest_incarnation, recovery.index.record_count(), recovery.index.actor_count()), (1, 150, 3));
        contents(&recovery);
        for actor in 0..3 {
            assert_eq!(sequences(&recovery, actor), (1..=50).collect::<Vec<_>>());
        }
        assert_eq!((recovery.ends.len(), recovery.journals[0].newest_lsn), (1, Lsn(150)));
    });
}

#[test]
fn an_empty_directory_holds_nothing_and_so_does_an_unused_journal() {
    on_every_disk(async |bed| {
        let recovery = bed.recover();
        assert_eq!((recovery.highest_incarnation, recovery.ends.len(), recovery.index.record_count()), (0, 0, 0));
        drop(bed.journal(1, 0));
        let recovery = bed.recover();
        assert_eq!((recovery.highest_incarnation, recovery.ends.len(), recovery.index.record_count()), (1, 1, 0));
    });
}

#[test]
fn a_journal_dropped_with_groups_in_flight_leaves_a_prefix() {
    on_every_disk(async |bed| {
        let journal = bed.journal(1, 0);
        for sequence in 1..=8 {
            put(&journal, 1, sequence, 3000).unwrap();
            journal.cut();
        }
        drop(journal);
        let found = sequences(&bed.recover(), 1);
        assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>());
    });
}

#[test]
fn groups_are_acknowledged_in_order_whatever_order_the_disk_ends_them_in() {
    on_sim(async |bed| {
        let journal = bed.journal(1, 0);
        bed.sim.pause();
        for sequence in 1..=4 {
            put(&journal, 1, sequence, 100).unwrap();
            journal.cut();
        }
        assert_eq!(bed.sim.in_flight(), 2, "two groups are on their way, the rest waits");
        bed.sim.complete(1);
        assert!(next_progress(&journal).is_none());
        assert_eq!(journal.durable(), Lsn::ZERO);
        bed.sim.complete(0);
        assert!(matches!(next_progress(&journal), Some(Progress::Durable(Lsn(2)))));
        journal.cut();
        assert_eq!(bed.sim.in_flight(), 1, "what arrived meanwhile is one group");
        bed.sim.complete(0);
        assert!(matches!(next_progress(&journal), Some(Progress::Durable(Lsn(4)))));
        assert!(next_progress(&journal).is_none());
    });
}

#[test]
fn between_runs_what_fills_a_block_is_written_while_the_disk_has_time() {
    on_sim(async |bed| {
        let journal = bed.journal(1, 0);
        bed.sim.pause();
        put(&journal, 1, 1, 2000).unwrap();
        journal.end_run();
        assert_eq!(bed.sim.in_flight(), 0, "less than a block waits for the turn's end");
        put(&journal, 1, 2, 2500).unwrap();
        journal.end_run();
        assert_eq!(bed.sim.in_flight(), 1);
        for sequence in 3..=6 {
            put(&journal, 1, sequence, 5000).unwrap();
            journal.end_run();
        }
        assert_eq!(bed.sim.in_flight(), 2, "the disk is busy enough");
        bed.sim.complete(0);
        put(&journal, 1, 7, 10).unwrap();
        journal.end_run();
        assert_eq!((journal.durable(), bed.sim.in_flight()), (Lsn(2), 2), "what has ended makes room");
        assert!(matches!(next_progress(&journal), Some(Progress::Durable(Lsn(2)))), "and is told all the same");
    });
}

#[test]
fn a_flush_is_told_with_its_time_and_records() {
    on_sim(async |mut bed| {
        let (clock, hand) = Clock::manual();
        bed.clock = clock;
        let journal = bed.journal(1, 0);
        bed.sim.pause();
        for sequence in 1..=3 {
            put(&journal, 1, sequence, 100).unwrap();
        }
        journal.cut();
        put(&journal, 1, 4, 100).unwrap();
        hand.advance_ms(2);
        journal.cut();
        hand.advance_ms(3);
        bed.sim.complete(1);
        bed.sim.complete(0);
        assert!(matches!(next_progress(&journal), Some(Progress::Durable(Lsn(4)))));
        let mut told = Vec::new();
        journal.take_flushes(|flush| told.push((flush.records, flush.ns)));
        assert_eq!(told, [(3, 5_000_000), (1, 3_000_000)]);
        journal.take_flushes(|flush| panic!("{flush:?} was told already"));
    });
}

#[test]
fn a_large_backlog_is_written_in_groups_of_bounded_size() {
    on_sim(async |bed| {
        let bed = Bed { segment_bytes: 16 * 1024 * 1024, ..bed };
        let journal = bed.journal(1, 0);
        bed.sim.pause();
        for sequence in 1..=80 {
            put(&journal, 1, sequence, 100_000).unwrap();
            journal.cut();
        }
        bed.sim.complete(0);
        bed.sim.complete(0);
        let mut groups = 2;
        while journal.durable() < Lsn(80) {
            while next_progress(&journal).is_some() {}
            journal.cut();
            if bed.sim.in_flight() > 0 {
                bed.sim.complete(0);
                groups += 1;
            }
        }
        assert!((2 + 7..=2 + 9).contains(&groups), "8 MB in groups of about one: {groups}");
    });
}

#[test]
fn segments_are_used_again_once_their_records_are_in_base_files() {
    on_every_disk(async |bed| {
        let journal = bed.journal(1, 0);
        for sequence in 1..=400 {
            let lsn = put_soon(&journal, 1, sequence, 3000).await;
            until_durable(&journal, lsn).await;
            if let Some(through) = journal.oldest_segment_last_lsn() {
                journal.recycle_through(through);
            }
        }
        drop(journal);
        let segments = bed.segments(1, 0);
        assert!(segments.len() <= 6, "{segments:?}");
        let found = sequences(&bed.recover(), 1);
        assert!(!found.is_empty() && found.len() < 50, "{}", found.len());
        assert_eq!(found, (401 - found.len() as u64..=400).collect::<Vec<_>>(), "what is left is a suffix");
    });
}

#[test]
fn a_full_journal_refuses_and_takes_records_again_when_there_is_room() {
    on_every_disk(async |bed| {
        let journal = bed.journal(1, 0);
        let mut sequence = 1;
        loop {
            match put(&journal, 1, sequence, 3000) {
                Ok(_) => sequence += 1,
                Err(Refused::Full) if journal.awaits_segment() => drop(progress(&journal).await),
                Err(refused) => {
                    assert_eq!(refused, Refused::Full);
                    break;
                }
            }
            until_durable(&journal, journal.newest()).await;
        }
        assert_eq!(bed.segments(1, 0).len(), 6);
        assert!(journal.used_bytes() > 5 * bed.segment_bytes && journal.used_bytes() <= 6 * bed.segment_bytes);
        journal.set_recycling(false);
        journal.recycle_through(journal.oldest_segment_last_lsn().unwrap());
        assert_eq!(put(&journal, 1, sequence, 3000), Err(Refused::Full), "recycling is off");
        journal.set_recycling(true);
        while !matches!(progress(&journal).await, Progress::Room) {}
        let lsn = put(&journal, 1, sequence, 3000).unwrap();
        until_durable(&journal, lsn).await;
        drop(journal);
        assert_eq!(bed.segments(1, 0).len(), 6);
        assert_eq!(sequences(&bed.recover(), 1).last(), Some(&sequence));
    });
}

#[test]
fn what_one_run_appends_stays_in_one_group_even_over_a_segments_end() {
    on_sim(async |bed| {
        let journal = bed.journal(1, 0);
        put(&journal, 1, 1, 40_000).unwrap();
        journal.cut();
        let lsn = put(&journal, 2, 1, 10_000).unwrap();
        until_durable(&journal, lsn).await;
        bed.sim.pause();
        // Another run, the first part of which would still fit the segment.
        put(&journal, 1, 2, 5_000).unwrap();
        put(&journal, 2, 2, 5_000).unwrap();
        put(&journal, 1, 3, 20_000).unwrap();
        journal.cut();
        assert_eq!(bed.sim.in_flight(), 1, "the run is one group");
        bed.sim.resume();
        drop(journal);
        let segments = bed.segments(1, 0);
        let second = crate::journal::inspect(&*bed.files, &segments[1]).unwrap();
        let addresses: Vec<_> =
            second.groups[0].records.iter().map(|r| (r.address.as_deref().unwrap(), r.actor_sequence)).collect();
        assert_eq!(addresses, [("thing/actor 1", 2), ("thing/actor 2", 2), ("thing/actor 1", 3)]);
        let recovery = bed.recover();
        contents(&recovery);
        assert_eq!((sequences(&recovery, 1), sequences(&recovery, 2)), (vec![1, 2, 3], vec![1, 2]));
    });
}

#[test]
fn a_record_or_a_run_larger_than_a_segment_is_refused_and_nothing_of_it_is_kept() {
    on_every_disk(async |bed| {
        let journal = bed.journal(1, 0);
        assert_eq!(put(&journal, 1, 1, 64 * 1024), Err(Refused::TooLarge));
        put(&journal, 1, 1, 40_000).unwrap();
        assert_eq!(put(&journal, 1, 2, 40_000), Err(Refused::TooLarge), "the run as a whole");
        until_durable(&journal, Lsn(1)).await;
        drop(journal);
        assert_eq!(sequences(&bed.recover(), 1), [1]);
    });
}

#[test]
fn a_flipped_bit_in_the_tail_loses_the_tail_only() {
    on_every_disk(async |bed| {
        let journal = ten_groups(&bed, 1).await;
        drop(journal);
        let path = bed.segments(1, 0).remove(0);
        bed.flip(&path, 4096 * 10 + 300);
        let recovery = bed.recover();
        contents(&recovery);
        assert_eq!(sequences(&recovery, 1), (1..=9).collect::<Vec<_>>());
        assert!(recovery.journals[0].stopped.contains("at byte 40960: a record's checksum does not match"), "{recovery:?}");
    });
}

#[test]
fn a_flipped_bit_in_the_middle_is_refused_by_file_and_offset_unless_the_loss_is_accepted() {
    on_every_disk(async |bed| {
        drop(ten_groups(&bed, 1).await);
        let path = bed.segments(1, 0).remove(0);
        // The header of group 4, the body of group 7: the first is what is reported.
        bed.flip(&path, 4096 * 7 + 300);
        bed.flip(&path, 4096 * 4 + 20);
        let message = recover(&*bed.files, &bed.dir, false).unwrap_err().to_string();
        assert!(message.contains(path.to_str().unwrap()) && message.contains("byte 16384"), "{message}");
        assert!(message.contains("--accept-journal-loss"), "{message}");
        let recovery = recover(&*bed.files, &bed.dir, true).unwrap();
        assert_eq!((sequences(&recovery, 1), recovery.losses.len()), (vec![1, 2, 3], 1));
        // Once the next incarnation has stated where the damaged journal ends, it is damaged no more.
        state_ends(&bed, 2, &recovery).await;
        assert_eq!(sequences(&bed.recover(), 1), [1, 2, 3]);
        // Damaged again, below what was stated: the newest statement counts.
        bed.flip(&path, 4096 * 2 + 20);
        let recovery = recover(&*bed.files, &bed.dir, true).unwrap();
        state_ends(&bed, 3, &recovery).await;
        assert_eq!(sequences(&bed.recover(), 1), [1]);
    });
}

#[test]
fn records_that_are_left_over_from_another_journal_are_not_taken_for_a_groups_own() {
    on_every_disk(async |bed| {
        drop(ten_groups(&bed, 1).await);
        // Another node's journal: same numbers, same lengths, another content.
        let other = Bed::new(bed.disk);
        let journal = other.journal(1, 0);
        for sequence in 1..=10 {
            let record = Record {
                actor: 1,
                address: &address(1),
                actor_sequence: sequence,
                kind: RecordKind::Pages,
                durable: true,
                size_pages: 7,
                page_count: 1,
                body: &body(2, sequence, 500),
            };
            until_durable(&journal, journal.append(&record).unwrap()).await;
        }
        let mut payload = vec![0; 4096 - 64];
        let at = 10 * 4096 + 64;
        other.files.open(&other.segments(1, 0)[0], Open::Read).unwrap().read_at(at, &mut payload).unwrap();
        bed.files.open(&bed.segments(1, 0)[0], Open::Write).unwrap().write_at(at, &payload).unwrap();
        let recovery = bed.recover();
        assert_eq!(sequences(&recovery, 1), (1..=9).collect::<Vec<_>>());
        assert!(recovery.journals[0].stopped.contains("not those its header counts"), "{:?}", recovery.journals);
    });
}

#[test]
fn a_segment_that_is_gone_from_the_middle_is_refused() {
    on_every_disk(async |bed| {
        let journal = bed.journal(1, 0);
        for sequence in 1..=20 {
            let lsn = put_soon(&journal, 1, sequence, 12_000).await;
            until_durable(&journal, lsn).await;
        }
        drop(journal);
        let gone = bed.segments(1, 0).remove(2);
        bed.files.remove(&gone).unwrap();
        let message = recover(&*bed.files, &bed.dir, false).unwrap_err().to_string();
        assert!(message.contains("shows that it was durable"), "{message}");
        let recovery = recover(&*bed.files, &bed.dir, true).unwrap();
        assert_eq!(sequences(&recovery, 1), (1..=10).collect::<Vec<_>>(), "five fit a segment");
    });
}

#[test]
fn a_segments_damaged_header_costs_nothing() {
    on_every_disk(async |bed| {
        drop(ten_groups(&bed, 1).await);
        let path = bed.segments(1, 0).remove(0);
        bed.flip(&path, 17);
        assert_eq!(sequences(&bed.recover(), 1).len(), 10);
        let seen = crate::journal::inspect(&*bed.files, &path).unwrap();
        assert_eq!((seen.groups.len(), seen.epoch), (10, Some(1)));
        assert!(seen.to_string().contains("its header cannot be used: the segment header's checksum does not match"));
    });
}

#[test]
fn a_record_damaged_after_it_was_indexed_is_not_handed_out() {
    on_every_disk(async |bed| {
        drop(ten_groups(&bed, 1).await);
        let recovery = bed.recover();
        bed.flip(&bed.segments(1, 0).remove(0), 4096 * 3 + 300);
        let records = recovery.index.records(&address(1));
        let mut buffer = Vec::new();
        assert!(recovery.read_record(&records[1], &mut buffer).is_ok());
        let message = recovery.read_record(&records[2], &mut buffer).unwrap_err().to_string();
        assert!(message.contains("checksum"), "{message}");
    });
}

#[test]
fn journals_of_several_incarnations_and_numbers_of_cores_are_replayed_oldest_first() {
    on_every_disk(async |bed| {
        let mut next = 1;
        for (incarnation, cores) in [(1, 2), (2, 4), (3, 1)] {
            let found = bed.recover();
            assert_eq!(
                (found.highest_incarnation, found.ends.len()),
                (incarnation - 1, [0, 2, 6][usize::try_from(incarnation).unwrap() - 1])
            );
            for core in 0..cores {
                let journal = bed.journal(incarnation, core);
                if core == 0 && incarnation > 1 {
                    let lsn = journal.append_epoch_ends(&found.ends).unwrap();
                    until_durable(&journal, lsn).await;
                }
                for actor in (0..8).filter(|actor| actor % u64::from(cores) == u64::from(core)) {
                    for sequence in next..next + 3 {
                        let lsn = put_soon(&journal, actor, sequence, 200).await;
                        until_durable(&journal, lsn).await;
                    }
                }
            }
            next += 3;
        }
        let recovery = bed.recover();
        contents(&recovery);
        for actor in 0..8 {
            assert_eq!(sequences(&recovery, actor), (1..=9).collect::<Vec<_>>(), "actor {actor}");
        }
    });
}

#[test]
fn retired_journals_are_gone_and_their_segments_are_used_again() {
    on_every_disk(async |bed| {
        drop(ten_groups(&bed, 1).await);
        drop(ten_groups(&bed, 2).await);
        let journal = bed.journal(3, 0);
        retire(&*bed.files, &bed.dir, 3, 4).unwrap();
        assert_eq!(bed.recover().journals.len(), 1);
        let spares = bed.files.list(&bed.dir.join("spare")).unwrap().len();
        assert!((1..=4).contains(&spares), "{spares}");
        for sequence in 1..=20 {
            let lsn = put_soon(&journal, 1, sequence, 12_000).await;
            until_durable(&journal, lsn).await;
        }
        assert!(bed.files.list(&bed.dir.join("spare")).unwrap().len() < spares);
        drop(journal);
        let recovery = bed.recover();
        contents(&recovery);
        assert_eq!(sequences(&recovery, 1), (1..=20).collect::<Vec<_>>());
    });
}

#[test]
fn a_newer_incarnation_can_void_an_older_journal_from_a_point_on() {
    on_every_disk(async |bed| {
        drop(ten_groups(&bed, 1).await);
        let seen = crate::journal::inspect(&*bed.files, &bed.segments(1, 0)[0]).unwrap();
        // Groups 1 to 9, as if 10 had been torn when the next incarnation looked and was completed afterwards.
        bed.flip(&bed.segments(1, 0)[0], 4096 * 10 + 300);
        let ends = bed.recover().ends;
        bed.flip(&bed.segments(1, 0)[0], 4096 * 10 + 300);
        assert_eq!((ends[0].sequence, ends[0].epoch, ends[0].journal), (9, 1, JournalId { incarnation: 1, core: 0 }));
        assert_eq!(seen.groups.len(), 10);
        let journal = bed.journal(2, 0);
        let lsn = journal.append_epoch_ends(&ends).unwrap();
        until_durable(&journal, lsn).await;
        drop(journal);
        let recovery = bed.recover();
        assert_eq!(sequences(&recovery, 1), (1..=9).collect::<Vec<_>>());
        assert_eq!(recovery.ends[0], ends[0], "the next incarnation states the same");
        // Damage before the stated end is still damage.
        bed.flip(&bed.segments(1, 0)[0], 4096 * 9 + 300);
        assert!(matches!(recover(&*bed.files, &bed.dir, false), Err(StorageError::JournalDamaged { offset: 36864, .. })));
    });
}

#[test]
fn many_ends_of_epochs_fit_one_group() {
    on_every_disk(async |bed| {
        let ends: Vec<_> = (0..1000)
            .map(|n| EpochEnd { journal: JournalId { incarnation: 1, core: n }, epoch: 1, sequence: 5, crc: u32::from(n) })
            .collect();
        drop(ten_groups(&bed, 1).await);
        let journal = bed.journal(2, 0);
        let lsn = journal.append_epoch_ends(&ends).unwrap();
        until_durable(&journal, lsn).await;
        // It states another crc than the journal has: that would be damage if it were not read.
        drop(journal);
        assert!(recover(&*bed.files, &bed.dir, false).is_err());
    });
}

#[test]
fn inspection_lists_records_and_says_where_and_why_it_stops() {
    on_every_disk(async |bed| {
        drop(ten_groups(&bed, 1).await);
        let path = bed.segments(1, 0).remove(0);
        bed.flip(&path, 4096 * 6 + 300);
        let seen = crate::journal::inspect(&*bed.files, &path).unwrap();
        let text = seen.to_string();
        assert!(
            text.starts_with("segment 00000001 of journal 00000001-0000, 65536 bytes\n@4096 group 1, 4096 bytes, 1 records"),
            "{text}"
        );
        assert!(text.contains("  lsn 5 thing/actor 1 #5 meta durable, 1 of 7 pages, 548 bytes"), "{text}");
        assert!(text.contains("stops at byte 24576: a record's checksum does not match"), "{text}");
        assert!(text.contains("an intact group follows at byte 28672"), "{text}");
        let json = serde_json::to_value(&seen).unwrap();
        assert_eq!(json["groups"][1]["records"][0]["address"], "thing/actor 1");
        assert_eq!((&json["stopped_at"], json["beyond"].as_array().unwrap().len()), (&24576.into(), 4));
        // A copy elsewhere shows the same; something else shows nothing, and says so.
        let (copy, other) = (bed.dir.join("copy"), bed.dir.join("other"));
        let mut bytes = vec![0; 65536];
        bed.files.open(&path, Open::Read).unwrap().read_at(0, &mut bytes).unwrap();
        bed.files.open(&copy, Open::Create).unwrap().write_at(0, &bytes).unwrap();
        assert_eq!(crate::journal::inspect(&*bed.files, &copy).unwrap().to_string(), text);
        bed.files.open(&other, Open::Create).unwrap().write_at(0, b"SQLite format 3").unwrap();
        let text = crate::journal::inspect(&*bed.files, &other).unwrap().to_string();
        assert!(text.contains("shorter than a segment header") && text.contains("it is not known which journal"), "{text}");
    });
}

/// A new incarnation that only states where all before it ended.
async fn state_ends(bed: &Bed, incarnation: u64, recovery: &Recovery) {
    let journal = bed.journal(incarnation, 0);
    let lsn = journal.append_epoch_ends(&recovery.ends).unwrap();
    until_durable(&journal, lsn).await;
}

/// A journal of ten durable groups with one record each of actor 1, each group one block.
async fn ten_groups(bed: &Bed, incarnation: u64) -> Journal {
    let journal = bed.journal(incarnation, 0);
    for sequence in 1..=10 {
        let lsn = put(&journal, 1, sequence, 500).unwrap();
        until_durable(&journal, lsn).await;
    }
    journal
}
