/* Parts that several verbs print, once as JSON and once for the eye. */

#include "tool.h"

static const char *const format_names[] = { "auto",   "safetensors", "torch_zip", "torch_legacy",
                                            "pickle", "npy",         "npz",       "json",
                                            "yaml",   "dcp",         "llmc",      "text" };
const char format_words[] = "auto safetensors torch_zip torch_legacy pickle npy npz json yaml dcp "
                            "llmc text";

const char *format_name(ckr_format f)
{
    return (size_t)f < COUNT_OF(format_names) && f != CKR_FORMAT_AUTO ? format_names[f] : NULL;
}

void version_put(text *t)
{
    text_fmt(t, "%d.%d.%d", CKR_VERSION_MAJOR, CKR_VERSION_MINOR, CKR_VERSION_PATCH);
}

void json_version(json *w)
{
    json_key(w, "version");
    text_str(w->t, "\"");
    version_put(w->t);
    text_str(w->t, "\"");
    w->comma = true;
}

void json_topology(json *w, const ckr_topology *t)
{
    json_key(w, "topology");
    json_open(w, "{");
    json_positive(w, "tp", t->tp, 1);
    json_positive(w, "pp", t->pp, 1);
    json_positive(w, "dp", t->dp, 1);
    json_positive(w, "ep", t->ep, 1);
    json_positive(w, "cp", t->cp, 1);
    json_positive(w, "zero", t->tp || t->dp ? t->zero : -1, 0);
    json_positive(w, "ranks", t->ranks, 1);
    json_close(w, "}");
}

void json_progress(json *w, const ckr_state *s, bool kept)
{
    json_key(w, "progress");
    json_open(w, "{");
    json_positive(w, "step", kept ? s->progress.step : 0, 0);
    json_positive(w, "samples", kept ? s->progress.samples : 0, 0);
    json_positive(w, "tokens", kept ? s->progress.tokens : 0, 0);
    json_positive(w, "epoch", kept ? s->progress.epoch : 0, 0);
    json_close(w, "}");
}

/* The keys that open `inspect`, `check` and the two sides of a plan. */
void json_head(json *w, const ckr_ckpt *c)
{
    const ckr_state *s = ckr_ckpt_state(c);
    uint64_t bytes = 0;
    const uint32_t files = ckr_ckpt_files(c, &bytes);
    json_version(w);
    json_pair(w, "path", ckr_ckpt_path(c));
    json_pair(w, "format", format_name(s->format));
    json_pair(w, "dialect", s->dialect);
    if (s->engine) json_pair(w, "engine", s->engine);
    json_pair(w, "framework_version", s->framework_version);
    json_topology(w, &s->topology);
    json_pair_uint(w, "files", files);
    json_pair_uint(w, "bytes", bytes);
    json_progress(w, s, true);
}

static const char *severity_name(ckr_severity s)
{
    static const char *const names[] = { "exact", "changed", "approx", "lost", "error" };
    return (size_t)s < COUNT_OF(names) ? names[s] : "error";
}

static const char *severity_paint(ckr_severity s)
{
    static const char *const codes[] = { PAINT_GREEN, PAINT_CYAN, PAINT_YELLOW, PAINT_MAGENTA,
                                         PAINT_RED };
    return (size_t)s < COUNT_OF(codes) ? codes[s] : PAINT_RED;
}

void json_entry(json *w, const ckr_note *n)
{
    json_open(w, "{");
    json_pair(w, "code", n->code);
    json_pair(w, "severity", severity_name(n->severity));
    json_pair(w, "subject", n->subject);
    json_pair(w, "old", n->old_value);
    json_pair(w, "new", n->new_value);
    json_pair(w, "reason", n->reason);
    json_pair(w, "remedy", n->remedy);
    json_close(w, "}");
}

report report_of(const ckr_note *a, uint64_t n_a, const ckr_note *b, uint64_t n_b)
{
    report r;
    r.notes[0] = a;
    r.notes[1] = b;
    r.n[0] = n_a;
    r.n[1] = n_b;
    return r;
}

uint64_t report_count(const report *r, ckr_severity severity)
{
    uint64_t i, n = 0;
    int k;
    for (k = 0; k < 2; k++)
        for (i = 0; i < r->n[k]; i++) n += r->notes[k][i].severity == severity;
    return n;
}

void json_report(json *w, const report *r)
{
    uint64_t i;
    int k;
    json_key(w, "report");
    json_open(w, "[");
    for (k = 0; k < 2; k++)
        for (i = 0; i < r->n[k]; i++) json_entry(w, &r->notes[k][i]);
    json_close(w, "]");
}

void report_entry(text *t, const ckr_note *n)
{
    const char *severity = severity_name(n->severity);
    text_str(t, "  ");
    text_painted(t, severity_paint(n->severity), severity);
    text_pad(t, 9 - strlen(severity));
    text_painted(t, PAINT_BOLD, n->code);
    if (n->subject) {
        text_str(t, "  ");
        text_clean(t, n->subject);
    }
    if (n->old_value || n->new_value) {
        text_str(t, "  ");
        text_value(t, n->old_value ? n->old_value : "-");
        text_str(t, " -> ");
        text_value(t, n->new_value ? n->new_value : "-");
    }
    text_str(t, "\n");
    if (n->reason) {
        text_pad(t, 11);
        text_wrap(t, 11, 11, n->reason);
    }
    if (n->remedy) {
        text_pad(t, 11);
        text_str(t, "remedy:");
        text_wrap(t, 11, 18, n->remedy);
    }
}

