/* Tensors spread over ranks (tests/data/dist, whose elements are their numbers in the whole): the
   boxes of DTensors on many meshes, of older torch's too, and of ShardedTensors; what is wrong with
   one is its fault; parts of two ranks together; DTensors that are written, read again. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "memio.h"

#define DATA "tests/data/dist"

static memio disk;

static ckr_ckpt *opened(const char *path, const ckr_node **root)
{
    ckr_ckpt *c = NULL;
    ckr_error e;
    if (!CHECK_OK(ckr_tree_open(path, NULL, &c, &e), &e)) return NULL;
    *root = ckr_ckpt_root(c);
    return c;
}

static const ckr_view *view_in(const ckr_node *root, const char *name)
{
    const ckr_node *n = ckr_node_get(root, name);
    const bool dist = n && n->kind == CKR_NODE_TENSOR && n->u.view->dist;
    return t_check(dist, __FILE__, __LINE__, "%s has no dist", name) ? n->u.view : NULL;
}

/* "4:6 0:3" */
static void box_text(const ckr_view *v, const ckr_shard *s, char *out, size_t cap)
{
    size_t n = 0;
    uint32_t d;
    out[0] = 0;
    for (d = 0; d < v->n_dims; d++)
        n += (size_t)snprintf(out + n, cap - n, d ? " %lld:%lld" : "%lld:%lld",
                              (long long)s->start[d], (long long)(s->start[d] + s->count[d]));
}

/* Each element of the local view is its number in the whole. */
static void numbers(const ckr_ckpt *c, const char *name, const ckr_view *v, const ckr_shard *s)
{
    int64_t numel = 1, i, rest, at;
    uint32_t d;
    float *x;
    ckr_error e;
    for (d = 0; d < v->n_dims; d++) numel *= s->count[d];
    x = (float *)calloc((size_t)numel + 1, 4);
    if (!x) exit(2);
    if (numel && v->dtype == CKR_DTYPE_F32 &&
        CHECK_OK(ckr_view_read(c, s->local, 0, numel, x, &e), &e))
        for (i = 0; i < numel; i++) {
            int64_t step = 1;
            for (d = v->n_dims, rest = i, at = 0; d-- > 0; step *= v->shape[d]) {
                at += (s->start[d] + rest % s->count[d]) * step;
                rest /= s->count[d];
            }
            if (ckr__host_big_endian()) ckr__swap_bytes((uint8_t *)(void *)&x[i], 4, 4);
            t_check(x[i] == (float)at, __FILE__, __LINE__, "%s: element %lld is %g", name,
                    (long long)i, (double)x[i]);
        }
    free(x);
}

static void check_box(const ckr_ckpt *c, const char *name, const ckr_view *v, const char *box)
{
    char text[80];
    if (!v || !CHECK_STR(v->dist->fault, NULL) || !CHECK_INT(v->dist->n_shards, 1)) return;
    CHECK(v->meta && v->dist->shards->local);
    CHECK_INT(v->dist->shards->rank, v->dist->rank);
    box_text(v, v->dist->shards, text, sizeof text);
    t_check(!strcmp(text, box), __FILE__, __LINE__, "%s: %s, expected %s", name, text, box);
    numbers(c, name, v, v->dist->shards);
}

