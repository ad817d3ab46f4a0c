/* fuzz.h: what the targets share. The bytes become a file in memory; the library opens it through
   hooks, everything that came out is walked, and nothing may be left allocated. */
#ifndef CKR_FUZZ_H
#define CKR_FUZZ_H

#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "archive.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_ARENA ((uint64_t)256 << 20)

static volatile uint64_t fuzz_sink;

/* Reads the first elements of a tensor, whatever its shape says. */
static void fuzz_view(const ckr_ckpt *c, const ckr_view *v)
{
    uint8_t buf[1024];
    ckr_error e;
    size_t size = ckr_dtype_size(v->dtype);
    int64_t numel = 0, n;
    uint32_t i;
    if (!size || !ckr__numel(v->n_dims, v->shape, &numel)) return;
    n = numel < (int64_t)(sizeof buf / size) ? numel : (int64_t)(sizeof buf / size);
    memset(buf, 0, sizeof buf);
    if (ckr_view_read(c, v, 0, n, buf, &e) == CKR_OK)
        for (i = 0; i < sizeof buf; i++) fuzz_sink += buf[i];
    if (ckr_view_read(c, v, numel - n, n, buf, &e) == CKR_OK)
        for (i = 0; i < sizeof buf; i++) fuzz_sink += buf[i];
}

/* Every node once, without recursion: a stack of (node, next child). */
static void fuzz_walk(const ckr_ckpt *c, const ckr_node *root)
{
    enum { DEPTH = 4096 };
    static const ckr_node *node[DEPTH];
    static uint64_t at[DEPTH];
    uint8_t *seen = (uint8_t *)calloc((size_t)c->ctx.n_nodes + 1, 1);
    size_t n = 0;
    if (!seen) exit(2);
    node[n] = root;
    at[n++] = 0;
    while (n) {
        const ckr_node *x = node[n - 1], *child = archive_child(x, at[n - 1]++);
        if (at[n - 1] == 1) {
            if (x->kind == CKR_NODE_STR) fuzz_sink += strlen(ckr_node_str(x));
            if (x->kind == CKR_NODE_TENSOR || x->kind == CKR_NODE_NDARRAY) fuzz_view(c, x->u.view);
        }
        if (!child) {
            n--;
        } else if (!seen[child->id]++ && n < DEPTH) {
            node[n] = child;
            at[n++] = 0;
        }
    }
    free(seen);
}

static void fuzz_no_leak(const faulty *f)
{
    if (f->blocks || f->bytes || f->handles || f->bad_size) abort();
}

/* The bytes as the file `name`, opened as a tree. `then` (or NULL) gets the opened file. */
static void fuzz_tree(const char *name, const uint8_t *data, size_t size, void (*then)(ckr_ckpt *c))
{
    memio m;
    faulty f;
    ckr_env env;
    ckr_open_desc desc = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_error e;
    memset(&m, 0, sizeof m);
    memio_put(&m, name, data, size);
    env = faulty_env(&f, memio_io(&m));
    desc.env = &env;
    desc.limits.max_arena_bytes = FUZZ_ARENA;
    if (ckr_tree_open(name, &desc, &c, &e) == CKR_OK) {
        fuzz_walk(c, ckr_ckpt_root(c));
        if (then) then(c);
    } else if (e.code == CKR_OK || e.item == CKR_ITEM_OK || !e.text[0]) {
        abort();
    }
    ckr_ckpt_close(c);
    fuzz_no_leak(&f);
    memio_free(&m);
}

#endif
