/* A real checkpoint of llm.c from tests/data: every tensor against the live processes, there and on
   any other number of processes and back to the same bytes; where its loaders stand, by llm.c's own
   rules; precisions; GPT-2's names; what is refused; files that are broken. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "option.h"
#include "bad.h"
#include "ckpt.h"
#include "settings.h"
#include "tree.h"

#define CASE "tests/data/llmc/uneven"
#define STEP "00000008"

static ckr_error err;

static void load_case(void)
{
    memset(&env, 0, sizeof env);
    env.io = memio_io(&disk);
    memio_add(&disk, "in", true);
    memio_add(&disk, "data", true);
    memio_add(&disk, "w", true);
    memio_load(&disk, CASE "/ckpt", "in");
    memio_load(&disk, CASE "/data", "data");
}

/* What a conversion is asked for. */
typedef struct ask { uint32_t dp; int32_t zero; const char *to; int64_t B; ckr_dtype dtype;
                     uint32_t without; } ask;

static ask to_dp(uint32_t dp, int32_t zero)
{
    ask a;
    memset(&a, 0, sizeof a);
    a.dp = dp;
    a.zero = zero;
    return a;
}

static ckr_plan *plan_of(const ckr_ckpt *c, ask a)
{
    ckr_target t = CKR_ZERO;
    ckr_plan *p = NULL;
    t.mode = CKR_MODE_CONTINUE;
    t.topology.dp = a.dp;
    t.topology.zero = stage_of(a.zero);
    t.dialect = a.to;
    t.dtype = a.dtype;
    t.without = a.without;
    t.force = true;
    if (a.B) option_text(&t, "data", "data/train_*.bin");
    option_int(&t, "micro_batch", a.B);
    option_int(&t, "seq_len", a.B ? 64 : 0);
    CHECK_OK(ckr_plan_create(c, &t, 0, &p, &err), &err);
    return p;
}

static const ckr_note *note_in(const ckr_plan *p, const char *code)
{
    const ckr_plan_facts *f = ckr_plan_info(p);
    uint64_t i;
    for (i = 0; i < f->n_notes; i++) if (!strcmp(f->notes[i].code, code)) return &f->notes[i];
    return NULL;
}

/* Converts and proves; the codes of `notes` (blanks between) must be in the report. */
static bool convert(const char *from, const char *out, ask a, const char *notes)
{
    ckr_ckpt *c = open_ok(from);
    ckr_plan *p = c ? plan_of(c, a) : NULL;
    ckr_receipt receipt;
    char code[64];
    ckr_result r;
    size_t n;
    if (!p) return false;
    for (; notes && *notes; notes += n + (notes[n] == ' ')) {
        n = strcspn(notes, " ");
        snprintf(code, sizeof code, "%.*s", (int)n, notes);
        t_check(note_in(p, code) != NULL, __FILE__, __LINE__, "%s: no %s", out, code);
    }
    memio_remove(&disk, out);
    r = ckr_plan_write(p, out, &receipt, &err);
    t_check(r == CKR_OK, __FILE__, __LINE__, "%s -> %s: %s %s", from, out, err.where, err.text);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    return r == CKR_OK;
}

static bool same_tensors(const char *x, const char *y)
{
    ckr_ckpt *a = open_ok(x), *b = open_ok(y);
    ckr_diff *d = NULL;
    bool same = false;
    memset(&d, 0, sizeof d);
    if (a && b && CHECK_OK(ckr_ckpt_diff(a, b, &d, &err), &err)) same = d->n_tensors == 0;
    ckr_diff_free(d);
    ckr_ckpt_close(a);
    ckr_ckpt_close(b);
    return same;
}

static bool same_file(const char *x, const char *y)
{
    const memio_file *a = memio_find(&disk, x), *b = memio_find(&disk, y);
    return a && b && a->size == b->size && (!a->size || !memcmp(a->data, b->data, a->size));
}

