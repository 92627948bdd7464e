//! The lines of a replay.

use super::super::events::Event;
use super::super::render::{
    COLORS, DURATION, RESET, address, duration_color, push_duration, push_number, push_right,
    push_timestamp,
};
use super::{Field, Replay};
use dioptra_calls::{Call, CallEnding};
use dioptra_calls::{arguments_text, returned_value};
use dioptra_trace_report::ending_text;

/// The colour of text behind a closing brace.
const GRAY: &str = COLORS[7];

impl<'t> Replay<'_, '_, 't> {
    /// Writes the fields of a line, and its indentation.
    #[inline]
    pub(super) fn prefix(
        &mut self,
        place: usize,
        time: u64,
        function: Option<u32>,
        duration: Option<u64>,
        depth: u32,
    ) {
        if self.last_place != Some(place) {
            self.change(place);
        }
        let thread = &mut self.threads[place];
        let stream = self.view.streams()[place];
        let out = &mut self.out.text;
        for field in &self.fields {
            out.push(b' ');
            match field {
                Field::Duration => match duration {
                    Some(duration) if self.color => {
                        let color = duration_color(duration);
                        out.extend_from_slice(color.unwrap_or("").as_bytes());
                        push_duration(out, duration);
                        out.extend_from_slice(color.map_or("", |_| RESET).as_bytes());
                    }
                    Some(duration) => push_duration(out, duration),
                    None => out.extend_from_slice(&[b' '; DURATION]),
                },
                Field::Tid => {
                    out.push(b'[');
                    push_number(out, u64::from(stream.tid), 6);
                    out.push(b']');
                }
                Field::Address => {
                    let entry = function.map(|function| self.view.trace().function(function));
                    push_right(
                        out,
                        &entry.map_or(String::new(), |entry| address(&entry)),
                        12,
                    );
                }
                Field::Cpu => match thread.cpus.at(time) {
                    Some(cpu) => push_number(out, u64::from(cpu), 4),
                    None => out.extend_from_slice(b"    "),
                },
                Field::Time => push_timestamp(out, time, 18),
                Field::Delta => {
                    push_passed(out, thread.last.map_or(0, |last| time.saturating_sub(last)));
                }
                Field::Elapsed => push_passed(out, time.saturating_sub(self.view.first())),
                Field::Task => push_right(
                    out,
                    &dioptra_tables::escape(self.view.task_name_at(place, time)),
                    15,
                ),
                Field::Module => {
                    let module = match function {
                        Some(function) if function >= self.first_event => "[event]",
                        Some(function) => self.labels.module(function),
                        None => "",
                    };
                    push_right(out, &dioptra_tables::escape(module), 16);
                }
            }
        }
        thread.last = Some(time);
        if !self.fields.is_empty() {
            out.extend_from_slice(b" | ");
        }
        let mut depth = depth as usize;
        if let (Some(offset), Some(column)) = (self.column, thread.column) {
            depth = depth.saturating_add(column.saturating_mul(offset));
        }
        // Deeper calls stay at this column, so that millions of nested calls do not fill the disk.
        let blanks = depth.min(MOST_DEPTH) * 2;
        match &mut self.indents {
            None => out.resize(out.len() + blanks, b' '),
            Some(indents) => indents.push(blanks as u32),
        }
    }

    #[cold]
    pub(super) fn change(&mut self, place: usize) {
        if self.task_newline && self.last_place.is_some() {
            let width: usize = self
                .fields
                .iter()
                .map(|field| field.heading().len() + 1)
                .sum();
            self.out.text.resize(self.out.text.len() + width, b' ');
            self.out.line(if width > 0 { " |" } else { "" });
        }
        self.last_place = Some(place);
        if self.column.is_some() && self.threads[place].column.is_none() {
            self.threads[place].column = Some(self.columns);
            self.columns += 1;
        }
    }

    /// Writes a call of a function, with the name in its colour.
    #[inline]
    pub(super) fn call(&mut self, call: &Call) {
        let function = call.function;
        if call.values != 0 {
            return self.call_with_arguments(call);
        }
        let color = self.colors.get(function as usize).copied().flatten();
        let out = &mut self.out.text;
        let Some(color) = color.and_then(|color| COLORS.get(color)) else {
            out.extend_from_slice(self.labels.call(function).as_bytes());
            return;
        };
        out.extend_from_slice(color.as_bytes());
        let name = self.labels.get(function);
        let length = name.len();
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(RESET.as_bytes());
        out.extend_from_slice(&self.labels.call(function).as_bytes()[length..]);
    }

    /// Writes a call with its arguments.
    #[cold]
    fn call_with_arguments(&mut self, call: &Call) {
        let color = self.colors.get(call.function as usize).copied().flatten();
        let color = color.and_then(|color| COLORS.get(color));
        let out = &mut self.out.text;
        out.extend_from_slice(color.unwrap_or(&"").as_bytes());
        out.extend_from_slice(self.labels.get(call.function).as_bytes());
        out.extend_from_slice(color.map_or("", |_| RESET).as_bytes());
        out.push(b'(');
        out.extend_from_slice(arguments_text(self.view.trace(), call).as_bytes());
        out.push(b')');
    }

