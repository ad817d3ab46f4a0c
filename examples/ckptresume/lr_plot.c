/* The `lr` printer: one column of the parameter groups (learning rate, weight decay, momentum)
   over the optimizer's updates, as the saved run would have gone on (before) and as the planned
   run will (after): a table for people, CSV and an SVG plot. Reads only an lr_series. Groups with
   equal curves are folded into one. Names may come from hostile files: they are escaped wherever
   they go. Numbers are printed with printf, whose decimal point follows
   LC_NUMERIC: the tool never calls setlocale, so it is a point. */

#include "tool.h"

#include <float.h>
#include <limits.h>

#define LR_TABLE_ROWS 20
#define LR_CURVES 6            /* shown; beyond them a sentence                       */
#define LR_NOTE_LINES 14
#define LR_LINE_BYTES 520
#define LR_LABEL_BYTES 160
#define LR_BEYOND 1e300        /* larger is drawn as infinite: differences stay finite */
#define LR_TINY 1e-300         /* smaller is drawn as 0: quotients stay finite         */

/* The plot in pixels; curves are written in tenths of a pixel, as integers. */
enum { LR_W = 1000, LR_LEFT = 84, LR_TOP = 104, LR_PW = 700, LR_PH = 350, LR_CELL = 5 };
enum { LR_BEFORE, LR_AFTER };

#define LR_U(n) ((unsigned long long)(n))              /* for %llu                    */

/* Groups whose curves are equal. */
typedef struct lr_class {
    size_t group, n_groups;    /* the first of them; how many                          */
    double last, next;         /* used by the update before the resume; first after it */
    double lo, hi;             /* of the values that can be drawn; lo > hi: none       */
    size_t known[2];           /* that can be drawn, of before and after               */
    size_t unknown[2], beyond[2], negative[2], negative_at[2];
} lr_class;

typedef struct lr_view {
    const lr_series *s;
    size_t n_rows;             /* of s, as far as their numbers fit an int64_t         */
    size_t resume;             /* first row of after                                   */
    bool resume_inside;        /* resume_at is the number of a row                     */
    size_t *class_of;          /* [n_groups]                                           */
    lr_class *classes;
    size_t n_classes;
    size_t shown[LR_CURVES], n_shown;            /* classes, in order            */
} lr_view;

typedef struct lr_rows { size_t row[LR_TABLE_ROWS], n, most; } lr_rows;
typedef struct lr_rank { double key; size_t index; } lr_rank;

/* ---- text ---- */

/* The code point at s and its bytes; 0 where it isn't UTF-8 or has no place in a line of text:
   controls, surrogates, noncharacters, and the marks that reorder what stands beside them. */
static uint32_t lr_utf8(const char *s, size_t *bytes)
{
    uint32_t c;
    *bytes = ckr_utf8(s, 4, &c);               /* a NUL is of no sequence: none reads past it  */
    if (!*bytes) *bytes = 1;
    if (*bytes == 1) return c == '\n' || c == '\t' ? ' ' : c >= 0x20 && c < 0x7F ? c : 0;
    if (c < 0xA0 || (c & 0xFFFE) == 0xFFFE || (c >= 0xFDD0 && c < 0xFDF0)) return 0;
    if (c == 0x200E || c == 0x200F || (c >= 0x2028 && c < 0x202F) || (c >= 0x2066 && c < 0x206A))
        return 0;
    return c;
}

/* Columns that the character at s takes, and its bytes. In ASCII, other bytes print as \xNN; in
   XML, they print as one mark. */
static size_t lr_columns(const char *s, bool ascii, size_t *bytes)
{
    uint32_t c = lr_utf8(s, bytes);
    if (!ascii) return c < 0x1100 ? 1 : 2;
    *bytes = 1;
    return c && c < 0x7F ? 1 : 4;
}

/* Bytes of s that fit into `width` columns; *used: the columns they take. */
static size_t lr_fit(const char *s, size_t width, bool ascii, size_t *used)
{
    size_t at = 0, bytes, columns;
    for (*used = 0; s[at]; at += bytes) {
        columns = lr_columns(s + at, ascii, &bytes);
        if (*used + columns > width) break;
        *used += columns;
    }
    return at;
}

/* The bytes of the next line of a text, broken at a space where there is one. */
static size_t lr_wrap(const char *s, size_t width, bool ascii)
{
    size_t used, n = lr_fit(s, width, ascii, &used), i;
    if (!s[n]) return n;
    for (i = n; i > n / 2; i--)
        if (s[i] == ' ' || s[i] == '\n') return i;
    return n;
}

static void lr_ascii(text *o, const char *s, size_t n)
{
    size_t i, bytes;
    for (i = 0; i < n; i++) {
        if (lr_columns(s + i, true, &bytes) == 4) text_fmt(o, "\\x%02x", (unsigned char)s[i]);
        else text_put(o, s[i] == '\n' || s[i] == '\t' ? " " : s + i, 1);
    }
}

static void lr_xml(text *o, const char *s, size_t n)
{
    size_t i, bytes;
    for (i = 0; i < n; i += bytes) {
        uint32_t c = lr_utf8(s + i, &bytes);
        if (!c) text_str(o, "&#xFFFD;");
        else if (c == '&') text_str(o, "&amp;");
        else if (c == '<') text_str(o, "&lt;");
        else if (c == '>') text_str(o, "&gt;");
        else if (c == '"') text_str(o, "&quot;");
        else if (c == '\'') text_str(o, "&#39;");
        else if (c == ' ') text_str(o, " ");
        else text_put(o, s + i, bytes);
    }
}

/* s, or as much as fits and "..."; the columns it took. */
static size_t lr_short(text *o, const char *s, size_t width, bool ascii)
{
    size_t used, n = lr_fit(s, width, ascii, &used);
    bool cut = s[n] != 0 && width > 3;
    if (cut) n = lr_fit(s, width - 3, ascii, &used);
    if (ascii) lr_ascii(o, s, n);
    else lr_xml(o, s, n);
    if (cut) text_str(o, "...");
    return used + (cut ? 3 : 0);
}

/* What the column is: in a sentence, and on an axis. */
static const char *lr_word(const lr_series *s, bool axis)
{
    const char *c = s->column ? s->column : "lr";
    if (strcmp(c, "lr") == 0) return axis ? "learning rate" : "LR";
    if (strcmp(c, "weight_decay") == 0) return "weight decay";
    return c;
}

static void lr_number(char *out, size_t cap, double v, int digits)
{
    if (isnan(v)) snprintf(out, cap, "?");
    else snprintf(out, cap, "%.*g", digits, v > 0 || v < 0 ? v : 0.0);
}

/* The change from a to b as a factor: "x36". */
static void lr_factor(char *out, size_t cap, double a, double b)
{
    double r;
    if (isnan(a) || isnan(b)) { snprintf(out, cap, "x?"); return; }
    if (!(a < b) && !(a > b)) { snprintf(out, cap, "no change"); return; }
    r = a > 0 || a < 0 ? b / a : 0.0;
    if (!(a > 0) && !(a < 0)) snprintf(out, cap, "from 0");
    else if (isnan(r)) snprintf(out, cap, "x?");
    else snprintf(out, cap, "x%.*g", r > 0.95 && r < 1.05 ? 5 : 3, r > 0 || r < 0 ? r : 0.0);
}

/* An integer with commas between thousands. */
static void lr_integer(char *out, size_t cap, int64_t v)
{
    char digits[32];
    size_t n, i, at = 0;
    snprintf(digits, sizeof digits, "%lld", (long long)v);
    n = strlen(digits);
    for (i = 0; i < n && at + 2 < cap; i++) {
        out[at++] = digits[i];
        if (digits[i] != '-' && i + 1 < n && (n - i - 1) % 3 == 0) out[at++] = ',';
    }
    out[at] = 0;
}

/* ---- the curves ---- */

/* The value of a group in a row; NaN where it isn't known, as after is before the resume. */
static double lr_at(const lr_view *v, int which, size_t row, size_t group)
{
    const double *p = which == LR_BEFORE ? v->s->before : v->s->after;
    if (!p || (which == LR_AFTER && row < v->resume)) return (double)NAN;
    return p[row * v->s->n_groups + group];
}

static int64_t lr_step(const lr_view *v, size_t row)
{
    return v->s->first + (int64_t)row;
}

static uint64_t lr_bits(double d)
{
    uint64_t u = 1;                        /* of every NaN                                  */
    if (!isnan(d)) {
        d += 0.0;                          /* -0 becomes 0                                  */
        memcpy(&u, &d, sizeof u);
    }
    return u;
}

static bool lr_drawable(double d)
{
    return d >= -LR_BEYOND && d <= LR_BEYOND;
}

