#!/usr/bin/env python3
"""frontier.py DIR KIND [--ranks N] [--layers N] [--hidden N] [--heads]: a checkpoint of a model of 405 billion
parameters, as the job of that many ranks would have left it: every name, size, place and header is as the framework
writes it, and tensors are holes, so that it takes the room of its metadata alone. Only Python's standard library.

  dcp     TorchTitan: torch.distributed.checkpoint, FSDP over 2,048 ranks: 7 million chunks, a .metadata of 1.3 GB.
          Of most chunks the archive's heads are holes, too; --heads: of none, which takes 5 KB a chunk
  zero3   DeepSpeed, ZeRO-3 over 1,024 ranks, random states of each
  nano    Nanotron, TP 8, ZeRO-1 over the rest of 512 ranks: 1.2 million pieces
  mega    Megatron-LM, torch_dist, fully_reshardable: TP 8, PP 16, distributed optimizer over the rest of 1,024 ranks
"""

import argparse, functools, io, math, os, pickle, struct
from pathlib import Path

import gen
from gen import Tensor, Steps, put_pt


class Sparse:
    """A file that keeps what is written as pieces; what is skipped is a hole of every copy."""

    def __init__(self):
        self.at, self.pieces, self.size = 0, [], 0

    def tell(self):
        return self.at

    def seek(self, n, whence):
        self.at += n

    def write(self, data):
        if self.pieces and self.pieces[-1][0] + len(self.pieces[-1][1]) == self.at:
            self.pieces[-1][1].extend(data)
        else:
            self.pieces.append((self.at, bytearray(data)))
        self.at += len(data)

    def copy_to(self, f, base):
        for at, data in self.pieces:
            f.seek(base + at)
            f.write(data)