static void live(void)
{
    static const struct { const char *name, *box[2], *ranks; } cases[] = {
        { "even", { "4:6 0:3", "6:8 0:3" }, "0123" },
        { "uneven", { "6:9 0:3", "9:11 0:3" }, "0123" },
        { "few", { "2:2 0:3", "2:2 0:3" }, "0123" },
        { "unnamed", { "4:6", "6:6" }, "0123" },
        { "hsdp", { "0:3 0:4", "3:5 0:4" }, "0123" },
        { "strided", { "2:4 0:3", "6:8 0:3" }, "0123" },
        { "both", { "4:7 0:3", "4:7 3:5" }, "0123" },
        { "twice", { "5:7 0:2", "7:9 0:2" }, "0123" },
        { "copies", { "0:3 0:2", "0:3 0:2" }, "0123" },
        { "scalar", { "", "" }, "0123" },
        { "tp", { "0:4 0:3", "0:4 3:6" }, "23" },
        { "dp", { "2:4 0:6", "2:4 0:6" }, NULL },
        { "one", { "3:6 0:1", "3:6 1:2" }, "0123" },
        { "parameter", { "4:6 0:3", "6:8 0:3" }, "0123" },
        { "waiting", { "4:6 0:3", "6:8 0:3" }, "0123" },
        { "extra", { "4:6 0:3", "6:8 0:3" }, "0123" } };
    size_t i, k, r;
    for (r = 0; r < 2; r++) {
        const ckr_node *root = NULL;
        ckr_ckpt *c = opened(r ? DATA "/live_r3.pt" : DATA "/live_r2.pt", &root);
        if (!c) return;
        for (i = 0; i < sizeof cases / sizeof *cases; i++) {
            const ckr_view *v = view_in(root, cases[i].name);
            const char *ranks = cases[i].ranks ? cases[i].ranks : r ? "13" : "02";
            check_box(c, cases[i].name, v, cases[i].box[r]);
            if (!v || !v->dist->mesh) continue;
            CHECK_INT(v->dist->rank, 2 + (long long)r);
            CHECK_INT(v->dist->world, 4);
            CHECK_STR(v->dist->mesh->device_type, "cpu");
            CHECK_INT(ckr__mesh_size(v->dist->mesh), strlen(ranks));
            for (k = 0; ranks[k]; k++) CHECK_INT(v->dist->mesh->ranks[k], ranks[k] - '0');
        }
        CHECK(view_in(root, "parameter")->requires_grad);
        CHECK(view_in(root, "unnamed")->dist->mesh->names == NULL);
        CHECK_STR(view_in(root, "hsdp")->dist->mesh->names[1], "tp");
        CHECK(view_in(root, "hsdp")->dist->mesh == view_in(root, "both")->dist->mesh);
        CHECK_INT(view_in(root, "strided")->dist->placements[0].kind, CKR_PLACE_STRIDED);
        CHECK_INT(view_in(root, "strided")->dist->placements[0].split_factor, 2);
        CHECK_INT(view_in(root, "tp")->dist->placements[0].dim, 1);
        CHECK_STR(ckr_node_str(ckr_node_get(ckr_node_get(root, "extra")->attrs, "note")), "kept");
        CHECK(ckr_node_get(ckr_node_get(root, "extra")->attrs, "_spec") != NULL);
        ckr_ckpt_close(c);
    }
}

static void sharded(void)
{
    static const char *const boxes[] = { "0:1 0:4", "1:2 0:4", "2:3 0:4", "3:4 0:4",
                                         "4:5 0:4", "5:6 0:4", "6:7 0:4", "7:10 0:4" };
    const ckr_node *root = NULL;
    ckr_ckpt *c = opened(DATA "/live_r3.pt", &root);
    const ckr_view *v = c ? view_in(root, "sharded") : NULL;
    char text[80];
    uint64_t i;
    if (!v || !CHECK_INT(v->dist->n_shards, 8) || !CHECK_STR(v->dist->fault, NULL)) return;
    CHECK(v->dist->mesh == NULL && v->dist->n_placements == 0);
    CHECK_INT(v->dist->rank, 3);
    CHECK_INT(v->dist->world, 4);
    for (i = 0; i < 8; i++) {
        const ckr_shard *s = &v->dist->shards[i];
        box_text(v, s, text, sizeof text);
        CHECK_STR(text, boxes[i]);
        CHECK_INT(s->rank, i / 2);
        CHECK(!s->local == (i < 6));
        if (s->local) numbers(c, "sharded", v, s);
    }
    CHECK_INT(ckr_node_get(root, "sharded")->attrs->count, 5);         /* the state is there */
    ckr_ckpt_close(c);
}

