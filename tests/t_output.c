/* What a plan refuses, and what stands in the way of its output: on the real file system. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "option.h"

#define SOURCE "tests/data/nanotron/tp2_pp1_dp2_zero1_bf16_master/ckpt"

static ckr_ckpt *ckpt;
static ckr_error err;

static ckr_target target(void)
{
    ckr_target t = CKR_ZERO;
    t.mode = CKR_MODE_CONTINUE;
    t.topology.zero = -1;
    return t;
}

static bool has_note(const ckr_plan *p, const char *code)
{
    const ckr_plan_facts *f = ckr_plan_info(p);
    uint64_t i;
    for (i = 0; i < f->n_notes; i++)
        if (!strcmp(f->notes[i].code, code)) return true;
    return false;
}

/* A component that the framework cannot be without is refused, with a note of this code. */
static void refuses(uint32_t without, const char *code)
{
    ckr_target t = target();
    ckr_plan *p = NULL;
    t.without = without;
    if (!CHECK_OK(ckr_plan_create(ckpt, &t, 0, &p, &err), &err)) return;
    CHECK(ckr_plan_info(p)->verdict == CKR_VERDICT_REFUSED);
    CHECK(has_note(p, code));
    ckr_plan_free(p);
}

static void components(void)
{
    refuses(CKR_PARAMS, "CKR_E_PARAMS_WITHOUT");
    refuses(CKR_PROGRESS, "CKR_E_CLOCK_WITHOUT");
    refuses(CKR_GROUPS, "CKR_E_GROUPS_WITHOUT");
}

static void unknown_slot(void)
{
    ckr_target t = target();
    ckr_plan *p = NULL;
    t.dialect = "safetensors";
    t.slots = "bogus";
    CHECK(ckr_plan_create(ckpt, &t, 0, &p, &err) == CKR_E_ARG && !p);
    CHECK(err.item == CKR_ITEM_SLOT_UNKNOWN);
}

/* A file of tensors alone loses the rest, and says so - unless parameters alone were chosen. */
static void tensors_only(void)
{
    ckr_target t = target();
    ckr_plan *p = NULL;
    t.dialect = "torch";
    if (!CHECK_OK(ckr_plan_create(ckpt, &t, 0, &p, &err), &err)) return;
    CHECK(ckr_plan_info(p)->verdict == CKR_VERDICT_APPROX && has_note(p, "CKR_W_TENSORS_ONLY"));
    ckr_plan_free(p);
    t.slots = "all";
    if (!CHECK_OK(ckr_plan_create(ckpt, &t, 0, &p, &err), &err)) return;
    CHECK(ckr_plan_info(p)->verdict == CKR_VERDICT_APPROX && has_note(p, "CKR_W_TENSORS_ONLY"));
    ckr_plan_free(p);
    t.slots = "params";
    if (!CHECK_OK(ckr_plan_create(ckpt, &t, 0, &p, &err), &err)) return;
    CHECK(ckr_plan_info(p)->verdict == CKR_VERDICT_EXACT);
    ckr_plan_free(p);
}

/* The temporary name belongs to whoever holds its lock; a dead run's is taken over. */
static void busy_output(void)
{
    const ckr_io io = ckr__default_io();
    ckr_target t = target();
    ckr_plan *p = NULL;
    void *lock = NULL;
    mkdir("build", 0777);
    if (!CHECK_OK(ckr_plan_create(ckpt, &t, 0, &p, &err), &err)) return;
    CHECK(mkdir("build/.busy.ckptresume-tmp", 0777) == 0);
    CHECK(io.lock_fn(NULL, "build/.busy.ckptresume-tmp", &lock) == 0);
    CHECK(ckr_plan_write(p, "build/busy", NULL, &err) == CKR_E_REFUSED);
    CHECK(err.item == CKR_ITEM_OUTPUT_BUSY);
    CHECK(access("build/.busy.ckptresume-tmp", F_OK) == 0 && access("build/busy", F_OK) != 0);
    io.unlock_fn(NULL, lock);
    CHECK_OK(ckr_plan_write(p, "build/busy", NULL, &err), &err);
    CHECK(access("build/.busy.ckptresume-tmp", F_OK) != 0 && access("build/busy/13", F_OK) == 0);
    ckr_plan_free(p);
}

/* Parameters that are cast come from their masters, so that these round to them again. */
static void cast(void)
{
    ckr_target t = target();
    ckr_plan *p = NULL;
    ckr_ckpt *out = NULL;
    ckr_report *report = NULL;
    t.dtype = CKR_DTYPE_F16;
    t.force = true;
    if (!CHECK_OK(ckr_plan_create(ckpt, &t, 0, &p, &err), &err)) return;
    CHECK_OK(ckr_plan_write(p, "build/busy", NULL, &err), &err);
    ckr_plan_free(p);
    if (!CHECK_OK(ckr_ckpt_open("build/busy", NULL, &out, &err), &err)) return;
    CHECK(ckr_ckpt_tensor(out, "model.lm_head.pp_block.weight", "param")->dtype == CKR_DTYPE_F16);
    if (CHECK_OK(ckr_ckpt_check(out, &report, &err), &err)) {
        CHECK(report->sound);
        ckr_report_free(report);
    }
    ckr_ckpt_close(out);
}

