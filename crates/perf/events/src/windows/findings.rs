//! Findings about sources: the results of trying them out, and the reason why one was chosen.

use super::source::SourceKind;
use std::fmt;

/// The result of trying a source out on the calling thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// Whether the source makes windows.
    pub works: bool,
    /// The observation that decided it.
    pub observation: Observation,
}

impl Finding {
    /// Returns the finding that windows can be made.
    pub(super) fn works(observation: Observation) -> Finding {
        Finding {
            works: true,
            observation,
        }
    }

    /// Returns the finding that windows cannot be made.
    pub(super) fn fails(observation: Observation) -> Finding {
        Finding {
            works: false,
            observation,
        }
    }

    /// Returns the finding that the kernel refused the events.
    pub(super) fn refused(error: impl fmt::Display) -> Finding {
        Finding::fails(Observation::Refused {
            because: error.to_string(),
        })
    }
}

/// An observation of a source that was tried out. Its text form is a clause for users.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observation {
    /// Any kernel makes such windows, so nothing was tried.
    AnyKernel,
    /// The burst was not armed, because it would hang this kernel.
    NotTried,
    /// The kernel refused the events.
    Refused {
        /// The refusal.
        because: String,
    },
    /// Fewer samples came than were asked for.
    TooFew {
        /// Samples that came.
        came: u64,
        /// Samples that were asked for.
        asked: u64,
    },
    /// More samples came than were asked for, so bursts do not end.
    DoesNotStop {
        /// Samples that came.
        came: u64,
        /// Samples that were asked for.
        asked: u64,
    },
    /// All samples came, and no window lies between them.
    NoWindow,
    /// All samples came, with windows between them.
    Windows {
        /// Samples that came.
        came: u64,
        /// Samples that were asked for.
        asked: u64,
        /// The median length of the windows, in the leader's counts.
        median: u64,
        /// The length that was asked for, in the leader's counts.
        period: u64,
        /// Whether the leader counts nanoseconds.
        clock: bool,
    },
    /// The leader did not occur, so page faults led the windows instead.
    ByPageFaults(Box<Observation>),
    /// The periods of an event alternate.
    Alternates,
    /// The kernel takes the attribute of alternating periods, and the periods do not alternate.
    DoesNotAlternate {
        /// Samples that came.
        samples: usize,
    },
    /// The kernel refuses the attribute of alternating periods.
    CannotAlternate {
        /// The refusal.
        because: String,
    },
    /// The leaders are not all clocks, and only clocks can be twins.
    NotClocks,
    /// The kernel does not let threads inherit groups that are read in samples.
    NotInherited,
    /// Two clocks were sampled.
    Pairs {
        /// Distances between samples that are near a window's length.
        near: usize,
        /// All distances between samples.
        distances: usize,
        /// Near distances in which the program got on.
        moved: usize,
    },
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Observation::AnyKernel => f.write_str("any kernel does it"),
            Observation::NotTried => {
                f.write_str("not tried: the version gate forbids it for clocks on this kernel")
            }
            Observation::Refused { because } => f.write_str(because),
            Observation::TooFew { came, asked } => write!(f, "{came} of {asked} samples came"),
            Observation::DoesNotStop { came, asked } => write!(
                f,
                "it does not stop: {came} samples came where {asked} were asked for"
            ),
            Observation::NoWindow => f.write_str("no window between the samples"),
            Observation::Windows {
                came,
                asked,
                median,
                period,
                clock,
            } => {
                let unit = if *clock { " ns" } else { "" };
                write!(
                    f,
                    "{came} of {asked} samples came, windows of {median}{unit} where {period}{unit} were asked for"
                )
            }
            Observation::ByPageFaults(observation) => write!(
                f,
                "the leader did not occur while it was tried; with page-faults: {observation}"
            ),
            Observation::Alternates => f.write_str("the periods alternate"),
            Observation::DoesNotAlternate { samples } => write!(
                f,
                "this kernel takes the attribute, but the periods do not alternate ({samples} samples)"
            ),
            Observation::CannotAlternate { because } => {
                write!(f, "this kernel has no alternating periods: {because}")
            }
            Observation::NotClocks => f.write_str("only clocks can be twins"),
            Observation::NotInherited => {
                f.write_str("groups that are read in samples cannot be inherited before Linux 6.12")
            }
            Observation::Pairs {
                near,
                distances,
                moved,
            } => write!(
                f,
                "{near} of {distances} distances between samples are near a window's length, and the program got on in \
                 {moved} of them"
            ),
        }
    }
}

