#!/bin/sh
# run.sh: what ckptresume wrote, read by the frameworks. Makes build/venv from the pinned
# requirements once and uses it again; VENV_PYTHON=PYTHON takes one that has them.
# NANOTRON_SRC=DIR: Nanotron too. LLMC_SRC=DIR: llm.c's program, on a CUDA runtime without a device.
# VERL_SRC=DIR: that source tree of verl instead of the pinned one.
# TITAN022=DIR: an unpacked wheel of torchtitan 0.2.2. CORPUS=DIR has the cases for
# torch.distributed.checkpoint and torchtitan's trainer. DeepSpeed has to find torch when it is installed, so
# it comes after the rest, without its compiled parts.
set -u
py=${VENV_PYTHON:-}
wanted=tests/interop/requirements.txt
[ -n "${NANOTRON_SRC:-}" ] && wanted="$wanted tests/interop/requirements-nanotron.txt"

# one at a time: .ci/run makes the environment beside other work and the tests wait for it
if [ "${1:-}" = --venv ]; then only_venv=1; shift; fi
lock=build/venv.lock
mkdir -p build
n=0
until mkdir "$lock" 2> /dev/null || [ $n -gt 300 ]; do sleep 2; n=$((n + 1)); done
trap 'rmdir "$lock" 2> /dev/null' EXIT

if [ -z "$py" ]; then
    py=build/venv/bin/python
    mkdir -p build
    # shellcheck disable=SC2086
    cat $wanted > build/venv.wanted
    cat build/venv.wanted tests/interop/requirements-deepspeed.txt tests/interop/requirements-titan.txt \
        tests/interop/requirements-frameworks.txt tests/interop/requirements-verl.txt \
        tests/interop/requirements-lightning.txt > build/venv.all
    if ! cmp -s build/venv.all build/venv/made-from; then
        [ -x "$py" ] || python3 -m venv build/venv || {
            echo "python3 cannot make a virtual environment (Debian: apt-get install python3-venv)"
            echo "0 passed, 1 failed"
            exit 1
        }
        echo "installing into build/venv:" $(grep -v '^#' build/venv.wanted)
        "$py" -m pip install --quiet --disable-pip-version-check --no-cache-dir --progress-bar off \
            -r build/venv.wanted > build/venv.log 2>&1 || {
            tail -n 20 build/venv.log
            echo "0 passed, 1 failed"
            exit 1
        }
        "$py" -m pip install --quiet --disable-pip-version-check --no-cache-dir --progress-bar off \
            setuptools==80.9.0 wheel==0.45.1 >> build/venv.log 2>&1 &&
            DS_BUILD_OPS=0 "$py" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
                --progress-bar off --no-build-isolation -r tests/interop/requirements-deepspeed.txt \
                >> build/venv.log 2>&1 &&
            "$py" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
                --progress-bar off -r tests/interop/requirements-titan.txt >> build/venv.log 2>&1 &&
            "$py" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
                --progress-bar off --no-deps -r tests/interop/requirements-frameworks.txt \
                -r tests/interop/requirements-verl.txt -r tests/interop/requirements-lightning.txt \
                >> build/venv.log 2>&1 || {
            tail -n 20 build/venv.log
            echo "0 passed, 1 failed"
            exit 1
        }
        cp build/venv.all build/venv/made-from
    fi
fi

[ -z "${only_venv:-}" ] || exit 0
rc=0
"$py" tests/interop/check.py "$@" || rc=1
[ $# -ne 0 ] || "$py" tests/interop/values.py ./ckptresume build/values || rc=1
[ $# -ne 0 ] || "$py" tests/interop/shards.py ./ckptresume || rc=1
[ $# -ne 0 ] || "$py" tests/interop/py.py ./ckptresume build/libckptresume.so.0 --few 2 tests/data/* || rc=1
[ $# -ne 0 ] || "$py" tests/interop/matrix.py ./ckptresume || rc=1
[ $# -ne 0 ] || OMP_NUM_THREADS=1 "$py" tests/interop/dist.py ./ckptresume || rc=1
[ $# -ne 0 ] || OMP_NUM_THREADS=1 "$py" tests/interop/fsdp.py ./ckptresume || rc=1
[ $# -ne 0 ] || OMP_NUM_THREADS=1 "$py" tests/interop/verl.py ./ckptresume || rc=1
[ $# -ne 0 ] || OMP_NUM_THREADS=1 "$py" tests/interop/adopt.py ./ckptresume build/adopt || rc=1
[ $# -ne 0 ] || OMP_NUM_THREADS=1 "$py" tests/interop/gpt.py ./ckptresume build/gpt || rc=1
[ $# -ne 0 ] || OMP_NUM_THREADS=1 "$py" tests/interop/nanotron.py ./ckptresume build/nanotron || rc=1
[ $# -ne 0 ] || OMP_NUM_THREADS=1 "$py" tests/interop/back.py ./ckptresume build/back || rc=1
[ $# -ne 0 ] || OMP_NUM_THREADS=1 "$py" tests/interop/needs.py ./ckptresume build/needs || rc=1
if [ $# -eq 0 ]; then
    rm -rf build/under && mkdir -p build/under
    OMP_NUM_THREADS=1 "$py" tests/interop/trainer_deepspeed.py ./ckptresume build/under || rc=1
fi
corpus=${CORPUS:-../shared/corpus}
[ $# -ne 0 ] || OMP_NUM_THREADS=1 CORPUS="$corpus" "$py" tests/interop/lightning.py ./ckptresume build/lightning || rc=1
if [ $# -eq 0 ] && [ -n "${CI:-}" ] && [ ! -d "$corpus/dcp/make" ]; then
    echo "$corpus/dcp is not there"
    rc=1
fi
if [ $# -eq 0 ] && [ -d "$corpus/dcp/make" ]; then
    "$py" tests/interop/dcp.py ./ckptresume "$corpus/dcp" || rc=1
    "$py" tests/interop/titan.py ./ckptresume "$corpus/dcp" || rc=1
    [ -z "${TITAN022:-}" ] || "$py" tests/interop/titan022.py ./ckptresume "$corpus/dcp" "$TITAN022" || rc=1
fi
if [ $# -eq 0 ] && [ -n "${LLMC_SRC:-}" ] && [ -d "$corpus/llmc" ]; then
    if command -v "${NVCC:-nvcc}" > /dev/null; then
        BUILD=build/llmc "$py" tests/interop/llmc.py ./ckptresume "$corpus" || rc=1
    else
        echo "llm.c: no nvcc, passed over"
    fi
fi
exit $rc