static void what_is_read(void)
{
    ckr_ckpt *c = open_ok("in"), *truth = NULL;
    ckr_open_desc d = CKR_ZERO;
    const ckr_state *s;
    uint64_t i;
    if (!c) return;
    s = ckr_ckpt_state(c);
    CHECK_STR(s->dialect, "llmc");
    CHECK_INT(s->topology.dp, 2);
    CHECK_INT(s->topology.zero, 1);
    CHECK_INT(s->progress.step, 8);
    CHECK_INT(s->vocab, 61);
    CHECK_INT(s->padded_vocab, 128);
    CHECK_INT(s->n_tensors, 64);
    CHECK_INT(s->n_rng, 6);
    CHECK_INT(ckr__load_u64((const uint8_t *)s->rng[0].state->u.str) >> 1,
              18003891010811540868u >> 1);
    CHECK_INT(s->n_leftovers, 1);
    CHECK_STR(s->leftovers[0].path, "main.log");
    CHECK_OK(ckr_ckpt_open(CASE "/truth.safetensors", &d, &truth, &err), &err);
    for (i = 0; truth && i < ckr_ckpt_state(truth)->n_tensors; i++) {
        const ckr_tensor *want = ckr_ckpt_state(truth)->tensors[i], *have;
        const char *key = want->name, *dot;
        char name[32];
        float x[8192], y[8192];
        ckr_read r = CKR_ZERO;
        if (!strncmp(key, "optimizer.state.", 16)) key += 16;
        dot = strchr(key, '.');
        snprintf(name, sizeof name, "%.*s", (int)strcspn(key, "."), key);
        have = ckr_ckpt_tensor(c, name, dot ? dot + 1 : "param");
        if (!t_check(have != NULL && have->shape[0] == want->shape[0], __FILE__, __LINE__, "%s",
                     want->name))
            continue;
        r.dst_size = 4 * (size_t)ckr__box_volume(want->n_dims, want->shape);
        if (!CHECK(r.dst_size <= sizeof x)) continue;
        r.tensor = want;
        r.dst = x;
        CHECK_OK(ckr_ckpt_read(truth, &r, 1, &err), &err);
        r.tensor = have;
        r.dst = y;
        CHECK_OK(ckr_ckpt_read(c, &r, 1, &err), &err);
        t_check(!memcmp(x, y, r.dst_size), __FILE__, __LINE__, "%s differs", want->name);
    }
    CHECK_INT(truth ? ckr_ckpt_state(truth)->n_tensors : 0, 64);
    ckr_ckpt_close(truth);
    ckr_ckpt_close(c);
}

/* Back on two processes every file is what it was, byte for byte. */
static void there_and_back(void)
{
    static const uint32_t dps[] = { 1, 2, 4, 8, 16 };
    static const char *const files[] = { "model_" STEP ".bin", "state_" STEP "_00000.bin",
                                         "state_" STEP "_00001.bin", "DONE_" STEP, "main.log" };
    char x[80], y[80];
    size_t i, k;
    int32_t zero;
    for (i = 0; i < sizeof dps / sizeof *dps; i++)
        for (zero = 0; zero < 2; zero++) {
            if (!convert("in", "w/there", to_dp(dps[i], zero), "") ||
                !convert("w/there", "w/on", to_dp(4, 0), "") ||
                !convert("w/on", "w/back", to_dp(2, 1), ""))
                continue;
            CHECK(same_tensors("in", "w/there"));
            CHECK(same_tensors("in", "w/on"));
            for (k = 0; k < sizeof files / sizeof *files; k++) {
                snprintf(x, sizeof x, "in/%s", files[k]);
                snprintf(y, sizeof y, "w/back/%s", files[k]);
                t_check(same_file(x, y), __FILE__, __LINE__, "dp %u zero %d: %s", (unsigned)dps[i],
                        (int)zero, files[k]);
            }
        }
}

/* The stage: inferred, kept where it can be, refused where it was asked for. */
static void stage(void)
{
    ckr_ckpt *c = open_ok("in"), *o;
    ckr_plan *p;
    if (!c) return;
    p = plan_of(c, to_dp(3, 1));
    CHECK(p && ckr_plan_info(p)->verdict == CKR_VERDICT_REFUSED &&
          note_in(p, "CKR_E_LLMC_ZERO_UNEVEN") &&
          !strcmp(note_in(p, "CKR_E_LLMC_ZERO_UNEVEN")->remedy,
                  "ckr_target.topology.zero = CKR_ZERO_OFF"));
    if (p) bad_seen[CKR_ITEM_LLMC_ZERO_UNEVEN] = true;
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    if (!convert("in", "w/three", to_dp(3, -1), "CKR_W_LLMC_ZERO CKR_W_TOPOLOGY")) return;
    o = open_ok("w/three");
    CHECK_INT(o ? ckr_ckpt_state(o)->topology.zero : -1, 0);
    CHECK_INT(o ? ckr_ckpt_state(o)->topology.dp : 0, 3);
    ckr_ckpt_close(o);
}

/* How many differences of this kind, and nothing in the tensors. */
static uint64_t differences(const char *x, const char *y, const char *code)
{
    ckr_ckpt *a = open_ok(x), *b = open_ok(y);
    ckr_diff *d = NULL;
    uint64_t i, n = 0;
    memset(&d, 0, sizeof d);
    if (a && b && CHECK_OK(ckr_ckpt_diff(a, b, &d, &err), &err)) CHECK(!d->n_tensors);
    for (i = 0; i < d->n_others; i++) n += !strcmp(d->others[i].code, code);
    ckr_diff_free(d);
    ckr_ckpt_close(a);
    ckr_ckpt_close(b);
    return n;
}

/* llm.c's load_state and dataloader_resume on a state file of `ranks`: does it stop, and where
   would it go on? *at: in tokens from the start of the file that it reads. */
