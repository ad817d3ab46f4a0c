/* A trainer's own tensors: saved as safetensors from memory, read back by name, one row of them.
   usage: save_load FILE.safetensors */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include <stdio.h>
#include <stdlib.h>

static int fail(const ckr_error *e)
{
    fprintf(stderr, "%s: %s %s\n", e->file, e->text, e->where);
    return 1;
}

int main(int argc, char **argv)
{
    const int64_t shape[2] = { 4, 3 }, start[2] = { 2, 0 }, count[2] = { 1, 3 };
    float       weight[12], row[3];
    ckr_error   err = CKR_ZERO;
    ckr_target  to = CKR_ZERO;
    ckr_read    read = CKR_ZERO;
    ckr_ckpt   *out = NULL, *in = NULL;
    ckr_plan   *plan = NULL;
    int         i;

    if (argc != 2) return 2;
    for (i = 0; i < 12; i++) weight[i] = (float)i;
    if (ckr_ckpt_create(NULL, &out, &err) != CKR_OK) return fail(&err);
    if (ckr_ckpt_put(out, "wte.weight", "param", CKR_DTYPE_F32, 2, shape, weight, &err) != CKR_OK)
        return fail(&err);
    to.force = true; /* replaces FILE when the new one is complete */
    if (ckr_plan_create(out, &to, 0, &plan, &err) != CKR_OK) return fail(&err);
    if (ckr_plan_write(plan, argv[1], NULL, &err) != CKR_OK) return fail(&err);
    ckr_plan_free(plan);
    ckr_ckpt_close(out);

    if (ckr_ckpt_open(argv[1], NULL, &in, &err) != CKR_OK) return fail(&err);
    read.tensor = ckr_ckpt_tensor(in, "wte.weight", "param");
    read.start = start;
    read.count = count;
    read.shape = shape; /* what this program's own weight has: any other is refused */
    read.n_dims = 2;
    read.dtype = CKR_DTYPE_F32;
    read.dst = row;
    read.dst_size = sizeof row;
    if (!read.tensor || ckr_ckpt_read(in, &read, 1, &err) != CKR_OK) return fail(&err);
    printf("row 2: %g %g %g\n", (double)row[0], (double)row[1], (double)row[2]);
    ckr_ckpt_close(in);
    return 0;
}
