// Calls functions of libraries through the pointers that the linker fills: build with -fno-plt. Each of the functions
// that `main` calls in its rounds calls one of a library, at one place. It prints what it has found out, which is the
// same whether it is traced or not.
//
// Usage: trace-imports ROUNDS
#include <dlfcn.h>
#include <setjmp.h>
#include <stdexcept>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TRACED __attribute__((noinline))

extern "C" __attribute__((weak)) void that_nobody_has_defined();

TRACED int ordinary(unsigned seed) {
    int first = rand_r(&seed);
    return first ^ (int)seed;
}
// Its last call may be a jump.
TRACED long last(const char *text) {
    return (long)strtoul(text, nullptr, 10);
}
// Its call is among its first instructions.
TRACED int early() {
    return getppid() + 1;
}
static int left;
static int throws(const void *a, const void *) {
    ++left;
    throw *(const int *)a;
}
// An exception passes through the library's function.
TRACED int sorts(int n) {
    int numbers[] = {n, n + 1};
    try {
        qsort(numbers, 2, sizeof *numbers, throws);
    } catch (int thrown) {
        return thrown - n;
    }
    return -1;
}
// The same, while the pointer may be kept in a register.
TRACED int sorts_often(int rounds) {
    int caught = 0;
    for (int i = 0; i < rounds; ++i) {
        int numbers[] = {2, 1};
        try {
            qsort(numbers, 2, sizeof *numbers, throws);
        } catch (int) {
            ++caught;
            qsort(numbers, 1, sizeof *numbers, throws);
        }
    }
    return caught;
}
static jmp_buf place;
TRACED void jumps(int n) {
    longjmp(place, n);
}
TRACED int is_jumped_from(int n) {
    int with = setjmp(place);
    if (with == 0)
        jumps(n + 1);
    return with;
}
// Programs compare such pointers.
TRACED bool is_same() {
    return (void *)&getppid == dlsym(RTLD_DEFAULT, "getppid");
}
TRACED bool is_there() {
    if (that_nobody_has_defined)
        that_nobody_has_defined();
    return that_nobody_has_defined != nullptr;
}
// The pointer may be kept in a register.
TRACED int often(int rounds) {
    int sum = 0;
    for (int i = 0; i < rounds; ++i)
        sum += getpgrp() - getpgrp();
    return sum;
}

int main(int, char **arguments) {
    int rounds = atoi(arguments[1]);
    long sum = 0;
    bool same = true, there = false;
    int parent = early();
    for (int round = 0; round < rounds; ++round) {
        sum += ordinary(round) + last("17") + sorts(round) + is_jumped_from(round) + early() - parent;
        same = same && is_same();
        there = there || is_there();
    }
    int caught = sorts_often(rounds);
    printf("%ld %d %d %d %d %d\n", sum, left, same, there, caught, often(rounds));
}
