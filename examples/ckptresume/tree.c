/* tree: one file, everything in it. One walk for both printers: as JSON in the vocabulary of
   tests/data's truth files, for the eye as an outline. It keeps its own stack of tasks, so that
   depth costs heap and not C stack, and what is shared or a cycle prints once. In JSON lists,
   dicts, sets and objects are {"t":"ref","path":...} later; tuples and strings print in full every
   time, as values do, until what is printed again passes a budget: then they become refs too, so
   that a small file cannot print without end. */

#include "tool.h"

#define TREE_REPEAT_BUDGET ((uint64_t)1 << 20)   /* nodes printed again                    */
#define TREE_PATH_MAX 4096
#define TREE_PATH_DEPTH 512

/* How a node hangs below its parent: for the paths of refs, and the names in an outline. */
enum {
    HOW_ROOT, HOW_SAME, HOW_KEY, HOW_VALUE, HOW_INDEX, HOW_SET, HOW_ATTRS, HOW_STATE, HOW_ARGS
};
enum { TASK_KEY, TASK_OPEN, TASK_CLOSE, TASK_NODE, TASK_ITEMS, TASK_PAIRS, TASK_SET_END };

typedef struct tree_path {
    uint32_t parent, depth;
    const ckr_node *key;
    uint64_t index;
    uint8_t  how;
} tree_path;

typedef struct tree_task {
    uint8_t  type, how, again; /* again: below something that was printed before           */
    uint32_t path;             /* of the parent (NODE) or of the container                */
    uint64_t i, n;
    const void *p;
    const ckr_node *key;
    const char *name;          /* of a member, for the eye                                */
} tree_task;

typedef struct tree {
    show s;
    text out;                  /* of JSON; drains into the file, but not while a set is open */
    FILE *file;
    tree_bytes bytes;
    bool hash, failed;         /* failed: no memory                                       */
    tree_task *tasks;
    size_t n_tasks, cap_tasks;
    tree_path *paths;
    size_t n_paths, cap_paths;
    size_t *marks, n_marks, cap_marks;       /* where the items of open sets begin         */
    unsigned open_sets;
    tree_map seen, repeats, storages;
    const ckr_view **storage;
    size_t cap_storage;
    uint64_t repeated;         /* spent                                                   */
    const ckr_node *last_ref;  /* whose path is still in ref_text                         */
    char ref_text[TREE_PATH_MAX];            /* written from its end                       */
    size_t n_ref;
} tree;

/* >>paths --------------------------------------------------------------------- */

static uint32_t tree_path_add(tree *t, uint32_t parent, unsigned how, const ckr_node *key,
                              uint64_t index)
{
    void *array = t->paths;
    if (t->n_paths >= UINT32_MAX ||
        !array_grow(&array, &t->cap_paths, t->n_paths + 1, sizeof *t->paths)) {
        t->failed = true;
        return 0;
    }
    t->paths = (tree_path *)array;
    t->paths[t->n_paths].parent = parent;
    t->paths[t->n_paths].depth = how == HOW_ROOT ? 0 : t->paths[parent].depth + 1;
    t->paths[t->n_paths].how = (uint8_t)how;
    t->paths[t->n_paths].key = key;
    t->paths[t->n_paths].index = index;
    return (uint32_t)t->n_paths++;
}

static const char *tree_type_name(const ckr_node *k)
{
    switch (k->kind) {
    case CKR_NODE_NONE: return "NoneType";
    case CKR_NODE_FLOAT: return "float";
    case CKR_NODE_COMPLEX: return "complex";
    case CKR_NODE_BYTES: return "bytes";
    case CKR_NODE_TUPLE: return "tuple";
    case CKR_NODE_FROZENSET: return "frozenset";
    case CKR_NODE_TENSOR: return "Tensor";
    case CKR_NODE_SIZE: return "Size";
    case CKR_NODE_DEVICE: return "device";
    case CKR_NODE_DTYPE: return "dtype";
    case CKR_NODE_LAYOUT: return "layout";
    default: return "object";
    }
}

/* The key of a dict as a step of a path; returns its length, `cap` or more when it is too long. */
static size_t tree_path_key(const ckr_node *k, char *buf, size_t cap)
{
    const char *word = k->kind == CKR_NODE_BOOL ? k->u.b ? "True" : "False" : tree_type_name(k);
    size_t n = 0;
    if (k->kind == CKR_NODE_STR) {
        if (k->count + 3 > cap) return cap;
        buf[0] = '{';
        memcpy(buf + 1, k->u.str, (size_t)k->count);
        buf[k->count + 1] = '}';
        return (size_t)k->count + 2;
    }
    if (k->kind == CKR_NODE_INT || k->kind == CKR_NODE_BIGINT)
        n = ckr_node_number(k, buf + 1, cap - 2);
    if (n + 3 > cap) return cap;
    if (!n) return (size_t)snprintf(buf, cap, "{%s}", word);
    buf[0] = '{';
    buf[n + 1] = '}';
    return n + 2;
}

