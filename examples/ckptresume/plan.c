/* plan, convert and export: one plan, looked at or carried out. A refusal is a result (exit 1)
   with the ordinary document, also where the library returned it as an error: that becomes an
   entry. */

#include "tool.h"

typedef struct outcome {
    const ckr_ckpt       *ckpt;
    const ckr_plan_facts *facts;       /* NULL: no plan could be made                  */
    const char           *path;        /* of the output, or NULL                       */
    ckr_note              refusal;
    bool                  refused, written;
    ckr_receipt           receipt;
    double                seconds;
} outcome;

static const char *verdict_name(const outcome *o)
{
    static const char *const names[] = { "exact", "changed", "approx", "refused" };
    return o->refused || !o->facts ? "refused" : names[(unsigned)o->facts->verdict % 4];
}

static report outcome_report(const outcome *o)
{
    return report_of(o->facts ? o->facts->notes : NULL, o->facts ? o->facts->n_notes : 0,
                     o->refusal.code ? &o->refusal : NULL, o->refusal.code != NULL);
}

static bool is_known(const uint8_t *digest, size_t n)
{
    while (n > 0) if (digest[--n]) return true;
    return false;
}

static const char *mode_name(ckr_mode m)
{
    return m == CKR_MODE_RECOVER ? "recover" : m == CKR_MODE_CONTINUE ? "continue" : "transfer";
}

static const char *verdict_paint(const outcome *o)
{
    const char *v = verdict_name(o);
    return v[0] == 'r'   ? PAINT_RED
           : v[0] == 'a' ? PAINT_YELLOW
           : v[0] == 'c' ? PAINT_CYAN
                         : PAINT_GREEN;
}

/* Why a plan without a single error is refused: the policy makes the mildest entries errors. */
static const char *plan_refusal(const job *j)
{
    if (j->o.target.mode == CKR_MODE_RECOVER)
        return ": --mode recover allows nothing but exact; --mode continue takes these changes";
    return j->o.target.strict ? ": --strict allows nothing but exact and changed" : "";
}

static void plan_from(show *w, const outcome *o)
{
    show_dict(w, "from");
    show_head(w, o->ckpt);
    show_line(w, "from", "{dialect?none}  {topology}");
    show_line(w, "", "{path}");
    show_close(w);
}

/* The side that says what will be, with the keys of the source's side. */
static void plan_to(show *w, const job *j, const outcome *o)
{
    const ckr_plan_facts *f = o->facts;
    const bool kept =
        !(j->o.target.without & CKR_PROGRESS) && j->o.target.mode != CKR_MODE_TRANSFER;
    show_dict(w, "to");
    show_version(w);
    show_str(w, "path", o->path);
    show_null(w, "format");
    show_str(w, "dialect", f ? f->dialect : j->o.target.dialect);
    show_null(w, "framework_version");
    show_topology(w, f ? &f->to : &j->o.target.topology);
    if (!f || j->verb->bit == VERB_EXPORT) show_word(w, "topology", "");
    show_count(w, "files", f ? f->n_files : 0);
    show_size(w, "bytes", f ? f->bytes_written : 0);
    show_progress(w, ckr_ckpt_state(o->ckpt), kept);
    show_line(w, "to", "{dialect?none}[  {topology}]");
    if (o->path) show_line(w, "", "{path}");
    show_line(w, "progress", kept ? "{progress?not recorded}" : "starts again at 0");
    show_close(w);
}

/* For the eye the first 6, where there are several, unless all are asked for. */
static void plan_files(show *w, const job *j, const outcome *o)
{
    const ckr_plan_facts *f = o->facts;
    const uint64_t n = f ? f->n_files : 0, most = n < 2 || o->refused || j->verb->bit != VERB_PLAN
                                                      ? 0 : j->o.files ? UINT64_MAX : 6;
    uint64_t i;
    if (most) show_line(w, NULL, "");
    if (most) show_table(w, ">bytes|file={path}");
    show_list(w, "files");
    for (i = 0; i < n && show_room(w, i, most); i++) {
        show_dict(w, NULL);
        show_str(w, "path", f->files[i].path[0] || !o->path ? f->files[i].path : o->path);
        show_size(w, "bytes", f->files[i].bytes);
        show_cells(w);
        show_close(w);
    }
    show_close(w);
    if (!most) return;
    show_table_end(w);
    show_rest(w, n - i, " (--files lists them)");
}

