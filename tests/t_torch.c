/* Files of torch.save against the tree as the writing process had it (tests/data/torch, *.pt and
   *.pt.json): kinds, numbers, text, order of keys, and every tensor's dtype, shape, strides and
   contents. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "archive.h"


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
    ckr_sha256 h;
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
        ckr_sha256_init(&h);
        ckr_sha256_update(&h, p, bytes);
        ckr_sha256_final(&h, sum);
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

/* TorchScript compresses its code: `check` has no sum for those bytes, and says how many it passed
   over. */
static void script_code(void)
{
    ckr_ckpt *c = NULL;
    ckr_error err;
    ckr_report *r = NULL;
    uint64_t i;
    int n = 0;
    if (!CHECK_OK(ckr_ckpt_open(DATA "/script/torch2.15.0_linear.pt", NULL, &c, &err), &err))
        return;
    if (CHECK_OK(ckr_ckpt_check(c, &r, &err), &err)) {
        CHECK_INT(r->n_notes, 1);
        for (i = 0; i < r->n_notes; i++) n += !strcmp(r->notes[i].code, "CKR_N_MEMBER_DEFLATED");
        CHECK_INT(n, 1);
        CHECK(r->sound);
        ckr_report_free(r);
    }
    ckr_ckpt_close(c);
}

/* Tensors in the short way. */

typedef struct pickle { uint8_t b[16384]; size_t n; uint32_t memo; uint32_t word[5]; } pickle;

static uint32_t dice_state;

static uint32_t dice(uint32_t n)
{
    dice_state = dice_state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)dice_state * n) >> 32);
}

static void put(pickle *p, const char *bytes, size_t n)
{
    if (p->n + n > sizeof p->b) exit(2);
    memcpy(p->b + p->n, bytes, n);
    p->n += n;
}

static void put_op(pickle *p, int op)
{
    const char c = (char)op;
    put(p, &c, 1);
}

static void put_u32(pickle *p, int op, uint32_t v)
{
    uint8_t b[4];
    ckr__store_u32(b, v);
    put_op(p, op);
    put(p, (const char *)b, 4);
}

/* Into the memo as the writers do: 0 short where it fits, 1 long, 2 MEMOIZE; 3 not at all, 4 a slot
   further on. */
static void put_memo(pickle *p, int how)
{
    if (how == 3) return;
    if (how == 4) p->memo += 3;
    if (how == 2) put_op(p, 0x94);
    else if (how == 1 || p->memo > 255) put_u32(p, 'r', p->memo);
    else { put_op(p, 'q'); put_op(p, (int)p->memo); }
    p->memo++;
}

static void put_get(pickle *p, uint32_t slot)
{
    if (slot > 255) put_u32(p, 'j', slot);
    else { put_op(p, 'h'); put_op(p, (int)slot); }
}

static void put_text(pickle *p, const char *s)
{
    put_u32(p, 'X', (uint32_t)strlen(s));
    put(p, s, strlen(s));
}

static void put_int(pickle *p, uint32_t v, bool wide)
{
    if (wide) put_u32(p, 'J', v);
    else if (v < 256) { put_op(p, 'K'); put_op(p, (int)v); }
    else { put_op(p, 'M'); put_op(p, (int)(v & 255)); put_op(p, (int)(v >> 8)); }
}

/* `minus`: with a negative one behind the others. */
static void put_dims(pickle *p, const uint32_t *v, uint32_t n, bool marked, bool minus, int how)
{
    uint32_t i;
    if (n == 0 && !marked && !minus) {
        put_op(p, ')');
        return;
    }
    if (marked || n > 3) put_op(p, '(');
    for (i = 0; i < n; i++) put_int(p, v[i], dice(9) == 0);
    if (minus) put_u32(p, 'J', UINT32_MAX);
    put_op(p, marked || n > 3 ? 't' : 0x84 + (int)n);
    put_memo(p, how);
}

