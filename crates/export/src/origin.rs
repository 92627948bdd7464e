//! The machine and the command of a recording.

use dioptra_perfdata::Features;

/// The machine and the command of a recording, as far as its file states them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The words of the command that recorded.
    pub command_line: Vec<String>,
    /// The machine's name.
    pub hostname: Option<String>,
    /// The kernel's release.
    pub os_release: Option<String>,
    /// The machine's architecture, such as `x86_64`.
    pub arch: Option<String>,
    /// The CPU's name.
    pub cpu: Option<String>,
    /// Nanoseconds of the events' clock and of the wall clock (since 1970) at one moment.
    pub clocks: Option<(u64, u64)>,
}

impl Origin {
    /// Returns the origin that a file's features state.
    pub fn of(features: &Features) -> Origin {
        Origin {
            command_line: features.command_line.clone(),
            hostname: features.hostname.clone(),
            os_release: features.os_release.clone(),
            arch: features.arch.clone(),
            cpu: features.cpu_description.clone(),
            clocks: features
                .clock_data
                .as_ref()
                .map(|data| (data.clock, data.wall_clock)),
        }
    }

    /// Returns the nanoseconds since 1970 at a time of the events' clock; `None` where the file does not relate the
    /// clocks.
    pub fn wall_clock(&self, time: u64) -> Option<u64> {
        let (clock, wall) = self.clocks?;
        let since = i128::from(time) - i128::from(clock);
        u64::try_from(i128::from(wall) + since).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_the_moment() {
        let origin = Origin {
            clocks: Some((1_000, 5_000)),
            ..Origin::default()
        };
        assert_eq!(origin.wall_clock(1_500), Some(5_500));
        assert_eq!(origin.wall_clock(400), Some(4_400));
        assert_eq!(Origin::default().wall_clock(1), None);
    }
}
