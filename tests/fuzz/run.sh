#!/bin/sh
# run.sh replay: every target once over its corpus, under ASan and UBSan. run.sh fuzz: libFuzzer
# (clang), SECONDS_EACH for each target, new inputs into build/fuzz/corpus. From the root of the
# repository.
set -u
mode=$1
targets='json yaml safetensors torch pickle open dcp'
mkdir -p build/fuzz
opt=-O1
[ "$mode" = replay ] && opt=-O0    # half the time to compile, and the corpora are small
dir=build/fuzz/$mode
flags="-g $opt -fno-omit-frame-pointer -I$dir/include -I. -Itests -Itests/fuzz"
if [ "$mode" = fuzz ]; then
    san='-fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined'
    # the object has no main of its own, and wants none
    object='-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined'
else
    san='-fsanitize=address,undefined -fno-sanitize-recover=all'
    object=$san
fi
passed=0
failed=0

# build TARGET
build() {
    exe=build/fuzz/$mode-$1
    src="tests/fuzz/fuzz_$1.c $dir/ckptresume.o"
    [ "$mode" = fuzz ] || src="$src tests/fuzz/replay.c"
    sources="$dir/ckptresume.o tests/*.h tests/fuzz/*.[ch]"
    # shellcheck disable=SC2086
    if [ ! -f "$exe" ] || [ -n "$(find $sources -newer "$exe")" ]; then
        rm -f "$exe"
        # shellcheck disable=SC2086
        ${CC:-cc} $flags $san $src -o "$exe" ${LDLIBS:--pthread -lm}
    fi
}

if [ "${2:-}" = --build ]; then
    build "$3"
    exit
fi
CC="${CC:-cc}" CFLAGS="$flags $object" sh tests/run.sh --object "$dir" || {
    echo "0 passed, 1 failed"
    exit 1
}
printf '%s\n' $targets | xargs -P "${JOBS:-2}" -I TARGET sh "$0" "$mode" --build TARGET

for t in $targets; do
    exe=build/fuzz/$mode-$t
    if [ ! -x "$exe" ]; then
        failed=$((failed + 1))
        continue
    fi
    if [ "$mode" = fuzz ]; then
        mkdir -p "build/fuzz/corpus/$t"
        "$exe" -max_len=65536 -timeout=10 -rss_limit_mb=2048 -max_total_time="${SECONDS_EACH:-60}" \
            -artifact_prefix=build/fuzz/ -print_final_stats=1 "build/fuzz/corpus/$t" \
            "tests/fuzz/corpus/$t" > "build/fuzz/$t.log" 2>&1
        rc=$?
        grep -E 'number_of_executed_units' "build/fuzz/$t.log"
        [ "$rc" -ne 0 ] && tail -n 30 "build/fuzz/$t.log"
        n=1
    else
        "$exe" "tests/fuzz/corpus/$t" > "build/fuzz/$t.log" 2>&1
        rc=$?
        n=$(sed -n '$s/ passed.*//p' "build/fuzz/$t.log")
        [ "$rc" -ne 0 ] && tail -n 40 "build/fuzz/$t.log"
    fi
    if [ "$rc" -eq 0 ]; then
        passed=$((passed + n))
        echo "$mode $t: ok, $n"
    else
        failed=$((failed + 1))
        echo "$mode $t: exit $rc"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
