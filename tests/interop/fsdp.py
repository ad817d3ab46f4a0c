"""fsdp.py TOOL: checkpoints of accelerate under FSDP, converted, in accelerate at other numbers of processes.

A run of 2 processes (gloo, CPU) with FSDP2 saves in each layout: whole files, directories of DCP, files of ranks; one
with FSDP1 saves directories of DCP, which become whole files. The tool writes each for 1 to 4 processes, and these load
it with accelerate's own functions: weights and moments are equal bit for bit, and so is the next LR. Accelerate takes
its FSDP plugin on accelerators only: here its state says FSDP on a CPU, too. Prints a line per failure, then `N passed,
N failed`."""
import os, subprocess, sys, tempfile, warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn

PORT = 29000 + os.getpid() % 20000
STEPS, WARM, TOTAL = 5, 3, 30


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(3 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, dim=10, rows=23):
        super().__init__()
        self.emb, self.layers = nn.Embedding(rows, dim), nn.ModuleList(Layer(dim) for _ in range(2))
        self.head = nn.Linear(dim, rows, bias=False)

    def forward(self, x):
        x = self.emb(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def prepared(version, kind, world):
    """accelerator, model, optimizer and scheduler of one process."""
    from accelerate import Accelerator, FullyShardedDataParallelPlugin, state
    from accelerate.utils import DistributedType
    from torch.distributed.fsdp import FullyShardedDataParallel
    first, wrap = state.AcceleratorState.__init__, FullyShardedDataParallel.__init__

    def init(self, *a, **k):
        first(self, *a, **k)
        if k.get("fsdp_plugin") is not None:
            self._shared_state.update(distributed_type=DistributedType.FSDP, fsdp_plugin=k["fsdp_plugin"])
            state.PartialState._shared_state["distributed_type"] = DistributedType.FSDP

    def init1(self, *a, **k):
        wrap(self, *a, **{**k, "device_id": torch.device("cpu")})

    state.AcceleratorState.__init__, FullyShardedDataParallel.__init__ = init, init1
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=version, state_dict_type=kind, auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["Layer"], cpu_ram_efficient_loading=False, sync_module_states=False,
        use_orig_params=True if version == 1 else None)
    acc = Accelerator(cpu=True, fsdp_plugin=plugin)
    torch.manual_seed(3)
    m = Model()
    if version == 1:
        m = acc.prepare(m)
    decay = [p for n, p in m.named_parameters() if "norm" not in n]
    others = [p for n, p in m.named_parameters() if "norm" in n]
    opt = torch.optim.AdamW([{"params": decay}, {"params": others, "weight_decay": 0.0, "lr": 5e-4}], lr=1e-3)
    lr = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda t: min((t + 1) / (WARM * world), max(0.0, 1 - t / (TOTAL * world))))
    out = acc.prepare(m, opt, lr) if version == 2 else (m, *acc.prepare(opt, lr))
    return (acc, *out)


def whole(m, opt, version):
    """Every tensor by name and slot, gathered."""
    if version == 1:
        from torch.distributed.fsdp import FullyShardedDataParallel as F, StateDictType
        with F.state_dict_type(m, StateDictType.SHARDED_STATE_DICT):
            states = {**m.state_dict(), **{f"{n}/{s}": v for n, d in F.optim_state_dict(m, opt)["state"].items()
                                           for s, v in d.items()}}
        out = {}
        for k, v in states.items():
            if hasattr(v, "local_shards"):
                to = torch.empty(v.size()) if dist.get_rank() == 0 else None
                v.gather(0, to)
                v = to
            out[k] = v
        return out
    name = {id(p): n for n, p in m.named_parameters()}
    out = dict(m.state_dict())
    out.update({f"{name[id(p)]}/{s}": v for p, d in opt.state.items() for s, v in d.items()})
    return {k: v.full_tensor() if hasattr(v, "full_tensor") else v for k, v in out.items()}


def files(acc, m, opt, lr, path, dcp, load):
    """save_state and load_state, or the same with files of ranks."""
    from accelerate import checkpointing
    from accelerate.utils import fsdp_utils as u
    if dcp:
        return acc.load_state(path) if load else acc.save_state(path)
    os.makedirs(path, exist_ok=True)
    way = "load" if load else "save"
    plugin = acc.state.fsdp_plugin
    getattr(u, way + "_fsdp_model")(plugin, acc, m, path, 0, use_dcp=False)
    getattr(u, way + "_fsdp_optimizer")(plugin, acc, opt.optimizer, m, path, 0, use_dcp=False)
    if load:
        checkpointing.load_accelerator_state(path, [], [], [lr], [], acc.process_index, None, None)
    else:
        checkpointing.save_accelerator_state(path, [], [], [lr], [], acc.process_index, acc.step, None)


def process(rank, world, port, version, kind, dcp, path, truth):
    """Saves, where there is no truth yet; else loads, and writes what differs beside it."""
    warnings.filterwarnings("ignore")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world),
                      LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world), OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    saves = not os.path.exists(truth)
    acc, m, opt, lr = prepared(version, kind, world)
    if saves:
        torch.manual_seed(100 + rank)
        for _ in range(STEPS):
            x = torch.randint(0, 23, (4, 6))
            acc.backward(nn.functional.cross_entropy(m(x).flatten(0, 1), x.flatten()))
            opt.step()
            lr.step()
            opt.zero_grad()
    files(acc, m, opt, lr, path, dcp, not saves)
    have = whole(m, opt.optimizer, version)
    have["lr"] = torch.tensor([g["lr"] for g in opt.optimizer.param_groups], dtype=torch.float64)
    if rank == 0 and saves:
        torch.save(have, truth)
    elif rank == 0:
        want = torch.load(truth)
        bad = [k for k in want if k not in have or not torch.equal(want[k], have[k])]
        with open(truth + ".bad", "w") as f:
            f.write(" ".join(bad))
    dist.barrier()
    dist.destroy_process_group()


def main():
    tool, passed, failed, port = os.path.abspath(sys.argv[1]), 0, 0, PORT
    cases = [("full", 2, "FULL_STATE_DICT", True, None), ("sharded", 2, "SHARDED_STATE_DICT", True, None),
             ("ranks", 2, "SHARDED_STATE_DICT", False, None), ("fsdp1", 1, "SHARDED_STATE_DICT", True, "full")]
    with tempfile.TemporaryDirectory() as top:
        for name, version, kind, dcp, variant in cases:
            path, truth = f"{top}/{name}", f"{top}/{name}.pt"
            port += 1
            mp.spawn(process, (2, port, version, kind, dcp, path, truth), nprocs=2)
            for world in (1, 3) if os.environ.get("CI") else (1, 2, 3, 4):  # fewer and more than 2: time is short
                out = f"{top}/{name}.{world}"
                args = [tool, "convert", path, out, "--dp", str(world)] + (["--variant", variant] if variant else [])
                p = subprocess.run(args, capture_output=True, text=True)
                bad = p.stderr.strip()[:300] if p.returncode else None
                if not bad:
                    port += 1
                    try:
                        mp.spawn(process, (world, port, version, "FULL_STATE_DICT" if variant else kind, dcp, out,
                                           truth), nprocs=world)
                        bad = open(truth + ".bad").read()
                    except Exception as e:
                        bad = str(e)[-300:]
                passed, failed = passed + (not bad), failed + bool(bad)
                if bad:
                    print(f"{name} on {world}: {bad}")
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
