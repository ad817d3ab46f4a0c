/* What the coming run must be started with, in the form that is pasted there: a
   command line, a Python call, ds_config's JSON, YAML. */

#include "tool.h"

static bool setting_slash(char ch)
{
#if defined(_WIN32)
    if (ch == '\\') return true;
#endif
    return ch == '/';
}

/* What OUT stands for: an absolute path, as frameworks join a relative one to a folder of their
   own. Where they are told a step, it is the folder of steps, which is above an OUT that is the
   step itself. NULL: there is no OUT, or (`failed`) no memory. */
static char *setting_dir(const ckr_plan_facts *f, const char *out, bool *failed)
{
    char here[4096], step[40];
    size_t n = out ? strlen(out) : 0, k, base;
    uint64_t i;
    char *path;
    *failed = false;
    if (!out) return NULL;
    if (is_absolute(out) || !working_directory(here, sizeof here)) here[0] = 0;
    while (!is_absolute(out) && out[0] == '.' && out[1] == '/') for (out++; *out == '/'; out++) {}
    k = strlen(here);
    path = (char *)malloc(k + n + 2);
    *failed = !path;
    if (!path) return NULL;
    snprintf(path, k + n + 2, "%s%s%s", here, k && here[k - 1] != '/' ? "/" : "", out);
    n = strlen(path);
    while (n > 1 && setting_slash(path[n - 1])) n--;
    for (base = n; base && !setting_slash(path[base - 1]); base--) {}
    for (i = 0; i < f->n_settings; i++) {
        const ckr_run_setting *x = &f->settings[i];
        if (strcmp(x->key, "checkpoint.load_step") != 0 || x->value->kind != CKR_NODE_INT) continue;
        snprintf(step, sizeof step, "step-%lld", (long long)x->value->u.i);
        if (n - base != strlen(step) || memcmp(path + base, step, n - base) != 0) continue;
        if (!base) path[0] = '.';
        n = base > 1 ? base - 1 : 1;
    }
    path[n] = 0;
    return path;
}

/* OUT, or a file in it */
static bool setting_in_out(const char *s)
{
    return !strncmp(s, "OUT", 3) && (!s[3] || s[3] == '/');
}

static bool is_scheduler(const ckr_node *n)
{
    const char *kind = ckr_node_str(ckr_node_get(n, "kind"));
    return kind && !strncmp(kind, "torch:", 6);
}

static bool are_schedulers(const ckr_node *n)
{
    return ckr_node_is_list(n) && n->count && is_scheduler(n->u.items[0]);
}

/* A number, a list and so on as Python has them. */
static void python_value(text *t, const ckr_node *n)
{
    json w = { t, false, false };
    if (n->kind == CKR_NODE_BOOL) text_str(t, n->u.b ? "True" : "False");
    else if (n->kind == CKR_NODE_NONE) text_str(t, "None");
    else if (n->kind == CKR_NODE_FLOAT) text_double(t, n->u.f);
    else json_node(&w, NULL, n);
}

/* Schedulers of a scheduler: [torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=5), ...].
   The library nests them a few levels deep only. */
static void python_schedulers(text *t, const ckr_node *list)
{
    uint64_t i, k;
    for (i = 0; i < list->count; i++) {
        const ckr_node *x = list->u.items[i];
        const char *kind = ckr_node_str(ckr_node_get(x, "kind"));
        text_fmt(t, "%storch.optim.lr_scheduler.%s(optimizer", i ? ", " : "[",
                 is_scheduler(x) ? kind + 6 : "?");
        for (k = 0; k < x->count; k++) {
            const char *key = ckr_node_str(x->u.items[2 * k]);
            const ckr_node *v = x->u.items[2 * k + 1];
            if (!key || !strcmp(key, "kind")) continue;
            text_fmt(t, ", %s=", key);
            if (are_schedulers(v)) python_schedulers(t, v);
            else python_value(t, v);
        }
        text_str(t, ")");
    }
    text_str(t, "]");
}

static void setting_value(text *t, const ckr_run_setting *x, const char *out, bool python)
{
    const char *s = ckr_node_str(x->value);
    json w = { t, false, false };
    if (s && out && setting_in_out(s)) {
        text path;
        memset(&path, 0, sizeof path);
        text_fmt(&path, "%s%s", out, s + 3);
        if (path.failed) t->failed = true;
        else json_string_n(&w, path.data, path.n);
        text_free(&path);
    } else if (python && are_schedulers(x->value)) python_schedulers(t, x->value);
    else if (python) python_value(t, x->value);
    else json_node(&w, NULL, x->value);
}

/* One word of a shell's command line: in single quotes, in which nothing is special, where a shell
   would read more into it than it says. */
