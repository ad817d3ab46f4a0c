/* Arithmetic, errors, memory, maps, sorting, nodes, pointers: the floor of everything else. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"

static ckr__ctx t_ctx;
static ckr_error t_err;

static void ctx_open(void)
{
    CHECK(ckr__ctx_init(&t_ctx, NULL, NULL, &t_err) == CKR_OK);
}

static void ctx_close(void)
{
    ckr__ctx_free(&t_ctx);
}

/* >>arith */

static void arith_checked(void)
{
    static const uint64_t v[] = { 0,
                                  1,
                                  2,
                                  3,
                                  7,
                                  255,
                                  65535,
                                  65536,
                                  0xffffffffu,
                                  0x100000000u,
                                  0x7fffffffffffffffu,
                                  0x8000000000000000u,
                                  0xfffffffffffffffeu,
                                  UINT64_MAX };
    const size_t n = sizeof v / sizeof *v;
    size_t i, j;
    for (i = 0; i < n; i++)
        for (j = 0; j < n; j++) {
            uint64_t out = 77, a = v[i], b = v[j], hi = (a >> 32) * (b >> 32),
                     m1 = (a >> 32) * (b & 0xffffffffu);
            uint64_t m2 = (b >> 32) * (a & 0xffffffffu), lo = (a & 0xffffffffu) * (b & 0xffffffffu);
            bool fits = hi == 0 && m1 >> 32 == 0 && m2 >> 32 == 0 && (m1 + m2) >> 32 == 0 &&
                        ((m1 + m2) << 32) + lo >= lo;
            CHECK(ckr__mul_u64(a, b, &out) == fits);
            if (fits) CHECK(out == a * b);
            CHECK(ckr__add_u64(a, b, &out) == (a + b >= a));
            if (a + b >= a) CHECK(out == a + b);
        }
}

static void arith_ranges(void)
{
    uint64_t b, n, t;
    for (b = 0; b < 6; b++)
        for (n = 0; n < 6; n++)
            for (t = 0; t < 6; t++) CHECK(ckr__range_ok(b, n, t) == (b + n <= t));
    CHECK(!ckr__range_ok(UINT64_MAX, 2, 10));
    CHECK(!ckr__range_ok(2, UINT64_MAX, 10));
    CHECK(!ckr__range_ok(UINT64_MAX, UINT64_MAX, 10));
    CHECK(ckr__range_ok(UINT64_MAX, 0, UINT64_MAX));
}

static void arith_numel(void)
{
    static const int64_t wrap[] = { (int64_t)1 << 62, 4 },
                         zero[] = { (int64_t)1 << 40, (int64_t)1 << 40, 0 };
    static const int64_t neg[] = { 0, -1 }, top[] = { 0x7fffffff, 0x7fffffff },
                         plain[] = { 2, 3, 4 };
    int64_t n = -1;
    CHECK(!ckr__numel(2, wrap, &n));
    CHECK(ckr__numel(3, zero, &n) && n == 0);
    CHECK(!ckr__numel(2, neg, &n));
    CHECK(ckr__numel(2, top, &n) && n == (int64_t)0x7fffffff * 0x7fffffff);
    CHECK(ckr__numel(3, plain, &n) && n == 24);
    CHECK(ckr__numel(0, NULL, &n) && n == 1);
}

static void platform_loads(void)
{
    uint8_t p[9];
    ckr__store_u64(p + 1, 0x0123456789abcdefu);
    CHECK(p[1] == 0xef && p[8] == 0x01);
    CHECK(ckr__load_u64(p + 1) == 0x0123456789abcdefu);
    CHECK(ckr__load_u32(p + 1) == 0x89abcdefu);
    CHECK(ckr__load_u16(p + 1) == 0xcdefu);
}

/* >>error */

