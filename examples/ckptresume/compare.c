/* digest and check. */

#include "tool.h"

/* >>digest -------------------------------------------------------------------- */

typedef uint8_t digest16[16];

/* What the sum leaves out, as reading found it. */
static bool is_left_out(const ckr_note *n)
{
    return strstr(n->code, "CKR_W_TENSOR") == n->code;
}

static void digest_json_left_out(json *w, const ckr_state *s)
{
    uint64_t i;
    json_list(w, "report");
    for (i = 0; i < s->n_notes; i++)
        if (is_left_out(&s->notes[i])) json_entry(w, &s->notes[i]);
    json_close(w, "]");
}

static void digest_text_left_out(text *t, const ckr_state *s)
{
    uint64_t i, n = 0;
    for (i = 0; i < s->n_notes; i++) {
        if (!is_left_out(&s->notes[i])) continue;
        if (!n++) text_str(t, "\nnot in the digest\n");
        report_entry(t, &s->notes[i]);
    }
}

static void digest_json(job *j, const ckr_state *s, const digest16 *each, const digest16 total)
{
    json w;
    uint64_t i;
    json_begin(&w, &j->out);
    json_key(&w, "digest");
    json_hex(&w, total, 16);
    json_list(&w, "tensors");
    for (i = 0; i < s->n_tensors; i++) {
        const ckr_tensor *t = s->tensors[i];
        json_open(&w, "{");
        json_pair(&w, "name", t->name);
        json_pair(&w, "slot", t->slot);
        json_pair(&w, "dtype", ckr_dtype_name(t->dtype));
        json_key(&w, "shape");
        json_shape(&w, t->n_dims, t->shape);
        json_key(&w, "digest");
        json_hex(&w, each[i], 16);
        json_close(&w, "}");
    }
    json_close(&w, "]");
    digest_json_left_out(&w, s);
    json_end(&w);
}

static void digest_text(job *j, const ckr_state *s, const digest16 *each, const digest16 total)
{
    static const char *const titles[] = { "name", "slot", "dtype", "shape", "digest" };
    text *t = &j->out;
    uint64_t i;
    table b;
    if (j->o.quiet) {
        text_hex(t, total, 16);
        text_str(t, "\n");
        return;
    }
    if (j->o.each) table_begin(&b, 5, 0, titles);
    for (i = 0; j->o.each && i < s->n_tensors; i++) {
        const ckr_tensor *x = s->tensors[i];
        table_text(&b, x->name);
        table_text(&b, x->slot);
        table_text(&b, ckr_dtype_name(x->dtype));
        text_shape(&b.cell, x->n_dims, x->shape);
        table_cell(&b);
        text_hex(&b.cell, each[i], 16);
        table_cell(&b);
    }
    if (j->o.each) table_end(&b, t);
    text_str(t, j->o.each ? "\n  " : "  ");
    text_paint(t, PAINT_BOLD);
    text_hex(t, total, 16);
    text_plain(t);
    text_str(t, "  all ");
    text_plural(t, s->n_tensors, "tensor", "tensors");
    text_str(t, "\n");
    digest_text_left_out(t, s);
}

int verb_digest(job *j)
{
    ckr_ckpt *c;
    digest16 *each, total;
    const ckr_state *s;
    ckr_result r;
    int code = open_checkpoint(j, j->args[0], &c);
    if (code != CODE_DONE) return code;
    s = ckr_ckpt_state(c);
    each = s->n_tensors < SIZE_MAX / 16 ? (digest16 *)calloc((size_t)s->n_tensors + 1, sizeof *each)
                                        : NULL;
    if (!each) {
        code = out_of_memory(j);
    } else {
        progress_begin(j);
        r = ckr_ckpt_digest(c, each, total, &j->err);
        progress_end(j);
        if (r != CKR_OK) code = fail(j);
        else if (j->o.json) digest_json(j, s, (const digest16 *)each, total);
        else digest_text(j, s, (const digest16 *)each, total);
    }
    free(each);
    ckr_ckpt_close(c);
    return code;
}

/* >>check --------------------------------------------------------------------- */

