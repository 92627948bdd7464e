// Hard control flow. Every function that is to be traced says so in a log of its own, so that a trace can be compared with
// what has really happened: "+name" when it begins, "-name" when it returns, and nothing when it is left otherwise.
//
// Usage: trace-hard CASE [FILE for the log]
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define HIDDEN __attribute__((no_instrument_function))
#define TRACED __attribute__((noinline))

// The log is memory that a forked child has a copy of. Threads write lines of their own.
static char log_text[1 << 22];
static size_t log_size;

static inline __attribute__((always_inline, no_instrument_function)) void say(char what, const char *name, size_t size) {
    size_t at = __atomic_fetch_add(&log_size, size + 1, __ATOMIC_RELAXED);
    log_text[at++] = what;
    while (*name) log_text[at++] = *name++;
    log_text[at++] = '\n';
}
#define BEGIN say('+', __func__, sizeof __func__)
#define END say('-', __func__, sizeof __func__)

static volatile int sink;

TRACED int leaf(int n) {
    BEGIN;
    sink += n;
    END;
    return n + 1;
}

// --- exceptions, with destructors that call traced functions while the stack is unwound
struct Guard {
    int n;
    ~Guard() { leaf(n); }
};
TRACED void thrower(int n) {
    BEGIN;
    leaf(n);
    throw std::runtime_error("thrown");
}
TRACED void between(int n) {
    BEGIN;
    Guard guard{n};
    thrower(n);
    END;
}
TRACED int catcher(int n) {
    BEGIN;
    int result = 0;
    try {
        Guard guard{n};
        between(n);
    } catch (const std::exception &) {
        result = leaf(n);
    }
    END;
    return result;
}
TRACED int rethrower(int n) {
    BEGIN;
    try {
        between(n);
    } catch (...) {
        leaf(n);
        throw;
    }
    END;
    return 0;
}
TRACED int exceptions(int n) {
    BEGIN;
    for (int i = 0; i < n; i++) {
        catcher(i);
        try {
            rethrower(i);
        } catch (const std::runtime_error &) {
            leaf(i);
        }
    }
    END;
    return 0;
}

// --- longjmp
static thread_local jmp_buf target;
TRACED void jumper(int n) {
    BEGIN;
    if (n == 0) longjmp(target, 1);
    jumper(n - 1);
    leaf(n);
    END;
}
TRACED int jumps(int n) {
    BEGIN;
    for (volatile int i = 0; i < n; i++) {
        if (setjmp(target) == 0) jumper(i % 5);
        leaf(i);
    }
    END;
    return 0;
}

// --- frames that grow while the function runs, by more or less than is searched for the return address
TRACED int grower(int n) {
    BEGIN;
    volatile char *room = (volatile char *)__builtin_alloca(16 + n % 3 * 1500);
    room[0] = 1;
    int result = n % 4 == 3 ? grower(n - 1) : leaf(n);
    sink += room[0];
    END;
    return result + room[0];
}
TRACED int grown(int n) {
    BEGIN;
    for (int i = 0; i < n; i++) {
        grower(i);
        leaf(i);
    }
    END;
    return 0;
}

// --- deep recursion
TRACED int deep(int n) {
    int result = n == 0 ? 0 : deep(n - 1) + 1;
    sink = result;
    return result;
}

// --- coroutines
static ucontext_t main_context, other_context;
alignas(16) static char coroutine_stack[256 * 1024];
TRACED void coroutine_step(int n) {
    BEGIN;
    leaf(n);
    swapcontext(&other_context, &main_context);
    leaf(n);
    END;
}
TRACED void coroutine() {
    BEGIN;
    for (int i = 0; i < 5; i++) coroutine_step(i);
    END;
}
TRACED void resume(int n) {
    BEGIN;
    leaf(n);
    swapcontext(&main_context, &other_context);
    leaf(n);
    END;
}
TRACED int coroutines(int n) {
    BEGIN;
    for (int round = 0; round < n; round++) {
        getcontext(&other_context);
        other_context.uc_stack.ss_sp = coroutine_stack;
        other_context.uc_stack.ss_size = sizeof coroutine_stack;
        other_context.uc_link = &main_context;
        makecontext(&other_context, coroutine, 0);
        for (int i = 0; i < 6; i++) resume(i);
    }
    END;
    return 0;
}

