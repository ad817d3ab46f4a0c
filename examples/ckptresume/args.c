/* Every flag of the command line is a row: where its value goes, how it is read, which verbs take
   it. KIND_LATER rows are flags of the contract that this version cannot honour: their `help` is
   the only value that changes nothing and is therefore accepted ("*" any); other values are
   refused. */

#include "tool.h"

#define OPTIONS_MAX 80
#define AT(member) offsetof(options, member)

const option all_options[] = {
    { "to", "DIALECT", KIND_TEXT, AT(target.dialect), VERB_TARGET,
      "the framework of the coming run (default: the source's)" },
    { "variant", "V", KIND_TEXT, AT(target.variant), VERB_TARGET, "one of a framework's layouts" },
    { "tp", "N", KIND_COUNT, AT(target.topology.tp), VERB_TARGET | VERB_RNG,
      "tensor-parallel size" },
    { "pp", "N", KIND_COUNT, AT(target.topology.pp), VERB_TARGET | VERB_RNG,
      "pipeline-parallel size" },
    { "dp", "N", KIND_COUNT, AT(target.topology.dp), VERB_TARGET | VERB_RNG,
      "data-parallel size" },
    { "ep", "N", KIND_COUNT, AT(target.topology.ep), VERB_TARGET | VERB_RNG,
      "expert-parallel size" },
    { "cp", "N", KIND_COUNT, AT(target.topology.cp), VERB_TARGET | VERB_RNG,
      "context-parallel size" },
    { "zero", "STAGE", KIND_STAGE, AT(target.topology.zero), VERB_TARGET, "ZeRO stage, 0 to 3" },
    { "ranks", "N", KIND_COUNT, AT(target.topology.ranks), VERB_TARGET | VERB_RNG,
      "processes of the coming run" },
    { "vocab", "N", KIND_ROWS, AT(target.vocab), VERB_OPENING,
      "logical vocabulary size, where no file tells it" },
    { "heads", "N", KIND_ROWS, AT(heads), VERB_POLICY,
      "heads of the attention, where no file tells them (megatron, nanotron, llmc)" },
    { "kv-heads", "N", KIND_ROWS, AT(kv_heads), VERB_POLICY,
      "key-value heads of the attention, where no file tells them (megatron, nanotron, "
      "torchtitan)" },
    { "fsdp-size", "N", KIND_ROWS, AT(fsdp_size), VERB_TARGET,
      "ranks that FSDP cuts one copy of the model over (verl)" },
    { "mode", "MODE", KIND_MODE, AT(target.mode), VERB_POLICY | VERB_RNG,
      "recover, continue (default) or transfer" },
    { "only", "LIST", KIND_ONLY, AT(target.without), VERB_POLICY,
      "keep only these components: params,optimizer,groups,schedule,rng,progress,data" },
    { "without", "LIST", KIND_WITHOUT, AT(target.without), VERB_POLICY,
      "leave these components out" },
    { "dtype", "DT", KIND_DTYPE, AT(target.dtype), VERB_TARGET | VERB_EXPORT,
      "cast parameters: float32, bfloat16, float16, ..." },
    { "slots", "LIST", KIND_TEXT, AT(target.slots), VERB_TARGET | VERB_EXPORT,
      "tensors of a plain file: params (default), all, or a list" },
    { "max-shard-size", "SIZE", KIND_BYTES, AT(max_shard_bytes), VERB_TARGET | VERB_EXPORT,
      "safetensors: a directory of files no larger, and model.safetensors.index.json: 5GB, 512M" },
    { "set", "KEY=VALUE", KIND_SET, AT(sets), VERB_POLICY,
      "lr, min_lr, weight_decay, warmup_steps, decay_steps, total_steps, decay_style, batch_size; "
      "GROUP.KEY=VALUE for one group; may be repeated" },
    { "to-schedule", "KIND:...", KIND_TEXT, AT(target.schedule), VERB_POLICY,
      "the whole schedule of the coming run, in its framework's own names" },
    { "schedule", "KIND:...", KIND_TEXT, AT(schedule), VERB_POLICY | VERB_INSPECT,
      "the schedule of the saved run, where the checkpoint does not tell it" },
    { "like", "FILE", KIND_TEXT, AT(like), VERB_POLICY,
      "a checkpoint or JSON that has the coming run's groups: {\"groups\":[{\"params\":[..],"
      "\"lr\":..}]}" },
    { "lr-policy", "POLICY", KIND_LR_POLICY, AT(target.lr_policy), VERB_POLICY,
      "keep, target, splice, stretch or rewarm (default: target when a key of the schedule is set, "
      "else keep)" },
    { "rewarm-steps", "N", KIND_ROWS, AT(target.rewarm_steps), VERB_POLICY,
      "how long --lr-policy rewarm warms up" },
    { "max-lr-jump", "R", KIND_RATIO, AT(target.max_lr_jump), VERB_POLICY,
      "largest ratio between the last LR used and the first one after (default 1.05)" },
    { "settings", "FILE", KIND_TEXT, AT(settings), VERB_TARGET,
      "what the coming run must be started with, into FILE" },
    { "optimizer", "FILE", KIND_TEXT, AT(optimizer), VERB_LR | VERB_INSPECT,
      "the optimizer's file beside a bare scheduler's" },
    { "from", "STEP", KIND_ROWS, AT(from), VERB_LR, "first update shown (default 1)" },
    { "to", "STEP|DIALECT", KIND_UNTIL, AT(to), VERB_LR,
      "last update shown (default: the run's or the schedule's end, or twice the step); or the "
      "coming run's framework" },
    { "column", "NAME", KIND_COLUMN, AT(column), VERB_LR, "lr (default), weight_decay, momentum" },
    { "csv", NULL, KIND_SWITCH, AT(csv), VERB_LR, "comma-separated values instead of a table" },
    { "svg", "FILE", KIND_TEXT, AT(svg), VERB_LR, "a plot of both curves, into FILE" },
    { "strict", NULL, KIND_SWITCH, AT(target.strict), VERB_POLICY | VERB_EXPORT,
      "refuse anything but exact and changed" },
    { "force", NULL, KIND_SWITCH, AT(target.force), VERB_TARGET | VERB_EXPORT,
      "the output may exist: it is replaced" },
    { "repair", NULL, KIND_SWITCH, AT(target.repair), VERB_TARGET | VERB_EXPORT,
      "undo known writer bugs where the right bytes can be proven" },
    { "tensors", NULL, KIND_SWITCH, AT(tensors), VERB_INSPECT, "list every tensor" },
    { "files", NULL, KIND_SWITCH, AT(files), VERB_PLAN, "list every file that would be written" },
    { "select", "POINTER", KIND_TEXT, AT(select), VERB_TREE,
      "only this part: a JSON pointer, /optimizer/state/0" },
    { "hash", NULL, KIND_SWITCH, AT(hash), VERB_TREE, "with the SHA-256 of tensors and storages" },
    { "json", NULL, KIND_SWITCH, AT(json), VERB_ANY,
      "one JSON document on stdout, nothing else there" },
    { "dialect", "D", KIND_TEXT, AT(dialect), VERB_OPENING,
      "the framework that wrote it, instead of recognition" },
    { "format", "F", KIND_TEXT, AT(format), VERB_OPENING | VERB_TREE,
      "insist on a file format: safetensors, torch_zip, ..." },
    { "names", "FILE", KIND_TEXT, AT(names), VERB_OPENING,
      "parameter names in the optimizer's order" },
    { "threads", "N", KIND_COUNT, AT(threads), VERB_ANY, "default: one per CPU" },
    { "memory", "SIZE", KIND_BYTES, AT(memory), VERB_ANY, "cap on buffers: 256M, 1M, 2G" },
    { "quiet", NULL, KIND_SWITCH, AT(quiet), VERB_ANY,
      "only the result, no progress and no notes" },
    { "progress", NULL, KIND_SWITCH, AT(progress), VERB_ANY,
      "progress on stderr even when it is no terminal" },
    { "color", "WHEN", KIND_COLOR, AT(color), VERB_ANY, "auto (default), always or never" },
    { "help", NULL, KIND_SWITCH, AT(help), VERB_ANY, "help for a verb" },
    { "vpp", "N", KIND_COUNT, AT(vpp), VERB_TARGET,
      "virtual pipeline stages of each stage (megatron)" },
    { "to-version", "V", KIND_TEXT, AT(to_version), VERB_TARGET,
      "of the target framework, where its layout changed (megatron)" },
    { "rng", "POLICY", KIND_RNG, AT(target.rng), VERB_TARGET | VERB_RNG,
      "keep (default): what was saved stays; remap: repeated streams are derived anew; reseed" },
    { "seed", "S", KIND_SEED, AT(target.seed), VERB_TARGET | VERB_RNG, "of --rng reseed" },
    { "data", "GLOB", KIND_TEXT, AT(data), VERB_TARGET,
      "the coming run's token files, where the position in the data is counted anew (llm.c)" },
    { "micro-batch", "B", KIND_ROWS, AT(micro_batch), VERB_TARGET,
      "its samples of one process and micro-step" },
    { "seq-len", "T", KIND_ROWS, AT(seq_len), VERB_TARGET, "its tokens of one sample" },
    { NULL, NULL, KIND_LATER, 0, 0, NULL }
};

