/* What every verb needs: errors, signals, the line of progress, opening a checkpoint. */

#include "tool.h"

bool color_of(color_mode mode, FILE *f)
{
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    if (mode != COLOR_AUTO) return mode == COLOR_ALWAYS;
    if (no && no[0]) return false;
    return is_terminal(f) && term && strcmp(term, "dumb") != 0;
}

/* >>errors -------------------------------------------------------------------- */
/* Classes to exit codes. A path that does not exist is the system's answer (4); something that is
   missing inside a checkpoint has an item of its own and is bad input (3). */

const class_name *class_of(ckr_result code)
{
    static const class_name all[] = {
        { CKR_E_ARG,         CODE_USAGE,   "CKR_E_ARG" },
        { CKR_E_NOMEM,       CODE_SYSTEM,  "CKR_E_NOMEM" },
        { CKR_E_LIMIT,       CODE_INPUT,   "CKR_E_LIMIT" },
        { CKR_E_IO,          CODE_SYSTEM,  "CKR_E_IO" },
        { CKR_E_FORMAT,      CODE_INPUT,   "CKR_E_FORMAT" },
        { CKR_E_UNSUPPORTED, CODE_INPUT,   "CKR_E_UNSUPPORTED" },
        { CKR_E_UNSAFE,      CODE_INPUT,   "CKR_E_UNSAFE" },
        { CKR_E_TYPE,        CODE_INPUT,   "CKR_E_TYPE" },
        { CKR_E_NOT_FOUND,   CODE_INPUT,   "CKR_E_NOT_FOUND" },
        { CKR_E_MISMATCH,    CODE_INPUT,   "CKR_E_MISMATCH" },
        { CKR_E_BACKEND,     CODE_SYSTEM,  "CKR_E_BACKEND" },
        { CKR_E_CANCELLED,   CODE_SYSTEM,  "CKR_E_CANCELLED" },
        { CKR_E_REFUSED,     CODE_REFUSED, "CKR_E_REFUSED" },
        { CKR_OK,            CODE_DONE,    "CKR_OK" }
    };
    size_t i = 0;
    while (i + 1 < COUNT_OF(all) && all[i].code != code) i++;
    return &all[i];
}

static int exit_code_of(const ckr_error *e)
{
    if (e->item == CKR_ITEM_PATH_NOT_FOUND) return CODE_SYSTEM;
    return class_of(e->code)->exit_code;
}

const char *or_null(const char *s)
{
    return s && s[0] ? s : NULL;
}

/* ckptresume: FILE: at byte N, KEY PATH: what was found, what was expected */
static void error_show(show *s, const ckr_error *e)
{
    const bool at = e->offset != CKR_NO_OFFSET;
    show_dict(s, "error");
    show_str(s, "code", class_of(e->code)->name);
    show_str(s, "item", ckr_item_name(e->item));
    show_str(s, "file", or_null(e->file));
    if (at) show_uint(s, "offset", e->offset);
    else show_null(s, "offset");
    show_str(s, "where", or_null(e->where));
    show_str(s, "text", e->text);
    show_str(s, "remedy", or_null(e->remedy));
    text_painted(show_text(s, "tool"), PAINT_RED, "ckptresume:");
    show_put(s, NULL, "{tool}");
    show_wrap(s, 2, 11, at ? "[{file}: ]at byte {offset}[, {where}]: {text}"
                           : "[{file}: ][{where}: ]{text}");
    if (e->remedy[0]) show_put(s, NULL, "  remedy:");
    if (e->remedy[0]) show_wrap(s, 4, 9, "{remedy}");
    show_close(s);
}

static void error_print(const ckr_error *e, text *out, bool is_json)
{
    show s;
    show_begin(&s, out, is_json);
    error_show(&s, e);
    show_end(&s);
}

/* Says what is in j->err and returns the exit code. */
int fail(job *j)
{
    error_print(&j->err, j->o.json ? &j->out : &j->note, j->o.json);
    text_drain(&j->note);
    return exit_code_of(&j->err);
}

void error_set(ckr_error *e, ckr_result code, ckr_item item, const char *where)
{
    memset(e, 0, sizeof *e);
    e->code = code;
    e->item = item;
    e->offset = CKR_NO_OFFSET;
    snprintf(e->where, sizeof e->where, "%.180s", where ? where : "");
}

