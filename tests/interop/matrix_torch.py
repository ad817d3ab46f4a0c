"""The rows of matrix.py for trainers on torch's schedulers: a plain loop, accelerate, and the HF Trainer.

Other numbers of processes are pretended: this one is the first of them to whoever asks accelerate's states, which is
all that schedulers, data loaders and checkpoints of accelerate and the Trainer do.
"""

import atexit, gc, os, random, shutil, warnings

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # transformers looks for DeepSpeed, which looks for a device

import numpy as np
import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch.optim import lr_scheduler as S
from transformers import Trainer, TrainerCallback, TrainingArguments, get_scheduler
from transformers.utils import logging as transformers_logging

from matrix import Framework, Saved

warnings.filterwarnings("ignore")
transformers_logging.set_verbosity_error()
torch.set_num_threads(1)
gc.freeze()  # the Trainer collects garbage at each start: not what was imported
atexit.register(gc.unfreeze)

LR = [1e-3, 4e-4]
DONE, END = 8, 20
TRANSFORMERS, TORCH = "transformers.get_scheduler", "torch.optim.lr_scheduler."
LOADER = "torch.utils.data.DataLoader"


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), 0.5))
        self.bias = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x, labels=None):
        loss = ((x * self.weight).sum() + self.bias - 1).pow(2).mean()
        return {"loss": loss, "logits": loss}


# -------------------------------------------------------------------------------------- what settings change


def known(settings, *places):
    """A setting without a place in the coming run would be passed over."""
    for s in settings:
        assert s["place"].startswith(places), f"no place {s['place']} for {s['key']}"


def with_settings(own, settings, place):
    own = {**own, **{s["key"]: s["value"] for s in settings if s["place"] == place}}
    return {k: v for k, v in own.items() if v is not None}


def optimizer_of(model, settings):
    asked = with_settings({"lr": LR[0]}, settings, "optimizer")
    weight, bias = ([named] for named in model.named_parameters())
    groups = [{"params": weight, "weight_decay": 0.1}, {"params": bias, "weight_decay": 0.0, "lr": LR[1]}]
    for i, group in enumerate(groups):
        group.update({"lr": v for k, v in asked.items() if k == f"param_groups[{i}].lr"})
    return torch.optim.AdamW(groups, lr=asked["lr"])


def scheduler_of(optimizer, place, own, settings):
    """As the saved run's code makes it, but for settings: other arguments, or another class with all of its own."""
    for other in {s["place"] for s in settings if s["place"].startswith((TRANSFORMERS, TORCH))}:
        place, own = other, with_settings(own if other == place else {}, settings, other)
    if callable(place):
        return place(optimizer)
    if place != TRANSFORMERS:
        return getattr(S, place.removeprefix(TORCH))(optimizer, **own)
    call, special = split(own)
    return get_scheduler(optimizer=optimizer, scheduler_specific_kwargs=special, **call)


def split(own):
    """Arguments of get_scheduler, and of the schedule that it makes."""
    general = ("name", "num_warmup_steps", "num_training_steps")
    return {k: v for k, v in own.items() if k in general}, {k: v for k, v in own.items() if k not in general}


# ------------------------------------------------------------------------------------------------ schedulers


