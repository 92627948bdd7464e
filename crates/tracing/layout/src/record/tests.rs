//! Written records are read back, and any bytes are read without harm.

use super::decoder::u32_at;
use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

#[derive(Clone, Debug)]
enum Step {
    Entry(u32),
    Exit,
    Unwound(u32),
    Lost(u64),
    Stack(u32),
    Discarded,
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let delta = prop_oneof![0..4_u64, 0x7ff0..0x8010_u64, any::<u64>()];
    let step = prop_oneof![
        prop_oneof![1..70_000_u32, 1..=u32::MAX].prop_map(Step::Entry),
        Just(Step::Exit),
        any::<u32>().prop_map(Step::Unwound),
        any::<u64>().prop_map(Step::Lost),
        any::<u32>().prop_map(Step::Stack),
        Just(Step::Discarded),
    ];
    (delta, step)
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(base: u64, steps in proptest::collection::vec(step(), 0..200)) {
        let mut buffer = vec![0; 4096];
        let mut encoder = Encoder::new(&mut buffer, 0, base);
        let mut expected = Vec::new();
        let mut time = base;
        for (delta, step) in steps {
            time = time.saturating_add(delta);
            let (done, record) = match step {
                Step::Entry(function) => (encoder.entry(time, function), Record::Entry { time, function }),
                Step::Exit => (encoder.exit(time), Record::Exit { time }),
                Step::Unwound(calls) => {
                    let cause = UnwindCause::Jump;
                    (encoder.unwound(time, cause, calls), Record::Unwound { time, cause, calls })
                }
                Step::Lost(records) => (encoder.lost(records), Record::Lost { records }),
                Step::Stack(stack) => (encoder.stack(time, stack), Record::Stack { time, stack }),
                Step::Discarded => (encoder.discarded(time), Record::Discarded { time }),
            };
            if done.is_none() {
                break;
            }
            expected.push(record);
        }
        let used = encoder.used();
        let mut decoder = Decoder::new(&buffer, base);
        let decoded: Result<Vec<_>, _> = decoder.by_ref().collect();
        prop_assert_eq!(decoded.unwrap(), expected.clone());
        prop_assert_eq!(decoder.offset(), used);
        // A shorter file gives a prefix, or an error at its end.
        let cut = used / 2;
        let prefix: Vec<_> = Decoder::new(&buffer[..cut], base).map_while(Result::ok).collect();
        prop_assert!(expected.starts_with(&prefix));
    }

    #[test]
    fn the_quick_way_gives_the_same(bytes: Vec<u8>, base: u64) {
        let mut quick = Decoder::new(&bytes, base);
        let mut decoder = quick.clone();
        loop {
            let record = match quick.plain() {
                Some(plain) => {
                    quick.accept(plain);
                    let Plain { time, function } = plain;
                    Some(Ok(match function {
                        0 => Record::Exit { time },
                        function => Record::Entry { time, function },
                    }))
                }
                None => quick.next(),
            };
            prop_assert_eq!(record, decoder.next());
            prop_assert_eq!(quick.offset(), decoder.offset());
            if record.is_none() {
                break;
            }
        }
    }

    #[test]
    fn any_bytes_are_decoded(bytes: Vec<u8>, base: u64) {
        let mut decoder = Decoder::new(&bytes, base);
        let count = decoder.by_ref().count();
        prop_assert!(count <= bytes.len() / 2 + 1);
        prop_assert!(decoder.offset() <= bytes.len());
    }

    #[test]
    fn escapes_are_decoded_whatever_their_bytes(kind: u8, words in 0..8_u8, tail: Vec<u8>) {
        let mut bytes = vec![0xfe, 0xff, kind, words];
        bytes.extend(&tail);
        prop_assert!(Decoder::new(&bytes, 0).count() <= bytes.len() / 2 + 1);
    }
}

#[test]
fn an_ordinary_call_takes_six_bytes() {
    let mut buffer = [0; 64];
    let mut encoder = Encoder::new(&mut buffer, 0, 1000);
    encoder.entry(1000, 1).unwrap();
    encoder.exit(1000 + MAX_DELTA).unwrap();
    assert_eq!(encoder.used(), 6);
    encoder.exit(1001 + 2 * MAX_DELTA).unwrap();
    assert_eq!(encoder.used(), 6 + 14);
}

#[test]
fn words_of_the_hot_path_are_those_of_the_encoder() {
    let mut buffer = [0; 64];
    Encoder::new(&mut buffer, 0, 0)
        .entry(1 << 20, 1 << 16)
        .unwrap();
    assert_eq!(u32_at(&buffer, 0), TIME_ESCAPE);
    assert_eq!(u32_at(&buffer, 12), ENTRY_ESCAPE);
}

#[test]
fn an_unknown_escape_is_stepped_over() {
    let bytes = [0xfe, 0xff, 99, 2, 1, 2, 3, 4, 3, 0];
    let records: Vec<_> = Decoder::new(&bytes, 5).map(Result::unwrap).collect();
    assert_eq!(
        records,
        [
            Record::Other {
                kind: 99,
                payload: &[1, 2, 3, 4]
            },
            Record::Exit { time: 6 }
        ]
    );
}
