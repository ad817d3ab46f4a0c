"""gpt.py TOOL SCRATCH: GPTs of other frameworks as Megatron-LM's.

Weights of transformers' Llama, Qwen2, Qwen3 and GPT-2, of TorchTitan's names and of a script's (nanoGPT's) become
checkpoints of Megatron-LM, whose own GPTModel (megatron-core, its local modules) loads them strictly and gives the
logits of the model that they came from: order of fused rows, gate and up, rotation and norms are then right. Both
compute in float32, in another order of sums: 1e-4 of logits around 1 is far from what any permutation would give.
Prints a line per failure, then `N passed, N failed`.
"""

import contextlib
import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import torch
from count import end, expect

warnings.filterwarnings("ignore")
V, H, L, N, KV, F, S = 61, 32, 3, 4, 2, 44, 16


def tool(*args):
    p = subprocess.run([sys.argv[1], *map(str, args)], capture_output=True, text=True)
    return p.returncode, p.stdout + p.stderr


def hf(kind, **more):
    import transformers as t

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


def titan_names(state):
    """transformers' Llama as TorchTitan has it: its rotation takes neighbouring channels, not halves."""
    names = {"model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output",
             "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
             "self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk",
             "self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1",
             "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3"}
    out = {}
    for name, t in state.items():
        if "q_proj" in name or "k_proj" in name:
            t = t.view(-1, 2, H // N // 2, H).transpose(1, 2).reshape(t.shape)
        for a, b in names.items():
            name = name.replace(a, b)
        out[name.replace("model.layers", "layers")] = t.contiguous()
    return out


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
        have = logits(megatron(file["args"], file["model"]), tokens)[..., :V]
    worst = float((want - have).abs().max())
    expect(worst < 1e-4 * max(1.0, float(want.abs().max())), f"{name}: logits differ by {worst}")


def main():
    scratch = Path(sys.argv[2])
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
    case(scratch, "titan", m, titan_names(m.state_dict()), ("--heads", N))
    m = hf("gpt2")
    case(scratch, "script", m, script_names(m.state_dict()), ("--heads", N))
    torch.distributed.destroy_process_group()
    return end()


sys.exit(main())