static void error_first_wins(void)
{
    ckr_error e;
    memset(&e, 0, sizeof e);
    CHECK(ckr__fail(&e, CKR_ITEM_NOMEM, "a", 5, "w", "found %d", 3) == CKR_E_NOMEM);
    CHECK(ckr__fail(&e, CKR_ITEM_IO_READ, "b", 6, "x", NULL) == e.code);
    CHECK(e.code == CKR_E_NOMEM && e.item == CKR_ITEM_NOMEM && e.offset == 5);
    CHECK_STR(e.file, "a");
    CHECK_STR(e.where, "w");
    CHECK_STR(e.text, "found 3");
    CHECK(ckr__fail(NULL, CKR_ITEM_LIMIT, "b", 6, "x", NULL) == CKR_E_LIMIT);
}

static void error_long_strings(void)
{
    ckr_error e;
    char path[600];
    size_t n;
    for (n = 0; n < sizeof path; n++) {
        memset(&e, 0, sizeof e);
        memset(path, 'p', n);
        if (n > 2) memcpy(path + n - 3, "end", 3);
        path[n < sizeof path ? n : n - 1] = 0;
        ckr__fail(&e, CKR_ITEM_ARG, path, CKR_NO_OFFSET, path, "%s", path);
        CHECK(strlen(e.file) == (n < sizeof e.file ? n : sizeof e.file - 1));
        if (n > 2) CHECK_STR(e.file + strlen(e.file) - 3, "end");
        CHECK(strlen(e.where) < sizeof e.where && strlen(e.text) < sizeof e.text);
    }
}

static void error_items(void)
{
    int i, j;
    CHECK_STR(ckr_item_name(CKR_ITEM_OK), "CKR_E_OK");
    CHECK_STR(ckr_item_name(CKR_ITEM_COUNT_), "CKR_E_UNKNOWN");
    CHECK_STR(ckr_item_name((ckr_item)-1), "CKR_E_UNKNOWN");
    for (i = 0; i < CKR_ITEM_COUNT_; i++) {
        const char *a = ckr_item_name((ckr_item)i);
        CHECK(!strncmp(a, "CKR_E_", 6) && a[6]);
        CHECK(i == 0 || ckr__item_class[i] < 0);
        for (j = 0; j < i; j++) CHECK(strcmp(a, ckr_item_name((ckr_item)j)) != 0);
    }
}

static void error_io(void)
{
    ckr_error e;
    memset(&e, 0, sizeof e);
    CHECK(ckr__fail_io(&e, CKR_ITEM_IO_OPEN, "f", ENOENT) == CKR_E_NOT_FOUND &&
          e.item == CKR_ITEM_PATH_NOT_FOUND);
    CHECK(e.sys_error == ENOENT);
    memset(&e, 0, sizeof e);
    CHECK(ckr__fail_io(&e, CKR_ITEM_IO_WRITE, "f", ENOSPC) == CKR_E_IO &&
          e.item == CKR_ITEM_IO_NO_SPACE);
    memset(&e, 0, sizeof e);
    CHECK(ckr__fail_io(&e, CKR_ITEM_IO_OPEN, "f", EACCES) == CKR_E_IO &&
          e.item == CKR_ITEM_IO_OPEN);
    CHECK(strstr(e.text, ckr__sys_text(EACCES)) != NULL);
    memset(&e, 0, sizeof e);
    CHECK(ckr__fail_io(&e, CKR_ITEM_IO_OPEN, "f", EISDIR) == CKR_E_FORMAT &&
          e.item == CKR_ITEM_IS_DIRECTORY);
    CHECK(e.remedy[0]);
}

/* >>mem */

static void mem_arena(void)
{
    t_rng r = { 1 };
    int i;
    size_t k;
    ctx_open();
    for (i = 0; i < 3000; i++) {
        size_t n = (size_t)t_range(&r, 0, i % 100 == 0 ? 300000 : 200);
        uint8_t *p = (uint8_t *)ckr__arena(&t_ctx, n);
        bool zero = true;
        if (!CHECK(p != NULL)) return;
        CHECK((uintptr_t)p % 16 == 0);
        for (k = 0; k < n; k++) zero = zero && p[k] == 0;
        CHECK(zero);
        memset(p, 0xa5, n);
    }
    ctx_close();
}

