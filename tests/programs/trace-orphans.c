// trace-orphans: four threads compute fib(20) each, which takes 21,891 calls, and wait. The main thread prints the process's id
// and waits for a line on standard input; then the threads compute the same again. Prints the sum of all results, 54120, and exits
// with 7.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define THREADS 4
#define TRACED __attribute__((noinline))
#define HIDDEN __attribute__((no_instrument_function))

TRACED int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

static pthread_barrier_t barrier;

HIDDEN static void *compute(void *unused) {
    (void)unused;
    long sum = fib(20);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return (void *)(sum + fib(20));
}

HIDDEN int main(void) {
    pthread_t threads[THREADS];
    char line[16];
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, compute, NULL);
    pthread_barrier_wait(&barrier);
    printf("%d\n", (int)getpid());
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    pthread_barrier_wait(&barrier);
    long sum = 0;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (long)result;
    }
    printf("%ld\n", sum);
    return 7;
}
