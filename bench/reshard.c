/* reshard.c WORK TOOL NAME SRC [FLAGS...]: a conversion from files to files against cp of the same
   bytes, both in WORK, which should be in memory; in turn, each output removed before the next. And
   `check` against cat.
   TOOL is the command-line tool. FLAGS are the target's, as the tool takes them. Peak memory is the
   process's, against that of `plan` (what the metadata needs) plus the cap on buffers. cc
   -std=c99 -O2 -I. -o reshard bench/reshard.c -lm -lpthread */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "bench.h"
#include <ftw.h>

enum { BENCH_ARGS = 32 };

/* The processor's seconds of the last command. */
static double run_cpu;

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

/* Runs a command, its standard output thrown away; seconds, or -1. */
static double run(char *const *argv, long *peak)
{
    struct rusage use;
    int status;
    double t = bench_now();
    pid_t pid;
    fflush(stdout);
    pid = fork();
    if (pid < 0) return -1;
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        if (null >= 0) dup2(null, 1);
        execvp(argv[0], argv);
        perror(argv[0]);
        _exit(127);
    }
    if (wait4(pid, &status, 0, &use) != pid) return -1;
    t = bench_now() - t;
    run_cpu = seconds_of(use.ru_utime) + seconds_of(use.ru_stime);
    if (peak) *peak = use.ru_maxrss;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? t : -1;
}

static double checked(char *const *argv, long *peak)
{
    double t = run(argv, peak);
    int i;
    if (t >= 0) return t;
    fprintf(stderr, "failed:");
    for (i = 0; argv[i]; i++) fprintf(stderr, " %s", argv[i]);
    fprintf(stderr, "\n");
    exit(1);
}

static uint64_t bench_bytes;

static int add_bytes(const char *path, const struct stat *st, int type)
{
    (void)path;
    if (type == FTW_F) bench_bytes += (uint64_t)st->st_size;
    return 0;
}

static int is_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static void remove_tree(char *path)
{
    char *argv[4];
    argv[0] = (char *)"rm";
    argv[1] = (char *)"-rf";
    argv[2] = path;
    argv[3] = NULL;
    if (is_there(path)) checked(argv, NULL);
}

static void measure(char *work, char *tool, const char *name, char *src, char *const *flags,
                    char *memory, double cap)
{
    char out[1024], copy[1024], text[256];
    char *convert[BENCH_ARGS], *plan[BENCH_ARGS], *cp[6];
    bench_pair p, cpu;
    long peak = 0, high = 0, base = 0;
    int i, n = 0, m = 0, repeats = bench_repeats(5);

    snprintf(out, sizeof out, "%s/converted", work);
    snprintf(copy, sizeof copy, "%s/copied", work);
    cp[0] = (char *)"cp";
    cp[1] = (char *)"--reflink=never";
    cp[2] = (char *)"-r";
    cp[3] = src;
    cp[4] = copy;
    cp[5] = NULL;
    convert[n++] = plan[m++] = tool;
    convert[n++] = (char *)"convert";
    plan[m++] = (char *)"plan";
    convert[n++] = plan[m++] = src;
    convert[n++] = out;
    for (i = 0; flags[i] && n < BENCH_ARGS - 5; i++) convert[n++] = plan[m++] = flags[i];
    if (memory) {
        convert[n++] = plan[m++] = (char *)"--memory";
        convert[n++] = plan[m++] = memory;
    }
    convert[n++] = plan[m++] = (char *)"--json";
    convert[n] = plan[m] = NULL;
    checked(plan, &base);
    memset(&p, 0, sizeof p);
    memset(&cpu, 0, sizeof cpu);
    for (i = -1; i < (memory ? 0 : repeats); i++) { /* the first round is not counted */
        double a, b, a_cpu;
        remove_tree(out);
        a = checked(convert, &peak);
        a_cpu = run_cpu;
        if (peak > high) high = peak;
        remove_tree(out);
        if (memory) continue;
        remove_tree(copy);
        b = checked(cp, NULL);
        if (i >= 0) bench_pair_add(&p, a, b);
        if (i >= 0) bench_pair_add(&cpu, a_cpu, run_cpu);
        remove_tree(copy);
    }
    if (!memory) {
        snprintf(text, sizeof text, "%s: time", name);
        bench_row(text, &p.a, 1, "s", 0);
        snprintf(text, sizeof text, "%s: cp --reflink=never -r", name);
        bench_row(text, &p.b, 1, "s", 0);
        snprintf(text, sizeof text, "%s: time : cp", name);
        bench_pair_row(text, &p, 1.3);
        snprintf(text, sizeof text, "%s: time of the processor : that of cp", name);
        bench_pair_row(text, &cpu, 0);
    }
    snprintf(text, sizeof text, "%s%s%s: peak memory (plan: %.1f MiB)", name,
             memory ? ", --memory " : "", memory ? memory : "", (double)base / 1024);
    bench_value(text, (double)high / 1024, "MiB", (double)base / 1024 + cap);
}

/* check, against one read of the same bytes. */
static void scan(char *tool, const char *name, char *src)
{
    char *check[5], *cat[5], text[256];
    int i, repeats = bench_repeats(5);
    bench_pair p;
    check[0] = tool;
    check[1] = (char *)"check";
    check[2] = src;
    check[3] = (char *)"--json";
    check[4] = NULL;
    cat[0] = (char *)"sh";
    cat[1] = (char *)"-c";
    cat[2] = (char *)"find \"$0\" -type f -exec cat {} + > /dev/null";
    cat[3] = src;
    cat[4] = NULL;
    memset(&p, 0, sizeof p);
    for (i = -1; i < repeats; i++) {
        double a = checked(check, NULL), b = checked(cat, NULL);
        if (i >= 0) bench_pair_add(&p, a, b);
    }
    snprintf(text, sizeof text, "%s: check", name);
    bench_row(text, &p.a, 1, "s", 0);
    snprintf(text, sizeof text, "%s: check : cat > /dev/null", name);
    bench_pair_row(text, &p, 1.2);
}

int main(int argc, char **argv)
{
    char text[256];
    if (argc < 5) {
        fprintf(stderr, "usage: reshard WORK TOOL NAME SRC [FLAGS...]\n");
        return 2;
    }
    if (ftw(argv[4], add_bytes, 16) != 0) return 1;
    snprintf(text, sizeof text, "%s: %.2f GiB", argv[3], (double)bench_bytes / 1073741824.0);
    bench_head(text);
    measure(argv[1], argv[2], argv[3], argv[4], argv + 5, NULL,
            4.0 * (double)sysconf(_SC_NPROCESSORS_ONLN));
    measure(argv[1], argv[2], argv[3], argv[4], argv + 5, (char *)"64M", 64);
    scan(argv[2], argv[3], argv[4]);
    return 0;
}
