/* Layout against a naive element map: splits, flat ranges, views, clipping. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"

#define MAX_ELEMS 4096

static ckr__ctx t_ctx;
static ckr_error t_err;

/* Where each element of a block lies in the tensor (row-major), or -1; over all pairs. */
static int64_t block_map[MAX_ELEMS], block_elems;

static int64_t flat_index(uint32_t n, const int64_t *shape, const int64_t *at)
{
    int64_t i = 0;
    uint32_t d;
    for (d = 0; d < n; d++) i = i * shape[d] + at[d];
    return i;
}

static bool odometer(uint32_t n, const int64_t *count, int64_t *at)
{
    while (n-- > 0) {
        if (++at[n] < count[n]) return true;
        at[n] = 0;
    }
    return false;
}

static int64_t volume(uint32_t n, const int64_t *count)
{
    int64_t v = 1;
    uint32_t d;
    for (d = 0; d < n; d++) v *= count[d];
    return v;
}

static void map_make(const ckr__block *b, const int64_t *shape)
{
    uint32_t i, d;
    int64_t k;
    block_elems = volume(b->n_dims, b->shape);
    for (k = 0; k < block_elems; k++) block_map[k] = -1;
    for (i = 0; i < b->n_pairs; i++) {
        const ckr__pair *p = &b->pairs[i];
        int64_t at[CKR_MAX_DIMS] = { 0 }, l[CKR_MAX_DIMS], g[CKR_MAX_DIMS];
        if (volume(b->n_dims, p->count) == 0) continue;
        do {
            for (d = 0; d < b->n_dims; d++) {
                l[d] = p->local[d] + at[d];
                g[d] = p->global[d] + at[d];
            }
            k = flat_index(b->n_dims, b->shape, l);
            if (block_map[k] != -1) CHECK(!"pairs overlap");
            block_map[k] = flat_index(b->n_dims, shape, g);
        } while (odometer(b->n_dims, p->count, at));
    }
}

/* Collects what ckr__flat_pieces gives into the same form. */
typedef struct got {
    int64_t map[MAX_ELEMS];
    const int64_t *shape;
    int64_t elem, n;
    uint64_t base;
    uint32_t boxes;
    bool bad;
} got;
static got t_got;

static bool got_piece(void *arg, uint32_t n, const int64_t *start, const int64_t *count,
                      const int64_t *stride, uint64_t offset)
{
    got *g = (got *)arg;
    int64_t at[CKR_MAX_DIMS] = { 0 }, pos[CKR_MAX_DIMS];
    uint32_t d;
    g->boxes++;
    do {
        uint64_t o = offset;
        for (d = 0; d < n; d++) {
            o += (uint64_t)(at[d] * stride[d]);
            pos[d] = start[d] + at[d];
        }
        if (o < g->base || (o - g->base) % (uint64_t)g->elem ||
            (o - g->base) / (uint64_t)g->elem >= (uint64_t)g->n) {
            g->bad = true;
            return true;
        }
        o = (o - g->base) / (uint64_t)g->elem;
        if (g->map[o] != -1) g->bad = true;
        g->map[o] = flat_index(n, g->shape, pos);
    } while (odometer(n, count, at));
    return true;
}

static bool flat_equal(const ckr__block *b, const int64_t *shape, int64_t begin, int64_t end,
                       int64_t elem)
{
    int64_t k;
    uint32_t most = (b->n_dims ? 2 * b->n_dims - 1 : 1) * (b->n_pairs ? b->n_pairs : 1);
    memset(t_got.map, 0xff, sizeof t_got.map);
    t_got.shape = shape;
    t_got.elem = elem;
    t_got.n = end - begin;
    t_got.base = 1000;
    t_got.boxes = 0;
    t_got.bad = false;
    if (!ckr__flat_pieces(b, begin, end, 1000, elem, got_piece, &t_got)) return false;
    if (t_got.bad || t_got.boxes > most) return false;
    for (k = begin; k < end; k++)
        if (t_got.map[k - begin] != block_map[k]) return false;
    return true;
}

