/* t.h: the test harness. A test program defines CKPTRESUME_IMPLEMENTATION, includes ckptresume.h
   and this file, calls RUN(function) for each test and returns t_end(). One line per failed check
   on stdout, then `N passed, N failed`. An argument runs only the tests whose names contain it.
   With T_QUICK=1 in the environment what is long is short or left out: for emulated machines. */
#ifndef CKR_T_H
#define CKR_T_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "os.h"

/* The header keeps itself out of fast math; what is expected of it is computed here. */
#if defined(CKR__FAST_MATH) && defined(__GNUC__)
#  pragma GCC optimize("no-fast-math")
#endif
#ifdef CKR__EXCESS
#  pragma GCC optimize("excess-precision=fast")
#endif

/* cos, sin, log of double are the C library's, as in the frameworks on the same machine; what tests
   expect was recorded with glibc's of x86-64, and others differ in the last bits. */
#if defined(__GLIBC__) && !defined(__i386__)
#  define T_OTHER_LIBM false
#else
#  define T_OTHER_LIBM true
#endif

typedef struct t_counts { unsigned long passed, failed; const char *test, *only; } t_counts;
static t_counts t_now;

#if defined(__GNUC__)
#  define T_PRINTF(a, b) __attribute__((format(printf, a, b), unused))
#  define T_UNUSED __attribute__((unused))
#else
#  define T_PRINTF(a, b)
#  define T_UNUSED
#endif

/* The verdict of one check; at most 20 failures of a test are printed. */
T_PRINTF(4, 5)
static bool t_check(bool ok, const char *file, int line, const char *fmt, ...)
{
    static const char *test;
    static int printed;
    va_list ap;
    if (ok) {
        t_now.passed++;
        return true;
    }
    t_now.failed++;
    if (test != t_now.test) printed = 0;
    test = t_now.test;
    if (++printed > 20) return false;
    printf("%s:%d: %s: ", file, line, t_now.test ? t_now.test : "");
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    fflush(stdout);
    return false;
}

#define CHECK(x) t_check((x) ? true : false, __FILE__, __LINE__, "%s", #x)
#define CHECK_INT(a, b) t_check_int((long long)(a), (long long)(b), __FILE__, __LINE__, #a)
#define CHECK_STR(a, b) t_check_str((a), (b), __FILE__, __LINE__, #a)
#define CHECK_OK(r, err) t_check_ok((r), (err), __FILE__, __LINE__, #r)

T_UNUSED static bool t_check_int(long long a, long long b, const char *file, int line,
                                 const char *what)
{
    return t_check(a == b, file, line, "%s is %lld, expected %lld", what, a, b);
}

T_UNUSED static bool t_check_str(const char *a, const char *b, const char *file, int line,
                                 const char *what)
{
    bool same = a && b ? !strcmp(a, b) : a == b;
    return t_check(same, file, line, "%s is \"%s\", expected \"%s\"", what, a ? a : "(null)",
                   b ? b : "(null)");
}

T_UNUSED static bool t_check_ok(ckr_result r, const ckr_error *e, const char *file, int line,
                                const char *what)
{
    return t_check(r == CKR_OK, file, line, "%s: %s: %s: %s: %s", what, ckr_item_name(e->item),
                   e->file, e->where, e->text);
}

#define RUN(f) do { if (t_start(#f)) f(); } while (0)
#define RUN_LONG(f) do { if (t_times(1, 0)) RUN(f); } while (0)

/* How many times: `n`, or with T_QUICK only `few`. */
T_UNUSED static unsigned long t_times(unsigned long n, unsigned long few)
{
    const char *quick = getenv("T_QUICK");
    return quick && *quick ? few : n;
}

T_UNUSED static bool t_start(const char *name)
{
    if (t_now.only && !strstr(name, t_now.only)) return false;
    t_now.test = name;
    return true;
}

T_UNUSED static void t_begin(int argc, char **argv)
{
    t_now.only = argc > 1 ? argv[1] : NULL;
#if defined(_WIN32)
    _fmode = _O_BINARY;        /* a file has the bytes that were written                */
#endif
}

T_UNUSED static int t_end(void)
{
    printf("%lu passed, %lu failed\n", t_now.passed, t_now.failed);
    return t_now.failed || !t_now.passed;
}

/* Seeded generator: the same cases on every machine. */
typedef struct t_rng { uint64_t s; } t_rng;

T_UNUSED static uint64_t t_next(t_rng *r)
{
    uint64_t z = (r->s += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

T_UNUSED static int64_t t_range(t_rng *r, int64_t lo, int64_t hi)      /* both included */
{
    return lo + (int64_t)(t_next(r) % (uint64_t)(hi - lo + 1));
}

/* Files, digests and devices have little-endian bytes: elements of `size` bytes from this machine's
   order into that, or back, in place. */
T_UNUSED static void t_little(void *p, size_t n, size_t size)
{
    const uint16_t one = 1;
    uint8_t first, *b = (uint8_t *)p;
    size_t i;
    memcpy(&first, &one, 1);
    for (; !first && size > 1 && n >= size; n -= size, b += size)
        for (i = 0; i < size / 2; i++) {
            const uint8_t t = b[i];
            b[i] = b[size - 1 - i];
            b[size - 1 - i] = t;
        }
}

/* A whole file in malloc'ed memory with a NUL behind it; NULL when it cannot be read. */
T_UNUSED static uint8_t *t_slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    uint8_t *p = NULL, *q;
    size_t cap = 0, got;
    *n = 0;
    if (!f) return NULL;
    do {
        cap = cap ? cap * 2 : 65536;
        q = (uint8_t *)realloc(p, cap + 1);
        if (!q) {
            free(p);
            fclose(f);
            return NULL;
        }
        p = q;
        got = fread(p + *n, 1, cap - *n, f);
        *n += got;
    } while (*n == cap);
    fclose(f);
    p[*n] = 0;
    return p;
}

/* A fresh directory under build/tmp (or $TMPDIR), for files that a test writes. */
T_UNUSED static const char *t_tmpdir(void)
{
    static char path[512];
    const char *base = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/ckr-test-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(path)) {
        printf("cannot create %s: %s\n", path, strerror(errno));
        exit(2);
    }
    return path;
}

/* Removes a tree of files: tests only, paths made by t_tmpdir. */
T_UNUSED static void t_remove_tree(const char *path)
{
    if (strstr(path, "ckr-test-") == NULL) return;
    os_remove_tree(path);
    if (access(path, F_OK) == 0) printf("cannot remove %s\n", path);
}

#endif
