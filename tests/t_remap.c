/* Random streams from N ranks to M: known answers of the derivation, N -> M -> N, scopes,
   duplicates, the record as a hostile file, each allocation failing. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "bad.h"

#include <math.h>

static ckr_error t_err;

/* >>world: a run that saves, is remapped and saves again ------------------------ */

enum { MAX_KINDS = 8 };

/* What a framework has: a stream of this kind and name, varying over these axes. */
typedef struct brand { ckr_rng_kind kind; const char *name; uint32_t axes; bool declared; } brand;

static const brand all_of[] = { { CKR_RNG_TORCH_CUDA, "default", 1u << CKR__AXIS_DP, true },
                                { CKR_RNG_TORCH_CPU, "default", 1u << CKR__AXIS_DP, true },
                                { CKR_RNG_NUMPY, "default", 1u << CKR__AXIS_DP, true },
                                { CKR_RNG_PYTHON, "default", 1u << CKR__AXIS_DP, true } };

typedef struct world {
    ckr__ctx        c;
    ckr_topology    t;
    ckr__rng_saved *saved;
    uint64_t        n_saved, n_streams;
    ckr_node       *lineage;   /* as read back from JSON                                */
    ckr__rng_result last;
    uint64_t        step;
} world;

static void world_open(world *w)
{
    memset(w, 0, sizeof *w);
    CHECK_OK(ckr__ctx_init(&w->c, NULL, NULL, &t_err), &t_err);
}

static void world_close(world *w)
{
    ckr__ctx_free(&w->c);
}

static ckr_topology topo(uint32_t dp, uint32_t pp, uint32_t tp, uint32_t cp, uint32_t ep)
{
    ckr_topology t;
    memset(&t, 0, sizeof t);
    t.dp = dp;
    t.pp = pp;
    t.tp = tp;
    t.cp = cp;
    t.ep = ep;
    t.ranks = dp * pp * tp * cp;
    return t;
}

static void draw(ckr_rng *r, uint32_t n)
{
    if (ckr__has_counter(r)) r->offset += 4 * (uint64_t)n;
    else while (n--) (void)ckr_rng_u32(r);
}

/* Every rank seeds by its point in the scope, then draws as many words as its stream says. */
static void world_seed(world *w, ckr_topology t, const brand *b, uint32_t n_brands, uint64_t seed)
{
    ckr__grid g;
    uint32_t rank, i, k, at[CKR__AXES];
    CHECK(ckr__grid_make(&t, &g));
    w->t = t;
    w->n_streams = n_brands;
    w->n_saved = (uint64_t)g.ranks * n_brands;
    w->saved = CKR__NEW_N(&w->c, ckr__rng_saved, w->n_saved);
    for (rank = 0; rank < g.ranks; rank++)
        for (i = 0; i < n_brands; i++) {
            ckr__rng_saved *s = &w->saved[(uint64_t)rank * n_brands + i];
            ckr_rng *r = CKR__NEW(&w->c, ckr_rng);
            uint64_t own = seed;
            ckr__grid_at(&g, rank, at);
            for (k = 0; k < CKR__AXES; k++)
                if (b[i].axes >> k & 1) own = own * 131 + at[k] + 1;
            if (b[i].kind == CKR_RNG_NUMPY) own &= 0xffffffffu;
            CHECK_OK(ckr_rng_seed(r, b[i].kind, own), &t_err);
            draw(r, (uint32_t)(own % 1000) + i);
            s->name = b[i].name;
            s->rank = rank;
            s->axes = b[i].declared ? b[i].axes : 0;
            s->declared = b[i].declared;
            s->state = r;
        }
}

static ckr__rng_job world_job(const world *w, ckr_topology to)
{
    ckr__rng_job j;
    memset(&j, 0, sizeof j);
    j.saved = w->saved;
    j.n_saved = w->n_saved;
    j.from = w->t;
    j.to = to;
    j.mode = CKR_MODE_CONTINUE;
    j.step = (int64_t)w->step;
    j.lineage = w->lineage;
    j.file = "ckptresume.json";
    return j;
}

/* The record through JSON text, as a side file keeps it. */
static ckr_node *reread(ckr__ctx *c, const ckr_node *n)
{
    ckr__buf b;
    ckr_node *out = NULL;
    uint8_t *copy;
    if (!n) return NULL;
    memset(&b, 0, sizeof b);
    b.c = c;
    CHECK_OK(ckr__json_put(&b, n, 0, false), c->err);
    copy = (uint8_t *)ckr__arena(c, b.size + 1);
    memcpy(copy, b.data, b.size);
    CHECK_OK(ckr__json_parse(c, "record", copy, b.size, 0, &out), c->err);
    ckr__buf_free(&b);
    return out;
}

/* The coming run takes its streams, draws `words` from each, and saves. */
static bool world_move(world *w, ckr_topology to, ckr_rng_policy policy, uint64_t seed,
                       uint32_t words)
{
    ckr__rng_job j = world_job(w, to);
    ckr__rng_saved *saved;
    uint64_t i, n;
    j.policy = policy;
    j.seed = seed;
    if (!CHECK_OK(ckr__rng_remap(&w->c, &j, &w->last), w->c.err)) return false;
    n = (uint64_t)w->last.n_ranks * w->last.n_streams;
    saved = CKR__NEW_N(&w->c, ckr__rng_saved, n);
    for (i = 0; i < n; i++) {
        const ckr_rng_given *g = &w->last.given[i];
        ckr_rng *r = CKR__NEW(&w->c, ckr_rng);
        uint32_t axes;
        if (!CHECK(g->state != NULL)) return false;
        *r = *g->state;
        draw(r, words);
        CHECK(ckr__axes_parse(g->scope, &axes));
        saved[i].name = g->name;
        saved[i].rank = (uint32_t)(i / w->last.n_streams);
        saved[i].axes = axes;
        saved[i].declared = true;
        saved[i].state = r;
    }
    w->saved = saved;
    w->n_saved = n;
    w->t = to;
    w->lineage = reread(&w->c, w->last.lineage);
    w->step += 100;
    return true;
}

static bool same_bytes(const ckr_rng *a, const ckr_rng *b)
{
    uint8_t x[CKR__PACK_MAX], y[CKR__PACK_MAX];
    const size_t n = ckr__pack(a, x);
    return n == ckr__pack(b, y) && !memcmp(x, y, n);
}

static bool has_note(const ckr__rng_result *r, const char *code)
{
    uint64_t i;
    for (i = 0; i < r->n_notes; i++) if (!strcmp(r->notes[i].code, code)) return true;
    return false;
}

/* What is odd and stays is not exact, and no reason not to recover it. */
static void stays_odd(const ckr__rng_result *r, const char *code, bool kept)
{
    uint64_t i;
    for (i = 0; i < r->n_notes; i++)
        if (!strcmp(r->notes[i].code, code))
            CHECK(r->notes[i].severity == (kept ? CKR_CHANGED : CKR_EXACT) &&
                  ckr__recovers(&r->notes[i]));
}

