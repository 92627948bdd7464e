// Calls of functions whose parameters have many types, with values that the test knows.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#ifdef __clang__
#define KEPT __attribute__((noinline, optnone))
#else
#define KEPT __attribute__((noinline, noipa))
#endif

enum class Color : uint8_t { red, green = 5, blue };
enum Old { less = -1, more = 1000 };

struct Point {
    int x, y;
};

struct Doubles {
    double a, b;
};

struct Mixed {
    int n;
    double d;
};

struct Floats {
    float a, b;
    Point p;
};

struct Large {
    long a, b, c;
    int d;
};

struct Empty {
};

struct Counted {
    int value;
    explicit Counted(int v) : value(v) {}
    Counted(const Counted &other) : value(other.value) {}
    KEPT int plus(int k) const { return value + k; }
};

struct Outer {
    Counted inner;
};

KEPT int add(int a, unsigned char b, bool c) { return a + b + c; }
KEPT double mix(double x, float f, long n, const char *s) { return x + f + (double)n + (s != nullptr); }
KEPT Color mixed_color(Color c, Old o) { return o == more ? Color::blue : c; }
KEPT Point swapped(Point p) { return Point{p.y, p.x}; }
KEPT Doubles two(Doubles d, Mixed m) { return Doubles{d.b + m.d, d.a + m.n}; }
KEPT float four(Floats f, Empty, int last) { return f.a + f.b + (float)(f.p.x + f.p.y + last); }
KEPT Large grown(Large b, int k)
{
    b.a += k;
    return b;
}
KEPT std::string joined(const std::string &s, std::string t, std::string_view v) { return s + t + std::string(v); }
KEPT int counted(Counted o, int8_t small, uint16_t u) { return o.value + small + u; }
KEPT int nested(Outer o, char c) { return o.inner.value + c; }
KEPT const char *text(const char *a, char c, char **out) { return c == 'q' && !out ? a : nullptr; }
KEPT long many(long a, long b, long c, long d, long e, long f, Point p, long h, double x)
{
    return a + b + c + d + e + f + p.x + h + (long)x;
}
KEPT int owned(std::unique_ptr<int> p, int n) { return *p + n; }
KEPT int variadic(const char *f, ...) { return f != nullptr; }

namespace ns
{
template <class T> KEPT T twice(T t) { return t + t; }
} // namespace ns

int main()
{
    add(-3, 200, true);
    mix(1.5, 2.25f, 7, "hi");
    mixed_color(Color::green, more);
    mixed_color(Color::red, less);
    swapped({1, -2});
    two({1.5, 2.5}, {3, 4.5});
    four({0.5f, 1.5f, {-1, 4}}, Empty{}, 9);
    grown({1, 2, 3, 4}, 10);
    joined("one", "two", "three");
    Counted o(9);
    counted(o, -5, 65535);
    nested(Outer{o}, 'x');
    o.plus(3);
    text("abc\n", 'q', nullptr);
    many(1, 2, 3, 4, 5, 6, {7, 8}, 9, 1.25);
    owned(std::make_unique<int>(4), 5);
    variadic("%d", 3);
    ns::twice(2.5);
    ns::twice<long>(4);
    return 0;
}
