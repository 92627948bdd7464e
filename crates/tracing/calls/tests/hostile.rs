//! Any bytes as a trace: the saved inputs of the fuzz target, and mixtures of records.

#[path = "support/exercise.rs"]
mod exercise;

use dioptra_tracelayout::record::UnwindCause;
use dioptra_tracelayout::{ChunkHeader, Encoder, FunctionEntry, FunctionKind, VERSION, chunk};
use proptest::prelude::*;
use std::path::Path;

#[test]
fn saved_inputs_are_taken() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/trace");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus") {
        exercise::exercise(&std::fs::read(entry.expect("an entry").path()).expect("an input"));
        count += 1;
    }
    assert!(count >= 6, "{count} inputs");
}

/// A record in a mixture: its kind, its distance in ticks, and a number.
type Mixed = (u8, u16, u32);

/// Returns the bytes of an input: rules, and chunks with their stream, claimed depth, lost records, and records.
fn input(rules: u8, chunks: &[(u8, u32, u64, Vec<Mixed>)]) -> Vec<u8> {
    let mut functions = FunctionEntry::NONE.to_bytes().to_vec();
    for place in 0..3 {
        let entry = FunctionEntry {
            module: 1,
            kind: FunctionKind::LibraryCall,
            method: 7,
            place,
            size: 1,
        };
        functions.extend(entry.to_bytes());
    }
    let mut bytes = vec![rules, 0, 0];
    bytes.extend((functions.len() as u16).to_le_bytes());
    bytes.extend(functions);
    let mut time = 10;
    for (sequence, (stream, depth, lost, records)) in chunks.iter().enumerate() {
        let mut body = vec![0; records.len() * 28];
        let mut encoder = Encoder::new(&mut body, 0, time);
        for (kind, delta, number) in records {
            let at = encoder.time() + u64::from(*delta);
            let done = match kind % 8 {
                0..3 => encoder.entry(at, number % 5 + 1),
                3..5 => encoder.exit(at),
                5 => encoder.unwound(at, UnwindCause::Jump, number % 4),
                6 => encoder.lost(u64::from(*number)),
                _ => encoder.stack(at, number % 3),
            };
            done.expect("room");
        }
        let used = encoder.used();
        time = encoder.time();
        body.truncate(used.next_multiple_of(8));
        body.resize(used.next_multiple_of(8), 0);
        let header = ChunkHeader {
            magic: chunk::MAGIC,
            version: VERSION,
            size: (chunk::HEADER_SIZE + body.len()) as u32,
            stream: u32::from(stream % 3),
            sequence: sequence as u32 / 2,
            base: 10,
            depth: *depth,
            lost: *lost as u32,
            ..ChunkHeader::default()
        };
        bytes.extend(header.to_bytes());
        bytes.extend(body);
    }
    bytes
}

fn chunks() -> impl Strategy<Value = Vec<(u8, u32, u64, Vec<Mixed>)>> {
    let record = (any::<u8>(), 0..300_u16, any::<u32>());
    let depth = prop_oneof![Just(0_u32), 0..6_u32, any::<u32>()];
    let lost = prop_oneof![Just(0_u64), any::<u64>()];
    let records = prop::collection::vec(record, 0..60);
    prop::collection::vec((any::<u8>(), depth, lost, records), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn mixtures_of_records_are_taken(rules: u8, chunks in chunks()) {
        exercise::exercise(&input(rules, &chunks));
    }

    #[test]
    fn flipped_bytes_are_taken(
        rules: u8,
        chunks in chunks(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = input(rules, &chunks);
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        exercise::exercise(&bytes);
    }
}