static const char *const globals[5] = { "ctorch._utils\n_rebuild_tensor_v2\n", NULL,
                                        "ctorch\nFloatStorage\n", "ccollections\nOrderedDict\n",
                                        NULL };

static void put_word(pickle *p, int i, int how)
{
    if (p->word[i]) {
        put_get(p, p->word[i]);
        return;
    }
    if (globals[i]) put(p, globals[i], strlen(globals[i]));
    else put_text(p, i == 1 ? "storage" : "cpu");
    put_memo(p, how == 3 ? 0 : how);
    p->word[i] = p->memo - 1;
}

/* What varies in a tensor; all zero but `odd` is what torch.save writes. */
typedef struct spec { int how, odd; uint32_t rank; bool grad; } spec;

static void put_tensor(pickle *p, const spec *s)
{
    static const uint32_t sizes[10] = { 4, 2, 2, 2, 2, 1, 1, 1, 1, 1 };
    static const uint32_t strides[10] = { 1, 4, 8, 16, 32, 1, 1, 1, 1, 1 };
    char key[80];
    const int how = s->how;
    const bool marked = s->odd == 8 || s->odd == 14;
    put_word(p, 0, how);
    put(p, "((", 2);
    put_word(p, 1, how);
    put_word(p, 2, how);
    memset(key, 'k', sizeof key);
    snprintf(key, sizeof key, "7");
    if (s->odd == 1) snprintf(key, sizeof key, "6");           /* another size than it says     */
    if (s->odd == 2) snprintf(key, sizeof key, "none");        /* no such record                */
    if (s->odd == 3) snprintf(key, sizeof key, "\xC3");        /* no UTF-8                      */
    if (s->odd == 4) { memset(key, '7', 70); key[70] = 0; }    /* longer than the short way has */
    put_text(p, key);
    put_memo(p, how);
    if (s->odd == 5) put_op(p, 'N');
    else put_word(p, 4, how);
    put_int(p, 256, s->odd == 6);
    put_op(p, 't');
    put_memo(p, how);
    put_op(p, 'Q');
    put_int(p, s->odd == 7 ? 250 : 5, false);
    put_dims(p, sizes, s->rank, marked, s->odd >= 14, how);
    put_dims(p, strides, s->odd == 9 ? s->rank + 1 : s->rank, marked, s->odd >= 14, how);
    put_op(p, s->odd == 10 ? 'N' : s->grad ? 0x88 : 0x89);
    put_word(p, 3, how);
    put(p, s->odd == 11 ? "(t" : ")", s->odd == 11 ? 2 : 1);
    put_op(p, 'R');
    put_memo(p, how);
    if (s->odd == 12) put_op(p, 'N');
    put_op(p, 't');
    put_memo(p, s->odd == 13 ? 4 : how);
    put_op(p, 'R');
    put_memo(p, how);
}

/* Opens it every way; how many nodes the short way saved. */
static uint32_t ways(pickle *p, const char *what, unsigned long n)
{
    static memio m;
    ckr_env e = CKR_ZERO;
    uint32_t saved = 0;
    const char *differs;
    archive a;
    char tail[300];
    memset(tail, 't', sizeof tail);
    tail[sizeof tail - 1] = 0;
    put_text(p, tail);         /* the short way wants room behind it                            */
    put_op(p, 'N');
    put_op(p, 'u');
    put_op(p, '.');
    a = archive_of(p->b, p->n);
    memset(&m, 0, sizeof m);
    memio_put(&m, "/f.pt", a.data, a.n);
    e.io = memio_io(&m);
    differs = archive_ways(&e, "/f.pt", 0, &saved);
    t_check(!differs, __FILE__, __LINE__, "%s %lu: %s", what, n, differs ? differs : "");
    memio_free(&m);
    free(a.data);
    return saved;
}

static void begin(pickle *p)
{
    memset(p, 0, sizeof *p);
    put(p, "\x80\2}", 3);
    put_memo(p, 0);
    put_op(p, '(');
}