static void remove_output(void)
{
    ckr__ctx c;
    ckr__ctx_init(&c, NULL, NULL, NULL);
    ckr__remove_tree(&c, "build/busy");
    ckr__ctx_free(&c);
}

static struct { size_t live, peak; } heap;

static void *counted_alloc(void *user, size_t n, size_t align)
{
    (void)user;
    (void)align;
    heap.live += n;
    if (heap.live > heap.peak) heap.peak = heap.live;
    return malloc(n);
}

static void counted_free(void *user, void *p, size_t n, size_t align)
{
    (void)user;
    (void)align;
    heap.live -= n;
    free(p);
}

/* What the report says of memory is what is taken, at most; and not twice that. Many windows and
   many tensors take more than the windows themselves. */
static void peak(void)
{
    static const struct { int n; uint64_t rows, cap; uint32_t threads; } rows[] = {
        { 1, 4096, 1 << 18, 1 }, { 1, 4096, 1 << 20, 4 }, { 1, 64, 0, 2 }, { 2000, 1, 1 << 18, 1 }
    };
    static const char *const dialects[] = { "safetensors", "torch", "dcp" };
    float *x = (float *)calloc(4096 * 1024, 4);
    size_t i, k;
    int m;
    for (i = 0; x && i < 3 * sizeof rows / sizeof *rows; i++) {
        ckr_env e = CKR_ZERO;
        ckr_open_desc d = CKR_ZERO;
        ckr_target t = target();
        ckr_ckpt *c = NULL;
        ckr_plan *p = NULL;
        char name[32];
        int64_t shape[2] = { 0, 1024 };
        k = i / 3;
        shape[0] = (int64_t)rows[k].rows;
        e.alloc.alloc_fn = counted_alloc;
        e.alloc.free_fn = counted_free;
        e.parallel.n_threads = rows[k].threads;
        d.env = &e;
        CHECK_OK(ckr_ckpt_create(&d, &c, &err), &err);
        for (m = 0; m < rows[k].n; m++) {
            snprintf(name, sizeof name, "layers.%d.weight", m);
            CHECK_OK(ckr_ckpt_put(c, name, "param", CKR_DTYPE_F32, 2, shape, x, &err), &err);
        }
        t.dialect = dialects[i % 3];
        t.force = true;
        if (!CHECK_OK(ckr_plan_create(c, &t, rows[k].cap, &p, &err), &err)) return;
        heap.peak = heap.live;
        CHECK_OK(ckr_plan_write(p, "build/busy", NULL, &err), &err);
        t_check(heap.peak <= ckr_plan_info(p)->peak_bytes &&
                    2 * heap.peak > ckr_plan_info(p)->peak_bytes,
                __FILE__, __LINE__, "%s, row %u: said %llu, %llu were taken", t.dialect,
                (unsigned)k, (unsigned long long)ckr_plan_info(p)->peak_bytes,
                (unsigned long long)heap.peak);
        ckr_plan_free(p);
        ckr_ckpt_close(c);
        CHECK(heap.live == 0);
        remove_output();
    }
    free(x);
}

/* Without elements the other edges make nothing, though their product fits no integer: through each
   kind of file, read, compared and proved. */
static void empty_and_wide(void)
{
    static const int64_t shapes[2][3] = { { 0, (int64_t)1 << 32, (int64_t)1 << 32 },
                                          { (int64_t)1 << 32, (int64_t)1 << 32, 0 } };
    static const char *const dialects[] = { "safetensors", "torch", "dcp" };
    int i;
    for (i = 0; i < 3; i++) {
        ckr_target t = target();
        ckr_ckpt *in = NULL, *out = NULL;
        ckr_plan *p = NULL;
        ckr_read r = CKR_ZERO;
        ckr_report *report = NULL;
        ckr_diff *diff = NULL;
        CHECK_OK(ckr_ckpt_create(NULL, &in, &err), &err);
        CHECK_OK(ckr_ckpt_put(in, "a", "param", CKR_DTYPE_F32, 3, shapes[0], NULL, &err), &err);
        CHECK_OK(ckr_ckpt_put(in, "b", "param", CKR_DTYPE_C64, 3, shapes[1], NULL, &err), &err);
        t.dialect = dialects[i];
        t.force = true;
        if (CHECK_OK(ckr_plan_create(in, &t, 0, &p, &err), &err))
            CHECK_OK(ckr_plan_write(p, "build/busy", NULL, &err), &err);
        ckr_plan_free(p);
        if (CHECK_OK(ckr_ckpt_open("build/busy", NULL, &out, &err), &err)) {
            CHECK_INT(ckr_ckpt_state(out)->n_tensors, 2);
            CHECK(ckr_ckpt_state(out)->tensors[0]->shape[1] == shapes[0][1]);
            r.tensor = ckr_ckpt_tensor(out, "b", "param");
            CHECK_OK(ckr_ckpt_read(out, &r, 1, &err), &err);
            if (CHECK_OK(ckr_ckpt_check(out, &report, &err), &err)) {
                CHECK(report->sound);
                ckr_report_free(report);
            }
            if (CHECK_OK(ckr_ckpt_diff(in, out, &diff, &err), &err)) {
                CHECK(!diff->n_tensors);
                ckr_diff_free(diff);
            }
        }
        ckr_ckpt_close(out);
        ckr_ckpt_close(in);
        remove_output();
    }
}

