"""The rows of matrix.py for the frameworks of large runs: DeepSpeed, TorchTitan, Megatron-LM, and Nanotron where
NANOTRON_SRC has its source tree.

One process stands for the first of several: torch's "fake" group counts them and sends nothing. All gradients are
zero, so that no process has to hear of another's. Megatron and Nanotron cannot train here: their runs are
checkpoints of tests/data, on which the framework's own scheduler has taken other steps.
"""

import copy, dataclasses, importlib, importlib.abc, importlib.machinery, logging, os, shutil, subprocess, sys, types
from pathlib import Path

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from matrix import Framework, Saved
from matrix_torch import DONE, END, LR, TORCH, TRANSFORMERS, Tiny, known, saved_of, scheduler_of, schedulers

DATA = Path(__file__).resolve().parents[1] / "data"


def missing(*modules):
    """None, or which of these cannot be imported. Only the frameworks that are asked for are."""
    logging.disable(logging.WARNING)
    try:
        for module in modules:
            importlib.import_module(module)
    except ImportError as e:
        return f"cannot be imported: {e}"


def leave():
    if dist.is_initialized():
        dist.destroy_process_group()


def enter(world, rank=0):
    """This process is one of `world`, to torch."""
    leave()
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)


def of(settings, place):
    return {s["key"]: s["value"] for s in settings if s["place"] == place}


def put(tree, key, value):
    """A dotted key of nested dicts."""
    *parents, last = key.split(".")
    for name in parents:
        tree = tree.setdefault(name, {})
    if value is None:
        tree.pop(last, None)
    else:
        tree[last] = value


def run(groups, step, updates):
    """The LR of each group in each update; `step` says when no other can follow."""
    rows = []
    for _ in range(updates):
        rows.append([g["lr"] for g in groups()])
        if step():
            break
    return rows


# ------------------------------------------------------------------------------------------------- DeepSpeed


