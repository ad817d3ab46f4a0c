/* JSON: what was read is written again, and reading that gives the same text.
   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. -Itests \
       tests/fuzz/fuzz_json.c -o fuzz_json -pthread -lm
   ./fuzz_json -max_len=65536 tests/fuzz/corpus/json */
#include "fuzz.h"

/* The tree as JSON; false when it holds what JSON cannot. */
static bool put(ckr__buf *b, ckr_ckpt *c, const ckr_node *n)
{
    ckr_error e;
    bool ok;
    ckr__ctx_enter(&c->ctx, &e);
    memset(b, 0, sizeof *b);
    b->c = &c->ctx;
    ok = ckr__json_put(b, n, 0, true) == CKR_OK && !b->failed;
    c->ctx.err = &c->ctx.own_err;
    return ok;
}

static void again(ckr_ckpt *c)
{
    ckr__buf a, b;
    ckr_node *root = NULL;
    if (put(&a, c, ckr_ckpt_root(c))) {
        if (ckr__json_parse(&c->ctx, "again", a.data, a.size, CKR__JSON_PYTHON, &root) != CKR_OK)
            abort();
        if (!put(&b, c, root) || a.size != b.size || memcmp(a.data, b.data, a.size)) abort();
        ckr__buf_free(&b);
    }
    ckr__buf_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size <= 65536) fuzz_tree("/f.json", data, size, again);
    return 0;
}
