"""ckptresume.py: the library from Python. One file: copy it; it needs ctypes and `make lib`, nothing else.

    import ckptresume

    with ckptresume.open("runs/step-1000") as run:
        print(run.dialect, run.step, run.topology)
        w = run["lm_head.weight"]                       # a Tensor: .shape, .dtype, .slot
        a = w.numpy()                                   # or w.torch(); a box: w.numpy(start=(0, 0), count=(8, 64))
        plan = run.plan(dialect="megatron", tp=2, sets={"batch_size": 256}, options={"heads": 32})
        print(plan.verdict, [e["code"] for e in plan.report])
        plan.write("out")                               # appears whole or not at all

The bytes are read straight into the array's memory, as a box of the logical tensor, whatever ranks and files hold it.
The shared library is found by CKPTRESUME_LIB, beside this file, in ../build, or where the system keeps its libraries. A
failure is a ckptresume.Error, with the file, the place, what was found, and what to do.
`python3 ckptresume.py PATH` prints what is in a checkpoint. Python 3.8 or newer.
"""

import array
import ctypes as C
import ctypes.util
import os
import re
import sys
import weakref
from collections.abc import Mapping

VERSION = (0, 1)
_p, _u8, _u32, _u64, _i32, _i64 = C.c_char_p, C.c_uint8, C.c_uint32, C.c_uint64, C.c_int32, C.c_int64


def _struct(name, *fields):
    return type(name, (C.Structure,), {"_fields_": list(fields)})


# ---------------------------------------------------------------------------------- the header's structures
# Names and order are the header's; tests/interop/py.py compares every offset with the compiler's.

_Topology = _struct("ckr_topology", *[(n, _u32) for n in ("tp", "pp", "dp", "ep", "cp", "ranks")], ("zero", _i32))
_Error = _struct("ckr_error", ("code", C.c_int), ("item", C.c_int), ("sys_error", _i32), ("offset", _u64),
                 ("file", C.c_char * 256), ("where", C.c_char * 192), ("text", C.c_char * 384),
                 ("remedy", C.c_char * 192), ("_flags", C.c_bool))


class _Node(C.Structure):
    pass


class _NodeValue(C.Union):
    _fields_ = [("b", C.c_bool), ("i", _i64), ("f", C.c_double), ("complex_", C.POINTER(C.c_double)),
                ("str", C.c_void_p), ("items", C.POINTER(C.POINTER(_Node))), ("view", C.c_void_p)]


_Node._fields_ = [("kind", _u8), ("_flags", _u8), ("_aux", C.c_uint16), ("id", _u32), ("count", _u64),
                  ("u", _NodeValue), ("attrs", C.POINTER(_Node))]
_node = C.POINTER(_Node)
_Split = _struct("ckr_split", ("axis", _i32), ("n_chunks", _u32), ("chunks", C.POINTER(_i64)),
                 ("units", C.POINTER(_i64)), ("vocab", C.c_bool))
_Tensor = _struct("ckr_tensor", ("name", _p), ("slot", _p), ("dtype", C.c_int), ("n_dims", _u32),
                  ("shape", C.POINTER(_i64)), ("split", _Split), ("pieces", C.c_void_p), ("n_pieces", _u32),
                  ("index", _u32), ("requires_grad", C.c_bool), ("buffer", C.c_bool), ("stochastic", C.c_bool),
                  ("by_name", _p))
_Group = _struct("ckr_group", ("name", _p), ("params", C.POINTER(_p)), ("n_params", _u64), ("hyper", _node),
                 ("raw", _node))
_Stream = _struct("ckr_stream", ("kind", _p), ("name", _p), ("scope", _p), ("observed", C.c_bool),
                  ("assumed", C.c_bool), ("sibling", C.c_bool), ("rank", _u32), ("n_bytes", _u64), ("state", _node),
                  ("value", C.c_void_p), ("file", _p), ("path", _p))
_Tie = _struct("ckr_tie", ("name", _p), ("other", _p))
_Leftover = _struct("ckr_leftover", ("path", _p), ("node", _node))
_Note = _struct("ckr_note", ("code", _p), ("severity", C.c_int), ("subject", _p), ("old_value", _p),
                ("new_value", _p), ("reason", _p), ("remedy", _p))
