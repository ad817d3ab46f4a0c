"""dist.py TOOL: what `tree --json` says of DTensors and ShardedTensors, beside the live processes.

Runs of 1 to 6 processes (gloo, CPU) on meshes of one to three axes: distribute_tensor with every placement, FSDP2,
HSDP, FSDP2 over tensor parallelism (strided shards, even and uneven), FSDP1 with and without a mesh. Every element is
its number in the whole tensor. Each rank saves its file and compares: mesh, names, ranks, placements, its own rank; the
box that the tool tells cuts from the whole exactly what the rank holds. Prints a line per failure, then `N passed, N
failed`."""
import json, os, subprocess, sys, tempfile, warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn

SHAPES = [(8, 6), (11, 3), (2, 5), (7,), (3, 4, 5), (1, 9)]


def whole(shape):
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


def model(dim=8, hidden=12, rows=13):
    m = nn.Sequential(nn.Embedding(rows, dim), nn.Linear(dim, hidden), nn.Linear(hidden, dim, bias=False),
                      nn.LayerNorm(dim))
    with torch.no_grad():
        for p in m.parameters():
            p.copy_(whole(p.shape))
    return m


def plain_cases(world):
    """Every placement on every mesh of that many ranks."""
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.placement_types import _StridedShard
    out = {}
    meshes = [init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",)), DeviceMesh("cpu", torch.arange(world))]
    meshes += [init_device_mesh("cpu", (a, world // a), mesh_dim_names=("dp", "tp"))
               for a in (1, 2, 3) if world % a == 0]
    if world == 4:
        meshes.append(init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("pp", "dp", "tp")))
    meshes += [meshes[-1][name] for name in meshes[-1].mesh_dim_names or ()]
    for i, mesh in enumerate(meshes):
        for shape in SHAPES:
            kinds = [Replicate()] + [Shard(d) for d in range(min(2, len(shape)))]
            for first in kinds:
                for last in kinds:
                    places = [last] if mesh.ndim == 1 else [first] + [Replicate()] * (mesh.ndim - 2) + [last]
                    out[f"{i} {shape} {places}"] = distribute_tensor(whole(shape), mesh, places)
        if mesh.ndim == 2 and mesh.size(1) > 1:
            places = [_StridedShard(0, split_factor=mesh.size(1)), Shard(0)]
            out[f"{i} {places}"] = distribute_tensor(whole((2 * world, 3)), mesh, places)
    return out


def fsdp2(mesh, tp=None, rows=13, hidden=12):
    """FSDP2 over the mesh, over tensor parallelism where that is not None."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    m = model(rows=rows, hidden=hidden)
    if tp is not None:
        parallelize_module(m, tp, {"1": ColwiseParallel(), "2": RowwiseParallel()})
    for layer in m:
        fully_shard(layer, mesh=mesh)
    fully_shard(m, mesh=mesh)
    return m.state_dict()


def fsdp1(mesh, orig):
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardedStateDictConfig, StateDictType
    m = FSDP(model(), device_mesh=mesh, use_orig_params=orig, device_id=torch.device("cpu"))
    with FSDP.state_dict_type(m, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(offload_to_cpu=True)):
        return m.state_dict()


def cases(world):
    from torch.distributed.device_mesh import init_device_mesh
    out = {"plain": plain_cases(world)}
    flat = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
    out["fsdp2"] = fsdp2(flat)
    if world > 1:
        out["fsdp1"] = fsdp1(None, True)
        out["fsdp1 flat"] = fsdp1(None, False)
        out["fsdp1 mesh"] = fsdp1(flat, True)
    if world % 2 == 0:
        two = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
        out["hsdp"] = fsdp2(two)
        for hidden in (12, 4, 6 * world):
            out[f"fsdp2 over tp {hidden}"] = fsdp2(two["dp"], two["tp"], hidden=hidden)
    return out


def placement(p):
    kind = type(p).__name__
    told = {"kind": kind}
    if hasattr(p, "dim"):
        told["dim"] = p.dim
    if kind == "_StridedShard":
        told["split_factor"] = p.split_factor
    return told


def cut(shard, t):
    return t[tuple(slice(a, a + n) for a, n in zip(shard["start"], shard["count"]))]


def dtensor(told, t, rank, world):
    mesh = t.device_mesh
    have = told["mesh"]
    if have["shape"] != list(mesh.shape) or have["device_type"] != mesh.device_type:
        return "another mesh"
    if have["names"] != (list(mesh.mesh_dim_names) if mesh.mesh_dim_names else None):
        return "other names"
    if have["ranks"] != mesh.mesh.flatten().tolist() or told["rank"] != rank or told["world"] != world:
        return f"other ranks: {have['ranks']}"
    if told["placements"] != [placement(p) for p in t.placements]:
        return f"other placements: {told['placements']}"
    if "fault" in told:
        return told["fault"]
    if len(told["shards"]) != 1 or told["shards"][0]["rank"] != rank:
        return "other shards"
    shard, live = told["shards"][0], t.to_local()
    part = cut(shard, whole(t.shape))
    if shard["local"]["shape"] != list(live.shape) or shard["local"]["dtype"] != str(live.dtype)[6:]:
        return "another local tensor"
    return None if torch.equal(part, live) or part.numel() + live.numel() == 0 else f"another box: {shard}, {live}"


def sharded(told, t, rank, world):
    if "fault" in told:
        return told["fault"]
    if "mesh" in told or told["rank"] != rank or told["world"] != world:
        return "another rank"
    want = [(m.shard_offsets, m.shard_sizes, m.placement.rank()) for m in t.metadata().shards_metadata]
    have = [(s["start"], s["count"], s["rank"]) for s in told["shards"]]
    if have != [(list(a), list(b), c) for a, b, c in want]:
        return f"other shards: {have}"
    local = [s for s in told["shards"] if "local" in s]
    if len(local) != len(t.local_shards()):
        return "other local shards"
    w = whole(t.size()) if t.dim() > 1 else None       # flat parameters hold several
    ok = all(w is None or torch.equal(cut(a, w), b.tensor) for a, b in zip(local, t.local_shards()))
    return None if ok else "another box"


def compare(tool, path, d, rank, world):
    """What is wrong, a line each."""
    p = subprocess.run([tool, "tree", path, "--json"], capture_output=True, text=True)
    if p.returncode:
        return [p.stderr.strip()], 0
    bad, n = [], 0
    for key, value in json.loads(p.stdout)["root"]["v"]:
        t = d[key["v"]]
        if type(t).__name__ not in ("DTensor", "ShardedTensor"):
            continue
        n += 1
        told = value.get("dist")
        why = "no dist" if told is None else (dtensor if hasattr(t, "device_mesh") else sharded)(told, t, rank, world)
        if why:
            bad.append(f"{key['v']}: {why}")
    return bad, n


def run(rank, world, tool, tmp):
    warnings.filterwarnings("ignore")
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    dist.init_process_group("gloo", init_method=f"file://{tmp}/group{world}", rank=rank, world_size=world)
    for name, d in cases(world).items():
        path = f"{tmp}/{world}_{rank}.pt"
        torch.save(dict(d), path)
        bad, n = compare(tool, path, d, rank, world)
        for line in bad[:5]:
            print(f"{world} ranks, rank {rank}, {name}: {line}", flush=True)
        open(f"{tmp}/count", "a").write(f"{n - len(bad)} {len(bad) if n else 1}\n")
    dist.barrier()
    dist.destroy_process_group()


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        for world in (1, 2, 3, 4, 6):
            mp.spawn(run, (world, os.path.abspath(sys.argv[1]), tmp), world)
        counts = [tuple(map(int, line.split())) for line in open(f"{tmp}/count")]
    passed, failed = sum(c[0] for c in counts), sum(c[1] for c in counts)
    print(f"{passed} passed, {failed} failed")
    return failed != 0 or passed < 100


if __name__ == "__main__":
    sys.exit(main())