static void mem_arena_limits(void)
{
    ckr_limits lim = CKR_ZERO;
    int i;
    lim.max_arena_bytes = 200000;
    CHECK(ckr__ctx_init(&t_ctx, NULL, &lim, &t_err) == CKR_OK);
    for (i = 0; i < 1000 && ckr__arena(&t_ctx, 1000); i++) {}
    CHECK(i > 50 && i < 200);
    CHECK(t_err.code == CKR_E_LIMIT && t_err.item == CKR_ITEM_LIMIT);
    CHECK(t_ctx.arena_bytes <= 200000);
    ctx_close();
    ctx_open();
    CHECK(ckr__arena(&t_ctx, SIZE_MAX - 3) == NULL && t_err.code == CKR_E_LIMIT);
    ckr__ctx_enter(&t_ctx, &t_err);
    CHECK(ckr__arena_n(&t_ctx, UINT64_MAX / 4, 8) == NULL && t_err.code == CKR_E_LIMIT);
    ctx_close();
}

static void mem_buf(void)
{
    ckr__buf b;
    char want[40];
    size_t i, at = 0;
    bool ok = true;
    ctx_open();
    memset(&b, 0, sizeof b);
    b.c = &t_ctx;
    for (i = 0; i < 5000; i++) ckr__buf_printf(&b, "%llu,", (unsigned long long)i);
    ckr__buf_u8(&b, 'e');
    ckr__buf_str(&b, "nd");
    for (i = 0; i < 5000; i++) {
        size_t n = (size_t)snprintf(want, sizeof want, "%llu,", (unsigned long long)i);
        ok = ok && !memcmp(b.data + at, want, n);
        at += n;
    }
    CHECK(ok && !b.failed && b.size == at + 3 && !memcmp(b.data + at, "end", 3));
    CHECK(!ckr__buf_reserve(&b, SIZE_MAX / 2) && b.failed);
    ckr__buf_free(&b);
    ctx_close();
}

/* >>map */

#define MAP_KEYS 3000
static char map_key[MAP_KEYS][12];
static size_t map_len[MAP_KEYS];

static void map_against_array(void)
{
    t_rng r = { 2 };
    ckr__map m;
    static uint64_t want[MAP_KEYS];
    static bool set[MAP_KEYS];
    uint64_t v;
    size_t i, j, distinct = 0;
    bool had;
    ctx_open();
    memset(&m, 0, sizeof m);
    m.c = &t_ctx;
    CHECK(!ckr__map_find(&m, "x", 1, &v));
    for (i = 0; i < MAP_KEYS; i++) { /* index in bytes: keys hold NULs and differ in one byte */
        memset(map_key[i], 0, sizeof map_key[i]);
        map_key[i][0] = (char)(i & 255);
        map_key[i][1] = (char)(i >> 8);
        map_len[i] = (size_t)t_range(&r, 2, 11);
    }
    for (i = 0; i < 4 * MAP_KEYS; i++) {
        j = (size_t)t_range(&r, 0, MAP_KEYS - 1);
        v = t_next(&r);
        if (!CHECK(ckr__map_put(&m, map_key[j], map_len[j], v, &had))) break;
        CHECK(had == set[j]);
        distinct += !set[j];
        set[j] = true;
        want[j] = v;
    }
    CHECK(m.count == distinct);
    for (i = 0; i < MAP_KEYS; i++) {
        bool found = ckr__map_find(&m, map_key[i], map_len[i], &v);
        CHECK(found == set[i] && (!found || v == want[i]));
        CHECK(!ckr__map_find(&m, map_key[i], map_len[i] - 1, NULL));
    }
    ckr__map_free(&m);
    ctx_close();
}

/* >>sort */

typedef struct sort_item { int key, order; } sort_item;

static int sort_cmp(const void *a, const void *b)
{
    int x = ((const sort_item *)a)->key, y = ((const sort_item *)b)->key;
    return (x > y) - (x < y);
}

