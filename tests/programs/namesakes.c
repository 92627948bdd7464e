/* Two source files with a static function `helper` each: this one's takes three quarters of the time, the other's one.
   namesakes [ROUNDS of this one's [ROUNDS of the other's]], 300 and 100 by default. */
#include <stdlib.h>

void other(long rounds);

volatile unsigned long sink;

static __attribute__((noinline)) void helper(long rounds)
{
	for (long round = 0; round < rounds; round++)
		for (long i = 0; i < 1000000; i++)
			sink += i;
}

int main(int argc, char **argv)
{
	helper(argc > 1 ? atol(argv[1]) : 300);
	other(argc > 2 ? atol(argv[2]) : 100);
	return 0;
}
