/* trainer.c DIRECTORY PROCESSES UPDATES [KILLED_AT]: a trainer that survives a kill and goes on, on
   another number of processes, with everything: values, moments, the LR's curve, the generators of
   dropout and of the order of the data, one of each process, the place in the data. Processes share
   a batch's samples; each owns rows of every tensor: it alone updates them, writes them into its
   own file and reads them back. The model is in mlp.h. Bit-equal on any number of processes,
   because gradients are summed in the order of the samples and all processes draw the same dropout;
   an all-reduce, which sums rank by rank, would differ a little. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include <signal.h>
#include <sys/wait.h>
#include "mlp.h"

static const char *const names[2] = { "w1", "w2" };
static const char *const slots[3] = { "param", "exp_avg", "exp_avg_sq" };
static const int64_t shapes[2][2] = { { H, D }, { H, 1 } };

/* One of all processes, or each its own; of three frameworks' kinds. */
enum { DROPOUT = 0, ORDER, NOISE };
static const struct { ckr_rng_kind kind; const char *name, *scope; } streams[3] = {
    { CKR_RNG_NUMPY, "dropout", "" }, { CKR_RNG_PCG64, "order", "" },
    { CKR_RNG_PHILOX, "noise", "dp" }
};

typedef struct run {           /* as one process has it                                 */
    shared *s;
    int rank, P;
    int64_t done, at;          /* updates; samples of the epoch that were taken         */
    const ckr_schedule *curve;
    ckr_rng_streams *given;    /* at the resume; NULL: there was none                   */
    ckr_error e;
} run;

static void need(ckr_result r, const ckr_error *e)
{
    if (r != CKR_OK) fprintf(stderr, "trainer: %s %s: %s\n", e->file, e->where, e->text);
    if (r != CKR_OK) _exit(1);
}

/* A generator of a rank's; they lie behind what is shared. */
static ckr_rng *rng(const run *r, int rank, int stream)
{
    return (ckr_rng *)(void *)((char *)(r->s + 1) + (size_t)(3 * rank + stream) * ckr_rng_size());
}

static float *rows(const run *r, int t, int64_t row)
{
    return r->s->x[t / 2] + t % 2 * H * D + row * shapes[t % 2][1];
}

