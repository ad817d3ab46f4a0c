#!/bin/sh
# windows.sh DIR [NAME...]: builds the tool, the examples and the tests (default: every t_*.c,
# faults.c) with MINGW into DIR, and runs them under WINE; a prefix of its own in DIR. As on POSIX,
# one object of the header. ./ckptresume has to be there: t_windows.c compares with what it writes.
set -u
dir=$1
shift
MINGW=${MINGW:-x86_64-w64-mingw32-gcc}
WINE=${WINE:-/usr/lib/wine/wine64}
export WINEPREFIX="$PWD/$dir/wine" WINEDEBUG=-all WINEDLLOVERRIDES="mscoree=d;mshtml=d"
export CC="$MINGW" CFLAGS="-std=gnu99 -O1" EXE=.exe RUNNER="$WINE" LDLIBS=" " JOBS="${JOBS:-2}"
# thousands of small files, each of them synced
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ]; then export TMPDIR=/dev/shm; fi
export TOOL="$dir/ckptresume.exe"

die() {
    echo "$1"
    echo "0 passed, 1 failed"
    exit 1
}

command -v "$MINGW" > /dev/null || die "no $MINGW here"
command -v "$WINE" > /dev/null || die "no $WINE here"

# build EXE SOURCES...: strict C99, and not a warning: what a user of the header sees
build() {
    exe=$1
    shift
    "$MINGW" -std=c99 -O1 -Wall -Wextra -Werror -DCKPTRESUME_IMPLEMENTED -I. "$@" \
        "$dir/ckptresume.o" -o "$exe" || die "$exe did not build"
}

mkdir -p "$dir/examples"
# the prefix is made beside it, once: some 10 s
"$WINE" wineboot -i > /dev/null 2>&1 &
sh tests/run.sh --object "$dir" || die "ckptresume.h did not build"
build "$TOOL" examples/ckptresume/*.c
# trainer.c forks, mpi.c and mpi_convert.c need an MPI
for name in convert custom_io resume_lr save_load; do
    build "$dir/examples/$name.exe" "examples/$name.c"
done

# what windows.c compares with: the native programs' files and words
rm -rf "$dir/native" "$dir/here"
mkdir -p "$dir/native"
data=tests/data
cat > "$dir/native/cases" << EOF
convert $data/nanotron/tp2_pp1_dp1/ckpt @ 1 2 2
convert $data/nanotron/tp1_pp2_dp1_tied/ckpt @ 2 1 1
ckptresume convert $data/nanotron/tp2_pp1_dp1/ckpt @ --to=dcp
ckptresume convert $data/nanotron/tp2_pp1_dp1/ckpt @ --to=safetensors
ckptresume convert $data/nanotron/tp2_pp1_dp1/ckpt @ --to=torch
ckptresume convert $data/llmc/uneven/ckpt @ --dp=2
ckptresume digest $data/nanotron/tp2_pp1_dp1/ckpt
ckptresume digest $data/llmc/uneven/ckpt
ckptresume digest $data/deepspeed/cut/ckpt
ckptresume digest $data/megatron/v019_fr_tp2/ckpt
ckptresume digest $data/dcp/tt_single
ckptresume inspect --json $data/dcp/tt_single
ckptresume lr --csv $data/nanotron/tp2_pp1_dp1/ckpt
ckptresume tree --json --hash $data/resume/lambda.pt
EOF
n=0
while read -r program words; do
    path=./$program
    [ "$program" = ckptresume ] || path=build/examples/$program
    to=$dir/native/$n
    # shellcheck disable=SC2086
    "$path" $(echo "$words" | sed "s|@|$to|") > "$to.out" 2> "$to.err" ||
        die "$program $words: $(cat "$to.err")"
    n=$((n + 1))
done < "$dir/native/cases"
wait
if [ $# -eq 0 ]; then
    set -- windows
    for f in tests/t_*.c tests/faults.c; do
        case $f in             # limits, signals, forks; files that move while they are open
        tests/t_process.c | tests/t_rivals.c) ;;
        *) set -- "$@" "$(basename "$f" .c)" ;;
        esac
    done
fi
sh tests/run.sh "$dir" "$@"
