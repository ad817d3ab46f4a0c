"""gpt.py TOOL SCRATCH: GPTs of other frameworks as Megatron-LM's.

Weights of transformers' Llama, Qwen2, Qwen3 and GPT-2, of TorchTitan's names and of a script's (nanoGPT's) become
checkpoints of Megatron-LM, whose own GPTModel (megatron-core, its local modules) loads them strictly and gives the
logits of the model that they came from: order of fused rows, gate and up, rotation and norms are then right. Both
compute in float32, in another order of sums: 1e-4 of logits around 1 is far from what any permutation would give.
A script's run goes on there: moments, groups and LR are right where one more update gives the same model again.
Prints a line per failure, then `N passed, N failed`.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import torch
import transformers
from count import end, expect
from names import titan_names

warnings.filterwarnings("ignore")
V, H, L, N, KV, F, S = 61, 32, 3, 4, 2, 44, 16


def tool(*args):
    p = subprocess.run([sys.argv[1], *map(str, args)], capture_output=True, text=True)
    return p.returncode, p.stdout + p.stderr


def hf(kind, **more):
    t = transformers
    small = dict(vocab_size=V, hidden_size=H, num_hidden_layers=L, num_attention_heads=N, num_key_value_heads=KV,
                 intermediate_size=F, max_position_embeddings=S, attn_implementation="eager", **more)
    config = {"llama": t.LlamaConfig, "mistral": t.MistralConfig, "qwen2": t.Qwen2Config, "qwen3": t.Qwen3Config}
    if kind == "gpt2":
        c = t.GPT2Config(vocab_size=V, n_positions=S, n_embd=H, n_layer=L, n_head=N, attn_implementation="eager")
    else:
        c = config[kind](**small)
    m = t.AutoModelForCausalLM.from_config(c).float().eval()
    with torch.no_grad():
        for p in m.parameters():
            p.copy_(torch.randn_like(p) * (0.3 if p.dim() > 1 else 0.2) + (p.dim() == 1))
    return m


def script_names(state):
    """transformers' GPT-2 as nanoGPT has it: torch's Linear instead of Conv1D."""
    conv = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    return {k: t.t().contiguous() if k.endswith(conv) else t for k, t in state.items()}


def megatron(args, state):
    import megatron.core.models.gpt.gpt_layer_specs as specs
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    a = args
    config = TransformerConfig(
        num_layers=a.num_layers, hidden_size=a.hidden_size, num_attention_heads=a.num_attention_heads,
        num_query_groups=a.num_query_groups, ffn_hidden_size=a.ffn_hidden_size, kv_channels=a.kv_channels,
        hidden_dropout=0.0, attention_dropout=0.0, normalization=a.normalization,
        layernorm_epsilon=getattr(a, "layernorm_epsilon", 1e-5), add_bias_linear=a.add_bias_linear,
        add_qkv_bias=a.add_qkv_bias, gated_linear_unit=a.swiglu, qk_layernorm=a.qk_layernorm,
        rotary_interleaved=a.rotary_interleaved, use_cpu_initialization=True, bias_activation_fusion=not a.swiglu,
        activation_func=torch.nn.functional.silu if a.swiglu else torch.nn.functional.gelu,
        masked_softmax_fusion=False, persist_layer_norm=False)
    rows = state["embedding.word_embeddings.weight"].shape[0]
    m = GPTModel(config, specs.get_gpt_layer_local_spec(qk_layernorm=a.qk_layernorm, normalization=a.normalization),
                 rows, S, position_embedding_type=a.position_embedding_type,
                 rotary_base=getattr(a, "rotary_base", 10000), rotary_percent=1.0,
                 share_embeddings_and_output_weights=not a.untie_embeddings_and_output_weights)
    m.load_state_dict(state, strict=True)
    return m.eval()


def logits(m, tokens):
    b, s = tokens.shape
    mask = torch.triu(torch.ones(1, 1, s, s, dtype=torch.bool), 1)
    return m(tokens, torch.arange(s).expand(b, s), mask)


def case(scratch, name, model, state=None, flags=()):
    src, out = scratch / name, scratch / f"{name}-mg"
    if state is None:
        model.save_pretrained(src)
    else:
        src = scratch / f"{name}.pt"
        torch.save(state, src)
    tokens = torch.randint(0, V, (2, S))
    rc, said = tool("convert", src, out, "--to", "megatron", "--mode", "transfer", "--variant", "torch", *flags)
    if not expect(rc == 0, f"{name}: {said}"):
        return
    file = torch.load(out / "release/mp_rank_00/model_optim_rng.pt", weights_only=False)
    with torch.no_grad():
        want = model(tokens).logits
        own = megatron(file["args"], file["model"])
        have = logits(own, tokens)[..., :V]
    worst = float((want - have).abs().max())
    expect(worst < 1e-4 * max(1.0, float(want.abs().max())), f"{name}: logits differ by {worst}")
    sharded(scratch, name, src, own, file["args"], flags)


def sharded(scratch, name, src, own, args, flags):
    """The other format, from two by three ranks' files, is the same tensors for Megatron's own loader."""
    from megatron.core import dist_checkpointing

    out = scratch / f"{name}-dist"
    rc, said = tool("convert", src, out, "--to", "megatron", "--mode", "transfer", "--tp", 2, "--pp", L, *flags)
    if not expect(rc == 0, f"{name}: {said}"):
        return
    want = own.state_dict()
    other = megatron(args, {k: v if v is None else torch.zeros_like(v) for k, v in want.items()})
    state = dist_checkpointing.load(other.sharded_state_dict(), str(out / "release"))
    other.load_state_dict({k: v for k, v in state.items() if k in want}, strict=True)
    bad = [k for k, v in other.state_dict().items() if v is not None and not torch.equal(v, want[k])]
    expect(not bad, f"{name}: torch_dist has other {bad}")


def updated(scratch, name, model):
    """A run of three updates, and the fourth by both."""
    curve = "cosine,num_warmup_steps=2,num_training_steps=10"
    groups = [{"params": [(n, p) for n, p in model.named_parameters() if (p.dim() > 1) == many], "weight_decay": wd}
              for many, wd in ((True, 0.1), (False, 0.0))]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    scheduler = transformers.get_scheduler("cosine", optimizer, 2, 10)
    batches = torch.randint(0, V, (4, 2, S))

    def update(logits_of, optimizer, tokens):
        rows = logits_of(tokens)[:, :-1, :V].reshape(-1, V)
        loss = torch.nn.functional.cross_entropy(rows, tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    for i in range(3):
        update(lambda x: model(x).logits, optimizer, batches[i])
        scheduler.step()
    src, out = scratch / f"{name}-run.pt", scratch / f"{name}-run"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3,
                "lr_scheduler": scheduler.state_dict()}, src)
    rc, said = tool("convert", src, out, "--to", "megatron", "--variant", "torch", "--heads", N, "--set",
                    "batch_size=2", "--schedule", f"transformers:{curve}")
    if not expect(rc == 0, f"{name}: {said}"):
        return
    file = torch.load(out / "iter_0000003/mp_rank_00/model_optim_rng.pt", weights_only=False)
    own = megatron(file["args"], file["model"])
    named, saved = list(own.named_parameters()), file["optimizer"]
    told = [{k: g[k] for k in ("lr", "betas", "eps", "weight_decay")} for g in saved["param_groups"]]
    parts = [[p for _, p in named if (p.dim() > 1) == (g["wd_mult"] > 0)] for g in saved["param_groups"]]
    other = torch.optim.AdamW([dict(g, params=p) for g, p in zip(told, parts)])
    for group, g in zip(other.param_groups, saved["param_groups"]):
        expect(len(group["params"]) == len(g["params"]), f"{name}: {len(g['params'])} parameters of a group")
        for p, i in zip(group["params"], g["params"]):
            state = saved["state"][i]
            other.state[p] = {"step": torch.tensor(float(g["step"])), "exp_avg": state["exp_avg"].clone(),
                              "exp_avg_sq": state["exp_avg_sq"].clone()}
    update(lambda x: model(x).logits, optimizer, batches[3])
    update(lambda x: logits(own, x), other, batches[3])
    with torch.no_grad():
        worst = float((model(batches[0]).logits - logits(own, batches[0])[..., :V]).abs().max())
    expect(worst < 1e-4, f"{name}: after another update logits differ by {worst}")


def main():
    scratch = Path(sys.argv[2])
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(3)
    with socket.socket() as s:
        s.bind(("localhost", 0))
        os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(s.getsockname()[1]), RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("gloo")
    torch.cuda.current_device = lambda: torch.device("cpu")
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel import random

    parallel_state.initialize_model_parallel(1, 1)
    random.CudaRNGStatesTracker.fork = lambda *_: contextlib.nullcontext()
    random.initialize_rng_tracker()
    case(scratch, "llama", hf("llama", tie_word_embeddings=False))
    case(scratch, "llama-tied", hf("llama", tie_word_embeddings=True, rope_theta=500.0))
    case(scratch, "mistral", hf("mistral", head_dim=12, sliding_window=None))
    case(scratch, "qwen2", hf("qwen2"))
    case(scratch, "qwen3", hf("qwen3", head_dim=8))
    case(scratch, "gpt2", hf("gpt2"))
    m = hf("llama", tie_word_embeddings=False, rms_norm_eps=1e-5)
    case(scratch, "titan", m, titan_names(m.state_dict(), H, N), ("--heads", N))
    m = hf("gpt2")
    case(scratch, "script", m, script_names(m.state_dict()), ("--heads", N))
    updated(scratch, "llama", hf("llama", tie_word_embeddings=False, rms_norm_eps=1e-5))
    torch.distributed.destroy_process_group()
    return end()


sys.exit(main())
