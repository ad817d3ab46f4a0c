/* The `tree` printer: a node tree as JSON in the vocabulary of tests/data's truth files. Reads
   only public data (ckr_node, ckr_view, ckr_object) and tensor bytes through two callbacks. It
   keeps its own stack of tasks, so that depth costs heap and not C stack. Lists, dicts, sets and
   objects print once; later they are {"t":"ref","path":...}. Tuples and strings print in full
   every time, as values do, until what is printed again passes a budget: then they become refs
   too, so that a small file cannot print without end. */

#include "tool.h"

#define TREE_REPEAT_BUDGET ((uint64_t)1 << 20)   /* nodes printed again                    */
#define TREE_EXPAND_BUDGET ((uint64_t)1 << 30)   /* hashed of tensors beyond their storage */
#define TREE_HASH_BUDGET ((uint64_t)1 << 26)     /* hashed beyond 16 times what is stored  */
#define TREE_PATH_MAX 4096
#define TREE_PATH_DEPTH 512

/* How a node hangs below its parent, for the paths of refs. */
enum { HOW_ROOT, HOW_SAME, HOW_KEY, HOW_VALUE, HOW_INDEX, HOW_SET, HOW_ATTRS, HOW_STATE, HOW_ARGS };
enum { TASK_TEXT, TASK_NODE, TASK_ITEMS, TASK_PAIRS, TASK_SET_END };

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
} tree_task;
typedef struct tree_seen { const void *key; uint64_t value; } tree_seen;
typedef struct tree_map { tree_seen *slots; size_t cap, count; } tree_map;
typedef struct tree_digest { uint8_t sha[32]; } tree_digest;

typedef struct tree {
    FILE *file;
    const tree_io *io;
    bool hash, failed;         /* failed: no memory, or tensor bytes could not be read    */
    text out;                  /* drains into the file, but not while a set is open       */
    tree_task *tasks;
    size_t n_tasks, cap_tasks;
    tree_path *paths;
    size_t n_paths, cap_paths;
    size_t *marks, n_marks, cap_marks;       /* where the items of open sets begin         */
    unsigned open_sets;
    tree_map seen, storages, digests, data;
    const ckr_view **storage;
    size_t n_storage, cap_storage;
    tree_digest *digest;
    size_t n_digest, cap_digest;
    uint64_t repeated, expanded, hashed, stored;     /* spent; stored: of distinct storages */
    const ckr_node *last_ref;  /* whose path is still in ref_text                      */
    char ref_text[TREE_PATH_MAX];            /* written from its end                   */
    size_t n_ref;
    uint8_t *window;           /* of the file, when it is not mapped                      */
    uint64_t window_at;
    size_t window_n;
    uint32_t window_file;
} tree;

/* ---- memory ---- */

static bool tree_grow(tree *t, void **array, size_t *cap, size_t need, size_t size)
{
    size_t n = *cap ? *cap : 64;
    void *p;
    if (need <= *cap) return true;
    while (n < need) n *= 2;
    p = n > SIZE_MAX / 2 / size ? NULL : realloc(*array, n * size);
    if (!p) { t->failed = true; return false; }
    *array = p;
    *cap = n;
    return true;
}

static size_t tree_hash_pointer(const void *p)
{
    uint64_t h = (uint64_t)(uintptr_t)p * 0x9e3779b97f4a7c15u;
    return (size_t)(h >> 32 ^ h);
}

/* The slot of `key`, empty or taken; NULL without memory. */
static tree_seen *tree_slot(tree *t, tree_map *m, const void *key)
{
    size_t i, k;
    if (m->count * 2 >= m->cap) {
        tree_map big;
        big.cap = m->cap ? m->cap * 2 : 256;
        big.count = m->count;
        big.slots = (tree_seen *)calloc(big.cap, sizeof *big.slots);
        if (!big.slots) { t->failed = true; return NULL; }
        for (i = 0; i < m->cap; i++) {
            if (!m->slots[i].key) continue;
            for (k = tree_hash_pointer(m->slots[i].key) & (big.cap - 1); big.slots[k].key;)
                k = (k + 1) & (big.cap - 1);
            big.slots[k] = m->slots[i];
        }
        free(m->slots);
        *m = big;
    }
    for (i = tree_hash_pointer(key) & (m->cap - 1); m->slots[i].key && m->slots[i].key != key;)
        i = (i + 1) & (m->cap - 1);
    return &m->slots[i];
}

/* ---- output ---- */

/* JSON text of valid UTF-8; lone surrogates, three bytes from ED A0, become escapes. */
static void tree_text(tree *t, const char *s, uint64_t n)
{
    uint64_t i, from = 0;
    for (i = 0; i < n; i++) {
        const uint8_t ch = (uint8_t)s[i];
        const bool surrogate = ch == 0xED && n - i >= 3 && (uint8_t)s[i + 1] >= 0xA0;
        if (ch >= 0x20 && ch != '"' && ch != '\\' && ch != 0x7F && !surrogate) continue;
        text_put(&t->out, s + from, (size_t)(i - from));
        if (surrogate) {
            text_fmt(&t->out, "\\u%04x",
                     0xD000u | ((unsigned)(uint8_t)s[i + 1] & 0x3F) << 6 |
                         ((unsigned)(uint8_t)s[i + 2] & 0x3F));
            i += 2;
        } else if (ch == '"' || ch == '\\') {
            text_fmt(&t->out, "\\%c", ch);
        } else {
            text_fmt(&t->out, "\\u%04x", ch);
        }
        from = i + 1;
    }
    text_put(&t->out, s + from, (size_t)(n - from));
}

static void tree_string(tree *t, const char *s, uint64_t n)
{
    text_put(&t->out, "\"", 1);
    tree_text(t, s, n);
    text_put(&t->out, "\"", 1);
}

