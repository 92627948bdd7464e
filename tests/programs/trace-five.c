// main calls a five times; a calls b, b calls c, c calls getpid.
#include <unistd.h>

static volatile int sink;

__attribute__((noinline)) void c(void) { sink = getpid(); }
__attribute__((noinline)) void b(void) { c(); sink++; }
__attribute__((noinline)) void a(void) { b(); sink++; }

int main(int argc, char **argv) {
    (void)argv;
    for (int i = 0; i < 5; i++) {
        a();
    }
    return argc - 1;
}
