/* Parameter groups, old to new: every outcome of the table, the recorded scenarios, hostile input,
   permutations, failing allocations. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"

static ckr__ctx ctx;
static ckr_error err;
static ckr_group olds[64], news[64];
static struct {
    const ckr_group *olds, *news;
    uint64_t n_olds, n_news;
    ckr_mode mode;
} want;
static struct result {
    ckr_group *groups;
    uint64_t  *rep, n_groups, n_notes;         /* rep: the old group of the schedule's lane    */
    ckr_note  *notes;
} got;

static ckr_node *J(const char *json)
{
    ckr_node *n = NULL;
    if (json) CHECK_OK(ckr__json_parse(&ctx, "test", json, strlen(json), 0, &n), &err);
    return n;
}

/* "a b c" as three names; "" none; "#3" three without names. */
static void fill(ckr_group *g, const char *names, const char *json)
{
    char *s = (char *)ckr__arena(&ctx, strlen(names) + 1), *p;
    const char **list = CKR__NEW_N(&ctx, const char *, strlen(names) + 1);
    memset(g, 0, sizeof *g);
    g->hyper = J(json);
    if (names[0] == '#') {
        g->n_params = strtoull(names + 1, NULL, 10);
        return;
    }
    memcpy(s, names, strlen(names) + 1);
    g->params = list;
    for (p = strtok(s, " "); p; p = strtok(NULL, " ")) list[g->n_params++] = p;
}

static void old(const char *names, const char *json)
{
    fill(&olds[want.n_olds++], names, json);
}

static void new_(const char *names, const char *json)
{
    fill(&news[want.n_news++], names, json);
}

/* From the strictest on. */
static const ckr_mode modes[] = { CKR_MODE_RECOVER, CKR_MODE_CONTINUE, CKR_MODE_TRANSFER };

static void fresh(ckr_mode mode)
{
    memset(&want, 0, sizeof want);
    want.olds = olds;
    want.news = news;
    want.mode = mode;
}

static ckr_result ask(ckr__ctx *c)
{
    ckr_state s;
    ckr_target t;
    ckr_result r;
    memset(&s, 0, sizeof s);
    memset(&t, 0, sizeof t);
    memset(&got, 0, sizeof got);
    s.groups = (ckr_group *)(uintptr_t)want.olds;
    s.n_groups = want.n_olds;
    t.groups = want.news;
    t.n_groups = want.n_news;
    t.mode = want.mode;
    got.groups = CKR__NEW_N(c, ckr_group, t.n_groups);
    got.rep = CKR__NEW_N(c, uint64_t, t.n_groups);
    if (!got.groups || !got.rep) return c->err->code;
    c->notes = &got.notes;
    c->n_notes = &got.n_notes;
    r = ckr__groups_match(c, &s, &t, got.groups, got.rep);
    got.n_groups = r == CKR_OK ? t.n_groups : 0;
    return r;
}

static bool match(void)
{
    return CHECK_OK(ask(&ctx), &err);
}

static const ckr_note *note(const char *code)
{
    uint64_t i;
    for (i = 0; i < got.n_notes; i++)
        if (!strcmp(got.notes[i].code, code)) return &got.notes[i];
    return NULL;
}

#define SAYS(code, severity) check_says(code, severity, __LINE__)
static void check_says(const char *code, int severity, int line)
{
    const ckr_note *n = note(code);
    t_check(n && (int)n->severity == severity && n->subject && n->reason, __FILE__, line,
            "no note %s of severity %d; there are %llu, the first is %s", code, severity,
            (unsigned long long)got.n_notes, got.n_notes ? got.notes[0].code : "none");
}

#define SILENT() check_silent(__LINE__)
static void check_silent(int line)
{
    t_check(got.n_notes == 0, __FILE__, line, "%llu notes, the first is %s of %s: %s",
            (unsigned long long)got.n_notes, got.n_notes ? got.notes[0].code : "",
            got.n_notes ? got.notes[0].subject : "", got.n_notes ? got.notes[0].reason : "");
}

static int errors(void)
{
    uint64_t i;
    int n = 0;
    for (i = 0; i < got.n_notes; i++) n += got.notes[i].severity == CKR_ERROR;
    return n;
}

#define NUM(group, key, value) check_num(group, key, value, __LINE__)
static void check_num(uint64_t group, const char *key, double value, int line)
{
    double x = NAN;
    const bool ok = group < got.n_groups &&
                    ckr_node_f64(ckr_node_get(got.groups[group].hyper, key), &x);
    t_check(ok && fabs(x - value) <= 1e-15 * fabs(value), __FILE__, line,
            "group %llu: %s is %.17g, expected %.17g", (unsigned long long)group, key, x, value);
}

#define ADAM(lr, wd)                                                                              \
    "{\"lr\": " lr ", \"initial_lr\": 0.0003, \"betas\": [0.9, 0.95], \"eps\": 1e-8, "           \
    "\"weight_decay\": " wd ", \"amsgrad\": false, \"foreach\": null, \"fused\": true}"

/* >>equal, split, merged, renamed, reordered, added, removed */

static void equal(void)
{
    int mode;
    for (mode = 0; mode < 2; mode++) {
        fresh(modes[mode]);
        old("a b", ADAM("1e-4", "0.1"));
        old("c", ADAM("1e-4", "0.0"));
        new_("a b", ADAM("3e-4", "0.1"));
        new_("c", NULL);
        if (!match()) continue;
        SILENT();
        CHECK_INT(got.rep[0], 0);
        CHECK_INT(got.rep[1], 1);
        NUM(0, "lr", 1e-4);
        NUM(0, "weight_decay", 0.1);
        NUM(1, "weight_decay", 0);
        CHECK(ckr_node_get(got.groups[0].hyper, "foreach") != NULL);
        CHECK_INT(got.groups[0].hyper->count, 8);
    }
}

static void reordered_split_merged(void)
{
    fresh(CKR_MODE_RECOVER);
    old("a b", ADAM("1e-4", "0.1"));
    old("c d", ADAM("1e-4", "0.1"));
    old("e", ADAM("1e-4", "0.0"));
    new_("e", NULL);
    new_("d a", NULL);
    new_("c", NULL);
    new_("b", NULL);
    if (!match()) return;
    SILENT();
    CHECK_INT(got.rep[0], 2);
    CHECK_INT(got.rep[1], 1);
    CHECK_INT(got.rep[2], 1);
    CHECK_INT(got.rep[3], 0);
    NUM(0, "weight_decay", 0);
    NUM(1, "weight_decay", 0.1);
}

static void renamed(void)
{
    fresh(CKR_MODE_RECOVER);
    old("module.a.w module._orig_mod.b.w", ADAM("1e-4", "0.1"));
    old("l._fsdp_wrapped_module.c l._checkpoint_wrapped_module.d module.", ADAM("1e-4", "0.0"));
    new_("l.c _orig_mod.l.d module.", NULL);
    new_("b.w a.w", NULL);
    if (!match()) return;
    SILENT();
    CHECK_INT(got.rep[0], 1);
    CHECK_INT(got.rep[1], 0);
    fresh(CKR_MODE_RECOVER);           /* both spellings exist on both sides: taken as they are */
    old("module.a", ADAM("1e-4", "0.1"));
    old("a", ADAM("1e-4", "0.0"));
    new_("a", NULL);
    new_("module.a", NULL);
    if (!match()) return;
    SILENT();
    CHECK_INT(got.rep[0], 1);
    CHECK_INT(got.rep[1], 0);
    fresh(CKR_MODE_CONTINUE);
    old("module.a a", ADAM("1e-4", "0.1"));
    new_("a _orig_mod.b", NULL);
    if (!match()) return;
    SAYS("CKR_E_DUP_NAME", CKR_ERROR);
    fresh(CKR_MODE_CONTINUE);
    old("a", ADAM("1e-4", "0.1"));
    new_("a module.a", NULL);
    if (!match()) return;
    SAYS("CKR_E_DUP_NAME", CKR_ERROR);
}