static void flat_all_ranges(const ckr__block *b, const int64_t *shape)
{
    int64_t begin, end, wrong = 0, n = 0;
    map_make(b, shape);
    for (begin = 0; begin <= block_elems; begin++)
        for (end = begin; end <= block_elems; end++, n++)
            if (!flat_equal(b, shape, begin, end, 1 + (begin + end) % 3)) wrong++;
    t_now.passed += (unsigned long)(n - 1);
    t_check(wrong == 0, __FILE__, __LINE__,
            "%lld of %lld ranges differ from the map (dims %u, pairs %u)", (long long)wrong,
            (long long)n, b->n_dims, b->n_pairs);
}

static void flat_whole(void)
{
    int64_t s[4];
    uint32_t n;
    for (n = 0; n <= 4; n++) {
        int64_t top[4] = { 4, 4, 4, 4 }, at[4] = { 0 };
        uint32_t d;
        if (n == 4) top[0] = top[1] = top[2] = top[3] = 3;
        do {
            ckr__block *b;
            for (d = 0; d < n; d++) s[d] = at[d] + 1;
            ckr__ctx_init(&t_ctx, NULL, NULL, &t_err);
            b = ckr__block_whole(&t_ctx, n, s);
            if (CHECK(b != NULL)) flat_all_ranges(b, s);
            ckr__ctx_free(&t_ctx);
        } while (odometer(n, top, at));
    }
}

/* Every split of small tensors: the ranks' blocks cover it once, and each range of each block is
   right. */
static void split_case(const ckr_split *split, uint32_t n, const int64_t *shape, uint32_t tp)
{
    int64_t uneven, k, total = volume(n, shape), chunk_at = 0;
    static int owner[MAX_ELEMS];
    uint32_t r, i, chunks = split->n_chunks ? split->n_chunks : 1;
    bool divides = true;
    for (i = 0; i < chunks; i++) {
        int64_t size = split->n_chunks ? split->chunks[i] : shape[split->axis];
        int64_t unit = split->units ? split->units[i] : 1;
        if (size % unit || size / unit % (int64_t)tp) divides = false;
    }
    for (k = 0; k < total; k++) owner[k] = 0;
    for (r = 0; r < tp; r++) {
        ckr__block *b = ckr__block_split(&t_ctx, split, n, shape, tp, r, &uneven);
        CHECK((b != NULL) == divides);
        if (!b) {
            CHECK(uneven > 0 && t_err.code == CKR_OK);
            return;
        }
        flat_all_ranges(b, shape);
        for (k = 0; k < block_elems; k++)
            if (CHECK(block_map[k] >= 0)) owner[block_map[k]]++;
    }
    for (k = 0; k < total; k++)
        if (owner[k] != 1) break;
    CHECK_INT(k, total);
    /* rank r holds part r of each chunk, in chunk order */
    for (i = 0; i < chunks; i++) {
        int64_t size = split->n_chunks ? split->chunks[i] : shape[split->axis],
                at[CKR_MAX_DIMS] = { 0 };
        ckr__block *b = ckr__block_split(&t_ctx, split, n, shape, tp, tp - 1, &uneven);
        map_make(b, shape);
        at[split->axis] = b->pairs[i].local[split->axis];
        k = block_map[flat_index(n, b->shape, at)];
        at[split->axis] = chunk_at + size / tp * (tp - 1);
        CHECK_INT(k, flat_index(n, shape, at));
        chunk_at += size;
    }
}

