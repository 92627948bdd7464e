//! Answers that are stored, each compressed on its own, until a report is full.

use crate::api::ErrorAnswer;
use crate::failure::Failure;
use crate::parameters::Parameters;
use crate::routes;
use crate::server::Shared;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// A request as the page makes it: parameters in alphabetical order, so that equal requests are equal texts.
#[derive(Clone, Debug)]
pub(super) struct Question {
    endpoint: &'static str,
    parameters: BTreeMap<&'static str, Vec<String>>,
}

impl Question {
    pub(super) fn new(endpoint: &'static str) -> Question {
        Question {
            endpoint,
            parameters: BTreeMap::new(),
        }
    }

    /// Adds a value of a parameter.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Question {
        self.parameters.entry(name).or_default().push(value.into());
        self
    }

    /// Adds values of a parameter.
    pub(super) fn with_all(mut self, name: &'static str, values: &[String]) -> Question {
        for value in values {
            self = self.with(name, value);
        }
        self
    }

    /// The same question of another endpoint.
    pub(super) fn of(&self, endpoint: &'static str) -> Question {
        Question {
            endpoint,
            ..self.clone()
        }
    }

    /// The request's query, as a browser writes it.
    pub(super) fn query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, values) in &self.parameters {
            for value in values {
                query.append_pair(name, value);
            }
        }
        query.finish()
    }

    /// The key under which the page looks for the answer.
    fn key(&self) -> String {
        format!("{}?{}", self.endpoint, self.query())
    }
}

/// The room of one profile or trace in a report.
#[derive(Clone, Copy)]
pub(super) struct Share {
    /// The room of the store that is for others.
    reserved: usize,
    /// All the room of this one at first.
    whole: usize,
}

impl Share {
    /// Returns the share of one of `others` and itself in what is left of a store.
    pub(super) fn of(store: &Store, others: usize) -> Share {
        let whole = store.room() / (others + 1);
        Share {
            reserved: store.room().saturating_sub(whole),
            whole,
        }
    }

    /// Returns the bytes that an answer may take: a part of all the room, or what is left of it.
    pub(super) fn most(&self, store: &Store, parts: usize) -> usize {
        let left = store.room().saturating_sub(self.reserved);
        left.min(self.whole / parts.max(1))
    }
}

/// The stored answers of a report.
pub(super) struct Store {
    pub(super) shared: Arc<Shared>,
    runtime: Runtime,
    answers: BTreeMap<String, String>,
    /// The bytes that further answers may take.
    room: usize,
}

impl Store {
    pub(super) fn new(shared: Arc<Shared>, runtime: Runtime, room: usize) -> Store {
        Store {
            shared,
            runtime,
            answers: BTreeMap::new(),
            room,
        }
    }

    /// The bytes that further answers may take.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    pub(super) fn into_answers(self) -> BTreeMap<String, String> {
        self.answers
    }

    /// The server's answer to a question, with other parameters that the page applies itself.
    pub(super) fn ask(&self, question: &Question) -> Result<Vec<u8>, Failure> {
        let parameters = Parameters::of(&question.query());
        self.runtime.block_on(async {
            let answer = routes::api(&self.shared, question.endpoint, parameters).await?;
            let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await;
            let bytes = bytes.map_err(|error| Failure::Internal(error.to_string()))?;
            Ok(bytes.to_vec())
        })
    }

    /// Stores an answer if it takes no more than `most` bytes and there is room. Returns whether it is there.
    fn put(&mut self, question: &Question, json: &[u8], most: usize) -> Result<bool, Failure> {
        let key = question.key();
        if self.answers.contains_key(&key) {
            return Ok(true);
        }
        let packed = pack(json).map_err(|error| Failure::Internal(error.to_string()))?;
        // Quotes, a colon and a comma stand around them.
        let bytes = key.len() + packed.len() + 6;
        if bytes > most.min(self.room) {
            return Ok(false);
        }
        self.room -= bytes;
        self.answers.insert(key, packed);
        Ok(true)
    }

    /// Stores the server's answer. An answer that says why there is none is stored, too.
    pub(super) fn keep(&mut self, question: &Question, most: usize) -> Result<bool, Failure> {
        let answer = self.ask(question);
        self.keep_answer(question, answer, most)
    }

    /// Stores an answer that was asked for already.
    pub(super) fn keep_answer(
        &mut self,
        question: &Question,
        answer: Result<Vec<u8>, Failure>,
        most: usize,
    ) -> Result<bool, Failure> {
        let json = match answer {
            Ok(json) => json,
            Err(failure @ Failure::Internal(_)) => return Err(failure),
            Err(failure) => serde_json::to_vec(&ErrorAnswer {
                error: failure.body(),
            })?,
        };
        self.put(question, &json, most)
    }

    /// Stores the largest of ever smaller answers that takes no more than `most` bytes. Returns the answer that is stored.
    pub(super) fn fit<T: Serialize>(
        &mut self,
        question: &Question,
        sizes: &[usize],
        most: usize,
        mut make: impl FnMut(&Store, usize) -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        for size in sizes {
            match make(self, *size) {
                Ok(answer) => {
                    if self.put(question, &serde_json::to_vec(&answer)?, most)? {
                        return Ok(Some(answer));
                    }
                }
                Err(failure) => {
                    self.keep_answer(question, Err(failure), most)?;
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }
}

/// Compresses an answer, and writes the bytes as text.
fn pack(json: &[u8]) -> std::io::Result<String> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(json)?;
    Ok(STANDARD.encode(packed.finish()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_written_as_the_page_writes_them() {
        let question = Question::new("table")
            .with("profile", "0")
            .with("by", "process,module")
            .with("event", "cpu-clock:u")
            .with("event", "<é ~*>");
        assert_eq!(
            question.key(),
            "table?by=process%2Cmodule&event=cpu-clock%3Au&event=%3C%C3%A9+%7E*%3E&profile=0"
        );
        assert_eq!(Question::new("status").key(), "status?");
    }
}
