/* core.h: the implementation without dialects, for the tests of what stands below them: it compiles
   in half the time. CORE_NANOTRON: with that one. */
#define CKPTRESUME_STATIC
#ifndef CORE_NANOTRON
#  define CKPTRESUME_NO_NANOTRON
#endif
#define CKPTRESUME_NO_MEGATRON
#define CKPTRESUME_NO_ACCELERATE
#define CKPTRESUME_NO_DEEPSPEED
#define CKPTRESUME_NO_LLMC
#define CKPTRESUME_NO_DCP
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
