/* ckptresume.h 0.1.0 - resumes any training run from any checkpoint, on any number of ranks, and
   proves that it did. MIT or public domain, at your choice (texts at the end of this file). No
   warranty. Reads hostile files; executes nothing that is in them.

   Do this
   -------
   In one C or C++ file, before any other include:

       #define CKPTRESUME_IMPLEMENTATION
       #include "ckptresume.h"

   and #include "ckptresume.h" wherever else you use it. Link with -pthread -lm on POSIX, with
   nothing on Windows.

   What it does
   ------------
   A sharded tensor, whatever the framework, is a logical tensor that boxes cover, each box a
   strided range of bytes in some file. A checkpoint is read into such a *run state* (ckr_state:
   tensors, parameter groups, schedules, random streams, progress, and as leftovers everything not
   understood); a *plan* says what the coming run keeps, changes and loses, before a byte moves;
   carrying it out is one list of copies.

       ckr_ckpt *c;  ckr_plan *p;  ckr_error e = CKR_ZERO;  ckr_target to = CKR_ZERO;
       to.mode = CKR_MODE_CONTINUE;
       to.topology.tp = 4;  to.topology.zero = -1;               // was 2 when this was saved
       if (ckr_ckpt_open("run/checkpoints", NULL, &c, &e)) ...   // metadata only
       if (ckr_plan_create(c, &to, 0, &p, &e)) ...               // touches nothing
       for (i = 0; i < ckr_plan_info(p)->n_notes; i++) ...       // what it keeps, changes, loses
       if (ckr_plan_write(p, "run/tp4", NULL, &e)) ...           // whole or not at all
       ckr_plan_free(p);  ckr_ckpt_close(c);

   A trainer that wants tensors in its own memory calls ckr_ckpt_read with any box of any tensor
   instead of the plan; one that has its own format fills a state with ckr_ckpt_create and
   ckr_ckpt_put. examples/ has both as programs.

   What it reads and writes
   ------------------------
       format             read                                        written
       torch .pt          zip of 1.6 to 2.15, legacy streams,         zip as 2.15 writes it,
                          plain pickles, protocols 0 to 5             loads with weights_only=True
       safetensors        all of it, strictly                         yes
       .npy, .npz         stored members                              no
       JSON, YAML         YAML: the subset of configuration files     yes, as part of a checkpoint
       framework          read                                        written
       Nanotron           0.4 to HEAD; TP, PP, DP, ZeRO-0 and 1       loads in unpatched HEAD

   What it does not do: inflate deflated members (torch writes none), run anything, guess. It reads
   no environment variable, prints nothing, installs no handler, and has no global state.

   Errors
   ------
   A call returns a class (ckr_result) and fills the caller's ckr_error, when there is one: the
   item that failed, the file, the byte offset or key path, a sentence with what was found and what
   was expected, and the remedy if there is one. Outputs of a failed call are NULL. Items are
   stable: ckr_item_name gives their names.

   Memory, lifetime, threads
   -------------------------
   ckr_ckpt, ckr_plan, ckr_report and ckr_diff own what they point to, in an arena of their own;
   everything reached through them lives as long. A plan borrows its checkpoint. An opened
   checkpoint is immutable and may be read by any number of threads; a plan is written by one at a
   time. Hooks (ckr_env) for memory, files, threads, log and progress are copied at creation and
   must be callable from worker threads.

   Hostile input
   -------------
   Parsing is validating: no value is reachable before it was proved in range. Every size and
   offset from a file goes through checked arithmetic; nothing recurses with the file's depth;
   metadata is read into private memory before it is parsed, at most ckr_limits of it; work and
   memory are linear in the file. Files are read, never mapped: one that is truncated while it is
   open is an error, not a signal, and a page fault costs more than the copy that it saves.

   Output
   ------
   Written into one sibling `.NAME.ckptresume-tmp`, synced, renamed: absent or whole, whatever
   happens. The same input gives the same bytes for any number of threads and any window.
   `ckptresume.json` beside the target's own files holds what their format cannot (logical
   vocabulary size, source, schedule, digest of every tensor); no framework reads it.

   Configuration, before the include
   ---------------------------------
       CKPTRESUME_IMPLEMENTATION     emit the bodies, in one translation unit
       CKPTRESUME_STATIC             all functions static: two vendored copies in one program
       CKR_API                       linkage, for example a dllexport
       CKPTRESUME_NO_THREADS         no pthreads: env.parallel.for_fn, or one thread
       CKPTRESUME_NO_SIMD            scalar checksums and digests: same values, slower
       CKPTRESUME_NO_TEXT            items keep their ids, lose their texts
       CKPTRESUME_MALLOC, _FREE      the default allocator; both or neither
       CKPTRESUME_ASSERT(x)          invariants of this file, never of its input; default assert

   Sections, each calling only what stands above it; grep for the mark
   -------------------------------------------------------------------
       >>api.types >>api.hooks >>api.tree >>api.state >>api.plan >>api.run >>prologue >>platform
       >>arith >>error >>mem >>io >>threads >>context >>dtype >>node >>tree >>hash >>crc32
       >>digest >>sha256 >>text >>json >>json.put >>yaml >>yaml.scalar >>yaml.read >>yaml.put
       >>safetensors >>hf_index >>convert >>zip >>pickle >>pickle.text >>pickle.numbers
       >>pickle.containers >>pickle.keys >>pickle.calls >>pickle.memo >>pickle.machine >>torch
       >>torch.storage >>torch.tensor >>torch.calls >>torch.build >>torch.legacy >>torch.script
       >>torch.archive >>numpy >>numpy.file >>tree_load >>doc >>state >>layout >>out >>dialects
       >>nanotron >>nanotron.files >>nanotron.probe >>nanotron.topology >>nanotron.model
       >>nanotron.weights >>nanotron.optimizer >>nanotron.schedule >>nanotron.random
       >>nanotron.read >>nanotron.emit >>plain >>dialect.table >>write.pickle >>write.image >>run
       >>lanes >>plan >>output >>output.paths >>verify >>verify.check >>verify.diff
       >>verify.members >>ckpt >>ckpt.side >>ckpt.diff >>view >>epilogue

   Versions: CKR_VERSION_*; items, notes' codes and JSON keys are added, never renamed. */

/* before any include: strict -std=c99 hides pread, fseeko and 64-bit off_t otherwise */
#ifdef CKPTRESUME_IMPLEMENTATION
#  ifndef _DEFAULT_SOURCE
#    define _DEFAULT_SOURCE 1
#  endif
#  ifndef _FILE_OFFSET_BITS
#    define _FILE_OFFSET_BITS 64
#  endif
#endif

#ifndef CKPTRESUME_H
#define CKPTRESUME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKR_VERSION_MAJOR 0
#define CKR_VERSION_MINOR 1
#define CKR_VERSION_PATCH 0
#define CKR_VERSION (CKR_VERSION_MAJOR * 10000 + CKR_VERSION_MINOR * 100 + CKR_VERSION_PATCH)

#ifndef CKR_API
#  ifdef CKPTRESUME_STATIC
#    define CKR_API static
#  else
#    define CKR_API extern
#  endif
#endif

#ifdef __cplusplus
#  define CKR_ZERO {}          /* ckr_open_desc d = CKR_ZERO;  clean as C and as C++ */
extern "C" {
#else
#  define CKR_ZERO {0}
#endif

/* >>api.types ----------------------------------------------------------------- */

#define CKR_MAX_DIMS  8        /* of a tensor that is cut or joined; viewing has no limit */
#define CKR_NO_FILE   UINT32_MAX
#define CKR_NO_OFFSET UINT64_MAX

typedef enum ckr_result {      /* the class: what a program branches on             */
    CKR_OK            =   0,
    CKR_E_ARG         =  -1,   /* the caller broke the contract                     */
    CKR_E_NOMEM       =  -2,   /* the allocator returned NULL                       */
    CKR_E_LIMIT       =  -3,   /* input larger than ckr_limits allows               */
    CKR_E_IO          =  -4,   /* open/read/write/rename failed: see sys_error      */
    CKR_E_FORMAT      =  -5,   /* the file is malformed or truncated                */
    CKR_E_UNSUPPORTED =  -6,   /* well formed, but not something we read            */
    CKR_E_UNSAFE      =  -7,   /* a pickle asked for something we refuse            */
    CKR_E_TYPE        =  -8,   /* the value exists with another type                */
    CKR_E_NOT_FOUND   =  -9,
    CKR_E_MISMATCH    = -10,   /* files, shapes, ranks or hyper-parameters disagree */
    CKR_E_BACKEND     = -11,   /* a device backend failed                           */
    CKR_E_CANCELLED   = -12,
    CKR_E_REFUSED     = -13    /* policy forbids it; the report says what allows it */
} ckr_result;

/* The item: exactly which check failed. One list makes the enum, the class and the
   text, so the three cannot drift. Append only; ids are stable across versions.    */
#define CKR__ITEMS(X)                                                               \
    X(OK,                   OK,            "ok")                                                   \
    X(ARG,                  E_ARG,         "an argument breaks the function's contract")           \
    X(NOMEM,                E_NOMEM,       "out of memory")                                        \
    X(LIMIT,                E_LIMIT,       "the input needs more than ckr_limits allows")          \
    X(SIZE_OVERFLOW,        E_FORMAT,      "a size or offset does not fit 63 bits")                \
    X(IO_OPEN,              E_IO,          "cannot open")                                          \
    X(IO_READ,              E_IO,          "cannot read")                                          \
    X(IO_WRITE,             E_IO,          "cannot write")                                         \
    X(IO_LIST,              E_IO,          "cannot list the directory")                            \
    X(IO_SYNC,              E_IO,          "cannot make the bytes durable")                        \
    X(IO_RENAME,            E_IO,          "cannot rename")                                        \
    X(IO_REMOVE,            E_IO,          "cannot remove")                                        \
    X(IO_MKDIR,             E_IO,          "cannot create the directory")                          \
    X(IO_NO_SPACE,          E_IO,          "no space left")                                        \
    X(PATH_NOT_FOUND,       E_NOT_FOUND,   "there is no such file or directory")                   \
    X(CANCELLED,            E_CANCELLED,   "cancelled by the caller")                              \
    X(CAST,                 E_UNSUPPORTED, "no cast between these dtypes")                         \
    X(TENSOR_HOLE,          E_MISMATCH,    "elements of a tensor are in no file")                  \
    X(TENSOR_OVERLAP,       E_MISMATCH,    "two files claim the same elements of a tensor")        \
    X(PIECE_RANGE,          E_FORMAT,      "a piece lies outside its file")                        \
    X(OUTPUT_EXISTS,        E_REFUSED,     "the output exists")                                    \
    X(OUTPUT_INSIDE,        E_ARG,         "output and input lie inside each other")               \
    X(PLAN_REFUSED,         E_REFUSED,     "the plan was refused")                                 \
    X(UNKNOWN_CHECKPOINT,   E_UNSUPPORTED, "no checkpoint that any dialect knows")                 \
    X(DIALECT_UNKNOWN,      E_ARG,         "there is no such dialect")                             \
    X(DST_SIZE,             E_ARG,         "the destination has another size than the box")        \
    X(BOX_RANGE,            E_ARG,         "the box lies outside the tensor")                      \
    X(MEMBER_CRC,           E_FORMAT,      "a member's bytes do not match its CRC-32")             \
    X(REPLICA_DIFFERS,      E_MISMATCH,    "copies of the same elements differ")                   \
    X(MASTER_DIFFERS,       E_MISMATCH,    "a master does not round to its parameter")             \
    X(SIDE_DIGEST,          E_MISMATCH,    "a tensor is not what ckptresume.json recorded")        \
    X(SIDE_FORMAT,          E_FORMAT,      "ckptresume.json is not what this library writes")      \
    X(TREE_TOO_DEEP,        E_LIMIT,       "the tree is nested deeper than max_depth")             \
    X(WRITE_NODE,           E_UNSUPPORTED, "the format cannot hold this value")                    \
    X(WRITE_CYCLE,          E_UNSUPPORTED, "a tuple, set or call contains itself")                 \
    X(WRITE_NAME,           E_UNSUPPORTED, "the format cannot hold this name")                     \
    X(WRITE_DTYPE,          E_UNSUPPORTED, "the format cannot store this dtype")                   \
    X(WRITE_DUPLICATE,      E_MISMATCH,    "two tensors of one file have the same name")           \
    X(WRITE_ENTRY,          E_ARG,         "the file's tree and its list of entries disagree")     \
    X(WRITE_SIZE,           E_LIMIT,       "larger than the format allows")                        \
    X(NANOTRON_LATEST,      E_MISMATCH,    "latest.txt names no checkpoint directory")             \
    X(NANOTRON_INCOMPLETE,  E_MISMATCH,    "still being written, or its writing was interrupted")  \
    X(NANOTRON_TOPOLOGY,    E_MISMATCH,    "file names and metadata disagree about the topology")  \
    X(NANOTRON_MIXED,       E_MISMATCH,    "two checkpoints lie in one directory")                 \
    X(NANOTRON_FOREIGN,     E_MISMATCH,    "a shard of another topology lies in the directory")    \
    X(NANOTRON_MISSING,     E_MISMATCH,    "a shard is missing")                                   \
    X(NANOTRON_DUPLICATE,   E_MISMATCH,    "two files hold one shard")                             \
    X(NANOTRON_SHAPE,       E_MISMATCH,    "a shard has another shape or dtype than the run")      \
    X(NANOTRON_STEP,        E_MISMATCH,    "a shard is of another step")                           \
    X(NANOTRON_CONFIG,      E_MISMATCH,    "a tensor contradicts model_config.json")               \
    X(NANOTRON_SLICES,      E_FORMAT,      "the slices of a shard cannot be understood")           \
    X(NANOTRON_COVERAGE,    E_MISMATCH,    "slices overlap, leave a gap or are no equal cut")      \
    X(NANOTRON_METADATA,    E_FORMAT,      "a required key is absent or has another type")         \
    X(NANOTRON_GROUPS,      E_MISMATCH,    "two copies of a parameter group disagree")             \
    X(NANOTRON_NAMES,       E_MISMATCH,    "optimizer and weights name different parameters")      \
    X(NANOTRON_SCHEDULER,   E_MISMATCH,    "scheduler and optimizer differ in groups")             \
    X(NANOTRON_VERSION,     E_UNSUPPORTED, "a newer checkpoint version than 1.5")                  \
    X(NANOTRON_EXPERTS,     E_UNSUPPORTED, "slices do not tell the experts apart")                 \
    X(NANOTRON_SOURCE,      E_REFUSED,     "the writer needs a Nanotron checkpoint as its source") \
    X(TP_UNEVEN,            E_REFUSED,     "the tensor parallel size does not divide a parameter") \
    X(PP_EMPTY_STAGE,       E_REFUSED,     "a pipeline stage would own no parameter")              \
    X(ZERO_STAGE,           E_REFUSED,     "the framework has no such ZeRO stage")                 \
    X(EP_SIZE,              E_REFUSED,     "the framework has no expert parallelism")              \
    X(GROUPS_WITHOUT,       E_REFUSED,     "optimizer files need parameter groups")                \
    X(PARAMS_WITHOUT,       E_REFUSED,     "a checkpoint of this framework needs its weights")     \
    X(CLOCK_WITHOUT,        E_REFUSED,     "a schedule needs the progress that is its clock")      \
    X(COPY_TENSOR,          E_UNSUPPORTED, "a tensor that is no plain strided array of 8 axes")    \
    X(OUTPUT_BUSY,          E_REFUSED,     "another run is writing this output")                   \
    X(SLOT_UNKNOWN,         E_ARG,         "no tensor has such a slot")                            \
    X(JSON_SYNTAX,          E_FORMAT,      "not JSON")                                             \
    X(JSON_STRING,          E_FORMAT,      "a bad JSON string")                                    \
    X(JSON_UTF8,            E_FORMAT,      "the text is not UTF-8")                                \
    X(JSON_NUMBER,          E_FORMAT,      "a bad JSON number")                                    \
    X(JSON_DUPLICATE,       E_FORMAT,      "one JSON object has a key twice")                      \
    X(JSON_TRAILING,        E_FORMAT,      "bytes after the JSON value")                           \
    X(JSON_DEPTH,           E_LIMIT,       "the nesting is deeper than max_depth")                 \
    X(JSON_PUT,             E_UNSUPPORTED, "JSON and YAML cannot hold this value")                 \
    X(ST_HEADER,            E_FORMAT,      "not a safetensors header")                             \
    X(ST_ENTRY,             E_FORMAT,      "a malformed entry of a safetensors header")            \
    X(ST_DTYPE,             E_UNSUPPORTED, "a dtype that safetensors does not have")               \
    X(ST_DUPLICATE,         E_FORMAT,      "a safetensors header names something twice")           \
    X(ST_LENGTH,            E_FORMAT,      "data_offsets disagree with dtype and shape")           \
    X(ST_LAYOUT,            E_FORMAT,      "data has a hole, an overlap or the wrong size")        \
    X(ST_METADATA,          E_FORMAT,      "safetensors __metadata__ is not an object of strings") \
    X(HF_INDEX,             E_FORMAT,      "a malformed *.index.json")                             \
    X(HF_SHARD_NAME,        E_UNSAFE,      "an index names a shard outside its folder")            \
    X(HF_MISSING,           E_MISMATCH,    "a tensor of the index is not in its shard")            \
    X(HF_DUPLICATE,         E_MISMATCH,    "a tensor is in two shards")                            \
    X(HF_EXTRA,             E_MISMATCH,    "a shard holds a tensor that the index does not name")  \
    X(YAML_SYNTAX,          E_FORMAT,      "not YAML")                                             \
    X(YAML_SCALAR,          E_FORMAT,      "a bad YAML scalar")                                    \
    X(YAML_ALIAS,           E_FORMAT,      "a YAML alias without its anchor")                      \
    X(YAML_DUPLICATE,       E_FORMAT,      "one YAML mapping has a key twice")                     \
    X(YAML_TAG,             E_UNSUPPORTED, "a YAML tag that would build an object")                \
    X(YAML_UNSUPPORTED,     E_UNSUPPORTED, "YAML that we do not read")                             \
    X(UNKNOWN_FORMAT,       E_UNSUPPORTED, "not a file format that is known here")                 \
    X(ZIP_END,              E_FORMAT,      "the zip end record is missing or wrong")               \
    X(ZIP_DIRECTORY,        E_FORMAT,      "the zip directory is malformed")                       \
    X(ZIP_NAME,             E_FORMAT,      "a zip member has a name that is not allowed")          \
    X(ZIP_DUPLICATE,        E_FORMAT,      "two zip members have one name")                        \
    X(ZIP_OVERLAP,          E_FORMAT,      "zip members overlap")                                  \
    X(ZIP_LOCAL,            E_FORMAT,      "a zip local header disagrees with the directory")      \
    X(ZIP_FLAGS,            E_UNSUPPORTED, "a zip member is encrypted, patched or masked")         \
    X(ZIP_DEFLATED,         E_UNSUPPORTED, "a zip member is compressed (method 8, deflate)")       \
    X(ZIP_METHOD,           E_UNSUPPORTED, "a zip member has an unknown compression method")       \
    X(TORCH_ROOT,           E_FORMAT,      "members must share one root folder")                   \
    X(TORCH_RECORD,         E_FORMAT,      "a torch archive lacks a record")                       \
    X(TORCH_VERSION,        E_FORMAT,      "the version record of a torch archive is wrong")       \
    X(TORCH_BYTEORDER,      E_FORMAT,      "the byteorder record of a torch archive is wrong")     \
    X(TORCH_STORAGE,        E_FORMAT,      "a storage is declared wrongly")                        \
    X(TORCH_STORAGE_SIZE,   E_FORMAT,      "a storage's size disagrees with its record")           \
    X(TORCH_VIEW,           E_FORMAT,      "a tensor does not fit its storage")                    \
    X(TORCH_REBUILD,        E_FORMAT,      "a tensor is rebuilt from wrong arguments")             \
    X(TORCH_LEGACY,         E_FORMAT,      "a legacy torch stream is malformed")                   \
    X(TORCH_TAR,            E_UNSUPPORTED, "the tar format of torch 0.1")                          \
    X(TORCH_PREVIEW,        E_UNSUPPORTED, "the PYTORCH1 preview format")                          \
    X(PICKLE_TRUNCATED,     E_FORMAT,      "a pickle ends early")                                  \
    X(PICKLE_OPCODE,        E_FORMAT,      "an unknown pickle opcode")                             \
    X(PICKLE_PROTOCOL,      E_UNSUPPORTED, "a pickle protocol above 5")                            \
    X(PICKLE_STACK,         E_FORMAT,      "a pickle takes more from its stack than is there")     \
    X(PICKLE_MEMO,          E_FORMAT,      "a pickle uses its memo wrongly")                       \
    X(PICKLE_TEXT,          E_FORMAT,      "a pickle holds malformed text")                        \
    X(PICKLE_TARGET,        E_FORMAT,      "a pickle changes a value that cannot be changed so")   \
    X(PICKLE_KEY,           E_FORMAT,      "a dict key or set item that cannot be hashed")         \
    X(PICKLE_ARGS,          E_FORMAT,      "a pickle calls with arguments of a wrong kind")        \
    X(PICKLE_PERSISTENT,    E_FORMAT,      "a persistent id that is no storage")                   \
    X(PICKLE_TRAILING,      E_FORMAT,      "bytes follow the end of a pickle")                     \
    X(PICKLE_UNSAFE,        E_UNSAFE,      "a pickle refers to things outside itself")             \
    X(NPY_HEADER,           E_FORMAT,      "the header of a .npy file is malformed")               \
    X(NPY_DTYPE,            E_UNSUPPORTED, "a numpy dtype that is not plain numbers")              \
    X(NPY_SIZE,             E_FORMAT,      "a numpy array's data has another size than its shape") \
    X(VARIANT_UNKNOWN,      E_ARG,         "the framework has no such layout")                     \
    X(SCHEDULE,             E_ARG,         "a schedule has no such parameter, or a bad one")       \
    X(SCHEDULE_STATE,       E_FORMAT,      "not the state of a scheduler")                         \
    X(SCHEDULE_REBASE,      E_REFUSED,     "the new schedule cannot go on from here so")           \
    X(SETTING,              E_ARG,         "no such setting, or not a value for it")
#define CKR__ITEM_ENUM(id, cls, text) CKR_ITEM_##id,
typedef enum ckr_item { CKR__ITEMS(CKR__ITEM_ENUM) CKR_ITEM_COUNT_ } ckr_item;
#undef CKR__ITEM_ENUM

typedef struct ckr_error {     /* caller-owned; every function accepts NULL          */
    ckr_result code;
    ckr_item   item;
    int32_t    sys_error;      /* errno, GetLastError or cudaError_t, or 0           */
    uint64_t   offset;         /* byte offset in `file`, or CKR_NO_OFFSET            */
    char       file[256];      /* path; a long one keeps its end; "" when none       */
    char       where[192];     /* tensor name, key path or zip member; "" when none  */
    char       text[384];      /* one sentence: what was found, what was expected    */
    char       remedy[192];    /* what to pass to get further, or ""                 */
} ckr_error;

/* dtype: name as torch has it, safetensors tag ("" = cannot be stored there), bytes,
   bytes per byte-swap unit, torch storage class ("" = only through UntypedStorage).   */
#define CKR__DTYPES(X)                                                              \
    X(NONE,          "none",            "",        0, 0, "")                        \
    X(BOOL,          "bool",            "BOOL",    1, 1, "BoolStorage")             \
    X(U8,            "uint8",           "U8",      1, 1, "ByteStorage")             \
    X(I8,            "int8",            "I8",      1, 1, "CharStorage")             \
    X(U16,           "uint16",          "U16",     2, 2, "")                        \
    X(I16,           "int16",           "I16",     2, 2, "ShortStorage")            \
    X(U32,           "uint32",          "U32",     4, 4, "")                        \
    X(I32,           "int32",           "I32",     4, 4, "IntStorage")              \
    X(U64,           "uint64",          "U64",     8, 8, "")                        \
    X(I64,           "int64",           "I64",     8, 8, "LongStorage")             \
    X(F16,           "float16",         "F16",     2, 2, "HalfStorage")             \
    X(BF16,          "bfloat16",        "BF16",    2, 2, "BFloat16Storage")         \
    X(F32,           "float32",         "F32",     4, 4, "FloatStorage")            \
    X(F64,           "float64",         "F64",     8, 8, "DoubleStorage")           \
    X(C32,           "complex32",       "",        4, 2, "")                        \
    X(C64,           "complex64",       "C64",     8, 4, "ComplexFloatStorage")     \
    X(C128,          "complex128",      "",       16, 8, "ComplexDoubleStorage")    \
    X(F8_E4M3FN,     "float8_e4m3fn",   "F8_E4M3", 1, 1, "")                        \
    X(F8_E5M2,       "float8_e5m2",     "F8_E5M2", 1, 1, "")                        \
    X(F8_E4M3FNUZ,   "float8_e4m3fnuz", "F8_E4M3FNUZ", 1, 1, "")                    \
    X(F8_E5M2FNUZ,   "float8_e5m2fnuz", "F8_E5M2FNUZ", 1, 1, "")                    \
    X(F8_E8M0,       "float8_e8m0fnu",  "F8_E8M0", 1, 1, "")                        \
    X(F4_E2M1X2,     "float4_e2m1fn_x2","",        1, 1, "")                        \
    X(F4_E2M1,       "float4_e2m1fn",   "F4",      0, 1, "")                        \
    X(F6_E2M3,       "float6_e2m3fn",   "F6_E2M3", 0, 1, "")                        \
    X(F6_E3M2,       "float6_e3m2fn",   "F6_E3M2", 0, 1, "")                        \
    X(QINT8,         "qint8",           "",        1, 1, "QInt8Storage")            \
    X(QUINT8,        "quint8",          "",        1, 1, "QUInt8Storage")           \
    X(QINT32,        "qint32",          "",        4, 4, "QInt32Storage")           \
    X(QUINT4X2,      "quint4x2",        "",        1, 1, "QUInt4x2Storage")         \
    X(QUINT2X4,      "quint2x4",        "",        1, 1, "QUInt2x4Storage")         \
    X(BITS8,         "bits8",           "",        1, 1, "")                        \
    X(BITS16,        "bits16",          "",        2, 2, "")                        \
    X(BITS1X8,       "bits1x8",         "",        1, 1, "")                        \
    X(BITS2X4,       "bits2x4",         "",        1, 1, "")                        \
    X(BITS4X2,       "bits4x2",         "",        1, 1, "")                        \
    X(BC32,          "bcomplex32",      "",        4, 2, "")
#define CKR__DTYPE_ENUM(id, name, tag, size, swap, storage) CKR_DTYPE_##id,
typedef enum ckr_dtype { CKR__DTYPES(CKR__DTYPE_ENUM) CKR_DTYPE_COUNT_ } ckr_dtype;
#undef CKR__DTYPE_ENUM

typedef enum ckr_format {      /* the container                                      */
    CKR_FORMAT_AUTO = 0, CKR_FORMAT_SAFETENSORS, CKR_FORMAT_TORCH_ZIP, CKR_FORMAT_TORCH_LEGACY,
    CKR_FORMAT_PICKLE, CKR_FORMAT_NPY, CKR_FORMAT_NPZ, CKR_FORMAT_JSON, CKR_FORMAT_YAML,
    CKR_FORMAT_DCP, CKR_FORMAT_LLMC, CKR_FORMAT_TEXT
} ckr_format;

typedef struct ckr_topology {  /* parallel sizes; 0 in a target means "as the source" */
    uint32_t tp, pp, dp, ep, cp, ranks;
    int32_t  zero;             /* ZeRO stage; -1 in a target means "as the source"   */
} ckr_topology;

/* >>api.hooks ----------------------------------------------------------------- */

typedef struct ckr_allocator { /* alloc_fn and free_fn: both or neither              */
    void *(*alloc_fn)(void *user, size_t size, size_t align);
    void  (*free_fn)(void *user, void *ptr, size_t size, size_t align);
    void *user;
} ckr_allocator;

typedef enum ckr_file_kind {
    CKR_FILE_ABSENT = 0,
    CKR_FILE_REGULAR,
    CKR_FILE_DIR,
    CKR_FILE_OTHER
} ckr_file_kind;
typedef struct ckr_stat {
    ckr_file_kind kind;
    uint64_t      size;
    uint64_t      id[2];       /* same id, same file: device and inode               */
} ckr_stat;
typedef enum ckr_path_op {
    CKR_PATH_MKDIR = 0, CKR_PATH_RENAME, CKR_PATH_REMOVE, CKR_PATH_RMDIR, CKR_PATH_SYNC_DIR,
    CKR_PATH_EXCHANGE          /* swaps two names in one step; ENOSYS when there is no such thing */
} ckr_path_op;

typedef struct ckr_io {        /* positional, 64-bit; 0 on success, else an errno; a short
                                  read or write is an error inside the hook            */
    int32_t (*open_fn)(void *user, const char *path, bool create, void **file, uint64_t *size);
    int32_t (*read_fn)(void *user, void *file, uint64_t offset, void *dst, size_t n);
    int32_t (*write_fn)(void *user, void *file, uint64_t offset, const void *src, size_t n);
    int32_t (*sync_fn)(void *user, void *file);
    void (*park_fn)(void *user, void *file); /* optional: many files are open; let go of what
                                  is scarce (a descriptor), later reads must still work  */
    void    (*close_fn)(void *user, void *file);
    int32_t (*stat_fn)(void *user, const char *path, ckr_stat *out);   /* absent: 0, kind */
    int32_t (*list_fn)(void *user, const char *dir,
                       void (*each_fn)(void *arg, const char *name, bool is_dir), void *arg);
    int32_t (*path_fn)(void *user, ckr_path_op op, const char *path, const char *to);
    int32_t (*lock_fn)(void *user, const char *path, void **lock); /* optional, with unlock_fn:   */
    void    (*unlock_fn)(void *user, void *lock);   /* EBUSY when another process holds it; a
                                                       process that dies lets go               */
    void *user;
} ckr_io;

typedef struct ckr_parallel {
    void (*for_fn)(void *user, uint32_t n_threads, uint32_t n_tasks,
                   void (*task_fn)(void *arg, uint32_t i), void *arg);
    uint32_t n_threads;        /* 0: one per online CPU; 1: never start a thread     */
    void *user;
} ckr_parallel;

typedef struct ckr_env {       /* copied by whoever is given one; all-zero is fine   */
    ckr_allocator alloc;       /* default: malloc/free                               */
    ckr_io        io;          /* default: the operating system                      */
    ckr_parallel  parallel;    /* default: pthreads or Win32 threads                 */
    void        (*log_fn)(void *user, const ckr_error *what);   /* default: silent   */
    bool        (*progress_fn)(void *user, uint64_t done, uint64_t total); /* false: cancel */
    void         *user;        /* of log_fn and progress_fn                          */
} ckr_env;

typedef struct ckr_limits {    /* what a hostile file can cost; 0 takes the default  */
    uint64_t max_metadata_bytes;   /* 1 GiB: one pickle, zip directory or index      */
    uint64_t max_json_bytes;       /* 100,000,000: as the reference safetensors reader */
    uint64_t max_arena_bytes;      /* 4 GiB: everything parsed, all files together   */
    uint32_t max_depth;            /* 1000: nesting of JSON and YAML (no C recursion anyway) */
} ckr_limits;

/* >>api.tree ------------------------------------------------------------------ */
/* A file as a tree: everything in it, nothing executed. Nodes live in the arena of the
   checkpoint that parsed them, are read-only, and may be shared (a DAG, even cyclic in a
   hostile file): walk with a visit mark on `id`. All getters accept NULL = absent.      */

typedef enum ckr_node_kind {
    CKR_NODE_NONE = 0, CKR_NODE_BOOL, CKR_NODE_INT, CKR_NODE_BIGINT, CKR_NODE_FLOAT,
    CKR_NODE_COMPLEX, CKR_NODE_STR, CKR_NODE_BYTES, CKR_NODE_BYTEARRAY,
    CKR_NODE_LIST, CKR_NODE_TUPLE, CKR_NODE_SET, CKR_NODE_FROZENSET,
    CKR_NODE_DICT, CKR_NODE_ODICT, CKR_NODE_COUNTER, CKR_NODE_DEFAULTDICT,
    CKR_NODE_TENSOR, CKR_NODE_STORAGE, CKR_NODE_NDARRAY, CKR_NODE_NPSCALAR,
    CKR_NODE_SIZE, CKR_NODE_DEVICE, CKR_NODE_DTYPE, CKR_NODE_LAYOUT,
    CKR_NODE_GLOBAL, CKR_NODE_OBJECT,
    CKR_NODE_ENTRY             /* only in trees to be written: a planned tensor        */
} ckr_node_kind;

typedef struct ckr_node ckr_node;
typedef struct ckr_view ckr_view;
typedef struct ckr_object ckr_object;
typedef struct ckr_entry ckr_entry;

struct ckr_node {
    uint8_t  kind;             /* ckr_node_kind                                       */
    uint8_t  flags;            /* of the parser that made it                          */
    uint16_t aux;
    uint32_t id;               /* order of creation within its context, from 1        */
    uint64_t count;            /* items of a list/tuple/set/SIZE; pairs of a dict; bytes of a
                                  str/bytes/BIGINT (two's complement, little-endian)  */
    union {
        bool              b;
        int64_t           i;
        double            f;
        double           *complex_;   /* re, im                                       */
        const char       *str;        /* STR/BYTES/BYTEARRAY/BIGINT bytes, NUL after the last;
                                         DEVICE, DTYPE, LAYOUT, GLOBAL: their text    */
        ckr_node        **items;      /* list: count nodes; dict: 2 x count, key then value;
                                         SIZE: count INT nodes                        */
        const ckr_view   *view;       /* TENSOR, STORAGE, NDARRAY, NPSCALAR           */
        const ckr_object *object;     /* OBJECT                                       */
        ckr_entry        *entry;      /* ENTRY                                        */
    } u;
    ckr_node *attrs;           /* dict of attributes put on it (state_dict's _metadata), the
                                  factory of a DEFAULTDICT, or NULL                   */
};

/* A strided tensor in a file. Elements lie at
   data_offset + element_size * (offset + sum(index[d] * stride[d])). */
struct ckr_view {
    ckr_dtype      dtype;
    bool           requires_grad, conj, neg, meta, parameter, big_endian, fortran;
    uint32_t       file;       /* index into the context's files, or CKR_NO_FILE: `bytes` */
    uint64_t       data_offset;/* of the storage's first byte in that file             */
    uint64_t       data_bytes; /* of the storage                                       */
    const uint8_t *bytes;      /* when the data is inside a pickle (numpy), else NULL   */
    const char    *storage;    /* the storage's key in the file, or NULL                */
    const char
        *type_name; /* NDARRAY/NPSCALAR: numpy dtype string ("<f4"); else subclass name or NULL */
    const char    *layout;     /* NULL strided; else "sparse_coo", "sparse_csr", "quantized", ... */
    int64_t        offset;     /* elements                                             */
    uint32_t       n_dims;
    const int64_t *shape, *stride;   /* elements                                       */
    ckr_node
        *parts; /* dict of component nodes for other layouts (indices, values, scales...) or NULL */
};

struct ckr_object {            /* something Python would have built by calling code    */
    const char *how;           /* "newobj", "reduce" or "persistent"                   */
    const char *name;          /* canonical "module.qualname" of class or callable     */
    ckr_node   *callable;      /* when it is no plain global, else NULL                */
    ckr_node   *args, *kwargs, *state, *items, *dictitems;   /* NULL when absent       */
};

CKR_API const ckr_node *ckr_node_get(const ckr_node *dict, const char *key);   /* NULL: absent */
CKR_API const ckr_node *ckr_node_at(const ckr_node *list, uint64_t index);
CKR_API const ckr_node *ckr_node_find(const ckr_node *n, const char *pointer);  /* RFC 6901 */
CKR_API bool ckr_node_is_dict(const ckr_node *n);
CKR_API bool ckr_node_is_list(const ckr_node *n);                     /* list or tuple */
CKR_API bool ckr_node_i64(const ckr_node *n, int64_t *out); /* BOOL, INT; exact FLOAT no */
CKR_API bool ckr_node_f64(const ckr_node *n, double *out);            /* INT too        */
CKR_API const char *ckr_node_str(const ckr_node *n);                  /* NULL when no STR */

/* >>api.state ----------------------------------------------------------------- */
/* The run state: plain data. ckr_ckpt_open fills one from files; a program with a format of
   its own fills one by hand (ckr_ckpt_create, ckr_ckpt_put) and uses everything below.   */

/* One stored part of a logical tensor: the element at start + i lies in the source at
   offset + sum(i[d] * stride[d]) bytes. Everything that any framework does - shards, ZeRO
   slices, stacks, fused projections, buckets - is a list of these.                      */
typedef struct ckr_piece {
    uint32_t       n_dims;
    uint32_t       file;       /* or CKR_NO_FILE: `mem`                                */
    const int64_t *start, *count, *stride;    /* elements, elements, bytes; n_dims each */
    uint64_t       offset;     /* bytes, of the box's first element                    */
    const void    *mem;        /* the source when there is no file                     */
    ckr_dtype      dtype;
    bool           big_endian;
    bool           replica;    /* another piece holds these elements too; must be equal */
    int32_t        rank;       /* who stored it: index in the dialect's rank order, -1 */
} ckr_piece;

/* How a tensor is cut over tensor-parallel ranks. Chunks are consecutive blocks of `axis`
   (q,k,v or gate,up), each cut in equal parts; sizes in elements of the whole tensor.   */
typedef struct ckr_split {
    int32_t        axis;       /* -1: every rank holds it all                          */
    uint32_t       n_chunks;   /* 0: one chunk                                         */
    const int64_t *chunks;     /* sizes, summing to shape[axis]                        */
    const int64_t *units;      /* what a cut must not divide (head_dim), or NULL       */
    bool           vocab;      /* axis 0 counts vocabulary rows and may be padded      */
} ckr_split;

typedef struct ckr_tensor {
    const char    *name;       /* global parameter name                                */
    const char    *slot;       /* "param", "master", "exp_avg", "exp_avg_sq", "step"... */
    ckr_dtype      dtype;
    uint32_t       n_dims;
    const int64_t *shape;      /* logical: without padding rows                        */
    ckr_split      split;
    ckr_piece     *pieces;
    uint32_t       n_pieces, cap_pieces;
    uint32_t       index;
    bool           requires_grad, buffer;
} ckr_tensor;

typedef struct ckr_group {     /* a parameter group of the optimizer                   */
    const char  *name;         /* or NULL                                              */
    const char **params;       /* global names                                         */
    uint64_t     n_params;
    ckr_node *hyper; /* dict: lr (at the next update), initial_lr, weight_decay, betas... */
    const ckr_node *raw;       /* as stored                                            */
} ckr_group;

/* One parameter group as its schedule sees it. What a kind has not is NaN, multipliers are 1. */
typedef struct ckr_lane {
    double base;               /* base LR: initial_lr, base_lrs                         */
    double max, min;           /* bounds of the LR; OneCycleLR: max_lr, min_lr; SWALR: min is swa_lr */
    double base_momentum, max_momentum;
    double start_wd, end_wd;
    double wd_mult, lr_mult;
    double p, q;               /* lr = q + p * curve                                   */
    double ramp_from, ramp_to;
    double anchor;             /* LR at the clock `position`, from which a recurrence goes on */
} ckr_lane;

typedef struct ckr_schedule {
    const char *kind;          /* the framework's own name: "nanotron", "torch:StepLR"... */
    const char *clock;         /* unit of t: "update", "sample", "tick", "epoch"       */
    int64_t     position;      /* of the clock: t of the next update                   */
    double      rate, offset;  /* t = rate * (updates done) + offset                   */
    ckr_node   *params;        /* dict in the framework's own keys                     */
    const char *reason;        /* why an opaque one's curve is not known               */
    bool        opaque;        /* only the saved LR is known                           */
    bool        recurrent;     /* simulated from update 1 as torch does, else closed form */
    bool        anchored;      /* the simulation goes on from each lane's `anchor`     */
    bool        clamp;         /* never below 0                                        */
    double      a, b;          /* time map: the curve is read at a * t + b             */
    double      hold;          /* from this t on the value stays; infinity: never      */
    double      ramp_at, ramp_len;     /* linear ramp over [ramp_at, ramp_at + ramp_len) */
    ckr_lane   *lanes;
    uint64_t    n_lanes;
    const ckr_node           *state;   /* the state dict it was read from, or NULL     */
    const struct ckr__curve  *curve;   /* NULL when opaque                             */
} ckr_schedule;

typedef struct ckr_stream {    /* one random generator of one rank                     */
    const char *kind;          /* "torch_cpu", "torch_cuda", "python", "numpy", ...    */
    const char *name;          /* "tp_synced", "default", ...                          */
    const char *scope;         /* axes it varies over: "dp,pp", "" = same everywhere   */
    uint32_t    rank;          /* in the dialect's rank order                          */
    uint64_t    n_bytes;
    const ckr_node *state;
} ckr_stream;

typedef struct ckr_tie { const char *name, *other; } ckr_tie;   /* one tensor, two names */
typedef struct ckr_leftover { const char *path; const ckr_node *node; } ckr_leftover;

typedef enum ckr_severity {
    CKR_EXACT = 0, CKR_CHANGED, CKR_APPROX, CKR_LOST, CKR_ERROR
} ckr_severity;
typedef struct ckr_note {      /* one report entry; strings may be NULL except code     */
    const char  *code;
    ckr_severity severity;
    const char  *subject, *old_value, *new_value, *reason, *remedy;
} ckr_note;

typedef struct ckr_state {
    const char   *dialect;     /* "nanotron", "torch", "safetensors", ...              */
    const char   *framework_version;   /* or NULL                                      */
    ckr_format    format;
    ckr_topology  topology;
    struct { int64_t step, samples, tokens, epoch; } progress;     /* -1: not recorded */
    int64_t       vocab, padded_vocab;    /* rows; 0: not known                        */
    ckr_tensor  **tensors;   uint64_t n_tensors;
    ckr_group    *groups;    uint64_t n_groups;
    ckr_schedule *schedules; uint64_t n_schedules;
    ckr_stream   *rng;       uint64_t n_rng;
    ckr_tie      *ties;      uint64_t n_ties;
    ckr_leftover *leftovers; uint64_t n_leftovers;
    ckr_note     *notes;     uint64_t n_notes;
    void         *dialect_data;           /* what a dialect keeps for its own writer   */
} ckr_state;

CKR_API uint32_t    ckr_version(void);                 /* of the implementation: CKR_VERSION      */
CKR_API const char *ckr_item_name(ckr_item item);      /* "CKR_E_ZIP_CRC": stable, for programs */
CKR_API size_t      ckr_dtype_size(ckr_dtype t);       /* bytes of an element; 0 for NONE       */
CKR_API const char *ckr_dtype_name(ckr_dtype t);       /* torch's name: "float32"               */


/* >>api.plan ------------------------------------------------------------------ */

typedef enum ckr_mode {        /* what the user wants; nothing falls back silently       */
    CKR_MODE_RECOVER = 0,      /* everything restored, any difference is an error        */
    CKR_MODE_CONTINUE,         /* changes that are asked for are decisions               */
    CKR_MODE_TRANSFER          /* weights only, progress starts at 0                     */
} ckr_mode;

enum {                         /* components, for `without`                              */
    CKR_PARAMS = 1, CKR_OPTIMIZER = 2, CKR_GROUPS = 4, CKR_SCHEDULE = 8, CKR_RNG = 16,
    CKR_PROGRESS = 32, CKR_DATA = 64
};

typedef enum ckr_lr_policy {   /* how a new schedule takes over at the resume            */
    CKR_LR_DEFAULT = 0,        /* TARGET when a key of the schedule is set, else KEEP    */
    CKR_LR_KEEP,               /* as the checkpoint would have gone on; past its end the
                                  last value, never below 0                              */
    CKR_LR_TARGET,             /* the new schedule's value at this step                  */
    CKR_LR_SPLICE,             /* the new schedule, scaled to be continuous here         */
    CKR_LR_STRETCH,            /* the rest of the old curve over the new length          */
    CKR_LR_REWARM              /* from 0 over rewarm_steps to the new schedule's value   */
} ckr_lr_policy;

typedef struct ckr_setting {   /* one value that the coming run is to have               */
    const char *group;         /* index or name; NULL: every group                       */
    const char *key;           /* lr min_lr weight_decay warmup_steps decay_steps total_steps
                                  decay_style batch_size                                 */
    const char *value;
} ckr_setting;

typedef struct ckr_target {    /* the coming run and the policy; zero = as the source    */
    const char  *dialect;      /* NULL: the source's                                     */
    const char  *variant;      /* NULL: the dialect's default                            */
    ckr_topology topology;     /* 0 in a field: the source's; zero: -1 the source's, so fill it */
    ckr_mode     mode;
    uint32_t     without;      /* bits of CKR_PARAMS..CKR_DATA to leave out              */
    int64_t      vocab;        /* logical vocabulary rows; 0: as recorded                */
    ckr_dtype    dtype;        /* of parameters; NONE: each its own                      */
    const char *slots; /* safetensors/torch export: "params", "all" or a comma list; NULL: all */
    bool         strict, force, repair;
    const char  *source;       /* path of the source, for the side file                  */
    const ckr_setting *sets;   /* in this order                                          */
    size_t       n_sets;
    const char  *schedule;     /* "KIND:key=value,..." of the coming run; NULL: the source's */
    ckr_lr_policy lr_policy;
    int64_t      rewarm_steps; /* of CKR_LR_REWARM                                       */
    double       max_lr_jump;  /* ratio that needs no consent; 0: 1.05                   */
} ckr_target;

typedef enum ckr_verdict {
    CKR_VERDICT_EXACT = 0, CKR_VERDICT_CHANGED, CKR_VERDICT_APPROX, CKR_VERDICT_REFUSED
} ckr_verdict;

typedef struct ckr_plan_file { const char *path; uint64_t bytes; } ckr_plan_file;

typedef struct ckr_plan_facts {        /* every pointer lives with the plan              */
    ckr_verdict          verdict;
    const ckr_note      *notes;
    uint64_t             n_notes;
    const char          *dialect;      /* of the target                                  */
    ckr_topology         to;
    const ckr_plan_file *files;        /* none when refused                              */
    uint64_t             n_files, n_copies, bytes_read, bytes_written, peak_bytes, window_bytes;
    const ckr_group     *groups;       /* as the coming run is to have them; lr is that of its
                                          first update                                   */
    uint64_t             n_groups;
    const ckr_schedule  *before, *after;       /* NULL: not known. A lane is a group     */
    int64_t              resume_at;    /* number of the first update, from 1             */
} ckr_plan_facts;

typedef struct ckr_ckpt ckr_ckpt;      /* an opened checkpoint: 1..n files and their run state */
typedef struct ckr_plan ckr_plan;      /* what a resume or conversion would do           */

typedef struct ckr_open_desc {         /* NULL or all zero: recognise, default hooks     */
    const char    *dialect;            /* instead of recognition                         */
    int64_t        vocab;              /* logical vocabulary rows, where no file tells    */
    const char    *schedule;           /* "KIND:key=value,..." of the saved run, where no file
                                          tells: the frameworks' own names                */
    const char    *optimizer;          /* the optimizer's file beside a bare scheduler's  */
    ckr_limits     limits;
    const ckr_env *env;                /* copied                                         */
} ckr_open_desc;

/* Opens a file, a checkpoint directory or a run directory (then its newest complete checkpoint) and
   fills a run state. Metadata only: no tensor byte is read. On failure *out is NULL. Classes: all
   but E_REFUSED. The result is immutable and may be shared by threads; close it after its plans. */
CKR_API ckr_result ckr_ckpt_open(const char *path, const ckr_open_desc *desc, ckr_ckpt **out,
                                 ckr_error *err);
CKR_API void       ckr_ckpt_close(ckr_ckpt *c);                         /* NULL is fine        */
CKR_API const ckr_state *ckr_ckpt_state(const ckr_ckpt *c);
CKR_API const char *ckr_ckpt_path(const ckr_ckpt *c);                   /* of what was chosen  */
CKR_API uint32_t    ckr_ckpt_files(const ckr_ckpt *c, uint64_t *bytes); /* opened, their size  */

/* A run state filled by hand, for a program with a format of its own: tensors lie in the caller's
   memory (row-major, not copied, valid until the close); then plan and write as for any checkpoint.
   `slot` is "param" for weights. Not thread-safe. */
CKR_API ckr_result ckr_ckpt_create(const ckr_open_desc *desc, ckr_ckpt **out, ckr_error *err);
CKR_API ckr_result ckr_ckpt_put(ckr_ckpt *c, const char *name, const char *slot, ckr_dtype dtype,
                                uint32_t n_dims, const int64_t *shape, const void *data,
                                ckr_error *err);

/* One file as a tree (the state of the result is empty but for `format`): ckr_ckpt_root. */
CKR_API ckr_result ckr_tree_open(const char *path, const ckr_open_desc *desc, ckr_ckpt **out,
                                 ckr_error *err);
CKR_API const ckr_node *ckr_ckpt_root(const ckr_ckpt *c);
CKR_API ckr_result
ckr_view_read(const ckr_ckpt *c, const ckr_view *v, int64_t first, int64_t n, void *dst,
              ckr_error *err); /* n elements of the row-major order, little-endian */

/* >>api.run ------------------------------------------------------------------- */

/* Reads the box [start, start + count) of a tensor (start NULL: all of it) into row-major memory at
   dst, cast to `as` (NONE: as stored). Uses the env's threads. dst_size: its size in bytes,
   checked. */
typedef struct ckr_read {
    const ckr_tensor *tensor;
    const int64_t    *start, *count;
    ckr_dtype         as;
    void             *dst;
    size_t            dst_size;
} ckr_read;
CKR_API ckr_result ckr_ckpt_read(const ckr_ckpt *c, const ckr_read *reads, size_t n,
                                 ckr_error *err);
CKR_API const ckr_tensor *ckr_ckpt_tensor(const ckr_ckpt *c, const char *name,
                                          const char *slot); /* or NULL */

/* The plan for a target (NULL: as the source). A refused plan is a plan: look at the verdict and
   notes. max_bytes caps the buffers of a later run (0: 4 MiB a thread). Reads no tensor bytes. */
CKR_API ckr_result ckr_plan_create(const ckr_ckpt *src, const ckr_target *target,
                                   uint64_t max_bytes, ckr_plan **out, ckr_error *err);
CKR_API void       ckr_plan_free(ckr_plan *p);                          /* NULL is fine        */

/* Only the decisions - groups, schedule, report - and no file: what a trainer asks that reads and
   writes its own checkpoints. ckr_plan_write refuses such a plan. */
CKR_API ckr_result ckr_plan_decide(const ckr_ckpt *src, const ckr_target *target, ckr_plan **out,
                                   ckr_error *err);

/* Values of a schedule for `n` updates from number `first` on (1 is the first of training): n rows
   of n_lanes numbers, NaN where the schedule does not tell. Computed as the framework computes
   them, operation by operation. env NULL: the default hooks. Thread-safe. */
typedef enum ckr_column { CKR_COLUMN_LR = 0, CKR_COLUMN_WEIGHT_DECAY, CKR_COLUMN_MOMENTUM } ckr_column;
CKR_API ckr_result ckr_schedule_values(const ckr_schedule *s, ckr_column column, int64_t first,
                                       uint64_t n, double *out, const ckr_env *env,
                                       ckr_error *err);
/* The update after which the schedule changes no more; -1: none, or not known. */
CKR_API int64_t ckr_schedule_end(const ckr_schedule *s);
CKR_API const ckr_plan_facts *ckr_plan_info(const ckr_plan *p);

typedef struct ckr_receipt {           /* what was done and what was proved              */
    uint64_t n_files, bytes_read, bytes_written;
    uint8_t  digest[16], digest_written[16];   /* of what was read; of what went into the files */
} ckr_receipt;

/* Carries the plan out into `path`, which appears whole or not at all. One write of a plan at a
   time. */
CKR_API ckr_result ckr_plan_write(ckr_plan *p, const char *path, ckr_receipt *receipt,
                                  ckr_error *err);

/* Digest of every tensor, in the state's order ([n_tensors][16]), and of all of them. Independent
   of topology, format and order: see >>hash for the formula. */
CKR_API ckr_result ckr_ckpt_digest(const ckr_ckpt *c, uint8_t (*each)[16], uint8_t total[16],
                                   ckr_error *err);

/* Reads every byte: checksums, completeness, copies and ties equal, masters round to parameters.
   The notes live with `c`'s report, which the caller frees. */
typedef struct ckr_report {
    const ckr_note *notes;
    uint64_t n_notes, bytes_read;
    bool sound;
    void *_owner;
} ckr_report;
CKR_API ckr_result ckr_ckpt_check(const ckr_ckpt *c, ckr_report *out, ckr_error *err);
CKR_API void       ckr_report_free(ckr_report *r);

typedef struct ckr_tensor_diff {
    const char *name, *slot;
    int         where;                 /* -1 only in a, 1 only in b, 0 in both but different */
    uint64_t    n_elements;            /* different ones; shape or dtype: all              */
    double      max_abs;
    uint64_t    max_ulp;
} ckr_tensor_diff;
typedef struct ckr_diff {
    const ckr_tensor_diff *tensors;
    uint64_t n_tensors;
    const ckr_note *others;
    uint64_t n_others;
    void *_owner;
} ckr_diff;
CKR_API ckr_result ckr_ckpt_diff(const ckr_ckpt *a, const ckr_ckpt *b, ckr_diff *out,
                                 ckr_error *err);
CKR_API void       ckr_diff_free(ckr_diff *d);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* CKPTRESUME_H */

/* ============================================================================
   The public part ends here. What follows is the implementation.
   ============================================================================ */
#ifdef __INTELLISENSE__
#  define CKPTRESUME_IMPLEMENTATION
#endif

/* >>prologue ------------------------------------------------------------------ */
#if defined(CKPTRESUME_IMPLEMENTATION) && !defined(CKPTRESUME_IMPLEMENTED)
#define CKPTRESUME_IMPLEMENTED

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#  ifndef WIN32_LEAN_AND_MEAN
#    define WIN32_LEAN_AND_MEAN
#  endif
#  include <windows.h>
#else
#  include <dirent.h>
#  include <fcntl.h>
#  include <sys/file.h>
#  include <sys/mman.h>
#  include <sys/stat.h>
#  include <sys/types.h>
#  include <unistd.h>
#  if defined(__linux__)
#    include <sys/syscall.h>
#  endif
#  ifndef CKPTRESUME_NO_THREADS
#    include <pthread.h>
#  endif
#  if defined(__GLIBC__) && !defined(__USE_MISC)
#    error "ckptresume.h: define CKPTRESUME_IMPLEMENTATION and include it before any system header"
#  endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* >>platform ------------------------------------------------------------------ */
/* What the compiler and the machine are, and loads that need no alignment.          */

#if defined(CKPTRESUME_MALLOC) != defined(CKPTRESUME_FREE)
#  error "ckptresume.h: define both CKPTRESUME_MALLOC and CKPTRESUME_FREE, or neither"
#endif

#ifndef CKPTRESUME_ASSERT
#  include <assert.h>
#  define CKPTRESUME_ASSERT(x) assert(x)
#endif

#if defined(__GNUC__) || defined(__clang__)
#  define CKR__PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#  define CKR__PREFETCH(p) __builtin_prefetch(p)
#else
#  define CKR__PRINTF(fmt, args)
#  define CKR__PREFETCH(p) ((void)(p))
#endif

#if !defined(CKPTRESUME_NO_SIMD) && (defined(__x86_64__) || defined(_M_X64))
#  define CKR__X64 1
#  include <immintrin.h>
#  if defined(_MSC_VER) && !defined(__clang__)
#    include <intrin.h>
#    define CKR__TARGET(features)
#  else
#    include <cpuid.h>
#    define CKR__TARGET(features) __attribute__((target(features)))
#  endif
#endif

typedef char ckr__assert_int_is_32_bits[sizeof(int) == 4 ? 1 : -1];
typedef char ckr__assert_float_is_32_bits[sizeof(float) == 4 ? 1 : -1];
typedef char ckr__assert_double_is_64_bits[sizeof(double) == 8 ? 1 : -1];

static bool ckr__host_big_endian(void)
{
    const uint16_t one = 1;
    uint8_t first;
    memcpy(&first, &one, 1);
    return first == 0;
}

static uint16_t ckr__load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (uint16_t)(p[1] << 8));
}

static uint32_t ckr__load_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t ckr__load_u64(const uint8_t *p)
{
    return (uint64_t)ckr__load_u32(p) | (uint64_t)ckr__load_u32(p + 4) << 32;
}

static void ckr__store_u16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void ckr__store_u32(uint8_t *p, uint32_t v)
{
    ckr__store_u16(p, v);
    ckr__store_u16(p + 2, v >> 16);
}

static void ckr__store_u64(uint8_t *p, uint64_t v)
{
    ckr__store_u32(p, (uint32_t)v);
    ckr__store_u32(p + 4, (uint32_t)(v >> 32));
}

/* >>arith --------------------------------------------------------------------- */
/* Every size, count or offset that came from a file goes through these.            */

static bool ckr__mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    if (b != 0 && a > UINT64_MAX / b) return false;
    *out = a * b;
    return true;
}

static bool ckr__add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    if (a > UINT64_MAX - b) return false;
    *out = a + b;
    return true;
}

static bool ckr__mul_size(size_t a, size_t b, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b) return false;
    *out = a * b;
    return true;
}

/* [begin, begin + n) lies inside [0, total); no addition, so nothing can wrap. */
static bool ckr__range_ok(uint64_t begin, uint64_t n, uint64_t total)
{
    return begin <= total && n <= total - begin;
}

/* Elements of a shape; false when a dimension is negative or the product passes 63 bits. */
static bool ckr__numel(uint32_t n_dims, const int64_t *shape, int64_t *out)
{
    uint64_t n = 1;
    bool zero = false;
    uint32_t d;
    for (d = 0; d < n_dims; d++) {
        if (shape[d] < 0) return false;
        if (shape[d] == 0) zero = true;
    }
    for (d = 0; d < n_dims && !zero; d++)
        if (!ckr__mul_u64(n, (uint64_t)shape[d], &n) || n > INT64_MAX) return false;
    *out = zero ? 0 : (int64_t)n;
    return true;
}

static int64_t ckr__min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t ckr__max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* >>error --------------------------------------------------------------------- */
/* The only writer of ckr_error. The first failure wins: later ones never overwrite it. */

static const ckr_result ckr__item_class[] = {
#define CKR__ITEM_CLASS(id, cls, text) CKR_##cls,
    CKR__ITEMS(CKR__ITEM_CLASS)
#undef CKR__ITEM_CLASS
};
static const char *const ckr__item_text[] = {
#ifdef CKPTRESUME_NO_TEXT
#define CKR__ITEM_TEXT(id, cls, text) "",
#else
#define CKR__ITEM_TEXT(id, cls, text) text,
#endif
    CKR__ITEMS(CKR__ITEM_TEXT)
#undef CKR__ITEM_TEXT
};
static const char *const ckr__item_name[] = {
#define CKR__ITEM_NAME(id, cls, text) "CKR_E_" #id,
    CKR__ITEMS(CKR__ITEM_NAME)
#undef CKR__ITEM_NAME
};

/* A string into a fixed field; one that is too long keeps its end behind "...". */
static void ckr__copy_tail(char *dst, size_t cap, const char *src)
{
    size_t n = src ? strlen(src) : 0;
    if (n < cap) {
        if (n) memcpy(dst, src, n);
        dst[n] = 0;
    } else {
        memcpy(dst, "...", 3);
        memcpy(dst + 3, src + (n - (cap - 4)), cap - 4);
        dst[cap - 1] = 0;
    }
}

/* Returns the class of the first failure, so that callers write `return ckr__fail(...)`. `fmt` says
   what was found and what was expected; NULL takes the item's own text. */
CKR__PRINTF(6, 7)
static ckr_result ckr__fail(ckr_error *e, ckr_item item, const char *file, uint64_t offset,
                            const char *where, const char *fmt, ...)
{
    va_list ap;
    if (e && e->code == CKR_OK) {
        e->code = ckr__item_class[item];
        e->item = item;
        e->offset = offset;
        ckr__copy_tail(e->file, sizeof e->file, file);
        ckr__copy_tail(e->where, sizeof e->where, where);
        if (fmt) {
            va_start(ap, fmt);
            vsnprintf(e->text, sizeof e->text, fmt, ap);
            va_end(ap);
        } else {
            snprintf(e->text, sizeof e->text, "%s", ckr__item_text[item]);
        }
    }
    return e && e->code != CKR_OK ? e->code : ckr__item_class[item];
}

static ckr_result ckr__remedy(ckr_error *e, ckr_result r, const char *remedy)
{
    if (e && e->code == r && !e->remedy[0]) ckr__copy_tail(e->remedy, sizeof e->remedy, remedy);
    return r;
}

static ckr_result ckr__fail_io(ckr_error *e, ckr_item item, const char *file, int32_t sys)
{
    ckr_result r;
    if (item == CKR_ITEM_IO_OPEN && (sys == ENOENT || sys == ENOTDIR))
        item = CKR_ITEM_PATH_NOT_FOUND;
    if (sys == ENOSPC) item = CKR_ITEM_IO_NO_SPACE;
#ifdef EDQUOT
    if (sys == EDQUOT) item = CKR_ITEM_IO_NO_SPACE;
#endif
    r = ckr__fail(e, item, file, CKR_NO_OFFSET, NULL, "%s: %s", ckr__item_text[item],
                  strerror(sys));
    if (e && e->sys_error == 0) e->sys_error = sys;
    return r;
}

CKR_API uint32_t ckr_version(void)
{
    return CKR_VERSION;
}

CKR_API const char *ckr_item_name(ckr_item item)
{
    return (unsigned)item < (unsigned)CKR_ITEM_COUNT_ ? ckr__item_name[item] : "CKR_E_UNKNOWN";
}

/* >>mem ----------------------------------------------------------------------- */
/* One context per opened object: hooks, limits, arena and files. Everything parsed lives in
   its arena and goes with it; scratch memory is allocated and freed through the same hooks. */

typedef struct ckr__chunk { struct ckr__chunk *next; size_t size, used; } ckr__chunk;

typedef struct ckr__file {
    const char *path;
    void       *handle;        /* NULL when not open                                   */
    uint64_t    size;
} ckr__file;

typedef struct ckr__ctx {
    ckr_env     env;
    ckr_limits  limits;
    ckr_error  *err;           /* of the call in progress, never NULL                  */
    ckr_error   own_err;
    ckr__chunk *chunks;
    uint64_t    arena_bytes;
    uint32_t    n_nodes;
    ckr__file  *files;
    uint32_t    n_files, cap_files, n_parked;
    uint64_t    seed;          /* of hashes, so that colliding keys cannot be prepared  */
} ckr__ctx;

/* Page faults cost more than parsing: large blocks ask for huge pages where the system has them. */
#define CKR__HUGE ((size_t)1 << 21)

static void *ckr__default_alloc(void *user, size_t size, size_t align)
{
    (void)user;
    (void)align;               /* never over max_align_t in this library                */
#ifdef CKPTRESUME_MALLOC
    return CKPTRESUME_MALLOC(size);
#else
#  if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (size >= CKR__HUGE) {
        void *p;
        if (posix_memalign(&p, CKR__HUGE, size) != 0) return NULL;
        madvise(p, size & ~(CKR__HUGE - 1), MADV_HUGEPAGE);      /* a wish: its failure is none */
        return p;
    }
#  endif
    return malloc(size);
#endif
}

static void ckr__default_free(void *user, void *ptr, size_t size, size_t align)
{
    (void)user;
    (void)size;
    (void)align;
#ifdef CKPTRESUME_FREE
    CKPTRESUME_FREE(ptr);
#else
    free(ptr);
#endif
}

static void *ckr__nomem(ckr__ctx *c)
{
    ckr__fail(c->err, CKR_ITEM_NOMEM, NULL, CKR_NO_OFFSET, NULL, NULL);
    return NULL;
}

/* Scratch: size 0 gives a valid pointer. NULL sets the error. */
static void *ckr__heap_alloc(ckr__ctx *c, size_t size)
{
    void *p = c->env.alloc.alloc_fn(c->env.alloc.user, size ? size : 1, 16);
    return p ? p : ckr__nomem(c);
}

static void ckr__heap_free(ckr__ctx *c, void *p, size_t size)
{
    if (p) c->env.alloc.free_fn(c->env.alloc.user, p, size ? size : 1, 16);
}

#define CKR__ARENA_CHUNK ((size_t)1 << 16)

/* A chunk with room for `size` bytes. Chunks double up to 4 MiB, so that a small tree stays small
   and a large one costs few allocations; what would fill most of one gets its own, behind the one
   in use, whose rest is not lost. NULL sets the error.                                         */
static ckr__chunk *ckr__arena_chunk(ckr__ctx *c, size_t size)
{
    const size_t head = (sizeof(ckr__chunk) + 15) & ~(size_t)15;
    ckr__chunk *k = c->chunks, *made;
    size_t want = k ? k->size * 2 : CKR__ARENA_CHUNK;
    bool own;
    if (k && size <= k->size - k->used) return k;
    if (want > ((size_t)4 << 20)) want = (size_t)4 << 20;
    own = k && size > want / 4;
    if (size > SIZE_MAX / 2) want = SIZE_MAX;
    else if (own || want < size + head) want = size + head;
    if (want == SIZE_MAX || c->arena_bytes + want > c->limits.max_arena_bytes) {
        ckr__fail(c->err, CKR_ITEM_LIMIT, NULL, CKR_NO_OFFSET, NULL,
                  "metadata needs more than max_arena_bytes (%llu)",
                  (unsigned long long)c->limits.max_arena_bytes);
        return NULL;
    }
    made = (ckr__chunk *)ckr__heap_alloc(c, want);
    if (!made) return NULL;
    made->size = want;
    made->used = head;
    made->next = own ? k->next : k;
    if (own) k->next = made;
    else c->chunks = made;
    c->arena_bytes += want;
    return made;
}

/* Aligned to 16, not zeroed: for what is written over at once. NULL sets the error. */
static void *ckr__arena_raw(ckr__ctx *c, size_t size)
{
    ckr__chunk *k;
    if (size <= SIZE_MAX / 2) size = (size + 15) & ~(size_t)15;
    k = ckr__arena_chunk(c, size);
    if (!k) return NULL;
    k->used += size;
    return (char *)k + k->used - size;
}

/* The same, zeroed. */
static void *ckr__arena(ckr__ctx *c, size_t size)
{
    void *p = ckr__arena_raw(c, size);
    if (p) memset(p, 0, size);
    return p;
}

static void *ckr__arena_n(ckr__ctx *c, uint64_t count, size_t size)
{
    uint64_t n;
    if (!ckr__mul_u64(count, size, &n) || n > SIZE_MAX / 2) {
        ckr__fail(c->err, CKR_ITEM_LIMIT, NULL, CKR_NO_OFFSET, NULL, "an array of %llu items",
                  (unsigned long long)count);
        return NULL;
    }
    return ckr__arena(c, (size_t)n);
}

#define CKR__NEW(c, type) ((type *)ckr__arena((c), sizeof(type)))
#define CKR__NEW_N(c, type, n) ((type *)ckr__arena_n((c), (n), sizeof(type)))

/* Room for `need` items in an arena array that doubles; the old array stays behind (at most as
   much again as the final one). False sets the error.                                         */
static bool ckr__arena_grow(ckr__ctx *c, void **array, uint64_t *cap, uint64_t need, size_t size)
{
    uint64_t n = *cap ? *cap : 4;
    void *p;
    if (need <= *cap) return true;
    while (n < need) n *= 2;
    p = ckr__arena_n(c, n, size);
    if (!p) return false;
    if (*array && *cap) memcpy(p, *array, (size_t)*cap * size);
    *array = p;
    *cap = n;
    return true;
}

static const char *ckr__strndup(ckr__ctx *c, const char *s, size_t n)
{
    char *p = (char *)ckr__arena(c, n + 1);
    if (p && n) memcpy(p, s, n);
    return p;
}

/* NULL gives NULL, here and in ckr__node_str, so that a failed allocation needs one check. */
static const char *ckr__strdup(ckr__ctx *c, const char *s)
{
    return s ? ckr__strndup(c, s, strlen(s)) : NULL;
}

CKR__PRINTF(2, 3)
static const char *ckr__printf(ckr__ctx *c, const char *fmt, ...)
{
    va_list ap;
    int n;
    char *p;
    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) return NULL;
    p = (char *)ckr__arena(c, (size_t)n + 1);
    if (!p) return NULL;
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return p;
}

/* A growing byte string in scratch memory. After a failed append `failed` is set and the rest is
   ignored, so that writers check once.                                                          */
typedef struct ckr__buf { ckr__ctx *c; uint8_t *data; size_t size, cap; bool failed; } ckr__buf;

static bool ckr__buf_reserve(ckr__buf *b, size_t n)
{
    size_t cap;
    uint8_t *p;
    if (b->failed) return false;
    if (n <= b->cap - b->size) return true;
    if (n > SIZE_MAX / 4 || b->size > SIZE_MAX / 4) { b->failed = true; return false; }
    cap = b->cap ? b->cap * 2 : 256;
    while (cap - b->size < n) cap *= 2;
    p = (uint8_t *)ckr__heap_alloc(b->c, cap);
    if (!p) { b->failed = true; return false; }
    if (b->size) memcpy(p, b->data, b->size);
    ckr__heap_free(b->c, b->data, b->cap);
    b->data = p;
    b->cap = cap;
    return true;
}

static void ckr__buf_put(ckr__buf *b, const void *src, size_t n)
{
    if (!n || !ckr__buf_reserve(b, n)) return;
    memcpy(b->data + b->size, src, n);
    b->size += n;
}

static void ckr__buf_u8(ckr__buf *b, unsigned v)
{
    const uint8_t x = (uint8_t)v;
    ckr__buf_put(b, &x, 1);
}

static void ckr__buf_str(ckr__buf *b, const char *s)
{
    ckr__buf_put(b, s, strlen(s));
}

CKR__PRINTF(2, 3)
static void ckr__buf_printf(ckr__buf *b, const char *fmt, ...)
{
    va_list ap;
    int n;
    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !ckr__buf_reserve(b, (size_t)n + 1)) return;
    va_start(ap, fmt);
    vsnprintf((char *)b->data + b->size, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->size += (size_t)n;
}

static void ckr__buf_free(ckr__buf *b)
{
    ckr__heap_free(b->c, b->data, b->cap);
    b->data = NULL;
    b->size = b->cap = 0;
}

/* String -> number. Keys are borrowed and must outlive the map; lookups compare length and bytes.
   */
typedef struct ckr__map_slot { const char *key; size_t len; uint64_t hash, value; } ckr__map_slot;
typedef struct ckr__map { ckr__ctx *c; ckr__map_slot *slots; size_t cap, count; } ckr__map;

/* Two multiplications a word, the second by a secret, so that equal hashes cannot be prepared. Bits
   of `fold` are set in every word: with 0x20 in each byte, letters of both cases are one.        */
static uint64_t ckr__hash_keyed(uint64_t seed, const void *key, size_t n, uint64_t fold)
{
    const uint8_t *p = (const uint8_t *)key;
    const uint64_t secret = seed * 0x9e3779b97f4a7c15u | 1;
    uint64_t h = seed ^ n, w;
    for (;;) {
        size_t i;
        if (n >= 8) {
            w = ckr__load_u64(p);
        } else {
            for (w = 0, i = 0; i < n; i++) w |= (uint64_t)p[i] << (8 * i);
        }
        h = (h ^ (w | fold)) * 0xff51afd7ed558ccdu;
        h = (h ^ h >> 32) * secret;
        h ^= h >> 29;
        if (n <= 8) return h;
        p += 8;
        n -= 8;
    }
}

static uint64_t ckr__hash_bytes(const void *key, size_t len)
{
    return ckr__hash_keyed(0, key, len, 0);
}

static ckr__map_slot *ckr__map_probe(const ckr__map *m, const char *key, size_t len, uint64_t hash)
{
    size_t i = (size_t)hash & (m->cap - 1);
    while (m->slots[i].key && !(m->slots[i].hash == hash && m->slots[i].len == len &&
                                !memcmp(m->slots[i].key, key, len)))
        i = (i + 1) & (m->cap - 1);
    return &m->slots[i];
}

static bool ckr__map_find(const ckr__map *m, const char *key, size_t len, uint64_t *value)
{
    const ckr__map_slot *s;
    if (!m->cap) return false;
    s = ckr__map_probe(m, key, len, ckr__hash_keyed(m->c->seed, key, len, 0));
    if (!s->key) return false;
    if (value) *value = s->value;
    return true;
}

/* Sets key to value; *old gets the former value and *had whether there was one (both may be NULL).
   False: out of memory.                                                                        */
static bool ckr__map_put(ckr__map *m, const char *key, size_t len, uint64_t value, bool *had)
{
    ckr__map_slot *s;
    size_t i;
    if (m->count * 4 >= m->cap * 3) {
        ckr__map big = *m;
        big.cap = m->cap ? m->cap * 2 : 64;
        big.slots = (ckr__map_slot *)ckr__heap_alloc(m->c, big.cap * sizeof *big.slots);
        if (!big.slots) return false;
        memset(big.slots, 0, big.cap * sizeof *big.slots);
        for (i = 0; i < m->cap; i++)
            if (m->slots[i].key)
                *ckr__map_probe(&big, m->slots[i].key, m->slots[i].len, m->slots[i].hash) =
                    m->slots[i];
        ckr__heap_free(m->c, m->slots, m->cap * sizeof *m->slots);
        *m = big;
    }
    s = ckr__map_probe(m, key, len, ckr__hash_keyed(m->c->seed, key, len, 0));
    if (had) *had = s->key != NULL;
    if (!s->key) {
        s->key = key;
        s->len = len;
        s->hash = ckr__hash_keyed(m->c->seed, key, len, 0);
        m->count++;
    }
    s->value = value;
    return true;
}

static void ckr__map_free(ckr__map *m)
{
    ckr__heap_free(m->c, m->slots, m->cap * sizeof *m->slots);
    m->slots = NULL;
    m->cap = m->count = 0;
}

/* Bottom-up merge sort of pointers: stable, no recursion, n log n on any input. */
static bool ckr__sort(ckr__ctx *c, void **items, size_t n, int (*cmp)(const void *, const void *))
{
    void **tmp, **src = items, **dst, **swap;
    size_t w, i, j, k, mid, end, bytes;
    if (n < 2) return true;
    if (!ckr__mul_size(n, sizeof *tmp, &bytes)) return ckr__nomem(c) != NULL;
    tmp = (void **)ckr__heap_alloc(c, bytes);
    if (!tmp) return false;
    dst = tmp;
    for (w = 1; w < n; w *= 2) {
        for (i = 0; i < n; i = end) {
            size_t a = i, b;
            mid = n - i > w ? i + w : n;
            end = n - mid > w ? mid + w : n;
            for (b = mid, k = i; k < end; k++)
                dst[k] = a < mid && (b >= end || cmp(src[a], src[b]) <= 0) ? src[a++] : src[b++];
        }
        swap = src;
        src = dst;
        dst = swap;
    }
    if (src != items) for (j = 0; j < n; j++) items[j] = src[j];
    ckr__heap_free(c, tmp, bytes);
    return true;
}

/* >>io ------------------------------------------------------------------------ */
/* The default hooks (POSIX, Win32) and the few calls the rest uses. Files are read, never mapped,
   so that one which changes underneath is an error at most. */

#if !defined(_WIN32)
typedef struct ckr__os_file {
    int      fd;               /* -1 when parked                                        */
    uint64_t size;
    dev_t    dev;              /* a parked file is reopened only as the one that it was */
    ino_t    ino;
    char    *path;
} ckr__os_file;

static int32_t ckr__os_open(void *user, const char *path, bool create, void **file, uint64_t *size)
{
    ckr__os_file *f;
    struct stat st;
    int fd, flags = create ? O_RDWR | O_CREAT | O_EXCL : O_RDONLY;
    (void)user;
#ifdef O_CLOEXEC
    flags |= O_CLOEXEC;
#endif
    do fd = open(path, flags, 0666); while (fd < 0 && errno == EINTR);
    if (fd < 0) return errno;
    if (fstat(fd, &st) != 0) {
        int32_t e = errno;
        close(fd);
        return e;
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    }
    f = (ckr__os_file *)malloc(sizeof *f + strlen(path) + 1);
    if (!f) {
        close(fd);
        return ENOMEM;
    }
    f->fd = fd;
    f->size = (uint64_t)st.st_size;
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    f->path = (char *)(f + 1);
    memcpy(f->path, path, strlen(path) + 1);
    *file = f;
    *size = f->size;
    return 0;
}

static int32_t ckr__os_pread(int fd, uint64_t offset, char *p, size_t n)
{
    while (n) {
        size_t part = n < ((size_t)1 << 30) ? n : (size_t)1 << 30;
        ssize_t got = pread(fd, p, part, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        if (got == 0) return EIO;
        p += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

/* A parked file is opened for this one read, so that threads need no lock. */
static int32_t ckr__os_read(void *user, void *file, uint64_t offset, void *dst, size_t n)
{
    const ckr__os_file *f = (const ckr__os_file *)file;
    struct stat st;
    int32_t r;
    int fd = f->fd;
    (void)user;
    if (fd >= 0) return ckr__os_pread(fd, offset, (char *)dst, n);
    fd = open(f->path, O_RDONLY);
    if (fd < 0) return errno;
    if (fstat(fd, &st) != 0 || st.st_dev != f->dev || st.st_ino != f->ino ||
        (uint64_t)st.st_size != f->size)
        r = ESTALE;
    else r = ckr__os_pread(fd, offset, (char *)dst, n);
    close(fd);
    return r;
}

static void ckr__os_park(void *user, void *file)
{
    ckr__os_file *f = (ckr__os_file *)file;
    (void)user;
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

static int32_t ckr__os_write(void *user, void *file, uint64_t offset, const void *src, size_t n)
{
    const char *p = (const char *)src;
    (void)user;
    while (n) {
        size_t part = n < ((size_t)1 << 30) ? n : (size_t)1 << 30;
        ssize_t put = pwrite(((ckr__os_file *)file)->fd, p, part, (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return errno;
        if (put == 0) return EIO;
        p += put;
        offset += (uint64_t)put;
        n -= (size_t)put;
    }
    return 0;
}

static int32_t ckr__os_sync(void *user, void *file)
{
    (void)user;
    return fsync(((ckr__os_file *)file)->fd) == 0 ? 0 : errno;
}

static void ckr__os_close(void *user, void *file)
{
    ckr__os_file *f = (ckr__os_file *)file;
    (void)user;
    if (f->fd >= 0) close(f->fd);
    free(f);
}

static int32_t ckr__os_stat(void *user, const char *path, ckr_stat *out)
{
    struct stat st;
    (void)user;
    memset(out, 0, sizeof *out);
    if (stat(path, &st) != 0) return errno == ENOENT || errno == ENOTDIR ? 0 : errno;
    out->kind = S_ISREG(st.st_mode)   ? CKR_FILE_REGULAR
                : S_ISDIR(st.st_mode) ? CKR_FILE_DIR
                                      : CKR_FILE_OTHER;
    out->size = (uint64_t)st.st_size;
    out->id[0] = (uint64_t)st.st_dev;
    out->id[1] = (uint64_t)st.st_ino;
    return 0;
}

static int32_t ckr__os_list(void *user, const char *dir,
                            void (*each_fn)(void *arg, const char *name, bool is_dir), void *arg)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int32_t r;
    (void)user;
    if (!d) return errno;
    for (errno = 0; (e = readdir(d)) != NULL; errno = 0) {
        struct stat st;
        bool is_dir = false;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (fstatat(dirfd(d), e->d_name, &st, 0) == 0) is_dir = S_ISDIR(st.st_mode);
        each_fn(arg, e->d_name, is_dir);
    }
    r = errno;
    closedir(d);
    return r;
}

static int32_t ckr__os_lock(void *user, const char *path, void **lock)
{
    struct stat a, b;
    int32_t r = 0;
    int *held = (int *)malloc(sizeof *held), fd = held ? open(path, O_RDONLY) : -1;
    (void)user;
    if (fd < 0) r = held ? errno : ENOMEM;
    else if (flock(fd, LOCK_EX | LOCK_NB) != 0) r = errno == EWOULDBLOCK ? EBUSY : errno;
    else if (fstat(fd, &a) != 0 || stat(path, &b) != 0 || a.st_ino != b.st_ino ||
             a.st_dev != b.st_dev)
        r = EBUSY;             /* the name went to another while we waited             */
    if (r) {
        if (fd >= 0) close(fd);
        free(held);
        return r;
    }
    *held = fd;
    *lock = held;
    return 0;
}

static void ckr__os_unlock(void *user, void *lock)
{
    (void)user;
    close(*(int *)lock);
    free(lock);
}

static int32_t ckr__os_path(void *user, ckr_path_op op, const char *path, const char *to)
{
    int r = 0, fd;
    (void)user;
    switch (op) {
    case CKR_PATH_MKDIR:  r = mkdir(path, 0777); break;
    case CKR_PATH_RENAME: r = rename(path, to); break;
    case CKR_PATH_REMOVE: r = unlink(path); break;
    case CKR_PATH_RMDIR:  r = rmdir(path); break;
    case CKR_PATH_SYNC_DIR:
        fd = open(path, O_RDONLY);
        if (fd < 0) return errno;
        r = fsync(fd);
        if (r != 0 && errno == EINVAL) r = 0;      /* a file system that has no such thing */
        close(fd);
        break;
    case CKR_PATH_EXCHANGE:
#if defined(__linux__) && defined(SYS_renameat2)
        r = (int)syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, to, 2u);   /* RENAME_EXCHANGE */
        break;
#else
        return ENOSYS;
#endif
    }
    return r == 0 ? 0 : errno;
}
#else
/* Win32: paths are UTF-8; errors are mapped to errno values, which is all that callers see. */
typedef struct ckr__os_file { HANDLE h; uint64_t size; } ckr__os_file;

static int32_t ckr__os_errno(void)
{
    switch (GetLastError()) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:   return ENOENT;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION: return EACCES;
    case ERROR_FILE_EXISTS:
    case ERROR_ALREADY_EXISTS:   return EEXIST;
    case ERROR_DISK_FULL:        return ENOSPC;
    case ERROR_NOT_ENOUGH_MEMORY:
    case ERROR_OUTOFMEMORY:      return ENOMEM;
    default:                     return EIO;
    }
}

static bool ckr__os_wide(const char *path, WCHAR *out, int cap)
{
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, out, cap) > 0) return true;
    SetLastError(ERROR_PATH_NOT_FOUND);
    return false;
}

static int32_t ckr__os_open(void *user, const char *path, bool create, void **file, uint64_t *size)
{
    WCHAR wide[1024];
    LARGE_INTEGER n;
    ckr__os_file *f;
    HANDLE h;
    (void)user;
    if (!ckr__os_wide(path, wide, 1024)) return ckr__os_errno();
    h = CreateFileW(wide, create ? GENERIC_READ | GENERIC_WRITE : GENERIC_READ,
                    FILE_SHARE_READ | FILE_SHARE_DELETE, NULL, create ? CREATE_NEW : OPEN_EXISTING,
                    FILE_ATTRIBUTE_NORMAL, NULL);
    if (h == INVALID_HANDLE_VALUE) return ckr__os_errno();
    f = (ckr__os_file *)malloc(sizeof *f);
    if (!f || !GetFileSizeEx(h, &n)) {
        free(f);
        CloseHandle(h);
        return f ? EIO : ENOMEM;
    }
    memset(f, 0, sizeof *f);
    f->h = h;
    f->size = (uint64_t)n.QuadPart;
    *file = f;
    *size = f->size;
    return 0;
}

static int32_t ckr__os_transfer(void *file, uint64_t offset, void *dst, const void *src, size_t n)
{
    while (n) {
        OVERLAPPED at;
        DWORD part = n < ((size_t)1 << 30) ? (DWORD)n : (DWORD)1 << 30, done = 0;
        BOOL ok;
        memset(&at, 0, sizeof at);
        at.Offset = (DWORD)offset;
        at.OffsetHigh = (DWORD)(offset >> 32);
        ok = dst ? ReadFile(((ckr__os_file *)file)->h, dst, part, &done, &at)
                 : WriteFile(((ckr__os_file *)file)->h, src, part, &done, &at);
        if (!ok) return ckr__os_errno();
        if (!done) return EIO;
        if (dst) dst = (char *)dst + done;
        else src = (const char *)src + done;
        offset += done;
        n -= done;
    }
    return 0;
}

static int32_t ckr__os_read(void *user, void *file, uint64_t offset, void *dst, size_t n)
{
    (void)user;
    return n ? ckr__os_transfer(file, offset, dst, NULL, n) : 0;
}

static int32_t ckr__os_write(void *user, void *file, uint64_t offset, const void *src, size_t n)
{
    (void)user;
    return n ? ckr__os_transfer(file, offset, NULL, src, n) : 0;
}

static void ckr__os_park(void *user, void *file)
{
    (void)user;                /* handles are not scarce                                */
    (void)file;
}

static int32_t ckr__os_sync(void *user, void *file)
{
    (void)user;
    return FlushFileBuffers(((ckr__os_file *)file)->h) || GetLastError() == ERROR_ACCESS_DENIED
               ? 0
               : ckr__os_errno();
}

static void ckr__os_close(void *user, void *file)
{
    ckr__os_file *f = (ckr__os_file *)file;
    (void)user;
    CloseHandle(f->h);
    free(f);
}

static int32_t ckr__os_stat(void *user, const char *path, ckr_stat *out)
{
    WCHAR wide[1024];
    BY_HANDLE_FILE_INFORMATION info;
    HANDLE h;
    (void)user;
    memset(out, 0, sizeof *out);
    if (!ckr__os_wide(path, wide, 1024)) return 0;
    h = CreateFileW(wide, 0, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                    OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
    if (h == INVALID_HANDLE_VALUE) return ckr__os_errno() == ENOENT ? 0 : ckr__os_errno();
    if (GetFileInformationByHandle(h, &info)) {
        out->kind =
            info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY ? CKR_FILE_DIR : CKR_FILE_REGULAR;
        out->size = (uint64_t)info.nFileSizeHigh << 32 | info.nFileSizeLow;
        out->id[0] = info.dwVolumeSerialNumber;
        out->id[1] = (uint64_t)info.nFileIndexHigh << 32 | info.nFileIndexLow;
    }
    CloseHandle(h);
    return 0;
}

static int32_t ckr__os_list(void *user, const char *dir,
                            void (*each_fn)(void *arg, const char *name, bool is_dir), void *arg)
{
    WCHAR wide[1024];
    WIN32_FIND_DATAW e;
    HANDLE h;
    char pattern[1024], name[1024];
    (void)user;
    if (snprintf(pattern, sizeof pattern, "%s/*", dir) >= (int)sizeof pattern) return ENOENT;
    if (!ckr__os_wide(pattern, wide, 1024)) return ckr__os_errno();
    h = FindFirstFileW(wide, &e);
    if (h == INVALID_HANDLE_VALUE) return ckr__os_errno();
    do {
        if (WideCharToMultiByte(CP_UTF8, 0, e.cFileName, -1, name, (int)sizeof name, NULL, NULL) <=
            0)
            continue;
        if (strcmp(name, ".") && strcmp(name, ".."))
            each_fn(arg, name, (e.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0);
    } while (FindNextFileW(h, &e));
    FindClose(h);
    return 0;
}

static int32_t ckr__os_path(void *user, ckr_path_op op, const char *path, const char *to)
{
    WCHAR a[1024], b[1024];
    BOOL ok = TRUE;
    (void)user;
    if (!ckr__os_wide(path, a, 1024)) return ckr__os_errno();
    switch (op) {
    case CKR_PATH_MKDIR:  ok = CreateDirectoryW(a, NULL); break;
    case CKR_PATH_RENAME:
        ok = ckr__os_wide(to, b, 1024) &&
             MoveFileExW(a, b, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH);
        break;
    case CKR_PATH_REMOVE: ok = DeleteFileW(a); break;
    case CKR_PATH_RMDIR:  ok = RemoveDirectoryW(a); break;
    case CKR_PATH_SYNC_DIR: break;                 /* NTFS journals directory entries      */
    case CKR_PATH_EXCHANGE: return ENOSYS;
    }
    return ok ? 0 : ckr__os_errno();
}
#endif

static ckr_io ckr__default_io(void)
{
    ckr_io io;
    io.open_fn = ckr__os_open;
    io.read_fn = ckr__os_read;
    io.write_fn = ckr__os_write;
    io.sync_fn = ckr__os_sync;
    io.park_fn = ckr__os_park;
    io.close_fn = ckr__os_close;
    io.stat_fn = ckr__os_stat;
    io.list_fn = ckr__os_list;
    io.path_fn = ckr__os_path;
#if defined(_WIN32)
    io.lock_fn = NULL;
    io.unlock_fn = NULL;
#else
    io.lock_fn = ckr__os_lock;
    io.unlock_fn = ckr__os_unlock;
#endif
    io.user = NULL;
    return io;
}

#define CKR__OPEN_FILES 256    /* not parked at a time: below the usual limits on descriptors  */

/* Opens `path` for reading and gives it an index. */
static ckr_result ckr__file_open(ckr__ctx *c, const char *path, uint32_t *index)
{
    ckr__file f;
    int32_t sys;
    uint64_t cap = c->cap_files;
    void *array = c->files;

    memset(&f, 0, sizeof f);
    if (!ckr__arena_grow(c, &array, &cap, (uint64_t)c->n_files + 1, sizeof f)) return CKR_E_NOMEM;
    c->files = (ckr__file *)array;
    c->cap_files = (uint32_t)cap;
    f.path = ckr__strdup(c, path);
    if (!f.path) return CKR_E_NOMEM;
    sys = c->env.io.open_fn(c->env.io.user, path, false, &f.handle, &f.size);
    if (sys) return ckr__fail_io(c->err, CKR_ITEM_IO_OPEN, path, sys);
    *index = c->n_files;
    c->files[c->n_files++] = f;
    if (c->env.io.park_fn && c->n_files - c->n_parked > CKR__OPEN_FILES)
        c->env.io.park_fn(c->env.io.user, c->files[c->n_parked++].handle);
    return CKR_OK;
}

static const char *ckr__file_path(const ckr__ctx *c, uint32_t file)
{
    return file < c->n_files ? c->files[file].path : "";
}

/* n bytes at `offset` of an open file, with every bound checked. */
static ckr_result ckr__file_read(ckr__ctx *c, uint32_t file, uint64_t offset, void *dst, size_t n)
{
    const ckr__file *f = &c->files[file];
    int32_t sys;
    if (!ckr__range_ok(offset, n, f->size))
        return ckr__fail(c->err, CKR_ITEM_IO_READ, f->path, offset, NULL,
                         "%llu bytes were expected here, the file ends at %llu",
                         (unsigned long long)n, (unsigned long long)f->size);
    sys = n ? c->env.io.read_fn(c->env.io.user, f->handle, offset, dst, n) : 0;
    return sys ? ckr__fail_io(c->err, CKR_ITEM_IO_READ, f->path, sys) : CKR_OK;
}

/* The same into the arena, for metadata: at most `max` bytes. One NUL follows the last byte. */
static ckr_result ckr__file_load(ckr__ctx *c, uint32_t file, uint64_t offset, uint64_t n,
                                 uint64_t max, const uint8_t **out)
{
    uint8_t *p;
    ckr_result r;
    if (n > max || n > SIZE_MAX / 2)
        return ckr__fail(c->err, CKR_ITEM_LIMIT, ckr__file_path(c, file), offset, NULL,
                         "%llu bytes of metadata, the limit is %llu", (unsigned long long)n,
                         (unsigned long long)max);
    if (!ckr__range_ok(offset, n, c->files[file].size))
        return ckr__file_read(c, file, offset, NULL, (size_t)n);
    p = (uint8_t *)ckr__arena_raw(c, (size_t)n + 1);
    if (!p) return c->err->code;
    p[n] = 0;
    r = ckr__file_read(c, file, offset, p, (size_t)n);
    *out = p;
    return r;
}

/* A whole small file by path. */
static ckr_result ckr__path_load(ckr__ctx *c, const char *path, uint64_t max, const uint8_t **out,
                                 uint64_t *size, uint32_t *file)
{
    uint32_t i;
    ckr_result r = ckr__file_open(c, path, &i);
    if (r != CKR_OK) return r;
    if (file) *file = i;
    *size = c->files[i].size;
    return ckr__file_load(c, i, 0, *size, max, out);
}

/* What lies at a path; OTHER when that cannot be told, so that nothing is taken for absent by
   mistake. */
static ckr_file_kind ckr__path_kind(ckr__ctx *c, const char *path)
{
    ckr_stat st;
    return c->env.io.stat_fn(c->env.io.user, path, &st) == 0 ? st.kind : CKR_FILE_OTHER;
}

static const char *ckr__path_join(ckr__ctx *c, const char *dir, const char *name)
{
    size_t n = strlen(dir);
    return ckr__printf(c, "%s%s%s", dir, n && dir[n - 1] != '/' ? "/" : "", name);
}

typedef struct ckr__dirent { const char *name; bool is_dir; } ckr__dirent;
typedef struct ckr__dirlist {
    ckr__ctx *c;
    ckr__dirent **items;
    uint64_t n, cap;
    bool failed;
} ckr__dirlist;

static void ckr__dirlist_add(void *arg, const char *name, bool is_dir)
{
    ckr__dirlist *l = (ckr__dirlist *)arg;
    ckr__dirent *e;
    void *array = l->items;
    if (l->failed) return;
    e = CKR__NEW(l->c, ckr__dirent);
    if (!e || !ckr__arena_grow(l->c, &array, &l->cap, l->n + 1, sizeof *l->items)) {
        l->failed = true;
        return;
    }
    l->items = (ckr__dirent **)array;
    e->name = ckr__strdup(l->c, name);
    e->is_dir = is_dir;
    if (!e->name) l->failed = true;
    l->items[l->n++] = e;
}

static int ckr__dirent_cmp(const void *a, const void *b)
{
    return strcmp(((const ckr__dirent *)a)->name, ((const ckr__dirent *)b)->name);
}

/* Entries of a directory in byte order of their names, so that nothing depends on the disk's order.
   */
static ckr_result ckr__dir_list(ckr__ctx *c, const char *dir, ckr__dirlist *out)
{
    int32_t sys;
    void **items;
    memset(out, 0, sizeof *out);
    out->c = c;
    sys = c->env.io.list_fn(c->env.io.user, dir, ckr__dirlist_add, out);
    if (sys) return ckr__fail_io(c->err, CKR_ITEM_IO_LIST, dir, sys);
    if (out->failed) return c->err->code;
    items = (void **)(void *)out->items;
    return ckr__sort(c, items, (size_t)out->n, ckr__dirent_cmp) ? CKR_OK : CKR_E_NOMEM;
}

/* >>threads ------------------------------------------------------------------- */
/* A parallel for over numbered tasks. Tasks write to disjoint memory and keep their own errors;
   which thread runs which task never shows in the result.                                      */

#if !defined(CKPTRESUME_NO_THREADS) && !defined(_WIN32)
typedef struct ckr__pool {
    pthread_mutex_t lock;
    uint32_t next, n_tasks;
    void (*task_fn)(void *arg, uint32_t i);
    void *arg;
} ckr__pool;

static void *ckr__pool_worker(void *arg)
{
    ckr__pool *p = (ckr__pool *)arg;
    for (;;) {
        uint32_t i;
        pthread_mutex_lock(&p->lock);
        i = p->next;
        if (i < p->n_tasks) p->next++;
        pthread_mutex_unlock(&p->lock);
        if (i >= p->n_tasks) return NULL;
        p->task_fn(p->arg, i);
    }
}

static void ckr__os_for(void *user, uint32_t n_threads, uint32_t n_tasks,
                        void (*task_fn)(void *arg, uint32_t i), void *arg)
{
    ckr__pool p;
    pthread_t id[64];
    uint32_t i, n = 0;
    (void)user;
    memset(&p, 0, sizeof p);
    p.n_tasks = n_tasks;
    p.task_fn = task_fn;
    p.arg = arg;
    if (n_threads > 65) n_threads = 65;
    if (pthread_mutex_init(&p.lock, NULL) != 0) {
        for (i = 0; i < n_tasks; i++) task_fn(arg, i);
        return;
    }
    for (i = 1; i < n_threads && i < n_tasks; i++)
        if (pthread_create(&id[n], NULL, ckr__pool_worker, &p) == 0) n++;
    ckr__pool_worker(&p);      /* the caller works too, so a refused thread costs only time */
    for (i = 0; i < n; i++) pthread_join(id[i], NULL);
    pthread_mutex_destroy(&p.lock);
}

static uint32_t ckr__os_cpus(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > 64 ? 64 : (uint32_t)n;
}
#elif !defined(CKPTRESUME_NO_THREADS)
typedef struct ckr__pool {
    volatile LONG next;
    uint32_t n_tasks;
    void (*task_fn)(void *arg, uint32_t i);
    void *arg;
} ckr__pool;

static DWORD WINAPI ckr__pool_worker(LPVOID arg)
{
    ckr__pool *p = (ckr__pool *)arg;
    for (;;) {
        uint32_t i = (uint32_t)(InterlockedIncrement(&p->next) - 1);
        if (i >= p->n_tasks) return 0;
        p->task_fn(p->arg, i);
    }
}

static void ckr__os_for(void *user, uint32_t n_threads, uint32_t n_tasks,
                        void (*task_fn)(void *arg, uint32_t i), void *arg)
{
    ckr__pool p;
    HANDLE id[63];
    uint32_t i, n = 0;
    (void)user;
    memset(&p, 0, sizeof p);
    p.n_tasks = n_tasks;
    p.task_fn = task_fn;
    p.arg = arg;
    if (n_threads > 64) n_threads = 64;
    for (i = 1; i < n_threads && i < n_tasks; i++) {
        id[n] = CreateThread(NULL, 0, ckr__pool_worker, &p, 0, NULL);
        if (id[n]) n++;
    }
    ckr__pool_worker(&p);
    if (n) WaitForMultipleObjects(n, id, TRUE, INFINITE);
    for (i = 0; i < n; i++) CloseHandle(id[i]);
}

static uint32_t ckr__os_cpus(void)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwNumberOfProcessors < 1 ? 1
           : info.dwNumberOfProcessors > 64 ? 64
                                            : (uint32_t)info.dwNumberOfProcessors;
}
#else
static void ckr__os_for(void *user, uint32_t n_threads, uint32_t n_tasks,
                        void (*task_fn)(void *arg, uint32_t i), void *arg)
{
    uint32_t i;
    (void)user;
    (void)n_threads;
    for (i = 0; i < n_tasks; i++) task_fn(arg, i);
}

static uint32_t ckr__os_cpus(void)
{
    return 1;
}
#endif

/* >>context ------------------------------------------------------------------- */
/* Making and releasing a ckr__ctx: the one place where hooks and limits get their defaults. */

static ckr_result ckr__ctx_init(ckr__ctx *c, const ckr_env *env, const ckr_limits *limits,
                                ckr_error *err)
{
    memset(c, 0, sizeof *c);
    c->err = err ? err : &c->own_err;
    memset(c->err, 0, sizeof *c->err);
    c->err->offset = CKR_NO_OFFSET;
    c->seed = ckr__hash_bytes(&c, sizeof c);      /* where the system put it: no file can know */
    if (env) c->env = *env;
    if (limits) c->limits = *limits;
    if (!c->env.alloc.alloc_fn != !c->env.alloc.free_fn)
        return ckr__fail(c->err, CKR_ITEM_ARG, NULL, CKR_NO_OFFSET, "env.alloc",
                         "alloc_fn and free_fn go together");
    if (!c->env.alloc.alloc_fn) {
        c->env.alloc.alloc_fn = ckr__default_alloc;
        c->env.alloc.free_fn = ckr__default_free;
    }
    if (!c->env.io.open_fn) c->env.io = ckr__default_io();
    if (!c->env.io.read_fn || !c->env.io.close_fn || !c->env.io.stat_fn || !c->env.io.list_fn)
        return ckr__fail(c->err, CKR_ITEM_ARG, NULL, CKR_NO_OFFSET, "env.io",
                         "open_fn is set, so read_fn, close_fn, stat_fn and list_fn must be");
    if (!c->env.parallel.for_fn) c->env.parallel.for_fn = ckr__os_for;
    if (!c->env.parallel.n_threads) c->env.parallel.n_threads = ckr__os_cpus();
    if (!c->limits.max_metadata_bytes) c->limits.max_metadata_bytes = (uint64_t)1 << 30;
    if (!c->limits.max_json_bytes) c->limits.max_json_bytes = 100000000;
    if (!c->limits.max_arena_bytes) c->limits.max_arena_bytes = (uint64_t)4 << 30;
    if (!c->limits.max_depth) c->limits.max_depth = 1000;
    return CKR_OK;
}

static void ckr__ctx_free(ckr__ctx *c)
{
    uint32_t i;
    ckr__chunk *k;
    for (i = 0; i < c->n_files; i++)
        if (c->files[i].handle) c->env.io.close_fn(c->env.io.user, c->files[i].handle);
    while ((k = c->chunks) != NULL) {
        c->chunks = k->next;
        ckr__heap_free(c, k, k->size);
    }
    c->n_files = 0;
}

/* A zeroed object of `size` bytes that begins with its own context; NULL with *r set. */
static void *ckr__owner_make(const ckr_env *env, const ckr_limits *limits, size_t size,
                             ckr_error *err, ckr_result *r)
{
    ckr__ctx boot, *c;
    *r = ckr__ctx_init(&boot, env, limits, err);
    if (*r != CKR_OK) return NULL;
    c = (ckr__ctx *)ckr__heap_alloc(&boot, size);
    if (!c) {
        *r = CKR_E_NOMEM;
        return NULL;
    }
    memset(c, 0, size);
    *c = boot;
    if (!err) c->err = &c->own_err;
    return c;
}

/* The object and everything in its arena; NULL is fine. */
static void ckr__owner_free(void *owner, size_t size)
{
    ckr__ctx last;
    if (!owner) return;
    ckr__ctx_free((ckr__ctx *)owner);
    last = *(ckr__ctx *)owner;
    last.err = &last.own_err;
    ckr__heap_free(&last, owner, size);
}

/* Each public call on an opened object starts here. */
static void ckr__ctx_enter(ckr__ctx *c, ckr_error *err)
{
    c->err = err ? err : &c->own_err;
    memset(c->err, 0, sizeof *c->err);
    c->err->offset = CKR_NO_OFFSET;
}

/* >>dtype --------------------------------------------------------------------- */

typedef struct ckr__dtype_row {
    const char *name, *tag;
    uint8_t size, swap;
    const char *storage;
} ckr__dtype_row;
static const ckr__dtype_row ckr__dtypes[] = {
#define CKR__DTYPE_ROW(id, name, tag, size, swap, storage) { name, tag, size, swap, storage },
    CKR__DTYPES(CKR__DTYPE_ROW)
#undef CKR__DTYPE_ROW
};

CKR_API size_t ckr_dtype_size(ckr_dtype t)
{
    return (unsigned)t < (unsigned)CKR_DTYPE_COUNT_ ? ckr__dtypes[t].size : 0;
}

CKR_API const char *ckr_dtype_name(ckr_dtype t)
{
    return (unsigned)t < (unsigned)CKR_DTYPE_COUNT_ ? ckr__dtypes[t].name : "none";
}

/* By torch's name, safetensors tag or storage class (which: 0, 1, 2); NONE when unknown. */
static ckr_dtype ckr__dtype_find(const char *s, size_t n, int which)
{
    int i;
    for (i = 1; i < CKR_DTYPE_COUNT_; i++) {
        const char *t = which == 0   ? ckr__dtypes[i].name
                        : which == 1 ? ckr__dtypes[i].tag
                                     : ckr__dtypes[i].storage;
        if (*t && strlen(t) == n && !memcmp(t, s, n)) return (ckr_dtype)i;
    }
    return CKR_DTYPE_NONE;
}

/* >>node ---------------------------------------------------------------------- */
/* Building trees. Every maker returns NULL after setting the context's error. */

static ckr_node *ckr__node(ckr__ctx *c, ckr_node_kind kind)
{
    ckr_node *n = CKR__NEW(c, ckr_node);
    if (n) {
        n->kind = (uint8_t)kind;
        n->id = ++c->n_nodes;
    }
    return n;
}

static ckr_node *ckr__node_bool(ckr__ctx *c, bool v)
{
    ckr_node *n = ckr__node(c, CKR_NODE_BOOL);
    if (n) n->u.b = v;
    return n;
}

static ckr_node *ckr__node_int(ckr__ctx *c, int64_t v)
{
    ckr_node *n = ckr__node(c, CKR_NODE_INT);
    if (n) n->u.i = v;
    return n;
}

static ckr_node *ckr__node_float(ckr__ctx *c, double v)
{
    ckr_node *n = ckr__node(c, CKR_NODE_FLOAT);
    if (n) n->u.f = v;
    return n;
}

/* Copies the bytes; kind is STR, BYTES, BYTEARRAY, BIGINT, GLOBAL, DEVICE, DTYPE or LAYOUT. */
static ckr_node *ckr__node_text(ckr__ctx *c, ckr_node_kind kind, const char *s, size_t len)
{
    ckr_node *n = ckr__node(c, kind);
    if (!n) return NULL;
    n->u.str = ckr__strndup(c, s, len);
    n->count = len;
    return n->u.str ? n : NULL;
}

static ckr_node *ckr__node_str(ckr__ctx *c, const char *s)
{
    return s ? ckr__node_text(c, CKR_NODE_STR, s, strlen(s)) : NULL;
}

/* aux holds log2 of the capacity + 1, so that a node needs no field for it. */
static bool ckr__node_room(ckr__ctx *c, ckr_node *n, uint64_t width)
{
    uint64_t cap = n->aux ? (uint64_t)1 << (n->aux - 1) : 0, need = n->count + 1;
    void *p = n->u.items;
    if (need <= cap) return true;
    cap *= width;
    if (!ckr__arena_grow(c, &p, &cap, (need < 4 ? 4 : need) * width, sizeof(ckr_node *)))
        return false;
    n->u.items = (ckr_node **)p;
    for (n->aux = 1; ((uint64_t)1 << n->aux) * width <= cap; n->aux++) {}
    return true;
}

static bool ckr__node_push(ckr__ctx *c, ckr_node *list, ckr_node *item)
{
    if (!list || !item || !ckr__node_room(c, list, 1)) return false;
    list->u.items[list->count++] = item;
    return true;
}

/* Appends; a caller that may meet a key twice looks first. */
static bool ckr__node_pair(ckr__ctx *c, ckr_node *dict, ckr_node *key, ckr_node *value)
{
    if (!dict || !key || !value || !ckr__node_room(c, dict, 2)) return false;
    dict->u.items[2 * dict->count] = key;
    dict->u.items[2 * dict->count + 1] = value;
    dict->count++;
    return true;
}

static bool ckr__node_set(ckr__ctx *c, ckr_node *dict, const char *key, ckr_node *value)
{
    uint64_t i;
    if (!dict || !value) return false;
    for (i = 0; i < dict->count; i++) {
        const ckr_node *k = dict->u.items[2 * i];
        if (k->kind == CKR_NODE_STR && k->count == strlen(key) &&
            !memcmp(k->u.str, key, (size_t)k->count)) {
            dict->u.items[2 * i + 1] = value;
            return true;
        }
    }
    return ckr__node_pair(c, dict, ckr__node_str(c, key), value);
}

/* >>tree ---------------------------------------------------------------------- */
/* Reading trees. */

CKR_API bool ckr_node_is_dict(const ckr_node *n)
{
    return n && n->kind >= CKR_NODE_DICT && n->kind <= CKR_NODE_DEFAULTDICT;
}

CKR_API bool ckr_node_is_list(const ckr_node *n)
{
    return n && (n->kind == CKR_NODE_LIST || n->kind == CKR_NODE_TUPLE);
}

CKR_API const ckr_node *ckr_node_get(const ckr_node *dict, const char *key)
{
    size_t len = strlen(key);
    uint64_t i;
    if (!ckr_node_is_dict(dict)) return NULL;
    for (i = 0; i < dict->count; i++) {
        const ckr_node *k = dict->u.items[2 * i];
        if (k->kind == CKR_NODE_STR && k->count == len && !memcmp(k->u.str, key, len))
            return dict->u.items[2 * i + 1];
    }
    return NULL;
}

CKR_API const ckr_node *ckr_node_at(const ckr_node *list, uint64_t index)
{
    bool ok = list && (ckr_node_is_list(list) || list->kind == CKR_NODE_SIZE ||
                       list->kind == CKR_NODE_SET || list->kind == CKR_NODE_FROZENSET);
    return ok && index < list->count ? list->u.items[index] : NULL;
}

CKR_API bool ckr_node_i64(const ckr_node *n, int64_t *out)
{
    if (!n || (n->kind != CKR_NODE_INT && n->kind != CKR_NODE_BOOL)) return false;
    *out = n->kind == CKR_NODE_INT ? n->u.i : n->u.b;
    return true;
}

CKR_API bool ckr_node_f64(const ckr_node *n, double *out)
{
    int64_t i;
    if (n && n->kind == CKR_NODE_FLOAT) {
        *out = n->u.f;
        return true;
    }
    if (!ckr_node_i64(n, &i)) return false;
    *out = (double)i;
    return true;
}

CKR_API const char *ckr_node_str(const ckr_node *n)
{
    return n && n->kind == CKR_NODE_STR ? n->u.str : NULL;
}

static bool ckr__key_matches(const ckr_node *k, const char *s, size_t n)
{
    char num[24];
    if (k->kind == CKR_NODE_STR) return k->count == n && !memcmp(k->u.str, s, n);
    if (k->kind != CKR_NODE_INT) return false;
    snprintf(num, sizeof num, "%lld", (long long)k->u.i);
    return strlen(num) == n && !memcmp(num, s, n);
}

/* "/a/0/b"; "" is the node itself; ~1 stands for "/", ~0 for "~"; integer keys by their digits. */
CKR_API const ckr_node *ckr_node_find(const ckr_node *n, const char *pointer)
{
    while (n && *pointer) {
        char part[512];
        size_t k = 0;
        uint64_t i, index = 0;
        const ckr_node *next = NULL;
        if (*pointer++ != '/') return NULL;
        for (; *pointer && *pointer != '/'; pointer++) {
            char ch = *pointer;
            if (ch == '~' && (pointer[1] == '0' || pointer[1] == '1'))
                ch = *++pointer == '1' ? '/' : '~';
            if (k + 1 >= sizeof part) return NULL;
            part[k++] = ch;
        }
        part[k] = 0;
        if (ckr_node_is_dict(n)) {
            for (i = 0; i < n->count && !next; i++)
                if (ckr__key_matches(n->u.items[2 * i], part, k)) next = n->u.items[2 * i + 1];
        } else if (k && k < 19) {
            for (i = 0; i < k; i++) {
                if (part[i] < '0' || part[i] > '9') return NULL;
                index = index * 10 + (uint64_t)(part[i] - '0');
            }
            next = ckr_node_at(n, index);
        }
        n = next;
    }
    return n;
}

/* >>hash ---------------------------------------------------------------------- */
/* CRC-32 (zip), SHA-256 and the digest of a tensor, at memory speed at plain -O2: x86-64
   kernels carry target attributes and are chosen at run time; the portable twin gives the same
   result and is what every other machine runs. Nothing is cached in writable globals.

   The digest is the same for any sharding, order, thread count, container and byte order of the
   host. A tensor's logical row-major little-endian bytes are 32-bit little-endian words x[i], the
   last one padded with zeros; 1024 words are a block. With mix() below (splitmix64), modulo 2^64,
   for a = 0, 1:
       k[a][j] = mix(a * 1024 + j) >> 32 | 1                      j = 0..1023
       m[a][b] = mix(b ^ mix(4096 + a)) | 1                       b = block number
       h[a]    = sum of m[a][i / 1024] * k[a][i % 1024] * x[i]
   h is linear in the bytes, so any run of bytes at any offset adds its share. The result is 16
   bytes, little-endian d[0], d[1]: d[a] starts as mix(h[a] ^ mix(a + 1)) and takes in, one after
   the other by d = mix(d ^ value): the length of torch's dtype name, that name as 64-bit
   little-endian words padded with zeros, the number of dimensions, each dimension, and the number
   of bytes. (tests/digest_ref.py) */

enum {                         /* what ckr__cpu finds                                   */
    CKR__CPU_PCLMUL = 1, CKR__CPU_AVX2 = 2, CKR__CPU_AVX512 = 4, CKR__CPU_VPCLMUL = 8
};

#ifdef CKR__X64
#if defined(_MSC_VER) && !defined(__clang__)
static unsigned ckr__cpu(void)
{
    int r[4], leaf7[4];
    uint64_t os;
    unsigned found;
    __cpuid(r, 0);
    if (r[0] < 7) return 0;
    __cpuidex(leaf7, 7, 0);
    __cpuid(r, 1);
    found = r[2] & 1 << 1 && r[2] & 1 << 19 ? CKR__CPU_PCLMUL : 0u;
    os = r[2] & 1 << 27 ? _xgetbv(0) : 0;
    if ((os & 6) == 6 && leaf7[1] & 1 << 5) found |= CKR__CPU_AVX2;
    if ((os & 0xe6) == 0xe6 && leaf7[1] & 1 << 16) {
        found |= CKR__CPU_AVX512;
        if (leaf7[2] & 1 << 10) found |= CKR__CPU_VPCLMUL;
    }
    return found;
}

static bool ckr__cpu_sha(void)
{
    int r[4];
    __cpuid(r, 0);
    if (r[0] < 7) return false;
    __cpuidex(r, 7, 0);
    return (r[1] & 1 << 29) != 0;
}
#else
/* The compiler's own record, filled before main; it knows about the operating system's part. */
static unsigned ckr__cpu(void)
{
    unsigned found = 0;
    if (__builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("pclmul"))
        found |= CKR__CPU_PCLMUL;
    if (__builtin_cpu_supports("avx2")) found |= CKR__CPU_AVX2;
    if (__builtin_cpu_supports("avx512f")) {
        found |= CKR__CPU_AVX512;
        if (__builtin_cpu_supports("vpclmulqdq")) found |= CKR__CPU_VPCLMUL;
    }
    return found;
}

static bool ckr__cpu_sha(void)
{
    unsigned a, b = 0, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29) &&
        __builtin_cpu_supports("sse4.1");
}
#endif
#else
static unsigned ckr__cpu(void)
{
    return 0;
}
#endif

/* >>crc32 --------------------------------------------------------------------- */
/* Reflected polynomial 0xedb88320 (zip, gzip, PNG). Row k of the table: a byte followed by k zero
   bytes; CRC is linear, so the table is written as what its eight single bits give.              */

#define CKR__CRC_1(i, a, b, c, d, e, f, g, h)                                                     \
    ((i) & 1 ? a##u : 0u) ^ ((i) & 2 ? b##u : 0u) ^ ((i) & 4 ? c##u : 0u) ^                       \
    ((i) & 8 ? d##u : 0u) ^ ((i) & 16 ? e##u : 0u) ^ ((i) & 32 ? f##u : 0u) ^                     \
    ((i) & 64 ? g##u : 0u) ^ ((i) & 128 ? h##u : 0u)
#define CKR__CRC_4(i, a, b, c, d, e, f, g, h)                                                     \
    CKR__CRC_1(i, a, b, c, d, e, f, g, h), CKR__CRC_1((i) + 1, a, b, c, d, e, f, g, h),           \
    CKR__CRC_1((i) + 2, a, b, c, d, e, f, g, h), CKR__CRC_1((i) + 3, a, b, c, d, e, f, g, h)
#define CKR__CRC_16(i, a, b, c, d, e, f, g, h)                                                    \
    CKR__CRC_4(i, a, b, c, d, e, f, g, h), CKR__CRC_4((i) + 4, a, b, c, d, e, f, g, h),           \
    CKR__CRC_4((i) + 8, a, b, c, d, e, f, g, h), CKR__CRC_4((i) + 12, a, b, c, d, e, f, g, h)
#define CKR__CRC_64(i, a, b, c, d, e, f, g, h)                                                    \
    CKR__CRC_16(i, a, b, c, d, e, f, g, h), CKR__CRC_16((i) + 16, a, b, c, d, e, f, g, h),        \
    CKR__CRC_16((i) + 32, a, b, c, d, e, f, g, h), CKR__CRC_16((i) + 48, a, b, c, d, e, f, g, h)
#define CKR__CRC_256(a, b, c, d, e, f, g, h)                                                      \
    CKR__CRC_64(0, a, b, c, d, e, f, g, h), CKR__CRC_64(64, a, b, c, d, e, f, g, h),              \
    CKR__CRC_64(128, a, b, c, d, e, f, g, h), CKR__CRC_64(192, a, b, c, d, e, f, g, h)

static const uint32_t ckr__crc_table[16][256] = {
    { CKR__CRC_256(0x77073096, 0xee0e612c, 0x076dc419, 0x0edb8832,
                   0x1db71064, 0x3b6e20c8, 0x76dc4190, 0xedb88320) },
    { CKR__CRC_256(0x191b3141, 0x32366282, 0x646cc504, 0xc8d98a08,
                   0x4ac21251, 0x958424a2, 0xf0794f05, 0x3b83984b) },
    { CKR__CRC_256(0x01c26a37, 0x0384d46e, 0x0709a8dc, 0x0e1351b8,
                   0x1c26a370, 0x384d46e0, 0x709a8dc0, 0xe1351b80) },
    { CKR__CRC_256(0xb8bc6765, 0xaa09c88b, 0x8f629757, 0xc5b428ef,
                   0x5019579f, 0xa032af3e, 0x9b14583d, 0xed59b63b) },
    { CKR__CRC_256(0x3d6029b0, 0x7ac05360, 0xf580a6c0, 0x30704bc1,
                   0x60e09782, 0xc1c12f04, 0x58f35849, 0xb1e6b092) },
    { CKR__CRC_256(0xcb5cd3a5, 0x4dc8a10b, 0x9b914216, 0xec53826d,
                   0x03d6029b, 0x07ac0536, 0x0f580a6c, 0x1eb014d8) },
    { CKR__CRC_256(0xa6770bb4, 0x979f1129, 0xf44f2413, 0x33ef4e67,
                   0x67de9cce, 0xcfbd399c, 0x440b7579, 0x8816eaf2) },
    { CKR__CRC_256(0xccaa009e, 0x4225077d, 0x844a0efa, 0xd3e51bb5,
                   0x7cbb312b, 0xf9766256, 0x299dc2ed, 0x533b85da) },
    { CKR__CRC_256(0x177b1443, 0x2ef62886, 0x5dec510c, 0xbbd8a218,
                   0xacc04271, 0x82f182a3, 0xde920307, 0x6655004f) },
    { CKR__CRC_256(0xefc26b3e, 0x04f5d03d, 0x09eba07a, 0x13d740f4,
                   0x27ae81e8, 0x4f5d03d0, 0x9eba07a0, 0xe6050901) },
    { CKR__CRC_256(0xc18edfc0, 0x586cb9c1, 0xb0d97382, 0xbac3e145,
                   0xaef6c4cb, 0x869c8fd7, 0xd64819ef, 0x77e1359f) },
    { CKR__CRC_256(0x9ba54c6f, 0xec3b9e9f, 0x03063b7f, 0x060c76fe,
                   0x0c18edfc, 0x1831dbf8, 0x3063b7f0, 0x60c76fe0) },
    { CKR__CRC_256(0xdd96d985, 0x605cb54b, 0xc0b96a96, 0x5a03d36d,
                   0xb407a6da, 0xb37e4bf5, 0xbd8d91ab, 0xa06a2517) },
    { CKR__CRC_256(0x9d0fe176, 0xe16ec4ad, 0x19ac8f1b, 0x33591e36,
                   0x66b23c6c, 0xcd6478d8, 0x41b9f7f1, 0x8373efe2) },
    { CKR__CRC_256(0xb9fbdbe8, 0xa886b191, 0x8a7c6563, 0xcf89cc87,
                   0x44629f4f, 0x88c53e9e, 0xcafb7b7d, 0x4e87f0bb) },
    { CKR__CRC_256(0xae689191, 0x87a02563, 0xd4314c87, 0x73139f4f,
                   0xe6273e9e, 0x173f7b7d, 0x2e7ef6fa, 0x5cfdedf4) }
};

/* The portable twin. The state is the complement of the CRC. */
static uint32_t ckr__crc_scalar(uint32_t s, const uint8_t *p, size_t n)
{
    const uint32_t (*t)[256] = ckr__crc_table;
    for (; n >= 16; n -= 16, p += 16) {
        uint32_t a = s ^ ckr__load_u32(p), b = ckr__load_u32(p + 4);
        uint32_t c = ckr__load_u32(p + 8), d = ckr__load_u32(p + 12);
        s = t[15][a & 0xff] ^ t[14][a >> 8 & 0xff] ^ t[13][a >> 16 & 0xff] ^ t[12][a >> 24] ^
            t[11][b & 0xff] ^ t[10][b >> 8 & 0xff] ^ t[9][b >> 16 & 0xff] ^ t[8][b >> 24] ^
            t[7][c & 0xff] ^ t[6][c >> 8 & 0xff] ^ t[5][c >> 16 & 0xff] ^ t[4][c >> 24] ^
            t[3][d & 0xff] ^ t[2][d >> 8 & 0xff] ^ t[1][d >> 16 & 0xff] ^ t[0][d >> 24];
    }
    for (; n; n--, p++) s = s >> 8 ^ t[0][(s ^ *p) & 0xff];
    return s;
}

#ifdef CKR__X64
/* Carry-less folding (Gopal et al., "Fast CRC computation for generic polynomials using PCLMULQDQ",
   Intel 2009). A register that moves D bits on is multiplied by x^(D+32) and x^(D-32) mod P, both
   reflected and shifted left by one. What is left are 16 bytes with the same remainder. */
CKR__TARGET("sse4.1,pclmul")
static __m128i ckr__crc_fold(__m128i x, __m128i k, __m128i next)
{
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00),
                                       _mm_clmulepi64_si128(x, k, 0x11)), next);
}

CKR__TARGET("sse4.1,pclmul")
static __m128i ckr__crc_load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* n >= 64 */
CKR__TARGET("sse4.1,pclmul")
static uint32_t ckr__crc_pclmul(uint32_t s, const uint8_t *p, size_t n)
{
    const __m128i k512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4),
        k128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m128i a = _mm_xor_si128(ckr__crc_load(p), _mm_cvtsi32_si128((int)s));
    __m128i b = ckr__crc_load(p + 16), c = ckr__crc_load(p + 32), d = ckr__crc_load(p + 48);
    uint8_t rest[16];
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        a = ckr__crc_fold(a, k512, ckr__crc_load(p));
        b = ckr__crc_fold(b, k512, ckr__crc_load(p + 16));
        c = ckr__crc_fold(c, k512, ckr__crc_load(p + 32));
        d = ckr__crc_fold(d, k512, ckr__crc_load(p + 48));
    }
    a = ckr__crc_fold(ckr__crc_fold(ckr__crc_fold(a, k128, b), k128, c), k128, d);
    for (; n >= 16; p += 16, n -= 16) a = ckr__crc_fold(a, k128, ckr__crc_load(p));
    _mm_storeu_si128((__m128i *)(void *)rest, a);
    return ckr__crc_scalar(ckr__crc_scalar(0, rest, 16), p, n);
}

CKR__TARGET("avx512f,vpclmulqdq")
static __m512i ckr__crc_fold_wide(__m512i x, __m512i k, __m512i next)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00),
                                     _mm512_clmulepi64_epi128(x, k, 0x11),
                                     next, 0x96);
}

/* n >= 256 */
CKR__TARGET("avx512f,vpclmulqdq")
static uint32_t ckr__crc_vpclmul(uint32_t s, const uint8_t *p, size_t n)
{
    const __m512i k2048 =
        _mm512_maskz_broadcast_i32x4(0xffff, _mm_set_epi64x(0x1322d1430, 0x11542778a));
    const __m512i k512 =
        _mm512_maskz_broadcast_i32x4(0xffff, _mm_set_epi64x(0x1c6e41596, 0x154442bd4));
    __m512i a = _mm512_xor_si512(_mm512_loadu_si512((const void *)p),
                                 _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)s)));
    __m512i b = _mm512_loadu_si512((const void *)(p + 64)),
        c = _mm512_loadu_si512((const void *)(p + 128));
    __m512i d = _mm512_loadu_si512((const void *)(p + 192));
    uint8_t rest[64];
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
        a = ckr__crc_fold_wide(a, k2048, _mm512_loadu_si512((const void *)p));
        b = ckr__crc_fold_wide(b, k2048, _mm512_loadu_si512((const void *)(p + 64)));
        c = ckr__crc_fold_wide(c, k2048, _mm512_loadu_si512((const void *)(p + 128)));
        d = ckr__crc_fold_wide(d, k2048, _mm512_loadu_si512((const void *)(p + 192)));
    }
    a = ckr__crc_fold_wide(ckr__crc_fold_wide(ckr__crc_fold_wide(a, k512, b), k512, c), k512, d);
    for (; n >= 64; p += 64, n -= 64)
        a = ckr__crc_fold_wide(a, k512, _mm512_loadu_si512((const void *)p));
    _mm512_storeu_si512((void *)rest, a);
    _mm256_zeroupper(); /* gcc adds none under a target attribute; SSE code crawls without it */
    return ckr__crc_scalar(ckr__crc_pclmul(0, rest, 64), p, n);
}
#endif

static uint32_t ckr__crc_step(unsigned cpu, uint32_t s, const uint8_t *p, size_t n)
{
#ifdef CKR__X64
    if (n >= 256 && (cpu & CKR__CPU_VPCLMUL) && (cpu & CKR__CPU_PCLMUL))
        return ckr__crc_vpclmul(s, p, n);
    if (n >= 64 && (cpu & CKR__CPU_PCLMUL)) return ckr__crc_pclmul(s, p, n);
#else
    (void)cpu;
#endif
    return ckr__crc_scalar(s, p, n);
}

/* Continues `crc`, which is 0 at the start. */
static uint32_t ckr__crc32(uint32_t crc, const void *p, size_t n)
{
    return ~ckr__crc_step(n >= 64 ? ckr__cpu() : 0, ~crc, (const uint8_t *)p, n);
}

/* Product of two polynomials modulo P, reflected: bit 31 is x^0. */
static uint32_t ckr__crc_mul(uint32_t a, uint32_t b)
{
    uint32_t product = 0, bit;
    for (bit = 0x80000000u; bit; bit >>= 1) {
        if (a & bit) product ^= b;
        b = b & 1 ? b >> 1 ^ 0xedb88320u : b >> 1;
    }
    return product;
}

/* CRC of two strings one behind the other, from theirs and the second's length: crc1 * x^(8 len2).
   */
static uint32_t ckr__crc32_combine(uint32_t crc1, uint32_t crc2, uint64_t len2)
{
    uint32_t power = 0x00800000u;      /* x^8 */
    for (; len2; len2 >>= 1) {
        if (len2 & 1) crc1 = ckr__crc_mul(crc1, power);
        power = ckr__crc_mul(power, power);
    }
    return crc1 ^ crc2;
}

/* >>digest -------------------------------------------------------------------- */
/* See >>hash for the definition. */

enum { CKR__DIGEST_BLOCK = 1024, CKR__DIGEST_ROW = CKR__DIGEST_BLOCK + 16 };

typedef struct ckr__digest_tables {
    uint64_t seed[2];
    unsigned cpu;
    uint32_t skip; /* the rows begin here, at a cache line if the struct stays in place */
    uint32_t room[4 * CKR__DIGEST_ROW + 16];   /* k[0], k[1], and both moved on by one  */
} ckr__digest_tables;

static uint64_t ckr__mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void ckr__digest_tables_init(ckr__digest_tables *t)
{
    uint64_t j, a;
    memset(t, 0, sizeof *t);
    t->cpu = ckr__cpu();
    t->skip = (uint32_t)((64 - ((uintptr_t)t->room & 63)) / 4 & 15);
    for (a = 0; a < 2; a++) {
        uint32_t *row = t->room + t->skip + a * CKR__DIGEST_ROW, *moved = row + 2 * CKR__DIGEST_ROW;
        t->seed[a] = ckr__mix(4096 + a);
        for (j = 0; j < CKR__DIGEST_BLOCK; j++)
            row[j] = (uint32_t)(ckr__mix(a * CKR__DIGEST_BLOCK + j) >> 32) | 1;
        memcpy(moved, row + 1, (CKR__DIGEST_BLOCK - 1) * sizeof *row);
    }
}

/* sum of k[a][j + i] * x[i] over n words of one block, added to s. */
static void ckr__digest_scalar(const uint32_t *k, const uint8_t *p, size_t n, uint64_t s[2])
{
    uint64_t a = s[0], b = s[1];
    size_t i;
    for (i = 0; i < n; i++) {
        uint64_t x = ckr__load_u32(p + 4 * i);
        a += x * k[i];
        b += x * k[CKR__DIGEST_ROW + i];
    }
    s[0] = a;
    s[1] = b;
}

#ifdef CKR__X64
/* A multiply takes the even 32-bit lanes: the odd ones of x are shifted down and meet the moved
   rows. */
static void ckr__digest_sse2(const uint32_t *k, const uint8_t *p, size_t n, uint64_t s[2])
{
    __m128i a = _mm_setzero_si128(), b = a;
    uint64_t sum[2];
    size_t i;
    for (i = 0; i + 4 <= n; i += 4) {
        const __m128i *row = (const __m128i *)(const void *)(k + i);
        const __m128i *row1 = (const __m128i *)(const void *)(k + i + CKR__DIGEST_ROW);
        const __m128i *odd = (const __m128i *)(const void *)(k + i + 2 * CKR__DIGEST_ROW);
        const __m128i *odd1 = (const __m128i *)(const void *)(k + i + 3 * CKR__DIGEST_ROW);
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(p + 4 * i)),
            y = _mm_srli_epi64(x, 32);
        a = _mm_add_epi64(a, _mm_mul_epu32(x, _mm_loadu_si128(row)));
        b = _mm_add_epi64(b, _mm_mul_epu32(x, _mm_loadu_si128(row1)));
        a = _mm_add_epi64(a, _mm_mul_epu32(y, _mm_loadu_si128(odd)));
        b = _mm_add_epi64(b, _mm_mul_epu32(y, _mm_loadu_si128(odd1)));
    }
    _mm_storeu_si128((__m128i *)(void *)sum, _mm_add_epi64(_mm_unpacklo_epi64(a, b),
                                                           _mm_unpackhi_epi64(a, b)));
    s[0] += sum[0];
    s[1] += sum[1];
    ckr__digest_scalar(k + i, p + 4 * i, n - i, s);
}

CKR__TARGET("avx2")
static void ckr__digest_avx2(const uint32_t *k, const uint8_t *p, size_t n, uint64_t s[2])
{
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    uint64_t sum[4];
    size_t i;
    for (i = 0; i + 8 <= n; i += 8) {
        const __m256i *row = (const __m256i *)(const void *)(k + i);
        const __m256i *row1 = (const __m256i *)(const void *)(k + i + CKR__DIGEST_ROW);
        const __m256i *odd = (const __m256i *)(const void *)(k + i + 2 * CKR__DIGEST_ROW);
        const __m256i *odd1 = (const __m256i *)(const void *)(k + i + 3 * CKR__DIGEST_ROW);
        __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(p + 4 * i)),
            y = _mm256_srli_epi64(x, 32);
        a = _mm256_add_epi64(a, _mm256_mul_epu32(x, _mm256_loadu_si256(row)));
        b = _mm256_add_epi64(b, _mm256_mul_epu32(x, _mm256_loadu_si256(row1)));
        c = _mm256_add_epi64(c, _mm256_mul_epu32(y, _mm256_loadu_si256(odd)));
        d = _mm256_add_epi64(d, _mm256_mul_epu32(y, _mm256_loadu_si256(odd1)));
    }
    a = _mm256_add_epi64(a, c);
    b = _mm256_add_epi64(b, d);
    a = _mm256_add_epi64(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    _mm256_storeu_si256((__m256i *)(void *)sum, a);
    _mm256_zeroupper();
    s[0] += sum[0] + sum[2];
    s[1] += sum[1] + sum[3];
    ckr__digest_scalar(k + i, p + 4 * i, n - i, s);
}

CKR__TARGET("avx512f")
static void ckr__digest_avx512(const uint32_t *k, const uint8_t *p, size_t n, uint64_t s[2])
{
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    uint64_t sum[8];
    size_t i;
    for (i = 0; i + 16 <= n; i += 16) {
        __m512i x = _mm512_loadu_si512((const void *)(p + 4 * i)),
                y = _mm512_maskz_srli_epi64(0xff, x, 32);
        const uint32_t *row = k + i;
        a = _mm512_add_epi64(
            a, _mm512_maskz_mul_epu32(0xff, x, _mm512_loadu_si512((const void *)row)));
        b = _mm512_add_epi64(
            b, _mm512_maskz_mul_epu32(0xff, x,
                                      _mm512_loadu_si512((const void *)(row + CKR__DIGEST_ROW))));
        c = _mm512_add_epi64(
            c, _mm512_maskz_mul_epu32(
                   0xff, y, _mm512_loadu_si512((const void *)(row + 2 * CKR__DIGEST_ROW))));
        d = _mm512_add_epi64(
            d, _mm512_maskz_mul_epu32(
                   0xff, y, _mm512_loadu_si512((const void *)(row + 3 * CKR__DIGEST_ROW))));
    }
    a = _mm512_add_epi64(a, c);
    b = _mm512_add_epi64(b, d);
    a = _mm512_add_epi64(_mm512_maskz_unpacklo_epi64(0xff, a, b),
                         _mm512_maskz_unpackhi_epi64(0xff, a, b));
    _mm512_storeu_si512((void *)sum, a);
    _mm256_zeroupper();
    s[0] += sum[0] + sum[2] + sum[4] + sum[6];
    s[1] += sum[1] + sum[3] + sum[5] + sum[7];
    ckr__digest_scalar(k + i, p + 4 * i, n - i, s);
}
#endif

static void ckr__digest_words(unsigned cpu, const uint32_t *k, const uint8_t *p, size_t n,
                              uint64_t s[2])
{
#ifdef CKR__X64
    if (cpu & CKR__CPU_AVX512) ckr__digest_avx512(k, p, n, s);
    else if (cpu & CKR__CPU_AVX2) ckr__digest_avx2(k, p, n, s);
    else ckr__digest_sse2(k, p, n, s);
#else
    (void)cpu;
    ckr__digest_scalar(k, p, n, s);
#endif
}

/* The share of n bytes at p, which are the tensor's logical bytes from byte_offset on
   (little-endian: a big-endian host swaps elements first). acc starts as zeros; shares of different
   threads add up. */
static void ckr__digest_add(const ckr__digest_tables *t, uint64_t acc[2], uint64_t byte_offset,
                            const void *bytes,
                            size_t n)
{
    const uint8_t *p = (const uint8_t *)bytes;
    while (n) {
        uint64_t block = byte_offset / (4 * CKR__DIGEST_BLOCK), s[2] = { 0, 0 };
        size_t j = (size_t)(byte_offset / 4 % CKR__DIGEST_BLOCK), skip = (size_t)(byte_offset % 4),
            took;
        const uint32_t *k = t->room + t->skip + j;
        if (skip || n < 4) {           /* part of a word: its other bytes are someone else's */
            uint8_t word[4] = { 0, 0, 0, 0 };
            took = n < 4 - skip ? n : 4 - skip;
            memcpy(word + skip, p, took);
            ckr__digest_scalar(k, word, 1, s);
        } else {
            took = n / 4 < CKR__DIGEST_BLOCK - j ? n / 4 : CKR__DIGEST_BLOCK - j;
            ckr__digest_words(t->cpu, k, p, took, s);
            took *= 4;
        }
        acc[0] += s[0] * (ckr__mix(block ^ t->seed[0]) | 1);
        acc[1] += s[1] * (ckr__mix(block ^ t->seed[1]) | 1);
        p += took;
        n -= took;
        byte_offset += took;
    }
}

/* Bits of an element; the types of 4 and 6 bits are the ones whose ckr_dtype_size is 0. */
static uint64_t ckr__dtype_bits(ckr_dtype t)
{
    const char *tag = (unsigned)t < (unsigned)CKR_DTYPE_COUNT_ ? ckr__dtypes[t].tag : "";
    if (ckr_dtype_size(t)) return 8 * (uint64_t)ckr_dtype_size(t);
    return !strcmp(tag, "F4") ? 4 : tag[0] == 'F' && tag[1] == '6' ? 6 : 0;
}

static void ckr__digest_final(const uint64_t acc[2], ckr_dtype dtype, uint32_t n_dims,
                              const int64_t *shape,
                              uint8_t out[16])
{
    const char *name = ckr_dtype_name(dtype);
    uint64_t numel = 1, a, i, len = strlen(name);
    for (i = 0; i < n_dims; i++) numel *= (uint64_t)shape[i];
    for (a = 0; a < 2; a++) {
        uint64_t d = ckr__mix(acc[a] ^ ckr__mix(a + 1));
        d = ckr__mix(d ^ len);
        for (i = 0; i < len; i += 8) {
            uint8_t part[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
            memcpy(part, name + i, len - i < 8 ? (size_t)(len - i) : 8);
            d = ckr__mix(d ^ ckr__load_u64(part));
        }
        d = ckr__mix(d ^ n_dims);
        for (i = 0; i < n_dims; i++) d = ckr__mix(d ^ (uint64_t)shape[i]);
        ckr__store_u64(out + 8 * a, ckr__mix(d ^ (numel * ckr__dtype_bits(dtype) + 7) / 8));
    }
}

/* >>sha256 -------------------------------------------------------------------- */
/* FIPS 180-4. */

typedef struct ckr__sha256 {
    uint32_t h[8];
    uint64_t n;                /* bytes so far                                          */
    uint8_t  part[64];
    bool     fast;             /* the processor has SHA instructions                    */
} ckr__sha256;

static const uint32_t ckr__sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2
};

static uint32_t ckr__rotr(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

#define CKR__SHA_STEP(a, b, c, d, e, f, g, h, i)                                                  \
    h += (ckr__rotr(e, 6) ^ ckr__rotr(e, 11) ^ ckr__rotr(e, 25)) + (g ^ (e & (f ^ g))) +          \
         ckr__sha256_k[i] + w[i];                                                                 \
    d += h;                                                                                       \
    h += (ckr__rotr(a, 2) ^ ckr__rotr(a, 13) ^ ckr__rotr(a, 22)) + ((a & b) | (c & (a | b)))

static void ckr__sha256_blocks(uint32_t s[8], const uint8_t *p, size_t n)
{
    for (; n; n--, p += 64) {
        uint32_t w[64], a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6],
            h = s[7];
        unsigned i;
        for (i = 0; i < 16; i++)
            w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
                (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
        for (; i < 64; i++)
            w[i] = w[i - 16] + w[i - 7] +
                   (ckr__rotr(w[i - 15], 7) ^ ckr__rotr(w[i - 15], 18) ^ w[i - 15] >> 3) +
                   (ckr__rotr(w[i - 2], 17) ^ ckr__rotr(w[i - 2], 19) ^ w[i - 2] >> 10);
        for (i = 0; i < 64; i += 8) {
            CKR__SHA_STEP(a, b, c, d, e, f, g, h, i);
            CKR__SHA_STEP(h, a, b, c, d, e, f, g, i + 1);
            CKR__SHA_STEP(g, h, a, b, c, d, e, f, i + 2);
            CKR__SHA_STEP(f, g, h, a, b, c, d, e, i + 3);
            CKR__SHA_STEP(e, f, g, h, a, b, c, d, i + 4);
            CKR__SHA_STEP(d, e, f, g, h, a, b, c, i + 5);
            CKR__SHA_STEP(c, d, e, f, g, h, a, b, i + 6);
            CKR__SHA_STEP(b, c, d, e, f, g, h, a, i + 7);
        }
        s[0] += a; s[1] += b; s[2] += c; s[3] += d;
        s[4] += e; s[5] += f; s[6] += g; s[7] += h;
    }
}

#ifdef CKR__X64
/* Four rounds with the words in a; a becomes the words that are due in sixteen rounds. */
#define CKR__SHA_NI_STEP(i, a, b, c, d)                                                           \
    t = _mm_add_epi32(a, _mm_loadu_si128((const __m128i *)(const void *)(ckr__sha256_k + (i))));  \
    cdgh = _mm_sha256rnds2_epu32(cdgh, abef, t);                                                  \
    abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(t, 0x0e));                         \
    a = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(a, b), _mm_alignr_epi8(d, c, 4)), d)

CKR__TARGET("sha,sse4.1")
static void ckr__sha256_ni(uint32_t h[8], const uint8_t *p, size_t n)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    /* the instructions want a,b,e,f and c,d,g,h */
    __m128i t = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)h), 0xb1);
    __m128i cdgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(h + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(t, cdgh, 8);
    cdgh = _mm_blend_epi16(cdgh, t, 0xf0);
    for (; n; n--, p += 64) {
        const __m128i abef0 = abef, cdgh0 = cdgh, *in = (const __m128i *)(const void *)p;
        __m128i w0 = _mm_shuffle_epi8(_mm_loadu_si128(in), swap),
            w1 = _mm_shuffle_epi8(_mm_loadu_si128(in + 1), swap);
        __m128i w2 = _mm_shuffle_epi8(_mm_loadu_si128(in + 2), swap),
            w3 = _mm_shuffle_epi8(_mm_loadu_si128(in + 3), swap);
        unsigned i;
        for (i = 0; i < 64; i += 16) {
            CKR__SHA_NI_STEP(i, w0, w1, w2, w3);
            CKR__SHA_NI_STEP(i + 4, w1, w2, w3, w0);
            CKR__SHA_NI_STEP(i + 8, w2, w3, w0, w1);
            CKR__SHA_NI_STEP(i + 12, w3, w0, w1, w2);
        }
        abef = _mm_add_epi32(abef, abef0);
        cdgh = _mm_add_epi32(cdgh, cdgh0);
    }
    t = _mm_shuffle_epi32(abef, 0x1b);
    cdgh = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)(void *)h, _mm_blend_epi16(t, cdgh, 0xf0));
    _mm_storeu_si128((__m128i *)(void *)(h + 4), _mm_alignr_epi8(cdgh, t, 8));
}
#endif

static void ckr__sha256_run(ckr__sha256 *s, const uint8_t *p, size_t n)
{
#ifdef CKR__X64
    if (s->fast) {
        ckr__sha256_ni(s->h, p, n);
        return;
    }
#endif
    ckr__sha256_blocks(s->h, p, n);
}

static void ckr__sha256_init(ckr__sha256 *s)
{
    static const uint32_t h[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };
    memset(s, 0, sizeof *s);
    memcpy(s->h, h, sizeof h);
#ifdef CKR__X64
    s->fast = ckr__cpu_sha();
#endif
}

static void ckr__sha256_update(ckr__sha256 *s, const void *bytes, size_t n)
{
    const uint8_t *p = (const uint8_t *)bytes;
    size_t have = (size_t)(s->n & 63), take;
    if (!n) return;
    s->n += n;
    if (have) {
        take = n < 64 - have ? n : 64 - have;
        memcpy(s->part + have, p, take);
        p += take;
        n -= take;
        if (have + take == 64) ckr__sha256_run(s, s->part, 1);
    }
    if (n >= 64) ckr__sha256_run(s, p, n / 64);
    if (n % 64) memcpy(s->part, p + n / 64 * 64, n % 64);
}

static void ckr__sha256_final(ckr__sha256 *s, uint8_t out[32])
{
    uint64_t bits = s->n * 8;
    uint8_t pad[72];
    size_t i, n = 64 - (size_t)((s->n + 8) & 63);
    memset(pad, 0, sizeof pad);
    pad[0] = 0x80;
    for (i = 0; i < 8; i++) pad[n + i] = (uint8_t)(bits >> (56 - 8 * i));
    ckr__sha256_update(s, pad, n + 8);
    for (i = 0; i < 32; i++) out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

/* >>text ---------------------------------------------------------------------- */
/* What the text formats share: UTF-8, numbers that never depend on the locale, and
   dictionaries whose keys must be distinct. Integers never pass through a double: what does not
   fit 64 bits becomes a BIGINT (two's complement, little-endian, as pickle stores it).          */

#define CKR__MAX_DIGITS 4300   /* of an integer; Python's own limit for int(str)        */

/* Length of the UTF-8 sequence at p (RFC 3629: nothing overlong, no surrogate), 0: none. */
static size_t ckr__utf8_len(const uint8_t *p, const uint8_t *end)
{
    size_t left = (size_t)(end - p), n, i;
    if (left == 0) return 0;
    if (p[0] < 0x80) return 1;
    n = p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
    if (n == 0 || left < n) return 0;
    for (i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f)) return 0;
    return n;
}

/* The code point at p and its length. Lone surrogates (3 bytes, as Python's surrogatepass writes
   them) are returned as they are; a byte that belongs to nothing is U+FFFD.                     */
static uint32_t ckr__utf8_get(const uint8_t *p, const uint8_t *end, size_t *len)
{
    size_t n = ckr__utf8_len(p, end);
    if (n == 0 && end - p >= 3 && p[0] == 0xed && (p[1] & 0xe0) == 0xa0 && (p[2] & 0xc0) == 0x80)
        n = 3;
    *len = n ? n : 1;
    switch (n) {
    case 1:  return p[0];
    case 2:  return (uint32_t)(p[0] & 0x1f) << 6 | (p[1] & 0x3fu);
    case 3:  return (uint32_t)(p[0] & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3fu);
    case 4:  return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3f) << 12 |
                    (uint32_t)(p[2] & 0x3f) << 6 | (p[3] & 0x3fu);
    default: return 0xfffd;
    }
}

static size_t ckr__utf8_put(char *dst, uint32_t cp)
{
    uint8_t b[4];
    size_t n;
    if (cp < 0x80) {
        b[0] = (uint8_t)cp;
        n = 1;
    } else if (cp < 0x800) {
        b[0] = (uint8_t)(0xc0 | cp >> 6);
        b[1] = (uint8_t)(0x80 | (cp & 0x3f));
        n = 2;
    } else if (cp < 0x10000) {
        b[0] = (uint8_t)(0xe0 | cp >> 12);
        b[1] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
        b[2] = (uint8_t)(0x80 | (cp & 0x3f));
        n = 3;
    } else {
        b[0] = (uint8_t)(0xf0 | cp >> 18);
        b[1] = (uint8_t)(0x80 | (cp >> 12 & 0x3f));
        b[2] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
        b[3] = (uint8_t)(0x80 | (cp & 0x3f));
        n = 4;
    }
    memcpy(dst, b, n);
    return n;
}

/* n <= 8 hexadecimal digits; false when one is none. */
static bool ckr__hex_get(const uint8_t *p, const uint8_t *end, size_t n, uint32_t *out)
{
    uint32_t v = 0;
    size_t i;
    if ((size_t)(end - p) < n) return false;
    for (i = 0; i < n; i++) {
        unsigned ch = p[i];
        if (ch >= '0' && ch <= '9') ch -= '0';
        else if ((ch | 32u) >= 'a' && (ch | 32u) <= 'f') ch = (ch | 32u) - 'a' + 10;
        else return false;
        v = v << 4 | ch;
    }
    *out = v;
    return true;
}

/* The digits 0-9a-f of an integer in `base` (2..16), '_' skipped, as an INT or BIGINT node.
   The caller has checked the digits and that there are at most CKR__MAX_DIGITS.               */
static ckr_node *ckr__node_digits(ckr__ctx *c, const uint8_t *p, size_t n, uint32_t base, bool neg)
{
    uint32_t limb[CKR__MAX_DIGITS * 4 / 32 + 2];
    uint8_t bytes[sizeof limb];
    size_t n_limbs = 0, i, k, n_bytes;
    uint64_t carry;
    for (i = 0; i < n; i++) {
        uint32_t d;
        if (p[i] == '_') continue;
        d = p[i] <= '9' ? (uint32_t)(p[i] - '0') : (p[i] | 32u) - 'a' + 10;
        for (carry = d, k = 0; k < n_limbs; k++) {
            carry += (uint64_t)limb[k] * base;
            limb[k] = (uint32_t)carry;
            carry >>= 32;
        }
        if (carry) limb[n_limbs++] = (uint32_t)carry;
    }
    if (n_limbs <= 2) {
        uint64_t v = (n_limbs > 0 ? limb[0] : 0u) | (n_limbs > 1 ? (uint64_t)limb[1] << 32 : 0u);
        if (v <= (uint64_t)INT64_MAX) return ckr__node_int(c, neg ? -(int64_t)v : (int64_t)v);
        if (neg && v == (uint64_t)INT64_MAX + 1) return ckr__node_int(c, INT64_MIN);
    }
    limb[n_limbs++] = 0;
    for (carry = 1, k = 0; k < n_limbs; k++) {
        if (neg) {
            carry += (uint32_t)~limb[k];
            limb[k] = (uint32_t)carry;
            carry >>= 32;
        }
        ckr__store_u32(bytes + 4 * k, limb[k]);
    }
    for (n_bytes = 4 * n_limbs; n_bytes > 1; n_bytes--) {      /* as short as pickle writes it */
        unsigned top = bytes[n_bytes - 1], next = bytes[n_bytes - 2];
        if (!(top == 0 && next < 0x80) && !(top == 0xff && next >= 0x80)) break;
    }
    return ckr__node_text(c, CKR_NODE_BIGINT, (const char *)bytes, n_bytes);
}

/* BIGINT in decimal; false when it is longer than Python would print. */
static bool ckr__put_bigint(ckr__buf *b, const ckr_node *n)
{
    uint32_t limb[CKR__MAX_DIGITS * 4 / 32 + 2];
    char text[sizeof limb * 3];
    const uint8_t *p = (const uint8_t *)n->u.str;
    size_t n_limbs = (size_t)(n->count / 4 + 1), i, at = sizeof text;
    bool neg = n->count && p[n->count - 1] >= 0x80;
    uint64_t carry = 1;
    if (n->count > sizeof limb - 4) return false;
    for (i = 0; i < n_limbs; i++) {
        uint8_t w[4];
        size_t k;
        for (k = 0; k < 4; k++) w[k] = i * 4 + k < n->count ? p[i * 4 + k] : neg ? 0xff : 0;
        limb[i] = ckr__load_u32(w);
        if (neg) {
            carry += (uint32_t)~limb[i];
            limb[i] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    do {
        uint64_t rest = 0;
        int k;
        for (i = n_limbs; i > 0; i--) {
            rest = rest << 32 | limb[i - 1];
            limb[i - 1] = (uint32_t)(rest / 1000000000u);
            rest %= 1000000000u;
        }
        while (n_limbs > 1 && !limb[n_limbs - 1]) n_limbs--;
        for (k = 0; k < 9; k++, rest /= 10) text[--at] = (char)('0' + rest % 10);
    } while (n_limbs > 1 || limb[0]);
    while (at + 1 < sizeof text && text[at] == '0') at++;
    if (neg) text[--at] = '-';
    ckr__buf_put(b, text + at, sizeof text - at);
    return true;
}

/* strtod on n bytes [-+0-9.eE], whatever decimal point the program's locale has. */
static bool ckr__text_double(ckr__ctx *c, const uint8_t *p, size_t n, double *out)
{
    char small[128], point[16], *s = small;
    size_t i, k = 0, n_point, cap;
    snprintf(point, sizeof point, "%.1f", 0.5);              /* "0.5", "0,5" ... */
    n_point = strlen(point) - 2;
    if (n > SIZE_MAX / 32) return false;
    cap = n + n_point + 1;
    if (cap > sizeof small) {
        s = (char *)ckr__heap_alloc(c, cap);
        if (!s) return false;
    }
    for (i = 0; i < n; i++) {
        if (p[i] == '.') {
            memcpy(s + k, point + 1, n_point);
            k += n_point;
        } else {
            s[k++] = (char)p[i];
        }
    }
    s[k] = 0;
    *out = strtod(s, NULL);
    if (s != small) ckr__heap_free(c, s, cap);
    return true;
}

/* Adds one to the last digit of d.ddde+xx; false when that would carry out of the first. */
static bool ckr__digits_up(char *t)
{
    size_t i = strcspn(t, "e");
    for (; i > 0; i--) {
        if (t[i - 1] < '0' || t[i - 1] > '9') continue;
        if (t[i - 1] != '9') {
            t[i - 1]++;
            return true;
        }
        t[i - 1] = '0';
    }
    return false;
}

/* The shortest digits that read back as v (finite), as Python's repr chooses them: `digits` gets
   d[ddd...], the value is 0.ddd x 10^result.                                                    */
static int ckr__shortest(double v, char digits[20])
{
    char t[40];
    int prec, at = 0, exponent = 0;
    /* a normal double keeps any 15 digits, so that those without their zeros are the shortest */
    for (prec = v < 1e-290 ? 1 : 15; prec <= 17; prec++) {
        snprintf(t, sizeof t, "%.*e", prec - 1, v);
        if (strtod(t, NULL) == v) break;
        /* above a power of two the gap is twice as wide: the next decimal up may be inside it */
        if (prec == 16 && frexp(v, &exponent) <= 0.5 && ckr__digits_up(t) && strtod(t, NULL) == v)
            break;
    }
    for (prec = 0; t[prec] && t[prec] != 'e'; prec++)
        if (t[prec] >= '0' && t[prec] <= '9') digits[at++] = t[prec];
    exponent = (int)strtol(t + prec + 1, NULL, 10);
    while (at > 1 && digits[at - 1] == '0') at--;
    digits[at] = 0;
    return exponent + 1;
}

/* Python's repr of a float; `yaml` as PyYAML spells it (1.0e-05, .inf, .nan). */
static void ckr__put_double(ckr__buf *b, double v, bool yaml)
{
    char d[20];
    int n, e, i;
    if (v != v) {
        ckr__buf_str(b, yaml ? ".nan" : "NaN");
        return;
    }
    if (signbit(v)) ckr__buf_u8(b, '-');
    v = fabs(v);
    if (v > 1.7976931348623157e308) {
        ckr__buf_str(b, yaml ? ".inf" : "Infinity");
        return;
    }
    if (!(v > 0)) {
        ckr__buf_str(b, "0.0");
        return;
    }
    e = ckr__shortest(v, d);
    n = (int)strlen(d);
    if (e > 16 || e < -3) {                       /* repr: 1e+16 and up, below 1e-4 */
        ckr__buf_put(b, d, 1);
        if (n > 1 || yaml) ckr__buf_u8(b, '.');
        if (n > 1) ckr__buf_str(b, d + 1);
        else if (yaml) ckr__buf_u8(b, '0');
        ckr__buf_printf(b, "e%c%02d", e - 1 < 0 ? '-' : '+', e - 1 < 0 ? 1 - e : e - 1);
        return;
    }
    if (e <= 0) {
        ckr__buf_str(b, "0.");
        for (i = e; i < 0; i++) ckr__buf_u8(b, '0');
        ckr__buf_str(b, d);
        return;
    }
    for (i = 0; i < e || i < n; i++) {
        if (i == e) ckr__buf_u8(b, '.');
        ckr__buf_u8(b, i < n ? (unsigned char)d[i] : '0');
    }
    if (n <= e) ckr__buf_str(b, ".0");
}

/* An order of keys of any scalar kind: kind, then numbers by value, text by bytes (UTF-8: by code
   point). 0: the same key.                                                                      */
static int ckr__key_cmp(const ckr_node *a, const ckr_node *b)
{
    uint64_t n = a->count < b->count ? a->count : b->count;
    int r;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    if (a->kind == CKR_NODE_NONE) return 0;
    if (a->kind == CKR_NODE_BOOL) return (int)a->u.b - (int)b->u.b;
    if (a->kind == CKR_NODE_INT) return a->u.i < b->u.i ? -1 : a->u.i > b->u.i;
    if (a->kind == CKR_NODE_FLOAT) {
        if (a->u.f < b->u.f) return -1;
        return a->u.f > b->u.f ? 1 : memcmp(&a->u.f, &b->u.f, sizeof a->u.f);
    }
    if (a->kind > CKR_NODE_BYTEARRAY) return a == b ? 0 : a->id < b->id ? -1 : 1;
    r = n ? memcmp(a->u.str, b->u.str, (size_t)n) : 0;
    return r ? r : a->count < b->count ? -1 : a->count > b->count;
}

static int ckr__slot_cmp(const void *a, const void *b)
{
    return ckr__key_cmp(*(ckr_node *const *)a, *(ckr_node *const *)b);
}

static uint64_t ckr__key_hash(const ckr_node *k)
{
    bool text = k->kind >= CKR_NODE_STR && k->kind <= CKR_NODE_BYTEARRAY;
    if (text) return ckr__hash_bytes(k->u.str, (size_t)k->count);
    if (k->kind == CKR_NODE_FLOAT) return ckr__hash_bytes(&k->u.f, sizeof k->u.f);
    return (k->kind == CKR_NODE_INT ? (uint64_t)k->u.i : k->u.b) * 0x9e3779b97f4a7c15u >> 7;
}

/* The pairs of a dict as pointers to their key slots, in key order; *bytes is what to free. */
static void **ckr__dict_sorted(ckr__ctx *c, const ckr_node *dict, size_t *bytes)
{
    void **slots;
    size_t i, n = (size_t)dict->count;
    *bytes = n * sizeof *slots;
    slots = (void **)ckr__heap_alloc(c, *bytes);
    if (!slots) return NULL;
    for (i = 0; i < n; i++) slots[i] = (void *)&dict->u.items[2 * i];
    if (ckr__sort(c, slots, n, ckr__slot_cmp)) return slots;
    ckr__heap_free(c, slots, *bytes);
    return NULL;
}

/* Keys that were made to collide: by sorting. */
static ckr_result ckr__dict_duplicate_sorted(ckr__ctx *c, const ckr_node *dict,
                                             const ckr_node **dup)
{
    size_t bytes;
    uint64_t i;
    void **slots = ckr__dict_sorted(c, dict, &bytes);
    if (!slots) return CKR_E_NOMEM;
    for (i = 1; i < dict->count && !*dup; i++)
        if (!ckr__slot_cmp(slots[i - 1], slots[i])) *dup = *(ckr_node **)slots[i];
    ckr__heap_free(c, slots, bytes);
    return CKR_OK;
}

/* *dup is a key that the dict has twice, or NULL. A table of the hash's upper half and index + 1;
   when it is probed too often the keys are sorted instead, so that no input makes this quadratic.
   */
static ckr_result ckr__dict_duplicate(ckr__ctx *c, const ckr_node *dict, const ckr_node **dup)
{
    ckr_node **items = dict->u.items;
    uint64_t i, n = dict->count, budget = 16 * n, *table;
    size_t cap = 64, at;
    *dup = NULL;
    for (i = 1; i < n && n <= 8; i++)
        for (at = 0; at < i; at++)
            if (!ckr__key_cmp(items[2 * i], items[2 * at])) *dup = items[2 * i];
    if (n <= 8) return CKR_OK;
    if (n >= UINT32_MAX / 4) return ckr__dict_duplicate_sorted(c, dict, dup);
    while (cap < 2 * n) cap *= 2;
    table = (uint64_t *)ckr__heap_alloc(c, cap * sizeof *table);
    if (!table) return CKR_E_NOMEM;
    memset(table, 0, cap * sizeof *table);
    for (i = 0; i < n && !*dup && budget; i++) {
        uint64_t hash = ckr__key_hash(items[2 * i]), tag = hash >> 32 << 32;
        at = (size_t)hash & (cap - 1);
        for (; table[at] && budget; at = (at + 1) & (cap - 1), budget--) {
            uint64_t other = (uint32_t)table[at] - 1u;
            if ((table[at] ^ tag) >> 32 == 0 && !ckr__key_cmp(items[2 * i], items[2 * other]))
                *dup = items[2 * i];
        }
        table[at] = tag | (i + 1);
    }
    ckr__heap_free(c, table, cap * sizeof *table);
    return budget || *dup ? CKR_OK : ckr__dict_duplicate_sorted(c, dict, dup);
}

/* >>json ---------------------------------------------------------------------- */
/* RFC 8259, strictly: UTF-8 without a byte order mark, one value, no comment, no trailing comma, no
   leading zero, no lone surrogate, no key twice. Numbers without fraction and exponent are integers
   of any size. CKR__JSON_PYTHON also reads what Python's json writes: NaN, Infinity, -Infinity, and
   lone \ud800 escapes. Nesting is a list, not the C stack. */

enum { CKR__JSON_PYTHON = 1 };

typedef struct ckr__json_frame { ckr_node *node, *key; } ckr__json_frame;
typedef struct ckr__json {
    ckr__ctx      *c;
    const char    *path;
    const uint8_t *begin, *p, *end;
    uint64_t       base;       /* of `begin` in the file, for messages                  */
    unsigned       flags;
    uint32_t       max_depth;
    ckr__buf       stack;      /* ckr__json_frame                                       */
} ckr__json;

static ckr_result ckr__json_fail(ckr__json *j, ckr_item item, const uint8_t *at,
                                 const char *expected)
{
    uint64_t offset = j->base + (uint64_t)(at - j->begin);
    if (at >= j->end)
        return ckr__fail(j->c->err, item, j->path, offset, NULL,
                         "the text ends where %s was expected", expected);
    return ckr__fail(j->c->err, item, j->path, offset, NULL,
                     *at > 0x20 && *at < 0x7f ? "found '%c', expected %s"
                     : "found byte 0x%02x, expected %s",
                     *at, expected);
}

static void ckr__json_blank(ckr__json *j)
{
    const uint8_t *p = j->p;
    while (p < j->end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    j->p = p;
}

/* First byte that is a quote, a backslash, a control or not ASCII. Eight at a time: a byte of x is
   below n (n <= 128) when (x - n) borrows from its clear top bit. A borrow reaches only the bytes
   above the first hit, so that the lowest one is exact. */
static const uint8_t *ckr__json_plain(const uint8_t *p, const uint8_t *end)
{
    const uint64_t one = 0x0101010101010101u, top = 0x8080808080808080u;
    while (end - p >= 8) {
        uint64_t x, quote, slash, hit;
        memcpy(&x, p, 8);
        quote = x ^ one * '"';
        slash = x ^ one * '\\';
        hit = (x | (x - one * 0x20) | (quote - one) | (slash - one)) & top;
        if (hit) {
            if (ckr__host_big_endian()) break;
            for (; !(hit & 0x80); hit >>= 8) p++;
            return p;
        }
        p += 8;
    }
    while (p < end && *p >= 0x20 && *p < 0x80 && *p != '"' && *p != '\\') p++;
    return p;
}

/* \uXXXX at p (behind the backslash) with its partner; 0xffffffff: not one. */
static uint32_t ckr__json_escape_u(const ckr__json *j, const uint8_t **at)
{
    const uint8_t *p = *at + 1;
    uint32_t hi, lo;
    if (!ckr__hex_get(p, j->end, 4, &hi)) return UINT32_MAX;
    *at = p + 4;
    if (hi < 0xd800 || hi > 0xdfff) return hi;
    if (hi < 0xdc00 && j->end - p >= 6 && p[4] == '\\' && p[5] == 'u' &&
        ckr__hex_get(p + 6, j->end, 4, &lo) && lo >= 0xdc00 && lo <= 0xdfff) {
        *at = p + 10;
        return 0x10000 + ((hi & 0x3ff) << 10) + (lo & 0x3ff);
    }
    return j->flags & CKR__JSON_PYTHON ? hi : UINT32_MAX;
}

/* Decodes the string whose opening quote is at j->p into dst, which may be the text itself (a
   decoded string is never longer): j->p ends behind the closing quote, *len excludes the NUL.  */
static ckr_result ckr__json_string(ckr__json *j, char *dst, size_t *len)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const uint8_t *p = j->p + 1;
    char *d = dst;
    for (;;) {
        const uint8_t *q = ckr__json_plain(p, j->end);
        size_t n = (size_t)(q - p);
        if (d != (const char *)p) memmove(d, p, n);
        d += n;
        p = q;
        if (p >= j->end) return ckr__json_fail(j, CKR_ITEM_JSON_STRING, p, "the end of a string");
        if (*p == '"') break;
        if (*p == '\\') {
            const char *e = p + 1 < j->end && p[1] ? strchr(from, p[1]) : NULL;
            uint32_t cp;
            if (e) {
                *d++ = to[e - from];
                p += 2;
                continue;
            }
            q = p + 1;
            cp = q < j->end && *q == 'u' ? ckr__json_escape_u(j, &q) : UINT32_MAX;
            if (cp == UINT32_MAX)
                return ckr__json_fail(j, CKR_ITEM_JSON_STRING, p, "a valid escape");
            d += ckr__utf8_put(d, cp);
            p = q;
        } else {
            if (*p < 0x20)
                return ckr__json_fail(j, CKR_ITEM_JSON_STRING, p, "an escaped control character");
            n = ckr__utf8_len(p, j->end);
            if (!n) return ckr__json_fail(j, CKR_ITEM_JSON_UTF8, p, "UTF-8");
            memmove(d, p, n);
            d += n;
            p += n;
        }
    }
    *d = 0;
    *len = (size_t)(d - dst);
    j->p = p + 1;
    return CKR_OK;
}

/* The string at j->p as a node. */
static ckr_node *ckr__json_str(ckr__json *j)
{
    const uint8_t *p = j->p + 1;
    ckr_node *n;
    char *s;
    size_t len = 0;
    for (;;) {
        p = ckr__json_plain(p, j->end);
        if (p >= j->end || *p == '"') break;
        p += *p == '\\' && j->end - p >= 2 ? 2 : 1;
    }
    n = ckr__node(j->c, CKR_NODE_STR);
    s = n ? (char *)ckr__arena(j->c, (size_t)(p - j->p)) : NULL;
    if (!s || ckr__json_string(j, s, &len) != CKR_OK) return NULL;
    n->u.str = s;
    n->count = len;
    return n;
}

static const uint8_t *ckr__json_digits(const ckr__json *j, const uint8_t *p)
{
    while (p < j->end && *p >= '0' && *p <= '9') p++;
    return p;
}

static ckr_node *ckr__json_number(ckr__json *j)
{
    const uint8_t *first = j->p, *digits = first + (*first == '-'),
        *p = ckr__json_digits(j, digits), *q;
    bool integer = true;
    double v;
    if (p == digits || (*digits == '0' && p - digits > 1)) {
        ckr__json_fail(j, CKR_ITEM_JSON_NUMBER, p == digits ? p : digits + 1,
                       "a number without leading zero");
        return NULL;
    }
    if (p < j->end && *p == '.') {
        q = ckr__json_digits(j, p + 1);
        if (q == p + 1) { ckr__json_fail(j, CKR_ITEM_JSON_NUMBER, q, "a digit"); return NULL; }
        p = q;
        integer = false;
    }
    if (p < j->end && (*p == 'e' || *p == 'E')) {
        p += p + 1 < j->end && (p[1] == '+' || p[1] == '-') ? 2 : 1;
        q = ckr__json_digits(j, p);
        if (q == p) { ckr__json_fail(j, CKR_ITEM_JSON_NUMBER, q, "a digit"); return NULL; }
        p = q;
        integer = false;
    }
    j->p = p;
    if (integer) {
        if (p - digits > CKR__MAX_DIGITS) {
            ckr__json_fail(j, CKR_ITEM_JSON_NUMBER, digits, "an integer of at most 4300 digits");
            return NULL;
        }
        return ckr__node_digits(j->c, digits, (size_t)(p - digits), 10, *first == '-');
    }
    if (!ckr__text_double(j->c, first, (size_t)(p - first), &v)) return NULL;
    if (fabs(v) > 1.7976931348623157e308 && !(j->flags & CKR__JSON_PYTHON)) {
        ckr__json_fail(j, CKR_ITEM_JSON_NUMBER, first, "a number that a double can hold");
        return NULL;
    }
    return ckr__node_float(j->c, v);
}

static bool ckr__json_word(ckr__json *j, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(j->end - j->p) < n || memcmp(j->p, word, n) != 0) return false;
    j->p += n;
    return true;
}

static ckr_node *ckr__json_scalar(ckr__json *j)
{
    bool python = (j->flags & CKR__JSON_PYTHON) != 0;
    int ch = j->p < j->end ? *j->p : -1;
    if (ch == '"') return ckr__json_str(j);
    if (python && ckr__json_word(j, "NaN")) return ckr__node_float(j->c, (double)NAN);
    if (python && ckr__json_word(j, "Infinity")) return ckr__node_float(j->c, (double)INFINITY);
    if (python && ckr__json_word(j, "-Infinity")) return ckr__node_float(j->c, -(double)INFINITY);
    if (ch == '-' || (ch >= '0' && ch <= '9')) return ckr__json_number(j);
    if (ckr__json_word(j, "true")) return ckr__node_bool(j->c, true);
    if (ckr__json_word(j, "false")) return ckr__node_bool(j->c, false);
    if (ckr__json_word(j, "null")) return ckr__node(j->c, CKR_NODE_NONE);
    ckr__json_fail(j, CKR_ITEM_JSON_SYNTAX, j->p, "a value");
    return NULL;
}

static ckr__json_frame *ckr__json_top(const ckr__json *j)
{
    if (!j->stack.size) return NULL;
    return (ckr__json_frame *)(void *)(j->stack.data + j->stack.size - sizeof(ckr__json_frame));
}

/* Key and colon of the pair that begins here. */
static ckr_result ckr__json_key(ckr__json *j)
{
    ckr_node *key;
    ckr__json_blank(j);
    if (j->p >= j->end || *j->p != '"')
        return ckr__json_fail(j, CKR_ITEM_JSON_SYNTAX, j->p, "a key in quotes");
    key = ckr__json_str(j);
    if (!key) return j->c->err->code;
    ckr__json_top(j)->key = key;
    ckr__json_blank(j);
    if (j->p >= j->end || *j->p != ':') return ckr__json_fail(j, CKR_ITEM_JSON_SYNTAX, j->p, "':'");
    j->p++;
    return CKR_OK;
}

/* A value, or the opening of a container: *out is NULL when its first item comes next. */
static ckr_result ckr__json_begin(ckr__json *j, ckr_node **out)
{
    ckr__json_frame f;
    bool dict;
    ckr__json_blank(j);
    if (j->p >= j->end || (*j->p != '{' && *j->p != '[')) {
        *out = ckr__json_scalar(j);
        return *out ? CKR_OK : j->c->err->code;
    }
    dict = *j->p++ == '{';
    if (j->stack.size / sizeof f >= j->max_depth)
        return ckr__fail(j->c->err, CKR_ITEM_JSON_DEPTH, j->path,
                         j->base + (uint64_t)(j->p - j->begin), NULL,
                         "nested deeper than %u levels", (unsigned)j->max_depth);
    f.node = ckr__node(j->c, dict ? CKR_NODE_DICT : CKR_NODE_LIST);
    f.key = NULL;
    if (!f.node) return j->c->err->code;
    ckr__json_blank(j);
    if (j->p < j->end && *j->p == (dict ? '}' : ']')) {
        j->p++;
        *out = f.node;
        return CKR_OK;
    }
    ckr__buf_put(&j->stack, &f, sizeof f);
    if (j->stack.failed) return CKR_E_NOMEM;
    *out = NULL;
    return dict ? ckr__json_key(j) : CKR_OK;
}

/* Gives `*value` to the containers that end behind it: *value is NULL when another item follows,
   else the finished outermost value. */
static ckr_result ckr__json_end(ckr__json *j, ckr_node **value)
{
    ckr__json_frame *f;
    while ((f = ckr__json_top(j)) != NULL) {
        bool dict = f->node->kind == CKR_NODE_DICT;
        const ckr_node *dup = NULL;
        ckr_result r;
        if (dict ? !ckr__node_pair(j->c, f->node, f->key, *value)
            : !ckr__node_push(j->c, f->node, *value))
            return j->c->err->code;
        ckr__json_blank(j);
        if (j->p < j->end && *j->p == ',') {
            j->p++;
            *value = NULL;
            return dict ? ckr__json_key(j) : CKR_OK;
        }
        if (j->p >= j->end || *j->p != (dict ? '}' : ']'))
            return ckr__json_fail(j, CKR_ITEM_JSON_SYNTAX, j->p,
                                  dict ? "',' or '}'" : "',' or ']'");
        r = dict ? ckr__dict_duplicate(j->c, f->node, &dup) : CKR_OK;
        if (r != CKR_OK) return r;
        if (dup)
            return ckr__fail(j->c->err, CKR_ITEM_JSON_DUPLICATE, j->path,
                             j->base + (uint64_t)(j->p - j->begin),
                             dup->u.str, "the object that ends here has the key \"%.100s\" twice",
                             dup->u.str);
        j->p++;
        *value = f->node;
        j->stack.size -= sizeof *f;
    }
    return CKR_OK;
}

static void ckr__json_init(ckr__json *j, ckr__ctx *c, const char *path, uint64_t base_offset,
                           const void *bytes, size_t n, unsigned flags)
{
    memset(j, 0, sizeof *j);
    j->c = j->stack.c = c;
    j->path = path;
    j->begin = j->p = (const uint8_t *)bytes;
    j->end = j->begin + n;
    j->base = base_offset;
    j->flags = flags;
    j->max_depth = c->limits.max_depth;
}

/* The value at j->p, which ends behind it. */
static ckr_result ckr__json_value(ckr__json *j, ckr_node **value)
{
    ckr_result r;
    do {
        r = ckr__json_begin(j, value);
        if (r == CKR_OK && *value) r = ckr__json_end(j, value);
    } while (r == CKR_OK && !*value);
    ckr__buf_free(&j->stack);
    return r;
}

/* `base_offset` is where the text begins in its file. */
static ckr_result ckr__json_parse(ckr__ctx *c, const char *path, uint64_t base_offset,
                                  const void *bytes,
                                  size_t n, unsigned flags, ckr_node **root)
{
    ckr__json j;
    ckr_node *value = NULL;
    ckr_result r;
    ckr__json_init(&j, c, path, base_offset, bytes, n, flags);
    r = ckr__json_value(&j, &value);
    if (r != CKR_OK) return r;
    ckr__json_blank(&j);
    if (j.p < j.end) return ckr__json_fail(&j, CKR_ITEM_JSON_TRAILING, j.p, "the end of the text");
    *root = value;
    return CKR_OK;
}

/* A file that holds one JSON value, with what Python's json writes accepted. */
static ckr_result ckr__json_load(ckr__ctx *c, const char *path, ckr_node **root)
{
    const uint8_t *p = NULL;
    uint64_t n = 0;
    ckr_result r = ckr__path_load(c, path, c->limits.max_json_bytes, &p, &n, NULL);
    return r == CKR_OK ? ckr__json_parse(c, path, 0, p, (size_t)n, CKR__JSON_PYTHON, root) : r;
}

/* >>json.put ------------------------------------------------------------------ */
/* Writes as Python's json.dump does: indent 0 gives {"a": 1, "b": [2]}, a larger one a line for
   each item; text in ASCII with \u escapes, floats as repr writes them. */

static void ckr__json_put_str(ckr__buf *b, const char *s, uint64_t n)
{
    const uint8_t *p = (const uint8_t *)s, *end = p + n, *q;
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    ckr__buf_u8(b, '"');
    while (p < end) {
        const char *e;
        uint32_t cp;
        size_t len;
        q = ckr__json_plain(p, end);
        e = (const char *)memchr(p, 0x7f, (size_t)(q - p));       /* Python escapes it too */
        if (e) q = (const uint8_t *)e;
        ckr__buf_put(b, p, (size_t)(q - p));
        p = q;
        if (p >= end) break;
        e = *p ? strchr(from, *p) : NULL;
        cp = ckr__utf8_get(p, end, &len);
        p += len;
        if (e) {
            ckr__buf_u8(b, '\\');
            ckr__buf_u8(b, (unsigned char)to[e - from]);
        } else if (cp >= 0x10000) {
            ckr__buf_printf(b, "\\u%04x\\u%04x", 0xd800u + (unsigned)((cp - 0x10000) >> 10),
                            0xdc00u + (unsigned)(cp & 0x3ff));
        } else {
            ckr__buf_printf(b, "\\u%04x", (unsigned)cp);
        }
    }
    ckr__buf_u8(b, '"');
}

/* False: JSON has no such value. A key is its value in quotes, as Python spells it. */
static bool ckr__json_put_scalar(ckr__buf *b, const ckr_node *n, bool key)
{
    if (n->kind == CKR_NODE_STR) {
        ckr__json_put_str(b, n->u.str, n->count);
        return true;
    }
    if (n->kind > CKR_NODE_FLOAT) return false;
    if (key) ckr__buf_u8(b, '"');
    if (n->kind == CKR_NODE_NONE) ckr__buf_str(b, "null");
    else if (n->kind == CKR_NODE_BOOL) ckr__buf_str(b, n->u.b ? "true" : "false");
    else if (n->kind == CKR_NODE_INT) ckr__buf_printf(b, "%lld", (long long)n->u.i);
    else if (n->kind == CKR_NODE_FLOAT) ckr__put_double(b, n->u.f, false);
    else if (!ckr__put_bigint(b, n)) return false;
    if (key) ckr__buf_u8(b, '"');
    return true;
}

static void ckr__put_line(ckr__buf *b, size_t spaces)
{
    static const char blank[] = "                                ";
    ckr__buf_u8(b, '\n');
    for (; spaces; spaces -= spaces < 32 ? spaces : 32)
        ckr__buf_put(b, blank, spaces < 32 ? spaces : 32);
}

/* A container being written, for JSON and YAML: `slots` are its pairs in key order, or NULL. */
typedef struct ckr__put_frame {
    const ckr_node *node;
    uint64_t        next;
    void          **slots;
    size_t          slots_bytes;
    size_t          indent;
} ckr__put_frame;

static ckr__put_frame *ckr__put_top(const ckr__buf *stack)
{
    if (!stack->size) return NULL;
    return (ckr__put_frame *)(void *)(stack->data + stack->size - sizeof(ckr__put_frame));
}

static bool ckr__put_is_list(const ckr_node *n)
{
    return n->kind == CKR_NODE_LIST || n->kind == CKR_NODE_TUPLE || n->kind == CKR_NODE_SIZE;
}

/* max_depth bounds a cyclic tree too. */
static ckr_result ckr__put_push(ckr__buf *stack, const ckr_node *n, bool sort_keys, size_t indent)
{
    ckr__ctx *c = stack->c;
    ckr__put_frame f;
    memset(&f, 0, sizeof f);
    f.node = n;
    f.indent = indent;
    if (stack->size / sizeof f >= c->limits.max_depth)
        return ckr__fail(c->err, CKR_ITEM_JSON_DEPTH, NULL, CKR_NO_OFFSET, NULL,
                         "a tree nested deeper than max_depth (%u) cannot be written",
                         (unsigned)c->limits.max_depth);
    if (sort_keys && ckr_node_is_dict(n)) {
        f.slots = ckr__dict_sorted(c, n, &f.slots_bytes);
        if (!f.slots) return CKR_E_NOMEM;
    }
    ckr__buf_put(stack, &f, sizeof f);
    if (!stack->failed) return CKR_OK;
    ckr__heap_free(c, f.slots, f.slots_bytes);
    return CKR_E_NOMEM;
}

static void ckr__put_pop(ckr__buf *stack)
{
    ckr__put_frame *f = ckr__put_top(stack);
    ckr__heap_free(stack->c, f->slots, f->slots_bytes);
    stack->size -= sizeof *f;
}

static ckr_result ckr__put_refuse(ckr__ctx *c, const char *format, const ckr_node *n)
{
    return ckr__fail(c->err, CKR_ITEM_JSON_PUT, NULL, CKR_NO_OFFSET, NULL,
                     "%s cannot hold a node of kind %d", format, (int)n->kind);
}

/* The next item of the container on top: its key, if any, is written and its value returned. */
static const ckr_node *ckr__json_put_next(ckr__buf *b, ckr__put_frame *f, int indent, size_t depth)
{
    uint64_t i = f->next++;
    ckr_node *const *slot;
    if (i) ckr__buf_str(b, indent ? "," : ", ");
    if (indent) ckr__put_line(b, depth * (size_t)indent);
    if (ckr__put_is_list(f->node)) return f->node->u.items[i];
    slot = f->slots ? (ckr_node *const *)f->slots[i] : &f->node->u.items[2 * i];
    if (!ckr__json_put_scalar(b, slot[0], true)) {
        ckr__put_refuse(b->c, "a JSON key", slot[0]);
        return NULL;
    }
    ckr__buf_str(b, ": ");
    return slot[1];
}

static ckr_result ckr__json_put(ckr__buf *b, const ckr_node *n, int indent, bool sort_keys)
{
    ckr__buf stack;
    ckr_result r = CKR_OK;
    memset(&stack, 0, sizeof stack);
    stack.c = b->c;
    while (n && r == CKR_OK) {
        bool list = ckr__put_is_list(n), dict = ckr_node_is_dict(n);
        if ((list || dict) && n->count) {
            ckr__buf_u8(b, list ? '[' : '{');
            r = ckr__put_push(&stack, n, sort_keys, 0);
        } else if (list || dict) {
            ckr__buf_str(b, list ? "[]" : "{}");
        } else if (!ckr__json_put_scalar(b, n, false)) {
            r = ckr__put_refuse(b->c, "JSON", n);
        }
        for (n = NULL; r == CKR_OK && !n && stack.size;) {
            ckr__put_frame *f = ckr__put_top(&stack);
            size_t depth = stack.size / sizeof *f;
            if (f->next < f->node->count) {
                n = ckr__json_put_next(b, f, indent, depth);
                if (!n) r = CKR_E_UNSUPPORTED;
                continue;
            }
            if (indent) ckr__put_line(b, (depth - 1) * (size_t)indent);
            ckr__buf_u8(b, ckr__put_is_list(f->node) ? ']' : '}');
            ckr__put_pop(&stack);
        }
    }
    while (stack.size) ckr__put_pop(&stack);
    ckr__buf_free(&stack);
    return r != CKR_OK ? r : b->failed ? CKR_E_NOMEM : CKR_OK;
}

/* >>yaml ---------------------------------------------------------------------- */
/* What PyYAML's dump and people's configuration files use of YAML 1.1: one document of block and
   flow mappings and sequences, plain, quoted and block scalars, comments, anchors and aliases (an
   alias is the same node), the tags !!str, !!int, !!float, !!bool, !!null, !!map and !!seq. Plain
   scalars have the type that PyYAML's resolver gives them: 1.0e-05 is a float, 1e-5 a string, yes a
   bool, 0o7 a string, 12:30:45 an integer. A timestamp stays a STR with CKR__YAML_TIMESTAMP in its
   flags. Other tags, merge keys, directives, several documents and tabs as indentation are refused.
   A value begins at p. Containers that are open are frames: a block one owns a column, and ends at
   a token left of it; a sequence may stand in the column of the key that it belongs to. */

enum { CKR__YAML_TIMESTAMP = 1 };       /* ckr_node.flags of a STR                       */

typedef enum ckr__yaml_kind { CKR__YAML_MAP, CKR__YAML_SEQ, CKR__YAML_FLOW_MAP,
                             CKR__YAML_FLOW_SEQ } ckr__yaml_kind;

typedef struct ckr__yaml_props { const char *anchor, *tag; size_t anchor_len,
                                tag_len; } ckr__yaml_props;

typedef struct ckr__yaml_frame {
    ckr_node       *node, *key;
    ckr__yaml_kind  kind;
    size_t          indent;
    ckr__yaml_props props;
} ckr__yaml_frame;

typedef struct ckr__yaml {
    ckr__ctx      *c;
    const char    *path;
    const uint8_t *begin, *p, *end, *line;       /* line: where the current one begins   */
    bool           fresh;      /* only blanks between line and p                         */
    bool compact; /* behind "- ", "? " or ": " of a complex key: a block may begin here */
    ckr__buf       stack;      /* ckr__yaml_frame                                        */
    ckr__buf       text;       /* the scalar in hand                                     */
    ckr__map       anchors;    /* name -> index in `nodes`                               */
    ckr_node     **nodes;
    uint64_t       n_nodes, cap_nodes;
} ckr__yaml;

static ckr_result ckr__yaml_fail(ckr__yaml *y, ckr_item item, const uint8_t *at, const char *what)
{
    const uint8_t *q;
    uint64_t line = 1;
    char where[32];
    for (q = y->begin; q < at; q++) line += *q == '\n';
    snprintf(where, sizeof where, "line %llu", (unsigned long long)line);
    return ckr__fail(y->c->err, item, y->path, (uint64_t)(at - y->begin), where, "%s: %s", where,
                     what);
}

static ckr__yaml_frame *ckr__yaml_top(const ckr__yaml *y)
{
    if (!y->stack.size) return NULL;
    return (ckr__yaml_frame *)(void *)(y->stack.data + y->stack.size - sizeof(ckr__yaml_frame));
}

static int ckr__yaml_at(const ckr__yaml *y, size_t i)
{
    return (size_t)(y->end - y->p) > i ? y->p[i] : -1;
}

static bool ckr__yaml_is_blank(int ch)         /* or the end */
{
    return ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r' || ch < 0;
}

static bool ckr__yaml_is_break(int ch)
{
    return ch == '\n' || ch == '\r';
}

static bool ckr__yaml_is_flow(int ch)
{
    return ch == ',' || ch == '[' || ch == ']' || ch == '{' || ch == '}';
}

static size_t ckr__yaml_column(const ckr__yaml *y)
{
    return (size_t)(y->p - y->line);
}

static void ckr__yaml_break(ckr__yaml *y)      /* \n, \r or \r\n */
{
    y->p += y->p[0] == '\r' && ckr__yaml_at(y, 1) == '\n' ? 2 : 1;
    y->line = y->p;
    y->fresh = true;
}

/* --- or ... at the beginning of a line */
static bool ckr__yaml_marker(const ckr__yaml *y, char ch)
{
    return y->p == y->line && y->end - y->p >= 3 && y->p[0] == (uint8_t)ch &&
        y->p[1] == (uint8_t)ch &&
           y->p[2] == (uint8_t)ch && ckr__yaml_is_blank(ckr__yaml_at(y, 3));
}

/* No further token in this document. */
static bool ckr__yaml_over(const ckr__yaml *y)
{
    return y->p >= y->end || ckr__yaml_marker(y, '-') || ckr__yaml_marker(y, '.');
}

/* Over blanks, comments and line ends to the next token. */
static void ckr__yaml_next(ckr__yaml *y)
{
    for (;;) {
        while (ckr__yaml_at(y, 0) == ' ') y->p++;
        if (ckr__yaml_at(y, 0) == '#')
            while (y->p < y->end && !ckr__yaml_is_break(*y->p)) y->p++;
        if (!ckr__yaml_is_break(ckr__yaml_at(y, 0))) return;
        ckr__yaml_break(y);
        y->compact = false;
    }
}

/* >>yaml.scalar --------------------------------------------------------------- */
/* The types of plain scalars: PyYAML 6 resolver.py, expression by expression.      */

typedef enum ckr__yaml_type {
    CKR__YAML_STR, CKR__YAML_NULL, CKR__YAML_BOOL, CKR__YAML_INT, CKR__YAML_FLOAT, CKR__YAML_TIME,
        CKR__YAML_SPECIAL
} ckr__yaml_type;

static bool ckr__yaml_word(const char *s, size_t n, const char *words)
{
    while (*words) {
        size_t k = strcspn(words, " ");
        if (k == n && !memcmp(words, s, n)) return true;
        words += k + (words[k] == ' ');
    }
    return false;
}

static size_t ckr__yaml_span(const char *s, const char *set)
{
    return strspn(s, set);
}

/* (:[0-5]?[0-9])+ ; the length, 0: none */
static size_t ckr__yaml_sixty(const char *s)
{
    size_t n = 0;
    while (s[n] == ':' && s[n + 1] >= '0' && s[n + 1] <= '9')
        n += s[n + 1] <= '5' && s[n + 2] >= '0' && s[n + 2] <= '9' ? 3 : 2;
    return n;
}

static size_t ckr__yaml_digits(const char *s, size_t min, size_t max)
{
    size_t n = 0;
    while (n < max && s[n] >= '0' && s[n] <= '9') n++;
    return n >= min ? n : 0;
}

static bool ckr__yaml_is_int(const char *s)
{
    static const char digits[] = "0123456789_";
    size_t n;
    s += *s == '-' || *s == '+';
    if (*s == '0') {
        if (!s[1]) return true;
        if (s[1] == 'b') return s[2] && !s[2 + ckr__yaml_span(s + 2, "01_")];
        if (s[1] == 'x') return s[2] && !s[2 + ckr__yaml_span(s + 2, "0123456789abcdefABCDEF_")];
        return !s[1 + ckr__yaml_span(s + 1, "01234567_")];
    }
    if (*s < '1' || *s > '9') return false;
    n = ckr__yaml_span(s, digits);
    return !s[n] || (ckr__yaml_sixty(s + n) && !s[n + ckr__yaml_sixty(s + n)]);
}

static bool ckr__yaml_is_float(const char *s, size_t len)
{
    static const char digits[] = "0123456789_";
    bool sign = *s == '-' || *s == '+';
    size_t n;
    if (ckr__yaml_word(s + sign, len - sign, ".inf .Inf .INF")) return true;
    if (ckr__yaml_word(s, len, ".nan .NaN .NAN")) return true;
    s += sign;
    if (*s >= '0' && *s <= '9') {
        s += ckr__yaml_span(s, digits);
        n = ckr__yaml_sixty(s);
        if (s[n] != '.') return false;
        s += n + 1;
        s += ckr__yaml_span(s, digits);
        if (n) return !*s;
    } else {
        if (sign || *s != '.' || s[1] < '0' || s[1] > '9') return false;
        s += 1 + ckr__yaml_span(s + 1, digits);
    }
    if ((*s == 'e' || *s == 'E') && (s[1] == '-' || s[1] == '+') && s[2] >= '0' && s[2] <= '9')
        s += 2 + ckr__yaml_span(s + 2, "0123456789");
    return !*s;
}

/* 2001-12-14, 2001-12-14t21:59:43.10-05:00, 2001-12-14 21:59:43.10 -5 */
static bool ckr__yaml_is_time(const char *s)
{
    size_t y = ckr__yaml_digits(s, 4, 4), m, d, h;
    if (!y || s[4] != '-') return false;
    s += 5;
    m = ckr__yaml_digits(s, 1, 2);
    if (!m || s[m] != '-') return false;
    s += m + 1;
    d = ckr__yaml_digits(s, 1, 2);
    s += d;
    if (!*s) return m == 2 && d == 2;
    if (!d || !(*s == 'T' || *s == 't' || *s == ' ' || *s == '\t')) return false;
    s += *s == 'T' || *s == 't' ? 1 : ckr__yaml_span(s, " \t");
    h = ckr__yaml_digits(s, 1, 2);
    if (!h || s[h] != ':' || !ckr__yaml_digits(s + h + 1, 2, 2) || s[h + 3] != ':' ||
        !ckr__yaml_digits(s + h + 4, 2, 2)) return false;
    s += h + 6;
    if (*s == '.') s += 1 + ckr__yaml_span(s + 1, "0123456789");
    if (!*s) return true;
    s += ckr__yaml_span(s, " \t");
    if (*s == 'Z') return !s[1];
    if (*s != '-' && *s != '+') return false;
    h = ckr__yaml_digits(s + 1, 1, 2);
    s += 1 + h;
    if (h && *s == ':' && ckr__yaml_digits(s + 1, 2, 2)) s += 3;
    return h && !*s;
}

/* s[n] is 0. */
static ckr__yaml_type ckr__yaml_resolve(const char *s, size_t n)
{
    if (memchr(s, 0, n)) return CKR__YAML_STR;
    if (ckr__yaml_word(
            s, n, "yes Yes YES no No NO true True TRUE false False FALSE on On ON off Off OFF"))
        return CKR__YAML_BOOL;
    if (n == 0 || ckr__yaml_word(s, n, "~ null Null NULL")) return CKR__YAML_NULL;
    if (ckr__yaml_word(s, n, "<< =")) return CKR__YAML_SPECIAL;
    if (!strchr("-+.0123456789", *s)) return CKR__YAML_STR;
    if (ckr__yaml_is_float(s, n)) return CKR__YAML_FLOAT;
    if (ckr__yaml_is_int(s)) return CKR__YAML_INT;
    return ckr__yaml_is_time(s) ? CKR__YAML_TIME : CKR__YAML_STR;
}

/* The scalar in hand, which ckr__yaml_is_int accepts. */
static ckr_node *ckr__yaml_int(ckr__yaml *y, const uint8_t *at)
{
    const char *s = (const char *)y->text.data;
    size_t n = y->text.size, i, digits = 0;
    bool neg = *s == '-';
    uint32_t base = 10;
    uint64_t v = 0, part = 0;
    if (*s == '-' || *s == '+') s++, n--;
    if (memchr(s, ':', n)) {
        for (i = 0; i <= n; i++) {
            if (i < n && s[i] == '_') continue;
            if (i < n && s[i] != ':') {
                part = part * 10 + (uint64_t)(s[i] - '0');
                if (part > INT64_MAX / 64) break;
                continue;
            }
            if (v > INT64_MAX / 64) break;
            v = v * 60 + part;
            part = 0;
        }
        if (i > n && v <= (uint64_t)INT64_MAX)
            return ckr__node_int(y->c, neg ? -(int64_t)v : (int64_t)v);
        ckr__yaml_fail(y, CKR_ITEM_YAML_SCALAR, at, "a base 60 integer beyond 64 bits");
        return NULL;
    }
    if (n > 1 && *s == '0') {
        base = s[1] == 'b' ? 2 : s[1] == 'x' ? 16 : 8;
        s += base == 8 ? 1 : 2;
        n -= base == 8 ? 1 : 2;
    }
    for (i = 0; i < n; i++) digits += s[i] != '_';
    if ((digits == 0 && base != 8) || digits > (base == 10 ? CKR__MAX_DIGITS
                                                : CKR__MAX_DIGITS / 2)) {
        ckr__yaml_fail(y, CKR_ITEM_YAML_SCALAR, at, digits ? "an integer of more than 4300 digits"
                       : "an integer without digits");
        return NULL;
    }
    return ckr__node_digits(y->c, (const uint8_t *)s, n, base, neg);
}

/* The scalar in hand, which ckr__yaml_is_float accepts. */
static ckr_node *ckr__yaml_float(ckr__yaml *y)
{
    char *s = (char *)y->text.data;
    size_t n = y->text.size, i, k = 0, end;
    double sign = *s == '-' ? -1 : 1, v = 0, base = 1, part;
    if (*s == '-' || *s == '+') s++, n--;
    if (*s == '.' && (s[1] == 'i' || s[1] == 'I'))
        return ckr__node_float(y->c, sign * (double)INFINITY);
    if (*s == '.' && (s[1] == 'n' || s[1] == 'N')) return ckr__node_float(y->c, (double)NAN);
    for (i = 0; i < n; i++)
        if (s[i] != '_') s[k++] = s[i];
    for (end = k; ; end = i - 1) {         /* base 60 from the right, as PyYAML adds it up */
        for (i = end; i > 0 && s[i - 1] != ':'; i--) {}
        if (!ckr__text_double(y->c, (const uint8_t *)s + i, end - i, &part)) return NULL;
        v = base > 1 ? v + part * base : part;
        base *= 60;
        if (i == 0) break;
    }
    return ckr__node_float(y->c, sign * v);
}

/* The node of the scalar in hand. A tag may ask for a string; another must agree with the text. */
static ckr_node *ckr__yaml_scalar(ckr__yaml *y, bool plain, const ckr__yaml_props *props,
                                  const uint8_t *at)
{
    static const struct { const char *tag; ckr__yaml_type type; } tags[] = {
        { "!!null", CKR__YAML_NULL }, { "!!bool", CKR__YAML_BOOL }, { "!!int", CKR__YAML_INT },
            { "!!float", CKR__YAML_FLOAT }
    };
    ckr__yaml_type type = CKR__YAML_STR;
    ckr_node *n;
    const char *s;
    size_t i, k = y->text.size;
    ckr__buf_u8(&y->text, 0);
    if (y->text.failed) return NULL;
    y->text.size = k;
    s = (const char *)y->text.data;
    if (plain && !props->tag) type = ckr__yaml_resolve(s, k);
    if (props->tag && !ckr__yaml_word(props->tag, props->tag_len, "! !!str")) {
        for (i = 0; i < 4; i++)
            if (ckr__yaml_word(props->tag, props->tag_len, tags[i].tag)) break;
        type = ckr__yaml_resolve(s, k);
        if (i == 4 || type != tags[i].type) {
            ckr__yaml_fail(y, CKR_ITEM_YAML_TAG, at,
                           i == 4 ? "a tag that would build an object; expected plain data"
                                  : "the text is not of the type that its tag says");
            return NULL;
        }
    }
    switch (type) {
    case CKR__YAML_NULL: return ckr__node(y->c, CKR_NODE_NONE);
    case CKR__YAML_BOOL:
        return ckr__node_bool(y->c, ckr__yaml_word(s, k, "yes Yes YES true True TRUE on On ON"));
    case CKR__YAML_INT:  return ckr__yaml_int(y, at);
    case CKR__YAML_FLOAT: return ckr__yaml_float(y);
    case CKR__YAML_SPECIAL:
        ckr__yaml_fail(y, CKR_ITEM_YAML_UNSUPPORTED, at, "a merge key << or a default key =");
        return NULL;
    case CKR__YAML_STR:
    case CKR__YAML_TIME: break;
    }
    n = ckr__node_text(y->c, CKR_NODE_STR, s, k);
    if (n && type == CKR__YAML_TIME) n->flags = CKR__YAML_TIMESTAMP;
    return n;
}

/* >>yaml.read ----------------------------------------------------------------- */

/* Blanks and line ends inside a quoted or plain scalar: none, or what the folding leaves of them.
   Stands at the next visible byte, and at a marker when a document ends in between. */
static void ckr__yaml_fold(ckr__yaml *y, bool tabs)
{
    size_t breaks = 0;
    while (y->p < y->end && !(breaks && ckr__yaml_over(y))) {
        if (*y->p == ' ' || (tabs && *y->p == '\t')) y->p++;
        else if (!ckr__yaml_is_break(*y->p)) break;
        else ckr__yaml_break(y), breaks++;
    }
    if (breaks == 1) ckr__buf_u8(&y->text, ' ');
    for (; breaks > 1; breaks--) ckr__buf_u8(&y->text, '\n');
}

/* What one line has of a plain scalar: up to ": ", " #", the line's end, and in flow , [ ] { } ?.
   */
static void ckr__yaml_plain_line(ckr__yaml *y, bool flow)
{
    const uint8_t *first = y->p, *last = y->p;
    for (; y->p < y->end; y->p++) {
        int ch = *y->p, next = ckr__yaml_at(y, 1);
        if (ckr__yaml_is_break(ch) || ch == '\t') break;
        if (ch == ' ') continue;
        if (ch == ':' && (ckr__yaml_is_blank(next) || (flow && ckr__yaml_is_flow(next)))) break;
        if (flow && (ckr__yaml_is_flow(ch) || ch == '?')) break;
        if (ch == '#' && (y->p == first || y->p[-1] == ' ')) break;
        last = y->p + 1;
    }
    ckr__buf_put(&y->text, first, (size_t)(last - first));
    y->p = last;
    if (last > first) y->fresh = false;
}

/* The following lines of a plain scalar, which are at least `indent` deep. */
static void ckr__yaml_plain_more(ckr__yaml *y, bool flow, size_t indent)
{
    for (;;) {
        const uint8_t *p = y->p, *line = y->line, *at;
        size_t size = y->text.size;
        ckr__yaml_fold(y, false);
        at = y->p;
        if (y->line != line && !ckr__yaml_over(y) && *at != '#' &&
            (flow || ckr__yaml_column(y) >= indent))
            ckr__yaml_plain_line(y, flow);
        if (y->p > at && y->line != line) continue;
        y->p = p;                          /* nothing more: the blanks belong to what follows */
        y->line = line;
        y->fresh = false;
        y->text.size = size;
        return;
    }
}

static ckr_result ckr__yaml_escape(ckr__yaml *y)
{
    static const char from[] = "0abt\tnvfre \"\\/", to[] = "\0\a\b\t\t\n\v\f\r\033 \"\\/";
    const uint8_t *at = y->p++;
    int ch = ckr__yaml_at(y, 0);
    const char *e = ch > 0 ? strchr(from, ch) : NULL;
    size_t n = ch == 'x' ? 2 : ch == 'u' ? 4 : ch == 'U' ? 8 : 0;
    uint32_t cp = ch == 'N' ? 0x85 : ch == '_' ? 0xa0 : ch == 'L' ? 0x2028 : ch == 'P' ? 0x2029 : 0;
    char utf8[4];
    if (e) {
        ckr__buf_u8(&y->text, (unsigned char)to[e - from]);
        y->p++;
        return CKR_OK;
    }
    if (ckr__yaml_is_break(
            ch)) { /* a continued line: its end and indentation go, empty lines stay */
        size_t size = y->text.size;
        ckr__yaml_fold(y, true);
        if (y->text.size == size + 1 && y->text.data[size] == ' ') y->text.size = size;
        return CKR_OK;
    }
    y->p++;
    if ((!n && !cp) || (n && !ckr__hex_get(y->p, y->end, n, &cp)) || cp > 0x10ffff ||
        (cp >= 0xd800 && cp <= 0xdfff))
        return ckr__yaml_fail(y, CKR_ITEM_YAML_SCALAR, at,
                              "an unknown escape in a double-quoted string");
    y->p += n;
    ckr__buf_put(&y->text, utf8, ckr__utf8_put(utf8, cp));
    return CKR_OK;
}

static ckr_result ckr__yaml_quoted(ckr__yaml *y)
{
    const uint8_t *at = y->p;
    uint8_t quote = *y->p++;
    while (y->p < y->end) {
        const uint8_t *first = y->p, *line = y->line;
        while (y->p < y->end && *y->p != quote && *y->p != '\\' && !ckr__yaml_is_blank(*y->p))
            y->p++;
        ckr__buf_put(&y->text, first, (size_t)(y->p - first));
        if (y->p >= y->end) break;
        if (*y->p == quote && quote == '\'' && ckr__yaml_at(y, 1) == '\'') {
            ckr__buf_u8(&y->text, '\'');
            y->p += 2;
        } else if (*y->p == quote) {
            y->p++;
            y->fresh = false;
            return y->text.failed ? CKR_E_NOMEM : CKR_OK;
        } else if (*y->p == '\\' && quote == '"') {
            ckr_result r = ckr__yaml_escape(y);
            if (r != CKR_OK) return r;
        } else if (*y->p == '\\') {
            ckr__buf_u8(&y->text, '\\');
            y->p++;
        } else {
            first = y->p;
            ckr__yaml_fold(y, true);
            if (y->line == line) ckr__buf_put(&y->text, first, (size_t)(y->p - first));
        }
        if (y->line != line && ckr__yaml_over(y)) break;
    }
    return ckr__yaml_fail(y, CKR_ITEM_YAML_SCALAR, at, "a quoted string that does not end");
}

/* | or >, with its chomping and indentation indicators; *chomp is 0, '+' or '-'. */
static ckr_result ckr__yaml_block_head(ckr__yaml *y, int *chomp, size_t *indent)
{
    const uint8_t *at = y->p++;
    int k, ch;
    *chomp = 0;
    *indent = 0;
    for (k = 0; k < 2; k++) {
        ch = ckr__yaml_at(y, 0);
        if ((ch == '+' || ch == '-') && !*chomp) *chomp = ch;
        else if (ch >= '1' && ch <= '9' && !*indent) *indent = (size_t)(ch - '0');
        else break;
        y->p++;
    }
    if (!ckr__yaml_is_blank(ckr__yaml_at(y, 0)))
        return ckr__yaml_fail(y, CKR_ITEM_YAML_SCALAR, at,
                              "a block scalar with an unknown indicator");
    while (ckr__yaml_at(y, 0) == ' ') y->p++;
    if (ckr__yaml_at(y, 0) == '#')
        while (y->p < y->end && !ckr__yaml_is_break(*y->p)) y->p++;
    if (y->p < y->end && !ckr__yaml_is_break(*y->p))
        return ckr__yaml_fail(y, CKR_ITEM_YAML_SCALAR, at,
                              "text behind a block scalar's indicator");
    if (y->p < y->end) ckr__yaml_break(y);
    return CKR_OK;
}

/* Empty lines, and the indentation of the one that follows (at most `indent`); returns how many. */
static size_t ckr__yaml_block_breaks(ckr__yaml *y, size_t indent)
{
    size_t n = 0;
    for (;;) {
        while (ckr__yaml_at(y, 0) == ' ' && ckr__yaml_column(y) < indent) y->p++;
        if (!ckr__yaml_is_break(ckr__yaml_at(y, 0))) return n;
        ckr__yaml_break(y);
        n++;
    }
}

/* A literal or folded block; `parent` is the depth that its lines must have at least. */
static ckr_result ckr__yaml_block_scalar(ckr__yaml *y, size_t parent)
{
    bool folded = *y->p == '>';
    int chomp;
    size_t indent, breaks, deepest = 0, i;
    ckr_result r = ckr__yaml_block_head(y, &chomp, &indent);
    if (r != CKR_OK) return r;
    if (parent < 1) parent = 1;
    if (indent) {
        indent += parent - 1;
        breaks = ckr__yaml_block_breaks(y, indent);
    } else {
        for (breaks = 0; ckr__yaml_at(y, 0) == ' ' || ckr__yaml_is_break(ckr__yaml_at(y, 0));) {
            if (*y->p == ' ') {
                y->p++;
                if (ckr__yaml_column(y) > deepest) deepest = ckr__yaml_column(y);
            } else {
                ckr__yaml_break(y);
                breaks++;
            }
        }
        indent = deepest > parent ? deepest : parent;
    }
    while (ckr__yaml_column(y) == indent && y->p < y->end) {
        const uint8_t *first = y->p;
        bool flush = *first != ' ' && *first != '\t', ended;
        for (i = 0; i < breaks; i++) ckr__buf_u8(&y->text, '\n');
        while (y->p < y->end && !ckr__yaml_is_break(*y->p)) y->p++;
        ckr__buf_put(&y->text, first, (size_t)(y->p - first));
        ended = y->p < y->end;
        if (ended) ckr__yaml_break(y);
        breaks = ckr__yaml_block_breaks(y, indent);
        if (ckr__yaml_column(y) != indent || y->p >= y->end) {
            if (chomp != '-' && ended) ckr__buf_u8(&y->text, '\n');
            break;
        }
        if (!folded || !flush || *y->p == ' ' || *y->p == '\t') ckr__buf_u8(&y->text, '\n');
        else if (!breaks) ckr__buf_u8(&y->text, ' ');
    }
    if (chomp == '+') for (i = 0; i < breaks; i++) ckr__buf_u8(&y->text, '\n');
    return y->text.failed ? CKR_E_NOMEM : CKR_OK;
}

static const uint8_t *ckr__yaml_name(const ckr__yaml *y, const uint8_t *p)
{
    while (p < y->end && !ckr__yaml_is_blank(*p) && !ckr__yaml_is_flow(*p)) p++;
    return p;
}

/* &anchor and !tag before a node, in any order. */
static ckr_result ckr__yaml_get_props(ckr__yaml *y, ckr__yaml_props *props)
{
    memset(props, 0, sizeof *props);
    while (ckr__yaml_at(y, 0) == '&' || ckr__yaml_at(y, 0) == '!') {
        const uint8_t *at = y->p, *name = at + (*at == '&'), *end = ckr__yaml_name(y, name);
        const char *first = (const char *)name;
        if ((*at == '&' ? props->anchor : props->tag) || end == name)
            return ckr__yaml_fail(y, CKR_ITEM_YAML_SYNTAX, at,
                                  "an anchor or tag that is empty or there twice");
        if (*at == '&') {
            props->anchor = first;
            props->anchor_len = (size_t)(end - name);
        } else {
            props->tag = first;
            props->tag_len = (size_t)(end - name);
            if (!ckr__yaml_word(first, props->tag_len,
                                "! !!str !!null !!bool !!int !!float !!map !!seq"))
                return ckr__yaml_fail(y, CKR_ITEM_YAML_TAG, at,
                                      "a tag that would build an object; expected plain data");
        }
        y->p = end;
        y->fresh = false;
        while (ckr__yaml_at(y, 0) == ' ') y->p++;
    }
    return CKR_OK;
}

static bool ckr__yaml_anchor(ckr__yaml *y, const ckr__yaml_props *props, ckr_node *n)
{
    void *array = y->nodes;
    if (!props->anchor) return true;
    if (!ckr__arena_grow(y->c, &array, &y->cap_nodes, y->n_nodes + 1, sizeof *y->nodes))
        return false;
    y->nodes = (ckr_node **)array;
    y->nodes[y->n_nodes] = n;
    return ckr__map_put(&y->anchors, props->anchor, props->anchor_len, y->n_nodes++, NULL);
}

static ckr_result ckr__yaml_alias(ckr__yaml *y, ckr_node **out)
{
    const uint8_t *end = ckr__yaml_name(y, y->p + 1);
    uint64_t i;
    if (!ckr__map_find(&y->anchors, (const char *)y->p + 1, (size_t)(end - y->p - 1), &i))
        return ckr__yaml_fail(y, CKR_ITEM_YAML_ALIAS, y->p,
                              "no finished node has the anchor of this alias");
    *out = y->nodes[i];
    y->p = end;
    y->fresh = false;
    return CKR_OK;
}

/* A plain scalar may begin with this byte. */
static bool ckr__yaml_plain_start(const ckr__yaml *y, bool flow)
{
    int ch = ckr__yaml_at(y, 0), next = ckr__yaml_at(y, 1);
    if (ckr__yaml_is_blank(ch)) return false;
    if (ch == '-') return !ckr__yaml_is_blank(next) && !(flow && ckr__yaml_is_flow(next));
    if (ch == '?' || ch == ':') return !flow && !ckr__yaml_is_blank(next);
    return !strchr(",[]{}#&*!|>'\"%@`", ch);
}

/* A scalar that is no block scalar. With `key` it is one line of plain text; *simple says whether
   it can be a key: it did not pass a line end. */
static ckr_result ckr__yaml_inline(ckr__yaml *y, bool flow, bool key, size_t indent,
                                   const ckr__yaml_props *props,
                                   ckr_node **out, bool *simple)
{
    const uint8_t *at = y->p, *line = y->line;
    bool quoted = ckr__yaml_at(y, 0) == '"' || ckr__yaml_at(y, 0) == '\'';
    ckr_result r = CKR_OK;
    y->text.size = 0;
    if (ckr__yaml_at(y, 0) == '*') {
        if (props->anchor || props->tag)
            return ckr__yaml_fail(y, CKR_ITEM_YAML_SYNTAX, at, "an alias with an anchor or a tag");
        *simple = true;
        return ckr__yaml_alias(y, out);
    }
    if (quoted) {
        r = ckr__yaml_quoted(y);
    } else if (ckr__yaml_plain_start(y, flow)) {
        int after;
        ckr__yaml_plain_line(y, flow);
        while (ckr__yaml_at(y, 0) == ' ') y->p++;
        after = ckr__yaml_at(y, 0);
        if (!key && after != ':' && after != '#') ckr__yaml_plain_more(y, flow, indent);
    } else {
        return ckr__yaml_fail(y, CKR_ITEM_YAML_SYNTAX, at,
                              ckr__yaml_at(y, 0) == '\t' ? "a tab where a value was expected"
                                                         : "this cannot begin a value");
    }
    if (r != CKR_OK) return r;
    *simple = y->line == line;
    *out = ckr__yaml_scalar(y, !quoted, props, at);
    if (!*out) return y->c->err->code ? y->c->err->code : CKR_E_NOMEM;
    return ckr__yaml_anchor(y, props, *out) ? CKR_OK : CKR_E_NOMEM;
}

static ckr_result ckr__yaml_push(ckr__yaml *y, ckr__yaml_kind kind, size_t indent,
                                 const ckr__yaml_props *props)
{
    ckr__yaml_frame f;
    bool map = kind == CKR__YAML_MAP || kind == CKR__YAML_FLOW_MAP;
    if (y->stack.size / sizeof f >= y->c->limits.max_depth)
        return ckr__fail(y->c->err, CKR_ITEM_JSON_DEPTH, y->path, (uint64_t)(y->p - y->begin), NULL,
                         "nested deeper than max_depth (%u)", (unsigned)y->c->limits.max_depth);
    memset(&f, 0, sizeof f);
    f.kind = kind;
    f.indent = indent;
    if (props) f.props = *props;
    if (f.props.tag && !ckr__yaml_word(f.props.tag, f.props.tag_len, map ? "!!map !" : "!!seq !"))
        return ckr__yaml_fail(y, CKR_ITEM_YAML_TAG, y->p, "the tag does not fit a collection");
    f.node = ckr__node(y->c, map ? CKR_NODE_DICT : CKR_NODE_LIST);
    if (!f.node) return y->c->err->code;
    ckr__buf_put(&y->stack, &f, sizeof f);
    return y->stack.failed ? CKR_E_NOMEM : CKR_OK;
}

/* Closes the container on top. */
static ckr_result ckr__yaml_pop(ckr__yaml *y, ckr_node **out)
{
    ckr__yaml_frame f = *ckr__yaml_top(y);
    const ckr_node *dup = NULL;
    ckr_result r = f.node->kind == CKR_NODE_DICT ? ckr__dict_duplicate(y->c, f.node, &dup) : CKR_OK;
    if (r != CKR_OK) return r;
    if (dup)
        return ckr__fail(y->c->err, CKR_ITEM_YAML_DUPLICATE, y->path, (uint64_t)(y->p - y->begin),
                         dup->kind == CKR_NODE_STR ? dup->u.str : NULL,
                         "the mapping that ends here has a key twice%s%.100s",
                         dup->kind == CKR_NODE_STR ? ": " : "",
                         dup->kind == CKR_NODE_STR ? dup->u.str : "");
    y->stack.size -= sizeof f;
    *out = f.node;
    return ckr__yaml_anchor(y, &f.props, f.node) ? CKR_OK : CKR_E_NOMEM;
}

/* The colon behind a block mapping's key. */
static bool ckr__yaml_colon(ckr__yaml *y)
{
    const uint8_t *p = y->p;
    while (p < y->end && *p == ' ') p++;
    if (p >= y->end || *p != ':' || !(p + 1 >= y->end || ckr__yaml_is_blank(p[1]))) return false;
    y->p = p + 1;
    y->fresh = false;
    return true;
}

static ckr_result ckr__yaml_block_text(ckr__yaml *y, size_t min, const ckr__yaml_props *props,
                                       ckr_node **out)
{
    const uint8_t *at = y->p;
    ckr_result r;
    y->text.size = 0;
    r = ckr__yaml_block_scalar(y, min);
    if (r != CKR_OK) return r;
    *out = ckr__yaml_scalar(y, false, props, at);
    return *out && ckr__yaml_anchor(y, props, *out) ? CKR_OK : y->c->err->code;
}

/* "? key" and, on a line of its own, ":" in the same column. */
static ckr_result ckr__yaml_long_key(ckr__yaml *y, size_t column, ckr_node **key)
{
    ckr__yaml_props props;
    bool simple;
    ckr_result r;
    y->p++;
    y->fresh = false;
    while (ckr__yaml_at(y, 0) == ' ') y->p++;
    r = ckr__yaml_get_props(y, &props);
    if (r != CKR_OK) return r;
    if (ckr__yaml_at(y, 0) == '|' || ckr__yaml_at(y, 0) == '>')
        r = ckr__yaml_block_text(y, column + 1, &props, key);
    else r = ckr__yaml_inline(y, false, false, column + 1, &props, key, &simple);
    if (r != CKR_OK) return r;
    ckr__yaml_next(y);
    if (!y->fresh || ckr__yaml_column(y) != column || !ckr__yaml_colon(y))
        return ckr__yaml_fail(y, CKR_ITEM_YAML_SYNTAX, y->p,
                              "expected ':' below the '?' of its key");
    y->compact = true;
    return CKR_OK;
}

/* The key at p and its colon, for the block mapping on top. */
static ckr_result ckr__yaml_key(ckr__yaml *y)
{
    ckr__yaml_props props;
    ckr_node *key = NULL;
    bool simple = false;
    ckr_result r;
    if (ckr__yaml_at(y, 0) == '?' && ckr__yaml_is_blank(ckr__yaml_at(y, 1))) {
        r = ckr__yaml_long_key(y, ckr__yaml_column(y), &key);
    } else {
        r = ckr__yaml_get_props(y, &props);
        if (r == CKR_OK) r = ckr__yaml_inline(y, false, true, 0, &props, &key, &simple);
        if (r == CKR_OK && !(simple && ckr__yaml_colon(y)))
            r = ckr__yaml_fail(y, CKR_ITEM_YAML_SYNTAX, y->p, "expected ':' behind a key");
    }
    if (r == CKR_OK) ckr__yaml_top(y)->key = key;
    return r;
}

/* The next key of the flow mapping on top and its colon, or its end: *out is set then. A key alone
   has the value null. */
static ckr_result ckr__yaml_flow_key(ckr__yaml *y, ckr_node **out)
{
    for (;;) {
        ckr__yaml_props props;
        ckr_node *key = NULL;
        bool simple;
        ckr_result r;
        ckr__yaml_next(y);
        if (ckr__yaml_at(y, 0) == '}') {
            y->p++;
            y->fresh = false;
            return ckr__yaml_pop(y, out);
        }
        if (ckr__yaml_at(y, 0) == '?') {
            y->p++;
            ckr__yaml_next(y);
        }
        r = ckr__yaml_get_props(y, &props);
        if (r == CKR_OK) r = ckr__yaml_inline(y, true, false, 0, &props, &key, &simple);
        if (r != CKR_OK) return r;
        ckr__yaml_top(y)->key = key;
        ckr__yaml_next(y);
        if (ckr__yaml_at(y, 0) == ':') {
            y->p++;
            return CKR_OK;
        }
        if (!ckr__node_pair(y->c, ckr__yaml_top(y)->node, key, ckr__node(y->c, CKR_NODE_NONE)))
            return y->c->err->code;
        if (ckr__yaml_at(y, 0) == ',') y->p++;
        else if (ckr__yaml_at(y, 0) != '}')
            return ckr__yaml_fail(y, CKR_ITEM_YAML_SYNTAX, y->p, "expected ':', ',' or '}'");
    }
}

/* Opens [ or {. */
static ckr_result ckr__yaml_flow(ckr__yaml *y, const ckr__yaml_props *props, ckr_node **out)
{
    bool map = *y->p == '{';
    ckr_result r = ckr__yaml_push(y, map ? CKR__YAML_FLOW_MAP : CKR__YAML_FLOW_SEQ, 0, props);
    if (r != CKR_OK) return r;
    y->p++;
    y->fresh = false;
    if (map) return ckr__yaml_flow_key(y, out);
    ckr__yaml_next(y);
    if (ckr__yaml_at(y, 0) != ']') return CKR_OK;
    y->p++;
    return ckr__yaml_pop(y, out);
}

static ckr_result ckr__yaml_null(ckr__yaml *y, const ckr__yaml_props *props, ckr_node **out)
{
    y->text.size = 0;
    *out = ckr__yaml_scalar(y, true, props, y->p);
    return *out && ckr__yaml_anchor(y, props, *out) ? CKR_OK : y->c->err->code;
}

/* A value inside a flow collection. */
static ckr_result ckr__yaml_flow_node(ckr__yaml *y, ckr_node **out)
{
    ckr__yaml_props props;
    bool simple;
    int ch;
    ckr_result r;
    ckr__yaml_next(y);
    r = ckr__yaml_get_props(y, &props);
    if (r != CKR_OK) return r;
    ckr__yaml_next(y);
    ch = ckr__yaml_at(y, 0);
    if (ckr__yaml_over(y))
        return ckr__yaml_fail(y, CKR_ITEM_YAML_SYNTAX, y->p, "a flow collection that does not end");
    if (ch == '[' || ch == '{') return ckr__yaml_flow(y, &props, out);
    if (ckr__yaml_top(y)->kind == CKR__YAML_FLOW_MAP && (ch == ',' || ch == '}'))
        return ckr__yaml_null(y, &props, out);
    return ckr__yaml_inline(y, true, false, 0, &props, out, &simple);
}

/* A scalar at p, or the first key of a block mapping in `column`, where one may begin. `outer`
   props stood on a line before it and belong to the mapping, if it is one. */
static ckr_result ckr__yaml_block_inline(ckr__yaml *y, bool block, bool outer, size_t column,
                                         size_t min,
                                         const ckr__yaml_props *props, ckr_node **out)
{
    const uint8_t *p = y->p, *line = y->line;
    ckr__yaml_props none;
    ckr_node *scalar = NULL;
    bool simple = false;
    ckr_result r;
    memset(&none, 0, sizeof none);
    r = ckr__yaml_inline(y, false, false, min, outer ? &none : props, &scalar, &simple);
    if (r != CKR_OK) return r;
    if (block && simple && ckr__yaml_colon(y)) {
        r = ckr__yaml_push(y, CKR__YAML_MAP, column, outer ? props : NULL);
        if (r == CKR_OK) ckr__yaml_top(y)->key = scalar;
        return r;
    }
    *out = scalar;
    if (!outer) return CKR_OK;
    y->p = p;
    y->line = line;
    y->fresh = true;
    return ckr__yaml_inline(y, false, false, min, props, out, &simple);
}

static bool ckr__yaml_indicator(const ckr__yaml *y, char ch)
{
    return ckr__yaml_at(y, 0) == ch && ckr__yaml_is_blank(ckr__yaml_at(y, 1));
}

/* A block collection or scalar at p, or null when the next token does not belong to the frame on
   top. *out stays NULL when a collection was opened and its first item follows. */
static ckr_result ckr__yaml_block_node(ckr__yaml *y, ckr_node **out)
{
    const ckr__yaml_frame *f = ckr__yaml_top(y);
    const size_t min = f ? f->indent + 1 : 0;
    const bool under_key = f && f->kind == CKR__YAML_MAP;
    bool block, outer = false, entry;
    ckr__yaml_props props;
    size_t column;
    ckr_result r;
    memset(&props, 0, sizeof props);
    ckr__yaml_next(y);
    block = y->fresh || y->compact;
    column = ckr__yaml_column(y);
    if (!ckr__yaml_over(y) && (!y->fresh || column >= min)) {
        const uint8_t *line = y->line;
        r = ckr__yaml_get_props(y, &props);
        if (r != CKR_OK) return r;
        if (props.anchor || props.tag) ckr__yaml_next(y);
        outer = y->line != line;
        if (outer) {
            block = true;
            column = ckr__yaml_column(y);
        }
    }
    entry = ckr__yaml_indicator(y, '-');
    if (ckr__yaml_over(y) || (y->fresh && column < min &&
                              !(entry && under_key && column + 1 == min)))
        return ckr__yaml_null(y, &props, out);
    if (entry || ckr__yaml_indicator(y, '?')) {
        if (!block || (!outer && (props.anchor || props.tag)))
            return ckr__yaml_fail(y, CKR_ITEM_YAML_SYNTAX, y->p,
                                  "a block collection cannot begin here");
        r = ckr__yaml_push(y, entry ? CKR__YAML_SEQ : CKR__YAML_MAP, column, &props);
        if (r != CKR_OK || !entry) return r == CKR_OK ? ckr__yaml_key(y) : r;
        y->p++;
        y->fresh = false;
        y->compact = true;
        return CKR_OK;
    }
    y->compact = false;
    if (ckr__yaml_at(y, 0) == '[' || ckr__yaml_at(y, 0) == '{')
        return ckr__yaml_flow(y, &props, out);
    if (ckr__yaml_at(y, 0) == '|' || ckr__yaml_at(y, 0) == '>')
        return ckr__yaml_block_text(y, min, &props, out);
    return ckr__yaml_block_inline(y, block, outer, column, min, &props, out);
}

/* Behind an item of the flow collection on top: *value is NULL when another follows, else it is
   closed. */
static ckr_result ckr__yaml_flow_after(ckr__yaml *y, ckr_node **value)
{
    bool map = ckr__yaml_top(y)->kind == CKR__YAML_FLOW_MAP;
    int close = map ? '}' : ']';
    *value = NULL;
    ckr__yaml_next(y);
    if (ckr__yaml_at(y, 0) == ',') {
        y->p++;
        y->fresh = false;
        if (map) return ckr__yaml_flow_key(y, value);
        ckr__yaml_next(y);
        if (ckr__yaml_at(y, 0) != close) return CKR_OK;
    }
    if (ckr__yaml_at(y, 0) != close)
        return ckr__yaml_fail(y, CKR_ITEM_YAML_SYNTAX, y->p,
                              map ? "expected ',' or '}'" : "expected ',' or ']'");
    y->p++;
    y->fresh = false;
    return ckr__yaml_pop(y, value);
}

/* The same for the block collection on top, which ends at a token left of its column. */
static ckr_result ckr__yaml_block_after(ckr__yaml *y, ckr_node **value)
{
    const ckr__yaml_frame *f = ckr__yaml_top(y);
    bool entry, map = f->kind == CKR__YAML_MAP;
    size_t column;
    ckr__yaml_next(y);
    column = ckr__yaml_column(y);
    if (ckr__yaml_over(y) || (y->fresh && column < f->indent)) return ckr__yaml_pop(y, value);
    if (!y->fresh)
        return ckr__yaml_fail(y, CKR_ITEM_YAML_SYNTAX, y->p, "expected the end of the line");
    if (column > f->indent)
        return ckr__yaml_fail(y, CKR_ITEM_YAML_SYNTAX, y->p, "indented deeper than its neighbours");
    entry = ckr__yaml_indicator(y, '-');
    if (entry && map)
        return ckr__yaml_fail(y, CKR_ITEM_YAML_SYNTAX, y->p, "found '-', expected a key");
    if (!entry && !map) {
        if (y->stack.size >= 2 * sizeof *f && f[-1].kind == CKR__YAML_MAP && f[-1].indent == column)
            return ckr__yaml_pop(y, value);
        return ckr__yaml_fail(y, CKR_ITEM_YAML_SYNTAX, y->p, "expected '-'");
    }
    *value = NULL;
    if (map) return ckr__yaml_key(y);
    y->p++;
    y->fresh = false;
    y->compact = true;
    return CKR_OK;
}

/* Gives a value to the containers that end behind it; NULL: another item follows. */
static ckr_result ckr__yaml_done(ckr__yaml *y, ckr_node **value)
{
    const ckr__yaml_frame *f;
    ckr_result r;
    while (*value && (f = ckr__yaml_top(y)) != NULL) {
        if (f->node->kind == CKR_NODE_DICT ? !ckr__node_pair(y->c, f->node, f->key, *value)
                                           : !ckr__node_push(y->c, f->node, *value))
            return y->c->err->code;
        r = f->kind == CKR__YAML_MAP || f->kind == CKR__YAML_SEQ ? ckr__yaml_block_after(y, value)
                                                                 : ckr__yaml_flow_after(y, value);
        if (r != CKR_OK) return r;
    }
    return CKR_OK;
}

/* Only what YAML calls printable; the line separators that are not ASCII would need folding rules.
   */
static ckr_result ckr__yaml_check_text(ckr__yaml *y)
{
    const uint8_t *p = y->begin;
    while (p < y->end) {
        size_t n;
        uint32_t cp;
        if (*p >= 0x20 && *p < 0x7f) {
            p++;
            continue;
        }
        if (!ckr__utf8_len(p, y->end))
            return ckr__yaml_fail(y, CKR_ITEM_JSON_UTF8, p, "bytes that are not UTF-8");
        cp = ckr__utf8_get(p, y->end, &n);
        if (cp == 0x85 || cp == 0x2028 || cp == 0x2029)
            return ckr__yaml_fail(y, CKR_ITEM_YAML_UNSUPPORTED, p,
                                  "a line separator that is not ASCII");
        if ((cp < 0xa0 && cp != '\t' && cp != '\n' && cp != '\r') || cp == 0xfffe || cp == 0xffff)
            return ckr__yaml_fail(y, CKR_ITEM_YAML_SYNTAX, p, "a control character");
        p += n;
    }
    return CKR_OK;
}

static ckr_result ckr__yaml_document(ckr__yaml *y, ckr_node **root)
{
    ckr_node *value = NULL;
    ckr_result r = ckr__yaml_check_text(y);
    if (r != CKR_OK) return r;
    if (y->end - y->p >= 3 && !memcmp(y->p, "\xef\xbb\xbf", 3)) y->p = y->line = y->p + 3;
    y->fresh = true;
    ckr__yaml_next(y);
    if (ckr__yaml_at(y, 0) == '%')
        return ckr__yaml_fail(y, CKR_ITEM_YAML_UNSUPPORTED, y->p, "a directive");
    if (ckr__yaml_marker(y, '-')) {
        y->p += 3;
        y->fresh = false;
    }
    do {
        const ckr__yaml_frame *f = ckr__yaml_top(y);
        bool flow = f && (f->kind == CKR__YAML_FLOW_MAP || f->kind == CKR__YAML_FLOW_SEQ);
        r = flow ? ckr__yaml_flow_node(y, &value) : ckr__yaml_block_node(y, &value);
        if (r == CKR_OK && value) r = ckr__yaml_done(y, &value);
    } while (r == CKR_OK && !value);
    if (r != CKR_OK) return r;
    ckr__yaml_next(y);
    if (!ckr__yaml_over(y))
        return ckr__yaml_fail(y, CKR_ITEM_YAML_SYNTAX, y->p, "expected the end of the document");
    if (ckr__yaml_marker(y, '.')) {
        y->p += 3;
        ckr__yaml_next(y);
    }
    if (y->p < y->end)
        return ckr__yaml_fail(y, CKR_ITEM_YAML_UNSUPPORTED, y->p, "a second document");
    *root = value;
    return CKR_OK;
}

static ckr_result ckr__yaml_parse(ckr__ctx *c, const char *path, const void *bytes, size_t n,
                                  ckr_node **root)
{
    ckr__yaml y;
    ckr_result r;
    memset(&y, 0, sizeof y);
    y.c = y.stack.c = y.text.c = y.anchors.c = c;
    y.path = path;
    y.begin = y.p = y.line = (const uint8_t *)bytes;
    y.end = y.begin + n;
    r = ckr__yaml_document(&y, root);
    ckr__buf_free(&y.stack);
    ckr__buf_free(&y.text);
    ckr__map_free(&y.anchors);
    return r;
}

/* >>yaml.put ------------------------------------------------------------------ */
/* Writes as yaml.dump does: block style, keys sorted, text quoted where plain would be read as
   something else (PyYAML 6 emitter.py, analyze_scalar), lines folded behind column 80, a container
   that is there twice as &id001 and *id001. Only text with line ends looks different: always in
   double quotes. */

typedef struct ckr__yaml_out {
    ckr__ctx *c;
    ckr__buf *b;
    ckr__buf  stack;           /* ckr__put_frame                                         */
    ckr__map
        seen; /* container (its address) -> 1 once, 2 + anchor when shared, | high bit: written */
    uint64_t  n_anchors;
    bool      at_item;         /* the line already has the indentation of the next item  */
} ckr__yaml_out;

/* >>safetensors --------------------------------------------------------------- */
/* u64 N; N bytes of JSON; the rest is data. {"name": {"dtype": "F32", "shape": [2, 3],
   "data_offsets": [begin, end]}, ..., "__metadata__": {"k": "v"}}, offsets relative to byte 8 + N,
   contiguous, row-major, little-endian. Sorted by (begin, end) the tensors cover the data without
   hole or overlap. One pass over the header, without general JSON nodes: a hundred thousand tensors
   are usual. Names are decoded in place, the header stays in the arena. Stricter than the reference
   reader where the specification is: a name twice, an entry as an array, a blank before the first
   {. Types of 4 and 6 bits have no element that begins at a byte: their dtype has size 0, the view
   has layout "packed" and shape and stride count values; data_bytes is right. */

enum { CKR__ST_DEPTH = 64 };   /* of a field that we do not know                         */

typedef struct ckr__st_cell { ckr_node key, node; ckr_view view; } ckr__st_cell;
typedef struct ckr__st_dims { const int64_t *dims; uint32_t n_dims; } ckr__st_dims;

typedef struct ckr__st {
    ckr__json   j;
    ckr__ctx   *c;
    uint8_t    *text;          /* what j reads                                           */
    uint32_t    file;
    uint64_t    data, n_data;  /* where the data begins in the file, its size            */
    uint64_t    reached;       /* end of the chain, while the header is in offset order  */
    bool        ordered, metadata;
    ckr_node   *root;
    ckr__st_cell *first, *last; /* the tensors so far: node.attrs is the next one until the end */
    ckr__st_dims recent[32];   /* shapes to share: a model has few different ones         */
    ckr__buf    dims;          /* of the entry in hand, int64_t                          */
    char tag[16]; /* of the last entry: most tensors have the dtype of their neighbour */
    size_t      tag_len;
    uint64_t    bits;
    ckr_dtype   dtype;
    uint64_t    begin, end;
} ckr__st;

static ckr_result ckr__st_fail(ckr__st *s, const char *expected)
{
    return ckr__json_fail(&s->j, CKR_ITEM_ST_ENTRY, s->j.p, expected);
}

/* Skips blanks and takes `ch`, or leaves the error alone. */
static bool ckr__st_take(ckr__st *s, char ch)
{
    if (s->j.p >= s->j.end || *s->j.p != (uint8_t)ch) {
        ckr__json_blank(&s->j);
        if (s->j.p >= s->j.end || *s->j.p != (uint8_t)ch) return false;
    }
    s->j.p++;
    return true;
}

/* A string, decoded where it stands; the header is private memory. */
static ckr_result ckr__st_string(ckr__st *s, const char **out, size_t *len)
{
    char *at;
    ckr__json_blank(&s->j);
    if (s->j.p >= s->j.end || *s->j.p != '"') return ckr__st_fail(s, "a string");
    at = (char *)s->text + (s->j.p - s->j.begin) + 1;
    *out = at;
    return ckr__json_string(&s->j, at, len);
}

/* 0 or [1-9][0-9]*, below 2^63 (the last few of its 19 digits' range are refused too). */
static ckr_result ckr__st_number(ckr__st *s, int64_t *out)
{
    const uint8_t *p, *digits, *end = s->j.end;
    uint64_t v = 0;
    ckr__json_blank(&s->j);
    digits = s->j.p;
    for (p = digits; p < end && *p >= '0' && *p <= '9'; p++) {
        if (p - digits >= 18 && (p - digits > 18 || v > (uint64_t)INT64_MAX / 10 - 1))
            return ckr__fail(s->c->err, CKR_ITEM_SIZE_OVERFLOW, s->j.path,
                             s->j.base + (uint64_t)(digits - s->j.begin), NULL, NULL);
        v = v * 10 + (uint64_t)(*p - '0');
    }
    if (p == digits || (*digits == '0' && p - digits > 1))
        return ckr__st_fail(s, "a plain non-negative integer");
    s->j.p = p;
    if (p < s->j.end && (*p == '.' || *p == 'e' || *p == 'E')) return ckr__st_fail(s, "an integer");
    *out = (int64_t)v;
    return CKR_OK;
}

static ckr_result ckr__st_shape(ckr__st *s)
{
    int64_t v;
    ckr_result r;
    s->dims.size = 0;
    if (!ckr__st_take(s, '[')) return ckr__st_fail(s, "'[' of a shape");
    if (ckr__st_take(s, ']')) return CKR_OK;
    do {
        r = ckr__st_number(s, &v);
        if (r != CKR_OK) return r;
        ckr__buf_put(&s->dims, &v, sizeof v);
        if (s->dims.failed) return CKR_E_NOMEM;
    } while (ckr__st_take(s, ','));
    return ckr__st_take(s, ']') ? CKR_OK : ckr__st_fail(s, "',' or ']'");
}

static ckr_result ckr__st_offsets(ckr__st *s)
{
    int64_t begin, end;
    ckr_result r;
    if (!ckr__st_take(s, '[')) return ckr__st_fail(s, "'[' of data_offsets");
    r = ckr__st_number(s, &begin);
    if (r != CKR_OK) return r;
    if (!ckr__st_take(s, ',')) return ckr__st_fail(s, "',' between two offsets");
    r = ckr__st_number(s, &end);
    if (r != CKR_OK) return r;
    s->begin = (uint64_t)begin;
    s->end = (uint64_t)end;
    return ckr__st_take(s, ']') ? CKR_OK : ckr__st_fail(s, "']' behind two offsets");
}

static ckr_result ckr__st_dtype(ckr__st *s, const char *name)
{
    const char *tag;
    size_t n;
    uint64_t at = s->j.base + (uint64_t)(s->j.p - s->j.begin);
    ckr_result r = ckr__st_string(s, &tag, &n);
    if (r != CKR_OK) return r;
    if (s->bits && s->tag_len == n && !memcmp(s->tag, tag, n)) return CKR_OK;
    s->dtype = ckr__dtype_find(tag, n, 1);
    s->bits = ckr__dtype_bits(s->dtype);
    if (!s->bits)
        return ckr__fail(s->c->err, CKR_ITEM_ST_DTYPE, s->j.path, at, name,
                         "\"%.40s\" is no dtype of safetensors", tag);
    snprintf(s->tag, sizeof s->tag, "%s", tag);
    s->tag_len = n;
    return CKR_OK;
}

/* A field that the format may get one day: checked as JSON, not kept. */
static ckr_result ckr__st_skip(ckr__st *s)
{
    ckr_node *ignored = NULL;
    return ckr__json_value(&s->j, &ignored);
}

/* Digits up to the first byte that is none; the NUL behind the header stops it. */
static const uint8_t *ckr__st_quick_number(const uint8_t *p, int64_t *out)
{
    const uint8_t *digits = p;
    uint64_t v = 0;
    for (; (unsigned)(*p - '0') < 10 && p - digits < 18; p++) v = v * 10 + (unsigned)(*p - '0');
    *out = (int64_t)v;
    return p == digits || (*digits == '0' && p - digits > 1) ? NULL : p;
}

/* An entry as the reference writer spells it, with the dtype of the one before; false, with nothing
   taken, for every other. */
static bool ckr__st_quick(ckr__st *s)
{
    const uint8_t *p = s->j.p, *end = s->j.end;
    int64_t dims[8], offset[2];
    size_t n = 0;
    if (end - p < 46 || !s->bits || memcmp(p, "{\"dtype\":\"", 10) != 0) return false;
    p += 10;
    if (memcmp(p, s->tag, s->tag_len) != 0 || memcmp(p + s->tag_len, "\",\"shape\":[", 11) != 0)
        return false;
    p += s->tag_len + 11;
    while (*p != ']') {
        if (n == 8 || (n && *p++ != ',')) return false;
        p = ckr__st_quick_number(p, &dims[n++]);
        if (!p) return false;
    }
    if (end - p < 22 || memcmp(p, "],\"data_offsets\":[", 18) != 0) return false;
    p = ckr__st_quick_number(p + 18, &offset[0]);
    if (!p || *p != ',') return false;
    p = ckr__st_quick_number(p + 1, &offset[1]);
    if (!p || p[0] != ']' || p[1] != '}') return false;
    s->dims.size = 0;
    ckr__buf_put(&s->dims, dims, n * sizeof *dims);
    if (s->dims.failed) return false;
    s->begin = (uint64_t)offset[0];
    s->end = (uint64_t)offset[1];
    s->j.p = p + 2;
    return true;
}

static ckr_result ckr__st_fields(ckr__st *s, const char *name)
{
    static const char *const known[] = { "dtype", "shape", "data_offsets" };
    static const size_t known_len[] = { 5, 5, 12 };
    unsigned seen = 0, i;
    if (ckr__st_quick(s)) return CKR_OK;
    if (!ckr__st_take(s, '{')) return ckr__st_fail(s, "'{' of an entry");
    if (!ckr__st_take(s, '}')) {
        do {
            const char *field;
            size_t n;
            ckr_result r = ckr__st_string(s, &field, &n);
            if (r != CKR_OK) return r;
            for (i = 0; i < 3; i++)
                if (known_len[i] == n && !memcmp(known[i], field, n)) break;
            if (i < 3 && seen & 1u << i)
                return ckr__fail(s->c->err, CKR_ITEM_ST_DUPLICATE, s->j.path,
                                 s->j.base + (uint64_t)(s->j.p - s->j.begin), name,
                                 "\"%s\" twice in one entry", known[i]);
            seen |= 1u << i;
            if (!ckr__st_take(s, ':')) return ckr__st_fail(s, "':'");
            r = i == 0 ? ckr__st_dtype(s, name) : i == 1 ? ckr__st_shape(s)
              : i == 2 ? ckr__st_offsets(s) : ckr__st_skip(s);
            if (r != CKR_OK) return r;
        } while (ckr__st_take(s, ','));
        if (!ckr__st_take(s, '}')) return ckr__st_fail(s, "',' or '}'");
    }
    for (i = 0; i < 3; i++)
        if (!(seen & 1u << i))
            return ckr__fail(s->c->err, CKR_ITEM_ST_ENTRY, s->j.path,
                             s->j.base + (uint64_t)(s->j.p - s->j.begin), name,
                             "the entry has no \"%s\"", known[i]);
    return CKR_OK;
}

/* Sizes of the entry in hand against its offsets and the file. */
static ckr_result ckr__st_check(ckr__st *s, const char *name, uint64_t at, const int64_t *shape,
                                uint32_t n_dims)
{
    ckr_error *err = s->c->err;
    uint64_t want;
    int64_t numel;
    if (!ckr__numel(n_dims, shape, &numel) || !ckr__mul_u64((uint64_t)numel, s->bits, &want))
        return ckr__fail(err, CKR_ITEM_SIZE_OVERFLOW, s->j.path, at, name,
                         "the shape has more than 2^63 bits");
    if (s->begin > s->end || s->end > s->n_data)
        return ckr__fail(err, CKR_ITEM_ST_LAYOUT, s->j.path, at, name,
                         "data_offsets [%llu, %llu] are not inside the %llu bytes of data",
                         (unsigned long long)s->begin,
                         (unsigned long long)s->end, (unsigned long long)s->n_data);
    if (want % 8 || want / 8 != s->end - s->begin)
        return ckr__fail(err, CKR_ITEM_ST_LENGTH, s->j.path, at, name,
                         "data_offsets hold %llu bytes, dtype %s and shape need %llu bits",
                         (unsigned long long)(s->end - s->begin), s->tag, (unsigned long long)want);
    return CKR_OK;
}

/* The dims in hand with their strides behind them, shared with an earlier tensor where one has
   them. */
static const int64_t *ckr__st_keep_dims(ckr__st *s, uint32_t n_dims)
{
    size_t bytes = s->dims.size;
    ckr__st_dims *slot = &s->recent[ckr__hash_bytes(s->dims.data, bytes) >> 59];
    bool same = slot->dims && slot->n_dims == n_dims;
    int64_t *dims, step = 1;
    uint32_t d;
    if (same && bytes) same = !memcmp(slot->dims, s->dims.data, bytes);
    if (same) return slot->dims;
    dims = (int64_t *)ckr__arena(s->c, 2 * bytes);
    if (!dims) return NULL;
    if (bytes) memcpy(dims, s->dims.data, bytes);
    for (d = n_dims; d > 0; d--) {       /* an empty tensor's strides may not fit: 0 then */
        int64_t size = dims[d - 1];
        dims[n_dims + d - 1] = step;
        if (size > 1 && step > INT64_MAX / size) step = 0;
        else if (size) step *= size;
    }
    slot->dims = dims;
    slot->n_dims = n_dims;
    return dims;
}

static ckr_result ckr__st_tensor(ckr__st *s, const char *name, size_t name_len)
{
    uint64_t at = s->j.base + (uint64_t)(s->j.p - s->j.begin);
    uint32_t n_dims;
    const int64_t *dims;
    ckr__st_cell *cell;
    ckr_result r = ckr__st_fields(s, name);
    if (r != CKR_OK) return r;
    n_dims = (uint32_t)(s->dims.size / sizeof *dims);    /* the header is below 4 GiB     */
    dims = ckr__st_keep_dims(s, n_dims);
    cell = dims ? CKR__NEW(s->c, ckr__st_cell) : NULL;
    if (!cell) return s->c->err->code;
    r = ckr__st_check(s, name, at, dims, n_dims);
    if (r != CKR_OK) return r;
    cell->key.kind = CKR_NODE_STR;
    cell->key.id = ++s->c->n_nodes;
    cell->key.count = name_len;
    cell->key.u.str = name;
    cell->node.kind = CKR_NODE_TENSOR;
    cell->node.id = ++s->c->n_nodes;
    cell->node.u.view = &cell->view;
    cell->view.dtype = s->dtype;
    cell->view.file = s->file;
    cell->view.data_offset = s->data + s->begin;
    cell->view.data_bytes = s->end - s->begin;
    cell->view.layout = s->bits % 8 ? "packed" : NULL;
    cell->view.n_dims = n_dims;
    cell->view.shape = dims;
    cell->view.stride = dims + n_dims;
    if (s->begin != s->reached) s->ordered = false;
    s->reached = s->end;
    if (s->last) s->last->node.attrs = &cell->key;       /* a key begins its cell         */
    else s->first = cell;
    s->last = cell;
    s->root->count++;
    return CKR_OK;
}

/* The list of tensors becomes the root's pairs, at their exact number. */
static ckr_result ckr__st_pairs(ckr__st *s)
{
    ckr__st_cell *cell = s->first, *next;
    ckr_node **items = CKR__NEW_N(s->c, ckr_node *, 2 * s->root->count);
    if (!items) return s->c->err->code;
    s->root->u.items = items;
    for (; cell; cell = next) {
        next = (ckr__st_cell *)(void *)cell->node.attrs;
        cell->node.attrs = NULL;
        *items++ = &cell->key;
        *items++ = &cell->node;
    }
    return CKR_OK;
}

static ckr_result ckr__st_metadata(ckr__st *s)
{
    uint64_t i, at = s->j.base + (uint64_t)(s->j.p - s->j.begin);
    ckr_node *n = NULL;
    ckr_result r;
    if (s->metadata)
        return ckr__fail(s->c->err, CKR_ITEM_ST_DUPLICATE, s->j.path, at, "__metadata__",
                         "\"__metadata__\" twice");
    s->metadata = true;
    r = ckr__json_value(&s->j, &n);
    if (r != CKR_OK || n->kind == CKR_NODE_NONE) return r;
    for (i = 0; n->kind == CKR_NODE_DICT && i < n->count; i++)
        if (n->u.items[2 * i + 1]->kind != CKR_NODE_STR) break;
    if (n->kind != CKR_NODE_DICT || i < n->count)
        return ckr__fail(s->c->err, CKR_ITEM_ST_METADATA, s->j.path, at, "__metadata__", NULL);
    s->root->attrs = n;
    return CKR_OK;
}

static int ckr__st_cmp(const void *a, const void *b)
{
    const ckr_view *x = &((const ckr__st_cell *)a)->view, *y = &((const ckr__st_cell *)b)->view;
    if (x->data_offset != y->data_offset) return x->data_offset < y->data_offset ? -1 : 1;
    return x->data_bytes < y->data_bytes ? -1 : x->data_bytes > y->data_bytes;
}

/* The tensors cover the data, each byte once. Most headers are in this order already. */
static ckr_result ckr__st_chain(ckr__st *s)
{
    size_t i, n = (size_t)s->root->count, bytes = n * sizeof(void *);
    void **cells;
    ckr_result r = CKR_OK;
    if (!s->ordered) {
        cells = (void **)ckr__heap_alloc(s->c, bytes);
        if (!cells) return CKR_E_NOMEM;
        for (i = 0; i < n; i++) cells[i] = s->root->u.items[2 * i];      /* a key begins its cell */
        if (!ckr__sort(s->c, cells, n, ckr__st_cmp)) r = CKR_E_NOMEM;
        for (i = 0, s->reached = 0; i < n && r == CKR_OK; i++) {
            const ckr__st_cell *cell = (const ckr__st_cell *)cells[i];
            uint64_t begin = cell->view.data_offset - s->data;
            if (begin != s->reached)
                r = ckr__fail(s->c->err, CKR_ITEM_ST_LAYOUT, s->j.path, cell->view.data_offset,
                              cell->key.u.str,
                              "%s: the tensor begins at data byte %llu, the one before it ends "
                               "at %llu",
                              begin < s->reached ? "overlap" : "hole", (unsigned long long)begin,
                              (unsigned long long)s->reached);
            s->reached = begin + cell->view.data_bytes;
        }
        ckr__heap_free(s->c, cells, bytes);
    }
    if (r == CKR_OK && s->reached != s->n_data)
        r = ckr__fail(s->c->err, CKR_ITEM_ST_LAYOUT, s->j.path, s->data + s->reached, NULL,
                      "the tensors end at data byte %llu, the file has %llu",
                      (unsigned long long)s->reached,
                      (unsigned long long)s->n_data);
    return r;
}

static ckr_result ckr__st_header(ckr__st *s)
{
    const ckr_node *dup = NULL;
    ckr_result r;
    if (s->j.p >= s->j.end || *s->j.p != '{')
        return ckr__json_fail(&s->j, CKR_ITEM_ST_HEADER, s->j.p, "'{'");
    s->j.p++;
    if (!ckr__st_take(s, '}')) {
        do {
            const char *name;
            size_t n;
            r = ckr__st_string(s, &name, &n);
            if (r != CKR_OK) return r;
            if (!ckr__st_take(s, ':')) return ckr__st_fail(s, "':'");
            r = n == 12 && !memcmp(name, "__metadata__", 12) ? ckr__st_metadata(s)
                : ckr__st_tensor(s, name, n);
            if (r != CKR_OK) return r;
        } while (ckr__st_take(s, ','));
        if (!ckr__st_take(s, '}')) return ckr__st_fail(s, "',' or '}'");
    }
    ckr__json_blank(&s->j);
    if (s->j.p < s->j.end)
        return ckr__json_fail(&s->j, CKR_ITEM_ST_HEADER, s->j.p, "only blanks behind the object");
    r = ckr__st_pairs(s);
    if (r == CKR_OK) r = ckr__dict_duplicate(s->c, s->root, &dup);
    if (r == CKR_OK && dup)
        r = ckr__fail(s->c->err, CKR_ITEM_ST_DUPLICATE, s->j.path, CKR_NO_OFFSET, dup->u.str,
                      "the header names \"%.100s\" twice", dup->u.str);
    return r == CKR_OK ? ckr__st_chain(s) : r;
}

/* `file` is open in c. The root is a DICT of TENSORs in the header's order; __metadata__ is its
   attrs. */
static ckr_result ckr__safetensors_load(ckr__ctx *c, uint32_t file, ckr_node **root)
{
    const char *path = ckr__file_path(c, file);
    uint64_t size = c->files[file].size, n;
    uint8_t head[8], *text;
    ckr__st s;
    ckr_result r;
    if (size < 8)
        return ckr__fail(c->err, CKR_ITEM_ST_HEADER, path, 0, NULL,
                         "the file has %llu bytes, a header length needs 8",
                         (unsigned long long)size);
    r = ckr__file_read(c, file, 0, head, 8);
    if (r != CKR_OK) return r;
    n = ckr__load_u64(head);
    if (n > size - 8)
        return ckr__fail(c->err, CKR_ITEM_ST_HEADER, path, 0, NULL,
                         "the header length is %llu, the file has %llu bytes",
                         (unsigned long long)n, (unsigned long long)size);
    if (n > c->limits.max_json_bytes || n > UINT32_MAX)
        return ckr__fail(c->err, CKR_ITEM_LIMIT, path, 0, NULL,
                         "the header length is %llu, max_json_bytes is %llu",
                         (unsigned long long)n, (unsigned long long)c->limits.max_json_bytes);
    text = (uint8_t *)ckr__arena_raw(c, (size_t)n + 1);
    if (!text) return c->err->code;
    text[n] = 0;
    r = ckr__file_read(c, file, 8, text, (size_t)n);
    if (r != CKR_OK) return r;
    memset(&s, 0, sizeof s);
    ckr__json_init(&s.j, c, path, 8, text, (size_t)n, 0);
    if (s.j.max_depth > CKR__ST_DEPTH) s.j.max_depth = CKR__ST_DEPTH;
    s.c = s.dims.c = c;
    s.text = text;
    s.file = file;
    s.data = 8 + n;
    s.n_data = size - s.data;
    s.ordered = true;
    s.root = ckr__node(c, CKR_NODE_DICT);
    r = s.root ? ckr__st_header(&s) : c->err->code;
    ckr__buf_free(&s.dims);
    if (r == CKR_OK) *root = s.root;
    return r;
}

/* >>hf_index ------------------------------------------------------------------ */
/* Hugging Face's *.index.json beside its shards: {"metadata": {...}, "weight_map": {"tensor":
   "model-00001-of-00002.safetensors", ...}}. Its metadata is a hint. A shard is a plain file name
   in the index's folder; a tensor of the map is in that shard and in no other of the map's shards;
   a tensor that the map does not name is left out, with a line in the log. */

static bool ckr__hf_plain_name(const ckr_node *n)
{
    uint64_t i;
    if (n->kind != CKR_NODE_STR || !n->count || !strcmp(n->u.str, ".") || !strcmp(n->u.str, ".."))
        return false;
    for (i = 0; i < n->count; i++)
        if ((uint8_t)n->u.str[i] < 0x20 || strchr("/\\:", n->u.str[i])) return false;
    return true;
}

/* The weight_map, checked: a DICT of STRs. `*metadata` is the index's, or NULL. */
static ckr_result ckr__hf_index(ckr__ctx *c, const char *path, ckr_node **weight_map,
                                const ckr_node **metadata)
{
    ckr_node *root = NULL;
    const ckr_node *map;
    uint64_t i;
    ckr_result r = ckr__json_load(c, path, &root);
    if (r != CKR_OK) return r;
    map = ckr_node_get(root, "weight_map");
    if (!ckr_node_is_dict(map))
        return ckr__fail(c->err, CKR_ITEM_HF_INDEX, path, CKR_NO_OFFSET, NULL,
                         "there is no object \"weight_map\"");
    for (i = 0; i < map->count; i++) {
        const ckr_node *shard = map->u.items[2 * i + 1];
        if (shard->kind != CKR_NODE_STR)
            return ckr__fail(c->err, CKR_ITEM_HF_INDEX, path, CKR_NO_OFFSET,
                             map->u.items[2 * i]->u.str,
                             "weight_map holds something that is not a file name");
        if (!ckr__hf_plain_name(shard))
            return ckr__fail(c->err, CKR_ITEM_HF_SHARD_NAME, path, CKR_NO_OFFSET,
                             map->u.items[2 * i]->u.str,
                             "\"%.100s\" is not a plain file name", shard->u.str);
    }
    for (i = 0; i < root->count; i++)                   /* the same node, not const */
        if (root->u.items[2 * i + 1] == map) *weight_map = root->u.items[2 * i + 1];
    *metadata = ckr_node_get(root, "metadata");
    return CKR_OK;
}

typedef struct ckr__hf_join {
    ckr__ctx       *c;
    const char     *path;
    const ckr_node *map;
    ckr_node      **found;     /* for each name of the map                               */
    ckr__map        names;     /* tensor -> its place in the map                         */
} ckr__hf_join;

static void ckr__hf_extra(ckr__hf_join *h, const char *shard, const ckr_node *name)
{
    ckr_error note;
    if (!h->c->env.log_fn) return;
    memset(&note, 0, sizeof note);
    ckr__fail(&note, CKR_ITEM_HF_EXTRA, shard, CKR_NO_OFFSET, name->u.str, NULL);
    h->c->env.log_fn(h->c->env.user, &note);
}

/* Takes the tensors of one shard. */
static ckr_result ckr__hf_shard(ckr__hf_join *h, const char *shard, const ckr_node *tensors)
{
    uint64_t i, at;
    for (i = 0; i < tensors->count; i++) {
        const ckr_node *name = tensors->u.items[2 * i];
        if (!ckr__map_find(&h->names, name->u.str, (size_t)name->count, &at)) {
            ckr__hf_extra(h, shard, name);
            continue;
        }
        if (h->found[at] || strcmp(h->map->u.items[2 * at + 1]->u.str, shard) != 0)
            return ckr__fail(h->c->err, CKR_ITEM_HF_DUPLICATE, h->path, CKR_NO_OFFSET, name->u.str,
                             "%.100s holds the tensor, the index says %.100s", shard,
                             h->map->u.items[2 * at + 1]->u.str);
        h->found[at] = tensors->u.items[2 * i + 1];
    }
    return CKR_OK;
}

static ckr_result ckr__hf_load_shards(ckr__hf_join *h)
{
    ckr__ctx *c = h->c;
    ckr__map seen;
    uint64_t i;
    const char *slash = strrchr(h->path, '/');
    ckr_result r = CKR_OK;
    memset(&seen, 0, sizeof seen);
    seen.c = c;
    for (i = 0; i < h->map->count && r == CKR_OK; i++) {
        const ckr_node *key = h->map->u.items[2 * i];
        if (!ckr__map_put(&h->names, key->u.str, (size_t)key->count, i, NULL)) r = CKR_E_NOMEM;
    }
    for (i = 0; i < h->map->count && r == CKR_OK; i++) {
        const ckr_node *shard = h->map->u.items[2 * i + 1];
        ckr_node *tensors = NULL;
        const char *path;
        uint32_t file;
        bool had;
        if (!ckr__map_put(&seen, shard->u.str, (size_t)shard->count, 0, &had)) r = CKR_E_NOMEM;
        if (r != CKR_OK || had) continue;
        path = ckr__printf(c, "%.*s%s", slash ? (int)(slash + 1 - h->path) : 0, h->path,
                           shard->u.str);
        r = path ? ckr__file_open(c, path, &file) : CKR_E_NOMEM;
        if (r == CKR_OK) r = ckr__safetensors_load(c, file, &tensors);
        if (r == CKR_OK) r = ckr__hf_shard(h, shard->u.str, tensors);
    }
    ckr__map_free(&seen);
    return r;
}

/* All tensors of the index's map, in its order, as one DICT; the index's metadata is its attrs. */
static ckr_result ckr__safetensors_load_index(ckr__ctx *c, const char *path, ckr_node **root)
{
    ckr__hf_join h;
    ckr_node *map = NULL, *out;
    const ckr_node *metadata = NULL;
    uint64_t i;
    ckr_result r = ckr__hf_index(c, path, &map, &metadata);
    if (r != CKR_OK) return r;
    memset(&h, 0, sizeof h);
    h.c = h.names.c = c;
    h.path = path;
    h.map = map;
    h.found = CKR__NEW_N(c, ckr_node *, map->count);
    out = h.found ? ckr__node(c, CKR_NODE_DICT) : NULL;
    r = out ? ckr__hf_load_shards(&h) : c->err->code;
    for (i = 0; i < map->count && r == CKR_OK; i++) {
        if (!h.found[i])
            r = ckr__fail(c->err, CKR_ITEM_HF_MISSING, path, CKR_NO_OFFSET,
                          map->u.items[2 * i]->u.str,
                          "%.100s does not hold the tensor", map->u.items[2 * i + 1]->u.str);
        else if (!ckr__node_pair(c, out, map->u.items[2 * i], h.found[i]))
            r = CKR_E_NOMEM;
    }
    ckr__map_free(&h.names);
    if (r == CKR_OK) *root = out;
    return r;
}

/* >>convert ------------------------------------------------------------------- */
/* Casts among floating dtypes: round to nearest even, as torch does on a CPU (bf16 and f16 go
   through f32; a NaN becomes the quiet NaN 0x7fc0 in bf16 and keeps its payload's top bits in f16).
   */

static float ckr__f32_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static uint32_t ckr__bits_of_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static uint16_t ckr__bf16_of_f32(float f)
{
    uint32_t u = ckr__bits_of_f32(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static float ckr__f32_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    if (e == 31) return ckr__f32_of_bits(sign | 0x7f800000u | m << 13);
    if (e != 0) return ckr__f32_of_bits(sign | (e + 112) << 23 | m << 13);
    {
        float f = (float)m * 5.9604644775390625e-8f;           /* 2^-24 */
        return ckr__f32_of_bits(sign | ckr__bits_of_f32(f));
    }
}

static uint16_t ckr__f16_of_f32(float f)
{
    uint32_t u = ckr__bits_of_f32(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffffu, m, shift, half;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);     /* 65520 and above round to inf */
    if (a >= 0x38800000u) {                                      /* normal: 2^-14 and above      */
        a -= 0x38000000u;
        return (uint16_t)(sign | (a + 0xfff + (a >> 13 & 1)) >> 13);
    }
    if (a < 0x33000000u) return (uint16_t)sign;                  /* below half of 2^-24          */
    m = (a & 0x7fffff) | 0x800000;
    shift = 126 - (a >> 23);
    half = 1u << (shift - 1);
    return (uint16_t)(sign | (m + half - 1 + (m >> shift & 1)) >> shift);
}

/* One element as a double; exact for every floating dtype and for integers up to 2^53. */
static double ckr__load_f64(ckr_dtype t, const uint8_t *p)
{
    float f;
    double d;
    int64_t i;
    switch ((int)t) {
    case CKR_DTYPE_F32:  memcpy(&f, p, 4); return (double)f;
    case CKR_DTYPE_F64:  memcpy(&d, p, 8); return d;
    case CKR_DTYPE_BF16: {
        uint16_t h;
        memcpy(&h, p, 2);
        return (double)ckr__f32_of_bits((uint32_t)h << 16);
    }
    case CKR_DTYPE_F16:  { uint16_t h; memcpy(&h, p, 2); return (double)ckr__f32_of_f16(h); }
    case CKR_DTYPE_I64:  memcpy(&i, p, 8); return (double)i;
    case CKR_DTYPE_I32:  { int32_t v; memcpy(&v, p, 4); return v; }
    case CKR_DTYPE_I16:  { int16_t v; memcpy(&v, p, 2); return v; }
    case CKR_DTYPE_I8:   return (int8_t)*p;
    case CKR_DTYPE_U8:
    case CKR_DTYPE_BOOL: return *p;
    default: return 0;
    }
}

static bool ckr__is_float(ckr_dtype t)
{
    return t == CKR_DTYPE_F32 || t == CKR_DTYPE_F64 || t == CKR_DTYPE_BF16 || t == CKR_DTYPE_F16;
}

/* Between floating dtypes only; the caller asked ckr__is_float of both. */
static void ckr__convert(ckr_dtype to, uint8_t *dst, ckr_dtype from, const uint8_t *src, uint64_t n)
{
    const size_t a = ckr_dtype_size(from), b = ckr_dtype_size(to);
    uint64_t i;
    for (i = 0; i < n; i++, src += a, dst += b) {
        double d = ckr__load_f64(from, src);
        float f = (float)d;
        uint16_t h;
        if (to == CKR_DTYPE_F64) {
            memcpy(dst, &d, 8);
        } else if (to == CKR_DTYPE_F32) {
            memcpy(dst, &f, 4);
        } else {
            h = to == CKR_DTYPE_BF16 ? ckr__bf16_of_f32(f) : ckr__f16_of_f32(f);
            memcpy(dst, &h, 2);
        }
    }
}

/* Reverses each unit of `unit` bytes, in place. */
static void ckr__swap_bytes(uint8_t *p, size_t n, size_t unit)
{
    size_t i, k;
    if (unit < 2) return;
    for (i = 0; i + unit <= n; i += unit)
        for (k = 0; k < unit / 2; k++) {
            uint8_t t = p[i + k];
            p[i + k] = p[i + unit - 1 - k];
            p[i + unit - 1 - k] = t;
        }
}

/* >>zip ----------------------------------------------------------------------- */
/* A zip archive inside a slice of an open file. Layout, all little-endian: members (local header
   of 30 bytes + name + extra, payload, optional descriptor), then the directory (46 bytes + name +
   extra + comment per member), then optionally the zip64 end record (56) and its locator (20), then
   the end record (22 + comment). Offsets count from the slice's first byte.
   What counts is the directory;
   of a local header only the two lengths that lead to the payload, and
   its name, which must be the directory's. Invariants after ckr__zip_open: members lie before the
   directory and are disjoint, names are unique under ASCII case folding and hold no NUL, backslash,
   empty or ".." component. Payloads are used in place, so only stored members have one.          */

#define CKR__ZIP_DEFLATE 8
#define CKR__ZIP_NONE UINT32_MAX

typedef struct ckr__member {
    const char *name;          /* whole name, NUL-terminated                           */
    uint64_t    header;        /* of the local header, from the slice's first byte     */
    uint64_t    offset;        /* of the payload, in the file                          */
    uint64_t    size;          /* of the payload as stored                             */
    uint32_t    crc;           /* CRC-32 of the payload; 0 also means "not computed"   */
    uint32_t    storage;       /* for the reader above: an index, or CKR__ZIP_NONE     */
    uint16_t    name_len, method;
    uint32_t    hash;
} ckr__member;

typedef struct ckr__zip {
    ckr__ctx    *c;
    uint32_t     file;
    uint64_t     base, size;   /* the slice                                            */
    uint64_t     dir_offset, dir_size;
    ckr__member *members;
    uint64_t     n;
    uint32_t    *table;        /* index + 1 by hash of the folded name; power of two   */
    size_t       mask;
    uint64_t     seed;         /* so that colliding names cannot be prepared           */
} ckr__zip;

static ckr_result ckr__zip_fail(const ckr__zip *z, ckr_item item, uint64_t offset,
                                const char *where,
                                const char *text)
{
    return ckr__fail(z->c->err, item, ckr__file_path(z->c, z->file), z->base + offset, where, "%s",
                     text ? text : ckr__item_text[item]);
}

/* The zip64 end record, when the locator stands before the end record at `end`. */
static ckr_result ckr__zip_end64(ckr__zip *z, uint64_t end, const uint8_t *locator,
                                 const uint8_t *e32)
{
    uint8_t e[56];
    ckr_result r;
    const uint64_t at = ckr__load_u64(locator + 8);
    if (ckr__load_u32(locator + 4) != 0 || ckr__load_u32(locator + 16) != 1)
        return ckr__zip_fail(z, CKR_ITEM_ZIP_END, end - 20, NULL,
                             "the archive spans several disks");
    if (!ckr__range_ok(at, 56, end - 20))
        return ckr__zip_fail(z, CKR_ITEM_ZIP_END, end - 20, NULL,
                             "the zip64 locator points behind itself");
    r = ckr__file_read(z->c, z->file, z->base + at, e, sizeof e);
    if (r != CKR_OK) return r;
    if (ckr__load_u32(e) != 0x06064b50 || ckr__load_u64(e + 4) < 44)
        return ckr__zip_fail(z, CKR_ITEM_ZIP_END, at, NULL,
                             "no zip64 end record where the locator points");
    if (ckr__load_u32(e + 16) || ckr__load_u32(e + 20) ||
        ckr__load_u64(e + 24) != ckr__load_u64(e + 32))
        return ckr__zip_fail(z, CKR_ITEM_ZIP_END, at, NULL, "the archive spans several disks");
    z->n = ckr__load_u64(e + 32);
    z->dir_size = ckr__load_u64(e + 40);
    z->dir_offset = ckr__load_u64(e + 48);
    if ((ckr__load_u16(e32 + 10) != 0xFFFF && ckr__load_u16(e32 + 10) != z->n) ||
        (ckr__load_u32(e32 + 12) != 0xFFFFFFFF && ckr__load_u32(e32 + 12) != z->dir_size) ||
        (ckr__load_u32(e32 + 16) != 0xFFFFFFFF && ckr__load_u32(e32 + 16) != z->dir_offset))
        return ckr__zip_fail(z, CKR_ITEM_ZIP_END, at, NULL,
                             "the 32-bit and 64-bit end records disagree");
    if (!ckr__range_ok(z->dir_offset, z->dir_size, at))
        return ckr__zip_fail(z, CKR_ITEM_ZIP_END, at, NULL,
                             "the directory does not lie before its end record");
    return CKR_OK;
}

static ckr_result ckr__zip_end_parse(ckr__zip *z, const uint8_t *tail, size_t n, size_t at)
{
    const uint8_t *e = tail + at;
    const uint64_t end = z->size - n + at;
    if (ckr__load_u16(e + 4) || ckr__load_u16(e + 6) ||
        ckr__load_u16(e + 8) != ckr__load_u16(e + 10))
        return ckr__zip_fail(z, CKR_ITEM_ZIP_END, end, NULL, "the archive spans several disks");
    if (at >= 20 && ckr__load_u32(e - 20) == 0x07064b50) {
        ckr_result r = ckr__zip_end64(z, end, e - 20, e);
        if (r != CKR_OK) return r;
    } else {
        z->n = ckr__load_u16(e + 10);
        z->dir_size = ckr__load_u32(e + 12);
        z->dir_offset = ckr__load_u32(e + 16);
        if (z->n == 0xFFFF || z->dir_size == 0xFFFFFFFF || z->dir_offset == 0xFFFFFFFF)
            return ckr__zip_fail(z, CKR_ITEM_ZIP_END, end, NULL,
                                 "saturated fields without a zip64 end record");
        if (!ckr__range_ok(z->dir_offset, z->dir_size, end))
            return ckr__zip_fail(z, CKR_ITEM_ZIP_END, end, NULL,
                                 "the directory does not lie before its end record");
    }
    if (z->n > z->dir_size / 46 || z->n >= UINT32_MAX)
        return ckr__fail(z->c->err, CKR_ITEM_ZIP_END, ckr__file_path(z->c, z->file), z->base + end,
                         NULL,
                         "%llu members cannot be in a directory of %llu bytes",
                             (unsigned long long)z->n,
                         (unsigned long long)z->dir_size);
    return CKR_OK;
}

/* The end record nearest the end whose comment reaches exactly to the slice's last byte. */
static ckr_result ckr__zip_end(ckr__zip *z)
{
    size_t n = z->size < 65535 + 42 ? (size_t)z->size : 65535 + 42, i;
    uint8_t *tail = (uint8_t *)ckr__heap_alloc(z->c, n);
    ckr_result r;
    if (!tail) return CKR_E_NOMEM;
    r = ckr__file_read(z->c, z->file, z->base + (z->size - n), tail, n);
    if (r == CKR_OK) {
        for (i = n >= 22 ? n - 22 + 1 : 0; i > 0; i--)
            if (ckr__load_u32(tail + i - 1) == 0x06054b50 &&
                ckr__load_u16(tail + i + 19) == n - (i - 1) - 22) break;
        r = i ? ckr__zip_end_parse(z, tail, n, i - 1)
              : ckr__zip_fail(z, CKR_ITEM_ZIP_END, z->size, NULL,
                              "no end record at the end: truncated, or bytes follow the archive");
    }
    ckr__heap_free(z->c, tail, n);
    return r;
}

static bool ckr__zip_name_ok(const char *s, size_t n)
{
    size_t i, start = 0;
    if (n == 0) return false;
    for (i = 0; i <= n; i++) {
        if (i < n && (s[i] == 0 || s[i] == '\\')) return false;
        if (i < n && s[i] != '/') continue;
        if (i == start && i < n)
            return false;   /* empty, or a leading '/' */
        if (i - start == 2 && s[start] == '.' && s[start + 1] == '.') return false;
        start = i + 1;
    }
    return true;
}

/* Letters of both cases (and a few other pairs) fold together; equality is tested exactly. */
static uint32_t ckr__zip_hash(const ckr__zip *z, const char *s, size_t n)
{
    return (uint32_t)(ckr__hash_keyed(z->seed, s, n, 0x2020202020202020u) >> 32);
}

static uint8_t ckr__fold(char ch)
{
    return (uint8_t)(ch >= 'A' && ch <= 'Z' ? ch + 32 : ch);
}

static bool ckr__zip_same_folded(const ckr__member *a, const ckr__member *b)
{
    size_t i;
    if (a->name_len != b->name_len) return false;
    for (i = 0; i < a->name_len; i++)
        if (ckr__fold(a->name[i]) != ckr__fold(b->name[i])) return false;
    return true;
}

/* From extra block 1, in this order, the fields whose 32-bit counterpart is saturated. */
static bool ckr__zip_extra(const uint8_t *x, size_t n, uint64_t *usize, uint64_t *csize,
                           uint64_t *header)
{
    uint64_t *field[3];
    size_t i;
    field[0] = *usize == 0xFFFFFFFF ? usize : NULL;
    field[1] = *csize == 0xFFFFFFFF ? csize : NULL;
    field[2] = *header == 0xFFFFFFFF ? header : NULL;
    while (n >= 4) {
        size_t len = ckr__load_u16(x + 2), at = 0;
        if (len > n - 4) return false;
        if (ckr__load_u16(x) == 1) {
            for (i = 0; i < 3; i++) {
                if (!field[i]) continue;
                if (len - at < 8) return false;
                *field[i] = ckr__load_u64(x + 4 + at);
                field[i] = NULL;
                at += 8;
            }
        }
        x += 4 + len;
        n -= 4 + len;
    }
    return n == 0 && !field[0] && !field[1] && !field[2];
}

static ckr_result ckr__zip_entry(ckr__zip *z, const uint8_t *e, uint64_t left, ckr__member *m,
                                 uint64_t *used)
{
    const uint64_t at = z->dir_offset + z->dir_size - left;
    uint64_t usize, csize, n;
    unsigned flags;
    if (left < 46 || ckr__load_u32(e) != 0x02014b50)
        return ckr__zip_fail(z, CKR_ITEM_ZIP_DIRECTORY, at, NULL,
                             "no directory entry where one was expected");
    m->name_len = ckr__load_u16(e + 28);
    n = (uint64_t)46 + m->name_len + ckr__load_u16(e + 30) + ckr__load_u16(e + 32);
    if (n > left)
        return ckr__zip_fail(z, CKR_ITEM_ZIP_DIRECTORY, at, NULL,
                             "a directory entry passes the directory's end");
    m->name = (const char *)e + 46;
    if (!ckr__zip_name_ok(m->name, m->name_len))
        return ckr__zip_fail(z, CKR_ITEM_ZIP_NAME, at, NULL,
                             "a name that is empty, absolute, or has a NUL, backslash or '..'");
    flags = ckr__load_u16(e + 8);
    m->method = ckr__load_u16(e + 10);
    m->crc = ckr__load_u32(e + 16);
    csize = ckr__load_u32(e + 20);
    usize = ckr__load_u32(e + 24);
    m->header = ckr__load_u32(e + 42);
    if (flags & (1u << 0 | 1u << 5 | 1u << 6 | 1u << 13))
        return ckr__zip_fail(z, CKR_ITEM_ZIP_FLAGS, at, NULL, NULL);
    if (m->method != 0 && m->method != CKR__ZIP_DEFLATE)
        return ckr__fail(z->c->err, CKR_ITEM_ZIP_METHOD, ckr__file_path(z->c, z->file),
                         z->base + at, NULL,
                         "compression method %u, expected 0 (stored)", (unsigned)m->method);
    if (ckr__load_u16(e + 34) != 0 ||
        !ckr__zip_extra(e + 46 + m->name_len, ckr__load_u16(e + 30), &usize, &csize, &m->header))
        return ckr__zip_fail(z, CKR_ITEM_ZIP_DIRECTORY, at, NULL,
                             "the extra field of a directory entry is malformed");
    if (m->method == 0 && csize != usize)
        return ckr__zip_fail(z, CKR_ITEM_ZIP_DIRECTORY, at, NULL,
                             "a stored member has two different sizes");
    m->size = csize;
    m->storage = CKR__ZIP_NONE;
    *used = n;
    return CKR_OK;
}

static ckr_result ckr__zip_insert(ckr__zip *z, uint8_t *dir, uint64_t index)
{
    ckr__member *m = &z->members[index];
    size_t i;
    m->hash = ckr__zip_hash(z, m->name, m->name_len);
    for (i = m->hash & z->mask; z->table[i]; i = (i + 1) & z->mask) {
        const ckr__member *o = &z->members[z->table[i] - 1];
        if (o->hash != m->hash || !ckr__zip_same_folded(o, m)) continue;
        dir[(const uint8_t *)m->name - dir + m->name_len] = 0;
        return ckr__fail(z->c->err, CKR_ITEM_ZIP_DUPLICATE, ckr__file_path(z->c, z->file),
                         z->base + m->header, m->name,
                         "two members have this name (ignoring case)");
    }
    z->table[i] = (uint32_t)index + 1;
    return CKR_OK;
}

/* Names stay where the directory was read to; the byte behind each becomes its NUL once the entry
   that begins there has been checked.                                                         */
static ckr_result ckr__zip_directory(ckr__zip *z)
{
    const uint8_t *loaded;
    uint8_t *dir;
    uint64_t i, at = 0, used = 0;
    size_t cap = 64;
    ckr_result r = ckr__file_load(z->c, z->file, z->base + z->dir_offset, z->dir_size,
                                  z->c->limits.max_metadata_bytes, &loaded);
    if (r != CKR_OK) return r;
    dir = (uint8_t *)(uintptr_t)loaded;
    while (cap < z->n * 2) cap *= 2;
    z->mask = cap - 1;
    z->seed = (uint64_t)(uintptr_t)dir * 0x9e3779b97f4a7c15u;
    z->members = CKR__NEW_N(z->c, ckr__member, z->n);
    z->table = CKR__NEW_N(z->c, uint32_t, cap);
    if (!z->members || !z->table) return z->c->err->code;
    for (i = 0; i < z->n; i++) {
        r = ckr__zip_entry(z, dir + at, z->dir_size - at, &z->members[i], &used);
        if (r != CKR_OK) return r;
        if (i) dir[(const uint8_t *)z->members[i - 1].name - dir + z->members[i - 1].name_len] = 0;
        at += used;
        r = ckr__zip_insert(z, dir, i);
        if (r != CKR_OK) return r;
    }
    if (at != z->dir_size)
        return ckr__zip_fail(z, CKR_ITEM_ZIP_DIRECTORY, z->dir_offset + at, NULL,
                             "the directory holds more than its number of members");
    if (i) dir[(const uint8_t *)z->members[i - 1].name - dir + z->members[i - 1].name_len] = 0;
    return CKR_OK;
}

static int ckr__zip_by_header(const void *a, const void *b)
{
    const uint64_t x = ((const ckr__member *)a)->header, y = ((const ckr__member *)b)->header;
    return x < y ? -1 : x > y;
}

/* One read serves neighbouring headers: through gaps up to 2 KiB, 256 KiB at most, so that an
   archive of small tensors costs few calls and one of large tensors reads little.                */
#define CKR__ZIP_GAP 2048u
#define CKR__ZIP_WINDOW ((size_t)256 << 10)

static ckr_result ckr__zip_window(ckr__zip *z, ckr__member **m, uint64_t i, uint8_t *buf,
                                  uint64_t *end)
{
    const uint64_t begin = m[i]->header;
    uint64_t stop = begin + 30 + m[i]->name_len;
    for (i++; i < z->n; i++) {
        const uint64_t next = m[i]->header + 30 + m[i]->name_len;
        if (m[i]->header > stop + CKR__ZIP_GAP || next - begin > CKR__ZIP_WINDOW) break;
        if (next > z->dir_offset) break;
        if (next > stop) stop = next;
    }
    *end = stop;
    return ckr__file_read(z->c, z->file, z->base + begin, buf, (size_t)(stop - begin));
}

static ckr_result ckr__zip_local(ckr__zip *z, ckr__member *m, const uint8_t *h, uint64_t limit)
{
    uint64_t data;
    if (ckr__load_u32(h) != 0x04034b50)
        return ckr__zip_fail(z, CKR_ITEM_ZIP_LOCAL, m->header, m->name,
                             "no local header where the directory says");
    if (ckr__load_u16(h + 26) != m->name_len || memcmp(h + 30, m->name, m->name_len) != 0)
        return ckr__zip_fail(z, CKR_ITEM_ZIP_LOCAL, m->header, m->name,
                             "the local header has another name");
    data = m->header + 30 + m->name_len + ckr__load_u16(h + 28);
    if (data > z->dir_offset || m->size > z->dir_offset - data)
        return ckr__zip_fail(z, CKR_ITEM_ZIP_LOCAL, m->header, m->name,
                             "the member passes the directory's begin");
    if (data + m->size > limit)
        return ckr__zip_fail(z, CKR_ITEM_ZIP_OVERLAP, m->header, m->name,
                             "the member reaches into the next one");
    m->offset = z->base + data;
    return CKR_OK;
}

static ckr_result ckr__zip_locals(ckr__zip *z, ckr__member **m, uint8_t *buf)
{
    uint64_t i, begin = 0, end = 0;
    ckr_result r = CKR_OK;
    for (i = 0; i < z->n && r == CKR_OK; i++) {
        const uint64_t h = m[i]->header, need = (uint64_t)30 + m[i]->name_len;
        if (!ckr__range_ok(h, need, z->dir_offset))
            return ckr__zip_fail(z, CKR_ITEM_ZIP_LOCAL, h < z->size ? h : z->size, m[i]->name,
                                 "the local header does not lie before the directory");
        if (end == 0 || h < begin || h + need > end) {
            begin = h;
            r = ckr__zip_window(z, m, i, buf, &end);
            if (r != CKR_OK) return r;
        }
        r = ckr__zip_local(z, m[i], buf + (h - begin), i + 1 < z->n ? m[i + 1]->header :
                           z->dir_offset);
    }
    return r;
}

static ckr_result ckr__zip_open(ckr__ctx *c, uint32_t file, uint64_t offset, uint64_t size,
                                ckr__zip *z)
{
    ckr__member **order;
    uint8_t *buf;
    uint64_t i;
    bool sorted = true;
    ckr_result r;
    size_t bytes;
    memset(z, 0, sizeof *z);
    z->c = c;
    z->file = file;
    z->base = offset;
    z->size = size;
    r = ckr__zip_end(z);
    if (r == CKR_OK) r = ckr__zip_directory(z);
    if (r != CKR_OK) return r;
    bytes = (size_t)z->n * sizeof *order;
    order = (ckr__member **)ckr__heap_alloc(c, bytes);
    buf = (uint8_t *)ckr__heap_alloc(c, CKR__ZIP_WINDOW + 65536);
    r = order && buf ? CKR_OK : CKR_E_NOMEM;
    if (r == CKR_OK) {
        for (i = 0; i < z->n; i++) {
            order[i] = &z->members[i];
            if (i && order[i]->header < order[i - 1]->header) sorted = false;
        }
        if (!sorted && !ckr__sort(c, (void **)(void *)order, (size_t)z->n, ckr__zip_by_header))
            r = CKR_E_NOMEM;
    }
    if (r == CKR_OK) r = ckr__zip_locals(z, order, buf);
    ckr__heap_free(c, buf, CKR__ZIP_WINDOW + 65536);
    ckr__heap_free(c, order, bytes);
    return r;
}

/* By exact name; NULL when there is none. */
static ckr__member *ckr__zip_find(const ckr__zip *z, const char *name, size_t n)
{
    const uint32_t hash = ckr__zip_hash(z, name, n);
    size_t i;
    if (z->n == 0) return NULL;
    for (i = hash & z->mask; z->table[i]; i = (i + 1) & z->mask) {
        ckr__member *m = &z->members[z->table[i] - 1];
        if (m->hash == hash && m->name_len == n && !memcmp(m->name, name, n)) return m;
    }
    return NULL;
}

/* Payloads are used in place: refuses compressed ones. */
static ckr_result ckr__zip_stored(const ckr__zip *z, const ckr__member *m)
{
    if (m->method == 0) return CKR_OK;
    return ckr__remedy(z->c->err,
                       ckr__zip_fail(z, CKR_ITEM_ZIP_DEFLATED, m->header, m->name,
                                     "compression method 8 (deflate), expected 0 (stored)"),
                       "unpack the archive and pack it again with compression off (zip -0)");
}

/* A member's bytes in private memory, a NUL behind them. */
static ckr_result ckr__zip_load(const ckr__zip *z, const ckr__member *m, const uint8_t **out)
{
    ckr_result r = ckr__zip_stored(z, m);
    if (r != CKR_OK) return r;
    return ckr__file_load(z->c, z->file, m->offset, m->size, z->c->limits.max_metadata_bytes, out);
}

/* >>pickle -------------------------------------------------------------------- */
/* Pickle protocols 0 to 5 as a stack machine that makes nodes. No opcode resolves, imports or calls
   anything: REDUCE, NEWOBJ and BUILD go to the hooks of section torch, which know some globals by
   name and leave every other call as an OBJECT node.
   Memory is linear in the input: an opcode makes at most a few nodes, the memo holds references,
   and nothing is allocated from a declared length before that length is compared with the input.
   Strings and bytes stay where they were read to; each gets its NUL when the byte behind it, the
   next opcode, has been fetched.
   The arguments of a rebuilt tensor are dropped at once: nodes that were pushed once and never
   taken from the memo again go to free lists. A memo slot remembers its node's id; should a pickle
   after all take such a node, the run stops as `stale` and is repeated with everything kept.     */

/* ckr_node.flags of this parser */
#define CKR__N_STR2       1u   /* a Python-2 string: bytes of unknown encoding         */
#define CKR__N_UNHASHABLE 2u   /* a tuple that holds a list, dict or set               */
#define CKR__N_LISTED     4u   /* already in the list of containers with keys          */
#define CKR__N_SHARED     8u   /* more than the place where it was pushed refers to it */

#define CKR__PK_CLASSES   9    /* free lists: nodes without and with 1 to 8 items      */
#define CKR__PK_STORAGE   (sizeof(ckr_view) + sizeof(int64_t))   /* behind a STORAGE node */

typedef struct ckr__nodes { ckr_node **items; size_t n, cap; } ckr__nodes;

typedef struct ckr__pickle {
    ckr__ctx   *c;
    const char *path, *where;  /* for messages                                         */
    uint64_t    base;          /* offset in the file of data[0], or CKR_NO_OFFSET      */
    uint8_t    *data;          /* private memory                                       */
    size_t      size, pos, op; /* op: where the opcode in work stands                  */
    uint8_t    *nul;           /* where a NUL goes once the byte has been used         */
    ckr__nodes  stack, memo, keyed;
    uint32_t   *memo_ids;      /* of the nodes in memo; its capacity is memo's         */
    size_t      memo_count;
    ckr_node   *free_nodes[CKR__PK_CLASSES + 1];    /* the last: STORAGE nodes         */
    bool        keep;          /* nothing is dropped                                   */
    bool        stale;         /* the failure was a dropped node: repeat with keep     */
    size_t     *marks, n_marks, cap_marks, floor;
    uint8_t    *bump, *bump_end;
    ckr_node   *none, *yes, *no, *empty_tuple, *small[256];
    uint64_t    spent;         /* what copies of shared values have cost so far        */
    bool        truncated;     /* the failure was the end of the input                 */
    bool        done;
    struct ckr__torch *torch;  /* what persistent ids mean; never NULL                 */
} ckr__pickle;

static bool ckr__torch_reduce(ckr__pickle *p, ckr_node *callable, ckr_node *args, bool newobj,
                              ckr_node **out);
static bool ckr__torch_build(ckr__pickle *p, ckr_node *target, ckr_node *state);
static bool ckr__torch_persistent(ckr__pickle *p, ckr_node *pid, ckr_node **out);
static void ckr__torch_global(ckr__pickle *p, ckr_node *global);

static bool ckr__pk_fail(ckr__pickle *p, ckr_item item, const char *text)
{
    ckr__fail(p->c->err, item, p->path, p->base == CKR_NO_OFFSET ? p->base : p->base + p->op,
              p->where,
              "pickle byte %llu: %s", (unsigned long long)p->op,
                  text ? text : ckr__item_text[item]);
    return false;
}

static bool ckr__pk_short(ckr__pickle *p)
{
    p->truncated = true;
    return ckr__pk_fail(p, CKR_ITEM_PICKLE_TRUNCATED,
                        "the opcode's argument passes the end of the pickle");
}

/* Copying a value that the memo can hand out again and again must stay linear in the input, too:
   what a writer needs is a small multiple of its input's size, and 64 times that is refused.     */
static bool ckr__pk_charge(ckr__pickle *p, uint64_t n)
{
    const uint64_t most = (uint64_t)p->size * 64 + 65536;
    if (n <= most && p->spent <= most - n) {
        p->spent += n;
        return true;
    }
    ckr__fail(p->c->err, CKR_ITEM_LIMIT, p->path, p->base == CKR_NO_OFFSET ? p->base :
              p->base + p->op,
              p->where, "pickle byte %llu: copies of shared values outgrow the pickle",
              (unsigned long long)p->op);
    return false;
}

/* Not zeroed. Small nodes come from blocks, so that one costs a few instructions. */
static void *ckr__pk_alloc(ckr__pickle *p, size_t n)
{
    uint8_t *at = p->bump;
    n = (n + 7) & ~(size_t)7;
    if ((size_t)(p->bump_end - at) < n) {
        if (n > 8192) return ckr__arena_raw(p->c, n);
        at = (uint8_t *)ckr__arena_raw(p->c, 32768);
        if (!at) return NULL;
        p->bump_end = at + 32768;
    }
    p->bump = at + n;
    return at;
}

static ckr_node *ckr__pk_node(ckr__pickle *p, ckr_node_kind kind, size_t extra)
{
    const size_t cls = extra == CKR__PK_STORAGE ? CKR__PK_CLASSES : extra / sizeof(ckr_node *);
    ckr_node *n = cls <= CKR__PK_CLASSES ? p->free_nodes[cls] : NULL;
    if (n) {
        p->free_nodes[cls] = n->attrs;
    } else {
        n = (ckr_node *)ckr__pk_alloc(p, sizeof *n + extra);
        if (!n) return NULL;
    }
    memset(n, 0, sizeof *n + extra);
    n->kind = (uint8_t)kind;
    n->id = ++p->c->n_nodes;
    return n;
}

/* A tuple, number, string or empty dict that only its holder refers to, and the holder goes. */
static void ckr__pk_drop(ckr__pickle *p, ckr_node *n)
{
    size_t cls = 0;
    if (p->keep || (n->flags & (CKR__N_SHARED | CKR__N_LISTED))) return;
    if (n->kind == CKR_NODE_TUPLE && n->count < CKR__PK_CLASSES) cls = (size_t)n->count;
    else if (n->kind == CKR_NODE_STORAGE) cls = CKR__PK_CLASSES;
    else if (n->kind != CKR_NODE_INT && n->kind != CKR_NODE_STR &&
             (n->kind != CKR_NODE_ODICT || n->attrs)) return;
    n->id = 0;
    n->attrs = p->free_nodes[cls];
    p->free_nodes[cls] = n;
}

static bool ckr__nodes_room(ckr__ctx *c, ckr__nodes *v, size_t need)
{
    size_t cap = v->cap ? v->cap : 256;
    ckr_node **items;
    if (need <= v->cap) return true;
    while (cap < need) cap *= 2;
    if (cap > SIZE_MAX / 2 / sizeof *items) return ckr__nomem(c) != NULL;
    items = (ckr_node **)ckr__heap_alloc(c, cap * sizeof *items);
    if (!items) return false;
    if (v->n) memcpy(items, v->items, v->n * sizeof *items);
    ckr__heap_free(c, v->items, v->cap * sizeof *items);
    v->items = items;
    v->cap = cap;
    return true;
}

static bool ckr__pk_push(ckr__pickle *p, ckr_node *n)
{
    if (!n) return false;
    if (p->stack.n == p->stack.cap && !ckr__nodes_room(p->c, &p->stack, p->stack.n + 1))
        return false;
    p->stack.items[p->stack.n++] = n;
    return true;
}

/* At least n items above the last mark. */
static bool ckr__pk_has(ckr__pickle *p, size_t n)
{
    if (p->stack.n - p->floor >= n) return true;
    return ckr__pk_fail(p, CKR_ITEM_PICKLE_STACK,
                        "the opcode needs more items than lie above the last mark");
}

static ckr_node **ckr__pk_top(ckr__pickle *p, size_t n)
{
    return p->stack.items + p->stack.n - n;
}

static bool ckr__pk_mark(ckr__pickle *p)
{
    if (p->n_marks == p->cap_marks) {
        size_t cap = p->cap_marks ? p->cap_marks * 2 : 64, *marks;
        if (cap > SIZE_MAX / 2 / sizeof *marks) return ckr__nomem(p->c) != NULL;
        marks = (size_t *)ckr__heap_alloc(p->c, cap * sizeof *marks);
        if (!marks) return false;
        if (p->n_marks) memcpy(marks, p->marks, p->n_marks * sizeof *marks);
        ckr__heap_free(p->c, p->marks, p->cap_marks * sizeof *marks);
        p->marks = marks;
        p->cap_marks = cap;
    }
    p->marks[p->n_marks++] = p->stack.n;
    p->floor = p->stack.n;
    return true;
}

/* Drops the last mark: the items above it, `*n` of them from `*first`, leave the stack but stay
   readable until the next push.                                                             */
static bool ckr__pk_unmark(ckr__pickle *p, ckr_node ***first, size_t *n)
{
    size_t at;
    if (p->n_marks == 0)
        return ckr__pk_fail(p, CKR_ITEM_PICKLE_STACK, "the opcode needs a mark and there is none");
    at = p->marks[--p->n_marks];
    p->floor = p->n_marks ? p->marks[p->n_marks - 1] : 0;
    *first = p->stack.items + at;
    *n = p->stack.n - at;
    p->stack.n = at;
    return true;
}

/* >>pickle.text --------------------------------------------------------------- */
/* Arguments: raw bytes, lines, and the text encodings. UTF-8 is strict except that lone surrogates
   pass as three bytes, as Python writes them ("surrogatepass").                               */

static bool ckr__pk_take(ckr__pickle *p, uint64_t n, uint8_t **out)
{
    if (n > p->size - p->pos) return ckr__pk_short(p);
    *out = p->data + p->pos;
    p->pos += (size_t)n;
    return true;
}

static bool ckr__pk_line(ckr__pickle *p, uint8_t **out, size_t *n)
{
    uint8_t *s = p->data + p->pos;
    uint8_t *e = p->size > p->pos ? (uint8_t *)memchr(s, '\n', p->size - p->pos) : NULL;
    if (!e) return ckr__pk_short(p);
    *out = s;
    *n = (size_t)(e - s);
    p->pos += *n + 1;
    return true;
}

static bool ckr__utf8_ok(const uint8_t *s, size_t n)
{
    while (n) {
        size_t k;
        uint32_t v;
        if (n >= 8 && !(ckr__load_u64(s) & 0x8080808080808080u)) { s += 8; n -= 8; continue; }
        if (*s < 0x80) { s++; n--; continue; }
        k = *s >= 0xF0 ? 4 : *s >= 0xE0 ? 3 : 2;
        if (*s < 0xC2 || *s > 0xF4 || k > n) return false;
        if ((s[1] & 0xC0) != 0x80 || (k > 2 && (s[2] & 0xC0) != 0x80) ||
            (k > 3 && (s[3] & 0xC0) != 0x80)) return false;
        v = (uint32_t)s[0] << 8 | s[1];
        if ((k == 3 && v < 0xE0A0) || (k == 4 && (v < 0xF090 || v > 0xF48F))) return false;
        s += k;
        n -= k;
    }
    return true;
}

static size_t ckr__pk_utf8_put(uint8_t *d, uint32_t v)
{
    if (v < 0x80) { d[0] = (uint8_t)v; return 1; }
    if (v < 0x800) {
        d[0] = (uint8_t)(0xC0 | v >> 6);
        d[1] = (uint8_t)(0x80 | (v & 63));
        return 2;
    }
    if (v < 0x10000) {
        d[0] = (uint8_t)(0xE0 | v >> 12);
        d[1] = (uint8_t)(0x80 | (v >> 6 & 63));
        d[2] = (uint8_t)(0x80 | (v & 63));
        return 3;
    }
    d[0] = (uint8_t)(0xF0 | v >> 18);
    d[1] = (uint8_t)(0x80 | (v >> 12 & 63));
    d[2] = (uint8_t)(0x80 | (v >> 6 & 63));
    d[3] = (uint8_t)(0x80 | (v & 63));
    return 4;
}

/* A node whose text lies in the input or in the arena. */
static ckr_node *ckr__pk_text(ckr__pickle *p, ckr_node_kind kind, const void *s, size_t n)
{
    ckr_node *node = ckr__pk_node(p, kind, 0);
    if (!node) return NULL;
    node->u.str = (const char *)s;
    node->count = n;
    return node;
}

static ckr_node *ckr__pk_copy(ckr__pickle *p, ckr_node_kind kind, const void *s, size_t n)
{
    char *d = (char *)ckr__pk_alloc(p, n + 1);
    if (!d) return NULL;
    if (n) memcpy(d, s, n);
    d[n] = 0;
    return ckr__pk_text(p, kind, d, n);
}

static bool ckr__pk_str(ckr__pickle *p, ckr_node_kind kind, uint64_t n)
{
    uint8_t *s;
    if (!ckr__pk_take(p, n, &s)) return false;
    if (kind == CKR_NODE_STR && !ckr__utf8_ok(s, (size_t)n))
        return ckr__pk_fail(p, CKR_ITEM_PICKLE_TEXT, "a string that is no UTF-8");
    p->nul = s + n;
    return ckr__pk_push(p, ckr__pk_text(p, kind, s, (size_t)n));
}

/* Python 2's str: text when it is UTF-8, as torch decodes it, else bytes. */
static ckr_node *ckr__pk_str2(ckr__pickle *p, const uint8_t *s, size_t n)
{
    ckr_node *node = ckr__pk_copy(p, ckr__utf8_ok(s, n) ? CKR_NODE_STR : CKR_NODE_BYTES, s, n);
    if (node) node->flags = CKR__N_STR2;
    return node;
}

static int ckr__hex_digit(uint8_t ch)
{
    if (ch >= '0' && ch <= '9') return ch - '0';
    if (ch >= 'a' && ch <= 'f') return ch - 'a' + 10;
    if (ch >= 'A' && ch <= 'F') return ch - 'A' + 10;
    return -1;
}

static bool ckr__hex_number(const uint8_t *s, size_t n, uint32_t *out)
{
    uint32_t v = 0;
    for (; n; n--, s++) {
        int d = ckr__hex_digit(*s);
        if (d < 0) return false;
        v = v << 4 | (uint32_t)d;
    }
    *out = v;
    return true;
}

/* STRING: Python's repr of a byte string, quotes and backslash escapes. */
static bool ckr__pk_quoted(ckr__pickle *p)
{
    uint8_t *s, *d;
    size_t n, i, k = 0;
    uint32_t v;
    ckr_node *node;
    if (!ckr__pk_line(p, &s, &n)) return false;
    if (n < 2 || s[0] != s[n - 1] || (s[0] != '\'' && s[0] != '"'))
        return ckr__pk_fail(p, CKR_ITEM_PICKLE_TEXT, "a STRING line without its quotes");
    d = (uint8_t *)ckr__pk_alloc(p, n);
    if (!d) return false;
    for (i = 1; i < n - 1; i++) {
        static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
        const char *e;
        if (s[i] != '\\') { d[k++] = s[i]; continue; }
        if (++i >= n - 1)
            return ckr__pk_fail(p, CKR_ITEM_PICKLE_TEXT, "a STRING line that ends in a backslash");
        e = s[i] ? strchr(from, s[i]) : NULL;
        if (e) {
            d[k++] = (uint8_t)to[e - from];
        } else if (s[i] == 'x') {
            if (n - 1 - i < 3 || !ckr__hex_number(s + i + 1, 2, &v))
                return ckr__pk_fail(p, CKR_ITEM_PICKLE_TEXT,
                                    "a STRING line with a broken \\x escape");
            d[k++] = (uint8_t)v;
            i += 2;
        } else if (s[i] >= '0' && s[i] <= '7') {
            size_t stop = i + 3;
            for (v = 0; i < stop && i < n - 1 && s[i] >= '0' && s[i] <= '7'; i++)
                v = v * 8 + (uint32_t)(s[i] - '0');
            d[k++] = (uint8_t)v;
            i--;
        } else {
            d[k++] = '\\';
            d[k++] = s[i];
        }
    }
    d[k] = 0;
    node = ckr__pk_str2(p, d, k);
    return ckr__pk_push(p, node);
}

/* UNICODE: raw-unicode-escape, that is Latin-1 with \uXXXX and \UXXXXXXXX. A backslash escapes only
   when an odd number of them stands before the letter.                                           */
static bool ckr__pk_raw_unicode(ckr__pickle *p)
{
    uint8_t *s, *d;
    size_t n, i, k = 0, slashes = 0;
    if (!ckr__pk_line(p, &s, &n)) return false;
    if (n > SIZE_MAX / 4) return ckr__pk_short(p);
    d = (uint8_t *)ckr__pk_alloc(p, n * 2 + 4);
    if (!d) return false;
    for (i = 0; i < n; i++) {
        const size_t digits = s[i] == 'u' ? 4 : s[i] == 'U' ? 8 : 0;
        uint32_t v = s[i];
        if (digits && slashes % 2 == 1) {
            if (n - i <= digits || !ckr__hex_number(s + i + 1, digits, &v) || v > 0x10FFFF)
                return ckr__pk_fail(p, CKR_ITEM_PICKLE_TEXT,
                                    "a UNICODE line with a broken \\u escape");
            i += digits;
            k--;
        }
        slashes = v == '\\' && s[i] == '\\' ? slashes + 1 : 0;
        k += ckr__pk_utf8_put(d + k, v);
    }
    d[k] = 0;
    return ckr__pk_push(p, ckr__pk_text(p, CKR_NODE_STR, d, k));
}

/* >>pickle.numbers ------------------------------------------------------------ */

static ckr_node *ckr__pk_int(ckr__pickle *p, int64_t v)
{
    ckr_node *n;
    if (v >= 0 && v < 256 && p->small[v]) return p->small[v];
    n = ckr__pk_node(p, CKR_NODE_INT, 0);
    if (!n) return NULL;
    n->u.i = v;
    if (v >= 0 && v < 256) {
        n->flags = CKR__N_SHARED;
        p->small[v] = n;
    }
    return n;
}

/* Two's complement, little-endian; redundant sign bytes go, so that equal numbers are equal. */
static ckr_node *ckr__pk_long(ckr__pickle *p, const uint8_t *s, size_t n)
{
    uint64_t v = 0;
    size_t i;
    while (n > 1 && ((s[n - 1] == 0 && !(s[n - 2] & 0x80)) ||
                     (s[n - 1] == 0xFF && (s[n - 2] & 0x80)))) n--;
    if (n > 8) return ckr__pk_copy(p, CKR_NODE_BIGINT, s, n);
    for (i = 0; i < n; i++) v |= (uint64_t)s[i] << (8 * i);
    if (n && n < 8 && (s[n - 1] & 0x80)) v |= UINT64_MAX << (8 * n);
    return ckr__pk_int(p, v > INT64_MAX ? -(int64_t)(UINT64_MAX - v) - 1 : (int64_t)v);
}

/* Nine digits at a time into 32-bit limbs; false on anything but digits. */
static bool ckr__decimal_limbs(const uint8_t *s, size_t n, uint32_t *limb, size_t *used)
{
    size_t i;
    *used = 0;
    while (n) {
        const size_t k = n % 9 ? n % 9 : 9;
        uint64_t carry = 0, scale = 1;
        for (i = 0; i < k; i++, scale *= 10) {
            if (s[i] < '0' || s[i] > '9') return false;
            carry = carry * 10 + (uint64_t)(s[i] - '0');
        }
        for (i = 0; i < *used; i++) {
            carry += limb[i] * scale;
            limb[i] = (uint32_t)carry;
            carry >>= 32;
        }
        if (carry) limb[(*used)++] = (uint32_t)carry;
        s += k;
        n -= k;
    }
    return true;
}

/* Decimal text up to the 4,300 digits that Python allows: the conversion is quadratic. */
static ckr_node *ckr__pk_decimal(ckr__pickle *p, const uint8_t *s, size_t n)
{
    uint32_t limb[512];
    uint8_t b[2048];
    size_t used, i;
    bool neg = false;
    while (n && (*s == ' ' || *s == '\t')) { s++; n--; }
    while (n && (s[n - 1] == ' ' || s[n - 1] == '\r' || s[n - 1] == '\t')) n--;
    if (n && (*s == '-' || *s == '+')) { neg = *s == '-'; s++; n--; }
    if (n == 0 || n > 4300 || !ckr__decimal_limbs(s, n, limb, &used)) {
        ckr__pk_fail(p, CKR_ITEM_PICKLE_TEXT, "a decimal number that is not 1 to 4300 digits");
        return NULL;
    }
    limb[used] = 0;
    if (neg) {
        uint64_t carry = 1;
        for (i = 0; i <= used; i++) {
            carry += (uint32_t)~limb[i];
            limb[i] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    for (i = 0; i <= used; i++) ckr__store_u32(b + 4 * i, limb[i]);
    return ckr__pk_long(p, b, 4 * used + 4);
}

/* INT: "00" and "01" are the booleans of protocols 0 and 1. */
static bool ckr__pk_int_line(ckr__pickle *p, bool is_long)
{
    uint8_t *s;
    size_t n;
    if (!ckr__pk_line(p, &s, &n)) return false;
    if (!is_long && n == 2 && s[0] == '0' && (s[1] == '0' || s[1] == '1'))
        return ckr__pk_push(p, s[1] == '1' ? p->yes : p->no);
    if (is_long && n && s[n - 1] == 'L') n--;
    return ckr__pk_push(p, ckr__pk_decimal(p, s, n));
}

static bool ckr__pk_float_value(ckr__pickle *p, double v)
{
    ckr_node *n = ckr__pk_node(p, CKR_NODE_FLOAT, 0);
    if (!n) return false;
    n->u.f = v;
    return ckr__pk_push(p, n);
}

static bool ckr__pk_float_line(ckr__pickle *p)
{
    static const char ok[] = "0123456789+-.eEinfatyINFATY";
    char text[512], *end;
    uint8_t *s;
    size_t n, i;
    double v;
    if (!ckr__pk_line(p, &s, &n)) return false;
    for (i = 0; i < n && i < sizeof text - 1; i++) {
        if (!s[i] || !strchr(ok, s[i])) break;
        text[i] = (char)s[i];
    }
    text[i] = 0;
    v = strtod(text, &end);
    if (i != n || n == 0 || *end)
        return ckr__pk_fail(p, CKR_ITEM_PICKLE_TEXT, "a FLOAT line that is no number");
    return ckr__pk_float_value(p, v);
}

static bool ckr__pk_binfloat(ckr__pickle *p)
{
    uint8_t *s;
    uint64_t bits = 0;
    double v;
    int i;
    if (!ckr__pk_take(p, 8, &s)) return false;
    for (i = 0; i < 8; i++) bits = bits << 8 | s[i];
    memcpy(&v, &bits, 8);
    return ckr__pk_float_value(p, v);
}

/* >>pickle.containers --------------------------------------------------------- */
/* Items since the mark become a tuple, or extend the list, dict, set or opaque object below it. */

static bool ckr__pk_hashable(const ckr_node *n)
{
    switch (n->kind) {
    case CKR_NODE_LIST: case CKR_NODE_SET: case CKR_NODE_BYTEARRAY:
    case CKR_NODE_DICT: case CKR_NODE_ODICT: case CKR_NODE_COUNTER: case CKR_NODE_DEFAULTDICT:
    case CKR_NODE_NDARRAY:
        return false;
    default:
        return !(n->flags & CKR__N_UNHASHABLE);
    }
}

static ckr_node *ckr__pk_tuple(ckr__pickle *p, ckr_node **items, size_t n)
{
    ckr_node *t;
    size_t i;
    bool hashable = true;
    if (n == 0) return p->empty_tuple;
    if (n > SIZE_MAX / 32) return (ckr_node *)ckr__nomem(p->c);
    t = ckr__pk_node(p, CKR_NODE_TUPLE, n * sizeof *items);
    if (!t) return NULL;
    t->u.items = (ckr_node **)(void *)(t + 1);
    t->count = n;
    for (i = 0; i < n; i++) {
        t->u.items[i] = items[i];
        hashable = hashable && ckr__pk_hashable(items[i]);
    }
    if (!hashable) t->flags = CKR__N_UNHASHABLE;
    return t;
}

static bool ckr__pk_tuple_top(ckr__pickle *p, size_t n)
{
    ckr_node *t;
    if (!ckr__pk_has(p, n)) return false;
    t = ckr__pk_tuple(p, ckr__pk_top(p, n), n);
    p->stack.n -= n;
    return ckr__pk_push(p, t);
}

/* Appends n items (or n pairs) to a node that owns an array; capacity is a power of two, its
   logarithm + 1 in aux, as ckr__node_push has it.                                            */
static bool ckr__pk_extend(ckr__pickle *p, ckr_node *to, ckr_node **items, size_t n, size_t width)
{
    const uint64_t cap = to->aux ? (uint64_t)1 << (to->aux - 1) : 0, need = to->count + n;
    if (n == 0) return true;
    if (need > cap) {
        uint64_t want = 1;
        uint16_t aux = 1;
        ckr_node **array;
        while (want < need) { want *= 2; aux++; }
        if (want > SIZE_MAX / 32) return ckr__nomem(p->c) != NULL;
        array = (ckr_node **)ckr__pk_alloc(p, (size_t)want * width * sizeof *array);
        if (!array) return false;
        if (to->count) memcpy(array, to->u.items, (size_t)to->count * width * sizeof *array);
        to->u.items = array;
        to->aux = aux;
    }
    memcpy(to->u.items + to->count * width, items, n * width * sizeof *items);
    to->count = need;
    return true;
}

/* Containers with keys are remembered: duplicates go at the end, all at once. */
static bool ckr__pk_keyed(ckr__pickle *p, ckr_node *n)
{
    if (n->flags & CKR__N_LISTED) return true;
    n->flags |= CKR__N_LISTED;
    if (p->keyed.n == p->keyed.cap && !ckr__nodes_room(p->c, &p->keyed, p->keyed.n + 1))
        return false;
    p->keyed.items[p->keyed.n++] = n;
    return true;
}

static bool ckr__pk_put_pairs(ckr__pickle *p, ckr_node *dict, ckr_node **items, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        if (!ckr__pk_hashable(items[2 * i]))
            return ckr__pk_fail(p, CKR_ITEM_PICKLE_KEY, "a list, dict or set as a dict key");
    if (n == 0) return true;
    return ckr__pk_keyed(p, dict) && ckr__pk_extend(p, dict, items, n, 2);
}

static bool ckr__pk_put_items(ckr__pickle *p, ckr_node *set, ckr_node **items, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        if (!ckr__pk_hashable(items[i]))
            return ckr__pk_fail(p, CKR_ITEM_PICKLE_KEY, "a list, dict or set as an item of a set");
    if (n == 0) return true;
    return ckr__pk_keyed(p, set) && ckr__pk_extend(p, set, items, n, 1);
}

/* OBJECT nodes own their ckr_object: the public pointer is const for readers only. */
static ckr_object *ckr__object(ckr_node *n)
{
    return (ckr_object *)(uintptr_t)n->u.object;
}

static ckr_node **ckr__pk_object_part(ckr__pickle *p, ckr_node *target, bool pairs)
{
    ckr_object *o = ckr__object(target);
    ckr_node **part = pairs ? &o->dictitems : &o->items;
    if (!*part) *part = ckr__pk_node(p, pairs ? CKR_NODE_DICT : CKR_NODE_LIST, 0);
    return *part ? part : NULL;
}

static bool ckr__pk_append(ckr__pickle *p, ckr_node *target, ckr_node **items, size_t n)
{
    if (target->kind == CKR_NODE_LIST) return ckr__pk_extend(p, target, items, n, 1);
    if (target->kind == CKR_NODE_OBJECT) {
        ckr_node **list = ckr__pk_object_part(p, target, false);
        return list && ckr__pk_extend(p, *list, items, n, 1);
    }
    return ckr__pk_fail(p, CKR_ITEM_PICKLE_TARGET,
                        "items are appended to something that is no list");
}

static bool ckr__pk_setitems(ckr__pickle *p, ckr_node *target, ckr_node **items, size_t n)
{
    if (n % 2) return ckr__pk_fail(p, CKR_ITEM_PICKLE_STACK, "an odd number of keys and values");
    if (ckr_node_is_dict(target)) return ckr__pk_put_pairs(p, target, items, n / 2);
    if (target->kind == CKR_NODE_OBJECT) {
        ckr_node **dict = ckr__pk_object_part(p, target, true);
        return dict && ckr__pk_put_pairs(p, *dict, items, n / 2);
    }
    return ckr__pk_fail(p, CKR_ITEM_PICKLE_TARGET, "keys are set on something that is no dict");
}

static bool ckr__pk_additems(ckr__pickle *p, ckr_node *target, ckr_node **items, size_t n)
{
    if (target->kind == CKR_NODE_SET) return ckr__pk_put_items(p, target, items, n);
    if (target->kind == CKR_NODE_OBJECT) {
        ckr_node **list = ckr__pk_object_part(p, target, false);
        return list && ckr__pk_extend(p, *list, items, n, 1);
    }
    return ckr__pk_fail(p, CKR_ITEM_PICKLE_TARGET, "items are added to something that is no set");
}

/* The opcodes that consume a mark; `op` says what becomes of the items. */
static bool ckr__pk_from_mark(ckr__pickle *p, uint8_t op)
{
    ckr_node **first, *n;
    size_t count;
    if (!ckr__pk_unmark(p, &first, &count)) return false;
    switch (op) {
    case '1': return true;
    case 't': return ckr__pk_push(p, ckr__pk_tuple(p, first, count));
    case 'l': case 0x91: case 'd':
        n = ckr__pk_node(p, op == 'l' ? CKR_NODE_LIST : op == 'd' ? CKR_NODE_DICT :
                         CKR_NODE_FROZENSET, 0);
        if (!n) return false;
        if (op == 'l' && !ckr__pk_extend(p, n, first, count, 1)) return false;
        if (op == 'd' && !ckr__pk_setitems(p, n, first, count)) return false;
        if (op == 0x91 && !ckr__pk_put_items(p, n, first, count)) return false;
        return ckr__pk_push(p, n);
    default:
        break;
    }
    if (!ckr__pk_has(p, 1)) return false;
    n = *ckr__pk_top(p, 1);
    if (op == 'e') return ckr__pk_append(p, n, first, count);
    if (op == 'u') return ckr__pk_setitems(p, n, first, count);
    return ckr__pk_additems(p, n, first, count);
}

/* >>pickle.keys --------------------------------------------------------------- */
/* After the last opcode: of equal keys the last value stays, in the first one's place, as in a
   Python dict. 1, 1.0 and True are equal; flat tuples compare by their items, nested ones and
   objects by identity.                                                                          */

static uint64_t ckr__pk_key_hash_scalar(const ckr_node *n, uint64_t seed, uint64_t *cost)
{
    uint64_t v = n->kind;
    switch (n->kind) {
    case CKR_NODE_BOOL: v = n->u.b; break;
    case CKR_NODE_INT:  v = (uint64_t)n->u.i; break;
    case CKR_NODE_FLOAT:
        if (n->u.f >= -9.2e18 && n->u.f <= 9.2e18 && n->u.f == floor(n->u.f))
            v = (uint64_t)(int64_t)n->u.f;
        else if (isnan(n->u.f)) v = (uint64_t)n->id << 8;      /* equal to nothing     */
        else memcpy(&v, &n->u.f, 8);
        break;
    case CKR_NODE_STR: case CKR_NODE_BYTES: case CKR_NODE_BIGINT: case CKR_NODE_GLOBAL:
    case CKR_NODE_DTYPE: case CKR_NODE_DEVICE: case CKR_NODE_LAYOUT:
        *cost += n->count > 64 ? n->count : 0;
        return ckr__hash_keyed(seed, n->u.str, (size_t)n->count, 0) + n->kind;
    case CKR_NODE_NONE: break;
    default: v = (uint64_t)n->id << 8; break;
    }
    v *= 0x9e3779b97f4a7c15u;
    return v ^ v >> 29;
}

static uint64_t ckr__pk_key_hash(const ckr_node *n, uint64_t seed, uint64_t *cost)
{
    uint64_t h = n->count, i;
    if (n->kind != CKR_NODE_TUPLE && n->kind != CKR_NODE_SIZE)
        return ckr__pk_key_hash_scalar(n, seed, cost);
    for (i = 0; i < n->count && i < 16; i++) {
        const ckr_node *k = n->u.items[i];
        h = (h + ckr__pk_key_hash_scalar(k, seed, cost)) * 0xff51afd7ed558ccdu;
    }
    return h ^ h >> 31;
}

static bool ckr__pk_key_number(const ckr_node *n, double *f, int64_t *i, bool *exact)
{
    *exact = n->kind != CKR_NODE_FLOAT;
    if (n->kind == CKR_NODE_BOOL) *i = n->u.b;
    else if (n->kind == CKR_NODE_INT) *i = n->u.i;
    else if (n->kind == CKR_NODE_FLOAT) *f = n->u.f;
    else return false;
    if (!*exact && *f >= -9.2e18 && *f <= 9.2e18 && *f == floor(*f)) {
        *i = (int64_t)*f;
        *exact = true;
    }
    return true;
}

static bool ckr__pk_key_equal_scalar(const ckr_node *a, const ckr_node *b)
{
    double fa = 0, fb = 0;
    int64_t ia = 0, ib = 0;
    bool ea, eb;
    if (a == b) return true;
    if (ckr__pk_key_number(a, &fa, &ia, &ea)) {
        if (!ckr__pk_key_number(b, &fb, &ib, &eb) || ea != eb) return false;
        return ea ? ia == ib : fa >= fb && fa <= fb;
    }
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case CKR_NODE_NONE: return true;
    case CKR_NODE_STR: case CKR_NODE_BYTES: case CKR_NODE_BIGINT: case CKR_NODE_GLOBAL:
    case CKR_NODE_DTYPE: case CKR_NODE_DEVICE: case CKR_NODE_LAYOUT:
        return a->count == b->count && !memcmp(a->u.str, b->u.str, (size_t)a->count);
    default: return false;
    }
}

static bool ckr__pk_key_equal(const ckr_node *a, const ckr_node *b)
{
    uint64_t i;
    const bool ta = a->kind == CKR_NODE_TUPLE || a->kind == CKR_NODE_SIZE;
    const bool tb = b->kind == CKR_NODE_TUPLE || b->kind == CKR_NODE_SIZE;
    if (a == b) return true;
    if (!ta || !tb) return !ta && !tb && ckr__pk_key_equal_scalar(a, b);
    if (a->count != b->count || a->count > 64) return false;
    for (i = 0; i < a->count; i++)
        if (!ckr__pk_key_equal_scalar(a->u.items[i], b->u.items[i])) return false;
    return true;
}

typedef struct ckr__pk_keyset { uint32_t *table; size_t cap; uint64_t seed; } ckr__pk_keyset;

static bool ckr__pk_keyset_reset(ckr__ctx *c, ckr__pk_keyset *k, uint64_t n)
{
    size_t cap = 32;
    if (n > UINT32_MAX / 4) return ckr__nomem(c) != NULL;
    while (cap < n * 2) cap *= 2;
    if (cap > k->cap) {
        ckr__heap_free(c, k->table, k->cap * sizeof *k->table);
        k->cap = 0;
        k->table = (uint32_t *)ckr__heap_alloc(c, cap * sizeof *k->table);
        if (!k->table) return false;
        k->cap = cap;
    }
    memset(k->table, 0, cap * sizeof *k->table);
    k->seed = (uint64_t)(uintptr_t)k->table | 1;
    return true;
}

/* Removes duplicates of one node; width 2 for dicts, 1 for sets. */
static bool ckr__pk_unique(ckr__pickle *p, ckr__pk_keyset *k, ckr_node *n, size_t width)
{
    size_t mask = 32, i;
    uint64_t r, w = 0;
    if (n->count < 2) return true;
    if (!ckr__pk_keyset_reset(p->c, k, n->count)) return false;
    while (mask < n->count * 2) mask *= 2;
    mask--;
    for (r = 0; r < n->count; r++) {
        ckr_node **item = n->u.items + r * width;
        uint64_t cost = 0;
        if (r + 16 < n->count) CKR__PREFETCH(item[16 * width]);
        if (r + 8 < n->count) CKR__PREFETCH(item[8 * width]->u.str);
        const uint64_t h = (ckr__pk_key_hash(*item, k->seed,
                                             &cost) ^ k->seed) * 0xc4ceb9fe1a85ec53u;
        if (cost && !ckr__pk_charge(p, cost)) return false;
        for (i = (size_t)(h >> 32) & mask; k->table[i]; i = (i + 1) & mask)
            if (ckr__pk_key_equal(n->u.items[(k->table[i] - 1) * width], *item)) break;
        if (k->table[i]) {
            if (width == 2) n->u.items[(uint64_t)(k->table[i] - 1) * 2 + 1] = item[1];
        } else {
            if (w != r) memcpy(n->u.items + w * width, item, width * sizeof *item);
            k->table[i] = (uint32_t)++w;
        }
    }
    n->count = w;
    return true;
}

static bool ckr__pk_finish_keys(ckr__pickle *p)
{
    ckr__pk_keyset k;
    size_t i;
    bool ok = true;
    memset(&k, 0, sizeof k);
    for (i = 0; i < p->keyed.n && ok; i++) {
        ckr_node *n = p->keyed.items[i];
        ok = ckr__pk_unique(p, &k, n, ckr_node_is_dict(n) ? 2 : 1);
    }
    ckr__heap_free(p->c, k.table, k.cap * sizeof *k.table);
    return ok;
}

/* >>pickle.calls -------------------------------------------------------------- */
/* Opcodes that in Python would run code. */

static ckr_node *ckr__pk_object(ckr__pickle *p, const char *how, ckr_node *callable, ckr_node *args)
{
    ckr_node *n = ckr__pk_node(p, CKR_NODE_OBJECT, sizeof(ckr_object));
    ckr_object *o;
    if (!n) return NULL;
    o = (ckr_object *)(void *)(n + 1);
    n->u.object = o;
    o->how = how;
    o->args = args;
    if (callable && callable->kind == CKR_NODE_GLOBAL) o->name = callable->u.str;
    else o->callable = callable;
    return n;
}

/* Protocols 0 to 2 carry Python 2's names. */
static const char *const ckr__py2_modules[][2] = {
    { "__builtin__", "builtins" }, { "exceptions", "builtins" }, { "copy_reg", "copyreg" },
    { "cPickle", "pickle" }, { "Queue", "queue" },
    { "_abcoll", "collections.abc" }, { "UserDict", "collections" }, { "UserList", "collections" },
    { "UserString", "collections" }, { "StringIO", "io" }, { "cStringIO", "io" },
    { "torch.tensor", "torch._tensor" }, { "pathlib._local", "pathlib" }
};
static const char *const ckr__py2_builtins[][2] = {
    { "xrange", "range" }, { "long", "int" }, { "unicode", "str" }, { "unichr", "chr" },
    { "basestring", "str" }
};

static bool ckr__text_is(const char *s, size_t n, const char *what)
{
    return strlen(what) == n && !memcmp(s, what, n);
}

static bool ckr__pk_global(ckr__pickle *p, const char *mod, size_t n_mod, const char *name,
                           size_t n_name)
{
    size_t i;
    ckr_node *g;
    char *d;
    if (ckr__text_is(mod, n_mod, "__builtin__"))
        for (i = 0; i < sizeof ckr__py2_builtins / sizeof *ckr__py2_builtins; i++)
            if (ckr__text_is(name, n_name, ckr__py2_builtins[i][0])) {
                name = ckr__py2_builtins[i][1];
                n_name = strlen(name);
            }
    for (i = 0; i < sizeof ckr__py2_modules / sizeof *ckr__py2_modules; i++)
        if (ckr__text_is(mod, n_mod, ckr__py2_modules[i][0])) {
            mod = ckr__py2_modules[i][1];
            n_mod = strlen(mod);
        }
    if (n_mod > SIZE_MAX / 4 || n_name > SIZE_MAX / 4) return ckr__nomem(p->c) != NULL;
    if (!ckr__pk_charge(p, n_mod + n_name)) return false;
    if (!ckr__utf8_ok((const uint8_t *)mod, n_mod) || !ckr__utf8_ok((const uint8_t *)name, n_name))
        return ckr__pk_fail(p, CKR_ITEM_PICKLE_TEXT, "a global's name is no UTF-8");
    d = (char *)ckr__pk_alloc(p, n_mod + n_name + 2);
    if (!d) return false;
    if (n_mod) memcpy(d, mod, n_mod);
    d[n_mod] = '.';
    if (n_name) memcpy(d + n_mod + 1, name, n_name);
    d[n_mod + 1 + n_name] = 0;
    g = ckr__pk_text(p, CKR_NODE_GLOBAL, d, n_mod + 1 + n_name);
    if (!g) return false;
    ckr__torch_global(p, g);
    return ckr__pk_push(p, g);
}

static bool ckr__pk_global_lines(ckr__pickle *p)
{
    uint8_t *mod, *name;
    size_t n_mod, n_name;
    if (!ckr__pk_line(p, &mod, &n_mod) || !ckr__pk_line(p, &name, &n_name)) return false;
    return ckr__pk_global(p, (const char *)mod, n_mod, (const char *)name, n_name);
}

static bool ckr__pk_stack_global(ckr__pickle *p)
{
    const ckr_node *mod, *name;
    if (!ckr__pk_has(p, 2)) return false;
    mod = ckr__pk_top(p, 2)[0];
    name = ckr__pk_top(p, 1)[0];
    if (mod->kind != CKR_NODE_STR || name->kind != CKR_NODE_STR)
        return ckr__pk_fail(p, CKR_ITEM_PICKLE_ARGS, "a global's module and name must be strings");
    p->stack.n -= 2;
    return ckr__pk_global(p, mod->u.str, (size_t)mod->count, name->u.str, (size_t)name->count);
}

/* REDUCE and NEWOBJ: callable or class, then a tuple. */
static bool ckr__pk_call(ckr__pickle *p, bool newobj)
{
    ckr_node *callable, *args, *out = NULL;
    if (!ckr__pk_has(p, 2)) return false;
    callable = ckr__pk_top(p, 2)[0];
    args = ckr__pk_top(p, 1)[0];
    if (args->kind != CKR_NODE_TUPLE)
        return ckr__pk_fail(p, CKR_ITEM_PICKLE_ARGS, "the arguments of a call are no tuple");
    if (callable->kind != CKR_NODE_GLOBAL && callable->kind != CKR_NODE_OBJECT)
        return ckr__pk_fail(p, CKR_ITEM_PICKLE_ARGS, "something that is no global is called");
    if (!ckr__torch_reduce(p, callable, args, newobj, &out)) return false;
    p->stack.n -= 2;
    return ckr__pk_push(p, out);
}

/* NEWOBJ_EX, in the form that the earlier protocols have for it. */
static bool ckr__pk_newobj_ex(ckr__pickle *p)
{
    ckr_node *o;
    if (!ckr__pk_has(p, 3)) return false;
    if (ckr__pk_top(p, 2)[0]->kind != CKR_NODE_TUPLE || ckr__pk_top(p, 1)[0]->kind != CKR_NODE_DICT)
        return ckr__pk_fail(p, CKR_ITEM_PICKLE_ARGS,
                            "the arguments of a call are no tuple and dict");
    o = ckr__pk_object(p, "reduce", NULL, ckr__pk_tuple(p, ckr__pk_top(p, 3), 3));
    if (!o || !o->u.object->args) return false;
    ckr__object(o)->name = "copyreg.__newobj_ex__";
    p->stack.n -= 3;
    return ckr__pk_push(p, o);
}

/* INST and OBJ of protocols 0 and 1: class(arguments since the mark). */
static bool ckr__pk_instance(ckr__pickle *p, bool inst)
{
    ckr_node **first, *cls = NULL, *args;
    size_t n;
    if (inst) {
        if (!ckr__pk_global_lines(p)) return false;
        cls = p->stack.items[--p->stack.n];
    }
    if (!ckr__pk_unmark(p, &first, &n)) return false;
    if (!inst) {
        if (n == 0) return ckr__pk_fail(p, CKR_ITEM_PICKLE_STACK, "OBJ without a class");
        cls = *first++;
        n--;
    }
    if (cls->kind != CKR_NODE_GLOBAL && cls->kind != CKR_NODE_OBJECT)
        return ckr__pk_fail(p, CKR_ITEM_PICKLE_ARGS, "something that is no global is called");
    args = ckr__pk_tuple(p, first, n);
    return args && ckr__pk_push(p, ckr__pk_object(p, "reduce", cls, args));
}

static bool ckr__pk_build(ckr__pickle *p)
{
    if (!ckr__pk_has(p, 2)) return false;
    if (!ckr__torch_build(p, ckr__pk_top(p, 2)[0], ckr__pk_top(p, 1)[0])) return false;
    p->stack.n--;
    return true;
}

static bool ckr__pk_persistent(ckr__pickle *p, bool binary)
{
    ckr_node *pid, *out = NULL;
    uint8_t *s;
    size_t n;
    if (binary) {
        if (!ckr__pk_has(p, 1)) return false;
        pid = p->stack.items[--p->stack.n];
    } else {
        if (!ckr__pk_line(p, &s, &n)) return false;
        pid = ckr__pk_str2(p, s, n);
    }
    return pid && ckr__torch_persistent(p, pid, &out) && ckr__pk_push(p, out);
}

/* >>pickle.memo --------------------------------------------------------------- */

/* Slots up to memo.n hold a node or NULL, those behind are not initialised: the first block is as
   large as a pickle of this size usually needs, and what it does not use costs no memory.        */
static bool ckr__pk_memo_room(ckr__pickle *p, size_t need)
{
    const size_t old = p->memo.cap;
    size_t cap = old ? old * 2 : p->size / 8 + 64;
    ckr_node **items;
    uint32_t *ids;
    while (cap < need) cap *= 2;
    items = (ckr_node **)ckr__heap_alloc(p->c, cap * sizeof *items);
    ids = (uint32_t *)ckr__heap_alloc(p->c, cap * sizeof *ids);
    if (!items || !ids) {
        ckr__heap_free(p->c, items, cap * sizeof *items);
        ckr__heap_free(p->c, ids, cap * sizeof *ids);
        return false;
    }
    if (p->memo.n) {
        memcpy(items, p->memo.items, p->memo.n * sizeof *items);
        memcpy(ids, p->memo_ids, p->memo.n * sizeof *ids);
    }
    ckr__heap_free(p->c, p->memo.items, old * sizeof *items);
    ckr__heap_free(p->c, p->memo_ids, old * sizeof *ids);
    p->memo.items = items;
    p->memo.cap = cap;
    p->memo_ids = ids;
    return true;
}

/* A writer cannot have used an index that is larger than the bytes it has written. */
static bool ckr__pk_put(ckr__pickle *p, uint64_t index)
{
    ckr_node *top;
    if (!ckr__pk_has(p, 1)) return false;
    if (index > p->op)
        return ckr__pk_fail(p, CKR_ITEM_PICKLE_MEMO,
                            "a memo index that is larger than the pickle so far");
    if (index >= p->memo.cap && !ckr__pk_memo_room(p, (size_t)index + 1)) return false;
    top = *ckr__pk_top(p, 1);
    while (p->memo.n <= index) p->memo.items[p->memo.n++] = NULL;
    if (!p->memo.items[index]) p->memo_count++;
    p->memo.items[index] = top;
    p->memo_ids[index] = top->id;
    return true;
}

static bool ckr__pk_get(ckr__pickle *p, uint64_t index)
{
    ckr_node *n = index < p->memo.n ? p->memo.items[index] : NULL;
    if (!n) return ckr__pk_fail(p, CKR_ITEM_PICKLE_MEMO, "a memo index that was never set");
    if (n->id != p->memo_ids[index]) {
        p->stale = true;
        return ckr__pk_fail(p, CKR_ITEM_PICKLE_MEMO, "a memo index of a dropped value");
    }
    n->flags |= CKR__N_SHARED;
    return ckr__pk_push(p, n);
}

static bool ckr__pk_memo_line(ckr__pickle *p, bool put)
{
    uint8_t *s;
    size_t n, i;
    uint64_t v = 0;
    if (!ckr__pk_line(p, &s, &n)) return false;
    for (i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9' || n > 18)
            return ckr__pk_fail(p, CKR_ITEM_PICKLE_MEMO, "a memo index that is no number");
        v = v * 10 + (uint64_t)(s[i] - '0');
    }
    if (n == 0) return ckr__pk_fail(p, CKR_ITEM_PICKLE_MEMO, "a memo index that is no number");
    return put ? ckr__pk_put(p, v) : ckr__pk_get(p, v);
}

/* >>pickle.machine ------------------------------------------------------------ */

static bool ckr__pk_pop(ckr__pickle *p)
{
    if (p->stack.n > p->floor) {
        p->stack.n--;
        return true;
    }
    if (p->n_marks == 0) return ckr__pk_has(p, 1);
    p->n_marks--;
    p->floor = p->n_marks ? p->marks[p->n_marks - 1] : 0;
    return true;
}

static bool ckr__pk_stop(ckr__pickle *p)
{
    if (!ckr__pk_has(p, 1)) return false;
    p->done = true;
    return true;
}

/* Opcodes without an argument. */
static bool ckr__pk_step_plain(ckr__pickle *p, uint8_t op)
{
    ckr_node *item;
    switch (op) {
    case '.':  return ckr__pk_stop(p);
    case '0':  return ckr__pk_pop(p);
    case '2':
        if (!ckr__pk_has(p, 1)) return false;
        item = *ckr__pk_top(p, 1);
        item->flags |= CKR__N_SHARED;
        return ckr__pk_push(p, item);
    case ')':  return ckr__pk_push(p, p->empty_tuple);
    case ']':  return ckr__pk_push(p, ckr__pk_node(p, CKR_NODE_LIST, 0));
    case '}':  return ckr__pk_push(p, ckr__pk_node(p, CKR_NODE_DICT, 0));
    case 0x8F: return ckr__pk_push(p, ckr__pk_node(p, CKR_NODE_SET, 0));
    case 'N':  return ckr__pk_push(p, p->none);
    case 0x88: return ckr__pk_push(p, p->yes);
    case 0x89: return ckr__pk_push(p, p->no);
    case 'a':
        if (!ckr__pk_has(p, 2)) return false;
        item = p->stack.items[--p->stack.n];
        return ckr__pk_append(p, *ckr__pk_top(p, 1), &item, 1);
    case 's':
        if (!ckr__pk_has(p, 3)) return false;
        p->stack.n -= 2;
        return ckr__pk_setitems(p, *ckr__pk_top(p, 1), p->stack.items + p->stack.n, 2);
    case 0x93: return ckr__pk_stack_global(p);
    case 'R':  return ckr__pk_call(p, false);
    case 0x81: return ckr__pk_call(p, true);
    case 0x92: return ckr__pk_newobj_ex(p);
    case 'b':  return ckr__pk_build(p);
    case 'o':  return ckr__pk_instance(p, false);
    case 'Q':  return ckr__pk_persistent(p, true);
    case 0x94: return ckr__pk_put(p, p->memo_count);
    case 0x98: return ckr__pk_has(p, 1);
    case 0x97: return ckr__pk_fail(p, CKR_ITEM_PICKLE_UNSAFE,
                                   "an out-of-band buffer, which the file does not hold");
    case 0x82: case 0x83: case 0x84:
        return ckr__pk_fail(p, CKR_ITEM_PICKLE_UNSAFE, "an entry of Python's extension registry");
    default:
        ckr__fail(p->c->err, CKR_ITEM_PICKLE_OPCODE, p->path,
                  p->base == CKR_NO_OFFSET ? p->base : p->base + p->op, p->where,
                  "pickle byte %llu: opcode 0x%02x, which no protocol has",
                      (unsigned long long)p->op, op);
        return false;
    }
}

/* Opcodes whose argument is one or two lines. */
static bool ckr__pk_step_line(ckr__pickle *p, uint8_t op)
{
    switch (op) {
    case 'I': return ckr__pk_int_line(p, false);
    case 'L': return ckr__pk_int_line(p, true);
    case 'F': return ckr__pk_float_line(p);
    case 'V': return ckr__pk_raw_unicode(p);
    case 'S': return ckr__pk_quoted(p);
    case 'c': return ckr__pk_global_lines(p);
    case 'i': return ckr__pk_instance(p, true);
    case 'P': return ckr__pk_persistent(p, false);
    case 'p': return ckr__pk_memo_line(p, true);
    default:  return ckr__pk_memo_line(p, false);
    }
}

/* PROTO, FRAME, numbers and counted strings: `v` is the argument or the length. */
static bool ckr__pk_step_counted(ckr__pickle *p, uint8_t op, uint64_t v)
{
    uint8_t *s;
    switch (op) {
    case 0x80:
        if (v > 5) return ckr__pk_fail(p, CKR_ITEM_PICKLE_PROTOCOL, "a protocol above 5");
        return true;
    case 0x95:
        return v <= p->size - p->pos || ckr__pk_short(p);
    case 'K': case 'M': return ckr__pk_push(p, ckr__pk_int(p, (int64_t)v));
    case 'J': return ckr__pk_push(p, ckr__pk_int(p, v > INT32_MAX ?
                                                 (int64_t)v - ((int64_t)1 << 32) : (int64_t)v));
    case 0x8B:
        if (v > INT32_MAX)
            return ckr__pk_fail(p, CKR_ITEM_PICKLE_TEXT, "an integer of negative length");
        return ckr__pk_take(p, v, &s) && ckr__pk_push(p, ckr__pk_long(p, s, (size_t)v));
    case 0x8A: return ckr__pk_take(p, v, &s) && ckr__pk_push(p, ckr__pk_long(p, s, (size_t)v));
    case 'X': case 0x8C: case 0x8D: return ckr__pk_str(p, CKR_NODE_STR, v);
    case 'C': case 'B': case 0x8E: return ckr__pk_str(p, CKR_NODE_BYTES, v);
    case 0x96: return ckr__pk_str(p, CKR_NODE_BYTEARRAY, v);
    case 'T':
        if (v > INT32_MAX)
            return ckr__pk_fail(p, CKR_ITEM_PICKLE_TEXT, "a string of negative length");
        return ckr__pk_take(p, v, &s) && ckr__pk_push(p, ckr__pk_str2(p, s, (size_t)v));
    default: /* 'U' */
        return ckr__pk_take(p, v, &s) && ckr__pk_push(p, ckr__pk_str2(p, s, (size_t)v));
    }
}

static bool ckr__pk_step(ckr__pickle *p, uint8_t op)
{
    const uint8_t *s = p->data + p->pos;
    const size_t left = p->size - p->pos;
    uint64_t v;
    size_t n;
    switch (op) {              /* first what a state_dict consists of                 */
    case 'q': case 'h':
        if (left < 1) return ckr__pk_short(p);
        p->pos++;
        return op == 'q' ? ckr__pk_put(p, s[0]) : ckr__pk_get(p, s[0]);
    case 'r': case 'j':
        if (left < 4) return ckr__pk_short(p);
        p->pos += 4;
        return op == 'r' ? ckr__pk_put(p, ckr__load_u32(s)) : ckr__pk_get(p, ckr__load_u32(s));
    case 'K': case 0x80: case 0x8A: case 0x8C: case 'C': case 'U':
        if (left < 1) return ckr__pk_short(p);
        v = s[0];
        n = 1;
        break;
    case 'J': case 'X': case 'B': case 'T': case 0x8B:
        if (left < 4) return ckr__pk_short(p);
        v = ckr__load_u32(s);
        n = 4;
        break;
    case 'M':
        if (left < 2) return ckr__pk_short(p);
        v = ckr__load_u16(s);
        n = 2;
        break;
    case 0x95: case 0x8D: case 0x8E: case 0x96:
        if (left < 8) return ckr__pk_short(p);
        v = ckr__load_u64(s);
        n = 8;
        break;
    case '(': return ckr__pk_mark(p);
    case 't': case 'e': case 'u': case '1': case 'l': case 'd': case 0x90: case 0x91:
        return ckr__pk_from_mark(p, op);
    case 0x85: case 0x86: case 0x87:
        return ckr__pk_tuple_top(p, (size_t)op - 0x84);
    case 'G': return ckr__pk_binfloat(p);
    case 'I': case 'L': case 'F': case 'V': case 'S':
    case 'c': case 'i': case 'P': case 'p': case 'g':
        return ckr__pk_step_line(p, op);
    default: return ckr__pk_step_plain(p, op);
    }
    p->pos += n;
    return ckr__pk_step_counted(p, op, v);
}

static bool ckr__pk_constants(ckr__pickle *p)
{
    p->none = ckr__pk_node(p, CKR_NODE_NONE, 0);
    p->yes = ckr__pk_node(p, CKR_NODE_BOOL, 0);
    p->no = ckr__pk_node(p, CKR_NODE_BOOL, 0);
    p->empty_tuple = ckr__pk_node(p, CKR_NODE_TUPLE, 0);
    if (!p->none || !p->yes || !p->no || !p->empty_tuple) return false;
    p->yes->u.b = true;
    p->none->flags = p->yes->flags = p->no->flags = p->empty_tuple->flags = CKR__N_SHARED;
    return true;
}

static void ckr__pk_free(ckr__pickle *p)
{
    ckr__heap_free(p->c, p->stack.items, p->stack.cap * sizeof(ckr_node *));
    ckr__heap_free(p->c, p->memo.items, p->memo.cap * sizeof(ckr_node *));
    ckr__heap_free(p->c, p->memo_ids, p->memo.cap * sizeof *p->memo_ids);
    ckr__heap_free(p->c, p->keyed.items, p->keyed.cap * sizeof(ckr_node *));
    ckr__heap_free(p->c, p->marks, p->cap_marks * sizeof *p->marks);
    memset(&p->stack, 0, sizeof p->stack);
    memset(&p->memo, 0, sizeof p->memo);
    memset(&p->keyed, 0, sizeof p->keyed);
    memset(p->free_nodes, 0, sizeof p->free_nodes);
    p->memo_ids = NULL;
    p->marks = NULL;
    p->n_marks = p->cap_marks = 0;
}

/* One pickle from p->pos to its STOP; p->pos is then behind it. The caller has set c, path, where,
   base, data, size, pos and torch, and zeroed the rest. NULL sets the error.                    */
static ckr_node *ckr__pk_run(ckr__pickle *p)
{
    ckr_node *root = NULL;
    bool ok = ckr__pk_constants(p);
    while (ok && !p->done) {
        uint8_t op;
        p->op = p->pos;
        if (p->pos >= p->size) {
            p->truncated = true;
            ok = ckr__pk_fail(p, CKR_ITEM_PICKLE_TRUNCATED, "the pickle has no STOP");
            break;
        }
        op = p->data[p->pos++];
        if (p->nul) {
            *p->nul = 0;
            p->nul = NULL;
        }
        ok = ckr__pk_step(p, op);
    }
    if (ok) ok = ckr__pk_finish_keys(p);
    if (ok) root = *ckr__pk_top(p, 1);
    ckr__pk_free(p);
    return root;
}

/* >>torch --------------------------------------------------------------------- */
/* What torch.save writes. A zip archive (torch >= 1.6) holds ROOT/data.pkl, one ROOT/data/KEY per
   storage, ROOT/version and perhaps ROOT/byteorder; a legacy stream is five pickles (magic number,
   1001, a dict, the object, the list of storage keys) and then, per key, an i64 element count and
   the bytes; a plain pickle embeds one legacy stream per storage.
   This section gives globals their meaning: calls of known rebuild functions become TENSOR, dict,
   set, bytes... nodes after all bounds are checked, every other call stays an OBJECT node. Tensor
   bytes are never read here.                                                                    */

#define CKR__MAX_RANK 64       /* as torch itself                                      */

typedef struct ckr__storage {
    const char    *key;
    uint64_t       offset, nbytes;   /* in `file`; unknown in a legacy stream until its end */
    const uint8_t *bytes;      /* when there is no file                                */
    uint32_t       file;
    uint32_t       crc;        /* CRC-32 in the zip directory; 0: none                 */
    ckr_dtype      dtype;
    bool           untyped, placed;
} ckr__storage;

typedef struct ckr__doc {      /* a file that was read                                 */
    ckr_format    format;
    ckr_node     *root;
    ckr__storage *storages;    /* in order of first appearance                         */
    uint64_t      n_storages, cap_storages;
    ckr__member  *members;     /* of a zip archive                                     */
    uint64_t      n_members;
} ckr__doc;

typedef struct ckr__source {   /* where a stream lies                                  */
    uint32_t       file;       /* or CKR_NO_FILE: `bytes`                              */
    uint64_t       offset, size;
    const uint8_t *bytes;
} ckr__source;

typedef struct ckr__torch {
    ckr__doc   *doc;
    ckr__zip   *zip;           /* NULL: legacy stream or plain pickle                  */
    char       *name;          /* "ROOT/data/", with room for a key                    */
    size_t      prefix;
    ckr__member *next;         /* where the next storage's record may be               */
    bool        legacy, big_endian;
    uint64_t    embedded;      /* bytes of such streams parsed so far                  */
    ckr__source source;
    ckr__map    keys;          /* legacy: key -> storage                               */
    ckr_view  **views;         /* legacy: whose data_offset is still a storage's index */
    uint64_t    n_views, cap_views;
} ckr__torch;

#define CKR__MAX_KEY 4096u

enum {                         /* ckr_node.aux of a GLOBAL                             */
    CKR__G_OTHER = 0, CKR__G_ODICT, CKR__G_DEFAULTDICT, CKR__G_COUNTER, CKR__G_SET,
    CKR__G_FROZENSET,
    CKR__G_BYTES, CKR__G_BYTEARRAY, CKR__G_COMPLEX, CKR__G_ENCODE, CKR__G_GETATTR,
    CKR__G_SIZE, CKR__G_DEVICE, CKR__G_LAYOUT, CKR__G_TENSOR1, CKR__G_TENSOR2, CKR__G_TENSOR3,
    CKR__G_PARAMETER, CKR__G_PARAMETER_STATE, CKR__G_PARAMETER_CLASS, CKR__G_FROM_TYPE, CKR__G_META,
    CKR__G_SPARSE, CKR__G_QUANTIZED, CKR__G_NESTED, CKR__G_DEVICE_NUMPY, CKR__G_DEVICE_CPU,
    CKR__G_WRAPPER,
    CKR__G_LOAD_BYTES, CKR__G_JIT_LIST, CKR__G_JIT_TAG,
    CKR__G_NP_RECONSTRUCT, CKR__G_NP_SCALAR, CKR__G_NP_FROMBUFFER,
    CKR__G_STORAGE = 0x100,    /* + dtype                                              */
    CKR__G_UNTYPED = 0x1FF
};

static const struct { const char *name; uint16_t code; } ckr__globals[] = {
    { "collections.OrderedDict", CKR__G_ODICT }, { "collections.defaultdict", CKR__G_DEFAULTDICT },
    { "collections.Counter", CKR__G_COUNTER }, { "builtins.set", CKR__G_SET },
    { "builtins.frozenset", CKR__G_FROZENSET }, { "builtins.bytes", CKR__G_BYTES },
    { "builtins.bytearray", CKR__G_BYTEARRAY }, { "builtins.complex", CKR__G_COMPLEX },
    { "builtins.getattr", CKR__G_GETATTR }, { "_codecs.encode", CKR__G_ENCODE },
    { "torch.Size", CKR__G_SIZE }, { "torch.device", CKR__G_DEVICE },
    { "torch.serialization._get_layout", CKR__G_LAYOUT },
    { "torch._utils._rebuild_tensor", CKR__G_TENSOR1 }, { "torch._utils._rebuild_tensor_v2",
        CKR__G_TENSOR2 },
    { "torch._utils._rebuild_tensor_v3", CKR__G_TENSOR3 },
    { "torch._utils._rebuild_parameter", CKR__G_PARAMETER },
    { "torch._utils._rebuild_parameter_with_state", CKR__G_PARAMETER_STATE },
    { "torch.nn.parameter.Parameter", CKR__G_PARAMETER_CLASS },
    { "torch._tensor._rebuild_from_type_v2", CKR__G_FROM_TYPE },
    { "torch._tensor._rebuild_from_type", CKR__G_FROM_TYPE },
    { "torch._utils._rebuild_meta_tensor_no_storage", CKR__G_META },
    { "torch._utils._rebuild_sparse_tensor", CKR__G_SPARSE },
    { "torch._utils._rebuild_sparse_csr_tensor", CKR__G_SPARSE },
    { "torch._utils._rebuild_qtensor", CKR__G_QUANTIZED },
    { "torch._utils._rebuild_nested_tensor", CKR__G_NESTED },
    { "torch._utils._rebuild_device_tensor_from_numpy", CKR__G_DEVICE_NUMPY },
    { "torch._utils._rebuild_xla_tensor", CKR__G_DEVICE_NUMPY },
    { "torch._utils._rebuild_device_tensor_from_cpu_tensor", CKR__G_DEVICE_CPU },
    { "torch._utils._rebuild_wrapper_subclass", CKR__G_WRAPPER },
    { "torch.storage._load_from_bytes", CKR__G_LOAD_BYTES },
    { "torch.jit._pickle.build_intlist", CKR__G_JIT_LIST },
    { "torch.jit._pickle.build_tensorlist", CKR__G_JIT_LIST },
    { "torch.jit._pickle.build_doublelist", CKR__G_JIT_LIST },
    { "torch.jit._pickle.build_boollist", CKR__G_JIT_LIST },
    { "torch.jit._pickle.restore_type_tag", CKR__G_JIT_TAG },
    { "numpy.core.multiarray._reconstruct", CKR__G_NP_RECONSTRUCT },
    { "numpy._core.multiarray._reconstruct", CKR__G_NP_RECONSTRUCT },
    { "numpy.core.multiarray.scalar", CKR__G_NP_SCALAR },
    { "numpy._core.multiarray.scalar", CKR__G_NP_SCALAR },
    { "numpy.core.numeric._frombuffer", CKR__G_NP_FROMBUFFER },
    { "numpy._core.numeric._frombuffer", CKR__G_NP_FROMBUFFER },
    { "torch.storage.UntypedStorage", CKR__G_UNTYPED }, { "torch.UntypedStorage", CKR__G_UNTYPED },
    { "torch.storage._UntypedStorage", CKR__G_UNTYPED }
};

static bool ckr__np_scalar(ckr__pickle *p, ckr_node *args, ckr_node **out);
static bool ckr__np_frombuffer(ckr__pickle *p, ckr_node *args, ckr_node **out);
static bool ckr__np_build(ckr__pickle *p, ckr_node *target, const ckr_node *state, bool *done);

/* torch.XStorage and torch.cuda.XStorage; torch.<dtype>. */
static void ckr__torch_global(ckr__pickle *p, ckr_node *g)
{
    const char *s = g->u.str;
    size_t n = (size_t)g->count, i;
    (void)p;
    if (n > 11 && !memcmp(s, "torch.", 6)) {
        const size_t skip = !memcmp(s + 6, "cuda.", 5) ? 11 : 6;
        if (n - skip > 7 && !memcmp(s + n - 7, "Storage", 7)) {
            ckr_dtype t = ckr__dtype_find(s + skip, n - skip, 2);
            if (t != CKR_DTYPE_NONE) {
                g->aux = (uint16_t)(CKR__G_STORAGE + (unsigned)t);
                return;
            }
        }
    }
    if (n > 6 && n < 32 && !memcmp(s, "torch.", 6) && !memchr(s + 6, '.', n - 6)) {
        const ckr_dtype t = ckr__dtype_find(s + 6, n - 6, 0);
        const size_t k = !strncmp(s + 6, "uint", 4) ? 10 : !strncmp(s + 6, "int", 3) ? 9 : 0;
        if (t != CKR_DTYPE_NONE || (k && n == k + 1 && s[k] >= '1' && s[k] <= '7')) {
            g->kind = CKR_NODE_DTYPE;
            g->aux = (uint16_t)t;
            g->u.str = s + 6;
            g->count = n - 6;
            return;
        }
    }
    for (i = 0; i < sizeof ckr__globals / sizeof *ckr__globals; i++)
        if (ckr__text_is(s, n, ckr__globals[i].name)) {
            g->aux = ckr__globals[i].code;
            return;
        }
}

static bool ckr__is_str(const ckr_node *n, const char *s)
{
    return n->kind == CKR_NODE_STR && ckr__text_is(n->u.str, (size_t)n->count, s);
}

static ckr_view *ckr__view(ckr_node *n)
{
    return (ckr_view *)(uintptr_t)n->u.view;
}

/* >>torch.storage ------------------------------------------------------------- */

static bool ckr__torch_bad(ckr__pickle *p, ckr_item item, const char *key, const char *text)
{
    ckr__fail(p->c->err, item, p->path, p->base == CKR_NO_OFFSET ? p->base : p->base + p->op,
              key ? key : p->where, "pickle byte %llu: %s", (unsigned long long)p->op, text);
    return false;
}

/* The record of a storage in the archive. The one behind the record that was asked for last is
   tried first: torch writes them in the order in which the object uses them.                     */
static ckr__member *ckr__torch_member(ckr__torch *t, const char *key, size_t key_len)
{
    ckr__member *m = t->next;
    const size_t len = t->prefix + key_len;
    if (key_len > CKR__MAX_KEY) return NULL;
    if (!m || m->name_len != len || memcmp(m->name + t->prefix, key, key_len) != 0 ||
        memcmp(m->name, t->name, t->prefix) != 0) {
        memcpy(t->name + t->prefix, key, key_len);
        m = ckr__zip_find(t->zip, t->name, len);
    }
    if (m) t->next = m + 1 < t->zip->members + t->zip->n ? m + 1 : NULL;
    return m;
}

/* Its size must be exactly what the pickle says. */
static bool ckr__torch_record(ckr__pickle *p, ckr__storage *s, ckr__member *m)
{
    ckr__torch *t = p->torch;
    if (!m)
        return ckr__torch_bad(p, CKR_ITEM_TORCH_RECORD, s->key,
                              "the archive has no record for this storage");
    if (ckr__zip_stored(t->zip, m) != CKR_OK) return false;
    if (m->size != s->nbytes) {
        ckr__fail(p->c->err, CKR_ITEM_TORCH_STORAGE_SIZE, p->path, m->offset, m->name,
                  "the record has %llu bytes, the pickle says %llu", (unsigned long long)m->size,
                  (unsigned long long)s->nbytes);
        return false;
    }
    s->offset = m->offset;
    s->crc = m->crc;
    s->file = t->zip->file;
    s->placed = true;
    m->storage = (uint32_t)t->doc->n_storages;
    return true;
}

static ckr_node *ckr__storage_node(ckr__pickle *p, const ckr__storage *s, int64_t offset,
                                   int64_t numel)
{
    static const int64_t one = 1;
    ckr_node *n = ckr__pk_node(p, CKR_NODE_STORAGE, CKR__PK_STORAGE);
    ckr_view *v;
    int64_t *shape;
    if (!n) return NULL;
    v = (ckr_view *)(void *)(n + 1);
    shape = (int64_t *)(void *)(v + 1);
    *shape = numel;
    v->dtype = s->dtype;
    v->file = s->file;
    v->data_offset = s->offset;
    v->data_bytes = s->nbytes;
    v->storage = s->key;
    v->big_endian = p->torch->big_endian;
    v->offset = offset;
    v->n_dims = 1;
    v->shape = shape;
    v->stride = &one;
    n->u.view = v;
    n->aux = s->untyped ? CKR__G_UNTYPED : 0;
    return n;
}

static bool ckr__torch_pending(ckr__pickle *p, ckr_view *v)
{
    ckr__torch *t = p->torch;
    void *array = t->views;
    if (!t->legacy) return true;
    if (!ckr__arena_grow(p->c, &array, &t->cap_views, t->n_views + 1, sizeof *t->views))
        return false;
    t->views = (ckr_view **)array;
    t->views[t->n_views++] = v;
    return true;
}

static bool ckr__torch_new_storage(ckr__pickle *p, ckr__storage *s, ckr__member *m, size_t key_len)
{
    ckr__torch *t = p->torch;
    ckr__doc *d = t->doc;
    void *array = d->storages;
    if (d->n_storages >= UINT32_MAX - 1) return ckr__nomem(p->c) != NULL;
    if (!ckr__arena_grow(p->c, &array, &d->cap_storages, d->n_storages + 1, sizeof *s))
        return false;
    d->storages = (ckr__storage *)array;
    if (t->zip) {
        if (!ckr__torch_record(p, s, m)) return false;
    } else {
        s->file = t->source.file;
        s->offset = d->n_storages;
        if (!ckr__map_put(&t->keys, s->key, key_len, d->n_storages, NULL)) return false;
    }
    d->storages[d->n_storages++] = *s;
    return true;
}

/* Torch goes by the key alone; a second use with another type or size is refused. */
static ckr__storage *ckr__torch_find_storage(ckr__torch *t, const char *key, size_t key_len,
                                             ckr__member **m)
{
    uint64_t i;
    *m = NULL;
    if (t->zip) {
        *m = ckr__torch_member(t, key, key_len);
        return *m && (*m)->storage != CKR__ZIP_NONE ? &t->doc->storages[(*m)->storage] : NULL;
    }
    return ckr__map_find(&t->keys, key, key_len, &i) ? &t->doc->storages[i] : NULL;
}

static bool ckr__torch_key(ckr__pickle *p, const ckr_node *n, const char **key, size_t *len)
{
    if (n->kind == CKR_NODE_STR) {
        *key = n->u.str;
        *len = (size_t)n->count;
        return true;
    }
    if (n->kind != CKR_NODE_INT)
        return ckr__torch_bad(p, CKR_ITEM_TORCH_STORAGE, NULL, "a storage's key must be a string");
    *key = ckr__printf(p->c, "%lld", (long long)n->u.i);
    if (!*key) return false;
    *len = strlen(*key);
    return true;
}

/* Legacy: (view key, offset, count) in elements, a window into the storage. */
static bool ckr__torch_window(ckr__pickle *p, const ckr_node *meta, const char *key,
                              int64_t *offset, int64_t *numel)
{
    const ckr_node *const *i = (const ckr_node *const *)meta->u.items;
    if (meta->kind == CKR_NODE_NONE) return true;
    if (meta->kind != CKR_NODE_TUPLE || meta->count != 3 || i[1]->kind != CKR_NODE_INT ||
        i[2]->kind != CKR_NODE_INT ||
        i[1]->u.i < 0 || i[2]->u.i < 0 || !ckr__range_ok((uint64_t)i[1]->u.i, (uint64_t)i[2]->u.i,
                                                         (uint64_t)*numel))
        return ckr__torch_bad(p, CKR_ITEM_TORCH_STORAGE, key,
                              "a storage view that does not fit its storage");
    *offset = i[1]->u.i;
    *numel = i[2]->u.i;
    return true;
}

static bool ckr__torch_storage(ckr__pickle *p, ckr_node *pid, ckr_node **out)
{
    ckr_node **i = pid->u.items;
    ckr__storage s, *old;
    ckr__member *m;
    size_t key_len = 0;
    int64_t offset = 0, numel;
    uint64_t size;
    memset(&s, 0, sizeof s);
    if (pid->count < 5 || pid->count > 6 || i[1]->kind != CKR_NODE_GLOBAL ||
        i[1]->aux < CKR__G_STORAGE ||
        i[4]->kind != CKR_NODE_INT || i[4]->u.i < 0)
        return ckr__torch_bad(p, CKR_ITEM_TORCH_STORAGE, NULL,
                              "expected ('storage', type, key, location, number of elements)");
    if (!ckr__torch_key(p, i[2], &s.key, &key_len)) return false;
    s.untyped = i[1]->aux == CKR__G_UNTYPED;
    s.dtype = s.untyped ? CKR_DTYPE_U8 : (ckr_dtype)(i[1]->aux - CKR__G_STORAGE);
    size = ckr_dtype_size(s.dtype);
    if (!ckr__mul_u64((uint64_t)i[4]->u.i, size, &s.nbytes) || s.nbytes > INT64_MAX)
        return ckr__torch_bad(p, CKR_ITEM_TORCH_STORAGE, s.key,
                              "a storage of more than 2^63 bytes");
    old = ckr__torch_find_storage(p->torch, s.key, key_len, &m);
    if (!old) {
        if (!ckr__torch_new_storage(p, &s, m, key_len)) return false;
        old = &p->torch->doc->storages[p->torch->doc->n_storages - 1];
    } else if (old->dtype != s.dtype || old->untyped != s.untyped || old->nbytes != s.nbytes) {
        return ckr__torch_bad(p, CKR_ITEM_TORCH_STORAGE, s.key,
                              "one storage has two types or sizes");
    }
    numel = i[4]->u.i;
    if (pid->count == 6 && !ckr__torch_window(p, i[5], s.key, &offset, &numel)) return false;
    *out = ckr__storage_node(p, old, offset, numel);
    if (!*out || !ckr__torch_pending(p, ckr__view(*out))) return false;
    if (pid->flags & CKR__N_SHARED) return true;
    ckr__pk_drop(p, i[2]);
    ckr__pk_drop(p, i[4]);
    ckr__pk_drop(p, pid);
    return true;
}

static bool ckr__torch_persistent(ckr__pickle *p, ckr_node *pid, ckr_node **out)
{
    ckr__torch *t = p->torch;
    if (t->zip || t->legacy) {
        if (pid->kind == CKR_NODE_TUPLE && pid->count >= 1 &&
            ckr__is_str(pid->u.items[0], "storage"))
            return ckr__torch_storage(p, pid, out);
        if (t->legacy && pid->kind == CKR_NODE_TUPLE && pid->count >= 2 &&
            ckr__is_str(pid->u.items[0], "module")) {
            *out = pid->u.items[1];
            return true;
        }
        return ckr__torch_bad(p, CKR_ITEM_PICKLE_PERSISTENT, NULL,
                              "a persistent id that is no storage");
    }
    *out = ckr__pk_object(p, "persistent", NULL, pid);
    return *out != NULL;
}

/* >>torch.tensor -------------------------------------------------------------- */

static bool ckr__torch_args(ckr__pickle *p, const char *text)
{
    return ckr__torch_bad(p, CKR_ITEM_TORCH_REBUILD, NULL, text);
}

/* Sizes or strides: a tuple, list or torch.Size of integers that are not negative. */
static bool ckr__torch_dims(ckr__pickle *p, const ckr_node *n, int64_t *out)
{
    uint64_t i;
    for (i = 0; i < n->count; i++) {
        const ckr_node *k = n->u.items[i];
        if (k->kind != CKR_NODE_INT || k->u.i < 0)
            return ckr__torch_args(p, "a size or stride that is no integer, or is negative");
        out[i] = k->u.i;
    }
    return true;
}

static bool ckr__torch_is_dims(const ckr_node *n)
{
    return (ckr_node_is_list(n) || n->kind == CKR_NODE_SIZE) && n->count <= CKR__MAX_RANK;
}

/* The last element of a view lies inside its storage. */
static bool ckr__view_fits(const ckr_view *v)
{
    const uint64_t size = ckr_dtype_size(v->dtype);
    uint64_t last = (uint64_t)v->offset, k;
    int64_t numel;
    uint32_t d;
    if (!ckr__numel(v->n_dims, v->shape, &numel) || !ckr__mul_u64((uint64_t)numel, size, &k) ||
        k > INT64_MAX) return false;
    if (numel == 0) return true;
    for (d = 0; d < v->n_dims; d++)
        if (!ckr__mul_u64((uint64_t)(v->shape[d] - 1), (uint64_t)v->stride[d], &k) ||
            !ckr__add_u64(last, k, &last)) return false;
    return last < v->data_bytes / (size ? size : 1);
}

/* A TENSOR node with room for its dimensions, sizes and strides filled in. */
static ckr_node *ckr__tensor_node(ckr__pickle *p, const ckr_node *size, const ckr_node *stride)
{
    ckr_node *n;
    ckr_view *v;
    int64_t *dims;
    if (!ckr__torch_is_dims(size) || !ckr__torch_is_dims(stride) || size->count != stride->count) {
        ckr__torch_args(p, "sizes and strides must be as many, at most 64");
        return NULL;
    }
    if (!ckr__pk_charge(p, size->count * 16)) return NULL;
    n = ckr__pk_node(p, CKR_NODE_TENSOR, sizeof *v + (size_t)size->count * 2 * sizeof *dims);
    if (!n) return NULL;
    v = (ckr_view *)(void *)(n + 1);
    dims = (int64_t *)(void *)(v + 1);
    v->n_dims = (uint32_t)size->count;
    v->shape = dims;
    v->stride = dims + size->count;
    v->file = CKR_NO_FILE;
    n->u.view = v;
    if (!ckr__torch_dims(p, size, dims) || !ckr__torch_dims(p, stride, dims + size->count))
        return NULL;
    return n;
}

/* storage, offset, size, stride */
static ckr_node *ckr__torch_strided(ckr__pickle *p, ckr_node **a, const ckr_node *dtype)
{
    const ckr_view *s;
    ckr_node *n;
    ckr_view *v;
    uint64_t at;
    if (a[0]->kind != CKR_NODE_STORAGE || a[1]->kind != CKR_NODE_INT || a[1]->u.i < 0) {
        ckr__torch_args(p, "expected a storage and an offset that is not negative");
        return NULL;
    }
    n = ckr__tensor_node(p, a[2], a[3]);
    if (!n) return NULL;
    s = a[0]->u.view;
    v = ckr__view(n);
    v->dtype = s->dtype;
    if (dtype) {
        if (dtype->kind != CKR_NODE_DTYPE || dtype->aux == CKR_DTYPE_NONE ||
            a[0]->aux != CKR__G_UNTYPED) {
            ckr__torch_args(p, "expected an untyped storage and a known dtype");
            return NULL;
        }
        v->dtype = (ckr_dtype)dtype->aux;
    }
    v->file = s->file;
    v->data_offset = s->data_offset;
    v->data_bytes = s->data_bytes;
    v->bytes = s->bytes;
    v->storage = s->storage;
    v->big_endian = s->big_endian;
    if (!ckr__add_u64((uint64_t)a[1]->u.i, (uint64_t)s->offset, &at) || at > INT64_MAX) {
        ckr__torch_bad(p, CKR_ITEM_TORCH_VIEW, s->storage, "a tensor's offset passes 63 bits");
        return NULL;
    }
    v->offset = (int64_t)at;
    if (v->data_bytes % ckr_dtype_size(v->dtype) != 0 || !ckr__view_fits(v)) {
        ckr__torch_bad(p, CKR_ITEM_TORCH_VIEW, s->storage,
                       "a tensor's last element lies behind the end of its storage");
        return NULL;
    }
    return ckr__torch_pending(p, v) ? n : NULL;
}

/* The last of equal keys counts, and duplicates are still there while the pickle runs. */
static const ckr_node *ckr__pk_lookup(const ckr_node *dict, const char *key)
{
    uint64_t i;
    if (!ckr_node_is_dict(dict)) return NULL;
    for (i = dict->count; i > 0; i--)
        if (ckr__is_str(dict->u.items[2 * i - 2], key)) return dict->u.items[2 * i - 1];
    return NULL;
}

static bool ckr__pk_true(const ckr_node *n)
{
    return n && n->kind == CKR_NODE_BOOL && n->u.b;
}

/* Sizes and strides hold small shared integers or ones of their own. */
static void ckr__torch_drop_args(ckr__pickle *p, ckr_node *args)
{
    uint64_t i, k;
    if ((args->flags & CKR__N_SHARED) || p->keep) return;
    if (!p->torch->legacy)
        ckr__pk_drop(p, args->u.items[0]);    /* a legacy one is still in `views` */
    for (i = 1; i < args->count; i++) {
        ckr_node *n = args->u.items[i];
        if (n->kind == CKR_NODE_TUPLE && !(n->flags & CKR__N_SHARED))
            for (k = 0; k < n->count; k++)
                if (n->u.items[k]->kind == CKR_NODE_INT) ckr__pk_drop(p, n->u.items[k]);
        if (n->kind != CKR_NODE_ODICT || n->count == 0) ckr__pk_drop(p, n);
    }
    ckr__pk_drop(p, args);
}

static bool ckr__torch_dense(ckr__pickle *p, ckr_node *args, uint16_t code, ckr_node **out)
{
    ckr_node **a = args->u.items;
    const uint64_t n = args->count, fixed = code == CKR__G_TENSOR1 ? 4 : code == CKR__G_TENSOR2 ?
        6 : 7;
    const ckr_node *flags;
    ckr_view *v;
    if (n < fixed || n > fixed + (code == CKR__G_TENSOR1 ? 0 : 1))
        return ckr__torch_args(p, "a tensor is rebuilt from a wrong number of arguments");
    *out = ckr__torch_strided(p, a, code == CKR__G_TENSOR3 ? a[6] : NULL);
    if (!*out) return false;
    v = ckr__view(*out);
    if (code == CKR__G_TENSOR1) return true;
    if (a[4]->kind != CKR_NODE_BOOL) return ckr__torch_args(p, "requires_grad must be a bool");
    v->requires_grad = a[4]->u.b;
    flags = n > fixed ? a[fixed] : NULL;
    v->conj = ckr__pk_true(ckr__pk_lookup(flags, "conj"));
    v->neg = ckr__pk_true(ckr__pk_lookup(flags, "neg"));
    ckr__torch_drop_args(p, args);
    return true;
}

/* Another TENSOR node with the same contents. */
static ckr_node *ckr__torch_clone(ckr__pickle *p, const ckr_node *t)
{
    ckr_node *n = ckr__pk_node(p, CKR_NODE_TENSOR, sizeof(ckr_view));
    if (!n) return NULL;
    n->u.view = (ckr_view *)(void *)(n + 1);
    *ckr__view(n) = *t->u.view;
    n->attrs = t->attrs;
    return ckr__torch_pending(p, ckr__view(n)) ? n : NULL;
}

/* Attributes: a dict, or (dict or None, slots). */
static ckr_node *ckr__torch_attrs(ckr_node *state)
{
    if (state->kind == CKR_NODE_TUPLE && state->count == 2) {
        ckr_node *slots = state->u.items[1];
        state = state->u.items[0];
        if (!ckr_node_is_dict(state) || state->count == 0) state = slots;
    }
    return ckr_node_is_dict(state) && state->count ? state : NULL;
}

static bool ckr__torch_parameter(ckr__pickle *p, const ckr_node *args, uint16_t code,
                                 ckr_node **out)
{
    ckr_node **a = args->u.items;
    const uint64_t n = args->count;
    const bool with_state = code == CKR__G_PARAMETER_STATE;
    if (n == 0 || a[0]->kind != CKR_NODE_TENSOR) return true;      /* of an opaque object: opaque */
    if (code == CKR__G_PARAMETER_CLASS ? n > 2 : n != (with_state ? 4u : 3u))
        return ckr__torch_args(p, "a Parameter is rebuilt from a wrong number of arguments");
    if (n > 1 && a[1]->kind != CKR_NODE_BOOL)
        return ckr__torch_args(p, "requires_grad must be a bool");
    *out = ckr__torch_clone(p, a[0]);
    if (!*out) return false;
    ckr__view(*out)->parameter = true;
    ckr__view(*out)->requires_grad = n > 1 ? a[1]->u.b : true;
    if (with_state) (*out)->attrs = ckr__torch_attrs(a[3]);
    return true;
}

/* dtype, size, stride, requires_grad; a wrapper subclass has the class before and more behind. */
static bool ckr__torch_meta(ckr__pickle *p, const ckr_node *args, bool wrapper, ckr_node **out)
{
    ckr_node **a = args->u.items + (wrapper ? 1 : 0);
    ckr_view *v;
    if (args->count != (wrapper ? 8u : 4u) || a[0]->kind != CKR_NODE_DTYPE)
        return ckr__torch_args(p, "a tensor without data is rebuilt from wrong arguments");
    *out = ckr__tensor_node(p, a[1], a[2]);
    if (!*out) return false;
    v = ckr__view(*out);
    v->dtype = (ckr_dtype)a[0]->aux;
    v->meta = true;
    v->requires_grad = ckr__pk_true(args->u.items[args->count - 1]);
    if (wrapper && args->u.items[0]->kind == CKR_NODE_GLOBAL)
        v->type_name = args->u.items[0]->u.str;
    return true;
}

static bool ckr__torch_part(ckr__pickle *p, ckr_node *tensor, const char *key, ckr_node *value)
{
    ckr_view *v = ckr__view(tensor);
    ckr_node *pair[2];
    if (!v->parts) v->parts = ckr__pk_node(p, CKR_NODE_DICT, 0);
    pair[0] = ckr__pk_copy(p, CKR_NODE_STR, key, strlen(key));
    pair[1] = value;
    return v->parts && pair[0] && ckr__pk_extend(p, v->parts, pair, 1, 2);
}

/* layout, then for coo (indices, values, size [, is_coalesced]), else (compressed, plain, values,
   size) */
static bool ckr__torch_sparse(ckr__pickle *p, const ckr_node *args, ckr_node **out)
{
    static const char *const coo[] = { "indices", "values" },
        *const csr[] = { "compressed", "plain", "values" };
    ckr_node *const *a = args->u.items, *const *d;
    uint64_t n_parts, i;
    bool is_coo;
    if (args->count != 2 || a[0]->kind != CKR_NODE_LAYOUT || !ckr_node_is_list(a[1]))
        return ckr__torch_args(p, "a sparse tensor is rebuilt from wrong arguments");
    is_coo = !strcmp(a[0]->u.str, "sparse_coo");
    n_parts = is_coo ? 2 : 3;
    d = a[1]->u.items;
    if (a[1]->count < n_parts + 1 || a[1]->count > n_parts + 2)
        return ckr__torch_args(p, "a sparse tensor is rebuilt from a wrong number of parts");
    for (i = 0; i < n_parts; i++)
        if (d[i]->kind != CKR_NODE_TENSOR)
            return ckr__torch_args(p, "a part of a sparse tensor is no tensor");
    *out = ckr__tensor_node(p, d[n_parts], d[n_parts]);
    if (!*out) return false;
    ckr__view(*out)->dtype = d[n_parts - 1]->u.view->dtype;
    ckr__view(*out)->stride = NULL;
    ckr__view(*out)->layout = a[0]->u.str;
    if (is_coo && !ckr__torch_part(p, *out, "coalesced", a[1]->count > 3 &&
                                   ckr__pk_true(d[3]) ? p->yes : p->no)) return false;
    for (i = 0; i < n_parts; i++)
        if (!ckr__torch_part(p, *out, is_coo ? coo[i] : csr[i], d[i])) return false;
    return true;
}

/* storage, offset, size, stride, (scheme, ...), requires_grad, hooks */
static bool ckr__torch_quantized(ckr__pickle *p, const ckr_node *args, ckr_node **out)
{
    ckr_node **a = args->u.items, **q;
    bool tensor, channel, ok;
    const char *scheme;
    if (args->count != 7 || a[4]->kind != CKR_NODE_TUPLE || a[4]->count < 3 ||
        a[5]->kind != CKR_NODE_BOOL)
        return ckr__torch_args(p, "a quantized tensor is rebuilt from wrong arguments");
    q = a[4]->u.items;
    scheme = q[0]->kind == CKR_NODE_GLOBAL && !strncmp(q[0]->u.str, "torch.", 6) ? q[0]->u.str + 6 :
        "";
    tensor = !strcmp(scheme, "per_tensor_affine");
    channel = !strcmp(scheme, "per_channel_affine") ||
              !strcmp(scheme, "per_channel_affine_float_qparams");
    if (!tensor && (!channel || a[4]->count < 4))
        return ckr__torch_args(p, "a quantized tensor of an unknown scheme");
    *out = ckr__torch_strided(p, a, NULL);
    if (!*out) return false;
    ckr__view(*out)->requires_grad = a[5]->u.b;
    ckr__view(*out)->layout = "quantized";
    ok = ckr__torch_part(p, *out, "qscheme", ckr__pk_copy(p, CKR_NODE_STR, scheme, strlen(scheme)));
    ok = ok && ckr__torch_part(p, *out, tensor ? "scale" : "scales", q[1]);
    ok = ok && ckr__torch_part(p, *out, tensor ? "zero_point" : "zero_points", q[2]);
    return ok && (tensor || ckr__torch_part(p, *out, "axis", q[3]));
}

static bool ckr__torch_nested(ckr__pickle *p, const ckr_node *args, ckr_node **out)
{
    static const char *const part[] = { "buffer", "sizes", "strides", "offsets" };
    uint64_t i;
    if (args->count != 4)
        return ckr__torch_args(p, "a nested tensor is rebuilt from wrong arguments");
    for (i = 0; i < 4; i++)
        if (args->u.items[i]->kind != CKR_NODE_TENSOR)
            return ckr__torch_args(p, "a part of a nested tensor is no tensor");
    *out = ckr__tensor_node(p, p->empty_tuple, p->empty_tuple);
    if (!*out) return false;
    ckr__view(*out)->dtype = args->u.items[0]->u.view->dtype;
    ckr__view(*out)->layout = "nested";
    for (i = 0; i < 4; i++)
        if (!ckr__torch_part(p, *out, part[i], args->u.items[i])) return false;
    return true;
}

/* Of devices without storages of their own: (tensor or ndarray, dtype, device, requires_grad). */
static bool ckr__torch_device_tensor(ckr__pickle *p, const ckr_node *args, ckr_node **out)
{
    ckr_node **a = args->u.items;
    if (args->count != 4 || (a[0]->kind != CKR_NODE_TENSOR && a[0]->kind != CKR_NODE_NDARRAY) ||
        a[1]->kind != CKR_NODE_DTYPE || a[0]->u.view->dtype == CKR_DTYPE_NONE) return true;
    *out = ckr__torch_clone(p, a[0]);
    if (!*out) return false;
    if (a[0]->kind == CKR_NODE_NDARRAY) ckr__view(*out)->type_name = NULL;
    ckr__view(*out)->requires_grad = ckr__pk_true(a[3]);
    return true;
}

/* >>torch.calls --------------------------------------------------------------- */

static ckr_node *ckr__pk_pairs_of(ckr__pickle *p, ckr_node_kind kind, const ckr_node *from)
{
    ckr_node *n = ckr__pk_node(p, kind, 0);
    uint64_t i;
    if (!n || !from) return n;
    if (ckr_node_is_dict(from))
        return ckr__pk_charge(p, from->count * 16) &&
               ckr__pk_put_pairs(p, n, from->u.items, (size_t)from->count) ? n : NULL;
    for (i = 0; i < from->count; i++) {
        const ckr_node *pair = from->u.items[i];
        if (!ckr_node_is_list(pair) || pair->count != 2) {
            ckr__pk_fail(p, CKR_ITEM_PICKLE_ARGS, "a dict is made from something that is no pair");
            return NULL;
        }
        if (!ckr__pk_charge(p, 16) || !ckr__pk_put_pairs(p, n, pair->u.items, 1)) return NULL;
    }
    return n;
}

static bool ckr__call_dict(ckr__pickle *p, uint16_t code, const ckr_node *args, ckr_node **out)
{
    ckr_node **a = args->u.items;
    if (code == CKR__G_DEFAULTDICT) {
        if (args->count > 1) return true;
        *out = ckr__pk_node(p, CKR_NODE_DEFAULTDICT, 0);
        if (!*out) return false;
        (*out)->attrs = args->count ? a[0] : p->none;
        return true;
    }
    if (args->count > 1 || (args->count == 1 && !ckr_node_is_dict(a[0]) && !ckr_node_is_list(a[0])))
        return ckr__pk_fail(p, CKR_ITEM_PICKLE_ARGS,
                            "a dict is made from something else than pairs");
    *out = ckr__pk_pairs_of(p, code == CKR__G_ODICT ? CKR_NODE_ODICT : CKR_NODE_COUNTER,
                            args->count ? a[0] : NULL);
    return *out != NULL;
}

static bool ckr__call_set(ckr__pickle *p, uint16_t code, const ckr_node *args, ckr_node **out)
{
    const ckr_node *from = args->count ? args->u.items[0] : NULL;
    if (args->count > 1 || (from && !ckr_node_is_list(from) && from->kind != CKR_NODE_SET &&
                            from->kind != CKR_NODE_FROZENSET))
        return ckr__pk_fail(p, CKR_ITEM_PICKLE_ARGS,
                            "a set is made from something that is no list");
    *out = ckr__pk_node(p, code == CKR__G_SET ? CKR_NODE_SET : CKR_NODE_FROZENSET, 0);
    if (!*out) return false;
    return !from || (ckr__pk_charge(p, from->count * 16) &&
                     ckr__pk_put_items(p, *out, from->u.items, (size_t)from->count));
}

/* Latin-1: every character below 256 is one byte. */
static ckr_node *ckr__pk_latin1(ckr__pickle *p, ckr_node_kind kind, const ckr_node *text)
{
    const uint8_t *s = (const uint8_t *)text->u.str;
    uint64_t i, k = 0;
    uint8_t *d;
    if (!ckr__pk_charge(p, text->count)) return NULL;
    d = (uint8_t *)ckr__pk_alloc(p, (size_t)text->count + 1);
    if (!d) return NULL;
    for (i = 0; i < text->count; i++) {
        if (s[i] < 0x80) { d[k++] = s[i]; continue; }
        if (s[i] > 0xC3) {
            ckr__pk_fail(p, CKR_ITEM_PICKLE_TEXT,
                         "bytes written as text hold a character above 255");
            return NULL;
        }
        d[k++] = (uint8_t)(s[i] << 6 | (s[i + 1] & 63));
        i++;
    }
    d[k] = 0;
    return ckr__pk_text(p, kind, d, (size_t)k);
}

static bool ckr__call_bytes(ckr__pickle *p, uint16_t code, const ckr_node *args, ckr_node **out)
{
    const ckr_node *const *a = (const ckr_node *const *)args->u.items;
    const ckr_node_kind kind = code == CKR__G_BYTEARRAY ? CKR_NODE_BYTEARRAY : CKR_NODE_BYTES;
    const bool latin = args->count == 2 && a[0]->kind == CKR_NODE_STR &&
        !(a[0]->flags & CKR__N_STR2) &&
                       (ckr__is_str(a[1], "latin1") || ckr__is_str(a[1], "latin-1"));
    if (args->count == 0 && code != CKR__G_ENCODE) *out = ckr__pk_text(p, kind, "", 0);
    else if (latin) *out = ckr__pk_latin1(p, kind, a[0]);
    else if (args->count == 1 && a[0]->kind == CKR_NODE_BYTES) *out =
        ckr__pk_text(p, kind, a[0]->u.str, (size_t)a[0]->count);
    else return true;
    return *out != NULL;
}

static bool ckr__call_complex(ckr__pickle *p, const ckr_node *args, ckr_node **out)
{
    double *v;
    if (args->count != 2) return true;
    v = (double *)ckr__pk_alloc(p, 2 * sizeof *v);
    if (!v) return false;
    if (!ckr_node_f64(args->u.items[0], &v[0]) || !ckr_node_f64(args->u.items[1], &v[1]))
        return true;
    *out = ckr__pk_node(p, CKR_NODE_COMPLEX, 0);
    if (*out) (*out)->u.complex_ = v;
    return *out != NULL;
}

static bool ckr__call_size(ckr__pickle *p, const ckr_node *args, ckr_node **out)
{
    const ckr_node *from;
    uint64_t i;
    if (args->count != 1 || !ckr_node_is_list(args->u.items[0]))
        return ckr__torch_args(p, "torch.Size is made from something that is no tuple");
    from = args->u.items[0];
    if (!ckr__pk_charge(p, from->count * 16)) return false;
    for (i = 0; i < from->count; i++)
        if (from->u.items[i]->kind != CKR_NODE_INT)
            return ckr__torch_args(p, "torch.Size holds something that is no integer");
    *out = ckr__pk_node(p, CKR_NODE_SIZE, 0);
    if (!*out) return false;
    if (from->kind == CKR_NODE_TUPLE) {
        (*out)->u.items = from->u.items;
        (*out)->count = from->count;
        return true;
    }
    return ckr__pk_extend(p, *out, from->u.items, (size_t)from->count, 1);
}

static bool ckr__call_device(ckr__pickle *p, const ckr_node *args, ckr_node **out)
{
    ckr_node *const *a = args->u.items;
    const char *s;
    if (args->count < 1 || args->count > 2 || a[0]->kind != CKR_NODE_STR || a[0]->count > 64 ||
        (args->count == 2 && a[1]->kind != CKR_NODE_INT))
        return ckr__torch_args(p, "torch.device is not made from a type and an index");
    if (args->count == 1) {
        *out = ckr__pk_text(p, CKR_NODE_DEVICE, a[0]->u.str, (size_t)a[0]->count);
        return *out != NULL;
    }
    s = ckr__printf(p->c, "%s:%lld", a[0]->u.str, (long long)a[1]->u.i);
    if (!s) return false;
    *out = ckr__pk_text(p, CKR_NODE_DEVICE, s, strlen(s));
    return *out != NULL;
}

static bool ckr__call_layout(ckr__pickle *p, const ckr_node *args, ckr_node **out)
{
    const ckr_node *a = args->count == 1 ? args->u.items[0] : NULL;
    if (!a || a->kind != CKR_NODE_STR || a->count < 7 || memcmp(a->u.str, "torch.", 6) != 0)
        return ckr__torch_args(p, "a layout is made from something else than its name");
    *out = ckr__pk_text(p, CKR_NODE_LAYOUT, a->u.str + 6, (size_t)a->count - 6);
    return *out != NULL;
}

static bool ckr__torch_embedded(ckr__pickle *p, const ckr_node *args, ckr_node **out);

/* Calls that may be known by the code of their global; *out stays NULL when they stay opaque. */
static bool ckr__torch_known(ckr__pickle *p, uint16_t code, ckr_node *args, ckr_node **out)
{
    switch (code) {
    case CKR__G_ODICT: case CKR__G_DEFAULTDICT: case CKR__G_COUNTER:
        return ckr__call_dict(p, code, args, out);
    case CKR__G_SET: case CKR__G_FROZENSET: return ckr__call_set(p, code, args, out);
    case CKR__G_BYTES: case CKR__G_BYTEARRAY: case CKR__G_ENCODE:
        return ckr__call_bytes(p, code, args, out);
    case CKR__G_COMPLEX: return ckr__call_complex(p, args, out);
    case CKR__G_SIZE:    return ckr__call_size(p, args, out);
    case CKR__G_DEVICE:  return ckr__call_device(p, args, out);
    case CKR__G_LAYOUT:  return ckr__call_layout(p, args, out);
    case CKR__G_TENSOR1: case CKR__G_TENSOR2: case CKR__G_TENSOR3:
        return ckr__torch_dense(p, args, code, out);
    case CKR__G_PARAMETER: case CKR__G_PARAMETER_STATE: case CKR__G_PARAMETER_CLASS:
        return ckr__torch_parameter(p, args, code, out);
    case CKR__G_META:    return ckr__torch_meta(p, args, false, out);
    case CKR__G_WRAPPER: return ckr__torch_meta(p, args, true, out);
    case CKR__G_SPARSE:  return ckr__torch_sparse(p, args, out);
    case CKR__G_QUANTIZED: return ckr__torch_quantized(p, args, out);
    case CKR__G_NESTED:  return ckr__torch_nested(p, args, out);
    case CKR__G_DEVICE_NUMPY: case CKR__G_DEVICE_CPU: return ckr__torch_device_tensor(p, args, out);
    case CKR__G_LOAD_BYTES: return ckr__torch_embedded(p, args, out);
    case CKR__G_JIT_LIST: case CKR__G_JIT_TAG:
        if (args->count >= 1) *out = args->u.items[0];
        return true;
    case CKR__G_NP_SCALAR:     return ckr__np_scalar(p, args, out);
    case CKR__G_NP_FROMBUFFER: return ckr__np_frombuffer(p, args, out);
    default: return true;
    }
}

/* (function, class, arguments, state): the function's tensor, with class and attributes. */
static bool ckr__torch_from_type(ckr__pickle *p, const ckr_node *args, ckr_node **out)
{
    ckr_node **a = args->u.items;
    const bool keep = p->keep;
    ckr_view *v;
    if (args->count != 4 || a[0]->kind != CKR_NODE_GLOBAL || a[1]->kind != CKR_NODE_GLOBAL ||
        a[2]->kind != CKR_NODE_TUPLE)
        return true;
    if (a[0]->aux < CKR__G_TENSOR1 || a[0]->aux > CKR__G_WRAPPER || a[0]->aux == CKR__G_FROM_TYPE)
        return true;
    p->keep = true;            /* `args` may live on, and holds a[2]                  */
    if (!ckr__torch_known(p, a[0]->aux, a[2], out)) return false;
    p->keep = keep;
    if (!*out || (*out)->kind != CKR_NODE_TENSOR) {
        *out = NULL;
        return true;
    }
    v = ckr__view(*out);
    if (a[1]->aux == CKR__G_PARAMETER_CLASS) v->parameter = true;
    else if (!ckr__text_is(a[1]->u.str, (size_t)a[1]->count, "torch.Tensor")) v->type_name =
        a[1]->u.str;
    (*out)->attrs = ckr__torch_attrs(a[3]);
    return true;
}

/* getattr(getattr(global, "A"), "B"), as protocols below 4 write a nested class: "module.A.B". */
static bool ckr__torch_dotted(ckr__pickle *p, const ckr_node *n, const char **out)
{
    const ckr_node *chain[16];
    size_t k = 0, i, len;
    char *s;
    *out = NULL;
    while (n->kind == CKR_NODE_OBJECT) {
        const ckr_node *args = n->u.object->args;
        if (n->aux != CKR__G_GETATTR || k == 16 || args->count != 2 ||
            args->u.items[1]->kind != CKR_NODE_STR) return true;
        chain[k++] = args->u.items[1];
        n = args->u.items[0];
    }
    if (n->kind != CKR_NODE_GLOBAL || k == 0) return true;
    for (len = (size_t)n->count, i = 0; i < k; i++) len += (size_t)chain[i]->count + 1;
    if (!ckr__pk_charge(p, len)) return false;
    s = (char *)ckr__pk_alloc(p, len + 1);
    if (!s) return false;
    *out = s;
    memcpy(s, n->u.str, (size_t)n->count);
    s += n->count;
    for (i = k; i > 0; i--) {
        *s++ = '.';
        memcpy(s, chain[i - 1]->u.str, (size_t)chain[i - 1]->count);
        s += chain[i - 1]->count;
    }
    *s = 0;
    return true;
}

static bool ckr__torch_reduce(ckr__pickle *p, ckr_node *callable, ckr_node *args, bool newobj,
                              ckr_node **out)
{
    const uint16_t code = callable->kind == CKR_NODE_GLOBAL ? callable->aux : 0;
    *out = NULL;
    if (code != CKR__G_OTHER && code < CKR__G_STORAGE &&
        (!newobj || code == CKR__G_PARAMETER_CLASS || code == CKR__G_ODICT)) {
        if (code == CKR__G_FROM_TYPE ? !ckr__torch_from_type(p, args, out) :
            !ckr__torch_known(p, code, args, out)) return false;
        if (*out) return true;
    }
    *out = ckr__pk_object(p, newobj ? "newobj" : "reduce", callable, args);
    if (!*out) return false;
    if (code == CKR__G_GETATTR || code == CKR__G_NP_RECONSTRUCT) (*out)->aux = code;
    return callable->kind != CKR_NODE_OBJECT || ckr__torch_dotted(p, callable,
                                                                  &ckr__object(*out)->name);
}

/* >>torch.build --------------------------------------------------------------- */

static bool ckr__build_attrs(ckr__pickle *p, ckr_node *target, ckr_node *state)
{
    ckr_node *attrs = ckr__torch_attrs(state), *both;
    if (!attrs) return true;
    if (!target->attrs) {
        target->attrs = attrs;
        return true;
    }
    both = ckr__pk_pairs_of(p, CKR_NODE_DICT, target->attrs);
    if (!both || !ckr__pk_charge(p, attrs->count * 16) ||
        !ckr__pk_put_pairs(p, both, attrs->u.items, (size_t)attrs->count)) return false;
    target->attrs = both;
    return true;
}

/* A second BUILD keeps the first: the state becomes the list of all, under how "builds". */
static bool ckr__build_object(ckr__pickle *p, ckr_node *target, ckr_node *state)
{
    ckr_object *o = ckr__object(target);
    ckr_node *all;
    if (!o->state) {
        o->state = state;
        return true;
    }
    all = o->state;
    if (all->kind != CKR_NODE_OBJECT || strcmp(all->u.object->how, "builds") != 0) {
        all = ckr__pk_object(p, "builds", NULL, p->empty_tuple);
        if (!all || !ckr__pk_append(p, all, &o->state, 1)) return false;
        o->state = all;
    }
    return ckr__pk_append(p, all, &state, 1);
}

static bool ckr__torch_build(ckr__pickle *p, ckr_node *target, ckr_node *state)
{
    bool done = false;
    switch (target->kind) {
    case CKR_NODE_ODICT: case CKR_NODE_COUNTER: case CKR_NODE_TENSOR:
        return ckr__build_attrs(p, target, state);
    case CKR_NODE_OBJECT:
        if (target->aux == CKR__G_NP_RECONSTRUCT && !ckr__np_build(p, target, state, &done))
            return false;
        return done || ckr__build_object(p, target, state);
    default:
        return ckr__pk_fail(p, CKR_ITEM_PICKLE_TARGET, "a state is set on a value that has none");
    }
}

/* >>torch.legacy -------------------------------------------------------------- */

static ckr_result ckr__source_read(ckr__ctx *c, const ckr__source *s, uint64_t at, void *dst,
                                   size_t n)
{
    if (!ckr__range_ok(at, n, s->size))
        return ckr__fail(c->err, CKR_ITEM_TORCH_LEGACY, ckr__file_path(c, s->file),
                         s->offset + s->size, NULL,
                         "the stream ends at byte %llu, %llu more were expected at %llu",
                         (unsigned long long)s->size, (unsigned long long)n,
                             (unsigned long long)at);
    if (s->file != CKR_NO_FILE) return ckr__file_read(c, s->file, s->offset + at, dst, n);
    if (n) memcpy(dst, s->bytes + at, n);
    return CKR_OK;
}

static void ckr__pk_begin(ckr__pickle *p, ckr__ctx *c, ckr__torch *t, uint8_t *data, size_t size,
                          size_t pos)
{
    memset(p, 0, sizeof *p);
    p->c = c;
    p->torch = t;
    p->path = ckr__file_path(c, t->source.file);
    p->base = t->source.file == CKR_NO_FILE ? CKR_NO_OFFSET : t->source.offset;
    p->data = data;
    p->size = size;
    p->pos = pos;
}

static bool ckr__is_magic(const ckr_node *n)
{
    static const uint8_t magic[10] = { 0x6C, 0xFC, 0x9C, 0x46, 0xF9, 0x20, 0x6A, 0xA8, 0x50, 0x19 };
    return n && n->kind == CKR_NODE_BIGINT && n->count == 10 && !memcmp(n->u.str, magic, 10);
}

static ckr_result ckr__legacy_fail(ckr__ctx *c, const ckr__torch *t, uint64_t at, const char *where,
                                   const char *text)
{
    return ckr__fail(c->err, CKR_ITEM_TORCH_LEGACY, ckr__file_path(c, t->source.file),
                     t->source.offset + at, where, "%s", text);
}

/* The five pickles, in `data`; *short_ when one of them passes its end. */
static ckr_result ckr__legacy_pickles(ckr__ctx *c, ckr__torch *t, uint8_t *data, size_t size,
                                      size_t *end,
                                      ckr_node **keys, bool *short_, bool *keep)
{
    static const char *const where[] = { "magic number", "protocol version", "system info",
        "object", "storage keys" };
    ckr_node *part[5];
    size_t pos = 0;
    int i;
    for (i = 0; i < 5; i++) {
        ckr__pickle p;
        ckr__pk_begin(&p, c, t, data, size, pos);
        p.where = where[i];
        p.keep = *keep;
        part[i] = ckr__pk_run(&p);
        *short_ = p.truncated || p.stale;
        *keep = *keep || p.stale;
        if (!part[i]) return c->err->code;
        if (i == 0 && !ckr__is_magic(part[0]))
            return ckr__legacy_fail(c, t, 0, where[0], "not torch's magic number");
        if (i == 1 && (part[1]->kind != CKR_NODE_INT || part[1]->u.i != 1001))
            return ckr__legacy_fail(c, t, pos, where[1], "the protocol version is not 1001");
        if (i == 2 && !ckr_node_is_dict(part[2]))
            return ckr__legacy_fail(c, t, pos, where[2], "expected a dict");
        pos = p.pos;
    }
    if (part[4]->kind != CKR_NODE_LIST)
        return ckr__legacy_fail(c, t, pos, where[4], "expected a list");
    t->doc->root = part[3];
    *keys = part[4];
    *end = pos;
    return CKR_OK;
}

/* Behind the pickles, per key: i64 number of elements, then the bytes. */
static ckr_result ckr__legacy_storages(ckr__ctx *c, ckr__torch *t, const ckr_node *keys,
                                       uint64_t first, uint64_t at)
{
    uint64_t i, n_placed = 0;
    for (i = 0; i < keys->count; i++) {
        const ckr_node *k = keys->u.items[i];
        ckr__storage *s;
        uint64_t index;
        uint8_t head[8];
        ckr_result r;
        if (k->kind != CKR_NODE_STR || !ckr__map_find(&t->keys, k->u.str, (size_t)k->count, &index))
            return ckr__legacy_fail(c, t, at, NULL, "a storage that the object does not use");
        s = &t->doc->storages[index];
        if (s->placed) return ckr__legacy_fail(c, t, at, s->key, "a storage comes twice");
        r = ckr__source_read(c, &t->source, at, head, 8);
        if (r != CKR_OK) return r;
        at += 8;
        if (ckr__load_u64(head) != s->nbytes / ckr_dtype_size(s->dtype))
            return ckr__fail(c->err, CKR_ITEM_TORCH_STORAGE_SIZE, ckr__file_path(c, t->source.file),
                             t->source.offset + at - 8,
                             s->key, "the storage has %llu elements here, the object says %llu",
                             (unsigned long long)ckr__load_u64(head),
                                 (unsigned long long)(s->nbytes / ckr_dtype_size(s->dtype)));
        if (!ckr__range_ok(at, s->nbytes, t->source.size))
            return ckr__legacy_fail(c, t, at, s->key, "the storage passes the end of the stream");
        s->offset = t->source.file == CKR_NO_FILE ? 0 : t->source.offset + at;
        s->bytes = t->source.file == CKR_NO_FILE ? t->source.bytes + at : NULL;
        s->placed = true;
        n_placed++;
        at += s->nbytes;
    }
    if (n_placed != t->doc->n_storages - first)
        return ckr__legacy_fail(c, t, at, NULL, "a storage of the object is missing");
    if (at != t->source.size)
        return ckr__legacy_fail(c, t, at, NULL, "bytes follow the last storage");
    for (i = 0; i < t->n_views; i++) {
        const ckr__storage *s = &t->doc->storages[t->views[i]->data_offset];
        t->views[i]->data_offset = s->offset;
        t->views[i]->bytes = s->bytes;
    }
    return CKR_OK;
}

/* Before an attempt is repeated: only its error may be gone, so nothing else may have failed. */
static void ckr__error_reset(ckr__ctx *c)
{
    memset(c->err, 0, sizeof *c->err);
    c->err->offset = CKR_NO_OFFSET;
}

/* Where the pickles end is known only after reading them: a window that grows until they fit. */
static ckr_result ckr__legacy_load(ckr__ctx *c, const ckr__source *src, ckr__doc *doc)
{
    const uint64_t first = doc->n_storages;
    uint64_t window = src->file == CKR_NO_FILE ? 4096 : (uint64_t)1 << 20;
    bool keep = false;
    ckr_result r;
    for (;;) {
        ckr__torch t;
        const uint64_t n = window < src->size ? window : src->size;
        ckr_node *keys = NULL;
        bool short_ = false;
        const bool kept = keep;
        size_t end = 0;
        uint8_t *data;
        memset(&t, 0, sizeof t);
        t.doc = doc;
        t.source = *src;
        t.legacy = true;
        t.keys.c = c;
        doc->n_storages = first;
        if (n > c->limits.max_metadata_bytes)
            return ckr__fail(c->err, CKR_ITEM_LIMIT, ckr__file_path(c, src->file), src->offset,
                             NULL,
                             "the pickles of a legacy stream need more than max_metadata_bytes");
        data = (uint8_t *)ckr__arena_n(c, n + 1, 1);
        r = data ? ckr__source_read(c, src, 0, data, (size_t)n) : c->err->code;
        if (r == CKR_OK)
            r = ckr__legacy_pickles(c, &t, data, (size_t)n, &end, &keys, &short_, &keep);
        if (r == CKR_OK) r = ckr__legacy_storages(c, &t, keys, first, end);
        ckr__map_free(&t.keys);
        if (r == CKR_OK || !short_ || (n == src->size && kept == keep)) return r;
        ckr__error_reset(c);
        if (kept == keep) window *= 4;
    }
}

/* torch.storage._load_from_bytes(bytes): a whole legacy stream inside a pickle. Streams do not nest
   further, and together they are no longer than the pickle that holds them.                      */
static bool ckr__torch_embedded(ckr__pickle *p, const ckr_node *args, ckr_node **out)
{
    const ckr_node *b = args->count == 1 ? args->u.items[0] : NULL;
    ckr__source s;
    ckr_node *root;
    ckr_result r;
    if (!b || b->kind != CKR_NODE_BYTES) return true;
    if (p->torch->legacy || b->count > p->size - p->torch->embedded)
        return ckr__pk_fail(p, CKR_ITEM_LIMIT,
                            "streams inside a pickle are nested or larger than it");
    p->torch->embedded += b->count;
    s.file = CKR_NO_FILE;
    s.offset = 0;
    s.size = b->count;
    s.bytes = (const uint8_t *)b->u.str;
    root = p->torch->doc->root;
    r = ckr__legacy_load(p->c, &s, p->torch->doc);
    if (r != CKR_OK && !p->c->err->file[0])
        ckr__copy_tail(p->c->err->file, sizeof p->c->err->file, p->path);
    *out = p->torch->doc->root;
    p->torch->doc->root = root;
    return r == CKR_OK;
}

/* >>torch.script -------------------------------------------------------------- */
/* A TorchScript archive's object is a module: NEWOBJ of a __torch__ class with its attributes as
   state. What a state_dict would hold of it: its tensors, then those of its submodules.          */

typedef struct ckr__module {
    const ckr_node *object;
    const char     *prefix;
    uint32_t        depth;
} ckr__module;

static bool ckr__is_module(const ckr_node *n)
{
    return n->kind == CKR_NODE_OBJECT && n->u.object->name &&
           !strncmp(n->u.object->name, "__torch__", 9) &&
           n->u.object->state && ckr_node_is_dict(n->u.object->state);
}

static bool ckr__script_tensors(ckr__pickle *p, ckr_node *dict, const ckr__module *m)
{
    const ckr_node *s = m->object->u.object->state;
    uint64_t i;
    for (i = 0; i < s->count; i++) {
        ckr_node *pair[2];
        const ckr_node *k = s->u.items[2 * i];
        const char *name;
        if (k->kind != CKR_NODE_STR || s->u.items[2 * i + 1]->kind != CKR_NODE_TENSOR) continue;
        if (!ckr__pk_charge(p, strlen(m->prefix) + k->count)) return false;
        name = ckr__printf(p->c, "%s%s", m->prefix, k->u.str);
        pair[0] = name ? ckr__pk_text(p, CKR_NODE_STR, name, strlen(name)) : NULL;
        pair[1] = ckr__torch_clone(p, s->u.items[2 * i + 1]);
        if (!pair[0] || !pair[1]) return false;
        ckr__view(pair[1])->requires_grad = false;       /* a state_dict's tensors are detached */
        if (!ckr__pk_put_pairs(p, dict, pair, 1)) return false;
    }
    return true;
}

static bool ckr__script_push(ckr__pickle *p, ckr__module **stack, uint64_t *n, uint64_t *cap,
                             const ckr__module *m)
{
    const ckr_node *s = m->object->u.object->state;
    const ckr__module parent = *m;
    uint64_t i;
    for (i = s->count; i > 0; i--) {
        const ckr_node *k = s->u.items[2 * i - 2], *v = s->u.items[2 * i - 1];
        void *array = *stack;
        if (k->kind != CKR_NODE_STR || !ckr__is_module(v)) continue;
        if (parent.depth >= p->c->limits.max_depth)
            return ckr__pk_fail(p, CKR_ITEM_LIMIT, "modules are nested too deep");
        if (!ckr__pk_charge(p, strlen(parent.prefix) + k->count + 16) ||
            !ckr__arena_grow(p->c, &array, cap, *n + 1, sizeof **stack)) return false;
        *stack = (ckr__module *)array;
        (*stack)[*n].object = v;
        (*stack)[*n].depth = parent.depth + 1;
        (*stack)[*n].prefix = ckr__printf(p->c, "%s%s.", parent.prefix, k->u.str);
        if (!(*stack)[(*n)++].prefix) return false;
    }
    return true;
}

static ckr_node *ckr__script_flatten(ckr__pickle *p, const ckr_node *root)
{
    ckr_node *dict = ckr__pk_node(p, CKR_NODE_DICT, 0);
    ckr__module *stack = NULL, m;
    uint64_t n = 0, cap = 0;
    m.object = root;
    m.prefix = "";
    m.depth = 0;
    if (!dict) return NULL;
    for (;;) {
        if (!ckr__script_tensors(p, dict, &m) || !ckr__script_push(p, &stack, &n, &cap, &m))
            return NULL;
        if (n == 0) return ckr__pk_finish_keys(p) ? dict : NULL;
        m = stack[--n];
    }
}

/* >>torch.archive ------------------------------------------------------------- */

/* ROOT is what stands before the first '/' of the first member; all must share it. */
static ckr_result ckr__torch_root(const ckr__zip *z, size_t *root)
{
    uint64_t i;
    const char *first = z->n ? z->members[0].name : "", *slash = strchr(first, '/');
    const size_t n = slash ? (size_t)(slash - first) + 1 : 0;
    for (i = 0; i < z->n; i++) {
        const ckr__member *m = &z->members[i];
        if (n == 0 || m->name_len < n || memcmp(m->name, first, n) != 0)
            return ckr__fail(z->c->err, CKR_ITEM_TORCH_ROOT, ckr__file_path(z->c, z->file),
                             z->base + m->header, m->name,
                             "a member outside the archive's root folder \"%.*s\"",
                                 (int)(n < 200 ? n : 200), first);
    }
    *root = n;
    return CKR_OK;
}

static ckr_result ckr__torch_small(const ckr__torch *t, const char *record, const uint8_t **data,
                                   uint64_t *n)
{
    const size_t root = t->prefix - 5, len = strlen(record);
    const ckr__member *m;
    *data = NULL;
    *n = 0;
    memcpy(t->name + root, record, len);
    m = ckr__zip_find(t->zip, t->name, root + len);
    memcpy(t->name + root, "data/", 5);
    if (!m) return CKR_OK;
    *n = m->size;
    return m->size <= 4096 ? ckr__zip_load(t->zip, m, data) : CKR_OK;
}

static ckr_result ckr__torch_records(ckr__torch *t)
{
    ckr__ctx *c = t->zip->c;
    const char *path = ckr__file_path(c, t->zip->file);
    const uint8_t *d;
    uint64_t n, i, v = 0;
    ckr_result r = ckr__torch_small(t, "version", &d, &n);
    if (r == CKR_OK && !d) r = ckr__torch_small(t, ".data/version", &d, &n);
    if (r != CKR_OK) return r;
    if (!d)
        return ckr__fail(c->err, CKR_ITEM_TORCH_RECORD, path, CKR_NO_OFFSET, "version",
                         "the archive has no version record");
    if (n && d[n - 1] == '\n') n--;
    for (i = 0; i < n && d[i] >= '0' && d[i] <= '9' && v < 1000; i++)
        v = v * 10 + (uint64_t)(d[i] - '0');
    if (i != n || n == 0 || v < 1 || v > 10)
        return ckr__fail(c->err, CKR_ITEM_TORCH_VERSION, path, CKR_NO_OFFSET, "version",
                         "the version is no number from 1 to 10");
    r = ckr__torch_small(t, "byteorder", &d, &n);
    if (r != CKR_OK) return r;
    t->big_endian = d && n == 3 && !memcmp(d, "big", 3);
    if ((d || n) && !t->big_endian && !(d && n == 6 && !memcmp(d, "little", 6)))
        return ckr__fail(c->err, CKR_ITEM_TORCH_BYTEORDER, path, CKR_NO_OFFSET, "byteorder",
                         "neither \"little\" nor \"big\"");
    return CKR_OK;
}

/* data.pkl, once; *stale when it has to be repeated with every node kept. */
static ckr_result ckr__torch_object(ckr__torch *t, const ckr__member *m, bool keep, bool *stale)
{
    ckr__ctx *c = t->zip->c;
    ckr__doc *doc = t->doc;
    const uint8_t *data;
    ckr__pickle p;
    uint64_t i;
    ckr_result r = ckr__zip_load(t->zip, m, &data);
    if (r != CKR_OK) return r;
    doc->n_storages = 0;
    for (i = 0; i < t->zip->n; i++) t->zip->members[i].storage = CKR__ZIP_NONE;
    ckr__pk_begin(&p, c, t, (uint8_t *)(uintptr_t)data, (size_t)m->size, 0);
    p.where = "data.pkl";
    p.keep = keep;
    doc->root = ckr__pk_run(&p);
    *stale = p.stale;
    if (doc->root && p.pos != p.size) {
        p.op = p.pos;
        ckr__pk_fail(&p, CKR_ITEM_PICKLE_TRAILING, "bytes follow the pickle's STOP");
        doc->root = NULL;
    }
    if (doc->root && ckr__is_module(doc->root)) doc->root = ckr__script_flatten(&p, doc->root);
    ckr__pk_free(&p);
    return doc->root ? CKR_OK : c->err->code;
}

static ckr_result ckr__torch_archive(ckr__ctx *c, ckr__zip *z, ckr__doc *doc)
{
    ckr__torch t;
    const ckr__member *m;
    size_t root = 0;
    bool stale = false;
    ckr_result r = ckr__torch_root(z, &root);
    if (r != CKR_OK) return r;
    memset(&t, 0, sizeof t);
    t.doc = doc;
    t.zip = z;
    t.prefix = root + 5;
    t.source.file = z->file;
    t.name = (char *)ckr__arena(c, t.prefix + CKR__MAX_KEY + 1);
    doc->storages = CKR__NEW_N(c, ckr__storage, z->n);
    if (!t.name || !doc->storages) return c->err->code;
    doc->cap_storages = z->n;
    memcpy(t.name, z->members[0].name, root);
    memcpy(t.name + root, "data.pkl", 8);
    m = ckr__zip_find(z, t.name, root + 8);
    memcpy(t.name + root, "data/", 5);
    if (!m)
        return ckr__fail(c->err, CKR_ITEM_TORCH_RECORD, ckr__file_path(c, z->file), CKR_NO_OFFSET,
                         "data.pkl",
                         "the archive has no data.pkl");
    t.source.offset = m->offset;
    r = ckr__torch_records(&t);
    if (r == CKR_OK) r = ckr__torch_object(&t, m, false, &stale);
    if (stale) {
        ckr__error_reset(c);
        r = ckr__torch_object(&t, m, true, &stale);
    }
    doc->format = CKR_FORMAT_TORCH_ZIP;
    doc->members = z->members;
    doc->n_members = z->n;
    return r;
}

/* >>numpy --------------------------------------------------------------------- */
/* Arrays inside pickles: REDUCE _reconstruct(ndarray, (0,), b"b") then BUILD (1, shape, dtype,
   is_fortran, data), or REDUCE _frombuffer(buffer, dtype, shape, order) from protocol 5 on;
   scalars:
   REDUCE scalar(dtype, bytes). A dtype is REDUCE numpy.dtype(code, False, True) then BUILD
   (3, byteorder, subdtype, names, fields, itemsize, alignment, flags); dates have version 4 and a
   ninth item, (metadata, (unit, count, 1, 1)). Structured and object arrays stay OBJECT nodes.
   .npy: 93 "NUMPY", u8 major, u8 minor, length of the header (u16; u32 from 2.0 on), the header, a
   Python dict literal with descr, fortran_order and shape, then the data. .npz: a zip of .npy.   */

typedef struct ckr__np_type {
    char      text[48];        /* as numpy's dtype.str: "<f4", "|b1", "<M8[D]"         */
    uint64_t  size;            /* bytes per element                                    */
    ckr_dtype dtype;           /* NONE for what torch has no name for                  */
} ckr__np_type;

static ckr_dtype ckr__np_dtype_of(char kind, uint64_t size)
{
    switch (kind) {
    case 'b': return size == 1 ? CKR_DTYPE_BOOL : CKR_DTYPE_NONE;
    case 'i': return size == 1 ? CKR_DTYPE_I8 : size == 2 ? CKR_DTYPE_I16 : size == 4 ?
        CKR_DTYPE_I32 :
                     size == 8 ? CKR_DTYPE_I64 : CKR_DTYPE_NONE;
    case 'u': return size == 1 ? CKR_DTYPE_U8 : size == 2 ? CKR_DTYPE_U16 : size == 4 ?
        CKR_DTYPE_U32 :
                     size == 8 ? CKR_DTYPE_U64 : CKR_DTYPE_NONE;
    case 'f': return size == 2 ? CKR_DTYPE_F16 : size == 4 ? CKR_DTYPE_F32 : size == 8 ?
        CKR_DTYPE_F64 : CKR_DTYPE_NONE;
    case 'c': return size == 8 ? CKR_DTYPE_C64 : size == 16 ? CKR_DTYPE_C128 : CKR_DTYPE_NONE;
    default:  return CKR_DTYPE_NONE;
    }
}

/* A kind letter and a number of bytes (of characters for U). */
static bool ckr__np_code(const char *s, size_t n, char order, ckr__np_type *t)
{
    size_t i;
    uint64_t v = 0;
    if (n < 2 || n > 12 || !s[0] || !strchr("biufcSUVMm", s[0])) return false;
    for (i = 1; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
        v = v * 10 + (uint64_t)(s[i] - '0');
    }
    t->size = s[0] == 'U' ? v * 4 : v;
    t->dtype = ckr__np_dtype_of(s[0], t->size);
    if (strchr("bSV", s[0]) || t->size == 1) order = '|';
    else if (order == '=' || order == '|') order = '<';
    if (order != '<' && order != '>' && order != '|') return false;
    t->text[0] = order;
    memcpy(t->text + 1, s, n);
    t->text[n + 1] = 0;
    return t->size > 0;
}

/* The unit of a date: (metadata, (unit, count, 1, 1)). */
static bool ckr__np_unit(const ckr_node *meta, ckr__np_type *t)
{
    const ckr_node *u = meta && meta->kind == CKR_NODE_TUPLE &&
        meta->count == 2 ? meta->u.items[1] : NULL;
    const ckr_node *name, *count;
    const size_t at = strlen(t->text);
    if (!u || u->kind != CKR_NODE_TUPLE || u->count < 2) return false;
    name = u->u.items[0];
    count = u->u.items[1];
    if ((name->kind != CKR_NODE_BYTES && name->kind != CKR_NODE_STR) || name->count > 8 ||
        count->kind != CKR_NODE_INT || count->u.i < 1 || count->u.i > 1000000000) return false;
    if (!strcmp(name->u.str, "generic")) return true;
    if (count->u.i == 1) snprintf(t->text + at, sizeof t->text - at, "[%s]", name->u.str);
    else snprintf(t->text + at, sizeof t->text - at, "[%ld%s]", (long)count->u.i, name->u.str);
    return true;
}

static bool ckr__np_type_of(const ckr_node *n, ckr__np_type *t)
{
    const ckr_object *o = n->kind == CKR_NODE_OBJECT ? n->u.object : NULL;
    const ckr_node *code, *s;
    char order = '<';
    memset(t, 0, sizeof *t);
    if (!o || !o->name || strcmp(o->name, "numpy.dtype") != 0 || o->args->count < 1) return false;
    code = o->args->u.items[0];
    s = o->state;
    if (code->kind != CKR_NODE_STR) return false;
    if (s) {
        if (s->kind != CKR_NODE_TUPLE || s->count < 8 || s->u.items[1]->kind != CKR_NODE_STR ||
            s->u.items[1]->count != 1 ||
            s->u.items[2]->kind != CKR_NODE_NONE ||
                s->u.items[3]->kind != CKR_NODE_NONE) return false;
        order = s->u.items[1]->u.str[0];
    }
    if (!ckr__np_code(code->u.str, (size_t)code->count, order, t)) return false;
    if (code->u.str[0] != 'M' && code->u.str[0] != 'm') return true;
    return s && s->count == 9 && ckr__np_unit(s->u.items[8], t);
}

/* Fills `v` for an array whose data lies somewhere; false when shape and size do not agree. */
static bool ckr__np_view(ckr_view *v, const ckr__np_type *t, int64_t *dims, uint32_t n_dims,
                         bool fortran, uint64_t n_bytes)
{
    int64_t *stride = dims + n_dims;
    int64_t numel, step = 1;
    uint64_t bytes;
    uint32_t d, wide = 0;
    if (!ckr__numel(n_dims, dims, &numel) || !ckr__mul_u64((uint64_t)numel, t->size, &bytes) ||
        bytes != n_bytes) return false;
    for (d = 0; d < n_dims; d++) {
        const uint32_t k = fortran ? d : n_dims - 1 - d;
        stride[k] = numel ? step : 0;
        if (numel) step *= dims[k];
        wide += dims[k] > 1;
    }
    v->dtype = t->dtype;
    v->big_endian = t->text[0] == '>';
    v->fortran = fortran && numel && wide > 1;     /* numpy's flags.fnc: not also C-contiguous */
    v->n_dims = n_dims;
    v->shape = dims;
    v->stride = stride;
    v->data_bytes = bytes;
    return true;
}

/* `native`: numpy gives an array in the host's byte order whatever the file's is. */
static bool ckr__np_array(ckr__pickle *p, ckr_node *n, const ckr__np_type *t, const ckr_node *shape,
                          bool fortran,
                          const ckr_node *data, bool native)
{
    ckr_view *v;
    int64_t *dims;
    char *name;
    if (!ckr__pk_charge(p, shape->count * 16)) return false;
    v = (ckr_view *)ckr__pk_alloc(p, sizeof *v + (size_t)shape->count * 2 * sizeof *dims +
                                     sizeof t->text);
    if (!v) return false;
    memset(v, 0, sizeof *v);
    dims = (int64_t *)(void *)(v + 1);
    name = (char *)(dims + shape->count * 2);
    if (!ckr__torch_dims(p, shape, dims)) return false;
    if (!ckr__np_view(v, t, dims, (uint32_t)shape->count, fortran, data->count))
        return ckr__pk_fail(p, CKR_ITEM_NPY_SIZE, NULL);
    memcpy(name, t->text, sizeof t->text);
    if (native && name[0] == '>') name[0] = '<';
    v->type_name = name;
    v->file = CKR_NO_FILE;
    v->bytes = (const uint8_t *)data->u.str;
    n->u.view = v;
    n->kind = CKR_NODE_NDARRAY;
    n->aux = 0;
    return true;
}

static bool ckr__np_is_data(const ckr_node *n)
{
    return n->kind == CKR_NODE_BYTES || n->kind == CKR_NODE_BYTEARRAY ||
           (n->kind == CKR_NODE_STR && (n->flags & CKR__N_STR2));
}

static bool ckr__np_build(ckr__pickle *p, ckr_node *target, const ckr_node *state, bool *done)
{
    const ckr_node *args = target->u.object->args;
    ckr_node *const *s = state->u.items;
    ckr__np_type t;
    if (args->count < 1 || args->u.items[0]->kind != CKR_NODE_GLOBAL ||
        strcmp(args->u.items[0]->u.str, "numpy.ndarray") != 0) return true;
    if (target->u.object->state || state->kind != CKR_NODE_TUPLE || state->count != 5 ||
        s[3]->kind == CKR_NODE_OBJECT) return true;
    if (!ckr__torch_is_dims(s[1]) || !ckr__np_type_of(s[2], &t) || !ckr__np_is_data(s[4]))
        return true;
    *done = true;
    return ckr__np_array(p, target, &t, s[1], ckr__pk_true(s[3]) ||
                         (s[3]->kind == CKR_NODE_INT && s[3]->u.i != 0), s[4], true);
}

static bool ckr__np_frombuffer(ckr__pickle *p, ckr_node *args, ckr_node **out)
{
    ckr_node *const *a = args->u.items;
    ckr__np_type t;
    ckr_node *n;
    if (args->count != 4 || !ckr__np_is_data(a[0]) || !ckr__np_type_of(a[1], &t) ||
        !ckr__torch_is_dims(a[2]) ||
        a[3]->kind != CKR_NODE_STR) return true;
    n = ckr__pk_node(p, CKR_NODE_NDARRAY, 0);
    if (!n || !ckr__np_array(p, n, &t, a[2], ckr__is_str(a[3], "F"), a[0], false)) return false;
    *out = n;
    return true;
}

static bool ckr__np_scalar(ckr__pickle *p, ckr_node *args, ckr_node **out)
{
    ckr_node *const *a = args->u.items;
    ckr__np_type t;
    ckr_node *n;
    if (args->count != 2 || !ckr__np_type_of(a[0], &t) || !ckr__np_is_data(a[1]) ||
        t.text[1] == 'V') return true;
    n = ckr__pk_node(p, CKR_NODE_NPSCALAR, 0);
    if (!n || !ckr__np_array(p, n, &t, p->empty_tuple, false, a[1], true)) return false;
    n->kind = CKR_NODE_NPSCALAR;
    *out = n;
    return true;
}

/* >>numpy.file ---------------------------------------------------------------- */

typedef struct ckr__npy {      /* the header's text, and what it says                  */
    const char *s, *end;
    char        descr[16];
    bool        fortran;
    uint32_t    n_dims;
    int64_t     dims[CKR__MAX_RANK];
} ckr__npy;

static void ckr__npy_space(ckr__npy *h)
{
    while (h->s < h->end && (*h->s == ' ' || *h->s == '\n' || *h->s == '\t')) h->s++;
}

static bool ckr__npy_eat(ckr__npy *h, const char *token)
{
    const size_t n = strlen(token);
    ckr__npy_space(h);
    if ((size_t)(h->end - h->s) < n || memcmp(h->s, token, n) != 0) return false;
    h->s += n;
    return true;
}

static bool ckr__npy_string(ckr__npy *h, char *out, size_t cap)
{
    char quote;
    size_t n = 0;
    ckr__npy_space(h);
    if (h->s >= h->end || (*h->s != '\'' && *h->s != '"')) return false;
    for (quote = *h->s++; h->s < h->end && *h->s != quote; h->s++) {
        if (n + 1 >= cap || *h->s == '\\' || !*h->s) return false;
        out[n++] = *h->s;
    }
    if (h->s >= h->end) return false;
    out[n] = 0;
    h->s++;
    return true;
}

/* (), (3,), (3, 4) or (3, 4,); Python 2 wrote an L behind a number. */
static bool ckr__npy_shape(ckr__npy *h)
{
    if (!ckr__npy_eat(h, "(")) return false;
    while (!ckr__npy_eat(h, ")")) {
        int64_t v = 0;
        const char *first;
        ckr__npy_space(h);
        first = h->s;
        if (h->n_dims == CKR__MAX_RANK) return false;
        for (; h->s < h->end && *h->s >= '0' && *h->s <= '9'; h->s++) {
            if (v > (INT64_MAX - 9) / 10) return false;
            v = v * 10 + (*h->s - '0');
        }
        if (h->s == first) return false;
        if (h->s < h->end && *h->s == 'L') h->s++;
        h->dims[h->n_dims++] = v;
        if (ckr__npy_eat(h, ",")) continue;
        return h->n_dims > 1 && ckr__npy_eat(h, ")");
    }
    return true;
}

/* Exactly the three keys, in any order. */
static bool ckr__npy_header(ckr__npy *h)
{
    unsigned seen = 0;
    char key[16];
    if (!ckr__npy_eat(h, "{")) return false;
    while (!ckr__npy_eat(h, "}")) {
        unsigned bit;
        if (!ckr__npy_string(h, key, sizeof key) || !ckr__npy_eat(h, ":")) return false;
        bit = !strcmp(key, "descr") ? 1u : !strcmp(key, "fortran_order") ? 2u :
            !strcmp(key, "shape") ? 4u : 0;
        if (bit == 0 || (seen & bit)) return false;
        seen |= bit;
        if (bit == 1 && !ckr__npy_string(h, h->descr, sizeof h->descr)) {
            h->descr[0] = 'O';                     /* a list: structured                     */
            return true;
        }
        if (bit == 2 && !(h->fortran = ckr__npy_eat(h, "True")) && !ckr__npy_eat(h, "False"))
            return false;
        if (bit == 4 && !ckr__npy_shape(h)) return false;
        if (!ckr__npy_eat(h, ",")) return ckr__npy_eat(h, "}") && seen == 7;
    }
    return seen == 7;
}

static ckr_node *ckr__npy_node(ckr__ctx *c, const ckr__npy *h, const ckr__np_type *t, uint32_t file,
                               uint64_t at, uint64_t n)
{
    ckr_node *node = ckr__node(c, CKR_NODE_NDARRAY);
    ckr_view *v = CKR__NEW(c, ckr_view);
    int64_t *dims = CKR__NEW_N(c, int64_t, (uint64_t)h->n_dims * 2 + 1);
    if (!node || !v || !dims) return NULL;
    memcpy(dims, h->dims, h->n_dims * sizeof *dims);
    if (!ckr__np_view(v, t, dims, h->n_dims, h->fortran, n)) {
        ckr__fail(c->err, CKR_ITEM_NPY_SIZE, ckr__file_path(c, file), at, NULL,
                  "%llu bytes of data, the shape and the dtype %s ask for another number",
                      (unsigned long long)n, t->text);
        return NULL;
    }
    v->file = file;
    v->data_offset = at;
    v->type_name = ckr__strdup(c, t->text);
    node->u.view = v;
    return v->type_name ? node : NULL;
}

/* One array in a slice of a file. */
static ckr_result ckr__npy_load(ckr__ctx *c, uint32_t file, uint64_t offset, uint64_t size,
                                const char *where, ckr_node **out)
{
    const char *path = ckr__file_path(c, file);
    uint8_t head[12];
    const uint8_t *text;
    ckr__npy h;
    ckr__np_type t;
    uint64_t n, skip;
    ckr_result r;
    memset(head, 0, sizeof head);
    memset(&t, 0, sizeof t);
    r = ckr__file_read(c, file, offset, head, size < 12 ? (size_t)size : 12);
    if (r != CKR_OK) return r;
    if (size < 12 || memcmp(head, "\x93NUMPY", 6) != 0 || head[6] < 1 || head[6] > 3)
        return ckr__fail(c->err, CKR_ITEM_NPY_HEADER, path, offset, where,
                         "no .npy magic of version 1 to 3");
    skip = head[6] == 1 ? 10 : 12;
    n = head[6] == 1 ? ckr__load_u16(head + 8) : ckr__load_u32(head + 8);
    if (n > 65536 || !ckr__range_ok(skip, n, size))
        return ckr__fail(c->err, CKR_ITEM_NPY_HEADER, path, offset, where, "a header of %llu bytes",
                         (unsigned long long)n);
    r = ckr__file_load(c, file, offset + skip, n, 65536, &text);
    if (r != CKR_OK) return r;
    memset(&h, 0, sizeof h);
    h.s = (const char *)text;
    h.end = h.s + n;
    if (!ckr__npy_header(&h))
        return ckr__fail(c->err, CKR_ITEM_NPY_HEADER, path, offset + skip, where,
                         "the header is no dict of descr, fortran_order and shape");
    if (h.descr[0] && !ckr__np_code(h.descr + 1, strlen(h.descr + 1), h.descr[0], &t))
        t.text[0] = 0;
    if (!t.text[0] || t.dtype == CKR_DTYPE_NONE)
        return ckr__fail(c->err, CKR_ITEM_NPY_DTYPE, path, offset + skip, where,
                         "dtype \"%s\", expected plain numbers", h.descr);
    *out = ckr__npy_node(c, &h, &t, file, offset + skip + n, size - skip - n);
    return *out ? CKR_OK : c->err->code;
}

static ckr_result ckr__npz_load(ckr__ctx *c, ckr__zip *z, ckr__doc *doc)
{
    uint64_t i;
    doc->format = CKR_FORMAT_NPZ;
    doc->members = z->members;
    doc->n_members = z->n;
    doc->root = ckr__node(c, CKR_NODE_DICT);
    if (!doc->root) return c->err->code;
    for (i = 0; i < z->n; i++) {
        const ckr__member *m = &z->members[i];
        ckr_node *array;
        ckr_result r = ckr__zip_stored(z, m);
        if (r == CKR_OK) r = ckr__npy_load(c, z->file, m->offset, m->size, m->name, &array);
        if (r != CKR_OK) return r;
        if (!ckr__utf8_ok((const uint8_t *)m->name, m->name_len))
            return ckr__fail(c->err, CKR_ITEM_ZIP_NAME, ckr__file_path(c, z->file), m->offset,
                             m->name, "the name is no UTF-8");
        if (!ckr__node_pair(c, doc->root, ckr__node_text(c, CKR_NODE_STR, m->name,
                                                         (size_t)m->name_len - 4), array))
            return c->err->code;
    }
    return CKR_OK;
}

/* >>tree_load ----------------------------------------------------------------- */
/* What a file is follows from its bytes, never from its name: each format has a magic, except
   pickles of protocols 0 and 1, which are taken when the first byte can begin one and the last is
   a STOP.                                                                                       */

static ckr_result ckr__pickle_once(ckr__ctx *c, const ckr__source *src, bool keep, bool *stale,
                                   ckr__doc *doc)
{
    const uint8_t *data = NULL;
    ckr__torch t;
    ckr__pickle p;
    ckr_result r = ckr__file_load(c, src->file, src->offset, src->size,
                                  c->limits.max_metadata_bytes, &data);
    if (r != CKR_OK) return r;
    memset(&t, 0, sizeof t);
    t.doc = doc;
    t.source = *src;
    doc->n_storages = 0;
    ckr__pk_begin(&p, c, &t, (uint8_t *)(uintptr_t)data, (size_t)src->size, 0);
    p.keep = keep;
    doc->root = ckr__pk_run(&p);
    *stale = p.stale;
    if (!doc->root) return c->err->code;
    p.op = p.pos;
    if (p.pos == p.size) return CKR_OK;
    doc->root = NULL;
    ckr__pk_fail(&p, CKR_ITEM_PICKLE_TRAILING, "bytes follow the pickle's STOP");
    return c->err->code;
}

static ckr_result ckr__pickle_load(ckr__ctx *c, const ckr__source *src, ckr__doc *doc)
{
    bool stale = false;
    ckr_result r = ckr__pickle_once(c, src, false, &stale, doc);
    if (stale) {
        ckr__error_reset(c);
        r = ckr__pickle_once(c, src, true, &stale, doc);
    }
    doc->format = CKR_FORMAT_PICKLE;
    return r;
}

static ckr_result ckr__zip_doc(ckr__ctx *c, uint32_t file, uint64_t offset, uint64_t size,
                               ckr__doc *doc)
{
    ckr__zip z;
    uint64_t i, npy = 0;
    ckr_result r = ckr__zip_open(c, file, offset, size, &z);
    if (r != CKR_OK) return r;
    for (i = 0; i < z.n; i++) {
        const ckr__member *m = &z.members[i];
        npy += m->name_len > 4 && !memcmp(m->name + m->name_len - 4, ".npy", 4);
    }
    return z.n && npy == z.n ? ckr__npz_load(c, &z, doc) : ckr__torch_archive(c, &z, doc);
}

/* The magic number as the protocols write it: LONG1 behind PROTO (and FRAME), or a LONG line. */
static bool ckr__is_legacy(const uint8_t *h, size_t n)
{
    static const uint8_t number[12] = { 0x8A, 10, 0x6C, 0xFC, 0x9C, 0x46, 0xF9, 0x20, 0x6A, 0xA8,
        0x50, 0x19 };
    if (n >= 14 && h[0] == 0x80 && !memcmp(h + 2, number, 12)) return true;
    if (n >= 23 && h[0] == 0x80 && h[2] == 0x95 && !memcmp(h + 11, number, 12)) return true;
    return n >= 26 && !memcmp(h, "L119547037146038801333356L", 26);
}

static bool ckr__may_be_pickle(ckr__ctx *c, uint32_t file, uint64_t offset, uint64_t size,
                               const uint8_t *h)
{
    uint8_t last = 0;
    if (h[0] == 0x80) return true;
    if (!memchr("(]})cNIJKMGFLVSXUT", h[0], 18) || size < 2) return false;
    return ckr__file_read(c, file, offset + size - 1, &last, 1) == CKR_OK && last == '.';
}

/* A byte slice of an open file: torch archive or stream, .npy, .npz or pickle. */
static ckr_result ckr__torch_doc(ckr__ctx *c, uint32_t file, uint64_t offset, uint64_t size,
                                 ckr__doc *doc)
{
    const char *path = ckr__file_path(c, file);
    uint8_t h[512];
    const size_t n = size < sizeof h ? (size_t)size : sizeof h;
    ckr__source s;
    ckr_result r;
    memset(doc, 0, sizeof *doc);
    memset(h, 0, sizeof h);
    if (!ckr__range_ok(offset, size, c->files[file].size))
        return ckr__fail(c->err, CKR_ITEM_IO_READ, path, offset, NULL,
                         "the slice passes the end of the file");
    r = ckr__file_read(c, file, offset, h, n);
    if (r != CKR_OK) return r;
    s.file = file;
    s.offset = offset;
    s.size = size;
    s.bytes = NULL;
    if (n >= 4 && !memcmp(h, "PK\3\4", 4)) return ckr__zip_doc(c, file, offset, size, doc);
    if (ckr__is_legacy(h, n)) {
        doc->format = CKR_FORMAT_TORCH_LEGACY;
        return ckr__legacy_load(c, &s, doc);
    }
    if (n >= 6 && !memcmp(h, "\x93NUMPY", 6)) {
        doc->format = CKR_FORMAT_NPY;
        return ckr__npy_load(c, file, offset, size, NULL, &doc->root);
    }
    if (n >= 8 && !memcmp(h, "PYTORCH1", 8))
        return ckr__fail(c->err, CKR_ITEM_TORCH_PREVIEW, path, offset, NULL, NULL);
    if (n >= 262 && !memcmp(h + 257, "ustar", 5))
        return ckr__fail(c->err, CKR_ITEM_TORCH_TAR, path, offset, NULL, NULL);
    if (n > 0 && ckr__may_be_pickle(c, file, offset, size, h)) return ckr__pickle_load(c, &s, doc);
    if (c->err->code != CKR_OK) return c->err->code;
    return ckr__fail(c->err, CKR_ITEM_UNKNOWN_FORMAT, path, offset, NULL,
                     n ? "the first bytes %02x %02x %02x %02x begin no format that is known here" :
                         "the file is empty",
                     (unsigned)h[0], (unsigned)h[1], (unsigned)h[2], (unsigned)h[3]);
}

static ckr_result ckr__torch_load(ckr__ctx *c, uint32_t file, uint64_t offset, uint64_t size,
                                  ckr_format *format, ckr_node **root)
{
    ckr__doc doc;
    ckr_result r = ckr__torch_doc(c, file, offset, size, &doc);
    if (r != CKR_OK) return r;
    if (format) *format = doc.format;
    *root = doc.root;
    return CKR_OK;
}

static ckr_result ckr__safetensors_load(ckr__ctx *c, uint32_t file, ckr_node **root);

/* A whole file of any of these formats, safetensors included: u64 length, then '{'. */
static ckr_result ckr__tree_doc(ckr__ctx *c, uint32_t file, ckr__doc *doc)
{
    uint8_t h[9];
    const uint64_t size = c->files[file].size;
    ckr_result r;
    memset(h, 0, sizeof h);
    r = ckr__file_read(c, file, 0, h, size < sizeof h ? (size_t)size : sizeof h);
    if (r != CKR_OK) return r;
    if (size >= 9 && memcmp(h, "PK\3\4", 4) != 0 && h[0] != 0x80 && h[0] != 0x93 &&
        (h[8] == '{' || ckr__load_u64(h) <= size)) {
        memset(doc, 0, sizeof *doc);
        doc->format = CKR_FORMAT_SAFETENSORS;
        return ckr__safetensors_load(c, file, &doc->root);
    }
    return ckr__torch_doc(c, file, 0, size, doc);
}

static ckr_result ckr__tree_load(ckr__ctx *c, uint32_t file, ckr_format *format, ckr_node **root)
{
    ckr__doc doc;
    ckr_result r = ckr__tree_doc(c, file, &doc);
    if (r != CKR_OK) return r;
    if (format) *format = doc.format;
    *root = doc.root;
    return CKR_OK;
}

/* >>doc ----------------------------------------------------------------------- */
/* One file of any format as a tree, by its first bytes; text formats, which have none, by its name.
   */

static bool ckr__path_ends(const char *path, const char *end)
{
    size_t n = strlen(path), k = strlen(end);
    return n >= k && !strcmp(path + n - k, end);
}

static ckr_result ckr__looks_like_safetensors(ckr__ctx *c, uint32_t file, bool *yes)
{
    uint8_t head[9];
    ckr_result r;
    *yes = ckr__path_ends(ckr__file_path(c, file), ".safetensors");
    if (*yes || c->files[file].size < 10) return CKR_OK;
    r = ckr__file_read(c, file, 0, head, sizeof head);
    *yes = r == CKR_OK && head[8] == '{' && ckr__load_u64(head) <= c->files[file].size - 8;
    return r;
}

static ckr_result ckr__doc_load(ckr__ctx *c, uint32_t file, ckr_format *format, ckr_node **root)
{
    const char *path = ckr__file_path(c, file);
    const bool json = ckr__path_ends(path, ".json"),
               yaml = ckr__path_ends(path, ".yaml") || ckr__path_ends(path, ".yml");
    const uint8_t *text;
    bool safetensors = false;
    ckr_result r;
    if (ckr__path_ends(path, ".safetensors.index.json")) {
        *format = CKR_FORMAT_SAFETENSORS;
        return ckr__safetensors_load_index(c, path, root);
    }
    r = json || yaml ? CKR_OK : ckr__looks_like_safetensors(c, file, &safetensors);
    if (r != CKR_OK) return r;
    if (safetensors) {
        *format = CKR_FORMAT_SAFETENSORS;
        return ckr__safetensors_load(c, file, root);
    }
    if (!json && !yaml) return ckr__tree_load(c, file, format, root);
    *format = json ? CKR_FORMAT_JSON : CKR_FORMAT_YAML;
    r = ckr__file_load(c, file, 0, c->files[file].size, c->limits.max_json_bytes, &text);
    if (r != CKR_OK) return r;
    if (json) return ckr__json_parse(c, path, 0, text, (size_t)c->files[file].size,
                                     CKR__JSON_PYTHON, root);
    return ckr__yaml_parse(c, path, text, (size_t)c->files[file].size, root);
}

/* >>schedule ------------------------------------------------------------------ */
/* Learning-rate schedules. A curve turns a clock value into one operation per update (all its
   transcendental functions), which a plain loop then applies to every lane, one per parameter
   group. Each operation is rounded on its own, in the order of the framework's own source, so that
   the values are the framework's bit for bit where its libm agrees with ours. Torch's path
   dependent schedulers exist twice: as the recurrence that torch runs from update 1, and in closed
   form. Their difference stays below ckr__sched_bound. */

#define CKR__SCHED_DEPTH 8     /* of SequentialLR and ChainedScheduler in each other     */
#define CKR__SCHED_NODES 64    /* of one schedule                                        */
#define CKR__PI 3.141592653589793

typedef enum ckr__curve_kind {
    CKR__CV_CONST = 1, CKR__CV_HF, CKR__CV_TABLE, CKR__CV_NANOTRON, CKR__CV_TITAN,
    CKR__CV_TITAN_OLD, CKR__CV_MEGATRON, CKR__CV_DS_WARMUP, CKR__CV_DS_COSINE, CKR__CV_DS_CYCLE,
    CKR__CV_DS_RANGE, CKR__CV_LLMC, CKR__CV_PIECES, CKR__CV_USER,
    CKR__CV_STEP, CKR__CV_MULTISTEP, CKR__CV_CONSTANT, CKR__CV_LINEAR, CKR__CV_EXP, CKR__CV_POLY,
    CKR__CV_COSINE, CKR__CV_RESTARTS, CKR__CV_ONECYCLE, CKR__CV_CYCLIC, CKR__CV_SWA, CKR__CV_SEQ,
    CKR__CV_CHAIN, CKR__CV_COUNT_
} ckr__curve_kind;

typedef enum ckr__shape {
    CKR__SH_NONE = 0, CKR__SH_LINEAR, CKR__SH_COSINE, CKR__SH_HARD, CKR__SH_SQRT, CKR__SH_POLY,
    CKR__SH_EXP2, CKR__SH_INVSQRT, CKR__SH_LOG, CKR__SH_CONST, CKR__SH_HOLD, CKR__SH_WARM_FLOOR,
    CKR__SH_COUNT_
} ckr__shape;

enum { CKR__CF_WARM_INCL = 1, CKR__CF_DECAY_INCL = 2, CKR__CF_CLAMP = 4, CKR__CF_EXTRAP = 8,
       CKR__CF_MOMENTUM = 16, CKR__CF_WD = 32, CKR__CF_STAIRS = 64, CKR__CF_WSD = 64, CKR__CF_WARMUP = 128,
       CKR__CF_ALL = 255 };

/* What each kind keeps in them stands at its function; NaN where it has none. */
typedef struct ckr__curve_nums {
    double warm, start, decay, total;      /* clock values and lengths                   */
    double floor, from, top, peak;         /* values                                     */
    double power, cycles;
    double warm_off, warm_den, decay_off, floor_ratio, from_ratio, end_at;
} ckr__curve_nums;
#define CKR__CURVE_NUMS (sizeof(ckr__curve_nums) / sizeof(double))

typedef double (*ckr__curve_fn)(void *user, double base, double t);

typedef struct ckr__curve {
    uint8_t            kind, shape, warm_shape, wd_shape, flags;
    uint16_t           index;              /* in depth-first order                        */
    ckr__curve_nums    k;
    uint32_t           n_list, n_children;
    double            *at, *val;           /* milestones, table rows, phases: n_list each */
    struct ckr__curve *children;
    double            *base, *min, *max;   /* of a child, per lane; NULL: the schedule's  */
    int64_t            epoch, t_cur, t_i;  /* as saved: where a simulation goes on        */
    ckr__curve_fn      fn;                 /* of CV_USER                                  */
    void              *user;
} ckr__curve;

/* The value rounded to double here: keeps a compiler from fusing the product it came from with the
   sum it goes into. x86 without FMA has nothing to fuse, and the x87 unit is set to 53 bits. */
static double ckr__rn(double v)
{
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__)) && !defined(__FMA__) && \
    !defined(__FMA4__)
    return v;
#elif defined(__GNUC__) && defined(__SSE2_MATH__)
    __asm__("" : "+x"(v));
    return v;
#elif defined(__GNUC__) && defined(__aarch64__)
    __asm__("" : "+w"(v));
    return v;
#else
    volatile double r = v;
    return r;
#endif
}

/* The same for float, which only SSE computes in float. */
static float ckr__rnf(float v)
{
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__FMA__) && !defined(__FMA4__)
    return v;
#else
    volatile float r = v;
    return r;
#endif
}

/* Sets the x87 unit to 53 bits, so that one operation rounds once as SSE and Python do. */
static unsigned ckr__fp_enter(void)
{
#if defined(__GNUC__) && defined(__i386__) && !defined(__SSE2_MATH__)
    uint16_t was, now;
    __asm__ volatile("fnstcw %0" : "=m"(was));
    now = (uint16_t)((was & ~0x300u) | 0x200u);
    __asm__ volatile("fldcw %0" : : "m"(now));
    return was;
#else
    return 0;
#endif
}

static void ckr__fp_leave(unsigned was)
{
#if defined(__GNUC__) && defined(__i386__) && !defined(__SSE2_MATH__)
    uint16_t w = (uint16_t)was;
    __asm__ volatile("fldcw %0" : : "m"(w));
#else
    (void)was;
#endif
}

static double ckr__nan(void)
{
    static const uint32_t bits = 0x7fc00000u;
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static double ckr__inf(void)
{
    return HUGE_VAL;
}

static bool ckr__finite(double v)
{
    return v >= -1.7976931348623157e308 && v <= 1.7976931348623157e308;
}

/* false for NaN: equality that -Wfloat-equal and readers of diffs do not stumble over */
static bool ckr__same(double a, double b)
{
    return a <= b && a >= b;
}

/* What the lanes of one curve hold, as arrays. */
enum { CKR__V_BASE = 0, CKR__V_MIN, CKR__V_MAX,
       CKR__V_SPAN,            /* max - min                                              */
       CKR__V_OVER,            /* base - min                                             */
       CKR__V_RISE,            /* max - base                                             */
       CKR__V_CURVE_,          /* the ones above are per curve, those below per schedule */
       CKR__V_BMOM = CKR__V_CURVE_, CKR__V_XMOM, CKR__V_MSPAN, CKR__V_WD, CKR__V_WD_END,
       CKR__V_WD_SPAN, CKR__V_WD_MULT, CKR__V_LR_MULT, CKR__V_P, CKR__V_Q, CKR__V_RAMP,
       CKR__V_RAMP_SPAN, CKR__V_ANCHOR, CKR__V_COUNT_ };

typedef enum ckr__opcode {     /* A, B: arrays a and b; base, l: those of the lane       */
    CKR__OP_UNDEF = 0,         /* NaN, `why` says more                                   */
    CKR__OP_SET,               /* x                                                      */
    CKR__OP_GET,               /* A                                                      */
    CKR__OP_MUL,               /* A * x                                                  */
    CKR__OP_DIV,               /* A / x                                                  */
    CKR__OP_MIX,               /* A + B * x                                              */
    CKR__OP_PART,              /* A + B * x * y, y a power of 2                          */
    CKR__OP_WARM,              /* x + (A - x) * y / z                                    */
    CKR__OP_FLOORED,           /* max(B, A * x / y)                                      */
    CKR__OP_BLEND,             /* A * x + B * y                                          */
    CKR__OP_ARC_COS,           /* B + (A - B) / 2 * x                                    */
    CKR__OP_ARC_LINE,          /* (B - A) * x + A                                        */
    CKR__OP_WAVE,              /* A + B * x * y                                          */
    CKR__OP_WAVE_DOWN,         /* A - B * x * y                                          */
    CKR__OP_WD,                /* (A + B * x) * wd_mult                                  */
    CKR__OP_NT_WARM,           /* base * (base * x / y / base)                           */
    CKR__OP_NT_PART,           /* base * ((A + B * x / y) / base)                        */
    CKR__OP_NT_HALF,           /* base * ((A + B * x * y) / base), y a power of 2        */
    CKR__OP_NT_SET,            /* base * (x / base)                                      */
    CKR__OP_SQUARE,            /* base * base                                            */
    CKR__OP_PIECES,            /* lo + (hi - lo) * x, lo = w0 + w1 * base, hi = w2 + w3 * base */
    CKR__OP_PIECES_SQRT,       /* max(lo, hi * x / y)                                    */
    CKR__OP_F32_WARM,          /* float: A * x / y                                       */
    CKR__OP_F32_MUL,           /* float: A * x                                           */
    CKR__OP_F32_MIX,           /* float: A * y + x * (A - A * y)                         */
    CKR__OP_F32_LINE,          /* float: A - x * (A - A * y)                             */
    CKR__OP_USER,
    CKR__OP_KEEP,              /* l: recurrences from here on                            */
    CKR__OP_L_MUL,             /* l * x                                                  */
    CKR__OP_L_COS,             /* x * (l - A) + A                                        */
    CKR__OP_L_TURN,            /* l + B * x / 2                                          */
    CKR__OP_L_SWA              /* A * y + unmixed(l, x) * (1 - y)                        */
} ckr__opcode;

typedef struct ckr__lr_op {
    uint8_t     code, a, b;
    bool        clamp;
    uint16_t    node;          /* whose arrays                                           */
    double      x, y, z, w[4];
    const ckr__curve *curve;   /* of OP_USER                                             */
    const char *why;
} ckr__lr_op;

static void ckr__lr_set(ckr__lr_op *o, ckr__opcode code, int a, int b, double x, double y)
{
    o->code = (uint8_t)code;
    o->a = (uint8_t)a;
    o->b = (uint8_t)b;
    o->x = x;
    o->y = y;
}

static void ckr__lr_undef(ckr__lr_op *o, const char *why)
{
    ckr__lr_set(o, CKR__OP_UNDEF, 0, 0, 0, 0);
    o->why = why;
}

static void ckr__lr_mul(ckr__lr_op *o, double x)
{
    ckr__lr_set(o, CKR__OP_MUL, CKR__V_BASE, 0, x, 0);
}

/* The loops. `l` is the row itself: recurrences read their lane before they write it. */
#define CKR__EACH(value) for (i = 0; i < n; i++) l[i] = (value)

/* Two lanes at a time, where no compiler can fuse: the divisions are what costs. Each lane gets the
   operations of the plain loop; returns how many lanes it did. */
static uint64_t ckr__run_nt_pairs(const ckr__lr_op *o, const double *const *v, uint64_t n,
                                  double *l)
{
    uint64_t i = 0;
#if defined(CKR__X64) && !defined(__FMA__) && !defined(__FMA4__)
    const double *A = v[o->a], *B = v[o->b], *base = v[CKR__V_BASE];
    const __m128d x = _mm_set1_pd(o->x), y = _mm_set1_pd(o->y);
    const bool half = o->code == CKR__OP_NT_HALF;
    for (; i + 2 <= n; i += 2) {
        const __m128d b = _mm_loadu_pd(base + i);
        __m128d u = _mm_mul_pd(_mm_loadu_pd(B + i), x);
        u = half ? _mm_mul_pd(u, y) : _mm_div_pd(u, y);
        u = _mm_div_pd(_mm_add_pd(_mm_loadu_pd(A + i), u), b);
        _mm_storeu_pd(l + i, _mm_mul_pd(b, u));
    }
#else
    (void)o, (void)v, (void)n, (void)l;
#endif
    return i;
}

static void ckr__run_nt(const ckr__lr_op *o, const double *const *v, uint64_t n, double *l)
{
    const double *A = v[o->a], *B = v[o->b], *base = v[CKR__V_BASE], x = o->x, y = o->y;
    uint64_t i;
    switch (o->code) {
    case CKR__OP_NT_WARM:
        CKR__EACH(base[i] * (ckr__rn(ckr__rn(base[i] * x) / y) / base[i]));
        break;
    case CKR__OP_NT_PART:
        for (i = ckr__run_nt_pairs(o, v, n, l); i < n; i++)
            l[i] = base[i] * ((A[i] + ckr__rn(ckr__rn(B[i] * x) / y)) / base[i]);
        break;
    case CKR__OP_NT_HALF:
        for (i = ckr__run_nt_pairs(o, v, n, l); i < n; i++)
            l[i] = base[i] * ((A[i] + ckr__rn(ckr__rn(B[i] * x) * y)) / base[i]);
        break;
    case CKR__OP_NT_SET: CKR__EACH(base[i] * (x / base[i])); break;
    default:             CKR__EACH(base[i] * base[i]); return;
    }
    for (i = 0; i < n; i++)
        if (ckr__same(base[i], 0)) l[i] = 0;      /* 0 / 0: such a group is not trained   */
}

/* Python's max(f, v): the floor unless the value is larger. */
static double ckr__floored(double f, double v)
{
    return v > f ? v : f;
}

static void ckr__run_pieces(const ckr__lr_op *o, const double *const *v, uint64_t n, double *l)
{
    const double *base = v[CKR__V_BASE], *w = o->w;
    uint64_t i;
    for (i = 0; i < n; i++) {
        const double lo = w[0] + ckr__rn(w[1] * base[i]), hi = w[2] + ckr__rn(w[3] * base[i]);
        if (o->code == CKR__OP_PIECES) l[i] = lo + ckr__rn((hi - lo) * o->x);
        else l[i] = ckr__floored(lo, ckr__rn(hi * o->x) / o->y);
        if (o->clamp && !(l[i] > 0)) l[i] = 0;
    }
}

/* llm.c computes in float; the value is a double again only here. */
static void ckr__run_f32(const ckr__lr_op *o, const double *const *v, uint64_t n, double *l)
{
    const double *A = v[o->a];
    const float x = (float)o->x, y = (float)o->y;
    uint64_t i;
    for (i = 0; i < n; i++) {
        const float lr = ckr__rnf((float)A[i]), min = ckr__rnf(lr * y),
                    part = ckr__rnf(x * ckr__rnf(lr - min));
        switch (o->code) {
        case CKR__OP_F32_WARM: l[i] = (double)ckr__rnf(ckr__rnf(lr * x) / y); break;
        case CKR__OP_F32_MUL:  l[i] = (double)ckr__rnf(lr * x); break;
        case CKR__OP_F32_MIX:  l[i] = (double)ckr__rnf(min + part); break;
        default:               l[i] = (double)ckr__rnf(lr - part); break;
        }
    }
}

static void ckr__run_recurrence(const ckr__lr_op *o, const double *const *v, uint64_t n, double *l)
{
    const double *A = v[o->a], *B = v[o->b], x = o->x, y = o->y;
    uint64_t i;
    switch (o->code) {
    case CKR__OP_L_MUL:  CKR__EACH(l[i] * x); break;
    case CKR__OP_L_COS:  CKR__EACH(ckr__rn(x * (l[i] - A[i])) + A[i]); break;
    case CKR__OP_L_TURN: CKR__EACH(l[i] + ckr__rn(B[i] * x) / 2); break;
    case CKR__OP_L_SWA:
        for (i = 0; i < n; i++) {
            const double was = ckr__same(x, 1) ? A[i] : (l[i] - ckr__rn(x * A[i])) / (1 - x);
            l[i] = ckr__rn(A[i] * y) + ckr__rn(was * (1 - y));
        }
        break;
    default: break;
    }
}

static void ckr__run_user(const ckr__lr_op *o, const double *const *v, uint64_t n, double *l)
{
    uint64_t i;
    CKR__EACH(o->curve->fn(o->curve->user, v[CKR__V_BASE][i], o->x));
}

/* Applies the operation to n lanes. */
static void ckr__run(const ckr__lr_op *o, const double *const *v, uint64_t n, double *l)
{
    const double *A = v[o->a], *B = v[o->b], *M = v[CKR__V_WD_MULT], x = o->x, y = o->y, z = o->z;
    uint64_t i;
    switch (o->code) {
    case CKR__OP_SET:  CKR__EACH(x); break;
    case CKR__OP_GET:  memcpy(l, A, (size_t)n * sizeof *l); break;
    case CKR__OP_MUL:  CKR__EACH(A[i] * x); break;
    case CKR__OP_DIV:  CKR__EACH(A[i] / x); break;
    case CKR__OP_MIX:  CKR__EACH(A[i] + ckr__rn(B[i] * x)); break;
    case CKR__OP_PART: CKR__EACH(A[i] + ckr__rn(ckr__rn(B[i] * x) * y)); break;
    case CKR__OP_WARM: CKR__EACH(x + ckr__rn((A[i] - x) * y) / z); break;
    case CKR__OP_FLOORED:  CKR__EACH(ckr__floored(B[i], ckr__rn(A[i] * x) / y)); break;
    case CKR__OP_BLEND:    CKR__EACH(ckr__rn(A[i] * x) + ckr__rn(B[i] * y)); break;
    case CKR__OP_ARC_COS:  CKR__EACH(B[i] + ckr__rn((A[i] - B[i]) / 2 * x)); break;
    case CKR__OP_ARC_LINE: CKR__EACH(ckr__rn((B[i] - A[i]) * x) + A[i]); break;
    case CKR__OP_WAVE:     CKR__EACH(A[i] + ckr__rn(ckr__rn(B[i] * x) * y)); break;
    case CKR__OP_WAVE_DOWN: CKR__EACH(A[i] - ckr__rn(ckr__rn(B[i] * x) * y)); break;
    case CKR__OP_WD:       CKR__EACH((A[i] + ckr__rn(B[i] * x)) * M[i]); break;
    case CKR__OP_NT_WARM:
    case CKR__OP_NT_PART:
    case CKR__OP_NT_HALF:
    case CKR__OP_NT_SET:
    case CKR__OP_SQUARE: ckr__run_nt(o, v, n, l); break;
    case CKR__OP_PIECES:
    case CKR__OP_PIECES_SQRT: ckr__run_pieces(o, v, n, l); break;
    case CKR__OP_F32_WARM:
    case CKR__OP_F32_MUL:
    case CKR__OP_F32_MIX:
    case CKR__OP_F32_LINE: ckr__run_f32(o, v, n, l); break;
    case CKR__OP_USER: ckr__run_user(o, v, n, l); break;
    case CKR__OP_UNDEF: CKR__EACH(ckr__nan()); break;
    default: ckr__run_recurrence(o, v, n, l); break;
    }
}
#undef CKR__EACH

/* >>schedule.curves ----------------------------------------------------------- */
/* One function per framework: the operation for the clock value t. Formulas restate the cited
   sources; a division that Python would refuse is an undefined curve, never an infinity. */

static const char *const ckr__why_zero = "the curve divides by zero there";

static double ckr__at_least(double v, double least)
{
    return v > least ? v : least;
}

/* transformers optimization.py, diffusers optimization.py: factors of a LambdaLR. top:
   optimizer.defaults["lr"], floor: lr_end or the ratio r, from: warmup_lr_rate or NaN, decay:
   num_decay_steps or the timescale, start: warmup + stable steps. */
static double ckr__hf_warm(const ckr__curve *c, double t)
{
    const ckr__curve_nums *k = &c->k;
    double g = t / ckr__at_least(k->warm, 1);
    if (c->shape == CKR__SH_WARM_FLOOR) {
        if (k->from != k->from) return (t + 1) / ckr__at_least(k->warm, 1);
        return k->from + ckr__rn((1 - k->from) * t) / ckr__at_least(k->warm - 1, 1);
    }
    if (!(c->flags & CKR__CF_WARMUP)) return g;                     /* warmup_stable_decay */
    if (c->warm_shape == CKR__SH_COSINE) g = 0.5 * (1 - cos(CKR__PI * g));
    else if (c->warm_shape == CKR__SH_SQRT) g = 1 - sqrt(1 - g);
    return ckr__at_least(ckr__rn(g * (1 - k->floor)) + k->floor, 0);
}

static double ckr__hf_wsd(const ckr__curve *c, double t)
{
    const ckr__curve_nums *k = &c->k;
    double p = (t - k->start) / ckr__at_least(k->decay, 1), g;
    if (t < k->start) return 1;
    if (!(t < k->start + k->decay)) return k->floor;
    if (c->shape == CKR__SH_LINEAR) g = 1 - p;
    else if (c->shape == CKR__SH_SQRT) g = 1 - sqrt(p);
    else g = 0.5 * (1 + cos(CKR__PI * k->cycles * 2 * p));
    return ckr__at_least(ckr__rn(g * (1 - k->floor)) + k->floor, 0);
}

static double ckr__hf_poly(const ckr__curve_nums *k, double t, const char **why)
{
    double left;
    if (t > k->total) return k->floor / k->top;
    if (!(k->total > k->warm)) {
        *why = ckr__why_zero;
        return 0;
    }
    left = 1 - (t - k->warm) / (k->total - k->warm);
    return (ckr__rn((k->top - k->floor) * pow(left, k->power)) + k->floor) / k->top;
}

static double ckr__hf_factor(const ckr__curve *c, double t, const char **why)
{
    const ckr__curve_nums *k = &c->k;
    const double span = ckr__at_least(k->total - k->warm, 1), q = (t - k->warm) / span;
    double g;
    if (t < k->warm) return ckr__hf_warm(c, t);
    if (c->flags & CKR__CF_WARMUP) return ckr__hf_wsd(c, t);
    switch (c->shape) {
    case CKR__SH_LINEAR: return ckr__at_least((k->total - t) / span, 0);
    case CKR__SH_POLY:   return ckr__hf_poly(k, t, why);
    case CKR__SH_HARD:
        if (q >= 1) return 0;
        return ckr__at_least(0.5 * (1 + cos(CKR__PI * fmod(k->cycles * q, 1))), 0);
    case CKR__SH_INVSQRT:
        g = (t + (k->decay - k->warm)) / k->decay;
        if (!(g > 0)) *why = ckr__why_zero;
        return 1 / sqrt(g > 0 ? g : 1);
    case CKR__SH_COSINE:
    case CKR__SH_WARM_FLOOR:
        g = c->shape == CKR__SH_COSINE ? q : (t - k->warm + 1) / span;
        g = 0.5 * (1 + cos(CKR__PI * k->cycles * 2 * g));
        if (k->floor == k->floor) g = ckr__rn(g * (1 - k->floor)) + k->floor;
        return ckr__at_least(g, 0);
    default: return 1;
    }
}

/* diffusers piecewise_constant: val[i] before at[i], power from the last on. */
static double ckr__table_factor(const ckr__curve *c, double t)
{
    uint32_t i;
    for (i = 0; i < c->n_list; i++)
        if (t < c->at[i]) return c->val[i];
    return c->k.power;
}

/* nanotron helpers.py lr_scheduler_builder: factors init-relative, lr = init * (value / init). With
   neither warmup nor decay its factor is the LR itself. top: the global learning_rate of a constant
   warmup; start, decay: of the decay; lanes' min: min_decay_lr. */
static void ckr__nanotron_op(const ckr__curve *c, double t, ckr__lr_op *o)
{
    const ckr__curve_nums *k = &c->k;
    const double x = t - k->start;
    if (ckr__same(k->warm, 0) && ckr__same(k->decay, 0)) {
        ckr__lr_set(o, CKR__OP_SQUARE, 0, 0, 0, 0);
    } else if (t <= k->warm) {
        if (c->warm_shape == CKR__SH_CONST) ckr__lr_set(o, CKR__OP_NT_SET, 0, 0, k->top, 0);
        else ckr__lr_set(o, CKR__OP_NT_WARM, 0, 0, t, ckr__at_least(k->warm, 1));
    } else if (t < k->start) {
        ckr__lr_set(o, CKR__OP_GET, CKR__V_BASE, 0, 0, 0);
    } else if (t < k->start + k->decay) {
        ckr__lr_set(o, CKR__OP_NT_PART, CKR__V_MIN, CKR__V_OVER, k->decay - x, k->decay);
        if (c->shape == CKR__SH_LINEAR) return;
        o->code = CKR__OP_NT_HALF;
        o->y = c->shape == CKR__SH_SQRT ? 1 : 0.5;
        o->x = c->shape == CKR__SH_SQRT ? 1 - sqrt(x / k->decay) : 1 + cos(CKR__PI * x / k->decay);
    } else {
        ckr__lr_set(o, CKR__OP_NT_HALF, CKR__V_MIN, CKR__V_OVER, 0, 1);
    }
}

/* torchtitan components/lr_scheduler.py; floor: min_lr_factor. Past the total its linear and square
   root decays go below 0. The form before pull request 1284 counts one more step and stops. */
static double ckr__titan_factor(const ckr__curve *c, double t, const char **why)
{
    const ckr__curve_nums *k = &c->k;
    const bool old = c->kind == CKR__CV_TITAN_OLD;
    double p;
    if (old && t > k->start + k->decay) t = k->start + k->decay;
    if (t < k->warm) return (t + 1) / (old ? k->warm + 1 : k->warm);
    if (t < k->start || (old && ckr__same(k->decay, 0))) return 1;
    if (ckr__same(k->decay, 0)) {
        *why = "torchtitan asserts that there are decay steps";
        return 0;
    }
    p = (t + 1 - k->start) / (old ? k->decay + 1 : k->decay);
    if (c->shape == CKR__SH_SQRT) p = 1 - sqrt(p);
    else if (c->shape == CKR__SH_COSINE) p = 0.5 * (1 + cos(CKR__PI * p));
    else p = 1 - p;
    return k->floor + ckr__rn((1 - k->floor) * p);
}

/* Megatron-LM optimizer_param_scheduler.py get_lr; from: init_lr, total: lr_decay_steps, decay:
   wsd_decay_steps, end_at: wd_incr_steps. Lanes: max_lr, min_lr, start_wd, end_wd. */
static void ckr__megatron_op(const ckr__curve *c, double t, ckr__lr_op *o)
{
    const ckr__curve_nums *k = &c->k;
    double r = (t - k->warm) / (k->total - k->warm);
    if (k->warm > 0 && t <= k->warm) {
        ckr__lr_set(o, CKR__OP_WARM, CKR__V_MAX, 0, k->from, t);
        o->z = k->warm;
        return;
    }
    if (c->shape == CKR__SH_CONST) {
        ckr__lr_set(o, CKR__OP_GET, CKR__V_MAX, 0, 0, 0);
        return;
    }
    if (t > k->total) {
        ckr__lr_set(o, CKR__OP_GET, CKR__V_MIN, 0, 0, 0);
        return;
    }
    ckr__lr_set(o, CKR__OP_MIX, CKR__V_MIN, CKR__V_SPAN, 1, 0);
    if (c->shape == CKR__SH_INVSQRT) {
        ckr__lr_set(o, CKR__OP_FLOORED, CKR__V_MAX, CKR__V_MIN, pow(ckr__at_least(k->warm, 1), 0.5),
                    pow(ckr__at_least(t, 1), 0.5));
        return;
    }
    if (c->flags & CKR__CF_WSD) {
        if (t <= k->total - k->decay) return;
        r = (t - (k->total - k->decay)) / k->decay;
    }
    o->x = c->shape == CKR__SH_COSINE  ? 0.5 * (cos(CKR__PI * r) + 1)
           : c->shape == CKR__SH_EXP2  ? 2 * pow(0.5, r) - 1
           : c->shape == CKR__SH_SQRT  ? 1 - sqrt(r)
                                       : 1 - r;
}

/* The same file's get_wd, times the group's wd_mult. */
static void ckr__megatron_wd(const ckr__curve *c, double t, ckr__lr_op *o)
{
    const double r = t / c->k.end_at;
    if (t > c->k.end_at || c->wd_shape == CKR__SH_CONST) {
        ckr__lr_set(o, CKR__OP_WD, CKR__V_WD_END, CKR__V_WD_SPAN, 0, 0);
        return;
    }
    if (!(c->k.end_at > 0)) {
        ckr__lr_undef(o, ckr__why_zero);
        return;
    }
    ckr__lr_set(o, CKR__OP_WD, CKR__V_WD, CKR__V_WD_SPAN, r, 0);
    if (c->wd_shape == CKR__SH_COSINE) o->x = 0.5 * (cos(CKR__PI * (1 - r)) + 1);
}

/* DeepSpeed lr_schedules.py WarmupLR, WarmupDecayLR, WarmupCosineLR at last_batch_iteration t; -1
   is the LR before the first tick. decay: N - w, NaN for WarmupLR. from: warmup_min_ratio, floor:
   cos_min_ratio. */
static double ckr__ds_gamma(const ckr__curve *c, double t)
{
    return c->warm_shape == CKR__SH_LOG ? 1 / log(c->k.warm) * log(t + 1) : t / c->k.warm;
}

static void ckr__ds_warmup_op(const ckr__curve *c, double t, ckr__lr_op *o)
{
    const ckr__curve_nums *k = &c->k;
    double g = 1;
    if (t < 0) g = 0;
    else if (t < k->warm) g = ckr__ds_gamma(c, t);
    else if (k->decay == k->decay)
        g = ckr__at_least((k->total - t) / ckr__at_least(k->decay, 1), 0);
    ckr__lr_set(o, CKR__OP_MIX, CKR__V_MIN, CKR__V_SPAN, g, 0);
}

static void ckr__ds_cosine_op(const ckr__curve *c, double t, ckr__lr_op *o)
{
    const ckr__curve_nums *k = &c->k;
    double g;
    if (t < 0) {
        g = 0;
    } else if (t < k->warm) {
        g = k->from + ckr__rn(ckr__ds_gamma(c, t) * (1 - k->from));
    } else if (!(k->total - k->warm > 0 || k->total - k->warm < 0)) {
        ckr__lr_undef(o, ckr__why_zero);
        return;
    } else {
        g = (1 + cos(CKR__PI * (t - k->warm + 1) / (k->total - k->warm))) / 2;
        g = ckr__at_least(k->floor + ckr__rn((1 - k->floor) * g), 0);
    }
    ckr__lr_mul(o, g);
}

/* Where a sawtooth of period `size`, rising for the part `ratio` of it, stands: 0..1, its cycle. */
static double ckr__saw(double t, double size, double ratio, double *cycle)
{
    double x;
    *cycle = floor(1 + t / size);
    x = 1 + t / size - *cycle;
    return x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
}

/* DeepSpeed OneCycle (power: decay_lr_rate, decay: decay_step_size, cycles: decay_mom_rate) and
   LRRangeTest (decay: step size, power: step rate). total: the cycle's size, start: its ratio. */
static void ckr__ds_cycle_op(const ckr__curve *c, double t, bool momentum, ckr__lr_op *o)
{
    const ckr__curve_nums *k = &c->k;
    double cycle, f, left = t - k->total + 1;
    if (t < k->total) {
        f = ckr__saw(t + 1, k->total, k->start, &cycle);
        if (momentum && t < 0) ckr__lr_set(o, CKR__OP_GET, CKR__V_BMOM, 0, 0, 0);
        else if (momentum) ckr__lr_set(o, CKR__OP_WAVE_DOWN, CKR__V_XMOM, CKR__V_MSPAN, f, 1);
        else if (t < 0) ckr__lr_set(o, CKR__OP_GET, CKR__V_MIN, 0, 0, 0);
        else ckr__lr_set(o, CKR__OP_MIX, CKR__V_MIN, CKR__V_SPAN, f, 0);
        return;
    }
    if (ckr__same(k->decay, 0)) left = 0;                              /* no decay is asked for */
    else left = left / k->decay;
    if (momentum) ckr__lr_set(o, CKR__OP_MUL, CKR__V_XMOM, 0, 1 + ckr__rn(k->cycles * left), 0);
    else ckr__lr_set(o, CKR__OP_DIV, CKR__V_MIN, 0, 1 + ckr__rn(k->power * left), 0);
}

static void ckr__ds_range_op(const ckr__curve *c, double t, ckr__lr_op *o)
{
    double x = (t + 1) / c->k.decay;
    if (t < 0) x = 0;
    if (c->flags & CKR__CF_STAIRS) x = floor(x);
    ckr__lr_set(o, CKR__OP_MUL, CKR__V_MIN, 0, 1 + ckr__rn(c->k.power * x), 0);
}

/* llm.c schedulers.h, in float; floor: final_learning_rate_frac. Its assertions end the curve. */
static void ckr__llmc_op(const ckr__curve *c, double t, ckr__lr_op *o)
{
    const ckr__curve_nums *k = &c->k;
    float r;
    if (c->shape == CKR__SH_CONST) {
        ckr__lr_set(o, CKR__OP_F32_MUL, CKR__V_BASE, 0, 1, 0);
        return;
    }
    if (t < k->warm) {
        r = ckr__rnf((float)(t + 1) / (float)k->warm);
        if (c->shape == CKR__SH_SQRT) ckr__lr_set(o, CKR__OP_F32_MUL, CKR__V_BASE, 0, (double)r, 0);
        else ckr__lr_set(o, CKR__OP_F32_WARM, CKR__V_BASE, 0, t + 1, k->warm);
        return;
    }
    if (t < k->start) {
        ckr__lr_set(o, CKR__OP_F32_MUL, CKR__V_BASE, 0, 1, 0);
        return;
    }
    if (!(k->total > k->start) || t > k->total) {
        ckr__lr_undef(o, "llm.c asserts that the step lies inside the decay");
        return;
    }
    r = ckr__rnf((float)(t - k->start) / (float)(k->total - k->start));
    ckr__lr_set(o, CKR__OP_F32_MIX, CKR__V_BASE, 0, (double)r, k->floor);
    if (c->shape == CKR__SH_LINEAR) o->code = CKR__OP_F32_LINE;
    else if (c->shape == CKR__SH_SQRT) o->x = (double)ckr__rnf(1 - ckr__rnf(sqrtf(r)));
    else
        o->x = (double)ckr__rnf(0.5f * ckr__rnf(1 + ckr__rnf(cosf((float)(CKR__PI * (double)r)))));
}

static double ckr__shape_at(const ckr__curve *c, double p)
{
    switch (c->shape) {
    case CKR__SH_LINEAR: return 1 - p;
    case CKR__SH_COSINE: return (1 + cos(2 * CKR__PI * c->k.cycles * p)) / 2;
    case CKR__SH_HARD:   return (1 + cos(CKR__PI * fmod(c->k.cycles * p, 1))) / 2;
    case CKR__SH_SQRT:   return 1 - sqrt(p > 0 ? p : 0);
    case CKR__SH_POLY:   return pow(1 - p > 0 ? 1 - p : 0, c->k.power);
    case CKR__SH_EXP2:   return 2 * pow(0.5, p) - 1;
    default:             return 1;
    }
}

/* The piecewise curve in general: from a level over a warmup to a peak, decay from `start` on. */
static void ckr__pieces_op(const ckr__curve *c, double t, ckr__lr_op *o)
{
    const ckr__curve_nums *k = &c->k;
    const double u = t - k->start + k->decay_off, x = (t + k->warm_off) / k->warm_den;
    const bool has_peak = k->peak == k->peak;
    memset(o->w, 0, sizeof o->w);
    o->w[2] = has_peak ? k->peak : 0;
    o->w[3] = has_peak ? 0 : k->top;
    ckr__lr_set(o, CKR__OP_PIECES, 0, 0, 1, 1);
    o->clamp = (c->flags & CKR__CF_CLAMP) != 0;
    if (t < k->warm || ((c->flags & CKR__CF_WARM_INCL) && k->warm > 0 && t <= k->warm)) {
        o->w[0] = k->from;
        o->w[1] = k->from_ratio;
        o->x = c->warm_shape == CKR__SH_COSINE ? (1 - cos(CKR__PI * x)) / 2
               : c->warm_shape == CKR__SH_SQRT ? 1 - sqrt(1 - x)
               : c->warm_shape == CKR__SH_LOG  ? log(t + 1) / log(k->warm)
               : c->warm_shape == CKR__SH_CONST ? 1
               : c->warm_shape == CKR__SH_HOLD  ? 0
                                                : x;
        return;
    }
    if (!(t >= k->start) || ((c->flags & CKR__CF_DECAY_INCL) && t <= k->start)) return;
    o->w[0] = k->floor;
    o->w[1] = k->floor_ratio;
    if (c->shape == CKR__SH_INVSQRT) {
        o->x = t > k->end_at ? 0 : sqrt(k->decay);
        o->y = t > k->end_at ? 1 : sqrt(ckr__at_least(t + k->decay_off, 1));
        o->code = CKR__OP_PIECES_SQRT;
    } else if (!(c->flags & CKR__CF_EXTRAP) && u >= k->decay) {
        o->x = 0;
    } else if (!(k->decay > 0)) {
        ckr__lr_undef(o, ckr__why_zero);
    } else {
        o->x = ckr__shape_at(c, u / k->decay);
    }
}

/* torch/optim/lr_scheduler.py and swa_utils.py, closed forms. decay: step_size, total_iters, T_max,
   T_0 or anneal_epochs; power: gamma, power or T_mult; from, top: start_factor, end_factor; lanes'
   min: eta_min or swa_lr. */
static double ckr__swa_alpha(const ckr__curve *c, double step)
{
    double u = step / ckr__at_least(c->k.decay, 1);
    if (!(u < 1)) u = 1;
    if (!(u > 0)) u = 0;
    return c->shape == CKR__SH_LINEAR ? u : (1 - cos(CKR__PI * u)) / 2;
}

static double ckr__milestones(const ckr__curve *c, double t)
{
    double n = 0;
    uint32_t i;
    for (i = 0; i < c->n_list; i++)
        if (c->at[i] <= t) n += c->val[i];
    return n;
}

/* The cycle of CosineAnnealingWarmRestarts that holds t, as its own counting finds it: lengths
   multiply, so that the loop is short; a multiplier of 1 is one division. */
static void ckr__restart(const ckr__curve *c, double t, double *cur, double *len)
{
    *len = c->k.decay;
    *cur = t;
    if (c->k.power > 1) {
        while (*len > 0 && *cur >= *len) {
            *cur -= *len;
            *len *= c->k.power;
        }
    } else if (*len > 0) {
        *cur = fmod(t, *len);
    }
}

/* The phase of a OneCycleLR: at = its end, val = a code of both ends. */
static void ckr__onecycle_op(const ckr__curve *c, double t, bool momentum, ckr__lr_op *o)
{
    static const uint8_t lr[3] = { CKR__V_BASE, CKR__V_MAX, CKR__V_MIN };
    double from = 0, p;
    uint32_t i, code;
    for (i = 0; i + 1 < c->n_list && t > c->at[i]; i++) from = c->at[i];
    if (t > c->k.total) {
        ckr__lr_undef(o, "OneCycleLR refuses to go past its total_steps");
        return;
    }
    if (!c->n_list || !(c->at[i] - from > 0 || c->at[i] - from < 0)) {
        ckr__lr_undef(o, ckr__why_zero);
        return;
    }
    p = (t - from) / (c->at[i] - from);
    code = (uint32_t)c->val[i];
    o->a = momentum ? (code / 9 % 2 ? CKR__V_XMOM : CKR__V_BMOM) : lr[code % 3];
    o->b = momentum ? (code / 18 % 2 ? CKR__V_XMOM : CKR__V_BMOM) : lr[code / 3 % 3];
    if (c->shape == CKR__SH_LINEAR) ckr__lr_set(o, CKR__OP_ARC_LINE, o->a, o->b, p, 0);
    else ckr__lr_set(o, CKR__OP_ARC_COS, o->a, o->b, cos(CKR__PI * p) + 1, 0);
}

/* total: the cycle's size, start: the rising part of it. Rounds as total / start, not by steps. */
static void ckr__cyclic_op(const ckr__curve *c, double t, bool momentum, ckr__lr_op *o)
{
    double cycle, f, scale = 1;
    if (!(c->k.total > 0) || !(c->k.start > 0) || ckr__same(c->k.start, 1)) {
        ckr__lr_undef(o, ckr__why_zero);
        return;
    }
    f = ckr__saw(t, c->k.total, c->k.start, &cycle);
    if (c->shape == CKR__SH_EXP2) scale = 1 / pow(2, cycle - 1);
    if (c->shape == CKR__SH_POLY) scale = pow(c->k.power, t);
    if (momentum) ckr__lr_set(o, CKR__OP_WAVE_DOWN, CKR__V_XMOM, CKR__V_MSPAN, f, scale);
    else ckr__lr_set(o, CKR__OP_WAVE, CKR__V_BASE, CKR__V_RISE, f, scale);
}

static double ckr__linear_factor(const ckr__curve_nums *k, double t)
{
    const double u = t < k->decay ? t : k->decay;
    return k->from + ckr__rn((k->top - k->from) * u) / k->decay;
}

static void ckr__torch_closed(const ckr__curve *c, double t, ckr__lr_op *o)
{
    const ckr__curve_nums *k = &c->k;
    double cur = t, len = k->decay;
    const bool divides = c->kind == CKR__CV_STEP || c->kind == CKR__CV_LINEAR ||
                         c->kind == CKR__CV_POLY || c->kind == CKR__CV_COSINE ||
                         c->kind == CKR__CV_RESTARTS;
    if (divides && !(k->decay > 0 || k->decay < 0)) {
        ckr__lr_undef(o, ckr__why_zero);
        return;
    }
    switch (c->kind) {
    case CKR__CV_STEP:      ckr__lr_mul(o, pow(k->power, floor(t / k->decay))); break;
    case CKR__CV_MULTISTEP: ckr__lr_mul(o, pow(k->power, ckr__milestones(c, t))); break;
    case CKR__CV_EXP:       ckr__lr_mul(o, pow(k->power, t)); break;
    case CKR__CV_LINEAR:    ckr__lr_mul(o, ckr__linear_factor(k, t)); break;
    case CKR__CV_CONSTANT:
        ckr__lr_mul(o, k->from + (t >= k->decay ? 1 - k->from : 0));
        break;
    case CKR__CV_POLY:
        ckr__lr_mul(o, pow(1 - (t < k->decay ? t : k->decay) / k->decay, k->power));
        break;
    case CKR__CV_RESTARTS: ckr__restart(c, t, &cur, &len);  /* fall through */
    case CKR__CV_COSINE:
        ckr__lr_set(o, CKR__OP_PART, CKR__V_MIN, CKR__V_OVER, 1 + cos(CKR__PI * cur / len), 0.5);
        break;
    default: {                                                              /* CV_SWA   */
        const double alpha = ckr__swa_alpha(c, ckr__same(len, 0) && t < 1 ? 1 : t);
        ckr__lr_set(o, CKR__OP_BLEND, CKR__V_MIN, CKR__V_BASE, alpha, 1 - alpha);
        break;
    }
    }
}

/* The child that a SequentialLR uses at t; *from is where it started. */
static uint32_t ckr__seq_child(const ckr__curve *c, double t, double *from)
{
    uint32_t i = 0;
    *from = 0;
    while (i < c->n_list && c->at[i] <= t) *from = c->at[i++];
    return i < c->n_children ? i : c->n_children - 1;
}

typedef enum ckr__column { CKR__COL_LR = 0, CKR__COL_WD, CKR__COL_MOMENTUM } ckr__column;

static void ckr__curve_op(const ckr__curve *c, double t, int column, ckr__lr_op *o);

/* A product of factors exists only when every child multiplies the LR. */
static void ckr__chain_op(const ckr__curve *c, double t, ckr__lr_op *o)
{
    double x = 1;
    uint32_t i;
    for (i = 0; i < c->n_children; i++) {
        ckr__lr_op part;
        ckr__curve_op(&c->children[i], t, CKR__COL_LR, &part);
        if (part.code == CKR__OP_UNDEF) {
            *o = part;
            return;
        }
        if (part.code != CKR__OP_MUL || part.a != CKR__V_BASE) {
            ckr__lr_undef(o, "these chained schedulers have no closed form");
            return;
        }
        x = i ? x * part.x : part.x;
    }
    ckr__lr_mul(o, x);
}

static void ckr__no_lr_op(const ckr__curve *c, double t, int column, ckr__lr_op *o)
{
    ckr__lr_undef(o, NULL);
    if (column == CKR__COL_WD) {
        if (c->kind == CKR__CV_MEGATRON && (c->flags & CKR__CF_WD)) ckr__megatron_wd(c, t, o);
    } else if (c->flags & CKR__CF_MOMENTUM) {
        if (c->kind == CKR__CV_ONECYCLE) ckr__onecycle_op(c, t, true, o);
        if (c->kind == CKR__CV_CYCLIC) ckr__cyclic_op(c, t, true, o);
        if (c->kind == CKR__CV_DS_CYCLE) ckr__ds_cycle_op(c, t, true, o);
    }
}

static void ckr__factor_op(const ckr__curve *c, double t, ckr__lr_op *o)
{
    const char *why = NULL;
    ckr__lr_mul(o, c->kind == CKR__CV_HF      ? ckr__hf_factor(c, t, &why)
                   : c->kind == CKR__CV_TABLE ? ckr__table_factor(c, t)
                   : c->kind == CKR__CV_CONST ? 1
                                              : ckr__titan_factor(c, t, &why));
    if (why) ckr__lr_undef(o, why);
}

/* The operation of one update, in closed form. Bounded recursion: trees have CKR__SCHED_DEPTH. */
static void ckr__curve_op(const ckr__curve *c, double t, int column, ckr__lr_op *o)
{
    double from;
    memset(o, 0, sizeof *o);
    o->node = c->index;
    o->curve = c;
    if (c->kind == CKR__CV_SEQ) {
        const uint32_t i = ckr__seq_child(c, t, &from);
        ckr__curve_op(&c->children[i], t - from, column, o);
        return;
    }
    if (column != CKR__COL_LR) {
        ckr__no_lr_op(c, t, column, o);
        return;
    }
    switch (c->kind) {
    case CKR__CV_CONST:
    case CKR__CV_HF:
    case CKR__CV_TABLE:
    case CKR__CV_TITAN:
    case CKR__CV_TITAN_OLD: ckr__factor_op(c, t, o); break;
    case CKR__CV_NANOTRON:  ckr__nanotron_op(c, t, o); break;
    case CKR__CV_MEGATRON:  ckr__megatron_op(c, t, o); break;
    case CKR__CV_DS_WARMUP: ckr__ds_warmup_op(c, t, o); break;
    case CKR__CV_DS_COSINE: ckr__ds_cosine_op(c, t, o); break;
    case CKR__CV_DS_CYCLE:  ckr__ds_cycle_op(c, t, false, o); break;
    case CKR__CV_DS_RANGE:  ckr__ds_range_op(c, t, o); break;
    case CKR__CV_LLMC:      ckr__llmc_op(c, t, o); break;
    case CKR__CV_PIECES:    ckr__pieces_op(c, t, o); break;
    case CKR__CV_USER:      ckr__lr_set(o, CKR__OP_USER, 0, 0, t, 0); break;
    case CKR__CV_ONECYCLE:  ckr__onecycle_op(c, t, false, o); break;
    case CKR__CV_CYCLIC:    ckr__cyclic_op(c, t, false, o); break;
    case CKR__CV_CHAIN:     ckr__chain_op(c, t, o); break;
    default:                ckr__torch_closed(c, t, o); break;
    }
}

/* Kinds that torch computes from the LR before: only they are simulated. */
static bool ckr__is_recurrent(uint8_t kind)
{
    return (kind >= CKR__CV_STEP && kind <= CKR__CV_COSINE) || kind == CKR__CV_SWA ||
           kind == CKR__CV_SEQ || kind == CKR__CV_CHAIN;
}

static bool ckr__is_torch(uint8_t kind)
{
    return kind >= CKR__CV_STEP && kind < CKR__CV_COUNT_;
}

/* Bound of |closed form - recurrence| at t (children included in `scale`): every tick rounds a few
   times, near a cosine's minimum the quotient loses what the curve has lost there, the square of
   T_max. `scale` is the largest magnitude that the lane has had until t: LR, base and floor. */
static double ckr__sched_bound(const ckr__curve *c, double t, double scale)
{
    const double ulp = 1.1102230246251565e-16;
    double sum = 16 + 8 * t;
    uint32_t i;
    if (c->kind == CKR__CV_COSINE) sum += 4 * c->k.decay * c->k.decay * (1 + t / c->k.decay);
    for (i = 0; i < c->n_children; i++)
        sum += ckr__sched_bound(&c->children[i], t, 1) / ulp;
    return scale * ulp * sum;
}

/* >>schedule.ticks ------------------------------------------------------------ */
/* Torch's own steps, for the kinds that compute an LR from the one before. */

typedef struct ckr__node_now {           /* one scheduler object in a simulation          */
    int64_t epoch, t_cur, t_i;
    const double *v[CKR__V_COUNT_];
} ckr__node_now;

typedef struct ckr__ticks {
    ckr__node_now *now;                  /* by curve index                                */
    uint64_t       n;                    /* lanes                                         */
    double        *l;                    /* their LR                                      */
    const char    *why;                  /* set once an update is undefined               */
} ckr__ticks;

static void ckr__tick_run(ckr__ticks *k, ckr__lr_op *o)
{
    if (o->code == CKR__OP_UNDEF && !k->why) k->why = o->why;
    if (o->code != CKR__OP_KEEP) ckr__run(o, k->now[o->node].v, k->n, k->l);
}

/* get_lr of LinearLR, PolynomialLR and CosineAnnealingLR at epoch t > 0. */
static void ckr__tick_ratio(const ckr__curve *c, double t, ckr__lr_op *o)
{
    const ckr__curve_nums *k = &c->k;
    double x;
    if (c->kind == CKR__CV_LINEAR) {
        if (t > k->decay) return;
        x = ckr__rn(k->decay * k->from) + ckr__rn((t - 1) * (k->top - k->from));
        ckr__lr_set(o, CKR__OP_L_MUL, 0, 0, 1 + (k->top - k->from) / x, 0);
        if (ckr__same(x, 0)) ckr__lr_undef(o, ckr__why_zero);
    } else if (c->kind == CKR__CV_POLY) {
        if (t > k->decay) return;
        x = (1 - t / k->decay) / (1 - (t - 1) / k->decay);
        ckr__lr_set(o, CKR__OP_L_MUL, 0, 0, pow(x, k->power), 0);
    } else if (!(k->decay > 0)) {
        ckr__lr_undef(o, ckr__why_zero);
    } else if (ckr__same(fmod(t - 1 - k->decay, 2 * k->decay), 0)) {
        ckr__lr_set(o, CKR__OP_L_TURN, 0, CKR__V_OVER, 1 - cos(CKR__PI / k->decay), 0);
    } else {
        x = 1 + cos(CKR__PI * (t - 1) / k->decay);
        if (ckr__same(x, 0)) ckr__lr_undef(o, ckr__why_zero);
        else ckr__lr_set(o, CKR__OP_L_COS, CKR__V_MIN, 0,
                         (1 + cos(CKR__PI * t / k->decay)) / x, 0);
    }
}

/* get_lr of a scheduler whose last_epoch has become t; `initial` is torch's _is_initial. */
static void ckr__tick_op(const ckr__curve *c, ckr__node_now *now, bool initial, ckr__lr_op *o)
{
    const ckr__curve_nums *k = &c->k;
    const double t = (double)now->epoch, n = k->decay;
    uint32_t i;
    memset(o, 0, sizeof *o);
    o->node = c->index;
    o->code = CKR__OP_KEEP;
    switch (c->kind) {
    case CKR__CV_STEP:
        if (ckr__same(n, 0)) ckr__lr_undef(o, ckr__why_zero);
        else if (now->epoch && ckr__same(fmod(t, n), 0))
            ckr__lr_set(o, CKR__OP_L_MUL, 0, 0, k->power, 0);
        break;
    case CKR__CV_MULTISTEP:
        for (i = 0; i < c->n_list; i++)
            if (ckr__same(c->at[i], t))
                ckr__lr_set(o, CKR__OP_L_MUL, 0, 0, pow(k->power, c->val[i]), 0);
        break;
    case CKR__CV_CONSTANT:
        if (!now->epoch) ckr__lr_set(o, CKR__OP_L_MUL, 0, 0, k->from, 0);
        else if (ckr__same(t, n) && ckr__same(k->from, 0)) ckr__lr_undef(o, ckr__why_zero);
        else if (ckr__same(t, n)) ckr__lr_set(o, CKR__OP_L_MUL, 0, 0, 1 / k->from, 0);
        break;
    case CKR__CV_EXP:
        if (!initial) ckr__lr_set(o, CKR__OP_L_MUL, 0, 0, k->power, 0);
        break;
    case CKR__CV_LINEAR:
        if (!now->epoch) ckr__lr_set(o, CKR__OP_L_MUL, 0, 0, k->from, 0);
        else if (!initial) ckr__tick_ratio(c, t, o);
        break;
    case CKR__CV_POLY:
    case CKR__CV_COSINE:
        if (!initial) ckr__tick_ratio(c, t, o);
        break;
    case CKR__CV_SWA:
        ckr__lr_set(o, CKR__OP_L_SWA, CKR__V_MIN, 0,
                    ckr__swa_alpha(c, ckr__at_least(t, ckr__same(n, 0) ? 1 : t) - 1),
                    ckr__swa_alpha(c, ckr__at_least(t, ckr__same(n, 0) ? 1 : t)));
        break;
    case CKR__CV_RESTARTS:
        if (now->t_i <= 0) ckr__lr_undef(o, ckr__why_zero);
        else ckr__lr_set(o, CKR__OP_PART, CKR__V_MIN, CKR__V_OVER,
                         1 + cos(CKR__PI * (double)now->t_cur / (double)now->t_i), 0.5);
        break;
    default: ckr__curve_op(c, t, CKR__COL_LR, o); break;
    }
}

/* step() of a scheduler that holds no others. */
static void ckr__tick_leaf(ckr__ticks *k, const ckr__curve *c, bool initial)
{
    ckr__node_now *now = &k->now[c->index];
    ckr__lr_op o;
    if (c->kind == CKR__CV_RESTARTS && now->epoch < 0) {
        now->t_i = (int64_t)c->k.decay;
        now->t_cur = 0;
    } else if (c->kind == CKR__CV_RESTARTS && ++now->t_cur >= now->t_i && now->t_i > 0) {
        now->t_cur %= now->t_i;
        if ((double)now->t_i * c->k.power < 4e18) now->t_i *= (int64_t)c->k.power;
    }
    now->epoch++;
    ckr__tick_op(c, now, initial, &o);
    ckr__tick_run(k, &o);
}

/* SequentialLR calls _update_lr(0) at a milestone: the closed form where the class has one, else
   get_lr; a scheduler of schedulers has neither. */
static void ckr__tick_restart(ckr__ticks *k, const ckr__curve *c)
{
    ckr__node_now *now = &k->now[c->index];
    ckr__lr_op o;
    now->epoch = 0;
    memset(&o, 0, sizeof o);
    o.node = c->index;
    if (c->kind == CKR__CV_SEQ || c->kind == CKR__CV_CHAIN)
        ckr__lr_undef(&o, "torch raises when a nested scheduler starts at a milestone");
    else if (c->kind == CKR__CV_SWA || c->kind == CKR__CV_RESTARTS) ckr__tick_op(c, now, false, &o);
    else ckr__curve_op(c, 0, CKR__COL_LR, &o);
    ckr__tick_run(k, &o);
}

/* step() of any scheduler; recursion bounded by CKR__SCHED_DEPTH. */
static void ckr__tick(ckr__ticks *k, const ckr__curve *c, bool initial)
{
    ckr__node_now *now = &k->now[c->index];
    double from;
    uint32_t i;
    if (c->kind == CKR__CV_SEQ) {
        now->epoch++;
        i = ckr__seq_child(c, (double)now->epoch, &from);
        if (i && ckr__same(from, (double)now->epoch)) ckr__tick_restart(k, &c->children[i]);
        else ckr__tick(k, &c->children[i], false);
    } else if (c->kind == CKR__CV_CHAIN) {
        now->epoch++;
        for (i = 0; i < c->n_children; i++) ckr__tick(k, &c->children[i], false);
    } else {
        ckr__tick_leaf(k, c, initial);
    }
}

static void ckr__undo(ckr__ticks *k, const ckr__curve *c)
{
    uint32_t i;
    for (i = 0; i < c->n_children; i++) ckr__undo(k, &c->children[i]);
    if (!c->n_children) k->now[c->index].epoch--;
}

/* The constructors, innermost first as Python runs them; all lanes start at their base LR. */
static void ckr__construct(ckr__ticks *k, const ckr__curve *c)
{
    ckr__node_now *now = &k->now[c->index];
    const ckr__curve *first;
    double from;
    uint32_t i;
    for (i = 0; i < c->n_children; i++) ckr__construct(k, &c->children[i]);
    now->epoch = c->n_children ? 0 : -1;
    if (c->kind == CKR__CV_SEQ) {
        memcpy(k->l, k->now[0].v[CKR__V_BASE], (size_t)k->n * sizeof *k->l);
        ckr__undo(k, c);
        first = &c->children[ckr__seq_child(c, 0, &from)];
        ckr__tick(k, first, true);
    } else if (!c->n_children) {
        ckr__tick_leaf(k, c, true);
    }
}

/* >>schedule.eval ------------------------------------------------------------- */
/* A run of updates. Lanes that hold the same numbers are computed once. */

typedef struct ckr__srun {
    ckr__ctx           *c;
    const ckr_schedule *s;
    ckr__node_now       now[CKR__SCHED_NODES];
    ckr__ticks          ticks;
    uint32_t            n_nodes;
    uint64_t            n;               /* distinct lanes                                */
    uint32_t           *map;             /* lane -> distinct one; NULL: all are           */
    double             *mem, *row;
    size_t              map_bytes, mem_bytes;
    int64_t             clock;           /* of the simulation; -1: not begun              */
    bool                simulate, scaled, moved;
    const char         *why;             /* of the first update that is undefined         */
    uint64_t            why_at;
} ckr__srun;

static const ckr__curve *ckr__curve_by_index(const ckr__curve *c, uint32_t index)
{
    uint32_t i;
    while (c->index != index) {
        for (i = 0; i + 1 < c->n_children && c->children[i + 1].index <= index; i++) {}
        if (!c->n_children) return c;
        c = &c->children[i];
    }
    return c;
}

static uint32_t ckr__curve_nodes(const ckr__curve *c)
{
    while (c->n_children) c = &c->children[c->n_children - 1];
    return c->index + 1u;
}

/* Number j of what makes a lane: its own fields, then base, min and max of each child. */
static double ckr__lane_number(const ckr_schedule *s, const ckr__curve *const *nodes, uint64_t lane,
                               uint32_t j)
{
    const uint32_t own = sizeof(ckr_lane) / sizeof(double);
    const ckr__curve *c;
    const double *from;
    double v;
    if (j < own) {
        memcpy(&v, (const char *)&s->lanes[lane] + j * sizeof v, sizeof v);
        return v;
    }
    c = nodes[1 + (j - own) / 3];
    from = (j - own) % 3 == 0 ? c->base : (j - own) % 3 == 1 ? c->min : c->max;
    return from ? from[lane] : 0;
}

/* Finds equal lanes; map[lane] is the number of the distinct lane, first[] its first lane. */
static bool ckr__lanes_distinct(ckr__srun *r, const ckr__curve *const *nodes, uint32_t *first)
{
    const uint32_t width = (uint32_t)(sizeof(ckr_lane) / sizeof(double)) + 3 * (r->n_nodes - 1);
    const uint64_t n = r->s->n_lanes;
    uint64_t lane, cap = 16;
    uint32_t j, *table;
    size_t at, bytes;
    while (cap < 2 * n) cap *= 2;
    if (!ckr__mul_size((size_t)cap, sizeof *table, &bytes)) return ckr__nomem(r->c) != NULL;
    table = (uint32_t *)ckr__heap_alloc(r->c, bytes);
    if (!table) return false;
    memset(table, 0, bytes);
    for (lane = 0; lane < n; lane++) {
        uint64_t h = r->c->seed;
        for (j = 0; j < width; j++) {
            double v = ckr__lane_number(r->s, nodes, lane, j);
            h = ckr__hash_keyed(h, &v, sizeof v, 0);
        }
        for (at = (size_t)h & (size_t)(cap - 1); table[at]; at = (at + 1) & (size_t)(cap - 1)) {
            for (j = 0; j < width; j++) {
                double a = ckr__lane_number(r->s, nodes, lane, j),
                       b = ckr__lane_number(r->s, nodes, first[table[at] - 1], j);
                if (memcmp(&a, &b, sizeof a) != 0) break;
            }
            if (j == width) break;
        }
        if (!table[at]) {
            first[r->n] = (uint32_t)lane;
            table[at] = (uint32_t)++r->n;
        }
        r->map[lane] = table[at] - 1;
    }
    ckr__heap_free(r->c, table, bytes);
    return true;
}

/* The arrays of one curve over the distinct lanes, from `mem` on. */
static double *ckr__srun_curve(ckr__srun *r, const ckr__curve *c, const uint32_t *first,
                               double *mem)
{
    double *base = mem, *lo = mem + r->n, *hi = lo + r->n, *span = hi + r->n, *over = span + r->n,
           *rise = over + r->n;
    const double **v = r->now[c->index].v;
    uint64_t i;
    for (i = 0; i < r->n; i++) {
        const ckr_lane *l = &r->s->lanes[first[i]];
        base[i] = c->base ? c->base[first[i]] : l->base;
        lo[i] = c->min ? c->min[first[i]] : l->min;
        hi[i] = c->max ? c->max[first[i]] : l->max;
        span[i] = hi[i] - lo[i];
        over[i] = base[i] - lo[i];
        rise[i] = hi[i] - base[i];
    }
    for (i = 0; i < CKR__V_CURVE_; i++) v[i] = mem + i * r->n;
    return mem + CKR__V_CURVE_ * r->n;
}

/* The arrays that all curves share, behind their own. */
static double *ckr__srun_shared(ckr__srun *r, const uint32_t *first, double *mem)
{
    uint64_t i, n = r->n;
    uint32_t j;
    for (i = 0; i < n; i++) {
        const ckr_lane *l = &r->s->lanes[first[i]];
        double *m = mem + i;
        *m = l->base_momentum, m += n;
        *m = l->max_momentum, m += n;
        *m = l->max_momentum - l->base_momentum, m += n;
        *m = l->start_wd, m += n;
        *m = l->end_wd, m += n;
        *m = l->end_wd - l->start_wd, m += n;
        *m = l->wd_mult, m += n;
        *m = l->lr_mult, m += n;
        *m = l->p, m += n;
        *m = l->q, m += n;
        *m = l->ramp_from, m += n;
        *m = l->ramp_to - l->ramp_from, m += n;
        *m = l->anchor;
        if (!ckr__same(l->lr_mult, 1)) r->scaled = true;
        if (!ckr__same(l->p, 1) || !ckr__same(l->q, 0)) r->moved = true;
    }
    for (j = 0; j < r->n_nodes; j++)
        for (i = CKR__V_CURVE_; i < CKR__V_COUNT_; i++)
            r->now[j].v[i] = mem + (i - CKR__V_CURVE_) * n;
    return mem + (CKR__V_COUNT_ - CKR__V_CURVE_) * n;
}

static bool ckr__srun_arrays(ckr__srun *r, const ckr__curve *const *nodes, const uint32_t *first)
{
    const uint64_t arrays =
        (uint64_t)CKR__V_CURVE_ * r->n_nodes + (CKR__V_COUNT_ - CKR__V_CURVE_) + 2;
    uint64_t want;
    double *mem;
    uint32_t j;
    if (!ckr__mul_u64(arrays * sizeof(double), r->n, &want) || want > SIZE_MAX / 2)
        return ckr__nomem(r->c) != NULL;
    r->mem_bytes = (size_t)want;
    mem = r->mem = (double *)ckr__heap_alloc(r->c, r->mem_bytes);
    if (!mem) return false;
    for (j = 0; j < r->n_nodes; j++) mem = ckr__srun_curve(r, nodes[j], first, mem);
    mem = ckr__srun_shared(r, first, mem);
    r->ticks.l = mem;
    r->row = mem + r->n;
    r->ticks.now = r->now;
    r->ticks.n = r->n;
    return true;
}

static void ckr__srun_end(ckr__srun *r)
{
    ckr__heap_free(r->c, r->mem, r->mem_bytes);
    ckr__heap_free(r->c, r->map, r->map_bytes);
    r->mem = NULL;
    r->map = NULL;
}

/* Allocates; after it evaluation does not. Set up at most UINT32_MAX lanes. */
static ckr_result ckr__srun_begin(ckr__ctx *c, const ckr_schedule *s, ckr__srun *r)
{
    const ckr__curve *nodes[CKR__SCHED_NODES];
    uint32_t *first, j;
    bool ok;
    memset(r, 0, sizeof *r);
    r->c = c;
    r->s = s;
    r->clock = -1;
    r->n_nodes = ckr__curve_nodes(s->curve);
    if (s->n_lanes >= UINT32_MAX / 4 || s->n_lanes > SIZE_MAX / 8 / sizeof *r->map)
        return ckr__fail(c->err, CKR_ITEM_LIMIT, NULL, CKR_NO_OFFSET, NULL, "%llu parameter groups",
                         (unsigned long long)s->n_lanes);
    for (j = 0; j < r->n_nodes; j++) nodes[j] = ckr__curve_by_index(s->curve, j);
    r->map_bytes = 2 * (size_t)s->n_lanes * sizeof *r->map;
    r->map = (uint32_t *)ckr__heap_alloc(c, r->map_bytes);
    if (!r->map) return CKR_E_NOMEM;
    first = r->map + s->n_lanes;
    ok = ckr__lanes_distinct(r, nodes, first) && ckr__srun_arrays(r, nodes, first);
    if (!ok) {
        ckr__srun_end(r);
        return CKR_E_NOMEM;
    }
    if (r->n == s->n_lanes) {
        ckr__heap_free(c, r->map, r->map_bytes);
        r->map = NULL;
    }
    return CKR_OK;
}

/* Ticks until the clock is t. From an anchor on it goes on from the saved LR. */
static void ckr__srun_simulate(ckr__srun *r, int64_t t)
{
    const ckr_schedule *s = r->s;
    const bool anchored = s->anchored && t >= s->position;
    ckr__ticks *k = &r->ticks;
    uint32_t j;
    if (t < r->clock || (r->clock < s->position && anchored)) r->clock = -1;
    if (r->clock < 0 && anchored) {
        for (j = 0; j < r->n_nodes; j++) {
            const ckr__curve *c = ckr__curve_by_index(s->curve, j);
            r->now[j].epoch = c->epoch;
            r->now[j].t_cur = c->t_cur;
            r->now[j].t_i = c->t_i;
        }
        memcpy(k->l, r->now[0].v[CKR__V_ANCHOR], (size_t)r->n * sizeof *k->l);
        r->clock = s->position;
        k->why = NULL;
    } else if (r->clock < 0) {
        memcpy(k->l, r->now[0].v[CKR__V_BASE], (size_t)r->n * sizeof *k->l);
        k->why = NULL;
        ckr__construct(k, s->curve);
        r->clock = 0;
    }
    for (; r->clock < t; r->clock++) ckr__tick(k, s->curve, false);
}

/* The most ticks that a simulation may need before its first update; longer ones are closed. */
#define CKR__SCHED_MAX_TICKS ((int64_t)1 << 26)

static bool ckr__whole(double v)
{
    return v >= -9007199254740992.0 && v <= 9007199254740992.0 && ckr__same(floor(v), v);
}

static bool ckr__srun_can_simulate(const ckr_schedule *s, int64_t first, int column)
{
    const double t = s->rate * ((double)first - 1) + s->offset;
    const int64_t from = s->anchored && t >= (double)s->position ? s->position : 0;
    return s->recurrent && column == CKR__COL_LR && ckr__is_recurrent(s->curve->kind) &&
           ckr__whole(s->rate) && s->rate > 0 && ckr__whole(s->offset) && ckr__same(s->a, 1) &&
           ckr__whole(s->b) && ckr__whole(t) && t + s->b >= 0 &&
           t + s->b - (double)from <= (double)CKR__SCHED_MAX_TICKS &&
           (!s->anchored || ckr__same(s->b, 0));
}

/* Maps of the instance: multiplier, then q + p * v, then the floor of 0. */
static void ckr__srun_post(const ckr__srun *r, double *l)
{
    const double *const *v = r->now[0].v;
    uint64_t i;
    if (r->scaled)
        for (i = 0; i < r->n; i++) l[i] = l[i] * v[CKR__V_LR_MULT][i];
    if (r->moved)
        for (i = 0; i < r->n; i++) l[i] = v[CKR__V_Q][i] + ckr__rn(v[CKR__V_P][i] * l[i]);
    if (r->s->clamp)
        for (i = 0; i < r->n; i++) l[i] = l[i] < 0 ? 0 : l[i];
}

/* The values at clock t into l (distinct lanes). */
static void ckr__srun_at(ckr__srun *r, double t, int column, double *l)
{
    const ckr_schedule *s = r->s;
    const double *const *v = r->now[0].v;
    const double u = s->a * (t < s->hold ? t : s->hold) + s->b;
    uint64_t i;
    ckr__lr_op o;
    if (column == CKR__COL_LR && s->ramp_len > 0 && t >= s->ramp_at && t < s->ramp_at + s->ramp_len) {
        for (i = 0; i < r->n; i++)
            l[i] = v[CKR__V_RAMP][i] +
                   ckr__rn(v[CKR__V_RAMP_SPAN][i] * (t - s->ramp_at)) / s->ramp_len;
        return;
    }
    if (r->simulate) {
        ckr__srun_simulate(r, (int64_t)u);
        memcpy(l, r->ticks.l, (size_t)r->n * sizeof *l);
        if (r->ticks.why && !r->why) r->why = r->ticks.why;
    } else {
        ckr__curve_op(s->curve, u, column, &o);
        ckr__run(&o, r->now[o.node].v, r->n, l);
        if (o.code == CKR__OP_UNDEF && !r->why) r->why = o.why;
    }
    if (column == CKR__COL_LR && (r->scaled || r->moved || s->clamp)) ckr__srun_post(r, l);
}

static void ckr__srun_rows(ckr__srun *r, int column, int64_t first, uint64_t n, double *out)
{
    const uint64_t lanes = r->s->n_lanes;
    const bool had = r->why != NULL;
    uint64_t i, j;
    r->simulate = ckr__srun_can_simulate(r->s, first, column);
    for (i = 0; i < n; i++, out += lanes) {
        const double done = (double)first - 1 + (double)i, t = r->s->rate * done + r->s->offset;
        double *l = r->map ? r->row : out;
        ckr__srun_at(r, t, column, l);
        if (r->map) for (j = 0; j < lanes; j++) out[j] = l[r->map[j]];
        if (r->why && !had && !r->why_at) r->why_at = (uint64_t)i + 1;
    }
}

/* The column's values of updates first..first+n-1 (update 1 is the first of a run and uses the
   clock value after 0 updates) as n rows of n_lanes numbers; NaN where the schedule does not say.
   Allocates before the first row only. */
static ckr_result ckr__sched_eval(ckr__ctx *c, const ckr_schedule *s, ckr__column column,
                                  int64_t first, uint64_t n, double *out)
{
    ckr__srun *r;
    ckr_result e;
    uint64_t i, total;
    unsigned fp;
    if (!ckr__mul_u64(n, s->n_lanes, &total))
        return ckr__fail(c->err, CKR_ITEM_ARG, NULL, CKR_NO_OFFSET, "updates", NULL);
    if (!total) return CKR_OK;
    if (s->opaque || !s->curve) {
        for (i = 0; i < total; i++) out[i] = ckr__nan();
        return CKR_OK;
    }
    r = (ckr__srun *)ckr__heap_alloc(c, sizeof *r);
    if (!r) return CKR_E_NOMEM;
    fp = ckr__fp_enter();
    e = ckr__srun_begin(c, s, r);
    if (e == CKR_OK) {
        ckr__srun_rows(r, (int)column, first, n, out);
        ckr__srun_end(r);
    }
    ckr__fp_leave(fp);
    ckr__heap_free(c, r, sizeof *r);
    return e;
}

/* All lanes at one clock value, which need not be that of an update. */
static ckr_result ckr__sched_at(ckr__ctx *c, const ckr_schedule *s, ckr__column column, double t,
                                double *out)
{
    ckr_schedule one = *s;
    one.rate = 1;
    one.offset = t;
    return ckr__sched_eval(c, &one, column, 1, 1, out);
}

/* >>schedule.build ------------------------------------------------------------ */
/* Schedules from their framework's own parameters: a dict, or the text KIND:key=value,... */

typedef struct ckr__skind {
    const char *family, *name;
    uint8_t     kind, shape;
    const char *keys;          /* name:type; i integer, f number, s text, b true or false, v number
                                  or one per group, m numbers, d dicts; ! must be given  */
    const char *set;           /* --set keys: / a ratio of lr, % of the total, * times the rate,
                                  @ the schedule's name                                  */
} ckr__skind;

#define CKR__SK_HF "num_warmup_steps:i! num_training_steps:i! lr:v"
#define CKR__SK_HF_SET \
    "lr=lr warmup_steps=num_warmup_steps total_steps=num_training_steps decay_style=@"
#define CKR__SK_DS "warmup_min_lr:v warmup_max_lr:v warmup_num_steps:i warmup_type:s lr:v"

static const ckr__skind ckr__skinds[] = {
    { "nanotron", "", CKR__CV_NANOTRON, 0,
      "learning_rate:f! lr_warmup_steps:i lr_warmup_style:s lr_decay_style:s lr_decay_steps:i "
      "lr_decay_starting_step:i min_decay_lr:f train_steps:i lr:v",
      "lr=learning_rate min_lr=min_decay_lr warmup_steps=lr_warmup_steps "
      "decay_steps=lr_decay_steps total_steps=train_steps decay_style=lr_decay_style" },
    { "torchtitan", "", CKR__CV_TITAN, 0,
      "steps:i total_steps:i warmup_steps:i decay_ratio:f decay_type:s min_lr_factor:f lr_min:f "
      "lr:v",
      "lr=lr min_lr=/min_lr_factor warmup_steps=warmup_steps decay_steps=%decay_ratio "
      "total_steps=total_steps decay_style=decay_type" },
    { "megatron", "", CKR__CV_MEGATRON, 0,
      "lr:v max_lr:v min_lr:v init_lr:f lr_warmup_init:f lr_warmup_steps:i lr_warmup_iters:i "
      "lr_warmup_samples:i lr_warmup_fraction:f lr_decay_steps:i lr_decay_iters:i "
      "lr_decay_samples:i train_iters:i train_samples:i lr_decay_style:s wsd_decay_steps:i "
      "lr_wsd_decay_iters:i lr_wsd_decay_samples:i lr_wsd_decay_style:s weight_decay:f start_wd:v "
      "end_wd:v start_weight_decay:v end_weight_decay:v wd_incr_steps:i wd_incr_style:s "
      "weight_decay_incr_style:s global_batch_size:i num_steps:i",
      "lr=max_lr min_lr=min_lr warmup_steps=*lr_warmup_steps decay_steps=*lr_decay_steps "
      "total_steps=*lr_decay_steps decay_style=lr_decay_style weight_decay=end_wd" },
    { "transformers", "constant", CKR__CV_CONST, 0, "num_warmup_steps:i num_training_steps:i lr:v",
      "lr=lr decay_style=@" },
    { "transformers", "constant_with_warmup", CKR__CV_HF, CKR__SH_CONST,
      "num_warmup_steps:i! num_training_steps:i lr:v",
      "lr=lr warmup_steps=num_warmup_steps decay_style=@" },
    { "transformers", "linear", CKR__CV_HF, CKR__SH_LINEAR, CKR__SK_HF, CKR__SK_HF_SET },
    { "transformers", "cosine", CKR__CV_HF, CKR__SH_COSINE, CKR__SK_HF " num_cycles:f",
      CKR__SK_HF_SET },
    { "transformers", "cosine_with_restarts", CKR__CV_HF, CKR__SH_HARD, CKR__SK_HF " num_cycles:i",
      CKR__SK_HF_SET },
    { "transformers", "polynomial", CKR__CV_HF, CKR__SH_POLY,
      CKR__SK_HF " lr_end:f power:f lr_init:f", CKR__SK_HF_SET " min_lr=lr_end" },
    { "transformers", "inverse_sqrt", CKR__CV_HF, CKR__SH_INVSQRT,
      "num_warmup_steps:i! num_training_steps:i timescale:i lr:v",
      "lr=lr warmup_steps=num_warmup_steps decay_style=@" },
    { "transformers", "cosine_with_min_lr", CKR__CV_HF, CKR__SH_COSINE,
      CKR__SK_HF " num_cycles:f min_lr:f min_lr_rate:f lr_init:f", CKR__SK_HF_SET " min_lr=min_lr" },
    { "transformers", "cosine_warmup_with_min_lr", CKR__CV_HF, CKR__SH_WARM_FLOOR,
      CKR__SK_HF " num_cycles:f min_lr:f min_lr_rate:f warmup_lr_rate:f lr_init:f",
      CKR__SK_HF_SET " min_lr=min_lr" },
    { "transformers", "warmup_stable_decay", CKR__CV_HF, CKR__SH_COSINE,
      "num_warmup_steps:i! num_decay_steps:i! num_training_steps:i num_stable_steps:i "
      "warmup_type:s decay_type:s min_lr_ratio:f num_cycles:f lr:v",
      "lr=lr min_lr=/min_lr_ratio warmup_steps=num_warmup_steps decay_steps=num_decay_steps "
      "total_steps=num_training_steps decay_style=decay_type" },
    { "transformers", "reduce_lr_on_plateau", 0, 0, "num_warmup_steps:i num_training_steps:i lr:v",
      "" },
    { "diffusers", "constant", CKR__CV_CONST, 0, "num_warmup_steps:i num_training_steps:i lr:v",
      "lr=lr decay_style=@" },
    { "diffusers", "constant_with_warmup", CKR__CV_HF, CKR__SH_CONST,
      "num_warmup_steps:i! num_training_steps:i lr:v",
      "lr=lr warmup_steps=num_warmup_steps decay_style=@" },
    { "diffusers", "linear", CKR__CV_HF, CKR__SH_LINEAR, CKR__SK_HF, CKR__SK_HF_SET },
    { "diffusers", "cosine", CKR__CV_HF, CKR__SH_COSINE, CKR__SK_HF " num_cycles:f",
      CKR__SK_HF_SET },
    { "diffusers", "cosine_with_restarts", CKR__CV_HF, CKR__SH_HARD, CKR__SK_HF " num_cycles:i",
      CKR__SK_HF_SET },
    { "diffusers", "polynomial", CKR__CV_HF, CKR__SH_POLY,
      CKR__SK_HF " lr_end:f power:f lr_init:f", CKR__SK_HF_SET " min_lr=lr_end" },
    { "diffusers", "piecewise_constant", CKR__CV_TABLE, 0,
      "step_rules:s! num_warmup_steps:i num_training_steps:i lr:v", "lr=lr decay_style=@" },
    { "deepspeed", "WarmupLR", CKR__CV_DS_WARMUP, 0, CKR__SK_DS,
      "lr=warmup_max_lr min_lr=warmup_min_lr warmup_steps=warmup_num_steps decay_style=@" },
    { "deepspeed", "WarmupDecayLR", CKR__CV_DS_WARMUP, CKR__SH_LINEAR,
      "total_num_steps:i! " CKR__SK_DS,
      "lr=warmup_max_lr min_lr=warmup_min_lr warmup_steps=warmup_num_steps "
      "total_steps=total_num_steps decay_style=@" },
    { "deepspeed", "WarmupCosineLR", CKR__CV_DS_COSINE, CKR__SH_COSINE,
      "total_num_steps:i! warmup_min_ratio:f warmup_num_steps:i cos_min_ratio:f warmup_type:s lr:v",
      "lr=lr min_lr=/cos_min_ratio warmup_steps=warmup_num_steps total_steps=total_num_steps "
      "decay_style=@" },
    { "deepspeed", "OneCycle", CKR__CV_DS_CYCLE, 0,
      "cycle_min_lr:v! cycle_max_lr:v! decay_lr_rate:f cycle_first_step_size:i "
      "cycle_second_step_size:i cycle_first_stair_count:i cycle_second_stair_count:i "
      "decay_step_size:i cycle_momentum:b cycle_min_mom:v cycle_max_mom:v decay_mom_rate:f lr:v",
      "lr=cycle_max_lr min_lr=cycle_min_lr warmup_steps=cycle_first_step_size" },
    { "deepspeed", "LRRangeTest", CKR__CV_DS_RANGE, 0,
      "lr_range_test_min_lr:v lr_range_test_step_size:i lr_range_test_step_rate:f "
      "lr_range_test_staircase:b lr:v", "min_lr=lr_range_test_min_lr" },
    { "llmc", "cosine", CKR__CV_LLMC, CKR__SH_COSINE,
      "learning_rate:f warmup_iterations:i train_num_batches:i! final_learning_rate_frac:f lr:v",
      "lr=learning_rate min_lr=/final_learning_rate_frac warmup_steps=warmup_iterations "
      "total_steps=train_num_batches decay_style=@" },
    { "llmc", "linear", CKR__CV_LLMC, CKR__SH_LINEAR,
      "learning_rate:f warmup_iterations:i train_num_batches:i! final_learning_rate_frac:f lr:v",
      "lr=learning_rate min_lr=/final_learning_rate_frac warmup_steps=warmup_iterations "
      "total_steps=train_num_batches decay_style=@" },
    { "llmc", "constant", CKR__CV_LLMC, CKR__SH_CONST,
      "learning_rate:f warmup_iterations:i train_num_batches:i final_learning_rate_frac:f lr:v",
      "lr=learning_rate decay_style=@" },
    { "llmc", "wsd", CKR__CV_LLMC, CKR__SH_SQRT,
      "learning_rate:f warmup_iterations:i train_num_batches:i! final_learning_rate_frac:f lr:v",
      "lr=learning_rate min_lr=/final_learning_rate_frac warmup_steps=warmup_iterations "
      "total_steps=train_num_batches decay_style=@" },
    { "fairseq", "polynomial_decay", CKR__CV_PIECES, CKR__SH_POLY,
      "warmup_updates:i total_num_update:i! end_learning_rate:f power:f lr:v",
      "lr=lr min_lr=end_learning_rate warmup_steps=warmup_updates total_steps=total_num_update" },
    { "fairseq", "inverse_sqrt", CKR__CV_PIECES, CKR__SH_INVSQRT,
      "warmup_updates:i! warmup_init_lr:f lr:v", "lr=lr warmup_steps=warmup_updates" },
    { "torch", "StepLR", CKR__CV_STEP, 0, "step_size:i! gamma:f lr:v",
      "lr=lr decay_steps=*step_size" },
    { "torch", "MultiStepLR", CKR__CV_MULTISTEP, 0, "milestones:m! gamma:f lr:v", "lr=lr" },
    { "torch", "ConstantLR", CKR__CV_CONSTANT, 0, "factor:f total_iters:f lr:v",
      "lr=lr warmup_steps=*total_iters" },
    { "torch", "LinearLR", CKR__CV_LINEAR, 0, "start_factor:f end_factor:f total_iters:f lr:v",
      "lr=lr warmup_steps=*total_iters total_steps=*total_iters" },
    { "torch", "ExponentialLR", CKR__CV_EXP, 0, "gamma:f! lr:v", "lr=lr" },
    { "torch", "PolynomialLR", CKR__CV_POLY, 0, "total_iters:f power:f lr:v",
      "lr=lr decay_steps=*total_iters total_steps=*total_iters" },
    { "torch", "CosineAnnealingLR", CKR__CV_COSINE, 0, "T_max:f! eta_min:f lr:v",
      "lr=lr min_lr=eta_min decay_steps=*T_max total_steps=*T_max" },
    { "torch", "CosineAnnealingWarmRestarts", CKR__CV_RESTARTS, 0,
      "T_0:i! T_mult:i eta_min:f lr:v", "lr=lr min_lr=eta_min decay_steps=*T_0" },
    { "torch", "OneCycleLR", CKR__CV_ONECYCLE, 0,
      "max_lr:v! total_steps:i epochs:i steps_per_epoch:i pct_start:f anneal_strategy:s "
      "cycle_momentum:b base_momentum:v max_momentum:v div_factor:f final_div_factor:f "
      "three_phase:b lr:v", "lr=max_lr total_steps=*total_steps" },
    { "torch", "CyclicLR", CKR__CV_CYCLIC, 0,
      "base_lr:v! max_lr:v! step_size_up:f step_size_down:f mode:s gamma:f cycle_momentum:b "
      "base_momentum:v max_momentum:v lr:v",
      "lr=max_lr min_lr=base_lr warmup_steps=*step_size_up decay_steps=*step_size_down" },
    { "torch", "SWALR", CKR__CV_SWA, 0, "swa_lr:v! anneal_epochs:i anneal_strategy:s lr:v",
      "lr=lr min_lr=swa_lr decay_steps=*anneal_epochs" },
    { "torch", "SequentialLR", CKR__CV_SEQ, 0, "schedulers:d! milestones:m! lr:v", "lr=lr" },
    { "torch", "ChainedScheduler", CKR__CV_CHAIN, 0, "schedulers:d! lr:v", "lr=lr" },
    { "torch", "LambdaLR", 0, 0, "lr:v", "" },
    { "torch", "MultiplicativeLR", 0, 0, "lr:v", "" },
    { "torch", "ReduceLROnPlateau", 0, 0,
      "mode:s factor:f patience:i threshold:f threshold_mode:s cooldown:i min_lr:v eps:f lr:v", "" },
};
#define CKR__SKINDS (sizeof ckr__skinds / sizeof *ckr__skinds)

typedef struct ckr__sbuild {
    ckr__ctx         *c;
    const ckr__skind *row;
    const ckr_node   *params;
    ckr_schedule     *s;
    ckr__curve       *curve;
    ckr_lane         *lanes;   /* of this curve; s->lanes at the top                     */
    uint32_t         *n_nodes;
    int               depth;
    ckr_result        r;
} ckr__sbuild;

static ckr_result ckr__sched_oom(ckr__ctx *c)
{
    return c->err->code != CKR_OK ? c->err->code : CKR_E_NOMEM;
}

CKR__PRINTF(3, 4)
static void ckr__sp_fail(ckr__sbuild *b, const char *key, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    if (b->r != CKR_OK) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    b->r = ckr__fail(b->c->err, CKR_ITEM_SCHEDULE, NULL, CKR_NO_OFFSET, key, "%s%s%s: %s",
                     b->row->family, *b->row->name ? ":" : "", b->row->name, text);
}

/* The value of a key; NULL when it is absent or None. */
static const ckr_node *ckr__sp_get(const ckr__sbuild *b, const char *key)
{
    const ckr_node *n = ckr_node_get(b->params, key);
    return n && n->kind != CKR_NODE_NONE ? n : NULL;
}

static double ckr__sp_f(ckr__sbuild *b, const char *key, double none)
{
    const ckr_node *n = ckr__sp_get(b, key);
    double v = none;
    if (!n) return none;
    if (!ckr_node_f64(n, &v) || !ckr__finite(v)) {
        ckr__sp_fail(b, key, "%s must be a finite number", key);
        return none;
    }
    return v;
}

static double ckr__sp_i(ckr__sbuild *b, const char *key, double none)
{
    const double v = ckr__sp_f(b, key, none);
    if (v == v && (!ckr__whole(v) || v < 0)) {
        ckr__sp_fail(b, key, "%s must be an integer of at least 0, it is %.17g", key, v);
        return none;
    }
    return v;
}

static bool ckr__sp_b(ckr__sbuild *b, const char *key, bool none)
{
    const ckr_node *n = ckr__sp_get(b, key);
    int64_t v;
    if (!n) return none;
    if (ckr_node_i64(n, &v) && (v == 0 || v == 1)) return v != 0;
    ckr__sp_fail(b, key, "%s must be true or false", key);
    return none;
}

/* One of `names`, a list like "linear=1 cosine=2". */
static uint8_t ckr__sp_choice(ckr__sbuild *b, const char *key, const char *none, const char *names)
{
    const ckr_node *n = ckr__sp_get(b, key);
    const char *v = n ? ckr_node_str(n) : none, *p = names;
    while (v && *p) {
        const size_t len = strcspn(p, "=");
        if (strlen(v) == len && !memcmp(v, p, len)) return (uint8_t)strtol(p + len + 1, NULL, 10);
        p += strcspn(p, " ");
        p += *p == ' ';
    }
    ckr__sp_fail(b, key, "%s must be one of those of %s, it is %s", key, names, v ? v : "no text");
    return 0;
}

/* A number for every lane, or one each, into a field of the lanes. */
static void ckr__sp_lane(ckr__sbuild *b, const char *key, double none, size_t field)
{
    const ckr_node *n = ckr__sp_get(b, key);
    const uint64_t lanes = b->s->n_lanes;
    double v = none;
    uint64_t i;
    if (n && ckr_node_is_list(n) && n->count != lanes) {
        ckr__sp_fail(b, key, "%s lists %llu numbers for %llu parameter groups", key,
                     (unsigned long long)n->count, (unsigned long long)lanes);
        return;
    }
    for (i = 0; i < lanes; i++) {
        const ckr_node *one = n && ckr_node_is_list(n) ? n->u.items[i] : n;
        if (one && (!ckr_node_f64(one, &v) || !ckr__finite(v))) {
            ckr__sp_fail(b, key, "%s must be a finite number or one per parameter group", key);
            return;
        }
        memcpy((char *)&b->lanes[i] + field, &v, sizeof v);
    }
}
#define CKR__LANE(b, key, none, field) ckr__sp_lane(b, key, none, offsetof(ckr_lane, field))

/* The same number into a field of every lane. */
static void ckr__sp_fill(ckr__sbuild *b, double v, size_t field)
{
    uint64_t i;
    for (i = 0; i < b->s->n_lanes; i++) memcpy((char *)&b->lanes[i] + field, &v, sizeof v);
}

static void ckr__sp_positive(ckr__sbuild *b, const char *key, double v)
{
    if (!(v > 0)) ckr__sp_fail(b, key, "%s must be larger than 0, it is %.17g", key, v);
}

/* The default LR of the optimizer, from which some factors are taken: lr_init, lr or group 0's. */
static double ckr__sp_top(ckr__sbuild *b)
{
    return ckr__sp_f(b, "lr_init", b->s->n_lanes ? b->lanes[0].base : ckr__nan());
}

/* A decimal number at *p, which moves behind it. */
static bool ckr__number_at(ckr__ctx *c, const char **p, double *out)
{
    const char *q = *p, *from = q;
    size_t n;
    q += *q == '-' || *q == '+';
    n = strspn(q, "0123456789");
    q += n;
    if (*q == '.') {
        const size_t m = strspn(q + 1, "0123456789");
        q += 1 + m;
        n += m;
    }
    if (!n) return false;
    if (*q == 'e' || *q == 'E') {
        const char *x = q + 1;
        x += *x == '-' || *x == '+';
        n = strspn(x, "0123456789");
        if (!n) return false;
        q = x + n;
    }
    if (!ckr__text_double(c, (const uint8_t *)from, (size_t)(q - from), out)) return false;
    *p = q;
    return ckr__finite(*out);
}

static void ckr__build_hf(ckr__sbuild *b)
{
    ckr__curve_nums *k = &b->curve->k;
    const bool rate = ckr__sp_get(b, "min_lr_rate") != NULL, min = ckr__sp_get(b, "min_lr") != NULL,
               floors = strstr(b->row->name, "min_lr") != NULL;
    k->warm = ckr__sp_i(b, "num_warmup_steps", 0);
    k->total = ckr__sp_i(b, "num_training_steps", k->warm);
    k->cycles = ckr__sp_f(b, "num_cycles", b->row->shape == CKR__SH_HARD ? 1 : 0.5);
    k->power = ckr__sp_f(b, "power", 1);
    k->from = ckr__sp_f(b, "warmup_lr_rate", ckr__nan());
    k->floor = ckr__nan();
    if (b->row->shape == CKR__SH_INVSQRT) {
        k->decay = ckr__sp_i(b, "timescale", k->warm > 0 ? k->warm : 10000);
        ckr__sp_positive(b, "timescale", k->decay);
    } else if (b->row->shape == CKR__SH_POLY) {
        k->top = ckr__sp_top(b);
        k->floor = ckr__sp_f(b, "lr_end", 1e-7);
        if (!(k->top > k->floor))
            ckr__sp_fail(b, "lr_end", "lr_end (%.17g) must be smaller than the optimizer's lr "
                         "(%.17g)", k->floor, k->top);
    } else if (floors) {
        if (rate == min) ckr__sp_fail(b, "min_lr", "give one of min_lr and min_lr_rate");
        k->floor = rate ? ckr__sp_f(b, "min_lr_rate", 0)
                        : ckr__sp_f(b, "min_lr", 0) / ckr__sp_top(b);
    }
}

static void ckr__build_hf_wsd(ckr__sbuild *b)
{
    ckr__curve_nums *k = &b->curve->k;
    b->curve->flags |= CKR__CF_WARMUP;
    b->curve->warm_shape = ckr__sp_choice(b, "warmup_type", "linear", "linear=1 cosine=2 1-sqrt=4");
    b->curve->shape = ckr__sp_choice(b, "decay_type", "cosine", "linear=1 cosine=2 1-sqrt=4");
    k->decay = ckr__sp_i(b, "num_decay_steps", 0);
    k->floor = ckr__sp_f(b, "min_lr_ratio", 0);
    if (!ckr__sp_get(b, "num_stable_steps") && !ckr__sp_get(b, "num_training_steps"))
        ckr__sp_fail(b, "num_stable_steps", "give num_stable_steps or num_training_steps");
    k->start = k->warm + ckr__sp_i(b, "num_stable_steps", ckr__nan());
    if (k->start != k->start) k->start = k->total - k->decay;
    k->total = k->start + k->decay;
}

/* "1:10,0.1:20,0.005": the factor before each step, then the last one. */
static void ckr__build_table(ckr__sbuild *b)
{
    const char *p = ckr_node_str(ckr__sp_get(b, "step_rules"));
    uint32_t n = 0, i, j;
    const char *q;
    for (q = p; q && *q; q++) n += *q == ',';
    b->curve->at = CKR__NEW_N(b->c, double, 2 * (uint64_t)n + 1);
    if (!b->curve->at) {
        b->r = ckr__sched_oom(b->c);
        return;
    }
    b->curve->val = b->curve->at + n;
    for (i = 0; p && *p; i++) {
        double v, t = 0;
        if (!ckr__number_at(b->c, &p, &v) || (i == n && *p)) break;
        if (i < n && *p++ != ':') break;
        if (i < n && (!ckr__number_at(b->c, &p, &t) || *p++ != ',')) break;
        if (!ckr__whole(t)) break;
        if (i == n) {
            b->curve->k.power = v;
            b->curve->n_list = n;
            break;
        }
        for (j = i; j && b->curve->at[j - 1] >= t; j--) {
            b->curve->at[j] = b->curve->at[j - 1];
            b->curve->val[j] = b->curve->val[j - 1];
        }
        b->curve->at[j] = t;
        b->curve->val[j] = v;
    }
    if (b->curve->n_list != n || i != n)
        ckr__sp_fail(b, "step_rules", "step_rules must look like 1:10,0.1:20,0.005");
}

static void ckr__build_nanotron(ckr__sbuild *b)
{
    ckr__curve_nums *k = &b->curve->k;
    const double start = ckr__sp_i(b, "lr_decay_starting_step", ckr__nan());
    k->top = ckr__sp_f(b, "learning_rate", 0);
    k->warm = ckr__sp_i(b, "lr_warmup_steps", 0);
    k->start = start == start ? start : k->warm;
    k->decay = ckr__sp_i(b, "lr_decay_steps", ckr__nan());
    if (k->decay != k->decay) {
        k->decay = ckr__sp_f(b, "train_steps", ckr__nan()) - k->warm;
        if (k->decay != k->decay) ckr__sp_fail(b, "train_steps", "lr_decay_steps or train_steps is "
                                               "needed");
        if (start == start) k->decay -= start;             /* sic: both are subtracted      */
    }
    k->total = k->start + k->decay;
    b->curve->warm_shape = ckr__sp_choice(b, "lr_warmup_style", "linear", "linear=1 constant=9");
    b->curve->shape = ckr__sp_choice(b, "lr_decay_style", "linear", "linear=1 cosine=2 1-sqrt=4");
    CKR__LANE(b, "min_decay_lr", k->top, min);
}

static void ckr__build_titan(ckr__sbuild *b)
{
    ckr__curve_nums *k = &b->curve->k;
    const bool old = ckr__sp_get(b, "lr_min") != NULL;
    const double ratio = ckr__sp_f(b, "decay_ratio", ckr__nan());
    k->total = ckr__sp_i(b, "total_steps", ckr__sp_i(b, "steps", ckr__nan()));
    if (k->total != k->total)
        ckr__sp_fail(b, "steps", "steps (of training) or total_steps is needed");
    k->warm = ckr__sp_i(b, "warmup_steps", 200);
    if (!old && k->warm > k->total) k->warm = k->total;
    k->decay = ratio == ratio ? rint(k->total * ratio) : k->total - k->warm;
    if (!old && k->warm + k->decay > k->total) k->decay = k->total - k->warm;
    k->start = old ? k->total - k->decay : k->total + 1 - k->decay;
    k->floor = ckr__sp_f(b, old ? "lr_min" : "min_lr_factor", 0);
    b->curve->shape = ckr__sp_choice(b, "decay_type", "linear", "linear=1 sqrt=4 cosine=2");
    if (old) b->curve->kind = CKR__CV_TITAN_OLD;
}

static const char *const ckr__megatron_styles =
    "linear=1 cosine=2 constant=9 inverse-square-root=7 WSD=1";
static const char *const ckr__wsd_styles = "linear=1 cosine=2 exponential=6 minus_sqrt=4";

/* A length in samples: the class's own key, the sample option or the iteration option. */
static double ckr__megatron_len(ckr__sbuild *b, const char *steps, const char *samples,
                                const char *iters, double none)
{
    const double gbs = ckr__sp_i(b, "global_batch_size", 1);
    double v = ckr__sp_i(b, steps, ckr__sp_i(b, samples, ckr__nan()));
    if (v == v) return v;
    v = ckr__sp_i(b, iters, ckr__nan());
    return v == v ? v * gbs : none;
}

static void ckr__build_megatron_wd(ckr__sbuild *b)
{
    const double wd = ckr__sp_f(b, "weight_decay", ckr__nan());
    const char *from = ckr__sp_get(b, "start_wd") ? "start_wd" : "start_weight_decay",
               *to = ckr__sp_get(b, "end_wd") ? "end_wd" : "end_weight_decay",
               *style = ckr__sp_get(b, "wd_incr_style") ? "wd_incr_style"
                                                        : "weight_decay_incr_style";
    if (!ckr__sp_get(b, to) && wd != wd) return;
    b->curve->flags |= CKR__CF_WD;
    CKR__LANE(b, to, wd, end_wd);
    CKR__LANE(b, ckr__sp_get(b, from) ? from : to, wd, start_wd);
    b->curve->wd_shape = ckr__sp_choice(b, style, "constant", "constant=9 linear=1 cosine=2");
    b->curve->k.end_at =
        ckr__megatron_len(b, "wd_incr_steps", "train_samples", "train_iters", b->curve->k.total);
}

static void ckr__build_megatron(ckr__sbuild *b)
{
    ckr__curve_nums *k = &b->curve->k;
    const ckr_node *style = ckr__sp_get(b, "lr_decay_style");
    const double fraction = ckr__sp_f(b, "lr_warmup_fraction", ckr__nan()),
                 train = ckr__megatron_len(b, "lr_decay_steps", "train_samples", "train_iters",
                                           ckr__nan());
    const char *top = ckr__sp_get(b, "max_lr") ? "max_lr" : "lr";
    if (!ckr__sp_get(b, top)) ckr__sp_fail(b, "max_lr", "lr (or max_lr) is needed");
    CKR__LANE(b, top, ckr__nan(), max);
    CKR__LANE(b, top, ckr__nan(), base);
    CKR__LANE(b, "min_lr", 0, min);
    k->from = ckr__sp_f(b, "init_lr", ckr__sp_f(b, "lr_warmup_init", 0));
    k->total = ckr__megatron_len(b, "lr_decay_steps", "lr_decay_samples", "lr_decay_iters", train);
    k->warm = ckr__megatron_len(b, "lr_warmup_steps", "lr_warmup_samples", "lr_warmup_iters", 0);
    if (fraction == fraction) k->warm = fraction * k->total;
    if (!(k->total > 0) || !(k->warm < k->total))
        ckr__sp_fail(b, "lr_decay_steps", "the decay must end behind the warmup: lr_decay_iters or "
                     "lr_decay_samples is needed");
    b->curve->shape = ckr__sp_choice(b, "lr_decay_style", "linear", ckr__megatron_styles);
    if (style && ckr_node_str(style) && !strcmp(style->u.str, "WSD")) {
        b->curve->flags |= CKR__CF_WSD;
        b->curve->shape = ckr__sp_choice(b, "lr_wsd_decay_style", "exponential", ckr__wsd_styles);
        k->decay = ckr__megatron_len(b, "wsd_decay_steps", "lr_wsd_decay_samples",
                                     "lr_wsd_decay_iters", ckr__nan());
        if (!(k->decay > 0))
            ckr__sp_fail(b, "wsd_decay_steps", "WSD needs lr_wsd_decay_iters (or _samples)");
    }
    ckr__build_megatron_wd(b);
    b->s->rate = ckr__sp_i(b, "global_batch_size", 1);
    ckr__sp_positive(b, "global_batch_size", b->s->rate);
}

static void ckr__build_ds(ckr__sbuild *b)
{
    ckr__curve_nums *k = &b->curve->k;
    b->s->offset = -1;
    k->warm = ckr__at_least(ckr__sp_i(b, "warmup_num_steps", 1000), 2);
    k->total = ckr__sp_i(b, "total_num_steps", ckr__nan());
    k->decay = k->total - k->warm;
    b->curve->warm_shape = ckr__sp_choice(b, "warmup_type", "log", "log=8 linear=1");
    if (b->row->kind == CKR__CV_DS_COSINE) {
        k->from = ckr__sp_f(b, "warmup_min_ratio", 0);
        k->floor = ckr__sp_f(b, "cos_min_ratio", 0.0001);
    } else {
        CKR__LANE(b, "warmup_min_lr", 0, min);
        CKR__LANE(b, ckr__sp_get(b, "warmup_max_lr") ? "warmup_max_lr" : "lr", 0.001, max);
        CKR__LANE(b, ckr__sp_get(b, "warmup_max_lr") ? "warmup_max_lr" : "lr", 0.001, base);
    }
}

static void ckr__build_ds_cycle(ckr__sbuild *b)
{
    ckr__curve_nums *k = &b->curve->k;
    const double up = ckr__sp_i(b, "cycle_first_step_size", 2000),
                 down = ckr__sp_i(b, "cycle_second_step_size", up);
    b->s->offset = -1;
    ckr__sp_positive(b, "cycle_first_step_size", up);
    ckr__sp_positive(b, "cycle_second_step_size", down);
    if (ckr__sp_i(b, "cycle_first_stair_count", 0) > 0)
        ckr__sp_fail(b, "cycle_first_stair_count", "stairs are not supported");
    k->total = up + down;
    k->start = up / k->total;
    k->power = ckr__sp_f(b, "decay_lr_rate", 0);
    k->cycles = ckr__sp_f(b, "decay_mom_rate", 0);
    k->decay = ckr__sp_i(b, "decay_step_size", 0);
    CKR__LANE(b, "cycle_min_lr", 0, min);
    CKR__LANE(b, "cycle_max_lr", 0, max);
    CKR__LANE(b, "cycle_max_lr", 0, base);
    if (!ckr__sp_b(b, "cycle_momentum", true)) return;
    b->curve->flags |= CKR__CF_MOMENTUM;
    CKR__LANE(b, "cycle_min_mom", 0.8, base_momentum);
    CKR__LANE(b, "cycle_max_mom", 0.9, max_momentum);
}

static void ckr__build_ds_range(ckr__sbuild *b)
{
    b->s->offset = -1;
    CKR__LANE(b, "lr_range_test_min_lr", 1e-3, min);
    CKR__LANE(b, "lr_range_test_min_lr", 1e-3, base);
    b->curve->k.decay = ckr__sp_i(b, "lr_range_test_step_size", 2000);
    ckr__sp_positive(b, "lr_range_test_step_size", b->curve->k.decay);
    b->curve->k.power = ckr__sp_f(b, "lr_range_test_step_rate", 1);
    if (ckr__sp_b(b, "lr_range_test_staircase", false)) b->curve->flags |= CKR__CF_STAIRS;
}

static void ckr__build_llmc(ckr__sbuild *b)
{
    ckr__curve_nums *k = &b->curve->k;
    const float share = ckr__rnf(0.8f * (float)ckr__sp_i(b, "train_num_batches", 0));
    k->warm = ckr__sp_i(b, "warmup_iterations", 0);
    k->total = ckr__sp_i(b, "train_num_batches", 0);
    k->floor = ckr__sp_f(b, "final_learning_rate_frac", 1);
    k->start = b->row->shape == CKR__SH_SQRT ? floor((double)share) : k->warm;
    if (ckr__sp_get(b, "learning_rate")) CKR__LANE(b, "learning_rate", 0, base);
}

static void ckr__build_pieces(ckr__sbuild *b)
{
    ckr__curve_nums *k = &b->curve->k;
    k->warm = k->warm_den = k->start = ckr__sp_i(b, "warmup_updates", 0);
    if (!(k->warm_den > 0)) k->warm_den = 1;
    b->curve->warm_shape = CKR__SH_LINEAR;
    k->top = 1;
    k->peak = ckr__nan();
    k->power = ckr__sp_f(b, "power", 1);
    k->end_at = ckr__inf();
    if (b->row->shape == CKR__SH_INVSQRT) {
        k->from = ckr__sp_f(b, "warmup_init_lr", 0);
        k->decay = k->warm_den;
    } else {
        b->curve->flags |= CKR__CF_WARM_INCL;
        k->total = ckr__sp_i(b, "total_num_update", 0);
        k->decay = k->total - k->warm;
        k->floor = ckr__sp_f(b, "end_learning_rate", 0);
    }
}

/* The parameters of torch's schedulers that hold no others. */
static void ckr__build_torch(ckr__sbuild *b)
{
    ckr__curve_nums *k = &b->curve->k;
    switch (b->row->kind) {
    case CKR__CV_STEP:
        k->decay = ckr__sp_i(b, "step_size", 0);
        ckr__sp_positive(b, "step_size", k->decay);
        /* fall through */
    case CKR__CV_EXP:
    case CKR__CV_MULTISTEP: k->power = ckr__sp_f(b, "gamma", 0.1); break;
    case CKR__CV_CONSTANT:
        k->from = ckr__sp_f(b, "factor", 1.0 / 3);
        k->decay = ckr__sp_f(b, "total_iters", 5);
        break;
    case CKR__CV_LINEAR:
        k->from = ckr__sp_f(b, "start_factor", 1.0 / 3);
        k->top = ckr__sp_f(b, "end_factor", 1);
        k->decay = ckr__sp_f(b, "total_iters", 5);
        break;
    case CKR__CV_POLY:
        k->power = ckr__sp_f(b, "power", 1);
        k->decay = ckr__sp_f(b, "total_iters", 5);
        break;
    case CKR__CV_COSINE:
    case CKR__CV_RESTARTS:
        k->decay = b->row->kind == CKR__CV_COSINE ? ckr__sp_f(b, "T_max", 0)
                                                  : ckr__sp_i(b, "T_0", 0);
        k->power = ckr__sp_i(b, "T_mult", 1);
        ckr__sp_positive(b, b->row->kind == CKR__CV_COSINE ? "T_max" : "T_0", k->decay);
        if (k->power < 1) ckr__sp_fail(b, "T_mult", "T_mult must be at least 1");
        CKR__LANE(b, "eta_min", 0, min);
        break;
    default:                                                               /* CV_SWA    */
        k->decay = ckr__sp_i(b, "anneal_epochs", 10);
        b->curve->shape = ckr__sp_choice(b, "anneal_strategy", "cos", "cos=2 linear=1");
        CKR__LANE(b, "swa_lr", 0, min);
        break;
    }
}

static void ckr__build_cyclic(ckr__sbuild *b)
{
    ckr__curve_nums *k = &b->curve->k;
    const double up = ckr__sp_f(b, "step_size_up", 2000), down = ckr__sp_f(b, "step_size_down", up);
    ckr__sp_positive(b, "step_size_up", up);
    ckr__sp_positive(b, "step_size_down", down);
    k->total = up + down;
    k->start = up / k->total;
    k->power = ckr__sp_f(b, "gamma", 1);
    b->curve->shape =
        ckr__sp_choice(b, "mode", "triangular", "triangular=1 triangular2=6 exp_range=5");
    CKR__LANE(b, "base_lr", 0, base);
    CKR__LANE(b, "max_lr", 0, max);
    if (!ckr__sp_b(b, "cycle_momentum", true)) return;
    b->curve->flags |= CKR__CF_MOMENTUM;
    CKR__LANE(b, "base_momentum", 0.8, base_momentum);
    CKR__LANE(b, "max_momentum", 0.9, max_momentum);
}

/* Codes of OneCycleLR's phases: LR from + 3 * to (0 initial, 1 max, 2 min), then momentum
   9 * from + 18 * to (0 base, 1 max). */
static void ckr__build_onecycle(ckr__sbuild *b)
{
    ckr__curve *c = b->curve;
    const double pct = ckr__sp_f(b, "pct_start", 0.3), div = ckr__sp_f(b, "div_factor", 25),
                 last = ckr__sp_f(b, "final_div_factor", 1e4),
                 n = ckr__sp_i(b, "total_steps", ckr__sp_i(b, "epochs", ckr__nan()) *
                                                     ckr__sp_i(b, "steps_per_epoch", ckr__nan()));
    const bool three = ckr__sp_b(b, "three_phase", false);
    uint64_t i;
    ckr__sp_positive(b, "total_steps", n);
    ckr__sp_positive(b, "div_factor", div);
    ckr__sp_positive(b, "final_div_factor", last);
    if (!(pct >= 0 && pct <= 1)) ckr__sp_fail(b, "pct_start", "pct_start must lie in 0..1");
    c->at = CKR__NEW_N(b->c, double, 6);
    if (!c->at) {
        b->r = ckr__sched_oom(b->c);
        return;
    }
    c->val = c->at + 3;
    c->n_list = three ? 3 : 2;
    c->k.total = n;
    c->at[0] = pct * n - 1;
    c->val[0] = 0 + 3 * 1 + 9 * 1 + 18 * 0;
    c->at[1] = three ? 2 * pct * n - 2 : n - 1;
    c->val[1] = three ? 1 + 3 * 0 + 9 * 0 + 18 * 1 : 1 + 3 * 2 + 9 * 0 + 18 * 1;
    c->at[2] = n - 1;
    c->val[2] = 0 + 3 * 2 + 9 * 1 + 18 * 1;
    c->shape = ckr__sp_choice(b, "anneal_strategy", "cos", "cos=2 linear=1");
    CKR__LANE(b, "max_lr", 0, max);
    for (i = 0; i < b->s->n_lanes; i++) {
        b->lanes[i].base = b->lanes[i].max / div;
        b->lanes[i].min = b->lanes[i].base / last;
    }
    if (!ckr__sp_b(b, "cycle_momentum", true)) return;
    c->flags |= CKR__CF_MOMENTUM;
    CKR__LANE(b, "base_momentum", 0.85, base_momentum);
    CKR__LANE(b, "max_momentum", 0.95, max_momentum);
}

#define CKR__SCHED_LIST 4096   /* milestones of one scheduler: looked through at every tick */

/* A list of numbers, sorted, equal ones counted in val. */
static void ckr__build_milestones(ckr__sbuild *b, bool count)
{
    const ckr_node *n = ckr__sp_get(b, "milestones");
    const uint64_t total = n && ckr_node_is_list(n) ? n->count : n ? 1 : 0;
    ckr__curve *c = b->curve;
    uint64_t i;
    uint32_t j;
    if (total > CKR__SCHED_LIST) ckr__sp_fail(b, "milestones", "more than %d milestones", CKR__SCHED_LIST);
    if (b->r != CKR_OK) return;
    c->at = CKR__NEW_N(b->c, double, 2 * total + 1);
    if (!c->at) {
        b->r = ckr__sched_oom(b->c);
        return;
    }
    c->val = c->at + total;
    for (i = 0; i < total && b->r == CKR_OK; i++) {
        double v;
        if (!ckr_node_f64(ckr_node_is_list(n) ? n->u.items[i] : n, &v) || !ckr__whole(v)) {
            ckr__sp_fail(b, "milestones", "milestones must be integers");
        } else {
            for (j = c->n_list; count && j && c->at[j - 1] > v; j--) {}
            if (count && j && ckr__same(c->at[j - 1], v)) {
                c->val[j - 1]++;
                continue;
            }
            memmove(c->at + j + 1, c->at + j, (c->n_list - j) * sizeof *c->at);
            memmove(c->val + j + 1, c->val + j, (c->n_list - j) * sizeof *c->val);
            c->n_list++;
            c->at[j] = v;
            c->val[j] = 1;
        }
    }
    for (j = 1; !count && j < c->n_list; j++)
        if (c->at[j] < c->at[j - 1]) ckr__sp_fail(b, "milestones", "milestones must increase");
}

static void ckr__build_curve(ckr__sbuild *b);

static const ckr__skind *ckr__skind_find(const char *family, size_t n_family, const char *name,
                                         size_t n_name)
{
    size_t i;
    for (i = 0; i < CKR__SKINDS; i++) {
        const ckr__skind *k = &ckr__skinds[i];
        if (strlen(k->family) == n_family && !memcmp(k->family, family, n_family) &&
            strlen(k->name) == n_name && !memcmp(k->name, name, n_name))
            return k;
    }
    return NULL;
}

/* Every key must be known; each one that must be there is. */
static void ckr__build_check_keys(ckr__sbuild *b)
{
    const char *p = b->row->keys;
    uint64_t i;
    for (i = 0; i < b->params->count && b->r == CKR_OK; i++) {
        const ckr_node *key = b->params->u.items[2 * i];
        const char *s = ckr_node_str(key);
        for (p = b->row->keys; s && *p;) {
            const size_t n = strcspn(p, ":");
            if (key->count == n && !memcmp(s, p, n)) break;
            p += strcspn(p, " ");
            p += *p == ' ';
        }
        if (s && (*p || !strcmp(s, "kind"))) continue;
        ckr__sp_fail(b, s ? s : "", "there is no key %.60s; known are %s", s ? s : "of that type",
                     b->row->keys);
        ckr__remedy(b->c->err, b->r, "name:type, i integer, f number, s text, b true or false, v "
                    "number or [one per group]; ! must be given");
    }
    for (p = b->row->keys; *p && b->r == CKR_OK;) {
        const size_t n = strcspn(p, ":"), len = strcspn(p, " ");
        char key[40];
        if (p[len - 1] == '!' && n < sizeof key) {
            memcpy(key, p, n);
            key[n] = 0;
            if (!ckr__sp_get(b, key))
                ckr__sp_fail(b, key, "%s is missing; known are %s", key, b->row->keys);
        }
        p += len;
        p += *p == ' ';
    }
}

/* Own arrays of base, min and max for the child that `from` describes. */
static void ckr__build_child_lanes(ckr__sbuild *b, const ckr_lane *from)
{
    const uint64_t n = b->s->n_lanes;
    double *mem = CKR__NEW_N(b->c, double, 3 * n);
    uint64_t i;
    if (!mem) {
        b->r = ckr__sched_oom(b->c);
        return;
    }
    b->curve->base = mem;
    b->curve->min = mem + n;
    b->curve->max = mem + 2 * n;
    for (i = 0; i < n; i++) {
        b->curve->base[i] = from[i].base;
        b->curve->min[i] = from[i].min;
        b->curve->max[i] = from[i].max;
    }
}

static void ckr__build_child(ckr__sbuild *b, ckr__curve *curve, const ckr_node *params)
{
    const char *kind = ckr_node_str(ckr_node_get(params, "kind"));
    ckr__sbuild sub = *b;
    const size_t skip = kind && !strncmp(kind, "torch:", 6) ? 6 : 0;
    sub.params = params;
    sub.curve = curve;
    sub.depth = b->depth + 1;
    sub.row = kind ? ckr__skind_find("torch", 5, kind + skip, strlen(kind + skip)) : NULL;
    if (!sub.row || !sub.row->kind || !ckr_node_is_dict(params)) {
        ckr__sp_fail(b, "schedulers", "each of schedulers needs a kind with a known curve, like "
                     "LinearLR; this one is %.40s", kind ? kind : "not given");
        return;
    }
    sub.lanes = CKR__NEW_N(b->c, ckr_lane, b->s->n_lanes);
    if (!sub.lanes) {
        b->r = ckr__sched_oom(b->c);
        return;
    }
    memcpy(sub.lanes, b->lanes, (size_t)b->s->n_lanes * sizeof *sub.lanes);
    ckr__build_curve(&sub);
    b->r = sub.r;
    if (b->r != CKR_OK) return;
    ckr__build_child_lanes(&sub, sub.lanes);
    b->r = sub.r;
    if (curve->flags & CKR__CF_MOMENTUM) {             /* the groups' own fields            */
        uint64_t i;
        for (i = 0; i < b->s->n_lanes; i++) {
            b->lanes[i].base_momentum = sub.lanes[i].base_momentum;
            b->lanes[i].max_momentum = sub.lanes[i].max_momentum;
        }
    }
}

static void ckr__build_children(ckr__sbuild *b)
{
    const ckr_node *list = ckr__sp_get(b, "schedulers");
    ckr__curve *c = b->curve;
    uint32_t i;
    if (!ckr_node_is_list(list) || !list->count) {
        ckr__sp_fail(b, "schedulers", "schedulers must be a list of at least one");
        return;
    }
    if (b->depth >= CKR__SCHED_DEPTH || list->count > CKR__SCHED_NODES) {
        ckr__sp_fail(b, "schedulers", "schedulers are nested too deep or too many");
        return;
    }
    if (c->kind == CKR__CV_SEQ) {
        ckr__build_milestones(b, false);
        if (b->r == CKR_OK && c->n_list + 1 != list->count)
            ckr__sp_fail(b, "milestones", "%llu schedulers need %llu milestones",
                         (unsigned long long)list->count, (unsigned long long)list->count - 1);
    }
    c->children = CKR__NEW_N(b->c, ckr__curve, list->count);
    if (!c->children) b->r = ckr__sched_oom(b->c);
    for (i = 0; i < list->count && b->r == CKR_OK; i++) {
        c->n_children = i + 1;
        ckr__build_child(b, &c->children[i], list->u.items[i]);
    }
}

/* Fills b->curve from b->params. Recursion is bounded by CKR__SCHED_DEPTH. */
static void ckr__build_curve(ckr__sbuild *b)
{
    ckr__curve *c = b->curve;
    c->kind = b->row->kind;
    c->shape = b->row->shape;
    if (*b->n_nodes >= CKR__SCHED_NODES)
        ckr__sp_fail(b, "schedulers", "more than %d schedulers", CKR__SCHED_NODES);
    c->index = (uint16_t)(*b->n_nodes)++;
    ckr__build_check_keys(b);
    if (b->r != CKR_OK) return;
    if (ckr__sp_get(b, "lr")) CKR__LANE(b, "lr", 0, base);
    switch (c->kind) {
    case CKR__CV_CONST:     break;
    case CKR__CV_TABLE:     ckr__build_table(b); break;
    case CKR__CV_HF:
        ckr__build_hf(b);
        if (!strcmp(b->row->name, "warmup_stable_decay")) ckr__build_hf_wsd(b);
        break;
    case CKR__CV_NANOTRON:  ckr__build_nanotron(b); break;
    case CKR__CV_TITAN:     ckr__build_titan(b); break;
    case CKR__CV_MEGATRON:  ckr__build_megatron(b); break;
    case CKR__CV_DS_WARMUP:
    case CKR__CV_DS_COSINE: ckr__build_ds(b); break;
    case CKR__CV_DS_CYCLE:  ckr__build_ds_cycle(b); break;
    case CKR__CV_DS_RANGE:  ckr__build_ds_range(b); break;
    case CKR__CV_LLMC:      ckr__build_llmc(b); break;
    case CKR__CV_PIECES:    ckr__build_pieces(b); break;
    case CKR__CV_ONECYCLE:  ckr__build_onecycle(b); break;
    case CKR__CV_CYCLIC:    ckr__build_cyclic(b); break;
    case CKR__CV_SEQ:
    case CKR__CV_CHAIN:     ckr__build_children(b); break;
    default:                ckr__build_torch(b); break;
    }
    if (c->kind == CKR__CV_MULTISTEP && b->r == CKR_OK) ckr__build_milestones(b, true);
}

static void ckr__lane_init(ckr_lane *l, double base)
{
    l->base = base;
    l->max = l->min = l->base_momentum = l->max_momentum = ckr__nan();
    l->start_wd = l->end_wd = l->anchor = ckr__nan();
    l->wd_mult = l->lr_mult = l->p = 1;
    l->q = l->ramp_from = l->ramp_to = 0;
}

/* An empty schedule of n lanes; bases may be NULL. */
static ckr_schedule *ckr__sched_new(ckr__ctx *c, const double *bases, uint64_t n)
{
    ckr_schedule *s = CKR__NEW(c, ckr_schedule);
    uint64_t i;
    if (!s) return NULL;
    s->lanes = CKR__NEW_N(c, ckr_lane, n);
    if (!s->lanes) return NULL;
    for (i = 0; i < n; i++) ckr__lane_init(&s->lanes[i], bases ? bases[i] : ckr__nan());
    s->n_lanes = n;
    s->clock = "update";
    s->rate = s->a = 1;
    s->hold = ckr__inf();
    return s;
}

/* The base LR where the caller gave none: what the parameters call the LR of the run. */
static double ckr__build_base(const ckr_node *params)
{
    static const char *const keys[] = { "lr", "learning_rate", "max_lr", "warmup_max_lr",
                                        "cycle_max_lr", "base_lr", "lr_range_test_min_lr" };
    size_t i;
    double v;
    for (i = 0; i < sizeof keys / sizeof *keys; i++) {
        const ckr_node *n = ckr_node_get(params, keys[i]);
        if (ckr_node_f64(ckr_node_is_list(n) ? ckr_node_at(n, 0) : n, &v)) return v;
    }
    return ckr__nan();
}

static bool ckr__build_needs_base(uint8_t kind)
{
    return kind != CKR__CV_MEGATRON && kind != CKR__CV_DS_WARMUP && kind != CKR__CV_DS_CYCLE &&
           kind != CKR__CV_DS_RANGE && kind != CKR__CV_ONECYCLE && kind != CKR__CV_CYCLIC;
}

static void ckr__build_finish(ckr__sbuild *b)
{
    ckr_schedule *s = b->s;
    uint64_t i;
    s->curve = b->curve;
    s->recurrent = ckr__is_recurrent(b->curve->kind);
    if (b->curve->kind == CKR__CV_MEGATRON) s->clock = "sample";
    for (i = 0; i < s->n_lanes && ckr__build_needs_base(b->curve->kind); i++)
        if (!ckr__finite(s->lanes[i].base))
            ckr__sp_fail(b, "lr", "group %llu has no base LR: give lr", (unsigned long long)i);
}

/* A schedule of `kind` ("torch:StepLR", "megatron") from a dict of its parameters, for n lanes with
   these base LRs (NULL, 0: one lane, whose base LR the parameters tell). */
static ckr_result ckr__sched_build(ckr__ctx *c, const char *kind, ckr_node *params,
                                   const double *bases, uint64_t n, ckr_schedule **out)
{
    const size_t at = strcspn(kind, ":");
    const char *name = kind[at] ? kind + at + 1 : "";
    const double base = ckr__build_base(params);
    uint32_t n_nodes = 0;
    ckr__sbuild b;
    *out = NULL;
    memset(&b, 0, sizeof b);
    b.c = c;
    b.params = params;
    b.n_nodes = &n_nodes;
    b.row = ckr__skind_find(kind, at, name, strlen(name));
    if (!b.row)
        return ckr__remedy(c->err, ckr__fail(c->err, CKR_ITEM_SCHEDULE, NULL, CKR_NO_OFFSET, kind,
                                             "there is no schedule %.80s", kind),
                           "nanotron, torchtitan, megatron, or transformers, diffusers, deepspeed, "
                           "llmc, fairseq, torch with a name: transformers:cosine,...");
    b.s = bases ? ckr__sched_new(c, bases, n) : ckr__sched_new(c, &base, 1);
    b.curve = CKR__NEW(c, ckr__curve);
    if (!b.s || !b.curve) return ckr__sched_oom(c);
    b.s->kind = ckr__strdup(c, kind);
    b.s->params = params;
    b.lanes = b.s->lanes;
    if (!b.s->kind) return ckr__sched_oom(c);
    if (!b.row->kind) {
        b.s->opaque = true;
        b.s->reason = "this scheduler's curve is a function or a metric, which no file holds";
        *out = b.s;
        return CKR_OK;
    }
    ckr__build_curve(&b);
    if (b.r == CKR_OK) ckr__build_finish(&b);
    if (b.r == CKR_OK) *out = b.s;
    return b.r;
}

/* >>schedule.text ------------------------------------------------------------- */

/* Length of the text up to a `stop` outside of brackets. */
static size_t ckr__spec_span(const char *p, char stop)
{
    size_t n = 0;
    int depth = 0;
    for (; p[n]; n++) {
        if (p[n] == '(' || p[n] == '[') depth++;
        if ((p[n] == ')' || p[n] == ']') && depth) depth--;
        if (!depth && p[n] == stop) break;
    }
    return n;
}

static ckr_node *ckr__spec_scalar(ckr__ctx *c, const char *p, size_t n)
{
    const char *q = p;
    double v;
    if ((n == 4 && !memcmp(p, "None", 4)) || (n == 4 && !memcmp(p, "null", 4)))
        return ckr__node(c, CKR_NODE_NONE);
    if (n == 4 && (!memcmp(p, "true", 4) || !memcmp(p, "True", 4))) return ckr__node_bool(c, true);
    if (n == 5 && (!memcmp(p, "false", 5) || !memcmp(p, "False", 5)))
        return ckr__node_bool(c, false);
    if (!ckr__number_at(c, &q, &v) || q != p + n) return ckr__node_text(c, CKR_NODE_STR, p, n);
    if (strcspn(p, ".eE") >= n && ckr__whole(v)) return ckr__node_int(c, (int64_t)v);
    return ckr__node_float(c, v);
}

static ckr_node *ckr__spec_dict(ckr__ctx *c, const char *p, size_t n, int depth);

/* 3, 0.5, text, [1,2] or (LinearLR,total_iters=4;CosineAnnealingLR,T_max=10). */
static ckr_node *ckr__spec_value(ckr__ctx *c, const char *p, size_t n, int depth)
{
    const bool dicts = n && *p == '(';
    const char *end = p + n - 1;
    ckr_node *list;
    if (n < 2 || (*p != '[' && !dicts) || *end != (dicts ? ')' : ']'))
        return ckr__spec_scalar(c, p, n);
    list = ckr__node(c, CKR_NODE_LIST);
    for (p++; p < end && list;) {
        size_t len = ckr__spec_span(p, dicts ? ';' : ',');
        if (len > (size_t)(end - p)) len = (size_t)(end - p);
        if (!ckr__node_push(c, list, dicts ? ckr__spec_dict(c, p, len, depth + 1)
                                           : ckr__spec_scalar(c, p, len)))
            return NULL;
        p += len;
        p += p < end;
    }
    return list;
}

/* A second number without a name belongs to the key before it: a,b becomes the list [a, b], other
   text stays text (diffusers' step_rules). */
static bool ckr__spec_more(ckr__ctx *c, ckr_node *dict, const char *p, size_t n)
{
    ckr_node **slot = &dict->u.items[2 * dict->count - 1], *list, *more = ckr__spec_scalar(c, p, n);
    const char *s = ckr_node_str(*slot), *joined;
    if (!more) return false;
    if (s) {
        joined = ckr__printf(c, "%s,%.*s", s, (int)n, p);
        *slot = ckr__node_str(c, joined);
        return *slot != NULL;
    }
    if (ckr_node_is_list(*slot)) return ckr__node_push(c, *slot, more);
    list = ckr__node(c, CKR_NODE_LIST);
    if (!list || !ckr__node_push(c, list, *slot) || !ckr__node_push(c, list, more)) return false;
    *slot = list;
    return true;
}

/* key=value,... with an optional bare name first, which becomes the key "kind". */
static ckr_node *ckr__spec_dict(ckr__ctx *c, const char *p, size_t n, int depth)
{
    ckr_node *dict = ckr__node(c, CKR_NODE_DICT);
    const char *end = p + n;
    if (!dict || depth > CKR__SCHED_DEPTH) {
        ckr__fail(c->err, CKR_ITEM_SCHEDULE, NULL, CKR_NO_OFFSET, "schedulers",
                  "schedulers are nested too deep");
        return NULL;
    }
    while (p < end) {
        size_t len = ckr__spec_span(p, ','), eq;
        const char *key;
        bool ok;
        if (len > (size_t)(end - p)) len = (size_t)(end - p);
        eq = ckr__spec_span(p, '=');
        if (eq < len && eq) {
            key = ckr__strndup(c, p, eq);
            if (key && ckr_node_get(dict, key)) {
                ckr__fail(c->err, CKR_ITEM_SCHEDULE, NULL, CKR_NO_OFFSET, key,
                          "%.80s is given twice", key);
                return NULL;
            }
            ok = key && ckr__node_set(c, dict, key,
                                      ckr__spec_value(c, p + eq + 1, len - eq - 1, depth));
        } else if (dict->count) {
            ok = ckr__spec_more(c, dict, p, len);
        } else {
            ok = ckr__node_set(c, dict, "kind", ckr__node_text(c, CKR_NODE_STR, p, len));
        }
        if (!ok) return NULL;
        p += len;
        p += p < end;
    }
    return dict;
}

/* KIND:key=value,... or FAMILY:NAME,key=value,... ; otherwise as ckr__sched_build. */
static ckr_result ckr__sched_parse(ckr__ctx *c, const char *text, const double *bases, uint64_t n,
                                   ckr_schedule **out)
{
    const size_t at = strcspn(text, ":"), len = strlen(text);
    const char *rest = text[at] ? text + at + 1 : text + at, *name, *kind;
    ckr_node *dict, *params;
    uint64_t i;
    *out = NULL;
    if (len > 1000000)
        return ckr__fail(c->err, CKR_ITEM_SCHEDULE, NULL, CKR_NO_OFFSET, NULL,
                         "the text is longer than any schedule");
    dict = ckr__spec_dict(c, rest, strlen(rest), 0);
    params = ckr__node(c, CKR_NODE_DICT);
    if (!dict || !params) return ckr__sched_oom(c);
    name = ckr_node_str(ckr_node_get(dict, "kind"));
    kind = name ? ckr__printf(c, "%.*s:%s", (int)at, text, name) : ckr__strndup(c, text, at);
    if (!kind) return ckr__sched_oom(c);
    for (i = 0; i < dict->count; i++) {
        ckr_node **pair = &dict->u.items[2 * i];
        if (strcmp(pair[0]->u.str, "kind") && !ckr__node_pair(c, params, pair[0], pair[1]))
            return ckr__sched_oom(c);
    }
    return ckr__sched_build(c, kind, params, bases, n, out);
}

/* >>schedule.torch ------------------------------------------------------------ */
/* State dicts. torch does not store the class of a scheduler: its keys tell it. What a file does
   not hold (functions, metrics, configurations) makes the schedule opaque, never a guess. */

/* What is wrong with a file's parameters is told by the schedule, not by the call. */
static void ckr__sched_forgive(ckr__ctx *c)
{
    memset(c->err, 0, sizeof *c->err);
    c->err->offset = CKR_NO_OFFSET;
}

/* A finite number: Python's, or a tensor of one float. */
static bool ckr__sched_number(ckr__ctx *c, const ckr_node *n, double *out)
{
    uint8_t raw[8];
    const ckr_view *v;
    size_t size;
    float f;
    double d;
    if (ckr_node_f64(n, &d)) {
        *out = d;
        return ckr__finite(d);
    }
    if (!n || (n->kind != CKR_NODE_TENSOR && n->kind != CKR_NODE_NPSCALAR)) return false;
    v = n->u.view;
    size = v->dtype == CKR_DTYPE_F32 ? 4 : v->dtype == CKR_DTYPE_F64 ? 8 : 0;
    if (!size || v->big_endian || v->layout || v->conj || v->neg || v->meta || v->offset < 0 ||
        v->data_bytes < size || (uint64_t)v->offset > v->data_bytes / size - 1)
        return false;
    if (v->bytes) {
        memcpy(raw, v->bytes + (size_t)v->offset * size, size);
    } else if (v->file == CKR_NO_FILE ||
               ckr__file_read(c, v->file, v->data_offset + (uint64_t)v->offset * size, raw, size) !=
                   CKR_OK) {
        ckr__sched_forgive(c);
        return false;
    }
    if (size == 4) {
        uint32_t u = ckr__load_u32(raw);
        memcpy(&f, &u, 4);
        d = (double)f;
    } else {
        uint64_t u = ckr__load_u64(raw);
        memcpy(&d, &u, 8);
    }
    *out = d;
    return ckr__finite(d);
}

static bool ckr__has(const ckr_node *d, const char *key)
{
    return ckr_node_get(d, key) != NULL;
}

/* The class, by the keys that only it has; "" when none is known. Order matters. */
static const char *ckr__torch_class(const ckr_node *d)
{
    static const struct { const char *a, *b, *c, *name; } rows[] = {
        { "_schedulers", "_milestones", NULL, "torch:SequentialLR" },
        { "_schedulers", "_step_count", NULL, "" },
        { "_schedulers", NULL, NULL, "torch:ChainedScheduler" },
        { "num_steps", "lr_decay_style", NULL, "megatron" },
        { "num_steps", "decay_style", NULL, "megatron" },
        { "num_iters", "decay_style", NULL, "megatron" },
        { "patience", "num_bad_epochs", NULL, "torch:ReduceLROnPlateau" },
        { "_schedule_phases", "total_steps", NULL, "torch:OneCycleLR" },
        { "total_size", "step_ratio", "max_lrs", "torch:CyclicLR" },
        { "T_0", "T_mult", NULL, "torch:CosineAnnealingWarmRestarts" },
        { "T_max", "eta_min", NULL, "torch:CosineAnnealingLR" },
        { "anneal_epochs", NULL, NULL, "torch:SWALR" },
        { "start_factor", "end_factor", "total_iters", "torch:LinearLR" },
        { "power", "total_iters", NULL, "torch:PolynomialLR" },
        { "factor", "total_iters", NULL, "torch:ConstantLR" },
        { "milestones", "gamma", NULL, "torch:MultiStepLR" },
        { "step_size", "gamma", NULL, "torch:StepLR" },
        { "gamma", NULL, NULL, "torch:ExponentialLR" },
        { "lr_lambdas", NULL, NULL, "torch:LambdaLR" },
    };
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++)
        if (ckr__has(d, rows[i].a) && (!rows[i].b || ckr__has(d, rows[i].b)) &&
            (!rows[i].c || ckr__has(d, rows[i].c)))
            return rows[i].name;
    if (ckr__has(d, "last_batch_iteration")) return "deepspeed";
    if (ckr__has(d, "last_epoch")) return d->count == 1 ? "torchtitan" : "";
    return d->count == 1 && ckr__has(d, "best") ? "fairseq" : "";
}

typedef struct ckr__sread {
    ckr__ctx        *c;
    const ckr_node *const *groups;
    uint64_t         n;
    const char      *why;      /* opaque: set by the first thing that cannot be understood */
} ckr__sread;

static ckr_node *ckr__sread_copy(ckr__sread *r, ckr_node *to, const ckr_node *from, const char *key,
                                 const char *as)
{
    const ckr_node *n = ckr_node_get(from, key);
    double v;
    if (!to || !n) return to;
    if (n->kind != CKR_NODE_STR && n->kind != CKR_NODE_BOOL && n->kind != CKR_NODE_INT) {
        if (!ckr__sched_number(r->c, n, &v)) {
            if (n->kind != CKR_NODE_NONE) r->why = "a parameter of the scheduler is no number";
            return to;
        }
        n = ckr__node_float(r->c, v);
    }
    return n && ckr__node_set(r->c, to, as, (ckr_node *)(uintptr_t)n) ? to : NULL;
}

/* A list of one number per lane: from a list of the state, else from a key of the groups. NULL:
   out of memory; a list without items: there are none. */
static ckr_node *ckr__sread_lanes(ckr__sread *r, const ckr_node *list, const char *group_key)
{
    ckr_node *out = ckr__node(r->c, CKR_NODE_LIST);
    uint64_t i;
    double v;
    for (i = 0; i < r->n && out; i++) {
        bool ok = ckr_node_is_list(list) && ckr__sched_number(r->c, ckr_node_at(list, i), &v);
        if (!ok && group_key && r->groups)
            ok = ckr__sched_number(r->c, ckr_node_get(r->groups[i], group_key), &v);
        if (!ok) {
            out->count = 0;
            return out;
        }
        if (!ckr__node_push(r->c, out, ckr__node_float(r->c, v))) return NULL;
    }
    return out;
}

static ckr_node *ckr__sread_set_lanes(ckr__sread *r, ckr_node *to, const char *key,
                                      const ckr_node *list, const char *group_key, bool needed)
{
    ckr_node *lanes = to ? ckr__sread_lanes(r, list, group_key) : NULL;
    if (!lanes) return NULL;
    if (!lanes->count && r->n) {
        if (needed && !r->why) r->why = "a parameter group lacks what its scheduler needs";
        return to;
    }
    return ckr__node_set(r->c, to, key, lanes) ? to : NULL;
}

/* "cos" or "linear" from any version's way of saying it: a string, a function, an attribute. */
static const char *ckr__sread_anneal(const ckr_node *d, const char *key, const char *old)
{
    const ckr_node *n = ckr_node_get(d, key), *f = ckr_node_get(d, old);
    const char *s = ckr_node_str(n);
    if (s) return s;
    if (f && f->kind == CKR_NODE_GLOBAL) s = f->u.str;
    if (f && f->kind == CKR_NODE_OBJECT) s = ckr_node_str(ckr_node_at(f->u.object->args, 1));
    if (!s) return NULL;
    return strstr(s, "linear") ? "linear" : strstr(s, "cos") ? "cos" : NULL;
}

static ckr_node *ckr__sread_string(ckr__sread *r, ckr_node *to, const char *key, const char *s)
{
    if (!s) {
        r->why = "the shape of the annealing is not in the file";
        return to;
    }
    return to && ckr__node_set(r->c, to, key, ckr__node_str(r->c, s)) ? to : NULL;
}

static ckr_node *ckr__sread_onecycle(ckr__sread *r, const ckr_node *d, ckr_node *p)
{
    const ckr_node *phases = ckr_node_get(d, "_schedule_phases"), *last;
    double n, end = 0, max, from, min;
    p = ckr__sread_copy(r, p, d, "total_steps", "total_steps");
    p = ckr__sread_copy(r, p, d, "cycle_momentum", "cycle_momentum");
    p = ckr__sread_string(r, p, "anneal_strategy",
                          ckr__sread_anneal(d, "_anneal_func_type", "anneal_func"));
    p = ckr__sread_set_lanes(r, p, "max_lr", NULL, "max_lr", true);
    p = ckr__sread_set_lanes(r, p, "base_momentum", NULL, "base_momentum", false);
    p = ckr__sread_set_lanes(r, p, "max_momentum", NULL, "max_momentum", false);
    last = ckr_node_at(phases, 0);
    if (!p || !ckr__sched_number(r->c, ckr_node_get(last, "end_step"), &end) ||
        !ckr__sched_number(r->c, ckr_node_get(d, "total_steps"), &n) || !(n > 0) ||
        (phases->count != 2 && phases->count != 3)) {
        r->why = "the phases of the OneCycleLR cannot be understood";
        return p;
    }
    end = (end + 1) / n;
    end = end < 0 ? 0 : end > 1 ? 1 : end;
    if (!ckr__node_set(r->c, p, "pct_start", ckr__node_float(r->c, end)) ||
        !ckr__node_set(r->c, p, "three_phase", ckr__node_bool(r->c, phases->count == 3)))
        return NULL;
    if (!r->n || !r->groups || !ckr__sched_number(r->c, ckr_node_get(r->groups[0], "max_lr"), &max) ||
        !ckr__sched_number(r->c, ckr_node_get(r->groups[0], "initial_lr"), &from) ||
        !ckr__sched_number(r->c, ckr_node_get(r->groups[0], "min_lr"), &min) || !(from > 0) ||
        !(min > 0) || !(max > 0))
        return p;
    return ckr__node_set(r->c, p, "div_factor", ckr__node_float(r->c, max / from)) &&
                   ckr__node_set(r->c, p, "final_div_factor", ckr__node_float(r->c, from / min))
               ? p
               : NULL;
}

static ckr_node *ckr__sread_cyclic(ckr__sread *r, const ckr_node *d, ckr_node *p)
{
    const ckr_node *custom = ckr_node_get(d, "_scale_fn_custom");
    const char *mode = ckr_node_str(ckr_node_get(d, "mode")),
               *scale = ckr_node_str(ckr_node_get(d, "scale_mode"));
    double size, ratio;
    if (!ckr__sched_number(r->c, ckr_node_get(d, "total_size"), &size) ||
        !ckr__sched_number(r->c, ckr_node_get(d, "step_ratio"), &ratio) ||
        (custom && custom->kind != CKR_NODE_NONE) || !mode || !scale ||
        !strcmp(scale, "cycle") != (strcmp(mode, "exp_range") != 0)) {
        r->why = "the CyclicLR has a scale function of its own, which the file does not hold";
        return p;
    }
    p = ckr__sread_copy(r, p, d, "mode", "mode");
    p = ckr__sread_copy(r, p, d, "gamma", "gamma");
    p = ckr__sread_copy(r, p, d, "cycle_momentum", "cycle_momentum");
    p = ckr__sread_set_lanes(r, p, "base_lr", ckr_node_get(d, "base_lrs"), "initial_lr", true);
    p = ckr__sread_set_lanes(r, p, "max_lr", ckr_node_get(d, "max_lrs"), NULL, true);
    p = ckr__sread_set_lanes(r, p, "base_momentum", ckr_node_get(d, "base_momentums"),
                             "base_momentum", false);
    p = ckr__sread_set_lanes(r, p, "max_momentum", ckr_node_get(d, "max_momentums"),
                             "max_momentum", false);
    return p &&
                   ckr__node_set(r->c, p, "step_size_up", ckr__node_float(r->c, size * ratio)) &&
                   ckr__node_set(r->c, p, "step_size_down",
                                 ckr__node_float(r->c, size - size * ratio))
               ? p
               : NULL;
}

/* Milestones as a plain list, from a Counter (or any dict), or from a list. */
static ckr_node *ckr__sread_milestones(ckr__sread *r, const ckr_node *n, ckr_node *p)
{
    ckr_node *list = ckr__node(r->c, CKR_NODE_LIST);
    const bool pairs = ckr_node_is_dict(n);
    uint64_t i;
    int64_t at, times, total = 0;
    if (!list || !p) return NULL;
    if (!n || (!pairs && !ckr_node_is_list(n))) r->why = "the milestones cannot be understood";
    for (i = 0; n && i < n->count && !r->why; i++) {
        times = 1;
        if (!ckr_node_i64(n->u.items[pairs ? 2 * i : i], &at) ||
            (pairs && !ckr_node_i64(n->u.items[2 * i + 1], &times)) || times < 0 ||
            times > CKR__SCHED_LIST || (total += times) > CKR__SCHED_LIST)
            r->why = "the milestones cannot be understood";
        for (; times > 0 && !r->why; times--)
            if (!ckr__node_push(r->c, list, ckr__node_int(r->c, at))) return NULL;
    }
    return ckr__node_set(r->c, p, "milestones", list) ? p : NULL;
}

/* The constructor's parameters of the scheduler with state d, "kind" first. NULL: out of memory. */
static ckr_node *ckr__sread_params(ckr__sread *r, const ckr_node *d, int depth)
{
    static const char *const plain[] = { "step_size", "gamma", "factor", "total_iters",
                                         "start_factor", "end_factor", "power", "T_max", "eta_min",
                                         "T_0", "T_mult", "anneal_epochs" };
    const char *kind = ckr_node_is_dict(d) && depth <= CKR__SCHED_DEPTH ? ckr__torch_class(d) : "";
    ckr_node *p = ckr__node(r->c, CKR_NODE_DICT), *list;
    const ckr_node *children;
    uint64_t i;
    if (!p || !ckr__node_set(r->c, p, "kind", ckr__node_str(r->c, kind))) return NULL;
    if (!strcmp(kind, "torch:LambdaLR"))
        r->why = "the file does not hold the function of a LambdaLR or MultiplicativeLR";
    else if (!strcmp(kind, "torch:ReduceLROnPlateau"))
        r->why = "a metric drives ReduceLROnPlateau";
    else if (strncmp(kind, "torch:", 6) != 0) r->why = "no scheduler that is known has these keys";
    if (r->why) return p;
    if (!strcmp(kind, "torch:OneCycleLR")) return ckr__sread_onecycle(r, d, p);
    if (!strcmp(kind, "torch:CyclicLR")) return ckr__sread_cyclic(r, d, p);
    children = ckr_node_get(d, "_schedulers");
    if (!children) {
        for (i = 0; i < sizeof plain / sizeof *plain; i++)
            p = ckr__sread_copy(r, p, d, plain[i], plain[i]);
        if (!strcmp(kind, "torch:SWALR")) {
            p = ckr__sread_string(r, p, "anneal_strategy",
                                  ckr__sread_anneal(d, "_anneal_strategy", "anneal_func"));
            p = ckr__sread_set_lanes(r, p, "swa_lr", NULL, "swa_lr", true);
        }
        if (ckr__has(d, "milestones"))
            p = ckr__sread_milestones(r, ckr_node_get(d, "milestones"), p);
        return p;
    }
    if (ckr__has(d, "_milestones"))
        p = ckr__sread_milestones(r, ckr_node_get(d, "_milestones"), p);
    list = ckr__node(r->c, CKR_NODE_LIST);
    if (!list || !p) return NULL;
    if (!ckr_node_is_list(children) || children->count > CKR__SCHED_NODES)
        r->why = "its schedulers cannot be understood";
    for (i = 0; !r->why && i < children->count; i++)
        if (!ckr__node_push(r->c, list, ckr__sread_params(r, children->u.items[i], depth + 1)))
            return NULL;
    return ckr__node_set(r->c, p, "schedulers", list) ? p : NULL;
}

/* A counter, kept where adding to it cannot overflow. */
static int64_t ckr__sread_int(const ckr_node *d, const char *key, int64_t none)
{
    const int64_t most = (int64_t)1 << 53;
    int64_t v;
    if (!ckr_node_i64(ckr_node_get(d, key), &v)) return none;
    return v < -most ? -most : v > most ? most : v;
}

/* The numbers of a list into an array that keeps its value where the list says nothing. */
static void ckr__sread_array(ckr__sread *r, const ckr_node *list, double *to)
{
    uint64_t i;
    double v;
    for (i = 0; to && i < r->n; i++)
        if (ckr__sched_number(r->c, ckr_node_at(list, i), &v)) to[i] = v;
}

/* What the built curve takes over exactly from the state: counters, phases, periods. */
static void ckr__sread_exact(ckr__sread *r, ckr__curve *c, const ckr_node *d)
{
    const ckr_node *phases = ckr_node_get(d, "_schedule_phases"),
                   *children = ckr_node_get(d, "_schedulers");
    double v;
    uint32_t i;
    c->epoch = ckr__sread_int(d, "last_epoch", 0);
    c->t_cur = ckr__sread_int(d, "T_cur", 0);
    c->t_i = ckr__sread_int(d, "T_i", 0);
    if (c->base && c->kind != CKR__CV_ONECYCLE)
        ckr__sread_array(r, ckr_node_get(d, "base_lrs"), c->base);
    for (i = 0; c->kind == CKR__CV_ONECYCLE && i < c->n_list; i++)
        if (ckr__sched_number(r->c, ckr_node_get(ckr_node_at(phases, i), "end_step"), &v))
            c->at[i] = v;
    if (c->kind == CKR__CV_CYCLIC) {
        if (ckr__sched_number(r->c, ckr_node_get(d, "total_size"), &v)) c->k.total = v;
        if (ckr__sched_number(r->c, ckr_node_get(d, "step_ratio"), &v)) c->k.start = v;
    }
    for (i = 0; i < c->n_children; i++)
        ckr__sread_exact(r, &c->children[i], ckr_node_at(children, i));
    if (c->kind == CKR__CV_CHAIN && c->n_children) c->epoch = c->children[0].epoch;
}

/* The clock of a state, whatever wrote it. */
static bool ckr__sread_position(const ckr_node *d, int depth, int64_t *out)
{
    static const char *const keys[] = { "last_epoch", "num_steps", "num_iters",
                                        "last_batch_iteration" };
    size_t i;
    for (i = 0; i < sizeof keys / sizeof *keys; i++)
        if (ckr_node_i64(ckr_node_get(d, keys[i]), out))
            return *out >= -1 && *out < (int64_t)1 << 53;
    return depth < CKR__SCHED_DEPTH && ckr__has(d, "_schedulers") &&
           ckr__sread_position(ckr_node_at(ckr_node_get(d, "_schedulers"), 0), depth + 1, out);
}

/* Base LRs: the state's, else the groups' initial_lr, else their lr; children's of a state that has
   none of its own. */
static ckr_node *ckr__sread_bases(ckr__sread *r, const ckr_node *d)
{
    const ckr_node *list = ckr_node_get(d, "base_lrs");
    ckr_node *out;
    int depth;
    for (depth = 0; !list && d && depth < CKR__SCHED_DEPTH; depth++) {
        d = ckr_node_at(ckr_node_get(d, "_schedulers"), 0);
        list = ckr_node_get(d, "base_lrs");
    }
    if (!r->groups && ckr_node_is_list(list)) r->n = list->count;
    out = ckr__sread_lanes(r, list, "initial_lr");
    if (out && !out->count && r->n) out = ckr__sread_lanes(r, NULL, "lr");
    return out;
}

static double *ckr__sread_doubles(ckr__sread *r, const ckr_node *list)
{
    double *v = CKR__NEW_N(r->c, double, r->n);
    uint64_t i;
    for (i = 0; v && i < r->n; i++)
        if (!ckr_node_f64(ckr_node_at(list, i), &v[i])) v[i] = ckr__nan();
    return v;
}

/* Group fields that are the lanes' own: bounds, momenta, multipliers, the LR in use. */
static void ckr__sched_lanes_from(ckr__ctx *c, ckr_schedule *s, const ckr_node *const *groups,
                                  uint64_t n)
{
    const bool megatron = s->curve && s->curve->kind == CKR__CV_MEGATRON,
               cycle = s->curve && s->curve->kind == CKR__CV_ONECYCLE;
    uint64_t i;
    for (i = 0; groups && i < n && i < s->n_lanes; i++) {
        ckr_lane *l = &s->lanes[i];
        const ckr_node *g = groups[i];
        if (megatron || cycle) {
            ckr__sched_number(c, ckr_node_get(g, "max_lr"), &l->max);
            ckr__sched_number(c, ckr_node_get(g, "min_lr"), &l->min);
        }
        if (cycle) ckr__sched_number(c, ckr_node_get(g, "initial_lr"), &l->base);
        if (megatron) {
            ckr__sched_number(c, ckr_node_get(g, "start_wd"), &l->start_wd);
            ckr__sched_number(c, ckr_node_get(g, "end_wd"), &l->end_wd);
            ckr__sched_number(c, ckr_node_get(g, "wd_mult"), &l->wd_mult);
            ckr__sched_number(c, ckr_node_get(g, "lr_mult"), &l->lr_mult);
            l->base = l->max;
        }
    }
}

/* The LR that the saved run would use next, where a recurrence goes on. */
static void ckr__sread_anchor(ckr__sread *r, ckr_schedule *s, const ckr_node *d)
{
    const ckr_node *last = ckr_node_get(d, "_last_lr");
    uint64_t i;
    s->anchored = s->recurrent && s->position >= 0;
    for (i = 0; i < s->n_lanes; i++) {
        double *v = &s->lanes[i].anchor;
        if (!(r->groups && ckr__sched_number(r->c, ckr_node_get(r->groups[i], "lr"), v)) &&
            !ckr__sched_number(r->c, ckr_node_at(last, i), v))
            s->anchored = false;
    }
}

static ckr_result ckr__sread_opaque(ckr__sread *r, const char *kind, ckr_node *params,
                                    const double *bases, ckr_schedule **out)
{
    ckr_schedule *s = ckr__sched_new(r->c, bases, r->n);
    if (!s) return ckr__sched_oom(r->c);
    s->kind = *kind ? ckr__strdup(r->c, kind) : "unknown";
    s->params = params;
    s->opaque = true;
    s->reason = r->why;
    *out = s;
    return s->kind ? CKR_OK : ckr__sched_oom(r->c);
}

static ckr_node *ckr__sread_megatron(ckr__sread *r, const ckr_node *d)
{
    static const char *const alias[][2] = {
        { "start_lr", "max_lr" }, { "max_lr", "max_lr" }, { "min_lr", "min_lr" },
        { "lr_warmup_steps", "lr_warmup_steps" }, { "warmup_steps", "lr_warmup_steps" },
        { "warmup_iter", "lr_warmup_steps" }, { "lr_decay_steps", "lr_decay_steps" },
        { "decay_steps", "lr_decay_steps" }, { "end_iter", "lr_decay_steps" },
        { "lr_decay_style", "lr_decay_style" }, { "decay_style", "lr_decay_style" },
        { "start_wd", "start_wd" }, { "end_wd", "end_wd" }, { "wd_incr_steps", "wd_incr_steps" },
        { "wd_incr_style", "wd_incr_style" }
    };
    ckr_node *p = ckr__node(r->c, CKR_NODE_DICT);
    const char *style;
    size_t i;
    for (i = 0; i < sizeof alias / sizeof *alias; i++)
        p = ckr__sread_copy(r, p, d, alias[i][0], alias[i][1]);
    style = ckr_node_str(ckr_node_get(p, "lr_decay_style"));
    if (style && !strcmp(style, "WSD") && !r->why)
        r->why = "Megatron-LM does not save wsd_decay_steps and lr_wsd_decay_style";
    return p;
}

/* Builds from parameters that came from a file: what is wrong with them makes it opaque. */
static ckr_result ckr__sread_build(ckr__sread *r, const char *kind, ckr_node *params,
                                   const double *bases, ckr_schedule **out)
{
    ckr_result e = ckr__sched_build(r->c, kind, params, bases, r->n, out);
    if (e != CKR_E_ARG) return e;
    r->why = ckr__printf(r->c, "%s", r->c->err->text);
    ckr__sched_forgive(r->c);
    return r->why ? CKR_OK : ckr__sched_oom(r->c);
}

static ckr_node *ckr__without_kind(ckr__ctx *c, const ckr_node *d)
{
    ckr_node *out = ckr__node(c, CKR_NODE_DICT);
    uint64_t i;
    for (i = 0; out && i < d->count; i++) {
        const char *key = ckr_node_str(d->u.items[2 * i]);
        if (key && !strcmp(key, "kind")) continue;
        if (!ckr__node_pair(c, out, d->u.items[2 * i], d->u.items[2 * i + 1])) return NULL;
    }
    return out;
}

/* The largest relative difference of the groups' LR from what the schedule says at its position;
   NaN when it does not say. *lane gets the group. An LR off by it was set by somebody else, or the
   file and the schedule are of different runs. */
static ckr_result ckr__sched_drift(ckr__ctx *c, const ckr_schedule *s, double *drift, uint64_t *lane)
{
    ckr_schedule plain = *s;
    double *row = (double *)ckr__heap_alloc(c, (size_t)s->n_lanes * sizeof *row);
    ckr_result e = row ? CKR_OK : CKR_E_NOMEM;
    uint64_t i;
    plain.anchored = false;
    *drift = 0;
    *lane = 0;
    if (e == CKR_OK) e = ckr__sched_at(c, &plain, CKR__COL_LR, (double)s->position, row);
    for (i = 0; e == CKR_OK && i < s->n_lanes; i++) {
        const double want = row[i], have = s->lanes[i].anchor,
                     by = fabs(want - have) / ckr__at_least(fabs(want), 1e-300);
        if (by <= *drift) continue;
        *drift = by;
        *lane = i;
        if (by != by) break;
    }
    ckr__heap_free(c, row, (size_t)s->n_lanes * sizeof *row);
    return e;
}

/* transformers passes inverse_sqrt's timescale only where the user names it: without one in the
   spec, the integer that gives every group exactly its saved LR is it, else the default stays. */
static ckr_result ckr__sread_timescale(ckr__sread *r, ckr_schedule **s)
{
    const ckr__curve *c = (*s)->curve;
    const double t = (double)(*s)->position, w = c ? c->k.warm : 0;
    ckr__curve trial;
    ckr_schedule with;
    double f, drift;
    uint64_t lane;
    ckr_result e;
    if (!c || c->kind != CKR__CV_HF || c->shape != CKR__SH_INVSQRT || !(t > w) || !(*s)->n_lanes ||
        ckr__has((*s)->params, "timescale"))
        return CKR_OK;
    f = (*s)->lanes[0].anchor / (*s)->lanes[0].base;
    f = f * f;
    f = rint(f * (t - w) / (1 - f));
    if (!(f >= 1 && f < 1e15)) return CKR_OK;
    trial = *c;
    trial.k.decay = f;
    with = **s;
    with.curve = &trial;
    e = ckr__sched_drift(r->c, &with, &drift, &lane);
    if (e != CKR_OK || !(drift <= 4.5e-16)) return e;
    if (!ckr__node_set(r->c, (*s)->params, "timescale", ckr__node_int(r->c, (int64_t)f)))
        return ckr__sched_oom(r->c);
    ((ckr__curve *)(uintptr_t)c)->k.decay = f;
    return CKR_OK;
}

/* A schedule from the state dict of a scheduler and the hyper dicts of the groups it drives (NULL:
   the state's own base LRs only). `spec` (or NULL) tells the curve where the state does not. An
   opaque result is no error: its `reason` says what is missing. */
static ckr_result ckr__sched_torch(ckr__ctx *c, const ckr_node *state,
                                   const ckr_node *const *groups, uint64_t n_groups,
                                   const char *spec, ckr_schedule **out)
{
    ckr_node *params, *list;
    const char *kind;
    double *bases;
    ckr__sread r;
    ckr_result e;
    int64_t position = 0;
    *out = NULL;
    memset(&r, 0, sizeof r);
    r.c = c;
    r.groups = groups;
    r.n = groups ? n_groups : 0;
    if (!ckr_node_is_dict(state))
        return ckr__fail(c->err, CKR_ITEM_SCHEDULE_STATE, NULL, CKR_NO_OFFSET, NULL,
                         "the state of a scheduler is a dict");
    kind = ckr__torch_class(state);
    list = ckr__sread_bases(&r, state);
    bases = list ? ckr__sread_doubles(&r, list) : NULL;
    if (!bases) return ckr__sched_oom(c);
    if (!ckr__sread_position(state, 0, &position)) {
        r.why = "the state has no clock (last_epoch)";
        position = 0;
    }
    params = !strcmp(kind, "megatron") ? ckr__sread_megatron(&r, state)
                                       : ckr__sread_params(&r, state, 0);
    params = params ? ckr__without_kind(c, params) : NULL;
    if (!params) return ckr__sched_oom(c);
    e = r.why ? CKR_OK : ckr__sread_build(&r, kind, params, bases, out);
    if (e == CKR_OK && !*out && spec) e = ckr__sched_parse(c, spec, bases, r.n, out);
    else if (e == CKR_OK && *out && ckr__is_torch((*out)->curve->kind))
        ckr__sread_exact(&r, (ckr__curve *)(uintptr_t)(*out)->curve, state);
    if (e == CKR_OK && !*out) e = ckr__sread_opaque(&r, kind, params, bases, out);
    if (e != CKR_OK) return e;
    (*out)->position = position;
    (*out)->state = state;
    ckr__sched_lanes_from(c, *out, groups, n_groups);
    ckr__sread_anchor(&r, *out, state);
    return (*out)->opaque ? CKR_OK : ckr__sread_timescale(&r, out);
}

/* >>schedule.torch_write ------------------------------------------------------ */
/* State dicts for real torch, for any number of groups: what the schedule decides is written anew,
   every other key is carried through as it was. */

typedef struct ckr__swrite {
    ckr__ctx           *c;
    const ckr_schedule *s;
    const uint64_t     *from;  /* old lane of each new one                               */
    uint64_t            n;
    const double       *lr;    /* of the next update, per new lane                       */
    bool                moved; /* the clock is not where the state was saved             */
} ckr__swrite;

static ckr_node *ckr__sw_number(ckr__ctx *c, double v)
{
    return ckr__whole(v) ? ckr__node_int(c, (int64_t)v) : ckr__node_float(c, v);
}

/* One number per new lane: from an array by old lane (NULL: a field of the lanes). */
static ckr_node *ckr__sw_lanes(const ckr__swrite *w, const double *values, size_t field)
{
    ckr_node *list = ckr__node(w->c, CKR_NODE_LIST);
    uint64_t i;
    double v;
    for (i = 0; i < w->n && list; i++) {
        if (values) v = values[w->from[i]];
        else memcpy(&v, (const char *)&w->s->lanes[w->from[i]] + field, sizeof v);
        if (!ckr__node_push(w->c, list, ckr__node_float(w->c, v))) return NULL;
    }
    return list;
}

static ckr_node *ckr__sw_lr(const ckr__swrite *w)
{
    ckr_node *list = ckr__node(w->c, CKR_NODE_LIST);
    uint64_t i;
    for (i = 0; i < w->n && list; i++)
        if (!ckr__node_push(w->c, list, ckr__node_float(w->c, w->lr[i]))) return NULL;
    return list;
}

static bool ckr__sw_put(const ckr__swrite *w, ckr_node *d, const char *key, ckr_node *v)
{
    return d && v && ckr__node_pair(w->c, d, ckr__node_str(w->c, key), v);
}

static bool ckr__sw_num(const ckr__swrite *w, ckr_node *d, const char *key, double v)
{
    return ckr__sw_put(w, d, key, ckr__sw_number(w->c, v));
}

static bool ckr__sw_float(const ckr__swrite *w, ckr_node *d, const char *key, double v)
{
    return ckr__sw_put(w, d, key, ckr__node_float(w->c, v));
}

static bool ckr__sw_phases(const ckr__swrite *w, const ckr__curve *c, ckr_node *d)
{
    static const char *const lr[] = { "initial_lr", "max_lr", "min_lr" },
                      *const mom[] = { "base_momentum", "max_momentum" };
    ckr_node *list = ckr__node(w->c, CKR_NODE_LIST), *p;
    uint32_t i;
    for (i = 0; i < c->n_list && list; i++) {
        const unsigned code = (unsigned)c->val[i];
        p = ckr__node(w->c, CKR_NODE_DICT);
        if (!ckr__sw_put(w, p, "end_step", i + 1 == c->n_list ? ckr__sw_number(w->c, c->at[i])
                                                              : ckr__node_float(w->c, c->at[i])) ||
            !ckr__sw_put(w, p, "start_lr", ckr__node_str(w->c, lr[code % 3])) ||
            !ckr__sw_put(w, p, "end_lr", ckr__node_str(w->c, lr[code / 3 % 3])) ||
            !ckr__sw_put(w, p, "start_momentum", ckr__node_str(w->c, mom[code / 9 % 2])) ||
            !ckr__sw_put(w, p, "end_momentum", ckr__node_str(w->c, mom[code / 18 % 2])) ||
            !ckr__node_push(w->c, list, p))
            return false;
    }
    return ckr__sw_put(w, d, "_schedule_phases", list);
}

static bool ckr__sw_milestones(const ckr__swrite *w, const ckr__curve *c, ckr_node *d)
{
    ckr_node *counter = ckr__node(w->c, CKR_NODE_COUNTER);
    uint32_t i;
    for (i = 0; i < c->n_list && counter; i++)
        if (!ckr__node_pair(w->c, counter, ckr__node_int(w->c, (int64_t)c->at[i]),
                            ckr__node_int(w->c, (int64_t)c->val[i])))
            return false;
    return ckr__sw_put(w, d, "milestones", counter);
}

static bool ckr__sw_cyclic(const ckr__swrite *w, const ckr__curve *c, ckr_node *d)
{
    const char *mode = c->shape == CKR__SH_EXP2   ? "triangular2"
                       : c->shape == CKR__SH_POLY ? "exp_range"
                                                  : "triangular";
    const bool cycles = (c->flags & CKR__CF_MOMENTUM) != 0;
    bool ok = ckr__sw_put(w, d, "max_lrs", ckr__sw_lanes(w, c->max, offsetof(ckr_lane, max))) &&
              ckr__sw_float(w, d, "total_size", c->k.total) &&
              ckr__sw_float(w, d, "step_ratio", c->k.start) &&
              ckr__sw_put(w, d, "mode", ckr__node_str(w->c, mode)) &&
              ckr__sw_float(w, d, "gamma", c->k.power) &&
              ckr__sw_put(w, d, "scale_mode",
                          ckr__node_str(w->c, c->shape == CKR__SH_POLY ? "iterations" : "cycle")) &&
              ckr__sw_put(w, d, "cycle_momentum", ckr__node_bool(w->c, cycles));
    if (!ok || !cycles) return ok;
    return ckr__sw_put(w, d, "use_beta1", ckr__node_bool(w->c, true)) &&
           ckr__sw_put(w, d, "base_momentums",
                       ckr__sw_lanes(w, NULL, offsetof(ckr_lane, base_momentum))) &&
           ckr__sw_put(w, d, "max_momentums",
                       ckr__sw_lanes(w, NULL, offsetof(ckr_lane, max_momentum)));
}

static bool ckr__sw_onecycle(const ckr__swrite *w, const ckr__curve *c, ckr_node *d)
{
    const bool cycles = (c->flags & CKR__CF_MOMENTUM) != 0;
    return ckr__sw_num(w, d, "total_steps", c->k.total) && ckr__sw_phases(w, c, d) &&
           ckr__sw_put(w, d, "_anneal_func_type",
                       ckr__node_str(w->c, c->shape == CKR__SH_LINEAR ? "linear" : "cos")) &&
           ckr__sw_put(w, d, "cycle_momentum", ckr__node_bool(w->c, cycles)) &&
           (!cycles || ckr__sw_put(w, d, "use_beta1", ckr__node_bool(w->c, true)));
}

/* The keys that only this class has, in torch's order and from the curve's numbers. */
static bool ckr__sw_own(const ckr__swrite *w, const ckr__curve *c, int64_t epoch, ckr_node *d)
{
    const ckr__curve_nums *k = &c->k;
    const double *lo = c->min, min = w->s->n_lanes ? lo ? lo[0] : w->s->lanes[0].min : 0;
    double cur = 0, len = k->decay;
    switch (c->kind) {
    case CKR__CV_STEP:
        return ckr__sw_num(w, d, "step_size", k->decay) && ckr__sw_float(w, d, "gamma", k->power);
    case CKR__CV_MULTISTEP:
        return ckr__sw_milestones(w, c, d) && ckr__sw_float(w, d, "gamma", k->power);
    case CKR__CV_CONSTANT:
        return ckr__sw_float(w, d, "factor", k->from) && ckr__sw_num(w, d, "total_iters", k->decay);
    case CKR__CV_LINEAR:
        return ckr__sw_float(w, d, "start_factor", k->from) &&
               ckr__sw_float(w, d, "end_factor", k->top) &&
               ckr__sw_num(w, d, "total_iters", k->decay);
    case CKR__CV_EXP: return ckr__sw_float(w, d, "gamma", k->power);
    case CKR__CV_POLY:
        return ckr__sw_num(w, d, "total_iters", k->decay) && ckr__sw_float(w, d, "power", k->power);
    case CKR__CV_COSINE:
        return ckr__sw_num(w, d, "T_max", k->decay) && ckr__sw_float(w, d, "eta_min", min);
    case CKR__CV_RESTARTS:
        if (epoch > 0) ckr__restart(c, (double)epoch, &cur, &len);
        return ckr__sw_num(w, d, "T_0", k->decay) && ckr__sw_num(w, d, "T_i", len) &&
               ckr__sw_num(w, d, "T_mult", k->power) && ckr__sw_float(w, d, "eta_min", min) &&
               ckr__sw_num(w, d, "T_cur", cur);
    case CKR__CV_ONECYCLE: return ckr__sw_onecycle(w, c, d);
    case CKR__CV_CYCLIC:   return ckr__sw_cyclic(w, c, d);
    case CKR__CV_SWA:
        return ckr__sw_put(w, d, "_anneal_strategy",
                           ckr__node_str(w->c, c->shape == CKR__SH_LINEAR ? "linear" : "cos")) &&
               ckr__sw_num(w, d, "anneal_epochs", k->decay);
    default: return true;                               /* LambdaLR of another framework     */
    }
}

/* lr_lambdas of a schedule that torch runs as a LambdaLR: partials have a dict, functions None. */
static bool ckr__sw_lambdas(const ckr__swrite *w, ckr_node *d)
{
    const bool plain = !strncmp(w->s->kind, "diffusers", 9) ||
                       !strcmp(w->s->kind, "transformers:constant");
    ckr_node *list = ckr__node(w->c, CKR_NODE_LIST);
    uint64_t i;
    for (i = 0; i < w->n && list; i++)
        if (!ckr__node_push(w->c, list, ckr__node(w->c, plain ? CKR_NODE_NONE : CKR_NODE_DICT)))
            return false;
    return ckr__sw_put(w, d, "lr_lambdas", list);
}

/* A state as if torch had made it; `epoch` is the scheduler's own clock. */
static bool ckr__sw_fresh(const ckr__swrite *w, const ckr__curve *c, int64_t epoch, ckr_node *d)
{
    const double *base = c->base;
    return ckr__sw_own(w, c, epoch, d) &&
           ckr__sw_put(w, d, "base_lrs", ckr__sw_lanes(w, base, offsetof(ckr_lane, base))) &&
           ckr__sw_num(w, d, "last_epoch", (double)epoch) &&
           ckr__sw_num(w, d, "_step_count", epoch < 0 ? 1 : (double)epoch + 1) &&
           ckr__sw_put(w, d, "_is_initial", ckr__node_bool(w->c, false)) &&
           ckr__sw_put(w, d, "_get_lr_called_within_step", ckr__node_bool(w->c, false)) &&
           ckr__sw_put(w, d, "_last_lr", ckr__sw_lr(w)) &&
           (ckr__is_torch(c->kind) || ckr__sw_lambdas(w, d)) &&
           (c->kind != CKR__CV_CYCLIC ||
            ckr__sw_put(w, d, "_scale_fn_custom", ckr__node(w->c, CKR_NODE_NONE)));
}

/* Equal as numbers, texts, lists and dicts of them, 1 and 1.0 included; depth bounded. */
static bool ckr__sw_equal(const ckr_node *a, const ckr_node *b, int depth)
{
    const uint64_t per = ckr_node_is_dict(a) ? 2 : 1;
    uint64_t i;
    double x, y;
    if (ckr_node_f64(a, &x) && ckr_node_f64(b, &y)) return ckr__same(x, y);
    if (ckr_node_str(a) && ckr_node_str(b)) return !strcmp(a->u.str, b->u.str);
    if (!a || !b || depth > 3 || a->count != b->count) return false;
    if (a->kind == CKR_NODE_NONE) return b->kind == CKR_NODE_NONE;
    if (ckr_node_is_list(a) ? !ckr_node_is_list(b) : !ckr_node_is_dict(a) || !ckr_node_is_dict(b))
        return false;
    for (i = 0; i < a->count * per; i++)
        if (!ckr__sw_equal(a->u.items[i], b->u.items[i], depth + 1)) return false;
    return true;
}

/* Keys that hold one entry per group, whatever they mean. */
static bool ckr__sw_per_group(const char *key)
{
    static const char *const keys[] = { "base_lrs", "_last_lr", "lr_lambdas", "max_lrs", "min_lrs",
                                        "base_momentums", "max_momentums" };
    size_t i;
    for (i = 0; key && i < sizeof keys / sizeof *keys; i++) if (!strcmp(key, keys[i])) return true;
    return false;
}

/* The old list by new lane; an entry that it lacks takes its last one. */
static ckr_node *ckr__sw_resized(const ckr__swrite *w, const ckr_node *list)
{
    ckr_node *out = ckr__node(w->c, (ckr_node_kind)list->kind);
    uint64_t i;
    for (i = 0; i < w->n && out && list->count; i++) {
        const uint64_t at = w->from[i] < list->count ? w->from[i] : list->count - 1;
        if (!ckr__node_push(w->c, out, list->u.items[at])) return NULL;
    }
    return out;
}

/* What stands in the file under `key`, given what a fresh state would have there (or NULL). Counters
   of a clock that was not moved stay, as does whatever equals the fresh value. */
static ckr_node *ckr__sw_value(const ckr__swrite *w, const char *key, ckr_node *old,
                               ckr_node *fresh, bool current)
{
    static const char *const counters[] = { "last_epoch", "_step_count", "T_cur", "T_i" };
    const bool kept = !strcmp(key, "_is_initial") || !strcmp(key, "_get_lr_called_within_step") ||
                      !strcmp(key, "use_beta1") || !strcmp(key, "_scale_fn_custom") ||
                      !strcmp(key, "lr_lambdas");
    size_t i;
    if (!strcmp(key, "_last_lr") && current && fresh) return fresh;
    if (ckr__sw_per_group(key) && ckr_node_is_list(old) &&
        (!fresh || !strcmp(key, "_last_lr") || kept))
        return ckr__sw_resized(w, old);
    if (!fresh || kept) return old;
    for (i = 0; i < sizeof counters / sizeof *counters && !w->moved; i++)
        if (!strcmp(key, counters[i])) return old;
    return ckr__sw_equal(old, fresh, 0) ? old : fresh;
}

/* `old` with the fresh values in it. */
static ckr_node *ckr__sw_merge(const ckr__swrite *w, const ckr_node *old, const ckr_node *fresh,
                               bool current)
{
    ckr_node *d = ckr__node(w->c, old ? (ckr_node_kind)old->kind : CKR_NODE_DICT);
    uint64_t i;
    if (!d) return NULL;
    for (i = 0; old && i < old->count; i++) {
        ckr_node *key = old->u.items[2 * i], *v = old->u.items[2 * i + 1];
        const char *s = ckr_node_str(key);
        if (s) v = ckr__sw_value(w, s, v, (ckr_node *)(uintptr_t)ckr_node_get(fresh, s), current);
        if (!ckr__node_pair(w->c, d, key, v)) return NULL;
    }
    for (i = 0; !old && i < fresh->count; i++)
        if (!ckr__node_pair(w->c, d, fresh->u.items[2 * i], fresh->u.items[2 * i + 1])) return NULL;
    return d;
}

static ckr_node *ckr__sw_curve(const ckr__swrite *w, const ckr__curve *c, const ckr_node *old,
                               int64_t epoch, bool current);

/* Clocks of a SequentialLR's children: those before the active one stopped at their milestone, those
   behind it have not begun. */
static int64_t ckr__sw_child_epoch(const ckr__curve *c, uint32_t i, int64_t epoch)
{
    double from;
    const uint32_t active = ckr__seq_child(c, (double)epoch, &from);
    if (c->kind != CKR__CV_SEQ) return epoch;
    if (i > active) return -1;
    if (i < active) return (int64_t)(c->at[i] - (i ? c->at[i - 1] : 0)) - 1;
    return epoch - (int64_t)from;
}

static ckr_node *ckr__sw_children(const ckr__swrite *w, const ckr__curve *c, const ckr_node *old,
                                  int64_t epoch)
{
    const ckr_node *states = ckr_node_get(old, "_schedulers");
    ckr_node *list = ckr__node(w->c, CKR_NODE_LIST);
    double from;
    const uint32_t active = c->kind == CKR__CV_SEQ ? ckr__seq_child(c, (double)epoch, &from)
                                                   : c->n_children - 1;
    uint32_t i;
    for (i = 0; i < c->n_children && list; i++)
        if (!ckr__node_push(w->c, list,
                            ckr__sw_curve(w, &c->children[i], ckr_node_at(states, i),
                                          ckr__sw_child_epoch(c, i, epoch), i == active)))
            return NULL;
    return list;
}

/* One scheduler's dict; recursion is bounded by CKR__SCHED_DEPTH. */
static ckr_node *ckr__sw_curve(const ckr__swrite *w, const ckr__curve *c, const ckr_node *old,
                               int64_t epoch, bool current)
{
    ckr_node *fresh = ckr__node(w->c, CKR_NODE_DICT), *list;
    uint32_t i;
    if (!c->n_children)
        return fresh && ckr__sw_fresh(w, c, epoch, fresh) ? ckr__sw_merge(w, old, fresh, current)
                                                          : NULL;
    if (c->kind == CKR__CV_SEQ) {
        list = ckr__node(w->c, CKR_NODE_LIST);
        for (i = 0; i < c->n_list && list; i++)
            if (!ckr__node_push(w->c, list, ckr__sw_number(w->c, c->at[i]))) return NULL;
        if (!ckr__sw_put(w, fresh, "_milestones", list) ||
            !ckr__sw_num(w, fresh, "last_epoch", (double)epoch))
            return NULL;
    }
    return ckr__sw_put(w, fresh, "_last_lr", ckr__sw_lr(w)) &&
                   ckr__sw_put(w, fresh, "_schedulers", ckr__sw_children(w, c, old, epoch))
               ? ckr__sw_merge(w, old, fresh, current)
               : NULL;
}

/* The other frameworks' dicts: a counter, or Megatron-LM's own keys. */
static ckr_node *ckr__sw_counter(const ckr__swrite *w, const char *key, int64_t position)
{
    ckr_node *fresh = ckr__node(w->c, CKR_NODE_DICT), *d;
    uint64_t i;
    if (!ckr__sw_num(w, fresh, key, (double)position)) return NULL;
    d = ckr__node(w->c, CKR_NODE_DICT);
    if (!d) return NULL;
    if (!w->s->state) return fresh;
    for (i = 0; i < w->s->state->count; i++) {
        ckr_node *k = w->s->state->u.items[2 * i], *v = w->s->state->u.items[2 * i + 1];
        const char *s = ckr_node_str(k);
        if (s && !strcmp(s, key)) v = ckr__sw_number(w->c, (double)position);
        if (s && ckr__sw_per_group(s) && ckr_node_is_list(v)) v = ckr__sw_resized(w, v);
        if (s && !strcmp(s, "_step_count") && w->moved)
            v = ckr__node_int(w->c, position + 1);
        if (!ckr__node_pair(w->c, d, k, v)) return NULL;
    }
    return d;
}

static const char *ckr__shape_name(uint8_t shape, const char *names)
{
    static const char *const all[] = { "", "linear", "cosine", "", "minus_sqrt", "", "exponential",
                                       "inverse-square-root", "", "constant" };
    return shape < sizeof all / sizeof *all && *all[shape] ? all[shape] : names;
}

/* Megatron-LM's own dict; its aliases of older versions would win over these keys, so they go. */
static ckr_node *ckr__sw_megatron(const ckr__swrite *w, int64_t position)
{
    static const char *const alias[] = { "start_lr", "warmup_iter", "warmup_steps", "end_iter",
                                         "decay_steps", "decay_style", "num_iters" };
    const ckr__curve *c = w->s->curve;
    const ckr_lane none = w->s->lanes[0], *l = &none;
    const bool wsd = (c->flags & CKR__CF_WSD) != 0;
    const ckr_node *top = ckr_node_get(w->s->params, "max_lr"),
                   *low = ckr_node_get(w->s->params, "min_lr");
    ckr_node *d = ckr__node(w->c, CKR_NODE_DICT);
    double max = l->max, min = l->min;
    uint64_t i;
    size_t j;
    ckr_node_f64(top, &max);
    ckr_node_f64(low, &min);
    if (!ckr__sw_float(w, d, "max_lr", max) || !ckr__sw_num(w, d, "lr_warmup_steps", c->k.warm) ||
        !ckr__sw_num(w, d, "num_steps", (double)position) ||
        !ckr__sw_put(w, d, "lr_decay_style",
                     ckr__node_str(w->c, wsd ? "WSD" : ckr__shape_name(c->shape, "linear"))) ||
        !ckr__sw_num(w, d, "lr_decay_steps", c->k.total) || !ckr__sw_float(w, d, "min_lr", min))
        return NULL;
    if ((c->flags & CKR__CF_WD) &&
        (!ckr__sw_float(w, d, "start_wd", l->start_wd) || !ckr__sw_float(w, d, "end_wd", l->end_wd) ||
         !ckr__sw_put(w, d, "wd_incr_style",
                      ckr__node_str(w->c, ckr__shape_name(c->wd_shape, "constant"))) ||
         !ckr__sw_num(w, d, "wd_incr_steps", c->k.end_at)))
        return NULL;
    for (i = 0; w->s->state && i < w->s->state->count; i++) {
        ckr_node *k = w->s->state->u.items[2 * i];
        const char *s = ckr_node_str(k);
        for (j = 0; s && j < sizeof alias / sizeof *alias; j++) if (!strcmp(s, alias[j])) break;
        if (s && (j < sizeof alias / sizeof *alias || ckr__has(d, s))) continue;
        if (!ckr__node_pair(w->c, d, k, w->s->state->u.items[2 * i + 1])) return NULL;
    }
    return d;
}

static ckr_node *ckr__sw_root(const ckr__swrite *w, int64_t position)
{
    const ckr_schedule *s = w->s;
    const bool torch = !s->opaque && (ckr__is_torch(s->curve->kind) ||
                                      !strncmp(s->kind, "transformers", 12) ||
                                      !strncmp(s->kind, "diffusers", 9) ||
                                      !strcmp(s->kind, "nanotron"));
    if (torch) return ckr__sw_curve(w, s->curve, s->state, position, true);
    if (s->state && !s->opaque && ckr__has(s->state, "lr_lambdas"))
        return ckr__sw_curve(w, s->curve, s->state, position, true);
    if (!strncmp(s->kind, "deepspeed", 9))
        return ckr__sw_counter(w, "last_batch_iteration", position);
    if (!strcmp(s->kind, "megatron"))
        return s->opaque || !s->n_lanes ? ckr__sw_counter(w, "num_steps", position)
                                        : ckr__sw_megatron(w, position);
    return ckr__sw_counter(w, "last_epoch", position);
}

/* A state dict with which the framework goes on at clock `position`, for n lanes of which lane i was
   lane from[i] (NULL: the same lanes). Groups need `lr` = the schedule's value there too. */
static ckr_result ckr__sched_torch_write(ckr__ctx *c, const ckr_schedule *s, const uint64_t *from,
                                         uint64_t n, int64_t position, ckr_node **out)
{
    double *row = CKR__NEW_N(c, double, s->n_lanes), *lr = CKR__NEW_N(c, double, n);
    uint64_t *same = CKR__NEW_N(c, uint64_t, n), i;
    ckr__swrite w;
    ckr_result e;
    *out = NULL;
    if (!row || !lr || !same) return ckr__sched_oom(c);
    for (i = 0; i < n; i++) same[i] = from ? from[i] : i;
    for (i = 0; i < n; i++)
        if (same[i] >= s->n_lanes)
            return ckr__fail(c->err, CKR_ITEM_ARG, NULL, CKR_NO_OFFSET, "from",
                             "lane %llu of %llu", (unsigned long long)same[i],
                             (unsigned long long)s->n_lanes);
    e = ckr__sched_at(c, s, CKR__COL_LR, (double)position, row);
    if (e != CKR_OK) return e;
    for (i = 0; i < n; i++) lr[i] = row[same[i]];
    memset(&w, 0, sizeof w);
    w.c = c;
    w.s = s;
    w.from = same;
    w.n = n;
    w.lr = lr;
    w.moved = position != s->position || !s->state;
    *out = ckr__sw_root(&w, position);
    return *out ? CKR_OK : ckr__sched_oom(c);
}

/* >>schedule.node ------------------------------------------------------------- */
/* The canonical form: a dict of numbers, texts and lists that JSON keeps exactly, with everything
   that evaluation needs, so that reading it back needs no framework. */

#define CKR__SCHED_FORMAT "ckptresume-schedule/1"

static const char *const ckr__curve_names[CKR__CV_COUNT_] = {
    "", "const", "hf", "table", "nanotron", "torchtitan", "torchtitan-old", "megatron", "ds-warmup",
    "ds-cosine", "ds-cycle", "ds-range", "llmc", "pieces", "user", "step", "multistep", "constant",
    "linear", "exp", "poly", "cosine", "restarts", "onecycle", "cyclic", "swa", "seq", "chain"
};

static const char *const ckr__lane_names[] = {
    "base", "max", "min", "base_momentum", "max_momentum", "start_wd", "end_wd", "wd_mult",
    "lr_mult", "p", "q", "ramp_from", "ramp_to", "anchor"
};
#define CKR__LANE_FIELDS (sizeof ckr__lane_names / sizeof *ckr__lane_names)
typedef char ckr__assert_lane_fields[sizeof(ckr_lane) == CKR__LANE_FIELDS * sizeof(double) ? 1 : -1];

/* JSON has no other numbers: the rest are texts. */
static ckr_node *ckr__sn_double(ckr__ctx *c, double v)
{
    if (ckr__finite(v)) return ckr__node_float(c, v);
    return ckr__node_str(c, v != v ? "nan" : v > 0 ? "inf" : "-inf");
}

/* n numbers `step` bytes apart; equal ones are one number. */
static ckr_node *ckr__sn_array(ckr__ctx *c, const void *first, uint64_t n, size_t step, bool fold)
{
    ckr_node *list;
    uint64_t i;
    double v = 0, w;
    for (i = 0; fold && i < n; i++) {
        memcpy(&w, (const char *)first + i * step, sizeof w);
        if (i && memcmp(&v, &w, sizeof v) != 0) break;
        v = w;
    }
    if (fold && i == n && n) return ckr__sn_double(c, v);
    list = ckr__node(c, CKR_NODE_LIST);
    for (i = 0; i < n && list; i++) {
        memcpy(&v, (const char *)first + i * step, sizeof v);
        if (!ckr__node_push(c, list, ckr__sn_double(c, v))) return NULL;
    }
    return list;
}

static bool ckr__sn_put(ckr__ctx *c, ckr_node *d, const char *key, ckr_node *v)
{
    return d && v && ckr__node_pair(c, d, ckr__node_str(c, key), v);
}

static bool ckr__sn_own(ckr__ctx *c, ckr_node *d, const char *key, const double *v, uint64_t n)
{
    return !v || ckr__sn_put(c, d, key, ckr__sn_array(c, v, n, sizeof *v, true));
}

/* Recursion is bounded by CKR__SCHED_DEPTH. */
static ckr_node *ckr__sn_curve(ckr__ctx *c, const ckr__curve *v, uint64_t lanes)
{
    const uint8_t shapes[4] = { v->shape, v->warm_shape, v->wd_shape, v->flags };
    ckr_node *d = ckr__node(c, CKR_NODE_DICT), *list = ckr__node(c, CKR_NODE_LIST), *children;
    uint32_t i;
    for (i = 0; i < 4; i++)
        if (!ckr__node_push(c, list, ckr__node_int(c, shapes[i]))) return NULL;
    if (!ckr__sn_put(c, d, "kind", ckr__node_str(c, ckr__curve_names[v->kind])) ||
        !ckr__sn_put(c, d, "shapes", list) ||
        !ckr__sn_put(c, d, "numbers",
                     ckr__sn_array(c, &v->k, CKR__CURVE_NUMS, sizeof(double), false)) ||
        !ckr__sn_put(c, d, "at", ckr__sn_array(c, v->at, v->n_list, sizeof(double), false)) ||
        !ckr__sn_put(c, d, "val", ckr__sn_array(c, v->val, v->n_list, sizeof(double), false)) ||
        !ckr__sn_put(c, d, "epoch", ckr__node_int(c, v->epoch)) ||
        !ckr__sn_put(c, d, "t_cur", ckr__node_int(c, v->t_cur)) ||
        !ckr__sn_put(c, d, "t_i", ckr__node_int(c, v->t_i)) ||
        !ckr__sn_own(c, d, "base", v->base, lanes) || !ckr__sn_own(c, d, "min", v->min, lanes) ||
        !ckr__sn_own(c, d, "max", v->max, lanes))
        return NULL;
    if (!v->n_children) return d;
    children = ckr__node(c, CKR_NODE_LIST);
    for (i = 0; i < v->n_children && children; i++)
        if (!ckr__node_push(c, children, ckr__sn_curve(c, &v->children[i], lanes))) return NULL;
    return ckr__sn_put(c, d, "children", children) ? d : NULL;
}

static ckr_node *ckr__sn_lanes(ckr__ctx *c, const ckr_schedule *s)
{
    ckr_node *d = ckr__node(c, CKR_NODE_DICT);
    size_t i;
    for (i = 0; i < CKR__LANE_FIELDS; i++)
        if (!ckr__sn_put(c, d, ckr__lane_names[i],
                         ckr__sn_array(c, (const char *)s->lanes + i * sizeof(double), s->n_lanes,
                                       sizeof *s->lanes, true)))
            return NULL;
    return d;
}

/* NULL: out of memory, c->err says so. A schedule with a callback cannot be kept: NULL too. */
static ckr_node *ckr__sched_node(ckr__ctx *c, const ckr_schedule *s)
{
    const bool flags[5] = { s->opaque, s->recurrent, s->anchored, s->clamp, s->curve != NULL };
    static const char *const names[5] = { "opaque", "recurrent", "anchored", "clamp", "known" };
    const double maps[7] = { s->rate, s->offset, s->a, s->b, s->hold, s->ramp_at, s->ramp_len };
    static const char *const keys[7] = { "rate", "offset", "a", "b", "hold", "ramp_at", "ramp_len" };
    ckr_node *d = ckr__node(c, CKR_NODE_DICT);
    size_t i;
    if (s->curve && s->curve->kind == CKR__CV_USER) {
        ckr__fail(c->err, CKR_ITEM_SCHEDULE, NULL, CKR_NO_OFFSET, NULL,
                  "a schedule that is a callback cannot be written to a file");
        return NULL;
    }
    if (!ckr__sn_put(c, d, "format", ckr__node_str(c, CKR__SCHED_FORMAT)) ||
        !ckr__sn_put(c, d, "kind", ckr__node_str(c, s->kind)) ||
        !ckr__sn_put(c, d, "clock", ckr__node_str(c, s->clock)) ||
        !ckr__sn_put(c, d, "position", ckr__node_int(c, s->position)) ||
        !ckr__sn_put(c, d, "lanes_count", ckr__node_int(c, (int64_t)s->n_lanes)) ||
        (s->reason && !ckr__sn_put(c, d, "reason", ckr__node_str(c, s->reason))) ||
        (s->params && !ckr__sn_put(c, d, "params", s->params)))
        return NULL;
    for (i = 0; i < 5; i++)
        if (!ckr__sn_put(c, d, names[i], ckr__node_bool(c, flags[i]))) return NULL;
    for (i = 0; i < 7; i++)
        if (!ckr__sn_put(c, d, keys[i], ckr__sn_double(c, maps[i]))) return NULL;
    if (!ckr__sn_put(c, d, "lanes", ckr__sn_lanes(c, s))) return NULL;
    if (s->curve && !ckr__sn_put(c, d, "curve", ckr__sn_curve(c, s->curve, s->n_lanes)))
        return NULL;
    return d;
}

static bool ckr__sn_get(const ckr_node *n, double *out)
{
    const char *s = ckr_node_str(n);
    if (ckr_node_f64(n, out)) return true;
    if (s && !strcmp(s, "nan")) *out = ckr__nan();
    else if (s && !strcmp(s, "inf")) *out = ckr__inf();
    else if (s && !strcmp(s, "-inf")) *out = -ckr__inf();
    else return false;
    return true;
}

/* Back into n numbers `step` bytes apart. */
static bool ckr__sn_read(const ckr_node *list, void *first, uint64_t n, size_t step)
{
    const bool many = ckr_node_is_list(list);
    uint64_t i;
    double v;
    if (!list || (many && list->count != n)) return false;
    for (i = 0; i < n; i++) {
        if (!ckr__sn_get(many ? list->u.items[i] : list, &v)) return false;
        memcpy((char *)first + i * step, &v, sizeof v);
    }
    return true;
}

/* What evaluation takes for granted. */
static bool ckr__sn_curve_ok(const ckr__curve *c)
{
    uint32_t i;
    if (c->shape >= CKR__SH_COUNT_ || c->warm_shape >= CKR__SH_COUNT_ ||
        c->wd_shape >= CKR__SH_COUNT_)
        return false;
    if (c->kind == CKR__CV_SEQ && c->n_list + 1 != c->n_children) return false;
    if ((c->kind == CKR__CV_SEQ || c->kind == CKR__CV_CHAIN) != (c->n_children > 0)) return false;
    if (c->kind == CKR__CV_RESTARTS && !ckr__whole(c->k.power)) return false;
    for (i = 0; c->kind == CKR__CV_ONECYCLE && i < c->n_list; i++)
        if (!(c->val[i] >= 0 && c->val[i] < 36)) return false;
    for (i = 0; c->kind == CKR__CV_SEQ && i < c->n_list; i++)
        if (!ckr__whole(c->at[i]) || (i && c->at[i] < c->at[i - 1])) return false;
    return ckr__whole((double)c->epoch) && ckr__whole((double)c->t_cur) &&
           ckr__whole((double)c->t_i) && c->kind != CKR__CV_USER;
}

static bool ckr__sn_curve_lanes(ckr__ctx *c, const ckr_node *d, const char *key, uint64_t lanes,
                                double **out)
{
    const ckr_node *n = ckr_node_get(d, key);
    if (!n) return true;
    *out = CKR__NEW_N(c, double, lanes);
    return *out && ckr__sn_read(n, *out, lanes, sizeof **out);
}

/* False: malformed, or out of memory with c->err set. Recursion is bounded by CKR__SCHED_DEPTH. */
static bool ckr__sn_curve_read(ckr__ctx *c, const ckr_node *d, uint64_t lanes, int depth,
                               uint32_t *n_nodes, ckr__curve *v)
{
    const ckr_node *at = ckr_node_get(d, "at"), *children = ckr_node_get(d, "children");
    const char *kind = ckr_node_str(ckr_node_get(d, "kind"));
    double shapes[4];
    uint64_t i;
    if (depth > CKR__SCHED_DEPTH || *n_nodes >= CKR__SCHED_NODES || !kind || !*kind) return false;
    for (i = 1; i < CKR__CV_COUNT_ && strcmp(kind, ckr__curve_names[i]); i++) {}
    if (i == CKR__CV_COUNT_ || !ckr_node_is_list(at) || at->count > CKR__SCHED_LIST ||
        !ckr__sn_read(ckr_node_get(d, "shapes"), shapes, 4, sizeof *shapes))
        return false;
    v->kind = (uint8_t)i;
    v->index = (uint16_t)(*n_nodes)++;
    for (i = 0; i < 4; i++) if (!(shapes[i] >= 0 && shapes[i] <= CKR__CF_ALL)) return false;
    v->shape = (uint8_t)shapes[0];
    v->warm_shape = (uint8_t)shapes[1];
    v->wd_shape = (uint8_t)shapes[2];
    v->flags = (uint8_t)shapes[3];
    v->n_list = (uint32_t)at->count;
    v->at = CKR__NEW_N(c, double, 2 * at->count + 1);
    if (!v->at) return false;
    v->val = v->at + at->count;
    if (!ckr__sn_read(ckr_node_get(d, "numbers"), &v->k, CKR__CURVE_NUMS, sizeof(double)) ||
        !ckr__sn_read(at, v->at, at->count, sizeof(double)) ||
        !ckr__sn_read(ckr_node_get(d, "val"), v->val, at->count, sizeof(double)) ||
        !ckr_node_i64(ckr_node_get(d, "epoch"), &v->epoch) ||
        !ckr_node_i64(ckr_node_get(d, "t_cur"), &v->t_cur) ||
        !ckr_node_i64(ckr_node_get(d, "t_i"), &v->t_i) ||
        !ckr__sn_curve_lanes(c, d, "base", lanes, &v->base) ||
        !ckr__sn_curve_lanes(c, d, "min", lanes, &v->min) ||
        !ckr__sn_curve_lanes(c, d, "max", lanes, &v->max))
        return false;
    if (children && (!ckr_node_is_list(children) || children->count > CKR__SCHED_NODES))
        return false;
    v->children = children ? CKR__NEW_N(c, ckr__curve, children->count) : NULL;
    if (children && !v->children) return false;
    for (i = 0; children && i < children->count; i++, v->n_children++)
        if (!ckr__sn_curve_read(c, children->u.items[i], lanes, depth + 1, n_nodes,
                                &v->children[i]))
            return false;
    return ckr__sn_curve_ok(v);
}

static bool ckr__sn_flag(const ckr_node *d, const char *key)
{
    int64_t v;
    return ckr_node_i64(ckr_node_get(d, key), &v) && v != 0;
}

static bool ckr__sn_maps(const ckr_node *d, ckr_schedule *s)
{
    return ckr__sn_get(ckr_node_get(d, "rate"), &s->rate) &&
           ckr__sn_get(ckr_node_get(d, "offset"), &s->offset) &&
           ckr__sn_get(ckr_node_get(d, "a"), &s->a) && ckr__sn_get(ckr_node_get(d, "b"), &s->b) &&
           ckr__sn_get(ckr_node_get(d, "hold"), &s->hold) &&
           ckr__sn_get(ckr_node_get(d, "ramp_at"), &s->ramp_at) &&
           ckr__sn_get(ckr_node_get(d, "ramp_len"), &s->ramp_len);
}

/* The inverse of ckr__sched_node. */
static ckr_result ckr__sched_from_node(ckr__ctx *c, const ckr_node *d, ckr_schedule **out)
{
    const char *format = ckr_node_str(ckr_node_get(d, "format")),
               *kind = ckr_node_str(ckr_node_get(d, "kind")),
               *clock = ckr_node_str(ckr_node_get(d, "clock")),
               *reason = ckr_node_str(ckr_node_get(d, "reason"));
    const ckr_node *lanes = ckr_node_get(d, "lanes"), *params = ckr_node_get(d, "params");
    ckr__curve *curve = NULL;
    ckr_schedule *s;
    uint32_t n_nodes = 0;
    int64_t n = -1;
    bool ok;
    size_t i;
    *out = NULL;
    ok = format && !strcmp(format, CKR__SCHED_FORMAT) && kind && clock &&
         ckr_node_i64(ckr_node_get(d, "lanes_count"), &n) && n >= 0 && n < UINT32_MAX / 4;
    s = ok ? ckr__sched_new(c, NULL, (uint64_t)n) : NULL;
    if (ok && !s) return ckr__sched_oom(c);
    ok = ok && ckr_node_i64(ckr_node_get(d, "position"), &s->position) && ckr__sn_maps(d, s);
    for (i = 0; ok && i < CKR__LANE_FIELDS; i++)
        ok = ckr__sn_read(ckr_node_get(lanes, ckr__lane_names[i]),
                          (char *)s->lanes + i * sizeof(double), s->n_lanes, sizeof *s->lanes);
    if (ok && ckr__sn_flag(d, "known")) {
        curve = CKR__NEW(c, ckr__curve);
        ok = curve && ckr__sn_curve_read(c, ckr_node_get(d, "curve"), s->n_lanes, 0, &n_nodes,
                                         curve);
    }
    if (!ok)
        return ckr__fail(c->err, CKR_ITEM_SCHEDULE_STATE, NULL, CKR_NO_OFFSET, "schedule",
                         "not a schedule that this library wrote");
    s->kind = ckr__strdup(c, kind);
    s->clock = ckr__strdup(c, clock);
    s->reason = ckr__strdup(c, reason);
    s->params = (ckr_node *)(uintptr_t)params;
    s->curve = curve;
    s->opaque = ckr__sn_flag(d, "opaque");
    s->recurrent = ckr__sn_flag(d, "recurrent");
    s->anchored = ckr__sn_flag(d, "anchored");
    s->clamp = ckr__sn_flag(d, "clamp");
    if (!s->kind || !s->clock) return ckr__sched_oom(c);
    *out = s;
    return CKR_OK;
}

/* >>schedule.end -------------------------------------------------------------- */

/* Where the curve has reached its end, in its own time; NaN: it has none. */
static double ckr__curve_end(const ckr__curve *c)
{
    const ckr__curve_nums *k = &c->k;
    double end = ckr__nan(), v;
    uint32_t i;
    switch (c->kind) {
    case CKR__CV_HF:
        if (c->shape == CKR__SH_CONST || c->shape == CKR__SH_INVSQRT) return end;
        return c->shape == CKR__SH_WARM_FLOOR ? k->total - 1 : k->total;
    case CKR__CV_TABLE:     return c->n_list ? c->at[c->n_list - 1] : end;
    case CKR__CV_NANOTRON:  return k->start + k->decay;
    case CKR__CV_TITAN:     return k->start + k->decay - 1;
    case CKR__CV_TITAN_OLD: return k->start + k->decay;
    case CKR__CV_MEGATRON:  return c->shape == CKR__SH_CONST ? end : k->total;
    case CKR__CV_DS_WARMUP: return k->total;
    case CKR__CV_DS_COSINE: return k->total - 1;
    case CKR__CV_LLMC:      return c->shape == CKR__SH_CONST ? end : k->total;
    case CKR__CV_PIECES:
        return c->shape == CKR__SH_INVSQRT ? end : k->start + k->decay - k->decay_off;
    case CKR__CV_CONSTANT:
    case CKR__CV_LINEAR:
    case CKR__CV_POLY:
    case CKR__CV_COSINE:
    case CKR__CV_SWA:       return k->decay;
    case CKR__CV_MULTISTEP: return c->n_list ? c->at[c->n_list - 1] : end;
    case CKR__CV_ONECYCLE:  return k->total - 1;
    case CKR__CV_SEQ:
        return ckr__curve_end(&c->children[c->n_children - 1]) +
               (c->n_list ? c->at[c->n_list - 1] : 0);
    case CKR__CV_CHAIN:
        for (i = 0; i < c->n_children; i++) {
            v = ckr__curve_end(&c->children[i]);
            if (!(end >= v)) end = v;
            if (v != v) return v;
        }
        return end;
    default: return end;
    }
}

/* The clock value at which the schedule ends: with the next one it would hold, rise again, go below
   0 or be undefined. NaN when it has no end. */
static double ckr__sched_end(const ckr_schedule *s)
{
    double end;
    if (s->opaque || !s->curve || !(s->a > 0)) return ckr__nan();
    end = (ckr__curve_end(s->curve) - s->b) / s->a;
    return s->hold < end ? s->hold : end;
}

typedef struct ckr__scan {
    int64_t     negative, undefined, rise;   /* first update with it; 0: none              */
    int64_t     end;           /* first update at or behind the end; 0: never or unknown  */
    bool        ends_early;    /* the curve ends before the run does                       */
    bool        cut_short;     /* the run ends before the curve does                       */
    bool        never_decays;  /* no lane's last LR is below its largest                   */
    bool        unknown;       /* opaque                                                   */
    bool        sampled;       /* too long: a part of the updates was looked at            */
    const char *why;           /* of `undefined`                                           */
} ckr__scan;

/* One update's row into the scan; `top` and `was` remember each lane. */
static void ckr__scan_row(ckr__scan *r, int64_t update, const double *l, uint64_t n, double *top,
                          double *was)
{
    uint64_t i;
    for (i = 0; i < n; i++) {
        if (l[i] != l[i] && !r->undefined) r->undefined = update;
        if (l[i] < 0 && !r->negative) r->negative = update;
        if (r->end && update > r->end && l[i] > was[i] + 1e-9 * fabs(was[i]) && !r->rise)
            r->rise = update;
        if (l[i] > top[i]) top[i] = l[i];
        was[i] = l[i];
    }
}

/* The n updates from `first` on (n > 0). Looks at every update of up to 2^26 values, else at every
   k-th and at those around the end. */
static ckr_result ckr__sched_scan(ckr__ctx *c, const ckr_schedule *s, int64_t first, uint64_t n,
                                  ckr__scan *out)
{
    const double end = (ckr__sched_end(s) - s->offset) / s->rate;     /* updates done there     */
    const int64_t last = first + (int64_t)n - 1;
    ckr_schedule plain = *s;
    double *memory;
    ckr__srun *r;
    ckr_result e;
    uint64_t i, step;
    unsigned fp;
    memset(out, 0, sizeof *out);
    if (s->opaque || !s->curve || !n || !s->n_lanes) {
        out->unknown = true;
        return CKR_OK;
    }
    if (end >= 0 && end < 9e15) {
        out->end = (int64_t)ceil(end) + 1;
        out->ends_early = out->end < last;
        out->cut_short = out->end > last + 1;
    }
    r = (ckr__srun *)ckr__heap_alloc(c, sizeof *r);
    if (!r) return CKR_E_NOMEM;
    step = n / (((uint64_t)1 << 26) / (s->n_lanes < (1 << 16) ? s->n_lanes : 1 << 16)) + 1;
    out->sampled = step > 1;
    if (step > 1) plain.recurrent = false;
    fp = ckr__fp_enter();
    e = ckr__srun_begin(c, &plain, r);
    memory = e == CKR_OK ? (double *)ckr__heap_alloc(c, (size_t)r->n * 3 * sizeof *memory) : NULL;
    if (e == CKR_OK && !memory) e = CKR_E_NOMEM;
    if (e == CKR_OK) {
        double *top = memory, *was = memory + r->n, *row = was + r->n;
        r->simulate = ckr__srun_can_simulate(&plain, first, CKR__COL_LR);
        for (i = 0; i < r->n; i++) top[i] = was[i] = -ckr__inf();
        for (i = 0; i < n;) {
            const int64_t update = first + (int64_t)i, off = out->end ? update - out->end : 65;
            ckr__srun_at(r, s->rate * (double)(update - 1) + s->offset, CKR__COL_LR, row);
            ckr__scan_row(out, update, row, r->n, top, was);
            if (out->undefined && !out->why) out->why = r->why;
            if (i + 1 == n) break;
            i += off >= -64 - (int64_t)step && off <= 64 ? 1 : step;
            if (i >= n) i = n - 1;
        }
        out->never_decays = true;
        for (i = 0; i < r->n; i++) if (was[i] < top[i] || was[i] != was[i]) out->never_decays = false;
    }
    if (r->mem) ckr__heap_free(c, memory, (size_t)r->n * 3 * sizeof *memory);
    if (r->mem) ckr__srun_end(r);
    ckr__fp_leave(fp);
    ckr__heap_free(c, r, sizeof *r);
    return e;
}

/* >>schedule.change ----------------------------------------------------------- */
/* Changed parameters, and how the coming run goes on from the saved one. */

/* The target of a --set key in a row's list: *len bytes at the result, or NULL. */
static const char *ckr__set_target(const ckr__skind *row, const char *key, size_t *len)
{
    const size_t n = strlen(key);
    const char *p = row->set;
    while (*p) {
        *len = strcspn(p, " ");
        if (*len > n && p[n] == '=' && !memcmp(p, key, n)) {
            *len -= n + 1;
            return p + n + 1;
        }
        p += *len;
        p += *p == ' ';
    }
    return NULL;
}

static bool ckr__key_known(const ckr__skind *row, const ckr_node *key)
{
    const char *p = row->keys, *s = ckr_node_str(key);
    while (s && *p) {
        const size_t n = strcspn(p, ":");
        if (key->count == n && !memcmp(p, s, n)) return true;
        p += strcspn(p, " ");
        p += *p == ' ';
    }
    return false;
}

/* The parameters, without keys that `row` does not have. */
static ckr_node *ckr__set_params(ckr__ctx *c, const ckr_node *params, const ckr__skind *row)
{
    ckr_node *d = ckr__node(c, CKR_NODE_DICT);
    uint64_t i;
    for (i = 0; params && d && i < params->count; i++)
        if (ckr__key_known(row, params->u.items[2 * i]) &&
            !ckr__node_pair(c, d, params->u.items[2 * i], params->u.items[2 * i + 1]))
            return NULL;
    return d;
}

/* A number per lane with one changed: for a key that took one number for all. */
static ckr_node *ckr__set_one_lane(ckr__ctx *c, const ckr_schedule *s, const ckr_node *old,
                                   const char *what, uint64_t lane, ckr_node *value)
{
    ckr_node *list = ckr__node(c, CKR_NODE_LIST);
    const bool low = !strcmp(what, "min_lr"), high = s->lanes[0].max == s->lanes[0].max;
    uint64_t i;
    for (i = 0; i < s->n_lanes && list; i++) {
        const ckr_lane *l = &s->lanes[i];
        ckr_node *one = ckr_node_is_list(old) && i < old->count ? old->u.items[i] : NULL;
        if (!one) one = ckr__node_float(c, low ? l->min : high ? l->max : l->base);
        if (!ckr__node_push(c, list, i == lane ? value : one)) return NULL;
    }
    return list;
}

/* What the rebuilt schedule keeps of the old lanes: all that the key did not set. */
static void ckr__set_keep(const ckr_schedule *old, ckr_schedule *s, const char *what)
{
    const bool megatron = s->curve && s->curve->kind == CKR__CV_MEGATRON;
    const bool lr = !strcmp(what, "lr"), min = !strcmp(what, "min_lr"),
               wd = !strcmp(what, "weight_decay");
    uint64_t i;
    s->position = old->position;
    s->rate = old->rate;
    s->offset = old->offset;
    s->clock = old->clock;
    s->state = old->state;
    for (i = 0; i < s->n_lanes; i++) {
        ckr_lane *l = &s->lanes[i];
        const ckr_lane *o = &old->lanes[i];
        l->wd_mult = o->wd_mult;
        l->lr_mult = o->lr_mult;
        l->anchor = o->anchor;
        if (l->base_momentum != l->base_momentum) l->base_momentum = o->base_momentum;
        if (l->max_momentum != l->max_momentum) l->max_momentum = o->max_momentum;
        if (!megatron) continue;
        if (!lr) l->max = l->base = o->max;
        if (!min) l->min = o->min;
        if (!wd) l->start_wd = o->start_wd;
        if (!wd) l->end_wd = o->end_wd;
    }
}

typedef struct ckr__set {
    ckr__ctx           *c;
    const ckr_schedule *s;
    const char         *what, *text;
    int64_t             lane;
    double              value;
} ckr__set;

/* The value in the units of the schedule's own key. */
static ckr_node *ckr__set_value(const ckr__set *t, char unit, const ckr_node *params)
{
    const double base = t->s->n_lanes ? t->s->lanes[0].base : ckr__nan();
    double total = ckr__nan();
    if (unit == '*' && t->s->rate > 0) return ckr__sw_number(t->c, t->value * t->s->rate);
    if (unit == '/') return ckr__node_float(t->c, t->value / base);
    if (unit == '%') {
        if (!ckr_node_f64(ckr_node_get(params, "total_steps"), &total))
            ckr_node_f64(ckr_node_get(params, "steps"), &total);
        return ckr__node_float(t->c, t->value / total);
    }
    return ckr__spec_scalar(t->c, t->text, strlen(t->text));
}

/* Base LRs after the change: an LR goes to all lanes or to one. */
static double *ckr__set_bases(const ckr__set *t)
{
    const ckr_schedule *s = t->s;
    double *bases = CKR__NEW_N(t->c, double, s->n_lanes);
    uint64_t i;
    for (i = 0; bases && i < s->n_lanes; i++) {
        bases[i] = s->lanes[i].base;
        if (!strcmp(t->what, "lr") && (t->lane < 0 || (uint64_t)t->lane == i)) bases[i] = t->value;
    }
    return bases;
}

/* Puts the change into a copy of the parameters. */
static ckr_node *ckr__set_apply(const ckr__set *t, const ckr__skind *row, const char *to, size_t n,
                                bool *ok)
{
    ckr_node *d = ckr__set_params(t->c, t->s->params, row), *v;
    const char unit = *to == '/' || *to == '%' || *to == '*' ? *to : 0, *key;
    const bool lr = !strcmp(t->what, "lr");
    char typed[48];
    *ok = true;
    key = ckr__strndup(t->c, to + (unit != 0), n - (unit != 0));
    if (!d || !key) return NULL;
    v = ckr__set_value(t, unit, d);
    if (!v) return NULL;
    snprintf(typed, sizeof typed, "%s:v", key);
    if (t->lane >= 0 && !(lr && !strcmp(key, "lr"))) {
        if (!strstr(row->keys, typed)) {
            *ok = lr;                                     /* the base LRs say it             */
            return d;
        }
        v = ckr__set_one_lane(t->c, t->s, ckr_node_get(d, key), t->what, (uint64_t)t->lane, v);
    }
    if (t->lane >= 0 && lr && !strcmp(key, "lr")) v = ckr__node(t->c, CKR_NODE_NONE);
    if (!strcmp(t->what, "weight_decay") && !ckr__node_set(t->c, d, "start_wd", v)) return NULL;
    if (lr && !strcmp(key, "max_lr") && ckr__has(d, "lr") &&
        !ckr__node_set(t->c, d, "lr", ckr__node(t->c, CKR_NODE_NONE)))
        return NULL;
    if (!strcmp(key, "min_lr") && ckr__has(d, "min_lr_rate") &&
        !ckr__node_set(t->c, d, "min_lr_rate", ckr__node(t->c, CKR_NODE_NONE)))
        return NULL;
    if (!strcmp(key, "total_steps") && ckr__has(d, "steps") && !ckr__has(d, "total_steps"))
        key = "steps";
    return ckr__node_set(t->c, d, key, v) ? d : NULL;
}

static ckr_result ckr__set_unknown(ckr__ctx *c, const ckr_schedule *s, const ckr__skind *row,
                                   const char *key)
{
    char known[200];
    const char *p = row->set;
    size_t n = 0, len;
    known[0] = 0;
    while (*p) {
        len = strcspn(p, "=");
        if (n + len + 2 < sizeof known)
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%.*s", n ? " " : "", (int)len, p);
        p += strcspn(p, " ");
        p += *p == ' ';
    }
    return ckr__remedy(c->err, ckr__fail(c->err, CKR_ITEM_SCHEDULE, NULL, CKR_NO_OFFSET, key,
                                         "%s has nothing that %s sets; known are %s", s->kind, key,
                                         *known ? known : "none"),
                       "give the whole schedule of the coming run with --to-schedule");
}

/* A new schedule with one of the keys lr, min_lr, warmup_steps, decay_steps, total_steps,
   decay_style, weight_decay set, for all lanes (lane < 0) or for one. */
static ckr_result ckr__sched_set(ckr__ctx *c, const ckr_schedule *s, const char *key,
                                 const char *value, int64_t lane, ckr_schedule **out)
{
    const size_t at = strcspn(s->kind, ":");
    const char *name = s->kind[at] ? s->kind + at + 1 : "", *to = NULL, *p = value, *kind = s->kind;
    const ckr__skind *row = ckr__skind_find(s->kind, at, name, strlen(name));
    ckr_node *params;
    double *bases;
    ckr__set t;
    size_t n = 0;
    ckr_result e;
    bool ok = true;
    *out = NULL;
    memset(&t, 0, sizeof t);
    t.c = c;
    t.s = s;
    t.what = key;
    t.text = value;
    t.lane = lane;
    if (row && row->kind) to = ckr__set_target(row, key, &n);
    if (!to || lane >= (int64_t)s->n_lanes || !s->n_lanes)
        return ckr__set_unknown(c, s, row ? row : &ckr__skinds[CKR__SKINDS - 1], key);
    if (strcmp(key, "decay_style") && (!ckr__number_at(c, &p, &t.value) || *p || t.value < 0))
        return ckr__fail(c->err, CKR_ITEM_SCHEDULE, NULL, CKR_NO_OFFSET, key,
                         "%s must be a number of at least 0, it is %.60s", key, value);
    if (*to == '@') {
        kind = ckr__printf(c, "%.*s:%s", (int)at, s->kind, value);
        row = ckr__skind_find(s->kind, at, value, strlen(value));
        params = row ? ckr__set_params(c, s->params, row) : NULL;
        if (!row)
            return ckr__fail(c->err, CKR_ITEM_SCHEDULE, NULL, CKR_NO_OFFSET, key,
                             "there is no schedule %.100s", kind ? kind : value);
    } else {
        params = ckr__set_apply(&t, row, to, n, &ok);
        if (!ok) return ckr__set_unknown(c, s, row, key);
    }
    bases = ckr__set_bases(&t);
    if (!params || !bases || !kind) return ckr__sched_oom(c);
    e = ckr__sched_build(c, kind, params, bases, s->n_lanes, out);
    if (e == CKR_OK) ckr__set_keep(s, *out, key);
    return e;
}

/* >>schedule.rebase ----------------------------------------------------------- */

typedef enum ckr__rebase {
    CKR__REBASE_KEEP = 0,      /* as the saved run would have gone on; past its end the end's LR */
    CKR__REBASE_TARGET,        /* the new schedule at this step                              */
    CKR__REBASE_SPLICE,        /* the new one, scaled above its floor to be continuous here  */
    CKR__REBASE_STRETCH,       /* the rest of the old curve over the new length              */
    CKR__REBASE_REWARM         /* from 0 to the new one's value `rewarm_steps` later         */
} ckr__rebase;

static ckr_schedule *ckr__sched_copy(ckr__ctx *c, const ckr_schedule *s)
{
    ckr_schedule *n = CKR__NEW(c, ckr_schedule);
    if (!n) return NULL;
    *n = *s;
    n->lanes = CKR__NEW_N(c, ckr_lane, s->n_lanes);
    if (!n->lanes) return NULL;
    if (s->n_lanes) memcpy(n->lanes, s->lanes, (size_t)s->n_lanes * sizeof *n->lanes);
    return n;
}

/* What the curve does not go below by itself, before the maps. */
static double ckr__sched_floor(const ckr__curve *c, const ckr_lane *l)
{
    switch (c->kind) {
    case CKR__CV_HF:
        if (c->shape == CKR__SH_POLY) return l->base * (c->k.floor / c->k.top);
        return c->k.floor == c->k.floor ? l->base * c->k.floor : 0;
    case CKR__CV_TITAN:
    case CKR__CV_TITAN_OLD:
    case CKR__CV_DS_COSINE:
    case CKR__CV_LLMC:      return l->base * c->k.floor;
    case CKR__CV_PIECES:    return c->k.floor + l->base * c->k.floor_ratio;
    case CKR__CV_NANOTRON:
    case CKR__CV_MEGATRON:
    case CKR__CV_DS_WARMUP:
    case CKR__CV_COSINE:
    case CKR__CV_RESTARTS:
    case CKR__CV_SWA:
    case CKR__CV_ONECYCLE:  return l->min == l->min ? l->min : 0;
    case CKR__CV_CYCLIC:    return l->base;
    default:                return 0;
    }
}

static ckr_result ckr__rebase_fail(ckr__ctx *c, const char *mode, const char *remedy,
                                   const char *text)
{
    return ckr__remedy(c->err, ckr__fail(c->err, CKR_ITEM_SCHEDULE_REBASE, NULL, CKR_NO_OFFSET,
                                         mode, "%s", text),
                       remedy);
}

static ckr_result ckr__rebase_keep(const ckr_schedule *old, double t, ckr_schedule *s)
{
    const double end = ckr__sched_end(old);
    s->clamp = true;
    if (end != end) return CKR_OK;
    if (t <= end) s->hold = end;
    else if (old->curve->kind != CKR__CV_COSINE && t < s->hold) s->hold = t;
    return CKR_OK;
}

static ckr_result ckr__rebase_splice(ckr__ctx *c, double t, const double *was, double *now,
                                     ckr_schedule *s)
{
    uint64_t i;
    ckr_result e = ckr__sched_at(c, s, CKR__COL_LR, t, now);
    for (i = 0; e == CKR_OK && i < s->n_lanes; i++) {
        ckr_lane *l = &s->lanes[i];
        const double low = l->q + l->p * ckr__sched_floor(s->curve, l), up = now[i] - low;
        double x = 1;
        if (ckr__same(was[i], now[i])) continue;
        if (!(up > 0) || !(was[i] > low) || !ckr__finite(x = (was[i] - low) / up))
            return ckr__rebase_fail(c, "splice", "use --lr-policy target or rewarm",
                                    "the LR here or the new schedule's is at its floor or not "
                                    "known: no scaling makes them meet");
        l->q = low - low * x + x * l->q;
        l->p *= x;
    }
    s->anchored = false;
    return e;
}

/* r: how many old clock units one new unit of the rest is worth. */
static ckr_result ckr__rebase_stretch(ckr__ctx *c, const ckr_schedule *old,
                                      const ckr_schedule *target, double t, const double *was,
                                      double *now, ckr_schedule *s)
{
    const double end = ckr__sched_end(old),
                 to = (ckr__sched_end(target) - target->offset) / target->rate * old->rate +
                      old->offset;
    const double r = (end - t) / (to - t);
    uint64_t i;
    ckr_result e;
    if (end != end || to != to)
        return ckr__rebase_fail(c, "stretch", "use --lr-policy target or splice",
                                "the old or the new schedule has no end, so nothing to stretch");
    if (t >= end)
        return ckr__rebase_fail(c, "stretch", "use --lr-policy rewarm or target",
                                "the old schedule has ended: nothing is left to stretch");
    if (to <= t)
        return ckr__rebase_fail(c, "stretch", "give a larger total_steps",
                                "the new schedule ends before this step");
    s->b = s->a * t * (1 - r) + s->b;
    s->a = s->a * r;
    s->hold = to;
    s->clamp = true;
    s->anchored = false;
    if (!old->recurrent) return CKR_OK;
    s->recurrent = false;                    /* its closed form, scaled to where it has come to */
    e = ckr__sched_at(c, s, CKR__COL_LR, t, now);
    for (i = 0; e == CKR_OK && i < s->n_lanes; i++) {
        const double x = was[i] / now[i];
        if (!ckr__finite(x)) continue;
        s->lanes[i].p *= x;
        s->lanes[i].q *= x;
    }
    return e;
}

static ckr_result ckr__rebase_rewarm(ckr__ctx *c, double t, int64_t steps, double *now,
                                     ckr_schedule *s)
{
    uint64_t i;
    ckr_result e;
    if (steps <= 0)
        return ckr__rebase_fail(c, "rewarm", "give --rewarm-steps N",
                                "warming up again needs a number of steps");
    e = ckr__sched_at(c, s, CKR__COL_LR, t + (double)steps * s->rate, now);
    if (e != CKR_OK) return e;
    s->ramp_at = t;
    s->ramp_len = (double)steps * s->rate;
    s->anchored = false;
    for (i = 0; i < s->n_lanes; i++) {
        if (now[i] != now[i])
            return ckr__rebase_fail(c, "rewarm", "give another --rewarm-steps or schedule",
                                    "the new schedule says nothing at the end of the warmup");
        s->lanes[i].ramp_from = 0;
        s->lanes[i].ramp_to = now[i];
    }
    return CKR_OK;
}

/* How the coming run goes on after `updates` updates: a schedule for it. `target` (the new one, or
   NULL where the mode needs none) has the lanes of `old`. Splice and stretch are continuous to 1e-12
   of the LR; keep holds the end's LR and is never below 0. */
static ckr_result ckr__sched_rebase(ckr__ctx *c, const ckr_schedule *old,
                                    const ckr_schedule *target, ckr__rebase mode, int64_t updates,
                                    int64_t rewarm_steps, ckr_schedule **out)
{
    const bool keeps = mode == CKR__REBASE_KEEP || mode == CKR__REBASE_STRETCH;
    const ckr_schedule *base = keeps || !target ? old : target;
    const double t_old = old->rate * (double)updates + old->offset,
                 t = base->rate * (double)updates + base->offset;
    double *was = CKR__NEW_N(c, double, old->n_lanes), *now = CKR__NEW_N(c, double, old->n_lanes);
    ckr_schedule *s = ckr__sched_copy(c, base);
    ckr_result e;
    *out = NULL;
    if (!was || !now || !s) return ckr__sched_oom(c);
    if (base->n_lanes != old->n_lanes)
        return ckr__fail(c->err, CKR_ITEM_ARG, NULL, CKR_NO_OFFSET, "target",
                         "%llu lanes, the old schedule has %llu",
                         (unsigned long long)base->n_lanes, (unsigned long long)old->n_lanes);
    if (!s->curve || s->opaque) {
        if (mode != CKR__REBASE_KEEP && mode != CKR__REBASE_TARGET)
            return ckr__rebase_fail(c, "schedule", "tell the curve with --schedule",
                                    "the curve is not known, so it cannot be changed");
        *out = s;
        return CKR_OK;
    }
    e = old->opaque ? CKR_OK : ckr__sched_at(c, old, CKR__COL_LR, t_old, was);
    if (old->opaque) {
        uint64_t i;
        for (i = 0; i < old->n_lanes; i++) was[i] = old->lanes[i].anchor;
    }
    if (e != CKR_OK) return e;
    s->position = ckr__whole(t) ? (int64_t)t : old->position;
    if (base != old) s->anchored = false;
    if (mode == CKR__REBASE_KEEP) {
        s->position = old->position;
        e = ckr__rebase_keep(old, t_old, s);
    } else if (mode == CKR__REBASE_SPLICE) {
        e = ckr__rebase_splice(c, t, was, now, s);
    } else if (mode == CKR__REBASE_STRETCH) {
        e = ckr__rebase_stretch(c, old, target ? target : old, t, was, now, s);
    } else if (mode == CKR__REBASE_REWARM) {
        e = ckr__rebase_rewarm(c, t, rewarm_steps, now, s);
    }
    if (e == CKR_OK) *out = s;
    return e;
}

/* >>state --------------------------------------------------------------------- */
/* Filling a run state. Everything lives in the arena of the context that owns the state, so there
   is nothing to free one by one. Makers return NULL or an error class after setting c->err.      */

static void ckr__state_init(ckr_state *s)
{
    memset(s, 0, sizeof *s);
    s->progress.step = s->progress.samples = s->progress.tokens = s->progress.epoch = -1;
}

/* One more element of an arena array whose capacity is the next power of two >= count, from 4. */
static void *ckr__append(ckr__ctx *c, void **array, uint64_t *count, size_t size)
{
    uint64_t cap = 0;
    if (*count >= 4) for (cap = 4; cap < *count; cap *= 2) {}
    else if (*count) cap = 4;
    if (!ckr__arena_grow(c, array, &cap, *count + 1, size)) return NULL;
    return (char *)*array + size * (size_t)(*count)++;
}

/* `shape` is copied; name and slot must live as long as the state. */
static ckr_tensor *ckr__tensor_add(ckr__ctx *c, ckr_state *s, const char *name, const char *slot,
                                   ckr_dtype dtype, uint32_t n_dims, const int64_t *shape)
{
    ckr_tensor *t = CKR__NEW(c, ckr_tensor), **place;
    int64_t *dims = CKR__NEW_N(c, int64_t, n_dims);
    void *array = s->tensors;
    if (!t || !dims) return NULL;
    place = (ckr_tensor **)ckr__append(c, &array, &s->n_tensors, sizeof *s->tensors);
    s->tensors = (ckr_tensor **)array;
    if (!place) return NULL;
    if (n_dims) memcpy(dims, shape, n_dims * sizeof *dims);
    t->name = name;
    t->slot = slot;
    t->dtype = dtype;
    t->n_dims = n_dims;
    t->shape = dims;
    t->split.axis = -1;
    t->index = (uint32_t)(s->n_tensors - 1);
    *place = t;
    return t;
}

/* A zeroed piece of n_dims at the end of the tensor's list, with room for its three arrays. */
static ckr_piece *ckr__piece_add(ckr__ctx *c, ckr_tensor *t, uint32_t n_dims, int64_t **start,
                                 int64_t **count, int64_t **stride)
{
    uint64_t cap = t->cap_pieces;
    void *array = t->pieces;
    int64_t *v = CKR__NEW_N(c, int64_t, 3 * (uint64_t)n_dims);
    ckr_piece *p;
    if (!v) return NULL;
    if (!cap) {                /* most tensors have one                                  */
        array = CKR__NEW(c, ckr_piece);
        if (!array) return NULL;
        cap = 1;
    } else if (!ckr__arena_grow(c, &array, &cap, (uint64_t)t->n_pieces + 1, sizeof *t->pieces)) {
        return NULL;
    }
    t->pieces = (ckr_piece *)array;
    t->cap_pieces = (uint32_t)cap;
    p = &t->pieces[t->n_pieces++];
    memset(p, 0, sizeof *p);
    p->n_dims = n_dims;
    p->start = *start = v;
    p->count = *count = v + n_dims;
    p->stride = *stride = v + 2 * (size_t)n_dims;
    p->file = CKR_NO_FILE;
    p->dtype = t->dtype;
    p->rank = -1;
    return p;
}

/* A report entry; the strings are copied, all but code and reason may be NULL. */
static bool ckr__note(ckr__ctx *c, ckr_note **notes, uint64_t *n, const char *code,
                      ckr_severity severity, const char *subject, const char *old_value,
                      const char *new_value, const char *reason, const char *remedy)
{
    void *array = *notes;
    ckr_note *e = (ckr_note *)ckr__append(c, &array, n, sizeof **notes);
    *notes = (ckr_note *)array;
    if (!e) return false;
    memset(e, 0, sizeof *e);
    e->code = code;
    e->severity = severity;
    if (subject) e->subject = ckr__strdup(c, subject);
    if (old_value) e->old_value = ckr__strdup(c, old_value);
    if (new_value) e->new_value = ckr__strdup(c, new_value);
    if (reason) e->reason = ckr__strdup(c, reason);
    if (remedy) e->remedy = ckr__strdup(c, remedy);
    return true;
}

static bool ckr__leftover(ckr__ctx *c, ckr_state *s, const char *path, const ckr_node *node)
{
    void *array = s->leftovers;
    ckr_leftover *l = (ckr_leftover *)ckr__append(c, &array, &s->n_leftovers, sizeof *s->leftovers);
    s->leftovers = (ckr_leftover *)array;
    if (!l) return false;
    l->path = path;
    l->node = node;
    return true;
}

/* The tensor of a name and slot, or NULL. Linear: for lookups in bulk build a ckr__map. */
static ckr_tensor *ckr__tensor_find(const ckr_state *s, const char *name, const char *slot)
{
    uint64_t i;
    for (i = 0; i < s->n_tensors; i++)
        if (!strcmp(s->tensors[i]->slot, slot) && !strcmp(s->tensors[i]->name, name))
            return s->tensors[i];
    return NULL;
}

/* >>layout -------------------------------------------------------------------- */
/* Boxes. A framework stores a *block* (the part of a tensor that one rank holds, row-major); a
   block's elements lie in the tensor where its *pairs* say (one pair per fused chunk); and the
   file holds all of the block, or a flat range of it (ZeRO). ckr__flat_pieces turns that into
   pieces, for reading (pieces of a tensor) and for writing (pieces of an entry) alike.          */

typedef struct ckr__pair { int64_t *local, *global, *count; } ckr__pair;

typedef struct ckr__block {
    uint32_t   n_dims;
    int64_t   *shape;          /* of the block                                          */
    uint32_t   n_pairs;
    ckr__pair *pairs;          /* disjoint boxes that cover the block                   */
} ckr__block;

/* A block of n_pairs pairs over n_dims, zeroed. */
static ckr__block *ckr__block_new(ckr__ctx *c, uint32_t n_dims, uint32_t n_pairs)
{
    ckr__block *b = CKR__NEW(c, ckr__block);
    uint64_t i;
    if (!b) return NULL;
    b->n_dims = n_dims;
    b->n_pairs = n_pairs;
    b->shape = CKR__NEW_N(c, int64_t, n_dims);
    b->pairs = CKR__NEW_N(c, ckr__pair, n_pairs);
    if (!b->shape || !b->pairs) return NULL;
    for (i = 0; i < n_pairs; i++) {
        int64_t *v = CKR__NEW_N(c, int64_t, 3 * (uint64_t)n_dims);
        if (!v) return NULL;
        b->pairs[i].local = v;
        b->pairs[i].global = v + n_dims;
        b->pairs[i].count = v + 2 * (size_t)n_dims;
    }
    return b;
}

/* The whole tensor as one block. */
static ckr__block *ckr__block_whole(ckr__ctx *c, uint32_t n_dims, const int64_t *shape)
{
    ckr__block *b = ckr__block_new(c, n_dims, 1);
    if (!b) return NULL;
    if (n_dims) {
        memcpy(b->shape, shape, n_dims * sizeof *shape);
        memcpy(b->pairs[0].count, shape, n_dims * sizeof *shape);
    }
    return b;
}

/* The block of rank r of tp ranks. `shape` is the tensor's with padding. Refused when a chunk, or a
   unit of it, does not divide: then *uneven says the size that tp does not divide and the result is
   NULL without an error set. */
static ckr__block *ckr__block_split(ckr__ctx *c, const ckr_split *split, uint32_t n_dims,
                                    const int64_t *shape, uint32_t tp, uint32_t r, int64_t *uneven)
{
    uint32_t n, k;
    int64_t global = 0, local = 0;
    ckr__block *b;
    *uneven = 0;
    if (split->axis < 0) return ckr__block_whole(c, n_dims, shape);
    n = split->n_chunks ? split->n_chunks : 1;
    b = ckr__block_new(c, n_dims, n);
    if (!b) return NULL;
    memcpy(b->shape, shape, n_dims * sizeof *shape);
    for (k = 0; k < n; k++) {
        int64_t size = split->n_chunks ? split->chunks[k] : shape[split->axis];
        int64_t unit = split->units && split->units[k] > 0 ? split->units[k] : 1;
        int64_t part = size / (int64_t)tp;
        if (size % unit != 0 || (size / unit) % (int64_t)tp != 0) {
            *uneven = size / unit;
            return NULL;
        }
        memcpy(b->pairs[k].count, shape, n_dims * sizeof *shape);
        b->pairs[k].count[split->axis] = part;
        b->pairs[k].local[split->axis] = local;
        b->pairs[k].global[split->axis] = global + (int64_t)r * part;
        local += part;
        global += size;
    }
    b->shape[split->axis] = local;
    return b;
}

typedef bool (*ckr__piece_fn)(void *arg, uint32_t n_dims, const int64_t *start,
                              const int64_t *count, const int64_t *stride, uint64_t offset);

/* One box of the block (all of its axes) against every pair. */
static bool ckr__box_pieces(const ckr__block *b, const int64_t *lo, const int64_t *n, int64_t begin,
                            uint64_t base, int64_t elem, ckr__piece_fn fn, void *arg)
{
    int64_t start[CKR_MAX_DIMS], count[CKR_MAX_DIMS], stride[CKR_MAX_DIMS], at, s;
    uint32_t i, d;
    for (i = 0; i < b->n_pairs; i++) {
        const ckr__pair *p = &b->pairs[i];
        bool empty = false;
        for (d = b->n_dims, s = 1, at = 0; d-- > 0; s *= b->shape[d]) {
            int64_t a = ckr__max_i64(lo[d], p->local[d]);
            int64_t e = ckr__min_i64(lo[d] + n[d], p->local[d] + p->count[d]);
            if (e <= a) { empty = true; break; }
            start[d] = p->global[d] + (a - p->local[d]);
            count[d] = e - a;
            stride[d] = s * elem;
            at += a * s;
        }
        if (!empty &&
            !fn(arg, b->n_dims, start, count, stride, base + (uint64_t)((at - begin) * elem)))
            return false;
    }
    return true;
}

/* The elements [begin, end) of the block in row-major order, stored contiguously from `base` in
   elements of `elem` bytes: at most 2 * n_dims - 1 boxes, each cut along the pairs. The caller has
   checked that the block's size in bytes fits 63 bits.                                           */
static bool ckr__flat_pieces(const ckr__block *b, int64_t begin, int64_t end, uint64_t base,
                             int64_t elem, ckr__piece_fn fn, void *arg)
{
    int64_t lo[CKR_MAX_DIMS], n[CKR_MAX_DIMS], size[CKR_MAX_DIMS + 1], at = begin;
    uint32_t d, k;
    for (d = b->n_dims, size[b->n_dims] = 1; d-- > 0;) size[d] = size[d + 1] * b->shape[d];
    while (at < end) {
        int64_t rest = at, take = 1;
        /* the outermost axis along which whole sub-blocks start here and fit */
        for (d = 0; d < b->n_dims; d++)
            if (at % size[d + 1] == 0 && size[d + 1] <= end - at) break;
        for (k = 0; k < b->n_dims; k++) {
            lo[k] = rest / size[k + 1];
            rest %= size[k + 1];
            n[k] = 1;
        }
        if (b->n_dims) {
            take = ckr__min_i64((end - at) / size[d + 1], b->shape[d] - lo[d]);
            n[d] = take;
            for (k = d + 1; k < b->n_dims; k++) {
                lo[k] = 0;
                n[k] = b->shape[k];
            }
            take *= size[d + 1];
        }
        if (!ckr__box_pieces(b, lo, n, begin, base, elem, fn, arg)) return false;
        at += take;
    }
    return true;
}

/* Reading: the flat range lies in a file; pieces go to a tensor, clipped to its logical shape. */
typedef struct ckr__reader {
    ckr__ctx   *c;
    ckr_tensor *tensor;
    ckr_dtype   dtype;
    uint32_t    file;
    int32_t     rank;
    bool        replica, big_endian;
    const void *mem;           /* instead of a file                                     */
} ckr__reader;

static bool ckr__reader_piece(void *arg, uint32_t n_dims, const int64_t *start,
                              const int64_t *count, const int64_t *stride, uint64_t offset)
{
    ckr__reader *r = (ckr__reader *)arg;
    int64_t *ps, *pc, *pt;
    uint32_t d;
    ckr_piece *p;
    for (d = 0; d < n_dims; d++)
        if (start[d] >= r->tensor->shape[d]) return true;      /* padding only */
    p = ckr__piece_add(r->c, r->tensor, n_dims, &ps, &pc, &pt);
    if (!p) return false;
    for (d = 0; d < n_dims; d++) {
        ps[d] = start[d];
        pc[d] = ckr__min_i64(count[d], r->tensor->shape[d] - start[d]);
        pt[d] = stride[d];
    }
    p->dtype = r->dtype;
    p->file = r->file;
    p->rank = r->rank;
    p->replica = r->replica;
    p->big_endian = r->big_endian;
    p->mem = r->mem ? (const char *)r->mem + offset : NULL;
    p->offset = r->mem ? 0 : offset;
    return true;
}

/* Elements [begin, end) of the block, which the file holds contiguously from byte `base`. */
static bool ckr__read_flat(ckr__reader *r, const ckr__block *b, int64_t begin, int64_t end,
                           uint64_t base)
{
    return ckr__flat_pieces(b, begin, end, base, (int64_t)ckr_dtype_size(r->dtype),
                            ckr__reader_piece, r);
}

/* The block as a strided view of a file (any strides): one piece per pair. */
static bool ckr__read_view(ckr__reader *r, const ckr__block *b, const ckr_view *v)
{
    int64_t stride[CKR_MAX_DIMS], elem = (int64_t)ckr_dtype_size(v->dtype);
    uint32_t i, d;
    if (v->n_dims != b->n_dims) return false;
    r->dtype = v->dtype;
    r->file = v->file;
    r->big_endian = v->big_endian;
    r->mem = v->bytes;
    for (i = 0; i < b->n_pairs; i++) {
        const ckr__pair *p = &b->pairs[i];
        int64_t at = v->offset;
        bool empty = false;
        for (d = 0; d < b->n_dims; d++) {
            stride[d] = v->stride[d] * elem;
            at += p->local[d] * v->stride[d];
            if (p->count[d] == 0) empty = true;
        }
        if (!empty && !ckr__reader_piece(r, b->n_dims, p->global, p->count, stride,
                                         (v->bytes ? 0 : v->data_offset) + (uint64_t)(at * elem)))
            return false;
    }
    return true;
}

/* >>out ----------------------------------------------------------------------- */
/* What is to be written: files, each a tree or a text, whose tensor leaves are *entries*: a dtype
   and shape, and which boxes of which logical tensors lie where in it. What no box covers is zero.
   */

typedef struct ckr__bind { const ckr_tensor *tensor; ckr_piece piece; } ckr__bind;

struct ckr_entry {
    ckr_dtype      dtype;
    uint32_t       n_dims;
    const int64_t *shape;
    bool           requires_grad, parameter;
    bool           as_bytes;   /* the container has no such dtype: n_bytes of U8, one axis */
    const char    *name;       /* for messages                                          */
    uint64_t       n_bytes;
    ckr__bind     *binds;
    uint64_t       n_binds;
    uint64_t       offset;     /* of its first byte in the file, set by the container    */
    uint32_t       crc;        /* of its bytes, set when they have been written          */
    void          *ops;        /* of the plan                                           */
    uint64_t       n_ops;
};

typedef struct ckr__out_file {
    const char  *path;         /* relative to the output                                */
    ckr_format   format;       /* TORCH_ZIP, SAFETENSORS, or TEXT                       */
    ckr_node    *root;         /* TORCH_ZIP: any tree; SAFETENSORS: dict name -> ENTRY   */
    ckr_node    *metadata;     /* SAFETENSORS: dict str -> str, or NULL: no __metadata__ */
    const void  *text;
    uint64_t     n_text;
    ckr_entry  **entries;      /* every ENTRY of root, in the order of appearance       */
    uint64_t     n_entries;
    void        *image;        /* of the container writer                               */
} ckr__out_file;

typedef struct ckr__out {
    ckr__ctx       *c;
    ckr__out_file **files;
    uint64_t        n_files;
    int64_t vocab,
        padded_vocab; /* what the files' rows mean, for the side file; 0: nothing to say */
} ckr__out;

static ckr__out_file *ckr__out_file_add(ckr__out *o, const char *path, ckr_format format)
{
    ckr__out_file *f = CKR__NEW(o->c, ckr__out_file), **place;
    void *array = o->files;
    if (!f) return NULL;
    place = (ckr__out_file **)ckr__append(o->c, &array, &o->n_files, sizeof *o->files);
    o->files = (ckr__out_file **)array;
    if (!place) return NULL;
    f->path = path;
    f->format = format;
    *place = f;
    return f;
}

/* An ENTRY node for the file's tree. NULL sets the error (also when the size overflows). */
static ckr_node *ckr__entry_new(ckr__ctx *c, ckr__out_file *f, const char *name, ckr_dtype dtype,
                                uint32_t n_dims, const int64_t *shape)
{
    ckr_entry *e = CKR__NEW(c, ckr_entry), **place;
    int64_t *dims = CKR__NEW_N(c, int64_t, n_dims), n;
    ckr_node *node = ckr__node(c, CKR_NODE_ENTRY);
    void *array = f->entries;
    if (!e || !dims || !node) return NULL;
    if (!ckr__numel(n_dims, shape, &n) ||
        !ckr__mul_u64((uint64_t)n, ckr_dtype_size(dtype), &e->n_bytes) || e->n_bytes > INT64_MAX) {
        ckr__fail(c->err, CKR_ITEM_SIZE_OVERFLOW, f->path, CKR_NO_OFFSET, name, NULL);
        return NULL;
    }
    if (n_dims) memcpy(dims, shape, n_dims * sizeof *dims);
    e->dtype = dtype;
    e->n_dims = n_dims;
    e->shape = dims;
    e->name = name;
    place = (ckr_entry **)ckr__append(c, &array, &f->n_entries, sizeof *f->entries);
    f->entries = (ckr_entry **)array;
    if (!place) return NULL;
    *place = e;
    node->u.entry = e;
    return node;
}

typedef struct ckr__binder {
    ckr__ctx *c;
    ckr_entry *entry;
    const ckr_tensor *tensor;
    bool replica;
} ckr__binder;

static bool ckr__binder_piece(void *arg, uint32_t n_dims, const int64_t *start,
                              const int64_t *count, const int64_t *stride, uint64_t offset)
{
    ckr__binder *w = (ckr__binder *)arg;
    void *array = w->entry->binds;
    ckr__bind *b =
        (ckr__bind *)ckr__append(w->c, &array, &w->entry->n_binds, sizeof *w->entry->binds);
    int64_t *v = CKR__NEW_N(w->c, int64_t, 3 * (uint64_t)n_dims);
    w->entry->binds = (ckr__bind *)array;
    if (!b || !v) return false;
    memset(b, 0, sizeof *b);
    if (n_dims) {
        memcpy(v, start, n_dims * sizeof *v);
        memcpy(v + n_dims, count, n_dims * sizeof *v);
        memcpy(v + 2 * (size_t)n_dims, stride, n_dims * sizeof *v);
    }
    b->tensor = w->tensor;
    b->piece.n_dims = n_dims;
    b->piece.start = v;
    b->piece.count = v + n_dims;
    b->piece.stride = v + 2 * (size_t)n_dims;
    b->piece.offset = offset;
    b->piece.dtype = w->entry->dtype;
    b->piece.file = CKR_NO_FILE;
    b->piece.replica = w->replica;
    return true;
}

/* Writing: elements [begin, end) of the tensor's block go into the entry from byte `at` on.
   `replica`: another entry holds them too (a copy for another rank; the digest counts one). */
static bool ckr__bind_flat(ckr__ctx *c, ckr_entry *e, const ckr_tensor *t, bool replica,
                           const ckr__block *b, int64_t begin, int64_t end, uint64_t at)
{
    ckr__binder w;
    w.c = c;
    w.entry = e;
    w.tensor = t;
    w.replica = replica;
    return ckr__flat_pieces(b, begin, end, at, (int64_t)ckr_dtype_size(e->dtype), ckr__binder_piece,
                            &w);
}

/* An entry that holds a stored tensor as it is (a leftover, an RNG state): one anonymous tensor. */
static ckr_node *ckr__entry_copy(ckr__ctx *c, ckr__out_file *f, const char *name, const ckr_view *v)
{
    ckr_node *n;
    ckr_tensor *t;
    ckr__block *b;
    ckr__reader r;
    int64_t numel = 1;
    uint32_t d;
    if (v->n_dims > CKR_MAX_DIMS || v->layout || v->meta || v->conj || v->neg ||
        !ckr_dtype_size(v->dtype)) {
        ckr__fail(c->err, CKR_ITEM_COPY_TENSOR, f->path, CKR_NO_OFFSET, name, NULL);
        return NULL;
    }
    n = ckr__entry_new(c, f, name, v->dtype, v->n_dims, v->shape);
    t = CKR__NEW(c, ckr_tensor);
    b = ckr__block_whole(c, v->n_dims, v->shape);
    if (!n || !t || !b) return NULL;
    t->name = name;
    t->slot = "";
    t->dtype = v->dtype;
    t->n_dims = v->n_dims;
    t->shape = v->shape;
    t->split.axis = -1;
    memset(&r, 0, sizeof r);
    r.c = c;
    r.tensor = t;
    r.rank = -1;
    for (d = 0; d < v->n_dims; d++) numel *= v->shape[d];
    if (!ckr__read_view(&r, b, v)) return NULL;
    n->u.entry->requires_grad = v->requires_grad;
    n->u.entry->parameter = v->parameter;
    return ckr__bind_flat(c, n->u.entry, t, true, b, 0, numel, 0) ? n : NULL;
}

/* >>dialects ------------------------------------------------------------------ */
/* A dialect knows the file names, key names and sharding rules of one framework, in both
   directions, and contains no copy loops. Each is one row of the table at the end of the section.
   */

typedef struct ckr__dialect {
    const char *name;
    const char *variants;      /* its layouts, blanks between; NULL: it has one        */
    /* Is `path` (a directory, or a file) this dialect's? Then *dir is the checkpoint itself: for a
       run directory the newest complete step, as the framework would choose it. */
    ckr_result (*probe_fn)(ckr__ctx *c, const char *path, const char **dir, bool *mine);
    /* Fills the state. s->vocab is set before the call when the caller or the side file knows it.
       */
    ckr_result (*read_fn)(ckr__ctx *c, const char *dir, const ckr_open_desc *desc, ckr_state *s);
    /* Describes the target's files. `c` is the plan's context: its arena holds what is made here,
       its error is for failures (memory, contract). What policy or arithmetic forbids is a note of
       severity CKR_ERROR, after which the result may be incomplete; nothing is written then. */
    ckr_result (*emit_fn)(ckr__ctx *c, const ckr_state *s, const ckr_target *t, ckr__out *out,
                          ckr_note **notes, uint64_t *n_notes);
} ckr__dialect;

/* >>nanotron ------------------------------------------------------------------ */
/* Checkpoints of huggingface/nanotron, versions 1.2 to 1.5. One directory a step:
     model/<module path>/model_<leaf>[<ranks>].safetensors
       ranks: _pp-rank-P-of-PP_tp-rank-T-of-TP[_exp-rank-E-of-EP]
     optimizer/optimizer_pp-P-of-PP[_dp-D-of-DP]_tp-T-of-TP[_exp-E-of-EP].pt      dp: ZeRO-1
     lr_scheduler/lr_scheduler[_pp-P-of-PP[_dp-D-of-DP][_tp-T-of-TP_exp-E-of-EP]].pt
     random/tp-T-of-TP_dp-D-of-DP_pp-P-of-PP.pt
     optimizer/optimizer_config.json  checkpoint_metadata.json  config.yaml  model_config.json
   and latest.txt beside the steps. A sharded weight says in its metadata which of its boxes lie
   where in the whole tensor; optimizer tensors of a tensor parallel rank are cut like the weight
   of that rank and, with ZeRO-1, flattened and cut again over dp. Whatever an optimizer file
   holds goes through its `names`: indices differ from file to file. Names, not positions, tie
   everything together. */

enum { CKR__NT_WEIGHT = 0, CKR__NT_OPTIMIZER, CKR__NT_SCHEDULER, CKR__NT_RANDOM, CKR__NT_KINDS };

#define CKR__NT_HEAD "model.lm_head.pp_block.weight"
#define CKR__NT_ORDERLESS UINT64_MAX

typedef struct ckr__nt_file {
    const char *rel, *path;    /* below the step directory; as opened                    */
    const char *name;          /* of the parameter, of a weight                          */
    uint32_t    kind;
    uint32_t    pp, n_pp, dp, n_dp, tp, n_tp, ep, n_ep;   /* n 0: the name doesn't say   */
    const ckr_node *root;
} ckr__nt_file;

typedef struct ckr__nt_slot {
    ckr_tensor *tensor;
    int64_t     covered;       /* elements, replicas not counted                         */
    bool        scalar;        /* one value for the parameter (step)                     */
} ckr__nt_slot;

typedef struct ckr__nt_param {
    const char     *name;
    uint64_t        order;     /* in the optimizer; CKR__NT_ORDERLESS: in none           */
    int64_t         block;     /* 0 embedding, 1 + i decoder i, L + 1 norm, L + 2 head; -1 */
    int64_t         pp;        /* the stage that holds it, -1 not known                  */
    uint32_t        first_tp;  /* of the first optimizer file with it                    */
    int             leaf;      /* place among its layer's, in the registered order       */
    bool            sharded, tp0_only, in_tp0, in_tp1;
    ckr_dtype       dtype;
    uint32_t        n_dims;
    const int64_t  *shape;     /* whole, as stored: with the padding rows                */
    ckr_split       split;
    ckr__nt_file  **shards;
    uint64_t        n_shards;
    uint32_t        n_blocks;
    ckr__block    **blocks;    /* one a shard; of a replicated parameter one             */
    const char     *shape_text;/* unsharded_shape as stored                              */
    const char     *version;
    const ckr_node *extra;     /* metadata with more keys than the three, or NULL        */
    ckr_tensor     *tensor;
    ckr__nt_slot   *slots;
    uint64_t        n_slots;
    const ckr_node *group;     /* as stored, first copy                                  */
    const ckr_node *state;     /* the same                                               */
} ckr__nt_param;

typedef struct ckr__nt_text {
    const char *path;
    const char *bytes;
    uint64_t n;
    ckr_node *root;
} ckr__nt_text;

/* A checkpoint that was read; the state keeps it for the writer. */
typedef struct ckr__nt {
    ckr__ctx        *c;
    ckr_state       *s;
    const char      *dir;
    ckr__nt_file   **files[CKR__NT_KINDS];
    uint64_t         n_files[CKR__NT_KINDS];
    bool             has_dir[CKR__NT_KINDS];
    ckr__nt_text     config, model, meta, optimizer;
    ckr__nt_param  **params;           /* in the optimizer's order, once all is read     */
    ckr__nt_param  **modules;          /* in the registered order                        */
    uint64_t         n_params;
    ckr__map         by_name;
    const uint32_t  *owner;            /* the stage of each block, as HEAD would assign it */
    int64_t          hidden, heads, kv_heads, head_dim, inter, layers, vocab, multiple;
    bool             tied, qwen, starcoder;
    const char      *version;
    uint32_t         tp, pp, dp, ep, cp;
    bool             zero, masters, plain_partition;
    int64_t          step;
    const ckr_node  *scheduler;        /* the first file's dict                          */
    ckr_node        *sched_params;     /* of the schedule, from config.yaml; or NULL     */
    const char     **loose;            /* files that are not understood, below the dir   */
    uint64_t         n_loose, n_odd;   /* keys that are not understood and belong to a rank */
    uint64_t        *random_sum;       /* of each random file's streams                  */
} ckr__nt;

/* The last run of digits before s + *len; false leaves *len alone. */
static bool ckr__nt_number(const char *s, size_t *len, uint32_t *out)
{
    size_t n = *len, k;
    uint32_t v = 0;
    while (n > 0 && s[n - 1] >= '0' && s[n - 1] <= '9') n--;
    if (n == *len || *len - n > 9) return false;
    for (k = n; k < *len; k++) v = v * 10 + (uint32_t)(s[k] - '0');
    *out = v;
    *len = n;
    return true;
}

static bool ckr__nt_suffix(const char *s, size_t *len, const char *tail)
{
    size_t k = strlen(tail);
    if (*len < k || memcmp(s + *len - k, tail, k) != 0) return false;
    *len -= k;
    return true;
}

/* Cuts "<key>I-of-N" off the end of s[0, *len); false changes nothing. */
static bool ckr__nt_cut(const char *s, size_t *len, const char *key, uint32_t *i, uint32_t *n)
{
    size_t at = *len;
    uint32_t a, b;
    if (!ckr__nt_number(s, &at, &b) || !ckr__nt_suffix(s, &at, "-of-") ||
        !ckr__nt_number(s, &at, &a) || !ckr__nt_suffix(s, &at, key) || b == 0)
        return false;
    *i = a;
    *n = b;
    *len = at;
    return true;
}

/* The leaf of a weight's file name. Between March and April 2024 files were called
   model_model_<leaf>.safetensors_pp-rank-...: a leaf "model_x" is taken for that only with the
   inner suffix. */
static bool ckr__nt_weight_name(const char *s, ckr__nt_file *f, const char **leaf, size_t *n_leaf)
{
    size_t n = strlen(s), inner;
    bool ep;
    if (!ckr__nt_suffix(s, &n, ".safetensors") || n <= 6 || memcmp(s, "model_", 6) != 0)
        return false;
    ep = ckr__nt_cut(s, &n, "_exp-rank-", &f->ep, &f->n_ep);
    if (ckr__nt_cut(s, &n, "_tp-rank-", &f->tp, &f->n_tp)) {
        if (!ckr__nt_cut(s, &n, "_pp-rank-", &f->pp, &f->n_pp)) return false;
        inner = n;
        if (n > 12 && !memcmp(s + 6, "model_", 6) && ckr__nt_suffix(s, &inner, ".safetensors") &&
            inner > 12) {
            n = inner;
            s += 6;
            n -= 6;
        }
    } else if (ep) {
        return false;
    }
    *leaf = s + 6;
    *n_leaf = n - 6;
    return n > 6;
}

static bool ckr__nt_rank_name(const char *s, uint32_t kind, ckr__nt_file *f)
{
    size_t n = strlen(s);
    if (!ckr__nt_suffix(s, &n, ".pt")) return false;
    if (kind == CKR__NT_RANDOM)
        return ckr__nt_cut(s, &n, "_pp-", &f->pp, &f->n_pp) &&
               ckr__nt_cut(s, &n, "_dp-", &f->dp, &f->n_dp) &&
               ckr__nt_cut(s, &n, "tp-", &f->tp, &f->n_tp) && n == 0;
    ckr__nt_cut(s, &n, "_exp-", &f->ep, &f->n_ep);
    ckr__nt_cut(s, &n, "_tp-", &f->tp, &f->n_tp);
    ckr__nt_cut(s, &n, "_dp-", &f->dp, &f->n_dp);
    ckr__nt_cut(s, &n, "_pp-", &f->pp, &f->n_pp);
    if (kind == CKR__NT_OPTIMIZER)
        return f->n_pp && f->n_tp && n == 9 && !memcmp(s, "optimizer", 9);
    return n == 12 && !memcmp(s, "lr_scheduler", 12);
}

/* >>nanotron.files ------------------------------------------------------------ */

static ckr_result ckr__nt_oom(const ckr__nt *r)
{
    return r->c->err->code != CKR_OK ? r->c->err->code : CKR_E_NOMEM;
}

static const char *ckr__nt_path(const ckr__nt *r, const char *rel)
{
    const char *p = ckr__path_join(r->c, r->dir, rel);
    return p ? p : rel;
}

static ckr_result ckr__nt_loose(ckr__nt *r, const char *rel)
{
    void *array = (void *)r->loose;
    const char **place = (const char **)ckr__append(r->c, &array, &r->n_loose, sizeof *r->loose);
    r->loose = (const char **)array;
    if (!place) return ckr__nt_oom(r);
    *place = rel;
    return ckr__leftover(r->c, r->s, rel, NULL) ? CKR_OK : ckr__nt_oom(r);
}

/* "model/a/b" and leaf "weight" give the parameter "a.b.weight". */
static const char *ckr__nt_param_name(ckr__ctx *c, const char *dir, const char *leaf, size_t n_leaf)
{
    const char *s = ckr__printf(c, "%s%s%.*s", strlen(dir) > 6 ? dir + 6 : "",
                                strlen(dir) > 6 ? "." : "", (int)n_leaf, leaf);
    char *p;
    size_t i, n = strlen(dir) > 6 ? strlen(dir) - 6 : 0;
    if (!s) return NULL;
    p = (char *)ckr__arena(c, strlen(s) + 1);
    if (!p) return NULL;
    memcpy(p, s, strlen(s));
    for (i = 0; i < n; i++) if (p[i] == '/') p[i] = '.';
    return p;
}

static ckr_result ckr__nt_add_file(ckr__nt *r, const char *dir, const char *name, const char *rel)
{
    static const char *const dirs[CKR__NT_KINDS] = { "model", "optimizer", "lr_scheduler",
                                                     "random" };
    ckr__nt_file *f, **place, found;
    const char *leaf = NULL;
    size_t n_leaf = 0, top = strcspn(dir, "/");
    uint32_t kind;
    void *array;
    bool known;

    if (!*dir && (!strcmp(name, "config.yaml") || !strcmp(name, "model_config.json") ||
                  !strcmp(name, "checkpoint_metadata.json") || !strcmp(name, "ckptresume.json")))
        return CKR_OK;
    if (!strcmp(rel, "optimizer/optimizer_config.json")) return CKR_OK;
    for (kind = 0; kind < CKR__NT_KINDS; kind++)
        if (strlen(dirs[kind]) == top && !memcmp(dirs[kind], dir, top)) break;
    memset(&found, 0, sizeof found);
    if (kind == CKR__NT_KINDS || (kind != CKR__NT_WEIGHT && dir[top])) known = false;
    else if (kind == CKR__NT_WEIGHT) known = ckr__nt_weight_name(name, &found, &leaf, &n_leaf);
    else known = ckr__nt_rank_name(name, kind, &found);
    if (!known) return ckr__nt_loose(r, rel);

    f = CKR__NEW(r->c, ckr__nt_file);
    array = r->files[kind];
    place = (ckr__nt_file **)ckr__append(r->c, &array, &r->n_files[kind], sizeof *place);
    r->files[kind] = (ckr__nt_file **)array;
    if (!f || !place) return ckr__nt_oom(r);
    *f = found;
    f->kind = kind;
    f->rel = rel;
    f->path = ckr__path_join(r->c, r->dir, rel);
    if (kind == CKR__NT_WEIGHT) f->name = ckr__nt_param_name(r->c, dir, leaf, n_leaf);
    *place = f;
    return f->path && (f->name || kind != CKR__NT_WEIGHT) ? CKR_OK : ckr__nt_oom(r);
}

/* Every file below the directory, level by level. */
static ckr_result ckr__nt_walk(ckr__nt *r)
{
    const char **queue = NULL, **place;
    uint64_t n = 0, at, i;
    ckr_result e = CKR_OK;
    const char *dir = "";
    for (at = 0; e == CKR_OK; at++) {
        ckr__dirlist l;
        if (at > 0 && at > n) break;
        if (at > 0) dir = queue[at - 1];
        e = ckr__dir_list(r->c, *dir ? ckr__nt_path(r, dir) : r->dir, &l);
        for (i = 0; e == CKR_OK && i < l.n; i++) {
            const char *name = l.items[i]->name;
            const char *rel = *dir ? ckr__path_join(r->c, dir, name) : name;
            void *array = (void *)queue;
            if (!rel) return ckr__nt_oom(r);
            if (!l.items[i]->is_dir) {
                e = ckr__nt_add_file(r, dir, name, rel);
                continue;
            }
            if (strlen(rel) > 2048)
                return ckr__fail(r->c->err, CKR_ITEM_LIMIT, rel, CKR_NO_OFFSET, NULL,
                                 "directories are nested without end: is a link among them?");
            if (!strcmp(rel, "lr_scheduler")) r->has_dir[CKR__NT_SCHEDULER] = true;
            place = (const char **)ckr__append(r->c, &array, &n, sizeof *queue);
            queue = (const char **)array;
            if (!place) return ckr__nt_oom(r);
            *place = rel;
        }
    }
    return e;
}

static ckr_result ckr__nt_load_text(ckr__nt *r, const char *rel, bool yaml, ckr__nt_text *t)
{
    const uint8_t *p = NULL;
    ckr_result e;
    t->path = ckr__nt_path(r, rel);
    if (ckr__path_kind(r->c, t->path) == CKR_FILE_ABSENT) return CKR_OK;
    e = ckr__path_load(r->c, t->path, r->c->limits.max_json_bytes, &p, &t->n, NULL);
    if (e != CKR_OK) return e;
    t->bytes = (const char *)p;
    e = yaml ? ckr__yaml_parse(r->c, t->path, p, (size_t)t->n, &t->root)
             : ckr__json_parse(r->c, t->path, 0, p, (size_t)t->n, CKR__JSON_PYTHON, &t->root);
    if (e == CKR_OK && !ckr_node_is_dict(t->root))
        e = ckr__fail(r->c->err, CKR_ITEM_NANOTRON_METADATA, t->path, CKR_NO_OFFSET, NULL,
                      "a mapping was expected at the top");
    return e;
}

static ckr_result ckr__nt_load_tree(ckr__nt *r, ckr__nt_file *f, ckr_node **root)
{
    uint32_t file;
    ckr_format format = CKR_FORMAT_AUTO;
    ckr_result e = ckr__file_open(r->c, f->path, &file);
    if (e != CKR_OK) return e;
    if (f->kind == CKR__NT_WEIGHT) e = ckr__safetensors_load(r->c, file, root);
    else e = ckr__torch_load(r->c, file, 0, r->c->files[file].size, &format, root);
    if (e == CKR_OK) f->root = *root;
    return e;
}

/* >>nanotron.probe ------------------------------------------------------------ */
/* Nanotron takes the step that latest.txt names. It writes model_config.json last, after
   latest.txt. */

static bool ckr__nt_has(ckr__ctx *c, const char *dir, const char *name, ckr_file_kind kind)
{
    const char *p = ckr__path_join(c, dir, name);
    return p && ckr__path_kind(c, p) == kind;
}

static bool ckr__nt_is_step(ckr__ctx *c, const char *dir)
{
    bool model = ckr__nt_has(c, dir, "model", CKR_FILE_DIR);
    return (model && ckr__nt_has(c, dir, "checkpoint_metadata.json", CKR_FILE_REGULAR)) ||
           (model && ckr__nt_has(c, dir, "model_config.json", CKR_FILE_REGULAR)) ||
           (model && ckr__nt_has(c, dir, "config.yaml", CKR_FILE_REGULAR) &&
            ckr__nt_has(c, dir, "model/model", CKR_FILE_DIR)) ||
           (ckr__nt_has(c, dir, "checkpoint_metadata.json", CKR_FILE_REGULAR) &&
            ckr__nt_has(c, dir, "model_config.json", CKR_FILE_REGULAR));
}

static bool ckr__nt_is_complete(ckr__ctx *c, const char *dir)
{
    return ckr__nt_has(c, dir, "model", CKR_FILE_DIR) &&
           ckr__nt_has(c, dir, "checkpoint_metadata.json", CKR_FILE_REGULAR) &&
           ckr__nt_has(c, dir, "model_config.json", CKR_FILE_REGULAR);
}

/* A directory's name as a step: digits only. */
static bool ckr__nt_step_of(const char *s, int64_t *out)
{
    int64_t v = 0;
    size_t n = 0;
    for (; s[n] >= '0' && s[n] <= '9'; n++) {
        if (n >= 18) return false;
        v = v * 10 + (s[n] - '0');
    }
    *out = v;
    return n > 0 && s[n] == 0;
}

/* The highest complete step below `below`, or NULL; *other is the highest one that is not
   complete. */
static ckr_result ckr__nt_newest(ckr__ctx *c, const char *run, int64_t below, const char **best,
                                 const char **other)
{
    ckr__dirlist l;
    uint64_t i;
    int64_t top = -1, top_other = -1, v;
    ckr_result r = ckr__dir_list(c, run, &l);
    *best = *other = NULL;
    for (i = 0; r == CKR_OK && i < l.n; i++) {
        const char *dir;
        if (!l.items[i]->is_dir || !ckr__nt_step_of(l.items[i]->name, &v) || v >= below) continue;
        dir = ckr__path_join(c, run, l.items[i]->name);
        if (!dir) return c->err->code;
        if (!ckr__nt_is_step(c, dir)) continue;
        if (ckr__nt_is_complete(c, dir)) {
            if (v > top) { top = v; *best = dir; }
        } else if (v > top_other) {
            top_other = v;
            *other = dir;
        }
    }
    return r;
}

static ckr_result ckr__nt_incomplete(ckr__ctx *c, const char *dir, const char *best)
{
    const bool meta = ckr__nt_has(c, dir, "checkpoint_metadata.json", CKR_FILE_REGULAR);
    ckr_result r =
        ckr__fail(c->err, CKR_ITEM_NANOTRON_INCOMPLETE, dir, CKR_NO_OFFSET, NULL,
                  "there is no %s, which Nanotron writes at the end: the checkpoint is still being "
                  "written, or its writing was interrupted",
                  !ckr__nt_has(c, dir, "model", CKR_FILE_DIR) ? "model directory"
                  : meta                                      ? "model_config.json"
                                                              : "checkpoint_metadata.json");
    char text[192];
    if (best)
        snprintf(text, sizeof text, "wait for it, or name the newest complete one: %.140s", best);
    else snprintf(text, sizeof text, "wait for it, or name another checkpoint");
    return ckr__remedy(c->err, r, text);
}

static ckr_result ckr__nt_latest(ckr__ctx *c, const char *run, const char **dir, bool *mine)
{
    const uint8_t *p = NULL;
    uint64_t n = 0;
    int64_t step;
    char digits[32];
    const char *path = ckr__path_join(c, run, "latest.txt"), *best, *other;
    ckr_result r;
    if (!path) return c->err->code;
    r = ckr__path_load(c, path, 4096, &p, &n, NULL);
    if (r != CKR_OK) return r;
    while (n && (p[n - 1] == '\n' || p[n - 1] == '\r' || p[n - 1] == ' ' || p[n - 1] == '\t')) n--;
    while (n && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')) p++, n--;
    snprintf(digits, sizeof digits, "%.*s", (int)(n < 31 ? n : 31), (const char *)p);
    r = ckr__nt_newest(c, run, INT64_MAX, &best, &other);
    if (r != CKR_OK) return r;
    if (!ckr__nt_step_of(digits, &step)) {
        if (!best && !other) return CKR_OK;
        *mine = true;
        r = ckr__fail(c->err, CKR_ITEM_NANOTRON_LATEST, path, 0, NULL,
                      "a decimal step was expected, found \"%s\"", digits);
        return ckr__remedy(c->err, r, best ? best : "name a step directory");
    }
    *mine = true;
    *dir = ckr__printf(c, "%s%s%lld", run, run[strlen(run) - 1] == '/' ? "" : "/", (long long)step);
    if (!*dir) return c->err->code;
    if (ckr__path_kind(c, *dir) != CKR_FILE_DIR) {
        char text[192];
        r = ckr__fail(c->err, CKR_ITEM_NANOTRON_LATEST, path, 0, NULL,
                      "it names step %lld, but there is no directory %lld beside it",
                      (long long)step, (long long)step);
        snprintf(text, sizeof text, "name the directory of a complete step%s%.140s",
                 best ? ": " : "", best ? best : "");
        return ckr__remedy(c->err, r, text);
    }
    if (ckr__nt_is_complete(c, *dir)) return CKR_OK;
    return ckr__nt_incomplete(c, *dir, best);
}

static ckr_result ckr__nt_probe(ckr__ctx *c, const char *path, const char **dir, bool *mine)
{
    const char *best, *other;
    ckr_result r;
    *mine = false;
    *dir = path;
    if (!*path || ckr__path_kind(c, path) != CKR_FILE_DIR) return CKR_OK;
    if (ckr__nt_is_step(c, path)) {
        *mine = true;
        return CKR_OK;
    }
    if (ckr__nt_has(c, path, "latest.txt", CKR_FILE_REGULAR))
        return ckr__nt_latest(c, path, dir, mine);
    r = ckr__nt_newest(c, path, INT64_MAX, &best, &other);
    if (r != CKR_OK || (!best && !other)) return r;
    *mine = true;
    if (!best) return ckr__nt_incomplete(c, other, NULL);
    *dir = best;
    return CKR_OK;
}

/* The parent's newest complete step, and one beyond this that is not complete. Only for
   messages: what goes wrong here is no error. */
static ckr_result ckr__nt_siblings(ckr__ctx *c, const char *dir, const char **best,
                                   const char **newer)
{
    const ckr_error keep = *c->err;
    size_t n = strlen(dir), cut;
    const char *run, *other = NULL;
    int64_t step, v;
    ckr_result r;
    *best = *newer = NULL;
    while (n > 1 && dir[n - 1] == '/') n--;
    for (cut = n; cut > 0 && dir[cut - 1] != '/'; cut--) {}
    run = ckr__strndup(c, dir + cut, n - cut);
    if (!run) return c->err->code;
    if (!ckr__nt_step_of(run, &step)) return CKR_OK;
    run = cut ? ckr__strndup(c, dir, cut > 1 ? cut - 1 : 1) : ".";
    if (!run) return c->err->code;
    r = ckr__nt_newest(c, run, INT64_MAX, best, &other);
    if (r != CKR_OK && c->err->sys_error != EACCES) return r;
    if (r != CKR_OK) *c->err = keep;           /* a parent that may not be listed         */
    if (other && ckr__nt_step_of(strrchr(other, '/') + 1, &v) && v > step) *newer = other;
    return CKR_OK;
}

/* >>nanotron.topology --------------------------------------------------------- */
/* The documents say the sizes; every rank-carrying file name must say the same, each rank once. */

/* An integer, or one in a string as optimizer_config.json has them. */
static bool ckr__nt_size(const ckr_node *n, uint32_t *out)
{
    int64_t v;
    const char *s = ckr_node_str(n);
    if (s ? !ckr__nt_step_of(s, &v) : !ckr_node_i64(n, &v)) return false;
    if (v < 1 || v > 1000000000) return false;
    *out = (uint32_t)v;
    return true;
}

static ckr_result ckr__nt_said_twice(ckr__nt *r, const char *axis, uint32_t meta,
                                     uint32_t optimizer)
{
    ckr_result e =
        ckr__fail(r->c->err, CKR_ITEM_NANOTRON_TOPOLOGY, r->meta.path, CKR_NO_OFFSET, axis,
                  "checkpoint_metadata.json says %s %u, optimizer_config.json says %u", axis,
                  (unsigned)meta, (unsigned)optimizer);
    return ckr__remedy(r->c->err, e,
                       "one of the two files is of another checkpoint: put back the right one");
}

/* Sizes from the documents; 0 stays where none says it. */
static ckr_result ckr__nt_documents(ckr__nt *r)
{
    const ckr_node *par = ckr_node_get(r->optimizer.root, "parallelism"),
                   *cfg = ckr_node_get(r->config.root, "parallelism");
    uint32_t v;
    ckr__nt_size(ckr_node_get(r->meta.root, "tp"), &r->tp);
    ckr__nt_size(ckr_node_get(r->meta.root, "dp"), &r->dp);
    if (!ckr__nt_size(ckr_node_get(r->meta.root, "cp"), &r->cp)) r->cp = 1;
    if (ckr__nt_size(ckr_node_get(par, "tp_size"), &v)) {
        if (r->tp && r->tp != v) return ckr__nt_said_twice(r, "tp", r->tp, v);
        r->tp = v;
    }
    if (ckr__nt_size(ckr_node_get(par, "dp_size"), &v)) {
        if (r->dp && r->dp != v) return ckr__nt_said_twice(r, "dp", r->dp, v);
        r->dp = v;
    }
    if (!ckr__nt_size(ckr_node_get(par, "pp_size"), &r->pp))
        ckr__nt_size(ckr_node_get(cfg, "pp"), &r->pp);
    if (!ckr__nt_size(ckr_node_get(par, "expert_parallel_size"), &r->ep) &&
        !ckr__nt_size(ckr_node_get(cfg, "expert_parallel_size"), &r->ep)) r->ep = 1;
    if (!r->tp) ckr__nt_size(ckr_node_get(cfg, "tp"), &r->tp);
    if (!r->dp) ckr__nt_size(ckr_node_get(cfg, "dp"), &r->dp);
    return CKR_OK;
}

static bool ckr__nt_fits(const ckr__nt *r, const ckr__nt_file *f)
{
    return (!f->n_tp || (f->n_tp == r->tp && f->tp < r->tp)) &&
           (!f->n_pp || (f->n_pp == r->pp && f->pp < r->pp)) &&
           (!f->n_dp || (f->n_dp == r->dp && f->dp < r->dp)) &&
           (!f->n_ep || (f->n_ep == r->ep && f->ep < r->ep));
}

/* A rank file of another topology: one stray shard, a second whole set, or documents that are
   wrong. */
static ckr_result ckr__nt_foreign(ckr__nt *r, const ckr__nt_file *f, uint64_t ours, uint64_t theirs)
{
    char text[192], said[96], found[96];
    ckr_item item = ours == 0    ? CKR_ITEM_NANOTRON_TOPOLOGY
                    : theirs > 1 ? CKR_ITEM_NANOTRON_MIXED
                                 : CKR_ITEM_NANOTRON_FOREIGN;
    ckr_result e;
    snprintf(said, sizeof said, "tp %u pp %u dp %u ep %u", (unsigned)r->tp, (unsigned)r->pp,
             (unsigned)r->dp, (unsigned)r->ep);
    snprintf(found, sizeof found, "%u of tp %u, %u of pp %u", (unsigned)f->tp, (unsigned)f->n_tp,
             (unsigned)f->pp, (unsigned)f->n_pp);
    if (item == CKR_ITEM_NANOTRON_TOPOLOGY)
        e = ckr__fail(
            r->c->err, item, f->path, CKR_NO_OFFSET, f->name,
            "the metadata says %s, but this is rank %s, and so are all %llu files of its kind",
            said, found, (unsigned long long)theirs);
    else
        e = ckr__fail(r->c->err, item, f->path, CKR_NO_OFFSET, f->name,
                      "the checkpoint has %s, but this is rank %s: %llu such files lie among %llu",
                      said, found, (unsigned long long)theirs, (unsigned long long)(ours + theirs));
    if (item == CKR_ITEM_NANOTRON_TOPOLOGY)
        snprintf(
            text, sizeof text,
            "put back the checkpoint_metadata.json and optimizer_config.json of this checkpoint");
    else if (item == CKR_ITEM_NANOTRON_MIXED)
        snprintf(text, sizeof text,
                 "two runs saved into one directory: move the files that are not %s elsewhere",
                 said);
    else
        snprintf(text, sizeof text, "remove that file: another run left it");
    return ckr__remedy(r->c->err, e, text);
}

static ckr_result ckr__nt_check_names(ckr__nt *r)
{
    uint32_t k;
    uint64_t i;
    for (k = 0; k < CKR__NT_KINDS; k++) {
        const ckr__nt_file *bad = NULL;
        uint64_t ours = 0, theirs = 0;
        for (i = 0; i < r->n_files[k]; i++) {
            const ckr__nt_file *f = r->files[k][i];
            if (!f->n_tp && !f->n_pp) continue;
            if (ckr__nt_fits(r, f)) { ours++; continue; }
            theirs++;
            if (!bad) bad = f;
        }
        if (bad) return ckr__nt_foreign(r, bad, ours, theirs);
    }
    return CKR_OK;
}

static int ckr__nt_rank_cmp(const void *a, const void *b)
{
    const ckr__nt_file *x = (const ckr__nt_file *)a, *y = (const ckr__nt_file *)b;
    if (x->pp != y->pp) return x->pp < y->pp ? -1 : 1;
    if (x->dp != y->dp) return x->dp < y->dp ? -1 : 1;
    if (x->ep != y->ep) return x->ep < y->ep ? -1 : 1;
    return x->tp < y->tp ? -1 : x->tp > y->tp;
}

static ckr_result ckr__nt_sort(ckr__nt *r, ckr__nt_file **items, uint64_t n)
{
    return ckr__sort(r->c, (void **)(void *)items, (size_t)n, ckr__nt_rank_cmp) ? CKR_OK
                                                                                : ckr__nt_oom(r);
}

static ckr_result ckr__nt_missing(ckr__nt *r, const char *where, uint64_t have, uint64_t want,
                                  const char *rel)
{
    ckr_result e =
        ckr__fail(r->c->err, CKR_ITEM_NANOTRON_MISSING, rel ? ckr__nt_path(r, rel) : r->dir,
                  CKR_NO_OFFSET, where, "it is not there: %llu of %llu files were found",
                  (unsigned long long)have, (unsigned long long)want);
    return ckr__remedy(
        r->c->err, e,
        "bring the file back from where the checkpoint was saved, or take another step");
}

static ckr_result ckr__nt_duplicate(ckr__nt *r, const ckr__nt_file *a, const ckr__nt_file *b)
{
    ckr_result e = ckr__fail(r->c->err, CKR_ITEM_NANOTRON_DUPLICATE, b->path, CKR_NO_OFFSET,
                             b->name, "it holds the same shard as %s", a->rel);
    return ckr__remedy(r->c->err, e, "remove the older of the two files");
}

/* The name that a file of these ranks would have, as its neighbour `like` spells it. */
static const char *ckr__nt_rank_path(ckr__ctx *c, const ckr__nt *r, const ckr__nt_file *like,
                                     uint32_t pp, uint32_t dp, uint32_t tp, uint32_t ep)
{
    char a[64] = "", b[64] = "", d[64] = "", x[64] = "";
    if (like->kind == CKR__NT_RANDOM)
        return ckr__printf(c, "random/tp-%u-of-%u_dp-%u-of-%u_pp-%u-of-%u.pt", (unsigned)tp,
                           (unsigned)r->tp, (unsigned)dp, (unsigned)r->dp, (unsigned)pp,
                           (unsigned)r->pp);
    if (like->n_pp) snprintf(a, sizeof a, "_pp-%u-of-%u", (unsigned)pp, (unsigned)r->pp);
    if (like->n_dp) snprintf(b, sizeof b, "_dp-%u-of-%u", (unsigned)dp, (unsigned)r->dp);
    if (like->n_tp) snprintf(d, sizeof d, "_tp-%u-of-%u", (unsigned)tp, (unsigned)r->tp);
    if (like->n_ep) snprintf(x, sizeof x, "_exp-%u-of-%u", (unsigned)ep, (unsigned)r->ep);
    return ckr__printf(c, "%s%s%s%s%s.pt",
                       like->kind == CKR__NT_OPTIMIZER ? "optimizer/optimizer"
                                                       : "lr_scheduler/lr_scheduler",
                       a, b, d, x);
}

/* Every rank of a kind exactly once; the files end up ordered by (pp, dp, ep, tp). */
static ckr_result ckr__nt_every_rank(ckr__nt *r, uint32_t kind)
{
    ckr__nt_file **f = r->files[kind], *like;
    uint64_t n = r->n_files[kind], k = 0, want, i;
    uint32_t n_pp, n_dp, n_ep, n_tp, at[4];
    if (!n) return CKR_OK;
    if (ckr__nt_sort(r, f, n) != CKR_OK) return ckr__nt_oom(r);
    like = f[0];
    for (i = 1; i < n; i++)
        if (!f[i]->n_pp != !like->n_pp || !f[i]->n_dp != !like->n_dp || !f[i]->n_tp != !like->n_tp)
            return ckr__nt_duplicate(r, like, f[i]);
    n_pp = like->n_pp ? r->pp : 1;
    n_dp = like->n_dp ? r->dp : 1;
    n_tp = like->n_tp ? r->tp : 1;
    n_ep = like->n_ep ? r->ep : 1;
    want = (uint64_t)n_pp * n_dp * n_tp;
    if (!ckr__mul_u64(want, n_ep, &want)) want = UINT64_MAX;
    for (i = 0; i < want; i++) {
        uint64_t q = i;
        at[0] = (uint32_t)(q % n_tp); q /= n_tp;
        at[1] = (uint32_t)(q % n_ep); q /= n_ep;
        at[2] = (uint32_t)(q % n_dp); q /= n_dp;
        at[3] = (uint32_t)q;
        if (k >= n || f[k]->tp != at[0] || f[k]->ep != at[1] || f[k]->dp != at[2] ||
            f[k]->pp != at[3]) {
            const char *rel = ckr__nt_rank_path(r->c, r, like, at[3], at[2], at[0], at[1]);
            return ckr__nt_missing(r, NULL, n, want, rel);
        }
        k++;
        if (k < n && ckr__nt_rank_cmp(f[k - 1], f[k]) == 0)
            return ckr__nt_duplicate(r, f[k - 1], f[k]);
    }
    return CKR_OK;
}

static ckr_result ckr__nt_topology(ckr__nt *r)
{
    const ckr_node *type = ckr_node_get(r->optimizer.root, "type");
    int64_t stage = 0;
    uint32_t k;
    uint64_t i;
    ckr_result e = ckr__nt_documents(r);
    if (e != CKR_OK) return e;
    for (k = 0; k < CKR__NT_KINDS; k++)
        for (i = 0; i < r->n_files[k]; i++) {
            const ckr__nt_file *f = r->files[k][i];
            if (!r->tp && f->n_tp) r->tp = f->n_tp;
            if (!r->pp && f->n_pp) r->pp = f->n_pp;
            if (!r->dp && f->n_dp) r->dp = f->n_dp;
        }
    if (!r->tp) r->tp = 1;
    if (!r->pp) r->pp = 1;
    if (!r->dp) r->dp = 1;
    e = ckr__nt_check_names(r);
    for (k = CKR__NT_OPTIMIZER; e == CKR_OK && k < CKR__NT_KINDS; k++) e = ckr__nt_every_rank(r, k);
    if (e != CKR_OK) return e;
    r->zero = r->n_files[CKR__NT_OPTIMIZER] > 0 && r->files[CKR__NT_OPTIMIZER][0]->n_dp > 0;
    if (!r->n_files[CKR__NT_OPTIMIZER]) {
        if (r->optimizer.root)
            return ckr__nt_missing(
                r, NULL, 0, (uint64_t)r->pp * r->tp,
                ckr__printf(r->c, "optimizer/optimizer_pp-0-of-%u_tp-0-of-%u_exp-0-of-%u.pt",
                            (unsigned)r->pp, (unsigned)r->tp, (unsigned)r->ep));
        r->zero = ckr_node_i64(ckr_node_find(r->config.root, "/optimizer/zero_stage"), &stage) &&
                  stage > 0;
    } else if (ckr_node_str(type) &&
               r->zero != !strcmp(ckr_node_str(type), "ZeroDistributedOptimizer")) {
        e = ckr__fail(r->c->err, CKR_ITEM_NANOTRON_TOPOLOGY, r->optimizer.path, CKR_NO_OFFSET,
                      "type", "it says %.60s, the optimizer's files %s cut over dp",
                      ckr_node_str(type), r->zero ? "are" : "are not");
        return ckr__remedy(r->c->err, e, "put back the optimizer_config.json of this checkpoint");
    }
    if (r->has_dir[CKR__NT_SCHEDULER] && !r->n_files[CKR__NT_SCHEDULER])
        return ckr__nt_missing(
            r, NULL, 0, (uint64_t)r->pp * r->tp,
            ckr__printf(r->c, "lr_scheduler/lr_scheduler_pp-0-of-%u_tp-0-of-%u_exp-0-of-%u.pt",
                        (unsigned)r->pp, (unsigned)r->tp, (unsigned)r->ep));
    return CKR_OK;
}

/* >>nanotron.model ------------------------------------------------------------ */
/* What model_config.json promises about shapes, heads and layers. */

static int64_t ckr__nt_int(const ckr_node *dict, const char *key)
{
    int64_t v = 0;
    return ckr_node_i64(ckr_node_get(dict, key), &v) && v > 0 && v < ((int64_t)1 << 40) ? v : 0;
}

static bool ckr__nt_true(const ckr_node *dict, const char *key)
{
    const ckr_node *n = ckr_node_get(dict, key);
    return n && n->kind == CKR_NODE_BOOL && n->u.b;
}

static void ckr__nt_model(ckr__nt *r)
{
    const ckr_node *m = r->model.root;
    r->hidden = ckr__nt_int(m, "hidden_size");
    r->heads = ckr__nt_int(m, "num_attention_heads");
    r->kv_heads = ckr__nt_int(m, "num_key_value_heads");
    if (!r->kv_heads) r->kv_heads = ckr__nt_int(m, "num_kv_heads");
    if (!r->kv_heads) r->kv_heads = r->heads;
    r->head_dim = ckr__nt_int(m, "head_dim");
    if (!r->head_dim && r->heads && r->hidden % r->heads == 0) r->head_dim = r->hidden / r->heads;
    r->inter = ckr__nt_int(m, "intermediate_size");
    r->layers = ckr__nt_int(m, "num_hidden_layers");
    r->vocab = ckr__nt_int(m, "vocab_size");
    r->multiple =
        ckr__nt_int(ckr_node_get(r->config.root, "model"), "make_vocab_size_divisible_by");
    if (!r->multiple) r->multiple = 1;
    r->qwen = ckr__nt_true(m, "is_qwen2_config");
    r->starcoder = ckr__nt_true(m, "is_starcoder2_config");
    r->tied = r->starcoder || ckr__nt_true(m, "tie_word_embeddings");
}

/* config.yaml repeats the model and the topology. Nanotron resumes from its own configuration, so a
   copy that says something else is of another run.                                              */
static ckr_result ckr__nt_config_says(ckr__nt *r, ckr_item item, const char *key, int64_t here,
                                      const char *other, int64_t there)
{
    ckr_result e = ckr__fail(r->c->err, item, r->config.path, CKR_NO_OFFSET, key,
                             "config.yaml says %lld, %s %lld", (long long)here, other,
                             (long long)there);
    return ckr__remedy(r->c->err, e,
                       "one of the two is of another checkpoint: put back the right one");
}

static ckr_result ckr__nt_check_config(ckr__nt *r)
{
    static const char *const sizes[] = { "hidden_size", "intermediate_size", "num_attention_heads",
                                         "num_hidden_layers", "num_key_value_heads" };
    const ckr_node *m = ckr_node_find(r->config.root, "/model/model_config"),
                   *par = ckr_node_get(r->config.root, "parallelism");
    const struct { const char *key; uint32_t size; } axes[] = {
        { "tp", r->tp }, { "pp", r->pp }, { "dp", r->dp }
    };
    int64_t here, there;
    uint32_t v;
    size_t i;
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (ckr_node_i64(ckr_node_get(m, sizes[i]), &here) &&
            ckr_node_i64(ckr_node_get(r->model.root, sizes[i]), &there) && here != there)
            return ckr__nt_config_says(r, CKR_ITEM_NANOTRON_CONFIG, sizes[i], here,
                                       "model_config.json", there);
    for (i = 0; i < sizeof axes / sizeof *axes; i++)
        if (ckr__nt_size(ckr_node_get(par, axes[i].key), &v) && v != axes[i].size)
            return ckr__nt_config_says(r, CKR_ITEM_NANOTRON_TOPOLOGY, axes[i].key, v,
                                       "the checkpoint has", axes[i].size);
    return CKR_OK;
}

static bool ckr__nt_is(const ckr__nt_param *p, const char *part)
{
    return strstr(p->name, part) != NULL;
}

/* The decoder layer in a name, or -1. */
static int64_t ckr__nt_layer(const char *name)
{
    static const char head[] = "model.decoder.";
    char digits[20];
    size_t n;
    int64_t v;
    if (strncmp(name, head, sizeof head - 1) != 0) return -1;
    name += sizeof head - 1;
    n = strcspn(name, ".");
    if (n == 0 || n >= sizeof digits) return -1;
    memcpy(digits, name, n);
    digits[n] = 0;
    return ckr__nt_step_of(digits, &v) ? v : -1;
}

/* The shape that the configuration asks for; false: it says nothing about this parameter. */
static bool ckr__nt_promised(const ckr__nt *r, const ckr__nt_param *p, int64_t want[2], uint32_t *n)
{
    static const char *const norms[] = { "layernorm.weight", "layer_norm.pp_block.weight", ".ln_1.",
                                         ".ln_2." };
    size_t i;
    const int64_t q = r->heads * r->head_dim, kv = r->kv_heads * r->head_dim;
    want[0] = want[1] = 0;
    *n = 2;
    if (ckr__nt_is(p, "token_embedding.weight") || ckr__nt_is(p, ".lm_head."))
        want[0] = r->vocab, want[1] = r->hidden;
    else if (ckr__nt_is(p, ".qkv_proj.weight")) want[0] = q + 2 * kv, want[1] = r->hidden;
    else if (ckr__nt_is(p, ".o_proj.weight")) want[0] = r->hidden, want[1] = q;
    else if (ckr__nt_is(p, ".mlp.gate_up_proj.weight")) want[0] = 2 * r->inter, want[1] = r->hidden;
    else if (ckr__nt_is(p, ".mlp.down_proj.weight")) want[0] = r->hidden, want[1] = r->inter;
    else {
        for (i = 0; i < sizeof norms / sizeof *norms && !want[0]; i++)
            if (ckr__nt_is(p, norms[i])) want[0] = r->hidden;
        *n = 1;
    }
    return want[0] != 0;
}

static ckr_result ckr__nt_check_shape(ckr__nt *r, const ckr__nt_param *p)
{
    int64_t want[2];
    uint32_t n, d;
    ckr_result e;
    bool same;
    if (!ckr__nt_promised(r, p, want, &n)) return CKR_OK;
    same = p->n_dims == n;
    for (d = 0; same && d < n; d++) same = !want[d] || want[d] == p->shape[d];
    if (same) return CKR_OK;
    e = ckr__fail(r->c->err, CKR_ITEM_NANOTRON_CONFIG, p->shards[0]->path, CKR_NO_OFFSET, p->name,
                  "the whole tensor is %u-D, %lld x %lld; model_config.json asks for %lld x %lld",
                  (unsigned)p->n_dims, (long long)(p->n_dims ? p->shape[0] : 1),
                  (long long)(p->n_dims > 1 ? p->shape[1] : 1), (long long)want[0],
                  (long long)(n > 1 ? want[1] : 1));
    return ckr__remedy(r->c->err, e,
                       "the shard or model_config.json is of another run: put back the right one");
}

/* Heads must stay whole when rows or columns of them are cut. */
static int64_t ckr__nt_unit(const ckr__nt *r, const ckr__nt_param *p)
{
    if (!r->head_dim) return 1;
    if (ckr__nt_is(p, ".qkv_proj.") || ckr__nt_is(p, ".o_proj.") || ckr__nt_is(p, ".attn.dense.") ||
        ckr__nt_is(p, ".attn.o.") || ckr__nt_is(p, ".qkv.q.")) return r->head_dim;
    if (ckr__nt_is(p, ".query_key_value.") && r->kv_heads && r->heads % r->kv_heads == 0)
        return (r->heads / r->kv_heads + 2) * r->head_dim;
    return 1;
}

/* Where a parameter stands among its layer's, in the order in which the modules are registered. */
static int ckr__nt_leaf_rank(const ckr__nt *r, const char *name)
{
    static const char *const order[] = { "input_layernorm",
                                         ".ln_1.",
                                         "qwen post_attention_layernorm",
                                         ".qkv_proj.",
                                         ".query_key_value.",
                                         ".qkv.q.",
                                         ".qkv.kv.",
                                         ".o_proj.",
                                         ".attn.dense.",
                                         ".attn.o.",
                                         "post_attention_layernorm",
                                         ".ln_2.",
                                         ".mlp.router.",
                                         ".mlp.shared_expert.gate_up",
                                         ".mlp.shared_expert.down",
                                         ".mlp.shared_expert_gate",
                                         ".mlp.gate_up_proj.",
                                         ".mlp.down_proj.",
                                         ".experts.merged_gate",
                                         ".experts.merged_down",
                                         ".ff.c_fc.",
                                         ".ff.c_proj." };
    int i, n = (int)(sizeof order / sizeof *order);
    if (r->qwen && strstr(name, "post_attention_layernorm")) return 4;
    for (i = 0; i < n; i++) if (strstr(name, order[i])) break;
    return 2 * i + (strstr(name, ".bias") != NULL);
}

static int ckr__nt_param_cmp(const void *a, const void *b)
{
    const ckr__nt_param *x = (const ckr__nt_param *)a, *y = (const ckr__nt_param *)b;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    return 0;
}

/* The order in which the modules are registered: what the optimizer's order is, where a file
   tells it. */
static int ckr__nt_module_cmp(const void *a, const void *b)
{
    const ckr__nt_param *x = (const ckr__nt_param *)a, *y = (const ckr__nt_param *)b;
    const uint64_t p = (uint64_t)x->block, q = (uint64_t)y->block;   /* -1 comes last */
    if (p != q) return p < q ? -1 : 1;
    if (x->leaf != y->leaf) return x->leaf < y->leaf ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* The stage of every block, as HEAD's builder assigns them: stage r ends after the block with
   which the sum of costs passes total * (r + 1) / PP. Costs: attention and MLP of a layer, the
   head; else 0. */
static uint32_t *ckr__nt_partition(ckr__ctx *c, const ckr__nt *r, uint32_t pp, int64_t vocab)
{
    uint32_t *owner = CKR__NEW_N(c, uint32_t, (uint64_t)r->layers + 3), stage = 0;
    const double h = (double)r->hidden, head = (double)vocab * h;
    const int64_t hd = r->heads ? r->hidden / r->heads : 0;
    const double layer =
        4.0 * (double)r->heads * (double)hd * h + (r->starcoder ? 2.0 : 3.0) * (double)r->inter * h;
    const double total = layer * (double)r->layers + head;
    double sum = 0;
    int64_t i;
    for (i = 0; owner && i < r->layers + 3; i++) {
        owner[i] = stage;
        sum += i == 0 || i == r->layers + 1 ? 0 : i == r->layers + 2 ? head : layer;
        if (sum > total * ((double)(stage + 1) / (double)pp)) stage++;
    }
    return owner;
}

/* Sets each parameter's block, and checks that no layer is absent or one too many. */
static ckr_result ckr__nt_blocks(ckr__nt *r)
{
    uint64_t i;
    int64_t top = -1, k;
    bool head = false, embedding = false;
    ckr__nt_param *p;
    for (i = 0; i < r->n_params; i++) {
        k = ckr__nt_layer(r->params[i]->name);
        if (k > top) top = k;
    }
    if (!r->layers) r->layers = top + 1;
    if (top >= r->layers) {
        ckr_result e = ckr__fail(r->c->err, CKR_ITEM_NANOTRON_CONFIG, r->model.path, CKR_NO_OFFSET,
                                 "num_hidden_layers",
                                 "there are files of layer %lld, the configuration has %lld layers",
                                 (long long)top, (long long)r->layers);
        return ckr__remedy(
            r->c->err, e, "files or model_config.json are of another run: put back the right ones");
    }
    if (r->layers > (int64_t)r->n_params)
        return ckr__nt_missing(r, "model.decoder", r->n_params, (uint64_t)r->layers,
                               "model/model/decoder");
    for (i = 0; i < r->n_params; i++) {
        p = r->params[i];
        k = ckr__nt_layer(p->name);
        p->block = k >= 0                                ? 1 + k
                   : ckr__nt_is(p, "token_embedding.")   ? 0
                   : ckr__nt_is(p, ".final_layer_norm.") ? r->layers + 1
                   : ckr__nt_is(p, ".lm_head.")          ? r->layers + 2
                                                         : -1;
        p->leaf = ckr__nt_leaf_rank(r, p->name);
        if (p->block == 0) embedding = true;
        if (p->block == r->layers + 2) head = true;
    }
    if (!embedding)
        return ckr__nt_missing(r, "token_embedding", 0, 1, "model/model/token_position_embeddings");
    if (!head && !r->tied)
        return ckr__nt_missing(r, CKR__NT_HEAD, 0, 1, "model/model/lm_head/pp_block");
    if (head && r->tied) {
        ckr_result e = ckr__fail(r->c->err, CKR_ITEM_NANOTRON_CONFIG, r->model.path, CKR_NO_OFFSET,
                                 "tie_word_embeddings",
                                 "the embeddings are tied, but lm_head has files of its own");
        return ckr__remedy(r->c->err, e,
                           "remove the files below model/model/lm_head: another run left them");
    }
    return CKR_OK;
}

/* Names the first layer without this leaf, and the directory where its file would be. */
static ckr_result ckr__nt_missing_in_layer(ckr__nt *r, const char *leaf, uint64_t have)
{
    const char *name = NULL, *rel;
    char *slashes;
    int64_t k;
    size_t i;
    for (k = 0; k < r->layers; k++) {
        name = ckr__printf(r->c, "model.decoder.%lld%s", (long long)k, leaf);
        if (!name) return ckr__nt_oom(r);
        if (!ckr__map_find(&r->by_name, name, strlen(name), NULL)) break;
    }
    rel = ckr__printf(r->c, "model/%.*s", (int)(strrchr(name, '.') - name), name);
    slashes = rel ? (char *)ckr__arena(r->c, strlen(rel) + 1) : NULL;
    if (!slashes) return ckr__nt_oom(r);
    for (i = 0; rel[i]; i++) slashes[i] = rel[i] == '.' ? '/' : rel[i];
    return ckr__nt_missing(r, name, have, (uint64_t)r->layers, slashes);
}

/* Layers of a dense model have the same parameters: one that is absent in one layer is missing. */
static ckr_result ckr__nt_layers_alike(ckr__nt *r)
{
    ckr__map m;
    uint64_t i, n = 0;
    ckr_result e = CKR_OK;
    bool moe = false;
    memset(&m, 0, sizeof m);
    m.c = r->c;
    for (i = 0; i < r->n_params; i++)
        moe = moe || ckr__nt_is(r->params[i], ".experts.") || ckr__nt_is(r->params[i], ".router.");
    for (i = 0; i < r->n_params && e == CKR_OK && !moe; i++) {
        const char *leaf = r->params[i]->name;
        if (ckr__nt_layer(leaf) < 0) continue;
        leaf = strchr(leaf + 14, '.');
        n = 0;
        ckr__map_find(&m, leaf, strlen(leaf), &n);
        if (!ckr__map_put(&m, leaf, strlen(leaf), n + 1, NULL)) e = ckr__nt_oom(r);
    }
    for (i = 0; i < m.cap && e == CKR_OK; i++)
        if (m.slots[i].key && m.slots[i].value != (uint64_t)r->layers)
            e = ckr__nt_missing_in_layer(r, m.slots[i].key, m.slots[i].value);
    ckr__map_free(&m);
    return e;
}

/* >>nanotron.weights ---------------------------------------------------------- */
/* local_global_slices_pairs of a shard:
     pairs := pair (";" pair)*   pair := slices "#" slices (local, global)
     slices := slice ("|" slice)*
     slice := v "," v "," v (start, stop, step)   v := "None" | decimal
   whole[global] == shard[local] for every pair. A fused parameter (q|k|v, gate|up) has a pair
   for each chunk at every size, also on one rank, so the chunks can be had back: pair k of all
   ranks is chunk k. */

/* One value; *none tells "None" from a number. */
static const char *ckr__nt_value(const char *p, bool *none, int64_t *v)
{
    size_t n = 0;
    *none = !strncmp(p, "None", 4);
    if (*none) return p + 4;
    for (*v = 0; p[n] >= '0' && p[n] <= '9' && n < 18; n++) *v = *v * 10 + (p[n] - '0');
    return n ? p + n : NULL;
}

/* n slices of an array of this shape; bit d of *given is set when slice d has bounds. */
static const char *ckr__nt_slices(const char *p, uint32_t n, const int64_t *shape, int64_t *start,
                                  int64_t *count, uint32_t *given)
{
    uint32_t d;
    for (d = 0; p && d < n; d++) {
        int64_t a = 0, b = 0, step = 1;
        bool none_a, none_b, none_step;
        if (d > 0 && *p++ != '|') return NULL;
        p = ckr__nt_value(p, &none_a, &a);
        if (!p || *p++ != ',') return NULL;
        p = ckr__nt_value(p, &none_b, &b);
        if (!p || *p++ != ',') return NULL;
        p = ckr__nt_value(p, &none_step, &step);
        if (!p || (!none_step && step != 1)) return NULL;
        if (none_a) a = 0;
        if (none_b) b = shape[d];
        if (a > b || b > shape[d]) return NULL;
        if (!none_a || !none_b) *given |= 1u << d;
        start[d] = a;
        count[d] = b - a;
    }
    return p;
}

/* The block of one shard; NULL without an error set: not the grammar, or out of bounds. */
static ckr__block *ckr__nt_pairs(ckr__ctx *c, const char *s, uint32_t n_dims, const int64_t *local,
                                 const int64_t *whole, uint32_t *given)
{
    uint32_t n = 1, i, d, ignored = 0;
    int64_t count[CKR_MAX_DIMS];
    const char *p;
    ckr__block *b;
    for (p = s; *p; p++) if (*p == ';') n++;
    b = ckr__block_new(c, n_dims, n);
    if (!b) return NULL;
    memcpy(b->shape, local, n_dims * sizeof *local);
    for (i = 0, p = s; p && i < n; i++) {
        ckr__pair *pair = &b->pairs[i];
        if (i > 0 && *p++ != ';') return NULL;
        p = ckr__nt_slices(p, n_dims, local, pair->local, pair->count, &ignored);
        if (!p || *p++ != '#') return NULL;
        p = ckr__nt_slices(p, n_dims, whole, pair->global, count, given);
        for (d = 0; p && d < n_dims; d++) if (count[d] != pair->count[d]) return NULL;
    }
    return p && *p == 0 ? b : NULL;
}

/* "(16, 8)", "(16,)", "(np.int64(16), 8)": of each item the last run of digits. */
static bool ckr__nt_whole_shape(const char *s, int64_t *shape, uint32_t *n)
{
    int64_t v = -1;
    for (*n = 0; ; s++) {
        if (*s >= '0' && *s <= '9') {
            for (v = 0; *s >= '0' && *s <= '9'; s++) {
                if (v > INT64_MAX / 16) return false;
                v = v * 10 + (*s - '0');
            }
        }
        if ((*s == ',' || !*s) && v >= 0) {
            if (*n >= CKR_MAX_DIMS) return false;
            shape[(*n)++] = v;
            v = -1;
        }
        if (!*s) return *n > 0;
    }
}

static ckr_result ckr__nt_bad_slices(ckr__nt *r, const ckr__nt_param *p, const ckr__nt_file *f,
                                     const char *found)
{
    return ckr__fail(r->c->err, CKR_ITEM_NANOTRON_SLICES, f->path, 8, p->name,
                     "local_global_slices_pairs and unsharded_shape were expected to place the "
                     "shard in the whole "
                     "tensor, found %.120s",
                     found ? found : "neither");
}

static ckr_result ckr__nt_bad_shape(ckr__nt *r, const ckr__nt_param *p, const ckr__nt_file *f,
                                    const char *what, int64_t found, int64_t want)
{
    ckr_result e = ckr__fail(r->c->err, CKR_ITEM_NANOTRON_SHAPE, f->path, CKR_NO_OFFSET, p->name,
                             "%s: found %lld, the other files of this run ask for %lld", what,
                             (long long)found, (long long)want);
    return ckr__remedy(r->c->err, e,
                       "the file is of another run or topology: put back the right one");
}

/* The axis that is cut and its chunks, from the boxes that the shards claim. */
static ckr_result ckr__nt_split(ckr__nt *r, ckr__nt_param *p, uint32_t given,
                                ckr__block *const *claim)
{
    uint32_t axis, k, n = claim[0]->n_pairs;
    uint64_t i;
    int64_t *chunks, *units, unit;
    for (axis = 0; axis < p->n_dims && !(given >> axis & 1); axis++) {}
    if (axis == p->n_dims || given >> (axis + 1))
        return ckr__nt_bad_slices(r, p, p->shards[0], "slices that do not name one axis");
    for (i = 0; i < p->n_shards; i++)
        if (claim[i]->n_pairs != n)
            return ckr__nt_bad_slices(r, p, p->shards[i], "another number of pairs than on rank 0");
    chunks = CKR__NEW_N(r->c, int64_t, n);
    units = CKR__NEW_N(r->c, int64_t, n);
    if (!chunks || !units) return ckr__nt_oom(r);
    unit = ckr__nt_unit(r, p);
    for (k = 0; k < n; k++) {
        for (i = 0; i < p->n_shards; i++) {
            if (chunks[k] > p->shape[axis] - claim[i]->pairs[k].count[axis])
                chunks[k] = p->shape[axis] + 1;
            else chunks[k] += claim[i]->pairs[k].count[axis];
        }
        units[k] = chunks[k] % unit == 0 ? unit : 1;
    }
    p->split.axis = (int32_t)axis;
    p->split.n_chunks = n > 1 ? n : 0;
    p->split.chunks = n > 1 ? chunks : NULL;
    p->split.units = unit > 1 ? units : NULL;
    p->split.vocab = axis == 0 && (p->block == 0 || p->block == r->layers + 2);
    return CKR_OK;
}

static bool ckr__nt_same_block(const ckr__block *a, const ckr__block *b)
{
    uint32_t i, d;
    if (a->n_pairs != b->n_pairs) return false;
    for (d = 0; d < a->n_dims; d++) if (a->shape[d] != b->shape[d]) return false;
    for (i = 0; i < a->n_pairs; i++)
        for (d = 0; d < a->n_dims; d++)
            if (a->pairs[i].local[d] != b->pairs[i].local[d] ||
                a->pairs[i].global[d] != b->pairs[i].global[d] ||
                a->pairs[i].count[d] != b->pairs[i].count[d])
                return false;
    return true;
}

/* What every shard claims must be the equal cut of the chunks: that covers all, and nothing
   twice. */
static ckr_result ckr__nt_coverage(ckr__nt *r, ckr__nt_param *p, ckr__block *const *claim)
{
    ckr_split plain = p->split;
    uint64_t i;
    int64_t uneven = 0, sum = 0;
    uint32_t k;
    ckr_result e;
    plain.units = NULL;        /* as stored: a cut inside a head is read, but not made      */
    for (k = 0; k < plain.n_chunks; k++) {
        if (plain.chunks[k] > p->shape[plain.axis] - sum) break;
        sum += plain.chunks[k];
    }
    for (i = 0; k == plain.n_chunks && i < p->n_shards; i++) {
        ckr__block *b = ckr__block_split(r->c, &plain, p->n_dims, p->shape, (uint32_t)p->n_shards,
                                         (uint32_t)i, &uneven);
        if (!b && !uneven) return ckr__nt_oom(r);
        if (!b || !ckr__nt_same_block(b, claim[i])) break;
        p->blocks[i] = b;
    }
    if (k == plain.n_chunks && i == p->n_shards && (!plain.n_chunks || sum == p->shape[plain.axis]))
        return CKR_OK;
    if (r->ep > 1 && p->shards[0]->n_ep)
        return ckr__fail(
            r->c->err, CKR_ITEM_NANOTRON_EXPERTS, p->shards[0]->path, 8, p->name,
            "%llu shards over tp %u and expert ranks %u do not cut the tensor in equal parts",
            (unsigned long long)p->n_shards, (unsigned)r->tp, (unsigned)r->ep);
    if (i >= p->n_shards) i = 0;
    e = ckr__fail(r->c->err, CKR_ITEM_NANOTRON_COVERAGE, p->shards[i]->path, 8, p->name,
                  "the boxes of the %llu shards overlap, leave a gap or are no equal cut of axis "
                  "%d (rank %llu)",
                  (unsigned long long)p->n_shards, (int)plain.axis, (unsigned long long)i);
    return ckr__remedy(r->c->err, e, "a shard is of another run: put back the right one");
}

/* The tensor `data` of a weight's file; what else lies there is listed. */
static ckr_result ckr__nt_weight_view(ckr__nt *r, ckr__nt_param *p, ckr__nt_file *f,
                                      const ckr_view **view)
{
    ckr_node *root = NULL;
    const ckr_node *data;
    uint64_t i;
    ckr_result e = ckr__nt_load_tree(r, f, &root);
    if (e != CKR_OK) return e;
    data = ckr_node_get(root, "data");
    if (!data || data->kind != CKR_NODE_TENSOR)
        return ckr__fail(r->c->err, CKR_ITEM_NANOTRON_METADATA, f->path, 8, p->name,
                         "a tensor \"data\" was expected");
    for (i = 0; i < root->count; i++) {
        const char *key = ckr_node_str(root->u.items[2 * i]);
        if (root->u.items[2 * i + 1] == data) continue;
        if (!ckr__leftover(r->c, r->s, ckr__printf(r->c, "%s#/%s", f->rel, key ? key : ""),
                           root->u.items[2 * i + 1]))
            return ckr__nt_oom(r);
    }
    for (i = 0; root->attrs && i < root->attrs->count; i++) {
        const char *key = ckr_node_str(root->attrs->u.items[2 * i]);
        if (key && f->n_tp && (!strcmp(key, "version") || !strcmp(key, "unsharded_shape") ||
                               !strcmp(key, "local_global_slices_pairs"))) continue;
        p->extra = root->attrs;
        if (!ckr__leftover(r->c, r->s,
                           ckr__printf(r->c, "%s#/__metadata__/%s", f->rel, key ? key : ""),
                           root->attrs->u.items[2 * i + 1]))
            return ckr__nt_oom(r);
    }
    *view = data->u.view;
    if ((*view)->n_dims > CKR_MAX_DIMS)
        return ckr__nt_bad_shape(r, p, f, "dimensions", (*view)->n_dims, CKR_MAX_DIMS);
    return CKR_OK;
}

/* Metadata of one shard: *whole and *n on rank 0, the same on all others; and its boxes. */
static ckr_result ckr__nt_shard(ckr__nt *r, ckr__nt_param *p, uint64_t i, const ckr_view *v,
                                int64_t *whole, uint32_t *given, ckr__block **claim)
{
    const ckr__nt_file *f = p->shards[i];
    const ckr_node *meta = f->root->attrs;
    const char *pairs = ckr_node_str(ckr_node_get(meta, "local_global_slices_pairs"));
    const char *shape = ckr_node_str(ckr_node_get(meta, "unsharded_shape"));
    const char *version = ckr_node_str(ckr_node_get(meta, "version"));
    int64_t mine[CKR_MAX_DIMS], n_all;
    uint32_t n = 0, d;
    if (!pairs || !shape) return ckr__nt_bad_slices(r, p, f, pairs ? pairs : shape);
    if (!ckr__nt_whole_shape(shape, mine, &n) || !ckr__numel(n, mine, &n_all) ||
        (uint64_t)n_all > (uint64_t)INT64_MAX / 16) return ckr__nt_bad_slices(r, p, f, shape);
    if (n != v->n_dims) return ckr__nt_bad_shape(r, p, f, "dimensions of the shard", v->n_dims, n);
    for (d = 0; d < n; d++) {
        if (i == 0) whole[d] = mine[d];
        if (whole[d] != mine[d])
            return ckr__nt_bad_shape(r, p, f, "a dimension of the whole tensor", mine[d], whole[d]);
    }
    if (i == 0) {
        p->shape_text = shape;
        p->version = version;
    } else if (!version != !p->version || (version && strcmp(version, p->version) != 0)) {
        return ckr__fail(r->c->err, CKR_ITEM_NANOTRON_SHAPE, f->path, 8, p->name,
                         "version %.20s, rank 0 has %.20s", version ? version : "none",
                         p->version ? p->version : "none");
    }
    *claim = ckr__nt_pairs(r->c, pairs, n, v->shape, mine, given);
    if (*claim) return CKR_OK;
    return r->c->err->code != CKR_OK ? r->c->err->code : ckr__nt_bad_slices(r, p, f, pairs);
}

/* Every rank of a sharded parameter once, in the order (expert, tensor) parallel rank. */
static ckr_result ckr__nt_shard_ranks(ckr__nt *r, ckr__nt_param *p)
{
    uint64_t i, want = (uint64_t)r->tp * (p->shards[0]->n_ep ? r->ep : 1);
    for (i = 0; i < p->n_shards; i++)
        if (p->shards[i]->pp != p->shards[0]->pp)
            return ckr__nt_duplicate(r, p->shards[0], p->shards[i]);
    for (i = 0; i < want; i++) {
        const ckr__nt_file *f = i < p->n_shards ? p->shards[i] : NULL;
        if (f && i > 0 && ckr__nt_rank_cmp(p->shards[i - 1], f) == 0)
            return ckr__nt_duplicate(r, p->shards[i - 1], f);
        if (!f || f->tp != i % r->tp || f->ep != i / r->tp) {
            const char *rel = p->shards[0]->rel, *base = strrchr(rel, '/');
            const char *leaf = strrchr(p->name, '.');
            return ckr__nt_missing(
                r, p->name, p->n_shards, want,
                ckr__printf(r->c, "%.*s/model_%s_pp-rank-%u-of-%u_tp-rank-%u-of-%u.safetensors",
                            base ? (int)(base - rel) : 0, rel, leaf ? leaf + 1 : p->name,
                            (unsigned)p->shards[0]->pp, (unsigned)r->pp, (unsigned)(i % r->tp),
                            (unsigned)r->tp));
        }
    }
    if (p->n_shards > want) return ckr__nt_duplicate(r, p->shards[want - 1], p->shards[want]);
    return CKR_OK;
}

/* Opens the files of a parameter, and places them. `views` has room for all shards. */
static ckr_result ckr__nt_load_param(ckr__nt *r, ckr__nt_param *p, const ckr_view **views,
                                     ckr__block **claim)
{
    int64_t whole[CKR_MAX_DIMS], *shape;
    uint32_t given = 0, d;
    uint64_t i;
    ckr_result e = ckr__nt_sort(r, p->shards, p->n_shards);
    p->sharded = p->shards[0]->n_tp != 0;
    for (i = 1; i < p->n_shards; i++)
        if (!p->shards[i]->n_tp) return ckr__nt_duplicate(r, p->shards[i - 1], p->shards[i]);
    if (e == CKR_OK && !p->sharded && p->n_shards > 1)
        e = ckr__nt_duplicate(r, p->shards[0], p->shards[1]);
    if (e == CKR_OK && p->sharded) e = ckr__nt_shard_ranks(r, p);
    for (i = 0; i < p->n_shards && e == CKR_OK; i++) {
        e = ckr__nt_weight_view(r, p, p->shards[i], &views[i]);
        if (e != CKR_OK) break;
        if (i == 0) {
            p->n_dims = views[0]->n_dims;
            p->dtype = views[0]->dtype;
            if (p->n_dims) memcpy(whole, views[0]->shape, p->n_dims * sizeof *whole);
        }
        if (views[i]->n_dims != p->n_dims)
            e = ckr__nt_bad_shape(r, p, p->shards[i], "dimensions", views[i]->n_dims, p->n_dims);
        else if (views[i]->dtype != p->dtype)
            e = ckr__fail(r->c->err, CKR_ITEM_NANOTRON_SHAPE, p->shards[i]->path, 8, p->name,
                          "dtype %s, rank 0 has %s", ckr_dtype_name(views[i]->dtype),
                          ckr_dtype_name(p->dtype));
        else if (p->sharded) e = ckr__nt_shard(r, p, i, views[i], whole, &given, &claim[i]);
    }
    if (e != CKR_OK) return e;
    shape = CKR__NEW_N(r->c, int64_t, p->n_dims);
    p->blocks = CKR__NEW_N(r->c, ckr__block *, p->n_shards);
    if (!shape || !p->blocks) return ckr__nt_oom(r);
    for (d = 0; d < p->n_dims; d++) shape[d] = whole[d];
    p->shape = shape;
    p->n_blocks = (uint32_t)p->n_shards;
    p->split.axis = -1;
    if (p->sharded) {
        p->pp = p->shards[0]->pp;
        e = ckr__nt_split(r, p, given, claim);
        if (e == CKR_OK) e = ckr__nt_coverage(r, p, claim);
    } else {
        p->blocks[0] = ckr__block_whole(r->c, p->n_dims, p->shape);
        if (!p->blocks[0]) e = ckr__nt_oom(r);
    }
    return e == CKR_OK ? ckr__nt_check_shape(r, p) : e;
}

static uint32_t ckr__nt_rank(const ckr__nt *r, int64_t pp, uint32_t dp, uint32_t tp)
{
    return (uint32_t)(((uint64_t)(pp < 0 ? 0 : pp) * r->dp + dp) * r->tp + tp);
}

/* A tensor of the parameter's logical shape: without the padding rows, where their number is
   known. */
static ckr_tensor *ckr__nt_tensor(ckr__nt *r, ckr__nt_param *p, const char *slot, ckr_dtype dtype)
{
    int64_t shape[CKR_MAX_DIMS];
    ckr_tensor *t;
    if (p->n_dims) memcpy(shape, p->shape, p->n_dims * sizeof *shape);
    if (p->split.vocab && r->s->vocab > 0 && r->s->vocab < shape[0]) shape[0] = r->s->vocab;
    t = ckr__tensor_add(r->c, r->s, p->name, slot, dtype, p->n_dims, shape);
    if (t) t->split = p->split;
    return t;
}

static ckr_result ckr__nt_weight_pieces(ckr__nt *r, ckr__nt_param *p, const ckr_view **views)
{
    ckr__reader rd;
    uint64_t i;
    p->tensor = ckr__nt_tensor(r, p, "param", p->dtype);
    if (!p->tensor) return ckr__nt_oom(r);
    p->tensor->requires_grad = true;
    memset(&rd, 0, sizeof rd);
    rd.c = r->c;
    rd.tensor = p->tensor;
    for (i = 0; i < p->n_shards; i++) {
        rd.rank = (int32_t)ckr__nt_rank(r, p->pp, 0, p->shards[i]->tp);
        if (!ckr__read_view(&rd, p->blocks[i], views[i])) return ckr__nt_oom(r);
    }
    return CKR_OK;
}

static ckr_result ckr__nt_group_files(ckr__nt *r)
{
    uint64_t i, at;
    for (i = 0; i < r->n_files[CKR__NT_WEIGHT]; i++) {
        ckr__nt_file *f = r->files[CKR__NT_WEIGHT][i], **place;
        ckr__nt_param *p;
        void *array;
        if (!ckr__map_find(&r->by_name, f->name, strlen(f->name), &at)) {
            ckr__nt_param **slot;
            array = r->params;
            p = CKR__NEW(r->c, ckr__nt_param);
            slot = (ckr__nt_param **)ckr__append(r->c, &array, &r->n_params, sizeof *r->params);
            r->params = (ckr__nt_param **)array;
            if (!p || !slot) return ckr__nt_oom(r);
            *slot = p;
            p->name = f->name;
            p->order = CKR__NT_ORDERLESS;
            p->pp = -1;
            at = r->n_params - 1;
            if (!ckr__map_put(&r->by_name, f->name, strlen(f->name), at, NULL))
                return ckr__nt_oom(r);
        }
        p = r->params[at];
        array = p->shards;
        place = (ckr__nt_file **)ckr__append(r->c, &array, &p->n_shards, sizeof *p->shards);
        p->shards = (ckr__nt_file **)array;
        if (!place) return ckr__nt_oom(r);
        *place = f;
    }
    return CKR_OK;
}

static ckr_result ckr__nt_weights(ckr__nt *r)
{
    uint64_t i, most = 0;
    const ckr_view **views;
    ckr__block **claim;
    ckr_result e = ckr__nt_group_files(r);
    if (e == CKR_OK && !r->n_params) e = ckr__nt_missing(r, "model", 0, 1, "model");
    if (e == CKR_OK) e = ckr__nt_blocks(r);
    if (e == CKR_OK) e = ckr__nt_layers_alike(r);
    for (i = 0; i < r->n_params; i++)
        if (r->params[i]->n_shards > most) most = r->params[i]->n_shards;
    views = CKR__NEW_N(r->c, const ckr_view *, most);
    claim = CKR__NEW_N(r->c, ckr__block *, most);
    if (e == CKR_OK && (!views || !claim)) e = ckr__nt_oom(r);
    for (i = 0; i < r->n_params && e == CKR_OK; i++) {
        e = ckr__nt_load_param(r, r->params[i], views, claim);
        if (e == CKR_OK) e = ckr__nt_weight_pieces(r, r->params[i], views);
        if (e == CKR_OK && r->params[i]->split.vocab && r->params[i]->shape[0] > r->s->padded_vocab)
            r->s->padded_vocab = r->params[i]->shape[0];
    }
    return e;
}

/* >>nanotron.optimizer -------------------------------------------------------- */
/* A file: {state: {i: {step, exp_avg, ...}}, param_groups: [{lr, ..., params: [i] or []}],
   names: {i: name}, gradient_accumulator: {name: fp32 master}}. The masters of a file are
   windows of one storage. With ZeRO-1 each tensor is a flat part of the rank's shard: of n
   elements over DP ranks, q = ceil(n / DP), rank d has q, the last q * DP - n ranks q - 1; a
   parameter of which a rank has nothing has a group with no index there, so the same name has
   other indices on other ranks. */

static void ckr__nt_zero_range(int64_t n, uint32_t dp, uint32_t d, int64_t *begin, int64_t *end)
{
    const int64_t q = n / dp + (n % dp != 0), full = (int64_t)dp - (q * dp - n);
    *begin = (int64_t)d <= full ? d * q : full * q + ((int64_t)d - full) * (q - 1);
    *end = *begin + ((int64_t)d < full ? q : n > 0 ? q - 1 : 0);
}

static int64_t ckr__nt_block_numel(const ckr__block *b)
{
    int64_t n = 1;
    uint32_t d;
    for (d = 0; d < b->n_dims; d++) n *= b->shape[d];
    return n;
}

static ckr_result ckr__nt_bad_file(ckr__nt *r, const ckr__nt_file *f, const char *where,
                                   const char *expected)
{
    return ckr__fail(r->c->err, CKR_ITEM_NANOTRON_METADATA, f->path, CKR_NO_OFFSET, where,
                     "%s was expected", expected);
}

static ckr__nt_param *ckr__nt_find(const ckr__nt *r, const ckr_node *name)
{
    uint64_t at;
    if (!name || name->kind != CKR_NODE_STR) return NULL;
    return ckr__map_find(&r->by_name, name->u.str, (size_t)name->count, &at) ? r->params[at] : NULL;
}

static ckr_result ckr__nt_unknown_name(ckr__nt *r, const ckr__nt_file *f, const ckr_node *name)
{
    ckr_result e =
        ckr__fail(r->c->err, CKR_ITEM_NANOTRON_NAMES, f->path, CKR_NO_OFFSET, ckr_node_str(name),
                  "the optimizer holds this parameter, but there is no file of its weight");
    return ckr__remedy(r->c->err, e,
                       "bring back the weight's files, or the optimizer file of this run");
}

/* One optimizer file's parameters and states by index. */
typedef struct ckr__nt_index {
    ckr__nt_param **param;
    const ckr_node **state;
    uint64_t n;
    bool named;
} ckr__nt_index;

/* Without state (step 0, SGD) there are no names: index i is the i-th master, or else the i-th
   parameter of the stage in the registered order, of which the rank has a part. */
static ckr_result ckr__nt_nameless(ckr__nt *r, const ckr__nt_file *f, ckr__nt_index *x)
{
    const ckr_node *masters = ckr_node_get(f->root, "gradient_accumulator");
    const uint64_t most = masters ? masters->count : r->n_params + 1;
    uint64_t k;
    x->param = CKR__NEW_N(r->c, ckr__nt_param *, most);
    x->state = CKR__NEW_N(r->c, const ckr_node *, most);
    if (!x->param || !x->state) return ckr__nt_oom(r);
    for (k = 0; k < most; k++) {
        /* the second copy of a tied embedding comes last on its stage */
        const bool copy = !masters && k == r->n_params;
        ckr__nt_param *p =
            masters ? ckr__nt_find(r, masters->u.items[2 * k]) : r->modules[copy ? 0 : k];
        int64_t begin = 0, end = 1, home;
        if (!p) return ckr__nt_unknown_name(r, f, masters->u.items[2 * k]);
        if (!masters) {
            home = p->pp >= 0 ? p->pp : p->block >= 0 ? (int64_t)r->owner[p->block] : 0;
            if (copy ? !r->tied || home == (int64_t)f->pp || f->pp != r->owner[r->layers + 2]
                     : home != (int64_t)f->pp)
                continue;
            if (p->tp0_only && f->tp > 0) continue;
            if (r->zero)
                ckr__nt_zero_range(ckr__nt_block_numel(p->blocks[p->sharded ? f->tp : 0]), r->dp,
                                   f->dp, &begin, &end);
        }
        if (begin < end) x->param[x->n++] = p;
    }
    return CKR_OK;
}

static ckr_result ckr__nt_index_file(ckr__nt *r, const ckr__nt_file *f, ckr__nt_index *x)
{
    const ckr_node *names = ckr_node_get(f->root, "names"), *state = ckr_node_get(f->root, "state");
    uint64_t k;
    memset(x, 0, sizeof *x);
    if (!ckr_node_is_dict(state)) return ckr__nt_bad_file(r, f, "state", "a dict");
    if (!ckr_node_is_dict(names)) return ckr__nt_bad_file(r, f, "names", "a dict");
    if (!names->count) return ckr__nt_nameless(r, f, x);
    x->named = true;
    x->n = names->count;
    x->param = CKR__NEW_N(r->c, ckr__nt_param *, x->n);
    x->state = CKR__NEW_N(r->c, const ckr_node *, x->n);
    if (!x->param || !x->state) return ckr__nt_oom(r);
    for (k = 0; k < x->n; k++) {
        const ckr_node *key = names->u.items[2 * k], *name = names->u.items[2 * k + 1];
        if (key->kind != CKR_NODE_INT || key->u.i < 0 || (uint64_t)key->u.i >= x->n ||
            x->param[key->u.i] || !ckr_node_str(name))
            return ckr__nt_bad_file(r, f, "names", "each index from 0 on once, with a name");
        x->param[key->u.i] = ckr__nt_find(r, name);
        if (!x->param[key->u.i]) return ckr__nt_unknown_name(r, f, name);
    }
    for (k = 0; k < state->count; k++) {
        const ckr_node *key = state->u.items[2 * k], *value = state->u.items[2 * k + 1];
        if (key->kind != CKR_NODE_INT || key->u.i < 0 || (uint64_t)key->u.i >= x->n ||
            x->state[key->u.i] || !ckr_node_is_dict(value))
            return ckr__nt_bad_file(r, f, "state", "a dict for each index of names");
        x->state[key->u.i] = value;
    }
    return CKR_OK;
}

static ckr__nt_slot *ckr__nt_slot_of(ckr__nt *r, ckr__nt_param *p, const char *key, bool scalar,
                                     const ckr_view *v)
{
    ckr__nt_slot *s;
    uint64_t i;
    void *array = p->slots;
    for (i = 0; i < p->n_slots; i++)
        if (!strcmp(p->slots[i].tensor->slot, key)) return &p->slots[i];
    s = (ckr__nt_slot *)ckr__append(r->c, &array, &p->n_slots, sizeof *s);
    p->slots = (ckr__nt_slot *)array;
    if (!s) return NULL;
    memset(s, 0, sizeof *s);
    s->scalar = scalar;
    s->tensor = scalar ? ckr__tensor_add(r->c, r->s, p->name, key, v->dtype, v->n_dims, v->shape)
                       : ckr__nt_tensor(r, p, key, v->dtype);
    if (!s->tensor) return NULL;
    s->tensor->requires_grad = v->requires_grad;
    return s;
}

static bool ckr__nt_contiguous(const ckr_view *v, int64_t *numel)
{
    uint32_t d;
    int64_t s = 1;
    if (!ckr__numel(v->n_dims, v->shape, numel)) return false;
    for (d = v->n_dims; d-- > 0; s *= v->shape[d])
        if (v->shape[d] > 1 && v->stride[d] != s) return false;
    return true;
}

/* One tensor of a parameter's state in one file: where its elements lie in the whole. */
static ckr_result ckr__nt_state_piece(ckr__nt *r, const ckr__nt_file *f, ckr__nt_param *p,
                                      const char *key, const ckr_view *v)
{
    const bool scalar = v->n_dims == 0 || !strcmp(key, "step");
    uint32_t at = !p->sharded ? 0 : p->n_blocks > r->tp ? f->ep * r->tp + f->tp : f->tp, d;
    const ckr__block *b = p->blocks[at];
    int64_t begin = 0, end, n = 0;
    ckr__nt_slot *s;
    ckr__reader rd;
    bool fits = v->layout == NULL && v->n_dims <= CKR_MAX_DIMS;
    s = fits ? ckr__nt_slot_of(r, p, key, scalar, v) : NULL;
    if (!fits) return ckr__nt_bad_file(r, f, p->name, "a plain tensor");
    if (!s) return ckr__nt_oom(r);
    memset(&rd, 0, sizeof rd);
    rd.c = r->c;
    rd.tensor = s->tensor;
    rd.rank = (int32_t)ckr__nt_rank(r, f->pp, f->dp, f->tp);
    if (s->tensor->dtype != v->dtype)
        return ckr__fail(r->c->err, CKR_ITEM_NANOTRON_SHAPE, f->path, CKR_NO_OFFSET, p->name,
                         "%s has dtype %s, another file %s", key, ckr_dtype_name(v->dtype),
                         ckr_dtype_name(s->tensor->dtype));
    if (s->scalar) {
        ckr__block *one = ckr__block_whole(r->c, s->tensor->n_dims, s->tensor->shape);
        if (!one) return ckr__nt_oom(r);
        for (d = 0; d < v->n_dims && v->n_dims == s->tensor->n_dims; d++)
            if (v->shape[d] != s->tensor->shape[d]) break;
        if (d < v->n_dims || v->n_dims != s->tensor->n_dims)
            return ckr__nt_bad_shape(r, p, f, key, v->n_dims, s->tensor->n_dims);
        rd.replica = s->tensor->n_pieces > 0;
        return ckr__read_view(&rd, one, v) ? CKR_OK : ckr__nt_oom(r);
    }
    rd.replica = (!p->sharded && f->tp != p->first_tp) ||
                 (p->pp >= 0 && f->pp != (uint32_t)p->pp) || (f->ep > 0 && p->n_blocks <= r->tp);
    end = ckr__nt_block_numel(b);
    if (!r->zero) {
        for (d = 0; d < b->n_dims && v->n_dims == b->n_dims; d++)
            if (v->shape[d] != b->shape[d]) break;
        if (v->n_dims != b->n_dims) return ckr__nt_bad_shape(r, p, f, key, v->n_dims, b->n_dims);
        if (d < b->n_dims) return ckr__nt_bad_shape(r, p, f, key, v->shape[d], b->shape[d]);
        if (!rd.replica) s->covered += end;
        return ckr__read_view(&rd, b, v) ? CKR_OK : ckr__nt_oom(r);
    }
    ckr__nt_zero_range(end, r->dp, f->dp, &begin, &end);
    if (!ckr__nt_contiguous(v, &n) || n != end - begin)
        return ckr__nt_bad_shape(r, p, f, key, n, end - begin);
    if (!rd.replica) s->covered += n;
    rd.dtype = v->dtype;
    rd.file = v->file;
    rd.big_endian = v->big_endian;
    rd.mem = v->bytes;
    return ckr__read_flat(&rd, b, begin, end,
                          (v->bytes ? 0 : v->data_offset) +
                              (uint64_t)v->offset * ckr_dtype_size(v->dtype))
               ? CKR_OK
               : ckr__nt_oom(r);
}

static ckr_result ckr__nt_leave(ckr__nt *r, const ckr__nt_file *f, const char *where,
                                const ckr_node *key, const ckr_node *value)
{
    const char *path = ckr_node_str(key)
                           ? ckr__printf(r->c, "%s#/%s%s", f->rel, where, ckr_node_str(key))
                           : ckr__printf(r->c, "%s#/%s?", f->rel, where);
    return path && ckr__leftover(r->c, r->s, path, value) ? CKR_OK : ckr__nt_oom(r);
}

/* State and master of every parameter in a file. */
static ckr_result ckr__nt_states(ckr__nt *r, const ckr__nt_file *f, const ckr__nt_index *x)
{
    const ckr_node *masters = ckr_node_get(f->root, "gradient_accumulator");
    uint64_t i, k;
    ckr_result e = CKR_OK;
    for (i = 0; x->named && i < x->n && e == CKR_OK; i++) {
        const ckr_node *st = x->state[i];
        if (!st)
            return ckr__nt_bad_file(r, f, x->param[i]->name, "a state for each index of names");
        if (!x->param[i]->state) x->param[i]->state = st;
        for (k = 0; k < st->count && e == CKR_OK; k++) {
            const ckr_node *key = st->u.items[2 * k], *value = st->u.items[2 * k + 1];
            if (ckr_node_str(key) && value->kind == CKR_NODE_TENSOR)
                e = ckr__nt_state_piece(r, f, x->param[i], key->u.str, value->u.view);
            else
                e = ckr__nt_leave(r, f, ckr__printf(r->c, "state/%llu/", (unsigned long long)i),
                                  key, value);
        }
    }
    for (k = 0; masters && k < masters->count && e == CKR_OK; k++) {
        const ckr_node *name = masters->u.items[2 * k], *value = masters->u.items[2 * k + 1];
        ckr__nt_param *p = ckr__nt_find(r, name);
        if (!p) return ckr__nt_unknown_name(r, f, name);
        if (value->kind != CKR_NODE_TENSOR) return ckr__nt_bad_file(r, f, p->name, "a tensor");
        if (value->u.view->n_dims == 1 && value->u.view->shape[0] == 0)
            continue; /* an empty ZeRO part */
        e = ckr__nt_state_piece(r, f, p, "master", value->u.view);
    }
    return e;
}

static ckr_result ckr__nt_load_optimizer(ckr__nt *r, ckr__nt_file *f)
{
    static const char *const known[] = { "state", "param_groups", "names", "gradient_accumulator" };
    ckr_node *root = NULL;
    const ckr_node *ga;
    uint64_t i;
    size_t k;
    ckr_result e = ckr__nt_load_tree(r, f, &root);
    if (e != CKR_OK) return e;
    if (!ckr_node_is_dict(root)) return ckr__nt_bad_file(r, f, "", "a dict");
    if (!ckr_node_is_list(ckr_node_get(root, "param_groups")))
        return ckr__nt_bad_file(r, f, "param_groups", "a list");
    ga = ckr_node_get(root, "gradient_accumulator");
    if (ga && !ckr_node_is_dict(ga))
        return ckr__nt_bad_file(r, f, "gradient_accumulator", "a dict");
    if (ga) r->masters = true;
    for (i = 0; i < root->count && e == CKR_OK; i++) {
        const char *key = ckr_node_str(root->u.items[2 * i]);
        for (k = 0; k < 4; k++) if (key && !strcmp(key, known[k])) break;
        if (k == 4) e = ckr__nt_leave(r, f, "", root->u.items[2 * i], root->u.items[2 * i + 1]);
    }
    return e;
}

/* Order, stage and tensor parallel presence of the parameters that a file names. */
static void ckr__nt_note_param(const ckr__nt_file *f, ckr__nt_param *p, uint64_t *next)
{
    if (p->order == CKR__NT_ORDERLESS) {
        p->order = (*next)++;
        p->first_tp = f->tp;
        if (p->pp < 0) p->pp = f->pp;
    }
    if (f->tp == 0) p->in_tp0 = true;
    else p->in_tp1 = true;
}

static bool ckr__nt_equal(const ckr_node *a, const ckr_node *b)
{
    uint64_t i;
    if (a->kind != b->kind || a->count != b->count) return false;
    switch ((int)a->kind) {
    case CKR_NODE_NONE:  return true;
    case CKR_NODE_BOOL:  return a->u.b == b->u.b;
    case CKR_NODE_INT:   return a->u.i == b->u.i;
    case CKR_NODE_FLOAT: return !memcmp(&a->u.f, &b->u.f, sizeof a->u.f);
    case CKR_NODE_STR:   return !memcmp(a->u.str, b->u.str, (size_t)a->count);
    case CKR_NODE_LIST:
    case CKR_NODE_TUPLE:
        for (i = 0; i < a->count; i++) {
            const ckr_node *x = a->u.items[i], *y = b->u.items[i];
            if (x->kind != y->kind || x->kind > CKR_NODE_STR || !ckr__nt_equal(x, y)) return false;
        }
        return true;
    default: return true;      /* what has no plain value is not compared                  */
    }
}

/* Another copy of a group says the same as the first, but for the indices. */
static ckr_result ckr__nt_same_group(ckr__nt *r, const ckr__nt_file *f, const ckr__nt_param *p,
                                     const ckr_node *g)
{
    uint64_t i;
    ckr_result e;
    for (i = 0; i < g->count; i++) {
        const char *key = ckr_node_str(g->u.items[2 * i]);
        const ckr_node *other;
        if (!key || !strcmp(key, "params")) continue;
        other = i < p->group->count && ckr_node_str(p->group->u.items[2 * i]) &&
                        !strcmp(key, ckr_node_str(p->group->u.items[2 * i]))
                    ? p->group->u.items[2 * i + 1]
                    : ckr_node_get(p->group, key);
        if (other && ckr__nt_equal(g->u.items[2 * i + 1], other)) continue;
        e = ckr__fail(r->c->err,
                      !strcmp(key, "lr") ? CKR_ITEM_NANOTRON_STEP : CKR_ITEM_NANOTRON_GROUPS,
                      f->path, CKR_NO_OFFSET, p->name,
                      "%s of its group differs from the copy on another rank", key);
        return ckr__remedy(r->c->err, e,
                           "the file is of another step or run: put back the right one");
    }
    return CKR_OK;
}

/* The groups of a file, each to its parameter. */
static ckr_result ckr__nt_groups(ckr__nt *r, const ckr__nt_file *f, const ckr__nt_index *x)
{
    const ckr_node *groups = ckr_node_get(f->root, "param_groups");
    uint64_t i, k;
    for (i = 0; i < groups->count; i++) {
        const ckr_node *g = groups->u.items[i], *list = ckr_node_get(g, "params");
        if (!ckr_node_is_dict(g) || !ckr_node_is_list(list))
            return ckr__nt_bad_file(r, f, "param_groups", "a dict with params");
        for (k = 0; k < list->count; k++) {
            const ckr_node *v = list->u.items[k];
            ckr__nt_param *p;
            ckr_result e;
            if (v->kind != CKR_NODE_INT || v->u.i < 0)
                return ckr__nt_bad_file(r, f, "params", "an index");
            if ((uint64_t)v->u.i >= x->n)
                return ckr__nt_bad_file(r, f, "params", "an index that names has");
            p = x->param[v->u.i];
            if (!p->group) p->group = g;
            e = ckr__nt_same_group(r, f, p, g);
            if (e != CKR_OK) return e;
        }
    }
    return CKR_OK;
}

static ckr_result ckr__nt_order_modules(ckr__nt *r)
{
    uint64_t i;
    r->plain_partition = true;
    r->modules = CKR__NEW_N(r->c, ckr__nt_param *, r->n_params);
    r->owner = ckr__nt_partition(r->c, r, r->pp, r->vocab ? r->vocab : r->s->padded_vocab);
    if (!r->modules || !r->owner) return ckr__nt_oom(r);
    memcpy(r->modules, r->params, (size_t)r->n_params * sizeof *r->modules);
    if (!ckr__sort(r->c, (void **)(void *)r->modules, (size_t)r->n_params, ckr__nt_module_cmp))
        return ckr__nt_oom(r);
    for (i = 0; i < r->n_params; i++) {
        ckr__nt_param *p = r->modules[i];
        const size_t n = strlen(p->name);
        if (p->block < 0) r->plain_partition = r->plain_partition && r->pp == 1;
        else if (p->pp >= 0 && r->owner[p->block] != (uint64_t)p->pp) r->plain_partition = false;
        /* the bias of a row-parallel layer is on tensor parallel rank 0 only */
        if (!p->sharded && n > 5 && !strcmp(p->name + n - 5, ".bias")) {
            const char *w = ckr__printf(r->c, "%.*s.weight", (int)(n - 5), p->name);
            uint64_t at;
            if (!w) return ckr__nt_oom(r);
            p->tp0_only =
                ckr__map_find(&r->by_name, w, strlen(w), &at) && r->params[at]->split.axis == 1;
        }
    }
    return CKR_OK;
}

/* The slots in the parameters' order, once all pieces are there. */
static ckr_result ckr__nt_finish_tensors(ckr__nt *r)
{
    uint64_t i, k, n = 0;
    ckr_tensor **all = CKR__NEW_N(r->c, ckr_tensor *, r->s->n_tensors);
    if (!all) return ckr__nt_oom(r);
    for (i = 0; i < r->n_params; i++) {
        const ckr__nt_param *p = r->params[i];
        int64_t want = 1;
        uint32_t d;
        for (d = 0; d < p->n_dims; d++) want *= p->shape[d];
        all[n++] = p->tensor;
        for (k = 0; k < p->n_slots; k++) {
            const ckr__nt_slot *s = &p->slots[k];
            if (!s->scalar && s->covered != want) {
                ckr_result e = ckr__fail(r->c->err, CKR_ITEM_NANOTRON_MISSING,
                                         ckr__nt_path(r, "optimizer"), CKR_NO_OFFSET, p->name,
                                         "%s: %lld of %lld elements are in the optimizer's files",
                                         s->tensor->slot, (long long)s->covered, (long long)want);
                return ckr__remedy(r->c->err, e,
                                   "an optimizer file is of another run: put back the right one");
            }
            all[n++] = s->tensor;
        }
    }
    for (i = 0; i < n; i++) all[i]->index = (uint32_t)i;
    r->s->tensors = all;
    return CKR_OK;
}

/* The step that the first state of a file counts; false: it has none. Four bytes are read. */
static bool ckr__nt_file_step(ckr__nt *r, const ckr__nt_index *x, double *out)
{
    uint8_t raw[16];
    const ckr_node *n = x->n ? ckr_node_get(x->state[0], "step") : NULL;
    const ckr_view *v;
    size_t size;
    int64_t count;
    if (!n || n->kind != CKR_NODE_TENSOR) return n && ckr_node_f64(n, out);
    v = n->u.view;
    size = ckr_dtype_size(v->dtype);
    if (!size || size > sizeof raw || !ckr__numel(v->n_dims, v->shape, &count) || count != 1)
        return false;
    if (v->bytes) memcpy(raw, v->bytes + (uint64_t)v->offset * size, size);
    else if (ckr__file_read(r->c, v->file, v->data_offset + (uint64_t)v->offset * size, raw,
                            size) != CKR_OK)
        return false;
    if (v->big_endian != ckr__host_big_endian())
        ckr__swap_bytes(raw, size, ckr__dtypes[v->dtype].swap);
    *out = ckr__load_f64(v->dtype, raw);
    return true;
}

static ckr_result ckr__nt_other_step(ckr__nt *r, const ckr__nt_file *f, const char *where,
                                     double found, double want)
{
    ckr_result e = ckr__fail(r->c->err, CKR_ITEM_NANOTRON_STEP, f->path, CKR_NO_OFFSET, where,
                             "it is of step %.17g, the other files are of step %.17g", found, want);
    return ckr__remedy(r->c->err, e, "put back the file of this step, or take another checkpoint");
}

static ckr_result ckr__nt_step_note(ckr__nt *r, const char *subject, double found,
                                    const char *reason)
{
    char old[40], now[40];
    snprintf(old, sizeof old, "%.17g", found);
    snprintf(now, sizeof now, "%lld", (long long)r->step);
    return ckr__note(r->c, &r->s->notes, &r->s->n_notes, "CKR_W_NANOTRON_STEP", CKR_EXACT, subject,
                     old, now, reason, NULL)
               ? CKR_OK
               : ckr__nt_oom(r);
}

static ckr_result ckr__nt_read_optimizer(ckr__nt *r)
{
    const uint64_t n = r->n_files[CKR__NT_OPTIMIZER];
    ckr__nt_index *x = CKR__NEW_N(r->c, ckr__nt_index, n);
    uint64_t i, k, next = 0, odd = n;
    double step, first = 0;
    ckr_result e = CKR_OK;
    bool any = false;
    if (!x) return ckr__nt_oom(r);
    if (!n &&
        !ckr__note(r->c, &r->s->notes, &r->s->n_notes, "CKR_W_NANOTRON_NO_OPTIMIZER", CKR_LOST,
                   "optimizer", NULL, NULL, "there are no optimizer files: weights only", NULL))
        return ckr__nt_oom(r);
    for (i = 0; i < n && e == CKR_OK; i++) {
        ckr__nt_file *f = r->files[CKR__NT_OPTIMIZER][i];
        e = ckr__nt_load_optimizer(r, f);
        if (e == CKR_OK) e = ckr__nt_index_file(r, f, &x[i]);
        if (e != CKR_OK) break;
        for (k = 0; k < x[i].n; k++) ckr__nt_note_param(f, x[i].param[k], &next);
        if (!ckr__nt_file_step(r, &x[i], &step)) {
            if (r->c->err->code != CKR_OK) return r->c->err->code;
            continue;
        }
        if (!any) first = step;
        if (any && step != first && odd == n) odd = i;
        if (any && step != first && first != (double)r->step && step == (double)r->step)
            odd = 0; /* then the first is odd */
        any = true;
    }
    if (e == CKR_OK && odd < n) {
        ckr__nt_file_step(r, &x[odd], &step);
        e = ckr__nt_other_step(r, r->files[CKR__NT_OPTIMIZER][odd], "state", step,
                               odd ? first : (double)r->step);
    }
    if (e == CKR_OK && any && first != (double)r->step)
        e = ckr__nt_step_note(
            r, "optimizer step", first,
            "the optimizer counts other updates than checkpoint_metadata.json; it keeps its own");
    for (i = 0; i < n && e == CKR_OK; i++) {
        e = ckr__nt_groups(r, r->files[CKR__NT_OPTIMIZER][i], &x[i]);
        if (e == CKR_OK) e = ckr__nt_states(r, r->files[CKR__NT_OPTIMIZER][i], &x[i]);
    }
    for (i = 0; i < r->n_params && e == CKR_OK; i++) {
        ckr__nt_param *p = r->modules[i];
        if (p->order == CKR__NT_ORDERLESS) {
            p->order = ((uint64_t)1 << 62) + i;
            if (n && next)
                e = ckr__note(r->c, &r->s->notes, &r->s->n_notes, "CKR_W_NANOTRON_NO_STATE",
                              CKR_EXACT, p->name, NULL, NULL,
                              "no optimizer file names this parameter", NULL)
                        ? CKR_OK
                        : ckr__nt_oom(r);
        } else if (!p->sharded && r->tp > 1 && p->in_tp0 && !p->in_tp1) {
            p->tp0_only = true;
        }
        if (p->pp < 0) p->pp = p->block >= 0 ? (int64_t)r->owner[p->block] : 0;
    }
    if (e == CKR_OK &&
        !ckr__sort(r->c, (void **)(void *)r->params, (size_t)r->n_params, ckr__nt_param_cmp))
        e = ckr__nt_oom(r);
    return e == CKR_OK ? ckr__nt_finish_tensors(r) : e;
}

/* >>nanotron.schedule --------------------------------------------------------- */
/* One LambdaLR, whose factors come from config.yaml only; last_epoch N after N updates, and update
   k uses the value at k - 1. */

static bool ckr__nt_key_is(const ckr_node *key, const char *s)
{
    return key->kind == CKR_NODE_STR && key->count == strlen(s) &&
           !memcmp(key->u.str, s, (size_t)key->count);
}

static bool ckr__nt_num(const ckr_node *dict, const char *key, double *out)
{
    double v;
    if (!ckr_node_f64(ckr_node_get(dict, key), &v) || !(v >= -1e300 && v <= 1e300)) return false;
    *out = v;
    return true;
}

/* The schedule's parameters. HEAD's configuration fills in lr_decay_steps = train_steps -
   lr_warmup_steps when it is saved: where that is what the file says, it is left out, so that it
   follows when one of the two changes.                                                         */
static ckr_result ckr__nt_schedule(ckr__nt *r)
{
    const ckr_node *cfg = ckr_node_find(r->config.root, "/optimizer/learning_rate_scheduler");
    const ckr_node *start = ckr_node_get(cfg, "lr_decay_starting_step");
    const bool has_start = start && start->kind != CKR_NODE_NONE;
    double train = 0, warm = 0, decay = 0, base;
    bool derived;
    uint64_t i;
    if (!ckr_node_is_dict(cfg) || !ckr__nt_num(cfg, "learning_rate", &base)) return CKR_OK;
    ckr__nt_num(cfg, "lr_warmup_steps", &warm);
    ckr__nt_num(ckr_node_get(r->config.root, "tokens"), "train_steps", &train);
    derived = !ckr__nt_num(cfg, "lr_decay_steps", &decay) || decay == train - warm;
    r->sched_params = ckr__node(r->c, CKR_NODE_DICT);
    if (!r->sched_params) return ckr__nt_oom(r);
    for (i = 0; i < cfg->count; i++) {
        ckr_node **pair = &cfg->u.items[2 * i];
        if (pair[1]->kind == CKR_NODE_NONE ||
            (derived && ckr__nt_key_is(pair[0], "lr_decay_steps"))) continue;
        if (!ckr__node_pair(r->c, r->sched_params, pair[0], pair[1])) return ckr__nt_oom(r);
    }
    if ((derived && has_start &&
         !ckr__node_set(r->c, r->sched_params, "lr_decay_steps",
                        ckr__node_int(r->c, (int64_t)(train - warm)))) ||
        !ckr__node_set(r->c, r->sched_params, "train_steps", ckr__node_int(r->c, (int64_t)train)))
        return ckr__nt_oom(r);
    return CKR_OK;
}

static ckr_result ckr__nt_scheduler_others(ckr__nt *r, const ckr__nt_file *f)
{
    static const char *const known[] = {
        "base_lrs",    "last_epoch", "verbose",   "_step_count", "_get_lr_called_within_step",
        "_is_initial", "_last_lr",   "lr_lambdas"
    };
    uint64_t i;
    size_t k;
    ckr_result e = CKR_OK;
    for (i = 0; i < f->root->count && e == CKR_OK; i++) {
        const char *key = ckr_node_str(f->root->u.items[2 * i]);
        for (k = 0; k < sizeof known / sizeof *known; k++) if (key && !strcmp(key, known[k])) break;
        if (k == sizeof known / sizeof *known)
            e = ckr__nt_leave(r, f, "", f->root->u.items[2 * i], f->root->u.items[2 * i + 1]);
    }
    return e;
}

/* Counts of groups and lambdas agree, and both sides know the same LR: else one is of another
   step. */
static ckr_result ckr__nt_check_scheduler(ckr__nt *r, const ckr__nt_file *f)
{
    const ckr_node *last = ckr_node_get(f->root, "_last_lr"),
                   *base = ckr_node_get(f->root, "base_lrs");
    const ckr_node *lambdas = ckr_node_get(f->root, "lr_lambdas"), *groups;
    const uint64_t n = lambdas ? lambdas->count : base ? base->count : 0;
    const uint32_t n_ep =
        r->n_files[CKR__NT_OPTIMIZER] && r->files[CKR__NT_OPTIMIZER][0]->n_ep ? r->ep : 1;
    uint64_t at = (uint64_t)f->pp * (r->zero ? r->dp : 1) + (r->zero ? f->dp : 0), i;
    ckr_result e;
    at = (at * n_ep + f->ep) * r->tp + f->tp;
    if (!f->n_pp || at >= r->n_files[CKR__NT_OPTIMIZER] || !lambdas)
        return CKR_OK; /* one file of all stages */
    groups = ckr_node_get(r->files[CKR__NT_OPTIMIZER][at]->root, "param_groups");
    if (groups->count != n) {
        e = ckr__fail(r->c->err, CKR_ITEM_NANOTRON_SCHEDULER, f->path, CKR_NO_OFFSET, "lr_lambdas",
                      "%llu lambdas, the optimizer of this rank has %llu groups",
                      (unsigned long long)n, (unsigned long long)groups->count);
        return ckr__remedy(r->c->err, e, "the file is of another topology: put back the right one");
    }
    for (i = 0; i < n; i++) {
        const ckr_node *g = groups->u.items[i];
        double a, b;
        if (!ckr_node_f64(ckr_node_at(last, i), &a) || !ckr_node_f64(ckr_node_get(g, "lr"), &b) ||
            a == b)
            continue;
        e = ckr__fail(r->c->err, CKR_ITEM_NANOTRON_STEP, f->path, CKR_NO_OFFSET, "_last_lr",
                      "the LR of group %llu is %.17g here and %.17g in the optimizer",
                      (unsigned long long)i, a, b);
        return ckr__remedy(
            r->c->err, e,
            "scheduler and optimizer are of different steps: put back the right file");
    }
    return CKR_OK;
}

static ckr_result ckr__nt_read_scheduler(ckr__nt *r)
{
    const uint64_t n = r->n_files[CKR__NT_SCHEDULER];
    int64_t epoch = 0, first = 0;
    uint64_t i;
    ckr_result e = CKR_OK;
    if (!n &&
        !ckr__note(r->c, &r->s->notes, &r->s->n_notes, "CKR_W_NANOTRON_NO_SCHEDULER", CKR_LOST,
                   "lr_scheduler", NULL, NULL, "there are no scheduler files", NULL))
        return ckr__nt_oom(r);
    for (i = 0; i < n && e == CKR_OK; i++) {
        ckr__nt_file *f = r->files[CKR__NT_SCHEDULER][i];
        ckr_node *root = NULL;
        e = ckr__nt_load_tree(r, f, &root);
        if (e != CKR_OK) break;
        if (!ckr_node_is_dict(root) || !ckr_node_i64(ckr_node_get(root, "last_epoch"), &epoch))
            return ckr__nt_bad_file(r, f, "last_epoch", "an integer");
        if (i == 0) first = epoch;
        if (i == 0) r->scheduler = root;
        if (epoch != first) {
            const bool second = epoch != r->step;
            return ckr__nt_other_step(r, second ? f : r->files[CKR__NT_SCHEDULER][0], "last_epoch",
                                      (double)(second ? epoch : first),
                                      (double)(second ? first : epoch));
        }
        e = ckr__nt_check_scheduler(r, f);
        if (e == CKR_OK) e = ckr__nt_scheduler_others(r, f);
    }
    return e;
}

/* base_lrs of the scheduler's files, for groups that have no initial_lr. */
static void ckr__nt_base_lr(ckr__nt *r, const ckr__nt_param *p, double *out)
{
    const ckr_node *base = ckr_node_get(r->scheduler, "base_lrs");
    if (ckr__nt_num(p->group, "initial_lr", out)) return;
    if (ckr_node_f64(ckr_node_at(base, 0), out)) return;
    ckr__nt_num(r->sched_params, "learning_rate", out);
}

/* One schedule for all groups; what its configuration has wrong is a note, and no schedule. */
static ckr_result ckr__nt_schedule_out(ckr__nt *r, const double *bases, uint64_t n)
{
    ckr_schedule *s;
    ckr_result e;
    if (!r->sched_params) return CKR_OK;
    e = ckr__sched_build(r->c, "nanotron", r->sched_params, n ? bases : NULL, n, &s);
    if (e == CKR_E_ARG) {
        const char *why = ckr__strdup(r->c, r->c->err->text);
        ckr__error_reset(r->c);
        return why && ckr__note(r->c, &r->s->notes, &r->s->n_notes, "CKR_W_NANOTRON_SCHEDULE",
                                CKR_APPROX, "learning_rate_scheduler", NULL, NULL, why,
                                "tell the schedule with --schedule")
                   ? CKR_OK
                   : ckr__nt_oom(r);
    }
    if (e != CKR_OK) return e;
    s->position = r->step;
    r->s->schedules = s;
    r->s->n_schedules = 1;
    return CKR_OK;
}

/* One group of the state: its parameter, its hyper-parameters, its initial LR. */
static ckr_result ckr__nt_group_out(ckr__nt *r, const ckr__nt_param *p, ckr_group *g, double *init)
{
    const char **names = CKR__NEW_N(r->c, const char *, 1);
    uint64_t k;
    g->hyper = ckr__node(r->c, CKR_NODE_DICT);
    if (!names || !g->hyper) return ckr__nt_oom(r);
    names[0] = p->name;
    g->params = names;
    g->n_params = 1;
    g->raw = p->group;
    for (k = 0; k < p->group->count; k++) {
        ckr_node *key = p->group->u.items[2 * k];
        if (ckr__nt_key_is(key, "params")) continue;
        if (!ckr__node_pair(r->c, g->hyper, key, p->group->u.items[2 * k + 1]))
            return ckr__nt_oom(r);
    }
    *init = 0;
    ckr__nt_base_lr(r, p, init);
    if (!ckr_node_get(g->hyper, "initial_lr") && *init != 0 &&
        !ckr__node_set(r->c, g->hyper, "initial_lr", ckr__node_float(r->c, *init)))
        return ckr__nt_oom(r);
    return CKR_OK;
}

/* The groups' LR becomes what the schedule says for the next update. *moved counts those that
   differ by more than rounding; *was and *now are the first one's. */
static ckr_result ckr__nt_group_lrs(ckr__nt *r, double *want, uint64_t *moved, double *was,
                                    double *now)
{
    uint64_t i;
    double lr;
    ckr_result e;
    *moved = 0;
    if (!r->s->n_schedules || !r->s->n_groups) return CKR_OK;
    e = ckr__sched_at(r->c, r->s->schedules, CKR__COL_LR, (double)r->step, want);
    for (i = 0; i < r->s->n_groups && e == CKR_OK; i++) {
        ckr_node *hyper = r->s->groups[i].hyper;
        if (!ckr__nt_num(hyper, "lr", &lr) || want[i] != want[i] ||
            fabs(want[i] - lr) <= 4 * DBL_EPSILON * fabs(lr)) continue;
        if (!ckr__node_set(r->c, hyper, "lr", ckr__node_float(r->c, want[i])))
            return ckr__nt_oom(r);
        if (!(*moved)++) { *was = lr; *now = want[i]; }
    }
    return e;
}

/* How the checkpoint stands to the schedule: as saved by an uninterrupted run (last_epoch N), as
   written for HEAD (N - 1, with every LR at its initial value: HEAD takes the current LR for the
   initial one and advances once on load), or drifted (each resume with HEAD has skipped a step). */
static ckr_result ckr__nt_stands(ckr__nt *r, uint64_t moved, double was, double now)
{
    int64_t epoch = r->step, count = -1;
    bool head, at_initial = true;
    char old_value[40], new_value[40];
    double lr, init;
    uint64_t i;
    ckr_node_i64(ckr_node_get(r->scheduler, "last_epoch"), &epoch);
    ckr_node_i64(ckr_node_get(r->scheduler, "_step_count"), &count);
    for (i = 0; i < r->n_params; i++)
        if (ckr__nt_num(r->params[i]->group, "lr", &lr) &&
            ckr__nt_num(r->params[i]->group, "initial_lr", &init) && lr != init)
            at_initial = false;
    head = at_initial && (!r->scheduler || (epoch == r->step - 1 && count == r->step));
    if (head) return CKR_OK;
    if (r->scheduler && epoch != r->step) {
        ckr_result e = ckr__nt_step_note(
            r, "last_epoch", (double)epoch,
            epoch > r->step
                ? "each resume with Nanotron has skipped a step of the schedule; the step of "
                  "checkpoint_metadata.json is used"
                : "the scheduler is behind checkpoint_metadata.json, whose step is used");
        if (e != CKR_OK) return e;
    }
    if (!moved) return CKR_OK;
    snprintf(old_value, sizeof old_value, "%.17g", was);
    snprintf(new_value, sizeof new_value, "%.17g", now);
    return ckr__note(r->c, &r->s->notes, &r->s->n_notes, "CKR_W_NANOTRON_LR", CKR_CHANGED, "lr",
                     old_value, new_value,
                     "the groups' LR is not the schedule's at this step; the schedule's is used",
                     NULL)
               ? CKR_OK
               : ckr__nt_oom(r);
}

static ckr_result ckr__nt_groups_out(ckr__nt *r)
{
    ckr_group *groups = CKR__NEW_N(r->c, ckr_group, r->n_params);
    double *bases = CKR__NEW_N(r->c, double, r->n_params), was = 0, now = 0;
    uint64_t i, n = 0, moved = 0;
    ckr_result e = groups && bases ? CKR_OK : ckr__nt_oom(r);
    for (i = 0; i < r->n_params && e == CKR_OK; i++) {
        if (!r->params[i]->group) continue;
        e = ckr__nt_group_out(r, r->params[i], &groups[n], &bases[n]);
        n++;
    }
    if (e != CKR_OK) return e;
    r->s->groups = groups;
    r->s->n_groups = n;
    e = ckr__nt_schedule_out(r, bases, n);
    if (e == CKR_OK) e = ckr__nt_group_lrs(r, bases, &moved, &was, &now);
    return e == CKR_OK ? ckr__nt_stands(r, moved, was, now) : e;
}

/* >>nanotron.random ----------------------------------------------------------- */
/* RandomStates{_dict: {"tp_synced": RandomState{random, numpy, torch_cpu, torch_cuda}}}, or an
   empty map. The stream is the same on all tensor parallel ranks. Nanotron saves it and never
   reads it back. */

static uint64_t ckr__nt_mix(uint64_t sum, const void *p, size_t n)
{
    const uint64_t part[2] = { sum, ckr__hash_bytes(p, n) };
    return ckr__hash_bytes(part, sizeof part);
}

/* A number for equality of streams: bytes of tensors and arrays, integers of tuples. */
static ckr_result ckr__nt_stream_sum(ckr__nt *r, const ckr_node *n, uint64_t *sum, uint64_t *bytes)
{
    uint64_t i, k;
    const ckr_node *part;
    *bytes = 0;
    if (n->kind == CKR_NODE_TENSOR || n->kind == CKR_NODE_NDARRAY) {
        const ckr_view *v = n->u.view;
        int64_t count;
        uint8_t *p;
        if (!ckr__nt_contiguous(v, &count) || count > (1 << 20) || v->offset < 0 ||
            v->offset > (1 << 30))
            return CKR_OK;
        *bytes = (uint64_t)count * ckr_dtype_size(v->dtype);
        if (!ckr__range_ok((uint64_t)v->offset * ckr_dtype_size(v->dtype), *bytes, v->data_bytes))
            return CKR_OK;
        p = (uint8_t *)ckr__heap_alloc(r->c, (size_t)*bytes);
        if (!p) return ckr__nt_oom(r);
        if (v->bytes)
            memcpy(p, v->bytes + (uint64_t)v->offset * ckr_dtype_size(v->dtype), (size_t)*bytes);
        else if (ckr__file_read(r->c, v->file,
                                v->data_offset + (uint64_t)v->offset * ckr_dtype_size(v->dtype), p,
                                (size_t)*bytes) != CKR_OK) {
            ckr__heap_free(r->c, p, (size_t)*bytes);
            return r->c->err->code;
        }
        *sum = ckr__nt_mix(*sum, p, (size_t)*bytes);
        ckr__heap_free(r->c, p, (size_t)*bytes);
    } else if (ckr_node_is_list(n)) {
        for (i = 0; i < n->count; i++) {
            part = n->u.items[i];
            if (part->kind == CKR_NODE_INT) *sum = ckr__nt_mix(*sum, &part->u.i, sizeof part->u.i);
            if (ckr_node_is_list(part)) {
                for (k = 0; k < part->count; k++)
                    if (part->u.items[k]->kind == CKR_NODE_INT)
                        *sum = ckr__nt_mix(*sum, &part->u.items[k]->u.i, sizeof(int64_t));
                *bytes += 4 * part->count;
            }
            if (part->kind == CKR_NODE_NDARRAY) {
                ckr_result e = ckr__nt_stream_sum(r, part, sum, bytes);
                if (e != CKR_OK) return e;
            }
        }
    }
    return CKR_OK;
}

static ckr_result ckr__nt_stream(ckr__nt *r, const ckr__nt_file *f, const char *name,
                                 const ckr_node *key, const ckr_node *state, uint64_t *sum)
{
    static const char *const kinds[][2] = { { "random", "python" },
                                            { "numpy", "numpy" },
                                            { "torch_cpu", "torch_cpu" },
                                            { "torch_cuda", "torch_cuda" } };
    void *array = r->s->rng;
    ckr_stream *s;
    size_t i;
    ckr_result e;
    if (state->kind == CKR_NODE_NONE) return CKR_OK;
    for (i = 0; i < 4; i++) if (ckr_node_str(key) && !strcmp(key->u.str, kinds[i][0])) break;
    if (i == 4) return ckr__nt_leave(r, f, name, key, state);
    s = (ckr_stream *)ckr__append(r->c, &array, &r->s->n_rng, sizeof *s);
    r->s->rng = (ckr_stream *)array;
    if (!s) return ckr__nt_oom(r);
    memset(s, 0, sizeof *s);
    s->kind = kinds[i][1];
    s->name = name;
    s->scope = "dp,pp";
    s->rank = ckr__nt_rank(r, f->pp, f->dp, f->tp);
    s->state = state;
    e = ckr__nt_stream_sum(r, state, sum, &s->n_bytes);
    return e;
}

static ckr_result ckr__nt_read_random(ckr__nt *r)
{
    uint64_t i, k, m;
    ckr_result e = CKR_OK;
    r->random_sum = CKR__NEW_N(r->c, uint64_t, r->n_files[CKR__NT_RANDOM]);
    if (!r->random_sum) return ckr__nt_oom(r);
    for (i = 0; i < r->n_files[CKR__NT_RANDOM] && e == CKR_OK; i++) {
        ckr__nt_file *f = r->files[CKR__NT_RANDOM][i];
        ckr_node *root = NULL;
        const ckr_node *dict;
        e = ckr__nt_load_tree(r, f, &root);
        if (e != CKR_OK) break;
        dict = root->kind == CKR_NODE_OBJECT && root->u.object->state
                   ? ckr_node_get(root->u.object->state, "_dict")
                   : NULL;
        if (!ckr_node_is_dict(dict))
            return ckr__nt_bad_file(r, f, "", "an object RandomStates with a dict");
        for (k = 0; k < dict->count && e == CKR_OK; k++) {
            const ckr_node *key = dict->u.items[2 * k], *value = dict->u.items[2 * k + 1];
            const ckr_node *st = value->kind == CKR_NODE_OBJECT ? value->u.object->state : NULL;
            if (!ckr_node_str(key) || !ckr_node_is_dict(st))
                return ckr__nt_bad_file(r, f, "_dict", "objects RandomState by name");
            for (m = 0; m < st->count && e == CKR_OK; m++)
                e = ckr__nt_stream(r, f, key->u.str, st->u.items[2 * m], st->u.items[2 * m + 1],
                                   &r->random_sum[i]);
        }
    }
    return e;
}

/* >>nanotron.read ------------------------------------------------------------- */

/* "1.10" is above "1.9". */
static int64_t ckr__nt_version(const char *s)
{
    int64_t major = 0, minor = 0;
    for (; s && *s >= '0' && *s <= '9' && major < 100000; s++) major = major * 10 + (*s - '0');
    if (s && *s == '.')
        for (s++; *s >= '0' && *s <= '9' && minor < 100000; s++) minor = minor * 10 + (*s - '0');
    return major * 1000000 + minor;
}

static ckr_result ckr__nt_progress(ckr__nt *r)
{
    const ckr_node *m = ckr_node_get(r->meta.root, "metas"),
                   *stages = ckr_node_get(m, "data_stages");
    const char *base = strrchr(r->dir, '/');
    int64_t v, length = 4096, sum = 0, named;
    uint64_t i;
    ckr_result e;
    r->version = ckr_node_str(ckr_node_get(r->meta.root, "version"));
    if (ckr__nt_version(r->version) > 1000005)
        return ckr__fail(r->c->err, CKR_ITEM_NANOTRON_VERSION, r->meta.path, CKR_NO_OFFSET,
                         "version", "found %.20s, up to 1.5 is known", r->version);
    if (!ckr_node_i64(ckr_node_get(m, "last_train_step"), &r->step) || r->step < 0)
        return ckr__fail(r->c->err, CKR_ITEM_NANOTRON_METADATA, r->meta.path, CKR_NO_OFFSET,
                         "metas/last_train_step", "an integer was expected");
    if (ckr__nt_step_of(base && base[1] ? base + 1 : r->dir, &named) && named != r->step) {
        e = ckr__fail(r->c->err, CKR_ITEM_NANOTRON_STEP, r->meta.path, CKR_NO_OFFSET,
                      "metas/last_train_step", "it says step %lld, the directory is of step %lld",
                      (long long)r->step, (long long)named);
        return ckr__remedy(
            r->c->err, e,
            "put back the checkpoint_metadata.json of this step, or rename the directory");
    }
    r->s->progress.step = r->step;
    if (ckr_node_i64(ckr_node_get(m, "consumed_train_samples"), &v)) r->s->progress.samples = v;
    if (ckr_node_i64(ckr_node_get(m, "consumed_tokens_total"), &v)) {
        r->s->progress.tokens = v;
        return CKR_OK;
    }
    ckr_node_i64(ckr_node_find(r->config.root, "/tokens/sequence_length"), &length);
    if (r->s->progress.samples < 0 || length < 0 || length > INT32_MAX) return CKR_OK;
    if (!ckr_node_is_list(stages)) {
        if (r->s->progress.samples < INT64_MAX / (length + 1))
            r->s->progress.tokens = r->s->progress.samples * length;
        return CKR_OK;
    }
    for (i = 0; i < stages->count; i++) {
        int64_t n = 0, len = length;
        ckr_node_i64(ckr_node_get(stages->u.items[i], "consumed_train_samples"), &n);
        ckr_node_i64(ckr_node_get(stages->u.items[i], "sequence_length"), &len);
        if (n < 0 || len < 0 || len > INT32_MAX || n > ((int64_t)1 << 31) || sum > INT64_MAX / 2)
            return CKR_OK;
        sum += n * len;
    }
    r->s->progress.tokens = sum;
    return CKR_OK;
}

static ckr_result ckr__nt_ties(ckr__nt *r)
{
    ckr_tie *t;
    if (!r->tied || !r->modules[0] || r->modules[0]->block != 0) return CKR_OK;
    t = CKR__NEW(r->c, ckr_tie);
    if (!t) return ckr__nt_oom(r);
    t->name = r->modules[0]->name;
    t->other = CKR__NT_HEAD;
    r->s->ties = t;
    r->s->n_ties = 1;
    return CKR_OK;
}

static ckr_result ckr__nt_complete_dir(ckr__nt *r)
{
    const char *best, *newer;
    ckr_result e;
    if (ckr__path_kind(r->c, r->dir) != CKR_FILE_DIR)
        return ckr__fail(r->c->err, CKR_ITEM_PATH_NOT_FOUND, r->dir, CKR_NO_OFFSET, NULL,
                         "a step directory was expected");
    e = ckr__nt_siblings(r->c, r->dir, &best, &newer);
    if (e != CKR_OK) return e;
    if (!ckr__nt_is_complete(r->c, r->dir)) return ckr__nt_incomplete(r->c, r->dir, best);
    if (!newer ||
        ckr__note(r->c, &r->s->notes, &r->s->n_notes, "CKR_W_NANOTRON_INCOMPLETE", CKR_EXACT, newer,
                  NULL, NULL, "a later step lies beside this one and is not complete", NULL))
        return CKR_OK;
    return ckr__nt_oom(r);
}

static void ckr__nt_fill_topology(ckr__nt *r)
{
    ckr_topology *t = &r->s->topology;
    t->tp = r->tp;
    t->pp = r->pp;
    t->dp = r->dp;
    t->ep = r->ep;
    t->cp = r->cp;
    t->zero = r->zero;
    t->ranks = r->tp * r->pp * r->dp * r->cp;
}

static ckr_result ckr__nt_read_all(ckr__nt *r)
{
    ckr_result e = ckr__nt_complete_dir(r);
    if (e == CKR_OK) e = ckr__nt_load_text(r, "config.yaml", true, &r->config);
    if (e == CKR_OK) e = ckr__nt_load_text(r, "model_config.json", false, &r->model);
    if (e == CKR_OK) e = ckr__nt_load_text(r, "checkpoint_metadata.json", false, &r->meta);
    if (e == CKR_OK)
        e = ckr__nt_load_text(r, "optimizer/optimizer_config.json", false, &r->optimizer);
    if (e == CKR_OK) e = ckr__nt_progress(r);
    if (e == CKR_OK) e = ckr__nt_walk(r);
    if (e == CKR_OK) e = ckr__nt_topology(r);
    if (e != CKR_OK) return e;
    ckr__nt_fill_topology(r);
    ckr__nt_model(r);
    e = ckr__nt_check_config(r);
    if (e == CKR_OK) e = ckr__nt_weights(r);
    if (e == CKR_OK) e = ckr__nt_order_modules(r);
    if (e == CKR_OK) e = ckr__nt_read_optimizer(r);
    if (e == CKR_OK) e = ckr__nt_schedule(r);
    if (e == CKR_OK) e = ckr__nt_read_scheduler(r);
    if (e == CKR_OK) e = ckr__nt_groups_out(r);
    if (e == CKR_OK) e = ckr__nt_read_random(r);
    return e == CKR_OK ? ckr__nt_ties(r) : e;
}

static ckr_result ckr__nt_read(ckr__ctx *c, const char *dir, const ckr_open_desc *desc,
                               ckr_state *s)
{
    ckr__nt *r = CKR__NEW(c, ckr__nt);
    ckr_result e;
    if (!r) return c->err->code;
    r->c = c;
    r->s = s;
    r->dir = dir;
    (void)desc;
    r->by_name.c = c;
    s->dialect = "nanotron";
    s->format = CKR_FORMAT_SAFETENSORS;
    e = ckr__nt_read_all(r);
    ckr__map_free(&r->by_name);
    s->framework_version = r->version;
    s->dialect_data = r;
    return e;
}

/* >>nanotron.emit ------------------------------------------------------------- */
/* Writes what unpatched HEAD (2411b02) resumes from exactly: the target topology under its exact
   names, groups in the stage's parameter order (HEAD matches by position), one group and one
   lambda for each parameter. HEAD takes a group's current LR for its initial one and advances
   the scheduler once while loading, so lr is written as initial_lr and last_epoch as N - 1: the
   LR of every following update is then what the uninterrupted run would have used. */

typedef struct ckr__nt_item {  /* a parameter at the target                              */
    const char        *name;
    const ckr__nt_param *src;
    const ckr_tensor  *param, **slots;
    uint64_t           n_slots, cap_slots;
    const ckr_group   *group;
    uint32_t           owner, n_blocks;
    int64_t           *shape;  /* whole, with padding rows                               */
    ckr__block       **blocks;
} ckr__nt_item;

typedef struct ckr__nt_job {
    ckr__ctx          *c;
    const ckr_state   *s;
    const ckr_target  *t;
    const ckr__nt     *nt;
    ckr__out          *out;
    ckr_note         **notes;
    uint64_t          *n_notes;
    ckr__map           by_name;
    ckr__nt_item      *items;
    uint64_t           n_items;
    ckr__nt_item    ***stage;  /* [pp]: its parameters, a tied copy last                 */
    uint64_t          *n_stage;
    uint32_t           tp, pp, dp, cp;
    bool               zero, masters, same, refused;
    int64_t            step, vocab, padded;
    uint64_t           n_lost;
} ckr__nt_job;

static bool ckr__nt_say(ckr__nt_job *x, const char *code, ckr_severity severity,
                        const char *subject, const char *old_value, const char *new_value,
                        const char *reason, const char *remedy)
{
    if (severity == CKR_ERROR) x->refused = true;
    return ckr__note(x->c, x->notes, x->n_notes, code, severity, subject, old_value, new_value,
                     reason, remedy);
}

static bool ckr__nt_say_int(ckr__nt_job *x, const char *code, ckr_severity severity,
                            const char *subject, int64_t old_value, int64_t new_value,
                            const char *reason, const char *remedy)
{
    char a[24], b[24];
    snprintf(a, sizeof a, "%lld", (long long)old_value);
    snprintf(b, sizeof b, "%lld", (long long)new_value);
    return ckr__nt_say(x, code, severity, subject, a, b, reason, remedy);
}

static bool ckr__nt_refuse(ckr__nt_job *x, ckr_item item, const char *subject, int64_t old_value,
                           int64_t new_value, const char *reason, const char *remedy)
{
    return ckr__nt_say_int(x, ckr_item_name(item), CKR_ERROR, subject, old_value, new_value, reason,
                           remedy);
}

static ckr_result ckr__nt_emit_oom(const ckr__nt_job *x)
{
    return x->c->err->code != CKR_OK ? x->c->err->code : CKR_E_NOMEM;
}

/* emit: layout, who holds what at the target ------------------------------------ */

static ckr_result ckr__nt_items(ckr__nt_job *x)
{
    const ckr_state *s = x->s;
    const ckr__nt *nt = x->nt;
    uint64_t i, k, at;
    x->items = CKR__NEW_N(x->c, ckr__nt_item, nt->n_params);
    if (!x->items) return ckr__nt_emit_oom(x);
    x->n_items = nt->n_params;
    for (i = 0; i < nt->n_params; i++) {
        x->items[i].name = nt->params[i]->name;
        x->items[i].src = nt->params[i];
        if (!ckr__map_put(&x->by_name, x->items[i].name, strlen(x->items[i].name), i, NULL))
            return ckr__nt_emit_oom(x);
    }
    for (i = 0; i < s->n_tensors; i++) {
        const ckr_tensor *t = s->tensors[i], **place;
        ckr__nt_item *p;
        void *array;
        if (!ckr__map_find(&x->by_name, t->name, strlen(t->name), &at)) continue;
        p = &x->items[at];
        if (!strcmp(t->slot, "param")) {
            p->param = t;
            continue;
        }
        if (!strcmp(t->slot, "master")) x->masters = true;
        array = (void *)p->slots;
        place = (const ckr_tensor **)ckr__append(x->c, &array, &p->n_slots, sizeof *p->slots);
        p->slots = (const ckr_tensor **)array;
        if (!place) return ckr__nt_emit_oom(x);
        *place = t;
    }
    for (i = 0; i < s->n_groups; i++)
        for (k = 0; k < s->groups[i].n_params; k++) {
            const char *name = s->groups[i].params[k];
            if (ckr__map_find(&x->by_name, name, strlen(name), &at))
                x->items[at].group = &s->groups[i];
        }
    return CKR_OK;
}

/* padded = ceil(v / (m * tp)) * (m * tp), as HEAD pads; where the logical size is not known, the
   stored rows are the vocabulary. */
static ckr_result ckr__nt_vocabulary(ckr__nt_job *x)
{
    const int64_t stored = x->s->padded_vocab, told = x->t->vocab > 0 ? x->t->vocab : x->s->vocab;
    const int64_t unit = x->nt->multiple * (int64_t)x->tp;
    if (stored <= 0) return CKR_OK;
    x->vocab = told > 0 ? told : stored;
    x->padded = x->vocab > INT64_MAX - unit ? x->vocab : (x->vocab + unit - 1) / unit * unit;
    if (told <= 0 && x->tp == x->nt->tp) x->padded = stored;
    x->out->vocab = x->vocab;
    x->out->padded_vocab = x->padded;
    if (x->padded == stored && x->vocab <= stored) return CKR_OK;
    return ckr__nt_say_int(
               x, "CKR_W_VOCAB_ROWS", CKR_CHANGED, "vocabulary rows", stored, x->padded,
               x->vocab > stored    ? "the vocabulary grows: the new rows are zero in parameters, "
                                      "moments and masters"
               : x->padded > stored ? "padded to a multiple of make_vocab_size_divisible_by * tp: "
                                      "the new rows are zero"
                                    : "rows above the vocabulary are padding and were dropped",
               told > 0 ? NULL : "give the logical size with --vocab if the stored rows are padded")
               ? CKR_OK
               : ckr__nt_emit_oom(x);
}

/* Binding must not take rows above the vocabulary, which a tensor of unknown logical size still
   has. */
static void ckr__nt_clip(ckr__block *b, int64_t rows)
{
    uint32_t i;
    for (i = 0; i < b->n_pairs; i++) {
        int64_t room = rows - b->pairs[i].global[0];
        b->pairs[i].count[0] = ckr__max_i64(0, ckr__min_i64(b->pairs[i].count[0], room));
    }
}

static ckr_result ckr__nt_uneven(ckr__nt_job *x, const ckr__nt_item *p, int64_t uneven,
                                 int64_t *seen, size_t *n_seen)
{
    size_t i;
    const char *reason, *remedy;
    const bool units = p->param->split.units != NULL;
    for (i = 0; i < *n_seen; i++)
        if (seen[i] == uneven) return CKR_OK; /* one entry for each size */
    if (*n_seen < 16) seen[(*n_seen)++] = uneven;
    reason =
        ckr__printf(x->c, "%lld %s of axis %d cannot be cut in %u equal parts", (long long)uneven,
                    units ? "heads" : "elements", (int)p->param->split.axis, (unsigned)x->tp);
    remedy = ckr__printf(x->c, "take a --tp that divides %lld", (long long)uneven);
    if (!reason || !remedy) return ckr__nt_emit_oom(x);
    return ckr__nt_refuse(x, CKR_ITEM_TP_UNEVEN, p->name, x->nt->tp, x->tp, reason, remedy)
               ? CKR_OK
               : ckr__nt_emit_oom(x);
}

static ckr_result ckr__nt_cut_items(ckr__nt_job *x)
{
    uint64_t i;
    uint32_t r;
    int64_t uneven = 0, seen[16];
    size_t n_seen = 0;
    ckr_result e;
    for (i = 0; i < x->n_items; i++) {
        ckr__nt_item *p = &x->items[i];
        const ckr_tensor *t = p->param;
        if (!t) {
            if (!ckr__nt_say(x, ckr_item_name(CKR_ITEM_NANOTRON_SOURCE), CKR_ERROR, p->name, NULL,
                             NULL, "the state has lost this parameter", NULL))
                return ckr__nt_emit_oom(x);
            continue;
        }
        p->n_blocks = t->split.axis < 0 ? 1 : x->tp;
        p->shape = CKR__NEW_N(x->c, int64_t, t->n_dims);
        p->blocks = CKR__NEW_N(x->c, ckr__block *, p->n_blocks);
        if (!p->shape || !p->blocks) return ckr__nt_emit_oom(x);
        if (t->n_dims) memcpy(p->shape, t->shape, t->n_dims * sizeof *p->shape);
        if (t->split.vocab) p->shape[0] = x->padded;
        for (r = 0; r < p->n_blocks; r++) {
            p->blocks[r] =
                ckr__block_split(x->c, &t->split, t->n_dims, p->shape, x->tp, r, &uneven);
            if (!p->blocks[r] && !uneven) return ckr__nt_emit_oom(x);
            if (!p->blocks[r]) {
                e = ckr__nt_uneven(x, p, uneven, seen, &n_seen);
                if (e != CKR_OK) return e;
                break;
            }
            if (t->split.vocab) ckr__nt_clip(p->blocks[r], ckr__min_i64(x->vocab, t->shape[0]));
        }
    }
    return CKR_OK;
}

/* The stage of every parameter, and each stage's list. */
static ckr_result ckr__nt_stages(ckr__nt_job *x)
{
    const ckr__nt *nt = x->nt;
    const bool keep = !nt->plain_partition && x->pp == nt->pp;
    const uint32_t *owner = ckr__nt_partition(x->c, nt, x->pp, x->padded);
    uint64_t i, head = (uint64_t)nt->layers + 2;
    uint32_t q;
    x->stage = CKR__NEW_N(x->c, ckr__nt_item **, x->pp);
    x->n_stage = CKR__NEW_N(x->c, uint64_t, x->pp);
    if (!owner || !x->stage || !x->n_stage) return ckr__nt_emit_oom(x);
    if (!nt->plain_partition && x->pp > 1 &&
        !ckr__nt_say(
            x, "CKR_W_NANOTRON_PARTITION", keep ? CKR_EXACT : CKR_APPROX, "pipeline stages", NULL,
            NULL,
            keep
                ? "the layers lie on other stages than HEAD would put them on; they were kept there"
                : "the layers lay on other stages than HEAD would put them on; the new ones follow "
                  "HEAD's rule",
            NULL))
        return ckr__nt_emit_oom(x);
    for (i = 0; i < x->n_items; i++) {
        ckr__nt_item *p = &x->items[i];
        p->owner = keep ? (uint32_t)p->src->pp : p->src->block >= 0 ? owner[p->src->block] : 0;
        if (p->owner >= x->pp) p->owner = x->pp - 1;
        x->n_stage[p->owner]++;
    }
    for (q = 0; q < x->pp; q++) {
        if (!x->n_stage[q]) {
            char stages[24];
            snprintf(stages, sizeof stages, "stage %u", (unsigned)q);
            if (!ckr__nt_refuse(x, CKR_ITEM_PP_EMPTY_STAGE, stages, nt->pp, x->pp,
                                "by HEAD's rule no layer would lie on this stage",
                                "take a smaller --pp"))
                return ckr__nt_emit_oom(x);
        }
        x->stage[q] = CKR__NEW_N(x->c, ckr__nt_item *, x->n_stage[q] + 1);
        if (!x->stage[q]) return ckr__nt_emit_oom(x);
        x->n_stage[q] = 0;
    }
    for (i = 0; i < x->n_items; i++) {
        q = x->items[i].owner;
        x->stage[q][x->n_stage[q]++] = &x->items[i];
    }
    for (i = 0; nt->tied && i < x->n_items; i++) {
        q = keep ? nt->pp - 1 : owner[head];
        if (x->items[i].src->block == 0 && q != x->items[i].owner)
            x->stage[q][x->n_stage[q]++] = &x->items[i];
    }
    return CKR_OK;
}

/* emit: weights ----------------------------------------------------------------- */

static bool ckr__nt_slice_put(ckr__buf *b, const ckr__nt_item *p, uint32_t rank)
{
    const ckr_split *s = &p->param->split;
    const uint32_t n = s->n_chunks ? s->n_chunks : 1;
    int64_t at = 0, local = 0;
    uint32_t k, d, side;
    for (k = 0; k < n; k++) {
        const int64_t size = s->n_chunks ? s->chunks[k] : p->shape[s->axis],
                      part = size / p->n_blocks;
        if (k) ckr__buf_u8(b, ';');
        for (side = 0; side < 2; side++) {
            if (side) ckr__buf_u8(b, '#');
            for (d = 0; d < p->param->n_dims; d++) {
                const int64_t from = side ? at + (int64_t)rank * part : local;
                if (d) ckr__buf_u8(b, '|');
                if ((int32_t)d != s->axis || (!side && n == 1)) ckr__buf_str(b, "None,None,None");
                else
                    ckr__buf_printf(b, "%lld,%lld,None", (long long)from, (long long)(from + part));
            }
        }
        at += size;
        local += part;
    }
    return !b->failed;
}

/* The text of unsharded_shape: as it was, where the shape still is what it says. */
static ckr_node *ckr__nt_shape_node(ckr__nt_job *x, const ckr__nt_item *p, ckr__buf *b)
{
    int64_t old[CKR_MAX_DIMS];
    uint32_t n = 0, d;
    bool same = p->src->shape_text && ckr__nt_whole_shape(p->src->shape_text, old, &n) &&
                n == p->param->n_dims;
    for (d = 0; same && d < n; d++) same = old[d] == p->shape[d];
    if (same) return ckr__node_str(x->c, p->src->shape_text);
    b->size = 0;
    ckr__buf_u8(b, '(');
    for (d = 0; d < p->param->n_dims; d++)
        ckr__buf_printf(b, "%s%lld", d ? ", " : "", (long long)p->shape[d]);
    ckr__buf_str(b, p->param->n_dims == 1 ? ",)" : ")");
    return b->failed ? NULL : ckr__node_text(x->c, CKR_NODE_STR, (const char *)b->data, b->size);
}

static ckr_node *ckr__nt_weight_meta(ckr__nt_job *x, const ckr__nt_item *p, uint32_t rank,
                                     ckr__buf *b)
{
    ckr_node *m = ckr__node(x->c, CKR_NODE_DICT);
    const char *version = p->src->version  ? p->src->version
                          : x->nt->version ? x->nt->version
                                           : "1.5";
    uint64_t i;
    bool ok = m != NULL;
    if (ok && p->param->split.axis >= 0) {
        b->size = 0;
        ok = ckr__nt_slice_put(b, p, rank) &&
             ckr__node_set(x->c, m, "local_global_slices_pairs",
                           ckr__node_text(x->c, CKR_NODE_STR, (const char *)b->data, b->size)) &&
             ckr__node_set(x->c, m, "unsharded_shape", ckr__nt_shape_node(x, p, b)) &&
             ckr__node_set(x->c, m, "version", ckr__node_str(x->c, version));
    }
    for (i = 0; ok && p->src->extra && i < p->src->extra->count; i++) {
        const char *key = ckr_node_str(p->src->extra->u.items[2 * i]);
        if (key && !ckr_node_get(m, key))
            ok = ckr__node_set(x->c, m, key, p->src->extra->u.items[2 * i + 1]);
    }
    return ok ? m : NULL;
}

/* "a.b.weight" is <step>/model/a/b/model_weight...: dots become slashes. */
static const char *ckr__nt_weight_path(ckr__nt_job *x, const ckr__nt_item *p, uint32_t rank)
{
    const char *leaf = strrchr(p->name, '.');
    const size_t n = leaf ? (size_t)(leaf - p->name) : 0;
    const char *dir = ckr__strndup(x->c, p->name, n), *tail = leaf ? leaf + 1 : p->name;
    char *slashes = (char *)ckr__arena(x->c, n + 1);
    size_t i;
    if (!dir || !slashes) return NULL;
    for (i = 0; i < n; i++) slashes[i] = dir[i] == '.' ? '/' : dir[i];
    if (p->param->split.axis < 0)
        return ckr__printf(x->c, "%lld/model/%s%smodel_%s.safetensors", (long long)x->step, slashes,
                           n ? "/" : "", tail);
    return ckr__printf(x->c,
                       "%lld/model/%s%smodel_%s_pp-rank-%u-of-%u_tp-rank-%u-of-%u.safetensors",
                       (long long)x->step, slashes, n ? "/" : "", tail, (unsigned)p->owner,
                       (unsigned)x->pp, (unsigned)rank, (unsigned)x->tp);
}

/* Other tensors that lay in the file; a shard's belong to its rank. */
static bool ckr__nt_weight_others(ckr__nt_job *x, const ckr__nt_item *p, uint32_t rank,
                                  ckr__out_file *f)
{
    const bool whole = p->param->split.axis < 0;
    const ckr_node *root = p->src->shards[whole || x->tp != x->nt->tp ? 0 : rank]->root;
    uint64_t i;
    for (i = 0; i < root->count; i++) {
        const char *key = ckr_node_str(root->u.items[2 * i]);
        const ckr_node *v = root->u.items[2 * i + 1];
        if (!key || !strcmp(key, "data") || v->kind != CKR_NODE_TENSOR) continue;
        if (!whole && x->tp != x->nt->tp) {
            if (rank == 0) x->n_lost++;
            continue;
        }
        if (!ckr__node_set(x->c, f->root, key, ckr__entry_copy(x->c, f, key, v->u.view)))
            return false;
    }
    return true;
}

static ckr_result ckr__nt_emit_weights(ckr__nt_job *x)
{
    uint64_t i;
    uint32_t r;
    ckr__buf b;
    bool ok = true, cast = false;
    memset(&b, 0, sizeof b);
    b.c = x->c;
    for (i = 0; ok && i < x->n_items; i++) {
        const ckr__nt_item *p = &x->items[i];
        const ckr_tensor *from = p->param;
        ckr_dtype dtype = p->param->dtype;
        if (x->t->dtype != CKR_DTYPE_NONE && x->t->dtype != dtype && ckr__is_float(dtype)) {
            if (!cast)
                ok = ckr__nt_say(x, "CKR_W_CAST", CKR_CHANGED, "params", ckr_dtype_name(dtype),
                                 ckr_dtype_name(x->t->dtype), "asked for", NULL);
            cast = true;
            dtype = x->t->dtype;
            if (x->masters) from = ckr__tensor_find(x->s, p->name, "master");
            if (!from) from = p->param;            /* what rounds to it again is the master */
        }
        for (r = 0; ok && r < p->n_blocks; r++) {
            const ckr__block *block = p->blocks[r];
            const char *path = ckr__nt_weight_path(x, p, r);
            ckr__out_file *f =
                path ? ckr__out_file_add(x->out, path, CKR_FORMAT_SAFETENSORS) : NULL;
            ckr_node *e;
            ok = f != NULL;
            if (!ok) break;
            f->root = ckr__node(x->c, CKR_NODE_DICT);
            f->metadata = ckr__nt_weight_meta(x, p, r, &b);
            e = ckr__entry_new(x->c, f, p->name, dtype, block->n_dims, block->shape);
            ok = f->root && f->metadata && e && ckr__node_set(x->c, f->root, "data", e) &&
                 ckr__bind_flat(x->c, e->u.entry, from, from != p->param, block, 0,
                                ckr__nt_block_numel(block), 0) &&
                 ckr__nt_weight_others(x, p, r, f);
        }
    }
    ckr__buf_free(&b);
    return ok ? CKR_OK : ckr__nt_emit_oom(x);
}

/* emit: optimizer --------------------------------------------------------------- */

/* A tree of the source as one to be written: every stored tensor becomes an entry. Containers
   are copied once each, so sharing and cycles stay. */
typedef struct ckr__nt_copy {
    ckr__ctx     *c;
    ckr__out_file *f;
    ckr__map      done;        /* id of a container -> index in copies                   */
    ckr_node    **copies;
    uint64_t      n_copies;
    ckr__buf      todo;        /* ckr_node **: places that still hold a node of the source */
} ckr__nt_copy;

static void ckr__nt_copy_later(ckr__nt_copy *k, ckr_node **slot)
{
    if (*slot) ckr__buf_put(&k->todo, &slot, sizeof slot);
}

static ckr_node *ckr__nt_copy_node(ckr__nt_copy *k, const ckr_node *n)
{
    ckr_node *out = ckr__node(k->c, (ckr_node_kind)n->kind);
    const uint64_t width = ckr_node_is_dict(n) ? 2 : 1;
    uint64_t i;
    if (!out) return NULL;
    out->flags = n->flags;
    out->count = n->count;
    out->u = n->u;
    out->attrs = n->attrs;
    ckr__nt_copy_later(k, &out->attrs);
    if (n->kind == CKR_NODE_OBJECT) {
        ckr_object *o = CKR__NEW(k->c, ckr_object);
        if (!o) return NULL;
        *o = *n->u.object;
        out->u.object = o;
        ckr__nt_copy_later(k, &o->callable);
        ckr__nt_copy_later(k, &o->args);
        ckr__nt_copy_later(k, &o->kwargs);
        ckr__nt_copy_later(k, &o->state);
        ckr__nt_copy_later(k, &o->items);
        ckr__nt_copy_later(k, &o->dictitems);
    } else {
        out->u.items = CKR__NEW_N(k->c, ckr_node *, width * n->count);
        if (!out->u.items) return NULL;
        for (i = 0; i < width * n->count; i++) {
            out->u.items[i] = n->u.items[i];
            ckr__nt_copy_later(k, &out->u.items[i]);
        }
    }
    return out;
}

/* What belongs where the source's node n stands; NULL: out of memory. */
static ckr_node *ckr__nt_copy_one(ckr__nt_copy *k, ckr_node *n)
{
    uint64_t at;
    void *array = k->copies;
    ckr_node **place;
    if (n->kind == CKR_NODE_TENSOR && !n->u.view->layout && n->u.view->n_dims <= CKR_MAX_DIMS)
        return ckr__entry_copy(k->c, k->f, "leftover", n->u.view);
    if (n->kind != CKR_NODE_OBJECT &&
        !(n->kind >= CKR_NODE_LIST && n->kind <= CKR_NODE_DEFAULTDICT))
        return n;
    if (ckr__map_find(&k->done, (const char *)&n->id, sizeof n->id, &at)) return k->copies[at];
    place = (ckr_node **)ckr__append(k->c, &array, &k->n_copies, sizeof *place);
    k->copies = (ckr_node **)array;
    if (!place) return NULL;
    *place = ckr__nt_copy_node(k, n);
    return *place &&
                   ckr__map_put(&k->done, (const char *)&n->id, sizeof n->id, k->n_copies - 1, NULL)
               ? *place
               : NULL;
}

static ckr_node *ckr__nt_copy_tree(ckr__ctx *c, ckr__out_file *f, const ckr_node *root)
{
    ckr__nt_copy k;
    ckr_node *top = NULL, **slot = &top;
    memset(&k, 0, sizeof k);
    k.c = k.done.c = k.todo.c = c;
    k.f = f;
    memcpy(&top, &root, sizeof top);            /* read-only until it is replaced */
    ckr__nt_copy_later(&k, slot);
    while (k.todo.size && !k.todo.failed) {
        k.todo.size -= sizeof slot;
        memcpy(&slot, k.todo.data + k.todo.size, sizeof slot);
        *slot = ckr__nt_copy_one(&k, *slot);
        if (!*slot) top = NULL;
        if (!*slot) break;
    }
    if (k.todo.failed) top = NULL;
    ckr__map_free(&k.done);
    ckr__buf_free(&k.todo);
    return top;
}

/* The LR that HEAD is to find: the initial one. */
static double ckr__nt_head_lr(const ckr__nt_job *x, const ckr__nt_item *p)
{
    double v = 0;
    if (ckr__nt_num(p->group->hyper, "initial_lr", &v)) return v;
    if (x->s->n_schedules && ckr__nt_num(x->s->schedules[0].params, "learning_rate", &v)) return v;
    ckr__nt_num(p->group->hyper, "lr", &v);
    return v;
}

static ckr_node *ckr__nt_group_node(ckr__nt_job *x, const ckr__nt_item *p, int64_t index)
{
    const ckr_node *raw = p->group->raw ? p->group->raw : p->group->hyper, *hyper = p->group->hyper;
    ckr_node *g = ckr__node(x->c, CKR_NODE_DICT), *list = ckr__node(x->c, CKR_NODE_LIST);
    const double lr = ckr__nt_head_lr(x, p);
    uint64_t i;
    bool had_params = false, had_initial = false,
         ok = g && list && (index < 0 || ckr__node_push(x->c, list, ckr__node_int(x->c, index)));
    for (i = 0; ok && i < raw->count; i++) {
        ckr_node *key = raw->u.items[2 * i], *value = raw->u.items[2 * i + 1];
        uint64_t k;
        if (ckr__nt_key_is(key, "params")) {
            had_params = true;
            value = list;
        } else if (ckr__nt_key_is(key, "lr")) {
            double was;
            if (!ckr_node_f64(value, &was) || was != lr) value = ckr__node_float(x->c, lr);
        } else {
            if (ckr__nt_key_is(key, "initial_lr")) had_initial = true;
            for (k = 0; hyper && hyper != raw && k < hyper->count; k++)
                if (hyper->u.items[2 * k] == key ||
                    (key->kind == CKR_NODE_STR &&
                     ckr__nt_key_is(hyper->u.items[2 * k], key->u.str)))
                    value = hyper->u.items[2 * k + 1];
        }
        ok = ckr__node_pair(x->c, g, key, value);
    }
    if (ok && !had_initial) ok = ckr__node_set(x->c, g, "initial_lr", ckr__node_float(x->c, lr));
    if (ok && !had_params) ok = ckr__node_set(x->c, g, "params", list);
    return ok ? g : NULL;
}

/* One tensor of a parameter's state for one rank: block, or elements [begin, end) of it. */
typedef struct ckr__nt_part {
    const ckr__block *block;
    int64_t begin, end;
    bool replica, replica_step;
} ckr__nt_part;

static ckr_node *ckr__nt_state_entry(ckr__nt_job *x, ckr__out_file *f, const ckr__nt_item *p,
                                     const ckr_tensor *t, const ckr__nt_part *part)
{
    const char *name = ckr__printf(x->c, "%s/%s", t->name, t->slot);
    const bool scalar = t->n_dims == 0 || !strcmp(t->slot, "step");
    const ckr__block *b = part->block;
    int64_t n = part->end - part->begin;
    ckr_node *e;
    if (!name) return NULL;
    if (scalar) {
        ckr__block *one = ckr__block_whole(x->c, t->n_dims, t->shape);
        e = ckr__entry_new(x->c, f, name, t->dtype, t->n_dims, t->shape);
        if (!one || !e ||
            !ckr__bind_flat(x->c, e->u.entry, t, part->replica_step, one, 0,
                            ckr__nt_block_numel(one), 0))
            return NULL;
        return e;
    }
    (void)p;
    e = x->zero ? ckr__entry_new(x->c, f, name, t->dtype, 1, &n)
                : ckr__entry_new(x->c, f, name, t->dtype, b->n_dims, b->shape);
    if (!e || !ckr__bind_flat(x->c, e->u.entry, t, part->replica, b, part->begin, part->end, 0))
        return NULL;
    e->u.entry->requires_grad = !strcmp(t->slot, "master");
    return e;
}

/* State dict of a parameter; masters go into their own. */
static ckr_node *ckr__nt_state_node(ckr__nt_job *x, ckr__out_file *f, const ckr__nt_item *p,
                                    const ckr__nt_part *part, ckr_node *masters)
{
    ckr_node *st = ckr__node(x->c, CKR_NODE_DICT);
    uint64_t i;
    bool ok = st != NULL;
    for (i = 0; ok && i < p->n_slots; i++) {
        const ckr_tensor *t = p->slots[i];
        ckr_node *e = ckr__nt_state_entry(x, f, p, t, part);
        ok = e && (strcmp(t->slot, "master") != 0
                       ? ckr__node_pair(x->c, st, ckr__node_str(x->c, t->slot), e)
                       : ckr__node_pair(x->c, masters, ckr__node_str(x->c, p->name), e));
    }
    for (i = 0; ok && p->src->state && i < p->src->state->count; i++) {
        ckr_node *key = p->src->state->u.items[2 * i], *value = p->src->state->u.items[2 * i + 1];
        if (value->kind != CKR_NODE_TENSOR)
            ok = ckr__node_pair(x->c, st, key, ckr__nt_copy_tree(x->c, f, value));
    }
    return ok ? st : NULL;
}

/* Keys of the source's file of these ranks that nobody understood; of another topology they are
   lost. */
static bool ckr__nt_root_others(ckr__nt_job *x, ckr__out_file *f, uint32_t pp, uint32_t dp,
                                uint32_t tp)
{
    const ckr_node *root;
    uint64_t i, at = ((uint64_t)pp * (x->zero ? x->dp : 1) + (x->zero ? dp : 0)) * x->tp + tp;
    if (!x->same || at >= x->nt->n_files[CKR__NT_OPTIMIZER]) return true;
    root = x->nt->files[CKR__NT_OPTIMIZER][at]->root;
    for (i = 0; i < root->count; i++) {
        ckr_node *key = root->u.items[2 * i];
        if (ckr__nt_key_is(key, "state") || ckr__nt_key_is(key, "param_groups") ||
            ckr__nt_key_is(key, "names") || ckr__nt_key_is(key, "gradient_accumulator"))
            continue;
        if (!ckr__node_pair(x->c, f->root, key,
                            ckr__nt_copy_tree(x->c, f, root->u.items[2 * i + 1])))
            return false;
    }
    return true;
}

static bool ckr__nt_optimizer_file(ckr__nt_job *x, uint32_t pp, uint32_t dp, uint32_t tp)
{
    char d[40] = "";
    const char *path;
    ckr__out_file *f;
    ckr_node *state = ckr__node(x->c, CKR_NODE_DICT), *names = ckr__node(x->c, CKR_NODE_DICT);
    ckr_node *groups = ckr__node(x->c, CKR_NODE_LIST), *masters = ckr__node(x->c, CKR_NODE_DICT);
    int64_t index = 0;
    uint64_t i;
    bool ok;
    if (x->zero) snprintf(d, sizeof d, "_dp-%u-of-%u", (unsigned)dp, (unsigned)x->dp);
    path = ckr__printf(x->c, "%lld/optimizer/optimizer_pp-%u-of-%u%s_tp-%u-of-%u_exp-0-of-1.pt",
                       (long long)x->step, (unsigned)pp, (unsigned)x->pp, d, (unsigned)tp,
                       (unsigned)x->tp);
    f = path ? ckr__out_file_add(x->out, path, CKR_FORMAT_TORCH_ZIP) : NULL;
    ok = f && state && names && groups && masters;
    for (i = 0; ok && i < x->n_stage[pp]; i++) {
        const ckr__nt_item *p = x->stage[pp][i];
        const bool whole = p->param->split.axis < 0;
        ckr__nt_part part;
        ckr_node *st;
        if (!p->group || (p->src->tp0_only && tp > 0)) continue;
        part.block = p->blocks[whole ? 0 : tp];
        part.begin = 0;
        part.end = ckr__nt_block_numel(part.block);
        part.replica = pp != p->owner || (whole && tp > 0);
        part.replica_step = pp != p->owner || tp > 0 || dp > 0;
        if (x->zero) ckr__nt_zero_range(part.end, x->dp, dp, &part.begin, &part.end);
        if (part.begin == part.end) {
            ok = ckr__node_push(x->c, groups, ckr__nt_group_node(x, p, -1));
            continue;
        }
        st = ckr__nt_state_node(x, f, p, &part, masters);
        ok = st && ckr__node_push(x->c, groups, ckr__nt_group_node(x, p, index));
        if (ok && st->count)
            ok = ckr__node_pair(x->c, state, ckr__node_int(x->c, index), st) &&
                 ckr__node_pair(x->c, names, ckr__node_int(x->c, index),
                                ckr__node_str(x->c, p->name));
        index++;
    }
    if (ok) f->root = ckr__node(x->c, CKR_NODE_DICT);
    return ok && f->root && ckr__node_set(x->c, f->root, "state", state) &&
           ckr__node_set(x->c, f->root, "param_groups", groups) &&
           ckr__node_set(x->c, f->root, "names", names) &&
           (!x->masters || ckr__node_set(x->c, f->root, "gradient_accumulator", masters)) &&
           ckr__nt_root_others(x, f, pp, dp, tp);
}

static ckr_node *ckr__nt_size_node(ckr__ctx *c, int64_t v)
{
    char s[24];
    snprintf(s, sizeof s, "%lld", (long long)v);
    return ckr__node_str(c, s);
}

/* For ZeRO-1: where each rank's part begins and ends, and the shapes, of rank 0 of tp. */
static ckr_node *ckr__nt_zero_config(ckr__nt_job *x)
{
    ckr_node *root = ckr__node(x->c, CKR_NODE_DICT), *offsets = ckr__node(x->c, CKR_NODE_DICT),
             *shapes = ckr__node(x->c, CKR_NODE_DICT);
    uint64_t i;
    uint32_t d;
    bool ok = root && offsets && shapes &&
              ckr__node_set(x->c, root, "param_name_to_dp_rank_offsets", offsets) &&
              ckr__node_set(x->c, root, "orig_param_shapes", shapes);
    for (i = 0; ok && i < x->n_items; i++) {
        const ckr__nt_item *p = &x->items[i];
        ckr_node *ranks = ckr__node(x->c, CKR_NODE_DICT), *shape = ckr__node(x->c, CKR_NODE_LIST);
        const ckr__block *b = p->blocks[0];
        if (!p->group) continue;
        ok = ranks && shape;
        for (d = 0; ok && d < b->n_dims; d++)
            ok = ckr__node_push(x->c, shape, ckr__nt_size_node(x->c, b->shape[d]));
        for (d = 0; ok && d < x->dp; d++) {
            ckr_node *pair;
            int64_t begin, end;
            ckr__nt_zero_range(ckr__nt_block_numel(b), x->dp, d, &begin, &end);
            if (begin == end) continue;
            pair = ckr__node(x->c, CKR_NODE_LIST);
            ok = pair && ckr__node_push(x->c, pair, ckr__nt_size_node(x->c, begin)) &&
                 ckr__node_push(x->c, pair, ckr__nt_size_node(x->c, end)) &&
                 ckr__node_pair(x->c, ranks, ckr__nt_size_node(x->c, d), pair);
        }
        ok = ok && ckr__node_pair(x->c, offsets, ckr__node_str(x->c, p->name), ranks) &&
             ckr__node_pair(x->c, shapes, ckr__node_str(x->c, p->name), shape);
    }
    return ok ? root : NULL;
}

/* emit: text, documents, edited only where they must change --------------------- */

static bool ckr__nt_text_file(ckr__nt_job *x, const char *name, const void *bytes, uint64_t n)
{
    const char *path = ckr__printf(x->c, "%lld/%s", (long long)x->step, name);
    ckr__out_file *f = path ? ckr__out_file_add(x->out, path, CKR_FORMAT_TEXT) : NULL;
    if (!f) return false;
    f->text = bytes;
    f->n_text = n;
    return true;
}

static bool ckr__nt_json_file(ckr__nt_job *x, const char *name, const ckr_node *root, int indent,
                              bool sort_keys)
{
    ckr__buf b;
    const char *copy = NULL;
    memset(&b, 0, sizeof b);
    b.c = x->c;
    if (ckr__json_put(&b, root, indent, sort_keys) == CKR_OK && !b.failed)
        copy = ckr__strndup(x->c, (const char *)b.data, b.size);
    if (copy && !ckr__nt_text_file(x, name, copy, b.size)) copy = NULL;
    ckr__buf_free(&b);
    return copy != NULL;
}

static ckr_node *ckr__nt_dict_copy(ckr__ctx *c, const ckr_node *d)
{
    ckr_node *out = ckr__node(c, CKR_NODE_DICT);
    uint64_t i;
    for (i = 0; out && ckr_node_is_dict(d) && i < d->count; i++)
        if (!ckr__node_pair(c, out, d->u.items[2 * i], d->u.items[2 * i + 1])) return NULL;
    return out;
}

static bool ckr__nt_emit_optimizer_config(ckr__nt_job *x)
{
    const char *type = x->zero      ? "ZeroDistributedOptimizer"
                       : x->masters ? "OptimizerFromGradientAccumulator"
                                    : "NamedOptimizer";
    ckr_node *root, *par;
    if (x->same && x->nt->optimizer.root && x->padded == x->s->padded_vocab)
        return ckr__nt_text_file(x, "optimizer/optimizer_config.json", x->nt->optimizer.bytes,
                                 x->nt->optimizer.n);
    root = ckr__nt_dict_copy(x->c, x->nt->optimizer.root);
    par = ckr__nt_dict_copy(x->c, ckr_node_get(x->nt->optimizer.root, "parallelism"));
    return root && par && ckr__node_set(x->c, root, "type", ckr__node_str(x->c, type)) &&
           ckr__node_set(x->c, par, "tp_size", ckr__nt_size_node(x->c, x->tp)) &&
           ckr__node_set(x->c, par, "dp_size", ckr__nt_size_node(x->c, x->dp)) &&
           ckr__node_set(x->c, par, "pp_size", ckr__nt_size_node(x->c, x->pp)) &&
           ckr__node_set(x->c, par, "expert_parallel_size", ckr__nt_size_node(x->c, 1)) &&
           ckr__node_set(x->c, root, "parallelism", par) &&
           ckr__node_set(x->c, root, "configs",
                         x->zero ? ckr__nt_zero_config(x) : ckr__node(x->c, CKR_NODE_DICT)) &&
           ckr__nt_json_file(x, "optimizer/optimizer_config.json", root, 0, false);
}

static ckr_result ckr__nt_emit_optimizer(ckr__nt_job *x)
{
    uint32_t p, d, t;
    if (!ckr__nt_emit_optimizer_config(x)) return ckr__nt_emit_oom(x);
    for (p = 0; p < x->pp; p++)
        for (d = 0; d < (x->zero ? x->dp : 1); d++)
            for (t = 0; t < x->tp; t++)
                if (!ckr__nt_optimizer_file(x, p, d, t)) return ckr__nt_emit_oom(x);
    return CKR_OK;
}

/* emit: scheduler --------------------------------------------------------------- */

static bool ckr__nt_scheduler_file(ckr__nt_job *x, uint32_t pp, uint32_t tp)
{
    static const char *const keys[] = {
        "base_lrs", "last_epoch", "_step_count", "_is_initial", "_get_lr_called_within_step",
        "_last_lr", "lr_lambdas"
    };
    const char *path = ckr__printf(
        x->c, "%lld/lr_scheduler/lr_scheduler_pp-%u-of-%u_tp-%u-of-%u_exp-0-of-1.pt",
        (long long)x->step, (unsigned)pp, (unsigned)x->pp, (unsigned)tp, (unsigned)x->tp);
    ckr__out_file *f = path ? ckr__out_file_add(x->out, path, CKR_FORMAT_TORCH_ZIP) : NULL;
    ckr_node *base = ckr__node(x->c, CKR_NODE_LIST), *last = ckr__node(x->c, CKR_NODE_LIST),
             *lambdas = ckr__node(x->c, CKR_NODE_LIST), *v;
    const ckr_node *old = x->nt->scheduler;
    const int64_t n = x->s->progress.step;
    uint64_t i;
    bool ok = f && base && last && lambdas;
    for (i = 0; ok && i < x->n_stage[pp]; i++) {
        const ckr__nt_item *p = x->stage[pp][i];
        if (!p->group || (p->src->tp0_only && tp > 0)) continue;
        ok = ckr__node_push(x->c, base, ckr__node_float(x->c, ckr__nt_head_lr(x, p))) &&
             ckr__node_push(x->c, last, ckr__node_float(x->c, ckr__nt_head_lr(x, p))) &&
             ckr__node_push(x->c, lambdas, ckr__node(x->c, CKR_NODE_DICT));
    }
    if (!ok) return false;
    f->root = ckr__node(x->c, CKR_NODE_DICT);
    for (i = 0; f->root && i < (old ? old->count : sizeof keys / sizeof *keys); i++) {
        ckr_node *key = old ? old->u.items[2 * i] : ckr__node_str(x->c, keys[i]);
        if (!key) return false;
        v = ckr__nt_key_is(key, "base_lrs")      ? base
            : ckr__nt_key_is(key, "_last_lr")    ? last
            : ckr__nt_key_is(key, "lr_lambdas")  ? lambdas
            : ckr__nt_key_is(key, "last_epoch")  ? ckr__node_int(x->c, n - 1)
            : ckr__nt_key_is(key, "_step_count") ? ckr__node_int(x->c, n)
            : old ? ckr__nt_copy_tree(x->c, f, old->u.items[2 * i + 1])
                  : ckr__node_bool(x->c, false);
        if (!ckr__node_pair(x->c, f->root, key, v)) return false;
    }
    return f->root != NULL;
}

/* What is written otherwise than it was, one entry for each kind of value. */
static bool ckr__nt_say_head(ckr__nt_job *x)
{
    static const char why[] = "HEAD takes the current LR for the initial one and advances the "
                              "scheduler once while loading: written so, it "
                              "uses the exact LR in every following update";
    const ckr_node *old = x->nt->scheduler;
    const int64_t step = x->s->progress.step;
    char a[40], b[40], subject[64];
    int64_t v;
    double lr, was = 0, now = 0;
    uint64_t i, n = 0;
    for (i = 0; i < x->n_items; i++) {
        const ckr__nt_item *p = &x->items[i];
        if (!p->group || !ckr__nt_num(p->group->raw, "lr", &lr) || lr == ckr__nt_head_lr(x, p))
            continue;
        if (!n++) { was = lr; now = ckr__nt_head_lr(x, p); }
    }
    snprintf(a, sizeof a, "%.17g", was);
    snprintf(b, sizeof b, "%.17g", now);
    snprintf(subject, sizeof subject, "lr of %llu groups", (unsigned long long)n);
    if (n && !ckr__nt_say(x, "CKR_FIX_NANOTRON_LR", CKR_CHANGED, subject, a, b, why, NULL))
        return false;
    if (x->t->without & CKR_SCHEDULE) return true;
    if (!old)
        return ckr__nt_say(
            x, "CKR_W_NANOTRON_NO_SCHEDULER", CKR_CHANGED, "lr_scheduler", NULL, NULL,
            "the checkpoint has no scheduler; its state was made from step and initial LR", NULL);
    if (ckr_node_i64(ckr_node_get(old, "last_epoch"), &v) && v != step - 1 &&
        !ckr__nt_say_int(x, "CKR_FIX_NANOTRON_EPOCH", CKR_CHANGED, "last_epoch", v, step - 1,
                         why, NULL))
        return false;
    if (ckr_node_i64(ckr_node_get(old, "_step_count"), &v) && v != step &&
        !ckr__nt_say_int(x, "CKR_FIX_NANOTRON_COUNT", CKR_CHANGED, "_step_count", v, step, why,
                         NULL))
        return false;
    snprintf(subject, sizeof subject, "_last_lr of %llu groups", (unsigned long long)n);
    return !n ||
           ckr__nt_say(x, "CKR_FIX_NANOTRON_LAST_LR", CKR_CHANGED, subject, a, b, why, NULL);
}

/* emit: metadata ---------------------------------------------------------------- */

static bool ckr__nt_put_int(ckr__ctx *c, ckr_node *dict, const char *key, int64_t v, bool *changed)
{
    const ckr_node *old = ckr_node_get(dict, key);
    if (old && old->kind == CKR_NODE_INT && old->u.i == v) return true;
    *changed = true;
    return ckr__node_set(c, dict, key, ckr__node_int(c, v));
}

/* HEAD asserts that samples and tokens are the sums over the stages. Sums of *samples and
   *tokens; a stage list for files that had none. */
static ckr_node *ckr__nt_data_stages(ckr__nt_job *x, const ckr_node *old, bool zero,
                                     int64_t *samples, int64_t *tokens, bool *changed)
{
    ckr_node *list = ckr__node(x->c, CKR_NODE_LIST), *stage;
    const ckr_node *folders;
    int64_t v, length = 4096;
    uint64_t i, k, n = ckr_node_is_list(old) ? old->count : 0;
    bool ok = list != NULL;
    *samples = *tokens = 0;
    ckr_node_i64(ckr_node_find(x->nt->config.root, "/tokens/sequence_length"), &length);
    if (!n) {
        const char *name = ckr_node_str(ckr_node_find(x->nt->config.root, "/data_stages/0/name"));
        *changed = true;
        *samples = zero || x->s->progress.samples < 0 ? 0 : x->s->progress.samples;
        stage = ckr__node(x->c, CKR_NODE_DICT);
        return ok && stage &&
                       ckr__node_set(x->c, stage, "name",
                                     ckr__node_str(x->c, name ? name : "Training Stage")) &&
                       ckr__node_set(x->c, stage, "start_training_step", ckr__node_int(x->c, 1)) &&
                       ckr__node_set(x->c, stage, "consumed_train_samples",
                                     ckr__node_int(x->c, *samples)) &&
                       ckr__node_set(x->c, stage, "sequence_length", ckr__node_int(x->c, length)) &&
                       ckr__node_set(x->c, stage, "consumed_tokens_per_dataset_folder",
                                     ckr__node(x->c, CKR_NODE_DICT)) &&
                       ckr__node_push(x->c, list, stage)
                   ? list
                   : NULL;
    }
    for (i = 0; ok && i < n; i++) {
        stage = ckr__nt_dict_copy(x->c, old->u.items[i]);
        ok = stage && ckr__node_push(x->c, list, stage);
        if (!ok) break;
        folders = ckr_node_get(stage, "consumed_tokens_per_dataset_folder");
        if (zero) {
            ok = ckr__nt_put_int(x->c, stage, "consumed_train_samples", 0, changed) &&
                 ckr__node_set(x->c, stage, "consumed_tokens_per_dataset_folder",
                               ckr__node(x->c, CKR_NODE_DICT));
            continue;
        }
        if (ckr_node_i64(ckr_node_get(stage, "consumed_train_samples"), &v)) *samples += v;
        for (k = 0; ckr_node_is_dict(folders) && k < folders->count; k++)
            if (ckr_node_i64(folders->u.items[2 * k + 1], &v)) *tokens += v;
        if (!ckr_node_get(stage, "sequence_length"))
            ok = ckr__nt_put_int(x->c, stage, "sequence_length", length, changed);
        if (ok && !folders) {
            *changed = true;
            ok = ckr__node_set(x->c, stage, "consumed_tokens_per_dataset_folder",
                               ckr__node(x->c, CKR_NODE_DICT));
        }
    }
    return ok ? list : NULL;
}

static bool ckr__nt_emit_metadata(ckr__nt_job *x)
{
    const bool zero = (x->t->without & CKR_PROGRESS) != 0;
    ckr_node *root = ckr__nt_dict_copy(x->c, x->nt->meta.root), *m, *stages;
    int64_t samples, tokens, v;
    const ckr_node *total;
    bool changed = false, ok = root != NULL;
    if (!ok) return false;
    m = ckr__nt_dict_copy(x->c, ckr_node_get(root, "metas"));
    ok = m && ckr__nt_put_int(x->c, root, "tp", x->tp, &changed) &&
         ckr__nt_put_int(x->c, root, "dp", x->dp, &changed) &&
         ckr__nt_put_int(x->c, root, "cp", x->cp, &changed);
    if (ok && ckr__nt_version(x->nt->version) < 1000005) {
        changed = true;
        ok = ckr__nt_say(x, "CKR_W_NANOTRON_VERSION", CKR_CHANGED, "version", x->nt->version, "1.5",
                         "checkpoint_metadata.json is written as HEAD reads it", NULL) &&
             ckr__node_set(x->c, root, "version", ckr__node_str(x->c, "1.5"));
        if (ok && !ckr_node_get(root, "custom_metas"))
            ok = ckr__node_set(x->c, root, "custom_metas", ckr__node(x->c, CKR_NODE_NONE));
    }
    stages = ok ? ckr__nt_data_stages(x, ckr_node_get(m, "data_stages"), zero, &samples, &tokens,
                                      &changed)
                : NULL;
    ok = stages && ckr__node_set(x->c, m, "data_stages", stages);
    if (ok && zero) changed = true;
    if (ok && zero) ok = ckr__node_set(x->c, m, "last_train_step", ckr__node_int(x->c, 0));
    if (ok && !ckr_node_get(m, "last_stage_idx"))
        ok = ckr__nt_put_int(x->c, m, "last_stage_idx", 0, &changed);
    if (ok && ckr_node_i64(ckr_node_get(m, "consumed_train_samples"), &v) && v != samples && !zero)
        ok = ckr__nt_say_int(x, "CKR_W_NANOTRON_SAMPLES", CKR_CHANGED, "consumed_train_samples", v,
                             samples, "HEAD asserts the sum over the data stages", NULL);
    if (ok) ok = ckr__nt_put_int(x->c, m, "consumed_train_samples", samples, &changed);
    total = ckr_node_get(m, "consumed_tokens_total");
    if (ok && (!total || (total->kind == CKR_NODE_INT && total->u.i != tokens))) {
        if (total && !zero)
            ok = ckr__nt_say(x, "CKR_W_NANOTRON_TOKENS", CKR_CHANGED, "consumed_tokens_total",
                             ckr__printf(x->c, "%lld", (long long)total->u.i), "null",
                             "HEAD asserts the sum over the data folders, which is another: null "
                             "is written, and HEAD counts from there",
                             NULL);
        changed = true;
        ok = ok && ckr__node_set(x->c, m, "consumed_tokens_total",
                                 zero ? ckr__node_int(x->c, 0) : ckr__node(x->c, CKR_NODE_NONE));
    }
    if (!ok) return false;
    if (!changed)
        return ckr__nt_text_file(x, "checkpoint_metadata.json", x->nt->meta.bytes, x->nt->meta.n);
    return ckr__node_set(x->c, root, "metas", m) &&
           ckr__nt_json_file(x, "checkpoint_metadata.json", root, 2, true);
}

/* The place of `key`'s scalar in lines of block style at `path` (n levels of nesting), or false. */
static bool ckr__nt_yaml_find(const char *s, size_t size, const char *const *path, size_t n,
                              size_t *from, size_t *to)
{
    size_t at = 0, level = 0, indent[8];
    bool fresh = true;         /* the first line inside the block tells its indentation   */
    indent[0] = 0;
    while (at < size) {
        const char *eol = (const char *)memchr(s + at, '\n', size - at);
        const size_t end = eol ? (size_t)(eol - s) : size;
        const size_t key = strlen(path[level]);
        size_t k = at, col, stop = end;
        while (k < end && s[k] == ' ') k++;
        col = k - at;
        at = end + 1;
        if (k == end || s[k] == '#') continue;
        if (level > 0 && fresh) {
            if (col <= indent[level - 1]) return false;
            indent[level] = col;
            fresh = false;
        }
        if (level > 0 && col < indent[level]) return false;
        if (col != indent[level] || end - k <= key || memcmp(s + k, path[level], key) != 0 ||
            s[k + key] != ':')
            continue;
        k += key + 1;
        while (k < end && s[k] == ' ') k++;
        while (stop > k && (s[stop - 1] == ' ' || s[stop - 1] == '\n')) stop--;
        if (level + 1 == n) {
            *from = k;
            *to = stop;
            return k < stop;
        }
        if (k < stop || level + 1 >= sizeof indent / sizeof *indent) return false;
        level++;
        fresh = true;
    }
    return false;
}

/* Sets one scalar of config.yaml, every other byte staying. A key that is absent stays absent. */
static bool ckr__nt_yaml_set(ckr__nt_job *x, ckr__buf *b, const char *pointer, const char *value)
{
    char part[160];
    const char *path[8];
    size_t n = 0, from, to, k;
    ckr__buf out;
    const ckr_node *old = ckr_node_find(x->nt->config.root, pointer);
    if (!old) return true;
    snprintf(part, sizeof part, "%s", pointer + 1);
    path[n++] = part;
    for (k = 0; part[k]; k++)
        if (part[k] == '/') {
            part[k] = 0;
            if (n < 8) path[n++] = part + k + 1;
        }
    if (!ckr__nt_yaml_find((const char *)b->data, b->size, path, n, &from, &to))
        return ckr__nt_say(x, "CKR_W_NANOTRON_CONFIG", CKR_LOST, pointer, NULL, value,
                           "config.yaml is not in block style: this value was not changed", NULL);
    if (to - from == strlen(value) && !memcmp(b->data + from, value, to - from)) return true;
    memset(&out, 0, sizeof out);
    out.c = x->c;
    ckr__buf_put(&out, b->data, from);
    ckr__buf_str(&out, value);
    ckr__buf_put(&out, b->data + to, b->size - to);
    ckr__buf_free(b);
    *b = out;
    return !b->failed;
}

static bool ckr__nt_yaml_int(ckr__nt_job *x, ckr__buf *b, const char *pointer, int64_t v)
{
    char s[24];
    int64_t was;
    if (ckr_node_i64(ckr_node_find(x->nt->config.root, pointer), &was) && was == v) return true;
    snprintf(s, sizeof s, "%lld", (long long)v);
    return ckr__nt_yaml_set(x, b, pointer, s);
}

static bool ckr__nt_emit_config(ckr__nt_job *x)
{
    ckr__buf b;
    const char *copy = NULL;
    bool ok;
    int64_t stage = x->nt->zero;
    if (!x->nt->config.root) return true;
    memset(&b, 0, sizeof b);
    b.c = x->c;
    ckr__buf_put(&b, x->nt->config.bytes, (size_t)x->nt->config.n);
    ckr_node_i64(ckr_node_find(x->nt->config.root, "/optimizer/zero_stage"), &stage);
    if ((stage > 0) != x->zero) stage = x->zero;
    ok = !b.failed && ckr__nt_yaml_int(x, &b, "/parallelism/tp", x->tp) &&
         ckr__nt_yaml_int(x, &b, "/parallelism/pp", x->pp) &&
         ckr__nt_yaml_int(x, &b, "/parallelism/dp", x->dp) &&
         ckr__nt_yaml_int(x, &b, "/parallelism/context_parallel_size", x->cp) &&
         ckr__nt_yaml_int(x, &b, "/parallelism/expert_parallel_size", 1) &&
         ckr__nt_yaml_int(x, &b, "/optimizer/zero_stage", stage);
    if (ok && x->padded && x->padded != x->s->padded_vocab)
        ok = ckr__nt_yaml_int(x, &b, "/model/model_config/vocab_size", x->padded);
    if (ok && x->t->dtype != CKR_DTYPE_NONE)
        ok = ckr__nt_yaml_set(x, &b, "/model/dtype", ckr_dtype_name(x->t->dtype));
    if (ok && x->t->without & CKR_PROGRESS)
        ok = ckr__nt_yaml_int(x, &b, "/general/step", 0) &&
             ckr__nt_yaml_int(x, &b, "/general/consumed_train_samples", 0);
    if (ok) copy = ckr__strndup(x->c, (const char *)b.data, b.size);
    ok = copy && ckr__nt_text_file(x, "config.yaml", copy, b.size);
    ckr__buf_free(&b);
    return ok;
}

/* model_config.json with another vocab_size, every other byte staying. */
static bool ckr__nt_emit_model_config(ckr__nt_job *x)
{
    const char *s = x->nt->model.bytes, *at, *end, *copy;
    ckr_node *root;
    if (!s) return true;
    if (!x->padded || x->padded == x->nt->vocab)
        return ckr__nt_text_file(x, "model_config.json", s, x->nt->model.n);
    at = strstr(s, "\"vocab_size\"");
    end = at ? at + 12 : NULL;
    if (end) end += strspn(end, " \t\r\n");
    if (end && *end == ':' && !strstr(end, "\"vocab_size\"")) {
        at = end + 1 + strspn(end + 1, " \t\r\n");
        end = at + strspn(at, "0123456789");
        copy = ckr__printf(x->c, "%.*s%lld%s", (int)(at - s), s, (long long)x->padded, end);
        return copy && ckr__nt_text_file(x, "model_config.json", copy, strlen(copy));
    }
    root = ckr__nt_dict_copy(x->c, x->nt->model.root);
    return root && ckr__node_set(x->c, root, "vocab_size", ckr__node_int(x->c, x->padded)) &&
           ckr__nt_json_file(x, "model_config.json", root, 0, false);
}

/* emit: random ------------------------------------------------------------------ */

/* Rank (pp, dp, tp) continues the stream of (stage that had its first layer, min(dp, DP - 1),
   0). */
static ckr_result ckr__nt_emit_random(ckr__nt_job *x)
{
    const ckr__nt *nt = x->nt;
    const uint64_t n = nt->n_files[CKR__NT_RANDOM];
    const bool moved = x->pp != nt->pp || x->dp != nt->dp;
    uint32_t p, d, t;
    uint64_t i, streams = x->s->n_rng;
    bool equal = true;
    if (!n) return CKR_OK;
    for (i = 1; i < n; i++) equal = equal && nt->random_sum[i] == nt->random_sum[0];
    for (p = 0; p < x->pp; p++)
        for (d = 0; d < x->dp; d++)
            for (t = 0; t < x->tp; t++) {
                const uint64_t from_pp = x->pp == nt->pp ? p
                                         : x->n_stage[p] && x->stage[p][0]->src->pp >= 0
                                             ? (uint64_t)x->stage[p][0]->src->pp
                                             : 0;
                const uint64_t from = (from_pp * nt->dp + (d < nt->dp ? d : nt->dp - 1)) * nt->tp +
                                      (x->tp == nt->tp ? t : 0);
                const char *path =
                    ckr__printf(x->c, "%lld/random/tp-%u-of-%u_dp-%u-of-%u_pp-%u-of-%u.pt",
                                (long long)x->step, (unsigned)t, (unsigned)x->tp, (unsigned)d,
                                (unsigned)x->dp, (unsigned)p, (unsigned)x->pp);
                ckr__out_file *f =
                    path ? ckr__out_file_add(x->out, path, CKR_FORMAT_TORCH_ZIP) : NULL;
                if (!f || from >= n) return ckr__nt_emit_oom(x);
                f->root = ckr__nt_copy_tree(x->c, f, nt->files[CKR__NT_RANDOM][from]->root);
                if (!f->root) return ckr__nt_emit_oom(x);
            }
    if (!moved || !streams) return CKR_OK;
    return ckr__nt_say(x, "CKR_W_RNG_REMAPPED", equal ? CKR_EXACT : CKR_APPROX, "tp_synced", NULL,
                       NULL,
                       equal ? "the stream is the same on all ranks, so every rank continues it"
                             : "stages and replicas had different streams: each rank continues "
                               "that of the rank that held its first layer",
                       NULL)
               ? CKR_OK
               : ckr__nt_emit_oom(x);
}

/* emit: report ------------------------------------------------------------------ */

static bool ckr__nt_say_topology(ckr__nt_job *x)
{
    const ckr__nt *nt = x->nt;
    const ckr_node *cfg = nt->config.root;
    const char *engine = ckr_node_str(ckr_node_find(cfg, "/parallelism/pp_engine"));
    const char *mode = ckr_node_str(ckr_node_find(cfg, "/parallelism/tp_mode"));
    const char *asked = "asked for";
    int64_t accumulate = 0, batch = 0;
    bool ok = true;
    ckr_node_i64(ckr_node_find(cfg, "/tokens/batch_accumulation_per_replica"), &accumulate);
    ckr_node_i64(ckr_node_find(cfg, "/tokens/micro_batch_size"), &batch);
    if (x->tp != nt->tp)
        ok = ckr__nt_say_int(x, "CKR_W_TOPOLOGY", CKR_CHANGED, "tp", nt->tp, x->tp, asked, NULL);
    if (ok && x->pp != nt->pp)
        ok = ckr__nt_say_int(x, "CKR_W_TOPOLOGY", CKR_CHANGED, "pp", nt->pp, x->pp, asked, NULL);
    if (ok && x->dp != nt->dp)
        ok = ckr__nt_say_int(x, "CKR_W_TOPOLOGY", CKR_CHANGED, "dp", nt->dp, x->dp, asked, NULL);
    if (ok && x->cp != nt->cp)
        ok = ckr__nt_say_int(x, "CKR_W_TOPOLOGY", CKR_CHANGED, "cp", nt->cp, x->cp, asked, NULL);
    if (ok && x->zero != nt->zero)
        ok = ckr__nt_say_int(x, "CKR_W_TOPOLOGY", CKR_CHANGED, "zero", nt->zero, x->zero, asked,
                             NULL);
    if (ok && x->pp > nt->pp && accumulate > 0 && accumulate < (int64_t)x->pp - 1 &&
        (!engine || !strcmp(engine, "1f1b")))
        ok = ckr__nt_say_int(x, "CKR_W_NANOTRON_MICRO_BATCHES", CKR_CHANGED,
                             "batch_accumulation_per_replica", accumulate, (int64_t)x->pp - 1,
                             "the 1F1B engine asserts as many micro batches as stages less one",
                             "raise it in the coming run's configuration");
    if (ok && x->tp == 1 && nt->tp > 1 && mode && !strcmp(mode, "REDUCE_SCATTER"))
        ok = ckr__nt_say(x, "CKR_W_NANOTRON_TP_MODE", CKR_CHANGED, "tp_mode", mode, "ALL_REDUCE",
                         "HEAD loads this, but its reduce-scatter mode cannot train with tp 1",
                         "set it in the coming run's configuration");
    if (ok && x->dp != nt->dp && accumulate > 0 && batch > 0 && accumulate < (1 << 30) &&
        batch < (1 << 30))
        ok = ckr__nt_say_int(
            x, "CKR_W_NANOTRON_BATCH", CKR_CHANGED, "samples per update",
            accumulate * batch * nt->dp, accumulate * batch * x->dp,
            "micro_batch_size * batch_accumulation_per_replica * dp",
            "change one of them in the coming run's configuration to keep the batch");
    if (ok && x->zero && x->masters && x->dp > 1 && !(nt->zero && nt->dp > 1) &&
        !(x->t->without & CKR_OPTIMIZER))
        ok = ckr__nt_say(x, "CKR_W_NANOTRON_ZERO_MASTERS", CKR_CHANGED, "zero", NULL, NULL,
                         "HEAD loads ZeRO-1 with fp32 masters and dp over 1, but cannot train with "
                         "it: its gradient hook raises NotImplementedError",
                         NULL);
    return ok;
}

/* Files that are not understood come back as they were. */
static ckr_result ckr__nt_emit_loose(ckr__nt_job *x)
{
    uint64_t i, k;
    for (i = 0; i < x->nt->n_loose; i++) {
        const char *path = ckr__path_join(x->c, x->nt->dir, x->nt->loose[i]);
        const uint8_t *p = NULL;
        uint64_t n = 0;
        ckr_result e =
            path ? ckr__path_load(x->c, path, x->c->limits.max_metadata_bytes, &p, &n, NULL)
                 : x->c->err->code;
        if (e != CKR_OK) return e;
        if (!ckr__nt_text_file(x, x->nt->loose[i], p, n)) return ckr__nt_emit_oom(x);
    }
    for (i = 0, k = 0; i < x->nt->n_files[CKR__NT_OPTIMIZER]; i++) {
        const ckr_node *root = x->nt->files[CKR__NT_OPTIMIZER][i]->root;
        k += root->count - 3 - (ckr_node_get(root, "gradient_accumulator") != NULL);
    }
    if (!x->same || x->t->without & CKR_OPTIMIZER) x->n_lost += k;
    if (!x->n_lost) return CKR_OK;
    return ckr__nt_say_int(
               x, "CKR_W_LEFTOVERS_LOST", CKR_LOST, "leftovers", (int64_t)x->n_lost, 0,
               "keys that are not understood belong to a rank that the target does not have", NULL)
               ? CKR_OK
               : ckr__nt_emit_oom(x);
}

/* What the target cannot be. False: nothing sensible can follow. */
static bool ckr__nt_allowed(ckr__nt_job *x)
{
    const ckr_topology *t = &x->t->topology;
    const uint64_t ranks = (uint64_t)x->tp * x->pp * x->dp * x->cp;
    bool ok = true;
    if (t->zero > 1)
        ok = ckr__nt_refuse(x, CKR_ITEM_ZERO_STAGE, "zero", x->nt->zero, t->zero,
                            "Nanotron has ZeRO stages 0 and 1", "take --zero 1");
    if (ok && t->ep > 1)
        ok = ckr__nt_refuse(x, CKR_ITEM_EP_SIZE, "ep", x->nt->ep, t->ep,
                            "HEAD cannot be built with expert parallelism", "take --ep 1");
    if (ok && x->nt->ep > 1)
        ok = ckr__nt_refuse(x, CKR_ITEM_EP_SIZE, "ep", x->nt->ep, 1,
                            "the checkpoint's experts are spread over ranks, which HEAD cannot be",
                            NULL);
    if (ok && t->ranks && t->ranks != ranks)
        ok = ckr__nt_refuse(x, CKR_ITEM_EP_SIZE, "ranks", (int64_t)ranks, t->ranks,
                            "tp * pp * dp * cp is another number of ranks", "leave --ranks out");
    if (ok && x->t->without & CKR_GROUPS && !(x->t->without & CKR_OPTIMIZER))
        ok = ckr__nt_say(x, ckr_item_name(CKR_ITEM_GROUPS_WITHOUT), CKR_ERROR, "groups", NULL, NULL,
                         "Nanotron's optimizer files hold state and groups together",
                         "leave out the optimizer too");
    if (ok && x->t->without & CKR_PARAMS)
        ok = ckr__nt_say(x, ckr_item_name(CKR_ITEM_PARAMS_WITHOUT), CKR_ERROR, "params", NULL, NULL,
                         "Nanotron cannot load a checkpoint without weights", "keep the params");
    if (ok && x->t->without & CKR_PROGRESS && !(x->t->without & CKR_SCHEDULE))
        ok = ckr__nt_say(x, ckr_item_name(CKR_ITEM_CLOCK_WITHOUT), CKR_ERROR, "progress", NULL,
                         NULL, "the schedule would stand at another step than the run",
                         "leave out the schedule too");
    return ok && !x->refused;
}

static ckr_result ckr__nt_emit_all(ckr__nt_job *x)
{
    const uint32_t without = x->t->without;
    const char *latest;
    ckr__out_file *f;
    ckr_result e = CKR_OK;
    uint32_t p, t;
    const bool optimizer = !(without & CKR_OPTIMIZER) && x->s->n_groups > 0;
    if (!ckr__nt_allowed(x)) return x->c->err->code;
    e = ckr__nt_items(x);
    if (e == CKR_OK) e = ckr__nt_vocabulary(x);
    if (e == CKR_OK) e = ckr__nt_cut_items(x);
    if (e == CKR_OK) e = ckr__nt_stages(x);
    if (e != CKR_OK || x->refused) return e;
    x->same = x->tp == x->nt->tp && x->pp == x->nt->pp && x->dp == x->nt->dp &&
              x->zero == x->nt->zero && x->nt->ep == 1;
    if (!ckr__nt_say_topology(x)) return ckr__nt_emit_oom(x);
    if (!(without & CKR_PARAMS)) e = ckr__nt_emit_weights(x);
    if (e == CKR_OK && optimizer) e = ckr__nt_emit_optimizer(x);
    if (e == CKR_OK && optimizer && !ckr__nt_say_head(x)) e = ckr__nt_emit_oom(x);
    for (p = 0; e == CKR_OK && optimizer && !(without & CKR_SCHEDULE) && p < x->pp; p++)
        for (t = 0; e == CKR_OK && t < x->tp; t++)
            if (!ckr__nt_scheduler_file(x, p, t)) e = ckr__nt_emit_oom(x);
    if (e == CKR_OK && !(without & CKR_RNG)) e = ckr__nt_emit_random(x);
    if (e == CKR_OK && (!ckr__nt_emit_metadata(x) || !ckr__nt_emit_config(x)))
        e = ckr__nt_emit_oom(x);
    if (e == CKR_OK) e = ckr__nt_emit_loose(x);
    if (e == CKR_OK && !ckr__nt_emit_model_config(x)) e = ckr__nt_emit_oom(x);
    if (e != CKR_OK) return e;
    latest = ckr__printf(x->c, "%lld", (long long)x->step);
    f = ckr__out_file_add(x->out, "latest.txt", CKR_FORMAT_TEXT);
    if (!latest || !f) return ckr__nt_emit_oom(x);
    f->text = latest;
    f->n_text = strlen(latest);
    return CKR_OK;
}

static ckr_result ckr__nt_emit(ckr__ctx *c, const ckr_state *s, const ckr_target *t, ckr__out *out,
                               ckr_note **notes, uint64_t *n_notes)
{
    ckr__nt_job x;
    ckr_result e;
    memset(&x, 0, sizeof x);
    x.c = x.by_name.c = c;
    x.s = s;
    x.t = t;
    x.out = out;
    x.notes = notes;
    x.n_notes = n_notes;
    if (strcmp(s->dialect, "nanotron") != 0 || !s->dialect_data)
        return ckr__nt_say(&x, ckr_item_name(CKR_ITEM_NANOTRON_SOURCE), CKR_ERROR, "dialect",
                           s->dialect, "nanotron",
                           "only a checkpoint of Nanotron can be written for Nanotron", NULL)
                   ? CKR_OK
                   : ckr__nt_emit_oom(&x);
    x.nt = (const ckr__nt *)s->dialect_data;
    x.tp = t->topology.tp ? t->topology.tp : x.nt->tp;
    x.pp = t->topology.pp ? t->topology.pp : x.nt->pp;
    x.dp = t->topology.dp ? t->topology.dp : x.nt->dp;
    x.cp = t->topology.cp ? t->topology.cp : x.nt->cp;
    x.zero = t->topology.zero < 0 ? x.nt->zero : t->topology.zero > 0;
    x.step = t->without & CKR_PROGRESS ? 0 : x.nt->step;
    e = ckr__nt_emit_all(&x);
    ckr__map_free(&x.by_name);
    return e;
}

static const ckr__dialect ckr__nanotron = { "nanotron", NULL, ckr__nt_probe, ckr__nt_read,
                                            ckr__nt_emit };

/* >>plain --------------------------------------------------------------------- */
/* One file with no framework: every tensor under its flattened key, everything else a leftover.
   Written: one safetensors or torch file with the live module's names (see ckr_target.slots). */

static ckr_result ckr__plain_probe(ckr__ctx *c, const char *path, const char **dir, bool *mine)
{
    *mine = ckr__path_kind(c, path) == CKR_FILE_REGULAR;
    *dir = path;
    return CKR_OK;
}

/* A walk over a tree without recursion; shared containers are entered once. */
typedef struct ckr__flat_item {
    const ckr_node *node, *key;            /* key NULL: an index                        */
    uint64_t        index;
    uint64_t        depth;
    const struct ckr__flat_item *parent;   /* paths are spelled out only where they end */
} ckr__flat_item;

#define CKR__FLAT_KEY_MAX ((size_t)1 << 16)

/* One component's text; the result is its length, as from snprintf. */
static size_t ckr__flat_part(const ckr__flat_item *x, char *out, size_t cap)
{
    const ckr_node *k = x->key;
    if (!k) return (size_t)snprintf(out, cap, "%llu", (unsigned long long)x->index);
    if (k->kind == CKR_NODE_STR) return (size_t)snprintf(out, cap, "%s", k->u.str);
    if (k->kind == CKR_NODE_INT) return (size_t)snprintf(out, cap, "%lld", (long long)k->u.i);
    return (size_t)snprintf(out, cap, "?%u", (unsigned)k->id);
}

/* "a.b.0": written from its end, since items know their parents only. */
static const char *ckr__flat_key(ckr__ctx *c, const ckr__flat_item *x)
{
    const ckr__flat_item *p;
    size_t n = 0, k;
    char *text;
    if (x->parent && !x->parent->parent && x->key && x->key->kind == CKR_NODE_STR)
        return x->key->u.str;
    for (p = x; p->parent && n < CKR__FLAT_KEY_MAX; p = p->parent)
        n += ckr__flat_part(p, NULL, 0) + 1;
    if (n >= CKR__FLAT_KEY_MAX) {
        ckr__fail(c->err, CKR_ITEM_TREE_TOO_DEEP, NULL, CKR_NO_OFFSET, NULL,
                  "a tensor's or value's path is longer than %llu bytes",
                  (unsigned long long)CKR__FLAT_KEY_MAX);
        return NULL;
    }
    if (!n) return "";
    text = (char *)ckr__arena(c, n);
    for (p = x; text && p->parent; p = p->parent) {
        k = ckr__flat_part(p, NULL, 0);
        n -= k + 1;
        ckr__flat_part(p, text + n, k + 1);
        text[n + k] = p == x ? 0 : '.';
    }
    return text;
}

static ckr_result ckr__plain_tensor(ckr__ctx *c, ckr_state *s, const char *key, const ckr_view *v)
{
    const int64_t elem = (int64_t)ckr_dtype_size(v->dtype);
    int64_t *start, *count, *stride, numel;
    ckr_tensor *t;
    ckr_piece *p;
    uint32_t d;
    if (v->layout || v->meta || v->conj || v->neg || v->n_dims > CKR_MAX_DIMS ||
        !ckr_dtype_size(v->dtype))
        return ckr__note(c, &s->notes, &s->n_notes, "CKR_W_TENSOR_OPAQUE", CKR_LOST, key, v->layout,
                         NULL, "a tensor that is no plain strided array cannot be cut or joined",
                         NULL)
                   ? CKR_OK
                   : c->err->code;
    t = ckr__tensor_add(c, s, key, "param", v->dtype, v->n_dims, v->shape);
    if (!t) return c->err->code;
    t->requires_grad = v->requires_grad;
    if (!ckr__numel(v->n_dims, v->shape, &numel) || numel == 0) return CKR_OK;
    p = ckr__piece_add(c, t, v->n_dims, &start, &count, &stride);
    if (!p) return c->err->code;
    for (d = 0; d < v->n_dims; d++) {
        count[d] = v->shape[d];
        stride[d] = v->stride[d] * elem;
    }
    p->file = v->file;
    p->dtype = v->dtype;
    p->big_endian = v->big_endian;
    p->mem = v->bytes ? (const uint8_t *)v->bytes + v->offset * elem : NULL;
    p->offset = v->bytes ? 0 : v->data_offset + (uint64_t)(v->offset * elem);
    return CKR_OK;
}

/* The children of a container, pushed backwards so that they are popped in order. */
static bool ckr__flat_push(ckr__ctx *c, ckr__flat_item ***stack, uint64_t *n, uint64_t *cap,
                           const ckr__flat_item *parent)
{
    const ckr_node *x = parent->node;
    const bool dict = ckr_node_is_dict(x);
    ckr__flat_item *items = CKR__NEW_N(c, ckr__flat_item, x->count);
    void *array = *stack;
    uint64_t i;
    if (parent->depth >= c->limits.max_depth) {
        ckr__fail(c->err, CKR_ITEM_TREE_TOO_DEEP, NULL, CKR_NO_OFFSET, NULL, NULL);
        return false;
    }
    if (!items || !ckr__arena_grow(c, &array, cap, *n + x->count, sizeof **stack)) return false;
    *stack = (ckr__flat_item **)array;
    for (i = x->count; i-- > 0;) {
        items[i].node = dict ? x->u.items[2 * i + 1] : x->u.items[i];
        items[i].key = dict ? x->u.items[2 * i] : NULL;
        items[i].index = i;
        items[i].depth = parent->depth + 1;
        items[i].parent = parent;
        (*stack)[(*n)++] = &items[i];
    }
    return true;
}

static ckr_result ckr__plain_flatten(ckr__ctx *c, ckr_state *s, const ckr_node *root)
{
    ckr__flat_item **stack = NULL, top;
    uint64_t n = 0, cap = 0;
    uint8_t *seen = CKR__NEW_N(c, uint8_t, (uint64_t)c->n_nodes + 1);
    void *array = NULL;
    ckr_result r = CKR_OK;
    memset(&top, 0, sizeof top);
    top.node = root;
    if (!seen || !ckr__arena_grow(c, &array, &cap, 64, sizeof *stack)) return c->err->code;
    stack = (ckr__flat_item **)array;
    stack[n++] = &top;
    while (n > 0 && r == CKR_OK) {
        const ckr__flat_item *item = stack[--n];
        const ckr_node *x = item->node;
        const char *key;
        if ((ckr_node_is_dict(x) || ckr_node_is_list(x)) && !seen[x->id]) {
            seen[x->id] = 1;
            if (!ckr__flat_push(c, &stack, &n, &cap, item)) r = c->err->code;
            continue;
        }
        key = ckr__flat_key(c, item);
        if (!key) r = c->err->code;
        else if (x->kind == CKR_NODE_TENSOR) r = ckr__plain_tensor(c, s, key, x->u.view);
        else if (!ckr__leftover(c, s, key, x)) r = c->err->code;
    }
    return r;
}

/* A state dict of torch.optim: {"state": {...}, "param_groups": [...]}. */
static bool ckr__is_optimizer(const ckr_node *n)
{
    const ckr_node *groups = ckr_node_get(n, "param_groups");
    uint64_t i;
    if (!ckr_node_is_dict(ckr_node_get(n, "state")) || !ckr_node_is_list(groups)) return false;
    for (i = 0; i < groups->count; i++) if (!ckr_node_is_dict(groups->u.items[i])) return false;
    return groups->count > 0;
}

/* A state dict of torch.optim.lr_scheduler, DeepSpeed or Megatron-LM. */
static bool ckr__is_scheduler(const ckr_node *n)
{
    if (!ckr_node_is_dict(n) || n->count == 0) return false;
    if (ckr_node_is_list(ckr_node_get(n, "_schedulers"))) return true;
    if (ckr_node_get(n, "last_epoch"))
        return n->count == 1 || ckr_node_get(n, "_step_count") || ckr_node_get(n, "_last_lr") ||
               ckr_node_get(n, "num_bad_epochs");
    if (ckr_node_get(n, "last_batch_iteration")) return n->count == 1;
    return ckr_node_get(n, "num_steps") &&
           (ckr_node_get(n, "max_lr") || ckr_node_get(n, "start_lr"));
}

/* The root itself, or the first value of it that is one; torch wraps some in a list. */
static const ckr_node *ckr__plain_part(const ckr_node *root, bool (*is_fn)(const ckr_node *n))
{
    uint64_t i;
    if (is_fn(root)) return root;
    if (!ckr_node_is_dict(root)) return NULL;
    for (i = 0; i < root->count; i++) {
        const ckr_node *v = root->u.items[2 * i + 1];
        if (ckr_node_is_list(v) && v->count == 1) v = v->u.items[0];
        if (is_fn(v)) return v;
    }
    return NULL;
}

/* Parameters have the names that the file gives, else their indices. */
static const char **ckr__plain_param_names(ckr__ctx *c, const ckr_node *group, uint64_t *n)
{
    const ckr_node *index = ckr_node_get(group, "params"), *given = ckr_node_get(group,
                                                                                 "param_names");
    const char **names;
    uint64_t i;
    *n = ckr_node_is_list(index) ? index->count : 0;
    names = CKR__NEW_N(c, const char *, *n);
    for (i = 0; names && i < *n; i++) {
        const char *name = ckr_node_str(ckr_node_at(given, i));
        int64_t k = 0;
        if (!name) name = ckr_node_str(ckr_node_at(index, i));
        ckr_node_i64(ckr_node_at(index, i), &k);
        names[i] = name ? name : ckr__printf(c, "%lld", (long long)k);
        if (!names[i]) return NULL;
    }
    return names;
}

static ckr_result ckr__plain_groups(ckr__ctx *c, ckr_state *s, const ckr_node *optimizer)
{
    const ckr_node *list = ckr_node_get(optimizer, "param_groups");
    uint64_t i, k;
    s->n_groups = list->count;
    s->groups = CKR__NEW_N(c, ckr_group, s->n_groups);
    for (i = 0; s->groups && i < s->n_groups; i++) {
        ckr_group *g = &s->groups[i];
        g->raw = list->u.items[i];
        g->hyper = ckr__node(c, CKR_NODE_DICT);
        g->name = ckr_node_str(ckr_node_get(g->raw, "name"));
        g->params = ckr__plain_param_names(c, g->raw, &g->n_params);
        if (!g->hyper || !g->params) return c->err->code;
        for (k = 0; k < g->raw->count; k++) {
            ckr_node *key = g->raw->u.items[2 * k];
            if (ckr__is_str(key, "params") || ckr__is_str(key, "param_names")) continue;
            if (!ckr__node_pair(c, g->hyper, key, g->raw->u.items[2 * k + 1])) return c->err->code;
        }
    }
    return s->groups ? CKR_OK : c->err->code;
}

/* Its LR must be the groups': else somebody has set it, or the files are of different runs. */
static ckr_result ckr__plain_drift(ckr__ctx *c, ckr_state *s, const ckr_schedule *x)
{
    double drift = 0;
    uint64_t lane = 0;
    char subject[48], text[64];
    ckr_result r;
    if (x->opaque || !s->n_groups) return CKR_OK;
    r = ckr__sched_drift(c, x, &drift, &lane);
    if (r != CKR_OK || !(drift > 1e-9)) return r;
    snprintf(subject, sizeof subject, "lr of group %llu", (unsigned long long)lane);
    snprintf(text, sizeof text, "%.17g", x->lanes[lane].anchor);
    return ckr__note(c, &s->notes, &s->n_notes, "CKR_W_LR_DRIFT", CKR_CHANGED, subject, text, NULL,
                     "the group's LR is not what its scheduler says at this step", NULL)
               ? CKR_OK
               : c->err->code;
}

static ckr_result ckr__plain_schedule(ckr__ctx *c, ckr_state *s, const ckr_node *scheduler)
{
    const ckr_node **hyper = CKR__NEW_N(c, const ckr_node *, s->n_groups);
    ckr_schedule *x;
    uint64_t i;
    ckr_result r;
    if (!hyper) return c->err->code;
    for (i = 0; i < s->n_groups; i++) hyper[i] = s->groups[i].hyper;
    r = ckr__sched_torch(c, scheduler, s->n_groups ? hyper : NULL, s->n_groups, NULL, &x);
    if (r != CKR_OK) return r;
    s->schedules = x;
    s->n_schedules = 1;
    if (s->progress.step < 0 && !strcmp(x->clock, "update")) s->progress.step = x->position;
    return ckr__plain_drift(c, s, x);
}

/* What a trainer saves beside the tensors, wherever in the file it stands. */
static ckr_result ckr__plain_trainer(ckr__ctx *c, const char *optimizer, ckr_state *s,
                                     const ckr_node *root)
{
    const ckr_node *optim, *sched = ckr__plain_part(root, ckr__is_scheduler);
    ckr_node *other = NULL;
    ckr_format format;
    uint32_t file;
    ckr_result r = CKR_OK;
    if (optimizer) {
        r = ckr__file_open(c, optimizer, &file);
        if (r == CKR_OK) r = ckr__doc_load(c, file, &format, &other);
        if (r != CKR_OK) return r;
    }
    optim = ckr__plain_part(other ? other : root, ckr__is_optimizer);
    if (other && !optim)
        return ckr__fail(c->err, CKR_ITEM_SCHEDULE_STATE, optimizer, CKR_NO_OFFSET, "param_groups",
                         "no state dict of an optimizer is in this file");
    if (optim) r = ckr__plain_groups(c, s, optim);
    return r == CKR_OK && sched ? ckr__plain_schedule(c, s, sched) : r;
}

static ckr_result ckr__plain_read(ckr__ctx *c, const char *path, const ckr_open_desc *desc,
                                  ckr_state *s)
{
    uint32_t file;
    ckr_node *root = NULL;
    ckr_result r = ckr__file_open(c, path, &file);
    if (r == CKR_OK) r = ckr__doc_load(c, file, &s->format, &root);
    if (r != CKR_OK) return r;
    s->dialect = s->format == CKR_FORMAT_SAFETENSORS ? "safetensors" : "torch";
    if (root->attrs && !ckr__leftover(c, s, "__metadata__", root->attrs)) return c->err->code;
    if (s->format != CKR_FORMAT_SAFETENSORS)
        r = ckr__plain_trainer(c, desc ? desc->optimizer : NULL, s, root);
    return r == CKR_OK ? ckr__plain_flatten(c, s, root) : r;
}

/* Is the slot in a list like "param,exp_avg"? "params": parameters; NULL or "all": every one. */
static bool ckr__slot_wanted(const char *slots, const char *slot)
{
    size_t n = strlen(slot);
    const char *p;
    if (!slots || !strcmp(slots, "all")) return true;
    if (!strcmp(slots, "params")) return !strcmp(slot, "param");
    for (p = slots; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && !memcmp(p, slot, n)) return true;
    return false;
}

static const char *ckr__plain_name(ckr__ctx *c, const ckr_tensor *t)
{
    if (!strcmp(t->slot, "param")) return t->name;
    if (!strcmp(t->slot, "ema")) return ckr__printf(c, "ema.%s", t->name);
    return ckr__printf(c, "optimizer.state.%s.%s", t->name, t->slot);
}

/* The entry of a tensor; one that safetensors has no tag for is stored as bytes, described in
   metadata. */
static bool ckr__plain_entry(ckr__ctx *c, ckr__out_file *f, const ckr_tensor *t, ckr_dtype dtype)
{
    const char *name = ckr__plain_name(c, t);
    ckr__block *b = ckr__block_whole(c, t->n_dims, t->shape);
    const bool tagged = f->format != CKR_FORMAT_SAFETENSORS || *ckr__dtypes[dtype].tag;
    ckr_node *n;
    int64_t numel, bytes;
    if (!name || !b || !ckr__numel(t->n_dims, t->shape, &numel)) return false;
    bytes = numel * (int64_t)ckr_dtype_size(dtype);
    n = tagged ? ckr__entry_new(c, f, name, dtype, t->n_dims, t->shape)
               : ckr__entry_new(c, f, name, CKR_DTYPE_U8, 1, &bytes);
    if (!n || !ckr__node_pair(c, f->root, ckr__node_str(c, name), n)) return false;
    n->u.entry->requires_grad = t->requires_grad && f->format == CKR_FORMAT_TORCH_ZIP;
    if (!tagged) {
        ckr__buf text;
        uint32_t d;
        memset(&text, 0, sizeof text);
        text.c = c;
        ckr__buf_printf(&text, "%s [", ckr_dtype_name(dtype));
        for (d = 0; d < t->n_dims; d++)
            ckr__buf_printf(&text, "%s%lld", d ? ", " : "", (long long)t->shape[d]);
        ckr__buf_put(&text, "]", 2);
        if (text.failed ||
            !ckr__node_set(c, f->metadata, name, ckr__node_str(c, (const char *)text.data)))
            return false;
        ckr__buf_free(&text);
        n->u.entry->dtype = dtype; /* as the ops see it; the container sees bytes */
        n->u.entry->as_bytes = true;
    }
    return ckr__bind_flat(c, n->u.entry, t, false, b, 0, numel, 0);
}

/* One file of tensors has no place for the rest; who chose slots does not want it. */
static ckr_result ckr__plain_losses(ckr__ctx *c, const ckr_state *s, ckr_note **notes,
                                    uint64_t *n_notes)
{
    const char *const what[] = { "groups", "schedule", "rng", "progress", "leftovers" };
    const uint64_t n[] = { s->n_groups, s->n_schedules, s->n_rng, s->progress.step >= 0,
                           s->n_leftovers };
    int i;
    for (i = 0; i < 5; i++)
        if (n[i] && !ckr__note(c, notes, n_notes, "CKR_W_TENSORS_ONLY", CKR_LOST, what[i], NULL,
                               NULL, "the target is one file of tensors", NULL))
            return c->err->code;
    return CKR_OK;
}

static ckr_result ckr__plain_emit(ckr__ctx *c, const ckr_state *s, const ckr_target *t,
                                  ckr__out *out, ckr_note **notes, uint64_t *n_notes)
{
    const bool torch = !strcmp(t->dialect, "torch");
    ckr__out_file *f =
        ckr__out_file_add(out, "", torch ? CKR_FORMAT_TORCH_ZIP : CKR_FORMAT_SAFETENSORS);
    uint64_t i;
    if (!f) return c->err->code;
    f->root = ckr__node(c, CKR_NODE_DICT);
    f->metadata = torch ? NULL : ckr__node(c, CKR_NODE_DICT);
    if (!f->root || (!torch && !f->metadata)) return c->err->code;
    for (i = 0; i < s->n_ties && !torch; i++)
        if (!ckr__node_set(c, f->metadata, ckr__printf(c, "tied:%s", s->ties[i].other),
                           ckr__node_str(c, s->ties[i].name)))
            return c->err->code;
    for (i = 0; i < s->n_tensors; i++) {
        const ckr_tensor *x = s->tensors[i];
        bool param = !strcmp(x->slot, "param");
        ckr_dtype dtype =
            param && t->dtype != CKR_DTYPE_NONE && ckr__is_float(x->dtype) ? t->dtype : x->dtype;
        if (!ckr__slot_wanted(t->slots, x->slot)) continue;
        if (dtype != x->dtype &&
            !ckr__note(c, notes, n_notes, "CKR_DTYPE_CAST", CKR_CHANGED, x->name,
                       ckr_dtype_name(x->dtype), ckr_dtype_name(dtype), "--dtype", NULL))
            return c->err->code;
        if (!ckr__plain_entry(c, f, x, dtype)) return c->err->code;
    }
    if (f->metadata && f->metadata->count == 0) f->metadata = NULL;
    if (s->n_tensors && !f->n_entries)
        return ckr__fail(c->err, CKR_ITEM_SLOT_UNKNOWN, NULL, CKR_NO_OFFSET, t->slots, NULL);
    return t->slots ? CKR_OK : ckr__plain_losses(c, s, notes, n_notes);
}

static const ckr__dialect ckr__plain_safetensors = {"safetensors", NULL, ckr__plain_probe,
                                                    ckr__plain_read, ckr__plain_emit};
static const ckr__dialect ckr__plain_torch = {"torch", NULL, ckr__plain_probe, ckr__plain_read,
                                              ckr__plain_emit};

/* >>dialect.table ------------------------------------------------------------- */

static const ckr__dialect *const ckr__dialects[] = {&ckr__nanotron, &ckr__plain_safetensors,
                                                    &ckr__plain_torch};

static const ckr__dialect *ckr__dialect_find(const char *name)
{
    size_t i;
    for (i = 0; i < sizeof ckr__dialects / sizeof *ckr__dialects; i++)
        if (!strcmp(ckr__dialects[i]->name, name)) return ckr__dialects[i];
    return NULL;
}

static ckr_result ckr__dialect_unknown(ckr__ctx *c, const char *name)
{
    ckr_result r = ckr__fail(c->err, CKR_ITEM_DIALECT_UNKNOWN, NULL, CKR_NO_OFFSET, name, NULL);
    size_t i, n = 0;
    char known[160];
    for (i = 0; i < sizeof ckr__dialects / sizeof *ckr__dialects && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "take one of ",
                              ckr__dialects[i]->name);
    return ckr__remedy(c->err, r, known);
}

/* A layout that the dialect does not have is the caller's mistake. */
static ckr_result ckr__dialect_variant(ckr__ctx *c, const ckr__dialect *d, const char *variant)
{
    ckr_result r;
    const size_t n = variant ? strlen(variant) : 0;
    const char *p = d->variants;
    if (!n) return CKR_OK;
    for (; p && (p = strstr(p, variant)) != NULL; p += n)
        if ((p == d->variants || p[-1] == ' ') && (p[n] == ' ' || !p[n])) return CKR_OK;
    r = ckr__fail(c->err, CKR_ITEM_VARIANT_UNKNOWN, NULL, CKR_NO_OFFSET, variant,
                  d->variants ? "%s has these: %s" : "%s has only one layout", d->name,
                  d->variants);
    return ckr__remedy(c->err, r, "leave --variant out");
}

/* >>write.pickle -------------------------------------------------------------- */
/* A tree as a pickle of protocol 2, opcode for opcode what CPython's pickler writes for the same
   values, so that torch.load(weights_only=True) meets nothing that it does not know from
   torch.save: - every object that CPython memoizes gets a BINPUT, in its order; a node met again is
   a BINGET, which keeps shared lists shared. Text, globals, numpy dtypes and bytes of length 0 or 1
   are shared by content, as CPython's interned and cached objects are. - containers are filled in
   batches of 1000. For exact lists and dicts a batch of one is MARK x APPENDS unless it is all
   there is; for other sources of items it is x APPEND. An exact dict of a multiple of 1000 pairs
   ends with an empty batch. - a storage is the persistent id ('storage', class, key, 'cpu', numel),
   keys counted from 0 in the order of appearance; records follow in that order, which readers that
   compute offsets rely on. The walk keeps its own stack. Containers that are memoized before they
   are filled may contain themselves; tuples, sets and calls may not (Python needs POP for those,
   which weights_only lacks). */

#define CKR__PICKLE_BATCH 1000
#define CKR__PICKLE_OPEN UINT64_MAX    /* instead of a memo index: its children are being written */

enum {
    CKR__PK_SAVE = 0,
    CKR__PK_OP,
    CKR__PK_PUT,
    CKR__PK_CALL,
    CKR__PK_TUPLE,
    CKR__PK_FILL,
    CKR__PK_FILL_EXACT
};

typedef struct ckr__pickler_frame {
    uint8_t         what;      /* CKR__PK_                                              */
    uint8_t         op;        /* of PK_OP                                              */
    bool            pairs;     /* of PK_FILL: keys and values                           */
    const ckr_node *node;
    uint64_t        at;        /* next child                                            */
} ckr__pickler_frame;

typedef struct ckr__pickler {
    ckr__ctx      *c;
    ckr__out_file *f;
    ckr__buf       out, stack, key;
    ckr__map       text;       /* content -> memo index; what is no text starts with 0xff */
    ckr__map       ids;        /* address of a node or entry -> memo index              */
    uint64_t       n_memo;
    ckr_entry    **entries;    /* in the order of appearance                            */
    uint64_t       n_entries, cap_entries;
    ckr_result     r;          /* of the first failure                                  */
} ckr__pickler;

/* Where in the tree the walk is: keys and indices of the open containers, joined by "/". */
static void ckr__pickler_where(const ckr__pickler *p, char *out, size_t cap)
{
    const ckr__pickler_frame *f = (const ckr__pickler_frame *)(const void *)p->stack.data;
    size_t n = p->stack.size / sizeof *f, i, used = 0;
    out[0] = 0;
    for (i = 0; i < n && used + 1 < cap; i++) {
        const ckr_node *k;
        int put;
        if (f[i].what < CKR__PK_TUPLE || f[i].at == 0) continue;
        k = f[i].pairs ? f[i].node->u.items[(f[i].at - 1) & ~(uint64_t)1] : NULL;
        if (k && k->kind == CKR_NODE_STR)
            put = snprintf(out + used, cap - used, "/%.*s", (int)(k->count < 100 ? k->count : 100),
                           k->u.str);
        else if (k && k->kind == CKR_NODE_INT)
            put = snprintf(out + used, cap - used, "/%lld", (long long)k->u.i);
        else
            put = snprintf(out + used, cap - used, "/[%llu]",
                           (unsigned long long)((f[i].at - 1) / (f[i].pairs ? 2 : 1)));
        if (put > 0) used += (size_t)put;
    }
}

CKR__PRINTF(3, 4)
static void ckr__pickler_fail(ckr__pickler *p, ckr_item item, const char *fmt, ...)
{
    char where[192], text[256];
    va_list ap;
    if (p->r != CKR_OK) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ckr__pickler_where(p, where, sizeof where);
    p->r = ckr__fail(p->c->err, item, p->f->path, CKR_NO_OFFSET, where, "%s", text);
}

static void ckr__pickler_nomem(ckr__pickler *p)
{
    ckr__nomem(p->c);
    if (p->r == CKR_OK) p->r = p->c->err->code;
}

/* Memo ---------------------------------------------------------------------- */

static void ckr__pickler_push(ckr__pickler *p, unsigned what, const ckr_node *node, unsigned op,
                              bool pairs)
{
    ckr__pickler_frame f;
    memset(&f, 0, sizeof f);
    f.what = (uint8_t)what;
    f.op = (uint8_t)op;
    f.pairs = pairs;
    f.node = node;
    ckr__buf_put(&p->stack, &f, sizeof f);
}

static uint64_t ckr__pickler_put(ckr__pickler *p)
{
    uint8_t b[5];
    ckr__store_u32(b + 1, (uint32_t)p->n_memo);
    b[0] = p->n_memo < 256 ? 'q' : 'r';                /* BINPUT, LONG_BINPUT */
    ckr__buf_put(&p->out, b, p->n_memo < 256 ? 2 : 5);
    return p->n_memo++;
}

static void ckr__pickler_get(ckr__pickler *p, uint64_t memo)
{
    uint8_t b[5];
    ckr__store_u32(b + 1, (uint32_t)memo);
    b[0] = memo < 256 ? 'h' : 'j';                     /* BINGET, LONG_BINGET */
    ckr__buf_put(&p->out, b, memo < 256 ? 2 : 5);
}

static bool ckr__pickler_id_find(const ckr__pickler *p, const void *id, uint64_t *memo)
{
    return ckr__map_find(&p->ids, (const char *)(const void *)&id, sizeof id, memo);
}

static void ckr__pickler_id_set(ckr__pickler *p, const void *id, uint64_t memo)
{
    const void **cell;
    if (!ckr__pickler_id_find(p, id, NULL)) {
        cell = CKR__NEW(p->c, const void *);           /* the map borrows its keys */
        if (!cell) { ckr__pickler_nomem(p); return; }
        *cell = id;
        if (!ckr__map_put(&p->ids, (const char *)(const void *)cell, sizeof id, memo, NULL))
            ckr__pickler_nomem(p);
    } else if (!ckr__map_put(&p->ids, (const char *)(const void *)&id, sizeof id, memo, NULL)) {
        ckr__pickler_nomem(p);
    }
}

static void ckr__pickler_put_node(ckr__pickler *p, const ckr_node *n)
{
    ckr__pickler_id_set(p, n, ckr__pickler_put(p));
}

/* True: `p->key` was written before and a BINGET has been emitted. Else the caller writes the value
   and calls ckr__pickler_put_key. */
static bool ckr__pickler_known_key(ckr__pickler *p)
{
    uint64_t memo;
    if (p->key.failed || !ckr__map_find(&p->text, (const char *)p->key.data, p->key.size, &memo))
        return false;
    ckr__pickler_get(p, memo);
    return true;
}

static void ckr__pickler_put_key(ckr__pickler *p, const char *key, size_t n)
{
    if (!key || !ckr__map_put(&p->text, key, n, ckr__pickler_put(p), NULL)) ckr__pickler_nomem(p);
}

/* Values without children ----------------------------------------------------- */

static void ckr__pickler_op(ckr__pickler *p, const char *ops)
{
    ckr__buf_str(&p->out, ops);
}

/* A call's arguments are on the pickle's stack: tuple of n (1..3), REDUCE; the caller memoizes the
   result. */
static void ckr__pickler_reduce(ckr__pickler *p, unsigned n)
{
    ckr__buf_u8(&p->out, 0x84 + n);                    /* TUPLE1..3 */
    ckr__pickler_put(p);
    ckr__buf_u8(&p->out, 'R');
}

/* BINUNICODE; a Python-2 string that is no UTF-8 stays one, as SHORT_BINSTRING or BINSTRING. */
static void ckr__pickler_text(ckr__pickler *p, const char *s, uint64_t n)
{
    const uint8_t *at = (const uint8_t *)s, *const end = at + n;
    bool plain = n <= UINT32_MAX;
    uint8_t b[5];
    size_t len;
    for (; at < end && plain; at += len) plain = ckr__utf8_get(at, end, &len) != 0xfffd || len == 3;
    if (n > UINT32_MAX) {
        ckr__pickler_fail(p, CKR_ITEM_WRITE_SIZE,
                          "a text of %llu bytes; a pickle of protocol 2 ends at 4 GiB",
                          (unsigned long long)n);
        return;
    }
    b[0] = plain ? 'X' : n < 256 ? 'U' : 'T';
    ckr__store_u32(b + 1, (uint32_t)n);
    ckr__buf_put(&p->out, b, b[0] == 'U' ? 2 : 5);
    ckr__buf_put(&p->out, s, (size_t)n);
}

/* `s` must live as long as the pickler. */
static void ckr__pickler_str(ckr__pickler *p, const char *s, uint64_t n)
{
    uint64_t memo;
    if (n == 0) s = "";                                /* the map takes no NULL */
    if (ckr__map_find(&p->text, s, (size_t)n, &memo)) {
        ckr__pickler_get(p, memo);
        return;
    }
    ckr__pickler_text(p, s, n);
    if (p->r == CKR_OK) ckr__pickler_put_key(p, s, (size_t)n);
}

static void ckr__pickler_word(ckr__pickler *p, const char *s)
{
    ckr__pickler_str(p, s, strlen(s));
}

/* Two's complement, little-endian. */
static void ckr__pickler_long(ckr__pickler *p, const uint8_t *v, uint64_t n)
{
    uint8_t b[5];
    while (n > 1 && v[n - 1] == (v[n - 2] & 0x80 ? 0xff : 0)) n--;
    if (n > INT32_MAX) {
        ckr__pickler_fail(p, CKR_ITEM_WRITE_SIZE, "an integer of %llu bytes",
                          (unsigned long long)n);
        return;
    }
    b[0] = n < 256 ? 0x8a : 0x8b;                      /* LONG1, LONG4 */
    ckr__store_u32(b + 1, (uint32_t)n);
    ckr__buf_put(&p->out, b, n < 256 ? 2 : 5);
    ckr__buf_put(&p->out, v, (size_t)n);
}

static void ckr__pickler_int(ckr__pickler *p, int64_t v)
{
    uint8_t b[8];
    ckr__store_u64(b, (uint64_t)v);
    if (v < INT32_MIN || v > INT32_MAX) {
        ckr__pickler_long(p, b, 8);
        return;
    }
    ckr__buf_u8(&p->out, v < 0 || v > 0xffff ? 'J' : v > 0xff ? 'M' : 'K');    /* BININT, 2, 1 */
    ckr__buf_put(&p->out, b, v < 0 || v > 0xffff ? 4 : v > 0xff ? 2 : 1);
}

static void ckr__pickler_bigint(ckr__pickler *p, const ckr_node *n)
{
    const uint8_t *v = (const uint8_t *)(const void *)n->u.str;
    uint64_t size = n->count;
    while (size > 1 && v[size - 1] == (v[size - 2] & 0x80 ? 0xff : 0)) size--;
    if (size > 4) {
        ckr__pickler_long(p, v, size);
    } else {
        uint32_t x = size && v[size - 1] & 0x80 ? UINT32_MAX : 0;
        for (; size; size--) x = x << 8 | v[size - 1];
        ckr__pickler_int(p, x > INT32_MAX ? -(int64_t)(UINT32_MAX - x) - 1 : (int64_t)x);
    }
}

static void ckr__pickler_float(ckr__pickler *p, double v)
{
    uint8_t b[9];
    uint64_t u;
    int i;
    memcpy(&u, &v, 8);
    b[0] = 'G';                                        /* BINFLOAT: big-endian */
    for (i = 0; i < 8; i++) b[1 + i] = (uint8_t)(u >> (56 - 8 * i));
    ckr__buf_put(&p->out, b, 9);
}

static void ckr__pickler_bool(ckr__pickler *p, bool v)
{
    ckr__buf_u8(&p->out, v ? 0x88 : 0x89);             /* NEWTRUE, NEWFALSE */
}

/* A tuple of integers; the empty one is never memoized. */
static void ckr__pickler_dims(ckr__pickler *p, uint32_t n, const int64_t *v)
{
    uint32_t d;
    if (n > 3) ckr__buf_u8(&p->out, '(');
    for (d = 0; d < n; d++) ckr__pickler_int(p, v[d]);
    ckr__buf_u8(&p->out, n == 0 ? ')' : n <= 3 ? 0x84u + n : 't');
    if (n) ckr__pickler_put(p);
}

/* GLOBAL is two lines, so a name with a line break could smuggle in opcodes. */
static void ckr__pickler_global(ckr__pickler *p, const char *module, size_t n_module,
                                const char *name, size_t n_name)
{
    size_t i;
    p->key.size = 0;
    ckr__buf_str(&p->key, "\xff" "c");
    ckr__buf_put(&p->key, module, n_module);
    ckr__buf_u8(&p->key, '\n');
    ckr__buf_put(&p->key, name, n_name);
    for (i = 0; i < n_module + n_name; i++) {
        char ch = i < n_module ? module[i] : name[i - n_module];
        if (ch == '\n' || ch == '\r' || ch == 0) n_name = 0;
    }
    if (n_module == 0 || n_name == 0) {
        ckr__pickler_fail(p, CKR_ITEM_WRITE_NAME,
                          "the name of a Python class or function is empty, has no module "
                          "or holds a control character");
        return;
    }
    if (ckr__pickler_known_key(p) || p->key.failed) return;
    ckr__buf_u8(&p->out, 'c');                         /* GLOBAL */
    ckr__buf_put(&p->out, module, n_module);
    ckr__buf_u8(&p->out, '\n');
    ckr__buf_put(&p->out, name, n_name);
    ckr__buf_u8(&p->out, '\n');
    ckr__pickler_put_key(p, ckr__strndup(p->c, (const char *)p->key.data, p->key.size),
                         p->key.size);
}

static void ckr__pickler_class(ckr__pickler *p, const char *module, const char *name)
{
    ckr__pickler_global(p, module, strlen(module), name, strlen(name));
}

/* "module.name", split at the last dot, in the spelling that protocol 2 uses (Python 2's). */
static void ckr__pickler_name(ckr__pickler *p, const char *s)
{
    static const char *const py2[][4] = {{"builtins", "range", "__builtin__", "xrange"},
                                         {"builtins", "int", "__builtin__", "long"},
                                         {"builtins", "str", "__builtin__", "unicode"},
                                         {"builtins", "chr", "__builtin__", "unichr"},
                                         {"builtins", "zip", "itertools", "izip"},
                                         {"builtins", "map", "itertools", "imap"},
                                         {"builtins", "filter", "itertools", "ifilter"},
                                         {"builtins", "", "__builtin__", ""},
                                         {"copyreg", "", "copy_reg", ""}};
    const char *dot = s ? strrchr(s, '.') : NULL, *name;
    size_t n, i;
    if (!dot) {
        ckr__pickler_global(p, "", 0, s ? s : "", s ? strlen(s) : 0);
        return;
    }
    n = (size_t)(dot - s);
    name = dot + 1;
    for (i = 0; i < sizeof py2 / sizeof py2[0]; i++)
        if (strlen(py2[i][0]) == n && !memcmp(py2[i][0], s, n) &&
            (!*py2[i][1] || !strcmp(py2[i][1], name))) {
            ckr__pickler_class(p, py2[i][2], *py2[i][3] ? py2[i][3] : name);
            return;
        }
    ckr__pickler_global(p, s, n, name, strlen(name));
}

/* bytes have no opcode in protocol 2: _codecs.encode(text, 'latin1'). Python writes b'' as bytes(),
   which weights_only refuses, so here it is encode('', 'latin1') as well. Leaves the value without
   its memo entry; false: it was there before and needs none. */
static bool ckr__pickler_bytes(ckr__pickler *p, const uint8_t *s, uint64_t n)
{
    uint8_t two[2];
    uint64_t i, high = 0;
    if (n <= 1) {                                      /* CPython keeps one object of each */
        p->key.size = 0;
        ckr__buf_str(&p->key, "\xff" "b");
        ckr__buf_put(&p->key, s, (size_t)n);
        if (ckr__pickler_known_key(p)) return false;
    }
    ckr__pickler_class(p, "_codecs", "encode");
    for (i = 0; i < n; i++) high += s[i] >> 7;
    if (n <= 1 && !high) {
        ckr__pickler_str(p, (const char *)s, n);
    } else {
        ckr__pickler_text(p, NULL, 0);
        if (n + high > UINT32_MAX || !ckr__buf_reserve(&p->out, (size_t)(n + high))) {
            ckr__pickler_fail(p, CKR_ITEM_WRITE_SIZE, "bytes of length %llu",
                              (unsigned long long)n);
            return false;
        }
        ckr__store_u32(p->out.data + p->out.size - 4, (uint32_t)(n + high));
        for (i = 0; i < n; i++) {
            two[0] = s[i] < 0x80 ? s[i] : (uint8_t)(0xc0 | s[i] >> 6);
            two[1] = (uint8_t)(0x80 | (s[i] & 0x3f));
            ckr__buf_put(&p->out, two, s[i] < 0x80 ? 1 : 2);
        }
        ckr__pickler_put(p);
    }
    ckr__pickler_word(p, "latin1");
    ckr__pickler_reduce(p, 2);
    return true;
}

/* The same with its memo entry; `node` may be NULL. */
static void ckr__pickler_bytes_value(ckr__pickler *p, const uint8_t *s, uint64_t n,
                                     const ckr_node *node)
{
    char key[4] = { '\xff', 'b', 0, 0 };
    if (n == 1) key[2] = (char)s[0];
    if (!ckr__pickler_bytes(p, s, n)) return;
    if (n <= 1) ckr__pickler_put_key(p, ckr__strndup(p->c, key, 2 + (size_t)n), 2 + (size_t)n);
    else if (node) ckr__pickler_put_node(p, node);
    else ckr__pickler_put(p);
}

static void ckr__pickler_bytearray(ckr__pickler *p, const ckr_node *n)
{
    ckr__pickler_class(p, "__builtin__", "bytearray");
    if (n->count == 0) {
        ckr__pickler_op(p, ")R");
    } else {
        ckr__pickler_bytes_value(p, (const uint8_t *)(const void *)n->u.str, n->count, NULL);
        ckr__pickler_reduce(p, 1);
    }
    ckr__pickler_put_node(p, n);
}

/* Tensors and arrays ---------------------------------------------------------- */

/* The place of the entry among the records. */
static uint64_t ckr__pickler_entry(ckr__pickler *p, ckr_entry *e)
{
    uint64_t i = p->n_entries;
    void *array = p->entries;
    if (ckr__pickler_id_find(p, e, &i)) return i;
    if (!ckr__arena_grow(p->c, &array, &p->cap_entries, i + 1, sizeof *p->entries)) {
        ckr__pickler_nomem(p);
        return 0;
    }
    p->entries = (ckr_entry **)array;
    p->entries[p->n_entries++] = e;
    ckr__pickler_id_set(p, e, i);
    return i;
}

/* The key as text: an object that CPython shares with no other text, so it is remembered by an
   address inside the entry. */
static void ckr__pickler_storage_key(ckr__pickler *p, ckr_entry *e)
{
    char text[24];
    uint64_t i = ckr__pickler_entry(p, e), memo;
    if (ckr__pickler_id_find(p, &e->crc, &memo)) {
        ckr__pickler_get(p, memo);
        return;
    }
    snprintf(text, sizeof text, "%llu", (unsigned long long)i);
    ckr__pickler_text(p, text, strlen(text));
    ckr__pickler_id_set(p, &e->crc, ckr__pickler_put(p));
}

static void ckr__pickler_hooks(ckr__pickler *p)
{
    ckr__pickler_class(p, "collections", "OrderedDict");
    ckr__pickler_op(p, ")R");
    ckr__pickler_put(p);
}

/* torch._utils._rebuild_tensor_v2(storage, 0, size, stride, requires_grad, {}), or _v3 with the
   dtype at the end for dtypes that have no storage class. Contiguous strides are torch's: an axis
   of length 0 counts as 1. */
static void ckr__pickler_tensor(ckr__pickler *p, ckr_entry *e, bool requires_grad)
{
    const ckr__dtype_row *t = &ckr__dtypes[e->dtype];
    const bool v3 = !*t->storage;
    int64_t *stride = CKR__NEW_N(p->c, int64_t, e->n_dims), s = 1;
    uint32_t d;
    if (!stride) { ckr__pickler_nomem(p); return; }
    for (d = e->n_dims; d-- > 0; s *= e->shape[d] ? e->shape[d] : 1) stride[d] = s;
    ckr__pickler_class(p, "torch._utils", v3 ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
    ckr__pickler_op(p, "((");
    ckr__pickler_word(p, "storage");
    if (v3) ckr__pickler_class(p, "torch.storage", "UntypedStorage");
    else ckr__pickler_class(p, "torch", t->storage);
    ckr__pickler_storage_key(p, e);
    ckr__pickler_word(p, "cpu");
    ckr__pickler_int(p, (int64_t)(v3 ? e->n_bytes : e->n_bytes / t->size));
    ckr__pickler_op(p, "t");
    ckr__pickler_put(p);
    ckr__pickler_op(p, "Q");                           /* BINPERSID */
    ckr__pickler_int(p, 0);
    ckr__pickler_dims(p, e->n_dims, e->shape);
    ckr__pickler_dims(p, e->n_dims, stride);
    ckr__pickler_bool(p, requires_grad);
    ckr__pickler_hooks(p);
    if (v3) ckr__pickler_class(p, "torch", t->name);
    ckr__pickler_op(p, "t");
    ckr__pickler_put(p);
    ckr__pickler_op(p, "R");
}

static void ckr__pickler_entry_node(ckr__pickler *p, const ckr_node *n)
{
    ckr_entry *e = n->u.entry;
    const char *t = e ? ckr_dtype_name(e->dtype) : "none";
    if (!e || e->dtype == CKR_DTYPE_NONE || !strncmp(t, "qint", 4) || !strncmp(t, "quint", 5)) {
        ckr__pickler_fail(p, CKR_ITEM_WRITE_DTYPE,
                          "a tensor of dtype %s; only plain dtypes can be written", t);
        return;
    }
    if (e->parameter) ckr__pickler_class(p, "torch._utils", "_rebuild_parameter");
    ckr__pickler_tensor(p, e, e->requires_grad && !e->parameter);
    if (e->parameter) {
        ckr__pickler_put(p);
        ckr__pickler_bool(p, e->requires_grad);
        ckr__pickler_hooks(p);
        ckr__pickler_reduce(p, 3);
    }
    ckr__pickler_put_node(p, n);
}

/* A tensor that never had data. */
static void ckr__pickler_meta(ckr__pickler *p, const ckr_node *n)
{
    const ckr_view *v = n->u.view;
    ckr__pickler_class(p, "torch._utils", "_rebuild_meta_tensor_no_storage");
    ckr__pickler_op(p, "(");
    ckr__pickler_class(p, "torch", ckr_dtype_name(v->dtype));
    ckr__pickler_dims(p, v->n_dims, v->shape);
    ckr__pickler_dims(p, v->n_dims, v->stride);
    ckr__pickler_bool(p, v->requires_grad);
    ckr__pickler_op(p, "t");
    ckr__pickler_put(p);
    ckr__pickler_op(p, "R");
    ckr__pickler_put_node(p, n);
}

/* What follows a numpy dtype's code: item size, alignment and flags of text and raw bytes (-1, -1,
   0 for numbers); for dates ("M8[25s]") in a version of its own a ninth item (None, (b'unit',
   count, 1, 1)). */
static void ckr__pickler_np_state(ckr__pickler *p, const char *order, const char *code)
{
    const char *unit = strchr(code, '[');
    const bool text = *code == 'U', date = *code == 'M' || *code == 'm',
               sized = text || *code == 'S' || *code == 'V';
    const int64_t size = sized ? (int64_t)strtoul(code + 1, NULL, 10) * (text ? 4 : 1) : -1;
    uint64_t count = 1;
    ckr__pickler_op(p, "(");
    ckr__pickler_int(p, date ? 4 : 3);
    ckr__pickler_str(p, order, 1);
    ckr__pickler_op(p, "NNN");
    ckr__pickler_int(p, size);
    ckr__pickler_int(p, sized ? (text ? 4 : 1) : -1);
    ckr__pickler_int(p, text ? 8 : 0);
    if (date) {
        if (unit && unit[1] >= '0' && unit[1] <= '9') count = strtoul(unit + 1, NULL, 10);
        if (unit) unit += 1 + strspn(unit + 1, "0123456789");
        ckr__pickler_op(p, "N(");
        ckr__pickler_bytes_value(p, (const uint8_t *)(unit ? unit : "generic"),
                                 unit ? strcspn(unit, "]") : 7, NULL);
        ckr__pickler_int(p, (int64_t)count);
        ckr__pickler_int(p, 1);
        ckr__pickler_int(p, 1);
        ckr__pickler_op(p, "t");
        ckr__pickler_put(p);
        ckr__buf_u8(&p->out, 0x86);
        ckr__pickler_put(p);
    }
    ckr__pickler_op(p, "t");
    ckr__pickler_put(p);
    ckr__pickler_op(p, "b");
}

/* numpy.dtype('f4', False, True) with its state. The byte order is that of the bytes: a reader may
   have given the array the host's order in its type name. */
static void ckr__pickler_np_dtype(ckr__pickler *p, const ckr_view *v)
{
    static const char orders[] = "<>|";
    const char *order = orders + (v->type_name[0] == '|' ? 2
                                  : v->big_endian        ? 1
                                                         : 0),
               *code = v->type_name + 1;
    const size_t n_code = strcspn(code, "[");
    char key[64];
    const size_t n = (size_t)snprintf(key, sizeof key, "\xff" "d%c%.50s", *order, code);
    p->key.size = 0;
    ckr__buf_put(&p->key, key, n);
    if (ckr__pickler_known_key(p)) return;
    ckr__pickler_class(p, "numpy", "dtype");
    ckr__pickler_text(p, code, n_code);
    ckr__pickler_put(p);
    ckr__pickler_bool(p, false);
    ckr__pickler_bool(p, true);
    ckr__pickler_reduce(p, 3);
    ckr__pickler_put_key(p, ckr__strndup(p->c, key, n), n);
    ckr__pickler_np_state(p, order, code);
}

/* Elements in one block, in C or Fortran order. */
static bool ckr__pickler_packed(const ckr_view *v)
{
    int64_t s = 1;
    uint32_t i;
    for (i = 0; i < v->n_dims; i++) {
        uint32_t d = v->fortran ? i : v->n_dims - 1 - i;
        if (v->shape[d] != 1 && v->stride && v->stride[d] != s) return false;
        s *= v->shape[d];
    }
    return true;
}

static void ckr__pickler_numpy(ckr__pickler *p, const ckr_node *n)
{
    static const int64_t zero = 0;
    const ckr_view *v = n->u.view;
    const uint64_t want = v->data_bytes, size = ckr_dtype_size(v->dtype);
    int64_t numel;
    if (!v->type_name || strlen(v->type_name) < 2 || !ckr__numel(v->n_dims, v->shape, &numel) ||
        (size && (want / size != (uint64_t)numel || want % size)) ||
        (want && (!v->bytes || v->offset != 0 || !ckr__pickler_packed(v)))) {
        ckr__pickler_fail(p, CKR_ITEM_WRITE_NODE,
                          "a numpy array that is not packed items in memory");
        return;
    }
    if (n->kind == CKR_NODE_NPSCALAR) {
        ckr__pickler_class(p, "numpy._core.multiarray", "scalar");
        ckr__pickler_np_dtype(p, v);
        ckr__pickler_bytes_value(p, v->bytes, want, NULL);
        ckr__pickler_reduce(p, 2);
        ckr__pickler_put_node(p, n);
        return;
    }
    ckr__pickler_class(p, "numpy._core.multiarray", "_reconstruct");
    ckr__pickler_class(p, "numpy", "ndarray");
    ckr__pickler_dims(p, 1, &zero);
    ckr__pickler_bytes_value(p, (const uint8_t *)"b", 1, NULL);
    ckr__pickler_reduce(p, 3);
    ckr__pickler_put_node(p, n);
    ckr__pickler_op(p, "(");
    ckr__pickler_int(p, 1);
    ckr__pickler_dims(p, v->n_dims, v->shape);
    ckr__pickler_np_dtype(p, v);
    ckr__pickler_bool(p, v->fortran);
    ckr__pickler_bytes_value(p, v->bytes, want, NULL);
    ckr__pickler_op(p, "t");
    ckr__pickler_put(p);
    ckr__pickler_op(p, "b");
}

/* The walk -------------------------------------------------------------------- */

static void ckr__pickler_device(ckr__pickler *p, const ckr_node *n)
{
    const char *colon = strchr(n->u.str, ':');
    ckr__pickler_class(p, "torch", "device");
    ckr__pickler_str(p, n->u.str, colon ? (uint64_t)(colon - n->u.str) : n->count);
    if (colon) ckr__pickler_int(p, (int64_t)strtoul(colon + 1, NULL, 10));
    ckr__pickler_reduce(p, colon ? 2 : 1);
    ckr__pickler_put_node(p, n);
}

static void ckr__pickler_layout(ckr__pickler *p, const ckr_node *n)
{
    const char *s = n->u.str;
    ckr__pickler_class(p, "torch.serialization", "_get_layout");
    if (strncmp(s, "torch.", 6) != 0) s = ckr__printf(p->c, "torch.%s", s);
    if (!s) { ckr__pickler_nomem(p); return; }
    ckr__pickler_word(p, s);
    ckr__pickler_reduce(p, 1);
    ckr__pickler_put_node(p, n);
}

/* Several states, one BUILD each: the reader keeps them as an object of its own. */
static const ckr_node *ckr__pickler_builds(const ckr_object *o)
{
    const bool many =
        o->state && o->state->kind == CKR_NODE_OBJECT && !strcmp(o->state->u.object->how, "builds");
    return many ? o->state->u.object->items : NULL;
}

static void ckr__pickler_object(ckr__pickler *p, const ckr_node *n)
{
    const ckr_object *o = n->u.object;
    const bool persistent = !strcmp(o->how, "persistent"), newobj = !strcmp(o->how, "newobj");
    const bool kwargs = o->kwargs && o->kwargs->count;
    const ckr_node *const builds = ckr__pickler_builds(o);
    uint64_t i;
    for (i = builds ? builds->count : 0; i > 0; i--) {
        ckr__pickler_push(p, CKR__PK_OP, NULL, 'b', false);            /* BUILD */
        ckr__pickler_push(p, CKR__PK_SAVE, builds->u.items[i - 1], 0, false);
    }
    if (o->state && !builds) {
        ckr__pickler_push(p, CKR__PK_OP, NULL, 'b', false);
        ckr__pickler_push(p, CKR__PK_SAVE, o->state, 0, false);
    }
    if (o->dictitems) ckr__pickler_push(p, CKR__PK_FILL, o->dictitems, 0, true);
    if (o->items) ckr__pickler_push(p, CKR__PK_FILL, o->items, 0, false);
    if (!persistent) ckr__pickler_push(p, CKR__PK_PUT, n, 0, false);
    /* BINPERSID; NEWOBJ_EX (of protocol 4, but every unpickler knows it), NEWOBJ; REDUCE */
    ckr__pickler_push(p, CKR__PK_OP, NULL,
                      persistent ? 'Q'
                      : !newobj  ? 'R'
                      : kwargs   ? 0x92
                                 : 0x81,
                      false);
    if (newobj && kwargs) ckr__pickler_push(p, CKR__PK_SAVE, o->kwargs, 0, false);
    if (o->args) ckr__pickler_push(p, CKR__PK_SAVE, o->args, 0, false);
    else ckr__pickler_push(p, CKR__PK_OP, NULL, ')', false);
    if (persistent) return;
    ckr__pickler_id_set(p, n, CKR__PICKLE_OPEN);
    if (o->callable) ckr__pickler_push(p, CKR__PK_SAVE, o->callable, 0, false);
    else ckr__pickler_name(p, o->name);
}

/* Containers other than list, tuple and dict: a call, filled before (arguments) or after it. */
static void ckr__pickler_container(ckr__pickler *p, const ckr_node *n)
{
    switch ((int)n->kind) {
    case CKR_NODE_SET:
    case CKR_NODE_FROZENSET:                           /* set([..]) */
        ckr__pickler_id_set(p, n, CKR__PICKLE_OPEN);
        ckr__pickler_class(p, "__builtin__", n->kind == CKR_NODE_SET ? "set" : "frozenset");
        ckr__pickler_op(p, "]");
        ckr__pickler_put(p);
        ckr__pickler_push(p, CKR__PK_CALL, n, 0, false);
        ckr__pickler_push(p, CKR__PK_FILL_EXACT, n, 0, false);
        break;
    case CKR_NODE_COUNTER:                             /* Counter({..}) */
        ckr__pickler_id_set(p, n, CKR__PICKLE_OPEN);
        ckr__pickler_class(p, "collections", "Counter");
        ckr__pickler_op(p, "}");
        ckr__pickler_put(p);
        ckr__pickler_push(p, CKR__PK_CALL, n, 0, false);
        ckr__pickler_push(p, CKR__PK_FILL_EXACT, n, 0, true);
        break;
    case CKR_NODE_ODICT:                               /* OrderedDict(), items, attributes */
        ckr__pickler_class(p, "collections", "OrderedDict");
        ckr__pickler_op(p, ")R");
        ckr__pickler_put_node(p, n);
        if (n->attrs) {
            ckr__pickler_push(p, CKR__PK_OP, NULL, 'b', false);
            ckr__pickler_push(p, CKR__PK_SAVE, n->attrs, 0, false);
        }
        ckr__pickler_push(p, CKR__PK_FILL, n, 0, true);
        break;
    default:                                           /* defaultdict(factory), items */
        ckr__pickler_class(p, "collections", "defaultdict");
        ckr__pickler_push(p, CKR__PK_FILL, n, 0, true);
        if (n->attrs && n->attrs->kind != CKR_NODE_NONE) {
            ckr__pickler_id_set(p, n, CKR__PICKLE_OPEN);
            ckr__pickler_push(p, CKR__PK_CALL, n, 0, false);
            ckr__pickler_push(p, CKR__PK_SAVE, n->attrs, 0, false);
        } else {
            ckr__pickler_op(p, ")R");
            ckr__pickler_put_node(p, n);
        }
        break;
    }
}

static void ckr__pickler_size(ckr__pickler *p, const ckr_node *n)
{
    uint64_t i;
    int64_t v = 0;
    ckr__pickler_class(p, "torch", "Size");
    if (n->count > 3) ckr__pickler_op(p, "(");
    for (i = 0; i < n->count; i++) {
        if (!ckr_node_i64(n->u.items[i], &v))
            ckr__pickler_fail(p, CKR_ITEM_WRITE_NODE,
                              "a torch.Size that holds something else than integers");
        ckr__pickler_int(p, v);
    }
    ckr__buf_u8(&p->out, n->count == 0 ? ')' : n->count <= 3 ? 0x84u + (unsigned)n->count : 't');
    if (n->count) ckr__pickler_put(p);
    ckr__pickler_reduce(p, 1);
    ckr__pickler_put_node(p, n);
}

/* Values that carry no identity; false: `n` is none. */
static bool ckr__pickler_atom(ckr__pickler *p, const ckr_node *n)
{
    const char *s = n->u.str;
    switch ((int)n->kind) {
    case CKR_NODE_NONE:   ckr__pickler_op(p, "N"); return true;
    case CKR_NODE_BOOL:   ckr__pickler_bool(p, n->u.b); return true;
    case CKR_NODE_INT:    ckr__pickler_int(p, n->u.i); return true;
    case CKR_NODE_BIGINT: ckr__pickler_bigint(p, n); return true;
    case CKR_NODE_FLOAT:  ckr__pickler_float(p, n->u.f); return true;
    case CKR_NODE_STR:    ckr__pickler_str(p, s, n->count); return true;
    case CKR_NODE_DTYPE:
        ckr__pickler_class(p, "torch", strncmp(s, "torch.", 6) ? s : s + 6);
        return true;
    case CKR_NODE_GLOBAL: ckr__pickler_name(p, s); return true;
    default:              return false;
    }
}

static void ckr__pickler_save(ckr__pickler *p, const ckr_node *n)
{
    uint64_t memo;
    if (ckr__pickler_atom(p, n)) return;
    if (ckr__pickler_id_find(p, n, &memo)) {
        if (memo != CKR__PICKLE_OPEN) ckr__pickler_get(p, memo);
        else
            ckr__pickler_fail(p, CKR_ITEM_WRITE_CYCLE,
                              "a value that contains itself and is no list, dict or object");
        return;
    }
    switch ((int)n->kind) {
    case CKR_NODE_COMPLEX:
        ckr__pickler_class(p, "__builtin__", "complex");
        ckr__pickler_float(p, n->u.complex_[0]);
        ckr__pickler_float(p, n->u.complex_[1]);
        ckr__pickler_reduce(p, 2);
        ckr__pickler_put_node(p, n);
        break;
    case CKR_NODE_BYTES:
        ckr__pickler_bytes_value(p, (const uint8_t *)(const void *)n->u.str, n->count, n);
        break;
    case CKR_NODE_BYTEARRAY: ckr__pickler_bytearray(p, n); break;
    case CKR_NODE_LIST:
    case CKR_NODE_DICT:
        ckr__pickler_op(p, n->kind == CKR_NODE_LIST ? "]" : "}");
        ckr__pickler_put_node(p, n);
        ckr__pickler_push(p, CKR__PK_FILL_EXACT, n, 0, n->kind == CKR_NODE_DICT);
        break;
    case CKR_NODE_TUPLE:
        if (n->count > 3) ckr__pickler_op(p, "(");
        if (n->count) ckr__pickler_id_set(p, n, CKR__PICKLE_OPEN);
        ckr__pickler_push(p, CKR__PK_TUPLE, n, 0, false);
        break;
    case CKR_NODE_SET:
    case CKR_NODE_FROZENSET:
    case CKR_NODE_COUNTER:
    case CKR_NODE_ODICT:
    case CKR_NODE_DEFAULTDICT: ckr__pickler_container(p, n); break;
    case CKR_NODE_NDARRAY:
    case CKR_NODE_NPSCALAR:  ckr__pickler_numpy(p, n); break;
    case CKR_NODE_SIZE:      ckr__pickler_size(p, n); break;
    case CKR_NODE_DEVICE:    ckr__pickler_device(p, n); break;
    case CKR_NODE_LAYOUT:    ckr__pickler_layout(p, n); break;
    case CKR_NODE_OBJECT:    ckr__pickler_object(p, n); break;
    case CKR_NODE_ENTRY:     ckr__pickler_entry_node(p, n); break;
    default:
        if (n->kind == CKR_NODE_TENSOR && n->u.view && n->u.view->meta && !n->u.view->layout)
            ckr__pickler_meta(p, n);
        else
            ckr__pickler_fail(p, CKR_ITEM_WRITE_NODE,
                              "a %s of another file; a tree to be written holds entries instead",
                              n->kind == CKR_NODE_TENSOR ? "tensor" : "storage");
        break;
    }
}

/* One child of a container on top of the stack, with the opcodes of its batch around it. */
static void ckr__pickler_fill(ckr__pickler *p, ckr__pickler_frame *f)
{
    const bool exact = f->what == CKR__PK_FILL_EXACT;
    const uint64_t total = f->node->count * (f->pairs ? 2 : 1),
                   batch = CKR__PICKLE_BATCH * (f->pairs ? 2u : 1u);
    const uint64_t one = f->pairs ? 2 : 1, at = f->at;
    const ckr_node *child;
    if (at && (at == total || at % batch == 0)) {
        uint64_t start = (at - 1) / batch * batch;
        bool single = total - start == one && (start == 0 || !exact);
        ckr__pickler_op(p, single ? (f->pairs ? "s" : "a") : (f->pairs ? "u" : "e"));
    }
    if (at == total) {
        if (exact && f->pairs && total && total % batch == 0) ckr__pickler_op(p, "(u");
        p->stack.size -= sizeof *f;
        return;
    }
    if (at % batch == 0 && !(total - at == one && (at == 0 || !exact))) ckr__pickler_op(p, "(");
    child = f->node->u.items[f->at++];
    ckr__pickler_push(p, CKR__PK_SAVE, child, 0, false);
}

static void ckr__pickler_step(ckr__pickler *p)
{
    ckr__pickler_frame *top =
        (ckr__pickler_frame *)(void *)(p->stack.data + p->stack.size - sizeof *top);
    const ckr_node *n = top->node;
    if (top->what >= CKR__PK_FILL) {
        ckr__pickler_fill(p, top);
        return;
    }
    if (top->what == CKR__PK_TUPLE && top->at < n->count) {
        n = n->u.items[top->at++];
        ckr__pickler_push(p, CKR__PK_SAVE, n, 0, false);
        return;
    }
    p->stack.size -= sizeof *top;
    switch (top->what) {
    case CKR__PK_SAVE: ckr__pickler_save(p, n); break;
    case CKR__PK_OP:   ckr__buf_u8(&p->out, top->op); break;
    case CKR__PK_PUT:  ckr__pickler_put_node(p, n); break;
    case CKR__PK_CALL:
        ckr__pickler_reduce(p, 1);
        ckr__pickler_put_node(p, n);
        break;
    default:
        ckr__buf_u8(&p->out, n->count == 0   ? ')'
                             : n->count <= 3 ? 0x84u + (unsigned)n->count
                                             : 't');
        if (n->count) ckr__pickler_put_node(p, n);
        break;
    }
}

/* The pickle of f->root in `out` (which the caller frees), and its entries in the order of
   appearance. */
static ckr_result ckr__pickle_write(ckr__ctx *c, ckr__out_file *f, ckr__buf *out,
                                    ckr_entry ***entries, uint64_t *n)
{
    ckr__pickler p;
    uint64_t i;
    memset(&p, 0, sizeof p);
    p.c = p.out.c = p.stack.c = p.key.c = p.text.c = p.ids.c = c;
    p.f = f;
    ckr__pickler_op(&p, "\x80\x02");                   /* PROTO 2 */
    ckr__pickler_push(&p, CKR__PK_SAVE, f->root, 0, false);
    while (p.stack.size && p.r == CKR_OK && !p.stack.failed && !p.out.failed && !p.key.failed)
        ckr__pickler_step(&p);
    ckr__pickler_op(&p, ".");
    if (p.stack.failed || p.out.failed || p.key.failed) ckr__pickler_nomem(&p);
    if (p.r == CKR_OK && p.n_memo > UINT32_MAX)
        ckr__pickler_fail(&p, CKR_ITEM_WRITE_SIZE, "%llu values", (unsigned long long)p.n_memo);
    for (i = 0; i < f->n_entries && p.r == CKR_OK; i++)
        if (!ckr__pickler_id_find(&p, f->entries[i], NULL)) break;
    if (p.r == CKR_OK && (i < f->n_entries || p.n_entries != f->n_entries))
        p.r = ckr__fail(c->err, CKR_ITEM_WRITE_ENTRY, f->path, CKR_NO_OFFSET,
                        i < f->n_entries ? f->entries[i]->name : NULL,
                        "%llu entries are listed, the tree holds %llu",
                        (unsigned long long)f->n_entries, (unsigned long long)p.n_entries);
    *out = p.out;
    *entries = p.entries;
    *n = p.n_entries;
    ckr__buf_free(&p.stack);
    ckr__buf_free(&p.key);
    ckr__map_free(&p.text);
    ckr__map_free(&p.ids);
    return p.r;
}

/* >>write.image --------------------------------------------------------------- */
/* A file before any of its tensor bytes exist: segments in file order that cover [0, size) without
   holes. A segment is

     bytes, entry NULL        literal (a header, the pickle, padding)
     bytes NULL, entry        the entry's n_bytes
     bytes, late, entry       the entry's data descriptor (CRC and sizes), right behind the entry
     bytes, late, entry NULL  the end of a torch archive: serialization id and directory

   Late bytes are zero until ckr__image_finish, which needs every entry's crc; an engine that has
   one entry's crc already can make that entry's descriptor itself with ckr__image_descriptor.

   The torch archive is a zip as torch 2.15 writes it, byte for byte: stored records, data.pkl,
   .format_version, .storage_alignment, byteorder, data/0.., version, .data/serialization_id, each
   payload at a multiple of 64 (extra block 'FB' filled with 'Z'), sizes and CRC in a data
   descriptor unless the record is empty, zip64 blocks where an offset or size reaches 2^32 - 1,
   and always a zip64 end record and its locator. */

typedef struct ckr__seg {
    uint64_t       offset, size;
    const uint8_t *bytes;
    ckr_entry     *entry;
    bool           late;
} ckr__seg;

typedef struct ckr__image_record {           /* a member of the archive                      */
    const char      *name;             /* without the root folder                      */
    const ckr_entry *entry;            /* or NULL: `crc` is known                      */
    uint64_t         header, size;
    uint32_t         crc;
} ckr__image_record;

typedef struct ckr__image {
    ckr__seg    *segs;
    uint64_t     n_segs, size;
    uint8_t     *late;                 /* the bytes of all late segments, in their order */
    ckr__image_record *records;              /* of a torch archive                           */
    uint64_t     n_records;
    const char  *root;                 /* its folder                                   */
    uint64_t     name_hash;            /* of its records' names                        */
} ckr__image;

typedef struct ckr__packer {
    ckr__ctx      *c;
    ckr__out_file *f;
    ckr__image    *img;
    ckr__buf       lit;                /* of the literal segment being filled          */
    uint64_t       late;               /* bytes so far                                 */
} ckr__packer;

#define CKR__PACK_MAX32 0xffffffffu
#define CKR__TORCH_ALIGN 64

/* Where the next byte goes. */
static uint64_t ckr__pack_at(const ckr__packer *p)
{
    return p->img->size + p->lit.size;
}

static ckr_result ckr__pack_seg(ckr__packer *p, uint64_t size, const uint8_t *bytes, ckr_entry *e,
                                bool late)
{
    ckr__seg *s = &p->img->segs[p->img->n_segs];
    if (size == 0) return CKR_OK;
    if (!ckr__range_ok(p->img->size, size, INT64_MAX))
        return ckr__fail(p->c->err, CKR_ITEM_SIZE_OVERFLOW, p->f->path, CKR_NO_OFFSET,
                         e ? e->name : NULL, "the file would be larger than 2^63 bytes");
    s->offset = p->img->size;
    s->size = size;
    s->bytes = bytes;
    s->entry = e;
    s->late = late;
    p->img->n_segs++;
    p->img->size += size;
    if (late) p->late += size;
    return CKR_OK;
}

/* What has gathered in `lit` becomes a segment. */
static ckr_result ckr__pack_flush(ckr__packer *p)
{
    uint8_t *copy;
    ckr_result r;
    if (p->lit.failed) ckr__nomem(p->c);
    copy = p->lit.failed ? NULL : (uint8_t *)ckr__arena(p->c, p->lit.size);
    if (!copy) return p->c->err->code;
    if (p->lit.size) memcpy(copy, p->lit.data, p->lit.size);
    r = ckr__pack_seg(p, p->lit.size, copy, NULL, false);
    p->lit.size = 0;
    return r;
}

/* The zip64 fields of a record: 0, 8, 16 or 24 bytes. The local header counts the compressed size
   as 0. */
static uint32_t ckr__pack_zip64(const ckr__image_record *r, bool local, uint8_t out[28])
{
    uint32_t n = 0;
    if (r->size >= CKR__PACK_MAX32) {
        ckr__store_u64(out + 4, r->size);
        ckr__store_u64(out + 12, local ? 0 : r->size);
        n = 16;
    }
    if (r->header >= CKR__PACK_MAX32) {
        ckr__store_u64(out + 4 + n, r->header);
        n += 8;
    }
    if (n == 0) return 0;
    ckr__store_u16(out, 1);
    ckr__store_u16(out + 2, n);
    return n + 4;
}

static uint32_t ckr__pack_zip_descriptor_size(const ckr__image_record *r)
{
    return r->size == 0 ? 0 : r->size >= CKR__PACK_MAX32 || r->header >= CKR__PACK_MAX32 ? 24 : 16;
}

static void ckr__pack_zip_descriptor(uint8_t *out, uint32_t n, uint32_t crc, uint64_t size)
{
    ckr__store_u32(out, 0x08074b50u);
    ckr__store_u32(out + 4, crc);
    if (n == 24) {
        ckr__store_u64(out + 8, size);
        ckr__store_u64(out + 16, size);
    } else {
        ckr__store_u32(out + 8, (uint32_t)size);
        ckr__store_u32(out + 12, (uint32_t)size);
    }
}

/* Data descriptor and UTF-8 names; an empty record has no descriptor. */
static uint32_t ckr__pack_zip_flags(const ckr__image_record *r)
{
    return r->size ? 0x0808 : 0x0800;
}

/* A new record: its local header, up to the first byte of its payload. */
static ckr__image_record *ckr__pack_header(ckr__packer *p, const char *name, uint64_t size)
{
    ckr__image_record *r = &p->img->records[p->img->n_records++];
    uint8_t h[30], extra[28], fb[4 + CKR__TORCH_ALIGN];
    const size_t n_root = strlen(p->img->root), n_name = n_root + 1 + strlen(name);
    uint32_t n_extra, pad;
    r->name = name;
    r->header = ckr__pack_at(p);
    r->size = size;
    n_extra = ckr__pack_zip64(r, true, extra);
    pad = (uint32_t)((r->header + 30 + n_name + n_extra + 4) % CKR__TORCH_ALIGN);
    pad = (CKR__TORCH_ALIGN - pad) % CKR__TORCH_ALIGN;
    memset(h, 0, sizeof h);
    ckr__store_u32(h, 0x04034b50u);
    ckr__store_u16(h + 6, ckr__pack_zip_flags(r));
    ckr__store_u16(h + 26, (uint32_t)n_name);
    ckr__store_u16(h + 28, n_extra + 4 + pad);
    memset(fb, 'Z', sizeof fb);
    ckr__store_u16(fb, 0x4246);                        /* "FB" */
    ckr__store_u16(fb + 2, pad);
    ckr__buf_put(&p->lit, h, sizeof h);
    ckr__buf_put(&p->lit, p->img->root, n_root);
    ckr__buf_u8(&p->lit, '/');
    ckr__buf_str(&p->lit, name);
    ckr__buf_put(&p->lit, extra, n_extra);
    ckr__buf_put(&p->lit, fb, 4 + pad);
    return r;
}

/* A record whose content is known. */
static void ckr__pack_record(ckr__packer *p, const char *name, const void *bytes, size_t size)
{
    ckr__image_record *r = ckr__pack_header(p, name, size);
    uint8_t d[24];
    uint32_t n = ckr__pack_zip_descriptor_size(r);
    r->crc = ckr__crc32(0, bytes, size);
    ckr__pack_zip_descriptor(d, n, r->crc, size);
    ckr__buf_put(&p->lit, bytes, size);
    ckr__buf_put(&p->lit, d, n);
}

static ckr_result ckr__pack_entry(ckr__packer *p, ckr_entry *e, uint64_t key)
{
    const char *name = ckr__printf(p->c, "data/%llu", (unsigned long long)key);
    ckr__image_record *r;
    ckr_result x;
    if (!name) return p->c->err->code;
    r = ckr__pack_header(p, name, e->n_bytes);
    r->entry = e;
    if (e->n_bytes) {
        x = ckr__pack_flush(p);
        if (x != CKR_OK) return x;
        x = ckr__pack_seg(p, e->n_bytes, NULL, e, false);
        if (x == CKR_OK) x = ckr__pack_seg(p, ckr__pack_zip_descriptor_size(r), NULL, e, true);
        if (x != CKR_OK) return x;
        e->offset = p->img->segs[p->img->n_segs - 2].offset;
    } else {
        e->offset = ckr__pack_at(p);
    }
    return CKR_OK;
}

/* torch's fingerprint of an archive -------------------------------------------- */

static uint64_t ckr__pack_hash_combine(uint64_t seed, uint64_t v)
{
    return seed ^ (v + 0x9e3779b9u + (seed << 6) + (seed >> 2));
}

/* libstdc++'s std::hash of a string: MurmurHash64A with the seed 0xc70f6907. */
static uint64_t ckr__pack_hash(const char *s, size_t n)
{
    const uint64_t m = UINT64_C(0xc6a4a7935bd1e995);
    const uint8_t *p = (const uint8_t *)s;
    uint64_t h = 0xc70f6907u ^ n * m, k = 0;
    size_t i;
    for (; n >= 8; n -= 8, p += 8) {
        k = ckr__load_u64(p) * m;
        k = (k ^ k >> 47) * m;
        h = (h ^ k) * m;
    }
    for (i = n, k = 0; i-- > 0;) k = k << 8 | p[i];
    if (n) h = (h ^ k) * m;
    h = (h ^ h >> 47) * m;
    return h ^ h >> 47;
}

/* A list of strings in the order in which libstdc++'s unordered_set walks them: torch hashes its
   record names in that order. A bucket holds the node before its first one; n stands for the list's
   head. (Bucket counts: the smallest prime of libstdc++'s table that is at least twice the last.)
   */
typedef struct ckr__name_set { uint64_t *hash, *next, *bucket, n_buckets, n; } ckr__name_set;

#define CKR__NAME_NONE UINT64_MAX

static void ckr__name_set_link(ckr__name_set *s, uint64_t i)
{
    uint64_t b = s->hash[i] % s->n_buckets;
    if (s->bucket[b] != CKR__NAME_NONE) {
        s->next[i] = s->next[s->bucket[b]];
        s->next[s->bucket[b]] = i;
        return;
    }
    s->next[i] = s->next[s->n];
    s->next[s->n] = i;
    if (s->next[i] != CKR__NAME_NONE) s->bucket[s->hash[s->next[i]] % s->n_buckets] = i;
    s->bucket[b] = s->n;
}

static void ckr__name_set_resize(ckr__name_set *s, uint64_t n_buckets)
{
    uint64_t i = s->next[s->n], after, b;
    s->n_buckets = n_buckets;
    for (b = 0; b < n_buckets; b++) s->bucket[b] = CKR__NAME_NONE;
    s->next[s->n] = CKR__NAME_NONE;
    for (; i != CKR__NAME_NONE; i = after) {
        after = s->next[i];
        ckr__name_set_link(s, i);
    }
}

static ckr_result ckr__pack_name_hash(ckr__packer *p)
{
    static const uint32_t primes[] = {
        13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933, 351061,
        712697,
        1447153, 2938679, 5967347, 12117689, 24607243, 49969847, 101473717, 206062531, 418463119
    };
    const uint64_t n = p->img->n_records;
    const ckr__image_record *r = p->img->records;
    uint64_t i, k = 0, most = 13;
    ckr__name_set s;
    size_t bytes = 0;
    memset(&s, 0, sizeof s);
    for (i = 0; i < sizeof primes / sizeof primes[0] && most < n; i++) most = primes[i];
    if (!ckr__mul_size((size_t)(2 * n + 1 + most), sizeof *s.hash, &bytes)) ckr__nomem(p->c);
    else s.hash = (uint64_t *)ckr__heap_alloc(p->c, bytes);
    if (!s.hash) return p->c->err->code;
    s.next = s.hash + n;
    s.bucket = s.next + n + 1;
    s.n = n;
    s.next[n] = CKR__NAME_NONE;
    s.n_buckets = 1;
    for (i = 0; i < n; i++) {
        s.hash[i] = ckr__pack_hash(r[i].name, strlen(r[i].name));
        if (i == 0 || (i == s.n_buckets && k < sizeof primes / sizeof primes[0]))
            ckr__name_set_resize(&s, primes[k++]);
        ckr__name_set_link(&s, i);
    }
    p->img->name_hash = 0;
    for (i = s.next[n]; i != CKR__NAME_NONE; i = s.next[i])
        p->img->name_hash = ckr__pack_hash_combine(p->img->name_hash, s.hash[i]);
    ckr__heap_free(p->c, s.hash, bytes);
    return CKR_OK;
}

/* Torch archive ---------------------------------------------------------------- */

/* The folder of the records: the file's name without its last extension, as torch names it;
   "archive" when that is empty or not plain ASCII. */
static const char *ckr__pack_torch_root(ckr__ctx *c, const char *path)
{
    const char *base = path, *s, *dot = NULL;
    for (s = path; *s; s++)
        if (*s == '/' || *s == '\\') base = s + 1;
    for (s = base; *s; s++) {
        if (*s == '.') dot = s;
        if ((unsigned char)*s < 0x20 || (unsigned char)*s > 0x7e) return "archive";
    }
    if (!dot) dot = s;
    if (dot == base || dot - base > 1000) return "archive";
    return ckr__strndup(c, base, (size_t)(dot - base));
}

#define CKR__SERIALIZATION_ID ".data/serialization_id"

static uint64_t ckr__pack_tail_size(const ckr__image *img)
{
    uint64_t i, n = 40 +
                    (uint64_t)ckr__pack_zip_descriptor_size(&img->records[img->n_records - 1]) +
                    56 + 20 + 22;
    uint8_t extra[28];
    for (i = 0; i < img->n_records; i++)
        n += 46 + strlen(img->root) + 1 + strlen(img->records[i].name) +
             ckr__pack_zip64(&img->records[i], false, extra);
    return n;
}

static ckr_result ckr__pack_torch(ckr__packer *p)
{
    ckr__buf pickle;
    ckr_entry **entries = NULL;
    uint64_t n = 0, i;
    ckr_result r = ckr__pickle_write(p->c, p->f, &pickle, &entries, &n);
    if (r == CKR_OK) {
        p->img->root = ckr__pack_torch_root(p->c, p->f->path);
        p->img->records = CKR__NEW_N(p->c, ckr__image_record, n + 6);
        p->img->segs = CKR__NEW_N(p->c, ckr__seg, 3 * n + 2);
        if (!p->img->root || !p->img->records || !p->img->segs) r = p->c->err->code;
    }
    if (r == CKR_OK) {
        ckr__pack_record(p, "data.pkl", pickle.data, pickle.size);
        ckr__pack_record(p, ".format_version", "1", 1);
        ckr__pack_record(p, ".storage_alignment", "64", 2);
        ckr__pack_record(p, "byteorder", "little", 6);
    }
    ckr__buf_free(&pickle);
    for (i = 0; i < n && r == CKR_OK; i++) r = ckr__pack_entry(p, entries[i], i);
    if (r != CKR_OK) return r;
    ckr__pack_record(p, "version", "3\n", 2);
    r = ckr__pack_name_hash(p);                        /* of the records before the id itself */
    if (r != CKR_OK) return r;
    ckr__pack_header(p, CKR__SERIALIZATION_ID, 40);
    r = ckr__pack_flush(p);
    return r == CKR_OK ? ckr__pack_seg(p, ckr__pack_tail_size(p->img), NULL, NULL, true) : r;
}

static uint8_t *ckr__pack_zip_directory(const ckr__image *img, uint8_t *o)
{
    const size_t n_root = strlen(img->root);
    uint64_t i;
    for (i = 0; i < img->n_records; i++) {
        const ckr__image_record *r = &img->records[i];
        const size_t n_name = strlen(r->name);
        uint8_t extra[28];
        const uint32_t n_extra = ckr__pack_zip64(r, false, extra);
        const uint32_t size = r->size < CKR__PACK_MAX32 ? (uint32_t)r->size : CKR__PACK_MAX32;
        memset(o, 0, 46);
        ckr__store_u32(o, 0x02014b50u);
        ckr__store_u16(o + 8, ckr__pack_zip_flags(r));
        ckr__store_u32(o + 16, r->entry ? r->entry->crc : r->crc);
        ckr__store_u32(o + 20, size);
        ckr__store_u32(o + 24, size);
        ckr__store_u16(o + 28, (uint32_t)(n_root + 1 + n_name));
        ckr__store_u16(o + 30, n_extra);
        ckr__store_u32(o + 42, r->header < CKR__PACK_MAX32 ? (uint32_t)r->header : CKR__PACK_MAX32);
        if (r->size == 0) ckr__store_u32(o + 16, 0);
        memcpy(o + 46, img->root, n_root);
        o[46 + n_root] = '/';
        memcpy(o + 47 + n_root, r->name, n_name);
        o += 47 + n_root + n_name;
        memcpy(o, extra, n_extra);
        o += n_extra;
    }
    return o;
}

/* zip64 end record, its locator, end record; `at` is the directory's offset. */
static void ckr__pack_zip_end(uint8_t *o, uint64_t n, uint64_t at, uint64_t size)
{
    const uint32_t n16 = n < 0xffff ? (uint32_t)n : 0xffff;
    memset(o, 0, 56 + 20 + 22);
    ckr__store_u32(o, 0x06064b50u);
    ckr__store_u64(o + 4, 44);
    ckr__store_u16(o + 12, 0x031e);
    ckr__store_u16(o + 14, 0x002d);
    ckr__store_u64(o + 24, n);
    ckr__store_u64(o + 32, n);
    ckr__store_u64(o + 40, size);
    ckr__store_u64(o + 48, at);
    o += 56;
    ckr__store_u32(o, 0x07064b50u);
    ckr__store_u64(o + 8, at + size);
    ckr__store_u32(o + 16, 1);
    o += 20;
    ckr__store_u32(o, 0x06054b50u);
    ckr__store_u16(o + 8, n16);
    ckr__store_u16(o + 10, n16);
    ckr__store_u32(o + 12, size < CKR__PACK_MAX32 ? (uint32_t)size : CKR__PACK_MAX32);
    ckr__store_u32(o + 16, at < CKR__PACK_MAX32 ? (uint32_t)at : CKR__PACK_MAX32);
}

/* Two numbers of 20 digits: a hash of the names and one of the CRCs of all records that are not
   empty. */
static void ckr__pack_torch_id(const ckr__image *img, uint8_t out[40])
{
    uint64_t i, v[2];
    int d;
    v[0] = img->name_hash;
    v[1] = 0;
    for (i = 0; i + 1 < img->n_records; i++) {
        const ckr__image_record *r = &img->records[i];
        if (r->size) v[1] = ckr__pack_hash_combine(v[1], r->entry ? r->entry->crc : r->crc);
    }
    for (i = 0; i < 2; i++)
        for (d = 19; d >= 0; d--, v[i] /= 10)
            out[20 * i + (uint64_t)d] = (uint8_t)('0' + v[i] % 10);
}

static void ckr__pack_torch_tail(ckr__image *img, uint64_t offset, uint8_t *o)
{
    ckr__image_record *id = &img->records[img->n_records - 1];
    const uint32_t n = ckr__pack_zip_descriptor_size(id);
    uint8_t *dir = o + 40 + n, *end;
    ckr__pack_torch_id(img, o);
    id->crc = ckr__crc32(0, o, 40);
    ckr__pack_zip_descriptor(o + 40, n, id->crc, 40);
    end = ckr__pack_zip_directory(img, dir);
    ckr__pack_zip_end(end, img->n_records, offset + 40 + n, (uint64_t)(end - dir));
}

/* Safetensors ------------------------------------------------------------------ */

/* A JSON string as serde_json writes it: UTF-8 as it is, only what must be is escaped. */
static bool ckr__pack_json_str(ckr__buf *b, const char *s, uint64_t n)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const uint8_t *p = (const uint8_t *)s, *end = p + n;
    ckr__buf_u8(b, '"');
    while (p < end) {
        const char *e = *p ? strchr(from, *p) : NULL;
        const size_t len = ckr__utf8_len(p, end);
        if (len == 0) return false;
        if (e) {
            ckr__buf_u8(b, '\\');
            ckr__buf_u8(b, (unsigned char)to[e - from]);
        } else if (*p < 0x20) {
            ckr__buf_printf(b, "\\u%04x", (unsigned)*p);
        } else {
            ckr__buf_put(b, p, len);
        }
        p += len;
    }
    ckr__buf_u8(b, '"');
    return true;
}

typedef struct ckr__pack_st_item {
    const ckr_node *key;
    ckr_entry *entry;
    uint32_t order;
} ckr__pack_st_item;

/* What the file says of an entry that has no dtype there: bytes. */
static ckr_dtype ckr__pack_st_dtype(const ckr_entry *e)
{
    return e->as_bytes ? CKR_DTYPE_U8 : e->dtype;
}

/* The reference writer's order: its list of dtypes from the last to the first, then names. */
static uint32_t ckr__pack_st_order(ckr_dtype t)
{
    static const uint8_t order[] = {
        CKR_DTYPE_U64, CKR_DTYPE_I64, CKR_DTYPE_F64, CKR_DTYPE_C64, CKR_DTYPE_F32, CKR_DTYPE_U32,
        CKR_DTYPE_I32,
        CKR_DTYPE_BF16, CKR_DTYPE_F16, CKR_DTYPE_U16, CKR_DTYPE_I16, CKR_DTYPE_F8_E5M2FNUZ,
        CKR_DTYPE_F8_E4M3FNUZ, CKR_DTYPE_F8_E8M0, CKR_DTYPE_F8_E4M3FN, CKR_DTYPE_F8_E5M2,
        CKR_DTYPE_I8,
        CKR_DTYPE_U8, CKR_DTYPE_BOOL
    };
    uint32_t i = 0;
    while (i < sizeof order && order[i] != t) i++;
    return i;
}

static int ckr__pack_st_cmp(const void *a, const void *b)
{
    const ckr__pack_st_item *x = (const ckr__pack_st_item *)a, *y = (const ckr__pack_st_item *)b;
    const uint64_t n = x->key->count < y->key->count ? x->key->count : y->key->count;
    int d;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    d = n ? memcmp(x->key->u.str, y->key->u.str, (size_t)n) : 0;
    return d ? d : x->key->count < y->key->count ? -1 : x->key->count > y->key->count;
}

/* The tensors of the root, checked and sorted; their names are distinct. */
static ckr_result ckr__pack_st_items(ckr__packer *p, ckr__pack_st_item **out)
{
    const ckr_node *root = p->f->root;
    const uint64_t n = root->count;
    void **sorted = CKR__NEW_N(p->c, void *, n);
    ckr__pack_st_item *item = CKR__NEW_N(p->c, ckr__pack_st_item, n),
                      *result = CKR__NEW_N(p->c, ckr__pack_st_item, n);
    ckr_error *err = p->c->err;
    ckr__map names;
    bool had = false, ok = sorted && item && result;
    uint64_t i;
    memset(&names, 0, sizeof names);
    names.c = p->c;
    for (i = 0; i < n && ok && !had; i++) {
        const ckr_node *k = root->u.items[2 * i], *v = root->u.items[2 * i + 1];
        sorted[i] = &item[i];
        item[i].key = k;
        item[i].entry = v->u.entry;
        if (v->kind != CKR_NODE_ENTRY || k->kind != CKR_NODE_STR) {
            ckr__fail(err, CKR_ITEM_WRITE_NODE, p->f->path, CKR_NO_OFFSET, ckr_node_str(k),
                      "a safetensors file holds named tensors only");
            ok = false;
        } else if (!*ckr__dtypes[ckr__pack_st_dtype(v->u.entry)].tag) {
            ckr__remedy(err,
                        ckr__fail(err, CKR_ITEM_WRITE_DTYPE, p->f->path, CKR_NO_OFFSET, k->u.str,
                                  "%s has no safetensors dtype", ckr_dtype_name(v->u.entry->dtype)),
                        "cast the tensor, leave it out, or write a torch file");
            ok = false;
        } else {
            item[i].order = ckr__pack_st_order(ckr__pack_st_dtype(v->u.entry));
            ok = ckr__map_put(&names, k->u.str, (size_t)k->count, i, &had);
            if (ok && (had || !strcmp(k->u.str, "__metadata__")))
                ckr__fail(err, had ? CKR_ITEM_WRITE_DUPLICATE : CKR_ITEM_WRITE_NAME, p->f->path,
                          CKR_NO_OFFSET, k->u.str,
                          had ? "two tensors have this name" : "the name of the metadata");
        }
    }
    ckr__map_free(&names);
    if (err->code != CKR_OK || !ckr__sort(p->c, sorted, (size_t)n, ckr__pack_st_cmp))
        return err->code;
    for (i = 0; i < n; i++) result[i] = *(ckr__pack_st_item *)sorted[i];
    *out = result;
    return CKR_OK;
}

static bool ckr__pack_st_metadata(ckr__packer *p)
{
    const ckr_node *m = p->f->metadata;
    uint64_t i;
    bool ok = true;
    if (!m) return true;
    ckr__buf_str(&p->lit, "\"__metadata__\":{");
    for (i = 0; i < m->count && ok; i++) {
        const ckr_node *k = m->u.items[2 * i], *v = m->u.items[2 * i + 1];
        if (i) ckr__buf_u8(&p->lit, ',');
        ok = k->kind == CKR_NODE_STR && v->kind == CKR_NODE_STR &&
             ckr__pack_json_str(&p->lit, k->u.str, k->count);
        ckr__buf_u8(&p->lit, ':');
        ok = ok && ckr__pack_json_str(&p->lit, v->u.str, v->count);
    }
    ckr__buf_u8(&p->lit, '}');
    return ok;
}

/* u64 length, JSON padded with blanks to a multiple of 8, the tensors without holes. */
static ckr_result ckr__pack_safetensors(ckr__packer *p)
{
    ckr__pack_st_item *item = NULL;
    uint64_t n = p->f->root ? p->f->root->count : 0, i, at = 0, base;
    uint32_t d;
    ckr_result r;
    if (!ckr_node_is_dict(p->f->root) || p->f->n_entries != n)
        return ckr__fail(p->c->err, CKR_ITEM_WRITE_ENTRY, p->f->path, CKR_NO_OFFSET, NULL,
                         "%llu entries are listed, the root is no dict of as many",
                         (unsigned long long)p->f->n_entries);
    r = ckr__pack_st_items(p, &item);
    if (r != CKR_OK) return r;
    ckr__buf_put(&p->lit, "\0\0\0\0\0\0\0\0{", 9);
    if (!ckr__pack_st_metadata(p))
        return ckr__fail(p->c->err, CKR_ITEM_WRITE_NAME, p->f->path, CKR_NO_OFFSET, "__metadata__",
                         "metadata holds text in UTF-8 only");
    for (i = 0; i < n; i++) {
        const ckr_entry *e = item[i].entry;
        if (i || p->f->metadata) ckr__buf_u8(&p->lit, ',');
        if (!ckr__pack_json_str(&p->lit, item[i].key->u.str, item[i].key->count))
            return ckr__fail(p->c->err, CKR_ITEM_WRITE_NAME, p->f->path, CKR_NO_OFFSET,
                             item[i].key->u.str, "a tensor's name that is not UTF-8");
        ckr__buf_printf(&p->lit, ":{\"dtype\":\"%s\",\"shape\":[",
                        ckr__dtypes[ckr__pack_st_dtype(e)].tag);
        for (d = 0; d < e->n_dims; d++)
            ckr__buf_printf(&p->lit, d ? ",%lld" : "%lld", (long long)e->shape[d]);
        ckr__buf_printf(&p->lit, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                        (unsigned long long)(at + e->n_bytes));
        if (!ckr__range_ok(at, e->n_bytes, INT64_MAX))
            return ckr__fail(p->c->err, CKR_ITEM_SIZE_OVERFLOW, p->f->path, CKR_NO_OFFSET, e->name,
                             NULL);
        at += e->n_bytes;
    }
    ckr__buf_u8(&p->lit, '}');
    while (p->lit.size % 8 != 0 && !p->lit.failed) ckr__buf_u8(&p->lit, ' ');
    base = p->lit.size;
    if (base > 100000000 + 8)                          /* what the reference reader accepts */
        return ckr__fail(p->c->err, CKR_ITEM_WRITE_SIZE, p->f->path, CKR_NO_OFFSET, NULL,
                         "a header of %llu bytes; readers accept 100,000,000",
                         (unsigned long long)base - 8);
    if (!p->lit.failed) ckr__store_u64(p->lit.data, base - 8);
    p->img->segs = CKR__NEW_N(p->c, ckr__seg, n + 1);
    r = p->img->segs ? ckr__pack_flush(p) : p->c->err->code;
    for (i = 0; i < n && r == CKR_OK; i++) {
        item[i].entry->offset = p->img->size;
        r = ckr__pack_seg(p, item[i].entry->n_bytes, NULL, item[i].entry, false);
    }
    return r;
}

/* Any file --------------------------------------------------------------------- */

static ckr_result ckr__pack_text(ckr__packer *p)
{
    p->img->segs = CKR__NEW_N(p->c, ckr__seg, 1);
    if (!p->img->segs) return p->c->err->code;
    return ckr__pack_seg(p, p->f->n_text, (const uint8_t *)p->f->text, NULL, false);
}

/* Lays the file out: *out (also f->image) in c's arena, and the offset of every entry of f. */
static ckr_result ckr__image_make(ckr__ctx *c, ckr__out_file *f, ckr__image **out)
{
    ckr__packer p;
    ckr_result r;
    uint64_t i, at = 0;
    memset(&p, 0, sizeof p);
    *out = NULL;
    p.c = p.lit.c = c;
    p.f = f;
    if (!f->path || (f->format != CKR_FORMAT_TEXT && !f->root))
        return ckr__fail(c->err, CKR_ITEM_ARG, f->path, CKR_NO_OFFSET, NULL,
                         "a file without path or tree");
    p.img = CKR__NEW(c, ckr__image);
    if (!p.img) return c->err->code;
    switch ((int)f->format) {
    case CKR_FORMAT_TORCH_ZIP:   r = ckr__pack_torch(&p); break;
    case CKR_FORMAT_SAFETENSORS: r = ckr__pack_safetensors(&p); break;
    case CKR_FORMAT_TEXT:        r = ckr__pack_text(&p); break;
    default:
        r = ckr__fail(c->err, CKR_ITEM_ARG, f->path, CKR_NO_OFFSET, NULL,
                      "no format that can be written");
        break;
    }
    ckr__buf_free(&p.lit);
    if (r != CKR_OK) return r;
    p.img->late = (uint8_t *)ckr__arena_n(c, p.late, 1);
    if (!p.img->late) return c->err->code;
    for (i = 0; i < p.img->n_segs; i++)
        if (p.img->segs[i].late) {
            p.img->segs[i].bytes = p.img->late + at;
            at += p.img->segs[i].size;
        }
    f->image = *out = p.img;
    return CKR_OK;
}

/* The content (seg->size bytes, 16 or 24) of a late segment that has an entry, once its crc is
   known. */
static void ckr__image_descriptor(const ckr__seg *seg, uint8_t *out)
{
    ckr__pack_zip_descriptor(out, (uint32_t)seg->size, seg->entry->crc, seg->entry->n_bytes);
}

/* Every entry's crc is known: fills all late segments. */
static void ckr__image_finish(ckr__image *img)
{
    uint8_t *o = img->late;
    uint64_t i;
    for (i = 0; i < img->n_segs; i++) {
        const ckr__seg *s = &img->segs[i];
        if (!s->late) continue;
        if (s->entry) ckr__image_descriptor(s, o);
        else ckr__pack_torch_tail(img, s->offset, o);
        o += s->size;
    }
}

/* >>run ----------------------------------------------------------------------- */
/* The engine. An *op* walks one box of one logical tensor: element by element it knows where the
   source has it (a), where a second source has it (b), where the destination wants it (d), and its
   place in the logical tensor (l, for the digest). Neighbouring axes that are contiguous on every
   side are merged, so the inner loop is a memcpy of the longest run there is. Everything - merge,
   split, export, digest, comparison - is a list of ops cut into windows of the destination. */

#define CKR__RUN_PART                                                                              \
    ((uint64_t)1 << 15)                 /* bytes per inner step: digest and cast find it in cache */
#define CKR__BLOCK ((size_t)1 << 17)    /* staged at a time                                      */
#define CKR__SUMMED ((uint64_t)1 << 19) /* read at a time: is still in cache when it is summed   */
#define CKR__DIRECT ((uint64_t)1 << 16) /* bytes from which a run is read to where it goes       */
#define CKR__WINDOW ((uint64_t)4 << 20) /* bytes of destination per task                         */

typedef struct ckr__op {
    const ckr_tensor *tensor;
    const ckr_piece  *pa, *pb;
    ckr_dtype         dtype;   /* of the destination                                    */
    uint32_t          n_dims;  /* outside the run                                       */
    int64_t           run;     /* elements that are contiguous on all sides             */
    const int64_t    *count, *a, *b, *d, *l;   /* per axis; strides in bytes              */
    const uint64_t
        *span; /* destination bytes from the first to past the last, axes >= i; n_dims + 1 */
    uint64_t          at_a, at_b, at_d, at_l;
    bool              no_sum;  /* another op adds these elements to the digest           */
} ckr__op;

static int64_t ckr__row_major(uint32_t n_dims, const int64_t *shape, uint32_t axis)
{
    int64_t s = 1;
    while (n_dims-- > axis + 1) s *= shape[n_dims];
    return s;
}

/* Byte offset of the global position `at` in a piece. */
static uint64_t ckr__piece_at(const ckr_piece *p, const int64_t *at)
{
    uint64_t o = p->offset;
    uint32_t k;
    for (k = 0; k < p->n_dims; k++) o += (uint64_t)((at[k] - p->start[k]) * p->stride[k]);
    return o;
}

/* The axes of an op while it is built, outermost first. */
typedef struct ckr__axes { uint32_t n; int64_t count[CKR_MAX_DIMS], s[4][CKR_MAX_DIMS]; } ckr__axes;

/* Orders by destination stride (so that it only grows along the walk), drops axes of one, and
   merges an axis into its outer neighbour where all four sides continue. */
static void ckr__axes_merge(ckr__axes *x)
{
    uint32_t i, j, k, n = 0;
    for (i = 1; i < x->n; i++)
        for (j = i; j > 0 && x->s[2][j - 1] < x->s[2][j]; j--) {
            int64_t t = x->count[j];
            x->count[j] = x->count[j - 1];
            x->count[j - 1] = t;
            for (k = 0; k < 4; k++) {
                t = x->s[k][j];
                x->s[k][j] = x->s[k][j - 1];
                x->s[k][j - 1] = t;
            }
        }
    for (i = 0; i < x->n; i++) {
        const int64_t size = x->count[i];
        bool merge = n > 0;
        if (size == 1) continue;
        for (k = 0; k < 4 && merge; k++) merge = x->s[k][n - 1] == x->s[k][i] * size;
        if (!merge) x->count[n++] = 1;
        x->count[n - 1] *= size;
        for (k = 0; k < 4; k++) x->s[k][n - 1] = x->s[k][i];
    }
    x->n = n;
}

/* The op over box [start, start + count) of the tensor. pb and pd may be NULL. */
static bool ckr__op_make(ckr__ctx *c, ckr__op *op, const ckr_tensor *t, const int64_t *start,
                         const int64_t *count, const ckr_piece *pa, const ckr_piece *pb,
                         const ckr_piece *pd)
{
    ckr__axes x;
    int64_t *v, ea = (int64_t)ckr_dtype_size(pa->dtype);
    int64_t eb = pb ? (int64_t)ckr_dtype_size(pb->dtype) : ea,
            ed = pd ? (int64_t)ckr_dtype_size(pd->dtype) : ea;
    uint64_t *span;
    uint32_t i;

    memset(op, 0, sizeof *op);
    op->tensor = t;
    op->pa = pa;
    op->pb = pb;
    op->dtype = pd ? pd->dtype : pa->dtype;
    for (i = 0; i < t->n_dims; i++) {
        int64_t l = ckr__row_major(t->n_dims, t->shape, i) * ea;
        x.count[i] = count[i];
        x.s[0][i] = pa->stride[i];
        x.s[1][i] = pb ? pb->stride[i] : l / ea * eb;
        x.s[2][i] = pd ? pd->stride[i] : l;
        x.s[3][i] = l;
        op->at_l += (uint64_t)(start[i] * l);
    }
    x.n = t->n_dims;
    op->at_a = ckr__piece_at(pa, start);
    op->at_b = pb ? ckr__piece_at(pb, start) : 0;
    op->at_d = pd ? ckr__piece_at(pd, start) : op->at_l;
    ckr__axes_merge(&x);
    op->run = 1;
    if (x.n && x.s[0][x.n - 1] == ea && x.s[1][x.n - 1] == eb && x.s[2][x.n - 1] == ed &&
        x.s[3][x.n - 1] == ea)
        op->run = x.count[--x.n];
    op->n_dims = x.n;
    v = CKR__NEW_N(c, int64_t, 5 * (uint64_t)x.n);
    span = CKR__NEW_N(c, uint64_t, (uint64_t)x.n + 1);
    if (!v || !span) return false;
    op->count = v;
    op->a = v + x.n;
    op->b = v + 2 * (size_t)x.n;
    op->d = v + 3 * (size_t)x.n;
    op->l = v + 4 * (size_t)x.n;
    op->span = span;
    span[x.n] = (uint64_t)(op->run * ed);
    for (i = x.n; i-- > 0;) {
        v[i] = x.count[i];
        v[x.n + i] = x.s[0][i];
        v[2 * x.n + i] = x.s[1][i];
        v[3 * x.n + i] = x.s[2][i];
        v[4 * x.n + i] = x.s[3][i];
        span[i] = span[i + 1] + (uint64_t)((x.count[i] - 1) * x.s[2][i]);
    }
    return true;
}

/* Intersection of two boxes; false when empty. */
static bool ckr__box_meet(uint32_t n, const int64_t *s1, const int64_t *c1, const int64_t *s2,
                          const int64_t *c2, int64_t *start, int64_t *count)
{
    uint32_t i;
    for (i = 0; i < n; i++) {
        int64_t lo = ckr__max_i64(s1[i], s2[i]), hi = ckr__min_i64(s1[i] + c1[i], s2[i] + c2[i]);
        if (hi <= lo) return false;
        start[i] = lo;
        count[i] = hi - lo;
    }
    return true;
}

/* What a worker owns: scratch, digest sums of every tensor, its error. */
typedef struct ckr__lane {
    const ckr__ctx *src, *other;   /* of pa and pb                                      */
    ckr_error  err;
    uint8_t   *block[2];       /* read-ahead, per side                                  */
    uint32_t   block_file[2];
    uint64_t   block_at[2], block_n[2];
    uint8_t   *temp;           /* CKR__RUN_PART bytes twice, for casts and comparison     */
    uint64_t (*sums)[2];       /* [tensor index][2], or NULL: no digest                 */
    const ckr__digest_tables *tables;
    uint64_t   bytes_read;
    const uint8_t *window;     /* of pieces that have neither file nor memory: bytes    */
    uint64_t   window_at;      /* of the destination from window_at on                  */
    /* of comparisons */
    uint64_t   n_differ;
    double     max_abs;
    uint64_t   max_ulp;
} ckr__lane;

/* n bytes of an open file into memory, every bound checked. */
static bool ckr__lane_read(ckr__lane *w, int side, const ckr_piece *p, uint64_t at, uint8_t *dst,
                           uint64_t n)
{
    const ckr__ctx *c = side ? w->other : w->src;
    const ckr__file *f = &c->files[p->file];
    int32_t sys;
    if (!ckr__range_ok(at, n, f->size))
        return ckr__fail(&w->err, CKR_ITEM_IO_READ, f->path, at, NULL,
                         "the file ends before this piece") == CKR_OK;
    sys = c->env.io.read_fn(c->env.io.user, f->handle, at, dst, (size_t)n);
    return !sys || ckr__fail_io(&w->err, CKR_ITEM_IO_READ, f->path, sys) == CKR_OK;
}

/* n bytes (at most CKR__BLOCK) of a piece's source; NULL after an error. Files are read, never
   mapped: a page fault costs more than the copy that it saves, and pages of a mapping count as the
   process's memory. */
static const uint8_t *ckr__fetch(ckr__lane *w, int side, const ckr_piece *p, uint64_t at,
                                 uint64_t n)
{
    const ckr__ctx *c = side ? w->other : w->src;
    uint64_t size, from;
    if (p->file == CKR_NO_FILE)
        return p->mem ? (const uint8_t *)p->mem + at : w->window + (at - w->window_at);
    from = w->block_at[side];
    if (w->block_file[side] == p->file && at >= from &&
        ckr__range_ok(at - from, n, w->block_n[side]))
        return w->block[side] + (at - from);
    size = c->files[p->file].size;
    if (at < size && n < size - at) n = size - at < CKR__BLOCK ? size - at : CKR__BLOCK;
    w->block_file[side] = CKR_NO_FILE;
    if (!ckr__lane_read(w, side, p, at, w->block[side], n)) return NULL;
    w->block_file[side] = p->file;
    w->block_at[side] = at;
    w->block_n[side] = n;
    return w->block[side];
}

/* The same in this machine's byte order: a foreign one goes through `temp`. */
static const uint8_t *ckr__fetch_native(ckr__lane *w, int side, const ckr_piece *p, uint64_t at,
                                        uint64_t n)
{
    const uint8_t *s = ckr__fetch(w, side, p, at, n);
    uint8_t *t = w->temp + (side ? CKR__RUN_PART : 0);
    if (!s || p->big_endian == ckr__host_big_endian() || ckr__dtypes[p->dtype].swap < 2) return s;
    memcpy(t, s, (size_t)n);
    ckr__swap_bytes(t, (size_t)n, ckr__dtypes[p->dtype].swap);
    return t;
}

static void ckr__lane_digest(ckr__lane *w, const ckr_tensor *t, ckr_dtype dtype, uint64_t at,
                             const uint8_t *p, uint64_t n)
{
    if (!w->sums || !t->slot[0]) return;
    if (!ckr__host_big_endian() || ckr__dtypes[dtype].swap < 2) {
        ckr__digest_add(w->tables, w->sums[t->index], at, p, (size_t)n);
    } else {                   /* the digest is of little-endian bytes                   */
        uint8_t word[16];
        size_t e = ckr_dtype_size(dtype);
        for (; n >= e; n -= e, p += e, at += e) {
            memcpy(word, p, e);
            ckr__swap_bytes(word, e, ckr__dtypes[dtype].swap);
            ckr__digest_add(w->tables, w->sums[t->index], at, word, e);
        }
    }
}

/* A run that is long, and stored as it is wanted: read to where it goes, without a stop in a block.
   */
static bool ckr__run_direct(const ckr__op *op, const uint8_t *dst, uint64_t bytes)
{
    const ckr_piece *p = op->pa;
    return dst && p->file != CKR_NO_FILE && bytes >= CKR__DIRECT && op->dtype == p->dtype &&
           !p->big_endian && !ckr__host_big_endian();
}

/* Without a digest in one call; with one in parts that are still in cache when they are summed. */
static bool ckr__run_read(ckr__lane *w, const ckr__op *op, uint64_t a, uint64_t l, uint8_t *dst,
                          uint64_t n)
{
    const bool sum = w->sums && !op->no_sum;
    w->bytes_read += n;
    while (n > 0) {
        uint64_t part = sum && n > CKR__SUMMED ? CKR__SUMMED : n;
        if (!ckr__lane_read(w, 0, op->pa, a, dst, part)) return false;
        if (sum) ckr__lane_digest(w, op->tensor, op->pa->dtype, l, dst, part);
        dst += part;
        a += part;
        l += part;
        n -= part;
    }
    return true;
}

/* A run of n elements: copy (dst not NULL), cast and digest in one pass. Files are little-endian,
   so the destination is too. */
static bool ckr__run_copy(ckr__lane *w, const ckr__op *op, uint64_t a, uint64_t l, uint8_t *dst,
                          int64_t n)
{
    const uint64_t ea = ckr_dtype_size(op->pa->dtype), ed = ckr_dtype_size(op->dtype);
    const int64_t step = (int64_t)(CKR__RUN_PART / (ea > ed ? ea : ed));
    if (ckr__run_direct(op, dst, (uint64_t)n * ea))
        return ckr__run_read(w, op, a, l, dst, (uint64_t)n * ea);
    while (n > 0) {
        int64_t part = ckr__min_i64(n, step);
        const uint8_t *s = ckr__fetch_native(w, 0, op->pa, a, (uint64_t)part * ea);
        if (!s) return false;
        if (dst) {
            if (op->dtype == op->pa->dtype) memcpy(dst, s, (size_t)part * (size_t)ea);
            else ckr__convert(op->dtype, dst, op->pa->dtype, s, (uint64_t)part);
            if (ckr__host_big_endian())
                ckr__swap_bytes(dst, (size_t)part * (size_t)ed, ckr__dtypes[op->dtype].swap);
            dst += (uint64_t)part * ed;
        }
        if (!op->no_sum) ckr__lane_digest(w, op->tensor, op->pa->dtype, l, s, (uint64_t)part * ea);
        w->bytes_read += (uint64_t)part * ea;
        a += (uint64_t)part * ea;
        l += (uint64_t)part * ea;
        n -= part;
    }
    return true;
}

/* Distance of two equally typed floats in units in the last place, saturating. */
static uint64_t ckr__ulp_distance(ckr_dtype t, const uint8_t *x, const uint8_t *y)
{
    const size_t n = ckr_dtype_size(t);
    uint64_t u = 0, v = 0, top = (uint64_t)1 << (8 * n - 1);
    uint16_t h[2];
    uint32_t f[2];
    if (n == 2) {
        memcpy(&h[0], x, 2); memcpy(&h[1], y, 2);
        u = h[0]; v = h[1];
    } else if (n == 4) {
        memcpy(&f[0], x, 4); memcpy(&f[1], y, 4);
        u = f[0]; v = f[1];
    } else {
        memcpy(&u, x, 8); memcpy(&v, y, 8);
    }
    u = u & top ? top - (u - top) : u + top;
    v = v & top ? top - (v - top) : v + top;
    return u > v ? u - v : v - u;
}

static void ckr__compare_elements(ckr__lane *w, ckr_dtype t, const uint8_t *x, const uint8_t *y,
                                  uint64_t n)
{
    const size_t e = ckr_dtype_size(t);
    uint64_t i, ulp;
    for (i = 0; i < n; i++, x += e, y += e) {
        if (!memcmp(x, y, e)) continue;
        w->n_differ++;
        if (ckr__is_float(t)) {
            double d = fabs(ckr__load_f64(t, x) - ckr__load_f64(t, y));
            ulp = ckr__ulp_distance(t, x, y);
            if (d > w->max_abs || !(d <= DBL_MAX)) w->max_abs = d;
            if (ulp > w->max_ulp) w->max_ulp = ulp;
        } else {
            double d = fabs(ckr__load_f64(t, x) - ckr__load_f64(t, y));
            if (d > w->max_abs) w->max_abs = d;
        }
    }
}

/* A run of n elements of a, cast to b's dtype where they differ, against b. */
static bool ckr__run_compare(ckr__lane *w, const ckr__op *op, uint64_t a, uint64_t b, int64_t n)
{
    const ckr_dtype ta = op->pa->dtype, tb = op->pb->dtype;
    const uint64_t ea = ckr_dtype_size(ta), eb = ckr_dtype_size(tb);
    while (n > 0) {
        int64_t part = ckr__min_i64(n, (int64_t)(CKR__RUN_PART / 2 / (ea > eb ? ea : eb)));
        const uint8_t *x = ckr__fetch_native(w, 0, op->pa, a, (uint64_t)part * ea);
        const uint8_t *y = ckr__fetch_native(w, 1, op->pb, b, (uint64_t)part * eb);
        if (!x || !y) return false;
        if (ta != tb) {
            uint8_t *cast = w->temp + CKR__RUN_PART / 2;
            ckr__convert(tb, cast, ta, x, (uint64_t)part);
            x = cast;
        }
        if (memcmp(x, y, (size_t)part * (size_t)eb) != 0)
            ckr__compare_elements(w, tb, x, y, (uint64_t)part);
        w->bytes_read += (uint64_t)part * (ea + eb);
        a += (uint64_t)part * ea;
        b += (uint64_t)part * eb;
        n -= part;
    }
    return true;
}

/* Walks the part of an op whose destination lies in [w0, w1); `dst` stands for w0 (NULL: nothing is
   copied). One call per axis: the depth is n_dims of the op, at most CKR_MAX_DIMS.               */
static bool ckr__op_walk(ckr__lane *w, const ckr__op *op, uint32_t axis, const uint64_t at[4],
                         uint64_t w0, uint64_t w1, uint8_t *dst)
{
    uint64_t next[4], end = at[2] + op->span[axis];
    int64_t i, first = 0, last;
    if (end <= w0 || at[2] >= w1) return true;
    if (axis == op->n_dims) {
        const uint64_t ed = ckr_dtype_size(op->dtype), ea = ckr_dtype_size(op->pa->dtype);
        uint64_t skip = at[2] < w0 ? (w0 - at[2]) / ed : 0;
        uint64_t n = ((end < w1 ? end : w1) - at[2]) / ed - skip;
        if (op->pb)
            return ckr__run_compare(w, op, at[0] + skip * ea,
                                    at[1] + skip * ckr_dtype_size(op->pb->dtype), (int64_t)n);
        return ckr__run_copy(w, op, at[0] + skip * ea, at[3] + skip * ea,
                             dst ? dst + (at[2] + skip * ed - w0) : NULL, (int64_t)n);
    }
    last = op->count[axis];
    if (op->d[axis] > 0) {
        uint64_t d = (uint64_t)op->d[axis], inner = op->span[axis + 1];
        if (at[2] + inner <= w0) first = (int64_t)((w0 - at[2] - inner) / d) + 1;
        if ((w1 - at[2] + d - 1) / d < (uint64_t)last) last = (int64_t)((w1 - at[2] + d - 1) / d);
    }
    for (i = first; i < last; i++) {
        next[0] = at[0] + (uint64_t)(i * op->a[axis]);
        next[1] = at[1] + (uint64_t)(i * op->b[axis]);
        next[2] = at[2] + (uint64_t)(i * op->d[axis]);
        next[3] = at[3] + (uint64_t)(i * op->l[axis]);
        if (!ckr__op_walk(w, op, axis + 1, next, w0, w1, dst)) return false;
    }
    return true;
}

static bool ckr__op_run(ckr__lane *w, const ckr__op *op, uint64_t w0, uint64_t w1, uint8_t *dst)
{
    uint64_t at[4];
    at[0] = op->at_a;
    at[1] = op->at_b;
    at[2] = op->at_d;
    at[3] = op->at_l;
    return ckr__op_walk(w, op, 0, at, w0, w1, dst);
}

/* >>lanes --------------------------------------------------------------------- */
/* Workers: lane i of n takes jobs i, i + n, ...; which lane did what never shows in the result. */

typedef struct ckr__crew {
    ckr__ctx  *c;              /* allocates and takes the error                         */
    ckr__lane *lanes;
    uint32_t   n;
    uint64_t   n_tensors;      /* of the digest sums                                    */
    ckr__digest_tables *tables;
} ckr__crew;

static void ckr__crew_free(ckr__crew *w)
{
    uint32_t i;
    for (i = 0; w->lanes && i < w->n; i++) {
        ckr__lane *l = &w->lanes[i];
        ckr__heap_free(w->c, l->block[0], CKR__BLOCK);
        ckr__heap_free(w->c, l->block[1], CKR__BLOCK);
        ckr__heap_free(w->c, l->temp, 2 * (size_t)CKR__RUN_PART);
        ckr__heap_free(w->c, l->sums, (size_t)w->n_tensors * sizeof *l->sums);
    }
    ckr__heap_free(w->c, w->lanes, w->n * sizeof *w->lanes);
    ckr__heap_free(w->c, w->tables, sizeof *w->tables);
    memset(w, 0, sizeof *w);
}

/* n_tensors > 0: with digest sums. `other` may be NULL. */
static ckr_result ckr__crew_make(ckr__crew *w, ckr__ctx *c, const ckr__ctx *src,
                                 const ckr__ctx *other, uint64_t n_tensors)
{
    uint32_t i;
    memset(w, 0, sizeof *w);
    w->c = c;
    w->n = c->env.parallel.n_threads;
    w->n_tensors = n_tensors;
    w->lanes = (ckr__lane *)ckr__heap_alloc(c, w->n * sizeof *w->lanes);
    if (!w->lanes) return CKR_E_NOMEM;
    memset(w->lanes, 0, w->n * sizeof *w->lanes);
    if (n_tensors) {
        w->tables = (ckr__digest_tables *)ckr__heap_alloc(c, sizeof *w->tables);
        if (!w->tables) goto nomem;
        ckr__digest_tables_init(w->tables);
    }
    for (i = 0; i < w->n; i++) {
        ckr__lane *l = &w->lanes[i];
        l->src = src;
        l->other = other;
        l->err.offset = CKR_NO_OFFSET;
        l->tables = w->tables;
        l->block_file[0] = l->block_file[1] = CKR_NO_FILE;
        l->temp = (uint8_t *)ckr__heap_alloc(c, 2 * (size_t)CKR__RUN_PART);
        l->block[0] = (uint8_t *)ckr__heap_alloc(c, CKR__BLOCK);
        l->block[1] = other ? (uint8_t *)ckr__heap_alloc(c, CKR__BLOCK) : NULL;
        if (!l->temp || !l->block[0] || (other && !l->block[1])) goto nomem;
        if (!n_tensors) continue;
        l->sums = (uint64_t (*)[2])ckr__heap_alloc(c, (size_t)n_tensors * sizeof *l->sums);
        if (!l->sums) goto nomem;
        memset(l->sums, 0, (size_t)n_tensors * sizeof *l->sums);
    }
    return CKR_OK;
nomem:
    ckr__crew_free(w);
    return CKR_E_NOMEM;
}

/* The error of the lowest lane, moved to the context. */
static ckr_result ckr__crew_error(ckr__crew *w)
{
    uint32_t i;
    for (i = 0; i < w->n; i++)
        if (w->lanes[i].err.code != CKR_OK) {
            if (w->c->err->code == CKR_OK) *w->c->err = w->lanes[i].err;
            return w->lanes[i].err.code;
        }
    return CKR_OK;
}

/* A part of an op: the piece of its destination in [begin, end) goes to `dst` (NULL: digest or
   compare). */
typedef struct ckr__job { const ckr__op *op; uint64_t begin, end; uint8_t *dst; } ckr__job;
typedef struct ckr__jobs { ckr__crew *crew; ckr__job *list; uint64_t n, cap; } ckr__jobs;

/* Cuts an op into jobs of about one window. `dst` stands for destination offset 0. */
static bool ckr__jobs_add(ckr__ctx *c, ckr__jobs *j, const ckr__op *op, uint8_t *dst)
{
    uint64_t at, end = op->at_d + op->span[0];
    for (at = op->at_d; at < end; at += CKR__WINDOW) {
        void *array = j->list;
        ckr__job *x;
        if (!ckr__arena_grow(c, &array, &j->cap, j->n + 1, sizeof *j->list)) return false;
        j->list = (ckr__job *)array;
        x = &j->list[j->n++];
        x->op = op;
        x->begin = at;
        x->end = end - at > CKR__WINDOW ? at + CKR__WINDOW : end;
        x->dst = dst ? dst + at : NULL;
    }
    return true;
}

static void ckr__jobs_lane(void *arg, uint32_t lane)
{
    ckr__jobs *j = (ckr__jobs *)arg;
    ckr__lane *w = &j->crew->lanes[lane];
    uint64_t i;
    for (i = lane; i < j->n && w->err.code == CKR_OK; i += j->crew->n)
        ckr__op_run(w, j->list[i].op, j->list[i].begin, j->list[i].end, j->list[i].dst);
}

static ckr_result ckr__jobs_run(ckr__jobs *j, ckr__crew *crew)
{
    ckr__ctx *c = crew->c;
    const uint32_t n = j->n < crew->n ? (uint32_t)j->n : crew->n;      /* no thread without a job */
    j->crew = crew;
    if (n) c->env.parallel.for_fn(c->env.parallel.user, n, n, ckr__jobs_lane, j);
    return ckr__crew_error(crew);
}

/* >>resume -------------------------------------------------------------------- */
/* What the coming run's groups and schedule will be, decided before anything is written: settings
   and a new schedule on top of the checkpoint's, joined by a policy; then the LR last used against
   the first one after the resume. A pure function of state and target. */

typedef struct ckr__decide {
    ckr__ctx         *c;
    const ckr_state  *src;
    const ckr_target *t;
    ckr_state        *out;     /* the state as the coming run has it                   */
    ckr_schedule     *before, *wanted, *after;         /* NULL: not known              */
    int64_t           done;    /* optimizer updates                                    */
    bool              asked_lr, asked_schedule;
    ckr_note        **notes;
    uint64_t         *n_notes;
} ckr__decide;

static ckr_result ckr__decide_say(ckr__decide *d, const char *code, ckr_severity severity,
                                  const char *subject, const char *old_value,
                                  const char *new_value, const char *reason, const char *remedy)
{
    return ckr__note(d->c, d->notes, d->n_notes, code, severity, subject, old_value, new_value,
                     reason, remedy)
               ? CKR_OK
               : d->c->err->code;
}

static ckr_result ckr__decide_numbers(ckr__decide *d, const char *code, ckr_severity severity,
                                      const char *subject, double was, double now,
                                      const char *reason, const char *remedy)
{
    char a[40], b[40];
    snprintf(a, sizeof a, "%.17g", was);
    snprintf(b, sizeof b, "%.17g", now);
    return ckr__decide_say(d, code, severity, subject, a, b, reason, remedy);
}

static bool ckr__is_schedule_key(const char *key)
{
    static const char *const keys[] = { "lr", "min_lr", "warmup_steps", "decay_steps",
                                        "total_steps", "decay_style" };
    size_t i;
    for (i = 0; i < sizeof keys / sizeof *keys; i++) if (!strcmp(keys[i], key)) return true;
    return false;
}

/* A group by index, by name, or by the name of its only parameter. */
static bool ckr__setting_is_for(const ckr_setting *x, const ckr_state *s, uint64_t group)
{
    const ckr_group *g = &s->groups[group];
    char index[24];
    if (!x->group) return true;
    snprintf(index, sizeof index, "%llu", (unsigned long long)group);
    return !strcmp(x->group, index) || (g->name && !strcmp(x->group, g->name)) ||
           (g->n_params == 1 && g->params && !strcmp(x->group, g->params[0]));
}

static ckr_result ckr__setting_bad(ckr__decide *d, const ckr_setting *x, const char *text)
{
    ckr_result r = ckr__fail(d->c->err, CKR_ITEM_SETTING, NULL, CKR_NO_OFFSET, x->key, "%s", text);
    return ckr__remedy(d->c->err, r, "keys: lr min_lr weight_decay warmup_steps decay_steps "
                                     "total_steps decay_style batch_size; GROUP.KEY for one group");
}

static bool ckr__setting_number(const ckr_setting *x, double *out)
{
    char *end = NULL;
    const double v = strtod(x->value, &end);
    if (!x->value[0] || !end || *end || !(v >= 0 && v <= 1e300)) return false;
    *out = v;
    return true;
}

/* Groups of the output are copies, so that the checkpoint's stay what they are. */
static ckr_result ckr__decide_copy_groups(ckr__decide *d)
{
    uint64_t i, k;
    ckr_group *g = CKR__NEW_N(d->c, ckr_group, d->out->n_groups);
    if (!g) return d->c->err->code;
    for (i = 0; i < d->out->n_groups; i++) {
        const ckr_node *old = d->out->groups[i].hyper;
        g[i] = d->out->groups[i];
        g[i].hyper = ckr__node(d->c, CKR_NODE_DICT);
        for (k = 0; g[i].hyper && old && k < old->count; k++)
            if (!ckr__node_pair(d->c, g[i].hyper, old->u.items[2 * k], old->u.items[2 * k + 1]))
                return d->c->err->code;
        if (!g[i].hyper) return d->c->err->code;
    }
    d->out->groups = g;
    return CKR_OK;
}

/* A hyper-parameter of the groups that a setting names. Groups without weight decay are so on
   purpose: a setting for all groups passes them over, unless no group has any. */
static ckr_result ckr__decide_hyper(ckr__decide *d, const ckr_setting *x, double v)
{
    uint64_t i, n = 0, zero = 0, any = 0;
    double was = 0, first = 0;
    const bool decay = !strcmp(x->key, "weight_decay") && !x->group;
    char subject[96];
    ckr_result r = CKR_OK;
    for (i = 0; decay && i < d->out->n_groups; i++)
        any += ckr_node_f64(ckr_node_get(d->out->groups[i].hyper, x->key), &was) && was != 0;
    for (i = 0; i < d->out->n_groups; i++) {
        ckr_node *hyper = d->out->groups[i].hyper;
        if (!ckr__setting_is_for(x, d->out, i)) continue;
        was = 0;
        ckr_node_f64(ckr_node_get(hyper, x->key), &was);
        if (any && !(was != 0)) { zero++; continue; }
        if (!ckr__node_set(d->c, hyper, x->key, ckr__node_float(d->c, v))) return d->c->err->code;
        if (!n++) first = was;
    }
    if (!n && !zero) return ckr__setting_bad(d, x, "no group is called so");
    snprintf(subject, sizeof subject, "%s of %llu groups", x->key, (unsigned long long)n);
    r = ckr__decide_numbers(d, "CKR_SET", CKR_CHANGED, subject, first, v, "asked for", NULL);
    if (r != CKR_OK || !zero) return r;
    snprintf(subject, sizeof subject, "%s of %llu groups", x->key, (unsigned long long)zero);
    return ckr__decide_say(d, "CKR_SET_KEPT", CKR_EXACT, subject, "0", "0",
                           "groups without weight decay are so on purpose",
                           "--set GROUP.weight_decay=V for one of them");
}

static double ckr__lane_shown(const ckr_schedule *s, const char *key, uint64_t lane)
{
    const ckr_lane *l = &s->lanes[lane];
    if (!strcmp(key, "min_lr")) return l->min;
    if (!strcmp(key, "weight_decay")) return l->end_wd;
    return l->max == l->max ? l->max : l->base;
}

/* One group's own value: its lane's. */
static ckr_result ckr__decide_lanes(ckr__decide *d, const ckr_setting *x)
{
    uint64_t i, n = 0;
    double was = 0, now = 0;
    char subject[160];
    for (i = 0; i < d->wanted->n_lanes && i < d->out->n_groups; i++) {
        ckr_schedule *s;
        ckr_result r;
        if (!ckr__setting_is_for(x, d->out, i)) continue;
        r = ckr__sched_set(d->c, d->wanted, x->key, x->value, (int64_t)i, &s);
        if (r != CKR_OK) return r;
        if (!n++) {
            was = ckr__lane_shown(d->wanted, x->key, i);
            now = ckr__lane_shown(s, x->key, i);
        }
        d->wanted = s;
    }
    if (!n) return ckr__setting_bad(d, x, "no group is called so");
    snprintf(subject, sizeof subject, "%s of group %.100s", x->key, x->group);
    return ckr__decide_numbers(d, "CKR_SET", CKR_CHANGED, subject, was, now, "asked for", NULL);
}

/* Without a schedule an LR is the groups' own, and stays. */
static ckr_result ckr__decide_bare_lr(ckr__decide *d, const ckr_setting *x)
{
    uint64_t i;
    double v;
    ckr_result r;
    if (strcmp(x->key, "lr") != 0 || !d->out->n_groups) {
        r = ckr__setting_bad(d, x, "the checkpoint does not tell its schedule");
        return ckr__remedy(d->c->err, r, "tell it with --schedule KIND:..., or the new one with "
                                         "--to-schedule KIND:...");
    }
    if (!ckr__setting_number(x, &v)) return ckr__setting_bad(d, x, "not a number from 0 on");
    r = ckr__decide_hyper(d, x, v);
    for (i = 0; i < d->out->n_groups && r == CKR_OK; i++)
        if (ckr__setting_is_for(x, d->out, i) &&
            ckr_node_get(d->out->groups[i].hyper, "initial_lr") &&
            !ckr__node_set(d->c, d->out->groups[i].hyper, "initial_lr", ckr__node_float(d->c, v)))
            r = d->c->err->code;
    return r;
}

static ckr_result ckr__decide_schedule_key(ckr__decide *d, const ckr_setting *x)
{
    const ckr_schedule *old = d->wanted;
    const bool lr = !strcmp(x->key, "lr"), shown = lr || !strcmp(x->key, "min_lr");
    char was[64], subject[64];
    ckr_schedule *s;
    ckr_result r;
    d->asked_schedule = true;
    if (lr) d->asked_lr = true;
    if (!old || (old->opaque && lr)) return ckr__decide_bare_lr(d, x);
    if (x->group) return ckr__decide_lanes(d, x);
    r = ckr__sched_set(d->c, old, x->key, x->value, -1, &s);
    if (r != CKR_OK) return r;
    d->wanted = s;
    if (shown && old->n_lanes)
        snprintf(was, sizeof was, "%.17g", ckr__lane_shown(old, x->key, 0));
    snprintf(subject, sizeof subject, "%s of the schedule", x->key);
    return ckr__decide_say(d, "CKR_SET", CKR_CHANGED, subject, shown && old->n_lanes ? was : NULL,
                           x->value, "asked for", NULL);
}

static ckr_result ckr__decide_batch(ckr__decide *d, const ckr_setting *x)
{
    double v;
    char old_value[40];
    if (!ckr__setting_number(x, &v) || v < 1) return ckr__setting_bad(d, x, "not a batch size");
    if (!d->wanted || strcmp(d->wanted->clock, "sample") != 0)
        return ckr__decide_say(d, "CKR_BATCH_STEPS", CKR_CHANGED, "batch_size", NULL, x->value,
                               "the schedule's clock counts updates: it does not turn with the "
                               "batch, and an update now covers more or fewer samples",
                               "--set warmup_steps, decay_steps, total_steps scale the schedule");
    snprintf(old_value, sizeof old_value, "%.17g", d->wanted->rate);
    d->wanted->offset = (double)d->wanted->position - v * (double)d->done;
    d->wanted->rate = v;
    d->asked_schedule = true;
    return ckr__decide_say(d, "CKR_BATCH_SAMPLES", CKR_CHANGED, "batch_size", old_value, x->value,
                           "the schedule's clock counts samples: it turns with the batch", NULL);
}

/* Does the schedule set the weight decay, too? */
static bool ckr__schedules_decay(const ckr_schedule *s)
{
    return s && s->n_lanes && s->lanes[0].end_wd == s->lanes[0].end_wd;
}

static ckr_result ckr__decide_settings(ckr__decide *d)
{
    uint64_t i;
    double v;
    ckr_result r = CKR_OK;
    for (i = 0; i < d->t->n_sets && r == CKR_OK; i++) {
        const ckr_setting *x = &d->t->sets[i];
        if (!x->key || !x->value) r = ckr__setting_bad(d, x, "a setting without key or value");
        else if (ckr__is_schedule_key(x->key) ||
                 (!strcmp(x->key, "weight_decay") && ckr__schedules_decay(d->wanted)))
            r = ckr__decide_schedule_key(d, x);
        else if (!strcmp(x->key, "batch_size")) r = ckr__decide_batch(d, x);
        else if (strcmp(x->key, "weight_decay") != 0) r = ckr__setting_bad(d, x, "an unknown key");
        else if (!ckr__setting_number(x, &v)) r = ckr__setting_bad(d, x, "not a number from 0 on");
        else r = ckr__decide_hyper(d, x, v);
    }
    return r;
}

/* The base LRs of the groups: the schedule's, else what the groups say. */
static double *ckr__decide_bases(ckr__decide *d)
{
    const uint64_t n = d->out->n_groups;
    double *bases = CKR__NEW_N(d->c, double, n);
    uint64_t i;
    for (i = 0; bases && i < n; i++) {
        bases[i] = ckr__nan();
        if (d->before && i < d->before->n_lanes) bases[i] = d->before->lanes[i].base;
        else if (!ckr_node_f64(ckr_node_get(d->out->groups[i].hyper, "initial_lr"), &bases[i]))
            ckr_node_f64(ckr_node_get(d->out->groups[i].hyper, "lr"), &bases[i]);
    }
    return bases;
}

/* --to-schedule: the whole schedule of the coming run. Its clock stands where the run stands. */
static ckr_result ckr__decide_new_schedule(ckr__decide *d)
{
    const uint64_t n = d->out->n_groups;
    double *bases;
    ckr_schedule *s;
    ckr_result r;
    if (!d->t->schedule) return CKR_OK;
    bases = ckr__decide_bases(d);
    if (!bases) return d->c->err->code;
    r = ckr__sched_parse(d->c, d->t->schedule, n ? bases : NULL, n, &s);
    if (r != CKR_OK) return r;
    s->position = d->before && !strcmp(d->before->clock, s->clock) ? d->before->position : d->done;
    if (d->before && !strcmp(d->before->clock, s->clock)) {
        s->rate = d->before->rate;
        s->offset = d->before->offset;
    }
    d->wanted = s;
    d->asked_schedule = true;
    return ckr__decide_say(d, "CKR_SCHEDULE", CKR_CHANGED, "schedule",
                           d->before ? d->before->kind : NULL, d->t->schedule, "asked for", NULL);
}

static ckr_result ckr__decide_join(ckr__decide *d)
{
    static const ckr__rebase modes[] = {
        CKR__REBASE_KEEP, CKR__REBASE_KEEP, CKR__REBASE_TARGET,
        CKR__REBASE_SPLICE, CKR__REBASE_STRETCH, CKR__REBASE_REWARM
    };
    ckr_lr_policy policy = d->t->lr_policy;
    if (!d->before && !d->wanted) return CKR_OK;
    if (policy == CKR_LR_DEFAULT) policy = d->asked_schedule ? CKR_LR_TARGET : CKR_LR_KEEP;
    if (!d->before || d->before->opaque) {
        d->after = d->wanted;
        return CKR_OK;
    }
    return ckr__sched_rebase(d->c, d->before, d->wanted ? d->wanted : d->before,
                             modes[(unsigned)policy % 6], d->done, d->t->rewarm_steps, &d->after);
}

/* Values around the resume: the last that was used, the next one that would have been, the first
   that will be. NaN where not known. */
typedef struct ckr__around { double *last, *next, *first; } ckr__around;

static ckr_result ckr__decide_values(ckr__decide *d, ckr__column column, ckr__around *v)
{
    const uint64_t n = d->after ? d->after->n_lanes : 0;
    uint64_t i;
    ckr_result r = CKR_OK;
    v->last = CKR__NEW_N(d->c, double, n);
    v->next = CKR__NEW_N(d->c, double, n);
    v->first = CKR__NEW_N(d->c, double, n);
    if (!v->last || !v->next || !v->first) return d->c->err->code;
    for (i = 0; i < n; i++) v->last[i] = v->next[i] = v->first[i] = ckr__nan();
    if (d->before && !d->before->opaque && d->before->n_lanes == n) {
        if (d->done > 0) r = ckr__sched_eval(d->c, d->before, column, d->done, 1, v->last);
        if (r == CKR_OK) r = ckr__sched_eval(d->c, d->before, column, d->done + 1, 1, v->next);
    }
    if (r == CKR_OK) r = ckr__sched_eval(d->c, d->after, column, d->done + 1, 1, v->first);
    for (i = 0; column == CKR__COL_LR && i < n && i < d->src->n_groups; i++)
        if (v->next[i] != v->next[i])
            ckr_node_f64(ckr_node_get(d->src->groups[i].hyper, "lr"), &v->next[i]);
    return r;
}

static double ckr__ratio(double a, double b)
{
    a = fabs(a);
    b = fabs(b);
    if (a != a || b != b) return 1;
    if (!(a > 0) || !(b > 0)) return a > 0 || b > 0 ? HUGE_VAL : 1;
    return a > b ? a / b : b / a;
}

/* A jump is one only against both: the last value used, and what the saved run would have used
   next - a warm-up rises by itself. */
static double ckr__jump(const ckr__around *v, uint64_t lane)
{
    const double a = v->last[lane] == v->last[lane] ? ckr__ratio(v->last[lane], v->first[lane])
                                                    : HUGE_VAL;
    const double b = ckr__ratio(v->next[lane], v->first[lane]);
    return a < b ? a : b;
}

static ckr_result ckr__decide_continuity(ckr__decide *d, ckr__column column, const char *what)
{
    const ckr_target *t = d->t;
    const double limit = t->max_lr_jump > 0 ? t->max_lr_jump : 1.05;
    const bool limited = (t->lr_policy == CKR_LR_DEFAULT || t->max_lr_jump > 0) && !d->asked_lr &&
                         column == CKR__COL_LR;
    ckr__around v;
    uint64_t i, n = 0, worst = 0;
    char subject[64], reason[200];
    ckr_result r;
    if (!d->after || d->after->opaque) return CKR_OK;
    r = ckr__decide_values(d, column, &v);
    if (r != CKR_OK) return r;
    for (i = 0; i < d->after->n_lanes; i++) {
        if (!(fabs(v.first[i] - v.next[i]) > 1e-12 * fabs(v.next[i]))) continue;
        if (!n++ || ckr__jump(&v, i) > ckr__jump(&v, worst)) worst = i;
    }
    if (!n) return CKR_OK;
    snprintf(subject, sizeof subject, "%s of %llu groups", what, (unsigned long long)n);
    snprintf(reason, sizeof reason,
             "at update %lld; the last one used %.9g, so it changes by a factor of %.4g",
             (long long)d->done + 1, v.last[worst],
             v.last[worst] != 0 ? v.first[worst] / v.last[worst] : 0);
    r = ckr__decide_numbers(d, column == CKR__COL_LR ? "CKR_LR_CHANGED" : "CKR_HYPER_CHANGED",
                            CKR_CHANGED, subject, v.next[worst], v.first[worst], reason, NULL);
    if (r != CKR_OK || !limited || !(ckr__jump(&v, worst) > limit)) return r;
    snprintf(reason, sizeof reason, "a jump by a factor of %.4g; more than %.4g was not asked for",
             ckr__jump(&v, worst), limit);
    return ckr__decide_numbers(d, "CKR_E_LR_JUMP", CKR_ERROR, subject, v.last[worst],
                               v.first[worst], reason,
                               "--lr-policy splice or stretch goes on without a jump; --lr-policy "
                               "target or --max-lr-jump R takes it");
}

/* The number of the run's last update, where the schedule's parameters tell it; else where the
   schedule ends. */
static int64_t ckr__run_end(const ckr_schedule *s, int64_t done)
{
    static const char *const keys[] = { "train_steps", "steps", "num_training_steps",
                                        "train_iters", "total_num_steps", "train_num_batches" };
    double end = (ckr__sched_end(s) - s->offset) / s->rate;
    int64_t v = 0;
    size_t i;
    for (i = 0; i < sizeof keys / sizeof *keys; i++)
        if (ckr_node_i64(ckr_node_get(s->params, keys[i]), &v) && v > 0) break;
    if (i == sizeof keys / sizeof *keys)
        v = end > 0 && end < 9e15 ? (int64_t)ceil(end) : done + 1;
    return v;
}

CKR_API int64_t ckr_schedule_end(const ckr_schedule *s)
{
    const double end = s ? (ckr__sched_end(s) - s->offset) / s->rate : -1;
    return end >= 0 && end < 9e15 ? (int64_t)ceil(end) : -1;
}

/* Does the schedule fit the run: its end, values below 0, a curve that is undefined somewhere. */
static ckr_result ckr__decide_completeness(ckr__decide *d)
{
    const ckr_severity mild = d->asked_schedule ? CKR_CHANGED : CKR_EXACT;
    const int64_t first = d->done + 1;
    int64_t last;
    ckr__scan f;
    char at[64];
    ckr_result r;
    if (!d->after || d->after->opaque) return CKR_OK;
    last = ckr__run_end(d->after, d->done);
    if (last < first) last = first;
    r = ckr__sched_scan(d->c, d->after, first, (uint64_t)(last - first) + 1, &f);
    snprintf(at, sizeof at, "update %lld", (long long)f.negative);
    if (r == CKR_OK && f.negative)
        r = ckr__decide_say(d, "CKR_E_LR_NEGATIVE", CKR_ERROR, "lr", NULL, at,
                            "the schedule goes below 0 from there on: gradient ascent",
                            "end the run before, or let the schedule reach so far: "
                            "--set total_steps=N, --lr-policy stretch");
    snprintf(at, sizeof at, "update %lld", (long long)f.undefined);
    if (r == CKR_OK && f.undefined)
        r = ckr__decide_say(d, "CKR_E_LR_UNDEFINED", CKR_ERROR, "lr", NULL, at,
                            f.why ? f.why : "the schedule is not defined there", NULL);
    snprintf(at, sizeof at, "update %lld", (long long)f.rise);
    if (r == CKR_OK && f.rise)
        r = ckr__decide_say(d, "CKR_W_LR_REBOUND", mild, "lr", NULL, at,
                            "the schedule rises again after its end", NULL);
    if (r == CKR_OK && f.never_decays && !f.end)
        r = ckr__decide_say(d, "CKR_W_LR_NEVER_DECAYS", mild, "lr", NULL, NULL,
                            "the schedule never decays", NULL);
    snprintf(at, sizeof at, "update %lld", (long long)f.end);
    if (r == CKR_OK && f.end && f.end <= d->done)
        r = ckr__decide_say(d, "CKR_W_LR_PAST_END", mild, "lr", NULL, at,
                            "the schedule has ended: it holds its last value",
                            "--set total_steps=N with --lr-policy target or rewarm");
    else if (r == CKR_OK && f.ends_early && !f.negative)
        r = ckr__decide_say(d, "CKR_W_LR_ENDS_EARLY", mild, "lr", NULL, at,
                            "the schedule ends before the run does", NULL);
    return r;
}

/* The groups get what the schedule says for the next update. */
static ckr_result ckr__decide_write(ckr__decide *d)
{
    ckr_schedule *list;
    ckr__around lr, wd;
    uint64_t i;
    ckr_result r;
    if (!d->after) return CKR_OK;
    list = CKR__NEW_N(d->c, ckr_schedule, 1);
    if (!list) return d->c->err->code;
    *list = *d->after;
    d->after = list;
    d->out->schedules = list;
    d->out->n_schedules = 1;
    if (d->after->opaque || d->after->n_lanes != d->out->n_groups) return CKR_OK;
    r = ckr__decide_values(d, CKR__COL_LR, &lr);
    if (r == CKR_OK) r = ckr__decide_values(d, CKR__COL_WD, &wd);
    for (i = 0; i < d->out->n_groups && r == CKR_OK; i++) {
        ckr_node *h = d->out->groups[i].hyper;
        const double base = d->after->lanes[i].base;
        double was;
        if (lr.first[i] == lr.first[i] && ckr_node_f64(ckr_node_get(h, "lr"), &was) &&
            fabs(was - lr.first[i]) > 4 * DBL_EPSILON * fabs(was) &&
            !ckr__node_set(d->c, h, "lr", ckr__node_float(d->c, lr.first[i])))
            r = d->c->err->code;
        if (base == base && d->asked_schedule && ckr_node_f64(ckr_node_get(h, "initial_lr"), &was) &&
            was != base && !ckr__node_set(d->c, h, "initial_lr", ckr__node_float(d->c, base)))
            r = d->c->err->code;
        if (wd.first[i] == wd.first[i] &&
            !ckr__node_set(d->c, h, "weight_decay", ckr__node_float(d->c, wd.first[i])))
            r = d->c->err->code;
    }
    return r;
}

/* An unknown curve is said once, where somebody asks for it. */
static ckr_result ckr__decide_opaque(ckr__decide *d)
{
    if (!d->before || !d->before->opaque || d->wanted != d->before) return CKR_OK;
    return ckr__decide_say(d, "CKR_W_SCHEDULE_UNKNOWN", CKR_APPROX, d->before->kind, NULL, NULL,
                           d->before->reason ? d->before->reason
                                             : "the file does not hold the schedule's curve",
                           "tell it with --schedule KIND:key=value,...");
}

/* *out starts as the source's state. */
static ckr_result ckr__decide_all(ckr__decide *d)
{
    const bool left = (d->t->without & CKR_SCHEDULE) != 0;
    ckr_result r;
    *d->out = *d->src;
    d->done = d->src->progress.step > 0 ? d->src->progress.step : 0;
    if (d->src->n_schedules) d->before = d->src->schedules;
    if (d->src->n_schedules && d->src->progress.step < 0 && d->before->position > 0)
        d->done = d->before->position;
    d->wanted = d->before;
    if (left && !d->t->schedule && !d->t->n_sets) return CKR_OK;
    r = ckr__decide_copy_groups(d);
    if (r == CKR_OK) r = ckr__decide_new_schedule(d);
    if (r == CKR_OK) r = ckr__decide_settings(d);
    if (r == CKR_OK) r = ckr__decide_opaque(d);
    if (r == CKR_OK) r = ckr__decide_join(d);
    if (r == CKR_OK) r = ckr__decide_continuity(d, CKR__COL_LR, "lr");
    if (r == CKR_OK) r = ckr__decide_continuity(d, CKR__COL_WD, "weight_decay");
    if (r == CKR_OK) r = ckr__decide_continuity(d, CKR__COL_MOMENTUM, "momentum");
    if (r == CKR_OK) r = ckr__decide_completeness(d);
    return r == CKR_OK ? ckr__decide_write(d) : r;
}

CKR_API ckr_result ckr_schedule_values(const ckr_schedule *s, ckr_column column, int64_t first,
                                       uint64_t n, double *out, const ckr_env *env,
                                       ckr_error *err)
{
    ckr__ctx c;
    ckr_result r = ckr__ctx_init(&c, env, NULL, err);
    if (r == CKR_OK && first < 1)
        r = ckr__fail(c.err, CKR_ITEM_ARG, NULL, CKR_NO_OFFSET, "first", "updates count from 1");
    if (r == CKR_OK) r = ckr__sched_eval(&c, s, (ckr__column)column, first, n, out);
    ckr__ctx_free(&c);
    return r;
}

/* >>plan ---------------------------------------------------------------------- */
/* A plan: the target's files as the dialect describes them, and for each entry the ops that fill
   it. A pure function of state, target and policy; no tensor byte is read. */

#define CKR__SIDE_FILE "ckptresume.json"

struct ckr_ckpt {
    ckr__ctx    ctx;
    ckr_state   state;
    const char *path, *dir;    /* as given; the checkpoint that was chosen             */
    ckr_node   *side;          /* the side file, or NULL                               */
    ckr_node   *root;          /* of ckr_tree_open                                     */
};

struct ckr_plan {
    ckr__ctx        ctx;
    const ckr_ckpt *src;
    ckr_target      target;
    ckr__out        out;
    ckr_plan_facts  facts;
    ckr_note       *notes;
    uint64_t        n_notes;
    ckr_state       state;     /* the source's, with groups and schedule of the coming run */
    bool            decisions_only;
};

/* What an entry needs: ops that fill it, and the same region as the destination sees it, from which
   the digest of the written bytes is computed independently of the ops. */
typedef struct ckr__fill { ckr__op *ops, *seen; uint64_t n_ops, n_seen; bool zero; } ckr__fill;

static bool ckr__fill_push(ckr__ctx *c, ckr__op **ops, uint64_t *n, const ckr__op *op)
{
    void *array = *ops;
    ckr__op *p = (ckr__op *)ckr__append(c, &array, n, sizeof *p);
    *ops = (ckr__op *)array;
    if (p) *p = *op;
    return p != NULL;
}

static int64_t ckr__box_volume(uint32_t n, const int64_t *count)
{
    int64_t v = 1;
    while (n-- > 0) v *= count[n];
    return v;
}

/* The ops of one bind. What lies outside the tensor's logical shape is padding and stays zero; what
   lies inside and in no piece is a hole. */
static ckr_result ckr__fill_bind(ckr__ctx *c, ckr__fill *f, const ckr_entry *e, const ckr__bind *b,
                                 int64_t *volume)
{
    const ckr_tensor *t = b->tensor;
    int64_t zero[CKR_MAX_DIMS], start[CKR_MAX_DIMS], count[CKR_MAX_DIMS], want, got = 0;
    int64_t in_start[CKR_MAX_DIMS], in_count[CKR_MAX_DIMS];
    uint32_t i;
    ckr__op op;

    memset(zero, 0, sizeof zero);
    if (!ckr__box_meet(t->n_dims, b->piece.start, b->piece.count, zero, t->shape, in_start,
                       in_count))
        return CKR_OK;
    want = ckr__box_volume(t->n_dims, in_count);
    for (i = 0; i < t->n_pieces; i++) {
        const ckr_piece *p = &t->pieces[i];
        if (p->replica ||
            !ckr__box_meet(t->n_dims, in_start, in_count, p->start, p->count, start, count))
            continue;
        if (p->dtype != e->dtype && !(ckr__is_float(p->dtype) && ckr__is_float(e->dtype)))
            return ckr__fail(c->err, CKR_ITEM_CAST, ckr__file_path(c, p->file), CKR_NO_OFFSET,
                             t->name, "%s cannot be cast to %s", ckr_dtype_name(p->dtype),
                             ckr_dtype_name(e->dtype));
        if (!ckr__op_make(c, &op, t, start, count, p, NULL, &b->piece)) return c->err->code;
        op.no_sum = b->piece.replica;
        got += ckr__box_volume(t->n_dims, count);
        if (!ckr__fill_push(c, &f->ops, &f->n_ops, &op)) return c->err->code;
    }
    if (got != want)
        return ckr__fail(c->err, CKR_ITEM_TENSOR_HOLE, NULL, CKR_NO_OFFSET, t->name,
                         "%s: %lld of %lld elements of a box are in no file", t->slot,
                         (long long)(want - got), (long long)want);
    *volume += got;
    if (b->piece.replica || !t->slot[0]) return CKR_OK;
    if (!ckr__op_make(c, &op, t, in_start, in_count, &b->piece, NULL, &b->piece) ||
        !ckr__fill_push(c, &f->seen, &f->n_seen, &op)) return c->err->code;
    return CKR_OK;
}

static ckr_result ckr__fill_make(ckr__ctx *c, ckr_entry *e)
{
    ckr__fill *f = CKR__NEW(c, ckr__fill);
    int64_t volume = 0;
    uint64_t i;
    ckr_result r = CKR_OK;
    if (!f) return c->err->code;
    for (i = 0; i < e->n_binds && r == CKR_OK; i++)
        r = ckr__fill_bind(c, f, e, &e->binds[i], &volume);
    f->zero = (uint64_t)volume * ckr_dtype_size(e->dtype) < e->n_bytes;
    e->ops = f;
    return r;
}

static int ckr__severity_max(const ckr_note *notes, uint64_t n)
{
    int worst = CKR_EXACT;
    uint64_t i;
    for (i = 0; i < n; i++)
        if ((int)notes[i].severity > worst) worst = (int)notes[i].severity;
    return worst;
}

/* `strict` takes approx and lost for errors; so does RECOVER, and changes too - except those that
   make the framework go on exactly where it was (CKR_FIX_). One entry then says what would allow
   the rest. */
static ckr_result ckr__plan_policy(ckr_plan *p)
{
    const bool recover = p->target.mode == CKR_MODE_RECOVER;
    uint64_t i, n = 0;
    char what[120];
    for (i = 0; i < p->n_notes; i++) {
        const ckr_note *e = &p->notes[i];
        if (e->severity == CKR_APPROX || e->severity == CKR_LOST) n += p->target.strict || recover;
        else if (e->severity == CKR_CHANGED) n += recover && strncmp(e->code, "CKR_FIX_", 8) != 0;
    }
    if (!n) return CKR_OK;
    snprintf(what, sizeof what, "%llu entries are not %s", (unsigned long long)n,
             recover ? "exact, and RECOVER allows nothing else"
                     : "exact or changed as asked, and strict allows nothing else");
    return ckr__note(&p->ctx, &p->notes, &p->n_notes, recover ? "CKR_E_RECOVER" : "CKR_E_STRICT",
                     CKR_ERROR, NULL, NULL, NULL, what,
                     recover ? "--mode continue" : "leave out --strict")
               ? CKR_OK
               : p->ctx.err->code;
}

/* What reading found belongs into the report too, unless the dialect's writer has said the same. */
static ckr_result ckr__plan_inherit(ckr_plan *p, const ckr_state *s)
{
    const uint64_t own = p->n_notes;
    uint64_t i, k;
    for (i = 0; i < s->n_notes; i++) {
        const ckr_note *n = &s->notes[i];
        for (k = 0; k < own && strcmp(p->notes[k].code, n->code) != 0; k++) {}
        if (k == own && !ckr__note(&p->ctx, &p->notes, &p->n_notes, n->code, n->severity,
                                   n->subject, n->old_value, n->new_value, n->reason, n->remedy))
            return p->ctx.err->code;
    }
    return CKR_OK;
}

/* An entry for each component that is left out, so that a report never passes over what is lost. */
static ckr_result ckr__plan_components(ckr_plan *p, const ckr_state *s)
{
    static const char *const name[] = {"params", "optimizer", "groups", "schedule",
                                       "rng",    "progress",  "data"};
    uint32_t i;
    for (i = 0; i < 7; i++) {
        char step[40] = "left out";
        if (!(p->target.without & (1u << i))) continue;
        if ((1u << i) == CKR_PROGRESS)
            snprintf(step, sizeof step, "step %lld -> 0", (long long)s->progress.step);
        if (!ckr__note(&p->ctx, &p->notes, &p->n_notes, "CKR_WITHOUT", CKR_CHANGED, name[i],
                       "in the checkpoint", step,
                       p->target.mode == CKR_MODE_TRANSFER
                           ? "asked for: transfer takes weights only"
                           : "asked for",
                       NULL))
            return p->ctx.err->code;
    }
    return CKR_OK;
}

static ckr_verdict ckr__verdict(int severity)
{
    return severity >= CKR_ERROR ? CKR_VERDICT_REFUSED : severity >= CKR_APPROX ? CKR_VERDICT_APPROX
         : severity == CKR_CHANGED ? CKR_VERDICT_CHANGED : CKR_VERDICT_EXACT;
}

/* Sums for the report: bytes and copies of every file, and the peak of a run with these lanes. */
static bool ckr__plan_count(ckr_plan *p)
{
    ckr__ctx *c = &p->ctx;
    ckr_plan_facts *facts = &p->facts;
    uint64_t i, k, m;
    ckr_plan_file *files = CKR__NEW_N(c, ckr_plan_file, p->out.n_files);
    if (!files) return false;
    for (i = 0; i < p->out.n_files; i++) {
        const ckr__out_file *f = p->out.files[i];
        files[i].path = f->path;
        files[i].bytes = ((const ckr__image *)f->image)->size;
        facts->bytes_written += files[i].bytes;
        for (k = 0; k < f->n_entries; k++) {
            const ckr__fill *fill = (const ckr__fill *)f->entries[k]->ops;
            facts->n_copies += fill->n_ops;
            for (m = 0; m < fill->n_ops; m++) {
                const ckr__op *op = &fill->ops[m];
                int64_t n = op->run * ckr__box_volume(op->n_dims, op->count);
                facts->bytes_read += (uint64_t)n * ckr_dtype_size(op->pa->dtype);
            }
        }
    }
    facts->files = files;
    facts->n_files = p->out.n_files;
    facts->peak_bytes =
        p->src->ctx.arena_bytes + c->arena_bytes +
        c->env.parallel.n_threads * (p->facts.window_bytes + CKR__BLOCK + 2 * CKR__RUN_PART);
    return true;
}

static ckr_result ckr__plan_fill(ckr_plan *p)
{
    uint64_t i, k;
    ckr_result r = CKR_OK;
    for (i = 0; i < p->out.n_files && r == CKR_OK; i++) {
        ckr__out_file *f = p->out.files[i];
        ckr__image *image = NULL;
        for (k = 0; k < f->n_entries && r == CKR_OK; k++)
            r = ckr__fill_make(&p->ctx, f->entries[k]);
        if (r == CKR_OK) r = ckr__image_make(&p->ctx, f, &image);
    }
    return r;
}


static void ckr__plan_target(ckr_plan *p, const ckr_state *s)
{
    ckr_target *t = &p->target;
    if (!t->dialect) t->dialect = s->dialect;
    if (!t->topology.tp) t->topology.tp = s->topology.tp ? s->topology.tp : 1;
    if (!t->topology.pp) t->topology.pp = s->topology.pp ? s->topology.pp : 1;
    if (!t->topology.dp) t->topology.dp = s->topology.dp ? s->topology.dp : 1;
    if (!t->topology.ep) t->topology.ep = s->topology.ep ? s->topology.ep : 1;
    if (!t->topology.cp) t->topology.cp = s->topology.cp ? s->topology.cp : 1;
    if (t->topology.zero < 0) t->topology.zero = s->topology.zero < 0 ? 0 : s->topology.zero;
    t->topology.ranks = t->topology.tp * t->topology.pp * t->topology.dp * t->topology.cp;
    if (t->mode == CKR_MODE_TRANSFER)
        t->without |= CKR_OPTIMIZER | CKR_GROUPS | CKR_SCHEDULE | CKR_RNG | CKR_PROGRESS | CKR_DATA;
}

/* Window and lanes under a cap on buffers: fewer lanes before windows under 64 KiB, and no less
   than one. */
static ckr_result ckr__plan_window(ckr_plan *p, uint64_t max_bytes)
{
    const uint64_t fixed = CKR__BLOCK + 2 * CKR__RUN_PART, least = 65536;
    uint32_t *lanes = &p->ctx.env.parallel.n_threads;
    uint64_t w = CKR__WINDOW;
    if (max_bytes) {
        if (max_bytes < fixed + least)
            return ckr__fail(p->ctx.err, CKR_ITEM_LIMIT, NULL, CKR_NO_OFFSET, "max_bytes",
                             "a cap of %llu bytes on buffers; one worker needs %llu",
                             (unsigned long long)max_bytes, (unsigned long long)(fixed + least));
        while (*lanes > 1 && max_bytes / *lanes < fixed + least) --*lanes;
        w = (max_bytes / *lanes - fixed) & ~(uint64_t)4095;
    }
    p->facts.window_bytes = w < CKR__WINDOW ? w : CKR__WINDOW;
    return CKR_OK;
}

/* What the coming run's groups and schedule will be; the dialect writes this state. */
static ckr_result ckr__plan_decisions(ckr_plan *p, const ckr_state *s)
{
    ckr__decide d;
    ckr_result r;
    memset(&d, 0, sizeof d);
    d.c = &p->ctx;
    d.src = s;
    d.t = &p->target;
    d.out = &p->state;
    d.notes = &p->notes;
    d.n_notes = &p->n_notes;
    r = ckr__decide_all(&d);
    p->facts.groups = p->state.groups;
    p->facts.n_groups = p->state.n_groups;
    p->facts.before = d.before;
    p->facts.after = d.after;
    p->facts.resume_at = d.done + 1;
    return r;
}

static ckr_result ckr__plan_make(const ckr_ckpt *src, const ckr_target *target, uint64_t max_bytes,
                                 bool decisions_only, ckr_plan **out, ckr_error *err)
{
    const ckr__dialect *d;
    ckr_result r;
    ckr_plan *p = (ckr_plan *)ckr__owner_make(&src->ctx.env, &src->ctx.limits, sizeof *p, err, &r);
    *out = NULL;
    if (!p) return r;
    p->src = src;
    p->out.c = &p->ctx;
    if (target) p->target = *target;
    else p->target.topology.zero = -1;
    ckr__plan_target(p, &src->state);
    d = ckr__dialect_find(p->target.dialect);
    r = ckr__plan_window(p, max_bytes);
    if (r == CKR_OK && !d) r = ckr__dialect_unknown(&p->ctx, p->target.dialect);
    if (r == CKR_OK) r = ckr__dialect_variant(&p->ctx, d, p->target.variant);
    if (r == CKR_OK) r = ckr__plan_components(p, &src->state);
    if (r == CKR_OK) r = ckr__plan_decisions(p, &src->state);
    if (r == CKR_OK && !decisions_only)
        r = d->emit_fn(&p->ctx, &p->state, &p->target, &p->out, &p->notes, &p->n_notes);
    if (r == CKR_OK) r = ckr__plan_inherit(p, &src->state);
    if (r == CKR_OK) r = ckr__plan_policy(p);
    p->facts.verdict = ckr__verdict(ckr__severity_max(p->notes, p->n_notes));
    if (r == CKR_OK && p->facts.verdict != CKR_VERDICT_REFUSED && !decisions_only) {
        r = ckr__plan_fill(p);
        if (r == CKR_OK && !ckr__plan_count(p)) r = p->ctx.err->code;
    }
    p->decisions_only = decisions_only;
    p->facts.notes = p->notes;
    p->facts.n_notes = p->n_notes;
    p->facts.to = p->target.topology;
    p->facts.dialect = p->target.dialect;
    p->ctx.err = &p->ctx.own_err;      /* the caller's error ends with the call          */
    if (r != CKR_OK) ckr_plan_free(p);
    else *out = p;
    return r;
}

CKR_API ckr_result ckr_plan_create(const ckr_ckpt *src, const ckr_target *target,
                                   uint64_t max_bytes, ckr_plan **out, ckr_error *err)
{
    return ckr__plan_make(src, target, max_bytes, false, out, err);
}

CKR_API ckr_result ckr_plan_decide(const ckr_ckpt *src, const ckr_target *target, ckr_plan **out,
                                   ckr_error *err)
{
    return ckr__plan_make(src, target, 0, true, out, err);
}

CKR_API const ckr_plan_facts *ckr_plan_info(const ckr_plan *p)
{
    return &p->facts;
}

CKR_API void ckr_plan_free(ckr_plan *p)
{
    ckr__owner_free(p, sizeof *p);
}

/* >>output -------------------------------------------------------------------- */
/* Carrying a plan out. Everything is written into one temporary sibling, `.NAME.ckptresume-tmp`,
   made durable, and renamed; so the output is absent or whole, and what was there stays until then.
   A sibling that a killed run left is recognised by its name and removed by the next. With `force`
   the two swap names; where the system cannot, the old output steps aside between two renames as
   `.NAME.ckptresume-old`, and a run that finds it alone puts it back. */

typedef struct ckr__win {      /* one task: bytes [begin, end) of an output file        */
    uint32_t file;
    uint64_t begin, end;
    uint32_t crc[2]; /* of the entry that comes in over the left edge, of the one that goes
                                  out over the right (an entry over both is the first)    */
    uint64_t len[2];
} ckr__win;

/* Paths that were made, or are about to be: kept so that cleaning up needs no memory. */
typedef struct ckr__paths { const char **list; uint64_t n; } ckr__paths;

typedef struct ckr__write {
    ckr__ctx        *c;        /* of this call: errors, scratch                         */
    ckr_plan        *plan;
    ckr__crew        crew;
    uint8_t        **buffers;  /* one window per lane                                   */
    uint64_t       (**seen)[2];/* per lane: digest sums of what is written              */
    const char      *temp;     /* path of the temporary sibling                         */
    ckr__paths       dirs, files;      /* of it                                          */
    void            *lock;     /* on it                                                 */
    bool             owned;    /* it is ours to remove                                  */
    bool             single;   /* the output is one file, not a directory                */
    void           **handles;  /* of the files of the current batch                     */
    uint64_t         first_file, n_batch;
    ckr__win        *wins;
    uint64_t         n_wins, cap_wins;
    uint64_t         done, total;
} ckr__write;

/* Index of the segment that holds byte `at`. */
static uint64_t ckr__seg_find(const ckr__image *img, uint64_t at)
{
    uint64_t lo = 0, hi = img->n_segs;
    while (hi - lo > 1) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (img->segs[mid].offset <= at) lo = mid;
        else hi = mid;
    }
    return lo;
}

/* The part [w0, w1) of an entry into `dst`, with its digest sums; w0 and w1 count from the entry's
   start. */
static bool ckr__win_entry(ckr__write *w, uint32_t lane, const ckr_entry *e, uint64_t w0,
                           uint64_t w1, uint8_t *dst)
{
    ckr__lane *l = &w->crew.lanes[lane];
    const ckr__fill *f = (const ckr__fill *)e->ops;
    uint64_t (*sums)[2] = l->sums, i, read;
    if (f->zero) memset(dst, 0, (size_t)(w1 - w0));
    for (i = 0; i < f->n_ops; i++)
        if (!ckr__op_run(l, &f->ops[i], w0, w1, dst)) return false;
    l->window = dst;
    l->window_at = w0;
    l->sums = w->seen[lane];
    read = l->bytes_read;
    for (i = 0; i < f->n_seen; i++)
        if (!ckr__op_run(l, &f->seen[i], w0, w1, NULL)) return false;
    l->bytes_read = read;
    l->sums = sums;
    return true;
}

static void ckr__win_crc(ckr__win *win, ckr_entry *e, uint64_t at, uint64_t n, const uint8_t *bytes)
{
    uint32_t crc = ckr__crc32(0, bytes, (size_t)n);
    if (at == 0 && n == e->n_bytes) {
        e->crc = crc;
    } else {
        int side = at == 0;
        win->crc[side] = crc;
        win->len[side] = n;
    }
}

/* Fills the buffer with a window and writes it. */
static void ckr__win_run(ckr__write *w, uint32_t lane, ckr__win *win)
{
    ckr__lane *l = &w->crew.lanes[lane];
    const ckr__out_file *f = w->plan->out.files[win->file];
    const ckr__image *img = (const ckr__image *)f->image;
    uint8_t *buf = w->buffers[lane];
    uint64_t i = ckr__seg_find(img, win->begin);
    int32_t sys;
    for (; i < img->n_segs && img->segs[i].offset < win->end; i++) {
        const ckr__seg *s = &img->segs[i];
        uint64_t a = s->offset > win->begin ? s->offset : win->begin;
        uint64_t e = s->offset + s->size < win->end ? s->offset + s->size : win->end;
        uint8_t *dst = buf + (a - win->begin);
        if (e <= a) continue;
        if (s->entry && !s->late) {
            if (!ckr__win_entry(w, lane, s->entry, a - s->offset, e - s->offset, dst)) return;
            if (f->format == CKR_FORMAT_TORCH_ZIP)
                ckr__win_crc(win, s->entry, a - s->offset, e - a, dst);
        } else {
            memcpy(dst, s->bytes + (a - s->offset), (size_t)(e - a));
        }
    }
    sys = w->c->env.io.write_fn(w->c->env.io.user, w->handles[win->file - w->first_file],
                                win->begin, buf, (size_t)(win->end - win->begin));
    if (sys) ckr__fail_io(&l->err, CKR_ITEM_IO_WRITE, f->path, sys);
}

static void ckr__win_lane(void *arg, uint32_t lane)
{
    ckr__write *w = (ckr__write *)arg;
    uint64_t i;
    const uint64_t first = w->n_wins * lane / w->crew.n, last = w->n_wins * (lane + 1) / w->crew.n;
    for (i = first; i < last && w->crew.lanes[lane].err.code == CKR_OK; i++) {
        ckr__win_run(w, lane, &w->wins[i]);
        if (lane == 0 && w->c->env.progress_fn &&
            !w->c->env.progress_fn(w->c->env.user, w->done + w->wins[i].begin, w->total))
            ckr__fail(&w->crew.lanes[0].err, CKR_ITEM_CANCELLED, NULL, CKR_NO_OFFSET, NULL, NULL);
    }
}

/* CRCs of the entries that crossed windows: the parts in file order. */
static void ckr__win_join(ckr__write *w)
{
    ckr_entry *e = NULL;
    uint32_t crc = 0;
    uint64_t i;
    for (i = 0; i < w->n_wins; i++) {
        const ckr__win *x = &w->wins[i];
        const ckr__image *img = (const ckr__image *)w->plan->out.files[x->file]->image;
        if (x->len[0] && e) {
            crc = ckr__crc32_combine(crc, x->crc[0], x->len[0]);
            if (x->end >= e->offset + e->n_bytes) e->crc = crc;
        }
        if (x->len[1]) {
            e = img->segs[ckr__seg_find(img, x->end - 1)].entry;
            crc = x->crc[1];
        }
    }
}

static ckr_result ckr__win_late(ckr__write *w, uint64_t file)
{
    const ckr__out_file *f = w->plan->out.files[file];
    ckr__image *img = (ckr__image *)f->image;
    uint64_t i;
    ckr__image_finish(img);
    for (i = 0; i < img->n_segs; i++) {
        const ckr__seg *s = &img->segs[i];
        int32_t sys;
        if (!s->late || !s->size) continue;
        sys = w->c->env.io.write_fn(w->c->env.io.user, w->handles[file - w->first_file], s->offset,
                                    s->bytes, (size_t)s->size);
        if (sys) return ckr__fail_io(w->c->err, CKR_ITEM_IO_WRITE, f->path, sys);
    }
    return CKR_OK;
}

static bool ckr__wins_add(ckr__write *w, uint64_t file)
{
    const ckr__image *img = (const ckr__image *)w->plan->out.files[file]->image;
    const uint64_t size = w->plan->facts.window_bytes;
    uint64_t at, end;
    for (at = 0; at < img->size; at = end) {
        void *array = w->wins;
        ckr__win *x;
        if (!ckr__arena_grow(w->c, &array, &w->cap_wins, w->n_wins + 1, sizeof *w->wins))
            return false;
        w->wins = (ckr__win *)array;
        x = &w->wins[w->n_wins++];
        memset(x, 0, sizeof *x);
        x->file = (uint32_t)file;
        end = img->size - at > size ? at + size : img->size;
        if (end < img->size) {                 /* never through an element: ops copy whole ones */
            const ckr__seg *seg = &img->segs[ckr__seg_find(img, end)];
            if (seg->entry && !seg->late)
                end -= (end - seg->offset) % ckr_dtype_size(seg->entry->dtype);
        }
        x->begin = at;
        x->end = end;
    }
    return true;
}

/* Somebody else holds the temporary name, or it cannot be had. */
static ckr_result ckr__temp_busy(ckr__write *w, int32_t sys)
{
    ckr_result r;
    if (sys != EBUSY && sys != EEXIST)
        return ckr__fail_io(w->c->err, CKR_ITEM_IO_OPEN, w->temp, sys);
    r = ckr__fail(w->c->err, CKR_ITEM_OUTPUT_BUSY, w->temp, CKR_NO_OFFSET, NULL, NULL);
    return ckr__remedy(w->c->err, r, "wait for it, or write elsewhere");
}

static ckr_result ckr__temp_lock(ckr__write *w)
{
    ckr_io *io = &w->c->env.io;
    int32_t sys = io->lock_fn ? io->lock_fn(io->user, w->temp, &w->lock) : 0;
    return sys ? ckr__temp_busy(w, sys == ENOENT ? EBUSY : sys) : CKR_OK;
}

static void ckr__temp_unlock(ckr__write *w)
{
    if (w->lock) w->c->env.io.unlock_fn(w->c->env.io.user, w->lock);
    w->lock = NULL;
}

#define CKR__BATCH 128         /* files open at a time                                    */

static ckr_result ckr__write_batch(ckr__write *w)
{
    ckr_io *io = &w->c->env.io;
    uint64_t i, opened;
    ckr_result r = CKR_OK;
    w->n_wins = 0;
    for (opened = 0; opened < w->n_batch && r == CKR_OK; opened++) {
        uint64_t size;
        const char *path = w->files.list[w->first_file + opened];
        int32_t sys = io->open_fn(io->user, path, true, &w->handles[opened], &size);
        if (sys) {
            r = w->single ? ckr__temp_busy(w, sys)
                          : ckr__fail_io(w->c->err, CKR_ITEM_IO_OPEN, path, sys);
            break;
        }
        w->owned = true;
        if (w->single) r = ckr__temp_lock(w);
        if (r == CKR_OK && !ckr__wins_add(w, w->first_file + opened)) r = w->c->err->code;
    }
    if (r == CKR_OK) {
        w->c->env.parallel.for_fn(w->c->env.parallel.user, w->crew.n, w->crew.n, ckr__win_lane, w);
        r = ckr__crew_error(&w->crew);
    }
    if (r == CKR_OK) ckr__win_join(w);
    if (r == CKR_OK && w->c->env.progress_fn &&
        !w->c->env.progress_fn(w->c->env.user, w->done, w->total))
        r = ckr__fail(w->c->err, CKR_ITEM_CANCELLED, NULL, CKR_NO_OFFSET, NULL, NULL);
    for (i = 0; i < w->n_batch && r == CKR_OK; i++) r = ckr__win_late(w, w->first_file + i);
    for (i = 0; i < opened; i++) {
        w->done += ((const ckr__image *)w->plan->out.files[w->first_file + i]->image)->size;
        io->close_fn(io->user, w->handles[i]);
    }
    return r;
}

/* >>output.paths: directories, the temporary sibling, durability */

static ckr_result ckr__path_do(ckr__ctx *c, ckr_path_op op, const char *path, const char *to,
                               ckr_item item)
{
    int32_t sys = c->env.io.path_fn(c->env.io.user, op, path, to);
    return sys ? ckr__fail_io(c->err, item, path, sys) : CKR_OK;
}

static bool ckr__paths_add(ckr__ctx *c, ckr__paths *p, const char *path)
{
    void *array = p->list;
    const char **place = path ? (const char **)ckr__append(c, &array, &p->n, sizeof *place) : NULL;
    p->list = (const char **)array;
    if (place) *place = path;
    return place != NULL;
}

/* Removes a file, a link or a tree of ours, breadth first. Everything is tried as a file first, so
   that a link to a directory is removed and never entered. What cannot be removed is left to the
   next run. */
static void ckr__remove_tree(ckr__ctx *c, const char *path)
{
    ckr_error keep = *c->err;
    ckr_io *io = &c->env.io;
    ckr__paths dirs = { NULL, 0 };
    uint64_t i, k;
    if (io->path_fn(io->user, CKR_PATH_REMOVE, path, NULL) != 0) ckr__paths_add(c, &dirs, path);
    for (i = 0; i < dirs.n; i++) {
        ckr__dirlist list;
        memset(&list, 0, sizeof list);
        list.c = c;
        if (io->list_fn(io->user, dirs.list[i], ckr__dirlist_add, &list) != 0) continue;
        for (k = 0; k < list.n; k++) {
            const char *sub = ckr__path_join(c, dirs.list[i], list.items[k]->name);
            if (sub && io->path_fn(io->user, CKR_PATH_REMOVE, sub, NULL) != 0)
                ckr__paths_add(c, &dirs, sub);
        }
    }
    while (dirs.n-- > 0) io->path_fn(io->user, CKR_PATH_RMDIR, dirs.list[dirs.n], NULL);
    *c->err = keep;
}

/* The temporary sibling as it will be: directories, parents first, each once; and files. */
static ckr_result ckr__temp_plan(ckr__write *w)
{
    ckr__ctx *c = w->c;
    ckr__map seen;
    uint64_t i;
    bool ok = w->single || ckr__paths_add(c, &w->dirs, w->temp);
    memset(&seen, 0, sizeof seen);
    seen.c = c;
    for (i = 0; i < w->plan->out.n_files && ok; i++) {
        const char *path = w->plan->out.files[i]->path, *slash;
        for (slash = strchr(path, '/'); slash && ok; slash = strchr(slash + 1, '/')) {
            const char *dir;
            if (ckr__map_find(&seen, path, (size_t)(slash - path), NULL)) continue;
            dir = ckr__strndup(c, path, (size_t)(slash - path));
            ok = dir && ckr__map_put(&seen, path, (size_t)(slash - path), 1, NULL) &&
                 ckr__paths_add(c, &w->dirs, ckr__path_join(c, w->temp, dir));
        }
        ok = ok && ckr__paths_add(c, &w->files,
                                  w->single ? w->temp : ckr__path_join(c, w->temp, path));
    }
    if (ok && !w->single)
        ok = ckr__paths_add(c, &w->files, ckr__path_join(c, w->temp, CKR__SIDE_FILE));
    ckr__map_free(&seen);
    return ok ? CKR_OK : c->err->code;
}

/* Takes the temporary name for this run: what a dead run left goes, a living one is left alone. */
static ckr_result ckr__temp_clear(ckr__write *w)
{
    ckr_result r = CKR_OK;
    if (ckr__path_kind(w->c, w->temp) == CKR_FILE_ABSENT) return CKR_OK;
    r = ckr__temp_lock(w);
    if (r == CKR_OK) ckr__remove_tree(w->c, w->temp);
    ckr__temp_unlock(w);
    return r;
}

/* The directory, with a lock on it. (A single file is locked when it has been created.) */
static ckr_result ckr__temp_make(ckr__write *w)
{
    ckr_io *io = &w->c->env.io;
    int32_t sys = io->path_fn(io->user, CKR_PATH_MKDIR, w->temp, NULL);
    if (sys == EEXIST) return ckr__temp_busy(w, sys);
    if (sys) return ckr__fail_io(w->c->err, CKR_ITEM_IO_MKDIR, w->temp, sys);
    w->owned = true;
    return ckr__temp_lock(w);
}

static void ckr__temp_remove(ckr__write *w)
{
    ckr_io *io = &w->c->env.io;
    uint64_t i;
    for (i = 0; i < w->files.n; i++) io->path_fn(io->user, CKR_PATH_REMOVE, w->files.list[i], NULL);
    for (i = w->dirs.n; i > 0; i--)
        io->path_fn(io->user, CKR_PATH_RMDIR, w->dirs.list[i - 1], NULL);
}

static ckr_result ckr__sync_file(ckr__ctx *c, const char *path)
{
    void *h;
    uint64_t size;
    int32_t sys = c->env.io.open_fn(c->env.io.user, path, false, &h, &size);
    if (sys) return ckr__fail_io(c->err, CKR_ITEM_IO_SYNC, path, sys);
    sys = c->env.io.sync_fn(c->env.io.user, h);
    c->env.io.close_fn(c->env.io.user, h);
    return sys ? ckr__fail_io(c->err, CKR_ITEM_IO_SYNC, path, sys) : CKR_OK;
}

/* Writes a small file of ours and makes it durable. */
static ckr_result ckr__write_text(ckr__ctx *c, const char *path, const void *text, size_t n)
{
    void *h;
    uint64_t size;
    int32_t sys = c->env.io.open_fn(c->env.io.user, path, true, &h, &size);
    if (sys) return ckr__fail_io(c->err, CKR_ITEM_IO_OPEN, path, sys);
    sys = n ? c->env.io.write_fn(c->env.io.user, h, 0, text, n) : 0;
    if (!sys) sys = c->env.io.sync_fn(c->env.io.user, h);
    c->env.io.close_fn(c->env.io.user, h);
    return sys ? ckr__fail_io(c->err, CKR_ITEM_IO_WRITE, path, sys) : CKR_OK;
}

/* "dir/name" -> "dir/.name.suffix"; trailing slashes do not count. */
static const char *ckr__sibling(ckr__ctx *c, const char *path, const char *suffix)
{
    size_t n = strlen(path), k;
    while (n > 1 && path[n - 1] == '/') n--;
    for (k = n; k > 0 && path[k - 1] != '/'; k--) {}
    return ckr__printf(c, "%.*s.%.*s.%s", (int)k, path, (int)(n - k), path + k, suffix);
}

static const char *ckr__parent(ckr__ctx *c, const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    while (n > 0 && path[n - 1] != '/') n--;
    if (n == 0) return ".";
    while (n > 1 && path[n - 1] == '/') n--;
    return ckr__strndup(c, path, n);
}

/* Is `inner` the directory `outer` or below it? By identity, so that spellings don't matter: from
   the deepest part that exists upwards through "..", which follows links as the system does. */
static bool ckr__path_within(ckr__ctx *c, const char *inner, const char *outer)
{
    ckr_stat o, at, last;
    const char *p = inner;
    int depth;
    memset(&last, 0, sizeof last);
    if (c->env.io.stat_fn(c->env.io.user, outer, &o) != 0 || o.kind == CKR_FILE_ABSENT)
        return false;
    while (p && ckr__path_kind(c, p) == CKR_FILE_ABSENT && strcmp(p, ".") && strcmp(p, "/"))
        p = ckr__parent(c, p);
    for (depth = 0; p && depth < 256; depth++) {
        if (c->env.io.stat_fn(c->env.io.user, p, &at) != 0 || at.kind == CKR_FILE_ABSENT) break;
        if (at.kind == o.kind && at.id[0] == o.id[0] && at.id[1] == o.id[1]) return true;
        if (at.id[0] == last.id[0] && at.id[1] == last.id[1]) break;      /* the root */
        last = at;
        p = at.kind == CKR_FILE_DIR ? ckr__path_join(c, p, "..") : ckr__parent(c, p);
    }
    return false;
}

/* What stands in the way of writing `path`; puts an old output back that a killed run left aside.
   */
static ckr_result ckr__output_check(ckr__ctx *c, const ckr_plan *p, const char *path,
                                    const char *old)
{
    ckr_file_kind kind = ckr__path_kind(c, path);
    const char *source = p->src->dir;
    if (ckr__path_kind(c, ckr__parent(c, path)) == CKR_FILE_ABSENT) {
        ckr_result r = ckr__fail(c->err, CKR_ITEM_PATH_NOT_FOUND, path, CKR_NO_OFFSET, NULL,
                                 "its parent directory does not exist");
        return ckr__remedy(c->err, r, "create the parent directory first");
    }
    if (kind == CKR_FILE_ABSENT && ckr__path_kind(c, old) != CKR_FILE_ABSENT) {
        ckr_result r = ckr__path_do(c, CKR_PATH_RENAME, old, path, CKR_ITEM_IO_RENAME);
        if (r != CKR_OK) return r;
        kind = ckr__path_kind(c, path);
    } else if (kind != CKR_FILE_ABSENT) {
        ckr__remove_tree(c, old);
    }
    if (ckr__path_within(c, path, source) || ckr__path_within(c, path, p->src->path) ||
        ckr__path_within(c, p->src->path, path))
        return ckr__fail(c->err, CKR_ITEM_OUTPUT_INSIDE, path, CKR_NO_OFFSET, NULL,
                         "the output lies inside the input (or the input inside it); a separate "
                         "directory was expected");
    if (kind != CKR_FILE_ABSENT && !p->target.force) {
        ckr_result r = ckr__fail(c->err, CKR_ITEM_OUTPUT_EXISTS, path, CKR_NO_OFFSET, NULL, NULL);
        return ckr__remedy(c->err, r, "--force replaces it when the new one is complete");
    }
    return CKR_OK;
}

/* The new output takes its name. Over an old directory in one step where the system can swap names:
   then the temporary name holds the old one. Else in two: the old one stands aside in between. */
static ckr_result ckr__output_rename(ckr__ctx *c, const char *temp, const char *path,
                                     const char *old, bool single)
{
    ckr_io *io = &c->env.io;
    const char *gone = NULL;
    ckr_result r = CKR_OK;
    const bool exists = ckr__path_kind(c, path) != CKR_FILE_ABSENT &&
                        !(single && ckr__path_kind(c, path) == CKR_FILE_REGULAR);
    if (exists && io->path_fn(io->user, CKR_PATH_EXCHANGE, temp, path) == 0) {
        gone = temp;
    } else {
        if (exists) r = ckr__path_do(c, CKR_PATH_RENAME, path, old, CKR_ITEM_IO_RENAME);
        if (r == CKR_OK) r = ckr__path_do(c, CKR_PATH_RENAME, temp, path, CKR_ITEM_IO_RENAME);
        if (r != CKR_OK && exists) io->path_fn(io->user, CKR_PATH_RENAME, old, path);
        if (exists) gone = old;
    }
    if (r != CKR_OK) return r;
    r = ckr__path_do(c, CKR_PATH_SYNC_DIR, ckr__parent(c, path), NULL, CKR_ITEM_IO_SYNC);
    if (gone) ckr__remove_tree(c, gone);       /* only when the new one is there to stay      */
    return r;
}

static void ckr__write_free(ckr__write *w)
{
    uint32_t i;
    const uint64_t n = w->crew.n_tensors;
    for (i = 0; i < w->crew.n; i++) {
        if (w->buffers) ckr__heap_free(w->c, w->buffers[i], (size_t)w->plan->facts.window_bytes);
        if (w->seen) ckr__heap_free(w->c, w->seen[i], (size_t)n * sizeof **w->seen);
    }
    ckr__crew_free(&w->crew);
}

static ckr_result ckr__write_alloc(ckr__write *w)
{
    uint64_t n = w->plan->src->state.n_tensors;
    uint32_t i;
    ckr_result r = ckr__crew_make(&w->crew, w->c, &w->plan->src->ctx, NULL, n ? n : 1);
    if (r != CKR_OK) return r;
    n = w->crew.n_tensors;
    w->buffers = CKR__NEW_N(w->c, uint8_t *, w->crew.n);
    w->seen = (uint64_t (**)[2])ckr__arena_n(w->c, w->crew.n, sizeof *w->seen);
    w->handles = CKR__NEW_N(w->c, void *, CKR__BATCH);
    if (!w->buffers || !w->seen || !w->handles) return w->c->err->code;
    for (i = 0; i < w->crew.n; i++) {
        w->buffers[i] = (uint8_t *)ckr__heap_alloc(w->c, (size_t)w->plan->facts.window_bytes);
        w->seen[i] = (uint64_t (*)[2])ckr__heap_alloc(w->c, (size_t)n * sizeof **w->seen);
        if (!w->buffers[i] || !w->seen[i]) return w->c->err->code;
        memset(w->seen[i], 0, (size_t)n * sizeof **w->seen);
    }
    return CKR_OK;
}

/* The digests of what was read and of what went into the files, and the side file's text. */
static ckr_result ckr__write_receipt(ckr__write *w, ckr_receipt *receipt, ckr__buf *side);

static ckr_result ckr__write_all(ckr__write *w, const char *path, const char *old,
                                 ckr_receipt *receipt)
{
    ckr__ctx *c = w->c;
    const ckr_plan *p = w->plan;
    uint64_t i;
    ckr__buf side;
    ckr_result r = CKR_OK;

    memset(&side, 0, sizeof side);
    side.c = c;
    if (!w->single) r = ckr__temp_make(w);
    for (i = 1; i < w->dirs.n && r == CKR_OK; i++)
        r = ckr__path_do(c, CKR_PATH_MKDIR, w->dirs.list[i], NULL, CKR_ITEM_IO_MKDIR);
    for (i = 0; i < p->out.n_files && r == CKR_OK; i += w->n_batch) {
        w->first_file = i;
        w->n_batch = p->out.n_files - i < CKR__BATCH ? p->out.n_files - i : CKR__BATCH;
        r = ckr__write_batch(w);
    }
    if (r == CKR_OK) r = ckr__write_receipt(w, receipt, &side);
    if (r == CKR_OK && !w->single)
        r = ckr__write_text(c, w->files.list[p->out.n_files], side.data, side.size);
    for (i = 0; i < p->out.n_files && r == CKR_OK; i++) r = ckr__sync_file(c, w->files.list[i]);
    for (i = w->dirs.n; i > 0 && r == CKR_OK; i--)
        r = ckr__path_do(c, CKR_PATH_SYNC_DIR, w->dirs.list[i - 1], NULL, CKR_ITEM_IO_SYNC);
    if (r == CKR_OK) r = ckr__output_rename(c, w->temp, path, old, w->single);
    ckr__buf_free(&side);
    return r;
}

CKR_API ckr_result ckr_plan_write(ckr_plan *p, const char *path, ckr_receipt *receipt,
                                  ckr_error *err)
{
    ckr__ctx c;
    ckr__write w;
    const char *old;
    ckr_result r = ckr__ctx_init(&c, &p->ctx.env, &p->ctx.limits, err);

    memset(&w, 0, sizeof w);
    if (r != CKR_OK) return r;
    if (!c.env.io.write_fn || !c.env.io.sync_fn || !c.env.io.path_fn)
        return ckr__fail(c.err, CKR_ITEM_ARG, NULL, CKR_NO_OFFSET, "env.io",
                         "write_fn, sync_fn and path_fn are needed to write");
    w.c = &c;
    w.plan = p;
    w.total = p->facts.bytes_written;
    w.single = p->out.n_files == 1 && !p->out.files[0]->path[0];
    w.temp = ckr__sibling(&c, path, "ckptresume-tmp");
    old = ckr__sibling(&c, path, "ckptresume-old");
    if (!w.temp || !old) r = c.err->code;
    else if (p->facts.verdict == CKR_VERDICT_REFUSED)
        r = ckr__fail(c.err, CKR_ITEM_PLAN_REFUSED, NULL, CKR_NO_OFFSET, NULL, NULL);
    else r = ckr__output_check(&c, p, path, old);
    if (r == CKR_OK) {
        r = ckr__temp_clear(&w);
        if (r == CKR_OK) r = ckr__write_alloc(&w);
        if (r == CKR_OK) r = ckr__temp_plan(&w);
        if (r == CKR_OK) r = ckr__write_all(&w, path, old, receipt);
        if (r != CKR_OK && w.owned) ckr__temp_remove(&w);
        ckr__temp_unlock(&w);
    }
    ckr__write_free(&w);
    ckr__ctx_free(&c);
    return r;
}

/* >>verify -------------------------------------------------------------------- */
/* Reading every byte: digests, checks, differences; and boxes into the caller's memory. All are
   lists of ops for the same engine. */

/* Every piece inside its file, no two claim the same elements, and together they are the whole
   tensor: the proof without which nothing is read. */
static ckr_result ckr__tensor_check(ckr__ctx *c, const ckr_tensor *t)
{
    int64_t numel, have = 0, start[CKR_MAX_DIMS], count[CKR_MAX_DIMS];
    uint32_t i, k, d;
    if (!ckr__numel(t->n_dims, t->shape, &numel))
        return ckr__fail(c->err, CKR_ITEM_SIZE_OVERFLOW, NULL, CKR_NO_OFFSET, t->name, NULL);
    for (i = 0; i < t->n_pieces; i++) {
        const ckr_piece *p = &t->pieces[i];
        uint64_t last = p->offset;
        for (d = 0; d < p->n_dims; d++) {
            uint64_t reach;
            if (p->start[d] < 0 || p->count[d] <= 0 || p->stride[d] < 0 ||
                p->start[d] > t->shape[d] || p->count[d] > t->shape[d] - p->start[d] ||
                !ckr__mul_u64((uint64_t)(p->count[d] - 1), (uint64_t)p->stride[d], &reach) ||
                !ckr__add_u64(last, reach, &last))
                goto range;
        }
        if (p->file != CKR_NO_FILE &&
            (p->file >= c->n_files ||
             !ckr__range_ok(last, ckr_dtype_size(p->dtype), c->files[p->file].size)))
            goto range;
        if (p->replica) continue;
        have += ckr__box_volume(t->n_dims, p->count);
        for (k = 0; k < i; k++)
            if (!t->pieces[k].replica &&
                ckr__box_meet(t->n_dims, p->start, p->count, t->pieces[k].start, t->pieces[k].count,
                              start, count))
                return ckr__fail(c->err, CKR_ITEM_TENSOR_OVERLAP, ckr__file_path(c, p->file),
                                 p->offset, t->name, "%s: these elements are in %s too", t->slot,
                                 ckr__file_path(c, t->pieces[k].file));
    }
    if (have != numel)
        return ckr__fail(c->err, CKR_ITEM_TENSOR_HOLE, NULL, CKR_NO_OFFSET, t->name,
                         "%s: %lld of %lld elements are in no file", t->slot,
                         (long long)(numel - have), (long long)numel);
    return CKR_OK;
range:
    return ckr__fail(c->err, CKR_ITEM_PIECE_RANGE, ckr__file_path(c, t->pieces[i].file),
                     t->pieces[i].offset, t->name, NULL);
}

/* Ops that read box [start, start + count) of a tensor into memory as `dst` has it; dst NULL:
   digest. */
static bool ckr__read_ops(ckr__ctx *c, ckr__jobs *jobs, const ckr_tensor *t, const int64_t *start,
                          const int64_t *count, const ckr_piece *dst, uint8_t *base)
{
    int64_t s[CKR_MAX_DIMS], n[CKR_MAX_DIMS];
    uint32_t i;
    for (i = 0; i < t->n_pieces; i++) {
        const ckr_piece *p = &t->pieces[i];
        ckr__op *op;
        if (p->replica || !ckr__box_meet(t->n_dims, start, count, p->start, p->count, s, n))
            continue;
        op = CKR__NEW(c, ckr__op);
        if (!op || !ckr__op_make(c, op, t, s, n, p, NULL, dst) || !ckr__jobs_add(c, jobs, op, base))
            return false;
    }
    return true;
}

static ckr_result ckr__read_add(ckr__ctx *c, ckr__jobs *jobs, const ckr_read *r)
{
    const ckr_tensor *t = r->tensor;
    int64_t *v = CKR__NEW_N(c, int64_t, 3 * (uint64_t)t->n_dims), numel;
    ckr_piece *dst = CKR__NEW(c, ckr_piece);
    ckr_dtype as = r->as == CKR_DTYPE_NONE ? t->dtype : r->as;
    uint32_t d;
    if (!v || !dst) return c->err->code;
    for (d = 0; d < t->n_dims; d++) {
        v[d] = r->start ? r->start[d] : 0;
        v[t->n_dims + d] = r->start ? r->count[d] : t->shape[d];
        if (v[d] < 0 || v[t->n_dims + d] < 0 || v[d] > t->shape[d] ||
            v[t->n_dims + d] > t->shape[d] - v[d])
            return ckr__fail(c->err, CKR_ITEM_BOX_RANGE, NULL, CKR_NO_OFFSET, t->name,
                             "axis %u: [%lld, +%lld) of %lld", (unsigned)d, (long long)v[d],
                             (long long)v[t->n_dims + d], (long long)t->shape[d]);
    }
    for (d = 0; d < t->n_dims; d++)
        v[2 * t->n_dims + d] =
            ckr__row_major(t->n_dims, v + t->n_dims, d) * (int64_t)ckr_dtype_size(as);
    dst->n_dims = t->n_dims;
    dst->start = v;
    dst->count = v + t->n_dims;
    dst->stride = v + 2 * (size_t)t->n_dims;
    dst->file = CKR_NO_FILE;
    dst->dtype = as;
    numel = ckr__box_volume(t->n_dims, dst->count);
    if ((uint64_t)numel * ckr_dtype_size(as) != r->dst_size)
        return ckr__fail(c->err, CKR_ITEM_DST_SIZE, NULL, CKR_NO_OFFSET, t->name,
                         "dst_size is %llu, the box needs %llu", (unsigned long long)r->dst_size,
                         (unsigned long long)((uint64_t)numel * ckr_dtype_size(as)));
    if (as != t->dtype && !(ckr__is_float(as) && ckr__is_float(t->dtype)))
        return ckr__fail(c->err, CKR_ITEM_CAST, NULL, CKR_NO_OFFSET, t->name,
                         "%s cannot be cast to %s", ckr_dtype_name(t->dtype), ckr_dtype_name(as));
    if (numel == 0) return CKR_OK;
    return ckr__read_ops(c, jobs, t, dst->start, dst->count, dst, (uint8_t *)r->dst) ? CKR_OK
                                                                                     : c->err->code;
}

CKR_API ckr_result ckr_ckpt_read(const ckr_ckpt *ckpt, const ckr_read *reads, size_t n,
                                 ckr_error *err)
{
    ckr__ctx c;
    ckr__crew crew;
    ckr__jobs jobs;
    size_t i;
    ckr_result r = ckr__ctx_init(&c, &ckpt->ctx.env, &ckpt->ctx.limits, err);
    memset(&jobs, 0, sizeof jobs);
    memset(&crew, 0, sizeof crew);
    for (i = 0; i < n && r == CKR_OK; i++) r = ckr__read_add(&c, &jobs, &reads[i]);
    if (r == CKR_OK) r = ckr__crew_make(&crew, &c, &ckpt->ctx, NULL, 0);
    if (r == CKR_OK) r = ckr__jobs_run(&jobs, &crew);
    ckr__crew_free(&crew);
    ckr__ctx_free(&c);
    return r;
}

/* Is it a scalar of the optimizer's step? */
static bool ckr__is_step(const ckr_tensor *t)
{
    int64_t numel;
    return !strcmp(t->slot, "step") && ckr__numel(t->n_dims, t->shape, &numel) && numel == 1 &&
           ckr_dtype_size(t->dtype) <= 8;
}

/* The bytes of every step scalar, [n_tensors][8], read in one go: each parameter has one. */
static ckr_result ckr__step_bytes(ckr__ctx *c, const ckr_ckpt *ckpt, uint8_t (**out)[8])
{
    const ckr_state *s = &ckpt->state;
    ckr_read *reads = CKR__NEW_N(c, ckr_read, s->n_tensors);
    size_t n = 0;
    uint64_t i;
    *out = (uint8_t (*)[8])ckr__arena_n(c, s->n_tensors, 8);
    if (!reads || !*out) return c->err->code;
    for (i = 0; i < s->n_tensors; i++) {
        if (!ckr__is_step(s->tensors[i])) continue;
        reads[n].tensor = s->tensors[i];
        reads[n].dst = (*out)[i];
        reads[n++].dst_size = ckr_dtype_size(s->tensors[i]->dtype);
    }
    return n ? ckr_ckpt_read(ckpt, reads, n, c->err) : CKR_OK;
}

/* A step scalar as an integer; false when it is none. */
static bool ckr__step_value(const ckr_tensor *t, const uint8_t bytes[8], int64_t *out)
{
    const size_t size = ckr_dtype_size(t->dtype);
    uint8_t native[8];
    double v;
    memcpy(native, bytes, 8);
    if (ckr__host_big_endian()) ckr__swap_bytes(native, size, size);
    v = ckr__load_f64(t->dtype, native);
    if (!(v > -9e15 && v < 9e15)) return false;
    *out = (int64_t)v;
    return !((double)*out < v) && !((double)*out > v);
}

static int ckr__tensor_cmp(const void *a, const void *b)
{
    const ckr_tensor *x = (const ckr_tensor *)a, *y = (const ckr_tensor *)b;
    int r = strcmp(x->name, y->name);
    return r ? r : strcmp(x->slot, y->slot);
}

/* The total: SHA-256 over the tensors in order of (name, slot): name, NUL, slot, NUL, 16 bytes; its
   first 16 bytes. `step` stands as the digest of an int64 scalar; a master equal to its fp32
   parameter is left out. `use` (or NULL) says which tensors count. */
static ckr_result ckr__digest_total(ckr__ctx *c, const ckr_ckpt *ckpt, const uint8_t (*each)[16],
                                    const bool *use, uint8_t total[16])
{
    const ckr_state *s = &ckpt->state;
    void **order = (void **)ckr__arena_n(c, s->n_tensors, sizeof *order);
    ckr__sha256 h;
    ckr__digest_tables *tables = CKR__NEW(c, ckr__digest_tables);
    uint8_t sum[32], (*steps)[8];
    const ckr_tensor *param = NULL;
    uint64_t i, pass;
    if (!order || !tables || ckr__step_bytes(c, ckpt, &steps) != CKR_OK) return c->err->code;
    for (i = 0; i < s->n_tensors; i++) order[i] = s->tensors[i];
    if (!ckr__sort(c, order, (size_t)s->n_tensors, ckr__tensor_cmp)) return CKR_E_NOMEM;
    ckr__digest_tables_init(tables);
    ckr__sha256_init(&h);
    for (i = 0; i < s->n_tensors; i++) {
        const ckr_tensor *t = (const ckr_tensor *)order[i];
        uint8_t d[16];
        int64_t step;
        if (use && !use[t->index]) continue;
        memcpy(d, each[t->index], 16);
        if (!strcmp(t->slot, "master")) {          /* "param" sorts after "master": look ahead */
            for (param = NULL, pass = i + 1; pass < s->n_tensors; pass++) {
                const ckr_tensor *u = (const ckr_tensor *)order[pass];
                if (strcmp(u->name, t->name)) break;
                if (!strcmp(u->slot, "param")) param = u;
            }
            if (param && param->dtype == CKR_DTYPE_F32 && !memcmp(each[param->index], d, 16))
                continue;
        }
        if (ckr__is_step(t) && ckr__step_value(t, steps[t->index], &step)) {
            uint64_t acc[2] = { 0, 0 };
            uint8_t le[8];
            ckr__store_u64(le, (uint64_t)step);
            ckr__digest_add(tables, acc, 0, le, 8);
            ckr__digest_final(acc, CKR_DTYPE_I64, 0, NULL, d);
        }
        ckr__sha256_update(&h, t->name, strlen(t->name) + 1);
        ckr__sha256_update(&h, t->slot, strlen(t->slot) + 1);
        ckr__sha256_update(&h, d, 16);
    }
    ckr__sha256_final(&h, sum);
    memcpy(total, sum, 16);
    return CKR_OK;
}

static ckr_result ckr__digest_all(ckr__ctx *c, const ckr_ckpt *ckpt, uint8_t (*each)[16],
                                  uint64_t *bytes)
{
    const ckr_state *s = &ckpt->state;
    int64_t zero[CKR_MAX_DIMS];
    ckr__crew crew;
    ckr__jobs jobs;
    uint64_t i;
    uint32_t k;
    ckr_result r = CKR_OK;
    memset(zero, 0, sizeof zero);
    memset(&jobs, 0, sizeof jobs);
    memset(&crew, 0, sizeof crew);
    for (i = 0; i < s->n_tensors && r == CKR_OK; i++)
        if (!ckr__read_ops(c, &jobs, s->tensors[i], zero, s->tensors[i]->shape, NULL, NULL))
            r = c->err->code;
    if (r == CKR_OK)
        r = ckr__crew_make(&crew, c, &ckpt->ctx, NULL, s->n_tensors ? s->n_tensors : 1);
    if (r == CKR_OK) r = ckr__jobs_run(&jobs, &crew);
    for (i = 0; i < s->n_tensors && r == CKR_OK; i++) {
        uint64_t acc[2] = { 0, 0 };
        for (k = 0; k < crew.n; k++) {
            acc[0] += crew.lanes[k].sums[i][0];
            acc[1] += crew.lanes[k].sums[i][1];
        }
        ckr__digest_final(acc, s->tensors[i]->dtype, s->tensors[i]->n_dims, s->tensors[i]->shape,
                          each[i]);
    }
    for (k = 0; bytes && k < crew.n && crew.lanes; k++) *bytes += crew.lanes[k].bytes_read;
    ckr__crew_free(&crew);
    return r;
}

CKR_API ckr_result ckr_ckpt_digest(const ckr_ckpt *ckpt, uint8_t (*each)[16], uint8_t total[16],
                                   ckr_error *err)
{
    ckr__ctx c;
    ckr_result r = ckr__ctx_init(&c, &ckpt->ctx.env, &ckpt->ctx.limits, err);
    uint8_t (*own)[16] = each;
    if (r == CKR_OK && !own) {
        own = (uint8_t (*)[16])ckr__arena_n(&c, ckpt->state.n_tensors, 16);
        if (!own) r = c.err->code;
    }
    if (r == CKR_OK) r = ckr__digest_all(&c, ckpt, own, NULL);
    if (r == CKR_OK) r = ckr__digest_total(&c, ckpt, (const uint8_t (*)[16])own, NULL, total);
    ckr__ctx_free(&c);
    return r;
}

/* >>verify.check: copies, masters, checksums */

typedef struct ckr__checker {
    ckr__ctx        c;         /* owns the notes                                        */
    const ckr_ckpt *ckpt;
    ckr_note       *notes;
    uint64_t        n_notes, bytes_read;
} ckr__checker;

/* Compares where boxes of x and y meet; sums into the lane that ran it. One comparison at a time,
   so that its counts are its own; tensors large enough to matter are cut over all lanes. */
static ckr_result ckr__compare(ckr__ctx *c, const ckr__ctx *a, const ckr__ctx *b, ckr__crew *crew,
                               const ckr_tensor *x, const ckr_piece *px, uint32_t nx,
                               const ckr_piece *py, uint32_t ny, bool skip_x_replicas)
{
    int64_t s[CKR_MAX_DIMS], n[CKR_MAX_DIMS];
    ckr__jobs jobs;
    uint32_t i, k;
    (void)a;
    (void)b;
    memset(&jobs, 0, sizeof jobs);
    for (i = 0; i < crew->n; i++) {
        crew->lanes[i].n_differ = crew->lanes[i].max_ulp = 0;
        crew->lanes[i].max_abs = 0;
    }
    for (i = 0; i < nx; i++)
        for (k = 0; k < ny; k++) {
            ckr__op *op;
            if (skip_x_replicas && px[i].replica) continue;
            if (!ckr__box_meet(x->n_dims, px[i].start, px[i].count, py[k].start, py[k].count, s, n))
                continue;
            op = CKR__NEW(c, ckr__op);
            if (!op || !ckr__op_make(c, op, x, s, n, &px[i], &py[k], NULL) ||
                !ckr__jobs_add(c, &jobs, op, NULL))
                return c->err->code;
        }
    return ckr__jobs_run(&jobs, crew);
}

static uint64_t ckr__crew_differ(const ckr__crew *crew)
{
    uint64_t n = 0;
    uint32_t i;
    for (i = 0; i < crew->n; i++) n += crew->lanes[i].n_differ;
    return n;
}

static ckr_result ckr__check_replicas(ckr__checker *k, ckr__crew *crew, const ckr_tensor *t)
{
    uint32_t i;
    ckr_result r = CKR_OK;
    for (i = 0; i < t->n_pieces && r == CKR_OK; i++) {
        uint64_t n;
        if (!t->pieces[i].replica) continue;
        r = ckr__compare(&k->c, &k->ckpt->ctx, &k->ckpt->ctx, crew, t, t->pieces, t->n_pieces,
                         &t->pieces[i], 1, true);
        n = ckr__crew_differ(crew);
        if (r == CKR_OK && n) {
            char what[512];
            snprintf(what, sizeof what,
                     "%llu elements of the copy in %.300s differ from the first one",
                     (unsigned long long)n, ckr__file_path(&k->ckpt->ctx, t->pieces[i].file));
            if (!ckr__note(&k->c, &k->notes, &k->n_notes, "CKR_E_REPLICA_DIFFERS", CKR_ERROR,
                           ckr__printf(&k->c, "%s (%s)", t->name, t->slot), NULL, NULL, what, NULL))
                r = k->c.err->code;
        }
    }
    return r;
}

static ckr_result ckr__check_master(ckr__checker *k, ckr__crew *crew, const ckr_tensor *master,
                                    const ckr_tensor *param)
{
    ckr_result r;
    char what[160];
    uint64_t n;
    if (!param || !ckr__is_float(param->dtype) || !ckr__is_float(master->dtype) ||
        param->n_dims != master->n_dims ||
        memcmp(param->shape, master->shape, param->n_dims * sizeof *param->shape))
        return CKR_OK;
    r = ckr__compare(&k->c, &k->ckpt->ctx, &k->ckpt->ctx, crew, master, master->pieces,
                     master->n_pieces, param->pieces, param->n_pieces, true);
    n = ckr__crew_differ(crew);
    if (r != CKR_OK || !n) return r;
    snprintf(what, sizeof what, "%llu elements of the %s master do not round to the %s parameter",
             (unsigned long long)n, ckr_dtype_name(master->dtype), ckr_dtype_name(param->dtype));
    return ckr__note(&k->c, &k->notes, &k->n_notes, "CKR_E_MASTER_DIFFERS", CKR_ERROR, master->name,
                     NULL, NULL, what, NULL)
               ? CKR_OK
               : k->c.err->code;
}

static ckr_result ckr__check_side(ckr__checker *k, const uint8_t (*each)[16]);
static ckr_result ckr__check_members(ckr__checker *k);

static ckr_result ckr__check_all(ckr__checker *k)
{
    const ckr_state *s = &k->ckpt->state;
    ckr__crew crew;
    ckr__map params;
    uint64_t i, at;
    uint32_t n;
    uint8_t (*each)[16] = (uint8_t (*)[16])ckr__arena_n(&k->c, s->n_tensors, 16);
    ckr_result r = each ? ckr__check_members(k) : k->c.err->code;

    memset(&params, 0, sizeof params);
    memset(&crew, 0, sizeof crew);
    params.c = &k->c;
    if (r == CKR_OK) r = ckr__digest_all(&k->c, k->ckpt, each, &k->bytes_read);
    if (r == CKR_OK) r = ckr__check_side(k, (const uint8_t (*)[16])each);
    if (r == CKR_OK) r = ckr__crew_make(&crew, &k->c, &k->ckpt->ctx, &k->ckpt->ctx, 0);
    for (i = 0; i < s->n_tensors && r == CKR_OK; i++)
        if (!strcmp(s->tensors[i]->slot, "param") &&
            !ckr__map_put(&params, s->tensors[i]->name, strlen(s->tensors[i]->name), i, NULL))
            r = k->c.err->code;
    for (i = 0; i < s->n_tensors && r == CKR_OK; i++) {
        const ckr_tensor *t = s->tensors[i];
        r = ckr__check_replicas(k, &crew, t);
        if (r == CKR_OK && !strcmp(t->slot, "master") &&
            ckr__map_find(&params, t->name, strlen(t->name), &at))
            r = ckr__check_master(k, &crew, t, s->tensors[at]);
    }
    for (n = 0; crew.lanes && n < crew.n; n++) k->bytes_read += crew.lanes[n].bytes_read;
    ckr__map_free(&params);
    ckr__crew_free(&crew);
    return r;
}

CKR_API ckr_result ckr_ckpt_check(const ckr_ckpt *ckpt, ckr_report *out, ckr_error *err)
{
    ckr_result r;
    uint64_t i;
    ckr__checker *k = (ckr__checker *)ckr__owner_make(&ckpt->ctx.env, &ckpt->ctx.limits, sizeof *k,
                                                      err, &r);
    memset(out, 0, sizeof *out);
    if (!k) return r;
    k->ckpt = ckpt;
    r = ckr__check_all(k);
    out->notes = k->notes;
    out->n_notes = k->n_notes;
    out->bytes_read = k->bytes_read;
    out->_owner = k;
    out->sound = r == CKR_OK;
    for (i = 0; i < k->n_notes; i++)
        if (k->notes[i].severity == CKR_ERROR) out->sound = false;
    if (r != CKR_OK) ckr_report_free(out);
    return r;
}

CKR_API void ckr_report_free(ckr_report *r)
{
    ckr__owner_free(r->_owner, sizeof(ckr__checker));
    memset(r, 0, sizeof *r);
}

/* >>verify.diff: two checkpoints of any format and topology */

typedef struct ckr__differ {
    ckr__ctx         c;
    const ckr_ckpt  *a, *b;
    ckr_tensor_diff *tensors;
    uint64_t         n_tensors;
    ckr_note        *others;
    uint64_t         n_others;
} ckr__differ;

static ckr_tensor_diff *ckr__diff_add(ckr__differ *d, const ckr_tensor *t, int where)
{
    void *array = d->tensors;
    ckr_tensor_diff *x = (ckr_tensor_diff *)ckr__append(&d->c, &array, &d->n_tensors, sizeof *x);
    d->tensors = (ckr_tensor_diff *)array;
    if (!x) return NULL;
    memset(x, 0, sizeof *x);
    x->name = t->name;
    x->slot = t->slot;
    x->where = where;
    x->n_elements = (uint64_t)ckr__box_volume(t->n_dims, t->shape);
    return x;
}

static ckr_result ckr__diff_tensor(ckr__differ *d, ckr__crew *crew, const ckr_tensor *x,
                                   const ckr_tensor *y)
{
    ckr_tensor_diff *out;
    uint32_t i;
    uint64_t n;
    ckr_result r;
    if (x->dtype != y->dtype || x->n_dims != y->n_dims ||
        memcmp(x->shape, y->shape, x->n_dims * sizeof *x->shape))
        return ckr__diff_add(d, x, 0) ? CKR_OK : d->c.err->code;
    r = ckr__compare(&d->c, &d->a->ctx, &d->b->ctx, crew, x, x->pieces, x->n_pieces, y->pieces,
                     y->n_pieces, true);
    n = ckr__crew_differ(crew);
    if (r != CKR_OK || !n) return r;
    out = ckr__diff_add(d, x, 0);
    if (!out) return d->c.err->code;
    out->n_elements = n;
    for (i = 0; i < crew->n; i++) {
        if (crew->lanes[i].max_ulp > out->max_ulp) out->max_ulp = crew->lanes[i].max_ulp;
        if (crew->lanes[i].max_abs > out->max_abs || !(crew->lanes[i].max_abs <= DBL_MAX))
            out->max_abs = crew->lanes[i].max_abs;
    }
    return CKR_OK;
}

/* Tensors of both sides in one order, like a merge of two sorted lists. */
static ckr_result ckr__diff_tensors(ckr__differ *d)
{
    const ckr_state *s = &d->a->state, *t = &d->b->state;
    void **x = (void **)ckr__arena_n(&d->c, s->n_tensors, sizeof *x),
         **y = (void **)ckr__arena_n(&d->c, t->n_tensors, sizeof *y);
    uint64_t i, k;
    ckr__crew crew;
    ckr_result r;
    if (!x || !y) return d->c.err->code;
    for (i = 0; i < s->n_tensors; i++) x[i] = s->tensors[i];
    for (i = 0; i < t->n_tensors; i++) y[i] = t->tensors[i];
    if (!ckr__sort(&d->c, x, (size_t)s->n_tensors, ckr__tensor_cmp) ||
        !ckr__sort(&d->c, y, (size_t)t->n_tensors, ckr__tensor_cmp))
        return CKR_E_NOMEM;
    r = ckr__crew_make(&crew, &d->c, &d->a->ctx, &d->b->ctx, 0);
    for (i = k = 0; r == CKR_OK && (i < s->n_tensors || k < t->n_tensors);) {
        int order = i >= s->n_tensors ? 1 : k >= t->n_tensors ? -1 : ckr__tensor_cmp(x[i], y[k]);
        if (order == 0)
            r = ckr__diff_tensor(d, &crew, (const ckr_tensor *)x[i], (const ckr_tensor *)y[k]);
        else if (!ckr__diff_add(d, (const ckr_tensor *)(order < 0 ? x[i] : y[k]), order))
            r = d->c.err->code;
        if (order <= 0) i++;
        if (order >= 0) k++;
    }
    ckr__crew_free(&crew);
    return r;
}

static ckr_result ckr__diff_others(ckr__differ *d);

CKR_API ckr_result ckr_ckpt_diff(const ckr_ckpt *a, const ckr_ckpt *b, ckr_diff *out,
                                 ckr_error *err)
{
    ckr_result r;
    ckr__differ *d = (ckr__differ *)ckr__owner_make(&a->ctx.env, &a->ctx.limits, sizeof *d, err,
                                                    &r);
    memset(out, 0, sizeof *out);
    if (!d) return r;
    d->a = a;
    d->b = b;
    r = ckr__diff_tensors(d);
    if (r == CKR_OK) r = ckr__diff_others(d);
    out->tensors = d->tensors;
    out->n_tensors = d->n_tensors;
    out->others = d->others;
    out->n_others = d->n_others;
    out->_owner = d;
    if (r != CKR_OK) ckr_diff_free(out);
    return r;
}

CKR_API void ckr_diff_free(ckr_diff *out)
{
    ckr__owner_free(out->_owner, sizeof(ckr__differ));
    memset(out, 0, sizeof *out);
}

/* >>verify.members: CRC-32 of every member of every zip archive that the checkpoint opened */

typedef struct ckr__crc_job {
    ckr__file *file;
    const ckr__member *member;
    bool wrong;
} ckr__crc_job;
typedef struct ckr__crc_jobs {
    ckr__ctx *c;
    ckr__crew *crew;
    ckr__crc_job *list;
    uint64_t n, cap;
} ckr__crc_jobs;

static bool ckr__crc_file(const ckr__crc_jobs *j, ckr__lane *w, const ckr__crc_job *x,
                          uint32_t *crc)
{
    uint64_t at = x->member->offset, left = x->member->size;
    *crc = 0;
    while (left) {
        size_t n = left < CKR__BLOCK ? (size_t)left : CKR__BLOCK;
        int32_t sys = j->c->env.io.read_fn(j->c->env.io.user, x->file->handle, at, w->block[0], n);
        if (sys) return ckr__fail_io(&w->err, CKR_ITEM_IO_READ, x->file->path, sys) == CKR_OK;
        *crc = ckr__crc32(*crc, w->block[0], n);
        w->bytes_read += n;
        at += n;
        left -= n;
    }
    return true;
}

static void ckr__crc_lane(void *arg, uint32_t lane)
{
    ckr__crc_jobs *j = (ckr__crc_jobs *)arg;
    ckr__lane *w = &j->crew->lanes[lane];
    uint64_t i;
    for (i = lane; i < j->n && w->err.code == CKR_OK; i += j->crew->n) {
        uint32_t crc;
        if (!ckr__crc_file(j, w, &j->list[i], &crc)) return;
        j->list[i].wrong = crc != j->list[i].member->crc;
    }
}

/* Adds the members of one file when it is a zip archive; a CRC of 0 means that the writer computed
   none. */
static ckr_result ckr__crc_collect(ckr__checker *k, ckr__crc_jobs *j, const char *path)
{
    uint8_t magic[4];
    uint32_t file;
    ckr__zip z;
    uint64_t i;
    ckr_result r = ckr__file_open(&k->c, path, &file);
    if (r != CKR_OK || k->c.files[file].size < 22) return r;
    r = ckr__file_read(&k->c, file, 0, magic, 4);
    if (r != CKR_OK || memcmp(magic, "PK\003\004", 4) != 0) return r;
    r = ckr__zip_open(&k->c, file, 0, k->c.files[file].size, &z);
    for (i = 0; i < z.n && r == CKR_OK; i++) {
        ckr__crc_job *x;
        void *array = j->list;
        if (!z.members[i].crc || !z.members[i].size) continue;
        if (!ckr__arena_grow(&k->c, &array, &j->cap, j->n + 1, sizeof *x)) return k->c.err->code;
        j->list = (ckr__crc_job *)array;
        x = &j->list[j->n++];
        memset(x, 0, sizeof *x);
        x->file = CKR__NEW(&k->c, ckr__file);      /* the table of files moves when it grows */
        if (!x->file) return k->c.err->code;
        *x->file = k->c.files[file];
        x->member = &z.members[i];
    }
    return r;
}

static ckr_result ckr__check_members(ckr__checker *k)
{
    ckr__crc_jobs j;
    ckr__crew crew;
    uint64_t i;
    uint32_t n;
    ckr_result r = CKR_OK;
    memset(&j, 0, sizeof j);
    memset(&crew, 0, sizeof crew);
    j.c = &k->c;
    for (n = 0; n < k->ckpt->ctx.n_files && r == CKR_OK; n++)
        r = ckr__crc_collect(k, &j, k->ckpt->ctx.files[n].path);
    if (r == CKR_OK) r = ckr__crew_make(&crew, &k->c, &k->ckpt->ctx, NULL, 0);
    if (r == CKR_OK) {
        j.crew = &crew;
        k->c.env.parallel.for_fn(k->c.env.parallel.user, crew.n, crew.n, ckr__crc_lane, &j);
        r = ckr__crew_error(&crew);
    }
    for (n = 0; crew.lanes && n < crew.n; n++) k->bytes_read += crew.lanes[n].bytes_read;
    for (i = 0; i < j.n && r == CKR_OK; i++)
        if (j.list[i].wrong &&
            !ckr__note(&k->c, &k->notes, &k->n_notes, "CKR_E_MEMBER_CRC", CKR_ERROR,
                       ckr__printf(&k->c, "%s: %s", j.list[i].file->path, j.list[i].member->name),
                       NULL, NULL, "the member's bytes do not match its CRC-32", NULL))
            r = k->c.err->code;
    ckr__crew_free(&crew);
    return r;
}

/* >>ckpt ---------------------------------------------------------------------- */
/* Opening: which dialect a path belongs to, the side file beside it, the state. */

/* The first dialect that knows the path; the plain ones, which take any file, come last. */
static ckr_result ckr__recognise(ckr__ctx *c, const char *path, const char *name,
                                 const ckr__dialect **d, const char **dir)
{
    size_t i;
    bool mine = false;
    ckr_stat st;
    ckr_result r = CKR_OK;
    int32_t sys = c->env.io.stat_fn(c->env.io.user, path, &st);
    if (sys) return ckr__fail_io(c->err, CKR_ITEM_IO_OPEN, path, sys);
    if (st.kind == CKR_FILE_ABSENT)
        return ckr__fail(c->err, CKR_ITEM_PATH_NOT_FOUND, path, CKR_NO_OFFSET, NULL, NULL);
    if (name) {
        *d = ckr__dialect_find(name);
        if (!*d) return ckr__dialect_unknown(c, name);
        return (*d)->probe_fn(c, path, dir, &mine);
    }
    for (i = 0; i < sizeof ckr__dialects / sizeof *ckr__dialects && r == CKR_OK && !mine; i++) {
        *d = ckr__dialects[i];
        r = (*d)->probe_fn(c, path, dir, &mine);
    }
    if (r == CKR_OK && !mine) {
        r = ckr__fail(c->err, CKR_ITEM_UNKNOWN_CHECKPOINT, path, CKR_NO_OFFSET, NULL,
                      "the directory holds nothing that a known framework writes; a checkpoint or "
                      "run directory was expected");
        return ckr__remedy(c->err, r, "name the step's directory, or give --dialect");
    }
    return r;
}

/* One in the run directory belongs to the checkpoint that it names, not to its neighbours. */
static bool ckr__side_names(const ckr_node *side, const char *dir)
{
    const char *name = ckr_node_str(ckr_node_get(side, "checkpoint"));
    size_t n = strlen(dir), k;
    while (n > 1 && dir[n - 1] == '/') n--;
    for (k = n; k > 0 && dir[k - 1] != '/'; k--) {}
    return name && strlen(name) == n - k && !memcmp(name, dir + k, n - k);
}

/* The side file of a checkpoint: in its directory, or in the run directory above. NULL when there
   is none. */
static ckr_result ckr__side_load(ckr__ctx *c, const char *dir, ckr_node **side)
{
    const char *tries[2], *path = NULL;
    const uint8_t *text;
    uint64_t n;
    int i;
    ckr_result r;
    *side = NULL;
    if (ckr__path_kind(c, dir) != CKR_FILE_DIR) return CKR_OK;
    tries[0] = dir;
    tries[1] = ckr__parent(c, dir);
    for (i = 0; i < 2 && !path; i++) {
        const char *p = tries[i] ? ckr__path_join(c, tries[i], CKR__SIDE_FILE) : NULL;
        if (!p) return c->err->code;
        if (ckr__path_kind(c, p) == CKR_FILE_REGULAR) path = p;
    }
    if (!path) return CKR_OK;
    r = ckr__path_load(c, path, c->limits.max_json_bytes, &text, &n, NULL);
    if (r == CKR_OK) r = ckr__json_parse(c, path, 0, text, (size_t)n, 0, side);
    if (r == CKR_OK && !ckr_node_is_dict(*side))
        r = ckr__fail(c->err, CKR_ITEM_SIDE_FORMAT, path, 0, NULL, NULL);
    if (r == CKR_OK && i == 2 && !ckr__side_names(*side, dir)) *side = NULL;
    return r;
}

/* The caller knows the saved run's schedule where no file holds its curve. */
static ckr_result ckr__told_schedule(ckr__ctx *c, ckr_state *s, const char *spec)
{
    const ckr_schedule *old = s->n_schedules ? s->schedules : NULL;
    const uint64_t n = old ? old->n_lanes : s->n_groups;
    double *bases;
    ckr_schedule *x;
    uint64_t i;
    ckr_result r;
    if (!spec) return CKR_OK;
    if (old && !old->opaque)
        return ckr__note(c, &s->notes, &s->n_notes, "CKR_SCHEDULE_KNOWN", CKR_EXACT, old->kind, NULL,
                         NULL, "the checkpoint tells its schedule: --schedule was not needed", NULL)
                   ? CKR_OK
                   : c->err->code;
    bases = CKR__NEW_N(c, double, n);
    if (!bases) return c->err->code;
    for (i = 0; i < n; i++) {
        bases[i] = old ? old->lanes[i].base : ckr__nan();
        if (!old && !ckr_node_f64(ckr_node_get(s->groups[i].hyper, "initial_lr"), &bases[i]))
            ckr_node_f64(ckr_node_get(s->groups[i].hyper, "lr"), &bases[i]);
    }
    r = ckr__sched_parse(c, spec, n ? bases : NULL, n, &x);
    if (r != CKR_OK) return r;
    x->position = old ? old->position : s->progress.step > 0 ? s->progress.step : 0;
    x->state = old ? old->state : NULL;
    s->schedules = x;
    s->n_schedules = 1;
    return CKR_OK;
}

/* The clock stands where the checkpoint says, whatever its rate: updates that were skipped, or
   another batch before, are in the offset. */
static void ckr__clock_align(ckr_state *s)
{
    uint64_t i;
    for (i = 0; i < s->n_schedules && s->progress.step >= 0; i++) {
        ckr_schedule *x = &s->schedules[i];
        x->offset = (double)x->position - x->rate * (double)s->progress.step;
    }
}

static ckr_result ckr__state_read(ckr_ckpt *k, const ckr__dialect *d, const ckr_open_desc *desc)
{
    ckr__ctx *c = &k->ctx;
    const int64_t vocab = desc ? desc->vocab : 0;
    int64_t told = 0, padded = 0;
    ckr_result r;
    ckr_node_i64(ckr_node_find(k->side, "/vocab/logical"), &told);
    ckr_node_i64(ckr_node_find(k->side, "/vocab/padded"), &padded);
    ckr__state_init(&k->state);
    k->state.vocab = vocab ? vocab : told;
    r = d->read_fn(c, k->dir, desc, &k->state);
    if (r == CKR_OK && !vocab && told && k->state.padded_vocab != padded) {
        ckr__state_init(&k->state); /* the files win: another padding than was written */
        r = d->read_fn(c, k->dir, desc, &k->state);
        if (r == CKR_OK &&
            !ckr__note(c, &k->state.notes, &k->state.n_notes, "CKR_W_SIDE_FILE", CKR_CHANGED,
                       CKR__SIDE_FILE, NULL, NULL,
                       "its vocabulary does not belong to these files; it was not used", NULL))
            r = c->err->code;
    }
    if (r == CKR_OK) r = ckr__told_schedule(c, &k->state, desc ? desc->schedule : NULL);
    ckr__clock_align(&k->state);
    return r;
}

static ckr_result ckr__open(ckr_ckpt *k, const char *path, const ckr_open_desc *desc)
{
    ckr__ctx *c = &k->ctx;
    const ckr__dialect *d = NULL;
    uint64_t i;
    ckr_result r;
    k->path = ckr__strdup(c, path);
    if (!k->path) return c->err->code;
    r = ckr__recognise(c, path, desc ? desc->dialect : NULL, &d, &k->dir);
    if (r == CKR_OK) r = ckr__side_load(c, k->dir, &k->side);
    if (r == CKR_OK) r = ckr__state_read(k, d, desc);
    for (i = 0; i < k->state.n_tensors && r == CKR_OK; i++)
        r = ckr__tensor_check(c, k->state.tensors[i]);
    return r;
}

static ckr_result ckr__ckpt_new(const ckr_open_desc *desc, ckr_ckpt **out, ckr_error *err)
{
    ckr_result r;
    *out = (ckr_ckpt *)ckr__owner_make(desc ? desc->env : NULL, desc ? &desc->limits : NULL,
                                       sizeof **out, err, &r);
    if (*out) ckr__state_init(&(*out)->state);
    return r;
}

CKR_API ckr_result ckr_ckpt_open(const char *path, const ckr_open_desc *desc, ckr_ckpt **out,
                                 ckr_error *err)
{
    ckr_result r = ckr__ckpt_new(desc, out, err);
    if (r != CKR_OK) return r;
    r = ckr__open(*out, path, desc);
    (*out)->ctx.err = &(*out)->ctx.own_err;         /* the caller's error ends with the call   */
    if (r != CKR_OK) {
        ckr_ckpt_close(*out);
        *out = NULL;
    }
    return r;
}

CKR_API ckr_result ckr_ckpt_create(const ckr_open_desc *desc, ckr_ckpt **out, ckr_error *err)
{
    ckr_result r = ckr__ckpt_new(desc, out, err);
    if (r != CKR_OK) return r;
    (*out)->ctx.err = &(*out)->ctx.own_err;
    (*out)->path = "";
    (*out)->dir = "";
    (*out)->state.dialect = "safetensors";
    return CKR_OK;
}

CKR_API ckr_result ckr_ckpt_put(ckr_ckpt *k, const char *name, const char *slot, ckr_dtype dtype,
                                uint32_t n_dims, const int64_t *shape, const void *data,
                                ckr_error *err)
{
    ckr__ctx *c = &k->ctx;
    ckr__reader r;
    ckr__block *b;
    int64_t numel;
    ckr_result result = CKR_OK;
    ckr__ctx_enter(c, err);
    memset(&r, 0, sizeof r);
    name = ckr__strdup(c, name);
    slot = ckr__strdup(c, slot);
    if (n_dims > CKR_MAX_DIMS || !ckr_dtype_size(dtype) || !ckr__numel(n_dims, shape, &numel) ||
        numel > INT64_MAX / (int64_t)ckr_dtype_size(dtype)) {
        result = ckr__fail(c->err, CKR_ITEM_ARG, NULL, CKR_NO_OFFSET, name,
                           "no dtype, over 8 axes, or a size that does not fit");
    } else if (name && slot) {
        r.c = c;
        r.dtype = dtype;
        r.rank = -1;
        r.file = CKR_NO_FILE;
        r.mem = data;
        r.big_endian = ckr__host_big_endian();
        r.tensor = ckr__tensor_add(c, &k->state, name, slot, dtype, n_dims, shape);
        b = ckr__block_whole(c, n_dims, shape);
        if (!r.tensor || !b || !ckr__read_flat(&r, b, 0, numel, 0)) result = c->err->code;
    } else {
        result = c->err->code;
    }
    c->err = &c->own_err;
    return result;
}

CKR_API void ckr_ckpt_close(ckr_ckpt *k)
{
    ckr__owner_free(k, sizeof *k);
}

CKR_API const ckr_state *ckr_ckpt_state(const ckr_ckpt *c)
{
    return &c->state;
}

CKR_API const char *ckr_ckpt_path(const ckr_ckpt *c)
{
    return c->dir ? c->dir : c->path;
}

CKR_API uint32_t ckr_ckpt_files(const ckr_ckpt *c, uint64_t *bytes)
{
    uint32_t i;
    uint64_t n = 0;
    for (i = 0; i < c->ctx.n_files; i++) n += c->ctx.files[i].size;
    if (bytes) *bytes = n;
    return c->ctx.n_files;
}

CKR_API const ckr_tensor *ckr_ckpt_tensor(const ckr_ckpt *c, const char *name, const char *slot)
{
    return ckr__tensor_find(&c->state, name, slot);
}

CKR_API ckr_result ckr_tree_open(const char *path, const ckr_open_desc *desc, ckr_ckpt **out,
                                 ckr_error *err)
{
    ckr_ckpt *k;
    uint32_t file;
    ckr_result r = ckr__ckpt_new(desc, out, err);
    if (r != CKR_OK) return r;
    k = *out;
    k->path = ckr__strdup(&k->ctx, path);
    r = k->path ? ckr__file_open(&k->ctx, path, &file) : k->ctx.err->code;
    if (r == CKR_OK) r = ckr__doc_load(&k->ctx, file, &k->state.format, &k->root);
    k->ctx.err = &k->ctx.own_err;
    if (r != CKR_OK) {
        ckr_ckpt_close(k);
        *out = NULL;
    }
    return r;
}

CKR_API const ckr_node *ckr_ckpt_root(const ckr_ckpt *c)
{
    return c->root;
}

/* >>ckpt.side: what the target's format cannot hold, and what was written */

static ckr_node *ckr__side_topology(ckr__ctx *c, const ckr_topology *t)
{
    ckr_node *n = ckr__node(c, CKR_NODE_DICT);
    return ckr__node_set(c, n, "tp", ckr__node_int(c, t->tp)) &&
                   ckr__node_set(c, n, "pp", ckr__node_int(c, t->pp)) &&
                   ckr__node_set(c, n, "dp", ckr__node_int(c, t->dp)) &&
                   ckr__node_set(c, n, "ep", ckr__node_int(c, t->ep)) &&
                   ckr__node_set(c, n, "cp", ckr__node_int(c, t->cp)) &&
                   ckr__node_set(c, n, "zero", ckr__node_int(c, t->zero))
               ? n
               : NULL;
}

static ckr_node *ckr__side_hex(ckr__ctx *c, const uint8_t digest[16])
{
    char hex[33];
    int i;
    for (i = 0; i < 16; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return ckr__node_str(c, hex);
}

static ckr_node *ckr__side_source(ckr__ctx *c, const ckr_state *s, const uint8_t digest[16])
{
    ckr_node *n = ckr__node(c, CKR_NODE_DICT);
    bool ok = ckr__node_set(c, n, "dialect", ckr__node_str(c, s->dialect)) &&
              ckr__node_set(c, n, "topology", ckr__side_topology(c, &s->topology)) &&
              ckr__node_set(c, n, "step", ckr__node_int(c, s->progress.step)) &&
              ckr__node_set(c, n, "samples", ckr__node_int(c, s->progress.samples)) &&
              ckr__node_set(c, n, "tokens", ckr__node_int(c, s->progress.tokens)) &&
              ckr__node_set(c, n, "digest", ckr__side_hex(c, digest));
    if (ok && s->framework_version)
        ok = ckr__node_set(c, n, "framework_version", ckr__node_str(c, s->framework_version));
    return ok ? n : NULL;
}

static ckr_node *ckr__side_schedules(ckr__ctx *c, const ckr_state *s)
{
    ckr_node *list = ckr__node(c, CKR_NODE_LIST);
    uint64_t i;
    for (i = 0; list && i < s->n_schedules; i++) {
        const ckr_schedule *x = &s->schedules[i];
        ckr_node *n = ckr__node(c, CKR_NODE_DICT);
        if (!ckr__node_set(c, n, "kind", ckr__node_str(c, x->kind)) ||
            !ckr__node_set(c, n, "clock", ckr__node_str(c, x->clock)) ||
            !ckr__node_set(c, n, "position", ckr__node_int(c, x->position)) ||
            !ckr__node_set(c, n, "params", x->params ? x->params : ckr__node(c, CKR_NODE_NONE)) ||
            !ckr__node_push(c, list, n))
            return NULL;
    }
    return list;
}

static ckr_node *ckr__side_tensors(ckr__ctx *c, const ckr_state *s, const uint8_t (*each)[16],
                                   const bool *use)
{
    ckr_node *dict = ckr__node(c, CKR_NODE_DICT);
    uint64_t i;
    for (i = 0; dict && i < s->n_tensors; i++) {
        const ckr_tensor *t = s->tensors[i];
        if (use[i] &&
            !ckr__node_pair(c, dict, ckr__node_str(c, ckr__printf(c, "%s/%s", t->name, t->slot)),
                            ckr__side_hex(c, each[i])))
            return NULL;
    }
    return dict;
}

static bool ckr__side_put(ckr__write *w, const uint8_t (*written)[16], const bool *use,
                          const uint8_t digest[16], ckr__buf *side)
{
    ckr__ctx *c = w->c;
    const ckr_state *s = &w->plan->src->state;
    ckr_node *root = ckr__node(c, CKR_NODE_DICT), *vocab = ckr__node(c, CKR_NODE_DICT);
    const char *first = w->plan->out.files[0]->path;
    const char *name = ckr__strndup(c, first, strchr(first, '/') ? strcspn(first, "/") : 0);
    bool ok = ckr__node_set(c, root, "ckptresume", ckr__node_int(c, CKR_VERSION)) &&
              ckr__node_set(c, root, "checkpoint", ckr__node_str(c, name)) &&
              ckr__node_set(c, root, "source", ckr__side_source(c, s, digest)) &&
              ckr__node_set(c, root, "schedules", ckr__side_schedules(c, s));
    if (ok && w->plan->out.vocab)
        ok = ckr__node_set(c, vocab, "logical", ckr__node_int(c, w->plan->out.vocab)) &&
             ckr__node_set(c, vocab, "padded", ckr__node_int(c, w->plan->out.padded_vocab)) &&
             ckr__node_set(c, root, "vocab", vocab);
    if (!ok || !ckr__node_set(c, root, "tensors", ckr__side_tensors(c, s, written, use)))
        return false;
    if (ckr__json_put(side, root, 1, false) != CKR_OK) return false;
    ckr__buf_u8(side, '\n');
    return !side->failed;
}

/* Sums of all lanes, finished. `use` and `dtype` of a tensor come from the entries that bind it. */
static ckr_result ckr__write_receipt(ckr__write *w, ckr_receipt *receipt, ckr__buf *side)
{
    ckr__ctx *c = w->c;
    const ckr_state *s = &w->plan->src->state;
    bool *use = CKR__NEW_N(c, bool, s->n_tensors);
    uint8_t *dtype = CKR__NEW_N(c, uint8_t, s->n_tensors);
    uint8_t(*read)[16] = (uint8_t(*)[16])ckr__arena_n(c, s->n_tensors, 16),
    (*put)[16] = (uint8_t(*)[16])ckr__arena_n(c, s->n_tensors, 16);
    uint8_t total[2][16];
    uint64_t i, k, m;
    uint32_t n;
    ckr_result r;
    if (!use || !dtype || !read || !put) return c->err->code;
    for (i = 0; i < w->plan->out.n_files; i++)
        for (k = 0; k < w->plan->out.files[i]->n_entries; k++) {
            const ckr_entry *e = w->plan->out.files[i]->entries[k];
            for (m = 0; m < e->n_binds; m++) {
                const ckr__bind *b = &e->binds[m];
                if (!b->tensor->slot[0]) continue;
                use[b->tensor->index] = true;
                dtype[b->tensor->index] = (uint8_t)e->dtype;
            }
        }
    for (i = 0; i < s->n_tensors; i++) {
        uint64_t a[2] = { 0, 0 }, b[2] = { 0, 0 };
        for (n = 0; n < w->crew.n; n++)
            for (k = 0; k < 2; k++) {
                a[k] += w->crew.lanes[n].sums[i][k];
                b[k] += w->seen[n][i][k];
            }
        ckr__digest_final(a, s->tensors[i]->dtype, s->tensors[i]->n_dims, s->tensors[i]->shape,
                          read[i]);
        ckr__digest_final(b, (ckr_dtype)dtype[i], s->tensors[i]->n_dims, s->tensors[i]->shape,
                          put[i]);
    }
    r = ckr__digest_total(c, w->plan->src, (const uint8_t (*)[16])read, use, total[0]);
    if (r == CKR_OK)
        r = ckr__digest_total(c, w->plan->src, (const uint8_t(*)[16])put, use, total[1]);
    if (r != CKR_OK) return r;
    if (!w->single && !ckr__side_put(w, (const uint8_t(*)[16])put, use, total[0], side))
        return c->err->code ? c->err->code : CKR_E_NOMEM;
    if (!receipt) return CKR_OK;
    memset(receipt, 0, sizeof *receipt);
    receipt->n_files = w->plan->out.n_files;
    receipt->bytes_written = w->total;
    for (n = 0; n < w->crew.n; n++) receipt->bytes_read += w->crew.lanes[n].bytes_read;
    memcpy(receipt->digest, total[0], 16);
    memcpy(receipt->digest_written, total[1], 16);
    return CKR_OK;
}

/* The digests that the side file recorded against what the files hold now. */
static ckr_result ckr__check_side(ckr__checker *k, const uint8_t (*each)[16])
{
    const ckr_node *want = ckr_node_get(k->ckpt->side, "tensors");
    const ckr_state *s = &k->ckpt->state;
    ckr__map at;
    uint64_t i, index;
    ckr_result r = CKR_OK;
    memset(&at, 0, sizeof at);
    at.c = &k->c;
    for (i = 0; i < s->n_tensors && ckr_node_is_dict(want) && r == CKR_OK; i++) {
        const char *key = ckr__printf(&k->c, "%s/%s", s->tensors[i]->name, s->tensors[i]->slot);
        if (!key || !ckr__map_put(&at, key, strlen(key), i, NULL)) r = k->c.err->code;
    }
    for (i = 0; ckr_node_is_dict(want) && i < want->count && r == CKR_OK; i++) {
        const ckr_node *key = want->u.items[2 * i], *have;
        const char *hex = ckr_node_str(want->u.items[2 * i + 1]);
        bool found = ckr__map_find(&at, key->u.str, (size_t)key->count, &index);
        have = found ? ckr__side_hex(&k->c, each[index]) : NULL;
        if (found && !have) r = k->c.err->code;
        if (r != CKR_OK || (found && hex && !strcmp(have->u.str, hex))) continue;
        if (!ckr__note(&k->c, &k->notes, &k->n_notes, "CKR_E_SIDE_DIGEST", CKR_ERROR, key->u.str,
                       hex, found ? have->u.str : NULL,
                       found ? "the tensor is not what was written"
                             : "the tensor was written and is missing now",
                       NULL))
            r = k->c.err->code;
    }
    ckr__map_free(&at);
    return r;
}

/* >>ckpt.diff: groups, schedules, progress */

static bool ckr__diff_note(ckr__differ *d, const char *code, const char *subject, const char *x,
                           const char *y)
{
    return ckr__note(&d->c, &d->others, &d->n_others, code, CKR_CHANGED, subject, x, y,
                     "the sides differ", NULL);
}

/* A value as text, for comparison and report. NULL: out of memory. */
static const char *ckr__node_text_of(ckr__ctx *c, const ckr_node *n)
{
    ckr__buf b;
    const char *s;
    if (!n) return "absent";
    memset(&b, 0, sizeof b);
    b.c = c;
    s = ckr__json_put(&b, n, 0, true) == CKR_OK ? ckr__strndup(c, (const char *)b.data, b.size)
                                                : NULL;
    ckr__buf_free(&b);
    return s;
}

/* Is every number within 2 units in the last place, and all else equal? A learning rate that is
   evaluated from the schedule may differ so much from one that was stored. */
static bool ckr__hyper_equal(const ckr_node *x, const ckr_node *y, const char *tx, const char *ty)
{
    double a, b;
    uint8_t u[8], v[8];
    if (tx && ty && !strcmp(tx, ty)) return true;
    if (!ckr_node_f64(x, &a) || !ckr_node_f64(y, &b)) return false;
    memcpy(u, &a, 8);
    memcpy(v, &b, 8);
    return ckr__ulp_distance(CKR_DTYPE_F64, u, v) <= 2;
}

static ckr_result ckr__diff_hyper(ckr__differ *d, const char *name, const ckr_node *x,
                                  const ckr_node *y)
{
    uint64_t i;
    int side;
    for (side = 0; side < 2; side++) {
        const ckr_node *from = side ? y : x, *other = side ? x : y;
        for (i = 0; from && i < from->count; i++) {
            const char *key = ckr_node_str(from->u.items[2 * i]), *tx, *ty;
            const ckr_node *v = from->u.items[2 * i + 1], *w;
            if (!key) continue;
            w = ckr_node_get(other, key);
            if (side && w) continue;
            tx = ckr__node_text_of(&d->c, side ? w : v);
            ty = ckr__node_text_of(&d->c, side ? v : w);
            if (!tx || !ty) return d->c.err->code;
            if (!ckr__hyper_equal(v, w, tx, ty) &&
                !ckr__diff_note(d, "CKR_DIFF_GROUP", ckr__printf(&d->c, "%s.%s", name, key), tx,
                                ty))
                return d->c.err->code;
        }
    }
    return CKR_OK;
}

/* Groups are compared per parameter, so that how parameters are grouped does not matter. */
static ckr_result ckr__diff_groups(ckr__differ *d)
{
    const ckr_state *s = &d->a->state, *t = &d->b->state;
    ckr__map at;
    uint64_t i, k, g;
    ckr_result r = CKR_OK;
    memset(&at, 0, sizeof at);
    at.c = &d->c;
    for (i = 0; i < t->n_groups && r == CKR_OK; i++)
        for (k = 0; k < t->groups[i].n_params && r == CKR_OK; k++)
            if (!ckr__map_put(&at, t->groups[i].params[k], strlen(t->groups[i].params[k]), i, NULL))
                r = d->c.err->code;
    for (i = 0; i < s->n_groups && r == CKR_OK; i++)
        for (k = 0; k < s->groups[i].n_params && r == CKR_OK; k++) {
            const char *name = s->groups[i].params[k];
            if (!ckr__map_find(&at, name, strlen(name), &g)) {
                if (!ckr__diff_note(d, "CKR_DIFF_GROUP", name, "in a group", "in none"))
                    r = d->c.err->code;
            } else {
                r = ckr__diff_hyper(d, name, s->groups[i].hyper, t->groups[g].hyper);
            }
        }
    ckr__map_free(&at);
    return r;
}

static ckr_result ckr__diff_number(ckr__differ *d, const char *code, const char *subject, int64_t x,
                                   int64_t y)
{
    const char *none = "not recorded";
    if (x == y) return CKR_OK;
    return ckr__diff_note(d, code, subject, x < 0 ? none : ckr__printf(&d->c, "%lld", (long long)x),
                          y < 0 ? none : ckr__printf(&d->c, "%lld", (long long)y))
               ? CKR_OK
               : d->c.err->code;
}

static ckr_result ckr__diff_others(ckr__differ *d)
{
    const ckr_state *s = &d->a->state, *t = &d->b->state;
    uint64_t i;
    ckr_result r = ckr__diff_groups(d);
    if (r == CKR_OK)
        r = ckr__diff_number(d, "CKR_DIFF_PROGRESS", "step", s->progress.step, t->progress.step);
    if (r == CKR_OK)
        r = ckr__diff_number(d, "CKR_DIFF_PROGRESS", "samples", s->progress.samples,
                             t->progress.samples);
    if (r == CKR_OK)
        r = ckr__diff_number(d, "CKR_DIFF_PROGRESS", "tokens", s->progress.tokens,
                             t->progress.tokens);
    if (r == CKR_OK)
        r = ckr__diff_number(d, "CKR_DIFF_PROGRESS", "epoch", s->progress.epoch, t->progress.epoch);
    if (r == CKR_OK)
        r = ckr__diff_number(d, "CKR_DIFF_SCHEDULE", "count", (int64_t)s->n_schedules,
                             (int64_t)t->n_schedules);
    for (i = 0; i < s->n_schedules && i < t->n_schedules && r == CKR_OK; i++) {
        const char *x = ckr__node_text_of(&d->c, s->schedules[i].params),
                   *y = ckr__node_text_of(&d->c, t->schedules[i].params);
        if (!x || !y ||
            (strcmp(x, y) && !ckr__diff_note(d, "CKR_DIFF_SCHEDULE", s->schedules[i].kind, x, y)))
            r = d->c.err->code;
        if (r == CKR_OK)
            r = ckr__diff_number(d, "CKR_DIFF_SCHEDULE", "position", s->schedules[i].position,
                                 t->schedules[i].position);
    }
    return r;
}

/* >>view ---------------------------------------------------------------------- */
/* Elements of a tree's tensor in row-major order, whatever its strides. */

static ckr_result ckr__view_copy(ckr__ctx *c, const ckr_view *v, uint64_t at, uint64_t n,
                                 uint8_t *dst)
{
    const uint64_t size = ckr_dtype_size(v->dtype);
    uint64_t from, bytes;
    ckr_result r = CKR_OK;
    if (!ckr__mul_u64(at, size, &from) || !ckr__mul_u64(n, size, &bytes) || from > v->data_bytes ||
        bytes > v->data_bytes - from || (!v->bytes && v->file >= c->n_files))
        return ckr__fail(c->err, CKR_ITEM_BOX_RANGE, ckr__file_path(c, v->file), v->data_offset,
                         v->storage, "element %llu lies past the storage's %llu bytes",
                         (unsigned long long)at, (unsigned long long)v->data_bytes);
    if (v->bytes) memcpy(dst, v->bytes + from, (size_t)bytes);
    else r = ckr__file_read(c, v->file, v->data_offset + from, dst, (size_t)bytes);
    if (r == CKR_OK && v->big_endian)
        ckr__swap_bytes(dst, (size_t)bytes, ckr__dtypes[v->dtype].swap);
    return r;
}

/* Element number `index` of the row-major order, counted from the storage's start; and how many of
   the following ones lie behind it without a gap. */
static void ckr__view_at(const ckr_view *v, uint64_t index, uint64_t *at, uint64_t *run)
{
    uint64_t block = 1, rest = index;
    uint64_t o = (uint64_t)v->offset;      /* modulo 2^64; out of range is found by the reader */
    uint32_t d;
    bool open = true;
    *run = 1;
    for (d = v->n_dims; d-- > 0;) {
        const uint64_t n = (uint64_t)v->shape[d], i = rest % n;
        if (open && (uint64_t)v->stride[d] == block) {
            block *= n;
            *run = block - index % block;
        } else if (n != 1) {
            open = false;
        }
        rest /= n;
        o += i * (uint64_t)v->stride[d];
    }
    *at = o;
}

CKR_API ckr_result ckr_view_read(const ckr_ckpt *ckpt, const ckr_view *v, int64_t first, int64_t n,
                                 void *dst, ckr_error *err)
{
    ckr__ctx c = ckpt->ctx;
    uint8_t *p = (uint8_t *)dst;
    uint64_t total = 1, i, at, run;
    const uint64_t size = ckr_dtype_size(v->dtype);
    ckr_result r = CKR_OK;
    uint32_t d;
    ckr__ctx_enter(&c, err);
    for (d = 0; d < v->n_dims; d++)
        if (v->shape[d] < 0 || !ckr__mul_u64(total, (uint64_t)v->shape[d], &total))
            return ckr__fail(c.err, CKR_ITEM_SIZE_OVERFLOW, NULL, CKR_NO_OFFSET, v->storage, NULL);
    if (!size || v->meta || v->layout || first < 0 || n < 0 ||
        !ckr__range_ok((uint64_t)first, (uint64_t)n, total))
        return ckr__fail(c.err, CKR_ITEM_BOX_RANGE, NULL, CKR_NO_OFFSET, v->storage,
                         "elements %lld to %lld were asked for, of a view of %llu",
                         (long long)first, (long long)first + (long long)n,
                         (unsigned long long)total);
    for (i = (uint64_t)first; n > 0 && r == CKR_OK; i += run, n -= (int64_t)run) {
        ckr__view_at(v, i, &at, &run);
        if (run > (uint64_t)n) run = (uint64_t)n;
        r = ckr__view_copy(&c, v, at, run, p);
        p += run * size;
    }
    return r;
}

/* >>epilogue ------------------------------------------------------------------ */
#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* CKPTRESUME_IMPLEMENTATION */


/* History
   0.1.0  first: torch, safetensors, NumPy files; Nanotron in both directions

   This software is available under two licences; choose whichever you prefer.

   ALTERNATIVE A - MIT License Copyright (c) 2026 ckptresume contributors Permission is hereby
   granted, free of charge, to any person obtaining a copy of this software and associated
   documentation files (the "Software"), to deal in the Software without restriction, including
   without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense,
   and/or sell copies of the Software, and to permit persons to whom the Software is furnished to
   do so, subject to the following conditions: The above copyright notice and this permission
   notice shall be included in all copies or substantial portions of the Software. THE SOFTWARE IS
   PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO
   THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO
   EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
   LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
   CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.

   ALTERNATIVE B - Public Domain (www.unlicense.org) This is free and unencumbered software
   released into the public domain. Anyone is free to copy, modify, publish, use, compile, sell, or
   distribute this software, either in source code form or as a compiled binary, for any purpose,
   commercial or non-commercial, and by any means. In jurisdictions that recognize copyright laws,
   the author or authors of this software dedicate any and all copyright interest in the software
   to the public domain. We make this dedication for the benefit of the public at large and to the
   detriment of our heirs and successors. We intend this dedication to be an overt act of
   relinquishment in perpetuity of all present and future rights to this software under copyright
   law. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED,
   INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE
   AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
   LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
   CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */

