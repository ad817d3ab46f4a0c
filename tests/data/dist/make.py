"""Writes the files beside it: DTensors and ShardedTensors of four processes (gloo, CPU), elements
are their row-major numbers in the whole tensor. live_rR.pt as torch saves them; older.pt with
meshes that have the attributes of older torch; faults.pt with what is wrong under its name.

    python3 make.py        torch 2.15
"""
import copy, os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

HERE = os.path.dirname(os.path.abspath(__file__))


def whole(*shape, dtype=torch.float32):
    return torch.arange(torch.Size(shape).numel(), dtype=dtype).reshape(shape)


def mutant(t, spec=None, mesh=None, state=None):
    """The DTensor with some attributes of its spec and mesh set; ... deletes one."""
    spec_was = t._spec
    t = copy.copy(t)
    s = copy.copy(spec_was)
    s.mesh = copy.copy(spec_was.mesh)
    for obj, new in ((s, spec), (s.mesh, mesh)):
        for k, v in (new or {}).items():
            if v is ...:
                obj.__dict__.pop(k, None)
            else:
                obj.__dict__[k] = v
    t._spec = s
    for k, v in (state or {}).items():
        setattr(t, k, v)
    return t


def layout(**attrs):
    """An object with such attributes, of a class beside torch's _MeshLayout."""
    import torch.distributed._mesh_layout as module
    if not hasattr(module, "OldLayout"):
        module.OldLayout = type("OldLayout", (), {"__module__": module.__name__})
    o = module.OldLayout()
    o.__dict__.update(attrs)
    return o


def older(t, names, like=None):
    """The mesh as DeviceMesh had it: to torch 2.8 with a tensor, then with a layout of its own."""
    m = t.device_mesh
    keep = dict(m.__dict__)
    new = {k: ... for k in keep}
    new["_flatten_mesh_list"] = tuple(m.mesh.flatten().tolist())
    new["_coordinate_on_dim"] = list(m.get_coordinate())
    new["_hash"] = 12345
    if like is None:
        new.update(device_type="cpu", mesh=m.mesh.clone(), mesh_dim_names=names,
                   _dim_group_infos=[("", [0, 1], "1")])
    else:
        new.update(_device_type="cpu", _mesh_dim_names=names, _rank_map=m._rank_map, _layout=like,
                   _rank=m._rank, _thread_id=None, _dim_group_names=["1", "3"])
    return mutant(t, mesh=new)


def faults(t, h):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard
    from torch.distributed.tensor._dtensor_spec import TensorMeta
    meta = TensorMeta(torch.Size((12, 3)), (3, 1), torch.float32)
    local = t._local_tensor
    cut = type(t.device_mesh._layout).from_sizes_strides
    return {
        "shape": mutant(t, state={"_local_tensor": local[:1].clone()}),
        "dims": mutant(t, state={"_local_tensor": local.flatten()}),
        "dtype": mutant(t, state={"_local_tensor": local.double()}),
        "meta": mutant(t, state={"_local_tensor": local.to("meta")}),
        "none": mutant(t, state={"_local_tensor": None}),
        "tensor_meta": mutant(t, spec={"tensor_meta": meta}),
        "no_mesh": mutant(t, spec={"mesh": None}),
        "no_places": mutant(t, spec={"placements": None}),
        "places": mutant(t, spec={"placements": (Shard(0), Replicate())}),
        "place": mutant(t, spec={"placements": ("Shard",)}),
        "dim": mutant(t, spec={"placements": (Shard(7),)}),
        "split": mutant(t, spec={"placements": (_StridedShard(0, split_factor=2**60),)}),
        "split_zero": mutant(t, spec={"placements": (_StridedShard(0, split_factor=0),)}),
        "rank": mutant(t, mesh={"_rank": 9}),
        "rank_none": mutant(t, mesh={"_rank": ..., "_coordinate_on_dim": None}),
        "coordinate": mutant(t, mesh={"_rank": ..., "_coordinate_on_dim": (5,)}),
        "coordinates": mutant(t, mesh={"_rank": ..., "_coordinate_on_dim": (0, 0)}),
        "ranks": mutant(t, mesh={"_flatten_rank_map": (0, 1)}),
        "ranks_text": mutant(t, mesh={"_flatten_rank_map": ("a", "b", "c", "d")}),
        "ranks_none": mutant(t, mesh={"_flatten_rank_map": ...}),
        "device": mutant(t, mesh={"_device_type": None}),
        "names": mutant(t, mesh={"_mesh_dim_names": ("a", "b")}),
        "name": mutant(t, mesh={"_mesh_dim_names": (3,)}),
        "layout": mutant(t, mesh={"_layout": None}),
        "layout_big": mutant(t, mesh={"_layout": cut((2**40,), (2**40,))}),
        "layout_far": mutant(t, mesh={"_layout": cut((4,), (9,))}),
        "layout_many": mutant(h, mesh={"_layout": cut((2,) * 20, (1,) * 20)}),
    }


