//! speedscope's file, against its published schema's rules.

use crate::support::{by_function, done, inlined, inside, report, threads};
use dioptra_testprograms::{self as programs, or_skip};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of speedscope that npm brings.
const SPEEDSCOPE: &str = "speedscope@1.25.0";

fn read(file: &std::path::Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).expect("the file")).expect("JSON")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

#[test]
fn samples_and_weights_are_the_report_s() {
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    done(folder, &["export", "--to", "speedscope"]);
    let file = read(&inside(&recorded, "profile.speedscope.json"));
    let frames = list(&file["shared"]["frames"]);
    for event in ["cpu-clock", "page-faults"] {
        let mut weights: BTreeMap<String, u64> = BTreeMap::new();
        let mut samples: BTreeMap<String, u64> = BTreeMap::new();
        let name = |profile: &&Value| {
            profile["name"]
                .as_str()
                .is_some_and(|name| name.ends_with(event))
        };
        for profile in list(&file["profiles"]).iter().filter(name) {
            assert_eq!(profile["type"], "sampled");
            let unit = if event == "cpu-clock" {
                "nanoseconds"
            } else {
                "none"
            };
            assert_eq!(profile["unit"], unit);
            let of_profile = list(&profile["weights"]);
            assert_eq!(of_profile.len(), list(&profile["samples"]).len());
            let sum: u64 = of_profile.iter().filter_map(Value::as_u64).sum();
            assert_eq!(profile["endValue"], sum);
            for (stack, weight) in list(&profile["samples"]).iter().zip(of_profile) {
                let innermost = list(stack).last().and_then(Value::as_u64).expect("a frame");
                let name = frames[innermost as usize]["name"].as_str().expect("a name");
                *weights.entry(name.to_owned()).or_default() += weight.as_u64().expect("a weight");
                *samples.entry(name.to_owned()).or_default() += 1;
            }
        }
        let rows = report(folder, &["--inline", "-e", event]);
        assert_eq!(weights, by_function(&rows, "weight"), "{event}");
        assert_eq!(samples, by_function(&rows, "samples"), "{event}");
    }
}

#[test]
fn each_thread_is_a_profile() {
    let recorded = or_skip!(threads());
    let folder = recorded.folder.path();
    done(folder, &["export", "--to", "speedscope"]);
    let file = read(&inside(&recorded, "profile.speedscope.json"));
    let found: BTreeMap<u64, u64> = list(&file["profiles"])
        .iter()
        .map(|profile| {
            let name = profile["name"].as_str().expect("a name");
            let (_, rest) = name.rsplit_once('/').expect("a thread");
            let (tid, _) = rest.split_once(' ').expect("an event");
            let end = profile["endValue"].as_u64().expect("a sum");
            (tid.parse().expect("a number"), end)
        })
        .collect();
    let rows = report(folder, &["--by", "thread"]);
    let expected = rows.iter().map(|row| {
        let tid = crate::support::number(&row["tid"]);
        (tid, crate::support::number(&row["weight"]))
    });
    assert_eq!(found, expected.collect());
}

/// Serves speedscope's page, with the exported file as `/profile.json`, to a browser on this machine. Returns the address.
fn serve(page: PathBuf, profile: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A browser may open a connection that it does not use.
            let (page, profile) = (page.clone(), profile.clone());
            std::thread::spawn(move || answer(stream, &page, &profile));
        }
    });
    address
}

fn answer(mut stream: TcpStream, page: &Path, profile: &[u8]) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    while lines
        .next()
        .transpose()?
        .is_some_and(|line| !line.is_empty())
    {}
    let path = request.split(' ').nth(1).unwrap_or_default();
    let name = match path.trim_start_matches('/') {
        "" => "index.html",
        name => name,
    };
    let body = match name {
        "profile.json" => Some(profile.to_vec()),
        name => std::fs::read(page.join(name)).ok(),
    };
    let kind = match name.rsplit('.').next() {
        Some("html") => "text/html",
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    };
    let status = if body.is_some() {
        "200 OK"
    } else {
        "404 Not Found"
    };
    let body = body.unwrap_or_default();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(&body)
}

