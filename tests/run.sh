#!/bin/sh
# run.sh DIR [NAME...]: builds tests/NAME.c (default: kill.c, faults.c, every t_*.c) into DIR, runs
# each from the root of the repository, JOBS of them side by side, and adds up what they count. A
# program that does not end with its counts is one failure. CC, CFLAGS, LDLIBS, JOBS; RUNNER goes
# before each program, TOOL is the tool that kill.c starts, EXE the ending of a program's name.
# run.sh --object DIR: only DIR/ckptresume.o, which all of them are linked with, and DIR/include/ckptresume.h,
# which declares what is inside it: the implementation is compiled once for each DIR.
set -u

# newer FILE SOURCES...: FILE is there, and no source is younger
newer() {
    target=$1
    shift
    [ -f "$target" ] && [ -z "$(find "$@" -newer "$target")" ]
}

# object DIR
object() {
    made="${CC:-cc} ${CFLAGS:--O1}"
    newer "$1/ckptresume.o" ckptresume.h tests/open.awk && [ -f "$1/include/ckptresume.h" ] &&
        [ "$(cat "$1/made-with" 2> /dev/null)" = "$made" ] && return
    mkdir -p "$1/include" && echo "$made" > "$1/made-with" &&
        awk -v want=names -f tests/open.awk ckptresume.h > "$1/include/ckptresume.h" &&
        { echo '#include <stdbool.h>'
          echo 'bool t_far;'
          echo '#define CKR__IS_FAR(path) (t_far || ckr__os_far(path))'
          echo '#define CKPTRESUME_IMPLEMENTATION'; awk -v want=bodies -f tests/open.awk ckptresume.h; } \
            > "$1/ckptresume.c" &&
        # shellcheck disable=SC2086
        ${CC:-cc} ${CFLAGS:--O1} -c "$1/ckptresume.c" -o "$1/ckptresume.o" && return
    rm -f "$1/ckptresume.o"
    return 1
}

# one DIR NAME: build and run; the output and the exit code lie in DIR
one() {
    out=$1/$2
    exe=$out${EXE:-}
    rm -f "$out.rc"
    if ! newer "$exe" "$1/ckptresume.o" ckptresume_cuda.cuh tests/*.h "tests/$2.c"; then
        # shellcheck disable=SC2086
        ${CC:-cc} ${CFLAGS:--O1} "-I$1/include" -I. -Itests "tests/$2.c" "$1/ckptresume.o" -o "$exe" \
            ${LDLIBS:--pthread -lm} 2> "$out.log" || {
            rm -f "$exe"
            { head -n 20 "$out.log"; echo "$2 did not build"; } > "$out.out"
            echo 1 > "$out.rc"
            return
        }
    fi
    # shellcheck disable=SC2086
    TOOL=${TOOL:-./ckptresume} ${RUNNER:-} "$exe" > "$out.out" 2>&1
    echo $? > "$out.rc"
}

case $1 in
--one) one "$2" "$3"; exit 0 ;;
--object) object "$2"; exit ;;
esac
dir=$1
shift
object "$dir" || { echo "ckptresume.h did not build"; echo "0 passed, 1 failed"; exit 1; }
if [ $# -eq 0 ]; then
    for f in tests/kill.c tests/faults.c tests/t_*.c; do        # the longest first
        [ -f "$f" ] && set -- "$@" "$(basename "$f" .c)"
    done
fi
printf '%s\n' "$@" | xargs -P "${JOBS:-2}" -I NAME sh "$0" --one "$dir" NAME

passed=0
failed=0
for t in "$@"; do
    out=$dir/$t.out
    rc=$(cat "$dir/$t.rc" 2> /dev/null || echo 1)
    last=$(tail -n 1 "$out" | tr -d '\r')
    p=$(expr "x$last" : 'x\([0-9][0-9]*\) passed, [0-9][0-9]* failed$')
    f=$(expr "x$last" : 'x[0-9][0-9]* passed, \([0-9][0-9]*\) failed$')
    if [ -n "$p" ] && [ -n "$f" ]; then
        sed '$d' "$out"
        if [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; then
            echo "$t: exit $rc"
            f=1
        fi
    else
        tail -n 40 "$out"
        echo "$t: exit $rc without counts"
        p=0
        f=1
    fi
    printf '%-12s %s passed, %s failed\n' "$t" "$p" "$f"
    passed=$((passed + p))
    failed=$((failed + f))
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
