/* parse.c PT ST: opening a file and looking at every tensor through the API, files in the page
   cache. cc -std=c99 -O2 -I. -o parse bench/parse.c -lm -lpthread */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "bench.h"

static volatile uint64_t bench_sink;

/* As a tree: every key, dtype, shape and place of the root's dictionary. */
static void list_tree(void *path)
{
    ckr_error err = CKR_ZERO;
    ckr_ckpt *c;
    const ckr_node *root;
    uint64_t i, sum = 0;
    if (ckr_tree_open((const char *)path, NULL, &c, &err) != CKR_OK) bench_fail("tree", &err);
    root = ckr_ckpt_root(c);
    for (i = 0; i < root->count; i++) {
        const ckr_node *key = root->u.items[2 * i], *value = root->u.items[2 * i + 1];
        const ckr_view *v = value->u.view;
        if (value->kind != CKR_NODE_TENSOR) continue;
        sum +=
            (uint64_t)key->u.str[0] + v->data_offset + (uint64_t)v->shape[0] + (uint64_t)v->dtype;
    }
    bench_sink = sum;
    ckr_ckpt_close(c);
}

/* As a run state: names, slots, pieces. */
static void list_state(void *path)
{
    ckr_error err = CKR_ZERO;
    ckr_ckpt *c;
    const ckr_state *s;
    uint64_t i, sum = 0;
    if (ckr_ckpt_open((const char *)path, NULL, &c, &err) != CKR_OK) bench_fail("open", &err);
    s = ckr_ckpt_state(c);
    for (i = 0; i < s->n_tensors; i++) {
        const ckr_tensor *t = s->tensors[i];
        sum += (uint64_t)t->name[0] + (uint64_t)t->shape[0] + t->pieces[0].offset;
    }
    bench_sink = sum;
    ckr_ckpt_close(c);
}

typedef struct bench_case {
    const char *what;
    int         file;          /* index in argv                                         */
    void      (*fn)(void *arg);
    double      ms, mib, peak; /* limits; what was measured                              */
} bench_case;

/* The limit is for a warm process. The first calls of one also pay the system for memory that it
   has not given out before (on a virtual machine more than everything else together), until the
   allocator keeps what it has: they have a row of their own. */
static void measure(const bench_case *k, char *path)
{
    char text[160];
    bench_times b, first;
    int i, n = bench_repeats(25);
    memset(&b, 0, sizeof b);
    memset(&first, 0, sizeof first);
    for (i = 0; i < 20; i++) {
        double t = bench_now();
        k->fn(path);
        bench_add(&first, bench_now() - t);
    }
    for (i = 0; i < n; i++) {
        double t = bench_now();
        k->fn(path);
        bench_add(&b, bench_now() - t);
    }
    snprintf(text, sizeof text, "%s: time", k->what);
    bench_row(text, &b, 1e3, "ms", k->ms);
    snprintf(text, sizeof text, "%s: time, the first 20 of a process", k->what);
    bench_row(text, &first, 1e3, "ms", 0);
    snprintf(text, sizeof text, "%s: memory", k->what);
    bench_value(text, k->peak, "MiB", k->mib);
}

int main(int argc, char **argv)
{
    static bench_case cases[] = {
        { "70,000-tensor .pt as a tree", 1, list_tree, 30, 0, 0 },
        { "70,000-tensor .pt as a run state", 1, list_state, 30, 0, 0 },
        { "100,000-tensor safetensors as a tree", 2, list_tree, 20, 40, 0 },
        { "100,000-tensor safetensors as a run state", 2, list_state, 20, 40, 0 }
    };
    size_t i, n = sizeof cases / sizeof *cases;
    bench_clock = CLOCK_PROCESS_CPUTIME_ID;
    if (argc != 3) {
        fprintf(stderr, "usage: parse FILE.pt FILE.safetensors\n");
        return 2;
    }
    /* memory first: a child inherits what its parent has allocated, and would not ask for it again
       */
    for (i = 0; i < n; i++) cases[i].peak = bench_peak(cases[i].fn, argv[cases[i].file]);
    bench_head("Listing");
    for (i = 0; i < n; i++) measure(&cases[i], argv[cases[i].file]);
    return 0;
}
