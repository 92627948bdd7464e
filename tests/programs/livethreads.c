/*
 * Keeps N threads alive, and starts more on request.
 *
 *   livethreads [THREADS [MODE]]     default 500 threads, mode sleep
 *
 * MODE: sleep: all wait; spin: all compute; one: the first one computes, the others wait.
 * Prints "ready" as soon as all threads run, then obeys the lines of its standard input:
 *   create COUNT   starts and joins COUNT empty threads one by one, prints "created COUNT NANOSECONDS"
 *                  (wall time for all of them)
 *   cpu            prints "cpu NANOSECONDS": the CPU time of the whole process so far
 * and leaves with status 0 at the end of its input.
 *
 * Known by construction:
 *   - THREADS + 1 threads are alive from "ready" on, named live-0 ... live-(THREADS - 1), but for those that
 *     `create` adds (one at a time, named "livethreads");
 *   - all CPU time of threads that compute is spent in spin_work().
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum mode { SLEEP, SPIN, ONE };

static enum mode mode = SLEEP;
static pthread_barrier_t barrier;
static volatile uint64_t sink;

__attribute__((noinline)) uint64_t spin_work(uint64_t x, long iterations)
{
    for (long i = 0; i < iterations; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}

static void *live_main(void *argument)
{
    uintptr_t number = (uintptr_t)argument;
    char name[16];
    snprintf(name, sizeof name, "live-%u", (unsigned)number);
    pthread_setname_np(pthread_self(), name);
    pthread_barrier_wait(&barrier);
    if (mode == SPIN || (mode == ONE && number == 0)) {
        for (uint64_t x = number + 1;;)
            sink = x = spin_work(x, 1000000);
    }
    for (;;)
        pause();
    return NULL;
}

static void *empty_main(void *argument)
{
    return argument;
}

static long long nanoseconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 500;
    if (argc > 2)
        mode = strcmp(argv[2], "spin") == 0 ? SPIN : strcmp(argv[2], "one") == 0 ? ONE : SLEEP;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 * 1024);
    pthread_barrier_init(&barrier, NULL, count + 1);
    for (long i = 0; i < count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, live_main, (void *)(uintptr_t)i)) {
            perror("pthread_create");
            return 1;
        }
    }
    pthread_barrier_wait(&barrier);
    puts("ready");
    fflush(stdout);

    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        long more;
        if (sscanf(line, "create %ld", &more) == 1) {
            long long start = nanoseconds(CLOCK_MONOTONIC);
            for (long i = 0; i < more; i++) {
                pthread_t thread;
                if (pthread_create(&thread, &attributes, empty_main, NULL)) {
                    perror("pthread_create");
                    return 1;
                }
                pthread_join(thread, NULL);
            }
            printf("created %ld %lld\n", more, nanoseconds(CLOCK_MONOTONIC) - start);
        } else if (strncmp(line, "cpu", 3) == 0) {
            printf("cpu %lld\n", nanoseconds(CLOCK_PROCESS_CPUTIME_ID));
        } else {
            fprintf(stderr, "unknown request: %s", line);
            return 2;
        }
        fflush(stdout);
    }
    return 0;
}
