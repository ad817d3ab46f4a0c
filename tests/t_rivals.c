/* What another run does at the worst moment: each test does it inside a hook of the run that is
   looked at, so that it is the same moment every time. POSIX. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"

#include <time.h>

#define TP2 "tests/data/nanotron/tp2_pp1_dp1/ckpt"

extern bool t_far; /* everything is on a network: of the object that tests are linked with */

static const char *g_tmp;
static ckr_io os;              /* the system's own hooks                                */
static ckr_env env;            /* of the run that is looked at                          */
static ckr_error err;
static ckr_target to;
static ckr_parts of;
static uint64_t max_bytes;

/* A path in the test's folder, which stays. */
static const char *at(const char *name)
{
    static char paths[64][700];
    static size_t n;
    const size_t skip = strlen(g_tmp) + 1;
    size_t i = 0;
    while (i < n && strcmp(paths[i] + skip, name)) i++;
    if (i == 64) exit(2);
    if (i == n) snprintf(paths[n++], sizeof paths[0], "%s/%s", g_tmp, name);
    return paths[i];
}

/* A path below one; sixteen of them are there at once. */
static const char *below(const char *path, const char *name)
{
    static char paths[16][900];
    static unsigned next;
    char *p = paths[next++ % 16];
    snprintf(p, sizeof paths[0], "%s/%s", path, name);
    return p;
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static void put_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n);
    if (f) CHECK(fclose(f) == 0);
}

static void put_text(const char *path)
{
    put_file(path, "the rival's", 11);
}

/* The rival's file is what it made. */
static bool has_text(const char *path)
{
    size_t n = 0;
    char *s = (char *)t_slurp(path, &n);
    const bool same = s && n == 11 && !memcmp(s, "the rival's", 11);
    free(s);
    return same;
}

/* What the rival does, once: at a lock on `path`, or where a hook calls for it. */
static struct {
    void       (*act)(void);
    const char  *path;
    void        *lock;
    const char  *with;         /* what it does that with                                */
    bool         acted;
} rival;

static void rival_acts(void)
{
    void (*act)(void) = rival.act;
    rival.act = NULL;
    rival.acted = true;
    act();
}

static void rival_locks(void)
{
    if (!CHECK_INT(os.lock_fn(os.user, rival.path, &rival.lock), 0)) rival.lock = NULL;
}

static void rival_ends(void)
{
    if (rival.lock) os.unlock_fn(os.user, rival.lock);
    rival.lock = NULL;
}

static int32_t lock_late(void *user, const char *path, void **lock)
{
    if (rival.act && !strcmp(path, rival.path)) rival_acts();
    return os.lock_fn(user, path, lock);
}

static void begin(void)
{
    const ckr_env none = CKR_ZERO;
    const ckr_target continued = CKR_ZERO;
    const ckr_parts three = { 3, false, 0 };
    memset(&rival, 0, sizeof rival);
    os = ckr__default_io();
    env = none;
    env.io = os;
    env.parallel.n_threads = 1;
    to = continued;
    to.mode = CKR_MODE_CONTINUE;
    to.topology.zero = -1;
    of = three;
    max_bytes = 0;
}

/* A checkpoint and a plan of it as the next process has them. */
typedef struct process { ckr_ckpt *c; ckr_plan *p; } process;

static process plan_of(const char *from, const ckr_env *e)
{
    ckr_open_desc d = CKR_ZERO;
    process x = { NULL, NULL };
    d.env = e;
    if (!CHECK_OK(ckr_ckpt_open(from, &d, &x.c, &err), &err)) return x;
    if (t_far) x.c->ctx.away = true;           /* where hooks open the files, too       */
    CHECK_OK(ckr_plan_create(x.c, &to, max_bytes, &x.p, &err), &err);
    CHECK(!x.p || (x.p->n_far > 0) == t_far);
    return x;
}

static void drop(process x)
{
    ckr_plan_free(x.p);
    ckr_ckpt_close(x.c);
}

static ckr_result write_to(const char *from, const char *out)
{
    const process x = plan_of(from, &env);
    const ckr_result r = x.p ? ckr_plan_write(x.p, out, NULL, &err) : CKR_E_ARG;
    drop(x);
    return r;
}

