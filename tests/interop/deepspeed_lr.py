"""deepspeed_lr.py TOOL TMP CORPUS: the LR of DeepSpeed's own schedulers after a conversion.

For each kind of scheduler a torch file with nine updates becomes a checkpoint of DeepSpeed; the corpus's cases are
converted to other sizes, and with another schedule. DeepSpeed's scheduler is built from the written ds_config, takes
the written state as engine.load_checkpoint does it, and steps past its end: each LR is the one that `lr` tells.

Prints a line per failure, then `N passed, N failed`.
"""

import json, os, subprocess, sys
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"
import torch
from deepspeed.runtime import lr_schedules
from count import end, expect

lr_schedules.logger.setLevel("ERROR")
TOOL, TMP, CORPUS = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
BASES = [1e-2, 5e-3]
UPDATES = 40
KINDS = [
    "WarmupLR,warmup_min_lr=0.0001,warmup_max_lr=0.008,warmup_num_steps=12",
    "WarmupDecayLR,total_num_steps=24,warmup_min_lr=0,warmup_max_lr=0.01,warmup_num_steps=4,warmup_type=linear",
    "WarmupDecayLR,total_num_steps=24,warmup_min_lr=0.0001,warmup_max_lr=0.01,warmup_num_steps=14,warmup_type=log",
    "WarmupCosineLR,total_num_steps=24,warmup_min_ratio=0.05,warmup_num_steps=5,cos_min_ratio=0.1,warmup_type=linear",
    "WarmupCosineLR,total_num_steps=30,warmup_num_steps=12",
    "OneCycle,cycle_min_lr=0.001,cycle_max_lr=0.008,cycle_first_step_size=8,cycle_second_step_size=6,"
    "decay_lr_rate=0.1,decay_step_size=3,cycle_momentum=false",
    "LRRangeTest,lr_range_test_min_lr=0.0001,lr_range_test_step_size=3,lr_range_test_step_rate=1.5,"
    "lr_range_test_staircase=true",
]
CASES = [
    ("dp2_zero1_fp32", "--dp 3"),
    ("dp2_zero1_fp32", "--zero 3 --lr-policy stretch --set total_steps=36"),
    ("dp2_zero2_bf16", "--dp 1"),
    ("dp2_zero2_bf16", "--zero 1 --dtype fp32"),
    ("dp2_zero3_fp32", "--dp 4"),
    ("pp2_dp2_zero1_bf16", "--dp 1"),
]
def tool(*args):
    p = subprocess.run([TOOL, *map(str, args), "--json"], capture_output=True, text=True, timeout=60)
    doc = json.loads(p.stdout)
    wrong = [e["code"] for e in doc.get("report", []) if e["severity"] == "error"]
    expect(p.returncode == 0, f"{args}: exit {p.returncode}: {wrong or doc.get('error')}")
    return doc if p.returncode == 0 else None


def torch_file(path):
    a = torch.nn.Linear(3, 4)
    o = torch.optim.AdamW([{"params": [p], "lr": lr} for p, lr in zip((a.weight, a.bias), BASES)])
    for _ in range(9):
        a(torch.ones(2, 3)).sum().backward()
        o.step()
    state = o.state_dict()
    for g, name in zip(state["param_groups"], ("weight", "bias")):
        g["param_names"] = [name]
    torch.save({"model": a.state_dict(), "optimizer": state, "step": 9}, path)


def compare(what, out, bases):
    """What DeepSpeed makes of the files, update by update, and what `lr` says of them."""
    here = out / (out / "latest").read_text()
    read = lambda name: torch.load(sorted(here.glob(name))[0], weights_only=False)
    model, rank = read("*mp_rank_00_model_states.pt"), read("*zero_pp_rank_0_mp_rank_00_optim_states.pt")
    state = rank["optimizer_state_dict"]
    groups = state.get("base_optimizer_state", state.get("optimizer_state_dict"))["param_groups"]
    o = torch.optim.AdamW([{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in bases])
    conf = model["ds_config"]["scheduler"]
    scheduler = getattr(lr_schedules, conf["type"])(o, **conf["params"])
    scheduler.load_state_dict(model["lr_scheduler"])
    for g, saved in zip(o.param_groups, groups):
        g["lr"] = saved["lr"]
    first = model["global_steps"] + 1
    told = tool("lr", out, "--from", first, "--to", first + UPDATES)
    for row in told["before"] if told else []:
        live = [g["lr"] for g in o.param_groups]
        near = all(abs(a - b) <= 4e-15 * abs(b) + 1e-18 for a, b in zip(row["lr"], live))
        expect(near and len(row["lr"]) == len(live), f"{what}: update {row['step']}: lr says {row['lr']}, it is {live}")
        scheduler.step()


def main():
    torch_file(TMP / "nine.pt")
    for i, kind in enumerate(KINDS):
        out = TMP / f"lr-{i}"
        flags = "--to deepspeed --zero 2 --dp 2 --max-lr-jump 1e9".split()
        if tool("convert", TMP / "nine.pt", out, *flags, "--to-schedule", f"deepspeed:{kind}"):
            compare(kind, out, BASES)
    for i, (case, flags) in enumerate(CASES):
        out = TMP / f"lr-case-{i}"
        job = json.loads((CORPUS / case / "truth.json").read_text())["job"]
        lr = job["optimizer"]["params"]["lr"]
        if tool("convert", CORPUS / case / "ckpt", out, *flags.split()):
            compare(f"{case} {flags}", out, [lr, job.get("group1", {}).get("lr", lr)])
    return end()


if __name__ == "__main__":
    sys.exit(main())
