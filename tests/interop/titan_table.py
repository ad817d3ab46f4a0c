#!/usr/bin/env python3
"""What unpatched TorchTitan did with one checkpoint under changed settings (resume.json of the corpus: 49 resumes, the
LR of every update or the error of each), and what `plan` and `lr` say of the same change beforehand:
titan_table.py TOOL CORPUS/dcp. A change after which TorchTitan would stop, jump or go below 0 is refused with its
reason; where it goes on, every update but the first, which takes the saved LR, has exactly TorchTitan's LR, and what
the first one would take is an entry. Needs no framework. Ends with `N passed, N failed`."""

import copyreg
import io
import json
import pickle
import shutil
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from count import end, expect

SAVED = "torchtitan:steps=20,warmup_steps=4,decay_type=linear,min_lr_factor=0"
LAST = 0.0034375  # of update 10, group 0

# Each row's command line, and what `plan` exits with. LIKE-x and DROP-key stand for files that are made below.
LINEAR = "--to-schedule torchtitan:steps=%d,warmup_steps=4,decay_type=linear%s"
AGAIN = " " + LINEAR % (20, "")
ROWS = {
    "same config": ("", 0),
    "steps=40": (LINEAR % (40, ""), "curve"),
    "steps=12": (LINEAR % (12, ""), "curve"),
    "steps=9 (< saved step 10)": (LINEAR % (9, ""), "curve"),
    "steps=10 (= saved step)": (LINEAR % (10, ""), "curve"),
    "steps=40, total_steps=20 pinned": (LINEAR % (40, ",total_steps=20"), "curve"),
    "steps=20, total_steps=12 (ends before the run)": (LINEAR % (20, ",total_steps=12"), "curve"),
    "steps=20, total_steps=8 (< saved step)": (LINEAR % (20, ",total_steps=8"), "curve"),
    "steps=20, total_steps=8, cosine": (
        "--to-schedule torchtitan:steps=20,warmup_steps=4,decay_type=cosine,total_steps=8",
        "curve",
    ),
    "steps=20, total_steps=8, sqrt": (
        "--to-schedule torchtitan:steps=20,warmup_steps=4,decay_type=sqrt,total_steps=8",
        "curve",
    ),
    "steps=20, total_steps=12, min_lr_factor=0.1": (LINEAR % (20, ",total_steps=12,min_lr_factor=0.1"), "curve"),
    "steps=20, total_steps=12, warmup=12 (decay_steps 0)": (
        "--to-schedule torchtitan:steps=20,warmup_steps=12,decay_type=linear,total_steps=12",
        "curve",
    ),
    "steps=40, warmup=15 (re-enters warm-up)": (
        "--to-schedule torchtitan:steps=40,warmup_steps=15,decay_type=linear",
        "curve",
    ),
    "steps=40, decay_ratio=0.5 (WSD)": (LINEAR % (40, ",decay_ratio=0.5"), "curve"),
    "steps=20, cosine": ("--to-schedule torchtitan:steps=20,warmup_steps=4,decay_type=cosine", "curve"),
    "steps=20, lr x0.1": ("--set 0.lr=0.0005 --set 1.lr=0.001", 0),
    "steps=20, weight_decay 0.1->0.5, betas (0.8,0.9)": ("--like LIKE-hyper", 0),
    "one param group instead of two": ("--like LIKE-one", 0),
    "Adam instead of AdamW for the norm group": ("--like LIKE-adam", 0),
    "exclude optimizer": ("--without optimizer", 0),
    "exclude optimizer+lr_scheduler": ("--max-lr-jump 3 --without optimizer,groups,schedule" + AGAIN, 0),
    "exclude lr_scheduler": ("--max-lr-jump 3 --without schedule" + AGAIN, 0),
    "exclude lr_scheduler, steps=40": ("--max-lr-jump 3 --without schedule " + LINEAR % (40, ""), 0),
    "exclude train_state": ("--without progress", "CKR_E_CLOCK_WITHOUT"),
    "exclude train_state+lr_scheduler": ("--without progress,schedule" + AGAIN, 0),
    "exclude dataloader": ("--without data", 0),
    "exclude data_loader (spelling of docs)": ("--without data_loader", 2),
    "exclude model": ("--without params", "CKR_E_PARAMS_WITHOUT"),
    "initial_load_path, model only (transfer)": ("--mode transfer" + AGAIN, 0),
    "initial_load_path, model only False, exclude train_state+lr_scheduler+dataloader (continue at step 0)": (
        "--without progress,schedule,data" + AGAIN,
        0,
    ),
    "initial_load_path full": ("", 0),
    "load_step=11 (absent)": ("STEP-11", 4),
    "without lr_scheduler.last_epoch key": ("DROP-lr_scheduler.last_epoch", "CKR_FIX_KEY"),
    "without one exp_avg key": ("DROP-optimizer.state.norm.weight.exp_avg", "CKR_E_STATE_MISSING"),
    "without one hyper-parameter key (decoupled_weight_decay of the first fqn)": (
        "DROP-optimizer.param_groups.layers.0.attention_norm.weight.decoupled_weight_decay",
        "CKR_FIX_KEY",
    ),
    "without train_state.ntokens_seen": ("DROP-train_state.ntokens_seen", "CKR_W_TOKENS"),
    "without one model key": ("DROP-norm.weight", "CKR_E_MODEL_MISSING"),
    "vocab 131 -> 144": ("--vocab 144", "CKR_E_TRAINER_SOURCE"),
    "one layer more": ("--like LIKE-layer", "CKR_E_MODEL_MISSING"),
    "fuse_qkv False (model saved fused)": ("--variant split_qkv --kv-heads 2", 0),
    "dtype bfloat16": ("--dtype bfloat16", 0),
    "dp 2 -> 1": ("--dp 1", 0),
    "dp 2 -> 1, exclude dataloader": ("--dp 1 --without data", 0),
    "dp 2 -> 4": ("--dp 4", 0),
    "dp 2 -> 4, exclude dataloader": ("--dp 4 --without data", 0),
    "dp 2 -> dp 2 x tp 2": ("--dp 2 --tp 2", 0),
    "dp 2 -> pp 2, exclude dataloader": ("--dp 1 --pp 2 --without data", 0),
    "dp 2 -> hsdp 2x1": ("--dp 2", 0),
    "folder also has the final model-only step-20, load_step=-1, steps=40": ("", "CKR_NEWER_STEP"),
}
# these have no part in the LR, and `lr` does not take them
OF_PLAN = ("--dp", "--tp", "--pp", "--dtype", "--variant", "--kv-heads")
def run(verb, *args):
    p = subprocess.run([sys.argv[1], verb, *map(str, args), "--json"], capture_output=True, text=True)
    return p.returncode, json.loads(p.stdout) if p.stdout.strip() else {}


