/*
 * N threads that run the same function.
 *
 *   threads [THREADS [MILLIONS]]     default 4 threads, 100 million iterations each
 *
 * Known by construction:
 *   - THREADS + 1 threads in all; the threads are named worker-0 ... worker-(THREADS - 1), the
 *     main thread keeps the program's name and only waits;
 *   - thread_work() is called exactly once a thread and takes all but its start and end;
 *   - every worker does the same amount of work: 1 / THREADS of the samples each.
 * Prints the number of threads and a checksum, which depends only on the arguments.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static long millions = 100;

__attribute__((noinline)) uint64_t thread_work(uint64_t x, long iterations)
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
    uint64_t number = (uintptr_t)argument;
    char name[16];
    snprintf(name, sizeof name, "worker-%u", (unsigned)number);
    pthread_setname_np(pthread_self(), name);
    return (void *)(uintptr_t)thread_work(number + 1, millions * 1000000);
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 4;
    if (argc > 2)
        millions = atol(argv[2]);
    pthread_t *threads = calloc(count, sizeof *threads);
    uint64_t sum = 0;
    for (long i = 0; i < count; i++) {
        if (pthread_create(&threads[i], NULL, thread_main, (void *)(uintptr_t)i)) {
            perror("pthread_create");
            return 1;
        }
    }
    for (long i = 0; i < count; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (uintptr_t)result;
    }
    printf("%ld %016llx\n", count, (unsigned long long)sum);
    free(threads);
    return 0;
}
