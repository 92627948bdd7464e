// Threads that wait inside the first instructions of functions while the tracer starts: trace-held.
// Built with -DHELD it is the library whose constructor starts them. One waits in a system call of held_call; one in a
// handler that has interrupted a system call of held_handler. Both go on when main says so; main tells "right" if
// everything was read, and then calls both functions.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct {
    pthread_t thread;
    volatile int tid;
    int pipe[2];
    long (*read)(int, void *, unsigned long);
    char got;
} held;

#ifdef HELD
// The system call's number is 0: five bytes, with the call in the middle.
#define FUNCTION(name)                                                                                                 \
    __asm__(".globl " #name "\n.type " #name ", @function\n.p2align 4\n" #name ":\n.cfi_startproc\n"                   \
            "xor %eax, %eax\nsyscall\nret\n.cfi_endproc\n.size " #name ", . - " #name "\n.p2align 4\n");               \
    long name(int, void *, unsigned long);
FUNCTION(held_call)
FUNCTION(held_handler)
static volatile int in_handler, may_leave;

static void handler(int signal) {
    (void)signal;
    in_handler = 1;
    while (!may_leave)
        usleep(100);
}

static void *wait_inside(void *argument) {
    held *of = argument;
    of->tid = syscall(SYS_gettid);
    of->read(of->pipe[0], &of->got, 1);
    return NULL;
}

static int waits(int tid) {
    char path[64], text[8] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    FILE *file = fopen(path, "r");
    int is_read = file && fgets(text, sizeof text, file) && !strncmp(text, "0 ", 2);
    if (file)
        fclose(file);
    return is_read;
}

static held all[2];

__attribute__((constructor)) static void start(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    all[0].read = held_call;
    all[1].read = held_handler;
    for (held *of = all; of < all + 2; of++) {
        if (pipe(of->pipe) || pthread_create(&of->thread, NULL, wait_inside, of))
            abort();
        while (!of->tid || !waits(of->tid))
            usleep(100);
    }
    pthread_kill(all[1].thread, SIGUSR1);
    while (!in_handler)
        usleep(100);
}

int held_end(void) {
    int right = 1;
    may_leave = 1;
    for (held *of = all; of < all + 2; of++) {
        right &= write(of->pipe[1], "x", 1) == 1;
        pthread_join(of->thread, NULL);
        right &= of->got == 'x';
        right &= write(of->pipe[1], "y", 1) == 1 && of->read(of->pipe[0], &of->got, 1) == 1 && of->got == 'y';
    }
    return right;
}
#else
int held_end(void);
int main(void) {
    puts(held_end() ? "right" : "wrong");
    return 0;
}
#endif
