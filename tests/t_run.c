/* The engine against a loop over elements: ops over random boxes, strides, casts and windows; the
   digest of any cutting; the jobs and lanes; windows that no task may leave. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"

#define MAX_DIM 4

static ckr__ctx t_ctx;
static ckr_error t_err;

/* One random case: a tensor, a box of it, and two pieces (source and destination) with room for
   it. */
typedef struct run_case {
    ckr_tensor t;
    ckr_piece  a, d;
    int64_t    shape[MAX_DIM], start[MAX_DIM], count[MAX_DIM];
    int64_t    a_start[MAX_DIM], a_count[MAX_DIM], a_stride[MAX_DIM];
    int64_t    d_start[MAX_DIM], d_count[MAX_DIM], d_stride[MAX_DIM];
    uint8_t   *src, *dst;
    size_t     n_src, n_dst;
} run_case;

static bool odometer(uint32_t n, const int64_t *count, int64_t *at)
{
    while (n-- > 0) {
        if (++at[n] < count[n]) return true;
        at[n] = 0;
    }
    return false;
}

static int64_t dot(uint32_t n, const int64_t *x, const int64_t *y)
{
    int64_t s = 0;
    while (n-- > 0) s += x[n] * y[n];
    return s;
}

/* Strides that put no two elements of a box together: random order of the axes, now and then a
   gap. */
static size_t random_strides(t_rng *r, uint32_t n, const int64_t *count, int64_t elem, bool plain,
                             int64_t *stride)
{
    int64_t order[MAX_DIM], s = elem, t;
    uint32_t i, k;
    for (i = 0; i < n; i++) order[i] = (int64_t)(n - 1 - i);
    for (i = n; !plain && i > 1; i--) {
        k = (uint32_t)t_range(r, 0, (int64_t)i - 1);
        t = order[i - 1];
        order[i - 1] = order[k];
        order[k] = t;
    }
    for (i = 0; i < n; i++) {
        if (!plain && t_range(r, 0, 3) == 0) s += elem * t_range(r, 1, 3);
        stride[order[i]] = s;
        s *= count[order[i]];
    }
    return (size_t)s;
}

/* A box that contains [start, start + count) and lies inside the shape. */
static void random_around(t_rng *r, uint32_t n, const int64_t *shape, const int64_t *start,
                          const int64_t *count, int64_t *s, int64_t *c)
{
    while (n-- > 0) {
        s[n] = t_range(r, 0, start[n]);
        c[n] = t_range(r, start[n] + count[n], shape[n]) - s[n];
    }
}

static void case_make(run_case *x, t_rng *r, ckr_dtype from, ckr_dtype to)
{
    uint32_t n = (uint32_t)t_range(r, 0, MAX_DIM), d;
    size_t i;
    memset(x, 0, sizeof *x);
    for (d = 0; d < n; d++) {
        x->shape[d] = t_range(r, 1, n < 3 ? 12 : 5);
        x->start[d] = t_range(r, 0, x->shape[d] - 1);
        if (t_range(r, 0, 2) == 0) x->start[d] = 0;
        x->count[d] =
            t_range(r, 0, 2) ? x->shape[d] - x->start[d] : t_range(r, 1, x->shape[d] - x->start[d]);
    }
    x->t.name = "t";
    x->t.slot = "param";
    x->t.dtype = from;
    x->t.n_dims = n;
    x->t.shape = x->shape;
    random_around(r, n, x->shape, x->start, x->count, x->a_start, x->a_count);
    random_around(r, n, x->shape, x->start, x->count, x->d_start, x->d_count);
    x->n_src = random_strides(r, n, x->a_count, (int64_t)ckr_dtype_size(from),
                              t_range(r, 0, 1) == 0, x->a_stride);
    x->n_dst = random_strides(r, n, x->d_count, (int64_t)ckr_dtype_size(to), t_range(r, 0, 1) == 0,
                              x->d_stride);
    x->a.n_dims = x->d.n_dims = n;
    x->a.start = x->a_start;
    x->a.count = x->a_count;
    x->a.stride = x->a_stride;
    x->a.dtype = from;
    x->a.file = x->d.file = CKR_NO_FILE;
    x->d.start = x->d_start;
    x->d.count = x->d_count;
    x->d.stride = x->d_stride;
    x->d.dtype = to;
    x->a.big_endian = x->d.big_endian = ckr__host_big_endian();
    x->a.offset = 16 * (uint64_t)t_range(r, 0, 2);
    x->d.offset = 16 * (uint64_t)t_range(r, 0, 2);
    x->n_src += (size_t)x->a.offset;
    x->n_dst += (size_t)x->d.offset;
    x->src = (uint8_t *)malloc(x->n_src);
    x->dst = (uint8_t *)malloc(x->n_dst);
    if (!x->src || !x->dst) exit(2);
    for (i = 0; i < x->n_src; i++) x->src[i] = (uint8_t)t_next(r);
    x->a.mem = x->src;
}

