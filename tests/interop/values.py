"""values.py TOOL TMP: `inspect --stats` and `diff` against NumPy, on tensors that torch made.

Every dtype that a safetensors file has and NumPy or torch can widen, with NaN, infinities, both zeros, the smallest and
largest values, scalars and empty tensors; values of one dtype against another's, signs, ties, shapes."""
import json, subprocess, sys

import numpy as np
import torch
from safetensors.torch import save_file

failed = passed = 0
FLOATS = {torch.float16: 16, torch.bfloat16: 16, torch.float32: 32, torch.float64: 64}
EIGHT = [torch.float8_e4m3fn, torch.float8_e5m2]
INTS = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
        torch.uint64]


def check(ok, what):
    global failed, passed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print(what)


def near(have, want, scale=0.0, digits=1e-13):
    if have is None or not np.isfinite(want):
        return have is None and not np.isfinite(want)
    return abs(have - float(want)) <= digits * max(abs(float(want)), scale)


def run(tool, *args):
    r = subprocess.run([tool, *args, "--json"], capture_output=True, text=True)
    return r.returncode, json.loads(r.stdout)


def ints(t):
    """An integer tensor as Python's integers, in an object array."""
    return np.array([int(v) for v in t.flatten().numpy()], dtype=object)


def tensors(seed):
    g = torch.Generator().manual_seed(seed)
    out = {}
    for d in [*FLOATS, *EIGHT]:
        name = str(d)[6:]
        x = torch.randn(301, 7, generator=g, dtype=torch.float64) * (3 if d in EIGHT else 1e-3 if seed else 10)
        out[name] = x.to(d)
        wild = torch.tensor([float("nan"), 0.0, -0.0, 1.5, -2.25, 3.0], dtype=torch.float64).to(d)
        if d not in EIGHT:
            info = torch.finfo(d)
            ends = [float("inf"), -float("inf"), info.tiny, -info.tiny]
            wild = torch.cat([wild, torch.tensor(ends, dtype=torch.float64).to(d)])
        out[f"{name}.wild"] = wild
        out[f"{name}.nan"] = torch.full((3,), float("nan")).to(d)
        out[f"{name}.scalar"] = torch.tensor(0.75 + seed).to(d)
        out[f"{name}.empty"] = torch.zeros(0, 5).to(d)
    for d in INTS:
        name = str(d)[6:]
        low, high = (0, 1) if d is torch.bool else (torch.iinfo(d).min, torch.iinfo(d).max)
        out[name] = torch.randint(0, 2 if d is torch.bool else 100, (500, 3), generator=g).to(d)
        out[f"{name}.ends"] = torch.tensor(np.array([high, low, high, high - seed], dtype=str(out[name].numpy().dtype)))
    big = torch.randn(3_000_001, generator=g)          # more than one window, and an odd end
    out["big"] = big + 1000
    return out


def statistics(tool, path, made):
    code, have = run(tool, "inspect", path, "--tensors", "--stats")
    check(code == 0 and len(have["tensors"]["list"]) == len(made), f"inspect {path}: {code}")
    for row in have["tensors"]["list"]:
        t, s, name = made[row["name"]], row["stats"], row["name"]
        whole = t.dtype in INTS
        x = ints(t) if whole else t.double().flatten().numpy()
        finite = x if whole else x[np.isfinite(x)]
        counts = [t.numel(), *(0 if whole else int(odd(x).sum()) for odd in (np.isnan, np.isinf)), int((x == 0).sum())]
        check([s[k] for k in ("elements", "nan", "inf", "zeros")] == counts, f"{name}: {s}, not {counts}")
        if not len(finite):
            check(all(s[k] is None for k in ("min", "max", "mean", "std")), f"{name}: {s}")
            continue
        check(s["min"] == min(finite) and s["max"] == max(finite), f"{name}: {s}, not {min(finite)} {max(finite)}")
        if whole:
            check(isinstance(s["min"], int) and s["mean"] == sum(finite) / len(finite), f"{name}: {s}")
        with np.errstate(all="ignore"):
            f = finite.astype(np.float64)
            if not whole:
                check(near(s["mean"], np.mean(f), np.std(f) + abs(f).max() * 1e-3),
                      f"{name}: {s['mean']}, not {np.mean(f)}")
            check(near(s["std"], np.std(f), abs(f).max() * 1e-3), f"{name}: {s['std']}, not {np.std(f)}")


def line(t):
    """Floats as integers on one line through zero."""
    bits = FLOATS[t.dtype]
    v = t.flatten().view({16: torch.int16, 32: torch.int32, 64: torch.int64}[bits]).numpy().astype(object)
    return np.array([int(k) if k >= 0 else -(int(k) + (1 << (bits - 1))) for k in v], dtype=object)


