/* trainer.c FILE PROCESSES UPDATES [KILLED_AT]: a trainer that survives a kill and goes on with
   another number of processes. Processes share a batch's samples; each owns rows of every tensor:
   it alone updates them, and it reads back only them. The model is in mlp.h. Bit-equal on any
   number of processes, because gradients are summed in the order of the samples and draws do not
   depend on ranks; an all-reduce, which sums rank by rank, would differ a little. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include <signal.h>
#include <sys/wait.h>
#include "mlp.h"

static const char *const names[2] = { "w1", "w2" };
static const char *const slots[3] = { "param", "exp_avg", "exp_avg_sq" };
static const int64_t shapes[2][2] = { { H, D }, { H, 1 } };

static void need(ckr_result r, const ckr_error *e)
{
    if (r != CKR_OK) fprintf(stderr, "trainer: %s %s: %s\n", e->file, e->where, e->text);
    if (r != CKR_OK) _exit(1);
}

/* Tensors of the run, for `updates` done; with the schedule that gives the next LR. */
static ckr_ckpt *describe(shared *s, int64_t *updates, int64_t total, ckr_error *e)
{
    const ckr_hyper lr = { "lr", 0.02 };
    char curve[128];
    ckr_ckpt *c;
    snprintf(curve, sizeof curve, "llmc:cosine,learning_rate=0.02,warmup_iterations=5,"
             "train_num_batches=%lld,final_learning_rate_frac=0.1", (long long)total);
    need(ckr_ckpt_create(NULL, &c, e), e);
    need(ckr_ckpt_put(c, "updates", "param", CKR_DTYPE_I64, 0, NULL, updates, e), e);
    for (int t = 0; t < 6; t++)
        need(ckr_ckpt_put(c, names[t % 2], slots[t / 2], CKR_DTYPE_F32, 2, shapes[t % 2],
                          s->x[t / 2] + t % 2 * H * D, e), e);
    need(ckr_ckpt_put_group(c, "all", names, 2, &lr, 1, e), e);
    need(ckr_ckpt_put_schedule(c, curve, *updates, e), e);
    return c;
}

static void save(const ckr_ckpt *c, const char *file, ckr_error *e)
{
    ckr_target to = CKR_ZERO;
    ckr_plan *p;
    to.dialect = "safetensors";
    to.force = true;           /* the old one stays until the new one is complete */
    need(ckr_plan_create(c, &to, 0, &p, e), e);
    need(ckr_plan_write(p, file, NULL, e), e);
    ckr_plan_free(p);
}

/* This rank's rows of every tensor and slot; returns the updates done. */
static int64_t resume(shared *s, const char *file, int rank, int P, ckr_error *e)
{
    int64_t done = 0, start[2] = { H * rank / P, 0 }, count[2] = { H * (rank + 1) / P - start[0] };
    char name[64];
    ckr_ckpt *c;
    ckr_read r = CKR_ZERO;
    need(ckr_ckpt_open(file, NULL, &c, e), e);
    r.tensor = ckr_ckpt_tensor(c, "updates", "param");
    r.dst = &done;
    r.dst_size = sizeof done;
    need(ckr_ckpt_read(c, &r, 1, e), e);
    for (int t = 0; t < 6; t++) {
        count[1] = shapes[t % 2][1];
        snprintf(name, sizeof name, "optimizer.state.%s.%s", names[t % 2], slots[t / 2]);
        r.tensor = ckr_ckpt_tensor(c, t < 2 ? names[t] : name, "param");
        r.shape = shapes[t % 2];       /* a file of another model is refused            */
        r.n_dims = 2;
        r.start = start;
        r.count = count;
        r.dst = s->x[t / 2] + t % 2 * H * D + start[0] * count[1];
        r.dst_size = (size_t)(count[0] * count[1]) * sizeof(float);
        need(ckr_ckpt_read(c, &r, 1, e), e);
    }
    ckr_ckpt_close(c);
    return done;
}

static void train(shared *s, const char *file, int rank, int P, int64_t total, int64_t killed)
{
    ckr_error e = CKR_ZERO;
    int64_t done = 0;
    if (access(file, F_OK) == 0) done = resume(s, file, rank, P, &e);
    pthread_barrier_wait(&s->wait);
    while (done < total) {
        ckr_ckpt *c = describe(s, &done, total, &e);
        const ckr_schedule *curve = ckr_ckpt_schedule(c, 0);
        double lr;
        need(ckr_schedule_values(curve, CKR_COLUMN_LR, done + 1, 1, &lr, NULL, &e), &e);
        ckr_ckpt_close(c);
        for (int i = rank; i < BATCH; i += P) gradient(s, done + 1, i);
        pthread_barrier_wait(&s->wait);
        if (++done == killed) raise(SIGKILL);
        update_rows(s, done, lr, rank, P);
        pthread_barrier_wait(&s->wait);
        if (rank != 0) continue;
        printf("%lld lr %.6f loss %.9g\n", (long long)done, lr, batch_loss(s));
        fflush(stdout);
        if (done % 5 == 0 || done == total) {
            c = describe(s, &done, total, &e);
            save(c, file, &e);
            ckr_ckpt_close(c);
        }
    }
}

int main(int argc, char **argv)
{
    const int P = argc > 3 ? atoi(argv[2]) : 0;
    shared *s = P > 0 ? begin(P) : NULL;
    int rank, status, bad = 0;
    if (!s) return 2;
    for (rank = 0; rank < P; rank++)
        if (fork() == 0) {
            train(s, argv[1], rank, P, atoll(argv[3]), argc > 4 ? atoll(argv[4]) : -1);
            _exit(0);
        }
    for (rank = 0; rank < P; rank++) bad |= wait(&status) < 0 || status != 0;
    return bad;
}
