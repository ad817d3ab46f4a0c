/* ckptresume: look into, compare, check and convert training checkpoints. One translation unit on
   top of the public API of ckptresume.h; nothing here reads a file format or knows a framework.
   `ckptresume help` lists the verbs. Exit codes: 0 done; 1 refused by policy, or different, or
   not sound; 2 usage; 3 bad, unsafe or unsupported input; 4 system. */

#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#if defined(_WIN32)
#  include <direct.h>
#  include <fcntl.h>
#  include <io.h>
#  ifndef WIN32_LEAN_AND_MEAN
#    define WIN32_LEAN_AND_MEAN
#  endif
#  include <windows.h>
#  include <shellapi.h>
#  if defined(_MSC_VER)
#    pragma comment(lib, "shell32")
#  endif
#else
#  include <unistd.h>
#endif

#if defined(__GNUC__)
#  define TOOL_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#  define TOOL_PRINTF(f, a)
#endif

#define COUNT_OF(a) (sizeof(a) / sizeof *(a))

enum { CODE_DONE = 0, CODE_REFUSED = 1, CODE_USAGE = 2, CODE_INPUT = 3, CODE_SYSTEM = 4 };

/* >>system -------------------------------------------------------------------- */
/* What C's library has no right words for on Windows: there names are UTF-16, and this program has
   them in UTF-8 throughout. Elsewhere nothing but the library's own. */

#if defined(_WIN32)
static char *utf8_of(const WCHAR *s)
{
    const int n = WideCharToMultiByte(CP_UTF8, 0, s, -1, NULL, 0, NULL, NULL);
    char *out = n > 0 ? (char *)malloc((size_t)n) : NULL;
    if (out) WideCharToMultiByte(CP_UTF8, 0, s, -1, out, n, NULL, NULL);
    return out;
}

static WCHAR *wide_of(const char *s)
{
    const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, s, -1, NULL, 0);
    WCHAR *out = n > 0 ? (WCHAR *)malloc((size_t)n * sizeof *out) : NULL;
    if (out) MultiByteToWideChar(CP_UTF8, 0, s, -1, out, n);
    return out;
}

static FILE *file_open(const char *path, const char *mode)
{
    WCHAR *p = wide_of(path), *m = wide_of(mode);
    FILE *f = p && m ? _wfopen(p, m) : NULL;
    if (!p || !m) errno = ENOENT;
    free(p);
    free(m);
    return f;
}

static void file_remove(const char *path)
{
    WCHAR *p = wide_of(path);
    if (p) _wremove(p);
    free(p);
}

static bool file_rename(const char *from, const char *to)
{
    WCHAR *a = wide_of(from), *b = wide_of(to);
    const bool ok = a && b && MoveFileExW(a, b, MOVEFILE_REPLACE_EXISTING);
    if (!ok) errno = EACCES;
    free(a);
    free(b);
    return ok;
}

/* tmpfile() makes its file in the drive's root, where only administrators may. */
static FILE *file_temporary(void)
{
    WCHAR dir[MAX_PATH + 1], path[MAX_PATH + 1];
    const DWORD n = GetTempPathW(MAX_PATH + 1, dir);
    if (n && n <= MAX_PATH && GetTempFileNameW(dir, L"ckr", 0, path))
        return _wfopen(path, L"w+bTD");            /* kept in memory if it can; goes when closed */
    errno = EACCES;
    return NULL;
}

/* The words of the command line as they were typed: C's are in an old code page, with wildcards
   filled in. And lines end here as everywhere else. */
static char **words_of(int *argc, char **argv)
{
    WCHAR **wide = CommandLineToArgvW(GetCommandLineW(), argc);
    char **out = wide ? (char **)calloc((size_t)*argc + 1, sizeof *out) : NULL;
    int i;
    _setmode(_fileno(stdout), _O_BINARY);
    _setmode(_fileno(stderr), _O_BINARY);
    if (_isatty(_fileno(stdout)) || _isatty(_fileno(stderr))) SetConsoleOutputCP(CP_UTF8);
    for (i = 0; out && i < *argc; i++)
        if ((out[i] = utf8_of(wide[i])) == NULL) *argc = i;
    LocalFree((HLOCAL)wide);
    return out ? out : argv;
}
#else
#  define file_open fopen
#  define file_remove remove
#  define file_rename(from, to) (rename(from, to) == 0)
#  define file_temporary tmpfile
#  define words_of(argc, argv) (argv)
#endif

/* >>text ---------------------------------------------------------------------- */
/* All output goes through a buffer that either grows (cells, comparisons) or drains to a stream.
   Names come from files that may be hostile, so what a terminal would act on is escaped. */

typedef struct text {
    char  *data;
    size_t n, cap;
    FILE  *to;                 /* NULL: grows                                         */
    bool   color, failed;
} text;

static void text_drain(text *t)
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

static void text_put(text *t, const char *s, size_t n)
{
    if (!n || !text_room(t, n)) return;
    memcpy(t->data + t->n, s, n);
    t->n += n;
}

static void text_str(text *t, const char *s)
{
    text_put(t, s, strlen(s));
}

static void text_pad(text *t, size_t n)
{
    while (n-- > 0) text_put(t, " ", 1);
}

/* At most 511 bytes: for numbers and fixed words, never for strings out of files. */
TOOL_PRINTF(2, 3)
static void text_fmt(text *t, const char *fmt, ...)
{
    char s[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s, sizeof s, fmt, ap);
    va_end(ap);
    text_str(t, s);
}

static void text_free(text *t)
{
    free(t->data);
    memset(t, 0, sizeof *t);
}

/* Length of the valid UTF-8 sequence at p, or 0: RFC 3629, no surrogates, no overlong forms. */
static size_t utf8_length(const char *s, size_t left)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned char lo = 0x80, hi = 0xBF;
    size_t n, i;
    if (p[0] < 0x80) return 1;
    if (p[0] < 0xC2 || p[0] > 0xF4) return 0;
    n = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    if (p[0] == 0xE0) lo = 0xA0;
    if (p[0] == 0xED) hi = 0x9F;
    if (p[0] == 0xF0) lo = 0x90;
    if (p[0] == 0xF4) hi = 0x8F;
    if (left < n || p[1] < lo || p[1] > hi) return 0;
    for (i = 2; i < n; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    return n;
}

/* A string out of a file for a human: control characters, C1 too, and bytes that are no UTF-8 as
   \xNN. */
static void text_clean_n(text *t, const char *s, size_t n)
{
    size_t i = 0, k;
    while (i < n) {
        unsigned char b = (unsigned char)s[i];
        bool c1 = b == 0xC2 && n - i > 1 && (unsigned char)s[i + 1] < 0xA0;
        k = c1 ? 0 : utf8_length(s + i, n - i);
        if (b < 0x20 || b == 0x7F || !k) {
            text_fmt(t, "\\x%02x", b);
            i++;
        } else {
            text_put(t, s + i, k);
            i += k;
        }
    }
}

static void text_clean(text *t, const char *s)
{
    if (s) text_clean_n(t, s, strlen(s));
}

#define PAINT_BOLD    "1"
#define PAINT_DIM     "2"
#define PAINT_RED     "31"
#define PAINT_GREEN   "32"
#define PAINT_YELLOW  "33"
#define PAINT_MAGENTA "35"
#define PAINT_CYAN    "36"

static void text_paint(text *t, const char *code)
{
    if (t->color) text_fmt(t, "\033[%sm", code);
}

static void text_plain(text *t)
{
    if (t->color) text_str(t, "\033[0m");
}

static void text_painted(text *t, const char *code, const char *s)
{
    text_paint(t, code);
    text_str(t, s);
    text_plain(t);
}

/* Columns that a terminal gives to n bytes of clean UTF-8. */
static size_t text_columns(const char *s, size_t n)
{
    size_t i, w = 0;
    for (i = 0; i < n; i++) w += ((unsigned char)s[i] & 0xC0) != 0x80;
    return w;
}

static void text_size(text *t, uint64_t bytes)
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
static void text_count(text *t, uint64_t n)
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n), i;
    for (i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0) text_put(t, ",", 1);
        text_put(t, &digits[i], 1);
    }
}

static void text_plural(text *t, uint64_t n, const char *one, const char *many)
{
    text_count(t, n);
    text_fmt(t, " %s", n == 1 ? one : many);
}

/* The shortest decimal that reads back as the same double. */
static void text_double(text *t, double v)
{
    char s[40];
    int p;
    if (isnan(v)) {
        text_str(t, "nan");
        return;
    }
    for (p = 1; p <= 17; p++) {
        snprintf(s, sizeof s, "%.*g", p, v);
        if (strtod(s, NULL) == v) break;
    }
    text_str(t, s);
}

/* A number at the start of s exactly as %.17g prints it, and not a whole one, becomes its shortest
   form in out[40]; returns how many bytes of s it took, 0 when there is none. */
static size_t shorten_number(const char *s, size_t n, char *out)
{
    const size_t k = strspn(s, "+-.0123456789e");
    char copy[40];
    double v;
    int p;
    if (k > n || k < 4 || k >= sizeof copy || (k < n && !strchr(",;)", s[k]))) return 0;
    memcpy(copy, s, k);
    copy[k] = '\0';
    if (!strpbrk(copy, ".e")) return 0;
    v = strtod(copy, NULL);
    snprintf(out, 40, "%.17g", v);
    if (strcmp(out, copy) != 0) return 0;
    for (p = 1; p < 17; p++) {
        snprintf(out, 40, "%.*g", p, v);
        if (strtod(out, NULL) == v) break;
    }
    return p < 17 ? k : 0;
}

/* A value of a report, "0.02 to 0.1"; only its numbers are rewritten. */
static void text_value(text *t, const char *s)
{
    char number[40];
    for (; *s; s += strcspn(s, " "), s += *s == ' ') {
        const size_t n = strcspn(s, " "), k = shorten_number(s, n, number);
        if (k) text_str(t, number);
        text_clean_n(t, s + k, n - k + (s[n] == ' '));
    }
}

static void text_shape(text *t, uint32_t n_dims, const int64_t *shape)
{
    uint32_t i;
    if (!n_dims) text_str(t, "scalar");
    for (i = 0; i < n_dims; i++) text_fmt(t, i ? " x %lld" : "%lld", (long long)shape[i]);
}

static void text_hex(text *t, const uint8_t *p, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) text_fmt(t, "%02x", p[i]);
}

/* Words of s, wrapped at 100 columns under `indent`; the first line starts where the cursor is.
   Numbers with 17 digits become their shortest form. */
static void text_wrap(text *t, size_t indent, size_t column, const char *s)
{
    char number[40];
    while (s && *s) {
        const size_t n = strcspn(s, " "), k = shorten_number(s, n, number);
        const size_t w = (k ? strlen(number) : 0) + text_columns(s + k, n - k);
        if (column > indent && column + 1 + w > 100) {
            text_str(t, "\n");
            text_pad(t, indent);
            column = indent;
        } else if (column > indent) {
            text_str(t, " ");
            column++;
        }
        if (k) text_str(t, number);
        text_clean_n(t, s + k, n - k);
        column += w;
        for (s += n; *s == ' '; s++) {}
    }
    text_str(t, "\n");
}

/* >>table --------------------------------------------------------------------- */
/* Cells are collected as NUL-terminated strings, row by row; widths are known when it is printed.
   */

#define TABLE_COLUMNS 8

typedef struct table {
    text     cells, cell;      /* all of them; the one being made                     */
    uint32_t n_columns, n_cells, right;    /* right: bits of right-aligned columns    */
    size_t   width[TABLE_COLUMNS];
} table;

static void table_begin(table *b, uint32_t n_columns, uint32_t right, const char *const *titles)
{
    uint32_t i;
    memset(b, 0, sizeof *b);
    b->n_columns = n_columns;
    b->right = right;
    for (i = 0; i < n_columns; i++) {
        b->width[i] = strlen(titles[i]);
        text_put(&b->cells, titles[i], b->width[i] + 1);
    }
    b->n_cells = n_columns;
}

/* What was put into b->cell becomes the next cell. */
static void table_cell(table *b)
{
    uint32_t column = b->n_cells++ % b->n_columns;
    size_t w = text_columns(b->cell.data, b->cell.n);
    if (w > b->width[column]) b->width[column] = w;
    text_put(&b->cells, b->cell.data, b->cell.n);
    text_put(&b->cells, "", 1);
    b->cell.n = 0;
}

static void table_text(table *b, const char *s)
{
    text_clean(&b->cell, s);
    table_cell(b);
}

static void table_count(table *b, uint64_t n)
{
    text_count(&b->cell, n);
    table_cell(b);
}

static void table_size(table *b, uint64_t n)
{
    text_size(&b->cell, n);
    table_cell(b);
}

static void table_end(table *b, text *out)
{
    const char *s = b->cells.data;
    uint32_t i;
    for (i = 0; i < b->n_cells && !b->cells.failed; i++) {
        const uint32_t column = i % b->n_columns;
        const size_t n = strlen(s), gap = b->width[column] - text_columns(s, n);
        if (i < b->n_columns) text_paint(out, PAINT_DIM);
        text_str(out, "  ");
        if (b->right >> column & 1) text_pad(out, gap);
        text_put(out, s, n);
        if (!(b->right >> column & 1) && column + 1 < b->n_columns) text_pad(out, gap);
        if (i < b->n_columns) text_plain(out);
        if (column + 1 == b->n_columns) text_str(out, "\n");
        s += n + 1;
    }
    if (b->cells.failed || b->cell.failed) out->failed = true;
    text_free(&b->cells);
    text_free(&b->cell);
}

/* >>json ---------------------------------------------------------------------- */
/* A JSON text, written as it comes: exact integers, 17 digits for floating point, non-finite
   numbers as strings, bytes as base64. A byte that is no UTF-8 becomes the lone surrogate U+DC80
   + low bits, Python's surrogateescape, so that a path survives the way there and back. */

typedef struct json { text *t; bool comma; } json;

static void json_comma(json *w)
{
    if (w->comma) text_put(w->t, ",", 1);
    w->comma = true;
}

static void json_open(json *w, const char *bracket)
{
    json_comma(w);
    text_put(w->t, bracket, 1);
    w->comma = false;
}

static void json_close(json *w, const char *bracket)
{
    text_put(w->t, bracket, 1);
    w->comma = true;
}

static void json_string_n(json *w, const char *s, size_t n)
{
    size_t i = 0, k;
    json_comma(w);
    text_put(w->t, "\"", 1);
    while (i < n) {
        const unsigned char b = (unsigned char)s[i];
        k = utf8_length(s + i, n - i);
        if (!k) text_fmt(w->t, "\\udc%02x", b);
        else if (b == '"' || b == '\\') text_fmt(w->t, "\\%c", b);
        else if (b == '\n') text_str(w->t, "\\n");
        else if (b < 0x20 || b == 0x7F) text_fmt(w->t, "\\u%04x", b);
        else text_put(w->t, s + i, k);
        i += k ? k : 1;
    }
    text_put(w->t, "\"", 1);
}

static void json_raw(json *w, const char *s)
{
    json_comma(w);
    text_str(w->t, s);
}

static void json_string(json *w, const char *s)
{
    if (s) json_string_n(w, s, strlen(s));
    else json_raw(w, "null");
}

static void json_key(json *w, const char *s)
{
    json_string(w, s);
    text_put(w->t, ":", 1);
    w->comma = false;
}

static void json_int(json *w, int64_t v)
{
    json_comma(w);
    text_fmt(w->t, "%lld", (long long)v);
}

static void json_uint(json *w, uint64_t v)
{
    json_comma(w);
    text_fmt(w->t, "%llu", (unsigned long long)v);
}

static void json_bool(json *w, bool v)
{
    json_raw(w, v ? "true" : "false");
}

static void json_double(json *w, double v)
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

/* 0 and below: not recorded */
static void json_positive(json *w, const char *key, int64_t v, int64_t least)
{
    json_key(w, key);
    if (v < least) json_raw(w, "null");
    else json_int(w, v);
}

static void json_pair(json *w, const char *key, const char *value)
{
    json_key(w, key);
    json_string(w, value);
}

static void json_pair_uint(json *w, const char *key, uint64_t value)
{
    json_key(w, key);
    json_uint(w, value);
}

static void json_hex(json *w, const uint8_t *p, size_t n)
{
    json_comma(w);
    text_put(w->t, "\"", 1);
    text_hex(w->t, p, n);
    text_put(w->t, "\"", 1);
}

static void json_base64(json *w, const char *s, uint64_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint64_t i;
    json_comma(w);
    text_put(w->t, "\"", 1);
    for (i = 0; i < n; i += 3) {
        const uint64_t left = n - i;
        uint32_t v = (uint32_t)(unsigned char)s[i] << 16;
        char q[4];
        if (left > 1) v |= (uint32_t)(unsigned char)s[i + 1] << 8;
        if (left > 2) v |= (uint32_t)(unsigned char)s[i + 2];
        q[0] = digit[v >> 18];
        q[1] = digit[v >> 12 & 63];
        q[2] = left > 1 ? digit[v >> 6 & 63] : '=';
        q[3] = left > 2 ? digit[v & 63] : '=';
        text_put(w->t, q, 4);
    }
    text_put(w->t, "\"", 1);
}

static void json_shape(json *w, uint32_t n_dims, const int64_t *shape)
{
    uint32_t i;
    json_open(w, "[");
    for (i = 0; i < n_dims; i++) json_int(w, shape[i]);
    json_close(w, "]");
}

/* >>values -------------------------------------------------------------------- */
/* A node of a checkpoint as plain JSON (hyper-parameters, schedules). The walk has its own stack
   and a budget, because a hostile file may nest without end or be a cycle; past either it says
   "...". With `human` set the same walk prints for the eye: shortest floats, no quotes, spaces.
   */

#define VALUE_DEPTH  32
#define VALUE_BUDGET 100000
#define VALUE_HUMAN  8         /* items of a list that a human gets to see            */

typedef struct value_walk {
    json            w;
    const ckr_ckpt *ckpt;      /* to read one-element tensors; may be NULL            */
    bool            human;
} value_walk;

static bool value_is_list(const ckr_node *n)
{
    return ckr_node_is_list(n) || (n && (n->kind == CKR_NODE_SET || n->kind == CKR_NODE_FROZENSET ||
                                         n->kind == CKR_NODE_SIZE));
}

