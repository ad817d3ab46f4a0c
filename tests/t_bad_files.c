/* Real Nanotron checkpoints of tests/data with one thing wrong: what the library says of it, file
   and place included, and what the tool makes of that: its exit code and one sentence on stderr. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "memio.h"
#include "tree.h"
#include "bad.h"

#define DATA "tests/data/nanotron/"
#define TP2 DATA "tp2_pp1_dp1/ckpt"
#define PP2 DATA "tp1_pp2_dp1_tied/ckpt"
#define ZERO DATA "tp2_pp1_dp2_zero1_bf16_master/ckpt"
#define IN "/w/ckpt"
#define STEP IN "/13/"
#define META STEP "checkpoint_metadata.json"
#define CONFIG STEP "config.yaml"
#define MODEL STEP "model_config.json"
#define OPTIMIZER STEP "optimizer/optimizer_config.json"
#define LAYER "model/model/decoder/0/pp_block/"
#define SHARD(tp) "model_weight_pp-rank-0-of-1_tp-rank-" tp "-of-2.safetensors"
#define QKV(tp) STEP LAYER "attn/qkv_proj/" SHARD(tp)
#define O_PROJ(tp) STEP LAYER "attn/o_proj/" SHARD(tp)
#define HEAD(tp) STEP "model/model/lm_head/pp_block/" SHARD(tp)
#define EMBEDDING STEP "model/model/token_position_embeddings/pp_block/token_embedding/"
#define RANK(tp) "_pp-0-of-1_tp-" tp "-of-2_exp-0-of-1.pt"
#define STATES(tp) STEP "optimizer/optimizer" RANK(tp)
#define SCHEDULE(tp) STEP "lr_scheduler/lr_scheduler" RANK(tp)
#define RANDOM(tp) STEP "random/tp-" tp "-of-2_dp-0-of-1_pp-0-of-1.pt"
#define TOKENS "model.token_position_embeddings.pp_block.token_embedding.weight"
#define NOWHERE CKR_NO_OFFSET

static memio mem;
static faulty fault;
static ckr_error err;
static const char *tmp, *tool;

/* ---- edits ---- */

static void load(const char *disk)
{
    memio_free(&mem);
    memio_load(&mem, disk, IN);
}

static memio_file *file(const char *path)
{
    memio_file *f = memio_find(&mem, path);
    if (!f) {
        printf("%s: there is no %s\n", t_now.test, path);
        exit(2);
    }
    return f;
}

static uint8_t *find(const memio_file *f, const char *what, size_t n)
{
    size_t i;
    for (i = 0; i + n <= f->size; i++)
        if (!memcmp(f->data + i, what, n)) return f->data + i;
    printf("%s: %s has no \"%s\"\n", t_now.test, f->path, what);
    exit(2);
}

/* The first `from` of the file becomes `to`. */
static void edit(const char *path, const char *from, const char *to)
{
    memio_file *f = file(path);
    const size_t at = (size_t)(find(f, from, strlen(from)) - f->data), n = strlen(from),
                 k = strlen(to), size = f->size - n + k;
    uint8_t *p = (uint8_t *)malloc(size + 1);
    if (!p) exit(2);
    memcpy(p, f->data, at);
    memcpy(p + at, to, k);
    memcpy(p + at + k, f->data + at + n, f->size - at - n);
    memio_put(&mem, path, p, size);
    free(p);
}

static void copy(const char *from, const char *to)
{
    const memio_file *f = file(from);
    uint8_t *p = (uint8_t *)memio_dup((const char *)f->data, f->size);
    memio_put(&mem, to, p, f->size);
    free(p);
}

static void swap(const char *a, const char *b)
{
    memio_file *x = file(a), *y = file(b), t = *x;
    x->data = y->data, x->size = y->size, x->cap = y->cap;
    y->data = t.data, y->size = t.size, y->cap = t.cap;
}

static void from_disk(const char *disk, const char *path)
{
    memio_load_file(&mem, disk, path);
}

/* ---- the library and the tool ---- */

/* Everything in memory goes to a directory of the disk. */
static void save(const char *to)
{
    size_t i;
    int pass;
    for (pass = 0; pass < 2; pass++)
        for (i = 0; i < mem.n; i++) {
            const memio_file *f = mem.files[i];
            char path[700];
            FILE *out;
            size_t n;
            snprintf(path, sizeof path, "%s%s", to, f->path + 2);      /* without "/w" */
            if (!f->path[2] || f->is_dir != !pass) continue;
            if (!pass) {                                       /* parents come before children */
                if (mkdir(path, 0777) != 0 && errno != EEXIST) exit(2);
                continue;
            }
            out = fopen(path, "wb");
            n = out ? fwrite(f->data, 1, f->size, out) : 0;
            if (!out || n != f->size || fclose(out) != 0) exit(2);
        }
}

/* `inspect` of the same tree ends with this code, names the file, and says the same sentence. */
static void tool_says(const char *label, int code)
{
    char path[600], want[1200], said[4096];
    const char *args[5];
    size_t n_out = 0;
    int got;
    snprintf(path, sizeof path, "%s/case", tmp);
    if (mkdir(path, 0777) != 0) exit(2);
    save(path);
    snprintf(path, sizeof path, "%s/case/ckpt", tmp);
    args[0] = tool, args[1] = "inspect", args[2] = path, args[3] = "--color=never", args[4] = NULL;
    got = bad_tool(tmp, args, said, sizeof said, &n_out);
    t_check(got == code && n_out == 0, __FILE__, __LINE__, "%s: exit %d, %u bytes of output: %s",
            label, got, (unsigned)n_out, said);
    snprintf(want, sizeof want, "ckptresume: %s/case%s: ", tmp, err.file + 2);
    t_check(!strncmp(said, want, strlen(want)), __FILE__, __LINE__, "%s: no \"%s\" in: %s", label,
            want, said);
    got = 0;
    for (n_out = 0; said[n_out]; n_out++) got += said[n_out] == '\n';
    t_check(got == 1 + (err.remedy[0] != 0), __FILE__, __LINE__, "%s: %d lines: %s", label, got,
            said);
    snprintf(path, sizeof path, "%s/case", tmp);
    t_remove_tree(path);
}

