#!/bin/sh
# run.sh: builds and runs every benchmark and writes bench/results/MACHINE.md. From the repository's root.
#   BENCH_DATA     where a folder for the inputs is made (each made when it is needed and removed after: 3 GiB at most,
#                  twice as much for what is written); memory-backed. Default: /dev/shm if 8 GiB are free, or $TMPDIR
#   BENCH_MACHINE  name of the results' file. Default: the processor's model
#   BENCH_PYTHON   an interpreter that has torch, safetensors and deepspeed, for the peers. Default: the first of
#                  .venv, venv, build/venv and python3 that can import torch
#   BENCH_DISK     a folder of a disk, where `disk` takes 16 GiB, or what is free. Default: $TMPDIR
#   BENCH_ONLY     a list out of the steps below, of which all is
#   BENCH_REPEATS  how often each figure is taken
#   MEGATRON_SRC   a source tree of Megatron-LM, for its own converter. Default: none
#   BENCH_KEEP     not empty: the inputs stay (18 GiB)
# Ends with a line of each figure that has a limit or a peer, of what did not run and why, and with 1 where a program
# failed. A figure over its limit is no failure: other work on the machine makes such.
set -eu

cc=${CC:-cc}
flags=${CFLAGS:--O2}
all="hash parse read open reshard dcp groups schedule rng remap many disk slow far late sizes"
only=${BENCH_ONLY:-$all}
cd "$(dirname "$0")/.."
tool=${CKPTRESUME:-$PWD/ckptresume}
disk=${BENCH_DISK:-${TMPDIR:-/tmp}}
build=${BENCH_BUILD:-build/bench}
free() { df -Pk "$1" 2>/dev/null | awk 'NR == 2 { print int($4 / 1048576) }'; }      # GiB
memory() { awk '/^MemAvailable/ { print int($2 / 1048576); n = 1 } END { if (!n) print 1024 }' /proc/meminfo; }
if [ -z "${BENCH_DATA:-}" ]; then
    BENCH_DATA=${TMPDIR:-/tmp}
    if [ -w /dev/shm ] && [ "$(free /dev/shm)" -ge 8 ] && [ "$(memory)" -ge 10 ]; then BENCH_DATA=/dev/shm; fi
fi
# two runs at once have a folder each
BENCH_DATA=$BENCH_DATA/ckptresume-bench$([ -n "${BENCH_KEEP:-}" ] || echo ".$$")
python=${BENCH_PYTHON:-}
for p in .venv/bin/python venv/bin/python build/venv/bin/python python3; do
    [ -n "$python" ] && break
    if "$p" -c 'import torch' 2>/dev/null; then python=$p; fi
done
[ -n "$python" ] || python=python3
model=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1)
[ -n "$model" ] || model=$(uname -m)
name=${BENCH_MACHINE:-$(echo "$model" | tr 'A-Z' 'a-z' | tr -cs 'a-z0-9' '-' | sed 's/^-//; s/-$//')}

inputs() { python3 bench/gen.py "$BENCH_DATA" "$@"; }
done_with() {
    [ -n "${BENCH_KEEP:-}" ] && return
    for each in "$@"; do rm -rf "${BENCH_DATA:?}/$each" "$BENCH_DATA/$each.pt" "$BENCH_DATA/$each.safetensors"; done
}
built() {
    for b in "$@"; do
        $cc -std=c99 $flags -I. -o "$build/$b" "bench/$b.c" -lm -lpthread
    done
}
reshard() { # input, name, flags
    input=$1 what=$2
    shift 2
    inputs "$input"
    "$build/reshard" "$BENCH_DATA" "$tool" "$what" "$BENCH_DATA/$input" "$@"
}
peers() { "$python" bench/peers.py "$1" "$BENCH_DATA" "$tool"; }

# what each step needs in GiB: room for its inputs and all that is written; memory beside
need() {
    case $1 in
    read) echo 2 2 ;; reshard) echo 7 1 ;; dcp) echo 5 3 ;; slow) echo 5 1 ;; many) echo 6 2 ;; far | late) echo 2 1 ;;
    hash) echo 0 2 ;; sizes) echo 2 2 ;;
    *) echo 1 1 ;;
    esac
}

