//! `record --windows`: the events to count over windows, and the schedule.

use super::arguments::ArgumentError;
use dioptra_perfevents::names::software;
use dioptra_perfevents::windows::{
    BurstCost, Length, SHORTEST_LONG, Schedule, SourceKind, WindowRequest, shortest_useful_window,
};
use dioptra_perfevents::{AttrFlags, EventGroup, EventSpec, SampleType, event_type, parse_events};
use dioptra_recorder::counters::{Counters, refusal, takes_a_counter};
use dioptra_windows::record::WindowSettings;

/// The default rate of ranking samples beside windows, per second. The rate without windows is eight times as high; its
/// samples would slow a program as much again as its windows do.
const RANKING: u64 = 500;

/// The default nanoseconds from one burst to the next; bursts that cost much come less often.
const LONG: u64 = 1_000_000;

/// The slowdown factor that automatically chosen numbers may cause for a program that computes. A program that mostly
/// faults and calls the kernel pays half as much again for each interrupt. Even so it stays below [`SLOWED_WARNED`].
const SLOWED: f64 = 1.12;

/// The slowdown factor from which on numbers chosen by the user cause a warning.
const SLOWED_WARNED: f64 = 1.2;

/// The share of a program's time that the ranking's samples may take.
const RANKING_SHARE: f64 = 0.02;

/// The default number of windows in a burst.
const BATCH: u32 = 4;

/// The cycles of a window: only a few functions' worth, and far more than an interrupt disturbs.
const CYCLES: u64 = 300;

/// The number of events in a window that software counts.
const SOFTWARE_EVENTS: u64 = 10;

/// The nanoseconds of a clock's window, if the shortest useful one cannot be measured.
const CLOCK: u64 = 100_000;

/// The events that are counted with cycles, as far as there are counters.
const HARDWARE: [&str; 4] = ["cycles", "instructions", "branch-misses", "cache-misses"];

/// The events that are counted without hardware counters.
const SOFTWARE: [&str; 3] = ["task-clock", "page-faults", "context-switches"];

/// Removes the groups of several events from the typed groups. These groups are counted over windows; single events are
/// sampled.
pub(super) fn take_groups(groups: &mut Vec<EventGroup>) -> Vec<EventGroup> {
    groups
        .extract_if(.., |group| group.events.len() > 1)
        .collect()
}

/// Parses the text behind `--windows=`.
pub(super) fn request(text: &str) -> Result<(WindowRequest, Option<SourceKind>), ArgumentError> {
    let request = match text {
        "" => WindowRequest::default(),
        text => {
            WindowRequest::parse(text).map_err(|error| ArgumentError::Windows(error.to_string()))?
        }
    };
    let kind = match &request.source {
        None => None,
        Some(name) => Some(SourceKind::from_name(name).ok_or_else(|| {
            let names = SourceKind::ALL.map(SourceKind::name).join(", ");
            ArgumentError::Windows(format!("no source is called `{name}`; there are {names}"))
        })?),
    };
    Ok((request, kind))
}