/* One step of a path as text, as tree_path_key. */
static size_t tree_path_piece(const tree_path *p, char *buf, size_t cap)
{
    int n = 0;
    switch (p->how) {
    case HOW_ROOT:  n = snprintf(buf, cap, "$"); break;
    case HOW_KEY:   n = snprintf(buf, cap, "{key}"); break;
    case HOW_INDEX: n = snprintf(buf, cap, "[%llu]", (unsigned long long)p->index); break;
    case HOW_SET:   n = snprintf(buf, cap, "{*}"); break;
    case HOW_ATTRS: n = snprintf(buf, cap, ".attrs"); break;
    case HOW_STATE: n = snprintf(buf, cap, ".state"); break;
    case HOW_ARGS:  n = snprintf(buf, cap, ".args"); break;
    case HOW_VALUE: return tree_path_key(p->key, buf, cap);
    default: break;
    }
    return n < 0 ? 0 : (size_t)n;
}

/* The path into t->ref_text, from its end; false when it is too long to be of use to anyone. */
static bool tree_path_text(tree *t, uint64_t path)
{
    char piece[TREE_PATH_MAX];
    size_t at = sizeof t->ref_text;
    if (t->paths[path].depth > TREE_PATH_DEPTH) return false;
    for (;; path = t->paths[path].parent) {
        const size_t len = tree_path_piece(&t->paths[path], piece, sizeof piece);
        if (len >= sizeof piece || len > at) return false;
        at -= len;
        memcpy(t->ref_text + at, piece, len);
        if (t->paths[path].how == HOW_ROOT) break;
    }
    t->n_ref = sizeof t->ref_text - at;
    return true;
}

/* {"t":"ref","path":...}; in place of a path that is too long, "#" and the node's number. */
static void tree_ref(tree *t, const ckr_node *n, uint64_t path)
{
    char number[24];
    if (n != t->last_ref) t->last_ref = tree_path_text(t, path) ? n : NULL;
    snprintf(number, sizeof number, "#%lu", (unsigned long)n->id);
    show_dict(&t->s, NULL);
    show_str(&t->s, "t", "ref");
    if (t->last_ref)
        show_strn(&t->s, "path", t->ref_text + sizeof t->ref_text - t->n_ref, t->n_ref);
    else show_str(&t->s, "path", number);
    show_close(&t->s);
}

/* >>tasks --------------------------------------------------------------------- */
/* The last that is added comes first. */

static tree_task *tree_later(tree *t, unsigned type, const void *p)
{
    void *array = t->tasks;
    tree_task *k;
    if (!array_grow(&array, &t->cap_tasks, t->n_tasks + 1, sizeof *t->tasks)) {
        t->failed = true;
        return NULL;
    }
    t->tasks = (tree_task *)array;
    k = &t->tasks[t->n_tasks++];
    memset(k, 0, sizeof *k);
    k->type = (uint8_t)type;
    k->p = p;
    return k;
}

/* `from`: the node above, or the list above. */
static void tree_later_node(tree *t, const ckr_node *n, unsigned how, const tree_task *from,
                            const ckr_node *key)
{
    const tree_task up = *from;
    tree_task *k = tree_later(t, TASK_NODE, n);
    if (!k) return;
    k->how = (uint8_t)how;
    k->path = up.path;
    k->again = up.again;
    k->key = key;
    k->i = up.i;
}

static void tree_later_list(tree *t, unsigned type, const ckr_node *list, unsigned how,
                            const tree_task *from)
{
    tree_task *k = tree_later(t, type, list->u.items);
    if (!k) return;
    k->n = list->count;
    k->how = (uint8_t)how;
    k->path = from->path;
    k->again = from->again;
}

/* In JSON a member with a node, or with a list of nodes or of pairs. */
static void tree_member(tree *t, const char *key, const ckr_node *n, unsigned how,
                        const tree_task *from)
{
    tree_later_node(t, n, how, from, NULL);
    tree_later(t, TASK_KEY, key);
}

static void tree_member_list(tree *t, const char *key, unsigned type, const ckr_node *list,
                             unsigned how, const tree_task *from)
{
    tree_later(t, TASK_CLOSE, "]");
    tree_later_list(t, type, list, how, from);
    tree_later(t, TASK_OPEN, "[");
    tree_later(t, TASK_KEY, key);
}

/* Of the task on top: its next item. */
static void tree_step_items(tree *t)
{
    tree_task *k = &t->tasks[t->n_tasks - 1];
    const tree_task now = *k;
    if (now.i == now.n) {
        t->n_tasks--;
        return;
    }
    k->i++;
    if (now.how == HOW_SET && t->s.w.t) {
        void *array = t->marks;
        if (!array_grow(&array, &t->cap_marks, t->n_marks + 1, sizeof *t->marks)) {
            t->failed = true;
            return;
        }
        t->marks = (size_t *)array;
        t->marks[t->n_marks++] = t->out.n;
        t->s.w.comma = false;
    }
    tree_later_node(t, ((ckr_node *const *)now.p)[now.i], now.how, &now, NULL);
}

static void tree_step_pairs(tree *t)
{
    tree_task *k = &t->tasks[t->n_tasks - 1];
    const tree_task now = *k;
    ckr_node *const *pair = (ckr_node *const *)now.p + 2 * now.i;
    if (now.i == now.n) {
        t->n_tasks--;
        return;
    }
    k->i++;
    if (t->s.w.t) tree_later(t, TASK_CLOSE, "]");
    tree_later_node(t, pair[1], HOW_VALUE, &now, pair[0]);
    if (!t->s.w.t) return;
    tree_later_node(t, pair[0], HOW_KEY, &now, NULL);
    tree_later(t, TASK_OPEN, "[");
}

