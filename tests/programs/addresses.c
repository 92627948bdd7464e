/*
 * Says where its code and that of libraries lies.
 *
 *   addresses [LIBRARY FUNCTION]...
 *
 * Prints what the kernel mapped and what the program itself knows, so nothing has to be measured:
 *
 *   map START END OFFSET PATH      each executable mapping of a file, in /proc/self/maps
 *   function ADDRESS NAME          where a function is that lies in one of the maps above
 *
 * first the executable's own functions, of which far_away() lies in a section called far that the linker may be told
 * to put anywhere; then for each LIBRARY, which is loaded, told about and unloaded, its FUNCTION. All numbers are
 * hexadecimal. The last line is "same" or "different": whether all FUNCTIONs lay at one address.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

__attribute__((noinline)) int first_of_all(int x)
{
    return x * 3 + 1;
}

__attribute__((noinline, section("far"))) int far_away(int x)
{
    return x * 5 + 2;
}

__attribute__((noinline)) int last_of_all(int x)
{
    return x * 7 + 3;
}

static void maps(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    char line[4096], rights[8], path[4096];
    unsigned long start, end, offset;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %4095s", &start, &end, rights, &offset, path) == 5 &&
            rights[2] == 'x' && path[0] == '/')
            printf("map %lx %lx %lx %s\n", start, end, offset, path);
    }
    if (file)
        fclose(file);
}

int main(int argc, char **argv)
{
    maps();
    printf("function %lx first_of_all\n", (unsigned long)(uintptr_t)first_of_all);
    printf("function %lx far_away\n", (unsigned long)(uintptr_t)far_away);
    printf("function %lx last_of_all\n", (unsigned long)(uintptr_t)last_of_all);
    void *last = NULL;
    int same = argc > 4;
    for (int i = 1; i + 1 < argc; i += 2) {
        void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        void *function = library ? dlsym(library, argv[i + 1]) : NULL;
        if (!function) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        maps();
        printf("function %lx %s\n", (unsigned long)(uintptr_t)function, argv[i + 1]);
        same = same && (last == NULL || last == function);
        last = function;
        dlclose(library);
    }
    printf("%s\n", same ? "same" : "different");
    return 0;
}
