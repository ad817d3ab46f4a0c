"""The rows of matrix.py for the frameworks of large runs: DeepSpeed, TorchTitan, Megatron-LM, and Nanotron where
NANOTRON_SRC has its source tree (requirements-frameworks.txt says what each needs).

One process stands for the first of the others: torch's "fake" process group counts them and sends nothing. Gradients
are zero, so that no process needs to hear of another's. Megatron and Nanotron cannot train here: their runs are
checkpoints of tests/data whose schedules are set anew by the framework's own scheduler.
"""

import copy, dataclasses, importlib, importlib.abc, importlib.machinery, logging, os, shutil, sys, types
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import torch
import torch.distributed as dist

from matrix import Framework, Saved
from matrix_torch import DONE, END, LR, TORCH, TRANSFORMERS, known, saved_of, scheduler_of, schedulers

DATA = Path(__file__).resolve().parents[1] / "data"


def missing(*modules):
    """None, or which of the modules cannot be imported. Imported here, so that a run without them is not slowed."""
    logging.disable(logging.WARNING)
    try:
        for module in modules:
            importlib.import_module(module)
    except ImportError as e:
        return f"not installed: {e}"


def alone(rank=0, world=1):
    """This process as one of `world`."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)


def of(settings, place):
    return {s["key"]: s["value"] for s in settings if s["place"] == place}


def put(tree, key, value):
    """A dotted key of nested dicts; null takes it out."""
    *parents, last = key.split(".")
    for name in parents:
        tree = tree.setdefault(name, {})
    tree[last] = value
    if value is None:
        del tree[last]


# ------------------------------------------------------------------------------------------------- DeepSpeed


class DeepSpeed(Framework):
    name = "deepspeed"
    own = {  # case: (scheduler.type, scheduler.params) of ds_config
        "WarmupLR": {"warmup_min_lr": 1e-5, "warmup_max_lr": [1e-3, 4e-4], "warmup_num_steps": 12},
        "WarmupDecayLR": {"total_num_steps": END, "warmup_max_lr": 1e-3, "warmup_num_steps": 4, "warmup_type": "linear"},
        "WarmupDecayLR, log": {"total_num_steps": END, "warmup_max_lr": [1e-3, 4e-4], "warmup_num_steps": 4},
        "WarmupCosineLR": {"total_num_steps": END, "warmup_num_steps": 4, "warmup_type": "linear", "cos_min_ratio": 0.05},
        "OneCycle": {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3, "cycle_first_step_size": 9, "cycle_second_step_size": 7,
                     "decay_lr_rate": 0.1, "decay_step_size": 2},
        "LRRangeTest": {"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 3, "lr_range_test_step_rate": 0.5},
        "CosineAnnealingLR": {"T_max": END, "eta_min": 1e-5},  # torch's, by name
    }
    client = ("linear", "cosine", "cosine_with_min_lr", "StepLR", "CosineAnnealingLR", "OneCycleLR", "LambdaLR")

    def available(self):
        return missing("deepspeed", "torch.testing._internal.distributed.fake_pg")

    def cases(self):
        return [*self.own, *(f"client's {case}" for case in self.client), "no scheduler"]

    def engine(self, case, settings, world, rank=0):
        import deepspeed

        known(settings, "ds_config", "optimizer", TRANSFORMERS, TORCH)
        if deepspeed.comm.comm.cdb:
            deepspeed.comm.destroy_process_group()
            deepspeed.comm.comm.cdb = None
        alone(rank, world)
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_SIZE=str(world))
        # an optional operator, which would be compiled
        sys.modules["deepspeed.comm.torch"].build_shm_op = lambda *_: None
        config = {
            "train_batch_size": 12,
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
        place, own = schedulers().get(case.removeprefix("client's "), (None, {}))
        place = None if case in self.own else place
        make = None
        if place or any(s["place"].startswith((TRANSFORMERS, TORCH)) for s in settings):
            make = lambda optimizer: scheduler_of(optimizer, place, own, settings)
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 4)
        groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": LR[1]}]
        for key, value in of(settings, "optimizer").items():
            groups[int(key[len("param_groups[") : -len("].lr")])]["lr"] = value
        return deepspeed.initialize(model=model, model_parameters=groups, config=config, lr_scheduler=make)[0]

    def train(self, engine, updates):
        rows = []
        while len(rows) < updates:
            rows.append([g["lr"] for g in engine.optimizer.param_groups])
            for _ in range(engine.gradient_accumulation_steps()):
                engine.backward(engine(torch.ones(2, 3)).sum() * 0)
                try:
                    engine.step()
                except ValueError as e:
                    if "Tried to step" not in str(e):
                        raise
                    return rows  # torch's OneCycleLR, behind its end
        return rows

    def save(self, case, dir):
        path = dir / "run"
        for rank in (1, 0):  # each writes its part
            engine = self.engine(case, [], 2, rank)
            weights = {k: v.clone() for k, v in engine.module.state_dict().items()}
            self.train(engine, DONE)
            engine.module.load_state_dict(weights)  # what ZeRO gathers from nobody
            engine.save_checkpoint(path)
        place, own = schedulers().get(case.removeprefix("client's "), (None, {}))
        return saved_of(path, case, 2, None if case in self.own else place, own, worlds=[1, 3])

    def resume(self, saved, out, settings, world, steps):
        engine = self.engine(saved.extra["case"], settings, world)
        assert engine.load_checkpoint(out)[0], "DeepSpeed found no checkpoint"
        return self.train(engine, steps)


# ------------------------------------------------------------------------------------------------ TorchTitan


class Progress:
    """What the Trainer of TorchTitan saves of itself."""

    def __init__(self):
        self.step = self.ntokens_seen = 0

    def state_dict(self):
        return {"step": self.step, "ntokens_seen": self.ntokens_seen}

    def load_state_dict(self, state):
        self.step, self.ntokens_seen = state["step"], state["ntokens_seen"]


class Lines(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(1000))


class TorchTitan(Framework):
    name = "torchtitan"
    variants = {  # configuration beside training.steps=20, lr_scheduler.warmup_steps=4
        "linear": {},
        "linear, floor": {"min_lr_factor": 0.1},
        "cosine": {"decay_type": "cosine", "min_lr_factor": 0.05},
        "sqrt": {"decay_type": "sqrt"},
        "WSD": {"decay_ratio": 0.4},
        "WSD, cosine": {"decay_ratio": 0.4, "decay_type": "cosine"},
        "linear, total_steps in the configuration": {"total_steps": END},
        "two optimizers": {"decay_type": "cosine"},
    }

    def available(self):
        return missing("torchtitan.components.checkpoint", "torchtitan.components.dataloader", "torchtitan.config.manager")

    def cases(self):
        return list(self.variants)

    def configured(self, case, options):
        """The configuration after TorchTitan's own reading of these command-line options."""
        import tyro
        from torchtitan.components.checkpoint import CheckpointManager
        from torchtitan.components.optimizer import OptimizersContainer, ParamGroupConfig
        from torchtitan.components.optimizer.lr_scheduler import LRSchedulersContainer
        from torchtitan.config.configs import ParallelismConfig, TrainingConfig
        from torchtitan.config.manager import ConfigManager, custom_registry

        group = lambda pattern, kind, lr: ParamGroupConfig(
            pattern=pattern, optimizer_name=kind, optimizer_kwargs={"lr": lr, "weight_decay": 0.1}
        )
        run = {
            "training": TrainingConfig(steps=END, global_batch_size=8),
            "parallelism": ParallelismConfig(),
            "lr_scheduler": LRSchedulersContainer.Config(warmup_steps=4, **self.variants[case]),
            "checkpoint": CheckpointManager.Config(enable=True, keep_latest_k=0, interval=1),
            "optimizer": OptimizersContainer.Config(
                param_groups=[group("norm", "Adam" if case == "two optimizers" else "AdamW", LR[0]), group(".*", "AdamW", LR[1])],
                implementation="for-loop",
            ),
        }
        # of the whole trainer's configuration, the parts that have to do with this
        made = dataclasses.make_dataclass("Run", [(k, type(v)) for k, v in run.items()], kw_only=True)
        ConfigManager()
        return tyro.cli(made, args=options, default=made(**run), registry=custom_registry)

    def build(self, case, options, world):
        from torchtitan.components.dataloader import ParallelAwareDataloader

        config = self.configured(case, options)
        model = torch.nn.Sequential()
        model.norm, model.output = torch.nn.LayerNorm(4, bias=False), torch.nn.Linear(4, 3, bias=False)
        optimizers = config.optimizer.build(model_parts=[model])
        lr_schedulers = config.lr_scheduler.build(optimizers=optimizers, training_steps=config.training.steps)
        checkpoints = config.checkpoint.build(
            dataloader=ParallelAwareDataloader(Lines(), dp_rank=0, dp_world_size=world, batch_size=8),
            model_parts=[model],
            optimizers=optimizers,
            lr_schedulers=lr_schedulers,
            states={"train_state": Progress()},
            sd_adapter=None,
        )
        return config, optimizers, lr_schedulers, checkpoints

    def train(self, run, updates):
        config, optimizers, lr_schedulers, checkpoints = run
        progress, rows = checkpoints.states["train_state"], []
        while len(rows) < updates and progress.step < config.training.steps:
            progress.step += 1
            rows.append([g["lr"] for o in optimizers for g in o.param_groups])
            for o in optimizers:
                for g in o.param_groups:
                    for p in g["params"]:
                        p.grad = torch.zeros_like(p)
            optimizers.step()
            lr_schedulers.step()
        return rows

    def save(self, case, dir):
        run = self.build(case, [f"--checkpoint.folder={dir}"], 1)
        self.train(run, DONE)
        run[-1].save(DONE)
        keys = {"steps": END, "warmup_steps": 4, "decay_type": "linear", "min_lr_factor": 0, **self.variants[case]}
        keys.pop("total_steps", None)  # as many as training.steps
        told = ["--schedule", "torchtitan:" + ",".join(f"{k}={v}" for k, v in keys.items())]
        return Saved(dir / f"step-{DONE}", told, 1, DONE, END, 2, LR[0], {"case": case, "worlds": [2]})

    def resume(self, saved, out, settings, world, steps):
        known(settings, "torchtitan")
        options = [f"--checkpoint.folder={out.parent}"]
        for key, value in of(settings, "torchtitan").items():
            if isinstance(value, bool):
                path, name = key.rsplit(".", 1)
                options.append(f"--{path}.{'' if value else 'no-'}{name}")
            else:
                options.append(f"--{key}={','.join(value) if isinstance(value, list) else value}")
        run = self.build(saved.extra["case"], options, world)
        assert run[-1].load(step=run[0].checkpoint.load_step), "TorchTitan found no checkpoint"
        return self.train(run, steps)