/* >>known answers --------------------------------------------------------------- */

static void kat_seeds(void)
{
    static const uint32_t zero[2] = { 0, 0 }, two[2] = { 0x2d7fc081, 0x0068ebad },
                          seven[2] = { 0x72e61885, 0x8abe218c };
    static const uint64_t first[] = { 2618511705928372851u, 7448376502658137897u,
                                      6262747089204393859u, 4908500551288684943u,
                                      3658945539452942082u, 441070515854136584u,
                                      908206416762542956u, 4182444817673052823u };
    static const uint64_t tags[] = { 1201577960263639639u, 493338628475935460u,
                                     8033211403243169657u, 2823001663679270225u,
                                     2766147102964669420u };
    uint32_t i;
    for (i = 0; i < 8; i++) CHECK(ckr__derive_seed(zero, 1, 1 + i / 4, 0, i % 4) == first[i]);
    CHECK(ckr__derive_seed(zero, 1, 1, 1, 0) == 0x0fbfd041bf81118cu);
    for (i = 0; i < 5; i++) CHECK(ckr__derive_seed(two, 1 + i, 1, 0, 2) == tags[i]);
    CHECK(ckr__derive_seed(seven, 1, 1, 0, 7) == 0x22c65daaff5ccf32u);
    CHECK(ckr__derive_seed(seven, 1, 1, 0, 8) == 0x7c239161d09d2ff2u);
    CHECK(ckr__derive_seed(seven, 1, 2, 0, 7) == 0x33376770bd40b0f3u);
    CHECK(ckr__derive_seed(seven, 1, 2, 0, 8) == 0x0ef6b7ffaae3ca8eu);
}

/* A run with only CUDA streams (first + rank, offset). */
static void cuda_world(world *w, uint32_t n, uint64_t first, uint64_t offset)
{
    static const brand b = { CKR_RNG_TORCH_CUDA, "default", 1u << CKR__AXIS_DP, true };
    uint32_t i;
    world_seed(w, topo(n, 1, 1, 1, 1), &b, 1, 1);
    for (i = 0; i < n; i++) {
        ckr_rng *r = CKR__NEW(&w->c, ckr_rng);
        CHECK_OK(ckr_rng_seed(r, CKR_RNG_TORCH_CUDA, first + i), &t_err);
        r->offset = offset;
        w->saved[i].state = r;
    }
}

static void kat_root(void)
{
    world w;
    ckr__rng_job j;
    ckr__rng_result r;
    world_open(&w);
    cuda_world(&w, 2, 43, 4000);
    j = world_job(&w, topo(3, 1, 1, 1, 1));
    CHECK_OK(ckr__rng_remap(&w.c, &j, &r), w.c.err);
    CHECK_STR(ckr_node_str(ckr_node_get(r.lineage, "root_sha256")),
              "81c07f2dadeb6800b8231ae040986d681b3c46a1a49c3761176619fb6df30ac4");
    CHECK_STR(ckr_node_str(ckr_node_get(r.lineage, "K")), "2d7fc0810068ebad");
    CHECK(r.given[2].state->seed == 1201577960263639639u && r.given[2].state->offset == 0);
    CHECK(r.given[2].source == CKR_RNG_FROM_LINEAGE && r.given[2].exactness == 3);
    CHECK(r.given[0].source == CKR_RNG_FROM_RANK && r.given[1].rank == 1);
    world_close(&w);
    world_open(&w);
    cuda_world(&w, 7, 1, 4096);
    j = world_job(&w, topo(9, 1, 1, 1, 1));
    CHECK_OK(ckr__rng_remap(&w.c, &j, &r), w.c.err);
    CHECK_STR(ckr_node_str(ckr_node_get(r.lineage, "root_sha256")),
              "8518e6728c21be8ae521f871490b37962414f57af297772f89ccb7d0fba9c72d");
    CHECK(r.given[7].state->seed == 0x22c65daaff5ccf32u);
    CHECK(r.given[8].state->seed == 0x7c239161d09d2ff2u);
    CHECK(r.disjoint);
    world_close(&w);
}

/* 7 -> 6 -> 7 -> 9 -> 7 -> 9, as the scheme's own model run. */
static void kat_walk(void)
{
    static const uint32_t sizes[] = { 6, 7, 9, 7, 9 };
    static const uint64_t carried[] = { 1, 0, 0, 2, 0 };
    uint64_t key[2] = { 0, 0 };
    world w;
    size_t i, k;
    world_open(&w);
    cuda_world(&w, 7, 1, 4096);
    for (i = 0; i < 5; i++) {
        if (!world_move(&w, topo(sizes[i], 1, 1, 1, 1), CKR_RNG_KEEP, 0, 10)) break;
        CHECK_INT(w.last.n_carried, carried[i]);
        CHECK(w.last.disjoint);
        for (k = 0; k < 7 && k < sizes[i]; k++) CHECK(w.saved[k].state->seed == 1 + k);
        if (sizes[i] == 9 && !key[0]) {
            key[0] = w.saved[7].state->seed;
            key[1] = w.saved[8].state->seed;
        } else if (sizes[i] == 9) {
            CHECK(w.saved[7].state->seed == key[0] && w.saved[8].state->seed == key[1]);
            CHECK(w.last.given[7].source == CKR_RNG_FROM_CARRIED);
        }
    }
    CHECK_INT(w.saved[6].state->offset, 4096 + 4 * 40);    /* one run less than the others */
    CHECK_INT(w.saved[0].state->offset, 4096 + 4 * 50);
    world_close(&w);
}

static void kat_mt(void)
{
    static const uint32_t words[] = { 829391751u, 1706617279u, 1273988535u, 3378618689u };
    ckr_rng like, r;
    int i;
    CHECK_OK(ckr_rng_seed(&like, CKR_RNG_PYTHON, 5), &t_err);
    CHECK(ckr__derive_state(&like, 493338628475935460u, 1, 2, &r));
    for (i = 0; i < 4; i++) CHECK(ckr_rng_u32(&r) == words[i]);
}

/* Distinct points give distinct seeds in [2^32, 2^63). */
static int cmp_u64(const void *a, const void *b)
{
    return ckr__u64_cmp(*(const uint64_t *)a, *(const uint64_t *)b);
}

static void kat_injective(void)
{
    static const uint32_t key[2] = { 0, 0 };
    const size_t n = 4 * 8 * 4096;
    uint64_t *v = (uint64_t *)malloc(n * sizeof *v);
    size_t i, same = 0, outside = 0;
    for (i = 0; i < n; i++) {
        v[i] = ckr__derive_seed(key, 1 + (uint32_t)(i / 32768), 1 + (uint32_t)(i / 4096 % 8), 0,
                                (uint32_t)(i % 4096));
        outside += v[i] >> 63 || v[i] >> 32 == 0;
    }
    qsort(v, n, sizeof *v, cmp_u64);
    for (i = 1; i < n; i++) same += v[i] == v[i - 1];
    CHECK_INT(same, 0);
    CHECK_INT(outside, 0);
    free(v);
}