/* The first tensor brings the words; the second one is short, and its tuples, its storage and the
   dictionary for its hooks are not made. */
static void short_way(void)
{
    int how, odd;
    uint32_t rank;
    pickle p;
    for (how = 0; how < 3; how++)
        for (rank = 0; rank <= 8; rank++) {
            spec s = { 0, 0, 0, false };
            s.how = how;
            s.rank = rank;
            s.grad = rank % 2;
            begin(&p);
            put_text(&p, "a");
            put_tensor(&p, &s);
            put_text(&p, "b");
            put_tensor(&p, &s);
            CHECK(ways(&p, "torch's form", rank) >= 5);
        }
    for (odd = 1; odd <= 15; odd++) {
        spec s = { 0, 0, 2, false };
        begin(&p);
        put_text(&p, "a");
        put_tensor(&p, &s);
        s.odd = odd;
        put_text(&p, "b");
        put_tensor(&p, &s);
        ways(&p, "odd", (unsigned long)odd);
    }
}

/* Random ones, each with a look at any slot of the memo. */
static void short_way_random(void)
{
    unsigned long i;
    pickle p;
    dice_state = 7;
    for (i = 0; i < 3000; i++) {
        uint32_t k, n = 1 + dice(6);
        begin(&p);
        for (k = 0; k < n; k++) {
            spec s;
            s.how = dice(12) ? (int)dice(2) : (int)dice(5);
            s.odd = dice(6) ? 0 : (int)dice(16);
            s.rank = dice(10);
            s.grad = dice(2);
            put_text(&p, k % 2 ? "x" : "y");
            put_tensor(&p, &s);
        }
        if (dice(3) == 0) {
            put_text(&p, "again");
            put_get(&p, dice(p.memo));
        }
        ways(&p, "random", i);
    }
}

/* An embedded stream before a value that is fetched after it was dropped: the second pass counts
   the stream anew. */
static void embedded_twice(void)
{
    ckr_ckpt *c = NULL;
    ckr_error err;
    if (CHECK_OK(ckr_tree_open("tests/fuzz/corpus/torch/embedded_and_stale", NULL, &c, &err), &err))
        CHECK(ckr_ckpt_root(c)->count == 3);
    ckr_ckpt_close(c);
}

#define CORPUS "tests/fuzz/corpus/torch/"

/* A meta tensor has no storage, so a legacy stream's Parameter around one waits for none, whether
   or not the stream has storages. */
static void meta_parameter(void)
{
    static const char *const name[] = { CORPUS "meta_parameter_legacy",
                                        CORPUS "meta_and_storage_legacy" };
    size_t i;
    for (i = 0; i < 2; i++) {
        ckr_ckpt *c = NULL;
        ckr_error err;
        const ckr_node *m;
        if (!CHECK_OK(ckr_tree_open(name[i], NULL, &c, &err), &err)) continue;
        m = ckr_node_get(ckr_ckpt_root(c), "m");
        CHECK(m && m->kind == CKR_NODE_TENSOR && m->u.view->meta && m->u.view->parameter);
        CHECK(m && m->u.view->data_offset == 0 && !m->u.view->storage && !m->u.view->bytes);
        ckr_ckpt_close(c);
    }
}

/* Two or four elements in a byte: rows of five in quint4x2 have three bytes each in the storage.
   The zero points are floats, but torch writes the scheme's name as if they were integers. */