/* A number as Python prints it; longer ones than it prints as hex. */
static void tree_number(tree *t, const ckr_node *n)
{
    char digits[4400];
    uint64_t i;
    if (ckr_node_number(n, digits, sizeof digits)) {
        text_str(&t->out, digits);
        return;
    }
    text_str(&t->out, "0x");
    for (i = n->count; i > 0; i--) text_hex(&t->out, (const uint8_t *)n->u.str + i - 1, 1);
}

/* ---- tensor bytes ---- */

#define TREE_WINDOW ((size_t)1 << 20)
#define TREE_HEX_MAX 96        /* bytes of a tensor that are also printed              */
#define TREE_ITEM_MAX 4096     /* bytes of one element, of NumPy's strings             */

/* n bytes (at most 64 KiB) at `offset` of a view's storage; NULL when they cannot be read. */
static const uint8_t *tree_bytes(tree *t, const ckr_view *v, uint64_t offset, size_t n)
{
    uint64_t size = 0, left;
    const uint8_t *map;
    if (offset > v->data_bytes || n > v->data_bytes - offset) return NULL;
    if (v->bytes) return v->bytes + offset;
    map = t->io->map_fn ? t->io->map_fn(t->io->user, v->file, &size) : NULL;
    if (map)
        return v->data_offset <= size && v->data_bytes <= size - v->data_offset
                   ? map + v->data_offset + offset
                   : NULL;
    if (t->window_n && t->window_file == v->file && v->data_offset + offset >= t->window_at &&
        v->data_offset + offset + n <= t->window_at + t->window_n)
        return t->window + (v->data_offset + offset - t->window_at);
    if (!t->window) t->window = (uint8_t *)malloc(TREE_WINDOW);
    left = v->data_bytes - offset;
    t->window_at = v->data_offset + offset;
    t->window_n = left < TREE_WINDOW ? (size_t)left : TREE_WINDOW;
    t->window_file = v->file;
    if (t->window && t->io->read_fn(t->io->user, v->file, t->window_at, t->window, t->window_n))
        return t->window;
    t->window_n = 0;
    return NULL;
}

static uint64_t tree_item_size(const ckr_view *v)
{
    const uint64_t n = ckr_dtype_size(v->dtype);
    if (n || !v->type_name) return n;
    return strtoull(v->type_name + 2, NULL, 10) * (v->type_name[1] == 'U' ? 4 : 1);
}

/* Reverses the bytes of each component of the elements in p. */
static void tree_swap(uint8_t *p, size_t n, size_t unit)
{
    size_t i, k;
    for (i = 0; i + unit <= n; i += unit)
        for (k = 0; k < unit / 2; k++) {
            const uint8_t b = p[i + k];
            p[i + k] = p[i + unit - 1 - k];
            p[i + unit - 1 - k] = b;
        }
}

static size_t tree_unit(const ckr_view *v, size_t item)
{
    if (v->dtype == CKR_DTYPE_C32 || v->dtype == CKR_DTYPE_C64 || v->dtype == CKR_DTYPE_C128)
        return item / 2;
    if (v->type_name && v->type_name[1] == 'U' && v->dtype == CKR_DTYPE_NONE) return 4;
    if (v->type_name && (v->type_name[1] == 'S' || v->type_name[1] == 'V')) return 1;
    return item;
}

/* Signs of lazily negated and conjugated tensors: the top bit of a component. */
static void tree_signs(const ckr_view *v, uint8_t *p, size_t n, size_t item)
{
    const size_t unit = tree_unit(v, item);
    size_t i;
    for (i = 0; v->neg && i + unit <= n; i += unit) p[i + unit - 1] ^= 0x80;
    for (i = 0; v->conj && unit < item && i + item <= n; i += item) p[i + item - 1] ^= 0x80;
}

static bool tree_is_contiguous(const ckr_view *v)
{
    int64_t step = 1;
    uint32_t d;
    for (d = v->n_dims; d > 0; d--) {
        if (v->shape[d - 1] != 1 && v->stride[d - 1] != step) return false;
        step *= v->shape[d - 1];
    }
    return true;
}

/* Logical elements in row-major order, little-endian, handed on in blocks of at most 64 KiB. */
typedef struct tree_block {
    ckr_sha256 sha;
    uint8_t head[TREE_HEX_MAX];
    size_t n_head, n;
    uint8_t data[65536];
} tree_block;

static void tree_block_end(tree_block *b, const ckr_view *v, size_t item, bool swap)
{
    if (swap) tree_swap(b->data, b->n, tree_unit(v, item));
    if (v->neg || v->conj) tree_signs(v, b->data, b->n, item);
    if (b->n_head < sizeof b->head) {
        const size_t k = b->n < sizeof b->head - b->n_head ? b->n : sizeof b->head - b->n_head;
        memcpy(b->head + b->n_head, b->data, k);
        b->n_head += k;
    }
    ckr_sha256_update(&b->sha, b->data, b->n);
    b->n = 0;
}

/* One row: `count` elements from element `at`, `stride` apart. */
static bool tree_row(tree *t, tree_block *b, const ckr_view *v, size_t item, uint64_t at,
                     uint64_t count, uint64_t stride, bool swap)
{
    while (count) {
        const size_t room = (sizeof b->data - b->n) / item;
        size_t k = count < room ? (size_t)count : room, i;
        const uint8_t *s;
        if (k == 0) { tree_block_end(b, v, item, swap); continue; }
        if (stride == 1) {
            s = tree_bytes(t, v, at * item, k * item);
            if (!s) return false;
            memcpy(b->data + b->n, s, k * item);
            at += k;
        } else {
            for (i = 0; i < k; i++, at += stride) {
                s = tree_bytes(t, v, at * item, item);
                if (!s) return false;
                memcpy(b->data + b->n + i * item, s, item);
            }
        }
        b->n += k * item;
        count -= k;
    }
    return true;
}