static void shell_word(text *t, const char *s)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_@%+=:,./-";
    if (*s && !s[strspn(s, plain)]) {
        text_str(t, s);
        return;
    }
    text_str(t, "'");
    for (; *s; s++) {
        if (*s == '\'') text_str(t, "'\\''");
        else text_put(t, s, 1);
    }
    text_str(t, "'");
}

/* The value, behind the key and a = where `equals`. */
static void setting_word(text *t, const ckr_run_setting *x, const char *out, bool equals)
{
    const char *s = ckr_node_str(x->value);
    text word;
    memset(&word, 0, sizeof word);
    if (equals) text_fmt(&word, "--%s=", x->key);
    if (s && out && setting_in_out(s)) text_fmt(&word, "%s%s", out, s + 3);
    else if (s) text_str(&word, s);
    else setting_value(&word, x, out, true);
    text_put(&word, "", 1);
    if (word.failed) t->failed = true;
    else shell_word(t, word.data);
    text_free(&word);
}

static int setting_order(const void *a, const void *b)
{
    const ckr_run_setting *const *x = (const ckr_run_setting *const *)a,
                          *const *y = (const ckr_run_setting *const *)b;
    return strcmp((*x)->key, (*y)->key);
}

/* How many whole levels of dots two keys have in common. */
static size_t setting_common(const char *a, const char *b)
{
    size_t i, n = 0;
    for (i = 0; a && b && a[i] && a[i] == b[i]; i++) if (a[i] == '.') n = i + 1;
    return n;
}

/* Dotted keys as nested YAML, JSON or a Python dict; sorted, so that levels come together. */
static void settings_nested(text *t, const ckr_run_setting *const *list, size_t n, const char *out,
                            bool yaml, bool python)
{
    const char *last = NULL;
    size_t i, depth = 0;
    if (!yaml) text_str(t, "{");
    for (i = 0; i < n; i++) {
        const size_t same = setting_common(last, list[i]->key);
        const char *p = list[i]->key + same, *dot;
        size_t keep = 0, k;
        for (k = 0; k < same; k++) keep += list[i]->key[k] == '.';
        for (; depth > keep; depth--) if (!yaml) text_str(t, "}");
        if (last && !yaml) text_str(t, ", ");
        for (;; p = dot + 1) {
            dot = strchr(p, '.');
            for (k = 0; yaml && k < 2 * depth; k++) text_str(t, " ");
            text_fmt(t, yaml ? "%.*s:" : "\"%.*s\": ", dot ? (int)(dot - p) : (int)strlen(p), p);
            if (!dot) break;
            text_str(t, yaml ? "\n" : "{");
            depth++;
        }
        if (yaml) text_str(t, " ");
        setting_value(t, list[i], out, python);
        if (yaml) text_str(t, "\n");
        last = list[i]->key;
    }
    for (; depth > 0 && !yaml; depth--) text_str(t, "}");
    if (!yaml) text_str(t, "}\n");
}

/* torchtitan's --a.b_c=False is --a.no-b-c. */
static void setting_negated(text *t, const char *key, bool first)
{
    const char *dot = strrchr(key, '.'), *p;
    text_fmt(t, "%s--%.*sno-", first ? "" : " ", dot ? (int)(dot - key) + 1 : 0, key);
    for (p = dot ? dot + 1 : key; *p; p++) text_put(t, *p == '_' ? "-" : p, 1);
}

/* --lr 0.001 --no-load-rng; torchtitan's are --key=value. What must be absent is said behind. */
static void settings_line(text *t, const ckr_run_setting *const *list, size_t n, const char *out,
                          bool equals)
{
    bool first = true;
    size_t i;
    for (i = 0; i < n; i++) {
        const ckr_node *v = list[i]->value;
        if (v->kind == CKR_NODE_NONE && !equals) continue;
        if (v->kind == CKR_NODE_BOOL && !v->u.b && equals) {
            setting_negated(t, list[i]->key, first);
            first = false;
            continue;
        }
        text_str(t, first ? "" : " ");
        first = false;
        if (!equals || (v->kind == CKR_NODE_BOOL && v->u.b))
            text_fmt(t, "%s%s", equals ? "--" : "", list[i]->key);
        if (v->kind == CKR_NODE_BOOL && v->u.b) continue;
        if (!equals) text_str(t, " ");
        setting_word(t, list[i], out, equals);
    }
    for (i = 0; i < n; i++)
        if (list[i]->value->kind == CKR_NODE_NONE && !equals)
            text_fmt(t, "%s(without %s)", first ? "" : " ", list[i]->key);
    text_str(t, "\n");
}