/* What a conversion did. */
static void plan_done(show *w, const outcome *o)
{
    const uint8_t *read = o->written ? o->receipt.digest : NULL,
                  *written = o->written ? o->receipt.digest_written : NULL;
    const size_t n = sizeof o->receipt.digest;
    if (written && !is_known(written, n)) written = NULL;
    show_double(w, "seconds", o->seconds, "%.2f");
    show_hex(w, "digest", read, n);
    show_hex(w, "digest_written", written, n);
}

static void plan_sums(show *w, const outcome *o)
{
    const ckr_plan_facts *f = o->facts;
    show_count(w, "copies", f ? f->n_copies : 0);
    show_size(w, "bytes_read", o->written ? o->receipt.bytes_read : f ? f->bytes_read : 0);
    show_size(w, "bytes_written", o->written ? o->receipt.bytes_written : f ? f->bytes_written : 0);
    show_size(w, "peak_bytes", f ? f->peak_bytes : 0);
}

/* What plan_sums, plan_files and plan_done have, for the eye. */
static void plan_lines(show *w, const outcome *o, bool part)
{
    bool same;
    text_count(show_text(w, "n"), o->facts->n_files);
    text_fmt(show_text(w, "rate"), "%.2f GB/s",
             (double)o->facts->bytes_written / 1e9 / (o->seconds > 1e-9 ? o->seconds : 1e-9));
    show_line(w, NULL, "");
    if (part)
        show_line(w, "part", "{part} of {parts} is written; --commit {parts} makes the output when "
                             "all are");
    show_line(w, o->written ? "written" : part ? "all parts" : "to write",
              o->written ? "{n file/files}, {bytes_written} in {copies copy/copies}; reads "
                           "{bytes_read} in {seconds} s ({rate})"
                         : "{n file/files}, {bytes_written} in {copies copy/copies}; reads "
                           "{bytes_read}");
    show_line(w, "memory", "{peak_bytes} at most");
    if (!o->written) return;
    same = !memcmp(o->receipt.digest, o->receipt.digest_written, sizeof o->receipt.digest);
    show_line(w, "digest", same ? "{digest} read and written" : "{digest} read");
    if (same) return;
    show_line(w, "", is_known(o->receipt.digest_written, sizeof o->receipt.digest_written)
                         ? "{digest_written} written"
                         : "what `digest` says of the output needs --names");
}

static void plan_show(job *j, const outcome *o)
{
    const report notes = outcome_report(o);
    show w;
    show_job(&w, j);
    plan_from(&w, o);
    plan_to(&w, j, o);
    show_str(&w, "mode", mode_name(j->o.target.mode));
    show_line(&w, "mode", j->o.target.strict ? "{mode}, strict" : "{mode}");
    show_painted(&w, "verdict", verdict_name(o), verdict_paint(o));
    if (o->refused && !report_count(&notes, CKR_ERROR)) show_word(&w, "why", plan_refusal(j));
    show_line(&w, "verdict", "{verdict}[{why}]");
    show_report(&w, &notes, "report");
    plan_sums(&w, o);
    plan_files(&w, j, o);
    settings_show(&w, o->facts, o->path);
    if (j->verb->bit != VERB_PLAN) plan_done(&w, o);
    if (j->o.part && !o->refused) {
        show_uint(&w, "part", j->o.part);
        show_uint(&w, "parts", j->o.parts.n);
    }
    if (!o->refused && o->facts) plan_lines(&w, o, j->o.part != 0);
    if (!o->refused && o->facts && o->facts->n_settings && w.t) {
        show_line(&w, NULL, "\nStart the coming run with:");
        if (!settings_text(w.t, o->facts, o->path, true)) w.t->failed = true;
    }
    show_end(&w);
    if (o->refused) report_quietly(j, &notes, "refused");
}