static bool llmc_takes(const char *path, uint32_t rank, uint64_t unit, uint64_t ntok[3],
                       uint64_t k, uint64_t *at, uint64_t *file)
{
    const memio_file *f = memio_find(&disk, path);
    uint8_t order[12] = { 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0 };
    uint64_t s, shard, sample;
    const uint8_t *p;
    ckr_rng mt;
    if (!CHECK(f != NULL)) return false;
    ckr_rng_seed(&mt, CKR_RNG_LLMC_MT, 42 + rank);     /* a fresh loader opens its first file */
    ckr__lm_shuffle(&mt, order, 3);
    shard = ckr__load_u64(f->data + 120);
    sample = ckr__load_u64(f->data + 128);
    p = f->data + 1024 + 12 * k;
    s = ckr__load_u64(p + 20);
    if (ckr__load_u64(p) != 3 || s != (ntok[ckr__load_u32(order)] - 1) / unit) return false;
    *file = ckr__load_u32(p + 8 + 4 * shard);
    if (sample >= s || sample >= (ntok[*file] - 1) / unit) return false;
    *at = ckr__load_u32(p + 28 + 4 * sample) * unit;
    return ckr__load_u32(p + 28 + 4 * sample) < (ntok[*file] - 1) / unit;
}

static void loaders(void)
{
    uint64_t ntok[3] = { 1281, 1550, 1819 }, at = 0, file = 0, k = 6384 / 2;
    ckr__lm_dims d;
    char path[64];
    uint32_t r;
    memset(&d, 0, sizeof d);
    d.T = 64; d.V = 61; d.L = 1; d.NH = 2; d.C = 16; d.Vp = 128;
    CHECK(ckr__lm_total(&d));
    k = d.n / 2;
    CHECK(!llmc_takes("in/state_" STEP "_00000.bin", 0, 256, ntok, k, &at, &file)); /* its own */
    { ask a = to_dp(2, 1); a.B = 2; convert("in", "w/same", a, ""); }
    CHECK(llmc_takes("w/same/state_" STEP "_00000.bin", 0, 256, ntok, k, &at, &file));
    {
        const memio_file *x = memio_find(&disk, "in/state_" STEP "_00000.bin"),
                         *y = memio_find(&disk, "w/same/state_" STEP "_00000.bin");
        CHECK(!memcmp(x->data + x->size - CKR__LM_MT, y->data + y->size - CKR__LM_MT,
                      CKR__LM_MT));                    /* the generator, its label too */
    }
    CHECK_INT(file, 1);                                /* order 2 1 0, samples 5 0 1 2 3 4 */
    CHECK_INT(at, 0);
    CHECK(llmc_takes("w/same/state_" STEP "_00001.bin", 1, 256, ntok, k, &at, &file));
    CHECK_INT(file, 0);                                /* order 2 0 1, samples 4 0 1 3 2 */
    CHECK_INT(at, 0);
    {
        ask a = to_dp(4, 0);
        a.B = 1;
        convert("in", "w/four", a, "CKR_W_RNG_DERIVED CKR_W_DATA_BATCH");
    }
    for (r = 0; r < 4; r++) {
        snprintf(path, sizeof path, "w/four/state_" STEP "_%05u.bin", (unsigned)r);
        t_check(llmc_takes(path, r, 256, ntok, d.n, &at, &file), __FILE__, __LINE__, "rank %u", r);
    }
    { ask a = to_dp(1, 0); a.B = 2; convert("in", "w/half", a, "CKR_W_DATA_POSITION"); }
    CHECK(llmc_takes("w/half/state_" STEP "_00000.bin", 0, 128, ntok, d.n, &at, &file));
    CHECK_INT(file, 1);
    CHECK_INT(at, 0);          /* one old sample read is two new ones: the next is old sample 0 */
    { ask a = to_dp(2, 1); a.without = CKR_DATA; convert("in", "w/none", a, "CKR_WITHOUT"); }
    CHECK_INT(differences("in", "w/none", "CKR_DIFF_DATA"), 2);
    convert("in", "w/two", to_dp(2, 0), "");
    CHECK_INT(differences("in", "w/two", "CKR_DIFF_DATA"), 0);
    CHECK_INT(differences("in", "w/half", "CKR_DIFF_DATA"), 1);        /* the one rank of both */
    CHECK_INT(ckr__load_u64(memio_find(&disk, "w/none/state_" STEP "_00000.bin")->data + 128), 0);
}

static void same_states(const char *a, const char *b, unsigned n)
{
    char x[80], y[80];
    unsigned r;
    for (r = 0; r < n; r++) {
        snprintf(x, sizeof x, "%s/state_" STEP "_%05u.bin", a, r);
        snprintf(y, sizeof y, "%s/state_" STEP "_%05u.bin", b, r);
        t_check(same_file(x, y), __FILE__, __LINE__, "%s of %s is another in %s", x + strlen(a) + 1,
                a, b);
    }
}

/* The next conversion goes on from what the files say of places in the data; the side file knows
   only of ranks that they lack, or what was there before the same was counted anew. */
