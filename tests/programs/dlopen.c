/*
 * Loads a library, works in it, unloads it, and does the same with a second one.
 *
 *   dlopen LIBRARY1 FUNCTION1 LIBRARY2 FUNCTION2 [MILLIONS]     default 500
 *
 * The libraries are built from plugin.c with -DPLUGIN_WORK=FUNCTION.
 *
 * Known by construction:
 *   - host_work() in the executable takes 40 %, FUNCTION1 40 % and FUNCTION2 20 % of the time, in
 *     this order, each called exactly once;
 *   - LIBRARY1 is unmapped before LIBRARY2 is mapped, often at the same address: which of the two
 *     an address belongs to depends on the time.
 * Prints "same" or "different" (whether FUNCTION1's and FUNCTION2's pages were the same) and a checksum.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint64_t work(uint64_t, long);

__attribute__((noinline)) uint64_t host_work(uint64_t x, long iterations)
{
    for (long i = 0; i < iterations; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}

static uintptr_t page_of_last;

static uint64_t in_library(const char *path, const char *function, uint64_t x, long iterations)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    work *f = (work *)dlsym(library, function);
    if (!f) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    page_of_last = (uintptr_t)f & ~(uintptr_t)4095;
    x = f(x, iterations);
    dlclose(library);
    return x;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: dlopen LIBRARY1 FUNCTION1 LIBRARY2 FUNCTION2 [MILLIONS]\n");
        return 2;
    }
    long millions = argc > 5 ? atol(argv[5]) : 500;
    uint64_t x = host_work(1, millions * 400000);
    x = in_library(argv[1], argv[2], x, millions * 400000);
    uintptr_t first = page_of_last;
    x = in_library(argv[3], argv[4], x, millions * 200000);
    printf("%s %016llx\n", first == page_of_last ? "same" : "different", (unsigned long long)x);
    return 0;
}
