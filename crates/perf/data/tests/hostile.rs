//! Damaged and hostile bytes: reading ends, tells what is wrong, and takes memory in proportion to the bytes.

#[path = "support/exercise.rs"]
mod exercise;
#[path = "support/rewrite.rs"]
mod rewrite;
#[path = "support/synthetic.rs"]
mod synthetic;

use exercise::exercise;
use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::OnceLock;

/// Counts what this thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    // A thread that ends has no counters any more.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads everything, and checks what that took.
fn check(bytes: &[u8]) {
    let before = HELD.with(Cell::get);
    MOST.with(|most| most.set(before));
    exercise(bytes);
    let taken = MOST.with(Cell::get) - before;
    // The fixed part is what unpacking reserves.
    let allowed = 32 * bytes.len() + (1 << 20);
    assert!(
        taken <= allowed.cast_signed(),
        "{} bytes took {taken} bytes of memory",
        bytes.len()
    );
}

/// The inputs of the fuzzer, and small recordings of many perfs where they are at hand.
fn seeds() -> &'static [Vec<u8>] {
    static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SEEDS.get_or_init(|| {
        let mut seeds: Vec<_> = synthetic::all()
            .into_iter()
            .map(|(_, bytes)| bytes)
            .collect();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data/perfdata");
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry
                .metadata()
                .is_ok_and(|metadata| metadata.len() < 40_000)
            {
                seeds.extend(std::fs::read(entry.path()));
            }
        }
        seeds
    })
}

#[test]
fn every_truncation_is_read() {
    for (_, bytes) in synthetic::all() {
        for end in 0..bytes.len() {
            check(&bytes[..end]);
        }
    }
}

#[test]
fn inputs_of_the_fuzzer_are_read() {
    inputs("recording").iter().for_each(|bytes| check(bytes));
    inputs("writer")
        .iter()
        .for_each(|bytes| rewrite::rewrite(bytes));
}

fn inputs(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let entries = std::fs::read_dir(folder).expect("the fuzzer's inputs");
    let inputs: Vec<_> = entries
        .map(|entry| std::fs::read(entry.expect("an entry").path()).expect("an input"))
        .collect();
    assert!(!inputs.is_empty());
    inputs
}

/// Extreme values in place of the header's words.
#[test]
fn headers_that_lie_are_read() {
    let values = [
        0,
        1,
        7,
        8,
        16,
        63,
        0x7fff,
        u64::from(u32::MAX),
        u64::MAX / 2,
        u64::MAX - 7,
        u64::MAX,
    ];
    for (_, bytes) in synthetic::all() {
        for at in (0..bytes.len().min(400)).step_by(8) {
            for value in values {
                let mut bytes = bytes.clone();
                let end = bytes.len().min(at + 8);
                bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
                check(&bytes);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bits_are_read(
        seed in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 1..20),
        keep in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = seed.get(seeds()).clone();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        if cut {
            bytes.truncate(keep.index(bytes.len()));
        }
        check(&bytes);
    }

    #[test]
    fn words_out_of_place_are_read(
        seed in any::<prop::sample::Index>(),
        words in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), any::<bool>()), 1..6),
    ) {
        let mut bytes = seed.get(seeds()).clone();
        let length = bytes.len();
        for (at, value, small) in words {
            let at = at.index(length - 8) & !7;
            let value = if small { value % 4096 } else { value };
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        check(&bytes);
    }

    #[test]
    fn arbitrary_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..600), pipe in any::<bool>()) {
        check(&bytes);
        let mut file = b"PERFILE2".to_vec();
        file.extend(if pipe { 16_u64 } else { 104 }.to_le_bytes());
        file.extend(bytes);
        check(&file);
    }
}
