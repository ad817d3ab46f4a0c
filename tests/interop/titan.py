"""titan.py TOOL CORPUS/dcp [NAME...]: unpatched torchtitan goes on from what was written.

Each row converts the dp 2 case, with another data-parallel size or another schedule and policy, loads it in
torchtitan itself (make/loadback.py of the corpus) with the settings that the report names, and compares every tensor
bit for bit and the LR of the updates after the resume with what `lr` printed."""
import json, os, re, shutil, subprocess, sys, tempfile

OLD = "torchtitan:steps=20,warmup_steps=4,decay_type=linear,min_lr_factor=0"
LONG = "torchtitan:steps=40,warmup_steps=4"
COSINE = LONG + ",decay_type=cosine,min_lr_factor=0.1"


def to(schedule, policy):
    return ["--to-schedule", schedule, "--lr-policy", policy]


ROWS = {  # name: (arguments of the tool, topology, updates to run)
    "same": ([], "dp_shard=2", 3),
    "dp1": (["--dp", "1"], "dp_shard=1", 0),
    "dp3": (["--dp", "3"], "dp_shard=3", 0),
    "dp4": (["--dp", "4"], "dp_shard=4", 0),
    "tp2": (["--dp", "2", "--tp", "2"], "dp_shard=2,tp=2", 0),
    "pp2": (["--dp", "1", "--pp", "2"], "pp=2", 0),
    "hsdp": (["--dp", "2"], "dp_replicate=2,dp_shard=1", 0),
    "target": (to(LONG, "target"), "dp_shard=2", 4),
    "splice": (to(LONG, "splice"), "dp_shard=2", 4),
    "stretch": (to(LONG, "stretch"), "dp_shard=2", 4),
    "stretch37": (to("torchtitan:steps=37,warmup_steps=4", "stretch"), "dp_shard=2", 4),
    "short": (to("torchtitan:steps=12,warmup_steps=4", "stretch"), "dp_shard=2", 2),
    "warmup": (to("torchtitan:steps=40,warmup_steps=15", "splice"), "dp_shard=2", 4),
    "wsd": (to(LONG + ",decay_ratio=0.5", "splice"), "dp_shard=2", 4),
    "cosine": (to(COSINE, "splice"), "dp_shard=2", 4),
    "rewarm12": (to("torchtitan:steps=12,warmup_steps=4", "rewarm") + ["--rewarm-steps", "1"], "dp_shard=2", 2),
    "rewarm13": (to("torchtitan:steps=13,warmup_steps=4", "rewarm") + ["--rewarm-steps", "2"], "dp_shard=2", 3),
    "rewarm40": (to(LONG, "rewarm") + ["--rewarm-steps", "2"], "dp_shard=2", 4),
    "rewarm_cos": (to(COSINE, "rewarm") + ["--rewarm-steps", "1"], "dp_shard=2", 4),
    "lr": (["--set", "lr=0.001"], "dp_shard=2", 3),
    "fresh": (["--without", "optimizer"], "dp_shard=2", 0),
    "wd": (["--set", "weight_decay=0.5"], "dp_shard=2", 2),
    "split": (["--variant", "split_qkv", "--kv-heads", "2"], "dp_shard=2", 2),
    "fused": (["--variant", "fused_qkv", "--kv-heads", "2"], "dp_shard=2", 2),
}


# what these topologies need besides: a batch that divides, and what torchtitan does with an odd vocabulary
MORE = {"split": ["--set", "margs.fuse_qkv=false"], "dp3": ["--set", "global_batch=6"],
        "tp2": ["--set", "spmd_backend=partial_dtensor"]}


def settings(block):
    """The plan's settings as loadback's --set; the groups' base LRs are this case's norm_lr and lr."""
    out = []
    names = {"training.steps": "steps", "optimizer.param_groups.0.optimizer_kwargs.lr": "opt.norm_lr",
             "optimizer.param_groups.1.optimizer_kwargs.lr": "opt.lr"}
    for x in block:
        key, value = names.get(x["key"], x["key"]), x["value"]
        if key.startswith("lr_scheduler."):
            key = "sched." + key[13:]
        if key == "checkpoint.exclude_from_loading":
            key, value = "ckpt.exclude_from_loading", json.dumps(value.split(","))
        if key.startswith("checkpoint."):
            continue
        out += ["--set", f"{key}={value}"]
    return out