/* Two's complement, little-endian, of any length, to decimal by repeated division. */
static void value_bigint(text *t, const ckr_node *n)
{
    uint8_t byte[256];
    char digits[640];
    size_t len = (size_t)n->count, i, at = sizeof digits;
    bool negative, any = true;
    if (n->count == 0 || n->count > sizeof byte) {
        text_str(t, n->count ? "\"...\"" : "0");
        return;
    }
    memcpy(byte, n->u.str, len);
    negative = byte[len - 1] >> 7 != 0;
    if (negative) {
        unsigned carry = 1;
        for (i = 0; i < len; i++) {
            carry += (unsigned)(uint8_t)~byte[i];
            byte[i] = (uint8_t)carry;
            carry >>= 8;
        }
    }
    while (any) {
        unsigned rest = 0;
        any = false;
        for (i = len; i-- > 0;) {
            rest = rest << 8 | byte[i];
            byte[i] = (uint8_t)(rest / 10);
            rest %= 10;
            any = any || byte[i];
        }
        digits[--at] = (char)('0' + rest);
    }
    if (negative) text_str(t, "-");
    text_put(t, digits + at, sizeof digits - at);
}

static uint64_t view_elements(const ckr_view *v)
{
    uint64_t n = 1;
    uint32_t i;
    for (i = 0; i < v->n_dims; i++) {
        if (v->shape[i] <= 0) return 0;
        if (n > UINT64_MAX / (uint64_t)v->shape[i]) return UINT64_MAX;
        n *= (uint64_t)v->shape[i];
    }
    return n;
}

/* A float or an integer of n little-endian bytes; false: another dtype. */
static bool value_decode(ckr_dtype t, const uint8_t *p, double *f, int64_t *i, bool *is_float)
{
    const size_t n = ckr_dtype_size(t);
    uint64_t bits = 0;
    uint32_t word;
    float f32;
    size_t k;
    for (k = n; k-- > 0;) bits = bits << 8 | p[k];
    *is_float = t == CKR_DTYPE_F64 || t == CKR_DTYPE_F32 || t == CKR_DTYPE_BF16;
    if (t == CKR_DTYPE_F64) {
        memcpy(f, &bits, sizeof *f);
    } else if (*is_float) {
        word = t == CKR_DTYPE_BF16 ? (uint32_t)bits << 16 : (uint32_t)bits;
        memcpy(&f32, &word, sizeof f32);
        *f = (double)f32;
    } else if (t == CKR_DTYPE_I64 || t == CKR_DTYPE_U8 || t == CKR_DTYPE_BOOL) {
        *i = (int64_t)bits;
    } else if (t == CKR_DTYPE_I32) {
        *i = bits >> 31 ? (int64_t)bits - ((int64_t)1 << 32) : (int64_t)bits;
    } else {
        return false;
    }
    return true;
}

static void value_double(value_walk *v, double f)
{
    if (!v->human) {
        json_double(&v->w, f);
    } else {
        json_comma(&v->w);
        text_double(v->w.t, f);
    }
}

static void value_string(value_walk *v, const char *s, uint64_t n)
{
    if (!v->human) {
        json_string_n(&v->w, s, (size_t)n);
    } else {
        json_comma(&v->w);
        text_clean_n(v->w.t, s, (size_t)(n > 60 ? 60 : n));
        if (n > 60) text_str(v->w.t, "...");
    }
}

/* Numpy's name where torch has none. */
static const char *view_dtype(const ckr_view *v)
{
    const char *s = v->type_name;
    return v->dtype == CKR_DTYPE_NONE && s && strchr("<>|", *s) ? s : ckr_dtype_name(v->dtype);
}

static void value_tensor(value_walk *v, const ckr_view *view)
{
    uint8_t byte[16];
    double f = 0;
    int64_t i = 0;
    bool is_float;
    if (v->ckpt && !view->layout && view_elements(view) == 1 && ckr_dtype_size(view->dtype) <= 8 &&
        ckr_view_read(v->ckpt, view, 0, 1, byte, NULL) == CKR_OK &&
        value_decode(view->dtype, byte, &f, &i, &is_float)) {
        if (is_float) value_double(v, f);
        else json_int(&v->w, i);
        return;
    }
    if (v->human) {
        const char *dtype = view_dtype(view);
        json_comma(&v->w);
        if (dtype == view->type_name && !view->n_dims) {
            text_clean(v->w.t, dtype);
            return;
        }
        text_fmt(v->w.t, "<%s ", dtype);
        text_shape(v->w.t, view->n_dims, view->shape);
        text_str(v->w.t, ">");
        return;
    }
    json_open(&v->w, "{");
    json_pair(&v->w, "dtype", view_dtype(view));
    json_key(&v->w, "shape");
    json_shape(&v->w, view->n_dims, view->shape);
    json_close(&v->w, "}");
}

static void value_leaf(value_walk *v, const ckr_node *n)
{
    const ckr_node_kind kind = n ? (ckr_node_kind)n->kind : CKR_NODE_NONE;
    if (kind == CKR_NODE_NONE) json_raw(&v->w, v->human ? "none" : "null");
    else if (kind == CKR_NODE_BOOL) json_bool(&v->w, n->u.b);
    else if (kind == CKR_NODE_INT) json_int(&v->w, n->u.i);
    else if (kind == CKR_NODE_FLOAT) value_double(v, n->u.f);
    else if (kind == CKR_NODE_STR) value_string(v, n->u.str, n->count);
    else if (kind == CKR_NODE_BYTES || kind == CKR_NODE_BYTEARRAY)
        json_base64(&v->w, n->u.str, n->count);
    else if (kind == CKR_NODE_DEVICE || kind == CKR_NODE_DTYPE || kind == CKR_NODE_LAYOUT ||
             kind == CKR_NODE_GLOBAL) value_string(v, n->u.str, strlen(n->u.str));
    else if (kind == CKR_NODE_OBJECT) value_string(v, n->u.object->name, strlen(n->u.object->name));
    else if (kind == CKR_NODE_TENSOR || kind == CKR_NODE_STORAGE || kind == CKR_NODE_NDARRAY ||
             kind == CKR_NODE_NPSCALAR) value_tensor(v, n->u.view);
    else if (kind == CKR_NODE_COMPLEX) {
        json_open(&v->w, "[");
        value_double(v, n->u.complex_[0]);
        value_double(v, n->u.complex_[1]);
        json_close(&v->w, "]");
    } else if (kind == CKR_NODE_BIGINT) {
        json_comma(&v->w);
        value_bigint(v->w.t, n);
    } else {
        value_string(v, "...", 3);
    }
}

/* JSON keys are strings: others as their text. */
static void value_key(value_walk *v, const ckr_node *key)
{
    text scratch;
    value_walk inner;
    if (key && key->kind == CKR_NODE_STR) {
        value_string(v, key->u.str, key->count);
    } else {
        memset(&scratch, 0, sizeof scratch);
        memset(&inner, 0, sizeof inner);
        inner.w.t = &scratch;
        inner.human = true;
        value_leaf(&inner, key);
        value_string(v, scratch.n ? scratch.data : "", scratch.n);
        text_free(&scratch);
    }
    text_str(v->w.t, v->human ? " " : ":");
    v->w.comma = false;
}

static void value_put(value_walk *v, const ckr_node *n)
{
    struct { const ckr_node *n; uint64_t i, end; } stack[VALUE_DEPTH];
    uint64_t budget = VALUE_BUDGET;
    int depth = 0;
    for (;;) {
        const bool dict = ckr_node_is_dict(n);
        if ((dict || value_is_list(n)) && depth < VALUE_DEPTH && budget > 0) {
            json_open(&v->w, dict ? "{" : "[");
            stack[depth].n = n;
            stack[depth].i = 0;
            stack[depth].end = v->human && n->count > VALUE_HUMAN ? VALUE_HUMAN : n->count;
            depth++;
        } else {
            value_leaf(v, n);
        }
        while (depth > 0 && (stack[depth - 1].i >= stack[depth - 1].end || budget == 0)) {
            n = stack[--depth].n;
            if (stack[depth].i < n->count && v->human)
                text_fmt(v->w.t, ",... %llu", (unsigned long long)n->count);
            json_close(&v->w, ckr_node_is_dict(n) ? "}" : "]");
        }
        if (depth == 0) return;
        budget--;
        n = stack[depth - 1].n;
        if (ckr_node_is_dict(n)) {
            value_key(v, n->u.items[2 * stack[depth - 1].i]);
            n = n->u.items[2 * stack[depth - 1].i++ + 1];
        } else {
            n = n->u.items[stack[depth - 1].i++];
        }
    }
}

/* As the next value of a JSON text. */
static void json_node(json *w, const ckr_ckpt *c, const ckr_node *n)
{
    value_walk v;
    memset(&v, 0, sizeof v);
    v.w = *w;
    v.ckpt = c;
    value_put(&v, n);
    *w = v.w;
}

static void text_node(text *t, const ckr_ckpt *c, const ckr_node *n)
{
    value_walk v;
    memset(&v, 0, sizeof v);
    v.w.t = t;
    v.ckpt = c;
    v.human = true;
    value_put(&v, n);
}

/* >>job ----------------------------------------------------------------------- */
/* One run of the tool: what was asked, and what every verb needs. Nothing is global. */

typedef enum color_mode { COLOR_AUTO = 0, COLOR_ALWAYS, COLOR_NEVER } color_mode;

#define SETTINGS_MAX 64

typedef struct options {
    const char *dialect, *format, *names, *select;
    const char *schedule, *optimizer, *svg, *like, *settings;
    const char *to_version, *data;
    uint32_t    vpp;
    int64_t     heads, kv_heads, fsdp_size, micro_batch, seq_len;
    uint64_t    max_shard_bytes;
    ckr_target  target;
    ckr_option  list[9];       /* the nine of these that are asked for               */
    char        numbers[9][24];
    ckr_setting sets[SETTINGS_MAX];
    int64_t     from, to;      /* updates                                             */
    ckr_column  column;
    bool        csv;
    uint64_t    memory;
    uint32_t    threads;
    color_mode  color;
    bool        json, quiet, progress, tensors, files, hash, help;
} options;

typedef struct progress {
    double start, last;        /* seconds                                             */
    bool   wanted, terminal, shown;
} progress;

typedef struct verb verb;
typedef struct job {
    options     o;
    const verb *verb;
    const char *args[3];       /* after the verb                                      */
    uint32_t    n_args;
    text        out, note;     /* stdout, stderr                                      */
    ckr_env     env;
    ckr_error   err;
    progress    progress;
} job;

struct verb {
    const char *name;
    uint32_t    bit, n_args;
    int       (*run_fn)(job *j);
    const char *usage, *summary, *detail, *example;
};

enum {
    VERB_INSPECT = 1, VERB_TREE = 2, VERB_PLAN = 4, VERB_CONVERT = 8, VERB_EXPORT = 16,
    VERB_DIGEST = 32, VERB_DIFF = 64, VERB_CHECK = 128, VERB_VERSION = 256, VERB_HELP = 512,
    VERB_LR = 1024, VERB_RNG = 2048,
    VERB_TARGET = VERB_PLAN | VERB_CONVERT,
    VERB_POLICY = VERB_TARGET | VERB_LR,
    VERB_OPENING = VERB_INSPECT | VERB_POLICY | VERB_EXPORT | VERB_DIGEST | VERB_DIFF |
                   VERB_CHECK | VERB_RNG,
    VERB_ANY = VERB_OPENING | VERB_TREE | VERB_VERSION | VERB_HELP
};

static double now_seconds(void)
{
#if defined(_WIN32)
    return (double)clock() / CLOCKS_PER_SEC;         /* of the wall in Microsoft's C library */
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#endif
}

static bool is_terminal(FILE *f)
{
#if defined(_WIN32)
    return _isatty(_fileno(f)) != 0;
#else
    return isatty(fileno(f)) != 0;
#endif
}

static bool is_absolute(const char *path)
{
#if defined(_WIN32)
    if (path[0] == '\\' || (path[0] && path[1] == ':')) return true;
#endif
    return path[0] == '/';
}

static bool working_directory(char *path, size_t cap)
{
#if defined(_WIN32)
    return _getcwd(path, (int)cap) != NULL;
#else
    return getcwd(path, cap) != NULL;
#endif
}

static bool color_of(color_mode mode, FILE *f)
{
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    if (mode != COLOR_AUTO) return mode == COLOR_ALWAYS;
    if (no && no[0]) return false;
    return is_terminal(f) && term && strcmp(term, "dumb") != 0;
}

/* >>errors -------------------------------------------------------------------- */
/* Classes to exit codes. A path that does not exist is the system's answer (4); something that is
   missing inside a checkpoint has an item of its own and is bad input (3). */

typedef struct class_name { ckr_result code; int exit_code; const char *name; } class_name;

static const class_name *class_of(ckr_result code)
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

static const char *or_null(const char *s)
{
    return s && s[0] ? s : NULL;
}

static void error_json(text *t, const ckr_error *e)
{
    json w;
    w.t = t;
    w.comma = false;
    json_open(&w, "{");
    json_key(&w, "error");
    json_open(&w, "{");
    json_pair(&w, "code", class_of(e->code)->name);
    json_pair(&w, "item", ckr_item_name(e->item));
    json_pair(&w, "file", or_null(e->file));
    json_key(&w, "offset");
    if (e->offset == CKR_NO_OFFSET) json_raw(&w, "null");
    else json_uint(&w, e->offset);
    json_pair(&w, "where", or_null(e->where));
    json_pair(&w, "text", e->text);
    json_pair(&w, "remedy", or_null(e->remedy));
    json_close(&w, "}");
    json_close(&w, "}");
    text_str(t, "\n");
}

/* ckptresume: FILE: at byte N, KEY PATH: what was found, what was expected */
static void error_text(text *t, const ckr_error *e)
{
    text_painted(t, PAINT_RED, "ckptresume:");
    text_str(t, " ");
    if (e->file[0]) {
        text_clean(t, e->file);
        text_str(t, ": ");
    }
    if (e->offset != CKR_NO_OFFSET) text_fmt(t, "at byte %llu", (unsigned long long)e->offset);
    if (e->offset != CKR_NO_OFFSET && e->where[0]) text_str(t, ", ");
    text_clean(t, e->where);
    if (e->offset != CKR_NO_OFFSET || e->where[0]) text_str(t, ": ");
    text_clean(t, e->text);
    text_str(t, "\n");
    if (!e->remedy[0]) return;
    text_str(t, "  remedy: ");
    text_clean(t, e->remedy);
    text_str(t, "\n");
}

/* Says what is in j->err and returns the exit code. */
static int fail(job *j)
{
    if (j->o.json) error_json(&j->out, &j->err);
    else error_text(&j->note, &j->err);
    text_drain(&j->note);
    return exit_code_of(&j->err);
}

static void error_set(ckr_error *e, ckr_result code, ckr_item item, const char *where)
{
    memset(e, 0, sizeof *e);
    e->code = code;
    e->item = item;
    e->offset = CKR_NO_OFFSET;
    snprintf(e->where, sizeof e->where, "%.180s", where ? where : "");
}

/* A mistake on the command line: fills j->err and returns 2 as `fail` does. */
TOOL_PRINTF(3, 4)
static int usage(job *j, const char *where, const char *fmt, ...)
{
    va_list ap;
    error_set(&j->err, CKR_E_ARG, CKR_ITEM_ARG, where);
    va_start(ap, fmt);
    vsnprintf(j->err.text, sizeof j->err.text, fmt, ap);
    va_end(ap);
    snprintf(j->err.remedy, sizeof j->err.remedy, "ckptresume help%s%s", j->verb ? " " : "",
             j->verb ? j->verb->name : "");
    return fail(j);
}

static int out_of_memory(job *j)
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

static void signals_catch(void)
{
    size_t i;
    for (i = 0; i < COUNT_OF(ending); i++)
        if (signal(ending[i], ask_to_end) == SIG_IGN) signal(ending[i], SIG_IGN);
}

/* Ends as the signal would have: a shell's loop ends with the program. */
static void signals_heed(void)
{
    if (!asked_to_end) return;
    signal(asked_to_end, SIG_DFL);
    raise(asked_to_end);
}

/* >>progress ------------------------------------------------------------------ */
/* A line on stderr when work takes over a second: in place on a terminal, one a second elsewhere.
   */

static void progress_begin(job *j)
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

static bool progress_hook(void *user, uint64_t done, uint64_t total)
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
static double progress_end(job *j)
{
    if (j->progress.shown && j->progress.terminal) text_str(&j->note, "\r\033[K");
    text_drain(&j->note);
    j->progress.shown = false;
    return now_seconds() - j->progress.start;
}

static void log_hook(void *user, const ckr_error *what)
{
    job *j = (job *)user;
    if (j->o.quiet) return;
    error_text(&j->note, what);
    text_drain(&j->note);
}

/* >>args ---------------------------------------------------------------------- */
/* Every flag of the command line is a row: where its value goes, how it is read, which verbs take
   it. KIND_LATER rows are flags of the contract that this version cannot honour: their `help` is
   the only value that changes nothing and is therefore accepted ("*" any); other values are
   refused. */

typedef enum option_kind {
    KIND_SWITCH = 0, KIND_TEXT, KIND_COUNT, KIND_ROWS, KIND_STAGE, KIND_BYTES, KIND_MODE,
    KIND_DTYPE, KIND_COLOR, KIND_ONLY, KIND_WITHOUT, KIND_SET, KIND_LR_POLICY, KIND_COLUMN,
    KIND_RATIO, KIND_RNG, KIND_SEED, KIND_UNTIL, KIND_LATER
} option_kind;

typedef struct option {
    const char *name, *value;  /* value: its name in help, NULL for a switch          */
    option_kind kind;
    size_t      at;            /* in `options`                                        */
    uint32_t    verbs;
    const char *help;
} option;

#define AT(member) offsetof(options, member)

