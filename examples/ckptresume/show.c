/* One answer for two printers. A verb states its facts once, in the order of the JSON document:
   --json prints them as they come; for the eye each is kept as its words until a line, a row of a
   table or a closing dict puts them in their places. What is kept are the facts of the dicts and
   rows that are open, so that a list of any length needs no memory but its table's.

   In a list no key is written, whatever its values are called for the eye.

   A template names facts: {key}; {*key} in bold; {key?word} with a word for what is not there;
   {key!other} only where it is not what `other` is; {key one/many} with the noun of a count. What
   stands in [ ] is left out where a fact in it is not there; a bracket of its own is {?[}. */

#include "tool.h"

/* `out`: where the document or the lines go, NULL: there are none. */
void show_begin(show *s, text *out, bool is_json)
{
    memset(s, 0, sizeof *s);
    if (is_json) {
        s->w.t = out;
        json_open(&s->w, "{");
        return;
    }
    s->t = out;
    s->facts.color = s->line.color = out && out->color;
    s->facts.verbose = out && out->verbose;
    s->facts.digits = 6;
}

/* On stdout, or with --quiet as JSON only. */
void show_job(show *s, job *j)
{
    show_begin(s, j->o.json || !j->o.quiet ? &j->out : NULL, j->o.json);
}

void show_end(show *s)
{
    text *out = s->w.t ? s->w.t : s->t;
    if (s->w.t) json_close(&s->w, "}");
    if (s->w.t) text_str(s->w.t, "\n");
    if (out && (s->facts.failed || s->line.failed)) out->failed = true;
    text_free(&s->facts);
    text_free(&s->line);
    free(s->fact);
}

/* >>facts --------------------------------------------------------------------- */
/* The words of a fact go to s->facts and end where those of the next one begin: there are none
   where the value is not there. */

typedef struct span { const char *p; size_t n; } span;

/* The JSON, whose key is written; NULL: for the eye, whose words go to s->facts. */
static json *fact(show *s, const char *key)
{
    const bool listed = s->depth && *s->scope[s->depth - 1].close == ']';
    void *array = s->fact;
    if (s->w.t && key && !listed) json_key(&s->w, key);
    if (s->w.t) return &s->w;
    if (!array_grow(&array, &s->cap_facts, s->n_facts + 1, sizeof *s->fact)) {
        s->facts.failed = true;
        return NULL;
    }
    s->fact = (show_fact *)array;
    s->fact[s->n_facts].key = key;
    s->fact[s->n_facts++].at = s->facts.n;
    return NULL;
}

/* The last of this key that is said; {NULL, 0}: it is not there. */
static span fact_find(const show *s, const char *key, size_t n)
{
    span v = { NULL, 0 };
    size_t i, end = s->facts.n;
    for (i = s->n_facts; i-- > 0; end = s->fact[i].at)
        if (!strncmp(s->fact[i].key, key, n) && !s->fact[i].key[n]) break;
    if (i == SIZE_MAX || s->fact[i].at == end || s->facts.failed) return v;
    v.p = s->facts.data + s->fact[i].at;
    v.n = end - s->fact[i].at;
    return v;
}

void show_null(show *s, const char *key)
{
    json *w = fact(s, key);
    if (w) json_raw(w, "null");
}

void show_strn(show *s, const char *key, const char *v, size_t n)
{
    json *w = fact(s, key);
    if (w) json_string_n(w, v, n);
    else text_clean_n(&s->facts, v, n);
}

/* NULL: none */
void show_str(show *s, const char *key, const char *v)
{
    if (v) show_strn(s, key, v, strlen(v));
    else show_null(s, key);
}

void show_painted(show *s, const char *key, const char *v, const char *paint)
{
    json *w = fact(s, key);
    if (w) json_string(w, v);
    else text_painted(&s->facts, paint, v);
}

/* The words for it, `no` in its own color; a yes is green. */
void show_flag(show *s, const char *key, bool v, const char *yes, const char *no,
               const char *no_paint)
{
    json *w = fact(s, key);
    if (w) json_bool(w, v);
    else if (*(v ? yes : no))
        text_painted(&s->facts, v ? PAINT_GREEN : no_paint, v ? yes : no);
}

