/* One malformed file for each check of a format: the class, the item, the file, the byte and the
   place that the error names. The bytes are built here and lie in memory. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "memio.h"
#include "bad.h"

#define NOWHERE CKR_NO_OFFSET
#define S(text) text, sizeof(text) - 1

static memio mem;
static faulty fault;
static ckr_error err;
static ckr_limits limits;

static ckr_open_desc desc_of(ckr_env *env)
{
    ckr_open_desc d = CKR_ZERO;
    *env = faulty_env(&fault, memio_io(&mem));
    d.env = env;
    d.limits = limits;
    return d;
}

static void nothing_left(const char *label, const ckr_ckpt *c)
{
    t_check(!c && fault.blocks == 0 && fault.handles == 0 && !fault.bad_size, __FILE__, __LINE__,
            "%s: %ld blocks, %ld files left", label, fault.blocks, fault.handles);
}

/* As a tree and as a checkpoint: the same error. */
static void refuses(const char *path, const char *label, bad_want w)
{
    ckr_env env;
    ckr_open_desc d = desc_of(&env);
    ckr_ckpt *c = NULL;
    ckr_result r = ckr_tree_open(path, &d, &c, &err);
    bad_is(r, &err, label, w);
    nothing_left(label, c);
    d = desc_of(&env);
    r = ckr_ckpt_open(path, &d, &c, &err);
    bad_is(r, &err, label, w);
    nothing_left(label, c);
}

static void refuses_bytes(const char *path, const void *p, size_t n, const char *label, bad_want w)
{
    memio_put(&mem, path, p, n);
    refuses(path, label, w);
    memio_remove(&mem, path);
}

typedef struct row {
    const char *bytes;
    size_t      n;
    ckr_item    item;
    uint64_t    offset;
    const char *where;
} row;

static void rows(const char *path, const row *r, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        char label[100];
        snprintf(label, sizeof label, "%s row %u", path, (unsigned)i);
        refuses_bytes(path, r[i].bytes, r[i].n, label,
                      bad(r[i].item, path, r[i].offset, r[i].where));
    }
}

#define ROWS(path, r) rows(path, r, sizeof(r) / sizeof *(r))

/* ---- text ---- */

static void json_files(void)
{
    static const row r[] = {
        { S("{\"a\" 1}"), CKR_ITEM_JSON_SYNTAX, 5, "" },
        { S("[1 2]"), CKR_ITEM_JSON_SYNTAX, 3, "" },
        { S("{1: 2}"), CKR_ITEM_JSON_SYNTAX, 1, "" },
        { S("{\"a\": nul}"), CKR_ITEM_JSON_SYNTAX, 6, "" },
        { S(""), CKR_ITEM_JSON_SYNTAX, 0, "" },
        { S("\"abc"), CKR_ITEM_JSON_STRING, 4, "" },
        { S("\"\\q\""), CKR_ITEM_JSON_STRING, 1, "" },
        { S("\"a\1\""), CKR_ITEM_JSON_STRING, 2, "" },
        { S("\"a\377\""), CKR_ITEM_JSON_UTF8, 2, "" },
        { S("[01]"), CKR_ITEM_JSON_NUMBER, 2, "" },
        { S("-"), CKR_ITEM_JSON_NUMBER, 1, "" },
        { S("1."), CKR_ITEM_JSON_NUMBER, 2, "" },
        { S("1e+"), CKR_ITEM_JSON_NUMBER, 3, "" },
        { S("{\"a\": 1, \"a\": 2}"), CKR_ITEM_JSON_DUPLICATE, 15, "a" },
        { S("{} {}"), CKR_ITEM_JSON_TRAILING, 3, "" },
    };
    char deep[1100];
    memset(deep, '[', sizeof deep);
    ROWS("/d/a.json", r);
    refuses_bytes("/d/a.json", deep, sizeof deep, "1001 brackets",
                  bad(CKR_ITEM_JSON_DEPTH, "/d/a.json", 1000, ""));
}