# ----------------------------------------------------------------------------------------------- Megatron-LM


class Megatron(Framework):
    """Megatron-LM's training code is on GitHub alone: what it does between its options, its checkpoint and the classes
    of megatron-core is done here after it (get_optimizer_param_scheduler, load_checkpoint, train_step)."""

    name = "megatron"
    torch_dist, legacy = DATA / "megatron/torch_adam_dp2/ckpt", DATA / "megatron/legacy_tp2_dp2_distopt/ckpt"
    samples = {"train_iters": None, "lr_decay_iters": None, "lr_warmup_iters": 0}
    variants = {  # arguments beside lr 3e-3, min_lr 3e-4, train_iters 16, lr_decay_iters 16, lr_warmup_iters 3, batch 4
        "cosine": {},
        "linear": {"lr_decay_style": "linear", "lr_warmup_init": 1e-4},
        "inverse-square-root": {"lr_decay_style": "inverse-square-root"},
        "constant": {"lr_decay_style": "constant"},
        "linear, decay longer than the run": {"lr_decay_style": "linear", "lr_decay_iters": 24},
        "cosine, warmup as a fraction": {"lr_warmup_fraction": 0.2, "lr_warmup_iters": 0},
        "cosine, samples": {**samples, "train_samples": 66, "lr_decay_samples": 62, "lr_warmup_samples": 10},
        "cosine, weight decay grows": {"start_weight_decay": 0.01, "weight_decay_incr_style": "cosine"},
        **{f"WSD, {style}": {"lr_decay_style": "WSD", "lr_wsd_decay_style": style, "lr_wsd_decay_iters": 7}
           for style in ("exponential", "linear", "cosine", "minus_sqrt")},
    }  # fmt: skip

    def available(self):
        return missing("megatron.core.optimizer_param_scheduler", "megatron.core.optimizer", "megatron.core.num_microbatches_calculator")

    def cases(self):
        return [f"{case}{form}" for case in self.variants for form in ("", " (legacy)")[: 2 if case in ("cosine", "linear") else 1]]

    def files(self, path):
        """The files that hold arguments, groups and scheduler, as Megatron finds them under --load."""
        here = path / f"iter_{int((path / 'latest_checkpointed_iteration.txt').read_text()):07d}"
        return [here / "common.pt"] if (here / "common.pt").exists() else sorted(here.glob("mp_rank_*/model_optim_rng.pt"))

    def scheduler(self, args, groups):
        """Iterations are samples, times the batch."""
        from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

        if args.train_iters:
            assert args.train_samples is None, "expected iteration-based training"
            assert args.lr_decay_samples is None, "expected iteration-based learning rate decay"
            assert args.lr_warmup_samples == 0, "expected iteration-based learning rate warmup"
            assert args.lr_warmup_fraction is None or args.lr_warmup_iters == 0, "only one of fraction and iters"
            batch, of = args.global_batch_size, "iters"
        else:
            assert args.lr_decay_iters is None, "expected sample-based learning rate decay"
            assert args.lr_warmup_iters == 0, "expected sample-based learning rate warmup"
            assert args.lr_warmup_fraction is None or args.lr_warmup_samples == 0, "only one of fraction and samples"
            batch, of = 1, "samples"
        length, decay, wsd, warmup = (getattr(args, f"{name}_{of}") for name in ("train", "lr_decay", "lr_wsd_decay", "lr_warmup"))
        decay = (length if decay is None else decay) * batch
        return OptimizerParamScheduler(
            types.SimpleNamespace(param_groups=groups),
            init_lr=args.lr_warmup_init,
            max_lr=args.lr,
            min_lr=args.min_lr,
            lr_warmup_steps=warmup * batch if args.lr_warmup_fraction is None else args.lr_warmup_fraction * decay,
            lr_decay_steps=decay,
            lr_decay_style=args.lr_decay_style,
            start_wd=args.start_weight_decay,
            end_wd=args.end_weight_decay,
            wd_incr_steps=length * batch,
            wd_incr_style=args.weight_decay_incr_style,
            use_checkpoint_opt_param_scheduler=args.use_checkpoint_opt_param_scheduler,
            override_opt_param_scheduler=args.override_opt_param_scheduler,
            wsd_decay_steps=None if wsd is None else wsd * batch,
            lr_wsd_decay_style=args.lr_wsd_decay_style,
        )

    def train(self, args, scheduler, done, updates):
        """Until --train-iters or --train-samples; each update moves the clock by the batch."""
        from megatron.core.num_microbatches_calculator import ConstantNumMicroBatchesCalculator

        counted = ConstantNumMicroBatchesCalculator(
            args.global_batch_size, args.micro_batch_size, args.data_parallel_size, False, rank=1
        )
        last = args.train_iters or args.train_samples // args.global_batch_size
        rows = []
        while len(rows) < updates and done + len(rows) < last:
            rows.append([g["lr"] for g in scheduler.optimizer.param_groups])
            scheduler.step(counted.get() * args.micro_batch_size * args.data_parallel_size)
        return rows

    def save(self, case, dir):
        path, done = dir / "ckpt", 6
        shutil.copytree(self.legacy if "legacy" in case else self.torch_dist, path)
        for file in self.files(path):
            state = torch.load(file, weights_only=False)
            args = state["args"]
            vars(args).update(self.variants[case.removesuffix(" (legacy)")])
            groups = state["optimizer"]["optimizer"]["param_groups"]
            scheduler = self.scheduler(args, groups)
            self.train(args, scheduler, 0, done)
            state["opt_param_scheduler"] = scheduler.state_dict()
            torch.save(state, file)
        horizon = args.train_iters or args.train_samples // args.global_batch_size
        extra = {"args": vars(args), "groups": groups, "worlds": [1, 4]}
        return Saved(path, [], args.data_parallel_size, done, horizon, len(groups), args.lr, extra)

    def resume(self, saved, out, settings, world, steps):
        from megatron.core.optimizer.optimizer import MegatronOptimizer

        known(settings, "command line")
        args = types.SimpleNamespace(**{**saved.extra["args"], "data_parallel_size": world})
        absent = {"lr_warmup_iters": 0, "lr_warmup_samples": 0, "lr_warmup_init": 0.0, "min_lr": 0.0}
        for key, value in of(settings, "command line").items():
            name = key[2:].replace("-", "_")
            assert key.startswith("--") and hasattr(args, name), f"Megatron has no {key}"
            setattr(args, name, absent.get(name) if value is None else value)
        # groups as the coming run makes them, then the file's in their place, found by what marks a group
        groups = [{**g, "max_lr": args.lr, "min_lr": args.min_lr} for g in saved.extra["groups"]]
        scheduler = self.scheduler(args, groups)
        state = torch.load(self.files(out)[0], weights_only=False)
        theirs = [{"params": [], **g} for g in state["optimizer"]["optimizer"]["param_groups"]]
        scheduler.optimizer.param_groups = MegatronOptimizer._filter_and_reorder_param_groups(groups, theirs)
        scheduler.load_state_dict(state["opt_param_scheduler"])
        return self.train(args, scheduler, state["iteration"], steps)


