/* Files of torch.save against the tree as the writing process had it (tests/data/torch, *.pt and
   *.pt.json): kinds, numbers, text, order of keys, and every tensor's dtype, shape, strides and
   contents. */
#include "core.h"
#include "t.h"

#include <dirent.h>

#define DATA "tests/data/torch"

static const char *file;
static unsigned long n_tensors, n_values;

static const char *text(const ckr_node *json, const char *key)
{
    const char *s = ckr_node_str(ckr_node_get(json, key));
    return s ? s : "";
}

static void wrong(const char *where, const char *what, const char *want)
{
    t_check(false, __FILE__, __LINE__, "%s: %s: %s, the truth is %s", file, where, what, want);
}

static const struct { const char *t; ckr_node_kind kind;
} kinds[] = { { "none", CKR_NODE_NONE },
              { "bool", CKR_NODE_BOOL },
              { "float", CKR_NODE_FLOAT },
              { "complex", CKR_NODE_COMPLEX },
              { "str", CKR_NODE_STR },
              { "bytes", CKR_NODE_BYTES },
              { "bytearray", CKR_NODE_BYTEARRAY },
              { "list", CKR_NODE_LIST },
              { "tuple", CKR_NODE_TUPLE },
              { "set", CKR_NODE_SET },
              { "frozenset", CKR_NODE_FROZENSET },
              { "dict", CKR_NODE_DICT },
              { "odict", CKR_NODE_ODICT },
              { "counter", CKR_NODE_COUNTER },
              { "defaultdict", CKR_NODE_DEFAULTDICT },
              { "tensor", CKR_NODE_TENSOR },
              { "size", CKR_NODE_SIZE },
              { "object", CKR_NODE_OBJECT } };

static bool same_kind(const ckr_node *n, const char *t)
{
    size_t i;
    if (!strcmp(t, "int")) return n->kind == CKR_NODE_INT || n->kind == CKR_NODE_BIGINT;
    for (i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].t, t)) return n->kind == (uint8_t)kinds[i].kind;
    return true;               /* device, dtype, ndarray and the like are not compared here */
}

static void hex_of(const uint8_t *p, size_t n, char *out)
{
    size_t i;
    for (i = 0; i < n; i++) snprintf(out + 2 * i, 3, "%02x", p[i]);
}

static bool same_list(const ckr_node *json, uint32_t n, const int64_t *v)
{
    int64_t x;
    uint32_t i;
    if (!json || json->count != n) return false;
    for (i = 0; i < n; i++)
        if (!ckr_node_i64(ckr_node_at(json, i), &x) || x != v[i]) return false;
    return true;
}

static void same_tensor(const ckr_ckpt *c, const char *where, const ckr_view *v,
                        const ckr_node *json)
{
    int64_t numel = 0, offset = -1;
    uint8_t *p, sum[32];
    char hex[65];
    ckr__sha256 h;
    ckr_error e;
    size_t bytes;
    if (v->layout || ckr_node_get(json, "layout") || v->meta || v->conj || v->neg) return;
    if (strcmp(ckr_dtype_name(v->dtype), text(json, "dtype")))
        wrong(where, ckr_dtype_name(v->dtype), text(json, "dtype"));
    if (!same_list(ckr_node_get(json, "shape"), v->n_dims, v->shape))
        wrong(where, "shape", "another");
    if (!same_list(ckr_node_get(json, "stride"), v->n_dims, v->stride))
        wrong(where, "stride", "another");
    ckr_node_i64(ckr_node_get(json, "offset"), &offset);
    if (offset != v->offset) wrong(where, "offset", "another");
    if (!ckr__numel(v->n_dims, v->shape, &numel)) return;
    bytes = (size_t)numel * ckr_dtype_size(v->dtype);
    p = (uint8_t *)malloc(bytes ? bytes : 1);
    if (!p) exit(2);
    if (CHECK_OK(ckr_view_read(c, v, 0, numel, p, &e), &e)) {
        ckr__sha256_init(&h);
        ckr__sha256_update(&h, p, bytes);
        ckr__sha256_final(&h, sum);
        hex_of(sum, 32, hex);
        if (strcmp(hex, text(json, "sha256"))) wrong(where, hex, text(json, "sha256"));
        else n_tensors++;
    }
    free(p);
}

