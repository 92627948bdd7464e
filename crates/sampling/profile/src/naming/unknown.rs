//! Separates places without a name by their range of addresses.

use crate::naming::names::{FunctionId, FunctionName, Names, hash_of};
use crate::processes::modules::UNKNOWN;
use crate::profile::Profile;
use crate::stacks::frames::FrameId;
use std::collections::BTreeMap;

/// Bits of the smallest range: 64 KiB.
const SMALLEST: u32 = 16;
/// The largest number of ranges in a module. The ranges grow until there are at most this many.
const MOST_RANGES: usize = 16;

impl Names {
    /// Names places without any name by their range of addresses, up to 16 ranges of one size in each module. Otherwise
    /// all unnamed places of a module are one function, which seems to call everything in tables with totals. Call this
    /// before [`Names::find_debug_info`].
    pub fn split_unknown(&mut self, profile: &Profile) {
        let mut places: BTreeMap<FunctionId, Vec<(u64, FrameId)>> = BTreeMap::new();
        for (frame, function) in (0_u32..).zip(&self.of_frame) {
            if self.functions[*function as usize].is_unknown() {
                let address = profile.frames().get(frame).address;
                places.entry(*function).or_default().push((address, frame));
            }
        }
        for (function, mut places) in places {
            places.sort_unstable();
            let shift = shift_of(&places);
            // The first range reuses the id of the function that is split.
            let mut id = function;
            for (number, range) in places
                .chunk_by(|one, other| one.0 >> shift == other.0 >> shift)
                .enumerate()
            {
                let start = range[0].0 >> shift << shift;
                let end = start | ((1 << shift) - 1);
                let name = format!("{UNKNOWN} {start:#x}..{end:#x}");
                let named = FunctionName {
                    module: self.functions[function as usize].module,
                    start: Some(start),
                    file: None,
                    link_name: hash_of(&name),
                    name,
                    is_inlined: false,
                };
                if number == 0 {
                    self.functions[function as usize] = named;
                } else {
                    // The number of ranges is at most the number of frames, which fits.
                    id = u32::try_from(self.functions.len()).unwrap_or(u32::MAX);
                    self.functions.push(named);
                }
                for (_, frame) in range {
                    self.of_frame[*frame as usize] = id;
                }
            }
        }
    }
}

/// Returns the size of the ranges of places, as a number of address bits. The places are sorted by address.
fn shift_of(places: &[(u64, FrameId)]) -> u32 {
    let ranges = |shift: u32| {
        places
            .chunk_by(|one, other| one.0 >> shift == other.0 >> shift)
            .count()
    };
    (SMALLEST..u64::BITS - 1)
        .find(|shift| ranges(*shift) <= MOST_RANGES)
        .unwrap_or(u64::BITS - 1)
}

#[cfg(test)]
mod tests {
    use super::shift_of;

    #[test]
    fn ranges_grow_until_there_are_few() {
        let near = [(0x1000, 0), (0x1_8000, 1), (0x2_0000, 2)];
        assert_eq!(shift_of(&near), 16);
        let far: Vec<(u64, u32)> = (0..64)
            .map(|place| (u64::from(place) << 16, place))
            .collect();
        assert_eq!(shift_of(&far), 18);
        assert_eq!(shift_of(&[(0, 0), (u64::MAX, 1)]), 16);
        assert_eq!(shift_of(&[]), 16);
    }
}
