//! Measures the time that analyses of a recording take, for `cargo xtask bench analyze`:
//!
//! * `analyze tree FILE`: the whole tree of all events, from programs down to instruction addresses;
//! * `analyze questions FILE`: a loaded recording, asked in several ways; how long each answer takes;
//! * `analyze totals FILE`: a recording with call chains, asked for totals of what was called; likewise;
//! * `analyze code FILE [FUNCTIONS] [THREADS]`: instructions, blocks, loops and lines of the hottest functions.
//!
//! Prints one line of JSON; times are milliseconds of wall time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use dioptra_instructions::{CallBlocks, FunctionCode, SourceMap};
use dioptra_perfdata::PerfData;
use dioptra_profile::{
    Dimension, Hierarchy, HierarchyOptions, LoadOptions, LoadPlan, ModuleId, Names, Profile,
    Selection, hierarchy,
};
use dioptra_symbols::{
    ModuleCode, ModuleKind, ModuleLines, ModuleRequest, ModuleSymbols, RelativeAddress,
    SymbolOptions, Symbolizer,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (mode, file) = match &arguments[..] {
        [mode, file, ..] => (mode.as_str(), Path::new(file)),
        _ => {
            eprintln!("usage: analyze tree|questions|totals|code FILE [FUNCTIONS] [THREADS]");
            std::process::exit(2);
        }
    };
    let number = |at: usize, otherwise| {
        let given = arguments.get(at).and_then(|text| text.parse().ok());
        given.unwrap_or(otherwise)
    };
    let data = match PerfData::open(file) {
        Ok(data) => data,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    match mode {
        "tree" => tree(&data),
        "questions" => questions(&data),
        "totals" => totals(&data),
        _ => code(&data, number(2, 500), number(3, 2)),
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn rows(profile: &Profile, names: &Names, levels: &[Dimension], children: bool) -> Hierarchy {
    let events = profile.sampled_events();
    let options = HierarchyOptions {
        children,
        ..HierarchyOptions::default()
    };
    match hierarchy(profile, names, levels, &events, &options) {
        Ok(rows) => rows,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}

const TREE: [Dimension; 4] = [
    Dimension::Program,
    Dimension::Module,
    Dimension::Function,
    Dimension::Address,
];

fn tree(data: &PerfData) {
    let start = Instant::now();
    let options = LoadOptions {
        threads: true,
        ..LoadOptions::default()
    };
    let profile = Profile::load(data, options);
    let loaded = milliseconds(start);
    let start = Instant::now();
    let names = Names::find(&profile, SymbolOptions::default());
    let named = milliseconds(start);
    let start = Instant::now();
    let rows = rows(&profile, &names, &TREE, false);
    println!(
        "{{\"events\": {}, \"rows\": {}, \"load_ms\": {loaded:.1}, \"names_ms\": {named:.1}, \"tree_ms\": {:.1}}}",
        profile.sampled_events().len(),
        rows.rows().len(),
        milliseconds(start)
    );
}

/// A question: its name, the samples that it selects, and the dimensions of its rows.
type Question = (&'static str, Selection, Vec<Dimension>);

fn questions(data: &PerfData) {
    let plan = LoadPlan {
        options: LoadOptions {
            threads: true,
            ..LoadOptions::default()
        },
        cpus: true,
        log: true,
        ..LoadPlan::default()
    };
    let start = Instant::now();
    let profile = Profile::load_with(data, &plan);
    let names = Names::find(&profile, SymbolOptions::default());
    let loaded = milliseconds(start);
    let mut last = 0;
    for event in profile.events() {
        event.samples(|sample| last = last.max(sample.elapsed.unwrap_or(0)));
    }
    let part = |from: u64, to: u64| Selection {
        time: (Some(last / 100 * from), Some(last / 100 * to)),
        ..Selection::default()
    };
    let all = Selection::default;
    let cpu = Selection {
        cpus: vec![0..=0],
        ..Selection::default()
    };
    let asked: Vec<Question> = vec![
        ("modules", all(), vec![Dimension::Module]),
        ("functions", all(), vec![Dimension::Function]),
        (
            "processes, modules, functions",
            all(),
            vec![Dimension::Process, Dimension::Module, Dimension::Function],
        ),
        (
            "CPUs, functions",
            all(),
            vec![Dimension::Cpu, Dimension::Function],
        ),
        ("the whole tree", all(), TREE.to_vec()),
        (
            "functions of half the time",
            part(25, 75),
            vec![Dimension::Function],
        ),
        (
            "addresses of a tenth of the time",
            part(45, 55),
            vec![Dimension::Function, Dimension::Address],
        ),
        (
            "threads of one CPU",
            cpu,
            vec![Dimension::Thread, Dimension::Function],
        ),
    ];
    answer(&profile, &names, loaded, asked, false);
}

fn totals(data: &PerfData) {
    let options = LoadOptions {
        threads: true,
        call_chains: true,
    };
    let start = Instant::now();
    let profile = Profile::load(data, options);
    let names = Names::find(&profile, SymbolOptions::default());
    let loaded = milliseconds(start);
    let asked: Vec<Question> = vec![
        (
            "totals of functions, first time",
            Selection::default(),
            vec![Dimension::Function],
        ),
        (
            "totals of functions",
            Selection::default(),
            vec![Dimension::Function],
        ),
        (
            "totals of modules, functions",
            Selection::default(),
            vec![Dimension::Module, Dimension::Function],
        ),
        (
            "totals of processes, functions",
            Selection::default(),
            vec![Dimension::Process, Dimension::Function],
        ),
    ];
    answer(&profile, &names, loaded, asked, true);
}

/// Asks a recording that took `loaded` milliseconds to load.
fn answer(profile: &Profile, names: &Names, loaded: f64, asked: Vec<Question>, children: bool) {
    let mut answers = Vec::new();
    for (name, selection, levels) in asked {
        let start = Instant::now();
        match profile.select(&selection) {
            Ok(selected) => {
                let rows = rows(&selected, names, &levels, children).len();
                let taken = milliseconds(start);
                answers.push(format!(
                    "{{\"question\": \"{name}\", \"rows\": {rows}, \"ms\": {taken:.1}}}"
                ));
            }
            Err(error) => eprintln!("{name}: {error}"),
        }
    }
    println!(
        "{{\"load_ms\": {loaded:.1}, \"answers\": [{}]}}",
        answers.join(", ")
    );
}

fn code(data: &PerfData, most: usize, threads: usize) {
    let profile = Profile::load(data, LoadOptions::default());
    let names = Names::find(&profile, SymbolOptions::default());
    let found = rows(&profile, &names, &[Dimension::Function], false);
    let mut hottest: Vec<(u64, u32)> = found
        .rows()
        .enumerate()
        .map(|(row, function)| {
            let samples = found.cells(row);
            let samples = samples.map(|cell| cell.count.own.samples).sum();
            (samples, function.key)
        })
        .collect();
    hottest.sort_unstable_by_key(|(samples, _)| std::cmp::Reverse(*samples));
    let is_file = |id: u32| {
        let function = &names.functions()[id as usize];
        let kind = profile.modules().get(function.module).kind;
        kind == ModuleKind::File && !function.is_unknown()
    };
    let wanted: Vec<u32> = hottest
        .iter()
        .map(|(_, id)| *id)
        .filter(|id| is_file(*id))
        .take(most)
        .collect();
    // A place of each, by module.
    let mut places: BTreeMap<u32, u64> = BTreeMap::new();
    for (frame, place) in (0..).zip(profile.frames().iter()) {
        places.entry(names.of_frame(frame)).or_insert(place.address);
    }
    let mut modules: BTreeMap<ModuleId, Vec<u64>> = BTreeMap::new();
    for id in &wanted {
        let module = names.functions()[*id as usize].module;
        modules.entry(module).or_default().push(places[id]);
    }
    let modules: Vec<OfModule> = modules
        .into_iter()
        .map(|(id, places)| OfModule {
            id,
            places,
            opened: OnceLock::new(),
        })
        .collect();
    // Some functions of a module at a time, so that one large module keeps all threads busy.
    let parts: Vec<(&OfModule, &[u64])> = modules
        .iter()
        .flat_map(|module| {
            module
                .places
                .chunks(PART)
                .map(move |places| (module, places))
        })
        .collect();
    let symbolizer = Symbolizer::new(SymbolOptions::default());
    let mut sums = Sums::default();
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut sums = Sums::default();
        while let Some((module, places)) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let opened = module.open(&profile, &symbolizer);
            let reader = opened.lines.reader();
            for place in *places {
                let extent = opened.symbols.extent(RelativeAddress(*place));
                let Some(Ok(function)) =
                    extent.map(|extent| FunctionCode::of_module(&opened.code, extent))
                else {
                    continue;
                };
                let flow = function.control_flow(CallBlocks::Continue);
                let map = SourceMap::of(&function, &reader);
                sums.functions += 1;
                sums.loops += flow.loops().loops().len();
                sums.instructions += function.len();
                sums.with_line += function.len() - map.unknown();
            }
        }
        sums
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for thread in running {
            if let Ok(part) = thread.join() {
                sums.functions += part.functions;
                sums.loops += part.loops;
                sums.instructions += part.instructions;
                sums.with_line += part.with_line;
            }
        }
    });
    println!(
        "{{\"wanted\": {}, \"functions\": {}, \"modules\": {}, \"instructions\": {}, \"loops\": {}, \"with_line\": {}, \"threads\": {threads}, \"ms\": {:.1}}}",
        wanted.len(),
        sums.functions,
        modules.len(),
        sums.instructions,
        sums.loops,
        sums.with_line,
        milliseconds(start)
    );
}

/// The number of functions of one module that a thread takes at a time.
const PART: usize = 16;

/// The wanted functions of one module, by a place of each.
struct OfModule {
    id: ModuleId,
    places: Vec<u64>,
    opened: OnceLock<Opened>,
}

struct Opened {
    symbols: ModuleSymbols,
    code: ModuleCode,
    lines: ModuleLines,
}

impl OfModule {
    fn open(&self, profile: &Profile, symbolizer: &Symbolizer) -> &Opened {
        self.opened.get_or_init(|| {
            let module = profile.modules().get(self.id);
            let request = ModuleRequest {
                kind: module.kind,
                path: module.path(),
                build_id: module.build_id.as_deref(),
            };
            Opened {
                symbols: symbolizer
                    .load_for(&request, self.places.iter().copied().map(RelativeAddress)),
                code: symbolizer.code(&request),
                lines: symbolizer.lines(&request),
            }
        })
    }
}

/// Sums over the code of all analysed functions.
#[derive(Default)]
struct Sums {
    functions: usize,
    loops: usize,
    instructions: usize,
    with_line: usize,
}
