// counts PROGRAM [ARGUMENTS]: runs it under counters of its own and prints what the kernel counted in user mode, as
// `cycles N`, `instructions N`, `page-faults N`: what dioptra's recordings are held against, without any of its code.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int open_counter(uint32_t type, uint64_t config, pid_t pid, int leader)
{
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = type;
    attr.config = config;
    attr.exclude_kernel = 1;
    attr.exclude_hv = 1;
    attr.inherit = 1;
    attr.disabled = leader < 0;
    attr.enable_on_exec = leader < 0;
    return (int)syscall(SYS_perf_event_open, &attr, pid, -1, leader, PERF_FLAG_FD_CLOEXEC);
}

int main(int argc, char **argv)
{
    static const struct { const char *name; uint32_t type; uint64_t config; } events[] = {
        { "cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES },
        { "instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS },
        { "page-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS },
    };
    enum { EVENTS = sizeof events / sizeof *events };
    int counters[EVENTS], ready[2], status;
    if (argc < 2 || pipe(ready) != 0)
        return 2;
    pid_t child = fork();
    if (child == 0) {
        char go;
        close(ready[1]);
        if (read(ready[0], &go, 1) != 1)
            _exit(2);
        execvp(argv[1], argv + 1);
        _exit(127);
    }
    for (int i = 0; i < EVENTS; i++) {
        counters[i] = open_counter(events[i].type, events[i].config, child, i ? counters[0] : -1);
        if (counters[i] < 0) {
            fprintf(stderr, "%s: %s\n", events[i].name, strerror(errno));
            return 1;
        }
    }
    if (write(ready[1], "g", 1) != 1 || waitpid(child, &status, 0) != child)
        return 1;
    for (int i = 0; i < EVENTS; i++) {
        uint64_t value = 0;
        if (read(counters[i], &value, sizeof value) != sizeof value)
            return 1;
        printf("%s %llu\n", events[i].name, (unsigned long long)value);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
