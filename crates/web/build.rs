//! Makes the files of the page, `ui/dist`, a part of the program. They are committed, so that building needs no Node.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Endings of file names, and the content types of such files.
const KINDS: [(&str, &str); 8] = [
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("woff2", "font/woff2"),
    ("json", "application/json"),
    ("txt", "text/plain; charset=utf-8"),
];

/// All files below a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => files(&path, found)?,
            false => found.push(path),
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("ui/dist");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut found = Vec::new();
    files(&root, &mut found).map_err(|error| {
        format!(
            "{}: {error}; the page is built by `npm ci && npm run build` in crates/web/ui",
            root.display()
        )
    })?;
    found.sort();
    let mut list = String::from("static ASSETS: &[Asset] = &[\n");
    for file in found {
        let name = file
            .strip_prefix(&root)?
            .to_str()
            .ok_or("a name of a file is not UTF-8")?;
        let end = name.rsplit_once('.').map_or("", |(_, end)| end);
        let kind = KINDS.iter().find(|(known, _)| *known == end);
        let (_, kind) = kind.ok_or_else(|| format!("{name}: no kind is known of such files"))?;
        writeln!(
            list,
            "Asset {{ path: {:?}, kind: {kind:?}, content: include_bytes!({:?}) }},",
            format!("/{name}"),
            file.to_str().ok_or("a name of a file is not UTF-8")?,
        )?;
        println!("cargo::rerun-if-changed={}", file.display());
    }
    list.push_str("];\n");
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("assets.rs"), list)?;
    Ok(())
}