static void added_removed(void)
{
    static const ckr_severity sev[] = { CKR_ERROR, CKR_CHANGED };
    int mode;
    for (mode = 0; mode < 2; mode++) {
        fresh(modes[mode]);
        old("a", ADAM("1e-4", "0.1"));
        old("b z", ADAM("1e-4", "0.1"));
        new_("a c", ADAM("3e-4", "0.1"));
        new_("d", ADAM("3e-4", "0.2"));
        if (!match()) continue;
        SAYS(mode ? "CKR_W_PARAM_NEW" : "CKR_E_PARAM_NEW", sev[mode]);
        SAYS(mode ? "CKR_W_GROUP_NEW" : "CKR_E_GROUP_NEW", sev[mode]);
        SAYS(mode ? "CKR_W_PARAM_LOST" : "CKR_E_PARAM_LOST", mode ? CKR_LOST : CKR_ERROR);
        CHECK_INT(got.n_notes, 3);
        CHECK_STR(note(mode ? "CKR_W_PARAM_NEW" : "CKR_E_PARAM_NEW")->subject, "c and 1 more");
        CHECK_STR(note(mode ? "CKR_W_PARAM_LOST" : "CKR_E_PARAM_LOST")->subject, "b and 1 more");
        CHECK(got.rep[0] == 0 && got.rep[1] == CKR__GROUPS_NONE);
        NUM(1, "weight_decay", 0.2);
        NUM(1, "initial_lr", 3e-4);
    }
    fresh(CKR_MODE_CONTINUE);          /* nobody knows what a new group's fields are */
    old("a", ADAM("1e-4", "0.1"));
    new_("a", NULL);
    new_("n", NULL);
    if (!match()) return;
    SAYS("CKR_E_GROUP_NEW", CKR_ERROR);
}

static void transfer(void)
{
    fresh(CKR_MODE_TRANSFER);
    old("a b", "{\"lr\": 0.1, \"odd\": 1, \"weight_decay\": 0.1}");
    new_("b", "{\"lr\": 0.5}");
    new_("n", "{\"lr\": 0.7}");
    new_("", NULL);
    if (!match()) return;
    SILENT();
    NUM(0, "lr", 0.5);
    NUM(1, "lr", 0.7);
    CHECK_INT(got.groups[0].hyper->count, 1);
    CHECK_INT(got.groups[2].hyper->count, 0);
    CHECK(got.rep[0] == CKR__GROUPS_NONE);
}

/* >>matching without names */

static void nameless(void)
{
    int mode;
    for (mode = 0; mode < 3; mode++) {
        fresh(modes[mode]);
        old("#2", ADAM("1e-4", "0.1"));
        old("#1", ADAM("1e-4", "0.0"));
        new_("#2", NULL);
        new_("#1", NULL);
        if (!match()) continue;
        if (mode == CKR_MODE_TRANSFER) SILENT();
        else SAYS("CKR_E_PARAM_UNMATCHED", CKR_ERROR);
    }
    fresh(CKR_MODE_RECOVER);           /* names on one side alone */
    old("a b", ADAM("1e-4", "0.1"));
    new_("#2", NULL);
    if (match()) SAYS("CKR_E_PARAM_UNMATCHED", CKR_ERROR);
}

/* >>scenarios of scheduler_kat.json */

/* Nanotron's: 5 updates of warmup, cosine to 3e-5 at update 100. */
static double cosine(double init, double t)
{
    return 3e-5 + (init - 3e-5) * (1 + cos(3.141592653589793 * (t - 5) / 95)) / 2;
}

#define CLOSE(x, y) CHECK(fabs((x) - (y)) <= 1e-6 * fabs(y))

static double init_of(uint64_t group)
{
    double v = NAN;
    ckr_node_f64(ckr_node_get(got.groups[group].hyper, "initial_lr"), &v);
    return v;
}

static void s01_pipeline_resize(void)
{
    char name[8];
    uint64_t i;
    int named;
    for (named = 0; named < 2; named++) {
        fresh(CKR_MODE_RECOVER);
        for (i = 0; i < 33; i++) {
            snprintf(name, sizeof name, "p%d", (int)i);
            old(named ? name : "", ADAM("0.00017614821163876486", "0.1"));
            new_(named ? name : "#1", NULL);
        }
        if (!named) new_("#1", NULL);
        if (!match()) continue;
        SILENT();
        CHECK_INT(got.rep[7], named ? 7 : 0);
        CLOSE(cosine(init_of(7), 50), 0.00017614821163876486);
        CLOSE(cosine(init_of(32), 51), 0.00017169380688088497);
        CLOSE(cosine(init_of(0), 100), 3e-05);
    }
}

/* The base is initial_lr, never the current lr; missing, it comes from where it is known. */
static void s02_base_not_lr(void)
{
    const char *g = "{\"lr\": 0.00017614821163876486, \"weight_decay\": 0.1}";
    fresh(CKR_MODE_RECOVER);           /* a new group beside scheduled ones needs it too */
    old("a", ADAM("1e-4", "0.1"));
    new_("a", NULL);
    new_("n", "{\"lr\": 0.5}");
    want.mode = CKR_MODE_CONTINUE;
    if (!match()) return;
    NUM(1, "initial_lr", 0.5);
    SAYS("CKR_FIX_INITIAL_LR", CKR_CHANGED);
    fresh(CKR_MODE_RECOVER);           /* no base anywhere: nothing to make up */
    old("a", g);
    new_("a", NULL);
    if (!match()) return;
    SILENT();
    CHECK(!ckr_node_get(got.groups[0].hyper, "initial_lr"));
}

static void s03_mup(void)
{
    static const double lr50[] = { 0.00017614821163876486, 0.00033853511345961475,
                                   0.00017614821163876486, 9.495476072833994e-05 };
    uint64_t i;
    fresh(CKR_MODE_RECOVER);
    old("a", "{\"lr\": 1e-4, \"initial_lr\": 0.0003}");
    old("b", "{\"lr\": 2e-4, \"initial_lr\": 0.0006}");
    old("c", "{\"lr\": 1e-4, \"initial_lr\": 0.0003}");
    old("d", "{\"lr\": 5e-5, \"initial_lr\": 0.00015}");
    new_("d", NULL);
    new_("c", NULL);
    new_("b", NULL);
    new_("a", NULL);
    if (!match()) return;
    SILENT();
    for (i = 0; i < 4; i++) CLOSE(cosine(init_of(3 - i), 50), lr50[i]);
    fresh(CKR_MODE_RECOVER);           /* S04: the same without names, 4 -> 3 */
    old("", "{\"lr\": 1e-4, \"initial_lr\": 0.0003}");
    old("", "{\"lr\": 2e-4, \"initial_lr\": 0.0006}");
    old("", "{\"lr\": 1e-4, \"initial_lr\": 0.0003}");
    old("", "{\"lr\": 5e-5, \"initial_lr\": 0.00015}");
    for (i = 0; i < 3; i++) new_("#1", NULL);
    if (!match()) return;
    CHECK_INT(errors(), 1);
    SAYS("CKR_E_GROUP_AMBIGUOUS", CKR_ERROR);
    CHECK_STR(note("CKR_E_GROUP_AMBIGUOUS")->subject, "groups[0].initial_lr and 2 more");
    CHECK_STR(note("CKR_E_GROUP_AMBIGUOUS")->old_value,
              "0.00015 (0 elements), 0.0003 (0 elements), 0.0006 (0 elements)");
}