static void yaml_files(void)
{
    static const row r[] = {
        { S("a: [1, 2\n"), CKR_ITEM_YAML_SYNTAX, 9, "line 2" },
        { S("a: 1\n  b: 2\n"), CKR_ITEM_YAML_SYNTAX, 8, "line 2" },
        { S("a: 1\n- 2\n"), CKR_ITEM_YAML_SYNTAX, 5, "line 2" },
        { S("a: \"\\q\"\n"), CKR_ITEM_YAML_SCALAR, 4, "line 1" },
        { S("a: 'b\n"), CKR_ITEM_YAML_SCALAR, 3, "line 1" },
        { S("a: 1\nb: *c\n"), CKR_ITEM_YAML_ALIAS, 8, "line 2" },
        { S("a: 1\nb: 2\na: 3\n"), CKR_ITEM_YAML_DUPLICATE, 15, "a" },
        { S("a: !!python/object:os.system ls\n"), CKR_ITEM_YAML_TAG, 3, "line 1" },
        { S("%YAML 1.1\n---\na: 1\n"), CKR_ITEM_YAML_UNSUPPORTED, 0, "line 1" },
        { S("a: 1\n---\nb: 2\n"), CKR_ITEM_YAML_UNSUPPORTED, 5, "line 2" },
        { S("a: \"\377\"\n"), CKR_ITEM_JSON_UTF8, 4, "line 1" },
    };
    ROWS("/d/a.yaml", r);
}

/* ---- safetensors ---- */

static size_t st_file(uint8_t *out, const char *header, size_t n_data)
{
    const size_t n = strlen(header);
    ckr__store_u64(out, n);
    memcpy(out + 8, header, n);
    memset(out + 8 + n, 0, n_data);
    return 8 + n + n_data;
}

#define ST_A "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"
#define ST_B(from, to) "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" from "," to "]}"

static void safetensors_headers(void)
{
    static const struct { const char *header; size_t n_data; ckr_item item; uint64_t offset;
        const char *where;
    } r[] = {
        { "[]", 0, CKR_ITEM_ST_HEADER, 8, "" },
        { "{} x", 0, CKR_ITEM_ST_HEADER, 11, "" },
        { "{\"a\":{}}", 0, CKR_ITEM_ST_ENTRY, 15, "a" },
        { "{\"a\":[]}", 0, CKR_ITEM_ST_ENTRY, 13, "" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1]}}", 4, CKR_ITEM_ST_ENTRY, 37, "" },
        { "{\"a\":{\"dtype\":\"Q8\",\"shape\":[],\"data_offsets\":[0,0]}}", 0,
          CKR_ITEM_ST_DTYPE, 22, "a" },
        { "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0, CKR_ITEM_ST_DUPLICATE, 34, "a" },
        { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, CKR_ITEM_ST_DUPLICATE, 42,
          "__metadata__" },
        { "{" ST_A ",\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
          CKR_ITEM_ST_DUPLICATE, 63, "a" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, CKR_ITEM_ST_LENGTH,
          13, "a" },
        { "{" ST_A "}", 3, CKR_ITEM_ST_LAYOUT, 13, "a" },
        { "{" ST_A "," ST_B("8", "12") "}", 12, CKR_ITEM_ST_LAYOUT,
          8 + BAD_LEN("{" ST_A "," ST_B("8", "12") "}") + 8, "b" },
        { "{" ST_A "," ST_B("0", "4") "}", 4, CKR_ITEM_ST_LAYOUT,
          8 + BAD_LEN("{" ST_A "," ST_B("0", "4") "}"), "b" },
        { "{" ST_A "}", 5, CKR_ITEM_ST_LAYOUT, 8 + BAD_LEN("{" ST_A "}") + 4, "" },
        { "{\"__metadata__\":{\"a\":1}}", 0, CKR_ITEM_ST_METADATA, 24, "__metadata__" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999]}}", 0,
          CKR_ITEM_SIZE_OVERFLOW, 37, "" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,4]}}", 4,
          CKR_ITEM_SIZE_OVERFLOW, 13, "a" },
    };
    uint8_t b[512];
    size_t i;
    for (i = 0; i < sizeof r / sizeof *r; i++)
        refuses_bytes("/d/a.safetensors", b, st_file(b, r[i].header, r[i].n_data), r[i].header,
                      bad(r[i].item, "/d/a.safetensors", r[i].offset, r[i].where));
}

/* An empty tensor stands where one begins or ends, in any order of the entries; the tensors before
   it are one run of bytes, and still each has its ends. */