static void files_win(void)
{
    static const struct { uint32_t dp; int64_t B; uint32_t without; const char *label; } rows[] = {
        { 2, 0, CKR_DATA, "the place was given up" }, { 2, 1, 0, "counted in samples of 128" },
        { 4, 0, 0, "new ranks" },                     { 4, 2, 0, "in samples of 512" },
        { 1, 2, 0, "on one" },                        { 8, 0, CKR_DATA, "given up on eight" },
    };
    size_t i;
    ask a;
    const memio_file *f, *g;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        a = to_dp(rows[i].dp, 0);
        a.B = rows[i].B;
        a.without = rows[i].without;
        if (!convert("in", "w/first", a, "") ||
            !convert("w/first", "w/second", to_dp(rows[i].dp, 0), ""))
            continue;
        same_states("w/first", "w/second", rows[i].dp);
    }
    a = to_dp(1, 0);
    a.B = 2;
    convert("in", "w/half", a, "CKR_W_DATA_POSITION");
    convert("w/half", "w/plain", to_dp(2, 1), "CKR_W_DATA_BATCH");
    f = memio_find(&disk, "w/half/state_" STEP "_00000.bin");
    g = memio_find(&disk, "w/plain/state_" STEP "_00000.bin");
    if (CHECK(f && g)) CHECK(!memcmp(f->data + 120, g->data + 120, 16));
    a = to_dp(2, 1);
    a.B = 2;
    convert("in", "w/same", a, "");
    convert("w/half", "w/undone", a, "");
    same_states("w/same", "w/undone", 2);
    memio_find(&disk, "w/half/state_" STEP "_00000.bin")->data[128] ^= 1;      /* it went on */
    convert("w/half", "w/other", a, "CKR_W_DATA_POSITION");
    f = memio_find(&disk, "w/same/state_" STEP "_00000.bin");
    g = memio_find(&disk, "w/other/state_" STEP "_00000.bin");
    if (CHECK(f && g)) CHECK(f->size != g->size || memcmp(f->data, g->data, f->size));
}

/* Names and paths as glob of POSIX takes them. */
static void token_globs(void)
{
    static const struct { const char *pattern, *name; bool yes; } rows[] = {
        { "*", "a", true },             { "*", ".a", false },        { ".*", ".a", true },
        { "a*c", "abbc", true },        { "a*c", "ab", false },      { "?b", "ab", true },
        { "[ab]c", "bc", true },        { "[!ab]c", "bc", false },   { "[^ab]c", "xc", true },
        { "t_[0-9][0-9]", "t_07", true }, { "t_[0-9]", "t_a", false }, { "[]]", "]", true },
        { "[a-]", "-", true },          { "a[", "a[", true },
#if !defined(_WIN32)           /* there a backslash stands between directories */
        { "\\*", "*", true },           { "\\*", "a", false },
#endif
        { "*[!x]", "abx", false },   { "x*y*z", "x1yy2z", true },
        { "", "a", false },             { "a", "", false },
    };
    static const struct { const char *pattern, *paths; } globs[] = {
        { "g/*/t_*.bin", "g/a/t_0.bin g/a/t_1.bin g/b/t_0.bin" },
        { "g/[b-z]/t_[0-9].bin", "g/b/t_0.bin" },
        { "g/?/t_1.bin", "g/a/t_1.bin" },
        { "g/a/t_1.bin", "g/a/t_1.bin" },
        { "g//a/*1*", "g/a/t_1.bin" },
        { "g/*/none", "" },
        { "g/a", "" },
    };
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c;
    ckr__lm_paths l;
    char text[200];
    uint64_t k;
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++)
        t_check(ckr__glob(rows[i].pattern, rows[i].name) == rows[i].yes, __FILE__, __LINE__,
                "%s and %s", rows[i].pattern, rows[i].name);
    memio_add(&disk, "g", true);
    memio_add(&disk, "g/a", true);
    memio_add(&disk, "g/b", true);
    memio_put(&disk, "g/t_9.bin", "x", 1);
    memio_put(&disk, "g/a/t_1.bin", "x", 1);
    memio_put(&disk, "g/a/t_0.bin", "x", 1);
    memio_put(&disk, "g/b/t_0.bin", "x", 1);
    d.env = &env;
    if (!CHECK_OK(ckr_ckpt_create(&d, &c, &err), &err)) return;
    for (i = 0; i < sizeof globs / sizeof *globs; i++) {
        CHECK(ckr__lm_glob(&c->ctx, globs[i].pattern, &l) == CKR_OK);
        for (k = 0, *text = 0; k < l.n; k++) {
            if (k) strcat(text, " ");
            strcat(text, l.list[k]);
        }
        t_check(!strcmp(text, globs[i].paths), __FILE__, __LINE__, "%s: %s", globs[i].pattern,
                text);
    }
    CHECK(ckr__lm_glob(&c->ctx, "missing/*.bin", &l) == CKR_E_IO);
    ckr_ckpt_close(c);
}

/* A loader made anew is the one that llm.c made: same order, permutation and generator. */
static void fresh_loader(void)
{
    ckr_ckpt *c = open_ok("in");
    const ckr__lm *m;
    ckr__lm_job x;
    uint64_t ntok[3] = { 1281, 1550, 1819 };
    uint32_t r;
    if (!c) return;
    m = (const ckr__lm *)ckr__kept_data(ckr_ckpt_state(c));
    memset(&x, 0, sizeof x);
    x.c = &c->ctx;
    x.s = ckr_ckpt_state(c);
    x.tokens = ntok;
    x.unit = 256;
    for (r = 0; r < 2; r++) {
        const ckr__lm_rank *k = &m->ranks[r];
        const uint8_t *p = ckr__lm_fresh(&x, r, 3, 0, k->shard);
        if (!CHECK(p != NULL && ckr__load_u64(p + 20) >= k->n_samples)) continue;
        CHECK(!memcmp(p, k->section, 20));
        CHECK(!memcmp(p + 28, k->section + 28, 4 * (size_t)k->n_samples));
        CHECK(!memcmp(p + 28 + 4 * ckr__load_u64(p + 20) + 8,
                      k->section + k->n_section - CKR__LM_MT + 8, CKR__LM_MT - 8));
    }
    ckr_ckpt_close(c);
}