void show_bool(show *s, const char *key, bool v)
{
    show_flag(s, key, v, "", "", "");
}

void show_int(show *s, const char *key, int64_t v)
{
    json *w = fact(s, key);
    if (w) json_int(w, v);
    else text_fmt(&s->facts, "%lld", (long long)v);
}

/* Below `least` it is not known. */
void show_least(show *s, const char *key, int64_t v, int64_t least)
{
    if (v < least) show_null(s, key);
    else show_int(s, key, v);
}

void show_uint(show *s, const char *key, uint64_t v)
{
    json *w = fact(s, key);
    if (w) json_uint(w, v);
    else text_fmt(&s->facts, "%llu", (unsigned long long)v);
}

void show_count(show *s, const char *key, uint64_t v)
{
    json *w = fact(s, key);
    if (w) json_uint(w, v);
    else text_count(&s->facts, v);
}

void show_size(show *s, const char *key, uint64_t v)
{
    json *w = fact(s, key);
    if (w) json_uint(w, v);
    else text_size(&s->facts, v);
}

void show_double(show *s, const char *key, double v, const char *fmt)
{
    json *w = fact(s, key);
    if (w) json_double(w, v);
    else text_fmt(&s->facts, fmt, v);
}

void show_shape(show *s, const char *key, uint32_t n_dims, const int64_t *shape)
{
    json *w = fact(s, key);
    if (w) json_shape(w, n_dims, shape);
    else text_shape(&s->facts, n_dims, shape);
}

/* NULL: none */
void show_hex(show *s, const char *key, const uint8_t *p, size_t n)
{
    json *w = fact(s, key);
    if (w && p) json_hex(w, p, n);
    else if (w) json_raw(w, "null");
    else if (p) text_hex(&s->facts, p, n);
}

/* Bytes, as base64; NULL: none. For the eye they say nothing. */
void show_base64(show *s, const char *key, const void *p, size_t n)
{
    json *w = fact(s, key);
    if (w && p) json_base64(w, (const char *)p, n);
    else if (w) json_raw(w, "null");
}

void show_node(show *s, const char *key, const ckr_ckpt *c, const ckr_node *n)
{
    json *w = fact(s, key);
    if (w) json_node(w, c, n);
    else text_node(&s->facts, c, n);
}

/* What the caller writes is for the eye alone. */
text *show_text(show *s, const char *key)
{
    if (s->w.t) s->facts.n = 0;
    else fact(s, key);
    return &s->facts;
}

void show_word(show *s, const char *key, const char *word)
{
    text_clean(show_text(s, key), word);
}

/* >>template ------------------------------------------------------------------ */

/* The n bytes between { and }; false: the fact is not there. */
static bool put_fact(show *s, const char *p, size_t n)
{
    const bool bold = *p == '*';
    const size_t k = strcspn(p + bold, "?! }") + bold, n_more = n > k ? n - k - 1 : 0;
    const char *more = p + k + 1;
    const size_t one = strcspn(more, "/");
    span v = fact_find(s, p + bold, k - bold);
    if (v.p && p[k] == '!') {
        const span other = fact_find(s, more, n_more);
        if (v.n == other.n && !memcmp(v.p, other.p, v.n)) v.p = NULL;
    }
    if (!v.p && p[k] != '?') return false;
    if (bold) text_paint(&s->line, PAINT_BOLD);
    if (v.p) text_put(&s->line, v.p, v.n);
    else text_put(&s->line, more, n_more);
    if (bold) text_plain(&s->line);
    if (p[k] != ' ') return true;
    text_str(&s->line, " ");
    if (v.n == 1 && *v.p == '1') text_put(&s->line, more, one);
    else text_put(&s->line, more + one + 1, n_more - one - 1);
    return true;
}

/* Behind what s->line has; false: a fact of it was not there. */
static bool put_template(show *s, const char *p, const char *end)
{
    bool whole = true;
    while (p < end) {
        size_t n = strcspn(p, "{["), depth = 1;
        if (n > (size_t)(end - p)) n = (size_t)(end - p);
        text_put(&s->line, p, n);
        p += n;
        if (p >= end) break;
        if (*p++ == '{') {
            n = strcspn(p, "}");
            whole = put_fact(s, p, n) && whole;
        } else {
            const size_t from = s->line.n;
            for (n = 0; depth > 0; n++) depth += (p[n] == '[') - (size_t)(p[n] == ']');
            if (!put_template(s, p, p + --n)) s->line.n = from;
        }
        p += n + 1;
    }
    return whole;
}

