// Reads the clock before, in and after calls of `stamped`, and prints the readings: trace-stamps [ROUNDS [PAUSE [BURST]]]:
// so many of these calls, 60, after each so many of `quick`, none, and milliseconds of sleep, 20.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline __attribute__((always_inline, no_instrument_function)) uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

enum { MOST = 100000 };
static uint64_t stamps[MOST][3];

__attribute__((noinline, noclone)) void stamped(int i) { stamps[i][1] = now(); }

__attribute__((noinline, noclone)) void quick(volatile int *count) { ++*count; }

__attribute__((no_instrument_function)) int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 60, pause = argc > 2 ? atoi(argv[2]) : 20;
    int burst = argc > 3 ? atoi(argv[3]) : 0;
    volatile int count = 0;
    if (rounds < 0 || rounds > MOST) return 1;
    for (int i = 0; i < rounds; i++) {
        stamps[i][0] = now();
        stamped(i);
        stamps[i][2] = now();
        for (int k = 0; k < burst; k++) quick(&count);
        struct timespec time = {pause / 1000, pause % 1000 * 1000000L};
        nanosleep(&time, NULL);
    }
    for (int i = 0; i < rounds; i++) printf("%lu\n%lu\n%lu\n", stamps[i][0], stamps[i][1], stamps[i][2]);
    return 0;
}
