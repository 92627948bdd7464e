//! The server as browsers and attackers see it, on recordings made for the purpose.

mod answers;
mod client;
mod made;
mod reload;
mod security;
mod switches;
mod trees;
mod types;

#[path = "../../../sampling/profile/tests/support/mod.rs"]
mod records;
