//! `dioptra trace`: what its readers show.

mod damage;
mod exchange;
mod exports;
mod full;
mod made;
mod readers;
mod sampling;
mod scheduling;
mod session;
mod spelling;
mod tui;
mod uftrace;
