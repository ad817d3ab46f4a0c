/* Text, tables and JSON, as they come. */

#include "tool.h"

/* >>text ---------------------------------------------------------------------- */
/* All output goes through a buffer that either grows (cells, comparisons) or drains to a stream.
   Names come from files that may be hostile, so what a terminal would act on is escaped. */

void text_drain(text *t)
{
    if (!t->to || !t->n) return;
    if (fwrite(t->data, 1, t->n, t->to) != t->n) t->failed = true;
    t->n = 0;
}

static bool text_room(text *t, size_t n)
{
    size_t cap = t->cap ? t->cap : 256;
    char *p;
    if (t->to && t->n > 65536) text_drain(t);
    if (n > SIZE_MAX / 4 - t->n) t->failed = true;
    if (t->failed) return false;
    if (t->n + n <= t->cap) return true;
    while (cap < t->n + n) cap *= 2;
    p = (char *)realloc(t->data, cap);
    if (!p) {
        t->failed = true;
        return false;
    }
    t->data = p;
    t->cap = cap;
    return true;
}

void text_put(text *t, const char *s, size_t n)
{
    if (!n || !text_room(t, n)) return;
    memcpy(t->data + t->n, s, n);
    t->n += n;
}

void text_str(text *t, const char *s)
{
    text_put(t, s, strlen(s));
}

void text_pad(text *t, size_t n)
{
    while (n-- > 0) text_put(t, " ", 1);
}

/* For numbers and fixed words, not for strings out of files that a terminal gets. */
TOOL_PRINTF(2, 3)
void text_fmt(text *t, const char *fmt, ...)
{
    size_t cap = 512;
    va_list ap;
    int n = -1;
    while (text_room(t, cap)) {
        va_start(ap, fmt);
        n = vsnprintf(t->data + t->n, cap, fmt, ap);
        va_end(ap);
        if (n < (int)cap) break;
        cap = (size_t)n + 1;
    }
    if (n < 0) t->failed = true;
    else if (!t->failed) t->n += (size_t)n;
}

void text_free(text *t)
{
    free(t->data);
    memset(t, 0, sizeof *t);
}

/* A string out of a file for a human: control characters, C1 too, and bytes that are no UTF-8 as
   \xNN. */
void text_clean_n(text *t, const char *s, size_t n)
{
    size_t i = 0, k;
    while (i < n) {
        unsigned char b = (unsigned char)s[i];
        bool c1 = b == 0xC2 && n - i > 1 && (unsigned char)s[i + 1] < 0xA0;
        k = c1 ? 0 : ckr_utf8(s + i, n - i, NULL);
        if (b < 0x20 || b == 0x7F || !k) {
            text_fmt(t, "\\x%02x", b);
            i++;
        } else {
            text_put(t, s + i, k);
            i += k;
        }
    }
}

void text_clean(text *t, const char *s)
{
    if (s) text_clean_n(t, s, strlen(s));
}

void text_paint(text *t, const char *code)
{
    if (t->color) text_fmt(t, "\033[%sm", code);
}

void text_plain(text *t)
{
    if (t->color) text_str(t, "\033[0m");
}

void text_painted(text *t, const char *code, const char *s)
{
    text_paint(t, code);
    text_str(t, s);
    text_plain(t);
}

/* Columns that a terminal gives to n bytes of clean UTF-8. */
size_t text_columns(const char *s, size_t n)
{
    size_t i, w = 0;
    for (i = 0; i < n; i++) w += ((unsigned char)s[i] & 0xC0) != 0x80;
    return w;
}

void text_size(text *t, uint64_t bytes)
{
    static const char *const unit[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double v = (double)bytes / 1024;
    size_t u = 0;
    if (bytes < 1024) {
        text_fmt(t, "%u B", (unsigned)bytes);
        return;
    }
    for (; v >= 1023.95 && u + 1 < COUNT_OF(unit); u++) v /= 1024;
    text_fmt(t, v < 9.995 ? "%.2f %s" : v < 99.95 ? "%.1f %s" : "%.0f %s", v, unit[u]);
}

/* 1234567 as 1,234,567 */
void text_count(text *t, uint64_t n)
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n), i;
    for (i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0) text_put(t, ",", 1);
        text_put(t, &digits[i], 1);
    }
}