/* get_scheduler("cosine", optimizer, num_warmup_steps=5, ...) and the like. */
static void settings_call(text *t, const char *place, const ckr_run_setting *const *list, size_t n,
                          const char *out)
{
    const bool builds = strstr(place, "scheduler") != NULL,
               model = !strcmp(place, "accelerate.load_checkpoint_in_model") ||
                       !strcmp(place, "PeftModel.from_pretrained");
    bool first = true;
    size_t i;
    text_fmt(t, "%s(", place);
    for (i = 0; builds && i < n; i++)
        if (!strcmp(list[i]->key, "name")) setting_value(t, list[i], out, true);
    for (i = 0; builds && i < n; i++)
        if (!strcmp(list[i]->key, "name")) text_str(t, ", ");
    if (builds) text_str(t, "optimizer");
    if (model) text_str(t, "model");
    first = !builds && !model;
    for (i = 0; i < n; i++) {
        if (builds && !strcmp(list[i]->key, "name")) continue;
        text_fmt(t, "%s%s=", first ? "" : ", ", list[i]->key);
        setting_value(t, list[i], out, true);
        first = false;
    }
    text_str(t, ")\n");
}

/* optimizer.param_groups[0]["lr"] = 0.001: what is behind the last dot is a key of a dict. */
static void settings_groups(text *t, const ckr_run_setting *const *list, size_t n, const char *out)
{
    size_t i;
    text_str(t, "# before the scheduler is made\n");
    for (i = 0; i < n; i++) {
        const char *key = list[i]->key, *dot = strrchr(key, '.');
        text_fmt(t, "optimizer.%.*s", (int)(dot ? (size_t)(dot - key) : strlen(key)), key);
        if (dot) text_fmt(t, "[\"%s\"]", dot + 1);
        text_str(t, " = ");
        setting_value(t, list[i], out, true);
        text_str(t, "\n");
    }
}

/* Does Hydra read these letters as a string? Not numbers, lists or its own words. */
static bool hydra_bare(const char *s, size_t n)
{
    static const char own[] = "true false null nan inf", more[] = "0123456789_-.@%+",
                      first[] = "/abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t i;
    for (i = 0; i < n; i++)
        if (!s[i] || (!strchr(first, s[i]) && (!i || !strchr(more, s[i])))) return false;
    return word_index(own, s, n) < 0;
}

/* Hydra's overrides, as verl is given them: a word of its command line a line. A string is in
   quotes where Hydra would read it as something else. */
static void settings_hydra(text *t, const ckr_run_setting *const *list, size_t n, const char *out)
{
    size_t i;
    for (i = 0; i < n; i++) {
        text value, word;
        memset(&value, 0, sizeof value);
        memset(&word, 0, sizeof word);
        setting_value(&value, list[i], out, list[i]->value->kind == CKR_NODE_FLOAT);
        if (value.n > 2 && *value.data == '"' && hydra_bare(value.data + 1, value.n - 2))
            text_fmt(&word, "%s=%.*s", list[i]->key, (int)value.n - 2, value.data + 1);
        else text_fmt(&word, "%s=%.*s", list[i]->key, (int)value.n, value.n ? value.data : "");
        text_put(&word, "", 1);
        if (value.failed || word.failed) t->failed = true;
        else shell_word(t, word.data);
        text_str(t, "\n");
        text_free(&value);
        text_free(&word);
    }
}

/* `python`: as a part of a script. */
static void settings_place(text *t, const char *place, const ckr_run_setting **list, size_t n,
                           const char *out, bool python)
{
    const bool yaml = strstr(place, ".yaml") != NULL;
    if (yaml || !strcmp(place, "ds_config")) {
        qsort((void *)list, n, sizeof *list, setting_order);
        if (!yaml && python) text_str(t, "ds_config = ");
        settings_nested(t, list, n, out, yaml, !yaml && python);
    } else if (!strncmp(place, "make ", 5)) {
        size_t i;
        text_str(t, place);
        for (i = 0; i < n; i++) {
            text_fmt(t, " %s=", list[i]->key);
            setting_word(t, list[i], out, false);
        }
        text_str(t, "\n");
    } else if (!strcmp(place, "command line") || !strcmp(place, "torchtitan")) {
        settings_line(t, list, n, out, *place == 't');
    } else if (!strcmp(place, "verl")) {
        settings_hydra(t, list, n, out);
    } else if (!strcmp(place, "optimizer")) {
        settings_groups(t, list, n, out);
    } else {
        settings_call(t, place, list, n, out);
    }
}

/* What goes wrong without setting k and those of its place that have the same reason; said at the
   first of them. */