/* The same where nobody disturbs. */
static void write_alone(const char *from, const char *out)
{
    const process x = plan_of(from, NULL);
    if (x.p) CHECK_OK(ckr_plan_write(x.p, out, NULL, &err), &err);
    drop(x);
}

static bool same(const char *a, const char *b)
{
    return os_same_tree(a, b) && os_same_tree(b, a);
}

static void is_busy(ckr_result r, const char *out, int line)
{
    t_check(r == CKR_E_REFUSED && err.item == CKR_ITEM_OUTPUT_BUSY, __FILE__, line,
            "%d %s: %s: %s", (int)r, ckr_item_name(err.item), err.file, err.text);
    t_check(!is_there(out), __FILE__, line, "there is an output");
    t_check(rival.acted, __FILE__, line, "the rival did nothing");
}
#define BUSY(r, out) is_busy((r), (out), __LINE__)

/* `n` floats in one file that a plan reads, and few elements more. */
static void make_input(const char *path, int64_t n, float first)
{
    const int64_t few[2] = { 3, 5 };
    float *x = (float *)calloc((size_t)n + 15, sizeof *x);
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_target t = CKR_ZERO;
    if (!CHECK(x != NULL)) return;
    for (int64_t i = 0; i < n; i++) x[i] = i % 70000 < 35000 ? (float)(i % 1000) + first : 0;
    t_little(x, (size_t)n * sizeof *x, 4);
    t.dialect = "safetensors";
    t.force = true;
    CHECK_OK(ckr_ckpt_create(NULL, &c, &err), &err);
    CHECK_OK(ckr_ckpt_put(c, "a", "param", CKR_DTYPE_F32, 1, &n, x, &err), &err);
    CHECK_OK(ckr_ckpt_put(c, "b", "param", CKR_DTYPE_F32, 2, few, x, &err), &err);
    if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &err), &err))
        CHECK_OK(ckr_plan_write(p, path, NULL, &err), &err);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    free(x);
}

/* ---- the temporary name ---- */

/* Takes what was made just now for a dead run's, and is at work under the name by now. Files are
   called as the run's own, which it would remove by their names. */
static void takes_name(void)
{
    os_remove_tree(rival.path);
    CHECK(mkdir(rival.path, 0777) == 0);
    put_text(below(rival.path, CKR__SIDE_FILE));
    put_text(below(rival.path, "latest.txt"));
    rival_locks();
}

static bool has_taken(void)
{
    return has_text(below(rival.path, CKR__SIDE_FILE)) && has_text(below(rival.path, "latest.txt"));
}

static void clears_name(void)
{
    os_remove_tree(rival.path);
}

static void makes_and_locks(void)
{
    CHECK(remove(rival.path) == 0);
    put_text(rival.path);
    rival_locks();
}

/* A directory or a file that was made and has no lock yet goes, and may be another's when it is
   locked: nothing under the name is this run's. */
static void before_the_lock(void)
{
    static void (*const acts[])(void) = { takes_name, clears_name, makes_and_locks, clears_name };
    for (int i = 0; i < 4; i++) {
        const char *out = at("one"), *temp = at(".one.ckptresume-tmp");
        begin();
        to.dialect = i < 2 ? NULL : "torch";
        env.io.lock_fn = lock_late;
        rival.act = acts[i];
        rival.path = temp;
        BUSY(write_to(TP2, out), out);
        CHECK(i == 0 ? has_taken() : i == 2 ? has_text(temp) : !is_there(temp));
        rival_ends();
        CHECK_OK(write_to(TP2, out), &err);
        CHECK(!is_there(temp));
        os_remove_tree(out);
    }
}

/* Another file of that name, without a lock, and with bytes in it: what the run writes, zeros too,
   goes into the file that it has the lock of. */
static void makes_file(void)
{
    char bytes[3000];
    memset(bytes, 0xff, sizeof bytes);
    CHECK(remove(rival.path) == 0);
    put_file(rival.path, bytes, rival.with ? sizeof bytes : 0);
    if (rival.with) CHECK(truncate(rival.path, 300000) == 0);
}

