/*
 * A library for dlopen.c to load: one function, named by the build (-DPLUGIN_WORK=first_work).
 *
 * Known by construction: PLUGIN_WORK runs as many iterations as it is told to, at the cost of those
 * of dlopen.c's host_work(); it calls nothing.
 */
#include <stdint.h>

#ifndef PLUGIN_WORK
#define PLUGIN_WORK plugin_work
#endif

__attribute__((noinline)) uint64_t PLUGIN_WORK(uint64_t x, long iterations)
{
    for (long i = 0; i < iterations; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}