_Progress = _struct("progress", ("step", _i64), ("samples", _i64), ("tokens", _i64), ("epoch", _i64))
_State = _struct("ckr_state", ("dialect", _p), ("framework_version", _p), ("format", C.c_int),
                 ("topology", _Topology), ("progress", _Progress), ("vocab", _i64), ("padded_vocab", _i64),
                 ("batch", _i64), ("tensors", C.POINTER(C.POINTER(_Tensor))), ("n_tensors", _u64),
                 ("groups", C.POINTER(_Group)), ("n_groups", _u64), ("schedules", C.c_void_p), ("n_schedules", _u64),
                 ("rng", C.POINTER(_Stream)), ("n_rng", _u64), ("ties", C.POINTER(_Tie)), ("n_ties", _u64),
                 ("leftovers", C.POINTER(_Leftover)), ("n_leftovers", _u64), ("notes", C.POINTER(_Note)),
                 ("n_notes", _u64), ("carried", _node), ("data", _node), ("n_parts", _u64), ("part_rank", _i64),
                 ("engine", _p), ("_kept", C.c_void_p))
_Setting = _struct("ckr_setting", ("group", _p), ("key", _p), ("value", _p))
_Option = _struct("ckr_option", ("key", _p), ("value", _p))
_Target = _struct("ckr_target", ("dialect", _p), ("variant", _p), ("topology", _Topology), ("mode", C.c_int),
                  ("without", _u32), ("vocab", _i64), ("dtype", C.c_int), ("slots", _p), ("strict", C.c_bool),
                  ("force", C.c_bool), ("repair", C.c_bool), ("source", _p), ("sets", C.POINTER(_Setting)),
                  ("n_sets", C.c_size_t), ("schedule", _p), ("lr_policy", C.c_int), ("rewarm_steps", _i64),
                  ("max_lr_jump", C.c_double), ("rng", C.c_int), ("seed", _u64), ("groups", C.POINTER(_Group)),
                  ("n_groups", _u64), ("options", C.POINTER(_Option)), ("n_options", C.c_size_t))
_File = _struct("ckr_plan_file", ("path", _p), ("bytes", _u64))
_RunSetting = _struct("ckr_run_setting", ("place", _p), ("key", _p), ("value", _node), ("was", _node),
                      ("needed", C.c_bool), ("otherwise", _p))
_Facts = _struct("ckr_plan_facts", ("verdict", C.c_int), ("notes", C.POINTER(_Note)), ("n_notes", _u64),
                 ("dialect", _p), ("to", _Topology), ("files", C.POINTER(_File)),
                 *[(n, _u64) for n in ("n_files", "n_copies", "bytes_read", "bytes_written", "peak_bytes",
                                       "window_bytes")],
                 ("groups", C.POINTER(_Group)), ("n_groups", _u64), ("before", C.c_void_p), ("after", C.c_void_p),
                 ("resume_at", _i64), ("settings", C.POINTER(_RunSetting)), ("n_settings", _u64))
_Receipt = _struct("ckr_receipt", ("n_files", _u64), ("bytes_read", _u64), ("bytes_written", _u64),
                   ("digest", _u8 * 16), ("digest_written", _u8 * 16))
_Parts = _struct("ckr_parts", ("n", _u32), ("go_on", C.c_bool), ("nonce", _u64))
_Nonfinite = _struct("ckr_nonfinite", ("tensor", C.POINTER(_Tensor)), ("nan", _u64), ("inf", _u64),
                     ("n_elements", _u64))
_Report = _struct("ckr_report", ("notes", C.POINTER(_Note)), ("n_notes", _u64), ("bytes_read", _u64),
                  ("sound", C.c_bool), ("nonfinite", C.POINTER(_Nonfinite)), ("n_nonfinite", _u64),
                  ("tensor_bytes", _u64), ("uncovered_bytes", _u64))
_ScheduleFacts = _struct("ckr_schedule_facts", ("kind", _p), ("clock", _p), ("position", _i64),
                         ("rate", C.c_double), ("offset", C.c_double), ("every", _i64), ("params", _node),
                         ("opaque", C.c_bool), ("reason", _p), ("told", C.c_bool), ("n_lanes", _u64))
_Read = _struct("ckr_read", ("tensor", C.POINTER(_Tensor)), ("start", C.POINTER(_i64)), ("count", C.POINTER(_i64)),
                ("as_", C.c_int), ("dst", C.c_void_p), ("dst_size", C.c_size_t), ("shape", C.POINTER(_i64)),
                ("n_dims", _u32), ("dtype", C.c_int))
_Allocator = _struct("ckr_allocator", *[(n, C.c_void_p) for n in ("alloc_fn", "free_fn", "user")])
_Io = _struct("ckr_io", *[(n, C.c_void_p) for n in (
    "open_fn", "read_fn", "write_fn", "sync_fn", "park_fn", "close_fn", "stat_fn", "list_fn", "path_fn", "lock_fn",
    "unlock_fn", "user", "room_fn", "share_fn")])
