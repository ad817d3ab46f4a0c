#!/bin/sh
# make demo: a real Nanotron checkpoint (TP 2) is inspected, planned, converted to TP 1 x PP 2 and
# verified.
set -eu
src=tests/data/nanotron/tp2_pp1_dp1/ckpt
out=build/demo
rm -rf "$out" build/demo.back
mkdir -p build

run() {
    printf '\n$ ./ckptresume %s\n' "$*"
    ./ckptresume "$@"
}

echo "A checkpoint that Nanotron wrote with tensor parallelism 2:"
run inspect "$src"
echo
echo "What would a resume with TP 1 and PP 2 keep, change and lose? Nothing is touched:"
run plan "$src" --tp 1 --pp 2 | sed '/^  file  */,/^$/d'
echo
echo "The same, done. The directory appears whole or not at all:"
run convert "$src" "$out" --tp 1 --pp 2 --quiet
echo "written to $out"
echo
echo "Every byte of it read back, checksums and copies compared:"
run check "$out" | sed -n '1,/^$/p'
echo
echo "And back to TP 2: the same state, tensor by tensor, group by group:"
./ckptresume convert "$out" build/demo.back --tp 2 --pp 1 --quiet
run diff "$src" build/demo.back
printf '\nOne digest for all three, because it does not depend on the topology:\n'
for d in "$src" "$out" build/demo.back; do
    total=$(./ckptresume digest "$d" --json | sed 's/.*"digest":"\([0-9a-f]*\)","tensors".*/\1/')
    printf '  %s  %s\n' "$total" "$d"
done
rm -rf build/demo.back
