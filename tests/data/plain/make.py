#!/usr/bin/env python3
"""The torch files in this directory: make.py, with torch 2.15. Every state is what three real updates left, but for the
numbers of numbers.pth, which stand for an optimizer that counts in Python (CAME, torch before 1.12)."""
import os

import torch
from torch import nn

STEPS = 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(5, 4)
        self.norm = nn.BatchNorm1d(4)
        self.up = nn.Linear(4, 6)
        self.down = nn.Linear(6, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, x):
        return self.head(self.norm(self.down(torch.tanh(self.up(self.tok(x))))))


def train(make, schedule=True):
    torch.manual_seed(7)
    model = Net()
    optimizers = make(model)
    schedulers = [torch.optim.lr_scheduler.CosineAnnealingLR(o, 20) for o in optimizers] if schedule else []
    for _ in range(STEPS):
        loss = nn.functional.cross_entropy(model(torch.arange(5)), torch.arange(5).roll(1))
        loss.backward()
        for o in optimizers:
            o.step()
            o.zero_grad()
        for s in schedulers:
            s.step()
    return model, [o.state_dict() for o in optimizers], [s.state_dict() for s in schedulers]


def averages(model):
    return {k: v * 0.5 if v.is_floating_point() else v for k, v in model.state_dict().items()}


def plain():
    """Model with buffers and a tie, its averages, one group, and what trainers keep beside them."""
    model, (o,), (s,) = train(lambda m: [torch.optim.AdamW(m.parameters(), lr=0.01)])
    torch.save({"epoch": 2, "model": model.state_dict(), "model_ema": averages(model), "optimizer": o, "lr_scheduler": s,
                "best": torch.tensor(0.5), "args": {"lr": 0.01, "seed": 7}}, "plain.pt")


def groups():
    """Two groups whose shapes do not tell which parameter is in which."""
    def make(m):
        p = list(m.parameters())
        return [torch.optim.AdamW([{"params": p[0::2]}, {"params": p[1::2], "weight_decay": 0.0}], lr=0.01)]
    model, (o,), (s,) = train(make)
    torch.save({"model_state_dict": model.state_dict(), "optimizer_state_dict": o, "scheduler": s, "global_step": 7}, "groups.pt")


def several():
    """Two optimizers of one model, each with a scheduler; the first has no counter."""
    def make(m):
        p = list(m.parameters())
        return [torch.optim.SGD([x for x in p if x.ndim > 1], lr=0.1, momentum=0.9),
                torch.optim.Adam([x for x in p if x.ndim < 2], lr=0.01)]
    model, o, s = train(make)
    torch.save({"state_dict": model.state_dict(), "optimizers": o, "lr_schedulers": s, "step": STEPS}, "several.pt")


def numbers():
    """Python's numbers in the state; under Sana's keys, so that two readers see the same."""
    model, (o,), _ = train(lambda m: [torch.optim.AdamW(m.parameters(), lr=0.01)], False)
    for state in o["state"].values():
        state["step"] = int(state["step"])
        state["ratio"] = 0.25
    scheduler = {"base_lrs": [0.01], "last_epoch": STEPS, "_step_count": STEPS + 1, "_last_lr": [0.01], "lr_lambdas": [None]}
    torch.save({"state_dict": model.state_dict(), "state_dict_ema": averages(model), "optimizer": o, "scheduler": scheduler,
                "epoch": 1, "step": STEPS}, "numbers.pth")


def named():
    """Two models, whose optimizers have names for numbers, as FSDP's whole state dicts do."""
    out = {}
    for key in ("first", "second"):
        model, (o,), _ = train(lambda m: [torch.optim.Adam(m.parameters(), lr=0.01)], False)
        names = [f"{key}.{k}" for k, _ in model.named_parameters()]
        o["state"] = {names[i]: v for i, v in o["state"].items()}
        o["param_groups"][0]["params"] = names
        out[key], out[f"{key}_optimizer"] = model.state_dict(), o
    torch.save(out, "named.pt")


def beside():
    """Lists of tensors, texts and numbers that are neither the model's nor the optimizer's; a flag and a text in its state."""
    torch.manual_seed(7)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.ones(4, 3)).pow(2).mean().backward()
    optimizer.step()
    o = optimizer.state_dict()
    for i, state in o["state"].items():
        state["flag"], state["tag"] = i == 0, "x"
    torch.save({"model": model.state_dict(), "optimizer": o, "epoch": 1, "arch": "linear", "best": 0.5,
                "ema": {"decay": 0.9, "shadow_params": [p.detach() * 0.5 for p in model.parameters()]},
                "rng": [torch.arange(16, dtype=torch.uint8), torch.arange(16, 32, dtype=torch.uint8)],
                "mixed": [torch.ones(1), 2]}, "beside.pt")


def history():
    """LBFGS, whose state has lists of tensors."""
    torch.manual_seed(7)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=8, history_size=3)

    def closure():
        optimizer.zero_grad()
        loss = (model(torch.linspace(-1, 2, 12).reshape(4, 3)).tanh() - 0.3).pow(2).mean()
        loss.backward()
        return loss
    optimizer.step(closure)
    assert all(isinstance(a, torch.Tensor) for a in optimizer.state_dict()["state"][0]["al"])
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "history.pt")