static bool parse_u64(const char *s, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;
    if (!*s) return false;
    for (; *s >= '0' && *s <= '9'; s++) {
        const uint64_t d = (uint64_t)(*s - '0');
        if (v > (max - d) / 10) return false;
        v = v * 10 + d;
    }
    *out = v;
    return *s == '\0' && v <= max;
}

/* 4096, 64K, 256M, 2G, 1T; also 256MiB; 5GB counts in thousands */
static bool parse_bytes(const char *s, uint64_t *out)
{
    static const char units[] = "KMGT";
    const size_t n = strspn(s, "0123456789");
    const char *unit;
    char digits[24];
    uint64_t scale = 1;
    if (n == 0 || n >= sizeof digits) return false;
    memcpy(digits, s, n);
    digits[n] = '\0';
    s += n;
    if (*s && (unit = strchr(units, *s >= 'a' ? *s - 'a' + 'A' : *s)) != NULL) {
        ptrdiff_t k = unit - units + 1;
        const uint64_t step = s[1] == 'B' ? 1000 : 1024;       /* 5GB, and 5G or 5GiB */
        for (s += s[1] == 'i' ? 2 : 1; k > 0; k--) scale *= step;
    }
    if (*s == 'B') s++;
    if (*s || !parse_u64(digits, UINT64_MAX, out) || *out > UINT64_MAX / scale || *out == 0)
        return false;
    *out *= scale;
    return true;
}

