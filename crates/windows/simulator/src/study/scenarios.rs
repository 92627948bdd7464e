//! The scenarios of `cargo xtask bench windows`.

use super::{Asked, Bar, Question, Scenario};
use crate::{Begin, Event, Function, Program, Recording, Spoiling};

/// Nominal 95 % intervals from 20 bursts on.
const COVERS: Bar = yes(0.93, 0.97);
/// From 10 bursts.
const COVERS_FEW: Bar = yes(0.92, 1.0);
/// Poisson's limits are never too narrow, and often too wide.
const COVERS_RARE: Bar = yes(0.94, 1.0);
/// Rows that agree are said not to in one run of a hundred.
const AGREE: Bar = yes(0.0, 0.03);
/// What interrupts take is found from the same windows as the rates, and uncertain in itself.
const COVERS_CLOCKS: (f64, f64) = (0.92, 0.98);
/// Closure where two rows have most of the time.
const COVERS_CLOSURE: Bar = yes(0.92, 0.99);
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
    }
}

/// All of them.
pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    steady(&mut all);
    rare(&mut all);
    crossings(&mut all);
    regular(&mut all);
    clocks(&mut all);
    borders(&mut all);
    kernel(&mut all);
    others(&mut all);
    all
}

fn events() -> Vec<Event> {
    vec![Event::flow(), Event::single()]
}

fn scenario(program: Program, bursts: u32, asked: Vec<Asked>) -> Scenario {
    Scenario {
        recording: Recording::new(&program, bursts),
        program,
        asked,
    }
}

fn asked(name: impl Into<String>, question: Question, bar: Bar) -> Asked {
    Asked {
        name: name.into(),
        question,
        bar,
    }
}

/// One function, rates that vary from burst to burst.
fn steady(all: &mut Vec<Scenario>) {
    for bursts in [10, 20, 50, 100, 400] {
        let bar = if bursts < 20 { COVERS_FEW } else { COVERS };
        let program = Program::endless(events(), &[1.5, 0.01]);
        let columns = ["ipc", "bent"].map(|column| {
            let name = format!("{column}, {bursts} bursts");
            asked(name, interval(column, true), bar)
        });
        all.push(scenario(program, bursts, columns.into()));
    }
    // Events per burst; 1200 cycles are counted in each.
    let counts = [
        (20, 1.5),
        (20, 3.0),
        (20, 10.0),
        (50, 0.6),
        (50, 1.5),
        (100, 0.5),
        (400, 0.1),
        (400, 1.0),
    ];
    for (bursts, per_burst) in counts {
        for between in [0.0, 0.5] {
            let mut program = Program::endless(events(), &[1.5, per_burst / 1200.0]);
            program.events[1].between = between;
            let expected = per_burst * f64::from(bursts);
            let columns = ["mpkc", "mpki"].map(|column| {
                let name = format!(
                    "{column}, {bursts} bursts, {expected:.0} events expected, varied by {between}"
                );
                asked(name, interval(column, true), COVERS)
            });
            all.push(scenario(program, bursts, columns.into()));
        }
    }
}

/// Few events.
fn rare(all: &mut Vec<Scenario>) {
    for bursts in [20, 200] {
        for expected in [1.0, 4.0, 9.0, 15.0] {
            let rate = expected / f64::from(bursts) / 1200.0;
            let program = Program::endless(events(), &[1.5, rate]);
            let columns = ["mpkc", "mpki"].map(|column| {
                let name =
                    format!("{column}, rare, {bursts} bursts, {expected:.0} events expected");
                asked(name, interval(column, true), COVERS_RARE)
            });
            all.push(scenario(program, bursts, columns.into()));
        }
    }
}

/// The programs with crossings: the function in question is 0; runs in windows, of it and of its companion, which does
/// four times as many instructions.
fn visited(run: f64, companion: f64) -> Program {
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
    // The bias that is allowed, and how often trust must be less than high; nothing for what is there to see.
    let flagged = Some((0.95, 1.0));
    let runs = [
        (0.3, None, flagged),
        (1.0, None, flagged),
        (2.0, None, flagged),
        (2.5, None, flagged),
        (3.0, Some(0.03), None),
        (5.0, Some(0.03), Some((0.0, 0.2))),
        (10.0, Some(0.01), None),
        (30.0, Some(0.01), Some((0.0, 0.05))),
    ];
    for (run, bias, doubted) in runs {
        for (companion, skid) in [(run, 0.0), (run, 10.0), (0.3, 0.0), (60.0, 0.0)] {
            let program = visited(run, companion);
            let text = format!("runs of {run} windows, companion's of {companion}, skid {skid}");
            let columns = [("ipc", false), ("ipc", true), ("mpkc", true)];
            let mut questions: Vec<Asked> = columns
                .into_iter()
                .map(|(column, best)| {
                    let kind = if best { "best" } else { "raw" };
                    let bar = Bar {
                        yes: None,
                        bias: bias.filter(|_| best),
                    };
                    asked(
                        format!("{column}, {text}, {kind}"),
                        interval(column, best),
                        bar,
                    )
                })
                .collect();
            let bar = Bar {
                yes: doubted,
                bias: None,
            };
            let question = Question::Doubted { function: 0 };
            questions.push(asked(format!("doubted, {text}"), question, bar));
            let mut scenario = scenario(program, 1000, questions);
            scenario.recording.skid = skid;
            all.push(scenario);
        }
    }
}