static void safetensors_empty(void)
{
#define ST_E(at) "\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[" at "," at "]}"
#define ST_AB(at) "{" ST_A "," ST_B("4", "8") "," ST_E(at) "}"
    static const char *const stands[] = {
        ST_AB("0"), ST_AB("4"), ST_AB("8"), "{" ST_E("4") "," ST_A "," ST_B("4", "8") "}",
        "{" ST_E("8") "," ST_B("4", "8") "," ST_A "}"
    };
    static const struct { const char *header; uint64_t at; } between[] = {
        { ST_AB("2"), 2 }, { ST_AB("6"), 6 },
        { "{" ST_E("5") "," ST_A "," ST_B("4", "8") "}", 5 }
    };
    uint8_t b[512];
    size_t i;
    for (i = 0; i < sizeof stands / sizeof *stands; i++) {
        ckr_env env;
        ckr_open_desc d = desc_of(&env);
        ckr_ckpt *c = NULL;
        memio_put(&mem, "/d/a.safetensors", b, st_file(b, stands[i], 8));
        CHECK_OK(ckr_ckpt_open("/d/a.safetensors", &d, &c, &err), &err);
        CHECK(c && ckr_ckpt_state(c)->n_tensors == 3);
        ckr_ckpt_close(c);
        memio_remove(&mem, "/d/a.safetensors");
    }
    for (i = 0; i < sizeof between / sizeof *between; i++) {
        const size_t n = st_file(b, between[i].header, 8);
        refuses_bytes("/d/a.safetensors", b, n, between[i].header,
                      bad(CKR_ITEM_ST_LAYOUT, "/d/a.safetensors", n - 8 + between[i].at, "e"));
    }
#undef ST_E
#undef ST_AB
}

static void safetensors_lengths(void)
{
    static const char path[] = "/d/a.safetensors";
    uint8_t b[512];
    size_t n = st_file(b, "{}", 0);
    refuses_bytes(path, "abc", 3, "3 bytes", bad(CKR_ITEM_ST_HEADER, path, 0, ""));
    refuses_bytes(path, b, n - 1, "cut", bad(CKR_ITEM_ST_HEADER, path, 0, ""));
    limits.max_json_bytes = 10;
    n = st_file(b, "{         }", 0);
    refuses_bytes(path, b, n, "max_json_bytes", bad(CKR_ITEM_LIMIT, path, 0, ""));
    memset(&limits, 0, sizeof limits);
}

/* ---- an index beside its shards ---- */

static char extra[300];

static void take_log(void *user, const ckr_error *what)
{
    (void)user;
    bad_is(what->code, what, "log", bad(CKR_ITEM_HF_EXTRA, "s.safetensors", NOWHERE, "a"));
    snprintf(extra, sizeof extra, "%.200s", what->text);
}

