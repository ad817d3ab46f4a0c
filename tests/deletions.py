#!/usr/bin/env python3
"""deletions.py TOOL CORPUS: does `check` say what the framework will do when a file is gone or misplaced?

Of each checkpoint a copy of links is made, without one file, with one of no bytes, or with two files of one kind in
each other's place, and `check` and `plan` are asked. A row passes when they say so: by their exit code, or by an
entry that names the file; or when FACTS tells that the framework does not open the file, or that nothing in any file
tells what was done. A file of no bytes must be refused by both, but for those of EMPTY. Two files that can change
places unseen must be counted by `check` of the whole checkpoint (CKR_W_SWAP_UNSEEN).

One checkpoint of each layout, and neighbours only; --all: each checkpoint of the corpus, and each pair. --table prints
every row: checkpoint, what was done, the items of check and plan, and what the framework does, from its source.
"""

import argparse, itertools, json, os, re, subprocess, sys, tempfile
from concurrent.futures import ThreadPoolExecutor

LAYOUTS = """nanotron/tp2_pp1_dp2_zero1 nanotron/tp1_pp1_dp1 megatron/legacy_tp2_dp2_distopt
megatron/tdist_tp2_dp2_dr_buckets
deepspeed/dp2_zero1_fp32 deepspeed/dp2_zero3_fp32 deepspeed/pp2_dp2_zero1_bf16 accelerate/acc_w2_stateful_loader
accelerate/acc024_w2 accelerate/hf_gpt2_w2 accelerate/hf_llama_w1 fsdp/acc_fsdp2_full_w2 fsdp/acc_fsdp2_rankfiles_w4
fsdp/acc_fsdp2_sharded_w2 fsdp/trainer_fsdp2_sharded_w2 verl/fsdp2_w2 lightning/fsdp2_dcp_w2 dcp/tt_dp2
dcp/dcp_net_single
dcp/dcp_w_ranklocal dcp/dcp_w_hf_sharded dcp/tt_hf_export_dp2 rawdcp/olmo_core_w2 rawdcp/torchtune_recipe_w2
rawdcp/tutorial_app_w2 rawdcp/fsdp1_shardedtensor_torchsave_w3 llmc/p1_fp32_two_steps llmc/p2_z1_bf16""".split()

