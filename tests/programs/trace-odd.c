// Functions that can't be patched as others are, each in its own way; build with -O2. It prints what it has found out,
// which is the same whether it is traced or not.
//
// Usage: trace-odd ROUNDS
#include <stdio.h>
#include <stdlib.h>

#define TRACED __attribute__((noinline, noclone))

// Called only from `asks`: is that where it returns to?
TRACED char *looks(int n) {
    __asm__ volatile("" : : "r"(n));
    return __builtin_return_address(0);
}
TRACED int asks(int n) {
    long distance = looks(n) - (char *)asks;
    return distance > 0 && distance < 200;
}

// The same of its caller's frame.
TRACED char *looks_up(int n) {
    __asm__ volatile("" : : "r"(n));
    return __builtin_frame_address(1);
}
TRACED int asks_up(int n) { return looks_up(n) == (char *)__builtin_frame_address(0); }

// Its own address is in its first instructions.
TRACED int names_itself(int (*callback)(void *), int n);
__asm__(".text\n"
        ".globl names_itself\n"
        ".type names_itself, @function\n"
        "names_itself: .cfi_startproc\n"
        "  lea names_itself(%rip), %rax\n"
        "  cmp %rdi, %rax\n"
        "  sete %al\n"
        "  movzbl %al, %eax\n"
        "  ret\n"
        "  .cfi_endproc\n"
        "  .size names_itself, . - names_itself\n"
        // Its first instruction is that of a loop.
        ".globl loops\n"
        ".type loops, @function\n"
        "loops: .cfi_startproc\n"
        "  add $1, %rsi\n"
        "  dec %rdi\n"
        "  jnz loops\n"
        "  mov %rsi, %rax\n"
        "  ret\n"
        "  .cfi_endproc\n"
        "  .size loops, . - loops\n"
        // The next one jumps to its second instruction.
        ".globl entered\n"
        ".type entered, @function\n"
        "entered: .cfi_startproc\n"
        "  mov %rdi, %rax\n"
        "entered_inside:\n"
        "  lea 1(%rax), %rax\n"
        "  nop\n"
        "  ret\n"
        "  .cfi_endproc\n"
        "  .size entered, . - entered\n"
        ".globl enters\n"
        ".type enters, @function\n"
        "enters: .cfi_startproc\n"
        "  mov %rdi, %rax\n"
        "  add $10, %rax\n"
        "  jmp entered_inside\n"
        "  .cfi_endproc\n"
        "  .size enters, . - enters\n"
        // A case of a switch is its first instruction: 0 times 4 is added to the table's address.
        ".globl switches\n"
        ".type switches, @function\n"
        "switches: .cfi_startproc\n"
        "  lea cases(%rip), %rdx\n"
        "  dec %rdi\n"
        "  xor %eax, %eax\n"
        "  test %rdi, %rdi\n"
        "  sete %al\n"
        "  movslq (%rdx,%rax,4), %rax\n"
        "  add %rdx, %rax\n"
        "  jmp *%rax\n"
        "switched:\n"
        "  mov $42, %eax\n"
        "  ret\n"
        "  .cfi_endproc\n"
        "  .size switches, . - switches\n"
        // Its argument and its result are in the frame pointer.
        ".globl takes\n"
        ".type takes, @function\n"
        "takes: .cfi_startproc\n"
        "  lea 1(%rbp), %rax\n"
        "  lea 2(%rax), %rbp\n"
        "  ret\n"
        "  .cfi_endproc\n"
        "  .size takes, . - takes\n"
        // These leave that to it.
        ".globl passes\n"
        ".type passes, @function\n"
        "passes: .cfi_startproc\n"
        "  lea 1(%rdi), %rax\n"
        "  nopl 0(%rax)\n"
        "  jmp takes\n"
        "  .cfi_endproc\n"
        "  .size passes, . - passes\n"
        ".globl passes_on\n"
        ".type passes_on, @function\n"
        "passes_on: .cfi_startproc\n"
        "  sub $8, %rsp\n"
        "  .cfi_def_cfa_offset 16\n"
        "  call passes\n"
        "  add $8, %rsp\n"
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        "  .cfi_endproc\n"
        "  .size passes_on, . - passes_on\n"
        ".globl gives\n"
        ".type gives, @function\n"
        "gives: .cfi_startproc\n"
        "  push %rbp\n"
        "  .cfi_def_cfa_offset 16\n"
        "  .cfi_offset %rbp, -16\n"
        "  mov %rdi, %rbp\n"
        "  call passes_on\n"
        "  mov %rbp, %rax\n"
        "  pop %rbp\n"
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        "  .cfi_endproc\n"
        "  .size gives, . - gives\n"
        // It uses the frame pointer in front of where it saves it, but later.
        ".globl keeps\n"
        ".type keeps, @function\n"
        "keeps: .cfi_startproc\n"
        "  mov %rdi, %rax\n"
        "  jmp keeps_begins\n"
        "keeps_ends: .cfi_def_cfa_offset 16\n"
        "  .cfi_offset %rbp, -16\n"
        "  add %rbp, %rax\n"
        "  pop %rbp\n"
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        "keeps_begins:\n"
        "  push %rbp\n"
        "  .cfi_def_cfa_offset 16\n"
        "  mov %rdi, %rbp\n"
        "  jmp keeps_ends\n"
        "  .cfi_endproc\n"
        "  .size keeps, . - keeps\n"
        ".section .rodata\n"
        "cases: .long switches - cases, switched - cases\n"
        ".text\n"
        // No table says where its frame is.
        ".globl undescribed\n"
        ".type undescribed, @function\n"
        "undescribed:\n"
        "  push %rbx\n"
        "  lea 3(%rdi), %rax\n"
        "  pop %rbx\n"
        "  ret\n"
        "  .size undescribed, . - undescribed\n");
long loops(long rounds, long from);
long entered(long n);
long enters(long n);
long switches(long rounds);
long undescribed(long n);
long gives(long n);
long keeps(long n);

TRACED long ordinary(long n) {
    return loops(3, n) + entered(n) + enters(n) + switches(4) + undescribed(n) + gives(n) + keeps(n);
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 5;
    long asked = 0, named = 0, sum = 0;
    for (int i = 0; i < rounds; i++) {
        asked += asks(i) && asks_up(i);
        named += names_itself((int (*)(void *))names_itself, i);
        sum += ordinary(i);
    }
    printf("%ld %ld %ld\n", asked, named, sum);
}
