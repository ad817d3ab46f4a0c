"""casts.py TOOL TMP: `--dtype` against torch's own casts.

All bit patterns of 16 bits, a grid over those of 32 and 64, as leaves that require a gradient; into each dtype and
each kind of file, loaded again by the framework. NaNs count as one value. Casts to fp8 are those of torch 2.15."""
import os, shutil, subprocess, sys

import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

DTYPES = "float32 float64 bfloat16 float16 float8_e4m3fn float8_e5m2".split()


def source():
    half = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    grid = (torch.arange(1 << 17, dtype=torch.int64) * 32771).to(torch.int32)
    x = {"half": half.view(torch.float16), "brain": half.view(torch.bfloat16), "single": grid.view(torch.float32)}
    x["double"] = (torch.arange(1 << 17, dtype=torch.int64) * 140737488486917).view(torch.float64)
    for k in ("half", "brain"):
        x[f"{k} wide"] = x[k].float()
        for up in (-1, 1):  # beside every value and halfway point of the smaller types
            x[f"{k} {up}"] = (x[k].float().view(torch.int32) + up).view(torch.float32)
    return x


def load(kind, out, tmp):
    if kind == "safetensors":
        return load_file(out)
    if kind == "dcp":
        dcp_to_torch_save(out, f"{tmp}/dcp.pt")
        out = f"{tmp}/dcp.pt"
    return torch.load(out, weights_only=kind == "torch")


def same(have, want):
    if have.dtype != want.dtype or have.shape != want.shape:
        return False
    a, b = have.detach().double(), want.detach().double()
    nan = a.isnan()
    return torch.equal(nan, b.isnan()) and torch.equal(a[~nan], b[~nan]) and torch.equal(
        a[~nan].signbit(), b[~nan].signbit()
    )


def main():
    tool, tmp = sys.argv[1:3]
    src, passed, failed = f"{tmp}/casts.pt", 0, 0
    x = source()
    torch.save({k: v.clone().requires_grad_(True) for k, v in x.items()}, src)
    for dtype in DTYPES:
        for kind in ("safetensors", "torch", "dcp"):
            out = f"{tmp}/casts.out"
            p = subprocess.run([tool, "convert", src, out, "--to", kind, "--dtype", dtype, "--quiet"],
                               capture_output=True, text=True)
            have = load(kind, out, tmp) if p.returncode == 0 else {}
            for k, v in x.items():
                ok = k in have and same(have[k], v.to(torch.float32 if dtype != "float64" else v.dtype).to(
                    getattr(torch, dtype)))
                passed, failed = passed + ok, failed + (not ok)
                if not ok:
                    print(f"{dtype} in {kind}, {k}: not what torch casts {p.stderr[-200:]}")
            shutil.rmtree(out) if os.path.isdir(out) else os.path.exists(out) and os.remove(out)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
