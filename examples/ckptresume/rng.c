/* rng: which stream goes to which rank. */

#include "tool.h"

enum { RNG_DRAWS = 8, RNG_ROWS = 21 };

typedef struct rng_draws {
    uint32_t n;
    double   v[RNG_DRAWS];
    bool     whole;            /* words, not numbers below 1                            */
} rng_draws;

/* What torch.rand(8), random.random() and random_sample(8) give next; 32-bit words of a generator
   that has no such call; nothing of a seed without a position. */
static rng_draws rng_next(const ckr_rng *state)
{
    const uint64_t kind = ckr_rng_get(state, CKR_RNG_FIELD_KIND);
    const bool torch = kind == CKR_RNG_TORCH_CPU || kind == CKR_RNG_TORCH_CUDA;
    ckr_rng *r = (ckr_rng *)malloc(ckr_rng_size());    /* a copy, which the draws advance     */
    float f[RNG_DRAWS];
    uint32_t words[RNG_DRAWS], i;
    rng_draws d;
    memset(&d, 0, sizeof d);
    if (!r) return d;
    memcpy(r, state, ckr_rng_size());
    if (torch && ckr_rng_uniform(r, CKR_DTYPE_F32, 0, 1, RNG_DRAWS, f) == CKR_OK) {
        for (i = 0; i < RNG_DRAWS; i++) d.v[i] = (double)f[i];
        d.n = RNG_DRAWS;
    } else if (!torch && ckr_rng_uniform(r, CKR_DTYPE_F64, 0, 1, RNG_DRAWS, d.v) == CKR_OK) {
        d.n = RNG_DRAWS;
    } else if (ckr_rng_u32_fill(r, RNG_DRAWS, words) == CKR_OK) {
        for (i = 0; i < RNG_DRAWS; i++) d.v[i] = (double)words[i];
        d.n = RNG_DRAWS;
        d.whole = true;
    }
    free(r);
    return d;
}

static void rng_json_source(json *w, const ckr_rng_given *g)
{
    json_key(w, "source");
    if (g->source == CKR_RNG_FROM_RANK || g->source == CKR_RNG_FROM_CARRIED) {
        json_open(w, "{");
        json_pair_uint(w, "rank", g->rank);
        if (g->source == CKR_RNG_FROM_CARRIED) {
            json_key(w, "carried");
            json_bool(w, true);
        }
        json_close(w, "}");
    } else if (g->source == CKR_RNG_FROM_NONE) {
        json_raw(w, "null");
    } else {
        json_string(w, g->source == CKR_RNG_FROM_SEED ? "reseeded" : "derived");
    }
}

static void rng_json_state(json *w, const ckr_rng *r)
{
    uint8_t bytes[5056 + 64];
    const int kind = r ? (int)ckr_rng_get(r, CKR_RNG_FIELD_KIND) : CKR_RNG_NONE;
    const bool words = (kind >= CKR_RNG_PYTHON && kind <= CKR_RNG_SFC64) ||
                       kind == CKR_RNG_JAX || kind == CKR_RNG_XLA;     /* no bytes of its own */
    const size_t n = !r      ? 0
                     : words ? ckr_rng_words(r, bytes, sizeof bytes)
                             : ckr_rng_encode(r, bytes, sizeof bytes);
    json_key(w, "state");
    if (n && n <= sizeof bytes) json_base64(w, (const char *)bytes, n);
    else json_raw(w, "null");
}

static void rng_json_stream(json *w, const ckr_rng_given *g)
{
    rng_draws d;
    uint32_t i;
    memset(&d, 0, sizeof d);
    if (g->state) d = rng_next(g->state);
    json_open(w, "{");
    json_pair(w, "kind", g->kind);
    json_pair(w, "name", g->name);
    json_pair(w, "scope", g->scope);
    rng_json_source(w, g);
    rng_json_state(w, g->state);
    json_list(w, "next");
    for (i = 0; i < d.n; i++) {
        if (d.whole) json_uint(w, (uint64_t)d.v[i]);
        else json_double(w, d.v[i]);
    }
    json_close(w, "]");
    if (g->key) {
        json_key(w, "generation");
        json_uint(w, g->generation);
        json_pair_uint(w, "key", g->key);
    }
    json_close(w, "}");
}