static void splits(void)
{
    static const int64_t chunks[][3] = { { 4, 2, 2 }, { 6, 6, 0 }, { 8, 4, 4 }, { 3, 2, 1 } };
    static const uint32_t n_chunks[] = { 3, 2, 3, 3 };
    static const int64_t units[] = { 2, 2, 2 };
    uint32_t c, n, tp;
    int32_t axis;
    for (n = 1; n <= 3; n++)
        for (axis = 0; axis < (int32_t)n; axis++)
            for (tp = 1; tp <= 4; tp++)
                for (c = 0; c < 9; c++) {
                    int64_t shape[3] = { 2, 3, 2 };
                    ckr_split s = CKR_ZERO;
                    s.axis = axis;
                    shape[axis] = c == 8 ? 6 : 0;
                    if (c < 8) {
                        uint32_t i, which = c % 4;
                        s.n_chunks = n_chunks[which];
                        s.chunks = chunks[which];
                        s.units = c < 4 ? NULL : units;
                        for (i = 0; i < s.n_chunks; i++) shape[axis] += s.chunks[i];
                    }
                    ckr__ctx_init(&t_ctx, NULL, NULL, &t_err);
                    split_case(&s, n, shape, tp);
                    ckr__ctx_free(&t_ctx);
                }
}

static void split_none(void)
{
    ckr_split s = CKR_ZERO;
    int64_t shape[2] = { 3, 4 }, uneven = 9;
    ckr__block *b;
    s.axis = -1;
    ckr__ctx_init(&t_ctx, NULL, NULL, &t_err);
    b = ckr__block_split(&t_ctx, &s, 2, shape, 7, 3, &uneven);
    CHECK(b && b->n_pairs == 1 && b->shape[0] == 3 && b->pairs[0].count[1] == 4 && uneven == 0);
    ckr__ctx_free(&t_ctx);
}

/* Random blocks with several pairs at random places, some elements in no pair, up to 5 axes. */
static void flat_random(void)
{
    t_rng r = { 4 };
    int i;
    for (i = 0; i < 2000; i++) {
        uint32_t n = (uint32_t)t_range(&r, 1, 5), d, k, pairs = (uint32_t)t_range(&r, 1, 3);
        int64_t shape[5], axis = t_range(&r, 0, (int64_t)n - 1), at = 0, begin, end;
        ckr__block *b;
        ckr__ctx_init(&t_ctx, NULL, NULL, &t_err);
        b = ckr__block_new(&t_ctx, n, pairs);
        if (!CHECK(b != NULL)) return;
        for (d = 0; d < n; d++) {
            b->shape[d] = t_range(&r, 1, n > 3 ? 3 : 5);
            shape[d] = b->shape[d] + 3;
        }
        b->shape[axis] = 0;
        shape[axis] = 20;
        for (k = 0; k < pairs; k++) {
            for (d = 0; d < n; d++) {
                b->pairs[k].count[d] = b->shape[d];
                b->pairs[k].global[d] = t_range(&r, 0, 3);
            }
            at += t_range(&r, 0, 1);
            b->pairs[k].local[axis] = at;
            b->pairs[k].count[axis] = t_range(&r, 1, 3);
            b->pairs[k].global[axis] = 6 * k + t_range(&r, 0, 3);
            at += b->pairs[k].count[axis];
        }
        b->shape[axis] = at + t_range(&r, 0, 1);
        map_make(b, shape);
        for (k = 0; k < 20; k++) {
            begin = t_range(&r, 0, block_elems);
            end = t_range(&r, begin, block_elems);
            CHECK(flat_equal(b, shape, begin, end, 4));
        }
        ckr__ctx_free(&t_ctx);
    }
}

/* Pieces of a tensor whose logical shape is smaller than what the files hold: clipped, padding
   dropped. */
