//! Why a request has no answer.

use crate::api::{ErrorAnswer, ErrorBody};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dioptra_profile::SelectError;
use dioptra_report::ReportError;
use dioptra_tables::TableError;

/// Why a request has no answer. The page shows the text, and the remedy where there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Failure {
    #[error("{name}: {why}")]
    BadParameter { name: String, why: String },
    #[error("the filter is no regular expression: {0}")]
    BadPattern(String),
    #[error("the request has no token, or another server's")]
    NoToken,
    #[error("the request is for another host than this server")]
    WrongHost,
    #[error("the request comes from another page")]
    WrongOrigin,
    #[error("there is nothing at this address")]
    NoEndpoint,
    #[error("only GET requests are answered")]
    OnlyGet,
    #[error("the profile has no {what} with the key `{key}`")]
    NoKey { what: &'static str, key: String },
    #[error("the profile is still being loaded")]
    NotReady,
    #[error("the file was loaded anew since")]
    Stale,
    #[error("it is a {is}, and the question is about a {wanted}")]
    WrongKind {
        is: &'static str,
        wanted: &'static str,
    },
    #[error("{text}")]
    NotRecorded { text: String, remedy: &'static str },
    #[error("{0}")]
    LoadFailed(String),
    #[error("nobody waits for the answer any more")]
    Gone,
    #[error("the server failed: {0}")]
    Internal(String),
}

/// The command that records call chains.
const RECORD_CHAINS: &str = "record call chains: dioptra record -g";

impl Failure {
    /// The key names nothing of the profile.
    pub(crate) fn no_key(what: &'static str, key: &str) -> Failure {
        let key = dioptra_tables::cut_middle(key, 100);
        Failure::NoKey {
            what,
            key: key.to_string(),
        }
    }

    /// A parameter has a value of the wrong form.
    pub(crate) fn parameter(name: &str, why: impl Into<String>) -> Failure {
        Failure::BadParameter {
            name: name.to_owned(),
            why: why.into(),
        }
    }

    /// The question needs call chains.
    pub(crate) fn no_chains() -> Failure {
        Failure::NotRecorded {
            text: "the profile's samples have no call chains".to_owned(),
            remedy: RECORD_CHAINS,
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Failure::BadParameter { .. } | Failure::BadPattern(_) => StatusCode::BAD_REQUEST,
            Failure::NoToken => StatusCode::UNAUTHORIZED,
            Failure::WrongHost | Failure::WrongOrigin => StatusCode::FORBIDDEN,
            Failure::NoEndpoint | Failure::NoKey { .. } => StatusCode::NOT_FOUND,
            Failure::OnlyGet => StatusCode::METHOD_NOT_ALLOWED,
            Failure::NotReady | Failure::Stale => StatusCode::CONFLICT,
            Failure::WrongKind { .. } | Failure::NotRecorded { .. } | Failure::LoadFailed(_) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Failure::Gone | Failure::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn code(&self) -> String {
        let code = match self {
            Failure::BadParameter { .. } => "bad_parameter",
            Failure::BadPattern(_) => "bad_pattern",
            Failure::NoToken => "no_token",
            Failure::WrongHost => "wrong_host",
            Failure::WrongOrigin => "wrong_origin",
            Failure::NoEndpoint => "no_such_endpoint",
            Failure::NoKey { what, .. } => return format!("no_such_{what}"),
            Failure::OnlyGet => "only_get",
            Failure::NotReady => "not_ready",
            Failure::Stale => "stale",
            Failure::WrongKind { .. } => "wrong_kind",
            Failure::NotRecorded { .. } => "not_recorded",
            Failure::LoadFailed(_) => "load_failed",
            Failure::Gone => "gone",
            Failure::Internal(_) => "internal",
        };
        code.to_owned()
    }

    fn remedy(&self) -> Option<String> {
        let remedy = match self {
            Failure::NoToken => {
                "open the address that dioptra web printed when it was started; it holds the token"
            }
            Failure::NotRecorded { remedy, .. } => remedy,
            Failure::Stale => "reload the page",
            _ => return None,
        };
        Some(remedy.to_owned())
    }

    /// The failure as the page reads it.
    pub(crate) fn body(&self) -> ErrorBody {
        ErrorBody {
            code: self.code(),
            text: self.to_string(),
            remedy: self.remedy(),
        }
    }
}

impl From<SelectError> for Failure {
    fn from(error: SelectError) -> Self {
        let (text, remedy) = match error {
            SelectError::NoTimes => (
                "the profile's samples do not state their time",
                "record with dioptra record, or with perf's --timestamp",
            ),
            SelectError::NoCpus => (
                "the profile's samples do not state their CPU",
                "record the whole machine (dioptra record -a), or with perf's --sample-cpu",
            ),
            SelectError::NoChains => return Failure::no_chains(),
            other => return Failure::Internal(other.to_string()),
        };
        Failure::NotRecorded {
            text: text.to_owned(),
            remedy,
        }
    }
}

impl From<ReportError> for Failure {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::Profile(error) => error.into(),
            other => Failure::Internal(other.to_string()),
        }
    }
}

impl From<TableError> for Failure {
    fn from(error: TableError) -> Self {
        Failure::Internal(error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Failure::Internal(error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let answer = ErrorAnswer { error: self.body() };
        let json = serde_json::to_vec(&answer).unwrap_or_default();
        let mut response = (self.status(), json).into_response();
        let kind = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}