static bool tree_gather(tree *t, tree_block *b, const ckr_view *v, size_t item, uint64_t numel,
                        bool swap)
{
    uint64_t index[64], at = (uint64_t)v->offset;
    const uint32_t n = v->n_dims;
    uint32_t d;
    if (numel == 0) return true;
    if (n == 0 || tree_is_contiguous(v)) return tree_row(t, b, v, item, at, numel, 1, swap);
    if (n > 64) return false;
    memset(index, 0, sizeof index);
    for (;;) {
        if (!tree_row(t, b, v, item, at, (uint64_t)v->shape[n - 1], (uint64_t)v->stride[n - 1],
                      swap))
            return false;
        for (d = n - 1; d > 0; d--) {
            at += (uint64_t)v->stride[d - 1];
            if (++index[d - 1] < (uint64_t)v->shape[d - 1]) break;
            at -= (uint64_t)v->stride[d - 1] * index[d - 1];
            index[d - 1] = 0;
        }
        if (d == 0) return true;
    }
}

/* Counts the bytes of each distinct storage or array once. */
static void tree_note_data(tree *t, const ckr_view *v)
{
    const void *key = v->storage ? (const void *)v->storage : (const void *)v->bytes;
    tree_seen *s = key ? tree_slot(t, &t->data, key) : NULL;
    if (key && (!s || s->key)) return;
    t->stored += v->data_bytes;
    if (!s) return;
    s->key = key;
    t->data.count++;
}

/* False when a file makes us hash far more than it stores: a tensor beyond its storage (stride 0),
   or the same bytes under many tensors. */
static bool tree_may_hash(const tree *t, const ckr_view *v, uint64_t bytes)
{
    if (bytes > v->data_bytes)
        return bytes <= TREE_EXPAND_BUDGET && t->expanded <= TREE_EXPAND_BUDGET - bytes;
    return bytes <= TREE_HEX_MAX || t->hashed <= TREE_HASH_BUDGET + 16 * t->stored;
}

static void tree_hex_member(tree *t, const char *name, const uint8_t *p, uint64_t n)
{
    text_fmt(&t->out, ",\"%s\":\"", name);
    text_hex(&t->out, p, n);
    text_str(&t->out, "\"");
}

/* Elements of less than 8 bits have no address of their own: the bytes count. */
static bool tree_is_packed(const ckr_view *v)
{
    return v->layout && (!strcmp(v->layout, "packed") || v->dtype == CKR_DTYPE_QUINT4X2 ||
                         v->dtype == CKR_DTYPE_QUINT2X4);
}

/* The bytes of so many elements; torch's storage may have more behind them. */
static uint64_t tree_packed_bytes(const ckr_view *v, uint64_t numel)
{
    const uint64_t in_byte = v->dtype == CKR_DTYPE_QUINT4X2 ? 2 : 4;
    return strcmp(v->layout, "packed") ? numel / in_byte + (numel % in_byte != 0) : v->data_bytes;
}

/* All logical bytes through b; sha gets their digest. */
static bool tree_block_fill(tree *t, tree_block *b, const ckr_view *v, uint64_t item,
                            uint64_t numel, bool swap, uint8_t sha[32])
{
    bool ok = true;
    b->n = b->n_head = 0;
    ckr_sha256_init(&b->sha);
    if (tree_is_packed(v)) ok = tree_row(t, b, v, 1, 0, numel, 1, false);
    else ok = tree_gather(t, b, v, (size_t)item, numel, swap);
    tree_block_end(b, v, (size_t)item, swap);
    ckr_sha256_final(&b->sha, sha);
    return ok;
}

/* Keeps the digest of a node for when it is printed again. */
static void tree_digest_keep(tree *t, tree_seen *slot, const ckr_node *node, const uint8_t sha[32])
{
    void *array = t->digest;
    if (!tree_grow(t, &array, &t->cap_digest, t->n_digest + 1, sizeof *t->digest)) return;
    t->digest = (tree_digest *)array;
    memcpy(t->digest[t->n_digest].sha, sha, 32);
    slot->key = node;
    slot->value = t->n_digest++;
    t->digests.count++;
}

/* The same when it is not known yet; counts what it costs. */
static void tree_contents_new(tree *t, const ckr_node *node, tree_seen *slot, uint64_t item,
                              uint64_t numel, const char *name, const char *hex)
{
    const ckr_view *v = node->u.view;
    const bool numpy = node->kind == CKR_NODE_NDARRAY || node->kind == CKR_NODE_NPSCALAR;
    const bool swap = v->big_endian && !(numpy && v->type_name && v->type_name[0] == '>');
    const uint64_t bytes = numel * item;
    tree_block *b;
    uint8_t sha[32];
    if (bytes > v->data_bytes) t->expanded += bytes;
    else t->hashed += bytes;
    b = (tree_block *)malloc(sizeof *b);
    if (!b || item > TREE_ITEM_MAX) {
        t->failed = t->failed || !b;
        free(b);
        return;
    }
    if (!tree_block_fill(t, b, v, item, numel, swap, sha)) t->failed = true;
    if (t->hash && name) tree_hex_member(t, name, sha, 32);
    if (hex && bytes <= TREE_HEX_MAX) tree_hex_member(t, hex, b->head, bytes);
    free(b);
    if (bytes > TREE_HEX_MAX) tree_digest_keep(t, slot, node, sha);
}

