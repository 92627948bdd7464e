//! Tests of the generated code: another disassembler reads the instructions that are meant.

use super::Aarch64;
use super::displace::prologue;
use super::encode::{self as e, bytes};
use super::hot::{HOT_SIZE, hot_code};
use crate::analysis::refusal::Refused;
use crate::arch::{Arch, Thunks};
use crate::pools::hooks::{HookKind, HookOptions, Parameters};
use dioptra_testprograms::{self as programs, or_skip};
use dioptra_tracelayout::message::RuntimeAddresses;
use std::process::Command;

/// Returns the instructions of code at an address, without comments.
fn disassemble(objdump: &std::path::Path, code: &[u8], address: u64) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("code");
    std::fs::write(&file, code).unwrap();
    let output = Command::new(objdump)
        .args(["-D", "-b", "binary", "-m", "aarch64", "--no-show-raw-insn"])
        .arg(format!("--adjust-vma={address:#x}"))
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| {
            let (_, text) = line.trim().split_once(":\t")?;
            let text = text.split("//").next()?.trim();
            Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
        })
        .collect()
}

#[test]
fn instructions_are_those_that_are_meant() {
    let objdump = or_skip!(programs::need_tool("aarch64-linux-gnu-objdump"));
    let all = [
        (e::NOP, "nop"),
        (e::RET, "ret"),
        (e::BTI_C, "bti c"),
        (e::BTI_JC, "bti jc"),
        (e::PACIASP, "paciasp"),
        (e::PACIBSP, "pacibsp"),
        (e::RETURN_TO_X17, "mov x30, x17"),
        (e::KEEP_RETURN, "mov x17, x30"),
        (e::FILL, "brk #0x0"),
        (e::br(9), "br x9"),
        (e::ldr(1, 2, 32760), "ldr x1, [x2, #32760]"),
        (e::str(e::ZR, e::X16, 8), "str xzr, [x16, #8]"),
        (e::ldr_w(11, e::LR, 20), "ldr w11, [x30, #20]"),
        (e::stur(1, 2, 4), "stur x1, [x2, #4]"),
        (e::stur_w(1, 2, 6), "stur w1, [x2, #6]"),
        (e::stur_h(1, 2, 4), "sturh w1, [x2, #4]"),
        (e::stp(11, 12, e::SP, 16), "stp x11, x12, [sp, #16]"),
        (e::ldp(11, 12, e::SP, 16), "ldp x11, x12, [sp, #16]"),
        (e::push(9, 10, 32), "stp x9, x10, [sp, #-32]!"),
        (e::pop(9, 10, 32), "ldp x9, x10, [sp], #32"),
        (e::add(17, e::SP, 24), "add x17, sp, #0x18"),
        (e::add(10, e::SP, 0), "mov x10, sp"),
        (e::add_pages(1, 2, 3), "add x1, x2, #0x3, lsl #12"),
        (e::sub(17, e::SP, 8), "sub x17, sp, #0x8"),
        (e::sub_pages(12, 9, 1), "sub x12, x9, #0x1, lsl #12"),
        (e::sub_register(1, 2, 3), "sub x1, x2, x3"),
        (e::cmp(1, 2), "cmp x1, x2"),
        (e::lsr(1, 2, 3), "lsr x1, x2, #3"),
        (e::low_bits(1, 2, 48), "ubfx x1, x2, #0, #48"),
        (e::orr_shifted(1, 2, 3, 48), "orr x1, x2, x3, lsl #48"),
        (e::orr_twice_w(9, 9, 11), "orr w9, w9, w11, lsl #1"),
        (e::mov(9, 0x7fff), "mov x9, #0x7fff"),
        (e::thread_pointer(16), "mrs x16, tpidr_el0"),
        (e::counter(10), "mrs x10, cntvct_el0"),
    ];
    let words: Vec<u32> = all.iter().map(|(word, _)| *word).collect();
    let found = disassemble(&objdump, &bytes(&words), 0x1000);
    for ((_, expected), found) in all.iter().zip(found) {
        assert_eq!(found, *expected);
    }
    let far = disassemble(&objdump, &bytes(&e::mov_w(3, 0x1234_5678)), 0);
    assert_eq!(far, ["mov w3, #0x5678", "movk w3, #0x1234, lsl #16"]);
}

