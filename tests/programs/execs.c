/*
 * Executes itself again and again, in one process.
 *
 *   execs [STAGES [MILLIONS]]     default 3 stages of 50 million iterations
 *
 * Known by construction:
 *   - one process (one pid) with exactly STAGES - 1 execs after the first; no forks, no threads;
 *   - after each exec the thread is named "execs" by the kernel, then names itself stage-1 ...
 *     stage-STAGES and calls stage_work() exactly once: 1 / STAGES of the samples for each name;
 *   - each stage maps the executable anew (with address randomization: at another address).
 * Every stage prints a line with its number, the last one also "done".
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((noinline)) uint64_t stage_work(uint64_t x, long iterations)
{
    for (long i = 0; i < iterations; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}

static volatile uint64_t sink;

int main(int argc, char **argv)
{
    char *stages = argc > 1 ? argv[1] : "3";
    char *millions = argc > 2 ? argv[2] : "50";
    long stage = argc > 3 ? atol(argv[3]) : 1;
    char name[16];
    snprintf(name, sizeof name, "stage-%u", (unsigned)stage);
    prctl(PR_SET_NAME, name);
    sink = stage_work(stage, atol(millions) * 1000000);
    printf("%ld\n", stage);
    if (stage >= atol(stages)) {
        printf("done\n");
        return 0;
    }
    fflush(stdout);

    /* The real path: /proc/self/exe would name the thread "exe". */
    static char path[4096];
    if (readlink("/proc/self/exe", path, sizeof path - 1) < 0) {
        perror("/proc/self/exe");
        return 1;
    }
    char next[24];
    snprintf(next, sizeof next, "%ld", stage + 1);
    execl(path, argv[0], stages, millions, next, (char *)NULL);
    perror(path);
    return 1;
}
