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

static uint64_t elements_of(const ckr_tensor *t)
{
    uint64_t n = 1;
    uint32_t i;
    for (i = 0; i < t->n_dims; i++) n *= (uint64_t)t->shape[i];
    return n;
}

static bool same_shape(const ckr_tensor *a, const ckr_tensor *b)
{
    return a->n_dims == b->n_dims && !memcmp(a->shape, b->shape, a->n_dims * sizeof *a->shape);
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

/* >>diff.json ----------------------------------------------------------------- */

static void json_sides(json *w, const ckr_tensor_diff *x)
{
    json_list(w, "dtype");
    json_string(w, x->a ? ckr_dtype_name(x->a->dtype) : NULL);
    json_string(w, x->b ? ckr_dtype_name(x->b->dtype) : NULL);
    json_close(w, "]");
    json_list(w, "shape");
    if (x->a) json_shape(w, x->a->n_dims, x->a->shape);
    else json_raw(w, "null");
    if (x->b) json_shape(w, x->b->n_dims, x->b->shape);
    else json_raw(w, "null");
    json_close(w, "]");
}

static void json_distance(json *w, const ckr_tensor_diff *x)
{
    int64_t place[CKR_MAX_DIMS];
    const bool any = x->as != CKR_DTYPE_NONE;
    json_pair_uint(w, "elements", x->n_elements);
    json_key(w, "max_abs");
    if (any) json_double(w, x->max_abs);
    else json_raw(w, "null");
    if (x->max_ulp == CKR_NO_ULP) json_pair(w, "max_ulp", NULL);
    else json_pair_uint(w, "max_ulp", x->max_ulp);
    json_pair(w, "as", any ? ckr_dtype_name(x->as) : NULL);
    json_pair_uint(w, "signs", x->n_signs);
    json_key(w, "worst");
    if (!any || !x->n_elements) {
        json_raw(w, "null");
        return;
    }
    place_of(x->a, x->worst, place);
    json_open(w, "{");
    json_key(w, "index");
    json_shape(w, x->a->n_dims, place);
    json_key(w, "a");
    json_double(w, x->worst_a);
    json_key(w, "b");
    json_double(w, x->worst_b);
    json_close(w, "}");
}

static void json_tensors(json *w, const options *o, const ckr_diff *d, const char *key, int where,
                         bool within)
{
    uint64_t i;
    json_list(w, key);
    for (i = 0; i < d->n_tensors; i++) {
        const ckr_tensor_diff *x = &d->tensors[i];
        if (x->where != where || is_within(o, x) != within) continue;
        json_open(w, "{");
        json_pair(w, "name", x->name);
        json_pair(w, "slot", x->slot);
        json_sides(w, x);
        if (where == 0) json_distance(w, x);
        json_close(w, "}");
    }
    json_close(w, "]");
}

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

static void json_components(json *w, const char *key, uint32_t bits)
{
    static const char *const names[] = { "params", "optimizer", "groups", "schedule", "rng",
                                         "progress", "data" };
    size_t i;
    json_list(w, key);
    for (i = 0; i < COUNT_OF(names); i++)
        if (bits >> i & 1) json_string(w, names[i]);
    json_close(w, "]");
}

static void diff_json(job *j, const answer *r)
{
    static const char *const sections[] = { "groups", "schedules", "rng", "progress",
                                            "leftovers" };
    const ckr_diff *d = r->d;
    json w;
    size_t k;
    uint64_t i;
    json_begin(&w, &j->out);
    json_key(&w, "same");
    json_bool(&w, r->same);
    json_components(&w, "both", d->both);
    json_components(&w, "one", d->one);
    json_dict(&w, "tensors");
    json_tensors(&w, &j->o, d, "only_a", -1, false);
    json_tensors(&w, &j->o, d, "only_b", 1, false);
    json_tensors(&w, &j->o, d, "different", 0, false);
    if (j->o.tolerance) json_tensors(&w, &j->o, d, "within", 0, true);
    json_close(&w, "}");
    for (k = 0; k < COUNT_OF(sections); k++) {
        json_list(&w, sections[k]);
        for (i = 0; i < d->n_others; i++)
            if (!strcmp(diff_section(&d->others[i]), sections[k])) json_entry(&w, &d->others[i]);
        json_close(&w, "]");
    }
    json_end(&w);
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

static void slots_text(text *t, const slot_lines *s)
{
    static const char *const titles[] = { "slot", "in both", "different", "only A", "only B",
                                          "max abs", "max ulp" };
    uint64_t n;
    size_t i;
    table b;
    int k;
    if (!s->n) return;
    text_str(t, "\n");
    table_begin(&b, 7, 126, titles);
    for (i = 0; i < s->n; i++) {
        const slot_line *l = &s->line[i];
        table_text(&b, l->slot);
        for (k = 0, n = 0; k < 2; k++)     /* a master may stand beside a parameter          */
            if (l->n[k] > l->only[k] + n) n = l->n[k] - l->only[k];
        table_count(&b, n);
        table_count(&b, l->differ);
        table_count(&b, l->only[0]);
        table_count(&b, l->only[1]);
        text_fmt(&b.cell, l->any ? "%.3g" : "-", l->max_abs);
        table_cell(&b);
        if (l->digits) text_fmt(&b.cell, "over 2^%u", l->digits);
        else if (l->ulp) text_count(&b.cell, l->max_ulp);
        else text_str(&b.cell, "-");
        table_cell(&b);
    }
    table_end(&b, t);
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

static void worst_values(text *t, const ckr_tensor_diff *x)
{
    const bool values = !isnan(x->worst_a) || !isnan(x->worst_b);
    int64_t place[CKR_MAX_DIMS];
    uint32_t i;
    if (values && elements_of(x->a) == 1) {
        pair_text(t, x);
        return;
    }
    text_count(t, x->n_elements);
    text_str(t, " of ");
    text_count(t, elements_of(x->a));
    text_str(t, " differ");
    if (!(x->max_abs > 0) && !isnan(x->max_abs)) {
        text_str(t, ", zeros, in sign only");
        return;
    }
    if (x->n_signs) {
        text_str(t, ", ");
        text_count(t, x->n_signs);
        text_str(t, " in sign");
    }
    if (isnan(x->max_abs)) {
        text_str(t, ", some are NaN");
    } else {
        if (x->max_ulp != CKR_NO_ULP && !digits_over(x)) {
            text_str(t, ", ");
            text_count(t, x->max_ulp);
            text_str(t, " ulp");
        }
        text_fmt(t, ", max abs %.3g", x->max_abs);
    }
    if (!values) return;
    place_of(x->a, x->worst, place);
    for (i = 0; i < x->a->n_dims; i++)
        text_fmt(t, "%s%lld%s", i ? "," : " at [", (long long)place[i],
                 i + 1 < x->a->n_dims ? "" : "]");
    text_str(t, ": ");
    pair_text(t, x);
}

static void worst_text(text *t, const ckr_tensor_diff *x)
{
    const ckr_tensor *a = x->a ? x->a : x->b, *b = x->b ? x->b : x->a;
    if (strcmp(a->slot, x->slot) != 0) text_str(t, "A has the parameter only: ");
    if (strcmp(b->slot, x->slot) != 0) text_str(t, "B has the parameter only: ");
    if (x->where) text_str(t, x->where < 0 ? "only in A: " : "only in B: ");
    if (x->where || a->dtype != b->dtype) text_str(t, ckr_dtype_name(a->dtype));
    if (a->dtype != b->dtype) text_fmt(t, " -> %s", ckr_dtype_name(b->dtype));
    if (x->where || !same_shape(a, b)) {
        text_str(t, x->where ? ", " : a->dtype != b->dtype ? ", shape " : "shape ");
        text_shape(t, a->n_dims, a->shape);
    }
    if (!same_shape(a, b)) {
        text_str(t, " -> ");
        text_shape(t, b->n_dims, b->shape);
    }
    if (x->where) return;
    if (x->as == CKR_DTYPE_NONE)
        text_str(t, ": their values are not compared");
    else if (a->dtype != b->dtype)
        text_fmt(t, x->n_elements ? "; as %s " : ", equal as %s", ckr_dtype_name(x->as));
    if (x->as != CKR_DTYPE_NONE && x->n_elements) worst_values(t, x);
}

static void worsts_text(text *t, const options *o, slot_lines *s, const answer *r)
{
    const uint64_t limit = o->limit ? o->limit : o->verbose ? UINT64_MAX : LIMIT_USUAL;
    size_t n, i;
    worst *list = worst_list(o, s, r, &n);
    if (!list) t->failed = true;
    if (n) text_str(t, "\n");
    for (i = 0; i < n && i < limit; i++) {
        text line;
        memset(&line, 0, sizeof line);
        text_str(t, "  ");
        text_paint(t, PAINT_BOLD);
        text_clean(t, list[i].x->name);
        text_plain(t);
        text_str(t, "  ");
        text_clean(t, list[i].x->slot);
        text_str(t, "\n");
        worst_text(&line, list[i].x);
        text_pad(t, 6);
        text_wrapped(t, &line, 6, 6);
    }
    if (i < n) {
        text_str(t, "  and ");
        text_count(t, n - i);
        text_str(t, " more (--limit all lists them)\n");
    }
    free(list);
}

/* >>diff.text ----------------------------------------------------------------- */

/* "groups, schedules"; of the tensors nothing is said here. */
static void components_text(text *t, uint32_t bits, const char *before)
{
    static const char *const names[] = { "parameters", "optimizer state", "groups", "schedules",
                                         "random streams", "progress", "places in the data" };
    size_t i;
    for (i = 0; i < COUNT_OF(names); i++) {
        if (!(bits >> i & 1)) continue;
        text_str(t, before);
        text_str(t, names[i]);
        before = ", ";
    }
}

static void result_text(text *t, const options *o, const answer *r)
{
    const uint32_t tensors = CKR_PARAMS | CKR_OPTIMIZER;
    const char *verdict = r->same ? "the same:" : "different:";
    uint64_t i, n = ckr_ckpt_state(r->a)->n_tensors;
    text line;
    memset(&line, 0, sizeof line);
    label(t, "result");
    text_painted(t, r->same ? PAINT_GREEN : PAINT_YELLOW, verdict);
    text_str(&line, " ");
    if (r->same && r->d->both & tensors) {
        for (i = 0; i < r->d->n_tensors; i++)
            n -= !strcmp(r->d->tensors[i].a->slot, r->d->tensors[i].slot);
        text_plural(&line, n, "tensor", "tensors");
        text_str(&line, " bit for bit");
    }
    if (r->same) components_text(&line, r->d->both & ~tensors, r->d->both & tensors ? ", " : "");
    if (r->n_differ) text_plural(&line, r->n_differ, "tensor", "tensors");
    if (r->n_beside) {
        if (r->n_differ) text_str(&line, " and ");
        text_plural(&line, r->n_beside, "entry", "entries");
        text_str(&line, " beside the tensors");
    }
    text_wrapped(t, &line, 13, 13 + strlen(verdict));
    if (r->n_within) {
        label(t, "within");
        text_str(t, o->tolerance);
        text_str(t, ": ");
        text_plural(t, r->n_within, "tensor", "tensors");
        text_str(t, "\n");
    }
    if ((r->d->both | r->d->one) == 127) return;
    label(t, "neither");
    components_text(&line, ~(r->d->both | r->d->one), "has ");
    text_wrapped(t, &line, 13, 13);
}

/* As `label` has it; a path that is too long for the line stands below its name. */
static void side_text(text *t, const char *name, const ckr_ckpt *c)
{
    text line;
    memset(&line, 0, sizeof line);
    text_pad(&line, 10);
    text_clean(&line, ckr_ckpt_path(c));
    text_str(t, "  ");
    text_painted(t, PAINT_DIM, name);
    text_wrapped(t, &line, 2, 3);
}

static void diff_text(job *j, const answer *r)
{
    const report notes = report_of(r->d->others, r->d->n_others, NULL, 0);
    text *t = &j->out;
    slot_lines slots;
    if (j->o.quiet) return;
    side_text(t, "A", r->a);
    side_text(t, "B", r->b);
    result_text(t, &j->o, r);
    slots_sum(&slots, &j->o, r);
    if (r->d->n_tensors || j->o.stat) slots_text(t, &slots);
    worsts_text(t, &j->o, &slots, r);
    if (!j->o.stat) report_text(t, &notes, "beside the tensors");
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
    if (j->o.json) diff_json(j, &r);
    else diff_text(j, &r);
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