/* ,"NAME":"sha256", and ,"HEX":"..." for short ones. */
static void tree_contents(tree *t, const ckr_node *node, const char *name, const char *hex)
{
    const ckr_view *v = node->u.view;
    uint64_t item = tree_is_packed(v) ? 1 : tree_item_size(v), numel = 1, bytes;
    tree_seen *slot;
    uint32_t d;
    for (d = 0; d < v->n_dims; d++) numel *= (uint64_t)v->shape[d];
    if (item == 0) {                       /* an empty text */
        item = 1;
        numel = 0;
    }
    if (tree_is_packed(v)) numel = tree_packed_bytes(v, numel);
    bytes = numel * item;
    if (!t->hash && (!hex || bytes > TREE_HEX_MAX)) return;
    tree_note_data(t, v);
    if (!tree_may_hash(t, v, bytes)) {
        if (t->hash) text_fmt(&t->out, ",\"%s\":null", name);
        return;
    }
    slot = tree_slot(t, &t->digests, node);
    if (!slot) return;
    if (slot->key) tree_hex_member(t, name, t->digest[slot->value].sha, 32);
    else tree_contents_new(t, node, slot, item, numel, name, hex);
}

/* ---- paths ---- */

static uint32_t tree_path_add(tree *t, uint32_t parent, unsigned how, const ckr_node *key,
                              uint64_t index)
{
    void *array = t->paths;
    if (t->n_paths >= UINT32_MAX ||
        !tree_grow(t, &array, &t->cap_paths, t->n_paths + 1, sizeof *t->paths))
        return 0;
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
    bool ok = n == t->last_ref;
    if (!ok) {
        ok = tree_path_text(t, path);
        t->last_ref = ok ? n : NULL;
    }
    text_str(&t->out, "{\"t\":\"ref\",\"path\":");
    if (ok) tree_string(t, t->ref_text + sizeof t->ref_text - t->n_ref, t->n_ref);
    else text_fmt(&t->out, "\"#%lu\"", (unsigned long)n->id);
    text_str(&t->out, "}");
}

/* ---- tasks ---- */

static tree_task *tree_task_add(tree *t, unsigned type, const void *p)
{
    void *array = t->tasks;
    tree_task *k;
    if (!tree_grow(t, &array, &t->cap_tasks, t->n_tasks + 1, sizeof *t->tasks)) return NULL;
    t->tasks = (tree_task *)array;
    k = &t->tasks[t->n_tasks++];
    memset(k, 0, sizeof *k);
    k->type = (uint8_t)type;
    k->p = p;
    return k;
}

static void tree_later_text(tree *t, const char *s)
{
    tree_task_add(t, TASK_TEXT, s);
}

static void tree_later_node(tree *t, const ckr_node *n, unsigned how, uint32_t parent,
                            const ckr_node *key, uint64_t i, bool again)
{
    tree_task *k = tree_task_add(t, TASK_NODE, n);
    if (!k) return;
    k->how = (uint8_t)how;
    k->path = parent;
    k->key = key;
    k->i = i;
    k->again = again;
}

static void tree_later_list(tree *t, unsigned type, const ckr_node *from, unsigned how,
                            uint32_t path, bool again)
{
    tree_task *k = tree_task_add(t, type, from->u.items);
    if (!k) return;
    k->n = from->count;
    k->how = (uint8_t)how;
    k->path = path;
    k->again = again;
}

/* Of the task on top: its next item. */
static void tree_step_items(tree *t)
{
    tree_task *k = &t->tasks[t->n_tasks - 1];
    const tree_task now = *k;
    const ckr_node *item;
    if (now.i == now.n) { t->n_tasks--; return; }
    item = ((ckr_node *const *)now.p)[now.i];
    k->i++;
    if (now.how == HOW_SET) {
        void *array = t->marks;
        if (!tree_grow(t, &array, &t->cap_marks, t->n_marks + 1, sizeof *t->marks)) return;
        t->marks = (size_t *)array;
        t->marks[t->n_marks++] = t->out.n;
    } else if (now.i) {
        text_str(&t->out, ",");
    }
    tree_later_node(t, item, now.how, now.path, NULL, now.i, now.again);
}

static void tree_step_pairs(tree *t)
{
    tree_task *k = &t->tasks[t->n_tasks - 1];
    const tree_task now = *k;
    ckr_node *const *pair;
    if (now.i == now.n) { t->n_tasks--; return; }
    pair = (ckr_node *const *)now.p + 2 * now.i;
    k->i++;
    text_str(&t->out, now.i ? ",[" : "[");
    tree_later_text(t, "]");
    tree_later_node(t, pair[1], HOW_VALUE, now.path, pair[0], 0, now.again);
    tree_later_text(t, ",");
    tree_later_node(t, pair[0], HOW_KEY, now.path, NULL, 0, now.again);
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
}

/* ---- nodes ---- */

static void tree_str_node(tree *t, const ckr_node *n)
{
    const uint8_t *s = (const uint8_t *)n->u.str;
    bool plain = true, lone = false;
    uint64_t i;
    for (i = 0; i < n->count; i++) {
        if (s[i] == 0 || s[i] >= 0x80) plain = false;
        if (s[i] == 0xED && i + 1 < n->count && s[i + 1] >= 0xA0) lone = true;
    }
    text_str(&t->out, "{\"t\":\"str\"");
    if (!lone) {
        text_str(&t->out, ",\"v\":");
        tree_string(t, n->u.str, n->count);
    }
    if (!plain) {
        text_str(&t->out, ",\"utf8\":\"");
        text_hex(&t->out, s, n->count);
        text_str(&t->out, "\"");
    }
    text_str(&t->out, "}");
}

static void tree_bytes_node(tree *t, const ckr_node *n)
{
    uint8_t sha[32];
    text_fmt(&t->out, "{\"t\":\"%s\",\"len\":%llu",
             n->kind == CKR_NODE_BYTES ? "bytes" : "bytearray", (unsigned long long)n->count);
    if (t->hash) {
        ckr_sha256 s;
        ckr_sha256_init(&s);
        ckr_sha256_update(&s, n->u.str, (size_t)n->count);
        ckr_sha256_final(&s, sha);
        text_str(&t->out, ",\"sha256\":\"");
        text_hex(&t->out, sha, 32);
        text_str(&t->out, "\"");
    }
    if (n->count <= 256) {
        text_str(&t->out, ",\"hex\":\"");
        text_hex(&t->out, (const uint8_t *)n->u.str, n->count);
        text_str(&t->out, "\"");
    }
    text_str(&t->out, "}");
}