static void another_file(void)
{
    static const char *const dialects[] = { "safetensors", "torch" };
    begin();
    make_input(at("in.safetensors"), 300000, 1);
    for (int i = 0; i < 4; i++) {
        const char *out = at("two"), *ref = at("two.ref"), *temp = at(".two.ckptresume-tmp");
        begin();
        to.dialect = dialects[i / 2];
        write_alone(at("in.safetensors"), ref);
        env.io.lock_fn = lock_late;
        rival.act = makes_file;
        rival.path = temp;
        rival.with = i % 2 ? "bytes" : NULL;
        CHECK_OK(write_to(at("in.safetensors"), out), &err);
        CHECK(rival.acted && same(out, ref) && !is_there(temp));
        remove(out);
        remove(ref);
    }
}

/* Right after the two names were swapped. */
static int32_t path_swapped(void *user, ckr_path_op op, const char *path, const char *target)
{
    const int32_t r = os.path_fn(user, op, path, target);
    if (op == CKR_PATH_EXCHANGE && r == 0 && rival.act) rival_acts();
    return r;
}

static void after_the_swap(void)
{
    static void (*const acts[])(void) = { rival_locks, takes_name };
    const char *ref = at("three.ref"), *old = at("three.old");
    begin();
    to.topology.tp = 1;
    write_alone(TP2, ref);
    for (int i = 0; i < 2; i++) {
        const char *out = at("three"), *temp = at(".three.ckptresume-tmp");
        begin();
        os_remove_tree(out);
        write_alone(TP2, out);
        os_remove_tree(old);
        write_alone(TP2, old);
        to.topology.tp = 1;
        to.force = true;
        env.io.path_fn = path_swapped;
        rival.act = acts[i];
        rival.path = temp;
        CHECK_OK(write_to(TP2, out), &err);
        CHECK(same(out, ref));
        if (!rival.acted) return;              /* no such thing on this file system     */
        CHECK(i ? has_taken() : same(temp, old));
        rival_ends();
        CHECK_OK(write_to(TP2, out), &err);
        CHECK(same(out, ref) && !is_there(temp));
    }
}

/* ---- before the rename ---- */

static int32_t path_before(void *user, ckr_path_op op, const char *path, const char *target)
{
    if (op == CKR_PATH_SYNC_DIR && rival.act && !strcmp(path, rival.path)) rival_acts();
    return os.path_fn(user, op, path, target);
}

static void brings_tree(void)
{
    CHECK(rename(rival.path, at("four.away")) == 0);
    CHECK(rename(rival.with, rival.path) == 0);
}

static void removes_file(void)
{
    CHECK(remove(below(rival.path, rival.with)) == 0);
}

static void cuts_file(void)
{
    struct stat st;
    const char *path = below(rival.path, rival.with);
    CHECK(stat(path, &st) == 0 && st.st_size > 0 && truncate(path, st.st_size - 1) == 0);
}

static void before_the_rename(void)
{
    const char *out = at("four"), *temp = at(".four.ckptresume-tmp"), *ref = at("four.ref");
    begin();
    write_alone(TP2, ref);
    write_alone(TP2, at("four.other"));
    env.io.path_fn = path_before;
    rival.act = brings_tree;
    rival.path = temp;
    rival.with = at("four.other");
    BUSY(write_to(TP2, out), out);
    CHECK(same(temp, ref));
    os_remove_tree(temp);
}

/* The first file, the last one, or the side file goes, or a byte of it. */
static void files_less(int first, int end)
{
    static void (*const acts[])(void) = { removes_file, cuts_file };
    const char *out = at("four"), *temp = at(".four.ckptresume-tmp");
    for (int i = first; i < end; i++) {
        process x;
        const ckr_plan_facts *f;
        begin();
        env.io.path_fn = path_before;
        rival.act = acts[i % 2];
        rival.path = temp;
        x = plan_of(TP2, &env);
        if (!x.p) return;
        f = ckr_plan_info(x.p);
        rival.with = i < 2 ? f->files[0].path : i < 4 ? f->files[f->n_files - 1].path
                                                      : CKR__SIDE_FILE;
        BUSY(ckr_plan_write(x.p, out, NULL, &err), out);
        CHECK(!is_there(temp));
        drop(x);
        os_remove_tree(out);
    }
}

static void one_file_less(void)
{
    files_less(0, 4);
}

static void side_file_less(void)
{
    files_less(4, 6);
}

static int32_t sync_before(void *user, void *file)
{
    const int32_t r = os.sync_fn(user, file);
    if (rival.act) rival_acts();
    return r;
}

