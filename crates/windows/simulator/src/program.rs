//! A program: functions, how they follow each other, and what they do to counters.

/// An event beside the leader, which is cycles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Event {
    /// Variation of a function's rate from burst to burst: standard deviation ÷ mean.
    pub between: f64,
    /// Variation from window to window inside of a burst.
    pub within: f64,
    /// Single events that come at random, instead of a steady flow such as instructions.
    pub rare: bool,
    /// Single events that come at one distance from each other, as a loop makes them; in programs of one function.
    pub regular: bool,
    /// What a window's borders add to its count.
    pub border: f64,
}

impl Event {
    /// A steady flow that varies as instructions do.
    pub fn flow() -> Self {
        Self {
            between: 0.5,
            within: 0.3,
            rare: false,
            regular: false,
            border: 0.0,
        }
    }

    /// Single events at a rate that does not vary.
    pub fn single() -> Self {
        Self {
            between: 0.0,
            within: 0.0,
            rare: true,
            regular: false,
            border: 0.0,
        }
    }

    /// Single events at one distance from each other.
    pub fn regular() -> Self {
        Self {
            rare: false,
            regular: true,
            ..Self::single()
        }
    }
}

/// A function: what it does from its entry until another one goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// Mean length of a run in cycles, after its entry.
    pub run: f64,
    /// The runs' lengths are of a gamma distribution with this shape: 1 is the exponential, large is constant.
    pub shape: f64,
    /// Cycles at the beginning of each run in which nothing is counted.
    pub entry: f64,
    /// Events per cycle after the entry, one for each event of the program.
    pub rates: Vec<f64>,
    /// Events that each entry adds.
    pub entry_events: Vec<f64>,
    /// What the borders of windows that end here add, beside [`Event::border`].
    pub borders: Vec<f64>,
    /// From how many places it is called; 0 for recordings without call chains.
    pub call_sites: u32,
    /// The function on whose behalf it works in the kernel: windows that end in it, and its samples, count there.
    pub kernel_of: Option<u32>,
}

impl Function {
    /// A function with exponential runs and free entries.
    pub fn new(run: f64, rates: &[f64]) -> Self {
        Self {
            run,
            shape: 1.0,
            entry: 0.0,
            rates: rates.to_vec(),
            entry_events: vec![0.0; rates.len()],
            borders: vec![0.0; rates.len()],
            call_sites: 0,
            kernel_of: None,
        }
    }

    pub(crate) fn length(&self) -> f64 {
        self.entry + self.run
    }
}

/// Functions in turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// The events beside the leader.
    pub events: Vec<Event>,
    /// The functions.
    pub functions: Vec<Function>,
    /// For each function the weights of the ones that come next.
    pub next: Vec<Vec<f64>>,
}

impl Program {
    /// One function that never ends.
    pub fn endless(events: Vec<Event>, rates: &[f64]) -> Self {
        Self {
            events,
            functions: vec![Function::new(1e12, rates)],
            next: vec![vec![1.0]],
        }
    }

    /// Functions that are followed by any other, each as often.
    pub fn mixed(events: Vec<Event>, functions: Vec<Function>) -> Self {
        let count = functions.len();
        let next = (0..count)
            .map(|from| {
                (0..count)
                    .map(|to| f64::from(u8::from(from != to || count == 1)))
                    .collect()
            })
            .collect();
        Self {
            events,
            functions,
            next,
        }
    }

    /// Each function's share of all cycles.
    pub fn shares(&self) -> Vec<f64> {
        let count = self.functions.len();
        let mut visits = vec![1.0 / count as f64; count];
        // Half a step at a time, so that functions in strict turn settle too.
        for _ in 0..10_000 {
            let mut after: Vec<f64> = visits.iter().map(|v| v / 2.0).collect();
            for (from, next) in self.next.iter().enumerate() {
                let all: f64 = next.iter().sum();
                for (to, weight) in next.iter().enumerate() {
                    after[to] += visits[from] / 2.0 * weight / all;
                }
            }
            visits = after;
        }
        let cycles: Vec<f64> = visits
            .iter()
            .zip(&self.functions)
            .map(|(v, f)| v * f.length())
            .collect();
        let all: f64 = cycles.iter().sum();
        cycles.iter().map(|c| c / all).collect()
    }

    /// Returns the function at which windows and samples of a function count.
    pub fn counted_at(&self, function: usize) -> usize {
        let at = self.functions[function].kernel_of;
        at.map_or(function, |at| at as usize)
    }

    /// Returns the true rate of an event over all that counts at a function: events per cycle in the long run.
    pub fn truth(&self, function: usize, event: usize) -> f64 {
        let mut counted = (0..self.functions.len()).filter(|f| self.counted_at(*f) == function);
        if counted.clone().count() == 1 {
            return counted.next().map_or(f64::NAN, |f| self.own_rate(f, event));
        }
        let shares = self.shares();
        let (mut events, mut cycles) = (0.0, 0.0);
        for f in counted {
            events += shares[f] * self.own_rate(f, event);
            cycles += shares[f];
        }
        events / cycles
    }

    /// The true rate of an event in a function alone, entries and all: events per cycle in the long run.
    pub fn own_rate(&self, function: usize, event: usize) -> f64 {
        let f = &self.functions[function];
        (f.rates[event] * f.run + f.entry_events[event]) / f.length()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_three_functions() {
        // A → B → C → B …: B is entered twice as often as the others.
        let functions = vec![
            Function::new(600.0, &[1.0]),
            Function::new(100.0, &[1.0]),
            Function::new(200.0, &[1.0]),
        ];
        let mut program = Program::mixed(vec![Event::flow()], functions);
        program.next = vec![vec![0., 1., 0.], vec![1., 0., 1.], vec![0., 1., 0.]];
        for (found, expected) in program.shares().iter().zip([0.6, 0.2, 0.2]) {
            assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        }
    }

    #[test]
    fn the_kernel_is_part_of_the_function_that_entered_it() {
        let mut functions = vec![Function::new(100.0, &[1.0]), Function::new(300.0, &[2.0])];
        functions[1].kernel_of = Some(0);
        let program = Program::mixed(vec![Event::flow()], functions);
        assert!((program.truth(0, 0) - 1.75).abs() < 1e-9);
        assert!((program.own_rate(0, 0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn entries_are_part_of_the_truth() {
        let mut function = Function::new(90.0, &[2.0]);
        function.entry = 10.0;
        function.entry_events = vec![5.0];
        let program = Program::mixed(vec![Event::flow()], vec![function]);
        assert!((program.truth(0, 0) - (180.0 + 5.0) / 100.0).abs() < 1e-12);
    }
}