    /// Writes the value with which a call returns, if it was recorded.
    #[inline]
    fn returned(&mut self, call: &Call) {
        if call.values != 0
            && let Some(value) = returned_value(self.view.trace(), call)
        {
            let text = format!(" = {value}");
            self.out.text.extend_from_slice(text.as_bytes());
        }
    }

    /// Returns the event that a function id stands for.
    #[inline]
    pub(super) fn event(&self, function: u32) -> Option<Event<'t>> {
        if function < self.first_event {
            return None;
        }
        Event::of(self.view.trace(), function)
    }

    pub(super) fn source(&mut self, function: u32) {
        if let Some(sources) = &mut self.sources
            && let Some(source) = sources.get(function)
        {
            self.out.text.extend_from_slice(b" /* ");
            self.out.text.extend_from_slice(source.as_bytes());
            self.out.text.extend_from_slice(b" */");
        }
    }

    pub(super) fn begin(&mut self, place: usize, time: u64, call: Call) {
        self.prefix(place, time, Some(call.function), None, call.depth);
        if let Some(event) = self.event(call.function) {
            self.out.line(&format!("/* {} */", event.begin()));
            return;
        }
        self.call(&call);
        self.out.text.extend_from_slice(b" {");
        self.source(call.function);
        self.out.text.push(b'\n');
    }

    #[inline]
    pub(super) fn leaf(
        &mut self,
        place: usize,
        time: u64,
        call: Call,
        (end, ending, returned): (u64, CallEnding, Call),
    ) {
        let event = self.event(call.function);
        let has_duration = event.is_none_or(|event| event.is_period());
        let duration = has_duration.then(|| end.saturating_sub(time));
        self.prefix(place, time, Some(call.function), duration, call.depth);
        if let Some(event) = event {
            self.out.line(&format!("/* {} */", event.whole()));
            return;
        }
        self.call(&call);
        self.returned(&returned);
        self.out.text.push(b';');
        self.source(call.function);
        if let Some(text) = ending_text(ending) {
            self.out
                .text
                .extend_from_slice(format!(" /* {text} */").as_bytes());
        }
        self.out.text.push(b'\n');
    }

    #[inline]
    pub(super) fn end(&mut self, place: usize, time: u64, call: Call, ending: CallEnding) {
        let event = self.event(call.function);
        if event.is_some_and(|event| !event.is_period()) {
            return;
        }
        let duration = call.entered.map(|start| time.saturating_sub(start));
        self.prefix(place, time, Some(call.function), duration, call.depth);
        if event.is_some() {
            self.out.line("/* linux:sched-in */");
            return;
        }
        self.out.text.push(b'}');
        if call.values != 0 {
            self.returned(&call);
            self.out.text.push(b';');
        }
        let ending = ending_text(ending);
        if self.comment || ending.is_some() {
            if self.color {
                self.out.text.extend_from_slice(GRAY.as_bytes());
            }
            self.out.text.extend_from_slice(b" /* ");
            if self.comment {
                let name = self.labels.get(call.function);
                self.out.text.extend_from_slice(name.as_bytes());
            }
            if let Some(text) = ending {
                let separator: &[u8] = if self.comment { b": " } else { b"" };
                self.out.text.extend_from_slice(separator);
                self.out.text.extend_from_slice(text.as_bytes());
            }
            self.out.text.extend_from_slice(b" */");
            if self.color {
                self.out.text.extend_from_slice(RESET.as_bytes());
            }
        }
        self.out.text.push(b'\n');
    }

    pub(super) fn lost(&mut self, place: usize, time: u64, records: u64) {
        let depth = self.threads[place].open.current().len() as u32;
        self.prefix(place, time, None, None, depth);
        let text = match records {
            0 => "/* LOST some records!! */".to_owned(),
            records => format!("/* LOST {records} records!! */"),
        };
        self.out.line(&text);
    }

    /// Writes the calls that lead to this one, shown or not.
    pub(super) fn backtrace(&mut self, place: usize, time: u64, call: &Call) {
        let view = self.view;
        let paths = self.threads[place]
            .paths
            .get_or_insert_with(|| view.paths(place));
        let path = paths.to(call);
        for (level, function) in path.into_iter().enumerate() {
            let before = self.threads[place].last;
            let start = self.out.text.len();
            self.prefix(place, time, None, None, 0);
            self.threads[place].last = before;
            if self.fields.first() == Some(&Field::Duration) {
                let width = " ".len() + Field::Duration.heading().len();
                if let Some(blanks) = self.out.text[start..].first_chunk_mut::<11>() {
                    debug_assert_eq!(blanks.len(), width);
                    blanks.copy_from_slice(b"  backtrace");
                }
            }
            let name = self.labels.get(function);
            let line = format!("/* [{level:2}] {name} */");
            self.out.line(&line);
        }
    }
}

/// Adds a time that passed; blanks if it is 0.
fn push_passed(out: &mut Vec<u8>, nanoseconds: u64) {
    match nanoseconds {
        0 => out.extend_from_slice(&[b' '; DURATION]),
        _ => push_duration(out, nanoseconds),
    }
}

/// The number of levels that are indented at most.
const MOST_DEPTH: usize = 4096;
