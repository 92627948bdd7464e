//! The reading of traces: directories with the calls of a traced program.

use super::calls;
use super::functions::kind_word;
use super::identities::{Identities, KnownFunction, KnownModule, ModuleOrigin};
use super::read::{Input, ReadOptions, labels};
use super::rows::signed;
use super::{Content, Kind};
use crate::columns::{Rows, Value};
use crate::error::StoreError;
use crate::ids;
use crate::schema::Table;
use dioptra_calls::{
    Demangle, FunctionNames, Scheduling, Statistics, View, ViewSelection, statistics,
};
use dioptra_profile::UNKNOWN;
use dioptra_symbols::{
    ModuleKind, ModuleRequest, ModuleSymbols, RelativeAddress, SymbolOptions, Symbolizer, demangle,
};
use dioptra_tables::{Severity, escape};
use dioptra_trace_report::{counts_ticks, estimates, function_facts, function_rows};
use dioptra_tracedata::{Trace, TracedModule};
use dioptra_tracelayout::FunctionKind;
use dioptra_tracelayout::directory::{FUNCTIONS, INFO, JOURNAL, NAMES, RECORDS, SWITCHES};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The group of functions that are called as a library's. A trace knows their names, not their libraries.
const LIBRARY_CALLS: ModuleOrigin<'static> = ModuleOrigin::Group {
    kind: "library call",
    name: "[library calls]",
};

/// The group of things that the kernel did with a thread.
const EVENTS: ModuleOrigin<'static> = ModuleOrigin::Group {
    kind: "event",
    name: "[events]",
};

/// The module of functions that no module has.
const NO_MODULE: ModuleOrigin<'static> = ModuleOrigin::Mapped {
    kind: "memory",
    path: b"",
    build_id: None,
    label: UNKNOWN,
};

/// Returns the id of a trace's files, and their size in bytes.
///
/// # Errors
/// A file can't be read, or there is none of a trace.
pub(super) fn content_id(folder: &Path) -> Result<(String, u64), StoreError> {
    if !folder.join(INFO).is_file() {
        return Err(StoreError::NoTrace {
            path: folder.to_owned(),
        });
    }
    let files = [INFO, JOURNAL, FUNCTIONS, NAMES, RECORDS, SWITCHES];
    ids::of_files(folder, &files)
}

/// Reads a trace into the rows of a store.
///
/// # Errors
/// The directory is no trace or is damaged, or a value is too large for a store.
pub(super) fn read(input: &Input, options: &ReadOptions) -> Result<Content, StoreError> {
    let path = &*input.path;
    let trace = Trace::open(path)?;
    let damaged = |damage: &dioptra_tracedata::TraceDamage| StoreError::DamagedTrace {
        path: path.to_owned(),
        damage: damage.to_string(),
    };
    if let Some(damage) = trace.damage().first() {
        return Err(damaged(damage));
    }
    let names = FunctionNames::new(&trace, options.symbols.clone(), Demangle::Simple);
    let info = trace.info();
    // As `dioptra trace report` shows a trace.
    let selection = ViewSelection {
        scheduling: Scheduling {
            waits: true,
            preemptions: true,
            everywhere: false,
            tasks: false,
        },
        seed: info.seed.unwrap_or(0),
        ..ViewSelection::default()
    };
    let view = View::new(&names, selection)?;
    let mut identities = Identities::new();
    let mut functions = TraceFunctions::new(&trace, options.symbols.clone());
    let written = calls::write(&view, &mut functions, &mut identities, options.each_call)?;
    let sums = statistics(&view);
    check(&sums, &written.sums, &mut functions, &mut identities)?;
    let report_rows = function_rows(&sums, &names, &view);
    let mut estimate_rows = Rows::new(Table::CallEstimates);
    for row in &report_rows {
        let Some([total, own, calls]) = estimates(row) else {
            continue;
        };
        let function = functions.get(row.times.function, &mut identities);
        estimate_rows.push(&[
            Value::Text(&function.id),
            Value::Text(&function.name),
            Value::Text(&function.module),
            Value::Double(calls.0),
            Value::OptionalDouble(calls.1),
            Value::Double(total.0),
            Value::OptionalDouble(total.1),
            Value::Double(own.0),
            Value::OptionalDouble(own.1),
        ]);
    }
    let mappings = mappings(&view, &mut functions, &mut identities);
    if let Some(damage) = trace.truncated().first() {
        return Err(damaged(damage));
    }
    let mut warnings: Vec<String> = function_facts(&view, &names, &sums, &report_rows)
        .iter()
        .filter(|fact| fact.severity != Severity::Info)
        .map(|fact| escape(&fact.text))
        .collect();
    if counts_ticks(&trace) {
        warnings.push(
            "times are ticks of a clock that nobody has measured, not nanoseconds".to_owned(),
        );
    }
    if info.ending.is_none() {
        warnings.push("the recorder has not ended the trace".to_owned());
    }
    let since = i128::from(view.first()) - i128::from(info.clock.start.monotonic);
    let start_ns = match info.started_realtime {
        0 => None,
        started => i64::try_from(i128::from(started) + since).ok(),
    };
    let host = Some(&*info.host.name);
    let labels = labels(path, &options.labels, host, start_ns, &mut warnings)?;
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let mut lost = Vec::new();
    if !written.one_by_one {
        lost.push(format!(
            "the times of single calls, which are more than {}",
            options.each_call
        ));
    }
    let mut rows = Vec::from(identities.into_rows());
    rows.extend([mappings, written.rows, estimate_rows]);
    Ok(Content {
        kind: Kind::Trace,
        profile_id: input.profile_id.clone(),
        labels,
        start_ns,
        duration_ns: Some(signed("duration_ns", written.duration)?),
        command: text(&info.command.join(" ")),
        kernel: text(&info.host.kernel),
        arch: None,
        cpu_model: text(&info.host.cpu),
        file_bytes: signed("file_bytes", input.bytes)?,
        totals: Vec::new(),
        calls: signed("calls", written.calls)?,
        warnings,
        lost,
        rows,
    })
}

