/*
 * Three functions that take 60, 30 and 10 % of the program's CPU time.
 *
 *   shares [MILLIONS]     default 500: about one second
 *
 * Known by construction:
 *   - sixty(), thirty() and ten() run the same loop body, in iteration counts of 6 : 3 : 1;
 *   - together they run MILLIONS * 1,000,000 iterations; nothing else costs measurable time;
 *   - each of them is called exactly 20 times, in turn. So few and long rounds keep sampling at a
 *     fixed rate from falling into step with them: each of the 60 changes from one function to
 *     the next shifts less than one sample, whatever the rate;
 *   - the call chain of each is main -> rounds -> the function.
 * Prints a checksum, which depends only on MILLIONS.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 20
#define NOINLINE __attribute__((noinline))

/* One xorshift step: every iteration needs the one before, so all cost the same. */
#define STEP(x) ((x) ^= (x) << 13, (x) ^= (x) >> 7, (x) ^= (x) << 17)

/* The empty asm statements differ, so that no compiler folds the three equal bodies into one. */
NOINLINE uint64_t sixty(uint64_t x, long unit)
{
    for (long i = 0; i < 6 * unit; i++)
        STEP(x);
    __asm__ volatile("# sixty" : "+r"(x));
    return x;
}

NOINLINE uint64_t thirty(uint64_t x, long unit)
{
    for (long i = 0; i < 3 * unit; i++)
        STEP(x);
    __asm__ volatile("# thirty" : "+r"(x));
    return x;
}

NOINLINE uint64_t ten(uint64_t x, long unit)
{
    for (long i = 0; i < unit; i++)
        STEP(x);
    __asm__ volatile("# ten" : "+r"(x));
    return x;
}

NOINLINE uint64_t rounds(long unit)
{
    uint64_t x = 0x9e3779b97f4a7c15u;
    for (long i = 0; i < ROUNDS; i++) {
        x = sixty(x, unit);
        x = thirty(x, unit);
        x = ten(x, unit);
    }
    return x;
}

int main(int argc, char **argv)
{
    long millions = argc > 1 ? atol(argv[1]) : 500;
    printf("%016llx\n", (unsigned long long)rounds(millions * (1000000 / 10 / ROUNDS)));
    return 0;
}