/* --ranks counts all processes: what the other sizes leave of it is data-parallel. */
int plan_ranks(job *j, const ckr_state *s)
{
    ckr_topology *t = &j->o.target.topology;
    const uint64_t tp = t->tp ? t->tp : s->topology.tp, pp = t->pp ? t->pp : s->topology.pp;
    const uint64_t cp = t->cp ? t->cp : s->topology.cp,
                   others = (tp ? tp : 1) * (pp ? pp : 1) * (cp ? cp : 1);
    if (!t->ranks) return CODE_DONE;
    if (t->dp && others * t->dp != t->ranks)
        return usage(j, "--ranks", "found %u, expected tp x pp x cp x dp = %llu", t->ranks,
                     (unsigned long long)(others * t->dp));
    if (t->ranks % others)
        return usage(j, "--ranks", "found %u, expected a multiple of tp x pp x cp = %llu", t->ranks,
                     (unsigned long long)others);
    t->dp = (uint32_t)(t->ranks / others);
    return CODE_DONE;
}

/* A refusal that came as an error becomes an entry; its strings stay in j->err. */
static void outcome_refuse(job *j, outcome *o)
{
    o->refused = true;
    o->refusal.code = ckr_item_name(j->err.item);
    o->refusal.severity = CKR_ERROR;
    o->refusal.subject = j->err.file[0] ? j->err.file : or_null(j->err.where);
    o->refusal.reason = j->err.text;
    o->refusal.remedy = or_null(j->err.remedy);
}

/* The groups of a JSON document; they live with it. */
static bool like_groups(const ckr_node *list, ckr_group *groups)
{
    uint64_t i, k;
    for (i = 0; i < list->count; i++) {
        const ckr_node *g = ckr_node_at(list, i), *params = ckr_node_get(g, "params");
        const uint64_t n = ckr_node_is_list(params) ? params->count : 0;
        const char **names = (const char **)calloc((size_t)n + 1, sizeof *names);
        groups[i].params = names;
        groups[i].n_params = n;
        groups[i].name = ckr_node_str(ckr_node_get(g, "name"));
        groups[i].hyper = (ckr_node *)(uintptr_t)g;
        if (!names || !ckr_node_is_dict(g)) return false;
        for (k = 0; k < n; k++) {
            names[k] = ckr_node_str(ckr_node_at(params, k));
            if (!names[k]) return false;
        }
    }
    return true;
}

void like_free(like_file *l)
{
    uint64_t i;
    for (i = 0; l->groups && i < l->n; i++) free((void *)(uintptr_t)l->groups[i].params);
    free(l->groups);
    ckr_ckpt_close(l->file);
}

static int like_json(job *j, like_file *l)
{
    const ckr_node *list = ckr_node_get(ckr_ckpt_root(l->file), "groups");
    if (!ckr_node_is_list(list) || !list->count)
        return usage(j, "--like", "found no {\"groups\":[..]} in %.200s", j->o.like);
    l->groups = (ckr_group *)calloc((size_t)list->count, sizeof *l->groups);
    if (!l->groups) return out_of_memory(j);
    l->n = list->count;
    if (!like_groups(list, l->groups))
        return usage(j, "--like", "a group of %.200s is no object with a list of names as params",
                     j->o.like);
    j->o.target.groups = l->groups;
    j->o.target.n_groups = l->n;
    return CODE_DONE;
}

int like_open(job *j, like_file *l)
{
    ckr_open_desc d;
    const ckr_state *s;
    memset(l, 0, sizeof *l);
    if (!j->o.like) return CODE_DONE;
    memset(&d, 0, sizeof d);
    d.env = &j->env;
    if (ckr_tree_open(j->o.like, &d, &l->file, &j->err) == CKR_OK &&
        ckr_node_get(ckr_ckpt_root(l->file), "groups"))
        return like_json(j, l);
    ckr_ckpt_close(l->file);
    if (ckr_ckpt_open(j->o.like, &d, &l->file, &j->err) != CKR_OK) return fail(j);
    s = ckr_ckpt_state(l->file);
    if (!s->n_groups)
        return usage(j, "--like", "%.200s has no parameter groups", ckr_ckpt_path(l->file));
    j->o.target.groups = s->groups;
    j->o.target.n_groups = s->n_groups;
    return CODE_DONE;
}