/* A mistake on the command line: fills j->err and returns 2 as `fail` does. */
TOOL_PRINTF(3, 4)
int usage(job *j, const char *where, const char *fmt, ...)
{
    const char *of = j->verb && strcmp(j->verb->name, "help") != 0 ? j->verb->name : "";
    va_list ap;
    error_set(&j->err, CKR_E_ARG, CKR_ITEM_ARG, where);
    va_start(ap, fmt);
    vsnprintf(j->err.text, sizeof j->err.text, fmt, ap);
    va_end(ap);
    snprintf(j->err.remedy, sizeof j->err.remedy, "ckptresume help%s%s", *of ? " " : "", of);
    return fail(j);
}

int out_of_memory(job *j)
{
    error_set(&j->err, CKR_E_NOMEM, CKR_ITEM_NOMEM, NULL);
    snprintf(j->err.text, sizeof j->err.text, "out of memory");
    return fail(j);
}

/* >>signals ------------------------------------------------------------------- */
/* What asks the program to end makes a write remove what it began, and ends the program after that.
   Asked twice it ends at once. What was ignored (nohup) stays ignored. */

#if defined(SIGHUP)
static const int ending[] = { SIGINT, SIGTERM, SIGHUP };
#else
static const int ending[] = { SIGINT, SIGTERM };
#endif

static volatile sig_atomic_t asked_to_end;

static void ask_to_end(int sig)
{
    signal(sig, SIG_DFL);
    asked_to_end = sig;
}

void signals_catch(void)
{
    size_t i;
    for (i = 0; i < COUNT_OF(ending); i++)
        if (signal(ending[i], ask_to_end) == SIG_IGN) signal(ending[i], SIG_IGN);
}

/* Ends as the signal would have: a shell's loop ends with the program. */
void signals_heed(void)
{
    if (!asked_to_end) return;
    signal(asked_to_end, SIG_DFL);
    raise(asked_to_end);
}

/* >>progress ------------------------------------------------------------------ */
/* A line on stderr when work takes over a second: in place on a terminal, one a second elsewhere.
   */

void progress_begin(job *j)
{
    progress *p = &j->progress;
    p->start = now_seconds();
    p->last = 0;
    p->shown = false;
    p->terminal = is_terminal(stderr);
    p->wanted = j->o.progress || (p->terminal && !j->o.quiet);
}

static void progress_line(text *t, double seconds, uint64_t done, uint64_t total)
{
    double rate = (double)done / seconds;
    text_size(t, done);
    text_str(t, " of ");
    text_size(t, total);
    text_fmt(t, ", %d%%, %.2f GB/s", total ? (int)(100.0 * (double)done / (double)total) : 100,
             rate / 1e9);
    if (done < total && rate > 0) text_fmt(t, ", %.0f s left", (double)(total - done) / rate);
}

bool progress_hook(void *user, uint64_t done, uint64_t total)
{
    job *j = (job *)user;
    progress *p = &j->progress;
    const double now = now_seconds();
    if (asked_to_end) return false;
    if (!p->wanted || now - p->start < 1.0 || now - p->last < (p->terminal ? 0.1 : 1.0))
        return true;
    p->last = now;
    text_str(&j->note, p->terminal ? "\r" : "ckptresume: ");
    progress_line(&j->note, now - p->start, done, total);
    text_str(&j->note, p->terminal ? "\033[K" : "\n");
    text_drain(&j->note);
    fflush(stderr);
    p->shown = true;
    return true;
}

/* Seconds since progress_begin; the line goes away. */
double progress_end(job *j)
{
    if (j->progress.shown && j->progress.terminal) text_str(&j->note, "\r\033[K");
    text_drain(&j->note);
    j->progress.shown = false;
    return now_seconds() - j->progress.start;
}

void log_hook(void *user, const ckr_error *what)
{
    job *j = (job *)user;
    if (j->o.quiet) return;
    error_print(what, &j->note, false);
    text_drain(&j->note);
}

/* >>open ---------------------------------------------------------------------- */

void open_desc(const job *j, ckr_open_desc *d)
{
    memset(d, 0, sizeof *d);
    d->dialect = j->o.dialect;
    d->vocab = j->o.target.vocab;
    d->schedule = j->o.schedule;
    d->optimizer = j->o.optimizer;
    d->env = &j->env;
    d->limits.max_buffer_bytes = j->o.memory;
}

