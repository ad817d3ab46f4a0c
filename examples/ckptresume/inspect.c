/* inspect: what is in a checkpoint. */

#include "tool.h"

#define SLOTS_SHOWN 24

typedef struct slot_sum {
    const char *slot;
    uint64_t tensors, elements, bytes;
    uint64_t of[CKR_DTYPE_COUNT_];     /* tensors of each dtype                      */
} slot_sum;

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

static void share_text(text *t, uint64_t n, uint64_t of)
{
    if (n) text_fmt(t, "%.3g%%", 100 * ((double)n / (double)of));
    else text_str(t, "0");
}

/* No value: null, and "-" in a table. */
static void inspect_stats(show *w, const ckr_tensor *t, const ckr_stats *s)
{
    const struct { const char *key; double v; int64_t whole; } rows[] = {
        { "min", s->min, s->least }, { "max", s->max, s->most }, { "mean", s->mean, 0 },
        { "std", s->std, 0 }
    };
    const bool whole = t->dtype >= CKR_DTYPE_BOOL && t->dtype <= CKR_DTYPE_I64;
    size_t i;
    show_dict(w, "stats");
    show_uint(w, "elements", s->n);
    show_uint(w, "nan", s->n_nan);
    show_uint(w, "inf", s->n_inf);
    show_uint(w, "zeros", s->n_zero);
    for (i = 0; i < COUNT_OF(rows); i++) {
        if (isnan(rows[i].v)) show_null(w, rows[i].key);
        else if (i > 1 || !whole) show_double(w, rows[i].key, rows[i].v, "%.4g");
        else if (t->dtype == CKR_DTYPE_U64) show_uint(w, rows[i].key, (uint64_t)rows[i].whole);
        else show_int(w, rows[i].key, rows[i].whole);
    }
    share_text(show_text(w, "zero_share"), s->n_zero, s->n);
    share_text(show_text(w, "odd_share"), s->n_nan + s->n_inf, s->n);
    show_cells(w);
    show_close(w);
}

static void inspect_list(show *w, const listed *l)
{
    size_t i;
    show_line(w, NULL, "");
    show_table(w, l->stats ? "name|slot|>min={min?-}|>max={max?-}|>mean={mean?-}|>std={std?-}|"
                             ">zeros={zero_share}|>not finite={odd_share}"
                           : "name|slot|dtype|shape|>pieces");
    show_list(w, "list");
    for (i = 0; i < l->n; i++) {
        show_dict(w, NULL);
        show_tensor(w, l->tensors[i]);
        show_count(w, "pieces", l->tensors[i]->n_pieces);
        if (l->stats) inspect_stats(w, l->tensors[i], &l->stats[i]);
        else show_cells(w);
        show_close(w);
    }
    show_close(w);
    show_table_end(w);
}

/* "bfloat16", or how many tensors have which, of the three that most
   have: "24 bfloat16, 2 float32" */