static void s07_changed_fields(void)
{
    int mode;
    for (mode = 0; mode < 2; mode++) {
        fresh(modes[mode]);
        old("a", "{\"lr\": 0.0625, \"initial_lr\": 0.1, \"weight_decay\": 0.1}");
        new_("a", "{\"lr\": 0.05, \"weight_decay\": 0.01}");
        if (!match()) continue;
        CHECK_INT(errors(), mode ? 0 : 2);
        CHECK_INT(got.n_notes, 2);
        if (!mode) continue;
        SAYS("CKR_W_FIELD_WEIGHT_DECAY", CKR_CHANGED);
        SAYS("CKR_W_FIELD_INITIAL_LR", CKR_CHANGED);
        CHECK_STR(note("CKR_W_FIELD_WEIGHT_DECAY")->old_value, "0.1");
        CHECK_STR(note("CKR_W_FIELD_WEIGHT_DECAY")->new_value, "0.01");
        CHECK_STR(note("CKR_W_FIELD_WEIGHT_DECAY")->subject, "groups[0].weight_decay");
        NUM(0, "weight_decay", 0.01);
        NUM(0, "initial_lr", 0.05);
        NUM(0, "lr", 0.03125);
    }
}

static void s11_same_identity(void)
{
    fresh(CKR_MODE_RECOVER);
    old("emb", "{\"wd_mult\": 1.0, \"max_lr\": 0.0006}");
    old("hid", "{\"wd_mult\": 1.0, \"max_lr\": 0.0003}");
    new_("hid", "{\"wd_mult\": 1.0}");
    new_("emb", "{\"wd_mult\": 1.0}");
    if (!match()) return;
    SILENT();
    NUM(0, "max_lr", 3e-4);
    NUM(1, "max_lr", 6e-4);
    olds[0].n_params = olds[1].n_params = 0;
    if (!match()) return;
    SAYS("CKR_E_GROUP_AMBIGUOUS", CKR_ERROR);
}

/* S23: names are those of the checkpoint; the order of the live ones stays. */
static void s23_lying_names(void)
{
    fresh(CKR_MODE_RECOVER);
    old("weight bias", "{\"lr\": 0.1, \"param_names\": [\"weight\", \"bias\"]}");
    new_("bias weight", "{\"lr\": 0.1, \"param_names\": [\"bias\", \"weight\"]}");
    if (!match()) return;
    SILENT();
    CHECK_STR(got.groups[0].params[0], "bias");
    CHECK(!ckr_node_get(got.groups[0].hyper, "param_names"));
}

static void s24_split(void)
{
    int mode;
    for (mode = 0; mode < 2; mode++) {
        fresh(modes[mode]);
        old("w1 w2 b1 b2", "{\"lr\": 0.001, \"weight_decay\": 0.1}");
        new_("w1 w2", "{\"lr\": 0.001, \"weight_decay\": 0.1}");
        new_("b1 b2", "{\"lr\": 0.001, \"weight_decay\": 0.0}");
        if (!match()) continue;
        CHECK_INT(got.n_notes, 1);
        CHECK_STR(got.notes[0].subject, "groups[1].weight_decay");
        CHECK_STR(got.notes[0].old_value, "0.1");
        CHECK_STR(got.notes[0].new_value, "0.0");
        if (mode) SAYS("CKR_W_FIELD_WEIGHT_DECAY", CKR_CHANGED);
        else SAYS("CKR_E_FIELD", CKR_ERROR);
        NUM(0, "weight_decay", 0.1);
        NUM(1, "weight_decay", mode ? 0.0 : 0.1);
    }
}

static void s25_merge(void)
{
    int asked;
    for (asked = 0; asked < 2; asked++) {
        fresh(CKR_MODE_CONTINUE);
        old("a", "{\"lr\": 5e-5, \"initial_lr\": 0.0001}");
        old("b c d", "{\"lr\": 1e-4, \"initial_lr\": 0.0002}");
        new_("a b c d", asked ? "{\"initial_lr\": 0.00015}" : NULL);
        if (!match()) continue;
        CHECK_INT(got.n_notes, 1);
        if (asked) SAYS("CKR_W_MERGED", CKR_CHANGED);
        else SAYS("CKR_E_MERGE_CONFLICT", CKR_ERROR);
        CHECK_STR(got.notes[0].subject, "groups[0].initial_lr");
        CHECK_STR(got.notes[0].old_value, "0.0001 (1 elements), 0.0002 (3 elements)");
        NUM(0, "initial_lr", asked ? 1.5e-4 : 1e-4);
        NUM(0, "lr", asked ? 7.5e-5 : 5e-5);
        CHECK_INT(got.rep[0], asked);
        want.mode = CKR_MODE_RECOVER;  /* there no wish makes it good */
        if (match()) SAYS("CKR_E_MERGE_CONFLICT", CKR_ERROR);
    }
    fresh(CKR_MODE_CONTINUE);
    old("a", "{\"betas\": [0.9, 0.95]}");
    old("b", "{\"betas\": [0.9, 0.99]}");
    new_("a b", NULL);
    if (match()) SAYS("CKR_E_MERGE_CONFLICT", CKR_ERROR);
}

static void s35_empty_group(void)
{
    int mode;
    for (mode = 0; mode < 3; mode++) {
        fresh(modes[mode]);
        old("a", "{\"lr\": 0.1, \"weight_decay\": 0.1, \"tag\": 1}");
        old("b", "{\"lr\": 0.2, \"weight_decay\": 0.0, \"tag\": 2}");
        new_("a b", "{\"weight_decay\": 0.1}");
        new_("", "{\"weight_decay\": 0.0}");
        new_("", NULL);
        new_("", "{\"weight_decay\": 0.7, \"lr\": 0.3}");
        want.n_news = 4;
        news[0] = news[1];             /* only empty ones */
        if (!match()) continue;
        SILENT();
        if (mode == 2) continue;
        CHECK_INT(got.rep[0], 1);
        NUM(0, "weight_decay", 0);
        NUM(0, "lr", 0.2);
        NUM(0, "tag", 2);
        CHECK(ckr_node_get(got.groups[2].hyper, "lr") != NULL);
        NUM(3, "weight_decay", 0.7);
        CHECK_INT(got.groups[0].n_params, 0);
    }
    fresh(CKR_MODE_RECOVER);           /* nothing old at all */
    new_("", "{\"lr\": 0.3}");
    if (!match()) return;
    SILENT();
    NUM(0, "lr", 0.3);
}

/* What was decided once for several groups is still each one's own. */
static void own_dicts(void)
{
    int named;
    for (named = 0; named < 2; named++) {
        fresh(CKR_MODE_CONTINUE);
        old(named ? "a b" : "", "{\"lr\": 0.1, \"betas\": [0.9, 0.95]}");
        new_(named ? "a" : "", NULL);
        new_(named ? "b" : "", NULL);
        if (!match()) continue;
        CHECK(got.groups[0].hyper != got.groups[1].hyper);
        CHECK(ckr__node_equal(got.groups[0].hyper, got.groups[1].hyper));
        CHECK_INT(got.groups[1].hyper->count, 2);
    }
}

/* A key that comes twice: the first counts, and the next dict is looked at by itself. */
static void key_twice(void)
{
    fresh(CKR_MODE_CONTINUE);
    old("a", "{\"rho\": 1, \"alpha\": 2}");
    old("b", "{\"eps\": 1, \"alpha\": 2}");
    olds[0].hyper->u.items[0] = olds[0].hyper->u.items[2];
    new_("a", NULL);
    new_("b", NULL);
    if (!match()) return;
    NUM(0, "alpha", 1);
    NUM(1, "alpha", 2);
    CHECK_INT(got.groups[0].hyper->count, 1);
    CHECK_INT(got.groups[1].hyper->count, 2);
}