/* The index of a word in a list, or -1. */
static int word_index(const char *const *words, size_t n, const char *s, size_t len)
{
    size_t i;
    for (i = 0; i < n; i++)
        if (strlen(words[i]) == len && !memcmp(words[i], s, len)) return (int)i;
    return -1;
}

static bool parse_components(const char *s, uint32_t *bits)
{
    static const char *const names[] = { "params", "optimizer", "groups", "schedule",
                                         "rng",    "progress",  "data" };
    *bits = 0;
    for (;;) {
        const size_t n = strcspn(s, ",");
        const int i = word_index(names, COUNT_OF(names), s, n);
        if (i < 0) return false;
        *bits |= (uint32_t)1 << i;
        if (!s[n]) return true;
        s += n + 1;
    }
}

static bool parse_dtype(const char *s, ckr_dtype *out)
{
    static const char *const shorts[] = { "fp32", "f32",  "float", "bf16", "fp16",
                                          "f16",  "half", "fp64",  "f64" };
    static const ckr_dtype of_short[] = {
        CKR_DTYPE_F32, CKR_DTYPE_F32, CKR_DTYPE_F32, CKR_DTYPE_BF16, CKR_DTYPE_F16, CKR_DTYPE_F16,
        CKR_DTYPE_F16, CKR_DTYPE_F64, CKR_DTYPE_F64
    };
    const int k = word_index(shorts, COUNT_OF(shorts), s, strlen(s));
    int i;
    if (k >= 0) *out = of_short[k];
    for (i = 1; k < 0 && i < (int)CKR_DTYPE_COUNT_; i++)
        if (!strcmp(s, ckr_dtype_name((ckr_dtype)i))) {
            *out = (ckr_dtype)i;
            return true;
        }
    return k >= 0;
}

