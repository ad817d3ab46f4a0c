#!/bin/sh
# PARTS=N TOOL=./ckptresume in_parts.sh VERB ...: the tool, but a conversion is written in N parts, all at the same
# time, and committed; PARTS=continue: as one that can go on. Stands for the tool in same.py: what it prints and writes
# is what the one process prints and writes.
tool=${TOOL:-./ckptresume} verb=$1
case $verb in
convert|export) ;;
*) exec "$tool" "$@" ;;
esac
[ "$PARTS" = continue ] && exec "$tool" "$@" --continue
kept=$(mktemp -d)
i=$PARTS
while [ "$i" -gt 0 ]; do
    { "$tool" "$@" --part "$i/$PARTS" > "$kept/$i" 2> "$kept/$i.err"; echo $? > "$kept/$i.code"; } &
    i=$((i - 1))
done
wait
i=$PARTS
while [ "$i" -gt 0 ]; do
    code=$(cat "$kept/$i.code")
    if [ "$code" -ne 0 ]; then
        cat "$kept/$i"
        cat "$kept/$i.err" >&2
        rm -rf "$kept"
        exit "$code"
    fi
    i=$((i - 1))
done
rm -rf "$kept"
exec "$tool" "$@" --commit "$PARTS"
