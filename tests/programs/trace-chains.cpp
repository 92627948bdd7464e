// Follows its own frame pointers, as kernels do for call chains, in all kinds of calls, and prints which functions it finds;
// build with frame pointers. What it prints is the same whether it is traced or not.
//
// Usage: trace-chains [ROUNDS]: with ROUNDS, it computes for so long below known chains instead, and prints nothing.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define TRACED extern "C" __attribute__((noinline))
extern "C" char __executable_start, etext;

struct Frame {
    Frame *caller;
    uintptr_t returns_to;
};
struct Function {
    uintptr_t start;
    const char *name;
    bool is_last;
};
extern Function functions[];
static volatile unsigned long sum;

// Prints the chain of callers, as far as they belong to the program.
TRACED void show(const char *what) {
    printf("%s:", what);
    Frame *frame = (Frame *)__builtin_frame_address(0);
    for (int depth = 0; frame && depth < 100; depth++, frame = frame->caller) {
        uintptr_t at = frame->returns_to;
        if (at < (uintptr_t)&__executable_start || at >= (uintptr_t)&etext) continue;
        const Function *best = nullptr;
        for (Function *f = functions; f->name; f++)
            if (f->start < at && (!best || f->start > best->start)) best = f;
        printf(" %s", best ? best->name : "?");
        if (best && best->is_last) break;
    }
    printf("\n");
    fflush(stdout);
}

TRACED void inner() {
    show("inner");
    sum++;
}
TRACED void outer(int depth) {
    if (depth > 0) outer(depth - 1);
    inner();
    sum++;
}

// Functions that end in jumps to others.
TRACED int tail_third(int n) {
    show("tail");
    return n + 1;
}
TRACED int tail_second(int n) { return tail_third(n + 1); }
TRACED int tail_first(int n) { return tail_second(n + 1); }
TRACED void tails() { sum += tail_first(1); }

struct Shows {
    ~Shows() { show("destructor"); }
};
TRACED void throws(int depth) {
    Shows shows;
    if (depth == 0) throw 1;
    throws(depth - 1);
    sum++;
}
TRACED void catches(int depth) {
    try {
        throws(depth);
    } catch (int) {
        show("caught");
        inner();
    }
    if (depth > 0) catches(depth - 1);
    show("after catching");
}

static jmp_buf target;
TRACED void jumps(int depth) {
    if (depth == 0) longjmp(target, 1);
    jumps(depth - 1);
    sum++;
}
TRACED void lands() {
    if (setjmp(target) == 0) jumps(4);
    show("landed");
    inner();
}

TRACED void handler(int) {
    show("handler");
    inner();
}
TRACED void is_interrupted() {
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_kill), "D"(getpid()), "S"(SIGUSR1)
                     : "rcx", "r11", "memory");
    sum += result;
}
TRACED void interrupted() {
    static char stack[1 << 16];
    for (int alternate = 0; alternate < 2; alternate++) {
        stack_t own = {};
        own.ss_sp = stack;
        own.ss_size = sizeof stack;
        sigaltstack(&own, nullptr);
        struct sigaction action = {};
        action.sa_handler = handler;
        action.sa_flags = alternate ? SA_ONSTACK : 0;
        sigaction(SIGUSR1, &action, nullptr);
        is_interrupted();
    }
}

// Coroutines: two in turns, resumed by two threads.
static ucontext_t resumer, contexts[2];
static char stacks[2][1 << 16];
TRACED void coroutine_inner(int which) {
    for (int i = 0; i < 4; i++) {
        swapcontext(&contexts[which], &resumer);
        show(which ? "second" : "first");
        inner();
    }
}
TRACED void coroutine(int which) {
    coroutine_inner(which);
    swapcontext(&contexts[which], &resumer);
}
TRACED void resume(int which) {
    swapcontext(&resumer, &contexts[which]);
    show("resumer");
}
TRACED void *resumes(void *) {
    for (int which = 0; which < 2; which++) resume(which);
    inner();
    return nullptr;
}
TRACED void coroutines() {
    for (int which = 0; which < 2; which++) {
        getcontext(&contexts[which]);
        contexts[which].uc_stack.ss_sp = stacks[which];
        contexts[which].uc_stack.ss_size = sizeof stacks[which];
        makecontext(&contexts[which], (void (*)())coroutine, 1, which);
        resume(which);
    }
    for (int which = 0; which < 2; which++) resume(which);
    pthread_t thread;
    pthread_create(&thread, nullptr, resumes, nullptr);
    pthread_join(thread, nullptr);
    for (int which = 0; which < 2; which++) resume(which);
}

