/* check: what is not finite, by tensor; what no checksum covers, in bytes; each byte read once, and
   in the buffers that the caller allows. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "ckpt.h"

enum { WIDE = 1 << 20, NARROW = 64 };

static float wide[WIDE], moment[WIDE], narrow[NARROW];

/* Two weights and a moment: NaN twice and an infinity among the weights, two in the moment. */
static ckr_ckpt *run_of(bool spoiled)
{
    static const int64_t big[] = { WIDE / 1024, 1024 }, small[] = { NARROW };
    static const char *const names[] = { "wide", "narrow" };
    static const ckr_hyper lr = { "lr", 0.5 };
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_error e;
    size_t i;
    d.env = &env;
    for (i = 0; i < WIDE; i++) wide[i] = (float)i / WIDE - 0.5f;
    for (i = 0; i < WIDE; i++) moment[i] = (float)(i % 97) / 97;
    for (i = 0; i < NARROW; i++) narrow[i] = (float)i;
    if (spoiled) {
        wide[3] = wide[WIDE - 1] = (float)ckr__nan();
        narrow[NARROW / 2] = (float)-ckr__inf();
        moment[WIDE / 2] = moment[7] = (float)ckr__inf();
    }
    if (!CHECK_OK(ckr_ckpt_create(&d, &c, &e), &e)) exit(2);
    CHECK_OK(ckr_ckpt_put(c, "wide", "param", CKR_DTYPE_F32, 2, big, wide, &e), &e);
    CHECK_OK(ckr_ckpt_put(c, "narrow", "param", CKR_DTYPE_F32, 1, small, narrow, &e), &e);
    CHECK_OK(ckr_ckpt_put(c, "wide", "exp_avg", CKR_DTYPE_F32, 2, big, moment, &e), &e);
    CHECK_OK(ckr_ckpt_put_group(c, "0", names, 2, &lr, 1, &e), &e);
    return c;
}

static bool write_as(ckr_ckpt *c, const char *dialect, const char *path)
{
    ckr_target t = CKR_ZERO;
    t.dialect = dialect;
    return written(c, dialect, path, &t);
}

static ckr_report *report_of(ckr_ckpt *c)
{
    ckr_report *r = NULL;
    ckr_error e;
    if (!CHECK_OK(ckr_ckpt_check(c, &r, &e), &e)) exit(2);
    return r;
}

/* Counted by tensor; said once for the weights and once for the optimizer; the files are sound. */
static void not_finite(void)
{
    static const char *const files[][2] = { { "torch", "w/a.pt" }, { "dcp", "w/dcp" } };
    size_t k;
    uint64_t i, nan, inf, notes;
    for (k = 0; k < 2; k++)
        if (write_as(run_of(true), files[k][0], files[k][1])) {
            ckr_ckpt *c = open_ok(files[k][1]);
            ckr_report *r = report_of(c);
            CHECK(r->sound);
            CHECK_INT(r->n_nonfinite, 3);
            for (i = nan = inf = 0; i < r->n_nonfinite; i++) {
                const ckr_nonfinite *x = &r->nonfinite[i];
                nan += x->nan;
                inf += x->inf;
                CHECK_INT(x->n_elements, strcmp(x->tensor->name, "narrow") ? WIDE : NARROW);
                CHECK_INT(x->nan, !strcmp(x->tensor->name, "wide") &&
                                          !strcmp(x->tensor->slot, "param") ? 2 : 0);
            }
            CHECK_INT(nan, 2);
            CHECK_INT(inf, 3);
            for (i = notes = 0; i < r->n_notes; i++) {
                if (strcmp(r->notes[i].code, "CKR_W_NOT_FINITE") != 0) continue;
                CHECK_INT(r->notes[i].severity, CKR_LOST);
                notes++;
            }
            CHECK_INT(notes, 2);
            ckr_report_free(r);
            ckr_ckpt_close(c);
            memio_remove(&disk, files[k][1]);
        }
    if (write_as(run_of(false), "torch", "w/a.pt")) {
        ckr_ckpt *c = open_ok("w/a.pt");
        ckr_report *r = report_of(c);
        CHECK_INT(r->n_nonfinite, 0);
        CHECK(!note_of(r->notes, r->n_notes, "CKR_W_NOT_FINITE"));
        ckr_report_free(r);
        ckr_ckpt_close(c);
    }
    memio_remove(&disk, "w/a.pt");
}

