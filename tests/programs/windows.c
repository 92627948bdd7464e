/*
 * Functions with known rates of page faults and system calls, in turns.
 *
 *   windows [ROUNDS [THREADS [PAGES]]]     default 100 rounds, 1 thread, 2000 pages
 *
 * Known by construction, in each of THREADS threads, the main one among them:
 *   - touch_and_call() writes one byte into each of PAGES fresh pages, without huge pages, and calls getppid twice
 *     after each: one minor fault a page, two system calls a fault, ROUNDS times over;
 *   - compute(), which runs as long and as often in turns with it, neither faults nor calls.
 * Prints the faults that the kernel counted (getrusage) in touch_and_call() and in compute(), over all threads, and
 * the calls.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static long rounds = 100, pages = 2000, page;

struct result {
    long touched, computed, calls;
    uint64_t word;
};

NOINLINE long touch_and_call(volatile char *memory)
{
    long calls = 0;
    for (long i = 0; i < pages; i++) {
        memory[i * page] = 1;
        syscall(SYS_getppid);
        syscall(SYS_getppid);
        calls += 2;
    }
    return calls;
}

NOINLINE uint64_t compute(uint64_t x)
{
    for (long i = 0; i < pages * 500; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

static void *work(void *argument)
{
    struct result *result = argument;
    result->word = 88172645463325252;
    (void)faults();
    (void)syscall(SYS_getppid);
    for (long i = 0; i < rounds; i++) {
        char *memory = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            perror("mmap");
            exit(1);
        }
        /* Fails only where the kernel has no huge pages anyway. */
        (void)madvise(memory, pages * page, MADV_NOHUGEPAGE);
        long before = faults();
        result->calls += touch_and_call(memory);
        long between = faults();
        result->word = compute(result->word);
        result->touched += between - before;
        result->computed += faults() - between;
        munmap(memory, pages * page);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        rounds = atol(argv[1]);
    long threads = argc > 2 ? atol(argv[2]) : 1;
    if (argc > 3)
        pages = atol(argv[3]);
    page = sysconf(_SC_PAGESIZE);
    struct result *results = calloc(threads, sizeof *results);
    pthread_t *ids = calloc(threads, sizeof *ids);
    for (long i = 1; i < threads; i++) {
        if (pthread_create(&ids[i], NULL, work, &results[i])) {
            perror("pthread_create");
            return 1;
        }
    }
    work(&results[0]);
    struct result sum = {0};
    for (long i = 0; i < threads; i++) {
        if (i > 0)
            pthread_join(ids[i], NULL);
        sum.touched += results[i].touched;
        sum.computed += results[i].computed;
        sum.calls += results[i].calls;
        sum.word ^= results[i].word;
    }
    /* The word keeps the computation. */
    if (sum.word == 1)
        puts("");
    printf("%ld %ld %ld\n", sum.touched, sum.computed, sum.calls);
    free(results);
    free(ids);
    return 0;
}