/* The whole run, of which this process has its rows: they go into its own file. */
static void save(run *r, const char *dir)
{
    const ckr_hyper lr = { "initial_lr", 0.02 };
    ckr_error *const e = &r->e;
    ckr_target to = CKR_ZERO;
    ckr_ckpt *c;
    ckr_plan *p;
    need(ckr_ckpt_create(NULL, &c, e), e);
    for (int k = 0; k < r->P; k++)
        for (int t = 0; t < 6; t++) {
            const int64_t start[2] = { H * k / r->P, 0 },
                          count[2] = { H * (k + 1) / r->P - start[0], shapes[t % 2][1] };
            need(ckr_ckpt_put_box(c, names[t % 2], slots[t / 2], CKR_DTYPE_F32, 2, shapes[t % 2],
                                  (uint32_t)k, start, count,
                                  k == r->rank ? rows(r, t, start[0]) : NULL, e), e);
        }
    need(ckr_ckpt_put_group(c, "all", names, 2, &lr, 1, e), e);
    need(ckr_ckpt_put_decided(c, r->curve, r->done, e), e);
    need(ckr_ckpt_put_progress(c, r->done, r->done * BATCH, -1, r->done * BATCH / DATA, e), e);
    need(ckr_ckpt_put_data(c, -1, "sample", r->at, e), e);
    for (int k = 0; k < r->P; k++)
        for (int i = k ? NOISE : 0; i < 3; i++)
            need(ckr_ckpt_put_stream(c, (uint32_t)k, streams[i].name, streams[i].scope,
                                     rng(r, k, i), e), e);
    if (r->given) need(ckr_ckpt_put_lineage(c, r->given, e), e);
    to.dialect = "dcp";
    to.force = true;           /* the old one stays until the new one is complete */
    need(ckr_plan_create(c, &to, 0, &p, e), e);
    need(ckr_plan_write_rank(p, dir, (uint32_t)r->rank, e), e);
    pthread_barrier_wait(&r->s->wait);
    if (r->rank == 0) need(ckr_plan_write_end(p, dir, e), e);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* This rank's rows of every tensor, its generators, and all else. */
static void resume(run *r, const char *dir)
{
    const int64_t start[2] = { H * r->rank / r->P, 0 };
    int64_t count[2] = { H * (r->rank + 1) / r->P - start[0], 0 };
    ckr_rng_want want = CKR_ZERO;
    ckr_read x = CKR_ZERO;
    ckr_ckpt *c;               /* stays open: the curve is its                          */
    need(ckr_ckpt_open(dir, NULL, &c, &r->e), &r->e);
    for (int t = 0; t < 6; t++) {
        count[1] = shapes[t % 2][1];
        x.tensor = ckr_ckpt_tensor(c, names[t % 2], slots[t / 2]);
        x.shape = shapes[t % 2];       /* a file of another model is refused            */
        x.n_dims = 2;
        x.start = start;
        x.count = count;
        x.dst = rows(r, t, start[0]);
        x.dst_size = (size_t)(count[0] * count[1]) * sizeof(float);
        need(ckr_ckpt_read(c, &x, 1, &r->e), &r->e);
    }
    r->done = ckr_ckpt_state(c)->progress.step;
    r->curve = ckr_ckpt_schedule(c, 0);
    (void)ckr_ckpt_data(c, -1, "sample", &r->at);
    want.topology.dp = (uint32_t)r->P;
    need(ckr_ckpt_rng(c, &want, &r->given, &r->e), &r->e);
    for (int i = 0; i < 3; i++)
        memcpy(rng(r, r->rank, i), ckr_rng_find(r->given, (uint32_t)r->rank,
                                                ckr_rng_kind_name(streams[i].kind),
                                                streams[i].name)->state, ckr_rng_size());
}

static void fresh(run *r, int64_t total)
{
    const ckr_hyper lr = { "initial_lr", 0.02 };
    char curve[128];
    ckr_ckpt *c;
    snprintf(curve, sizeof curve, "llmc:cosine,learning_rate=0.02,warmup_iterations=5,"
             "train_num_batches=%lld,final_learning_rate_frac=0.1", (long long)total);
    need(ckr_ckpt_create(NULL, &c, &r->e), &r->e);
    need(ckr_ckpt_put_group(c, "all", NULL, 0, &lr, 1, &r->e), &r->e);
    need(ckr_ckpt_put_schedule(c, curve, 0, &r->e), &r->e);
    r->curve = ckr_ckpt_schedule(c, 0);
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
    double lr, noise, u[BATCH][H];
    if (access(dir, F_OK) == 0) resume(r, dir);
    else fresh(r, total);
    shuffle(r, order, next);
    pthread_barrier_wait(&r->s->wait);
    while (r->done < total) {
        need(ckr_schedule_values(r->curve, CKR_COLUMN_LR, r->done + 1, 1, &lr, NULL, &r->e), &r->e);
        (void)ckr_rng_uniform(rng(r, r->rank, DROPOUT), CKR_DTYPE_F64, 0, 1, BATCH * H, u);
        (void)ckr_rng_uniform(rng(r, r->rank, NOISE), CKR_DTYPE_F64, 0, 1, 1, &noise);
        for (int i = r->rank; i < BATCH; i += r->P) gradient(r->s, i, order[r->at + i], u[i]);
        pthread_barrier_wait(&r->s->wait);
        if (++r->done == killed) raise(SIGKILL);
        update_rows(r->s, r->done, lr, r->rank, r->P);
        r->at += BATCH;
        if (r->at == DATA) {
            memcpy(rng(r, r->rank, ORDER), next, ckr_rng_size());
            shuffle(r, order, next);
            r->at = 0;
        }
        pthread_barrier_wait(&r->s->wait);
        if (r->rank == 0)
            printf("%lld lr %.6f loss %.9g noise %.9g\n", (long long)r->done, lr,
                   batch_loss(r->s), noise);
        fflush(stdout);
        if (r->done % 5 == 0 || r->done == total) save(r, dir);
    }
    free(next);
}

int main(int argc, char **argv)
{
    run r = { NULL, 0, argc > 3 ? atoi(argv[2]) : 0, 0, 0, NULL, NULL, CKR_ZERO };
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
