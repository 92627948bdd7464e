//! Any bytes as an ELF file or as code: its functions are found, and pools are made for them.
//!
//! The fuzz target and the test of its corpus share this file.

use dioptra_filters::{Probe, SampleKind, Sampling};
use dioptra_trace_patch::{
    Aarch64, Arch, Body, Candidate, CandidateBody, HookOptions, HookWork, Prologue, ScanOptions,
    ThunkRequest, Work, X86_64, finds_frames_by_stack_pointer, has_hidden_sanitizer, has_hooks,
    hooked_code, segments,
};
use dioptra_tracelayout::message::RuntimeAddresses;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection};

/// The distance at which modules are loaded.
const BIAS: u64 = 0x5000_0000;
/// The address of pools.
const POOL: u64 = 0x4000_0000;
/// The size of a page in bytes.
const PAGE: u64 = 4096;
/// The largest number of functions for which a pool is made.
const MOST: usize = 300;

/// Takes bytes: the first one says what the others are, and which options hold. Returns the number of functions that can
/// be traced.
pub fn exercise(bytes: &[u8]) -> usize {
    let Some((choice, rest)) = bytes.split_first() else {
        return 0;
    };
    match choice & 1 {
        0 => one::<X86_64>(rest, *choice) + one::<Aarch64>(rest, *choice),
        _ => {
            one::<X86_64>(&file_of(rest, &X86_CIE), *choice)
                + one::<Aarch64>(&file_of(rest, &ARM_CIE), *choice)
        }
    }
}

/// Analyses a file for a processor, and makes pools for its functions.
fn one<A: Arch>(data: &[u8], choice: u8) -> usize {
    let _ = (A::is_whole(data), A::is_nothing(data));
    let Ok(elf) = ElfFile64::<Endianness>::parse(data) else {
        assert!(A::hooks(data).is_empty());
        return 0;
    };
    let _ = (has_hooks(&elf), has_hidden_sanitizer(&elf));
    let _ = hooked_code(&elf, &segments(&elf));
    let _ = finds_frames_by_stack_pointer("libunwind.so", &elf, data);
    let options = ScanOptions {
        plain: choice & 2 == 0,
        library_calls: choice & 4 == 0,
        threads: 2,
    };
    let Ok(code) = A::scan(data, options) else {
        return 0;
    };
    let sites = code.candidates.iter().map(|candidate| candidate.site);
    assert!(sites.clone().zip(sites.skip(1)).all(|(a, b)| a < b));
    for (start, refused) in &code.refused {
        let _ = (code.file_offset(*start), refused.reason().len());
    }
    let leaves = A::leaves(data, code.candidates.iter());
    let mut wanted = Vec::new();
    let mut patched = Vec::new();
    for hook in A::hooks(data) {
        wanted.push(ThunkRequest::<A> {
            work: match hook.work {
                HookWork::Observe(function) => Work::Observe(function),
                HookWork::Execve => Work::Replace(0x7f00_1234_5678),
            },
            body: Body::Displaced(hook.prologue.rebase(BIAS)),
            is_leaf: false,
            values: None,
            places: Vec::new(),
        });
        patched.push((hook.site, Some(hook.prologue)));
    }
    for (id, candidate) in (1_u32..).zip(code.candidates.iter().take(MOST)) {
        let probe = probe(id);
        let (body, prologue) = match &candidate.body {
            CandidateBody::At(at) => (Body::At(at.wrapping_add(BIAS)), None),
            CandidateBody::Displaced(prologue) => (
                Body::Displaced(prologue.rebase(BIAS)),
                Some(prologue.clone()),
            ),
            CandidateBody::Pointer(at) => (Body::Pointer(at.wrapping_add(BIAS)), None),
            CandidateBody::Itself => continue,
        };
        wanted.push(ThunkRequest {
            work: match candidate.is_told() {
                true => Work::Tell(id * 999, probe),
                false => Work::Trace(id * 999, probe),
            },
            body,
            is_leaf: leaves.contains(&candidate.start),
            values: None,
            places: calls(candidate),
        });
        patched.push((candidate.site, prologue));
    }
    let options = HookOptions {
        hides: choice & 8 == 0,
        levels: (choice & 16 != 0).then_some(3),
        samples: true,
        marks: choice & 32 != 0,
        other_clock: choice & 64 != 0,
        ..HookOptions::default()
    };
    let runtime = RuntimeAddresses {
        thread_block: 0x1040,
        enter_slow: 0x7f00_0000_1000,
        exit_slow: 0x7f00_0000_2000,
        observe: 0x7f00_0000_3000,
        ..RuntimeAddresses::default()
    };
    let bound = A::upper_bound(&wanted, PAGE);
    let pool = A::pool(POOL, &wanted, runtime, options, PAGE).expect("hooks do not depend on code");
    assert!(pool.size <= bound && pool.file.len() as u64 <= pool.size);
    assert_eq!(pool.thunks.len(), wanted.len());
    let file = ElfFile64::<Endianness>::parse(pool.file.as_slice()).expect("the pool's own file");
    let text = file.section_by_name(".plt").expect("the pool's code");
    let inside = text.address()..text.address() + text.size();
    for (thunk, (site, prologue)) in pool.thunks.iter().zip(&patched) {
        let Some(thunk) = thunk else { continue };
        assert!(inside.contains(thunk));
        if let Some(patch) = A::patch(site.wrapping_add(BIAS), *thunk, prologue.as_ref()) {
            assert!(patch.len() >= A::JUMP);
            let _ = A::is_nothing(&patch);
        }
    }
    for candidate in &code.candidates {
        for call in &candidate.calls {
            let direct = A::direct(&call.rebase(BIAS), POOL).map(|bytes| bytes.len() as u64);
            assert!(direct.is_none_or(|size| size == call.size()));
        }
    }
    code.candidates.len()
}

