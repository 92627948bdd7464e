// trace-written: a function lies in memory that is writable and executable, and main writes its first instruction anew before each
// of five calls, which return 0 to 4; another function is called as often, and lies where functions do. Prints the sum of all,
// 20. x86-64 only.
#include <stdio.h>
#include <string.h>

__asm__(".section .wtext,\"awx\",@progbits\n"
        ".globl changing\n"
        ".type changing, @function\n"
        "changing:\n"
        ".cfi_startproc\n"
        "mov $77, %eax\n"
        "nop\n"
        "nop\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size changing, . - changing\n"
        ".text\n");

int changing(void);

__attribute__((noinline, noipa)) int ordinary(int n) {
    volatile int copy = n;
    return copy;
}

int main(void) {
    int sum = 0;
    for (int i = 0; i < 5; i++) {
        memcpy((char *)changing + 1, &i, sizeof i);
        __asm__ volatile("" ::: "memory");
        sum += changing() + ordinary(i);
    }
    printf("%d\n", sum);
    return 0;
}
