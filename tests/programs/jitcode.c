/*
 * Code that is made while the program runs, as just-in-time compilers make it.
 *
 *   jitcode map  [MILLIONS]      names in /tmp/perf-PID.map
 *   jitcode dump [MILLIONS]      names in ./jit-PID.dump (the jitdump format), MILLIONS by default 800
 *
 * Known by construction:
 *   - two functions of the same few instructions: made_first runs three times as often as made_second;
 *   - with `map` they lie beside each other;
 *   - with `dump` made_second lies where made_first was, which is gone by then: only the time of a sample tells them
 *     apart. Both have one line in made.src, 10 and 20. The memory's protection changes before each of them runs.
 * Prints where the code lies.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Counts its argument down to zero. */
#if defined(__x86_64__)
static const unsigned char code[] = {0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3};
enum { MACHINE = 62 };
#elif defined(__aarch64__)
static const unsigned char code[] = {0x00, 0x04, 0x00, 0xf1, 0xe1, 0xff, 0xff, 0x54, 0xc0, 0x03, 0x5f, 0xd6};
enum { MACHINE = 183 };
#else
#error "no code for this machine"
#endif

static FILE *file;

static void word32(uint32_t value) { fwrite(&value, sizeof value, 1, file); }
static void word64(uint64_t value) { fwrite(&value, sizeof value, 1, file); }

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void protect(char *page, int protection)
{
    if (mprotect(page, 4096, protection)) {
        perror("mprotect");
        exit(1);
    }
}

static void make(char *at)
{
    memcpy(at, code, sizeof code);
    __builtin___clear_cache(at, at + sizeof code);
}

static void run(char *at, long count)
{
    ((void (*)(long))(uintptr_t)at)(count);
}

static void dump_header(void)
{
    char name[64];
    snprintf(name, sizeof name, "jit-%d.dump", getpid());
    file = fopen(name, "w+");
    if (!file) {
        perror(name);
        exit(1);
    }
    word32(0x4a695444), word32(1), word32(40), word32(MACHINE), word32(0), word32((uint32_t)getpid());
    word64(now()), word64(0);
    fflush(file);
    /* This tells the recorder of the file. */
    if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(file), 0) == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
}

static void dump(char *at, const char *name, uint32_t line, uint64_t index)
{
    static const char source[] = "made.src";
    word32(2), word32(16 + 16 + 16 + sizeof source), word64(now());
    word64((uintptr_t)at), word64(1);
    word64((uintptr_t)at), word32(line), word32(0);
    fwrite(source, sizeof source, 1, file);
    word32(0), word32((uint32_t)(16 + 40 + strlen(name) + 1 + sizeof code)), word64(now());
    word32((uint32_t)getpid()), word32((uint32_t)getpid());
    word64((uintptr_t)at), word64((uintptr_t)at), word64(sizeof code), word64(index);
    fwrite(name, strlen(name) + 1, 1, file);
    fwrite(code, sizeof code, 1, file);
    fflush(file);
}

int main(int argc, char **argv)
{
    int dumps = argc > 1 && !strcmp(argv[1], "dump");
    long count = (argc > 2 ? atol(argv[2]) : 800) * 250000;
    char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    printf("%p\n", (void *)memory);
    if (dumps) {
        dump_header();
        make(memory);
        dump(memory, "made_first", 10, 0);
        protect(memory, PROT_READ | PROT_EXEC);
        run(memory, 3 * count);
        protect(memory, PROT_READ | PROT_WRITE);
        make(memory);
        dump(memory, "made_second", 20, 1);
        protect(memory, PROT_READ | PROT_EXEC);
        run(memory, count);
    } else {
        char name[64];
        snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
        file = fopen(name, "w");
        if (!file) {
            perror(name);
            return 1;
        }
        char *second = memory + 64;
        fprintf(file, "%lx %zx made_first\n", (unsigned long)memory, sizeof code);
        fprintf(file, "%lx %zx made_second\n", (unsigned long)second, sizeof code);
        fclose(file);
        make(memory), make(second);
        protect(memory, PROT_READ | PROT_EXEC);
        run(memory, 3 * count);
        run(second, count);
    }
    return 0;
}
