#!/usr/bin/env python3
"""hygiene.py all|text|functions|matrix|names|cost: gates that a compiler alone does not show.

text       ASCII, no tabs, 100 columns, no paths of a machine; section marks once each, and the
           table of sections in the manual equal to them; calls that belong to one section only
functions  lengths: median <= 20, 9 of 10 <= 60, none over 100 but those in hygiene_long.txt
matrix     strict flags and -Werror: gcc and clang, g++ and clang++, each standard; -O0, -O3; i686,
           s390x; x87, which is refused; mingw-w64, Microsoft's dialect; nvcc, and the CUDA header in
           every way; the declarations alone, before and after others; every CKPTRESUME_NO_ define;
           two vendored copies
names      only ckr_ symbols, no writable data, only CKR_ and CKPTRESUME_ macros
cost       seconds to include the declarations and to compile the implementation

Prints a line per failure, then `N passed, N failed`. Only Python's standard library.
"""

import os, re, resource, shutil, statistics, subprocess, sys, tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = ROOT / "ckptresume.h"
STRICT = (
    "-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wcast-qual -Wcast-align "
    "-Wundef -Wdouble-promotion -Wvla -Wswitch-enum -Werror"
).split()
STRICT_C = ["-Wstrict-prototypes", "-Wmissing-prototypes"]
COLUMNS = 100  # of C; scripts may have 120
MEDIAN, P90, LONGEST = 20, 60, 100
# no goals (those are 0.05 s and 5 s): they keep a doubling from passing on a slow or loaded machine
INCLUDE_SECONDS, COMPILE_SECONDS = 0.1, 120.0

# where a call may stand: section, or its first part
HOME = {
    "malloc": {"mem", "io"},
    "free": {"mem", "io"},
    "calloc": set(),
    "realloc": set(),
    "alloc_fn": {"mem", "context", "api"},
    "free_fn": {"mem", "context", "api"},
    "fopen": set(),
    "fread": set(),
    "fwrite": set(),
    "fclose": set(),
    "open": {"io"},
    "pread": {"io"},
    "pwrite": {"io"},
    "mmap": {"io"},
    "munmap": {"io"},
    "fsync": {"io"},
    "opendir": {"io"},
    "mkdir": {"io"},
    "rename": {"io"},
    "unlink": {"io"},
    "rmdir": {"io"},
    "printf": set(),
    "fprintf": set(),
    "puts": set(),
    "fputs": set(),
    "putchar": set(),
    "sprintf": set(),
    "vprintf": set(),
    "perror": set(),
    "exit": set(),
    "_exit": set(),
    "abort": set(),
    "assert": {"platform"},
    "longjmp": set(),
    "signal": set(),
    "getenv": set(),
    "system": set(),
    "popen": set(),
    "strcpy": set(),
    "strcat": set(),
    "strtok": set(),
    "atoi": set(),
    "atol": set(),
    "atof": set(),
    "gets": set(),
    "qsort": set(),
    "alloca": set(),
    "pthread_create": {"threads"},
    "rand": set(),
    "time": set(),
    # what depends on the program's locale: >>decimal and >>format have their own
    **{name: set() for name in (
        "strtod strtof strtold atof strtoimax sscanf fscanf vsscanf snprintf vsnprintf vasprintf asprintf "
        "swprintf localeconv strcoll strxfrm strcasecmp strncasecmp stricmp strftime setlocale "
        "isalpha isdigit isalnum isspace isupper islower isxdigit ispunct isprint isgraph iscntrl isblank "
        "tolower toupper mbstowcs wcstombs mbrtowc wcrtomb").split()},
}
# the conversions that ckr__vformat has
CONVERSION = re.compile(r"%(?:[0+]*\d*(?:ll?)?[dux]|\+?(?:\.(?:\*|\d+))?[gf]|(?:\.(?:\*|\d+))?s|c)")

passed, failures = 0, []


def expect(ok, what):
    global passed
    if ok:
        passed += 1
    else:
        failures.append(what)
        print(what, flush=True)
    return ok


def blank(text):
    """The text without comments, strings and character constants; lines keep their numbers."""
    out, i, n = [], 0, len(text)
    while i < n:
        c = text[i]
        if text.startswith("/*", i):
            j = text.find("*/", i + 2)
            j = n if j < 0 else j + 2
        elif text.startswith("//", i):
            j = text.find("\n", i)
            j = n if j < 0 else j
        elif c in "\"'":
            j = i + 1
            while j < n and text[j] != c and text[j] != "\n":
                j += 2 if text[j] == "\\" else 1
            j = min(n, j + 1)
        else:
            out.append(c)
            i += 1
            continue
        out.append("".join(x if x == "\n" else " " for x in text[i:j]))
        i = j
    return "".join(out)


