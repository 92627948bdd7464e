// trace-confined HOW [PROGRAM]: calls leaf() 1000 times, then forbids itself system calls within inside(), calls leaf() 200,000
// times more and 100 times from each of 20 calls of deep() that go 30 deep, and prints HOW and 620. With PROGRAM it executes that at last,
// with the argument "none".
// HOW: none; strict, prctl, seccomp, tsync (with another thread): what the program itself needs is allowed only; deny: all but
// one is allowed; probe: asks whether there are filters; unseen: as deny, by an instruction of its own.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOAD(what) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, what))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), RETURN(SECCOMP_RET_ALLOW)

static volatile long sink;
static volatile int go, runs;

__attribute__((noinline)) void leaf(int number) { sink += number; }

__attribute__((noinline)) int deep(int depth) {
    if (depth == 0) {
        for (int at = 0; at < 100; at++)
            leaf(at);
        return 1;
    }
    int result = deep(depth - 1);
    sink += result;
    return result + 1;
}

static long own_system_call(long number, long first, long second, long third) {
    long result;
#if defined(__x86_64__)
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third)
                     : "rcx", "r11", "memory");
#else
    result = syscall(number, first, second, third);
#endif
    return result;
}

__attribute__((noinline)) int confine(const char *how) {
    struct sock_filter needed[] = {
        LOAD(nr),
        ALLOW(SYS_write),
        ALLOW(SYS_exit),
        ALLOW(SYS_exit_group),
        ALLOW(SYS_rt_sigreturn),
        RETURN(SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_filter denied[] = {
        LOAD(nr),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 1),
        RETURN(SECCOMP_RET_KILL_PROCESS),
        RETURN(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog allow = {sizeof needed / sizeof *needed, needed};
    struct sock_fprog deny = {sizeof denied / sizeof *denied, denied};
    if (!strcmp(how, "strict"))
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (!strcmp(how, "prctl"))
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &allow);
    if (!strcmp(how, "seccomp"))
        return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &allow);
    if (!strcmp(how, "tsync"))
        return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &allow);
    if (!strcmp(how, "deny"))
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &deny);
    if (!strcmp(how, "unseen"))
        return own_system_call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&deny);
    if (!strcmp(how, "probe"))
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 0) != -1 || errno != EFAULT;
    return 0;
}

__attribute__((noinline)) int inside(const char *how) {
    if (confine(how))
        return -1;
    for (int at = 0; at < 200000; at++)
        leaf(at);
    int result = 0;
    for (int at = 0; at < 20; at++)
        result += deep(30);
    return result;
}

static void *other(void *argument) {
    for (; !go; runs = 1)
        leaf(1);
    for (int at = 0; at < 300000; at++)
        leaf(at);
    go = 2;
    for (;;)
        ;
    return argument;
}

int main(int count, char **words) {
    const char *how = words[1];
    int threads = !strcmp(how, "tsync");
    for (int at = 0; at < 1000; at++)
        leaf(at);
    pthread_t thread;
    if (threads)
        pthread_create(&thread, 0, other, 0);
    while (threads && !runs)
        ;
    int result = inside(how);
    go = 1;
    while (threads && go != 2)
        ;
    char text[64];
    int size = snprintf(text, sizeof text, "%s %d\n", how, result);
    if (write(1, text, size) != size)
        return 1;
    if (count > 2) {
        char *const next[] = {words[2], "none", 0};
        execv(words[2], next);
    }
    // What exit() does is not allowed.
    syscall(threads ? SYS_exit_group : SYS_exit, 0);
}