static bool lr_same_curves(const lr_view *v, size_t a, size_t b)
{
    size_t row;
    for (row = 0; row < v->n_rows; row++)
        if (lr_bits(lr_at(v, LR_BEFORE, row, a)) != lr_bits(lr_at(v, LR_BEFORE, row, b)) ||
            lr_bits(lr_at(v, LR_AFTER, row, a)) != lr_bits(lr_at(v, LR_AFTER, row, b)))
            return false;
    return true;
}

/* One hash per group, row by row, as the values lie in memory. */
static void lr_hash(const lr_view *v, uint64_t *hash)
{
    size_t row, g;
    int k;
    for (row = 0; row < v->n_rows; row++)
        for (k = LR_BEFORE; k <= LR_AFTER; k++)
            for (g = 0; g < v->s->n_groups; g++) {
                uint64_t h = (hash[g] ^ lr_bits(lr_at(v, k, row, g))) * 0x9e3779b97f4a7c15u;
                hash[g] = h ^ h >> 29;
            }
}

/* Sorts the groups into classes, numbered by their first groups. */
static void lr_fold(lr_view *v, const uint64_t *hash, size_t *slots, size_t n_slots)
{
    size_t g, i, c;
    for (g = 0; g < v->s->n_groups; g++) {
        for (i = (size_t)hash[g] & (n_slots - 1); slots[i]; i = (i + 1) & (n_slots - 1)) {
            c = v->classes[slots[i] - 1].group;
            if (hash[c] == hash[g] && lr_same_curves(v, c, g)) break;
        }
        if (!slots[i]) {
            v->classes[v->n_classes].group = g;
            slots[i] = ++v->n_classes;
        }
        v->class_of[g] = slots[i] - 1;
        v->classes[slots[i] - 1].n_groups++;
    }
}

static void lr_count(lr_class *c, int which, size_t row, double d)
{
    if (isnan(d)) c->unknown[which]++;
    else if (!lr_drawable(d)) c->beyond[which]++;
    else {
        c->known[which]++;
        if (d < c->lo) c->lo = d;
        if (d > c->hi) c->hi = d;
        if (d < 0 && !c->negative[which]++) c->negative_at[which] = row;
    }
}

static void lr_count_all(lr_view *v)
{
    size_t row, i;
    for (i = 0; i < v->n_classes; i++) {
        lr_class *c = &v->classes[i];
        c->lo = DBL_MAX;
        c->hi = -DBL_MAX;
        c->last = c->next = (double)NAN;
        if (v->resume_inside) c->next = lr_at(v, LR_AFTER, v->resume, c->group);
        if (v->resume_inside && v->resume)
            c->last = lr_at(v, LR_BEFORE, v->resume - 1, c->group);
    }
    for (row = 0; row < v->n_rows; row++)
        for (i = 0; i < v->n_classes; i++) {
            lr_class *c = &v->classes[i];
            lr_count(c, LR_BEFORE, row, lr_at(v, LR_BEFORE, row, c->group));
            if (row >= v->resume) lr_count(c, LR_AFTER, row, lr_at(v, LR_AFTER, row, c->group));
        }
}

/* Where the resume is, without overflow for any update numbers. */
static void lr_range(lr_view *v)
{
    const lr_series *s = v->s;
    uint64_t room = (uint64_t)INT64_MAX - (uint64_t)s->first;
    v->n_rows = s->n_groups && (s->before || s->after) ? s->n_rows : 0;
    if (v->n_rows && v->n_rows - 1 > room) v->n_rows = (size_t)room + 1;
    v->resume = 0;
    if (s->resume_at > s->first) {
        uint64_t ahead = (uint64_t)s->resume_at - (uint64_t)s->first;
        v->resume = ahead < v->n_rows ? (size_t)ahead : v->n_rows;
    }
    v->resume_inside = s->resume_at >= s->first && v->resume < v->n_rows;
}

static void lr_close(lr_view *v)
{
    free(v->class_of);
    free(v->classes);
}

/* False without memory. lr_close in any case. */
static bool lr_open(lr_view *v, const lr_series *s)
{
    size_t n = s->n_groups, n_slots = 16;
    uint64_t *hash;
    size_t *slots;
    memset(v, 0, sizeof *v);
    v->s = s;
    lr_range(v);
    while (n_slots / 2 < n && n_slots <= SIZE_MAX / 4) n_slots *= 2;
    if (n_slots / 2 < n) n_slots = SIZE_MAX;           /* no such memory                */
    v->class_of = (size_t *)calloc(n + 1, sizeof *v->class_of);
    v->classes = (lr_class *)calloc(n + 1, sizeof *v->classes);
    hash = (uint64_t *)calloc(n + 1, sizeof *hash);
    slots = (size_t *)calloc(n_slots, sizeof *slots);
    if (v->class_of && v->classes && hash && slots) {
        lr_hash(v, hash);
        lr_fold(v, hash, slots, n_slots);
        lr_count_all(v);
    }
    n = v->class_of && v->classes && hash && slots;
    free(hash);
    free(slots);
    if (!n) errno = ENOMEM;
    return n != 0;
}

/* ---- which curves, and their names ---- */