static void packed(void)
{
    static const struct { const char *name; int64_t cols; uint64_t bytes; } want[] = {
        { CORPUS "quint4x2.pt", 4, 6 }, { CORPUS "quint4x2_odd.pt", 5, 9 },
        { CORPUS "quint2x4.pt", 4, 3 }, { CORPUS "quint4x2_legacy.pt", 4, 6 }
    };
    size_t i;
    for (i = 0; i < sizeof want / sizeof *want; i++) {
        ckr_ckpt *c = NULL;
        ckr_error err;
        const ckr_node *x;
        if (!CHECK_OK(ckr_tree_open(want[i].name, NULL, &c, &err), &err)) continue;
        x = ckr_node_get(ckr_ckpt_root(c), "x");
        if (CHECK(x && x->kind == CKR_NODE_TENSOR && x->u.view->n_dims == 2)) {
            CHECK(x->u.view->shape[0] == 3 && x->u.view->shape[1] == want[i].cols);
            CHECK(x->u.view->data_bytes == want[i].bytes);
            CHECK_STR(x->u.view->layout, "quantized");
            CHECK_STR(ckr_node_str(ckr_node_get(x->u.view->parts, "qscheme")),
                      "per_channel_affine_float_qparams");
        }
        ckr_ckpt_close(c);
    }
}

/* np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1) as numpy 2.4 writes it at protocol 5. */
static void numpy_keep_order(void)
{
    ckr_ckpt *c = NULL;
    ckr_error err;
    const ckr_node *a;
    int64_t v[24];
    int i;
    if (!CHECK_OK(ckr_tree_open(CORPUS "numpy_keep_order.pt", NULL, &c, &err), &err)) return;
    a = ckr_node_get(ckr_ckpt_root(c), "a");
    if (CHECK(a && a->kind == CKR_NODE_NDARRAY && a->u.view->n_dims == 3)) {
        const int64_t *shape = a->u.view->shape;
        CHECK(shape[0] == 4 && shape[1] == 2 && shape[2] == 3 && !a->u.view->fortran);
        if (!CHECK_OK(ckr_view_read(c, a->u.view, 0, 24, v, &err), &err)) memset(v, 0, sizeof v);
        t_little(v, sizeof v, 8);
        for (i = 0; i < 24; i++) CHECK(v[i] == i / 3 % 2 * 12 + i % 3 * 4 + i / 6);
    }
    ckr_ckpt_close(c);
}

/* Scalars without a dtype of torch's; two of them hold no bytes. */
static void numpy_scalars(void)
{
    static const struct { const char *key, *type; uint64_t bytes; } want[] = {
        { "s", "<U0", 0 }, { "b", "|S0", 0 }, { "u", "<U2", 8 }, { "l", "<f16", 16 },
        { "d", "<M8[D]", 8 }
    };
    ckr_ckpt *c = NULL;
    ckr_error err;
    size_t i;
    if (!CHECK_OK(ckr_tree_open(CORPUS "numpy_scalars.pt", NULL, &c, &err), &err)) return;
    for (i = 0; i < sizeof want / sizeof *want; i++) {
        const ckr_node *n = ckr_node_get(ckr_ckpt_root(c), want[i].key);
        if (!CHECK(n && n->kind == CKR_NODE_NPSCALAR)) continue;
        CHECK_STR(n->u.view->type_name, want[i].type);
        CHECK(n->u.view->data_bytes == want[i].bytes && n->u.view->n_dims == 0);
    }
    ckr_ckpt_close(c);
}

/* Protocol 2 has collections.UserDict under its name in Python 2. */
static void python2_names(void)
{
    static const char *const name[] = { CORPUS "userdict.pt", CORPUS "userdict_legacy" };
    size_t i;
    for (i = 0; i < 2; i++) {
        ckr_ckpt *c = NULL;
        ckr_error err;
        const ckr_node *u;
        if (!CHECK_OK(ckr_tree_open(name[i], NULL, &c, &err), &err)) continue;
        u = ckr_node_get(ckr_ckpt_root(c), "u");
        if (CHECK(u && u->kind == CKR_NODE_OBJECT))
            CHECK_STR(u->u.object->name, "collections.UserDict");
        ckr_ckpt_close(c);
    }
}

/* Groups are told apart, and values compared, by their text: JSON's where it has one, and for what
   JSON has no value for, another text for another value, alone and within a dict. */