/* The library's sentence stays; what it names is a parameter there and a flag here. */
static int plan_fail(job *j)
{
    const char *flag = flag_of(j->err.where);
    if (j->err.item == CKR_ITEM_LIMIT && !strcmp(j->err.where, "max_bytes"))
        snprintf(j->err.where, sizeof j->err.where, "--memory");
    if (!j->err.file[0] && (j->err.item == CKR_ITEM_WRITE_DUPLICATE ||
                            j->err.item == CKR_ITEM_WRITE_NAME))
        snprintf(j->err.file, sizeof j->err.file, "%.250s", j->args[0]);
    if (flag && (j->err.item == CKR_ITEM_ARG || j->err.item == CKR_ITEM_MEGATRON_NO_VERSION))
        snprintf(j->err.where, sizeof j->err.where, "%s", flag);
    return fail(j);
}

/* Where --settings goes: beside its file, which it replaces when the checkpoint is there; into what
   is no regular file (/dev/stdout) at once. */
typedef struct settings_file { char *path, *temp; bool made; } settings_file;

/* The path as the system knows it: links followed as far as it exists, the rest as it is spelled.
   NULL: out of memory. */
static char *path_real(const char *path)
{
#if defined(_WIN32)
    return _fullpath(NULL, path, 0);
#else
    size_t n = strlen(path), k = n;
    char *head = (char *)malloc(n + 2), *real = NULL, *whole = NULL;
    if (!head) return NULL;
    for (;;) {
        memcpy(head, path, k);
        strcpy(head + k, k ? "" : path[0] == '/' ? "/" : ".");
        real = realpath(head, NULL);
        if (real || !k) break;
        while (k && path[k - 1] == '/') k--;
        while (k && path[k - 1] != '/') k--;
    }
    free(head);
    while (path[k] == '/') k++;
    n = real ? strlen(real) + n - k + 2 : 0;
    if (n) whole = (char *)malloc(n);
    if (whole) snprintf(whole, n, path[k] ? "%s/%s" : "%s%s", real, path + k);
    free(real);
    return whole;
#endif
}

/* Is the file this path, or below it? */
static bool path_within(const char *file, const char *path)
{
    char *outer = path ? path_real(path) : NULL;
    const size_t n = outer ? strlen(outer) : 0;
    const bool in = n && !strncmp(file, outer, n) &&
                    (!file[n] || file[n] == '/' || file[n] == '\\' || outer[n - 1] == '/');
    free(outer);
    return in;
}

/* Is there something that a new file would replace? Of an empty one nothing is lost: a shell makes
   it for >. *regular: a file, or nothing. */
static bool path_filled(const char *path, bool *regular)
{
    struct stat at;
    const bool there = stat(path, &at) == 0;
    *regular = !there || (at.st_mode & S_IFMT) == S_IFREG;
    return there && at.st_size > 0;
}

/* Neither an input nor the output is overwritten. */
static int settings_begin(job *j, const outcome *o, settings_file *f)
{
    const char *not[5];
    size_t i, n;
    memset(f, 0, sizeof *f);
    if (!j->o.settings) return CODE_DONE;
    f->path = path_real(j->o.settings);
    n = f->path ? strlen(f->path) + sizeof ".partial" : 0;
    f->temp = n ? (char *)malloc(n) : NULL;
    if (!f->temp) return out_of_memory(j);
    snprintf(f->temp, n, "%s.partial", f->path);
    not[0] = j->args[0];
    not[1] = ckr_ckpt_path(o->ckpt);
    not[2] = o->path;
    not[3] = j->o.like;
    not[4] = j->o.names;
    for (i = 0; i < COUNT_OF(not); i++)
        if (not[i] && path_within(f->path, not[i]))
            return usage(j, "--settings", "%.200s lies in %.200s, which is %s: give another file",
                         j->o.settings, not[i], i == 2 ? "the output" : "read here");
    return CODE_DONE;
}

static void settings_end(settings_file *f)
{
    if (f->made) file_remove(f->temp);
    free(f->path);
    free(f->temp);
}

