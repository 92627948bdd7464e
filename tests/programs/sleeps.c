/*
 * Goes to sleep a known number of times.
 *
 *   sleeps [TIMES [MILLISECONDS]]     default 200 times; burns MILLISECONDS (default 1) of CPU time before each
 *
 * Known by construction:
 *   - doze() sleeps TIMES times, a millisecond each: TIMES voluntary context switches, for a sleep gives the CPU away
 *     (unless this thread was kept from running until the sleep was over: on a busy machine one or two in a thousand);
 *   - burns at least TIMES * MILLISECONDS of CPU time, so that there are about 1 / MILLISECONDS voluntary switches in a
 *     millisecond of running; one thread, no children.
 * Prints the voluntary and the involuntary switches that the kernel counted (getrusage) meanwhile, and the CPU time in
 * microseconds.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static volatile uint64_t sink;

static double cpu_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

__attribute__((noinline)) void burn(double seconds)
{
    double end = cpu_time() + seconds;
    uint64_t x = 1;
    while (cpu_time() < end)
        for (int i = 0; i < 1000; i++)
            x ^= x << 13 | x >> 7;
    sink = x;
}

__attribute__((noinline)) void doze(void)
{
    struct timespec t = {0, 1000000};
    nanosleep(&t, NULL);
}

int main(int argc, char **argv)
{
    long times = argc > 1 ? atol(argv[1]) : 200;
    double milliseconds = argc > 2 ? atof(argv[2]) : 1;
    struct rusage before, after;
    double start = cpu_time();
    getrusage(RUSAGE_SELF, &before);
    for (long i = 0; i < times; i++) {
        burn(milliseconds / 1e3);
        doze();
    }
    getrusage(RUSAGE_SELF, &after);
    printf("%ld %ld %.0f\n", after.ru_nvcsw - before.ru_nvcsw, after.ru_nivcsw - before.ru_nivcsw,
           (cpu_time() - start) * 1e6);
    return 0;
}