static void tree_double_hex(tree *t, double v)
{
    uint64_t bits;
    uint8_t b[8];
    unsigned i;
    memcpy(&bits, &v, 8);
    for (i = 0; i < 8; i++) b[i] = (uint8_t)(bits >> (8 * i));
    text_hex(&t->out, b, 8);
}

static void tree_named(tree *t, const char *kind, const ckr_node *n)
{
    text_fmt(&t->out, "{\"t\":\"%s\",\"v\":", kind);
    tree_string(t, n->u.str, n->count);
    text_str(&t->out, "}");
}

static void tree_numbers(tree *t, const char *name, const int64_t *v, uint32_t n)
{
    uint32_t i;
    text_fmt(&t->out, ",\"%s\":[", name);
    for (i = 0; i < n; i++) text_fmt(&t->out, i ? ",%lld" : "%lld", (long long)v[i]);
    text_str(&t->out, "]");
}

static void tree_scalar(tree *t, const ckr_node *n)
{
    uint64_t i;
    switch (n->kind) {
    case CKR_NODE_NONE: text_str(&t->out, "{\"t\":\"none\"}"); break;
    case CKR_NODE_BOOL:
        text_str(&t->out, n->u.b ? "{\"t\":\"bool\",\"v\":true}" : "{\"t\":\"bool\",\"v\":false}");
        break;
    case CKR_NODE_INT:
    case CKR_NODE_BIGINT:
        text_str(&t->out, "{\"t\":\"int\",\"v\":\"");
        tree_number(t, n);
        text_str(&t->out, "\"}");
        break;
    case CKR_NODE_FLOAT:
        text_str(&t->out, "{\"t\":\"float\",\"v\":\"");
        tree_number(t, n);
        text_str(&t->out, "\",\"hex\":\"");
        tree_double_hex(t, n->u.f);
        text_str(&t->out, "\"}");
        break;
    case CKR_NODE_COMPLEX:
        text_str(&t->out, "{\"t\":\"complex\",\"re\":\"");
        tree_double_hex(t, n->u.complex_[0]);
        text_str(&t->out, "\",\"im\":\"");
        tree_double_hex(t, n->u.complex_[1]);
        text_str(&t->out, "\"}");
        break;
    case CKR_NODE_STR: tree_str_node(t, n); break;
    case CKR_NODE_BYTES: case CKR_NODE_BYTEARRAY: tree_bytes_node(t, n); break;
    case CKR_NODE_SIZE:
        text_str(&t->out, "{\"t\":\"size\",\"v\":[");
        for (i = 0; i < n->count; i++)
            text_fmt(&t->out, i ? ",%lld" : "%lld", (long long)n->u.items[i]->u.i);
        text_str(&t->out, "]}");
        break;
    case CKR_NODE_DEVICE: tree_named(t, "device", n); break;
    case CKR_NODE_DTYPE:  tree_named(t, "dtype", n); break;
    case CKR_NODE_LAYOUT: tree_named(t, "layout", n); break;
    case CKR_NODE_GLOBAL: tree_named(t, "global", n); break;
    default: text_str(&t->out, "{\"t\":\"none\"}"); break;
    }
}

/* The distinct storages of the tensors, in order of first appearance. */
static void tree_note_storage(tree *t, const ckr_view *v)
{
    tree_seen *s;
    void *array = (void *)t->storage;
    if (!v->storage || !(s = tree_slot(t, &t->storages, v->storage)) || s->key) return;
    if (!tree_grow(t, &array, &t->cap_storage, t->n_storage + 1, sizeof *t->storage)) return;
    t->storage = (const ckr_view **)array;
    s->key = v->storage;
    t->storages.count++;
    t->storage[t->n_storage++] = v;
}

static const ckr_node *tree_part(const ckr_view *v, const char *name)
{
    return v->parts ? ckr_node_get(v->parts, name) : NULL;
}

static void tree_strided(tree *t, const ckr_node *n)
{
    const ckr_view *v = n->u.view;
    if (v->meta) {
        text_str(&t->out, ",\"meta\":true");
        tree_numbers(t, "stride", v->stride, v->n_dims);
        text_fmt(&t->out, ",\"requires_grad\":%s", v->requires_grad ? "true" : "false");
        return;
    }
    tree_numbers(t, "stride", v->stride, v->n_dims);
    text_fmt(&t->out, ",\"offset\":%lld", (long long)v->offset);
    if (v->storage) {
        text_str(&t->out, ",\"storage\":");
        tree_string(t, v->storage, strlen(v->storage));
    }
    text_fmt(&t->out, ",\"requires_grad\":%s", v->requires_grad ? "true" : "false");
    tree_note_storage(t, v);
    tree_contents(t, n, "sha256", "hex");
    if (v->conj) text_str(&t->out, ",\"conj\":true");
    if (v->neg) text_str(&t->out, ",\"neg\":true");
}