def common(a, b):
    """What the two are compared as."""
    if a.dtype == b.dtype:
        return a.dtype
    x, y = sorted((a.dtype, b.dtype), key=lambda d: d.itemsize)
    floats = all(d in FLOATS or d in EIGHT for d in (x, y))
    return x if floats and x.itemsize < y.itemsize else torch.float64


def differences(tool, paths, a, b):
    code, have = run(tool, "diff", *paths)
    rows = {r["name"]: r for r in have["tensors"]["different"]}
    check(code == 1 and not have["same"] and have["both"] == ["params"] and have["one"] == [], f"diff: {code}")
    check([r["name"] for r in have["tensors"]["only_a"]] == sorted(a.keys() - b.keys()), "only in A")
    check([r["name"] for r in have["tensors"]["only_b"]] == sorted(b.keys() - a.keys()), "only in B")
    for name in a.keys() & b.keys():
        x, y, r = a[name], b[name], rows.get(name)
        if x.shape == y.shape:
            to = common(x, y)
            p, q = x.to(to).flatten(), y.to(to).flatten()
            same = torch.equal(p.view(torch.uint8), q.view(torch.uint8)) if p.numel() else True
            if same and x.dtype == y.dtype:
                check(r is None, f"{name} differs: {r}")
                continue
        if not check_row(name, r, x, y):
            continue
        if x.shape != y.shape:
            check(r["max_abs"] is r["max_ulp"] is r["as"] is r["worst"] is None and
                  r["elements"] == max(x.numel(), y.numel()), f"{name}: {r}")
            continue
        size = p.element_size()
        apart = (p.view(torch.uint8).reshape(-1, size) != q.view(torch.uint8).reshape(-1, size)).any(1).numpy()
        check(r["as"] == str(to)[6:] and r["elements"] == int(apart.sum()), f"{name}: {r}, {int(apart.sum())}")
        if not apart.any():
            check(r["worst"] is None and r["max_abs"] == 0, f"{name}: {r}")
            continue
        if to in INTS:
            d = np.array([abs(i - k) for i, k in zip(ints(p), ints(q))], dtype=object)
            check(r["max_abs"] == float(max(d)) and r["max_ulp"] is None, f"{name}: {r['max_abs']}, not {max(d)}")
            at = int(np.argmax(d.astype(np.float64)))
        else:
            with np.errstate(all="ignore"):
                u, v = p.double().numpy(), q.double().numpy()
                d = np.abs(u - v)
            d[~apart] = -1
            nan = np.isnan(d)
            at = int(np.argmax(nan)) if nan.any() else int(np.argmax(d))
            check(r["max_abs"] == ("nan" if nan.any() else "inf" if np.isinf(d[at]) else d[at]),
                  f"{name}: {r['max_abs']}")
            check(r["signs"] == int((np.signbit(u) != np.signbit(v))[apart].sum()), f"{name}: {r['signs']} signs")
        check(np.ravel_multi_index(r["worst"]["index"], x.shape) == at if x.dim() else r["worst"]["index"] == [],
              f"{name}: worst {r['worst']}, not {at}")
        if to in FLOATS and to in (x.dtype, y.dtype):
            far = max(abs(i - k) for i, k, m in zip(line(p), line(q), apart) if m)
            check(r["max_ulp"] == far, f"{name}: {r['max_ulp']} ulp, not {far}")


def check_row(name, r, x, y):
    check(r is not None, f"{name} is not told")
    if r:
        check(r["dtype"] == [str(x.dtype)[6:], str(y.dtype)[6:]], f"{name}: {r['dtype']}")
        check(r["shape"] == [list(x.shape), list(y.shape)], f"{name}: {r['shape']}")
    return r is not None


def main():
    tool, tmp = sys.argv[1:3]
    subprocess.run(["mkdir", "-p", tmp], check=True)
    a, b = tensors(0), tensors(1)
    for to in FLOATS:                                  # the same values in another dtype, and others
        a[f"cast.{to}"], b[f"cast.{to}"] = a["float32"], a["float32"].to(to)
        a[f"half.{to}"], b[f"half.{to}"] = a["float16"], b["float16"].to(to)
    a["eight"], b["eight"] = a["bfloat16"], a["bfloat16"].to(torch.float8_e5m2)
    a["step"], b["step"] = torch.tensor(7, dtype=torch.int64), torch.tensor(7.5)
    a["turned"], b["turned"] = torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(3, 2)
    a["longer"], b["longer"] = torch.arange(4), torch.arange(5.0)
    a["mine"], b["yours"] = torch.ones(2), torch.ones(2)
    paths = [f"{tmp}/a.safetensors", f"{tmp}/b.safetensors"]
    for path, t in zip(paths, (a, b)):
        save_file({k: v.clone() for k, v in t.items()}, path)
        statistics(tool, path, t)
    differences(tool, paths, a, b)
    differences(tool, paths[::-1], b, a)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
