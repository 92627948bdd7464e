//! Call paths as OpenTelemetry's profiles: numbers of calls and self times, by thread.

use super::addresses::ModulePlaces;
use super::paths::{NOT_SHOWN, PathFunction, TracePaths, Written};
use super::{ExportedTrace, TraceSource};
use crate::error::ExportError;
use crate::lost::{Lost, LostKind};
use crate::otlp::requests::{
    Descriptions, ProfileHead, Requests, TakeRequest, TimedValue, resource,
};
use crate::otlp::tables::{Attribute, MappingEntry, Tables};
use hashbrown::HashMap;
use std::io::Write;

/// The kinds of data that the format has no place for.
const NO_PLACE: &[LostKind] = &[LostKind::CallMoments, LostKind::OpenMarks];

/// Writes call paths as OpenTelemetry's profiles. `service` is the value of the attribute `service.name`.
///
/// # Errors
/// Writing failed.
pub fn write_trace_otlp(
    source: &TraceSource<'_, '_>,
    service: Option<&str>,
    out: &mut dyn Write,
) -> Result<ExportedTrace, ExportError> {
    trace_otlp_requests(source, service, usize::MAX, &mut |request| {
        out.write_all(&request.body)?;
        Ok(())
    })
}

/// Hands call paths to `take`, in requests of at most `limit` bytes. A request with a single value may be larger, if its
/// path needs more.
///
/// # Errors
/// `take` failed.
pub fn trace_otlp_requests<'a>(
    source: &TraceSource<'_, '_>,
    service: Option<&str>,
    limit: usize,
    take: &'a mut TakeRequest<'a>,
) -> Result<ExportedTrace, ExportError> {
    let paths = TracePaths::of(source);
    let functions = paths.functions();
    let lines = source.names.sources(&functions);
    let info = source.view.trace().info();
    let resource = resource(&[
        ("service.name", service),
        ("host.name", known(&info.host.name)),
        ("os.type", Some("linux")),
        ("os.version", known(&info.host.kernel)),
    ]);
    let paths_of_all: Vec<(usize, usize)> = (0..)
        .zip(&paths.threads)
        .flat_map(|(thread, paths)| (0..paths.nodes.len()).map(move |node| (thread, node)))
        .collect();
    let dictionary = Dictionary {
        source,
        paths: &paths,
        nodes: &paths_of_all,
        places: ModulePlaces::of(source, &functions),
        lines: functions
            .into_iter()
            .zip(lines)
            .filter_map(|(function, line)| Some((function, line?)))
            .collect(),
        locations: HashMap::new(),
    };
    let mut requests = Requests::new(dictionary, resource, false, limit, take);
    let mut written = Written::default();
    for (is_time, name, unit) in [(false, "calls", "count"), (true, "time", "nanoseconds")] {
        requests.begin(ProfileHead {
            name: name.to_owned(),
            unit,
            start: (info.started_realtime > 0).then_some(info.started_realtime),
            duration: 0,
            period: None,
        });
        for (stack, (thread, at)) in paths_of_all.iter().enumerate() {
            let node = &paths.threads[*thread].nodes[*at];
            let value = if is_time { node.self_time } else { node.calls };
            if value == 0 {
                continue;
            }
            requests.sample(stack, *thread, &[TimedValue { value, time: 0 }])?;
            let sum = match (is_time, node.function) {
                (false, _) => &mut written.calls,
                (true, PathFunction::Shown(_)) => &mut written.self_time,
                (true, PathFunction::NotShown) => &mut written.not_shown,
            };
            *sum = sum.saturating_add(value);
        }
    }
    let cut = requests.finish()?;
    let mut exported = paths.exported(written, NO_PLACE)?;
    if cut > 0 {
        exported.lost.push(Lost {
            kind: LostKind::LargeValues,
            count: cut,
        });
    }
    Ok(exported)
}

/// The entries of a trace's paths and threads.
struct Dictionary<'a, 's, 't> {
    source: &'a TraceSource<'s, 't>,
    paths: &'a TracePaths,
    /// By stack: its place in the threads, and the node.
    nodes: &'a [(usize, usize)],
    places: ModulePlaces,
    /// By function: its file and line.
    lines: HashMap<u32, (String, u32)>,
    /// By function: the number of its location.
    locations: HashMap<PathFunction, u64>,
}

impl Dictionary<'_, '_, '_> {
    fn location(&mut self, tables: &mut Tables, function: PathFunction) -> u64 {
        if let Some(known) = self.locations.get(&function) {
            return *known;
        }
        let (mut mapping, mut address) = (0, 0);
        let (mut file, mut line) = ("", 0);
        let mut name = NOT_SHOWN;
        if let PathFunction::Shown(shown) = function {
            name = self.paths.name(function);
            if let Some((path, number)) = self.lines.get(&shown) {
                (file, line) = (path, *number);
            }
            if let Some((place, of_function)) = self.places.function(self.source, shown) {
                let module = self.source.view.trace().module(place.module);
                let path = module.map_or("", |module| module.path.as_str());
                let build_id = module.map(|module| module.build_id.as_str());
                mapping = tables.mapping(&MappingEntry {
                    start: place.start,
                    end: place.end,
                    offset: 0,
                    file: path.as_bytes(),
                    build_id: build_id.filter(|id| !id.is_empty()),
                });
                address = of_function;
            }
        }
        let kind = (mapping > 0)
            .then(|| tables.attribute("profile.frame.type", Attribute::Text("native")));
        let function_id = tables.function(name, file);
        let id = tables.location(mapping, address, &[(function_id, line)], kind);
        self.locations.insert(function, id);
        id
    }
}

impl Descriptions for Dictionary<'_, '_, '_> {
    fn stack(&mut self, tables: &mut Tables, stack: usize) -> u64 {
        let (thread, node) = self.nodes[stack];
        let mut functions = Vec::new();
        self.paths.threads[thread].functions(node, &mut functions);
        let mut locations = Vec::with_capacity(functions.len());
        for function in functions.iter().rev() {
            locations.push(self.location(tables, *function));
        }
        tables.stack(locations)
    }

    fn attributes(&mut self, tables: &mut Tables, key: usize) -> Vec<u64> {
        let place = self.paths.threads[key].place;
        let stream = self.source.view.streams()[place];
        let name = self.source.thread_name(place);
        vec![
            tables.attribute("process.pid", Attribute::Number(stream.pid)),
            tables.attribute("thread.id", Attribute::Number(stream.tid)),
            tables.attribute("thread.name", Attribute::Text(name)),
        ]
    }

    fn forget(&mut self) {
        self.locations.clear();
    }
}

/// Returns a text that is not empty.
fn known(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}
