//! The power goes at every single operation of a scripted life.

use crate::bed::{Bed, insert, rows, run};

const ACTORS: usize = 4;

/// Two starts, writes, checkpoints, recycling, a clean stop. Returns how many rows of each actor were acknowledged.
async fn script(bed: &mut Bed) -> Vec<i64> {
    let mut acknowledged = vec![0; ACTORS];
    for cores in [1, 2] {
        let Ok(node) = bed.start(cores) else { return acknowledged };
        node.pump().await;
        if node.stores.iter().any(|store| store.durable() < store.newest()) {
            return acknowledged;
        }
        for _ in 0..3 {
            for (actor, count) in acknowledged.iter_mut().enumerate() {
                let name = format!("a{actor}");
                let Ok(opened) = node.try_open(&name) else { return acknowledged };
                let written = insert(&opened, *count, 12_000);
                let position = node.store(&name).newest();
                node.pump().await;
                *count += i64::from(written.is_ok() && node.store(&name).durable() >= position);
                if bed.sim.is_dead() {
                    return acknowledged;
                }
            }
            node.quiet().await;
        }
        if cores == 2 {
            drop(node.close().await);
        }
    }
    acknowledged
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing_acknowledged() {
    run(async {
        let small = || Bed { segment_bytes: 64 * 1024, journal_bytes_max: 4 * 64 * 1024, ..Bed::new() };
        let whole = script(&mut small()).await;
        assert_eq!(whole, [6; ACTORS], "the script does not get through by itself");
        let mut cut_at = 0;
        loop {
            let mut bed = small();
            bed.sim.cut_power_after(cut_at);
            let acknowledged = script(&mut bed).await;
            let ended = !bed.sim.is_dead();
            let mut bed = bed.crashed(cut_at);
            let node = bed.serve(3).await;
            for (actor, count) in acknowledged.iter().enumerate() {
                let found = rows(&node.open(&format!("a{actor}"))).unwrap_or_default();
                let whole: Vec<i64> = (0..i64::try_from(found.len()).unwrap()).collect();
                assert!(
                    found == whole && whole.len() >= usize::try_from(*count).unwrap(),
                    "power cut after {cut_at} operations: actor {actor} had {count} acknowledged, found {found:?}"
                );
            }
            if ended {
                assert!(cut_at > 300, "the script did nothing");
                break;
            }
            cut_at += 1;
        }
    });
}