/// Compares the sums of the rows with those that reports show.
fn check(
    sums: &Statistics,
    written: &BTreeMap<String, [u64; 3]>,
    functions: &mut TraceFunctions<'_>,
    identities: &mut Identities,
) -> Result<(), StoreError> {
    let mut known: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for times in &sums.functions {
        let function = functions.get(times.function, identities);
        let known = known.entry(function.id).or_default();
        for (sum, value) in known
            .iter_mut()
            .zip([times.calls, times.total, times.self_time])
        {
            *sum = sum.saturating_add(value);
        }
    }
    for (id, total) in &known {
        let rows = written.get(id).copied().unwrap_or_default();
        let values = ["calls", "total times", "self times"];
        for ((value, written), total) in values.into_iter().zip(rows).zip(*total) {
            if written != total {
                return Err(StoreError::Total {
                    event: format!("the function {id}"),
                    value,
                    written,
                    total,
                });
            }
        }
    }
    Ok(())
}

/// Writes a row for each mapping of a module with calls.
fn mappings(
    view: &View<'_>,
    functions: &mut TraceFunctions<'_>,
    identities: &mut Identities,
) -> Rows {
    let mut rows = Rows::new(Table::Mappings);
    let trace = view.trace();
    for mapping in trace.mappings() {
        let module = mapping
            .module
            .filter(|module| functions.has_module(*module));
        let Some(known) = module.and_then(|module| functions.module(module, identities)) else {
            continue;
        };
        let process = trace
            .streams()
            .iter()
            .find(|stream| stream.pid == mapping.pid && stream.tid == mapping.pid);
        let process = process.map_or("", |stream| trace.thread_name(stream));
        let from = i128::from(mapping.time) - i128::from(view.first());
        rows.push(&[
            Value::Integer(i64::from(mapping.pid)),
            Value::Text(process),
            Value::Text(&known.id),
            Value::Text(&known.name),
            Value::Integer(mapping.start.cast_signed()),
            Value::Integer(mapping.end.cast_signed()),
            Value::Integer(mapping.offset.cast_signed()),
            Value::OptionalInteger(i64::try_from(from).ok()),
            Value::OptionalInteger(None),
        ]);
    }
    rows
}

/// The functions of a trace with their ids in the store, which are those of the same functions in profiles.
pub(super) struct TraceFunctions<'t> {
    trace: &'t Trace,
    symbolizer: Symbolizer,
    /// By the number of the module.
    symbols: HashMap<u32, Option<ModuleSymbols>>,
    modules: HashMap<u32, KnownModule>,
    functions: HashMap<u32, KnownFunction>,
}

