/* archive.h: a torch archive in memory around a data.pkl, and the same data.pkl taken twice: in the
   short way for tensors and opcode by opcode. Both must give the same tree or the same error. */
#ifndef CKR_ARCHIVE_H
#define CKR_ARCHIVE_H

#include "memio.h"

typedef struct archive { uint8_t *data; size_t n, cap; } archive;

static void archive_put(archive *a, const void *p, size_t n)
{
    if (a->cap - a->n < n) {
        a->cap = 2 * a->cap + n;
        a->data = (uint8_t *)realloc(a->data, a->cap);
        if (!a->data) exit(2);
    }
    if (n) memcpy(a->data + a->n, p, n);
    a->n += n;
}

/* A header of either kind: 30 or 46 bytes, the name behind it. */
static void archive_header(archive *to, bool directory, const char *name, size_t size,
                           uint32_t crc, size_t at)
{
    uint8_t h[46];
    const size_t skip = directory ? 2 : 0;         /* "version made by" moves the rest          */
    memset(h, 0, sizeof h);
    ckr__store_u32(h, directory ? 0x02014b50 : 0x04034b50);
    ckr__store_u32(h + skip + 14, crc);
    ckr__store_u32(h + skip + 18, (uint32_t)size);
    ckr__store_u32(h + skip + 22, (uint32_t)size);
    h[skip + 26] = (uint8_t)strlen(name);
    if (directory) ckr__store_u32(h + 42, (uint32_t)at);
    archive_put(to, h, directory ? 46 : 30);
    archive_put(to, name, strlen(name));
}

static void archive_member(archive *a, archive *directory, const char *name, const void *p,
                           size_t n)
{
    const uint32_t crc = ckr__crc32(0, p, n);
    archive_header(directory, true, name, n, crc, a->n);
    archive_header(a, false, name, n, crc, 0);
    archive_put(a, p, n);
}

/* Storages "0" to "7" of 0, 4, 16, 64, 96, 128, 512 and 1024 bytes, which the caller frees with the
   rest. */
static archive archive_of(const uint8_t *pickle, size_t n)
{
    static const size_t sizes[8] = { 0, 4, 16, 64, 96, 128, 512, 1024 };
    static const uint8_t bytes[1024] = { 0 };
    archive a = { NULL, 0, 0 }, directory = { NULL, 0, 0 };
    uint8_t end[22];
    char name[16];
    size_t i;
    archive_member(&a, &directory, "a/data.pkl", pickle, n);
    for (i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "a/data/%u", (unsigned)i);
        archive_member(&a, &directory, name, bytes, sizes[i]);
    }
    archive_member(&a, &directory, "a/version", "3\n", 2);
    memset(end, 0, sizeof end);
    ckr__store_u32(end, 0x06054b50);
    end[8] = end[10] = 10;
    ckr__store_u32(end + 12, (uint32_t)directory.n);
    ckr__store_u32(end + 16, (uint32_t)a.n);
    archive_put(&a, directory.data, directory.n);
    archive_put(&a, end, sizeof end);
    free(directory.data);
    return a;
}

/* data.pkl of an open archive. */
static ckr_result archive_tree(ckr_ckpt *k, uint32_t file, bool keep, ckr_node **root,
                               bool *stale)
{
    ckr__ctx *c = &k->ctx;
    ckr__zip z;
    ckr__torch t;
    ckr__doc doc;
    ckr_result r = ckr__zip_open(c, file, 0, c->files[file].size, &z);
    memset(&t, 0, sizeof t);
    memset(&doc, 0, sizeof doc);
    if (r != CKR_OK) return r;
    t.doc = &doc;
    t.zip = &z;
    t.prefix = 7;
    t.name = (char *)ckr__arena(c, t.prefix + CKR__MAX_KEY + 1);
    if (!t.name) return c->err->code;
    memcpy(t.name, "a/data/", 7);
    r = ckr__torch_object(&t, ckr__zip_find(&z, "a/data.pkl", 10), keep, stale);
    *root = doc.root;
    return r;
}

/* The child at `at` of a node of any kind, NULL behind the last. */
static const ckr_node *archive_child(const ckr_node *n, uint64_t at)
{
    const ckr_object *o;
    if (at == 0 && n->attrs) return n->attrs;
    at -= n->attrs != NULL;
    if (ckr_node_is_dict(n)) return at < 2 * n->count ? n->u.items[at] : NULL;
    if (n->kind == CKR_NODE_LIST || n->kind == CKR_NODE_TUPLE || n->kind == CKR_NODE_SET ||
        n->kind == CKR_NODE_FROZENSET || n->kind == CKR_NODE_SIZE)
        return at < n->count ? n->u.items[at] : NULL;
    if (n->kind != CKR_NODE_OBJECT) return NULL;
    o = n->u.object;
    if (o->callable && at-- == 0) return o->callable;
    if (o->args && at-- == 0) return o->args;
    if (o->kwargs && at-- == 0) return o->kwargs;
    if (o->state && at-- == 0) return o->state;
    if (o->items && at-- == 0) return o->items;
    return o->dictitems && at == 0 ? o->dictitems : NULL;
}

static bool archive_same_text(const char *a, const char *b)
{
    return !a || !b ? a == b : !strcmp(a, b);
}

