// Many calls: `trace-large nested N` makes about N calls, nine a turn; `trace-large threads N` makes as many in 200 threads.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HIDDEN __attribute__((no_instrument_function))
enum { THREADS = 200, CALLS_OF_TURN = 9 };

static _Thread_local volatile long sink;

__attribute__((noinline)) void leaf(long n) { sink += n; }

__attribute__((noinline)) void middle(long n) {
    leaf(n);
    leaf(n + 1);
    leaf(n + 2);
    sink++;
}

__attribute__((noinline)) void outer(long n) {
    middle(n);
    middle(n + 1);
    sink++;
}

__attribute__((noinline)) void rare(long n) { sink ^= n; }

__attribute__((noinline)) void turns(long n) {
    for (long i = 0; i < n; i++) {
        outer(i);
        if (i % 100000 == 0) {
            rare(i);
        }
    }
}

HIDDEN static void *thread(void *turns_of_thread) {
    turns((long)turns_of_thread);
    return NULL;
}

HIDDEN static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

HIDDEN int main(int count, char **arguments) {
    if (count < 3) {
        return 2;
    }
    long number = atol(arguments[2]) / CALLS_OF_TURN;
    double start = now();
    if (strcmp(arguments[1], "nested") == 0) {
        turns(number);
    } else {
        static pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) {
            if (pthread_create(&threads[i], NULL, thread, (void *)(number / THREADS)) != 0) {
                return 1;
            }
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
        }
    }
    fprintf(stderr, "calls %ld ns %.0f\n", number * CALLS_OF_TURN, now() - start);
    return 0;
}
