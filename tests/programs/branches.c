/* Loops, calls, recursion, a switch and calls through pointers, as often as the source says. Nothing but the code of
 * this file runs between the two marks, so that a debugger can step through all of it. Build with -O1.
 *
 * In each of ROUNDS rounds: `trips` goes round 1 + round % 7 times; `nested` goes round 3 times, its inner loop
 * 2 + round % 2 times each; `fibonacci(5)` is 15 calls; `pick` takes case round % 8; one of three functions is called
 * through a pointer; `odd_even` goes round 10 times. */

#if defined(__x86_64__) || defined(__i386__)
#define MARK() __asm__ volatile("int3")
#elif defined(__aarch64__)
#define MARK() __asm__ volatile("brk #0")
#else
#define MARK() __builtin_trap()
#endif

#define OPAQUE(value) __asm__ volatile("" : "+r"(value))
#define FUNCTION __attribute__((noinline, noclone)) long

#ifndef ROUNDS
#define ROUNDS 168
#endif

volatile long result;

FUNCTION trips(long count)
{
    long sum = 0;
    for (long i = 0; i < count; i++) {
        OPAQUE(sum);
        sum += i;
    }
    return sum;
}

FUNCTION leaf(long value)
{
    OPAQUE(value);
    return 3 * value + 1;
}

FUNCTION nested(long outer, long inner)
{
    long sum = 0;
    for (long i = 0; i < outer; i++)
        for (long j = 0; j < inner; j++)
            sum += leaf(i + j);
    return sum;
}

FUNCTION fibonacci(long n)
{
    OPAQUE(n);
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

FUNCTION pick(unsigned long which)
{
    long value = 1;
    OPAQUE(value);
    switch (which) {
    case 0: OPAQUE(value); value += 11; break;
    case 1: value *= 3; OPAQUE(value); break;
    case 2: value -= 7; OPAQUE(value); value ^= 5; break;
    case 3: value <<= 2; OPAQUE(value); break;
    case 4: value |= 64; OPAQUE(value); value += 2; break;
    case 5: value = ~value; OPAQUE(value); break;
    case 6: value += which; OPAQUE(value); value *= 9; break;
    case 7: OPAQUE(value); value *= value; OPAQUE(value); break;
    }
    return value;
}

FUNCTION odd_even(long count)
{
    long odd = 0, even = 0;
    for (long i = 0; i < count; i++) {
        if (i & 1) {
            odd += i;
            OPAQUE(odd);
        } else {
            even -= i;
            OPAQUE(even);
        }
    }
    return odd - even;
}

FUNCTION add(long value) { OPAQUE(value); return value + 5; }
FUNCTION multiply(long value) { OPAQUE(value); return value * 5; }
FUNCTION negate(long value) { OPAQUE(value); return -value; }

static long (*volatile operations[])(long) = { add, multiply, negate };

__attribute__((noinline, noclone)) void rounds(void)
{
    for (long round = 0; round < ROUNDS; round++) {
        result += trips(1 + round % 7);
        result += nested(3, 2 + round % 2);
        result += fibonacci(5);
        result += pick(round % 8);
        result += operations[round % 3](round);
        result += odd_even(10);
    }
}

int main(void)
{
    MARK();
    rounds();
    MARK();
    return 0;
}
