//! `-f`: the fields of an output, in uftrace's syntax.

use super::usage;

/// Returns the fields that `text` asks for. `text` is a list of names of `known` fields, `+` and a list to add to the
/// `default` fields, or `none`.
///
/// # Errors
/// The argument is wrong; the error names the known fields.
pub fn parse<F: Copy + PartialEq>(
    text: Option<&str>,
    default: &[F],
    known: impl IntoIterator<Item = (&'static str, F)>,
) -> anyhow::Result<Vec<F>> {
    let known: Vec<(&str, F)> = known.into_iter().collect();
    let mut fields = default.to_vec();
    let Some(text) = text else {
        return Ok(fields);
    };
    let words = match text.strip_prefix('+') {
        Some(words) => words,
        None => {
            fields.clear();
            text
        }
    };
    match words {
        "none" if !text.starts_with('+') => return Ok(fields),
        "all" => return Ok(known.iter().map(|(_, field)| *field).collect()),
        _ => {}
    }
    for word in words.split(',').map(str::trim) {
        let Some((_, field)) = known.iter().find(|(name, _)| *name == word) else {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            return Err(usage(format_args!(
                "-f: there is no field `{word}`; fields are {}, all and none",
                names.join(", ")
            )));
        };
        if !fields.contains(field) {
            fields.push(*field);
        }
    }
    // The order is fixed, as scripts know it from uftrace.
    fields.sort_by_key(|field| known.iter().position(|(_, known)| known == field));
    Ok(fields)
}
