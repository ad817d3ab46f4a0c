#!/usr/bin/env python3
"""peers.py CASE DIR TOOL: what others need for the files that gen.py wrote into DIR, and the tool beside it in the same
run, by turns, each in a process of its own, its imports not counted; what both wrote must be the same.
Prints bench's tables; says what is missing and ends well where a package is.

  read      torch and safetensors: open and list a file of 70,000 and of 100,000 tensors, read 1 GiB; theirs alone
  dcp       torch's dcp_to_torch_save; convert --to torch
  universal DeepSpeed's ds_to_universal; convert --to deepspeed --variant universal
  fp32      DeepSpeed's zero_to_fp32; export
  megatron  Megatron-LM's tools/checkpoint/convert.py of the tree that MEGATRON_SRC names (weights alone; it wants a GPU
            and Transformer Engine); convert

Time is the clock's; time of the processor is that of all its processes; memory is the most of its largest process.
"""

import importlib.metadata, os, re, shutil, subprocess, sys, threading, time
from pathlib import Path

from measure import measured, row

ROUNDS = int(os.environ.get("BENCH_REPEATS") or 2)
START = "import os, resource, sys, time\n{imports}\nbegin, cpu = time.perf_counter(), sum(os.times()[:4])\n"
END = """
most = max(resource.getrusage(x).ru_maxrss for x in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print("took", time.perf_counter() - begin, sum(os.times()[:4]) - cpu, most * 1024, file=sys.stderr)
"""
SAME = """
import sys, torch
def flat(x, path=()):
    if isinstance(x, dict):
        return {k: v for key, each in x.items() for k, v in flat(each, (*path, str(key))).items()}
    return {".".join(path): x} if isinstance(x, torch.Tensor) else {}
a, b = (flat(torch.load(p, weights_only=False, mmap=True)) for p in sys.argv[1:])
wrong = set(a) ^ set(b) | {k for k in set(a) & set(b) if a[k].dtype != b[k].dtype or not torch.equal(a[k], b[k])}
print("result", f"different: {len(wrong)} tensors" if wrong else f"the same: {len(a)} tensors")
sys.exit(bool(wrong or not a))
"""
RUN_MODULE = "import runpy\nrunpy.run_module({0!r}, run_name='__main__', alter_sys=True)"


def head(title, columns="| figure | ours | peer | limit | ours : peer |"):
    print(f"\n### {title}\n\n{columns}\n|---|---|---|---|---|", flush=True)


def missing(what, *packages):
    """Their versions, or None: told what is not there."""
    try:
        return [importlib.metadata.version(p) for p in packages]
    except importlib.metadata.PackageNotFoundError as e:
        print(f"\n{what}: not run, {sys.executable} has no package {e.name}: `sh tests/interop/run.sh --venv` makes "
              "build/venv, which has it; or BENCH_PYTHON names an interpreter.", flush=True)


def size_of(path):
    try:
        return sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) if path.is_dir() else path.stat().st_size
    except OSError:                              # gone meanwhile
        return 0


def remove(path):
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)