static void older(void)
{
    const ckr_node *root = NULL;
    ckr_ckpt *c = opened(DATA "/older.pt", &root);
    if (!c) return;
    check_box(c, "tensor", view_in(root, "tensor"), "3:5 0:4");
    check_box(c, "layout", view_in(root, "layout"), "3:5 0:4");
    check_box(c, "line", view_in(root, "line"), "9:11 0:3");
    CHECK_INT(view_in(root, "tensor")->dist->rank, 3);         /* by its coordinates          */
    CHECK_STR(view_in(root, "tensor")->dist->mesh->names[0], "dp");
    CHECK_INT(view_in(root, "layout")->dist->mesh->ranks[3], 3);
    ckr_ckpt_close(c);
}

static void faults(void)
{
    static const struct { const char *name, *fault; } cases[] = {
        { "shape", "another shape than its part" }, { "dims", "another shape than its part" },
        { "dtype", "another dtype" },               { "meta", "no strided elements" },
        { "none", "no strided elements" },          { "tensor_meta", "tensor_meta has another" },
        { "no_mesh", "no mesh" },                   { "no_places", "not one placement" },
        { "places", "not one placement" },          { "place", "none of torch's" },
        { "dim", "along no dimension" },            { "split", "not adjacent" },
        { "split_zero", "not adjacent" },           { "rank", "none of its mesh" },
        { "rank_none", "does not tell which rank" }, { "coordinate", "outside its mesh" },
        { "coordinates", "do not fit its mesh" },   { "ranks", "does not fit its ranks" },
        { "ranks_text", "does not fit its ranks" }, { "ranks_none", "no device type, ranks" },
        { "device", "no device type" },             { "names", "not one name" },
        { "name", "is no text" },                   { "layout", "or layout" },
        { "layout_big", "or layout" },              { "layout_far", "does not fit its ranks" },
        { "layout_many", "or layout" } };
    const ckr_node *root = NULL;
    ckr_ckpt *c = opened(DATA "/faults.pt", &root);
    size_t i;
    if (!c) return;
    CHECK_INT(root->count, sizeof cases / sizeof *cases);
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ckr_view *v = view_in(root, cases[i].name);
        const char *fault = v && v->dist->fault ? v->dist->fault : "";
        t_check(strstr(fault, cases[i].fault) != NULL, __FILE__, __LINE__, "%s: %s",
                cases[i].name, fault);
    }
    ckr_ckpt_close(c);
    c = opened(DATA "/live_r2.pt", &root);
    if (!c) return;
    CHECK(strstr(view_in(root, "gaps")->dist->fault, "not adjacent") != NULL);
    CHECK(strstr(view_in(root, "partial")->dist->fault, "Partial") != NULL);
    ckr_ckpt_close(c);
}