static const option all_options[] = {
    { "to", "DIALECT", KIND_TEXT, AT(target.dialect), VERB_TARGET,
      "the framework of the coming run (default: the source's)" },
    { "variant", "V", KIND_TEXT, AT(target.variant), VERB_TARGET, "one of a framework's layouts" },
    { "tp", "N", KIND_COUNT, AT(target.topology.tp), VERB_TARGET | VERB_RNG,
      "tensor-parallel size" },
    { "pp", "N", KIND_COUNT, AT(target.topology.pp), VERB_TARGET | VERB_RNG,
      "pipeline-parallel size" },
    { "dp", "N", KIND_COUNT, AT(target.topology.dp), VERB_TARGET | VERB_RNG,
      "data-parallel size" },
    { "ep", "N", KIND_COUNT, AT(target.topology.ep), VERB_TARGET | VERB_RNG,
      "expert-parallel size" },
    { "cp", "N", KIND_COUNT, AT(target.topology.cp), VERB_TARGET | VERB_RNG,
      "context-parallel size" },
    { "zero", "STAGE", KIND_STAGE, AT(target.topology.zero), VERB_TARGET, "ZeRO stage, 0 to 3" },
    { "ranks", "N", KIND_COUNT, AT(target.topology.ranks), VERB_TARGET | VERB_RNG,
      "processes of the coming run" },
    { "vocab", "N", KIND_ROWS, AT(target.vocab), VERB_OPENING,
      "logical vocabulary size, where no file tells it" },
    { "heads", "N", KIND_ROWS, AT(heads), VERB_POLICY,
      "heads of the attention, where no file tells them (megatron, nanotron, llmc)" },
    { "kv-heads", "N", KIND_ROWS, AT(kv_heads), VERB_POLICY,
      "key-value heads of the attention, where no file tells them (megatron, nanotron, "
      "torchtitan)" },
    { "fsdp-size", "N", KIND_ROWS, AT(fsdp_size), VERB_TARGET,
      "ranks that FSDP cuts one copy of the model over (verl)" },
    { "mode", "MODE", KIND_MODE, AT(target.mode), VERB_POLICY | VERB_RNG,
      "recover, continue (default) or transfer" },
    { "only", "LIST", KIND_ONLY, AT(target.without), VERB_POLICY,
      "keep only these components: params,optimizer,groups,schedule,rng,progress,data" },
    { "without", "LIST", KIND_WITHOUT, AT(target.without), VERB_POLICY,
      "leave these components out" },
    { "dtype", "DT", KIND_DTYPE, AT(target.dtype), VERB_TARGET | VERB_EXPORT,
      "cast parameters: float32, bfloat16, float16, ..." },
    { "slots", "LIST", KIND_TEXT, AT(target.slots), VERB_TARGET | VERB_EXPORT,
      "tensors of a plain file: params (default), all, or a list" },
    { "max-shard-size", "SIZE", KIND_BYTES, AT(max_shard_bytes), VERB_TARGET | VERB_EXPORT,
      "safetensors: a directory of files no larger, and model.safetensors.index.json: 5GB, 512M" },
    { "set", "KEY=VALUE", KIND_SET, AT(sets), VERB_POLICY,
      "lr, min_lr, weight_decay, warmup_steps, decay_steps, total_steps, decay_style, batch_size; "
      "GROUP.KEY=VALUE for one group; may be repeated" },
    { "to-schedule", "KIND:...", KIND_TEXT, AT(target.schedule), VERB_POLICY,
      "the whole schedule of the coming run, in its framework's own names" },
    { "schedule", "KIND:...", KIND_TEXT, AT(schedule), VERB_POLICY | VERB_INSPECT,
      "the schedule of the saved run, where the checkpoint does not tell it" },
    { "like", "FILE", KIND_TEXT, AT(like), VERB_POLICY,
      "a checkpoint or JSON that has the coming run's groups: {\"groups\":[{\"params\":[..],"
      "\"lr\":..}]}" },
    { "lr-policy", "POLICY", KIND_LR_POLICY, AT(target.lr_policy), VERB_POLICY,
      "keep, target, splice, stretch or rewarm (default: target when a key of the schedule is set, "
      "else keep)" },
    { "rewarm-steps", "N", KIND_ROWS, AT(target.rewarm_steps), VERB_POLICY,
      "how long --lr-policy rewarm warms up" },
    { "max-lr-jump", "R", KIND_RATIO, AT(target.max_lr_jump), VERB_POLICY,
      "largest ratio between the last LR used and the first one after (default 1.05)" },
    { "settings", "FILE", KIND_TEXT, AT(settings), VERB_TARGET,
      "what the coming run must be started with, into FILE" },
    { "optimizer", "FILE", KIND_TEXT, AT(optimizer), VERB_LR | VERB_INSPECT,
      "the optimizer's file beside a bare scheduler's" },
    { "from", "STEP", KIND_ROWS, AT(from), VERB_LR, "first update shown (default 1)" },
    { "to", "STEP|DIALECT", KIND_UNTIL, AT(to), VERB_LR,
      "last update shown (default: the run's or the schedule's end, or twice the step); or the "
      "coming run's framework" },
    { "column", "NAME", KIND_COLUMN, AT(column), VERB_LR, "lr (default), weight_decay, momentum" },
    { "csv", NULL, KIND_SWITCH, AT(csv), VERB_LR, "comma-separated values instead of a table" },
    { "svg", "FILE", KIND_TEXT, AT(svg), VERB_LR, "a plot of both curves, into FILE" },
    { "strict", NULL, KIND_SWITCH, AT(target.strict), VERB_POLICY | VERB_EXPORT,
      "refuse anything but exact and changed" },
    { "force", NULL, KIND_SWITCH, AT(target.force), VERB_TARGET | VERB_EXPORT,
      "the output may exist: it is replaced" },
    { "repair", NULL, KIND_SWITCH, AT(target.repair), VERB_TARGET | VERB_EXPORT,
      "undo known writer bugs where the right bytes can be proven" },
    { "tensors", NULL, KIND_SWITCH, AT(tensors), VERB_INSPECT, "list every tensor" },
    { "files", NULL, KIND_SWITCH, AT(files), VERB_PLAN, "list every file that would be written" },
    { "select", "POINTER", KIND_TEXT, AT(select), VERB_TREE,
      "only this part: a JSON pointer, /optimizer/state/0" },
    { "hash", NULL, KIND_SWITCH, AT(hash), VERB_TREE, "with the SHA-256 of tensors and storages" },
    { "json", NULL, KIND_SWITCH, AT(json), VERB_ANY,
      "one JSON document on stdout, nothing else there" },
    { "dialect", "D", KIND_TEXT, AT(dialect), VERB_OPENING,
      "the framework that wrote it, instead of recognition" },
    { "format", "F", KIND_TEXT, AT(format), VERB_OPENING | VERB_TREE,
      "insist on a file format: safetensors, torch_zip, ..." },
    { "names", "FILE", KIND_TEXT, AT(names), VERB_OPENING,
      "parameter names in the optimizer's order" },
    { "threads", "N", KIND_COUNT, AT(threads), VERB_ANY, "default: one per CPU" },
    { "memory", "SIZE", KIND_BYTES, AT(memory), VERB_ANY, "cap on buffers: 256M, 1M, 2G" },
    { "quiet", NULL, KIND_SWITCH, AT(quiet), VERB_ANY,
      "only the result, no progress and no notes" },
    { "progress", NULL, KIND_SWITCH, AT(progress), VERB_ANY,
      "progress on stderr even when it is no terminal" },
    { "color", "WHEN", KIND_COLOR, AT(color), VERB_ANY, "auto (default), always or never" },
    { "help", NULL, KIND_SWITCH, AT(help), VERB_ANY, "help for a verb" },
    { "vpp", "N", KIND_COUNT, AT(vpp), VERB_TARGET,
      "virtual pipeline stages of each stage (megatron)" },
    { "to-version", "V", KIND_TEXT, AT(to_version), VERB_TARGET,
      "of the target framework, where its layout changed (megatron)" },
    { "rng", "POLICY", KIND_RNG, AT(target.rng), VERB_TARGET | VERB_RNG,
      "keep (default): what was saved stays; remap: repeated streams are derived anew; reseed" },
    { "seed", "S", KIND_SEED, AT(target.seed), VERB_TARGET | VERB_RNG, "of --rng reseed" },
    { "data", "GLOB", KIND_TEXT, AT(data), VERB_TARGET,
      "the coming run's token files, where the position in the data is counted anew (llm.c)" },
    { "micro-batch", "B", KIND_ROWS, AT(micro_batch), VERB_TARGET,
      "its samples of one process and micro-step" },
    { "seq-len", "T", KIND_ROWS, AT(seq_len), VERB_TARGET, "its tokens of one sample" }
};

static bool parse_u64(const char *s, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;
    if (!*s) return false;
    for (; *s >= '0' && *s <= '9'; s++) {
        const uint64_t d = (uint64_t)(*s - '0');
        if (v > (max - d) / 10) return false;
        v = v * 10 + d;
    }
    *out = v;
    return *s == '\0' && v <= max;
}

/* 4096, 64K, 256M, 2G, 1T; also 256MiB; 5GB counts in thousands */
static bool parse_bytes(const char *s, uint64_t *out)
{
    static const char units[] = "KMGT";
    const size_t n = strspn(s, "0123456789");
    const char *unit;
    char digits[24];
    uint64_t scale = 1;
    if (n == 0 || n >= sizeof digits) return false;
    memcpy(digits, s, n);
    digits[n] = '\0';
    s += n;
    if (*s && (unit = strchr(units, *s >= 'a' ? *s - 'a' + 'A' : *s)) != NULL) {
        ptrdiff_t k = unit - units + 1;
        const uint64_t step = s[1] == 'B' ? 1000 : 1024;       /* 5GB, and 5G or 5GiB */
        for (s += s[1] == 'i' ? 2 : 1; k > 0; k--) scale *= step;
    }
    if (*s == 'B') s++;
    if (*s || !parse_u64(digits, UINT64_MAX, out) || *out > UINT64_MAX / scale || *out == 0)
        return false;
    *out *= scale;
    return true;
}

/* The index of a word in a list, or -1. */
static int word_index(const char *const *words, size_t n, const char *s, size_t len)
{
    size_t i;
    for (i = 0; i < n; i++)
        if (strlen(words[i]) == len && !memcmp(words[i], s, len)) return (int)i;
    return -1;
}

static bool parse_components(const char *s, uint32_t *bits)
{
    static const char *const names[] = { "params", "optimizer", "groups", "schedule",
                                         "rng",    "progress",  "data" };
    *bits = 0;
    for (;;) {
        const size_t n = strcspn(s, ",");
        const int i = word_index(names, COUNT_OF(names), s, n);
        if (i < 0) return false;
        *bits |= (uint32_t)1 << i;
        if (!s[n]) return true;
        s += n + 1;
    }
}

static bool parse_dtype(const char *s, ckr_dtype *out)
{
    static const char *const shorts[] = { "fp32", "f32",  "float", "bf16", "fp16",
                                          "f16",  "half", "fp64",  "f64" };
    static const ckr_dtype of_short[] = {
        CKR_DTYPE_F32, CKR_DTYPE_F32, CKR_DTYPE_F32, CKR_DTYPE_BF16, CKR_DTYPE_F16, CKR_DTYPE_F16,
        CKR_DTYPE_F16, CKR_DTYPE_F64, CKR_DTYPE_F64
    };
    const int k = word_index(shorts, COUNT_OF(shorts), s, strlen(s));
    int i;
    if (k >= 0) *out = of_short[k];
    for (i = 1; k < 0 && i < (int)CKR_DTYPE_COUNT_; i++)
        if (!strcmp(s, ckr_dtype_name((ckr_dtype)i))) {
            *out = (ckr_dtype)i;
            return true;
        }
    return k >= 0;
}

/* A word of a fixed list becomes its index, stored as an int (the size of our enums). */
static bool store_word(void *field, const char *const *words, size_t n, const char *s)
{
    const int i = word_index(words, n, s, strlen(s));
    if (i >= 0) memcpy(field, &i, sizeof i);
    return i >= 0;
}

static bool store_number(const option *o, void *field, const char *s)
{
    uint64_t v;
    uint32_t u;
    int32_t stage;
    if (o->kind == KIND_BYTES) {
        if (!parse_bytes(s, &v)) return false;
        memcpy(field, &v, sizeof v);
        return true;
    }
    if (!parse_u64(s, o->kind == KIND_STAGE ? 3 : o->kind == KIND_ROWS ? INT64_MAX : 1u << 24, &v))
        return false;
    if (o->kind == KIND_STAGE) {
        stage = v ? (int32_t)v : CKR_ZERO_OFF;
        memcpy(field, &stage, sizeof stage);
    } else if (o->kind == KIND_ROWS) {
        memcpy(field, &v, sizeof v);
    } else {
        u = (uint32_t)v;
        memcpy(field, &u, sizeof u);
    }
    return v > 0 || o->kind == KIND_STAGE;
}

/* GROUP.KEY=VALUE: the key is behind the last dot, a name may have dots. The text is the command
   line's own and is cut in place. */
static bool store_setting(options *into, const char *s)
{
    char *whole = (char *)(uintptr_t)s, *equals = strchr(whole, '='), *dot;
    ckr_setting *x = &into->sets[into->target.n_sets];
    if (!equals || equals == whole || !equals[1] || into->target.n_sets >= SETTINGS_MAX)
        return false;
    *equals = '\0';
    dot = strrchr(whole, '.');
    if (dot) *dot = '\0';
    x->group = dot ? whole : NULL;
    x->key = dot ? dot + 1 : whole;
    x->value = equals + 1;
    into->target.sets = into->sets;
    into->target.n_sets++;
    return *x->key != '\0';
}

static bool store_ratio(void *field, const char *s)
{
    char *end = NULL;
    const double v = strtod(s, &end);
    if (!end || *end || !(v >= 1 && v <= 1e300)) return false;
    memcpy(field, &v, sizeof v);
    return true;
}

static bool store_components(const option *o, void *field, const char *s)
{
    uint32_t bits, old;
    if (!parse_components(s, &bits)) return false;
    memcpy(&old, field, sizeof old);
    old |= o->kind == KIND_ONLY ? ~bits & 127u : bits;
    memcpy(field, &old, sizeof old);
    return true;
}

/* Reads `s` into the option's field; false: not a value of this kind. */
static bool option_store(const option *o, options *into, const char *s)
{
    static const char *const modes[] = { "continue", "recover", "transfer" };
    static const char *const colors[] = { "auto", "always", "never" };
    static const char *const policies[] = { "", "keep", "target", "splice", "stretch", "rewarm" };
    static const char *const columns[] = { "lr", "weight_decay", "momentum" };
    static const char *const rng_policies[] = { "keep", "remap", "reseed" };
    void *field = (char *)into + o->at;
    const bool on = true;
    ckr_dtype dtype;
    switch (o->kind) {
    case KIND_SWITCH: memcpy(field, &on, sizeof on); return true;
    case KIND_TEXT: memcpy(field, &s, sizeof s); return *s != '\0';
    case KIND_MODE: return store_word(field, modes, COUNT_OF(modes), s);
    case KIND_COLOR: return store_word(field, colors, COUNT_OF(colors), s);
    case KIND_ONLY:
    case KIND_WITHOUT: return store_components(o, field, s);
    case KIND_DTYPE:
        if (!parse_dtype(s, &dtype)) return false;
        memcpy(field, &dtype, sizeof dtype);
        return true;
    case KIND_SET: return store_setting(into, s);
    case KIND_LR_POLICY: return *s && store_word(field, policies, COUNT_OF(policies), s);
    case KIND_COLUMN: return store_word(field, columns, COUNT_OF(columns), s);
    case KIND_RATIO: return store_ratio(field, s);
    case KIND_RNG: return store_word(field, rng_policies, COUNT_OF(rng_policies), s);
    case KIND_SEED: return parse_u64(s, UINT64_MAX, (uint64_t *)field);
    case KIND_UNTIL:
        if (parse_u64(s, INT64_MAX, (uint64_t *)field)) return into->to > 0;
        into->target.dialect = s;
        return *s != '\0' && !strchr("-+.0123456789", *s);
    case KIND_LATER: return o->help && (o->help[0] == '*' || !strcmp(o->help, s));
    case KIND_COUNT:
    case KIND_ROWS:
    case KIND_STAGE:
    case KIND_BYTES: return store_number(o, field, s);
    }
    return false;
}

static const char *option_wants(const option *o)
{
    switch (o->kind) {
    case KIND_COUNT:
    case KIND_ROWS: return "a whole number from 1";
    case KIND_UNTIL: return "a whole number from 1, or a framework";
    case KIND_STAGE: return "0, 1, 2 or 3";
    case KIND_BYTES: return "a size like 256M, 64K or 2G";
    case KIND_MODE: return "recover, continue or transfer";
    case KIND_COLOR: return "auto, always or never";
    case KIND_ONLY:
    case KIND_WITHOUT: return "a list out of params,optimizer,groups,schedule,rng,progress,data";
    case KIND_DTYPE: return "a dtype like float32, bfloat16 or float16";
    case KIND_SET: return "KEY=VALUE or GROUP.KEY=VALUE";
    case KIND_LR_POLICY: return "keep, target, splice, stretch or rewarm";
    case KIND_COLUMN: return "lr, weight_decay or momentum";
    case KIND_RATIO: return "a number from 1";
    case KIND_RNG: return "keep, remap or reseed";
    case KIND_SEED: return "a whole number";
    case KIND_SWITCH:
    case KIND_TEXT:
    case KIND_LATER: break;
    }
    return "a value";
}

/* Edit distance of two words, both cut at 31 letters: enough to find a mistyped flag. */
static size_t word_distance(const char *a, const char *b)
{
    size_t row[32], n = strlen(b), i, k;
    if (n > 31) n = 31;
    for (k = 0; k <= n; k++) row[k] = k;
    for (i = 0; a[i] && i < 31; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (k = 1; k <= n; k++) {
            size_t best = diagonal + (a[i] != b[k - 1]);
            diagonal = row[k];
            if (row[k] + 1 < best) best = row[k] + 1;
            if (row[k - 1] + 1 < best) best = row[k - 1] + 1;
            row[k] = best;
        }
    }
    return row[n];
}

static const option *option_nearest(const char *name)
{
    const option *best = &all_options[0];
    size_t i, least = SIZE_MAX;
    for (i = 0; i < COUNT_OF(all_options); i++) {
        size_t d = word_distance(name, all_options[i].name);
        if (!strncmp(name, all_options[i].name, strlen(name))) d = d > 1 ? 1 : d;
        if (d < least) {
            least = d;
            best = &all_options[i];
        }
    }
    return best;
}

/* --to is a framework for most verbs and a step for lr: the row that the verb takes, else the first
   one. The verb stands before its flags, or the flag is ambiguous and means the first.          */