#[test]
fn branches_reach_as_far_as_they_can() {
    let objdump = or_skip!(programs::need_tool("aarch64-linux-gnu-objdump"));
    let at = 0x1000_0000;
    for to in [at + 4, at - 4, at + (1 << 27) - 4, at - (1 << 27)] {
        let found = disassemble(&objdump, &bytes(&[e::b(at, to).unwrap()]), at);
        assert_eq!(found, [format!("b {to:#x}")]);
        let found = disassemble(&objdump, &bytes(&[e::bl(at, to).unwrap()]), at);
        assert_eq!(found, [format!("bl {to:#x}")]);
    }
    assert_eq!(e::b(at, at + (1 << 27)), None);
    assert_eq!(e::b(at, at - (1 << 27) - 4), None);
    assert_eq!(e::b(at, at + 2), None);
}

/// Returns the code that takes the place of instructions of a function at 0x10000 that are moved to 0x20000.
fn moved(objdump: &std::path::Path, words: &[u32]) -> Vec<String> {
    let prologue = prologue(words.iter().copied(), 0x10000).unwrap();
    disassemble(objdump, &prologue.encode(0x20000).unwrap(), 0x20000)
}

#[test]
fn moved_instructions_mean_the_same() {
    let objdump = or_skip!(programs::need_tool("aarch64-linux-gnu-objdump"));
    let of = |words: &[u32]| moved(&objdump, words);
    // stp x29, x30, [sp, #-16]!
    assert_eq!(
        of(&[0xa9bf_7bfd]),
        ["stp x29, x30, [sp, #-16]!", "b 0x10004"]
    );
    // adr x3, 0x10008; adrp x3, 0x11000: the number behind, and where it is loaded from.
    for (word, number) in [(0x1000_0043, "0x00010008"), (0xb000_0003, "0x00011000")] {
        let found = of(&[word]);
        assert_eq!(found[..2], ["ldr x3, 0x20008", "b 0x10004"]);
        assert_eq!(found[2], format!(".inst {number} ; undefined"));
    }
    // cbz w0, 0x10020; tbnz x1, #40, 0xfffc; b.ne 0x10020
    for (word, branch, target) in [
        (0x3400_0100, "cbz w0, 0x20008", "0x10020"),
        (0xb747_ffe1, "tbnz x1, #40, 0x20008", "0xfffc"),
        (0x5400_0101, "b.ne 0x20008", "0x10020"),
    ] {
        let branches = [branch, "b 0x2000c", &format!("b {target}"), "b 0x10004"];
        assert_eq!(of(&[word]), branches);
    }
    // b 0x10100
    assert_eq!(of(&[0x1400_0040]), ["b 0x10100"]);
    // bl 0x10100
    assert_eq!(of(&[0x9400_0040])[..2], ["ldr x30, 0x20008", "b 0x10100"]);
    // blr x3
    assert_eq!(of(&[0xd63f_0060])[..2], ["ldr x30, 0x20008", "br x3"]);
    // ldr x5, 0x10100; ldr q5, 0x10100
    assert_eq!(
        of(&[0x5800_0805])[..3],
        ["ldr x16, 0x20010", "ldr x5, [x16]", "b 0x10004"]
    );
    assert_eq!(of(&[0x9c00_0805])[1], "ldr q5, [x16]");
    // ret
    assert_eq!(of(&[e::RET]), ["ret"]);
    // A signature and what follows it move together.
    assert_eq!(
        of(&[e::PACIASP, 0xa9bf_7bfd]),
        ["paciasp", "stp x29, x30, [sp, #-16]!", "b 0x10008"]
    );
    let signed = prologue([e::PACIASP, 0xa9bf_7bfd], 0x10000).unwrap();
    let patch = Aarch64::patch(0x10000, 0x20000, Some(&signed)).unwrap();
    assert_eq!(
        disassemble(&objdump, &patch, 0x10000),
        ["bti c", "b 0x20000"]
    );
    // blr x30; blraaz x0
    for word in [0xd63f_03c0, 0xd63f_081f] {
        assert_eq!(prologue([word], 0x10000).unwrap_err(), Refused::Instruction);
    }
}

