//! Any bytes decode, in order and without gaps, and no graph takes long.
#![allow(clippy::unwrap_used)]

use dioptra_instructions::{
    CallBlocks, CodeSpace, EdgeEnd, FunctionCode, InstructionKind, InstructionText, Syntax,
};
use dioptra_symbols::CodeMachine;
use proptest::prelude::*;

/// Reads whatever is asked for.
struct Anything(Vec<u8>);

impl CodeSpace for Anything {
    fn relative(&self, virtual_address: u64) -> Option<u64> {
        (!virtual_address.is_multiple_of(3)).then_some(virtual_address ^ 0x1000)
    }

    fn read(&self, virtual_address: u64, into: &mut [u8]) -> bool {
        for (at, byte) in into.iter_mut().enumerate() {
            let at = virtual_address.wrapping_add(at as u64) as usize;
            *byte = self.0.get(at % self.0.len().max(1)).copied().unwrap_or(0);
        }
        true
    }
}

fn walk(machine: CodeMachine, bytes: Vec<u8>, address: u64, virtual_address: u64) {
    let space = Anything(bytes.clone());
    let code =
        FunctionCode::decode(machine, bytes.clone(), address, virtual_address, &space).unwrap();
    let mut text = [Syntax::AtAndT, Syntax::Intel].map(InstructionText::new);
    let mut at = 0;
    for (index, instruction) in code.instructions().enumerate() {
        assert_eq!(instruction.address, address.wrapping_add(at as u64));
        assert_eq!(instruction.bytes, &bytes[at..at + instruction.bytes.len()]);
        assert!(!instruction.bytes.is_empty());
        assert_eq!(code.get(index), Some(instruction));
        at += instruction.bytes.len();
        for text in &mut text {
            let mut written = String::new();
            text.write(&code, &instruction, &mut written);
            assert!(!written.is_empty());
            let _ = text.data_address(&code, &instruction);
        }
    }
    assert_eq!(at, bytes.len());
    for calls in [CallBlocks::Continue, CallBlocks::End] {
        let flow = code.control_flow(calls);
        let covered: usize = flow
            .blocks()
            .iter()
            .map(|block| block.instructions.len())
            .sum();
        assert_eq!(covered, code.len());
        let inner = flow
            .edges()
            .iter()
            .filter(|edge| matches!(edge.to, EdgeEnd::Block(_)));
        let incoming: usize = (0..flow.blocks().len())
            .map(|b| flow.predecessors(b).len())
            .sum();
        assert_eq!(inner.count(), incoming);
        let loops = flow.loops();
        for each in loops.loops() {
            assert_eq!(
                loops
                    .innermost(each.header)
                    .map(|i| loops.loops()[i].header),
                Some(each.header)
            );
        }
    }
}

fn machine() -> impl Strategy<Value = CodeMachine> {
    prop_oneof![
        Just(CodeMachine::X86_64),
        Just(CodeMachine::I386),
        Just(CodeMachine::Aarch64)
    ]
}

/// Bytes of which many are short jumps, so that graphs become dense.
fn jumps() -> impl Strategy<Value = Vec<u8>> {
    let jump = prop_oneof![
        (0x70_u8..0x80, any::<u8>()).prop_map(|(code, distance)| vec![code, distance]),
        any::<u8>().prop_map(|distance| vec![0xeb, distance]),
        Just(vec![0xff, 0x24, 0xc5, 0, 0, 0, 0]),
        Just(vec![0x83, 0xf8, 0x07]),
        Just(vec![0x90]),
        proptest::collection::vec(any::<u8>(), 1..4),
    ];
    proptest::collection::vec(jump, 0..300).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_decode(
        machine in machine(),
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        address in any::<u64>(),
        virtual_address in any::<u64>(),
    ) {
        walk(machine, bytes, address, virtual_address);
    }

    #[test]
    fn any_jumps_make_a_graph(machine in machine(), bytes in jumps(), address in any::<u32>()) {
        walk(machine, bytes, address.into(), 0);
    }
}

#[test]
fn every_kind_of_arm_word_has_text() {
    let mut text = InstructionText::new(Syntax::AtAndT);
    let mut word = 0x1234_5678_u32;
    let words = (0..200_000).flat_map(|_| {
        // A linear congruential generator.
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        word.to_le_bytes()
    });
    let code = FunctionCode::decode(CodeMachine::Aarch64, words.collect(), 0, 0, &()).unwrap();
    let mut unknown = 0;
    for instruction in code.instructions() {
        let mut written = String::new();
        text.write(&code, &instruction, &mut written);
        unknown += usize::from(written.starts_with(".inst"));
    }
    eprintln!("{unknown} of {} words have no text", code.len());
}

/// Graphs that take quadratic time in the textbook's algorithms.
#[test]
fn large_graphs_end() {
    // As many nested loops as there are jumps: each goes back one further.
    let count = 60_000_u32;
    let mut nested = vec![0x90; count as usize];
    for at in 0..count {
        let distance = i64::from(count - 1 - at) - (i64::from(count) + i64::from(at) * 6 + 6);
        nested.extend_from_slice(&[0x0f, 0x84]);
        nested.extend_from_slice(&(distance as i32).to_le_bytes());
    }
    let code = FunctionCode::decode(CodeMachine::X86_64, nested, 0, 0, &()).unwrap();
    let loops = code.control_flow(CallBlocks::Continue).loops();
    assert_eq!(loops.loops().len(), count as usize);
    assert_eq!(
        loops.loops().iter().map(|each| each.depth).max(),
        Some(count as usize)
    );

    // Nothing but indirect jumps.
    let jumps = [0xff, 0xe0].repeat(1 << 20);
    let code = FunctionCode::decode(CodeMachine::X86_64, jumps, 0, 0, &Anything(vec![1])).unwrap();
    let flow = code.control_flow(CallBlocks::Continue);
    assert_eq!(flow.unresolved_jumps(), 1 << 20);
    assert!(flow.loops().loops().is_empty());
    assert!(
        code.instructions()
            .all(|each| each.kind == InstructionKind::IndirectJump)
    );

    let too_long = vec![0; (4 << 20) + 1];
    assert!(FunctionCode::decode(CodeMachine::X86_64, too_long, 0, 0, &()).is_err());
}