static const option *option_find(const job *j, const char *name, size_t n)
{
    const option *first = NULL;
    size_t i;
    for (i = 0; i < COUNT_OF(all_options); i++) {
        const option *o = &all_options[i];
        if (strlen(o->name) != n || memcmp(o->name, name, n) != 0) continue;
        if (j->verb && (o->verbs & j->verb->bit)) return o;
        if (!first) first = o;
    }
    return first;
}

static int option_refuse(job *j, const option *o, const char *flag, const char *value)
{
    if (o->kind != KIND_LATER)
        return usage(j, flag, "found \"%.100s\", expected %s", value, option_wants(o));
    if (o->help && o->help[0] != '*')
        return usage(j, flag, "\"%.100s\" is not available yet; only \"%s\" is", value, o->help);
    return usage(j, flag, "this flag is not available yet");
}

/* One flag, argv[*i]; takes the next argument where it is the value. `used` collects rows for the
   check against the verb, which may come later. */
static int option_take(job *j, int argc, char **argv, int *i, bool *used)
{
    const char *arg = argv[*i] + 2, *equals = strchr(arg, '='), *value = "";
    const size_t n = equals ? (size_t)(equals - arg) : strlen(arg);
    const option *o = option_find(j, arg, n);
    char flag[64];
    snprintf(flag, sizeof flag, "--%.*s", n > 60 ? 60 : (int)n, arg);
    if (!o)
        return usage(j, flag, "there is no such flag; the nearest is --%s",
                     option_nearest(flag + 2)->name);
    if (!o->value && equals) return usage(j, flag, "this flag takes no value");
    if (equals) {
        value = equals + 1;
    } else if (o->value) {
        if (*i + 1 >= argc || !strncmp(argv[*i + 1], "--", 2))
            return usage(j, flag, "the value is missing, expected %s", option_wants(o));
        value = argv[++*i];
    }
    used[o - all_options] = true;
    return option_store(o, &j->o, value) ? CODE_DONE : option_refuse(j, o, flag, value);
}

/* >>output -------------------------------------------------------------------- */
/* Parts that several verbs print, once as JSON and once for the eye. */

static const char *const format_names[] = { "auto",   "safetensors", "torch_zip", "torch_legacy",
                                            "pickle", "npy",         "npz",       "json",
                                            "yaml",   "dcp",         "llmc",      "text" };

static const char *format_name(ckr_format f)
{
    return (size_t)f < COUNT_OF(format_names) && f != CKR_FORMAT_AUTO ? format_names[f] : NULL;
}

static void version_put(text *t)
{
    text_fmt(t, "%d.%d.%d", CKR_VERSION_MAJOR, CKR_VERSION_MINOR, CKR_VERSION_PATCH);
}

static void json_version(json *w)
{
    json_key(w, "version");
    text_str(w->t, "\"");
    version_put(w->t);
    text_str(w->t, "\"");
    w->comma = true;
}

static void json_topology(json *w, const ckr_topology *t)
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

static void json_progress(json *w, const ckr_state *s, bool kept)
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
static void json_head(json *w, const ckr_ckpt *c)
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

static void json_entry(json *w, const ckr_note *n)
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

/* Entries from two places: of the state or the plan, and of what was done with it. */
typedef struct report { const ckr_note *notes[2]; uint64_t n[2]; } report;

static report report_of(const ckr_note *a, uint64_t n_a, const ckr_note *b, uint64_t n_b)
{
    report r;
    r.notes[0] = a;
    r.notes[1] = b;
    r.n[0] = n_a;
    r.n[1] = n_b;
    return r;
}

static uint64_t report_count(const report *r, ckr_severity severity)
{
    uint64_t i, n = 0;
    int k;
    for (k = 0; k < 2; k++)
        for (i = 0; i < r->n[k]; i++) n += r->notes[k][i].severity == severity;
    return n;
}

static void json_report(json *w, const report *r)
{
    uint64_t i;
    int k;
    json_key(w, "report");
    json_open(w, "[");
    for (k = 0; k < 2; k++)
        for (i = 0; i < r->n[k]; i++) json_entry(w, &r->notes[k][i]);
    json_close(w, "]");
}

static void report_entry(text *t, const ckr_note *n)
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
static void report_text(text *t, const report *r, const char *title)
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
static void topology_text(text *t, const ckr_topology *p)
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

static void label(text *t, const char *name)
{
    text_paint(t, PAINT_DIM);
    text_fmt(t, "  %-10s ", name);
    text_plain(t);
}

static void progress_text(text *t, const ckr_state *s)
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
static void head_text(text *t, const ckr_ckpt *c, const char *asked)
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

/* >>open ---------------------------------------------------------------------- */

static void open_desc(const job *j, ckr_open_desc *d)
{
    memset(d, 0, sizeof *d);
    d->dialect = j->o.dialect;
    d->vocab = j->o.target.vocab;
    d->schedule = j->o.schedule;
    d->optimizer = j->o.optimizer;
    d->env = &j->env;
}

/* --format insists on what was recognised. */
static int open_format(job *j, const ckr_ckpt *c)
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

static int open_checkpoint(job *j, const char *path, ckr_ckpt **out)
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

/* >>inspect ------------------------------------------------------------------- */

#define SLOTS_SHOWN 24

typedef struct slot_sum {
    const char *slot;
    uint64_t tensors, elements, bytes;
    ckr_dtype dtype;
    bool mixed;
} slot_sum;

static uint64_t tensor_elements(const ckr_tensor *t)
{
    uint64_t n = 1;
    uint32_t i;
    for (i = 0; i < t->n_dims; i++) n *= (uint64_t)t->shape[i];
    return n;
}

/* Sums per slot in the order of appearance; a slot past SLOTS_SHOWN counts in the last row. */
static size_t slot_sums(const ckr_state *s, slot_sum *sums)
{
    size_t n = 0, k;
    uint64_t i;
    for (i = 0; i < s->n_tensors; i++) {
        const ckr_tensor *t = s->tensors[i];
        const uint64_t elements = tensor_elements(t);
        for (k = 0; k < n && strcmp(sums[k].slot, t->slot) != 0; k++) {}
        if (k == n && n < SLOTS_SHOWN) {
            memset(&sums[n], 0, sizeof sums[n]);
            sums[n].slot = t->slot;
            sums[n++].dtype = t->dtype;
        } else if (k == n) {
            k = n - 1;
            sums[k].slot = "(others)";
        }
        sums[k].tensors++;
        sums[k].elements += elements;
        sums[k].bytes += elements * ckr_dtype_size(t->dtype);
        if (t->dtype != sums[k].dtype) sums[k].mixed = true;
    }
    return n;
}

static void inspect_json_tensors(json *w, const job *j, const ckr_state *s)
{
    uint64_t i, params = 0, bytes = 0;
    for (i = 0; i < s->n_tensors; i++) {
        const uint64_t n = tensor_elements(s->tensors[i]);
        if (!strcmp(s->tensors[i]->slot, "param") && !s->tensors[i]->buffer) params += n;
        bytes += n * ckr_dtype_size(s->tensors[i]->dtype);
    }
    json_key(w, "tensors");
    json_open(w, "{");
    json_pair_uint(w, "count", s->n_tensors);
    json_pair_uint(w, "params", params);
    json_pair_uint(w, "bytes", bytes);
    if (j->o.tensors) {
        json_key(w, "list");
        json_open(w, "[");
        for (i = 0; i < s->n_tensors; i++) {
            const ckr_tensor *t = s->tensors[i];
            json_open(w, "{");
            json_pair(w, "name", t->name);
            json_pair(w, "slot", t->slot);
            json_pair(w, "dtype", ckr_dtype_name(t->dtype));
            json_key(w, "shape");
            json_shape(w, t->n_dims, t->shape);
            json_pair_uint(w, "pieces", t->n_pieces);
            json_close(w, "}");
        }
        json_close(w, "]");
    }
    json_close(w, "}");
}

static void inspect_json_groups(json *w, const ckr_ckpt *c, const ckr_state *s)
{
    uint64_t i, k;
    json_key(w, "groups");
    json_open(w, "[");
    for (i = 0; i < s->n_groups; i++) {
        const ckr_group *g = &s->groups[i];
        json_open(w, "{");
        json_pair_uint(w, "index", i);
        json_pair(w, "name", g->name);
        json_key(w, "hyper");
        if (g->hyper) json_node(w, c, g->hyper);
        else json_raw(w, "{}");
        json_key(w, "params");
        json_open(w, "[");
        for (k = 0; k < g->n_params; k++) json_string(w, g->params[k]);
        json_close(w, "]");
        json_close(w, "}");
    }
    json_close(w, "]");
}

static void inspect_json_schedules(json *w, const ckr_ckpt *c, const ckr_state *s)
{
    uint64_t i;
    json_key(w, "schedules");
    json_open(w, "[");
    for (i = 0; i < s->n_schedules; i++) {
        const ckr_schedule_facts h = ckr_schedule_info(ckr_ckpt_schedule(c, i));
        json_open(w, "{");
        json_pair(w, "kind", h.kind);
        json_pair(w, "clock", h.clock);
        json_positive(w, "position", h.position, 0);
        json_key(w, "params");
        if (h.params) json_node(w, c, h.params);
        else json_raw(w, "{}");
        json_close(w, "}");
    }
    json_close(w, "]");
}

static void inspect_json_rng(json *w, const ckr_state *s)
{
    uint64_t i = 0;
    json_key(w, "rng");
    json_open(w, "[");
    while (i < s->n_rng) {
        const uint32_t rank = s->rng[i].rank;
        json_open(w, "{");
        json_pair_uint(w, "rank", rank);
        json_key(w, "streams");
        json_open(w, "[");
        for (; i < s->n_rng && s->rng[i].rank == rank; i++) {
            json_open(w, "{");
            json_pair(w, "kind", s->rng[i].kind);
            json_pair(w, "name", s->rng[i].name);
            json_pair(w, "scope", s->rng[i].scope);
            json_pair_uint(w, "bytes", s->rng[i].n_bytes);
            json_close(w, "}");
        }
        json_close(w, "]");
        json_close(w, "}");
    }
    json_close(w, "]");
}

static void inspect_json(job *j, const ckr_ckpt *c)
{
    const ckr_state *s = ckr_ckpt_state(c);
    const report notes = report_of(s->notes, s->n_notes, NULL, 0);
    json w;
    uint64_t i;
    w.t = &j->out;
    w.comma = false;
    json_open(&w, "{");
    json_head(&w, c);
    inspect_json_tensors(&w, j, s);
    inspect_json_groups(&w, c, s);
    inspect_json_schedules(&w, c, s);
    inspect_json_rng(&w, s);
    json_key(&w, "ties");
    json_open(&w, "[");
    for (i = 0; i < s->n_ties; i++) {
        json_open(&w, "[");
        json_string(&w, s->ties[i].name);
        json_string(&w, s->ties[i].other);
        json_close(&w, "]");
    }
    json_close(&w, "]");
    json_key(&w, "leftovers");
    json_open(&w, "[");
    for (i = 0; i < s->n_leftovers; i++) json_string(&w, s->leftovers[i].path);
    json_close(&w, "]");
    json_report(&w, &notes);
    json_close(&w, "}");
    text_str(&j->out, "\n");
}

static void inspect_slots(text *t, const ckr_state *s)
{
    static const char *const titles[] = { "slot", "tensors", "elements", "bytes", "dtype" };
    slot_sum sums[SLOTS_SHOWN];
    const size_t n = slot_sums(s, sums);
    size_t i;
    table b;
    if (!n) return;
    text_str(t, "\n");
    text_painted(t, PAINT_BOLD, "tensors");
    text_str(t, "\n");
    table_begin(&b, 5, 2 | 4 | 8, titles);
    for (i = 0; i < n; i++) {
        table_text(&b, sums[i].slot);
        table_count(&b, sums[i].tensors);
        table_count(&b, sums[i].elements);
        table_size(&b, sums[i].bytes);
        table_text(&b, sums[i].mixed ? "mixed" : ckr_dtype_name(sums[i].dtype));
    }
    table_end(&b, t);
}

static void inspect_list(text *t, const ckr_state *s)
{
    static const char *const titles[] = { "name", "slot", "dtype", "shape", "pieces" };
    uint64_t i;
    table b;
    text_str(t, "\n");
    table_begin(&b, 5, 16, titles);
    for (i = 0; i < s->n_tensors; i++) {
        const ckr_tensor *x = s->tensors[i];
        table_text(&b, x->name);
        table_text(&b, x->slot);
        table_text(&b, ckr_dtype_name(x->dtype));
        text_shape(&b.cell, x->n_dims, x->shape);
        table_cell(&b);
        table_count(&b, x->n_pieces);
    }
    table_end(&b, t);
}

