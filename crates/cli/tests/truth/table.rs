//! Tables as both tools print them, in one form.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// The name of all addresses of a module that have no name.
pub const UNKNOWN: &str = "[unknown]";

/// One row: a function of a module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub module: String,
    pub name: String,
    /// Percentages as printed, without the sign.
    pub total: String,
    pub own: String,
    pub samples: u64,
    pub weight: u64,
}

/// Rows by event.
pub type Table = BTreeMap<String, Vec<Row>>;

/// A file with a profile, and perf's symbol cache, which must stay empty: perf would take names from it.
pub struct Recording {
    pub file: PathBuf,
    pub cache: PathBuf,
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        text(&output.stderr)
    );
    text(&output.stdout)
}

impl Recording {
    /// Returns perf's table of functions, `more` being options of `perf report`. With a filter by comm or thread that
    /// must be a `key` of the rows too (`comm`, `pid`): perf's filters pass or drop rows, not samples.
    pub fn perfs(&self, children: bool, key: Option<&str>, more: &[&str]) -> Table {
        let sort = key.map_or("dso,sym".to_owned(), |key| format!("{key},dso,sym"));
        let mut command = Command::new("perf");
        command
            .arg("--buildid-dir")
            .arg(&self.cache)
            .args(["report", "--stdio", "-g", "none"])
            .args(["--no-inline", "--no-demangle", "--sort", &sort])
            .arg(if children {
                "--children"
            } else {
                "--no-children"
            })
            // Exact sums beside the percentages, and columns that can be told apart.
            .args(["--show-nr-samples", "--show-total-period"])
            .args(["--field-separator", "|"])
            .args(more)
            .arg("-i")
            .arg(&self.file);
        parse_perfs(&run(&mut command))
    }

    /// Returns our table of functions, `more` being options of `dioptra report`.
    pub fn ours(&self, children: bool, more: &[&str]) -> Table {
        let mut arguments = more.to_vec();
        if children {
            arguments.push("--children");
        }
        parse_ours(&self.ours_json(&arguments))
    }

    /// Returns our report as JSON.
    pub fn ours_json(&self, arguments: &[&str]) -> serde_json::Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dioptra"));
        command
            .args(["report", "--no-demangle", "--format", "json", "-i"])
            .arg(&self.file)
            .args(arguments);
        serde_json::from_str(&run(&mut command)).expect("valid JSON")
    }

    /// Returns perf's stacks of functions, innermost first, with their weights.
    pub fn perfs_folded(&self) -> BTreeMap<Vec<String>, u64> {
        let mut command = Command::new("perf");
        command
            .arg("--buildid-dir")
            .arg(&self.cache)
            .args(["report", "--stdio", "--no-children"])
            .args(["-g", "folded,0,callee,function,period"])
            .args(["--no-inline", "--no-demangle", "--sort", "dso,sym", "-i"])
            .arg(&self.file);
        let mut folded = BTreeMap::new();
        for line in run(&mut command).lines() {
            let Some((weight, stack)) = line.split_once(' ') else {
                continue;
            };
            let Ok(weight) = weight.parse::<u64>() else {
                continue;
            };
            let path = stack.split(';').map(|name| {
                let digits = name.strip_prefix("0x").unwrap_or(name);
                let is_address = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                if is_address { UNKNOWN } else { name }.to_owned()
            });
            *folded.entry(path.collect()).or_default() += weight;
        }
        folded
    }

    /// Returns the times of all samples in nanoseconds, in order.
    pub fn times(&self) -> Vec<u64> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dioptra"));
        command
            .args(["dump", "--format", "json", "--type", "SAMPLE", "-i"])
            .arg(&self.file);
        run(&mut command)
            .lines()
            .map(|line| {
                let record: serde_json::Value = serde_json::from_str(line).expect("valid JSON");
                record["time"].as_u64().expect("a time")
            })
            .collect()
    }

    /// Returns the sums of weights of perf's rows by `key` (a sort key such as `pid`), as `perf report` prints that
    /// key.
    pub fn perfs_by(&self, key: &str) -> BTreeMap<String, u64> {
        let mut command = Command::new("perf");
        command
            .arg("--buildid-dir")
            .arg(&self.cache)
            .args(["report", "--stdio", "-g", "none", "--no-children"])
            .args([
                "--sort",
                key,
                "--show-total-period",
                "--field-separator",
                "|",
                "-i",
            ])
            .arg(&self.file);
        let mut sums = BTreeMap::new();
        for line in run(&mut command).lines() {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            if let [_, weight, name] = cells[..]
                && let Ok(weight) = weight.parse::<u64>()
            {
                *sums.entry(name.to_owned()).or_default() += weight;
            }
        }
        sums
    }

    /// Returns the sums of weights of our rows by `dimension`, a row's name being made from its cells by column id.
    pub fn ours_by(
        &self,
        dimension: &str,
        name: impl Fn(&BTreeMap<String, String>) -> String,
    ) -> BTreeMap<String, u64> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dioptra"));
        command
            .args(["report", "--by", dimension, "--format", "json", "-i"])
            .arg(&self.file);
        let json: serde_json::Value = serde_json::from_str(&run(&mut command)).expect("valid JSON");
        let columns: Vec<String> = array(&json["columns"])
            .iter()
            .map(|column| string(&column["id"]))
            .collect();
        let mut sums = BTreeMap::new();
        for row in array(&json["rows"]) {
            let cells: BTreeMap<String, String> = columns
                .iter()
                .cloned()
                .zip(array(&row["cells"]).iter().map(|cell| match cell {
                    serde_json::Value::String(text) => text.clone(),
                    other => other.to_string(),
                }))
                .collect();
            let weight: u64 = cells["weight"].parse().expect("a weight");
            *sums.entry(name(&cells)).or_default() += weight;
        }
        sums
    }

    /// Returns the path of each module that is mapped anywhere, by its base name.
    pub fn module_paths(&self) -> BTreeMap<String, PathBuf> {
        let mut command = Command::new("perf");
        command
            .args(["script", "--show-mmap-events", "-F", "comm", "-i"])
            .arg(&self.file);
        run(&mut command)
            .lines()
            .filter(|line| line.contains("PERF_RECORD_MMAP"))
            .filter_map(|line| {
                let path = PathBuf::from(&line[line.find(" /")? + 1..]);
                let base = path.file_name()?.to_string_lossy().into_owned();
                Some((base, path))
            })
            .collect()
    }
}

