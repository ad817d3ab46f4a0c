/* A node of a checkpoint as plain JSON (hyper-parameters, schedules). The walk has its own stack
   and a budget, because a hostile file may nest without end or be a cycle; past either it says
   "...". With `human` set the same walk prints for the eye: shortest floats, no quotes, spaces.
   */

#include "tool.h"

#define VALUE_DEPTH  32
#define VALUE_BUDGET 100000
#define VALUE_HUMAN  8         /* items of a list that a human gets to see            */

typedef struct value_walk {
    json            w;
    const ckr_ckpt *ckpt;      /* to read one-element tensors; may be NULL            */
    bool            human;
} value_walk;

bool value_is_list(const ckr_node *n)
{
    return ckr_node_is_list(n) || (n && (n->kind == CKR_NODE_SET || n->kind == CKR_NODE_FROZENSET ||
                                         n->kind == CKR_NODE_SIZE));
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
const char *view_dtype(const ckr_view *v)
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
        char digits[640];
        const size_t k = n->count > 256 ? 0 : ckr_node_number(n, digits, sizeof digits);
        json_raw(&v->w, k ? digits : "\"...\"");
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
void json_node(json *w, const ckr_ckpt *c, const ckr_node *n)
{
    value_walk v;
    memset(&v, 0, sizeof v);
    v.w = *w;
    v.ckpt = c;
    value_put(&v, n);
    *w = v.w;
}

void text_node(text *t, const ckr_ckpt *c, const ckr_node *n)
{
    value_walk v;
    memset(&v, 0, sizeof v);
    v.w.t = t;
    v.ckpt = c;
    v.human = true;
    value_put(&v, n);
}
