// Leaves a call before each of its instructions, those of the tracer's hooks included, and returns at once: `trace-left WARM`.
// Calls `attempt` WARM times, then again and again: it calls `leaf`, and a handler jumps back to it, before the first
// instruction, the second one and so on, without a word to the C library. Prints how often `attempt` was called.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define TRACED __attribute__((noinline, noclone))
#define QUIET __attribute__((no_instrument_function, noinline))
#if defined(__clang__)
#define UNTRACED QUIET
#else
#define UNTRACED QUIET __attribute__((patchable_function_entry(0, 0)))
#endif

static volatile int sink;
static void *back[5];
static volatile long left, jumped;

static UNTRACED void handler(int signal) {
    (void)signal;
    if (left-- == 0) {
        jumped = 1;
        __builtin_longjmp(back, 1);
    }
}

TRACED void leaf(int n) { sink += n; }
TRACED void attempt(int stepped) {
    if (__builtin_setjmp(back)) return;
    if (stepped) __asm__ volatile("pushfq; orl $0x100, (%%rsp); popfq" ::: "memory", "cc");
    leaf(1);
    if (stepped) __asm__ volatile("pushfq; andl $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}

int main(int count, char **arguments) {
    long warm = count > 1 ? atol(arguments[1]) : 10, attempts = warm;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER};
    sigaction(SIGTRAP, &action, NULL);
    for (long i = 0; i < warm; i++) attempt(0);
    for (long steps = 0;; steps++) {
        left = steps;
        jumped = 0;
        attempts++;
        attempt(1);
        if (!jumped) break;
    }
    printf("%ld\n", attempts);
    return 0;
}
