/* diff: what two checkpoints do not have in common. */

#include "tool.h"

#define LIMIT_USUAL 10
#define SLOTS_SHOWN 24

/* What the options make of the library's answer: of the tensors that differ, those that are within
   the tolerance count as the same. */
typedef struct answer {
    const ckr_diff *d;
    const ckr_ckpt *a, *b;
    bool     same;
    uint64_t n_within, n_differ, n_beside;
} answer;

/* By any tolerance a value is no NaN, and both sides have it. None at all is no cast either: 0ulp
   takes values that are equal in the narrower dtype. */
static bool is_within(const options *o, const ckr_tensor_diff *x)
{
    if (!o->tolerance || x->where || x->as == CKR_DTYPE_NONE) return false;
    if (!o->tolerance_ulp && o->tolerate <= 0 && x->a->dtype != x->b->dtype) return false;
    if (!x->n_elements) return true;
    if (o->tolerance_ulp) return x->max_ulp != CKR_NO_ULP && (double)x->max_ulp <= o->tolerate;
    return x->max_abs <= o->tolerate;
}

/* The place of an element of a tensor, axis by axis. */
static void place_of(const ckr_tensor *t, uint64_t element, int64_t place[CKR_MAX_DIMS])
{
    uint32_t i;
    for (i = t->n_dims; i-- > 0;) {
        place[i] = (int64_t)(element % (uint64_t)t->shape[i]);
        element /= (uint64_t)t->shape[i];
    }
}

/* >>diff.slots ---------------------------------------------------------------- */

typedef struct slot_line {
    const char *slot;
    uint64_t    n[2], only[2], differ, max_ulp;
    double      max_abs;
    unsigned    digits;        /* of the dtype whose distance is over all of them, else 0     */
    bool        any, ulp;      /* has any a value, or a distance in ulp                  */
} slot_line;

typedef struct slot_lines { slot_line line[SLOTS_SHOWN]; size_t n; } slot_lines;

/* What has a slot past SLOTS_SHOWN is counted in the last line. */
static slot_line *slot_at(slot_lines *s, const char *slot)
{
    size_t k;
    for (k = 0; k < s->n && strcmp(s->line[k].slot, slot) != 0; k++) {}
    if (k < s->n) return &s->line[k];
    if (k == SLOTS_SHOWN) {
        s->line[k - 1].slot = "(others)";
        return &s->line[k - 1];
    }
    s->line[k].slot = slot;
    return &s->line[s->n++];
}

/* Binary digits of a float behind its first, decimal ones that tell it from its neighbours. */
static unsigned digits_of(ckr_dtype t, unsigned *decimal)
{
    static const struct { ckr_dtype t; unsigned digits, decimal; } rows[] = {
        { CKR_DTYPE_BF16, 7, 4 }, { CKR_DTYPE_F16, 10, 5 }, { CKR_DTYPE_F32, 23, 9 }
    };
    size_t i;
    for (i = 0; i < COUNT_OF(rows) && rows[i].t != t; i++) {}
    if (decimal) *decimal = i < COUNT_OF(rows) ? rows[i].decimal : 17;
    return i < COUNT_OF(rows) ? rows[i].digits : 52;
}

/* Floats further apart, as any two of another sign are, have no digit in common: how far says
   nothing. */
static unsigned digits_over(const ckr_tensor_diff *x)
{
    const unsigned digits = digits_of(x->as, NULL);
    return x->max_ulp != CKR_NO_ULP && x->max_ulp > (uint64_t)1 << digits ? digits : 0;
}

static void slots_sum(slot_lines *s, const options *o, const answer *r)
{
    const ckr_ckpt *const side[2] = { r->a, r->b };
    uint64_t i;
    int k;
    memset(s, 0, sizeof *s);
    for (k = 0; k < 2; k++)
        for (i = 0; i < ckr_ckpt_state(side[k])->n_tensors; i++)
            slot_at(s, ckr_ckpt_state(side[k])->tensors[i]->slot)->n[k]++;
    for (i = 0; i < r->d->n_tensors; i++) {
        const ckr_tensor_diff *x = &r->d->tensors[i];
        slot_line *l = slot_at(s, x->slot);
        if (x->where) l->only[x->where > 0]++;
        else if (!is_within(o, x)) l->differ++;
        if (x->where || x->as == CKR_DTYPE_NONE) continue;
        if (isnan(x->max_abs) || x->max_abs > l->max_abs) l->max_abs = x->max_abs;
        if (x->max_ulp != CKR_NO_ULP && x->max_ulp > l->max_ulp) l->max_ulp = x->max_ulp;
        if (digits_over(x) > l->digits) l->digits = digits_over(x);
        l->any = true;
        l->ulp = l->ulp || x->max_ulp != CKR_NO_ULP;
    }
}