static ckr_result open_it(ckr_ckpt **c)
{
    ckr_env env = faulty_env(&fault, memio_io(&mem));
    ckr_open_desc d = CKR_ZERO;
    d.env = &env;
    return ckr_ckpt_open(IN, &d, c, &err);
}

/* What is in memory does not open, for this reason; `remedy`: there is something to do about it. */
static void refused(const char *label, bool remedy, bad_want w)
{
    ckr_ckpt *c = NULL;
    ckr_result r = open_it(&c);
    bad_is(r, &err, label, w);
    t_check(!c && fault.blocks == 0 && fault.handles == 0, __FILE__, __LINE__,
            "%s: %ld blocks, %ld files left", label, fault.blocks, fault.handles);
    t_check(!remedy || err.remedy[0], __FILE__, __LINE__, "%s: no remedy", label);
    if (r != CKR_OK) tool_says(label, r == CKR_E_IO || r == CKR_E_NOT_FOUND ? 4 : 3);
    ckr_ckpt_close(c);
}

/* ---- which checkpoint ---- */

static void wrong_directory(void)
{
    memio_free(&mem);
    memio_put(&mem, IN "/notes.txt", "nothing", 7);
    refused("no checkpoint", true, bad(CKR_ITEM_UNKNOWN_CHECKPOINT, IN, NOWHERE, ""));
    memio_free(&mem);
    memio_put(&mem, "/w/other/notes.txt", "nothing", 7);
    refused("nothing there", false, bad(CKR_ITEM_PATH_NOT_FOUND, IN, NOWHERE, ""));
}

static void latest(void)
{
    load(TP2);
    memio_put(&mem, IN "/latest.txt", "14", 2);
    refused("latest 14", true, bad(CKR_ITEM_FILES_LATEST, IN "/latest.txt", 0, ""));
    CHECK(strstr(err.remedy, IN "/13"));
    memio_put(&mem, IN "/latest.txt", "none", 4);
    refused("latest none", true, bad(CKR_ITEM_FILES_LATEST, IN "/latest.txt", 0, ""));
    CHECK_STR(err.remedy, "name the directory of a complete step: " IN "/13");
}

static void being_written(void)
{
    ckr_ckpt *c = NULL;
    load(TP2);
    memio_remove(&mem, MODEL);
    refused("no model_config.json", true, bad(CKR_ITEM_NANOTRON_INCOMPLETE, IN "/13", NOWHERE, ""));
    CHECK(strstr(err.text, "model_config.json"));
    load(TP2);
    memio_remove(&mem, META);
    refused("no metadata", true, bad(CKR_ITEM_NANOTRON_INCOMPLETE, IN "/13", NOWHERE, ""));
    CHECK(strstr(err.text, "checkpoint_metadata.json"));
    load(TP2);
    memio_load(&mem, TP2 "/13", IN "/14");
    memio_remove(&mem, IN "/14/model_config.json");
    memio_put(&mem, IN "/latest.txt", "14", 2);
    refused("latest is being written", true,
            bad(CKR_ITEM_NANOTRON_INCOMPLETE, IN "/14", NOWHERE, ""));
    CHECK(strstr(err.remedy, IN "/13"));
    memio_remove(&mem, IN "/latest.txt");      /* then the newest complete one is taken */
    if (!CHECK_OK(open_it(&c), &err)) return;
    CHECK_STR(ckr_ckpt_path(c), IN "/13");
    ckr_ckpt_close(c);
}

/* ---- documents ---- */

static void metadata(void)
{
    load(TP2);
    edit(META, "\"1.5\"", "\"1.6\"");
    refused("version 1.6", false, bad(CKR_ITEM_NANOTRON_VERSION, META, NOWHERE, "version"));
    load(TP2);
    edit(META, "last_train_step", "last_train_stop");
    refused("no step", false,
            bad(CKR_ITEM_METADATA, META, NOWHERE, "metas/last_train_step"));
    load(TP2);
    memio_put(&mem, META, "[]", 2);
    refused("a list", false, bad(CKR_ITEM_METADATA, META, NOWHERE, ""));
    load(TP2);
    edit(META, "\"last_train_step\": 13", "\"last_train_step\": 12");
    refused("step 12", true, bad(CKR_ITEM_FILES_STEP, META, NOWHERE, "metas/last_train_step"));
    load(TP2);
    edit(META, "{", "");
    refused("no JSON", false, bad(CKR_ITEM_JSON_TRAILING, META, 7, ""));
    load(TP2);
    file(META)->size = 100;
    refused("cut JSON", false, bad(CKR_ITEM_JSON_STRING, META, 100, ""));
}

static void topology(void)
{
    load(TP2);
    edit(META, "\"tp\": 2", "\"tp\": 4");
    refused("metadata tp 4", true, bad(CKR_ITEM_FILES_SIZES, META, NOWHERE, "tp"));
    load(TP2);
    edit(CONFIG, "tp: 2", "tp: 1");
    refused("config tp 1", true, bad(CKR_ITEM_FILES_SIZES, CONFIG, NOWHERE, "tp"));
    load(TP2);
    edit(OPTIMIZER, "NamedOptimizer", "ZeroDistributedOptimizer");
    refused("not ZeRO", true, bad(CKR_ITEM_FILES_SIZES, OPTIMIZER, NOWHERE, "type"));
    load(TP2);
    edit(META, "\"tp\": 2", "\"tp\": 4");
    edit(OPTIMIZER, "\"tp_size\": \"2\"", "\"tp_size\": \"4\"");
    refused("all say tp 4", true, bad(CKR_ITEM_FILES_SIZES, HEAD("0"), NOWHERE,
                                      "model.lm_head.pp_block.weight"));
}

