/* SIGKILL in the middle of a conversion: at every call that changes the disk, and at 200 random
   moments of the tool (TOOL, default ./ckptresume). Then the output is absent or whole, at most
   one sibling is left over, `.out.ckptresume-tmp`, and the next run removes it and succeeds.
   SIGTERM leaves no sibling either, and the tool ends by it. Of a conversion in parts, or one with
   --continue, `.out.ckptresume-parts` is left over, and the next run writes what is missing. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "memio.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <time.h>

#define SOURCE "tests/data/nanotron/tp1_pp2_dp1_tied/ckpt"

static const char *tmp;
static bool in_parts;          /* their directory may be left over                      */
static char out[512], ref[512], old[512];

static void remove_tree(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *e;
    while (d && (e = readdir(d)) != NULL) {
        char sub[1024];
        struct stat st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(sub, sizeof sub, "%s/%s", path, e->d_name);
        if (lstat(sub, &st) == 0 && S_ISDIR(st.st_mode)) remove_tree(sub);
        else unlink(sub);
    }
    if (d) closedir(d);
    rmdir(path);
}

/* What was there before a forced run. */
static void make_old(const char *path)
{
    char sub[600];
    FILE *f;
    mkdir(path, 0777);
    snprintf(sub, sizeof sub, "%s/file", path);
    f = fopen(sub, "w");
    if (!f || fputs("what was there before", f) < 0 || fclose(f) != 0) exit(2);
}

/* Names and bytes of a tree, in any order. */
static uint64_t tree_sum(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *e;
    uint64_t sum = 1;
    if (!d) return 0;
    while ((e = readdir(d)) != NULL) {
        char sub[1024];
        struct stat st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(sub, sizeof sub, "%s/%s", path, e->d_name);
        if (stat(sub, &st) != 0) continue;
        sum += ckr__hash_bytes(e->d_name, strlen(e->d_name)) * 7;
        if (S_ISDIR(st.st_mode)) {
            sum += tree_sum(sub) * 3;
        } else {
            size_t n;
            uint8_t *p = t_slurp(sub, &n);
            if (p) sum += ckr__hash_bytes(p, n) * 5;
            free(p);
        }
    }
    closedir(d);
    return sum;
}

/* What lies beside the output: how many entries, and whether each is one of ours. */
static int siblings(bool *known)
{
    DIR *d = opendir(tmp);
    struct dirent *e;
    int n = 0;
    *known = true;
    while (d && (e = readdir(d)) != NULL) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || !strcmp(e->d_name, "out") ||
            !strcmp(e->d_name, "ref") || !strcmp(e->d_name, "old") ||
            !strcmp(e->d_name, "src")) continue;
        n++;
        if (in_parts && !strcmp(e->d_name, ".out.ckptresume-parts")) continue;
        if (strcmp(e->d_name, ".out.ckptresume-tmp") && strcmp(e->d_name, ".out.ckptresume-old"))
            *known = false;
    }
    if (d) closedir(d);
    return n;
}

/* In as many parts, which go on; 0: as one. */
static ckr_result carry_out(ckr_plan *p, const char *to, uint32_t parts, ckr_error *e)
{
    const ckr_parts of = { parts, true, 0 };
    ckr_result r = CKR_OK;
    uint32_t i;
    if (!parts) return ckr_plan_write(p, to, NULL, e);
    for (i = 0; i < parts && r == CKR_OK; i++) r = ckr_plan_write_part(p, to, i, &of, e);
    return r == CKR_OK ? ckr_plan_commit(p, to, &of, NULL, e) : r;
}

static ckr_result convert(const char *to, bool force, uint32_t parts, unsigned long kill_at,
                          unsigned long *calls)
{
    faulty f;
    ckr_env env = faulty_env(&f, ckr__default_io());
    ckr_open_desc desc = CKR_ZERO;
    ckr_target t = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_error e;
    ckr_result r;
    f.kill_at = kill_at;
    desc.env = &env;
    t.mode = CKR_MODE_CONTINUE;
    t.topology.tp = 2;
    t.topology.pp = 1;
    t.topology.zero = -1;
    t.force = force;
    r = ckr_ckpt_open(SOURCE, &desc, &c, &e);
    if (r == CKR_OK) r = ckr_plan_create(c, &t, 0, &p, &e);
    if (r == CKR_OK) r = carry_out(p, to, parts, &e);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    if (calls) *calls = f.changes;
    if (r != CKR_OK) printf("%s: %s: %s: %s\n", t_now.test, ckr_item_name(e.item), e.file, e.text);
    return r;
}