/* Into 8 bits, as torch rounds them: ties to even, 448 and infinity above the largest; and back. */
static void read_as_fp8(void)
{
    static const float in[6] = { 1, -2, 17, 19, 1000, 61440 };
    static const uint8_t fn[6] = { 0x38, 0xc0, 0x58, 0x5a, 0x7e, 0x7e },
                         e5[6] = { 0x3c, 0xc0, 0x4c, 0x4d, 0x64, 0x7c };
    const int64_t n = 6;
    uint8_t out[6];
    float back[6];
    ckr_read r = CKR_ZERO;
    ckr_ckpt *c = NULL;
    CHECK_OK(ckr_ckpt_create(NULL, &c, &err), &err);
    CHECK_OK(ckr_ckpt_put(c, "a", "param", CKR_DTYPE_F32, 1, &n, in, &err), &err);
    CHECK_OK(ckr_ckpt_put(c, "b", "param", CKR_DTYPE_F8_E5M2, 1, &n, e5, &err), &err);
    r.tensor = ckr_ckpt_tensor(c, "a", "param");
    r.dst = out;
    r.dst_size = sizeof out;
    r.as = CKR_DTYPE_F8_E4M3FN;
    CHECK_OK(ckr_ckpt_read(c, &r, 1, &err), &err);
    CHECK(!memcmp(out, fn, sizeof fn));
    r.as = CKR_DTYPE_F8_E5M2;
    CHECK_OK(ckr_ckpt_read(c, &r, 1, &err), &err);
    CHECK(!memcmp(out, e5, sizeof e5));
    r.tensor = ckr_ckpt_tensor(c, "b", "param");
    r.as = CKR_DTYPE_F32;
    r.dst = back;
    r.dst_size = sizeof back;
    CHECK_OK(ckr_ckpt_read(c, &r, 1, &err), &err);
    CHECK(back[0] == 1 && back[1] == -2 && back[2] == 16 && back[3] == 20 && back[4] == 1024);
    CHECK(isinf(back[5]));
    ckr_ckpt_close(c);
}

/* complex128 has no safetensors dtype: bytes, behind a tensor of odd size, over many windows;
   said, and complex128 again when it is read. */
static void element_over_windows(void)
{
    enum { N = 300000 };
    const int64_t odd[1] = { 3 }, many[1] = { N };
    static const uint8_t three[3] = { 1, 2, 3 };
    double *z = (double *)malloc(2 * sizeof *z * N), *back = (double *)malloc(2 * sizeof *z * N);
    ckr_target t = target();
    ckr_ckpt *in = NULL, *out = NULL;
    ckr_plan *p = NULL;
    ckr_read read = CKR_ZERO;
    int i;
    if (!CHECK(z && back)) return;
    for (i = 0; i < 2 * N; i++) z[i] = i * 0.5;
    CHECK_OK(ckr_ckpt_create(NULL, &in, &err), &err);
    CHECK_OK(ckr_ckpt_put(in, "a", "param", CKR_DTYPE_U8, 1, odd, three, &err), &err);
    CHECK_OK(ckr_ckpt_put(in, "z", "param", CKR_DTYPE_C128, 1, many, z, &err), &err);
    t.force = true;
    if (CHECK_OK(ckr_plan_create(in, &t, 1 << 20, &p, &err), &err)) {
        CHECK(has_note(p, "CKR_W_BYTES") &&
              ckr_plan_info(p)->verdict == CKR_VERDICT_CHANGED);
        CHECK_OK(ckr_plan_write(p, "build/odd.safetensors", NULL, &err), &err);
    }
    if (CHECK_OK(ckr_ckpt_open("build/odd.safetensors", NULL, &out, &err), &err)) {
        read.tensor = ckr_ckpt_tensor(out, "z", "param");
        read.dst = back;
        read.dst_size = 2 * sizeof *z * N;
        CHECK(read.tensor && read.tensor->dtype == CKR_DTYPE_C128 &&
              read.tensor->n_dims == 1 && read.tensor->shape[0] == N);
        CHECK_INT(ckr_ckpt_state(out)->n_leftovers, 0);
        CHECK_OK(ckr_ckpt_read(out, &read, 1, &err), &err);
        CHECK(!memcmp(z, back, 2 * sizeof *z * N));
    }
    ckr_plan_free(p);
    ckr_ckpt_close(in);
    ckr_ckpt_close(out);
    remove("build/odd.safetensors");
    free(z);
    free(back);
}

/* The text of a file that a test has written; "" when it is not there. */
static char *text_of(const char *path)
{
    size_t n;
    char *s = (char *)t_slurp(path, &n);
    return CHECK(s) ? s : (char *)calloc(1, 1);
}