static bool settings_refuse(job *j, outcome *o, ckr_result code, ckr_item item, const char *why,
                            const char *remedy)
{
    error_set(&j->err, code, item, NULL);
    snprintf(j->err.file, sizeof j->err.file, "%.250s", j->o.settings);
    snprintf(j->err.text, sizeof j->err.text, "%s", why);
    snprintf(j->err.remedy, sizeof j->err.remedy, "%s", remedy);
    outcome_refuse(j, o);
    return false;
}

/* Before anything else is written, so that nothing is where this fails. */
static bool settings_write(job *j, outcome *o, settings_file *to)
{
    text t;
    FILE *f;
    bool ok, regular;
    char why[200];
    if (!to->path || o->refused || j->o.part) return true;     /* (the commit writes them) */
    if (path_filled(to->path, &regular) && regular && !j->o.target.force)
        return settings_refuse(j, o, CKR_E_REFUSED, CKR_ITEM_OUTPUT_EXISTS,
                               "the file of --settings exists",
                               "--force replaces it, as it does OUT");
    memset(&t, 0, sizeof t);
    ok = settings_text(&t, o->facts, o->path, false) && !t.failed;
    to->made = regular;
    f = ok ? file_open(to->made ? to->temp : to->path, "wb") : NULL;
    ok = f && fwrite(t.data ? t.data : "", 1, t.n, f) == t.n;
    if (f && fclose(f) != 0) ok = false;
    text_free(&t);
    if (ok) return true;
    snprintf(why, sizeof why, "--settings cannot be written: %s", strerror(errno));
    return settings_refuse(j, o, CKR_E_IO, CKR_ITEM_IO_WRITE, why,
                           "give a file in a directory that is writable");
}

static int settings_place_file(job *j, const outcome *o, settings_file *f)
{
    if (!f->made || o->refused) return CODE_DONE;
    f->made = !file_rename(f->temp, f->path);
    if (!f->made) return CODE_DONE;
    error_set(&j->err, CKR_E_IO, CKR_ITEM_IO_WRITE, NULL);
    snprintf(j->err.file, sizeof j->err.file, "%.250s", j->o.settings);
    snprintf(j->err.text, sizeof j->err.text, "--settings cannot be written: %s%s",
             strerror(errno), o->path ? "; the checkpoint is written" : "");
    return fail(j);
}

/* Carries the plan out, or a part of it. --continue is the one part of one, which is committed. */
static ckr_result plan_carry(job *j, ckr_plan *plan, outcome *o)
{
    ckr_parts *p = &j->o.parts;
    const bool all = !j->o.part && !j->o.commit;
    ckr_result r = CKR_OK;
    if (all && !p->go_on) return ckr_plan_write(plan, o->path, &o->receipt, &j->err);
    if (!j->o.part) p->n = all ? 1 : j->o.commit;
    if (!j->o.commit)
        r = ckr_plan_write_part(plan, o->path, all ? 0 : j->o.part - 1, p, &j->err);
    if (!j->o.part && r == CKR_OK) r = ckr_plan_commit(plan, o->path, p, &o->receipt, &j->err);
    return r;
}

static int plan_write(job *j, ckr_plan *plan, outcome *o)
{
    ckr_result r;
    signals_catch();
    progress_begin(j);
    r = plan_carry(j, plan, o);
    o->seconds = progress_end(j);
    if (r == CKR_E_CANCELLED) {
        snprintf(j->err.file, sizeof j->err.file, "%.250s", o->path);
        snprintf(j->err.text, sizeof j->err.text, "%s",
                 j->o.part || j->o.parts.go_on
                     ? "interrupted; the same command with --continue goes on from here"
                     : "interrupted; nothing of it was left behind");
    }
    o->written = r == CKR_OK && !j->o.part;
    if (r == CKR_E_REFUSED) outcome_refuse(j, o);
    else if (r != CKR_OK) return fail(j);
    return CODE_DONE;
}

/* By the ending of its name: the dialect that writes such a file, "" when none does; NULL: it says
   nothing. */
