//! What the journal promises, one sentence each.

use super::*;

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
fn an_empty_directory_holds_nothing() {
    on_every_disk(async |bed| {
        let recovery = bed.recover();
        assert_eq!((recovery.highest_incarnation, recovery.ends.len(), recovery.index.record_count()), (0, 0, 0));
        drop(bed.journal(1, 0));
        let recovery = bed.recover();
        assert_eq!((recovery.highest_incarnation, recovery.ends.len(), recovery.index.record_count()), (1, 1, 0));
    });
}
