//! Random numbers that are the same in every run with a seed.

/// A generator: SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Makes the generator of one thing of a fleet, so that things don't depend on the order in which they are made.
    pub fn of(seed: u64, kind: u64, number: u64) -> Random {
        let mut random = Random(seed ^ kind.rotate_left(48) ^ number.rotate_left(16));
        random.next();
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 up to, and without, 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a whole number below a bound, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns a number whose logarithm is normal with these parameters.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let angle = std::f64::consts::TAU * self.unit();
        median * (sigma * radius * angle.cos()).exp()
    }
}

/// Ranks from 0, of which rank r has a weight of 1/(r+1)^exponent.
#[derive(Clone, Debug)]
pub struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    pub fn new(ranks: usize, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let each = (1..=ranks).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Zipf {
            cumulative: each.collect(),
        }
    }

    pub fn draw(&self, random: &mut Random) -> usize {
        let whole = self.cumulative.last().copied().unwrap_or(0.0);
        let wanted = random.unit() * whole;
        let rank = self.cumulative.partition_point(|sum| *sum <= wanted);
        rank.min(self.cumulative.len().saturating_sub(1))
    }
}
