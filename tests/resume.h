/* resume.h: what the tests of resumes share: checkpoints in memory, what is asked for as text, and
   a plan that is carried out and read again. */
#ifndef CKR_RESUME_H
#define CKR_RESUME_H

#include "memio.h"
#include "option.h"
#include "tree.h"

#define NANOTRON "tests/data/nanotron/"
#define UPDATES 20

static memio mem;
static faulty fault;
static ckr_error err;

static ckr_env env_now(void)
{
    return faulty_env(&fault, memio_io(&mem));
}

static void load(void)
{
    const char *dir = getenv("CKR_RESUME_DATA");
    memio_load(&mem, NANOTRON "tp1_pp2_dp1_tied/ckpt", "/w/pp2");
    memio_load(&mem, NANOTRON "tp2_pp1_dp1/ckpt", "/w/tp2");
    memio_load(&mem, NANOTRON "tp2_pp1_dp2_zero1_bf16_master/ckpt", "/w/zero");
    memio_load(&mem, dir && *dir ? dir : "tests/data/resume", "/w/torch");
}

static ckr_ckpt *open_as(const char *path, ckr_open_desc d)
{
    ckr_env env = env_now();
    ckr_ckpt *c = NULL;
    d.env = &env;
    CHECK_OK(ckr_ckpt_open(path, &d, &c, &err), &err);
    return c;
}

static ckr_ckpt *open_path(const char *path)
{
    const ckr_open_desc d = CKR_ZERO;
    return open_as(path, d);
}

/* One resume: what is asked for as text. Words: KEY=VALUE, GROUP.KEY=VALUE, KIND:... is the whole
   schedule, @POLICY, #N steps of rewarming, ^R the largest jump, pp=N and tp=N. */
typedef struct job {
    ckr_target     t;
    ckr_setting    sets[8];
    char           text[600];
    ckr_plan      *p;
    const ckr_plan_facts *f;
    ckr_result     r;
} job;

static void ask_word(job *j, char *w)
{
    static const char *const names[] = { "", "keep", "target", "splice", "stretch", "rewarm" };
    char *is = strchr(w, '='), *dot, *p;
    size_t i;
    if (*w == '@') {
        for (i = 1; i < 6; i++) if (!strcmp(w + 1, names[i])) j->t.lr_policy = (ckr_lr_policy)i;
    } else if (*w == '#') {
        j->t.rewarm_steps = strtoll(w + 1, NULL, 10);
    } else if (*w == '^') {
        j->t.max_lr_jump = strtod(w + 1, NULL);
    } else if (!strncmp(w, "pp=", 3) || !strncmp(w, "tp=", 3)) {
        if (*w == 'p') j->t.topology.pp = (uint32_t)atoi(w + 3);
        else j->t.topology.tp = (uint32_t)atoi(w + 3);
    } else if (strchr(w, ':') && (!is || strchr(w, ':') < is)) {
        j->t.schedule = w;
    } else {
        ckr_setting *s = &j->sets[j->t.n_sets++];
        *is = 0;
        for (dot = NULL, p = w; *p; p++) if (*p == '.') dot = p;
        if (dot) *dot = 0;
        s->group = dot ? w : NULL;
        s->key = dot ? dot + 1 : w;
        s->value = is + 1;
        j->t.sets = j->sets;
    }
}

static void ask(job *j, const char *text)
{
    char *w;
    memset(j, 0, sizeof *j);
    j->t.mode = CKR_MODE_CONTINUE;
    j->t.topology.zero = -1;
    snprintf(j->text, sizeof j->text, "%s", text);
    for (w = strtok(j->text, " "); w; w = strtok(NULL, " ")) ask_word(j, w);
}

/* Decides, or plans with files; a refusal that comes as an error has no facts. */
static bool decide(job *j, const ckr_ckpt *c, bool files)
{
    memset(&err, 0, sizeof err);
    j->r = files ? ckr_plan_create(c, &j->t, 0, &j->p, &err)
                 : ckr_plan_decide(c, &j->t, &j->p, &err);
    j->f = j->r == CKR_OK ? ckr_plan_info(j->p) : NULL;
    return j->f != NULL;
}