static void s37_unfrozen(void)
{
    int mode;
    for (mode = 0; mode < 2; mode++) {
        fresh(modes[mode]);
        old("a b", ADAM("1e-4", "0.1"));
        new_("a b c", NULL);
        if (!match()) continue;
        CHECK_INT(got.n_notes, 1);
        if (mode) SAYS("CKR_W_PARAM_NEW", CKR_CHANGED);
        else SAYS("CKR_E_PARAM_NEW", CKR_ERROR);
        CHECK_STR(got.notes[0].subject, "c");
    }
}

static void s44_changed_lr_matches(void)
{
    fresh(CKR_MODE_CONTINUE);
    old("", "{\"max_lr\": 0.0003, \"min_lr\": 3e-05, \"wd_mult\": 1.0}");
    old("", "{\"max_lr\": 0.0003, \"min_lr\": 3e-05, \"wd_mult\": 0.0}");
    new_("#2", "{\"max_lr\": 3e-05, \"min_lr\": 2e-05, \"wd_mult\": 0.0}");
    if (!match()) return;
    CHECK_INT(errors(), 0);
    CHECK_INT(got.rep[0], 1);
    NUM(0, "max_lr", 3e-5);
    NUM(0, "min_lr", 2e-5);
    SAYS("CKR_W_FIELD_MAX_LR", CKR_CHANGED);
    SAYS("CKR_W_FIELD_MIN_LR", CKR_CHANGED);
}

static void s45_duplicate_identifiers(void)
{
    fresh(CKR_MODE_RECOVER);
    old("a", "{\"custom\": \"first\", \"wd_mult\": 1.0}");
    old("b", "{\"custom\": \"second\", \"wd_mult\": 1.0}");
    new_("a", "{\"wd_mult\": 1.0}");
    new_("b", "{\"wd_mult\": 1.0}");
    if (!match()) return;
    CHECK_STR(ckr_node_str(ckr_node_get(got.groups[0].hyper, "custom")), "first");
    CHECK_STR(ckr_node_str(ckr_node_get(got.groups[1].hyper, "custom")), "second");
    CHECK_INT(got.n_notes, 1);
    SAYS("CKR_N_GROUP_KEY", CKR_EXACT);
    CHECK_STR(got.notes[0].subject, "groups[0].custom and 1 more");
    olds[0].n_params = olds[1].n_params = 0;
    if (!match()) return;
    SAYS("CKR_E_GROUP_AMBIGUOUS", CKR_ERROR);
    CHECK_STR(note("CKR_E_GROUP_AMBIGUOUS")->subject, "groups[0].custom and 1 more");
    CHECK_INT(got.n_notes, 1);
}

/* >>fields */

static void tolerance(void)
{
    static const struct { const char *a, *b; bool equal; } row[] = {
        { "0.1", "0.10000000001", true }, { "0.1", "0.1000000002", false },
        { "0.1", "0.10000000149011612", false }, { "1000000001", "1000000000", false },
        { "1", "1.0", true }, { "0", "false", true }, { "null", "null", true },
        { "[0.9, 0.95]", "[0.9, 0.9500000000001]", true }, { "[0.9, 0.95]", "[0.9, 0.96]", false },
        { "[0.9]", "[0.9, 0.96]", false }, { "\"x\"", "\"y\"", false }, { "\"x\"", "\"x\"", true },
        { "{\"k\": [1, 2]}", "{\"k\": [1, 2]}", true },
        { "{\"k\": [1, 2]}", "{\"k\": [1, 3]}", false }, { "0.0", "0.0", true },
        { "0.0", "-0.0", true }, { "0.0", "1e-300", false }, { "1e308", "-1e308", false }
    };
    char a[80], b[80];
    size_t i;
    for (i = 0; i < sizeof row / sizeof *row; i++) {
        fresh(CKR_MODE_RECOVER);
        snprintf(a, sizeof a, "{\"eps\": %s}", row[i].a);
        snprintf(b, sizeof b, "{\"eps\": %s}", row[i].b);
        old("p", a);
        new_("p", b);
        if (!match()) continue;
        t_check((got.n_notes == 0) == row[i].equal, __FILE__, __LINE__, "%s against %s: %llu notes",
                row[i].a, row[i].b, (unsigned long long)got.n_notes);
        fresh(CKR_MODE_CONTINUE);      /* the same rule for two old groups */
        old("p", a);
        old("q", b);
        new_("p q", NULL);
        if (!match()) continue;
        t_check((got.n_notes == 0) == row[i].equal, __FILE__, __LINE__, "%s with %s: %llu notes",
                row[i].a, row[i].b, (unsigned long long)got.n_notes);
    }
}

/* Infinities and NaN equal themselves and nothing else; values come in their order. */
static void odd_numbers(void)
{
    const double v[] = { -INFINITY, -1, 0, 1e-320, 1, DBL_MAX, INFINITY, NAN };
    ckr_node a;
    int i, k;
    memset(&a, 0, sizeof a);
    a.kind = CKR_NODE_FLOAT;
    for (i = 0; i < 8; i++)
        for (k = 0; k < 8; k++) {
            double first;
            ckr_node x = a, y = a;
            x.u.f = v[i];
            y.u.f = v[k];
            fresh(CKR_MODE_CONTINUE);
            old("p", "{\"eps\": 1}");
            old("q", "{\"eps\": 1}");
            olds[0].hyper->u.items[1] = &x;
            olds[1].hyper->u.items[1] = &y;
            new_("p q", NULL);
            if (!match()) continue;
            CHECK_INT(errors(), i != k);
            CHECK(ckr_node_f64(ckr_node_get(got.groups[0].hyper, "eps"), &first));
            CHECK(first == v[i < k ? i : k] || i + k == 14);
        }
}

/* A numpy float32 of an old file: compared as float32 without being told. */
static void numpy_scalars(void)
{
    static const uint8_t le[4] = { 0xcd, 0xcc, 0xcc, 0x3d }, be[4] = { 0x3d, 0xcc, 0xcc, 0xcd };
    ckr_view v[2];
    ckr_node n[2];
    int i;
    memset(v, 0, sizeof v);
    memset(n, 0, sizeof n);
    for (i = 0; i < 2; i++) {
        v[i].dtype = CKR_DTYPE_F32;
        v[i].bytes = i ? be : le;
        v[i].big_endian = i;
        v[i].data_bytes = 4;
        n[i].kind = CKR_NODE_NPSCALAR;
        n[i].u.view = &v[i];
        fresh(CKR_MODE_RECOVER);
        old("p", "{\"eps\": 1}");
        olds[0].hyper->u.items[1] = &n[i];
        new_("p", "{\"eps\": 0.1}");
        if (!match()) continue;
        SILENT();
    }
    fresh(CKR_MODE_RECOVER);
    v[0].data_bytes = 3;               /* cut short: not a number any more */
    old("p", "{\"eps\": 1}");
    olds[0].hyper->u.items[1] = &n[0];
    new_("p", "{\"eps\": 0.1}");
    if (match()) SAYS("CKR_E_FIELD", CKR_ERROR);
}