static void same_number(const char *where, const ckr_node *n, const ckr_node *json)
{
    const ckr_node *v = ckr_node_get(json, "v");
    char have[40];
    uint8_t le[8];
    uint64_t bits;
    int64_t b = -1;
    if (n->kind == CKR_NODE_BOOL) {
        if (!ckr_node_i64(v, &b) || b != n->u.b) wrong(where, "bool", "the other");
    } else if (n->kind == CKR_NODE_INT) {
        snprintf(have, sizeof have, "%lld", (long long)n->u.i);
        if (strcmp(have, text(json, "v"))) wrong(where, have, text(json, "v"));
    } else if (n->kind == CKR_NODE_FLOAT) {
        memcpy(&bits, &n->u.f, 8);
        ckr__store_u64(le, bits);
        hex_of(le, 8, have);
        if (strcmp(have, text(json, "hex"))) wrong(where, have, text(json, "hex"));
    } else if (n->kind == CKR_NODE_STR && !ckr_node_get(json, "utf8")) {
        if (strcmp(n->u.str, text(json, "v"))) wrong(where, n->u.str, text(json, "v"));
    }
    n_values++;
}

/* The files of tests/data are shallow: recursion is fine here. */
static void same_tree(const ckr_ckpt *c, const char *where, const ckr_node *n, const ckr_node *json)
{
    const char *t = text(json, "t");
    const ckr_node *v = ckr_node_get(json, "v");
    char sub[300];
    uint64_t i;
    if (!strcmp(t, "ref")) return;
    if (!n || !same_kind(n, t)) {
        wrong(where, "another kind", t);
        return;
    }
    if (n->kind == CKR_NODE_TENSOR) same_tensor(c, where, n->u.view, json);
    else if (ckr_node_is_dict(n)) {
        if (v->count != n->count) wrong(where, "number of keys", "another");
        for (i = 0; i < n->count && i < v->count; i++) {
            const ckr_node *pair = ckr_node_at(v, i), *key = n->u.items[2 * i];
            snprintf(sub, sizeof sub, "%.200s/%.60s", where,
                     key->kind == CKR_NODE_STR ? key->u.str : "?");
            same_tree(c, sub, key, ckr_node_at(pair, 0));
            same_tree(c, sub, n->u.items[2 * i + 1], ckr_node_at(pair, 1));
        }
    } else if (ckr_node_is_list(n)) {
        const ckr_node *ints = ckr_node_get(json, "ints");
        if ((v ? v : ints) == NULL || (v ? v : ints)->count != n->count)
            wrong(where, "length", "another");
        for (i = 0; v && i < n->count && i < v->count; i++) {
            snprintf(sub, sizeof sub, "%.200s/%llu", where, (unsigned long long)i);
            same_tree(c, sub, ckr_node_at(n, i), ckr_node_at(v, i));
        }
    } else {
        same_number(where, n, json);
    }
}

static void torch_files(void)
{
    DIR *d = opendir(DATA);
    struct dirent *e;
    int n = 0;
    if (!CHECK(d != NULL)) return;
    while ((e = readdir(d)) != NULL) {
        char path[600], json[600];
        ckr_ckpt *a = NULL, *b = NULL;
        ckr_error err;
        const ckr_node *root;
        unsigned long failed = t_now.failed;
        size_t len = strlen(e->d_name);
        if (len < 4 || strcmp(e->d_name + len - 3, ".pt")) continue;
        snprintf(path, sizeof path, "%s/%s", DATA, e->d_name);
        snprintf(json, sizeof json, "%s/%s.json", DATA, e->d_name);
        file = e->d_name;
        n++;
        if (!CHECK_OK(ckr_tree_open(path, NULL, &a, &err), &err)) continue;
        if (CHECK_OK(ckr_tree_open(json, NULL, &b, &err), &err)) {
            root = ckr_node_get(ckr_ckpt_root(b), "root_as_loaded_by_torch");
            same_tree(a, "$", ckr_ckpt_root(a),
                      root ? root : ckr_node_get(ckr_ckpt_root(b), "root"));
        }
        CHECK(failed == t_now.failed);
        ckr_ckpt_close(a);
        ckr_ckpt_close(b);
    }
    closedir(d);
    CHECK(n >= 10);
    CHECK(n_tensors >= 50);
    t_now.passed += n_tensors + n_values;
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    RUN(torch_files);
    return t_end();
}
