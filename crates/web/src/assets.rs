//! The page's files, which are a part of the program.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

/// A file of the page.
struct Asset {
    /// Its address, such as `/assets/page.js`.
    path: &'static str,
    kind: &'static str,
    content: &'static [u8],
}

// `ASSETS: &[Asset]`: the files of `ui/dist`, as the build script finds them.
include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// The file at an address. Addresses are compared as they are, so none leads out of the page.
pub(crate) fn find(path: &str) -> Option<Response> {
    let path = if path == "/" { "/index.html" } else { path };
    let asset = ASSETS.iter().find(|asset| asset.path == path)?;
    let kind = HeaderValue::from_static(asset.kind);
    Some(([(header::CONTENT_TYPE, kind)], asset.content).into_response())
}

/// The content of a file of the page.
pub(crate) fn content(path: &str) -> Option<&'static [u8]> {
    let asset = ASSETS.iter().find(|asset| asset.path == path)?;
    Some(asset.content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_there_without_inline_script_and_foreign_addresses() {
        let page = ASSETS.iter().find(|asset| asset.path == "/index.html");
        let page = String::from_utf8_lossy(page.expect("the page").content);
        for tag in page.split('<').filter(|tag| tag.starts_with("script")) {
            assert!(tag.contains("src="), "inline script: <{tag}");
        }
        assert!(
            !page.contains("<style") && !page.contains("style="),
            "{page}"
        );
        for asset in ASSETS {
            assert!(!asset.kind.is_empty() && asset.path.starts_with('/'));
        }
        assert!(!page.contains("http://") && !page.contains("https://"));
    }

    #[test]
    fn no_address_leads_out_of_the_page() {
        assert!(find("/").is_some());
        for path in [
            "",
            "/../Cargo.toml",
            "/assets/../index.html",
            "//index.html",
            "/index.html/",
            "/%69ndex.html",
        ] {
            assert!(find(path).is_none(), "{path}");
        }
    }
}
