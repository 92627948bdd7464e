//! Iterators and closures that the compiler inlines; build with `-Copt-level=3`.
//!
//! `inlines [ROUNDS]`, default 6000.
//!
//! Known by construction: nearly all of the time is spent in code inlined into `busy`, and in `leaf`, which inlined
//! code calls. Prints a checksum, which depends only on ROUNDS.

use std::hint::black_box;

#[inline(never)]
fn leaf(mut x: u64) -> u64 {
    for _ in 0..64 {
        x = (x ^ (x >> 7)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    x
}

#[inline(always)]
fn mix(mut x: u64) -> u64 {
    for _ in 0..64 {
        x = (x ^ (x << 5)).wrapping_mul(3).wrapping_add(1);
    }
    x
}

#[inline(never)]
fn busy(values: &mut [u64]) -> u64 {
    values.iter_mut().for_each(|value| *value = mix(*value));
    values
        .iter()
        .map(|value| leaf(*value).wrapping_add(1))
        .fold(0, u64::wrapping_add)
}

fn main() {
    let rounds: u64 = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(6000);
    let mut values: Vec<u64> = (1..=1000).collect();
    let mut sum = 0_u64;
    for _ in 0..rounds {
        sum = sum.wrapping_add(busy(black_box(&mut values)));
    }
    println!("{sum:016x}");
}
