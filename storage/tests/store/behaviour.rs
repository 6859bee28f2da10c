//! What stays, where it goes, and what is given back.

use std::sync::atomic::Ordering;

use wasmkeep_storage::disk::os::OsFiles;
use wasmkeep_storage::disk::probe::{Io, WriteForm};
use wasmkeep_storage::store::{CoreStore, Meta, base_path};
use wasmkeep_storage::{StorageError, Value};

use crate::bed::{Bed, Node, address, insert, rows, run};

const NAMES: [&str; 3] = ["a", "b", "c"];

const fn version(init_version: u128) -> Meta {
    Meta { init_version, alarm: None }
}

#[test]
fn durable_commits_survive_a_kill_and_any_change_of_the_number_of_cores() {
    run(async {
        let mut bed = Bed::new();
        for (life, cores) in [1, 2, 8, 1].into_iter().enumerate() {
            let node = bed.serve(cores).await;
            for actor in 0..12 {
                let opened = node.open(&format!("a{actor}"));
                let before: Vec<_> = (0..i64::try_from(life).unwrap()).collect();
                assert_eq!(rows(&opened).unwrap_or_default(), before);
                insert(&opened, i64::try_from(life).unwrap(), 300).unwrap();
            }
            node.pump().await;
            bed = bed.crashed(life as u64);
        }
    });
}

#[test]
fn after_a_clean_stop_base_files_are_whole_databases_and_no_journal_is_left() {
    run(async {
        let temp = tempfile::tempdir().unwrap();
        let mut bed = Bed { data: temp.path().to_owned(), files: OsFiles::shared(), ..Bed::new() };
        bed.backend = Some(|| Io::new(false, WriteForm::Dsync).open().unwrap());
        let node = bed.start(2).unwrap();
        for actor in 0..5 {
            let opened = node.open(&format!("a{actor}"));
            for n in 0..20 {
                insert(&opened, n, 500).unwrap();
            }
        }
        node.close().await.unwrap();
        for actor in 0..5 {
            let path = base_path(temp.path(), &address(&format!("a{actor}")));
            let db = rusqlite::Connection::open(path).unwrap();
            let check: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            let count: i64 = db.query_row("SELECT count(*) FROM log", [], |row| row.get(0)).unwrap();
            assert_eq!((check.as_str(), count), ("ok", 20));
        }
        let left = bed.files.list(&temp.path().join("journal")).unwrap();
        assert!(left.iter().all(|path| path.ends_with("spare")), "{left:?}");
    });
}

#[test]
fn facts_and_lists_survive_a_fold_a_clean_stop_and_a_kill() {
    run(async {
        let mut bed = Bed::new();
        let node = bed.serve(2).await;
        for (n, name) in NAMES.iter().enumerate() {
            node.store(name).record_meta(&address(name), version(n as u128 + 1), true).unwrap();
        }
        node.store("none").record_meta(&address("none"), version(0), true).unwrap();
        node.pump().await;
        knows(&node, "in the journal");
        node.quiet().await;
        knows(&node, "folded");
        drop(node);
        bed = bed.crashed(1);
        let node = bed.serve(3).await;
        knows(&node, "killed");
        node.close().await.unwrap();
        bed = bed.crashed(2);
        knows(&bed.serve(1).await, "stopped");
    });
}

#[test]
fn a_fact_recorded_of_a_sleeping_actor_leaves_no_database_in_memory() {
    run(async {
        let mut bed = Bed::new();
        let node = bed.serve(1).await;
        let store = &node.stores[0];
        insert(&node.open("a"), 1, 100).unwrap();
        store.record_meta(&address("b"), version(9), true).unwrap();
        node.quiet().await;
        // The catalogs that know the two.
        let before = store.stats().databases;
        assert!(before <= 2);
        for n in 1..=3 {
            store.record_meta(&address("a"), version(n), true).unwrap();
            // One that has never been opened and has no base file.
            store.record_meta(&address("b"), version(n), false).unwrap();
            node.pump().await;
            assert_eq!(store.stats().databases, before, "{n}");
        }
        let opened = node.open("a");
        store.record_meta(&address("a"), version(4), true).unwrap();
        node.pump().await;
        assert_eq!(store.stats().databases, before + 1, "an open one stays");
        insert(&opened, 2, 100).unwrap();
        drop(opened);
        node.pump().await;
        bed = bed.crashed(1);
        let node = bed.serve(1).await;
        assert_eq!(rows(&node.open("a")), Some(vec![1, 2]));
        assert_eq!(node.stores[0].meta(&address("a")).unwrap(), Some(version(4)));
        assert_eq!(node.stores[0].meta(&address("b")).unwrap(), Some(version(3)));
    });
}

