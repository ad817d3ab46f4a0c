#!/usr/bin/env python3
"""disk.py CASE TOOL DIR: a conversion beside `cp` of the same, by turns, each written anew. Prints bench's tables.

  disk    8 GiB of 8 ranks (torch.distributed.checkpoint) for 6, in a folder of a disk, of which nothing is in memory
          when either begins; `cp` with `sync`. Afterwards: how much of what was read and written lies in memory. 4 or
          2 GiB where there is no room for 8 and its output.
  many    692,000 chunks of 512 ranks, 2 GiB, for 384; in memory
"""

import ctypes, mmap, os, shutil, statistics, subprocess, sys
from pathlib import Path

import gen
from measure import measured, row

ROUNDS = int(os.environ.get("BENCH_REPEATS") or 3)


def files(*paths):
    return [f for p in paths for f in p.rglob("*") if f.is_file() and f.stat().st_size]


def cold(*paths):
    for f in files(*paths):
        with open(f, "rb") as x:
            os.fsync(x.fileno())
            os.posix_fadvise(x.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    os.sync()


def resident(*paths):
    """How many bytes of the files are in memory."""
    libc, total = ctypes.CDLL(None, use_errno=True), 0
    for f in files(*paths):
        with open(f, "rb") as x, mmap.mmap(x.fileno(), 0, mmap.MAP_PRIVATE) as m:
            pages = (ctypes.c_ubyte * -(-len(m) // mmap.PAGESIZE))()
            at = ctypes.byref(ctypes.c_char.from_buffer(m))
            if libc.mincore(at, ctypes.c_size_t(len(m)), pages):
                raise OSError(ctypes.get_errno(), "mincore")
            del at
            total += sum(x & 1 for x in pages) * mmap.PAGESIZE
    return total


def compare(what, tool, run, flags, on_disk, limit, most):
    out, copy = run.parent / "converted", run.parent / "copied"
    convert = [tool, "convert", str(run), str(out), *flags, "--quiet"]
    cp = ["sh", "-c", 'cp --reflink=never -r "$0" "$1"' + (" && sync" if on_disk else ""), str(run), str(copy)]
    taken = {"convert": [], "cp": []}
    left, peak = [], []
    for _ in range(ROUNDS):
        for name, command, made in ("convert", convert, out), ("cp", cp, copy):
            if on_disk:
                cold(run)
            times, memory, status, said = measured(command)
            if status:
                raise SystemExit(f"{' '.join(command)}: exits {status}: {said}")
            taken[name].append(times)
            if name == "convert":
                left.append(resident(run, made))
                peak.append(memory)
            if on_disk:
                cold(made)
            shutil.rmtree(made)
    for name, times in taken.items():
        clock, cpu = ([t[i] for t in times] for i in (0, 1))
        row(f"{what}: {name}", (statistics.median(clock), min(clock)), "s", 0)
        row(f"{what}: {name}, time of the processor", (statistics.median(cpu), min(cpu)), "s", 0)
    pairs = [a[0] / b[0] for a, b in zip(taken["convert"], taken["cp"])]
    least = min(t[0] for t in taken["convert"]) / min(t[0] for t in taken["cp"])
    row(f"{what}: convert : cp{' + sync' * on_disk}", (statistics.median(pairs), least), "", limit)
    row(f"{what}: peak memory", max(peak) / 1e6, "MB", most)
    if on_disk:
        row(f"{what}: of input and output in memory afterwards", max(left) / 2**20, "MiB", 512)


def title(run, text):
    size = sum(f.stat().st_size for f in files(run))
    print(f"\n### {text}, {size / 2**30:.2f} GiB\n\n| figure | min | median | limit | median / limit |")
    print("|---|---|---|---|---|", flush=True)


def disk(tool, root):
    free = shutil.disk_usage(root).free / 2**30
    layers = next((n for n, need in ((12, 20), (5, 10), (1, 6)) if free >= need), None)
    if not layers:
        print(f"\ndisk: not run, it wants 6 GiB of room in BENCH_DISK, there are {free:.1f}.")
        return
    gen.write_dcp_data(root / "disk", gen.Llama(2048, layers, 16, 8, 5632, 32000), 8, gen.Bytes())
    title(root / "disk", "From a disk, cold, to the same")
    compare("8 ranks for 6", tool, root / "disk", ["--dp", "6"], True, 1.15, 0)


def many(tool, root):
    gen.write_dcp_data(root / "many", gen.Llama(512, 74, 8, 8, 512, 512), 512, gen.Bytes())
    title(root / "many", "692,000 chunks of 512 ranks")
    compare("512 ranks for 384", tool, root / "many", ["--dp", "384"], False, 3, 400)


if __name__ == "__main__":
    cases = dict(disk=disk, many=many)
    if len(sys.argv) != 4 or sys.argv[1] not in cases:
        sys.exit(__doc__)
    path = Path(sys.argv[3]) / "disk-bench"
    path.mkdir()
    try:
        cases[sys.argv[1]](sys.argv[2], path)
    finally:
        shutil.rmtree(path)
