//! What a formula knows besides counts.

use std::collections::HashMap;

use crate::cpu::CpuId;

/// Constants of the machine and the run, and how strict to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Environment {
    /// The CPU, for `strcmp_cpuid_str`.
    pub cpu: Option<CpuId>,
    /// Inputs with fewer samples than this make a cell's `low_counts`.
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
    /// Nothing known; a threshold of 10 samples.
    pub fn new() -> Self {
        Self::default()
    }

    /// States a constant: `slots`, `smt_on`, `num_cpus`, `num_cores`, `num_packages`, `system_tsc_freq` (Hz),
    /// `threads_per_core`, `duration_time` (seconds), or any that a formula names. Neither `#` nor case matter.
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

    /// The constant, if it was stated.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.constants.get(&key(name)).copied()
    }
}

fn key(name: &str) -> String {
    name.trim_start_matches('#').to_ascii_lowercase()
}
