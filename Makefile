# make help lists the targets. POSIX make; nothing to configure.
.POSIX:

CC       = cc
CSTD     = -std=c99
# half of -O2's time to compile, a tenth slower in parsing and as fast in copying; CFLAGS=-O2 for more
CFLAGS   = -O1 -finline-functions
LDFLAGS  =
LDLIBS   = -pthread -lm
WARN     = -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wcast-qual -Wcast-align -Wundef \
           -Wdouble-promotion -Wvla -Wswitch-enum -Wstrict-prototypes -Wmissing-prototypes
PREFIX   = /usr/local
DESTDIR  =
CLANG    = clang
PYTHON   = python3
JOBS    ?= 2
FUZZ_SECONDS = 60
MINGW    = x86_64-w64-mingw32-gcc
WINE     = /usr/lib/wine/wine64
WINDOWS_TESTS =
NVCC     = nvcc
MPICC    = mpicc
CUDA_ARCHS = 75 80 86 89 90 100 120
NVFLAGS  = -std=c++17 -I. -Itests -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror
NVCODE   = $$(for a in $(CUDA_ARCHS); do echo "-gencode arch=compute_$$a,code=sm_$$a"; done)

BUILD    = $(CC) $(CSTD) $(CFLAGS) $(WARN) -I.
RUN      = CC="$(CC)" JOBS="$(JOBS)" LDLIBS="$(LDLIBS)" sh tests/run.sh
ASAN     = -O0 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
TSAN     = -O0 -g -fsanitize=thread
VALGRIND_MORE =

# the header's implementation is compiled once, and takes most of the time; the tool and the examples
# are linked with it. rng_kat looks inside the header and has its own, beside it.
all:
	@$(MAKE) build/tests/rng_kat & side=$$!; $(MAKE) ckptresume && $(MAKE) examples && wait $$side

build/ckptresume.o: ckptresume.h
	@mkdir -p build; printf '%s\n' '#define CKPTRESUME_IMPLEMENTATION' '#include "ckptresume.h"' > build/ckptresume.c
	$(BUILD) -c build/ckptresume.c -o $@

