/* Parts that several verbs show. */

#include "tool.h"

#include <ctype.h>

#define FORMATS(X)                                                                                \
    X(safetensors) X(torch_zip) X(torch_legacy) X(pickle) X(npy) X(npz) X(json) X(yaml) X(dcp)    \
    X(llmc) X(text)
#define FORMAT_NAME(x) , #x
#define FORMAT_WORD(x) " " #x
static const char *const format_names[] = { "auto" FORMATS(FORMAT_NAME) };
const char format_words[] = "auto" FORMATS(FORMAT_WORD);

const char *format_name(ckr_format f)
{
    return (size_t)f < COUNT_OF(format_names) && f != CKR_FORMAT_AUTO ? format_names[f] : NULL;
}

void version_put(text *t)
{
    text_fmt(t, "%d.%d.%d", CKR_VERSION_MAJOR, CKR_VERSION_MINOR, CKR_VERSION_PATCH);
}

void show_version(show *s)
{
    text t;
    memset(&t, 0, sizeof t);
    version_put(&t);
    text_put(&t, "", 1);
    show_str(s, "version", t.data);
    text_free(&t);
}

/* "tp 2  pp 1  dp 2  zero 1  (4 ranks)"; sizes that are not recorded are named after those that
   are. */
void show_topology(show *s, const ckr_topology *t)
{
    const struct { const char *key; uint32_t n, least; } sizes[] = {
        { "tp", t->tp, 1 }, { "pp", t->pp, 1 }, { "dp", t->dp, 1 }, { "ep", t->ep, 2 },
        { "cp", t->cp, 2 }
    };
    bool any = false;
    size_t i;
    show_dict(s, "topology");
    for (i = 0; i < COUNT_OF(sizes); i++) {
        show_least(s, sizes[i].key, sizes[i].n, 1);
        if (sizes[i].n < sizes[i].least) show_word(s, sizes[i].key, "");
        else any = true;
    }
    show_least(s, "zero", t->tp || t->dp ? t->zero : -1, 0);
    if (!t->tp) show_word(s, "zero", "");
    show_least(s, "ranks", t->ranks, 1);
    if (!t->ranks && !t->tp)
        show_word(s, "none", any ? "; tp and pp not recorded" : "not recorded");
    show_close_as(s, "[  tp {tp}][  pp {pp}][  dp {dp}][  ep {ep}][  cp {cp}][  zero {zero}]"
                  "[  ({ranks rank/ranks})][{none}]");
}

void show_progress(show *s, const ckr_state *from, bool kept)
{
    const struct { const char *key; int64_t n; } rows[] = {
        { "step", from->progress.step }, { "samples", from->progress.samples },
        { "tokens", from->progress.tokens }, { "epoch", from->progress.epoch }
    };
    size_t i;
    show_dict(s, "progress");
    for (i = 0; i < COUNT_OF(rows); i++) {
        if (kept && rows[i].n < 0) show_null(s, rows[i].key);
        else show_count(s, rows[i].key, kept ? (uint64_t)rows[i].n : 0);
    }
    show_close_as(s, "[, step {step}][, {samples} samples][, {tokens} tokens][, epoch {epoch}]");
}

/* The keys that open `inspect`, `check` and the two sides of a plan. */
void show_head(show *s, const ckr_ckpt *c)
{
    const ckr_state *from = ckr_ckpt_state(c);
    uint64_t bytes = 0;
    const uint32_t files = ckr_ckpt_files(c, &bytes);
    show_version(s);
    show_str(s, "path", ckr_ckpt_path(c));
    show_str(s, "format", format_name(from->format));
    show_str(s, "dialect", from->dialect);
    if (from->engine) show_str(s, "engine", from->engine);
    show_str(s, "framework_version", from->framework_version);
    show_topology(s, &from->topology);
    show_count(s, "files", files);
    show_size(s, "bytes", bytes);
    show_progress(s, from, true);
}

/* `asked`: the path of the command line; a run directory stands for its newest complete
   checkpoint. */
void show_head_lines(show *s, const ckr_ckpt *c, const char *asked)
{
    show_line(s, NULL, "{*path}");
    if (strcmp(ckr_ckpt_path(c), asked) != 0)
        show_line(s, "chosen", "the newest complete checkpoint of its run");
    show_line(s, "dialect",
              "{dialect?none}[ over {engine}][ {framework_version}][, {format!dialect}]");
    show_line(s, "topology", "{topology}");
    show_line(s, "progress", "{progress?not recorded}");
    show_line(s, "size", "{files file/files}, {bytes}");
}