class Watch(threading.Thread):
    """The most bytes that lie under a folder while it runs."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.most, self.over = path, 0, threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.2):
            self.most = max(self.most, size_of(self.path))

    def end(self):
        self.over.set()
        self.join()
        return max(self.most, size_of(self.path))


def once(command, out):
    """Seconds, the processor's, most memory, most bytes of out's folder; or the message of what failed."""
    watch = Watch(out)
    (seconds, cpu), memory, status, said = measured([str(x) for x in command])
    most, took = watch.end(), re.findall(r"^took (\S+) (\S+) (\S+)$", said, re.M)
    if status:
        return [x for x in said.splitlines() if x.strip() and not x.startswith("took")][-1:] or [f"exits {status}"]
    if took:
        seconds, cpu, memory = map(float, took[-1])
    return seconds, cpu, memory, most


def compare(title, what, work, ours, theirs, same=None):
    """ours, theirs: the command that writes into a folder; same: one that fails unless two folders hold the same."""
    both, best = work / "peers", {}
    head(title)
    for _ in range(ROUNDS):
        remove(both)
        for side, make in ("ours", ours), ("peer", theirs):
            out = both / side
            out.mkdir(parents=True)
            figures = once(make(out), out)
            if isinstance(figures, list):
                print(f"| {what}: {side} failed: {figures[0][:200]} | | | | |", flush=True)
                return remove(both)
            best[side] = tuple(map(min, zip(best.get(side, figures), figures)))
    names = ("time", "s", 1), ("time of the processor", "s", 1), ("peak memory", "MiB", 2**20), \
        ("room while it runs", "GiB", 2**30)
    for (name, unit, scale), a, b in zip(names, best["ours"], best["peer"]):
        print(f"| {what}: {name} | {a / scale:.4g} {unit} | {b / scale:.4g} {unit} | <= 1 | {a / max(b, 1e-9):.2g} |")
    if same:
        p = subprocess.run(same(both / "ours", both / "peer"), capture_output=True, text=True)
        text = re.findall(r"^ *result +(.*)", p.stdout, re.M) or p.stderr.splitlines()[-1:] or [f"exits {p.returncode}"]
        print(f"| {what}: both outputs | {text[0]} | | same | {2 * (p.returncode != 0)} |", flush=True)
    remove(both)


def script(imports, body, *args):
    return [sys.executable, "-c", START.format(imports=imports) + "try:\n    " + body.replace("\n", "\n    ") +
            "\nexcept SystemExit as e:\n    if e.code: raise" + END, *args]


def dcp(work, tool):
    run = work / "dcp8"
    if found := missing("torch's dcp_to_torch_save", "torch"):
        compare(f"torch {found[0]} on a checkpoint of 8 ranks, {size_of(run) / 2**30:.2f} GiB, into one file",
                "dcp_to_torch_save", work,
                lambda out: [tool, "convert", run, out / "whole.pt", "--to", "torch", "--quiet"],
                lambda out: script("from torch.distributed.checkpoint.format_utils import dcp_to_torch_save",
                                   "dcp_to_torch_save(sys.argv[1], sys.argv[2])", run, out / "whole.pt"),
                lambda a, b: [sys.executable, "-c", SAME, a / "whole.pt", b / "whole.pt"])


def deepspeed(what, title, module, work, tool, ours, args, result):
    run = work / "cut8"
    if found := missing(f"DeepSpeed's {what}", "torch", "deepspeed"):
        os.environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
        compare(f"DeepSpeed {found[1]} on a ZeRO-3 checkpoint of 8 ranks, {size_of(run) / 2**30:.2f} GiB: {title}",
                what, work, lambda out: [tool, *ours(run, out), "--quiet"],
                lambda out: script(f"import torch, {module}", RUN_MODULE.format(module), *args(run, out)),
                lambda a, b: [tool, "diff", a / result, b / result])


def universal(work, tool):
    deepspeed("ds_to_universal", "weights and moments", "deepspeed.checkpoint.ds_to_universal", work, tool,
              lambda run, out: ["convert", run, out / "u", "--to", "deepspeed", "--variant", "universal"],
              lambda run, out: ["--input_folder", run / "global_step100", "--output_folder", out / "u/global_step100",
                                "--inject_missing_state", "--num_extract_workers", "2", "--num_merge_workers", "1"],
              "u/global_step100")


def fp32(work, tool):
    deepspeed("zero_to_fp32", "weights", "deepspeed.utils.zero_to_fp32", work, tool,
              lambda run, out: ["export", run, out / "pytorch_model.bin"],
              lambda run, out: [run, out, "--max_shard_size", "100GB"], "pytorch_model.bin")


def megatron(work, tool):
    src = os.environ.get("MEGATRON_SRC")
    convert = Path(src or "/").resolve() / "tools/checkpoint/convert.py"
    if not src or not convert.exists():
        why = f"there is no tools/checkpoint/convert.py in {src}" if src else "MEGATRON_SRC names no source tree"
        print(f"\nMegatron-LM's convert.py: not run, {why} of Megatron-LM.", flush=True)
    elif found := missing("Megatron-LM's convert.py", "torch"):
        os.environ.update(CUDA_DEVICE_MAX_CONNECTIONS="1", PYTHONPATH=f"{convert.parents[2]}:{convert.parent}")
        run = work / "mega"
        compare(f"Megatron-LM, torch {found[0]}, on a checkpoint of TP 8, PP 4", "tools/checkpoint/convert.py", work,
                lambda out: [tool, "convert", run, out / "c", "--tp", "4", "--pp", "2", "--quiet"],
                lambda out: script("import runpy", f"runpy.run_path({str(convert)!r}, run_name='__main__')",
                                   "--model-type", "GPT", "--loader", "core", "--saver", "core", "--load-dir", run,
                                   "--save-dir", out / "c", "--target-tensor-parallel-size", "4",
                                   "--target-pipeline-parallel-size", "2", "--loader-transformer-impl", "local",
                                   "--saver-transformer-impl", "local", "--position-embedding-type", "rope"))


def read(work, tool):
    found = missing("torch and safetensors on the files of parse and read", "torch", "safetensors")
    if not found:
        return
    import safetensors, safetensors.torch, torch
    many, large = work / "st100k.safetensors", work / "st1g.safetensors"

    def of_torch():
        for name, x in torch.load(work / "pt70k.pt", mmap=True, weights_only=True).items():
            x.shape, x.dtype, x.storage_offset()

    def of_safetensors(shapes):
        with safetensors.safe_open(many, "pt") as f:
            for name in f.keys():
                if shapes:
                    f.get_slice(name).get_shape()

    head(f"Peers: torch {found[0]}, safetensors {found[1]}", "| figure | min | median | limit | median / limit |")
    for what, fn, repeats in (
        ("70,000-tensor .pt: torch.load(mmap=True, weights_only=True), every shape", of_torch, 3),
        ("100,000-tensor safetensors: safe_open, names only", lambda: of_safetensors(False), 5),
        ("100,000-tensor safetensors: safe_open, every shape", lambda: of_safetensors(True), 5),
        ("100,000-tensor safetensors: load_file", lambda: safetensors.torch.load_file(many), 3),
        ("1 GiB safetensors: load_file, every tensor cloned",
         lambda: [x.clone() for x in safetensors.torch.load_file(large).values()], 3),
        ("1 GiB .pt: torch.load(weights_only=True)", lambda: torch.load(work / "pt1g.pt", weights_only=True), 3),
    ):
        times = []
        for _ in range(repeats):
            begin = time.process_time()         # as parse.c has it
            fn()
            times.append(1e3 * (time.process_time() - begin))
        row(what, (sorted(times)[repeats // 2], min(times)), "ms", 0)


if __name__ == "__main__":
    cases = dict(read=read, dcp=dcp, universal=universal, fp32=fp32, megatron=megatron)
    if len(sys.argv) != 4 or sys.argv[1] not in cases:
        sys.exit(__doc__)
    cases[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])
