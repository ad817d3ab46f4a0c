"""check.py [--tool ./ckptresume]: everything that the tool writes, loaded by torch and safetensors.

Each checkpoint of tests/data/nanotron is converted to several topologies. Every .pt has to load
with torch.load(weights_only=True) (random/*.pt hold a class of Nanotron: there an unpickler that
knows little else), every .safetensors with the safetensors package. From what these gave, and from
nothing else, the whole tensors are put together by the slices that the files themselves record, and
compared bit for bit with what `export` wrote, and with the truth of the live processes. With
NANOTRON_SRC=DIR, Nanotron itself loads them, where loadback.py is found.

Prints a line per failure, then `N passed, N failed`.
"""

import argparse, importlib.util, json, os, pickle, re, shutil, subprocess, sys, tempfile, types
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "tests/data/nanotron"
SHARED = ROOT.parent / "shared/corpus"
LOADBACK = ROOT.parent / "shared/corpus/nanotron/make/loadback.py"
TARGETS = [
    dict(tp=1, pp=1, dp=1, zero=0),
    dict(tp=2, pp=1, dp=1, zero=0),
    dict(tp=1, pp=2, dp=1, zero=0),
    dict(tp=2, pp=2, dp=1, zero=0),
    dict(tp=1, pp=1, dp=2, zero=1),
    dict(tp=2, pp=1, dp=3, zero=1),
    dict(tp=1, pp=3, dp=2, zero=1),
]

passed = failed = 0


def expect(ok, what):
    global passed, failed
    if ok:
        passed += 1
    else:
        failed += 1
        print(what, flush=True)
    return bool(ok)


