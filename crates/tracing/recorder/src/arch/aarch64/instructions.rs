//! Properties of overwritten instructions that matter to debuggers.

/// The compiler option that leaves room for a patch.
pub const ROOM: &str = "-fpatchable-function-entry=2";

/// `nop`.
const NOTHING: [u8; 4] = 0xd503_201f_u32.to_le_bytes();

/// Whether threads may execute an instruction while one write overwrites it. All instructions have the same size, and
/// are fetched whole.
pub const SEES_AT_ONCE: bool = true;

/// Returns whether the overwritten bytes are one instruction, or do nothing. Breakpoints are set where an instruction
/// begins.
pub fn is_whole(original: &[u8]) -> bool {
    is_one_instruction(original) || is_nothing(original)
}

/// Returns whether the overwritten bytes are one instruction.
pub fn is_one_instruction(original: &[u8]) -> bool {
    original.len() <= NOTHING.len()
}

/// Returns whether these are instructions that do nothing.
pub fn is_nothing(bytes: &[u8]) -> bool {
    bytes.chunks(NOTHING.len()).all(|next| next == NOTHING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakpoints_may_lie_between_instructions() {
        let nop = NOTHING;
        let paciasp = 0xd503_233f_u32.to_le_bytes();
        assert!(is_nothing(&[nop, nop].concat()));
        assert!(!is_nothing(&[nop, paciasp].concat()));
        assert!(is_whole(&paciasp));
        assert!(is_whole(&[nop, nop].concat()));
        assert!(!is_whole(&[paciasp, nop].concat()));
    }
}
