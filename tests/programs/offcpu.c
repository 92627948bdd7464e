/*
 * Waits in three functions, and says how long it waited in each.
 *
 * offcpu SLEEPS READS LOCKS: `sleeping` sleeps so many times for 4 ms; `reading` waits so often for a byte that a thread writes after
 * 3 ms; `locking` waits so often for a lock that a thread holds for 2 ms. Prints for each function its name and the microseconds
 * between the moments before and after the waits.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int to_reader[2], to_writer[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + time.tv_nsec;
}

static void nap(long milliseconds) {
    struct timespec time = {0, milliseconds * 1000000};
    nanosleep(&time, NULL);
}

static uint64_t waited;

__attribute__((noinline)) void sleeping(void) {
    uint64_t before = now();
    nap(4);
    waited += now() - before;
}

__attribute__((noinline)) void reading(void) {
    char byte = 0;
    if (write(to_writer[1], &byte, 1) != 1) exit(1);
    uint64_t before = now();
    if (read(to_reader[0], &byte, 1) != 1) exit(1);
    waited += now() - before;
}

__attribute__((noinline)) void locking(void) {
    char byte = 1;
    if (write(to_writer[1], &byte, 1) != 1) exit(1);
    /* The thread says that it has the lock. */
    if (read(to_reader[0], &byte, 1) != 1) exit(1);
    uint64_t before = now();
    pthread_mutex_lock(&lock);
    waited += now() - before;
    pthread_mutex_unlock(&lock);
}

static void *serving(void *unused) {
    char byte;
    (void)unused;
    while (read(to_writer[0], &byte, 1) == 1) {
        if (byte == 0) {
            nap(3);
            if (write(to_reader[1], &byte, 1) != 1) exit(1);
        } else {
            pthread_mutex_lock(&lock);
            if (write(to_reader[1], &byte, 1) != 1) exit(1);
            nap(2);
            pthread_mutex_unlock(&lock);
        }
    }
    return NULL;
}

static void times(const char *name, void (*function)(void), int count) {
    waited = 0;
    for (int i = 0; i < count; i++) function();
    printf("%s %llu\n", name, (unsigned long long)(waited / 1000));
}

int main(int argc, char **argv) {
    pthread_t thread;
    if (argc < 4 || pipe(to_reader) || pipe(to_writer)) return 2;
    if (pthread_create(&thread, NULL, serving, NULL)) return 2;
    times("sleeping", sleeping, atoi(argv[1]));
    times("reading", reading, atoi(argv[2]));
    times("locking", locking, atoi(argv[3]));
    close(to_writer[1]);
    pthread_join(thread, NULL);
    return 0;
}
