//! The scenarios of `cargo xtask bench windows`.

use super::{Bar, Question, Scenario};
use crate::{Event, Function, Program, Recording, Spoiling};

/// Nominal 95 % intervals from 20 bursts on.
const COVERS: Bar = yes(0.93, 0.97);
/// From 10 bursts.
const COVERS_FEW: Bar = yes(0.92, 1.0);
/// Poisson's limits are never too narrow, and often too wide.
const COVERS_RARE: Bar = yes(0.94, 1.0);
/// Windows of 300 cycles on average.
const WINDOW: f64 = 300.0;

const fn yes(low: f64, high: f64) -> Bar {
    Bar {
        yes: Some((low, high)),
        bias: None,
    }
}

fn interval(column: &'static str, best: bool) -> Question {
    Question::Interval {
        function: 0,
        column,
        best,
        events: (0, u64::MAX),
    }
}

/// All of them.
pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    steady(&mut all);
    rare(&mut all);
    crossings(&mut all);
    doubts(&mut all);
    others(&mut all);
    all
}

fn events() -> Vec<Event> {
    vec![Event::flow(), Event::single()]
}

fn scenario(name: String, program: Program, bursts: u32, question: Question, bar: Bar) -> Scenario {
    Scenario {
        name,
        recording: Recording::new(&program, bursts),
        program,
        question,
        bar,
    }
}

/// One function, rates that vary from burst to burst.
fn steady(all: &mut Vec<Scenario>) {
    for bursts in [10, 20, 50, 100, 400] {
        let bar = if bursts < 20 { COVERS_FEW } else { COVERS };
        let program = Program::endless(events(), &[1.5, 0.01]);
        for column in ["ipc", "bent"] {
            let name = format!("{column}, {bursts} bursts");
            all.push(scenario(
                name,
                program.clone(),
                bursts,
                interval(column, true),
                bar,
            ));
        }
    }
    // Events per burst; 1200 cycles are counted in each.
    for (bursts, per_burst) in [
        (20, 1.5),
        (20, 3.0),
        (20, 10.0),
        (50, 0.6),
        (50, 1.5),
        (100, 0.5),
        (400, 0.1),
        (400, 1.0),
    ] {
        for between in [0.0, 0.5] {
            for column in ["mpkc", "mpki"] {
                let mut program = Program::endless(events(), &[1.5, per_burst / 1200.0]);
                program.events[1].between = between;
                let question = Question::Interval {
                    function: 0,
                    column,
                    best: true,
                    events: (0, u64::MAX),
                };
                let name = format!(
                    "{column}, {bursts} bursts, {:.0} events expected, varied by {between}",
                    per_burst * f64::from(bursts)
                );
                all.push(scenario(name, program, bursts, question, COVERS));
            }
        }
    }
}

/// Few events.
fn rare(all: &mut Vec<Scenario>) {
    for bursts in [20, 200] {
        for expected in [1.0, 4.0, 9.0, 15.0, 20.0] {
            for column in ["mpkc", "mpki"] {
                let rate = expected / f64::from(bursts) / 1200.0;
                let program = Program::endless(events(), &[1.5, rate]);
                let question = Question::Interval {
                    function: 0,
                    column,
                    best: true,
                    events: (0, if expected < 20.0 { u64::MAX } else { 20 }),
                };
                // Runs of 20 expected events that had fewer lie low by that choice: they are here to see, not to pass.
                let bar = if expected < 20.0 {
                    COVERS_RARE
                } else {
                    yes(0.0, 1.0)
                };
                let name =
                    format!("{column}, rare, {bursts} bursts, {expected:.0} events expected");
                all.push(scenario(name, program, bursts, question, bar));
            }
        }
    }
}

/// The programs with crossings: the function in question is 0; runs in windows, of it and of its companion.
pub(super) fn visited(run: f64, companion: f64) -> Program {
    let mut function = Function::new(run * WINDOW, &[0.5, 0.01]);
    let mut other = Function::new(companion * WINDOW, &[2.0, 0.001]);
    function.entry = 10.0;
    other.entry = 10.0;
    let third = Function::new(20.0 * WINDOW, &[1.2, 0.004]);
    let mut program = Program::mixed(events(), vec![function, other, third]);
    program.next = vec![vec![0., 2., 1.], vec![2., 0., 1.], vec![1., 1., 0.]];
    program
}

