/*
 * Forks N children that each do a little work and exit.
 *
 *   forks [CHILDREN [THOUSANDS [LIVE]]]     default 1000 children, 100 thousand iterations each,
 *                                           at most 16 alive at a time
 *
 * Known by construction:
 *   - exactly CHILDREN forks, all by the main thread of the first process, and CHILDREN exits
 *     besides its own; no exec, no threads;
 *   - child_work() is called exactly once in each child and never in the parent;
 *   - child i (from 0) leaves with status i % 7.
 * Prints the number of children and the sum of their statuses: sum of i % 7 for i < CHILDREN.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) uint64_t child_work(uint64_t x, long iterations)
{
    for (long i = 0; i < iterations; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}

static volatile uint64_t sink;
static long statuses;

static void reap(void)
{
    int status;
    while (wait(&status) < 0) {
        if (errno != EINTR) {
            perror("wait");
            exit(1);
        }
    }
    if (!WIFEXITED(status)) {
        fprintf(stderr, "a child was killed\n");
        exit(1);
    }
    statuses += WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    long children = argc > 1 ? atol(argv[1]) : 1000;
    long thousands = argc > 2 ? atol(argv[2]) : 100;
    long limit = argc > 3 ? atol(argv[3]) : 16;
    long live = 0;
    for (long i = 0; i < children; i++) {
        if (live == limit) {
            reap();
            live--;
        }
        pid_t pid = fork();
        if (pid < 0) {
            perror("fork");
            return 1;
        }
        if (pid == 0) {
            sink = child_work(i + 1, thousands * 1000);
            _exit(i % 7);
        }
        live++;
    }
    for (; live > 0; live--)
        reap();
    printf("%ld %ld\n", children, statuses);
    return 0;
}
