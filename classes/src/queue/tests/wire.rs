//! Bytes: every message survives its encoding, and no bytes whatever make a queue or client do more than refuse.

use proptest::prelude::*;

use super::*;
use crate::queue::codec::*;
use crate::queue::protocol::*;
use crate::wire::Writer;

/// One encoding of each message, and whether it decodes.
type Sample = (Vec<u8>, fn(&[u8]) -> bool);

fn samples() -> Vec<Sample> {
    let lease = Lease { id: 3, attempt: 2, epoch: 9 };
    let message = Message { body: b"body", delay_ms: 7, dedupe_id: Some(b"d"), ordering_key: Some(b"k") };
    let outcomes =
        [Outcome::Ack, Outcome::Retry { delay_ms: Some(5), error: "ä" }, retry(""), Outcome::Extend { visibility_ms: 6 }];
    let settlements = outcomes.map(|outcome| Settlement { lease, outcome });
    let (mut stream, mut page) = (Writer::new(), Writer::new());
    put_leased(&mut stream, &Leased { lease, enqueued_at_ms: 1, ordering_key: Some(b"k"), body: b"x" });
    put_leased(&mut stream, &Leased { lease, enqueued_at_ms: 1, ordering_key: None, body: b"" });
    let letter = DeadLetter { id: 1, enqueued_at_ms: 2, attempts: 3, failed_at_ms: 4, reason: "r", ordering_key: None, body: b"x" };
    put_dead_letter(&mut page, &letter);
    let stats = Stats { oldest_age_ms: Some(4), ..Stats::default() };
    let sent = Sent { id: 1, due_at_ms: 2, is_duplicate: true };
    let next = Some(Which::DeadIds(vec![1, 2]));
    vec![
        (encode_send(&[message, Message::default()]).expect("valid"), |bytes| decode_send(bytes).is_ok()),
        (encode_sent(&[sent; 2]), |bytes| decode_sent(bytes).is_ok()),
        (encode_lease(1, 2).expect("valid"), |bytes| decode_lease(bytes).is_ok()),
        (end_stream(stream), |bytes| decode_delivery(bytes).is_ok()),
        (encode_outcomes(&settlements).expect("valid"), |bytes| decode_outcomes(bytes).is_ok()),
        (encode_settled(&[Settled::Done, Settled::Stale, Settled::Dead]), |bytes| decode_settled(bytes).is_ok()),
        (encode_stats(&stats), |bytes| decode_stats(bytes).is_ok()),
        (encode_dead(1, 2).expect("valid"), |bytes| decode_dead(bytes).is_ok()),
        (end_dead_page(page, true), |bytes| decode_dead_page(bytes).is_ok()),
        (encode_which(&Which::DeadIds(vec![1, 2])).expect("valid"), |bytes| decode_which(bytes).is_ok()),
        (encode_which(&Which::DeadOlderThan { age_ms: 1 }).expect("valid"), |bytes| decode_which(bytes).is_ok()),
        (encode_which(&Which::LiveUpTo { id: 1 }).expect("valid"), |bytes| decode_which(bytes).is_ok()),
        (encode_moved(&Moved { count: 1, next }), |bytes| decode_moved(bytes).is_ok()),
    ]
}

#[test]
fn a_message_cut_anywhere_or_with_a_byte_too_many_is_refused() {
    for (index, (bytes, decodes)) in samples().into_iter().enumerate() {
        assert!(decodes(&bytes), "sample {index} is whole");
        for length in 0..bytes.len() {
            assert!(!decodes(&bytes[..length]), "sample {index} cut at {length}");
        }
        assert!(!decodes(&[&bytes[..], &[0]].concat()), "sample {index} with a byte too many");
    }
    assert!(decode_nothing(b"").is_ok() && decode_nothing(b"0").is_err());
}

#[test]
fn outcomes_and_messages_read_as_they_were_written() {
    let lease = Lease { id: u64::MAX, attempt: u32::MAX, epoch: 0 };
    let outcomes = [Outcome::Ack, Outcome::Retry { delay_ms: None, error: "e" }, Outcome::Extend { visibility_ms: 1 }];
    let settlements = outcomes.map(|outcome| Settlement { lease, outcome });
    assert_eq!(decode_outcomes(&encode_outcomes(&settlements).expect("valid")), Ok(settlements.to_vec()));
    let messages = [Message { body: b"b", delay_ms: 1, dedupe_id: None, ordering_key: Some(b"\0") }];
    assert_eq!(decode_send(&encode_send(&messages).expect("valid")), Ok(messages.to_vec()));
    for next in [None, Some(Which::DeadFailedBy { at_ms: 5 }), Some(Which::Live)] {
        let moved = Moved { count: 3, next };
        assert_eq!(decode_moved(&encode_moved(&moved)), Ok(moved));
    }
}

#[test]
fn statuses_are_errors_with_a_type() {
    use client::Error;
    let words = || "words".to_owned();
    let expected = [
        (400, Error::Refused(words())),
        (404, Error::Refused(words())),
        (403, Error::Forbidden),
        (413, Error::TooLarge(words())),
        (507, Error::Full),
        (503, Error::Failed { status: 503, words: words() }),
        (200, Error::Malformed),
    ];
    for (status, error) in expected {
        assert_eq!(client::done(status, b"words"), Err(error.clone()));
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn more_than_a_batch_is_refused_however_it_is_framed() {
    let mut writer = Writer::new();
    writer.u32(1_001);
    let bytes = [writer.into_bytes(), vec![0; 1_001 * 21]].concat();
    assert_eq!((decode_outcomes(&bytes), decode_send(&bytes)), (Err(Invalid::Batch(1_001)), Err(Invalid::Batch(1_001))));
    let mut writer = Writer::new();
    for _ in 0..1_001 {
        put_leased(
            &mut writer,
            &Leased { lease: Lease { id: 1, attempt: 1, epoch: 1 }, enqueued_at_ms: 1, ordering_key: None, body: b"" },
        );
    }
    assert_eq!(decode_delivery(&end_stream(writer)), Err(Invalid::Batch(1_001)));
    let lease = Lease { id: 1, attempt: 1, epoch: 1 };
    assert_eq!(encode_outcomes(&vec![Settlement { lease, outcome: Outcome::Ack }; 1_001]), Err(Invalid::Batch(1_001)));
    assert_eq!(encode_which(&Which::DeadIds(vec![0; 1_001])), Err(Invalid::Batch(1_001)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 0..120),
        flips in 0..13_usize,
        at: usize,
    ) {
        for (_, decodes) in samples() {
            decodes(&bytes);
        }
        let (mut sample, decodes) = samples().swap_remove(flips);
        let index = at % sample.len();
        sample[index] ^= 1 << (at % 8);
        decodes(&sample);
    }
}

#[test]
fn arbitrary_bytes_are_answered_on_every_path() {
    let mut host = Host::new(Config { ordering: true, ..Config::default() });
    let mut seed = 1_u64;
    for _ in 0..300 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bytes: Vec<u8> = (0..seed % 40).map(|n| ((seed >> (n % 56)) & 3) as u8).collect();
        for operation in ["send", "lease", "settle", "stats", "pause", "resume", "dead", "redrive", "purge", "", "é"] {
            let reply = host.handle(&format!("wasmkeep-queue/v1/{operation}"), &bytes);
            assert!([200, 400, 404, 413].contains(&reply.status) && (reply.status == 200 || reply.effect == Effect::Read));
        }
    }
}
