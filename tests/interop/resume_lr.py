#!/usr/bin/env python3
"""What `convert` decided about the learning rate, in real torch: resume_lr.py TOOL SCRATCH. Each file of
tests/data/resume is converted under each policy; torch loads it and goes on; every LR of 20 updates, of both groups,
is what `lr --json` said before. A refused conversion writes nothing. Ends with `N passed, N failed`."""

import json
import subprocess
import sys
from pathlib import Path

DATA = Path("tests/data/resume")
sys.path.insert(0, str(DATA))
import resume  # noqa: E402: the trainer that wrote the files

import torch  # noqa: E402

ASK = [
    "",
    "--set lr=0.05",
    "--set 0.lr=0.03",
    "--set weight_decay=0.3",
    "--set total_steps=60 --lr-policy target",
    "--set total_steps=60 --lr-policy splice",
    "--set total_steps=60 --lr-policy stretch",
    "--set decay_steps=4 --lr-policy target",
]
FILES = ["cosine", "named", "noinit", "step", "linear", "onecycle", "seq"]


def run(tool, *args):
    return subprocess.run([tool, *map(str, args)], capture_output=True, text=True)


def torch_goes_on(path, name):
    """LR of each update, as the trainer uses them after loading the file."""
    d = torch.load(path, weights_only=True)
    m = resume.model()
    o = resume.optimizer(m, name)
    s = resume.CASES[name](o)
    o.load_state_dict(d["optimizer"])
    s.load_state_dict(d["scheduler"])
    lrs = {}
    for k in range(20):
        lrs[resume.AT + k + 1] = resume.lrs(o)
        resume.train(m, o, s)
    return lrs


def one(tool, scratch, name, ask):
    """None: as planned; else what was wrong. A refusal (exit 1) or a flag that the kind lacks (2) writes nothing."""
    out = scratch / "out.pt"
    out.unlink(missing_ok=True)
    p = run(tool, "convert", DATA / f"{name}.pt", out, *ask.split())
    if p.returncode in (1, 2):
        return "refused, but something was written" if out.exists() else None
    if p.returncode:
        return f"exit {p.returncode}: {p.stderr.strip()}"
    d = json.loads(run(tool, "lr", DATA / f"{name}.pt", "--from", 13, "--to", 32, "--json", *ask.split()).stdout)
    want = {r["step"]: r["lr"] for r in d["after"]}
    have = torch_goes_on(out, name)
    for k, lrs in have.items():
        for a, b in zip(lrs, want[k]):
            if abs(a - b) > 1e-12 * abs(b):
                return f"update {k}: torch uses {a!r}, planned {b!r}"
    return None


def main(tool, scratch):
    passed = failed = 0
    for name in FILES:
        for ask in ASK:
            problem = one(tool, scratch, name, ask)
            passed += problem is None
            failed += problem is not None
            if problem:
                print(f"{name} {ask}: {problem}")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
