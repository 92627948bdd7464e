// trace-sharing ROUNDS: each round makes a task that shares all memory with its creator, thread-local memory included (clone with
// CLONE_VM, without CLONE_SETTLS), and both call leaf() 50,000 times within branch() at the same time. A thread calls leaf() 1000 times within
// apart() before and after. Prints the rounds that came out right.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

static char stack[1 << 16] __attribute__((aligned(16)));
static volatile long sums[3];

__attribute__((noinline)) void leaf(volatile long *sum, int number) { *sum += number; }

__attribute__((noinline)) int branch(int which, int depth) {
    if (depth > 0)
        return branch(which, depth - 1) + 1;
    for (int at = 0; at < 50000; at++)
        leaf(&sums[which], 1);
    return 0;
}

static int task(void *argument) {
    (void)argument;
    return branch(1, 20) != 20;
}

__attribute__((noinline)) void *apart(void *argument) {
    for (int at = 0; at < 1000; at++)
        leaf(&sums[2], 1);
    return argument;
}

__attribute__((noinline)) void thread(void) {
    pthread_t thread;
    pthread_create(&thread, 0, apart, 0);
    pthread_join(thread, 0);
}

__attribute__((noinline)) int round_of(void) {
    sums[0] = sums[1] = 0;
    int pid = clone(task, stack + sizeof stack, CLONE_VM | SIGCHLD, 0);
    int depth = branch(0, 20);
    int status = -1;
    waitpid(pid, &status, 0);
    return pid > 0 && depth == 20 && status == 0 && sums[0] == 50000 && sums[1] == 50000;
}

int main(int count, char **words) {
    int rounds = count > 1 ? atoi(words[1]) : 1, right = 0;
    thread();
    for (int at = 0; at < rounds; at++)
        right += round_of();
    thread();
    printf("%d\n", right);
    return 0;
}
