// Coroutines that a timer's handler preempts, wherever they are, and a continuation that is resumed three times:
// `trace-preempted coroutines|continuation`.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

#define NOINLINE __attribute__((noinline))
#define UNTRACED __attribute__((noinline, no_instrument_function, noclone))
#define COROUTINES 4

static ucontext_t here, contexts[COROUTINES];
static int current = -1, ended;
static long sums[COROUTINES];
static volatile int has_ended[COROUTINES];

NOINLINE long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

UNTRACED static void next_coroutine(int from) {
    int next = from;
    do next = (next + 1) % COROUTINES;
    while (has_ended[next] && next != from);
    if (next == from) return;
    current = next;
    swapcontext(&contexts[from], &contexts[next]);
}

UNTRACED static void handler(int signal) {
    (void)signal;
    if (current >= 0) next_coroutine(current);
}

UNTRACED static void coroutine(void) {
    int own = current;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &none, 0);
    for (int i = 0; i < 5; i++) sums[own] += fib(22);
    sigprocmask(SIG_SETMASK, &all, 0);
    has_ended[own] = 1;
    if (++ended == COROUTINES) setcontext(&here);
    next_coroutine(own);
    abort();
}

static void coroutines(void) {
    signal(SIGALRM, handler);
    for (int i = 0; i < COROUTINES; i++) {
        getcontext(&contexts[i]);
        sigfillset(&contexts[i].uc_sigmask);
        contexts[i].uc_stack.ss_size = 1 << 18;
        contexts[i].uc_stack.ss_sp = malloc(1 << 18);
        makecontext(&contexts[i], coroutine, 0);
    }
    struct itimerval often = {{0, 200}, {0, 200}};
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, 0);
    volatile int is_first = 1;
    getcontext(&here);
    if (is_first) {
        is_first = 0;
        setitimer(ITIMER_REAL, &often, 0);
        current = 0;
        setcontext(&contexts[0]);
    }
    for (int i = 0; i < COROUTINES; i++) printf("%ld\n", sums[i]);
}

static char saved[65536], *stack;
static int shots;

NOINLINE long leaf(long n) {
    __asm__ volatile("");
    return n + 1;
}

NOINLINE long suspended(long n) {
    volatile long local = leaf(n);
    swapcontext(&contexts[0], &here);
    return leaf(local);
}

static void shot(void) {
    long result = suspended(1);
    printf("shot %d: %ld\n", shots, result);
    setcontext(&here);
}

static void continuation(void) {
    stack = malloc(sizeof saved);
    getcontext(&contexts[0]);
    contexts[0].uc_stack.ss_sp = stack;
    contexts[0].uc_stack.ss_size = sizeof saved;
    makecontext(&contexts[0], shot, 0);
    swapcontext(&here, &contexts[0]);
    memcpy(saved, stack, sizeof saved);
    for (shots = 0; shots < 3; shots++) {
        memcpy(stack, saved, sizeof saved);
        swapcontext(&here, &contexts[0]);
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "coroutines")) coroutines();
    else continuation();
    return 0;
}
