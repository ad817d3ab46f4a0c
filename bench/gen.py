#!/usr/bin/env python3
"""gen.py DIR [NAME...]: writes the inputs of the benchmarks into DIR. The same bytes on every machine;
nothing but Python's standard library. A name whose file is there already is left alone.

  pt70k       70,000 small tensors, each its own storage, in one .pt as torch.save writes it
  st100k      100,000 small tensors in one safetensors file
  st1g        1 GiB in 64 tensors, one safetensors file
  pt1g        the same in one .pt (a zip: every member has a CRC-32)
  tp2         Nanotron, TP 2, ZeRO-0, fp32, Adam: 2 GiB
  zero4       the same model, TP 1, DP 4, ZeRO-1
  cut8        DeepSpeed, ZeRO-3 on 8 ranks, fp32, AdamW, a deeper model: 4 GiB
  mega        Megatron-LM, TP 8, PP 4, bf16 with fp32 masters, AdamW, a file a rank: 4 GiB
  megad       the same as torch_dist, fully_reshardable: 4 GiB
  shards      Nanotron, TP 4: over 1,000 files, 17 GiB, which are holes
  dcp125, dcp1k, dcp10k, dcp100k
              .metadata of torch.distributed.checkpoint, so many tensors in 8 chunks, without data files
  dcp8        torch.distributed.checkpoint of 8 ranks, the model of tp2 and its moments, fp32: 2 GiB
"""

import array, collections, io, itertools, json, math, os, pickle, random, struct, sys, types, zlib
from pathlib import Path

# ---- torch.save, without torch ---------------------------------------------------------------


def module(name, *names):
    """A module with classes of these names, for the pickler to refer to."""
    mod = sys.modules[name] = types.ModuleType(name)
    for n in names:
        setattr(mod, n, type(n, (), {"__module__": name}))
    return mod


torch = module("torch", "FloatStorage", "ByteStorage", "BFloat16Storage", "Tensor")
torch_utils = module("torch._utils")
random_mod = module("nanotron.random", "RandomStates", "RandomState")
module("nanotron")
module("deepspeed")
numpy = module("numpy", "ndarray", "dtype")
multiarray = module("numpy._core.multiarray")
module("numpy._core")


def function(mod, name):
    def f(*args):
        raise NotImplementedError

    f.__module__, f.__qualname__ = mod.__name__, name
    setattr(mod, name, f)
    return f


rebuild_tensor = function(torch_utils, "_rebuild_tensor_v2")
reconstruct = function(multiarray, "_reconstruct")


class Storage:
    def __init__(self, kind, numel, size, source):
        self.kind, self.numel, self.size, self.source, self.key = kind, numel, size, source, None


class Tensor:
    """source: where its bytes come from; None: what write_pt is given."""

    def __init__(self, shape, kind=torch.FloatStorage, size=4, source=None):
        n = 1
        for d in shape:
            n *= d
        self.shape, self.storage = tuple(shape), Storage(kind, n, size, source)

    def __reduce__(self):
        stride, step = [], 1
        for d in reversed(self.shape):
            stride.insert(0, step)
            step *= d
        # a tuple of its own for each tensor, as tuple(tensor.size()) is: no memo entry is used again
        return rebuild_tensor, (
            self.storage,
            0,
            tuple(list(self.shape)),
            tuple(stride),
            False,
            collections.OrderedDict(),
        )


class Reduced:
    """An object with a reduction of its own."""

    def __init__(self, *how):
        self.how = how

    def __reduce__(self):
        return self.how


class Pickler(pickle.Pickler):
    def __init__(self, out):
        super().__init__(out, protocol=2)
        self.storages = []

    def persistent_id(self, x):
        if not isinstance(x, Storage):
            return None
        if x.key is None:
            x.key = str(len(self.storages))
            self.storages.append(x)
        return "storage", x.kind, x.key, "cpu", x.numel


