#!/bin/sh
# machine.sh NAME RUNNER CC [FLAGS...]: what of the tests is portable, built static for another machine
# into build/NAME, and run by RUNNER, an emulator, or by this machine (-). What is long is short there;
# with T_QUICK= (empty) in full. Not portable: the examples (they are other programs), and kill.c, which
# kills by the time that the tool takes.
set -u
name=$1
runner=$2
CC=$3
shift 3
dir=build/$name
tool=$dir/ckptresume
CFLAGS="-std=c99 -O1 -static $*"
JOBS=${JOBS:-2}
RUNNER=
export CC CFLAGS JOBS RUNNER

fail() {
    echo "$name: $1"
    echo "0 passed, 1 failed"
    exit 1
}

command -v "$CC" > /dev/null || fail "no $CC here"
mkdir -p "$dir"
sh tests/run.sh --object "$dir" || fail "ckptresume.h did not build"
# shellcheck disable=SC2086
$CC $CFLAGS -DCKPTRESUME_IMPLEMENTED -I. examples/ckptresume/*.c "$dir/ckptresume.o" -o "$tool" -pthread -lm ||
    fail "the tool did not build"
if [ "$runner" != - ]; then
    command -v "$runner" > /dev/null || fail "no $runner here"
    printf '#!/bin/sh\nexec %s %s "$@"\n' "$runner" "$tool" > "$dir/tool"
    chmod +x "$dir/tool"
    tool=$dir/tool
    RUNNER=$runner
fi
export T_QUICK="${T_QUICK-1}"
# shellcheck disable=SC2046
TOOL=./$tool sh tests/run.sh "$dir" faults $(cd tests && ls t_*.c | sed 's/\.c$//' | grep -v '^t_examples$')
