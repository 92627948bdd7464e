//! Processes and threads.

use dioptra_tables::escape;
use dioptra_tracedata::{Stream, Trace};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes the trace's processes and threads.
pub fn tasks(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "#    PID  PARENT  COMMAND")?;
    for process in trace.processes() {
        let command = match process.arguments.is_empty() {
            true => process.executable.clone(),
            false => process.arguments.join(" "),
        };
        let command = escape(&command);
        writeln!(out, "{:>8} {:>7}  {command}", process.pid, process.parent)?;
    }
    writeln!(out)?;
    threads(trace, out)
}

/// Writes the threads, children below their parents.
pub fn threads(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "#    PID     TID   STREAM   CHUNKS   DATA SIZE        LOST  TASK"
    )?;
    for (stream, depth) in tree(trace) {
        writeln!(
            out,
            "{:>8} {:>7} {:>8} {:>8} {:>11} {:>11}  {}{}",
            stream.pid,
            stream.tid,
            stream.stream,
            stream.chunk_count(),
            stream.bytes,
            stream.lost,
            "  ".repeat(depth.min(64)),
            escape(trace.thread_name(stream))
        )?;
    }
    Ok(())
}

/// Returns the streams with their depths, each behind the stream of the thread or process that started it. Several
/// programs of one thread stand beside each other.
fn tree(trace: &Trace) -> Vec<(&Stream, usize)> {
    let streams = trace.streams();
    let mut children: BTreeMap<u32, Vec<&Stream>> = BTreeMap::new();
    for stream in streams {
        let main = |pid: u32| streams.iter().find(|s| s.pid == pid && s.tid == pid);
        let parent = || {
            let process = trace.processes().iter().find(|p| p.pid == stream.pid)?;
            main(process.parent).filter(|_| process.parent != stream.pid)
        };
        let above = match stream.parent {
            0 if stream.tid != stream.pid => main(stream.pid).map(|main| main.stream),
            0 => parent().map(|parent| parent.stream),
            parent => Some(parent),
        };
        // A stream has a larger number than the streams that it continues; anything else is damage.
        let above = above.filter(|above| *above < stream.stream).unwrap_or(0);
        children.entry(above).or_default().push(stream);
    }
    let known = |number: &u32| streams.binary_search_by_key(number, |s| s.stream).is_ok();
    let roots = children.iter().filter(|(above, _)| !known(above));
    let mut open: Vec<(&Stream, usize)> = roots
        .flat_map(|(_, roots)| roots.iter().map(|root| (*root, 0)))
        .collect();
    open.reverse();
    let mut ordered = Vec::with_capacity(streams.len());
    while let Some((stream, depth)) = open.pop() {
        ordered.push((stream, depth));
        let below = children.get(&stream.stream).map_or(&[][..], Vec::as_slice);
        open.extend(below.iter().rev().map(|child| (*child, depth + 1)));
    }
    ordered
}