fn crossings(all: &mut Vec<Scenario>) {
    // The bias that is allowed; none for what is there to see.
    let runs = [
        (1.0, None),
        (2.0, None),
        (3.0, Some(0.03)),
        (5.0, Some(0.03)),
        (10.0, Some(0.01)),
        (30.0, Some(0.01)),
    ];
    for (run, bias) in runs {
        for companion in [run, 0.3, 60.0] {
            for skid in [0.0, 10.0] {
                for (column, best) in [("ipc", false), ("ipc", true), ("mpkc", true)] {
                    let kind = if best { "best" } else { "raw" };
                    let name = format!(
                        "{column}, runs of {run} windows, companion's of {companion}, skid {skid}, {kind}"
                    );
                    let bar = Bar {
                        yes: None,
                        bias: bias.filter(|_| best),
                    };
                    let mut scenario = scenario(
                        name,
                        visited(run, companion),
                        1000,
                        interval(column, best),
                        bar,
                    );
                    scenario.recording.skid = skid;
                    all.push(scenario);
                }
            }
        }
    }
}

fn doubts(all: &mut Vec<Scenario>) {
    for run in [2.5, 2.0, 1.0, 0.3] {
        for companion in [run, 0.3, 20.0] {
            let name = format!("doubted, runs of {run} windows, companion's of {companion}");
            let question = Question::Doubted { function: 0 };
            all.push(scenario(
                name,
                visited(run, companion),
                1000,
                question,
                yes(0.95, 1.0),
            ));
        }
    }
    for run in [10.0, 30.0] {
        let name = format!("doubted, runs of {run} windows");
        let question = Question::Doubted { function: 0 };
        all.push(scenario(
            name,
            visited(run, run),
            1000,
            question,
            yes(0.0, 0.05),
        ));
    }
}

fn others(all: &mut Vec<Scenario>) {
    let program = Program::endless(events(), &[1.5, 0.01]);
    let mut spoilt = scenario(
        "ipc, windows spoilt".into(),
        program.clone(),
        50,
        interval("ipc", true),
        COVERS,
    );
    spoilt.recording.last = 1.4;
    spoilt.recording.spoiling = Spoiling {
        throttled: 0.02,
        lost: 0.03,
        switched: 0.03,
        late: 0.03,
        partly: 0.03,
    };
    all.push(spoilt);

    let mut rotated = scenario(
        "mpki, groups in turn".into(),
        program.clone(),
        100,
        interval("mpki", true),
        COVERS,
    );
    rotated.recording.groups = vec![vec![0], vec![1]];
    all.push(rotated);

    for (corrected, bar) in [(false, None), (true, Some(0.01))] {
        let functions =
            (0..6).map(|f| Function::new(100.0 * WINDOW, &[0.5 + 0.3 * f64::from(f), 0.01]));
        let mut program = Program::mixed(events(), functions.collect());
        program.events[0].border = -40.0;
        let question = Question::Interval {
            function: 3,
            column: "ipc",
            best: corrected,
            events: (0, u64::MAX),
        };
        let name = format!(
            "ipc, borders cost 40 instructions, {}",
            if corrected { "corrected" } else { "raw" }
        );
        let bar = Bar {
            yes: bar.map(|_| (0.93, 0.97)),
            bias: bar,
        };
        all.push(scenario(name, program, 20_000, question, bar));
    }

    let functions = (0..5).map(|f| Function::new(40.0 * WINDOW, &[0.5 + 0.3 * f64::from(f), 0.01]));
    let mixed = Program::mixed(events(), functions.collect());
    let closure = Question::Closure { event: 1 };
    all.push(scenario(
        "closure".into(),
        mixed,
        400,
        closure,
        yes(0.93, 0.97),
    ));

    let drift = Question::Drift { function: 0 };
    all.push(scenario(
        "drift, false alarms".into(),
        program.clone(),
        200,
        drift,
        yes(0.02, 0.08),
    ));
    all.push(scenario(
        "drift, runs of half a window".into(),
        visited(0.5, 0.3),
        4000,
        drift,
        yes(0.0, 1.0),
    ));
    for column in ["ipc", "mpkc"] {
        let question = Question::Difference {
            function: 0,
            column,
        };
        let name = format!("{column}, two runs of one program differ");
        all.push(scenario(
            name,
            program.clone(),
            50,
            question,
            yes(0.02, 0.08),
        ));
    }
}