static void sort_stable(void)
{
    static sort_item items[1000];
    static void *p[1000];
    static bool seen[1000];
    t_rng r = { 3 };
    size_t n, i;
    ctx_open();
    for (n = 0; n <= 1000; n = n < 40 ? n + 1 : n * 3 / 2) {
        bool ok = true;
        for (i = 0; i < n; i++) {
            items[i].key = (int)t_range(&r, 0, n % 3 == 0 ? 3 : 100000);
            items[i].order = (int)i;
            p[i] = &items[i];
            seen[i] = false;
        }
        CHECK(ckr__sort(&t_ctx, p, n, sort_cmp));
        for (i = 0; i < n; i++) {
            const sort_item *b = (const sort_item *)p[i], *a = i ? (const sort_item *)p[i - 1] : b;
            ok = ok && !seen[b->order] &&
                 (i == 0 || a->key < b->key || (a->key == b->key && a->order < b->order));
            seen[b->order] = true;
        }
        CHECK(ok);
    }
    ctx_close();
}

/* >>node, >>tree */

static void node_lists(void)
{
    ckr_node *l, *d;
    int64_t v;
    int i;
    bool ok = true;
    char key[16];
    ctx_open();
    l = ckr__make(&t_ctx, CKR_NODE_LIST);
    d = ckr__make(&t_ctx, CKR_NODE_DICT);
    CHECK(ckr_node_at(l, 0) == NULL && ckr_node_get(d, "0") == NULL);
    for (i = 0; i < 1000; i++) {
        CHECK(ckr__node_push(&t_ctx, l, ckr__make_int(&t_ctx, i)));
        snprintf(key, sizeof key, "k%d", i % 500);
        CHECK(ckr__node_set(&t_ctx, d, key, ckr__make_int(&t_ctx, i)));
    }
    CHECK_INT(l->count, 1000);
    CHECK_INT(d->count, 500);
    for (i = 0; i < 1000; i++) ok = ok && ckr_node_i64(ckr_node_at(l, (uint64_t)i), &v) && v == i;
    for (i = 0; i < 500; i++) {
        snprintf(key, sizeof key, "k%d", i);
        ok = ok && ckr_node_i64(ckr_node_get(d, key), &v) && v == i + 500;
    }
    CHECK(ok);
    CHECK(ckr_node_at(l, 1000) == NULL && ckr_node_get(d, "k500") == NULL &&
          ckr_node_get(l, "k1") == NULL);
    CHECK(!ckr__node_push(&t_ctx, l, NULL) && !ckr__node_pair(&t_ctx, d, NULL, l));
    ctx_close();
}

static void node_getters(void)
{
    ckr_node *n;
    int64_t i = -1;
    double f = -1;
    ctx_open();
    CHECK(!ckr_node_i64(NULL, &i) && !ckr_node_f64(NULL, &f) && ckr_node_str(NULL) == NULL);
    CHECK(ckr_node_get(NULL, "a") == NULL && ckr_node_at(NULL, 0) == NULL &&
          ckr_node_find(NULL, "/a") == NULL);
    n = ckr__make_float(&t_ctx, 2.0);
    CHECK(!ckr_node_i64(n, &i) && ckr_node_f64(n, &f) && f > 1.5);
    n = ckr__make_bool(&t_ctx, true);
    CHECK(ckr_node_i64(n, &i) && i == 1);
    n = ckr__make_text(&t_ctx, CKR_NODE_STR, "a\0b", 3);
    CHECK(n->count == 3 && !memcmp(ckr_node_str(n), "a\0b", 4));
    n = ckr__make_text(&t_ctx, CKR_NODE_BYTES, "ab", 2);
    CHECK(ckr_node_str(n) == NULL);
    ctx_close();
}