# What the framework does without the file: stops, skips (leaves out more than the file), fresh (begins anew),
# loses (goes on without what the file holds), other (takes another step), free (does not need it) and blind (nothing
# that is left tells that it was there). The first match counts. Each with the place in the source.
NANOTRON = [
    (r"latest\.txt", "fresh", "serialize/main.py: parse_ckpt_path returns None"),
    (r"config\.yaml", "free", "trainer.py: the configuration comes from the command line"),
    (r"random/", "free", "serialize/random.py: load_random_states has no caller"),
    (r"optimizer_config\.json", "stops", "serialize/optimizer.py: load_optimizer opens it first"),
    (r"lr_scheduler/", "stops", "serialize/optimizer.py: load_lr_scheduler"),
    (r"checkpoint_metadata\.json", "stops", "serialize/metadata.py: load_meta"),
    (r"model_config\.json", "stops", "serialize/main.py: parse_ckpt_path takes a step's directory by it"),
    (r"optimizer/", "stops", "serialize/optimizer.py: load_optimizer, each rank's"),
    (r"model/", "stops", "serialize/weights.py: load_weights, load_sharded_param_latest"),
]
MEGATRON = [
    (r"latest_checkpointed", "fresh", "training/checkpointing.py: _load_base_checkpoint returns no state"),
    (r"metadata\.json", "stops", "core/dist_checkpointing/serialization.py: load, check_is_distributed_checkpoint"),
    (r"common\.pt", "stops", "core/dist_checkpointing/strategies/common.py: load_common"),
    (r"\.metadata|\.distcp", "stops", "core/dist_checkpointing/strategies/torch.py: load, by torch's FileSystemReader"),
    (r"model_optim_rng\.pt", "stops", "training/checkpointing.py: _load_base_checkpoint"),
    (r"distrib_optim\.pt", "stops", "core/optimizer/distrib_optimizer.py: load_parameter_state"),
]
DEEPSPEED = [
    (r"latest", "fresh", "runtime/engine.py: load_checkpoint warns and returns None"),
    (r"layer_\d+", "stops", "runtime/pipe/module.py: load_state_dir"),
    (r"optim_states", "stops", "runtime/engine.py: _load_zero_checkpoint"),
    (r"model_states", "stops", "runtime/engine.py: _load_checkpoint"),
]
ACCELERATE = [
    (r"dl_state_dict", "blind", "checkpointing.py: load_accelerator_state loads it if it exists"),
    (r"random_states", "loses", "checkpointing.py: load_accelerator_state catches any exception"),
    (r"scheduler", "stops", "checkpointing.py: load_accelerator_state, for each scheduler that was prepared"),
    (r"optimizer\.bin", "stops", "checkpointing.py: load_accelerator_state, for each optimizer"),
    (r"optimizer_0", "stops", "utils/fsdp_utils.py: load_fsdp_optimizer"),
    (r"pytorch_model_fsdp", "stops", "utils/fsdp_utils.py: load_fsdp_model"),
    (r"model", "stops", "checkpointing.py: load_accelerator_state"),
]
TRAINER = [
    (r"generation_config|training_args", "free", "trainer.py: written beside the model, not read on resume"),
    (r"(^|/)config\.json", "free", "trainer.py: _load_from_checkpoint reads it if it is there, for a warning"),
    (r"rng_state", "loses", "trainer.py: _load_rng_state returns with a message"),
    (r"trainer_state", "stops", "trainer.py: train opens it; 5.x asks nothing before"),
    (r"scheduler", "skips", "trainer.py: _load_optimizer_and_scheduler loads both or neither"),
    (r"optimizer\.pt", "skips", "trainer.py: _load_optimizer_and_scheduler loads both or neither"),
    (r"optimizer_0", "stops", "trainer.py: _load_optimizer_and_scheduler, load_fsdp_optimizer"),
    (r"model", "stops", "trainer.py: _load_from_checkpoint"),
]
VERL = [
    (r"latest_checkpointed", "fresh", "utils/checkpoint/checkpoint_manager.py: find_latest_ckpt_path returns None"),
    (r"data\.pt", "loses", "trainer/ppo/ray_trainer.py: _load_checkpoint warns"),
    (r"fsdp_config|huggingface/", "free", "utils/checkpoint/fsdp_checkpoint_manager.py: load_checkpoint opens neither"),
    (r"(model|optim|extra_state)_", "stops", "utils/checkpoint/fsdp_checkpoint_manager.py: load_checkpoint"),
]
LIGHTNING = [
    (r"meta\.pt", "stops", "fabric/strategies/fsdp.py: _is_sharded_checkpoint; model_parallel.py: _load_checkpoint"),
    (r"\.metadata|\.distcp", "stops", "torch/distributed/checkpoint/filesystem.py: FileSystemReader"),
]
TITAN = [
    (r"step-20/\.metadata", "free", "components/checkpoint.py: _find_load_step takes step 10, which is reported"),
    (r"step-10/\.metadata", "other", "components/checkpoint.py: _find_load_step takes a step by its .metadata"),
    (r"step-20/__", "free", "it is another step: 20 has the model alone, and step 10 is the one that is reported"),
    (r"sharded/", "free", "components/checkpoint.py: the consolidated file beside it is loaded"),
    (r"\.index\.json", "stops", "components/checkpoint.py: load of Hugging Face's form, state_dict_adapter.py"),
    (r"", "stops", "torch/distributed/checkpoint/filesystem.py: FileSystemReader"),
]
DCP = [
    (r"shard-00002-model", "blind", "torch/distributed/checkpoint/hf_storage.py: read_metadata takes what there is"),
    (r"", "stops", "torch/distributed/checkpoint/filesystem.py: FileSystemReader"),
]
OLMO = [
    (r"\.metadata\.json", "fresh", "train/checkpoint.py: Checkpointer.dir_is_checkpoint"),
    (r"train/rank0", "stops", "train/checkpoint.py: Checkpointer.load"),
    (r"train/", "loses", "train/checkpoint.py: Checkpointer.load takes rank 0's instead"),
    (r"", "stops", "train/checkpoint.py: Checkpointer.load, get_checkpoint_metadata"),
]
TUNE = [
    (r"recipe_state", "stops", "training/checkpointing/_utils.py: get_recipe_checkpoint_path"),
    (r"", "stops", "training/checkpointing/_utils.py: get_model_checkpoint_path"),
]
LLMC = [
    (r"main\.log", "free", "llmc/logger.h: logger_init appends to it, or makes it"),
    (r"p1_.*_00000006", "free", "it is another step: llmc/utils.h: find_max_step takes the highest DONE_"),
    (r"p1_.*DONE_00000012", "other", "llmc/utils.h: find_max_step takes the highest DONE_"),
    (r"DONE_", "fresh", "llmc/utils.h: find_max_step returns -1"),
    (r"", "stops", "train_gpt2.cu: main, load_state; llmc/utils.h: fopenCheck"),
]
RANKS = [(r"", "stops", "the script's own torch.load of each rank's file")]