static void configuration(void)
{
    ckr_ckpt *c = NULL;
    load(TP2);
    edit(MODEL, "\"hidden_size\": 32", "\"hidden_size\": 64");
    refused("hidden_size", true, bad(CKR_ITEM_NANOTRON_CONFIG, CONFIG, NOWHERE, "hidden_size"));
    load(TP2);
    edit(MODEL, "\"vocab_size\": 68", "\"vocab_size\": 80");
    refused("vocab_size", true,
            bad(CKR_ITEM_NANOTRON_CONFIG,
                HEAD("0"), NOWHERE,
                "model.lm_head.pp_block.weight"));
    load(TP2);
    edit(MODEL, "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2");
    edit(CONFIG, "num_hidden_layers: 3", "num_hidden_layers: 2");
    refused("num_hidden_layers", true,
            bad(CKR_ITEM_NANOTRON_CONFIG, MODEL, NOWHERE, "num_hidden_layers"));
    load(TP2);
    edit(MODEL, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    refused("tied", true,
            bad(CKR_ITEM_NANOTRON_CONFIG, MODEL, NOWHERE, "tie_word_embeddings"));
    load(TP2);
    edit(CONFIG, "tie_word_embeddings: false", "tie_word_embeddings: true");
    refused("tied in config.yaml", true,
            bad(CKR_ITEM_NANOTRON_CONFIG, CONFIG, NOWHERE, "tie_word_embeddings"));
    load(TP2);
    edit(CONFIG, "vocab_size: 68", "vocab_size: 66");
    refused("vocab_size", true, bad(CKR_ITEM_NANOTRON_CONFIG, CONFIG, NOWHERE, "vocab_size"));
    load(TP2);
    edit(CONFIG, "vocab_size: 68", "vocab_size: 67");     /* before it was padded for tp 2 */
    CHECK_OK(open_it(&c), &err);
    ckr_ckpt_close(c);
    load(TP2);
    edit(CONFIG, "dtype: float32", "dtype: bfloat16");
    refused("dtype", true,
            bad(CKR_ITEM_NANOTRON_CONFIG, STEP "model/model/final_layer_norm/pp_block/"
                "model_weight.safetensors", NOWHERE, "model.final_layer_norm.pp_block.weight"));
    load(TP2);
    edit(CONFIG, "intermediate_size: 44", "intermediate_size: [");
    refused("config.yaml", false, bad(CKR_ITEM_YAML_SYNTAX, CONFIG, 1051, "line 48"));
}

/* ---- files ---- */

static void missing(void)
{
    load(TP2);
    memio_remove(&mem, QKV("1"));
    refused("a weight's shard", true, bad(CKR_ITEM_RANK_MISSING, QKV("1"), NOWHERE,
                                          "model.decoder.0.pp_block.attn.qkv_proj.weight"));
    load(TP2);
    memio_remove(&mem, QKV("0"));
    refused("the first shard", true, bad(CKR_ITEM_RANK_MISSING, QKV("0"), NOWHERE,
                                         "model.decoder.0.pp_block.attn.qkv_proj.weight"));
    load(TP2);
    memio_remove(&mem, STATES("0"));
    refused("an optimizer file", true,
            bad(CKR_ITEM_RANK_MISSING, STATES("0"), NOWHERE, ""));
    load(TP2);
    memio_remove(&mem, SCHEDULE("1"));
    refused("a scheduler", true, bad(CKR_ITEM_RANK_MISSING, SCHEDULE("1"), NOWHERE, ""));
    load(TP2);
    memio_remove(&mem, RANDOM("1"));
    refused("a generator", true, bad(CKR_ITEM_RANK_MISSING, RANDOM("1"), NOWHERE, ""));
    load(TP2);
    memio_remove(&mem, STEP LAYER "input_layernorm");
    refused("a layer's norm", true,
            bad(CKR_ITEM_RANK_MISSING, STEP LAYER "input_layernorm", NOWHERE,
                "model.decoder.0.pp_block.input_layernorm.weight"));
    load(TP2);
    memio_remove(&mem, STEP "model/model/lm_head");
    refused("the head", true,
            bad(CKR_ITEM_RANK_MISSING, STEP "model/model/lm_head/pp_block", NOWHERE,
                "model.lm_head.pp_block.weight"));
}

static void foreign(void)
{
    static const char other[] =
        STEP LAYER "attn/qkv_proj/model_weight_pp-rank-0-of-2_tp-rank-0-of-1.safetensors";
    load(TP2);
    copy(QKV("0"), other);
    refused("one of pp 2", true, bad(CKR_ITEM_FILES_FOREIGN, other, NOWHERE,
                                     "model.decoder.0.pp_block.attn.qkv_proj.weight"));
    memio_free(&mem);
    memio_load(&mem, PP2, IN);
    memio_load(&mem, TP2, IN);
    refused("two checkpoints", true,
            bad(CKR_ITEM_FILES_MIXED,
                EMBEDDING "model_weight_pp-rank-0-of-2_tp-rank-0-of-1.safetensors", NOWHERE,
                "model.token_position_embeddings.pp_block.token_embedding.weight"));
    load(TP2);
    copy(QKV("0"), STEP LAYER "attn/qkv_proj/model_weight.safetensors");
    refused("one shard, whole and cut", true,
            bad(CKR_ITEM_FILES_DUPLICATE, QKV("0"), NOWHERE,
                "model.decoder.0.pp_block.attn.qkv_proj.weight"));
}

/* ---- the search of a directory, for a framework that nobody has ---- */

enum { KIT_MODEL = 1, KIT_OPTIM, KIT_DIR, KIT_PART, KIT_STATE };

static const ckr__form kit_forms[] = {
    { KIT_MODEL, "model_world_size_{RANK}_rank_{rank}.pt" },
    { KIT_OPTIM, "optim[_dp{dp:02}]_r{rank}.bin" },
    { KIT_DIR, "rank_{tp:02}[_{pp:03}]/" },
    { KIT_PART, "sub/{dirs}{name}[_s{pp}][_e{ep}-of-{EP}].{n}.x" },
    { KIT_STATE, "optimizer_pp-{pp}-of-{PP}_tp-{tp}-of-{TP}_exp-{ep}-of-{EP}.pt" },
    { 0, NULL }
};

static ckr__ctx kit;

static ckr__fileset kit_scan(bool deep)
{
    ckr__fileset k;
    memset(&k, 0, sizeof k);
    memset(&err, 0, sizeof err);
    ckr__ctx_enter(&kit, &err);
    k.c = &kit;
    k.dir = "/w/kit";
    k.forms = kit_forms;
    CHECK_OK(ckr__fileset_scan(&k, deep), &err);
    return k;
}

static void kit_put(const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "/w/kit/%s", name);
    memio_put(&mem, path, name, strlen(name));
}