def same(a, b):
    """Equal bit for bit: dtype, shape and bytes."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    a, b = a.contiguous().flatten(), b.contiguous().flatten()
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8)) if a.numel() else True


def torch_load(path):
    """What torch makes of a file with classes of Nanotron: a few modules, and stubs for those."""

    class Unpickler(pickle.Unpickler):
        def find_class(self, module, name):
            if module.startswith("nanotron.random"):
                return type(name, (dict,), {})
            if module.split(".")[0] in ("torch", "collections", "numpy", "_codecs"):
                return super().find_class(module, name)
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")

    module = types.ModuleType("restricted")
    module.Unpickler, module.load = Unpickler, lambda f, **k: Unpickler(f, **k).load()
    return torch.load(path, weights_only=False, pickle_module=module)


# ------------------------------------------------------------------- put together from the files


def slices_of(meta):
    """[(local slices, global slices)] of a shard, or None when it is the whole tensor."""
    text = meta.get("local_global_slices_pairs")
    if text is None:
        return None

    def one(t):
        return tuple(slice(*(None if x == "None" else int(x) for x in part.split(","))) for part in t.split("|"))

    return [tuple(one(t) for t in pair.split("#")) for pair in text.split(";")]


def shape_of(meta):
    return tuple(
        int(x)
        for x in re.sub(r"np\.int64\((\d+)\)", r"\1", meta["unsharded_shape"]).strip("()").split(",")
        if x.strip()
    )


class Assembler:
    def __init__(self, step_dir):
        self.dir, self.out, self.filled, self.slices, self.shapes = step_dir, {}, {}, {}, {}

    def place(self, key, name, tp, local):
        pairs = self.slices.get((name, tp))
        if pairs is None:
            if key in self.out:
                expect(same(self.out[key], local), f"{self.dir}: {key}: two copies differ")
            self.out[key] = local
            return
        whole = self.out.setdefault(key, torch.zeros(self.shapes[name], dtype=local.dtype))
        for here, there in pairs:
            whole[there] = local[here]

    def weights(self):
        for f in sorted(self.dir.glob("model/**/*.safetensors")):
            m = re.fullmatch(r"model_(\w+?)(?:_pp-rank-\d+-of-\d+_tp-rank-(\d+)-of-\d+)?\.safetensors", f.name)
            name = ".".join((*f.parent.relative_to(self.dir / "model").parts, m[1]))
            tp = int(m[2]) if m[2] else 0
            with safe_open(f, "pt") as s:
                meta, data = s.metadata() or {}, s.get_tensor("data")
            pairs = slices_of(meta)
            if pairs is not None:
                self.slices[name, tp] = pairs
                self.shapes[name] = shape_of(meta)
            self.place(name, name, tp, data)

    def optimizer(self, ties):
        config = json.loads((self.dir / "optimizer/optimizer_config.json").read_text())
        zero = config.get("configs") or {}
        flat, n_flat = {}, zero.get("param_name_to_dp_rank_offsets")
        for f in sorted(self.dir.glob("optimizer/optimizer_pp-*.pt")):
            m = re.fullmatch(
                r"optimizer_pp-\d+-of-\d+(?:_dp-(\d+)-of-\d+)?_tp-(\d+)-of-\d+_exp-\d+-of-\d+\.pt",
                f.name,
            )
            dp, tp = m[1], int(m[2])
            o = torch.load(f, weights_only=True)
            owned = [(n, slot, t) for i, n in o["names"].items() for slot, t in o["state"][i].items()]
            owned += [(n, "master", t) for n, t in (o.get("gradient_accumulator") or {}).items()]
            for name, slot, t in owned:
                key = f"optimizer.state.{name}.{slot}"
                if slot == "step" or dp is None or not n_flat:
                    if slot == "step":
                        expect(
                            key not in self.out or self.out[key] == t,
                            f"{f}: {key} differs from another rank's",
                        )
                        self.out[key] = t
                    else:
                        self.place(key, self.known(name, ties), tp, t)
                    continue
                begin, end = (int(x) for x in n_flat[name][dp])
                shape = tuple(int(x) for x in zero["orig_param_shapes"][name])
                whole = flat.setdefault((key, name, tp), torch.zeros(int(np.prod(shape)), dtype=t.dtype))
                expect(
                    t.numel() == end - begin,
                    f"{f}: {key}: {t.numel()} elements, the offsets say {end - begin}",
                )
                whole[begin:end] = t.flatten()
        for (key, name, tp), t in flat.items():
            self.place(
                key,
                self.known(name, ties),
                tp,
                t.view(tuple(int(x) for x in zero["orig_param_shapes"][name])),
            )

    def known(self, name, ties):
        """The name under which a weight's shards were seen; a tie may have no file of its own."""
        if any((name, tp) in self.slices for tp in range(64)):
            return name
        for group in ties:
            if name in group:
                return next((n for n in group if any((n, tp) in self.slices for tp in range(64))), name)
        return name


# ---------------------------------------------------------------------------- the checks


def tool(*args, ok=(0,)):
    p = subprocess.run([TOOL, *map(str, args)], capture_output=True, text=True, timeout=120)
    if p.returncode not in ok:
        expect(False, f"{' '.join(map(str, args))}: exit {p.returncode}: {p.stderr.strip()[:300]}")
    return p.returncode


def flags(target):
    return [x for k, v in target.items() for x in (f"--{k}", v)]


def loads(out):
    """Every file by the framework's own reader."""
    for f in sorted(out.rglob("*.pt")):
        try:
            if f.parent.name == "random":
                torch_load(f)
            else:
                torch.load(f, weights_only=True)
            expect(True, "")
        except Exception as e:
            expect(False, f"{f}: torch: {type(e).__name__}: {str(e)[:300]}")
    for f in sorted(out.rglob("*.safetensors")):
        try:
            load_file(f)
            expect(True, "")
        except Exception as e:
            expect(False, f"{f}: safetensors: {type(e).__name__}: {str(e)[:300]}")


