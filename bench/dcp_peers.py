#!/usr/bin/env python3
"""dcp_peers.py DIR TOOL: torch's own dcp_to_torch_save on the checkpoint that gen.py wrote into DIR
(dcp8), and `convert --to torch` of the same, each in a process of its own: time and peak memory.
Prints the rows of a table; says so and ends well where torch is missing."""

import subprocess, sys
from pathlib import Path

RUN = """
import resource, sys, time
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
t = time.perf_counter()
dcp_to_torch_save(sys.argv[1], sys.argv[2])
print(time.perf_counter() - t, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
TOOL = """
import resource, subprocess, sys, time
t = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(time.perf_counter() - t, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def measure(what, out, *args):
    p = subprocess.run([sys.executable, "-c", *map(str, args)], capture_output=True, text=True)
    size = out.stat().st_size if out.exists() else 0
    out.unlink(missing_ok=True)
    if p.returncode:
        print(f"| {what}: failed: {p.stderr.splitlines()[-1]} | | | | |", flush=True)
        return
    seconds, kib = map(float, p.stdout.split())
    print(f"| {what} | {seconds:.3g} s | {kib / 1024:.4g} MiB | {size / 2**30:.3g} GiB written | |", flush=True)


def main():
    work, tool = Path(sys.argv[1]), sys.argv[2]
    run, out = work / "dcp8", work / "whole.pt"
    try:
        import torch
    except ImportError as e:
        print(f"\ntorch's converter: skipped, {e}.")
        return
    print(f"\n### torch {torch.__version__} on the checkpoint of 8 ranks, into one file\n")
    print("| figure | time | peak memory | bytes | |\n|---|---|---|---|---|")
    for _ in range(2):
        measure("dcp_to_torch_save, without the import", out, RUN, run, out)
        measure("ckptresume convert --to torch", out, TOOL, tool, "convert", run, out, "--to", "torch")


if __name__ == "__main__":
    main()
