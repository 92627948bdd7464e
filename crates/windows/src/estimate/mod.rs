//! Estimation: the windows that belong to a row, and the ratios of their sums with intervals.
//!
//! The caller fills a [`Windows`] with bursts and their windows, gives [`Windows::analyze`] the row of each window, and asks
//! an [`Estimator`] for each row's metrics. Nothing here knows files, symbols or tables: functions, threads and rows are
//! numbers, and events are indices of the list that a [`MetricSet`](dioptra_metrics::MetricSet) was bound to.
//!
//! ```
//! use dioptra_windows::estimate::{WindowBurst, EstimatorOptions, WindowEnd, Rules, WindowFlags, CountedGroup, Windows};
//! use dioptra_metrics::{Environment, MetricSet, RecordedEvent};
//!
//! let recorded = ["cycles", "instructions"].map(RecordedEvent::named);
//! let mut windows = Windows::new(vec![CountedGroup::new(vec![0, 1])]);
//! let place = WindowEnd { function: Some(7), path: None };
//! for time in 0..40 {
//!     windows.push_burst(WindowBurst { time, period: 300, ..WindowBurst::default() });
//!     for index in 0..4 {
//!         windows.push_window(index, WindowFlags::empty(), place, place, &[300, 440 + 10 * (time % 5)]);
//!     }
//! }
//! let analysis = windows.analyze(&Rules::default(), |window| window.end.function);
//! let bound = MetricSet::generic().bind(&recorded, &Environment::new());
//! let ipc = MetricSet::generic().column("ipc").unwrap();
//! let mut estimator = analysis.estimator(&bound, &[], EstimatorOptions::default());
//! let figure = estimator.estimate(analysis.row(7).unwrap(), ipc);
//! let best = figure.estimate().unwrap().best();
//! assert!(best.low < best.value && best.value < best.high);
//! assert!((best.value - 460.0 / 300.0).abs() < 1e-9);
//! ```
//!
//! The modules describe the rules, the estimators and their limits. In short: metrics are ratios of sums. Bursts are the
//! units that repeat, so intervals come from the spread between bursts. Few counts get Poisson's limits. A row whose
//! function was left in too many windows is marked ([`Trust`]).

mod accept;
mod artefact;
mod compare;
mod drift;
mod estimator;
mod homogeneity;
mod interrupts;
mod interval;
mod runs;
mod sample;
mod share;
mod spread;
mod stream;
mod tally;
mod throughout;

pub use accept::{Acceptance, Discard, Rules, Trust};
pub use artefact::{Artefact, ArtefactNote};
pub use compare::Difference;
pub use drift::Drift;
pub use estimator::{Estimate, Estimator, EstimatorOptions, Figure, Interval, Method};
pub use interval::{chi_squared_quantile, poisson_limits, student_quantile, student_two_sided};
pub use runs::Runs;
pub use share::{Closure, Share, Shares, Totals};
pub use stream::{
    BurstView, CountedGroup, WindowBurst, WindowEnd, WindowFlags, WindowView, Windows,
};
pub use tally::{Analysis, Row};
