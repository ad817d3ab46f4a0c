#!/bin/sh
# PARTS=N TOOL=./ckptresume in_parts.sh VERB ...: the tool, but a conversion is written in N parts, the last one first,
# and committed; PARTS=continue: as one that can go on. Stands for the tool in same.py: what it prints and writes is
# what the one process prints and writes.
tool=${TOOL:-./ckptresume} verb=$1
case $verb in
convert|export) ;;
*) exec "$tool" "$@" ;;
esac
[ "$PARTS" = continue ] && exec "$tool" "$@" --continue
i=$PARTS
said=$(mktemp)
while [ "$i" -gt 0 ]; do
    "$tool" "$@" --part "$i/$PARTS" > "$said"
    code=$?
    if [ $code -ne 0 ]; then
        cat "$said"
        rm -f "$said"
        exit $code
    fi
    i=$((i - 1))
done
rm -f "$said"
exec "$tool" "$@" --commit "$PARTS"