def codes(report):
    return {e["code"] for e in report.get("report", [])}


class Stub:
    """Any class of a pickle, written again as it was read."""

    def __new__(cls, *args):
        made = object.__new__(cls)
        made.args, made.state, made.called = args, None, False
        return made

    def __init__(self, *args):
        self.called = True

    def __setstate__(self, state):
        self.state = state

    def __reduce_ex__(self, protocol):
        made = (type(self), self.args) if self.called else (copyreg.__newobj__, (type(self), *self.args))
        return made if self.state is None else (*made, self.state)

    def __hash__(self):
        return hash(repr((self.args, self.state)))

    def __eq__(self, other):
        return repr((self.args, self.state)) == repr((other.args, other.state))


class Stubs(pickle.Unpickler):
    def find_class(self, module, name):
        if module in ("builtins", "collections", "pathlib"):
            return super().find_class(module, name)
        found = sys.modules.setdefault(module, types.ModuleType(module))
        for part in name.split("."):
            if not hasattr(found, part):
                setattr(found, part, type(part, (Stub,), {"__module__": module, "__qualname__": name}))
            found = getattr(found, part)
        return found


def without_key(ckpt, key, out):
    """A copy of a DCP checkpoint whose metadata lacks one key."""
    shutil.copytree(ckpt, out)
    metadata = Stubs(io.BytesIO((ckpt / ".metadata").read_bytes())).load()
    del metadata.state["state_dict_metadata"][key]
    metadata.state["planner_data"].pop(key, None)
    storage = metadata.state["storage_data"]
    for index in [i for i in storage if i.state["fqn"] == key]:
        del storage[index]
    (out / ".metadata").write_bytes(pickle.dumps(metadata, 4))
    return out


def likes(ckpt, room):
    """The coming run's groups of the rows that change them."""
    _, told = run("inspect", ckpt)
    norms, rest = [[p for p in g["params"]] for g in told["groups"]]
    split = [f"{p[:-11]}{k}.weight" for p in rest if p.endswith("wqkv.weight") for k in ("wq", "wk", "wv")]
    layer = [p.replace("layers.2.", "layers.3.") for p in norms + rest if p.startswith("layers.2.")]
    wanted = {
        "hyper": [{"params": norms}, {"params": rest, "weight_decay": 0.5, "betas": [0.8, 0.9]}],
        "one": [{"params": rest + norms, "lr": 0.01, "weight_decay": 0.1, "betas": [0.9, 0.95]}],
        "adam": [{"params": norms, "decoupled_weight_decay": False}, {"params": rest}],
        "layer": [{"params": norms}, {"params": rest + layer}],
        "split": [{"params": norms}, {"params": [p for p in rest if "wqkv" not in p] + split}],
    }
    for name, groups in wanted.items():
        (room / f"LIKE-{name}").write_text(json.dumps({"groups": groups}))


