#!/usr/bin/env python3
"""What unpatched TorchTitan did with one checkpoint under changed settings (resume.json of the corpus: LR of every
update, or its error), and what `plan` and `lr` say of the same change beforehand: titan_table.py TOOL CORPUS/dcp. A
change after which TorchTitan would jump, go below 0 or stop is refused with its reason; under `--lr-policy target`
every update but the first, which takes the saved LR, has exactly TorchTitan's LR. Needs no framework. Ends with
`N passed, N failed`."""

import json
import subprocess
import sys
from pathlib import Path

SAVED = {"steps": 20, "warmup_steps": 4, "decay_type": "linear", "min_lr_factor": 0}
LAST = 0.0034375  # of update 10
passed = failed = 0


def expect(ok, what):
    global passed, failed
    passed += bool(ok)
    failed += not ok
    if not ok:
        print(f"FAIL {what}")


def run(verb, *args):
    p = subprocess.run([sys.argv[1], verb, *map(str, args), "--json"], capture_output=True, text=True)
    return p.returncode, json.loads(p.stdout) if p.stdout.strip() else {}


def text(settings):
    return "torchtitan:" + ",".join(f"{k}={v}" for k, v in settings.items())


def codes(report):
    return {e["code"] for e in report.get("report", [])}


def schedule_row(row, ckpt):
    """A row whose schedule changes, and nothing else."""
    changed = row["changed"]
    asked = {"steps": changed["steps"], "warmup_steps": 4, "decay_type": "linear", **changed.get("sched", {})}
    flags = ["--schedule", text(SAVED), "--to-schedule", text(asked)]
    used = {int(k): v for k, v in row["lr_used"].items()}
    code, _ = run("plan", ckpt, *flags)
    wanted, report = run("plan", ckpt, *flags, "--lr-policy", "target")
    if not used and not row["error"]:          # no update is left
        return
    broken = row["error"] or any(lr < 0 for k in used for lr in used[k])
    if broken:
        expect(wanted == 1, f"{row['name']}: planned, though TorchTitan stops or goes below 0 ({codes(report)})")
        return
    expect(wanted == 0, f"{row['name']}: refused under target: {codes(report)}")
    _, lr = run("lr", ckpt, *flags, "--lr-policy", "target", "--from", 11, "--to", max(used))
    mine = {r["step"]: r["lr"] for r in lr.get("after", [])}
    as_it_is = [float(e["old"]) for e in report["report"] if e["code"] == "CKR_TITAN_AS_IT_IS"]
    if mine.get(11) != used[11]:
        expect(as_it_is == used[11], f"{row['name']}: TorchTitan's first update uses {used[11]}, plan says {as_it_is}")
    for k, values in used.items():
        if k > 11:
            close = k in mine and all(abs(a - b) <= 4e-16 + 1e-14 * abs(b) for a, b in zip(mine[k], values))
            expect(close, f"{row['name']}: update {k}: {mine.get(k)}, TorchTitan {values}")
    ratio = mine[11][0] / LAST if 11 in mine else 1
    other = any(SAVED.get(k) != v for k, v in asked.items())
    jumps = other and not 1 / 1.05 <= ratio <= 1.05      # the default of --max-lr-jump
    expect(code == (1 if jumps else 0), f"{row['name']}: exit {code} without a policy, first LR {mine.get(11)}")


def main(corpus):
    case = corpus / "tt_dp2"
    rows = {r["name"]: r for r in json.loads((case / "resume.json").read_text())}
    ckpt = case / "ckpt"
    for row in rows.values():
        if not set(row["changed"]) - {"steps", "sched"}:
            schedule_row(row, ckpt)
    same = ["--schedule", text(SAVED)]
    for name, flags in {
        "exclude optimizer": ["--without", "optimizer"],
        "exclude optimizer+lr_scheduler": ["--without", "optimizer,groups,schedule"],
        "exclude dataloader": ["--without", "data"],
        "initial_load_path, model only (transfer)": ["--mode", "transfer"],
        "dtype bfloat16": ["--dtype", "bfloat16"],
        "dp 2 -> 1": ["--dp", 1],
        "dp 2 -> 4": ["--dp", 4],
        "dp 2 -> dp 2 x tp 2": ["--dp", 2, "--tp", 2],
        "dp 2 -> pp 2, exclude dataloader": ["--dp", 1, "--pp", 2, "--without", "data"],
        "folder also has the final model-only step-20, load_step=-1, steps=40": [],
    }.items():
        code, report = run("plan", ckpt, *same, *flags)
        expect(name in rows and code == 0, f"{name}: exit {code}: {codes(report)}")
    name = "steps=20, weight_decay 0.1->0.5, betas (0.8,0.9)"
    code, report = run("plan", ckpt, *same, "--set", "weight_decay=0.5")
    decay = [e["old"] for e in report.get("report", []) if e["code"] == "CKR_TITAN_AS_IT_IS"]
    used = rows[name]["hyper_at_first_update"][0][1]["weight_decay"]
    expect(code == 0 and decay and float(decay[-1]) == used, f"{name}: exit {code}: {decay}, TorchTitan {used}")
    for name, flags in {"exclude train_state": ["--without", "progress"]}.items():
        code, report = run("plan", ckpt, *same, *flags)
        expect(name in rows and code == 1, f"{name}: exit {code}: {codes(report)}")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[2])))