static void case_free(run_case *x)
{
    free(x->src);
    free(x->dst);
}

static const uint8_t *case_src(const run_case *x, const int64_t *at)
{
    int64_t rel[MAX_DIM];
    uint32_t d;
    for (d = 0; d < x->t.n_dims; d++) rel[d] = at[d] + x->start[d] - x->a_start[d];
    return x->src + x->a.offset + dot(x->t.n_dims, rel, x->a_stride);
}

static size_t case_dst(const run_case *x, const int64_t *at)
{
    int64_t rel[MAX_DIM];
    uint32_t d;
    for (d = 0; d < x->t.n_dims; d++) rel[d] = at[d] + x->start[d] - x->d_start[d];
    return (size_t)x->d.offset + (size_t)dot(x->t.n_dims, rel, x->d_stride);
}

/* What the destination has to be: canaries everywhere but in the box. */
static uint8_t *case_want(const run_case *x)
{
    uint8_t *want = (uint8_t *)malloc(x->n_dst);
    int64_t at[MAX_DIM] = { 0 };
    if (!want) exit(2);
    memset(want, 0xcc, x->n_dst);
    do {
        uint8_t *p = want + case_dst(x, at);
        if (x->a.dtype == x->d.dtype) memcpy(p, case_src(x, at), ckr_dtype_size(x->a.dtype));
        else ckr__convert(x->d.dtype, p, x->a.dtype, case_src(x, at), 1);
    } while (odometer(x->t.n_dims, x->count, at));
    return want;
}

static void lane_open(ckr__lane *w, ckr__digest_tables *tables, uint64_t (*sums)[2])
{
    memset(w, 0, sizeof *w);
    w->src = w->other = &t_ctx;
    w->err.offset = CKR_NO_OFFSET;
    w->block_file[0] = w->block_file[1] = CKR_NO_FILE;
    w->temp = (uint8_t *)malloc(2 * (size_t)CKR__RUN_PART);
    w->tables = tables;
    w->sums = sums;
    if (!w->temp) exit(2);
}

static ckr_dtype random_dtype(t_rng *r)
{
    static const ckr_dtype types[] = { CKR_DTYPE_U8, CKR_DTYPE_I16, CKR_DTYPE_F32, CKR_DTYPE_F64,
                                       CKR_DTYPE_C128 };
    return types[t_range(r, 0, 4)];
}

static ckr_dtype random_float(t_rng *r)
{
    static const ckr_dtype types[] = { CKR_DTYPE_F16, CKR_DTYPE_BF16, CKR_DTYPE_F32,
                                       CKR_DTYPE_F64 };
    return types[t_range(r, 0, 3)];
}

