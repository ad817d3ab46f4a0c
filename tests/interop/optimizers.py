#!/usr/bin/env python3
"""Bare optimizer states that torch.optim wrote: optimizers.py TOOL SCRATCH CORPUS. Every file of CORPUS is exported
with its parameters named (each slot under the optimizer's own name, bit for bit the live one's) and converted to a
torch file (torch loads what it saved: every tensor, number and container). Ends with `N passed, N failed`."""

import json
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from count import end, expect


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and a.is_sparse == b.is_sparse and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return a == b


def tool(*args):
    p = subprocess.run([sys.argv[1], *map(str, args)], capture_output=True, text=True)
    expect(p.returncode == 0, f"{' '.join(map(str, args))}: exit {p.returncode}: {p.stderr.strip()}")
    return p.returncode == 0


def exported(file, about, truth, scratch):
    names, out = scratch / "names.txt", scratch / "out.safetensors"
    names.write_text("\n".join(about["flat_param_order"]) + "\n")
    out.unlink(missing_ok=True)
    head = f"{file.name}/optimizer.state."
    want = {k[len(file.name) + 1 :]: v for k, v in truth.items() if k.startswith(head)}
    if not want:  # SGD without momentum keeps nothing: there is nothing to write
        args = [sys.argv[1], "export", file, out, "--names", names, "--slots", "all"]
        code = subprocess.run(args, capture_output=True, check=False).returncode
        expect(code == 3 and not out.exists(), f"{file.name}: an export of nothing: exit {code}")
        return
    if not tool("export", file, out, "--names", names, "--slots", "all"):
        return
    have = load_file(out)
    for key, value in want.items():
        expect(key in have and same(have[key], value), f"{file.name}: {key}")


def converted(file, scratch):
    out = scratch / "out.pt"
    out.unlink(missing_ok=True)
    if tool("convert", file, out, "--to", "torch"):
        expect(same(torch.load(file, weights_only=True), torch.load(out, weights_only=True)), f"{file.name}: differs")


def fused(scratch):
    """A fused optimizer walks parameter and moments as they lie in memory."""

    def made():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3))
        model = model.to(memory_format=torch.channels_last)
        return model, torch.optim.AdamW(model.parameters(), 1e-2, fused=True)

    def updates(model, optimizer, first):
        losses = []
        for t in range(first, first + 4):
            x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(t))
            optimizer.zero_grad()
            loss = model(x.to(memory_format=torch.channels_last)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    live, file, out = made(), scratch / "fused.pt", scratch / "fused_out.pt"
    updates(*live, 0)
    torch.save({"model": live[0].state_dict(), "optimizer": live[1].state_dict()}, file)
    out.unlink(missing_ok=True)
    if tool("convert", file, out):
        resumed, saved = made(), torch.load(out, weights_only=True)
        resumed[0].load_state_dict(saved["model"])
        resumed[1].load_state_dict(saved["optimizer"])
        expect(updates(*resumed, 4) == updates(*live, 4), "a fused optimizer goes on otherwise")


def main(scratch, corpus):
    truth = load_file(corpus / "truth.safetensors")
    for name, about in json.loads((corpus / "truth.json").read_text())["files"].items():
        exported(corpus / "ckpt" / name, about, truth, scratch)
        converted(corpus / "ckpt" / name, scratch)
    fused(scratch)
    return end()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[2]), Path(sys.argv[3])))
