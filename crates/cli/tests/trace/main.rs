//! `dioptra trace`: what its readers show.

mod damage;
mod exchange;
mod exports;
mod full;
mod made;
mod readers;
mod sampling;
mod scheduling;
mod scripts;
mod session;
mod spelling;
mod tables;
mod tui;
mod uftrace;