/* A word of a fixed list becomes its index, stored as an int (the size of our enums). */
static bool store_word(void *field, const char *const *words, size_t n, const char *s)
{
    const int i = word_index(words, n, s, strlen(s));
    if (i >= 0) memcpy(field, &i, sizeof i);
    return i >= 0;
}

static bool store_number(const option *o, void *field, const char *s)
{
    uint64_t v;
    uint32_t u;
    int32_t stage;
    if (o->kind == KIND_BYTES) {
        if (!parse_bytes(s, &v)) return false;
        memcpy(field, &v, sizeof v);
        return true;
    }
    if (!parse_u64(s, o->kind == KIND_STAGE ? 3 : o->kind == KIND_ROWS ? INT64_MAX : 1u << 24, &v))
        return false;
    if (o->kind == KIND_STAGE) {
        stage = v ? (int32_t)v : CKR_ZERO_OFF;
        memcpy(field, &stage, sizeof stage);
    } else if (o->kind == KIND_ROWS) {
        memcpy(field, &v, sizeof v);
    } else {
        u = (uint32_t)v;
        memcpy(field, &u, sizeof u);
    }
    return v > 0 || o->kind == KIND_STAGE;
}

/* GROUP.KEY=VALUE: the key is behind the last dot, a name may have dots. The text is the command
   line's own and is cut in place. */
static bool store_setting(options *into, const char *s)
{
    char *whole = (char *)(uintptr_t)s, *equals = strchr(whole, '='), *dot;
    ckr_setting *x = &into->sets[into->target.n_sets];
    if (!equals || equals == whole || !equals[1] || into->target.n_sets >= SETTINGS_MAX)
        return false;
    *equals = '\0';
    dot = strrchr(whole, '.');
    if (dot) *dot = '\0';
    x->group = dot ? whole : NULL;
    x->key = dot ? dot + 1 : whole;
    x->value = equals + 1;
    into->target.sets = into->sets;
    into->target.n_sets++;
    return *x->key != '\0';
}

static bool store_ratio(void *field, const char *s)
{
    char *end = NULL;
    const double v = strtod(s, &end);
    if (!end || *end || !(v >= 1 && v <= 1e300)) return false;
    memcpy(field, &v, sizeof v);
    return true;
}

static bool store_components(const option *o, void *field, const char *s)
{
    uint32_t bits, old;
    if (!parse_components(s, &bits)) return false;
    memcpy(&old, field, sizeof old);
    old |= o->kind == KIND_ONLY ? ~bits & 127u : bits;
    memcpy(field, &old, sizeof old);
    return true;
}

/* Reads `s` into the option's field; false: not a value of this kind. */
static bool option_store(const option *o, options *into, const char *s)
{
    static const char *const modes[] = { "continue", "recover", "transfer" };
    static const char *const colors[] = { "auto", "always", "never" };
    static const char *const policies[] = { "", "keep", "target", "splice", "stretch", "rewarm" };
    static const char *const columns[] = { "lr", "weight_decay", "momentum" };
    static const char *const rng_policies[] = { "keep", "remap", "reseed" };
    void *field = (char *)into + o->at;
    const bool on = true;
    ckr_dtype dtype;
    switch (o->kind) {
    case KIND_SWITCH: memcpy(field, &on, sizeof on); return true;
    case KIND_TEXT: memcpy(field, &s, sizeof s); return *s != '\0';
    case KIND_MODE: return store_word(field, modes, COUNT_OF(modes), s);
    case KIND_COLOR: return store_word(field, colors, COUNT_OF(colors), s);
    case KIND_ONLY:
    case KIND_WITHOUT: return store_components(o, field, s);
    case KIND_DTYPE:
        if (!parse_dtype(s, &dtype)) return false;
        memcpy(field, &dtype, sizeof dtype);
        return true;
    case KIND_SET: return store_setting(into, s);
    case KIND_LR_POLICY: return *s && store_word(field, policies, COUNT_OF(policies), s);
    case KIND_COLUMN: return store_word(field, columns, COUNT_OF(columns), s);
    case KIND_RATIO: return store_ratio(field, s);
    case KIND_RNG: return store_word(field, rng_policies, COUNT_OF(rng_policies), s);
    case KIND_SEED: return parse_u64(s, UINT64_MAX, (uint64_t *)field);
    case KIND_UNTIL:
        if (parse_u64(s, INT64_MAX, (uint64_t *)field)) return into->to > 0;
        into->target.dialect = s;
        return *s != '\0' && !strchr("-+.0123456789", *s);
    case KIND_LATER: return o->help && (o->help[0] == '*' || !strcmp(o->help, s));
    case KIND_COUNT:
    case KIND_ROWS:
    case KIND_STAGE:
    case KIND_BYTES: return store_number(o, field, s);
    }
    return false;
}

