//! `dioptra export --to autofdo`: llvm-profdata reads the profile, clang finds its lines again, and the counts are those
//! of the samples or of an exact trace.

#[cfg(target_arch = "x86_64")]
mod branches;
#[cfg(target_arch = "x86_64")]
#[allow(dead_code)]
#[path = "../../../sampling/profile/tests/branches/recording.rs"]
mod recording;
mod samples;
#[cfg(target_arch = "x86_64")]
#[path = "../../../sampling/profile/tests/support/mod.rs"]
mod support;
#[cfg(target_arch = "x86_64")]
#[allow(dead_code)]
#[path = "../../../sampling/profile/tests/branches/trace.rs"]
mod trace;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Runs dioptra in a folder; it must succeed. Returns its standard output and standard error.
fn dioptra(folder: &Path, arguments: &[&str]) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("dioptra runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {err}");
    (out, err)
}

/// A line of a function as llvm-profdata shows it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Line {
    count: u64,
    calls: BTreeMap<String, u64>,
}

/// A function, or what was inlined of one, as llvm-profdata shows it.
#[derive(Debug, Default)]
struct Function {
    total: u64,
    head: u64,
    /// By offset, with the discriminator behind a dot where there is one.
    lines: BTreeMap<String, Line>,
    inlined: BTreeMap<(String, String), Function>,
}

impl Function {
    /// Returns the sum of all lines, those of inlined functions included.
    fn sum(&self) -> u64 {
        let own: u64 = self.lines.values().map(|line| line.count).sum();
        own + self.inlined.values().map(Function::sum).sum::<u64>()
    }

    /// Checks that each total is the sum of what lies within.
    fn check(&self) {
        assert_eq!(self.total, self.sum(), "{self:?}");
        self.inlined.values().for_each(Function::check);
    }

    /// Adds all lines with this path of functions in front.
    fn collect(&self, path: &[&str], into: &mut BTreeMap<(Vec<String>, String), u64>) {
        for (offset, line) in &self.lines {
            let names = path.iter().map(|name| (*name).to_owned()).collect();
            *into.entry((names, offset.clone())).or_default() += line.count;
        }
        for ((_, name), inlined) in &self.inlined {
            inlined.collect(&[path, &[name]].concat(), into);
        }
    }
}

/// Returns the functions of a profile as llvm-profdata shows them, and checks their totals.
fn read(profile: &Path) -> BTreeMap<String, Function> {
    let output = Command::new("llvm-profdata")
        .args(["show", "--sample", "--all-functions"])
        .arg(profile)
        .output()
        .expect("llvm-profdata runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let mut functions: BTreeMap<String, Function> = BTreeMap::new();
    let mut open: Vec<(String, String)> = Vec::new();
    let sums = |rest: &str| -> (String, u64, u64) {
        // The name, the total, the head, and the number of lines.
        let mut parts = rest.rsplitn(4, [',', ':']).map(str::trim);
        let _lines = parts.next();
        let head = parts.next().and_then(|head| head.parse().ok());
        let total = parts.next().and_then(|total| total.parse().ok());
        let name = parts.next().expect("a name").to_owned();
        (name, total.expect("a total"), head.expect("a head"))
    };
    for line in text.lines() {
        let depth = (line.len() - line.trim_start().len()) / 2;
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("Function: ") {
            let (name, total, head) = sums(rest);
            open = vec![(String::new(), name)];
            let function = at(&mut functions, &open);
            (function.total, function.head) = (total, head);
        } else if let Some((offset, rest)) = line.split_once(": inlined callee: ") {
            let (name, total, head) = sums(rest);
            // An inlined function stands four blanks deeper than the one around it.
            open.truncate(depth.div_ceil(2));
            open.push((offset.to_owned(), name));
            let function = at(&mut functions, &open);
            (function.total, function.head) = (total, head);
        } else if let Some((offset, rest)) = line.split_once(": ")
            && offset.starts_with(|first: char| first.is_ascii_digit())
        {
            let (count, calls) = rest.split_once(", calls: ").unwrap_or((rest, ""));
            let calls = calls.split_whitespace().map(|call| {
                let (name, count) = call.rsplit_once(':').expect("a callee");
                (name.to_owned(), count.parse().expect("a count"))
            });
            let line = Line {
                count: count.parse().expect("a count"),
                calls: calls.collect(),
            };
            let lines = &mut at(&mut functions, &open).lines;
            assert!(lines.insert(offset.to_owned(), line).is_none());
        }
    }
    assert!(!functions.is_empty(), "{text}");
    functions.values().for_each(Function::check);
    functions
}

/// Returns the function that lies at this path of calls and names.
fn at<'f>(
    functions: &'f mut BTreeMap<String, Function>,
    path: &[(String, String)],
) -> &'f mut Function {
    let outermost = functions.entry(path[0].1.clone()).or_default();
    path[1..].iter().fold(outermost, |function, call| {
        function.inlined.entry(call.clone()).or_default()
    })
}
