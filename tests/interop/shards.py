"""shards.py TOOL: `--max-shard-size` against transformers and safetensors.

Small models, one with tied embeddings, saved whole by transformers, split by `convert` and by `export`, and loaded
again from the directory that was written: every parameter bit for bit. The index beside huggingface_hub's own split
of the same tensors in the same order: the same file for each, the same total_size."""
import json, os, shutil, subprocess, sys, tempfile

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors import safe_open
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, logging

logging.set_verbosity_error()
logging.disable_progress_bar()
LLAMA = dict(vocab_size=61, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2)
MODELS = {
    "tied": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, tie_word_embeddings=True)),
    "untied bf16": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, tie_word_embeddings=False)).to(torch.bfloat16),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=24, n_layer=2, n_head=2)),
}
SIZES = {"1KB": 1000, "20KB": 20000, "16K": 16384, "5GB": 5000000000}


def stored(folder):
    """The tensors of a directory: its one file, or what its index names, each in the file that it names."""
    index = f"{folder}/model.safetensors.index.json"
    if not os.path.exists(index):
        with safe_open(f"{folder}/model.safetensors", "pt") as f:
            return {k: f.get_tensor(k) for k in f.keys()}, None
    told, out = json.load(open(index)), {}
    files = {f for f in os.listdir(folder) if f.endswith(".safetensors")}
    assert files == set(told["weight_map"].values()), "the index names other files than there are"
    for name in sorted(files):
        with safe_open(f"{folder}/{name}", "pt") as f:
            assert f.metadata()["format"] == "pt", f"{name} does not say its framework"
            for k in f.keys():
                assert told["weight_map"][k] == name and k not in out, f"{k} is in {name}"
                out[k] = f.get_tensor(k)
    assert out.keys() == told["weight_map"].keys(), "the index names tensors that no file has"
    assert told["metadata"]["total_size"] == sum(t.nbytes for t in out.values()), "total_size"
    return out, told["weight_map"]


def same(a, b):
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a)


def row(tool, verb, size, model, tmp):
    model.save_pretrained(f"{tmp}/whole")
    src, out = f"{tmp}/whole/model.safetensors", f"{tmp}/{verb}"
    more = ["--to", "safetensors"] if verb == "convert" else []
    p = subprocess.run([tool, verb, src, out, *more, "--max-shard-size", size], capture_output=True, text=True)
    if p.returncode:
        return p.stderr[-300:]
    have, index = stored(out)
    with safe_open(src, "pt") as f:
        ordered = {k: f.get_tensor(k) for k in f.keys()}
    if not same(have, ordered):
        return "other tensors than the one file has"
    want = split_torch_state_dict_into_shards(ordered, max_shard_size=SIZES[size])
    if index != (want.tensor_to_filename if want.is_sharded else None):
        return f"huggingface_hub has {want.tensor_to_filename}, the index {index}"
    shutil.copy(f"{tmp}/whole/config.json", out)
    back = AutoModelForCausalLM.from_pretrained(out, dtype="auto")
    return None if same(back.state_dict(), model.state_dict()) else "transformers loads other parameters"


def main():
    tool, failed, n = os.path.abspath(sys.argv[1]), 0, 0
    for name, make in MODELS.items():
        torch.manual_seed(1)
        model = make()
        for verb in "convert", "export":
            for size in SIZES:
                tmp = tempfile.mkdtemp(prefix="ckr-shards-")
                try:
                    why = row(tool, verb, size, model, tmp)
                except AssertionError as e:
                    why = str(e)
                finally:
                    shutil.rmtree(tmp, ignore_errors=True)
                n += 1
                failed += why is not None
                if why:
                    print(f"shards {name}, {verb}, {size}: {why}", flush=True)
    print(f"shards: {n - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