/* "lr 0.001, betas [0.9,0.95]"; flags that are off say nothing */
static void hyper_text(text *t, const ckr_ckpt *c, const ckr_node *hyper)
{
    bool any = false;
    uint64_t i;
    if (!ckr_node_is_dict(hyper)) return;
    for (i = 0; i < hyper->count; i++) {
        const ckr_node *key = hyper->u.items[2 * i], *v = hyper->u.items[2 * i + 1];
        if (!v || v->kind == CKR_NODE_NONE || (v->kind == CKR_NODE_BOOL && !v->u.b)) continue;
        if (any) text_str(t, ", ");
        text_node(t, c, key);
        text_str(t, " ");
        text_node(t, c, v);
        any = true;
    }
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

/* A NUL-terminated text, wrapped under the indent of a group's or schedule's values. */
static void inspect_values(text *t, const ckr_ckpt *c, const ckr_node *dict)
{
    text line;
    memset(&line, 0, sizeof line);
    hyper_text(&line, c, dict);
    text_put(&line, "", 1);
    text_pad(t, 11);
    if (line.data) text_wrap(t, 11, 11, line.data);
    if (line.failed) t->failed = true;
    text_free(&line);
}

/* "  0-3,7-9    13 parameters" for all groups from `first` on that are marked as its like. */
static void inspect_group_like(text *t, const ckr_state *s, const uint64_t *like, uint64_t first)
{
    uint64_t i, from = 0, n_params = 0;
    bool open = false, any = false;
    text_str(t, "  ");
    for (i = first; i <= s->n_groups; i++) {
        const bool mine = i < s->n_groups && like[i] == first;
        if (mine) n_params += s->groups[i].n_params;
        if (mine && !open) from = i;
        if (!mine && open) {
            text_fmt(t, any ? ",%llu" : "%llu", (unsigned long long)from);
            if (i - from > 1) text_fmt(t, "-%llu", (unsigned long long)(i - 1));
            any = true;
        }
        open = mine;
    }
    if (s->groups[first].name) {
        text_str(t, "  ");
        text_clean(t, s->groups[first].name);
    }
    text_str(t, ": ");
    text_plural(t, n_params, "parameter", "parameters");
    text_str(t, "\n");
}

/* like[i]: the first group with the same values. Rendered lines stand in `all`, one after the
   other. */
static bool inspect_group_likes(const ckr_ckpt *c, const ckr_state *s, uint64_t *like, size_t *at,
                                text *all)
{
    uint64_t i, k;
    for (i = 0; i < s->n_groups; i++) {
        at[i] = all->n;
        hyper_text(all, c, s->groups[i].hyper);
        at[i + 1] = all->n;
        for (k = 0; k < i; k++) {
            const size_t n = at[k + 1] - at[k];
            if (like[k] == k && n == at[i + 1] - at[i] &&
                same_text(s->groups[k].name, s->groups[i].name) &&
                (!n || !memcmp(all->data + at[k], all->data + at[i], n)))
                break;
        }
        like[i] = k;
    }
    return !all->failed;
}

/* Groups with the same hyper-parameters share a line: a group per parameter is common. */
static void inspect_groups(text *t, const ckr_ckpt *c, const ckr_state *s)
{
    const size_t n = s->n_groups < SIZE_MAX / 32 ? (size_t)s->n_groups : 0;
    uint64_t *like, i;
    size_t *at;
    text all;
    if (!n) return;
    like = (uint64_t *)malloc(n * sizeof *like);
    at = (size_t *)malloc((n + 1) * sizeof *at);
    memset(&all, 0, sizeof all);
    text_str(t, "\n");
    text_painted(t, PAINT_BOLD, "parameter groups");
    text_str(t, "\n");
    if (!like || !at || !inspect_group_likes(c, s, like, at, &all)) t->failed = true;
    for (i = 0; i < n && !t->failed; i++) {
        if (like[i] != i) continue;
        inspect_group_like(t, s, like, i);
        inspect_values(t, c, s->groups[i].hyper);
    }
    free(like);
    free(at);
    text_free(&all);
}

static void inspect_schedules(text *t, const ckr_ckpt *c, const ckr_state *s)
{
    uint64_t i;
    for (i = 0; i < s->n_schedules; i++) {
        const ckr_schedule_facts h = ckr_schedule_info(ckr_ckpt_schedule(c, i));
        if (i == 0) {
            text_str(t, "\n");
            text_painted(t, PAINT_BOLD, "schedules");
            text_str(t, "\n");
        }
        text_str(t, "  ");
        text_clean(t, h.kind);
        text_str(t, ", ");
        text_clean(t, h.clock);
        text_fmt(t, " %lld\n", (long long)h.position);
        inspect_values(t, c, h.params);
    }
}

/* One line for each kind of stream: on how many ranks it is. */
static void inspect_rng(text *t, const ckr_state *s)
{
    uint64_t i, k, ranks;
    for (i = 0; i < s->n_rng && i < 4096; i++) {
        const ckr_stream *r = &s->rng[i];
        bool seen = false;
        for (k = 0; k < i && !seen; k++)
            seen = same_text(s->rng[k].kind, r->kind) && same_text(s->rng[k].name, r->name);
        if (seen) continue;
        for (k = ranks = 0; k < s->n_rng; k++)
            ranks += same_text(s->rng[k].kind, r->kind) && same_text(s->rng[k].name, r->name);
        if (i == 0) {
            text_str(t, "\n");
            text_painted(t, PAINT_BOLD, "random streams");
            text_str(t, "\n");
        }
        text_str(t, "  ");
        text_clean(t, r->kind);
        text_str(t, " ");
        text_clean(t, r->name);
        text_str(t, ": ");
        text_plural(t, ranks, "rank", "ranks");
        text_str(t, ", ");
        text_size(t, r->n_bytes);
        if (r->scope && r->scope[0]) {
            text_str(t, ", varies over ");
            text_clean(t, r->scope);
        } else {
            text_str(t, ", the same everywhere");
        }
        text_str(t, "\n");
    }
}

static void inspect_rest(text *t, const ckr_state *s)
{
    uint64_t i;
    for (i = 0; i < s->n_ties; i++) {
        text_str(t, i ? "" : "\n");
        label(t, "tied");
        text_clean(t, s->ties[i].name);
        text_str(t, " = ");
        text_clean(t, s->ties[i].other);
        text_str(t, "\n");
    }
    if (!s->n_leftovers) return;
    text_str(t, "\n");
    text_painted(t, PAINT_BOLD, "not understood");
    text_str(t, ", carried along unchanged\n");
    for (i = 0; i < s->n_leftovers && i < 12; i++) {
        text_str(t, "  ");
        text_clean(t, s->leftovers[i].path);
        text_str(t, "\n");
    }
    if (i < s->n_leftovers)
        text_fmt(t, "  and %llu more\n", (unsigned long long)(s->n_leftovers - i));
}

static void inspect_text(job *j, const ckr_ckpt *c)
{
    const ckr_state *s = ckr_ckpt_state(c);
    const report notes = report_of(s->notes, s->n_notes, NULL, 0);
    text *t = &j->out;
    head_text(t, c, j->args[0]);
    if (j->o.quiet) return;
    inspect_slots(t, s);
    if (j->o.tensors) inspect_list(t, s);
    inspect_groups(t, c, s);
    inspect_schedules(t, c, s);
    inspect_rng(t, s);
    inspect_rest(t, s);
    report_text(t, &notes, "report");
}

static int verb_inspect(job *j)
{
    ckr_ckpt *c;
    const int code = open_checkpoint(j, j->args[0], &c);
    if (code != CODE_DONE) return code;
    if (j->o.json) inspect_json(j, c);
    else inspect_text(j, c);
    ckr_ckpt_close(c);
    return CODE_DONE;
}

/* >>outline ------------------------------------------------------------------- */
/* A file as an outline. A node may have several parents, and a hostile file may be a cycle: what
   was shown is marked by its id and shown again only by name. The stack grows on the heap. */

typedef struct outline_frame { const ckr_node *n; uint64_t i; } outline_frame;

typedef struct outline_walk {
    text       *t;
    outline_frame *stack;
    size_t      depth, cap;
    uint8_t    *seen;          /* a bit per node id                                   */
    size_t      n_seen;
} outline_walk;

static bool outline_leaf(const ckr_node *n)
{
    return !n || (!ckr_node_is_dict(n) && !value_is_list(n) && n->kind != CKR_NODE_OBJECT &&
                  !n->attrs && !(n->kind == CKR_NODE_TENSOR && n->u.view->parts));
}

/* A list of numbers and words fits on its line. */
static bool outline_inline(const ckr_node *n)
{
    uint64_t i;
    if (outline_leaf(n)) return true;
    if (!value_is_list(n) || n->attrs) return false;
    for (i = 0; i < n->count; i++) {
        const ckr_node *x = n->u.items[i];
        if (!outline_leaf(x) || (x && (x->kind == CKR_NODE_TENSOR || x->kind == CKR_NODE_NDARRAY)))
            return false;
    }
    return true;
}

#define OUTLINE_EXTRAS 8          /* the children that have a fixed name                 */

static const ckr_node *outline_extra(const ckr_node *n, uint64_t i, const char **name)
{
    static const char *const names[OUTLINE_EXTRAS] = { "(callable)", "(args)",  "(kwargs)",
                                                    "(state)",    "(items)", "(dictitems)",
                                                    "(parts)",    "(attrs)" };
    const ckr_object *o = n->kind == CKR_NODE_OBJECT ? n->u.object : NULL;
    *name = names[i];
    switch (i) {
    case 0: return o ? o->callable : NULL;
    case 1: return o ? o->args : NULL;
    case 2: return o ? o->kwargs : NULL;
    case 3: return o ? o->state : NULL;
    case 4: return o ? o->items : NULL;
    case 5: return o ? o->dictitems : NULL;
    case 6: return n->kind == CKR_NODE_TENSOR ? n->u.view->parts : NULL;
    default: return n->attrs;
    }
}

static const char *outline_kind(const ckr_node *n)
{
    static const char *const names[] = {
        "none",  "bool",      "int",         "int",    "float",   "complex",   "str",
        "bytes", "bytearray", "list",        "tuple",  "set",     "frozenset", "dict",
        "odict", "counter",   "defaultdict", "tensor", "storage", "ndarray",   "npscalar",
        "size",  "device",    "dtype",       "layout", "global",  "object",    "entry"
    };
    return n && n->kind < COUNT_OF(names) ? names[n->kind] : "none";
}

/* True when it was shown before; marks it. */
static bool outline_mark(outline_walk *w, const ckr_node *n)
{
    const size_t at = n->id / 8;
    const uint8_t bit = (uint8_t)(1u << (n->id % 8));
    if (at >= w->n_seen) {
        const size_t size = 2 * at + 1024;
        uint8_t *p = (uint8_t *)realloc(w->seen, size);
        if (!p) {
            w->t->failed = true;
            return true;
        }
        memset(p + w->n_seen, 0, size - w->n_seen);
        w->seen = p;
        w->n_seen = size;
    }
    if (w->seen[at] & bit) return true;
    w->seen[at] = (uint8_t)(w->seen[at] | bit);
    return false;
}

/* ", this file: [31:61, 0:24] of mesh (fsdp=2) on cpu, Shard(0), rank 1" */
static void outline_dist(text *t, const ckr_view *v)
{
    const ckr_dist *d = v->dist;
    uint64_t i, n = 0;
    uint32_t k;
    text_str(t, ", this file:");
    for (i = 0; i < d->n_shards; i++) {
        const ckr_shard *s = &d->shards[i];
        if (!s->local) continue;
        text_str(t, n++ ? " and [" : " [");
        for (k = 0; k < v->n_dims; k++)
            text_fmt(t, k ? ", %lld:%lld" : "%lld:%lld", (long long)s->start[k],
                     (long long)(s->start[k] + s->count[k]));
        text_str(t, "]");
    }
    if (!n) text_str(t, " nothing");
    if (d->mesh) {
        text_str(t, " of mesh (");
        for (k = 0; k < d->mesh->n_dims; k++) {
            if (k) text_str(t, ", ");
            if (d->mesh->names) text_clean(t, d->mesh->names[k]);
            text_fmt(t, d->mesh->names ? "=%lld" : "%lld", (long long)d->mesh->shape[k]);
        }
        text_str(t, ") on ");
        text_clean(t, d->mesh->device_type);
    } else if (d->n_shards) {
        text_fmt(t, " of %llu shards", (unsigned long long)d->n_shards);
    }
    for (k = 0; k < d->n_placements; k++) {
        const ckr_placement *p = &d->placements[k];
        if (p->kind == CKR_PLACE_SHARD) text_fmt(t, ", Shard(%d)", (int)p->dim);
        else if (p->kind == CKR_PLACE_STRIDED)
            text_fmt(t, ", _StridedShard(%d, %lld)", (int)p->dim, (long long)p->split_factor);
        else text_str(t, p->kind == CKR_PLACE_PARTIAL ? ", Partial" : ", Replicate");
    }
    if (d->rank >= 0) text_fmt(t, ", rank %lld", (long long)d->rank);
    if (d->fault) {
        text_str(t, ": ");
        text_clean(t, d->fault);
    }
}

static void outline_tensor(text *t, const ckr_view *v)
{
    text_fmt(t, " %s [", view_dtype(v));
    text_shape(t, v->n_dims, v->shape);
    text_str(t, "]");
    if (v->layout) text_fmt(t, " %s", v->layout);
    if (v->parameter) text_str(t, " parameter");
    else if (v->requires_grad) text_str(t, " requires_grad");
    if (v->storage) {
        text_str(t, " storage ");
        text_clean(t, v->storage);
        if (v->offset) text_fmt(t, " from %lld", (long long)v->offset);
    }
    if (v->dist) outline_dist(t, v);
}

/* What stands after "name: ". */
static void outline_head(text *t, const ckr_node *n)
{
    const char *kind = outline_kind(n);
    if (n && (ckr_node_is_dict(n) || value_is_list(n))) {
        text_painted(t, PAINT_DIM, kind);
        text_fmt(t, " (%llu)", (unsigned long long)n->count);
    } else if (n && (n->kind == CKR_NODE_TENSOR || n->kind == CKR_NODE_NDARRAY ||
                     n->kind == CKR_NODE_STORAGE)) {
        text_painted(t, PAINT_DIM, kind);
        outline_tensor(t, n->u.view);
        return;
    } else if (n && n->kind == CKR_NODE_OBJECT) {
        text_painted(t, PAINT_DIM, "object ");
        text_clean(t, n->u.object->name);
        text_str(t, ", not built");
        return;
    } else if (n && (n->kind == CKR_NODE_BYTES || n->kind == CKR_NODE_BYTEARRAY)) {
        text_painted(t, PAINT_DIM, kind);
        text_fmt(t, " (%llu)", (unsigned long long)n->count);
        return;
    } else {
        text_painted(t, PAINT_DIM, kind);
    }
    if (!outline_inline(n) || !n || n->kind == CKR_NODE_NONE) return;
    text_str(t, " ");
    text_node(t, NULL, n);
}

static bool outline_push(outline_walk *w, const ckr_node *n)
{
    if (w->depth == w->cap) {
        const size_t cap = w->cap ? 2 * w->cap : 64;
        outline_frame *p = (outline_frame *)realloc(w->stack, cap * sizeof *p);
        if (!p) {
            w->t->failed = true;
            return false;
        }
        w->stack = p;
        w->cap = cap;
    }
    w->stack[w->depth].n = n;
    w->stack[w->depth++].i = 0;
    return true;
}

/* Prints what follows the name and goes down where there is more. */
static void outline_visit(outline_walk *w, const ckr_node *n)
{
    outline_head(w->t, n);
    if (!outline_inline(n)) {
        if (outline_mark(w, n)) text_str(w->t, "  (shown above)");
        else outline_push(w, n);
    }
    text_str(w->t, "\n");
}

/* The next child of the top frame with its name printed; NULL and *more false at the end. */
static const ckr_node *outline_next(outline_walk *w, bool *more)
{
    outline_frame *f = &w->stack[w->depth - 1];
    const bool dict = ckr_node_is_dict(f->n);
    const uint64_t n = dict || value_is_list(f->n) ? f->n->count : 0;
    const ckr_node *child = NULL;
    const char *name = NULL;
    *more = true;
    while (!child && f->i >= n && f->i < n + OUTLINE_EXTRAS)
        child = outline_extra(f->n, f->i++ - n, &name);
    if (!child && f->i >= n) {
        *more = false;
        return NULL;
    }
    text_pad(w->t, w->depth < 40 ? 2 * w->depth : 80);
    if (child) {
        text_str(w->t, name);
    } else if (dict) {
        text_node(w->t, NULL, f->n->u.items[2 * f->i]);
        child = f->n->u.items[2 * f->i++ + 1];
    } else {
        text_fmt(w->t, "[%llu]", (unsigned long long)f->i);
        child = f->n->u.items[f->i++];
    }
    text_str(w->t, ": ");
    return child;
}

static void outline_text(text *t, const ckr_node *root)
{
    outline_walk w;
    memset(&w, 0, sizeof w);
    w.t = t;
    outline_visit(&w, root);
    while (w.depth > 0 && !t->failed) {
        bool more;
        const ckr_node *child = outline_next(&w, &more);
        if (more) outline_visit(&w, child);
        else w.depth--;
    }
    free(w.stack);
    free(w.seen);
}

/* >>tree ---------------------------------------------------------------------- */
/* The exact form is tree_json.h's. Its bytes come through ckr_view_read, as a view of plain
   bytes; its text goes to a temporary file first, so that a read error leaves nothing but the
   error on stdout. */

#include "tree_json.h"

typedef struct tree_source { const ckr_ckpt *ckpt; ckr_error *err; } tree_source;

static bool tree_source_read(void *user, uint32_t file, uint64_t offset, void *dst, size_t n)
{
    const tree_source *s = (const tree_source *)user;
    const int64_t shape = (int64_t)n, stride = 1;
    ckr_view v;
    memset(&v, 0, sizeof v);
    v.dtype = CKR_DTYPE_U8;
    v.file = file;
    v.data_offset = offset;
    v.data_bytes = n;
    v.n_dims = 1;
    v.shape = &shape;
    v.stride = &stride;
    return ckr_view_read(s->ckpt, &v, 0, shape, dst, s->err) == CKR_OK;
}

/* All of `from` to the job's output. */
static bool tree_copy(job *j, FILE *from)
{
    char block[4096];
    size_t n;
    rewind(from);
    while ((n = fread(block, 1, sizeof block, from)) > 0) text_put(&j->out, block, n);
    return !ferror(from);
}

static int tree_json(job *j, const ckr_ckpt *c, const ckr_node *n)
{
    const char *format = format_name(ckr_ckpt_state(c)->format);
    FILE *f = file_temporary();
    tree_source source;
    tree_io io;
    int code = CODE_DONE;
    if (!f) {
        error_set(&j->err, CKR_E_IO, CKR_ITEM_IO_OPEN, NULL);
        snprintf(j->err.text, sizeof j->err.text, "cannot make a temporary file: %s",
                 strerror(errno));
        return fail(j);
    }
    source.ckpt = c;
    source.err = &j->err;
    memset(&io, 0, sizeof io);
    io.read_fn = tree_source_read;
    io.user = &source;
    memset(&j->err, 0, sizeof j->err);
    if (!tree_print(f, j->args[0], format ? format : "", n, &io, j->o.hash))
        code = j->err.code != CKR_OK ? fail(j) : out_of_memory(j);
    else if (!tree_copy(j, f))
        j->out.failed = true;
    fclose(f);
    return code;
}

static int tree_selected(job *j, const ckr_ckpt *c, const ckr_node **n)
{
    *n = ckr_ckpt_root(c);
    if (!j->o.select) return CODE_DONE;
    *n = ckr_node_find(*n, j->o.select);
    if (*n) return CODE_DONE;
    error_set(&j->err, CKR_E_NOT_FOUND, CKR_ITEM_PATH_NOT_FOUND, j->o.select);
    snprintf(j->err.file, sizeof j->err.file, "%.250s", j->args[0]);
    snprintf(j->err.text, sizeof j->err.text,
             "nothing is there, expected a JSON pointer into the file");
    snprintf(j->err.remedy, sizeof j->err.remedy, "see the whole tree without --select");
    fail(j);
    return CODE_INPUT;
}

static int verb_tree(job *j)
{
    ckr_open_desc d;
    ckr_ckpt *c;
    const ckr_node *n;
    int code;
    open_desc(j, &d);
    if (ckr_tree_open(j->args[0], &d, &c, &j->err) != CKR_OK) return fail(j);
    code = open_format(j, c);
    if (code == CODE_DONE) code = tree_selected(j, c, &n);
    if (code == CODE_DONE && j->o.json) {
        code = tree_json(j, c, n);
    } else if (code == CODE_DONE) {
        const char *format = format_name(ckr_ckpt_state(c)->format);
        text_paint(&j->out, PAINT_BOLD);
        text_clean(&j->out, j->args[0]);
        text_plain(&j->out);
        text_fmt(&j->out, "  %s  ", format ? format : "");
        outline_text(&j->out, n);
    }
    ckr_ckpt_close(c);
    return code;
}

/* >>plan ---------------------------------------------------------------------- */
/* plan, convert and export: one plan, looked at or carried out. A refusal is a result (exit 1)
   with the ordinary document, also where the library returned it as an error: that becomes an
   entry. */

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

/* The side of the document that says what will be, with the keys of the source's side. */
static void plan_json_to(json *w, const job *j, const outcome *o)
{
    const ckr_plan_facts *f = o->facts;
    const bool kept =
        !(j->o.target.without & CKR_PROGRESS) && j->o.target.mode != CKR_MODE_TRANSFER;
    json_key(w, "to");
    json_open(w, "{");
    json_version(w);
    json_pair(w, "path", o->path);
    json_pair(w, "format", NULL);
    json_pair(w, "dialect", f ? f->dialect : j->o.target.dialect);
    json_pair(w, "framework_version", NULL);
    json_topology(w, f ? &f->to : &j->o.target.topology);
    json_pair_uint(w, "files", f ? f->n_files : 0);
    json_pair_uint(w, "bytes", f ? f->bytes_written : 0);
    json_progress(w, ckr_ckpt_state(o->ckpt), kept);
    json_close(w, "}");
}

static bool is_known(const uint8_t *digest, size_t n)
{
    while (n > 0) if (digest[--n]) return true;
    return false;
}

static void plan_json_done(json *w, const outcome *o)
{
    json_key(w, "seconds");
    json_double(w, o->seconds);
    json_key(w, "digest");
    if (o->written) json_hex(w, o->receipt.digest, sizeof o->receipt.digest);
    else json_raw(w, "null");
    json_key(w, "digest_written");
    if (o->written && is_known(o->receipt.digest_written, sizeof o->receipt.digest_written))
        json_hex(w, o->receipt.digest_written, sizeof o->receipt.digest_written);
    else json_raw(w, "null");
}

static const char *mode_name(ckr_mode m)
{
    return m == CKR_MODE_RECOVER ? "recover" : m == CKR_MODE_CONTINUE ? "continue" : "transfer";
}

#include "settings.h"

static void plan_json(job *j, const outcome *o)
{
    const ckr_plan_facts *f = o->facts;
    const report notes = outcome_report(o);
    json w;
    uint64_t i;
    w.t = &j->out;
    w.comma = false;
    json_open(&w, "{");
    json_key(&w, "from");
    json_open(&w, "{");
    json_head(&w, o->ckpt);
    json_close(&w, "}");
    plan_json_to(&w, j, o);
    json_pair(&w, "mode", mode_name(j->o.target.mode));
    json_pair(&w, "verdict", verdict_name(o));
    json_report(&w, &notes);
    json_pair_uint(&w, "copies", f ? f->n_copies : 0);
    json_pair_uint(&w, "bytes_read", o->written ? o->receipt.bytes_read : f ? f->bytes_read : 0);
    json_pair_uint(&w, "bytes_written",
                   o->written ? o->receipt.bytes_written : f ? f->bytes_written : 0);
    json_pair_uint(&w, "peak_bytes", f ? f->peak_bytes : 0);
    json_key(&w, "files");
    json_open(&w, "[");
    for (i = 0; f && i < f->n_files; i++) {
        json_open(&w, "{");
        json_pair(&w, "path", f->files[i].path[0] || !o->path ? f->files[i].path : o->path);
        json_pair_uint(&w, "bytes", f->files[i].bytes);
        json_close(&w, "}");
    }
    json_close(&w, "]");
    settings_json(&w, f, o->path);
    if (j->verb->bit != VERB_PLAN) plan_json_done(&w, o);
    json_close(&w, "}");
    text_str(&j->out, "\n");
}

static void plan_side(text *t, const char *name, const char *dialect, const ckr_topology *p,
                      const char *path)
{
    label(t, name);
    text_clean(t, dialect ? dialect : "none");
    text_str(t, "  ");
    if (p) topology_text(t, p);
    if (path) {
        text_str(t, "  ");
        text_clean(t, path);
    }
    text_str(t, "\n");
}

static const char *verdict_paint(const outcome *o)
{
    const char *v = verdict_name(o);
    return v[0] == 'r'   ? PAINT_RED
           : v[0] == 'a' ? PAINT_YELLOW
           : v[0] == 'c' ? PAINT_CYAN
                         : PAINT_GREEN;
}

/* The first 12, unless all are asked for. */
static void plan_files(text *t, const ckr_plan_facts *f, bool all)
{
    static const char *const titles[] = { "file", "bytes" };
    const uint64_t shown = all || f->n_files < 12 ? f->n_files : 12;
    table b;
    uint64_t i;
    if (f->n_files < 2) return;
    text_str(t, "\n");
    table_begin(&b, 2, 2, titles);
    for (i = 0; i < shown; i++) {
        table_text(&b, f->files[i].path);
        table_size(&b, f->files[i].bytes);
    }
    table_end(&b, t);
    if (shown < f->n_files)
        text_fmt(t, "  and %llu more (--files lists them)\n",
                 (unsigned long long)(f->n_files - shown));
}

static void plan_sums(text *t, const outcome *o)
{
    const ckr_plan_facts *f = o->facts;
    text_str(t, "\n");
    label(t, o->written ? "written" : "to write");
    text_plural(t, f->n_files, "file", "files");
    text_str(t, ", ");
    text_size(t, f->bytes_written);
    text_str(t, " in ");
    text_plural(t, f->n_copies, "copy", "copies");
    text_str(t, "; reads ");
    text_size(t, o->written ? o->receipt.bytes_read : f->bytes_read);
    if (o->written)
        text_fmt(t, " in %.2f s (%.2f GB/s)", o->seconds,
                 (double)f->bytes_written / 1e9 / (o->seconds > 1e-9 ? o->seconds : 1e-9));
    text_str(t, "\n");
    label(t, "memory");
    text_size(t, f->peak_bytes);
    text_str(t, " at most\n");
    if (!o->written) return;
    label(t, "digest");
    text_hex(t, o->receipt.digest, sizeof o->receipt.digest);
    text_str(t, memcmp(o->receipt.digest, o->receipt.digest_written, sizeof o->receipt.digest)
                    ? " read, "
                    : " read and written\n");
    if (!memcmp(o->receipt.digest, o->receipt.digest_written, sizeof o->receipt.digest)) return;
    if (!is_known(o->receipt.digest_written, sizeof o->receipt.digest_written)) {
        text_str(t, "what `digest` says of the output needs --names\n");
        return;
    }
    text_hex(t, o->receipt.digest_written, sizeof o->receipt.digest_written);
    text_str(t, " written\n");
}

/* Why a plan without a single error is refused: the policy makes the mildest entries errors. */
static const char *plan_refusal(const job *j)
{
    if (j->o.target.mode == CKR_MODE_RECOVER)
        return ": --mode recover allows nothing but exact; --mode continue takes these changes";
    return j->o.target.strict ? ": --strict allows nothing but exact and changed" : "";
}

static void plan_text(job *j, const outcome *o)
{
    const ckr_state *s = ckr_ckpt_state(o->ckpt);
    const report notes = outcome_report(o);
    text *t = &j->out;
    if (j->o.quiet) {
        if (o->refused) report_text(&j->note, &notes, "refused");
        text_drain(&j->note);
        return;
    }
    plan_side(t, "from", s->dialect, &s->topology, ckr_ckpt_path(o->ckpt));
    plan_side(t, "to", o->facts ? o->facts->dialect : j->o.target.dialect,
              o->facts && j->verb->bit != VERB_EXPORT ? &o->facts->to : NULL, o->path);
    label(t, "progress");
    if (j->o.target.mode == CKR_MODE_TRANSFER) text_str(t, "starts again at 0");
    else progress_text(t, s);
    text_str(t, "\n");
    label(t, "mode");
    text_fmt(t, "%s%s\n", mode_name(j->o.target.mode), j->o.target.strict ? ", strict" : "");
    label(t, "verdict");
    text_painted(t, verdict_paint(o), verdict_name(o));
    if (o->refused && !report_count(&notes, CKR_ERROR)) text_str(t, plan_refusal(j));
    text_str(t, "\n");
    report_text(t, &notes, "report");
    if (o->refused || !o->facts) return;
    if (j->verb->bit == VERB_PLAN) plan_files(t, o->facts, j->o.files);
    plan_sums(t, o);
    if (!o->facts->n_settings) return;
    text_str(t, "\nStart the coming run with:\n");
    if (!settings_text(t, o->facts, o->path, true)) t->failed = true;
}

/* --ranks counts all processes: what the other sizes leave of it is data-parallel. */
static int plan_ranks(job *j, const ckr_state *s)
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

/* What --like names: its groups become the target's. */
typedef struct like { ckr_ckpt *file; ckr_group *groups; uint64_t n; } like;

static void like_free(like *l)
{
    uint64_t i;
    for (i = 0; l->groups && i < l->n; i++) free((void *)(uintptr_t)l->groups[i].params);
    free(l->groups);
    ckr_ckpt_close(l->file);
}

static int like_json(job *j, like *l)
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

static int like_open(job *j, like *l)
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
    static const char *const flags[][2] = {
        { "to_version", "--to-version" }, { "max_shard_bytes", "--max-shard-size" },
        { "vpp", "--vpp" }, { "slots", "--slots" }, { "kv_heads", "--kv-heads" },
        { "data", "--data" }, { "dtype", "--dtype" }, { "float8", "--dtype" },
        { "fsdp_size", "--fsdp-size" }, { "heads", "--heads" }
    };
    size_t i;
    if (j->err.item == CKR_ITEM_LIMIT && !strcmp(j->err.where, "max_bytes"))
        snprintf(j->err.where, sizeof j->err.where, "--memory");
    if (!j->err.file[0] && (j->err.item == CKR_ITEM_WRITE_DUPLICATE ||
                            j->err.item == CKR_ITEM_WRITE_NAME))
        snprintf(j->err.file, sizeof j->err.file, "%.250s", j->args[0]);
    for (i = 0; i < sizeof flags / sizeof *flags; i++)
        if ((j->err.item == CKR_ITEM_ARG || j->err.item == CKR_ITEM_MEGATRON_NO_VERSION) &&
            !strcmp(j->err.where, flags[i][0]))
            snprintf(j->err.where, sizeof j->err.where, "%s", flags[i][1]);
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

static bool path_regular(const char *path)
{
    struct stat at;
    return stat(path, &at) != 0 || (at.st_mode & S_IFMT) == S_IFREG;
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

/* Before anything else is written, so that nothing is where this fails. */
static bool settings_write(job *j, outcome *o, settings_file *to)
{
    text t;
    FILE *f;
    bool ok;
    if (!to->path || o->refused) return true;
    memset(&t, 0, sizeof t);
    ok = settings_text(&t, o->facts, o->path, false) && !t.failed;
    to->made = path_regular(to->path);
    f = ok ? file_open(to->made ? to->temp : to->path, "wb") : NULL;
    ok = f && fwrite(t.data ? t.data : "", 1, t.n, f) == t.n;
    if (f && fclose(f) != 0) ok = false;
    text_free(&t);
    if (ok) return true;
    error_set(&j->err, CKR_E_IO, CKR_ITEM_IO_WRITE, NULL);
    snprintf(j->err.file, sizeof j->err.file, "%.250s", j->o.settings);
    snprintf(j->err.text, sizeof j->err.text, "--settings cannot be written: %s", strerror(errno));
    snprintf(j->err.remedy, sizeof j->err.remedy, "give a file in a directory that is writable");
    outcome_refuse(j, o);
    return false;
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

/* Carries the plan out. */
static int plan_write(job *j, ckr_plan *plan, outcome *o)
{
    ckr_result r;
    signals_catch();
    progress_begin(j);
    r = ckr_plan_write(plan, o->path, &o->receipt, &j->err);
    o->seconds = progress_end(j);
    if (r == CKR_E_CANCELLED) {
        snprintf(j->err.file, sizeof j->err.file, "%.250s", o->path);
        snprintf(j->err.text, sizeof j->err.text, "interrupted; nothing of it was left behind");
    }
    o->written = r == CKR_OK;
    if (r == CKR_E_REFUSED) outcome_refuse(j, o);
    else if (r != CKR_OK) return fail(j);
    return CODE_DONE;
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
    like l;
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
        if (j->o.json) plan_json(j, &o);
        else plan_text(j, &o);
        code = o.refused ? CODE_REFUSED : CODE_DONE;
    }
    ckr_plan_free(plan);
    like_free(&l);
    ckr_ckpt_close(c);
    return code;
}

static int verb_plan(job *j)
{
    return plan_verb(j, NULL);
}

static int verb_convert(job *j)
{
    return plan_verb(j, j->args[1]);
}

static int verb_export(job *j)
{
    j->o.target.dialect = "safetensors";
    j->o.target.variant = "live";      /* the module's own names */
    if (!j->o.target.slots) j->o.target.slots = "params";
    return plan_verb(j, j->args[1]);
}

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
    json_key(w, "report");
    json_open(w, "[");
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
    w.t = &j->out;
    w.comma = false;
    json_open(&w, "{");
    json_key(&w, "digest");
    json_hex(&w, total, 16);
    json_key(&w, "tensors");
    json_open(&w, "[");
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
    json_close(&w, "}");
    text_str(&j->out, "\n");
}

static void digest_text(job *j, const ckr_state *s, const digest16 *each, const digest16 total)
{
    static const char *const titles[] = { "digest", "name", "slot", "dtype", "shape" };
    text *t = &j->out;
    uint64_t i;
    table b;
    if (j->o.quiet) {
        text_hex(t, total, 16);
        text_str(t, "\n");
        return;
    }
    table_begin(&b, 5, 0, titles);
    for (i = 0; i < s->n_tensors; i++) {
        const ckr_tensor *x = s->tensors[i];
        text_hex(&b.cell, each[i], 16);
        table_cell(&b);
        table_text(&b, x->name);
        table_text(&b, x->slot);
        table_text(&b, ckr_dtype_name(x->dtype));
        text_shape(&b.cell, x->n_dims, x->shape);
        table_cell(&b);
    }
    table_end(&b, t);
    text_str(t, "\n  ");
    text_paint(t, PAINT_BOLD);
    text_hex(t, total, 16);
    text_plain(t);
    text_str(t, "  all ");
    text_plural(t, s->n_tensors, "tensor", "tensors");
    text_str(t, "\n");
    digest_text_left_out(t, s);
}

static int verb_digest(job *j)
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

/* >>diff ---------------------------------------------------------------------- */

static void diff_json_side(json *w, const ckr_diff *d, const char *key, int where)
{
    uint64_t i;
    json_key(w, key);
    json_open(w, "[");
    for (i = 0; i < d->n_tensors; i++) {
        const ckr_tensor_diff *t = &d->tensors[i];
        if (t->where != where) continue;
        json_open(w, "{");
        json_pair(w, "name", t->name);
        json_pair(w, "slot", t->slot);
        if (where == 0) {
            json_pair_uint(w, "elements", t->n_elements);
            json_key(w, "max_abs");
            json_double(w, t->max_abs);
            if (t->max_ulp == CKR_NO_ULP) json_pair(w, "max_ulp", NULL);
            else json_pair_uint(w, "max_ulp", t->max_ulp);
        }
        json_close(w, "}");
    }
    json_close(w, "]");
}

/* Entries by what they are about: the code says it. */
static const char *diff_section(const ckr_note *n)
{
    static const char *const key[] = { "groups", "schedules", "rng", "leftovers", "leftovers" };
    static const char *const part[] = { "GROUP", "SCHED", "RNG", "LEFTOVER", "NOT_COMPARED" };
    size_t i;
    for (i = 0; i < COUNT_OF(part); i++)
        if (strstr(n->code, part[i])) return key[i];
    return "progress";
}

static void diff_json(job *j, const ckr_diff *d, bool same)
{
    static const char *const sections[] = { "groups", "schedules", "rng", "progress",
                                            "leftovers" };
    json w;
    size_t k;
    uint64_t i;
    w.t = &j->out;
    w.comma = false;
    json_open(&w, "{");
    json_key(&w, "same");
    json_bool(&w, same);
    json_key(&w, "tensors");
    json_open(&w, "{");
    diff_json_side(&w, d, "only_a", -1);
    diff_json_side(&w, d, "only_b", 1);
    diff_json_side(&w, d, "different", 0);
    json_close(&w, "}");
    for (k = 0; k < COUNT_OF(sections); k++) {
        json_key(&w, sections[k]);
        json_open(&w, "[");
        for (i = 0; i < d->n_others; i++)
            if (!strcmp(diff_section(&d->others[i]), sections[k])) json_entry(&w, &d->others[i]);
        json_close(&w, "]");
    }
    json_close(&w, "}");
    text_str(&j->out, "\n");
}

static void diff_tensors(text *t, const ckr_diff *d)
{
    static const char *const titles[] = { "name", "slot", "elements", "max abs", "max ulp" };
    const uint64_t shown = 200;
    table b;
    uint64_t i;
    if (!d->n_tensors) return;
    table_begin(&b, 5, 4 | 8 | 16, titles);
    for (i = 0; i < d->n_tensors && i < shown; i++) {
        const ckr_tensor_diff *x = &d->tensors[i];
        table_text(&b, x->name);
        table_text(&b, x->slot);
        table_count(&b, x->n_elements);
        if (x->where == 0) {
            text_fmt(&b.cell, "%.3g", x->max_abs);
            table_cell(&b);
            if (x->max_ulp == CKR_NO_ULP) table_text(&b, "");
            else table_count(&b, x->max_ulp);
        } else {
            table_text(&b, x->where < 0 ? "only in A" : "only in B");
            table_text(&b, "");
        }
    }
    table_end(&b, t);
    if (i < d->n_tensors)
        text_fmt(t, "  and %llu more (--json lists them)\n",
                 (unsigned long long)(d->n_tensors - i));
}

static void diff_text(job *j, const ckr_diff *d, const ckr_ckpt *a, const ckr_ckpt *b, bool same)
{
    const report notes = report_of(d->others, d->n_others, NULL, 0);
    text *t = &j->out;
    if (j->o.quiet) return;
    label(t, "A");
    text_clean(t, ckr_ckpt_path(a));
    text_str(t, "\n");
    label(t, "B");
    text_clean(t, ckr_ckpt_path(b));
    text_str(t, "\n");
    label(t, "result");
    text_painted(t, same ? PAINT_GREEN : PAINT_YELLOW, same ? "the same" : "different");
    if (same) {
        text_str(t, ": ");
        text_plural(t, ckr_ckpt_state(a)->n_tensors, "tensor", "tensors");
        text_str(t, d->n_others ? " equal bit for bit, but not all else could be compared"
                                : " equal bit for bit, groups, schedules, random streams, places "
                                  "in the data and progress too");
    } else if (d->n_tensors) {
        text_str(t, ": ");
        text_plural(t, d->n_tensors, "tensor", "tensors");
    }
    text_str(t, "\n");
    if (d->n_tensors) text_str(t, "\n");
    diff_tensors(t, d);
    report_text(t, &notes, "beside the tensors");
}

static int diff_both(job *j, const ckr_ckpt *a, const ckr_ckpt *b)
{
    ckr_diff *d = NULL;
    ckr_result r;
    report notes;
    bool same;
    progress_begin(j);
    r = ckr_ckpt_diff(a, b, &d, &j->err);
    progress_end(j);
    if (r != CKR_OK) return fail(j);
    notes = report_of(d->others, d->n_others, NULL, 0);
    same = !d->n_tensors && !report_count(&notes, CKR_CHANGED);
    if (j->o.json) diff_json(j, d, same);
    else diff_text(j, d, a, b, same);
    ckr_diff_free(d);
    return same ? CODE_DONE : CODE_REFUSED;
}

static int verb_diff(job *j)
{
    ckr_ckpt *a, *b;
    int code = open_checkpoint(j, j->args[0], &a);
    if (code != CODE_DONE) return code;
    code = open_checkpoint(j, j->args[1], &b);
    if (code == CODE_DONE) code = diff_both(j, a, b);
    ckr_ckpt_close(b);
    ckr_ckpt_close(a);
    return code;
}

/* >>check --------------------------------------------------------------------- */

static void check_json(job *j, const ckr_ckpt *c, const report *notes, uint64_t bytes_read,
                       bool sound)
{
    json w;
    w.t = &j->out;
    w.comma = false;
    json_open(&w, "{");
    json_head(&w, c);
    json_pair_uint(&w, "bytes_read", bytes_read);
    json_key(&w, "sound");
    json_bool(&w, sound);
    json_report(&w, notes);
    json_close(&w, "}");
    text_str(&j->out, "\n");
}

static void check_text(job *j, const ckr_ckpt *c, const report *notes, uint64_t bytes_read,
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
    text_size(t, bytes_read);
    text_fmt(t, " in %.2f s\n", seconds);
    label(t, "result");
    text_painted(t, sound ? PAINT_GREEN : PAINT_RED, sound ? "sound" : "not sound");
    text_str(t, "\n");
    report_text(t, notes, "report");
}

static int verb_check(job *j)
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
        if (j->o.json) check_json(j, c, &notes, r->bytes_read, sound);
        else check_text(j, c, &notes, r->bytes_read, sound, seconds);
        code = sound ? CODE_DONE : CODE_REFUSED;
        ckr_report_free(r);
    } else {
        code = fail(j);
    }
    ckr_ckpt_close(c);
    return code;
}

