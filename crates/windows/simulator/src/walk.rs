//! A stretch of the program's run, from a random point in time.

use rand::RngExt;
use rand_distr::{Distribution, Gamma};
use rand_pcg::Pcg64Mcg;

use crate::program::Program;

/// One run of a function, or what is left of it. Times in cycles from the start of the stretch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) function: usize,
    pub(crate) site: u32,
    /// Where it begins; before 0 for the first.
    pub(crate) start: f64,
    /// Where its entry is over.
    pub(crate) body: f64,
    pub(crate) end: f64,
}

/// One with the probabilities of a list of weights.
pub(crate) fn choose(weights: &[f64], random: &mut Pcg64Mcg) -> usize {
    let all: f64 = weights.iter().sum();
    let mut left = random.random::<f64>() * all;
    for (i, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return i;
        }
    }
    weights.len() - 1
}

/// A gamma variable of a mean and a shape.
pub(crate) fn gamma(mean: f64, shape: f64, random: &mut Pcg64Mcg) -> f64 {
    if mean <= 0.0 {
        return 0.0;
    }
    Gamma::new(shape, mean / shape).map_or(mean, |gamma| gamma.sample(random))
}

/// The runs of `cycles`, as found by someone who looks at a random time.
pub(crate) fn walk(
    program: &Program,
    shares: &[f64],
    cycles: f64,
    random: &mut Pcg64Mcg,
) -> Vec<Run> {
    let mut function = choose(shares, random);
    let f = &program.functions[function];
    // A long run is met more often than a short one: the length is biased by itself.
    let scale = f.run / f.shape;
    let by_entry = random.random::<f64>() * f.length() < f.entry;
    let shape = if by_entry { f.shape } else { f.shape + 1.0 };
    let length = f.entry + gamma(scale * shape, shape, random);
    let mut start = -random.random::<f64>() * length;
    let mut end = start + length;
    let mut runs = Vec::new();
    loop {
        let f = &program.functions[function];
        runs.push(Run {
            function,
            site: random.random_range(0..f.call_sites.max(1)),
            start,
            body: start + f.entry,
            end,
        });
        if end > cycles {
            return runs;
        }
        function = choose(&program.next[function], random);
        let f = &program.functions[function];
        start = end;
        end = start + f.entry + gamma(f.run, f.shape, random);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Event, Function};
    use rand::SeedableRng;

    #[test]
    fn a_random_moment_meets_functions_by_their_share() {
        let mut functions = vec![
            Function::new(300.0, &[1.0]),
            Function::new(100.0, &[1.0]),
            Function::new(50.0, &[1.0]),
        ];
        functions[0].shape = 30.0;
        functions[2].entry = 50.0;
        let program = Program::mixed(vec![Event::flow()], functions);
        let shares = program.shares();
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut at = [[0.0; 3]; 2];
        const TIMES: usize = 40_000;
        for _ in 0..TIMES {
            let runs = walk(&program, &shares, 700.0, &mut random);
            // The start, and a point well after it: a stationary walk has the same shares at both.
            for (seen, time) in at.iter_mut().zip([0.0, 650.0]) {
                let run = runs
                    .iter()
                    .find(|r| r.start <= time && time < r.end)
                    .unwrap();
                seen[run.function] += 1.0 / TIMES as f64;
            }
        }
        for seen in at {
            for (seen, share) in seen.iter().zip(&shares) {
                assert!((seen - share).abs() < 0.01, "{seen} {share}");
            }
        }
    }
}
