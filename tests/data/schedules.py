#!/usr/bin/env python3
"""schedules.py [OUT]   writes tests/data/schedules.json: LR (and momentum) that real torch uses, and its state dicts.

Per case: parameters as the schedule text takes them, base LRs, the LR of each update for each group, and the state and the
groups' fields before update `saved`. Seeded: the same file again with the same torch.
"""

import collections, json, random, sys, warnings
import torch

warnings.simplefilter("ignore")
L, SWA = torch.optim.lr_scheduler, torch.optim.swa_utils.SWALR
N, SAVED = 30, 11
rnd = random.Random(20)
FIELDS = ("lr", "initial_lr", "max_lr", "min_lr", "swa_lr", "base_momentum", "max_momentum")


def make(spec, o):
    """One scheduler from {"kind":..., ...}; nested ones hold a list of such dicts."""
    p = dict(spec)
    kind = p.pop("kind")
    if "schedulers" in p:
        children = [make(c, o) for c in p.pop("schedulers")]
        return (
            L.SequentialLR(o, children, p["milestones"]) if kind == "SequentialLR" else L.ChainedScheduler(children, o)
        )
    return (SWA if kind == "SWALR" else getattr(L, kind))(o, **p)


def plain(x):
    if isinstance(x, collections.Counter):
        return {str(k): v for k, v in x.items()}
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    return x


def case(spec, bases, adam=False):
    ps = [torch.nn.Parameter(torch.ones(1)) for _ in bases]
    groups = [{"params": [p], "lr": b} for p, b in zip(ps, bases)]
    o = torch.optim.AdamW(groups) if adam else torch.optim.SGD(groups, lr=bases[0], momentum=0.9)
    s = make(spec, o)
    lr, momentum, state = [], [], None
    for k in range(N):
        if k == SAVED:
            state = plain(s.state_dict())
            fields = [{f: g[f] for f in FIELDS if f in g} for g in o.param_groups]
        lr.append([g["lr"] for g in o.param_groups])
        momentum.append([g["betas"][0] if adam else g["momentum"] for g in o.param_groups])
        for p in ps:
            p.grad = torch.zeros_like(p)
        o.step()
        s.step()
    out = {"params": spec, "bases": bases, "lr": lr, "saved": SAVED, "state": state, "groups": fields}
    if spec["kind"] in ("OneCycleLR", "CyclicLR"):
        out["momentum"] = momentum
    return out


def leaf(kind, n):
    """Parameters of one scheduler for n groups; lengths around N, so that ends lie inside."""
    f, i = lambda a, b: round(rnd.uniform(a, b), rnd.choice((2, 4, 12))), rnd.randint
    return {
        "kind": kind,
        **{
            "StepLR": lambda: {"step_size": i(1, 9), "gamma": f(0.1, 0.99)},
            "MultiStepLR": lambda: {"milestones": sorted(i(1, N) for _ in range(i(1, 4))), "gamma": f(0.1, 0.9)},
            "ConstantLR": lambda: {"factor": f(0.1, 1), "total_iters": i(1, N)},
            "LinearLR": lambda: {"start_factor": f(0.01, 1), "end_factor": f(0, 1), "total_iters": i(1, N)},
            "ExponentialLR": lambda: {"gamma": f(0.5, 1)},
            "PolynomialLR": lambda: {"total_iters": i(2, N), "power": f(0.3, 3)},
            "CosineAnnealingLR": lambda: {"T_max": i(2, N), "eta_min": rnd.choice((0.0, f(0, 0.001)))},
            "CosineAnnealingWarmRestarts": lambda: {"T_0": i(1, 8), "T_mult": i(1, 3), "eta_min": f(0, 0.001)},
            "OneCycleLR": lambda: {
                "max_lr": [f(0.01, 0.2) for _ in range(n)],
                "total_steps": N + 1,
                "pct_start": f(0.1, 0.45),
                "anneal_strategy": rnd.choice(("cos", "linear")),
                "three_phase": rnd.random() < 0.5,
                "div_factor": f(2, 30),
                "final_div_factor": f(2, 1e4),
            },
            "CyclicLR": lambda: {
                "base_lr": [f(0.0001, 0.01) for _ in range(n)],
                "max_lr": [f(0.02, 0.1) for _ in range(n)],
                "step_size_up": i(2, 9),
                "step_size_down": i(2, 9),
                "gamma": f(0.9, 1),
                "mode": rnd.choice(("triangular", "triangular2", "exp_range")),
            },
            "SWALR": lambda: {
                "swa_lr": [f(0.001, 0.1) for _ in range(n)],
                "anneal_epochs": i(0, N),
                "anneal_strategy": rnd.choice(("cos", "linear")),
            },
        }[kind](),
    }


def cases():
    kinds = (
        "StepLR",
        "MultiStepLR",
        "ConstantLR",
        "LinearLR",
        "ExponentialLR",
        "PolynomialLR",
        "CosineAnnealingLR",
        "CosineAnnealingWarmRestarts",
        "OneCycleLR",
        "CyclicLR",
        "SWALR",
    )
    some = [k for k in kinds if k not in ("OneCycleLR", "CyclicLR", "SWALR")]
    bases = lambda n: [round(rnd.uniform(1e-5, 0.2), rnd.choice((4, 12))) + 1e-6 for _ in range(n)]
    for k in kinds:
        for _ in range(2):
            yield case(leaf(k, 2), bases(2), adam=k == "OneCycleLR" and rnd.random() < 0.5)
    for _ in range(7):
        c = rnd.randint(2, 3)
        yield case(
            {
                "kind": "SequentialLR",
                "schedulers": [leaf(rnd.choice(some), 2) for _ in range(c)],
                "milestones": sorted(rnd.sample(range(2, N - 2), c - 1)),
            },
            bases(2),
        )
    for _ in range(5):
        yield case(
            {"kind": "ChainedScheduler", "schedulers": [leaf(rnd.choice(some), 2) for _ in range(rnd.randint(2, 3))]},
            bases(2),
        )
    inner = {"kind": "SequentialLR", "schedulers": [leaf("LinearLR", 2), leaf("ExponentialLR", 2)], "milestones": [4]}
    yield case(
        {"kind": "SequentialLR", "schedulers": [inner, leaf("CosineAnnealingLR", 2)], "milestones": [15]}, bases(2)
    )
    yield case(
        {"kind": "SequentialLR", "schedulers": [leaf("ConstantLR", 2), leaf("SWALR", 2)], "milestones": [6]}, bases(2)
    )
    yield case({"kind": "ChainedScheduler", "schedulers": [inner, leaf("StepLR", 2)]}, bases(2))


out = {"torch": torch.__version__, "cases": list(cases())}
path = sys.argv[1] if len(sys.argv) > 1 else "tests/data/schedules.json"
with open(path, "w") as f:
    f.write('{"torch":%s,"cases":[\n' % json.dumps(out["torch"]))
    f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in out["cases"]) + "\n]}\n")