def small(wrap=""):
    """A linear layer and its AdamW after one update; names behind what wrappers put in front."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW([(wrap + k, p) for k, p in model.named_parameters()] if wrap else model.parameters(), lr=0.01)
    model(torch.ones(4, 3)).pow(2).mean().backward()
    optimizer.step()
    return {wrap + k: v for k, v in model.state_dict().items()}, optimizer.state_dict()


def containers():
    """One level down, behind wrappers; models and optimizers by key; an optimizer alone."""
    torch.manual_seed(7)
    model, optimizer = small("module._orig_mod.")
    torch.save({"cfg": None, "trainer": {"model": model, "optimizer": optimizer, "epoch": 4,
                                         "ema_model": {k: v * 0.5 for k, v in model.items()}}}, "nested.pt")
    (g, og), (d, od) = small(), small()
    torch.save({"models": {"G": g, "D": d}, "optimizers": {"D": od, "G": og}, "step": 1}, "keyed.pt")
    torch.save(og, "bare.pt")


def deep():
    """Two models of one shape with an optimizer and a scheduler each, some levels down, an average of one, and counters."""
    torch.manual_seed(7)
    parts, schedulers = {}, {}
    for key, lr in (("G", 0.01), ("D", 0.02)):
        model = nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9)
        for _ in range(STEPS):
            model(torch.ones(4, 3)).pow(2).mean().backward()
            optimizer.step()
            scheduler.step()
        parts[key] = {"net": {"module." + k: v for k, v in model.state_dict().items()}, "opt": optimizer.state_dict()}
        schedulers[key] = scheduler.state_dict()
    average = {k: v * 0.5 for k, v in parts["G"]["net"].items()}
    torch.save({"run": {"parts": parts, "lr": dict(reversed(schedulers.items())), "averages": {"G.net": average}},
                "count": {"epoch": 2, "consumed_samples": 12}, "config": {"epoch": 100, "tokens": 7}}, "deep.pt")


def ordered():
    """Models of one shape and a list of their optimizers, without anything that tells which is whose; counters that contradict."""
    torch.manual_seed(7)
    models, optimizers = [nn.Linear(3, 2), nn.Linear(3, 2)], []
    for m in models:
        optimizers.append(torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9))
        m(torch.ones(4, 3)).pow(2).mean().backward()
        optimizers[-1].step()
    torch.save({"one": models[0].state_dict(), "two": models[1].state_dict(), "optimizers": [o.state_dict() for o in optimizers],
                "step": 3, "iteration": 12, "epoch": torch.tensor(2)}, "ordered.pt")


def each():
    """Two models with a layer in common and an optimizer for each parameter, under its name; settings like Megatron-LM's."""
    torch.manual_seed(7)
    actor = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    critic = nn.Sequential(actor[0], nn.Linear(2, 1))
    names = {"actor." + k: p for k, p in actor.named_parameters()}
    names |= {"critic." + k: p for k, p in critic.named_parameters() if k[0] == "1"}
    optimizers = {k: torch.optim.SGD([p], lr=0.1, momentum=0.9) for k, p in names.items()}
    (actor(torch.ones(4, 3)).sum() + 2 * critic(torch.ones(4, 3)).sum()).backward()
    for o in optimizers.values():
        o.step()
    torch.save({"actor": actor.state_dict(), "critic": critic.state_dict(), "optimizer": {k: o.state_dict() for k, o in optimizers.items()},
                "settings": {"num_steps": 100, "max_lr": 0.1, "epoch": 5}, "update": 1}, "each.pt")


def swa():
    """Torch's AveragedModel beside the model, and two optimizers that have the same parameters by name."""
    torch.manual_seed(7)
    model = nn.Linear(3, 2)
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizers = [torch.optim.AdamW(model.named_parameters(), lr=lr) for lr in (0.01, 0.02)]
    for o in optimizers:
        model(torch.ones(4, 3)).pow(2).mean().backward()
        o.step()
        average.update_parameters(model)
    torch.save({"net": model.state_dict(), "swa_net": average.state_dict(), "opts": [o.state_dict() for o in optimizers]}, "swa.pt")


def optimizers():
    """A list of two optimizers, and nothing else."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8))
    p = list(model.parameters())
    sgd, adam = torch.optim.SGD([p[0], p[2]], lr=0.01, momentum=0.9), torch.optim.AdamW([p[1], p[3]], lr=0.001)
    for _ in range(3):
        model(torch.randn(4, 8)).sum().backward()
        sgd.step()
        adam.step()
    torch.save([sgd.state_dict(), adam.state_dict()], "list.pt")


def strided():
    """Tensors that lie in memory otherwise than row by row: dense, and with gaps."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 1, 3)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)).square().mean().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                "turned": torch.arange(6.0).reshape(2, 3).t(),
                "permuted": torch.arange(24).reshape(2, 3, 4).permute(1, 2, 0),
                "gaps": torch.arange(12.0).reshape(3, 4)[:, :2].t(), "one": torch.ones(1).expand(2, 3).t()}, "strided.pt")


def distributed():
    """A DTensor for a model, a tensor for its average."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29611", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    w = torch.distributed.tensor.distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh,
                                                   [torch.distributed.tensor.Shard(0)])
    p = nn.Parameter(torch.zeros(4, 2))
    optimizer = torch.optim.AdamW([p])
    p.grad = torch.ones(4, 2)
    optimizer.step()
    torch.save({"model": {"w": w}, "ema": {"w": torch.zeros(4, 2)}, "optimizer": optimizer.state_dict(), "step": 3},
               "dtensor_ema.pt")


if __name__ == "__main__":
    for f in (plain, groups, several, numbers, named, beside, history, containers, deep, ordered, each, swa, optimizers, strided, distributed):
        f()
