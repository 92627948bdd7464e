//! Damaged profiles: every import gives a recording or an error, and never more memory than the profile deserves.

use dioptra_export::{ImportFormat, ImportOptions, import};
use dioptra_perfdata::PerfData;
use dioptra_profile::{LoadOptions, Names, Profile};
use std::io::Cursor;

/// Imports a profile. What was written must be readable.
fn try_import(content: &[u8], format: Option<ImportFormat>) -> bool {
    let options = ImportOptions {
        format,
        ..ImportOptions::default()
    };
    let mut out = Cursor::new(Vec::new());
    let Ok(imported) = import(content, options, &mut out) else {
        return false;
    };
    let data = PerfData::from_bytes(out.into_inner()).expect("a recording");
    let profile = Profile::load(
        &data,
        LoadOptions {
            call_chains: true,
            threads: true,
        },
    );
    for (event, read) in imported.events.iter().zip(profile.events()) {
        assert_eq!(event.samples, read.total().samples);
        if read.weighs_events() {
            assert_eq!(event.weight, read.total().weight);
        }
    }
    assert_eq!(profile.losses().summary.stopped_at, None);
    Names::find(&profile, dioptra_symbols::SymbolOptions::default());
    true
}

fn number(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Adds a field that is a message of numbers.
fn message(into: &mut Vec<u8>, field: u8, numbers: &[(u8, u64)]) {
    let mut inner = Vec::new();
    for (field, value) in numbers {
        inner.push(field << 3);
        number(&mut inner, *value);
    }
    into.push(field << 3 | 2);
    number(into, inner.len() as u64);
    into.extend(inner);
}

/// A profile of two samples, three locations and two mappings.
fn pprof() -> Vec<u8> {
    let mut all = Vec::new();
    message(&mut all, 1, &[(1, 1), (2, 2)]);
    message(&mut all, 1, &[(1, 3), (2, 4)]);
    message(&mut all, 2, &[(1, 1), (1, 2), (2, 3), (2, 30)]);
    message(&mut all, 2, &[(1, 3), (1, 2), (2, 1), (2, 10)]);
    message(
        &mut all,
        3,
        &[(1, 1), (2, 0x1000), (3, 0x3000), (4, 0), (5, 5)],
    );
    message(
        &mut all,
        3,
        &[
            (1, 2),
            (2, u64::MAX - 0xffff),
            (3, u64::MAX),
            (4, u64::MAX - 0xffff),
            (5, 6),
        ],
    );
    for (id, mapping, address) in [(1, 1, 0x1010), (2, 1, 0x2020), (3, 2, u64::MAX - 0xff)] {
        let mut inner = Vec::new();
        for (field, value) in [(1, id), (2, mapping), (3, address)] {
            inner.push(field << 3);
            number(&mut inner, value);
        }
        message(&mut inner, 4, &[(1, 1), (2, 7)]);
        all.push(4 << 3 | 2);
        number(&mut all, inner.len() as u64);
        all.extend(inner);
    }
    message(&mut all, 5, &[(1, 1), (2, 7), (3, 7), (4, 8)]);
    let texts = [
        "",
        "samples",
        "count",
        "cpu",
        "nanoseconds",
        "/bin/a",
        "[kernel.kallsyms]",
        "main",
        "a.c",
    ];
    for text in texts {
        all.push(6 << 3 | 2);
        number(&mut all, text.len() as u64);
        all.extend(text.as_bytes());
    }
    all
}

#[test]
fn damaged_pprof_profiles() {
    let whole = pprof();
    assert!(try_import(&whole, None), "the profile itself");
    for cut in 0..whole.len() {
        try_import(&whole[..cut], Some(ImportFormat::Pprof));
    }
    for at in 0..whole.len() {
        for flip in [1, 2, 4, 0x10, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] ^= flip;
            try_import(&damaged, Some(ImportFormat::Pprof));
            try_import(&damaged, None);
        }
    }
}

#[test]
fn values_beyond_what_a_recording_holds() {
    let mut all = Vec::new();
    message(&mut all, 1, &[(1, 1), (2, 2)]);
    message(&mut all, 2, &[(2, 1 << 40)]);
    for text in ["", "samples", "count"] {
        all.push(6 << 3 | 2);
        number(&mut all, text.len() as u64);
        all.extend(text.as_bytes());
    }
    // A million million samples become one of their weight.
    let mut out = Cursor::new(Vec::new());
    let imported = import(&all, ImportOptions::default(), &mut out).expect("an import");
    assert_eq!(imported.events[0].samples, 1);
    assert_eq!(imported.events[0].weight, 1 << 40);
    assert!(!imported.omitted.is_empty());
    assert!(out.into_inner().len() < 10_000);
    // A negative value.
    let mut negative = all.clone();
    let from = negative
        .iter()
        .position(|byte| *byte == 0x12)
        .expect("a sample");
    negative.splice(from.., []);
    message(&mut negative, 2, &[(2, u64::MAX)]);
    assert!(!try_import(&negative, Some(ImportFormat::Pprof)));
}

#[test]
fn damaged_texts() {
    let script = b"prog 12/13 [001] 1.000001:   5 cycles:u: \n\t  401 main+0x1 (/bin/a (deleted))\n  a.c:3\n\n\
        prog 12/13 [001] 1.000002:   5 cycles:u:   401 main+0x1 (/bin/a)\n";
    let collapsed = b"prog;main;a 1\nprog;main;b 2\n";
    assert!(try_import(script, None));
    assert!(try_import(collapsed, None));
    for (text, format) in [
        (&script[..], ImportFormat::PerfScript),
        (&collapsed[..], ImportFormat::Collapsed),
    ] {
        for at in 0..text.len() {
            try_import(&text[..at], Some(format));
            for other in [b'\n', b' ', b';', b'(', b')', b'\t', b'9', 0, 0xff] {
                let mut damaged = text.to_vec();
                damaged[at] = other;
                try_import(&damaged, Some(format));
                try_import(&damaged, None);
            }
        }
    }
}