/* The box copied in random windows of the destination, each into its own memory. */
static bool copy_in_windows(ckr__lane *w, const ckr__op *op, run_case *x, t_rng *r)
{
    uint64_t at = 0, end, unit = ckr_dtype_size(x->d.dtype), n = x->n_dst;
    memset(x->dst, 0xcc, n);
    while (at < n) {
        uint8_t *win;
        uint64_t step = unit * (uint64_t)t_range(r, 1, t_range(r, 0, 1) ? 8 : 400);
        end = n - at > step ? at + step : n;
        win = (uint8_t *)malloc((size_t)(end - at));
        if (!win) exit(2);
        memcpy(win, x->dst + at, (size_t)(end - at));
        if (!ckr__op_run(w, op, at, end, win)) {
            free(win);
            return false;
        }
        memcpy(x->dst + at, win, (size_t)(end - at));
        free(win);
        at = end;
    }
    return true;
}

static void copies(void)
{
    t_rng r = { 7 };
    int i;
    ckr__lane w;
    lane_open(&w, NULL, NULL);
    for (i = 0; i < (int)t_times(30000, 2000); i++) {
        run_case x;
        ckr__op op;
        uint8_t *want;
        bool cast = i % 4 == 0;
        ckr_dtype from = cast ? random_float(&r) : random_dtype(&r),
                  to = cast ? random_float(&r) : from;
        ckr__ctx_init(&t_ctx, NULL, NULL, &t_err);
        case_make(&x, &r, from, to);
        want = case_want(&x);
        CHECK(ckr__op_make(&t_ctx, &op, &x.t, x.start, x.count, &x.a, NULL, &x.d));
        if (i % 2) {
            memset(x.dst, 0xcc, x.n_dst);
            CHECK(ckr__op_run(&w, &op, 0, x.n_dst, x.dst));
        } else {
            CHECK(copy_in_windows(&w, &op, &x, &r));
        }
        t_check(!memcmp(want, x.dst, x.n_dst), __FILE__, __LINE__, "case %d: %s to %s, %u dims", i,
                ckr_dtype_name(from), ckr_dtype_name(to), x.t.n_dims);
        free(want);
        case_free(&x);
        ckr__ctx_free(&t_ctx);
    }
    free(w.temp);
}

/* The digest of a tensor read as one run, and through any op that covers it, in windows, in any
   order. */