// --- signals
TRACED void handler(int) {
    BEGIN;
    leaf(1);
    END;
}
TRACED int signals(int n) {
    BEGIN;
    struct sigaction action = {};
    action.sa_handler = handler;
    static char stack[65536];
    stack_t alternate = {};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, nullptr);
    for (int i = 0; i < n; i++) {
        action.sa_flags = i % 2 ? SA_ONSTACK : 0;
        sigaction(SIGUSR1, &action, nullptr);
        raise(SIGUSR1);
        leaf(i);
    }
    END;
    return 0;
}

// --- handlers whose stack lies above that of the coroutine which they interrupt
TRACED void interrupted() {
    BEGIN;
    leaf(1);
    raise(SIGUSR1);
    leaf(2);
    END;
}
TRACED int above(int n) {
    BEGIN;
    stack_t alternate = {};
    alternate.ss_size = 65536;
    alternate.ss_sp = mmap(nullptr, alternate.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaltstack(&alternate, nullptr);
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, nullptr);
    for (int i = 0; i < n; i++) {
        getcontext(&other_context);
        other_context.uc_stack.ss_sp = coroutine_stack;
        other_context.uc_stack.ss_size = sizeof coroutine_stack;
        other_context.uc_link = &main_context;
        makecontext(&other_context, interrupted, 0);
        swapcontext(&main_context, &other_context);
        leaf(i);
    }
    END;
    return 0;
}

// --- fork
TRACED int child_work(int n) {
    BEGIN;
    leaf(n);
    END;
    return 0;
}
TRACED int forks(int n) {
    BEGIN;
    for (int i = 0; i < n; i++) {
        leaf(i);
        pid_t child = fork();
        if (child == 0) {
            child_work(i);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
    }
    END;
    return 0;
}

// --- threads that end in all ways
static void *returns(void *);
static void *exits(void *);
static void *is_cancelled(void *);
TRACED static void *returns(void *) {
    return (void *)(long)leaf(1);
}
TRACED void inner_exit(int n) {
    leaf(n);
    pthread_exit(nullptr);
}
TRACED static void *exits(void *) {
    inner_exit(2);
    return nullptr;
}
TRACED void wait_for_cancel() {
    for (;;) {
        usleep(1000);
        pthread_testcancel();
    }
}
TRACED static void *is_cancelled(void *) {
    wait_for_cancel();
    return nullptr;
}
TRACED int threads(int n) {
    for (int i = 0; i < n; i++) {
        void *(*kinds[])(void *) = {returns, exits, is_cancelled};
        pthread_t thread[3];
        for (int k = 0; k < 3; k++) pthread_create(&thread[k], nullptr, kinds[k], nullptr);
        pthread_cancel(thread[2]);
        for (int k = 0; k < 3; k++) pthread_join(thread[k], nullptr);
    }
    return 0;
}
// A thread ends by a system call, and a later one on its stack throws: where the first one's calls were are others, which return
// elsewhere.
static pthread_barrier_t both_here;
TRACED void ends_unnoticed(int n) {
    leaf(n);
    if (n == 0) syscall(SYS_exit, 0);
    throw std::runtime_error("on");
}
TRACED static void *caught(void *) {
    leaf(3);
    return nullptr;
}
TRACED static void *unnoticed(void *how) {
    if (!how) ends_unnoticed(0);
    try {
        ends_unnoticed(1);
    } catch (const std::runtime_error &) {
        caught(nullptr);
    }
    return nullptr;
}
TRACED static void *waits(void *) {
    leaf(2);
    pthread_barrier_wait(&both_here);
    pthread_barrier_wait(&both_here);
    return nullptr;
}
TRACED int unnoticed_ends(int n) {
    pthread_barrier_init(&both_here, nullptr, 2);
    for (int i = 0; i < n; i++) {
        pthread_t first, second, third;
        pthread_create(&first, nullptr, waits, nullptr);
        pthread_barrier_wait(&both_here);
        pthread_create(&second, nullptr, unnoticed, nullptr);
        pthread_barrier_wait(&both_here);
        pthread_join(first, nullptr);
        pthread_join(second, nullptr);
        pthread_create(&third, nullptr, unnoticed, &third);
        pthread_join(third, nullptr);
    }
    return 0;
}
static pthread_barrier_t all_here;
TRACED static void *meets(void *) {
    leaf(1);
    pthread_barrier_wait(&all_here);
    leaf(2);
    return nullptr;
}
TRACED int crowd(int n) {
    pthread_t *thread = new pthread_t[n];
    pthread_barrier_init(&all_here, nullptr, n);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 * 1024);
    for (int i = 0; i < n; i++) pthread_create(&thread[i], &attributes, meets, nullptr);
    for (int i = 0; i < n; i++) pthread_join(thread[i], nullptr);
    delete[] thread;
    return 0;
}

