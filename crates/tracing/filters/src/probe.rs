//! The duty of a probe site, decided once for each function.

use crate::sampler::Sampling;

/// The treatment of a function's calls at its probe site: the least that a recorder must do.
///
/// A call may be hidden by its position: in a call of [`Probe::Mute`], or outside of the calls that filters let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// The site is not patched, and its calls cost nothing: no call is ever shown or changes anything.
    Skip,
    /// Each call is recorded, unless its position hides it.
    Record,
    /// As [`Probe::Record`]. A call that was shorter than the rules' minimum duration and has no recorded calls in it
    /// is taken back.
    Timed,
    /// Neither the call nor any call in it is recorded.
    Mute,
    /// The call and the calls in it are recorded, also outside of other such calls and at any level.
    Filter,
    /// As [`Probe::Record`], for chosen calls.
    Sample(Sampling),
    /// As [`Probe::Filter`], for chosen calls. Other calls are treated as [`Probe::Mute`].
    SampleFilter(Sampling),
    /// As [`Probe::Filter`]. Executions are judged at their ends, and kept or dropped with the calls in them.
    JudgeFilter(Sampling),
}

impl Probe {
    /// Returns the way in which calls are chosen; `None` if all are treated alike.
    #[must_use]
    pub fn sampling(self) -> Option<Sampling> {
        match self {
            Self::Sample(sampling) | Self::SampleFilter(sampling) | Self::JudgeFilter(sampling) => {
                Some(sampling)
            }
            _ => None,
        }
    }

    /// Returns true if a call that is not chosen is left out with the calls in it.
    #[must_use]
    pub fn samples_trees(self) -> bool {
        matches!(self, Self::SampleFilter(_) | Self::JudgeFilter(_))
    }

    /// Returns the probe without sampling, for executions that readers choose.
    #[must_use]
    pub fn unsampled(self) -> Self {
        match self {
            Self::Sample(_) => Self::Record,
            Self::SampleFilter(_) | Self::JudgeFilter(_) => Self::Filter,
            other => other,
        }
    }

    /// Returns the probe for a call of which only the beginning is recorded: no calls lie in it, and it is not
    /// counted.
    #[must_use]
    pub fn of_beginnings(self) -> Self {
        match self.unsampled() {
            Self::Mute => Self::Skip,
            Self::Timed => Self::Record,
            other => other,
        }
    }
}
