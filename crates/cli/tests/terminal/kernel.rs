//! The running kernel's symbols, which are kept from one run to the next.

use crate::{dioptra, recorded};
use dioptra_testprograms::{self as programs, or_skip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
fn serial_symbols_of_the_kernel_are_kept_and_checked() {
    let program = or_skip!(programs::c("faults", &[]));
    let (folder, file) = or_skip!(recorded(&["-F", "4000"], &program, &["20000", "5"]));
    let cache = folder.path().join("cache");
    let report = |kept: bool| {
        let mut command = dioptra(&["report", "--format", "csv", "-i"]);
        command.arg(&file).env(
            "XDG_CACHE_HOME",
            if kept { &cache } else { Path::new("relative") },
        );
        let output = command.output().expect("it runs");
        assert!(output.status.success());
        // Rows of equal counts stand in the order of their names, one of which changes below.
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n") + "\n"
    };
    let whole = report(false);
    assert!(!cache.exists());
    let of_kernel = |line: &&str| line.contains("[kernel");
    let header = whole.lines().find(|line| line.contains("function_address"));
    let mut columns = header.expect("a header").split(',');
    let function = columns
        .position(|column| column == "function")
        .expect("a column of functions");
    let names = whole
        .lines()
        .filter(of_kernel)
        .filter_map(|line| line.split(',').nth(function));
    let Some(name) = names
        .filter(|name| name.len() > 5 && !name.starts_with('['))
        .max()
    else {
        let reason = "this user cannot sample the kernel or read its symbols";
        return programs::skip(reason);
    };
    assert_eq!(report(true), whole);
    let kept = cache.join("dioptra/kallsyms");
    assert_eq!(
        fs::metadata(&kept).expect("a file").permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(report(true), whole);
    // The command reads the kept symbols: a name that is changed in the file shows up.
    let other = name.to_uppercase().replace('_', "x");
    let change = |bytes: &mut Vec<u8>| {
        let (from, to) = (format!(" {name}\n"), format!(" {other}\n"));
        let mut at = 0;
        let mut changed = 0;
        while let Some(found) = bytes[at..]
            .windows(from.len())
            .position(|part| part == from.as_bytes())
        {
            at += found;
            bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
            changed += 1;
        }
        assert!(changed > 0, "{name} is not kept");
    };
    let mut bytes = fs::read(&kept).expect("a file");
    change(&mut bytes);
    fs::write(&kept, &bytes).expect("a file");
    // A damaged file is not read.
    assert_eq!(report(true), whole);
    let mut bytes = fs::read(&kept).expect("it was written anew");
    change(&mut bytes);
    let checksum = crc32(&bytes[12..]);
    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&kept, &bytes).expect("a file");
    let changed = whole.replace(&format!(",{name},"), &format!(",{other},"));
    let mut changed: Vec<&str> = changed.lines().collect();
    changed.sort_unstable();
    let changed = changed.join("\n") + "\n";
    assert_ne!(changed, whole);
    assert_eq!(report(true), changed);
    // A file that others may read is not read.
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o644)).expect("a mode");
    assert_eq!(report(true), whole);
}

/// Returns the CRC-32 that zip files use.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (0xedb8_8320 * (crc & 1));
        }
    }
    !crc
}
