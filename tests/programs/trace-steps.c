// Prints its process id and waits for a debugger to set `go`; then calls a function that calls others, which is to be
// gone through instruction by instruction.
#include <stdio.h>
#include <unistd.h>

#define TRACED __attribute__((noinline, noclone))

volatile int go;
static volatile long sum;

TRACED int called(int n) {
    sum += n;
    return n + 1;
}
TRACED int ends_in_jump(int n) {
    sum++;
    return called(n + 2);
}
TRACED int caller(int n) {
    int found = called(n);
    sum += found;
    found += ends_in_jump(found);
    sum += found;
    return found;
}

int main(void) {
    // The thread's memory is there before.
    called(1);
    printf("%d\n", (int)getpid());
    fflush(stdout);
    while (!go) usleep(1000);
    for (int i = 0; i < 5; i++) sum += caller(i);
    return 0;
}