static void after_kill(const char *label, unsigned long n, bool force, uint64_t sum_ref,
                       uint64_t sum_old)
{
    uint64_t sum = tree_sum(out);
    bool known;
    int beside = siblings(&known);
    struct stat st;
    bool exists = stat(out, &st) == 0;
    t_check(!exists || sum == sum_ref || (force && sum == sum_old), __FILE__, __LINE__,
            "%s %lu: the output is there in part", label, n);
    t_check(known && beside <= (force ? 2 : 1), __FILE__, __LINE__, "%s %lu: %d siblings, ours: %d",
            label, n, beside, known);
    if (!exists && force) {
        char aside[600];
        snprintf(aside, sizeof aside, "%s/.out.ckptresume-old", tmp);
        t_check(tree_sum(aside) == sum_old, __FILE__, __LINE__, "%s %lu: the old output is lost",
                label, n);
    }
}

static void after_next_run(const char *label, unsigned long n, uint64_t sum_ref)
{
    bool known;
    t_check(tree_sum(out) == sum_ref, __FILE__, __LINE__,
            "%s %lu: the next run did not complete the output", label, n);
    t_check(siblings(&known) == 0, __FILE__, __LINE__, "%s %lu: the next run left something over",
            label, n);
}

/* The last kill of the test before may have left some. */
static void clear_siblings(void)
{
    static const char *const names[] = { ".out.ckptresume-tmp", ".out.ckptresume-parts" };
    size_t i;
    for (i = 0; i < 2; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", tmp, names[i]);
        remove_tree(path);
    }
}

static void every_call(bool force, uint32_t parts)
{
    unsigned long n, calls = 0;
    uint64_t sum_ref, sum_old;
    remove_tree(out);
    remove_tree(ref);
    remove_tree(old);
    make_old(old);
    in_parts = parts > 0;
    clear_siblings();
    if (!CHECK(convert(ref, false, 0, 0, NULL) == CKR_OK)) return;
    sum_ref = tree_sum(ref);
    sum_old = tree_sum(old);
    if (force) make_old(out);
    if (!CHECK(convert(out, force, parts, 0, &calls) == CKR_OK)) return;
    CHECK(calls > 50);
    for (n = 1; n <= calls; n++) {
        int status = 0;
        pid_t pid;
        remove_tree(out);
        if (force) make_old(out);
        pid = fork();
        if (pid == 0) _exit(convert(out, force, parts, n, NULL) == CKR_OK ? 0 : 3);
        waitpid(pid, &status, 0);
        t_check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, __FILE__, __LINE__,
                "call %lu: not killed", n);
        after_kill("call", n, force, sum_ref, sum_old);
        if (!force && tree_sum(out) == sum_ref) continue;
        CHECK(convert(out, force, parts, 0, NULL) == CKR_OK);
        after_next_run("call", n, sum_ref);
    }
    in_parts = false;
}

static void at_every_call(void)
{
    every_call(false, 0);
}

static void at_every_call_forced(void)
{
    every_call(true, 0);
}

static void at_every_call_of_parts(void)
{
    every_call(false, 2);
}

static void at_every_call_of_parts_forced(void)
{
    every_call(true, 2);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static pid_t start_tool(const char *const *args)
{
    const char *tool = getenv("TOOL");
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        dup2(null, 2);
        execv(tool ? tool : "./ckptresume", (char *const *)(size_t)args);
        _exit(127);
    }
    return pid;
}

static pid_t start_convert(const char *to)
{
    const char *const args[] = { "ckptresume", "convert", SOURCE, to, "--tp", "2", "--pp", "1",
                                 "--quiet", NULL };
    return start_tool(args);
}

/* Sends `sig` after that part of a second, unless the process ends before. */
static void kill_after(pid_t pid, double s, int sig)
{
    struct timespec pause;
    pause.tv_sec = (time_t)s;
    pause.tv_nsec = (long)((s - (double)pause.tv_sec) * 1e9);
    nanosleep(&pause, NULL);
    kill(pid, sig);
}

