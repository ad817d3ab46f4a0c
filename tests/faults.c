/* Every n-th allocation and every n-th I/O call fails, once and for good, over open + plan + write
   of a real checkpoint held in memory: the error has the right class, nothing leaks, the output is
   absent or whole, nothing else is left over, the input is untouched, and a second run succeeds.
   The same where it is written in parts, which stay then, and the second run goes on with them. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "memio.h"
#include "tree.h"

/* All of them take a hundred seconds and no call of the system: Windows has every so many. */
#if defined(_WIN32)
#  define EACH 11
#elif defined(__SANITIZE_ADDRESS__)    /* there each takes some ten times as long         */
#  define EACH 3
#else
#  define EACH 1
#endif

#define SOURCE "tests/data/nanotron/tp1_pp2_dp1_tied/ckpt"

static memio mem;
static faulty fault;
static ckr_error err;

/* A sum over names and bytes of everything at or below a path. */
static uint64_t tree_sum(const char *path)
{
    uint64_t sum = 0;
    size_t i;
    for (i = 0; i < mem.n; i++) {
        const memio_file *f = mem.files[i];
        if (strcmp(f->path, path) && !memio_below(f->path, path)) continue;
        sum += ckr__hash_bytes(f->path + strlen(path), strlen(f->path) - strlen(path)) * 3 +
               (f->is_dir ? 1 : ckr__hash_bytes(f->data, f->size));
    }
    return sum;
}

/* Entries of /w: "in" and "out" are expected, and with `parts` their directory by either name;
   anything else is left over. */
static unsigned strangers(bool parts, const char **name)
{
    unsigned n = 0;
    size_t i;
    for (i = 0; i < mem.n; i++) {
        const char *p = mem.files[i]->path;
        if (strncmp(p, "/w/", 3) || strchr(p + 3, '/') || !strcmp(p, "/w/in") ||
            !strcmp(p, "/w/out") ||
            (parts && (!strcmp(p, "/w/.out.ckptresume-parts") ||
                       !strcmp(p, "/w/.out.ckptresume-tmp"))))
            continue;
        *name = p;
        n++;
    }
    return n;
}

typedef struct job { bool force; const char *dialect; uint32_t parts; } job;

/* Calls of each kind before the plan is carried out. */
static unsigned long before[FAULT_KINDS];

/* The fault that the next run meets; kind -1: none. */
static struct { int kind; unsigned long at; bool for_good; int32_t sys; } coming;

static ckr_env env_with_fault(void)
{
    ckr_io io = memio_io(&mem);
    ckr_env env;
    io.lock_fn = memio_lock;
    io.unlock_fn = memio_unlock;
    env = faulty_env(&fault, io);
    fault.kind = coming.kind;
    fault.at = coming.at;
    fault.for_good = coming.for_good;
    fault.sys = coming.sys;
    return env;
}

/* As many parts, one after another, and the commit. */
static ckr_result run_parts(ckr_plan *p, ckr_parts of, ckr_receipt *receipt)
{
    ckr_result r = CKR_OK;
    uint32_t i;
    for (i = 0; i < of.n && r == CKR_OK; i++)
        r = ckr_plan_write_part(p, "/w/out", i, &of, &err);
    return r == CKR_OK ? ckr_plan_commit(p, "/w/out", &of, receipt, &err) : r;
}

static ckr_result run_job(const job *j, bool go_on)
{
    const ckr_parts of = { j->parts, go_on, 0 };
    ckr_open_desc desc = CKR_ZERO;
    ckr_env env = env_with_fault();
    ckr_target t = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_receipt receipt;
    ckr_result r;
    desc.env = &env;
    t.mode = CKR_MODE_CONTINUE;
    t.topology.tp = 2;
    t.topology.pp = 1;
    t.topology.zero = -1;
    t.force = j->force;
    t.dialect = j->dialect;
    t.slots = "all";
    r = ckr_ckpt_open("/w/in", &desc, &c, &err);
    if (r == CKR_OK) r = ckr_plan_create(c, &t, 1 << 20, &p, &err);
    memcpy(before, fault.calls, sizeof before);
    if (r == CKR_OK)
        r = j->parts ? run_parts(p, of, &receipt) : ckr_plan_write(p, "/w/out", &receipt, &err);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    return r;
}

static bool right_class(int kind, ckr_result r)
{
    if (kind == FAULT_ALLOC) return r == CKR_E_NOMEM;
    return r == CKR_E_IO;
}

static const char *const kind_name[] = {
    "alloc", "open",  "create", "share",    "lock",   "read",  "write", "sync",
    "stat",  "list",  "mkdir",  "rename",   "sync_dir", "remove"
};

