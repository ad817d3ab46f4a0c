"""rng.py PROGRAM: the draws of bench/rng.c and the same by torch, one thread each, into memory that exists, twice in
turn; the best of each, of the processor's time. The limit is torch's time / 0.9."""

import subprocess
import sys
import time

try:
    import torch
except ImportError:
    torch = None

N = 1 << 22


def torch_times():
    kinds = {
        "uniform f32": (torch.float32, lambda t: t.uniform_()),
        "uniform f64": (torch.float64, lambda t: t.uniform_()),
        "normal f32": (torch.float32, lambda t: t.normal_()),
        "normal f64": (torch.float64, lambda t: t.normal_()),
        "uniform bf16": (torch.bfloat16, lambda t: t.uniform_()),
        "normal bf16": (torch.bfloat16, lambda t: t.normal_()),
        "random i32": (torch.int32, lambda t: t.random_()),
        "randint i64": (torch.int64, lambda t: t.random_(0, 1000)),
        "randperm": (torch.int64, lambda t: torch.randperm(N, out=t)),
    }
    best = {}
    for name, (dtype, draw) in kinds.items():
        t = torch.empty(N, dtype=dtype).zero_()
        for _ in range(7):
            start = time.process_time()
            draw(t)
            best[name] = min(best.get(name, 9e9), (time.process_time() - start) / N * 1e9)
    return best


def our_times():
    lines = subprocess.run([sys.argv[1]], capture_output=True, text=True, check=True).stdout.splitlines()
    return {k: float(v) for k, v in (x.split(": ") for x in lines)}


def least(a, b):
    return {k: min(a[k], b[k]) for k in a}


ours = our_times()
theirs = {}
if not torch:
    print(f"\ntorch's generator: not run, {sys.executable} has no package torch.")
else:
    torch.set_num_threads(1)
    theirs = torch_times()
    ours = least(ours, our_times())
    theirs = least(theirs, torch_times())
print("\n### Draws of torch's CPU generator, an element, one thread; torch beside\n")
print("| figure | ours | peer | limit | ours / limit |\n|---|---|---|---|---|")
for name, t in ours.items():
    p = theirs.get(name)
    print(f"| {name} | {t:.3f} ns | " + (f"{p:.3f} ns | <= {p / 0.9:.3f} ns | {t * 0.9 / p:.2f} |" if p else "| | |"))