# CKPTRESUME_IMPLEMENTED: as after a first include, only declarations are left
ckptresume: build/ckptresume.o examples/ckptresume/*.[ch]
	$(BUILD) -DCKPTRESUME_IMPLEMENTED $(LDFLAGS) examples/ckptresume/*.c build/ckptresume.o -o $@ $(LDLIBS)

# what other languages load: examples/ckptresume.py. Only what the header declares is seen from outside
lib: ckptresume.h
	@mkdir -p build; printf '%s\n' '#define CKPTRESUME_IMPLEMENTATION' '#include "ckptresume.h"' > build/lib.c
	@case $$(uname -s) in Darwin) name=libckptresume.0.dylib; how="-dynamiclib -install_name $$name" ;; \
	    *) name=libckptresume.so.0; how="-shared -Wl,-soname,$$name" ;; esac; \
	echo "$(CC) $$how: build/$$name"; $(BUILD) -fPIC -fvisibility=hidden $$how \
	    '-DCKR_API=extern __attribute__((visibility("default")))' $(LDFLAGS) build/lib.c -o build/$$name $(LDLIBS)

# every examples/*.c, into build/examples; those of MPI only where there is an mpicc
examples: build/ckptresume.o
	@mkdir -p build/examples; for f in examples/*.c; do \
	    o=build/examples/$$(basename "$$f" .c); \
	    cc="$(CC)"; [ -f "$$f" ] || continue; \
	    case $$f in examples/mpi*) cc="$(MPICC)" ;; esac; \
	    command -v $${cc%% *} > /dev/null || { echo "skipped: $$f (no $$cc)"; continue; }; \
	    if [ -f "$$o" ] && [ -z "$$(find "$$f" examples/mlp.h build/ckptresume.o -newer "$$o")" ]; then \
	        continue; fi; \
	    echo "$$cc $$f"; $$cc $(CSTD) $(CFLAGS) $(WARN) -DCKPTRESUME_IMPLEMENTED -I. $(LDFLAGS) "$$f" \
	        build/ckptresume.o -o "$$o" $(LDLIBS) || exit 1; done

# known answers of generators: build/tests/rng_kat FILE...
build/tests/rng_kat: tests/rng_kat.c ckptresume.h tests/open.awk
	@CC="$(CC)" CFLAGS="$(CSTD) -O0 -g" sh tests/run.sh --object build/tests
	$(CC) $(CSTD) -O0 -g -Ibuild/tests/include tests/rng_kat.c build/tests/ckptresume.o -o $@ $(LDLIBS)

demo: ckptresume
	@sh examples/demo.sh

# compiling is most of it: without the optimiser, which the tool is built with
test: all
	@CFLAGS="$(CSTD) -O0 -g" $(RUN) build/tests

# by mingw-w64, run under wine (Debian: gcc-mingw-w64-x86-64, wine64), which needs no display; with
# nothing linked but what every Windows has. kill.c is of POSIX: processes, signals
test-windows: all
	@mkdir -p build/windows/examples
	@MINGW="$(MINGW)" WINE="$(WINE)" JOBS="$(JOBS)" sh tests/windows.sh build/windows $(WINDOWS_TESTS)

# what needs the real frameworks: torch and the safetensors package; NANOTRON_SRC=DIR for Nanotron too
interop: ckptresume lib
	@sh tests/interop/run.sh

sanitize: ckptresume
	@mkdir -p build/asan build/tsan
	@echo "address, undefined:"
	@CC="$(CC)" CFLAGS="$(CSTD) $(ASAN)" sh tests/run.sh --object build/asan
	@$(CC) $(CSTD) $(ASAN) -DCKPTRESUME_IMPLEMENTED -I. examples/ckptresume/*.c build/asan/ckptresume.o \
	    -o build/asan/ckptresume $(LDLIBS)
	@CFLAGS="$(CSTD) $(ASAN)" TOOL=build/asan/ckptresume $(RUN) build/asan \
	    faults $$(cd tests && ls t_*.c | sed 's/\.c$$//' | grep -v '^t_examples$$')
	@echo "thread:"
	@CFLAGS="$(CSTD) $(TSAN)" $(RUN) build/tsan t_run t_nanotron

# compiled as trainers are: with fast math, and products fused with sums where the machine can
flags: ckptresume
	@fma=; if grep -qw fma /proc/cpuinfo 2> /dev/null; then fma=-mfma; fi; \
	CFLAGS="-std=gnu11 -O1 -ffast-math $$fma" $(RUN) build/flags/fast t_resume t_schedule && \
	CFLAGS="-std=gnu11 -O1 -ffp-contract=fast $$fma" CC="$(CLANG)" JOBS="$(JOBS)" LDLIBS="$(LDLIBS)" \
	    sh tests/run.sh build/flags/fused t_resume t_schedule

valgrind: ckptresume
	@CFLAGS="$(CSTD) -O0 -g" RUNNER="valgrind -q --leak-check=full --error-exitcode=99" \
	    $(RUN) build/tests t_base t_layout t_bad t_bad_files $(VALGRIND_MORE)

# the portable tests on other machines: byte order, 32 bits, another C library; Debian's cross compilers
# and qemu-user-static, musl-tools. Under an emulator the long ones are short.
test-s390x:
	@JOBS="$(JOBS)" sh tests/machine.sh s390x qemu-s390x-static s390x-linux-gnu-gcc

test-aarch64:
	@JOBS="$(JOBS)" sh tests/machine.sh aarch64 qemu-aarch64-static aarch64-linux-gnu-gcc

test-i686:
	@JOBS="$(JOBS)" sh tests/machine.sh i686 - i686-linux-gnu-gcc -msse2 -mfpmath=sse

test-musl:
	@JOBS="$(JOBS)" sh tests/machine.sh musl - musl-gcc

fuzz:
	@CC="$(CLANG)" SECONDS_EACH=$(FUZZ_SECONDS) JOBS="$(JOBS)" sh tests/fuzz/run.sh fuzz

fuzz-replay:
	@CC="$(CC)" JOBS="$(JOBS)" LDLIBS="$(LDLIBS)" sh tests/fuzz/run.sh replay

bench: ckptresume
	@sh bench/run.sh

# ckptresume_cuda.cuh for every architecture of CUDA_ARCHS; needs nvcc, no device
cuda: ckptresume.h ckptresume_cuda.cuh
	@mkdir -p build/cuda build/examples; printf '%s\n' '#define CKPTRESUME_CUDA_IMPLEMENTATION' \
	    '#include "ckptresume_cuda.cuh"' > build/cuda/alone.cu
	$(NVCC) $(NVFLAGS) -O2 $(NVCODE) -c build/cuda/alone.cu -o build/cuda/alone.o
	$(NVCC) $(NVFLAGS) -O1 examples/gpu_load.cu -o build/examples/gpu_load -Xcompiler -pthread

# for sm_70, too, which CUDA 13 has no more: CUDA 11.8, which tests/nvcc11.sh gets (Debian, network)
cuda11: ckptresume.h ckptresume_cuda.cuh
	@mkdir -p build/cuda; printf '%s\n' '#define CKPTRESUME_CUDA_IMPLEMENTATION' \
	    '#include "ckptresume_cuda.cuh"' > build/cuda/alone11.cu
	nvcc=$$(sh tests/nvcc11.sh build/nvcc11) && "$$nvcc" -allow-unsupported-compiler $(NVFLAGS) -O2 \
	    $$(for a in 70 80 90; do echo "-gencode arch=compute_$$a,code=sm_$$a"; done) \
	    -c build/cuda/alone11.cu -o build/cuda/alone11.o

# the tests of t_cuda.c on the device; without one they say so and count nothing
test-cuda: ckptresume.h ckptresume_cuda.cuh
	@mkdir -p build/cuda
	$(NVCC) $(NVFLAGS) -O1 -arch=native tests/cuda.cu -o build/cuda/test -Xcompiler -pthread
	@build/cuda/test
	$(NVCC) $(NVFLAGS) -O1 -arch=native examples/gpu_load.cu -o build/examples/gpu_load -Xcompiler -pthread
	@build/examples/gpu_load tests/data/llmc/uneven/ckpt
	@if command -v compute-sanitizer > /dev/null 2>&1 && nvidia-smi -L > /dev/null 2>&1; then \
	    compute-sanitizer --error-exitcode 9 build/cuda/test casts; \
	    compute-sanitizer --error-exitcode 9 build/cuda/test small; fi

bench-cuda: ckptresume.h ckptresume_cuda.cuh
	@mkdir -p build/cuda
	$(NVCC) $(NVFLAGS) -O2 -arch=native bench/cuda.cu -o build/cuda/bench -Xcompiler -pthread
	@build/cuda/bench

hygiene:
	@$(PYTHON) tests/hygiene.py all

matrix:
	@$(PYTHON) tests/hygiene.py matrix

names:
	@$(PYTHON) tests/hygiene.py names

install: ckptresume
	mkdir -p "$(DESTDIR)$(PREFIX)/include" "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/lib/pkgconfig"
	cp ckptresume.h "$(DESTDIR)$(PREFIX)/include/"
	if [ -f ckptresume_cuda.cuh ]; then cp ckptresume_cuda.cuh "$(DESTDIR)$(PREFIX)/include/"; fi
	cp ckptresume "$(DESTDIR)$(PREFIX)/bin/"
	for f in build/libckptresume.so.0 build/libckptresume.0.dylib; do if [ -f $$f ]; then \
	    cp $$f "$(DESTDIR)$(PREFIX)/lib/"; n=$$(basename $$f); \
	    ln -sf $$n "$(DESTDIR)$(PREFIX)/lib/$$(echo $$n | sed 's/\.0//')"; fi; done
	@# of a tool that runs here; one that was built for another machine has its help there
	if ./ckptresume version > /dev/null 2>&1; then cd "$(DESTDIR)$(PREFIX)" && \
	    mkdir -p share/man/man1 share/bash-completion/completions share/zsh/site-functions && \
	    bin/ckptresume help --man > share/man/man1/ckptresume.1 && \
	    bin/ckptresume help --bash > share/bash-completion/completions/ckptresume && \
	    bin/ckptresume help --zsh > share/zsh/site-functions/_ckptresume; fi
	v=$$(sed -n 's/^#define CKR_VERSION_M[AI][JN]OR //p; s/^#define CKR_VERSION_PATCH //p' ckptresume.h | \
	    tr '\n' '.' | sed 's/\.$$//'); \
	printf '%s\n' 'prefix=$(PREFIX)' 'includedir=$${prefix}/include' '' 'Name: ckptresume' \
	    'Description: resume training from checkpoints of any framework and topology' "Version: $$v" \
	    'Cflags: -I$${includedir}' 'Libs: -pthread -lm' > "$(DESTDIR)$(PREFIX)/lib/pkgconfig/ckptresume.pc"

uninstall:
	cd "$(DESTDIR)$(PREFIX)" && rm -f include/ckptresume.h include/ckptresume_cuda.cuh bin/ckptresume \
	    lib/libckptresume.so.0 lib/libckptresume.so lib/libckptresume.0.dylib lib/libckptresume.dylib \
	    lib/pkgconfig/ckptresume.pc share/man/man1/ckptresume.1 \
	    share/bash-completion/completions/ckptresume share/zsh/site-functions/_ckptresume

clean:
	rm -rf build ckptresume

help:
	@echo "make              the tool ./ckptresume, and the examples in build/examples"
	@echo "make demo         inspect, plan, convert and verify a real checkpoint of tests/data"
	@echo "make test         every test that needs only a C compiler; under 3 minutes"
	@echo "make test-windows what runs on Windows of it, by mingw-w64 and wine64; WINDOWS_TESTS='t_run ...' some"
	@echo "make interop      what was written, read by torch and safetensors (makes build/venv; needs python3)"
	@echo "                  NANOTRON_SRC=DIR: also loaded by Nanotron itself"
	@echo "make sanitize     the tests under ASan and UBSan; run and write under TSan"
	@echo "make flags        some under fast math, and with products fused with sums"
	@echo "make test-s390x   the portable tests elsewhere: test-s390x, test-aarch64 (qemu-user), test-i686, test-musl"
	@echo "make valgrind     readers under valgrind; VALGRIND_MORE='t_run t_resume t_nanotron' the slow ones"
	@echo "make fuzz         clang libFuzzer, FUZZ_SECONDS=60 for each target"
	@echo "make fuzz-replay  the fuzz corpora once, under ASan and UBSan"
	@echo "make cuda         ckptresume_cuda.cuh for every architecture (needs nvcc); make cuda11: sm_70, with CUDA 11.8"
	@echo "make test-cuda    its tests on a device; make bench-cuda: its speed there"
	@echo "make hygiene      text rules, function lengths, compile matrix, names, compile times (needs python3)"
	@echo "make matrix       only the compile matrix; make names: only the names check"
	@echo "make bench        speed and memory, as ratios in the same run"
	@echo "make lib          build/libckptresume.so.0, for other languages (examples/ckptresume.py); make install takes it"
	@echo "make install      header, tool, manual page, completions, .pc file: PREFIX=/usr/local, DESTDIR; uninstall"
	@echo "make clean        removes build/ and ./ckptresume"
	@echo "variables: CC CFLAGS WARN CLANG PYTHON JOBS"

.PHONY: all lib examples demo test test-windows cuda cuda11 test-cuda bench-cuda interop sanitize flags valgrind fuzz fuzz-replay bench hygiene matrix names \
        test-s390x test-aarch64 test-i686 test-musl \
        install uninstall clean help