/* >>identities ------------------------------------------------------------------ */

static const uint32_t pairs[][2] = { { 7, 6 }, { 6, 7 }, { 7, 14 }, { 8, 1 },
                                     { 1, 8 }, { 7, 7 }, { 1, 1 },  { 3, 64 } };

static void back_again(ckr_topology a, ckr_topology b, const brand *brands, uint32_t n,
                       uint64_t seed)
{
    world w;
    const ckr__rng_saved *first;
    uint64_t i;
    world_open(&w);
    world_seed(&w, a, brands, n, seed);
    first = w.saved;
    if (world_move(&w, b, CKR_RNG_KEEP, 0, 0) && world_move(&w, a, CKR_RNG_KEEP, 0, 0)) {
        for (i = 0; i < w.n_saved; i++) {
            CHECK(same_bytes(first[i].state, w.last.given[i].state));
            CHECK(w.last.given[i].source == CKR_RNG_FROM_RANK ||
                  w.last.given[i].source == CKR_RNG_FROM_CARRIED);
        }
        CHECK(w.last.disjoint);
        CHECK(!has_note(&w.last, "CKR_W_RNG_DERIVED") && !has_note(&w.last, "CKR_W_RNG_MISSING"));
    }
    world_close(&w);
}

static void identity_dp(void)
{
    size_t i;
    for (i = 0; i < sizeof pairs / sizeof *pairs; i++)
        back_again(topo(pairs[i][0], 1, 1, 1, 1), topo(pairs[i][1], 1, 1, 1, 1), all_of, 4, i + 1);
}

static void identity_random(void)
{
    static const ckr_rng_kind kinds[] = { CKR_RNG_TORCH_CUDA, CKR_RNG_TORCH_CPU, CKR_RNG_PYTHON,
                                          CKR_RNG_NUMPY, CKR_RNG_PCG64, CKR_RNG_LLMC,
                                          CKR_RNG_SFC64, CKR_RNG_PHILOX };
    static const char *const names[] = { "default", "tp_synced", "model-parallel-rng", "own" };
    t_rng g = { 11 };
    int i;
    for (i = 0; i < 150; i++) {
        brand b[MAX_KINDS];
        const uint32_t n = (uint32_t)t_range(&g, 1, 4);
        uint32_t k;
        ckr_topology a = topo((uint32_t)t_range(&g, 1, 5), (uint32_t)t_range(&g, 1, 3),
                              (uint32_t)t_range(&g, 1, 3), (uint32_t)t_range(&g, 1, 2), 1);
        ckr_topology z = topo((uint32_t)t_range(&g, 1, 5), (uint32_t)t_range(&g, 1, 3),
                              (uint32_t)t_range(&g, 1, 3), (uint32_t)t_range(&g, 1, 2), 1);
        if (i % 5 == 0) {
            a.ep = (uint32_t)t_range(&g, 1, 2);
            a.ranks *= a.ep;
            z.ep = (uint32_t)t_range(&g, 1, 2);
            z.ranks *= z.ep;
        }
        for (k = 0; k < n; k++) {
            b[k].kind = kinds[(k * 2 + (uint32_t)t_range(&g, 0, 1)) % 8];
            b[k].name = names[t_range(&g, 0, 3)];
            b[k].axes = (uint32_t)t_range(&g, 0, 31);
            b[k].declared = true;
        }
        back_again(a, z, b, n, t_next(&g) >> 8);
    }
}

/* A long random walk with training in between: at every point a stream is where it was last. */
static void identity_walk(void)
{
    const brand b = { CKR_RNG_TORCH_CPU, "default", 1u << CKR__AXIS_DP | 1u << CKR__AXIS_TP, true };
    ckr_rng last[8][8];
    bool known[8][8];
    t_rng g = { 5 };
    world w;
    int i;
    memset(known, 0, sizeof known);
    world_open(&w);
    world_seed(&w, topo(3, 1, 2, 1, 1), &b, 1, 77);
    for (i = 0; i < 40; i++) {
        const ckr_topology to = topo((uint32_t)t_range(&g, 1, 8), 1, (uint32_t)t_range(&g, 1, 8), 1,
                                     1);
        uint64_t k;
        for (k = 0; k < w.n_saved; k++) {
            last[k / w.t.tp][k % w.t.tp] = *w.saved[k].state;
            known[k / w.t.tp][k % w.t.tp] = true;
        }
        if (!world_move(&w, to, CKR_RNG_KEEP, 0, (uint32_t)t_range(&g, 0, 700))) break;
        CHECK(w.last.disjoint);
        for (k = 0; k < w.last.n_ranks; k++)
            if (known[k / to.tp][k % to.tp])
                CHECK(same_bytes(w.last.given[k].state, &last[k / to.tp][k % to.tp]));
            else CHECK(w.last.given[k].source == CKR_RNG_FROM_LINEAGE);
    }
    world_close(&w);
}

/* >>scopes ---------------------------------------------------------------------- */

/* Replicated streams are copied, distinct ones derived, and only where the scope says so. */
static void scope_copies(void)
{
    const brand b[] = { { CKR_RNG_TORCH_CUDA, "default", 0, true },
                        { CKR_RNG_TORCH_CUDA, "model-parallel-rng",
                          1u << CKR__AXIS_TP | 1u << CKR__AXIS_PP, true } };
    world w;
    uint32_t i;
    world_open(&w);
    world_seed(&w, topo(2, 1, 2, 1, 1), b, 2, 9);
    if (world_move(&w, topo(2, 1, 4, 1, 1), CKR_RNG_KEEP, 0, 0)) {
        for (i = 0; i < 8; i++) {
            const ckr_rng_given *d = &w.last.given[2 * i], *m = d + 1;
            CHECK(same_bytes(d->state, w.last.given[0].state) && d->source == CKR_RNG_FROM_RANK);
            CHECK(same_bytes(m->state, w.last.given[2 * (i % 4) + 1].state));
            CHECK((m->source == CKR_RNG_FROM_LINEAGE) == (i % 4 >= 2));
        }
        CHECK(w.last.disjoint && has_note(&w.last, "CKR_RNG_SHARED"));
        CHECK_STR(w.last.given[1].scope, "pp,tp");
        CHECK_INT(w.last.n_carried, 0);
    }
    world_close(&w);
}

