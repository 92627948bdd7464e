//! Calls of functions whose parameters have types of Rust's, with values that the test knows.

use std::hint::black_box;

#[derive(Clone, Copy)]
#[allow(dead_code)]
pub enum Kind {
    One = 1,
    Two = 2,
}

#[inline(never)]
pub fn text(s: &str, n: u8) -> usize {
    black_box(s).len() + n as usize
}

#[inline(never)]
pub fn sum(v: &[u16], on: bool) -> u64 {
    black_box(if on { v.iter().map(|x| u64::from(*x)).sum() } else { 0 })
}

#[inline(never)]
pub fn kind(k: Kind, x: f32) -> f32 {
    black_box(x * k as u8 as f32)
}

#[inline(never)]
pub fn part(s: &str) -> &str {
    black_box(&s[1..])
}

#[inline(never)]
pub fn letter(c: char, i: i8) -> i8 {
    black_box(c as i8 + i)
}

fn main() {
    black_box(text(black_box("héllo"), black_box(3)));
    black_box(sum(black_box(&[1, 2, 300]), black_box(true)));
    black_box(kind(black_box(Kind::Two), black_box(1.5)));
    black_box(part(black_box("abc")));
    black_box(letter(black_box('a'), black_box(-7)));
}