/* Split in order as huggingface_hub does: what alone is too large has a file of its own, which
   comes before those that are still being filled. Types that safetensors lacks are told where their
   tensor is. */
static void shards(void)
{
    static const char want[] =
        "{\n  \"metadata\": {\n    \"total_size\": 139\n  },\n  \"weight_map\": {\n"
        "    \"a\": \"model-00003-of-00004.safetensors\",\n"
        "    \"b\": \"model-00003-of-00004.safetensors\",\n"
        "    \"big\": \"model-00002-of-00004.safetensors\",\n"
        "    \"c\": \"model-00004-of-00004.safetensors\",\n"
        "    \"z\": \"model-00001-of-00004.safetensors\"\n  }\n}\n";
    static const struct { const char *name; ckr_dtype dtype; int64_t n; } tensors[] = {
        { "b", CKR_DTYPE_F32, 4 }, { "a", CKR_DTYPE_U8, 3 }, { "z", CKR_DTYPE_C128, 2 },
        { "big", CKR_DTYPE_F32, 20 }, { "c", CKR_DTYPE_F32, 2 }
    };
    uint8_t bytes[80], was[16], now[16];
    ckr_target t = target();
    ckr_ckpt *in = NULL, *out = NULL;
    ckr_plan *p = NULL;
    char *text;
    size_t i;
    for (i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7);
    CHECK_OK(ckr_ckpt_create(NULL, &in, &err), &err);
    for (i = 0; i < sizeof tensors / sizeof *tensors; i++)
        CHECK_OK(ckr_ckpt_put(in, tensors[i].name, "param", tensors[i].dtype, 1, &tensors[i].n,
                              bytes, &err), &err);
    t.force = true;
    option_int(&t, "max_shard_bytes", 24);
    if (CHECK_OK(ckr_plan_create(in, &t, 0, &p, &err), &err))
        CHECK_OK(ckr_plan_write(p, "build/busy", NULL, &err), &err);
    ckr_plan_free(p);
    text = text_of("build/busy/model.safetensors.index.json");
    CHECK_STR(text, want);
    free(text);
    if (CHECK_OK(ckr_ckpt_open("build/busy", NULL, &out, &err), &err)) {
        const ckr_tensor *z = ckr_ckpt_tensor(out, "z", "param");
        CHECK(z && z->dtype == CKR_DTYPE_C128);
        CHECK_INT(ckr_ckpt_state(out)->n_leftovers, 0);
        CHECK_OK(ckr_ckpt_digest(in, NULL, was, &err), &err);
        CHECK_OK(ckr_ckpt_digest(out, NULL, now, &err), &err);
        CHECK(!memcmp(was, now, 16));
    }
    ckr_ckpt_close(out);
    t.dialect = "torch";
    CHECK(ckr_plan_create(in, &t, 0, &p, &err) == CKR_E_ARG && !p);
    CHECK_STR(err.where, "max_shard_bytes");
    ckr_ckpt_close(in);
}

/* Any source, every slot: whole again, no file over the bound but for a single tensor, and one file
   without an index where all fits. */
static void shards_of_a_run(void)
{
    const uint64_t most[] = { 1, 5000, 999999999999999999 };
    uint8_t now[16];
    size_t k;
    for (k = 0; k < 3; k++) {
        ckr_target t = target();
        ckr_plan *p = NULL;
        ckr_receipt receipt;
        ckr_report *report = NULL;
        ckr_ckpt *out = NULL;
        uint64_t i, j;
        t.dialect = "safetensors";
        t.slots = "all";
        t.force = true;
        option_int(&t, "max_shard_bytes", (int64_t)most[k]);
        if (!CHECK_OK(ckr_plan_create(ckpt, &t, 0, &p, &err), &err)) continue;
        for (i = 0; i < p->out.n_files; i++) {
            const ckr__out_file *f = p->out.files[i];
            uint64_t sum = 0;
            for (j = 0; j < f->n_entries; j++) sum += f->entries[j]->n_bytes;
            CHECK(sum <= most[k] || f->n_entries == 1);
        }
        CHECK(k < 2 || p->out.n_files == 1);
        CHECK_OK(ckr_plan_write(p, "build/busy", &receipt, &err), &err);
        ckr_plan_free(p);
        if (CHECK_OK(ckr_ckpt_open("build/busy", NULL, &out, &err), &err)) {
            CHECK_OK(ckr_ckpt_digest(out, NULL, now, &err), &err);
            CHECK(!memcmp(receipt.digest_written, now, 16));
            CHECK_INT(ckr_ckpt_state(out)->n_tensors, ckr_ckpt_state(ckpt)->n_tensors);
            if (CHECK_OK(ckr_ckpt_check(out, &report, &err), &err)) {
                CHECK(report->sound);
                ckr_report_free(report);
            }
        }
        ckr_ckpt_close(out);
    }
}

static uint64_t bytes_read;

static int32_t counted_read(void *user, void *file, uint64_t offset, void *dst, size_t n)
{
    (void)user;
    bytes_read += n;
    return ckr__default_io().read_fn(NULL, file, offset, dst, n);
}

