/* mlp.h: what trainer.c trains: regression by one hidden layer with dropout, and AdamW. */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { D = 8, H = 24, BATCH = 16, DATA = 7 * BATCH, N = H * D + H };
typedef struct shared {        /* by all processes: values, moments, gradients of samples */
    pthread_barrier_t wait;
    int failed;                /* a process could not save */
    float x[3][N], g[BATCH][N], loss[BATCH];
} shared;

static double value(int64_t sample, int unit)      /* of the data: [0, 1), by splitmix64 */
{
    uint64_t x = (uint64_t)sample * 1009u + (uint64_t)unit;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u + 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) / 9007199254740992.0;
}

/* Of the batch's sample i, which is the data's sample `of`; u: a draw for each hidden unit. */
static void gradient(shared *s, int i, int64_t of, const double *u)
{
    const float *w1 = s->x[0], *w2 = w1 + H * D;
    double in[D], h[H], keep[H], y = 0, want = 0, dy;
    int j, k;
    for (k = 0; k < D; k++) want += sin(3 * (in[k] = value(of, k)));
    for (j = 0; j < H; j++) {
        for (k = 0, h[j] = 0; k < D; k++) h[j] += (double)w1[j * D + k] * in[k];
        keep[j] = u[j] < 0.1 ? 0 : 1 / 0.9;                            /* dropout */
        h[j] = tanh(h[j]);
        y += (double)w2[j] * h[j] * keep[j];
    }
    dy = 2 * (y - want) / BATCH;
    s->loss[i] = (float)((y - want) * (y - want) / BATCH);
    for (j = 0; j < H; j++) {
        const double dh = dy * (double)w2[j] * keep[j] * (1 - h[j] * h[j]);
        for (k = 0; k < D; k++) s->g[i][j * D + k] = (float)(dh * in[k]);
        s->g[i][H * D + j] = (float)(dy * h[j] * keep[j]);
    }
}

static void adamw(shared *s, int64_t update, double lr, int64_t i, int64_t end)
{
    const double c1 = 1 - pow(0.9, (double)update), c2 = 1 - pow(0.95, (double)update);
    for (; i < end; i++) {
        double g = 0;
        int k;
        for (k = 0; k < BATCH; k++) g += (double)s->g[k][i];
        s->x[1][i] = (float)(0.9 * (double)s->x[1][i] + 0.1 * g);
        s->x[2][i] = (float)(0.95 * (double)s->x[2][i] + 0.05 * g * g);
        s->x[0][i] = (float)((double)s->x[0][i] * (1 - lr * 0.01) - lr * (double)s->x[1][i] / c1 /
                             (sqrt((double)s->x[2][i] / c2) + 1e-8));
    }
}

/* The rows of rank r of P, in both tensors. */
static void update_rows(shared *s, int64_t update, double lr, int r, int P)
{
    adamw(s, update, lr, H * r / P * D, H * (r + 1) / P * D);
    adamw(s, update, lr, H * D + H * r / P, H * D + H * (r + 1) / P);
}

static double batch_loss(const shared *s)
{
    double loss = 0;
    int i;
    for (i = 0; i < BATCH; i++) loss += (double)s->loss[i];
    return loss;
}

/* With room behind it, shared too. */
static shared *begin(int P, size_t room)
{
    pthread_barrierattr_t all;
    int i;
    shared *s = (shared *)mmap(NULL, sizeof *s + room, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED) return NULL;
    pthread_barrierattr_init(&all);
    pthread_barrierattr_setpshared(&all, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&s->wait, &all, (unsigned)P);
    for (i = 0; i < N; i++) s->x[0][i] = (float)(value(DATA, i) - 0.5);
    return s;
}