/* A zip's members have checksums; tensors of safetensors have none. */
static void cover(void)
{
    const uint64_t all = 4 * (2 * (uint64_t)WIDE + NARROW);
    static const struct { const char *dialect, *path; bool covered; } rows[] = {
        { "torch", "w/a.pt", true }, { "dcp", "w/dcp", true }, { "safetensors", "w/a.st", false }
    };
    size_t k;
    for (k = 0; k < sizeof rows / sizeof *rows; k++)
        if (write_as(run_of(false), rows[k].dialect, rows[k].path)) {
            ckr_ckpt *c = open_ok(rows[k].path);
            ckr_report *r = report_of(c);
            const bool told = note_of(r->notes, r->n_notes, "CKR_N_NO_CHECKSUM") != NULL;
            CHECK(r->sound);
            CHECK_INT(r->tensor_bytes, all);
            CHECK_INT(r->uncovered_bytes, rows[k].covered ? 0 : all);
            CHECK_INT(told, !rows[k].covered);
            ckr_report_free(r);
            ckr_ckpt_close(c);
            memio_remove(&disk, rows[k].path);
        }
}

static uint64_t bytes_read, held, most;
static int32_t (*disk_read)(void *user, void *file, uint64_t offset, void *dst, size_t n);

static int32_t counted(void *user, void *file, uint64_t offset, void *dst, size_t n)
{
    bytes_read += n;
    return disk_read(user, file, offset, dst, n);
}

static void *take(void *user, size_t size, size_t align)
{
    void *p = malloc(size ? size : 1);
    (void)user, (void)align;
    if (p) held += size;
    if (held > most) most = held;
    return p;
}

static void give(void *user, void *p, size_t size, size_t align)
{
    (void)user, (void)align;
    if (p) held -= size;
    free(p);
}

/* Bytes read and memory at most by a check or a digest of a file in so much of buffers. */
static void cost(const char *path, bool digest, uint64_t buffers)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_env own = env;
    ckr_ckpt *c = NULL;
    ckr_error e;
    uint8_t total[16];
    own.io.read_fn = counted;
    own.parallel.n_threads = 1;
    own.alloc.alloc_fn = take;
    own.alloc.free_fn = give;
    d.env = &own;
    d.limits.max_buffer_bytes = buffers;
    disk_read = env.io.read_fn;
    if (!CHECK_OK(ckr_ckpt_open(path, &d, &c, &e), &e)) exit(2);
    bytes_read = most = 0;
    if (digest) CHECK_OK(ckr_ckpt_digest(c, NULL, total, &e), &e);
    else ckr_report_free(report_of(c));
    ckr_ckpt_close(c);
    CHECK_INT(held, 0);
}

static void once(void)
{
    static const char *const files[][2] = { { "torch", "w/a.pt" }, { "dcp", "w/dcp" } };
    const uint64_t all = 4 * (2 * (uint64_t)WIDE + NARROW);
    size_t k;
    for (k = 0; k < 2; k++)
        if (write_as(run_of(false), files[k][0], files[k][1])) {
            uint64_t free_most;
            cost(files[k][1], true, 0);
            CHECK(bytes_read >= all && bytes_read < all + all / 16);
            cost(files[k][1], false, 0);
            CHECK(bytes_read >= all && bytes_read < all + all / 16);
            free_most = most;
            cost(files[k][1], false, 300000);
            CHECK(bytes_read >= all && bytes_read < all + all / 16);
            t_check(most < free_most && most < 2000000, __FILE__, __LINE__,
                    "%s: %llu bytes in 300000 of buffers, %llu without", files[k][0],
                    (unsigned long long)most, (unsigned long long)free_most);
            /* a directory that two dialects open, one after the other */
            size_t n;
            uint8_t *meta = t_slurp("tests/data/lightning/sharded.ckpt/meta.pt", &n);
            if (k && meta) memio_put(&disk, "w/dcp/meta.pt", meta, n);
            free(meta);
            cost(files[k][1], false, 0);
            CHECK(bytes_read >= all && bytes_read < all + all / 16);
            memio_remove(&disk, files[k][1]);
        }
}

/* Buffers in which nothing can be done are refused, with what is needed. */
static void too_small(void)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_report *r = NULL;
    ckr_error e;
    d.env = &env;
    d.limits.max_buffer_bytes = 100;
    if (!write_as(run_of(false), "torch", "w/a.pt")) return;
    if (!CHECK_OK(ckr_ckpt_open("w/a.pt", &d, &c, &e), &e)) exit(2);
    CHECK_INT(ckr_ckpt_check(c, &r, &e), CKR_E_LIMIT);
    CHECK(r == NULL && strstr(e.text, "need") != NULL);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/a.pt");
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    disk_begin();
    env.parallel.n_threads = 1;        /* the disk in memory is no more than one's          */
    RUN(not_finite);
    RUN(cover);
    RUN(once);
    RUN(too_small);
    memio_free(&disk);
    return t_end();
}
