/*
 * What a kernel's own file looks like: code without a C library, linked for the address at which
 * kernels are linked. It is never run.
 *
 * Known by construction:
 *   - work() has one loop, into which deep() is inlined; more() calls work() twice;
 *   - pick() jumps through a table of six entries.
 *
 * FACTOR changes the code, and with it the build id, but nothing else.
 */
#ifndef FACTOR
#define FACTOR 7
#endif

static inline __attribute__((always_inline)) int deep(int x) { return x * FACTOR ^ x >> 3; }

__attribute__((noinline)) int work(int x)
{
    int s = 0;
    for (int i = 0; i < x; i++)
        s += deep(i + s);
    return s;
}

__attribute__((noinline)) int more(int x) { return work(x) + work(x + 1); }

__attribute__((noinline)) int pick(int x, int *to)
{
    switch (x) {
    case 0: return to[1] += 7;
    case 1: return to[2] -= 3;
    case 2: return to[3] ^= 5;
    case 3: return to[5] |= 9;
    case 4: return to[8] &= 2;
    case 5: return to[9] *= 4;
    default: return x;
    }
}

void _start(void)
{
    for (;;)
        more(3);
}
