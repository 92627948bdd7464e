//! The file of a static report: the page's script and style, and the stored answers, in one document.
//!
//! The document's policy lets this one script and this one style run, by their hashes, and forbids the network. The answers
//! lie in a block of data, in which no name can end the block: every `<` is written as an escape of JSON.

use crate::api::StoredReport;
use crate::assets;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// Files of the page.
const SCRIPT: &str = "/page.js";
const STYLE: &str = "/page.css";
const ICON: &str = "/icon.svg";

fn asset(path: &str) -> &'static [u8] {
    assets::content(path).unwrap_or_default()
}

/// The bytes of the page's own files.
pub(super) fn size_of_page() -> usize {
    asset(SCRIPT).len() + asset(STYLE).len() + 2 * asset(ICON).len()
}

/// A source of a policy that allows one inline script or style.
fn hash(content: &[u8]) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(content)))
}

/// The rights of a report: it runs its own script and style, and asks nobody.
fn policy(script: &[u8], style: &[u8]) -> String {
    let (script, style) = (hash(script), hash(style));
    format!(
        "default-src 'none'; script-src {script}; style-src {style}; img-src data: blob:; connect-src 'none'; \
         base-uri 'none'; form-action 'none'"
    )
}

/// JSON in which no text ends an element of the document or begins a comment.
fn harmless_json(stored: &StoredReport) -> serde_json::Result<String> {
    // Outside of its texts JSON has no such character.
    Ok(serde_json::to_string(stored)?.replace('<', "\\u003c"))
}

/// Writes the file.
pub(super) fn page(stored: &StoredReport) -> serde_json::Result<Vec<u8>> {
    let (script, style) = (asset(SCRIPT), asset(STYLE));
    let policy = policy(script, style);
    let icon = STANDARD.encode(asset(ICON));
    let data = harmless_json(stored)?;
    let head = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<title>dioptra</title>\n\
         <link rel=\"icon\" type=\"image/svg+xml\" href=\"data:image/svg+xml;base64,{icon}\">\n<style>"
    );
    let body = format!(
        "</style>\n</head>\n<body>\n<div id=\"page\"></div>\n<noscript>This report needs JavaScript.</noscript>\n\
         <script type=\"application/json\" id=\"dioptra-report\">{data}</script>\n<script type=\"module\">"
    );
    let parts = [
        head.as_bytes(),
        style,
        body.as_bytes(),
        script,
        b"</script>\n</body>\n</html>\n",
    ];
    Ok(parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn script_and_style_can_stand_inside_of_elements() {
        for path in [SCRIPT, STYLE, ICON] {
            let content = std::str::from_utf8(asset(path)).expect("UTF-8");
            let content = content.to_lowercase();
            assert!(!content.is_empty(), "{path}");
            // Browsers read returns and zeros as other characters, so that hashes would differ.
            for end in ["</script", "<script", "</style", "<!--", "\r", "\0"] {
                assert!(!content.contains(end), "{path} has {end:?}");
            }
        }
    }

    #[test]
    fn no_name_leaves_the_block_of_data() {
        let hostile = "</script><script>alert(1)</script><!--\u{2028}\"\\";
        let stored = StoredReport {
            version: "1".to_owned(),
            written: 1,
            has_source: true,
            holds: vec![hostile.to_owned()],
            lacks: Vec::new(),
            answers: BTreeMap::from([(hostile.to_owned(), String::new())]),
        };
        let json = harmless_json(&stored).expect("JSON");
        assert!(!json.contains('<'), "{json}");
        let read: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(read["holds"][0], hostile);
        assert!(read["answers"][hostile].is_string());
        let page = String::from_utf8(page(&stored).expect("a page")).expect("text");
        assert_eq!(page.matches("</script>").count(), 2);
        assert_eq!(page.matches("<script").count(), 2);
        assert!(!page.contains("alert(1)<"));
    }

    #[test]
    fn the_policy_names_the_hashes() {
        // The hash of nothing, as `printf '' | openssl dgst -sha256 -binary | base64` prints it.
        let nothing = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='";
        let policy = policy(b"", b"");
        assert!(policy.contains(&format!("script-src {nothing}; style-src {nothing};")));
        assert!(policy.contains("connect-src 'none'") && !policy.contains("unsafe"));
    }
}