step() {
    case $1 in
    hash | groups | schedule | remap) built $1; "$build/$1" ;;
    parse)
        built parse
        inputs pt70k st100k
        "$build/parse" "$BENCH_DATA/pt70k.pt" "$BENCH_DATA/st100k.safetensors" ;;
    read)
        built read
        inputs pt70k st100k st1g pt1g
        "$build/read" "$BENCH_DATA/st1g.safetensors" "$BENCH_DATA/pt1g.pt"
        peers read
        done_with pt70k st100k st1g pt1g ;;
    open)
        built open
        inputs shards
        "$build/open" "$BENCH_DATA/shards" 2
        done_with shards ;;
    reshard)
        built reshard
        reshard tp2 "TP 2 -> 4" --tp 4
        done_with tp2
        reshard zero4 "ZeRO-1 DP 4 -> 3" --dp 3
        done_with zero4
        reshard cut8 "ZeRO-3 DP 8 -> 3" --dp 3
        peers universal
        peers fp32
        done_with cut8
        reshard mega "TP 8 PP 4 -> TP 4 PP 2 (Megatron)" --tp 4 --pp 2
        peers megatron
        done_with mega
        reshard megad "TP 8 PP 4 -> TP 4 PP 2 (Megatron, torch_dist)" --tp 4 --pp 2
        done_with megad ;;
    dcp)
        built dcp part reshard
        inputs dcp125 dcp1k dcp10k dcp100k
        "$build/dcp" "$BENCH_DATA/dcp125" "$BENCH_DATA/dcp1k" "$BENCH_DATA/dcp10k" "$BENCH_DATA/dcp100k"
        done_with dcp125 dcp1k dcp10k dcp100k
        reshard dcp8 "DCP DP 8 -> 3" --dp 3
        reshard dcp8 "DCP -> safetensors" --to safetensors
        "$build/part" "$BENCH_DATA/dcp8"
        peers dcp
        done_with dcp8 ;;
    many) python3 bench/disk.py many "$tool" "$BENCH_DATA" ;;
    disk)
        kind=$(df -T "$disk" 2>/dev/null | awk 'NR == 2 { print $2 }')
        if [ "$kind" = tmpfs ]; then
            printf '\ndisk: not run, %s is in memory; BENCH_DISK names a folder of a disk.\n' "$disk"
        else python3 bench/disk.py disk "$tool" "$disk"; fi ;;
    rng) built rng; "$python" bench/rng.py "$build/rng"; "$build/rng" table ;;
    slow)
        built slow
        [ -e "$BENCH_DATA/small" ] || \
            python3 bench/frontier.py "$BENCH_DATA/small" dcp --ranks 64 --layers 20 --hidden 512 --heads
        for slower in 1 12; do
            "$build/slow" "$BENCH_DATA/small" "$BENCH_DATA/small-out" 48 64 $slower
            rm -rf "$BENCH_DATA/small-out"
        done
        done_with small ;;
    far) python3 bench/far.py "$tool" "$BENCH_DATA" ;;
    late)
        if [ -w /dev/fuse ] && command -v fusermount3 > /dev/null && pkg-config fuse3 2>/dev/null; then
            $cc -O2 -o "$build/late" bench/late.c $(pkg-config --cflags --libs fuse3)
            python3 bench/late.py "$tool" "$BENCH_DATA" "$build/late"
        else printf '\nlate: not run, it wants FUSE 3 (Debian: fuse3 libfuse3-dev pkg-config) and /dev/fuse.\n'; fi ;;
    sizes) python3 bench/sizes.py "$tool" "$BENCH_DATA" ;;
    *) echo "there is no such step: $1" >&2; return 2 ;;
    esac
}

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
    took=
    for s in $only; do
        begin=$(date +%s)
        set -- $(need "$s")
        if [ "$(free "$BENCH_DATA")" -lt "$1" ] || [ "$(memory)" -lt "$2" ]; then
            printf '\n%s: not run, it wants %s GiB of room in BENCH_DATA and %s of memory; there are %s and %s.\n' \
                "$s" "$1" "$2" "$(free "$BENCH_DATA")" "$(memory)"
            continue
        fi
        set +e
        (set -e; step "$s")
        status=$?
        set -e
        [ $status = 0 ] || printf '\n%s: FAILED, exit status %s.\n' "$s" $status
        took="$took $s $(($(date +%s) - begin)),"
    done
    printf '\nSeconds of each step:%s.\n' "${took%,}"
}

mkdir -p "$build" bench/results "$BENCH_DATA"
[ -n "${BENCH_KEEP:-}" ] || trap 'rm -rf "$BENCH_DATA"' EXIT
trap 'exit 130' HUP INT TERM
[ -x "$tool" ] || { echo "bench: there is no $tool; \`make ckptresume\` builds it" >&2; exit 1; }
report >"$build/report.md"
# a line of each figure that has a limit or a peer, under its table's title; and of what did not run
awk -F ' *[|] *' '
    /^### / { title = substr($0, 5); next }
    /^[|] figure/ { peer = $4 == "peer"; next }
    / not run, |: FAILED,/ { rest = rest $0 "\n" }
    NF < 6 || /^[|]-/ { next }
    $5 == "" && !peer { next }
    title != "" { lines = lines "\n" title "\n"; title = "" }
    {
        over = $6 + 0 > 1
        n += over
        least = peer || $3 == $4 ? "" : ", least " $3
        lines = lines (over ? "  OVER " : "       ") $2 ": " (peer ? $3 : $4) least
        if (peer && $4 != "") lines = lines ", peer " $4
        if ($6 != "") lines = lines " (" ($5 == "" ? "" : "limit " $5 ": ") $6 ")"
        lines = lines "\n"
    }
    END {
        if (lines != "") printf "\n## Figures with a limit or a peer\n\n```%s```\n", lines
        printf "\n%s%d over their limit.\n", rest, n
    }
' "$build/report.md" >"$build/end.md"
cat "$build/end.md" >>"$build/report.md"
cat "$build/report.md"
if [ "$only" = "$all" ]; then cp "$build/report.md" "bench/results/$name.md"; fi
echo "report in $build/report.md"
! grep -q ': FAILED,' "$build/report.md"
