//! Code of the kernel: from its own file, where that is there.

use super::{annotated, list, number, record};
use dioptra_testprograms::{self as programs, or_skip};

/// Samples at known instructions of a kernel that lay elsewhere than it was linked for.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_kernels_code_comes_from_its_file() {
    use super::support::{ID, Records, attr, event};
    use dioptra_perfdata::{FeaturesToWrite, WriteOptions, Writer};
    use dioptra_perfevents::SampleType;
    use serde_json::Value;
    use std::collections::BTreeMap;

    const RECORDED: u64 = 0xffff_ffff_a2e0_0000;
    or_skip!(programs::need_tool("objdump"));
    let vmlinux = or_skip!(programs::kernel(&[]));
    let output = std::process::Command::new("objdump")
        .args(["-d", "-w", "--disassemble=work"])
        .arg(&vmlinux)
        .output()
        .expect("objdump runs");
    let listing = String::from_utf8_lossy(&output.stdout).into_owned();
    let code = listing.lines().filter_map(|line| line.split_once(":\t"));
    let addresses: Vec<u64> = code
        .filter_map(|(address, _)| u64::from_str_radix(address.trim(), 16).ok())
        .collect();
    let mut records = Records::default();
    records.map(
        u32::MAX,
        RECORDED,
        0x100_0000,
        RECORDED,
        "[kernel.kallsyms]_text",
    );
    let mut expected = BTreeMap::new();
    for (index, address) in addresses.iter().enumerate() {
        for _ in 0..index % 4 {
            let ip = address - programs::KERNEL_LINKED + RECORDED;
            records.sample(ID, (5, 5), ip, 10, &[]);
            *expected.entry(*address).or_default() += 1;
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("perf.data");
    let events = [event("cpu-clock", attr(SampleType::empty()), &[ID])];
    let out = std::fs::File::create(&file).expect("a file");
    let mut writer = Writer::create(out, &events, WriteOptions::default()).expect("a writer");
    for record in &records.list {
        writer.write(record).expect("written");
    }
    let features = FeaturesToWrite {
        os_release: Some("2.4.0-made-here".to_owned()),
        ..FeaturesToWrite::default()
    };
    writer.finish(&features).expect("finished");

    let given = ["--vmlinux", vmlinux.to_str().expect("UTF-8")];
    let show = |function: &str| -> Value {
        let arguments = [&[function, "--format", "json"][..], &given].concat();
        let text = super::shown("annotate", &arguments, &file);
        serde_json::from_str(&text).expect("JSON")
    };
    let json = show("work");
    super::check_sums(&json);
    assert_eq!(super::by_address(&json), expected);
    let found = list(&json, "instructions").iter();
    let found: Vec<u64> = found
        .map(|place| number(&place["virtual_address"]))
        .collect();
    assert_eq!(found, addresses);
    assert_eq!(list(&json, "loops").len(), 1);
    assert!(list(&json, "lines").iter().any(|line| {
        let name = line["file"].as_str().unwrap_or_default();
        name.ends_with("kernel.c") && line["line"] == 15
    }));
    assert_eq!(json["facts"]["kernel_file"]["severity"], "info");
    // By objdump's address, and by the recorded one.
    for base in [programs::KERNEL_LINKED, RECORDED] {
        let address = addresses[1] - programs::KERNEL_LINKED + base;
        let at = show(&format!("[kernel.kallsyms]:{address:#x}"));
        assert_eq!(at["function"]["raw_name"], "work", "{address:#x}");
    }
    // Calls know whom they call.
    let more = show("more");
    let calls = list(&more, "instructions").iter().filter(|place| {
        let target = &place["target"];
        target["function"]
            .as_str()
            .is_some_and(|name| name == "work")
    });
    assert_eq!(calls.count(), 2, "{more}");
    // Blocks too.
    let arguments = [&["--by", "block", "--format", "json"][..], &given].concat();
    let blocks: Value =
        serde_json::from_str(&super::shown("report", &arguments, &file)).expect("JSON");
    assert!(list(&blocks, "rows").len() >= 2, "{blocks}");
}

#[test]
fn without_its_file_the_kernel_has_addresses_only() {
    or_skip!(programs::need_root());
    let program = or_skip!(programs::c("faults", &[]));
    let recorded = or_skip!(record(&["-e", "cpu-clock"], &[program.as_os_str()]));
    let functions = super::functions(&recorded, "[kernel.kallsyms]");
    let Some((name, samples)) = functions
        .into_iter()
        .find(|(name, _)| !name.starts_with('['))
    else {
        return programs::skip("no kernel function was sampled");
    };
    let json = annotated(&format!("[kernel.kallsyms]:{name}"), &recorded.file);
    assert_eq!(number(&json["events"][0]["function"]["samples"]), samples);
    if json["facts"]["kernel_file"].is_object() {
        return programs::skip("this kernel's file is here");
    }
    assert!(
        json["facts"]["no_code"]["text"]
            .as_str()
            .is_some_and(|text| text.contains("--vmlinux"))
    );
}