def line_comments(text):
    """Lines with a // comment; comments of the other kind and strings are blanked."""
    kept = re.sub(
        r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
        lambda m: re.sub(r"[^\n]", " ", m.group()),
        text,
        flags=re.S,
    )
    return [i + 1 for i, l in enumerate(kept.split("\n")) if "//" in l]


# ---------------------------------------------------------------------------- text


def sources():
    names = []
    for pattern in (
        "*.h",
        "*.cuh",
        "Makefile",
        "LICENSE",
        "README.md",
        ".gitignore",
        ".ci/*",
        "examples/**/*",
        "tests/*.*",
        "tests/msvc/*.*",
        "tests/fuzz/*.*",
        "tests/interop/*",
        "bench/*.*",
    ):
        names += [p for p in ROOT.glob(pattern) if p.is_file() and "__pycache__" not in p.parts]
    return sorted(set(names))


def check_text():
    for path in sources():
        name, raw = path.relative_to(ROOT), path.read_bytes()
        if path.suffix in (".md", ".txt", ".json") and path.name != "README.md":
            continue
        lines = raw.split(b"\n")
        odd = [i + 1 for i, l in enumerate(lines) if any(b > 126 or (b < 32 and b != 9) for b in l)]
        expect(not odd, f"{name}:{odd[:1]}: {len(odd)} lines are not plain ASCII")
        tabs = [i + 1 for i, l in enumerate(lines) if b"\t" in l]
        expect(
            not tabs or path.name == "Makefile", f"{name}:{tabs[:1]}: {len(tabs)} lines with tabs"
        )
        ends = [i + 1 for i, l in enumerate(lines) if l != l.rstrip()]
        expect(not ends, f"{name}:{ends[:1]}: {len(ends)} lines end in blanks")
        if path.suffix in (".c", ".h", ".cuh", ".sh", ".py"):
            limit = COLUMNS + 20 * (path.suffix in (".sh", ".py"))
            wide = [i + 1 for i, l in enumerate(lines) if len(l) > limit]
            expect(not wide, f"{name}:{wide[:1]}: {len(wide)} lines over {limit} columns")
        paths = [
            i + 1 for i, l in enumerate(lines) if re.search(rb"/(work|farm|root|home)/[a-z]", l)
        ]
        expect(not paths, f"{name}:{paths[:1]}: a path of some machine")
        expect(raw.endswith(b"\n"), f"{name}: no newline at the end")
    word = re.compile(r"\bckr__\w+")
    known = set(word.findall((ROOT / "ckptresume.h").read_text()))
    for path in sorted(ROOT.glob("bench/*.c")):
        gone = sorted(set(word.findall(path.read_text())) - known)
        expect(not gone, f"{path.relative_to(ROOT)}: the header has no {', '.join(gone)}")


MARK = re.compile(r"^/\* >>([a-z0-9_.]+)", re.M)