/* v with the fewest digits that read back as the same double, at most `most`. */
static void double_shortest(char out[40], double v, int most)
{
    int p = 1;
    do snprintf(out, 40, "%.*g", p, v);
    while (p++ < most && strtod(out, NULL) != v);
}

void text_double(text *t, double v)
{
    char s[40] = "nan";
    if (!isnan(v)) double_shortest(s, v, t->digits ? t->digits : 17);
    text_str(t, s);
}

/* A number at the start of s exactly as %.17g prints it, and not a whole one, in out[40] with at
   most so many digits; returns how many bytes of s it took, 0 when there is none. */
static size_t shorten_number(const char *s, size_t n, char *out, int most)
{
    const size_t k = strspn(s, "+-.0123456789e");
    char copy[40];
    double v;
    if (k > n || k < 4 || k >= sizeof copy || (k < n && !strchr(",;)", s[k]))) return 0;
    memcpy(copy, s, k);
    copy[k] = '\0';
    if (!strpbrk(copy, ".e")) return 0;
    v = strtod(copy, NULL);
    snprintf(out, 40, "%.17g", v);
    if (strcmp(out, copy) != 0) return 0;
    double_shortest(out, v, most);
    return k;
}

static void text_value(text *t, const char *s, int most)
{
    char number[40];
    for (; *s; s += strcspn(s, " "), s += *s == ' ') {
        const size_t n = strcspn(s, " "), k = shorten_number(s, n, number, most);
        if (k) text_str(t, number);
        text_clean_n(t, s + k, n - k + (s[n] == ' '));
    }
}

/* "0.02 -> 0.1", the two values of a report, either NULL: then the other, found or set, alone.
   Numbers have the digits in which they differ, six or more. */
void text_values(text *t, const char *was, const char *now)
{
    text a, b;
    int most = 6;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    do {
        a.n = b.n = 0;
        text_value(&a, was ? was : "", most);
        text_value(&b, now ? now : "", most);
    } while (was && now && strcmp(was, now) != 0 && most++ < 17 && a.n == b.n &&
             !memcmp(a.data, b.data, a.n));
    text_put(t, a.data, a.n);
    if (was && now) text_str(t, " -> ");
    text_put(t, b.data, b.n);
    if (a.failed || b.failed) t->failed = true;
    text_free(&a);
    text_free(&b);
}

void text_shape(text *t, uint32_t n_dims, const int64_t *shape)
{
    uint32_t i;
    if (!n_dims) text_str(t, "scalar");
    for (i = 0; i < n_dims; i++) text_fmt(t, i ? " x %lld" : "%lld", (long long)shape[i]);
}

void text_hex(text *t, const uint8_t *p, size_t n)
{
    static const char digit[] = "0123456789abcdef";
    size_t i;
    for (i = 0; i < n; i++) {
        const char pair[2] = { digit[p[i] >> 4], digit[p[i] & 15] };
        text_put(t, pair, 2);
    }
}

/* Words of s, wrapped under `indent`; the first line starts where the cursor is. Numbers with 17
   digits become their shortest form. */
void text_wrap(text *t, size_t indent, size_t column, const char *s)
{
    char number[40];
    for (;;) {
        const size_t blanks = strspn(s, " "), gap = column <= indent ? 0 : blanks ? blanks : 1;
        const char *word = s + blanks;
        const size_t n = strcspn(word, " "), k = shorten_number(word, n, number, 17);
        const size_t w = (k ? strlen(number) : 0) + text_columns(word + k, n - k);
        if (!n) break;
        if (column > indent && t->width && column + gap + w > t->width) {
            text_str(t, "\n");
            text_pad(t, indent);
            column = indent;
        } else {
            text_pad(t, gap);
            column += gap;
        }
        if (k) text_str(t, number);
        text_clean_n(t, word + k, n - k);
        column += w;
        s = word + n;
    }
    text_str(t, "\n");
}