/* A part of each row costs its own bytes, where there is much between two; neighbours that are
   small are read together. */
static void parts_of_rows(void)
{
    enum { ROWS = 32, COLUMNS = 4096, SMALL = 2000 };
    const int64_t shape[2] = { ROWS, COLUMNS }, one[1] = { 4 };
    const int64_t start[2] = { 1, 1024 }, count[2] = { ROWS - 1, 512 };
    float *wide = (float *)malloc(sizeof *wide * ROWS * COLUMNS), *part, small[4 * SMALL];
    ckr_read r[SMALL];
    ckr_target t = target();
    ckr_env env = CKR_ZERO;
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *in = NULL, *out = NULL;
    ckr_plan *p = NULL;
    char name[16];
    int i, k;
    part = (float *)malloc(sizeof *part * ROWS * 512);
    if (!CHECK(wide && part)) return;
    for (i = 0; i < ROWS * COLUMNS; i++) wide[i] = (float)i;
    CHECK_OK(ckr_ckpt_create(NULL, &in, &err), &err);
    CHECK_OK(ckr_ckpt_put(in, "wide", "param", CKR_DTYPE_F32, 2, shape, wide, &err), &err);
    for (i = 0; i < SMALL; i++) {
        snprintf(name, sizeof name, "s%04d", i);
        CHECK_OK(ckr_ckpt_put(in, name, "param", CKR_DTYPE_F32, 1, one, wide + i, &err), &err);
    }
    t.force = true;
    if (CHECK_OK(ckr_plan_create(in, &t, 0, &p, &err), &err))
        CHECK_OK(ckr_plan_write(p, "build/wide.safetensors", NULL, &err), &err);
    ckr_plan_free(p);
    env.io = ckr__default_io();
    env.io.read_fn = counted_read;
    env.parallel.n_threads = 1;
    d.env = &env;
    if (CHECK_OK(ckr_ckpt_open("build/wide.safetensors", &d, &out, &err), &err)) {
        memset(r, 0, sizeof r);
        r[0].tensor = ckr_ckpt_tensor(out, "wide", "param");
        r[0].start = start;
        r[0].count = count;
        r[0].dst = part;
        r[0].dst_size = sizeof *part * (ROWS - 1) * 512;
        bytes_read = 0;
        CHECK_OK(ckr_ckpt_read(out, r, 1, &err), &err);
        CHECK_INT(bytes_read, r[0].dst_size);
        for (i = 0; i < ROWS - 1; i++)
            for (k = 0; k < 512; k++)
                if (part[i * 512 + k] < wide[(i + 1) * COLUMNS + 1024 + k] ||
                    part[i * 512 + k] > wide[(i + 1) * COLUMNS + 1024 + k])
                    CHECK(false);
        for (i = 0; i < SMALL; i++) {
            snprintf(name, sizeof name, "s%04d", i);
            r[i].tensor = ckr_ckpt_tensor(out, name, "param");
            r[i].start = r[i].count = NULL;
            r[i].dst = small + 4 * i;
            r[i].dst_size = sizeof *small * 4;
        }
        bytes_read = 0;
        CHECK_OK(ckr_ckpt_read(out, r, SMALL, &err), &err);
        CHECK(bytes_read < 2 * sizeof small);
        for (i = 0; i < SMALL; i++) CHECK(!memcmp(small + 4 * i, wide + i, 16));
    }
    ckr_ckpt_close(in);
    ckr_ckpt_close(out);
    remove("build/wide.safetensors");
    free(wide);
    free(part);
}

/* The type of 560 bytes whose file says `text` of them. */
static ckr_dtype told_as(const char *text, const ckr_tensor **x, ckr_ckpt **c)
{
    static const uint8_t zero[560];
    const char *path = "build/told.safetensors";
    char header[256];
    uint8_t n[8] = { 0 };
    FILE *f = fopen(path, "wb");
    if (!f) exit(2);
    n[0] = (uint8_t)snprintf(header, sizeof header,
                             "{\"__metadata__\":{\"x\":\"%s\"},\"x\":{\"dtype\":\"U8\","
                             "\"shape\":[560],\"data_offsets\":[0,560]}}",
                             text);
    fwrite(n, 1, 8, f);
    fwrite(header, 1, n[0], f);
    fwrite(zero, 1, sizeof zero, f);
    fclose(f);
    *c = NULL;
    *x = NULL;
    if (CHECK_OK(ckr_ckpt_open(path, NULL, c, &err), &err)) *x = ckr_ckpt_tensor(*c, "x", "param");
    return CHECK(*x != NULL) ? (*x)->dtype : CKR_DTYPE_NONE;
}

