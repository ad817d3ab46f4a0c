#!/usr/bin/env python3
"""PyTorch Lightning goes on from what the tool wrote: lightning.py TOOL SCRATCH [CASE..]. For each case an unpatched
Trainer trains, saves in the middle and goes on; another one resumes from the saved file converted by TOOL, as it was
and with another schedule. The LRs that its updates use are those that `lr` prints, and its weights at the end those of
the run that was never interrupted. lightning.py make OUT CASE: the saved file alone, with the live truth beside it (for
tests/data/lightning). Ends with `N passed, N failed`."""

import argparse
import json
import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from count import end, expect  # noqa: E402

sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]
import lightning.pytorch as pl  # noqa: E402
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint  # noqa: E402

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
L = torch.optim.lr_scheduler


def groups(net):
    slow = [p for n, p in net.named_parameters() if n.endswith("bias") and p.requires_grad]
    rest = [p for n, p in net.named_parameters() if not n.endswith("bias") and p.requires_grad]
    return [{"params": rest, "weight_decay": 0.1}, {"params": slow, "lr": 5e-3}]


def adam(net):
    return torch.optim.AdamW(groups(net), lr=1e-2)


def sgd(net):
    return torch.optim.SGD(groups(net), lr=1e-2, momentum=0.9)


def stepwise(scheduler, **more):
    return {"scheduler": scheduler, "interval": "step", **more}


# optimizer, its scheduler; batches of an epoch are 6
CASES = {
    "cosine": dict(opt=adam, sched=lambda o: stepwise(L.CosineAnnealingLR(o, 40, 1e-4)), set=["total_steps=60"]),
    "onecycle": dict(
        opt=adam, sched=lambda o: stepwise(L.OneCycleLR(o, [1e-2, 5e-3], 20)), ends=20, set=["total_steps=30"], more=26
    ),
    "sequential": dict(
        opt=sgd,
        sched=lambda o: stepwise(L.SequentialLR(o, [L.LinearLR(o, 0.1, 1.0, 4), L.CosineAnnealingLR(o, 30)], [4])),
    ),
    "plateau": dict(
        opt=sgd,
        sched=lambda o: stepwise(L.ReduceLROnPlateau(o, factor=0.5, patience=1, threshold=10.0), monitor="loss"),
        forgets=True,
    ),
    "lambda": dict(opt=adam, sched=lambda o: stepwise(L.LambdaLR(o, lambda t: 1 / (1 + t)))),
    "epoch": dict(opt=adam, sched=lambda o: L.StepLR(o, 1, 0.5), at=12, total=21),
    "epoch_within": dict(opt=adam, sched=lambda o: L.StepLR(o, 1, 0.5), at=15, total=25),
    "epoch_hook": dict(opt=adam, sched=lambda o: L.StepLR(o, 1, 0.5), at=12, total=21, hook=True, forgets=True),
    "accumulate": dict(opt=adam, sched=lambda o: stepwise(L.ExponentialLR(o, 0.9)), accum=3, at=6, set=["lr=0.02"]),
    "frequency": dict(opt=adam, sched=lambda o: stepwise(L.ExponentialLR(o, 0.9), frequency=2), at=8),
    "ema": dict(opt=adam, sched=lambda o: stepwise(L.ExponentialLR(o, 0.9)), ema=True, set=["lr=0.02"]),
    "frozen": dict(opt=adam, sched=lambda o: stepwise(L.PolynomialLR(o, 40, 2.0)), frozen=True, set=["total_steps=60"]),
    "two": dict(two=True, opt=adam, sched=lambda o: L.ExponentialLR(o, 0.9), sched2=lambda o: L.StepLR(o, 3)),
    "two_uneven": dict(two=True, opt=adam, every2=2, at=8, total=16, sched2=lambda o: L.ExponentialLR(o, 0.9)),
    "two_whose": dict(
        two=True, opt=lambda net: torch.optim.SGD(net.parameters(), 2e-3, 0.9), sched2=lambda o: L.StepLR(o, 30)
    ),
    "weights_only": dict(opt=adam, sched=lambda o: stepwise(L.ExponentialLR(o, 0.9)), weights=True),
    "no_scheduler": dict(opt=adam, hparams=True),
}


def of_all(case, step):
    """Lightning counts the updates of all optimizers."""
    return step + step // case.get("every2", 1) if case.get("two") else step


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.a, self.norm, self.b = torch.nn.Linear(5, 6), torch.nn.BatchNorm1d(6, affine=False), torch.nn.Linear(6, 5)

    def forward(self, x):
        return self.b(torch.tanh(self.norm(self.a(x))))