def compare(label, have, want, ties, padded=False):
    """`have` and `want` hold the same tensors; of a tie either name will do. `padded`: `have` may
    have more vocabulary rows, all zero."""
    other = {n: g for g in ties for n in g}

    def find(d, key):
        if key in d:
            return d[key]
        m = re.fullmatch(r"(optimizer\.state\.)?(.*?)(\.(?:exp_avg|exp_avg_sq|step|master))?", key)
        for n in other.get(m[2], []):
            alias = (m[1] or "") + n + (m[3] or "")
            if alias in d:
                return d[alias]
        return None

    for key, t in want.items():
        u = find(have, key)
        if expect(u is not None, f"{label}: {key} is missing"):
            if padded and u.dim() and u.shape[0] > t.shape[0] and u.shape[1:] == t.shape[1:]:
                expect(not u[t.shape[0] :].any(), f"{label}: {key}: rows of padding are not zero")
                u = u[: t.shape[0]]
            ok = float(t) == float(u) if key.endswith(".step") else same(t, u)
            expect(
                ok,
                f"{label}: {key}: {u.dtype}{tuple(u.shape)} differs from {t.dtype}{tuple(t.shape)}",
            )
    extra = [k for k in have if find(want, k) is None]
    expect(not extra, f"{label}: {len(extra)} too many, e.g. {extra[:2]}")


def step_dir(out):
    latest = out / "latest.txt"
    return out / latest.read_text().strip() if latest.exists() else out


def check_case(case, tmp):
    truth, ties = (
        load_file(case / "truth.safetensors"),
        json.loads((case / "check.json").read_text())["ties"],
    )
    for i, target in enumerate(TARGETS):
        label = f"{case.name} -> " + " ".join(f"{k}{v}" for k, v in target.items())
        out, whole = tmp / f"{case.name}-{i}", tmp / f"{case.name}-{i}.safetensors"
        if tool("convert", case / "ckpt", out, *flags(target)) != 0:
            continue
        loads(out)
        if tool("export", out, whole, "--slots", "all") != 0:
            continue
        exported = load_file(whole)
        compare(f"{label}: export against the truth", exported, truth, ties)
        a = Assembler(step_dir(out))
        try:
            a.weights()
            a.optimizer(ties)
            compare(f"{label}: files against export", a.out, exported, ties, padded=True)
        except Exception as e:
            expect(False, f"{label}: {type(e).__name__}: {e}")
        shutil.rmtree(out)
        whole.unlink()
    one = tmp / f"{case.name}.pt"
    if tool("convert", case / "ckpt", one, "--to", "torch", "--slots", "all") == 0:
        have = torch.load(one, weights_only=True)
        compare(f"{case.name} -> torch", have, truth, ties)


def only_padded(text):
    """True when all that differs is the shape of tensors that got rows of padding (0 added to axis 0);
    the rows that the truth has are compared by the conversions above."""
    head = re.match(r"tensors \d+ bad (\d+) extra 0 copies-differ 0", text[0]) if text else None
    grown = re.compile(r"\((\d+), (\d+)\) instead of torch\.\w+\((\d+), (\d+)\)$")
    rows = [m for m in map(grown.search, text) if m]
    return head is not None and len(rows) == int(head[1]) and all(int(m[1]) > int(m[3]) and m[2] == m[4] for m in rows)


def check_nanotron(tmp):
    src = os.environ.get("NANOTRON_SRC")
    if not src:
        return
    if not LOADBACK.exists():
        print("skipped: Nanotron itself (no loadback.py beside the repository)")
        return
    cases = LOADBACK.parent.parent
    env = {**os.environ, "PYTHONPATH": str(Path(src) / "src") + os.pathsep + str(Path(src))}
    for case in sorted(p.parent for p in cases.glob("*/truth.safetensors")):
        for target in json.loads((case / "check.json").read_text())["targets"]:
            out = tmp / "nanotron"
            shutil.rmtree(out, ignore_errors=True)
            if tool("convert", case / "ckpt", out, *flags(target)) != 0:
                continue
            p = subprocess.run(
                [
                    sys.executable,
                    LOADBACK,
                    "--ckpt",
                    out,
                    "--truth",
                    case / "truth.safetensors",
                    "--topology",
                    ",".join(f"{k}={v}" for k, v in target.items()),
                    "--quiet",
                    "--steps",
                    "2",
                ],
                capture_output=True,
                text=True,
                cwd=tmp,
                env=env,
                timeout=600,
            )
            text = p.stdout.strip().splitlines()
            expect(
                p.returncode == 0 or p.returncode == 2 and only_padded(text),
                f"{case.name} -> {target}: loadback exit {p.returncode}: {text[:3]}",
            )
            diff = [l for l in text if "max diff over groups" in l]
            expect(
                not diff or float(diff[0].rsplit(" ", 1)[1]) == 0.0,
                f"{case.name} -> {target}: {diff[0][-120:] if diff else ''}",
            )


