//! Distributions of durations, from which percentiles are read.

/// The number of durations that are kept as they are.
const EXACT: usize = 64;
/// The number of buckets between a power of two and the next one, as a power of two.
const PARTS: u32 = 5;

/// The durations of calls, for percentiles.
///
/// The first 64 durations are kept as they are. Beyond them, durations below 32 ns stay exact, and longer ones are counted in
/// buckets: 32 of equal width between a power of two and the next. A percentile is the middle of its bucket, so that it
/// lies within 1/64 (1.6 %) of the exact one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    exact: Vec<u64>,
    /// The counts by power of two, and by bucket; empty while all durations are kept.
    counts: Vec<Option<Box<[u64; 1 << PARTS]>>>,
}

/// Returns the power of two and the bucket of a duration. The first power stands for all durations below 2^PARTS.
#[inline]
fn bucket(duration: u64) -> (usize, usize) {
    let power = duration.max(1).ilog2();
    match power.checked_sub(PARTS) {
        None => (0, duration as usize),
        Some(shift) => {
            let part = (duration >> shift) - (1 << PARTS);
            (shift as usize + 1, part as usize)
        }
    }
}

/// Returns the middle of a bucket.
fn middle(power: usize, part: usize) -> u64 {
    match power.checked_sub(1) {
        None => part as u64,
        Some(shift) => (((1 << PARTS) + part as u64) << shift) + ((1 << shift) >> 1),
    }
}

impl Durations {
    #[inline]
    pub(crate) fn add(&mut self, duration: u64) {
        if self.counts.is_empty() {
            if self.exact.len() < EXACT {
                self.exact.push(duration);
                return;
            }
            self.count_kept();
        }
        self.count(duration, 1);
    }

    /// Counts the durations that were kept.
    fn count_kept(&mut self) {
        for duration in std::mem::take(&mut self.exact) {
            self.count(duration, 1);
        }
    }

    fn count(&mut self, duration: u64, times: u64) {
        let (power, part) = bucket(duration);
        if power >= self.counts.len() {
            self.counts.resize(power + 1, None);
        }
        let counts = self.counts[power].get_or_insert_with(|| Box::new([0; 1 << PARTS]));
        counts[part] += times;
    }

    pub(crate) fn merge(&mut self, other: &Durations) {
        for duration in &other.exact {
            self.add(*duration);
        }
        if other.counts.is_empty() {
            return;
        }
        self.count_kept();
        for (power, part, count) in other.buckets() {
            self.count(middle(power, part), count);
        }
    }

    fn buckets(&self) -> impl Iterator<Item = (usize, usize, u64)> + '_ {
        let powers = self.counts.iter().enumerate();
        powers.flat_map(|(power, counts)| {
            let parts = counts.iter().flat_map(|counts| counts.iter().enumerate());
            parts
                .filter(|(_, count)| **count > 0)
                .map(move |(part, count)| (power, part, *count))
        })
    }

    /// Returns the shortest duration that at least `percent` of all durations do not exceed (the nearest-rank definition);
    /// `None` without durations. With more than 64 durations the value is within 1/64 of it.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let buckets = || self.buckets().map(|(_, _, count)| count).sum::<u64>();
        let total = match self.counts.is_empty() {
            true => self.exact.len() as u64,
            false => buckets(),
        };
        // A share of 2^53 calls and more is rounded.
        let rank = (total as f64 * percent / 100.0).ceil() as u64;
        let rank = rank.clamp(1, total.max(1));
        if self.counts.is_empty() {
            let mut sorted = self.exact.clone();
            sorted.sort_unstable();
            return sorted.get(rank as usize - 1).copied();
        }
        let mut below = 0;
        self.buckets().find_map(|(power, part, count)| {
            below += count;
            (below >= rank).then(|| middle(power, part))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_duration_lies_in_the_bucket_of_its_middle() {
        let mut durations: Vec<u64> = (0..5000).collect();
        durations.extend((5..64).flat_map(|power| {
            let power = 1_u64 << power;
            [power - 1, power, power + 1, power + power / 3]
        }));
        durations.push(u64::MAX);
        for duration in durations {
            let (power, part) = bucket(duration);
            let middle = middle(power, part);
            assert_eq!(bucket(middle), (power, part), "{duration}");
            assert!(
                middle.abs_diff(duration) <= duration / 64,
                "{duration}: {middle}"
            );
        }
    }

    #[test]
    fn no_call_has_no_percentile() {
        assert_eq!(Durations::default().percentile(50.0), None);
    }

    proptest! {
        #[test]
        fn percentiles_are_those_of_the_sorted_list(
            durations in proptest::collection::vec(0_u64..1 << 40, 1..300),
            split in 0_usize..300,
            percent in 0.0..100.0_f64,
        ) {
            let split = split.min(durations.len());
            let (mut one, mut other) = (Durations::default(), Durations::default());
            durations[..split].iter().for_each(|duration| one.add(*duration));
            durations[split..].iter().for_each(|duration| other.add(*duration));
            one.merge(&other);
            let mut sorted = durations.clone();
            sorted.sort_unstable();
            let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
            let exact = sorted[rank.max(1) - 1];
            let read = one.percentile(percent).expect("there are durations");
            // Merging moves a duration to the middle of its own bucket, which it does not leave.
            prop_assert!(read.abs_diff(exact) <= exact / 64, "{read} for {exact}");
            if sorted.len() <= EXACT {
                prop_assert_eq!(read, exact);
            }
        }
    }
}
