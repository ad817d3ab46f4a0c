#!/usr/bin/env python3
"""ds_peers.py DIR: what DeepSpeed's own converters need for the ZeRO-3 checkpoint that gen.py wrote
into DIR (cut8): time, peak memory and the bytes that they leave beside the input. Prints the rows of
a table; says so and ends well where DeepSpeed is missing."""

import os, shutil, subprocess, sys, time
from pathlib import Path

RUN = """
import resource, runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
finally:
    use = max(resource.getrusage(w).ru_maxrss for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print("peak", use, file=sys.stderr)
"""


def most_bytes(root, before):
    return sum(f.stat().st_size for f in root.rglob("*") if f.is_file()) - before


def measure(what, module, args, work, out):
    shutil.rmtree(out, ignore_errors=True)
    before = most_bytes(work, 0)
    env = dict(os.environ, DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
    t = time.perf_counter()
    p = subprocess.Popen(
        [sys.executable, "-c", RUN.format(module=module), module, *args],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env,
    )
    most = 0
    while p.poll() is None:
        try:
            most = max(most, most_bytes(work, before))
        except OSError:
            pass
        time.sleep(0.2)
    t = time.perf_counter() - t
    text = p.stderr.read().splitlines()
    peak = next((int(x.split()[1]) for x in reversed(text) if x.startswith("peak ")), 0)
    if p.returncode:
        print(f"| {what}: failed: {text[-2] if len(text) > 1 else text} | | | | |", flush=True)
    else:
        print(
            f"| {what} | {t:.3g} s | {peak / 1024:.4g} MiB | {most / 2**30:.3g} GiB written at most | |",
            flush=True,
        )
    shutil.rmtree(out, ignore_errors=True)


def main():
    work = Path(sys.argv[1])
    run, out = work / "cut8", work / "out"
    try:
        import deepspeed
    except ImportError as e:
        print(f"\nDeepSpeed's converters: skipped, {e}.")
        return
    print(f"\n### DeepSpeed {deepspeed.__version__} on the ZeRO-3 checkpoint of 8 ranks\n")
    print("| figure | time | peak memory | bytes | |\n|---|---|---|---|---|")
    measure(
        "zero_to_fp32.py: fp32 weights only", "deepspeed.utils.zero_to_fp32",
        [str(run), str(out), "--max_shard_size", "100GB"], work, out,
    )
    measure(
        "ds_to_universal: weights and moments", "deepspeed.checkpoint.ds_to_universal",
        ["--input_folder", str(run / "global_step100"), "--output_folder", str(out / "u"),
         "--inject_missing_state", "--num_extract_workers", "2", "--num_merge_workers", "1"],
        work, out,
    )


if __name__ == "__main__":
    main()