static bool refused(const job *j)
{
    return j->f ? j->f->verdict == CKR_VERDICT_REFUSED : j->r == CKR_E_REFUSED;
}

static const ckr_note *note(const job *j, const char *code)
{
    uint64_t i;
    for (i = 0; j->f && i < j->f->n_notes; i++)
        if (!strcmp(j->f->notes[i].code, code)) return &j->f->notes[i];
    return NULL;
}

#define HAS(j, code) \
    t_check(note((j), (code)) != NULL, __FILE__, __LINE__, "no %s in the report", (code))
#define HAS_NOT(j, code) \
    t_check(note((j), (code)) == NULL, __FILE__, __LINE__, "%s in the report", (code))

static bool shows(const char *text, double v)
{
    return text && fabs(strtod(text, NULL) - v) <= 1e-12 * fabs(v);
}

/* An entry with both values. */
static void has_both(const job *j, const char *code, double was, double now)
{
    const ckr_note *n = note(j, code);
    t_check(n && shows(n->old_value, was) && shows(n->new_value, now), __FILE__, __LINE__,
            "%s: %s -> %s, expected %.17g -> %.17g", code, n && n->old_value ? n->old_value : "-",
            n && n->new_value ? n->new_value : "-", was, now);
}

static void done(job *j)
{
    ckr_plan_free(j->p);
    j->p = NULL;
}

static double *values(const ckr_schedule *s, int64_t first, uint64_t n)
{
    const uint64_t lanes = s ? s->n_lanes : 0;
    double *v = (double *)malloc((size_t)(n * (lanes ? lanes : 1)) * sizeof *v);
    if (!v) exit(2);
    if (!CHECK(s != NULL) || !lanes) return v;
    CHECK_OK(ckr_schedule_values(s, CKR_COLUMN_LR, first, n, v, NULL, &err), &err);
    return v;
}

static double value(const ckr_schedule *s, int64_t update, uint64_t lane)
{
    double *v = values(s, update, 1), x = s && lane < s->n_lanes ? v[lane] : ckr__nan();
    free(v);
    return x;
}

static bool near_to(double a, double b, double rel)
{
    return fabs(a - b) <= rel * fabs(b);
}

