/*
 * Recursion of known depth and known numbers of calls.
 *
 *   recursion [DEPTH [REPEATS [N [TIMES]]]]     default depth 100, 20000 repeats, fib(30) once
 *
 * Known by construction:
 *   - descend() is called REPEATS * DEPTH times, REPEATS of them from main; at its deepest, DEPTH
 *     frames of it lie on the stack, and bottom() (called REPEATS times) above them;
 *   - fib() is called TIMES * (2 * F(N + 1) - 1) times, F being the Fibonacci numbers with F(1) = F(2) = 1,
 *     and is at most N deep (N >= 1); no two of the 2 * F(N + 1) - 1 calls have the same call stack;
 *   - even() and odd() call each other: even(DEPTH) once from main, (DEPTH / 2) + 1 calls of even()
 *     and (DEPTH + 1) / 2 of odd().
 * Holds as long as tail calls stay calls (-fno-optimize-sibling-calls).
 * Prints the number of calls of descend, bottom, fib, even and odd, in this order, as counted by itself.
 */
#include <stdio.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline))

static long descends, bottoms, fibs, evens, odds;
static volatile long sink;

NOINLINE long bottom(long x)
{
    bottoms++;
    for (int i = 0; i < 100; i++)
        sink = x + i;
    return x;
}

NOINLINE long descend(long depth)
{
    descends++;
    return depth > 1 ? descend(depth - 1) + 1 : bottom(depth);
}

NOINLINE long fib(long n)
{
    fibs++;
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

NOINLINE int odd(long n);

NOINLINE int even(long n)
{
    evens++;
    return n == 0 ? 1 : odd(n - 1);
}

NOINLINE int odd(long n)
{
    odds++;
    return n == 0 ? 0 : even(n - 1);
}

int main(int argc, char **argv)
{
    long depth = argc > 1 ? atol(argv[1]) : 100;
    long repeats = argc > 2 ? atol(argv[2]) : 20000;
    long n = argc > 3 ? atol(argv[3]) : 30;
    long times = argc > 4 ? atol(argv[4]) : 1;
    for (long i = 0; i < repeats; i++)
        sink = descend(depth);
    for (long i = 0; i < times; i++)
        sink = fib(n);
    sink = even(depth);
    printf("%ld %ld %ld %ld %ld\n", descends, bottoms, fibs, evens, odds);
    return 0;
}