/* `every` of a kind ends with this, for that file. */
static void kit_every(uint8_t kind, uint32_t rank, ckr_item item, const char *name)
{
    ckr__fileset k = kit_scan(false);
    char path[200] = "";
    k.size[CKR__RANK] = rank;
    if (*name) snprintf(path, sizeof path, "/w/kit/%s", name);
    if (item == CKR_ITEM_OK) {
        CHECK_OK(ckr__fileset_every(&k, kind, false, NULL), &err);
        return;
    }
    bad_is(ckr__fileset_every(&k, kind, false, NULL), &err, name, bad(item, path, NOWHERE, ""));
    CHECK(err.remedy[0]);
}

static void kit_name(const char *s, uint8_t kind, const char *name)
{
    ckr__rankfile f;
    char path[200];
    CHECK_INT(ckr__form_find(kit_forms, s, &f), kind);
    if (!kind) return;
    f.rel = s;
    snprintf(path, sizeof path, "%s%s", ckr__form_name(&kit, f.form->pattern, &f),
             kind == KIT_DIR ? "/" : "");
    CHECK_STR(path, s);
    CHECK(!*name ? !f.n_name : f.n_name == strlen(name) && !memcmp(f.name, name, f.n_name));
}

static void kit_names(void)
{
    ckr__rankfile f;
    kit_name("model_world_size_4_rank_3.pt", KIT_MODEL, "");
    kit_name("model_world_size_0_rank_3.pt", 0, "");
    kit_name("model_world_size_4_rank_1234567890.pt", 0, "");
    kit_name("model_world_size_4_rank_.pt", 0, "");
    kit_name("model_world_size_4_rank_3.pt2", 0, "");
    kit_name("optim_r0.bin", KIT_OPTIM, "");
    kit_name("optim_dp02_r0.bin", KIT_OPTIM, "");
    kit_name("optim_dp2_r0.bin", 0, "");
    kit_name("rank_00/", KIT_DIR, "");
    kit_name("rank_10_123/", KIT_DIR, "");
    kit_name("rank_10_123", 0, "");
    kit_name("sub/a.b.0.x", KIT_PART, "a.b");
    kit_name("sub/c/d/a_s1_e2-of-3.9.x", KIT_PART, "a");
    kit_name("sub/c/d/a_s1_s4.9.x", KIT_PART, "a_s1");
    kit_name("sub/.0.x", 0, "");
    kit_name("sup/a.0.x", 0, "");
    CHECK(ckr__form_match("a{step:08}b a{step}", "a00000012b", &f) && f.step == 12);
    CHECK(ckr__form_match("a{step:08}b a{step}", "a12", &f) && f.step == 12);
    CHECK(!ckr__form_match("a{step:08}b a{step}", "a00000012b a12", &f));
}

static ckr_result kit_rate(ckr__ctx *c, const char *dir, int *rate)
{
    uint32_t kinds;
    const ckr_result r = ckr__form_kinds(c, dir, kit_forms, &kinds);
    *rate = kinds & 1u << KIT_MODEL ? 2 : kinds & 1u << KIT_OPTIM ? 1 : 0;
    return r;
}

/* Which directory is taken; "": none. */
static void kit_run(const char *dir)
{
    static const ckr__runs runs = { "step_{step} {name}-{step}", "old latest", "ckpt",
                                    CKR_ITEM_FILES_LATEST, kit_rate, NULL, false };
    const char *got = NULL;
    bool mine = true;
    memset(&err, 0, sizeof err);
    ckr__ctx_enter(&kit, &err);
    if (ckr__runs_probe(&kit, &runs, "/w/kit", &got, &mine) != CKR_OK) {
        bad_is(err.code, &err, dir, bad(CKR_ITEM_FILES_LATEST, dir, 0, ""));
        return;
    }
    CHECK_INT(mine, *dir != 0);
    if (mine) CHECK_STR(got, dir);
}

static void kit_runs(void)
{
    memio_free(&mem);
    kit_put("notes.txt");
    kit_run("");
    kit_put("ckpt/step_3/optim_r0.bin");
    kit_run("/w/kit/ckpt/step_3");
    kit_put("step_7/model_world_size_1_rank_0.pt");
    kit_put("step_10/model_world_size_1_rank_0.pt");
    kit_put("run-11/optim_r0.bin");                    /* a part: whole ones come first       */
    kit_put("step_12/notes.txt");
    kit_put("other/model_world_size_1_rank_0.pt");
    kit_run("/w/kit/step_10");
    memio_put(&mem, "/w/kit/latest", " 7\n", 3);
    kit_run("/w/kit/step_7");
    memio_put(&mem, "/w/kit/latest", "run-11", 6);
    kit_run("/w/kit/run-11");
    memio_put(&mem, "/w/kit/latest", "other", 5);
    kit_run("/w/kit/other");
    memio_put(&mem, "/w/kit/latest", "9", 1);
    kit_run("/w/kit/latest");
    CHECK_STR(err.remedy, "name the directory of a complete step: /w/kit/step_10");
    memio_put(&mem, "/w/kit/latest", "12", 2);
    kit_run("/w/kit/latest");
    memio_put(&mem, "/w/kit/latest", "../kit/step_7", 13);
    kit_run("/w/kit/latest");
    memio_put(&mem, "/w/kit/model_world_size_1_rank_0.pt", "", 0);
    kit_run("/w/kit");
}

