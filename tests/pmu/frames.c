// frames: leaf, below middle, below outer, below main; built without frame pointers, so that callers are found only by
// unwinding the stack. Nearly all its instructions are leaf's loop.
#include <stdint.h>

static volatile uint64_t sink;

__attribute__((noipa)) static void leaf(uint64_t turns)
{
    for (uint64_t i = 0; i < turns; i++)
        sink += i;
}

__attribute__((noipa)) static uint64_t middle(uint64_t turns)
{
    volatile uint64_t local[40];
    local[turns % 40] = turns;
    leaf(turns);
    return local[turns % 40];
}

__attribute__((noipa)) static uint64_t outer(uint64_t turns)
{
    return middle(turns) + 1;
}

int main(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < 20; i++)
        sum += outer(50000);
    return sum == 20 * 50001 ? 0 : 1;
}