def check_sections():
    text = HEADER.read_text()
    code = blank(text)
    marks = [(m.group(1), text.count("\n", 0, m.start()) + 1) for m in MARK.finditer(text)]
    names = [m for m, _ in marks]
    twice = sorted({m for m in names if names.count(m) > 1})
    expect(not twice, f"section marks that stand twice: {twice}")
    manual = text[: text.find("*/")] if text.startswith("/*") else ""
    table = re.findall(r">>([a-z0-9_.]+)", manual)
    expect(table, "the manual at the top has no table of sections")
    if table:
        rows = list(dict.fromkeys(table))
        expect(
            not set(names) - set(rows),
            f"sections that the manual's table lacks: {sorted(set(names) - set(rows))}",
        )
        expect(
            not set(rows) - set(names),
            f"sections only in the manual's table: {sorted(set(rows) - set(names))}",
        )
        order = [m for m in rows if m in names]
        expect(
            order == [m for m in names if m in rows],
            "the manual's table has another order than the sections",
        )
    lines, at, section = code.split("\n"), dict((n, m) for m, n in marks), "api"
    comments = line_comments(text)
    expect(not comments, f"ckptresume.h:{comments[:1]}: {len(comments)} comments with //")
    wrong = []
    call = re.compile(
        r"(?<![\w.>])(" + "|".join(map(re.escape, HOME)) + r")\s*\(|[.>](alloc_fn|free_fn)\s*\("
    )
    for i, line in enumerate(lines):
        section = at.get(i + 1, section)
        if line.lstrip().startswith("#"):
            continue
        for m in call.finditer(line):
            what = m.group(1) or m.group(2)
            if section not in HOME[what] and section.split(".")[0] not in HOME[what]:
                wrong.append(f"ckptresume.h:{i + 1}: {what}() in section {section}")
    begin = text.index("/* >>prologue")
    for m in re.finditer(r'"((?:\\.|[^"\\\n])*)"', text[begin:]):
        text_of = m.group(1).replace("%%", "")
        for f in re.findall(r"%[-+ #0-9.*lhzjtL]*[a-zA-Z]", text_of):
            if CONVERSION.fullmatch(f):
                continue
            line = text.count("\n", 0, begin + m.start()) + 1
            wrong.append(f"ckptresume.h:{line}: a conversion that ckr__vformat does not have: {f}")
    for w in wrong[:20]:
        print(w)
    expect(not wrong, f"{len(wrong)} calls outside their sections")


# Which sections may look into what a dialect keeps for its own writer, by the struct's name.
KEEPS = {
    "nt": "nanotron",
    "ac": "accelerate",
    "lm": "llmc",
    "ds": "deepspeed",
    "dt": "torch_dcp",
    "mg": "megatron",
    "plain": "plain",
    "verl_run": "verl",
}
FRAMEWORKS = "nanotron megatron deepspeed accelerate hf_trainer sana llmc torchtitan verl".split()
CORE = re.compile(r"(layout|out|kit|resume|plan|groups|trust|output|verify|ckpt|lanes|run)\b")


def check_layers():
    """The core names no framework, and a dialect looks into nobody else's private data."""
    section, named, cast = "", [], []
    for i, line in enumerate(HEADER.read_text().split("\n")):
        mark = MARK.match(line)
        section = mark.group(1) if mark else section
        if CORE.match(section):
            named += [i + 1 for f in FRAMEWORKS if f'"{f}"' in line]
        for of in re.findall(r"\((?:const )?ckr__(\w+) \*\)[^;]*dialect_data", line):
            if KEEPS.get(of) != section.split(".")[0]:
                cast.append(i + 1)
    expect(not named, f"ckptresume.h:{named[:3]}: the core names a framework")
    expect(not cast, f"ckptresume.h:{cast[:3]}: a look into another dialect's private data")


# ---------------------------------------------------------------------------- functions


def functions(path):
    """[(name, line, lines of the body)]; a function's braces stand in column 1."""
    lines, out, begin = blank(path.read_text()).split("\n"), [], None
    for i, line in enumerate(lines):
        if line == "{":
            head, k = "", i - 1
            while k >= 0 and lines[k].strip() and not lines[k].startswith(("}", "#")):
                head = lines[k] + " " + head
                k -= 1
            names = re.findall(r"(\w+)\s*\(", head)
            names = [
                n
                for n in names
                if not n.startswith(("CKR__PRINTF", "CKR__TARGET", "__attribute__"))
            ]
            begin = (names[0] if names else "?", i)
        elif line == "}" and begin:
            out.append((begin[0], begin[1] + 1, i - begin[1] - 1))
            begin = None
    return out


