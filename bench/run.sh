#!/bin/sh
# run.sh: builds and runs every benchmark and writes bench/results/MACHINE.md. From the repository's root.
#   BENCH_DATA     where the inputs go (each made when it is needed and removed after: 5 GiB at most, and
#                  twice as much for what is written); memory-backed. Default: /dev/shm, else $TMPDIR
#   BENCH_MACHINE  name of the results' file. Default: the processor's model
#   BENCH_PYTHON   an interpreter that has torch and safetensors, for the peers. Default: the first of
#                  .venv, venv and python3 that can import torch
#   BENCH_ONLY     a list out of: hash parse read open reshard groups schedule rng remap dcp peers sizes slow far
#   BENCH_REPEATS  how often each figure is taken
#   MEGATRON_SRC   a source tree of Megatron-LM, for its own converter. Default: none
#   BENCH_KEEP     not empty: the inputs stay (18 GiB)
set -eu

cc=${CC:-cc}
flags=${CFLAGS:--O2}
tool=${CKPTRESUME:-./ckptresume}
all="hash parse read open reshard groups schedule rng remap dcp peers sizes slow far"
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
inputs() { python3 bench/gen.py "$BENCH_DATA" "$@"; }
done_with() {
    [ -n "${BENCH_KEEP:-}" ] && return
    for each in "$@"; do rm -rf "${BENCH_DATA:?}/$each" "$BENCH_DATA/$each.pt" "$BENCH_DATA/$each.safetensors"; done
}
reshard() { # input, name, flags
    input=$1
    shift
    if [ ! -x "$tool" ]; then
        printf '\n%s: skipped, there is no %s.\n' "$1" "$tool"
        return
    fi
    inputs "$input"
    what=$1
    shift
    "$build/reshard" "$BENCH_DATA" "$tool" "$what" "$BENCH_DATA/$input" "$@"
}

mkdir -p "$build" bench/results "$BENCH_DATA"
[ -n "${BENCH_KEEP:-}" ] || trap 'rm -rf "$BENCH_DATA"' EXIT
for b in hash parse read open reshard groups schedule rng remap dcp part slow far; do
    case $b in reshard | part) wants dcp || wants $b || continue ;; *) wants $b || continue ;; esac
    $cc -std=c99 $flags -I. -o "$build/$b" "bench/$b.c" -lm -lpthread
done

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
    if wants parse || wants peers; then inputs pt70k st100k; fi
    if wants parse; then "$build/parse" "$BENCH_DATA/pt70k.pt" "$BENCH_DATA/st100k.safetensors"; fi
    if wants read || wants peers; then inputs st1g pt1g; fi
    if wants read; then "$build/read" "$BENCH_DATA/st1g.safetensors" "$BENCH_DATA/pt1g.pt"; fi
    if wants peers; then "$python" bench/peers.py "$BENCH_DATA"; fi
    done_with pt70k st100k st1g pt1g
    if wants open; then
        inputs shards
        "$build/open" "$BENCH_DATA/shards" 2
        done_with shards
    fi
    if wants reshard; then
        reshard tp2 "TP 2 -> 4" --tp 4
        done_with tp2
        reshard zero4 "ZeRO-1 DP 4 -> 3" --dp 3
        done_with zero4
        reshard cut8 "ZeRO-3 DP 8 -> 3" --dp 3
        DS_ACCELERATOR=cpu "$python" bench/ds_peers.py "$BENCH_DATA"
        done_with cut8
        reshard mega "TP 8 PP 4 -> TP 4 PP 2 (Megatron)" --tp 4 --pp 2
        "$python" bench/mega_peers.py "$BENCH_DATA"
        done_with mega
        reshard megad "TP 8 PP 4 -> TP 4 PP 2 (Megatron, torch_dist)" --tp 4 --pp 2
        done_with megad
    fi
    if wants dcp; then
        inputs dcp125 dcp1k dcp10k dcp100k
        "$build/dcp" "$BENCH_DATA/dcp125" "$BENCH_DATA/dcp1k" "$BENCH_DATA/dcp10k" "$BENCH_DATA/dcp100k"
        done_with dcp125 dcp1k dcp10k dcp100k
        reshard dcp8 "DCP DP 8 -> 3" --dp 3
        reshard dcp8 "DCP -> safetensors" --to safetensors
        "$build/part" "$BENCH_DATA/dcp8"
        "$python" bench/dcp_peers.py "$BENCH_DATA" "$tool"
        done_with dcp8
    fi
    if wants groups; then "$build/groups"; fi
    if wants schedule; then "$build/schedule"; fi
    if wants rng; then
        "$python" bench/rng.py "$build/rng"
        "$build/rng" table
    fi
    if wants remap; then "$build/remap"; fi
    if wants slow; then
        [ -e "$BENCH_DATA/small" ] || \
            python3 bench/frontier.py "$BENCH_DATA/small" dcp --ranks 64 --layers 20 --hidden 512 --heads
        "$build/slow" "$BENCH_DATA/small" "$BENCH_DATA/small-out" 48
        done_with small small-out
    fi
    if wants far && [ -x "$tool" ]; then python3 bench/far.py "$tool" "$build/far" "$BENCH_DATA"; fi
    if wants sizes && [ -x "$tool" ]; then python3 bench/sizes.py "$tool" "$BENCH_DATA"; fi
}

report >"$build/report.md" || { cat "$build/report.md"; exit 1; }
cat "$build/report.md"
over=$(awk -F'|' '$6 + 0 > 1' "$build/report.md" | wc -l)
if [ "$only" = "$all" ]; then cp "$build/report.md" "bench/results/$name.md"; fi
echo
echo "$over figures over their limit; report in $build/report.md"