class Module(pl.LightningModule):
    def __init__(self, case, hparams=None):
        super().__init__()
        self.case, self.net, self.used = case, Net(), []
        if hparams:
            self.save_hyperparameters({"hparams": hparams, "name": "x", "sizes": (1, 2)})
        self.net.a.weight.requires_grad = not case.get("frozen")
        if case.get("two"):
            self.automatic_optimization = False
            self.aux = torch.nn.Linear(5, 3)

    def training_step(self, batch, i):
        x = batch[0]
        loss = self.net(x).pow(2).mean()
        self.log("loss", loss)
        if not self.case.get("two"):
            return loss
        a, b = self.optimizers()
        loss = loss + self.aux(x).pow(2).mean()
        a.zero_grad(), b.zero_grad()
        self.manual_backward(loss)
        a.step()
        if (i + 1) % self.case.get("every2", 1) == 0:
            b.step()
        for s in self.lr_schedulers() if isinstance(self.lr_schedulers(), list) else [self.lr_schedulers()]:
            if s.optimizer is a.optimizer or (i + 1) % self.case.get("every2", 1) == 0:
                s.step()

    def on_before_optimizer_step(self, optimizer):
        which = self.trainer.optimizers.index(getattr(optimizer, "optimizer", optimizer))
        self.used.append((which, [float(g["lr"]) for g in optimizer.param_groups]))

    def configure_optimizers(self):
        case = self.case
        opt = case["opt"](self.net)
        scheds = [case["sched"](opt)] if "sched" in case else []
        if not case.get("two"):
            return [opt], scheds
        opt2 = torch.optim.SGD(self.aux.parameters(), lr=2e-3, momentum=0.9)
        return [opt, opt2], scheds + ([case["sched2"](opt2)] if "sched2" in case else [])


def live_state(trainer, module):
    """Tensors by the names of `export --slots all`, as the live objects hold them."""
    names = {id(p): n for n, p in module.named_parameters()}
    out = {n: x.clone() for n, x in module.state_dict().items()}
    for o in trainer.optimizers:
        for p, state in o.state.items():
            for slot, x in state.items():
                if torch.is_tensor(x):
                    out[f"optimizer.state.{names[id(p)]}.{slot}"] = x.detach().clone()
    for call in trainer.callbacks:
        if isinstance(call, EMAWeightAveraging):
            average = call._average_model.state_dict().items()
            out.update({f"ema.{n[7:]}": x.clone() for n, x in average if n.startswith("module.")})
    return out


class Save(pl.Callback):
    def __init__(self, case, path):
        self.case, self.path, self.at = case, path, of_all(case, case.get("at", 9))

    def save(self, trainer, module):
        if trainer.global_step >= self.at and not self.path.exists():
            trainer.save_checkpoint(self.path, weights_only=bool(self.case.get("weights")))
            module.saved = {n: x.clone() for n, x in module.state_dict().items()}
            module.truth = live_state(trainer, module)
            module.n_used = len(module.used)

    def on_train_batch_end(self, trainer, module, *rest):
        if not self.case.get("hook"):
            self.save(trainer, module)

    def on_train_epoch_end(self, trainer, module):
        if self.case.get("hook"):
            self.save(trainer, module)


def train(case, scratch, save=None, ckpt=None, total=None):
    module = Module(case, argparse.Namespace(width=3, lr=0.1) if case.get("hparams") else None)
    x = torch.linspace(-1, 1, 40).reshape(8, 5)  # every batch is the same
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x.repeat(6, 1)), batch_size=8)
    if case.get("accum"):
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x.repeat(18, 1)), batch_size=8)
    calls = [EMAWeightAveraging(decay=0.8)] if case.get("ema") else []
    if save:
        calls.append(Save(case, save))
    steps = of_all(case, total or case.get("total", 18))
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_steps=steps, max_epochs=100, accumulate_grad_batches=case.get("accum", 1),
        logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        callbacks=calls, default_root_dir=str(scratch),
    )  # fmt: skip
    trainer.fit(module, data, ckpt_path=str(ckpt) if ckpt else None, weights_only=False)
    module.final = {n: x.clone() for n, x in module.state_dict().items()}
    module.opts = trainer.optimizers
    return module


