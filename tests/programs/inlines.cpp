/*
 * Templates and lambdas that the compiler inlines; build with -O2.
 *
 *   inlines [THOUSANDS]     default 40
 *
 * Known by construction: nearly all of the time is spent in code inlined into busy(), which alone has a symbol of its
 * own: Mixer<N>::operator() below the algorithm of the library that calls it. leaf() is no inlined function, but is
 * called by inlined code, so that its callers are inlined functions too.
 * Prints a checksum, which depends only on THOUSANDS.
 */
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

__attribute__((noinline)) std::uint64_t leaf(std::uint64_t x)
{
    for (int i = 0; i < 64; i++)
        x = (x ^ (x >> 7)) * 0x9e3779b97f4a7c15u;
    return x;
}

template <int N> struct Mixer {
    inline __attribute__((always_inline)) std::uint64_t operator()(std::uint64_t x) const
    {
        for (int i = 0; i < 64; i++)
            x = (x ^ (x << N)) * 3 + 1;
        return x;
    }
};

struct Caller {
    inline __attribute__((always_inline)) std::uint64_t sum(std::uint64_t all, std::uint64_t x) const
    {
        return all + leaf(x) + 1;
    }
};

__attribute__((noinline)) std::uint64_t busy(std::vector<std::uint64_t> &values)
{
    std::transform(values.begin(), values.end(), values.begin(), Mixer<5>());
    std::transform(values.begin(), values.end(), values.begin(), Mixer<11>());
    return std::accumulate(values.begin(), values.end(), std::uint64_t(0),
                           [](std::uint64_t all, std::uint64_t x) { return Caller().sum(all, x); });
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? std::atol(argv[1]) : 40;
    std::vector<std::uint64_t> values(1000);
    std::iota(values.begin(), values.end(), 1);
    std::uint64_t sum = 0;
    for (long i = 0; i < rounds * 100; i++)
        sum += busy(values);
    std::printf("%016llx\n", static_cast<unsigned long long>(sum));
}