def schedulers(ticks=1, less=0):
    """{case: (place, arguments)}; code that no setting reaches stands in the place of a place. `ticks`: of the
    schedule's clock in an update; `less`: off each length, so that it is no whole number of updates."""
    n = lambda updates: updates * ticks - less
    lengths = {"num_warmup_steps": n(3), "num_training_steps": n(END)}
    named = {
        "linear": {},
        "cosine": {},
        "cosine_with_restarts": {"num_cycles": 2},
        "polynomial": {"lr_end": 1e-5, "power": 2.0},
        "constant_with_warmup": {},
        "inverse_sqrt": {},
        "cosine_with_min_lr": {"min_lr": 1e-4},
        "cosine_warmup_with_min_lr": {"min_lr_rate": 0.1},
        "warmup_stable_decay": {"num_decay_steps": n(8)},
    }
    classes = {
        "StepLR": {"step_size": n(6), "gamma": 0.5},
        "MultiStepLR": {"milestones": [n(5), n(12)], "gamma": 0.3},
        "ExponentialLR": {"gamma": 0.95},
        "ConstantLR": {"factor": 0.5, "total_iters": n(12)},
        "LinearLR": {"start_factor": 1.0, "end_factor": 0.1, "total_iters": n(END)},
        "PolynomialLR": {"total_iters": n(END), "power": 2.0},
        "CosineAnnealingLR": {"T_max": n(END), "eta_min": 1e-5},
        "CosineAnnealingWarmRestarts": {"T_0": n(7), "eta_min": 1e-5},
        "OneCycleLR": {"max_lr": LR, "total_steps": n(END)},
        "CyclicLR": {"base_lr": 1e-5, "max_lr": LR, "step_size_up": n(6), "cycle_momentum": False},
    }
    climb = lambda o: S.LinearLR(o, 0.1, 1.0, n(5))
    fall = lambda o: S.LambdaLR(o, lambda t: 1 / (1 + 0.1 * t))
    cosine = lambda o: S.CosineAnnealingLR(o, n(END - 5), 1e-5)
    code = {
        "LambdaLR": fall,
        "MultiplicativeLR": lambda o: S.MultiplicativeLR(o, lambda t: 0.95),
        "Sequential(Linear,CosineAnnealing)": lambda o: S.SequentialLR(o, [climb(o), cosine(o)], [n(5)]),
        "Sequential(Linear,LambdaLR)": lambda o: S.SequentialLR(o, [climb(o), fall(o)], [n(5)]),
        "Chained(Linear,Exponential)": lambda o: S.ChainedScheduler([climb(o), S.ExponentialLR(o, 0.95)]),
        "Chained(Linear,LambdaLR)": lambda o: S.ChainedScheduler([climb(o), fall(o)]),
    }
    return {
        **{k: (TRANSFORMERS, {"name": k, **lengths, **v}) for k, v in named.items()},
        **{k: (TORCH + k, v) for k, v in classes.items()},
        **{k: (v, {}) for k, v in code.items()},
    }


def saved_of(path, case, world, place, own, **extra):
    """Saved, with what a user tells of a curve that the files do not hold."""
    keys = [f"{k}={v}" for k, v in own.items() if k != "name"]
    told = ["--schedule", ",".join([f"transformers:{own['name']}", *keys])] if place == TRANSFORMERS else []
    extra.update(case=case, batch=24, in_code="LambdaLR" in case or "Multiplicative" in case)
    return Saved(path, told, world, DONE, END, len(LR), LR[0], extra)


def loop(model, optimizer, scheduler, updates, backward=torch.Tensor.backward, every=1, done=0):
    """The LRs of each update; the scheduler is stepped behind each `every`-th of the run, `done` before. A run ends
    where torch's OneCycleLR raises, behind its end."""
    rows = []
    for update in range(done + 1, done + 1 + updates):
        rows.append([g["lr"] for g in optimizer.param_groups])
        backward(model(torch.ones(1, 3))["loss"])
        optimizer.step()
        optimizer.zero_grad()
        if update % every:
            continue
        try:
            scheduler.step()
        except ValueError as e:
            if "Tried to step" not in str(e):
                raise
            break
    return rows


# ------------------------------------------------------------------------------------------------ frameworks


class Plain(Framework):
    name = "torch"

    def cases(self):
        return list(schedulers())

    def build(self, case, settings):
        known(settings, "optimizer", TRANSFORMERS, TORCH, LOADER)
        model = Tiny()
        optimizer = optimizer_of(model, settings)
        scheduler = scheduler_of(optimizer, *schedulers()[case], settings)
        return {"model": model, "optimizer": optimizer, "lr_scheduler": scheduler}

    def save(self, case, dir):
        run = self.build(case, [])
        loop(*run.values(), DONE)
        torch.save({**{k: v.state_dict() for k, v in run.items()}, "epoch": 1}, dir / "run.pt")
        return saved_of(dir / "run.pt", case, 1, *schedulers()[case])

    def resume(self, saved, out, settings, world, steps):
        run, state = self.build(saved.extra["case"], settings), torch.load(out, weights_only=True)
        for k, v in run.items():
            v.load_state_dict(state[k])
        return loop(*run.values(), steps)


class Several:
    """Schedulers of one optimizer, each stepped with it."""

    def __init__(self, *schedulers):
        self.all = schedulers

    def step(self):
        for one in self.all:
            one.step()

    def state_dict(self):
        return [one.state_dict() for one in self.all]

    def load_state_dict(self, states):
        for one, state in zip(self.all, states):
            one.load_state_dict(state)