static bool sound(const char *path)
{
    ckr_ckpt *c = open_ok(path);
    ckr_report *r = NULL;
    bool ok = false;
    memset(&r, 0, sizeof r);
    if (c && CHECK_OK(ckr_ckpt_check(c, &r, &err), &err)) ok = r->sound;
    ckr_report_free(r);
    ckr_ckpt_close(c);
    return ok;
}

static void add_to_param(const char *path, int by)
{
    memio_file *f = memio_find(&disk, path);
    uint8_t *p = f->data + 1024;
    const uint16_t v = ckr__load_u16(p);
    ckr__store_u16(p, (uint32_t)(v + by));
}

static void precisions(void)
{
    const char *model = "w/bf/model_" STEP ".bin";
    ask a = to_dp(2, 0), b = to_dp(2, 0);
    ckr_ckpt *c;
    int i, n = 0;
    a.dtype = CKR_DTYPE_BF16;
    b.dtype = CKR_DTYPE_F32;
    if (!convert("in", "w/bf", a, "CKR_DTYPE_CAST CKR_W_LLMC_ROUNDING")) return;
    CHECK_INT(memio_find(&disk, model)->data[4], 5);
    c = open_ok("w/bf");
    CHECK(c && ckr_ckpt_state(c)->n_notes &&
          !strcmp(ckr_ckpt_state(c)->notes[1].code, "CKR_LLMC_ROUNDED_APART"));
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/bf/ckptresume.json");       /* which has the digests */
    CHECK(sound("w/bf"));
    for (i = -2; i <= 2; i++) {                        /* one of its neighbours is right too */
        add_to_param(model, i);
        n += sound("w/bf");
        add_to_param(model, -i);
    }
    CHECK_INT(n, 2);
    if (!convert("w/bf", "w/up", b, "CKR_DTYPE_CAST")) return;
    CHECK(same_file("w/up/model_" STEP ".bin", "in/model_" STEP ".bin"));      /* the masters */
    memio_remove(&disk, "w/up/ckptresume.json");
    CHECK(sound("w/up"));
}

/* fp32 parameters without masters become the masters of bf16 ones: nothing is lost. */
static void masters_are_made(void)
{
    ask in = to_dp(2, 1);
    ckr_ckpt *c, *d;
    ckr_read r = CKR_ZERO;
    float x[2048], y[2048];
    in.to = "llmc";
    in.dtype = CKR_DTYPE_BF16;
    {
        ckr_ckpt *s = open_ok("in");
        ckr_target t = CKR_ZERO;
        ckr_plan *p = NULL;
        t.mode = CKR_MODE_CONTINUE;
        t.dialect = "safetensors";
        t.slots = "param,exp_avg,exp_avg_sq";
        CHECK_OK(ckr_plan_create(s, &t, 0, &p, &err), &err);
        memio_remove(&disk, "w/no");
        CHECK_OK(ckr_plan_write(p, "w/no", NULL, &err), &err);
        ckr_plan_free(p);
        ckr_ckpt_close(s);
    }
    if (!convert("w/no", "w/made", in, "CKR_LLMC_MASTERS_MADE")) return;
    CHECK(sound("w/made"));
    c = open_ok("in");
    d = open_ok("w/made");
    r.tensor = c ? ckr_ckpt_tensor(c, "fcw", "param") : NULL;
    r.dst = x;
    r.dst_size = 4 * 16 * 64;
    if (CHECK(r.tensor != NULL)) CHECK_OK(ckr_ckpt_read(c, &r, 1, &err), &err);
    r.tensor = d ? ckr_ckpt_tensor(d, "fcw", "master") : NULL;
    r.dst = y;
    if (CHECK(r.tensor != NULL)) CHECK_OK(ckr_ckpt_read(d, &r, 1, &err), &err);
    CHECK(!memcmp(x, y, 4 * 16 * 64));
    ckr_ckpt_close(c);
    ckr_ckpt_close(d);
}

