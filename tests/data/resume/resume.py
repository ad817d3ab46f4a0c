#!/usr/bin/env python3
"""Files that torch itself wrote in the middle of a run, for tests/t_resume.c: resume.py DIR (torch 2.15).

NAME.pt: model, optimizer and scheduler after 12 updates, two groups (weight decay 0.1 and 0). lr.json: the LR that
the live run used in every update. `named`: the optimizer knows its parameters' names. `tensor`: the LRs are tensors.
`bare`: no scheduler. `noinit`: groups without initial_lr. `pair`: two schedulers of one optimizer. `plain`: groups
that never had one; `own`: the script's own. `warm`: within a warm-up. check: resume.py --check FILE NAME prints the LRs that torch goes on with from a converted file.
"""

import json
import os
import sys

import torch
from torch.optim import lr_scheduler as S

AT, N = 12, 33


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))


def optimizer(m, name):
    p = list(m.named_parameters()) if name == "named" else list(m.parameters())
    lr = torch.tensor if name == "tensor" else float
    groups = [{"params": p[0::2], "weight_decay": 0.1}, {"params": p[1::2], "weight_decay": 0.0, "lr": lr(0.02)}]
    if name == "onecycle":
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    return torch.optim.AdamW(groups, lr=lr(0.1), foreach=False)


def cosine(o):
    return S.CosineAnnealingLR(o, 40, eta_min=0.001)


CASES = {
    "cosine": cosine,
    "named": cosine,
    "tensor": cosine,
    "bare": cosine,
    "noinit": cosine,
    "step": lambda o: S.StepLR(o, 5, gamma=0.5),
    "linear": lambda o: S.LinearLR(o, start_factor=1.0, end_factor=0.1, total_iters=30),
    "onecycle": lambda o: S.OneCycleLR(o, max_lr=[0.1, 0.02], total_steps=60),
    "seq": lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 5), S.CosineAnnealingLR(o, 45)], [5]),
    "lambda": lambda o: S.LambdaLR(o, lambda t: 1 / (1 + 0.1 * t)),
    "pair": lambda o: S.ExponentialLR(o, 0.9),
    "plain": cosine,
    "own": cosine,
    "warm": lambda o: S.LambdaLR(o, lambda t: min(1, t / 20)),
}


def train(m, o, s):
    o.zero_grad()
    m(torch.ones(4, 3)).pow(2).mean().backward()
    o.step()
    s.step()


def lrs(o):
    return [float(g["lr"]) for g in o.param_groups]


def write(out):
    truth = {}
    for name, make in CASES.items():
        m = model()
        o = optimizer(m, name)
        s = make(o)
        for k in range(N):
            if k == AT:
                d = {"optimizer": o.state_dict()}
                if name in ("noinit", "plain", "own"):
                    for g in d["optimizer"]["param_groups"]:
                        del g["initial_lr"]
                if name not in ("bare", "plain", "own"):
                    d["scheduler"] = s.state_dict()
                if name == "pair":
                    d["scheduler"] = [s.state_dict(), S.MultiStepLR(o, [15], 0.1).state_dict()]
                if name == "own":
                    d["lr_scheduler"] = {"num_updates": k, "peak": 0.1}
                torch.save(d, f"{out}/{name}.pt")
            if name not in ("named", "tensor", "bare", "noinit", "pair", "plain", "own", "warm"):
                truth.setdefault(name, []).append(lrs(o))
            train(m, o, s)
    with open(f"{out}/lr.json", "w") as f:
        json.dump(truth, f, separators=(",", ":"))


def check(path, name):
    d = torch.load(path, weights_only=True)
    m = model()
    o = optimizer(m, name)
    s = CASES[name](o)
    o.load_state_dict(d["optimizer"])
    s.load_state_dict(d["scheduler"])
    for k in range(20):
        print(AT + k + 1, lrs(o), [g["weight_decay"] for g in o.param_groups])
        train(m, o, s)


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        check(*sys.argv[2:])
    else:
        os.makedirs(sys.argv[1], exist_ok=True)
        write(sys.argv[1])