_Parallel = _struct("ckr_parallel", ("for_fn", C.c_void_p), ("n_threads", _u32), ("user", C.c_void_p))
_PROGRESS = C.CFUNCTYPE(C.c_bool, C.c_void_p, _u64, _u64)
_Env = _struct("ckr_env", ("alloc", _Allocator), ("io", _Io), ("parallel", _Parallel), ("log_fn", C.c_void_p),
               ("progress_fn", _PROGRESS), ("user", C.c_void_p), ("flags", C.c_bool))
_Limits = _struct("ckr_limits", ("max_metadata_bytes", _u64), ("max_json_bytes", _u64), ("max_arena_bytes", _u64),
                  ("max_depth", _u32), ("max_repeated_bytes", _u64), ("max_buffer_bytes", _u64))
_OpenDesc = _struct("ckr_open_desc", ("dialect", _p), ("vocab", _i64), ("schedule", _p), ("optimizer", _p),
                    ("names", C.POINTER(_p)), ("n_names", C.c_size_t), ("curve_fn", C.c_void_p),
                    ("curve_user", C.c_void_p), ("limits", _Limits), ("env", C.POINTER(_Env)))

_MODES = ("continue", "recover", "transfer")
_VERDICTS = ("exact", "changed", "approx", "refused")
_SEVERITIES = ("exact", "changed", "approx", "lost", "error")
_POLICIES = ("default", "keep", "target", "splice", "stretch", "rewarm")
_COMPONENTS = ("params", "optimizer", "groups", "schedule", "rng", "progress", "data")
_RNG = ("keep", "remap", "reseed")
_COLUMNS = ("lr", "weight_decay", "momentum")
_FORMATS = (None, "safetensors", "torch_zip", "torch_legacy", "pickle", "npy", "npz", "json", "yaml", "dcp", "llmc",
            "text")
_OPTIONS = ("vpp", "heads", "kv_heads", "fsdp_size", "to_version", "max_shard_bytes", "data", "micro_batch", "seq_len")
_NUMPY = {"bool": "?", "uint8": "u1", "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8", "uint16": "u2",
          "uint32": "u4", "uint64": "u8", "float16": "f2", "float32": "f4", "float64": "f8", "complex64": "c8",
          "complex128": "c16"}


# ------------------------------------------------------------------------------------------------ the library

class Error(Exception):
    """What the library reports: item ("CKR_E_ZIP_END"), code, file, offset, where, text and remedy."""

    def __init__(self, e):
        self.item, self.code = _lib().ckr_item_name(e.item).decode(), e.code
        self.file, self.where = _text(e.file) or None, _text(e.where) or None
        self.text, self.remedy = _said(e.text), _said(e.remedy)
        self.offset = None if e.offset == 2**64 - 1 else e.offset
        place = ": ".join(x for x in (self.file, self.where) if x)
        super().__init__(f"{place + ': ' if place else ''}{self.text} ({self.item})"
                         + (f"; {self.remedy}" if self.remedy else ""))


_loaded = None


def _names():
    end = {"darwin": "0.dylib", "win32": "dll"}.get(sys.platform, "so.0")
    name = "ckptresume.dll" if sys.platform == "win32" else f"libckptresume.{end}"
    if os.environ.get("CKPTRESUME_LIB"):
        yield os.environ["CKPTRESUME_LIB"]
        return
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in (here, os.path.join(here, "..", "build")):
        if os.path.exists(os.path.join(folder, name)):
            yield os.path.join(folder, name)
    yield ctypes.util.find_library("ckptresume") or name


