//! An answer as a page: one HTML file that stands alone, with a table that a click on a column's head sorts.

use crate::error::StoreError;
use crate::session::Answer;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::io::Write;

/// The page up to the title.
const HEAD: &str = r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
"#;

const STYLE: &str = r#"<style>
  body { font: 14px sans-serif; margin: 1.5em } pre { background: #f4f4f4; padding: 0.6em; white-space: pre-wrap }
  table { border-collapse: collapse } th, td { padding: 0.2em 0.7em; text-align: left; vertical-align: top }
  th { background: #eee; position: sticky; top: 0 } th button { all: unset; cursor: pointer; font-weight: bold }
  th button:focus-visible { outline: 2px solid #33c } tbody tr:nth-child(even) { background: #f8f8f8 }
  .number { text-align: right; font-variant-numeric: tabular-nums } .none { color: #888 }
  th[aria-sort=ascending] button::after { content: " \25b2" } th[aria-sort=descending] button::after { content: " \25bc" }
</style>
"#;

/// The script sorts rows, numbers by value. Equal rows keep their order.
const SCRIPT: &str = r#"<script>
"use strict";
const table = document.querySelector("table"), body = table.tBodies[0];
[...table.tHead.rows[0].cells].forEach((head, column) => head.firstChild.addEventListener("click", () => {
  const isNumber = head.classList.contains("number");
  const last = head.getAttribute("aria-sort");
  const down = last ? last === "ascending" : isNumber;
  const key = row => {
    const cell = row.cells[column];
    return cell.classList.contains("none") ? null : isNumber ? Number(cell.textContent) : cell.textContent;
  };
  const rows = [...body.rows].map(row => [key(row), row]);
  rows.sort(([one], [other]) => {
    if (one === null || other === null) return (one === null) - (other === null);
    const order = one < other ? -1 : one > other ? 1 : 0;
    return down ? -order : order;
  });
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...rows.map(([, row]) => row));
}));
</script>
"#;

/// Writes an answer as a page. `question` stands above the table.
///
/// # Errors
/// Writing failed, or a column has a type without a text.
pub fn write_page(
    answer: &Answer,
    question: &str,
    out: &mut (dyn Write + Send),
) -> Result<(), StoreError> {
    let title = question.lines().next().unwrap_or_default();
    write!(
        out,
        "{HEAD}<title>{}</title>\n{STYLE}</head>\n<body>\n",
        escaped(title)
    )?;
    write!(
        out,
        "<pre>{}</pre>\n<table>\n<thead><tr>",
        escaped(question)
    )?;
    let fields = answer.schema.fields();
    let class = |number: bool| if number { " class=\"number\"" } else { "" };
    for field in fields {
        let class = class(field.data_type().is_numeric());
        write!(
            out,
            "<th{class}><button>{}</button></th>",
            escaped(field.name())
        )?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    let options = FormatOptions::default();
    let mut count = 0;
    for batch in &answer.batches {
        let columns = batch.columns().iter();
        let formatters = columns
            .map(|column| ArrayFormatter::try_new(column, &options))
            .collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            write!(out, "<tr>")?;
            for ((formatter, column), field) in formatters.iter().zip(batch.columns()).zip(fields) {
                if column.is_null(row) {
                    write!(out, "<td class=\"none\">none</td>")?;
                    continue;
                }
                let class = class(field.data_type().is_numeric());
                write!(
                    out,
                    "<td{class}>{}</td>",
                    escaped(&formatter.value(row).to_string())
                )?;
            }
            writeln!(out, "</tr>")?;
        }
        count += batch.num_rows();
    }
    let rows = if count == 1 { "row" } else { "rows" };
    write!(
        out,
        "</tbody>\n</table>\n<p>{count} {rows}</p>\n{SCRIPT}</body>\n</html>\n"
    )?;
    Ok(())
}

/// Returns a text in which nothing is markup, and without control characters.
fn escaped(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => result.push_str("&amp;"),
            '<' => result.push_str("&lt;"),
            '>' => result.push_str("&gt;"),
            '"' => result.push_str("&quot;"),
            '\'' => result.push_str("&#39;"),
            '\n' | '\t' => result.push(character),
            control if control.is_control() => result.push('\u{fffd}'),
            other => result.push(other),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use std::sync::Arc;

    #[test]
    fn values_and_names_are_no_markup() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("<b>", DataType::Utf8, true),
            Field::new("n", DataType::Int64, true),
        ]));
        let texts = StringArray::from(vec![Some("</td><script>alert(1)</script>"), None]);
        let numbers = Int64Array::from(vec![Some(-3), None]);
        let columns: Vec<arrow::array::ArrayRef> = vec![Arc::new(texts), Arc::new(numbers)];
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        let answer = Answer {
            schema,
            batches: vec![batch],
        };
        let mut page = Vec::new();
        write_page(&answer, "SELECT '</pre>' FROM <x>", &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert_eq!(page.matches("<script>").count(), 1, "{page}");
        assert!(
            page.contains("<td>&lt;/td&gt;&lt;script&gt;alert(1)"),
            "{page}"
        );
        assert!(page.contains("<button>&lt;b&gt;</button>"), "{page}");
        assert!(page.contains("<td class=\"number\">-3</td>"), "{page}");
        assert!(
            page.contains("SELECT &#39;&lt;/pre&gt;&#39; FROM"),
            "{page}"
        );
        assert!(page.contains("<p>2 rows</p>"), "{page}");
        assert!(!page.contains("http://") && !page.contains("https://"));
    }
}
