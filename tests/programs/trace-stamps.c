// Reads the clock before, in and after 60 calls of `stamped`, over 1.2 seconds, and prints the readings.
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static inline __attribute__((always_inline, no_instrument_function)) uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static uint64_t stamps[60][3];

__attribute__((noinline, noclone)) void stamped(int i) { stamps[i][1] = now(); }

__attribute__((no_instrument_function)) int main(void) {
    for (int i = 0; i < 60; i++) {
        stamps[i][0] = now();
        stamped(i);
        stamps[i][2] = now();
        struct timespec pause = {0, 20000000};
        nanosleep(&pause, NULL);
    }
    for (int i = 0; i < 60; i++) printf("%lu\n%lu\n%lu\n", stamps[i][0], stamps[i][1], stamps[i][2]);
    return 0;
}
