/* inspect: what is in a checkpoint. */

#include "tool.h"

#define SLOTS_SHOWN 24

typedef struct slot_sum {
    const char *slot;
    uint64_t tensors, elements, bytes;
    uint64_t of[CKR_DTYPE_COUNT_];     /* tensors of each dtype                      */
} slot_sum;

static uint64_t tensor_elements(const ckr_tensor *t)
{
    uint64_t n = 1;
    uint32_t i;
    for (i = 0; i < t->n_dims; i++) n *= (uint64_t)t->shape[i];
    return n;
}

/* Is it what the run trains? */
static bool tensor_trained(const ckr_tensor *t)
{
    return !strcmp(t->slot, "param") && !t->buffer && !t->by_name;
}

/* Sums per slot in the order of appearance; a slot past SLOTS_SHOWN counts in the last row. */
static size_t slot_sums(const ckr_state *s, slot_sum *sums)
{
    size_t n = 0, k;
    uint64_t i;
    for (i = 0; i < s->n_tensors; i++) {
        const ckr_tensor *t = s->tensors[i];
        const uint64_t elements = tensor_elements(t);
        const char *slot = t->by_name ? t->by_name : t->slot;
        for (k = 0; k < n && strcmp(sums[k].slot, slot) != 0; k++) {}
        if (k == n && n < SLOTS_SHOWN) {
            memset(&sums[n], 0, sizeof sums[n]);
            sums[n++].slot = slot;
        } else if (k == n) {
            k = n - 1;
            sums[k].slot = "(others)";
        }
        sums[k].tensors++;
        sums[k].elements += elements;
        sums[k].bytes += elements * ckr_dtype_size(t->dtype);
        sums[k].of[(unsigned)t->dtype % CKR_DTYPE_COUNT_]++;
    }
    return n;
}

/* The tensors that are listed, and what --stats says of them. */
typedef struct listed {
    const ckr_tensor **tensors;
    ckr_stats *stats;          /* or NULL                                              */
    size_t     n;
} listed;

