/* Every figure as a ratio to cudaMemcpy device-to-device of the same traffic in the same process;
   the median of 20 launches, the L2 cache flushed before each. make bench-cuda. Without a device it
   says so. */
#define CKPTRESUME_IMPLEMENTATION
#include "../ckptresume.h"
#define CKPTRESUME_CUDA_IMPLEMENTATION
#include "../ckptresume_cuda.cuh"
#include <algorithm>
#include <vector>

static const size_t N = (size_t)1 << 30;               /* bytes read by each case         */
static uint8_t *from, *to, *flush;
static cudaStream_t stream;

static void check(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return;
    printf("%s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

template <typename F> static double seconds(F f)
{
    std::vector<float> all;
    cudaEvent_t a, b;
    check(cudaEventCreate(&a), "event");
    check(cudaEventCreate(&b), "event");
    for (int i = 0; i < 22; i++) {
        float ms = 0;
        check(cudaMemsetAsync(flush, i, (size_t)256 << 20, stream), "flush");
        check(cudaEventRecord(a, stream), "event");
        f();
        check(cudaEventRecord(b, stream), "event");
        check(cudaStreamSynchronize(stream), "work");
        check(cudaEventElapsedTime(&ms, a, b), "event");
        if (i >= 2) all.push_back(ms);
    }
    std::sort(all.begin(), all.end());
    cudaEventDestroy(a);
    cudaEventDestroy(b);
    return all[all.size() / 2] / 1e3;
}

/* cudaMemcpy's time for this much read and written together. */
static double memcpy_seconds(size_t traffic)
{
    return seconds([&] {
        check(cudaMemcpyAsync(to, from, traffic / 2, cudaMemcpyDeviceToDevice, stream), "memcpy");
    });
}

static double report(const char *name, size_t traffic, double s)
{
    const double base = memcpy_seconds(traffic);
    printf("%-34s %8.3f ms %7.0f GB/s   %.3f of cudaMemcpy\n", name, s * 1e3,
           (double)traffic / s / 1e9, base / s);
    return s;
}

struct Table {
    void *host, *device;
    size_t bytes;
    explicit Table(const std::vector<ckr_cuda_op> &ops) : host(NULL), device(NULL), bytes(0)
    {
        ckr_cuda_pack(ops.data(), ops.size(), NULL, &bytes, NULL);
        check(cudaMallocHost(&host, bytes), "pinned");
        check(cudaMalloc(&device, bytes), "table");
        ckr_cuda_pack(ops.data(), ops.size(), host, &bytes, NULL);
    }
    ~Table()
    {
        cudaFreeHost(host);
        cudaFree(device);
    }
    void launch(const ckr_cuda_how *how) const
    {
        ckr_error e;
        if (ckr_cuda_launch(host, bytes, device, how, stream, &e) != CKR_OK) {
            printf("%s: %s\n", e.where, e.text);
            exit(1);
        }
    }
};

static ckr_cuda_op rows(uint64_t a, uint64_t b, uint64_t n, uint64_t row, uint64_t pa, uint64_t pb)
{
    ckr_cuda_op op;
    memset(&op, 0, sizeof op);
    op.copy.dtype = op.copy.as = CKR_DTYPE_BF16;
    op.copy.run = (int64_t)row / 2;
    op.copy.n_dims = n > 1 ? 1 : 0;
    op.copy.count[0] = (int64_t)n;
    op.copy.from = a;
    op.copy.to = b;
    op.copy.from_stride[0] = (int64_t)pa;
    op.copy.to_stride[0] = (int64_t)pb;
    op.src = from;
    op.dst = to;
    op.stat = CKR_CUDA_NO_STAT;
    return op;
}

static void merges()
{
    const size_t widths[] = { 256, 1024, 4096, 16384 };
    std::vector<ckr_cuda_op> ops;
    for (uint64_t r = 0; r < 8; r++) ops.push_back(rows(r * (N / 8), r * (N / 8), 1, N / 8, 0, 0));
    {
        Table t(ops);
        report("K1 row merge of 8", 2 * N, seconds([&] { t.launch(NULL); }));
    }
    for (size_t w : widths)
        for (uint64_t off = 0; off < 4; off += 2) {
            char name[64];
            ops.clear();
            for (uint64_t r = 0; r < 4; r++)
                ops.push_back(rows(r * (N / 4) + off, r * w, N / 4 / w - 1, w, w, 4 * w));
            Table t(ops);
            snprintf(name, sizeof name, "K2 column merge, rows of %zu%s", w, off ? ", 2 off" : "");
            report(name, 2 * N, seconds([&] { t.launch(NULL); }));
            double s = seconds([&] {
                for (uint64_t r = 0; r < 4; r++)
                    check(cudaMemcpy2DAsync(to + r * w, 4 * w, from + r * (N / 4) + off, w, w,
                                            N / 4 / w - 1, cudaMemcpyDeviceToDevice, stream),
                          "memcpy2d");
            });
            report("   cudaMemcpy2DAsync", 2 * N, s);
        }
}

static void casts()
{
    const ckr_dtype pairs[][2] = { { CKR_DTYPE_BF16, CKR_DTYPE_F32 },
                                   { CKR_DTYPE_F32, CKR_DTYPE_BF16 },
                                   { CKR_DTYPE_F16, CKR_DTYPE_F32 },
                                   { CKR_DTYPE_F32, CKR_DTYPE_F8_E4M3FN } };
    for (auto &p : pairs)
        for (int chance = 0; chance < (p[1] == CKR_DTYPE_BF16 ? 2 : 1); chance++) {
            const size_t ea = ckr_dtype_size(p[0]), eb = ckr_dtype_size(p[1]);
            const size_t n = N / (ea > eb ? ea : eb);
            std::vector<ckr_cuda_op> ops(1, rows(0, 0, 1, 2 * n, 0, 0));
            ckr_cuda_how how;
            char name[64];
            memset(&how, 0, sizeof how);
            how.stochastic = chance != 0;
            ops[0].copy.dtype = p[0];
            ops[0].copy.as = p[1];
            Table t(ops);
            snprintf(name, sizeof name, "K5 %s to %s%s", ckr_dtype_name(p[0]), ckr_dtype_name(p[1]),
                     chance ? ", stochastic" : "");
            report(name, n * (ea + eb), seconds([&] { t.launch(&how); }));
        }
}

static void fragments(size_t mean)
{
    enum { COUNT = 100000 };
    std::vector<ckr_cuda_op> ops;
    uint64_t at = 0, x = 1;
    char name[64];
    for (int i = 0; i < COUNT; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        const uint64_t n = 2 * (x >> 33) % (2 * mean) / 2 * 2 + 2;
        if (at + n > N) break;
        ops.push_back(rows(at, at, 1, n, 0, 0));
        at += n;
    }
    Table t(ops);
    snprintf(name, sizeof name, "K8 %zu fragments of about %zu", ops.size(), mean);
    const double s = report(name, 2 * at, seconds([&] { t.launch(NULL); }));
    const double loop = seconds([&] {
        for (auto &o : ops)
            check(cudaMemcpyAsync(to + o.copy.to, from + o.copy.from, (size_t)o.copy.run * 2,
                                  cudaMemcpyDeviceToDevice, stream), "memcpy");
    });
    printf("   a loop of cudaMemcpyAsync takes %.1f times as long\n", loop / s);
}

static void digests()
{
    std::vector<ckr_cuda_op> ops(1, rows(0, 0, 1, N, 0, 0));
    ckr_cuda_how how;
    memset(&how, 0, sizeof how);
    check(cudaMalloc((void **)&how.stats, sizeof *how.stats), "stats");
    check(cudaMemset(how.stats, 0, sizeof *how.stats), "stats");
    ops[0].stat = 0;
    Table t(ops);
    report("K9 copy with digest and scan", 2 * N, seconds([&] { t.launch(&how); }));
    cudaFree(how.stats);
}

int main()
{
    int n = 0;
    cudaDeviceProp p;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
        printf("skipped: no CUDA device here\n");
        return 0;
    }
    check(cudaGetDeviceProperties(&p, 0), "device");
    printf("%s, %d multiprocessors\n", p.name, p.multiProcessorCount);
    check(cudaMalloc((void **)&from, N + 4096), "memory");
    check(cudaMalloc((void **)&to, N + 4096), "memory");
    check(cudaMalloc((void **)&flush, (size_t)256 << 20), "memory");
    check(cudaMemset(from, 1, N + 4096), "memset");
    check(cudaStreamCreate(&stream), "stream");
    report("cudaMemcpy", 2 * N, memcpy_seconds(2 * N));
    merges();
    casts();
    fragments(4096);
    fragments(65536);
    digests();
    return 0;
}