// Stacks that the program exchanges itself.
static void *resumer_stack, *own_stack;
static char own_memory[1 << 16];
extern "C" void switch_stacks(void **from, void *to);
__asm__(".text\n"
        ".globl switch_stacks\n"
        "switch_stacks:\n"
        "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
        "  mov %rsp, (%rdi)\n"
        "  mov %rsi, %rsp\n"
        "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
        "  ret\n");
TRACED void own_inner(int n) {
    switch_stacks(&own_stack, resumer_stack);
    show("own stack");
    inner();
    sum += n;
}
TRACED void own_outer(int n) {
    own_inner(n);
    sum++;
}
TRACED void own_coroutine() {
    for (int i = 0;; i++) own_outer(i);
}
TRACED void own_resume(int n) {
    switch_stacks(&resumer_stack, own_stack);
    inner();
    sum += n;
}
TRACED void own_stacks() {
    void **top = (void **)(own_memory + sizeof own_memory - 64);
    top[0] = (void *)own_coroutine;
    own_stack = top - 6;
    for (int i = 0; i < 4; i++) own_resume(i);
}

TRACED void *thread(void *) {
    outer(2);
    catches(1);
    return nullptr;
}

// For those who look from outside.
TRACED void work() {
    // Leaves have frame pointers only if they are asked for.
    __asm__ volatile("" : : "r"(__builtin_frame_address(0)));
    for (int i = 0; i < 20000; i++) sum += i;
}
TRACED void one() {
    work();
    sum++;
}
TRACED void other(int depth) {
    if (depth == 0) {
        work();
    } else {
        other(depth - 1);
    }
    sum++;
}
TRACED void *work_rounds(void *rounds) {
    for (long i = 0; i < (long)rounds; i++) {
        one();
        other(2);
    }
    sum++;
    return nullptr;
}

TRACED int main(int count, char **arguments) {
    if (count > 1) {
        void *rounds = (void *)atol(arguments[1]);
        pthread_t thread;
        pthread_create(&thread, nullptr, work_rounds, rounds);
        work_rounds(rounds);
        pthread_join(thread, nullptr);
        return 0;
    }
    outer(3);
    tails();
    catches(3);
    lands();
    interrupted();
    coroutines();
    own_stacks();
    pthread_t other_thread;
    pthread_create(&other_thread, nullptr, thread, nullptr);
    pthread_join(other_thread, nullptr);
    outer(1);
    return 0;
}

#define FUNCTION(name) {(uintptr_t)name, #name, false}
#define LAST(name) {(uintptr_t)name, #name, true}
Function functions[] = {
    FUNCTION(show), FUNCTION(inner), FUNCTION(outer), FUNCTION(tail_third), FUNCTION(tail_second),
    FUNCTION(tail_first), FUNCTION(tails), FUNCTION(throws), FUNCTION(catches), FUNCTION(jumps), FUNCTION(lands),
    FUNCTION(handler), FUNCTION(is_interrupted), FUNCTION(interrupted), FUNCTION(coroutine_inner), LAST(coroutine),
    FUNCTION(resume), LAST(resumes), FUNCTION(coroutines), FUNCTION(own_inner), FUNCTION(own_outer),
    LAST(own_coroutine), FUNCTION(own_resume), FUNCTION(own_stacks), LAST(thread), FUNCTION(work), FUNCTION(one),
    FUNCTION(other), LAST(work_rounds), LAST(main), {0, nullptr, false},
};
