// Computes for a while, two calls deep.
#include <stdio.h>

#define TRACED __attribute__((noinline))

static volatile unsigned long sum;

TRACED void inner(int n) {
    // Leaves have frame pointers only if they are asked for.
    __asm__ volatile("" : : "r"(__builtin_frame_address(0)));
    for (int i = 0; i < n; i++) sum += i;
}
TRACED void middle(int n) {
    inner(n);
    sum++;
}

int main(void) {
    for (int i = 0; i < 3000; i++) middle(50000);
    printf("%lu\n", sum);
}