/// A function that faults all the time: three quarters of it are the kernel's, in runs shorter than a window.
fn kernel(all: &mut Vec<Scenario>) {
    for (text, counted) in [("counted at the function", true), ("apart", false)] {
        let user = Function::new(0.1 * WINDOW, &[0.5, 0.0]);
        let mut fault = Function::new(0.25 * WINDOW, &[1.6, 0.0]);
        fault.entry = 0.05 * WINDOW;
        fault.entry_events = vec![0.0, 1.0];
        fault.kernel_of = counted.then_some(0);
        let other = Function::new(30.0 * WINDOW, &[1.2, 0.004]);
        let mut program = Program::mixed(events(), vec![user, fault, other]);
        // 80 faults, some 30 windows, until the other one runs.
        program.next = vec![vec![0., 80., 1.], vec![1., 0., 0.], vec![1., 0., 0.]];
        let right = Bar {
            yes: Some((0.92, 0.98)),
            bias: Some(0.01),
        };
        let bar = if counted { right } else { Bar::default() };
        let mut questions: Vec<Asked> = ["ipc", "mpkc"]
            .into_iter()
            .map(|column| {
                asked(
                    format!("{column}, kernel {text}"),
                    interval(column, true),
                    bar,
                )
            })
            .collect();
        let doubted = if counted {
            yes(0.0, 0.05)
        } else {
            yes(0.95, 1.0)
        };
        let question = Question::Doubted { function: 0 };
        questions.push(asked(format!("doubted, kernel {text}"), question, doubted));
        if counted {
            let question = Question::Closure { event: 2 };
            questions.push(asked(
                format!("closure, kernel {text}"),
                question,
                COVERS_CLOSURE,
            ));
        }
        all.push(scenario(program, 1000, questions));
    }
}

fn others(all: &mut Vec<Scenario>) {
    let program = Program::endless(events(), &[1.5, 0.01]);
    // Spoilt windows make intervals wide as well as wrong: the bias is what shows them.
    let bar = Bar {
        bias: Some(0.02),
        ..COVERS
    };
    let question = asked("ipc, windows spoilt", interval("ipc", true), bar);
    let mut spoilt = scenario(program.clone(), 50, vec![question]);
    spoilt.recording.last = 1.4;
    spoilt.recording.spoiling = Spoiling {
        throttled: 0.02,
        lost: 0.03,
        switched: 0.03,
        late: 0.03,
        partly: 0.03,
    };
    all.push(spoilt);

    let question = asked("mpki, groups in turn", interval("mpki", true), COVERS);
    let mut rotated = scenario(program.clone(), 100, vec![question]);
    rotated.recording.groups = vec![vec![0], vec![1]];
    all.push(rotated);

    let functions = (0..5).map(|f| Function::new(40.0 * WINDOW, &[0.5 + 0.3 * f64::from(f), 0.01]));
    let mixed = Program::mixed(events(), functions.collect());
    let question = asked("closure", Question::Closure { event: 1 }, COVERS);
    all.push(scenario(mixed, 400, vec![question]));

    let drift = Question::Drift { function: 0 };
    let question = asked("drift, false alarms", drift, yes(0.02, 0.08));
    all.push(scenario(program.clone(), 200, vec![question]));
    let question = asked("drift, runs of half a window", drift, Bar::default());
    all.push(scenario(visited(0.5, 0.3), 4000, vec![question]));

    let differ = ["ipc", "mpkc"].map(|column| {
        let question = Question::Difference {
            function: 0,
            column,
        };
        let name = format!("{column}, two runs of one program differ");
        asked(name, question, yes(0.02, 0.08))
    });
    all.push(scenario(program, 50, differ.into()));
}

/// Events of a loop, further apart than bursts are long: what starts a burst must know nothing of them.
fn regular(all: &mut Vec<Scenario>) {
    for distance in [700.0, 1556.0, 10_000.0] {
        let program = Program::endless(
            vec![Event::flow(), Event::regular()],
            &[1.5, 1.0 / distance],
        );
        let near = Bar {
            yes: Some((0.93, 1.0)),
            bias: Some(0.01),
        };
        for (begin, text, bar) in [
            (Begin::Anywhere, "bursts begin anywhere", near),
            (
                Begin::AfterEvents(0.5),
                "half of the bursts begin just after one",
                Bar::default(),
            ),
        ] {
            let name = format!("mpkc, an event each {distance} cycles, {text}");
            let question = asked(name, interval("mpkc", true), bar);
            let mut scenario = scenario(program.clone(), 2000, vec![question]);
            scenario.recording.begin = begin;
            all.push(scenario);
        }
    }
}