static void digests(void)
{
    t_rng r = { 8 };
    int i;
    ckr__digest_tables *tables = (ckr__digest_tables *)malloc(sizeof *tables);
    ckr__digest_tables_init(tables);
    for (i = 0; i < (int)t_times(5000, 500); i++) {
        run_case x;
        ckr__op op;
        ckr__lane w;
        uint64_t sums[1][2] = { { 0, 0 } }, want[2] = { 0, 0 };
        int64_t at[MAX_DIM] = { 0 }, n = 0, cut, axis;
        uint8_t *flat;
        ckr_dtype from = random_dtype(&r);
        size_t e = ckr_dtype_size(from);
        int64_t lo[MAX_DIM], lc[MAX_DIM];
        ckr__ctx_init(&t_ctx, NULL, NULL, &t_err);
        case_make(&x, &r, from, from);
        memset(x.start, 0, sizeof x.start); /* all of it, from a source that holds all of it */
        memcpy(x.count, x.shape, sizeof x.count);
        memset(x.a_start, 0, sizeof x.a_start);
        memcpy(x.a_count, x.shape, sizeof x.a_count);
        free(x.src);
        x.a.offset = 0;
        x.n_src = random_strides(&r, x.t.n_dims, x.a_count, (int64_t)e, false, x.a_stride);
        x.src = (uint8_t *)malloc(x.n_src);
        flat = (uint8_t *)malloc(65536);
        if (!x.src || !flat) exit(2);
        for (cut = 0; cut < (int64_t)x.n_src; cut++) x.src[cut] = (uint8_t)t_next(&r);
        x.a.mem = x.src;
        do memcpy(flat + e * (size_t)n++, case_src(&x, at), e);
        while (odometer(x.t.n_dims, x.shape, at));
        t_little(flat, e * (size_t)n, ckr__dtypes[from].swap);
        ckr__digest_add(tables, want, 0, flat, e * (size_t)n);
        lane_open(&w, tables, sums);
        memcpy(lo, x.start, sizeof lo);
        memcpy(lc, x.count, sizeof lc);
        axis = x.t.n_dims ? t_range(&r, 0, (int64_t)x.t.n_dims - 1) : 0;
        cut = x.t.n_dims ? t_range(&r, 0, x.shape[axis]) : 0;
        lo[axis] = cut;                                /* second part first */
        lc[axis] = x.shape[axis] - cut;
        if (lc[axis] > 0 || !x.t.n_dims) {
            CHECK(ckr__op_make(&t_ctx, &op, &x.t, lo, lc, &x.a, NULL, NULL));
            CHECK(ckr__op_run(&w, &op, 0, UINT64_MAX / 2, NULL));
        }
        lo[axis] = 0;
        lc[axis] = cut;
        if (cut > 0) {
            uint64_t a, step = e * (uint64_t)t_range(&r, 1, 40), all = e * (uint64_t)n;
            CHECK(ckr__op_make(&t_ctx, &op, &x.t, lo, lc, &x.a, NULL, NULL));
            for (a = 0; a < all; a += step) CHECK(ckr__op_run(&w, &op, a, a + step, NULL));
        }
        t_check(sums[0][0] == want[0] && sums[0][1] == want[1], __FILE__, __LINE__,
                "case %d: %s, %u dims", i, ckr_dtype_name(from), x.t.n_dims);
        free(w.temp);
        free(flat);
        case_free(&x);
        ckr__ctx_free(&t_ctx);
    }
    free(tables);
}

/* Comparison counts exactly the elements that differ, wherever both sides keep them. */
static void comparisons(void)
{
    t_rng r = { 9 };
    int i;
    ckr__lane w;
    lane_open(&w, NULL, NULL);
    for (i = 0; i < (int)t_times(5000, 500); i++) {
        run_case x;
        ckr__op op;
        ckr_piece b;
        int64_t at[MAX_DIM] = { 0 };
        uint64_t wrong = 0;
        ckr_dtype t = random_dtype(&r);
        ckr__ctx_init(&t_ctx, NULL, NULL, &t_err);
        case_make(&x, &r, t, t);
        b = x.d;
        b.mem = x.dst;
        do {
            uint8_t *p = x.dst + case_dst(&x, at);
            memcpy(p, case_src(&x, at), ckr_dtype_size(t));
            if (t_range(&r, 0, 9) == 0) {
                p[t_range(&r, 0, (int64_t)ckr_dtype_size(t) - 1)] ^= (uint8_t)t_range(&r, 1, 255);
                wrong++;
            }
        } while (odometer(x.t.n_dims, x.count, at));
        w.apart.n_differ = 0;
        CHECK(ckr__op_make(&t_ctx, &op, &x.t, x.start, x.count, &x.a, &b, NULL));
        CHECK(ckr__op_run(&w, &op, 0, UINT64_MAX / 2, NULL));
        CHECK_INT(w.apart.n_differ, wrong);
        case_free(&x);
        ckr__ctx_free(&t_ctx);
    }
    free(w.temp);
}

static void ulps(void)
{
    const float f[] = { 1.0f, -1.0f, 0.0f, -0.0f };
    float g = ckr__f32_of_bits(ckr__bits_of_f32(1.0f) + 3);
    CHECK_INT(ckr__ulp_distance(CKR_DTYPE_F32, (const uint8_t *)&f[0], (const uint8_t *)&g), 3);
    CHECK_INT(ckr__ulp_distance(CKR_DTYPE_F32, (const uint8_t *)&f[2], (const uint8_t *)&f[3]), 0);
    CHECK_INT(ckr__ulp_distance(CKR_DTYPE_F32, (const uint8_t *)&f[0], (const uint8_t *)&f[1]),
              2 * (int64_t)0x3f800000);
}

