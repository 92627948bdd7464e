//! The server as browsers and attackers see it, on recordings made for the purpose.

mod answers;
mod beside;
mod client;
mod compared_code;
mod comparing;
mod flame_metrics;
mod made;
mod reload;
mod report;
mod security;
mod switches;
mod traces;
mod trees;
mod types;

#[path = "../../../sampling/profile/tests/support/mod.rs"]
mod records;

#[path = "../../../tracing/calls/tests/support/written.rs"]
#[expect(dead_code, reason = "some of it serves other tests")]
mod written;