/* Only our own words, and only when they fit the bytes; what is none of them is a leftover. */
static void told_type(void)
{
    static const char *const wrong[] = {
        "complex128 [7, 6]", "complex128 [7, 5", "complex128 [7,5]", "complex128 [, 7, 5]",
        "complex128 [-7, -5]", "complex128 [9223372036854775807, 16]", "complex128 [35] ",
        "complex128 [1, 1, 1, 1, 1, 1, 1, 1, 35]", "float64 [70]", "none [560]", "complex128", ""
    };
    ckr_ckpt *c;
    const ckr_tensor *x;
    size_t i;
    CHECK_INT(told_as("complex128 [7, 5]", &x, &c), CKR_DTYPE_C128);
    CHECK(x && x->n_dims == 2 && x->shape[0] == 7 && x->shape[1] == 5);
    if (c) CHECK_INT(ckr_ckpt_state(c)->n_leftovers, 0);
    ckr_ckpt_close(c);
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        t_check(told_as(wrong[i], &x, &c) == CKR_DTYPE_U8, __FILE__, __LINE__, "%s", wrong[i]);
        if (c) CHECK_INT(ckr_ckpt_state(c)->n_leftovers, 1);
        ckr_ckpt_close(c);
    }
    remove("build/told.safetensors");
}

/* A link into the input is the input; a side file belongs to the checkpoint that it names. */
static void links_and_neighbours(void)
{
    ckr_target t = target();
    ckr_plan *p = NULL;
    ckr_ckpt *next = NULL;
    if (!CHECK_OK(ckr_plan_create(ckpt, &t, 0, &p, &err), &err)) return;
#if !defined(_WIN32)           /* links are for administrators there */
    remove("build/link");
    CHECK(symlink("../" SOURCE "/13/random", "build/link") == 0);
    CHECK(ckr_plan_write(p, "build/link/out", NULL, &err) == CKR_E_ARG);
    CHECK(err.item == CKR_ITEM_OUTPUT_INSIDE);
    remove("build/link");
#endif
    t.force = true;
    ckr_plan_free(p);
    if (!CHECK_OK(ckr_plan_create(ckpt, &t, 0, &p, &err), &err)) return;
    CHECK_OK(ckr_plan_write(p, "build/busy", NULL, &err), &err);
    ckr_plan_free(p);
    CHECK(ckr__side_names(ckpt->side, "x/13") == false);
    if (CHECK_OK(ckr_ckpt_open("build/busy", NULL, &next, &err), &err)) {
        CHECK(next->side && ckr__side_names(next->side, "build/busy/13/"));
        CHECK(!ckr__side_names(next->side, "build/busy/14"));
    }
    ckr_ckpt_close(next);
}

/* A name too long for the system, by itself or with what is hung on to it meanwhile. */
static void long_names(void)
{
    static const size_t lengths[] = { 300, 250 };
    ckr_target t = target();
    char path[400] = "build/";
    size_t i;
    for (i = 0; i < 2; i++) {
        ckr_plan *p = NULL;
        memset(path + 6, 'a', lengths[i]);
        path[6 + lengths[i]] = 0;
        if (!CHECK_OK(ckr_plan_create(ckpt, &t, 0, &p, &err), &err)) return;
        CHECK(ckr_plan_write(p, path, NULL, &err) == CKR_E_IO);
        CHECK(err.item == CKR_ITEM_IO_OPEN && access(path, F_OK) != 0);
        ckr_plan_free(p);
    }
}

/* Progress: how far each long call is, never backwards, all of it at the end; and each time that it
   is told the call can be cancelled, which leaves nothing behind. */
static struct { uint64_t calls, stop_at, done, total; bool back, other; } told;

static bool tell_it(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    if (told.calls && done < told.done) told.back = true;
    if ((told.calls && total != told.total) || done > total) told.other = true;
    told.done = done;
    told.total = total;
    return ++told.calls != told.stop_at;
}

static ckr_result long_call(int which, const ckr_ckpt *k, ckr_plan *p)
{
    uint8_t total[16];
    ckr_report *report = NULL;
    ckr_diff *diff = NULL;
    ckr_result r = CKR_E_ARG;
    const uint64_t stop_at = told.stop_at;
    memset(&told, 0, sizeof told);
    told.stop_at = stop_at;
    if (which == 0) r = ckr_ckpt_digest(k, NULL, total, &err);
    if (which == 1 && (r = ckr_ckpt_check(k, &report, &err)) == CKR_OK) ckr_report_free(report);
    if (which == 2 && (r = ckr_ckpt_diff(k, ckpt, &diff, &err)) == CKR_OK) ckr_diff_free(diff);
    if (which == 3) r = ckr_plan_write(p, "build/busy", NULL, &err);
    return r;
}

static void progress_with(uint32_t n_threads)
{
    ckr_env env = CKR_ZERO;
    ckr_open_desc d = CKR_ZERO;
    ckr_target t = target();
    ckr_ckpt *k = NULL;
    ckr_plan *p = NULL;
    int which;
    uint64_t i;
    env.progress_fn = tell_it;
    env.parallel.n_threads = n_threads;
    d.env = &env;
    if (!CHECK_OK(ckr_ckpt_open(SOURCE, &d, &k, &err), &err)) return;
    t.topology.tp = 1;
    t.force = true;
    if (!CHECK_OK(ckr_plan_create(k, &t, 0, &p, &err), &err)) return;
    for (which = 0; which < 4; which++) {
        uint64_t calls;
        told.stop_at = 0;
        remove_output();
        CHECK_OK(long_call(which, k, p), &err);
        CHECK(!told.back && !told.other);
        CHECK(told.total > 0 && told.done == told.total);
        calls = told.calls;
        CHECK(calls > 1);
        remove_output();
        for (i = 1; i <= calls; i += t_times(1, calls / 2)) {
            told.stop_at = i;
            CHECK(long_call(which, k, p) == CKR_E_CANCELLED && err.item == CKR_ITEM_CANCELLED);
            CHECK(told.calls == i);
            CHECK(access("build/busy", F_OK) != 0);
            CHECK(access("build/.busy.ckptresume-tmp", F_OK) != 0);
        }
    }
    ckr_plan_free(p);
    ckr_ckpt_close(k);
}

