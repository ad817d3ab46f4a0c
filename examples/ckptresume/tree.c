/* tree: one file as an outline, or as JSON. */

#include "tool.h"

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
/* The exact form is tree_json.c's. Its bytes come through ckr_view_read, as a view of plain
   bytes; its text goes to a temporary file first, so that a read error leaves nothing but the
   error on stdout. */

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

int verb_tree(job *j)
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
