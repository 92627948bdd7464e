// Functions whose first instructions hold a call, which looks at its return address and at all registers, looks up the stack,
// and throws. It prints what it has found out, which is the same whether it is traced or not.
//
// Usage: trace-opens ROUNDS
#include <cstdio>
#include <cstdlib>
#include <unwind.h>

extern "C" {
struct Seen {
    unsigned long rax, r10, r11, back;
} seen;
int work;
void (*pointer)();
void looks();
void calls(void (*function)());
void visit();
extern char after_by_none[], after_by_one[], after_by_two[], after_by_four[], after_by_pointer[];
void by_none(), by_one(), by_two(), by_four(), by_pointer();
int by_catch();
}

#define OPENS(name, push, size, call, pop)                                                                             \
    ".globl " #name "\n"                                                                                               \
    ".type " #name ", @function\n" #name ": .cfi_startproc\n" push "\n"                                                \
    "  .cfi_adjust_cfa_offset " #size "\n"                                                                             \
    "  " call "\n"                                                                                                     \
    "after_" #name ":\n"                                                                                               \
    "  " pop "\n"                                                                                                      \
    "  .cfi_adjust_cfa_offset -" #size "\n"                                                                            \
    "  ret\n"                                                                                                          \
    "  .cfi_endproc\n"                                                                                                 \
    "  .size " #name ", . - " #name "\n"                                                                               \
    "  .balign 16, 0xcc\n"

__asm__(".text\n" OPENS(by_none, "", 0, "call looks_lower", "nop") //
        OPENS(by_one, "push %rax", 8, "call looks", "pop %rcx")    //
        OPENS(by_two, "push %r12", 8, "call looks", "pop %r12")    //
        OPENS(by_four, "sub $8, %rsp", 8, "call looks", "add $8, %rsp")
        OPENS(by_pointer, "push %rax", 8, "call *pointer(%rip)", "pop %rcx")
        // Calls a function with known registers.
        ".globl calls\n"
        ".type calls, @function\n"
        "calls: .cfi_startproc\n"
        "  sub $8, %rsp\n"
        "  .cfi_adjust_cfa_offset 8\n"
        "  mov $0x1111, %eax\n"
        "  mov $0x2222, %r10d\n"
        "  mov $0x3333, %r11d\n"
        "  call *%rdi\n"
        "  add $8, %rsp\n"
        "  .cfi_adjust_cfa_offset -8\n"
        "  ret\n"
        "  .cfi_endproc\n"
        "  .size calls, . - calls\n"
        ".type looks, @function\n"
        "looks: .cfi_startproc\n"
        "  mov %rax, seen(%rip)\n"
        "  mov %r10, 8 + seen(%rip)\n"
        "  mov %r11, 16 + seen(%rip)\n"
        "  mov (%rsp), %rdx\n"
        "  mov %rdx, 24 + seen(%rip)\n"
        "  jmp visit\n"
        "  .cfi_endproc\n"
        "  .size looks, . - looks\n"
        // The stack is aligned as it is.
        ".type looks_lower, @function\n"
        "looks_lower: .cfi_startproc\n"
        "  mov %rax, seen(%rip)\n"
        "  mov %r10, 8 + seen(%rip)\n"
        "  mov %r11, 16 + seen(%rip)\n"
        "  mov (%rsp), %rdx\n"
        "  mov %rdx, 24 + seen(%rip)\n"
        "  call visit\n"
        "  ret\n"
        "  .cfi_endproc\n"
        "  .size looks_lower, . - looks_lower\n");

static int frames, known;

static _Unwind_Reason_Code frame(_Unwind_Context *context, void *) {
    frames++;
    known += _Unwind_GetIP(context) == seen.back;
    return _URC_NO_REASON;
}

void visit() {
    if (work == 1) _Unwind_Backtrace(frame, nullptr);
    if (work == 2) throw 7;
}

__attribute__((noinline)) int by_catch() {
    try {
        looks();
    } catch (int number) {
        return number;
    }
    return 0;
}

static void uses(const char *name, void (*function)(), const char *after) {
    bool same = true;
    for (work = 0; work < 3; work++) {
        seen = {};
        frames = known = 0;
        int caught = 0;
        try {
            calls(function);
        } catch (int number) {
            caught = number;
        }
        bool registers = seen.rax == 0x1111 && seen.r10 == 0x2222 && seen.r11 == 0x3333;
        bool stack = work != 1 || (frames > 4 && known == 1);
        same = same && registers && stack && seen.back == (unsigned long)after && caught == (work == 2 ? 7 : 0);
    }
    printf("%s: %s\n", name, same ? "as it is" : "CHANGED");
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 1;
    pointer = looks;
    for (int round = 0; round < rounds; round++) {
        uses("none", by_none, after_by_none);
        uses("one", by_one, after_by_one);
        uses("two", by_two, after_by_two);
        uses("four", by_four, after_by_four);
        uses("pointer", by_pointer, after_by_pointer);
        work = 2;
        printf("caught: %d\n", by_catch());
    }
    return 0;
}