#define NEAR(a, b, rel) \
    t_check(near_to((a), (b), (rel)), __FILE__, __LINE__, "%s is %.17g, not %.17g", #a, (a), (b))

/* The group of the reopened checkpoint that has the parameter of another's group i. */
static uint64_t group_of(const ckr_state *s, const ckr_group *g)
{
    uint64_t i;
    for (i = 0; i < s->n_groups; i++)
        if (s->groups[i].n_params && !strcmp(s->groups[i].params[0], g->params[0])) break;
    return i;
}

/* The next 20 updates of every group in what was written: those that the plan said. */
static void same_values(const job *j, const ckr_state *s, double rel)
{
    double *want = values(j->f->after, j->f->resume_at, UPDATES),
           *have = values(s->n_schedules ? s->schedules : NULL, j->f->resume_at, UPDATES);
    uint64_t i, k, n = j->f->after->n_lanes;
    CHECK_INT(s->progress.step + 1, j->f->resume_at);
    for (i = 0; i < n && i < j->f->n_groups; i++) {
        const uint64_t at = group_of(s, &j->f->groups[i]);
        double lr = 0;
        if (!CHECK(at < s->n_groups && s->schedules[0].n_lanes == s->n_groups)) break;
        for (k = 0; k < UPDATES; k++) {
            const double a = want[k * n + i], b = have[k * s->n_groups + at];
            if (!t_check(near_to(b, a, rel), __FILE__, __LINE__,
                         "%s: group %u update %lld: %.17g, planned %.17g",
                         j->f->groups[i].params[0], (unsigned)at,
                         (long long)(j->f->resume_at + (int64_t)k), b, a))
                break;
        }
        CHECK(ckr_node_f64(ckr_node_get(j->f->groups[i].hyper, "lr"), &lr));
        NEAR(lr, want[i], 1e-15);
    }
    free(want);
    free(have);
}

/* Plans, writes, opens again: the LRs are the planned ones, every tensor keeps its bits. */
static ckr_ckpt *carried_out(job *j, const ckr_ckpt *c, double rel)
{
    ckr_ckpt *out = NULL;
    ckr_diff *d = NULL;
    memset(&d, 0, sizeof d);
    memio_remove(&mem, "/w/out");
    if (!decide(j, c, true)) {
        t_check(false, __FILE__, __LINE__, "%s: %s", err.where, err.text);
        return NULL;
    }
    if (!t_check(!refused(j), __FILE__, __LINE__, "refused: %s",
                 j->f->n_notes ? j->f->notes[0].code : "")) return NULL;
    CHECK_OK(ckr_plan_write(j->p, "/w/out", NULL, &err), &err);
    out = open_path("/w/out");
    if (!out) return NULL;
    if (j->f->after && !j->f->after->opaque) same_values(j, ckr_ckpt_state(out), rel);
    CHECK_OK(ckr_ckpt_diff(c, out, &d, &err), &err);
    t_check(d->n_tensors == 0, __FILE__, __LINE__, "%llu tensors differ: %s",
            (unsigned long long)d->n_tensors, d->n_tensors ? d->tensors[0].name : "");
    ckr_diff_free(d);
    return out;
}

/* The coming run's own groups. */
typedef struct like { ckr_group g[4]; const char *names[4][4]; } like;

/* "0,1;2,3": groups of parameters. */
static void like_groups(like *l, job *j, const char *text)
{
    static char pool[32][24];
    char *p, copy[200];
    size_t k = 0;
    memset(l, 0, sizeof *l);
    snprintf(copy, sizeof copy, "%s", text);
    j->t.n_groups = 1;
    for (p = copy; *p && k < 32; p += *p != 0) {
        ckr_group *g = &l->g[j->t.n_groups - 1];
        const size_t n = strcspn(p, ",;");
        snprintf(pool[k], sizeof pool[k], "%.*s", (int)n, p);
        g->params = l->names[j->t.n_groups - 1];
        if (n) g->params[g->n_params++] = pool[k++];
        p += n;
        if (*p == ';') j->t.n_groups++;
    }
    j->t.groups = l->g;
}

/* A checkpoint without files: n groups of base LR 0.1 under this schedule, after `step` updates. */
static ckr_ckpt *made(const char *spec, uint64_t n, int64_t step)
{
    ckr_ckpt *c = NULL;
    double *bases;
    ckr_node *hyper;
    uint64_t i;
    CHECK_OK(ckr_ckpt_create(NULL, &c, &err), &err);
    if (!c) return NULL;
    bases = CKR__NEW_N(&c->ctx, double, n);
    hyper = ckr__make(&c->ctx, CKR_NODE_DICT);
    ckr__node_set(&c->ctx, hyper, "lr", ckr__make_float(&c->ctx, 0.1));
    ckr__node_set(&c->ctx, hyper, "weight_decay", ckr__make_float(&c->ctx, 0.1));
    c->state.groups = CKR__NEW_N(&c->ctx, ckr_group, n);
    c->state.n_groups = n;
    for (i = 0; i < n; i++) bases[i] = 0.1;
    for (i = 0; i < n; i++) c->state.groups[i].hyper = hyper;
    c->state.progress.step = step;
    CHECK_OK(ckr__sched_parse(&c->ctx, spec, bases, n, &c->state.schedules), &err);
    c->state.n_schedules = c->state.schedules != NULL;
    if (c->state.n_schedules)
        c->state.schedules->position = (int64_t)(c->state.schedules->rate * (double)step);
    ckr__clock_align(&c->state);
    return c;
}

#endif
