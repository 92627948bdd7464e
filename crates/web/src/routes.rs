//! From an address to an answer.

use crate::failure::Failure;
use crate::jobs::Ticket;
use crate::parameters::Parameters;
use crate::server::Shared;
use crate::{
    assets, flames, functions, heatmaps, overview, searches, security, tables, timelines, traces,
};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::response::{IntoResponse, Response};
use dioptra_tables::Format;
use serde::{Serialize, Serializer};
use std::sync::Arc;

/// Where answers lie; everything else is the page.
const API: &str = "/api/";

/// Answers any request.
pub(crate) async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let answer = checked(&shared, &parts.method, &parts.uri, &parts.headers).await;
    let mut response = answer.unwrap_or_else(Failure::into_response);
    security::harden(response.headers_mut());
    response
}

async fn checked(
    shared: &Arc<Shared>,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Response, Failure> {
    shared.guard.check_origin(headers)?;
    if method != Method::GET && method != Method::HEAD {
        return Err(Failure::OnlyGet);
    }
    match uri.path().strip_prefix(API) {
        Some(endpoint) => {
            shared.guard.check_token(headers)?;
            let parameters = Parameters::of(uri.query().unwrap_or_default());
            api(shared, endpoint, parameters).await
        }
        None => assets::find(uri.path()).ok_or(Failure::NoEndpoint),
    }
}

/// Answers a request below `/api/` whose sender may ask.
pub(crate) async fn api(
    shared: &Arc<Shared>,
    endpoint: &str,
    mut parameters: Parameters,
) -> Result<Response, Failure> {
    match endpoint {
        "status" => {
            let request = parameters.status()?;
            let status = shared.profiles.wait(request.wait).await;
            json(serde_json::to_vec(&status)?)
        }
        "profile" => {
            let request = parameters.profile()?;
            run(shared, move |shared, _| {
                let loaded = shared.profiles.get(request.profile, None)?;
                Ok(overview::answer(&loaded))
            })
            .await
        }
        "table" => {
            let request = parameters.table()?;
            parameters.finish()?;
            run(shared, move |shared, ticket| {
                tables::answer(shared, &request, ticket)
            })
            .await
        }
        "search" => {
            let request = parameters.search()?;
            run(shared, move |shared, ticket| {
                searches::answer(shared, &request, ticket)
            })
            .await
        }
        "flame" => {
            let request = parameters.flame()?;
            run(shared, move |shared, ticket| {
                flames::answer(shared, &request, ticket)
            })
            .await
        }
        "function" => {
            let request = parameters.function()?;
            run(shared, move |shared, ticket| {
                let answer = functions::answer(shared, &request, ticket)?;
                Ok(Kept(answer))
            })
            .await
        }
        "source" => {
            let request = parameters.source()?;
            run(shared, move |shared, _| functions::source(shared, &request)).await
        }
        "timeline" => {
            let request = parameters.timeline()?;
            run(shared, move |shared, ticket| {
                timelines::answer(shared, &request, ticket)
            })
            .await
        }
        "heatmap" => {
            let request = parameters.heatmap()?;
            run(shared, move |shared, ticket| {
                heatmaps::answer(shared, &request, ticket)
            })
            .await
        }
        "export" => export(shared, parameters).await,
        _ => match endpoint.strip_prefix("trace") {
            Some(endpoint) => trace(shared, endpoint, parameters).await,
            None => Err(Failure::NoEndpoint),
        },
    }
}

/// Answers about traces.
async fn trace(
    shared: &Arc<Shared>,
    endpoint: &str,
    mut parameters: Parameters,
) -> Result<Response, Failure> {
    match endpoint {
        "" => {
            let request = parameters.trace()?;
            run(shared, move |shared, _| {
                let loaded = shared.profiles.trace(request.profile, None)?;
                traces::overview(&loaded)
            })
            .await
        }
        "/table" => {
            let request = parameters.call_table()?;
            parameters.finish()?;
            run(shared, move |shared, ticket| {
                traces::table(shared, &request, ticket)
            })
            .await
        }
        "/graph" => {
            let request = parameters.call_graph()?;
            run(shared, move |shared, ticket| {
                traces::graph(shared, &request, ticket)
            })
            .await
        }
        "/timeline" => {
            let request = parameters.call_timeline()?;
            run(shared, move |shared, ticket| {
                traces::timeline(shared, &request, ticket)
            })
            .await
        }
        "/replay" => {
            let request = parameters.replay()?;
            run(shared, move |shared, ticket| {
                traces::replay(shared, &request, ticket)
            })
            .await
        }
        "/find" => {
            let request = parameters.replay_find()?;
            run(shared, move |shared, ticket| {
                traces::find(shared, &request, ticket)
            })
            .await
        }
        "/slowest" => {
            let request = parameters.slowest()?;
            run(shared, move |shared, ticket| {
                traces::slowest(shared, &request, ticket)
            })
            .await
        }
        "/export" => {
            let (format, headers) = export_format(&mut parameters)?;
            let request = parameters.call_table()?;
            parameters.finish()?;
            let own = Arc::clone(shared);
            let bytes = shared
                .jobs
                .run(move |ticket| traces::export(&own, &request, format, ticket));
            Ok((headers, bytes.await?).into_response())
        }
        _ => Err(Failure::NoEndpoint),
    }
}

/// Computes an answer and its JSON on a thread that may block.
async fn run<T: Serialize>(
    shared: &Arc<Shared>,
    compute: impl FnOnce(&Shared, &Ticket) -> Result<T, Failure> + Send + 'static,
) -> Result<Response, Failure> {
    let own = Arc::clone(shared);
    let bytes = shared.jobs.run(move |ticket| {
        let answer = compute(&own, ticket)?;
        ticket.check()?;
        Ok(serde_json::to_vec(&answer)?)
    });
    json(bytes.await?)
}

/// An answer that is kept for others, too.
struct Kept<T>(Arc<T>);

impl<T: Serialize> Serialize for Kept<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

fn json(bytes: Vec<u8>) -> Result<Response, Failure> {
    let kind = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, kind)], bytes).into_response())
}

/// The format of an export, and the headers of such files.
fn export_format(
    parameters: &mut Parameters,
) -> Result<(Format, [(header::HeaderName, String); 2]), Failure> {
    let format = parameters.one("format")?;
    let (format, kind, name) = match format.as_deref() {
        Some("csv") | None => (Format::Csv, "text/csv; charset=utf-8", "table.csv"),
        Some("json") => (Format::Json, "application/json", "table.json"),
        Some("ndjson") => (Format::Ndjson, "application/x-ndjson", "table.ndjson"),
        Some(_) => return Err(Failure::parameter("format", "is csv, json or ndjson")),
    };
    let headers = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}\""),
        ),
    ];
    Ok((format, headers))
}

async fn export(shared: &Arc<Shared>, mut parameters: Parameters) -> Result<Response, Failure> {
    let (format, headers) = export_format(&mut parameters)?;
    let request = parameters.table()?;
    parameters.finish()?;
    let own = Arc::clone(shared);
    let bytes = shared
        .jobs
        .run(move |ticket| tables::export(&own, &request, format, ticket));
    Ok((headers, bytes.await?).into_response())
}