static bool settings_why(text *t, const ckr_plan_facts *f, uint64_t k, bool shown)
{
    const ckr_run_setting *x = &f->settings[k], *y;
    bool first = true;
    uint64_t i;
    text line;
    memset(&line, 0, sizeof line);
    for (i = 0; i < f->n_settings; i++) {
        y = &f->settings[i];
        if (strcmp(y->place, x->place) != 0 || strcmp(y->otherwise, x->otherwise) != 0) continue;
        if (i < k) return false;
        text_fmt(&line, "%s%s", first ? "without " : ", ", y->key);
        first = false;
    }
    text_fmt(&line, ": ");
    text_str(&line, x->otherwise);
    if (shown) text_pad(t, 6);
    if (shown) text_wrapped(t, &line, 8, 6);
    else text_free(&line);
    return true;
}

/* A line of a form, wrapped at blanks outside of quotes; a shell reads on behind a backslash, and
   YAML's lines stay. */
static void settings_wrap(text *t, const char *place, const char *s, size_t n)
{
    const bool shell = !strcmp(place, "command line") || !strcmp(place, "torchtitan") ||
                       !strncmp(place, "make ", 5),
               whole = strstr(place, ".yaml") != NULL;
    size_t i, from = 0, column = 4;
    char quote = 0;
    text_pad(t, column);
    for (i = 0; i <= n; i++) {
        const char ch = i < n ? s[i] : ' ';
        if (i < n && quote) quote = ch == quote ? 0 : quote;
        else if (i < n && (ch == '\'' || ch == '"')) quote = ch;
        if (i < n && (ch != ' ' || quote || whole)) continue;
        if (column > 4 && t->width && column + 1 + (i - from) + (shell ? 2 : 0) > t->width) {
            text_str(t, shell ? " \\\n" : "\n");
            text_pad(t, column = 6);
        } else if (column > 4) {
            text_str(t, " ");
            column++;
        }
        text_put(t, s + from, i - from);
        column += i - from;
        from = i + 1;
    }
    text_str(t, "\n");
}

/* One form after the other, one for each place; `why`: what goes wrong without, behind each. Else
   what goes to several places is one script, since JSON has no comments to tell them apart. */
bool settings_text(text *t, const ckr_plan_facts *f, const char *out, bool why)
{
    const ckr_run_setting **list =
        (const ckr_run_setting **)calloc((size_t)f->n_settings + 1, sizeof *list);
    uint64_t i, k;
    size_t n, places = 0;
    bool failed;
    char *dir = setting_dir(f, out, &failed);
    for (i = 0; list && !failed && i < f->n_settings; i++) {
        const char *place = f->settings[i].place;
        for (k = 0; k < i && strcmp(f->settings[k].place, place) != 0; k++) {}
        if (k < i) continue;
        for (k = i, n = 0; k < f->n_settings; k++)
            if (!strcmp(f->settings[k].place, place)) list[n++] = &f->settings[k];
        if (why) text_fmt(t, "  %s\n", place);
        else if (places++ || n < f->n_settings) text_fmt(t, "# %s\n", place);
        if (why) {
            text body;
            size_t at, line;
            memset(&body, 0, sizeof body);
            settings_place(&body, place, list, n, dir, false);
            for (at = 0; at < body.n; at += line + 1) {
                const char *end = (const char *)memchr(body.data + at, '\n', body.n - at);
                line = end ? (size_t)(end - (body.data + at)) : body.n - at;
                settings_wrap(t, place, body.data + at, line);
            }
            text_free(&body);
        } else {
            settings_place(t, place, list, n, dir, n < f->n_settings);
        }
        for (k = i, n = 0; why && k < f->n_settings; k++)
            if (!strcmp(f->settings[k].place, place))
                n += settings_why(t, f, k, n < 5 || t->verbose);
        if (n > 5 && why && !t->verbose)
            text_fmt(t, "      and %llu more reasons (--verbose lists them)\n",
                     (unsigned long long)(n - 5));
    }
    failed = failed || !list;
    free((void *)list);
    free(dir);
    return !failed;
}

/* Each of them; the eye gets the forms. */
void settings_show(show *s, const ckr_plan_facts *f, const char *out)
{
    uint64_t i;
    bool failed = false;
    char *dir = f ? setting_dir(f, out, &failed) : NULL;
    if (failed) s->facts.failed = true;
    show_list(s, "settings");
    for (i = 0; f && i < f->n_settings && show_room(s, i, 0); i++) {
        const ckr_run_setting *x = &f->settings[i];
        show_dict(s, NULL);
        show_str(s, "place", x->place);
        show_str(s, "key", x->key);
        json_key(&s->w, "value");
        setting_value(s->w.t, x, dir, false);
        s->w.comma = true;
        show_node(s, "was", NULL, x->was);
        show_bool(s, "needed", x->needed);
        show_str(s, "else", x->otherwise);
        show_close(s);
    }
    show_close(s);
    free(dir);
}
