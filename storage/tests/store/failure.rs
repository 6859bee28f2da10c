//! Groups that fail, disks that are full.

use wasmkeep_storage::disk::sim::{Fate, Fault};
use wasmkeep_storage::store::{CoreStore, Lost, Meta, Progress};
use wasmkeep_storage::{Lsn, SqlError};

use crate::bed::{Bed, address, insert, rows, run};

#[test]
fn a_failed_group_is_taken_back_and_never_comes_back_once_writes_are_taken_again() {
    run(async {
        let mut bed = Bed::new();
        let node = bed.serve(1).await;
        let store = &node.stores[0];
        let opened = node.open("a");
        insert(&opened, 1, 100).unwrap();
        let (first, second) = (Meta { init_version: 1, alarm: None }, Meta { init_version: 2, alarm: None });
        store.record_meta(&address("a"), first, true).unwrap();
        node.pump().await;
        let durable = store.durable();

        bed.sim.fail_next(Fault::Eio, Fate::Kept);
        insert(&opened, 2, 100).unwrap();
        store.record_meta(&address("a"), second, true).unwrap();
        let lost = store.newest();
        let wait = tokio::task::spawn_local(store.durable_at(lost));
        assert!(node.pump().await.contains(&(0, Progress::Failed { durable })));
        assert_eq!(wait.await.unwrap(), Err(Lost));
        assert_eq!(store.durable_at(lost).await, Err(Lost), "asked before the restart");
        assert_eq!(insert(&opened, 3, 100), Err(SqlError::Unavailable));
        drop(opened);
        assert!(store.is_failed() && node.try_open("a").is_err());
        assert_eq!(store.meta(&address("a")).unwrap(), Some(first));

        store.restart();
        assert!(node.pump().await.contains(&(0, Progress::Restarted)));
        assert_eq!(rows(&node.open("a")), Some(vec![1]));
        insert(&node.open("a"), 4, 100).unwrap();
        assert!(store.newest() > lost, "a position was used twice");
        node.pump().await;
        assert!(store.durable() > lost);
        assert_eq!(store.durable_at(lost).await, Err(Lost), "asked when the journal was further");
        assert_eq!(store.durable_at(durable).await, Ok(()));
        assert_eq!(store.durable_at(store.newest()).await, Ok(()));
        for seed in 0..20 {
            let mut bed = bed.crashed(seed);
            let node = bed.serve(1).await;
            assert_eq!(rows(&node.open("a")), Some(vec![1, 4]), "seed {seed}");
            assert_eq!(node.stores[0].meta(&address("a")).unwrap(), Some(first));
        }
    });
}

#[test]
fn a_checkpoint_on_a_full_disk_loses_nothing_and_is_done_when_there_is_room() {
    run(async {
        let mut bed = Bed::new();
        let node = bed.serve(1).await;
        // The catalog's file is there already: nothing but the actor's own directories is new.
        node.stores[0].record_meta(&address("a"), Meta { init_version: 1, alarm: None }, true).unwrap();
        node.quiet().await;
        node.close().await.unwrap();
        let node = bed.serve(1).await;
        // The journal's segments are there already; base files find no room.
        bed.sim.set_capacity(Some(bed.sim.used_bytes()));
        insert(&node.open("a"), 1, 3_000).unwrap();
        node.pump().await;
        node.quiet().await;
        assert_eq!(node.stores[0].stats().pages_checkpointed, 0);
        assert_eq!(rows(&node.open("a")), Some(vec![1]));
        bed.sim.set_capacity(None);
        node.quiet().await;
        assert!(node.stores[0].stats().pages_checkpointed > 0);
        assert!(node.stores[0].durable() > Lsn::ZERO);
        // The directories were made by the attempt that failed; the file must be found all the same, with no journal to help.
        node.close().await.unwrap();
        for seed in 0..20 {
            let mut bed = bed.crashed(seed);
            assert_eq!(rows(&bed.serve(1).await.open("a")), Some(vec![1]), "seed {seed}");
        }
    });
}

#[test]
fn a_journal_that_is_full_refuses_and_takes_writes_again_when_checkpoints_can_go_on() {
    run(async {
        let mut bed = Bed { segment_bytes: 128 * 1024, journal_bytes_max: 4 * 128 * 1024, ..Bed::new() };
        let node = bed.serve(1).await;
        insert(&node.open("a"), 0, 100).unwrap();
        node.pump().await;
        bed.sim.fail_files(Some(28));
        let opened = node.open("a");
        let mut n = 0;
        let refused = loop {
            n += 1;
            assert!(n < 1_000, "the journal never was full");
            match insert(&opened, n, 3_000) {
                Ok(_) => drop(node.pump().await),
                Err(error) => break error,
            }
        };
        assert_eq!(refused, SqlError::Full);
        bed.sim.fail_files(None);
        for _ in 0..6 {
            node.stores.iter().for_each(CoreStore::sweep);
            node.pump().await;
        }
        insert(&opened, n, 3_000).unwrap();
        node.pump().await;
        assert!(node.stores[0].durable() > Lsn::ZERO);
        assert_eq!(rows(&opened), Some((0..=n).collect()));
        let mut bed = bed.crashed(5);
        assert_eq!(rows(&bed.serve(1).await.open("a")), Some((0..=n).collect()));
    });
}
