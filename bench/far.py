#!/usr/bin/env python3
"""far.py TOOL DATA [--layers N] [--hidden N] [--parts N] [--whole]: a checkpoint whose one file is larger than 2^41
bytes, and what is made of it in one file as large. It consists of holes but for each tensor's first and last element,
which tell its name. Time and memory of `inspect`, `plan` and parts of a conversion, which leaves holes holes. What the
parts wrote must lie where torch would have put it, some of it behind 2^41. Only four parts are written, of 600 MB each,
unless --whole, which takes hours. BENCH_KEEP: the files stay."""

import argparse, io, os, pickle, shutil, struct, zlib
from pathlib import Path

import frontier
from frontier import Tensor, archive, crc_add, zeros_crc
from gen import Zip
from measure import measured, row

FAR = 1 << 41


def mark(key):
    return float(zlib.crc32(key.encode()) & 0xFFFFFF)


class Marked:
    """Zeros, but for the first element and the last, which is half of it."""

    def __init__(self, key):
        self.first, self.last = struct.pack("<f", mark(key)), struct.pack("<f", mark(key) / 2)

    def write(self, f, size):
        f.write(self.first)
        f.seek(size - 8, io.SEEK_CUR)
        f.write(self.last)
        return crc_add(crc_add(zlib.crc32(self.first), zeros_crc(size - 8), size - 8), zlib.crc32(self.last), 4)


class Names(pickle.Unpickler):
    """Of a torch file its storages' keys and sizes in place of tensors."""

    def find_class(self, module, name):
        return {"_rebuild_tensor_v2": lambda storage, *more: storage, "OrderedDict": dict}.get(name, name)

    def persistent_load(self, pid):
        self.sizes[pid[2]] = pid[4] * 4
        return pid[2]


def storages(f):
    """Name -> payload and size of every tensor, as torch lays out what has this pickle: there is no directory until all
    parts are written."""
    f.seek(0)
    n_name, n_extra = struct.unpack("<2H", f.read(30)[26:])
    root = f.read(n_name).decode().split("/")[0]
    f.read(n_extra)
    begin, names = f.tell(), Names(f)
    names.sizes, where, sparse = {}, {}, frontier.Sparse()
    tree, z = names.load(), Zip(sparse, root)
    z.put("data.pkl", f.tell() - begin, lambda s: s.seek(f.tell() - begin, io.SEEK_CUR) or 0)
    for name, text in (".format_version", b"1"), (".storage_alignment", b"64"), ("byteorder", b"little"):
        z.text(name, text)

    def storage(s):
        where[key] = s.tell(), size
        s.seek(size, io.SEEK_CUR)
        return 0

    for key, size in names.sizes.items():
        z.put(f"data/{key}", size, storage)
    z.text("version", b"3\n")
    z.text(".data/serialization_id", b"0" * 40)
    names = list(tree["model"])
    keys = dict(tree["model"])
    for i, slots in tree["optimizer"]["state"].items():
        keys.update((f"optimizer.state.{names[i]}.{slot}", k) for slot, k in slots.items() if slot != "step")
    return {name: where[k] for name, k in keys.items()}


def check(f, tensors, written):
    """Elements that lie in what was written: (right, right behind FAR, wrong)."""
    right = far = wrong = 0
    for name, (at, size) in tensors.items():
        for place, value in (at, mark(name)), (at + size - 4, mark(name) / 2):
            if any(begin <= place and place + 4 <= end for begin, end in written):
                f.seek(place)
                good = struct.unpack("<f", f.read(4))[0] == value
                right, far, wrong = right + good, far + (good and place >= FAR), wrong + (not good)
    return right, far, wrong


def timed(what, command):
    seconds, memory, status, said = measured(command)
    if status:
        raise SystemExit(f"{what}: exits {status}: {said}")
    row(what, seconds, "s", 0)
    row(what + ", memory", memory / 1e6, "MB", 0)


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("tool")
    p.add_argument("data", type=Path)
    p.add_argument("--layers", type=int, default=62)
    p.add_argument("--hidden", type=int, default=16384)
    p.add_argument("--parts", type=int, default=4096)
    p.add_argument("--whole", action="store_true")
    a = p.parse_args()
    source, out = a.data / "far", a.data / "far-out"
    if not source.exists():
        heads = lambda key, shape: archive(Tensor(shape), Marked(key))
        frontier.write("dcp", source, 1, a.layers, a.hidden, heads)
    apparent = sum(x.stat().st_size for x in source.iterdir())
    print(f"\n### One file of {apparent / 1e12:.2f} TB\n\n| figure | min | median | limit | median / limit |")
    print("|---|---|---|---|---|", flush=True)
    timed("inspect", [a.tool, "inspect", source])
    timed("plan --to torch", [a.tool, "plan", source, "--to", "torch"])
    if a.whole:
        timed("convert --to torch", [a.tool, "convert", source, out, "--to", "torch"])
        f, size = open(out, "rb"), out.stat().st_size
        tensors = storages(f)
        written = [(0, size)]
    else:
        def part(i):
            part = f"{i + 1}/{a.parts}"
            timed(f"part {part}", [a.tool, "convert", source, out, "--to", "torch", "--part", part])

        part(a.parts - 1)
        f = open(a.data / ".far-out.ckptresume-parts" / "out", "rb")
        size = f.seek(0, io.SEEK_END)
        part(0)
        tensors = storages(f)
        each = size // a.parts
        written = [(0, each * 15 // 16), (size - each * 15 // 16, size)]
        # parts that hold a small tensor: in the middle of the file, and behind FAR
        small = sorted((at, n) for at, n in tensors.values() if n < each // 8)
        for want in size // 2, FAR:
            at = next((at for at, n in small if at >= want and each // 8 < at % each < each * 3 // 4), None)
            if at is not None:
                part(at // each)
                written.append((at - at % each + each // 16, at - at % each + each * 15 // 16))
    right, far, wrong = check(f, tensors, written)
    row("elements that tell their tensor, in their place", right, "", 0)
    row("of these behind 2^41", far, "", 0)
    f.close()
    if not os.environ.get("BENCH_KEEP"):
        for path in source, a.data / ".far-out.ckptresume-parts":
            shutil.rmtree(path, ignore_errors=True)
        out.unlink(missing_ok=True)
    if wrong or not right or (not far and size > FAR):
        raise SystemExit(f"{wrong} elements are not in their place, {right} are, {far} of them behind 2^41")


if __name__ == "__main__":
    main()
