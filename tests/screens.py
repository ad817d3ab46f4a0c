#!/usr/bin/env python3
"""What people see: the tool's screens of one checkpoint of each dialect, on a terminal of 80 columns.

    screens.py [--tool ./ckptresume] [--keep DIR] [--all] CORPUS

No line is longer than 80 columns, but one with a path or a name in it that is long itself; no line ends in blanks; no
screen has 60 lines or more. Prints a line per fault, then `N passed, N failed`. --keep writes the screens
to DIR to be read; --all takes every case of the corpus.
"""
import argparse, json, os, re, subprocess, sys
from pathlib import Path

COLUMNS, LINES = 80, 60

# a case of each dialect and layout, and flags that ask for another topology
CASES = {
    "nanotron/tp2_pp2_dp1": ["--tp", "1", "--pp", "1"],
    "megatron/legacy_tp2_pp2_tied": ["--tp", "1", "--dp", "4"],
    "megatron/tdist_tp2_pp2_dp2_dr_tied": ["--tp", "1", "--pp", "1"],
    "dcp/tt_dp2tp2": ["--tp", "1"],
    "dcp/dcp_zoo2": ["--to", "torch"],
    "deepspeed/dp2_zero2_bf16": ["--dp", "3"],
    "deepspeed/pp2_dp2_zero1_bf16": ["--dp", "1"],
    "accelerate/acc_w7_nonoise_shared_seed": ["--ranks", "3"],
    "accelerate/sana_w7_old": ["--ranks", "5"],
    "accelerate/hf_llama_w1": ["--ranks", "2"],
    "fsdp/acc_fsdp2_sharded_w2": ["--ranks", "4"],
    "fsdp/trainer_fsdp1_sharded_w2": ["--ranks", "1"],
    "verl/fsdp1_w2": ["--dp", "4"],
    "lightning/ddp_w2_lambda_two_opt": ["--ranks", "3"],
    "lightning/fsdp2_dcp_w2": ["--ranks", "3"],
    "rawdcp/torchtune_recipe_w2": ["--to", "torch"],
    "rawdcp/olmo_core_w2": ["--to", "dcp"],
    "llmc/p2_z1_bf16": ["--dp", "4"],
    "optim/muon_and_adamw": ["--to", "safetensors"],
}


def screens(case, changed):
    """The command lines of a case, by name."""
    truth = json.loads((case / "check.json").read_text()) if (case / "check.json").exists() else {}
    ckpt = case / truth.get("ckpt", "ckpt")
    other = next((d for d in sorted(case.parent.iterdir()) if d != case and (d / "ckpt").exists()), case)
    other = other / "ckpt" if (other / "ckpt").exists() else ckpt
    yield "inspect", ["inspect", ckpt]
    yield "plan", ["plan", ckpt]
    yield "plan changed", ["plan", ckpt, *changed]
    yield "lr", ["lr", ckpt]
    yield "rng", ["rng", ckpt]
    yield "diff same", ["diff", ckpt, ckpt]
    yield "diff", ["diff", ckpt, other]
    yield "check", ["check", ckpt]


def faults(text, columns=COLUMNS, lines=LINES):
    """What is wrong with a screen."""
    got = text.split("\n")
    if got and got[-1] == "":
        got.pop()
    for n, line in enumerate(got, 1):
        if line != line.rstrip():
            yield f"line {n} ends in blanks: {line!r}"
        if len(line) > columns and not re.search(r"[^ ]*[./][^ ]{30}", line):
            yield f"line {n} has {len(line)} columns: {line}"
    if len(got) >= lines:
        yield f"{len(got)} lines"


def facts(run, corpus):
    """Single things that a screen must and must not have: a name, and whether it is so."""
    megatron = corpus / "megatron/tdist_tp2_pp2_dp2_dr_tied/ckpt"
    plan, every = (run("plan", megatron, *f) for f in ([], ["--verbose"]))
    streams = len(re.findall("RNG_", plan))
    yield "streams are one line per kind and scope", 0 < streams < 7
    yield "--verbose has every stream", len(re.findall("RNG_", every)) > 3 * streams
    yield "lr says nothing of streams", "RNG" not in run("lr", megatron)
    digest, each = (run("digest", megatron, *f) for f in ([], ["--each"]))
    yield "digest is the total", len(digest.splitlines()) == 1 and digest.split()[0] in each
    yield "--each has the tensors", len(each.splitlines()) > 60
    inspect = run("inspect", megatron)
    yield "inspect adds the parameters up", "17.1 K parameters, complete" in inspect
    yield "LRs have six digits", " 0.00266049," in inspect and not re.search(r"0\.\d{9}", inspect)
    yield "the path is there once", inspect.count(str(megatron)) == 1
    zoo, single = (run("inspect", corpus / "dcp" / name / "ckpt") for name in ("dcp_zoo2", "tt_single"))
    yield "a mixed slot has its dtypes", re.search(r"\d+ float32, \d+ \w+", zoo)
    yield "a topology is not half a number", "not recorded" in single
    script = run("inspect", corpus / "dcp/dcp_net_fsdp3/ckpt")
    yield "a script's moments and random states are no parameters", "4.84 K parameters" in script
    yield "they are slots by their names", re.search(r"\n  random state +3 ", script)
    wide = run("plan", megatron, columns=160)
    longest = max(len(line) for line in wide.splitlines())
    yield "COLUMNS is heeded", 80 < longest <= 160 and len(wide.splitlines()) < len(plan.splitlines())


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--tool", default="./ckptresume")
    p.add_argument("--keep", type=Path)
    p.add_argument("--all", action="store_true")
    p.add_argument("corpus", type=Path)
    a = p.parse_args()
    cases = dict(CASES)
    if a.all:
        for f in sorted(a.corpus.glob("*/*/check.json")):
            cases.setdefault(str(f.parent.relative_to(a.corpus)), [])
    passed = failed = 0

    def started(args, columns=COLUMNS):
        env = {**os.environ, "COLUMNS": str(columns), "LC_ALL": "C.UTF-8"}
        return subprocess.run([a.tool, *map(str, args)], capture_output=True, env=env, timeout=60)

    for what, so in facts(lambda *args, **kw: started(args, **kw).stdout.decode(), a.corpus):
        if not so:
            print(f"not so: {what}")
        passed += bool(so)
        failed += not so
    for name, changed in cases.items():
        for what, args in screens(a.corpus / name, changed):
            try:
                r = started(args)
                text = (r.stdout + r.stderr).decode(errors="replace")
                found = list(faults(text))
                if r.returncode < 0 or r.returncode > 3:
                    found.append(f"exit {r.returncode}")
            except subprocess.TimeoutExpired:
                text, found = "", ["no answer in 60 s"]
            if a.keep:
                a.keep.mkdir(parents=True, exist_ok=True)
                (a.keep / f"{name.replace('/', '-')}.{what.replace(' ', '-')}").write_text(
                    "$ ckptresume " + " ".join(map(str, args)) + "\n" + text)
            for f in found[:3]:
                print(f"{name}: {what}: {f}")
            passed += not found
            failed += bool(found)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
