// Executes itself in all ways, with and without an environment; each image makes one traced call whose name says which.
#include <dlfcn.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRACED __attribute__((noinline))

static volatile int sink;
TRACED void with_execve_and_no_environment(void) { sink++; }
TRACED void with_execv_after_clearenv(void) { sink++; }
TRACED void with_execl(void) { sink++; }
TRACED void with_execle(void) { sink++; }
TRACED void with_spawn(void) { sink++; }
TRACED void with_vfork(void) { sink++; }
TRACED void with_system(void) { sink++; }

static void wait_for(pid_t child) {
    int status = 1;
    waitpid(child, &status, 0);
    if (status != 0) exit(3);
}

int main(int count, char **arguments) {
    char *self = arguments[0];
    char *nothing[] = {NULL};
    if (count > 1) {
        if (!strcmp(arguments[1], "execve")) with_execve_and_no_environment();
        if (!strcmp(arguments[1], "execv")) with_execv_after_clearenv();
        if (!strcmp(arguments[1], "execl")) with_execl();
        if (!strcmp(arguments[1], "execle")) with_execle();
        if (!strcmp(arguments[1], "spawn")) with_spawn();
        if (!strcmp(arguments[1], "vfork")) with_vfork();
        if (!strcmp(arguments[1], "system")) with_system();
        return 0;
    }
    pid_t child;
    if ((child = fork()) == 0) {
        char *words[] = {self, "execve", NULL};
        execve(self, words, nothing);
        _exit(1);
    }
    wait_for(child);
    if ((child = fork()) == 0) {
        char *words[] = {self, "execv", NULL};
        clearenv();
        execv(self, words);
        _exit(1);
    }
    wait_for(child);
    if ((child = fork()) == 0) {
        execl(self, self, "execl", NULL);
        _exit(1);
    }
    wait_for(child);
    if ((child = fork()) == 0) {
        execle(self, self, "execle", NULL, nothing);
        _exit(1);
    }
    wait_for(child);
    char *spawned[] = {self, "spawn", NULL};
    if (posix_spawn(&child, self, NULL, NULL, spawned, nothing) != 0) return 2;
    wait_for(child);
    if ((child = vfork()) == 0) {
        char *words[] = {self, "vfork", NULL};
        execve(self, words, nothing);
        _exit(1);
    }
    wait_for(child);
    char command[4096];
    snprintf(command, sizeof command, "%s system", self);
    if (system(command) != 0) return 2;
    puts("done");
    return 0;
}
