/* lr: the two curves of a resume. */

#include "tool.h"

static const char *const column_names[] = { "lr", "weight_decay", "momentum" };

/* The two curves over one range; NaN: not known. `after` begins at the resume. */
typedef struct curves {
    const ckr_plan_facts *facts;
    int64_t  first;
    uint64_t n, lanes, skip;   /* rows, groups, rows before the resume                */
    double  *before, *after;
} curves;

/* What the target's files have no place for. */
typedef struct lr_lost { bool schedule, groups; } lr_lost;

static uint64_t curve_groups(const ckr_plan_facts *f)
{
    return f->n_groups ? f->n_groups
                       : ckr_schedule_info(f->after ? f->after : f->before).n_lanes;
}

static int64_t curve_last(const job *j, const ckr_plan_facts *f)
{
    const ckr_schedule *s[2];
    int64_t last = -1, end;
    int i;
    s[0] = f->before;
    s[1] = f->after;
    for (i = 0; i < 4; i++) {              /* of the curves and of the runs               */
        end = i < 2 ? ckr_schedule_end(s[i]) : ckr_schedule_run_end(s[i - 2]);
        if (end > last) last = end;
    }
    if (j->o.to) return j->o.to;
    if (last < f->resume_at)
        last = f->resume_at < INT64_MAX / 2 ? 2 * (f->resume_at - 1) : INT64_MAX;
    return last > 0 ? last : 1;
}

/* What no schedule moves is the groups' own, and stays: the LR, too, where there is `none`. */
static void curve_constant(const job *j, const ckr_group *groups, uint64_t n_groups, bool none,
                           uint64_t n, uint64_t lanes, double *out)
{
    uint64_t i, k;
    for (k = 0; k < lanes && k < n_groups && (none || j->o.column != CKR_COLUMN_LR); k++) {
        const ckr_node *h = groups[k].hyper;
        const ckr_node *v = ckr_node_get(h, column_names[(unsigned)j->o.column % 3]);
        double value;
        if (!v && j->o.column == CKR_COLUMN_MOMENTUM) v = ckr_node_at(ckr_node_get(h, "betas"), 0);
        for (i = 0; i < n && ckr_node_f64(v, &value); i++)
            if (out[i * lanes + k] != out[i * lanes + k]) out[i * lanes + k] = value;
    }
}

/* A schedule whose groups are others than the plan's has no columns of its own here. */
static bool curve_fill(job *j, const ckr_schedule *s, int64_t first, uint64_t n, uint64_t lanes,
                       double *out)
{
    if (!s || ckr_schedule_info(s).n_lanes != lanes || !n) return true;
    return ckr_schedule_values(s, j->o.column, first, n, out, &j->env, &j->err) == CKR_OK;
}

static int curves_make(job *j, const ckr_state *saved, const ckr_plan_facts *f, lr_lost lost,
                       curves *c)
{
    const int64_t last = curve_last(j, f), first = j->o.from ? j->o.from : 1;
    uint64_t i, total;
    memset(c, 0, sizeof *c);
    c->facts = f;
    c->first = first;
    c->lanes = curve_groups(f);
    if (last < first) return usage(j, "--from", "found %lld, which is behind --to %lld",
                                   (long long)first, (long long)last);
    c->n = (uint64_t)(last - first) + 1;
    if (c->n > ((uint64_t)1 << 28) / (c->lanes ? c->lanes : 1))
        return usage(j, "--to", "%llu updates of %llu groups are more than 2^28 values",
                     (unsigned long long)c->n, (unsigned long long)c->lanes);
    total = c->n * c->lanes;
    c->before = (double *)malloc((size_t)(total ? total : 1) * sizeof *c->before);
    c->after = (double *)malloc((size_t)(total ? total : 1) * sizeof *c->after);
    if (!c->before || !c->after) return out_of_memory(j);
    for (i = 0; i < total; i++) c->before[i] = c->after[i] = (double)NAN;
    c->skip = f->resume_at > first ? (uint64_t)(f->resume_at - first) : 0;
    if (c->skip > c->n) c->skip = c->n;
    if (!curve_fill(j, f->before, first, c->n, c->lanes, c->before) ||
        !curve_fill(j, f->after, first + (int64_t)c->skip, c->n - c->skip, c->lanes,
                    c->after + c->skip * c->lanes))
        return fail(j);
    if (saved->n_groups == c->lanes)
        curve_constant(j, saved->groups, saved->n_groups, false, c->n, c->lanes, c->before);
    if (!lost.groups)
        curve_constant(j, f->groups, f->n_groups, lost.schedule, c->n - c->skip, c->lanes,
                       c->after + c->skip * c->lanes);
    return CODE_DONE;
}

static void lr_rows(show *w, const job *j, const curves *c, const char *key, const double *values,
                    uint64_t skip)
{
    uint64_t i, k;
    show_list(w, key);
    for (i = skip; i < c->n && show_room(w, i, 0); i++) {
        show_dict(w, NULL);
        show_int(w, "step", c->first + (int64_t)i);
        show_list(w, column_names[(unsigned)j->o.column % 3]);
        for (k = 0; k < c->lanes; k++) {
            const double v = values[i * c->lanes + k];
            if (v == v) show_double(w, "value", v, "%g");
            else show_null(w, "value");
        }
        show_close(w);
        show_close(w);
    }
    show_close(w);
}

