//! A parser of arithmetic: deterministic, recursive, and what it can't parse panics.
//!
//! `trace-parser ROUNDS` makes ROUNDS texts, some of them wrong, parses them, and prints a checksum. Functions that are
//! not mangled are counted by tests.

use std::panic::{self, catch_unwind};

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

#[unsafe(no_mangle)]
#[inline(never)]
fn peek(parser: &Parser<'_>) -> u8 {
    parser.text.get(parser.at).copied().unwrap_or(b'$')
}

#[unsafe(no_mangle)]
#[inline(never)]
fn number(parser: &mut Parser<'_>) -> u64 {
    let mut value = 0_u64;
    while peek(parser).is_ascii_digit() {
        value = value.wrapping_mul(10).wrapping_add(u64::from(peek(parser) - b'0'));
        parser.at += 1;
    }
    value
}

#[unsafe(no_mangle)]
#[inline(never)]
fn factor(parser: &mut Parser<'_>) -> u64 {
    match peek(parser) {
        b'(' => {
            parser.at += 1;
            let value = sum(parser);
            if peek(parser) != b')' {
                wrong(parser);
            }
            parser.at += 1;
            value
        }
        byte if byte.is_ascii_digit() => number(parser),
        _ => wrong(parser),
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn product(parser: &mut Parser<'_>) -> u64 {
    let mut value = factor(parser);
    while peek(parser) == b'*' {
        parser.at += 1;
        value = value.wrapping_mul(factor(parser));
    }
    value
}

#[unsafe(no_mangle)]
#[inline(never)]
fn sum(parser: &mut Parser<'_>) -> u64 {
    let mut value = product(parser);
    while peek(parser) == b'+' {
        parser.at += 1;
        value = value.wrapping_add(product(parser));
    }
    value
}

#[unsafe(no_mangle)]
#[inline(never)]
fn wrong(parser: &Parser<'_>) -> ! {
    panic!("at {} of {}", parser.at, parser.text.len());
}

#[unsafe(no_mangle)]
#[inline(never)]
fn write_text(depth: u32, seed: &mut u64, text: &mut String) {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    match (*seed >> 33) % if depth == 0 { 2 } else { 6 } {
        0 => text.push_str(&(*seed >> 50).to_string()),
        1 if (*seed >> 40).is_multiple_of(29) => text.push('?'),
        1 => text.push('7'),
        2 | 3 => {
            write_text(depth - 1, seed, text);
            text.push('+');
            write_text(depth - 1, seed, text);
        }
        4 => {
            write_text(depth - 1, seed, text);
            text.push('*');
            write_text(depth - 1, seed, text);
        }
        _ => {
            text.push('(');
            write_text(depth - 1, seed, text);
            text.push(')');
        }
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn one_round(seed: &mut u64) -> Option<u64> {
    let mut text = String::new();
    write_text(9, seed, &mut text);
    let parse = || {
        let mut parser = Parser { text: text.as_bytes(), at: 0 };
        sum(&mut parser)
    };
    catch_unwind(parse).ok()
}

fn main() {
    panic::set_hook(Box::new(|_| {}));
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    let (mut seed, mut checksum, mut wrong) = (1, 0_u64, 0);
    for _ in 0..rounds {
        match one_round(&mut seed) {
            Some(value) => checksum = checksum.rotate_left(1) ^ value,
            None => wrong += 1,
        }
    }
    println!("{checksum:x} {wrong}");
}