/// Returns the settings for the request and the groups. Without groups, chooses events that suit this machine.
pub(super) fn options(
    request: &WindowRequest,
    source: Option<SourceKind>,
    mut groups: Vec<EventGroup>,
    counters: &mut dyn Counters,
    say: &mut dyn FnMut(&str),
) -> Result<WindowSettings, ArgumentError> {
    if groups.is_empty() {
        groups.push(default_group(counters, say)?);
    }
    let Some(leader) = groups
        .first()
        .and_then(|group| group.events.first())
        .cloned()
    else {
        return Err(ArgumentError::Windows("there is nothing to count".into()));
    };
    let short = match request.short {
        Some(short) => short,
        None => usual_window(&leader, say),
    };
    let number = short.number();
    let jitter = request.jitter.unwrap_or(match short {
        Length::Time(_) => Length::Time(number / 3),
        Length::Count(_) => Length::Count(number / 3),
    });
    let warm_up = u32::from(takes_a_counter(&leader.attr));
    let schedule = Schedule {
        long: request.long.unwrap_or(Length::Time(LONG)),
        short,
        jitter,
        batch: request.batch.unwrap_or(BATCH),
    };
    let warm_up = request.warm_up.unwrap_or(warm_up);
    if warm_up >= schedule.batch && request.warm_up.is_some() && !schedule.is_steady() {
        return Err(ArgumentError::Windows(format!(
            "warmup={warm_up} leaves none of the {} windows of a burst for the analysis; give a smaller warmup or a larger \
             batch",
            schedule.batch
        )));
    }
    if let Length::Time(long) = schedule.long
        && (1..SHORTEST_LONG).contains(&long)
        && matches!(source, None | Some(SourceKind::Refresh))
    {
        say(&format!(
            "long={} cannot be kept: the shortest from one burst of a CPU to the next is {}",
            schedule.long,
            Length::Time(SHORTEST_LONG)
        ));
    }
    Ok(WindowSettings {
        schedule,
        warm_up,
        source,
        groups,
        cost: None,
    })
}

/// Measures the time that a burst of `options` takes from a program. Returns `None` if no timer makes bursts.
pub(super) fn cost(options: &WindowSettings, samples: SampleType) -> Option<BurstCost> {
    let armed = matches!(options.source, None | Some(SourceKind::Refresh));
    if !armed || options.schedule.is_steady() {
        return None;
    }
    BurstCost::measure(&options.groups, &options.schedule, samples)
}

/// Chooses the distance of bursts, unless the request gives one, and the rate of the ranking's samples. `typed` is the
/// user's rate in samples a second. The choice keeps the slowdown from bursts of this cost small; a request that slows
/// the program more causes a warning. Returns the ranking's rate.
pub(super) fn fit(
    options: &mut WindowSettings,
    request: &WindowRequest,
    typed: Option<u64>,
    cost: Option<BurstCost>,
    say: &mut dyn FnMut(&str),
) -> u64 {
    options.cost = cost;
    let Some(cost) = cost else {
        return typed.unwrap_or(RANKING);
    };
    let rate = typed.unwrap_or_else(|| cost.affordable_rate(RANKING, RANKING_SHARE));
    let us = |time: u64| time as f64 / 1000.0;
    if typed.is_none() && rate < RANKING {
        say(&format!(
            "{rate} samples a second for the ranking, since one takes {:.0} us here; -F asks for others",
            us(cost.sample)
        ));
    }
    let Length::Time(long) = options.schedule.long else {
        // A distance in the leader's counts has no known time.
        return rate;
    };
    let affordable = cost.affordable_long(long, rate, SLOWED);
    if request.long.is_none() && affordable > long {
        options.schedule.long = Length::Time(affordable);
        say(&format!(
            "a burst takes {:.0} us of the program here: one every {:.1} ms, so that it takes some {SLOWED} times as \
             long and no longer; long= asks for others",
            us(cost.burst),
            us(affordable) / 1000.0
        ));
    }
    let Schedule {
        long, short, batch, ..
    } = options.schedule;
    // A burst starts only after the one before has ended.
    let in_turn = match short {
        Length::Time(short) => short.saturating_mul(u64::from(batch) + 1),
        Length::Count(_) => 0,
    };
    let slowed = cost.slowdown(long.number().max(in_turn), rate);
    if slowed > SLOWED_WARNED {
        let times = if slowed.is_finite() {
            format!("about {slowed:.1} times as long")
        } else {
            "many times as long, if it gets on at all".to_owned()
        };
        say(&format!(
            "the program will take {times}, since a burst takes {:.0} us of it here and an ordinary sample {:.0} us; \
             long={} would slow it less",
            us(cost.burst),
            us(cost.sample),
            Length::Time(affordable)
        ));
    }
    rate
}

