#!/usr/bin/env python3
"""late.py TOOL DATA LATE [CASE...]: `inspect` of checkpoints of frontier size (sizes.py: nano, zero3, mega, dcp100k)
on a file system that answers each request after a millisecond, as a network does: LATE is late.c, built. A thousand
files take some seconds alone where each is opened and read before the next. BENCH_KEEP: the checkpoints stay."""

import os, shutil, subprocess, sys, tempfile
from pathlib import Path

import frontier
from measure import measured, row
from sizes import CASES, LAYERS

CASES = {name: CASES[name] for name in ("dcp100k", "zero3", "nano", "mega")}


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    tool, data, late = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    print("\n### inspect, where each request is answered after 1 ms\n")
    print("| figure | min | median | limit | median / limit |\n|---|---|---|---|---|", flush=True)
    for name in sys.argv[4:] or CASES:
        kind, ranks = CASES[name][:2]
        path = data / name
        if not path.exists():
            frontier.write(kind, path, ranks, LAYERS.get(name, 126))
        files = sum(len(f) for _, _, f in os.walk(path))
        with tempfile.TemporaryDirectory() as mount:
            subprocess.run([late, "-o", "max_threads=64", mount], check=True,
                           env={**os.environ, "LATE_ROOT": str(data.resolve()), "LATE_US": "1000"})
            try:
                seconds, _, status, said = measured([tool, "inspect", Path(mount) / name])
            finally:
                subprocess.run(["fusermount3", "-u", "-z", mount], check=True)
        if status != 0:
            sys.exit(f"late: {name}: inspect exits {status}: {said.strip()}")
        row(f"{name}, {files:,} files", seconds[0], "s", 15)
        if not os.environ.get("BENCH_KEEP"):
            shutil.rmtree(path)


if __name__ == "__main__":
    main()