static void progress(void)
{
    progress_with(1);
    progress_with(3);
}

static struct { ckr__lock lock; uint64_t reads, writes; } calls_of;

static int32_t counting_read(void *user, void *file, uint64_t offset, void *dst, size_t n)
{
    CKR__ENTER(&calls_of.lock);
    calls_of.reads++;
    CKR__LEAVE(&calls_of.lock);
    return ckr__os_read(user, file, offset, dst, n);
}

static int32_t counting_write(void *user, void *file, uint64_t offset, const void *src, size_t n)
{
    CKR__ENTER(&calls_of.lock);
    calls_of.writes++;
    CKR__LEAVE(&calls_of.lock);
    return ckr__os_write(user, file, offset, src, n);
}

static void one_by_one(void *user, uint32_t n_threads, uint32_t n_tasks,
                       void (*task_fn)(void *arg, uint32_t i), void *arg)
{
    uint32_t i;
    (void)user;
    (void)n_threads;
    for (i = 0; i < n_tasks; i++) task_fn(arg, i);
}

/* build/busy to build/busy3, which is compared with what it was made of. */
static void pieces_write(ckr_ckpt *in, const ckr_open_desc *d, const ckr_target *t)
{
    ckr_ckpt *mid = NULL, *out = NULL;
    ckr_plan *p = NULL;
    ckr_diff *diff = NULL;
    uint8_t was[16], now[16];
    if (!CHECK_OK(ckr_ckpt_open("build/busy", d, &mid, &err), &err)) return;
    if (!CHECK_OK(ckr_plan_create(mid, t, 0, &p, &err), &err)) return;
    const uint64_t n_copies = ckr_plan_info(p)->n_copies, n_files = ckr_plan_info(p)->n_files;
    CHECK(n_copies > 4000);
    calls_of.reads = calls_of.writes = 0;
    CHECK_OK(ckr_plan_write(p, "build/busy3", NULL, &err), &err);
    t_check(calls_of.reads < 40, __FILE__, __LINE__,
            "%llu reads for %llu copies", (unsigned long long)calls_of.reads,
            (unsigned long long)n_copies);
    t_check(calls_of.writes < 8 * n_files, __FILE__, __LINE__, "%llu writes for %llu files",
            (unsigned long long)calls_of.writes, (unsigned long long)n_files);
    if (CHECK_OK(ckr_ckpt_open("build/busy3", NULL, &out, &err), &err)) {
        CHECK_OK(ckr_ckpt_digest(mid, NULL, was, &err), &err);
        CHECK_OK(ckr_ckpt_digest(out, NULL, now, &err), &err);
        CHECK(!memcmp(was, now, 16));
        if (CHECK_OK(ckr_ckpt_diff(in, out, &diff, &err), &err)) CHECK(!diff->n_tensors);
        ckr_diff_free(diff);
    }
    ckr_ckpt_close(out);
    ckr_plan_free(p);
    ckr_ckpt_close(mid);
}

/* 2,000 tensors, each in four archives, become each three: neighbours are read at once, though the
   output has them in another order, and an archive's CRCs are written with it. Through hooks, which
   may go far away, in large blocks with the archives' heads in them: by threads that wait for each
   other's blocks, or one after the other. */
static void small_pieces(void)
{
    enum { N = 2000 };
    static float x[1024];
    const int64_t shape[2] = { 12, 85 };
    ckr_target t = target();
    ckr_env env = CKR_ZERO;
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *in = NULL;
    ckr_plan *p = NULL;
    char name[40];
    int i;
    for (i = 0; i < 1024; i++) x[i] = (float)i;
    CHECK_OK(ckr_ckpt_create(NULL, &in, &err), &err);
    for (i = 0; i < N; i++) {
        snprintf(name, sizeof name, "layers.%d.weight", i);
        x[i % 1024] = (float)-i;
        CHECK_OK(ckr_ckpt_put(in, name, "param", CKR_DTYPE_F32, 2, shape, x, &err), &err);
    }
    t.dialect = "dcp";
    t.topology.dp = 4;
    t.force = true;
    if (!CHECK_OK(ckr_plan_create(in, &t, 0, &p, &err), &err)) return;
    CHECK_OK(ckr_plan_write(p, "build/busy", NULL, &err), &err);
    ckr_plan_free(p);
    if (!CHECK(CKR__LOCK_MAKE(&calls_of.lock))) return;
    env.io = ckr__default_io();
    env.io.read_fn = counting_read;
    env.io.write_fn = counting_write;
    env.parallel.n_threads = 8;
    d.env = &env;
    t.topology.dp = 3;
    for (i = 0; i < 2; i++) {
        env.parallel.for_fn = i ? one_by_one : NULL;
        pieces_write(in, &d, &t);
    }
    CKR__LOCK_FREE(&calls_of.lock);
    ckr_ckpt_close(in);
    remove_output();
    os_remove_tree("build/busy3");
}

