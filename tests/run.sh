#!/bin/sh
# run.sh DIR [NAME...]: builds tests/NAME.c (default: every t_*.c, faults.c, kill.c) into DIR, runs
# them from the root of the repository and adds up what they count. A program that does not end with
# its counts is one failure. CC, CFLAGS, LDLIBS, JOBS; RUNNER goes before each program, TOOL is the
# tool that kill.c starts.
set -u
dir=$1
shift
mkdir -p "$dir"
if [ $# -eq 0 ]; then
    for f in tests/t_*.c tests/faults.c tests/kill.c; do
        [ -f "$f" ] && set -- "$@" "$(basename "$f" .c)"
    done
fi

build() {
    out=$dir/$1
    if [ -f "$out" ] && [ -z "$(find ckptresume.h tests/*.h "tests/$1.c" -newer "$out")" ]; then
        return 0
    fi
    # shellcheck disable=SC2086
    ${CC:-cc} ${CFLAGS:--O1} -I. -Itests "tests/$1.c" -o "$out" ${LDLIBS:--pthread -lm} \
        2> "$out.log" || {
        rm -f "$out"
        head -n 20 "$out.log"
    }
}

n=0
for t in "$@"; do
    build "$t" &
    n=$((n + 1))
    if [ "$n" -ge "${JOBS:-2}" ]; then wait; n=0; fi
done
wait

passed=0
failed=0
for t in "$@"; do
    out=$dir/$t.out
    if [ -x "$dir/$t" ]; then
        # shellcheck disable=SC2086
        TOOL=${TOOL:-./ckptresume} ${RUNNER:-} "$dir/$t" > "$out" 2>&1
        rc=$?
    else
        echo "$t did not build" > "$out"
        rc=1
    fi
    last=$(tail -n 1 "$out")
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