// --- coroutines whose switch is the program's own: nobody is told of it
extern "C" void switch_stacks(void **from, void *to);
__asm__(".text\n"
        ".globl switch_stacks\n"
        ".type switch_stacks, %function\n"
        "switch_stacks: .cfi_startproc\n"
#ifdef __aarch64__
        "  sub sp, sp, #160\n"
        "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n  stp x25, x26, [sp, #48]\n"
        "  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n"
        "  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n"
        "  str x9, [x0]\n"
        "  mov sp, x1\n"
        "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n  ldp x25, x26, [sp, #48]\n"
        "  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n"
        "  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n"
        "  ret\n"
#else
        "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
        "  mov %rsp, (%rdi)\n"
        "  mov %rsi, %rsp\n"
        "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
        "  ret\n"
#endif
        "  .cfi_endproc\n"
        "  .size switch_stacks, . - switch_stacks\n");
static void *resumer_stack, *own_stack;
TRACED void own_step(int n) {
    BEGIN;
    leaf(n);
    switch_stacks(&own_stack, resumer_stack);
    leaf(n);
    END;
}
TRACED void own_coroutine() {
    BEGIN;
    for (int i = 0;; i++) own_step(i);
}
TRACED void own_resume(int n) {
    BEGIN;
    leaf(n);
    switch_stacks(&resumer_stack, own_stack);
    leaf(n);
    END;
}
TRACED int own_coroutines(int n) {
    BEGIN;
    for (int round = 0; round < n; round++) {
        // Registers, and the address that is returned to, which is one on some machines.
        void **top = (void **)(coroutine_stack + sizeof coroutine_stack - 64);
#ifdef __aarch64__
        top[-9] = (void *)own_coroutine;
        own_stack = top - 20;
#else
        top[0] = (void *)own_coroutine;
        own_stack = top - 6;
#endif
        for (int i = 0; i < 6; i++) own_resume(i);
    }
    END;
    return 0;
}

// --- for SIGKILL from outside, and SIGSEGV from inside
TRACED int endless(int n) {
    for (;;) leaf(n);
}
TRACED int crash(int n) {
    BEGIN;
    leaf(n);
    *(volatile int *)nullptr = 1;
    END;
    return 0;
}

HIDDEN int main(int count, char **arguments) {
    const char *which = count > 1 ? arguments[1] : "";
    int n = count > 2 ? atoi(arguments[2]) : 3;
    struct {
        const char *name;
        int (*run)(int);
    } cases[] = {
        {"exceptions", exceptions}, {"jumps", jumps},     {"deep", deep},       {"coroutines", coroutines},
        {"signals", signals},       {"forks", forks},     {"threads", threads}, {"crowd", crowd},
        {"unnoticed_ends", unnoticed_ends}, {"own_coroutines", own_coroutines},
        {"endless", endless},       {"crash", crash},     {"grown", grown},
        {"above", above},
    };
    for (auto &one : cases) {
        if (strcmp(one.name, which) == 0) {
            one.run(n);
            fwrite(log_text, 1, log_size, stdout);
            return 0;
        }
    }
    return 2;
}
