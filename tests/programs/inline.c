/*
 * Functions inlined into one another, with known shares.
 *
 *   inline [MILLIONS]     default 500
 *
 * Known by construction:
 *   - outer() is the only function of the three loops with a symbol of its own; mixer() (75 % of
 *     the time) and shaker() (25 %) are inlined into it, and step() into both of them;
 *   - outer() is called 20 times, each time about 1 / 20 of the run;
 *   - an address in a loop has the frames step, mixer or shaker, outer, then main: the inlined
 *     calls stand in the lines marked MIXER, SHAKER and STEP below.
 * Prints a checksum, which depends only on MILLIONS.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define INLINED static inline __attribute__((always_inline))

INLINED uint64_t step(uint64_t x)
{
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

INLINED uint64_t mixer(uint64_t x, long iterations)
{
    for (long i = 0; i < iterations; i++)
        x = step(x); /* STEP in mixer */
    return x;
}

INLINED uint64_t shaker(uint64_t x, long iterations)
{
    for (long i = 0; i < iterations; i++)
        x = step(x); /* STEP in shaker */
    return x;
}

__attribute__((noinline)) uint64_t outer(uint64_t x, long iterations)
{
    x = mixer(x, iterations * 3); /* MIXER */
    x = shaker(x, iterations);    /* SHAKER */
    return x;
}

int main(int argc, char **argv)
{
    long millions = argc > 1 ? atol(argv[1]) : 500;
    uint64_t x = 1;
    for (long i = 0; i < 20; i++)
        x = outer(x, millions * 12500);
    printf("%016llx\n", (unsigned long long)x);
    return 0;
}