def split_truth(path, out):
    """The optimizer's state of fused projections cut as torchtitan cuts the weights: 2 key-value heads, of 2 query
    heads each."""
    from safetensors.torch import load_file, save_file
    truth = load_file(path)
    for key in [k for k in truth if ".wqkv." in k]:
        t = truth.pop(key)
        if key.startswith("live_param."):
            continue
        w = t.reshape(2, 4, -1, *t.shape[1:]) if t.dim() else None
        for part, at in ("wq", slice(0, 2)), ("wk", slice(2, 3)), ("wv", slice(3, 4)):
            cut = t.clone() if w is None else w[:, at].reshape(-1, *t.shape[1:]).contiguous()
            truth[key.replace(".wqkv.", f".{part}.")] = cut
    save_file(truth, out)
    return out


def row(tool, corpus, name):
    args, topology, steps = ROWS[name]
    case, tmp = f"{corpus}/tt_dp2", tempfile.mkdtemp(prefix="ckr-titan-")
    try:
        told = ["--schedule", OLD]
        out = f"{tmp}/ckpt/step-10"
        os.makedirs(f"{tmp}/ckpt")
        start, truth = f"{case}/ckpt/step-10", f"{case}/truth.safetensors"
        if name == "fused":
            start = f"{tmp}/split/step-10"
            os.makedirs(f"{tmp}/split")
            cut = [tool, "convert", f"{case}/ckpt/step-10", start, *ROWS["split"][0], *told]
            subprocess.run(cut, capture_output=True)
        if name == "split":
            truth = split_truth(truth, f"{tmp}/truth.safetensors")
            shutil.copy(f"{case}/truth.json", tmp)
        p = subprocess.run([tool, "convert", start, out, *args, *told, "--json"], capture_output=True)
        if p.returncode:
            return f"convert: {p.stdout[-300:]}"
        curve = [] if "--variant" in args else [a for a in args if a not in ("--dp", "--tp", "--pp")]
        given = settings(json.loads(p.stdout)["settings"])
        p = subprocess.run([tool, "lr", f"{case}/ckpt/step-10", *curve,
                            *told, "--from", "11", "--to", "14", "--json"], capture_output=True)
        want = {} if p.returncode else {r["step"]: r["lr"] for r in json.loads(p.stdout)["after"]}
        given += MORE.get(name, [])
        back = [f"{corpus}/make/loadback.py", "--ckpt", out, "--truth", truth]
        back += ["--topology", topology, "--steps", str(steps), *given]
        p = subprocess.run([sys.executable, *back], capture_output=True, text=True, cwd=tmp)
        differ = re.search(r"compared (\d+) tensors: (\d+) differ", p.stdout)
        if not differ:
            return f"load: {(p.stdout + p.stderr)[-400:]}"
        if name == "fresh":
            return None if int(differ[2]) == 72 else f"{differ[2]} differ, expected 72 of fresh optimizer state"
        if differ[2] != "0":
            return f"{differ[2]} of {differ[1]} tensors differ"
        for step, lr in re.findall(r"step (\d+): lr \[(.*?)\] loss", p.stdout):
            have, at = [float(v) for v in re.findall(r"[-+.e\d]+", lr)], want.get(int(step))
            if not at or any(abs(a - b) > 1e-9 * abs(b) for a, b in zip(have, at)):
                return f"update {step}: torchtitan used {have}, lr said {at}"
        if steps and "step 11" not in p.stdout:
            return "no update was run"
        return None
    finally:
        shutil.rmtree(tmp, ignore_errors=True)


def main():
    tool, corpus, names = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:] or list(ROWS)
    failed = 0
    for name in names:
        why = row(tool, corpus, name)
        print(f"torchtitan {name}: {'ok' if not why else why}", flush=True)
        failed += why is not None
    print(f"{len(names) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
