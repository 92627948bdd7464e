// Computes, waits for a line on standard input, and computes on, in two threads: prints the results.
#include <pthread.h>
#include <stdio.h>

#define TRACED __attribute__((noinline))
#define HIDDEN __attribute__((no_instrument_function))

TRACED int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

HIDDEN static void *compute(void *unused) {
    (void)unused;
    return (void *)(long)fib(20);
}

HIDDEN int main(void) {
    char line[16];
    printf("%d\n", fib(20));
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, compute, NULL);
    for (int i = 0; i < 2; i++) {
        void *result;
        pthread_join(threads[i], &result);
        printf("%ld\n", (long)result);
    }
    return 0;
}