/* Tensors as fields: torch keeps lr in one when capturable; their bytes are not read. */
static void tensors_as_fields(void)
{
    static const double value[3] = { 0.1, 0.1, 0.3 };
    static const int64_t count = 5;
    ckr_view v[3];
    ckr_node n[3];
    int i;
    memset(v, 0, sizeof v);
    memset(n, 0, sizeof n);
    for (i = 0; i < 3; i++) {
        v[i].dtype = CKR_DTYPE_F64;
        v[i].data_bytes = 8;
        v[i].data_offset = (uint64_t)(i / 2);
        n[i].kind = CKR_NODE_TENSOR;
        n[i].id = (uint32_t)i + 1;
        n[i].u.view = &v[i];
    }
    for (i = 1; i < 3; i++) {          /* one tensor in two groups, then two tensors */
        fresh(CKR_MODE_RECOVER);
        old("p", "{\"eps\": 1}");
        old("q", "{\"eps\": 1}");
        olds[0].hyper->u.items[1] = &n[0];
        olds[1].hyper->u.items[1] = &n[i];
        new_("p q", NULL);
        if (!match()) continue;
        CHECK_INT(errors(), i == 2);
        if (i == 2)
            CHECK_STR(got.notes[0].old_value, "a tensor (1 elements), a tensor (1 elements)");
    }
    for (i = 0; i < 3; i++) {          /* arrays inside the pickle are compared */
        v[i].data_offset = 0;
        v[i].bytes = (const uint8_t *)&value[i];
        n[i].kind = CKR_NODE_NDARRAY;
    }
    for (i = 1; i < 3; i++) {
        olds[1].hyper->u.items[1] = &n[i];
        if (match()) CHECK_INT(errors(), i == 2);
    }
    v[0].bytes = NULL;
    if (match()) CHECK_INT(errors(), 1);
    v[1].bytes = (const uint8_t *)&count;
    v[1].dtype = CKR_DTYPE_I64;
    n[1].kind = CKR_NODE_NPSCALAR;
    fresh(CKR_MODE_RECOVER);
    old("p", "{\"step\": 1, \"rho\": 2}");
    olds[0].hyper->u.items[3] = &n[1];
    new_("p", "{\"rho\": 5}");
    if (match() && ckr__host_big_endian() == false) SILENT();
}

/* Names of groups, values of every kind, keys of integers: the texts of notes. */
static void texts(void)
{
    static const char *const row[][2] = {
        { "[null, true, 1, 0.5, \"x\", {\"k\": [1]}, 7, 8, 9]",
          "[None, True, 1, 0.5, \"x\", {\"k\": an object}, 7, 8, ...]" },
        { "\"01234567890123456789012345678901234567890123456789012345678901234\"",
          "\"012345678901234567890123456789012345678901234567890123456789\"..." },
        { "{}", "{}" }, { "1e-07", "1e-07" }, { "null", NULL }
    };
    char json[160];
    size_t i;
    for (i = 0; i < 5; i++) {
        fresh(CKR_MODE_CONTINUE);
        snprintf(json, sizeof json, "{\"eps\": %s}", row[i][0]);
        old("p", json);
        new_("p", "{\"eps\": 1}");
        news[0].name = "decay";
        if (!match()) continue;
        CHECK_STR(got.notes[0].subject, "decay.eps");
        CHECK_STR(got.notes[0].old_value, row[i][1]);
        CHECK_STR(got.notes[0].new_value, "1");
    }
    fresh(CKR_MODE_CONTINUE);
    for (i = 0; i < 3; i++) {
        old(i == 0 ? "a" : i == 1 ? "b" : "c", "{\"x\": 1}");
        olds[i].hyper->u.items[0] = ckr__make_int(&ctx, i < 2 ? 3 : 4);
    }
    new_("a b c", NULL);
    if (!match()) return;
    CHECK_INT(got.n_notes, 1);
    SAYS("CKR_W_GROUP_KEY", CKR_LOST);
    fresh(CKR_MODE_CONTINUE);          /* no infinity where the saved base is next to nothing */
    old("a", "{\"lr\": 0.5, \"initial_lr\": 1e-310}");
    new_("a", "{\"lr\": 0.1}");
    if (!match()) return;
    NUM(0, "lr", 0.5);
}

static void implementation_flags(void)
{
    fresh(CKR_MODE_RECOVER);
    old("a", "{\"foreach\": null, \"fused\": true, \"capturable\": false, \"lr\": 0.1}");
    old("b", "{\"foreach\": true, \"fused\": false, \"capturable\": true, \"lr\": 0.1}");
    new_("a b", "{\"foreach\": false, \"differentiable\": true, \"fused\": true}");
    if (!match()) return;
    SILENT();
    CHECK(!ckr_node_get(got.groups[0].hyper, "foreach")->u.b);
    CHECK(ckr_node_get(got.groups[0].hyper, "fused")->u.b);
    CHECK(ckr_node_get(got.groups[0].hyper, "differentiable")->u.b);
    CHECK(ckr_node_get(got.groups[0].hyper, "capturable") != NULL);
}

static void algorithm_fields(void)
{
    static const char *const key[] = { "betas", "eps", "momentum", "dampening", "nesterov",
                                       "maximize", "min_lr" };
    static const char *const code[] = { "CKR_W_BETAS", "CKR_W_BETAS", "CKR_W_BETAS", "CKR_W_BETAS",
                                        "CKR_W_FIELD", "CKR_W_FIELD", "CKR_W_FIELD_MIN_LR" };
    char a[80], b[80];
    size_t i;
    int mode;
    for (mode = 0; mode < 2; mode++)
        for (i = 0; i < 7; i++) {
            snprintf(a, sizeof a, "{\"%s\": %s}", key[i], i ? "0" : "[0.9, 0.95]");
            snprintf(b, sizeof b, "{\"%s\": %s}", key[i], i ? "1" : "[0.9, 0.99]");
            fresh(modes[mode]);
            old("a", a);
            new_("a", b);
            if (!match()) continue;
            CHECK_INT(got.n_notes, 1);
            if (mode) SAYS(code[i], CKR_CHANGED);
            else SAYS("CKR_E_FIELD", CKR_ERROR);
            if (i) NUM(0, key[i], mode);
            else CHECK_STR(got.notes[0].new_value, "[0.9, 0.99]");
        }
}

static void amsgrad(void)
{
    fresh(CKR_MODE_CONTINUE);
    old("a", "{\"amsgrad\": true}");
    old("b", "{\"amsgrad\": false}");
    old("c", "{\"eps\": 1}");
    new_("a", "{\"amsgrad\": false}");
    new_("b", "{\"amsgrad\": true}");
    new_("c", "{\"amsgrad\": true}");
    if (!match()) return;
    SAYS("CKR_W_AMSGRAD_OFF", CKR_CHANGED);
    SAYS("CKR_W_AMSGRAD_ON", CKR_APPROX);
    want.mode = CKR_MODE_RECOVER;
    if (!match()) return;
    SAYS("CKR_E_FIELD", CKR_ERROR);
    CHECK_INT(errors(), 3);
}

static void schedules_own_fields(void)
{
    fresh(CKR_MODE_RECOVER);           /* OneCycleLR moves betas[0]; lr is no constructor's */
    old("a", "{\"lr\": 0.02, \"initial_lr\": 0.004, \"max_lr\": 0.1, \"max_momentum\": 0.95, "
             "\"base_momentum\": 0.85, \"betas\": [0.91, 0.99]}");
    new_("a", "{\"lr\": 0.1, \"betas\": [0.95, 0.99]}");
    if (!match()) return;
    SILENT();
    NUM(0, "initial_lr", 0.004);
    CHECK(ckr_node_at(ckr_node_get(got.groups[0].hyper, "betas"), 0)->u.f == 0.91);
    fresh(CKR_MODE_CONTINUE);          /* the configuration's betas[1] with the schedule's [0] */
    old("a", "{\"base_momentum\": 0.85, \"betas\": [0.91, 0.99], \"momentum\": 0.9}");
    new_("a", "{\"betas\": [0.95, 0.999], \"momentum\": 0.3}");
    if (!match()) return;
    CHECK_INT(got.n_notes, 1);
    CHECK_STR(note("CKR_W_BETAS")->new_value, "[0.91, 0.999]");
    NUM(0, "momentum", 0.9);
    fresh(CKR_MODE_RECOVER);           /* the clock of a group is never asked for */
    old("a", "{\"step\": 7}");
    new_("a", "{\"step\": 0}");
    if (!match()) return;
    SILENT();
    NUM(0, "step", 7);
}

