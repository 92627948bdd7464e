// Loads libraries, calls the function `plugged` of each, and unloads them: trace-reloads HOW N LIBRARY..., where HOW is
//   open    each library stays loaded: N is not used
//   again   N rounds, each loads and unloads the libraries one after another
//   asked   as again, but first it prints its id and waits until its input ends or has a byte, and so it does at its end, where
//           it prints the word `on` first
//   forked  as again, then it forks: the parent does so once more, the child does so with the libraries in the opposite order
//   mixed   N steps, each loads a library that is not loaded or unloads one that is, in an order that looks random
// Prints how often it (and the child) called `plugged`, and by how many KiB its address space grew from a tenth of the way to the end.
// Built with -DPLUGIN it is a library; `plugged` calls `inner` once. Built with -DTIMER it is a library that interrupts the process
// from its constructor on, every 100 microseconds of real time; system calls are not restarted.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef TIMER
#include <signal.h>
#include <sys/time.h>
volatile int interrupts;
static void interrupt(int signal) { interrupts++; }
__attribute__((constructor)) static void at_load(void) {
    struct sigaction action = {.sa_handler = interrupt};
    struct itimerval often = {{0, 100}, {0, 100}};
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &often, 0);
}
#elif defined(PLUGIN)
static volatile int sink;
__attribute__((noinline)) static int inner(int n) { return sink += n; }
int plugged(int n) { return inner(n) + 1; }
#else
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>
#define MOST 256
static void *loaded[MOST];
static long calls;

static void load(int which, const char *path) {
    loaded[which] = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!loaded[which]) {
        puts(dlerror());
        exit(1);
    }
    int (*plugged)(int) = (int (*)(int))dlsym(loaded[which], "plugged");
    calls += plugged(which) > 0;
}

static void unload(int which) {
    dlclose(loaded[which]);
    loaded[which] = 0;
}

static long address_space(void) {
    char line[128];
    long size = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "VmSize: %ld", &size);
    if (file)
        fclose(file);
    return size;
}

int main(int count, char **arguments) {
    if (count < 4 || count - 3 > MOST)
        return 2;
    char **libraries = arguments + 3;
    int many = count - 3;
    long rounds = strcmp(arguments[1], "open") ? atol(arguments[2]) : 1;
    long before = 0;
    int is_asked = !strcmp(arguments[1], "asked");
    if (is_asked) {
        printf("%d\n", (int)getpid());
        fflush(stdout);
        getchar();
    }
    unsigned random = 1;
    for (long round = 0; round < rounds; round++) {
        if (round == rounds / 10)
            before = address_space();
        if (!strcmp(arguments[1], "mixed")) {
            random = random * 1103515245 + 12345;
            int which = (random >> 16) % many;
            if (loaded[which])
                unload(which);
            else
                load(which, libraries[which]);
            continue;
        }
        for (int which = 0; which < many; which++) {
            load(which, libraries[which]);
            if (strcmp(arguments[1], "open"))
                unload(which);
        }
    }
    if (!strcmp(arguments[1], "forked")) {
        pid_t child = fork();
        for (long step = 0; step < rounds * many; step++) {
            int which = child ? step % many : many - 1 - step % many;
            load(which, libraries[which]);
            unload(which);
        }
        if (!child)
            _exit(0);
        int status = 1;
        waitpid(child, &status, 0);
        calls += status ? 0 : rounds * many;
    }
    if (is_asked) {
        puts("on");
        fflush(stdout);
        getchar();
    }
    printf("%ld %ld\n", calls, address_space() - before);
    return 0;
}
#endif