def check_functions():
    listed = {}
    for line in (ROOT / "tests/hygiene_long.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, why = line.partition(" ")
            listed[name] = why.strip()
    every = functions(HEADER)
    size = sorted(n for _, _, n in every)
    if not expect(size, "no functions found"):
        return
    median, p90 = statistics.median(size), size[len(size) * 9 // 10]
    print(
        f"functions: {len(size)}, median {median:g} lines, 9 of 10 within {p90}, longest {size[-1]}"
    )
    expect(median <= MEDIAN, f"functions: median {median:g}, at most {MEDIAN}")
    expect(p90 <= P90, f"functions: 9 of 10 within {p90} lines, at most {P90}")
    for name, line, n in every:
        if n > LONGEST:
            expect(
                listed.get(name),
                f"ckptresume.h:{line}: {name} has {n} lines and no reason in hygiene_long.txt",
            )
    stale = set(listed) - {name for name, _, n in every if n > LONGEST}
    expect(not stale, f"hygiene_long.txt names what is not long: {sorted(stale)}")


# ---------------------------------------------------------------------------- compilers


def have(tool):
    return shutil.which(tool) is not None


def here(tool):
    """A compiler that a check needs; that there is none is a failure, once."""
    if not have(tool) and f"{tool} is not here" not in failures:
        expect(False, f"{tool} is not here")
    return have(tool)


class Shop:
    """Compiles small files beside each other; two at a time."""

    def __init__(self):
        self.dir, self.jobs = Path(tempfile.mkdtemp(prefix="ckr-hygiene-")), []
        self.pool = ThreadPoolExecutor(int(os.environ.get("JOBS", "2")))
        self.n = 0

    def file(self, text, ext):
        self.n += 1
        path = self.dir / f"f{self.n}{ext}"
        path.write_text(text)
        return str(path)

    def run(self, cmd):
        p = subprocess.run(cmd, capture_output=True, text=True, cwd=self.dir)
        return p.returncode, p.stdout + p.stderr

    def want(self, label, cmd, must_fail=None):
        if must_fail:
            cmd = [*cmd, "-Wfatal-errors"]     # it stops there
        self.jobs.append((label, must_fail, self.pool.submit(self.run, cmd)))

    def finish(self):
        for label, must_fail, job in self.jobs:
            rc, text = job.result()
            if must_fail:
                expect(
                    rc != 0 and must_fail in text, f'{label}: has to fail and to say "{must_fail}"'
                )
            elif not expect(rc == 0, f"{label}: exit {rc}"):
                errors = [
                    l for l in text.splitlines() if "error" in l or "warning" in l
                ] or text.splitlines()
                print("\n".join(errors[:6]))
        self.jobs = []

    def close(self):
        self.pool.shutdown()
        shutil.rmtree(self.dir, ignore_errors=True)


IMPL = '#define CKPTRESUME_IMPLEMENTATION\n#include "ckptresume.h"\n'
USE = (
    '#include "ckptresume.h"\n#include "ckptresume.h"\n'
    "extern int use(ckr_ckpt **c);\n"
    "int use(ckr_ckpt **c)\n{\n    ckr_open_desc d = CKR_ZERO;\n    ckr_error e;\n"
    '    return ckr_ckpt_open("x", &d, c, &e) != CKR_OK;\n}\n'
)
LANGUAGES = [(t, s, ".c") for t in ("gcc", "clang") for s in ("c99", "c11", "c17")] + [
    (t, s, ".cc") for t in ("g++", "clang++") for s in ("c++11", "c++17", "c++20")
]


def flags(tool, ext):
    more = STRICT_C if ext == ".c" else []
    if ext == ".cc":
        more = more + ["-Wold-style-cast"]
    return STRICT + more + [f"-I{ROOT}"]


def check_matrix():
    shop = Shop()
    for tool, std, ext in LANGUAGES:
        if not here(tool):
            continue
        base = [tool, f"-std={std}", *flags(tool, ext)]
        impl, use = shop.file(IMPL, ext), shop.file(USE, ext)
        if (tool, std) == ("gcc", "c99"):  # what the optimizer finds depends on no standard, and clang's finds nothing
            for opt in ("-O0", "-O3"):
                shop.want(f"{tool} {std} {opt}", base + [opt, "-c", impl, "-o", impl + opt + ".o"])
        else:
            shop.want(f"{tool} {std}", base + ["-fsyntax-only", impl])
        shop.want(f"{tool} {std} declarations", base + ["-fsyntax-only", use])
    machines(shop)
    if (here if os.environ.get("CI") else have)("nvcc"):
        impl = shop.file(IMPL, ".cu")
        shop.want(
            "nvcc c++17",
            [
                "nvcc",
                "-std=c++17",
                f"-I{ROOT}",
                "-Werror",
                "all-warnings",
                "-Xcompiler",
                "-Wall,-Wextra,-Werror",
                "-c",
                impl,
                "-o",
                impl + ".o",
            ],
        )
    else:
        print("skipped: nvcc (not here)")
    if here("x86_64-w64-mingw32-gcc"):
        impl = shop.file(IMPL, ".c")
        shop.want(
            "mingw c99",
            [
                "x86_64-w64-mingw32-gcc",
                "-std=c99",
                "-fsyntax-only",
                f"-I{ROOT}",
                "-Wall",
                "-Wextra",
                "-Werror",
                impl,
            ],
        )
        base = ["x86_64-w64-mingw32-gcc", "-std=c99", f"-I{ROOT}", "-fsyntax-only"]
        lean = "#define WIN32_LEAN_AND_MEAN\n#include <windows.h>\n"
        shop.want("mingw: lean windows.h before", base + [shop.file(lean + IMPL, ".c")])
        shop.want(
            "mingw: all of windows.h before",
            base + [shop.file("#include <windows.h>\n" + IMPL, ".c")],
            must_fail="WIN32_LEAN_AND_MEAN",
        )
    msvc(shop)
    defines(shop)
    inclusion(shop)
    cuda(shop)
    shop.finish()
    copies(shop)
    shop.close()


def machines(shop):
    """32 bits and the other byte order, with Debian's cross compilers; and x87, whose results are others."""
    clang = ["clang", "--target=i686-linux-gnu", "-isystem", "/usr/i686-linux-gnu/include"]
    sse, strict = ["-msse2", "-mfpmath=sse"], ["-std=c99", *flags("gcc", ".c")]
    impl = shop.file(IMPL, ".c")
    rows = [
        ("i686", ["i686-linux-gnu-gcc", *sse, "-fsyntax-only"], None),
        ("i686 clang", [*clang, *sse, "-fsyntax-only"], None),
        ("s390x", ["s390x-linux-gnu-gcc", "-fsyntax-only"], None),
        ("x87: i686", ["i686-linux-gnu-gcc", "-fsyntax-only"], "pass -msse2 -mfpmath=sse"),
        ("x87: i686 clang", [*clang, "-fsyntax-only"], "pass -msse2 -mfpmath=sse"),
        ("x87: x86-64", ["gcc", "-mfpmath=387", "-fsyntax-only"], "pass -msse2 -mfpmath=sse"),
    ]
    for label, cmd, must_fail in rows:
        if here(cmd[0]) and (cmd[0] != "clang" or here("i686-linux-gnu-gcc")):
            shop.want(f"{label} c99", cmd[:1] + strict + cmd[1:] + [impl], must_fail)


def msvc(shop):
    """Microsoft's dialect as clang has it, with tests/msvc for their headers; as clang-cl and, without
    the name of clang, by the branches that cl takes. Not shown: cl's own parser, warnings and limits
    (literals, nesting), its preprocessor, what its real headers define, any code that it makes."""
    if not here("clang"):
        return
    base = "clang -fms-compatibility -fms-extensions --target=x86_64-pc-windows-msvc -fsyntax-only"
    base = base.split() + ["-Wall", "-Wextra", "-Werror", f"-I{ROOT}", "-isystem", f"{ROOT}/tests/msvc"]
    cl = "-U__clang__ -mavx512f -mvpclmulqdq -mpclmul -msha -mavx2 -mfma -msse4.1".split()
    for std, ext in (("c11", ".c"), ("c++14", ".cc")):
        for text in (IMPL, USE):
            unit = shop.file(text, ext)
            what = "" if text is IMPL else " declarations"
            shop.want(f"clang as clang-cl {std}{what}", base + [f"-std={std}", unit])
            shop.want(f"clang as cl {std}{what}", base + [f"-std={std}", *cl, unit])


def defines(shop):
    """Every CKPTRESUME_NO_ define alone, by clang, which is the fastest, and all together, in C and in C++; NDEBUG."""
    names = sorted(set(re.findall(r"\bCKPTRESUME_NO_[A-Z]+\b", HEADER.read_text())))
    print("defines:", " ".join(names) or "none")
    more = ["CKPTRESUME_STATIC", "CKPTRESUME_DEBUG", "NDEBUG"]
    for group in [[n] for n in names + more] + [names]:
        ways = [("clang", "c99", ".c"), ("clang++", "c++17", ".cc")]
        if len(group) > 1:
            ways.append(("gcc", "c99", ".c"))
        for tool, std, ext in ways:
            if here(tool) and group:
                impl = shop.file("".join(f"#define {d}\n" for d in group) + IMPL, ext)
                label = group[0] if len(group) == 1 else "all of them"
                shop.want(
                    f"{tool} {label}",
                    [
                        tool,
                        f"-std={std}",
                        *flags(tool, ext),
                        "-Wno-unused-const-variable",
                        "-fsyntax-only",
                        impl,
                    ],
                )
    impl = shop.file(
        "#include <stdlib.h>\n#define CKPTRESUME_MALLOC(n) malloc(n)\n"
        "#define CKPTRESUME_FREE(p) free(p)\n"
        "#define CKPTRESUME_ASSERT(x) ((void)0)\n#define _DEFAULT_SOURCE 1\n" + IMPL,
        ".c",
    )
    shop.want(
        "gcc own allocator",
        [
            "gcc",
            "-std=gnu99",
            f"-I{ROOT}",
            "-Wall",
            "-Werror",
            "-fsyntax-only",
            impl,
        ],
    )


def inclusion(shop):
    """Before and after everything; with libc names that are macros; too late in strict C99."""
    base = ["gcc", "-std=c99", *flags("gcc", ".c"), "-fsyntax-only"]
    others = "".join(
        f"#include <{h}>\n"
        for h in (
            "stdio.h",
            "stdlib.h",
            "string.h",
            "math.h",
            "errno.h",
            "time.h",
            "fcntl.h",
            "unistd.h",
            "sys/stat.h",
            "pthread.h",
        )
    )
    macros = "".join(
        f"#define {f}(...) use_of_{f}\n"
        for f in (
            "malloc",
            "free",
            "open",
            "close",
            "read",
            "write",
            "stat",
            "sync",
            "remove",
            "rename",
            "list",
            "log",
            "index",
        )
    )
    shop.want("included after others", base + [shop.file(others + USE, ".c")])
    shop.want("included before others", base + [shop.file(USE + others, ".c")])
    shop.want("included among macros", base + [shop.file(macros + USE, ".c")])
    shop.want(
        "implementation after stdio.h in strict C99",
        base + [shop.file("#include <stdio.h>\n" + IMPL, ".c")],
        must_fail="before any system header",
    )


# What stands in a file that uses both headers. The dialects are left out: what is at stake is which header has
# brought which, and the rest compiles several times as fast.
CUDA_ONE = (
    ("by CKPTRESUME_CUDA", "CUDA IMPLEMENTATION CUDA_IMPLEMENTATION <ckptresume.h"),
    ("by CKPTRESUME_CUDA, bodies later", "CUDA <ckptresume.h IMPLEMENTATION CUDA_IMPLEMENTATION <ckptresume.h"),
    ("one after the other", "IMPLEMENTATION <ckptresume.h CUDA_IMPLEMENTATION <ckptresume_cuda.cuh"),
    ("the other first", "CUDA_IMPLEMENTATION <ckptresume_cuda.cuh IMPLEMENTATION <ckptresume.h"),
    ("all defines, then the .cuh", "IMPLEMENTATION CUDA_IMPLEMENTATION <ckptresume_cuda.cuh"),
    ("all defines, then the .cuh, by CKPTRESUME_CUDA", "CUDA IMPLEMENTATION CUDA_IMPLEMENTATION <ckptresume_cuda.cuh"),
    ("each twice", "IMPLEMENTATION CUDA_IMPLEMENTATION <ckptresume_cuda.cuh <ckptresume.h <ckptresume_cuda.cuh"),
)
CUDA_USE = (
    "extern ckr_result use(void);\nckr_result use(void)\n{\n    ckr_cuda_how how = CKR_ZERO;\n    ckr_error e = "
    "CKR_ZERO;\n    size_t n = 0;\n    return ckr_cuda_pack(NULL, 0, NULL, &n, &e) == CKR_OK && ckr_version() && "
    "!how.stochastic ? CKR_OK : CKR_E_ARG;\n}\n"
)
CUDA_MAIN = CUDA_USE + "int main(void)\n{\n    return use() == CKR_OK ? 0 : 1;\n}\n"


def cuda_text(way, more=""):
    out = more
    for word in way.split():
        out += f'#include "{word[1:]}"\n' if word[0] == "<" else f"#define CKPTRESUME_{word}\n"
    return out


def cuda(shop):
    """The two headers together in every documented way: host C by gcc, and by nvcc, linked and run."""
    bare = "".join(f"#define CKPTRESUME_NO_{d}\n" for d in ("NANOTRON", "MEGATRON", "ACCELERATE", "LLMC", "DCP"))
    host = "#define CKPTRESUME_CUDA_HOST\n" + bare
    for label, way in CUDA_ONE:
        first_late = way.startswith("CUDA_IMPL")   # a strict C99 file may not include the bodies so late
        std = "gnu99" if first_late or "bodies later" in label else "c99"
        shop.want(f"gcc {std} host CUDA, {label}", ["gcc", f"-std={std}", *flags("gcc", ".c"), "-fsyntax-only",
                                                    shop.file(cuda_text(way, host) + CUDA_USE, ".c")])
    if not (here if os.environ.get("CI") else have)("nvcc"):
        print("skipped: nvcc, with CKPTRESUME_CUDA in every way (not here)")
        return
    top = str(Path(os.path.realpath(shutil.which("nvcc"))).parent.parent)
    nvcc = ["nvcc", "-std=c++17", f"-I{ROOT}", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror", "-O0"]
    for label, way in CUDA_ONE:
        path = shop.file(cuda_text(way, bare) + CUDA_MAIN, ".cu")
        shop.want(f"nvcc, {label}", [*nvcc, path, "-o", path + ".x", "-Xcompiler", "-pthread"])
    shop.finish()
    gcc = ["gcc", "-std=c99", *flags("gcc", ".c"), f"-isystem{top}/include", "-O0", "-c"]
    parts = {
        "bodies in C": (gcc, shop.file(bare + IMPL, ".c")),
        "kernels": ([*nvcc, "-c"], shop.file(cuda_text("CUDA_IMPLEMENTATION <ckptresume_cuda.cuh"), ".cu")),
        "caller in C": (gcc, shop.file(cuda_text("CUDA <ckptresume.h") + CUDA_MAIN, ".c")),
        "caller in C, by the .cuh": (gcc, shop.file(cuda_text("<ckptresume_cuda.cuh") + CUDA_USE, ".c")),
    }
    for label, (tool, path) in parts.items():
        shop.want(f"CUDA in several files: {label}", [*tool, path, "-o", path + ".o"])
    shop.finish()
    three = [path + ".o" for _, path in list(parts.values())[:3]]
    exe = str(shop.dir / "cuda3")
    rc, text = shop.run(["nvcc", *three, "-o", exe, "-Xcompiler", "-pthread"])
    expect(rc == 0 and shop.run([exe])[0] == 0, f"CUDA in several files: link and run: {text[:300]}")


def copies(shop):
    """Two programs' vendored copies in one program; the implementation in C with a user in C++."""
    static = "#define CKPTRESUME_STATIC\n" + IMPL
    body = "int {0}(void);\nint {0}(void)\n{{\n    return ckr_item_name(CKR_ITEM_OK) == NULL;\n}}\n"
    one, two = shop.file(static + body.format("one"), ".c"), shop.file(
        static + body.format("two"), ".c"
    )
    main = shop.file(
        "int one(void);\nint two(void);\nint main(void)\n{\n    return one() + two();\n}\n", ".c"
    )
    exe = str(shop.dir / "two")
    rc, text = shop.run(
        ["gcc", "-std=c99", *flags("gcc", ".c"), "-O0", one, two, main, "-o", exe, "-pthread", "-lm"]
    )
    expect(
        rc == 0 and shop.run([exe])[0] == 0,
        f"two vendored static copies do not link and run: {text[:300]}",
    )
    impl, use = shop.file(IMPL, ".c"), shop.file(
        USE + "int main()\n{\n    ckr_ckpt *c;\n    return use(&c) == 0;\n}\n", ".cc"
    )
    exe = str(shop.dir / "mixed")
    ok = (
        shop.run(["gcc", "-std=c99", "-w", "-O0", f"-I{ROOT}", "-c", impl, "-o", impl + ".o"])[0]
        == 0
    )
    rc, text = shop.run(["g++", f"-I{ROOT}", use, impl + ".o", "-o", exe, "-pthread", "-lm"])
    expect(
        ok and rc == 0 and shop.run([exe])[0] == 0,
        f"implementation in C, user in C++: {text[:300]}",
    )


# ---------------------------------------------------------------------------- names


def macros(shop, text):
    rc, out = shop.run(["gcc", "-std=c99", f"-I{ROOT}", "-dM", "-E", shop.file(text, ".c")])
    if not expect(rc == 0, f"macro dump: {out[:200]}"):
        return set()
    return {l.split()[1].split("(")[0] for l in out.splitlines() if l.startswith("#define ")}


def check_names():
    shop = Shop()
    for tool, ext in (("gcc", ".c"), ("clang", ".c"), ("g++", ".cc")):
        if not here(tool):
            continue
        impl = shop.file(IMPL, ext)
        rc, out = shop.run(
            [tool, "-O1", "-w", "-fno-pic", f"-I{ROOT}", "-c", impl, "-o", impl + ".o"]
        )
        if not expect(rc == 0, f"{tool}: {out[:200]}"):
            continue
        rows = [l.split() for l in shop.run(["nm", impl + ".o"])[1].splitlines()]
        rows = [(r[-2], r[-1]) for r in rows if len(r) >= 2]
        odd = [n for t, n in rows if t in "TDBRVWC" and not re.fullmatch(r"ckr_[a-z0-9]\w*", n)]
        expect(not odd, f"{tool}: external symbols without the prefix: {odd[:5]}")
        private = [n for t, n in rows if t in "TDBRVWC" and n.startswith("ckr__")]
        expect(not private, f"{tool}: private names that are external: {private[:5]}")
        writable = [n for t, n in rows if t in "dDbB"]
        expect(not writable, f"{tool}: writable data: {writable[:5]}")
        mine = [
            n
            for t, n in rows
            if t in "trd" and "." not in n and not n.startswith("ckr_") and tool == "gcc"
        ]
        expect(not mine, f"{tool}: static names without the prefix: {mine[:5]}")
    header = HEADER.read_text()
    system = "".join(
        f"#include <{h}>\n"
        for h in sorted(set(re.findall(r"^#\s*include <([\w./]+)>", header, re.M)))
        if h not in ("windows.h", "intrin.h", "io.h")
    )
    declared = macros(shop, USE) - macros(
        shop, "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n"
    )
    odd = sorted(m for m in declared if not m.startswith(("CKR_", "CKPTRESUME_")))
    expect(not odd, f"the declarations define {odd[:5]}")
    private = sorted(
        m
        for m in declared
        if m.startswith("CKR__") and not m.startswith(("CKR__ITEMS", "CKR__DTYPES"))
    )
    expect(not private, f"the declarations leave private macros behind: {private[:5]}")
    feature = "#define _DEFAULT_SOURCE 1\n#define _FILE_OFFSET_BITS 64\n"
    defined = macros(shop, IMPL) - macros(shop, feature + system)
    odd = sorted(m for m in defined if not m.startswith(("CKR_", "CKPTRESUME_")))
    expect(not odd, f"the implementation defines {odd[:5]}")
    shop.close()


# ---------------------------------------------------------------------------- cost


def cpu(shop, cmd):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    rc, out = shop.run(cmd)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    expect(rc == 0, f"{' '.join(cmd[:3])}: {out[:200]}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def check_cost():
    shop = Shop()
    empty, use, impl = (
        shop.file("int x;\n", ".c"),
        shop.file('#include "ckptresume.h"\nint x;\n', ".c"),
        shop.file(IMPL, ".c"),
    )
    base = ["gcc", "-std=c99", "-O2", "-w", f"-I{ROOT}", "-c", "-o", str(shop.dir / "cost.o")]
    include = min(cpu(shop, base + [use]) for _ in range(7)) - min(
        cpu(shop, base + [empty]) for _ in range(7)
    )
    compile_ = cpu(shop, base + [impl])
    without = [
        f"-DCKPTRESUME_NO_{d}" for d in ("NANOTRON", "ACCELERATE", "LLMC", "DEEPSPEED", "DCP")
    ]
    core = cpu(shop, base + without + [impl])
    print(
        f"cost: including the declarations {include:.3f} s, the implementation at -O2 "
        f"{compile_:.2f} s, without dialects {core:.2f} s (CPU, gcc)"
    )
    expect(
        include <= INCLUDE_SECONDS,
        f"including the declarations costs {include:.3f} s, at most {INCLUDE_SECONDS}",
    )
    expect(
        compile_ <= COMPILE_SECONDS,
        f"the implementation takes {compile_:.2f} s to compile, at most {COMPILE_SECONDS}",
    )
    shop.close()


STAGES = {
    "text": [check_text, check_sections, check_layers],
    "functions": [check_functions],
    "names": [check_names],
    "matrix": [check_matrix],
    "cost": [check_cost],
}


def main():
    what = sys.argv[1] if len(sys.argv) > 1 else "all"
    if what != "all" and what not in STAGES:
        print(__doc__)
        return 2
    for name, checks in STAGES.items():
        if what in ("all", name):
            for check in checks:
                check()
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
