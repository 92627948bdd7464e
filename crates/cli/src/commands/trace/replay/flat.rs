//! The flat replay for scripts: a numbered line for each entry and exit.

use super::Replay;
use dioptra_calls::{Ahead, CallEnding, ShownStep, arguments_text, returned_value};
use dioptra_trace_report::ending_text;
use std::io;

impl Replay<'_, '_, '_> {
    /// Writes a line for each entry and exit.
    pub(super) fn flat(&mut self, merged: &mut Ahead<(usize, ShownStep)>) -> io::Result<()> {
        let range = self.view.range();
        // uftrace's output begins in the same way.
        if !self.fields.is_empty() {
            self.out.line("");
        }
        for (place, shown) in merged {
            if !range.contains(shown.time()) {
                continue;
            }
            let tid = self.view.streams()[place].tid;
            let number = self.number;
            let event = match shown {
                ShownStep::Enter { call, .. } | ShownStep::Leave { call, .. } => {
                    self.event(call.function)
                }
                _ => None,
            };
            let line = match (shown, event) {
                (ShownStep::Enter { call, .. }, _) if call.entered.is_none() => continue,
                (ShownStep::Enter { time, .. }, Some(event)) => {
                    format!("[{number}] !!! {tid}: {} time ({time})", event.begin())
                }
                (ShownStep::Enter { time, call, .. }, None) => {
                    let name = self.labels.get(call.function);
                    let arguments = match call.values {
                        0 => String::new(),
                        _ => format!(", args ({})", arguments_text(self.view.trace(), &call)),
                    };
                    format!(
                        "[{number}] ==> {tid}/{}: ip ({name}), time ({time}){arguments}",
                        call.depth
                    )
                }
                (
                    ShownStep::Leave {
                        ending: CallEnding::Open,
                        ..
                    },
                    _,
                ) => continue,
                (ShownStep::Leave { .. }, Some(event)) if !event.is_period() => continue,
                (ShownStep::Leave { time, .. }, Some(_)) => {
                    format!("[{number}] !!! {tid}: linux:sched-in time ({time})")
                }
                (
                    ShownStep::Leave {
                        time, call, ending, ..
                    },
                    None,
                ) => {
                    let name = self.labels.get(call.function);
                    let duration = call.entered.map_or_else(
                        || "?".to_owned(),
                        |start| time.saturating_sub(start).to_string(),
                    );
                    let ending = ending_text(ending).map_or(String::new(), |t| format!(", {t}"));
                    let value = returned_value(self.view.trace(), &call);
                    let value = value.map_or(String::new(), |value| format!(", retval ({value})"));
                    format!(
                        "[{number}] <== {tid}/{}: ip ({name}), time ({time}:{duration}){ending}{value}",
                        call.depth
                    )
                }
                (ShownStep::Lost { time, records }, _) => {
                    format!("[{number}] XXX {tid}: lost {records} records, time ({time})")
                }
                (ShownStep::Switch { time, stack }, _) => {
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
