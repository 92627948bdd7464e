//! `/api/search`: things of a profile by their names.

use crate::api::{SearchAnswer, SearchHit, SearchKind, SearchRequest, TableRequest};
use crate::failure::Failure;
use crate::filter::NameFilter;
use crate::jobs::Ticket;
use crate::row_keys::row_keys;
use crate::server::Shared;
use crate::tables::table;
use crate::texts;
use dioptra_tables::{Cell, Table, Unit};

/// The largest number of hits of each kind in an answer.
const MOST_HITS: usize = 200;

/// The tables that are searched: what their rows are, and the columns of the name and of what it is inside of.
const TABLES: [(SearchKind, &str, &str, Option<&str>); 4] = [
    (SearchKind::Function, "function", "function", Some("module")),
    (SearchKind::Module, "module", "module", None),
    (SearchKind::Process, "process", "process", None),
    (SearchKind::Thread, "thread", "thread", None),
];

fn text(table: &Table, row: u32, column: Option<usize>) -> Option<String> {
    match table.row(row).cell(column?) {
        Cell::Name(name) => Some(name.into_owned()),
        _ => None,
    }
}

/// Answers `/api/search`.
pub(crate) fn answer(
    shared: &Shared,
    request: &SearchRequest,
    ticket: &Ticket,
) -> Result<SearchAnswer, Failure> {
    let filter = NameFilter::new(&request.text, request.regex)?;
    let most = request.count.unwrap_or(20).min(MOST_HITS);
    let (mut hits, mut total) = (Vec::new(), 0);
    let mut found_in = (0, 0);
    for (kind, by, name, inside) in TABLES {
        ticket.check()?;
        let request = TableRequest {
            selection: request.selection.clone(),
            by: Some(by.to_owned()),
            ..TableRequest::default()
        };
        let (selected, _, keyed) = table(shared, &request, ticket)?;
        found_in = (selected.loaded.index, selected.loaded.generation);
        let of = &keyed.table;
        let (name, inside) = (
            of.column_index(name),
            inside.and_then(|inside| of.column_index(inside)),
        );
        let mut columns = of.columns.iter();
        let percent = columns.position(|column| column.unit == Unit::Percent);
        let mut shown = 0;
        for row in of.rows() {
            let id = row.id();
            let Some(own) = text(of, id, name).filter(|own| filter.passes(own)) else {
                continue;
            };
            total += 1;
            if shown == most {
                continue;
            }
            shown += 1;
            hits.push(SearchHit {
                kind,
                key: row_keys(&selected, &keyed, id),
                name: texts::name(&own),
                inside: text(of, id, inside).map(|inside| texts::name(&inside)),
                percent: percent.and_then(|column| row.cell(column).value(100.0)),
            });
        }
    }
    let (profile, generation) = found_in;
    Ok(SearchAnswer {
        profile,
        generation,
        hits,
        total,
    })
}