/* For the eye a line for each slot. */
static void slots_show(show *w, const slot_lines *s)
{
    uint64_t n;
    size_t i;
    int k;
    if (!w->t || !s->n) return;
    show_line(w, NULL, "");
    show_table(w, "slot|>in both|>different|>only A|>only B|>max abs={max_abs?-}|>max ulp={ulp?-}");
    for (i = 0; i < s->n; i++) {
        const slot_line *l = &s->line[i];
        show_dict(w, NULL);
        show_str(w, "slot", l->slot);
        for (k = 0, n = 0; k < 2; k++)     /* a master may stand beside a parameter          */
            if (l->n[k] > l->only[k] + n) n = l->n[k] - l->only[k];
        show_count(w, "in both", n);
        show_count(w, "different", l->differ);
        show_count(w, "only A", l->only[0]);
        show_count(w, "only B", l->only[1]);
        if (l->any) show_double(w, "max_abs", l->max_abs, "%.3g");
        if (l->digits) text_fmt(show_text(w, "ulp"), "over 2^%u", l->digits);
        else if (l->ulp) show_count(w, "ulp", l->max_ulp);
        show_cells(w);
        show_close(w);
    }
    show_table_end(w);
}

/* >>diff.worst ---------------------------------------------------------------- */
/* Slots have scales of their own: the worst of each come first, then the second of each. */

typedef struct worst {
    const ckr_tensor_diff *x;
    size_t   slot;
    int      kind;             /* the lower the worse                                     */
    uint64_t rank;             /* in its slot                                             */
} worst;

static int worst_kind(const ckr_tensor_diff *x)
{
    if (x->where) return 4;
    if (x->as == CKR_DTYPE_NONE) return 0;
    if (!x->n_elements) return 3;
    return isnan(x->max_abs) ? 1 : 2;
}

static int worst_cmp(const void *a, const void *b)
{
    const worst *p = (const worst *)a, *q = (const worst *)b;
    if (p->rank != q->rank) return p->rank < q->rank ? -1 : 1;
    if (p->slot != q->slot) return p->slot < q->slot ? -1 : 1;
    if (p->kind != q->kind) return p->kind < q->kind ? -1 : 1;
    if (p->kind == 2 && p->x->max_abs > q->x->max_abs) return -1;
    if (p->kind == 2 && p->x->max_abs < q->x->max_abs) return 1;
    return p->x < q->x ? -1 : p->x > q->x;
}

/* NULL: out of memory, or none. What one side alone has comes last. */
static worst *worst_list(const options *o, slot_lines *s, const answer *r, size_t *n)
{
    worst *list = r->n_differ < SIZE_MAX / sizeof *list
                      ? (worst *)malloc(((size_t)r->n_differ + 1) * sizeof *list) : NULL;
    uint64_t i;
    size_t k;
    *n = 0;
    for (i = 0; list && i < r->d->n_tensors; i++) {
        const ckr_tensor_diff *x = &r->d->tensors[i];
        if (is_within(o, x)) continue;
        list[*n].x = x;
        list[*n].slot = (size_t)(slot_at(s, x->slot) - s->line);
        list[*n].kind = worst_kind(x);
        list[(*n)++].rank = 0;
    }
    if (list) qsort(list, *n, sizeof *list, worst_cmp);
    for (k = 0; k < *n; k++)
        list[k].rank = k && list[k].slot == list[k - 1].slot ? list[k - 1].rank + 1 : 0;
    for (k = 0; k < *n; k++) list[k].rank |= (uint64_t)(list[k].kind == 4) << 63;
    if (list) qsort(list, *n, sizeof *list, worst_cmp);
    return list;
}