/* >>scopes -------------------------------------------------------------------- */

static void show_open(show *s, const char *key, const char *bracket)
{
    json *w = s->w.t ? fact(s, key) : NULL;
    if (w) json_open(w, bracket);
    s->scope[s->depth].key = key;
    s->scope[s->depth].close = *bracket == '{' ? "}" : "]";
    s->scope[s->depth].n = s->n_facts;
    s->scope[s->depth++].words = s->facts.n;
}

/* A key NULL is that of one of a list, or written already. */
void show_dict(show *s, const char *key)
{
    show_open(s, key, "{");
}

void show_list(show *s, const char *key)
{
    show_open(s, key, "[");
}

/* The facts of what is open are done with: of a row that is no dict. */
void show_forget(show *s)
{
    const show_scope *at = &s->scope[s->depth - 1];
    s->n_facts = at->n;
    s->facts.n = at->words;
}

/* What is open goes on, but not here. */
void show_leave(show *s)
{
    show_forget(s);
    s->depth--;
}

void show_close(show *s)
{
    if (s->w.t) json_close(&s->w, s->scope[s->depth - 1].close);
    show_leave(s);
}

/* A list whose rows end with show_close_as: for the eye {=} is the words of all of them. */
void show_words_list(show *s, const char *key)
{
    show_list(s, key);
    if (!s->w.t) fact(s, "=");
}

/* For the eye alone: a fact that a template makes of others. */
void show_words(show *s, const char *key, const char *words)
{
    if (s->w.t) return;
    s->line.n = 0;
    put_template(s, words, words + strlen(words));
    text_put(show_text(s, key), s->line.data, s->line.n);
}

/* For the eye the dict is one fact, of this template; a gap before its first word goes. One of a
   list of words goes behind those before it. */
void show_close_as(show *s, const char *words)
{
    const char *key = s->scope[s->depth - 1].key;
    size_t gap = 0;
    s->line.n = 0;
    if (!s->w.t) put_template(s, words, words + strlen(words));
    show_close(s);
    if (s->w.t) return;
    if (key) fact(s, key);
    while (key && gap < s->line.n && strchr(" ,", s->line.data[gap])) gap++;
    text_put(&s->facts, s->line.data + gap, s->line.n - gap);
}

/* Is row i of a list shown? JSON has all; the eye gets `most` of them. */
bool show_room(const show *s, uint64_t i, uint64_t most)
{
    return s->w.t || (s->t && i < most);
}

/* `most`, or with --verbose all. */
uint64_t show_most(const show *s, uint64_t most)
{
    return s->facts.verbose ? UINT64_MAX : most;
}

/* Those that a fact's words take. */
size_t show_columns(const show *s, const char *key)
{
    const span v = fact_find(s, key, strlen(key));
    return text_columns(v.p, v.n);
}

/* >>lines --------------------------------------------------------------------- */

/* The line of a template, in s->line until the next one; NULL: nobody reads it, or `whole`: a fact
   of it is not there. */
static const char *line_of(show *s, const char *words, bool whole)
{
    s->line.n = 0;
    if (!s->t || (!put_template(s, words, words + strlen(words)) && whole)) return NULL;
    text_put(&s->line, "", 1);
    return s->line.failed ? NULL : s->line.data;
}

/* Without an end; `name` stands before it, NULL: nothing does. */
void show_put(show *s, const char *name, const char *words)
{
    const char *line = line_of(s, words, false);
    if (line && name) label(s->t, name);
    if (line) text_str(s->t, line);
}

void show_line(show *s, const char *name, const char *words)
{
    show_put(s, name, words);
    if (s->t) text_str(s->t, "\n");
}

/* Wrapped under `indent`, from the column where the line is. */
void show_wrap(show *s, size_t indent, size_t column, const char *words)
{
    const char *line = line_of(s, words, false);
    if (line) text_wrap(s->t, indent, column, line);
}

