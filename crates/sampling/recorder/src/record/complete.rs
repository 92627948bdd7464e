//! The end of a recording: the parts of the file that are known only then, and the outcome.

use super::{Observer, Recording, told_tracing_data};
use crate::RecordNote;
use crate::error::{RecordError, SinkError};
use crate::extension::{CountedEvent, RecordingEnd};
use crate::features;
use crate::file_events::{counted_with, is_counting, passes_with_time, recorded};
use crate::outcome::{Ending, EventOutcome, Outcome};
use crate::spec::RecordTarget;
use dioptra_perfdata::WriteError;
use std::time::Duration;

impl Recording<'_> {
    /// Writes the parts of the file that are known only at the end, and returns the outcome.
    pub(super) fn complete(
        mut self,
        ending: Ending,
        duration: Duration,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, RecordError> {
        let spec = self.spec.clone();
        let spec = &*spec;
        self.take_in_new_ids(observer)?;
        let summary = self.session.summary().clone();
        if summary.foreign_ids > 0 {
            let samples = summary.foreign_ids;
            observer.note(&RecordNote::ForeignIds { samples });
        }
        let untold = summary.lost_untold();
        if untold > 0 {
            self.write_made(features::monotonic_time(), |synthesizer| {
                synthesizer.lost(untold)
            })?;
        }
        if let Some(source) = self.sink.take_error() {
            return Err(self.write_error(source));
        }
        let attached = self.session.events();
        let mut recorded = recorded(spec, attached);
        let mut extension = self.sink.extension.take();
        if let Some(extension) = &extension {
            for (index, event) in extension.events().iter().enumerate() {
                let index = recorded.len() + index;
                match self.sink.writer.add_ids(index, &event.ids) {
                    Err(WriteError::LateIds { .. }) => {
                        observer.note(&RecordNote::LateExtensionIds);
                    }
                    other => other.map_err(|source| self.write_error(source))?,
                }
            }
            recorded.extend_from_slice(extension.events());
        }
        let tracing_data = if spec.is_pipe() {
            // A pipe states them at the start.
            None
        } else {
            told_tracing_data(&recorded, observer)
        };
        let mut to_write = features::to_write(
            &self.machine,
            spec,
            &recorded,
            self.sink.build_ids(),
            &self.clocks,
            tracing_data,
        );
        let unsampled = summary.unsampled();
        to_write.unsampled.clone_from(&unsampled);
        if let Some(extension) = &mut extension {
            let groups = extension.group_descriptions();
            to_write.group_descriptions.extend(groups);
            let counted = attached.iter().zip(&summary.events);
            let counted = counted.filter(|(event, _)| is_counting(spec, event));
            let of_threads = !matches!(
                spec.target,
                RecordTarget::Machine(_) | RecordTarget::Cgroup { .. }
            );
            let section = extension.section(&RecordingEnd {
                counted: counted
                    .map(|(event, total)| CountedEvent { event, total })
                    .collect(),
                of_threads,
                span: self.span,
            });
            let section = section.map_err(|source| RecordError::Section {
                path: spec.output.clone(),
                source,
            })?;
            to_write.sections.push(section);
        }
        let lost = self.sink.lost + extension.as_ref().map_or(0, |e| e.lost());
        // If side-band records have an event of their own, its losses are known.
        let carrier = attached
            .iter()
            .zip(&summary.events)
            .find(|(event, _)| event.spec.is_none());
        let side_band_is_whole = carrier.is_some_and(|(_, total)| total.lost == Some(0));
        let size = self
            .sink
            .writer
            .finish(&to_write)
            .map_err(|source| SinkError::Write(source).of(&spec.output))?;
        if let Some(extension) = extension {
            extension.complete();
        }
        let events = attached
            .iter()
            .zip(&summary.events)
            .filter(|(event, _)| event.spec.is_some() && !is_counting(spec, event));
        Ok(Outcome {
            path: spec.output.clone(),
            size,
            events: events
                .map(|(event, total)| EventOutcome {
                    name: event.name.clone(),
                    samples: total.samples,
                    counted_with: counted_with(spec, attached, event)
                        .map(|leader| leader.name.clone()),
                    lost: total.lost,
                    throttled: total.throttled,
                    passes_with_time: passes_with_time(&event.attr),
                })
                .collect(),
            unknown_samples: summary.unknown_samples,
            lost,
            unsampled,
            command_is_kept: self.command_is_kept,
            mappings_may_be_lost: lost > 0 && !side_band_is_whole,
            span: self.span,
            duration,
            ending,
            late_signal: None,
            command: None,
        })
    }
}
