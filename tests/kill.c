/* SIGKILL in the middle of a conversion: at every call that changes the disk, and at 200 random
   moments of the tool (TOOL, default ./ckptresume). Then the output is absent or whole, at most
   one sibling is left over, `.out.ckptresume-tmp`, and the next run removes it and succeeds.
   SIGTERM leaves no sibling either, and the tool ends by it. */
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
            !strcmp(e->d_name, "ref") || !strcmp(e->d_name, "old")) continue;
        n++;
        if (strcmp(e->d_name, ".out.ckptresume-tmp") && strcmp(e->d_name, ".out.ckptresume-old"))
            *known = false;
    }
    if (d) closedir(d);
    return n;
}

static ckr_result convert(const char *to, bool force, unsigned long kill_at, unsigned long *calls)
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
    if (r == CKR_OK) r = ckr_plan_write(p, to, NULL, &e);
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

static void every_call(bool force)
{
    unsigned long n, calls = 0;
    uint64_t sum_ref, sum_old;
    remove_tree(out);
    remove_tree(ref);
    remove_tree(old);
    make_old(old);
    if (!CHECK(convert(ref, false, 0, NULL) == CKR_OK)) return;
    sum_ref = tree_sum(ref);
    sum_old = tree_sum(old);
    if (force) make_old(out);
    if (!CHECK(convert(out, force, 0, &calls) == CKR_OK)) return;
    CHECK(calls > 50);
    for (n = 1; n <= calls; n++) {
        int status = 0;
        pid_t pid;
        remove_tree(out);
        if (force) make_old(out);
        pid = fork();
        if (pid == 0) _exit(convert(out, force, n, NULL) == CKR_OK ? 0 : 3);
        waitpid(pid, &status, 0);
        t_check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, __FILE__, __LINE__,
                "call %lu: not killed", n);
        after_kill("call", n, force, sum_ref, sum_old);
        if (!force && tree_sum(out) == sum_ref) continue;
        CHECK(convert(out, force, 0, NULL) == CKR_OK);
        after_next_run("call", n, sum_ref);
    }
}

static void at_every_call(void)
{
    every_call(false);
}

static void at_every_call_forced(void)
{
    every_call(true);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static pid_t start_tool(const char *tool, const char *to)
{
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        dup2(null, 2);
        execl(tool, tool, "convert", SOURCE, to, "--tp", "2", "--pp", "1", "--quiet", (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void at_random(int sig)
{
    const char *tool = getenv("TOOL");
    t_rng r = { 12 };
    int i, status = 0, killed = 0;
    double begin, span = 0;
    uint64_t sum_ref;
    bool known;
    if (!tool) tool = "./ckptresume";
    remove_tree(out);
    for (i = 0; i < 3; i++) {
        remove_tree(ref);
        begin = seconds();
        waitpid(start_tool(tool, ref), &status, 0);
        if (seconds() - begin > span) span = seconds() - begin;
        if (!CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0)) return;
    }
    sum_ref = tree_sum(ref);
    for (i = 0; i < 200; i++) {
        struct timespec pause;
        uint64_t ns = (uint64_t)(span * 1e9 * (double)t_range(&r, 0, 1000) / 1000);
        pid_t pid;
        remove_tree(out);
        pid = start_tool(tool, out);
        pause.tv_sec = (time_t)(ns / 1000000000u);
        pause.tv_nsec = (long)(ns % 1000000000u);
        nanosleep(&pause, NULL);
        kill(pid, sig);
        waitpid(pid, &status, 0);
        killed += WIFSIGNALED(status);
        CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == sig : WEXITSTATUS(status) == 0);
        if (sig != SIGKILL) CHECK_INT(siblings(&known), 0);
        after_kill("moment", (unsigned long)i, false, sum_ref, 0);
        if (tree_sum(out) == sum_ref) continue;
        waitpid(start_tool(tool, out), &status, 0);
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
    RUN(tool_killed);
    RUN(tool_asked_to_end);
    t_remove_tree(tmp);
    return t_end();
}
