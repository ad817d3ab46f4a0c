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
export TOOL="$dir/ckptresume.exe"

die() {
    echo "$1"
    echo "0 passed, 1 failed"
    exit 1
}

command -v "$MINGW" > /dev/null || die "no $MINGW here"
command -v "$WINE" > /dev/null || die "no $WINE here"

# strict C99, and not a warning: what a user of the header sees
build() {
    "$MINGW" -std=c99 -O1 -Wall -Wextra -Werror -DCKPTRESUME_IMPLEMENTED -I. "$1" \
        "$dir/ckptresume.o" -o "$2" || die "$1 did not build"
}

mkdir -p "$dir/examples"
# the prefix is made beside it, once: some 10 s
"$WINE" wineboot -i > /dev/null 2>&1 &
sh tests/run.sh --object "$dir" || die "ckptresume.h did not build"
build examples/ckptresume.c "$TOOL"
# trainer.c forks, mpi.c needs an MPI
for name in convert custom_io resume_lr save_load; do
    build "examples/$name.c" "$dir/examples/$name.exe"
done
wait
if [ $# -eq 0 ]; then
    for f in tests/t_*.c tests/faults.c; do set -- "$@" "$(basename "$f" .c)"; done
fi
sh tests/run.sh "$dir" "$@"