static void slot_dtypes(text *t, const slot_sum *sum)
{
    uint64_t left = sum->tensors, of[CKR_DTYPE_COUNT_];
    unsigned i, best;
    int shown;
    memcpy(of, sum->of, sizeof of);
    for (shown = 0; left && shown < 3; shown++) {
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

/* "1.24 B" */
static void big_text(text *t, uint64_t n)
{
    static const char *const units[] = { "", " K", " M", " B", " T", " Q" };
    double v = (double)n;
    size_t u = 0;
    for (; v >= 999.5 && u + 1 < COUNT_OF(units); u++) v /= 1000;
    text_fmt(t, v >= 99.95 || !u ? "%.0f%s" : v >= 9.995 ? "%.1f%s" : "%.2f%s", v, units[u]);
}

/* Elements of a tensor that no piece has. */
static uint64_t tensor_missing(const ckr_tensor *t)
{
    const uint64_t n = tensor_elements(t);
    uint64_t have = 0;
    uint32_t k, d;
    for (k = 0; k < t->n_pieces; k++) {
        uint64_t volume = !t->pieces[k].replica;
        for (d = 0; d < t->n_dims; d++) volume *= (uint64_t)t->pieces[k].count[d];
        have += volume;
    }
    return have < n ? n - have : 0;
}

/* "1.24 B parameters, complete": do the files hold every element of them? */
static void inspect_model(show *w, const ckr_state *s)
{
    uint64_t i, params = 0, bytes = 0, missing = 0;
    for (i = 0; i < s->n_tensors; i++) {
        const ckr_tensor *t = s->tensors[i];
        bytes += tensor_elements(t) * ckr_dtype_size(t->dtype);
        if (!tensor_trained(t)) continue;
        params += tensor_elements(t);
        missing += tensor_missing(t);
    }
    show_count(w, "count", s->n_tensors);
    show_uint(w, "params", params);
    show_size(w, "bytes", bytes);
    big_text(show_text(w, "parameters"), params);
    if (s->n_parts) text_count(show_text(w, "parts"), s->n_parts);
    else if (missing) text_count(show_text(w, "missing"), missing);
    else show_word(w, "complete", "complete");
    if (params || s->n_parts)
        show_line(w, "model", "{parameters} parameters, {complete}[{missing} of them in no file]"
                  "[one part: {parts tensor continues/tensors continue} in other files]");
}

/* For the eye a line for each slot. */
static void inspect_slots(show *w, const ckr_state *s)
{
    slot_sum sums[SLOTS_SHOWN];
    const size_t n = w->t ? slot_sums(s, sums) : 0;
    size_t i;
    if (!n) return;
    show_title(w, "tensors");
    show_table(w, "slot|>tensors|>elements|>bytes|dtype");
    for (i = 0; i < n; i++) {
        show_dict(w, NULL);
        show_str(w, "slot", sums[i].slot);
        show_count(w, "tensors", sums[i].tensors);
        show_count(w, "elements", sums[i].elements);
        show_size(w, "bytes", sums[i].bytes);
        slot_dtypes(show_text(w, "dtype"), &sums[i]);
        show_cells(w);
        show_close(w);
    }
    show_table_end(w);
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

/* For the eye a line below, for the values of a group or a schedule. */
static void inspect_values(show *w, const char *key, const ckr_ckpt *c, const ckr_node *dict)
{
    if (w->t) {
        hyper_text(show_text(w, "values"), c, dict);
    } else if (dict) {
        show_node(w, key, c, dict);
    } else {
        show_dict(w, key);
        show_close(w);
    }
}

/* "0-3,7-9", all groups from `first` on that are marked as its like; their parameters. */
static uint64_t group_range(text *t, const ckr_state *s, const uint64_t *like, uint64_t first)
{
    uint64_t i, from = 0, n_params = 0;
    bool open = false, any = false;
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
    return n_params;
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

/* `like`: for the eye groups with the same hyper-parameters share a line, as a group per parameter
   is common. */
static void inspect_group(show *w, const ckr_ckpt *c, const ckr_state *s, uint64_t i,
                          const uint64_t *like)
{
    const ckr_group *g = &s->groups[i];
    uint64_t k;
    show_dict(w, NULL);
    show_uint(w, "index", i);
    show_str(w, "name", g->name);
    inspect_values(w, "hyper", c, g->hyper);
    show_list(w, "params");
    for (k = 0; k < g->n_params && show_room(w, k, 0); k++) show_str(w, "name", g->params[k]);
    show_close(w);
    if (like) {
        k = group_range(show_text(w, "range"), s, like, i);
        text_count(show_text(w, "n"), k);
        show_line(w, NULL, "  {range}[  {name}]: {n parameter/parameters}");
        show_below(w, 5, "{values}");
    }
    show_close(w);
}

static void inspect_groups(show *w, const ckr_ckpt *c, const ckr_state *s)
{
    const size_t n = w->t && s->n_groups < SIZE_MAX / 32 ? (size_t)s->n_groups : 0;
    uint64_t *like = n ? (uint64_t *)malloc(n * sizeof *like) : NULL, i;
    size_t *at = n ? (size_t *)malloc((n + 1) * sizeof *at) : NULL;
    text all;
    memset(&all, 0, sizeof all);
    if (n) show_title(w, "parameter groups");
    if (n && (!like || !at || !inspect_group_likes(c, s, like, at, &all))) w->t->failed = true;
    show_list(w, "groups");
    for (i = 0; i < s->n_groups; i++)
        if (show_room(w, i, 0) || (n && !w->t->failed && like[i] == i))
            inspect_group(w, c, s, i, like);
    show_close(w);
    free(like);
    free(at);
    text_free(&all);
}

static void inspect_schedules(show *w, const ckr_ckpt *c, const ckr_state *s)
{
    uint64_t i;
    if (s->n_schedules) show_title(w, "schedules");
    show_list(w, "schedules");
    for (i = 0; i < s->n_schedules; i++) {
        const ckr_schedule_facts h = ckr_schedule_info(ckr_ckpt_schedule(c, i));
        show_dict(w, NULL);
        show_str(w, "kind", h.kind);
        show_str(w, "clock", h.clock);
        show_least(w, "position", h.position, 0);
        inspect_values(w, "params", c, h.params);
        show_line(w, NULL, "  {kind}, {clock}[ {position}]");
        show_below(w, 5, "{values}");
        show_close(w);
    }
    show_close(w);
}

static bool same_stream(const ckr_stream *a, const ckr_stream *b)
{
    return same_text(a->kind, b->kind) && same_text(a->name, b->name);
}

static void inspect_stream(show *w, const ckr_stream *r)
{
    show_dict(w, NULL);
    show_str(w, "kind", r->kind);
    show_str(w, "name", r->name);
    show_str(w, "scope", r->scope);
    show_size(w, "bytes", r->n_bytes);
}

/* For the eye a line for each kind of stream: on how many ranks it is. */
static void inspect_kinds(show *w, const ckr_state *s)
{
    uint64_t i, k, ranks;
    for (i = 0; i < s->n_rng && show_room(w, i, 4096); i++) {
        const ckr_stream *r = &s->rng[i];
        for (k = 0; k < i && !same_stream(&s->rng[k], r); k++) {}
        if (k < i) continue;
        for (k = ranks = 0; k < s->n_rng; k++) ranks += same_stream(&s->rng[k], r);
        inspect_stream(w, r);
        text_count(show_text(w, "ranks"), ranks);
        show_word(w, "same", r->scope && r->scope[0] ? "" : "the same everywhere");
        show_line(w, NULL, "  {kind} {name}: {ranks rank/ranks}, {bytes}, {same}"
                  "[varies over {scope}]");
        show_close(w);
    }
}

static void inspect_rng(show *w, const ckr_state *s)
{
    uint64_t i = 0;
    if (s->n_rng) show_title(w, "random streams");
    show_list(w, "rng");
    if (w->t) inspect_kinds(w, s);
    while (i < s->n_rng && show_room(w, i, 0)) {
        const uint32_t rank = s->rng[i].rank;
        show_dict(w, NULL);
        show_uint(w, "rank", rank);
        show_list(w, "streams");
        for (; i < s->n_rng && s->rng[i].rank == rank; i++) {
            inspect_stream(w, &s->rng[i]);
            show_close(w);
        }
        show_close(w);
        show_close(w);
    }
    show_close(w);
}

/* Ties, and what is copied unread: for the eye by the first parts of the paths. */
static void inspect_rest(show *w, const ckr_state *s)
{
    const uint64_t most = show_most(w, 8);
    uint64_t i, n, lines = 0;
    show_list(w, "ties");
    for (i = 0; i < s->n_ties && show_room(w, i, most); i++) {
        if (i == 0) show_line(w, NULL, "");
        show_list(w, NULL);
        show_str(w, "name", s->ties[i].name);
        show_str(w, "other", s->ties[i].other);
        show_line(w, "tied", "{name} = {other}");
        show_close(w);
    }
    show_close(w);
    show_rest(w, s->n_ties - i, " (--verbose lists them)");
    if (s->n_leftovers)
        show_line(w, NULL, "\n{*?other values}, which a conversion to the same framework copies "
                  "unchanged");
    show_list(w, "leftovers");
    for (i = 0; i < s->n_leftovers && show_room(w, lines, most); i += n, lines++) {
        const char *path = s->leftovers[i].path;
        const size_t head = strcspn(path, ".");
        for (n = 1; w->t && !w->t->verbose && i + n < s->n_leftovers && path[head] &&
                    !strncmp(path, s->leftovers[i + n].path, head + 1); n++) {}
        show_str(w, "path", path);
        text_clean_n(show_text(w, "head"), path, head);
        text_count(show_text(w, "n"), n);
        show_put(w, NULL, n > 1 ? "  {head}: {n} values\n" : "  ");
        if (n == 1) show_wrap(w, 4, 2, "{path}");
        show_forget(w);
    }
    show_close(w);
    show_rest(w, s->n_leftovers - i, " (--verbose lists them)");
}

static void inspect_show(job *j, const ckr_ckpt *c, const listed *l)
{
    const ckr_state *s = ckr_ckpt_state(c);
    const report notes = report_of(s->notes, s->n_notes, NULL, 0);
    show w;
    show_begin(&w, &j->out, j->o.json);
    show_head(&w, c);
    show_head_lines(&w, c, j->args[0]);
    show_dict(&w, "tensors");
    inspect_model(&w, s);
    if (j->o.quiet) w.t = NULL;
    inspect_slots(&w, s);
    if (j->o.tensors) inspect_list(&w, l);
    show_close(&w);
    inspect_groups(&w, c, s);
    inspect_schedules(&w, c, s);
    inspect_rng(&w, s);
    inspect_rest(&w, s);
    show_report(&w, &notes, "report");
    show_end(&w);
}

int verb_inspect(job *j)
{
    ckr_ckpt *c;
    listed l;
    int code = open_checkpoint(j, j->args[0], &c);
    if (code != CODE_DONE) return code;
    code = listed_make(j, c, &l);
    if (code == CODE_DONE) inspect_show(j, c, &l);
    listed_free(&l);
    ckr_ckpt_close(c);
    return code;
}