/* The parts of ranks 2 and 3 in one state. */
static void together(void)
{
    static const struct { const char *name; int pieces, replicas; } cases[] = {
        { "hsdp", 2, 2 }, { "both", 2, 0 }, { "copies", 2, 2 }, { "few", 0, 0 }, { "even", 2, 0 },
        { "sharded", 4, 0 }, { "tp", 2, 0 } };
    ckr_ckpt *c = NULL;
    ckr_error e;
    ckr_state s;
    ckr__load load;
    size_t i;
    uint64_t k;
    int r;
    if (!CHECK_OK(ckr_ckpt_create(NULL, &c, &e), &e)) return;
    ckr__ctx_enter(&c->ctx, &e);
    ckr__state_init(&s, NULL);
    ckr__load_init(&load, &c->ctx, &s, CKR_ITEM_WRITE_NODE);
    for (r = 2; r < 4; r++) {
        ckr_node *root = NULL;
        ckr_format format;
        ckr__part p;
        uint32_t file;
        if (!CHECK_OK(ckr__file_open(&c->ctx, r == 2 ? DATA "/live_r2.pt" : DATA "/live_r3.pt",
                                     &file), &e) ||
            !CHECK_OK(ckr__doc_load(&c->ctx, file, &format, &root), &e)) return;
        memset(&p, 0, sizeof p);
        p.slot = "param";
        p.rank = -1;
        for (i = 0; i < sizeof cases / sizeof *cases; i++) {
            p.name = cases[i].name;
            p.view = ckr_node_get(root, p.name)->u.view;
            CHECK(ckr__part_add(&load, &p) != NULL);
        }
        p.name = "gaps";
        p.view = ckr_node_get(root, "gaps")->u.view;
        CHECK(ckr__part_add(&load, &p) == NULL && strstr(e.text, "not adjacent"));
        ckr__ctx_enter(&c->ctx, &e);
    }
    CHECK_INT(s.n_tensors, sizeof cases / sizeof *cases);
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ckr_tensor *t = ckr__held_of(&load, cases[i].name)->tensor;
        int replicas = 0;
        for (k = 0; k < t->n_pieces; k++) replicas += t->pieces[k].replica;
        t_check((int)t->n_pieces == cases[i].pieces && replicas == cases[i].replicas, __FILE__,
                __LINE__, "%s: %d pieces, %d replicas", cases[i].name, (int)t->n_pieces, replicas);
    }
    CHECK_OK(ckr__load_done(&load), &e);
    ckr_ckpt_close(c);
}

/* Each allocation fails once: an error, and nothing is left. */
static void memory_ends(void)
{
    static const char *const paths[] = { DATA "/live_r3.pt", DATA "/older.pt" };
    size_t i;
    for (i = 0; i < 2; i++) {
        unsigned long at = 0;
        bool met = true;
        while (met && at < 10000) {
            faulty f;
            ckr_env mem = faulty_env(&f, ckr__default_io());
            ckr_open_desc d = CKR_ZERO;
            ckr_ckpt *c = NULL;
            ckr_error e;
            ckr_result r;
            d.env = &mem;
            f.kind = FAULT_ALLOC;
            f.at = ++at;
            r = ckr_tree_open(paths[i], &d, &c, &e);
            met = f.failed != 0;
            CHECK_INT(r, met ? CKR_E_NOMEM : CKR_OK);
            if (r == CKR_OK) ckr_ckpt_close(c);
            CHECK(f.blocks == 0 && f.handles == 0 && !f.bad_size);
        }
        CHECK(at > 5 && !met);
    }
}

/* Writing ----------------------------------------------------------------- */

/* The bytes of an entry that is a box of a row-major tensor in memory. */
static void entry_bytes(const ckr_entry *e, uint8_t *out)
{
    const size_t item = ckr_dtype_size(e->dtype);
    uint64_t i, k, n;
    uint32_t d;
    memset(out, 0, (size_t)e->n_bytes);
    for (i = 0; i < e->n_binds; i++) {
        const ckr_piece *to = &e->binds[i].piece, *from = &e->binds[i].tensor->pieces[0];
        for (n = 1, d = 0; d < to->n_dims; d++) n *= (uint64_t)to->count[d];
        for (k = 0; k < n; k++) {
            int64_t src = (int64_t)from->offset, dst = (int64_t)to->offset, rest = (int64_t)k;
            for (d = to->n_dims; d-- > 0; rest /= to->count[d]) {
                const int64_t x = rest % to->count[d];
                dst += x * to->stride[d];
                src += (to->start[d] + x - from->start[d]) * from->stride[d];
            }
            memcpy(out + dst, (const uint8_t *)from->mem + src, item);
        }
    }
}

