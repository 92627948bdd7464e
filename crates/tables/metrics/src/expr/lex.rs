//! Text to tokens.

use super::{BinaryOp, ExprError};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Number(f64),
    /// A bare word: a keyword, a function or a name.
    Word(String),
    /// A name in quotes.
    Quoted(String),
    Op(BinaryOp),
    Bang,
    Open,
    Close,
    Comma,
}

pub(super) struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn offset(&self) -> usize {
        self.at
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// The next token and where it starts; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(usize, Token)>, ExprError> {
        self.at += self.rest().len() - self.rest().trim_start().len();
        let start = self.at;
        let Some(first) = self.rest().chars().next() else {
            return Ok(None);
        };
        let second = self.rest()[first.len_utf8()..].chars().next();
        let two = |this: &mut Self, op| {
            this.at += 2;
            Ok(Some((start, Token::Op(op))))
        };
        match (first, second) {
            ('<', Some('=')) => return two(self, BinaryOp::LessEqual),
            ('>', Some('=')) => return two(self, BinaryOp::GreaterEqual),
            ('=', Some('=')) => return two(self, BinaryOp::Equal),
            ('!', Some('=')) => return two(self, BinaryOp::NotEqual),
            _ => {}
        }
        let single = match first {
            '+' => Some(Token::Op(BinaryOp::Add)),
            '-' => Some(Token::Op(BinaryOp::Sub)),
            '*' => Some(Token::Op(BinaryOp::Mul)),
            '/' => Some(Token::Op(BinaryOp::Div)),
            '%' => Some(Token::Op(BinaryOp::Rem)),
            '|' => Some(Token::Op(BinaryOp::Or)),
            '^' => Some(Token::Op(BinaryOp::Xor)),
            '&' => Some(Token::Op(BinaryOp::And)),
            '<' => Some(Token::Op(BinaryOp::Less)),
            '>' => Some(Token::Op(BinaryOp::Greater)),
            '!' => Some(Token::Bang),
            '(' => Some(Token::Open),
            ')' => Some(Token::Close),
            ',' => Some(Token::Comma),
            _ => None,
        };
        if let Some(token) = single {
            self.at += 1;
            return Ok(Some((start, token)));
        }
        let token = match first {
            '\'' => self.quoted()?,
            '0'..='9' => self.number()?,
            '.' if second.is_some_and(|c| c.is_ascii_digit()) => self.number()?,
            c if c.is_ascii_alphabetic() || c == '_' || c == '#' || c == '\\' => self.word()?,
            c => {
                return Err(ExprError::new(
                    start,
                    format!("{c:?} starts neither a number, a name nor an operator"),
                ));
            }
        };
        Ok(Some((start, token)))
    }

    fn quoted(&mut self) -> Result<Token, ExprError> {
        let start = self.at;
        let mut name = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            match c {
                '\'' => {
                    self.at = start + i + 1;
                    return if name.is_empty() {
                        Err(ExprError::new(start, "an empty name"))
                    } else {
                        Ok(Token::Quoted(name))
                    };
                }
                '\\' => match chars.next() {
                    Some((_, c)) => name.push(c),
                    None => break,
                },
                c => name.push(c),
            }
        }
        Err(ExprError::new(start, "a name in quotes without its end"))
    }

    fn number(&mut self) -> Result<Token, ExprError> {
        let start = self.at;
        let bytes = self.rest().as_bytes();
        if bytes.starts_with(b"0x") || bytes.starts_with(b"0X") {
            let len = bytes[2..]
                .iter()
                .take_while(|b| b.is_ascii_hexdigit())
                .count();
            let value = u64::from_str_radix(&self.rest()[2..2 + len], 16)
                .map_err(|_| ExprError::new(start, "not a hexadecimal number of 64 bits"))?;
            self.at += 2 + len;
            return Ok(Token::Number(value as f64));
        }
        let digits = |from: usize| {
            bytes[from..]
                .iter()
                .take_while(|b| b.is_ascii_digit())
                .count()
        };
        let mut len = digits(0);
        if bytes.get(len) == Some(&b'.') {
            len += 1;
            len += digits(len);
        }
        if matches!(bytes.get(len), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
            let exponent = digits((len + 1 + sign).min(bytes.len()));
            if exponent > 0 {
                len += 1 + sign + exponent;
            }
        }
        let value: f64 = self.rest()[..len]
            .parse()
            .map_err(|_| ExprError::new(start, "not a number"))?;
        if !value.is_finite() {
            return Err(ExprError::new(
                start,
                "a number too large for 64-bit floating point",
            ));
        }
        self.at += len;
        Ok(Token::Number(value))
    }

    /// A name as its maker writes it. `@` stands for `/`, a backslash takes the next character as it is.
    fn word(&mut self) -> Result<Token, ExprError> {
        let start = self.at;
        let text = self.rest();
        let bytes = text.as_bytes();
        let mut name = String::new();
        let mut at = 0;
        // Inside of a pair of slashes everything but space, parenthesis and slash belongs to the name.
        let mut in_terms = false;
        // Since the last colon, where `c=1` may follow.
        let mut after_colon = false;
        while let Some(c) = text[at..].chars().next() {
            let next = bytes.get(at + c.len_utf8()).copied();
            match c {
                '\\' => {
                    let Some(escaped) = text[at + 1..].chars().next() else {
                        return Err(ExprError::new(start + at, "a backslash at the end"));
                    };
                    name.push(escaped);
                    at += 1 + escaped.len_utf8();
                    continue;
                }
                '@' => {
                    in_terms = !in_terms;
                    name.push('/');
                }
                '/' if in_terms => {
                    in_terms = false;
                    name.push('/');
                }
                '/' if opens_terms(&name, &text[at + 1..]) => {
                    in_terms = true;
                    name.push('/');
                }
                c if in_terms && !c.is_whitespace() && !matches!(c, '(' | ')') => name.push(c),
                c if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '?' | '#') => {
                    name.push(c)
                }
                ':' if next.is_some_and(is_word_byte) => {
                    after_colon = true;
                    name.push(':');
                }
                '=' if after_colon && next.is_some_and(is_word_byte) => {
                    after_colon = false;
                    name.push('=');
                }
                _ => break,
            }
            at += c.len_utf8();
        }
        if in_terms {
            return Err(ExprError::new(
                start,
                "an event whose terms have no closing / or @",
            ));
        }
        self.at += at;
        Ok(Token::Word(name))
    }
}

fn is_word_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_'
}

/// Whether the slash after `name` starts an event's terms and is no division: it must be closed before any space or
/// parenthesis, and hold an assignment or follow the name of a counting unit.
fn opens_terms(name: &str, after: &str) -> bool {
    const UNITS: [&str; 6] = ["cpu", "cpu_core", "cpu_atom", "msr", "software", "power"];
    let Some(end) = after.find('/') else {
        return false;
    };
    let terms = &after[..end];
    if terms.is_empty() || terms.contains(|c: char| c.is_whitespace() || "()@'\\".contains(c)) {
        return false;
    }
    let bytes = terms.as_bytes();
    let assigns = bytes.iter().enumerate().any(|(i, &b)| {
        b == b'='
            && bytes.get(i + 1).is_some_and(|&b| is_word_byte(b))
            && i > 0
            && is_word_byte(bytes[i - 1])
    });
    assigns || UNITS.contains(&name) || name.starts_with("armv8_") || name.starts_with("uncore_")
}