static void kit_files(void)
{
    ckr__fileset k;
    ckr__rankfile **all = NULL;
    ckr_env env = faulty_env(&fault, memio_io(&mem));
    if (!CHECK_OK(ckr__ctx_init(&kit, &env, NULL, &err), &err)) return;
    kit_names();
    kit_runs();
    memio_free(&mem);
    kit_put("model_world_size_2_rank_1.pt");
    kit_every(KIT_MODEL, 0, CKR_ITEM_RANK_MISSING, "model_world_size_2_rank_0.pt");
    kit_put("model_world_size_2_rank_0.pt");
    kit_every(KIT_MODEL, 0, CKR_ITEM_OK, "");
    kit_every(KIT_MODEL, 4, CKR_ITEM_FILES_SIZES, "model_world_size_2_rank_0.pt");
    kit_put("model_world_size_3_rank_1.pt");
    kit_every(KIT_MODEL, 2, CKR_ITEM_FILES_FOREIGN, "model_world_size_3_rank_1.pt");
    kit_put("model_world_size_3_rank_0.pt");
    kit_every(KIT_MODEL, 0, CKR_ITEM_FILES_MIXED, "model_world_size_3_rank_0.pt");
    kit_put("optim_r0.bin");
    kit_put("optim_r2.bin");
    kit_every(KIT_OPTIM, 3, CKR_ITEM_RANK_MISSING, "optim_r1.bin");
    k = kit_scan(true);
    k.size[CKR__RANK] = 3;
    CHECK_OK(ckr__fileset_every(&k, KIT_OPTIM, true, &all), &err);
    CHECK(all && all[0] && !all[1] && all[2]);
    CHECK_OK(ckr__fileset_step(&k, all[2]->path, "step", NULL, 7, 7), &err);
    bad_is(ckr__fileset_step(&k, all[2]->path, "step", NULL, 7, 8), &err, "step",
           bad(CKR_ITEM_FILES_STEP, "/w/kit/optim_r2.bin", NOWHERE, "step"));
    kit_put("optim_r00.bin");
    kit_every(KIT_OPTIM, 3, CKR_ITEM_FILES_DUPLICATE, "optim_r00.bin");
    from_disk(TP2 "/13/optimizer/optimizer" RANK("0"), "/w/kit/optimizer" RANK("1"));
    k = kit_scan(false);
    CHECK_INT(k.n_files[KIT_STATE], 1);
    bad_is(ckr__fileset_load(&k, k.files[KIT_STATE][0], NULL), &err, "another rank's",
           bad(CKR_ITEM_FILES_SWAPPED, "/w/kit/optimizer" RANK("1"), NOWHERE, ""));
    ckr__ctx_free(&kit);
}

static void unreadable(void)
{
    load(TP2);
    file(QKV("1"))->size = 100;
    refused("a cut weight", false, bad(CKR_ITEM_ST_HEADER, QKV("1"), 0, ""));
    load(TP2);
    file(QKV("1"))->size -= 4;
    refused("a weight 4 bytes short", false, bad(CKR_ITEM_ST_LAYOUT, QKV("1"), 273, "data"));
    load(TP2);
    file(STATES("1"))->size -= 1;
    refused("a cut optimizer", false,
            bad(CKR_ITEM_ZIP_END, STATES("1"), file(STATES("1"))->size, ""));
    load(TP2);
    file(STATES("1"))->size = 0;
    refused("an empty optimizer", false, bad(CKR_ITEM_UNKNOWN_FORMAT, STATES("1"), 0, ""));
}

/* ---- shards of another run ---- */

static void shapes(void)
{
    load(TP2);
    copy(O_PROJ("1"), QKV("1"));
    refused("o_proj as qkv_proj", true, bad(CKR_ITEM_RANK_SHAPE, QKV("1"), NOWHERE,
                                            "model.decoder.0.pp_block.attn.qkv_proj.weight"));
    load(TP2);
    from_disk(ZERO "/13/" LAYER "attn/qkv_proj/" SHARD("1"), QKV("1"));
    refused("bfloat16 on rank 1", true, bad(CKR_ITEM_RANK_SHAPE, QKV("1"), 8,
                                             "model.decoder.0.pp_block.attn.qkv_proj.weight"));
    load(TP2);
    swap(QKV("0"), QKV("1"));
    refused("swapped shards", true, bad(CKR_ITEM_NANOTRON_COVERAGE, QKV("0"), 8,
                                        "model.decoder.0.pp_block.attn.qkv_proj.weight"));
    load(TP2);
    copy(QKV("0"), QKV("1"));
    refused("one shard twice", true, bad(CKR_ITEM_NANOTRON_COVERAGE, QKV("1"), 8,
                                         "model.decoder.0.pp_block.attn.qkv_proj.weight"));
    load(TP2);
    swap(STATES("0"), STATES("1"));
    refused("swapped optimizers", true, bad(CKR_ITEM_FILES_SWAPPED, STATES("0"), NOWHERE, ""));
    load(TP2);
    swap(RANDOM("0"), RANDOM("1"));
    refused("swapped generators", true, bad(CKR_ITEM_FILES_SWAPPED, RANDOM("0"), NOWHERE, ""));
    load(TP2);
    edit(QKV("1"), "0,16,None", "0;16,None");
    refused("slices", false, bad(CKR_ITEM_NANOTRON_SLICES, QKV("1"), 8,
                                 "model.decoder.0.pp_block.attn.qkv_proj.weight"));
    load(TP2);
    edit(O_PROJ("0"), "#None,None,None|0,16,None", "#0,16,None|None,None,None");
    edit(O_PROJ("1"), "#None,None,None|16,32,None", "#16,32,None|None,None,None");
    edit(O_PROJ("0"), "[32,16]", "[16,32]");
    edit(O_PROJ("1"), "[32,16]", "[16,32]");
    refused("rows of o_proj", true, bad(CKR_ITEM_TP_AXIS, O_PROJ("0"), NOWHERE,
                                        "model.decoder.0.pp_block.attn.o_proj.weight"));
}