/* Above an answer whose document does not have them. */
void show_above(show *s, const ckr_ckpt *c, const char *asked)
{
    if (s->w.t) return;
    show_head(s, c);
    show_head_lines(s, c, asked);
}

uint64_t tensor_elements(const ckr_tensor *t)
{
    uint64_t n = 1;
    uint32_t i;
    for (i = 0; i < t->n_dims; i++) n *= (uint64_t)t->shape[i];
    return n;
}

void show_tensor(show *s, const ckr_tensor *t)
{
    show_str(s, "name", t->name);
    show_str(s, "slot", t->slot);
    show_str(s, "dtype", ckr_dtype_name(t->dtype));
    show_shape(s, "shape", t->n_dims, t->shape);
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

/* Entries that say the same of several subjects, once: the first of them, how many there are, and
   the sum of the numbers with which their sentences begin ("6 streams continue"). */
typedef struct alike {
    const ckr_note *note;
    const char *subjects[4];
    uint64_t n, sum, hidden;   /* hidden: others of its code, which are not shown      */
} alike;

/* What follows "6 " at the start of a text; the text itself where no counted noun begins it. */
static const char *counted(const char *s, uint64_t *n)
{
    const size_t k = s ? strspn(s, "0123456789") : 0;
    const bool word = k && k < 19 && s[k] == ' ' && isalpha((unsigned char)s[k + 1]);
    *n = word ? strtoull(s, NULL, 10) : 0;
    return word ? s + k : s;
}

static bool same_words(const char *a, const char *b)
{
    uint64_t n;
    a = counted(a, &n);
    b = counted(b, &n);
    return a == b || (a && b && !strcmp(a, b));
}

static bool is_alike(const ckr_note *a, const ckr_note *b)
{
    return !strcmp(a->code, b->code) && same_words(a->old_value, b->old_value) &&
           same_words(a->new_value, b->new_value) && same_words(a->reason, b->reason) &&
           same_words(a->remedy, b->remedy);
}

/* "tp, pp", "python default, numpy default and 5 more" */
static void report_subjects(text *line, const alike *a)
{
    const size_t from = line->n;
    uint64_t i;
    for (i = 0; i < a->n && i < COUNT_OF(a->subjects) && (!i || line->n - from < 24); i++) {
        text_str(line, i ? ", " : "  ");
        text_clean(line, a->subjects[i]);
    }
    if (i < a->n) text_fmt(line, " and %llu more", (unsigned long long)(a->n - i));
}

/* Is the reason of an entry said with it, on its line where there is room, or is it one of several
   with the same, which is said below the last of them? */
typedef enum why { WHY_NOT, WHY_BESIDE, WHY_BELOW } why;

/* For the eye the lines of an entry, of its facts. */
static void alike_lines(show *s, const alike *a, why said)
{
    const ckr_note *n = a->note;
    const size_t from = 11 + strlen(n->code);
    uint64_t count;
    const char *reason = counted(n->reason, &count);
    bool beside;
    text *t;
    text_pad(show_text(s, "gap"), 9 - strlen(severity_name(n->severity)));
    show_put(s, NULL, "  {severity}{gap}{*code}");
    t = show_text(s, "about");
    if (n->subject) report_subjects(t, a);
    /* a value with which the sentence below begins is there */
    if (n->old_value || (n->new_value && (!count || !strstr(n->reason, n->new_value)))) {
        text_str(t, "  ");
        text_values(t, n->old_value, n->new_value);
    }
    t = show_text(s, "because");
    if (n->reason && said != WHY_NOT) {
        if (a->n > 1 && a->sum == a->n) text_str(t, "each: 1");
        else if (count) text_fmt(t, "%llu", (unsigned long long)a->sum);
        text_clean(t, reason);
    }
    beside = said == WHY_BESIDE &&
             from + show_columns(s, "about") + 2 + show_columns(s, "because") <= s->t->width;
    show_wrap(s, 11, from, beside ? "{about}[: {because}]" : "{about}");
    if (!beside) show_below(s, 11, "{because}");
    if (said != WHY_NOT) show_below(s, 11, "remedy: {remedy}");
    if (!a->hidden) return;
    text_count(show_text(s, "hidden"), a->hidden);
    show_line(s, NULL, "           and {hidden} more {code} (--verbose shows them)");
}

static void alike_show(show *s, const alike *a, why said)
{
    const ckr_note *n = a->note;
    show_dict(s, NULL);
    show_str(s, "code", n->code);
    show_painted(s, "severity", severity_name(n->severity), severity_paint(n->severity));
    show_str(s, "subject", n->subject);
    show_str(s, "old", n->old_value);
    show_str(s, "new", n->new_value);
    show_str(s, "reason", n->reason);
    show_str(s, "remedy", n->remedy);
    if (s->t) alike_lines(s, a, said);
    show_close(s);
}

static void alike_begin(alike *a, const ckr_note *n)
{
    memset(a, 0, sizeof *a);
    a->note = n;
    a->subjects[a->n++] = n->subject;
    counted(n->reason, &a->sum);
}

/* An entry as it is. */
void show_entry(show *s, const ckr_note *n)
{
    alike a;
    alike_begin(&a, n);
    alike_show(s, &a, WHY_BESIDE);
}

/* Takes a note up: into the line that says the same, else as a line of its own, of which there are
   three of each code and `most` in all. */
static size_t report_take(alike *lines, size_t n, size_t most, const ckr_note *note)
{
    uint64_t count;
    size_t i, same = 0, last = 0;
    counted(note->reason, &count);
    for (i = 0; i < n && !is_alike(lines[i].note, note); i++)
        if (!strcmp(lines[i].note->code, note->code)) same++, last = i;
    if (i < n) {
        if (lines[i].n < COUNT_OF(lines[i].subjects)) lines[i].subjects[lines[i].n] = note->subject;
        lines[i].n++;
        lines[i].sum += count;
        return n;
    }
    if (same == 3 || n == most) {
        lines[same ? last : n - 1].hidden++;
        return n;
    }
    alike_begin(&lines[n], note);
    return n + 1;
}

/* Do two entries that follow each other have one reason, which is then said below them? */
static bool one_reason(const alike *a, const alike *b)
{
    uint64_t n;
    counted(a->note->reason, &n);
    return !n && !a->hidden && a->note->reason && b->note->reason &&
           !strcmp(a->note->reason, b->note->reason) &&
           same_words(a->note->remedy, b->note->remedy);
}

/* All entries of one severity. */
static void report_severity(show *s, const report *r, ckr_severity severity)
{
    alike lines[32];
    size_t n = 0, i;
    uint64_t at;
    int k;
    for (k = 0; k < 2; k++)
        for (at = 0; at < r->n[k]; at++) {
            const ckr_note *note = &r->notes[k][at];
            if (note->severity != severity) continue;
            if (s->t->verbose) show_entry(s, note);
            else n = report_take(lines, n, COUNT_OF(lines), note);
        }
    for (i = 0; i < n; i++)
        alike_show(s, &lines[i],
                   i + 1 < n && one_reason(&lines[i], &lines[i + 1]) ? WHY_NOT
                   : i && one_reason(&lines[i - 1], &lines[i])       ? WHY_BELOW
                                                                     : WHY_BESIDE);
}

/* For the eye: grouped by severity, the worst first, after a line of sums; those that are alike are
   one. */
void show_alikes(show *s, const report *r, const char *title)
{
    const char *gap = "  ";
    text *t = s->t;
    int k;
    if (!t || (!r->n[0] && !r->n[1])) return;
    text_str(t, "\n");
    text_painted(t, PAINT_BOLD, title);
    for (k = CKR_ERROR; k >= CKR_EXACT; k--) {
        const uint64_t n = report_count(r, (ckr_severity)k);
        if (!n) continue;
        text_str(t, gap);
        text_count(t, n);
        text_str(t, " ");
        text_painted(t, severity_paint((ckr_severity)k), severity_name((ckr_severity)k));
        gap = ", ";
    }
    text_str(t, "\n");
    for (k = CKR_ERROR; k >= CKR_EXACT; k--) report_severity(s, r, (ckr_severity)k);
}

/* All of them. */
void show_report(show *s, const report *r, const char *title)
{
    uint64_t i;
    int k;
    show_list(s, "report");
    for (k = 0; k < 2; k++)
        for (i = 0; i < r->n[k] && show_room(s, i, 0); i++) show_entry(s, &r->notes[k][i]);
    show_close(s);
    show_alikes(s, r, title);
}

/* What a verdict is for, on stderr where --quiet leaves nothing else. */
void report_quietly(job *j, const report *r, const char *title)
{
    show s;
    if (j->o.json || !j->o.quiet) return;
    show_begin(&s, &j->note, false);
    show_alikes(&s, r, title);
    show_end(&s);
    text_drain(&j->note);
}

void label(text *t, const char *name)
{
    text_paint(t, PAINT_DIM);
    text_fmt(t, "  %-10s ", name);
    text_plain(t);
}