def command(text, ckpt, room):
    """The arguments of a row, and the checkpoint that they are for."""
    if text.startswith("DROP-"):
        return without_key(ckpt / "step-10", text[5:], room / text), []
    if text.startswith("STEP-"):
        return ckpt / "step-11", []
    return ckpt, [str(room / a) if a.startswith("LIKE-") else a for a in text.split()]


def same_lrs(row, ckpt, flags):
    """`lr` of the row against TorchTitan's updates: the first as an entry of the plan, where it is another."""
    used = {int(k): v for k, v in row["lr_used"].items()}
    first = min(used)
    _, report = run("plan", ckpt, *flags)
    decided = [f for k, f in enumerate(flags) if f not in OF_PLAN and (not k or flags[k - 1] not in OF_PLAN)]
    code, lr = run("lr", ckpt, *decided, "--from", first, "--to", max(used))
    mine = {r["step"]: r["lr"] for r in lr.get("after", [])}
    as_it_is = {e["subject"]: e["old"] for e in report["report"] if e["code"] == "CKR_TITAN_AS_IT_IS"}
    for i, value in enumerate(used[first]):
        told = as_it_is.get(f"lr of group {i}")
        ok = float(told) == value if told else mine.get(first, [None] * 9)[i] == value
        expect(ok, f"{row['name']}: the first update takes {value}, plan {told}, lr {mine.get(first)}")
    for k, values in used.items():
        if k > first:
            close = k in mine and all(abs(a - b) <= 4e-16 + 1e-14 * abs(b) for a, b in zip(mine[k], values))
            expect(close, f"{row['name']}: update {k}: {mine.get(k)}, TorchTitan {values}")
    hyper = [g for optimizer in row["hyper_at_first_update"] for g in optimizer]
    for i, group in enumerate(hyper):
        for key in ("weight_decay", "betas"):
            told = as_it_is.get(f"{key} of group {i}")
            if told:
                expect(json.loads(told) == group[key], f"{row['name']}: {key} {group[key]}, plan {told}")
    return mine


def curve_row(row, ckpt, flags):
    """A row whose schedule changes, and nothing else."""
    used = {int(k): v for k, v in row["lr_used"].items()}
    code, _ = run("plan", ckpt, *flags)
    wanted, report = run("plan", ckpt, *flags, "--lr-policy", "target")
    if not used and not row["error"]:  # no update is left
        said = codes(report) & {"CKR_W_RUN_OVER", "CKR_W_LR_PAST_END"}
        expect(said, f"{row['name']}: planned, though no update is left ({codes(report)})")
        return
    if row["error"] or any(lr < 0 for k in used for lr in used[k]):
        expect(wanted == 1, f"{row['name']}: planned, though TorchTitan stops or goes below 0 ({codes(report)})")
        return
    expect(wanted == 0, f"{row['name']}: refused under target: {codes(report)}")
    mine = same_lrs(row, ckpt, [*flags, "--lr-policy", "target"])
    ratio = mine[11][0] / LAST if 11 in mine else 1
    jumps = not 1 / 1.05 <= ratio <= 1.05  # the default of --max-lr-jump
    expect(code == (1 if jumps else 0), f"{row['name']}: exit {code} without a policy, first LR {mine.get(11)}")


def other_row(row, ckpt, flags, wanted):
    code, report = run("plan", ckpt, *flags)
    if isinstance(wanted, str):
        refuses = wanted.startswith("CKR_E_")
        expect(wanted in codes(report), f"{row['name']}: {wanted} is not in {codes(report)}")
        wanted = 1 if refuses else 0
    expect(code == wanted, f"{row['name']}: exit {code}: {codes(report)}")
    if wanted == 0 and code == 0 and row["lr_used"]:
        same_lrs(row, ckpt, flags)


def main(corpus):
    case = corpus / "tt_dp2"
    rows = {r["name"]: r for r in json.loads((case / "resume.json").read_text())}
    expect(list(rows) == list(ROWS), f"rows without a command line: {set(rows) ^ set(ROWS)}")
    with tempfile.TemporaryDirectory() as name:
        room = Path(name)
        likes(case / "ckpt", room)
        for name, row in rows.items():
            text, wanted = ROWS[name]
            ckpt, flags = command(text, case / "ckpt", room)
            flags = ["--schedule", SAVED, *flags]
            if wanted == "curve":
                curve_row(row, ckpt, flags)
            else:
                other_row(row, ckpt, flags, wanted)
        code, report = run("plan", case / "ckpt", "--schedule", SAVED, "--like", room / "LIKE-split")
        expect(code == 1 and "CKR_E_STATE_MISSING" in codes(report), f"split names alone: exit {code}: {codes(report)}")
    return end()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[2])))
