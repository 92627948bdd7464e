//! Any bytes as an ELF file or as code: the saved inputs of the fuzz target, and random changes of them.

#[path = "support/exercise.rs"]
mod exercise;

use proptest::prelude::*;
use std::path::Path;

fn saved() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/code");
    let inputs = std::fs::read_dir(folder).expect("the corpus");
    inputs
        .map(|entry| std::fs::read(entry.expect("an entry").path()).expect("an input"))
        .collect()
}

#[test]
fn saved_inputs_are_taken() {
    let inputs = saved();
    let found = inputs.iter().map(|bytes| exercise::exercise(bytes));
    let found: Vec<usize> = found.collect();
    let fruitful = found.iter().filter(|found| **found > 0).count();
    assert!(fruitful >= 6, "{found:?}");
}

/// Code whose first function can be traced by both processors: an instruction of 64-bit Arm that x86-64 takes for
/// several.
#[test]
fn a_lonely_function_is_found() {
    // push rbp; mov rbp, rsp; sub rsp, 16; leave; ret
    let x86 = [
        1, 0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0xc9, 0xc3,
    ];
    assert!(exercise::exercise(&x86) >= 1);
    // stp x29, x30, [sp, #-16]!; mov x29, sp; ldp x29, x30, [sp], #16; ret
    let words: [u32; 4] = [0xa9bf_7bfd, 0x9100_03fd, 0xa8c1_7bfd, 0xd65f_03c0];
    let arm: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert!(exercise::exercise(&[&[1], arm.as_slice()].concat()) >= 1);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_code_is_taken(choice: u8, code in prop::collection::vec(any::<u8>(), 0..200)) {
        exercise::exercise(&[&[choice | 1], code.as_slice()].concat());
    }

    #[test]
    fn flipped_bytes_are_taken(
        number: prop::sample::Index,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut inputs = saved();
        let number = number.index(inputs.len());
        let bytes = &mut inputs[number];
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        exercise::exercise(bytes);
    }
}