static void node_numbers(void)
{
    static const struct { double v; const char *text; } floats[] = {
        { 0.1, "0.1" }, { 1e16, "1e+16" }, { -0.0, "-0.0" }, { 100000, "100000.0" },
        { 1e-5, "1e-05" }, { 5e-324, "5e-324" },
        { 1.7976931348623157e308, "1.7976931348623157e+308" }
    };
    static char long_one[2000], out[6000];
    ckr_node n;
    size_t i;
    memset(&n, 0, sizeof n);
    n.kind = CKR_NODE_FLOAT;
    for (i = 0; i < sizeof floats / sizeof *floats; i++) {
        n.u.f = floats[i].v;
        CHECK_INT(ckr_node_number(&n, out, sizeof out), strlen(floats[i].text));
        CHECK_STR(out, floats[i].text);
    }
    n.u.f = HUGE_VAL;
    CHECK(ckr_node_number(&n, out, 3) == 3 && !strcmp(out, "in"));
    n.u.f = -HUGE_VAL;
    CHECK(ckr_node_number(&n, out, 9) == 4 && !strcmp(out, "-inf"));
    n.kind = CKR_NODE_INT;
    n.u.i = INT64_MIN;
    CHECK(ckr_node_number(&n, NULL, 0) == 20);
    n.kind = CKR_NODE_BIGINT;
    n.u.str = "\0\0\0\0\0\0\0\0\1";
    n.count = 9;
    CHECK(ckr_node_number(&n, out, sizeof out) == 20 && !strcmp(out, "18446744073709551616"));
    n.u.str = "\0\0\0\0\0\0\0\0\377";
    CHECK(ckr_node_number(&n, out, sizeof out) == 21 && !strcmp(out, "-18446744073709551616"));
    memset(long_one, 0x7f, sizeof long_one);
    n.u.str = long_one;
    n.count = 1790;                            /* 4310 digits: Python refuses them         */
    CHECK(ckr_node_number(&n, out, sizeof out) == 0 && !out[0]);
    n.count = 1700;
    CHECK(ckr_node_number(&n, out, sizeof out) > 4000);
    n.kind = CKR_NODE_STR;
    CHECK(ckr_node_number(&n, out, sizeof out) == 0 && ckr_node_number(NULL, NULL, 0) == 0);
}