/* The items of a set, each rendered already, in byte order. */
typedef struct tree_slice { const char *s; size_t n; } tree_slice;

static int tree_slice_cmp(const void *a, const void *b)
{
    const tree_slice *x = (const tree_slice *)a, *y = (const tree_slice *)b;
    const int c = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return c ? c : x->n < y->n ? -1 : x->n > y->n;
}

static void tree_set_end(tree *t, uint64_t count)
{
    const size_t n = (size_t)count, from = n ? t->marks[t->n_marks - n] : 0;
    tree_slice *items;
    char *copy;
    size_t i;
    if (n) {
        const size_t len = t->out.n - from;
        items = (tree_slice *)malloc(n * sizeof *items);
        copy = (char *)malloc(len + 1);
        if (items && copy) {
            memcpy(copy, t->out.data + from, len);
            for (i = 0; i < n; i++) {
                const size_t begin = t->marks[t->n_marks - n + i];
                items[i].s = copy + (begin - from);
                items[i].n = (i + 1 < n ? t->marks[t->n_marks - n + i + 1] : t->out.n) - begin;
            }
            qsort(items, n, sizeof *items, tree_slice_cmp);
            t->out.n = from;
            for (i = 0; i < n; i++) {
                if (i) text_str(&t->out, ",");
                text_put(&t->out, items[i].s, items[i].n);
            }
        } else {
            t->failed = true;
        }
        free(items);
        free(copy);
        t->n_marks -= n;
    }
    if (!--t->open_sets) t->out.to = t->file;
    t->s.w.comma = true;
}

/* >>values -------------------------------------------------------------------- */

static const char *node_kind(const ckr_node *n)
{
    static const char *const names[] = {
        "none",  "bool",      "int",         "int",    "float",   "complex",   "str",
        "bytes", "bytearray", "list",        "tuple",  "set",     "frozenset", "dict",
        "odict", "counter",   "defaultdict", "tensor", "storage", "ndarray",   "npscalar",
        "size",  "device",    "dtype",       "layout", "global",  "object",    "entry"
    };
    return n->kind < COUNT_OF(names) ? names[n->kind] : "none";
}

static void show_double_hex(show *s, const char *key, double v)
{
    uint64_t bits;
    uint8_t b[8];
    unsigned i;
    memcpy(&bits, &v, 8);
    for (i = 0; i < 8; i++) b[i] = (uint8_t)(bits >> (8 * i));
    show_hex(s, key, b, 8);
}

/* A number as Python prints it; longer ones than it prints as hex. */
static void show_number(show *s, const char *key, const ckr_node *n)
{
    char digits[4400];
    text t;
    uint64_t i;
    memset(&t, 0, sizeof t);
    if (ckr_node_number(n, digits, sizeof digits)) {
        show_str(s, key, digits);
        return;
    }
    text_str(&t, "0x");
    for (i = n->count; i > 0; i--) text_hex(&t, (const uint8_t *)n->u.str + i - 1, 1);
    show_strn(s, key, t.data, t.n);
    text_free(&t);
}

static void node_str(show *s, const ckr_node *n)
{
    const uint8_t *p = (const uint8_t *)n->u.str;
    bool plain = true, lone = false;
    uint64_t i;
    for (i = 0; i < n->count; i++) {
        if (p[i] == 0 || p[i] >= 0x80) plain = false;
        if (p[i] == 0xED && i + 1 < n->count && p[i + 1] >= 0xA0) lone = true;
    }
    if (!lone) show_strn(s, "v", n->u.str, (size_t)n->count);
    if (!plain) show_hex(s, "utf8", p, (size_t)n->count);
}

static void node_bytes(const tree *t, show *s, const ckr_node *n)
{
    uint8_t sha[32];
    show_uint(s, "len", n->count);
    if (t->hash) {
        ckr_sha256 h;
        ckr_sha256_init(&h);
        ckr_sha256_update(&h, n->u.str, (size_t)n->count);
        ckr_sha256_final(&h, sha);
        show_hex(s, "sha256", sha, sizeof sha);
    }
    if (n->count <= 256) show_hex(s, "hex", (const uint8_t *)n->u.str, (size_t)n->count);
}

static void show_ints(show *s, const char *key, const ckr_node *list)
{
    uint64_t i;
    show_list(s, key);
    for (i = 0; i < list->count; i++) show_int(s, "", list->u.items[i]->u.i);
    show_close(s);
}

static void node_scalar(const tree *t, show *s, const ckr_node *n)
{
    switch (n->kind) {
    case CKR_NODE_BOOL: show_bool(s, "v", n->u.b); break;
    case CKR_NODE_INT: case CKR_NODE_BIGINT: case CKR_NODE_FLOAT:
        show_number(s, "v", n);
        if (n->kind == CKR_NODE_FLOAT) show_double_hex(s, "hex", n->u.f);
        break;
    case CKR_NODE_COMPLEX:
        show_double_hex(s, "re", n->u.complex_[0]);
        show_double_hex(s, "im", n->u.complex_[1]);
        break;
    case CKR_NODE_STR: node_str(s, n); break;
    case CKR_NODE_BYTES: case CKR_NODE_BYTEARRAY: node_bytes(t, s, n); break;
    case CKR_NODE_SIZE: show_ints(s, "v", n); break;
    case CKR_NODE_DEVICE: case CKR_NODE_DTYPE: case CKR_NODE_LAYOUT: case CKR_NODE_GLOBAL:
        show_strn(s, "v", n->u.str, (size_t)n->count);
        break;
    default: break;
    }
}

