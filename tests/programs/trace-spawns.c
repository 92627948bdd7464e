// trace-spawns PROGRAM: executes PROGRAM seven times, each in another way: fork and execv; vfork and execve; execvp, which tries the
// folders of PATH (PROGRAM's folder is the last one); posix_spawn; posix_spawnp; system; popen. Then it tries to execute a file that
// may not be, and writes how many of the seven have succeeded.
#define _GNU_SOURCE
#include <libgen.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int succeeded(pid_t child) {
    int status;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int count, char **words) {
    if (count < 2) return 2;
    char *path = words[1], *arguments[] = {path, NULL};
    char folder[4096], name[4096], search[9000];
    strcpy(folder, path);
    strcpy(name, path);
    char *base = basename(name);
    snprintf(search, sizeof search, "/no/such/folder:%s", dirname(folder));
    pid_t child;
    int all = 0;

    if ((child = fork()) == 0) {
        execv(path, arguments);
        _exit(1);
    }
    all += succeeded(child);
    if ((child = vfork()) == 0) {
        execve(path, arguments, environ);
        _exit(1);
    }
    all += succeeded(child);
    char *before = strdup(getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
    setenv("PATH", search, 1);
    if ((child = fork()) == 0) {
        execvp(base, arguments);
        _exit(1);
    }
    all += succeeded(child);
    if (posix_spawnp(&child, base, NULL, NULL, arguments, environ) == 0) all += succeeded(child);
    setenv("PATH", before, 1);
    if (posix_spawn(&child, path, NULL, NULL, arguments, environ) == 0) all += succeeded(child);
    all += system(path) == 0;
    FILE *pipe = popen(path, "r");
    char line[64];
    while (pipe && fgets(line, sizeof line, pipe)) {
    }
    all += pipe && pclose(pipe) == 0;
    if ((child = fork()) == 0) {
        execv("/etc/passwd", arguments);
        _exit(1);
    }
    succeeded(child);
    printf("%d\n", all);
    return 0;
}
