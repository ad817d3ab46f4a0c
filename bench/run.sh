#!/bin/sh
# run.sh: builds and runs every benchmark and writes bench/results/MACHINE.md. From the repository's root.
#   BENCH_DATA     where the inputs go (14 GiB at most at a time); memory-backed. Default: /dev/shm, else $TMPDIR
#   BENCH_MACHINE  name of the results' file. Default: the processor's model
#   BENCH_PYTHON   an interpreter that has torch and safetensors, for the peers. Default: the first of
#                  .venv, venv and python3 that can import torch
#   BENCH_ONLY     a list out of: hash parse read open reshard groups schedule rng remap dcp peers
#   BENCH_REPEATS  how often each figure is taken
#   MEGATRON_SRC   a source tree of Megatron-LM, for its own converter. Default: none
#   BENCH_KEEP     not empty: the inputs stay (18 GiB)
set -eu

cc=${CC:-cc}
flags=${CFLAGS:--O2}
tool=${CKPTRESUME:-./ckptresume}
all="hash parse read open reshard groups schedule rng remap dcp peers"
only=${BENCH_ONLY:-$all}
here=$(dirname "$0")
cd "$here/.."
if [ -z "${BENCH_DATA:-}" ]; then
    if [ -d /dev/shm ] && [ -w /dev/shm ]; then BENCH_DATA=/dev/shm; else BENCH_DATA=${TMPDIR:-/tmp}; fi
    BENCH_DATA=$BENCH_DATA/ckptresume-bench
fi
build=${BENCH_BUILD:-build/bench}
python=${BENCH_PYTHON:-}
for p in .venv/bin/python venv/bin/python build/venv/bin/python python3; do
    [ -n "$python" ] && break
    if "$p" -c 'import torch' 2>/dev/null; then python=$p; fi
done
[ -n "$python" ] || python=python3

wants() { case " $only " in *" $1 "*) return 0 ;; esac; return 1; }
model=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1)
[ -n "$model" ] || model=$(uname -m)
name=${BENCH_MACHINE:-$(echo "$model" | tr 'A-Z' 'a-z' | tr -cs 'a-z0-9' '-' | sed 's/^-//; s/-$//')}
inputs=
if wants parse || wants peers; then inputs="$inputs pt70k st100k"; fi
if wants read || wants peers; then inputs="$inputs st1g pt1g"; fi
if wants open; then inputs="$inputs shards"; fi
if wants dcp; then inputs="$inputs dcp1k dcp100k"; fi

mkdir -p "$build" bench/results
[ -n "${BENCH_KEEP:-}" ] || trap 'rm -rf "$BENCH_DATA"' EXIT
if [ -n "$inputs" ]; then python3 bench/gen.py "$BENCH_DATA" $inputs; fi
for b in hash parse read open reshard groups schedule rng remap dcp; do
    if wants $b; then $cc -std=c99 $flags -I. -o "$build/$b" "bench/$b.c" -lm -lpthread; fi
done

# Inputs of 2 to 4 GiB are there only while they are used: beside them lie their copy or what they become.
reshard() { # NAME INPUT FLAGS...
    title=$1
    input=$2
    shift 2
    python3 bench/gen.py "$BENCH_DATA" "$input"
    "$build/reshard" "$BENCH_DATA" "$tool" "$title" "$BENCH_DATA/$input" "$@"
}

used() { [ -n "${BENCH_KEEP:-}" ] || rm -rf "${BENCH_DATA:?}/$1"; }

report() {
    echo "# $model"
    echo
    echo "| | |"
    echo "|---|---|"
    echo "| processor | $model, $(getconf _NPROCESSORS_ONLN) cores online |"
    echo "| memory | $(awk '/^MemTotal/ { printf "%.1f GiB", $2 / 1048576 }' /proc/meminfo 2>/dev/null) |"
    echo "| kernel | $(uname -srm) |"
    echo "| huge pages | $(cat /sys/kernel/mm/transparent_hugepage/enabled 2>/dev/null || echo unknown) |"
    echo "| compiler | $($cc --version | head -n 1), -std=c99 $flags |"
    echo "| inputs | $(df -T "$BENCH_DATA" 2>/dev/null | awk 'NR == 2 { print $2 }') |"
    echo "| load before | $(cut -d ' ' -f 1-3 /proc/loadavg 2>/dev/null || echo unknown) |"
    echo "| command | \`make bench\`${BENCH_ONLY:+ with BENCH_ONLY=\"$BENCH_ONLY\"} |"
    if wants hash; then "$build/hash"; fi
    if wants parse; then "$build/parse" "$BENCH_DATA/pt70k.pt" "$BENCH_DATA/st100k.safetensors"; fi
    if wants read; then "$build/read" "$BENCH_DATA/st1g.safetensors" "$BENCH_DATA/pt1g.pt"; fi
    if wants open; then "$build/open" "$BENCH_DATA/shards" 2; fi
    if wants reshard; then
        if [ -x "$tool" ]; then
            reshard "TP 2 -> 4" tp2 --tp 4
            used tp2
            reshard "ZeRO-1 DP 4 -> 3" zero4 --dp 3
            used zero4
            reshard "ZeRO-3 DP 8 -> 3" cut8 --dp 3
            "$python" bench/ds_peers.py "$BENCH_DATA"
            used cut8
            reshard "TP 8 PP 4 -> TP 4 PP 2 (Megatron)" mega --tp 4 --pp 2
            "$python" bench/mega_peers.py "$BENCH_DATA"
            used mega
            reshard "TP 8 PP 4 -> TP 4 PP 2 (Megatron, torch_dist)" megad --tp 4 --pp 2
            used megad
        else
            echo
            echo "Reshard: skipped, there is no $tool."
        fi
    fi
    if wants groups; then "$build/groups"; fi
    if wants schedule; then "$build/schedule"; fi
    if wants rng; then
        "$python" bench/rng.py "$build/rng"
        "$build/rng" table
    fi
    if wants remap; then "$build/remap"; fi
    if wants dcp; then "$build/dcp" "$BENCH_DATA/dcp1k" "$BENCH_DATA/dcp100k"; fi
    if wants peers; then "$python" bench/peers.py "$BENCH_DATA"; fi
}

report >"$build/report.md" || { cat "$build/report.md"; exit 1; }
cat "$build/report.md"
over=$(awk -F'|' '$6 + 0 > 1' "$build/report.md" | wc -l)
if [ "$only" = "$all" ]; then cp "$build/report.md" "bench/results/$name.md"; fi
echo
echo "$over figures over their limit; report in $build/report.md"