def tool(*args, ok=(0,)):
    p = subprocess.run([TOOL, *map(str, args), "--json"], capture_output=True, text=True, check=False)
    expect(p.returncode in ok, f"{' '.join(map(str, args))}: exit {p.returncode}: {p.stderr.strip()} {p.stdout[:600]}")
    return json.loads(p.stdout) if p.returncode in ok else None


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def near(a, b):
    return len(a) == len(b) and all(abs(x - y) <= 1e-14 * abs(y) for x, y in zip(a, b))


def lrs_told(name, path, used, what):
    """What `lr` prints for the coming updates of the first optimizer against what they used."""
    n = len(used)
    lr = tool("lr", path)
    if not lr:
        return
    at = lr["resume_at"]
    lr = tool("lr", path, "--from", at, "--to", at + n - 1)
    rows = [row["lr"][: len(used[0])] for row in (lr or {}).get("before") or []]
    known = [(u, r) for u, r in zip(used, rows) if None not in r]
    bad = [(at + i, r, u) for i, (u, r) in enumerate(zip(used, rows)) if None not in r and not near(u, r)]
    expect(not bad, f"{name}: {what}: lr of update {bad[:1]}")
    print(f"  {name}: {what}: {len(known)} of {n} LRs told")


def of_first(used):
    return [lrs for which, lrs in used if which == 0]


def case(name, about, scratch):
    saved, out = scratch / f"{name}.ckpt", scratch / f"{name}_out.ckpt"
    live = train(about, scratch, save=saved)
    rest = live.used[live.n_used :]
    d = tool("inspect", saved, "--tensors")
    expect(d and d["dialect"] == "lightning", f"{name}: dialect")
    step = d and d["progress"]["step"]
    expect(step == about.get("at", 9) or about.get("weights"), f"{name}: step {step}")
    ex = scratch / f"{name}.safetensors"
    if tool("export", saved, ex):
        expect(same(load_file(ex), live.saved), f"{name}: exported parameters")
    if tool("export", saved, ex, "--slots", "all", "--force") and not about.get("weights"):
        expect(same(load_file(ex), live.truth), f"{name}: exported state {load_file(ex).keys() ^ live.truth.keys()}")
    d2 = tool("convert", saved, out)
    if d2 is None:
        return
    if about.get("weights"):
        return
    lrs_told(name, out, of_first(rest), "as it was")
    again = train(about, scratch, ckpt=out)
    if about.get("forgets"):  # Lightning itself does not go on from its own file as if nothing had been
        live = train(about, scratch, ckpt=saved)
        rest = live.used
    expect(again.used == rest, f"{name}: LRs after the resume {again.used[:3]} .. live {rest[:3]}")
    expect(same(again.final, live.final), f"{name}: weights at the end")
    if about.get("ends"):
        try:
            train(about, scratch, ckpt=out, total=about["ends"] + 1)
            expect(False, f"{name}: goes on past its end")
        except ValueError as e:
            told = [s for s in d2["settings"] if s["key"] == "max_steps"]
            expect(told and told[0]["value"] == about["ends"] and str(e)[:30] in told[0]["else"], f"{name}: {e} {told}")
    if not about.get("set"):
        return
    changed = scratch / f"{name}_set.ckpt"
    flags = [x for s in about["set"] for x in ("--set", s)] + ["--lr-policy", "target", "--max-lr-jump", 100]
    if tool("convert", saved, changed, *flags):
        again = train(about, scratch, ckpt=changed, total=about.get("more", 18))
        lrs_told(name, changed, of_first(again.used), " ".join(about["set"]))
        expect(again.used != rest, f"{name}: {about['set']} changed nothing")


