//! Finds a profile's format by its content.

use super::error::ImportError;
use super::{ImportFormat, collapsed, pprof, script};

/// The number of bytes that decide.
const BEGINNING: usize = 64 << 10;

/// Returns the format of decompressed content.
pub(super) fn detect(content: &[u8]) -> Result<ImportFormat, ImportError> {
    if content.starts_with(b"PERFILE") || content.starts_with(b"2ELIFREP") {
        return Err(ImportError::IsRecording);
    }
    let unknown = || ImportError::UnknownFormat {
        beginning: String::from_utf8_lossy(&content[..content.len().min(40)]).into_owned(),
    };
    let beginning = &content[..content.len().min(BEGINNING)];
    // A text has no such characters, and a protocol buffer has them within its first fields.
    let is_binary = |byte: &u8| *byte < b'\t' || (*byte > b'\r' && *byte < b' ' && *byte != 0x1b);
    if beginning.iter().any(is_binary) {
        return match pprof::looks_right(content) {
            true => Ok(ImportFormat::Pprof),
            false => Err(unknown()),
        };
    }
    let mut lines = content.split(|byte| *byte == b'\n');
    let first = lines.find(|line| !line.trim_ascii().is_empty() && !line.starts_with(b"#"));
    let first = String::from_utf8_lossy(first.unwrap_or_default());
    if script::looks_right(&first) {
        Ok(ImportFormat::PerfScript)
    } else if collapsed::looks_right(&first) {
        Ok(ImportFormat::Collapsed)
    } else {
        Err(unknown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_their_content() {
        let found = |content: &[u8]| detect(content).ok();
        assert_eq!(found(b"main;foo;bar 10\n"), Some(ImportFormat::Collapsed));
        assert_eq!(
            found(b"# comment\n\nprog 1234 5.000001: 1 cycles:u: \n\t 401000 main (/bin/prog)\n"),
            Some(ImportFormat::PerfScript)
        );
        assert_eq!(
            found(&[0x0a, 4, 8, 1, 16, 2, 0x32, 0]),
            Some(ImportFormat::Pprof)
        );
        assert_eq!(found(b"{\"traceEvents\": []}"), None);
        assert_eq!(found(b""), None);
        assert_eq!(found(b"\x7fELF\x02\x01\x01\x00\x00"), None);
        assert!(matches!(
            detect(b"PERFILE2\x68"),
            Err(ImportError::IsRecording)
        ));
    }
}