static void texts(void)
{
    static const struct {
        ckr_node_kind kind;
        const char *bytes;
        double im;
        const char *text;
    } is[] = {
        { CKR_NODE_COMPLEX, "", 1, "{\"k\": (0.5+1j)}" },
        { CKR_NODE_COMPLEX, "", -2, "{\"k\": (0.5-2j)}" },
        { CKR_NODE_BYTES, "ab", 0, "{\"k\": bytes(6162)}" },
        { CKR_NODE_BYTEARRAY, "ac", 0, "{\"k\": bytes(6163)}" },
        { CKR_NODE_DTYPE, "torch.float32", 0, "{\"k\": torch.float32}" },
        { CKR_NODE_GLOBAL, "torch.cos", 0, "{\"k\": torch.cos}" },
        { CKR_NODE_FROZENSET, "", 7, "{\"k\": set[7]}" },
        { CKR_NODE_SET, "", 8, "{\"k\": set[8]}" }
    };
    double parts[2] = { 0.5, 0 };
    ckr_node *two[4];
    ckr__ctx c;
    ckr_error err;
    size_t i;
    ckr__ctx_init(&c, NULL, NULL, &err);
    for (i = 0; i < sizeof is / sizeof *is; i++) {
        ckr_node *n = ckr__make_text(&c, is[i].kind, is[i].bytes, strlen(is[i].bytes));
        ckr_node *d = ckr__make(&c, CKR_NODE_DICT), *one = ckr__make_int(&c, (int64_t)is[i].im);
        if (!n || !d || !one) exit(2);
        parts[1] = is[i].im;
        if (n->kind == CKR_NODE_COMPLEX) n->u.complex_ = parts;
        if (n->kind == CKR_NODE_SET || n->kind == CKR_NODE_FROZENSET) {
            n->count = 1;
            n->u.items = &one;
        }
        CHECK(ckr__node_pair(&c, d, ckr__make_str(&c, "k"), n));
        CHECK_STR(ckr__node_text_of(&c, d), is[i].text);
    }
    two[0] = two[3] = ckr__make_str(&c, "a");          /* sets have the order of a process */
    two[1] = two[2] = ckr__make_str(&c, "b");
    for (i = 0; i < 2; i++) {
        ckr_node *n = ckr__make(&c, CKR_NODE_SET);
        if (!n) exit(2);
        n->count = 2;
        n->u.items = two + 2 * i;
        CHECK_STR(ckr__node_text_of(&c, n), "set[\"a\", \"b\"]");
    }
    for (i = 0; i < 40; i++) {                         /* 2^40 times "a", in 41 nodes */
        ckr_node *n = ckr__make(&c, CKR_NODE_LIST);
        if (!n || !ckr__node_push(&c, n, two[0]) || !ckr__node_push(&c, n, two[0])) exit(2);
        two[0] = n;
    }
    CHECK(!ckr__node_text_of(&c, two[0]));
    CHECK_INT(err.item, CKR_ITEM_LIMIT);
    ckr__ctx_free(&c);
}

/* What a whole torch file cannot be written with is told by its file and key. */
static void unwritable(void)
{
    static const struct { const char *name, *where, *text; } want[] = {
        { CORPUS "quint4x2.pt", "/x", "a tensor that is quantized; " },
        { CORPUS "sparse_in_dict.pt", "/d/s", "a tensor that is sparse_coo; " },
        { DATA "/torch2.15.0_conj_neg.pt", "/conj", "a tensor that is a conjugate view; " }
    };
    size_t i;
    for (i = 0; i < sizeof want / sizeof *want; i++) {
        ckr_target t = CKR_ZERO;
        ckr_ckpt *c = NULL;
        ckr_plan *p = NULL;
        ckr_error err;
        t.dialect = "torch";
        t.mode = CKR_MODE_CONTINUE;
        t.topology.zero = -1;
        if (!CHECK_OK(ckr_ckpt_open(want[i].name, NULL, &c, &err), &err)) continue;
        CHECK(ckr_plan_create(c, &t, 0, &p, &err) == CKR_E_UNSUPPORTED);
        CHECK(err.item == CKR_ITEM_COPY_TENSOR);
        CHECK_STR(err.file, want[i].name);
        CHECK_STR(err.where, want[i].where);
        CHECK(!strncmp(err.text, want[i].text, strlen(want[i].text)));
        CHECK(err.remedy[0]);
        ckr_plan_free(p);
        ckr_ckpt_close(c);
    }
}

