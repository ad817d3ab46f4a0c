"""verl.py TOOL: verl goes on from what was written.

Unpatched verl (VERL_SRC=DIR: a source tree, else the installed one): its FSDPCheckpointManager saves tiny models on
2, 3 and 4 processes (gloo, CPU): FSDP1 with flat and with original parameters, FSDP2, copies (HSDP), tied, uneven,
bf16. The tool converts each to 1 to 5 ranks, and some to the other FSDP, another mesh or another curve. verl's own
load_checkpoint loads each result at that size: every tensor is compared bit for bit, the next LRs with those of the
run that was never interrupted, each rank's next draws with the saved rank's; new ranks draw what no other does. Prints
a line per failure, then `N passed, N failed`."""
import glob, importlib.abc, importlib.machinery, logging, os, random, socket, subprocess, sys, tempfile, types, warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [p for p in sys.path if os.path.abspath(p) != HERE]          # this file is called as the package is
if os.environ.get("VERL_SRC"):
    sys.path.insert(0, os.environ["VERL_SRC"])
os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")


class Nothing(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class Anything(metaclass=Nothing):
    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return args[0] if args and callable(args[0]) else self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class Stub(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return (lambda *a, **k: a[0] if a else lambda f: f) if name == "remote" else Anything


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Packages that verl imports and the checkpoint manager does not use."""
    names = ("ray", "hydra", "codetiming", "wandb", "pylatexenc", "vllm", "sglang", "mlflow")

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        module.__path__ = []


sys.meta_path.insert(0, Stubs())
import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

CASES = {
    "fsdp2": dict(ws=2, v=2, total=40, warm=3, steps=4),
    "fsdp1": dict(ws=2, v=1, warm=2, steps=3),
    "fsdp1_orig": dict(ws=3, v=1, orig=True, total=25, warm=2, steps=3, hidden=10, inter=13, vocab=29, heads=1),
    "fsdp2_tied": dict(ws=3, v=2, tie=True, warm=2, steps=3),
    "fsdp2_hsdp": dict(ws=4, v=2, size=2, total=30, warm=2, steps=3, floor=0.1),
    "fsdp2_bf16": dict(ws=4, v=2, bf16=True, total=30, warm=2, steps=3, hidden=20, inter=30, vocab=53),
}
MORE = [  # case, ranks, arguments of the tool, what the coming run has otherwise
    ("fsdp2", 3, ["--variant", "fsdp1"], {"v": 1}),
    ("fsdp1", 3, ["--variant", "fsdp2"], {"v": 2}),
    ("fsdp1_orig", 4, ["--variant", "fsdp2"], {"v": 2}),
    ("fsdp2_tied", 2, ["--variant", "fsdp1"], {"v": 1}),
    ("fsdp2", 4, ["--fsdp-size", "2"], {"size": 2}),
    ("fsdp1", 4, ["--fsdp-size", "2"], {"size": 2}),
    ("fsdp2_hsdp", 4, ["--fsdp-size", "4"], {"size": 0}),
    ("fsdp2", 3, ["--set", "total_steps=80"], {"total": 80}),
    ("fsdp2_hsdp", 5, ["--set", "total_steps=60"], {"total": 60}),
]


def schedule(c):
    s = f"verl:{'cosine' if 'total' in c else 'constant'},lr_warmup_steps={c['warm']}"
    return s + (f",total_training_steps={c['total']}" if "total" in c else "") + \
        (f",min_lr_ratio={c['floor']}" if "floor" in c else "")


def build(c, rank, world, seed):
    """Model, optimizer, scheduler and manager as verl's FSDP worker makes them."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, ShardingStrategy, ShardedStateDictConfig, StateDictType
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from transformers import Qwen2Config, Qwen2ForCausalLM
    from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
    from verl.utils.fsdp_utils import apply_fsdp2, get_fsdp_wrap_policy
    from verl.utils.torch_functional import get_constant_schedule_with_warmup, get_cosine_schedule_with_warmup
    torch.manual_seed(seed)
    config = Qwen2Config(hidden_size=c.get("hidden", 24), intermediate_size=c.get("inter", 40),
                         vocab_size=c.get("vocab", 61), num_hidden_layers=2, num_attention_heads=c.get("heads", 2),
                         num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=c.get("tie", False),
                         attention_dropout=0.1, initializer_range=0.2)
    config._attn_implementation = "eager"
    dtype = torch.bfloat16 if c.get("bf16") else torch.float32
    model, size = Qwen2ForCausalLM(config).to(dtype), c.get("size", 0)
    mesh = init_device_mesh("cpu", (world // size, size), mesh_dim_names=("ddp", "fsdp")) if 0 < size < world else \
        init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
    if c["v"] == 1:
        kind = ShardingStrategy.FULL_SHARD if mesh.ndim == 1 else ShardingStrategy.HYBRID_SHARD
        model = FSDP(model, auto_wrap_policy=get_fsdp_wrap_policy(model, config={}), device_id=torch.device("cpu"),
                     sharding_strategy=kind, device_mesh=mesh, use_orig_params=c.get("orig", False))
        FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig())
    else:
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
        apply_fsdp2(model, dict(mesh=mesh, mp_policy=policy, reshard_after_forward=True), {})
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01)
    if "total" in c:
        s = get_cosine_schedule_with_warmup(opt, num_warmup_steps=c["warm"], num_training_steps=c["total"],
                                            min_lr_ratio=c.get("floor"))
    else:
        s = get_constant_schedule_with_warmup(opt, num_warmup_steps=c["warm"])
    manager = FSDPCheckpointManager(model, opt, s, processing_class=None, checkpoint_config=None)
    manager.rank, manager.world_size = rank, world
    return model, opt, s, manager


def gather(x):
    out = [None] * dist.get_world_size()
    dist.all_gather_object(out, x)
    return out


def joined(x):
    """The whole of what this rank has a part of."""
    if hasattr(x, "full_tensor"):
        return x.full_tensor().clone()
    if not hasattr(x, "local_shards"):
        return x.clone() if torch.is_tensor(x) else torch.tensor(x)
    out = None
    for shards in gather([(s.metadata.shard_offsets, s.tensor.clone()) for s in x.local_shards()]):
        for at, t in shards:
            out = torch.zeros(x.size(), dtype=t.dtype) if out is None else out
            out[tuple(slice(a, a + n) for a, n in zip(at, t.shape))] = t
    return out


def whole(model, opt, v):
    if v == 1:             # the sharded gather: torch's FULL one overwrites moments on the CPU
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        with FSDP.state_dict_type(model, FSDP.get_state_dict_type(model).state_dict_type):
            weights, state = model.state_dict(), FSDP.optim_state_dict(model, opt)["state"]
    else:
        names = {id(p): n for n, p in model.named_parameters()}
        weights, state = model.state_dict(), {names[id(p)]: s for p, s in opt.state.items()}
    out = {f"param {k}": joined(weights[k]) for k in sorted(weights)}
    for k in sorted(state):
        out.update({f"{slot} {k}": joined(state[k][slot]) for slot in sorted(state[k])})
    return out


def draws():
    return (torch.rand(4, dtype=torch.float64).tolist(), np.random.random_sample(4).tolist(),
            [random.random() for _ in range(4)])


def next_lrs(opt, s):
    out = []
    for _ in range(8):
        out.append([g["lr"] for g in opt.param_groups])
        s.step()
    return out


def save(job, rank, world):
    c, out = CASES[job["name"]], job["out"]
    model, opt, s, manager = build(c, rank, world, 7)
    torch.manual_seed(100 + rank)
    np.random.seed(200 + rank)
    random.seed(300 + rank)
    for k in range(c["steps"]):
        ids = torch.randint(0, c.get("vocab", 61), (2, 8), generator=torch.Generator().manual_seed(1000 * k + rank))
        model(input_ids=ids, labels=ids).loss.backward()
        opt.step()
        s.step()
        opt.zero_grad()
    manager.save_checkpoint(f"{out}/global_step_{c['steps']}/actor", global_step=c["steps"])
    state, given = whole(model, opt, c["v"]), gather(draws())
    if rank == 0:
        with open(f"{out}/latest_checkpointed_iteration.txt", "w") as f:
            f.write(str(c["steps"]))
        torch.save((state, given, next_lrs(opt, s)), f"{out}.truth")


def load(job, rank, world):
    c = {**CASES[job["name"]], **job["more"]}
    model, opt, s, manager = build(c, rank, world, 99)
    manager.load_checkpoint(glob.glob(f"{job['path']}/global_step_*/actor")[0])
    state, given = whole(model, opt, c["v"]), gather(draws())
    if rank:
        return
    want, saved, lrs = torch.load(f"{job['out']}.truth", weights_only=False)
    bad = [k for k in want if k not in state or state[k].dtype != want[k].dtype or not torch.equal(state[k], want[k])]
    now = next_lrs(opt, s)
    if "total" in job["more"]:     # what verl's own function says of the same clock with the other total
        p = torch.nn.Parameter(torch.zeros(1))
        from verl.utils.torch_functional import get_cosine_schedule_with_warmup
        o = torch.optim.AdamW([p], lr=1e-3)
        x = get_cosine_schedule_with_warmup(o, num_warmup_steps=c["warm"], num_training_steps=c["total"],
                                            min_lr_ratio=c.get("floor"))
        for _ in range(c["steps"]):
            x.step()
        lrs = next_lrs(o, x)
    if bad:
        job["said"] = f"{len(bad)} of {len(want)} tensors differ, first {bad[0]}"
    elif max(abs(a[0] - b[0]) for a, b in zip(now, lrs)) > 1e-15:
        job["said"] = f"LRs {now[:3]}, expected {lrs[:3]}"
    elif given[:len(saved)] != saved[:world]:
        job["said"] = "a rank draws another's numbers"
    elif any(len({tuple(g[i]) for g in given}) != world for i in range(3)):
        job["said"] = "two ranks draw the same"
    else:
        job["said"] = ""


def process(rank, world, port, jobs, out):
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    for job in jobs:
        try:
            (load if "path" in job else save)(job, rank, world)
        except Exception as e:     # all ranks leave it: the next job needs them together
            job["said"] = f"{type(e).__name__}: {str(e)[:300]}"
            said = job["said"]
        else:
            said = job.get("said", "")
        gathered = gather(said)
        if rank == 0:
            out.put((job["label"], next((x for x in gathered if x), "")))
    dist.destroy_process_group()


def launch(world, jobs):
    """Forked: what this process has imported is there."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    c = mp.get_context("fork")
    out = c.Queue()
    ranks = [c.Process(target=process, args=(r, world, port, jobs, out)) for r in range(world)]
    for p in ranks:
        p.start()
    said = {}
    try:
        while len(said) < len(jobs):
            label, text = out.get(timeout=120)
            said[label] = text
    except Exception:
        pass
    for p in ranks:
        p.join(5)
        if p.is_alive():
            p.kill()
    return [(j["label"], said.get(j["label"], "the processes did not answer")) for j in jobs]


def main():
    tool = sys.argv[1]
    import transformers.models.qwen2.modeling_qwen2
    import verl.utils.checkpoint.fsdp_checkpoint_manager, verl.utils.fsdp_utils, verl.utils.torch_functional
    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    answers, jobs = [], {w: [] for w in range(1, 6)}
    with tempfile.TemporaryDirectory() as tmp:
        saves = {w: [] for w in (2, 3, 4)}
        for name, c in CASES.items():
            os.makedirs(f"{tmp}/{name}")
            saves[c["ws"]].append({"name": name, "out": f"{tmp}/{name}", "label": f"{name} is saved"})
        for w, list_ in saves.items():
            answers += launch(w, list_)
        rows = [(n, w, [], {}) for n in CASES for w in range(1, 6)] + MORE
        for i, (name, w, args, more) in enumerate(rows):
            c, path = CASES[name], f"{tmp}/o{i}"
            label = " ".join([name, "to", str(w)] + args)
            size = c.get("size", 0)
            p = subprocess.run([tool, "convert", f"{tmp}/{name}", path, "--dp", str(w), "--schedule", schedule(c),
                                "--json", *args], capture_output=True, text=True)
            if p.returncode:
                answers.append((label, f"convert: {p.returncode} {(p.stdout + p.stderr)[-400:]}"))
                continue
            if size and "size" not in more and w % size:
                more = {**more, "size": 0}         # as the tool does: all ranks make one copy
            jobs[w].append({"name": name, "out": f"{tmp}/{name}", "path": path, "more": more, "label": label})
        for w in jobs:
            answers += launch(w, jobs[w])
    bad = [(label, text) for label, text in answers if text]
    for label, text in bad:
        print(f"verl: {label}: {text}")
    print(f"{len(answers) - len(bad)} passed, {len(bad)} failed")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
