//! Sets of CPUs, as the kernel's files and command lines write them.

use crate::sys;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A set of CPU numbers, ascending and without repetition. Its text form is `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet(Vec<u32>);

/// Largest CPU number that is accepted: far above any kernel's, and small enough that a range can't exhaust memory.
const LARGEST: u32 = 1 << 20;

impl CpuSet {
    /// Makes a set of `cpus`, which may come in any order.
    pub fn new(cpus: impl IntoIterator<Item = u32>) -> CpuSet {
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        CpuSet(cpus)
    }

    /// Returns the CPUs that are online (`/sys/devices/system/cpu/online`). Where that file is missing, as in some
    /// containers, these are the CPUs on which the caller may run.
    pub fn online() -> CpuSet {
        let listed = sys::read_file("/sys/devices/system/cpu/online")
            .ok()
            .and_then(|text| text.trim().parse::<CpuSet>().ok())
            .filter(|set| !set.is_empty());
        listed.unwrap_or_else(CpuSet::affinity)
    }

    /// Returns the CPUs on which the calling thread may run; CPU 0 where even that is not known.
    pub fn affinity() -> CpuSet {
        CpuSet::new(sys::affinity(0).unwrap_or_else(|_| vec![0]))
    }

    /// Returns the numbers, ascending.
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }

    /// Iterates over the numbers, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Returns the number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if `cpu` is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }

    /// Returns the CPUs that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.iter().filter(|cpu| other.contains(*cpu)).collect())
    }
}

/// A text that is no set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{part}` in `{text}` is no CPU or range of CPUs; write them as 0-3,8")]
pub struct CpuSetError {
    /// The whole text.
    pub text: String,
    /// The part that could not be read.
    pub part: String,
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<CpuSet, CpuSetError> {
        let mut cpus = Vec::new();
        for part in text
            .trim()
            .split(',')
            .filter(|part| !part.trim().is_empty())
        {
            let error = || CpuSetError {
                text: text.to_owned(),
                part: part.to_owned(),
            };
            let number = |text: &str| -> Result<u32, CpuSetError> {
                let number = text.trim().parse().map_err(|_| error())?;
                if number > LARGEST {
                    return Err(error());
                }
                Ok(number)
            };
            match part.split_once('-') {
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(error());
                    }
                    cpus.extend(first..=last);
                }
                None => cpus.push(number(part)?),
            }
        }
        Ok(CpuSet::new(cpus))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut separator = "";
        while let Some(first) = rest.first() {
            let run = rest
                .iter()
                .zip(*first..)
                .take_while(|(cpu, expected)| **cpu == *expected)
                .count();
            let (range, after) = rest.split_at(run);
            match range {
                [first, .., last] => write!(f, "{separator}{first}-{last}")?,
                _ => write!(f, "{separator}{first}")?,
            }
            separator = ",";
            rest = after;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for text in ["", "0", "0-3", "0-1,4,6-7", "5,63-64"] {
            let set: CpuSet = text.parse().expect(text);
            assert_eq!(set.to_string(), text);
        }
        let set: CpuSet = " 3,1-2,2 ".parse().expect("overlaps are merged");
        assert_eq!(set.as_slice(), [1, 2, 3]);
    }

    #[test]
    fn nonsense_is_refused_with_its_part() {
        for text in ["a", "1-", "3-1", "0,x", "-1", "0-99999999"] {
            let error = text.parse::<CpuSet>().expect_err(text);
            assert!(error.to_string().contains(&error.part), "{error}");
        }
    }

    #[test]
    fn some_cpu_is_online() {
        assert!(!CpuSet::online().is_empty());
        assert!(
            !CpuSet::affinity()
                .intersection(&CpuSet::online())
                .is_empty()
        );
    }
}
