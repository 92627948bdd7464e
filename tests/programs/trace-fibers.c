// Programs that exchange stacks by themselves: `trace-fibers CASE FIBERS [SPACING_KIB [down]]`.
//
// Each fiber calls functions three deep, gives way inside the innermost one, and adds up what it knows only from its own stack. The
// program prints how many fibers came to the right sum, how much memory it has used at most, in KiB, and how much of a stack
// of its own making, in bytes.
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define NOINLINE __attribute__((noinline))
#define UNTRACED __attribute__((noinline, no_instrument_function, noclone))

static int rounds = 3;

struct fiber {
    void *sp;
    char *stack;
    size_t size;
    // What was on a shared stack.
    char *saved;
    size_t saved_size;
    long sum;
    int number, done;
    ucontext_t context, *back;
    sigjmp_buf jump, *jump_back;
    void **caller_sp;
};

static __thread struct fiber *current;

// --- the exchange of stacks

// Saves what functions must leave alone on the stack, its address at `*from`, and goes on with the stack `to`.
void exchange(void **from, void *to);
#if defined(__x86_64__)
__asm__(".text\n.globl exchange\n.type exchange, @function\nexchange:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n.size exchange, .-exchange\n");
#define SAVED 6
#else
__asm__(".text\n.globl exchange\n.type exchange, %function\nexchange:\n"
        "sub sp, sp, #160\nstp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
        "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
        "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
        "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\nret\n.size exchange, .-exchange\n");
#endif

// How the current fiber gives way: what differs between the cases.
static void (*give_way)(struct fiber *);

UNTRACED static void by_hand(struct fiber *fiber) { exchange(&fiber->sp, *fiber->caller_sp); }
UNTRACED static void by_context(struct fiber *fiber) { swapcontext(&fiber->context, fiber->back); }
UNTRACED static void by_jump(struct fiber *fiber) {
    if (!sigsetjmp(fiber->jump, 0)) siglongjmp(*fiber->jump_back, 1);
}

// --- what fibers do

NOINLINE long leaf(long n) {
    __asm__ volatile("");
    return n + 1;
}

NOINLINE long inner(struct fiber *fiber, long n) {
    volatile long before = leaf(n);
    give_way(fiber);
    return leaf(before);
}

NOINLINE long middle(struct fiber *fiber, long n) {
    volatile long local = inner(fiber, n);
    return leaf(local) + inner(fiber, n);
}

NOINLINE long outer(struct fiber *fiber, long n) {
    volatile long local = n * 2;
    long result = middle(fiber, n);
    return result + local;
}

static long expected(int number) {
    long sum = 0;
    for (int i = 0; i < rounds; i++) {
        long n = number + i;
        sum += (n + 2) + 1 + (n + 2) + n * 2;
    }
    return sum;
}

UNTRACED static void work(struct fiber *fiber) {
    for (int i = 0; i < rounds; i++) fiber->sum += outer(fiber, fiber->number + i);
    fiber->done = 1;
}

UNTRACED static void body(void) {
    struct fiber *fiber = current;
    work(fiber);
    for (;;) give_way(fiber);
}

UNTRACED static void prepare(struct fiber *fiber) {
    void **top = (void **)(((uintptr_t)fiber->stack + fiber->size) & ~(uintptr_t)15);
#if defined(__x86_64__)
    *--top = 0;
    *--top = (void *)body;
    for (int i = 0; i < SAVED; i++) *--top = 0;
#else
    top -= 20;
    memset(top, 0, 160);
    top[11] = (void *)body;
#endif
    fiber->sp = top;
}

static struct fiber *all;
static int count;

UNTRACED static int result(void) {
    int right = 0;
    for (int i = 0; i < count; i++) right += all[i].done && all[i].sum == expected(i);
    printf("%d of %d fibers are right\n", right, count);
    long deepest = 0;
    for (int i = 0; i < count; i++) {
        // Stacks begin as zeroes.
        size_t untouched = 0;
        while (all[i].stack && untouched < all[i].size && !all[i].stack[untouched]) untouched++;
        long used = all[i].size - untouched;
        if (used > deepest) deepest = used;
    }
    printf("stack %ld\n", deepest);
    return right == count ? 0 : 1;
}

// --- cases