def zeros_crc(n, known={}):
    """The CRC-32 of n zeros: that of the half twice, so that no gigabyte is read."""
    if n not in known:
        if n <= 1 << 16:
            known[n] = gen.zlib.crc32(bytes(n))
        else:
            half = zeros_crc(n // 2)
            known[n] = crc_add(crc_add(half, half, n // 2), zeros_crc(n % 2), n % 2)
    return known[n]


def crc_add(a, b, n):
    """The CRC-32 of what has a and n bytes behind it that have b, as zlib's crc32_combine."""

    def times(matrix, v):
        r, i = 0, 0
        while v:
            if v & 1:
                r ^= matrix[i]
            v, i = v >> 1, i + 1
        return r

    bit = [0xEDB88320] + [1 << i for i in range(31)]
    power = [times(bit, x) for x in bit]
    power = [times(power, x) for x in power]     # of four zero bits
    while n:
        power = [times(power, x) for x in power]
        if n & 1:
            a = times(power, a)
        n >>= 1
    return a ^ b


class Zeros:
    """What gen.py's writers take for the bytes of a tensor."""

    def write(self, f, size):
        f.seek(size, io.SEEK_CUR)
        return zeros_crc(size)


def archive(obj, source):
    f = Sparse()
    put_pt(f, "archive", obj, source)
    return f


TITAN = ("tok_embeddings", "layers.", "attention.qkv_linear.wq attention.qkv_linear.wk attention.qkv_linear.wv "
         "attention.wo feed_forward.w1 feed_forward.w2 feed_forward.w3 attention_norm ffn_norm", "norm", "lm_head")
HUGGING = ("model.embed_tokens", "model.layers.", "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj "
           "mlp.gate_proj mlp.down_proj mlp.up_proj input_layernorm post_attention_layernorm", "model.norm", "lm_head")


def llama(hidden, layers, names):
    """(name, shape) of each: Llama 3.1 405B, but 16 heads of keys and values, so that every tensor has rows for 2,048
    ranks."""
    inner, kv = hidden * 13 // 4, hidden // 8
    first, prefix, block, norm, head = names
    shapes = [(hidden, hidden), (kv, hidden), (kv, hidden), (hidden, hidden), (inner, hidden), (hidden, inner),
              (inner, hidden), (hidden,), (hidden,)]
    yield first + ".weight", (128256, hidden)
    for i in range(layers):
        for name, shape in zip(block.split(), shapes):
            yield f"{prefix}{i}.{name}.weight", shape
    yield norm + ".weight", (hidden,)
    yield head + ".weight", (128256, hidden)


# ---- pickles of any size, opcode for opcode as the C pickler writes them -----------------------


@functools.lru_cache(1 << 20)
def number(n):
    if 0 <= n < 256:
        return b"K%c" % n
    if 0 <= n < 65536:
        return b"M" + struct.pack("<H", n)
    if -(1 << 31) <= n < 1 << 31:
        return b"J" + struct.pack("<i", n)
    data = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a%c" % len(data) + data


class Stream:
    """Protocol 4: what is put is a whole number of opcodes; frames are closed behind 64 KiB."""

    def __init__(self, f):
        self.f, self.buf, self.size, self.memo, self.known = f, [], 0, 0, {}
        f.write(b"\x80\x04")

    def put(self, code, memo=0):
        self.buf.append(code)
        self.size += len(code)
        self.memo += memo
        if self.size >= 65536:
            self.flush()

    def flush(self):
        if self.size:
            self.f.write(b"\x95" + struct.pack("<Q", self.size) + b"".join(self.buf))
        self.buf, self.size = [], 0

    def once(self, key, make):
        """What the pickler writes in full where it first comes, and after that as its place in the memo."""
        if key not in self.known:
            make()
            self.put(b"\x94", 1)
            self.known[key] = b"h%c" % (self.memo - 1) if self.memo <= 256 else b"j" + struct.pack("<I", self.memo - 1)
        else:
            self.put(self.known[key])

    def text(self, s, key=None):
        self.once(key or s, lambda: self.put(string(s)))

    def name(self, module, name, again=None):
        def make():
            self.text(module, again)
            self.text(name)
            self.put(b"\x93")

        self.once((module, name), make)

    def instance(self, module, name):
        self.name(module, name)
        self.put(b")\x81\x94", 1)

    def dims(self, values):
        """A torch.Size."""
        self.name("torch", "Size", "torch of Size")
        self.put(b"".join(map(number, values)) + dims_end(len(values)), dims_memo(len(values)))

    def items(self, each, put):
        """A dict's items, in batches of 1,000."""
        for i, x in enumerate(each):
            self.put(b"" if i % 1000 else b"u(" if i else b"(")
            put(x)
        self.put(b"u")


def string(s):
    s = s.encode()
    return (b"\x8c%c" % len(s) if len(s) < 256 else b"X" + struct.pack("<I", len(s))) + s


def tuple_end(n):
    return (b")", b"\x85\x94", b"\x86\x94", b"\x87\x94")[n]


def dims_end(n):
    return tuple_end(n) + b"\x85\x94R\x94"


def dims_memo(n):
    return 3 if n else 2


META, FILES = "torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem"


class Titan:
    """TorchTitan 0.3, FSDP over `ranks`: what each rank writes, bytes first, then its chunks."""

    def __init__(self, ranks, layers, hidden):
        self.ranks, self.params = ranks, list(llama(hidden, layers, TITAN))
        self.tensors = []       # key, shape, rows of a chunk
        for prefix, suffix in ("", ""), ("optimizer.state.", ".exp_avg"), ("optimizer.state.", ".exp_avg_sq"):
            for name, shape in self.params:
                self.tensors.append((prefix + name + suffix, shape, -(-shape[0] // ranks)))
        self.bytes, self.steps, self.archives = [[] for _ in range(ranks)], [[] for _ in range(ranks)], {}
        hyper = dict(fused=True, foreach=False, lr=8e-5, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, amsgrad=False,
                     maximize=False, capturable=False, differentiable=False, decoupled_weight_decay=True,
                     initial_lr=8e-5)
        loader = pickle.dumps(dict(_index_sampler_state=None, _sampler_iter_state=dict(samples_yielded=400),
                                   _sampler_iter_yielded=100, _num_yielded=100, _IterableDataset_len_called=None,
                                   _shared_seed=None, fetcher_state=dict(dataset_iter_state=None, fetcher_ended=False),
                                   dataset_state=dict(pos=400), _iterator_finished=False), 4)
        self.at(0, "train_state.step", 100)
        for r in range(ranks):
            self.at(r, f"dataloader.dp_rank_{r}", loader)
        # what every rank has is written by the one that has least so far
        n = 0
        for key, value in [("train_state.ntokens_seen", 100 * 8192 * ranks), ("lr_scheduler.last_epoch", 100),
                           ("dataloader.world_size", ranks)] + \
                [(f"optimizer.param_groups.{name}.{k}", v) for name, _ in self.params for k, v in hyper.items()]:
            self.at(n := (n + 1) % ranks, key, value)
        for name, _ in self.params:
            self.steps[n := (n + 1) % ranks].append(f"optimizer.state.{name}.step")
        self.step = archive(Tensor(()), Steps(Zeros(), 100))

    def at(self, rank, key, value):
        text = repr(value)
        if text not in self.archives:
            self.archives[text] = archive(value, None)
        self.bytes[rank].append((key, self.archives[text]))

    def chunk(self, shape):
        """The archive of a tensor of this shape."""
        if shape not in self.archives:
            self.archives[shape] = archive(Tensor(shape), Zeros())
        return self.archives[shape]

    def chunks(self, shape, rows):
        """(offset, rows) of every chunk; ranks behind the last row have one chunk without any."""
        for at in range(0, shape[0], rows):
            yield at, min(rows, shape[0] - at)
        if -(-shape[0] // rows) < self.ranks:
            yield shape[0], 0

    def keys(self):
        """Every key, and of tensors shape and rows: what rank 0 has, then what others have alone."""
        yield from ((k, None, None) for k, _ in self.bytes[0])
        yield from self.tensors
        for r in range(self.ranks):
            yield from ((k, None, None) for k, _ in self.bytes[r] if r)
            yield from ((k, (), None) for k in self.steps[r])


def put_tensor(s, titan, key, shape, rows):
    s.text(key)
    if shape is None:
        s.instance(META, "BytesStorageMetadata")
        return
    s.instance(META, "TensorStorageMetadata")
    s.put(b"}\x94(", 1)
    s.text("properties")
    s.instance(META, "TensorProperties")
    s.put(b"(")
    s.name("torch", "float32")

    def layout():
        s.name("torch.serialization", "_get_layout")
        s.text("torch.strided")
        s.put(b"\x85\x94R", 1)

    def order():
        s.name(META, "_MEM_FORMAT_ENCODING")
        s.put(b"K\0\x85\x94R", 1)

    s.once("layout", layout)
    s.put(b"\x89")
    s.once("order", order)
    strides = [math.prod(shape[i + 1:]) for i in range(len(shape))]
    s.put(b"\x89" + b"".join(map(number, strides)) + tuple_end(len(shape)) + b"t\x94b", 2 if shape else 1)
    s.text("size")
    s.dims(shape)
    s.text("chunks")
    s.put(b"]\x94", 1)
    cuts, rest = list(titan.chunks(shape, rows)) if shape else [()], shape[1:]

    def chunk(at, sizes):
        s.instance(META, "ChunkStorageMetadata")
        s.put(b"}\x94(", 1)
        s.text("offsets")
        s.dims(at)
        s.text("sizes")
        s.dims(sizes)
        s.put(b"ub")

    s.put(b"(" if len(cuts) > 1 else b"")
    chunk((cuts[0][0], *[0] * len(rest)) if shape else (), (cuts[0][1], *rest) if shape else ())
    known, size = s.known, None
    if len(cuts) > 1:
        size = known["torch", "Size"]
        head = known[META, "ChunkStorageMetadata"] + b")\x81\x94}\x94(" + known["offsets"] + size
        zeros, end = number(0) * len(rest) + dims_end(len(shape)) + known["sizes"] + size, dims_end(len(shape)) + b"ub"
        tail = {n: zeros + number(n) + b"".join(map(number, rest)) + end for n in {n for _, n in cuts}}
    for i, cut in enumerate(cuts[1:], 1):
        s.put((b"" if i % 1000 else b"e(") + head + number(cut[0]) + tail[cut[1]], 8)
    s.put((b"e" if len(cuts) > 1 else b"a") + b"ub")


def put_place(s, key, index, offset, path, at, length):
    s.instance(META, "MetadataIndex")
    s.put(b"}\x94(", 1)
    s.text("fqn")
    s.put(string(key) + b"\x94", 1)
    s.text("index")
    s.put(b"N" if index is None else number(index))
    if offset is not None:
        s.text("offset")
        s.dims(offset)
    s.put(b"ub")
    s.instance(FILES, "_StorageInfo")
    s.put(b"}\x94(", 1)
    s.text("relative_path")
    s.text(path)
    s.text("offset")
    s.put(number(at))
    s.text("length")
    s.put(number(length) + b"ub")


def put_places(s, titan, run, heads):
    """storage_data, and of each rank its file: what is no tensor with its bytes; of chunks the archive's heads: of each
    tensor's first chunk of a shape, and in each file of its first. Or, of all, what `heads` makes of key and shape: an
    archive of the same size."""
    count, tensors = 0, []

    def batch():
        nonlocal count
        s.put(b"" if count % 1000 else b"u(" if count else b"(")
        count += 1

    for key, shape, rows in titan.tensors:
        cuts = list(titan.chunks(shape, rows))
        made = {n: titan.chunk((n, *shape[1:])) for _, n in cuts}
        end = number(0) * (len(shape) - 1) + dims_end(len(shape)) + b"ub"
        tensors.append((string(key) + b"\x94", cuts, made, end, key, shape[1:]))
    for r in range(titan.ranks):
        path, at, seen = f"__{r}_0.distcp", 0, set()
        with open(run / path, "wb") as f:
            mine = [(k, made, None, None) for k, made in titan.bytes[r]]
            for key, made, index, offset in mine + [(k, titan.step, 0, ()) for k in titan.steps[r]]:
                batch()
                put_place(s, key, index, offset, path, at, made.at)
                made.copy_to(f, at)
                at += made.at
            known = s.known
            head = known[META, "MetadataIndex"] + b")\x81\x94}\x94(" + known["fqn"]
            index = known["index"] + number(r) + known["offset"] + known["torch", "Size"]
            info = known[FILES, "_StorageInfo"] + b")\x81\x94}\x94(" + known["relative_path"] + known[path] + \
                known["offset"]
            length = known["length"]
            for fqn, cuts, archives, end, key, rest in tensors:
                if r >= len(cuts):
                    continue
                row, n = cuts[r]
                made = archives[n]
                batch()
                s.put(head + fqn + index + number(row) + end + info + number(at) + length + number(made.at) + b"ub", 8)
                if heads or r == 0 or made not in seen or n != cuts[r - 1][1]:
                    (heads(key, (n, *rest)) if heads else made).copy_to(f, at)
                    seen.add(made)
                at += made.at
            f.truncate(at)
    s.put(b"u")


def write_dcp(run, ranks, layers, hidden, heads):
    """heads: True, as of tensors that are zero; or what makes an archive of a key and a shape."""
    titan = Titan(ranks, layers, hidden)
    heads = (lambda key, shape: titan.chunk(shape)) if heads is True else heads
    run.mkdir(parents=True)
    with open(run / ".metadata", "wb") as f:
        s = Stream(f)
        s.instance(META, "Metadata")
        s.put(b"}\x94(", 1)
        s.text("state_dict_metadata")
        s.put(b"}\x94", 1)
        s.items(titan.keys(), lambda x: put_tensor(s, titan, *x))
        s.text("planner_data")
        s.put(b"}\x94", 1)

        def planner(x):
            first = x[0].split(".", 1)
            parts = first if first[0] in ("optimizer", "train_state", "lr_scheduler", "dataloader") else [x[0]]
            for p in [x[0], *parts]:
                s.text(p)
            s.put(tuple_end(len(parts)), 1)

        s.items(titan.keys(), planner)
        s.text("storage_data")
        s.put(b"}\x94", 1)
        put_places(s, titan, run, heads)
        s.text("storage_meta")
        s.instance(META, "StorageMeta")
        s.put(b"}\x94(", 1)
        s.text("checkpoint_id")
        s.name("pathlib", "PosixPath")
        s.put(string("step-100") + b"\x94\x85\x94R\x94", 3)
        s.text("save_id")
        s.text("63b0a79c-356f-4985-93c9-871b9703aee2")
        s.text("load_id")
        s.put(b"N")
        s.text("modules")
        s.put(b"]\x94ub", 1)
        s.text("version")
        s.text("1.0.0")
        s.put(b"ub.")
        s.flush()


def random_states(rank):
    """As scripts put them into DeepSpeed's client state."""
    state = gen.rng_state(1234 + rank).__dict__["_dict"]["tp_synced"].__dict__
    cpu = Tensor((5056,), gen.torch.ByteStorage, 1, gen.Rng(1234 + rank))
    return dict(rng_state=dict(python=state["random"], numpy=state["numpy"], torch=cpu))


def write_zero3(run, ranks, layers, hidden, heads):
    gen.write_deepspeed(run, list(llama(hidden, layers, HUGGING)), ranks, Zeros(), random_states)


def write_nano(run, ranks, layers, hidden, heads):
    model = gen.Llama(hidden, layers, max(hidden // 128, 8), max(hidden // 1024, 8), hidden * 13 // 4, 128256)
    gen.write_nanotron(run, model, 8, ranks // 8, 1, Zeros())


class MegatronZeros(Zeros):
    def tensor(self, slot, shape, name):
        size = 2 if slot == "param" else 4
        return Tensor(shape, gen.torch.BFloat16Storage if size == 2 else gen.torch.FloatStorage, size, self)


def write_mega(run, ranks, layers, hidden, heads):
    """Its layers are a multiple of the stages."""
    m = gen.Megatron(hidden, -(-layers // 16) * 16, max(hidden // 128, 8), max(hidden // 1024, 8), hidden * 13 // 4,
                     128256, tp=8, pp=16, dp=ranks // 128)
    gen.write_megatron_dist(run, m, MegatronZeros())


def dcp_chunks(ranks, layers, hidden):
    titan = Titan(ranks, layers, hidden)
    return len(titan.params) + sum(1 for _, shape, rows in titan.tensors for _ in titan.chunks(shape, rows))


def mega_chunks(ranks, layers, hidden):
    """Of a layer five tensors are cut by TP, one of them in two halves, and two are not."""
    tp = 4 if ranks < 1024 else 8
    return 4 * (-(-layers // 16) * 16 * (5 * tp + 2) + 2 * tp + 1)


# of each its writer, how many ranks it usually has, and how many chunks those have
KINDS = {
    "dcp": (write_dcp, 2048, dcp_chunks),
    "zero3": (write_zero3, 1024, lambda ranks, layers, hidden: ranks * 3 * (9 * layers + 3)),
    "nano": (write_nano, 512, lambda ranks, layers, hidden: (8 + 2 * ranks) * (6 * layers + 3)),
    "mega": (write_mega, 1024, mega_chunks),
}


def chunks(kind, ranks, layers=126, hidden=16384):
    return KINDS[kind][2](ranks, layers, hidden)


def write(kind, path, ranks=None, layers=126, hidden=16384, heads=False):
    KINDS[kind][0](path, ranks or KINDS[kind][1], layers, hidden, heads)


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("dir", type=Path)
    p.add_argument("kind", choices=KINDS)
    p.add_argument("--ranks", type=int)
    p.add_argument("--layers", type=int, default=126)
    p.add_argument("--hidden", type=int, default=16384)
    p.add_argument("--heads", action="store_true")
    a = p.parse_args()
    write(a.kind, a.dir, a.ranks, a.layers, a.hidden, a.heads)


if __name__ == "__main__":
    main()