/* All entries of one severity; of a run with the same code the first four. */
static void report_severity(text *t, const ckr_note *notes, uint64_t n, ckr_severity severity)
{
    const uint64_t shown = 4;
    const ckr_note *last = NULL;
    uint64_t i, run = 0;
    for (i = 0; i <= n; i++) {
        if (i < n && notes[i].severity != severity) continue;
        if (i < n && last && !strcmp(notes[i].code, last->code)) {
            run++;
        } else {
            if (run > shown) text_fmt(t, "           and %llu more %s (--json lists them)\n",
                                      (unsigned long long)(run - shown), last->code);
            run = 1;
        }
        if (i < n && run <= shown) report_entry(t, &notes[i]);
        if (i < n) last = &notes[i];
    }
}

/* Grouped by severity, the worst first, after a line of sums. */
void report_text(text *t, const report *r, const char *title)
{
    bool first = true;
    int s;
    if (!r->n[0] && !r->n[1]) return;
    text_str(t, "\n");
    text_painted(t, PAINT_BOLD, title);
    for (s = CKR_ERROR; s >= CKR_EXACT; s--) {
        const uint64_t n = report_count(r, (ckr_severity)s);
        if (!n) continue;
        text_str(t, first ? "  " : ", ");
        text_count(t, n);
        text_str(t, " ");
        text_painted(t, severity_paint((ckr_severity)s), severity_name((ckr_severity)s));
        first = false;
    }
    text_str(t, "\n");
    for (s = CKR_ERROR; s >= CKR_EXACT; s--) {
        report_severity(t, r->notes[0], r->n[0], (ckr_severity)s);
        report_severity(t, r->notes[1], r->n[1], (ckr_severity)s);
    }
}

/* "tp 2  pp 1  dp 2  zero 1  (4 ranks)"; what is not known is not said */
void topology_text(text *t, const ckr_topology *p)
{
    if (p->tp) text_fmt(t, "tp %u  ", p->tp);
    if (p->pp) text_fmt(t, "pp %u  ", p->pp);
    if (p->dp) text_fmt(t, "dp %u  ", p->dp);
    if (p->ep > 1) text_fmt(t, "ep %u  ", p->ep);
    if (p->cp > 1) text_fmt(t, "cp %u  ", p->cp);
    if (p->zero >= 0 && p->tp) text_fmt(t, "zero %d  ", (int)p->zero);
    if (p->ranks) text_fmt(t, "(%u rank%s)", p->ranks, p->ranks == 1 ? "" : "s");
    else if (!p->tp) text_str(t, "not recorded");
}

void label(text *t, const char *name)
{
    text_paint(t, PAINT_DIM);
    text_fmt(t, "  %-10s ", name);
    text_plain(t);
}

void progress_text(text *t, const ckr_state *s)
{
    const int64_t value[4] = { s->progress.step, s->progress.samples, s->progress.tokens,
                               s->progress.epoch };
    static const char *const name[] = { "step", "samples", "tokens", "epoch" };
    bool any = false;
    int i;
    for (i = 0; i < 4; i++) {
        if (value[i] < 0) continue;
        if (any) text_str(t, ", ");
        if (i == 0 || i == 3) text_fmt(t, "%s ", name[i]);
        text_count(t, (uint64_t)value[i]);
        if (i == 1 || i == 2) text_fmt(t, " %s", name[i]);
        any = true;
    }
    if (!any) text_str(t, "not recorded");
}

/* `asked`: the path of the command line; a run directory stands for its newest complete
   checkpoint. */
void head_text(text *t, const ckr_ckpt *c, const char *asked)
{
    const ckr_state *s = ckr_ckpt_state(c);
    const char *path = ckr_ckpt_path(c), *format = format_name(s->format);
    uint64_t bytes = 0;
    const uint32_t files = ckr_ckpt_files(c, &bytes);
    text_paint(t, PAINT_BOLD);
    text_clean(t, path);
    text_plain(t);
    if (strcmp(path, asked) != 0) {
        text_str(t, "  (the newest complete one of ");
        text_clean(t, asked);
        text_str(t, ")");
    }
    text_str(t, "\n");
    label(t, "dialect");
    text_clean(t, s->dialect ? s->dialect : "none");
    if (s->engine) text_fmt(t, " over %s", s->engine);
    if (s->framework_version) {
        text_str(t, " ");
        text_clean(t, s->framework_version);
    }
    if (format && !(s->dialect && !strcmp(format, s->dialect))) text_fmt(t, ", %s", format);
    text_str(t, "\n");
    label(t, "topology");
    topology_text(t, &s->topology);
    text_str(t, "\n");
    label(t, "progress");
    progress_text(t, s);
    text_str(t, "\n");
    label(t, "size");
    text_plural(t, files, "file", "files");
    text_str(t, ", ");
    text_size(t, bytes);
    text_str(t, "\n");
}
