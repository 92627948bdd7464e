//! Hashing of small integer keys.

pub(crate) use rustc_hash::FxBuildHasher;

/// Mixes two integers into all bits of the result. Tables take a slot from the low bits and a tag from the high bits,
/// while addresses differ in the middle.
#[inline]
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    // Two odd constants without structure (digits of e and of pi).
    let product = u128::from(a ^ 0x2b7e_1516_28ae_d2a7)
        * u128::from(b.rotate_left(32) ^ 0x243f_6a88_85a3_08d3 ^ a.rotate_left(17));
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::mix;

    #[test]
    fn aligned_addresses_spread_over_low_and_high_bits() {
        let mut low = [0_u32; 64];
        let mut high = [0_u32; 64];
        for index in 0..6400_u64 {
            let hash = mix(3, 0x40_0000 + 16 * index);
            low[(hash & 63) as usize] += 1;
            high[(hash >> 58) as usize] += 1;
        }
        // An even spread puts 100 values into each bucket; 300 in one would show a bad hash.
        assert!(
            low.iter().chain(&high).all(|&count| count < 300),
            "{low:?} {high:?}"
        );
    }
}
