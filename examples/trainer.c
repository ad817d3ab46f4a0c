/* trainer.c DIRECTORY PROCESSES UPDATES [KILLED_AT]: a trainer that survives a kill and goes on, on
   another number of processes, with everything: values, moments, the LR's curve, the generators of
   dropout and of the order of the data, one of each process, the place in the data. Processes share
   a batch's samples; each owns rows of every tensor: it alone updates them, writes them into its
   own file and reads them back. The model is in mlp.h. Bit-equal on any number of processes,
   because gradients are summed in the order of the samples and all processes draw the same dropout;
   an all-reduce, which sums rank by rank, would differ a little.
   What is only there to save and resume lies between the marks "ckptresume:" and "end"; outside of
   them the library's generators and its LR curve are used, as any trainer has some. */
/* ckptresume: */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
/* end */
#include <signal.h>
#include <sys/wait.h>
#include "mlp.h"

enum { DROPOUT = 0, ORDER, NOISE };

typedef struct run {           /* as one process has it                                 */
    shared *s;
    int rank, P;
    int64_t at;                /* samples of the epoch that were taken                  */
/* ckptresume: */
    ckr_run x;
/* end */
} run;

/* ckptresume: */
static const char *const names[2] = { "w1", "w2" };
static const char *const slots[3] = { "param", "exp_avg", "exp_avg_sq" };
static const ckr_hyper lr_base = { "initial_lr", 0.02 };
static const ckr_run_group group = { "all", names, 2, &lr_base, 1 };
static ckr_run_tensor tensors[6];
static ckr_run_place place = { "sample", NULL, false };
static ckr_error e;

/* One of all processes, or each its own; of three frameworks' kinds. */
static ckr_run_stream streams[3] = {
    { CKR_RNG_NUMPY, "dropout", "", NULL }, { CKR_RNG_PCG64, "order", "", NULL },
    { CKR_RNG_PHILOX, "noise", "dp", NULL }
};

static void need(ckr_result r)
{
    if (r != CKR_OK) fprintf(stderr, "trainer: %s %s: %s\n", e.file, e.where, e.text);
    if (r != CKR_OK) _exit(1);
}

/* Have all processes done their part? */
static bool all(void *of, bool ok)
{
    shared *s = (shared *)of;
    if (!ok) s->failed = 1;
    pthread_barrier_wait(&s->wait);
    return !s->failed;
}
/* end */

/* A generator of a rank's; they lie behind what is shared. */
static ckr_rng *rng(const run *r, int rank, int stream)
{
    return (ckr_rng *)(void *)((char *)(r->s + 1) + (size_t)(stream * r->P + rank) *
                               ckr_rng_size());
}

/* ckptresume: */
/* What the run has, and where it lies: a save reads it there, a resume fills it. */
static void describe(run *r)
{
    for (int t = 0; t < 6; t++) {
        const int64_t width = t % 2 ? 1 : D;
        const ckr_run_tensor own = { names[t % 2], slots[t / 2], CKR_DTYPE_F32, 2, { H, width },
                                     true, r->s->x[t / 2] + t % 2 * H * D +
                                           H * r->rank / r->P * width };
        tensors[t] = own;
    }
    for (int i = 0; i < 3; i++) streams[i].states = rng(r, 0, i);
    place.values = &r->at;
    const ckr_run x = { (uint32_t)r->rank, (uint32_t)r->P, all, r->s, tensors, 6, &group, 1,
                        streams, 3, &place, 1, 0, 0, -1, 0, NULL, NULL, NULL, NULL };
    r->x = x;
}

static void save(run *r, const char *dir)
{
    r->x.samples = r->x.updates * BATCH;
    r->x.epoch = r->x.samples / DATA;
    need(ckr_run_save(&r->x, dir, &e));
}
/* end */

static void fresh(run *r, int64_t total)
{
    char curve[128];
    snprintf(curve, sizeof curve, "llmc:cosine,learning_rate=0.02,warmup_iterations=5,"
             "train_num_batches=%lld,final_learning_rate_frac=0.1", (long long)total);
/* ckptresume: */
    need(ckr_run_begin(&r->x, curve, &e));
/* end */
    for (int i = 0; i < 3; i++)
        (void)ckr_rng_seed(rng(r, r->rank, i), streams[i].kind,
                           7 + (uint64_t)(i == NOISE ? r->rank : 0));
}

/* The order of the epoch's data; the generator stays where the epoch began until the next does. */
static void shuffle(run *r, int64_t *order, ckr_rng *next)
{
    memcpy(next, rng(r, r->rank, ORDER), ckr_rng_size());
    (void)ckr_rng_permutation(next, DATA, order);
}

static void train(run *r, const char *dir, int64_t total, int64_t killed)
{
    ckr_rng *next = (ckr_rng *)malloc(ckr_rng_size());
    int64_t order[DATA];
    double lr, noise, loss, u[BATCH][H];
    const bool there = access(dir, F_OK) == 0;
/* ckptresume: */
    describe(r);
    if (there) need(ckr_run_resume(&r->x, dir, NULL, &e));
/* end */
    if (!there) fresh(r, total);
    shuffle(r, order, next);
    pthread_barrier_wait(&r->s->wait);
    while (r->x.updates < total) {
        need(ckr_schedule_values(r->x.schedule, CKR_COLUMN_LR, r->x.updates + 1, 1, &lr, NULL, &e));
        (void)ckr_rng_uniform(rng(r, r->rank, DROPOUT), CKR_DTYPE_F64, 0, 1, BATCH * H, u);
        (void)ckr_rng_uniform(rng(r, r->rank, NOISE), CKR_DTYPE_F64, 0, 1, 1, &noise);
        for (int i = r->rank; i < BATCH; i += r->P) gradient(r->s, i, order[r->at + i], u[i]);
        pthread_barrier_wait(&r->s->wait);
        if (++r->x.updates == killed) raise(SIGKILL);
        update_rows(r->s, r->x.updates, lr, r->rank, r->P);
        loss = batch_loss(r->s);
        r->at += BATCH;
        if (r->at == DATA) {
            memcpy(rng(r, r->rank, ORDER), next, ckr_rng_size());
            shuffle(r, order, next);
            r->at = 0;
        }
        pthread_barrier_wait(&r->s->wait);
        if (r->rank == 0)
            printf("%lld lr %.6f loss %.9g noise %.9g\n", (long long)r->x.updates, lr, loss,
                   noise);
        fflush(stdout);
        if (r->x.updates % 5 == 0 || r->x.updates == total) save(r, dir);
    }
    free(next);
}

int main(int argc, char **argv)
{
    run r = { NULL, 0, argc > 3 ? atoi(argv[2]) : 0, 0, CKR_ZERO };
    int status, bad = 0;
    if (r.P > 0) r.s = begin(r.P, 3 * (size_t)r.P * ckr_rng_size());
    if (!r.s) return 2;
    for (r.rank = 0; r.rank < r.P; r.rank++)
        if (fork() == 0) {
            train(&r, argv[1], atoll(argv[3]), argc > 4 ? atoll(argv[4]) : -1);
            _exit(0);
        }
    for (int k = 0; k < r.P; k++) bad |= wait(&status) < 0 || status != 0;
    return bad;
}