static void brings_file(void)
{
    CHECK(remove(rival.path) == 0);
    put_text(rival.path);
}

/* The same of one file: its name is another's when it is written. */
static void single_is_another(void)
{
    const char *out = at("four.pt"), *temp = at(".four.pt.ckptresume-tmp");
    begin();
    to.dialect = "torch";
    env.io.sync_fn = sync_before;
    rival.act = brings_file;
    rival.path = temp;
    BUSY(write_to(TP2, out), out);
    CHECK(has_text(temp));
    remove(temp);
}

/* ---- what is written is made durable ---- */

enum { MOST = 512 };

static struct {
    ckr__lock lock;
    struct { const void *file; bool dirty; } of[MOST];
    size_t n;
    unsigned long made, synced, closed, early;
    unsigned long writes, fails_at, after;     /* of one lane's error                    */
} seen;

/* The place of an open file, which is new where it was not told of. */
static size_t seen_at(const void *file)
{
    size_t i = 0;
    while (i < seen.n && seen.of[i].file != file) i++;
    if (i == seen.n && seen.n < MOST - 1) {
        seen.n++;
        seen.of[i].file = file;
        seen.of[i].dirty = false;
    }
    return i;
}

static void seen_mark(const void *file, bool dirty)
{
    CKR__ENTER(&seen.lock);
    seen.of[seen_at(file)].dirty = dirty;
    CKR__LEAVE(&seen.lock);
}

static int32_t seen_open(void *user, const char *path, bool create, void **file, uint64_t *size)
{
    const int32_t r = os.open_fn(user, path, create, file, size);
    if (r) return r;
    CKR__ENTER(&seen.lock);
    seen.of[seen_at(*file)].dirty = create;
    seen.made += create;
    CKR__LEAVE(&seen.lock);
    return 0;
}

static int32_t seen_share(void *user, const char *path, uint64_t size, void **file)
{
    const int32_t r = os.share_fn(user, path, size, file);
    if (!r) seen_mark(*file, false);
    return r;
}

static int32_t seen_write(void *user, void *file, uint64_t offset, const void *src, size_t n)
{
    seen_mark(file, true);
    return os.write_fn(user, file, offset, src, n);
}

static int32_t seen_sync(void *user, void *file)
{
    const int32_t r = os.sync_fn(user, file);
    if (!r) seen_mark(file, false);
    CKR__ENTER(&seen.lock);
    seen.synced++;
    CKR__LEAVE(&seen.lock);
    return r;
}

static void seen_close(void *user, void *file)
{
    CKR__ENTER(&seen.lock);
    const size_t i = seen_at(file);
    seen.early += seen.of[i].dirty;
    seen.closed++;
    seen.of[i] = seen.of[--seen.n];
    CKR__LEAVE(&seen.lock);
    os.close_fn(user, file);
}

/* `all`: the files are opened through hooks, too, else as the system's own hooks do it alone. */
static void durable_begin(bool all)
{
    begin();
    seen.n = 0;
    seen.made = seen.synced = seen.closed = seen.early = 0;
    env.parallel.n_threads = 4;
    if (all) env.io.open_fn = seen_open;
    if (all) env.io.share_fn = seen_share;
    env.io.write_fn = seen_write;
    env.io.sync_fn = seen_sync;
    env.io.close_fn = seen_close;
}

static void durable_is(const char *label, unsigned long least)
{
    t_check(!seen.early, __FILE__, __LINE__, "%s: %lu of %lu were closed before they were synced",
            label, seen.early, seen.closed);
    t_check(seen.synced >= least, __FILE__, __LINE__, "%s: %lu syncs", label, seen.synced);
}

