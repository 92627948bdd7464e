//! Messages of `dioptra record` while it runs.

use super::Arguments;
use super::together::{has_started, tell_begun};
use crate::output::say;
use crate::remedies;
use dioptra_perfevents::AttachSummary;
use dioptra_perfevents::limits;
use dioptra_perfevents::windows::SourceKind;
use dioptra_recorder::outcome::Progress;
use dioptra_recorder::{Observer, RecordError, RecordNote};
use dioptra_windows::record::{StartFinding, WindowsOutcome};
use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};

/// Standard error: notes are lines of their own; progress is one line that is overwritten, on a terminal only.
pub struct Terminal {
    quiet: bool,
    verbose: bool,
    progress: bool,
    line_is_open: bool,
    /// The descriptor that gets a byte when recording has begun.
    ready: Option<i32>,
    /// The descriptor that gives a byte when the recorded process has executed its command.
    started: Option<i32>,
}

impl Terminal {
    /// Makes the terminal that the arguments ask for.
    pub fn new(arguments: &Arguments) -> Terminal {
        // A command writes to the terminal, too: the two would tear each other's lines.
        let has_command = !arguments.command.is_empty() || arguments.ready_fd.is_some();
        let shared = has_command && !arguments.progress;
        Terminal {
            quiet: arguments.quiet,
            verbose: arguments.verbose,
            progress: !arguments.quiet && !shared && io::stderr().is_terminal(),
            line_is_open: false,
            ready: arguments.ready_fd,
            started: arguments.started_fd,
        }
    }

    /// Removes the progress line.
    pub fn clear(&mut self) {
        if self.line_is_open {
            // A closed standard error is no reason to stop.
            let _ = write!(io::stderr(), "\r\x1b[K");
            self.line_is_open = false;
        }
    }

    /// Writes a line.
    pub fn say(&mut self, line: &str) {
        self.clear();
        say!("{line}");
    }

    /// Writes the name of the source that makes the windows, and the reason for it.
    pub fn show_windows(&mut self, windows: &WindowsOutcome) {
        // A hazard that could hang the machine is shown whatever the verbosity.
        let hazard = limits::refresh_of_clocks_is_unsafe();
        for (index, finding) in windows.findings.iter().enumerate() {
            // A schedule that cannot be kept is shown, too, where the user would not expect it: two clocks are a fallback.
            let is_late = windows.source == SourceKind::Twin
                && matches!(finding, StartFinding::LongTooShort { .. });
            if self.verbose || (index == 0 && hazard) || is_late {
                self.say(&finding.to_string());
            }
        }
        // Values of another source can differ, so --quiet does not hide this.
        if let Some(said) = said_instead(windows) {
            self.say(&said);
        }
        if !self.quiet {
            let groups: Vec<String> = windows.groups.iter().map(|group| group.join(",")).collect();
            self.say(&format!(
                "windows of {{{}}} by {}: {}",
                groups.join("} {"),
                windows.source,
                windows.schedule
            ));
        }
    }
}

impl Observer for Terminal {
    fn note(&mut self, note: &RecordNote) {
        self.say(&remedies::of_record_note(note));
    }

    fn attached(&mut self, summary: &AttachSummary) {
        if !self.verbose {
            return;
        }
        self.say(&format!(
            "attached {}: {} threads opened, {} found to have inherited, {} descriptors, {} CPUs with rings of {} \
             pages, {} looks at the list of threads",
            summary.strategy,
            summary.threads,
            summary.inherited,
            summary.descriptors,
            summary.cpus.len(),
            summary.ring_pages,
            summary.iterations,
        ));
    }

    fn begun(&mut self) {
        if let Some(ready) = self.ready {
            tell_begun(ready);
        }
    }

    fn wants_file(&mut self) -> bool {
        self.started.is_none_or(has_started)
    }

    fn progress(&mut self, progress: Progress) {
        if !self.progress {
            return;
        }
        let lost = match progress.lost {
            0 => String::new(),
            lost => format!(", {lost} lost"),
        };
        let _ = write!(
            io::stderr(),
            "\r\x1b[Krecording for {:.0} s: {} samples{lost}, {} (Ctrl-C ends it)",
            progress.elapsed.as_secs_f64(),
            progress.samples,
            bytes(progress.bytes),
        );
        let _ = io::stderr().flush();
        self.line_is_open = true;
    }

    fn waiting(&mut self, failure: Option<&RecordError>) {
        match failure {
            // The error follows in full when the command has ended; a waiting user should know now.
            Some(error) => self.say(&format!(
                "recording failed, the command goes on without it (Ctrl-C kills it): {error}"
            )),
            None if self.quiet => {}
            None => self
                .say("the recording is complete; waiting for the command to end (Ctrl-C kills it)"),
        }
    }
}

/// A terminal that is shared with other writers.
pub struct SharedTerminal<'a, 'b>(pub &'a RefCell<&'b mut Terminal>);

impl Observer for SharedTerminal<'_, '_> {
    fn note(&mut self, note: &RecordNote) {
        self.0.borrow_mut().note(note);
    }

    fn attached(&mut self, summary: &AttachSummary) {
        self.0.borrow_mut().attached(summary);
    }

    fn begun(&mut self) {
        self.0.borrow_mut().begun();
    }

    fn wants_file(&mut self) -> bool {
        self.0.borrow_mut().wants_file()
    }

    fn progress(&mut self, progress: Progress) {
        self.0.borrow_mut().progress(progress);
    }

    fn waiting(&mut self, failure: Option<&RecordError>) {
        self.0.borrow_mut().waiting(failure);
    }
}

/// Returns the line that names the source used instead of the best one, and the consequences for the metrics.
fn said_instead(windows: &WindowsOutcome) -> Option<String> {
    let why = windows.instead.as_ref()?;
    let consequence = match windows.source {
        SourceKind::Period => {
            "there are no windows: each event is sampled on its own, so that metrics are ratios of sampled counts, with \
             wider intervals and no marks of trust"
        }
        _ => "metrics mean the same; there are fewer windows",
    };
    Some(format!(
        "windows by {why}: {consequence}; --windows=source={} insists on the better one",
        SourceKind::ALL[0]
    ))
}

/// Formats a number of bytes for people: `812 B`, `3.4 KiB`, `120.0 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    // A value that rounds to 1024.0 is shown as 1.0 of the next unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::{bytes, said_instead};
    use dioptra_perfevents::windows::{Length, Schedule, SourceKind, WindowStats};
    use dioptra_windows::record::WindowsOutcome;

    #[test]
    fn another_source_is_said_with_its_reason() {
        let mut outcome = WindowsOutcome {
            source: SourceKind::Period,
            schedule: Schedule {
                long: Length::Time(1_000_000),
                short: Length::Time(50_000),
                jitter: Length::Time(10_000),
                batch: 4,
            },
            groups: Vec::new(),
            findings: Vec::new(),
            instead: Some("period instead of refresh (refresh: 3 of 5 samples came)".into()),
            stats: WindowStats::default(),
            cost: None,
        };
        let said = said_instead(&outcome).expect("a line");
        for part in [
            "period instead of refresh",
            "3 of 5 samples",
            "source=refresh",
        ] {
            assert!(said.contains(part), "{said}");
        }
        outcome.instead = None;
        assert_eq!(said_instead(&outcome), None);
    }

    #[test]
    fn bytes_for_people() {
        let shown: Vec<String> = [0, 1023, 1024, 1_048_575, 1 << 20, 5 << 40]
            .map(bytes)
            .to_vec();
        assert_eq!(
            shown,
            ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "1.0 MiB", "5.0 TiB"]
        );
    }
}
