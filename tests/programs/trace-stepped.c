// Forks before each instruction of a call, that of the tracer's hooks included: `trace-stepped WARM CALLS AFTER`. Calls `f`
// WARM times, then CALLS times with a handler that forks before each instruction, and AFTER times again. Each child goes on
// where it was forked, to the end of the call. Prints how many children there were.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define TRACED __attribute__((noinline, noclone))
#define QUIET __attribute__((no_instrument_function, noinline))
#if defined(__clang__)
#define UNTRACED QUIET
#else
#define UNTRACED QUIET __attribute__((patchable_function_entry(0, 0)))
#endif

enum { TRAP_FLAG = 1 << 8 };

static volatile int sink, is_child;
static long children;

TRACED void f(int n) { sink += n; }

static UNTRACED void handler(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)info;
    pid_t child = fork();
    if (child == 0) {
        is_child = 1;
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
        return;
    }
    int status = 1;
    if (waitpid(child, &status, 0) != child || status != 0) {
        printf("a child ended with %#x\n", status);
        fflush(stdout);
        _exit(3);
    }
    children++;
}

static inline __attribute__((always_inline, no_instrument_function)) void step(int on) {
    if (on) {
        __asm__ volatile("pushfq; orl $0x100, (%%rsp); popfq" ::: "memory", "cc");
    } else {
        __asm__ volatile("pushfq; andl $~0x100, (%%rsp); popfq" ::: "memory", "cc");
    }
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    int warm = atoi(arguments[1]), calls = atoi(arguments[2]), after = atoi(arguments[3]);
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    for (int i = 0; i < warm; i++) f(i);
    for (int i = 0; i < calls; i++) {
        step(1);
        f(i);
        step(0);
        if (is_child) _exit(0);
    }
    for (int i = 0; i < after; i++) f(i);
    printf("%ld\n", children);
    return 0;
}