/* >>lr ------------------------------------------------------------------------ */

#include "lr_plot.h"

static const char *const column_names[] = { "lr", "weight_decay", "momentum" };

/* The two curves over one range; NaN: not known. `after` begins at the resume. */
typedef struct curves {
    const ckr_plan_facts *facts;
    int64_t  first;
    uint64_t n, lanes, cap;    /* rows, groups, doubles in an array                   */
    double  *before, *after;
} curves;

static uint64_t curve_groups(const ckr_plan_facts *f)
{
    return f->n_groups ? f->n_groups
                       : ckr_schedule_info(f->after ? f->after : f->before).n_lanes;
}

static int64_t curve_last(const job *j, const ckr_plan_facts *f)
{
    const ckr_schedule *s[2];
    int64_t last = -1, end;
    int i;
    s[0] = f->before;
    s[1] = f->after;
    for (i = 0; i < 4; i++) {              /* of the curves and of the runs               */
        end = i < 2 ? ckr_schedule_end(s[i]) : ckr_schedule_run_end(s[i - 2]);
        if (end > last) last = end;
    }
    if (j->o.to) return j->o.to;
    if (last < f->resume_at)
        last = f->resume_at < INT64_MAX / 2 ? 2 * (f->resume_at - 1) : INT64_MAX;
    return last > 0 ? last : 1;
}