/* Component tensors and the fields of other layouts. */
static void tree_parts(tree *t, const ckr_node *n, uint32_t path, bool again)
{
    static const char *const opening[] = {
        ",\"indices\":",     ",\"values\":", ",\"compressed\":", ",\"plain\":",   ",\"scales\":",
        ",\"zero_points\":", ",\"buffer\":", ",\"sizes\":",      ",\"strides\":", ",\"offsets\":"
    };
    static const char *const name[] = {
        "indices",     "values", "compressed", "plain",   "scales",
        "zero_points", "buffer", "sizes",      "strides", "offsets"
    };
    const ckr_view *v = n->u.view;
    const ckr_node *p;
    unsigned i;
    if ((p = tree_part(v, "coalesced")) != NULL)
        text_fmt(&t->out, ",\"coalesced\":%s", p->u.b ? "true" : "false");
    if ((p = tree_part(v, "qscheme")) != NULL) {
        text_str(&t->out, ",\"qscheme\":");
        tree_string(t, p->u.str, p->count);
    }
    if ((p = tree_part(v, "scale")) != NULL && p->kind == CKR_NODE_FLOAT) {
        text_str(&t->out, ",\"scale_hex\":\"");
        tree_double_hex(t, p->u.f);
        text_str(&t->out, "\"");
    }
    if ((p = tree_part(v, "zero_point")) != NULL && p->kind == CKR_NODE_INT)
        text_fmt(&t->out, ",\"zero_point\":%lld", (long long)p->u.i);
    if ((p = tree_part(v, "axis")) != NULL && p->kind == CKR_NODE_INT)
        text_fmt(&t->out, ",\"axis\":%lld", (long long)p->u.i);
    for (i = 0; i < sizeof name / sizeof *name; i++)
        if ((p = tree_part(v, name[i])) != NULL) {
            tree_later_node(t, p, HOW_SAME, path, NULL, 0, again);
            tree_later_text(t, opening[i]);
        }
}

/* Numbers, if there are not too many of them again: meshes and shards have several owners. */
static bool tree_may_repeat(tree *t, const void *owner, uint64_t n)
{
    tree_seen *s = tree_slot(t, &t->data, owner);
    if (!s) return false;
    if (s->key) {
        t->repeated += n;
        return t->repeated <= TREE_REPEAT_BUDGET;
    }
    s->key = owner;
    t->data.count++;
    return true;
}

static void tree_mesh(tree *t, const ckr_mesh *m)
{
    uint64_t n = 1;
    uint32_t d;
    for (d = 0; d < m->n_dims; d++) n *= (uint64_t)m->shape[d];
    text_str(&t->out, ",\"mesh\":{\"device_type\":");
    tree_string(t, m->device_type, strlen(m->device_type));
    tree_numbers(t, "shape", m->shape, m->n_dims);
    text_str(&t->out, ",\"names\":");
    text_str(&t->out, m->names ? "[" : "null");
    for (d = 0; m->names && d < m->n_dims; d++) {
        if (d) text_str(&t->out, ",");
        tree_string(t, m->names[d], strlen(m->names[d]));
    }
    if (m->names) text_str(&t->out, "]");
    if (tree_may_repeat(t, m, n)) tree_numbers(t, "ranks", m->ranks, (uint32_t)n);
    text_str(&t->out, "}");
}

/* Which part of a global tensor the file has. */
static void tree_dist(tree *t, const ckr_view *v)
{
    static const char *const kinds[] = { "Replicate", "Shard", "_StridedShard", "Partial" };
    const ckr_dist *d = v->dist;
    uint64_t i;
    text_fmt(&t->out, ",\"dist\":{\"rank\":%lld,\"world\":%lld", (long long)d->rank,
             (long long)d->world);
    if (d->fault) {
        text_str(&t->out, ",\"fault\":");
        tree_string(t, d->fault, strlen(d->fault));
    }
    if (d->mesh) tree_mesh(t, d->mesh);
    for (i = 0; i < d->n_placements; i++) {
        const ckr_placement *p = &d->placements[i];
        text_fmt(&t->out, "%s{\"kind\":\"%s\"", i ? "," : ",\"placements\":[", kinds[p->kind]);
        if (p->dim >= 0) text_fmt(&t->out, ",\"dim\":%d", (int)p->dim);
        if (p->kind == CKR_PLACE_STRIDED)
            text_fmt(&t->out, ",\"split_factor\":%lld", (long long)p->split_factor);
        text_str(&t->out, "}");
    }
    if (d->n_placements) text_str(&t->out, "]");
    if (d->n_shards && !tree_may_repeat(t, d, d->n_shards)) {
        text_str(&t->out, "}");
        return;
    }
    text_str(&t->out, ",\"shards\":[");
    for (i = 0; i < d->n_shards; i++) {
        const ckr_shard *s = &d->shards[i];
        text_fmt(&t->out, "%s{\"rank\":%lld", i ? "," : "", (long long)s->rank);
        tree_numbers(t, "start", s->start, v->n_dims);
        tree_numbers(t, "count", s->count, v->n_dims);
        if (s->local) {                /* its contents stand where the attributes have it */
            text_fmt(&t->out, ",\"local\":{\"dtype\":\"%s\"", ckr_dtype_name(s->local->dtype));
            tree_numbers(t, "shape", s->local->shape, s->local->n_dims);
            tree_numbers(t, "stride", s->local->stride, s->local->n_dims);
            text_fmt(&t->out, ",\"offset\":%lld", (long long)s->local->offset);
            if (s->local->storage) {
                text_str(&t->out, ",\"storage\":");
                tree_string(t, s->local->storage, strlen(s->local->storage));
            }
            text_str(&t->out, "}");
        }
        text_str(&t->out, "}");
    }
    text_str(&t->out, "]}");
}

static void tree_tensor(tree *t, const ckr_node *n, uint32_t path, bool again)
{
    const ckr_view *v = n->u.view;
    const bool quantized = v->layout && !strcmp(v->layout, "quantized");
    text_fmt(&t->out, "{\"t\":\"tensor\",\"dtype\":\"%s\"", ckr_dtype_name(v->dtype));
    tree_numbers(t, "shape", v->shape, v->n_dims);
    if (v->layout && !quantized && strcmp(v->layout, "packed"))
        text_fmt(&t->out, ",\"layout\":\"%s\"", v->layout);
    else
        tree_strided(t, n);
    if (v->parameter) {
        text_str(&t->out, ",\"class\":\"Parameter\"");
    } else if (v->type_name) {
        text_str(&t->out, ",\"class\":");
        tree_string(t, v->type_name, strlen(v->type_name));
    }
    if (v->dist) tree_dist(t, v);
    tree_later_text(t, "}");
    if (ckr_node_is_dict(n->attrs) && n->attrs->count) {
        tree_later_text(t, "]");
        tree_later_list(t, TASK_PAIRS, n->attrs, HOW_VALUE, path, again);
        tree_later_text(t, ",\"attrs\":[");
    } else if (n->attrs && n->attrs->count) {
        tree_later_node(t, n->attrs, HOW_STATE, path, NULL, 0, again);
        tree_later_text(t, ",\"state\":");
    }
    if (v->parts) tree_parts(t, n, path, again);
}