static const char *option_wants(const option *o)
{
    switch (o->kind) {
    case KIND_COUNT:
    case KIND_ROWS: return "a whole number from 1";
    case KIND_UNTIL: return "a whole number from 1, or a framework";
    case KIND_STAGE: return "0, 1, 2 or 3";
    case KIND_BYTES: return "a size like 256M, 64K or 2G";
    case KIND_MODE: return "recover, continue or transfer";
    case KIND_COLOR: return "auto, always or never";
    case KIND_ONLY:
    case KIND_WITHOUT: return "a list out of params,optimizer,groups,schedule,rng,progress,data";
    case KIND_DTYPE: return "a dtype like float32, bfloat16 or float16";
    case KIND_SET: return "KEY=VALUE or GROUP.KEY=VALUE";
    case KIND_LR_POLICY: return "keep, target, splice, stretch or rewarm";
    case KIND_COLUMN: return "lr, weight_decay or momentum";
    case KIND_RATIO: return "a number from 1";
    case KIND_RNG: return "keep, remap or reseed";
    case KIND_SEED: return "a whole number";
    case KIND_SWITCH:
    case KIND_TEXT:
    case KIND_LATER: break;
    }
    return "a value";
}

/* Edit distance of two words, both cut at 31 letters: enough to find a mistyped flag. */
size_t word_distance(const char *a, const char *b)
{
    size_t row[32], n = strlen(b), i, k;
    if (n > 31) n = 31;
    for (k = 0; k <= n; k++) row[k] = k;
    for (i = 0; a[i] && i < 31; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (k = 1; k <= n; k++) {
            size_t best = diagonal + (a[i] != b[k - 1]);
            diagonal = row[k];
            if (row[k] + 1 < best) best = row[k] + 1;
            if (row[k - 1] + 1 < best) best = row[k - 1] + 1;
            row[k] = best;
        }
    }
    return row[n];
}

static const option *option_nearest(const char *name)
{
    const option *best = &all_options[0];
    size_t i, least = SIZE_MAX;
    for (i = 0; all_options[i].name; i++) {
        size_t d = word_distance(name, all_options[i].name);
        if (!strncmp(name, all_options[i].name, strlen(name))) d = d > 1 ? 1 : d;
        if (d < least) {
            least = d;
            best = &all_options[i];
        }
    }
    return best;
}

/* --to is a framework for most verbs and a step for lr: the row that the verb takes, else the first
   one. The verb stands before its flags, or the flag is ambiguous and means the first.          */
static const option *option_find(const job *j, const char *name, size_t n)
{
    const option *first = NULL;
    size_t i;
    for (i = 0; all_options[i].name; i++) {
        const option *o = &all_options[i];
        if (strlen(o->name) != n || memcmp(o->name, name, n) != 0) continue;
        if (j->verb && (o->verbs & j->verb->bit)) return o;
        if (!first) first = o;
    }
    return first;
}

static int option_refuse(job *j, const option *o, const char *flag, const char *value)
{
    if (o->kind != KIND_LATER)
        return usage(j, flag, "found \"%.100s\", expected %s", value, option_wants(o));
    if (o->help && o->help[0] != '*')
        return usage(j, flag, "\"%.100s\" is not available yet; only \"%s\" is", value, o->help);
    return usage(j, flag, "this flag is not available yet");
}

