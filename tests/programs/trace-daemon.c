// Becomes a daemon that closes all descriptors, and goes on calling.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) int before(int n) {
    __asm__ volatile("");
    return n + 1;
}
__attribute__((noinline)) int after(int n) {
    __asm__ volatile("");
    return n + 2;
}
int main(void) {
    before(1);
    if (daemon(0, 0)) return 1;
    for (int fd = 0; fd < 1000; fd++) close(fd);
    usleep(100000);
    for (int i = 0; i < 1000; i++) after(i);
    usleep(300000);
    after(3);
    return 0;
}
