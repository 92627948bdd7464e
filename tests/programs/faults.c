/*
 * Touches fresh pages: a known number of page faults.
 *
 *   faults [PAGES [ROUNDS]]     default 10000 pages, 1 round
 *
 * Known by construction:
 *   - touch_pages() writes one byte into each of PAGES new anonymous pages, ROUNDS times over (a new
 *     mapping each time, without huge pages): exactly PAGES * ROUNDS minor faults, one an address,
 *     all at one instruction of touch_pages(), none of them major;
 *   - touch_again() writes to the same pages again: no fault as long as nothing is swapped out.
 * Prints the faults that the kernel counted (getrusage) in touch_pages() and in touch_again().
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

NOINLINE void touch_pages(volatile char *memory, long pages, long size)
{
    for (long i = 0; i < pages; i++)
        memory[i * size] = 1;
}

NOINLINE void touch_again(volatile char *memory, long pages, long size)
{
    for (long i = 0; i < pages; i++)
        memory[i * size] = 2;
}

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

int main(int argc, char **argv)
{
    long pages = argc > 1 ? atol(argv[1]) : 10000;
    long rounds = argc > 2 ? atol(argv[2]) : 1;
    long size = sysconf(_SC_PAGESIZE);
    long first = 0, second = 0;
    /* Fault in what the loop itself needs. */
    touch_pages(NULL, 0, size);
    touch_again(NULL, 0, size);
    (void)faults();
    for (long i = 0; i < rounds; i++) {
        char *memory = mmap(NULL, pages * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            perror("mmap");
            return 1;
        }
        /* Fails only where the kernel has no huge pages anyway. */
        (void)madvise(memory, pages * size, MADV_NOHUGEPAGE);
        long before = faults();
        touch_pages(memory, pages, size);
        long between = faults();
        touch_again(memory, pages, size);
        first += between - before;
        second += faults() - between;
        munmap(memory, pages * size);
    }
    printf("%ld %ld\n", first, second);
    return 0;
}