static void index_files(void)
{
    static const char path[] = "/m/model.safetensors.index.json";
    static const row r[] = {
        { S("{}"), CKR_ITEM_HF_INDEX, NOWHERE, "" },
        { S("{\"weight_map\": {\"a\": 1}}"), CKR_ITEM_HF_INDEX, NOWHERE, "a" },
        { S("{\"weight_map\": {\"a\": \"../s.safetensors\"}}"), CKR_ITEM_HF_SHARD_NAME, NOWHERE,
          "a" },
        { S("{\"weight_map\": {\"a\": \"/s.safetensors\"}}"), CKR_ITEM_HF_SHARD_NAME, NOWHERE,
          "a" },
        { S("{\"weight_map\": {\"a\": \"s.safetensors\", \"b\": \"s.safetensors\"}}"),
          CKR_ITEM_HF_MISSING, NOWHERE, "b" },
        { S("{\"weight_map\": {\"a\": \"t.safetensors\", \"b\": \"s.safetensors\"}}"),
          CKR_ITEM_HF_DUPLICATE, NOWHERE, "b" },
        { S("{\"weight_map\": {\"b\": \"u.safetensors\", \"a\": \"s.safetensors\"}}"),
          CKR_ITEM_HF_DUPLICATE, NOWHERE, "a" },
    };
    static const char whole[] = "{\"weight_map\": {\"b\": \"t.safetensors\", \"c\": "
                                "\"s.safetensors\"}}";
    ckr_env env;
    ckr_open_desc d;
    ckr_ckpt *c = NULL;
    uint8_t b[512];
    memio_put(&mem, "/m/s.safetensors", b, st_file(b, "{" ST_A "}", 4));
    memio_put(&mem, "/m/t.safetensors", b, st_file(b, "{" ST_B("0", "4") "}", 4));
    memio_put(&mem, "/m/u.safetensors", b, st_file(b, "{" ST_B("0", "4") ",\"a\":{\"dtype\":"
                                                   "\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                                                   8));
    ROWS(path, r);
    memio_put(&mem, path, whole, sizeof whole - 1);
    refuses(path, "no c", bad(CKR_ITEM_HF_MISSING, path, NOWHERE, "c"));
    d = desc_of(&env);
    env.log_fn = take_log;
    CHECK(ckr_tree_open(path, &d, &c, &err) == CKR_E_MISMATCH && extra[0]);
    memio_remove(&mem, "/m/t.safetensors");
    refuses(path, "no shard", bad(CKR_ITEM_PATH_NOT_FOUND, "/m/t.safetensors", NOWHERE, ""));
}

/* ---- zip ---- */

static bad_zip z;

static void refuses_zip(ckr_item item, uint64_t offset, const char *where)
{
    refuses_bytes("/d/a.pt", z.b, z.n, ckr_item_name(item), bad(item, "/d/a.pt", offset, where));
}

static void fresh(void)
{
    bad_torch(&z, S("\200\2N."));
}

static void zip_ends(void)
{
    fresh();
    bad_set(&z, z.end + 4, 1, 2);                              /* disk 1                  */
    refuses_zip(CKR_ITEM_ZIP_END, z.end, "");
    fresh();
    z.n--;
    refuses_zip(CKR_ITEM_ZIP_END, z.n, "");
    fresh();
    bad_set(&z, z.end + 8, 0x00c800c8, 4);                     /* 200 members             */
    refuses_zip(CKR_ITEM_ZIP_END, z.end, "");
    fresh();
    bad_set(&z, z.end + 16, z.end + 1, 4);                     /* the directory's offset  */
    refuses_zip(CKR_ITEM_ZIP_END, z.end, "");
}

static void zip_directories(void)
{
    fresh();
    bad_set(&z, z.entry[1], 0, 4);
    refuses_zip(CKR_ITEM_ZIP_DIRECTORY, z.entry[1], "");
    fresh();
    bad_set(&z, z.entry[3] + 28, 500, 2);                      /* length of the name      */
    refuses_zip(CKR_ITEM_ZIP_DIRECTORY, z.entry[3], "");
    fresh();
    bad_set(&z, z.entry[2] + 46 + 1, '\\', 1);
    refuses_zip(CKR_ITEM_ZIP_NAME, z.entry[2], "");
    fresh();
    memcpy(z.b + z.entry[2] + 46, "r/../etc", 8);
    refuses_zip(CKR_ITEM_ZIP_NAME, z.entry[2], "");
    fresh();
    bad_set(&z, z.entry[2] + 8, 1, 2);                         /* encrypted               */
    refuses_zip(CKR_ITEM_ZIP_FLAGS, z.entry[2], "");
    fresh();
    bad_set(&z, z.entry[2] + 10, 12, 2);                       /* bzip2                   */
    refuses_zip(CKR_ITEM_ZIP_METHOD, z.entry[2], "");
    fresh();
    bad_set(&z, z.entry[0] + 10, 8, 2);
    refuses_zip(CKR_ITEM_ZIP_DEFLATED, z.local[0], "r/data.pkl");
    CHECK(err.remedy[0]);
}

static void zip_members(void)
{
    memset(&z, 0, sizeof z);
    bad_member(&z, "r/data.pkl", S("\200\2N."));
    bad_member(&z, "r/DATA.pkl", S("\200\2N."));
    bad_finish(&z);
    refuses_zip(CKR_ITEM_ZIP_DUPLICATE, z.local[1], "r/DATA.pkl");
    fresh();
    bad_set(&z, z.entry[1] + 20, 40, 4);
    bad_set(&z, z.entry[1] + 24, 40, 4);
    refuses_zip(CKR_ITEM_ZIP_OVERLAP, z.local[1], "r/byteorder");
    fresh();
    bad_set(&z, z.local[2], 0, 4);
    refuses_zip(CKR_ITEM_ZIP_LOCAL, z.local[2], "r/data/0");
    fresh();
    bad_set(&z, z.local[2] + 30, 'q', 1);
    refuses_zip(CKR_ITEM_ZIP_LOCAL, z.local[2], "r/data/0");
    fresh();
    bad_set(&z, z.entry[3] + 42, z.dir, 4);
    refuses_zip(CKR_ITEM_ZIP_LOCAL, z.dir, "r/version");
}

/* The bytes of a member are not what its CRC-32 says: found where every byte is read. */
static void member_crc(void)
{
    ckr_env env;
    ckr_open_desc d;
    ckr_ckpt *c = NULL;
    ckr_report *report = NULL;
    bad_torch(&z, S(BAD_TENSOR("\2", "\2")));
    z.b[z.data[2] + 3] ^= 1;
    memio_put(&mem, "/d/a.pt", z.b, z.n);
    d = desc_of(&env);
    if (!CHECK_OK(ckr_ckpt_open("/d/a.pt", &d, &c, &err), &err)) return;
    if (CHECK_OK(ckr_ckpt_check(c, &report, &err), &err)) {
        CHECK(!report->sound && report->n_notes == 1);
        CHECK_STR(report->notes[0].code, ckr_item_name(CKR_ITEM_MEMBER_CRC));
        CHECK_STR(report->notes[0].subject, "/d/a.pt: r/data/0");
        CHECK(report->notes[0].severity == CKR_ERROR && report->notes[0].reason[0]);
        bad_seen[CKR_ITEM_MEMBER_CRC] = true;
        ckr_report_free(report);
    }
    ckr_ckpt_close(c);
    memio_remove(&mem, "/d/a.pt");
}

/* ---- torch ---- */

/* An archive of torch's without data.pkl, and what it is by the name of a member. */
static void torch_other(const char *member, const char *text)
{
    memset(&z, 0, sizeof z);
    bad_member(&z, "r/.data/version", S("3\n"));
    bad_member(&z, member, S("x"));
    bad_finish(&z);
    refuses_zip(CKR_ITEM_TORCH_RECORD, NOWHERE, "data.pkl");
    CHECK(!strncmp(err.text, text, strlen(text)));
    CHECK(err.remedy[0]);
}

static void torch_records(void)
{
    memset(&z, 0, sizeof z);
    bad_member(&z, "r/data.pkl", S("\200\2N."));
    bad_member(&z, "s/version", S("3\n"));
    bad_finish(&z);
    refuses_zip(CKR_ITEM_TORCH_ROOT, z.local[1], "s/version");
    memset(&z, 0, sizeof z);
    bad_member(&z, "r/version", S("3\n"));
    bad_finish(&z);
    refuses_zip(CKR_ITEM_TORCH_RECORD, NOWHERE, "data.pkl");
    memset(&z, 0, sizeof z);
    bad_member(&z, "r/data.pkl", S("\200\2N."));
    bad_finish(&z);
    refuses_zip(CKR_ITEM_TORCH_RECORD, NOWHERE, "version");
    torch_other("r/archive_format", "the archive has none: it is an exported program");
    torch_other("r/models/model.json", "the archive has none: it is an exported program");
    torch_other("r/.data/extern_modules", "the archive has none: it is a package");
    torch_other("r/.data/python_version", "the archive has none: it is a package");
    fresh();
    z.b[z.data[3]] = 'x';
    refuses_zip(CKR_ITEM_TORCH_VERSION, NOWHERE, "version");
    fresh();
    z.b[z.data[1]] = 'L';
    refuses_zip(CKR_ITEM_TORCH_BYTEORDER, NOWHERE, "byteorder");
}

#define STORAGE_LEN(type, key) \
    (BAD_LEN(BAD_REBUILD) + BAD_LEN(BAD_STORAGE(type, key, "\2")) - 1)

static void torch_objects(void)
{
    static const char key5[] = BAD_REBUILD BAD_STORAGE("FloatStorage", BAD_STR("\1", "5"), "\2")
        "tR.";
    static const struct { const char *p; size_t n; ckr_item item; uint64_t op; const char *where;
    } r[] = {
        { S(key5), CKR_ITEM_TORCH_RECORD, STORAGE_LEN("FloatStorage", BAD_KEY), "5" },
        { S(BAD_REBUILD BAD_STORAGE("Nothing", BAD_KEY, "\2") "tR."), CKR_ITEM_TORCH_STORAGE,
          STORAGE_LEN("Nothing", BAD_KEY), "data.pkl" },
        { S(BAD_REBUILD BAD_STORAGE("FloatStorage", "N", "\2") "tR."), CKR_ITEM_TORCH_STORAGE,
          STORAGE_LEN("FloatStorage", "N"), "data.pkl" },
        { S(BAD_TENSOR("\2", "\3")), CKR_ITEM_TORCH_VIEW, BAD_LEN(BAD_TENSOR("\2", "\3")) - 2,
          "0" },
        { S(BAD_REBUILD BAD_STORAGE("FloatStorage", BAD_KEY, "\2") "K\0N)\211NtR."),
          CKR_ITEM_TORCH_REBUILD, STORAGE_LEN("FloatStorage", BAD_KEY) + 8, "data.pkl" },
        { S("\200\2K\1Q."), CKR_ITEM_PICKLE_PERSISTENT, 4, "data.pkl" },
        { S("\200\2N.N"), CKR_ITEM_PICKLE_TRAILING, 4, "data.pkl" },
    };
    size_t i;
    for (i = 0; i < sizeof r / sizeof *r; i++) {
        bad_torch(&z, r[i].p, r[i].n);
        refuses_zip(r[i].item, z.data[0] + r[i].op, r[i].where);
    }
    bad_torch(&z, S(BAD_TENSOR("\1", "\1")));
    refuses_zip(CKR_ITEM_TORCH_STORAGE_SIZE, z.data[2], "r/data/0");
}

#define MAGIC "\200\2\212\12l\374\234F\371 j\250P\31."
#define HEAD MAGIC "\200\2M\351\3.\200\2}."
#define LEGACY BAD_TENSOR("\2", "\2") "\200\2]" BAD_KEY "a."

static void torch_streams(void)
{
    static const row r[] = {
        { S(MAGIC "\200\2K\1."), CKR_ITEM_TORCH_LEGACY, 15, "protocol version" },
        { S(MAGIC "\200\2M\351\3.\200\2N."), CKR_ITEM_TORCH_LEGACY, 21, "system info" },
        { S(HEAD "\200\2N.\200\2N."), CKR_ITEM_TORCH_LEGACY, BAD_LEN(HEAD) + 8, "storage keys" },
        { S(HEAD LEGACY), CKR_ITEM_TORCH_LEGACY, BAD_LEN(HEAD LEGACY), "" },
        { S(HEAD LEGACY "\2\0\0\0\0\0\0\0" "abc"), CKR_ITEM_TORCH_LEGACY,
          BAD_LEN(HEAD LEGACY) + 8, "0" },
        { S(HEAD LEGACY "\3\0\0\0\0\0\0\0" "12345678"), CKR_ITEM_TORCH_STORAGE_SIZE,
          BAD_LEN(HEAD LEGACY), "0" },
        { S(HEAD LEGACY "\2\0\0\0\0\0\0\0" "12345678+"), CKR_ITEM_TORCH_LEGACY,
          BAD_LEN(HEAD LEGACY) + 16, "" },
        { S("PYTORCH1 and more"), CKR_ITEM_TORCH_PREVIEW, 0, "" },
        { S("hello"), CKR_ITEM_UNKNOWN_FORMAT, 0, "" },
        { S(""), CKR_ITEM_UNKNOWN_FORMAT, 0, "" },
    };
    char tar[512];
    memset(tar, 0, sizeof tar);
    memcpy(tar, "storages", 9);
    memcpy(tar + 257, "ustar", 5);
    ROWS("/d/b.pt", r);
    refuses_bytes("/d/b.pt", tar, sizeof tar, "tar", bad(CKR_ITEM_TORCH_TAR, "/d/b.pt", 0, ""));
}

static void pickles(void)
{
    static const row r[] = {
        { S("\200\2"), CKR_ITEM_PICKLE_TRUNCATED, 2, "" },
        { S("\200\2NX\5\0\0\0ab"), CKR_ITEM_PICKLE_TRUNCATED, 3, "" },
        { S("\200\2\377."), CKR_ITEM_PICKLE_OPCODE, 2, "" },
        { S("\200\6N."), CKR_ITEM_PICKLE_PROTOCOL, 0, "" },
        { S("\200\2Na."), CKR_ITEM_PICKLE_STACK, 3, "" },
        { S("\200\2Nt."), CKR_ITEM_PICKLE_STACK, 3, "" },
        { S("\200\2}(Nu."), CKR_ITEM_PICKLE_STACK, 5, "" },
        { S("\200\2h\7."), CKR_ITEM_PICKLE_MEMO, 2, "" },
        { S("\200\2Nr\377\377\0\0."), CKR_ITEM_PICKLE_MEMO, 3, "" },
        { S("\200\2gx\n."), CKR_ITEM_PICKLE_MEMO, 2, "" },
        { S("\200\2X\1\0\0\0\377."), CKR_ITEM_PICKLE_TEXT, 2, "" },
        { S("\200\2Fx\n."), CKR_ITEM_PICKLE_TEXT, 2, "" },
        { S("\200\2Ix\n."), CKR_ITEM_PICKLE_TEXT, 2, "" },
        { S("\200\2Sx\n."), CKR_ITEM_PICKLE_TEXT, 2, "" },
        { S("\200\2K\1K\2a."), CKR_ITEM_PICKLE_TARGET, 6, "" },
        { S("\200\2]K\1K\2s."), CKR_ITEM_PICKLE_TARGET, 7, "" },
        { S("\200\2K\1}b."), CKR_ITEM_PICKLE_TARGET, 5, "" },
        { S("\200\2}]K\1s."), CKR_ITEM_PICKLE_KEY, 6, "" },
        { S("\200\2N)R."), CKR_ITEM_PICKLE_ARGS, 4, "" },
        { S("\200\2cm\nf\nNR."), CKR_ITEM_PICKLE_ARGS, 8, "" },
        { S("\200\4NN\223."), CKR_ITEM_PICKLE_ARGS, 4, "" },
        { S("\200\2N.N"), CKR_ITEM_PICKLE_TRAILING, 4, "" },
        { S("\200\2\202\1."), CKR_ITEM_PICKLE_UNSAFE, 2, "" },
        { S("\200\5\227."), CKR_ITEM_PICKLE_UNSAFE, 2, "" },
    };
    ROWS("/d/a.pkl", r);
    limits.max_metadata_bytes = 10;
    refuses_bytes("/d/a.pkl", S("\200\2X\5\0\0\0hello."), "max_metadata_bytes",
                  bad(CKR_ITEM_LIMIT, "/d/a.pkl", 0, ""));
    memset(&limits, 0, sizeof limits);
}

/* ---- numpy ---- */

static void npy(const char *header, size_t n_data, uint64_t skew, ckr_item item, uint64_t offset)
{
    uint8_t b[256];
    const size_t n = strlen(header);
    memcpy(b, "\223NUMPY\1\0", 8);
    b[8] = (uint8_t)(n + skew);
    b[9] = (uint8_t)((n + skew) >> 8);
    memcpy(b + 10, header, n);
    memset(b + 10 + n, 0, n_data);
    refuses_bytes("/d/a.npy", b, 10 + n + n_data, header, bad(item, "/d/a.npy", offset, ""));
}

#define NPY(descr, shape) "{'descr': '" descr "', 'fortran_order': False, 'shape': " shape ", }\n"

static void numpy_files(void)
{
    static const char good[] = NPY("<f4", "(2,)");
    npy("[]", 8, 0, CKR_ITEM_NPY_HEADER, 10);
    npy(NPY("<f4", "(x,)"), 8, 0, CKR_ITEM_NPY_HEADER, 10);
    npy(good, 8, 1000, CKR_ITEM_NPY_HEADER, 0);
    npy(NPY("|O", "(2,)"), 16, 0, CKR_ITEM_NPY_DTYPE, 10);
    npy(good, 7, 0, CKR_ITEM_NPY_SIZE, 10 + sizeof good - 1);
    npy(good, 9, 0, CKR_ITEM_NPY_SIZE, 10 + sizeof good - 1);
    refuses_bytes("/d/a.npy", S("\223NUMPY\11\0\0\0\0\0"), "version 9",
                  bad(CKR_ITEM_NPY_HEADER, "/d/a.npy", 0, ""));
}

int main(int argc, char **argv)
{
    static const ckr_item never[] = { CKR_ITEM_OK };
    t_begin(argc, argv);
    RUN(json_files);
    RUN(yaml_files);
    RUN(safetensors_headers);
    RUN(safetensors_empty);
    RUN(safetensors_lengths);
    RUN(index_files);
    RUN(zip_ends);
    RUN(zip_directories);
    RUN(zip_members);
    RUN(member_crc);
    RUN(torch_records);
    RUN(torch_objects);
    RUN(torch_streams);
    RUN(pickles);
    RUN(numpy_files);
    if (!t_now.only) bad_all_seen(BAD_FORMATS, never);
    memio_free(&mem);
    return t_end();
}