class Loops(Plain):
    """Loops that a file does not tell all of: how often the scheduler is stepped, its state, a second scheduler, or
    the LR that the optimizer was built with."""

    name = "loops"
    warm = {"num_warmup_steps": 12, "num_training_steps": END}
    poly = (TRANSFORMERS, {"name": "polynomial", **warm, "lr_end": 1e-5, "power": 2.0})
    # {case: (scheduler, what is told besides; None: nothing tells the curve)}
    special = {
        "StepLR, once in 3 updates": ((TORCH + "StepLR", {"step_size": 2, "gamma": 0.5}), "updates_per_step=3"),
        "cosine, once in 3 updates": (schedulers()["cosine"], "updates_per_step=3"),
        "cosine, once in 3 updates, not told": (schedulers()["cosine"], None),
        "cosine, once in 10 updates, not told": (schedulers()["cosine"], None),
        "ExponentialLR and MultiStepLR": (None, None),
        "cosine, no state": (schedulers()["cosine"], None),
        "polynomial, optimizer's lr": (poly, "lr_init=0.001"),
        "polynomial, optimizer's lr, not told": (poly, None),
        "cosine_with_min_lr, optimizer's lr, not told": (
            (TRANSFORMERS, {"name": "cosine_with_min_lr", **warm, "min_lr": 5e-5}),
            None,
        ),
    }

    def cases(self):
        return list(self.special)

    def every(self, case):
        return int(case.split("once in ")[1].split()[0]) if "once in" in case else 1

    def build(self, case, settings):
        known(settings, "optimizer", TRANSFORMERS, TORCH, "torch.utils.data.DataLoader")
        model, (scheduler, _) = Tiny(), self.special[case]
        if "optimizer's lr" in case:  # not the first group's
            lr = with_settings({"lr": LR[0]}, settings, "optimizer")["lr"]
            optimizer = torch.optim.AdamW([{"params": [model.weight], "lr": 1e-4}, {"params": [model.bias]}], lr=lr)
        else:
            optimizer = optimizer_of(model, settings)
        if scheduler is None:
            made = Several(S.ExponentialLR(optimizer, 0.9), S.MultiStepLR(optimizer, [10, 15], 0.1))
        else:
            made = scheduler_of(optimizer, *scheduler, settings)
        return {"model": model, "optimizer": optimizer, "lr_scheduler": made}

    def save(self, case, dir):
        run, every, (scheduler, more) = self.build(case, []), self.every(case), self.special[case]
        loop(*run.values(), DONE, every=every)
        state = {k: v.state_dict() for k, v in run.items() if k != "lr_scheduler" or "no state" not in case}
        torch.save({**state, "epoch": 1}, dir / "run.pt")
        place, own = scheduler or (None, {})
        keys = [f"{k}={v}" for k, v in own.items() if k != "name"] + [more] * bool(more)
        kind = f"transformers:{own['name']}" if place == TRANSFORMERS else f"torch:{str(place).removeprefix(TORCH)}"
        saved = saved_of(dir / "run.pt", case, 1, None, {}, ticks=1 / every)
        saved.extra["in_code"] = more is None
        saved.told = ["--schedule", ",".join([kind, *keys])] if scheduler else []
        saved.horizon = END * every
        return saved

    def resume(self, saved, out, settings, world, steps):
        case, state = saved.extra["case"], torch.load(out, weights_only=True)
        run = self.build(case, settings)
        for k in [k for k in run if k in state]:
            run[k].load_state_dict(state[k])
        return loop(*run.values(), steps, every=self.every(case), done=DONE)


def pretend(world, rank=0):
    for state in (PartialState, AcceleratorState):
        if state._shared_state:  # else it is not made yet, and takes the other's
            state._shared_state.update(num_processes=world, process_index=rank, local_process_index=rank)


