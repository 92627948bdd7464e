/*
 * A small tree of calls, each a function of its own: for tools that trace, count or filter calls.
 *
 * Known by construction:
 *   main calls a (which calls b, which calls c), d (which calls c and a), r (which calls itself three times), slow
 *   (which calls usleep and c, and takes at least 2 ms) and a again.
 */
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static volatile long sink;

NOINLINE void c(void)
{
    sink++;
}

NOINLINE void b(void)
{
    c();
    sink++;
}

NOINLINE void a(void)
{
    b();
    sink++;
}

NOINLINE void d(void)
{
    c();
    a();
    sink++;
}

NOINLINE void r(int depth)
{
    if (depth > 0)
        r(depth - 1);
    sink++;
}

NOINLINE void slow(void)
{
    usleep(2000);
    c();
    sink++;
}

int main(void)
{
    a();
    d();
    r(3);
    slow();
    a();
    return 0;
}
