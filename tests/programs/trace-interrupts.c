// Calls while a timer interrupts, with a handler that calls, too: `trace-interrupts INTERRUPTS KIND`; KIND is `return`, `stack`
// (the handler has a stack of its own), `jump` (each third handler jumps out, to where the calls begin anew), `fork` (each third
// handler forks; the child goes on where it was interrupted, to the end of the round), or `quiet` (so does each, and calls nothing
// that compilers prepare).
//
// `rounds` calls `round_of` until there were enough interrupts; that calls `first` and `second`, which calls `third`. The
// handler calls `inner` twice. Prints how often `round_of` and the handler were called.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRACED __attribute__((noinline, noclone))

static volatile int sink;
static volatile long wanted, interrupts, begun;
static int jumps, forks;
static volatile int is_child, can_jump;
static sigjmp_buf start;
static timer_t timer;

static inline __attribute__((always_inline, no_instrument_function)) void next_interrupt(void) {
    // From time to time, never a multiple of what a round takes.
    struct itimerspec once = {.it_value.tv_nsec = 20000 + interrupts % 97 * 331};
    timer_settime(timer, 0, &once, NULL);
}

static inline __attribute__((always_inline, no_instrument_function)) void fork_here(void) {
    pid_t child = fork();
    if (child == 0) {
        is_child = 1;
        return;
    }
    int status = 1;
    if (waitpid(child, &status, 0) != child || status != 0) {
        printf("a child ended with %#x\n", status);
        fflush(stdout);
        _exit(3);
    }
}

TRACED void inner(int n) { sink += n; }
TRACED void handler(int signal) {
    (void)signal;
    inner(1);
    inner(2);
    interrupts++;
    if (forks && interrupts % 3 == 0) fork_here();
    if (interrupts < wanted && !is_child) next_interrupt();
    if (jumps && can_jump && interrupts % 3 == 0) siglongjmp(start, 1);
}
static __attribute__((no_instrument_function, patchable_function_entry(0, 0))) void quiet(int signal) {
    (void)signal;
    interrupts++;
    fork_here();
    if (interrupts < wanted && !is_child) next_interrupt();
}
TRACED void first(int n) { sink += n; }
TRACED void third(int n) { sink -= n; }
TRACED void second(int n) {
    third(n);
    sink++;
}
TRACED void round_of(void) {
    first(1);
    second(2);
    first(3);
}
TRACED void rounds(void) {
    sigsetjmp(start, 1);
    can_jump = 1;
    while (interrupts < wanted && !is_child) {
        begun++;
        round_of();
    }
}

int main(int count, char **arguments) {
    wanted = count > 1 ? atol(arguments[1]) : 1000;
    const char *kind = count > 2 ? arguments[2] : "return";
    jumps = strcmp(kind, "jump") == 0;
    forks = strcmp(kind, "fork") == 0;
    struct sigaction action = {.sa_handler = strcmp(kind, "quiet") == 0 ? quiet : handler};
    if (strcmp(kind, "stack") == 0) {
        static char memory[1 << 16];
        stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
        sigaltstack(&stack, NULL);
        action.sa_flags = SA_ONSTACK;
    }
    sigaction(SIGUSR1, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    next_interrupt();
    rounds();
    if (is_child) _exit(0);
    printf("%ld %ld\n", begun, interrupts);
    return 0;
}