class Accelerate(Framework):
    name = "accelerate"
    # {scheduler, what is special: (processes, arguments of schedulers(), options of Accelerator)}
    special = {
        "cosine, 3 processes": (3, (3,), {}),
        "cosine, no whole updates": (2, (2, 1), {}),
        "StepLR, no whole updates": (2, (2, 1), {}),
        "cosine, split_batches": (2, (), {"dataloader_config": DataLoaderConfiguration(split_batches=True)}),
        "cosine, not stepped with the optimizer": (2, (), {"step_scheduler_with_optimizer": False}),
        "cosine, once in 3 updates": (2, (2,), {}),
    }
    plain = ["cosine", "linear", "polynomial", "inverse_sqrt", "cosine_with_min_lr", "warmup_stable_decay", "StepLR"]
    plain += ["LinearLR", "CosineAnnealingLR", "OneCycleLR", "Sequential(Linear,CosineAnnealing)", "LambdaLR"]

    def cases(self):
        return self.plain + list(self.special)

    def of(self, case):
        world, lengths, options = self.special.get(case, (2, (2,), {}))
        return world, schedulers(*lengths)[case.split(",", 1)[0] if case in self.special else case], options

    def every(self, case):
        return 3 if "once in 3" in case else 1

    def build(self, case, settings, world):
        known(settings, "optimizer", TRANSFORMERS, TORCH, LOADER, "Accelerator.load_state")
        for state in (AcceleratorState, GradientState, PartialState):
            state._reset_state()
        _, scheduler, options = self.of(case)
        accelerator = Accelerator(cpu=True, **options)
        pretend(world)
        model = Tiny()
        optimizer = optimizer_of(model, settings)
        return accelerator, *accelerator.prepare(model, optimizer, scheduler_of(optimizer, *scheduler, settings))

    def save(self, case, dir):
        world, scheduler, _ = self.of(case)
        accelerator, *run = self.build(case, [], world)
        loop(*run, DONE, accelerator.backward, self.every(case))
        for rank in reversed(range(world)):  # each writes its random states, the first one also the rest
            pretend(world, rank)
            for seed in (random.seed, np.random.seed, torch.manual_seed):
                seed(rank)
            accelerator.save_state(str(dir / "checkpoint_0"))
        every = self.every(case)
        ticks = run[-1].scheduler.last_epoch / (DONE // every * every)
        saved = saved_of(dir / "checkpoint_0", case, world, *scheduler, worlds=[1, world + 1], ticks=ticks)
        if every > 1:
            saved.told[1] += f",updates_per_step={every}"
            saved.horizon = END * every
        return saved

    def resume(self, saved, out, settings, world, steps):
        accelerator, *run = self.build(saved.extra["case"], settings, world)
        accelerator.load_state(**with_settings({"input_dir": str(out)}, settings, "Accelerator.load_state"))
        return loop(*run, steps, accelerator.backward, self.every(saved.extra["case"]), saved.done)


class Recorder(TrainerCallback):
    def __init__(self, updates):
        self.rows, self.updates = [], updates

    def on_pre_optimizer_step(self, args, state, control, optimizer=None, **_):
        self.rows.append([g["lr"] for g in optimizer.param_groups])

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop |= len(self.rows) >= self.updates


class HfTrainer(Framework):
    name = "hf_trainer"
    batch = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 2}
    # {case: (processes, fields of TrainingArguments)}; own: given to the Trainer, whose arguments know nothing of it
    special = {
        "constant": (1, {"warmup_steps": 0}),
        "cosine, warmup as a fraction": (1, {"warmup_steps": 0.15}),
        "cosine, 2 processes": (2, {}),
        "cosine, epochs, 2 processes": (2, {"max_steps": -1, "num_train_epochs": 2, **batch}),
        "linear, own optimizer": (1, {}),
        "CosineAnnealingLR, own": (1, {"lr_scheduler_type": "linear"}),
        "LambdaLR, own": (1, {"lr_scheduler_type": "linear"}),
    }

    def cases(self):
        return [k for k, (place, _) in schedulers().items() if place == TRANSFORMERS] + list(self.special)

    def train(self, case, dir, settings, world, updates, **more):
        known(settings, "TrainingArguments", "Trainer.train", "optimizer", TRANSFORMERS, TORCH)
        kind = case.split(",", 1)[0]
        place, values = schedulers().get(kind, (TRANSFORMERS, {}))
        fields = {"lr_scheduler_type": kind, "lr_scheduler_kwargs": split(values)[1] or None, "learning_rate": LR[0]}
        fields.update(warmup_steps=3, max_steps=END, per_device_train_batch_size=2, weight_decay=0.1)
        fields = with_settings({**fields, **self.special.get(case, (1, {}))[1]}, settings, "TrainingArguments")
        fields.update(use_cpu=True, report_to=[], disable_tqdm=True, logging_strategy="no", **more)
        args = TrainingArguments(str(dir), **fields)
        pretend(world)
        model, samples, seen = Tiny(), [{"x": torch.ones(3), "labels": torch.ones(1)}] * 40, Recorder(updates)
        optimizer = optimizer_of(model, settings) if "own" in case else None
        scheduler = scheduler_of(optimizer, place, values, settings) if place != TRANSFORMERS else None
        trainer = Trainer(model, args, train_dataset=samples, callbacks=[seen], optimizers=(optimizer, scheduler))
        resume = {"resume_from_checkpoint": args.save_strategy == "no"}
        trainer.train(**with_settings(resume, settings, "Trainer.train"))
        return seen.rows

    def save(self, case, dir):
        world = self.special.get(case, (1, {}))[0]
        self.train(case, dir, [], world, DONE, save_strategy="steps", save_steps=DONE)
        path = dir / f"checkpoint-{DONE}"
        for rank in range(1, world):
            shutil.copy(path / "rng_state_0.pth", path / f"rng_state_{rank}.pth")
        return saved_of(path, case, world, None, {})

    def resume(self, saved, out, settings, world, steps):
        return self.train(saved.extra["case"], out.parent, settings, world, steps, save_strategy="no")


FRAMEWORKS = [Plain, Loops, Accelerate, HfTrainer]