static int lr_rank_order(const void *a, const void *b)
{
    const lr_rank *x = (const lr_rank *)a, *y = (const lr_rank *)b;
    if (x->key > y->key) return -1;
    if (x->key < y->key) return 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int lr_size_order(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

/* How far the resume moves a curve: a factor of at least 1; 0: not known. */
static double lr_jump(const lr_class *c)
{
    double r;
    if (isnan(c->last) || isnan(c->next)) return 0;
    if (!(c->last < c->next) && !(c->last > c->next)) return 1;
    if (!(c->last > 0) && !(c->last < 0)) return DBL_MAX;
    r = fabs(c->next / c->last);
    r = r < 1 && r > 0 ? 1 / r : r;
    return r >= 1 && r <= DBL_MAX ? r : DBL_MAX;
}

/* The class that jumps most, n_classes when all jump alike: rounding is no difference. */
static size_t lr_largest_jump(const lr_view *v)
{
    size_t i, best = 0;
    double least = DBL_MAX, most = 0, r;
    for (i = 0; i < v->n_classes; i++) {
        r = lr_jump(&v->classes[i]);
        if (r > most) { most = r; best = i; }
        if (r < least) least = r;
    }
    return most / 1.000001 > least ? best : v->n_classes;
}

/* Chooses at most `limit` classes: evenly from the highest peak to the lowest, so that what is left
   out lies between them, and the one that jumps most. */
static bool lr_choose(lr_view *v, size_t limit)
{
    size_t i, k, at, n = v->n_classes, n_even;
    lr_rank *rank;
    v->n_shown = n < limit ? n : limit;
    for (i = 0; i < v->n_shown; i++) v->shown[i] = i;
    if (n <= limit) return true;
    rank = (lr_rank *)malloc(n * sizeof *rank);
    if (!rank) { errno = ENOMEM; return false; }
    for (i = k = 0, at = lr_largest_jump(v); i < n; i++) {
        const lr_class *c = &v->classes[i];
        if (i == at) continue;
        rank[k].key = c->lo > c->hi ? -1 : c->hi > -c->lo ? c->hi : -c->lo;
        rank[k++].index = i;
    }
    qsort(rank, k, sizeof *rank, lr_rank_order);
    n_even = at < n ? limit - 1 : limit;
    if (at < n) v->shown[limit - 1] = at;
    for (i = 0; i < n_even; i++)
        v->shown[i] = rank[(size_t)((double)i / (double)(n_even - 1) * (double)(k - 1))].index;
    free(rank);
    qsort(v->shown, v->n_shown, sizeof v->shown[0], lr_size_order);
    return true;
}

/* The place in shown of the class that jumps most. */
static size_t lr_largest_shown(const lr_view *v)
{
    size_t i, best = 0;
    for (i = 1; i < v->n_shown; i++)
        if (lr_jump(&v->classes[v->shown[i]]) > lr_jump(&v->classes[v->shown[best]]) * 1.000001)
            best = i;
    return best;
}

/* NULL where it says no more than the number. */
static const char *lr_group_name(const lr_series *s, size_t g)
{
    const char *p = s->group_names ? s->group_names[g] : NULL;
    return p && p[strspn(p, "0123456789")] ? p : NULL;
}

/* "no_decay", "group 3", "groups 0-47", "groups 0,2-7,... (20)". */
static void lr_label(const lr_view *v, size_t class_i, char out[LR_LABEL_BYTES])
{
    const lr_class *c = &v->classes[class_i];
    const char *name = lr_group_name(v->s, c->group);
    size_t g, to, n = 0;
    if (c->n_groups == 1 && name) snprintf(out, LR_LABEL_BYTES, "%.150s", name);
    else if (c->n_groups == 1) snprintf(out, LR_LABEL_BYTES, "group %llu", LR_U(c->group));
    else if (v->n_classes == 1)
        snprintf(out, LR_LABEL_BYTES, "groups 0-%llu", LR_U(c->n_groups) - 1);
    if (c->n_groups == 1 || v->n_classes == 1) return;
    n = (size_t)snprintf(out, LR_LABEL_BYTES, "groups ");
    for (g = c->group; g < v->s->n_groups; g = to + 1) {
        to = g;
        if (v->class_of[g] != class_i) continue;
        while (to + 1 < v->s->n_groups && v->class_of[to + 1] == class_i) to++;
        if (n > 7) out[n++] = ',';
        if (n > 9) {
            snprintf(out + n, LR_LABEL_BYTES - n, "... (%llu)", LR_U(c->n_groups));
            return;
        }
        n += (size_t)snprintf(out + n, LR_LABEL_BYTES - n, to == g ? "%llu" : "%llu-%llu", LR_U(g),
                              LR_U(to));
    }
}

/* "last LR used 7.05e-07 at step 9860, first after resume 2.535e-05: x36". */
static void lr_jump_words(const lr_view *v, const lr_class *c, char *out, size_t cap)
{
    char last[40], next[40], factor[40];
    const char *word = lr_word(v->s, false), *unit = LR_UNIT;
    lr_number(last, sizeof last, c->last, 4);
    lr_number(next, sizeof next, c->next, 4);
    lr_factor(factor, sizeof factor, c->last, c->next);
    if (!v->resume_inside)
        snprintf(out, cap, "the resume at %.40s %lld is not in the range shown", unit,
                 (long long)v->s->resume_at);
    else if (!v->resume)
        snprintf(out, cap, "first %.40s after resume %s at %.40s %lld; the range begins there, so "
                 "the last one used is not shown", word, next, unit, (long long)v->s->resume_at);
    else
        snprintf(out, cap, "last %.40s used %s at %.40s %lld, first after resume %s: %s", word,
                 last, unit, (long long)lr_step(v, v->resume - 1), next, factor);
}

/* Whether every class shown has the jump of the first, in the digits that are printed. */
static bool lr_one_jump(const lr_view *v, bool values)
{
    char a[200], b[200];
    size_t i;
    for (i = 1; i < v->n_shown; i++) {
        const lr_class *c = &v->classes[v->shown[0]], *d = &v->classes[v->shown[i]];
        lr_factor(a, sizeof a, c->last, c->next);
        lr_factor(b, sizeof b, d->last, d->next);
        if (values) {
            lr_jump_words(v, c, a, sizeof a);
            lr_jump_words(v, d, b, sizeof b);
        }
        if (strcmp(a, b) != 0) return false;
    }
    return true;
}

/* ---- sentences about the values, for the table and the plot ---- */

/* Adds up one count of the classes; *at: the first row that any of them names. */
static size_t lr_sum(const lr_view *v, int which, char what, size_t *at)
{
    size_t i, n = 0;
    for (i = 0; i < v->n_classes; i++) {
        const lr_class *c = &v->classes[i];
        size_t k = what == '-' ? c->negative[which] :
                   what == '?' ? c->unknown[which] : c->beyond[which];
        if (what == '-' && k && (!n || c->negative_at[which] < *at)) *at = c->negative_at[which];
        n += k;
    }
    return n;
}

/* Is no value of before, or of after, known? */
static bool lr_blank(const lr_view *v, int which)
{
    size_t i, n = v->n_rows - (which == LR_AFTER ? v->resume : 0);
    for (i = 0; i < v->n_classes; i++) if (v->classes[i].unknown[which] < n) return false;
    return true;
}

/* Nor of the other: one sentence stands for table and curves. */
static bool lr_unknown(const lr_view *v)
{
    return v->n_rows && lr_blank(v, LR_BEFORE) && lr_blank(v, LR_AFTER);
}

static void lr_unknown_words(const lr_view *v, char *out, size_t cap)
{
    snprintf(out, cap, "the checkpoint does not record the %.40s of any %.40s from %lld to %lld",
             lr_word(v->s, true), LR_UNIT, (long long)v->s->first,
             (long long)lr_step(v, v->n_rows - 1));
}

/* The i-th sentence, or false after the last; an empty one doesn't apply. */
static bool lr_fact(const lr_view *v, size_t i, char *out, size_t cap)
{
    static const char kind[] = "--??ii";
    const char *curve = i % 2 ? "after" : "before";
    size_t at = 0, n, k, groups = 0, all;
    *out = 0;
    if (lr_unknown(v)) return false;
    if (i < 6) {
        n = lr_sum(v, (int)(i % 2), kind[i], &at);
        all = v->n_classes * (i % 2 ? v->n_rows - v->resume : v->n_rows);
        if (n && kind[i] == '-')
            snprintf(out, cap, "%s goes below zero at %.40s %lld", curve, LR_UNIT,
                     (long long)lr_step(v, at));
        else if (n && kind[i] == '?')
            snprintf(out, cap, "%s is not known %s: %llu of %llu values are missing", curve,
                     n < all ? "everywhere" : "at all", LR_U(n), LR_U(all));
        else if (n)
            snprintf(out, cap, "%s has values that are infinite or beyond 1e300: %llu", curve,
                     LR_U(n));
        return true;
    }
    if (i == 6 && v->n_shown < v->n_classes) {
        for (k = 0; k < v->n_shown; k++) groups += v->classes[v->shown[k]].n_groups;
        snprintf(out, cap, "%llu more distinct curves of %llu groups are not shown here; --csv "
                 "has all", LR_U(v->n_classes - v->n_shown), LR_U(v->s->n_groups - groups));
    }
    return i == 6;
}

/* ---- the table ---- */

static void lr_rows_add(lr_rows *r, size_t row)
{
    size_t i = 0;
    while (i < r->n && r->row[i] < row) i++;
    if (r->n == r->most || (i < r->n && r->row[i] == row)) return;
    memmove(r->row + i + 1, r->row + i, (r->n - i) * sizeof r->row[0]);
    r->row[i] = row;
    r->n++;
}

/* Where a curve turns: its peak and bottom, where it becomes known or unknown, and the rows whose
   second differences stand out. Leaves room in r. */
static void lr_rows_turns(const lr_view *v, lr_rows *r, int which, size_t group, size_t room)
{
    size_t row, lo = 0, hi = 0, best[4] = {0, 0, 0, 0}, n_edges = 0;
    double top[4] = {0, 0, 0, 0}, sum = 0, a, b, c, d, vlo = DBL_MAX, vhi = -DBL_MAX;
    size_t i, k, first = which == LR_AFTER ? v->resume : 0;
    for (row = first; row < v->n_rows; row++) {
        b = lr_at(v, which, row, group);
        if (b < vlo) { vlo = b; lo = row; }
        if (b > vhi) { vhi = b; hi = row; }
        if (row == first || row + 1 == v->n_rows) continue;
        a = lr_at(v, which, row - 1, group);
        c = lr_at(v, which, row + 1, group);
        if (isnan(b) != isnan(a) && n_edges++ < 2 && r->n + room < r->most)
            lr_rows_add(r, isnan(b) ? row - 1 : row);
        d = fabs((a - b) + (c - b));
        if (!(d <= DBL_MAX)) continue;
        sum += d / (double)v->n_rows;
        for (i = 0; i < 4 && d <= top[i]; i++) {}
        for (k = 3; i < 4 && k > i; k--) { top[k] = top[k - 1]; best[k] = best[k - 1]; }
        if (i < 4) { top[i] = d; best[i] = row; }
    }
    if (vlo <= vhi && r->n + room < r->most) lr_rows_add(r, hi);
    if (vlo <= vhi && r->n + room < r->most) lr_rows_add(r, lo);
    for (i = 0; i < 4; i++)
        if (top[i] > 8 * sum && top[i] > 1e-9 * (vhi - vlo) && r->n + room < r->most)
            lr_rows_add(r, best[i]);
}

/* A row in the middle of the widest gap, at a round update number where one is near. */
static bool lr_rows_fill(const lr_view *v, lr_rows *r)
{
    size_t i, at = 0, gap = 1, row;
    int64_t step, unit = 1;
    for (i = 1; i < r->n; i++)
        if (r->row[i] - r->row[i - 1] > gap) { gap = r->row[i] - r->row[i - 1]; at = i; }
    if (gap < 2 || r->n == r->most) return false;
    while (unit <= (int64_t)(gap / 80)) unit *= 10;
    row = r->row[at - 1] + gap / 2;
    step = lr_step(v, row) - lr_step(v, row) % unit;
    if (step > lr_step(v, r->row[at - 1]) && step < lr_step(v, r->row[at]))
        row = r->row[at - 1] + (size_t)(step - lr_step(v, r->row[at - 1]));
    lr_rows_add(r, row);
    return true;
}

static void lr_rows_choose(const lr_view *v, lr_rows *r)
{
    size_t i, n = v->n_rows;
    const bool blank = v->resume < n && lr_blank(v, LR_BEFORE);
    r->n = 0;
    if (!n) return;
    lr_rows_add(r, blank ? v->resume : 0);
    lr_rows_add(r, n - 1);
    if (v->resume && v->resume <= n && !blank) lr_rows_add(r, v->resume - 1);
    for (i = 0; i < 2; i++)
        if (v->resume_inside && v->resume + i < n) lr_rows_add(r, v->resume + i);
    for (i = 0; i < v->n_shown && n > r->most; i++) {
        const lr_class *c = &v->classes[v->shown[i]];
        if (c->negative[LR_AFTER] && r->n + 8 < r->most)
            lr_rows_add(r, c->negative_at[LR_AFTER]);
        lr_rows_turns(v, r, LR_AFTER, c->group, 4);
        lr_rows_turns(v, r, LR_BEFORE, c->group, 4);
    }
    while (lr_rows_fill(v, r)) {}
}

static void lr_table_cells(text *o, const lr_view *v, size_t row, size_t group)
{
    double b = lr_at(v, LR_BEFORE, row, group), a = lr_at(v, LR_AFTER, row, group), r;
    char before[40], after[40], ratio[40];
    lr_number(before, sizeof before, b, 6);
    lr_number(after, sizeof after, a, 6);
    r = b > 0 || b < 0 ? a / b : 0;
    if (isnan(a) || isnan(b)) snprintf(ratio, sizeof ratio, "?");
    else if ((!(b > 0) && !(b < 0)) || isnan(r)) snprintf(ratio, sizeof ratio, "-");
    else lr_number(ratio, sizeof ratio, r, fabs(r) >= 1e-3 && fabs(r) < 1e4 ? 4 : 2);
    if (row < v->resume) text_fmt(o, "  %11s %11s %8s", before, ".", ".");
    else text_fmt(o, "  %11s %11s %8s", before, after, ratio);
}

static void lr_table_head(text *o, const lr_view *v, size_t from, size_t to, size_t width)
{
    char label[LR_LABEL_BYTES];
    size_t i, n, used;
    text_str(o, "\n");
    text_pad(o, width);
    for (i = from; i < to; i++) {
        lr_label(v, v->shown[i], label);
        text_str(o, "   ");
        n = lr_short(o, label, 31, true);
        if (i + 1 < to) text_pad(o, 31 - n);
    }
    text_str(o, "\n");
    lr_fit(LR_UNIT, width, true, &used);
    text_pad(o, width - used);
    lr_short(o, LR_UNIT, width, true);
    for (i = from; i < to; i++) text_fmt(o, "  %11s %11s %8s", "before", "after", "ratio");
    text_str(o, "\n");
}

/* The columns of the classes shown[from .. to). */
static void lr_table_block(text *o, const lr_view *v, const lr_rows *r, size_t from, size_t to,
                           size_t width)
{
    size_t i, k;
    lr_table_head(o, v, from, to, width);
    for (i = 0; i < r->n; i++) {
        if (r->row[i] == v->resume && v->resume_inside) {
            for (k = width + (to - from) * 34 - 7; k > 0; k--) text_str(o, "-");
            text_str(o, " resume\n");
        }
        text_fmt(o, "%*lld", (int)width, (long long)lr_step(v, r->row[i]));
        for (k = from; k < to; k++)
            lr_table_cells(o, v, r->row[i], v->classes[v->shown[k]].group);
        text_str(o, "\n");
    }
}

static size_t lr_line_columns(const text *o)
{
    return o->width ? o->width : 100;
}

/* A paragraph, its first line after `mark`, the others below the first's text. */
static void lr_table_text(text *o, const char *mark, const char *s)
{
    size_t n, indent = strlen(mark);
    text_str(o, mark);
    for (;;) {
        n = lr_wrap(s, lr_line_columns(o) - indent, true);
        lr_ascii(o, s, n);
        text_str(o, "\n");
        s += n;
        while (*s == ' ' || *s == '\n') s++;
        if (!*s) return;
        text_pad(o, indent);
    }
}

static void lr_table_words(text *o, const lr_view *v)
{
    char words[500], label[LR_LABEL_BYTES];
    size_t i, n;
    bool one = lr_one_jump(v, true) || !v->resume_inside;
    text_str(o, "\n");
    for (i = 0; i < (one ? 1 : v->n_shown); i++) {
        const lr_class *c = &v->classes[v->shown[i]];
        lr_label(v, v->shown[i], label);
        n = one ? 0 : (size_t)snprintf(words, sizeof words, "%s: ", label);
        lr_jump_words(v, c, words + n, sizeof words - n);
        lr_table_text(o, "", words);
    }
    for (i = 0; lr_fact(v, i, words, sizeof words); i++)
        if (*words) lr_table_text(o, "note: ", words);
}

static void lr_table_unknown(text *o, const lr_view *v)
{
    char words[200];
    lr_unknown_words(v, words, sizeof words);
    text_str(o, "\n");
    lr_table_text(o, "", words);
}

/* Of the column with the update numbers. */
static size_t lr_table_width(const lr_view *v)
{
    char first[32], last[32] = "";
    size_t a, b;
    snprintf(first, sizeof first, "%lld", (long long)v->s->first);
    if (v->n_rows) snprintf(last, sizeof last, "%lld", (long long)lr_step(v, v->n_rows - 1));
    a = strlen(first);
    b = strlen(last) < 6 ? 6 : strlen(last);
    return a > b ? a : b;
}

/* A table for people: the first and last rows, those around the resume and where curves turn, and
   some between. False: memory is short. */
bool lr_table(text *o, const lr_series *s)
{
    lr_view v;
    lr_rows r;
    size_t i, width, per_block, blocks;
    bool ok = lr_open(&v, s) && lr_choose(&v, LR_CURVES), known;
    if (ok) {
        lr_table_text(o, "", lr_word(s, true));
        width = lr_table_width(&v);
        per_block = (lr_line_columns(o) - width) / 34;
        if (!per_block) per_block = 1;
        blocks = (v.n_shown + per_block - 1) / per_block;
        r.most = blocks < 2 ? LR_TABLE_ROWS : blocks < 4 ? 32 / blocks : 8;
        lr_rows_choose(&v, &r);
        known = v.n_rows && !lr_unknown(&v);
        if (!v.n_rows) text_str(o, "\nno values\n");
        else if (!known) lr_table_unknown(o, &v);
        for (i = 0; known && i < v.n_shown; i += per_block)
            lr_table_block(o, &v, &r, i, v.n_shown - i > per_block ? i + per_block : v.n_shown,
                           width);
        if (known) lr_table_words(o, &v);
    }
    lr_close(&v);
    return ok;
}

/* ---- CSV ---- */

static int lr_string_order(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Whether every group has a name and no two have the same: else the header has their numbers. */
static bool lr_names_serve(const lr_series *s, bool *serve)
{
    const char **names;
    size_t i;
    *serve = false;
    if (!s->group_names || !s->n_groups) return true;
    for (i = 0; i < s->n_groups; i++)
        if (!s->group_names[i] || !*s->group_names[i]) return true;
    names = s->n_groups <= SIZE_MAX / sizeof *names ?
            (const char **)malloc(s->n_groups * sizeof *names) : NULL;
    if (!names) { errno = ENOMEM; return false; }
    for (i = 0; i < s->n_groups; i++) names[i] = s->group_names[i];
    qsort((void *)names, s->n_groups, sizeof *names, lr_string_order);
    for (i = 1; i < s->n_groups && strcmp(names[i - 1], names[i]) != 0; i++) {}
    *serve = i == s->n_groups;
    free((void *)names);
    return true;
}

/* ",before_NAME": RFC 4180 knows no control bytes, so they are written as \xNN. */
static void lr_csv_name(text *o, const char *which, const char *name)
{
    bool quote = strpbrk(name, ",\"") || name[strlen(name) - 1] == ' ';
    text_fmt(o, ",%s%s_", quote ? "\"" : "", which);
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        if (c < 0x20 || c == 0x7F) text_fmt(o, "\\x%02x", c);
        else if (c == '"') text_str(o, "\"\"");
        else text_put(o, name, 1);
    }
    if (quote) text_str(o, "\"");
}

static void lr_csv_head(text *o, const lr_series *s, bool names)
{
    size_t g;
    int k;
    text_str(o, "step");
    for (k = LR_BEFORE; k <= LR_AFTER; k++)
        for (g = 0; g < s->n_groups; g++) {
            const char *which = k == LR_BEFORE ? "before" : "after";
            if (names) lr_csv_name(o, which, s->group_names[g]);
            else text_fmt(o, ",%s_%llu", which, LR_U(g));
        }
    text_str(o, "\r\n");
}

/* Every row as RFC 4180 has it: step, before and after of each group with 17 significant digits;
   empty: not known, or after ahead of the resume. False: memory is short. */
bool lr_csv(text *o, const lr_series *s)
{
    lr_view v;
    size_t row, g;
    bool names;
    int k;
    memset(&v, 0, sizeof v);
    v.s = s;
    lr_range(&v);
    if (!lr_names_serve(s, &names)) return false;
    lr_csv_head(o, s, names);
    for (row = 0; row < v.n_rows && !o->failed; row++) {
        text_fmt(o, "%lld", (long long)lr_step(&v, row));
        for (k = LR_BEFORE; k <= LR_AFTER; k++)
            for (g = 0; g < s->n_groups; g++) {
                double d = lr_at(&v, k, row, g);
                if (isnan(d)) text_str(o, ",");
                else text_fmt(o, ",%.17g", d);
            }
        text_str(o, "\r\n");
    }
    return true;
}

/* ---- SVG: the plane ---- */

typedef struct lr_end_label { int x, y, at; size_t shown; int which; } lr_end_label;

typedef struct lr_plot {
    const lr_view *v;
    text *o;
    bool empty, flat_zero;     /* nothing can be drawn; or nothing but 0               */
    bool below;                /* something drawn is below 0                           */
    double lo, hi, tick;       /* of the vertical axis                                 */
    lr_end_label ends[2 * LR_CURVES];
    size_t n_ends, n_lines;
    char lines[LR_NOTE_LINES][LR_LINE_BYTES];          /* below the plot               */
    uint8_t ink[LR_PH / LR_CELL][LR_PW / LR_CELL];     /* where something is drawn     */
} lr_plot;

/* One path: points in tenths of a pixel, level steps joined. */
typedef struct lr_pen { lr_plot *p; int x, y, level; size_t n; } lr_pen;

/* The rows of one column of pixels. */
typedef struct lr_bucket { int column; size_t n, first, last, lo, hi; double vlo, vhi; } lr_bucket;

/* The last of each is for the legend of several curves. */
static const char *const lr_color[2][LR_CURVES + 1] = {
    {"#222222", "#7a2a00", "#005a30", "#6d2a55", "#000000", "#4d3b00", "#222222"},
    {"#3f8fd0", "#e08a5a", "#4fb58f", "#d59cbd", "#808080", "#c9a227", "#999999"}};
static const char *const lr_dash[2][LR_CURVES + 1] = {
    {"50 35", "90 35", "18 28", "90 28 18 28", "140 30", "90 28 18 28 18 28", "50 35"},
    {"", "150 45", "70 40", "170 40 30 40", "35 30", "170 35 30 35 30 35", ""}};

static int lr_x(const lr_plot *p, size_t row)
{
    double n = (double)p->v->n_rows - 1;
    if (p->v->n_rows < 2) return LR_LEFT * 10 + LR_PW * 5;
    return LR_LEFT * 10 + (int)((double)row / n * (LR_PW * 10) + 0.5);
}

static int lr_y(const lr_plot *p, double d)
{
    double at = (p->hi - d) / (p->hi - p->lo);
    at = at < 0 ? 0 : at > 1 ? 1 : at;
    return LR_TOP * 10 + (int)(at * (LR_PH * 10) + 0.5);
}

static int lr_clamp(int i, int hi)
{
    return i < 0 ? 0 : i > hi ? hi : i;
}

/* Remembers that a line from (x0, y0) to (x1, y1), x0 <= x1, in tenths of a pixel, is drawn. */
static void lr_ink(lr_plot *p, int x0, int y0, int x1, int y1)
{
    const int cell = LR_CELL * 10, w = LR_PW / LR_CELL - 1, h = LR_PH / LR_CELL - 1;
    double slope = x1 > x0 ? (double)(y1 - y0) / (double)(x1 - x0) : 0;
    int cx, cy, a, b, from, to;
    x0 -= LR_LEFT * 10;
    x1 -= LR_LEFT * 10;
    for (cx = lr_clamp(x0 / cell, w); cx <= lr_clamp(x1 / cell, w); cx++) {
        a = cx * cell < x0 ? x0 : cx * cell;
        b = (cx + 1) * cell > x1 ? x1 : (cx + 1) * cell;
        from = x1 > x0 ? y0 + (int)(slope * (a - x0)) : y0;
        to = x1 > x0 ? y0 + (int)(slope * (b - x0)) : y1;
        if (from > to) { a = from; from = to; to = a; }
        for (cy = lr_clamp((from - LR_TOP * 10) / cell, h);
             cy <= lr_clamp((to - LR_TOP * 10) / cell, h); cy++)
            p->ink[cy][cx] = 1;
    }
}

/* 1, 2, 2.5 or 5 times a power of ten, at least d; d is in [LR_TINY, 4 LR_BEYOND]. */
static double lr_nice(double d)
{
    double unit = pow(10, floor(log10(d))), m = d / unit;
    return unit * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 2.5 ? 2.5 : m <= 5 ? 5 : 10);
}

/* The vertical axis: it has 0 on it, unless the column is a momentum, which moves little. */
static void lr_scale(lr_plot *p)
{
    const lr_view *v = p->v;
    double lo = DBL_MAX, hi = -DBL_MAX, most, span;
    size_t i;
    for (i = 0; i < v->n_shown; i++) {
        const lr_class *c = &v->classes[v->shown[i]];
        if (c->lo < lo) lo = c->lo;
        if (c->hi > hi) hi = c->hi;
    }
    p->empty = lo > hi;
    most = p->empty ? 0 : hi > -lo ? hi : -lo;
    p->flat_zero = most < LR_TINY;
    if (p->flat_zero) { lo = 0; hi = 1; most = 1; }
    span = strcmp(lr_word(v->s, false), "momentum") == 0 && hi - lo > 1e-6 * most ? 0.5 : 2;
    if (lo > 0 && lo < span * hi) lo = 0;
    if (hi < 0 && hi > span * lo) hi = 0;
    span = hi - lo;
    p->below = lo < 0;
    p->lo = lo - (lo < 0 || lo > 0 ? 0.06 : 0.025) * span;
    p->hi = hi + (hi < 0 || hi > 0 ? 0.06 : 0.025) * span;
    p->tick = lr_nice((p->hi - p->lo) / 7);
}

/* ---- SVG: the curves ---- */

static void lr_pen_level(lr_pen *pen)
{
    if (pen->level) text_fmt(pen->p->o, "h%d", pen->level);
    pen->level = 0;
}

static void lr_pen_to(lr_pen *pen, int x, int y)
{
    int dx = x - pen->x, dy = y - pen->y;
    if (!pen->n++) text_fmt(pen->p->o, "M%d %d", x, y);
    else if (!dx && !dy) { pen->n--; return; }
    else if (!dy) pen->level += dx;
    else {
        lr_pen_level(pen);
        if (!dx) text_fmt(pen->p->o, "v%d", dy);
        else text_fmt(pen->p->o, dy < 0 ? "l%d%d" : "l%d %d", dx, dy);
    }
    if (pen->n == 1) lr_ink(pen->p, x, y, x, y);
    else lr_ink(pen->p, pen->x, pen->y, x, y);
    pen->x = x;
    pen->y = y;
}

/* A point alone would be invisible: it becomes a short stroke. */
static void lr_pen_up(lr_pen *pen)
{
    lr_pen_level(pen);
    if (pen->n == 1) text_str(pen->p->o, "m-15 0h30");
    pen->n = 0;
}

static void lr_bucket_row(lr_bucket *b, int column, size_t row, double d)
{
    if (!b->n++) {
        b->column = column;
        b->first = b->lo = b->hi = row;
        b->vlo = b->vhi = d;
    }
    if (d < b->vlo) { b->vlo = d; b->lo = row; }
    if (d > b->vhi) { b->vhi = d; b->hi = row; }
    b->last = row;
}

/* The lowest and the highest row of a column of pixels, in their order; at the ends of a run of
   known values its very first and last, too. */
static void lr_bucket_draw(lr_bucket *b, lr_pen *pen, const lr_view *v, int which, size_t g,
                           bool end)
{
    size_t rows[4], n = 0, i;
    if (!b->n) return;
    if (!pen->n) rows[n++] = b->first;
    rows[n++] = b->lo < b->hi ? b->lo : b->hi;
    rows[n++] = b->lo < b->hi ? b->hi : b->lo;
    if (end) rows[n++] = b->last;
    for (i = 0; i < n; i++)
        lr_pen_to(pen, lr_x(pen->p, rows[i]), lr_y(pen->p, lr_at(v, which, rows[i], g)));
    if (end) lr_pen_up(pen);
    b->n = 0;
}

/* The data of one path. Rows without a value leave a gap where it is as wide as a pixel. */
static void lr_trace(lr_plot *p, int which, size_t g, lr_pen *pen)
{
    lr_bucket b;
    size_t row;
    memset(&b, 0, sizeof b);
    memset(pen, 0, sizeof *pen);
    pen->p = p;
    for (row = which == LR_AFTER ? p->v->resume : 0; row < p->v->n_rows; row++) {
        double d = lr_at(p->v, which, row, g);
        int column;
        if (!lr_drawable(d)) continue;
        column = lr_x(p, row) / 10;
        if (b.n && column != b.column)
            lr_bucket_draw(&b, pen, p->v, which, g, row - b.last > 1 && column > b.column + 1);
        lr_bucket_row(&b, column, row, d);
    }
    lr_bucket_draw(&b, pen, p->v, which, g, true);
}

static void lr_stroke(lr_plot *p, int which, size_t shown)
{
    text_fmt(p->o, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%d\"",
              lr_color[which][shown], which == LR_BEFORE ? 14 : 34);
    if (*lr_dash[which][shown]) text_fmt(p->o, " stroke-dasharray=\"%s\"", lr_dash[which][shown]);
    text_str(p->o, " d=\"");
}

/* A triangle at the edge for the first of the values beyond the scale, at most 40 of a curve. */
static void lr_beyond(lr_plot *p, int which, size_t g, size_t shown)
{
    size_t row, n = 0;
    int x, last = -200;
    for (row = which == LR_AFTER ? p->v->resume : 0; row < p->v->n_rows && n < 40; row++) {
        double d = lr_at(p->v, which, row, g);
        if (isnan(d) || lr_drawable(d) || (x = lr_x(p, row)) - last < 120) continue;
        text_fmt(p->o, "<path fill=\"%s\" d=\"M%d %dh80l-40 %dz\"/>\n",
                  lr_color[which][shown], x - 40, (d > 0 ? LR_TOP : LR_TOP + LR_PH) * 10,
                  d > 0 ? -80 : 80);
        last = x;
        n++;
    }
}

/* After first, broad and pale, then before, thin and dark, so that both show where they agree. */
static void lr_curves(lr_plot *p)
{
    const lr_view *v = p->v;
    size_t i;
    int which;
    text_str(p->o, "<g transform=\"scale(0.1)\" stroke-linejoin=\"round\">\n");
    for (which = LR_AFTER; which >= LR_BEFORE; which--)
        for (i = 0; i < v->n_shown; i++) {
            const lr_class *c = &v->classes[v->shown[i]];
            lr_pen pen;
            if (c->beyond[which]) lr_beyond(p, which, c->group, i);
            if (!c->known[which]) continue;
            lr_stroke(p, which, i);
            lr_trace(p, which, c->group, &pen);
            text_str(p->o, "\"/>\n");
            p->ends[p->n_ends].x = pen.x;
            p->ends[p->n_ends].y = p->ends[p->n_ends].at = pen.y;
            p->ends[p->n_ends].shown = i;
            p->ends[p->n_ends++].which = which;
        }
    text_str(p->o, "</g>\n");
}

/* ---- SVG: words ---- */

/* `more` is attributes; at most `width` columns of s are printed. */
static void lr_text(lr_plot *p, double x, double y, const char *more, const char *s, size_t width)
{
    text_fmt(p->o, "<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, more);
    lr_short(p->o, s, width, false);
    text_str(p->o, "</text>\n");
}

/* Pixels that a text of the small size takes, about: fonts differ. */
static int lr_text_pixels(const char *s)
{
    size_t used;
    lr_fit(s, 200, false, &used);
    return (int)(used * 36 / 5);
}

static int lr_ink_in(const lr_plot *p, int x, int y, int w, int h)
{
    int cx, cy, n = 0;
    for (cy = y / LR_CELL; cy <= (y + h) / LR_CELL && cy < LR_PH / LR_CELL; cy++)
        for (cx = x / LR_CELL; cx <= (x + w) / LR_CELL && cx < LR_PW / LR_CELL; cx++)
            n += p->ink[cy][cx];
    return n;
}

/* Puts a box of w by h pixels near (ax, ay) where it hides least; all relative to the plot. */
static void lr_place(lr_plot *p, int w, int h, int ax, int ay, int *x, int *y)
{
    int side, gap, ty, tx, cost, best = INT_MAX;
    *x = lr_clamp(ax + 12, LR_PW - w);
    *y = lr_clamp(ay, LR_PH - h);
    for (side = 0; side < 2; side++)
        for (gap = 12; gap < 260; gap += 20)
            for (ty = 4; ty + h < LR_PH - 4; ty += 4) {
                tx = side ? ax - gap - w : ax + gap;
                if (tx < 4 || tx + w > LR_PW - 4) continue;
                cost = lr_ink_in(p, tx - 4, ty - 2, w + 8, h + 4) * 400 + gap +
                       (ty + h / 2 > ay ? ty + h / 2 - ay : ay - ty - h / 2);
                if (cost < best) { best = cost; *x = tx; *y = ty; }
            }
    tx = (*x + LR_LEFT) * 10;
    for (ty = *y + LR_TOP; ty <= *y + LR_TOP + h; ty += LR_CELL)
        lr_ink(p, tx, ty * 10, tx + w * 10, ty * 10);
}

/* Decimals that show every multiple of the tick, in units of a power of ten. */
static int lr_tick_decimals(double tick, int exponent)
{
    int n, fine = (int)floor(log10(tick) + 1e-9);
    double m;
    for (n = exponent > fine ? exponent - fine : 0; n < exponent - fine + 2; n++) {
        m = tick / pow(10, exponent - n);
        if (fabs(m - floor(m + 0.5)) < 1e-6) break;
    }
    return n;
}

/* A number on the vertical axis: every tick with the same exponent and decimals. */
static void lr_tick_text(const lr_plot *p, double d, char *out, size_t cap)
{
    double most = p->hi > -p->lo ? p->hi : -p->lo;
    int e = (int)floor(log10(most) + 1e-9), n = lr_tick_decimals(p->tick, 0);
    if (fabs(d) < p->tick / 2) snprintf(out, cap, "0");
    else if (e > 5 || e < -3 || n > 4 + (p->lo > 0))
        snprintf(out, cap, "%.*fe%d", lr_tick_decimals(p->tick, e), d / pow(10, e), e);
    else snprintf(out, cap, "%.*f", n, d);
}

static void lr_axis_y(lr_plot *p)
{
    const char *word = lr_word(p->v->s, true);
    char words[48];
    double k, last;
    text_fmt(p->o, "<text transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\" "
              "font-size=\"13\">", LR_TOP + LR_PH / 2);
    lr_short(p->o, word, 48, false);
    text_str(p->o, "</text>\n");
    if (p->empty) return;
    last = p->flat_zero ? 0 : floor(p->hi / p->tick);
    for (k = p->flat_zero ? 0 : ceil(p->lo / p->tick); k <= last; k += 1) {
        double y = lr_y(p, k * p->tick) / 10.0;
        text_fmt(p->o, "<path stroke=\"#d8d8d8\" d=\"M%d %.1fh%d\"/><path stroke=\"#222\" "
                  "d=\"M%d %.1fh-5\"/>\n", LR_LEFT, y, LR_PW, LR_LEFT, y);
        lr_tick_text(p, k * p->tick, words, sizeof words);
        lr_text(p, LR_LEFT - 8, y + 4, " text-anchor=\"end\"", words, 40);
    }
}

/* The distance between ticks on the horizontal axis: 1, 2 or 5 times a power of ten, as fine as
   the numbers leave room for. */
static int64_t lr_axis_x_tick(const lr_view *v)
{
    char words[48], other[48];
    int64_t tick = 1;
    int i;
    double span = (double)(v->n_rows - 1), room;
    lr_integer(words, sizeof words, lr_step(v, v->n_rows - 1));
    lr_integer(other, sizeof other, v->s->first);
    room = lr_text_pixels(strlen(words) > strlen(other) ? words : other) + 24;
    for (i = 0; (double)tick / span * LR_PW < room && tick < (int64_t)1 << 59; i++)
        tick = i % 3 == 1 ? tick / 2 * 5 : tick * 2;
    return tick;
}

static void lr_axis_x_mark(lr_plot *p, size_t row)
{
    char words[48];
    double x = lr_x(p, row) / 10.0;
    text_fmt(p->o, "<path stroke=\"#222\" d=\"M%.1f %dv5\"/>\n", x, LR_TOP + LR_PH);
    lr_integer(words, sizeof words, lr_step(p->v, row));
    lr_text(p, x, LR_TOP + LR_PH + 19, " text-anchor=\"middle\"", words, 40);
}

static void lr_axis_x(lr_plot *p)
{
    const lr_view *v = p->v;
    size_t row;
    int64_t tick, rest;
    lr_text(p, LR_LEFT + LR_PW / 2, LR_TOP + LR_PH + 42, " text-anchor=\"middle\" font-size=\"13\"",
            "optimizer update", 80);
    if (!v->n_rows) return;
    if (v->n_rows == 1) { lr_axis_x_mark(p, 0); return; }
    tick = lr_axis_x_tick(v);
    rest = v->s->first % tick;
    row = (size_t)(rest > 0 ? tick - rest : -rest);
    if (row >= v->n_rows) lr_axis_x_mark(p, 0);
    for (; row < v->n_rows; row += (size_t)tick) lr_axis_x_mark(p, row);
}

/* ---- SVG: the resume ---- */

static void lr_resume_line(lr_plot *p)
{
    const lr_view *v = p->v;
    char words[120];
    double x;
    int half;
    if (!v->resume_inside) return;
    x = lr_x(p, v->resume) / 10.0;
    snprintf(words, sizeof words, "resume: %.40s %lld", LR_UNIT, (long long)v->s->resume_at);
    half = lr_text_pixels(words) / 2 + 4;
    text_fmt(p->o, "<path stroke=\"#222\" stroke-width=\"1.2\" d=\"M%.1f %dv%d\"/>\n", x,
              LR_TOP - 4, LR_PH + 4);
    lr_ink(p, (int)(x * 10), LR_TOP * 10, (int)(x * 10), (LR_TOP + LR_PH) * 10);
    if (x - half < LR_LEFT) x = LR_LEFT + half;
    if (x + half > LR_LEFT + LR_PW) x = LR_LEFT + LR_PW - half;
    lr_text(p, x, LR_TOP - 9, " text-anchor=\"middle\" font-weight=\"bold\"", words, 60);
}

/* An open circle at the last value used, a filled one at the first after, a line between them, from
   y[0] down to y[1]. False where one of them isn't on the plane. */
static bool lr_jump_mark(lr_plot *p, const lr_class *c, int y[2])
{
    const lr_view *v = p->v;
    double x0, x1, y0, y1;
    if (!v->resume_inside || !v->resume || !lr_drawable(c->last) || !lr_drawable(c->next))
        return false;
    x0 = lr_x(p, v->resume - 1) / 10.0;
    x1 = lr_x(p, v->resume) / 10.0;
    y0 = lr_y(p, c->last) / 10.0;
    y1 = lr_y(p, c->next) / 10.0;
    text_fmt(p->o, "<path stroke=\"#222\" stroke-width=\"2.4\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n"
              "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#fff\" stroke=\"#222\" "
              "stroke-width=\"1.4\"/><circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#222\"/>\n",
              x0, y0, x1, y1, x0, y0, x1, y1);
    y[0] = (int)(y0 < y1 ? y0 : y1);
    y[1] = (int)(y0 < y1 ? y1 : y0);
    return true;
}

/* The lines of the note at the jump: one factor for all, or one per curve. */
static size_t lr_jump_lines(const lr_view *v, char line[LR_CURVES + 1][LR_LABEL_BYTES])
{
    char a[40], b[40], label[LR_LABEL_BYTES];
    size_t i, n, used;
    bool same = lr_one_jump(v, false);
    for (i = 0; i < (same ? 1 : v->n_shown); i++) {
        const lr_class *c = &v->classes[v->shown[i]];
        lr_factor(a, sizeof a, c->last, c->next);
        lr_label(v, v->shown[i], label);
        n = lr_fit(label, 24, false, &used);
        if (same)
            snprintf(line[i], LR_LABEL_BYTES, "%s%s", a, v->n_shown > 1 ? " for every curve" : "");
        else
            snprintf(line[i], LR_LABEL_BYTES, "%.*s%s: %s", (int)n, label,
                     label[n] ? "..." : "", a);
    }
    if (!lr_one_jump(v, true)) return i;
    lr_number(a, sizeof a, v->classes[v->shown[0]].last, 4);
    lr_number(b, sizeof b, v->classes[v->shown[0]].next, 4);
    if (strcmp(a, b) == 0) snprintf(line[i], LR_LABEL_BYTES, "%s", a);
    else snprintf(line[i], LR_LABEL_BYTES, "%s to %s", a, b);
    return i + 1;
}

static void lr_jump_note(lr_plot *p)
{
    char line[LR_CURVES + 1][LR_LABEL_BYTES];
    const lr_view *v = p->v;
    size_t i, n, largest = lr_largest_shown(v);
    int x, y, w = 0, h, ax, at, mark[2], jump[2] = {0, 0};
    bool any = false, one = lr_one_jump(v, false);
    for (i = 0; i < v->n_shown; i++) {
        if (!lr_jump_mark(p, &v->classes[v->shown[i]], mark)) continue;
        if (!any || (i == largest && !one)) memcpy(jump, mark, sizeof jump);
        if (one && mark[0] < jump[0]) jump[0] = mark[0];
        if (one && mark[1] > jump[1]) jump[1] = mark[1];
        any = true;
    }
    if (!any) return;
    n = lr_jump_lines(v, line);
    for (i = 0; i < n; i++) w = w > lr_text_pixels(line[i]) ? w : lr_text_pixels(line[i]);
    w += 14;
    h = (int)n * 15 + 7;
    ax = lr_x(p, v->resume) / 10 - LR_LEFT;
    lr_place(p, w, h, ax, (jump[0] + jump[1]) / 2 - LR_TOP, &x, &y);
    x += LR_LEFT;
    y += LR_TOP;
    at = y + h / 2 < jump[0] ? jump[0] : y + h / 2 > jump[1] ? jump[1] : y + h / 2;
    text_fmt(p->o, "<path stroke=\"#222\" d=\"M%d %dL%d %d\"/>\n<rect x=\"%d\" y=\"%d\" "
              "width=\"%d\" height=\"%d\" fill=\"#fff\" stroke=\"#222\"/>\n", ax + LR_LEFT, at,
              x > ax + LR_LEFT ? x : x + w, y + lr_clamp(at - y, h), x, y, w, h);
    for (i = 0; i < n; i++)
        lr_text(p, x + 7, y + 16 + (int)i * 15, i || !one ? "" : " font-weight=\"bold\"",
                line[i], 60);
}

/* ---- SVG: labels of curves, legend, notes ---- */

static void lr_end_text(const lr_plot *p, const lr_end_label *e, char *out, size_t cap)
{
    char label[LR_LABEL_BYTES];
    const char *which = e->which == LR_BEFORE ? "before" : "after";
    size_t used, n, width = e->which == LR_BEFORE ? 14 : 21;
    if (p->v->n_shown == 1) { snprintf(out, cap, "%s", which); return; }
    lr_label(p->v, p->v->shown[e->shown], label);
    n = lr_fit(label, width, false, &used);
    if (label[n]) n = lr_fit(label, width - 2, false, &used);
    snprintf(out, cap, "%.*s%s%s", (int)n, label, label[n] ? ".." : "",
             e->which == LR_BEFORE ? " before" : "");
}

/* A short piece of a curve's line, at pixels. */
static void lr_swatch(lr_plot *p, double x, double y, int length, int which, size_t shown)
{
    text_str(p->o, "<g transform=\"scale(0.1)\">");
    lr_stroke(p, which, shown);
    text_fmt(p->o, "M%.0f %.0fh%d\"/></g>\n", x * 10, y * 10, length * 10);
}

/* Labels of curves that end inside the plot stand there; their curves are open to the right. */
static void lr_ends_inside(lr_plot *p)
{
    char words[LR_LABEL_BYTES + 16];
    size_t i, n = 0;
    int x, y;
    for (i = 0; i < p->n_ends; i++) {
        const lr_end_label *e = &p->ends[i];
        if (e->x >= (LR_LEFT + LR_PW - 25) * 10) { p->ends[n++] = *e; continue; }
        lr_end_text(p, e, words, sizeof words);
        lr_place(p, lr_text_pixels(words), 13, e->x / 10 - LR_LEFT, e->y / 10 - LR_TOP, &x, &y);
        lr_text(p, x + LR_LEFT, y + LR_TOP + 11, "", words, 40);
    }
    p->n_ends = n;
}

/* Sorts the labels at the right edge by height and moves them apart, within the plot. */
static void lr_ends_spread(lr_plot *p)
{
    size_t i, k;
    int floor_y = (LR_TOP + LR_PH) * 10;
    for (i = 1; i < p->n_ends; i++) {
        lr_end_label e = p->ends[i];
        for (k = i; k > 0 && p->ends[k - 1].y > e.y; k--) p->ends[k] = p->ends[k - 1];
        p->ends[k] = e;
    }
    for (i = 1; i < p->n_ends; i++)
        if (p->ends[i].at < p->ends[i - 1].at + 150) p->ends[i].at = p->ends[i - 1].at + 150;
    for (i = p->n_ends; i-- > 0; floor_y = p->ends[i].at - 150)
        if (p->ends[i].at > floor_y) p->ends[i].at = floor_y;
}

static void lr_ends(lr_plot *p)
{
    char words[LR_LABEL_BYTES + 16];
    size_t i;
    lr_ends_inside(p);
    lr_ends_spread(p);
    for (i = 0; i < p->n_ends; i++) {
        const lr_end_label *e = &p->ends[i];
        text_fmt(p->o, "<path fill=\"none\" stroke=\"#999\" d=\"M%.1f %.1fL%d %.1fh3\"/>\n",
                  e->x / 10.0 + 3, e->y / 10.0, LR_LEFT + LR_PW + 12, e->at / 10.0);
        lr_swatch(p, LR_LEFT + LR_PW + 17, e->at / 10.0, 26, e->which, e->shown);
        lr_end_text(p, e, words, sizeof words);
        lr_text(p, LR_LEFT + LR_PW + 48, e->at / 10.0 + 4, "", words, 21);
    }
}

static void lr_legend(lr_plot *p)
{
    size_t style = p->v->n_shown > 1 ? LR_CURVES : 0;
    int y = 72;
    lr_swatch(p, LR_LEFT, y - 4, 36, LR_BEFORE, style);
    lr_text(p, LR_LEFT + 43, y, "", "before: the saved run, had it gone on", 60);
    lr_swatch(p, LR_LEFT + 300, y - 4, 36, LR_AFTER, style);
    lr_text(p, LR_LEFT + 343, y, "", "after: the planned run", 60);
    if (!p->below) return;
    text_fmt(p->o, "<rect x=\"%d\" y=\"%d\" width=\"36\" height=\"11\" fill=\"url(#lr-below)\" "
              "stroke=\"#999\"/>\n", LR_LEFT + 500, y - 10);
    lr_text(p, LR_LEFT + 543, y, "", "below zero", 60);
}

/* One more line below the plot; false, and the last says so, when there are too many. */
static bool lr_line(lr_plot *p, const char *s, size_t n)
{
    if (p->n_lines == LR_NOTE_LINES) {
        snprintf(p->lines[LR_NOTE_LINES - 1], LR_LINE_BYTES, "... and more notes than fit here");
        return false;
    }
    if (n >= LR_LINE_BYTES) n = LR_LINE_BYTES - 1;
    memcpy(p->lines[p->n_lines], s, n);
    p->lines[p->n_lines++][n] = 0;
    return true;
}

static bool lr_note(lr_plot *p, const char *s)
{
    size_t n;
    while (*s) {
        n = lr_wrap(s, 124, false);
        if (!lr_line(p, s, n)) return false;
        for (s += n; *s == ' ' || *s == '\n';) s++;
    }
    return true;
}

static void lr_notes(lr_plot *p)
{
    char words[500];
    size_t i;
    for (i = 0; lr_fact(p->v, i, words, sizeof words); i++) lr_note(p, words);
    if (!p->empty && (p->lo > 0 || p->hi < 0)) lr_note(p, "the vertical axis does not begin at 0");
}

/* ---- SVG: the document ---- */

static void lr_svg_words(lr_plot *p, const char *title)
{
    const lr_view *v = p->v;
    char words[500], label[LR_LABEL_BYTES];
    size_t n = 0, best = lr_largest_shown(v);
    lr_text(p, LR_LEFT, 30, " font-size=\"17\" font-weight=\"bold\"", title, 78);
    if (!v->n_shown || !v->n_rows || lr_unknown(v)) return;
    if (v->resume_inside && !lr_one_jump(v, true)) {
        lr_label(v, v->shown[best], label);
        n = (size_t)snprintf(words, sizeof words, "%s: ", label);
    }
    lr_jump_words(v, &v->classes[v->shown[best]], words + n, sizeof words - n);
    lr_text(p, LR_LEFT, 50, " font-size=\"13\"", words, 115);
}

static void lr_svg_head(lr_plot *p, const char *title)
{
    int height = LR_TOP + LR_PH + 56 + (p->n_lines ? 12 : 0) + (int)p->n_lines * 16;
    text_fmt(p->o, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/"
              "2000/svg\" version=\"1.1\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
              "font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"12\" "
              "fill=\"#111\">\n<title>", LR_W, height, LR_W, height);
    lr_short(p->o, title, 400, false);
    text_str(p->o, "</title>\n");
    text_fmt(p->o, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", LR_W, height);
}

/* Behind the curves: the updates that are done, tinted, and what is below zero, hatched. */
static void lr_svg_back(lr_plot *p)
{
    const lr_view *v = p->v;
    double zero;
    if (v->resume_inside)
        text_fmt(p->o, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" "
                  "fill=\"#f2f2f2\"/>\n", LR_LEFT, LR_TOP, lr_x(p, v->resume) / 10.0 - LR_LEFT,
                  LR_PH);
    if (!p->below) return;
    zero = lr_y(p, 0) / 10.0;
    text_fmt(p->o, "<defs><pattern id=\"lr-below\" width=\"7\" height=\"7\" patternUnits=\""
              "userSpaceOnUse\"><path stroke=\"#bbb\" d=\"M-1 8L8 -1M-1 1L1 -1M6 8L8 6\"/>"
              "</pattern></defs>\n<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" "
              "fill=\"url(#lr-below)\"/>\n",
              LR_LEFT, zero, LR_PW, LR_TOP + LR_PH - zero);
}

static void lr_svg_frame(lr_plot *p)
{
    char words[200] = "no known values";
    if (lr_unknown(p->v)) lr_unknown_words(p->v, words, sizeof words);
    if (!p->empty && p->lo <= 0 && p->hi >= 0)
        text_fmt(p->o, "<path stroke=\"#222\" stroke-width=\"%s\" d=\"M%d %.1fh%d\"/>\n",
                  p->below ? "1.6" : "0.6", LR_LEFT, lr_y(p, 0) / 10.0, LR_PW);
    text_fmt(p->o, "<path fill=\"none\" stroke=\"#222\" d=\"M%d %dv%dh%d\"/>\n", LR_LEFT, LR_TOP,
              LR_PH, LR_PW);
    if (p->empty)
        lr_text(p, LR_LEFT + LR_PW / 2, LR_TOP + LR_PH / 2,
                " text-anchor=\"middle\" font-size=\"15\"", words, 100);
}

static void lr_svg_draw(lr_plot *p)
{
    char title[80];
    size_t i;
    snprintf(title, sizeof title, "%.40s before and after the resume", lr_word(p->v->s, true));
    lr_scale(p);
    lr_notes(p);
    lr_svg_head(p, title);
    lr_svg_words(p, title);
    lr_svg_back(p);
    lr_axis_y(p);
    lr_axis_x(p);
    lr_svg_frame(p);
    lr_curves(p);
    lr_resume_line(p);
    lr_jump_note(p);
    lr_ends(p);
    lr_legend(p);
    for (i = 0; i < p->n_lines; i++)
        lr_text(p, LR_LEFT, LR_TOP + LR_PH + 68 + (int)i * 16, "", p->lines[i], 130);
    text_str(p->o, "</svg>\n");
}

/* A picture for a report: SVG 1.1, complete in itself, below 200 KB whatever the series. False:
   the stream failed or memory is short, errno says which. */
bool lr_svg(text *o, const lr_series *s)
{
    lr_view v;
    lr_plot *p = (lr_plot *)calloc(1, sizeof *p);
    bool ok = lr_open(&v, s) && lr_choose(&v, LR_CURVES) && p;
    if (!p) errno = ENOMEM;
    if (ok) {
        p->v = &v;
        p->o = o;
        lr_svg_draw(p);
    }
    lr_close(&v);
    free(p);
    return ok;
}