#define KEY(length, text) length "\0\0\0" text, sizeof(text) + 3

/* Flips a bit of the number of 8 bytes that stands behind `key` in a pickle: G and the number
   follow the key's own opcode. */
static void other_number(const char *path, const char *key, size_t n)
{
    memio_file *f = file(path);
    uint8_t *p = find(f, key, n) + n;
    while (*p != 'G') p++;
    p[7] ^= 1;
}

/* Where a file holds its part of a slot; 0 with a failed check. */
static uint64_t place(const char *path, const char *name, const char *slot)
{
    ckr_ckpt *c = NULL;
    const ckr_tensor *t;
    uint64_t at = 0;
    uint32_t i;
    if (!CHECK_OK(open_it(&c), &err)) return 0;
    t = ckr_ckpt_tensor(c, name, slot);
    for (i = 0; t && i < t->n_pieces; i++)
        if (!strcmp(c->ctx.files[t->pieces[i].file].path, path) && !at)
            at = t->pieces[i].offset;
    CHECK(at > 0 && t->dtype == CKR_DTYPE_F32);
    ckr_ckpt_close(c);
    return at;
}

static void optimizers(void)
{
    static const uint8_t twelve[4] = { 0, 0, 0x40, 0x41 };
    uint64_t at;
    load(TP2);
    at = place(STATES("1"), TOKENS, "step");
    memcpy(file(STATES("1"))->data + at, twelve, 4);
    refused("another step", true, bad(CKR_ITEM_FILES_STEP, STATES("1"), NOWHERE, "state"));
    CHECK(strstr(err.text, "12") && strstr(err.text, "13"));
    load(TP2);
    other_number(STATES("1"), KEY("\14", "weight_decay"));
    refused("weight_decay", true, bad(CKR_ITEM_RANK_GROUPS, STATES("1"), NOWHERE, TOKENS));
    load(TP2);
    other_number(STATES("1"), KEY("\2", "lr"));
    refused("lr", true, bad(CKR_ITEM_FILES_STEP, STATES("1"), NOWHERE, TOKENS));
    load(TP2);
    edit(STATES("1"), "final_layer_norm", "final_layer_gone");
    refused("names", true, bad(CKR_ITEM_OPTIMIZER_NAMES, STATES("1"), NOWHERE,
                               "model.final_layer_gone.pp_block.weight"));
    load(TP2);
    edit(STATES("1"), "param_groups", "param_troops");
    refused("no groups", false,
            bad(CKR_ITEM_METADATA, STATES("1"), NOWHERE, "param_groups"));
    load(TP2);
    at = place(STATES("0"), "model.decoder.1.pp_block.attn.qkv_proj.weight", "exp_avg");
    edit(STATES("0"), "model.decoder.1.pp_block.attn.qkv_", "model.decoder.0.pp_block.attn.qkv_");
    edit(STATES("1"), "model.decoder.0.pp_block.attn.qkv_", "model.decoder.1.pp_block.attn.qkv_");
    refused("one parameter twice", false, bad(CKR_ITEM_TENSOR_OVERLAP, STATES("0"), at,
                               "model.decoder.0.pp_block.attn.qkv_proj.weight"));
}

static void schedulers(void)
{
    load(TP2);
    from_disk(PP2 "/13/lr_scheduler/lr_scheduler_pp-1-of-2_tp-0-of-1_exp-0-of-1.pt", SCHEDULE("1"));
    refused("2 lambdas", true,
            bad(CKR_ITEM_NANOTRON_SCHEDULER, SCHEDULE("1"), NOWHERE, "lr_lambdas"));
    load(TP2);
    other_number(SCHEDULE("1"), KEY("\10", "_last_lr"));
    refused("_last_lr", true, bad(CKR_ITEM_FILES_STEP, SCHEDULE("1"), NOWHERE, "_last_lr"));
}

/* Four ranks hold two halves each twice: nothing in the files says which expert a half is of. */
static void experts(void)
{
    static const char *const kind[] = { "optimizer/optimizer", "lr_scheduler/lr_scheduler" };
    char from[300], to[300];
    int k, tp, ep;
    load(TP2);
    edit(OPTIMIZER, "\"expert_parallel_size\": \"1\"", "\"expert_parallel_size\": \"2\"");
    for (tp = 0; tp < 2; tp++) {
        for (k = 0; k < 2; k++) {
            snprintf(from, sizeof from, STEP "%s_pp-0-of-1_tp-%d-of-2_exp-0-of-1.pt", kind[k], tp);
            for (ep = 0; ep < 2; ep++) {
                snprintf(to, sizeof to, STEP "%s_pp-0-of-1_tp-%d-of-2_exp-%d-of-2.pt", kind[k], tp,
                         ep);
                copy(from, to);
            }
            memio_remove(&mem, from);
        }
        snprintf(from, sizeof from, STEP LAYER "attn/o_proj/model_weight_pp-rank-0-of-1_"
                 "tp-rank-%d-of-2.safetensors", tp);
        for (ep = 0; ep < 2; ep++) {
            snprintf(to, sizeof to, STEP LAYER "attn/o_proj/model_weight_pp-rank-0-of-1_"
                     "tp-rank-%d-of-2_exp-rank-%d-of-2.safetensors", tp, ep);
            copy(from, to);
        }
        memio_remove(&mem, from);
    }
    snprintf(to, sizeof to, STEP LAYER "attn/o_proj/model_weight_pp-rank-0-of-1_tp-rank-0-of-2_"
             "exp-rank-0-of-2.safetensors");
    refused("experts", false, bad(CKR_ITEM_NANOTRON_EXPERTS, to, 8,
                                  "model.decoder.0.pp_block.attn.o_proj.weight"));
}

