// Prints its process id and waits, four calls deep, until a signal ends it.
#include <stdio.h>
#include <unistd.h>

#define TRACED __attribute__((noinline, noclone))

static volatile int sink;

TRACED void inner(int n) {
    printf("%d\n", (int)getpid());
    fflush(stdout);
    while (n > 0) pause();
    sink++;
}
TRACED void middle(int n) {
    inner(n);
    sink++;
}
TRACED void outer(int n) {
    middle(n);
    sink++;
}
int main(void) {
    outer(1);
    return sink;
}