class DeepSpeed(Framework):
    name = "deepspeed"
    own = {  # case: scheduler.params of ds_config; the scheduler.type is the word before the comma
        "WarmupLR": {"warmup_min_lr": 1e-5, "warmup_max_lr": LR, "warmup_num_steps": 12},
        "WarmupDecayLR": {"total_num_steps": END, "warmup_num_steps": 4, "warmup_type": "linear"},
        "WarmupDecayLR, log": {"total_num_steps": END, "warmup_max_lr": LR, "warmup_num_steps": 4},
        "WarmupCosineLR": {"total_num_steps": END, "warmup_num_steps": 4, "cos_min_ratio": 0.05},
        "OneCycle": {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3, "cycle_first_step_size": 9,
                     "cycle_second_step_size": 7, "decay_lr_rate": 0.1, "decay_step_size": 2},
        "LRRangeTest": {"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 3, "lr_range_test_step_rate": 0.5},
        "CosineAnnealingLR": {"T_max": END, "eta_min": 1e-5},  # torch's, which does without ZeRO only
    }  # fmt: skip
    batch = 12  # what settings are about
    client = ("linear", "cosine", "cosine_with_min_lr", "StepLR", "CosineAnnealingLR", "OneCycleLR", "LambdaLR")

    def available(self):
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
        return missing("deepspeed")

    def cases(self):
        return [*self.own, *(f"client's {case}" for case in self.client), "no scheduler"]

    def clients(self, case):
        return schedulers().get(case.removeprefix("client's "), (None, {})) if case not in self.own else (None, {})

    def engine(self, case, settings, world, rank=0):
        import deepspeed

        known(settings, "ds_config", "optimizer", TRANSFORMERS, TORCH)
        if deepspeed.comm.comm.cdb:
            deepspeed.comm.destroy_process_group()
            deepspeed.comm.comm.cdb = None
        enter(world, rank)
        os.environ.update(RANK=f"{rank}", LOCAL_RANK=f"{rank}", WORLD_SIZE=f"{world}", LOCAL_SIZE=f"{world}")
        sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # would be compiled
        config = {
            "train_batch_size": self.batch or 6 * world,
            "train_micro_batch_size_per_gpu": 6,
            "gradient_accumulation_steps": 1,
            "steps_per_print": 10**9,
            "zero_optimization": {"stage": self.cases().index(case) % 3},
            "optimizer": {"type": "AdamW", "params": {"lr": LR[0], "weight_decay": 0, "torch_adam": True}},
        }
        if case in self.own:
            config["scheduler"] = {"type": case.split(",")[0], "params": copy.deepcopy(self.own[case])}
        for key, value in of(settings, "ds_config").items():
            put(config, key, value)
        make, (place, own) = None, self.clients(case)
        if place or any(s["place"].startswith((TRANSFORMERS, TORCH)) for s in settings):
            make = lambda optimizer: scheduler_of(optimizer, place, own, settings)
        torch.manual_seed(0)
        model = self.model()
        groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": LR[1]}]
        for key, value in of(settings, "optimizer").items():
            if key == "lr":
                config["optimizer"]["params"]["lr"] = value
            else:
                groups[int(key.removeprefix("param_groups[").removesuffix("].lr"))]["lr"] = value
        return deepspeed.initialize(model=model, model_parameters=groups, config=config, lr_scheduler=make)[0]

    def model(self):
        return torch.nn.Linear(3, 4)

    def loss(self, engine):
        return engine(torch.ones(2, 3)).sum()

    def train(self, engine, updates):
        def step():
            try:
                for _ in range(engine.gradient_accumulation_steps()):
                    engine.backward(self.loss(engine) * 0)
                    engine.step()
            except ValueError as e:  # torch's OneCycleLR, behind its end
                if "Tried to step" not in str(e):
                    raise
                return True

        return run(lambda: engine.optimizer.param_groups, step, updates)

    def save(self, case, dir):
        for rank in (1, 0):  # each writes its part
            engine = self.engine(case, [], 2, rank)
            weights = copy.deepcopy(engine.module.state_dict())
            self.train(engine, DONE)
            engine.module.load_state_dict(weights)  # ZeRO gathered nothing from nobody
            engine.save_checkpoint(dir / "run")
        return saved_of(dir / "run", case, 2, *self.clients(case), worlds=[1, 3])

    def resume(self, saved, out, settings, world, steps):
        engine = self.engine(saved.extra["case"], settings, world)
        assert engine.load_checkpoint(out)[0], "DeepSpeed found no checkpoint"
        return self.train(engine, steps)


class FromAccelerate(DeepSpeed):
    """Accelerate's checkpoints, whose scheduler has ticked once per process, for DeepSpeed."""

    name = "accelerate to deepspeed"
    batch = None
    client = ("cosine", "polynomial", "StepLR", "CosineAnnealingLR", "OneCycleLR", "LambdaLR")

    def cases(self):
        return list(self.client)

    def model(self):
        return Tiny()

    def loss(self, engine):
        return engine(torch.ones(2, 3))["loss"]

    def save(self, case, dir):
        """By another process: this one is DeepSpeed's."""
        code = "import sys, pathlib, matrix_torch as m; m.Accelerate().save(sys.argv[1], pathlib.Path(sys.argv[2]))"
        ranks = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_SIZE")
        env = {k: v for k, v in os.environ.items() if k not in ranks}
        here = Path(__file__).parent
        subprocess.run([sys.executable, "-c", code, case, dir], cwd=here, env=env, check=True, capture_output=True)
        extra = {"worlds": [1, 3], "ticks": 2, "always": ["--to", "deepspeed"]}
        saved = saved_of(dir / "checkpoint_0", case, 2, *schedulers(2)[case], **extra)
        saved.extra.pop("batch", None)  # the saved run's is in no file
        return saved

    def resume(self, saved, out, settings, world, steps):
        others = ("Accelerator.load_state", "torch.utils.data.DataLoader")
        settings = [s for s in settings if s["place"] not in others]
        return super().resume(saved, out, settings, world, steps)

    def clients(self, case):
        return schedulers(2)[case]  # its lengths are those of the saved run, unless a setting says others


# ------------------------------------------------------------------------------------------------ TorchTitan


class Progress:
    """What TorchTitan's Trainer saves of itself."""

    step = ntokens_seen = 0

    def state_dict(self):
        return {"step": self.step, "ntokens_seen": self.ntokens_seen}

    def load_state_dict(self, state):
        self.step, self.ntokens_seen = state["step"], state["ntokens_seen"]


class TorchTitan(Framework):
    name = "torchtitan"
    variants = {  # the lr_scheduler section, beside warmup_steps 4
        "linear": {},
        "linear, floor": {"min_lr_factor": 0.1},
        "linear, total_steps in the configuration": {"total_steps": END},
        "cosine": {"decay_type": "cosine", "min_lr_factor": 0.05},
        "cosine, two optimizers": {"decay_type": "cosine"},
        "sqrt": {"decay_type": "sqrt"},
        "WSD": {"decay_ratio": 0.4},
        "WSD, cosine": {"decay_ratio": 0.4, "decay_type": "cosine"},
    }

    def available(self):
        names = ("config.manager", "components.checkpoint", "components.dataloader")
        return missing(*(f"torchtitan.{name}" for name in names))

    def cases(self):
        return list(self.variants)

    def configured(self, case, options):
        """What TorchTitan reads of its command line, in the sections that this has to do with."""
        import tyro
        from torchtitan.components.checkpoint import CheckpointManager
        from torchtitan.components.optimizer import OptimizersContainer, ParamGroupConfig
        from torchtitan.components.optimizer.lr_scheduler import LRSchedulersContainer
        from torchtitan.config.configs import ParallelismConfig, TrainingConfig
        from torchtitan.config.manager import ConfigManager, custom_registry

        first = "Adam" if "two optimizers" in case else "AdamW"
        groups = [
            ParamGroupConfig(pattern=pattern, optimizer_name=name, optimizer_kwargs={"lr": lr, "weight_decay": 0.1})
            for pattern, name, lr in (("norm", first, LR[0]), (".*", "AdamW", LR[1]))
        ]
        sections = {
            "training": TrainingConfig(steps=END, global_batch_size=8),
            "parallelism": ParallelismConfig(),
            "lr_scheduler": LRSchedulersContainer.Config(warmup_steps=4, **self.variants[case]),
            "checkpoint": CheckpointManager.Config(enable=True, interval=1, keep_latest_k=0),
            "optimizer": OptimizersContainer.Config(param_groups=groups, implementation="for-loop"),
        }
        config = dataclasses.make_dataclass("Config", [(k, type(v)) for k, v in sections.items()], kw_only=True)
        ConfigManager()  # fills the registry
        return tyro.cli(config, args=options, default=config(**sections), registry=custom_registry)

    def build(self, case, options, world):
        from torchtitan.components.dataloader import ParallelAwareDataloader

        leave()
        config = self.configured(case, options)
        model = torch.nn.Sequential()
        model.norm, model.output = torch.nn.LayerNorm(4, bias=False), torch.nn.Linear(4, 3, bias=False)
        optimizers = config.optimizer.build(model_parts=[model])
        lr_schedulers = config.lr_scheduler.build(optimizers=optimizers, training_steps=config.training.steps)
        checkpointer = config.checkpoint.build(
            dataloader=ParallelAwareDataloader(range(64), dp_rank=0, dp_world_size=world, batch_size=8),
            model_parts=[model],
            optimizers=optimizers,
            lr_schedulers=lr_schedulers,
            states={"train_state": Progress()},
            sd_adapter=None,
        )
        return config, optimizers, lr_schedulers, checkpointer

    def train(self, updates, config, optimizers, lr_schedulers, checkpointer):
        def step():
            progress.step += 1
            optimizers.step()
            lr_schedulers.step()

        progress = checkpointer.states["train_state"]
        for p in checkpointer.states["model"].model[0].parameters():
            p.grad = torch.zeros_like(p)
        left = min(updates, config.training.steps - progress.step)
        return run(lambda: [g for o in optimizers for g in o.param_groups], step, left)

    def save(self, case, dir):
        folder = dir / "checkpoint"
        made = self.build(case, [f"--checkpoint.folder={folder}"], 1)
        self.train(DONE, *made)
        made[-1].save(DONE)
        keys = {"steps": END, "warmup_steps": 4, "decay_type": "linear", "min_lr_factor": 0, **self.variants[case]}
        keys.pop("total_steps", None)  # as many as steps
        told = ["--schedule", "torchtitan:" + ",".join(f"{k}={v}" for k, v in keys.items())]
        # OUT may be the folder or the step itself
        path = folder / f"step-{DONE}" if "floor" in case else folder
        return Saved(path, told, 1, DONE, END, 2, LR[0], {"case": case, "worlds": [2]})

    def resume(self, saved, out, settings, world, steps):
        known(settings, "torchtitan")
        options = []
        for key, value in of(settings, "torchtitan").items():
            section, name = key.rsplit(".", 1)
            if isinstance(value, bool):
                options.append(f"--{section}.{'' if value else 'no-'}{name}")
            else:
                options.append(f"--{key}={','.join(value) if isinstance(value, list) else value}")
        config, *made, checkpointer = self.build(saved.extra["case"], options, world)
        assert checkpointer.load(step=config.checkpoint.load_step), "TorchTitan found no checkpoint"
        return self.train(steps, config, *made, checkpointer)


# ----------------------------------------------------------------------------------------------- Megatron-LM


class Megatron(Framework):
    """Of Megatron-LM only megatron-core is on PyPI. What its training code does between options, checkpoint and the
    classes of megatron-core is here in our words: get_optimizer_param_scheduler, load_checkpoint and train_step."""

    name = "megatron"
    variants = {  # arguments, beside lr 3e-3, min_lr 3e-4, 3 iterations of warmup, 16 in all, batch 4
        "cosine": {},
        "cosine, legacy": {},
        "cosine, warmup as a fraction": {"lr_warmup_fraction": 0.2, "lr_warmup_iters": 0},
        "cosine, samples": {"train_iters": None, "lr_decay_iters": None, "lr_warmup_iters": 0,
                            "train_samples": 66, "lr_decay_samples": 62, "lr_warmup_samples": 10},
        "cosine, weight decay grows": {"start_weight_decay": 0.01, "weight_decay_incr_style": "cosine"},
        "linear": {"lr_decay_style": "linear", "lr_warmup_init": 1e-4},
        "linear, legacy": {"lr_decay_style": "linear"},
        "linear, decays longer than it runs": {"lr_decay_style": "linear", "lr_decay_iters": 24},
        "inverse-square-root": {"lr_decay_style": "inverse-square-root"},
        "constant": {"lr_decay_style": "constant"},
        **{f"WSD, {style}": {"lr_decay_style": "WSD", "lr_wsd_decay_style": style, "lr_wsd_decay_iters": 7}
           for style in ("exponential", "linear", "cosine", "minus_sqrt")},
    }  # fmt: skip
    # what an option that is left out leaves
    absent = {"lr_warmup_iters": 0, "lr_warmup_samples": 0, "lr_warmup_init": 0.0, "min_lr": 0.0}

    def available(self):
        return missing("megatron.core.optimizer", "megatron.core.num_microbatches_calculator")

    def cases(self):
        return list(self.variants)

    def files(self, path):
        """With arguments, groups and scheduler, where --load finds them."""
        here = path / f"iter_{int((path / 'latest_checkpointed_iteration.txt').read_text()):07d}"
        return [f for name in ("common.pt", "mp_rank_*/model_optim_rng.pt") for f in sorted(here.glob(name))]

    def length(self, args):
        return args.train_iters or args.train_samples // args.global_batch_size

    def scheduler(self, args, groups):
        """Counts samples: iterations, times the batch."""
        from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

        names, fraction = ("train", "lr_decay", "lr_warmup", "lr_wsd_decay"), args.lr_warmup_fraction
        iters, samples = ([getattr(args, f"{name}_{unit}") for name in names] for unit in ("iters", "samples"))
        batch = args.global_batch_size if args.train_iters else 1
        train, decay, warmup, wsd = iters if args.train_iters else samples
        assert not any((samples if args.train_iters else iters)[:3]), "expected iterations or samples, not both"
        assert fraction is None or warmup == 0, "can only specify one of lr-warmup-fraction and lr-warmup-iters"
        decay = (train if decay is None else decay) * batch
        return OptimizerParamScheduler(
            types.SimpleNamespace(param_groups=groups),
            init_lr=args.lr_warmup_init,
            max_lr=args.lr,
            min_lr=args.min_lr,
            lr_warmup_steps=warmup * batch if fraction is None else fraction * decay,
            lr_decay_steps=decay,
            lr_decay_style=args.lr_decay_style,
            start_wd=args.start_weight_decay,
            end_wd=args.end_weight_decay,
            wd_incr_steps=train * batch,
            wd_incr_style=args.weight_decay_incr_style,
            use_checkpoint_opt_param_scheduler=args.use_checkpoint_opt_param_scheduler,
            override_opt_param_scheduler=args.override_opt_param_scheduler,
            wsd_decay_steps=wsd and wsd * batch,
            lr_wsd_decay_style=args.lr_wsd_decay_style,
        )

    def train(self, args, scheduler, done, updates):
        from megatron.core.num_microbatches_calculator import ConstantNumMicroBatchesCalculator as Calculator

        together = args.micro_batch_size * args.data_parallel_size
        count = Calculator(args.global_batch_size, args.micro_batch_size, args.data_parallel_size, False, rank=1)
        step = lambda: scheduler.step(increment=count.get() * together)
        return run(lambda: scheduler.optimizer.param_groups, step, min(updates, self.length(args) - done))

    def save(self, case, dir):
        path, done = dir / "ckpt", 6
        base = "legacy_tp2_dp2_distopt" if "legacy" in case else "torch_adam_dp2"
        shutil.copytree(DATA / "megatron" / base / "ckpt", path)
        for file in self.files(path):
            state = torch.load(file, weights_only=False)
            args, groups = state["args"], state["optimizer"]["optimizer"]["param_groups"]
            vars(args).update(self.variants[case])
            scheduler = self.scheduler(args, groups)
            self.train(args, scheduler, 0, done)
            state["opt_param_scheduler"] = scheduler.state_dict()
            torch.save(state, file)
        extra = {"args": vars(args), "groups": groups, "worlds": [1, 4]}
        return Saved(path, [], args.data_parallel_size, done, self.length(args), len(groups), args.lr, extra)

    def resume(self, saved, out, settings, world, steps):
        from megatron.core.optimizer.optimizer import MegatronOptimizer

        known(settings, "command line")
        args = types.SimpleNamespace(**{**saved.extra["args"], "data_parallel_size": world})
        for key, value in of(settings, "command line").items():
            name = key.removeprefix("--").replace("-", "_")
            assert hasattr(args, name), f"Megatron has no {key}"
            setattr(args, name, self.absent.get(name) if value is None else value)
        groups = [{**g, "max_lr": args.lr, "min_lr": args.min_lr} for g in saved.extra["groups"]]
        scheduler = self.scheduler(args, groups)
        state = torch.load(self.files(out)[0], weights_only=False)
        # the file's groups take the place of those that the run made, each found by what marks it
        theirs = [{"params": [], **g} for g in state["optimizer"]["optimizer"]["param_groups"]]
        scheduler.optimizer.param_groups = MegatronOptimizer._filter_and_reorder_param_groups(groups, theirs)
        scheduler.load_state_dict(state["opt_param_scheduler"])
        return self.train(args, scheduler, state["iteration"], steps)


# -------------------------------------------------------------------------------------------------- Nanotron


class Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Empty modules in the place of those that Nanotron imports, schedules do not need and are not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("datasets", "datatrove", "flash_attn", "grouped_gemm", "lighteval", "numba", "wandb"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__, module.__version__, module.xPath = [], "2.7.0", Path
        module.__getattr__ = lambda name: type(name, (), {})
        return module

    def exec_module(self, module):
        pass


class Nanotron(Framework):
    name = "nanotron"
    optional = True
    saved = DATA / "nanotron/tp2_pp1_dp1/ckpt"
    done = 13
    variants = {  # learning_rate_scheduler, beside learning_rate 3e-3, min_decay_lr 3e-4, 4 of warmup and 21 of decay
        "linear": {},
        "linear, level before": {"lr_decay_starting_step": 10, "lr_decay_steps": 15},
        "linear, still warming up": {"lr_warmup_steps": 15, "lr_decay_steps": 10},
        "cosine": {"lr_decay_style": "cosine"},
        "cosine, no warmup": {"lr_decay_style": "cosine", "lr_warmup_steps": 0, "lr_decay_steps": 25},
        "1-sqrt, no floor": {"lr_decay_style": "1-sqrt", "min_decay_lr": 0.0},
    }

    def available(self):
        if not os.environ.get("NANOTRON_SRC"):
            return "NANOTRON_SRC is not set"
        sys.path.append(str(Path(os.environ["NANOTRON_SRC"], "src").resolve()))
        sys.meta_path.append(Empty())
        return missing("yaml", "nanotron.helpers", "nanotron.serialize.optimizer", "nanotron.serialize.main")

    def cases(self):
        return list(self.variants)

    def part(self, kind, here):
        return min((here / kind).glob(f"{kind}_pp*.pt"))

    def build(self, tree, path=None):
        """As DistributedTrainer.__init__ does it, the first rank of all."""
        from nanotron.config import get_config_from_dict
        from nanotron.helpers import lr_scheduler_builder
        from nanotron.optim import NamedOptimizer
        from nanotron.serialize import optimizer as loaders
        from nanotron.serialize.main import parse_ckpt_path

        enter(1)
        config = get_config_from_dict(tree)
        values = config.optimizer.learning_rate_scheduler
        names = torch.load(self.part("optimizer", self.saved / f"{self.done}"), weights_only=True)["names"].values()
        named = [[(name, torch.nn.Parameter(torch.zeros(1)))] for name in names]
        groups = [{"named_params": one, "lr": values.learning_rate} for one in named]
        optimizer = NamedOptimizer(groups, torch.optim.AdamW)
        if path:
            sizes = {k: getattr(config.parallelism, k) for k in ("tp", "pp", "dp")}
            context = {f"{k}_pg": types.SimpleNamespace(size=lambda n=n: n) for k, n in sizes.items()}
            context = types.SimpleNamespace(**context)
            config.checkpoints.resume_checkpoint_path = path
            here = parse_ckpt_path(config, context)
            assert here, "Nanotron found no checkpoint"
            loaders.optimizer_filename = lambda *_, **__: self.part("optimizer", here).name
            loaders.lr_scheduler_filename = lambda *_, **__: self.part("lr_scheduler", here).name
            loaders.load_optimizer(optimizer, context, here, map_location="cpu")
        schedule = lr_scheduler_builder(optimizer, values, config.tokens.train_steps)
        if path:
            loaders.load_lr_scheduler(schedule, False, context, here)
        return config.tokens.train_steps, optimizer.get_base_optimizer(), schedule

    def train(self, optimizer, schedule, updates):
        return run(lambda: optimizer.param_groups, lambda: optimizer.step() or schedule.step(), updates)

    def save(self, case, dir):
        import yaml

        path = dir / "ckpt"
        here = path / f"{self.done}"
        shutil.copytree(self.saved, path)
        tree = yaml.safe_load((here / "config.yaml").read_text())
        values = tree["optimizer"]["learning_rate_scheduler"]
        values.update(self.variants[case])
        (here / "config.yaml").write_text(yaml.dump(tree))
        length, optimizer, schedule = self.build(tree)
        self.train(optimizer, schedule, self.done)
        for file in (here / "lr_scheduler").glob("*.pt"):
            torch.save(schedule.state_dict(), file)
        for file in (here / "optimizer").glob("*.pt"):
            state = torch.load(file, weights_only=True)
            for g, live in zip(state["param_groups"], optimizer.param_groups):
                g.update(lr=live["lr"], initial_lr=live["initial_lr"])
            torch.save(state, file)
        extra = {"tree": tree, "worlds": [2]}
        return Saved(path, [], 1, self.done, length, len(optimizer.param_groups), values["learning_rate"], extra)

    def resume(self, saved, out, settings, world, steps):
        known(settings, "config.yaml")
        tree = copy.deepcopy(saved.extra["tree"])
        tree["parallelism"]["dp"] = world
        for key, value in of(settings, "config.yaml").items():
            put(tree, key, value)
        length, *made = self.build(tree, out)
        return self.train(*made, min(steps, length - self.done))


FRAMEWORKS = [DeepSpeed, FromAccelerate, TorchTitan, Megatron, Nanotron]