/// Returns the addresses of a candidate's calls where the module is loaded.
fn calls<A: Arch>(candidate: &Candidate<A>) -> Vec<u64> {
    let calls = candidate.calls.iter();
    calls.map(|call| call.rebase(BIAS).at).collect()
}

/// Returns a probe for a function: all kinds follow each other.
fn probe(id: u32) -> Probe {
    let sampling = |kind| Sampling {
        kind,
        parameter: u64::from(id),
        slot: id % 50,
        tail: id % 9,
    };
    match id % 8 {
        0 => Probe::Timed,
        1 => Probe::Record,
        2 => Probe::Filter,
        3 => Probe::Mute,
        4 => Probe::Sample(sampling(SampleKind::Every)),
        5 => Probe::SampleFilter(sampling(SampleKind::Rate)),
        6 => Probe::JudgeFilter(sampling(SampleKind::Tail)),
        _ => Probe::SampleFilter(sampling(SampleKind::Random)),
    }
}

/// The common entries of unwind tables: the CFA is the stack pointer plus 8 or 0 where a function begins.
const X86_CIE: [u8; 24] = [
    20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
];
const ARM_CIE: [u8; 24] = [
    20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 30, 1, 0x1b, 0x0c, 31, 0, 0, 0, 0, 0,
];

/// Returns an ELF file whose only function has this code.
fn file_of(code: &[u8], cie: &[u8; 24]) -> Vec<u8> {
    const NAMES: &[u8; 32] = b"\0.text\0.eh_frame\0.shstrtab\0\0\0\0\0\0";
    const START: u64 = 64 + 56;
    let names = START + code.len().next_multiple_of(8) as u64;
    let frames = names + NAMES.len() as u64;
    let headers = frames + 24 + 24 + 8;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let put = |file: &mut Vec<u8>, words: &[u64]| {
        file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    };
    // A shared object for x86-64. No processor's analysis asks for the machine.
    file.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    put(&mut file, &[0, 64, headers]);
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 4, 0, 3, 0]);
    // One segment: loaded, to be read and executed.
    put(&mut file, &[1 | 5 << 32, 0, 0, 0, headers, headers, 4096]);
    file.extend(code);
    file.resize(names as usize, 0);
    file.extend(NAMES);
    file.extend(cie);
    // The function's entry: its size, the distance to the common entry, its start and size, no further rows.
    file.extend([20, 0, 0, 0, 28, 0, 0, 0]);
    let start = START.wrapping_sub(frames + 24 + 8) as u32;
    file.extend(start.to_le_bytes());
    file.extend((code.len() as u32).to_le_bytes());
    file.extend([0; 8]);
    file.extend([0; 8]);
    put(&mut file, &[0; 8]);
    for (name, flags, from, size) in [
        (1, 6, START, code.len() as u64),
        (7, 2, frames, 52),
        (17, 0, names, NAMES.len() as u64),
    ] {
        put(
            &mut file,
            &[name | 1 << 32, flags, from, from, size, 0, 1, 0],
        );
    }
    file
}
