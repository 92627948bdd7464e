/* The other source file of namesakes.c. */
extern volatile unsigned long sink;

#ifdef MOVED
/* Functions behind it lie elsewhere than without it. */
void moved(void)
{
	for (long i = 0; i < 100; i++)
		sink ^= i * 7;
}
#endif

static __attribute__((noinline)) void helper(long rounds)
{
	for (long round = 0; round < rounds; round++)
		for (long i = 0; i < 1000000; i++)
			sink += i;
}

void other(long rounds)
{
	helper(rounds);
}