/* What no schedule moves is the groups' own, and stays. */
static void curve_constant(const job *j, const ckr_group *groups, uint64_t n_groups, uint64_t n,
                           uint64_t lanes, double *out)
{
    uint64_t i, k;
    for (k = 0; k < lanes && k < n_groups && j->o.column != CKR_COLUMN_LR; k++) {
        const ckr_node *h = groups[k].hyper;
        const ckr_node *v = ckr_node_get(h, column_names[(unsigned)j->o.column % 3]);
        double value;
        if (!v && j->o.column == CKR_COLUMN_MOMENTUM) v = ckr_node_at(ckr_node_get(h, "betas"), 0);
        for (i = 0; i < n && ckr_node_f64(v, &value); i++)
            if (out[i * lanes + k] != out[i * lanes + k]) out[i * lanes + k] = value;
    }
}

/* A schedule whose groups are others than the plan's has no columns of its own here. */
static bool curve_fill(job *j, const ckr_schedule *s, int64_t first, uint64_t n, uint64_t lanes,
                       double *out)
{
    if (!s || ckr_schedule_info(s).n_lanes != lanes || !n) return true;
    return ckr_schedule_values(s, j->o.column, first, n, out, &j->env, &j->err) == CKR_OK;
}

static int curves_make(job *j, const ckr_state *saved, const ckr_plan_facts *f, curves *c)
{
    const int64_t last = curve_last(j, f), first = j->o.from ? j->o.from : 1;
    uint64_t i, total, skip;
    memset(c, 0, sizeof *c);
    c->facts = f;
    c->first = first;
    c->lanes = curve_groups(f);
    if (last < first) return usage(j, "--from", "found %lld, which is behind --to %lld",
                                   (long long)first, (long long)last);
    c->n = (uint64_t)(last - first) + 1;
    if (c->n > ((uint64_t)1 << 28) / (c->lanes ? c->lanes : 1))
        return usage(j, "--to", "%llu updates of %llu groups are more than 2^28 values",
                     (unsigned long long)c->n, (unsigned long long)c->lanes);
    total = c->n * c->lanes;
    c->before = (double *)malloc((size_t)(total ? total : 1) * sizeof *c->before);
    c->after = (double *)malloc((size_t)(total ? total : 1) * sizeof *c->after);
    if (!c->before || !c->after) return out_of_memory(j);
    for (i = 0; i < total; i++) c->before[i] = c->after[i] = (double)NAN;
    skip = f->resume_at > first ? (uint64_t)(f->resume_at - first) : 0;
    if (skip > c->n) skip = c->n;
    if (!curve_fill(j, f->before, first, c->n, c->lanes, c->before) ||
        !curve_fill(j, f->after, first + (int64_t)skip, c->n - skip, c->lanes,
                    c->after + skip * c->lanes))
        return fail(j);
    if (saved->n_groups == c->lanes)
        curve_constant(j, saved->groups, saved->n_groups, c->n, c->lanes, c->before);
    curve_constant(j, f->groups, f->n_groups, c->n - skip, c->lanes, c->after + skip * c->lanes);
    return CODE_DONE;
}

static void lr_json_rows(json *w, const job *j, const curves *c, const char *key,
                         const double *values, uint64_t skip)
{
    uint64_t i, k;
    json_key(w, key);
    json_open(w, "[");
    for (i = skip; i < c->n; i++) {
        json_open(w, "{");
        json_key(w, "step");
        json_int(w, c->first + (int64_t)i);
        json_key(w, column_names[(unsigned)j->o.column % 3]);
        json_open(w, "[");
        for (k = 0; k < c->lanes; k++) {
            const double v = values[i * c->lanes + k];
            if (v == v) json_double(w, v);
            else json_raw(w, "null");
        }
        json_close(w, "]");
        json_close(w, "}");
    }
    json_close(w, "]");
}

static uint64_t curve_skip(const curves *c)
{
    const uint64_t skip = c->facts->resume_at > c->first
                              ? (uint64_t)(c->facts->resume_at - c->first)
                              : 0;
    return skip < c->n ? skip : c->n;
}

static void lr_json(job *j, const curves *c, const report *notes)
{
    json w;
    uint64_t i;
    w.t = &j->out;
    w.comma = false;
    json_open(&w, "{");
    json_key(&w, "groups");
    json_open(&w, "[");
    for (i = 0; i < c->lanes; i++) {
        json_open(&w, "{");
        json_pair_uint(&w, "index", i);
        json_pair(&w, "name", i < c->facts->n_groups ? c->facts->groups[i].name : NULL);
        json_close(&w, "}");
    }
    json_close(&w, "]");
    json_report(&w, notes);
    json_pair(&w, "unit", "step");
    json_key(&w, "resume_at");
    json_int(&w, c->facts->resume_at);
    lr_json_rows(&w, j, c, "before", c->before, 0);
    lr_json_rows(&w, j, c, "after", c->after, curve_skip(c));
    json_close(&w, "}");
    text_str(&j->out, "\n");
}

/* A group's own name, or that of its only parameter. */
static const char *group_label(const ckr_group *g)
{
    return g->name ? g->name : g->n_params == 1 && g->params ? g->params[0] : NULL;
}

static int lr_svg_file(job *j, const lr_series *s)
{
    FILE *f = file_open(j->o.svg, "wb");
    bool ok = f != NULL && lr_svg(f, s);
    const int why = errno;
    if (f && fclose(f) != 0) ok = false;
    if (ok) return CODE_DONE;
    error_set(&j->err, CKR_E_IO, CKR_ITEM_IO_WRITE, NULL);
    snprintf(j->err.file, sizeof j->err.file, "%.250s", j->o.svg);
    snprintf(j->err.text, sizeof j->err.text, "cannot write: %s", strerror(why));
    return fail(j);
}

static int lr_show(job *j, const curves *c, const report *notes)
{
    lr_series s;
    const char **names = (const char **)calloc((size_t)c->lanes + 1, sizeof *names);
    uint64_t i;
    bool named = names != NULL, ok = true;
    int code = CODE_DONE;
    if (!names) return out_of_memory(j);
    for (i = 0; i < c->lanes; i++) {
        if (i < c->facts->n_groups) names[i] = group_label(&c->facts->groups[i]);
        named = named && names[i];
    }
    memset(&s, 0, sizeof s);
    s.column = column_names[(unsigned)j->o.column % 3];
    s.n_groups = (size_t)c->lanes;
    s.group_names = named ? names : NULL;
    s.first = c->first;
    s.n_rows = (size_t)c->n;
    s.before = c->before;
    s.after = c->after;
    s.resume_at = c->facts->resume_at;
    s.unit = "step";
    if (j->o.svg) code = lr_svg_file(j, &s);
    text_drain(&j->out);
    if (code == CODE_DONE && j->o.csv) ok = lr_csv(stdout, &s);
    else if (code == CODE_DONE && !j->o.json && !j->o.quiet) ok = lr_table(stdout, &s);
    if (!ok) j->out.failed = true;
    free((void *)names);
    if (code == CODE_DONE && !j->o.csv && !j->o.json && !j->o.quiet)
        report_text(&j->out, notes, "report");
    return code;
}

/* Of a plan that writes: what its framework cannot follow, or only nearly. */
static bool lr_held(const ckr_note *n)
{
    return !strcmp(n->code, "CKR_E_SCHEDULE_HOLD") || !strcmp(n->code, "CKR_W_SCHEDULE_FIT") ||
           !strcmp(n->code, "CKR_W_SCHEDULE_UNKNOWN");
}

static bool lr_said(const ckr_plan_facts *f, const char *code)
{
    uint64_t i;
    for (i = 0; i < f->n_notes; i++) if (!strcmp(f->notes[i].code, code)) return true;
    return false;
}

/* There is no value to tell. */
static int lr_nothing(job *j, const char *why, const char *remedy)
{
    error_set(&j->err, CKR_E_NOT_FOUND, CKR_ITEM_SCHEDULE_STATE, NULL);
    snprintf(j->err.file, sizeof j->err.file, "%.250s", j->args[0]);
    snprintf(j->err.text, sizeof j->err.text, "%s", why);
    snprintf(j->err.remedy, sizeof j->err.remedy, "%s", remedy);
    return fail(j);
}

/* `whole`: the plan of a conversion, whose framework follows what it can; NULL: there is none. What
   it allows is not refused to who only asks; what another framework cannot have is. */
static int lr_verb(job *j, const ckr_state *saved, const ckr_plan *plan, const ckr_plan *whole)
{
    const ckr_plan_facts *f = ckr_plan_info(plan), *w = whole ? ckr_plan_info(whole) : NULL;
    const bool to = j->o.target.dialect != NULL, can = w && w->verdict != CKR_VERDICT_REFUSED;
    ckr_plan_facts shown = *f;
    ckr_note held[4];
    uint64_t i, n = 0;
    report notes;
    curves c;
    int code;
    if (!curve_groups(f))
        return lr_nothing(j, "neither an optimizer's groups nor a schedule are found in it",
                          "--optimizer FILE for a bare scheduler's file");
    for (i = 0; w && i < w->n_notes && n < sizeof held / sizeof *held; i++)
        if ((lr_held(&w->notes[i]) || (to && w->notes[i].severity == CKR_ERROR)) &&
            !lr_said(f, w->notes[i].code))
            held[n++] = w->notes[i];
    if (can) {
        shown.after = w->after;
        shown.verdict = w->verdict;
        if (f->verdict == CKR_VERDICT_REFUSED && shown.n_notes) shown.n_notes--;   /* the policy */
    }
    for (i = 0; i < n; i++) if (held[i].severity == CKR_ERROR) shown.verdict = CKR_VERDICT_REFUSED;
    f = &shown;
    notes = report_of(f->notes, f->n_notes, held, n);
    code = curves_make(j, saved, f, &c);
    if (code == CODE_DONE) code = lr_show(j, &c, &notes);
    if (code == CODE_DONE && j->o.json) lr_json(j, &c, &notes);
    if (code == CODE_DONE && f->verdict == CKR_VERDICT_REFUSED) code = CODE_REFUSED;
    free(c.before);
    free(c.after);
    return code;
}

static int verb_lr(job *j)
{
    ckr_ckpt *c;
    ckr_plan *plan = NULL, *whole = NULL;
    like l;
    int code = open_checkpoint(j, j->args[0], &c);
    if (code != CODE_DONE) return code;
    code = like_open(j, &l);
    if (code == CODE_DONE && ckr_plan_decide(c, &j->o.target, &plan, &j->err) != CKR_OK)
        code = fail(j);
    /* what cannot be written for another reason has its decided curve still */
    if (code == CODE_DONE && ckr_plan_create(c, &j->o.target, 0, &whole, &j->err) != CKR_OK) {
        whole = NULL;
        if (j->o.target.dialect) code = fail(j);
    }
    if (code == CODE_DONE) code = lr_verb(j, ckr_ckpt_state(c), plan, whole);
    ckr_plan_free(whole);
    ckr_plan_free(plan);
    like_free(&l);
    ckr_ckpt_close(c);
    return code;
}

/* >>rng ----------------------------------------------------------------------- */

enum { RNG_DRAWS = 8, RNG_RANKS_SHOWN = 64 };

typedef struct rng_draws {
    uint32_t n;
    double   v[RNG_DRAWS];
    bool     whole;            /* words, not numbers below 1                            */
} rng_draws;

/* What torch.rand(8), random.random() and random_sample(8) give next; 32-bit words of a generator
   that has no such call; nothing of a seed without a position. */
static rng_draws rng_next(const ckr_rng *state)
{
    const uint64_t kind = ckr_rng_get(state, CKR_RNG_FIELD_KIND);
    const bool torch = kind == CKR_RNG_TORCH_CPU || kind == CKR_RNG_TORCH_CUDA;
    ckr_rng *r = (ckr_rng *)malloc(ckr_rng_size());    /* a copy, which the draws advance     */
    float f[RNG_DRAWS];
    uint32_t words[RNG_DRAWS], i;
    rng_draws d;
    memset(&d, 0, sizeof d);
    if (!r) return d;
    memcpy(r, state, ckr_rng_size());
    if (torch && ckr_rng_uniform(r, CKR_DTYPE_F32, 0, 1, RNG_DRAWS, f) == CKR_OK) {
        for (i = 0; i < RNG_DRAWS; i++) d.v[i] = (double)f[i];
        d.n = RNG_DRAWS;
    } else if (!torch && ckr_rng_uniform(r, CKR_DTYPE_F64, 0, 1, RNG_DRAWS, d.v) == CKR_OK) {
        d.n = RNG_DRAWS;
    } else if (ckr_rng_u32_fill(r, RNG_DRAWS, words) == CKR_OK) {
        for (i = 0; i < RNG_DRAWS; i++) d.v[i] = (double)words[i];
        d.n = RNG_DRAWS;
        d.whole = true;
    }
    free(r);
    return d;
}

static void rng_json_source(json *w, const ckr_rng_given *g)
{
    json_key(w, "source");
    if (g->source == CKR_RNG_FROM_RANK || g->source == CKR_RNG_FROM_CARRIED) {
        json_open(w, "{");
        json_pair_uint(w, "rank", g->rank);
        if (g->source == CKR_RNG_FROM_CARRIED) {
            json_key(w, "carried");
            json_bool(w, true);
        }
        json_close(w, "}");
    } else if (g->source == CKR_RNG_FROM_NONE) {
        json_raw(w, "null");
    } else {
        json_string(w, g->source == CKR_RNG_FROM_SEED ? "reseeded" : "derived");
    }
}

static void rng_json_state(json *w, const ckr_rng *r)
{
    uint8_t bytes[5056 + 64];
    size_t n = r ? ckr_rng_encode(r, bytes, sizeof bytes) : 0;
    if (r && !n) n = ckr_rng_words(r, bytes, sizeof bytes);
    json_key(w, "state");
    if (n && n <= sizeof bytes) json_base64(w, (const char *)bytes, n);
    else json_raw(w, "null");
}

static void rng_json_stream(json *w, const ckr_rng_given *g)
{
    rng_draws d;
    uint32_t i;
    memset(&d, 0, sizeof d);
    if (g->state) d = rng_next(g->state);
    json_open(w, "{");
    json_pair(w, "kind", g->kind);
    json_pair(w, "name", g->name);
    json_pair(w, "scope", g->scope);
    rng_json_source(w, g);
    rng_json_state(w, g->state);
    json_key(w, "next");
    json_open(w, "[");
    for (i = 0; i < d.n; i++) {
        if (d.whole) json_uint(w, (uint64_t)d.v[i]);
        else json_double(w, d.v[i]);
    }
    json_close(w, "]");
    if (g->key) {
        json_key(w, "generation");
        json_uint(w, g->generation);
        json_pair_uint(w, "key", g->key);
    }
    json_close(w, "}");
}

static void rng_json_carried(json *w, const ckr_rng_streams *s)
{
    uint64_t i;
    json_key(w, "carried");
    json_open(w, "[");
    for (i = 0; i < s->n_carried; i++) {
        json_open(w, "{");
        json_pair(w, "kind", s->carried[i].kind);
        json_pair(w, "name", s->carried[i].name);
        json_pair(w, "at", s->carried[i].at);
        json_pair_uint(w, "rank", s->carried[i].rank);
        json_positive(w, "step", s->carried[i].step, 0);
        rng_json_state(w, s->carried[i].state);
        json_close(w, "}");
    }
    json_close(w, "]");
}

static void rng_json(job *j, const ckr_rng_streams *s, const report *notes)
{
    json w;
    uint32_t rank, i;
    w.t = &j->out;
    w.comma = false;
    json_open(&w, "{");
    json_key(&w, "ranks");
    json_open(&w, "[");
    for (rank = 0; rank < s->n_ranks; rank++) {
        json_open(&w, "{");
        json_pair_uint(&w, "rank", rank);
        json_key(&w, "streams");
        json_open(&w, "[");
        for (i = 0; i < s->n_streams; i++)
            rng_json_stream(&w, &s->given[(uint64_t)rank * s->n_streams + i]);
        json_close(&w, "]");
        json_close(&w, "}");
    }
    json_close(&w, "]");
    json_key(&w, "disjoint");
    json_bool(&w, s->disjoint);
    json_pair(&w, "proof", s->proof);
    rng_json_carried(&w, s);
    json_report(&w, notes);
    json_close(&w, "}");
    text_str(&j->out, "\n");
}

static void rng_cell_source(table *b, const ckr_rng_given *g)
{
    static const char *const names[] = { "none", "rank", "carried, rank", "derived", "reseeded" };
    text_str(&b->cell, names[(unsigned)g->source % 5]);
    if (g->source == CKR_RNG_FROM_RANK || g->source == CKR_RNG_FROM_CARRIED)
        text_fmt(&b->cell, " %lu", (unsigned long)g->rank);
    table_cell(b);
}