static void gpt2_names(void)
{
    ask out = to_dp(0, -1), in = to_dp(2, 1);
    static const char *const to[] = { "safetensors", "torch" };
    ckr_ckpt *c;
    const ckr_tensor *t;
    size_t i;
    in.to = "llmc";
    in.B = 2;
    for (i = 0; i < 2; i++) {
        out.to = to[i];
        if (!convert("in", "w/plain", out, "CKR_W_TENSORS_ONLY")) continue;
        c = open_ok("w/plain");
        t = c ? ckr_ckpt_tensor(c, "transformer.h.0.attn.c_attn.weight", "param") : NULL;
        CHECK(t && t->shape[0] == 16 && t->shape[1] == 48);    /* (in, out) */
        t = c ? ckr_ckpt_tensor(c, "optimizer.state.transformer.wte.weight.master", "param") : NULL;
        CHECK(t && t->shape[0] == 61);
        ckr_ckpt_close(c);
        if (!convert("w/plain", "w/again", in, "CKR_W_DATA_NEW")) continue;
        CHECK(same_tensors("in", "w/again"));
        CHECK(same_file("in/model_" STEP ".bin", "w/again/model_" STEP ".bin"));
    }
}

/* Without m and v there is only a model, which llm.c starts from. */
/* Rows that are told where the files tell others are said to be passed over, both ways. */
static void told_vocabulary(void)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_target t = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    uint32_t told;
    d.env = &env;
    for (told = 0; told < 2; told++) {
        d.vocab = told ? 61 : 40;
        CHECK_OK(ckr_ckpt_open("in", &d, &c, &err), &err);
        p = c ? plan_of(c, to_dp(1, 0)) : NULL;
        CHECK(p && (note_in(p, "CKR_W_LLMC_VOCAB") == NULL) == (told == 1));
        ckr_plan_free(p);
        ckr_ckpt_close(c);
    }
    t.mode = CKR_MODE_CONTINUE;
    t.topology.zero = -1;
    t.dialect = "safetensors";
    t.force = true;
    c = open_ok("in");
    CHECK_OK(ckr_plan_create(c, &t, 0, &p, &err), &err);
    CHECK_OK(ckr_plan_write(p, "w/v.safetensors", NULL, &err), &err);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    c = open_ok("w/v.safetensors");
    t.dialect = "llmc";
    t.vocab = 40;
    CHECK_OK(ckr_plan_create(c, &t, 0, &p, &err), &err);
    CHECK(p && note_in(p, "CKR_W_LLMC_VOCAB"));
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

static void model_only(void)
{
    ask a = to_dp(0, -1);
    ckr_ckpt *c;
    a.without = CKR_OPTIMIZER;
    if (!convert("in", "w/bare", a, "CKR_W_LLMC_MODEL_ONLY")) return;
    CHECK(same_file("in/model_" STEP ".bin", "w/bare/model_" STEP ".bin"));
    CHECK(memio_find(&disk, "w/bare/DONE_" STEP) == NULL);
    c = open_ok("w/bare/model_" STEP ".bin");
    CHECK_INT(c ? ckr_ckpt_state(c)->n_tensors : 0, 16);
    ckr_ckpt_close(c);
}

/* A plan that is refused by this item. */
/* A file by itself: every word and tensor of it by its name; a slot's length is told by the model
   beside it, without which the rest is bytes. */
static void trees(void)
{
    const char *state = "in/state_" STEP "_00001.bin";
    ckr_ckpt *c = tree_of("in/model_" STEP ".bin");
    const ckr_node *n;
    memio_file *f;
    int64_t v = 0;
    float x[2];
    if (c) {
        n = ckr_ckpt_root(c);
        CHECK(ckr_node_i64(ckr_node_find(n, "/header/padded_vocab_size"), &v) && v == 128);
        CHECK_INT(ckr_node_get(n, "params")->count, 16);
        CHECK_INT(ckr_node_find(n, "/params/lnfb")->u.view->data_offset + 16 * 4,
                  memio_find(&disk, "in/model_" STEP ".bin")->size);
    }
    ckr_ckpt_close(c);
    c = tree_of(state);
    if (c) {
        n = ckr_ckpt_root(c);
        CHECK(ckr_node_i64(ckr_node_find(n, "/header/process_rank"), &v) && v == 1);
        CHECK_INT(ckr_node_find(n, "/header/rng_state_last_update")->kind, CKR_NODE_BIGINT);
        CHECK_INT(ckr_node_find(n, "/master")->u.view->shape[0], 3192);
        CHECK_INT(ckr_node_find(n, "/loader/samples")->u.view->shape[0], 5);
        CHECK(ckr_node_i64(ckr_node_find(n, "/loader/mt19937/left"), &v) && v == 613);
        CHECK_OK(ckr_view_read(c, ckr_node_find(n, "/m")->u.view, 0, 2, x, &err), &err);
        CHECK(!memcmp(x, memio_find(&disk, state)->data + 1024, sizeof x));
    }
    ckr_ckpt_close(c);
    f = memio_find(&disk, state);
    memio_put(&disk, "w/alone/state_" STEP "_00001.bin", f->data, f->size);
    c = tree_of("w/alone/state_" STEP "_00001.bin");
    if (c) {
        n = ckr_ckpt_root(c);
        CHECK_INT(n->count, 2);
        CHECK_INT(ckr_node_get(n, "rest")->u.view->shape[0], memio_find(&disk, state)->size - 1024);
    }
    ckr_ckpt_close(c);
}

