/* bench.h: what every benchmark here needs: a clock, repeats, peak memory, one row per figure. A
   row is a line of a Markdown table: | what | min | median | limit | median / limit |. The last two
   are empty where a figure has no limit of its own. Include after ckptresume.h. */
#ifndef BENCH_H
#define BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BENCH_MAX = 256 };

typedef struct bench_times { int n; double t[BENCH_MAX]; } bench_times;

/* Programs of one thread set CLOCK_PROCESS_CPUTIME_ID: other work on the machine does not count. */
static clockid_t bench_clock = CLOCK_MONOTONIC;

static double bench_now(void)
{
    struct timespec t;
    clock_gettime(bench_clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Times to repeat: BENCH_REPEATS of the environment, else `usual`. */
static int bench_repeats(int usual)
{
    const char *s = getenv("BENCH_REPEATS");
    int n = s ? atoi(s) : 0;
    if (n <= 0) n = usual;
    return n > BENCH_MAX ? BENCH_MAX : n;
}

static void bench_add(bench_times *b, double t)
{
    int i = b->n;
    if (i == BENCH_MAX) return;
    for (; i > 0 && b->t[i - 1] > t; i--) b->t[i] = b->t[i - 1];
    b->t[i] = t;
    b->n++;
}

static double bench_median(const bench_times *b)
{
    return b->n ? (b->t[b->n / 2] + b->t[(b->n - 1) / 2]) / 2 : 0;
}

/* `scale` turns the stored values into `unit`; limit 0: none. */
static void bench_row(const char *what, const bench_times *b, double scale, const char *unit,
                      double limit)
{
    const double low = b->n ? b->t[0] * scale : 0, mid = bench_median(b) * scale;
    if (limit > 0)
        printf("| %s | %.3g %s | %.3g %s | <= %.4g %s | %.2f |\n", what, low, unit, mid, unit,
               limit, unit, mid / limit);
    else printf("| %s | %.3g %s | %.3g %s | | |\n", what, low, unit, mid, unit);
    fflush(stdout);
}

/* Two things timed in turn: the quotient of the fastest, the median of the pairs' quotients. */
typedef struct bench_pair { bench_times a, b, ratio; } bench_pair;

static void bench_pair_add(bench_pair *p, double a, double b)
{
    bench_add(&p->a, a);
    bench_add(&p->b, b);
    bench_add(&p->ratio, a / b);
}

static void bench_pair_row(const char *what, const bench_pair *p, double limit)
{
    const double low = p->a.n ? p->a.t[0] / p->b.t[0] : 0, mid = bench_median(&p->ratio);
    if (limit > 0)
        printf("| %s | %.3f | %.3f | <= %.3g | %.2f |\n", what, low, mid, limit, mid / limit);
    else printf("| %s | %.3f | %.3f | | |\n", what, low, mid);
    fflush(stdout);
}

static void bench_value(const char *what, double value, const char *unit, double limit)
{
    bench_times b;
    b.n = 1;
    b.t[0] = value;
    bench_row(what, &b, 1, unit, limit);
}

static void bench_head(const char *title)
{
    printf(
        "\n### %s\n\n| figure | min | median | limit | median / limit |\n|---|---|---|---|---|\n",
        title);
    fflush(stdout);
}

static void bench_fail(const char *what, const ckr_error *e)
{
    fprintf(stderr, "%s: %s%s%s: %s\n", what, e->file, e->where[0] ? ": " : "", e->where, e->text);
    exit(1);
}

/* Runs fn in a process of its own; its peak resident memory in KiB goes to *peak. False: it failed.
   */
static bool bench_child(void (*fn)(void *arg), void *arg, long *peak)
{
    struct rusage use;
    int status;
    pid_t pid;
    fflush(stdout);
    pid = fork();
    if (pid < 0) return false;
    if (pid == 0) {
        fn(arg);
        fflush(stdout);
        _exit(0);
    }
    if (wait4(pid, &status, 0, &use) != pid) return false;
    *peak = use.ru_maxrss;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void bench_nothing(void *arg)
{
    (void)arg;
}

/* What fn needs beyond an empty process, in MiB. */
static double bench_peak(void (*fn)(void *arg), void *arg)
{
    long peak, base;
    if (!bench_child(bench_nothing, NULL, &base) || !bench_child(fn, arg, &peak)) {
        fprintf(stderr, "a measured process failed\n");
        exit(1);
    }
    return (double)(peak - base) / 1024;
}

#endif
