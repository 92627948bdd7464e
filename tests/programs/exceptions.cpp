// Exceptions, templates and threads: C++ names and unwinding.
//
//   exceptions [THREADS [THROWS [DEPTH]]]     default 2 threads, 20000 throws each, through 8 frames
//
// Known by construction:
//   - each thread calls Thrower<int>::descend DEPTH times for every throw, each of which holds an
//     object whose destructor runs as the exception passes: THREADS * THROWS exceptions and
//     THREADS * THROWS * DEPTH destructors of guard::Guard;
//   - odd numbers (half the throws, rounded down) are thrown as guard::Odd, even ones as std::runtime_error;
//   - Crunch<double>::sum and Crunch<long>::sum are called once each by every thread.
// Prints the numbers of guard::Odd, of std::runtime_error and of destructors.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#define NOINLINE __attribute__((noinline))

namespace guard {
std::atomic<long> destructors{0};

struct Guard {
    NOINLINE ~Guard() { destructors.fetch_add(1, std::memory_order_relaxed); }
};

struct Odd {
    long number;
};
} // namespace guard

template <typename T>
struct Thrower {
    // Not a tail call: the guard's destructor follows it.
    NOINLINE static T descend(T depth, long number)
    {
        guard::Guard guard;
        if (depth > 1)
            return descend(depth - 1, number) + 1;
        if (number % 2)
            throw guard::Odd{number};
        throw std::runtime_error("even");
    }
};

template <typename T>
struct Crunch {
    NOINLINE static T sum(std::size_t count)
    {
        std::vector<T> values(count);
        std::iota(values.begin(), values.end(), T(1));
        return std::accumulate(values.begin(), values.end(), T(0));
    }
};

static std::atomic<long> odds{0}, evens{0};
static volatile double sink;

int main(int argc, char **argv)
{
    long count = argc > 1 ? std::atol(argv[1]) : 2;
    long throws = argc > 2 ? std::atol(argv[2]) : 20000;
    int depth = argc > 3 ? std::atoi(argv[3]) : 8;
    std::vector<std::thread> threads;
    for (long t = 0; t < count; t++) {
        threads.emplace_back([=] {
            for (long i = 0; i < throws; i++) {
                try {
                    sink = Thrower<int>::descend(depth, i);
                } catch (const guard::Odd &) {
                    odds++;
                } catch (const std::runtime_error &) {
                    evens++;
                }
            }
            sink = Crunch<double>::sum(100000);
            sink = double(Crunch<long>::sum(100000));
        });
    }
    for (auto &thread : threads)
        thread.join();
    std::printf("%ld %ld %ld\n", odds.load(), evens.load(), guard::destructors.load());
    return 0;
}