static void check_json(job *j, const ckr_ckpt *c, const report *notes, const ckr_report *r,
                       bool sound)
{
    uint64_t i;
    json w;
    json_begin(&w, &j->out);
    json_head(&w, c);
    json_pair_uint(&w, "bytes_read", r->bytes_read);
    json_pair_uint(&w, "tensor_bytes", r->tensor_bytes);
    json_pair_uint(&w, "uncovered_bytes", r->uncovered_bytes);
    json_key(&w, "nonfinite");
    json_open(&w, "[");
    for (i = 0; i < r->n_nonfinite; i++) {
        const ckr_nonfinite *x = &r->nonfinite[i];
        json_open(&w, "{");
        json_pair(&w, "name", x->tensor->name);
        json_pair(&w, "slot", x->tensor->slot);
        json_pair_uint(&w, "nan", x->nan);
        json_pair_uint(&w, "inf", x->inf);
        json_pair_uint(&w, "elements", x->n_elements);
        json_close(&w, "}");
    }
    json_close(&w, "]");
    json_key(&w, "sound");
    json_bool(&w, sound);
    json_report(&w, notes);
    json_end(&w);
}

#define NONFINITE_SHOWN 10

/* Tensors with NaN or infinite values, the first ten unless all are asked for. */
static void check_text_nonfinite(job *j, const ckr_report *r)
{
    text *t = &j->out;
    uint64_t i, shown = j->o.verbose ? r->n_nonfinite : NONFINITE_SHOWN;
    for (i = 0; i < r->n_nonfinite && i < shown; i++) {
        const ckr_nonfinite *x = &r->nonfinite[i];
        text line;
        memset(&line, 0, sizeof line);
        text_count(&line, x->nan + x->inf);
        text_str(&line, " of ");
        text_count(&line, x->n_elements);
        text_fmt(&line, " (%.3g%%) in ", 100.0 * (double)(x->nan + x->inf) / (double)x->n_elements);
        text_str(&line, x->tensor->name);
        text_fmt(&line, " (%s)", x->tensor->slot);
        label(t, i ? "" : "not finite");
        text_wrapped(t, &line, 13, 13);
    }
    if (r->n_nonfinite <= shown) return;
    label(t, "");
    text_str(t, "and ");
    text_count(t, r->n_nonfinite - shown);
    text_str(t, " tensors more: --verbose\n");
}

static void check_text(job *j, const ckr_ckpt *c, const report *notes, const ckr_report *r,
                       bool sound, double seconds)
{
    text *t = &j->out;
    if (j->o.quiet) {
        if (!sound) report_text(&j->note, notes, "not sound");
        text_drain(&j->note);
        return;
    }
    head_text(t, c, j->args[0]);
    label(t, "read");
    text_size(t, r->bytes_read);
    text_fmt(t, " in %.2f s\n", seconds);
    check_text_nonfinite(j, r);
    label(t, "result");
    text_painted(t, sound ? PAINT_GREEN : PAINT_RED, sound ? "sound" : "not sound");
    text_str(t, "\n");
    report_text(t, notes, "report");
}

int verb_check(job *j)
{
    ckr_ckpt *c;
    ckr_report *r = NULL;
    report notes;
    double seconds;
    bool sound;
    int code = open_checkpoint(j, j->args[0], &c);
    if (code != CODE_DONE) return code;
    progress_begin(j);
    code = ckr_ckpt_check(c, &r, &j->err) == CKR_OK ? CODE_DONE : CODE_INPUT;
    seconds = progress_end(j);
    if (code == CODE_DONE) {
        notes = report_of(ckr_ckpt_state(c)->notes, ckr_ckpt_state(c)->n_notes, r->notes,
                          r->n_notes);
        sound = r->sound && !report_count(&notes, CKR_ERROR);
        if (j->o.json) check_json(j, c, &notes, r, sound);
        else check_text(j, c, &notes, r, sound, seconds);
        code = sound ? CODE_DONE : CODE_REFUSED;
        ckr_report_free(r);
    } else {
        code = fail(j);
    }
    ckr_ckpt_close(c);
    return code;
}
