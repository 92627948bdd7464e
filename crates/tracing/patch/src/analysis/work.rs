//! Work on the functions of a module, shared by several threads.

use std::thread;

/// The number of functions for which another thread is worth it.
const FUNCTIONS: usize = 1000;
/// The largest number of threads. More of them gain little.
const THREADS: usize = 8;
/// The number of neighbouring functions that go to the same thread.
const BLOCK: usize = 64;

/// One thread's share of the functions: every `of`-th block, from block `number` on.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    number: usize,
    of: usize,
}

impl Share {
    /// Returns whether the share has the function with this number.
    pub fn has(self, at: usize) -> bool {
        at / BLOCK % self.of == self.number
    }
}

/// Lets so many threads work on so many functions, each on its share. Returns their results in the order of the shares.
pub fn share_out<T: Send>(
    functions: usize,
    threads: usize,
    work: impl Fn(Share) -> T + Sync,
) -> Vec<T> {
    let of = threads.min(THREADS).min(functions / FUNCTIONS).max(1);
    let work = &work;
    thread::scope(|scope| {
        let others: Vec<_> = (1..of)
            .map(|number| scope.spawn(move || work(Share { number, of })))
            .collect();
        let mut all = vec![work(Share { number: 0, of })];
        for other in others {
            match other.join() {
                Ok(result) => all.push(result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_is_in_one_share() {
        let functions = 5 * FUNCTIONS + 7;
        let shares = share_out(functions, 4, |share| {
            (0..functions)
                .filter(|at| share.has(*at))
                .collect::<Vec<_>>()
        });
        let mut all = shares.concat();
        all.sort_unstable();
        assert_eq!(all, (0..functions).collect::<Vec<_>>());
    }
}
