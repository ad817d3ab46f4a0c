#!/usr/bin/env python3
"""sizes.py TOOL DATA [CASE...]: what checkpoints of models of 405 billion parameters cost before a tensor is read.
Each is written by frontier.py into DATA, looked at by `inspect`, `plan`, `rng --ranks 16384` and `lr`, and removed.
BENCH_KEEP: they stay. Prints bench's tables. A chunk is a piece of a tensor in a file, of all ranks. Bytes of a chunk
of the source: what `inspect` has in memory beyond an empty process; of the target: what `plan` has beyond `inspect`;
time of a chunk: that of `plan`, over the chunks of both. Of more chunks of one kind also what each further one costs.
Of times the first column is the processor's, where that is less (on a machine that does other work); it is held against
the limit.

  dcp100k dcp1m dcp7m   TorchTitan of 32, 294, 2,048 ranks, planned for 24, 220, 1,536
  zero3                 DeepSpeed, ZeRO-3 of 1,024 ranks, planned for 768
  nano                  Nanotron of 512 ranks, ZeRO-1, planned for 256
  mega mega200k         Megatron-LM, torch_dist of 1,024 ranks, planned for TP 4; of ten times as many layers
"""

import os, shutil, sys
from pathlib import Path

import frontier
from measure import measured, row

SECONDS, MEGABYTES, BYTES, MICROSECONDS = 15, 3000, 200, 1.5
EMPTY = 2.5e6       # bytes that the tool has in memory without a checkpoint
ROOM = {"dcp7m": 4, "dcp1m": 2, "mega200k": 2}     # GiB
LAYERS = {"mega200k": 1264}         # 126 else
# kind, ranks, what plan is asked for, ranks of the plan
CASES = {
    "dcp100k": ("dcp", 32, ["--dp", "24"], 24),
    "dcp1m": ("dcp", 294, ["--dp", "220"], 220),
    "dcp7m": ("dcp", 2048, ["--dp", "1536"], 1536),
    "zero3": ("zero3", 1024, ["--dp", "768"], 768),
    "nano": ("nano", 512, ["--dp", "32"], 256),
    "mega": ("mega", 1024, ["--tp", "4"], 512),
    "mega200k": ("mega", 1024, ["--tp", "4"], 512),
}


def measure(tool, path, name, before):
    kind, ranks, target, to_ranks = CASES[name]
    layers = LAYERS.get(name, 126)
    if not path.exists():
        frontier.write(kind, path, ranks, layers)
    n, to = frontier.chunks(kind, ranks, layers), frontier.chunks(kind, to_ranks, layers)
    print(f"\n### {name}: {n:,} chunks, planned for {to:,}\n\n| figure | min | median | limit | median / limit |")
    print("|---|---|---|---|---|", flush=True)
    done = {}
    for verb, *more in ["inspect"], ["plan", *target], ["rng", "--ranks", "16384"], ["lr"]:
        seconds, memory, status, said = measured([tool, verb, path, *more])
        what = " ".join([verb, *more])
        if status != 0:
            sys.exit(f"sizes: {name}: {what} exits {status}: {said.strip()}")
        done[verb] = memory, seconds
        row(what, seconds, "s", SECONDS, True)
        row(what + ", memory", memory / 1e6, "MB", MEGABYTES)
    whole = n, to, done["inspect"][0] - EMPTY, done["plan"][0] - done["inspect"][0], *done["plan"][1]
    figures("", whole)
    if kind in before:
        figures(f", from {before[kind][0]:,} to {n:,}", [a - b for a, b in zip(whole, before[kind])])
    before[kind] = whole


def figures(what, whole):
    n, to, source, target, *seconds = whole
    row("memory of a chunk of the source" + what, source / n, "B", BYTES)
    row("memory of a chunk of the target" + what, target / to, "B", BYTES)
    row("open and plan, a chunk" + what, tuple(s * 1e6 / (n + to) for s in seconds), "us", MICROSECONDS, True)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    before = {}
    for name in sys.argv[3:] or CASES:
        path, room = Path(sys.argv[2]) / name, ROOM.get(name, 1)
        free = shutil.disk_usage(path.parent).free / 2**30
        if free < room:
            print(f"\n{name}: not run, it wants {room} GiB of room in BENCH_DATA, there are {free:.1f}.", flush=True)
            continue
        measure(sys.argv[1], path, name, before)
        if not os.environ.get("BENCH_KEEP"):
            shutil.rmtree(path)


if __name__ == "__main__":
    main()