static void unknown_fields(void)
{
    fresh(CKR_MODE_RECOVER);
    old("a", "{\"lr\": 0.1, \"custom\": {\"x\": [1]}}");
    new_("a", "{\"lr\": 0.1, \"wd_mult\": 1.0, \"fused\": true}");
    if (!match()) return;
    CHECK_INT(got.n_notes, 2);
    SAYS("CKR_N_GROUP_KEY", CKR_EXACT);
    SAYS("CKR_N_NOT_IN_CKPT", CKR_EXACT);
    CHECK(ckr_node_get(got.groups[0].hyper, "custom")->kind == CKR_NODE_DICT);
    NUM(0, "wd_mult", 1);
    fresh(CKR_MODE_CONTINUE);          /* asked for: like any other field */
    old("a", "{\"custom\": 1}");
    new_("a", "{\"custom\": 2}");
    if (!match()) return;
    SAYS("CKR_W_FIELD", CKR_CHANGED);
    NUM(0, "custom", 2);
}

/* Without a schedule lr is a field like any other. */
static void constant_lr(void)
{
    fresh(CKR_MODE_RECOVER);
    old("a", "{\"lr\": 0.1}");
    new_("a", "{\"lr\": 0.2}");
    if (!match()) return;
    SAYS("CKR_E_FIELD", CKR_ERROR);
    want.mode = CKR_MODE_CONTINUE;
    if (!match()) return;
    SAYS("CKR_W_FIELD_LR", CKR_CHANGED);
    NUM(0, "lr", 0.2);
    fresh(CKR_MODE_CONTINUE);
    old("a", "{\"lr\": 0.1}");
    old("b", "{\"lr\": 0.2}");
    new_("a b", NULL);
    if (match()) SAYS("CKR_E_MERGE_CONFLICT", CKR_ERROR);
    fresh(CKR_MODE_RECOVER);           /* scheduled, equal bases: lr is open, not a conflict */
    old("a", "{\"lr\": 0.1, \"initial_lr\": 1.0}");
    old("b", "{\"lr\": 0.2, \"initial_lr\": 1.0}");
    new_("a b", NULL);
    if (!match()) return;
    SILENT();
    NUM(0, "lr", 0.1);
}

/* A field that one old group has and the other lacks is a disagreement, too. */
static void absent_field(void)
{
    fresh(CKR_MODE_CONTINUE);
    old("a", "{\"wd_mult\": 0.0}");
    old("b", "{\"eps\": 1, \"wd_mult\": null}");
    old("c", "{\"initial_lr\": 0.5}");
    new_("a b", NULL);
    if (!match()) return;
    SAYS("CKR_E_MERGE_CONFLICT", CKR_ERROR);
    CHECK_STR(note("CKR_E_MERGE_CONFLICT")->old_value, "absent (1 elements), 0.0 (1 elements)");
    fresh(CKR_MODE_RECOVER);           /* initial_lr follows from others */
    old("a", "{\"initial_lr\": 0.5}");
    old("b", "{}");
    new_("a b", NULL);
    if (!match()) return;
    SILENT();
    NUM(0, "initial_lr", 0.5);
}

/* >>copies of groups, shapes */

static void copies(void)
{
    fresh(CKR_MODE_RECOVER);
    old("a b", ADAM("1e-4", "0.1"));
    old("a b", ADAM("1e-4", "0.1"));
    old("a", "{\"weight_decay\": 0.1, \"initial_lr\": 0.0003, \"lr\": 0.0001, \"eps\": 1e-08, "
             "\"betas\": [0.9, 0.95], \"amsgrad\": false, \"fused\": false}");
    new_("a b", NULL);
    if (!match()) return;
    SILENT();                          /* fused is no one's business, order neither */
    olds[1].hyper = J(ADAM("2e-4", "0.1"));
    olds[0].name = "rank 0 group 0";
    if (!match()) return;
    SAYS("CKR_E_GROUP_COPIES", CKR_ERROR);
    CHECK_STR(got.notes[0].subject, "a and 1 more");
    CHECK_STR(got.notes[0].old_value, "rank 0 group 0: 0.0001");
    CHECK_STR(got.notes[0].new_value, "old group 1: 0.0002");
}

/* What is decided together: the same fields with other bases, an empty group beside a full one. */
static void kept_apart(void)
{
    int mode;
    fresh(CKR_MODE_RECOVER);
    old("a", "{\"lr\": 0.5, \"initial_lr\": 1e-3}");
    old("b", "{\"lr\": 0.5, \"initial_lr\": 1e-4}");
    old("c", "{\"lr\": 0.5, \"initial_lr\": 1e-3}");
    old("d", "{\"lr\": 0.5, \"initial_lr\": 1e-4}");
    new_("a", NULL);
    new_("b", NULL);
    new_("c d", NULL);
    if (!match()) return;
    NUM(0, "initial_lr", 1e-3);
    NUM(1, "initial_lr", 1e-4);
    SAYS("CKR_E_MERGE_CONFLICT", CKR_ERROR);
    fresh(CKR_MODE_RECOVER);
    old("", "{\"eps\": 1}");
    old("", "{\"eps\": 2}");
    new_("#0", NULL);
    new_("#3", NULL);
    new_("#0", NULL);
    if (!match()) return;
    CHECK_INT(got.n_notes, 1);
    CHECK_STR(got.notes[0].subject, "groups[1].eps");
    for (mode = 0; mode < 2; mode++) { /* an empty group's wish against the one old group */
        fresh(modes[mode]);
        old("a", "{\"eps\": 1}");
        new_("", "{\"eps\": 2}");
        if (!match()) continue;
        SILENT();
        NUM(0, "eps", mode ? 2 : 1);
    }
    fresh(CKR_MODE_CONTINUE);          /* lr comes from the group whose base was chosen */
    old("a b", "{\"lr\": 5e-5, \"initial_lr\": 1e-4}");
    old("c", "{\"lr\": 9e-5, \"initial_lr\": 2e-4}");
    new_("a b c", "{\"initial_lr\": 2e-4}");
    if (!match()) return;
    NUM(0, "lr", 9e-5);
    CHECK_INT(got.rep[0], 1);
    fresh(CKR_MODE_CONTINUE);          /* a lost parameter of two files is lost once */
    old("a z", "{}");
    old("a z", "{}");
    new_("a", NULL);
    if (!match()) return;
    CHECK_STR(note("CKR_W_PARAM_LOST")->subject, "z");
}

/* >>hostile input */

