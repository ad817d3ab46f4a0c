/* mpi_convert.c IN OUT [to=DIALECT] [tp=N] [pp=N] [dp=N] [zero=N] [parts=N] [force] [continue]:
   a conversion by all ranks of an MPI job, which share a file system. Each makes the same plan and
   writes its parts; rank 0 proves that all are there and gives the output its name. The bytes are
   those of one process, whatever the number of ranks. What was killed goes on with `continue`, on
   any number of ranks where parts=N is the same. Built with mpicc; run: mpirun -n 4 mpi_convert IN
   OUT tp=1 dp=8 */
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
#include <time.h>

/* One rank's error ends all of them. */
static int fail(int rank, const char *where, const ckr_error *e)
{
    fprintf(stderr, "mpi_convert: rank %d: %s: %s%s%s%s%s\n", rank, where, e->file,
            e->file[0] ? ": " : "", e->text, e->remedy[0] ? "; remedy: " : "", e->remedy);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

/* KEY=N into what `key` stands for; false: it is another word. */
static bool number(const char *arg, const char *key, uint32_t *out)
{
    const size_t n = strlen(key);
    if (strncmp(arg, key, n) != 0 || arg[n] != '=') return false;
    *out = (uint32_t)strtoul(arg + n + 1, NULL, 10);
    return true;
}

static bool understood(char *arg, ckr_target *t, ckr_parts *parts)
{
    uint32_t zero = 0;
    if (!strncmp(arg, "to=", 3)) t->dialect = arg + 3;
    else if (!strcmp(arg, "force")) t->force = true;
    else if (!strcmp(arg, "continue")) parts->go_on = true;
    else if (number(arg, "zero", &zero)) t->topology.zero = zero ? (int32_t)zero : CKR_ZERO_OFF;
    else
        return number(arg, "tp", &t->topology.tp) || number(arg, "pp", &t->topology.pp) ||
               number(arg, "dp", &t->topology.dp) || number(arg, "parts", &parts->n);
    return true;
}

/* What happened, and from one rank how much. */
static void say(const ckr_plan *plan, const ckr_receipt *r, int ranks)
{
    static const char *const verdicts[] = { "exact", "changed", "approx", "refused" };
    uint64_t i;
    printf("verdict %s; %llu bytes in %llu files by %d ranks\ndigest ",
           verdicts[ckr_plan_info(plan)->verdict], (unsigned long long)r->bytes_written,
           (unsigned long long)r->n_files, ranks);
    for (i = 0; i < sizeof r->digest_written; i++) printf("%02x", r->digest_written[i]);
    printf("\n");
}

int main(int argc, char **argv)
{
    int rank, ranks, i;
    uint32_t k;
    ckr_error e = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *plan = NULL;
    ckr_target t = CKR_ZERO;
    ckr_parts parts = CKR_ZERO;
    ckr_receipt receipt;
    ckr_open_desc desc = CKR_ZERO;
    ckr_env env = CKR_ZERO;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    parts.n = (uint32_t)ranks;
    for (i = 3; i < argc && understood(argv[i], &t, &parts); i++) {}
    if (i < argc || argc < 3) {
        snprintf(e.text, sizeof e.text, "expected IN OUT and what the head of its source says%s%s",
                 i < argc ? "; found " : "", i < argc ? argv[i] : "");
        return fail(rank, "arguments", &e);
    }
    env.parallel.n_threads = 1;        /* the ranks are the threads */
    desc.env = &env;
    if (ckr_ckpt_open(argv[1], &desc, &c, &e) != CKR_OK) return fail(rank, "open", &e);
    if (ckr_plan_create(c, &t, 0, &plan, &e) != CKR_OK) return fail(rank, "plan", &e);
    parts.nonce = (uint64_t)time(NULL) << 20 | 1;
    if (rank == 0 && ckr_plan_begin(plan, argv[2], &parts, &e) != CKR_OK)
        return fail(rank, "begin", &e);
    MPI_Bcast(&parts.nonce, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    for (k = (uint32_t)rank; k < parts.n; k += (uint32_t)ranks)
        if (ckr_plan_write_part(plan, argv[2], k, &parts, &e) != CKR_OK)
            return fail(rank, "part", &e);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        if (ckr_plan_commit(plan, argv[2], &parts, &receipt, &e) != CKR_OK)
            return fail(rank, "commit", &e);
        say(plan, &receipt, ranks);
    }
    ckr_plan_free(plan);
    ckr_ckpt_close(c);
    MPI_Finalize();
    return 0;
}