static void durable(void)
{
    if (!CHECK(CKR__LOCK_MAKE(&seen.lock))) return;
    for (int i = 0; i < 8; i++) {
        const bool single = i & 1, all = i & 2;
        const char *out = at("five");
        t_far = (i & 4) != 0;
        durable_begin(all);
        to.dialect = single ? "torch" : NULL;
        CHECK_OK(write_to(TP2, out), &err);
        durable_is(single ? "one file" : "a directory", single ? 1 : 4);
        if (all) CHECK_INT(seen.n, 0);
        if (all) CHECK(single ? seen.made == 1 : seen.made > 4);
        if (all) CHECK(seen.synced >= seen.made);
        os_remove_tree(out);
        durable_begin(all);
        to.dialect = single ? "torch" : NULL;
        for (uint32_t part = 0; part <= of.n; part++) {
            const process x = plan_of(TP2, &env);
            if (x.p && part < of.n) CHECK_OK(ckr_plan_write_part(x.p, out, part, &of, &err), &err);
            else if (x.p) CHECK_OK(ckr_plan_commit(x.p, out, &of, NULL, &err), &err);
            drop(x);
        }
        durable_is("parts", of.n);
        os_remove_tree(out);
    }
    t_far = false;
    CKR__LOCK_FREE(&seen.lock);
}

/* How a file is open that a handle stands for, or is opened anew once it was parked. */
static int way_of(void *file)
{
    ckr__os_file *f = (ckr__os_file *)file;
    int fd = -1, way;
    if (!CHECK_INT(ckr__os_take(f, &fd), 0)) return -1;
    way = fcntl(fd, F_GETFL) & O_ACCMODE;
    ckr__os_drop(f, fd);
    return way;
}

/* What two processes write is never read by either: else a client of NFS would write the other's
   bytes back as it has read them. */
static void not_to_be_read(void)
{
    for (int i = 0; i < 4; i++) {
        const char *path = at("six");
        void *file = NULL;
        uint64_t size = 0;
        char got[2];
        begin();
        if (i == 3) put_text(path);
        const int32_t r = i % 2 ? os.share_fn(os.user, path, 100, &file)
                                : os.open_fn(os.user, path, true, &file, &size);
        if (!CHECK_INT(r, 0)) return;
        CHECK_INT(way_of(file), O_WRONLY);
        CHECK_INT(os.write_fn(os.user, file, 1, "b", 1), 0);
        os.park_fn(os.user, file);
        CHECK_INT(way_of(file), O_WRONLY);
        CHECK_INT(os.write_fn(os.user, file, 0, "a", 1), 0);
        CHECK_INT(os.sync_fn(os.user, file), 0);
        os.close_fn(os.user, file);
        if (!CHECK_INT(os.open_fn(os.user, path, false, &file, &size), 0)) return;
        CHECK_INT(size, i % 2 ? 100 : 2);
        CHECK_INT(way_of(file), O_RDONLY);
        CHECK_INT(os.read_fn(os.user, file, 0, got, 2), 0);
        CHECK(!memcmp(got, "ab", 2));
        os.close_fn(os.user, file);
        remove(path);
    }
}

/* ---- parts ---- */

static ckr_result part_of(const char *from, const char *out, uint32_t part, const ckr_env *e)
{
    const process x = plan_of(from, e);
    const ckr_result r = x.p ? ckr_plan_write_part(x.p, out, part, &of, &err) : CKR_E_ARG;
    drop(x);
    return r;
}

static ckr_result commit_of(const char *from, const char *out, const ckr_env *e)
{
    const process x = plan_of(from, e);
    const ckr_result r = x.p ? ckr_plan_commit(x.p, out, &of, NULL, &err) : CKR_E_ARG;
    drop(x);
    return r;
}

/* Parts [first, n) and the commit, which give what one process gives. */
static void rest_is(const char *from, const char *out, uint32_t first, const char *ref)
{
    for (uint32_t i = first; i < of.n; i++) CHECK_OK(part_of(from, out, i, NULL), &err);
    CHECK_OK(commit_of(from, out, NULL), &err);
    CHECK(same(out, ref));
}