static void hostile(void)
{
    ckr_node *loop, *k;
    const char *names[3] = { "a", NULL, "" };
    uint64_t i;
    fresh(CKR_MODE_RECOVER);           /* nothing at all */
    want.olds = want.news = NULL;
    if (match()) CHECK(got.n_groups == 0 && got.n_notes == 0);
    fresh(CKR_MODE_RECOVER);           /* names that are not there */
    old("a", ADAM("1e-4", "0.1"));
    olds[0].params = names;
    olds[0].n_params = 3;
    new_("a", NULL);
    if (match()) SAYS("CKR_E_PARAM_UNMATCHED", CKR_ERROR);
    fresh(CKR_MODE_RECOVER);           /* fields that are no dict, keys that are no strings */
    old("a", "[1]");
    old("b", "{\"lr\": 1}");
    new_("a", "3");
    new_("b", NULL);
    olds[1].hyper->u.items[0] = ckr__make_int(&ctx, 3);
    if (match()) {
        SAYS("CKR_E_GROUP_FIELDS", CKR_ERROR);
        SAYS("CKR_W_GROUP_KEY", CKR_LOST);
        CHECK_STR(note("CKR_E_GROUP_FIELDS")->subject, "old groups[0] and 1 more");
        CHECK_INT(got.groups[0].hyper->count, 0);
    }
    fresh(CKR_MODE_CONTINUE);          /* one key twice: the first counts, as everywhere */
    old("a", "{\"lr\": 1}");
    k = ckr__make_str(&ctx, "lr");
    CHECK(ckr__node_pair(&ctx, olds[0].hyper, k, ckr__make_int(&ctx, 2)));
    new_("a", NULL);
    if (match()) {
        SILENT();
        CHECK_INT(got.groups[0].hyper->count, 1);
        NUM(0, "lr", 1);
    }
    fresh(CKR_MODE_CONTINUE);          /* trees that contain themselves, 30 wide */
    for (i = 0; i < 6; i++) {
        uint64_t n;
        old(i % 2 ? "a" : "b", "{\"tree\": [], \"betas\": []}");
        loop = ckr__make(&ctx, CKR_NODE_LIST);
        for (n = 0; n < 30; n++) CHECK(ckr__node_push(&ctx, loop, loop));
        olds[i].hyper->u.items[1] = olds[i].hyper->u.items[3] = loop;
    }
    new_("a b", "{\"betas\": []}");
    news[0].hyper->u.items[1] = olds[0].hyper->u.items[1];
    if (match()) CHECK(errors() > 0);
}

static void many_notes(void)
{
    enum { N = 100 };
    static ckr_group a[N], b[N];
    static const char *name[N];
    static char text[N][8];
    char json[64];
    int i;
    fresh(CKR_MODE_CONTINUE);
    want.olds = a;
    want.news = b;
    want.n_olds = want.n_news = N;
    for (i = 0; i < N; i++) {
        snprintf(text[i], sizeof text[i], "p%d", i);
        name[i] = text[i];
        memset(&a[i], 0, sizeof a[i]);
        snprintf(json, sizeof json, "{\"eps\": %d, \"u%d\": 1}", i, i);
        a[i].hyper = J(json);
        a[i].params = &name[i];
        a[i].n_params = 1;
        b[i] = a[i];
        b[i].hyper = J("{\"eps\": -1}");
    }
    if (!match()) return;
    CHECK_INT(got.n_notes, 36);        /* 4 of a field, 32 of a code, then the last counts */
    CHECK_STR(note("CKR_W_BETAS")->subject, "groups[0].eps");
    CHECK_STR(got.notes[35].subject, "groups[31].u31 and 68 more");
    CHECK_STR(got.notes[0].old_value, "0");
}

/* >>properties */

enum { MAX = 40 };
static ckr_group rand_old[MAX], rand_new[MAX];
static char rand_text[MAX * 4][16];
static const char *rand_old_name[MAX * 4], *rand_new_name[MAX * 4];

/* Random groups over the same parameters; some disagree, some wish for something else. */
static void random_world(t_rng *r)
{
    static const char *const hyper[] = {
        "{\"lr\": 0.1, \"initial_lr\": 0.5, \"weight_decay\": 0.1}",
        "{\"lr\": 0.2, \"initial_lr\": 1.0, \"weight_decay\": 0.1}",
        "{\"weight_decay\": 0.0, \"lr\": 0.2, \"initial_lr\": 1.0, \"tag\": \"x\"}"
    };
    static const char *const wish[] = { NULL, "{\"weight_decay\": 0.1}",
                                        "{\"lr\": 1.0, \"weight_decay\": 0.0}" };
    const uint64_t n = (uint64_t)t_range(r, 1, MAX * 4 - 1);
    const int kinds = (int)t_range(r, 1, 3);
    uint64_t i, at;
    fresh(t_range(r, 0, 1) ? CKR_MODE_CONTINUE : CKR_MODE_RECOVER);
    for (i = 0; i < n; i++) {
        snprintf(rand_text[i], sizeof rand_text[i], "p%d", (int)i);
        rand_old_name[i] = rand_text[i];
    }
    for (i = 0; i < n; i++) {
        const uint64_t k = (uint64_t)t_range(r, 0, (int64_t)i);
        rand_new_name[i] = rand_new_name[k];
        rand_new_name[k] = rand_old_name[i];
    }
    for (at = 0; want.n_olds < MAX && at < n; want.n_olds++) {
        ckr_group *g = &rand_old[want.n_olds];
        memset(g, 0, sizeof *g);
        g->params = rand_old_name + at;
        g->n_params = (uint64_t)t_range(r, 0, (int64_t)(n - at));
        if (want.n_olds == MAX - 1) g->n_params = n - at;
        at += g->n_params;
        g->hyper = J(hyper[t_range(r, 0, kinds - 1)]);
    }
    for (at = 0; want.n_news < MAX && at < n; want.n_news++) {
        ckr_group *g = &rand_new[want.n_news];
        memset(g, 0, sizeof *g);
        g->params = rand_new_name + at;
        g->n_params = (uint64_t)t_range(r, 0, (int64_t)(n - at));
        if (t_range(r, 0, 3)) g->n_params = g->n_params > 3 ? 3 : g->n_params;
        at += g->n_params;
        g->hyper = J(wish[t_range(r, 0, 2)]);
    }
    want.olds = rand_old;
    want.news = rand_new;
}

static const char *hyper_text(const ckr_node *n)
{
    ckr__buf b;
    const char *s;
    memset(&b, 0, sizeof b);
    b.c = &ctx;
    CHECK(ckr__json_put(&b, n, 0, true) == CKR_OK);
    s = ckr__strndup(&ctx, (const char *)b.data, b.size);
    ckr__buf_free(&b);
    return s;
}

static int same_notes(const struct result *a, const struct result *b)
{
    uint64_t i, k, n = 0;
    for (i = 0; i < a->n_notes; i++)
        for (k = 0; k < b->n_notes; k++) {
            const ckr_note *x = &a->notes[i], *y = &b->notes[k];
            const char *p = x->old_value ? x->old_value : "", *q = y->old_value ? y->old_value : "";
            if (!strcmp(x->code, y->code) && x->severity == y->severity && !strcmp(p, q)) {
                n++;
                break;
            }
        }
    return a->n_notes == b->n_notes && n == a->n_notes;
}

static const ckr_group *group_of(const char *name)
{
    uint64_t g, k;
    for (g = 0; g < want.n_olds; g++)
        for (k = 0; k < want.olds[g].n_params; k++)
            if (!strcmp(want.olds[g].params[k], name)) return &want.olds[g];
    return NULL;
}

/* weight_decay of one new group by the book: each parameter weighs one element. */
static void by_the_book(const ckr_group *n, const ckr_group *out, int *errors_due)
{
    double v[2] = { 0.0, 0.1 }, wish = NAN, x, expected;
    uint64_t count[2] = { 0, 0 }, k;
    const bool asked = ckr_node_f64(ckr_node_get(n->hyper, "weight_decay"), &wish);
    bool error = false;
    if (!n->n_params) return;
    for (k = 0; k < n->n_params; k++) {
        x = NAN;
        ckr_node_f64(ckr_node_get(group_of(n->params[k])->hyper, "weight_decay"), &x);
        count[x > 0.05]++;
        CHECK(x == v[x > 0.05]);
    }
    if (count[0] && count[1]) {
        expected = v[0];
        error = want.mode == CKR_MODE_RECOVER || !asked;
        if (!error) expected = wish;
    } else {
        expected = v[count[1] > 0];
        error = want.mode == CKR_MODE_RECOVER && asked && wish != expected;
        if (asked && want.mode == CKR_MODE_CONTINUE) expected = wish;
    }
    x = NAN;
    CHECK(ckr_node_f64(ckr_node_get(out->hyper, "weight_decay"), &x) && (error || x == expected));
    *errors_due += error;
}

