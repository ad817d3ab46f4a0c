#!/usr/bin/env python3
"""Random streams of checkpoints that `convert` wrote for other numbers of processes, in the unpatched trainers:
random_states.py TOOL SCRATCH. accelerate, the HF Trainer and Sana's way of loading set the generators of each rank;
what Python, NumPy and torch draw next is what `rng --json` said of the checkpoint before it was converted. There and
back, every rank draws what it would have drawn. Beside the repository's files those of ../shared are taken, where
they are. Ends with `N passed, N failed`."""

import json
import logging
import random
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

logging.disable(logging.CRITICAL)
from accelerate import PartialState  # noqa: E402
from accelerate.checkpointing import load_accelerator_state  # noqa: E402
from transformers import Trainer  # noqa: E402
from count import end, expect  # noqa: E402


def tool(*args):
    p = subprocess.run([sys.argv[1], *map(str, args)], capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(f"{args[0]}: exit {p.returncode}: {p.stderr.strip()}")
    return p.stdout


def planned(path, *args):
    """{(rank, kind, name): the next eight draws}"""
    d = json.loads(tool("rng", path, "--json", *args))
    return {(r["rank"], s["kind"], s["name"]): s["next"] for r in d["ranks"] for s in r["streams"]}


def draws():
    return {
        "python": [random.random() for _ in range(8)],
        "numpy": list(np.random.random_sample(8)),
        "torch_cpu": torch.rand(8).tolist(),
    }


def forget():
    """Streams that no checkpoint holds: what a loader leaves alone shows."""
    random.seed(987654321)
    np.random.seed(987654321)
    torch.manual_seed(987654321)


def with_accelerate(path, rank, world):
    load_accelerator_state(str(path), [], [], [], [], rank)


def with_trainer(path, rank, world):
    args = SimpleNamespace(world_size=world, process_index=rank, parallel_mode=None)
    Trainer._load_rng_state(SimpleNamespace(args=args), str(path))


def same_draws(path, load, want, world, what):
    for rank in range(world):
        forget()
        load(path, rank, world)
        have = draws()
        for kind, numbers in have.items():
            if (rank, kind, "default") in want:
                expect(numbers == want[rank, kind, "default"], f"{what}: rank {rank} draws otherwise from {kind}")


def accelerate_case(case, scratch, load, worlds):
    before = planned(case)
    old = 1 + max(k[0] for k in before)
    for world in worlds:
        out, back = scratch / "out", scratch / "back"
        tool("convert", case, out, "--dp", world)
        tool("convert", out, back, "--dp", old)
        same_draws(out, load, planned(case, "--dp", world), world, f"{case.parent.name} {old} -> {world}")
        same_draws(back, load, before, old, f"{case.parent.name} {old} -> {world} -> {old}")
        shutil.rmtree(out)
        shutil.rmtree(back)


def sana_case(case, scratch, worlds):
    """torch.load and the setters, as Sana calls them; its one file has rank 0's, and a list of devices."""
    file = next(case.glob("*.pth"))
    for world in worlds:
        out = scratch / "sana"
        tool("convert", file, out, "--dp", world)
        state = torch.load(next(out.glob("*.pth")), weights_only=True)["rng_state"]
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
        torch.set_rng_state(state["torch"])
        want = planned(file, "--dp", world)
        for kind, numbers in draws().items():
            expect(numbers == want[0, kind, "default"], f"{case.parent.name} -> {world}: rank 0, {kind}")
        devices = [bytes(t.numpy()) for t in state["torch_cuda"]]
        expect(len(devices) == world and len(set(devices)) == world, f"{case.parent.name} -> {world}: devices")
        torch.set_rng_state(state["generator"])
        shutil.rmtree(out)


def usage(case):
    """A seed without reseed, and reseed without a seed, are mistakes of the command line."""
    for flags in (["--rng", "reseed"], ["--seed", "3"], ["--rng", "keep", "--seed", "3"]):
        p = subprocess.run([sys.argv[1], "plan", str(case), *flags], capture_output=True, text=True)
        expect(p.returncode == 2 and "seed" in p.stderr, f"plan {' '.join(flags)}: exit {p.returncode}")
    tool("plan", case, "--rng", "reseed", "--seed", "3")


def main(scratch):
    PartialState(cpu=True)
    root = Path(__file__).resolve().parents[2]
    own = sorted(p.parent / "ckpt" for p in (root / "tests/data/accelerate").glob("*/check.json"))
    usage(own[0])
    for case in own:
        accelerate_case(case, scratch, with_accelerate, (1, 3))
    shared = root / "../shared/corpus/accelerate"
    for case in sorted(shared.glob("acc*/ckpt")):
        if case.parent.name not in [p.parent.name for p in own]:
            accelerate_case(case, scratch, with_accelerate, (1, 6, 8, 14))
    for case in sorted(shared.glob("hf_*/ckpt")):
        accelerate_case(case, scratch, with_trainer, (1, 2, 3))
    for case in sorted(shared.glob("sana_*/ckpt")):
        sana_case(case, scratch, (1, 6, 7, 8))
    return end()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[2])))
