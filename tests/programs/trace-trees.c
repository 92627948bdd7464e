// Random trees of calls, the same for the same seed: `trace-trees SEED ROUNDS THREADS`. Some rounds end in a jump.
#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static __thread uint64_t state;
static __thread jmp_buf start;
static __thread unsigned long calls;

static unsigned next(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

typedef void function(int depth);
static function f0, f1, f2, f3, f4, f5, f6, f7;
static function *const all[] = {f0, f1, f2, f3, f4, f5, f6, f7};

static inline __attribute__((always_inline)) void body(int depth) {
    calls++;
    if (depth >= 7) {
        return;
    }
    unsigned count = next(4);
    for (unsigned i = 0; i < count; i++) {
        all[next(8)](depth + 1);
    }
}

#define FUNCTION(name) \
    static __attribute__((noinline)) void name(int depth) { body(depth); __asm__ volatile(""); }
FUNCTION(f0)
FUNCTION(f1)
FUNCTION(f2)
FUNCTION(f3)
FUNCTION(f4)
FUNCTION(f5)
FUNCTION(f6)

static __attribute__((noinline)) void f7(int depth) {
    body(depth);
    if (next(8) == 0) {
        longjmp(start, 1);
    }
}

static volatile int sink;

// Its last arguments lie on the stack, below the place of calls with fewer ones.
static __attribute__((noinline, noclone)) void many(int a, int b, int c, int d, int e, int f, int g, int h, int i) {
    sink = a + b + c + d + e + f + g + h + i;
}

static __attribute__((noinline)) void round_of(int number) {
    if (setjmp(start) == 0) {
        all[number % 8](0);
    }
    many(number, 2, 3, 4, 5, 6, 7, 8, number);
    f1(6);
}

static int rounds;

static __attribute__((noinline)) void *root(void *seed) {
    state = (uint64_t)(uintptr_t)seed;
    for (int i = 0; i < rounds; i++) {
        round_of(i);
    }
    return (void *)(uintptr_t)calls;
}

int main(int argc, char **argv) {
    uintptr_t seed = argc > 1 ? strtoul(argv[1], NULL, 0) : 1;
    rounds = argc > 2 ? atoi(argv[2]) : 100;
    int threads = argc > 3 ? atoi(argv[3]) : 1;
    unsigned long sum = 0;
    for (int i = 0; i < threads; i++) {
        // One after the other: their order is known.
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, root, (void *)(seed + i));
        pthread_join(thread, &result);
        sum += (uintptr_t)result;
    }
    printf("%lu\n", sum);
    return 0;
}
