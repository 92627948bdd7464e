// Many calls, and what one takes: prints its result, and to standard error the number of calls and the CPU time of the
// thread that made them, in nanoseconds.
//
// Usage: trace-calls fib N | loop N | big N
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRACED __attribute__((noinline))
#define HIDDEN __attribute__((no_instrument_function))

TRACED int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

TRACED int tiny(int n) {
    __asm__ volatile("" : "+r"(n));
    return n * 3 + 1;
}

// A thousand functions that call each other: each of a layer calls two of the next one.
static volatile int sink;
#define LEAF(X, Y) \
    TRACED int layer0_##X##Y(int n) { sink = n; return n + 0x##X##Y; }
#define INNER(L, K, X, Y, P, Q) \
    TRACED int layer##L##_##X##Y(int n) { return layer##K##_##Y##P(n + 1) + layer##K##_##Q##X(n) + 1; }
#define SIXTEEN(M) \
    M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(a) M(b) M(c) M(d) M(e) M(f)
#define LEAVES(X) \
    LEAF(X, 0) LEAF(X, 1) LEAF(X, 2) LEAF(X, 3) LEAF(X, 4) LEAF(X, 5) LEAF(X, 6) LEAF(X, 7) \
    LEAF(X, 8) LEAF(X, 9) LEAF(X, a) LEAF(X, b) LEAF(X, c) LEAF(X, d) LEAF(X, e) LEAF(X, f)
#define LAYER(L, K, X) \
    INNER(L, K, X, 0, 3, 7) INNER(L, K, X, 1, 9, c) INNER(L, K, X, 2, 5, 0) INNER(L, K, X, 3, e, b) \
    INNER(L, K, X, 4, 1, 9) INNER(L, K, X, 5, b, 2) INNER(L, K, X, 6, 8, f) INNER(L, K, X, 7, d, 4) \
    INNER(L, K, X, 8, 0, 6) INNER(L, K, X, 9, 6, a) INNER(L, K, X, a, f, 1) INNER(L, K, X, b, 2, d) \
    INNER(L, K, X, c, a, 8) INNER(L, K, X, d, 7, 3) INNER(L, K, X, e, 4, e) INNER(L, K, X, f, c, 5)
#define LAYER1(X) LAYER(1, 0, X)
#define LAYER2(X) LAYER(2, 1, X)
#define LAYER3(X) LAYER(3, 2, X)
SIXTEEN(LEAVES)
SIXTEEN(LAYER1)
SIXTEEN(LAYER2)
SIXTEEN(LAYER3)
#define ENTRIES(X) \
    layer3_##X##0, layer3_##X##1, layer3_##X##2, layer3_##X##3, layer3_##X##4, layer3_##X##5, layer3_##X##6, \
    layer3_##X##7, layer3_##X##8, layer3_##X##9, layer3_##X##a, layer3_##X##b, layer3_##X##c, layer3_##X##d, \
    layer3_##X##e, layer3_##X##f,
static int (*const entries[256])(int) = {SIXTEEN(ENTRIES)};
// Each entry makes two calls, each of which makes two, each of which makes two.
enum { CALLS_OF_ENTRY = 15 };

HIDDEN static double cpu_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

HIDDEN int main(int count, char **arguments) {
    const char *which = count > 2 ? arguments[1] : "";
    int n = count > 2 ? atoi(arguments[2]) : 0;
    long calls = 0, result = 0;
    double start = cpu_time();
    if (strcmp(which, "fib") == 0) {
        result = fib(n);
        long before = 1;
        calls = 1;
        for (int i = 2; i <= n; i++) {
            long next = calls + before + 1;
            before = calls;
            calls = next;
        }
    } else if (strcmp(which, "loop") == 0) {
        for (int i = 0; i < n; i++) result += tiny(i);
        calls = n;
    } else if (strcmp(which, "big") == 0) {
        unsigned at = 1;
        for (int i = 0; i < n; i++) {
            at = at * 1103515245u + 12345u;
            result += entries[at >> 24](i);
        }
        calls = (long)n * CALLS_OF_ENTRY;
    } else {
        return 2;
    }
    double end = cpu_time();
    printf("%ld\n", result);
    fprintf(stderr, "calls %ld ns %.0f\n", calls, end - start);
    return 0;
}