/// Returns the rows of speedscope's table in its page: name, total and self.
fn shown(dom: &str) -> Vec<(String, f64, f64)> {
    let rows = dom.split("<tr class=").skip(1);
    let rows = rows.filter(|row| row.contains("<td"));
    rows.map(|row| {
        let cells: Vec<&str> = row
            .split("<td")
            .skip(1)
            .filter_map(|cell| cell.split_once('>'))
            .map(|(_, cell)| cell)
            .collect();
        let [total, own, name] = cells[..] else {
            panic!("{row}");
        };
        let (_, name) = name.split_once("</span>").expect("a name");
        let (name, _) = name.split_once("</td>").expect("a name");
        let name = name
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&amp;", "&");
        (name, nanoseconds(total), nanoseconds(own))
    })
    .collect()
}

/// Returns the time that a cell such as `60.00ms (60%)` shows.
fn nanoseconds(cell: &str) -> f64 {
    let (time, _) = cell.split_once(" (").expect("a share");
    let end = time.find(|letter: char| letter.is_alphabetic());
    let (number, unit) = time.split_at(end.expect("a unit"));
    let unit = match unit {
        "ns" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        other => panic!("{other}"),
    };
    number.parse::<f64>().expect("a number") * unit
}

/// Opens the profile in Chromium, and returns the page as it is then.
fn opened(chromium: &Path, folder: &Path, address: &str) -> String {
    let browser = tempfile::tempdir_in(folder).expect("a folder");
    let output = Command::new("timeout")
        .arg("120")
        .arg(chromium)
        .args(["--headless", "--no-sandbox", "--dump-dom"])
        // speedscope draws with WebGL, here by the processor.
        .args([
            "--use-gl=angle",
            "--use-angle=swiftshader",
            "--enable-unsafe-swiftshader",
        ])
        // Only rows in sight are in the page.
        .args(["--window-size=1280,2000", "--virtual-time-budget=20000"])
        .arg(format!("--user-data-dir={}", browser.path().display()))
        .arg(format!(
            "{address}/#profileURL={address}/profile.json&view=sandwich"
        ))
        .env("HOME", folder)
        .output()
        .expect("chromium runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// speedscope itself, in Chromium, shows each function with its times.
#[test]
fn speedscope_shows_the_report_s_functions_and_times() {
    let chromium = or_skip!(programs::need_tool("chromium"));
    let package = or_skip!(programs::npm_package(SPEEDSCOPE));
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    done(folder, &["export", "--to", "speedscope"]);
    let profile = std::fs::read(inside(&recorded, "profile.speedscope.json")).expect("the file");
    let address = serve(package.join("dist/release"), profile);
    // The page measures its list before it fills it, and a browser on a busy machine may give up before that.
    let mut dom = String::new();
    let mut rows = Vec::new();
    for _ in 0..8 {
        dom = opened(&chromium, folder, &address);
        rows = shown(&dom);
        if !rows.is_empty() {
            break;
        }
    }
    assert!(rows.len() > 4, "{dom}");
    let report = report(folder, &["--inline", "--children", "-e", "cpu-clock"]);
    let own = by_function(&report, "weight");
    let mut total = by_function(&report, "total_weight");
    // The report separates addresses without a mapping by their ranges.
    let is_named = |name: &str| !name.starts_with("[unknown]");
    total.retain(|name, _| is_named(name));
    let named = rows.iter().filter(|(name, ..)| is_named(name)).count();
    assert_eq!(named, total.len(), "{rows:?} {total:?}");
    let mut sum = 0.0;
    for (name, shown_total, shown_own) in rows {
        let of = |sums: &BTreeMap<String, u64>| sums.get(&name).copied().unwrap_or(0) as f64;
        // Two digits stand behind the point of the largest unit.
        let is = |shown: f64, true_one: f64| (shown - true_one).abs() <= 0.006 * unit_of(true_one);
        sum += shown_own;
        if is_named(&name) {
            assert!(is(shown_total, of(&total)), "{name}: {shown_total}");
            assert!(is(shown_own, of(&own)), "{name}: {shown_own}");
        }
    }
    let whole: u64 = own.values().sum();
    let digits = 0.006 * unit_of(whole as f64) * (total.len() + 1) as f64;
    assert!((sum - whole as f64).abs() <= digits, "{sum} {whole}");
}

/// Returns the unit in which speedscope shows a time, in nanoseconds.
fn unit_of(time: f64) -> f64 {
    let units = [1e9, 1e6, 1e3];
    units.into_iter().find(|unit| time >= *unit).unwrap_or(1.0)
}
