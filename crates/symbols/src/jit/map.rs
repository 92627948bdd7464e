//! `/tmp/perf-PID.map`: one function a line, `START SIZE NAME`, the numbers in hexadecimal.

use std::io::Read;
use std::path::Path;

use super::versions::Versions;
use crate::build_id::open_regular;
use crate::note::Note;

/// Reads a map file; later lines replace earlier ones.
pub(super) fn read(path: &Path, versions: &mut Versions) -> Option<Note> {
    let mut bytes = Vec::new();
    let result = open_regular(path).and_then(|mut file| file.read_to_end(&mut bytes));
    if let Err(error) = result {
        return Some(Note::NoFile {
            path: path.to_path_buf(),
            reason: error.to_string(),
        });
    }
    let mut bad = 0;
    let lines = bytes.split(|&byte| byte == b'\n');
    for (order, line) in lines.filter(|line| !line.is_empty()).enumerate() {
        let line = String::from_utf8_lossy(line);
        match function(&line) {
            Some((start, size, name)) => versions.load(start, size, order as u64, name),
            None => bad += 1,
        }
    }
    (bad > 0).then(|| Note::Damaged {
        path: path.to_path_buf(),
        what: format!("{bad} lines are not START SIZE NAME"),
    })
}

fn function(line: &str) -> Option<(u64, u64, &str)> {
    let mut fields = line.trim_end_matches('\r').splitn(3, ' ');
    let mut number = || {
        let field = fields.next()?;
        u64::from_str_radix(field.strip_prefix("0x").unwrap_or(field), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    Some((start, size, fields.next()?))
}
