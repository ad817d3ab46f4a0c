/* bad.h: what a malformed input must come to, and a count of the rows of CKR__ITEMS that were
   provoked. Each row belongs to one of three programs (bad_home), which fails when it ends without
   having seen it: a new row without a test is noticed, in t_bad_run.c if nowhere else. */
#ifndef CKR_BAD_H
#define CKR_BAD_H

#include "os.h"

/* t_bad.c, t_bad_files.c, t_bad_run.c; the others have a program of their own */
enum {
    BAD_FORMATS = 0, BAD_FILES, BAD_RUN, BAD_TRAINER, BAD_RNG, BAD_REMAP, BAD_LLMC, BAD_DEEPSPEED,
    BAD_DCP, BAD_MEGATRON, BAD_CUDA, BAD_VERL, BAD_PARTS
};

static bool bad_seen[CKR_ITEM_COUNT_];

/* By the beginnings of the items' names; the longer ones first. */
static int bad_home(ckr_item i)
{
    static const struct { const char *name; int home; } homes[] = {
        { "JSON_PUT", BAD_RUN }, { "JSON_", BAD_FORMATS }, { "ST_", BAD_FORMATS },
        { "HF_", BAD_FORMATS }, { "YAML_", BAD_FORMATS }, { "ZIP_", BAD_FORMATS },
        { "TORCH_", BAD_FORMATS }, { "PICKLE_", BAD_FORMATS }, { "NPY_", BAD_FORMATS },
        { "UNKNOWN_FORMAT", BAD_FORMATS }, { "SIZE_OVERFLOW", BAD_FORMATS },
        { "MEMBER_CRC", BAD_FORMATS }, { "UNKNOWN_CHECKPOINT", BAD_FILES },
        { "TENSOR_OVERLAP", BAD_FILES }, { "NANOTRON_SOURCE", BAD_RUN },
        { "NANOTRON_", BAD_FILES }, { "FILES_", BAD_FILES }, { "RANK_MISSING", BAD_FILES },
        { "METADATA", BAD_FILES }, { "OPTIMIZER_NAMES", BAD_FILES }, { "RANK_SHAPE", BAD_FILES },
        { "RANK_GROUPS", BAD_FILES }, { "RANK_DIFFERS", BAD_VERL }, { "MESH", BAD_VERL },
        { "DIST", BAD_VERL }, { "FSDP_", BAD_VERL }, { "TRAINER_", BAD_TRAINER },
        { "TOPOLOGY", BAD_TRAINER }, { "LR_WITHOUT", BAD_DEEPSPEED },
        { "DEEPSPEED_", BAD_DEEPSPEED }, { "SLOT_CUT", BAD_DEEPSPEED },
        { "FILE_FORM", BAD_MEGATRON }, { "MEGATRON_", BAD_MEGATRON }, { "LLMC_", BAD_LLMC },
        { "DCP_", BAD_DCP }, { "RNG_LINEAGE", BAD_REMAP }, { "RNG_EXHAUSTED", BAD_REMAP },
        { "RNG_", BAD_RNG }, { "BACKEND", BAD_CUDA }, { "TP_AXIS", BAD_MEGATRON },
        { "PART_", BAD_PARTS }
    };
    const char *name = ckr_item_name(i) + sizeof "CKR_E_" - 1;
    size_t k;
    for (k = 0; k < sizeof homes / sizeof *homes; k++)
        if (!strncmp(name, homes[k].name, strlen(homes[k].name))) return homes[k].home;
    return BAD_RUN;
}

/* `never`: rows that nothing can provoke, ended by CKR_ITEM_OK. */
T_UNUSED static void bad_all_seen(int home, const ckr_item *never)
{
    int i;
    for (i = 1; i < CKR_ITEM_COUNT_; i++) {
        const ckr_item *n = never;
        while (*n != CKR_ITEM_OK && *n != (ckr_item)i) n++;
        if (bad_home((ckr_item)i) != home) continue;
        if (*n != CKR_ITEM_OK)
            t_check(!bad_seen[i], __FILE__, __LINE__, "%s can be provoked after all",
                    ckr_item_name((ckr_item)i));
        else
            t_check(bad_seen[i], __FILE__, __LINE__, "%s was not provoked",
                    ckr_item_name((ckr_item)i));
    }
}

typedef struct bad_want {
    ckr_item    item;
    const char *file;
    uint64_t    offset;
    const char *where;
} bad_want;

T_UNUSED static bad_want bad(ckr_item item, const char *file, uint64_t offset, const char *where)
{
    bad_want w;
    w.item = item;
    w.file = file;
    w.offset = offset;
    w.where = where;
    return w;
}

