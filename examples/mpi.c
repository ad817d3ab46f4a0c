/* mpi.c PATH: every rank of an MPI job opens the checkpoint, reads its own rows of every tensor,
   and no other's; ranks need not talk, because the list of tensors and the cut are the same
   everywhere. Built with mpicc; run: mpirun -n 4 mpi PATH */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#if defined(__GNUC__)          /* the MPI library's own header is not ours to warn about */
#  pragma GCC diagnostic ignored "-Wcast-qual"
#  pragma GCC diagnostic ignored "-Wconversion"
#endif
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const ckr_error *e)
{
    fprintf(stderr, "mpi: %s %s: %s\n", e->file, e->where, e->text);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

/* The rows [n * rank / ranks, n * (rank + 1) / ranks) of axis 0; false: none. */
static bool own_box(const ckr_tensor *t, int rank, int ranks, int64_t *start, int64_t *count,
                    uint64_t *bytes)
{
    uint32_t d;
    *bytes = ckr_dtype_size(t->dtype);
    for (d = 0; d < t->n_dims; d++) {
        start[d] = d ? 0 : t->shape[0] * rank / ranks;
        count[d] = d ? t->shape[d] : t->shape[0] * (rank + 1) / ranks - start[0];
        *bytes *= (uint64_t)count[d];
    }
    return t->n_dims ? *bytes > 0 : rank == 0;         /* a scalar is rank 0's */
}

/* Adds all bytes up, so that the ranks' sums together are known to be the whole checkpoint's. */
static uint64_t sum_of(const uint8_t *p, uint64_t n)
{
    uint64_t s = 0;
    while (n-- > 0) s += *p++;
    return s;
}

int main(int argc, char **argv)
{
    int rank, ranks;
    uint64_t i, n, mine[3] = { 0, 0, 0 }, all[3] = { 0, 0, 0 };        /* boxes, bytes, sum */
    ckr_error e = CKR_ZERO;
    ckr_ckpt *c = NULL;
    const ckr_state *s;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 2 || ckr_ckpt_open(argv[1], NULL, &c, &e) != CKR_OK) return fail(&e);
    s = ckr_ckpt_state(c);
    for (i = 0; i < s->n_tensors; i++) {
        int64_t start[CKR_MAX_DIMS], count[CKR_MAX_DIMS];
        ckr_read r = CKR_ZERO;
        if (!own_box(s->tensors[i], rank, ranks, start, count, &n)) continue;
        r.tensor = s->tensors[i];
        r.start = s->tensors[i]->n_dims ? start : NULL;
        r.count = count;
        r.dst = malloc((size_t)n);                     /* a trainer's own memory */
        r.dst_size = (size_t)n;
        if (!r.dst || ckr_ckpt_read(c, &r, 1, &e) != CKR_OK) return fail(&e);
        mine[0]++;
        mine[1] += n;
        mine[2] += sum_of((const uint8_t *)r.dst, n);
        free(r.dst);
    }
    ckr_ckpt_close(c);
    MPI_Reduce(mine, all, 3, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    printf("rank %d of %d: %llu boxes, %llu bytes\n", rank, ranks, (unsigned long long)mine[0],
           (unsigned long long)mine[1]);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("together: %llu bytes, sum %llu\n", (unsigned long long)all[1],
               (unsigned long long)all[2]);
    MPI_Finalize();
    return 0;
}
