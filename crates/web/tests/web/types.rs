//! The types that the page uses are those of the server.

use std::path::Path;

/// Writes the file anew when set.
const WRITE: &str = "DIOPTRA_WRITE_TYPES";

#[test]
fn the_pages_types_are_the_servers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui/src/api/types.ts");
    let expected = dioptra_web::api::typescript();
    if std::env::var_os(WRITE).is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder");
        std::fs::write(&path, &expected).expect("the file");
    }
    let found = std::fs::read_to_string(&path).expect("ui/src/api/types.ts");
    assert!(
        found == expected,
        "ui/src/api/types.ts is not up to date: run the test with {WRITE}=1"
    );
}