/* Class, item, file, offset and `where` are exactly these; there is one sentence. */
T_UNUSED static bool bad_is(ckr_result r, const ckr_error *e, const char *label, bad_want w)
{
    bad_seen[w.item] = true;
    return t_check(r == ckr__item_class[w.item] && e->code == r && e->item == w.item &&
                       !strcmp(e->file, w.file) && e->offset == w.offset &&
                       !strcmp(e->where, w.where),
                   __FILE__, __LINE__,
                   "%s: %d %s, file \"%s\", byte %lld, where \"%s\" (%s); expected %s, file "
                   "\"%s\", byte %lld, where \"%s\"",
                   label, (int)r, ckr_item_name(e->item), e->file, (long long)e->offset, e->where,
                   e->text, ckr_item_name(w.item), w.file, (long long)w.offset, w.where) &&
           t_check(e->text[0] && !strchr(e->text, '\n'), __FILE__, __LINE__, "%s: text \"%s\"",
                   label, e->text);
}

/* A zip archive as it is being built; the places are offsets in `b`. */
typedef struct bad_zip {
    uint8_t     b[16384];
    size_t      n;
    const char *name[12];
    size_t      size[12], local[12], data[12], entry[12];
    size_t      count, dir, end;
} bad_zip;

static void bad_put(bad_zip *z, const void *p, size_t n)
{
    if (n > sizeof z->b - z->n) exit(2);
    if (n) memcpy(z->b + z->n, p, n);
    z->n += n;
}

static void bad_num(bad_zip *z, uint64_t v, size_t n)
{
    for (; n; n--, v >>= 8) z->b[z->n++] = (uint8_t)v;
}

T_UNUSED static void bad_set(bad_zip *z, size_t at, uint64_t v, size_t n)
{
    for (; n; n--, v >>= 8) z->b[at++] = (uint8_t)v;
}

T_UNUSED static void bad_member(bad_zip *z, const char *name, const void *data, size_t n)
{
    const size_t i = z->count++;
    z->name[i] = name;
    z->size[i] = n;
    z->local[i] = z->n;
    bad_num(z, 0x04034b50, 4);
    bad_num(z, 0, 10);
    bad_num(z, ckr__crc32(0, data, n), 4);
    bad_num(z, n, 4);
    bad_num(z, n, 4);
    bad_num(z, strlen(name), 4);
    bad_put(z, name, strlen(name));
    z->data[i] = z->n;
    bad_put(z, data, n);
}

T_UNUSED static void bad_finish(bad_zip *z)
{
    size_t i;
    z->dir = z->n;
    for (i = 0; i < z->count; i++) {
        z->entry[i] = z->n;
        bad_num(z, 0x02014b50, 4);
        bad_num(z, 0, 12);
        bad_num(z, ckr__crc32(0, z->b + z->data[i], z->size[i]), 4);
        bad_num(z, z->size[i], 4);
        bad_num(z, z->size[i], 4);
        bad_num(z, strlen(z->name[i]), 2);
        bad_num(z, 0, 12);
        bad_num(z, z->local[i], 4);
        bad_put(z, z->name[i], strlen(z->name[i]));
    }
    z->end = z->n;
    bad_num(z, 0x06054b50, 4);
    bad_num(z, 0, 4);
    bad_num(z, z->count, 2);
    bad_num(z, z->count, 2);
    bad_num(z, z->end - z->dir, 4);
    bad_num(z, z->dir, 4);
    bad_num(z, 0, 2);
}

/* torch.save of this pickle, with one storage of 8 bytes. */
T_UNUSED static void bad_torch(bad_zip *z, const char *pickle, size_t n)
{
    memset(z, 0, sizeof *z);
    bad_member(z, "r/data.pkl", pickle, n);
    bad_member(z, "r/byteorder", "little", 6);
    bad_member(z, "r/data/0", "\0\0\200?\0\0\0@", 8);
    bad_member(z, "r/version", "3\n", 2);
    bad_finish(z);
}

#define BAD_STR(n, s) "X" n "\0\0\0" s
#define BAD_REBUILD "\200\2ctorch._utils\n_rebuild_tensor_v2\n(("
#define BAD_STORAGE(type, key, numel)                                                              \
    BAD_STR("\7", "storage") "ctorch\n" type "\n" key BAD_STR("\3", "cpu") "K" numel "tQ"
#define BAD_KEY BAD_STR("\1", "0")
#define BAD_TENSOR(numel, size)                                                                    \
    BAD_REBUILD BAD_STORAGE("FloatStorage", BAD_KEY, numel) "K\0K" size "\205K\1\205\211"          \
    "ccollections\nOrderedDict\n)RtR."
#define BAD_LEN(s) (sizeof(s) - 1)

T_UNUSED static size_t bad_text(const char *path, char *out, size_t cap)
{
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(out, 1, cap - 1, f) : 0;
    if (f) fclose(f);
    out[n] = 0;
    return n;
}

/* Runs args[0], whose output goes to files in the directory `tmp`; what it wrote to stderr is in
   `said`, the number of bytes on stdout in *n_out. */
T_UNUSED static int bad_tool(const char *tmp, const char *const *args, char *said, size_t cap,
                             size_t *n_out)
{
    char out[600], note[600], text[4096];
    int code;
    snprintf(out, sizeof out, "%s/stdout", tmp);
    snprintf(note, sizeof note, "%s/stderr", tmp);
    code = os_run(args, out, note);
    bad_text(note, said, cap);
    *n_out = bad_text(out, text, sizeof text);
    return code;
}

#endif
