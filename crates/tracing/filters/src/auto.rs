//! `sample=auto`: paces that keep the cost of tracing within a budget.

use crate::random::Pace;
use std::vec::Vec;

/// The cost of tracing one function since the last look: sums over all threads.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spent {
    /// The number of executions that were counted.
    pub seen: u64,
    /// The number of executions that were shown.
    pub shown: u64,
    /// The time in nanoseconds that showing them took, with their subtrees.
    pub cost: f64,
}

/// A controller that adapts the pace of each function, so that all together cost a share of the program's time.
///
/// Functions that are cheap to show whole are shown whole. The rest of the budget is divided evenly among the others.
/// The controller only calculates: the recorder feeds it and hands the paces to the threads.
#[derive(Debug, Clone)]
pub struct Controller {
    budget: f64,
    functions: Vec<FunctionCost>,
}

/// The observed rate and cost of a function.
#[derive(Debug, Clone, Copy)]
struct FunctionCost {
    /// The executions per nanosecond of the program's time.
    rate: f64,
    /// The nanoseconds for showing one execution; `None` before the first one.
    cost: Option<f64>,
    interval: f64,
}

/// The weight of a single look in an estimate.
const FOLLOW: f64 = 0.5;
/// The smallest factor by which a function's interval may shrink after one look: a burst that comes back must not
/// cost a whole period.
const DENSER: f64 = 0.5;

impl Controller {
    /// Returns a controller for `functions` functions; `budget` is the share of the program's time that tracing may
    /// cost, such as 0.01.
    #[must_use]
    pub fn new(functions: usize, budget: f64) -> Self {
        let unknown = FunctionCost {
            rate: 0.0,
            cost: None,
            interval: 1.0,
        };
        Self {
            budget: if budget.is_nan() {
                0.0
            } else {
                budget.clamp(0.0, 1.0)
            },
            functions: [unknown].repeat(functions),
        }
    }

    /// Takes in the costs, function by function, within `elapsed` nanoseconds of the threads' CPU time.
    pub fn update(&mut self, elapsed: f64, spent: &[Spent]) {
        if elapsed.is_nan() || elapsed <= 0.0 {
            return;
        }
        for (known, spent) in self.functions.iter_mut().zip(spent) {
            let rate = spent.seen as f64 / elapsed;
            // A burst counts at once and is forgotten by halves.
            known.rate = rate.max(known.rate * FOLLOW);
            if spent.shown > 0 && spent.cost.is_finite() {
                let cost = spent.cost.max(0.0) / spent.shown as f64;
                known.cost = Some(known.cost.map_or(cost, |old| old + (cost - old) * FOLLOW));
            }
        }
        let share = self.share();
        for known in &mut self.functions {
            let wanted = match known.cost {
                Some(cost) => known.rate * cost / share,
                None => 1.0,
            };
            let wanted = if wanted.is_nan() { 1.0 } else { wanted };
            known.interval = wanted
                .max(known.interval * DENSER)
                .clamp(1.0, Pace::MAX_INTERVAL);
        }
    }

    /// Returns the largest share of time that each function may cost, so that all together cost the budget.
    fn share(&self) -> f64 {
        let mut whole: Vec<f64> = self
            .functions
            .iter()
            .map(|known| known.rate * known.cost.unwrap_or(0.0))
            .collect();
        whole.sort_by(f64::total_cmp);
        let mut left = self.budget;
        let count = whole.len();
        for (index, cost) in whole.iter().enumerate() {
            let even = left / (count - index) as f64;
            if *cost > even {
                return even;
            }
            left -= cost;
        }
        f64::INFINITY
    }

    /// Returns the pace at which a function is shown from now on.
    #[must_use]
    pub fn pace(&self, function: usize) -> Pace {
        Pace::from_interval(self.interval(function))
    }

    /// Returns the average number of executions for each one that is shown.
    #[must_use]
    pub fn interval(&self, function: usize) -> f64 {
        self.functions
            .get(function)
            .map_or(1.0, |known| known.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that spends 10 ms between looks and calls each function so often at such a cost.
    fn run(controller: &mut Controller, functions: &[(f64, f64)], looks: usize) -> f64 {
        let elapsed = 1e7;
        let mut cost = 0.0;
        for _ in 0..looks {
            let spent: Vec<Spent> = functions
                .iter()
                .enumerate()
                .map(|(index, (calls, cost))| {
                    let shown = (calls / controller.interval(index)).round();
                    Spent {
                        seen: *calls as u64,
                        shown: shown as u64,
                        cost: shown * cost,
                    }
                })
                .collect();
            cost = spent.iter().map(|spent| spent.cost).sum::<f64>() / elapsed;
            controller.update(elapsed, &spent);
        }
        cost
    }

    #[test]
    fn the_budget_is_kept_and_used() {
        let mut controller = Controller::new(3, 0.01);
        let cost = run(
            &mut controller,
            &[(100_000.0, 25.0), (2_000.0, 900.0), (3.0, 25.0)],
            20,
        );
        assert!((0.009..=0.0105).contains(&cost), "{cost}");
        assert_eq!(controller.interval(2), 1.0);
        // Two functions share what the third one leaves.
        let half = (0.01 - 3.0 * 25.0 / 1e7) / 2.0;
        assert!((controller.interval(0) * half - 0.25).abs() < 0.01);
        assert!((controller.interval(1) * half - 0.18).abs() < 0.01);
    }

    #[test]
    fn a_burst_is_thinned_out_at_once_and_forgotten_by_halves() {
        let mut controller = Controller::new(1, 0.01);
        run(&mut controller, &[(10.0, 25.0)], 5);
        assert_eq!(controller.interval(0), 1.0);
        run(&mut controller, &[(400_000.0, 25.0)], 1);
        let thin = controller.interval(0);
        assert!((99.0..=101.0).contains(&thin), "{thin}");
        run(&mut controller, &[(10.0, 25.0)], 1);
        assert!(controller.interval(0) >= thin / 2.0);
        run(&mut controller, &[(10.0, 25.0)], 20);
        assert_eq!(controller.interval(0), 1.0);
    }

    #[test]
    fn odd_numbers_do_no_harm() {
        for budget in [0.0, f64::NAN, -1.0, 7.0] {
            let mut controller = Controller::new(2, budget);
            for cost in [0.0, f64::NAN, f64::INFINITY, -3.0, 1e300] {
                controller.update(0.0, &[Spent::default()]);
                let spent = Spent {
                    seen: u64::MAX,
                    shown: 1,
                    cost,
                };
                controller.update(1.0, &[spent, spent, spent]);
                let interval = controller.interval(0);
                assert!((1.0..=Pace::MAX_INTERVAL).contains(&interval));
            }
        }
        assert_eq!(Controller::new(0, 0.01).pace(5), Pace::ALL);
    }
}
