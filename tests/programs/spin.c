/*
 * Burns CPU time, then exits.
 *
 *   spin [SECONDS [STATUS]]     default 1 second, status 0; SECONDS may have a fraction
 *
 * Known by construction:
 *   - uses SECONDS of its own CPU time (user + system, CLOCK_PROCESS_CPUTIME_ID), plus less than a
 *     few milliseconds, however busy the machine is; sampled at F Hz that is SECONDS * F samples;
 *   - nearly all of it in burn(), called from main; one thread, no children;
 *   - leaves with STATUS.
 */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static volatile uint64_t sink;

__attribute__((noinline)) uint64_t burn(uint64_t x)
{
    for (int i = 0; i < 500000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    struct timespec t;
    uint64_t x = 1;
    do {
        x = burn(x);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    } while (t.tv_sec + t.tv_nsec / 1e9 < seconds);
    sink = x;
    return argc > 2 ? atoi(argv[2]) : 0;
}
