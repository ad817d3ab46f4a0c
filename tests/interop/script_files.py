#!/usr/bin/env python3
"""Training files of scripts, in real torch: script_files.py TOOL SCRATCH. Every optimizer of torch.optim, and every
scheduler of torch, is saved as {model, optimizer, scheduler, step}, converted - as it is; through DeepSpeed's ZeRO-3 on
4 ranks and back, where those can hold it - and goes on in torch: the weights and LRs of all later updates are those of
the run that was never interrupted. Some odd layouts beside them. Ends with `N passed, N failed`."""

import shutil
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn, optim
from torch.optim import lr_scheduler as sched
from count import end, expect

BEFORE, AFTER = 7, 12
OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, 0.05),
    "nesterov": lambda p: optim.SGD(p, 0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: optim.Adam(p, 1e-2),
    "adamw": lambda p: optim.AdamW(p, 1e-2, betas=(0.8, 0.95)),
    "amsgrad": lambda p: optim.AdamW(p, 1e-2, amsgrad=True),
    "fused": lambda p: optim.AdamW(p, 1e-2, fused=True),
    "tensor_lr": lambda p: optim.AdamW(p, torch.tensor(1e-2), foreach=False),
    "adagrad": lambda p: optim.Adagrad(p, 0.05, lr_decay=0.01, initial_accumulator_value=0.1),
    "adadelta": lambda p: optim.Adadelta(p, 1.0),
    "adamax": lambda p: optim.Adamax(p, 1e-2),
    "asgd": lambda p: optim.ASGD(p, 0.05, t0=2),
    "nadam": lambda p: optim.NAdam(p, 1e-2, decoupled_weight_decay=True, weight_decay=0.1),
    "radam": lambda p: optim.RAdam(p, 1e-2),
    "rmsprop": lambda p: optim.RMSprop(p, 0.01, centered=True, momentum=0.9),
    "rprop": lambda p: optim.Rprop(p, 0.01),
    "adafactor": lambda p: optim.Adafactor(p, 0.01),
    "lbfgs": lambda p: optim.LBFGS([q for g in p for q in g["params"]], 0.1, history_size=4, max_iter=3),
}
THROUGH_ZERO = {"adam", "adamw", "amsgrad", "fused"}
SCHEDULERS = {
    "none": None,
    "lambda": lambda o: sched.LambdaLR(o, lambda t: 0.95**t),
    "multiplicative": lambda o: sched.MultiplicativeLR(o, lambda t: 0.97),
    "step": lambda o: sched.StepLR(o, 3, 0.5),
    "multistep": lambda o: sched.MultiStepLR(o, [2, 9, 9, 12], 0.5),
    "constant": lambda o: sched.ConstantLR(o, 0.25, 9),
    "linear": lambda o: sched.LinearLR(o, 0.1, 0.8, 10),
    "exponential": lambda o: sched.ExponentialLR(o, 0.9),
    "polynomial": lambda o: sched.PolynomialLR(o, 15, 1.7),
    "cosine": lambda o: sched.CosineAnnealingLR(o, 15, 1e-4),
    "restarts": lambda o: sched.CosineAnnealingWarmRestarts(o, 4, 2, 1e-5),
    "onecycle": lambda o: sched.OneCycleLR(o, [0.1, 0.02], total_steps=BEFORE + AFTER + 1),
    "three_phase": lambda o: sched.OneCycleLR(o, 0.1, total_steps=BEFORE + AFTER + 1, pct_start=0.2,
                                              anneal_strategy="linear", three_phase=True),
    "cyclic": lambda o: sched.CyclicLR(o, 0.001, 0.1, 5, 4, mode="triangular2", cycle_momentum=False),
    "exp_range": lambda o: sched.CyclicLR(o, 0.001, 0.1, 4, mode="exp_range", gamma=0.99, cycle_momentum=False),
    "sequential": lambda o: sched.SequentialLR(o, [sched.LinearLR(o, 0.05, 1.0, 5),
                                                   sched.CosineAnnealingLR(o, 14)], [5]),
    "three": lambda o: sched.SequentialLR(o, [sched.ConstantLR(o, 0.1, 3), sched.ExponentialLR(o, 0.9),
                                              sched.StepLR(o, 2, 0.5)], [3, 10]),
    "chained": lambda o: sched.ChainedScheduler([sched.ConstantLR(o, 0.1, 9), sched.ExponentialLR(o, 0.9)], o),
    "plateau": lambda o: sched.ReduceLROnPlateau(o, factor=0.5, patience=2, cooldown=1),
    "swalr": lambda o: optim.swa_utils.SWALR(o, 0.005, 9),
    "swalr_linear": lambda o: optim.swa_utils.SWALR(o, [0.005, 0.001], 9, "linear"),
}


