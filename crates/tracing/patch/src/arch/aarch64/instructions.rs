//! Properties of overwritten instructions that matter to debuggers.

/// `nop`.
const NOTHING: [u8; 4] = 0xd503_201f_u32.to_le_bytes();

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
    use crate::arch::{Aarch64, Arch};

    #[test]
    fn breakpoints_may_lie_between_instructions() {
        let nop = NOTHING;
        let paciasp = 0xd503_233f_u32.to_le_bytes();
        assert!(is_nothing(&[nop, nop].concat()));
        assert!(!is_nothing(&[nop, paciasp].concat()));
        assert!(Aarch64::is_whole(&paciasp));
        assert!(Aarch64::is_whole(&[nop, nop].concat()));
        assert!(!Aarch64::is_whole(&[paciasp, nop].concat()));
    }
}