/* Jobs over lanes: one op over several windows, any number of threads, the same bytes. */
static void jobs_any_threads(void)
{
    uint32_t threads;
    int64_t shape[2] = { 3000, 1001 }, stride[2] = { 4, 12000 }, zero[2] = { 0, 0 };
    size_t bytes = (size_t)(shape[0] * shape[1]) * 4, i;
    uint8_t *src = (uint8_t *)malloc(bytes), *dst = (uint8_t *)malloc(bytes);
    if (!src || !dst) exit(2);
    for (i = 0; i < bytes; i++) src[i] = (uint8_t)(i * 2654435761u >> 13);
    for (threads = (uint32_t)t_times(1, 3); threads <= 5; threads += (uint32_t)t_times(2, 3)) {
        ckr_env env = CKR_ZERO;
        ckr_tensor t;
        ckr_piece a;
        ckr__op op;
        ckr__jobs jobs;
        ckr__crew crew;
        int64_t wrong = 0, x, y;
        env.parallel.n_threads = threads;
        ckr__ctx_init(&t_ctx, &env, NULL, &t_err);
        memset(&t, 0, sizeof t);
        memset(&a, 0, sizeof a);
        memset(&jobs, 0, sizeof jobs);
        t.name = "t";
        t.slot = "";
        t.dtype = a.dtype = CKR_DTYPE_F32;
        t.n_dims = a.n_dims = 2;
        t.shape = a.count = shape;
        a.start = zero;
        a.stride = stride;     /* a transposed source */
        a.file = CKR_NO_FILE;
        a.mem = src;
        a.big_endian = ckr__host_big_endian();
        memset(dst, 0, bytes);
        CHECK(ckr__op_make(&t_ctx, &op, &t, zero, shape, &a, NULL, NULL));
        CHECK(ckr__jobs_add(&t_ctx, &jobs, &op, dst));
        CHECK_INT(jobs.n, (bytes + CKR__WINDOW - 1) / CKR__WINDOW);
        CHECK_OK(ckr__crew_make(&crew, &t_ctx, &t_ctx, NULL, 0), &t_err);
        CHECK_OK(ckr__jobs_run(&jobs, &crew), &t_err);
        for (x = 0; x < shape[0]; x++)
            for (y = 0; y < shape[1]; y++)
                wrong += memcmp(dst + 4 * (x * shape[1] + y), src + 4 * (y * shape[0] + x), 4) != 0;
        CHECK_INT(wrong, 0);
        ckr__crew_free(&crew);
        ckr__ctx_free(&t_ctx);
    }
    free(src);
    free(dst);
}

static uint64_t t_reads;

static int32_t counted_read(void *user, void *file, uint64_t offset, void *dst, size_t n)
{
    t_reads++;
    return ckr__os_read(user, file, offset, dst, n);
}

/* Runs that are read to where they go: from any byte of a file to any of memory, ending on either
   side of what is read at a time, with a digest and without, nothing touched around them; through
   the caller's own I/O in as few calls as can be. */