# by the beginning of the case's name
FACTS = [
    ("nanotron/", NANOTRON), ("megatron/", MEGATRON), ("deepspeed/", DEEPSPEED), ("accelerate/hf_", TRAINER),
    ("fsdp/trainer_", TRAINER), ("found/", TRAINER), ("accelerate/", ACCELERATE), ("fsdp/", ACCELERATE),
    ("verl/", VERL),
    ("lightning/", LIGHTNING), ("dcp/tt", TITAN), ("dcp/", DCP), ("rawdcp/olmo", OLMO), ("rawdcp/torchtune", TUNE),
    ("rawdcp/fsdp1", RANKS), ("rawdcp/", DCP), ("llmc/", LLMC),
]
# Kinds of files that hold no name, rank or shape that could tell one from another of the same layout.
UNSEEN = [
    ("nanotron/", r"model/.*\.safetensors", "serialize/weights.py: load_weights; each tensor is called data"),
    ("", r"\.distcp", "torch/distributed/checkpoint/filesystem.py: .metadata has file, offset and length alone"),
]
# Files whose bytes the framework does not read, and other steps than the one that it takes.
EMPTY = [
    (r"", r"generation_config|training_args|huggingface/|main\.log|/DONE_", "see FACTS"),
    ("nanotron/", r"config\.yaml|random/", "see FACTS"),
    ("dcp/tt", r"step-10/\.metadata", "components/checkpoint.py: step-20 is taken, which is reported"),
    ("dcp/tt", r"step-20/", "it is another step: step 10 is the one that is reported"),
    ("rawdcp/olmo", r"\.metadata\.json", "train/checkpoint.py: only its presence is asked for before a run goes on"),
    ("llmc/p1", r"00000006", "it is another step"),
]
SEVERE = ("changed", "approx", "lost", "error")


def fact(case, rel):
    rows = next((rows for head, rows in FACTS if case.startswith(head)), [])
    return next(((then, why) for pattern, then, why in rows if re.search(pattern, f"{case}/{rel}"
                 if pattern.startswith("p1_") else rel)), ("", "no row of FACTS"))


def files_of(ckpt):
    walk = os.walk(ckpt, followlinks=True)
    return sorted(os.path.relpath(os.path.join(d, f), ckpt) for d, _, names in walk for f in names)


def linked(ckpt, files, to):
    """`files`: name in the copy -> name in the checkpoint."""
    os.makedirs(to)
    for name, source in files.items():
        os.makedirs(os.path.dirname(os.path.join(to, name)), exist_ok=True)
        os.symlink(os.path.join(ckpt, source), os.path.join(to, name))


def ask(tool, verb, path):
    p = subprocess.run([tool, verb, path, "--json"], capture_output=True, text=True)
    d = json.loads(p.stdout) if p.stdout else {}
    if "error" in d:
        e = d["error"]
        return p.returncode, {(e["item"], "error", e.get("file") or "")}
    return p.returncode, {(e["code"], e["severity"], e.get("subject") or "") for e in d.get("report", [])}


def effect(tool, path):
    """What a run would go on with: tensors and streams."""
    def out(verb):
        return subprocess.run([tool, verb, path, "--json"], capture_output=True, text=True).stdout.replace(path, "")
    return json.loads(out("digest")).get("digest"), out("rng")


def same_bytes(ckpt, a, b):
    with open(os.path.join(ckpt, a), "rb") as f, open(os.path.join(ckpt, b), "rb") as g:
        return f.read() == g.read()


def named(subject, rel):
    base = os.path.basename(rel)
    pattern = ".*".join(map(re.escape, os.path.basename(subject).split("*")))
    return bool(subject) and (base in subject or re.fullmatch(pattern, base) is not None or
                              f"/{subject}/" in f"/{rel}" or os.path.basename(os.path.dirname(rel)) == subject)


