// Exceptions that pass functions that ended in a jump to another, on a coroutine's stack: its calls are so deep that the
// tracer moves what it knows of them. Who catches finds its variables by the frame pointer.
#include <alloca.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#define NOINLINE __attribute__((noinline))

static ucontext_t back, coroutine;

NOINLINE long leaf(long n) {
    asm volatile("");
    return n + 1;
}

NOINLINE long deep(long n) {
    volatile long local = leaf(n);
    return n == 0 ? 0 : deep(n - 1) + local;
}

NOINLINE long thrower(long n) {
    volatile long local = leaf(n);
    if (n == 0) throw 5;
    return thrower(n - 1) + local;
}

NOINLINE long jumped_to(long n, long more) {
    asm volatile("");
    return thrower(n) + more;
}

// What follows the jump is deep.
NOINLINE long before(long n) {
    asm volatile("");
    return jumped_to(n + 1, 3);
}

// What precedes it is.
NOINLINE long after(long n) {
    volatile long below = deep(n);
    return jumped_to(below ? 7 : 9, 3);
}

NOINLINE long catcher(long n, long (*function)(long)) {
    size_t size = n % 100 + 50;
    char *memory = (char *)alloca(size);
    memset(memory, 7, size);
    volatile long local = 42;
    try {
        local += function(n);
    } catch (int e) {
        local += e;
    }
    asm volatile("" : : "r"(memory) : "memory");
    return local + memory[3];
}

static void first() {
    printf("%ld\n", catcher(6000, before));
    printf("%ld\n", catcher(6000, after));
    swapcontext(&coroutine, &back);
}

static void second() {
    printf("%ld\n", catcher(6000, after));
    swapcontext(&coroutine, &back);
}

int main() {
    void (*functions[])() = {first, second};
    for (auto function : functions) {
        getcontext(&coroutine);
        coroutine.uc_stack.ss_sp = malloc(8 << 20);
        coroutine.uc_stack.ss_size = 8 << 20;
        makecontext(&coroutine, function, 0);
        swapcontext(&back, &coroutine);
    }
    printf("%ld\n", catcher(10, before));
}