// Stacks of a size, one behind the other, upwards or downwards.
NOINLINE static int own(size_t size, int down) {
    give_way = by_hand;
    char *memory = mmap(0, size * count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return 2;
    void *here = 0;
    for (int i = 0; i < count; i++) {
        struct fiber *fiber = &all[i];
        fiber->stack = memory + size * (down ? count - 1 - i : i);
        fiber->size = size;
        fiber->caller_sp = &here;
        prepare(fiber);
    }
    for (int turn = 0; turn < 2 * rounds + 1; turn++)
        for (int i = 0; i < count; i++) {
            current = &all[i];
            exchange(&here, current->sp);
        }
    return result();
}

// All on one stack, whose contents are copied away and back.
NOINLINE static int copied(void) {
    give_way = by_hand;
    size_t size = 64 << 10;
    char *memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 2;
    void *here = 0;
    for (int turn = 0; turn < 2 * rounds + 1; turn++)
        for (int i = 0; i < count; i++) {
            struct fiber *fiber = &all[i];
            if (!turn) {
                fiber->stack = memory, fiber->size = size, fiber->caller_sp = &here;
                prepare(fiber);
            } else {
                memcpy(memory + size - fiber->saved_size, fiber->saved, fiber->saved_size);
                free(fiber->saved);
            }
            current = fiber;
            exchange(&here, fiber->sp);
            fiber->saved_size = memory + size - (char *)fiber->sp;
            fiber->saved = malloc(fiber->saved_size);
            memcpy(fiber->saved, fiber->sp, fiber->saved_size);
        }
    return result();
}

// Threads take turns: each fiber goes on in another one each time.
static pthread_barrier_t all_there;
#define THREADS 4

UNTRACED static void *thread(void *argument) {
    int own_number = (int)(intptr_t)argument;
    void *here = 0;
    for (int turn = 0; turn < 2 * rounds + 1; turn++) {
        for (int i = 0; i < count; i++) {
            if ((i + turn) % THREADS != own_number) continue;
            current = &all[i];
            current->caller_sp = &here;
            exchange(&here, current->sp);
        }
        pthread_barrier_wait(&all_there);
    }
    return 0;
}

NOINLINE static int pool(size_t size) {
    give_way = by_hand;
    char *memory = mmap(0, size * count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return 2;
    for (int i = 0; i < count; i++) {
        all[i].stack = memory + size * i;
        all[i].size = size;
        prepare(&all[i]);
    }
    pthread_barrier_init(&all_there, 0, THREADS);
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, thread, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    return result();
}

// The C library's contexts.
NOINLINE static int contexts(size_t size) {
    give_way = by_context;
    ucontext_t here;
    char *memory = mmap(0, size * count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return 2;
    for (int i = 0; i < count; i++) {
        struct fiber *fiber = &all[i];
        getcontext(&fiber->context);
        fiber->context.uc_stack.ss_sp = memory + size * i;
        fiber->context.uc_stack.ss_size = size;
        fiber->context.uc_link = 0;
        fiber->back = &here;
        makecontext(&fiber->context, body, 0);
    }
    for (int turn = 0; turn < 2 * rounds + 1; turn++)
        for (int i = 0; i < count; i++) {
            current = &all[i];
            swapcontext(&here, &current->context);
        }
    return result();
}

// All coroutines have the same memory, and their stacks are copied away and back.
NOINLINE static int shared(void) {
    give_way = by_context;
    ucontext_t here;
    size_t size = 64 << 10;
    char *memory = malloc(size);
    for (int turn = 0; turn < 2 * rounds + 1; turn++)
        for (int i = 0; i < count; i++) {
            struct fiber *fiber = current = &all[i];
            if (!turn) {
                getcontext(&fiber->context);
                fiber->context.uc_stack.ss_sp = memory;
                fiber->context.uc_stack.ss_size = size;
                fiber->back = &here;
                makecontext(&fiber->context, body, 0);
                fiber->saved_size = 4096;
                fiber->saved = malloc(fiber->saved_size);
            } else {
                memcpy(memory + size - fiber->saved_size, fiber->saved, fiber->saved_size);
            }
            swapcontext(&here, &fiber->context);
            memcpy(fiber->saved, memory + size - fiber->saved_size, fiber->saved_size);
        }
    return result();
}

// Suspended contexts get other signal sets.
NOINLINE static int masks(size_t size) {
    give_way = by_context;
    ucontext_t here;
    for (int turn = 0; turn < 2 * rounds + 1; turn++)
        for (int i = 0; i < count; i++) {
            struct fiber *fiber = current = &all[i];
            if (!turn) {
                getcontext(&fiber->context);
                fiber->context.uc_stack.ss_sp = malloc(size);
                fiber->context.uc_stack.ss_size = size;
                fiber->back = &here;
                makecontext(&fiber->context, body, 0);
            }
            memset(&fiber->context.uc_sigmask, 0, sizeof fiber->context.uc_sigmask);
            swapcontext(&here, &fiber->context);
        }
    return result();
}

// Suspended stacks can't be read.
NOINLINE static int hidden(size_t size) {
    give_way = by_context;
    ucontext_t here;
    char *memory = mmap(0, size * count, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return 2;
    for (int turn = 0; turn < 2 * rounds + 1; turn++)
        for (int i = 0; i < count; i++) {
            struct fiber *fiber = current = &all[i];
            mprotect(memory + size * i, size, PROT_READ | PROT_WRITE);
            if (!turn) {
                getcontext(&fiber->context);
                fiber->context.uc_stack.ss_sp = memory + size * i;
                fiber->context.uc_stack.ss_size = size;
                fiber->back = &here;
                makecontext(&fiber->context, body, 0);
            }
            swapcontext(&here, &fiber->context);
            mprotect(memory + size * i, size, PROT_NONE);
        }
    return result();
}

// Coroutines that end without returning, and whose stacks others get.
NOINLINE static void ended(struct fiber *fiber) {
    leaf(1);
    give_way(fiber);
}

UNTRACED static void ending(void) { ended(current); }

NOINLINE static int reused(size_t size) {
    enum { STACKS = 500 };
    static struct fiber fibers[STACKS];
    give_way = by_context;
    ucontext_t here;
    char *memory = mmap(0, size * STACKS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return 2;
    for (int i = 0; i < count; i++) {
        struct fiber *fiber = current = &fibers[i % STACKS];
        getcontext(&fiber->context);
        fiber->context.uc_stack.ss_sp = memory + size * (i % STACKS);
        fiber->context.uc_stack.ss_size = size;
        fiber->back = &here;
        makecontext(&fiber->context, ending, 0);
        swapcontext(&here, &fiber->context);
        all[i].sum = expected(i), all[i].done = 1;
    }
    return result();
}

// A coroutine that goes back to where its own context was saved, again and again.
static volatile int again;

NOINLINE static void go_back(struct fiber *fiber) {
    leaf(again);
    setcontext(&fiber->context);
}

UNTRACED static void repeating(void) {
    struct fiber *fiber = current;
    getcontext(&fiber->context);
    if (again++ < count) go_back(fiber);
    give_way(fiber);
}

NOINLINE static int repeated(size_t size) {
    give_way = by_context;
    ucontext_t here;
    static struct fiber fiber;
    current = &fiber;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = malloc(size);
    fiber.context.uc_stack.ss_size = size;
    fiber.back = &here;
    makecontext(&fiber.context, repeating, 0);
    swapcontext(&here, &fiber.context);
    for (int i = 0; i < count; i++) all[i].sum = expected(i), all[i].done = again == count + 1;
    return result();
}

// A coroutine whose function returns to its successor, and one that is left without being saved: the program comes back to
// calls of which nobody has said that it would.
static ucontext_t first_context, linked_context;
static volatile int times;

NOINLINE static long linked_step(long n) { return leaf(n); }
UNTRACED static void linked(void) { linked_step(1); }

NOINLINE static long left_unsaved(char *stack, size_t size) {
    volatile long local = leaf(5);
    times = 0;
    getcontext(&first_context);
    if (times++ == 0) {
        getcontext(&linked_context);
        linked_context.uc_stack.ss_sp = stack;
        linked_context.uc_stack.ss_size = size;
        linked_context.uc_link = &first_context;
        makecontext(&linked_context, linked, 0);
        setcontext(&linked_context);
    }
    return leaf(local);
}

NOINLINE static int links(void) {
    size_t size = 64 << 10;
    char *stack = malloc(size);
    for (int i = 0; i < count; i++) {
        all[i].sum = left_unsaved(stack, size) == 7 ? expected(i) : 0;
        all[i].done = 1;
    }
    return result();
}

// Stacks that are made with a signal handler, and exchanged with jumps, as QEMU does it.
static struct fiber *made;
static sigjmp_buf made_back;

UNTRACED static void on_own_stack(void) {
    struct fiber *fiber = made;
    if (!sigsetjmp(fiber->jump, 0)) siglongjmp(made_back, 1);
    current = fiber;
    work(fiber);
    for (;;) give_way(fiber);
}

UNTRACED static void handler(int signal) {
    (void)signal;
    struct fiber *fiber = made;
    if (!sigsetjmp(fiber->jump, 0)) return;
    on_own_stack();
}

NOINLINE static int altstacks(size_t size) {
    give_way = by_jump;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR2, &action, 0);
    char *memory = mmap(0, size * count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return 2;
    static sigjmp_buf here;
    for (int i = 0; i < count; i++) {
        struct fiber *fiber = made = &all[i];
        stack_t stack = {.ss_sp = memory + size * i, .ss_size = size}, off = {.ss_flags = SS_DISABLE};
        fiber->jump_back = &here;
        sigaltstack(&stack, 0);
        raise(SIGUSR2);
        sigaltstack(&off, 0);
        if (!sigsetjmp(made_back, 0)) siglongjmp(fiber->jump, 1);
    }
    for (int turn = 0; turn < 2 * rounds + 1; turn++)
        for (int i = 0; i < count; i++) {
            current = &all[i];
            if (!sigsetjmp(here, 0)) siglongjmp(current->jump, 1);
        }
    return result();
}

// Calls that are left for good again and again, by a jump of which the tracer is told, or by one of the program's own.
static jmp_buf caught;
static void *caught_own[5];

NOINLINE static void thrower(int n, int is_own) {
    leaf(n);
    if (is_own) __builtin_longjmp(caught_own, 1);
    longjmp(caught, 1);
}

NOINLINE static void between(int n, int is_own) {
    thrower(n, is_own);
    leaf(n);
}

NOINLINE static void catches(int n) {
    if (!setjmp(caught)) between(n, 0);
}

NOINLINE static void catches_own(int n) {
    if (!__builtin_setjmp(caught_own)) between(n, 1);
}

NOINLINE static int thrown(int is_own) {
    for (int i = 0; i < count; i++) {
        if (is_own) catches_own(i);
        else catches(i);
    }
    for (int i = 0; i < count; i++) all[i].sum = expected(i), all[i].done = 1;
    return result();
}

// A fiber calls itself deep down, where its part of the shadow stack has to grow.
NOINLINE static long deep(struct fiber *fiber, int n) {
    if (n == 0) {
        give_way(fiber);
        return 0;
    }
    volatile long below = deep(fiber, n - 1);
    return below + 1;
}

UNTRACED static void deep_body(void) {
    struct fiber *fiber = current;
    for (int i = 0; i < rounds; i++)
        if (deep(fiber, 20000) == 20000) fiber->sum += 1;
    fiber->sum = fiber->sum == rounds ? expected(fiber->number) : 0;
    fiber->done = 1;
    for (;;) give_way(fiber);
}

NOINLINE static int deeps(void) {
    give_way = by_context;
    ucontext_t here;
    size_t size = 8 << 20;
    for (int i = 0; i < count; i++) {
        struct fiber *fiber = &all[i];
        getcontext(&fiber->context);
        fiber->context.uc_stack.ss_sp = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        fiber->context.uc_stack.ss_size = size;
        fiber->context.uc_link = 0;
        fiber->back = &here;
        makecontext(&fiber->context, deep_body, 0);
    }
    for (int turn = 0; turn < rounds + 1; turn++)
        for (int i = 0; i < count; i++) {
            current = &all[i];
            swapcontext(&here, &current->context);
        }
    return result();
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *name = argv[1];
    count = atoi(argv[2]);
    size_t size = (argc > 3 ? atol(argv[3]) : 64) << 10;
    all = calloc(count, sizeof *all);
    for (int i = 0; i < count; i++) all[i].number = i;
    int status = 2;
    if (!strcmp(name, "own")) status = own(size, argc > 4);
    if (!strcmp(name, "copied")) status = copied();
    if (!strcmp(name, "pool")) status = pool(size);
    if (!strcmp(name, "contexts")) status = contexts(size);
    if (!strcmp(name, "shared")) status = shared();
    if (!strcmp(name, "masks")) status = masks(size);
    if (!strcmp(name, "hidden")) status = hidden(size);
    if (!strcmp(name, "reused")) status = reused(size);
    if (!strcmp(name, "repeated")) status = repeated(size);
    if (!strcmp(name, "links")) status = links();
    if (!strcmp(name, "altstacks")) status = altstacks(size);
    if (!strcmp(name, "jumps")) status = thrown(0);
    if (!strcmp(name, "own_jumps")) status = thrown(1);
    if (!strcmp(name, "deep")) status = deeps();
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long most = 0;
    while (file && fgets(line, sizeof line, file)) sscanf(line, "VmHWM: %ld", &most);
    printf("memory %ld\n", most);
    return status;
}
