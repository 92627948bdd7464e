//! Threads of nested generic functions: Rust names, closures and trait objects.
//!
//!     threaded [THREADS [MILLIONS]]     default 4 threads, 50 million iterations each
//!
//! Known by construction:
//! - THREADS threads besides the main one, named crunch-0 ... crunch-(THREADS - 1); the main one only waits;
//! - each calls `pipeline::outer::<u64, F>` and `pipeline::outer::<u32, F>` once; the first has 2/3 of the
//!   iterations, the second 1/3, of about equal cost each;
//! - all of it is spent in `<pipeline::Xorshift as pipeline::Step<T>>::step`, called through
//!   `pipeline::inner::<T>` (a loop) by `pipeline::outer`, whose closure comes from `work`.
//!
//! Prints the number of threads and a checksum, which depends only on the arguments.

mod pipeline {
    /// One step of a generator over `T`, a trait so that its name holds an `impl`.
    pub trait Step<T> {
        fn step(&self, x: T) -> T;
    }

    pub struct Xorshift;

    impl Step<u64> for Xorshift {
        #[inline(never)]
        fn step(&self, mut x: u64) -> u64 {
            for _ in 0..1000 {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
            }
            x
        }
    }

    impl Step<u32> for Xorshift {
        #[inline(never)]
        fn step(&self, mut x: u32) -> u32 {
            for _ in 0..1000 {
                x ^= x << 13;
                x ^= x >> 17;
                x ^= x << 5;
            }
            x
        }
    }

    #[inline(never)]
    pub fn inner<T: Copy>(stepper: &dyn Step<T>, mut x: T, thousands: u64) -> T {
        for _ in 0..thousands {
            x = stepper.step(x);
        }
        x
    }

    #[inline(never)]
    pub fn outer<T: Copy, F: Fn(T) -> u64>(stepper: &dyn Step<T>, x: T, thousands: u64, last: F) -> u64 {
        last(inner(stepper, x, thousands))
    }
}

#[inline(never)]
fn work(seed: u64, millions: u64) -> u64 {
    let thousands = millions * 1000;
    let wide = pipeline::outer(&pipeline::Xorshift, seed, thousands * 2 / 3, |x: u64| x);
    let narrow = pipeline::outer(&pipeline::Xorshift, seed as u32, thousands / 3, |x: u32| u64::from(x));
    wide.wrapping_add(narrow)
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<u64>().expect("a number"));
    let threads = arguments.next().unwrap_or(4);
    let millions = arguments.next().unwrap_or(50);
    let handles: Vec<_> = (0..threads)
        .map(|i| {
            std::thread::Builder::new()
                .name(format!("crunch-{i}"))
                .spawn(move || work(i + 1, millions))
                .expect("a thread")
        })
        .collect();
    let sum = handles.into_iter().fold(0u64, |sum, h| sum.wrapping_add(h.join().expect("no panic")));
    println!("{threads} {sum:016x}");
}