static void at_random(int sig)
{
    t_rng r = { 12 };
    int i, status = 0, killed = 0;
    double begin, span = 0;
    uint64_t sum_ref;
    bool known;
    remove_tree(out);
    for (i = 0; i < 3; i++) {
        remove_tree(ref);
        begin = seconds();
        waitpid(start_convert(ref), &status, 0);
        if (seconds() - begin > span) span = seconds() - begin;
        if (!CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0)) return;
    }
    sum_ref = tree_sum(ref);
    for (i = 0; i < 200; i++) {
        pid_t pid;
        remove_tree(out);
        pid = start_convert(out);
        kill_after(pid, span * (double)t_range(&r, 0, 1000) / 1000, sig);
        waitpid(pid, &status, 0);
        killed += WIFSIGNALED(status);
        CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == sig : WEXITSTATUS(status) == 0);
        if (sig != SIGKILL) CHECK_INT(siblings(&known), 0);
        after_kill("moment", (unsigned long)i, false, sum_ref, 0);
        if (tree_sum(out) == sum_ref) continue;
        waitpid(start_convert(out), &status, 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        after_next_run("moment", (unsigned long)i, sum_ref);
    }
    CHECK(killed > 20);
}

static void tool_killed(void)
{
    at_random(SIGKILL);
}

static void tool_asked_to_end(void)
{
    at_random(SIGTERM);
}

/* ---- going on ---- */

static char src[512];

/* 36 MB in one file, which take the tool 128 steps. */
static bool make_large(void)
{
    enum { N = 1 << 18, TENSORS = 36 };
    static float data[N + TENSORS];
    const int64_t shape[1] = { N };
    ckr_target t = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_error e;
    t_rng r = { 4 };
    ckr_result ok = ckr_ckpt_create(NULL, &c, &e);
    size_t i;
    t.mode = CKR_MODE_CONTINUE;
    snprintf(src, sizeof src, "%s/src", tmp);
    for (i = 0; i < N + TENSORS; i++) data[i] = (float)t_range(&r, -9999, 9999);
    for (i = 0; i < TENSORS && ok == CKR_OK; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", (int)i);
        ok = ckr_ckpt_put(c, name, "param", CKR_DTYPE_F32, 1, shape, data + i, &e);
    }
    if (ok == CKR_OK) ok = ckr_plan_create(c, &t, 0, &p, &e);
    if (ok == CKR_OK) ok = ckr_plan_write(p, src, NULL, &e);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    return CHECK_OK(ok, &e);
}

/* Converts to `out`, to `ref`, or a part of `out`, as "2/4"; or commits "4". */
static pid_t start_large(const char *to, const char *part, const char *commit, bool go_on)
{
    const char *args[12] = { "ckptresume", "convert", src, to, "--to", "torch", "--quiet" };
    int n = 7;
    if (part) args[n++] = "--part", args[n++] = part;
    if (commit) args[n++] = "--commit", args[n++] = commit;
    if (go_on) args[n++] = "--continue";
    return start_tool(args);
}

