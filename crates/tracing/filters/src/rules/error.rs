//! Errors in texts of the user, with their positions.

use core::fmt;
use core::ops::Range;
use std::format;
use std::string::{String, ToString};
use thiserror::Error;

/// An error in a text that is no rule. Its message shows the text, marks the position and says what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct SyntaxError {
    /// The option that the text belongs to, such as `-F`.
    pub option: String,
    /// The whole text.
    pub text: String,
    /// The position of the first wrong character, counted from 1; one behind the last character if something is
    /// missing.
    pub column: usize,
    /// The number of wrong characters; at least 1.
    pub width: usize,
    /// The problem.
    pub problem: String,
    /// The text that is allowed instead.
    pub remedy: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blanks = " ".repeat(self.column - 1);
        let marks = "^".repeat(self.width);
        // A line break in the text would shift the marks.
        let text: String = self
            .text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        write!(
            f,
            "{}: {}; {}\n    {text}\n    {blanks}{marks}",
            self.option, self.problem, self.remedy
        )
    }
}

/// A text that is being parsed, and the option that it belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OptionText<'a> {
    pub option: &'a str,
    pub text: &'a str,
}

impl OptionText<'_> {
    /// Returns an error about the bytes of `place`.
    pub fn error(
        self,
        place: Range<usize>,
        problem: impl fmt::Display,
        remedy: impl fmt::Display,
    ) -> SyntaxError {
        let chars =
            |range: Range<usize>| self.text.get(range).map_or(0, |text| text.chars().count());
        SyntaxError {
            option: self.option.to_string(),
            text: self.text.to_string(),
            column: chars(0..place.start) + 1,
            width: chars(place).max(1),
            problem: format!("{problem}"),
            remedy: format!("{remedy}"),
        }
    }
}

/// A part of a text, and its offset there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextPart<'a> {
    pub text: &'a str,
    pub start: usize,
}

impl<'a> TextPart<'a> {
    pub fn place(self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    /// Returns the part without blanks around it.
    pub fn trim(self) -> Self {
        let after = self.text.trim_start();
        Self {
            start: self.start + self.text.len() - after.len(),
            text: after.trim_end(),
        }
    }

    /// Returns the parts before and after the first `separator`.
    pub fn split_once(self, separator: char) -> Option<(Self, Self)> {
        let at = self.text.find(separator)?;
        Some((self.cut(0..at), self.from(at + separator.len_utf8())))
    }

    /// Returns the parts between separators.
    pub fn split(self, separators: &'a [char]) -> impl Iterator<Item = Self> {
        let mut rest = Some(self);
        core::iter::from_fn(move || {
            let part = rest?;
            let Some(at) = part.text.find(separators) else {
                rest = None;
                return Some(part);
            };
            let width = part.text[at..].chars().next().map_or(1, char::len_utf8);
            rest = Some(part.from(at + width));
            Some(part.cut(0..at))
        })
    }

    /// Returns the rest from this byte on, which must begin a character.
    pub fn from(self, start: usize) -> Self {
        self.cut(start..self.text.len())
    }

    /// Returns these bytes, which must begin and end at characters.
    pub fn cut(self, range: Range<usize>) -> Self {
        Self {
            start: self.start + range.start,
            text: self.text.get(range).unwrap_or(""),
        }
    }
}
