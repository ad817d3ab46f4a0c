/* What a plan says that the coming run must be started with: a setting's value as text. */

static const ckr_run_setting *setting_find(const ckr_plan_facts *f, const char *key)
{
    uint64_t i;
    for (i = 0; f && i < f->n_settings; i++)
        if (!strcmp(f->settings[i].key, key)) return &f->settings[i];
    return NULL;
}

/* "" when it is not said. */
static const char *setting_value(const ckr_plan_facts *f, const char *key)
{
    static char text[64];
    const ckr_run_setting *x = setting_find(f, key);
    const ckr_node *v = x ? x->value : NULL;
    int i;
    text[0] = 0;
    if (!v) return text;
    if (v->kind == CKR_NODE_STR) snprintf(text, sizeof text, "%.60s", v->u.str);
    if (v->kind == CKR_NODE_INT) snprintf(text, sizeof text, "%lld", (long long)v->u.i);
    if (v->kind == CKR_NODE_BOOL) snprintf(text, sizeof text, "%s", v->u.b ? "true" : "false");
    if (v->kind == CKR_NODE_NONE) snprintf(text, sizeof text, "absent");
    for (i = 1; v->kind == CKR_NODE_FLOAT && i <= 17; i++) {
        snprintf(text, sizeof text, "%.*g", i, v->u.f);
        if (strtod(text, NULL) <= v->u.f && strtod(text, NULL) >= v->u.f) break;
    }
    return text;
}

/* Each has a place, a key, a value and the reason, and none is what it was. */
static void settings_told(const ckr_plan_facts *f)
{
    uint64_t i;
    for (i = 0; i < f->n_settings; i++) {
        const ckr_run_setting *x = &f->settings[i];
        CHECK(x->place && x->place[0] && x->key[0] && x->value && x->otherwise && x->otherwise[0]);
    }
}