static void long_runs(void)
{
    static const int64_t add[] = { -65, -64, -1, 0, 1, 63, 64, 65 };
    enum { ROOM = 3 * CKR__BLOCK + 1024 };
    char path[600];
    const char *dir = t_tmpdir();
    FILE *f;
    uint8_t *src = (uint8_t *)malloc(ROOM), *dst = (uint8_t *)malloc(ROOM);
    ckr__digest_tables *tables = (ckr__digest_tables *)malloc(sizeof *tables);
    t_rng r = { 11 };
    uint32_t i, file;
    if (!src || !dst || !tables) exit(2);
    ckr__digest_tables_init(tables);
    for (i = 0; i < ROOM; i++) src[i] = (uint8_t)t_next(&r);
    snprintf(path, sizeof path, "%s/run", dir);
    f = fopen(path, "wb");
    if (!f || fwrite(src, 1, ROOM, f) != ROOM || fclose(f) != 0) exit(2);
    for (i = 0; i < t_times(1200, 60); i++) {
        const int64_t n = (int64_t)CKR__BLOCK * t_range(&r, 1, 3) + add[i % 8], from = i / 8 % 71;
        const int64_t to = t_range(&r, 0, 200), zero = 0, one = 1;
        const bool own = t_range(&r, 0, 3) == 0, sum = t_range(&r, 0, 1) == 0;
        uint64_t sums[1][2] = { { 0, 0 } }, want[2] = { 0, 0 }, at;
        ckr__crew crew;
        ckr_tensor t;
        ckr_piece a;
        ckr__op op;
        bool clean = true;
        ckr__ctx_init(&t_ctx, NULL, NULL, &t_err);
        if (own) t_ctx.env.io.read_fn = counted_read;
        memset(&t, 0, sizeof t);
        memset(&a, 0, sizeof a);
        t.name = "t";
        t.slot = "param";
        t.dtype = a.dtype = CKR_DTYPE_U8;
        t.n_dims = a.n_dims = 1;
        t.shape = a.count = &n;
        a.start = &zero;
        a.stride = &one;
        a.offset = (uint64_t)from;
        CHECK_OK(ckr__file_open(&t_ctx, path, &file), &t_err);
        a.file = file;
        CHECK_OK(ckr__crew_make(&crew, &t_ctx, &t_ctx, NULL, 0), &t_err);
        crew.lanes[0].sums = sum ? sums : NULL;
        crew.lanes[0].tables = tables;
        memset(dst, 0xcc, ROOM);
        t_reads = 0;
        CHECK(ckr__op_make(&t_ctx, &op, &t, &zero, &n, &a, NULL, NULL));
        CHECK(ckr__op_run(&crew.lanes[0], &op, 0, (uint64_t)n, dst + to));
        for (at = 0; at < ROOM; at++)
            if ((int64_t)at < to || (int64_t)at >= to + n) clean = clean && dst[at] == 0xcc;
        t_check(clean && !memcmp(dst + to, src + from, (size_t)n), __FILE__, __LINE__,
                "%lld bytes from %lld to %lld", (long long)n, (long long)from, (long long)to);
        if (own && !sum) CHECK_INT(t_reads, 1);
        CHECK_INT(crew.lanes[0].bytes_read, n);
        ckr__digest_add(tables, want, 0, src + from, (uint64_t)n);
        if (sum) CHECK(sums[0][0] == want[0] && sums[0][1] == want[1]);
        crew.lanes[0].sums = NULL;
        ckr__crew_free(&crew);
        ckr__ctx_free(&t_ctx);
    }
    t_remove_tree(dir);
    free(tables);
    free(src);
    free(dst);
}

static void boxes_meet(void)
{
    int64_t s1, c1, s2, c2, start, count, k;
    for (s1 = 0; s1 < 5; s1++)
        for (c1 = 0; c1 < 5; c1++)
            for (s2 = 0; s2 < 5; s2++)
                for (c2 = 0; c2 < 5; c2++) {
                    int64_t n = 0, first = -1;
                    bool any = ckr__box_meet(1, &s1, &c1, &s2, &c2, &start, &count);
                    for (k = 0; k < 10; k++)
                        if (k >= s1 && k < s1 + c1 && k >= s2 && k < s2 + c2) {
                            if (!n++) first = k;
                        }
                    CHECK(any == (n > 0));
                    if (any) CHECK(start == first && count == n);
                }
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    RUN(boxes_meet);
    RUN(copies);
    RUN(digests);
    RUN(comparisons);
    RUN(ulps);
    RUN(jobs_any_threads);
    RUN(long_runs);
    return t_end();
}
