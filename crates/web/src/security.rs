//! Who may ask: requests from other hosts and other pages are refused, and answers demand the token.
//!
//! The server listens on loopback, but any page in the reader's browser can send requests there. Three checks stop them:
//! the `Host` header, since a foreign name may lead to this address (DNS rebinding); the `Origin` and `Sec-Fetch-Site`
//! headers, which browsers set and pages cannot; and the token, which only the printed address has. Cookies are not used:
//! a browser sends them to all ports of a host, so that another local server could read them.

use crate::failure::Failure;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use std::fmt;
use std::net::IpAddr;

/// The header that carries the token.
pub(crate) const TOKEN_HEADER: &str = "x-dioptra-token";

/// The rights of a page from this server: it loads its own script and style, and asks this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Headers that every response has.
pub(crate) const HEADERS: [(HeaderName, &str); 8] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), geolocation=(), microphone=()",
    ),
];

/// 128 random bits, without which nothing of a profile is answered.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl Token {
    /// A token that nobody can guess.
    pub(crate) fn random() -> std::io::Result<Token> {
        let mut bytes = [0_u8; 16];
        let mut filled = 0;
        while filled < bytes.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            match rustix::rand::getrandom(&mut bytes[filled..], flags) {
                Ok(more) => filled += more,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
        Ok(Token(digits.collect()))
    }

    /// Whether it is the token, in a time that does not depend on where it differs.
    fn is(&self, other: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let pairs = own.iter().zip(other);
        let difference = pairs.fold(0, |difference, (one, other)| difference | (one ^ other));
        own.len() == other.len() && difference == 0
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// Its digits stay out of messages.
impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token")
    }
}

/// The conditions of a server.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    pub token: Token,
    pub port: u16,
    /// Whether other machines may ask.
    pub is_public: bool,
}

impl Guard {
    /// Fails if a request comes from another page or is for another host.
    pub(crate) fn check_origin(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().map_err(|_| Failure::WrongHost)?,
            _ => return Err(Failure::WrongHost),
        };
        if !self.is_own_host(host) {
            return Err(Failure::WrongHost);
        }
        // Browsers say where a request comes from unless the page asks its own server.
        for origin in headers.get_all(header::ORIGIN) {
            let own = origin
                .to_str()
                .ok()
                .and_then(|origin| origin.strip_prefix("http://"));
            if own != Some(host) {
                return Err(Failure::WrongOrigin);
            }
        }
        let of = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        // Other ports of this machine are the same site, but not the same server.
        let is_foreign = matches!(of("sec-fetch-site"), Some("cross-site" | "same-site"));
        let is_visit =
            of("sec-fetch-mode") == Some("navigate") && of("sec-fetch-dest") == Some("document");
        match is_foreign && !is_visit {
            true => Err(Failure::WrongOrigin),
            false => Ok(()),
        }
    }

    /// Whether a `Host` header names this server. Names of other hosts may be another's that lead here; addresses cannot.
    fn is_own_host(&self, host: &str) -> bool {
        let Some((name, port)) = host.rsplit_once(':') else {
            return self.port == 80 && self.is_own_name(host);
        };
        port.parse() == Ok(self.port) && self.is_own_name(name)
    }

    fn is_own_name(&self, name: &str) -> bool {
        let bare = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'));
        let address: Option<IpAddr> = match bare {
            Some(bare) => bare.parse().ok().filter(IpAddr::is_ipv6),
            None => name.parse().ok().filter(IpAddr::is_ipv4),
        };
        match address {
            Some(address) => self.is_public || address.is_loopback(),
            None => name.eq_ignore_ascii_case("localhost"),
        }
    }

    /// Fails if a request lacks the token.
    pub(crate) fn check_token(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let mut tokens = headers.get_all(TOKEN_HEADER).iter();
        match (tokens.next(), tokens.next()) {
            (Some(token), None) if self.token.is(token.as_bytes()) => Ok(()),
            _ => Err(Failure::NoToken),
        }
    }
}

/// Gives a response the headers of all responses.
pub(crate) fn harden(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(is_public: bool) -> Guard {
        Guard {
            token: Token::random().expect("random bytes"),
            port: 4321,
            is_public,
        }
    }

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn only_this_server_is_asked() {
        let asks = |is_public, host| {
            let guard = guard(is_public);
            guard.check_origin(&headers(&[("host", host)])).is_ok()
        };
        for own in [
            "127.0.0.1:4321",
            "localhost:4321",
            "LocalHost:4321",
            "[::1]:4321",
        ] {
            assert!(asks(false, own) && asks(true, own), "{own}");
        }
        for other in [
            "",
            "127.0.0.1",
            "127.0.0.1:80",
            "evil.example:4321",
            "localhost.evil.example:4321",
            "127.0.0.1.evil.example:4321",
            "[::1:4321",
            "localhost:4321:4321",
        ] {
            assert!(!asks(false, other) && !asks(true, other), "{other}");
        }
        assert!(!asks(false, "192.0.2.7:4321") && asks(true, "192.0.2.7:4321"));
        assert!(guard(false).check_origin(&HeaderMap::new()).is_err());
        let two = headers(&[("host", "127.0.0.1:4321"), ("host", "evil.example")]);
        assert!(guard(false).check_origin(&two).is_err());
    }

    #[test]
    fn only_the_own_page_asks() {
        let asks = |more: &[(&'static str, &'static str)]| {
            let mut list = vec![("host", "127.0.0.1:4321")];
            list.extend(more);
            guard(false).check_origin(&headers(&list)).is_ok()
        };
        assert!(asks(&[("origin", "http://127.0.0.1:4321")]));
        for other in [
            "null",
            "http://evil.example",
            "http://localhost:4321",
            "http://127.0.0.1:80",
            "https://127.0.0.1:4321",
        ] {
            assert!(!asks(&[("origin", other)]), "{other}");
        }
        assert!(asks(&[("sec-fetch-site", "same-origin")]));
        assert!(asks(&[("sec-fetch-site", "none")]));
        assert!(!asks(&[("sec-fetch-site", "same-site")]));
        assert!(!asks(&[
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "no-cors")
        ]));
        let frame = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "iframe"),
        ];
        assert!(!asks(&frame));
        let visit = [frame[0], frame[1], ("sec-fetch-dest", "document")];
        assert!(asks(&visit));
    }

    #[test]
    fn tokens_differ_and_are_compared_whole() {
        let (one, other) = (guard(false), guard(false));
        assert_ne!(one.token, other.token);
        assert_eq!(one.token.text().len(), 32);
        assert!(one.token.is(one.token.text().as_bytes()));
        assert!(!one.token.is(&one.token.text().as_bytes()[..31]));
        assert!(!one.token.is(b"") && !one.token.is(other.token.text().as_bytes()));
        assert_eq!(format!("{:?}", one.token), "Token");
        assert_eq!(one.check_token(&HeaderMap::new()), Err(Failure::NoToken));
    }
}
