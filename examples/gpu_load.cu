/* gpu_load.cu PATH [float32|bfloat16]: every tensor of a checkpoint into device memory, through a
   ring of pinned windows: reading overlaps with the rest, casts happen on the way, and the
   digest of what arrived is compared with the checkpoint's own. nvcc -std=c++17 -I.
   examples/gpu_load.cu -o gpu_load -Xcompiler -pthread */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#define CKPTRESUME_CUDA_IMPLEMENTATION
#include "ckptresume_cuda.cuh"
#include <vector>

static int fail(const ckr_error *e)
{
    fprintf(stderr, "gpu_load: %s %s: %s\n", e->file, e->where, e->text);
    return 1;
}

static void need(cudaError_t e)
{
    if (e == cudaSuccess) return;
    fprintf(stderr, "gpu_load: %s\n", cudaGetErrorString(e));
    exit(1);
}

static void *device_memory(size_t n)
{
    void *p = NULL;
    need(cudaMalloc(&p, n ? n : 1));
    return p;
}

int main(int argc, char **argv)
{
    enum { WINDOWS = 3 };
    const size_t window = (size_t)32 << 20;
    ckr_error e = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_cuda_ring ring;
    ckr_cuda_how how = CKR_ZERO;
    cudaStream_t stream = NULL;
    void *pinned = NULL;
    size_t n_copies = 0, i, bytes = 0, wrong = 0;
    int devices = 0;
    if (argc < 2) return 2;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        printf("skipped: no CUDA device here\n");
        return 0;
    }
    if (ckr_ckpt_open(argv[1], NULL, &c, &e) != CKR_OK) return fail(&e);
    const ckr_state *s = ckr_ckpt_state(c);
    const size_t n = (size_t)s->n_tensors;

    /* what is wanted: all of every tensor, in device memory */
    std::vector<ckr_read> reads(n);
    for (i = 0; i < n; i++) {
        const ckr_tensor *t = s->tensors[i];
        ckr_read &r = reads[i];
        memset(&r, 0, sizeof r);
        r.tensor = t;
        r.as = t->dtype;
        if (argc > 2 && (t->dtype == CKR_DTYPE_F32 || t->dtype == CKR_DTYPE_BF16))
            r.as = strcmp(argv[2], "bfloat16") ? CKR_DTYPE_F32 : CKR_DTYPE_BF16;
        r.dst_size = ckr_dtype_size(r.as);
        for (uint32_t d = 0; d < t->n_dims; d++) r.dst_size *= (size_t)t->shape[d];
        r.dst = device_memory(r.dst_size);
        bytes += r.dst_size;
    }

    /* the copies: how many, then which */
    if (ckr_ckpt_copies(c, reads.data(), n, NULL, &n_copies, &e) != CKR_OK) return fail(&e);
    std::vector<ckr_copy> copies(n_copies);
    if (ckr_ckpt_copies(c, reads.data(), n, copies.data(), &n_copies, &e) != CKR_OK)
        return fail(&e);

    /* all memory that the library uses is the caller's */
    need(cudaMallocHost(&pinned, WINDOWS * window));
    need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    how.stats = (ckr_cuda_stat *)device_memory(n * sizeof(ckr_cuda_stat));
    need(cudaMemset(how.stats, 0, n * sizeof(ckr_cuda_stat)));
    if (ckr_cuda_ring_init(&ring, pinned, device_memory(WINDOWS * window), window, WINDOWS, &e) !=
            CKR_OK ||
        ckr_cuda_read(&ring, c, reads.data(), copies.data(), n_copies, &how, stream, &e) != CKR_OK)
        return fail(&e);
    need(cudaStreamSynchronize(stream));

    /* the proof */
    std::vector<ckr_cuda_stat> stats(n);
    std::vector<uint8_t> digests(16 * n);
    uint8_t total[16], digest[16];
    need(cudaMemcpy(stats.data(), how.stats, n * sizeof(ckr_cuda_stat), cudaMemcpyDeviceToHost));
    if (ckr_ckpt_digest(c, (uint8_t(*)[16])digests.data(), total, &e) != CKR_OK) return fail(&e);
    for (i = 0; i < n; i++) {
        const ckr_tensor *t = s->tensors[i];
        ckr_digest_finish(stats[i].sums, t->dtype, t->n_dims, t->shape, digest);
        if (stats[i].n_nonfinite)
            printf("%s: %llu elements are not finite\n", t->name,
                   (unsigned long long)stats[i].n_nonfinite);
        wrong += memcmp(digest, &digests[16 * i], 16) != 0;
    }
    printf("%zu tensors, %zu bytes on the device, %zu differ\n", n, bytes, wrong);
    ckr_cuda_ring_free(&ring);
    ckr_ckpt_close(c);
    return wrong != 0;
}