/* Another file takes an input's name: of the same size, and as old. */
static void replaced(void)
{
    const char *in = at("in7.safetensors"), *next = at("next7.safetensors"), *out = at("seven"),
               *ref = at("seven.ref");
    struct stat st;
    struct timespec times[2];
    begin();
    make_input(in, 3000, 1);
    make_input(next, 3000, 2);
    to.dialect = "torch";
    write_alone(next, ref);
    if (!CHECK(stat(in, &st) == 0)) return;
    memset(times, 0, sizeof times);
    times[0].tv_sec = times[1].tv_sec = st.st_mtime;
    CHECK(utimensat(AT_FDCWD, in, times, 0) == 0 && utimensat(AT_FDCWD, next, times, 0) == 0);
    const process x = plan_of(in, NULL), y = plan_of(in, NULL);
    if (!x.p || !y.p) return;
    CHECK_OK(ckr_plan_write_part(y.p, at("seven.was"), 0, &of, &err), &err);
    CHECK(rename(next, in) == 0);
    CHECK(ckr_plan_write_part(x.p, out, 0, &of, &err) != CKR_OK);
    CHECK_INT(err.item, CKR_ITEM_PART_INPUT);
    CHECK_STR(err.file, in);
    CHECK(ckr_plan_begin(x.p, out, &of, &err) != CKR_OK && err.item == CKR_ITEM_PART_INPUT);
    CHECK(ckr_plan_write_part(y.p, at("seven.was"), 1, &of, &err) != CKR_OK);
    CHECK_INT(err.item, CKR_ITEM_PART_INPUT);
    CHECK(ckr_plan_commit(y.p, at("seven.was"), &of, NULL, &err) != CKR_OK);
    CHECK_INT(err.item, CKR_ITEM_PART_INPUT);
    drop(x);
    drop(y);
    CHECK(!is_there(out));
    rest_is(in, out, 0, ref);
    remove(out);
    remove(ref);
    os_remove_tree(at(".seven.was.ckptresume-parts"));
}

static void replaced_input(void)
{
    replaced();
    t_far = true;
    replaced();
    t_far = false;
}

/* All parts are begun anew, as the options are by then, and one has its record already. */
static void begins_anew(void)
{
    const process x = plan_of(TP2, NULL);
    if (x.p) CHECK_OK(ckr_plan_begin(x.p, rival.with, &of, &err), &err);
    drop(x);
    put_file(rival.path, "", 0);
}

static void begins_another(void)
{
    to.topology.tp = 2;
    begins_anew();
}

static void begins_with_nonce(void)
{
    of.nonce = 8;
    begins_anew();
}

/* A part that has not locked its record is no part of what was begun meanwhile: with other options,
   or the same under another nonce; where it made the directory, and where others had. */
static void begun_anew(void)
{
    static void (*const acts[])(void) = { begins_another, begins_with_nonce };
    const char *out = at("eight"), *ref = at("eight.ref");
    for (int i = 0; i < 4; i++) {
        process x;
        ckr_parts mine;
        begin();
        os_remove_tree(ref);
        os_remove_tree(out);
        to.topology.tp = i % 2 ? 1 : 2;
        write_alone(TP2, ref);
        to.topology.tp = 1;
        of.nonce = i % 2 ? 7 : 0;
        if (i) {
            x = plan_of(TP2, NULL);
            if (x.p) CHECK_OK(ckr_plan_begin(x.p, out, &of, &err), &err);
            if (x.p && i > 1) CHECK_OK(ckr_plan_write_part(x.p, out, 0, &of, &err), &err);
            drop(x);
        }
        mine = of;
        env.io.lock_fn = lock_late;
        rival.act = acts[i % 2];
        rival.path = at(".eight.ckptresume-parts/1");
        rival.with = out;
        x = plan_of(TP2, &env);
        CHECK(x.p && ckr_plan_write_part(x.p, out, 0, &mine, &err) != CKR_OK);
        drop(x);
        t_check(err.item == CKR_ITEM_OUTPUT_BUSY || err.item == CKR_ITEM_PART_PLAN, __FILE__,
                __LINE__, "%d: %s: %s: %s", i, ckr_item_name(err.item), err.file, err.text);
        CHECK(rival.acted && !is_there(out));
        rest_is(TP2, out, 0, ref);
    }
}

/* The parts' directory is away, and its name is a file that another run writes. */
static void takes_name_as_file(void)
{
    CHECK(rename(rival.path, at("nine.away")) == 0);
    put_text(rival.path);
    rival_locks();
}

static void committed_name(void)
{
    const char *out = at("nine"), *temp = at(".nine.ckptresume-tmp"),
               *parts = at(".nine.ckptresume-parts"), *ref = at("nine.ref");
    begin();
    write_alone(TP2, ref);
    for (uint32_t i = 0; i < of.n; i++) CHECK_OK(part_of(TP2, out, i, NULL), &err);
    env.io.lock_fn = lock_late;
    rival.act = takes_name_as_file;
    rival.path = temp;
    BUSY(commit_of(TP2, out, &env), out);
    CHECK(has_text(temp) && !is_there(parts));
    rival_ends();
    CHECK(remove(temp) == 0 && rename(at("nine.away"), parts) == 0);
    rest_is(TP2, out, of.n, ref);
}