/* For the eye the table of the series, above the report. */
static void lr_show(job *j, const curves *c, const lr_series *series, const report *notes)
{
    uint64_t i;
    show w;
    show_job(&w, j);
    if (w.t && !lr_table(w.t, series)) w.t->failed = true;
    show_list(&w, "groups");
    for (i = 0; i < c->lanes && show_room(&w, i, 0); i++) {
        show_dict(&w, NULL);
        show_uint(&w, "index", i);
        show_str(&w, "name", i < c->facts->n_groups ? c->facts->groups[i].name : NULL);
        show_close(&w);
    }
    show_close(&w);
    show_report(&w, notes, "report");
    show_str(&w, "unit", LR_UNIT);
    show_int(&w, "resume_at", c->facts->resume_at);
    lr_rows(&w, j, c, "before", c->before, 0);
    lr_rows(&w, j, c, "after", c->after, c->skip);
    show_end(&w);
}

/* A group's own name, or that of its only parameter. */
static const char *group_label(const ckr_group *g)
{
    return g->name ? g->name : g->n_params == 1 && g->params ? g->params[0] : NULL;
}

static int lr_svg_file(job *j, const lr_series *s)
{
    FILE *f = file_open(j->o.svg, "wb");
    text t;
    bool ok = f != NULL;
    memset(&t, 0, sizeof t);
    t.to = f;
    ok = ok && lr_svg(&t, s);
    text_drain(&t);
    const int why = errno;
    if (f && fclose(f) != 0) ok = false;
    ok = ok && !t.failed;
    text_free(&t);
    if (ok) return CODE_DONE;
    error_set(&j->err, CKR_E_IO, CKR_ITEM_IO_WRITE, NULL);
    snprintf(j->err.file, sizeof j->err.file, "%.250s", j->o.svg);
    snprintf(j->err.text, sizeof j->err.text, "cannot write: %s", strerror(why));
    return fail(j);
}

/* As it is asked for. */
static int lr_answer(job *j, const curves *c, const report *notes)
{
    lr_series s;
    const char **names = (const char **)calloc((size_t)c->lanes + 1, sizeof *names);
    uint64_t i;
    bool named = names != NULL;
    int code = CODE_DONE;
    if (!names) return out_of_memory(j);
    for (i = 0; i < c->lanes; i++) {
        if (i < c->facts->n_groups) names[i] = group_label(&c->facts->groups[i]);
        named = named && names[i];
    }
    memset(&s, 0, sizeof s);
    s.column = column_names[(unsigned)j->o.column % 3];
    s.n_groups = (size_t)c->lanes;
    s.group_names = named ? names : NULL;
    s.first = c->first;
    s.n_rows = (size_t)c->n;
    s.before = c->before;
    s.after = c->after;
    s.resume_at = c->facts->resume_at;
    if (j->o.svg) code = lr_svg_file(j, &s);
    if (code == CODE_DONE && !j->o.csv) lr_show(j, c, &s, notes);
    else if (code == CODE_DONE && !lr_csv(&j->out, &s)) j->out.failed = true;
    free((void *)names);
    return code;
}

/* Of a plan that writes: what its framework cannot follow, or only nearly. */
static bool lr_held(const ckr_note *n)
{
    return !strcmp(n->code, "CKR_E_SCHEDULE_HOLD") || !strcmp(n->code, "CKR_W_SCHEDULE_FIT") ||
           !strcmp(n->code, "CKR_W_SCHEDULE_UNKNOWN") ||
           (!strcmp(n->code, "CKR_W_TENSORS_ONLY") && n->subject &&
            !strcmp(n->subject, "schedule"));
}

/* Without a schedule in its files, the coming run starts with an LR that stays: says which. */
static lr_lost lr_lose(const ckr_plan_facts *f, const ckr_plan_facts *w, ckr_note *held, uint64_t n,
                       char *why, size_t cap)
{
    lr_lost lost = { false, false };
    double v, least = HUGE_VAL, most = 0;
    char lr[80] = "";
    uint64_t i;
    for (i = 0; w && i < w->n_notes; i++)
        if (!strcmp(w->notes[i].code, "CKR_W_TENSORS_ONLY") && w->notes[i].subject &&
            !strcmp(w->notes[i].subject, "groups"))
            lost.groups = true;
    for (i = 0; i < f->n_groups; i++) {
        if (!ckr_node_f64(ckr_node_get(f->groups[i].hyper, "lr"), &v)) continue;
        if (v < least) least = v;
        if (v > most) most = v;
    }
    if (least < most) snprintf(lr, sizeof lr, "%.6g to %.6g", least, most);
    else if (least == most) snprintf(lr, sizeof lr, "%.6g", most);
    for (i = 0; i < n; i++) {
        if (strcmp(held[i].code, "CKR_W_TENSORS_ONLY") != 0) continue;
        lost.schedule = true;
        snprintf(why, cap, lost.groups
                     ? "%s: the coming run starts with the LR that its script sets%s%s"
                     : "%s: the coming run starts with the LR of its groups%s%s, and keeps it "
                       "unless its script makes a scheduler", held[i].reason,
                 !*lr ? "" : lost.groups ? "; the saved run would go on with " : ", ", lr);
        held[i].reason = why;
    }
    return lost;
}

