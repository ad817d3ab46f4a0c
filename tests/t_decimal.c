/* Doubles in decimal, both ways, against the C library's (which the tests' locale, C, leaves
   right): powers of two and ten and their neighbours, random bits, ties, long decimals; and the
   formatter. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"

static t_rng g_rng = { 1 };

/* The C library's reading, rounded as it should be: Microsoft's is not, for one in some thousand.
 */
static double libc_read(const char *s, char **end)
{
    double v = strtod(s, end);
#ifdef _WIN32
    ckr__read_double(s, strlen(s), &v);
#endif
    return v;
}

/* The same text and length as snprintf's, for a conversion that the header uses. */
static void format_same(const char *fmt, double v)
{
    char a[400], b[400];
    const int n = snprintf(a, sizeof a, fmt, v);
    const size_t m = ckr__sprint(b, sizeof b, fmt, v);
    if (v != v) return; /* libc's have signs, and other names elsewhere */
    t_check((size_t)n == m && !strcmp(a, b), __FILE__, __LINE__, "%s: \"%s\", expected \"%s\"", fmt,
            b, a);
}

static void read_same(const char *s)
{
    char *end;
    const double want = libc_read(s, &end);
    double v = 0;
    const size_t n = ckr__read_double(s, strlen(s), &v);
    t_check(n == (size_t)(end - s) && (n == 0 || !memcmp(&v, &want, sizeof v)), __FILE__, __LINE__,
            "%s: %a of %u bytes, expected %a", s, v, (unsigned)n, want);
}

/* The shortest digits read back as v; no text that is shorter does. */
static void shortest(double v)
{
    char d[CKR__DIGITS], text[400];
    double back = 0;
    int k, p;
    v = fabs(v);
    if (!(v > 0 && v <= DBL_MAX)) return;
    k = ckr__shortest(v, d);
    snprintf(text, sizeof text, "0.%se%d", d, k);
    CHECK(strlen(d) <= 17 && libc_read(text, NULL) == v);
    ckr__read_double(text, strlen(text), &back);
    CHECK(back == v);
    p = (int)strlen(d) - 1;
    if (p < 1) return;
    snprintf(text, sizeof text, "%.*e", p - 1, v);
    t_check(libc_read(text, NULL) != v, __FILE__, __LINE__, "%s is shorter than 0.%se%d", text, d,
            k);
}

static void each(double v)
{
    static const char *const formats[] = { "%.17g", "%g",   "%.9g",   "%.6g", "%.4g",  "%.3g",
                                           "%.0f",  "%.1f", "%+.17g", "%.1g", "%.15g", "%.16g" };
    char text[64];
    size_t i;
    for (i = 0; i < sizeof formats / sizeof *formats; i++) format_same(formats[i], v);
    snprintf(text, sizeof text, "%.*e", (int)t_range(&g_rng, 0, 24), v);
    if (v == v) read_same(text);
    shortest(v);
}

static void edges(void)
{
    static const double v[] = { 0,
                                -0.0,
                                1,
                                0.5,
                                1.5,
                                2.5,
                                0.1,
                                1e22,
                                1e23,
                                9.5,
                                99.5,
                                0.05,
                                0.95,
                                999999.5,
                                1e15,
                                1e16,
                                1e17,
                                9007199254740993.0,
                                8.41e21,
                                2e-44,
                                9.999e22,
                                1e-5,
                                0.0001,
                                0.00001234,
                                4.9406564584124654e-324,
                                2.2250738585072014e-308,
                                2.2250738585072009e-308,
                                1.7976931348623157e308,
                                HUGE_VAL,
                                -HUGE_VAL };
    size_t i;
    int e;
    for (i = 0; i < sizeof v / sizeof *v; i++) each(v[i]);
    for (e = -1074; e < 1024; e++) {
        each(ldexp(1, e));
        each(nextafter(ldexp(1, e), 0));
        each(nextafter(ldexp(1, e), HUGE_VAL));
    }
    for (e = -323; e < 309; e++) {
        char text[16];
        snprintf(text, sizeof text, "1e%d", e);
        each(libc_read(text, NULL));
        each(nextafter(libc_read(text, NULL), 0));
    }
}