def make_rank(rank, out):
    """One of two ranks of a directory with two optimizers, by Lightning's own function round FSDP2's modules."""
    import torch.distributed as dist
    from lightning.fabric.strategies.fsdp import _distributed_checkpoint_save
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29577")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    m = Module({"two": True})
    fully_shard(m, mesh=init_device_mesh("cpu", (2,)))
    opts = [torch.optim.AdamW(m.net.parameters(), lr=1e-2), torch.optim.SGD(m.aux.parameters(), lr=2e-3, momentum=0.9)]
    scheds = [L.StepLR(opts[0], 2, 0.5), L.ExponentialLR(opts[1], 0.9)]
    m.forward = lambda x: m.net(x).pow(2).mean() + m.aux(x).pow(2).mean()
    for step in range(3):
        m(torch.linspace(-1, 1, 40).reshape(8, 5)).backward()
        for x in opts + scheds:
            x.step()
        m.zero_grad()
    state = {"state_dict": get_model_state_dict(m), "optimizer_0": get_optimizer_state_dict(m, opts[0])}
    state["optimizer_1"] = get_optimizer_state_dict(m, opts[1])
    truth = {}
    for name, x in m.state_dict().items():
        truth[name] = x
    names = {id(p): n for n, p in m.named_parameters()}
    for o in opts:
        for p, s in o.state.items():
            truth |= {f"optimizer.state.{names[id(p)]}.{k}": v for k, v in s.items()}
    truth = {k: (v.full_tensor() if hasattr(v, "full_tensor") else v).detach().clone() for k, v in truth.items()}
    out.mkdir(exist_ok=True)
    _distributed_checkpoint_save(state, out)
    if rank == 0:
        meta = {"epoch": 0, "global_step": 6, "pytorch-lightning_version": pl.__version__, "loops": {}}
        meta |= {"callbacks": {}, "lr_schedulers": [s.state_dict() for s in scheds], "hparams_name": "x"}
        torch.save(meta, out / "meta.pt")
        save_file(truth, out.parent / "sharded.safetensors")
    dist.barrier()
    dist.destroy_process_group()


def make(out, name):
    if name == "sharded":
        return torch.multiprocessing.spawn(make_rank, (out / "sharded.ckpt",), 2)
    live = train(CASES[name], out, save=out / f"{name}.ckpt")
    save_file({k: v.contiguous() for k, v in live.truth.items()}, out / f"{name}.safetensors")


def foreign(scratch):
    """A script's own file becomes one that the Trainer goes on from, as the script would have."""
    about = dict(CASES["cosine"], total=18)
    module = Module(about)
    opt = about["opt"](module.net)
    sched = about["sched"](opt)["scheduler"]
    x = torch.linspace(-1, 1, 40).reshape(8, 5)
    used = []
    for step in range(18):
        if step == 9:
            file = {"model": module.state_dict(), "optimizer": opt.state_dict(), "step": 9}
            torch.save(file | {"scheduler": sched.state_dict()}, scratch / "script.pt")
        used.append((0, [g["lr"] for g in opt.param_groups]))
        opt.zero_grad()
        module.net(x).pow(2).mean().backward()
        opt.step()
        sched.step()
    for way in ["script.pt", "script_dcp"]:
        if way == "script_dcp":
            tool("convert", scratch / "script.pt", scratch / way, "--to", "dcp", "--force")
        if tool("convert", scratch / way, scratch / "fresh.ckpt", "--to", "lightning", "--force"):
            again = train(about, scratch, ckpt=scratch / "fresh.ckpt")
            expect(again.used == used[9:], f"{way}: LRs {again.used[:2]} .. {used[9:11]}")
            expect(same(again.final, module.state_dict()), f"{way}: weights at the end")


def sharded(scratch, corpus):
    """Directories, by Lightning's own load functions on other numbers of ranks (loadback.py of the corpus)."""
    script = corpus / "make/loadback.py"
    for name, ranks in [("fsdp2_dcp_w2", 3), ("fsdp1_sharded_w2", 3), ("fabric_fsdp2_dcp_w4", 2)]:
        (source,) = (corpus / name / "ckpt").iterdir()
        out = scratch / f"{name}.ckpt"
        if tool("convert", source, out, "--dp", ranks, "--force"):
            args = [sys.executable, script, out, corpus / name, str(ranks)]
            p = subprocess.run(args, capture_output=True, text=True, check=False)
            expect("RESULT equal" in p.stdout, f"{name}: on {ranks} ranks: {p.stdout[-300:]}{p.stderr[-300:]}")


def main():
    global TOOL
    if sys.argv[1] == "make":
        return make(Path(sys.argv[2]), sys.argv[3])
    TOOL, scratch = sys.argv[1], Path(sys.argv[2])
    scratch.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[3:] or CASES:
        for old in scratch.glob(f"{name}*"):
            if old.is_file():
                old.unlink()
        case(name, CASES[name], scratch)
    if not sys.argv[3:]:
        foreign(scratch)
        corpus = Path(os.environ.get("CORPUS", "../shared/corpus")) / "lightning"
        if corpus.is_dir():
            sharded(scratch, corpus.resolve())
    return end()


if __name__ == "__main__":
    sys.exit(main())
