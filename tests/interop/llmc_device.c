/* llmc_device.c: a CUDA runtime without a device, for llm.c's own program: memory is the host's,
   copies are made, kernels and matrix products do nothing. What the program reads of a checkpoint,
   asserts, and writes again is its own; what it would compute is left out. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef void *ptr;

/* What the program fills with a kernel must not look like what it had read from a file. */
static int take(ptr *p, size_t n)
{
    *p = malloc(n ? n : 1);
    if (*p) memset(*p, 0x5a, n);
    return *p ? 0 : 2;
}

int cudaMalloc(ptr *p, size_t n) { return take(p, n); }
int cudaMallocHost(ptr *p, size_t n) { return take(p, n); }
int cudaMallocManaged(ptr *p, size_t n, unsigned f) { (void)f; return take(p, n); }
int cudaHostAlloc(ptr *p, size_t n, unsigned f) { (void)f; return take(p, n); }
int cudaFree(ptr p) { free(p); return 0; }
int cudaFreeHost(ptr p) { free(p); return 0; }
int cudaMemcpy(ptr d, const void *s, size_t n, int k) { (void)k; memmove(d, s, n); return 0; }
int cudaMemcpyAsync(ptr d, const void *s, size_t n, int k, ptr t)
{
    (void)t;
    return cudaMemcpy(d, s, n, k);
}
int cudaMemset(ptr d, int v, size_t n) { memset(d, v, n); return 0; }
int cudaMemsetAsync(ptr d, int v, size_t n, ptr t) { (void)t; return cudaMemset(d, v, n); }
int cudaMemGetInfo(size_t *a, size_t *b) { *a = *b = (size_t)1 << 40; return 0; }

/* cudaDeviceProp begins with the name; its counts are divisors: every int of it is 256. */
int cudaGetDeviceProperties(ptr p, int device)
{
    int *v = (int *)((char *)p + 256), i;
    (void)device;
    strcpy((char *)p, "no device");
    for (i = 0; i < 160; i++) v[i] = 256;
    return 0;
}

const char *cudaGetErrorString(int e) { (void)e; return "no device"; }
const char *ncclGetErrorString(int e) { (void)e; return "no device"; }
int cudaEventElapsedTime(float *ms, ptr a, ptr b) { (void)a; (void)b; *ms = 1; return 0; }

#define NOTHING(name) int name(void); int name(void) { return 0; }
NOTHING(cudaDeviceSynchronize) NOTHING(cudaEventDestroy) NOTHING(cudaEventRecord)
NOTHING(cudaEventSynchronize) NOTHING(cudaFuncSetAttribute) NOTHING(cudaGetLastError)
NOTHING(cudaProfilerStart) NOTHING(cudaProfilerStop) NOTHING(cudaSetDevice)
NOTHING(cudaStreamDestroy) NOTHING(cudaStreamSynchronize) NOTHING(cudaStreamWaitEvent)
NOTHING(__cudaLaunchKernel) NOTHING(__cudaPushCallConfiguration)
NOTHING(__cudaPopCallConfiguration) NOTHING(__cudaRegisterFatBinaryEnd)
NOTHING(__cudaRegisterFunction) NOTHING(__cudaUnregisterFatBinary)
NOTHING(cublasLtDestroy) NOTHING(cublasLtMatmul) NOTHING(cublasLtMatmulDescDestroy)
NOTHING(cublasLtMatmulDescSetAttribute) NOTHING(cublasLtMatmulPreferenceDestroy)
NOTHING(cublasLtMatmulPreferenceSetAttribute) NOTHING(cublasLtMatrixLayoutDestroy)
NOTHING(cublasLtMatrixLayoutSetAttribute) NOTHING(ncclCommDestroy) NOTHING(ncclGetUniqueId)
NOTHING(ncclGroupStart) NOTHING(ncclGroupEnd)

/* Things that are handed out. */
#define HANDLE(name) int name(ptr *h); int name(ptr *h) { static int one; *h = &one; return 0; }
HANDLE(cudaEventCreate) HANDLE(cudaEventCreateWithFlags) HANDLE(cudaStreamCreate)
HANDLE(cublasLtCreate) HANDLE(cublasLtMatmulDescCreate) HANDLE(cublasLtMatmulPreferenceCreate)
HANDLE(cublasLtMatrixLayoutCreate) HANDLE(ncclCommInitRank) HANDLE(__cudaGetKernel)

ptr *__cudaRegisterFatBinary(ptr f) { static ptr kept; kept = f; return &kept; }

int cublasLtMatmulAlgoGetHeuristic(ptr h, ptr d, ptr a, ptr b, ptr c, ptr e, ptr p, int asked,
                                   ptr r, int *found)
{
    (void)h; (void)d; (void)a; (void)b; (void)c; (void)e; (void)p; (void)r;
    *found = asked;
    return 0;
}

/* The ranks other than 0 wait for its file: they are started when it is there. */
unsigned sleep(unsigned seconds) { (void)seconds; return 0; }

/* Sums over the ranks are the rank's own. */
int ncclAllReduce(const void *s, ptr r, size_t n) { (void)s; (void)r; (void)n; return 0; }
int ncclAllGather(const void *s, ptr r, size_t n) { (void)s; (void)r; (void)n; return 0; }
int ncclReduceScatter(const void *s, ptr r, size_t n) { (void)s; (void)r; (void)n; return 0; }