/* A name against a pattern of * and ?; one without them fits anywhere in the name. */
static bool name_fits(const char *pattern, const char *name)
{
    const char *star = NULL, *from = NULL;
    if (!strpbrk(pattern, "*?")) return strstr(name, pattern) != NULL;
    while (*name) {
        if (*pattern == '*') {
            star = ++pattern;
            from = name;
        } else if (*pattern == *name || *pattern == '?') {
            pattern++;
            name++;
        } else if (star) {
            pattern = star;
            name = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

static void listed_free(listed *l)
{
    free((void *)l->tensors);
    free(l->stats);
}

static int listed_make(job *j, const ckr_ckpt *c, listed *l)
{
    const ckr_state *s = ckr_ckpt_state(c);
    const size_t most = s->n_tensors < SIZE_MAX / sizeof *l->stats ? (size_t)s->n_tensors : 0;
    ckr_result r;
    size_t i;
    memset(l, 0, sizeof *l);
    if (!j->o.tensors) return CODE_DONE;
    l->tensors = (const ckr_tensor **)malloc((most + 1) * sizeof *l->tensors);
    l->stats = j->o.stats ? (ckr_stats *)calloc(most + 1, sizeof *l->stats) : NULL;
    if (!l->tensors || (j->o.stats && !l->stats)) return out_of_memory(j);
    for (i = 0; i < most; i++)
        if (!j->o.pattern || name_fits(j->o.pattern, s->tensors[i]->name))
            l->tensors[l->n++] = s->tensors[i];
    if (j->o.pattern && !l->n)
        return usage(j, "--tensors", "no tensor has a name like \"%.200s\"", j->o.pattern);
    if (!l->stats) return CODE_DONE;
    progress_begin(j);
    r = ckr_ckpt_stats(c, l->tensors, l->n, l->stats, &j->err);
    progress_end(j);
    return r == CKR_OK ? CODE_DONE : fail(j);
}

static bool is_whole(const ckr_tensor *t)
{
    return t->dtype >= CKR_DTYPE_BOOL && t->dtype <= CKR_DTYPE_I64;
}

static void whole_text(text *t, const ckr_tensor *x, int64_t v)
{
    if (x->dtype == CKR_DTYPE_U64) text_fmt(t, "%llu", (unsigned long long)v);
    else text_fmt(t, "%lld", (long long)v);
}

/* No value: null, and "-" in a table. */
static void json_stats(json *w, const ckr_tensor *t, const ckr_stats *s)
{
    const struct { const char *key; double v; int64_t whole; } rows[] = {
        { "min", s->min, s->least }, { "max", s->max, s->most }, { "mean", s->mean, 0 },
        { "std", s->std, 0 }
    };
    size_t i;
    json_dict(w, "stats");
    json_pair_uint(w, "elements", s->n);
    json_pair_uint(w, "nan", s->n_nan);
    json_pair_uint(w, "inf", s->n_inf);
    json_pair_uint(w, "zeros", s->n_zero);
    for (i = 0; i < COUNT_OF(rows); i++) {
        json_key(w, rows[i].key);
        if (isnan(rows[i].v)) {
            json_raw(w, "null");
        } else if (i < 2 && is_whole(t)) {
            json_comma(w);
            whole_text(w->t, t, rows[i].whole);
        } else {
            json_double(w, rows[i].v);
        }
    }
    json_close(w, "}");
}

static void inspect_json_tensors(json *w, const listed *l, bool list, const ckr_state *s)
{
    uint64_t i, params = 0, bytes = 0;
    for (i = 0; i < s->n_tensors; i++) {
        const uint64_t n = tensor_elements(s->tensors[i]);
        if (tensor_trained(s->tensors[i])) params += n;
        bytes += n * ckr_dtype_size(s->tensors[i]->dtype);
    }
    json_dict(w, "tensors");
    json_pair_uint(w, "count", s->n_tensors);
    json_pair_uint(w, "params", params);
    json_pair_uint(w, "bytes", bytes);
    if (list) {
        json_list(w, "list");
        for (i = 0; i < l->n; i++) {
            const ckr_tensor *t = l->tensors[i];
            json_open(w, "{");
            json_pair(w, "name", t->name);
            json_pair(w, "slot", t->slot);
            json_pair(w, "dtype", ckr_dtype_name(t->dtype));
            json_key(w, "shape");
            json_shape(w, t->n_dims, t->shape);
            json_pair_uint(w, "pieces", t->n_pieces);
            if (l->stats) json_stats(w, t, &l->stats[i]);
            json_close(w, "}");
        }
        json_close(w, "]");
    }
    json_close(w, "}");
}

static void inspect_json_groups(json *w, const ckr_ckpt *c, const ckr_state *s)
{
    uint64_t i, k;
    json_list(w, "groups");
    for (i = 0; i < s->n_groups; i++) {
        const ckr_group *g = &s->groups[i];
        json_open(w, "{");
        json_pair_uint(w, "index", i);
        json_pair(w, "name", g->name);
        json_key(w, "hyper");
        if (g->hyper) json_node(w, c, g->hyper);
        else json_raw(w, "{}");
        json_list(w, "params");
        for (k = 0; k < g->n_params; k++) json_string(w, g->params[k]);
        json_close(w, "]");
        json_close(w, "}");
    }
    json_close(w, "]");
}

static void inspect_json_schedules(json *w, const ckr_ckpt *c, const ckr_state *s)
{
    uint64_t i;
    json_list(w, "schedules");
    for (i = 0; i < s->n_schedules; i++) {
        const ckr_schedule_facts h = ckr_schedule_info(ckr_ckpt_schedule(c, i));
        json_open(w, "{");
        json_pair(w, "kind", h.kind);
        json_pair(w, "clock", h.clock);
        json_positive(w, "position", h.position, 0);
        json_key(w, "params");
        if (h.params) json_node(w, c, h.params);
        else json_raw(w, "{}");
        json_close(w, "}");
    }
    json_close(w, "]");
}

static void inspect_json_rng(json *w, const ckr_state *s)
{
    uint64_t i = 0;
    json_list(w, "rng");
    while (i < s->n_rng) {
        const uint32_t rank = s->rng[i].rank;
        json_open(w, "{");
        json_pair_uint(w, "rank", rank);
        json_list(w, "streams");
        for (; i < s->n_rng && s->rng[i].rank == rank; i++) {
            json_open(w, "{");
            json_pair(w, "kind", s->rng[i].kind);
            json_pair(w, "name", s->rng[i].name);
            json_pair(w, "scope", s->rng[i].scope);
            json_pair_uint(w, "bytes", s->rng[i].n_bytes);
            json_close(w, "}");
        }
        json_close(w, "]");
        json_close(w, "}");
    }
    json_close(w, "]");
}

static void inspect_json(job *j, const ckr_ckpt *c, const listed *l)
{
    const ckr_state *s = ckr_ckpt_state(c);
    const report notes = report_of(s->notes, s->n_notes, NULL, 0);
    json w;
    uint64_t i;
    json_begin(&w, &j->out);
    json_head(&w, c);
    inspect_json_tensors(&w, l, j->o.tensors, s);
    inspect_json_groups(&w, c, s);
    inspect_json_schedules(&w, c, s);
    inspect_json_rng(&w, s);
    json_list(&w, "ties");
    for (i = 0; i < s->n_ties; i++) {
        json_open(&w, "[");
        json_string(&w, s->ties[i].name);
        json_string(&w, s->ties[i].other);
        json_close(&w, "]");
    }
    json_close(&w, "]");
    json_list(&w, "leftovers");
    for (i = 0; i < s->n_leftovers; i++) json_string(&w, s->leftovers[i].path);
    json_close(&w, "]");
    json_report(&w, &notes);
    json_end(&w);
}

/* "bfloat16", or how many tensors have which, of the three that most
   have: "24 bfloat16, 2 float32" */
static void slot_dtypes(text *t, const slot_sum *sum)
{
    uint64_t left = sum->tensors, of[CKR_DTYPE_COUNT_];
    unsigned i, best;
    int shown;
    memcpy(of, sum->of, sizeof of);
    for (shown = 0; left && (shown < 3 || t->verbose); shown++) {
        for (best = i = 0; i < CKR_DTYPE_COUNT_; i++) if (of[i] > of[best]) best = i;
        if (shown) text_str(t, ", ");
        if (of[best] < sum->tensors) {
            text_count(t, of[best]);
            text_str(t, " ");
        }
        text_str(t, ckr_dtype_name((ckr_dtype)best));
        left -= of[best];
        of[best] = 0;
    }
    if (left) text_fmt(t, ", %llu others", (unsigned long long)left);
}

/* "1.24 B parameters, complete": do the files hold every element of them? */
static void inspect_model(text *t, const ckr_state *s)
{
    static const char *const units[] = { "", " K", " M", " B", " T", " Q" };
    uint64_t i, n = 0, missing = 0;
    double v;
    size_t u = 0;
    uint32_t k, d;
    for (i = 0; i < s->n_tensors; i++) {
        const ckr_tensor *x = s->tensors[i];
        uint64_t have = 0;
        if (!tensor_trained(x)) continue;
        for (k = 0; k < x->n_pieces; k++) {
            uint64_t volume = !x->pieces[k].replica;
            for (d = 0; d < x->n_dims; d++) volume *= (uint64_t)x->pieces[k].count[d];
            have += volume;
        }
        n += tensor_elements(x);
        missing += have < tensor_elements(x) ? tensor_elements(x) - have : 0;
    }
    if (!n && !s->n_parts) return;
    label(t, "model");
    for (v = (double)n; v >= 999.5 && u + 1 < COUNT_OF(units); u++) v /= 1000;
    text_fmt(t, v >= 99.95 || !u ? "%.0f%s" : v >= 9.995 ? "%.1f%s" : "%.2f%s", v, units[u]);
    text_str(t, " parameters, ");
    if (s->n_parts) {
        text_str(t, "one part: ");
        text_plural(t, s->n_parts, "tensor continues", "tensors continue");
        text_str(t, " in other files\n");
    } else if (missing) {
        text_count(t, missing);
        text_str(t, " of them in no file\n");
    } else {
        text_str(t, "complete\n");
    }
}

static void inspect_slots(text *t, const ckr_state *s)
{
    static const char *const titles[] = { "slot", "tensors", "elements", "bytes", "dtype" };
    slot_sum sums[SLOTS_SHOWN];
    const size_t n = slot_sums(s, sums);
    size_t i;
    table b;
    if (!n) return;
    text_str(t, "\n");
    text_painted(t, PAINT_BOLD, "tensors");
    text_str(t, "\n");
    table_begin(&b, 5, 2 | 4 | 8, titles);
    for (i = 0; i < n; i++) {
        table_text(&b, sums[i].slot);
        table_count(&b, sums[i].tensors);
        table_count(&b, sums[i].elements);
        table_size(&b, sums[i].bytes);
        slot_dtypes(&b.cell, &sums[i]);
        table_cell(&b);
    }
    table_end(&b, t);
}

static void stats_cell(table *b, const ckr_tensor *t, double v, int64_t whole, bool exact)
{
    if (isnan(v)) text_str(&b->cell, "-");
    else if (exact && is_whole(t)) whole_text(&b->cell, t, whole);
    else text_fmt(&b->cell, "%.4g", v);
    table_cell(b);
}

static void share_cell(table *b, uint64_t n, uint64_t of)
{
    if (!n) text_str(&b->cell, "0");
    else text_fmt(&b->cell, "%.3g%%", 100 * ((double)n / (double)of));
    table_cell(b);
}

static void stats_list(text *t, const listed *l)
{
    static const char *const titles[] = { "name", "slot", "min", "max", "mean", "std", "zeros",
                                          "not finite" };
    size_t i;
    table b;
    text_str(t, "\n");
    table_begin(&b, 8, 4 | 8 | 16 | 32 | 64 | 128, titles);
    for (i = 0; i < l->n; i++) {
        const ckr_tensor *x = l->tensors[i];
        const ckr_stats *s = &l->stats[i];
        table_text(&b, x->name);
        table_text(&b, x->slot);
        stats_cell(&b, x, s->min, s->least, true);
        stats_cell(&b, x, s->max, s->most, true);
        stats_cell(&b, x, s->mean, 0, false);
        stats_cell(&b, x, s->std, 0, false);
        share_cell(&b, s->n_zero, s->n);
        share_cell(&b, s->n_nan + s->n_inf, s->n);
    }
    table_end(&b, t);
}

static void inspect_list(text *t, const listed *l)
{
    static const char *const titles[] = { "name", "slot", "dtype", "shape", "pieces" };
    size_t i;
    table b;
    text_str(t, "\n");
    table_begin(&b, 5, 16, titles);
    for (i = 0; i < l->n; i++) {
        const ckr_tensor *x = l->tensors[i];
        table_text(&b, x->name);
        table_text(&b, x->slot);
        table_text(&b, ckr_dtype_name(x->dtype));
        text_shape(&b.cell, x->n_dims, x->shape);
        table_cell(&b);
        table_count(&b, x->n_pieces);
    }
    table_end(&b, t);
}

/* "lr 0.001, betas [0.9,0.95]"; flags that are off say nothing */
static void hyper_text(text *t, const ckr_ckpt *c, const ckr_node *hyper)
{
    bool any = false;
    uint64_t i;
    if (!ckr_node_is_dict(hyper)) return;
    for (i = 0; i < hyper->count; i++) {
        const ckr_node *key = hyper->u.items[2 * i], *v = hyper->u.items[2 * i + 1];
        if (!v || v->kind == CKR_NODE_NONE || (v->kind == CKR_NODE_BOOL && !v->u.b)) continue;
        if (any) text_str(t, ", ");
        text_node(t, c, key);
        text_str(t, " ");
        text_node(t, c, v);
        any = true;
    }
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

/* A NUL-terminated text, wrapped under the indent of a group's or schedule's values. */
static void inspect_values(text *t, const ckr_ckpt *c, const ckr_node *dict)
{
    text line;
    memset(&line, 0, sizeof line);
    line.digits = 6;
    hyper_text(&line, c, dict);
    if (!line.n) return;
    text_pad(t, 5);
    text_wrapped(t, &line, 5, 5);
}

/* "  0-3,7-9    13 parameters" for all groups from `first` on that are marked as its like. */
static void inspect_group_like(text *t, const ckr_state *s, const uint64_t *like, uint64_t first)
{
    uint64_t i, from = 0, n_params = 0;
    bool open = false, any = false;
    text_str(t, "  ");
    for (i = first; i <= s->n_groups; i++) {
        const bool mine = i < s->n_groups && like[i] == first;
        if (mine) n_params += s->groups[i].n_params;
        if (mine && !open) from = i;
        if (!mine && open) {
            text_fmt(t, any ? ",%llu" : "%llu", (unsigned long long)from);
            if (i - from > 1) text_fmt(t, "-%llu", (unsigned long long)(i - 1));
            any = true;
        }
        open = mine;
    }
    if (s->groups[first].name) {
        text_str(t, "  ");
        text_clean(t, s->groups[first].name);
    }
    text_str(t, ": ");
    text_plural(t, n_params, "parameter", "parameters");
    text_str(t, "\n");
}

/* like[i]: the first group with the same values. Rendered lines stand in `all`, one after the
   other. */
static bool inspect_group_likes(const ckr_ckpt *c, const ckr_state *s, uint64_t *like, size_t *at,
                                text *all)
{
    uint64_t i, k;
    for (i = 0; i < s->n_groups; i++) {
        at[i] = all->n;
        hyper_text(all, c, s->groups[i].hyper);
        at[i + 1] = all->n;
        for (k = 0; k < i; k++) {
            const size_t n = at[k + 1] - at[k];
            if (like[k] == k && n == at[i + 1] - at[i] &&
                same_text(s->groups[k].name, s->groups[i].name) &&
                (!n || !memcmp(all->data + at[k], all->data + at[i], n)))
                break;
        }
        like[i] = k;
    }
    return !all->failed;
}

/* Groups with the same hyper-parameters share a line: a group per parameter is common. */
static void inspect_groups(text *t, const ckr_ckpt *c, const ckr_state *s)
{
    const size_t n = s->n_groups < SIZE_MAX / 32 ? (size_t)s->n_groups : 0;
    uint64_t *like, i;
    size_t *at;
    text all;
    if (!n) return;
    like = (uint64_t *)malloc(n * sizeof *like);
    at = (size_t *)malloc((n + 1) * sizeof *at);
    memset(&all, 0, sizeof all);
    text_str(t, "\n");
    text_painted(t, PAINT_BOLD, "parameter groups");
    text_str(t, "\n");
    if (!like || !at || !inspect_group_likes(c, s, like, at, &all)) t->failed = true;
    for (i = 0; i < n && !t->failed; i++) {
        if (like[i] != i) continue;
        inspect_group_like(t, s, like, i);
        inspect_values(t, c, s->groups[i].hyper);
    }
    free(like);
    free(at);
    text_free(&all);
}

static void inspect_schedules(text *t, const ckr_ckpt *c, const ckr_state *s)
{
    uint64_t i;
    for (i = 0; i < s->n_schedules; i++) {
        const ckr_schedule_facts h = ckr_schedule_info(ckr_ckpt_schedule(c, i));
        if (i == 0) {
            text_str(t, "\n");
            text_painted(t, PAINT_BOLD, "schedules");
            text_str(t, "\n");
        }
        text_str(t, "  ");
        text_clean(t, h.kind);
        text_str(t, ", ");
        text_clean(t, h.clock);
        if (h.position >= 0) text_fmt(t, " %lld", (long long)h.position);
        text_str(t, "\n");
        inspect_values(t, c, h.params);
    }
}

/* One line for each kind of stream: on how many ranks it is. */
static void inspect_rng(text *t, const ckr_state *s)
{
    uint64_t i, k, ranks;
    for (i = 0; i < s->n_rng && i < 4096; i++) {
        const ckr_stream *r = &s->rng[i];
        bool seen = false;
        for (k = 0; k < i && !seen; k++)
            seen = same_text(s->rng[k].kind, r->kind) && same_text(s->rng[k].name, r->name);
        if (seen) continue;
        for (k = ranks = 0; k < s->n_rng; k++)
            ranks += same_text(s->rng[k].kind, r->kind) && same_text(s->rng[k].name, r->name);
        if (i == 0) {
            text_str(t, "\n");
            text_painted(t, PAINT_BOLD, "random streams");
            text_str(t, "\n");
        }
        text_str(t, "  ");
        text_clean(t, r->kind);
        text_str(t, " ");
        text_clean(t, r->name);
        text_str(t, ": ");
        text_plural(t, ranks, "rank", "ranks");
        text_str(t, ", ");
        text_size(t, r->n_bytes);
        if (r->scope && r->scope[0]) {
            text_str(t, ", varies over ");
            text_clean(t, r->scope);
        } else {
            text_str(t, ", the same everywhere");
        }
        text_str(t, "\n");
    }
}

/* Ties, and what is copied unread, by the first parts of the paths. */
static void inspect_rest(text *t, const ckr_state *s)
{
    uint64_t i, n, lines = 0;
    for (i = 0; i < s->n_ties; i++) {
        if (i == 8 && !t->verbose) break;
        text_str(t, i ? "" : "\n");
        label(t, "tied");
        text_clean(t, s->ties[i].name);
        text_str(t, " = ");
        text_clean(t, s->ties[i].other);
        text_str(t, "\n");
    }
    if (i < s->n_ties)
        text_fmt(t, "  and %llu more (--verbose lists them)\n",
                 (unsigned long long)(s->n_ties - i));
    if (!s->n_leftovers) return;
    text_str(t, "\n");
    text_painted(t, PAINT_BOLD, "other values");
    text_str(t, ", which a conversion to the same framework copies unchanged\n");
    for (i = 0; i < s->n_leftovers && (t->verbose || lines < 8); i += n, lines++) {
        const char *path = s->leftovers[i].path;
        const size_t head = strcspn(path, ".");
        n = 1;
        while (!t->verbose && i + n < s->n_leftovers && path[head] &&
               !strncmp(path, s->leftovers[i + n].path, head + 1))
            n++;
        text_str(t, "  ");
        if (n > 1) text_clean_n(t, path, head);
        else text_wrap(t, 4, 2, path);
        if (n > 1) text_fmt(t, ": %llu values\n", (unsigned long long)n);
    }
    if (i < s->n_leftovers)
        text_fmt(t, "  and %llu more (--verbose lists them)\n",
                 (unsigned long long)(s->n_leftovers - i));
}

static void inspect_text(job *j, const ckr_ckpt *c, const listed *l)
{
    const ckr_state *s = ckr_ckpt_state(c);
    const report notes = report_of(s->notes, s->n_notes, NULL, 0);
    text *t = &j->out;
    head_text(t, c, j->args[0]);
    inspect_model(t, s);
    if (j->o.quiet) return;
    inspect_slots(t, s);
    if (l->stats) stats_list(t, l);
    else if (j->o.tensors) inspect_list(t, l);
    inspect_groups(t, c, s);
    inspect_schedules(t, c, s);
    inspect_rng(t, s);
    inspect_rest(t, s);
    report_text(t, &notes, "report");
}

int verb_inspect(job *j)
{
    ckr_ckpt *c;
    listed l;
    int code = open_checkpoint(j, j->args[0], &c);
    if (code != CODE_DONE) return code;
    code = listed_make(j, c, &l);
    if (code == CODE_DONE && j->o.json) inspect_json(j, c, &l);
    else if (code == CODE_DONE) inspect_text(j, c, &l);
    listed_free(&l);
    ckr_ckpt_close(c);
    return code;
}
