//! Sessions and events against a real kernel. A test whose event the machine refuses says so and ends.

mod attach;
mod collect;
mod counters;
mod events;
mod forks;
mod ladder;
mod losses;
mod oracle;
mod privileged;
mod samples;
mod sessions;
mod unprivileged;
mod windows;