/* ---- the tool where a plan or the system says no ---- */

/* Exit code, and what stands on stderr (one sentence that names this) or, for 1, in the report. */
static void tool_ends(const char *const *args, int code, const char *names)
{
    char said[4096];
    size_t n_out = 0;
    int got = bad_tool(tmp, args, said, sizeof said, &n_out);
    t_check(got == code, __FILE__, __LINE__, "%s %s: exit %d, expected %d: %s", args[1], args[2],
            got, code, said);
    if (code == 1) {
        char path[600], text[4096];
        snprintf(path, sizeof path, "%s/stdout", tmp);
        bad_text(path, text, sizeof text);
        t_check(strstr(text, names) && strstr(text, "\"remedy\":\"") && !said[0], __FILE__,
                __LINE__, "%s: no %s, or no remedy, in: %s%s", args[1], names, text, said);
    } else {
        t_check(strstr(said, names) && !strncmp(said, "ckptresume: ", 12) && n_out == 0, __FILE__,
                __LINE__, "%s: no %s in: %s", args[1], names, said);
    }
}

static void tool_outputs(void)
{
    char there[600], none[600], queue[600], loop[600], full[600];
    const char *exists[] = { tool, "convert", TP2, there, "--json", NULL },
               *inside[] = { tool, "convert", TP2, TP2 "/13/out", NULL },
               *pipe_out[] = { tool, "convert", TP2, queue, "--force", "--json",
                             NULL },
               *parent[] = { tool, "convert", TP2, none, NULL },
               *uneven[] = { tool, "plan", TP2, "--tp=3", "--json", NULL },
               *read[] = { tool, "inspect", loop, NULL },
               *space[] = { "/bin/sh", "-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"", tool,
                            "convert", TP2, full, NULL },
               *usage[] = { tool, "plan", TP2, "--tp=x", NULL };
    snprintf(there, sizeof there, "%s/there", tmp);
    snprintf(none, sizeof none, "%s/none/out", tmp);
    snprintf(queue, sizeof queue, "%s/queue", tmp);
    snprintf(loop, sizeof loop, "%s/loop.safetensors", tmp);
    snprintf(full, sizeof full, "%s/full", tmp);
    if (mkdir(there, 0777) != 0) exit(2);
    tool_ends(exists, 1, "CKR_E_OUTPUT_EXISTS");
#if !defined(_WIN32)           /* no pipes among files, no limit on a file's size, and links only
                                  for administrators */
    if (symlink("loop.safetensors", loop) != 0 || mkfifo(queue, 0666) != 0) exit(2);
    tool_ends(pipe_out, 1, "a device, a pipe");
    tool_ends(read, 4, loop);
    tool_ends(space, 4, "/.full.ckptresume-tmp/");
#else
    (void)pipe_out, (void)read, (void)space;
#endif
    tool_ends(inside, 2, TP2 "/13/out");
    tool_ends(parent, 4, none);
    tool_ends(uneven, 1, "CKR_E_TP_UNEVEN");
    tool_ends(usage, 2, "--tp");
    CHECK(access(TP2 "/13/out", F_OK) != 0 && access(none, F_OK) != 0 &&
          access(full, F_OK) != 0);
}

/* Flags that would be passed over, or whose words nothing knows: usage, before anything is read. */
static void tool_flags(void)
{
    const char *format[] = { tool, "inspect", TP2, "--format=zip", NULL },
               *other[] = { tool, "inspect", TP2, "--format=torch_zip", NULL },
               *rewarm[] = { tool, "plan", TP2, "--rewarm-steps=5", NULL },
               *batch[] = { tool, "plan", TP2, "--micro-batch=5", NULL },
               *length[] = { tool, "plan", TP2, "--seq-len=5", NULL },
               *group[] = { tool, "plan", TP2, "--set=nobody.lr=1", NULL },
               *vpp[] = { tool, "plan", TP2, "--vpp=2", NULL },
               *slots[] = { tool, "plan", TP2, "--slots=params", NULL },
               *version[] = { tool, "plan", TP2, "--to-version=0.4", NULL },
               *beside[] = { tool, "lr", TP2, "--optimizer=/nowhere", NULL },
               *cap[] = { tool, "plan", TP2, "--memory=64K", NULL },
               *dir[] = { tool, "tree", TP2, NULL },
               *both[] = { tool, "lr", TP2, "--csv", "--json", NULL };
    char path[600], text[4096];
    size_t n_out = 0;
    int got;
    tool_ends(format, 2, "--format");
    tool_ends(other, 3, "expected torch_zip");
    tool_ends(rewarm, 2, "--lr-policy rewarm");
    tool_ends(batch, 2, "--data");
    tool_ends(length, 2, "--data");
    tool_ends(group, 2, "nobody");
    tool_ends(vpp, 2, "megatron");
    tool_ends(slots, 2, "--slots");
    tool_ends(version, 2, "--to-version");
    tool_ends(beside, 2, "optimizer");
    tool_ends(cap, 3, "allow 256 KiB");
    tool_ends(dir, 3, "name one of the files");
    got = bad_tool(tmp, both, text, sizeof text, &n_out);
    snprintf(path, sizeof path, "%s/stdout", tmp);
    bad_text(path, text, sizeof text);
    t_check(got == 2 && !strncmp(text, "{\"error\":{", 10) && strstr(text, "--csv"), __FILE__,
            __LINE__, "lr --csv --json: exit %d, %.60s", got, text);
}

/* Where nothing can be made: told before anything is written, not when the output is to take its
   name. */
static void tool_nowhere(void)
{
    char link[600], under[600];
    const char *nowhere[] = { tool, "convert", TP2, link, "--force", "--json",
                             NULL },
               *file[] = { tool, "convert", TP2, under, "--tp=1", NULL };
    snprintf(link, sizeof link, "%s/link", tmp);
    snprintf(under, sizeof under, "%s/file/out", tmp);
#if !defined(_WIN32)           /* links are for administrators there */
    CHECK(symlink("nowhere", link) == 0);
    tool_ends(nowhere, 1, "leads nowhere");
    CHECK(unlink(link) == 0);
#else
    (void)nowhere;
#endif
    snprintf(link, sizeof link, "%s/file", tmp);
    fclose(fopen(link, "w"));
    tool_ends(file, 4, "its parent is no directory");
}