impl<'t> TraceFunctions<'t> {
    fn new(trace: &'t Trace, symbols: SymbolOptions) -> TraceFunctions<'t> {
        TraceFunctions {
            trace,
            symbolizer: Symbolizer::new(SymbolOptions {
                demangle: false,
                ..symbols
            }),
            symbols: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
        }
    }

    /// Returns a function by its id in the trace. Its row is written once.
    pub(super) fn get(&mut self, function: u32, identities: &mut Identities) -> KnownFunction {
        if let Some(known) = self.functions.get(&function) {
            return known.clone();
        }
        let known = self.find(function, identities);
        self.functions.insert(function, known.clone());
        known
    }

    fn find(&mut self, function: u32, identities: &mut Identities) -> KnownFunction {
        let trace = self.trace;
        let entry = trace.function(function);
        if let Some(event) = entry.as_event() {
            let module = identities.module(EVENTS);
            return identities.function(&module, event.name(), None);
        }
        match entry.kind {
            FunctionKind::LibraryCall => {
                let name = trace.library_call_name(&entry);
                let raw = name.map(String::from_utf8_lossy).unwrap_or_default();
                let module = identities.module(LIBRARY_CALLS);
                identities.function(&module, &demangle(&raw), None)
            }
            FunctionKind::Function => {
                let module = self.module(entry.module, identities);
                let module = module.unwrap_or_else(|| identities.module(NO_MODULE));
                if let Some(name) = trace.stated_name(function) {
                    return identities.function(&module, &demangle(name), None);
                }
                let place = RelativeAddress(entry.place);
                let symbols = self.symbols(entry.module);
                match symbols.and_then(|symbols| symbols.function(place)) {
                    Some(symbol) => {
                        let name = demangle(symbol.raw_name);
                        identities.function(&module, &name, symbol.file)
                    }
                    // As profiles name functions of which only the start is known.
                    None => identities.function(&module, &format!("[0x{:x}]", entry.place), None),
                }
            }
            FunctionKind::Address => {
                let module = identities.module(ModuleOrigin::RunTime);
                identities.function(&module, &format!("[0x{:x}]", entry.place), None)
            }
            _ => {
                let module = identities.module(NO_MODULE);
                identities.function(&module, UNKNOWN, None)
            }
        }
    }

    /// Returns whether a function of a module was asked for.
    fn has_module(&self, number: u32) -> bool {
        self.modules.contains_key(&number)
    }

    fn module(&mut self, number: u32, identities: &mut Identities) -> Option<KnownModule> {
        if let Some(known) = self.modules.get(&number) {
            return Some(known.clone());
        }
        let module = self.trace.module(number)?;
        let build_id = from_hexadecimal(&module.build_id);
        let label = module.path.rsplit('/').next().unwrap_or(&module.path);
        let known = identities.module(ModuleOrigin::Mapped {
            kind: kind_word(ModuleKind::of_mapping(Path::new(&module.path))),
            path: module.path.as_bytes(),
            build_id: build_id.as_deref(),
            label,
        });
        self.modules.insert(number, known.clone());
        Some(known)
    }

    fn symbols(&mut self, number: u32) -> Option<&ModuleSymbols> {
        let (trace, symbolizer) = (self.trace, &self.symbolizer);
        let symbols = self.symbols.entry(number).or_insert_with(|| {
            let module = trace.module(number)?;
            Some(load(trace, module, symbolizer))
        });
        symbols.as_ref()
    }
}

/// Reads the symbols of a module's traced functions.
fn load(trace: &Trace, module: &TracedModule, symbolizer: &Symbolizer) -> ModuleSymbols {
    let count = trace.function_count() as u64;
    let end = (u64::from(module.first) + u64::from(module.count)).min(count);
    let places = (u64::from(module.first)..end)
        .filter_map(|id| u32::try_from(id).ok())
        .map(|id| trace.function(id))
        .filter(|entry| entry.kind == FunctionKind::Function)
        .map(|entry| RelativeAddress(entry.place));
    let path = Path::new(&module.path);
    let build_id = from_hexadecimal(&module.build_id);
    let request = ModuleRequest {
        kind: ModuleKind::of_mapping(path),
        path,
        build_id: build_id.as_deref(),
    };
    symbolizer.load_for(&request, places)
}

/// Returns the bytes of hexadecimal digits; `None` without digits, and for other texts.
fn from_hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let bytes = pairs.iter().map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    let bytes = bytes.collect::<Option<Vec<u8>>>();
    bytes.filter(|bytes| !bytes.is_empty())
}
