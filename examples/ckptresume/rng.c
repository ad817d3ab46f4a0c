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

/* "rank 3", "carried, rank 3", "derived" */
static void rng_source(show *w, const ckr_rng_given *g)
{
    const bool carried = g->source == CKR_RNG_FROM_CARRIED;
    if (g->source == CKR_RNG_FROM_RANK || carried) {
        show_dict(w, "source");
        show_uint(w, "rank", g->rank);
        if (carried) show_bool(w, "carried", true);
        show_close_as(w, carried ? "carried, rank {rank}" : "rank {rank}");
    } else if (g->source == CKR_RNG_FROM_NONE) {
        show_null(w, "source");
    } else {
        show_str(w, "source", g->source == CKR_RNG_FROM_SEED ? "reseeded" : "derived");
    }
}

static void rng_state(show *w, const ckr_rng *r)
{
    uint8_t bytes[5056 + 64];
    const int kind = r ? (int)ckr_rng_get(r, CKR_RNG_FIELD_KIND) : CKR_RNG_NONE;
    const bool words = (kind >= CKR_RNG_PYTHON && kind <= CKR_RNG_SFC64) ||
                       kind == CKR_RNG_JAX || kind == CKR_RNG_XLA;     /* no bytes of its own */
    const size_t n = !r      ? 0
                     : words ? ckr_rng_words(r, bytes, sizeof bytes)
                             : ckr_rng_encode(r, bytes, sizeof bytes);
    show_base64(w, "state", n && n <= sizeof bytes ? bytes : NULL, n);
}

static void rng_stream(show *w, const ckr_rng_given *g)
{
    rng_draws d;
    uint32_t i;
    memset(&d, 0, sizeof d);
    if (g->state) d = rng_next(g->state);
    show_dict(w, NULL);
    show_str(w, "kind", g->kind);
    show_str(w, "name", g->name);
    show_str(w, "scope", g->scope);
    rng_source(w, g);
    rng_state(w, g->state);
    show_list(w, "next");
    for (i = 0; i < d.n && show_room(w, i, 1); i++) {
        if (d.whole) show_uint(w, "first", (uint64_t)d.v[i]);
        else show_double(w, "first", d.v[i], "%.9g");
    }
    show_close_as(w, "[{first} ...]");
    if (g->key) {
        show_uint(w, "generation", g->generation);
        show_uint(w, "key", g->key);
    }
    show_cells(w);
    show_close(w);
}

static void rng_carried(show *w, const ckr_rng_streams *s)
{
    uint64_t i;
    show_list(w, "carried");
    for (i = 0; i < s->n_carried && show_room(w, i, 0); i++) {
        show_dict(w, NULL);
        show_str(w, "kind", s->carried[i].kind);
        show_str(w, "name", s->carried[i].name);
        show_str(w, "at", s->carried[i].at);
        show_uint(w, "rank", s->carried[i].rank);
        show_least(w, "step", s->carried[i].step, 0);
        rng_state(w, s->carried[i].state);
        show_close(w);
    }
    show_close(w);
}

/* For the eye some ranks, with a line of a table for each stream. */
static void rng_ranks(show *w, const ckr_rng_streams *s)
{
    const uint64_t most =
        show_most(w, s->n_streams && s->n_streams < RNG_ROWS ? RNG_ROWS / s->n_streams : 1);
    uint32_t rank, i;
    show_line(w, NULL, "");
    if (s->n_streams)
        show_table(w, ">rank|kind|name|varies over={scope?-}|from={source?none}|next");
    show_list(w, "ranks");
    for (rank = 0; rank < s->n_ranks && show_room(w, rank, most); rank++) {
        show_dict(w, NULL);
        show_count(w, "rank", rank);
        show_list(w, "streams");
        for (i = 0; i < s->n_streams; i++)
            rng_stream(w, &s->given[(uint64_t)rank * s->n_streams + i]);
        show_close(w);
        show_close(w);
    }
    show_close(w);
    if (!s->n_streams) return;
    show_table_end(w);
    show_rest(w, s->n_ranks - rank, " ranks (--verbose lists them)");
}

static void rng_show(job *j, const ckr_ckpt *c, const ckr_rng_streams *s)
{
    const report notes = report_of(s->notes, s->n_notes, NULL, 0);
    show w;
    show_job(&w, j);
    show_above(&w, c, j->args[0]);
    rng_ranks(&w, s);
    show_flag(&w, "disjoint", s->disjoint, "yes", "NO", PAINT_RED);
    show_str(&w, "proof", s->proof);
    show_line(&w, NULL, "");
    show_line(&w, "disjoint", "{disjoint}");
    show_below(&w, 2, "{proof}");
    rng_carried(&w, s);
    show_report(&w, &notes, "report");
    show_end(&w);
}

int verb_rng(job *j)
{
    ckr_ckpt *c;
    ckr_rng_streams *s = NULL;
    ckr_rng_want want;
    int code = open_checkpoint(j, j->args[0], &c);
    if (code != CODE_DONE) return code;
    memset(&want, 0, sizeof want);
    want.topology = j->o.target.topology;
    want.mode = j->o.target.mode;
    want.policy = j->o.target.rng;
    want.seed = j->o.target.seed;
    if (ckr_ckpt_rng(c, &want, &s, &j->err) == CKR_OK) {
        rng_show(j, c, s);
        if (s->verdict == CKR_VERDICT_REFUSED) code = CODE_REFUSED;
        ckr_rng_streams_free(s);
    } else {
        code = fail(j);
    }
    ckr_ckpt_close(c);
    return code;
}
