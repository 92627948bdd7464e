// Calls whose numbers are known: `trace-sampled CASE`. In each, `f` calls `g` twice, and `g` calls `h`.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int sink;
static jmp_buf start;

__attribute__((noinline)) void h(int n) { sink += n; }

__attribute__((noinline)) void g(int n) {
    h(n);
    sink++;
}

__attribute__((noinline)) void f(int n) {
    g(n);
    g(n + 1);
    sink++;
}

static void times(int n) {
    for (int i = 0; i < n; i++) {
        f(i);
    }
}

static void *thousand(void *argument) {
    times(1000);
    return argument;
}

static pthread_barrier_t together;

static void *hundred(void *argument) {
    times(100);
    pthread_barrier_wait(&together);
    return argument;
}

// Every third call is left by a jump.
__attribute__((noinline)) void jumper(int n) {
    g(n);
    if (n % 3 == 0) {
        longjmp(start, 1);
    }
    sink++;
}

static ucontext_t main_context, other_context;

static void other(void) {
    for (int i = 0; i < 10; i++) {
        f(i);
        swapcontext(&other_context, &main_context);
    }
}

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "";
    if (strcmp(which, "many") == 0) {
        times(20000);
    } else if (strcmp(which, "threads") == 0) {
        for (int round = 0; round < 5; round++) {
            pthread_t threads[4];
            for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, thousand, NULL);
            for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        }
    } else if (strcmp(which, "crowd") == 0) {
        enum { CROWD = 600 };
        static pthread_t threads[CROWD];
        pthread_barrier_init(&together, NULL, CROWD);
        for (int i = 0; i < CROWD; i++) pthread_create(&threads[i], NULL, hundred, NULL);
        for (int i = 0; i < CROWD; i++) pthread_join(threads[i], NULL);
    } else if (strcmp(which, "killed") == 0) {
        times(1003);
        raise(SIGKILL);
    } else if (strcmp(which, "forked") == 0) {
        times(25);
        pid_t child = fork();
        times(child == 0 ? 17 : 3);
        if (child == 0) _exit(0);
        waitpid(child, NULL, 0);
    } else if (strcmp(which, "jumps") == 0) {
        for (volatile int i = 0; i < 90; i++) {
            if (setjmp(start) == 0) jumper(i);
        }
    } else if (strcmp(which, "stacks") == 0) {
        static char stack[64 << 10];
        getcontext(&other_context);
        other_context.uc_stack.ss_sp = stack;
        other_context.uc_stack.ss_size = sizeof stack;
        other_context.uc_link = &main_context;
        makecontext(&other_context, other, 0);
        for (int i = 0; i < 10; i++) {
            f(i);
            swapcontext(&main_context, &other_context);
        }
    } else {
        return 2;
    }
    printf("%d\n", sink);
    return 0;
}
