//! The first and the last line of the screen.

use super::{App, Page};
use crate::commands::top::tables::Named;

impl App {
    /// Returns the line above the table: the state, and what was lost.
    pub fn head(&self) -> String {
        let Some(named) = &self.named else {
            return "waiting for the first samples".to_owned();
        };
        let snapshot = &named.snapshot;
        let mut text = format!(
            "{:.0} s  {:.0} samples/s  {} samples  {} lost  top: {:.1} % of a CPU",
            snapshot.age.as_secs_f64(),
            self.status.samples_per_second,
            snapshot.samples,
            snapshot.lost,
            self.status.own_cpu_percent,
        );
        if self.paused {
            text.push_str("  PAUSED");
        }
        if self.ended {
            text.push_str("  ENDED");
        }
        if snapshot.restarts > 0 {
            text.push_str(&format!("  tables were full {} times", snapshot.restarts));
        }
        if snapshot.forgotten > 0 {
            text.push_str(&format!("  {} samples missing in now", snapshot.forgotten));
        }
        text
    }

    /// Returns whether records or counts are missing.
    pub fn is_alarming(&self) -> bool {
        let named = self.named.as_ref();
        named.is_some_and(|named| named.snapshot.lost > 0 || named.snapshot.restarts > 0)
    }

    /// Returns the page's title, or a message, for the last line.
    pub fn foot(&self) -> String {
        if !self.message.is_empty() {
            return self.message.clone();
        }
        let event = self.event_name();
        let span = if self.of_now { "now" } else { "all" };
        let mut text = match &self.page {
            Page::Rows { of, .. } if of.is_empty() => event,
            Page::Rows { of, .. } => format!("{event} in {of}"),
            Page::Callers { function } => {
                let inlined = match self.inlined {
                    true => "; with inlined functions; r: anew",
                    false => "",
                };
                format!("{event}: callers of {} ({span}{inlined})", function.name)
            }
            Page::Code { function } => format!("code of {} ({span}; r: anew)", function.name),
            Page::Help => "keys".to_owned(),
        };
        if !self.filter.is_empty() {
            text.push_str(&format!("  /{}", self.filter));
        }
        if let Some(column) = &self.sorted {
            text.push_str(&format!("  sorted by {column}"));
        }
        if let Some(note) = self.notes.last() {
            text.push_str(&format!("  {note}"));
        }
        text
    }

    fn event_name(&self) -> String {
        let name = |named: &Named| {
            let profile = &named.snapshot.profile;
            let events = profile.sampled_events();
            let event = events.get(self.event).or(events.first())?;
            Some(profile.events()[*event].name().to_owned())
        };
        self.named.as_ref().and_then(name).unwrap_or_default()
    }
}
