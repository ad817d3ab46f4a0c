/* groups.c: parameter groups of a checkpoint matched with those of a run: n groups of one parameter
   into 2 and back, equal fields or a base learning rate for each. One thread.
   cc -std=c99 -O2 -I. -o groups bench/groups.c -lm -lpthread */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "bench.h"

static ckr_error err;

static ckr_node *hyper(ckr__ctx *c, double lr)
{
    ckr_node *d = ckr__make(c, CKR_NODE_DICT), *betas = ckr__make(c, CKR_NODE_LIST);
    static const char *const flags[] = { "amsgrad", "maximize", "foreach", "capturable", "fused" };
    size_t i;
    bool ok = ckr__node_push(c, betas, ckr__make_float(c, 0.9)) &&
              ckr__node_push(c, betas, ckr__make_float(c, 0.95)) &&
              ckr__node_set(c, d, "lr", ckr__make_float(c, lr * 0.3)) &&
              ckr__node_set(c, d, "initial_lr", ckr__make_float(c, lr)) &&
              ckr__node_set(c, d, "betas", betas) &&
              ckr__node_set(c, d, "eps", ckr__make_float(c, 1e-8)) &&
              ckr__node_set(c, d, "weight_decay", ckr__make_float(c, 0.1)) &&
              ckr__node_set(c, d, "is_expert_parallel", ckr__make_bool(c, false));
    for (i = 0; i < 5; i++) ok = ok && ckr__node_set(c, d, flags[i], ckr__make_bool(c, false));
    if (!ok) bench_fail("hyper", c->err);
    return d;
}

/* n parameters in n_groups groups; muP: one of 7 base learning rates, or one of its own each. */
static ckr_group *make(ckr__ctx *c, uint64_t n, uint64_t n_groups, uint64_t kinds, bool with_hyper)
{
    ckr_group *g = CKR__NEW_N(c, ckr_group, n_groups);
    const char **names = CKR__NEW_N(c, const char *, n);
    uint64_t i, at = 0;
    for (i = 0; i < n; i++)
        names[i] = ckr__printf(c, "model.decoder.%d.pp_block.attn.qkv_proj.weight_%d",
                               (int)(i / 9), (int)(i % 9));
    for (i = 0; i < n_groups; i++) {
        g[i].params = names + at;
        g[i].n_params = i + 1 < n_groups ? n / n_groups : n - at;
        at += g[i].n_params;
        if (with_hyper) g[i].hyper = hyper(c, 1e-3 * (double)(1 + i % kinds));
    }
    return g;
}

static void measure(const char *what, uint64_t n, uint64_t from, uint64_t to, uint64_t kinds,
                    bool named, double limit)
{
    ckr__ctx c;
    ckr_state s;
    ckr_target t;
    ckr_group *news, *made;
    uint64_t *rep;
    bench_times b;
    char text[120];
    int i;
    memset(&b, 0, sizeof b);
    memset(&s, 0, sizeof s);
    memset(&t, 0, sizeof t);
    if (ckr__ctx_init(&c, NULL, NULL, &err) != CKR_OK) bench_fail(what, &err);
    s.groups = make(&c, n, from, kinds, true);
    s.n_groups = from;
    t.groups = news = make(&c, n, to, 1, false);
    t.n_groups = to;
    made = CKR__NEW_N(&c, ckr_group, to);
    rep = CKR__NEW_N(&c, uint64_t, to);
    for (i = 0; !named && i < (int)to; i++) news[i].params = NULL;
    for (i = 0; i < bench_repeats(9); i++) {
        ckr__ctx out;
        ckr_note *notes = NULL;
        uint64_t n_notes = 0;
        double start;
        if (ckr__ctx_init(&out, NULL, NULL, &err) != CKR_OK) bench_fail(what, &err);
        out.notes = &notes;
        out.n_notes = &n_notes;
        start = bench_now();
        if (ckr__groups_match(&out, &s, &t, made, rep) != CKR_OK) bench_fail(what, &err);
        bench_add(&b, bench_now() - start);
        if (n_notes > 40 || rep[to - 1] == CKR__GROUPS_NONE || !made[to - 1].hyper) exit(1);
        ckr__ctx_free(&out);
    }
    ckr__ctx_free(&c);
    snprintf(text, sizeof text, "%llu -> %llu, %s", (unsigned long long)from,
             (unsigned long long)to, what);
    bench_row(text, &b, 1e3, "ms", limit);
}

int main(void)
{
    uint64_t n;
    bench_clock = CLOCK_PROCESS_CPUTIME_ID;
    free(malloc((size_t)31 << 20));    /* from here on glibc keeps what is freed, untrimmed    */
    bench_head("Groups matched, one thread");
    for (n = 1000; n <= 100000; n *= 10) {
        const double limit = n == 100000 ? 100 : 0;
        measure("equal fields", n, n, 2, 1, true, limit);
        measure("equal fields", n, 2, n, 1, true, limit);
        measure("equal fields", n, n, n, 1, true, limit);
        measure("7 base LRs", n, n, n, 7, true, limit);
        measure("7 base LRs, merged", n, n, 2, 7, true, limit);
        measure("equal fields, no names", n, n, n - 1, 1, false, limit);
        measure("a base LR each", n, n, n, n, true, 0);
        measure("a base LR each, merged", n, n, 2, n, true, 0);
    }
    return 0;
}
