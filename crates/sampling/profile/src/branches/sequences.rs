//! A bounded number of whole stacks. The order of branches cannot be found from sums.

/// The number of stacks kept at most.
const KEPT: usize = 1 << 14;

/// A random subset of an event's stacks, each with the same chance to be kept; all stacks where there are few.
#[derive(Clone, Debug)]
pub(super) struct Sequences {
    list: Vec<Sequence>,
    /// The number of stacks seen.
    seen: u64,
    random: u64,
}

/// One stack.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    /// The number of the series of stacks it belongs to, and its index in that series.
    pub place: (u32, u32),
    /// Whether it continues the stack at the index before.
    pub stitched: bool,
    /// Edges, the oldest first; [`Sequences::GAP`] where branches are missing.
    pub edges: Box<[u32]>,
}

impl Default for Sequences {
    fn default() -> Self {
        Sequences {
            list: Vec::new(),
            seen: 0,
            // Any number but 0; a fixed one, so that a file always gives the same result.
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }
}

impl Sequences {
    /// Stands for missing branches.
    pub const GAP: u32 = u32::MAX;

    pub fn add(&mut self, place: (u32, u32), stitched: bool, edges: &[u32]) {
        self.seen += 1;
        let sequence = || Sequence {
            place,
            stitched,
            edges: edges.into(),
        };
        if self.list.len() < KEPT {
            self.list.push(sequence());
            return;
        }
        // Reservoir sampling: the newest is kept with a chance of KEPT in `seen`.
        let index = self.random() % self.seen;
        if let Ok(index) = usize::try_from(index)
            && index < KEPT
        {
            self.list[index] = sequence();
        }
    }

    /// Returns the next number of a xorshift generator.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Returns the number of stacks seen.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns the stacks that were kept, ordered by [`Sequence::place`] after reading.
    pub fn list(&self) -> &[Sequence] {
        &self.list
    }

    pub fn freeze(&mut self) {
        self.list.sort_by_key(|sequence| sequence.place);
        self.list.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stack_has_the_same_chance() {
        let mut sequences = Sequences::default();
        let all = 8 * KEPT as u32;
        for number in 0..all {
            sequences.add((0, number), false, &[number]);
        }
        sequences.freeze();
        assert_eq!(
            (sequences.list().len(), sequences.seen()),
            (KEPT, u64::from(all))
        );
        // An eighth of each part, give or take six standard deviations.
        let part = all / 4;
        for start in (0..all).step_by(part as usize) {
            let range = start..start + part;
            let numbers = sequences.list().iter().map(|sequence| sequence.place.1);
            let count = numbers.filter(|number| range.contains(number)).count() as f64;
            let expected = KEPT as f64 / 4.0;
            assert!((count - expected).abs() < 6.0 * expected.sqrt(), "{count}");
        }
    }
}