/* One flag, argv[*i]; takes the next argument where it is the value. `used` collects rows for the
   check against the verb, which may come later. */
static int option_take(job *j, int argc, char **argv, int *i, bool *used)
{
    const char *arg = argv[*i] + 2, *equals = strchr(arg, '='), *value = "";
    const size_t n = equals ? (size_t)(equals - arg) : strlen(arg);
    const option *o = option_find(j, arg, n);
    char flag[64];
    snprintf(flag, sizeof flag, "--%.*s", n > 60 ? 60 : (int)n, arg);
    if (!o)
        return usage(j, flag, "there is no such flag; the nearest is --%s",
                     option_nearest(flag + 2)->name);
    if (!o->value && equals) return usage(j, flag, "this flag takes no value");
    if (equals) {
        value = equals + 1;
    } else if (o->value) {
        if (*i + 1 >= argc || !strncmp(argv[*i + 1], "--", 2))
            return usage(j, flag, "the value is missing, expected %s", option_wants(o));
        value = argv[++*i];
    }
    used[o - all_options] = true;
    return option_store(o, &j->o, value) ? CODE_DONE : option_refuse(j, o, flag, value);
}

static int take_word(job *j, const char *word)
{
    if (!j->verb) {
        j->verb = verb_find(word);
        if (j->verb) return CODE_DONE;
        return usage(j, word, "there is no such verb; the nearest is %s", verb_nearest(word));
    }
    if (j->n_args >= j->verb->n_args)
        return usage(j, word, "found one argument too many, expected: ckptresume %s",
                     j->verb->usage);
    if (!*word) return usage(j, j->verb->usage, "found an empty path");
    j->args[j->n_args++] = word;
    return CODE_DONE;
}

/* Flags are checked against the verb at the end, because they may stand before it. */
static int check_flags(job *j, const bool *used)
{
    size_t i, k;
    for (i = 0; all_options[i].name; i++) {
        text verbs;
        char flag[40];
        int code;
        if (!used[i] || (all_options[i].verbs & j->verb->bit)) continue;
        memset(&verbs, 0, sizeof verbs);
        for (k = 0; all_verbs[k].name; k++)
            if (all_options[i].verbs & all_verbs[k].bit)
                text_fmt(&verbs, "%s%s", verbs.n ? ", " : "", all_verbs[k].name);
        text_put(&verbs, "", 1);
        snprintf(flag, sizeof flag, "--%s", all_options[i].name);
        code = usage(j, flag, "this is no flag of %s but of: %.200s", j->verb->name,
                     verbs.data ? verbs.data : "");
        text_free(&verbs);
        return code;
    }
    return CODE_DONE;
}

static int parse_args(job *j, int argc, char **argv, bool *used)
{
    bool flags = true;
    int i, code = CODE_DONE;
    for (i = 1; i < argc && code == CODE_DONE; i++) {
        if (flags && !strcmp(argv[i], "--")) flags = false;
        else if (flags && !strcmp(argv[i], "-h")) j->o.help = true;
        else if (flags && !strcmp(argv[i], "--version") && !j->verb) code = take_word(j, "version");
        else if (flags && !strncmp(argv[i], "--", 2)) code = option_take(j, argc, argv, &i, used);
        else if (flags && argv[i][0] == '-' && argv[i][1])
            code = usage(j, argv[i], "flags have two dashes; after -- a path may begin with one");
        else code = take_word(j, argv[i]);
    }
    return code;
}