fn knows(node: &Node, how: &str) {
    let mut listed: Vec<_> = node.stores.iter().flat_map(|store| store.list(None, 100).unwrap()).collect();
    listed.sort();
    assert_eq!(listed, NAMES.map(address), "{how}");
    for (n, name) in NAMES.iter().enumerate() {
        assert_eq!(node.store(name).meta(&address(name)).unwrap(), Some(version(n as u128 + 1)), "{how}");
    }
    assert_eq!(node.stores.iter().flat_map(|store| store.list(Some("other"), 100).unwrap()).count(), 0);
}

#[test]
fn the_journal_stays_bounded_while_many_actors_write_and_memory_comes_back_when_they_sleep() {
    run(async {
        let mut bed = Bed { segment_bytes: 512 * 1024, journal_bytes_max: 8 * 512 * 1024, ..Bed::new() };
        let node = bed.serve(1).await;
        let store = &node.stores[0];
        for n in 0..30 {
            for actor in 0..40 {
                let opened = node.open(&format!("a{actor}"));
                insert(&opened, n, 6_000).unwrap();
            }
            store.sweep();
            node.pump().await;
            assert!(store.stats().journal_used_bytes <= bed.journal_bytes_max, "{:?}", store.stats());
        }
        assert!(store.stats().journal_written_bytes > bed.journal_bytes_max, "nothing had to be recycled");
        node.quiet().await;
        node.stores.iter().for_each(CoreStore::sweep);
        node.quiet().await;
        let stats = store.stats();
        assert_eq!(stats.overlay_bytes, 0, "{stats:?}");
        let kept = wasmkeep_storage::limits::CATALOGS_KEPT;
        assert!(stats.databases <= kept, "{stats:?}");
        for actor in 0..40 {
            assert_eq!(rows(&node.open(&format!("a{actor}"))).unwrap().len(), 30);
        }
    });
}

#[test]
fn a_base_file_changed_or_removed_from_outside_is_refused_unless_its_loss_is_accepted() {
    run(async {
        for remove in [false, true] {
            let mut bed = Bed::new();
            let node = bed.serve(1).await;
            insert(&node.open("a"), 1, 100).unwrap();
            node.close().await.unwrap();
            let path = base_path(&bed.data, &address("a"));
            if remove {
                bed.files.remove(&path).unwrap();
            } else {
                bed.sim.corrupt(&path, 27, 0x40);
            }
            let node = bed.serve(1).await;
            let error = node.try_open("a").err().expect("it was opened");
            assert!(matches!(error, StorageError::BaseFile { .. }), "{error}");
            assert!(error.to_string().contains("--accept-journal-loss") && error.to_string().contains("a.sqlite"), "{error}");
            drop(node);
            bed.accept_journal_loss = true;
            let node = bed.serve(1).await;
            let expected = (!remove).then(|| vec![1]);
            assert_eq!(rows(&node.open("a")), expected);
        }
    });
}

#[test]
fn a_recovered_database_that_could_not_be_read_is_whole_when_it_can() {
    run(async {
        let mut bed = Bed::new();
        let node = bed.serve(1).await;
        // No base file: all there is of it is in the journal.
        bed.sim.fail_files(Some(28));
        insert(&node.open("a"), 1, 100).unwrap();
        node.pump().await;
        bed = bed.crashed(1);
        let node = bed.serve(1).await;
        bed.fail_reads.store(true, Ordering::Relaxed);
        assert!(node.try_open("a").is_err());
        bed.fail_reads.store(false, Ordering::Relaxed);
        assert_eq!(rows(&node.open("a")), Some(vec![1]));
        assert_eq!(node.open("a").connection.query_now("SELECT count(*) FROM log", &[]).unwrap().values, [Value::Integer(1)]);
    });
}

#[test]
fn a_clean_stop_waits_for_the_checkpoint_that_is_under_way() {
    run(async {
        let mut bed = Bed { threads: true, ..Bed::new() };
        let node = bed.serve(1).await;
        insert(&node.open("a"), 1, 100).unwrap();
        bed.hold_bases.store(true, Ordering::Relaxed);
        node.pump().await;
        let store = node.stores[0].clone();
        let closing = tokio::task::spawn_local(async move { store.close().await });
        for _ in 0..10 {
            node.pump().await;
        }
        let early = closing.is_finished();
        let image = bed.crashed(1);
        bed.hold_bases.store(false, Ordering::Relaxed);
        while !closing.is_finished() {
            node.pump().await;
        }
        closing.await.unwrap().unwrap();
        assert!(!early, "it did not wait");
        for mut bed in [image, bed.crashed(2)] {
            assert_eq!(rows(&bed.serve(1).await.open("a")), Some(vec![1]));
        }
    });
}