/* Two values with the digits that tell them apart, four at least. */
static void pair_text(text *t, const ckr_tensor_diff *x)
{
    char a[40], b[40];
    unsigned most;
    int p = 4;
    digits_of(x->as, &most);
    do {
        snprintf(a, sizeof a, "%.*g", p, x->worst_a);
        snprintf(b, sizeof b, "%.*g", p, x->worst_b);
    } while (!strcmp(a, b) && p++ < (int)most);
    text_fmt(t, "%s -> %s", a, b);
}

/* >>diff.tensor --------------------------------------------------------------- */

/* Where the two are furthest apart: "at [0,3]: 0.1 -> 0.2" */
static void tensor_worst(show *w, const ckr_tensor_diff *x)
{
    const bool none = isnan(x->worst_a) && isnan(x->worst_b);
    int64_t place[CKR_MAX_DIMS];
    text *t;
    uint32_t i;
    place_of(x->a, x->worst, place);
    show_dict(w, "worst");
    show_shape(w, "index", x->a->n_dims, place);
    show_double(w, "a", x->worst_a, "%g");
    show_double(w, "b", x->worst_b, "%g");
    if (w->t) pair_text(show_text(w, "pair"), x);
    t = show_text(w, "at");
    for (i = 0; i < x->a->n_dims; i++)
        text_fmt(t, "%s%lld%s", i ? "," : "[", (long long)place[i],
                 i + 1 < x->a->n_dims ? "" : "]");
    show_close_as(w, none ? "" : tensor_elements(x->a) == 1 ? "{pair}" : "at {at}: {pair}");
}

/* What there is to say of two tensors' values. */
static const char *tensor_words(const ckr_tensor_diff *x)
{
    if (x->as == CKR_DTYPE_NONE) return ": their values are not compared";
    if (!x->n_elements) return "[, equal as {cast}]";
    if (tensor_elements(x->a) == 1 && (!isnan(x->worst_a) || !isnan(x->worst_b)))
        return "[; as {cast} ]{worst}";
    if (!(x->max_abs > 0) && !isnan(x->max_abs))
        return "[; as {cast} ]{elements} of {all} differ, zeros, in sign only";
    return isnan(x->max_abs)
               ? "[; as {cast} ]{elements} of {all} differ[, {signs} in sign], some are NaN"
                 "[ {worst}]"
               : "[; as {cast} ]{elements} of {all} differ[, {signs} in sign][, {max_ulp} ulp], "
                 "max abs {max_abs}[ {worst}]";
}

static void tensor_distance(show *w, const ckr_tensor_diff *x)
{
    const bool any = x->as != CKR_DTYPE_NONE;
    show_count(w, "elements", x->n_elements);
    if (any) show_double(w, "max_abs", x->max_abs, "%.3g");
    else show_null(w, "max_abs");
    if (x->max_ulp == CKR_NO_ULP) show_null(w, "max_ulp");
    else show_count(w, "max_ulp", x->max_ulp);
    show_str(w, "as", any ? ckr_dtype_name(x->as) : NULL);
    show_count(w, "signs", x->n_signs);
    if (any && x->n_elements) tensor_worst(w, x);
    else show_null(w, "worst");
    text_count(show_text(w, "all"), tensor_elements(x->a));
    if (digits_over(x)) show_word(w, "max_ulp", "");
    if (!x->n_signs) show_word(w, "signs", "");
    if (x->a->dtype != x->b->dtype) show_words(w, "cast", "{as}");
    show_words(w, "values", tensor_words(x));
}

/* Two of them as one fact: that which is there, both where they differ. */
static void tensor_sides(show *w, const ckr_tensor_diff *x)
{
    const char *both = x->where ? "{a}{b}" : "[{a!b} -> {b}]";
    show_list(w, "dtype");
    show_str(w, "a", x->a ? ckr_dtype_name(x->a->dtype) : NULL);
    show_str(w, "b", x->b ? ckr_dtype_name(x->b->dtype) : NULL);
    show_close_as(w, both);
    show_list(w, "shape");
    if (x->a) show_shape(w, "a", x->a->n_dims, x->a->shape);
    else show_null(w, "a");
    if (x->b) show_shape(w, "b", x->b->n_dims, x->b->shape);
    else show_null(w, "b");
    show_close_as(w, both);
}

