//! Files that are truncated while they are mapped.

use dioptra_mapped::{MappedFile, truncations};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

/// Larger than any page.
const SIZE: usize = 1 << 20;

fn file(path: &Path, size: usize) -> File {
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    file.write_all(&vec![7; size]).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file
}

fn told(path: &Path) -> Option<u64> {
    let all = truncations();
    let ours = all.iter().find(|truncation| truncation.path == path)?;
    Some(ours.offset)
}

#[test]
fn what_is_missing_reads_as_zeroes_and_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let path = folder.join("a");
    let file = file(&path, SIZE);
    let map = MappedFile::new(&file).unwrap();
    assert_eq!((map.len(), map[SIZE - 1]), (SIZE, 7));
    assert_eq!((map.truncated_at(), told(&path)), (None, None));
    assert!(!map.has_faulted());
    file.set_len(100_000).unwrap();
    // Every page, from several threads at once.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for (at, byte) in map.iter().enumerate() {
                    assert_eq!(*byte, if at < 100_000 { 7 } else { 0 }, "{at}");
                }
            });
        }
    });
    assert_eq!(
        (map.truncated_at(), told(&path)),
        (Some(100_000), Some(100_000))
    );
    assert!(map.has_faulted());
    drop(map);
    assert_eq!(told(&path), Some(100_000));
    let text = truncations()
        .iter()
        .find(|truncation| truncation.path == path)
        .unwrap()
        .to_string();
    let end = "a was truncated while it was read: from byte 100000 on its content is missing";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn a_file_that_can_no_longer_be_found_is_told_by_its_fault() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let path = folder.join("a");
    let file = file(&path, SIZE);
    let map = MappedFile::part(&file, 10_000, SIZE - 10_000).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(0).unwrap();
    assert_eq!(map[0], 0);
    assert!(map.iter().all(|byte| *byte == 0));
    // The page that was missing holds the first byte of the part.
    assert_eq!(map.truncated_at(), Some(10_000));
    assert_eq!(told(&path), Some(10_000));
}

#[test]
fn the_rest_of_a_page_that_is_missing_is_told_though_it_does_not_fault() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let path = folder.join("a");
    let file = file(&path, 1000);
    let map = MappedFile::new(&file).unwrap();
    file.set_len(10).unwrap();
    assert_eq!((map[9], map[10]), (7, 0));
    assert_eq!(map.truncated_at(), Some(10));
}

#[test]
fn mappings_that_are_gone_are_not_ours_any_more() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..50 {
        let path = folder.path().join(format!("{round}"));
        let file = file(&path, SIZE);
        let (first, second) = (MappedFile::new(&file), MappedFile::new(&file));
        drop(first.unwrap());
        let second = second.unwrap();
        if round % 2 == 0 {
            file.set_len(0).unwrap();
        }
        let expected = if round % 2 == 0 { 0 } else { 7 };
        assert!(second.iter().all(|byte| *byte == expected), "{round}");
        second.release(0..SIZE);
        assert!(second.iter().all(|byte| *byte == expected), "{round}");
    }
}

/// Runs a test of this file that is ignored otherwise, in a process of its own.
fn alone(test: &str) -> std::process::ExitStatus {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--test-threads=1"])
        .output()
        .unwrap()
        .status
}

#[test]
fn signals_that_are_not_ours_end_the_process_as_ever() {
    assert_eq!(
        alone("ends_by_a_fault_elsewhere").signal(),
        Some(libc::SIGBUS)
    );
    assert_eq!(alone("ends_by_a_signal").signal(), Some(libc::SIGBUS));
    assert!(alone("a_handler_from_before_is_called").success());
}

/// Maps something with us, so that the handler is installed.
fn install() -> MappedFile {
    MappedFile::new(&File::open("/proc/self/exe").unwrap()).unwrap()
}

/// Reads behind the end of a file that is mapped without us.
fn fault_elsewhere() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(SIZE as u64).unwrap();
    // SAFETY: the test reads what is not there: that is its point.
    unsafe {
        let flags = libc::MAP_SHARED;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let map = libc::mmap(std::ptr::null_mut(), SIZE, libc::PROT_READ, flags, fd, 0);
        assert_ne!(map, libc::MAP_FAILED);
        file.set_len(0).unwrap();
        map.cast::<u8>().read_volatile();
    }
}

#[test]
#[ignore = "ends its process"]
fn ends_by_a_fault_elsewhere() {
    let _map = install();
    fault_elsewhere();
}

#[test]
#[ignore = "ends its process"]
fn ends_by_a_signal() {
    // The standard library's handler takes every signal for a fault, which would come again.
    // SAFETY: the default action needs no care.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    let _map = install();
    // SAFETY: numbers only.
    unsafe { libc::raise(libc::SIGBUS) };
}

#[test]
#[ignore = "changes its process"]
fn a_handler_from_before_is_called() {
    extern "C" fn leave(_: i32) {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: the handler does what handlers may do.
    unsafe { libc::signal(libc::SIGBUS, leave as *const () as usize) };
    let _map = install();
    fault_elsewhere();
    panic!("the handler was not called");
}