/// Windows of a clock, a fifth of which is their interrupts'.
fn clocks(all: &mut Vec<Scenario>) {
    let rates = [[1.5, 0.02], [0.7, 0.005], [1.0, 0.0], [2.0, 0.002]];
    let functions = rates.map(|rates| Function::new(100.0 * WINDOW, &rates));
    let program = Program::mixed(events(), functions.into());
    let right = Bar {
        yes: Some(COVERS_CLOCKS),
        bias: Some(0.01),
    };
    let covers = yes(COVERS_CLOCKS.0, COVERS_CLOCKS.1);
    for bursts in [1000, 5000] {
        let text = format!("windows of a clock, interrupts take a fifth, {bursts} bursts");
        let mut questions = Vec::new();
        for column in ["ipc", "mpkc"] {
            for (best, kind, bar) in [(false, "raw", Bar::default()), (true, "best", right)] {
                let name = format!("{column}, {text}, {kind}");
                questions.push(asked(name, interval(column, best), bar));
            }
        }
        for event in [1, 2] {
            let name = format!("closure of event {event}, {text}");
            questions.push(asked(name, Question::Closure { event }, covers));
        }
        questions.push(asked(
            format!("interrupts, {text}"),
            Question::Interrupts,
            COVERS,
        ));
        let mut scenario = scenario(program.clone(), bursts, questions);
        scenario.recording.interrupt = 60.0;
        all.push(scenario);
    }
    // No row deserves trust: all windows together tell.
    let text = "interrupts, windows of a clock, interrupts take a fifth, runs of half a window";
    let question = asked(text, Question::Interrupts, covers);
    let mut short = scenario(visited(0.5, 0.3), 4000, vec![question]);
    short.recording.interrupt = 60.0;
    all.push(short);
}

/// What windows' borders add: the same in all functions, or not.
fn borders(all: &mut Vec<Scenario>) {
    let rates = |f: u32| [1.4 - 0.3 * f64::from(f % 3), 0.01];
    let functions = (0..6).map(|f| Function::new(100.0 * WINDOW, &rates(f)));
    let mut bordered = Program::mixed(events(), functions.collect());
    bordered.events[0].border = -40.0;
    let right = Bar {
        yes: Some((0.93, 0.97)),
        bias: Some(0.01),
    };
    let text = "borders cost 40 instructions";
    let disagree = |text: &str, event, bar| {
        let name = format!("rows disagree, {text}");
        asked(name, Question::Disagreement { event }, bar)
    };
    let questions = vec![
        asked(
            format!("ipc, {text}, raw"),
            interval("ipc", false),
            Bar::default(),
        ),
        asked(format!("ipc, {text}, best"), interval("ipc", true), right),
        disagree(text, 1, AGREE),
    ];
    all.push(scenario(bordered.clone(), 20_000, questions));

    // Function 0 is one of those where they cost nothing: what is not taken off is right there.
    let kept = Bar {
        yes: Some((0.92, 0.97)),
        ..right
    };
    const FEWER: u32 = 8000;
    let mut partly = bordered;
    partly.events[0].border = 0.0;
    // So that some thousand bursts tell a row's own constant.
    partly.events[0].between = 0.2;
    for function in &mut partly.functions[3..] {
        function.borders[0] = -80.0;
    }
    let text = "borders cost 80 instructions in half of the functions";
    let questions = vec![
        asked(format!("ipc, {text}, best"), interval("ipc", true), kept),
        disagree(text, 1, yes(0.9, 1.0)),
    ];
    all.push(scenario(partly.clone(), FEWER, questions));
    partly.functions[1].borders[0] = -80.0;
    partly.functions[2].borders[0] = -80.0;
    let text = "borders cost 80 instructions in all functions but one";
    let question = asked(
        format!("ipc, {text}, best"),
        interval("ipc", true),
        yes(0.8, 1.0),
    );
    all.push(scenario(partly.clone(), FEWER, vec![question]));

    // An event that borders add where it happens anyway, and never does in function 0.
    for function in &mut partly.functions {
        function.borders = vec![0.0, 0.3];
    }
    let text = "borders add an event to a third of the windows";
    let question = disagree(text, 2, AGREE);
    all.push(scenario(partly.clone(), FEWER, vec![question]));
    partly.functions[0].rates[1] = 0.0;
    partly.functions[0].borders[1] = 0.0;
    let text = "borders add an event to a third of the windows, but where there is none";
    let question = disagree(text, 2, yes(0.95, 1.0));
    all.push(scenario(partly, FEWER, vec![question]));
}