static const char *dialect_of_name(const char *path)
{
    static const char *const endings[][2] = {
        { "safetensors", "safetensors" }, { "pt", "torch" }, { "pth", "torch" }, { "bin", "torch" },
        { "ckpt", "torch" }, { "npz", "" }, { "npy", "" }, { "pkl", "" }, { "gguf", "" },
        { "h5", "" }, { "onnx", "" }, { "json", "" }, { "zip", "" }, { "tar", "" }
    };
    const char *dot = strrchr(path, '.');
    size_t i;
    for (i = 0; dot && i < COUNT_OF(endings); i++)
        if (!strcmp(dot + 1, endings[i][0])) return endings[i][1];
    return NULL;
}

/* A name says what is in a file: what OUT would be is no other thing. */
static int plan_named(job *j, const outcome *o)
{
    const ckr_plan_facts *f = o->facts;
    const char *named = o->path ? dialect_of_name(o->path) : NULL, *dot;
    const bool one = f->n_files == 1 && !f->files[0].path[0];
    const bool plain = !strcmp(f->dialect, "safetensors");
    if (!named || o->refused || (one && *named && plain == !strcmp(named, "safetensors")))
        return CODE_DONE;
    dot = strrchr(o->path, '.');
    if (!one && !strcmp(dot, ".ckpt")) return CODE_DONE;       /* Lightning's, sharded       */
    if (!one)
        return usage(j, o->path, "it will be a directory of %llu files, and a file's name ends in "
                     "%s: leave that out; one file is --to torch or --to safetensors",
                     (unsigned long long)f->n_files, dot);
    return usage(j, o->path, "it will be a %s file, and %s says another one: end it in %s",
                 plain ? "safetensors" : "torch", dot, plain ? ".safetensors" : ".pt");
}

/* Makes the plan and, with a path, carries it out. CODE_DONE: there is an outcome to show. */
static int plan_run(job *j, ckr_plan **plan, outcome *o)
{
    settings_file f;
    ckr_result r;
    int code = settings_begin(j, o, &f);
    if (code == CODE_DONE) {
        r = ckr_plan_create(o->ckpt, &j->o.target, j->o.memory, plan, &j->err);
        if (r == CKR_E_REFUSED) outcome_refuse(j, o);
        else if (r != CKR_OK) code = plan_fail(j);
        if (r == CKR_OK) {
            o->facts = ckr_plan_info(*plan);
            o->refused = o->facts->verdict == CKR_VERDICT_REFUSED;
            code = plan_named(j, o);
        }
    }
    if (code == CODE_DONE && !o->refused && settings_write(j, o, &f)) {
        if (o->path) code = plan_write(j, *plan, o);
        if (code == CODE_DONE) code = settings_place_file(j, o, &f);
    }
    settings_end(&f);
    return code;
}

static int plan_verb(job *j, const char *path)
{
    ckr_ckpt *c;
    ckr_plan *plan = NULL;
    outcome o;
    like_file l;
    int code = open_checkpoint(j, j->args[0], &c);
    if (code != CODE_DONE) return code;
    memset(&o, 0, sizeof o);
    o.ckpt = c;
    o.path = path;
    j->o.target.source = ckr_ckpt_path(c);
    code = like_open(j, &l);
    if (code == CODE_DONE) code = plan_ranks(j, ckr_ckpt_state(c));
    if (code == CODE_DONE) code = plan_run(j, &plan, &o);
    if (code == CODE_DONE) {
        plan_show(j, &o);
        code = o.refused ? CODE_REFUSED : CODE_DONE;
    }
    ckr_plan_free(plan);
    like_free(&l);
    ckr_ckpt_close(c);
    return code;
}

int verb_plan(job *j)
{
    return plan_verb(j, NULL);
}

int verb_convert(job *j)
{
    return plan_verb(j, j->args[1]);
}

int verb_export(job *j)
{
    const char *named = dialect_of_name(j->args[1]);
    if (named && !*named)
        return usage(j, j->args[1], "expected a name that ends in .safetensors, or in .pt, .pth or "
                     ".bin for a torch file");
    j->o.target.dialect = named ? named : "safetensors";
    j->o.target.variant = "live";      /* the module's own names */
    if (!j->o.target.slots) j->o.target.slots = "params";
    return plan_verb(j, j->args[1]);
}
