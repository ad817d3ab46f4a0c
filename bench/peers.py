#!/usr/bin/env python3
"""peers.py DIR: what torch and the safetensors package need for the files that gen.py wrote into DIR.
Prints the rows of a table; says so and ends well where a package is missing."""

import resource, statistics, sys, time
from pathlib import Path


def row(what, fn, repeats=5):
    times = []
    for _ in range(repeats):
        t = time.perf_counter()
        fn()
        times.append(time.perf_counter() - t)
    print(
        f"| {what} | {min(times) * 1e3:.4g} ms | {statistics.median(times) * 1e3:.4g} ms | | |",
        flush=True,
    )


def main():
    d = Path(sys.argv[1])
    try:
        t = time.perf_counter()
        import safetensors, safetensors.torch, torch

        t = time.perf_counter() - t
    except ImportError as e:
        print(f"\nPeers: skipped, {e}.")
        return
    print(
        f"\n### Peers: torch {torch.__version__}, safetensors {safetensors.__version__}, "
        f"Python {sys.version.split()[0]}\n"
    )
    print("| figure | min | median | | |\n|---|---|---|---|---|")
    print(f"| import torch and safetensors, once | {t * 1e3:.4g} ms | | | |", flush=True)

    def torch_list():
        for name, x in torch.load(d / "pt70k.pt", mmap=True, weights_only=True).items():
            x.shape, x.dtype, x.storage_offset()

    def safetensors_list():
        with safetensors.safe_open(d / "st100k.safetensors", "pt") as f:
            for name in f.keys():
                f.get_slice(name).get_shape()

    def names():
        with safetensors.safe_open(d / "st100k.safetensors", "pt") as f:
            f.keys()

    row("70,000-tensor .pt: torch.load(mmap=True, weights_only=True), every shape", torch_list, 3)
    row("100,000-tensor safetensors: safe_open, names only", names)
    row("100,000-tensor safetensors: safe_open, every shape", safetensors_list)
    row(
        "100,000-tensor safetensors: load_file",
        lambda: safetensors.torch.load_file(d / "st100k.safetensors"),
        3,
    )
    row(
        "1 GiB safetensors: load_file, every tensor cloned",
        lambda: [x.clone() for x in safetensors.torch.load_file(d / "st1g.safetensors").values()],
        3,
    )
    row(
        "1 GiB .pt: torch.load(weights_only=True)",
        lambda: torch.load(d / "pt1g.pt", weights_only=True),
        3,
    )
    print(
        f"| peak memory of this process | {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.4g} MiB | | | |"
    )


if __name__ == "__main__":
    main()