/* An archive over many windows, whose CRC is known with the last of them: through hooks it is
   written with that window, or apart by who ends last, and the files are as the default hooks
   write them; these, too, where the file system is a network's. */
static void late_bytes(void)
{
    const int64_t shape[2] = { 24, 1 << 18 }, small[2] = { 24, 4 };
    char name[40];
    float *x = (float *)calloc(24, 1 << 20);
    ckr_target t = target();
    ckr_env env = CKR_ZERO;
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *in = NULL, *mid = NULL;
    ckr_plan *p = NULL;
    if (!CHECK(x && CKR__LOCK_MAKE(&calls_of.lock))) return;
    for (int i = 0; i < 24 << 18; i++) x[i] = (float)i;
    CHECK_OK(ckr_ckpt_create(NULL, &in, &err), &err);
    CHECK_OK(ckr_ckpt_put(in, "wide.weight", "param", CKR_DTYPE_F32, 2, shape, x, &err), &err);
    for (int i = 0; i < 10; i++) {             /* archives behind it, in the same window */
        snprintf(name, sizeof name, "x%d.weight", i);
        CHECK_OK(ckr_ckpt_put(in, name, "param", CKR_DTYPE_F32, 2, small, x, &err), &err);
    }
    t.dialect = "dcp";
    t.topology.dp = 3;
    t.force = true;
    if (!CHECK_OK(ckr_plan_create(in, &t, 0, &p, &err), &err)) return;
    CHECK_OK(ckr_plan_write(p, "build/busy", NULL, &err), &err);
    ckr_plan_free(p);
    t.topology.dp = 2;
    env.io = ckr__default_io();
    env.parallel.n_threads = 8;
    d.env = &env;
    for (int i = 0; i < 4; i++) {
        if (i > 1) env.io.read_fn = counting_read;
        if (i > 1) env.io.write_fn = counting_write;
        env.parallel.for_fn = i == 2 ? one_by_one : NULL;
        calls_of.writes = 0;
        if (!CHECK_OK(ckr_ckpt_open("build/busy", &d, &mid, &err), &err)) return;
        CHECK(!mid->ctx.away);
        if (i == 1) mid->ctx.away = true;      /* as on a network */
        if (!CHECK_OK(ckr_plan_create(mid, &t, 0, &p, &err), &err)) return;
        CHECK((p->n_far > 0) == (i > 0));
        CHECK_OK(ckr_plan_write(p, i ? "build/busy3" : "build/busy2", NULL, &err), &err);
        const uint64_t n_wins = ckr_plan_info(p)->bytes_written / ckr_plan_info(p)->window_bytes;
        /* a shorter one of each file, an index, a side file; two pieces apart, of the one whose
           last window has its turn first */
        if (i == 2) CHECK(calls_of.writes <= n_wins + 6);
        if (i) CHECK(os_same_tree("build/busy2", "build/busy3"));
        ckr_plan_free(p);
        ckr_ckpt_close(mid);
    }
    CKR__LOCK_FREE(&calls_of.lock);
    ckr_ckpt_close(in);
    free(x);
    remove_output();
    os_remove_tree("build/busy2");
    os_remove_tree("build/busy3");
}

/* What lies on a network is read by more threads than there are processors. */
static void far_kinds(void)
{
    CHECK(ckr__far_kind(0x6969) && ckr__far_kind(0x0bd00bd0) && ckr__far_kind(0x65735546));
    CHECK(!ckr__far_kind(0) && !ckr__far_kind(0xef53) && !ckr__far_kind(0x01021994));
    CHECK(!ckr__os_far("build/none"));
#if !defined(CKPTRESUME_NO_THREADS)
    CHECK(ckr__os_streams(true) >= 32);
#endif
    CHECK(ckr__os_streams(false) >= 1 && ckr__os_streams(true) >= ckr__os_streams(false));
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    if (CHECK_OK(ckr_ckpt_open(SOURCE, NULL, &ckpt, &err), &err)) {
        remove_output();
        RUN(components);
        RUN(unknown_slot);
        RUN(tensors_only);
        RUN(busy_output);
        RUN(cast);
        RUN(read_as_fp8);
        RUN_LONG(peak);
        RUN(empty_and_wide);
        RUN(element_over_windows);
        RUN(told_type);
        RUN(shards);
        RUN(shards_of_a_run);
        RUN(parts_of_rows);
        RUN(links_and_neighbours);
        RUN(long_names);
        RUN(progress);
        RUN(small_pieces);
        RUN(late_bytes);
        RUN(far_kinds);
        remove_output();
        ckr_ckpt_close(ckpt);
    }
    return t_end();
}
