"""titan022.py TOOL CORPUS/dcp WHEEL_DIR [NAME...]: torchtitan 0.2.2 goes on from what was written.

WHEEL_DIR holds the torchtitan/ of that version's wheel, unpacked. As titan.py does with the newest: the corpus's case
is converted, loaded by the whole Trainer of that version with the settings of the report, every tensor compared bit
for bit, and the LR of the updates after the resume with what `lr` printed."""
import json, os, shutil, subprocess, sys, tempfile

OLD = "torchtitan:steps=20,warmup_steps=4,decay_type=linear,min_lr_factor=0"
LONG = ["--to-schedule", "torchtitan:steps=40,warmup_steps=4", "--lr-policy"]
SHORT = ["--to-schedule", "torchtitan:steps=12,warmup_steps=4", "--lr-policy"]
ROWS = {  # name: (arguments of the tool, topology)
    "same": ([], {"dp_shard": 2}),
    "dp1": (["--dp", "1"], {}),
    "dp4": (["--dp", "4"], {"dp_shard": 4}),
    "hsdp": (["--dp", "2"], {"dp_replicate": 2}),
    "target": (LONG + ["target"], {"dp_shard": 2}),
    "splice": (LONG + ["splice"], {"dp_shard": 2}),
    "stretch": (LONG + ["stretch"], {"dp_shard": 2}),
    "short": (SHORT + ["stretch"], {"dp_shard": 2}),
    "rewarm": (SHORT + ["rewarm", "--rewarm-steps", "1"], {"dp_shard": 2}),
    "lr": (["--set", "lr=0.001"], {"dp_shard": 2}),
    "wd": (["--set", "weight_decay=0.5"], {"dp_shard": 2}),
}


def settings(block, case):
    """The plan's settings in the words of the corpus's program."""
    out = {**case, "sched": {}, "ckpt": {"load_step": 10}}
    for key, value in ((x["key"], x["value"]) for x in block):
        if key == "training.steps":
            out["steps"] = value
        elif key == "optimizer.param_groups.0.optimizer_kwargs.lr":
            out["lr"] = value
        elif key.startswith("lr_scheduler."):
            out["sched"][key[13:]] = value
        elif key == "checkpoint.exclude_from_loading":
            out["ckpt"]["exclude_from_loading"] = value.split(",")
    return out


def job(rank, world, spec):
    import tt_old
    build = tt_old.build

    def built(c, folder):
        trainer = build(c, folder)
        for o, s in zip(trainer.optimizers, trainer.lr_schedulers.schedulers):
            for g in o.param_groups:       # the program's base LR is fixed: as the configuration would set it
                g["lr"] = g["initial_lr"] = c.get("lr", 0.01)
            s.base_lrs = [c.get("lr", 0.01)] * len(s.base_lrs)
        return trainer

    tt_old.build = built
    return tt_old.job(rank, world, spec)


def row(tool, corpus, name, T, case):
    import torch
    from safetensors.torch import load_file
    args, topology = ROWS[name]
    start, out = f"{corpus}/tt022_dp2/ckpt/step-10", f"./run/{name}/ckpt/step-10"
    os.makedirs(os.path.dirname(out))
    p = subprocess.run([tool, "convert", start, out, *args, "--schedule", OLD, "--json"], capture_output=True)
    if p.returncode:
        return f"convert: {p.stdout[-300:]}"
    c = settings(json.loads(p.stdout)["settings"], {**case, "topology": topology})
    curve = [a for a in args if not a.startswith("--dp") and a not in "124"] if "--dp" in args else args
    p = subprocess.run([tool, "lr", start, *curve, "--schedule", OLD, "--from", "11", "--to", "40", "--json"],
                       capture_output=True)
    want = {} if p.returncode else {r["step"]: r["lr"] for r in json.loads(p.stdout)["after"]}
    t = {"dp_shard": 1, "dp_replicate": 1, **topology}
    spec = dict(name=name, c=c, capture=[], want_live=True)
    result = T.launch(t["dp_shard"] * t["dp_replicate"], job, spec, timeout=170)
    rec = [r[1][0] if r[0] == "ok" else {"error": r[1][-300:], "lr": {}} for r in result]
    if rec[0]["error"] or rec[0].get("start_step") != 10:
        return f"load: {str(rec[0]['error'])[-300:]}"
    truth, have = load_file(f"{corpus}/tt022_dp2/truth.safetensors"), torch.load(f"./run/{name}/truth_0.pt")["loaded"]
    bad = [k for k in truth if k not in have or have[k].dtype != truth[k].dtype or not torch.equal(have[k], truth[k])]
    if bad:
        return f"{len(bad)} of {len(truth)} tensors differ, {bad[0]}"
    if len(rec[0]["lr"]) < 2:
        return "fewer than 2 updates were run"
    for step, lr in rec[0]["lr"].items():
        if step in want and any(abs(a - b) > 1e-9 * abs(b) for a, b in zip(lr, want[step])):
            return f"update {step}: torchtitan used {lr}, lr said {want[step]}"
    return None


def main():
    tool, corpus, wheel = (os.path.abspath(a) for a in sys.argv[1:4])
    names, failed = sys.argv[4:] or list(ROWS), 0
    sys.argv = [sys.argv[0], "unused", wheel]      # as the corpus's program reads them
    sys.path[:0] = [wheel, f"{corpus}/make"]
    os.environ["PYTHONPATH"] = os.pathsep.join([wheel, f"{corpus}/make", os.environ.get("PYTHONPATH", "")])
    import tt_common, tt_old
    tt_old.patch_old()
    case = {k: v for k, v in tt_old.C["tt022_dp2"].items() if k not in ("where", "topology")}
    for name in names:
        tmp, back = tempfile.mkdtemp(prefix="ckr-titan-"), os.getcwd()
        os.chdir(tmp)
        try:
            why = row(tool, corpus, name, tt_common, case)
        finally:
            os.chdir(back)
            shutil.rmtree(tmp, ignore_errors=True)
        print(f"torchtitan 0.2.2 {name}: {'ok' if not why else why}", flush=True)
        failed += why is not None
    print(f"{len(names) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
