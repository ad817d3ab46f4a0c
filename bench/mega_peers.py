#!/usr/bin/env python3
"""mega_peers.py DIR: what Megatron-LM's own tools/checkpoint/convert.py needs for the checkpoint that gen.py
wrote into DIR (mega), TP 8 PP 4 -> TP 4 PP 2: time and peak memory. It converts the weights alone. MEGATRON_SRC
is a source tree of Megatron-LM. Prints the row of a table; says so and ends well where the tree is missing or
where the tool does not run (as given it asks for a GPU and for Transformer Engine)."""

import os, re, shutil, subprocess, sys, time
from pathlib import Path

RUN = """
import resource, runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    both = [resource.getrusage(w).ru_maxrss for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print("peak", sum(both), file=sys.stderr)   # loader and saver live side by side
"""


def version(src):
    text = (src / "megatron/core/package_info.py").read_text()
    return ".".join(re.search(rf"^{part} = (\d+)", text, re.M)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def why(*texts):
    """The lines that tell why loader and saver ended, each text's last."""
    told = [re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception)\b.*|^could not.*", x, re.M)[-1:] for x in texts]
    return "; ".join(x[0][:300] for x in told if x) or "without a message"


def main():
    work, src = Path(sys.argv[1]), os.environ.get("MEGATRON_SRC")
    if not src:
        print("\nMegatron-LM's converter: skipped, MEGATRON_SRC names no source tree.")
        return
    src, out = Path(src).resolve(), work / "out"
    tool = src / "tools/checkpoint/convert.py"
    if not tool.exists():
        print(f"\nMegatron-LM's converter: skipped, there is no {tool.relative_to(src)} in MEGATRON_SRC.")
        return
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-c", RUN, str(tool), "--model-type", "GPT", "--loader", "core", "--saver", "core",
               "--load-dir", str(work / "mega"), "--save-dir", str(out), "--target-tensor-parallel-size", "4",
               "--target-pipeline-parallel-size", "2", "--loader-transformer-impl", "local",
               "--saver-transformer-impl", "local", "--position-embedding-type", "rope"]
    env = dict(os.environ, CUDA_DEVICE_MAX_CONNECTIONS="1", PYTHONPATH=f"{src}:{tool.parent}")
    t = time.perf_counter()
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=src)
    t = time.perf_counter() - t
    written = sum(f.stat().st_size for f in out.rglob("*") if f.is_file()) if out.exists() else 0
    shutil.rmtree(out, ignore_errors=True)
    if p.returncode or not written:             # it ends with 0 where its loader could not
        print(f"\nMegatron-LM {version(src)}'s converter: it does not run here: {why(p.stdout, p.stderr)}")
        return
    peak = int(re.findall(r"^peak (\d+)$", p.stderr, re.M)[-1])
    print(f"\n### Megatron-LM {version(src)} on the checkpoint of TP 8, PP 4\n")
    print("| figure | time | peak memory | bytes | |\n|---|---|---|---|---|")
    print(f"| tools/checkpoint/convert.py: weights only | {t:.3g} s | {peak / 1024:.4g} MiB | "
          f"{written / 2**30:.3g} GiB written | |", flush=True)


if __name__ == "__main__":
    main()
