//! Texts of sets of CPUs.

use std::collections::BTreeSet;

/// The limit of CPU numbers: no machine has more CPUs, so a larger number is damage.
const MOST: u32 = 1 << 16;

/// Formats a set as a number with a bit for each CPU, such as `0x3`. Returns `None` if a CPU's number is beyond the
/// limit.
pub fn mask(cpus: &BTreeSet<u32>) -> Option<String> {
    let last = *cpus.last().filter(|last| **last < MOST)?;
    let digit = |place: u32| {
        let bit = |bit: u32| u32::from(cpus.contains(&(place * 4 + bit))) << bit;
        char::from_digit((0..4).map(bit).sum(), 16).unwrap_or('0')
    };
    let digits: String = (0..=last / 4).rev().map(digit).collect();
    Some(format!("0x{digits}"))
}

/// Formats a set as a list of numbers and ranges, such as `0-2,5`.
pub fn list(cpus: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(cpu) => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let parts: Vec<String> = ranges
        .into_iter()
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        })
        .collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_masks_and_lists() {
        for (cpus, as_mask, as_list) in [
            (&[0][..], Some("0x1"), "0"),
            (&[0, 1], Some("0x3"), "0-1"),
            (&[1, 4, 5, 6, 9], Some("0x272"), "1,4-6,9"),
            (&[3, 64], Some("0x10000000000000008"), "3,64"),
            (&[u32::MAX - 1, u32::MAX], None, "4294967294-4294967295"),
        ] {
            let set: BTreeSet<u32> = cpus.iter().copied().collect();
            assert_eq!(mask(&set).as_deref(), as_mask);
            assert_eq!(list(&set), as_list);
        }
    }
}