/* >>tensors ------------------------------------------------------------------- */

/* The distinct storages of the tensors, in order of first appearance. */
static void tree_note_storage(tree *t, const ckr_view *v)
{
    const size_t n = t->storages.count;
    tree_slot *s = v->storage ? tree_find(&t->storages, v->storage) : NULL;
    void *array = (void *)t->storage;
    if (s && s->key) return;
    if (v->storage && (!s || !array_grow(&array, &t->cap_storage, n + 1, sizeof *t->storage)))
        t->failed = true;
    if (!s || t->failed) return;
    t->storage = (const ckr_view **)array;
    t->storage[n] = v;
    tree_take(&t->storages, s, v->storage, n);
}

/* As "sha256" or so, and as hex where it is short. */
static void tree_contents(tree *t, const ckr_node *n, const char *sha, const char *hex)
{
    const bool hash = t->hash && sha;
    tree_content x;
    tree_content_of(&t->bytes, n, hash, &x);
    if (hash && x.refused) show_null(&t->s, sha);
    if (x.has_sha) show_hex(&t->s, sha, x.sha.b, sizeof x.sha.b);
    if (x.has_head) show_hex(&t->s, hex, x.head, x.n_head);
}

static const ckr_node *tree_part(const ckr_view *v, const char *name)
{
    return v->parts ? ckr_node_get(v->parts, name) : NULL;
}

static void tree_strided(tree *t, const ckr_node *n)
{
    const ckr_view *v = n->u.view;
    show *s = &t->s;
    if (v->meta) show_bool(s, "meta", true);
    show_shape(s, "stride", v->n_dims, v->stride);
    if (!v->meta) show_int(s, "offset", v->offset);
    if (!v->meta && v->storage) show_str(s, "storage", v->storage);
    show_bool(s, "requires_grad", v->requires_grad);
    if (v->meta) return;
    tree_note_storage(t, v);
    tree_contents(t, n, "sha256", "hex");
    if (v->conj) show_bool(s, "conj", true);
    if (v->neg) show_bool(s, "neg", true);
}

/* The fields of other layouts, and their component tensors. */
static void tree_parts(tree *t, const ckr_node *n, const tree_task *from)
{
    static const char *const name[] = {
        "indices",     "values", "compressed", "plain",   "scales",
        "zero_points", "buffer", "sizes",      "strides", "offsets"
    };
    const ckr_view *v = n->u.view;
    const ckr_node *p;
    show *s = &t->s;
    unsigned i;
    if ((p = tree_part(v, "coalesced")) != NULL) show_bool(s, "coalesced", p->u.b);
    if ((p = tree_part(v, "qscheme")) != NULL)
        show_strn(s, "qscheme", p->u.str, (size_t)p->count);
    if ((p = tree_part(v, "scale")) != NULL && p->kind == CKR_NODE_FLOAT)
        show_double_hex(s, "scale_hex", p->u.f);
    if ((p = tree_part(v, "zero_point")) != NULL && p->kind == CKR_NODE_INT)
        show_int(s, "zero_point", p->u.i);
    if ((p = tree_part(v, "axis")) != NULL && p->kind == CKR_NODE_INT)
        show_int(s, "axis", p->u.i);
    for (i = 0; i < COUNT_OF(name); i++)
        if ((p = tree_part(v, name[i])) != NULL) tree_member(t, name[i], p, HOW_SAME, from);
}

/* Numbers, if there are not too many of them again: meshes and shards have several owners. */
static bool tree_may_repeat(tree *t, const void *owner, uint64_t n)
{
    tree_slot *s = t->s.w.t ? tree_find(&t->repeats, owner) : NULL;
    if (!s) return !t->s.w.t;
    if (s->key) {
        t->repeated += n;
        return t->repeated <= TREE_REPEAT_BUDGET;
    }
    tree_take(&t->repeats, s, owner, 0);
    return true;
}

/* For the eye "(fsdp=2) on cpu". */
static void dist_mesh(tree *t, const ckr_mesh *m)
{
    show *s = &t->s;
    uint64_t n = 1;
    uint32_t d;
    text *sizes;
    for (d = 0; d < m->n_dims; d++) n *= (uint64_t)m->shape[d];
    show_dict(s, "mesh");
    show_str(s, "device_type", m->device_type);
    show_shape(s, "shape", m->n_dims, m->shape);
    if (m->names) show_list(s, "names");
    else show_null(s, "names");
    for (d = 0; m->names && d < m->n_dims; d++) show_str(s, "", m->names[d]);
    if (m->names) show_close(s);
    if (tree_may_repeat(t, m, n) && s->w.t) show_shape(s, "ranks", (uint32_t)n, m->ranks);
    sizes = show_text(s, "sizes");
    for (d = 0; d < m->n_dims; d++) {
        if (d) text_str(sizes, ", ");
        if (m->names) text_clean(sizes, m->names[d]);
        text_fmt(sizes, m->names ? "=%lld" : "%lld", (long long)m->shape[d]);
    }
    show_close_as(s, "({sizes}) on {device_type}");
}