/* Calls of each kind in a run without faults, and the sums of old, new and input. */
static unsigned long calls[FAULT_KINDS];
static uint64_t sum_new, sum_old, sum_in;

static void one_fault(const job *j, int kind, unsigned long n, bool for_good, int32_t sys)
{
    char label[128];
    const char *name = "";
    bool exists, whole, old;
    unsigned left;
    ckr_result r;
    snprintf(label, sizeof label, "%s %lu of %lu%s%s%s", kind_name[kind], n, calls[kind],
             for_good ? " and later" : "", j->force ? ", --force" : "", j->parts ? ", parts" : "");
    coming.kind = kind;
    coming.at = n;
    coming.for_good = for_good;
    coming.sys = sys;
    mem.early = 0;
    r = run_job(j, false);
    /* where names cannot be swapped in one step, two renames do it; the last two looks are at an
       output that is there, and the last lock is on the old one */
    t_check(r != CKR_OK || kind == FAULT_LIST || (kind == FAULT_RENAME && j->force) ||
                (kind == FAULT_STAT && j->force && n + 1 >= calls[kind]) ||
                (kind == FAULT_LOCK && j->force && n == calls[kind]), __FILE__, __LINE__,
            "%s: no error", label);
    if (r != CKR_OK) {
        t_check(right_class(kind, r), __FILE__, __LINE__, "%s: class %d %s: %s", label, (int)r,
                ckr_item_name(err.item), err.text);
        t_check(err.code == r, __FILE__, __LINE__, "%s: returned %d, the error says %d", label,
                (int)r, (int)err.code);
        if (sys == ENOSPC && kind == FAULT_WRITE)
            t_check(err.item == CKR_ITEM_IO_NO_SPACE, __FILE__, __LINE__, "%s: %s", label,
                    ckr_item_name(err.item));
    }
    t_check(fault.blocks == 0 && fault.bytes == 0, __FILE__, __LINE__,
            "%s: %ld blocks, %llu bytes leaked", label, fault.blocks, fault.bytes);
    t_check(!fault.bad_size, __FILE__, __LINE__, "%s: freed with another size", label);
    t_check(fault.handles == 0 && mem.open_handles == 0 && fault.locks == 0, __FILE__, __LINE__,
            "%s: %ld files left open, %ld locked", label, fault.handles, fault.locks);
    exists = memio_find(&mem, "/w/out") != NULL;
    whole = exists && tree_sum("/w/out") == sum_new;
    old = exists && j->force && tree_sum("/w/out") == sum_old;
    t_check(whole || old || (!exists && !j->force), __FILE__, __LINE__, "%s: the output is %s",
            label, exists ? "there in part" : "gone");
    t_check(r != CKR_OK || whole, __FILE__, __LINE__, "%s: success without output", label);
    /* a commit that fails gives the parts' directory its name back, whatever lies there */
    t_check(mem.early == 0 || (j->parts && r != CKR_OK && !whole), __FILE__, __LINE__,
            "%s: %lu files renamed before they were durable", label, mem.early);
    left = strangers(j->parts && r != CKR_OK, &name);
    /* an old output, or records, whose directories cannot be listed are left to the next run */
    t_check(left == 0 || (r == CKR_OK && (j->force || j->parts) && kind == FAULT_LIST), __FILE__,
            __LINE__, "%s: left over: %s", label, name);
    t_check(tree_sum("/w/in") == sum_in, __FILE__, __LINE__, "%s: the input changed", label);
    coming.kind = -1;
    if (!whole) {
        r = run_job(j, true);
        t_check(r == CKR_OK && tree_sum("/w/out") == sum_new && strangers(false, &name) == 0,
                __FILE__, __LINE__, "%s: the second run: %s %s", label, ckr_item_name(err.item),
                err.text);
    }
}

static void old_output(const job *j)
{
    const char *name;
    size_t i;
    memio_remove(&mem, "/w/out");
    while (strangers(false, &name)) {
        char *p = memio_dup(name, strlen(name));
        memio_remove(&mem, p);
        free(p);
    }
    if (j->force) memio_put(&mem, j->dialect ? "/w/out" : "/w/out/old/file", "what was there", 14);
    for (i = 0; i < mem.n; i++) mem.files[i]->dirty = false;
}

