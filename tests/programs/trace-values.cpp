// Calls whose arguments and return values are known: each function prints nothing, and gets values that follow from
// the round's number.
//
//   trace-values calls N      N rounds in the main thread, a forked child and another thread
//   trace-values texts        texts: usual, empty, long, null
//   trace-values hostile N    N random pointers where texts are expected
//   trace-values ends         tail calls, exceptions, longjmp
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEPT extern "C" __attribute__((noinline, noipa))

KEPT int add(int a, int b)
{
    return a + b;
}

KEPT long many(long a, long b, long c, long d, long e, long f, long g, long h)
{
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;
}

KEPT unsigned char small(signed char a, unsigned short b, unsigned c)
{
    return (unsigned char)(a + b + c);
}

KEPT double mixed(double x, int n, float y)
{
    return x * n + y;
}

KEPT const char *text(const char *words)
{
    return words;
}

KEPT int string_size(const std::string &words)
{
    return (int)words.size();
}

KEPT int looked_at(const char *words)
{
    return words != nullptr;
}

KEPT int last(int n)
{
    return n + 1;
}

KEPT __attribute__((optimize("O2"))) int tail(int n)
{
    return last(n + 10);
}

KEPT int thrower(int n)
{
    if (n % 2)
        throw n;
    return n;
}

KEPT int catcher(int n)
{
    try {
        return thrower(n);
    } catch (int caught) {
        return -caught;
    }
}

static jmp_buf place;

KEPT int jumper(int n)
{
    if (n)
        longjmp(place, n);
    return 0;
}

static void rounds(int first, int count)
{
    for (int i = first; i < first + count; i++) {
        add(i, -i);
        many(i, i + 1, i + 2, i + 3, i + 4, i + 5, i + 6, i + 7);
        small((signed char)-i, (unsigned short)i, i);
        mixed(i + 0.5, i, i + 0.25f);
    }
}

static void *thread(void *count)
{
    rounds(1000, (int)(intptr_t)count);
    return nullptr;
}

static uint64_t state = 88172645463325252ull;

static uint64_t draw()
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "calls";
    int n = count > 2 ? atoi(words[2]) : 3;
    if (!strcmp(what, "calls")) {
        rounds(1, n);
        pthread_t other;
        pthread_create(&other, nullptr, thread, (void *)(intptr_t)n);
        pthread_join(other, nullptr);
        pid_t child = fork();
        if (child == 0) {
            rounds(2000, n);
            _exit(0);
        }
        waitpid(child, nullptr, 0);
    } else if (!strcmp(what, "texts")) {
        text("hello");
        text("");
        text(nullptr);
        text("tab\t\"quoted\"");
        std::string longer(200, 'x');
        text(longer.c_str());
        string_size("short");
        string_size(longer);
        string_size(std::string("a\0b", 3));
        // A text whose end is the last byte that is mapped, and one without an end.
        size_t page = sysconf(_SC_PAGESIZE);
        char *memory = (char *)mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(memory + page, page);
        strcpy(memory + page - 5, "edge");
        text(memory + page - 5);
        memset(memory + page - 5, 'e', 5);
        looked_at(memory + page - 5);
    } else if (!strcmp(what, "hostile")) {
        long sum = 0;
        for (int i = 0; i < n; i++) {
            uint64_t pointer = draw() >> draw() % 64;
            sum += looked_at((const char *)pointer);
            // Reads a string object at any address.
            sum += looked_at((const char *)(uintptr_t)(&pointer));
        }
        printf("%ld\n", sum);
    } else {
        for (int i = 0; i < 4; i++) {
            tail(i);
            catcher(i);
            if (int jumped = setjmp(place))
                last(-jumped);
            else
                jumper(i);
        }
    }
    return 0;
}