def run(rank, world):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["DIST_PORT"])
    dist.init_process_group("gloo", rank=rank, world_size=world)
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.placement_types import _StridedShard
    from torch.distributed._functional_collectives import AsyncCollectiveTensor
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.metadata import ShardMetadata
    flat = init_device_mesh("cpu", (4,), mesh_dim_names=("fsdp",))
    plain = dist.device_mesh.DeviceMesh("cpu", torch.arange(4))
    two = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    three = init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("pp", "cp", "tp"))
    cut = distribute_tensor
    d = {
        "even": cut(whole(8, 3), flat, [Shard(0)]),
        "uneven": cut(whole(11, 3), flat, [Shard(0)]),
        "few": cut(whole(2, 3), flat, [Shard(0)]),
        "unnamed": cut(whole(6, dtype=torch.bfloat16), plain, [Shard(0)]),
        "hsdp": cut(whole(5, 4), two, [Replicate(), Shard(0)]),
        "strided": cut(whole(8, 3), two, [_StridedShard(0, split_factor=2), Shard(0)]),
        "both": cut(whole(7, 5), two, [Shard(0), Shard(1)]),
        "twice": cut(whole(9, 2), two, [Shard(0), Shard(0)]),
        "copies": cut(whole(3, 2), two, [Replicate(), Replicate()]),
        "scalar": cut(torch.zeros(()), two, [Replicate(), Replicate()]),
        "tp": cut(whole(4, 6), two["tp"], [Shard(1)]),
        "dp": cut(whole(4, 6), two["dp"], [Shard(0)]),
        "one": cut(whole(6, 2), three, [Shard(0), Shard(0), Shard(1)]),
        "parameter": torch.nn.Parameter(cut(whole(8, 3), flat, [Shard(0)])),
        "gaps": cut(whole(8, 3), two, [_StridedShard(0, split_factor=2), Replicate()]),
        "partial": DTensor.from_local(whole(2, 2), flat, [Partial()]),
    }
    wait = cut(whole(8, 3), flat, [Shard(0)])
    wait._local_tensor = AsyncCollectiveTensor(wait._local_tensor)
    d["waiting"] = wait
    extra = cut(whole(8, 3), flat, [Shard(0)])
    extra.note = "kept"
    d["extra"] = extra
    rows = whole(10, 4)
    shards = [sharded_tensor.Shard(rows[2 * rank + k : 2 * rank + k + 1].clone(),
                                   ShardMetadata([2 * rank + k, 0], [1, 4], f"rank:{rank}/cpu"))
              for k in range(2)]
    if rank == 3:
        shards[1] = sharded_tensor.Shard(rows[7:10].clone(),
                                         ShardMetadata([7, 0], [3, 4], "rank:3/cpu"))
    d["sharded"] = sharded_tensor.init_from_local_shards(shards, 10, 4)
    if rank >= 2:
        torch.save(d, f"{HERE}/live_r{rank}.pt")
    if rank == 3:
        hsdp = d["hsdp"]
        old = {
            "tensor": older(hsdp, ("dp", "tp")),
            "layout": older(hsdp, ("dp", "tp"), layout(shape=(2, 2), stride=(2, 1))),
            "line": older(d["uneven"], None, layout(shape=4, stride=1)),
        }
        torch.save(old, f"{HERE}/older.pt")
        torch.save(faults(d["even"], hsdp), f"{HERE}/faults.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("DIST_PORT", "29781")
    mp.spawn(run, (4,), 4)