/* ---- an input by one of our names ---- */

/* `from`, as it is in `in`, is refused by all, and stays as it is. */
static void refused_inside(const char *from, const char *in, const char *ref)
{
    static const char *const calls[] = { "write", "part", "commit", "begin" };
    const char *out = at("ten");
    for (int i = 0; i < 4; i++) {
        const process x = plan_of(from, NULL);
        ckr_result r;
        if (!x.p) return;
        r = i == 0   ? ckr_plan_write(x.p, out, NULL, &err)
            : i == 1 ? ckr_plan_write_part(x.p, out, 0, &of, &err)
            : i == 2 ? ckr_plan_commit(x.p, out, &of, NULL, &err)
                     : ckr_plan_begin(x.p, out, &of, &err);
        drop(x);
        t_check(r != CKR_OK && err.item == CKR_ITEM_OUTPUT_INSIDE, __FILE__, __LINE__,
                "%s, %s: %s: %s", calls[i], from, ckr_item_name(err.item), err.text);
        t_check(same(in, ref) && !is_there(out), __FILE__, __LINE__, "%s, %s: it is gone", calls[i],
                from);
        os_remove_tree(out);
    }
}

static void input_by_our_name(void)
{
    static const char *const names[] = { ".ten.ckptresume-tmp", ".ten.ckptresume-old",
                                         ".ten.ckptresume-parts" };
    const char *ref = at("ten.ref"), *single = at("ten.safetensors"), *dir = at("ten.dir");
    begin();
    write_alone(TP2, ref);
    make_input(single, 3000, 1);
    CHECK(mkdir(dir, 0777) == 0);
    make_input(below(dir, "x.safetensors"), 3000, 1);
    for (int i = 0; i < 9; i++) {
        const char *in = at(names[i % 3]);
        begin();
        to.force = i % 2;
        if (i / 3 == 0) {
            write_alone(TP2, in);
            refused_inside(in, in, ref);
        } else if (i / 3 == 1) {
            to.dialect = "torch";
            make_input(at("ten.made.safetensors"), 3000, 1);
            CHECK(rename(at("ten.made.safetensors"), in) == 0);
            refused_inside(in, in, single);
        } else {
            CHECK(mkdir(in, 0777) == 0);
            to.dialect = "torch";
            make_input(below(in, "x.safetensors"), 3000, 1);
            refused_inside(below(in, "x.safetensors"), in, dir);
        }
        os_remove_tree(in);
        os_remove_tree(at("ten"));
    }
}

/* ---- one lane's error ---- */

/* The lane that fails has the time to say so. */
static const struct timespec while_told = { 0, 20000000 };

static int32_t failing_write(void *user, void *file, uint64_t offset, const void *src, size_t n)
{
    CKR__ENTER(&seen.lock);
    const bool fails = ++seen.writes == seen.fails_at,
               late = seen.fails_at && seen.writes > seen.fails_at;
    seen.after += late;
    CKR__LEAVE(&seen.lock);
    if (late) nanosleep(&while_told, NULL);
    return fails ? EIO : os.write_fn(user, file, offset, src, n);
}

static void one_by_one(void *user, uint32_t n_threads, uint32_t n_tasks,
                       void (*task_fn)(void *arg, uint32_t i), void *arg)
{
    (void)user;
    (void)n_threads;
    for (uint32_t i = 0; i < n_tasks; i++) task_fn(arg, i);
}