/* Groups that the notes of a field and a code stand for. */
static uint64_t said(const char *field, bool error)
{
    uint64_t i, n = 0;
    for (i = 0; i < got.n_notes; i++) {
        const char *more, *s = got.notes[i].subject;
        if ((got.notes[i].severity == CKR_ERROR) != error || !strstr(s, field)) continue;
        more = strstr(s, " and ");
        n += 1 + (more ? strtoull(more + 5, NULL, 10) : 0);
    }
    return n;
}

static void book(void)
{
    t_rng r = { 11 };
    int round;
    for (round = 0; round < 2000; round++) {
        int due = 0;
        uint64_t g;
        ckr__ctx_free(&ctx);
        CHECK(ckr__ctx_init(&ctx, NULL, NULL, &err) == CKR_OK);
        random_world(&r);
        if (!match()) continue;
        for (g = 0; g < want.n_news; g++) by_the_book(&want.news[g], &got.groups[g], &due);
        CHECK_INT(said("weight_decay", true), due);
    }
}

static void order_of_groups(void)
{
    t_rng r = { 7 };
    int round;
    for (round = 0; round < 400; round++) {
        static ckr_group mixed[MAX];
        uint64_t place[MAX], i, k, g, j;
        struct result first;
        ckr__ctx_free(&ctx);
        CHECK(ckr__ctx_init(&ctx, NULL, NULL, &err) == CKR_OK);
        random_world(&r);
        if (!match()) continue;
        first = got;
        for (i = 0; i < want.n_olds; i++) {            /* old groups in another order */
            k = (uint64_t)t_range(&r, 0, (int64_t)i);
            place[i] = place[k];
            place[k] = i;
        }
        for (i = 0; i < want.n_olds; i++) mixed[i] = rand_old[place[i]];
        want.olds = mixed;
        if (!match()) continue;
        CHECK(same_notes(&first, &got));
        for (g = 0; g < want.n_news; g++) {
            CHECK_STR(hyper_text(got.groups[g].hyper), hyper_text(first.groups[g].hyper));
            if (got.groups[g].n_params) CHECK_INT(place[got.rep[g]], first.rep[g]);
        }
        want.olds = rand_old;                          /* new groups in another order */
        for (i = 0; i < want.n_news; i++) {
            k = (uint64_t)t_range(&r, 0, (int64_t)i);
            place[i] = place[k];
            place[k] = i;
        }
        for (i = 0; i < want.n_news; i++) mixed[i] = rand_new[place[i]];
        want.news = mixed;
        if (!match()) continue;
        CHECK_INT(got.n_notes, first.n_notes);
        for (j = 0; j < want.n_news; j++)
            CHECK_STR(hyper_text(got.groups[j].hyper), hyper_text(first.groups[place[j]].hyper));
    }
}

/* Each allocation fails once: the error is NOMEM, what was allocated for the call is freed. */
static struct { unsigned long n, at; long blocks; } heap;

static void *heap_alloc(void *user, size_t size, size_t align)
{
    void *p;
    (void)user;
    (void)align;
    if (++heap.n == heap.at) return NULL;
    p = malloc(size);
    if (p) heap.blocks++;
    return p;
}

static void heap_free(void *user, void *p, size_t size, size_t align)
{
    (void)user;
    (void)size;
    (void)align;
    if (p) heap.blocks--;
    free(p);
}

/* Every group another dict, merged in twos: enough for many chunks of the arena. */
static void large_world(void)
{
    enum { N = 4000 };
    static ckr_group a[N], b[N / 2];
    static const char *name[N];
    static char text[N][8];
    char json[96];
    int i;
    fresh(CKR_MODE_CONTINUE);
    want.olds = a;
    want.news = b;
    want.n_olds = N;
    want.n_news = N / 2;
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    for (i = 0; i < N; i++) {
        snprintf(text[i], sizeof text[i], "p%d", i);
        name[i] = text[i];
        snprintf(json, sizeof json, "{\"lr\": %d, \"initial_lr\": 7, \"u\": [%d, 2], \"eps\": 0}",
                 i, i / 2);
        a[i].hyper = J(json);
        a[i].params = &name[i];
        a[i].n_params = 1;
        b[i / 2].params = &name[i & ~1];
        b[i / 2].n_params = 2;
    }
}

static unsigned long fail_each(unsigned long *at_end)
{
    ckr__ctx c;
    ckr_env env;
    ckr_error e;
    ckr_result r;
    unsigned long at, passed = 0;
    memset(&env, 0, sizeof env);
    env.alloc.alloc_fn = heap_alloc;
    env.alloc.free_fn = heap_free;
    for (at = 1; !passed && at < 3000; at++) {
        CHECK(ckr__ctx_init(&c, &env, NULL, &e) == CKR_OK);
        heap.n = 0;
        heap.at = at;
        heap.blocks = 0;
        r = ask(&c);
        if (r == CKR_OK && heap.n < at) passed = at;
        else CHECK(r == CKR_E_NOMEM && e.item == CKR_ITEM_NOMEM && got.n_groups == 0);
        ckr__ctx_free(&c);
        CHECK_INT(heap.blocks, 0);
    }
    *at_end = at;
    return passed;
}

static void failing_allocations(void)
{
    t_rng r = { 3 };
    unsigned long at, total = 0;
    int round;
    for (round = 0; round < 60; round++) {
        random_world(&r);
        CHECK(fail_each(&at) > 0);
        total += at;
    }
    CHECK(total > 300);
    large_world();
    CHECK(fail_each(&at) > 25);
}

/* The arena asks the heap seldom: here every arena call is a heap call. */
static void failing_arena(void)
{
    t_rng r = { 5 };
    uint64_t limit;
    int round;
    for (round = 0; round < 6; round++) {
        ckr__ctx c;
        ckr_limits limits;
        ckr_error e;
        ckr_result res = CKR_E_LIMIT;
        random_world(&r);
        memset(&limits, 0, sizeof limits);
        for (limit = 1; res != CKR_OK && limit < (1 << 22); limit += limit / 8 + 64) {
            limits.max_arena_bytes = limit;
            CHECK(ckr__ctx_init(&c, NULL, &limits, &e) == CKR_OK);
            res = ask(&c);
            CHECK(res == CKR_OK || res == CKR_E_LIMIT);
            ckr__ctx_free(&c);
        }
        CHECK(res == CKR_OK);
    }
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    if (ckr__ctx_init(&ctx, NULL, NULL, &err) != CKR_OK) return 1;
    RUN(equal);
    RUN(reordered_split_merged);
    RUN(renamed);
    RUN(added_removed);
    RUN(transfer);
    RUN(nameless);
    RUN(s01_pipeline_resize);
    RUN(s02_base_not_lr);
    RUN(s03_mup);
    RUN(s07_changed_fields);
    RUN(s11_same_identity);
    RUN(s23_lying_names);
    RUN(s24_split);
    RUN(s25_merge);
    RUN(s35_empty_group);
    RUN(own_dicts);
    RUN(key_twice);
    RUN(s37_unfrozen);
    RUN(s44_changed_lr_matches);
    RUN(s45_duplicate_identifiers);
    RUN(tolerance);
    RUN(odd_numbers);
    RUN(numpy_scalars);
    RUN(tensors_as_fields);
    RUN(texts);
    RUN(implementation_flags);
    RUN(algorithm_fields);
    RUN(amsgrad);
    RUN(schedules_own_fields);
    RUN(unknown_fields);
    RUN(constant_lr);
    RUN(absent_field);
    RUN(copies);
    RUN(kept_apart);
    RUN(hostile);
    RUN(many_notes);
    RUN(book);
    RUN(order_of_groups);
    RUN_LONG(failing_allocations);
    RUN(failing_arena);
    ckr__ctx_free(&ctx);
    return t_end();
}
