// A program that a tracer attaches to while it runs. Each thread calls step(0), step(1), step(2), …, so that a recording
// holds an unbroken row of arguments, and adds up what it must return. The program says whether all was right.
//
//   trace-running THREADS MODE    runs until SIGTERM, then prints "right THREADS" or "wrong" and ends
//
// Modes: "busy" allocates memory and takes locks all the time; "calm" sleeps in poll between the steps; "mixed" has two
// busy threads, and the others are calm; "execs" is calm and executes /bin/true now and then; "handlers" is busy, and a
// timer's handler interrupts it.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEPT __attribute__((noinline, noipa))

static volatile sig_atomic_t ended;
static const char *mode;
static volatile long handled;
static int begun;

static void end(int signal)
{
    (void)signal;
    ended = 1;
}

KEPT void tick(int signal)
{
    (void)signal;
    handled = handled + 1;
}

KEPT long step(long n)
{
    return n + 1;
}

KEPT double halves(double x, double y)
{
    return x / 2 + y;
}

KEPT long outer(long n)
{
    return step(n) + 1;
}

static void *work(void *result)
{
    double sum = 0;
    long n = 0;
    int number = __atomic_fetch_add(&begun, 1, __ATOMIC_RELAXED);
    int is_busy = strcmp(mode, "busy") == 0 || strcmp(mode, "handlers") == 0 || (strcmp(mode, "mixed") == 0 && number < 2);
    *(long *)result = 1;
    while (!ended) {
        if (outer(n) != n + 2)
            *(long *)result = 0;
        sum = halves(sum, 1);
        if (sum > 2)
            *(long *)result = 0;
        if (is_busy) {
            char *text = malloc(16 + n % 4096);
            if (snprintf(text, 16, "%ld", n) < 1)
                *(long *)result = 0;
            free(text);
            if (n % 64 == 63)
                usleep(100);
        } else {
            poll(NULL, 0, 1);
            if (strcmp(mode, "execs") == 0 && n % 64 == 0) {
                pid_t child = fork();
                if (child == 0)
                    execl("/bin/true", "true", NULL);
                waitpid(child, NULL, 0);
            }
        }
        n++;
    }
    return NULL;
}

int main(int count, char **words)
{
    int threads = count > 1 ? atoi(words[1]) : 1;
    mode = count > 2 ? words[2] : "busy";
    signal(SIGTERM, end);
    if (strcmp(mode, "handlers") == 0) {
        struct itimerval every = {{0, 500}, {0, 500}};
        signal(SIGALRM, tick);
        setitimer(ITIMER_REAL, &every, NULL);
    }
    pthread_t *all = calloc(threads, sizeof *all);
    long *right = calloc(threads, sizeof *right);
    puts("running");
    fflush(stdout);
    for (int i = 1; i < threads; i++)
        pthread_create(&all[i], NULL, work, &right[i]);
    work(&right[0]);
    for (int i = 1; i < threads; i++)
        pthread_join(all[i], NULL);
    long sum = 0;
    for (int i = 0; i < threads; i++)
        sum += right[i];
    if (sum == threads)
        printf("right %d\n", threads);
    else
        puts("wrong");
    return sum != threads;
}