static void random_bits(void)
{
    int i;
    for (i = 0; i < 5000; i++) {
        const uint64_t bits = t_next(&g_rng);
        double v;
        memcpy(&v, &bits, sizeof v);
        each(v);
        each((double)(int64_t)(t_next(&g_rng) >> t_range(&g_rng, 0, 63)));
        each((double)t_range(&g_rng, 0, 1000000) / 1000);
        each((double)t_range(&g_rng, 0, 1000000) * 1e-9);
    }
}

/* Digits, a point somewhere, zeros in runs, exponents that count back or overflow. */
static void random_texts(void)
{
    int i, j, n;
    for (i = 0; i < 20000; i++) {
        char t[1000];
        int k = 0;
        for (n = (int)t_range(&g_rng, 0, i % 50 ? 25 : 800), j = 0; j < n; j++)
            t[k++] = (char)('0' + t_next(&g_rng) % 10);
        if (i % 2) t[k++] = '.';
        for (n = (int)t_range(&g_rng, 0, 30), j = 0; j < n; j++)
            t[k++] = (char)(i % 3 ? '0' + t_next(&g_rng) % 10 : '0');
        t[k] = 0;
        if (i % 5) snprintf(t + k, sizeof t - (size_t)k, "e%d", (int)t_range(&g_rng, -360, 340));
        read_same(t);
    }
}

static void texts(void)
{
    static const char *const same[] = { "",
                                        "-",
                                        "+",
                                        ".",
                                        "1.",
                                        ".5",
                                        "-.5e1",
                                        "1e",
                                        "1e+",
                                        "1e-",
                                        "1E5",
                                        "0e99",
                                        "1..2",
                                        "1x",
                                        "inf",
                                        "-INF",
                                        "nano",
                                        "infinity",
                                        "Infinit",
                                        "00001",
                                        "1e999999999999",
                                        "1e-999999999999",
                                        "0.000e5",
                                        "-0" };
    char longest[900];
    double v;
    size_t i;
    for (i = 0; i < sizeof same / sizeof *same; i++)
        if (strcmp(same[i], "nano")) read_same(same[i]);
    CHECK(ckr__read_double("nano", 4, &v) == 3 && v != v);
    /* 1 + 2^-53 is a tie; the digit behind 767 others breaks it */
    memset(longest, '0', sizeof longest);
    memcpy(longest, "1.00000000000000011102230246251565404236316680908203125", 55);
    longest[880] = 0;
    read_same(longest);
    longest[879] = '1';
    read_same(longest);
    CHECK(ckr__read_double("12345", 2, &v) == 2 && v == 12);
}

static void formats(void)
{
    char a[64], b[64];
    size_t n = ckr__sprint(
        a, sizeof a, "%s|%.3s|%c|%d|%u|%02x|%5d|%08lld|%llu|%lx|%%|%.*s|%03u|%+d", "text",
        "cut here", 'c', -7, 7u, 10, 42, -12345ll, 99ull, 255ul, 2, "xyz", 5u, 1);
    const int m =
        snprintf(b, sizeof b, "%s|%.3s|%c|%d|%u|%02x|%5d|%08lld|%llu|%lx|%%|%.*s|%03u|%+d", "text",
                 "cut here", 'c', -7, 7u, 10, 42, -12345ll, 99ull, 255ul, 2, "xyz", 5u, 1);
    CHECK_STR(a, b);
    CHECK_INT(n, m);
    CHECK_INT(ckr__sprint(NULL, 0, "%d and %s", 12, "more"), 11);
    n = ckr__sprint(a, 5, "%s", "longer than that");
    CHECK(n == 16 && !strcmp(a, "long"));
    CHECK_INT(ckr__sprint(a, sizeof a, "%lld %lld", (long long)INT64_MIN, (long long)INT64_MAX),
              40);
    CHECK_STR(a, "-9223372036854775808 9223372036854775807");
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    RUN(edges);
    RUN(random_bits);
    RUN(random_texts);
    RUN(texts);
    RUN(formats);
    return t_end();
}
