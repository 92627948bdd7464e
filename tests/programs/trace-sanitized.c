// trace-sanitized [leak]: calls work() once and leaf() 100 times; each leaf() writes to memory of malloc(). Prints 684. With an
// argument ten bytes are never freed. Meant to be built with sanitizers, whose functions run around all of this.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) int leaf(int number) {
    volatile char buffer[32];
    memset((void *)buffer, number, sizeof buffer);
    return buffer[3] + number;
}

__attribute__((noinline)) int work(int count) {
    int sum = 0;
    for (int at = 0; at < count; at++) {
        char *memory = malloc(16 + at);
        memory[0] = leaf(at);
        sum += memory[0];
        free(memory);
    }
    return sum;
}

int main(int count, char **words) {
    (void)words;
    int result = work(100);
    if (count > 1) {
        char *volatile lost = malloc(10);
        lost = 0;
        (void)lost;
    }
    printf("%d\n", result);
    return 0;
}