static void file_put(ckr__ctx *c, ckr__out_file *f, const char *path)
{
    ckr__image *img = NULL;
    uint8_t *bytes, **of;
    uint64_t i, k;
    if (!CHECK_OK(ckr__image_make(c, f, &img), c->err)) return;
    bytes = (uint8_t *)calloc((size_t)img->size + 1, 1);
    of = (uint8_t **)calloc((size_t)f->n_entries + 1, sizeof *of);
    if (!bytes || !of) exit(2);
    for (i = 0; i < f->n_entries; i++) {
        ckr_entry *e = f->entries[i];
        of[i] = (uint8_t *)malloc((size_t)e->n_bytes + 1);
        if (!of[i]) exit(2);
        entry_bytes(e, of[i]);
        e->crc = ckr__crc32(0, of[i], (size_t)e->n_bytes);
    }
    for (i = 0; i < img->n_segs; i++)
        if (img->segs[i].late) ckr__late_fill(f, &img->segs[i], (uint8_t *)img->segs[i].bytes);
    for (i = 0; i < img->n_segs; i++) {
        const ckr__seg *s = &img->segs[i];
        const uint8_t *from = s->bytes;
        for (k = 0; !from && k < f->n_entries; k++) if (f->entries[k] == s->entry) from = of[k];
        if (from && s->size) memcpy(bytes + s->offset, from, (size_t)s->size);
    }
    memio_put(&disk, path, bytes, (size_t)img->size);
    for (i = 0; i < f->n_entries; i++) free(of[i]);
    free(of);
    free(bytes);
}

typedef struct written_case {
    uint32_t      n_mesh;
    int64_t       mesh[3];
    ckr_placement places[3];
    uint32_t      n_dims;
    int64_t       shape[2];
} written_case;

/* The file of a rank with two DTensors of that placement, in the form of `like`. */
static void write_rank(ckr__ctx *c, const written_case *x, int64_t rank, const ckr_node *like)
{
    static const char *const names[] = { "a", "b", "c" };
    const ckr_mesh *m = ckr__mesh_new(c, "cuda", x->n_mesh, x->mesh, names);
    ckr__block *box = ckr__dist_block(c, m, rank, x->places, x->n_dims, x->shape),
               *all = ckr__block_whole(c, x->n_dims, x->shape);
    int64_t numel = 1, part = 1, i, stride[2];
    float data[256];
    ckr__out out;
    ckr__out_file *f;
    ckr__dist_out w;
    ckr_tensor *t = CKR__NEW(c, ckr_tensor);
    ckr_view v;
    if (!CHECK(m && box && all && t)) return;
    memset(&out, 0, sizeof out);
    memset(&v, 0, sizeof v);
    out.c = c;
    f = ckr__out_file_add(&out, "w", CKR_FORMAT_TORCH_ZIP);
    f->root = ckr__make(c, CKR_NODE_ODICT);
    for (i = 0; i < (int64_t)x->n_dims; i++) {
        numel *= x->shape[i];
        part *= box->shape[i];
    }
    for (i = 0; i < numel; i++) data[i] = (float)i;
    if (ckr__host_big_endian()) ckr__swap_bytes((uint8_t *)(void *)data, (size_t)numel * 4, 4);
    t->dtype = v.dtype = CKR_DTYPE_F32;
    t->n_dims = v.n_dims = x->n_dims;
    t->shape = v.shape = x->shape;
    ckr__strides(x->n_dims, x->shape, stride);
    v.stride = stride;
    v.file = CKR_NO_FILE;
    v.bytes = (const uint8_t *)data;
    v.data_bytes = 4 * (uint64_t)numel;
    CHECK(ckr__read_view(c, t, all, &v, -1, false));
    CHECK(ckr__dist_begin(&w, c, f, m, rank, like));
    for (i = 0; i < 2; i++) {
        ckr_node *n = ckr__entry_new(c, f, "x", CKR_DTYPE_F32, x->n_dims, box->shape);
        CHECK(n && ckr__bind_flat(c, n->u.entry, t, false, box, 0, part, 0));
        CHECK(ckr__node_set(c, f->root, i ? "y" : "x",
                            ckr__dist_put(&w, x->places, x->n_dims, x->shape, n)));
    }
    file_put(c, f, "w");
}

