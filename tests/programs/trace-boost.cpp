// Fibers of Boost.Context: `trace-boost FIBERS`. Each gives way inside three calls, and adds up what it knows only from its stack.
#include <boost/context/fiber.hpp>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>
#include <vector>

#define NOINLINE __attribute__((noinline))

namespace ctx = boost::context;

struct Work {
    ctx::fiber back;
    long sum = 0;
};

NOINLINE long leaf(long n) {
    __asm__ volatile("");
    return n + 1;
}

NOINLINE long inner(Work &work, long n) {
    volatile long before = leaf(n);
    work.back = std::move(work.back).resume();
    return leaf(before);
}

NOINLINE long middle(Work &work, long n) {
    volatile long local = inner(work, n);
    // An exception, on the fiber's stack.
    try {
        if (leaf(local) == n + 3) throw std::runtime_error("expected");
    } catch (const std::exception &) {
        return leaf(local) + inner(work, n);
    }
    return 0;
}

NOINLINE long outer(Work &work, long n) {
    volatile long local = 2 * n;
    long result = middle(work, n);
    return result + local;
}

int main(int argc, char **argv) {
    const int count = argc > 1 ? std::atoi(argv[1]) : 10, rounds = 3;
    std::vector<Work> works(count);
    std::vector<ctx::fiber> fibers;
    for (int i = 0; i < count; i++)
        fibers.emplace_back([&work = works[i], i, rounds](ctx::fiber &&main) {
            work.back = std::move(main);
            for (int round = 0; round < rounds; round++) work.sum += outer(work, i + round);
            return std::move(work.back);
        });
    for (int turn = 0; turn < 2 * rounds + 1; turn++)
        for (auto &fiber : fibers)
            if (fiber) fiber = std::move(fiber).resume();
    int right = 0;
    for (int i = 0; i < count; i++) {
        long expected = 0;
        for (int round = 0; round < rounds; round++) {
            long n = i + round;
            expected += (n + 2) + 1 + (n + 2) + 2 * n;
        }
        right += works[i].sum == expected && !fibers[i];
    }
    std::printf("%d of %d fibers are right\n", right, count);
    return right == count ? 0 : 1;
}