/* The others end with the windows that they are at. */
static void one_error(void)
{
    const char *in = at("in11.safetensors"), *out = at("eleven");
    if (!CHECK(CKR__LOCK_MAKE(&seen.lock))) return;
    begin();
    make_input(in, 12 << 20, 1);
    for (int i = 0; i < 8; i++) {
        unsigned long all = 0;
        t_far = (i & 1) != 0;
        for (int again = 0; again < 2; again++) {      /* undisturbed, and then not        */
            process x;
            begin();
            to.dialect = "torch";
            max_bytes = t_far ? 0 : 2 << 20;
            env.parallel.n_threads = 4;
            if (i & 2) env.parallel.for_fn = one_by_one;
            env.io.write_fn = failing_write;
            seen.writes = seen.after = 0;
            seen.fails_at = again ? i & 4 ? 3 : 1 : 0;
            x = plan_of(in, &env);
            if (!x.p) return;
            CHECK(x.p->ctx.env.parallel.n_threads == 4);
            const ckr_result r = ckr_plan_write(x.p, out, NULL, &err);
            if (!again) CHECK_OK(r, &err);
            if (!again) all = seen.writes;
            CHECK(all > (t_far ? 10 : 30));
            if (again) {
                CHECK(r == CKR_E_IO && err.item == CKR_ITEM_IO_WRITE && err.sys_error == EIO);
                t_check(seen.after <= 6, __FILE__, __LINE__, "%d: %lu of %lu writes after it", i,
                        seen.after, all);
            }
            CHECK(is_there(out) == !again && !is_there(at(".eleven.ckptresume-tmp")));
            remove(out);
            drop(x);
        }
    }
    t_far = false;
    CKR__LOCK_FREE(&seen.lock);
    remove(in);
}

/* ---- ranks ---- */

static bool sync_fails;

static int32_t failing_sync(void *user, void *file)
{
    const int32_t r = os.sync_fn(user, file);
    return sync_fails ? EIO : r;
}

/* A tensor of which each of two ranks has the half. */
static process rank_of(uint32_t rank)
{
    static float values[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    const int64_t shape[2] = { 4, 2 }, count[2] = { 2, 2 };
    ckr_open_desc d = CKR_ZERO;
    process x = { NULL, NULL };
    d.env = &env;
    to.dialect = "dcp";
    if (!CHECK_OK(ckr_ckpt_create(&d, &x.c, &err), &err)) return x;
    for (uint32_t r = 0; r < 2; r++) {
        const int64_t start[2] = { 2 * r, 0 };
        CHECK_OK(ckr_ckpt_put_box(x.c, "w", "param", CKR_DTYPE_F32, 2, shape, r, start, count,
                                  r == rank ? values + 4 * r : NULL, &err), &err);
    }
    CHECK_OK(ckr_plan_create(x.c, &to, 0, &x.p, &err), &err);
    return x;
}

static size_t n_files(const char *dir)
{
    DIR *d = opendir(dir);
    const struct dirent *e;
    size_t n = 0;
    while (d && (e = readdir(d)) != NULL) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

/* A rank whose bytes may not be there after a power loss has written no file. */
static void rank_not_durable(void)
{
    const char *out = at("twelve"), *temp = at(".twelve.ckptresume-tmp");
    begin();
    env.io.sync_fn = failing_sync;
    const process x = rank_of(0), y = rank_of(1);
    if (!x.p || !y.p) return;
    CHECK_OK(ckr_plan_write_rank(y.p, out, 1, &err), &err);
    CHECK_INT(n_files(temp), 1);
    sync_fails = true;
    CHECK(ckr_plan_write_rank(x.p, out, 0, &err) == CKR_E_IO);
    CHECK(err.item == CKR_ITEM_IO_SYNC && err.sys_error == EIO);
    sync_fails = false;
    CHECK_INT(n_files(temp), 1);
    CHECK(ckr_plan_write_end(x.p, out, &err) == CKR_E_NOT_FOUND && !is_there(out));
    CHECK_OK(ckr_plan_write_rank(x.p, out, 0, &err), &err);
    CHECK_OK(ckr_plan_write_end(x.p, out, &err), &err);
    CHECK(is_there(out) && !is_there(temp));
    drop(x);
    drop(y);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    g_tmp = t_tmpdir();
    RUN(before_the_lock);
    RUN(another_file);
    RUN(after_the_swap);
    RUN(before_the_rename);
    RUN(one_file_less);
    RUN(side_file_less);
    RUN(single_is_another);
    RUN(durable);
    RUN(not_to_be_read);
    RUN(replaced_input);
    RUN(begun_anew);
    RUN(committed_name);
    RUN(input_by_our_name);
    RUN_LONG(one_error);
    RUN(rank_not_durable);
    t_remove_tree(g_tmp);
    return t_end();
}
