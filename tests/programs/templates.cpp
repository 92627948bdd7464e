/*
 * Work as C++ programs do it: most functions of the source are templates that the compiler inlines.
 *
 *   templates [ROUNDS]      default 1; 0 goes on until it is killed
 *
 * Each round builds a tree of 2^11 leaves by recursion; each leaf sorts words, counts them in a hash map and adds up
 * what a chain of small function objects makes of them. Prints one number, the same for the same ROUNDS.
 */
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#define NOINLINE __attribute__((noinline))

template <typename Inner> struct Twice {
    Inner inner;
    uint64_t operator()(uint64_t value) const { return inner(inner(value)); }
};

struct Step {
    uint64_t operator()(uint64_t value) const { return value * 6364136223846793005u + (value >> 33); }
};

class Random {
    uint64_t state;

public:
    explicit Random(uint64_t seed) : state(seed) {}
    uint64_t next() { return state = Twice<Twice<Step>>{}(state + 1); }
};

static std::string word(Random &random)
{
    static const char letters[] = "etaoinshrdlu";
    std::string text;
    for (uint64_t left = 3 + random.next() % 14; left > 0; left--)
        text.push_back(letters[(random.next() >> 20) % 12]);
    return text;
}

NOINLINE static uint64_t leaf(uint64_t seed)
{
    Random random(seed);
    std::vector<std::string> words;
    for (int i = 0; i < 48; i++)
        words.push_back(word(random));
    std::sort(words.begin(), words.end(), [](const std::string &a, const std::string &b) { return a > b; });
    std::unordered_map<std::string, uint64_t> counts;
    for (const std::string &each : words)
        counts[each] += each.size();
    uint64_t sum = 0;
    std::for_each(counts.begin(), counts.end(),
                  [&sum](const auto &pair) { sum += Twice<Step>{}(pair.second ^ std::hash<std::string>{}(pair.first)); });
    return sum;
}

NOINLINE static uint64_t tree(uint64_t seed, int depth)
{
    if (depth == 0)
        return leaf(seed);
    uint64_t left = tree(2 * seed, depth - 1);
    return left ^ tree(2 * seed + 1, depth - 1);
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1;
    uint64_t result = 0;
    for (long round = 1; rounds == 0 || round <= rounds; round++)
        result += tree(static_cast<uint64_t>(round), 11);
    printf("%llu\n", static_cast<unsigned long long>(result));
    return 0;
}
