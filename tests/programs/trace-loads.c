// Loads a library, calls its function `plugged` through a pointer, unloads it, and does so again: trace-loads LIBRARY N.
// Built with -DPLUGIN it is the library.
#include <stdio.h>
#include <stdlib.h>

#ifdef PLUGIN
static volatile int sink;
__attribute__((noinline)) int inner(int n) { return sink += n; }
__attribute__((constructor)) static void at_load(void) { inner(0); }
int plugged(int n) { return inner(n) + inner(n + 1); }
#else
#include <dlfcn.h>
int main(int count, char **arguments) {
    int n = count > 2 ? atoi(arguments[2]) : 1;
    long sum = 0;
    for (int i = 0; i < n; i++) {
        void *library = dlopen(arguments[1], RTLD_NOW);
        if (!library) {
            puts(dlerror());
            return 1;
        }
        int (*plugged)(int) = (int (*)(int))dlsym(library, "plugged");
        sum += plugged(i) > 0;
        dlclose(library);
    }
    printf("%ld\n", sum);
    return 0;
}
#endif