/* Without a declaration the states say it; the record remembers what one rank cannot show. */
static void scope_observed(void)
{
    brand b = { CKR_RNG_PYTHON, "default", 1u << CKR__AXIS_DP, false };
    ckr_rng first[8];
    world w;
    uint32_t i;
    world_open(&w);
    world_seed(&w, topo(8, 1, 1, 1, 1), &b, 1, 3);
    for (i = 0; i < 8; i++) first[i] = *w.saved[i].state;
    if (world_move(&w, topo(1, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 0)) {
        CHECK_INT(w.last.n_carried, 7);
        w.saved[0].declared = false;
        w.saved[0].axes = 0;
        if (world_move(&w, topo(8, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 0))
            for (i = 0; i < 8; i++) CHECK(same_bytes(w.last.given[i].state, &first[i]));
    }
    world_close(&w);
    b.axes = 0;                /* the same everywhere: every new rank has it, too          */
    world_open(&w);
    world_seed(&w, topo(3, 1, 1, 1, 1), &b, 1, 3);
    if (world_move(&w, topo(5, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 0)) {
        for (i = 0; i < 5; i++) CHECK(same_bytes(w.last.given[i].state, w.last.given[0].state));
        CHECK_STR(w.last.given[0].scope, "");
        CHECK(w.last.verdict == CKR_VERDICT_EXACT);
    }
    world_close(&w);
}

static void scope_violation(void)
{
    const brand b = { CKR_RNG_NUMPY, "default", 1u << CKR__AXIS_TP, true };
    world w;
    uint32_t i;
    world_open(&w);
    world_seed(&w, topo(1, 1, 4, 1, 1), &b, 1, 3);
    for (i = 0; i < 4; i++) w.saved[i].axes = 0;           /* declared shared, but they differ */
    if (world_move(&w, topo(1, 1, 4, 1, 1), CKR_RNG_KEEP, 0, 0)) {
        CHECK(has_note(&w.last, "CKR_W_RNG_SCOPE"));
        CHECK_STR(w.last.given[0].scope, "tp");
        CHECK(w.last.disjoint);
    }
    world_close(&w);
}

/* Experts that divide the replicas: the coordinate follows from dp. */
static void scope_folded(void)
{
    const brand b = { CKR_RNG_TORCH_CUDA, "expert-parallel-rng", 1u << CKR__AXIS_EP, true };
    ckr_topology a = topo(4, 1, 1, 1, 2), z = topo(4, 1, 1, 1, 4);
    world w;
    world_open(&w);
    world_seed(&w, a, &b, 1, 3);
    if (world_move(&w, z, CKR_RNG_KEEP, 0, 0)) {
        CHECK_STR(w.last.given[0].scope, "ep");
        CHECK(w.last.given[1].source == CKR_RNG_FROM_RANK);
        CHECK(w.last.given[2].source == CKR_RNG_FROM_LINEAGE && w.last.disjoint);
    }
    world_close(&w);
}

/* Without a scope of their own they follow the replicas, and are no reason to see a difference. */
static void scope_folded_shared(void)
{
    const brand b = { CKR_RNG_TORCH_CUDA, "default", 0, false };
    world w;
    world_open(&w);
    world_seed(&w, topo(4, 1, 1, 1, 2), &b, 1, 3);
    CHECK(world_move(&w, topo(6, 1, 1, 1, 3), CKR_RNG_KEEP, 0, 0));
    CHECK_STR(w.last.given[0].scope, "");
    CHECK(w.last.verdict == CKR_VERDICT_EXACT);
    world_close(&w);
}

/* Only the number of ranks is known: they are replicas. */
static void ranks_only(void)
{
    const brand b = { CKR_RNG_PYTHON, "default", 1u << CKR__AXIS_DP, true };
    ckr_topology t;
    world w;
    memset(&t, 0, sizeof t);
    t.ranks = 7;
    world_open(&w);
    world_seed(&w, t, &b, 1, 3);
    t.ranks = 6;
    CHECK(world_move(&w, t, CKR_RNG_KEEP, 0, 0) && w.last.n_ranks == 6 && w.last.n_carried == 1);
    CHECK(world_move(&w, t, CKR_RNG_RESEED, 4, 0) && w.last.n_carried == 0);
    world_close(&w);
}

/* >>duplicates ------------------------------------------------------------------ */

/* Sana: rank 0 writes for all. As its file is (one rank's streams), and as stock code restores it
   (rank 0's everywhere). */
static void sana_file(void)
{
    world w;
    uint32_t i, k;
    world_open(&w);
    world_seed(&w, topo(7, 1, 1, 1, 1), all_of, 4, 1);
    w.n_saved = 4;
    if (world_move(&w, topo(6, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 0)) {
        for (i = 0; i < 24; i++)
            CHECK((w.last.given[i].source == CKR_RNG_FROM_RANK) == (i < 4));
        CHECK(w.last.disjoint && has_note(&w.last, "CKR_W_RNG_MISSING"));
        CHECK(w.last.verdict == CKR_VERDICT_APPROX);
    }
    world_close(&w);
    for (k = 0; k < 2; k++) {
        world_open(&w);
        world_seed(&w, topo(7, 1, 1, 1, 1), all_of, 4, 1);
        for (i = 4; i < 28; i++) w.saved[i].state = w.saved[i % 4].state;
        if (world_move(&w, topo(7, 1, 1, 1, 1), k ? CKR_RNG_REMAP : CKR_RNG_KEEP, 0, 0)) {
            CHECK(has_note(&w.last, "CKR_W_RNG_DUPLICATES"));
            stays_odd(&w.last, "CKR_W_RNG_DUPLICATES", k == 0);
            CHECK(w.last.disjoint == (k == 1));
            CHECK(strstr(w.last.proof, "NOT disjoint") == NULL || k == 0);
            for (i = 0; i < 4; i++) CHECK(w.last.given[i].source == CKR_RNG_FROM_RANK);
            for (i = 4; i < 28; i++)
                CHECK(w.last.given[i].source == (k ? CKR_RNG_FROM_LINEAGE : CKR_RNG_FROM_RANK));
            CHECK(has_note(&w.last, "CKR_RNG_REPAIRED") == (k == 1));
        }
        world_close(&w);
    }
}

/* Equal seeds at different offsets run into each other, unless few enough words are drawn. */
static void overlap(void)
{
    world w;
    ckr__rng_job j;
    ckr__rng_result r;
    uint32_t i, k;
    world_open(&w);
    cuda_world(&w, 4, 9, 0);
    for (i = 0; i < 4; i++) {
        ckr_rng *s = CKR__NEW(&w.c, ckr_rng);
        *s = *w.saved[0].state;
        s->offset = 1000 * (uint64_t)i;
        w.saved[i].state = s;
    }
    j = world_job(&w, topo(4, 1, 1, 1, 1));
    CHECK_OK(ckr__rng_remap(&w.c, &j, &r), w.c.err);
    CHECK(!r.disjoint && has_note(&r, "CKR_W_RNG_OVERLAP") && strstr(r.proof, "1000 words"));
    for (k = 1000; k < 1002; k++) {
        j.draws = k;
        CHECK_OK(ckr__rng_remap(&w.c, &j, &r), w.c.err);
        CHECK(r.disjoint == (k == 1000));
    }
    j.draws = 0;
    j.policy = CKR_RNG_REMAP;
    CHECK_OK(ckr__rng_remap(&w.c, &j, &r), w.c.err);
    CHECK(r.disjoint && r.given[3].source == CKR_RNG_FROM_RANK);     /* the one ahead stays */
    for (i = 0; i < 3; i++) CHECK(r.given[i].source == CKR_RNG_FROM_LINEAGE);
    world_close(&w);
}

static void siblings(void)
{
    world w;
    world_open(&w);
    cuda_world(&w, 4, 9, 8);
    w.saved[2].sibling = true;
    if (world_move(&w, topo(4, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 0)) {
        CHECK(has_note(&w.last, "CKR_W_RNG_SIBLINGS"));
        CHECK(w.last.given[2].source == CKR_RNG_FROM_LINEAGE);
    }
    world_close(&w);
}

/* A file of a rank that the run did not have. */
static void extra_rank(void)
{
    world w;
    world_open(&w);
    cuda_world(&w, 3, 9, 8);
    w.saved[2].rank = 7;
    if (world_move(&w, topo(3, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 0)) {
        CHECK(has_note(&w.last, "CKR_W_RNG_EXTRA") && has_note(&w.last, "CKR_W_RNG_MISSING"));
        CHECK(w.last.given[2].source == CKR_RNG_FROM_LINEAGE);
    }
    world_close(&w);
}

/* Every rank has to come to the same bytes, whatever its hashes are. */
static void deterministic(void)
{
    char *first = NULL;
    size_t n = 0;
    int i;
    for (i = 0; i < 4; i++) {
        world w;
        uint32_t k;
        ckr__buf b;
        world_open(&w);
        w.c.seed = (uint64_t)i * 0x123456789abcdefu;
        world_seed(&w, topo(9, 1, 1, 1, 1), all_of, 4, 1);
        CHECK(world_move(&w, topo(12, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 5));
        for (k = 37; k < 48; k++) w.saved[k].state = w.saved[36 + k % 4].state;
        CHECK(world_move(&w, topo(11, 1, 1, 1, 1), CKR_RNG_REMAP, 0, 5));
        CHECK(world_move(&w, topo(6, 1, 2, 1, 1), CKR_RNG_KEEP, 0, 5));
        memset(&b, 0, sizeof b);
        b.c = &w.c;
        CHECK_OK(ckr__json_put(&b, w.lineage, 0, false), w.c.err);
        if (!first) {
            n = b.size;
            first = (char *)malloc(n);
            memcpy(first, b.data, n);
        }
        CHECK(b.size == n && !memcmp(b.data, first, n));
        ckr__buf_free(&b);
        world_close(&w);
    }
    free(first);
}

/* >>policies -------------------------------------------------------------------- */

static void reseeded(void)
{
    world w;
    uint64_t first[3], i;
    int k;
    for (k = 0; k < 3; k++) {
        world_open(&w);
        world_seed(&w, topo(3, 1, 1, 1, 1), all_of, 4, 1);
        if (world_move(&w, topo(2, 1, 1, 1, 1), CKR_RNG_RESEED, k == 2 ? 8 : 7, 5)) {
            for (i = 0; i < 8; i++) CHECK(w.last.given[i].source == CKR_RNG_FROM_SEED);
            first[k] = w.last.given[0].key;
            CHECK(w.last.disjoint && w.last.n_carried == 0);
            CHECK(w.last.verdict == CKR_VERDICT_CHANGED);
            /* the same seed again goes elsewhere; a derived stream returns */
            if (world_move(&w, topo(4, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 5) &&
                world_move(&w, topo(4, 1, 1, 1, 1), CKR_RNG_RESEED, 7, 0))
                CHECK(w.last.given[0].key != first[0]);
        }
        world_close(&w);
    }
    CHECK(first[0] == first[1] && first[0] != first[2]);
}

static void modes(void)
{
    world w;
    ckr__rng_job j;
    ckr__rng_result r;
    world_open(&w);
    world_seed(&w, topo(3, 1, 1, 1, 1), all_of, 4, 1);
    j = world_job(&w, topo(3, 1, 1, 1, 1));
    j.mode = CKR_MODE_RECOVER;
    CHECK_OK(ckr__rng_remap(&w.c, &j, &r), w.c.err);
    CHECK(r.verdict == CKR_VERDICT_EXACT && !r.lineage && r.given[0].exactness == 0);
    j.to = topo(4, 1, 1, 1, 1);
    CHECK_OK(ckr__rng_remap(&w.c, &j, &r), w.c.err);
    CHECK(r.verdict == CKR_VERDICT_REFUSED);
    j.mode = CKR_MODE_TRANSFER;
    CHECK_OK(ckr__rng_remap(&w.c, &j, &r), w.c.err);
    CHECK(r.n_streams == 0 && r.proof && has_note(&r, "CKR_RNG_TRANSFER"));
    memset(&j, 0, sizeof j);
    CHECK_OK(ckr__rng_remap(&w.c, &j, &r), w.c.err);
    CHECK(r.n_ranks == 1 && r.n_streams == 0 && r.disjoint && r.proof);
    j.from.dp = j.from.pp = 0x10000;
    CHECK(ckr__rng_remap(&w.c, &j, &r) == CKR_E_ARG);
    world_close(&w);
}

/* A target whose files hold no numpy state: it is carried, and back on the way back. */
static bool holds_no_numpy(void *user, ckr_rng_kind kind, const char *name, uint32_t rank)
{
    (void)user;
    (void)name;
    (void)rank;
    return kind != CKR_RNG_NUMPY;
}

static void carried_whole(void)
{
    world w;
    ckr__rng_job j;
    ckr__rng_result r;
    ckr_rng first[3];
    ckr__rng_saved *kept;
    uint64_t i, n = 0;
    world_open(&w);
    world_seed(&w, topo(3, 1, 1, 1, 1), all_of, 4, 1);
    for (i = 0; i < 3; i++) first[i] = *w.saved[4 * i + 2].state;
    j = world_job(&w, topo(3, 1, 1, 1, 1));
    j.holds_fn = holds_no_numpy;
    CHECK_OK(ckr__rng_remap(&w.c, &j, &r), w.c.err);
    CHECK_INT(r.n_carried, 3);
    kept = CKR__NEW_N(&w.c, ckr__rng_saved, w.n_saved);
    for (i = 0; i < w.n_saved; i++) if (i % 4 != 2) kept[n++] = w.saved[i];
    w.saved = kept;
    w.n_saved = n;
    w.lineage = reread(&w.c, r.lineage);
    if (world_move(&w, topo(3, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 0))
        for (i = 0; i < 3; i++) {
            const ckr_rng_given *g = ckr_rng_find(&w.last, (uint32_t)i, "numpy", "default");
            CHECK(g && g->source == CKR_RNG_FROM_CARRIED && same_bytes(g->state, &first[i]));
        }
    CHECK(!ckr_rng_find(&w.last, 3, "numpy", "default"));
    world_close(&w);
}

/* Kinds that cannot be told apart by a seed, or not be derived at all. */
static void odd_kinds(void)
{
    static const brand b[] = { { CKR_RNG_XLA, "default", 1u << CKR__AXIS_DP, true },
                               { CKR_RNG_JAX, "default", 1u << CKR__AXIS_DP, true },
                               { CKR_RNG_PCG64, "default", 1u << CKR__AXIS_DP, true },
                               { CKR_RNG_TORCH_MPS, "default", 1u << CKR__AXIS_DP, true } };
    world w;
    ckr__rng_job j;
    ckr__rng_result r;
    ckr_rng *opaque;
    uint32_t i;
    world_open(&w);
    world_seed(&w, topo(2, 1, 1, 1, 1), b, 4, 1);
    CHECK(world_move(&w, topo(50, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 0) && w.last.disjoint);
    world_close(&w);
    world_open(&w);
    cuda_world(&w, 2, 9, 8);
    for (i = 0; i < 2; i++) {
        opaque = CKR__NEW(&w.c, ckr_rng);
        opaque->kind = CKR_RNG_OPAQUE;
        opaque->layout = 40;
        opaque->u.bytes[3] = (uint8_t)(i + 1);
        w.saved[i].state = opaque;
    }
    j = world_job(&w, topo(3, 1, 1, 1, 1));
    CHECK_OK(ckr__rng_remap(&w.c, &j, &r), w.c.err);
    CHECK(r.given[2].source == CKR_RNG_FROM_NONE && !r.given[2].state);
    CHECK(has_note(&r, "CKR_W_RNG_OPAQUE") && r.given[1].state->u.bytes[3] == 2);
    world_close(&w);
}

/* >>record ---------------------------------------------------------------------- */

static const char *record_text(world *w)
{
    ckr__buf b;
    const char *s;
    size_t i, n = 0;
    memset(&b, 0, sizeof b);
    b.c = &w->c;
    CHECK_OK(ckr__json_put(&b, w->lineage, 0, false), w->c.err);
    for (i = 0; i < b.size; i++) if (b.data[i] != ' ') b.data[n++] = b.data[i];
    s = ckr__strndup(&w->c, (const char *)b.data, n);
    ckr__buf_free(&b);
    return s;
}

/* A record with a parked, a derived and a retired stream, of 3 kinds. */
static void record_world(world *w)
{
    static const brand b[] = { { CKR_RNG_TORCH_CUDA, "default", 1u << CKR__AXIS_DP, true },
                               { CKR_RNG_PYTHON, "tp_synced", 1u << CKR__AXIS_DP, true } };
    world_open(w);
    world_seed(w, topo(3, 1, 1, 1, 1), b, 2, 1);
    w->saved[2].state = w->saved[0].state;
    CHECK(world_move(w, topo(4, 1, 1, 1, 1), CKR_RNG_REMAP, 0, 3));
    CHECK(world_move(w, topo(2, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 3));
}

static ckr_result record_try(world *w, const char *text, ckr__rng_result *r)
{
    ckr__rng_job j = world_job(w, topo(4, 1, 1, 1, 1));
    ckr_node *n = NULL;
    ckr_result e;
    ckr__ctx_enter(&w->c, &t_err);
    e = ckr__json_parse(&w->c, "record", (const uint8_t *)text, strlen(text), 0, &n);
    j.lineage = n;
    return e == CKR_OK ? ckr__rng_remap(&w->c, &j, r) : e;
}

/* text with the first `old` replaced */
static const char *swap(world *w, const char *text, const char *old, const char *now)
{
    const char *at = strstr(text, old);
    if (!CHECK(at != NULL)) return text;
    return ckr__printf(&w->c, "%.*s%s%s", (int)(at - text), text, now, at + strlen(old));
}

static void record_hostile(void)
{
    static const char *const bad[][2] = {
        { "ckptresume-rng-lineage", "another" },
        { "\"version\":1", "\"version\":2" },
        { "\"K\":\"", "\"K\":\"0" },
        { "\"K\":\"", "\"k\":\"" },
        { "\"generation\":2,\"tags\"", "\"generation\":3,\"tags\"" },
        { "\"generation\":2,\"tags\"", "\"generation\":-1,\"tags\"" },
        { "\"generation\":1,\"step\"", "\"generation\":2,\"step\"" },
        { "\"tags\":{\"1\"", "\"tags\":{\"2\"" },
        { "\"tags\":{\"1\"", "\"tags\":{\"127\"" },
        { "\"scope\":\"dp\"", "\"scope\":\"xp\"" },
        { "\"kind\":\"torch_cuda\"", "\"kind\":\"torch_cdua\"" },
        { "\"tag\":1", "\"tag\":99" },
        { "\"coord\":{\"dp\"", "\"coord\":{\"qp\"" },
        { "{\"dp\":3},\"born\":1", "{\"dp\":2},\"born\":1" },
        { "{\"dp\":3},\"born\":1", "{\"dp\":4},\"born\":1" },
        { "{\"dp\":3},\"born\":1", "{\"dp\":4294967295},\"born\":1" },
        { "\"born\":1", "\"born\":2" },
        { "\"born\":1", "\"born\":65536" },
        { "\"born\":0,\"status\":\"parked\"", "\"born\":0,\"status\":\"live\"" },
        { "\"status\":\"parked\"", "\"status\":\"dead\"" },
        { "\"status\":\"parked\"", "\"attempt\":256,\"status\":\"parked\"" },
        { "\"rank\":", "\"rank\":-1" },
        { "\"rank\":", "\"rank\":400000" },
        { "{\"dp\":2},\"born\":0", "{\"dp\":7},\"born\":0" },
        { "\"state\":\"AQ", "\"state\":\"AA" },
        { "\"state\":\"AQ", "\"state\":\"A" },
        { "\"streams\":[", "\"streams\":[7," },
        { "\"new\":{\"pp\":1", "\"new\":{\"pp\":0" },
    };
    world w;
    ckr__rng_result r;
    const char *text;
    size_t i;
    record_world(&w);
    text = record_text(&w);
    CHECK_OK(record_try(&w, text, &r), &t_err);
    CHECK(r.given[2 * 2].source == CKR_RNG_FROM_CARRIED);
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        ckr_result e = record_try(&w, swap(&w, text, bad[i][0], bad[i][1]), &r);
        bad_seen[CKR_ITEM_RNG_LINEAGE] = true;
        t_check(e == CKR_E_FORMAT && t_err.item == CKR_ITEM_RNG_LINEAGE && t_err.remedy[0] &&
                !r.given, __FILE__, __LINE__, "%s -> %s: %d %s", bad[i][0], bad[i][1], (int)e,
                t_err.text);
    }
    /* of another topology: not used, and said */
    text = swap(&w, text, "\"new\":{\"pp\":1,\"dp\":2", "\"new\":{\"pp\":1,\"dp\":5");
    CHECK_OK(record_try(&w, text, &r), &t_err);
    CHECK(has_note(&r, "CKR_W_RNG_LINEAGE") && r.given[4].source == CKR_RNG_FROM_LINEAGE);
    world_close(&w);
}

/* Any byte changed: refused, or a result that is whole. */
static void record_bytes(void)
{
    static const char alphabet[] = "0123456789abcdef\"{}[],:-+eAZ_ \\";
    t_rng g = { 3 };
    world w;
    ckr__rng_result r;
    char *text, *copy;
    size_t n, ok = 0;
    int i;
    record_world(&w);
    n = strlen(record_text(&w));
    text = (char *)malloc(n + 1);
    copy = (char *)malloc(n + 1);
    memcpy(text, record_text(&w), n + 1);
    for (i = 0; i < 3000; i++) {
        size_t at = (size_t)t_range(&g, 0, (int64_t)n - 1);
        memcpy(copy, text, n + 1);
        if (i % 3 == 0) at = (size_t)t_range(&g, 0, n < 700 ? (int64_t)n - 1 : 699);
        copy[at] = alphabet[t_range(&g, 0, (int64_t)sizeof alphabet - 2)];
        if (i % 7 == 0) memmove(copy + at, copy + at + 1, n - at);
        if (record_try(&w, copy, &r) == CKR_OK) {
            ok++;
            CHECK(r.n_ranks == 4 && r.proof && r.given[0].state);
            CHECK(!r.lineage || reread(&w.c, r.lineage));
        } else {
            CHECK(t_err.code == CKR_E_FORMAT || t_err.code == CKR_E_LIMIT);
        }
        if (i % 100 == 99) {
            world_close(&w);
            record_world(&w);
        }
    }
    CHECK(ok > 0);
    free(copy);
    free(text);
    world_close(&w);
}

/* What the files say wins; a counter behind its high-water mark is reported. */
static void record_files_win(void)
{
    world w;
    ckr_rng *r;
    world_open(&w);
    cuda_world(&w, 2, 9, 8);
    CHECK(world_move(&w, topo(3, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 100));
    CHECK(world_move(&w, topo(3, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 100));
    r = CKR__NEW(&w.c, ckr_rng);
    *r = *w.saved[2].state;
    r->offset = 40;
    w.saved[2].state = r;
    CHECK(world_move(&w, topo(2, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 0));
    CHECK(has_note(&w.last, "CKR_W_RNG_REPLAY"));
    world_close(&w);
    world_open(&w);
    cuda_world(&w, 2, 9, 8);
    CHECK(world_move(&w, topo(3, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 100));
    r = CKR__NEW(&w.c, ckr_rng);
    *r = *w.saved[2].state;
    r->seed = 4711;            /* the framework seeded it anew                             */
    w.saved[2].state = r;
    CHECK(world_move(&w, topo(2, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 0));
    CHECK(world_move(&w, topo(3, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 0));
    CHECK(w.last.given[2].state->seed == 4711 && w.last.given[2].source == CKR_RNG_FROM_CARRIED);
    world_close(&w);
}

static void pack_states(void)
{
    static const ckr_rng_kind kinds[] = { CKR_RNG_TORCH_CPU, CKR_RNG_TORCH_CUDA, CKR_RNG_TORCH_MPS,
                                          CKR_RNG_PYTHON, CKR_RNG_NUMPY, CKR_RNG_MT19937,
                                          CKR_RNG_PCG64, CKR_RNG_PCG64DXSM, CKR_RNG_PHILOX,
                                          CKR_RNG_SFC64, CKR_RNG_LLMC, CKR_RNG_JAX, CKR_RNG_XLA };
    static const char *const bad[] = { "AB=", "AB==", "A===", "====", "AA==AAAA", "AA-A", "AAA" };
    uint8_t a[CKR__PACK_MAX], b[CKR__PACK_MAX];
    char text[CKR__PACK_MAX / 3 * 4 + 8];
    t_rng g = { 1 };
    ckr_rng r, s;
    size_t i, n, m, len;
    int k;
    for (i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        CHECK_OK(ckr_rng_seed(&r, kinds[i], 12345), &t_err);
        draw(&r, 700);
        n = ckr__pack(&r, a);
        len = ckr_base64(a, n, text);
        CHECK(ckr__base64_get(text, len, b, sizeof b, &m) && m == n && !memcmp(a, b, n));
        CHECK(ckr__unpack(b, n, &s) && same_bytes(&r, &s) && ckr_rng_equal(&r, &s));
        CHECK(!ckr__unpack(b, n - 1, &s));
        for (k = 0; k < 200; k++) {            /* never accepted with a cursor out of range */
            memcpy(b, a, n);
            b[t_range(&g, 1, CKR__PACK_HEAD - 1)] = (uint8_t)t_next(&g);
            if (ckr__unpack(b, n, &s)) draw(&s, 2);
        }
    }
    CHECK_OK(ckr_rng_seed(&r, CKR_RNG_NUMPY, 5), &t_err);
    r.has_normal = 2;
    CHECK(!ckr__unpack(b, ckr__pack(&r, b), &s));
    CHECK_OK(ckr_rng_seed(&r, CKR_RNG_TORCH_CPU, 5), &t_err);
    r.has_float = 1;
    CHECK(ckr__unpack(b, ckr__pack(&r, b), &s));
    r.float_normal = (float)ckr__nan();
    CHECK(!ckr__unpack(b, ckr__pack(&r, b), &s));
    for (i = 0; i < 7; i++) {
        len = ckr_base64((const uint8_t *)"abcdef", i, text);
        CHECK(ckr__base64_get(text, len, b, sizeof b, &m) && m == i && !memcmp(b, "abcdef", i));
    }
    for (i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!ckr__base64_get(bad[i], strlen(bad[i]), b, sizeof b, &m));
    CHECK(!ckr__base64_get("AAAA", 4, b, 2, &m));
}

/* 65,535 remaps are the most that a key is good for. */
static void record_full(void)
{
    static const uint32_t size[CKR__AXES] = { 1, 3, 1, 1, 1 };
    ckr_node *list, *e;
    world w;
    ckr__rng_job j;
    ckr__rng_result r;
    int64_t i;
    world_open(&w);
    cuda_world(&w, 2, 9, 8);
    CHECK(world_move(&w, topo(3, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 0));
    list = ckr__make(&w.c, CKR_NODE_LIST);
    for (i = 1; i <= 65535; i++) {
        e = ckr__make(&w.c, CKR_NODE_DICT);
        ckr__node_set(&w.c, e, "generation", ckr__make_int(&w.c, i));
        ckr__node_set(&w.c, e, "new", ckr__record_sizes(&w.c, size, 31));
        ckr__node_push(&w.c, list, e);
    }
    ckr__node_set(&w.c, w.lineage, "generation", ckr__make_int(&w.c, 65535));
    ckr__node_set(&w.c, w.lineage, "history", list);
    j = world_job(&w, topo(4, 1, 1, 1, 1));
    CHECK(ckr__rng_remap(&w.c, &j, &r) == CKR_E_LIMIT);
    CHECK_INT(w.c.err->item, CKR_ITEM_RNG_EXHAUSTED);
    bad_seen[CKR_ITEM_RNG_EXHAUSTED] = true;
    world_close(&w);
}

/* A seed that is in use is passed over: the next attempt is taken, and read back. */
static void attempts(void)
{
    world w;
    uint32_t k[2];
    uint64_t taken;
    ckr_rng *r;
    int i;
    for (i = 0; i < 2; i++) {
        world_open(&w);
        cuda_world(&w, 2, 9, 8);
        CHECK(world_move(&w, topo(4, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 0));
        k[0] = (uint32_t)(strtoull(ckr_node_str(ckr_node_get(w.lineage, "K")), NULL, 16) >> 32);
        k[1] = (uint32_t)strtoull(ckr_node_str(ckr_node_get(w.lineage, "K")), NULL, 16);
        taken = ckr__derive_seed(k, 1, 2, 0, 4);
        r = CKR__NEW(&w.c, ckr_rng);
        *r = *w.saved[0].state;
        if (i) r->seed = taken;
        w.saved[0].state = r;
        CHECK(world_move(&w, topo(5, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 0));
        CHECK_INT(w.last.given[4].attempt, i);
        CHECK((w.last.given[4].key == taken) == (i == 0) && w.last.disjoint);
        CHECK(world_move(&w, topo(4, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 0));
        CHECK(world_move(&w, topo(5, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 0));
        CHECK_INT(w.last.given[4].attempt, i);
        world_close(&w);
    }
}

static void many_names(void)
{
    brand b[70];
    char names[70][16];
    world w;
    ckr__rng_job j;
    ckr__rng_result r;
    uint32_t i;
    for (i = 0; i < 70; i++) {
        snprintf(names[i], sizeof names[i], "stream %u", (unsigned)i);
        b[i].kind = CKR_RNG_TORCH_CUDA;
        b[i].name = names[i];
        b[i].axes = 1u << CKR__AXIS_DP;
        b[i].declared = true;
    }
    world_open(&w);
    world_seed(&w, topo(2, 1, 1, 1, 1), b, 63, 1);
    CHECK(world_move(&w, topo(3, 1, 1, 1, 1), CKR_RNG_KEEP, 0, 0));
    CHECK(w.last.disjoint && strstr(w.last.proof, "serve streams of two names"));
    CHECK(world_move(&w, topo(2, 1, 1, 1, 1), CKR_RNG_RESEED, 1, 0) && w.last.disjoint);
    CHECK(!strstr(w.last.proof, "serve streams"));
    world_close(&w);
    world_open(&w);
    world_seed(&w, topo(2, 1, 1, 1, 1), b, 64, 1);
    j = world_job(&w, topo(3, 1, 1, 1, 1));
    CHECK(ckr__rng_remap(&w.c, &j, &r) == CKR_E_LIMIT);
    world_close(&w);
}

/* >>faults ---------------------------------------------------------------------- */

typedef struct fault { unsigned long calls, at; long live; bool for_good; } fault;

static void *fault_alloc(void *user, size_t size, size_t align)
{
    fault *f = (fault *)user;
    (void)align;
    f->calls++;
    if (f->at && (f->calls == f->at || (f->for_good && f->calls > f->at))) return NULL;
    f->live++;
    return malloc(size);
}

static void fault_free(void *user, void *p, size_t size, size_t align)
{
    (void)size;
    (void)align;
    ((fault *)user)->live--;
    free(p);
}

static void faults(void)
{
    world w;
    ckr__rng_job j;
    unsigned long n, total = 0;
    int round;
    world_open(&w);
    world_seed(&w, topo(9, 1, 2, 1, 1), all_of, 4, 1);
    CHECK(world_move(&w, topo(12, 1, 2, 1, 1), CKR_RNG_KEEP, 0, 0));
    w.saved[5].state = w.saved[1].state;
    j = world_job(&w, topo(5, 1, 3, 1, 1));
    for (round = 0; round < 4; round++) {
        j.policy = round >= 2 ? CKR_RNG_RESEED : CKR_RNG_REMAP;
        for (n = 0; n <= total; n++) {
            ckr__rng_result r;
            fault f;
            ckr_env env;
            ckr__ctx c;
            ckr_error e;
            ckr_result got;
            memset(&env, 0, sizeof env);
            memset(&f, 0, sizeof f);
            env.alloc.alloc_fn = fault_alloc;
            env.alloc.free_fn = fault_free;
            env.alloc.user = &f;
            f.at = n;
            f.for_good = round % 2 == 1;
            CHECK_OK(ckr__ctx_init(&c, &env, NULL, &e), &e);
            got = ckr__rng_remap(&c, &j, &r);
            if (!n) total = f.calls;
            CHECK(got == (n ? CKR_E_NOMEM : CKR_OK) && (n == 0) == (r.given != NULL));
            ckr__ctx_free(&c);
            CHECK_INT(f.live, 0);
        }
        CHECK(total > 10);
    }
    world_close(&w);
}

/* >>checkpoint ------------------------------------------------------------------ */

static void from_checkpoint(void)
{
    ckr_ckpt *c;
    ckr_rng_streams *s = NULL;
    ckr_rng_want want;
    const char *path = getenv("CKR_RANDOM") ? getenv("CKR_RANDOM")
                                            : "tests/data/nanotron/tp1_pp2_dp1_tied/ckpt";
    uint32_t i;
    if (!CHECK_OK(ckr_ckpt_open(path, NULL, &c, &t_err), &t_err)) return;
    CHECK_OK(ckr_ckpt_rng(c, NULL, &s, &t_err), &t_err);
    CHECK(s->proof != NULL && s->n_ranks >= 1);
    for (i = 0; i < s->n_streams * s->n_ranks; i++)
        CHECK(s->given[i].state && s->given[i].source == CKR_RNG_FROM_RANK);
    ckr_rng_streams_free(s);
    memset(&want, 0, sizeof want);
    want.topology.dp = 5;
    want.mode = CKR_MODE_CONTINUE;
    CHECK_OK(ckr_ckpt_rng(c, &want, &s, &t_err), &t_err);
    CHECK(s->n_ranks % 5 == 0);
    ckr_rng_streams_free(s);
    ckr_ckpt_close(c);
}

static void items(void)
{
    const ckr_item none = CKR_ITEM_OK;
    bad_all_seen(BAD_REMAP, &none);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    RUN(kat_seeds);
    RUN(kat_root);
    RUN(kat_walk);
    RUN(kat_mt);
    RUN(kat_injective);
    RUN(identity_dp);
    RUN(identity_random);
    RUN(identity_walk);
    RUN(scope_copies);
    RUN(scope_observed);
    RUN(scope_violation);
    RUN(scope_folded);
    RUN(scope_folded_shared);
    RUN(ranks_only);
    RUN(sana_file);
    RUN(overlap);
    RUN(siblings);
    RUN(extra_rank);
    RUN(deterministic);
    RUN(reseeded);
    RUN(modes);
    RUN(carried_whole);
    RUN(odd_kinds);
    RUN(record_hostile);
    RUN(record_bytes);
    RUN(record_files_win);
    RUN(record_full);
    RUN(attempts);
    RUN(many_names);
    RUN(pack_states);
    RUN(faults);
    RUN(from_checkpoint);
    RUN(items);
    return t_end();
}
