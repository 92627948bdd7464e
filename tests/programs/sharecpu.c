/* A parent and its child touch pages in turns on one CPU, and the kernel switches between the two often.
   Arguments: pages that the parent touches before the fork, and pages that each touches after it. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char *map(long pages)
{
    char *memory = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(1);
    madvise(memory, pages * 4096, MADV_NOHUGEPAGE);
    return memory;
}

__attribute__((noinline)) static void touch_before(char *memory, long pages)
{
    for (long page = 0; page < pages; page++)
        memory[page * 4096] = 1;
}

__attribute__((noinline)) static void touch_in_parent(char *memory, long pages)
{
    for (long page = 0; page < pages; page++) {
        memory[page * 4096] = 1;
        if (page % 20 == 19)
            sched_yield();
    }
}

__attribute__((noinline)) static void touch_in_child(char *memory, long pages)
{
    for (long page = 0; page < pages; page++) {
        memory[page * 4096] = 1;
        if (page % 20 == 19)
            sched_yield();
    }
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    long before = atol(arguments[1]), after = atol(arguments[2]);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    char *first = map(before), *second = map(after);
    touch_before(first, before);
    pid_t child = fork();
    if (child == 0) {
        touch_in_child(second, after);
        _exit(0);
    }
    touch_in_parent(second, after);
    int status;
    waitpid(child, &status, 0);
    return status != 0;
}