/* Lines of their own under `indent`, where all facts in them are there. */
void show_below(show *s, size_t indent, const char *words)
{
    const char *line = line_of(s, words, true);
    if (line) text_pad(s->t, indent);
    if (line) text_wrap(s->t, indent, indent, line);
}

void show_title(show *s, const char *title)
{
    show_word(s, "title", title);
    show_line(s, NULL, "\n{*title}");
}

/* How many more there are than are shown, and what shows them. */
void show_rest(show *s, uint64_t n, const char *what)
{
    if (!s->t || !n) return;
    text_str(s->t, "  and ");
    text_count(s->t, n);
    text_fmt(s->t, " more%s\n", what);
}

/* >>table --------------------------------------------------------------------- */
/* Cells are collected as NUL-terminated strings, row by row; widths are known when it is printed.
   */

static void table_cell(table *b, const char *s, size_t n)
{
    const uint32_t column = b->n_cells++ % b->n_columns;
    const size_t w = text_columns(s, n);
    if (w > b->width[column]) b->width[column] = w;
    text_put(&b->cells, s, n);
    text_put(&b->cells, "", 1);
}

/* "title|>title=template": what each column has, {title} where there is no other template; one with
   > is right-aligned. */
void show_table(show *s, const char *columns)
{
    table *b = &s->b;
    size_t n;
    memset(b, 0, sizeof *b);
    if (!s->t) return;
    b->columns = columns;
    b->n_columns = 1;
    for (n = 0; columns[n]; n++) b->n_columns += columns[n] == '|';
    for (; b->n_cells < b->n_columns; columns += n + strcspn(columns + n, "|") + 1) {
        if (*columns == '>') b->right |= 1u << b->n_cells;
        columns += *columns == '>';
        n = strcspn(columns, "=|");
        table_cell(b, columns, n);
    }
}

/* A row of the facts that are there now. */
void show_cells(show *s)
{
    const char *p = s->t ? s->b.columns : NULL;
    while (p) {
        const size_t title = strcspn(p += *p == '>', "=|"), all = strcspn(p, "|");
        span v = { NULL, 0 };
        s->line.n = 0;
        if (title == all) v = fact_find(s, p, title);
        else put_template(s, p + title + 1, p + all);
        if (title == all) table_cell(&s->b, v.p, v.n);
        else table_cell(&s->b, s->line.data, s->line.n);
        p = p[all] ? p + all + 1 : NULL;
    }
}

/* Columns of the row at s, which is moved behind it. A cell at the end of a row is not padded, and
   an empty one is nothing. `from`: the first column that is printed. */
static const char *table_row(const table *b, text *out, const char *s, uint32_t from, size_t indent)
{
    size_t pad = indent;
    uint32_t k;
    for (k = 0; k < b->n_columns; k++) {
        const size_t n = strlen(s), gap = b->width[k] - text_columns(s, n);
        const bool right = b->right >> k & 1;
        if (k >= from) {
            if (right) pad += gap;
            if (n) {
                text_pad(out, pad);
                text_put(out, s, n);
                pad = 0;
            }
            pad += right ? 2 : gap + 2;
        }
        s += n + 1;
    }
    text_str(out, "\n");
    return s;
}

/* Where the rows are wider than the line, the first column stands alone, over the rows that have
   the same in it. */
static void table_print(const table *b, text *out)
{
    const char *s = b->cells.data, *last = NULL;
    size_t wide = 0;
    uint32_t i, k;
    for (k = 0; k < b->n_columns; k++) wide += b->width[k] + 2;
    for (i = 0; i < b->n_cells && !b->cells.failed; i += b->n_columns) {
        const bool over = out->width && wide > out->width && !(b->right & 1);
        if (i == 0) text_paint(out, PAINT_DIM);
        if (over && i && (!last || strcmp(last, s) != 0)) {
            text_pad(out, 2);
            text_str(out, s);
            text_str(out, "\n");
        }
        last = i ? s : NULL;
        s = table_row(b, out, s, over ? 1 : 0, over ? 4 : 2);
        if (i == 0) text_plain(out);
    }
    if (b->cells.failed) out->failed = true;
}

void show_table_end(show *s)
{
    if (s->t) table_print(&s->b, s->t);
    text_free(&s->b.cells);
}