/// Returns a leader's window unless the user gives another.
fn usual_window(leader: &EventSpec, say: &mut dyn FnMut(&str)) -> Length {
    let period = leader.attr.sample_period;
    let typed = leader.explicit_period && !leader.attr.flags.contains(AttrFlags::FREQ);
    if !is_clock(leader) {
        return Length::Count(match (typed, takes_a_counter(&leader.attr)) {
            (true, _) => period,
            (false, true) => CYCLES,
            (false, false) => SOFTWARE_EVENTS,
        });
    }
    if typed {
        return Length::Time(period);
    }
    let Some((window, cost)) = shortest_useful_window() else {
        return Length::Time(CLOCK);
    };
    say(&format!(
        "windows of {}: the shortest that are useful here, since a sample takes {:.1} us",
        Length::Time(window),
        cost as f64 / 1000.0
    ));
    Length::Time(window)
}

fn is_clock(event: &EventSpec) -> bool {
    event.attr.kind == event_type::SOFTWARE
        && matches!(
            event.attr.config,
            software::CPU_CLOCK | software::TASK_CLOCK
        )
}

/// Returns one event by its name.
fn event(name: &str) -> Option<EventSpec> {
    let parsed = parse_events(name).ok()?;
    let mut event = parsed.into_iter().flat_map(|group| group.events).next()?;
    // A clock's nanoseconds are no cycles.
    event.clock_can_replace = false;
    Some(event)
}

/// Returns the group that is counted if the user names none.
fn default_group(
    counters: &mut dyn Counters,
    say: &mut dyn FnMut(&str),
) -> Result<EventGroup, ArgumentError> {
    let mut hardware: Vec<EventSpec> = Vec::new();
    for event in HARDWARE.iter().filter_map(|name| event(name)) {
        let mut with: Vec<&EventSpec> = hardware.iter().collect();
        with.push(&event);
        if counters.try_group(&with).is_counted() {
            hardware.push(event);
        } else if hardware.is_empty() {
            break;
        }
    }
    if hardware.len() > 1 {
        say(&format!("counting {} over windows", names(&hardware)));
        return Ok(EventGroup::new(hardware));
    }
    let mut refused = Vec::new();
    let mut group = Vec::new();
    for event in SOFTWARE.iter().filter_map(|name| event(name)) {
        match refusal(&event, counters) {
            None => group.push(event),
            Some(reason) => refused.push(format!("{}: {reason}", event.name)),
        }
    }
    if group.first().is_none_or(|leader| !is_clock(leader)) {
        return Err(ArgumentError::NoWindows(refused.join("; ")));
    }
    say(&format!(
        "counting {} over windows: this machine has no hardware counters for us",
        names(&group)
    ));
    for reason in refused {
        say(&format!("without {reason}"));
    }
    Ok(EventGroup::new(group))
}

fn names(events: &[EventSpec]) -> String {
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    names.join(", ")
}

/// Returns groups for windows from the groups that metrics need: cycles lead, and software events are added.
pub(super) fn led(groups: Vec<EventGroup>, counters: &mut dyn Counters) -> Vec<EventGroup> {
    let mut led = with_leaders(groups, counters);
    for leader in led.iter_mut().filter_map(|group| group.events.first_mut()) {
        // A set's period is made for continuous sampling, not for a window.
        leader.explicit_period = false;
    }
    led
}

fn with_leaders(groups: Vec<EventGroup>, counters: &mut dyn Counters) -> Vec<EventGroup> {
    let takes_one = |group: &EventGroup| {
        group
            .events
            .iter()
            .any(|event| takes_a_counter(&event.attr))
    };
    let (mut led, software): (Vec<EventGroup>, Vec<EventGroup>) =
        groups.into_iter().partition(takes_one);
    let mut software: Vec<EventSpec> = software
        .into_iter()
        .flat_map(|group| group.events)
        .collect();
    if led.is_empty() {
        let clock = match software.iter().position(is_clock) {
            Some(index) => Some(software.remove(index)),
            None => event("task-clock"),
        };
        let members = clock.into_iter().chain(software);
        return vec![EventGroup::new(members)];
    }
    for group in &mut led {
        match group.events.iter().position(is_cycles) {
            Some(index) => group.events[..=index].rotate_right(1),
            None => {
                if let Some(cycles) = event("cycles") {
                    let with: Vec<&EventSpec> =
                        [&cycles].into_iter().chain(&group.events).collect();
                    if counters.try_group(&with).is_counted() {
                        group.events.insert(0, cycles);
                    }
                }
            }
        }
    }
    led[0].events.extend(software);
    led
}