static void read_rank(const written_case *x, int64_t rank, bool like)
{
    const ckr_node *root = NULL, *mesh;
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_error e;
    const ckr_view *v;
    ckr_env mem = CKR_ZERO;
    uint32_t k;
    mem.io = memio_io(&disk);
    d.env = &mem;
    if (!CHECK_OK(ckr_tree_open("w", &d, &c, &e), &e)) return;
    root = ckr_ckpt_root(c);
    v = view_in(root, "x");
    if (v && CHECK_STR(v->dist->fault, NULL)) {
        CHECK_INT(v->dist->rank, rank);
        CHECK_STR(v->dist->mesh->device_type, "cuda");
        CHECK_INT(v->dist->n_placements, x->n_mesh);
        for (k = 0; k < x->n_mesh; k++) {
            CHECK_INT(v->dist->mesh->shape[k], x->mesh[k]);
            CHECK_INT(v->dist->mesh->names[k][0], 'a' + (int)k);
            CHECK_INT(v->dist->placements[k].kind, x->places[k].kind);
            CHECK_INT(v->dist->placements[k].split_factor, x->places[k].split_factor);
        }
        numbers(c, "x", v, v->dist->shards);
        CHECK(view_in(root, "y")->dist->mesh == v->dist->mesh);        /* one object of both */
        mesh = ckr__dist_attr(ckr__dist_attr(ckr_node_get(root, "x"), "_spec"), "mesh");
        CHECK(!ckr__dist_attr(mesh, "device_type") == !like);
        CHECK(!ckr__dist_attr(mesh, "_flatten_rank_map") == like);
    }
    ckr_ckpt_close(c);
}

static void write_and_read(void)
{
    static const ckr_placement R = { CKR_PLACE_REPLICATE, -1, 1 }, S0 = { CKR_PLACE_SHARD, 0, 1 },
                               S1 = { CKR_PLACE_SHARD, 1, 1 }, T = { CKR_PLACE_STRIDED, 0, 2 };
    written_case cases[6];
    ckr_ckpt *c = NULL;
    const ckr_node *root = NULL;
    ckr_error e;
    int64_t rank;
    size_t i, k, n;
    memset(cases, 0, sizeof cases);
    for (i = 0; i < 6; i++) {
        cases[i].n_mesh = i < 2 ? 1 : i < 5 ? 2 : 3;
        cases[i].mesh[0] = i < 2 ? 5 : 2;
        cases[i].mesh[1] = i == 4 ? 1 : 2;
        cases[i].mesh[2] = 2;
        cases[i].places[0] = i == 2 || i == 5 ? R : i == 3 ? T : S0;
        cases[i].places[1] = i == 4 ? S1 : i == 5 ? T : S0;
        cases[i].places[2] = S0;
        cases[i].n_dims = i == 1 ? 1 : 2;
        cases[i].shape[0] = i == 1 ? 6 : 8 + (int64_t)i % 3;
        cases[i].shape[1] = 3;
    }
    for (k = 0; k < 2; k++) {
        c = opened(DATA "/older.pt", &root);
        if (!c) return;
        ckr__ctx_enter(&c->ctx, &e);
        for (i = 0; i < 6; i++) {
            for (n = 1, rank = 0; rank < (int64_t)cases[i].n_mesh; rank++)
                n *= (size_t)cases[i].mesh[rank];
            for (rank = 0; rank < (int64_t)n; rank++) {
                write_rank(&c->ctx, &cases[i], rank, k ? ckr_node_get(root, "tensor") : NULL);
                read_rank(&cases[i], rank, k == 1);
            }
        }
        ckr_ckpt_close(c);
    }
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    RUN(live);
    RUN(sharded);
    RUN(older);
    RUN(faults);
    RUN(together);
    RUN(memory_ends);
    RUN(write_and_read);
    memio_free(&disk);
    return t_end();
}