static void tree_array(tree *t, const ckr_node *n)
{
    const ckr_view *v = n->u.view;
    const bool scalar = n->kind == CKR_NODE_NPSCALAR;
    text_fmt(&t->out, "{\"t\":\"%s\",\"dtype\":", scalar ? "npscalar" : "ndarray");
    tree_string(t, v->type_name ? v->type_name : "", v->type_name ? strlen(v->type_name) : 0);
    if (!scalar) {
        tree_numbers(t, "shape", v->shape, v->n_dims);
        text_fmt(&t->out, ",\"fortran\":%s", v->fortran ? "true" : "false");
        tree_contents(t, n, "sha256_c_order", "hex_c_order");
    } else {
        const bool hash = t->hash;
        t->hash = false;
        tree_contents(t, n, NULL, "hex");
        t->hash = hash;
    }
    text_str(&t->out, "}");
}

static void tree_dict(tree *t, const ckr_node *n, uint32_t path, bool again)
{
    const char *kind = n->kind == CKR_NODE_DICT ? "dict" : n->kind == CKR_NODE_ODICT ? "odict" :
                       n->kind == CKR_NODE_COUNTER ? "counter" : "defaultdict";
    text_fmt(&t->out, "{\"t\":\"%s\"", kind);
    tree_later_text(t, "]}");
    if (n->kind != CKR_NODE_DEFAULTDICT && ckr_node_is_dict(n->attrs) && n->attrs->count) {
        tree_later_list(t, TASK_PAIRS, n->attrs, HOW_VALUE,
                        tree_path_add(t, path, HOW_ATTRS, NULL, 0), again);
        tree_later_text(t, "],\"attrs\":[");
    }
    tree_later_list(t, TASK_PAIRS, n, HOW_VALUE, path, again);
    tree_later_text(t, ",\"v\":[");
    if (n->kind == CKR_NODE_DEFAULTDICT && n->attrs) {
        tree_later_node(t, n->attrs, HOW_SAME, path, NULL, 0, again);
        tree_later_text(t, ",\"factory\":");
    }
}