/* The end record is found behind a comment of any length, those too that end a short look at the
   file's end, or that cut what stands before it. One that is longer than it says is none. */
static void comments(void)
{
    static const size_t lengths[] = { 0, 1, 980, 981, 982, 1001, 1002, 1003, 1024, 65534, 65535 };
    static const uint8_t text[65536] = { 0 }, none[] = "\x80\2N.";
    static memio m;
    size_t i, odd;
    for (i = 0; i < 2 * sizeof lengths / sizeof *lengths; i++) {
        ckr_open_desc desc = CKR_ZERO;
        ckr_env e = CKR_ZERO;
        ckr_ckpt *k = NULL;
        ckr_error err;
        uint32_t file = 0;
        ckr__zip z;
        archive a = archive_of(none, sizeof none - 1);
        ckr__store_u16(a.data + a.n - 2, (uint16_t)lengths[i / 2]);
        odd = i % 2;
        archive_put(&a, text, lengths[i / 2] + odd);
        memset(&m, 0, sizeof m);
        memio_put(&m, "/f.pt", a.data, a.n);
        e.io = memio_io(&m);
        desc.env = &e;
        CHECK_INT(ckr_ckpt_create(&desc, &k, &err), CKR_OK);
        k->ctx.err = &err;
        CHECK_INT(ckr__file_open(&k->ctx, "/f.pt", &file), CKR_OK);
        ckr__zip_open(&k->ctx, file, 0, a.n, &z);
        CHECK_INT(err.item, odd ? CKR_ITEM_ZIP_END : 0);
        if (!odd) CHECK_INT(z.n, 10);
        ckr_ckpt_close(k);
        memio_free(&m);
        free(a.data);
    }
}

/* ---- files of the same form ---- */

enum { ALIKE_NODES = 14 };

/* One of a few values of a kind; what has room for others goes into `inside`. */
static ckr_node *alike_node(ckr__ctx *c, ckr__out_file *f, int64_t kind, t_rng r,
                            ckr_node **inside, int *n)
{
    static const int64_t shapes[][2] = { { 1, 70000 }, { 70000, 1 }, { 2, 300 }, { 300, 2 } };
    static const char *const texts[] = { "exp_avg", "step", "" };
    static const ckr_node_kind more[] = { CKR_NODE_DICT, CKR_NODE_ODICT, CKR_NODE_LIST,
                                          CKR_NODE_TUPLE };
    const char *text = texts[t_range(&r, 0, 2)];
    ckr_node *x = NULL;
    switch (kind) {
    case 0:  return ckr__make(c, CKR_NODE_NONE);
    case 1:  return ckr__make_bool(c, t_range(&r, 0, 1) != 0);
    case 2:  return ckr__make_float(c, (double)t_range(&r, 0, 1));
    case 3:  return ckr__make_str(c, text);
    case 4:  return ckr__make_int(c, (int64_t)1 << (9 * t_range(&r, 0, 4)));
    case 5:
    case 6:  x = ckr__entry_new(c, f, "w", t_range(&r, 0, 5) ? CKR_DTYPE_F32 : CKR_DTYPE_I32, 2,
                                shapes[t_range(&r, 0, 3)]);
             if (x) x->u.entry->parameter = t_range(&r, 0, 5) == 0;
             return x;
    case 7:
    case 8:  x = ckr__make_str(c, text);
             if (x) x->kind = kind == 7 ? CKR_NODE_BYTES : CKR_NODE_BYTEARRAY;
             return x;
    case 9:  x = ckr__make(c, CKR_NODE_COMPLEX);
             if (x) x->u.complex_ = CKR__NEW_N(c, double, 2);
             return x;
    default: return inside[(*n)++] = ckr__make(c, more[kind - 10]);
    }
}

