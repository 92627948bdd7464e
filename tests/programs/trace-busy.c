// Threads that call functions all the time while the tracer patches them: trace-busy LIBRARY THREADS ROUNDS [MILLISECONDS].
// Built with -DBUSY it is the library: its constructor starts as many threads as BUSY_THREADS says (none if it is not set),
// which call busy_0 to leaf_7 and stop at busy_end; with BUSY_TIMER signals interrupt them, up to 10,000 a second. The program loads LIBRARY, or is linked with it ("-"), starts THREADS
// threads of its own that call the library's functions at once, and does so ROUNDS times. Each thread adds what the functions
// return to a sum and counts its turns; a wrong sum is told ("wrong"), else the last line is "right N", N the number of threads.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

typedef struct {
    volatile int stop;
    int wrong, count;
    pthread_t threads[64];
} busy_state;

#ifdef BUSY
// Short functions, whose first instructions take much of their time; of different forms, so that each has other ones.
#define FUNCTION(n)                                                                                                    \
    __attribute__((noinline)) unsigned long busy_##n(unsigned long a, unsigned long b) {                               \
        __asm__ volatile("" ::: "rbx", "r12", "r13");                                                                  \
        return (a ^ (b << (n % 7))) * (2 * n + 3) + n;                                                                 \
    }                                                                                                                  \
    __attribute__((noinline)) unsigned long leaf_##n(unsigned long a) { return a * (n + 3) + (a >> (n + 1)); }
#define PLAIN(n) (((a ^ (b << (n % 7))) * (2 * n + 3) + n) + ((a) * (n + 3) + (a >> (n + 1))))
FUNCTION(0) FUNCTION(1) FUNCTION(2) FUNCTION(3) FUNCTION(4) FUNCTION(5) FUNCTION(6) FUNCTION(7)
typedef unsigned long two(unsigned long, unsigned long);
typedef unsigned long one(unsigned long);
static two *const volatile twos[] = {busy_0, busy_1, busy_2, busy_3, busy_4, busy_5, busy_6, busy_7};
static one *const volatile ones[] = {leaf_0, leaf_1, leaf_2, leaf_3, leaf_4, leaf_5, leaf_6, leaf_7};

__attribute__((no_instrument_function)) static unsigned long turn(unsigned long a, unsigned long b) {
    unsigned long sum = 0;
    for (int at = 0; at < 8; at++)
        sum += twos[at](a, b) + ones[at](a);
    return sum;
}

__attribute__((no_instrument_function)) static unsigned long expected(unsigned long a, unsigned long b) {
    return PLAIN(0) + PLAIN(1) + PLAIN(2) + PLAIN(3) + PLAIN(4) + PLAIN(5) + PLAIN(6) + PLAIN(7);
}

__attribute__((no_instrument_function)) static void *work(void *argument) {
    busy_state *state = argument;
    unsigned long a = (unsigned long)pthread_self(), b = 1;
    while (!state->stop) {
        a = a * 6364136223846793005u + b++;
        if (turn(a, b) != expected(a, b))
            __atomic_add_fetch(&state->wrong, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

void busy_begin(busy_state *state, int count) {
    for (; state->count < count; state->count++)
        if (pthread_create(&state->threads[state->count], NULL, work, state))
            abort();
}

// How many threads there were; -1 if a sum was wrong.
int busy_end(busy_state *state) {
    state->stop = 1;
    for (int at = 0; at < state->count; at++)
        pthread_join(state->threads[at], NULL);
    return state->wrong ? -1 : state->count;
}

busy_state busy_own;
static volatile int ticks;
static void tick(int signal) { ticks += signal; }

// The threads alone get the signals.
static void start_timer(void) {
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 100}, {0, 100}};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPROF);
    sigaction(SIGPROF, &action, NULL);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    setitimer(ITIMER_PROF, &often, NULL);
}

__attribute__((constructor)) static void start(void) {
    const char *count = getenv("BUSY_THREADS");
    busy_begin(&busy_own, count ? atoi(count) : 0);
    if (getenv("BUSY_TIMER"))
        start_timer();
}
#else
#include <dlfcn.h>
#include <time.h>

static void rest(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

int main(int count, char **arguments) {
    if (count < 4)
        return 2;
    int threads = atoi(arguments[2]), rounds = atoi(arguments[3]), ended = 0;
    long milliseconds = count > 4 ? atol(arguments[4]) : 5;
    for (int round = 0; round < rounds; round++) {
        int is_linked = arguments[1][0] == '-';
        void *library = dlopen(is_linked ? NULL : arguments[1], RTLD_NOW);
        if (!library) {
            puts(dlerror());
            return 1;
        }
        void (*begin)(busy_state *, int) = (void (*)(busy_state *, int))dlsym(library, "busy_begin");
        int (*end)(busy_state *) = (int (*)(busy_state *))dlsym(library, "busy_end");
        busy_state *own = dlsym(library, "busy_own");
        busy_state here = {0};
        begin(&here, threads);
        rest(milliseconds);
        int first = end(&here), second = end(own);
        own->count = 0;
        if (first < 0 || second < 0) {
            puts("wrong");
            return 1;
        }
        ended += first + second;
        dlclose(library);
    }
    printf("right %d\n", ended);
    return 0;
}
#endif