/// Returns whether an event counts the CPU's cycles.
fn is_cycles(event: &EventSpec) -> bool {
    (event.attr.kind == event_type::HARDWARE && event.attr.config == 0)
        || ["cpu_cycles", "cpu-cycles", "cycles"]
            .contains(&event.name.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dioptra_perfevents::Refusal;
    use dioptra_recorder::counters::{Trial, Uncountable};
    use std::io;

    /// A machine with this many counters for hardware events.
    struct Machine(usize);

    impl Counters for Machine {
        fn try_group(&mut self, events: &[&EventSpec]) -> Trial {
            let counted = events.iter().filter(|e| takes_a_counter(&e.attr)).count();
            match (counted <= self.0, events.len()) {
                (true, _) => Trial::Counted,
                (false, 1) => {
                    let refusal = Refusal::Other(io::Error::other("not here"));
                    Trial::Refused(Uncountable::Open(refusal))
                }
                (false, _) => Trial::NotAtOnce,
            }
        }
    }

    fn shown(groups: &[EventGroup]) -> Vec<String> {
        groups.iter().map(|group| names(&group.events)).collect()
    }

    #[test]
    fn groups_are_for_windows_and_the_rest_for_the_ranking() {
        let mut groups = parse_events("cpu-clock,{r1,r2},page-faults,{r3,r4}").unwrap();
        let taken = take_groups(&mut groups);
        assert_eq!(shown(&taken), ["r1, r2", "r3, r4"]);
        assert_eq!(shown(&groups), ["cpu-clock", "page-faults"]);
    }

    #[test]
    fn who_names_nothing_gets_what_can_be_counted() {
        let default = |counters| {
            let mut said = Vec::new();
            let (request, kind) = request("").unwrap();
            let options = options(
                &request,
                kind,
                Vec::new(),
                &mut Machine(counters),
                &mut |note| {
                    said.push(note.to_owned());
                },
            );
            (options.unwrap(), said.join("\n"))
        };
        let (rich, _) = default(4);
        assert_eq!(
            shown(&rich.groups),
            ["cycles, instructions, branch-misses, cache-misses"]
        );
        assert_eq!(rich.schedule.short, Length::Count(300));
        assert_eq!(rich.schedule.jitter, Length::Count(100));
        assert_eq!((rich.schedule.batch, rich.warm_up), (4, 1));
        let (three, _) = default(3);
        assert_eq!(
            shown(&three.groups),
            ["cycles, instructions, branch-misses"]
        );
        let (none, said) = default(0);
        assert_eq!(
            shown(&none.groups),
            ["task-clock, page-faults, context-switches"]
        );
        assert!(said.contains("no hardware counters"), "{said}");
        assert!(matches!(
            none.schedule.short,
            Length::Time(50_000..=100_000)
        ));
        assert_eq!(none.schedule.long, Length::Time(1_000_000));
    }

    #[test]
    fn bursts_come_as_often_as_the_program_can_bear() {
        let fitted = |text: &str, typed: Option<u64>, burst: Option<u64>| {
            let (request, kind) = request(text).unwrap();
            let groups = parse_events("{task-clock,page-faults}").unwrap();
            let mut options =
                options(&request, kind, groups, &mut Machine(0), &mut |_| {}).unwrap();
            let mut said = Vec::new();
            let cost = burst.map(|burst| BurstCost::new(burst, options.schedule.batch));
            let rate = fit(&mut options, &request, typed, cost, &mut |note| {
                said.push(note.to_owned());
            });
            assert_eq!(options.cost, cost);
            (options.schedule.long, rate, said.join("\n"))
        };
        let long = |us: u64| Length::Time(us * 1000);
        let nothing = String::new();
        // Cheap bursts, and bursts that were not measured, change nothing.
        assert_eq!(fitted("", None, Some(20_000)), (long(1000), 500, nothing));
        assert_eq!(fitted("", None, None), (long(1000), 500, String::new()));
        assert_eq!(fitted("", Some(99), None).1, 99);
        let (chosen, rate, said) = fitted("", None, Some(150_000));
        assert_eq!((chosen, rate), (long(1700), 500));
        assert!(said.contains("150 us") && said.contains("1.7 ms"), "{said}");
        // Samples take 100 us each.
        let (chosen, rate, said) = fitted("", None, Some(500_000));
        assert_eq!((chosen, rate), (long(5800), 200));
        assert!(said.contains("200 samples a second"), "{said}");
        // Typed numbers are taken as they are, with a warning if they slow the program much.
        let (chosen, rate, said) = fitted("long=1ms", None, Some(150_000));
        assert_eq!((chosen, rate, said), (long(1000), 500, String::new()));
        let (chosen, rate, said) = fitted("long=500us", Some(1000), Some(150_000));
        assert_eq!((chosen, rate), (long(500), 1000));
        assert!(said.contains("about 1.5 times as long"), "{said}");
        assert!(said.contains("long=2ms"), "{said}");
        let (_, _, said) = fitted("long=100us,short=10us", None, Some(150_000));
        assert!(said.contains("if it gets on at all"), "{said}");
        let (_, _, said) = fitted("long=100us,short=1ms", None, Some(150_000));
        assert!(said.is_empty(), "bursts of 5 ms come in turn: {said}");
        // Only the ordinary samples are too many.
        let (_, rate, said) = fitted("", Some(20_000), Some(150_000));
        assert!(rate == 20_000 && said.contains("times as long"), "{said}");
        assert_eq!(
            fitted("long=100", None, Some(150_000)).0,
            Length::Count(100)
        );
    }

    #[test]
    fn what_is_asked_is_taken() {
        let (asked, kind) =
            request("long=2ms,short=20,jitter=0,batch=2,warmup=0,source=period").unwrap();
        assert_eq!(kind, Some(SourceKind::Period));
        let groups = parse_events("{page-faults,task-clock}").unwrap();
        let options = options(&asked, kind, groups, &mut Machine(0), &mut |_| {}).unwrap();
        assert_eq!(options.schedule.numbers(), [2_000_000, 20, 0, 2]);
        assert_eq!(options.warm_up, 0);
        assert!(request("source=magic").is_err() && request("short=x").is_err());
        // A period that was typed with the leader is the length of a window.
        let groups = parse_events("{page-faults/period=7/,task-clock}").unwrap();
        let (request, kind) = request("").unwrap();
        let typed = super::options(&request, kind, groups, &mut Machine(0), &mut |_| {});
        assert_eq!(typed.unwrap().schedule.short, Length::Count(7));
    }

    #[test]
    fn cycles_lead_and_software_goes_along() {
        let groups = |text| parse_events(text).unwrap();
        let led = led(
            groups("page-faults,{instructions,cycles},{branch-misses,branches},{r1,r2,r3}"),
            &mut Machine(3),
        );
        assert_eq!(
            shown(&led),
            [
                "cycles, instructions, page-faults",
                "cycles, branch-misses, branches",
                "r1, r2, r3"
            ]
        );
        let soft = super::led(groups("page-faults,context-switches"), &mut Machine(0));
        assert_eq!(shown(&soft), ["task-clock, page-faults, context-switches"]);
        let of_set = groups("task-clock/period=1000003/,page-faults/period=1/");
        let of_set = super::led(of_set, &mut Machine(0));
        let (request, kind) = request("").unwrap();
        let options = options(&request, kind, of_set, &mut Machine(0), &mut |_| {}).unwrap();
        assert!(
            options.schedule.short.number() <= 100_000,
            "a set's period is no window's"
        );
    }
}
