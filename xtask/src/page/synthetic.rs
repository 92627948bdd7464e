//! A recording with 200,000 functions, some of which have names that a careless page would run.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use dioptra_perfrecords::SampleType;

use super::records::{ID, Records, USER, attr, event};

/// The number of functions.
const FUNCTIONS: u64 = 200_000;
/// The bytes of each function, and the address of the first one.
const SIZE: u64 = 16;
const START: u64 = 0x10000;
/// The process, whose functions a map file names.
const PID: u32 = 42;

/// Names that browsers, terminals or scripts could take for more than text.
const HOSTILE: [&[u8]; 10] = [
    b"<script>alert(1)</script>",
    b"</script><script>alert(2)</script><!--",
    b"<img src=x onerror=alert(3)>",
    b"a\xe2\x80\xaegnitset\x1b[31m",
    b"\xff\xfe not UTF-8 <b>",
    b"javascript:alert(4)",
    b"__proto__",
    b"constructor",
    b"${alert(5)}`'\"&amp;",
    "\u{1F980}::名前<é>".as_bytes(),
];
const USUAL: [&str; 5] = [
    "std::vector<std::pair<int, std::string>, std::allocator<std::pair<int, std::string> > >::push_back",
    "<core::iter::adapters::map::Map<I,F> as core::iter::Iterator>::next",
    "parse_line",
    "operator<<",
    "json::Value::find<char const*>(char const* const&) const",
];

/// A recording, and the folder in which its names are looked for.
pub struct Synthetic {
    pub file: PathBuf,
    pub symfs: PathBuf,
}

/// Writes the recording and the map of its functions' names.
pub fn write(folder: &Path) -> Result<Synthetic> {
    let maps = folder.join("tmp");
    std::fs::create_dir_all(&maps).with_context(|| maps.display().to_string())?;
    let map = maps.join(format!("perf-{PID}.map"));
    write_map(&map).with_context(|| map.display().to_string())?;
    let file = folder.join("synthetic.data");
    let clock = attr(SampleType::CALLCHAIN);
    let content = records().file(&[event("cpu-clock", clock, &[ID])]);
    std::fs::write(&file, content).with_context(|| file.display().to_string())?;
    Ok(Synthetic {
        file,
        symfs: folder.to_path_buf(),
    })
}

fn write_map(path: &Path) -> std::io::Result<()> {
    let mut map = BufWriter::new(File::create(path)?);
    let long = vec![b'x'; 1 << 20];
    for number in 0..FUNCTIONS {
        write!(map, "{:x} {SIZE:x} ", START + number * SIZE)?;
        // The hottest function has a usual name, so that a reader can find it.
        let hostile = (number as usize).checked_sub(1);
        match hostile.and_then(|at| HOSTILE.get(at)) {
            Some(name) => map.write_all(name)?,
            None if number == HOSTILE.len() as u64 + 1 => map.write_all(&long)?,
            None => {
                let name = USUAL[(number % USUAL.len() as u64) as usize];
                write!(map, "{name}_{number}")?;
            }
        }
        map.write_all(b"\n")?;
    }
    map.flush()
}

fn records() -> Records {
    let mut records = Records::default();
    records.comm(PID, PID, true, "</script><script>");
    records.map(PID, START, FUNCTIONS * SIZE, 0, "//anon");
    for number in 0..FUNCTIONS {
        // The first functions are hot, and each is called by functions with smaller numbers.
        let samples = 1 + 2000 / (number + 1);
        let address = |number: u64| START + number * SIZE;
        let chain = [
            USER,
            address(number),
            address(number / 2),
            address(number / 50),
            address(0),
        ];
        let words = [&[chain.len() as u64][..], &chain].concat();
        for _ in 0..samples {
            records.sample(ID, (PID, PID), address(number), 1_000_000, &words);
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use dioptra_perfdata::PerfData;
    use dioptra_profile::{LoadPlan, Names, Profile};

    #[test]
    fn each_function_has_samples_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let made = write(folder.path()).unwrap();
        let data = PerfData::open(&made.file).unwrap();
        let mut plan = LoadPlan::default();
        plan.symbols.symfs = Some(made.symfs);
        let profile = Profile::load_with(&data, &plan);
        let names = Names::find(&profile, plan.symbols);
        assert!(names.functions().len() as u64 >= FUNCTIONS);
        assert!(profile.events()[0].total().samples > FUNCTIONS);
    }
}