/* A tree for the file, from the same numbers the same one but for its node number `odd`, which has
   another value; with `again` some are equal to an earlier one, and that one is this itself. */
static void alike_tree(ckr__ctx *c, ckr__out_file *f, uint64_t seed, int odd, bool again)
{
    ckr_node *inside[ALIKE_NODES + 1], *all[ALIKE_NODES];
    int64_t kind[ALIKE_NODES];
    uint64_t value[ALIKE_NODES];
    int n = 1, i;
    t_rng r = { seed };
    memset(f, 0, sizeof *f);
    f->path = odd == ALIKE_NODES ? "of/another.pt" : "of/one.pt";
    f->format = CKR_FORMAT_TORCH_ZIP;
    f->root = inside[0] = ckr__make(c, CKR_NODE_LIST);
    for (i = 0; i < ALIKE_NODES; i++) {
        ckr_node *to = inside[t_range(&r, 0, n - 1)];
        const int was = again && i && t_range(&r, 0, 1) ? (int)t_range(&r, 0, i - 1) : -1;
        kind[i] = was < 0 ? t_range(&r, 0, 13) : kind[was];
        value[i] = was < 0 ? seed + (uint64_t)i + 1000 * (uint64_t)(i == odd) : value[was];
        if (was < 0 || i != odd) {
            const t_rng of = { value[i] };
            all[i] = alike_node(c, f, kind[i], of, inside, &n);
        } else {
            all[i] = all[was];
            if (kind[i] > 9) inside[n++] = all[was];
        }
        if (!ckr_node_is_dict(to)) ckr__node_push(c, to, all[i]);
        else ckr__node_pair(c, to, ckr__make_int(c, i), all[i]);
    }
}

/* Files that are said to be alike have one size; those that are, and have nothing twice, are said
   to be. */
static void files_alike(void)
{
    int n_alike = 0, n_other = 0, n_refused = 0;
    for (uint64_t seed = 0; seed < 30000; seed++) {
        ckr__ctx c;
        ckr_error err;
        ckr__out_file x, y;
        ckr__image *a = NULL, *b = NULL;
        const bool again = seed % 2 == 1;
        const int odd = (int)(seed / 2 % (ALIKE_NODES + 4));
        if (!CHECK_OK(ckr__ctx_init(&c, NULL, NULL, &err), &err)) return;
        alike_tree(&c, &x, 1000 * seed, -1, again);
        alike_tree(&c, &y, 1000 * seed, odd, again);
        if (ckr__image_make(&c, &x, &a) == CKR_OK && ckr__image_make(&c, &y, &b) == CKR_OK) {
            ckr__counted last = CKR_ZERO;
            last.file = x;
            last.pickle = a->records[0].size;
            const bool alike = ckr__counted_alike(&c, &y, &last);
            if (!again && odd > ALIKE_NODES) CHECK(alike);
            if (alike) CHECK_INT(a->size, b->size);
            n_alike += alike;
            n_other += a->size != b->size;
            n_refused += !alike && a->size == b->size;
        }
        ckr__ctx_free(&c);
    }
    CHECK(n_alike > 10000 && n_other > 4000 && n_refused > 4000);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    RUN(torch_files);
    RUN(script_code);
    RUN(short_way);
    RUN(short_way_random);
    RUN(embedded_twice);
    RUN(meta_parameter);
    RUN(packed);
    RUN(comments);
    RUN(numpy_keep_order);
    RUN(numpy_scalars);
    RUN(python2_names);
    RUN(texts);
    RUN(unwritable);
    RUN(files_alike);
    return t_end();
}
