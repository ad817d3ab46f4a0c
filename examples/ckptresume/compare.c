/* digest and check. */

#include "tool.h"

/* >>digest -------------------------------------------------------------------- */

typedef uint8_t digest16[16];

static void digest_show(job *j, const ckr_state *s, const digest16 *each, const digest16 total)
{
    const bool all = j->o.each && !j->o.quiet;
    uint64_t i, n = 0;
    show w;
    show_begin(&w, &j->out, j->o.json);
    show_hex(&w, "digest", total, 16);
    text_count(show_text(&w, "n"), s->n_tensors);
    if (all) show_table(&w, "name|slot|dtype|shape|digest");
    show_list(&w, "tensors");
    for (i = 0; i < s->n_tensors && show_room(&w, i, all ? UINT64_MAX : 0); i++) {
        show_dict(&w, NULL);
        show_tensor(&w, s->tensors[i]);
        show_hex(&w, "digest", each[i], 16);
        show_cells(&w);
        show_close(&w);
    }
    show_close(&w);
    if (all) show_table_end(&w);
    if (all) show_line(&w, NULL, "");
    show_line(&w, NULL, j->o.quiet ? "{digest}" : "  {*digest}  all {n tensor/tensors}");
    show_list(&w, "report");
    for (i = 0; i < s->n_notes && show_room(&w, i, j->o.quiet ? 0 : UINT64_MAX); i++) {
        if (strncmp(s->notes[i].code, "CKR_W_TENSOR", 12) != 0) continue;  /* as reading found it */
        if (!n++) show_line(&w, NULL, "\nnot in the digest");
        show_entry(&w, &s->notes[i]);
    }
    show_close(&w);
    show_end(&w);
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
        else digest_show(j, s, (const digest16 *)each, total);
    }
    free(each);
    ckr_ckpt_close(c);
    return code;
}

/* >>check --------------------------------------------------------------------- */

/* Tensors with NaN or infinite values: ten for the eye, unless all are asked for. */
static void check_nonfinite(show *w, const ckr_report *r)
{
    const uint64_t most = show_most(w, 10);
    uint64_t i;
    show_list(w, "nonfinite");
    for (i = 0; i < r->n_nonfinite && show_room(w, i, most); i++) {
        const ckr_nonfinite *x = &r->nonfinite[i];
        show_dict(w, NULL);
        show_str(w, "name", x->tensor->name);
        show_str(w, "slot", x->tensor->slot);
        show_uint(w, "nan", x->nan);
        show_uint(w, "inf", x->inf);
        show_count(w, "elements", x->n_elements);
        text_count(show_text(w, "both"), x->nan + x->inf);
        text_fmt(show_text(w, "share"), "%.3g%%",
                 100.0 * (double)(x->nan + x->inf) / (double)x->n_elements);
        show_put(w, i ? "" : "not finite", "");
        show_wrap(w, 13, 13, "{both} of {elements} ({share}) in {name} ({slot})");
        show_close(w);
    }
    show_close(w);
    if (i == r->n_nonfinite) return;
    text_count(show_text(w, "left"), r->n_nonfinite - i);
    show_line(w, "", "and {left} tensors more: --verbose");
}

static void check_show(job *j, const ckr_ckpt *c, const report *notes, const ckr_report *r,
                       bool sound, double seconds)
{
    show w;
    show_job(&w, j);
    show_head(&w, c);
    show_head_lines(&w, c, j->args[0]);
    show_size(&w, "bytes_read", r->bytes_read);
    text_fmt(show_text(&w, "seconds"), "%.2f s", seconds);
    show_line(&w, "read", "{bytes_read} in {seconds}");
    show_size(&w, "tensor_bytes", r->tensor_bytes);
    show_size(&w, "uncovered_bytes", r->uncovered_bytes);
    check_nonfinite(&w, r);
    show_flag(&w, "sound", sound, "sound", "not sound", PAINT_RED);
    show_line(&w, "result", "{sound}");
    show_report(&w, notes, "report");
    show_end(&w);
    if (!sound) report_quietly(j, notes, "not sound");
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
        check_show(j, c, &notes, r, sound, seconds);
        code = sound ? CODE_DONE : CODE_REFUSED;
        ckr_report_free(r);
    } else {
        code = fail(j);
    }
    ckr_ckpt_close(c);
    return code;
}
