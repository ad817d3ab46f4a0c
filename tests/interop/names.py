"""Names of models, for the scripts here."""


def titan_names(state, hidden, heads):
    """A Llama of transformers as TorchTitan has it: its rotation takes neighbouring channels, not halves."""
    names = {"model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output",
             "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm", "self_attn.": "attention.",
             "q_proj": "wq", "k_proj": "wk", "v_proj": "wv", "o_proj": "wo", "mlp.": "feed_forward.",
             "gate_proj": "w1", "down_proj": "w2", "up_proj": "w3", "model.layers": "layers"}
    out = {}
    for name, t in state.items():
        if "q_proj" in name or "k_proj" in name:
            t = t.view(-1, 2, hidden // heads // 2, hidden).transpose(1, 2).reshape(t.shape)
        for a, b in names.items():
            name = name.replace(a, b)
        out[name] = t.contiguous()
    return out
