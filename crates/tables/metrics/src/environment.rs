//! The environment of formulas: the inputs that are no counts.

use std::collections::HashMap;

use crate::cpu::CpuId;

/// Constants of the machine and the run, and the threshold below which samples are too few.
#[derive(Debug, Clone, PartialEq)]
pub struct Environment {
    /// The CPU, for `strcmp_cpuid_str`.
    pub cpu: Option<CpuId>,
    /// The number of samples below which an input counts as few, for a cell's `low_counts`.
    pub min_samples: u64,
    constants: HashMap<String, f64>,
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            cpu: None,
            min_samples: 10,
            constants: HashMap::new(),
        }
    }
}

impl Environment {
    /// Makes an environment in which nothing is known, with a threshold of 10 samples.
    pub fn new() -> Self {
        Self::default()
    }

    /// States a constant: `slots`, `smt_on`, `num_cpus`, `num_cores`, `num_packages`, `system_tsc_freq` (Hz),
    /// `threads_per_core`, `duration_time` (seconds), or any other that a formula names. Neither `#` nor case matter.
    #[must_use]
    pub fn with(mut self, name: &str, value: f64) -> Self {
        self.constants.insert(key(name), value);
        self
    }

    /// States the CPU.
    #[must_use]
    pub fn with_cpu(mut self, cpu: CpuId) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// Returns the constant, if it was stated.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.constants.get(&key(name)).copied()
    }
}

fn key(name: &str) -> String {
    name.trim_start_matches('#').to_ascii_lowercase()
}