/* --format insists on what was recognised. */
int open_format(job *j, const ckr_ckpt *c)
{
    const char *found = format_name(ckr_ckpt_state(c)->format);
    if (!j->o.format || !strcmp(j->o.format, "auto") || (found && !strcmp(found, j->o.format)))
        return CODE_DONE;
    error_set(&j->err, CKR_E_UNSUPPORTED, CKR_ITEM_ARG, NULL);
    snprintf(j->err.file, sizeof j->err.file, "%.250s", ckr_ckpt_path(c));
    snprintf(j->err.text, sizeof j->err.text,
             "found the format %s, expected %.40s as --format says", found ? found : "none",
             j->o.format);
    return fail(j);
}

/* --names: a JSON list (FILE.json), or a name a line. What they are in lives as long. */
typedef struct name_list { ckr_ckpt *file; char *lines; const char **list; size_t n; } name_list;

static void names_free(name_list *l)
{
    ckr_ckpt_close(l->file);
    free(l->lines);
    free(l->list);
}

static bool names_push(name_list *l, const char *name)
{
    if ((l->n & (l->n - 1)) == 0) {
        const size_t cap = l->n ? 2 * l->n : 1;
        void *more = realloc((void *)l->list, cap * sizeof *l->list);
        if (!more) return false;
        l->list = (const char **)more;
    }
    l->list[l->n++] = name;
    return true;
}

static int names_json(job *j, name_list *l)
{
    ckr_open_desc d;
    const ckr_node *root;
    uint64_t i;
    memset(&d, 0, sizeof d);
    d.env = &j->env;
    if (ckr_tree_open(j->o.names, &d, &l->file, &j->err) != CKR_OK) return fail(j);
    root = ckr_ckpt_root(l->file);
    for (i = 0; ckr_node_is_list(root) && i < root->count; i++) {
        const char *name = ckr_node_str(ckr_node_at(root, i));
        if (!name) return usage(j, "--names", "%.200s is no list of names", j->o.names);
        if (!names_push(l, name)) return out_of_memory(j);
    }
    if (!l->n) return usage(j, "--names", "%.200s is no list of names", j->o.names);
    return CODE_DONE;
}

static int names_lines(job *j, name_list *l)
{
    FILE *f = file_open(j->o.names, "rb");
    size_t n = 0, cap = 0, got;
    char *p;
    if (!f) return usage(j, "--names", "cannot read %.200s", j->o.names);
    do {
        cap = cap ? 2 * cap : 65536;
        p = (char *)realloc(l->lines, cap + 1);
        if (!p) break;
        l->lines = p;
        got = fread(p + n, 1, cap - n, f);
        n += got;
    } while (n == cap);
    fclose(f);
    if (!p) return out_of_memory(j);
    p[n] = 0;
    for (p = l->lines; *p;) {
        char *end = p + strcspn(p, "\r\n");
        const bool more = *end != 0;
        *end = 0;
        if (*p && !names_push(l, p)) return out_of_memory(j);
        p = end + more;
    }
    if (!l->n) return usage(j, "--names", "%.200s is empty", j->o.names);
    return CODE_DONE;
}

static int names_open(job *j, name_list *l)
{
    const size_t n = j->o.names ? strlen(j->o.names) : 0;
    memset(l, 0, sizeof *l);
    if (!n) return CODE_DONE;
    return n > 5 && !strcmp(j->o.names + n - 5, ".json") ? names_json(j, l) : names_lines(j, l);
}

int open_checkpoint(job *j, const char *path, ckr_ckpt **out)
{
    ckr_open_desc d;
    name_list names;
    ckr_result r = CKR_OK;
    int code = names_open(j, &names);
    open_desc(j, &d);
    d.names = names.list;
    d.n_names = names.n;
    *out = NULL;
    if (code == CODE_DONE) r = ckr_ckpt_open(path, &d, out, &j->err);
    names_free(&names);
    if (code != CODE_DONE) return code;
    if (r != CKR_OK) return fail(j);
    code = open_format(j, *out);
    if (code != CODE_DONE) {
        ckr_ckpt_close(*out);
        *out = NULL;
    }
    return code;
}