static void reader_clips_padding(void)
{
    int64_t padded[2] = { 8, 3 }, logical[2] = { 5, 3 }, uneven;
    ckr_split split = CKR_ZERO;
    uint32_t r;
    split.axis = 0;
    for (r = 0; r < 4; r++) {
        ckr_state s;
        ckr__reader rd;
        ckr_tensor *t;
        ckr__block *b;
        ckr__ctx_init(&t_ctx, NULL, NULL, &t_err);
        ckr__state_init(&s, NULL);
        t = ckr__tensor_add(&t_ctx, &s, "w", "param", CKR_DTYPE_F32, 2, logical);
        b = ckr__block_split(&t_ctx, &split, 2, padded, 4, r, &uneven);
        memset(&rd, 0, sizeof rd);
        rd.c = &t_ctx;
        rd.tensor = t;
        rd.dtype = CKR_DTYPE_F32;
        rd.rank = (int32_t)r;
        CHECK(ckr__read_flat(&rd, b, 0, 6, 64));
        CHECK_INT(t->n_pieces, r < 3);
        if (t->n_pieces) {
            CHECK_INT(t->pieces[0].start[0], 2 * r);
            CHECK_INT(t->pieces[0].count[0], r == 2 ? 1 : 2);
            CHECK_INT(t->pieces[0].offset, 64);
            CHECK_INT(t->pieces[0].stride[0], 12);
            CHECK_INT(t->pieces[0].rank, r);
        }
        ckr__ctx_free(&t_ctx);
    }
}

/* parts -------------------------------------------------------------------------- */

static float part_data[64];

static ckr_view part_view(uint32_t n, const int64_t *shape, const int64_t *stride)
{
    ckr_view v = CKR_ZERO;
    v.dtype = CKR_DTYPE_F32;
    v.n_dims = n;
    v.shape = shape;
    v.stride = stride;
    v.file = CKR_NO_FILE;
    v.bytes = (const uint8_t *)part_data;
    v.data_bytes = sizeof part_data;
    v.big_endian = ckr__host_big_endian();
    return v;
}

static ckr__part part_of(const char *slot, const ckr_view *v, const int64_t *shape)
{
    ckr__part p = CKR_ZERO;
    p.file = "rank0";
    p.name = "w";
    p.slot = slot;
    p.view = v;
    p.n_dims = 2;
    p.shape = shape;
    return p;
}

static void load_begin(ckr__load *l, ckr_state *s)
{
    ckr__ctx_init(&t_ctx, NULL, NULL, &t_err);
    memset(&t_err, 0, sizeof t_err);
    ckr__state_init(s, NULL);
    ckr__load_init(l, &t_ctx, s, CKR_ITEM_RANK_SHAPE);
}

/* Shard(0) of 5 rows over 3 ranks; a copy of one; a flat part; a number that each rank has. */
static void parts_of_ranks(void)
{
    static const int64_t whole[2] = { 5, 3 }, stride[2] = { 3, 1 }, one[1] = { 6 }, step[1] = { 1 };
    ckr__load l;
    ckr_state s;
    ckr__held *h = NULL;
    ckr_view v;
    ckr__part p;
    int64_t r;
    load_begin(&l, &s);
    for (r = 0; r < 4; r++) {
        const int64_t rank = r % 3;
        int64_t shape[2] = { 2, 3 }, start[2] = { 0, 0 };
        shape[0] = rank == 2 ? 1 : 2;
        start[0] = 2 * rank;
        v = part_view(2, shape, stride);
        p = part_of("param", &v, whole);
        p.start = start;
        p.rank = (int32_t)r;
        p.replica = r == 3;
        h = ckr__part_add(&l, &p);
        CHECK(h != NULL);
    }
    CHECK_INT(s.n_tensors, 1);
    CHECK(h && h->tensor->n_pieces == 4 && h->tensor->pieces[3].replica);
    CHECK(h && ckr__tensor_check(&t_ctx, h->tensor) == CKR_OK);
    v = part_view(1, one, step);
    p = part_of("exp_avg", &v, whole);
    p.flat = true;
    p.begin = 2;
    p.end = 7;
    p.at = 1;
    h = ckr__part_add(&l, &p);
    CHECK(h && h->tensor->n_pieces == 3);      /* the end of a row, a row, one element      */
    CHECK(h && (const char *)h->tensor->pieces[0].mem == (const char *)(part_data + 1));
    CHECK(h && ckr__tensor_check(&t_ctx, h->tensor) != CKR_OK);
    CHECK_INT(t_err.item, CKR_ITEM_TENSOR_HOLE);
    CHECK(strstr(t_err.text, "10 of 15 elements are in no file: [0, +1) x [0, +2)") != NULL);
    ckr__error_reset(&t_ctx);
    for (r = 0; r < 3; r++) {
        v = part_view(0, step, step);
        p = part_of("step", &v, whole);
        p.alone = true;
        h = ckr__part_add(&l, &p);
        CHECK(h && h->tensor->n_dims == 0 && h->tensor->pieces[r].replica == (r > 0));
    }
    CHECK(ckr__held_slot(ckr__held_of(&l, "w"), "step") == h && !ckr__held_of(&l, "x"));
    CHECK_INT(ckr__load_done(&l), CKR_OK);
    ckr__ctx_free(&t_ctx);
}