class Run:
    """A model, its optimizer of two groups, and a scheduler; the data of an update is a function of its number."""

    def __init__(self, optimizer="adamw", scheduler="cosine", seed=3):
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 6), nn.LayerNorm(6))
        p = list(self.model.parameters())
        groups = [{"params": [x for x in p if x.ndim > 1]}, {"params": [x for x in p if x.ndim < 2], "lr": 0.02}]
        self.optimizer = OPTIMIZERS[optimizer](groups)
        make = SCHEDULERS[scheduler]
        self.scheduler = make(self.optimizer) if make else None
        self.done, self.lrs = 0, []

    def loss(self):
        self.optimizer.zero_grad()
        loss = (self.model(torch.randn(8, 6, generator=torch.Generator().manual_seed(self.done))) - 0.5).pow(2).mean()
        loss.backward()
        return loss

    def train(self, n):
        for _ in range(n):
            self.lrs.append([float(g["lr"]) for g in self.optimizer.param_groups])
            if isinstance(self.optimizer, optim.LBFGS):
                self.optimizer.step(self.loss)
            else:
                self.loss()
                self.optimizer.step()
            self.done += 1
            if isinstance(self.scheduler, sched.ReduceLROnPlateau):
                self.scheduler.step(1 / min(self.done, 5))
            elif self.scheduler:
                self.scheduler.step()
        return self

    def save(self):
        d = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.done}
        return {**d, "scheduler": self.scheduler.state_dict()} if self.scheduler else d

    def load(self, d):
        self.model.load_state_dict(d["model"])
        self.optimizer.load_state_dict(d["optimizer"])
        state = d.get("scheduler", d.get("lr_scheduler"))
        if self.scheduler and state is not None:
            self.scheduler.load_state_dict(state)
        self.done = int(d["step"])
        return self


def convert(source, target, *args):
    shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
    p = subprocess.run([sys.argv[1], "convert", str(source), str(target), *args], capture_output=True, text=True)
    return p.returncode, (p.stderr + p.stdout[-400:]).strip()


def goes_on(file, run, whole, what):
    try:
        run.load(torch.load(file, weights_only=False)).train(AFTER)
    except Exception as e:  # what torch says of the file is the answer
        expect(False, f"{what}: {type(e).__name__}: {str(e)[:120]}")
        return
    expect(run.lrs == whole.lrs[BEFORE:], f"{what}: LRs {run.lrs[:2]} are not {whole.lrs[BEFORE:BEFORE + 2]}")
    for (k, a), b in zip(whole.model.state_dict().items(), run.model.state_dict().values()):
        expect(torch.equal(a, b), f"{what}: {k}")


def one(scratch, optimizer, scheduler, zero):
    what = f"{optimizer}, {scheduler}"
    file, out, ds = scratch / "run.pt", scratch / "out.pt", scratch / "zero3"
    torch.save(Run(optimizer, scheduler).train(BEFORE).save(), file)
    whole = Run(optimizer, scheduler).train(BEFORE + AFTER)
    code, said = convert(file, out, "--to", "torch")
    expect(code == 0, f"{what}: exit {code}: {said}")
    if code == 0:
        goes_on(out, Run(optimizer, scheduler), whole, what)
    if not zero:
        return
    code, said = convert(file, ds, "--to", "deepspeed", "--zero", "3", "--dp", "4")
    expect(code == 0, f"{what}, to ZeRO-3: exit {code}: {said}")
    if code == 0:
        code, said = convert(ds, out, "--to", "torch")
        expect(code == 0, f"{what}, back from ZeRO-3: exit {code}: {said}")
    if code == 0:
        goes_on(out, Run(optimizer, scheduler), whole, f"{what}, through ZeRO-3")


def nested(scratch):
    """Two runs in one file, some levels down: each goes on, the names of the keys as they were."""
    file, out = scratch / "run.pt", scratch / "out.pt"
    runs = [Run("adamw", "cosine", 5), Run("nesterov", "cosine", 6)]
    a, b = [r.train(BEFORE).save() for r in runs]
    torch.save({"trainer": {"nets": {"G": a["model"], "D": b["model"]}, "optims": [a["optimizer"], b["optimizer"]]},
                "schedules": {"D": b["scheduler"], "G": a["scheduler"]}, "step": BEFORE}, file)
    code, said = convert(file, out, "--to", "torch")
    expect(code == 0, f"nested: exit {code}: {said}")
    d = torch.load(out, weights_only=True)
    for i, (key, name, seed) in enumerate((("G", "adamw", 5), ("D", "nesterov", 6))):
        part = {"model": d["trainer"]["nets"][key], "optimizer": d["trainer"]["optims"][i],
                "scheduler": d["schedules"][key], "step": d["step"]}
        torch.save(part, out)
        goes_on(out, Run(name, "cosine", seed), Run(name, "cosine", seed).train(BEFORE + AFTER), f"nested {key}")


def main(scratch):
    scratch.mkdir(parents=True, exist_ok=True)
    for name in OPTIMIZERS:
        one(scratch, name, "cosine" if name != "lbfgs" else "none", name in THROUGH_ZERO)
    for name in SCHEDULERS:
        one(scratch, "adamw", name, True)
    nested(scratch)
    return end()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[2])))
