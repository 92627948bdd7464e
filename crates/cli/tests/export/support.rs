//! Recordings, exports, and the numbers that `dioptra report` shows of them.

use dioptra_testprograms::{self as programs, Recorded, Skip};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs dioptra in the folder of a recording.
pub fn dioptra(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("dioptra runs")
}

/// Runs dioptra, which must succeed, and returns its standard output and standard error.
pub fn done(folder: &Path, arguments: &[&str]) -> (String, String) {
    let output = dioptra(folder, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {err}");
    (out, err)
}

/// Keeps the frame pointers of functions that call nothing, too.
const FLAGS: [&str; 4] = [
    "-O2",
    "-g",
    "-fno-omit-frame-pointer",
    "-mno-omit-leaf-frame-pointer",
];

/// Records a program with inlined functions: `perf.data` with call chains and two events.
pub fn inlined() -> Result<Recorded, Skip> {
    let program = programs::c("inline", &FLAGS)?;
    let options = ["-e", "cpu-clock,page-faults", "-g", "-F", "1999"];
    programs::perf_record(&options, &[program.as_os_str(), "100".as_ref()])
}

/// Records a program of three threads: `perf.data` with call chains and CPUs.
pub fn threads() -> Result<Recorded, Skip> {
    let program = programs::c("threads", &[])?;
    let options = ["-e", "cpu-clock", "-g", "-F", "1999", "--sample-cpu"];
    let words: [&std::ffi::OsStr; 3] = [program.as_os_str(), "3".as_ref(), "100".as_ref()];
    programs::perf_record(&options, &words)
}

/// The rows of `dioptra report`, each as its cells by column id.
pub fn report(folder: &Path, arguments: &[&str]) -> Vec<BTreeMap<String, Value>> {
    let arguments = [&["report", "--format", "json"], arguments].concat();
    let (json, _) = done(folder, &arguments);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let ids: Vec<String> = json["columns"]
        .as_array()
        .expect("columns")
        .iter()
        .map(|column| column["id"].as_str().expect("an id").to_owned())
        .collect();
    let rows = json["rows"].as_array().expect("rows").iter();
    rows.map(|row| {
        let cells = row["cells"].as_array().expect("cells").iter().cloned();
        let mut cells: BTreeMap<String, Value> = ids.iter().cloned().zip(cells).collect();
        // The exact sum stands beside the percentage.
        let total = row["ratios"]["total_percent"][0].clone();
        cells.insert("total_weight".to_owned(), total);
        cells
    })
    .collect()
}

/// Returns a numeric column of a report, summed by function. Locations without a name are called after their module, as
/// exports do it.
pub fn by_function(rows: &[BTreeMap<String, Value>], column: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for row in rows {
        let text = |id: &str| row[id].as_str().expect("a name").to_owned();
        let (mut name, module) = (text("function"), text("module"));
        let module = match module.starts_with('[') {
            true => module,
            false => format!("[{module}]"),
        };
        if let Some(start) = name.strip_prefix("[0x") {
            name = format!("{module}+0x{}", start.trim_end_matches(']'));
        } else if let Some(range) = name.strip_prefix("[unknown]") {
            name = format!("{module}{range}");
        }
        *sums.entry(name).or_default() += number(&row[column]);
    }
    sums.retain(|_, sum| *sum > 0);
    sums
}

/// Returns a whole number, which cells of times may hold as a fraction.
pub fn number(value: &Value) -> u64 {
    let whole = value.as_u64().or_else(|| {
        let value = value.as_f64()?;
        (value.fract() == 0.0).then_some(value as u64)
    });
    whole.unwrap_or_else(|| panic!("{value} is no whole number"))
}

/// The path of a file of a recording.
pub fn inside(recorded: &Recorded, name: &str) -> PathBuf {
    recorded.folder.path().join(name)
}