/* A rank's file by itself: read for what it is, or not, and the directory is named. */
static void one_file(void)
{
    static const struct { const char *file, *dir, *dialect; } row[] = {
        { "tests/data/nanotron/tp2_pp1_dp1/ckpt/13/" LAYER "attn/qkv_proj/" SHARD("1"),
          "tests/data/nanotron/tp2_pp1_dp1/ckpt/13", "nanotron" },
        { "tests/data/megatron/legacy_tp2_dp2_distopt/ckpt/iter_0000006/mp_rank_00/"
          "model_optim_rng.pt",
          "tests/data/megatron/legacy_tp2_dp2_distopt/ckpt/iter_0000006", "megatron" },
        { "tests/data/megatron/v019_fr_tp2/ckpt/iter_0000006/__0_0.distcp",
          "tests/data/megatron/v019_fr_tp2/ckpt/iter_0000006", NULL },
        { "tests/data/dcp/tt_single/step-10/__0_0.distcp", "tests/data/dcp/tt_single/step-10",
          NULL },
        { "tests/data/dcp/tt_single/step-10/.metadata", "tests/data/dcp/tt_single/step-10",
          "dcp" },
        { "tests/data/deepspeed/cut/ckpt/global_step3/zero_pp_rank_1_mp_rank_00_model_states.pt",
          "tests/data/deepspeed/cut/ckpt/global_step3", "deepspeed" },
        { "tests/data/llmc/uneven/ckpt/state_00000008_00001.bin", "tests/data/llmc/uneven/ckpt",
          NULL }
    };
    char want[256];
    size_t i;
    for (i = 0; i < sizeof row / sizeof *row; i++) {
        ckr_ckpt *c = NULL;
        const ckr_state *st;
        const char *said = "nothing";
        uint64_t k;
        ckr_result r = ckr_ckpt_open(row[i].file, NULL, &c, &err);
        snprintf(want, sizeof want, "open %s", row[i].dir);
        if (r != CKR_OK) said = err.remedy;
        st = c ? ckr_ckpt_state(c) : NULL;
        for (k = 0; st && k < st->n_notes; k++)
            if (!strcmp(st->notes[k].code, "CKR_W_ONE_FILE") &&
                strstr(st->notes[k].reason, row[i].dialect)) said = st->notes[k].remedy;
        t_check((r == CKR_OK) == (row[i].dialect != NULL) && !strcmp(said, want), __FILE__,
                __LINE__, "%s: %s", row[i].file, said);
        ckr_ckpt_close(c);
    }
}

/* What the note of a file in memory names, "" without one. */
static void names(const char *path, const char *dir)
{
    ckr_env env = faulty_env(&fault, memio_io(&mem));
    ckr_open_desc desc = CKR_ZERO;
    ckr_ckpt *c = NULL;
    const ckr_state *st;
    const char *said = "";
    uint64_t i;
    desc.env = &env;
    if (!CHECK_OK(ckr_ckpt_open(path, &desc, &c, &err), &err)) return;
    st = ckr_ckpt_state(c);
    for (i = 0; i < st->n_notes; i++)
        if (!strcmp(st->notes[i].code, "CKR_W_ONE_FILE")) said = st->notes[i].remedy;
    t_check(!strcmp(said, dir), __FILE__, __LINE__, "%s: \"%s\", not \"%s\"", path, said, dir);
    ckr_ckpt_close(c);
}

/* The nearest checkpoint that the file lies in, and no other one around it. */
static void one_file_where(void)
{
    const memio_file *f;
    load(TP2);
    f = file(QKV("1"));
    memio_put(&mem, "/w/" SHARD("1"), f->data, f->size);
    memio_put(&mem, IN "/dl/x/" SHARD("1"), f->data, f->size);
    memio_put(&mem, IN "/13/model_weights.safetensors", f->data, f->size);
    memio_put(&mem, SHARD("1"), f->data, f->size);
    names(QKV("1"), "open " IN "/13");
    names("/w/" SHARD("1"), "");
    names(IN "/dl/x/" SHARD("1"), "");
    names(IN "/13/model_weights.safetensors", "");
    names(SHARD("1"), "");
    memio_load(&mem, "tests/data/dcp/tt_single", IN "/13/tt");
    names(IN "/13/tt/step-10/.metadata", "open " IN "/13/tt/step-10");
    memio_load(&mem, "tests/data/megatron/legacy_tp2_dp2_distopt/ckpt", "/m");
    memio_load(&mem, "tests/data/dcp/tt_single", "/m/tt");
    names("/m/tt/step-10/.metadata", "open /m/tt/step-10");
    names("/m/iter_0000006/mp_rank_00/model_optim_rng.pt", "open /m/iter_0000006");
}

int main(int argc, char **argv)
{
    static const ckr_item never[] = { CKR_ITEM_OK };
    t_begin(argc, argv);
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);    /* 3000 small files */
    tmp = t_tmpdir();
    tool = getenv("TOOL") ? getenv("TOOL") : "./ckptresume";
    RUN(wrong_directory);
    RUN(latest);
    RUN(being_written);
    RUN(metadata);
    RUN(topology);
    RUN(configuration);
    RUN(missing);
    RUN(foreign);
    RUN(kit_files);
    RUN(unreadable);
    RUN(shapes);
    RUN(optimizers);
    RUN(schedulers);
    RUN(experts);
    RUN(one_file);
    RUN(one_file_where);
    RUN(tool_outputs);
    RUN(tool_flags);
    RUN(tool_nowhere);
    if (!t_now.only) bad_all_seen(BAD_FILES, never);
    memio_free(&mem);
    t_remove_tree(tmp);
    return t_end();
}
