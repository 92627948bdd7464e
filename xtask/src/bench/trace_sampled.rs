//! `cargo xtask bench trace --sampled`: what calls take that sampling leaves out. Nothing else can do the like.

use std::process::Command;

use anyhow::Result;
use serde_json::json;

use super::trace::{
    Arguments, METHODS, Method, minimum_and_median, nanoseconds, program, workloads,
};
use super::{build, save, scratch};

/// Something that is left out.
struct Case {
    workload: &'static str,
    what: &'static str,
    rule: [&'static str; 2],
    /// The most nanoseconds for a call of a function that is patched. Where compilers have put calls of hooks, those alone
    /// take as long.
    target: f64,
}

/// No workload makes so many calls: none is chosen.
const CASES: [Case; 6] = [
    Case {
        workload: "loop",
        what: "skipped -T",
        rule: ["-T", "^tiny$@sample=1000000000"],
        target: 3.0,
    },
    Case {
        workload: "fib",
        what: "skipped -T",
        rule: ["-T", "^fib$@sample=1000000000"],
        target: 3.0,
    },
    Case {
        workload: "big",
        what: "skipped -T",
        rule: ["-T", "^layer@sample=1000000000"],
        target: 3.0,
    },
    Case {
        workload: "loop",
        what: "skipped -F",
        rule: ["-F", "^tiny$@sample=1000000000"],
        target: 8.0,
    },
    Case {
        workload: "fib",
        what: "hidden below -F",
        rule: ["-F", "^fib$@sample=1000000000"],
        target: 4.0,
    },
    // Each skipped call hides 14.
    Case {
        workload: "big",
        what: "1 -F, 14 hidden",
        rule: ["-F", "^layer3@sample=1000000000"],
        target: (8.0 + 14.0 * 4.0) / 15.0,
    },
];

/// Runs the bench.
pub fn run(arguments: &Arguments) -> Result<()> {
    let tracer = build(&["--package", "dioptra-trace-recorder", "--example", "trace"])?;
    let folder = scratch()?.join("trace-sampled");
    std::fs::create_dir_all(&folder)?;
    let methods: Vec<&Method> = METHODS.iter().collect();
    let uninstrumented = METHODS.iter().find(|method| method.flags.is_empty());
    let mut rows = Vec::new();
    println!("ns of CPU time for a call that is left out, less an untraced one: minimum (median)");
    println!(
        "{:8} {:16} {:10} {:>16} {:>7}",
        "workload", "call", "method", "dioptra", "target"
    );
    for case in &CASES {
        let count = workloads(arguments)
            .into_iter()
            .find(|(name, _)| *name == case.workload)
            .map_or(0, |(_, count)| count)
            .to_string();
        let words = [case.workload, &count];
        let mut plain = Vec::new();
        let mut traced = vec![Vec::new(); methods.len()];
        for _ in 0..arguments.rounds {
            if let Some(method) = uninstrumented {
                plain.push(nanoseconds(Command::new(program(method)?).args(words))?.0);
            }
            for (method, times) in methods.iter().zip(&mut traced) {
                let mut command = Command::new(&tracer);
                command.args(method.ours).args(["--no-libcall", "-d"]);
                command.arg(folder.join("trace")).args(case.rule);
                command.arg(program(method)?).args(words);
                times.push(nanoseconds(&mut command)?.0);
            }
        }
        let plain = minimum_and_median(&plain);
        for (method, times) in methods.iter().zip(&traced) {
            let times = minimum_and_median(times);
            let net = (times.0 - plain.0, times.1 - plain.1);
            let target = Some(case.target).filter(|_| method.name != "cygprof");
            println!(
                "{:8} {:16} {:10} {:>16} {:>7}",
                case.workload,
                case.what,
                method.name,
                format!("{:.1} ({:.1})", net.0, net.1),
                target.map_or_else(|| "-".to_owned(), |target| format!("{target:.1}")),
            );
            rows.push(json!({
                "workload": case.workload, "call": case.what, "method": method.name,
                "minimum": net.0, "median": net.1, "target": target,
            }));
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
    save(
        "trace-sampled",
        json!({"rounds": arguments.rounds, "rows": rows}),
    )
}