static void tensor_show(show *w, const ckr_tensor_diff *x)
{
    const bool cast = !x->where && x->a->dtype != x->b->dtype;
    show_dict(w, NULL);
    show_str(w, "name", x->name);
    show_str(w, "slot", x->slot);
    tensor_sides(w, x);
    if (x->where == 0) tensor_distance(w, x);
    if (strcmp((x->a ? x->a : x->b)->slot, x->slot) != 0)
        show_word(w, "only_a", "A has the parameter only: ");
    if (strcmp((x->b ? x->b : x->a)->slot, x->slot) != 0)
        show_word(w, "only_b", "B has the parameter only: ");
    show_line(w, NULL, "  {*name}  {slot}");
    show_put(w, NULL, "      ");
    show_wrap(w, 6, 6, x->where < 0   ? "{only_a}{only_b}only in A: {dtype}, {shape}"
                       : x->where > 0 ? "{only_a}{only_b}only in B: {dtype}, {shape}"
                       : cast         ? "{only_a}{only_b}{dtype}[, shape {shape}]{values}"
                                      : "{only_a}{only_b}[shape {shape}]{values}");
    show_close(w);
}

/* The document has all tensors, in its lists; */
static void tensors_listed(show *w, const options *o, const ckr_diff *d, const char *key, int where,
                           bool within)
{
    uint64_t i;
    show_list(w, key);
    for (i = 0; i < d->n_tensors && show_room(w, i, 0); i++)
        if (d->tensors[i].where == where && is_within(o, &d->tensors[i]) == within)
            tensor_show(w, &d->tensors[i]);
    show_close(w);
}

/* the eye has the worst of each slot. */
static void tensors_worst(show *w, const options *o, slot_lines *s, const answer *r)
{
    const uint64_t limit = o->limit ? o->limit : show_most(w, LIMIT_USUAL);
    size_t n, i;
    worst *list;
    if (!w->t) return;
    list = worst_list(o, s, r, &n);
    if (!list) w->t->failed = true;
    if (n) show_line(w, NULL, "");
    for (i = 0; i < n && i < limit; i++) tensor_show(w, list[i].x);
    show_rest(w, n - i, " (--limit all lists them)");
    free(list);
}

/* >>diff.answer --------------------------------------------------------------- */

/* Entries by what they are about: the code says it. */
static const char *diff_section(const ckr_note *n)
{
    static const char *const key[] = { "groups", "schedules", "rng", "leftovers", "leftovers" };
    static const char *const part[] = { "GROUP", "SCHED", "RNG", "LEFTOVER", "NOT_COMPARED" };
    size_t i;
    for (i = 0; i < COUNT_OF(part); i++)
        if (strstr(n->code, part[i])) return key[i];
    return "progress";
}

/* Their names in the document, and those for the eye. */
static const char *const components[][2] = {
    { "params", "parameters" }, { "optimizer", "optimizer state" }, { "groups", "groups" },
    { "schedule", "schedules" }, { "rng", "random streams" }, { "progress", "progress" },
    { "data", "places in the data" }
};

static void components_list(show *w, const char *key, uint32_t bits)
{
    size_t i;
    show_list(w, key);
    for (i = 0; i < COUNT_OF(components); i++)
        if (bits >> i & 1) show_str(w, "component", components[i][0]);
    show_close(w);
}

static void components_text(text *t, uint32_t bits)
{
    const char *gap = "";
    size_t i;
    for (i = 0; i < COUNT_OF(components); i++) {
        if (!(bits >> i & 1)) continue;
        text_fmt(t, "%s%s", gap, components[i][1]);
        gap = ", ";
    }
}

/* A path that is too long for the line stands below its name. */
static void side_line(show *w, const char *name, const ckr_ckpt *c)
{
    text_painted(show_text(w, "side"), PAINT_DIM, name);
    show_word(w, "path", ckr_ckpt_path(c));
    show_put(w, NULL, "  {side}");
    show_wrap(w, 2, 3, "          {path}");
}