static void rng_table(text *t, const ckr_rng_streams *s)
{
    static const char *const titles[] = { "rank", "kind", "name", "varies over", "from", "next" };
    const uint32_t shown = s->n_ranks < RNG_RANKS_SHOWN ? s->n_ranks : RNG_RANKS_SHOWN;
    uint64_t i;
    table b;
    table_begin(&b, 6, 1, titles);
    for (i = 0; i < (uint64_t)shown * s->n_streams; i++) {
        const ckr_rng_given *g = &s->given[i];
        rng_draws d;
        memset(&d, 0, sizeof d);
        if (g->state) d = rng_next(g->state);
        table_count(&b, i / s->n_streams);
        table_text(&b, g->kind);
        table_text(&b, g->name);
        table_text(&b, g->scope[0] ? g->scope : "-");
        rng_cell_source(&b, g);
        if (d.n) text_fmt(&b.cell, d.whole ? "%.0f %.0f ..." : "%.9g %.9g ...", d.v[0], d.v[1]);
        table_cell(&b);
    }
    table_end(&b, t);
    if (shown < s->n_ranks)
        text_fmt(t, "  and %lu more ranks (--json lists them)\n",
                 (unsigned long)(s->n_ranks - shown));
}

static void rng_text(job *j, const ckr_ckpt *c, const ckr_rng_streams *s, const report *notes)
{
    text *t = &j->out;
    if (j->o.quiet) return;
    head_text(t, c, j->args[0]);
    text_str(t, "\n");
    if (s->n_streams) rng_table(t, s);
    text_str(t, "\n");
    label(t, "disjoint");
    text_painted(t, s->disjoint ? PAINT_GREEN : PAINT_RED, s->disjoint ? "yes" : "NO");
    text_str(t, "\n");
    text_pad(t, 2);
    text_wrap(t, 2, 2, s->proof);
    report_text(t, notes, "report");
}

static int verb_rng(job *j)
{
    ckr_ckpt *c;
    ckr_rng_streams *s = NULL;
    ckr_rng_want want;
    report notes;
    int code = open_checkpoint(j, j->args[0], &c);
    if (code != CODE_DONE) return code;
    memset(&want, 0, sizeof want);
    want.topology = j->o.target.topology;
    want.mode = j->o.target.mode;
    want.policy = j->o.target.rng;
    want.seed = j->o.target.seed;
    if (ckr_ckpt_rng(c, &want, &s, &j->err) == CKR_OK) {
        notes = report_of(s->notes, s->n_notes, NULL, 0);
        if (j->o.json) rng_json(j, s, &notes);
        else rng_text(j, c, s, &notes);
        if (s->verdict == CKR_VERDICT_REFUSED) code = CODE_REFUSED;
        ckr_rng_streams_free(s);
    } else {
        code = fail(j);
    }
    ckr_ckpt_close(c);
    return code;
}

/* >>help ---------------------------------------------------------------------- */

static int verb_version(job *j);
static int verb_help(job *j);

static const verb all_verbs[] = {
    { "inspect", VERB_INSPECT, 1, verb_inspect, "inspect PATH",
      "what is in this checkpoint, and is it whole",
      "Reads only metadata, no tensor byte. PATH is a file, a checkpoint directory, or a run "
      "directory: there the newest "
      "complete checkpoint is taken as the framework itself would choose it, and named.",
      "ckptresume inspect checkpoints/ --tensors" },
    { "tree", VERB_TREE, 1, verb_tree, "tree FILE [--select POINTER]",
      "one file as a tree, everything in it, nothing executed",
      "torch.save files, pickles, safetensors, .npy and .npz, JSON, YAML. Objects that Python "
      "would build by calling code "
      "are listed, never called.",
      "ckptresume tree optimizer.pt --select /param_groups/0" },
    { "plan", VERB_PLAN, 1, verb_plan, "plan PATH [target] [policy]",
      "what a resume would keep, change and lose; touches nothing",
      "The target is what the coming run looks like; what is not given is as in the checkpoint. "
      "Exits 1 when the plan is "
      "refused; the report says what would allow it.",
      "ckptresume plan checkpoints/ --tp 1 --pp 2" },
    { "convert", VERB_CONVERT, 2, verb_convert, "convert PATH OUT [target] [policy]",
      "the same, done: a checkpoint that the target framework loads unpatched",
      "OUT appears whole or not at all, and must not exist unless --force is given. It also holds "
      "ckptresume.json: where it "
      "came from, and a digest of every tensor.",
      "ckptresume convert checkpoints/ resharded/ --tp 4 --dp 2" },
    { "export", VERB_EXPORT, 2, verb_export, "export PATH OUT.safetensors",
      "unsharded tensors in one safetensors file",
      "Parameters under their names; with --slots also optimizer.state.<name>.<slot>. Shapes are "
      "logical, without padding "
      "rows; dtypes are as stored unless --dtype is given.",
      "ckptresume export checkpoints/ model.safetensors --dtype bfloat16" },
    { "digest", VERB_DIGEST, 1, verb_digest, "digest PATH",
      "topology-free and format-free digest, per tensor and in total",
      "Two checkpoints with the same digest hold the same tensors, however they are cut, ordered "
      "or stored.",
      "ckptresume digest checkpoints/ --quiet" },
    { "diff", VERB_DIFF, 2, verb_diff, "diff A B",
      "semantic difference of two checkpoints of any format and topology",
      "Tensors are compared bit for bit, groups per parameter. Exits 1 when anything differs.",
      "ckptresume diff checkpoints/ resharded/" },
    { "check", VERB_CHECK, 1, verb_check, "check PATH",
      "read every byte: checksums, completeness, replicas and ties equal, masters, digests",
      "Exits 1 when the content is wrong although it can be read, 3 when it cannot be read as what "
      "it claims to be.",
      "ckptresume check checkpoints/ --json" },
    { "lr", VERB_LR, 1, verb_lr, "lr PATH [policy]",
      "learning rate per update and group, before and after the resume",
      "What the saved run would have used at each optimizer update, and what the planned run will "
      "use. PATH may also be the file of a bare torch scheduler, with --optimizer FILE. Exits 1 "
      "when the policy refuses the change; the report says what would allow it.",
      "ckptresume lr checkpoints/ --set total_steps=40000 --lr-policy splice --svg lr.svg" },
    { "rng", VERB_RNG, 1, verb_rng, "rng PATH [--ranks N]",
      "which random stream goes to which rank, next draws, proof of disjointness",
      "Streams are matched by the axes over which they vary, never by raw rank; what has no place "
      "is carried along, what is missing is derived from a recorded key, never copied.",
      "ckptresume rng checkpoints/ --dp 6" },
    { "version", VERB_VERSION, 0, verb_version, "version", "the version of the tool", "",
      "ckptresume version" },
    { "help", VERB_HELP, 1, verb_help, "help [VERB]", "this text, or one verb with its flags", "",
      "ckptresume help convert" }
};

static const verb *verb_find(const char *name)
{
    size_t i;
    for (i = 0; i < COUNT_OF(all_verbs); i++)
        if (!strcmp(all_verbs[i].name, name)) return &all_verbs[i];
    return NULL;
}

static const char *verb_nearest(const char *name)
{
    size_t i, d, least = SIZE_MAX;
    const char *best = "";
    for (i = 0; i < COUNT_OF(all_verbs); i++) {
        d = word_distance(name, all_verbs[i].name);
        if (d < least) {
            least = d;
            best = all_verbs[i].name;
        }
    }
    return best;
}

static int verb_version(job *j)
{
    json w;
    w.t = &j->out;
    w.comma = false;
    if (j->o.json) {
        json_open(&w, "{");
        json_version(&w);
        json_close(&w, "}");
    } else {
        text_str(&j->out, "ckptresume ");
        version_put(&j->out);
    }
    text_str(&j->out, "\n");
    return CODE_DONE;
}

static void help_flag(text *t, const option *o)
{
    char flag[40];
    snprintf(flag, sizeof flag, "--%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
    text_fmt(t, "  %-18s ", flag);
    text_wrap(t, 21, 21, o->help);
}

/* Flags that every verb has come last, under their own title. */
static void help_flags(text *t, uint32_t bit)
{
    size_t i;
    int common;
    for (common = 0; common < 2; common++) {
        bool any = false;
        for (i = 0; i < COUNT_OF(all_options); i++) {
            const option *o = &all_options[i];
            if (o->kind == KIND_LATER || !(o->verbs & bit) ||
                (o->verbs == VERB_ANY) != (common == 1))
                continue;
            if (!any) text_fmt(t, "\n%s:\n", common ? "Everywhere" : "Flags");
            any = true;
            help_flag(t, o);
        }
    }
}

static void help_verb(text *t, const verb *v)
{
    text_fmt(t, "usage: ckptresume %s\n\n", v->usage);
    text_wrap(t, 0, 0, v->summary);
    if (v->detail[0]) text_wrap(t, 0, 0, v->detail);
    help_flags(t, v->bit);
    text_fmt(t, "\nExample:\n  %s\n", v->example);
}

static void help_all(text *t)
{
    size_t i;
    text_str(t, "ckptresume looks into, compares, checks and converts training checkpoints.\n\n"
                "usage: ckptresume VERB PATH... [flags]\n\n");
    for (i = 0; i < COUNT_OF(all_verbs); i++)
        text_fmt(t, "  %-37s%s\n", all_verbs[i].usage, all_verbs[i].summary);
    text_str(t, "\nPATH is a file, a checkpoint directory, or a run directory (its newest complete "
                "checkpoint).\n");
    help_flags(t, VERB_VERSION);
    text_str(
        t,
        "\nExit codes: 0 done; 1 refused, different or not sound; 2 usage; 3 bad input; 4 system.\n"
        "\nExamples:\n"
        "  ckptresume inspect checkpoints/\n"
        "  ckptresume convert checkpoints/ resharded/ --tp 4 --dp 2\n");
}

static int help_json(job *j, const verb *one)
{
    json w;
    size_t i;
    w.t = &j->out;
    w.comma = false;
    json_open(&w, "{");
    json_version(&w);
    json_key(&w, "verbs");
    json_open(&w, "[");
    for (i = 0; i < COUNT_OF(all_verbs); i++) {
        const verb *v = &all_verbs[i];
        if (one && v != one) continue;
        json_open(&w, "{");
        json_pair(&w, "name", v->name);
        json_pair(&w, "usage", v->usage);
        json_pair(&w, "summary", v->summary);
        json_pair(&w, "example", v->example);
        json_close(&w, "}");
    }
    json_close(&w, "]");
    json_close(&w, "}");
    text_str(&j->out, "\n");
    return CODE_DONE;
}

/* `about` NULL: everything. */
static int help_about(job *j, const verb *about)
{
    if (j->o.json) return help_json(j, about);
    if (about) help_verb(&j->out, about);
    else help_all(&j->out);
    return CODE_DONE;
}

static int verb_help(job *j)
{
    const verb *v;
    if (!j->n_args) return help_about(j, NULL);
    v = verb_find(j->args[0]);
    if (!v)
        return usage(j, j->args[0], "there is no such verb; the nearest is %s",
                     verb_nearest(j->args[0]));
    return help_about(j, v);
}

/* >>main ---------------------------------------------------------------------- */

static int take_word(job *j, const char *word)
{
    if (!j->verb) {
        j->verb = verb_find(word);
        if (j->verb) return CODE_DONE;
        return usage(j, word, "there is no such verb; the nearest is %s", verb_nearest(word));
    }
    if (j->n_args >= j->verb->n_args)
        return usage(j, word, "found one argument too many, expected: ckptresume %s",
                     j->verb->usage);
    if (!*word) return usage(j, j->verb->usage, "found an empty path");
    j->args[j->n_args++] = word;
    return CODE_DONE;
}

/* Flags are checked against the verb at the end, because they may stand before it. */
static int check_flags(job *j, const bool *used)
{
    size_t i, k;
    for (i = 0; i < COUNT_OF(all_options); i++) {
        text verbs;
        char flag[40];
        int code;
        if (!used[i] || (all_options[i].verbs & j->verb->bit)) continue;
        memset(&verbs, 0, sizeof verbs);
        for (k = 0; k < COUNT_OF(all_verbs); k++)
            if (all_options[i].verbs & all_verbs[k].bit)
                text_fmt(&verbs, "%s%s", verbs.n ? ", " : "", all_verbs[k].name);
        text_put(&verbs, "", 1);
        snprintf(flag, sizeof flag, "--%s", all_options[i].name);
        code = usage(j, flag, "this is no flag of %s but of: %.200s", j->verb->name,
                     verbs.data ? verbs.data : "");
        text_free(&verbs);
        return code;
    }
    return CODE_DONE;
}

static int parse_args(job *j, int argc, char **argv, bool *used)
{
    bool flags = true;
    int i, code = CODE_DONE;
    for (i = 1; i < argc && code == CODE_DONE; i++) {
        if (flags && !strcmp(argv[i], "--")) flags = false;
        else if (flags && !strcmp(argv[i], "-h")) j->o.help = true;
        else if (flags && !strcmp(argv[i], "--version") && !j->verb) code = take_word(j, "version");
        else if (flags && !strncmp(argv[i], "--", 2)) code = option_take(j, argc, argv, &i, used);
        else if (flags && argv[i][0] == '-' && argv[i][1])
            code = usage(j, argv[i], "flags have two dashes; after -- a path may begin with one");
        else code = take_word(j, argv[i]);
    }
    return code;
}

/* What a failure must know before all flags are read: where and how to say it. */
static void scan_output(job *j, int argc, char **argv)
{
    int i;
    for (i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (!strcmp(argv[i], "--json")) j->o.json = true;
    j->out.to = stdout;
    j->note.to = stderr;
    j->note.color = color_of(COLOR_AUTO, stderr);
}

static bool was_used(const bool *used, const char *name)
{
    size_t i;
    for (i = 0; i < COUNT_OF(all_options); i++)
        if (used[i] && !strcmp(all_options[i].name, name)) return true;
    return false;
}

/* A seed without reseed would be passed over, and reseed without one would be the same for all. */
static int check_seed(job *j, const bool *used)
{
    const bool reseed = j->o.target.rng == CKR_RNG_RESEED, seed = was_used(used, "seed");
    if (reseed && !seed)
        return usage(j, "--rng", "reseed needs the seed of the new streams: --seed S");
    if (seed && !reseed)
        return usage(j, "--seed", "it is the seed of --rng reseed, which is not asked for");
    return CODE_DONE;
}

/* Flags that say something only beside another one: alone they would be passed over. */
static int check_alone(job *j, const bool *used)
{
    const ckr_target *t = &j->o.target;
    if (was_used(used, "rewarm-steps") && t->lr_policy != CKR_LR_REWARM)
        return usage(j, "--rewarm-steps", "it goes with --lr-policy rewarm, not asked for");
    if (!j->o.data && (j->o.micro_batch || j->o.seq_len))
        return usage(j, j->o.micro_batch ? "--micro-batch" : "--seq-len",
                     "it goes with --data GLOB, the files in which a place is counted anew");
    return CODE_DONE;
}

/* One document has one form, and a format that nothing is called would fit no file. */
static int check_forms(job *j)
{
    const char *f = j->o.format;
    if (j->o.json && j->o.csv)
        return usage(j, "--csv", "--json asks for another form of the same values");
    if (f && word_index(format_names, COUNT_OF(format_names), f, strlen(f)) < 0)
        return usage(j, "--format", "there is no format \"%.100s\", expected one that inspect "
                     "shows: safetensors, torch_zip, torch_legacy, pickle, npy, npz, dcp, llmc", f);
    return CODE_DONE;
}

static int run_verb(job *j, const bool *used)
{
    int code;
    if (j->o.help || !j->verb) return help_about(j, j->verb);
    code = check_flags(j, used);
    if (code == CODE_DONE) code = check_seed(j, used);
    if (code == CODE_DONE) code = check_alone(j, used);
    if (code == CODE_DONE) code = check_forms(j);
    if (code != CODE_DONE) return code;
    if (j->n_args < j->verb->n_args && j->verb->bit != VERB_HELP)
        return usage(j, NULL, "an argument is missing, expected: ckptresume %s", j->verb->usage);
    return j->verb->run_fn(j);
}

/* What single frameworks have goes to the library as a list of texts. */
static void list_options(options *o)
{
    const struct { const char *key, *text; uint64_t number; } rows[] = {
        { "vpp", NULL, o->vpp }, { "to_version", o->to_version, 0 },
        { "heads", NULL, (uint64_t)o->heads }, { "kv_heads", NULL, (uint64_t)o->kv_heads },
        { "fsdp_size", NULL, (uint64_t)o->fsdp_size },
        { "max_shard_bytes", NULL, o->max_shard_bytes }, { "data", o->data, 0 },
        { "micro_batch", NULL, (uint64_t)o->micro_batch },
        { "seq_len", NULL, (uint64_t)o->seq_len }
    };
    size_t i, n = 0;
    for (i = 0; i < COUNT_OF(rows); i++) {
        if (!rows[i].text && !rows[i].number) continue;
        snprintf(o->numbers[n], sizeof o->numbers[n], "%llu", (unsigned long long)rows[i].number);
        o->list[n].key = rows[i].key;
        o->list[n].value = rows[i].text ? rows[i].text : o->numbers[n];
        n++;
    }
    o->target.options = o->list;
    o->target.n_options = n;
}

static int run(job *j, int argc, char **argv)
{
    bool used[COUNT_OF(all_options)];
    int code;
    memset(used, 0, sizeof used);
    scan_output(j, argc, argv);
    code = parse_args(j, argc, argv, used);
    if (code != CODE_DONE) return code;
    list_options(&j->o);
    j->out.color = color_of(j->o.color, stdout);
    j->note.color = color_of(j->o.color, stderr);
    j->env.parallel.n_threads = j->o.threads;
    j->env.progress_fn = progress_hook;
    j->env.log_fn = log_hook;
    j->env.user = j;
    code = run_verb(j, used);
    if (argc > 1 || code != CODE_DONE) return code;
    return CODE_USAGE;
}

int main(int argc, char **argv)
{
    job j;
    int code;
    memset(&j, 0, sizeof j);
    argv = words_of(&argc, argv);
    code = run(&j, argc, argv);
    text_drain(&j.out);
    if (fflush(stdout) != 0 || ferror(stdout) || j.out.failed || j.note.failed) {
        fprintf(stderr, "ckptresume: standard output: cannot write: %s\n",
                errno ? strerror(errno) : "out of memory");
        code = CODE_SYSTEM;
    }
    text_free(&j.out);
    text_free(&j.note);
    signals_heed();
    return code;
}