def _lib():
    """The shared library, loaded once."""
    global _loaded
    if _loaded:
        return _loaded
    tried = []
    for path in _names():
        try:
            lib = C.CDLL(path)
            break
        except OSError as e:
            tried.append(str(e))
    else:
        raise OSError("no libckptresume: `make lib` builds it, CKPTRESUME_LIB=FILE names it; " + "; ".join(tried))
    err, ptr = C.POINTER(_Error), C.c_void_p
    for name, result, *args in (
            ("version", _u32), ("item_name", _p, C.c_int), ("dtype_size", C.c_size_t, C.c_int),
            ("dtype_name", _p, C.c_int), ("ckpt_open", C.c_int, _p, C.POINTER(_OpenDesc), C.POINTER(ptr), err),
            ("ckpt_close", None, ptr), ("ckpt_state", C.POINTER(_State), ptr), ("ckpt_path", _p, ptr),
            ("ckpt_files", _u32, ptr, C.POINTER(_u64)), ("ckpt_tensor", C.POINTER(_Tensor), ptr, _p, _p),
            ("ckpt_read", C.c_int, ptr, C.POINTER(_Read), C.c_size_t, err), ("ckpt_schedule", ptr, ptr, _u64),
            ("schedule_info", _ScheduleFacts, ptr),
            ("schedule_values", C.c_int, ptr, C.c_int, _i64, _u64, C.POINTER(C.c_double), C.POINTER(_Env), err),
            ("plan_create", C.c_int, ptr, C.POINTER(_Target), _u64, C.POINTER(ptr), err),
            ("plan_info", C.POINTER(_Facts), ptr), ("plan_free", None, ptr),
            ("plan_write", C.c_int, ptr, _p, C.POINTER(_Receipt), err),
            ("plan_begin", C.c_int, ptr, _p, C.POINTER(_Parts), err),
            ("plan_write_part", C.c_int, ptr, _p, _u32, C.POINTER(_Parts), err),
            ("plan_commit", C.c_int, ptr, _p, C.POINTER(_Parts), C.POINTER(_Receipt), err),
            ("ckpt_digest", C.c_int, ptr, C.POINTER(_u8), C.POINTER(_u8), err),
            ("ckpt_check", C.c_int, ptr, C.POINTER(C.POINTER(_Report)), err),
            ("report_free", None, C.POINTER(_Report))):
        f = getattr(lib, f"ckr_{name}")
        f.restype, f.argtypes = result, args
    version = lib.ckr_version()
    if (version // 10000, version // 100 % 100) != VERSION:
        raise OSError(f"libckptresume is version {version}, this file is for {VERSION[0]}.{VERSION[1]}: take both from "
                      "one release")
    _loaded = lib
    return lib


def _call(name, *args):
    e = _Error()
    if getattr(_lib(), f"ckr_{name}")(*args, C.byref(e)):
        raise Error(e)


def _text(s):
    return None if s is None else s.decode("utf-8", "replace")


# In the library's texts: fields of ckr_target and ckr_open_desc, with what to set them to, and options.
_FIELD = re.compile(r"\bckr_(target|open_desc)\.(?:topology\.)?(\w+)"
                    r"(?: = (all but )?((?:CKR_\w+(?: \| | or )?)*CKR_\w+|[^\s;]*[^\s;,:])"
                    r"|(?<=\.sets) (?:(\w+)\.)?(\w+)=([^\s;]*[^\s;,:]))?"
                    r"|\boption (%s)\b(?: = (\w+))?" % "|".join(_OPTIONS))


def _keyword(m):
    """One of them as the keyword that it is here."""
    of, name, but, value, group, key, given, option, setting = m.groups()
    if option:
        return f'options={{"{option}": {setting}}}' if setting else f'options["{option}"]'
    if key:
        return f'{name}={{("{group}", "{key}"): {given}}}' if group else f'{name}={{"{key}": {given}}}'
    if of == "open_desc":
        return f"open(path, {name}={_literal(name, value) if value else '...'})"
    if name == "without" and value:
        parts = [w.lower()[4:] for w in value.split(" | ")]
        return f"without={[w for w in _COMPONENTS if w not in parts] if but else parts}".replace("'", '"')
    if not value:
        return f"{name}=True" if name in ("force", "strict", "repair") else name
    return f"{name}={_literal(name, value)}"


def _literal(name, value):
    if value.startswith("CKR_"):
        return "0" if name == "zero" else re.sub(r"CKR_[A-Z]+_(\w+)", lambda m: f'"{m.group(1).lower()}"', value)
    return f'"{value}"' if name in ("dialect", "variant", "schedule", "optimizer", "dtype", "slots") else value


def _said(s):
    """A text that says what to do, in the names of this file."""
    return _FIELD.sub(_keyword, _text(s) or "") or None


def _bytes(s):
    return None if s is None else os.fsencode(s)


def _dtypes():
    names = {}
    while True:
        n = _lib().ckr_dtype_name(len(names))
        if n is None or _text(n) in names or len(names) > 255:
            return names
        names[_text(n)] = len(names)


_DICTS, _LISTS = range(13, 17), range(9, 13)


def _value(n, left=None, depth=0):
    """A node as Python's own value; a tensor or an object of a class is a string that says what it is. Of a file that
    repeats a value without end, the first million nodes, 64 levels deep."""
    left = left or [1000000]
    left[0] -= 1
    if not n or not n.contents.kind:
        return None
    n = n.contents
    k, u = n.kind, n.u
    if depth > 64 or left[0] < 0:
        return "..."
    if k in (1, 2, 4):
        return (u.b, u.i, u.f)[k - 1 - (k == 4)]
    if k == 5:
        return complex(u.complex_[0], u.complex_[1])
    if k in (3, 6, 7, 8, 22, 23, 24, 25):
        raw = C.string_at(u.str, n.count) if u.str else b""
        return int.from_bytes(raw, "little", signed=True) if k == 3 else raw if k in (7, 8) else _text(raw)
    if k in _LISTS or k == 21:
        items = [_value(u.items[i], left, depth + 1) for i in range(n.count)]
        return tuple(items) if k == 10 else items
    if k in _DICTS:
        return {_key(_value(u.items[2 * i], left, depth + 1)): _value(u.items[2 * i + 1], left, depth + 1)
                for i in range(n.count)}
    return "<tensor>" if k < 21 else "<object>"


def _key(v):
    return v if isinstance(v, (str, int, float, bool, bytes, tuple, type(None))) else repr(v)


def _notes(notes, n):
    return [{"code": _text(x.code), "severity": _SEVERITIES[x.severity], "subject": _text(x.subject),
             "old": _text(x.old_value), "new": _text(x.new_value), "reason": _said(x.reason),
             "remedy": _said(x.remedy)} for x in notes[:n]]


def _groups(groups, n):
    return [{"index": i, "name": _text(g.name), "hyper": _value(g.hyper) or {},
             "params": [_text(p) for p in g.params[:g.n_params]]} for i, g in enumerate(groups[:n])]


def _topology(t):
    """None: not recorded."""
    sizes = {n: getattr(t, n) for n in ("tp", "pp", "dp", "ep", "cp", "zero", "ranks")}
    zero = t.tp or t.dp                  # stage 0 is told by a run whose ranks are
    return {n: v if v or (n == "zero" and zero) else None for n, v in sizes.items()}


def _word(words, what, given):
    if given not in words:
        raise ValueError(f"{what} {given!r}: one of {', '.join(words)}")
    return words.index(given)


# ------------------------------------------------------------------------------------------------- what is in it

class Tensor:
    """A logical tensor of a checkpoint: whole, whatever ranks and files hold it. Nothing is read before it is asked."""

    def __init__(self, run, t):
        self._run, self._t = run, t
        x = t.contents
        self.name, self.slot, self.dtype = _text(x.name), _text(x.slot), _text(_lib().ckr_dtype_name(x.dtype))
        self.shape = tuple(x.shape[:x.n_dims])

    def __repr__(self):
        return f"<{self.slot} of {self.name}: {self.dtype} {list(self.shape)}>"

    def read_into(self, address, size, start=None, count=None, dtype=None):
        """A box, row by row, into `size` bytes of memory at `address`, cast to `dtype`; all of it without `start`."""
        n = len(self.shape)
        r = _Read(tensor=self._t, as_=0 if dtype is None else _dtypes()[dtype], dst=address, dst_size=size)
        if start is not None:
            r.start, r.count = (_i64 * n)(*start), (_i64 * n)(*count)
        _call("ckpt_read", self._run._handle(), C.byref(r), 1)

    def _box(self, start, count):
        n = [len(self.shape)]
        if start is None and count is None:
            return self.shape
        if [len(x) for x in (start, count) if x is not None] != 2 * n:
            raise ValueError(f"start and count: {n[0]} numbers each, one for an axis of {self!r}, or neither")
        return tuple(count)

    def numpy(self, start=None, count=None, dtype=None):
        """A new NumPy array, into whose memory the bytes are read. NumPy has no bfloat16: dtype="float32" casts."""
        import numpy

        shape, dtype = self._box(start, count), dtype or self.dtype
        dtype = str(getattr(dtype, "__name__", dtype))
        if dtype not in _NUMPY:
            raise TypeError(f"NumPy has no {dtype}: numpy(dtype=\"float32\") casts, torch() keeps it")
        a = numpy.empty(shape, numpy.dtype(_NUMPY[dtype]))
        self.read_into(a.ctypes.data, a.nbytes, start, count, dtype)
        return a

    def torch(self, start=None, count=None, dtype=None):
        """A new torch tensor on the CPU, into whose memory the bytes are read."""
        import torch

        dtype = dtype or self.dtype
        a = torch.empty(self._box(start, count), dtype=getattr(torch, dtype))
        self.read_into(a.data_ptr(), a.numel() * a.element_size(), start, count, dtype)
        return a

    def tolist(self, start=None, count=None):
        """Nested lists of floats, without NumPy and torch."""
        shape = self._box(start, count)
        n = 1
        for s in shape:
            n *= s
        flat = array.array("d", bytes(8 * n))
        self.read_into(flat.buffer_info()[0], 8 * n, start, count, "float64")
        out = flat.tolist()
        for s in reversed(shape[1:]):
            out = [out[i:i + s] for i in range(0, len(out), s)] if s else out
        return out if shape else out[0]


class Schedule:
    """A learning rate's curve and where it stands."""

    def __init__(self, owner, pointer):
        self._owner, self._s = owner, pointer
        f = _lib().ckr_schedule_info(pointer)
        self.kind, self.clock, self.position, self.params = _text(f.kind), _text(f.clock), f.position, _value(f.params)
        self.opaque, self.reason, self.n_lanes = f.opaque, _said(f.reason), f.n_lanes

    def values(self, first, n=1, column="lr"):
        """For `n` updates from number `first` on (1 is the first of training): a list for each, a value per group."""
        self._owner._handle()
        out = (C.c_double * (n * self.n_lanes))()
        _call("schedule_values", self._s, _COLUMNS.index(column), first, n, out, None)
        return [list(out[i * self.n_lanes:(i + 1) * self.n_lanes]) for i in range(n)]


class Checkpoint(Mapping):
    """An open checkpoint: a mapping of names of parameters to tensors (slot "param"). Close it, or use `with`."""

    def __init__(self, path, dialect=None, vocab=0, schedule=None, optimizer=None, names=None, progress=None,
                 threads=0):
        self._keep, self._ckpt, self._index, self._plans = [], C.c_void_p(), None, weakref.WeakSet()
        d = _OpenDesc(dialect=_bytes(dialect), vocab=vocab, schedule=_bytes(schedule), optimizer=_bytes(optimizer))
        if names is not None:
            d.names, d.n_names = (_p * len(names))(*map(_bytes, names)), len(names)
        env = _Env(parallel=_Parallel(n_threads=threads))
        if progress:
            env.progress_fn = _PROGRESS(lambda _, done, total: progress(done, total) is not False)
        d.env = C.pointer(env)
        self._keep += [env, d]
        _call("ckpt_open", os.fsencode(path), C.byref(d), C.byref(self._ckpt))
        s = self._s = _lib().ckr_ckpt_state(self._ckpt).contents
        self.path = _text(_lib().ckr_ckpt_path(self._ckpt))
        self.dialect, self.engine = _text(s.dialect), _text(s.engine)
        self.framework_version, self.topology = _text(s.framework_version), _topology(s.topology)
        self.format = _FORMATS[s.format]
        counters = {n: getattr(s.progress, n) for n in ("step", "samples", "tokens", "epoch")}
        self.progress = {n: None if v < 0 else v for n, v in counters.items()}
        self.step = self.progress["step"]
        size = _u64()
        self.files, self.bytes = _lib().ckr_ckpt_files(self._ckpt, C.byref(size)), size.value

    def _handle(self):
        if not self._ckpt:
            raise ValueError("the checkpoint is closed")
        return self._ckpt

    def close(self):
        """Closes its plans, too."""
        for plan in list(self._plans):
            plan.close()
        ckpt, self._ckpt = self._ckpt, None
        if ckpt:
            _lib().ckr_ckpt_close(ckpt)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_ckpt", None):
            self.close()

    def __repr__(self):
        return f"<{self.dialect} checkpoint {self.path}, step {self.step}>"

    @property
    def tensors(self):
        """All of them, of every slot, in the checkpoint's order."""
        self._handle()
        if self._index is None:
            self._index = [Tensor(self, self._s.tensors[i]) for i in range(self._s.n_tensors)]
        return self._index

    def tensor(self, name, slot="param"):
        t = _lib().ckr_ckpt_tensor(self._handle(), _bytes(name), _bytes(slot))
        if not t:
            raise KeyError(f"{slot} of {name}")
        return Tensor(self, t)

    def __getitem__(self, name):
        return self.tensor(name)

    def __iter__(self):
        return (t.name for t in self.tensors if t.slot == "param")

    def __len__(self):
        return sum(t.slot == "param" for t in self.tensors)

    @property
    def groups(self):
        """Parameter groups: index, name, hyper (lr is that of the next update) and params."""
        self._handle()
        return _groups(self._s.groups, self._s.n_groups)

    @property
    def schedules(self):
        return [Schedule(self, _lib().ckr_ckpt_schedule(self._handle(), i)) for i in range(self._s.n_schedules)]

    @property
    def streams(self):
        """Random generators by rank: kind, name, scope, rank and bytes."""
        self._handle()
        return [{"kind": _text(x.kind), "name": _text(x.name), "scope": _text(x.scope), "rank": x.rank,
                 "bytes": x.n_bytes} for x in self._s.rng[:self._s.n_rng]]

    @property
    def ties(self):
        self._handle()
        return [(_text(t.name), _text(t.other)) for t in self._s.ties[:self._s.n_ties]]

    @property
    def leftovers(self):
        """What belongs to no part of a run, by its path; a file is None."""
        self._handle()
        return {_text(x.path): _value(x.node) for x in self._s.leftovers[:self._s.n_leftovers]}

    @property
    def report(self):
        self._handle()
        return _notes(self._s.notes, self._s.n_notes)

    def digest(self):
        """(of all, {(name, slot): of each}): independent of topology, format and order."""
        n, total = self._s.n_tensors, (_u8 * 16)()
        each = (_u8 * max(16 * n, 1))()
        _call("ckpt_digest", self._handle(), each, total)
        raw = bytes(each)
        return bytes(total).hex(), {(t.name, t.slot): raw[16 * i:16 * i + 16].hex()
                                    for i, t in enumerate(self.tensors)}

    def check(self):
        """Reads every byte. {"sound", "bytes_read", "tensor_bytes", "uncovered_bytes", "nonfinite", "report"}"""
        r = C.POINTER(_Report)()
        _call("ckpt_check", self._handle(), C.byref(r))
        try:
            x = r.contents
            odd = [x.nonfinite[i] for i in range(x.n_nonfinite)]
            return {"sound": x.sound, "bytes_read": x.bytes_read, "tensor_bytes": x.tensor_bytes,
                    "uncovered_bytes": x.uncovered_bytes, "report": _notes(x.notes, x.n_notes),
                    "nonfinite": [{"name": _text(t.tensor.contents.name), "slot": _text(t.tensor.contents.slot),
                                   "nan": t.nan, "inf": t.inf, "elements": t.n_elements} for t in odd]}
        finally:
            _lib().ckr_report_free(r)

    def plan(self, dialect=None, **how):
        """See Plan. Reads no tensor."""
        return Plan(self, dialect, **how)

    def convert(self, out, dialect=None, part=None, commit=0, go_on=False, **how):
        """A plan, carried out: the receipt; an Error where the plan is refused. part=(i, n): only that part, from 0,
        as one process of n does it; commit=n: of them all. go_on: see Plan.write."""
        with self.plan(dialect, **how) as plan:
            if part is not None:
                return plan.write_part(out, *part, go_on=go_on)
            return plan.commit(out, commit) if commit else plan.write(out, go_on)


class Plan:
    """What a conversion will do: a report before anything is touched.

    dialect, variant, tp, pp, dp, ep, cp, ranks, zero: of the coming run; left out: as the source.
    mode: "continue", "recover" (any difference is an error) or "transfer" (weights only). without: components.
    sets: {"lr": 1e-4} or {("0", "lr"): ...} of a group. schedule: "KIND:key=value,...", with lr_policy.
    groups: a list of lists of names. options: those of one framework, as {"vpp": 2}. memory: cap of the buffers.
    """

    def __init__(self, run, dialect=None, variant=None, mode="continue", without=(), sets=None, schedule=None,
                 lr_policy="default", rewarm_steps=0, max_lr_jump=0.0, rng="keep", seed=0, groups=None, options=None,
                 dtype=None, slots=None, vocab=0, zero=None, strict=False, force=False, repair=False, memory=0,
                 **sizes):
        self._run, self._plan = run, C.c_void_p()
        odd = set(sizes) - {"tp", "pp", "dp", "ep", "cp", "ranks"}
        if odd:
            raise TypeError(f"a plan has no {', '.join(sorted(odd))}")
        for name, n in sizes.items():
            if not 0 <= n < 1 << 32:
                raise ValueError(f"{name} {n}: a number of ranks, 0 as the source")
        stage = 0 if zero is None else -2 if zero == 0 else zero
        t = _Target(dialect=_bytes(dialect), variant=_bytes(variant), topology=_Topology(zero=stage, **sizes),
                    mode=_word(_MODES, "mode", mode), vocab=vocab,
                    without=sum(1 << _word(_COMPONENTS, "without", c) for c in without),
                    dtype=0 if dtype is None else _dtypes()[dtype], slots=_bytes(slots), strict=strict, force=force,
                    repair=repair, source=_bytes(run.path), schedule=_bytes(schedule),
                    lr_policy=_word(_POLICIES, "lr_policy", lr_policy), rewarm_steps=rewarm_steps,
                    max_lr_jump=max_lr_jump,
                    rng=_word(_RNG, "rng", rng), seed=seed)
        rows = [(k if isinstance(k, tuple) else (None, k)) + (v,) for k, v in (sets or {}).items()]
        t.sets, t.n_sets = (_Setting * len(rows))(*[_Setting(_bytes(g), _bytes(k), str(v).encode())
                                                    for g, k, v in rows]), len(rows)
        opts = [_Option(_bytes(k), str(v).encode()) for k, v in (options or {}).items()]
        t.options, t.n_options = (_Option * len(opts))(*opts), len(opts)
        if groups is not None:
            made = [_Group(params=(_p * len(g))(*map(_bytes, g)), n_params=len(g)) for g in groups]
            t.groups, t.n_groups = (_Group * len(made))(*made), len(made)
        self._keep = t
        _call("plan_create", run._handle(), C.byref(t), memory, C.byref(self._plan))
        run._plans.add(self)
        self._facts = _lib().ckr_plan_info(self._plan).contents
        f = self._facts
        self._goes_on = mode != "transfer" and "progress" not in without
        self.mode, self.verdict, self.dialect = mode, _VERDICTS[f.verdict], _text(f.dialect)
        self.topology, self.resume_at = _topology(f.to), f.resume_at
        self.report, self.groups = _notes(f.notes, f.n_notes), _groups(f.groups, f.n_groups)
        self.files = [{"path": _text(x.path), "bytes": x.bytes} for x in f.files[:f.n_files]]
        self.settings = [{"place": _text(x.place), "key": _text(x.key), "value": _value(x.value),
                          "was": _value(x.was), "needed": x.needed, "else": _said(x.otherwise)}
                         for x in f.settings[:f.n_settings]]
        self.schedule = Schedule(self, f.after) if f.after else None

    def _handle(self):
        if not self._plan:
            raise ValueError("the plan is closed")
        self._run._handle()
        return self._plan

    def __repr__(self):
        return f"<plan of {self._run!r} for {self.dialect}: {self.verdict}>"

    def close(self):
        plan, self._plan = self._plan, None
        if plan:
            _lib().ckr_plan_free(plan)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_plan", None):
            self.close()

    def dict(self):
        """As `ckptresume plan --json` has it."""
        f, run = self._facts, self._run
        version = _lib().ckr_version()
        version = f"{version // 10000}.{version // 100 % 100}.{version % 100}"
        of = {"version": version, "path": run.path, "format": run.format, "dialect": run.dialect,
              **({"engine": run.engine} if run.engine else {}), "framework_version": run.framework_version,
              "topology": run.topology, "files": run.files, "bytes": run.bytes, "progress": run.progress}
        to = {"version": version, "path": None, "format": None, "dialect": self.dialect, "framework_version": None,
              "topology": self.topology, "files": f.n_files, "bytes": f.bytes_written,
              "progress": run.progress if self._goes_on else dict.fromkeys(run.progress, 0)}
        return {"from": of, "to": to, "mode": self.mode, "verdict": self.verdict, "report": self.report,
                "copies": f.n_copies, "bytes_read": f.bytes_read, "bytes_written": f.bytes_written,
                "peak_bytes": f.peak_bytes, "files": self.files, "settings": self.settings}

    def write(self, out, go_on=False):
        """Into a path that appears whole or not at all. What was done: files, bytes, digests of source and output.
        go_on: what a run of the same plan, also with go_on, had written before it was killed is kept."""
        if go_on:
            self.write_part(out, 0, 1, True)
            return self.commit(out, 1)
        r = _Receipt()
        _call("plan_write", self._handle(), os.fsencode(out), C.byref(r))
        return _receipt(r)

    def begin(self, out, n, nonce, go_on=False):
        """One of n processes that run at once does it before the others, who get its nonce."""
        _call("plan_begin", self._handle(), os.fsencode(out), C.byref(_Parts(n, go_on, nonce)))

    def write_part(self, out, i, n, go_on=False, nonce=0):
        """Part i, from 0, of n: each by a process with an equal plan of its own, in any order, on one file system."""
        _call("plan_write_part", self._handle(), os.fsencode(out), i, C.byref(_Parts(n, go_on, nonce)))

    def commit(self, out, n):
        """When all n parts are written, and where they prove to be of this plan: the output appears, as from write."""
        r = _Receipt()
        _call("plan_commit", self._handle(), os.fsencode(out), C.byref(_Parts(n, False, 0)), C.byref(r))
        return _receipt(r)


def _receipt(r):
    return {"files": r.n_files, "bytes_read": r.bytes_read, "bytes_written": r.bytes_written,
            "digest": bytes(r.digest).hex(), "digest_written": bytes(r.digest_written).hex()}


def open(path, **how):  # noqa: A001 - as the library calls it
    """A file, a checkpoint's directory, or a run's (its newest complete checkpoint). See Checkpoint."""
    return Checkpoint(path, **how)


def main(args):
    if len(args) != 2:
        print(__doc__)
        return 2
    try:
        with open(args[1]) as run:
            print(run)
            print("topology", " ".join(f"{k} {v}" for k, v in run.topology.items()))
            for s in run.schedules:
                print("schedule", s.kind, "at", s.position, "" if s.opaque else s.params)
            for g in run.groups:
                print("group", g["index"], len(g["params"]), "parameters", g["hyper"])
            for t in run.tensors:
                print(t)
    except Error as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
