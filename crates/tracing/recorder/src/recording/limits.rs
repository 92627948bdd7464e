//! Notes about processes of which only a part was recorded.

use dioptra_tracelayout::arena::{Arena, Processes};

/// Returns the notes about processes of which only a part could be recorded.
pub fn limits(arena: &Arena) -> Vec<String> {
    let said = [
        (
            &arena.confined,
            "recorded up to where it forbade itself system calls (seccomp) that the tracer needs",
        ),
        (
            &arena.alone,
            "recorded without the modules that it loaded after it forbade itself system calls (seccomp)",
        ),
        (
            &arena.preempted,
            "recorded up to where a signal handler exchanged call stacks that had interrupted the tracer",
        ),
        (
            &arena.sharing,
            "recorded without a thread, from where that made a task that shares its thread-local memory (clone with CLONE_VM, without CLONE_SETTLS), and without that task",
        ),
    ];
    let say = |(processes, what): (&Processes, &str)| {
        let others = match processes.get()? {
            (_, 0) => String::new(),
            (_, others) => format!("; so it is of {others} more"),
        };
        Some(format!("process {} is {what}{others}", processes.get()?.0))
    };
    said.into_iter().filter_map(say).collect()
}
