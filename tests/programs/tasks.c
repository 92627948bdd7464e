/*
 * Runs on known CPUs, and begins, ends and names threads.
 *
 *   tasks [fork]
 *
 * Known by construction:
 *   - on_first() runs on the first CPU that it may run on, on_last() on the last one, on_both() first on the one, then on
 *     the other; 2 ms or more each time;
 *   - then work() is called in a thread that it names "worker"; with `fork`, child() in a child that it names "kid".
 * Prints both CPUs' numbers. The process may run on all of its CPUs until on_first().
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int first = -1, last = -1;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void spin(void)
{
    double end = now() + 0.002;
    while (now() < end)
        ;
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

__attribute__((noinline)) void on_first(void)
{
    spin();
}

__attribute__((noinline)) void on_last(void)
{
    spin();
}

__attribute__((noinline)) void on_both(void)
{
    spin();
    pin(last);
    spin();
}

__attribute__((noinline)) void *work(void *argument)
{
    pthread_setname_np(pthread_self(), "worker");
    return argument;
}

__attribute__((noinline)) void child(void)
{
    prctl(PR_SET_NAME, "kid");
}

int main(int argc, char **argv)
{
    pthread_t thread;
    cpu_set_t set;
    (void)argv;
    sched_getaffinity(0, sizeof set, &set);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set)) {
            first = first < 0 ? cpu : first;
            last = cpu;
        }
    pin(first);
    on_first();
    on_both();
    on_last();
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
    if (argc > 1) {
        pid_t pid = fork();
        if (pid == 0) {
            child();
            _exit(0);
        }
        waitpid(pid, NULL, 0);
    }
    printf("%d %d\n", first, last);
    return 0;
}