static void refuses(const char *from, ask a, ckr_item item)
{
    ckr_ckpt *c = open_ok(from);
    ckr_plan *p = c ? plan_of(c, a) : NULL;
    t_check(p && ckr_plan_info(p)->verdict == CKR_VERDICT_REFUSED &&
                note_in(p, ckr_item_name(item)),
            __FILE__, __LINE__, "no %s", ckr_item_name(item));
    bad_seen[item] = true;
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* What no file holds is told: LR, weight decay, batch, precision, the model that is begun with. */
static void options(void)
{
    static const struct {
        const char *group, *set, *value, *option, *now;
        uint32_t without;
        ckr_dtype dtype;
    } x[] = {
        { NULL, "weight_decay", "0.1", "-c", "0.1", 0, CKR_DTYPE_NONE },
        { "decay", "weight_decay", "0.1", "-c", "0.1", 0, CKR_DTYPE_NONE },
        { "no_decay", "weight_decay", "0.1", NULL, NULL, 0, CKR_DTYPE_NONE },
        { NULL, "lr", "0.001", "-l", "0.001", 0, CKR_DTYPE_NONE },
        { "decay", "lr", "0.001", NULL, NULL, 0, CKR_DTYPE_NONE },
        { NULL, "batch_size", "12", "-d", "768", 0, CKR_DTYPE_NONE },
        { NULL, NULL, NULL, "PRECISION", "BF16", 0, CKR_DTYPE_BF16 },
        { NULL, NULL, NULL, "-e", "OUT/model_" STEP ".bin", CKR_OPTIMIZER, CKR_DTYPE_NONE }
    };
    ckr_ckpt *c = open_ok("in");
    ckr_target t = CKR_ZERO;
    ckr_plan *p = NULL;
    size_t i;
    for (i = 0; c && i < sizeof x / sizeof *x; i++) {
        ckr_setting set;
        memset(&t, 0, sizeof t);
        t.mode = CKR_MODE_CONTINUE;
        t.topology.zero = -1;
        t.dtype = x[i].dtype;
        t.without = x[i].without;
        set.group = x[i].group;
        set.key = x[i].set;
        set.value = x[i].value;
        t.sets = &set;
        t.n_sets = x[i].set != NULL;
        if (!CHECK_OK(ckr_plan_create(c, &t, 0, &p, &err), &err)) continue;
        if (x[i].option) CHECK_STR(setting_value(ckr_plan_info(p), x[i].option), x[i].now);
        else CHECK(note_in(p, "CKR_E_SETTING") != NULL);
        settings_told(ckr_plan_info(p));
        ckr_plan_free(p);
    }
    memset(&t, 0, sizeof t);   /* nobody knows the LR: not exact, and no reason to refuse     */
    t.topology.zero = -1;
    p = NULL;
    if (c && CHECK_OK(ckr_plan_create(c, &t, 0, &p, &err), &err)) {
        const ckr_note *n = note_in(p, "CKR_N_NO_SCHEDULE");
        if (CHECK(n && n->severity == CKR_CHANGED && ckr__recovers(n)))
            CHECK(strstr(n->reason, "-l") != NULL);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

static void refused(void)
{
    static const float one[64] = { 0 };
    static const int64_t shape[] = { 8, 8 };
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p;
    ask a = to_dp(2, 2);
    refuses("in", a, CKR_ITEM_ZERO_STAGE);
    a = to_dp(2, 1);
    a.without = CKR_PARAMS;
    refuses("in", a, CKR_ITEM_PARAMS_WITHOUT);
    a.without = CKR_PROGRESS;
    refuses("in", a, CKR_ITEM_CLOCK_WITHOUT);
    a.without = 0;
    a.dtype = CKR_DTYPE_F16;
    refuses("in", a, CKR_ITEM_WRITE_DTYPE);
    a = to_dp(2, 1);
    a.B = 20;                                          /* longer than a token file */
    refuses("in", a, CKR_ITEM_LLMC_DATA);
    a = to_dp(2, 1);
    a.to = "llmc";
    CHECK_OK(ckr_ckpt_create(&d, &c, &err), &err);
    CHECK_OK(ckr_ckpt_put(c, "wte.weight", "param", CKR_DTYPE_F32, 2, shape, one, &err), &err);
    p = plan_of(c, a);
    CHECK(p && note_in(p, "CKR_E_LLMC_SOURCE"));
    bad_seen[CKR_ITEM_LLMC_SOURCE] = true;
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* The case with one 32-bit word changed, or a file cut (word UINT32_MAX). */
static void broken_one(const char *file, uint64_t at, uint32_t word, ckr_item item, uint64_t offset,
                       const char *where)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    memio_file *f = memio_find(&disk, file);
    uint32_t old;
    size_t size;
    ckr_result r;
    if (!CHECK(f != NULL)) return;
    size = f->size;
    d.env = &env;
    old = ckr__load_u32(f->data + (word == UINT32_MAX ? 0 : at));
    if (word == UINT32_MAX) f->size = (size_t)at;
    else ckr__store_u32(f->data + at, word);
    r = ckr_ckpt_open("in", &d, &c, &err);
    if (offset == CKR_NO_OFFSET) file = "in/state_" STEP "_00002.bin";
    bad_is(r, &err, file, bad(item, file, offset, where));
    f->size = size;
    if (word != UINT32_MAX) ckr__store_u32(f->data + at, old);
    ckr_ckpt_close(c);
}

static void without_file(const char *file, ckr_item item, const char *of, const char *where)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    memio_file *f = memio_find(&disk, file);
    char *kept;
    if (!CHECK(f != NULL)) return;
    d.env = &env;
    kept = f->path;
    f->path = memio_dup("away", 4);
    bad_is(ckr_ckpt_open("in", &d, &c, &err), &err, file, bad(item, of, CKR_NO_OFFSET, where));
    free(f->path);
    f->path = kept;
    ckr_ckpt_close(c);
}

static void broken(void)
{
    const char *model = "in/model_" STEP ".bin", *s0 = "in/state_" STEP "_00000.bin",
               *s1 = "in/state_" STEP "_00001.bin", *train = "data/train_1.bin";
    const uint64_t end = memio_find(&disk, s0)->size, tail = end - CKR__LM_MT;
    ckr_ckpt *c;
    ckr_target t = CKR_ZERO;
    ckr_plan *p = NULL;
    broken_one(model, 0, 1, CKR_ITEM_LLMC_MAGIC, 0, "header[0]");
    broken_one(model, 4, 4, CKR_ITEM_LLMC_VERSION, 4, "header[1]");
    broken_one(model, 16, 0, CKR_ITEM_LLMC_HEADER, 16, "");
    broken_one(model, 28, 60, CKR_ITEM_LLMC_HEADER, 8, "");
    broken_one(model, 12, 60, CKR_ITEM_LLMC_HEADER, 1024 + 60 * 16 * 4, "wte");
    broken_one(model, 16, 2, CKR_ITEM_LLMC_SIZE, memio_find(&disk, model)->size, "");
    broken_one(model, 500, UINT32_MAX, CKR_ITEM_LLMC_SIZE, 500, "");
    broken_one(s0, end - 1, UINT32_MAX, CKR_ITEM_LLMC_SIZE, end - 1, "");
    broken_one(s1, 4, 2, CKR_ITEM_LLMC_VERSION, 4, "");
    broken_one(s1, 12, 0, CKR_ITEM_LLMC_RANKS, 12, "");
    broken_one(s1, 40, 9, CKR_ITEM_LLMC_RANKS, 40, "header[10]");
    broken_one(s0, tail + 2516, 5, CKR_ITEM_LLMC_SHUFFLE, tail, "");
    broken_one(s0, 120, 3, CKR_ITEM_LLMC_SHUFFLE, tail - 24 - 20 - 8, "");
    broken_one(s0, 132, 1, CKR_ITEM_LLMC_SHUFFLE, tail - 24 - 8, "");
    broken_one(s0, 8, 3, CKR_ITEM_RANK_MISSING, CKR_NO_OFFSET, "");
    without_file("in/DONE_" STEP, CKR_ITEM_LLMC_INCOMPLETE, "in", "");
    without_file(s0, CKR_ITEM_RANK_MISSING, s0, "");
    without_file(model, CKR_ITEM_RANK_MISSING, "in", "model_" STEP ".bin");
    memio_put(&disk, "in/state_" STEP "_00002.bin", "", 0);
    broken_one(s0, 8, 2, CKR_ITEM_FILES_FOREIGN, CKR_NO_OFFSET, "");
    memio_remove(&disk, "in/state_" STEP "_00002.bin");
    c = open_ok("in");
    memio_find(&disk, train)->data[0] ^= 1;
    t.mode = CKR_MODE_CONTINUE;
    option_text(&t, "data", "data/train_?.bin");
    option_int(&t, "micro_batch", 2);
    option_int(&t, "seq_len", 64);
    if (c)
        bad_is(ckr_plan_create(c, &t, 0, &p, &err), &err, train,
               bad(CKR_ITEM_LLMC_TOKENS, train, 0, ""));
    memio_find(&disk, train)->data[0] ^= 1;
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

static void faults_on_the_way(void)
{
    whole w;
    memset(&w, 0, sizeof w);
    w.path = "in";
    w.target = target_of(0, 0, 4, 0, NULL);
    option_text(&w.target, "data", "data/train_*.bin");
    option_int(&w.target, "micro_batch", 1);
    option_int(&w.target, "seq_len", 64);
    whole_way_fails(&w, 0);
}

int main(int argc, char **argv)
{
    static const ckr_item never[] = { CKR_ITEM_OK };
    t_begin(argc, argv);
    load_case();
    RUN(what_is_read);
    RUN(there_and_back);
    RUN(stage);
    RUN(loaders);
    RUN(files_win);
    RUN(token_globs);
    RUN(fresh_loader);
    RUN(precisions);
    RUN(masters_are_made);
    RUN(gpt2_names);
    RUN(told_vocabulary);
    RUN(model_only);
    RUN(trees);
    RUN(options);
    RUN(refused);
    RUN(broken);
    RUN(faults_on_the_way);
    if (argc < 2) bad_all_seen(BAD_LLMC, never);
    memio_free(&disk);
    return t_end();
}