/// A finding about a source, or about the kernel's version. Its text form is a sentence for users.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceFinding {
    /// The kernel's version, which forbids to arm clocks on some kernels.
    Version {
        /// The release of the kernel.
        release: String,
        /// Whether `PERF_EVENT_IOC_REFRESH` of a clock hangs this kernel.
        is_unsafe: bool,
        /// Whether a clock leads every group.
        clocks_lead: bool,
    },
    /// A source was tried out.
    Tried {
        /// The source.
        kind: SourceKind,
        /// The observation that decided whether it makes windows.
        observation: Observation,
    },
    /// A source that makes windows could not be attached to the target.
    NotAttached {
        /// The source.
        kind: SourceKind,
        /// The refusal.
        because: String,
    },
}

impl fmt::Display for SourceFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceFinding::Version {
                release,
                is_unsafe: true,
                ..
            } => write!(
                f,
                "version gate: on Linux {release} REFRESH of a clock hangs the machine (6.16 and 6.17 do), so that it is \
                 never issued for cpu-clock or task-clock"
            ),
            SourceFinding::Version {
                release,
                clocks_lead: true,
                ..
            } => write!(
                f,
                "version gate: Linux {release} is not one of 6.16 and 6.17, where REFRESH of a clock hangs"
            ),
            SourceFinding::Version { release, .. } => {
                write!(f, "version gate: Linux {release} passes; no clock leads")
            }
            SourceFinding::Tried { kind, observation } => write!(f, "{kind}: {observation}"),
            SourceFinding::NotAttached { kind, because } => {
                write!(f, "{kind}: cannot be attached: {because}")
            }
        }
    }
}

/// The reason why a better source was not taken. Its text form is a clause for users.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Instead {
    /// The source that was taken.
    pub taken: SourceKind,
    /// The best source.
    pub best: SourceKind,
    /// The findings that rule out the better sources.
    pub refusals: Vec<SourceFinding>,
}

impl Instead {
    /// Returns why `taken` makes windows and not `best`; `None` if it is the best.
    pub(super) fn new(
        best: SourceKind,
        taken: SourceKind,
        refusals: Vec<SourceFinding>,
    ) -> Option<Instead> {
        (best != taken).then_some(Instead {
            taken,
            best,
            refusals,
        })
    }
}

impl fmt::Display for Instead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refusals: Vec<String> = self.refusals.iter().map(ToString::to_string).collect();
        let (taken, best, refusals) = (self.taken, self.best, refusals.join("; "));
        write!(f, "{taken} instead of {best} ({refusals})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_is_not_the_best_says_why() {
        let refusals = vec![SourceFinding::Tried {
            kind: SourceKind::Refresh,
            observation: Observation::TooFew { came: 3, asked: 5 },
        }];
        let why = Instead::new(SourceKind::Refresh, SourceKind::Period, refusals);
        assert_eq!(
            why.map(|why| why.to_string()).as_deref(),
            Some("period instead of refresh (refresh: 3 of 5 samples came)")
        );
        assert_eq!(
            Instead::new(SourceKind::Twin, SourceKind::Twin, vec![]),
            None
        );
    }

    #[test]
    fn the_kernels_version_forbids_one_thing() {
        let gate = SourceFinding::Version {
            release: "6.17.3".to_owned(),
            is_unsafe: true,
            clocks_lead: true,
        };
        let gate = gate.to_string();
        assert!(
            gate.contains("6.17.3") && gate.contains("never issued"),
            "{gate}"
        );
    }
}
