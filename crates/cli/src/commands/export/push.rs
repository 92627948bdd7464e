//! `dioptra export --to otlp --push URL`: requests to an OpenTelemetry collector.

use crate::commands::agent::size;
use crate::exit::Exit;
use crate::output::say;
use anyhow::bail;
use dioptra_export::{
    Collector, ExportError, OtlpRequest, Protocol, PushError, PushOptions, Waiting,
};
use dioptra_trace_report::number_of;
use std::time::Duration;

/// The environment variable that OpenTelemetry's exporters read headers from. Other users don't see it, while they see the
/// words of a command.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// The longest time of a try.
const TRY_LIMIT: Duration = Duration::from_secs(30);

/// Arguments about a collector.
#[derive(clap::Args)]
#[command(next_help_heading = "Options for OpenTelemetry (--to otlp)")]
pub struct PushArguments {
    /// Send the profiles to a collector instead of writing a file: gRPC to http://HOST:4317, HTTP to http://HOST:4318 or to
    /// a URL with a path. https encrypts
    #[arg(long, value_name = "URL", conflicts_with = "output")]
    pub push: Option<String>,
    /// The protocol, where the URL does not say it
    #[arg(long, value_name = "grpc|http", requires = "push", value_parser = protocol)]
    push_protocol: Option<Protocol>,
    /// A header of each request, such as authorization; may be given several times. OTEL_EXPORTER_OTLP_HEADERS holds more
    /// of them
    #[arg(long, value_name = "NAME=VALUE", requires = "push", value_parser = header)]
    push_header: Vec<(String, String)>,
    /// The time for which a request that the collector does not take is sent again; 0: not at all
    #[arg(long, value_name = "SECONDS", requires = "push", default_value = "60", value_parser = patience)]
    push_for: Duration,
    /// The most bytes of a request. A larger profile is sent as several
    #[arg(long, value_name = "SIZE", requires = "push", default_value = "4M", value_parser = size)]
    push_size: u64,
    /// The service that the profiles are about (the attribute service.name)
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
}

