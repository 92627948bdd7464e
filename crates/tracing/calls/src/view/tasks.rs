//! The names of a view's threads, and the processes that they belong to.

use super::View;
use crate::StreamWalk;
use dioptra_tracedata::{Stream, TaskEvent, Trace, TracedProcess};

impl<'t> View<'t> {
    /// Returns the name of the thread with index `place`. If it has none, or if its process executed another program
    /// since: the file name of the program to which it belonged.
    pub fn task_name(&self, place: usize) -> &'t str {
        self.task_names.get(place).copied().unwrap_or_default()
    }

    /// Returns the path of the program to which the thread with index `place` belongs; none if it is not known.
    pub fn program(&self, place: usize) -> Option<&'t str> {
        let image = image_of(self.trace, self.streams.get(place)?)?;
        Some(&image.executable)
    }

    /// Returns the name that the thread with index `place` has at a time: the last one that the kernel reported until
    /// then. Before the first it is the name of the process's main thread, or the program's.
    pub fn task_name_at(&self, place: usize, time: u64) -> &'t str {
        let Some(stream) = self.streams.get(place) else {
            return "";
        };
        let trace = self.trace;
        let events = trace.task_events(stream);
        let name = |event: &TaskEvent| trace.task_name(&trace.function(event.function));
        let until = events.partition_point(|event| event.time <= time);
        let before = events.get(..until).unwrap_or_default();
        if let Some(name) = before.iter().rev().find_map(name) {
            return name;
        }
        match events.iter().find_map(name) {
            None => self.task_name(place),
            Some(_) => self.first_name(stream, time),
        }
    }

    /// Returns the name of a thread before the kernel has reported one.
    fn first_name(&self, stream: &Stream, time: u64) -> &'t str {
        let main = |other: &&&Stream| other.pid == stream.pid && other.tid == stream.pid;
        if stream.tid != stream.pid
            && let Some(main) = self.streams.iter().position(|other| main(&other))
        {
            return self.task_name_at(main, time);
        }
        let images = self.trace.processes().iter();
        let image = images.filter(|image| image.pid == stream.pid);
        let path = image.map(|image| image.executable.as_str()).next();
        let path = path.unwrap_or_default();
        path.rsplit('/').next().unwrap_or(path)
    }

    /// Returns the parent of process `pid`, as far as it is known.
    pub fn parent(&self, pid: u32) -> Option<u32> {
        let known = || {
            self.trace
                .processes()
                .iter()
                .find(|process| process.pid == pid)
        };
        let parent = match forked_from(self.trace, pid) {
            Some(around) => around.pid,
            None => known()?.parent,
        };
        Some(parent).filter(|parent| *parent != pid)
    }
}

fn stream_of(trace: &Trace, number: u32) -> Option<&Stream> {
    let streams = trace.streams();
    let place = streams
        .binary_search_by_key(&number, |stream| stream.stream)
        .ok()?;
    streams.get(place)
}

/// Returns the name of a thread at the end of the trace: its own, or that of the program to which it belonged.
pub(super) fn task_name<'t>(trace: &'t Trace, stream: &'t Stream) -> &'t str {
    let images = trace.processes().iter();
    let mut images = images.filter(|process| process.pid == stream.pid);
    // The recorder asks for a thread's name when its first records are written, perhaps after an `exec`.
    let is_sure = stream.tid != stream.pid || images.nth(1).is_none();
    if is_sure && !stream.name.is_empty() {
        return &stream.name;
    }
    match image_of(trace, stream) {
        Some(image) => {
            let path = &image.executable;
            path.rsplit('/').next().unwrap_or(path)
        }
        None => trace.thread_name(stream),
    }
}

/// Returns the process image to which a stream belongs.
fn image_of<'t>(trace: &'t Trace, stream: &Stream) -> Option<&'t TracedProcess> {
    let images = |pid: u32| {
        trace
            .processes()
            .iter()
            .filter(move |process| process.pid == pid)
    };
    let began = StreamWalk::new(trace, stream)
        .next()
        .map_or(0, |step| step.time());
    // A forked child runs its parent's program until it executes another one.
    let mut pid = stream.pid;
    for _ in 0..trace.streams().len() {
        let forked = forked_from(trace, pid);
        let image = images(pid).rfind(|image| image.time <= began);
        let only = || images(pid).next().filter(|_| forked.is_none());
        if let Some(image) = image.or_else(only) {
            return Some(image);
        }
        pid = forked?.pid;
    }
    None
}

/// Returns the stream that the forked process `pid` continues.
fn forked_from(trace: &Trace, pid: u32) -> Option<&Stream> {
    let is_forked = |stream: &&Stream| stream.pid == pid && stream.parent != 0;
    stream_of(trace, trace.streams().iter().find(is_forked)?.parent)
}
