//! A line for each entry and exit, with their numbers: for scripts.

use super::Replay;
use super::lines::ending_text;
use dioptra_calls::{Ahead, Ending, Shown};
use dioptra_tracelayout::EventPlace;
use std::io;

impl Replay<'_, '_, '_> {
    /// A line for each entry and exit.
    pub(super) fn flat(&mut self, merged: &mut Ahead<(usize, Shown)>) -> io::Result<()> {
        let range = self.view.range();
        // As uftrace begins.
        if !self.fields.is_empty() {
            self.out.line("");
        }
        for (place, shown) in merged {
            if !range.contains(shown.time()) {
                continue;
            }
            let tid = self.view.streams()[place].tid;
            let number = self.number;
            let line = match shown {
                Shown::Enter { call, .. } if call.entered.is_none() => continue,
                Shown::Enter { time, call, .. } if self.event(call.function).is_some() => {
                    let kind = match self.event(call.function) {
                        Some(EventPlace::SchedulePreempted) => " (pre-empted)",
                        _ => "",
                    };
                    format!("[{number}] !!! {tid}: linux:sched-out{kind} time ({time})")
                }
                Shown::Enter { time, call, .. } => {
                    let name = self.labels.get(call.function);
                    format!(
                        "[{number}] ==> {tid}/{}: ip ({name}), time ({time})",
                        call.depth
                    )
                }
                Shown::Leave {
                    ending: Ending::Open,
                    ..
                } => continue,
                Shown::Leave { time, call, .. } if self.event(call.function).is_some() => {
                    format!("[{number}] !!! {tid}: linux:sched-in time ({time})")
                }
                Shown::Leave {
                    time, call, ending, ..
                } => {
                    let name = self.labels.get(call.function);
                    let duration = call.entered.map_or_else(
                        || "?".to_owned(),
                        |start| time.saturating_sub(start).to_string(),
                    );
                    let ending = ending_text(ending).map_or(String::new(), |t| format!(", {t}"));
                    format!(
                        "[{number}] <== {tid}/{}: ip ({name}), time ({time}:{duration}){ending}",
                        call.depth
                    )
                }
                Shown::Lost { time, records } => {
                    format!("[{number}] XXX {tid}: lost {records} records, time ({time})")
                }
                Shown::Switch { time, stack } => {
                    format!("[{number}] --- {tid}: stack {stack}, time ({time})")
                }
            };
            self.out.line(&line);
            self.number += 1;
            self.out.flush_some()?;
        }
        Ok(())
    }
}