static void result_show(show *w, const options *o, const answer *r)
{
    const uint32_t tensors = CKR_PARAMS | CKR_OPTIMIZER;
    uint64_t i, n = ckr_ckpt_state(r->a)->n_tensors;
    show_flag(w, "same", r->same, "the same:", "different:", PAINT_YELLOW);
    components_list(w, "both", r->d->both);
    components_list(w, "one", r->d->one);
    for (i = 0; r->same && i < r->d->n_tensors; i++)
        n -= !strcmp(r->d->tensors[i].a->slot, r->d->tensors[i].slot);
    if (r->same && r->d->both & tensors) text_count(show_text(w, "equal"), n);
    if (r->same) components_text(show_text(w, "others"), r->d->both & ~tensors);
    if (r->n_differ) text_count(show_text(w, "differ"), r->n_differ);
    if (r->n_beside) text_count(show_text(w, "beside"), r->n_beside);
    show_put(w, "result", "{same}");
    show_wrap(w, 13, r->same ? 22 : 23,
              r->same ? r->d->both & tensors ? " {equal tensor/tensors} bit for bit[, {others}]"
                                             : " {others}"
              : r->n_differ && r->n_beside
                  ? " {differ tensor/tensors} and {beside entry/entries} beside the tensors"
                  : "[ {differ tensor/tensors}][ {beside entry/entries} beside the tensors]");
    text_count(show_text(w, "n"), r->n_within);
    show_word(w, "tolerance", o->tolerance);
    if (r->n_within) show_line(w, "within", "{tolerance}: {n tensor/tensors}");
    if ((r->d->both | r->d->one) == 127) return;
    components_text(show_text(w, "neither"), ~(r->d->both | r->d->one));
    show_put(w, "neither", "");
    show_wrap(w, 13, 13, "has {neither}");
}

static void others_show(show *w, const ckr_diff *d)
{
    static const char *const sections[] = { "groups", "schedules", "rng", "progress",
                                            "leftovers" };
    size_t k;
    uint64_t i;
    for (k = 0; k < COUNT_OF(sections); k++) {
        show_list(w, sections[k]);
        for (i = 0; i < d->n_others && show_room(w, i, 0); i++)
            if (!strcmp(diff_section(&d->others[i]), sections[k])) show_entry(w, &d->others[i]);
        show_close(w);
    }
}

static void diff_show(job *j, const answer *r)
{
    const report notes = report_of(r->d->others, r->d->n_others, NULL, 0);
    slot_lines slots;
    show w;
    show_job(&w, j);
    side_line(&w, "A", r->a);
    side_line(&w, "B", r->b);
    result_show(&w, &j->o, r);
    if (w.t) slots_sum(&slots, &j->o, r);
    if (r->d->n_tensors || j->o.stat) slots_show(&w, &slots);
    show_dict(&w, "tensors");
    tensors_listed(&w, &j->o, r->d, "only_a", -1, false);
    tensors_listed(&w, &j->o, r->d, "only_b", 1, false);
    tensors_listed(&w, &j->o, r->d, "different", 0, false);
    if (j->o.tolerance) tensors_listed(&w, &j->o, r->d, "within", 0, true);
    show_close(&w);
    tensors_worst(&w, &j->o, &slots, r);
    others_show(&w, r->d);
    if (!j->o.stat) show_alikes(&w, &notes, "beside the tensors");
    show_end(&w);
}

static int diff_both(job *j, const ckr_ckpt *a, const ckr_ckpt *b)
{
    ckr_diff *d = NULL;
    answer r;
    report notes;
    uint64_t i;
    progress_begin(j);
    r.same = ckr_ckpt_diff(a, b, &d, &j->err) == CKR_OK;
    progress_end(j);
    if (!r.same) return fail(j);
    notes = report_of(d->others, d->n_others, NULL, 0);
    r.d = d;
    r.a = a;
    r.b = b;
    for (i = r.n_within = 0; i < d->n_tensors; i++) r.n_within += is_within(&j->o, &d->tensors[i]);
    r.n_differ = d->n_tensors - r.n_within;
    r.n_beside = report_count(&notes, CKR_CHANGED);
    r.same = !r.n_differ && !r.n_beside;
    diff_show(j, &r);
    ckr_diff_free(d);
    return r.same ? CODE_DONE : CODE_REFUSED;
}

int verb_diff(job *j)
{
    ckr_ckpt *a, *b;
    int code = open_checkpoint(j, j->args[0], &a);
    if (code != CODE_DONE) return code;
    code = open_checkpoint(j, j->args[1], &b);
    if (code == CODE_DONE) code = diff_both(j, a, b);
    ckr_ckpt_close(b);
    ckr_ckpt_close(a);
    return code;
}
