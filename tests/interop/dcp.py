"""dcp.py TOOL CORPUS/dcp: torch.distributed.checkpoint.load of what was written, at world sizes 1 to 4.

Plain cases written for other numbers of ranks, loaded into tensors sharded over the world and gathered again
(make/loadback.py of the corpus): every tensor bit for bit, every object by its repr. And dcp_to_torch_save of the
source against `convert --to torch`."""
import os, re, shutil, subprocess, sys, tempfile

ROWS = [("dcp_net_fsdp3", 1, 3), ("dcp_net_fsdp3", 2, 1), ("dcp_net_fsdp3", 3, 2), ("dcp_net_single", 4, 3),
        ("dcp_w_threads3", 4, 1), ("dcp_w_ranklocal", 2, 3), ("dcp_w_stformat", 1, 2), ("dcp_zoo2", 1, 3)]

SAME = """
import sys, torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
dcp_to_torch_save(sys.argv[1], sys.argv[3])
def same(x, y):
    if isinstance(x, dict): return x.keys() == y.keys() and all(same(x[k], y[k]) for k in x)
    if isinstance(x, (list, tuple)): return len(x) == len(y) and all(map(same, x, y))
    if not isinstance(x, torch.Tensor): return type(x) is type(y) and repr(x) == repr(y)
    raw = lambda t: t.contiguous().reshape(-1).view(torch.uint8)
    return x.dtype == y.dtype and x.shape == y.shape and (x.numel() == 0 or torch.equal(raw(x), raw(y)))
a, b = (torch.load(f, weights_only=False) for f in (sys.argv[3], sys.argv[2]))
sys.exit(0 if same(a, b) else 1)
"""


def run(*args, **more):
    return subprocess.run([str(a) for a in args], capture_output=True, text=True, **more)


def load(tool, corpus, case, world, ranks, tmp):
    out = f"{tmp}/out"
    p = run(tool, "convert", f"{corpus}/{case}/ckpt", out, "--to", "dcp", "--ranks", ranks)
    if p.returncode:
        return p.stderr[-300:]
    truth = f"{corpus}/{case}/truth.safetensors"
    p = run(sys.executable, f"{corpus}/make/loadback.py", "--ckpt", out, "--truth", truth, "--topology",
            f"world={world}", "--generic", cwd=tmp)
    m = re.search(r"compared (\d+) tensors, (\d+) objects: (\d+) differ", p.stdout)
    return None if m and m[3] == "0" and int(m[1]) > 0 else (p.stdout + p.stderr)[-300:]


def whole(tool, corpus, case, tmp):
    p = run(tool, "convert", f"{corpus}/{case}/ckpt", f"{tmp}/one.pt", "--to", "torch")
    if p.returncode:
        return p.stderr[-300:]
    p = run(sys.executable, "-c", SAME, f"{corpus}/{case}/ckpt", f"{tmp}/one.pt", f"{tmp}/torch.pt")
    return None if p.returncode == 0 else "differs from dcp_to_torch_save " + p.stderr[-300:]


def main():
    tool, corpus = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    jobs = []
    for c, w, r in ROWS:
        jobs.append((f"{c} for {r} ranks at world {w}", lambda t, c=c, w=w, r=r: load(tool, corpus, c, w, r, t)))
    jobs += [(f"{c} as a file", lambda t, c=c: whole(tool, corpus, c, t)) for c in ("dcp_net_single", "dcp_net_fsdp3")]
    failed = 0
    for name, job in jobs:
        tmp = tempfile.mkdtemp(prefix="ckr-dcp-")
        why = job(tmp)
        shutil.rmtree(tmp, ignore_errors=True)
        print(f"dcp {name}: {'ok' if not why else why}", flush=True)
        failed += why is not None
    print(f"{len(jobs) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