/* For the eye ", Shard(0)". */
static void dist_placements(show *s, const ckr_dist *d)
{
    static const char *const kinds[] = { "Replicate", "Shard", "_StridedShard", "Partial" };
    uint64_t i;
    if (d->n_placements) show_words_list(s, "placements");
    for (i = 0; i < d->n_placements; i++) {
        const ckr_placement *p = &d->placements[i];
        show_dict(s, NULL);
        show_str(s, "kind", kinds[p->kind]);
        if (p->dim >= 0) show_int(s, "dim", p->dim);
        if (p->kind == CKR_PLACE_STRIDED) show_int(s, "split_factor", p->split_factor);
        show_close_as(s, p->kind == CKR_PLACE_STRIDED ? ", {kind}({dim}, {split_factor})"
                         : p->kind == CKR_PLACE_SHARD ? ", {kind}({dim})"
                                                      : ", {kind}");
    }
    if (d->n_placements) show_close_as(s, "{=}");
}

/* For the eye those that the file has: "[31:61, 0:24] and [0:1, 0:24]". */
static void dist_shards(show *s, const ckr_view *v)
{
    const ckr_dist *d = v->dist;
    bool any = false;
    uint64_t i;
    uint32_t k;
    show_words_list(s, "shards");
    for (i = 0; i < d->n_shards; i++) {
        const ckr_shard *x = &d->shards[i];
        text *range;
        if (!s->w.t && !x->local) continue;
        show_dict(s, NULL);
        show_int(s, "rank", x->rank);
        show_shape(s, "start", v->n_dims, x->start);
        show_shape(s, "count", v->n_dims, x->count);
        if (x->local) {                /* its contents stand where the attributes have it */
            show_dict(s, "local");
            show_str(s, "dtype", ckr_dtype_name(x->local->dtype));
            show_shape(s, "shape", x->local->n_dims, x->local->shape);
            show_shape(s, "stride", x->local->n_dims, x->local->stride);
            show_int(s, "offset", x->local->offset);
            if (x->local->storage) show_str(s, "storage", x->local->storage);
            show_close(s);
        }
        range = show_text(s, "range");
        for (k = 0; k < v->n_dims; k++)
            text_fmt(range, k ? ", %lld:%lld" : "%lld:%lld", (long long)x->start[k],
                     (long long)(x->start[k] + x->count[k]));
        show_close_as(s, any ? " and {?[}{range}{?]}" : "{?[}{range}{?]}");
        any = true;
    }
    show_close_as(s, "{=}");
}

/* Which part of a global tensor the file has. */
static void tree_dist(tree *t, const ckr_view *v)
{
    const ckr_dist *d = v->dist;
    show *s = &t->s;
    show_dict(s, "dist");
    show_int(s, "rank", d->rank);
    show_int(s, "world", d->world);
    if (d->fault) show_str(s, "fault", d->fault);
    if (d->mesh) dist_mesh(t, d->mesh);
    dist_placements(s, d);
    if (!d->n_shards || tree_may_repeat(t, d, d->n_shards)) dist_shards(s, v);
    if (d->rank < 0) show_word(s, "rank", "");
    if (!d->mesh && d->n_shards)
        text_fmt(show_text(s, "n"), "%llu", (unsigned long long)d->n_shards);
    show_close_as(s, ", this file: {shards?nothing}[ of mesh {mesh}][ of {n} shards]"
                  "[, {placements}][, rank {rank}][: {fault}]");
}

/* "float32 [31 x 24] parameter storage 0 from 744", and what is distributed. */
static const char *view_words(show *s, const ckr_view *v)
{
    if (s->w.t) return "";
    show_word(s, "dtype", view_dtype(v));
    show_shape(s, "shape", v->n_dims, v->shape);
    show_word(s, "layout", v->layout);
    show_word(s, "is", v->parameter ? "parameter" : v->requires_grad ? "requires_grad" : "");
    show_word(s, "storage", v->storage);
    show_word(s, "offset", "");
    if (v->storage && v->offset) show_int(s, "offset", v->offset);
    return "{t} {dtype} {?[}{shape}{?]}[ {layout}][ {is}][ storage {storage}][ from {offset}]"
           "[, {dist}]";
}

static void tree_tensor(tree *t, const ckr_node *n, const tree_task *at)
{
    const ckr_view *v = n->u.view;
    const bool quantized = v->layout && !strcmp(v->layout, "quantized");
    show *s = &t->s;
    show_str(s, "dtype", ckr_dtype_name(v->dtype));
    show_shape(s, "shape", v->n_dims, v->shape);
    if (v->layout && !quantized && strcmp(v->layout, "packed")) show_str(s, "layout", v->layout);
    else if (s->w.t) tree_strided(t, n);
    if (v->parameter || v->type_name)
        show_str(s, "class", v->parameter ? "Parameter" : v->type_name);
    if (v->dist) tree_dist(t, v);
    if (!s->w.t) return;
    if (ckr_node_is_dict(n->attrs) && n->attrs->count)
        tree_member_list(t, "attrs", TASK_PAIRS, n->attrs, HOW_VALUE, at);
    else if (n->attrs && n->attrs->count) tree_member(t, "state", n->attrs, HOW_STATE, at);
    if (v->parts) tree_parts(t, n, at);
}