/* The same of a text that was put together, which is freed. */
void text_wrapped(text *t, text *line, size_t indent, size_t column)
{
    text_put(line, "", 1);
    if (line->failed) t->failed = true;
    else text_wrap(t, indent, column, line->data);
    text_free(line);
}

/* >>json ---------------------------------------------------------------------- */
/* A JSON text, written as it comes: exact integers, 17 digits for floating point, non-finite
   numbers as strings, bytes as base64. A byte that is no UTF-8 becomes the lone surrogate U+DC80
   + low bits, Python's surrogateescape, so that a path survives the way there and back. */

void json_comma(json *w)
{
    if (w->comma) text_put(w->t, ",", 1);
    w->comma = true;
}

void json_open(json *w, const char *bracket)
{
    json_comma(w);
    text_put(w->t, bracket, 1);
    w->comma = false;
}

void json_close(json *w, const char *bracket)
{
    text_put(w->t, bracket, 1);
    w->comma = true;
}

void json_string_n(json *w, const char *s, size_t n)
{
    size_t i = 0, k;
    json_comma(w);
    text_put(w->t, "\"", 1);
    while (i < n) {
        const unsigned char b = (unsigned char)s[i];
        k = ckr_utf8(s + i, n - i, NULL);
        if (!k && w->exact && b == 0xED && n - i > 2) {
            k = 3;
            text_fmt(w->t, "\\u%04x", 0xD000u | ((unsigned)s[i + 1] & 0x3F) << 6 |
                                         ((unsigned)s[i + 2] & 0x3F));
        } else if (!k) text_fmt(w->t, "\\udc%02x", b);
        else if (b == '"' || b == '\\') text_fmt(w->t, "\\%c", b);
        else if (b == '\n' && !w->exact) text_str(w->t, "\\n");
        else if (b < 0x20 || b == 0x7F) text_fmt(w->t, "\\u%04x", b);
        else text_put(w->t, s + i, k);
        i += k ? k : 1;
    }
    text_put(w->t, "\"", 1);
}

void json_raw(json *w, const char *s)
{
    json_comma(w);
    text_str(w->t, s);
}

void json_string(json *w, const char *s)
{
    if (s) json_string_n(w, s, strlen(s));
    else json_raw(w, "null");
}

void json_key(json *w, const char *s)
{
    json_string(w, s);
    text_put(w->t, ":", 1);
    w->comma = false;
}

void json_int(json *w, int64_t v)
{
    json_comma(w);
    text_fmt(w->t, "%lld", (long long)v);
}

void json_uint(json *w, uint64_t v)
{
    json_comma(w);
    text_fmt(w->t, "%llu", (unsigned long long)v);
}

void json_bool(json *w, bool v)
{
    json_raw(w, v ? "true" : "false");
}

void json_double(json *w, double v)
{
    char s[40];
    if (isnan(v)) {
        json_string(w, "nan");
    } else if (isinf(v)) {
        json_string(w, v < 0 ? "-inf" : "inf");
    } else {
        snprintf(s, sizeof s, "%.17g", v);
        if (!strpbrk(s, ".e")) strcat(s, ".0");      /* a float stays one in the reader's hands */
        json_raw(w, s);
    }
}

void json_pair(json *w, const char *key, const char *value)
{
    json_key(w, key);
    json_string(w, value);
}

void json_hex(json *w, const uint8_t *p, size_t n)
{
    json_comma(w);
    text_put(w->t, "\"", 1);
    text_hex(w->t, p, n);
    text_put(w->t, "\"", 1);
}

void json_base64(json *w, const char *s, uint64_t n)
{
    char block[64];
    uint64_t i;
    json_comma(w);
    text_put(w->t, "\"", 1);
    for (i = 0; i < n; i += 48)
        text_put(w->t, block, ckr_base64(s + i, n - i < 48 ? (size_t)(n - i) : 48, block));
    text_put(w->t, "\"", 1);
}

void json_shape(json *w, uint32_t n_dims, const int64_t *shape)
{
    uint32_t i;
    json_open(w, "[");
    for (i = 0; i < n_dims; i++) json_int(w, shape[i]);
    json_close(w, "]");
}