fn protocol(word: &str) -> Result<Protocol, String> {
    match word {
        "grpc" => Ok(Protocol::Grpc),
        "http" => Ok(Protocol::Http),
        _ => Err("use grpc or http".to_owned()),
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let wrong = || "give a name and a value, such as authorization=secret".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    match name.trim() {
        "" => Err(wrong()),
        name => Ok((name.to_owned(), value.trim().to_owned())),
    }
}

fn patience(text: &str) -> Result<Duration, String> {
    let wrong = || "give a number of seconds, such as 60 or 0".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// Reads the environment's headers: `name=value,name=value`, where `%` and two digits stand for a byte.
fn headers_of_environment(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let Ok((name, value)) = header(part) else {
            // The part may hold a secret.
            bail!("{HEADERS}: write it as name=value,name=value");
        };
        headers.push((name, percent_decoded(&value)));
    }
    Ok(headers)
}

fn percent_decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut decoded = parts.next().unwrap_or("").as_bytes().to_vec();
    for part in parts {
        let byte = part.get(..2).map(|digits| u8::from_str_radix(digits, 16));
        match byte {
            Some(Ok(byte)) => {
                decoded.push(byte);
                decoded.extend_from_slice(&part.as_bytes()[2..]);
            }
            _ => {
                decoded.push(b'%');
                decoded.extend_from_slice(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// The sender of requests, with the numbers of what was sent.
pub struct Sender {
    collector: Collector,
    limit: usize,
    requests: u64,
    profiles: u64,
    values: u64,
    rejected: u64,
}

impl PushArguments {
    /// Returns the option that only makes sense with OpenTelemetry's format, if one is given.
    pub fn given(&self) -> Option<&'static str> {
        let options = [
            ("--push", self.push.is_some()),
            ("--service", self.service.is_some()),
        ];
        let given = options.into_iter().find(|(_, is_given)| *is_given);
        given.map(|(option, _)| option)
    }

    /// Prepares to send to a collector.
    pub fn sender(&self, url: &str) -> anyhow::Result<Sender> {
        let mut headers = self.push_header.clone();
        if let Ok(text) = std::env::var(HEADERS) {
            headers.extend(headers_of_environment(&text)?);
        }
        let collector = Collector::new(&PushOptions {
            url: url.to_owned(),
            protocol: self.push_protocol,
            headers,
            patience: self.push_for,
            try_limit: TRY_LIMIT,
        });
        Ok(Sender {
            collector: collector.map_err(|error| anyhow::anyhow!("--push: {error}"))?,
            limit: usize::try_from(self.push_size).unwrap_or(usize::MAX),
            requests: 0,
            profiles: 0,
            values: 0,
            rejected: 0,
        })
    }
}

impl Sender {
    /// Returns the most bytes of a request.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Sends a request.
    pub fn send(&mut self, request: OtlpRequest) -> Result<(), ExportError> {
        if request.values == 0 {
            // Receivers may be upset by profiles without samples, and the protocol asks senders not to send them.
            return Ok(());
        }
        let (values, profiles) = (request.values, request.profiles);
        let answer = self
            .collector
            .send(request.body, &mut |waiting| say_waiting(waiting))?;
        self.requests += 1;
        self.values += values;
        self.profiles += profiles;
        self.rejected = self.rejected.saturating_add(answer.rejected);
        if answer.rejected > 0 {
            let rejected = number_of(answer.rejected, "profile");
            let of = number_of(profiles, "profile");
            let why = match answer.message.as_str() {
                "" => "without a reason",
                message => message,
            };
            say!("the collector refused {rejected} of a request with {of}: {why}");
        } else if !answer.message.is_empty() {
            say!("the collector says: {}", answer.message);
        }
        Ok(())
    }

    /// Says what was sent. The exit is a failure if the collector refused a part.
    pub fn finish(&self) -> Exit {
        if self.requests == 0 {
            say!("nothing was sent: there are no samples");
            return Exit::Done;
        }
        say!("{}", self.sent());
        if self.rejected == 0 {
            return Exit::Done;
        }
        let rejected = number_of(self.rejected, "profile");
        say!("the collector refused {rejected}: the protocol forbids to send them again");
        Exit::Failed
    }

    fn sent(&self) -> String {
        format!(
            "sent {} with {} in {} to {}",
            number_of(self.profiles, "profile"),
            number_of(self.values, "value"),
            number_of(self.requests, "request"),
            self.collector.url()
        )
    }

    /// Adds what was sent before to the error of a request.
    pub fn failed(&self, error: anyhow::Error) -> anyhow::Error {
        let is_push = error.chain().any(|cause| {
            matches!(
                cause.downcast_ref::<ExportError>(),
                Some(ExportError::Push(_))
            )
        });
        if is_push && self.requests > 0 {
            say!(
                "{}, before one failed; another try sends all of them again",
                self.sent()
            );
        }
        let never_answered = error.chain().any(|cause| {
            matches!(
                cause.downcast_ref::<ExportError>(),
                Some(ExportError::Push(PushError::GaveUp {
                    answered: false,
                    ..
                }))
            )
        });
        match never_answered {
            true => {
                let (other, port) = match self.collector.protocol() {
                    Protocol::Grpc => ("http", 4318),
                    Protocol::Http => ("grpc", 4317),
                };
                anyhow::anyhow!(
                    "{error:#}; check host and port (a collector's port for {other} is {port}, and --push-protocol {other} chooses it)"
                )
            }
            false => error,
        }
    }
}

fn say_waiting(waiting: &Waiting) {
    say!(
        "{}; trying again in {:.1} s",
        waiting.why,
        waiting.wait.as_secs_f64()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_environment_are_decoded() {
        let headers = headers_of_environment(" a = b%20c%, ,api-key=1=2").expect("headers");
        let text = |text: &str| text.to_owned();
        assert_eq!(
            headers,
            [(text("a"), text("b c%")), (text("api-key"), text("1=2"))]
        );
        let error = headers_of_environment("secret").expect_err("no name");
        assert!(!error.to_string().contains("secret"));
    }

    #[test]
    fn percent_signs_without_digits_stay() {
        assert_eq!(percent_decoded("%e2%82%ac%zz%"), "€%zz%");
        assert_eq!(percent_decoded("%é"), "%é");
    }
}