static bool archive_same_view(const ckr_view *a, const ckr_view *b)
{
    const size_t dims = a->n_dims * sizeof *a->shape;
    return a->dtype == b->dtype && a->requires_grad == b->requires_grad && a->conj == b->conj &&
           a->neg == b->neg && a->meta == b->meta && a->parameter == b->parameter &&
           a->big_endian == b->big_endian && a->fortran == b->fortran && a->file == b->file &&
           a->data_offset == b->data_offset && a->data_bytes == b->data_bytes &&
           !a->bytes == !b->bytes && archive_same_text(a->storage, b->storage) &&
           archive_same_text(a->type_name, b->type_name) &&
           archive_same_text(a->layout, b->layout) && a->offset == b->offset &&
           a->n_dims == b->n_dims && !a->shape == !b->shape && !a->stride == !b->stride &&
           (!a->shape || !memcmp(a->shape, b->shape, dims)) &&
           (!a->stride || !memcmp(a->stride, b->stride, dims)) && !a->parts == !b->parts;
}

static bool archive_same_node(const ckr_node *a, const ckr_node *b)
{
    if (a->kind != b->kind || a->count != b->count || !a->attrs != !b->attrs) return false;
    switch (a->kind) {
    case CKR_NODE_BOOL: return a->u.b == b->u.b;
    case CKR_NODE_INT:  return a->u.i == b->u.i;
    case CKR_NODE_FLOAT: return !memcmp(&a->u.f, &b->u.f, sizeof a->u.f);
    case CKR_NODE_COMPLEX: return !memcmp(a->u.complex_, b->u.complex_, 16);
    case CKR_NODE_STR: case CKR_NODE_BYTES: case CKR_NODE_BYTEARRAY: case CKR_NODE_BIGINT:
    case CKR_NODE_DEVICE: case CKR_NODE_DTYPE: case CKR_NODE_LAYOUT: case CKR_NODE_GLOBAL:
        return !memcmp(a->u.str, b->u.str, (size_t)a->count);
    case CKR_NODE_TENSOR: case CKR_NODE_STORAGE: case CKR_NODE_NDARRAY: case CKR_NODE_NPSCALAR:
        return archive_same_view(a->u.view, b->u.view);
    case CKR_NODE_OBJECT:
        return archive_same_text(a->u.object->name, b->u.object->name) &&
               archive_same_text(a->u.object->how, b->u.object->how);
    default: return true;
    }
}

/* Node by node, without recursion; what is one node in `x` must be one in `y`. */
static bool archive_same(const ckr_ckpt *k, const ckr_node *x, const ckr_node *y)
{
    enum { DEPTH = 4096 };
    static const ckr_node *a[DEPTH], *b[DEPTH];
    static uint64_t at[DEPTH];
    uint32_t *met = (uint32_t *)calloc((size_t)k->ctx.n_nodes + 1, sizeof *met);
    size_t n = 1;
    bool same = archive_same_node(x, y);
    if (!met) exit(2);
    a[0] = x;
    b[0] = y;
    at[0] = 0;
    met[x->id] = y->id;
    while (n && same) {
        const ckr_node *c = archive_child(a[n - 1], at[n - 1]),
                       *d = archive_child(b[n - 1], at[n - 1]);
        at[n - 1]++;
        if (!c || !d) {
            same = !c && !d;
            n--;
        } else if (met[c->id]) {
            same = met[c->id] == d->id;
        } else if (n < DEPTH) {
            met[c->id] = d->id;
            same = archive_same_node(c, d);
            a[n] = c;
            b[n] = d;
            at[n++] = 0;
        }
    }
    free(met);
    return same;
}

/* Both ways; what differs as a sentence, or NULL. *saved: nodes that the short way did not make;
   *err: the error of both. Running out of memory and a repeated parse are no differences. */
static const char *archive_twice(const ckr_env *env, const char *path, uint64_t max_arena,
                                 uint32_t *saved, ckr_error *err)
{
    ckr_open_desc desc = CKR_ZERO;
    ckr_ckpt *k = NULL;
    ckr_error e[2];
    ckr_node *root[2] = { NULL, NULL };
    uint32_t nodes[3], file = 0;
    const char *what = NULL;
    bool stale = false, again = false, limit;
    int i;
    desc.env = env;
    desc.limits.max_arena_bytes = max_arena;
    memset(e, 0, sizeof e);
    if (ckr_ckpt_create(&desc, &k, err) != CKR_OK) return "no context";
    k->ctx.err = err;
    if (ckr__file_open(&k->ctx, path, &file) != CKR_OK) exit(2);
    for (i = 0; i < 2; i++) {
        nodes[i] = k->ctx.n_nodes;
        ckr__error_reset(&k->ctx);
        archive_tree(k, file, i == 1, &root[i], i ? &again : &stale);
        e[i] = *err;
    }
    nodes[2] = k->ctx.n_nodes;
    *saved = (nodes[2] - nodes[1]) - (nodes[1] - nodes[0]);
    limit = e[0].item == CKR_ITEM_LIMIT || e[1].item == CKR_ITEM_LIMIT ||
            e[0].code == CKR_E_NOMEM || e[1].code == CKR_E_NOMEM;
    if (again) what = "a value was dropped although all are kept";
    else if (stale || limit) what = NULL;
    else if (!root[0] != !root[1]) what = root[0] ? "only the short way reads it"
                                                  : "only opcode by opcode it is read";
    else if (!root[0] && (e[0].item != e[1].item || e[0].offset != e[1].offset ||
                          strcmp(e[0].text, e[1].text) || strcmp(e[0].where, e[1].where)))
        what = "two errors";
    else if (root[0] && !archive_same(k, root[0], root[1])) what = "two trees";
    ckr_ckpt_close(k);
    return what;
}

#endif
