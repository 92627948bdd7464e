// Executes trees of calls that are given as text, and keeps a log of what it does, so that a trace can be compared with it.
//
// Usage: trace-interpreter FILE [LOGS]; each line of the file is a tree. At the end the logs of all threads are written to standard
// output: a line `=PID TID`, then a line `+NAME DEPTH` for each function that began and `-NAME` for each that returned.
// With LOGS they are in that file as they come, for programs that are killed: each as two numbers of 32 bits, one of 64 (how
// long it is) and the text, 2^20 bytes apart; who has filled a log waits to be killed.
//
// Nothing is said of functions that are left otherwise. The depth counts the functions of the log alone; coroutines
// have stacks of their own, which begin with depth 0.
//
// A tree is a word, perhaps with a list of trees in parentheses, which `:` may divide into two:
//   f0( … ) to f63( … )  a function that does what is in its list; by number modulo 8 they differ in what compilers make of them
//   deep5( … )           so many calls of itself around the list
//   try( … : … )         catches what `throw` throws in the first list, and does the second then; tryb, throwb: another type
//   rethrow              in a second list: throws on what was caught
//   set( … )             a place that `jump` in it goes back to (longjmp); jump2: to the second innermost
//   sig( … ), alt( … )   in the handler of a signal that is raised here; alt: on an alternate stack
//   thread( … )          in a new thread, which is joined at the end of the tree; wait: joins those begun so far
//   exit, cancel         ends the thread, if it is such a one
//   co( … )              in a coroutine, until it ends or does `yield`; resume: the oldest one goes on
//   fork( … ), vfork( … ) in a child process
//   loop1000( … )        so often
#include <alloca.h>
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define HIDDEN __attribute__((no_instrument_function))
#define TRACED __attribute__((noinline))

struct Node {
    int op, number;
    Node *first, *second, *next;
};

// --- the logs: memory that forked children share
struct Log {
    int pid, tid;
    size_t size;
};
static const size_t log_room = 1 << 20, log_count = 2048;
static char *logs;
static volatile int *logs_used;
static thread_local Log *current_log;

HIDDEN static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    _exit(3);
}
static bool logs_are_kept;
HIDDEN static void begin_log() {
    int index = __sync_fetch_and_add(logs_used, 1);
    if (index >= (int)log_count) fail("too many logs");
    current_log = (Log *)(logs + index * log_room);
    current_log->pid = getpid();
    current_log->tid = (int)syscall(SYS_gettid);
}

struct Target;
// Where a thread or coroutine is.
struct Flow {
    int depth, tries, tries_b, catches, handlers, alternates;
    Target *target;
    bool can_rethrow, is_vfork;
};
static thread_local Flow flow;
struct Target {
    sigjmp_buf buffer;
    Flow flow;
};

static inline __attribute__((always_inline, no_instrument_function)) void say(char what, const char *name, int depth) {
    Log *log = current_log;
    if (log->size + 64 > log_room - sizeof(Log)) {
        while (logs_are_kept) pause();
        fail("a log is full");
    }
    char *text = (char *)(log + 1);
    size_t at = log->size;
    text[at++] = what;
    while (*name) text[at++] = *name++;
    if (what == '+') {
        text[at++] = ' ';
        for (int unit = depth >= 100 ? 100 : depth >= 10 ? 10 : 1; unit > 0; unit /= 10) text[at++] = '0' + depth / unit % 10;
    }
    text[at++] = '\n';
    log->size = at;
}
#define BEGIN                             \
    const volatile int here = flow.depth; \
    say('+', __func__, here);             \
    flow.depth = here + 1
#define END            \
    flow.depth = here; \
    say('-', __func__, 0)

static volatile long sink;
static void run(Node *list);