# -------------------------------------------------------------------------------------------------- Nanotron


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Empty modules for what Nanotron imports and this does not use, where it is not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("datasets", "datatrove", "flash_attn", "grouped_gemm", "lighteval", "numba", "wandb"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__, module.__version__ = [], "2.7.0"
        module.__getattr__ = lambda name: Path if name == "xPath" else type(name, (), {})
        return module

    def exec_module(self, module):
        pass


class Nanotron(Framework):
    name = "nanotron"
    optional = True
    variants = {  # beside learning_rate 0.003, lr_warmup_steps 4, lr_decay_steps 21, min_decay_lr 0.0003, train_steps 25
        "linear": {},
        "cosine": {"lr_decay_style": "cosine"},
        "1-sqrt": {"lr_decay_style": "1-sqrt"},
        "linear, stable before": {"lr_decay_starting_step": 10, "lr_decay_steps": 15},
        "cosine, no warmup, no floor": {"lr_decay_style": "cosine", "lr_warmup_steps": 0, "lr_decay_steps": 25, "min_decay_lr": 0.0},
        "linear, warmup over all that is done": {"lr_warmup_steps": 15, "lr_decay_steps": 10},
    }

    def available(self):
        src = os.environ.get("NANOTRON_SRC")
        if not src:
            return "NANOTRON_SRC is not set"
        sys.path.append(str(Path(src, "src").resolve()))
        sys.meta_path.append(Absent())
        return missing("nanotron.config", "nanotron.helpers", "nanotron.serialize.optimizer", "nanotron.serialize.main")

    def cases(self):
        return list(self.variants)

    def run(self, tree, path, world):
        """(configuration, torch's optimizer, schedule): loaded from `path` in the order of DistributedTrainer.__init__,
        or new ones."""
        from nanotron.config import get_config_from_dict
        from nanotron.helpers import lr_scheduler_builder
        from nanotron.optim import NamedOptimizer
        from nanotron.serialize import optimizer as files
        from nanotron.serialize.main import parse_ckpt_path

        alone()
        config = get_config_from_dict(tree)
        names = [f"{n}" for n in torch.load(self.part("optimizer", self.base), weights_only=True)["names"].values()]
        values = config.optimizer.learning_rate_scheduler
        groups = [{"named_params": [(n, torch.nn.Parameter(torch.zeros(1)))], "lr": values.learning_rate} for n in names]
        optimizer = NamedOptimizer(groups, lambda groups: torch.optim.AdamW(groups))
        group = lambda size: types.SimpleNamespace(size=lambda: size)
        context = types.SimpleNamespace(tp_pg=group(config.parallelism.tp), pp_pg=group(1), dp_pg=group(world))
        if path:
            config.checkpoints.resume_checkpoint_path = path
            here = parse_ckpt_path(config, context)
            assert here, "Nanotron found no checkpoint"
            files.optimizer_filename = lambda *_, **__: self.part("optimizer", here).name
            files.lr_scheduler_filename = lambda *_, **__: self.part("lr_scheduler", here).name
            files.load_optimizer(optimizer, context, here, map_location="cpu")
        schedule = lr_scheduler_builder(optimizer, values, config.tokens.train_steps)
        if path:
            files.load_lr_scheduler(schedule, bool(config.optimizer.zero_stage), context, here)
        return config, optimizer.get_base_optimizer(), schedule

    base = DATA / "nanotron/tp2_pp1_dp1/ckpt/13"

    def part(self, kind, here):
        return min((here / kind).glob(f"{kind}_pp*.pt"))

    def train(self, config, optimizer, schedule, done, updates):
        rows = []
        while len(rows) < updates and done + len(rows) < config.tokens.train_steps:
            rows.append([g["lr"] for g in optimizer.param_groups])
            optimizer.step()
            schedule.step()
        return rows

    def save(self, case, dir):
        import yaml

        path, done = dir / "ckpt", 13
        shutil.copytree(self.base.parent, path)
        tree = yaml.safe_load((self.base / "config.yaml").read_text())
        tree["optimizer"]["learning_rate_scheduler"].update(self.variants[case])
        (path / "13/config.yaml").write_text(yaml.dump(tree))
        config, optimizer, schedule = self.run(tree, None, 1)
        self.train(config, optimizer, schedule, 0, done)
        for file in (path / "13/lr_scheduler").glob("*.pt"):
            torch.save(schedule.state_dict(), file)
        for file in (path / "13/optimizer").glob("*.pt"):
            state = torch.load(file, weights_only=True)
            for mine, g in zip(optimizer.param_groups, state["param_groups"]):
                g.update(lr=mine["lr"], initial_lr=mine["initial_lr"])
            torch.save(state, file)
        values = config.optimizer.learning_rate_scheduler
        extra = {"tree": tree, "worlds": [2]}
        return Saved(path, [], 1, done, config.tokens.train_steps, len(optimizer.param_groups), values.learning_rate, extra)

    def resume(self, saved, out, settings, world, steps):
        known(settings, "config.yaml")
        tree = copy.deepcopy(saved.extra["tree"])
        tree["parallelism"]["dp"] = world
        for key, value in of(settings, "config.yaml").items():
            put(tree, key, value)
        config, optimizer, schedule = self.run(tree, out, world)
        assert config.tokens.train_steps > saved.done, "you need to specify a higher config.tokens.train_steps"
        return self.train(config, optimizer, schedule, saved.done, steps)


FRAMEWORKS = [DeepSpeed, TorchTitan, Megatron, Nanotron]