/* The process ends; the bytes that its calls wrote, 0: the system does not say. */
static unsigned long long written_by(pid_t pid, int *status)
{
    unsigned long long n = 0;
    char line[128];
    siginfo_t info;
    FILE *f;
    waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
    snprintf(line, sizeof line, "/proc/%ld/io", (long)pid);
    f = fopen(line, "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "wchar: ", 7)) n = strtoull(line + 7, NULL, 10);
    if (f) fclose(f);
    waitpid(pid, status, 0);
    return n;
}

static uint64_t file_sum(const char *path)
{
    size_t n;
    uint8_t *p = t_slurp(path, &n);
    const uint64_t sum = p ? ckr__hash_bytes(p, n) : 0;
    free(p);
    return sum;
}

static bool ended(int status)
{
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* The reference, how long a run takes, and how much it writes. */
static bool large_begin(uint64_t *sum, double *span, unsigned long long *all)
{
    int i, status = 0;
    remove_tree(out);
    remove_tree(ref);
    clear_siblings();
    *span = 1e9;
    if (!make_large()) return false;
    for (i = 0; i < 3; i++) {
        const double begin = seconds();
        unlink(ref);
        *all = written_by(start_large(ref, NULL, NULL, true), &status);
        if (seconds() - begin < *span) *span = seconds() - begin;
        if (!CHECK(ended(status))) return false;
    }
    *sum = file_sum(ref);
    in_parts = true;
    return CHECK(*sum != 0);
}

static void large_end(void)
{
    in_parts = false;
    unlink(src);
    unlink(ref);
    unlink(out);
}

/* The output is absent or whole. */
static bool large_whole(uint64_t sum, const char *label, int i)
{
    const uint64_t now = file_sum(out);
    bool known;
    t_check(!now || now == sum, __FILE__, __LINE__, "%s %d: the output is there in part", label, i);
    /* (a commit that was killed behind its rename has left the one that the next one clears) */
    t_check(siblings(&known) <= 2 && known, __FILE__, __LINE__, "%s %d: siblings", label, i);
    return now == sum;
}

/* One kill each, and a run that ends it: what both write beyond what one writes was written
   again. */
static void continued(void)
{
    unsigned long long all, most = 0, sum_again = 0, sum_done = 0;
    int i, status = 0, killed = 0;
    t_rng r = { 27 };
    uint64_t sum;
    double span;
    if (!large_begin(&sum, &span, &all)) return;
    for (i = 0; i < 100; i++) {
        pid_t pid;
        unsigned long long first, second, again;
        unlink(out);
        pid = start_large(out, NULL, NULL, true);
        kill_after(pid, span * (double)t_range(&r, 0, 1000) / 1000, SIGKILL);
        first = written_by(pid, &status);
        if (large_whole(sum, "moment", i)) continue;
        killed++;
        second = written_by(start_large(out, NULL, NULL, true), &status);
        CHECK(ended(status) && large_whole(sum, "moment", i));
        again = first + second > all ? first + second - all : 0;
        if (first < all / 10) continue;
        sum_again += again;
        sum_done += first;
        if (again * 1000 / first > most) most = again * 1000 / first;
        t_check(again * 10 < first, __FILE__, __LINE__,
                "moment %d: %llu bytes written again of %llu that were", i, again, first);
    }
    CHECK(killed > 20);
    if (sum_done)
        printf("written again after a kill: %.2f %% of what was done, at most %.1f %%; %d kills\n",
               100.0 * (double)sum_again / (double)sum_done, (double)most / 10, killed);
    large_end();
}

/* Killed again and again until it ends. */
static void continued_again(void)
{
    unsigned long long all;
    int i = 0, runs, status = 0, chains = 0;
    t_rng r = { 28 };
    uint64_t sum;
    double span;
    if (!large_begin(&sum, &span, &all)) return;
    while (i < 100) {
        unlink(out);
        for (runs = 0; runs < 200; runs++) {
            pid_t pid = start_large(out, NULL, NULL, true);
            /* later each time: a run that has to read all that is there comes on at last */
            kill_after(pid, span * (double)t_range(&r, 200, 600 + 20 * runs) / 1000, SIGKILL);
            waitpid(pid, &status, 0);
            i += WIFSIGNALED(status);
            if (large_whole(sum, "kill", i)) break;
        }
        chains++;
        t_check(runs < 200, __FILE__, __LINE__, "chain %d does not end", chains);
        if (runs == 200) break;
    }
    printf("%d kills in %d conversions\n", i, chains);
    large_end();
}

/* One part of four is killed, and goes on; the others are written when it lies there. */
static void part_continued(void)
{
    unsigned long long all;
    int i, k, status = 0, killed = 0;
    t_rng r = { 29 };
    uint64_t sum;
    double span;
    if (!large_begin(&sum, &span, &all)) return;
    for (i = 0; i < 50; i++) {
        static const char *const parts[] = { "1/4", "2/4", "3/4", "4/4" };
        pid_t pid = start_large(out, "2/4", NULL, false);
        kill_after(pid, span * (double)t_range(&r, 0, 400) / 1000, SIGKILL);
        waitpid(pid, &status, 0);
        killed += WIFSIGNALED(status);
        CHECK(!large_whole(sum, "part", i));
        for (k = 3; k >= 0; k--) {
            waitpid(start_large(out, parts[k], NULL, k == 1), &status, 0);
            CHECK(ended(status));
        }
        CHECK(!large_whole(sum, "part", i));
        waitpid(start_large(out, NULL, "4", false), &status, 0);
        CHECK(ended(status) && large_whole(sum, "part", i));
        unlink(out);
    }
    CHECK(killed > 10);
    large_end();
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    /* what is killed is the process, not the machine: memory will do for the files */
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    tmp = t_tmpdir();
    snprintf(out, sizeof out, "%s/out", tmp);
    snprintf(ref, sizeof ref, "%s/ref", tmp);
    snprintf(old, sizeof old, "%s/old", tmp);
    RUN(at_every_call);
    RUN(at_every_call_forced);
    RUN(at_every_call_of_parts);
    RUN(at_every_call_of_parts_forced);
    RUN(tool_killed);
    RUN(tool_asked_to_end);
    RUN(continued);
    RUN(continued_again);
    RUN(part_continued);
    t_remove_tree(tmp);
    return t_end();
}