class Case:
    def __init__(self, tool, corpus, name, every, scratch):
        self.tool, self.name, self.every = tool, name, every
        self.ckpt = os.path.join(os.path.abspath(corpus), name, "ckpt")
        self.files = files_of(self.ckpt)
        self.scratch = os.path.join(scratch, name.replace("/", "-"))
        self.nothing = os.path.join(scratch, "nothing")
        open(self.nothing, "w").close()
        self.base = self.asked(dict(zip(self.files, self.files)), "base")
        self.rows = []

    def asked(self, files, label, then=None):
        to = os.path.join(self.scratch, label)
        linked(self.ckpt, files, to)
        said = {v: ask(self.tool, v, to) for v in ("check", "plan")}
        return {v: (rc, {(c, s, n.replace(to, "")) for c, s, n in e}) for v, (rc, e) in said.items()}, \
            then(to) if then else None

    def jobs(self):
        kinds = {}
        for f in self.files:
            kinds.setdefault(re.sub(r"\d+", "#", f), []).append(f)
        jobs = [("without", f, None) for f in self.files] if len(self.files) > 1 else []
        jobs += [("empty", f, None) for f in self.files]
        for k in kinds.values():
            pairs = itertools.combinations(k, 2) if self.every else zip(k, k[1:])
            jobs += [("swap", a, b) for a, b in pairs if not same_bytes(self.ckpt, a, b)]
        return jobs

    def new(self, said, verb):
        """Of this verb: did it refuse, and the entries that the whole checkpoint does not have."""
        rc, entries = said[verb]
        was, before = self.base[0][verb]
        return rc != 0 and rc != was, {e for e in entries - before if e[1] in SEVERE or e[0] == "CKR_NEWER_STEP"}

    def emptied(self, said, a):
        then, why = fact(self.name, a)
        row = next((r for r in EMPTY if self.name.startswith(r[0]) and re.search(r[1], f"/{a}")), None)
        ok = bool(row) or all(said[v][0] != 0 for v in said)
        items = [" ".join(sorted(e[0] for e in self.new(said, v)[1])) or f"exit {said[v][0]}" for v in said]
        then, why = (then, row[2]) if row else ("refused", why)
        return ok, then, (self.name, f"{a} of no bytes", *items, then, why), (a, a)

    def run(self, n, job):
        how, a, b = job
        files = dict(zip(self.files, self.files))
        if how == "without":
            del files[a]
        elif how == "empty":
            files[a] = self.nothing
        else:
            files[a], files[b] = b, a
        said, _ = self.asked(files, str(n))
        if how == "empty":
            return self.emptied(said, a)
        spoken = [r or any(named(e[2], f) for e in new for f in ([a] if how == "without" else [a, b]))
                  for r, new in (self.new(said, v) for v in ("check", "plan"))]
        then, why = fact(self.name, a)
        ok = all(spoken)
        if how == "without":
            # another step is reported: with its name, not with that of the one that is passed over
            ok = bool(then) and (ok or then in ("free", "blind") or
                                 then == "other" and all(any(self.new(said, v)) for v in ("check", "plan")))
        elif not spoken[0]:
            to = os.path.join(self.scratch, str(n))
            whole = os.path.join(self.scratch, "base")
            if effect(self.tool, to) == effect(self.tool, whole):
                then, why, ok = "same", "each names its own", True
            else:
                row = next((r for r in UNSEEN if self.name.startswith(r[0]) and re.search(r[1], a)), None)
                then, why = ("unseen", row[2]) if row else ("", "no row of UNSEEN")
                ok = bool(row)
        elif not spoken[1]:
            # the planner reads no tensor's bytes; the conversion compares them before it writes
            ok = any(e[0] in ("CKR_E_MASTER_DIFFERS", "CKR_E_REPLICA_DIFFERS") for e in said["check"][1])
        items = [" ".join(sorted({e[0] for e in self.new(said, v)[1]})) or f"exit {said[v][0]}"
                 for v in ("check", "plan")]
        what = f"without {a}" if how == "without" else f"{a} <> {b}"
        return ok, then, (self.name, what, *items, then, why), (a, b)

    def counted(self, rows):
        """Each file that can change places unseen is counted in the whole checkpoint's entry."""
        blind = {f for _, then, _, pair in rows if then == "unseen" for f in pair}
        entry = [e for e in self.base[0]["check"][1] if e[0] == "CKR_W_SWAP_UNSEEN"]
        n = int(re.match(r"\d+", entry[0][2]).group()) if entry else 0
        return len(blind) <= n, f"{len(blind)} files can be swapped unseen, check counts {n}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tool")
    p.add_argument("corpus")
    p.add_argument("--all", action="store_true")
    p.add_argument("--table", action="store_true")
    p.add_argument("--only", default="")
    p.add_argument("--jobs", type=int, default=2)
    a = p.parse_args()
    names = LAYOUTS
    if a.all:
        names = [f"{d}/{n}" for d in sorted(os.listdir(a.corpus)) if os.path.isdir(os.path.join(a.corpus, d))
                 for n in sorted(os.listdir(os.path.join(a.corpus, d)))
                 if os.path.isdir(os.path.join(a.corpus, d, n, "ckpt"))
                 and any(f"{d}/{n}".startswith(h) for h, _ in FACTS) and not n.startswith("torch_")]
    passed = failed = 0
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(a.jobs) as pool:
        for name in names:
            if a.only not in name:
                continue
            case = Case(os.path.abspath(a.tool), a.corpus, name, a.all, scratch)
            if case.base[0]["check"][0] > 1:
                continue                       # refused when it is whole
            jobs = case.jobs()
            rows = list(pool.map(lambda j: case.run(*j), enumerate(jobs)))
            rows.append((*(lambda ok, what: (ok, "", (name, what, "", "", "", "")))(*case.counted(rows)), ()))
            for ok, _, row, _ in rows:
                passed, failed = passed + ok, failed + (not ok)
                if a.table or not ok:
                    print("ok  " if ok else "FAIL", " | ".join(row))
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