def check_script(name, tmp, *more):
    """A script of its own beside this one, which ends with its counts."""
    p = subprocess.run(
        [sys.executable, str(ROOT / "tests/interop" / name), TOOL, str(tmp), *map(str, more)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    lines = (p.stdout or p.stderr).strip().splitlines() or ["nothing printed"]
    for line in lines[:-1]:
        expect(False, line)
    n = re.match(r"(\d+) passed, (\d+) failed$", lines[-1])
    expect(n is not None, f"{name}: {lines[-1]}")
    for _ in range(int(n[1]) if n else 0):
        expect(True, "")
    print(f"{name}: {lines[-1]}", flush=True)


def check_loadback(tmp, script, case, dp):
    """The corpus's own program: a real run of dp processes starts from what was written."""
    out = tmp / "loadback"
    tool("convert", case / "ckpt", out, "--dp", dp)
    p = subprocess.run(
        [sys.executable, SHARED / "accelerate/make" / script, "--ckpt", out, "--truth", case / "truth.safetensors",
         "--topology", f"dp={dp}"],
        capture_output=True,
        text=True,
    )
    expect(p.returncode == 0, f"{script} {case.name} -> {dp}: exit {p.returncode}: {p.stdout[-400:]}{p.stderr[-400:]}")
    print(f"{script} {case.name} -> {dp}: exit {p.returncode}", flush=True)
    shutil.rmtree(out)


def check_trainers(tmp):
    check_script("resume_lr.py", tmp)
    check_script("random_states.py", tmp)
    check_script("casts.py", tmp)
    check_script("script_files.py", tmp)
    corpus = SHARED / "accelerate"
    if not corpus.is_dir():
        print("not shown: optimizers.py and the load-back programs need ../shared")
        return
    check_script("optimizers.py", tmp, corpus / "torch_optim")
    check_loadback(tmp, "loadback.py", corpus / "acc_w7_nonoise_shared_seed", 6)
    check_loadback(tmp, "hf_loadback.py", corpus / "hf_gpt2_w2", 1)
    check_loadback(tmp, "hf_loadback.py", corpus / "hf_gpt2_w2", 3)


# the schedule of dp2_zero1_fp32
LINEAR = (
    "deepspeed:WarmupDecayLR,warmup_min_lr=0,warmup_max_lr=0.01,warmup_num_steps=4,total_num_steps=24,"
    "warmup_type=linear"
)
# case (with --to: a torch file of its tensors), flags of convert, topology of the run that loads it, its flags
DEEPSPEED = [
    ("dp2_zero1_fp32", "--dp 1", "dp=1", ""),
    ("dp2_zero1_fp32", "--dp 3", "dp=3", ""),
    ("dp2_zero1_fp32", "--dp 3 --zero 3", "dp=3,zero=3", ""),
    ("dp2_zero2_bf16", "--dp 4", "dp=4", ""),
    ("dp2_zero2_bf16", "--zero 0", "dp=2,zero=0", ""),
    ("dp2_zero2_bf16", "--variant universal", "dp=3", "--universal"),
    ("dp2_zero3_fp32", "--dp 3", "dp=3", ""),
    ("dp2_zero3_fp32", "--dp 1 --zero 2", "dp=1,zero=2", ""),
    ("pp2_dp1_zero0_fp32", "--pp 3", "pp=3,dp=1", ""),
    ("pp2_dp2_zero1_bf16", "--dp 1", "pp=2,dp=1", ""),
    ("dp2_zero1_fp32", f"--to deepspeed --dp 2 --zero 3 --to-schedule {LINEAR}", "dp=2,zero=3", "--steps 2"),
    ("dp2_zero1_fp32", "--to deepspeed --dp 3 --zero 2", "dp=3,zero=2", "--set scheduler=null"),
]


def of_torch(case, path):
    """What a plain training loop would have saved of the case: {model, optimizer, step}."""
    truth, told = load_file(case / "truth.safetensors"), json.loads((case / "truth.json").read_text())
    state, groups = {}, []
    for g in told["groups"]:
        names = g["params"]
        first = len(state)
        for i, n in enumerate(names):
            state[first + i] = {k: truth[f"optimizer.state.{n}.{k}"] for k in ("step", "exp_avg", "exp_avg_sq")}
        hyper = {k: v for k, v in g.items() if k not in ("index", "params")}
        groups.append({**hyper, "params": list(range(first, len(state))), "param_names": names})
    model = {k: v for k, v in truth.items() if not k.startswith("optimizer.state.")}
    optimizer = {"state": state, "param_groups": groups}
    torch.save({"model": model, "optimizer": optimizer, "step": told["step"]}, path)


def check_deepspeed(tmp):
    """DeepSpeed's own load_checkpoint at other sizes and stages: every tensor bit for bit, and LR and
    weight decay of every group."""
    make = SHARED / "deepspeed/make/loadback.py"
    if importlib.util.find_spec("deepspeed") is None or not make.exists():
        print("not shown: DeepSpeed is not installed, or ../shared is not there")
        return
    check_script("deepspeed_lr.py", tmp, SHARED / "deepspeed")
    for case, flags, topology, more in DEEPSPEED:
        out, source = tmp / "deepspeed", SHARED / "deepspeed" / case / "ckpt"
        if flags.startswith("--to"):
            source = tmp / "whole.pt"
            of_torch(SHARED / "deepspeed" / case, source)
        tool("convert", source, out, *flags.split())
        p = subprocess.run(
            [sys.executable, make, "--ckpt", out, "--truth", SHARED / "deepspeed" / case / "truth.safetensors",
             "--topology", topology, *more.split()],
            capture_output=True, text=True, cwd=tmp,
        )
        what = f"deepspeed {case} {flags}"
        expect(p.returncode == 0, f"{what}: exit {p.returncode}: {p.stdout[-600:]}")
        groups = re.findall(r"group \d+: lr (\S+) \(live run at save: (\S+)\) weight_decay (\S+) \((\S+)\)", p.stdout)
        expect(len(groups) == 2, f"{what}: {len(groups)} groups")
        for lr, live, decay, live_decay in groups:
            wrong = f"{what}: lr {lr}, live {live}; decay {decay}, live {live_decay}"
            expect(lr == live and decay == live_decay, wrong)
        for update, now, live in re.findall(r"update (\d+): .* \| lr (\[.*?\]) uninterrupted (\[.*?\])", p.stdout):
            expect(now == live, f"{what}: update {update}: lr {now}, live {live}")
        print(f"{what}: exit {p.returncode}", flush=True)
        shutil.rmtree(out)


def main():
    global TOOL
    ap = argparse.ArgumentParser()
    ap.add_argument("--tool", default=str(ROOT / "ckptresume"))
    TOOL = str(Path(ap.parse_args().tool).resolve())
    tmp = Path(tempfile.mkdtemp(prefix="ckr-interop-"))
    try:
        for case in sorted(p.parent for p in DATA.glob("*/check.json")):
            before = passed
            check_case(case, tmp)
            print(f"{case.name}: {passed - before} passed", flush=True)
        check_trainers(tmp)
        check_deepspeed(tmp)
        check_nanotron(tmp)
    finally:
        shutil.rmtree(tmp, ignore_errors=True)
    print(f"torch {torch.__version__}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
