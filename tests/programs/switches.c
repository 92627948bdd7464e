// Switches whose cases tell where they are: each writes its function, its value and its own address (as a
// distance from where that is written) into the section `cases`. Needs no library, so that it can be built for
// other machines.

#define CASE(FUNCTION, VALUE)                                                                                  \
    case VALUE:                                                                                                \
        __asm__ volatile("1: nop\n.pushsection cases,\"a\"\n.long " #FUNCTION "\n.long " #VALUE                \
                         "\n.long 1b - .\n.popsection" ::: "memory");                                          \
        sink = x * (VALUE + 3);                                                                                \
        break;

volatile int sink;

struct node {
    long weight;
    unsigned char kind;
    short other;
};

__attribute__((noinline)) void dense(unsigned value, int x) {
    switch (value) {
        CASE(0, 0) CASE(0, 1) CASE(0, 2) CASE(0, 3) CASE(0, 4) CASE(0, 5) CASE(0, 6) CASE(0, 7) CASE(0, 8) CASE(0, 9)
    default: sink = x;
    }
}

__attribute__((noinline)) void shifted(int value, int x) {
    switch (value) {
        CASE(1, 100) CASE(1, 101) CASE(1, 102) CASE(1, 103) CASE(1, 104) CASE(1, 105) CASE(1, 106) CASE(1, 107)
        CASE(1, 108) CASE(1, 109) CASE(1, 110) CASE(1, 111) CASE(1, 112)
    default: sink = x;
    }
}

__attribute__((noinline)) void masked(unsigned value, int x) {
    switch (value & 7) {
        CASE(2, 0) CASE(2, 1) CASE(2, 2) CASE(2, 3) CASE(2, 4) CASE(2, 5) CASE(2, 6) CASE(2, 7)
    }
}

__attribute__((noinline)) int interpret(const unsigned char *code, int x) {
    for (;;) {
        switch (*code++) {
            CASE(3, 0) CASE(3, 1) CASE(3, 2) CASE(3, 3) CASE(3, 4) CASE(3, 5) CASE(3, 6) CASE(3, 7) CASE(3, 8)
            CASE(3, 9) CASE(3, 10)
        case 11: return x;
        default: x ^= code[0];
        }
        x += sink;
    }
}

__attribute__((noinline)) void holes(long value, int x) {
    switch (value) {
        CASE(4, 0) CASE(4, 1) CASE(4, 2) CASE(4, 5) CASE(4, 6) CASE(4, 9) CASE(4, 12) CASE(4, 13)
    default: sink = x;
    }
}

__attribute__((noinline)) void member(const struct node *node, int x) {
    switch (node->kind) {
        CASE(5, 3) CASE(5, 4) CASE(5, 5) CASE(5, 6) CASE(5, 7) CASE(5, 8) CASE(5, 9) CASE(5, 10)
    default: sink = x;
    }
}

__attribute__((noinline)) void twice(unsigned value, int x) {
    switch (value) {
        CASE(6, 0) CASE(6, 1) CASE(6, 2) CASE(6, 3) CASE(6, 4) CASE(6, 5) CASE(6, 6)
    default: sink = x;
    }
    switch (sink) {
        CASE(6, 20) CASE(6, 21) CASE(6, 22) CASE(6, 23) CASE(6, 24) CASE(6, 25) CASE(6, 26)
    default: sink = x + 1;
    }
}

void _start(void) {
    struct node node = {1, 4, 2};
    unsigned char code[] = {1, 2, 3, 11};
    dense(sink, 1);
    shifted(sink, 2);
    masked(sink, 3);
    interpret(code, 4);
    holes(sink, 5);
    member(&node, 6);
    twice(sink, 7);
    for (;;)
        ;
}