class Bytes:
    """Floats between -1 and 1, cut from one block at a place that depends on how many came before."""

    SIZE = 1 << 22

    def __init__(self):
        rng = random.Random(7)
        a = array.array("f", (rng.random() - 0.5 for _ in range(self.SIZE // 4)))
        if sys.byteorder == "big":
            a.byteswap()
        self.block, self.n = a.tobytes() * 2, 0

    def write(self, f, size):
        crc = 0
        while size:
            n = min(size, self.SIZE)
            at = self.n * 4099 * 4 % self.SIZE
            part = memoryview(self.block)[at : at + n]
            f.write(part)
            crc = zlib.crc32(part, crc)
            self.n += 1
            size -= n
        return crc


class Holes:
    def __init__(self):
        self.crc, self.n = {}, 0

    def write(self, f, size):
        f.seek(size, io.SEEK_CUR)
        if size not in self.crc:
            self.crc[size] = 0
            for at in range(0, size, 1 << 22):
                self.crc[size] = zlib.crc32(bytes(min(size - at, 1 << 22)), self.crc[size])
        return self.crc[size]


MAX32 = 0xFFFFFFFF


class Zip:
    """Records aligned to 64, data descriptors, zip64 end: the bytes that torch 2.15 writes."""

    def __init__(self, f, root):
        self.f, self.root, self.directory, self.n, self.base = f, root, [], 0, f.tell()

    @staticmethod
    def zip64(size, at, local=False):
        """The extra block of what needs more than 32 bits; a local header counts the compressed size as 0."""
        big = ([size, 0 if local else size] if size >= MAX32 else []) + ([at] if at >= MAX32 else [])
        return struct.pack(f"<2H{len(big)}Q", 1, 8 * len(big), *big) if big else b""

    def put(self, name, size, write):
        name = f"{self.root}/{name}".encode()
        at, flags = self.f.tell() - self.base, 0x0808 if size else 0x0800
        extra = self.zip64(size, at, True)
        pad = -(at + 30 + len(name) + len(extra) + 4) % 64
        self.f.write(
            struct.pack("<4s5H3I2H", b"PK\3\4", 0, flags, 0, 0, 0, 0, 0, 0, len(name), len(extra) + pad + 4)
            + name
            + extra
            + struct.pack("<2sH", b"FB", pad)
            + b"Z" * pad
        )
        crc = write(self.f)
        if size:
            self.f.write(struct.pack("<4sI2Q" if extra else "<4s3I", b"PK\7\10", crc, size, size))
        extra, short = self.zip64(size, at), min(size, MAX32)
        self.directory.append(
            struct.pack("<4s6H3I5H2I", b"PK\1\2", 0, 0, flags, 0, 0, 0, crc, short, short, len(name), len(extra), 0, 0,
                        0, 0, min(at, MAX32))
            + name
            + extra
        )
        self.n += 1

    def text(self, name, text):
        def write(f):
            f.write(text)
            return zlib.crc32(text)

        self.put(name, len(text), write)

    def close(self):
        at = self.f.tell() - self.base
        cd = b"".join(self.directory)
        n = self.n
        self.f.write(
            cd
            + struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 0x031E, 45, 0, 0, n, n, len(cd), at)
            + struct.pack("<4sIQI", b"PK\6\7", 0, at + len(cd), 1)
            + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, min(n, 65535), min(n, 65535), len(cd), min(at, MAX32), 0)
        )


def put_pt(f, root, obj, source):
    text = io.BytesIO()
    pickler = Pickler(text)
    pickler.dump(obj)
    z = Zip(f, root)
    z.text("data.pkl", text.getvalue())
    z.text(".format_version", b"1")
    z.text(".storage_alignment", b"64")
    z.text("byteorder", b"little")
    for s in pickler.storages:
        size = s.numel * s.size
        z.put(f"data/{s.key}", size, lambda f: (s.source or source).write(f, size))
    z.text("version", b"3\n")
    z.text(".data/serialization_id", b"0" * 40)
    z.close()


def write_pt(path, obj, source):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as f:
        put_pt(f, path.stem, obj, source)


def write_st(path, tensors, source, metadata=None):
    """tensors: (name, shape) of fp32."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head, at = ({"__metadata__": metadata} if metadata is not None else {}), 0
    for name, shape in tensors:
        n = 4
        for d in shape:
            n *= d
        head[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        source.write(f, at)
        f.truncate()


# ---- Nanotron ----------------------------------------------------------------------------------


class Llama:
    """Names, shapes and cuts of a Llama in Nanotron. A cut is (axis, chunk sizes); None: on every rank."""

    def __init__(self, hidden, layers, heads, kv_heads, inner, vocab):
        head = hidden // heads
        qkv, gate_up = [hidden, kv_heads * head, kv_heads * head], [inner, inner]
        self.config = dict(
            bos_token_id=1,
            eos_token_id=2,
            hidden_act="silu",
            hidden_size=hidden,
            initializer_range=0.02,
            intermediate_size=inner,
            is_llama_config=True,
            max_position_embeddings=2048,
            num_attention_heads=heads,
            num_hidden_layers=layers,
            attention_bias=False,
            num_key_value_heads=kv_heads,
            pad_token_id=None,
            pretraining_tp=1,
            rms_norm_eps=1e-05,
            rope_scaling=None,
            rope_theta=10000.0,
            rope_interleaved=False,
            tie_word_embeddings=False,
            use_cache=True,
            vocab_size=vocab,
            _attn_implementation="flash_attention_2",
            z_loss_enabled=False,
            z_loss_coefficient=0.0001,
        )
        p = self.params = [
            (
                "model.token_position_embeddings.pp_block.token_embedding.weight",
                (vocab, hidden),
                (0, [vocab]),
            )
        ]
        for i in range(layers):
            b = f"model.decoder.{i}.pp_block."
            p += [
                (b + "input_layernorm.weight", (hidden,), None),
                (b + "attn.qkv_proj.weight", (sum(qkv), hidden), (0, qkv)),
                (b + "attn.o_proj.weight", (hidden, hidden), (1, [hidden])),
                (b + "post_attention_layernorm.weight", (hidden,), None),
                (b + "mlp.gate_up_proj.weight", (2 * inner, hidden), (0, gate_up)),
                (b + "mlp.down_proj.weight", (hidden, inner), (1, [inner])),
            ]
        p += [
            ("model.final_layer_norm.pp_block.weight", (hidden,), None),
            ("model.lm_head.pp_block.weight", (vocab, hidden), (0, [vocab])),
        ]


def slice_text(n_dims, axis, begin, end):
    return "|".join(
        f"{begin},{end},None" if d == axis and end is not None else "None,None,None"
        for d in range(n_dims)
    )


def cut(shape, how, rank, tp):
    """Local shape and Nanotron's text of local and global slices."""
    axis, chunks = how
    local, pairs, at, to = list(shape), [], 0, 0
    local[axis] //= tp
    for c in chunks:
        n = c // tp
        here = slice_text(len(shape), axis, to, to + n if len(chunks) > 1 else None)
        pairs.append(here + "#" + slice_text(len(shape), axis, at + rank * n, at + (rank + 1) * n))
        at, to = at + c, to + n
    return local, ";".join(pairs)


def dp_cut(n, dp):
    """Nanotron's ZeRO-1: equal parts, the last ones shorter by one."""
    size = [-(-n // dp)] * dp
    for i in range(size[0] * dp - n):
        size[dp - 1 - i] -= 1
    return [(sum(size[:d]), sum(size[: d + 1])) for d in range(dp)]


CONFIG = """checkpoints:
  checkpoint_interval: 13
  checkpoints_path: run
  checkpoints_path_is_shared_file_system: false
  load_lr_scheduler: true
  load_optimizer: true
  resume_checkpoint_path: null
  save_final_state: false
  save_initial_state: false
data_stages:
- data:
    dataset: null
    num_loading_workers: 1
    seed: 42
  name: Stable Stage
  sequence_length: 16
  start_training_step: 1
general:
  benchmark_csv_path: null
  consumed_train_samples: 52
  ignore_sanity_checks: true
  project: bench
  run: bench
  seed: 42
  step: 13
lighteval: null
logging:
  iteration_step_info_interval: 1
  log_level: error
  log_level_replica: error
metrics_logging: null
model:
  ddp_bucket_cap_mb: 25
  dtype: float32
  init_method:
    scaling_method: NUM_LAYERS
    std: 0.08
  make_vocab_size_divisible_by: 1
  model_config:
%(model)s
optimizer:
  accumulate_grad_in_fp32: false
  clip_grad: 1.0
  learning_rate_scheduler:
    learning_rate: 0.003
    lr_decay_starting_step: null
    lr_decay_steps: 21
    lr_decay_style: linear
    lr_warmup_steps: 4
    lr_warmup_style: linear
    min_decay_lr: 0.0003
  optimizer_factory:
    adam_beta1: 0.9
    adam_beta2: 0.95
    adam_eps: 1.0e-08
    name: adamW
    torch_adam_is_fused: false
  weight_decay: 0.1
  weight_decay_exclude_named_params: []
  zero_stage: %(zero)d
parallelism:
  context_parallel_size: 1
  dp: %(dp)d
  expert_parallel_size: 1
  pp: 1
  pp_engine: 1f1b
  recompute_layer: false
  tp: %(tp)d
  tp_linear_async_communication: false
  tp_mode: ALL_REDUCE
  tp_recompute_allgather: true
profiler: null
s3_upload: null
tokenizer:
  tokenizer_max_length: null
  tokenizer_name_or_path: none
  tokenizer_revision: null
tokens:
  batch_accumulation_per_replica: 2
  limit_test_batches: 0
  limit_val_batches: 0
  micro_batch_size: 2
  sequence_length: 16
  train_steps: 25
  val_check_interval: -1
"""


def yaml_value(v):
    return (
        "null"
        if v is None
        else (
            str(v).lower()
            if isinstance(v, bool)
            else f"{v:.1e}" if isinstance(v, float) and v < 1e-3 else str(v)
        )
    )


def mersenne(seed):
    return random.Random(seed).getstate()[1]


def rng_state(seed):
    words = mersenne(seed)
    dtype = Reduced(numpy.dtype, ("u4", False, True), (3, "<", None, None, None, -1, -1, 0))
    keys = Reduced(
        reconstruct,
        (numpy.ndarray, (0,), b"b"),
        (1, (624,), dtype, False, struct.pack("<624I", *words[:624])),
    )
    state = random_mod.RandomState()
    state.__dict__.update(
        {
            "random": (3, words, None),
            "numpy": ("MT19937", keys, words[624], 0, 0.0),
            "torch_cpu": Tensor((5056,), torch.ByteStorage, 1),
            "torch_cuda": None,
        }
    )
    states = random_mod.RandomStates()
    states.__dict__["_dict"] = {"tp_synced": state}
    return states


class Rng:
    """torch's CPU generator has a state of its own layout: a Mersenne Twister in 5,056 bytes."""

    def __init__(self, seed=None):
        self.seed = seed

    def write(self, f, size):
        words = mersenne(size if self.seed is None else self.seed)[:624]
        data = struct.pack("<QiiQ", 42, 1, 1, 0) + struct.pack("<624Q", *words)
        data += bytes(size - len(data))
        f.write(data)
        return zlib.crc32(data)


def write_nanotron(run, model, tp, dp, zero, source):
    out, step = run / "13", 13
    lr, final = 0.003, 0.003 - (0.003 - 0.0003) * 9 / 21
    for name, shape, how in model.params:
        *parts, leaf = name.split(".")
        d = out / "model" / "/".join(parts)
        if how is None:
            write_st(d / f"model_{leaf}.safetensors", [("data", shape)], source, {})
            continue
        for t in range(tp):
            local, pairs = cut(shape, how, t, tp)
            write_st(
                d / f"model_{leaf}_pp-rank-0-of-1_tp-rank-{t}-of-{tp}.safetensors",
                [("data", local)],
                source,
                {
                    "version": "1.5",
                    "local_global_slices_pairs": pairs,
                    "unsharded_shape": str(tuple(shape)),
                },
            )
    names = {i: p[0] for i, p in enumerate(model.params)}
    hyper = dict(
        weight_decay=0.1,
        betas=(0.9, 0.95),
        eps=1e-08,
        amsgrad=False,
        maximize=False,
        foreach=None,
        capturable=False,
        differentiable=False,
        fused=False,
        decoupled_weight_decay=True,
        initial_lr=lr,
    )
    offsets, shapes = {}, {}
    for t in range(tp):
        for d in range(dp if zero else 1):
            state, source.n = {}, 0  # what every rank has is equal
            for i, (name, shape, how) in enumerate(model.params):
                local = list(shape if how is None else cut(shape, how, t, tp)[0])
                n = 1
                for x in local:
                    n *= x
                if zero:
                    parts = dp_cut(n, dp)
                    offsets[name] = {str(k): [str(v) for v in p] for k, p in enumerate(parts)}
                    shapes[name] = [str(x) for x in local]
                    local = [parts[d][1] - parts[d][0]]
                state[i] = {
                    "step": Tensor(()),
                    "exp_avg": Tensor(local),
                    "exp_avg_sq": Tensor(local),
                }
            groups = [{"lr": final, **hyper, "params": [i]} for i in names]
            place = (
                f"pp-0-of-1_dp-{d}-of-{dp}_tp-{t}-of-{tp}" if zero else f"pp-0-of-1_tp-{t}-of-{tp}"
            )
            write_pt(
                out / f"optimizer/optimizer_{place}_exp-0-of-1.pt",
                {"state": state, "param_groups": groups, "names": names},
                Steps(source, step),
            )
        write_pt(
            out / f"lr_scheduler/lr_scheduler_pp-0-of-1_tp-{t}-of-{tp}_exp-0-of-1.pt",
            {
                "base_lrs": [lr] * len(names),
                "last_epoch": step,
                "_step_count": step + 1,
                "_is_initial": False,
                "_get_lr_called_within_step": False,
                "_last_lr": [final] * len(names),
                "lr_lambdas": [{} for _ in names],
            },
            source,
        )
        for d in range(dp):
            write_pt(
                out / f"random/tp-{t}-of-{tp}_dp-{d}-of-{dp}_pp-0-of-1.pt", rng_state(t), Rng()
            )
    (out / "optimizer/optimizer_config.json").write_text(
        json.dumps(
            {
                "type": "ZeroDistributedOptimizer" if zero else "NamedOptimizer",
                "parallelism": {
                    "tp_size": str(tp),
                    "dp_size": str(dp),
                    "pp_size": "1",
                    "expert_parallel_size": "1",
                },
                "configs": (
                    {"param_name_to_dp_rank_offsets": offsets, "orig_param_shapes": shapes}
                    if zero
                    else {}
                ),
            }
        )
    )
    stage = {
        "consumed_tokens_per_dataset_folder": {"bench": 832},
        "consumed_train_samples": 52,
        "name": "Stable Stage",
        "sequence_length": 16,
        "start_training_step": 1,
    }
    (out / "checkpoint_metadata.json").write_text(
        json.dumps(
            {
                "cp": 1,
                "custom_metas": None,
                "dp": dp,
                "tp": tp,
                "version": "1.5",
                "metas": {
                    "consumed_tokens_total": 832,
                    "consumed_train_samples": 52,
                    "data_stages": [stage],
                    "last_stage_idx": 0,
                    "last_train_step": step,
                },
            },
            indent=2,
            sort_keys=True,
        )
    )
    (out / "model_config.json").write_text(json.dumps(model.config))
    text = "\n".join(f"    {k}: {yaml_value(v)}" for k, v in sorted(model.config.items()))
    (out / "config.yaml").write_text(CONFIG % dict(model=text, zero=zero, dp=dp, tp=tp))
    (run / "latest.txt").write_text(str(step))


class Steps:
    """Storages of one element are Adam's step counters."""

    def __init__(self, source, step):
        self.source, self.data = source, struct.pack("<f", step)

    def write(self, f, size):
        if size != 4:
            return self.source.write(f, size)
        f.write(self.data)
        return zlib.crc32(self.data)


# ---- DeepSpeed ---------------------------------------------------------------------------------


def write_deepspeed(run, shapes, dp, source, client=lambda rank: {}, decay=(0.1, 0.0)):
    """ZeRO-3: of every parameter each rank has one of dp equal pieces; a sub group a parameter group. shapes: (name,
    shape) of each; client: what the script adds to a rank's state; decay: the groups' (ZeRO-3 loads a universal
    checkpoint only with one)."""
    size = function(torch, "Size")
    stage = function(module("deepspeed.runtime.zero.config"), "ZeroStageEnum")
    scaler = module("deepspeed.runtime.fp16.loss_scaler", "LossScaler").LossScaler()
    scaler.cur_scale, scaler.dynamic = 1.0, False
    groups = [[x for x in shapes if len(x[1]) > 1], [x for x in shapes if len(x[1]) == 1]]
    config = dict(
        train_batch_size=dp,
        optimizer=dict(type="AdamW", params=dict(lr=1e-3)),
        zero_optimization=dict(stage=3),
    )
    hyper = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, amsgrad=False, maximize=False, foreach=None,
                 capturable=False, differentiable=False, fused=None, decoupled_weight_decay=True)
    run.mkdir(parents=True)
    for r in range(dp):
        tag = run / "global_step100"
        head = dict(
            module=collections.OrderedDict((n, Tensor((0,))) for n, _ in shapes),
            buffer_names=[],
            optimizer=None,
            param_shapes=[
                collections.OrderedDict((n, Reduced(size, (s,))) for n, s in g) for g in groups
            ],
            frozen_param_shapes=collections.OrderedDict(),
            shared_params={},
            frozen_param_fragments=collections.OrderedDict(),
            lr_scheduler=None,
            data_sampler=None,
            random_ltd=None,
            skipped_steps=0,
            global_steps=100,
            global_samples=100 * dp,
            dp_world_size=dp,
            mp_world_size=1,
            checkpoint_parallel_dimensions=dict(pp_degree=1, tp_degree=1),
            ds_config=config,
            ds_version="0.19.8",
            **client(r),
        )
        write_pt(tag / f"zero_pp_rank_{r}_mp_rank_00_model_states.pt", head, source)
        parts = [sum(-(-numel(s) // dp) for _, s in g) for g in groups]
        state = {
            i: dict(step=Tensor(()), exp_avg=Tensor((n,)), exp_avg_sq=Tensor((n,)))
            for i, n in enumerate(parts)
        }
        optim = dict(
            zero_stage=Reduced(stage, (3,)),
            loss_scaler=scaler,
            dynamic_loss_scale=False,
            overflow=False,
            partition_count=dp,
            optimizer_state_dict=dict(
                state=state,
                param_groups=[
                    dict(hyper, weight_decay=decay[i], params=[i]) for i in range(len(parts))
                ],
            ),
            fp32_flat_groups=[Tensor((n,)) for n in parts],
        )
        write_pt(
            tag / f"zero_pp_rank_{r}_mp_rank_00_optim_states.pt",
            dict(optimizer_state_dict=optim, ds_config=config, ds_version="0.19.8"),
            Steps(source, 100),
        )
    (run / "latest").write_text("global_step100")


def numel(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def names(n):
    kinds = (
        "mlp.gate_proj.weight",
        "mlp.up_proj.weight",
        "mlp.down_proj.weight",
        "self_attn.q_proj.weight",
        "self_attn.k_proj.weight",
        "self_attn.v_proj.weight",
        "self_attn.o_proj.weight",
        "input_layernorm.weight",
    )
    return [f"model.layers.{i // 512}.experts.{i // 8 % 64}.{kinds[i % 8]}" for i in range(n)]


def two_gib():
    return Llama(hidden=1024, layers=10, heads=16, kv_heads=8, inner=2816, vocab=32000)

# ---- torch.distributed.checkpoint, without torch -----------------------------------------------


class Size(tuple):
    __module__ = "torch"

    def __reduce__(self):
        return Size, (tuple(self),)


class Global:
    """A value that pickle writes as a name in a module."""

    def __init__(self, mod, name):
        self.__module__, self.name = mod.__name__, name
        setattr(mod, name, self)

    def __reduce__(self):
        return self.name


def dcp_classes():
    torch.Size = Size
    Size.__qualname__ = "Size"
    for name in ("torch.distributed", "torch.distributed.checkpoint"):
        module(name)
    meta = module("torch.distributed.checkpoint.metadata", "Metadata", "TensorStorageMetadata",
                  "BytesStorageMetadata", "ChunkStorageMetadata", "MetadataIndex", "TensorProperties")
    layout = Reduced(function(module("torch.serialization"), "_get_layout"), ("torch.strided",))
    order = Reduced(function(meta, "_MEM_FORMAT_ENCODING"), (0,))
    props = Global(torch, "float32"), layout, False, order, False
    meta.TensorProperties.__getstate__ = lambda self: props
    return meta, module("torch.distributed.checkpoint.filesystem", "_StorageInfo")


def made(cls, **state):
    x = cls()
    x.__dict__.update(state)
    return x


def write_dcp(path, n_tensors, n_chunks):
    """As torch's own classes pickle themselves; a quarter of the tensors are scalars in one chunk."""
    meta, files = dcp_classes()
    state, planner, storage, at = {}, {}, [], [0] * n_chunks

    def place(fqn, c, length, offset, index):
        key = made(meta.MetadataIndex, fqn=fqn, **({} if offset is None else {"offset": offset}), index=index)
        info = made(files._StorageInfo, relative_path=f"__{c}_0.distcp", offset=at[c], length=length)
        at[c] += length
        storage.append((key, info))

    for t in range(n_tensors):
        slot = ("", "exp_avg", "exp_avg_sq", "step")[t % 4]
        name = f"layers.{t // 36}.feed_forward.w{t // 4 % 9}.weight"
        fqn = f"optimizer.state.{name}.{slot}" if slot else name
        planner[fqn] = ("optimizer", fqn[10:]) if slot else (fqn,)
        cut = [(Size(), Size())] if slot == "step" else [(Size((5 * c, 0)), Size((5, 8))) for c in range(n_chunks)]
        chunks = [made(meta.ChunkStorageMetadata, offsets=o, sizes=s) for o, s in cut]
        size = Size() if slot == "step" else Size((5 * n_chunks, 8))
        state[fqn] = made(meta.TensorStorageMetadata, properties=meta.TensorProperties(), size=size, chunks=chunks)
        for c, (o, s) in enumerate(cut):
            place(fqn, c if len(cut) > 1 else t % n_chunks, 1581 if slot == "step" else 1737, o, c)
    root = made(meta.Metadata, state_dict_metadata=state, planner_data=planner, storage_data=dict(storage))
    path.mkdir()
    with open(path / ".metadata", "wb") as f:
        pickle.dump(root, f, 4)


# ---- Megatron-LM -------------------------------------------------------------------------------


class Place:
    """Bytes from a place in a block that the name tells: what two ranks both have is equal."""

    def __init__(self, block, at):
        self.block, self.at = block, at

    def write(self, f, size):
        crc, at = 0, self.at
        while size:
            part = memoryview(self.block)[at : at + min(size, len(self.block) - at)]
            f.write(part)
            crc, size, at = zlib.crc32(part, crc), size - len(part), 0
        return crc


class Given:
    def __init__(self, data):
        self.data = data

    def write(self, f, size):
        f.write(self.data)
        return zlib.crc32(self.data)


class MegatronBytes:
    """Masters, what they are as bf16, and moments. The low half of a master rounds down."""

    def __init__(self):
        rng, n = random.Random(7), 1 << 20
        a = array.array("f", (rng.random() - 0.5 for _ in range(n)))
        words = array.array("I", a.tobytes())
        words = array.array("I", (w & 0xFFFF7FFF for w in words))
        squares = array.array("f", (x * x for x in a))
        high = array.array("H", (w >> 16 for w in words))
        if sys.byteorder == "big":
            for x in (words, squares, high):
                x.byteswap()
        self.n, words, squares = n, words.tobytes(), squares.tobytes()
        self.blocks = {"param": high.tobytes(), "master": words, "exp_avg": words, "exp_avg_sq": squares}

    def tensor(self, slot, shape, name):
        """slot: param in bf16, master, exp_avg or exp_avg_sq."""
        at = zlib.crc32((name if slot in ("param", "master") else slot + name).encode()) % self.n
        size = 2 if slot == "param" else 4
        kind = torch.BFloat16Storage if size == 2 else torch.FloatStorage
        return Tensor(shape, kind, size, Place(self.blocks[slot], at * size))


def tracker_state(seed):
    return Tensor((16,), torch.ByteStorage, 1, Given(struct.pack("<Qq", seed, 400)))


class Megatron:
    """A Llama in Megatron's own classes (local layer spec), the seventh of twenty iterations."""

    def __init__(self, hidden, layers, heads, groups, inner, vocab, tp, pp, dp=1):
        self.layers, self.tp, self.pp, self.dp = layers, tp, pp, dp
        head = hidden // heads
        # name, shape, cut axis (None: on every rank), stride (2: gate and up)
        self.block = [
            ("input_layernorm.weight", (hidden,), None, 1),
            ("self_attention.linear_proj.weight", (hidden, hidden), 1, 1),
            ("self_attention.linear_qkv.weight", ((heads + 2 * groups) * head, hidden), 0, 1),
            ("pre_mlp_layernorm.weight", (hidden,), None, 1),
            ("mlp.linear_fc1.weight", (2 * inner, hidden), 0, 2),
            ("mlp.linear_fc2.weight", (hidden, inner), 1, 1),
        ]
        self.first = [("embedding.word_embeddings.weight", (vocab, hidden), 0, 1)]
        self.last = [
            ("decoder.final_layernorm.weight", (hidden,), None, 1),
            ("output_layer.weight", (vocab, hidden), 0, 1),
        ]
        self.args = dict(
            tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp, context_parallel_size=1,
            expert_model_parallel_size=1, virtual_pipeline_model_parallel_size=None, data_parallel_size=dp,
            world_size=tp * pp * dp, num_layers=layers, hidden_size=hidden, ffn_hidden_size=inner,
            num_attention_heads=heads, group_query_attention=True, num_query_groups=groups, kv_channels=head,
            max_position_embeddings=2048, seq_length=2048, swiglu=True, add_bias_linear=False, add_qkv_bias=False,
            normalization="RMSNorm", qk_layernorm=False, position_embedding_type="rope", rotary_percent=1.0,
            rotary_base=10000, untie_embeddings_and_output_weights=True, vocab_size=vocab, padded_vocab_size=vocab,
            make_vocab_size_divisible_by=128, tokenizer_type="HuggingFaceTokenizer", tokenizer_model=None,
            num_experts=None, transformer_impl="local", bf16=True, fp16=False, params_dtype=Global(torch, "bfloat16"),
            use_distributed_optimizer=False, optimizer="adam", adam_beta1=0.9, adam_beta2=0.95, adam_eps=1e-08,
            lr=0.003, min_lr=0.0003, lr_warmup_init=0.0, lr_warmup_iters=3, lr_warmup_samples=0,
            lr_warmup_fraction=None, lr_decay_iters=20, lr_decay_samples=None, lr_decay_style="cosine",
            weight_decay=0.1, start_weight_decay=0.1, end_weight_decay=0.1, weight_decay_incr_style="constant",
            train_iters=20, train_samples=None, global_batch_size=4, micro_batch_size=1, rampup_batch_size=None,
            consumed_train_samples=24, consumed_valid_samples=0, iteration=6, seed=1234, clip_grad=1.0,
            data_parallel_random_init=False, attention_dropout=0.0, hidden_dropout=0.0, ckpt_format="torch",
            sequence_parallel=False,
        )

    def stage(self, p):
        """(global name, name in the file, whole shape, axis, stride, layer) of what a stage has, in its order."""
        each = self.layers // self.pp
        for x in self.first if p == 0 else []:
            yield x[0], *x, None
        for i in range(each):
            for name, *x in self.block:
                yield f"decoder.layers.{p * each + i}.{name}", f"decoder.layers.{i}.{name}", *x, p * each + i
        for x in self.last if p + 1 == self.pp else []:
            yield x[0], *x, None

    def local(self, shape, axis):
        return tuple(n // self.tp if d == axis else n for d, n in enumerate(shape))

    def namespace(self, **more):
        space = module("argparse", "Namespace").Namespace()
        space.__dict__.update(self.args, **more)
        return space

    def rng(self, t, p):
        seed = 1234 + 100 * p
        state = rng_state(seed).__dict__["_dict"]["tp_synced"].__dict__
        torch_cpu = Tensor((5056,), torch.ByteStorage, 1, Rng(seed))
        tracker = {"data-parallel-rng": seed, "model-parallel-rng": seed + 2718 + t,
                   "expert-parallel-rng": seed + 1024 + t}
        return [
            dict(random_rng_state=state["random"], np_rng_state=state["numpy"], torch_rng_state=torch_cpu,
                 cuda_rng_state=tracker_state(seed),
                 rng_tracker_states={k: tracker_state(v) for k, v in tracker.items()})
        ]

    SCHEDULER = dict(max_lr=0.003, lr_warmup_steps=12, num_steps=24, lr_decay_style="cosine", lr_decay_steps=80,
                     min_lr=0.0003, start_wd=0.1, end_wd=0.1, wd_incr_style="constant", wd_incr_steps=80)

    def groups(self, **more):
        lr = 0.0003 + 0.0027 * 0.5 * (1 + math.cos(math.pi * 3 / 17))
        head = dict(is_expert_parallel=False, default_config=True)
        tail = dict(lr_mult=1.0, is_decoupled_lr=False, max_lr=0.003, min_lr=0.0003, lr=lr, betas=(0.9, 0.95),
                    eps=1e-08)
        return [dict(head, wd_mult=w, **tail, weight_decay=0.1 * w, **more) for w in (1.0, 0.0)]


def write_megatron(run, m, source):
    """A file for each rank: weights, masters, moments, as Float16OptimizerWithFloat16Params saves them."""
    typed = function(module("torch._tensor"), "_rebuild_from_type_v2")

    def master(x, name, local, axis, stride):
        attributes = dict(expert_tp=False, is_qkv="linear_qkv" in name, tensor_model_parallel=axis is not None,
                          partition_dim=-1 if axis is None else axis, partition_stride=stride)
        return Reduced(typed, (rebuild_tensor, torch.Tensor, x.__reduce__()[1], attributes))

    for p in range(m.pp):
        for t in range(m.tp):
            model, ids, masters, state = collections.OrderedDict(), [[], []], [[], []], {}
            tensors = [(x, x[0] if x[3] is None else f"{x[0]}/{t}") for x in m.stage(p)]
            for k in range(2):              # weight decay; none, for what has one dimension
                for (_, name, shape, axis, stride, _), key in tensors:
                    if (len(shape) == 1) != (k == 1):
                        continue
                    local, i = m.local(shape, axis), len(state)
                    ids[k].append(i)
                    masters[k].append(master(source.tensor("master", local, key), name, local, axis, stride))
                    state[i] = dict(step=Tensor((), source=Given(struct.pack("<f", 6))),
                                    exp_avg=source.tensor("exp_avg", local, key),
                                    exp_avg_sq=source.tensor("exp_avg_sq", local, key))
            for (_, name, shape, axis, *_), key in tensors:
                model[name] = source.tensor("param", m.local(shape, axis), key)
            optimizer = dict(state=state, param_groups=[dict(g, params=i) for g, i in zip(m.groups(), ids)])
            write_pt(
                run / f"iter_0000006/mp_rank_{t:02d}_{p:03d}/model_optim_rng.pt",
                dict(args=m.namespace(rank=t + m.tp * p), checkpoint_version=3.0, iteration=6, model=model,
                     optimizer=dict(optimizer=optimizer, fp32_from_fp16_params=masters),
                     opt_param_scheduler=m.SCHEDULER, rng_state=m.rng(t, p), num_floating_point_operations_so_far=0),
                source,
            )
    (run / "latest_checkpointed_iteration.txt").write_text("6")


def write_megatron_dist(run, m, source):
    """torch_dist, fully_reshardable: a file a rank; layers are the first dimension of what they have. The ranks of a
    data-parallel group write by turns."""
    meta, files = dcp_classes()
    meta.TensorProperties.__getstate__ = lambda self: self.__dict__["all"]
    plans = module("torch.distributed.checkpoint.planner", "SavePlan", "WriteItem", "TensorWriteData")
    kind = function(plans, "WriteItemType")
    out, state, storage, local_plans = run / "iter_0000006", {}, {}, {}
    out.mkdir(parents=True)
    stored = {"input_layernorm.": "self_attention.linear_qkv.layer_norm_",
              "pre_mlp_layernorm.": "mlp.linear_fc1.layer_norm_"}
    dtypes = {2: m.args["params_dtype"], 4: Global(torch, "float32")}
    layout, contiguous = Global(torch, "strided"), Reduced(function(meta, "_MEM_FORMAT_ENCODING"), (0,))

    def item(f, path, fqn, obj, offset, tensor=None):
        at = f.tell()
        put_pt(f, "archive", obj, source)
        key = dict(fqn=fqn, index=None) if offset is None else dict(fqn=fqn, offset=offset, index=None)
        plan = made(plans.WriteItem, index=made(meta.MetadataIndex, **key), type=Reduced(kind, (2 if tensor else 3,)),
                    bytes_io_data=None, tensor_data=tensor)
        local_plans.setdefault(path, []).append(plan)
        info = dict(relative_path=path, offset=at, length=f.tell() - at, transform_descriptors=None)
        storage[made(meta.MetadataIndex, **key)] = made(files._StorageInfo, **info)

    def piece(f, path, slot, x, t, half):
        name, _, shape, axis, stride, layer = x
        prefix = {"param": "", "master": "optimizer.state.param."}.get(slot, f"optimizer.state.{slot}.")
        if layer is not None:
            name = "decoder.layers." + name.split(".", 3)[3]
        for a, b in stored.items():
            name = name.replace(a, b)
        local = [n // (m.tp * stride) if d == axis else n for d, n in enumerate(shape)]
        at = [(half * m.tp + t) * n if d == axis else 0 for d, n in enumerate(local)]
        whole, lead = list(shape), [] if layer is None else [layer]
        if layer is not None:
            whole, local = [m.layers] + whole, [1] + local
        key = f"{x[0]}/{half}" if axis is None else f"{x[0]}/{t}/{half}"
        tensor = source.tensor(slot, local, key)
        fqn, offset = prefix + name, Size(lead + at)
        if fqn not in state:
            props = dtypes[tensor.storage.size], layout, False, contiguous, False, None
            state[fqn] = made(meta.TensorStorageMetadata, properties=made(meta.TensorProperties, all=props),
                              size=Size(whole), chunks=[])
        chunk = made(meta.ChunkStorageMetadata, offsets=offset, sizes=Size(local))
        state[fqn].chunks.append(chunk)
        item(f, path, fqn, tensor, offset, made(plans.TensorWriteData, chunk=chunk, properties=state[fqn].properties,
                                                size=Size(whole)))

    for group in range(m.tp * m.pp):
        t, p = group % m.tp, group // m.tp
        paths = [f"__{t + m.tp * (d + m.dp * p)}_0.distcp" for d in range(m.dp)]
        files_of = [open(out / path, "wb") for path in paths]
        turns = itertools.cycle(zip(files_of, paths))
        for slot in ("param", "master", "exp_avg", "exp_avg_sq"):
            for x in m.stage(p):
                for half in range(x[4]) if x[3] is not None or t == 0 else []:
                    piece(*next(turns), slot, x, t, half)
        fqn = f"rng_state/shard_{p}.{t}_{m.pp}.{m.tp}"
        state[fqn] = meta.BytesStorageMetadata()
        item(*next(turns), fqn, [m.rng(t, p)], None)
        for f in files_of:
            f.truncate()
            f.close()
    local_plans = [made(plans.SavePlan, items=items, storage_data=None, planner_data={}, usable=True)
                   for items in local_plans.values()]
    root = made(meta.Metadata, state_dict_metadata=state, planner_data=None, storage_data=storage,
                all_local_plans=local_plans)
    with open(out / ".metadata", "wb") as f:
        pickle.dump(root, f, 4)
    more = dict(rank=0, use_distributed_optimizer=True, ckpt_format="torch_dist", ckpt_fully_parallel_save=True)
    optimizer = dict(optimizer=dict(param_groups=m.groups(step=6)), param_state_sharding_type="fully_reshardable")
    content = dict(distrib_optim_sharding_type="fully_reshardable", distrib_optim_fully_reshardable_mem_efficient=False,
                   singleton_local_shards=False, chained_optim_avoid_prefix=True)
    write_pt(out / "common.pt", dict(args=m.namespace(**more), checkpoint_version=3.0, iteration=6, optimizer=optimizer,
             opt_param_scheduler=m.SCHEDULER, num_floating_point_operations_so_far=0, content_metadata=content), source)
    (out / "metadata.json").write_text(json.dumps(dict(sharded_backend="torch_dist", sharded_backend_version=1,
                                                       common_backend="torch", common_backend_version=1)))
    (run / "latest_checkpointed_iteration.txt").write_text("6")


def two_gib_megatron():
    return Megatron(1024, 8, 16, 8, 2816, 32768, tp=8, pp=4)


def write_dcp_data(path, model, ranks, source):
    """A model and AdamW's moments, FSDP over `ranks`: every tensor cut along its first axis into equal parts, the last
    ones shorter; the scalars by turns in the files of all ranks."""
    meta, files = dcp_classes()
    state, planner, storage = {}, {}, {}
    path.mkdir()
    out = [open(path / f"__{r}_0.distcp", "wb") for r in range(ranks)]

    def put(fqn, rank, obj, offset, index):
        at = out[rank].tell()
        put_pt(out[rank], "archive", obj, source)
        key = made(meta.MetadataIndex, fqn=fqn, **({} if offset is None else {"offset": offset}), index=index)
        storage[key] = made(files._StorageInfo, relative_path=f"__{rank}_0.distcp", offset=at,
                            length=out[rank].tell() - at)

    def tensor(fqn, shape, cuts):
        chunks = [made(meta.ChunkStorageMetadata, offsets=Size(o), sizes=Size(s)) for _, o, s in cuts]
        state[fqn] = made(meta.TensorStorageMetadata, properties=meta.TensorProperties(), size=Size(shape),
                          chunks=chunks)
        for i, (rank, o, s) in enumerate(cuts):
            put(fqn, rank, Tensor(s), Size(o), i)

    params = [(name, shape) for name, shape, _ in model.params]
    for i, (name, _) in enumerate(params):
        for key, value in ("lr", 0.001), ("betas", (0.9, 0.95)), ("weight_decay", 0.1):
            fqn = f"optim.param_groups.{name}.{key}"
            state[fqn], planner[fqn] = meta.BytesStorageMetadata(), ("optim", fqn[6:])
            put(fqn, i % ranks, value, None, None)
    for i, (name, shape) in enumerate(params):
        rows = -(-shape[0] // ranks)
        cuts = [(r, (at, *[0] * (len(shape) - 1)), (min(rows, shape[0] - at), *shape[1:]))
                for r, at in enumerate(range(0, shape[0], rows))]
        for fqn in f"model.{name}", f"optim.state.{name}.exp_avg", f"optim.state.{name}.exp_avg_sq":
            planner[fqn] = fqn.split(".", 1)[0], fqn.split(".", 1)[1]
            tensor(fqn, shape, cuts)
        fqn = f"optim.state.{name}.step"
        planner[fqn] = "optim", fqn[6:]
        tensor(fqn, (), [(i % ranks, (), ())])
    for f in out:
        f.close()
    root = made(meta.Metadata, state_dict_metadata=state, planner_data=planner, storage_data=storage)
    with open(path / ".metadata", "wb") as f:
        pickle.dump(root, f, 4)


INPUTS = {
    "dcp125": lambda p: write_dcp(p, 125, 8),
    "dcp1k": lambda p: write_dcp(p, 1000, 8),
    "dcp10k": lambda p: write_dcp(p, 10000, 8),
    "dcp8": lambda p: write_dcp_data(p, two_gib(), 8, Bytes()),
    "dcp100k": lambda p: write_dcp(p, 100000, 8),
    "pt70k": lambda p: write_pt(
        p, collections.OrderedDict((n, Tensor((4, 4))) for n in names(70000)), Bytes()
    ),
    "st100k": lambda p: write_st(p, [(n, (4, 4)) for n in names(100000)], Bytes()),
    "st1g": lambda p: write_st(
        p, [(f"layer.{i}.weight", (2048, 2048)) for i in range(64)], Bytes()
    ),
    "pt1g": lambda p: write_pt(
        p, {f"layer.{i}.weight": Tensor((2048, 2048)) for i in range(64)}, Bytes()
    ),
    "tp2": lambda p: write_nanotron(p, two_gib(), 2, 1, 0, Bytes()),
    "zero4": lambda p: write_nanotron(p, two_gib(), 1, 4, 1, Bytes()),
    "cut8": lambda p: write_deepspeed(p, [x[:2] for x in Llama(1024, 10, 16, 8, 2816, 32000).params], 8, Bytes(),
                                      decay=(0.1, 0.1)),
    "mega": lambda p: write_megatron(p, two_gib_megatron(), MegatronBytes()),
    "megad": lambda p: write_megatron_dist(p, two_gib_megatron(), MegatronBytes()),
    "shards": lambda p: write_nanotron(p, Llama(1536, 56, 24, 8, 4096, 32000), 4, 1, 0, Holes()),
}
SUFFIX = {"pt70k": ".pt", "pt1g": ".pt", "st100k": ".safetensors", "st1g": ".safetensors"}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    root = Path(sys.argv[1])
    root.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or INPUTS:
        path = root / (name + SUFFIX.get(name, ""))
        if path.exists():
            continue
        part = root / (name + "-part") / (name + SUFFIX.get(name, ""))
        part.parent.mkdir(exist_ok=True)
        INPUTS[name](part)
        part.rename(path)
        part.parent.rmdir()


if __name__ == "__main__":
    main()
