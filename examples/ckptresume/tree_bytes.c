/* The logical bytes of a tree's tensors and arrays: their digests, and those of few bytes as they
   are. A small file cannot make it hash without end, and what is printed again is not hashed
   again. */

#include "tool.h"

#define TREE_EXPAND_BUDGET ((uint64_t)1 << 30)   /* hashed of tensors beyond their storage */
#define TREE_HASH_BUDGET ((uint64_t)1 << 26)     /* hashed beyond 16 times what is stored  */
#define TREE_WINDOW ((size_t)1 << 20)
#define TREE_ITEM_MAX 4096     /* bytes of one element, of NumPy's strings             */

/* >>memory -------------------------------------------------------------------- */

/* Room for `need` of `size` bytes each. */
bool array_grow(void **array, size_t *cap, size_t need, size_t size)
{
    size_t n = *cap ? *cap : 64;
    void *p;
    if (need <= *cap) return true;
    while (n < need) n *= 2;
    p = n > SIZE_MAX / 2 / size ? NULL : realloc(*array, n * size);
    if (!p) return false;
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
tree_slot *tree_find(tree_map *m, const void *key)
{
    size_t i, k;
    if (m->count * 2 >= m->cap) {
        tree_map big;
        big.cap = m->cap ? m->cap * 2 : 256;
        big.count = m->count;
        big.slots = (tree_slot *)calloc(big.cap, sizeof *big.slots);
        if (!big.slots) return NULL;
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

/* Takes a slot that was found empty. */
void tree_take(tree_map *m, tree_slot *s, const void *key, uint64_t value)
{
    s->key = key;
    s->value = value;
    m->count++;
}

/* >>bytes --------------------------------------------------------------------- */

/* n bytes (at most 64 KiB) at `offset` of a view's storage; NULL when they cannot be read. */
static const uint8_t *storage_bytes(tree_bytes *t, const ckr_view *v, uint64_t offset, size_t n)
{
    uint64_t left;
    if (offset > v->data_bytes || n > v->data_bytes - offset) return NULL;
    if (v->bytes) return v->bytes + offset;
    if (t->window_n && t->window_file == v->file && v->data_offset + offset >= t->window_at &&
        v->data_offset + offset + n <= t->window_at + t->window_n)
        return t->window + (v->data_offset + offset - t->window_at);
    if (!t->window) t->window = (uint8_t *)malloc(TREE_WINDOW);
    left = v->data_bytes - offset;
    t->window_at = v->data_offset + offset;
    t->window_n = left < TREE_WINDOW ? (size_t)left : TREE_WINDOW;
    t->window_file = v->file;
    if (t->window && ckr_ckpt_bytes(t->ckpt, v->file, t->window_at, t->window, t->window_n,
                                    t->err) == CKR_OK)
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
static bool tree_row(tree_bytes *t, tree_block *b, const ckr_view *v, size_t item, uint64_t at,
                     uint64_t count, uint64_t stride, bool swap)
{
    while (count) {
        const size_t room = (sizeof b->data - b->n) / item;
        size_t k = count < room ? (size_t)count : room, i;
        const uint8_t *s;
        if (k == 0) { tree_block_end(b, v, item, swap); continue; }
        if (stride == 1) {
            s = storage_bytes(t, v, at * item, k * item);
            if (!s) return false;
            memcpy(b->data + b->n, s, k * item);
            at += k;
        } else {
            for (i = 0; i < k; i++, at += stride) {
                s = storage_bytes(t, v, at * item, item);
                if (!s) return false;
                memcpy(b->data + b->n + i * item, s, item);
            }
        }
        b->n += k * item;
        count -= k;
    }
    return true;
}

static bool tree_gather(tree_bytes *t, tree_block *b, const ckr_view *v, size_t item,
                        uint64_t numel, bool swap)
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
static void note_data(tree_bytes *t, const ckr_view *v)
{
    const void *key = v->storage ? (const void *)v->storage : (const void *)v->bytes;
    tree_slot *s = key ? tree_find(&t->data, key) : NULL;
    if (key && (!s || s->key)) return;
    t->stored += v->data_bytes;
    if (s) tree_take(&t->data, s, key, 0);
}

/* False when a file makes us hash far more than it stores: a tensor beyond its storage (stride 0),
   or the same bytes under many tensors. */
static bool may_hash(const tree_bytes *t, const ckr_view *v, uint64_t bytes)
{
    if (bytes > v->data_bytes)
        return bytes <= TREE_EXPAND_BUDGET && t->expanded <= TREE_EXPAND_BUDGET - bytes;
    return bytes <= TREE_HEX_MAX || t->hashed <= TREE_HASH_BUDGET + 16 * t->stored;
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
static bool tree_block_fill(tree_bytes *t, tree_block *b, const ckr_view *v, uint64_t item,
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

/* What is not known yet; counts what it costs. */
static void content_new(tree_bytes *t, const ckr_node *node, tree_slot *slot, uint64_t item,
                        uint64_t numel, tree_content *out)
{
    const ckr_view *v = node->u.view;
    const bool numpy = node->kind == CKR_NODE_NDARRAY || node->kind == CKR_NODE_NPSCALAR;
    const bool swap = v->big_endian && !(numpy && v->type_name && v->type_name[0] == '>');
    const uint64_t bytes = numel * item;
    void *array = t->digest;
    tree_block *b = (tree_block *)malloc(sizeof *b);
    if (bytes > v->data_bytes) t->expanded += bytes;
    else t->hashed += bytes;
    t->failed = t->failed || !b;
    if (b && item <= TREE_ITEM_MAX) {
        if (!tree_block_fill(t, b, v, item, numel, swap, out->sha.b)) t->failed = true;
        out->has_sha = true;
        out->has_head = bytes <= TREE_HEX_MAX;
        out->n_head = b->n_head;
        memcpy(out->head, b->head, b->n_head);
        if (!out->has_head &&
            array_grow(&array, &t->cap_digest, t->digests.count + 1, sizeof *t->digest)) {
            t->digest = (tree_digest *)array;
            t->digest[t->digests.count] = out->sha;
            tree_take(&t->digests, slot, node, t->digests.count);
        }
    }
    free(b);
}

/* With `hash` the digest of all; short contents as they are. */
void tree_content_of(tree_bytes *t, const ckr_node *node, bool hash, tree_content *out)
{
    const ckr_view *v = node->u.view;
    const bool packed = tree_is_packed(v);
    uint64_t item = packed ? 1 : tree_item_size(v), numel = 1;
    tree_slot *slot;
    uint32_t d;
    memset(out, 0, sizeof *out);
    for (d = 0; d < v->n_dims; d++) numel *= (uint64_t)v->shape[d];
    if (item == 0) {                       /* an empty text */
        item = 1;
        numel = 0;
    }
    if (packed) numel = tree_packed_bytes(v, numel);
    if (!hash && numel * item > TREE_HEX_MAX) return;
    note_data(t, v);
    out->refused = !may_hash(t, v, numel * item);
    slot = out->refused ? NULL : tree_find(&t->digests, node);
    if (!slot) t->failed = t->failed || !out->refused;
    if (!slot) return;
    if (slot->key) out->sha = t->digest[slot->value];
    else content_new(t, node, slot, item, numel, out);
    out->has_sha = hash && (slot->key || out->has_sha);
}

/* The digest of a whole storage. */
void tree_storage_sha(tree_bytes *t, const ckr_view *v, tree_digest *sha)
{
    ckr_sha256 s;
    uint64_t at;
    ckr_sha256_init(&s);
    for (at = 0; at < v->data_bytes; at += 65536) {
        const size_t n = v->data_bytes - at < 65536 ? (size_t)(v->data_bytes - at) : 65536;
        const uint8_t *p = storage_bytes(t, v, at, n);
        if (!p) {
            t->failed = true;
            break;
        }
        ckr_sha256_update(&s, p, n);
    }
    ckr_sha256_final(&s, sha->b);
}

void tree_bytes_free(tree_bytes *t)
{
    free(t->data.slots);
    free(t->digests.slots);
    free(t->digest);
    free(t->window);
}
