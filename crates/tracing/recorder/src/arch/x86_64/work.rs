//! Work on the functions of a module, shared by threads.

use crate::recording::shared::cpus;
use std::thread;

/// Fewer functions are not worth another thread.
const FUNCTIONS: usize = 1000;
/// More threads than these gain little.
const THREADS: usize = 8;
/// So many neighbours are one thread's.
const BLOCK: usize = 64;

/// What one of several threads does: of functions in any order, every so manieth block.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    number: usize,
    of: usize,
}

impl Share {
    /// Whether the function with this number is in it.
    pub fn has(self, at: usize) -> bool {
        at / BLOCK % self.of == self.number
    }
}

/// Lets threads work on so many functions, each on its share; what they return, in the order of the shares.
pub fn share_out<T: Send>(functions: usize, work: impl Fn(Share) -> T + Sync) -> Vec<T> {
    let of = cpus().min(THREADS).min(functions / FUNCTIONS).max(1);
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
        let shares = share_out(functions, |share| {
            (0..functions)
                .filter(|at| share.has(*at))
                .collect::<Vec<_>>()
        });
        let mut all = shares.concat();
        all.sort_unstable();
        assert_eq!(all, (0..functions).collect::<Vec<_>>());
    }
}