static void tree_object(tree *t, const ckr_node *n, uint32_t path, bool again)
{
    const ckr_object *o = n->u.object;
    const char *label = !strcmp(o->how, "newobj") ? "class" : "callable";
    text_fmt(&t->out, "{\"t\":\"object\",\"how\":\"%s\"", o->how);
    tree_later_text(t, "}");
    if (o->dictitems) {
        tree_later_text(t, "]");
        tree_later_list(t, TASK_PAIRS, o->dictitems, HOW_VALUE, path, again);
        tree_later_text(t, ",\"dictitems\":[");
    }
    if (o->items) {
        tree_later_text(t, "]");
        tree_later_list(t, TASK_ITEMS, o->items, HOW_INDEX, path, again);
        tree_later_text(t, ",\"items\":[");
    }
    if (o->state) {
        tree_later_node(t, o->state, HOW_STATE, path, NULL, 0, again);
        tree_later_text(t, ",\"state\":");
    }
    if (o->kwargs) {
        tree_later_node(t, o->kwargs, HOW_ARGS, path, NULL, 0, again);
        tree_later_text(t, ",\"kwargs\":");
    }
    if (o->args) {
        tree_later_node(t, o->args, HOW_ARGS, path, NULL, 0, again);
        tree_later_text(t, ",\"args\":");
    }
    if (o->name) {
        text_fmt(&t->out, ",\"%s\":", label);
        tree_string(t, o->name, strlen(o->name));
    } else if (o->callable) {
        tree_later_node(t, o->callable, HOW_SAME, path, NULL, 0, again);
        tree_later_text(t, label[1] == 'l' ? ",\"class\":" : ",\"callable\":");
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

static void tree_sequence(tree *t, const ckr_node *n, uint32_t path, bool again)
{
    const char *kind = n->kind == CKR_NODE_LIST ? "list" : "tuple";
    uint64_t i;
    if (tree_is_ints(n)) {
        text_fmt(&t->out, "{\"t\":\"%s\",\"ints\":[", kind);
        for (i = 0; i < n->count; i++)
            text_fmt(&t->out, i ? ",%lld" : "%lld", (long long)n->u.items[i]->u.i);
        text_str(&t->out, "]}");
        if (again) t->repeated += n->count;
        return;
    }
    text_fmt(&t->out, "{\"t\":\"%s\",\"v\":[", kind);
    tree_later_text(t, "]}");
    tree_later_list(t, TASK_ITEMS, n, HOW_INDEX, path, again);
}

static void tree_set(tree *t, const ckr_node *n, uint32_t path, bool again)
{
    tree_task *k;
    text_fmt(&t->out, "{\"t\":\"%s\",\"sorted\":[", n->kind == CKR_NODE_SET ? "set" : "frozenset");
    t->open_sets++;
    t->out.to = NULL;
    tree_later_text(t, "]}");
    k = tree_task_add(t, TASK_SET_END, NULL);
    if (k) k->n = n->count;
    tree_later_list(t, TASK_ITEMS, n, HOW_SET, path, again);
}

/* What a node costs when it is printed again; 0 for those that are never worth a ref. */
static uint64_t tree_weight(const ckr_node *n)
{
    switch (n->kind) {
    case CKR_NODE_STR:
    case CKR_NODE_BYTES:
    case CKR_NODE_BYTEARRAY: return n->count > 256 ? n->count / 64 : 0;
    case CKR_NODE_BIGINT: return n->count > 64 ? n->count : 0;
    case CKR_NODE_SIZE: return n->count > 32 ? n->count : 0;
    case CKR_NODE_TUPLE: return n->count ? 1 : 0;
    case CKR_NODE_TENSOR: return n->attrs ? 16 : 0;  /* its attributes can lead back to it */
    default: return 0;
    }
}

/* True when the node was printed before and a ref stands for it now; else notes where it is. */
static bool tree_seen_before(tree *t, const ckr_node *n, uint32_t path, bool always, bool *again)
{
    tree_seen *s = tree_slot(t, &t->seen, n);
    if (!s) return true;
    if (s->key) {
        if (always || t->repeated > TREE_REPEAT_BUDGET) {
            tree_ref(t, n, s->value);
            return true;
        }
        t->repeated += tree_weight(n);
        *again = true;
        return false;
    }
    s->key = n;
    s->value = path;
    t->seen.count++;
    return false;
}

static void tree_node(tree *t, const tree_task *k)
{
    const ckr_node *n = (const ckr_node *)k->p;
    bool again = k->again, container;
    uint32_t path = k->path;
    if (again) t->repeated++;
    container = (n->kind >= CKR_NODE_LIST && n->kind <= CKR_NODE_DEFAULTDICT) ||
                n->kind == CKR_NODE_OBJECT || n->kind == CKR_NODE_STORAGE || tree_weight(n);
    if (container) {
        const bool always = n->kind != CKR_NODE_TUPLE && !tree_weight(n);
        if (k->how != HOW_SAME) path = tree_path_add(t, k->path, k->how, k->key, k->i);
        if (tree_seen_before(t, n, path, always, &again)) return;
    }
    switch (n->kind) {
    case CKR_NODE_LIST: case CKR_NODE_TUPLE: tree_sequence(t, n, path, again); break;
    case CKR_NODE_SET: case CKR_NODE_FROZENSET: tree_set(t, n, path, again); break;
    case CKR_NODE_DICT: case CKR_NODE_ODICT: case CKR_NODE_COUNTER: case CKR_NODE_DEFAULTDICT:
        tree_dict(t, n, path, again);
        break;
    case CKR_NODE_OBJECT: tree_object(t, n, path, again); break;
    case CKR_NODE_TENSOR: tree_tensor(t, n, path, again); break;
    case CKR_NODE_NDARRAY: case CKR_NODE_NPSCALAR: tree_array(t, n); break;
    case CKR_NODE_STORAGE:
        tree_note_storage(t, n->u.view);
        text_fmt(&t->out, "{\"t\":\"storage\",\"dtype\":\"%s\",\"size\":%lld}",
                 ckr_dtype_name(n->u.view->dtype), (long long)n->u.view->shape[0]);
        break;
    default: tree_scalar(t, n); break;
    }
}

static void tree_storages(tree *t)
{
    size_t i;
    text_str(&t->out, ",\"storages\":[");
    for (i = 0; i < t->n_storage && !t->failed; i++) {
        const ckr_view *v = t->storage[i];
        uint64_t at;
        ckr_sha256 s;
        uint8_t sha[32];
        text_str(&t->out, i ? ",{\"key\":" : "{\"key\":");
        tree_string(t, v->storage, strlen(v->storage));
        text_fmt(&t->out, ",\"nbytes\":%llu", (unsigned long long)v->data_bytes);
        if (t->hash) {
            ckr_sha256_init(&s);
            for (at = 0; at < v->data_bytes; at += 65536) {
                const size_t n = v->data_bytes - at < 65536 ? (size_t)(v->data_bytes - at) : 65536;
                const uint8_t *p = tree_bytes(t, v, at, n);
                if (!p) { t->failed = true; break; }
                ckr_sha256_update(&s, p, n);
            }
            ckr_sha256_final(&s, sha);
            text_str(&t->out, ",\"sha256\":\"");
            text_hex(&t->out, sha, 32);
            text_str(&t->out, "\"");
        }
        text_str(&t->out, "}");
    }
    text_str(&t->out, "]}\n");
}

/* The whole document; false when memory ran out or a tensor's bytes could not be read. */
bool tree_print(FILE *out, const char *file, const char *format, const ckr_node *root,
                const tree_io *io, bool hash)
{
    tree t;
    bool ok;
    memset(&t, 0, sizeof t);
    t.file = t.out.to = out;
    t.io = io;
    t.hash = hash;
    text_str(&t.out, "{\"file\":");
    tree_string(&t, file, strlen(file));
    text_fmt(&t.out, ",\"format\":\"%s\",\"root\":", format);
    tree_later_node(&t, root, HOW_ROOT, 0, NULL, 0, false);
    while (t.n_tasks && !t.failed && !t.out.failed) {
        const tree_task k = t.tasks[t.n_tasks - 1];
        switch (k.type) {
        case TASK_ITEMS: tree_step_items(&t); continue;
        case TASK_PAIRS: tree_step_pairs(&t); continue;
        default: break;
        }
        t.n_tasks--;
        if (k.type == TASK_TEXT) text_str(&t.out, (const char *)k.p);
        else if (k.type == TASK_NODE) tree_node(&t, &k);
        else tree_set_end(&t, k.n);
    }
    if (!t.failed) tree_storages(&t);
    text_drain(&t.out);
    ok = !t.failed && !t.out.failed;
    text_free(&t.out);
    free(t.tasks);
    free(t.paths);
    free(t.marks);
    free(t.seen.slots);
    free(t.storages.slots);
    free(t.digests.slots);
    free(t.data.slots);
    free((void *)t.storage);
    free(t.digest);
    free(t.window);
    return ok;
}