#[test]
fn hooks_and_thunks_are_whole() {
    let objdump = or_skip!(programs::need_tool("aarch64-linux-gnu-objdump"));
    let runtime = RuntimeAddresses {
        thread_block: 0x1040,
        enter_slow: 0x7f00_1234_5678,
        ..RuntimeAddresses::default()
    };
    let of = |options| {
        hot_code(&Parameters {
            address: 0x10000,
            runtime,
            thunks: (0x30000, 0x31000),
            options,
        })
        .unwrap()
    };
    let hot = of(HookOptions::default());
    let rules = of(HookOptions {
        shift: 1,
        hides: true,
        levels: Some(3),
        ..HookOptions::default()
    });
    assert!(rules.bytes.len() as u64 <= HOT_SIZE);
    for (hot, hook) in [&hot, &rules]
        .iter()
        .flat_map(|hot| hot.hooks.iter().map(move |hook| (hot, hook)))
    {
        let start = (hook.start - 0x10000) as usize;
        let end = (hook.end - 0x10000) as usize;
        let code = disassemble(&objdump, &hot.bytes[start..end], hook.start);
        // Behind the last jump there is an address.
        let (_, code) = code.split_last_chunk::<2>().unwrap();
        let code = &hot.bytes[start..start + 4 * code.len()];
        for (at, text) in disassemble(&objdump, code, hook.start).iter().enumerate() {
            assert!(!text.contains("undefined"), "{text}");
            let Some((_, target)) = text.split_once(" 0x").filter(|_| text.starts_with('b')) else {
                continue;
            };
            let target = u64::from_str_radix(target, 16).unwrap();
            assert!((hook.start..hook.end).contains(&target), "{at}: {text}");
        }
    }
    let set = hot.set(HookKind::Record);
    let code = Aarch64::thunk(0x30000, 7, set, 0x40000).unwrap();
    let found = disassemble(&objdump, &code, 0x30000);
    assert_eq!(
        found[..7],
        [
            "mov x17, x30".to_owned(),
            format!("bl {:#x}", set.enter),
            "bl 0x40000".to_owned(),
            format!("bl {:#x}", set.exit),
            "mov x30, x17".to_owned(),
            "ret".to_owned(),
            "b 0x40000".to_owned(),
        ]
    );
    assert_eq!(code[28..], (7_u32 << 16).to_le_bytes());
}

#[test]
fn calls_are_told_apart_by_their_first_arguments() {
    let objdump = or_skip!(programs::need_tool("aarch64-linux-gnu-objdump"));
    let code = Aarch64::asks(0x1000, &[22, 277], 0x2000, 0x3000).unwrap();
    let expected = [
        "cmp w0, #0x16",
        "b.ne 0x100c",
        "b 0x2000",
        "cmp w0, #0x115",
        "b.ne 0x1018",
        "b 0x2000",
        "b 0x3000",
    ];
    let lines = disassemble(&objdump, &code, 0x1000);
    let without_remarks: Vec<&str> = lines
        .iter()
        .map(|line| line.split(" <").next().unwrap_or(line))
        .collect();
    assert_eq!(without_remarks, expected);
    assert!(Aarch64::asks(0x1000, &[], 0x2000, 0x3000).is_none());
}

#[test]
fn breakpoints_may_lie_between_instructions() {
    let [nop, paciasp] = [e::NOP, e::PACIASP].map(u32::to_le_bytes);
    assert!(Aarch64::is_nothing(&[nop, nop].concat()));
    assert!(!Aarch64::is_nothing(&[nop, paciasp].concat()));
    assert!(!Aarch64::is_nothing(&nop[..3]));
    assert!(Aarch64::is_whole(&paciasp));
    assert!(Aarch64::is_whole(&[nop, nop].concat()));
    assert!(!Aarch64::is_whole(&[paciasp, nop].concat()));
}
