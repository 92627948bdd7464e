// A library whose code holds addresses that the dynamic linker writes there, if it is built with -mcmodel=large -fno-pic and linked
// with -z notext. With -DMAIN a program that calls it eight times and prints the sum of what comes back, 230.
#include <stdio.h>

#ifdef MAIN
int get(int);
int *where(void);

int main(void) {
    int sum = 0;
    for (int i = 0; i < 8; i++) sum += get(i);
    printf("%d\n", sum + *where());
    return 0;
}
#else
int table[4] = {1, 2, 3, 4};
static int hidden[4] = {10, 20, 30, 40};

int *where(void) { return hidden; }
int get(int i) { return hidden[i & 3] + table[i & 3]; }
#endif