/* What does not fit is told with the file and both sizes. */
static void parts_that_differ(void)
{
    static const int64_t whole[2] = { 5, 3 }, other[2] = { 6, 3 }, stride[2] = { 3, 1 },
                         rows[2] = { 2, 3 }, late[2] = { 4, 0 }, before[2] = { -1, 0 },
                         none[2] = { 0, 0 };
    const struct { const int64_t *shape, *start; ckr_dtype dtype; bool flat; const char *says; }
    cases[] = {
        { whole, late, CKR_DTYPE_F32, false, "a dimension of its box is 2" },
        { whole, before, CKR_DTYPE_F32, false, "a dimension of its box is 2" },
        { whole, NULL, CKR_DTYPE_F32, false, "a dimension is 2" },
        { other, none, CKR_DTYPE_F32, false, "a dimension is 6" },
        { whole, none, CKR_DTYPE_F64, false, "has dtype float64, another file float32" },
        { whole, NULL, CKR_DTYPE_F32, true, "its number of elements is 6" }
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckr__load l;
        ckr_state s;
        ckr_view v = part_view(2, rows, stride);
        ckr__part p = part_of("param", &v, whole);
        load_begin(&l, &s);
        p.start = none;
        CHECK(ckr__part_add(&l, &p) != NULL);
        p.shape = cases[i].shape;
        p.start = cases[i].start;
        p.flat = cases[i].flat;
        p.end = 7;
        v.dtype = cases[i].dtype;
        CHECK(!ckr__part_add(&l, &p));
        CHECK_INT(t_err.item, CKR_ITEM_RANK_SHAPE);
        CHECK(strstr(t_err.text, cases[i].says) != NULL);
        CHECK(!strcmp(t_err.file, "rank0") && !strcmp(t_err.where, "w"));
        CHECK(ckr__load_done(&l) != CKR_OK);
        ckr__ctx_free(&t_ctx);
    }
}

/* Padding rows are in no tensor of the state, and are kept where that is asked for. */
static void parts_with_padding(void)
{
    static const int64_t padded[2] = { 8, 3 }, rows[2] = { 4, 3 }, stride[2] = { 3, 1 };
    ckr_split split = CKR_ZERO;
    ckr__load l;
    ckr_state s;
    int64_t start[2] = { 0, 0 };
    ckr__held *h = NULL;
    split.vocab = true;
    load_begin(&l, &s);
    l.vocab = 5;
    l.padding = true;
    for (; start[0] < 8; start[0] += 4) {
        ckr_view v = part_view(2, rows, stride);
        ckr__part p = part_of("param", &v, padded);
        p.split = &split;
        p.start = start;
        h = ckr__part_add(&l, &p);
        CHECK(h != NULL);
    }
    CHECK(h && h->tensor->shape[0] == 5 && h->wide && h->wide->shape[0] == 8);
    CHECK(h && h->tensor->pieces[1].count[0] == 1 && h->wide->pieces[1].count[0] == 4);
    CHECK_INT(s.padded_vocab, 8);
    CHECK_INT(ckr__load_done(&l), CKR_OK);
    ckr__ctx_free(&t_ctx);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    RUN(parts_of_ranks);
    RUN(parts_that_differ);
    RUN(parts_with_padding);
    RUN(flat_whole);
    RUN(splits);
    RUN(split_none);
    RUN(flat_random);
    RUN(reader_clips_padding);
    return t_end();
}