/* Is it about the LR, and not about the random streams, which a plan decides too? */
static bool lr_note(const ckr_note *n)
{
    return !strstr(n->code, "RNG_") && !strstr(n->code, "RANDOM");
}

static bool lr_said(const ckr_plan_facts *f, const char *code)
{
    uint64_t i;
    for (i = 0; i < f->n_notes; i++) if (!strcmp(f->notes[i].code, code)) return true;
    return false;
}

/* There is no value to tell. */
static int lr_nothing(job *j, const char *why, const char *remedy)
{
    error_set(&j->err, CKR_E_NOT_FOUND, CKR_ITEM_SCHEDULE_STATE, NULL);
    snprintf(j->err.file, sizeof j->err.file, "%.250s", j->args[0]);
    snprintf(j->err.text, sizeof j->err.text, "%s", why);
    snprintf(j->err.remedy, sizeof j->err.remedy, "%s", remedy);
    return fail(j);
}

/* `whole`: the plan of a conversion, whose framework follows what it can; NULL: there is none. What
   it allows is not refused to who only asks; what another framework cannot have is. */
static int lr_verb(job *j, const ckr_state *saved, const ckr_plan *plan, const ckr_plan *whole)
{
    const ckr_plan_facts *f = ckr_plan_info(plan), *w = whole ? ckr_plan_info(whole) : NULL;
    const bool to = j->o.target.dialect != NULL, can = w && w->verdict != CKR_VERDICT_REFUSED;
    ckr_plan_facts shown = *f;
    ckr_note held[4], *kept;
    uint64_t i, n = 0, n_kept = 0;
    report notes;
    curves c;
    lr_lost lost;
    char why[400];
    int code;
    if (!curve_groups(f))
        return lr_nothing(j, "neither an optimizer's groups nor a schedule are found in it",
                          "--optimizer FILE for a bare scheduler's file");
    for (i = 0; w && i < w->n_notes && n < sizeof held / sizeof *held; i++)
        if ((lr_held(&w->notes[i]) || (to && w->notes[i].severity == CKR_ERROR)) &&
            !lr_said(f, w->notes[i].code))
            held[n++] = w->notes[i];
    if (can) {
        shown.after = w->after;
        shown.verdict = w->verdict;
        if (f->verdict == CKR_VERDICT_REFUSED && shown.n_notes) shown.n_notes--;   /* the policy */
    }
    for (i = 0; i < n; i++) if (held[i].severity == CKR_ERROR) shown.verdict = CKR_VERDICT_REFUSED;
    lost = lr_lose(f, w, held, n, why, sizeof why);
    if (lost.schedule) shown.after = NULL;
    f = &shown;
    kept = (ckr_note *)malloc((size_t)f->n_notes * sizeof *kept + 1);
    if (!kept) return out_of_memory(j);
    for (i = 0; i < f->n_notes; i++)
        if (lr_note(&f->notes[i]) &&
            !(lost.schedule && !strcmp(f->notes[i].code, "CKR_W_LR_REBOUND")))
            kept[n_kept++] = f->notes[i];
    notes = report_of(kept, n_kept, held, n);
    code = curves_make(j, saved, f, lost, &c);
    if (code == CODE_DONE) code = lr_answer(j, &c, &notes);
    if (code == CODE_DONE && f->verdict == CKR_VERDICT_REFUSED) code = CODE_REFUSED;
    free(kept);
    free(c.before);
    free(c.after);
    return code;
}

int verb_lr(job *j)
{
    ckr_ckpt *c;
    ckr_plan *plan = NULL, *whole = NULL;
    like_file l;
    int code = open_checkpoint(j, j->args[0], &c);
    if (code != CODE_DONE) return code;
    code = like_open(j, &l);
    if (code == CODE_DONE) code = plan_ranks(j, ckr_ckpt_state(c));
    if (code == CODE_DONE && ckr_plan_decide(c, &j->o.target, &plan, &j->err) != CKR_OK)
        code = fail(j);
    /* what cannot be written for another reason has its decided curve still */
    if (code == CODE_DONE && ckr_plan_create(c, &j->o.target, 0, &whole, &j->err) != CKR_OK) {
        whole = NULL;
        if (j->o.target.dialect) code = fail(j);
    }
    if (code == CODE_DONE) code = lr_verb(j, ckr_ckpt_state(c), plan, whole);
    ckr_plan_free(whole);
    ckr_plan_free(plan);
    like_free(&l);
    ckr_ckpt_close(c);
    return code;
}
