/*
 * Functions that keep a processor busy in different ways, in turns or one alone.
 *
 *   behaviours all|divide|add|branch|chase|touch [ROUNDS]     default 1000 rounds
 *
 * Known by construction: a round calls each function (or the one named) once, for some 100 us. divide() waits for divisions,
 * add() does independent additions, branch() jumps by random bits, chase() follows pointers through 16 MiB, touch()
 * faults on fresh pages. So instructions per cycle, mispredicted branches, cache misses and faults differ by far.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static volatile uint64_t sink;
static uint32_t *next;
enum { PLACES = 4 << 20, PAGES = 64, PAGE = 4096 };

__attribute__((noinline)) static void divide(void)
{
	uint64_t value = UINT64_MAX;
	for (int i = 0; i < 8000; i++)
		value = (UINT64_MAX - i) / (value | 3);
	sink = value;
}

__attribute__((noinline)) static void add(void)
{
	uint64_t a = 1, b = 2, c = 3, d = 4;
	for (int i = 0; i < 100000; i++) {
		a += i;
		b ^= i;
		c -= i;
		d |= i;
		__asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
	}
	sink = a + b + c + d;
}

__attribute__((noinline)) static void branch(void)
{
	static uint64_t random = 88172645463325252;
	uint64_t odd = 0;
	for (int i = 0; i < 15000; i++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		if (random & 1)
			__asm__ volatile("" : "+r"(odd) : : "memory");
		else
			odd++;
	}
	sink = odd;
}

__attribute__((noinline)) static void chase(void)
{
	static uint32_t place;
	for (int i = 0; i < 1500; i++)
		place = next[place];
	sink = place;
}

__attribute__((noinline)) static void touch(void)
{
	char *pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED)
		exit(2);
	madvise(pages, PAGES * PAGE, MADV_NOHUGEPAGE);
	for (int i = 0; i < PAGES; i++)
		pages[i * PAGE] = 1;
	munmap(pages, PAGES * PAGE);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = { { "divide", divide }, { "add", add }, { "branch", branch },
		    { "chase", chase }, { "touch", touch } };
	const char *which = argc > 1 ? argv[1] : "all";
	long rounds = argc > 2 ? atol(argv[2]) : 1000;
	long found = 0;

	/* One cycle through all places, in an order that no prefetcher guesses. */
	next = malloc(PLACES * sizeof(*next));
	if (!next)
		return 2;
	for (uint32_t i = 0; i < PLACES; i++)
		next[i] = (i * 5u + 1000003u) % PLACES;

	for (long round = 0; round < rounds; round++)
		for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++)
			if (!strcmp(which, "all") || !strcmp(which, all[i].name)) {
				all[i].run();
				found++;
			}
	printf("%ld\n", found);
	return found ? 0 : 1;
}