static void tree_array(tree *t, const ckr_node *n)
{
    const ckr_view *v = n->u.view;
    const bool scalar = n->kind == CKR_NODE_NPSCALAR;
    show *s = &t->s;
    show_str(s, "dtype", v->type_name ? v->type_name : "");
    if (!scalar) show_shape(s, "shape", v->n_dims, v->shape);
    if (!scalar) show_bool(s, "fortran", v->fortran);
    if (s->w.t && scalar) tree_contents(t, n, NULL, "hex");
    else if (s->w.t) tree_contents(t, n, "sha256_c_order", "hex_c_order");
}

/* >>members ------------------------------------------------------------------- */

#define EXTRAS 8                   /* the children that have a fixed name                 */

static const ckr_node *node_extra(const ckr_node *n, unsigned i, const char **name)
{
    static const char *const names[EXTRAS] = { "callable", "args",      "kwargs", "state",
                                               "items",    "dictitems", "parts",  "attrs" };
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

static void tree_dict(tree *t, const ckr_node *n, const tree_task *at)
{
    tree_task attrs = *at;
    if (n->kind != CKR_NODE_DEFAULTDICT && ckr_node_is_dict(n->attrs) && n->attrs->count) {
        attrs.path = tree_path_add(t, at->path, HOW_ATTRS, NULL, 0);
        tree_member_list(t, "attrs", TASK_PAIRS, n->attrs, HOW_VALUE, &attrs);
    }
    tree_member_list(t, "v", TASK_PAIRS, n, HOW_VALUE, at);
    if (n->kind == CKR_NODE_DEFAULTDICT && n->attrs)
        tree_member(t, "factory", n->attrs, HOW_SAME, at);
}

static void tree_object(tree *t, const ckr_node *n, const tree_task *at)
{
    static const uint8_t how[] = { HOW_SAME, HOW_ARGS, HOW_ARGS, HOW_STATE };
    const ckr_object *o = n->u.object;
    const char *label = !strcmp(o->how, "newobj") ? "class" : "callable", *name;
    unsigned i;
    show_str(&t->s, "how", o->how);
    if (o->name) show_str(&t->s, label, o->name);
    for (i = 6; i-- > 0;) {
        const ckr_node *child = node_extra(n, i, &name);
        if (!child || (i == 0 && o->name)) continue;
        if (i == 5) tree_member_list(t, name, TASK_PAIRS, child, HOW_VALUE, at);
        else if (i == 4) tree_member_list(t, name, TASK_ITEMS, child, HOW_INDEX, at);
        else tree_member(t, i ? name : label, child, how[i], at);
    }
}

/* More than 32 small integers print as plain numbers. */
static bool tree_is_ints(const ckr_node *n)
{
    const int64_t most = (int64_t)1 << 53;
    uint64_t i;
    if (n->count <= 32) return false;
    for (i = 0; i < n->count; i++) {
        const ckr_node *k = n->u.items[i];
        if (k->kind != CKR_NODE_INT || k->u.i >= most || k->u.i <= -most) return false;
    }
    return true;
}

static void tree_sequence(tree *t, const ckr_node *n, const tree_task *at)
{
    if (!tree_is_ints(n)) {
        tree_member_list(t, "v", TASK_ITEMS, n, HOW_INDEX, at);
        return;
    }
    show_ints(&t->s, "ints", n);
    if (at->again) t->repeated += n->count;
}

static void tree_set(tree *t, const ckr_node *n, const tree_task *at)
{
    tree_task *k;
    json_key(&t->s.w, "sorted");
    json_open(&t->s.w, "[");
    t->open_sets++;
    t->out.to = NULL;
    tree_later(t, TASK_CLOSE, "]");
    k = tree_later(t, TASK_SET_END, NULL);
    if (k) k->n = n->count;
    tree_later_list(t, TASK_ITEMS, n, HOW_SET, at);
}

/* >>nodes --------------------------------------------------------------------- */

static bool node_leaf(const ckr_node *n)
{
    return !n || (!ckr_node_is_dict(n) && !value_is_list(n) && n->kind != CKR_NODE_OBJECT &&
                  !n->attrs && !(n->kind == CKR_NODE_TENSOR && n->u.view->parts));
}

/* For the eye a list of numbers and words fits on its line. */
static bool node_inline(const ckr_node *n)
{
    uint64_t i;
    if (node_leaf(n)) return true;
    if (!value_is_list(n) || n->attrs) return false;
    for (i = 0; i < n->count; i++) {
        const ckr_node *x = n->u.items[i];
        if (!node_leaf(x) || (x && (x->kind == CKR_NODE_TENSOR || x->kind == CKR_NODE_NDARRAY)))
            return false;
    }
    return true;
}

/* What a node costs when it is printed again; 0 for those that are never worth a ref. */
static uint64_t tree_weight(const ckr_node *n)
{
    switch (n->kind) {
    case CKR_NODE_STR: case CKR_NODE_BYTES: case CKR_NODE_BYTEARRAY:
        return n->count > 256 ? n->count / 64 : 0;
    case CKR_NODE_BIGINT: return n->count > 64 ? n->count : 0;
    case CKR_NODE_SIZE: return n->count > 32 ? n->count : 0;
    case CKR_NODE_TUPLE: return n->count ? 1 : 0;
    case CKR_NODE_TENSOR: return n->attrs ? 16 : 0;  /* its attributes can lead back to it */
    default: return 0;
    }
}

/* Was the node printed before, at at->path, so that it is not again? Else `at` becomes its own. */
static bool tree_seen_before(tree *t, const ckr_node *n, tree_task *at)
{
    const bool eye = !t->s.w.t;
    const uint64_t weight = tree_weight(n);
    const bool container = eye ? !node_inline(n)
                               : (n->kind >= CKR_NODE_LIST && n->kind <= CKR_NODE_DEFAULTDICT) ||
                                     n->kind == CKR_NODE_OBJECT || n->kind == CKR_NODE_STORAGE ||
                                     weight;
    const bool always = eye || (n->kind != CKR_NODE_TUPLE && !weight);
    tree_slot *s;
    if (!container) return false;
    if (at->how != HOW_SAME) at->path = tree_path_add(t, at->path, at->how, at->key, at->i);
    s = tree_find(&t->seen, n);
    if (!s) t->failed = true;
    if (t->failed) return true;
    if (!s->key) {
        tree_take(&t->seen, s, n, at->path);
        return false;
    }
    if (always || t->repeated > TREE_REPEAT_BUDGET) {
        at->path = (uint32_t)s->value;
        return true;
    }
    t->repeated += weight;
    at->again = true;
    return false;
}

/* For the eye what stands before a node. */
static void tree_name(const tree *t, const tree_task *k)
{
    const size_t depth = k->how == HOW_ROOT ? 0 : (size_t)t->paths[k->path].depth + 1;
    text *out = t->s.t;
    if (!depth) return;
    text_pad(out, depth < 40 ? 2 * depth : 80);
    if (k->how == HOW_VALUE) text_node(out, NULL, k->key);
    else if (k->name) text_fmt(out, "(%s)", k->name);
    else text_fmt(out, "[%llu]", (unsigned long long)k->i);
    text_str(out, ": ");
}

/* Below: in JSON with what follows the facts, in the order of the document. */
static void tree_facts(tree *t, const ckr_node *n, const tree_task *at)
{
    show *s = &t->s;
    switch (n->kind) {
    case CKR_NODE_TENSOR: tree_tensor(t, n, at); return;
    case CKR_NODE_NDARRAY: case CKR_NODE_NPSCALAR: tree_array(t, n); return;
    case CKR_NODE_STORAGE:
        tree_note_storage(t, n->u.view);
        show_str(s, "dtype", ckr_dtype_name(n->u.view->dtype));
        show_int(s, "size", n->u.view->shape[0]);
        return;
    default: break;
    }
    if (!s->w.t) return;
    switch (n->kind) {
    case CKR_NODE_LIST: case CKR_NODE_TUPLE: tree_sequence(t, n, at); break;
    case CKR_NODE_SET: case CKR_NODE_FROZENSET: tree_set(t, n, at); break;
    case CKR_NODE_DICT: case CKR_NODE_ODICT: case CKR_NODE_COUNTER: case CKR_NODE_DEFAULTDICT:
        tree_dict(t, n, at);
        break;
    case CKR_NODE_OBJECT: tree_object(t, n, at); break;
    default: node_scalar(t, s, n); break;
    }
}

/* The line of a node, of its facts. */
static const char *node_words(show *s, const ckr_node *n)
{
    const bool bytes = n->kind == CKR_NODE_BYTES || n->kind == CKR_NODE_BYTEARRAY;
    if (n->kind == CKR_NODE_TENSOR || n->kind == CKR_NODE_NDARRAY || n->kind == CKR_NODE_STORAGE)
        return view_words(s, n->u.view);
    if (n->kind == CKR_NODE_OBJECT) {
        text_painted(show_text(s, "t"), PAINT_DIM, "object ");
        show_word(s, "name", n->u.object->name);
        return "{t}{name}, not built";
    }
    if (bytes || ckr_node_is_dict(n) || value_is_list(n)) show_uint(s, "count", n->count);
    if (!bytes && n->kind != CKR_NODE_NONE && node_inline(n))
        text_node(show_text(s, "v"), NULL, n);
    return "{t}[ ({count})][ {v}]";
}

/* For the eye what hangs below a node: its items, then what has a name of its own. */
static void tree_below(tree *t, const ckr_node *n, const tree_task *at)
{
    const bool dict = ckr_node_is_dict(n);
    const char *name;
    unsigned i;
    for (i = EXTRAS; i-- > 0;) {
        const ckr_node *child = node_extra(n, i, &name);
        if (!child) continue;
        tree_later_node(t, child, HOW_STATE, at, NULL);
        if (!t->failed) t->tasks[t->n_tasks - 1].name = name;
    }
    if (dict) tree_later_list(t, TASK_PAIRS, n, HOW_VALUE, at);
    else if (value_is_list(n)) tree_later_list(t, TASK_ITEMS, n, HOW_INDEX, at);
}

static void tree_node(tree *t, const tree_task *k)
{
    static const ckr_node none;
    const ckr_node *n = k->p ? (const ckr_node *)k->p : &none;
    show *s = &t->s;
    tree_task at = *k;
    bool seen;
    if (at.again) t->repeated++;
    if (s->t) tree_name(t, k);
    seen = tree_seen_before(t, n, &at);
    if (t->failed) return;
    if (seen && s->w.t) {
        tree_ref(t, n, at.path);
        return;
    }
    show_dict(s, NULL);
    if (s->w.t) tree_later(t, TASK_CLOSE, "}");
    show_painted(s, "t", node_kind(n), PAINT_DIM);
    tree_facts(t, n, &at);
    if (s->t) {
        show_put(s, NULL, node_words(s, n));
        show_line(s, NULL, seen ? "  (shown above)" : "");
        if (!seen && !node_inline(n)) tree_below(t, n, &at);
    }
    show_leave(s);
}

static void tree_storages(tree *t)
{
    size_t i;
    show_list(&t->s, "storages");
    for (i = 0; i < t->storages.count && show_room(&t->s, i, 0) && !t->bytes.failed; i++) {
        const ckr_view *v = t->storage[i];
        tree_digest sha;
        show_dict(&t->s, NULL);
        show_str(&t->s, "key", v->storage);
        show_uint(&t->s, "nbytes", v->data_bytes);
        if (t->hash) tree_storage_sha(&t->bytes, v, &sha);
        if (t->hash) show_hex(&t->s, "sha256", sha.b, sizeof sha.b);
        show_close(&t->s);
    }
    show_close(&t->s);
}

static bool tree_alive(const tree *t)
{
    return !t->failed && !t->bytes.failed && !(t->s.w.t ? t->s.w.t : t->s.t)->failed;
}

/* The whole document, or the outline; false when memory ran out or a tensor's bytes could not be
   read. */
static bool tree_print(tree *t, const char *file, const char *format, const ckr_node *root)
{
    tree_task top;
    bool ok;
    memset(&top, 0, sizeof top);
    show_str(&t->s, "file", file);
    show_str(&t->s, "format", format ? format : "");
    show_put(&t->s, NULL, "{*file}  {format}  ");
    tree_later_node(t, root, HOW_ROOT, &top, NULL);
    if (t->s.w.t) tree_later(t, TASK_KEY, "root");
    while (t->n_tasks && tree_alive(t)) {
        const tree_task k = t->tasks[t->n_tasks - 1];
        if (k.type == TASK_ITEMS) tree_step_items(t);
        else if (k.type == TASK_PAIRS) tree_step_pairs(t);
        else t->n_tasks--;
        if (k.type == TASK_KEY) json_key(&t->s.w, (const char *)k.p);
        else if (k.type == TASK_OPEN) json_open(&t->s.w, (const char *)k.p);
        else if (k.type == TASK_CLOSE) json_close(&t->s.w, (const char *)k.p);
        else if (k.type == TASK_NODE) tree_node(t, &k);
        else if (k.type == TASK_SET_END) tree_set_end(t, k.n);
    }
    if (tree_alive(t)) tree_storages(t);
    show_end(&t->s);
    text_drain(&t->out);
    ok = tree_alive(t) && !t->out.failed;
    tree_bytes_free(&t->bytes);
    text_free(&t->out);
    free(t->tasks);
    free(t->paths);
    free(t->marks);
    free(t->seen.slots);
    free(t->repeats.slots);
    free(t->storages.slots);
    free((void *)t->storage);
    return ok;
}

/* >>tree ---------------------------------------------------------------------- */

/* All of `from` to the job's output. */
static bool tree_copy(job *j, FILE *from)
{
    char block[4096];
    size_t n;
    rewind(from);
    while ((n = fread(block, 1, sizeof block, from)) > 0) text_put(&j->out, block, n);
    return !ferror(from);
}

/* JSON goes to a temporary file first, so that a read error leaves nothing but the error on
   stdout. */
static int tree_show(job *j, const ckr_ckpt *c, const ckr_node *n)
{
    FILE *f = j->o.json ? file_temporary() : NULL;
    int code = CODE_DONE;
    tree *t;
    if (j->o.json && !f) {
        error_set(&j->err, CKR_E_IO, CKR_ITEM_IO_OPEN, NULL);
        snprintf(j->err.text, sizeof j->err.text, "cannot make a temporary file: %s",
                 strerror(errno));
        return fail(j);
    }
    t = (tree *)calloc(1, sizeof *t);
    memset(&j->err, 0, sizeof j->err);
    if (t) {
        t->file = t->out.to = f;
        t->bytes.ckpt = c;
        t->bytes.err = &j->err;
        t->hash = j->o.hash;
        show_begin(&t->s, f ? &t->out : &j->out, f != NULL);
        t->s.w.exact = true;
        t->s.facts.digits = 0;
    }
    if (!t || !tree_print(t, j->args[0], format_name(ckr_ckpt_state(c)->format), n))
        code = j->err.code != CKR_OK ? fail(j) : out_of_memory(j);
    else if (f && !tree_copy(j, f))
        j->out.failed = true;
    free(t);
    if (f) fclose(f);
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
    if (code == CODE_DONE) code = tree_show(j, c, n);
    ckr_ckpt_close(c);
    return code;
}
