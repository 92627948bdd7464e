// Threads that wait in system calls while the tracer starts: trace-waiting.
// Built with -DWAITING it is the library whose constructor starts them, and waits until they wait. main lets each go on, and
// tells which system calls ended with EINTR, which nothing in the program causes; then "waited N", N the number of threads.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <linux/futex.h>
#include <unistd.h>

#ifdef WAITING
static int pipe_of[2], pair[2], semaphores;
static volatile int word, woken;

static int wait_epoll(void) {
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0);
    epoll_ctl(epoll, EPOLL_CTL_ADD, pipe_of[0], &event);
    return epoll_wait(epoll, &event, 1, -1);
}
static int wait_epoll_timed(void) {
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0);
    epoll_ctl(epoll, EPOLL_CTL_ADD, pipe_of[0], &event);
    return epoll_wait(epoll, &event, 1, 100000);
}
static int wait_poll(void) {
    struct pollfd one = {.fd = pipe_of[0], .events = POLLIN};
    return poll(&one, 1, 100000);
}
static int wait_select(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pipe_of[0], &set);
    struct timeval time = {100, 0};
    return select(pipe_of[0] + 1, &set, NULL, NULL, &time);
}
static int wait_read(void) {
    char byte;
    return read(pipe_of[0], &byte, 1);
}
static int wait_timed_receive(void) {
    struct timeval time = {100, 0};
    int copy = dup(pair[0]);
    setsockopt(copy, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    char byte;
    return recv(copy, &byte, 1, MSG_PEEK);
}
static int wait_futex(void) {
    while (!word)
        if (syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL) && errno == EINTR)
            return -1;
    return 0;
}
static int wait_timed_futex(void) {
    struct timespec time = {100, 0};
    while (!word)
        if (syscall(SYS_futex, &word, FUTEX_WAIT, 0, &time) && errno == EINTR)
            return -1;
    return 0;
}
static int wait_signal(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    return sigwaitinfo(&set, NULL);
}
static int wait_semaphore(void) {
    struct sembuf less = {.sem_op = -1};
    return semop(semaphores, &less, 1);
}
static int wait_sleep(void) {
    struct timespec time = {0, 400000000};
    return nanosleep(&time, NULL);
}

static const struct {
    const char *name;
    int (*wait)(void);
} waits[] = {
    {"epoll_wait", wait_epoll},
    {"epoll_wait with a time limit", wait_epoll_timed},
    {"poll", wait_poll},
    {"select", wait_select},
    {"read", wait_read},
    {"recv with a time limit", wait_timed_receive},
    {"futex", wait_futex},
    {"futex with a time limit", wait_timed_futex},
    {"sigwaitinfo", wait_signal},
    {"semop", wait_semaphore},
    {"nanosleep", wait_sleep},
};
#define COUNT ((int)(sizeof waits / sizeof *waits))
static struct {
    pthread_t thread;
    volatile int tid;
    int result, error;
} threads[COUNT];

static void *work(void *number) {
    int at = (int)(long)number;
    threads[at].tid = syscall(SYS_gettid);
    threads[at].result = waits[at].wait();
    threads[at].error = errno;
    return NULL;
}

static int sleeps(int tid) {
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    FILE *file = fopen(path, "r");
    char *end = file && fgets(text, sizeof text, file) ? strrchr(text, ')') : NULL;
    if (file)
        fclose(file);
    return end && end[2] == 'S';
}

__attribute__((constructor)) static void start(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    if (pipe(pipe_of) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || semaphores < 0)
        abort();
    for (long at = 0; at < COUNT; at++)
        if (pthread_create(&threads[at].thread, NULL, work, (void *)at))
            abort();
    for (int at = 0; at < COUNT; at++)
        while (!threads[at].tid || !sleeps(threads[at].tid))
            usleep(100);
}

void waiting_end(void) {
    struct sembuf more = {.sem_op = 1};
    semop(semaphores, &more, 1);
    word = 1;
    syscall(SYS_futex, &word, FUTEX_WAKE, 1000, NULL);
    // One byte is read, the other one stays for those who wait until there is something.
    if (write(pipe_of[1], "xx", 2) != 2 || write(pair[1], "x", 1) != 1)
        abort();
    for (int at = 0; at < COUNT; at++) {
        if (waits[at].wait == wait_signal)
            pthread_kill(threads[at].thread, SIGUSR1);
        pthread_join(threads[at].thread, NULL);
        if (threads[at].result < 0)
            printf("%s: %s\n", waits[at].name, strerror(threads[at].error));
    }
    semctl(semaphores, 0, IPC_RMID);
    printf("waited %d\n", COUNT);
}
#else
void waiting_end(void);
int main(void) {
    waiting_end();
    return 0;
}
#endif