/// Reads the output of `perf report --field-separator '|'`.
fn parse_perfs(text: &str) -> Table {
    let mut table = Table::new();
    let mut event = String::new();
    let mut two_percentages = false;
    let mut has_key = false;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# Samples: ") {
            // `1K of event 'cpu-clock'`, sometimes followed by more.
            event = rest.split('\'').nth(1).expect("an event's name").to_owned();
            table.entry(event.clone()).or_default();
        } else if line.starts_with("# Children") {
            two_percentages = true;
        } else if line.starts_with("# Overhead") {
            two_percentages = false;
        }
        if line.contains("|Shared Object") {
            // perf leaves out a key that has only one value.
            let columns = line.matches('|').count() + 1;
            has_key = columns > 5 + usize::from(two_percentages);
        }
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let mut cells = line
            .splitn(5 + usize::from(two_percentages) + usize::from(has_key), '|')
            .map(str::trim);
        let mut next = || {
            cells
                .next()
                .unwrap_or_else(|| panic!("a short line: {line}"))
        };
        let total = next().trim_end_matches('%').to_owned();
        let own = if two_percentages {
            next().trim_end_matches('%').to_owned()
        } else {
            total.clone()
        };
        let number = |text: &str| -> u64 { text.parse().unwrap_or_else(|_| panic!("{line}")) };
        let samples = number(next());
        let weight = number(next());
        if has_key {
            next();
        }
        let module = next().to_owned();
        // `[.] name`, or `[.] 0x00007f…` where there is no name.
        let symbol = next();
        let name = symbol.get(4..).unwrap_or_default();
        let digits = name.strip_prefix("0x").unwrap_or(name);
        let is_address =
            digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        table.entry(event.clone()).or_default().push(Row {
            module,
            name: if is_address { UNKNOWN } else { name }.to_owned(),
            total,
            own,
            samples,
            weight,
        });
    }
    table
}

/// Reads our JSON.
fn parse_ours(json: &serde_json::Value) -> Table {
    let columns: Vec<(String, String)> = array(&json["columns"])
        .iter()
        .map(|column| (string(&column["id"]), string(&column["event"])))
        .collect();
    let index = |id: &str| columns.iter().position(|(known, _)| known == id);
    let (module, function) = (
        index("module").expect("modules"),
        index("function").expect("functions"),
    );
    let mut table = Table::new();
    let mut suffixes: Vec<String> = columns
        .iter()
        .filter_map(|(id, _)| id.strip_prefix("samples").map(str::to_owned))
        .collect();
    suffixes.dedup();
    for suffix in suffixes {
        let column = |name: &str| index(&format!("{name}{suffix}"));
        let Some(samples) = column("samples") else {
            break;
        };
        let own = column("self_percent").expect("self");
        let total = column("total_percent").unwrap_or(own);
        let weight = column("weight").unwrap_or(samples);
        let rows = array(&json["rows"]).iter().map(|row| {
            let cells = array(&row["cells"]);
            let percent = |index: usize| format!("{:.2}", cells[index].as_f64().expect("a number"));
            Row {
                module: string(&cells[module]),
                name: with_unknown(string(&cells[function])),
                total: percent(total),
                own: percent(own),
                samples: cells[samples].as_u64().expect("a count"),
                weight: cells[weight].as_u64().expect("a weight"),
            }
        });
        // A row with values for one event stands in the tables of all events; perf leaves it out of the other tables.
        let rows = rows.filter(|row| row.samples > 0 || row.total != "0.00");
        table.insert(columns[samples].1.clone(), rows.collect());
    }
    table
}

/// Returns the name, or [`UNKNOWN`] for a function without one. We show such a function by its start (`[0x1234]`), perf
/// by an address.
pub fn with_unknown(name: String) -> String {
    if name.starts_with("[0x") || name.starts_with(UNKNOWN) {
        UNKNOWN.to_owned()
    } else {
        name
    }
}

pub fn array(value: &serde_json::Value) -> &[serde_json::Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub fn string(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
