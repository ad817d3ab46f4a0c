#!/usr/bin/env python3
"""same.py BEFORE AFTER CORPUS...: two tools on every checkpoint, eight targets each: the same files, byte for
byte, the same exit codes and the same reports? What a change is meant to leave as it was.

CORPUS: folders whose subfolders hold cases with a `ckpt` in them (corpus/nanotron, tests/data/dcp ...), or `ckpt`
folders themselves. Prints each difference, then `N passed, N failed`. --jobs N, --only TEXT (of a case's path).
"""

import argparse, filecmp, json, os, re, shutil, subprocess, sys, tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TARGETS = {
    "inspect": ["inspect", "{ckpt}", "--json", "--tensors"],
    "lr": ["lr", "{ckpt}", "--json"],
    "recover": ["convert", "{ckpt}", "{out}", "--mode", "recover"],
    "dp3": ["convert", "{ckpt}", "{out}", "--dp", "3"],
    "tp2": ["convert", "{ckpt}", "{out}", "--tp", "2"],
    "pp2_zero1": ["convert", "{ckpt}", "{out}", "--pp", "2", "--zero", "1"],
    "safetensors": ["convert", "{ckpt}", "{out}", "--to", "safetensors"],
    "dcp": ["convert", "{ckpt}", "{out}", "--to", "dcp", "--ranks", "2"],
    "deepspeed": ["convert", "{ckpt}", "{out}", "--to", "deepspeed", "--dp", "2", "--zero", "1"],
    "set": ["convert", "{ckpt}", "{out}", "--set", "lr=0.000125", "--set", "weight_decay=0.05"],
}


def cases(roots):
    for root in map(Path, roots):
        found = [root] if root.name == "ckpt" else sorted(root.glob("*/ckpt")) or sorted(root.glob("*/*/ckpt"))
        yield from found


def run(tool, command, ckpt, out):
    args = [a.format(ckpt=ckpt, out=out) for a in command]
    p = subprocess.run([tool, *args, *(["--json"] if "--json" not in args else [])], capture_output=True, text=True,
                       errors="replace")
    text = re.sub(r'"(seconds|peak_bytes)": ?[^,}]*', "", p.stdout).replace(str(out), "OUT")
    return p.returncode, text, p.stderr.replace(str(out), "OUT")


def tree_of(out):
    if out.is_file():
        return {".": out}
    return {str(p.relative_to(out)): p for p in sorted(out.rglob("*")) if p.is_file()}


def one(before, after, ckpt, name, command):
    top = Path(tempfile.mkdtemp(prefix="ckr-same-"))
    try:
        # one name in both, since reports and files may hold it
        (top / "a").mkdir()
        (top / "b").mkdir()
        out = [top / "a" / "out", top / "b" / "out"]
        a, b = run(before, command, ckpt, out[0]), run(after, command, ckpt, out[1])
        for what, x, y in zip(("exit code", "report", "stderr"), a, b):
            if x != y:
                at = next((i for i, (p, q) in enumerate(zip(str(x), str(y))) if p != q), 0)
                return f"{what}: {str(x)[max(0, at - 60):at + 120]!r} / {str(y)[max(0, at - 60):at + 120]!r}"
        files = [tree_of(o) for o in out]
        if list(files[0]) != list(files[1]):
            return f"files: {sorted(set(files[0]) ^ set(files[1]))}"
        for k in files[0]:
            if not filecmp.cmp(files[0][k], files[1][k], shallow=False):
                return f"bytes of {k}"
        return None
    finally:
        shutil.rmtree(top, ignore_errors=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("before")
    p.add_argument("after")
    p.add_argument("corpus", nargs="+")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--only", default="")
    a = p.parse_args()
    jobs = [(c, n) for c in cases(a.corpus) if a.only in str(c) for n in TARGETS]
    failed = 0
    with ThreadPoolExecutor(a.jobs) as pool:
        todo = [(c, n, pool.submit(one, os.path.abspath(a.before), os.path.abspath(a.after), c, n, TARGETS[n]))
                for c, n in jobs]
        for c, n, job in todo:
            if (why := job.result()) is not None:
                failed += 1
                print(f"{c.parent.name} {n}: {why}", flush=True)
    print(f"{len(jobs) - failed} passed, {failed} failed")
    return 1 if failed or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
