/* archive.h: a torch archive in memory around a data.pkl, and the same data.pkl taken three times:
   in the short way for tensors, opcode by opcode, and so with every node kept. All must give the
   same tree or the same error. */
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

enum { ARCHIVE_SHORT, ARCHIVE_SLOW, ARCHIVE_KEEP, ARCHIVE_WAYS };

typedef struct archive_run {
    ckr_node *root;
    ckr_error err;
    uint32_t  nodes;           /* that were made                                       */
    bool      stale;
} archive_run;

/* data.pkl of an open archive. */
static void archive_tree(ckr_ckpt *k, uint32_t file, int way, archive_run *out)
{
    ckr__ctx *c = &k->ctx;
    ckr__zip z;
    ckr__torch t;
    ckr__doc doc;
    const ckr__member *m;
    ckr__error_reset(c);
    memset(&t, 0, sizeof t);
    memset(&doc, 0, sizeof doc);
    out->nodes = c->n_nodes;
    if (ckr__zip_open(c, file, 0, c->files[file].size, &z) != CKR_OK) exit(2);
    t.slow = way != ARCHIVE_SHORT;
    t.doc = &doc;
    t.zip = &z;
    t.source.file = file;
    t.prefix = 7;
    t.name = (char *)ckr__arena(c, t.prefix + CKR__MAX_KEY + 1);
    if (!t.name) exit(2);
    memcpy(t.name, "a/data/", 7);
    m = ckr__zip_find(&z, "a/data.pkl", 10);
    t.source.offset = m->offset;
    t.source.size = m->size;
    ckr__pickle_once(c, &t, "data.pkl", way == ARCHIVE_KEEP, &out->stale);
    out->root = doc.root;
    out->err = *c->err;
    out->nodes = c->n_nodes - out->nodes;
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

/* What differs between two runs as a sentence, or NULL. Running out of memory is no difference. */
static const char *archive_differ(const ckr_ckpt *k, const archive_run *a, const archive_run *b)
{
    if (a->err.item == CKR_ITEM_LIMIT || b->err.item == CKR_ITEM_LIMIT ||
        a->err.code == CKR_E_NOMEM || b->err.code == CKR_E_NOMEM) return NULL;
    if (!a->root != !b->root) return a->root ? "only the first way reads it"
                                             : "only the second way reads it";
    if (!a->root && (a->err.item != b->err.item || a->err.offset != b->err.offset ||
                     strcmp(a->err.text, b->err.text) || strcmp(a->err.where, b->err.where)))
        return "two errors";
    return a->root && !archive_same(k, a->root, b->root) ? "two trees" : NULL;
}

/* All ways; *saved: nodes that the short way did not make. A stale run is repeated with every node
   kept, so only the two that drop are compared then. */
static const char *archive_ways(const ckr_env *env, const char *path, uint64_t max_arena,
                                uint32_t *saved)
{
    ckr_open_desc desc = CKR_ZERO;
    ckr_ckpt *k = NULL;
    archive_run run[ARCHIVE_WAYS];
    ckr_error err;
    uint32_t file = 0;
    const char *what;
    int way;
    desc.env = env;
    desc.limits.max_arena_bytes = max_arena;
    memset(run, 0, sizeof run);
    if (ckr_ckpt_create(&desc, &k, &err) != CKR_OK) return "no context";
    k->ctx.err = &err;
    if (ckr__file_open(&k->ctx, path, &file) != CKR_OK) exit(2);
    for (way = 0; way < ARCHIVE_WAYS; way++) archive_tree(k, file, way, &run[way]);
    *saved = run[ARCHIVE_SLOW].nodes - run[ARCHIVE_SHORT].nodes;
    what = archive_differ(k, &run[ARCHIVE_SHORT], &run[ARCHIVE_SLOW]);
    if (!what && run[ARCHIVE_SHORT].stale != run[ARCHIVE_SLOW].stale) what = "one way is stale";
    if (!what && run[ARCHIVE_KEEP].stale) what = "a value was dropped although all are kept";
    if (!what && !run[ARCHIVE_SLOW].stale)
        what = archive_differ(k, &run[ARCHIVE_SLOW], &run[ARCHIVE_KEEP]);
    ckr_ckpt_close(k);
    return what;
}

#endif