// --- functions of many kinds
extern "C" TRACED void drop(int n) {
    BEGIN;
    sink += n;
    END;
}
struct Guard {
    int depth;
    HIDDEN Guard() : depth(flow.depth) {}
    HIDDEN ~Guard() {
        flow.depth = depth;
        drop(depth);
    }
};
struct Large {
    long a, b, c;
};
#define KINDS(A, B, C, D, E, F, G, H)                                                                     \
    extern "C" TRACED void f##A(Node *n) {                                                                \
        BEGIN;                                                                                            \
        run(n->first);                                                                                    \
        END;                                                                                              \
    }                                                                                                     \
    extern "C" TRACED void f##B(Node *n) {                                                                \
        BEGIN;                                                                                            \
        volatile char frame[A * 40 + 1];                                                                  \
        frame[A] = 1;                                                                                     \
        run(n->first);                                                                                    \
        sink += frame[A];                                                                                 \
        END;                                                                                              \
    }                                                                                                     \
    extern "C" TRACED void f##C(Node *n) {                                                                \
        BEGIN;                                                                                            \
        {                                                                                                 \
            Guard guard;                                                                                  \
            run(n->first);                                                                                \
        }                                                                                                 \
        END;                                                                                              \
    }                                                                                                     \
    extern "C" TRACED long f##D(Node *n, int p, int q, int r, int s, int t, int u, int v, int w) {        \
        BEGIN;                                                                                            \
        run(n->first);                                                                                    \
        END;                                                                                              \
        return p + 2 * q + 3 * r + 4 * s + 5 * t + 6 * u + 7 * v + 8 * w;                                 \
    }                                                                                                     \
    extern "C" TRACED Large f##E(Node *n, double p, float q, __float128 r) {                              \
        BEGIN;                                                                                            \
        run(n->first);                                                                                    \
        END;                                                                                              \
        return Large{(long)p, (long)q, (long)r};                                                          \
    }                                                                                                     \
    extern "C" TRACED double f##F(Node *n, ...) {                                                         \
        BEGIN;                                                                                            \
        va_list list;                                                                                     \
        va_start(list, n);                                                                                \
        double value = va_arg(list, double);                                                              \
        value += va_arg(list, int);                                                                       \
        va_end(list);                                                                                     \
        run(n->first);                                                                                    \
        END;                                                                                              \
        return value;                                                                                     \
    }                                                                                                     \
    extern "C" TRACED void f##G(Node *n) {                                                                \
        BEGIN;                                                                                            \
        char *room = (char *)alloca(64 + (n->number & 63) * 16);                                          \
        room[5] = 1;                                                                                      \
        run(n->first);                                                                                    \
        sink += room[5];                                                                                  \
        END;                                                                                              \
    }                                                                                                     \
    extern "C" TRACED void f##H(Node *n) {                                                                \
        BEGIN;                                                                                            \
        run(n->first);                                                                                    \
        END;                                                                                              \
    }                                                                                                     \
    /* Ends in a jump to it, where the compiler makes tail calls. */                                      \
    static TRACED void hop##H(Node *n) { f##H(n); }                                                       \
    HIDDEN static void call##A(Node *n) {                                                                 \
        switch (n->number % 8) {                                                                          \
        case 0: return f##A(n);                                                                           \
        case 1: return f##B(n);                                                                           \
        case 2: return f##C(n);                                                                           \
        case 3:                                                                                           \
            if (f##D(n, 1, 2, 3, 4, 5, 6, 7, 8) != 204) fail("arguments on the stack");                   \
            return;                                                                                       \
        case 4: {                                                                                         \
            Large large = f##E(n, 7.5, 9.25f, 11);                                                        \
            if (large.a != 7 || large.b != 9 || large.c != 11) fail("arguments in vector registers");     \
            return;                                                                                       \
        }                                                                                                 \
        case 5:                                                                                           \
            if (f##F(n, 2.5, 4) != 6.5) fail("variable arguments");                                       \
            return;                                                                                       \
        case 6: return f##G(n);                                                                           \
        default: return hop##H(n);                                                                        \
        }                                                                                                 \
    }
KINDS(0, 1, 2, 3, 4, 5, 6, 7)
KINDS(8, 9, 10, 11, 12, 13, 14, 15)
KINDS(16, 17, 18, 19, 20, 21, 22, 23)
KINDS(24, 25, 26, 27, 28, 29, 30, 31)
KINDS(32, 33, 34, 35, 36, 37, 38, 39)
KINDS(40, 41, 42, 43, 44, 45, 46, 47)
KINDS(48, 49, 50, 51, 52, 53, 54, 55)
KINDS(56, 57, 58, 59, 60, 61, 62, 63)
static void (*const calls[])(Node *) = {call0, call8, call16, call24, call32, call40, call48, call56};

extern "C" TRACED void deep(Node *n, int more) {
    BEGIN;
    if (more > 1)
        deep(n, more - 1);
    else
        run(n->first);
    sink++;
    END;
}

// --- exceptions
struct ThrownA {
    long value;
};
struct ThrownB {
    char text[100];
};
extern "C" TRACED void thrower(int which) {
    BEGIN;
    if (which == 1) throw ThrownA{1};
    throw ThrownB{};
    END;
}
extern "C" TRACED void rethrower() {
    BEGIN;
    throw;
    END;
}
extern "C" TRACED void catcher(Node *n) {
    BEGIN;
    Flow before = flow;
    flow.tries++;
    try {
        run(n->first);
        flow = before;
    } catch (const ThrownA &) {
        flow = before;
        flow.catches++;
        // What is thrown on leaves this function, and somebody must be there.
        flow.can_rethrow = before.tries > 0;
        run(n->second);
        flow = before;
    }
    END;
}
extern "C" TRACED void catcher_b(Node *n) {
    BEGIN;
    Flow before = flow;
    flow.tries_b++;
    try {
        Guard guard;
        run(n->first);
        flow = before;
    } catch (const ThrownB &) {
        flow = before;
        flow.catches++;
        flow.can_rethrow = before.tries_b > 0;
        run(n->second);
        flow = before;
    }
    END;
}

// --- jumps
extern "C" TRACED void setter(Node *n) {
    BEGIN;
    Target target;
    target.flow = flow;
    Target *volatile outer = flow.target;
    if (sigsetjmp(target.buffer, n->number % 2) == 0) {
        flow.target = &target;
        run(n->first);
    }
    flow.target = outer;
    END;
}
static thread_local int alternates;
// A catch was left by a jump: for the language it goes on.
static thread_local bool catches_are_stale;
extern "C" TRACED void jumper(int which) {
    BEGIN;
    Target *target = flow.target;
    if (which == 2) target = target->flow.target;
    alternates -= flow.alternates - target->flow.alternates;
    if (flow.catches != target->flow.catches) catches_are_stale = true;
    flow = target->flow;
    siglongjmp(target->buffer, 1);
    END;
}

// --- signals
static thread_local Node *pending;
extern "C" TRACED void handler(int signal) {
    Flow before = flow;
    BEGIN;
    // Exceptions are not for handlers.
    flow.tries = flow.tries_b = 0;
    flow.can_rethrow = false;
    flow.handlers++;
    if (signal == SIGUSR2) {
        flow.alternates++;
        alternates++;
    }
    run(pending->first);
    if (signal == SIGUSR2) alternates--;
    flow = before;
    END;
}
HIDDEN static void give_alternate_stack() {
    stack_t stack = {};
    stack.ss_size = 1 << 18;
    stack.ss_sp = mmap(nullptr, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaltstack(&stack, nullptr);
}

// --- threads
struct Thread {
    pthread_t id;
    Node *work;
    Thread *next;
};
static thread_local Thread *threads;
static thread_local bool is_thread;
HIDDEN static void wait_for_threads() {
    while (threads) {
        Thread *thread = threads;
        threads = thread->next;
        pthread_join(thread->id, nullptr);
    }
}
struct JoinsAtEnd {
    HIDDEN ~JoinsAtEnd() { wait_for_threads(); }
};
extern "C" TRACED void *thread_main(void *argument) {
    is_thread = true;
    begin_log();
    give_alternate_stack();
    JoinsAtEnd joins;
    BEGIN;
    run(((Thread *)argument)->work);
    END;
    return nullptr;
}
extern "C" TRACED void leaver(int how) {
    BEGIN;
    if (how == 1) pthread_exit(nullptr);
    pthread_cancel(pthread_self());
    pthread_testcancel();
    END;
}
HIDDEN static void start_thread(Node *n) {
    Thread *thread = (Thread *)calloc(1, sizeof(Thread));
    thread->work = n->first;
    if (pthread_create(&thread->id, nullptr, thread_main, thread)) fail("no thread");
    thread->next = threads;
    threads = thread;
}

// --- coroutines
struct Coroutine {
    ucontext_t here, resumer;
    Node *body;
    bool running, done;
    Coroutine *next;
    char stack[1 << 17];
};
static thread_local Coroutine *coroutines, *current, *unused;
extern "C" TRACED void coroutine_main() {
    BEGIN;
    run(current->body);
    END;
    current->done = true;
}
extern "C" TRACED void resumer(Coroutine *coroutine) {
    BEGIN;
    Flow before = flow;
    Coroutine *outer = current;
    current = coroutine;
    coroutine->running = true;
    flow = Flow{};
    swapcontext(&coroutine->resumer, &coroutine->here);
    coroutine->running = false;
    current = outer;
    flow = before;
    END;
}
extern "C" TRACED void yielder() {
    BEGIN;
    Flow before = flow;
    Coroutine *coroutine = current;
    swapcontext(&coroutine->here, &coroutine->resumer);
    flow = before;
    END;
}
HIDDEN static void forget(Coroutine *coroutine) {
    for (Coroutine **link = &coroutines; *link; link = &(*link)->next) {
        if (*link == coroutine) {
            *link = coroutine->next;
            coroutine->next = unused;
            unused = coroutine;
            return;
        }
    }
}
HIDDEN static void resume(Coroutine *coroutine) {
    resumer(coroutine);
    if (coroutine->done) forget(coroutine);
}
HIDDEN static void start_coroutine(Node *n) {
    Coroutine *coroutine = unused;
    if (coroutine)
        unused = coroutine->next;
    else
        coroutine = (Coroutine *)malloc(sizeof(Coroutine));
    coroutine->done = coroutine->running = false;
    coroutine->body = n->first;
    getcontext(&coroutine->here);
    coroutine->here.uc_stack.ss_sp = coroutine->stack;
    coroutine->here.uc_stack.ss_size = sizeof coroutine->stack;
    coroutine->here.uc_link = &coroutine->resumer;
    makecontext(&coroutine->here, coroutine_main, 0);
    Coroutine **link = &coroutines;
    while (*link) link = &(*link)->next;
    coroutine->next = nullptr;
    *link = coroutine;
    resume(coroutine);
}

// --- processes
extern "C" TRACED void forker(Node *n) {
    BEGIN;
    pid_t child = fork();
    if (child == 0) {
        begin_log();
        flow.tries = flow.tries_b = 0;
        flow.can_rethrow = false;
        flow.target = nullptr;
        coroutines = nullptr;
        current = nullptr;
        threads = nullptr;
        is_thread = false;
        run(n->first);
        wait_for_threads();
        _exit(0);
    }
    int status = 1;
    if (waitpid(child, &status, 0) != child || status != 0) fail("a child failed");
    END;
}
extern "C" TRACED void vforker(Node *n) {
    BEGIN;
    Flow before = flow;
    pid_t child = vfork();
    if (child == 0) {
        flow.tries = flow.tries_b = 0;
        flow.can_rethrow = false;
        flow.target = nullptr;
        flow.is_vfork = true;
        run(n->first);
        _exit(0);
    }
    flow = before;
    int status = 1;
    if (waitpid(child, &status, 0) != child || status != 0) fail("a child failed");
    END;
}

// --- the interpreter
enum { CALL, DEEP, TRY, TRYB, THROW, THROWB, RETHROW, SET, JUMP, SIG, ALT, THREAD, WAIT, EXIT, CANCEL, CO, YIELD, RESUME, FORK, VFORK, LOOP };
static const char *const words[] = {"f",   "deep", "try",    "tryb", "throw", "throwb", "rethrow", "set", "jump", "sig",
                                    "alt", "thread", "wait", "exit", "cancel", "co", "yield", "resume", "fork", "vfork", "loop"};

HIDDEN static void raise_here(Node *n, int signal) {
    Node *before = pending;
    pending = n;
    pthread_kill(pthread_self(), signal);
    pending = before;
}
HIDDEN __attribute__((noinline)) static void run(Node *list) {
    for (Node *n = list; n; n = n->next) {
        // The child shares its parent's memory, but is none of its threads.
        if (flow.is_vfork && n->op >= SIG && n->op != LOOP) continue;
        switch (n->op) {
        case CALL: calls[n->number / 8 % 8](n); break;
        case DEEP: deep(n, n->number + 1); break;
        case TRY: catcher(n); break;
        case TRYB: catcher_b(n); break;
        case THROW:
            if (flow.tries) thrower(1);
            break;
        case THROWB:
            if (flow.tries_b) thrower(2);
            break;
        case RETHROW:
            if (flow.can_rethrow && !catches_are_stale) rethrower();
            break;
        case SET: setter(n); break;
        case JUMP:
            if (flow.target && (n->number != 2 || flow.target->flow.target)) jumper(n->number);
            break;
        case SIG: raise_here(n, SIGUSR1); break;
        case ALT: raise_here(n, alternates ? SIGUSR1 : SIGUSR2); break;
        case THREAD: start_thread(n); break;
        case WAIT: wait_for_threads(); break;
        case EXIT:
        case CANCEL:
            if (is_thread && !current && !flow.handlers) leaver(n->op == EXIT);
            break;
        case CO: start_coroutine(n); break;
        case YIELD:
            if (current && !alternates && !flow.catches) yielder();
            break;
        case RESUME:
            for (Coroutine *coroutine = coroutines; coroutine; coroutine = coroutine->next) {
                if (!coroutine->running) {
                    resume(coroutine);
                    break;
                }
            }
            break;
        case FORK: forker(n); break;
        case VFORK: vforker(n); break;
        case LOOP:
            for (volatile int i = 0; i < n->number; i++) run(n->first);
            break;
        }
    }
}

HIDDEN static Node *parse_list(const char *&text);
HIDDEN static Node *parse(const char *&text) {
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz");
    Node *n = (Node *)calloc(1, sizeof(Node));
    n->op = -1;
    for (int op = 0; op < (int)(sizeof words / sizeof *words); op++) {
        if (strlen(words[op]) == length && strncmp(words[op], text, length) == 0) n->op = op;
    }
    if (n->op < 0) fail("an unknown word");
    char *end;
    n->number = (int)strtol(text + length, &end, 10);
    text = end;
    if (*text == '(') {
        text++;
        n->first = parse_list(text);
        if (*text == ':') {
            text++;
            n->second = parse_list(text);
        }
        if (*text++ != ')') fail("no parenthesis");
    }
    return n;
}
HIDDEN static Node *parse_list(const char *&text) {
    Node *first = nullptr, **link = &first;
    for (;;) {
        text += strspn(text, " ");
        if (*text == ')' || *text == ':' || *text == '\n' || *text == 0) return first;
        *link = parse(text);
        link = &(*link)->next;
    }
}

extern "C" TRACED void tree(Node *list) {
    BEGIN;
    run(list);
    END;
}

HIDDEN int main(int count, char **arguments) {
    FILE *file = count > 1 ? fopen(arguments[1], "r") : nullptr;
    if (!file) return 2;
    size_t size = log_room * log_count;
    logs_are_kept = count > 2;
    int kept = logs_are_kept ? open(arguments[2], O_RDWR | O_CREAT | O_TRUNC, 0600) : -1;
    if (logs_are_kept && (kept < 0 || ftruncate(kept, size + 4096))) fail("no file for logs");
    int kind = MAP_SHARED | MAP_NORESERVE | (logs_are_kept ? 0 : MAP_ANONYMOUS);
    logs = (char *)mmap(nullptr, size + 4096, PROT_READ | PROT_WRITE, kind, kept, 0);
    if (logs == MAP_FAILED) fail("no memory for logs");
    logs_used = (int *)(logs + size);
    begin_log();
    give_alternate_stack();
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGUSR1, &action, nullptr);
    action.sa_flags = SA_NODEFER | SA_ONSTACK;
    sigaction(SIGUSR2, &action, nullptr);
    static char line[1 << 16];
    while (fgets(line, sizeof line, file)) {
        const char *text = line;
        Node *list = parse_list(text);
        flow = Flow{};
        catches_are_stale = false;
        tree(list);
        wait_for_threads();
        // What yielded and was never resumed is left as it is; its stack is used again.
        while (coroutines) {
            Coroutine *coroutine = coroutines;
            forget(coroutine);
        }
    }
    for (int at = 0; at < *logs_used; at++) {
        Log *log = (Log *)(logs + at * log_room);
        printf("=%d %d\n", log->pid, log->tid);
        fwrite(log + 1, 1, log->size, stdout);
    }
    return 0;
}
