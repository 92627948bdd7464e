//! The times of threads.

use dioptra_calls::{Statistics, View};
use dioptra_tables::{Cell, Column, ColumnKind, Table, TableError, Unit};

/// The times of a thread, over all programs that it ran one after the other.
#[derive(Clone, Copy, Debug)]
pub struct ThreadTimes<'t> {
    /// The process id.
    pub pid: u32,
    /// The thread id.
    pub tid: u32,
    /// The nanoseconds within shown calls.
    pub total: u64,
    /// The part of `total` in which the thread had a CPU.
    pub self_time: u64,
    /// The number of shown calls.
    pub calls: u64,
    /// The thread's last name.
    pub name: &'t str,
}

/// Returns the times of all threads, in the order of their first streams.
pub fn threads<'t>(view: &View<'t>, sums: &Statistics) -> Vec<ThreadTimes<'t>> {
    let mut threads: Vec<ThreadTimes<'_>> = Vec::new();
    for sum in &sums.streams {
        let stream = view.streams()[sum.place];
        let self_time = sum.total.saturating_sub(sum.scheduled);
        let name = view.task_name(sum.place);
        let known = threads
            .iter_mut()
            .find(|thread| (thread.pid, thread.tid) == (stream.pid, stream.tid));
        match known {
            Some(thread) => {
                thread.total = thread.total.saturating_add(sum.total);
                thread.self_time = thread.self_time.saturating_add(self_time);
                thread.calls += sum.calls;
                thread.name = name;
            }
            None => threads.push(ThreadTimes {
                pid: stream.pid,
                tid: stream.tid,
                total: sum.total,
                self_time,
                calls: sum.calls,
                name,
            }),
        }
    }
    threads
}

/// Makes a table with a row for each thread.
///
/// # Errors
/// [`TableError`] if the table cannot hold a row.
pub fn thread_table(rows: &[ThreadTimes<'_>]) -> Result<Table, TableError> {
    let mut table = Table::new(vec![
        Column::new("task", "Task name", ColumnKind::Name, Unit::None),
        Column::new("tid", "TID", ColumnKind::Name, Unit::None),
        Column::new("pid", "PID", ColumnKind::Name, Unit::None),
        Column::new("total", "Total time", ColumnKind::Time, Unit::Nanoseconds),
        Column::new("self", "Self time", ColumnKind::Time, Unit::Nanoseconds),
        Column::new("calls", "Num funcs", ColumnKind::Count, Unit::None),
    ]);
    for row in rows {
        table.push(
            None,
            [
                Cell::name(row.name),
                Cell::Count(u64::from(row.tid)),
                Cell::Count(u64::from(row.pid)),
                Cell::Count(row.total),
                Cell::Count(row.self_time),
                Cell::Count(row.calls),
            ],
        )?;
    }
    Ok(table)
}
