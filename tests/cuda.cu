/* t_cuda.c on a device: make test-cuda. Without one it says so and counts nothing. */
#include <cuda_runtime_api.h>
#define main emulated_main
#include "t_cuda.c"
#undef main

int main(int argc, char **argv)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
        printf("skipped: no CUDA device here\n");
        return 0;
    }
    return emulated_main(argc, argv);
}