static void all_faults(const job *j)
{
    unsigned long n, before_parts[FAULT_KINDS];
    int kind, good;
    memio_load(&mem, SOURCE, "/w/in");
    sum_in = tree_sum("/w/in");
    old_output(j);
    sum_old = tree_sum("/w/out");
    coming.kind = -1;
    if (!CHECK_OK(run_job(j, false), &err)) return;
    CHECK(fault.blocks == 0 && fault.handles == 0 && !fault.bad_size && mem.early == 0);
    memcpy(calls, fault.calls, sizeof calls);
    memcpy(before_parts, before, sizeof before);
    sum_new = tree_sum("/w/out");
    CHECK(sum_new != sum_old);
    for (kind = 0; kind < FAULT_REMOVE; kind++) {
        const unsigned long first = j->parts ? before_parts[kind] : 0,
                            each = (!j->parts ? 1 : kind == FAULT_ALLOC ? 11 : 3) * EACH;
        CHECK(calls[kind] > 0 || kind == FAULT_MKDIR || kind == FAULT_LIST || j->dialect ||
              (kind == FAULT_SHARE && !j->parts));
        for (good = 0; good < 2; good++)
            for (n = 1 + first; n <= calls[kind]; n += t_times(each, calls[kind] / 2 + 1)) {
                old_output(j);
                one_fault(j, kind, n, good == 1, kind == FAULT_WRITE && n % 2 ? ENOSPC : EIO);
            }
    }
    memio_free(&mem);
}

static void directory(void)
{
    const job j = { false, NULL, 0 };
    all_faults(&j);
}

static void directory_forced(void)
{
    const job j = { true, NULL, 0 };
    all_faults(&j);
}

static void single_file(void)
{
    const job j = { false, "safetensors", 0 };
    all_faults(&j);
}

static void single_file_forced(void)
{
    const job j = { true, "torch", 0 };
    all_faults(&j);
}

/* What goes before the parts is what goes before one write. */
static void parts_of_directory(void)
{
    const job j = { false, NULL, 2 };
    all_faults(&j);
}

static void parts_of_file_forced(void)
{
    const job j = { true, "torch", 2 };
    all_faults(&j);
}

/* The same for what only reads: digest, check, diff, boxes, one file as a tree. */
static ckr_result reading(void)
{
    ckr_open_desc desc = CKR_ZERO;
    ckr_env env = env_with_fault();
    ckr_ckpt *c = NULL, *tree = NULL;
    ckr_report *report = NULL;
    ckr_diff *diff = NULL;
    uint8_t total[16];
    ckr_result r;
    memset(&report, 0, sizeof report);
    memset(&diff, 0, sizeof diff);
    desc.env = &env;
    r = ckr_ckpt_open("/w/in", &desc, &c, &err);
    if (r == CKR_OK) r = ckr_ckpt_digest(c, NULL, total, &err);
    if (r == CKR_OK) r = ckr_ckpt_check(c, &report, &err);
    if (r == CKR_OK) r = ckr_ckpt_diff(c, c, &diff, &err);
    if (r == CKR_OK)
        r = ckr_tree_open("/w/in/13/optimizer/optimizer_pp-0-of-2_tp-0-of-1_exp-0-of-1.pt", &desc,
                          &tree, &err);
    ckr_report_free(report);
    ckr_diff_free(diff);
    ckr_ckpt_close(tree);
    ckr_ckpt_close(c);
    return r;
}

static void readers(void)
{
    static const int kinds[] = { FAULT_ALLOC, FAULT_OPEN, FAULT_READ, FAULT_LIST };
    size_t k;
    int good;
    unsigned long n;
    memio_load(&mem, SOURCE, "/w/in");
    coming.kind = -1;
    if (!CHECK_OK(reading(), &err)) return;
    CHECK(fault.blocks == 0 && fault.handles == 0 && !fault.bad_size);
    memcpy(calls, fault.calls, sizeof calls);
    for (k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (good = 0; good < 2; good++)
            for (n = 1; n <= calls[kinds[k]]; n += t_times(1, calls[kinds[k]] / 2 + 1)) {
                ckr_result r;
                coming.kind = kinds[k];
                coming.at = n;
                coming.for_good = good == 1;
                coming.sys = EIO;
                r = reading();
                t_check(r != CKR_OK && right_class(kinds[k], r) && err.code == r, __FILE__,
                        __LINE__, "%s %lu of %lu: %d %s: %s", kind_name[kinds[k]], n,
                        calls[kinds[k]], (int)r, ckr_item_name(err.item), err.text);
                t_check(fault.blocks == 0 && fault.handles == 0 && !fault.bad_size &&
                            mem.open_handles == 0,
                        __FILE__, __LINE__, "%s %lu: %ld blocks, %ld files left",
                        kind_name[kinds[k]], n, fault.blocks, fault.handles);
            }
    memio_free(&mem);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    RUN(directory);
    RUN_LONG(directory_forced);
    RUN_LONG(single_file);
    RUN(single_file_forced);
    RUN(parts_of_directory);
    RUN(parts_of_file_forced);
    RUN(readers);
    return t_end();
}