static void rng_json_carried(json *w, const ckr_rng_streams *s)
{
    uint64_t i;
    json_list(w, "carried");
    for (i = 0; i < s->n_carried; i++) {
        json_open(w, "{");
        json_pair(w, "kind", s->carried[i].kind);
        json_pair(w, "name", s->carried[i].name);
        json_pair(w, "at", s->carried[i].at);
        json_pair_uint(w, "rank", s->carried[i].rank);
        json_positive(w, "step", s->carried[i].step, 0);
        rng_json_state(w, s->carried[i].state);
        json_close(w, "}");
    }
    json_close(w, "]");
}

static void rng_json(job *j, const ckr_rng_streams *s, const report *notes)
{
    json w;
    uint32_t rank, i;
    json_begin(&w, &j->out);
    json_list(&w, "ranks");
    for (rank = 0; rank < s->n_ranks; rank++) {
        json_open(&w, "{");
        json_pair_uint(&w, "rank", rank);
        json_list(&w, "streams");
        for (i = 0; i < s->n_streams; i++)
            rng_json_stream(&w, &s->given[(uint64_t)rank * s->n_streams + i]);
        json_close(&w, "]");
        json_close(&w, "}");
    }
    json_close(&w, "]");
    json_key(&w, "disjoint");
    json_bool(&w, s->disjoint);
    json_pair(&w, "proof", s->proof);
    rng_json_carried(&w, s);
    json_report(&w, notes);
    json_end(&w);
}

static void rng_cell_source(table *b, const ckr_rng_given *g)
{
    static const char *const names[] = { "none", "rank", "carried, rank", "derived", "reseeded" };
    text_str(&b->cell, names[(unsigned)g->source % 5]);
    if (g->source == CKR_RNG_FROM_RANK || g->source == CKR_RNG_FROM_CARRIED)
        text_fmt(&b->cell, " %lu", (unsigned long)g->rank);
    table_cell(b);
}

static void rng_table(text *t, const ckr_rng_streams *s)
{
    static const char *const titles[] = { "rank", "kind", "name", "varies over", "from", "next" };
    const uint32_t most = !t->verbose && s->n_streams < RNG_ROWS ? RNG_ROWS / s->n_streams : 1,
                   shown = t->verbose || s->n_ranks < most ? s->n_ranks : most;
    uint64_t i;
    table b;
    table_begin(&b, 6, 1, titles);
    for (i = 0; i < (uint64_t)shown * s->n_streams; i++) {
        const ckr_rng_given *g = &s->given[i];
        rng_draws d;
        memset(&d, 0, sizeof d);
        if (g->state) d = rng_next(g->state);
        table_count(&b, i / s->n_streams);
        table_text(&b, g->kind);
        table_text(&b, g->name);
        table_text(&b, g->scope[0] ? g->scope : "-");
        rng_cell_source(&b, g);
        if (d.n) text_fmt(&b.cell, d.whole ? "%.0f ..." : "%.9g ...", d.v[0]);
        table_cell(&b);
    }
    table_end(&b, t);
    if (shown < s->n_ranks)
        text_fmt(t, "  and %lu more ranks (--verbose lists them)\n",
                 (unsigned long)(s->n_ranks - shown));
}

static void rng_text(job *j, const ckr_ckpt *c, const ckr_rng_streams *s, const report *notes)
{
    text *t = &j->out;
    if (j->o.quiet) return;
    head_text(t, c, j->args[0]);
    text_str(t, "\n");
    if (s->n_streams) rng_table(t, s);
    text_str(t, "\n");
    label(t, "disjoint");
    text_painted(t, s->disjoint ? PAINT_GREEN : PAINT_RED, s->disjoint ? "yes" : "NO");
    text_str(t, "\n");
    text_pad(t, 2);
    text_wrap(t, 2, 2, s->proof);
    report_text(t, notes, "report");
}

int verb_rng(job *j)
{
    ckr_ckpt *c;
    ckr_rng_streams *s = NULL;
    ckr_rng_want want;
    report notes;
    int code = open_checkpoint(j, j->args[0], &c);
    if (code != CODE_DONE) return code;
    memset(&want, 0, sizeof want);
    want.topology = j->o.target.topology;
    want.mode = j->o.target.mode;
    want.policy = j->o.target.rng;
    want.seed = j->o.target.seed;
    if (ckr_ckpt_rng(c, &want, &s, &j->err) == CKR_OK) {
        notes = report_of(s->notes, s->n_notes, NULL, 0);
        if (j->o.json) rng_json(j, s, &notes);
        else rng_text(j, c, s, &notes);
        if (s->verdict == CKR_VERDICT_REFUSED) code = CODE_REFUSED;
        ckr_rng_streams_free(s);
    } else {
        code = fail(j);
    }
    ckr_ckpt_close(c);
    return code;
}