static void bytes_as_text(void)
{
    static const struct { const char *s; size_t n; uint32_t code; } rows[] = {
        { "a", 1, 'a' }, { "\303\251", 2, 0xe9 }, { "\342\202\254", 3, 0x20ac },
        { "\360\237\230\200", 4, 0x1f600 }, { "\300\200", 0, 0 }, { "\355\240\200", 0, 0 },
        { "\364\220\200\200", 0, 0 }, { "\342\202", 0, 0 }
    };
    static const char hex[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    uint32_t code;
    uint8_t sum[32];
    char text[65];
    ckr_sha256 h;
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK(ckr_utf8(rows[i].s, strlen(rows[i].s), &code) == rows[i].n && code == rows[i].code);
    CHECK(ckr_utf8("\303\251", 1, NULL) == 0 && ckr_utf8(NULL, 0, NULL) == 0);
    CHECK(ckr_base64("abcd", 4, text) == 8 && !memcmp(text, "YWJjZA==", 8));
    ckr_sha256_init(&h);
    ckr_sha256_update(&h, "a", 1);
    ckr_sha256_update(&h, "bc", 2);
    ckr_sha256_final(&h, sum);
    for (i = 0; i < 32; i++) snprintf(text + 2 * i, 3, "%02x", sum[i]);
    CHECK_STR(text, hex);
}

static void node_pointers(void)
{
    ckr_node *root, *list, *inner;
    int64_t v = 0;
    ctx_open();
    root = ckr__make(&t_ctx, CKR_NODE_DICT);
    list = ckr__make(&t_ctx, CKR_NODE_LIST);
    inner = ckr__make(&t_ctx, CKR_NODE_DICT);
    ckr__node_set(&t_ctx, root, "list", list);
    ckr__node_push(&t_ctx, list, ckr__make_int(&t_ctx, 10));
    ckr__node_push(&t_ctx, list, inner);
    ckr__node_set(&t_ctx, inner, "a/b", ckr__make_int(&t_ctx, 1));
    ckr__node_set(&t_ctx, inner, "a~b", ckr__make_int(&t_ctx, 2));
    ckr__node_set(&t_ctx, inner, "", ckr__make_int(&t_ctx, 3));
    ckr__node_pair(&t_ctx, inner, ckr__make_int(&t_ctx, -7), ckr__make_int(&t_ctx, 4));
    CHECK(ckr_node_find(root, "") == root);
    CHECK(ckr_node_find(root, "/list/1") == inner);
    CHECK(ckr_node_i64(ckr_node_find(root, "/list/1/a~1b"), &v) && v == 1);
    CHECK(ckr_node_i64(ckr_node_find(root, "/list/1/a~0b"), &v) && v == 2);
    CHECK(ckr_node_i64(ckr_node_find(root, "/list/1/"), &v) && v == 3);
    CHECK(ckr_node_i64(ckr_node_find(root, "/list/1/-7"), &v) && v == 4);
    CHECK(ckr_node_find(root, "list") == NULL);
    CHECK(ckr_node_find(root, "/list/2") == NULL && ckr_node_find(root, "/list/x") == NULL);
    CHECK(ckr_node_find(root, "/list/-1") == NULL && ckr_node_find(root, "/list/") == NULL);
    CHECK(ckr_node_find(root, "/list/99999999999999999999999") == NULL);
    CHECK(ckr_node_find(root, "/list/0/x") == NULL);
    ctx_close();
}

/* >>dtype, >>threads, >>context */

static void dtype_table(void)
{
    int i;
    for (i = 1; i < CKR_DTYPE_COUNT_; i++) {
        const char *name = ckr_dtype_name((ckr_dtype)i);
        const ckr__dtype_row *row = &ckr__dtypes[i];
        CHECK_INT(ckr__dtype_find(name, strlen(name), 0), i);
        if (*row->tag) CHECK_INT(ckr__dtype_find(row->tag, strlen(row->tag), 1), i);
        if (*row->storage) CHECK_INT(ckr__dtype_find(row->storage, strlen(row->storage), 2), i);
        CHECK(row->size == 0 || (row->swap > 0 && row->size % row->swap == 0));
    }
    CHECK(ckr_dtype_size(CKR_DTYPE_NONE) == 0 && ckr_dtype_size((ckr_dtype)999) == 0);
    CHECK_STR(ckr_dtype_name((ckr_dtype)-1), "none");
}

static void threads_task(void *arg, uint32_t i)
{
    ((uint8_t *)arg)[i]++;
}

static void threads_each_once(void)
{
    static uint8_t hit[1000];
    uint32_t n, t, i;
    ctx_open();
    for (n = 0; n <= 1000; n = n * 2 + 1)
        for (t = 1; t <= 70; t += t < 4 ? 1 : 33) {
            uint32_t wrong = 0;
            memset(hit, 0, sizeof hit);
            t_ctx.env.parallel.for_fn(NULL, t, n, threads_task, hit);
            for (i = 0; i < 1000; i++) wrong += hit[i] != (i < n);
            CHECK_INT(wrong, 0);
        }
    ctx_close();
}

static void context_contract(void)
{
    ckr_env env = CKR_ZERO;
    ckr__ctx c;
    ckr_error e;
    env.alloc.free_fn = ckr__default_free;
    CHECK(ckr__ctx_init(&c, &env, NULL, &e) == CKR_E_ARG && e.code == CKR_E_ARG);
    memset(&env, 0, sizeof env);
    env.io.open_fn = ckr__os_open;
    CHECK(ckr__ctx_init(&c, &env, NULL, &e) == CKR_E_ARG);
    CHECK(ckr__ctx_init(&c, NULL, NULL, NULL) == CKR_OK && c.err == &c.own_err);
    ckr__ctx_free(&c);
}

/* Eight at a time is the same as one by one. */
static void many_bf16(void)
{
    uint32_t in[45], x = 12345;
    uint16_t out[45];
    float f;
    size_t i;
    for (i = 0; i < 45; i++) {
        x = x * 1664525u + 1013904223u;
        in[i] = i == 9 ? 0x7fc00001u : i == 20 ? 0x7f800000u : i == 21 ? 0xff800001u : x;
    }
    ckr__convert(CKR_DTYPE_BF16, (uint8_t *)out, CKR_DTYPE_F32, (const uint8_t *)in, 45);
    for (i = 0; i < 45; i++) {
        memcpy(&f, &in[i], 4);
        CHECK_INT(out[i], ckr__bf16_of_f32(f));
    }
}

/* Keys that are no text: complex numbers by value, lists and the like by identity. */
static void odd_keys(void)
{
    double x[2] = { 1, 2 }, y[2] = { 1, 3 }, z[2] = { 1, 2 };
    ckr_node a, b, c;
    uint64_t cost = 0;
    memset(&a, 0, sizeof a);
    a.kind = CKR_NODE_COMPLEX;
    a.u.complex_ = x;
    b = c = a;
    b.u.complex_ = y;
    c.u.complex_ = z;
    CHECK(ckr__key_cmp(&a, &b) != 0 && ckr__key_cmp(&a, &c) == 0);
    a.kind = b.kind = CKR_NODE_LIST;
    a.id = 1;
    b.id = 2;
    CHECK(ckr__key_cmp(&a, &b) < 0 && ckr__key_cmp(&b, &a) > 0 && ckr__key_cmp(&a, &a) == 0);
    CHECK(ckr__key_hash(&a, 1, &cost) != ckr__key_hash(&b, 1, &cost));
}

/* What a report says to the tool's user, and to a program in C. */
static void words_of_who_asks(void)
{
    static const char *const rows[][2] = {
        { "--lr-policy splice or stretch avoids the jump; --lr-policy target or --max-lr-jump R "
          "accepts it",
          "ckr_target.lr_policy = CKR_LR_SPLICE or CKR_LR_STRETCH avoids the jump; "
          "ckr_target.lr_policy = CKR_LR_TARGET or ckr_target.max_lr_jump = R accepts it" },
        { "leave it out: --without optimizer,groups",
          "leave it out: ckr_target.without = CKR_OPTIMIZER | CKR_GROUPS" },
        { "take a smaller --pp, or --zero 0",
          "take a smaller ckr_target.topology.pp, or ckr_target.topology.zero = CKR_ZERO_OFF" },
        { "describe it with --schedule torchtitan:steps=N", "describe it with "
          "ckr_open_desc.schedule = torchtitan:steps=N" },
        { "--set total_steps=N gives it more updates",
          "ckr_target.sets total_steps=N gives it more updates" },
        { "--names FILE: all parameters", "ckr_open_desc.names: all parameters" },
        { "take --vpp 1; --no-load-optim is the framework's, --to-do is nobody's",
          "take option vpp = 1; --no-load-optim is the framework's, --to-do is nobody's" },
        { "--to dcp and --mode continue, a--b --",
          "ckr_target.dialect = dcp and ckr_target.mode = CKR_MODE_CONTINUE, a--b --" },
        { "leave --variant out: it is --only params; --lr-policy rewarm --rewarm-steps N",
          "leave ckr_target.variant out: it is ckr_target.without = all but CKR_PARAMS; "
          "ckr_target.lr_policy = CKR_LR_REWARM, ckr_target.rewarm_steps = N" },
        { "name it with --dialect dcp or deepspeed", "name it with ckr_open_desc.dialect = dcp or "
          "deepspeed" },
        { "--zero 1 or --strict or --mode", "ckr_target.topology.zero = 1 or ckr_target.strict or "
          "ckr_target.mode" }
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int flags = 0; flags < 2; flags++) {
            ckr_error e = CKR_ZERO;
            e._flags = flags != 0;
            ckr__fail(&e, CKR_ITEM_ARG, NULL, 0, NULL, "%s", rows[i][0]);
            CHECK_STR(e.text, rows[i][!flags]);
            ckr__remedy(&e, CKR_E_ARG, rows[i][0]);
            CHECK_STR(e.remedy, rows[i][!flags]);
        }
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    RUN(many_bf16);
    RUN(arith_checked);
    RUN(arith_ranges);
    RUN(arith_numel);
    RUN(platform_loads);
    RUN(error_first_wins);
    RUN(error_long_strings);
    RUN(error_items);
    RUN(error_io);
    RUN(mem_arena);
    RUN(mem_arena_limits);
    RUN(mem_buf);
    RUN(map_against_array);
    RUN(sort_stable);
    RUN(node_lists);
    RUN(node_getters);
    RUN(node_pointers);
    RUN(node_numbers);
    RUN(bytes_as_text);
    RUN(dtype_table);
    RUN(threads_each_once);
    RUN(context_contract);
    RUN(odd_keys);
    RUN(words_of_who_asks);
    return t_end();
}