/* What a failure must know before all flags are read: where and how to say it. */
static void scan_output(job *j, int argc, char **argv)
{
    int i;
    for (i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (!strcmp(argv[i], "--json")) j->o.json = true;
    j->out.to = stdout;
    j->note.to = stderr;
    j->note.color = color_of(COLOR_AUTO, stderr);
}

static bool was_used(const bool *used, const char *name)
{
    size_t i;
    for (i = 0; all_options[i].name; i++)
        if (used[i] && !strcmp(all_options[i].name, name)) return true;
    return false;
}

/* A seed without reseed would be passed over, and reseed without one would be the same for all. */
static int check_seed(job *j, const bool *used)
{
    const bool reseed = j->o.target.rng == CKR_RNG_RESEED, seed = was_used(used, "seed");
    if (reseed && !seed)
        return usage(j, "--rng", "reseed needs the seed of the new streams: --seed S");
    if (seed && !reseed)
        return usage(j, "--seed", "it is the seed of --rng reseed, which is not asked for");
    return CODE_DONE;
}

/* Flags that say something only beside another one: alone they would be passed over. */
static int check_alone(job *j, const bool *used)
{
    const ckr_target *t = &j->o.target;
    if (was_used(used, "rewarm-steps") && t->lr_policy != CKR_LR_REWARM)
        return usage(j, "--rewarm-steps", "it goes with --lr-policy rewarm, not asked for");
    if (!j->o.data && (j->o.micro_batch || j->o.seq_len))
        return usage(j, j->o.micro_batch ? "--micro-batch" : "--seq-len",
                     "it goes with --data GLOB, the files in which a place is counted anew");
    return CODE_DONE;
}

/* One document has one form, and a format that nothing is called would fit no file. */
static int check_forms(job *j)
{
    const char *f = j->o.format;
    if (j->o.json && j->o.csv)
        return usage(j, "--csv", "--json asks for another form of the same values");
    if (f && word_index(format_names, COUNT_OF(format_names), f, strlen(f)) < 0)
        return usage(j, "--format", "there is no format \"%.100s\", expected one that inspect "
                     "shows: safetensors, torch_zip, torch_legacy, pickle, npy, npz, dcp, llmc", f);
    return CODE_DONE;
}

static int run_verb(job *j, const bool *used)
{
    int code;
    if (j->o.help || !j->verb) return help_about(j, j->verb);
    code = check_flags(j, used);
    if (code == CODE_DONE) code = check_seed(j, used);
    if (code == CODE_DONE) code = check_alone(j, used);
    if (code == CODE_DONE) code = check_forms(j);
    if (code != CODE_DONE) return code;
    if (j->n_args < j->verb->n_args && j->verb->bit != VERB_HELP)
        return usage(j, NULL, "an argument is missing, expected: ckptresume %s", j->verb->usage);
    return j->verb->run_fn(j);
}

/* What single frameworks have goes to the library as a list of texts. */
static void list_options(options *o)
{
    const struct { const char *key, *text; uint64_t number; } rows[] = {
        { "vpp", NULL, o->vpp }, { "to_version", o->to_version, 0 },
        { "heads", NULL, (uint64_t)o->heads }, { "kv_heads", NULL, (uint64_t)o->kv_heads },
        { "fsdp_size", NULL, (uint64_t)o->fsdp_size },
        { "max_shard_bytes", NULL, o->max_shard_bytes }, { "data", o->data, 0 },
        { "micro_batch", NULL, (uint64_t)o->micro_batch },
        { "seq_len", NULL, (uint64_t)o->seq_len }
    };
    size_t i, n = 0;
    for (i = 0; i < COUNT_OF(rows); i++) {
        if (!rows[i].text && !rows[i].number) continue;
        snprintf(o->numbers[n], sizeof o->numbers[n], "%llu", (unsigned long long)rows[i].number);
        o->list[n].key = rows[i].key;
        o->list[n].value = rows[i].text ? rows[i].text : o->numbers[n];
        n++;
    }
    o->target.options = o->list;
    o->target.n_options = n;
}

int run(job *j, int argc, char **argv)
{
    bool used[OPTIONS_MAX];
    int code;
    memset(used, 0, sizeof used);
    scan_output(j, argc, argv);
    code = parse_args(j, argc, argv, used);
    if (code != CODE_DONE) return code;
    list_options(&j->o);
    j->out.color = color_of(j->o.color, stdout);
    j->note.color = color_of(j->o.color, stderr);
    j->env.parallel.n_threads = j->o.threads;
    j->env.progress_fn = progress_hook;
    j->env.log_fn = log_hook;
    j->env.user = j;
    code = run_verb(j, used);
    if (argc > 1 || code != CODE_DONE) return code;
    return CODE_USAGE;
}
