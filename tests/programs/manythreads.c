/*
 * Starts many short threads, few alive at a time.
 *
 *   manythreads [THREADS [LIVE [THOUSANDS]]]     default 10000 threads, at most 8 alive, each
 *                                                10 thousand iterations
 *
 * Known by construction:
 *   - exactly THREADS threads besides the main one, all started and joined by it, never more than
 *     LIVE of them alive (not yet joined);
 *   - short_work() is called exactly once in each of them and never in the main thread.
 * Prints the number of threads, a checksum that depends only on the arguments, and the
 * nanoseconds of wall time for each thread.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long thousands = 10;

__attribute__((noinline)) uint64_t short_work(uint64_t x, long iterations)
{
    for (long i = 0; i < iterations; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}

static void *thread_main(void *argument)
{
    return (void *)(uintptr_t)short_work((uintptr_t)argument, thousands * 1000);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 10000;
    long live = argc > 2 ? atol(argv[2]) : 8;
    if (argc > 3)
        thousands = atol(argv[3]);
    pthread_t *threads = calloc(live, sizeof *threads);
    uint64_t sum = 0;
    double start = now();
    /* A ring of LIVE threads: the oldest is joined before the next one starts. */
    for (long i = 0; i < count + live; i++) {
        if (i >= live && i - live < count) {
            void *result;
            pthread_join(threads[i % live], &result);
            sum += (uintptr_t)result;
        }
        if (i < count && pthread_create(&threads[i % live], NULL, thread_main, (void *)(uintptr_t)(i + 1))) {
            perror("pthread_create");
            return 1;
        }
    }
    printf("%ld %016llx %.0f\n", count, (unsigned long long)sum, (now() - start) / (count ? count : 1));
    free(threads);
    return 0;
}
