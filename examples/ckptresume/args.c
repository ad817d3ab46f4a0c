/* Every flag of the command line is a row: where its value goes, how it is read, which verbs take
   it, and in which group `help` shows it. Rows of a group stand together. */

#include "tool.h"

#define AT(member) offsetof(options, member)

#define COMPONENTS "params optimizer groups schedule rng progress data"

const option all_options[] = {
    /* what the coming run looks like */
    { "to", "DIALECT", KIND_DIALECT, GROUP_RUN, AT(target.dialect), VERB_TARGET, NULL,
      "the framework of the coming run (default: the source's)" },
    { "to", "DIALECT|STEP", KIND_UNTIL, GROUP_RUN, AT(to), VERB_LR, NULL,
      "the framework of the coming run; or a number, the last update shown (default: the run's or "
      "the schedule's end, or twice the step)" },
    { "variant", "V", KIND_TEXT, GROUP_RUN, AT(target.variant), VERB_POLICY, NULL,
      "one of its layouts: see help dialects" },
    { "to-version", "V", KIND_TEXT, GROUP_RUN, AT(to_version), VERB_POLICY, NULL,
      "its version, where the layout changed (megatron)" },
    { "tp", "N", KIND_COUNT, GROUP_RUN, AT(target.topology.tp), VERB_POLICY | VERB_RNG, NULL,
      "tensor-parallel size" },
    { "pp", "N", KIND_COUNT, GROUP_RUN, AT(target.topology.pp), VERB_POLICY | VERB_RNG, NULL,
      "pipeline-parallel size" },
    { "vpp", "N", KIND_COUNT, GROUP_RUN, AT(vpp), VERB_POLICY, NULL,
      "virtual pipeline stages of each stage (megatron)" },
    { "dp", "N", KIND_COUNT, GROUP_RUN, AT(target.topology.dp), VERB_POLICY | VERB_RNG, NULL,
      "data-parallel size" },
    { "ep", "N", KIND_COUNT, GROUP_RUN, AT(target.topology.ep), VERB_POLICY | VERB_RNG, NULL,
      "expert-parallel size" },
    { "cp", "N", KIND_COUNT, GROUP_RUN, AT(target.topology.cp), VERB_POLICY | VERB_RNG, NULL,
      "context-parallel size" },
    { "zero", "STAGE", KIND_STAGE, GROUP_RUN, AT(target.topology.zero), VERB_POLICY, "0 1 2 3",
      "ZeRO stage; of Megatron-LM 1 is the distributed optimizer" },
    { "fsdp-size", "N", KIND_ROWS, GROUP_RUN, AT(fsdp_size), VERB_POLICY, NULL,
      "ranks that FSDP cuts one copy of the model over (verl)" },
    { "ranks", "N", KIND_COUNT, GROUP_RUN, AT(target.topology.ranks), VERB_POLICY | VERB_RNG, NULL,
      "all its processes: what the other sizes leave of them is data-parallel" },
    { "data", "GLOB", KIND_FILE, GROUP_RUN, AT(data), VERB_POLICY, NULL,
      "its token files, from which the position in the data is recomputed (llmc)" },
    { "micro-batch", "B", KIND_ROWS, GROUP_RUN, AT(micro_batch), VERB_POLICY, NULL,
      "its samples of one process and micro-step, beside --data" },
    { "seq-len", "T", KIND_ROWS, GROUP_RUN, AT(seq_len), VERB_POLICY, NULL,
      "its tokens of one sample, beside --data" },
    /* what it keeps */
    { "mode", "MODE", KIND_WORD, GROUP_KEEP, AT(target.mode), VERB_POLICY | VERB_RNG,
      "continue recover transfer",
      "continue (default): what you ask for may change, and all else stays; recover: every byte "
      "stays, any difference is refused; transfer: the weights only, and the run starts at 0" },
    { "only", "LIST", KIND_ONLY, GROUP_KEEP, AT(target.without), VERB_POLICY, COMPONENTS,
      "keep only these components: params,optimizer,groups,schedule,rng,progress,data" },
    { "without", "LIST", KIND_WITHOUT, GROUP_KEEP, AT(target.without), VERB_POLICY, COMPONENTS,
      "leave these components out" },
    { "strict", NULL, KIND_SWITCH, GROUP_KEEP, AT(target.strict), VERB_POLICY | VERB_EXPORT, NULL,
      "refuse anything but exact and changed" },
    { "repair", NULL, KIND_SWITCH, GROUP_KEEP, AT(target.repair), VERB_TARGET | VERB_EXPORT, NULL,
      "undo known writer bugs where the right bytes can be proven" },
    /* learning rate and parameter groups */
    { "set", "KEY=VALUE", KIND_SET, GROUP_LR, AT(sets), VERB_POLICY,
      "lr= min_lr= weight_decay= warmup_steps= decay_steps= total_steps= decay_style= batch_size=",
      "lr, min_lr, weight_decay, warmup_steps, decay_steps, total_steps, decay_style, batch_size; "
      "GROUP.KEY=VALUE for one group; may be repeated" },
    { "to-schedule", "KIND:...", KIND_SCHEDULE, GROUP_LR, AT(target.schedule), VERB_POLICY, NULL,
      "the whole schedule of the coming run, in its framework's own names: see help schedules" },
    { "schedule", "KIND:...", KIND_SCHEDULE, GROUP_LR, AT(schedule), VERB_POLICY | VERB_INSPECT,
      NULL, "the schedule of the saved run, where the checkpoint does not record it" },
    { "optimizer", "FILE", KIND_FILE, GROUP_LR, AT(optimizer), VERB_LR | VERB_INSPECT, NULL,
      "the optimizer's file beside a bare scheduler's" },
    { "like", "FILE", KIND_FILE, GROUP_LR, AT(like), VERB_POLICY, NULL,
      "the coming run's groups: a checkpoint or JSON, see help files" },
    { "lr-policy", "POLICY", KIND_WORD, GROUP_LR, AT(target.lr_policy), VERB_POLICY,
      " keep target splice stretch rewarm",
      "keep: as the checkpoint would have gone on; target: the new schedule's value at this "
      "step; splice: the new schedule, scaled to be continuous here; stretch: the rest of the old "
      "curve over the new length; rewarm: warm up again from 0. Default: target when a key of the "
      "schedule is set, else keep" },
    { "rewarm-steps", "N", KIND_ROWS, GROUP_LR, AT(target.rewarm_steps), VERB_POLICY, NULL,
      "how long --lr-policy rewarm warms up" },
    { "max-lr-jump", "R", KIND_RATIO, GROUP_LR, AT(target.max_lr_jump), VERB_POLICY, NULL,
      "largest ratio between the last LR used and the first one after (default 1.05)" },
    { "from", "STEP", KIND_ROWS, GROUP_LR, AT(from), VERB_LR, NULL,
      "first update shown (default 1); --to STEP is the last" },
    { "column", "NAME", KIND_WORD, GROUP_LR, AT(column), VERB_LR, "lr weight_decay momentum",
      "lr (default), weight_decay, momentum" },
    /* random streams */
    { "rng", "POLICY", KIND_WORD, GROUP_RNG, AT(target.rng), VERB_TARGET | VERB_RNG,
      "keep remap reseed",
      "keep (default): what was saved stays; remap: streams that repeat others are replaced "
      "by new ones; reseed: all are, from --seed" },
    { "seed", "S", KIND_SEED, GROUP_RNG, AT(target.seed), VERB_TARGET | VERB_RNG, NULL,
      "of --rng reseed" },
    /* what the files of the checkpoint do not record */
    { "dialect", "D", KIND_DIALECT, GROUP_INPUT, AT(dialect), VERB_OPENING, NULL,
      "the framework that wrote it, instead of recognition" },
    { "format", "F", KIND_FORMAT, GROUP_INPUT, AT(format), VERB_OPENING | VERB_TREE, NULL,
      "insist on a file format: safetensors, torch_zip, ..." },
    { "names", "FILE", KIND_FILE, GROUP_INPUT, AT(names), VERB_OPENING, NULL,
      "parameter names in the optimizer's order, see help files" },
    { "vocab", "N", KIND_ROWS, GROUP_INPUT, AT(target.vocab), VERB_OPENING, NULL,
      "logical vocabulary size" },
    { "heads", "N", KIND_ROWS, GROUP_INPUT, AT(heads), VERB_POLICY, NULL,
      "heads of the attention (megatron, nanotron, llmc)" },
    { "kv-heads", "N", KIND_ROWS, GROUP_INPUT, AT(kv_heads), VERB_POLICY, NULL,
      "key-value heads of the attention (megatron, nanotron, torchtitan)" },
    { "select", "POINTER", KIND_TEXT, GROUP_INPUT, AT(select), VERB_TREE, NULL,
      "only this part: a JSON pointer, /optimizer/state/0" },
    /* what is written and shown */
    { "dtype", "DT", KIND_DTYPE, GROUP_OUTPUT, AT(target.dtype), VERB_TARGET | VERB_EXPORT,
      "float32 bfloat16 float16 float64 float8_e4m3fn float8_e5m2", "cast parameters" },
    { "slots", "LIST", KIND_TEXT, GROUP_OUTPUT, AT(target.slots), VERB_TARGET | VERB_EXPORT, NULL,
      "tensors of a plain file: params (default of export), all, or a list" },
    { "max-shard-size", "SIZE", KIND_BYTES, GROUP_OUTPUT, AT(max_shard_bytes),
      VERB_TARGET | VERB_EXPORT, NULL,
      "safetensors: a directory of files no larger, and model.safetensors.index.json: 5GB, 512M" },
    { "force", NULL, KIND_SWITCH, GROUP_OUTPUT, AT(target.force), VERB_TARGET | VERB_EXPORT, NULL,
      "the output, and FILE of --settings, may exist: it is replaced" },
    { "continue", NULL, KIND_SWITCH, GROUP_OUTPUT, AT(parts.go_on), VERB_CONVERT | VERB_EXPORT,
      NULL, "go on where a run with --continue or --part was ended: what it wrote is verified and "
      "stays; else the run begins anew" },
    { "part", "I/N", KIND_PART, GROUP_OUTPUT, AT(part), VERB_CONVERT | VERB_EXPORT, NULL,
      "write only part I of N, on any machine that shares the file system; --commit N, when all "
      "are written, makes OUT of them" },
    { "commit", "N", KIND_COUNT, GROUP_OUTPUT, AT(commit), VERB_CONVERT | VERB_EXPORT, NULL,
      "prove that N parts are written and fit, and make OUT of them" },
    { "settings", "FILE", KIND_FILE, GROUP_OUTPUT, AT(settings), VERB_TARGET, NULL,
      "what the coming run must be started with, into FILE" },
    { "tensors", "[PATTERN]", KIND_PATTERN, GROUP_OUTPUT, AT(pattern), VERB_INSPECT, NULL,
      "list every tensor, or those with such a name, * and ? in it; behind PATH, or --tensors=" },
    { "stats", NULL, KIND_SWITCH, GROUP_OUTPUT, AT(stats), VERB_INSPECT, NULL,
      "of each tensor in the list: min, max, mean, std, zeros, what is not finite" },
    { "stat", NULL, KIND_SWITCH, GROUP_OUTPUT, AT(stat), VERB_DIFF, NULL,
      "only the line of each slot and the worst tensors" },
    { "limit", "N", KIND_LIMIT, GROUP_OUTPUT, AT(limit), VERB_DIFF, NULL,
      "how many tensors are listed: a number (default 10), or all" },
    { "tolerance", "T", KIND_TOLERANCE, GROUP_OUTPUT, AT(tolerance), VERB_DIFF, NULL,
      "tensors whose values differ by no more are the same, whatever their dtypes: 1e-6, or 2ulp; "
      "0 takes no other dtype, 0ulp one in which they are equal" },
    { "files", NULL, KIND_SWITCH, GROUP_OUTPUT, AT(files), VERB_PLAN, NULL,
      "list every file that would be written" },
    { "each", NULL, KIND_SWITCH, GROUP_OUTPUT, AT(each), VERB_DIGEST, NULL,
      "the digest of every tensor" },
    { "hash", NULL, KIND_SWITCH, GROUP_OUTPUT, AT(hash), VERB_TREE, NULL,
      "with the SHA-256 of tensors and storages" },
    { "csv", NULL, KIND_SWITCH, GROUP_OUTPUT, AT(csv), VERB_LR, NULL,
      "comma-separated values instead of a table" },
    { "svg", "FILE", KIND_FILE, GROUP_OUTPUT, AT(svg), VERB_LR, NULL,
      "a plot of both curves, into FILE" },
    { "man", NULL, KIND_SWITCH, GROUP_OUTPUT, AT(man), VERB_HELP, NULL,
      "all of it as a manual page" },
    { "bash", NULL, KIND_SWITCH, GROUP_OUTPUT, AT(bash), VERB_HELP, NULL,
      "completions for bash" },
    { "zsh", NULL, KIND_SWITCH, GROUP_OUTPUT, AT(zsh), VERB_HELP, NULL, "completions for zsh" },
    /* of every verb */
    { "json", NULL, KIND_SWITCH, GROUP_ALL, AT(json), VERB_ANY, NULL,
      "one JSON document on stdout, nothing else there" },
    { "quiet", NULL, KIND_SWITCH, GROUP_ALL, AT(quiet), VERB_ANY, NULL,
      "only the result, no progress and no notes" },
    { "verbose", NULL, KIND_SWITCH, GROUP_ALL, AT(verbose), VERB_ANY, NULL,
      "every note and every row, not one line for those that are alike" },
    { "progress", NULL, KIND_SWITCH, GROUP_ALL, AT(progress), VERB_ANY, NULL,
      "progress on stderr even when it is no terminal" },
    { "color", "WHEN", KIND_WORD, GROUP_ALL, AT(color), VERB_ANY, "auto always never",
      "auto (default), always or never" },
    { "threads", "N", KIND_COUNT, GROUP_ALL, AT(threads), VERB_ANY, NULL,
      "default: one per CPU; 32 at least where PATH is on a network" },
    { "memory", "SIZE", KIND_BYTES, GROUP_ALL, AT(memory), VERB_ANY, NULL,
      "cap on buffers: 256M, 1M, 2G" },
    { "help", NULL, KIND_SWITCH, GROUP_ALL, AT(help), VERB_ANY, NULL, "help for a verb" },
    { NULL, NULL, KIND_SWITCH, GROUP_ALL, 0, 0, NULL, NULL }
};
typedef char options_fit[COUNT_OF(all_options) <= OPTIONS_MAX ? 1 : -1];

/* The flag that has an option of the library; NULL: none has. */
const char *flag_of(const char *key)
{
    static const char *const flags[][2] = {
        { "to_version", "--to-version" }, { "max_shard_bytes", "--max-shard-size" },
        { "vpp", "--vpp" }, { "slots", "--slots" }, { "kv_heads", "--kv-heads" },
        { "data", "--data" }, { "dtype", "--dtype" }, { "float8", "--dtype" },
        { "fsdp_size", "--fsdp-size" }, { "heads", "--heads" },
        { "micro_batch", "--micro-batch" }, { "seq_len", "--seq-len" }
    };
    size_t i;
    for (i = 0; i < COUNT_OF(flags); i++) if (!strcmp(key, flags[i][0])) return flags[i][1];
    return NULL;
}

static bool parse_u64(const char *s, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;
    if (!*s) return false;
    for (; *s >= '0' && *s <= '9'; s++) {
        const uint64_t d = (uint64_t)(*s - '0');
        if (v > (max - d) / 10) return false;
        v = v * 10 + d;
    }
    if (*s || v > max) return false;
    *out = v;
    return true;
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

/* The index of s[0..n) in a list with a blank between its words; -1: it is none of them. */
int word_index(const char *words, const char *s, size_t n)
{
    int i;
    for (i = 0; n; i++, words++) {
        const size_t len = strcspn(words, " ");
        if (len == n && !memcmp(words, s, n)) return i;
        words += len;
        if (!*words) break;
    }
    return -1;
}

static bool parse_dtype(const char *s, ckr_dtype *out)
{
    static const ckr_dtype of_short[] = {
        CKR_DTYPE_F32, CKR_DTYPE_F32, CKR_DTYPE_F32, CKR_DTYPE_BF16, CKR_DTYPE_F16, CKR_DTYPE_F16,
        CKR_DTYPE_F16, CKR_DTYPE_F64, CKR_DTYPE_F64
    };
    const int k = word_index("fp32 f32 float bf16 fp16 f16 half fp64 f64", s, strlen(s));
    int i;
    if (k >= 0) *out = of_short[k];
    for (i = 1; k < 0 && i < (int)CKR_DTYPE_COUNT_; i++)
        if (!strcmp(s, ckr_dtype_name((ckr_dtype)i))) {
            *out = (ckr_dtype)i;
            return true;
        }
    return k >= 0;
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

/* Components to leave out, or the only ones to keep: a list with commas. */
static bool store_components(const option *o, void *field, const char *s)
{
    uint32_t bits = 0, old;
    for (;; s++) {
        const size_t n = strcspn(s, ",");
        const int i = word_index(o->words, s, n);
        if (i < 0) return false;
        bits |= (uint32_t)1 << i;
        s += n;
        if (!*s) break;
    }
    memcpy(&old, field, sizeof old);
    old |= o->kind == KIND_ONLY ? ~bits & 127u : bits;
    memcpy(field, &old, sizeof old);
    return true;
}

static bool store_tolerance(options *into, const char *s)
{
    char *end = NULL;
    into->tolerance = s;
    into->tolerate = strtod(s, &end);
    into->tolerance_ulp = end != s && !strcmp(end, "ulp");
    return end != s && (into->tolerance_ulp || !*end) && into->tolerate >= 0 &&
           into->tolerate <= 1e300;
}

/* I/N */
static bool store_part(options *into, const char *s)
{
    char first[16];
    const size_t n = strcspn(s, "/");
    uint64_t part, of;
    if (n >= sizeof first || !s[n]) return false;
    memcpy(first, s, n);
    first[n] = '\0';
    if (!parse_u64(first, UINT32_MAX, &part) || !parse_u64(s + n + 1, UINT32_MAX, &of))
        return false;
    into->part = (uint32_t)part;
    into->parts.n = (uint32_t)of;
    return part && part <= of;
}

/* Reads `s` into the option's field; false: not a value of this kind. */
static bool option_store(const option *o, options *into, const char *s)
{
    void *field = (char *)into + o->at;
    const bool on = true;
    char *end = NULL;
    double ratio;
    ckr_dtype dtype;
    int i;
    switch (o->kind) {
    case KIND_SWITCH: memcpy(field, &on, sizeof on); return true;
    case KIND_WORD:            /* its index, as an int: the size of our enums */
        i = word_index(o->words, s, strlen(s));
        memcpy(field, &i, i < 0 ? 0 : sizeof i);
        return i >= 0;
    case KIND_ONLY:
    case KIND_WITHOUT: return store_components(o, field, s);
    case KIND_DTYPE:
        if (!parse_dtype(s, &dtype)) return false;
        memcpy(field, &dtype, sizeof dtype);
        return true;
    case KIND_SET: return store_setting(into, s);
    case KIND_RATIO:
        ratio = strtod(s, &end);
        memcpy(field, &ratio, sizeof ratio);
        return end && !*end && ratio >= 1 && ratio <= 1e300;
    case KIND_SEED: return parse_u64(s, UINT64_MAX, (uint64_t *)field);
    case KIND_UNTIL:
        if (parse_u64(s, INT64_MAX, (uint64_t *)field)) return into->to > 0;
        into->target.dialect = s;
        return *s != '\0' && !strchr("-+.0123456789", *s);
    case KIND_LIMIT:
        if (strcmp(s, "all") != 0) return parse_u64(s, UINT64_MAX, &into->limit) && into->limit;
        into->limit = UINT64_MAX;
        return true;
    case KIND_TOLERANCE: return store_tolerance(into, s);
    case KIND_PART: return store_part(into, s);
    case KIND_PATTERN:
        into->pattern = *s ? s : NULL;
        into->tensors = true;
        return true;
    case KIND_COUNT:
    case KIND_ROWS:
    case KIND_STAGE:
    case KIND_BYTES: return store_number(o, field, s);
    case KIND_FORMAT:
        if (word_index(format_words, s, strlen(s)) < 0) return false;
        break;
    case KIND_TEXT:
    case KIND_FILE:
    case KIND_DIALECT:
    case KIND_SCHEDULE: break;
    }
    memcpy(field, &s, sizeof s);
    return *s != '\0';
}

static const char *option_wants(const option *o)
{
    switch (o->kind) {
    case KIND_COUNT:
    case KIND_ROWS: return "a whole number from 1";
    case KIND_UNTIL: return "a whole number from 1, or a framework";
    case KIND_BYTES: return "a size like 256M, 64K or 2G";
    case KIND_ONLY:
    case KIND_WITHOUT: return "a list with commas out of: ";
    case KIND_WORD:
    case KIND_STAGE: return "one of: ";
    case KIND_DTYPE: return "a dtype: ";
    case KIND_FORMAT: return "a format that inspect shows: ";
    case KIND_SET: return "KEY=VALUE or GROUP.KEY=VALUE with: ";
    case KIND_RATIO: return "a number from 1";
    case KIND_SEED: return "a whole number";
    case KIND_LIMIT: return "a whole number from 1, or all";
    case KIND_TOLERANCE: return "a number like 1e-6, or 2ulp";
    case KIND_PART: return "a part and how many there are: 1/4 to 4/4";
    case KIND_SCHEDULE: return "KIND:key=value,... as in `ckptresume help schedules`";
    case KIND_FILE: return "a file";
    case KIND_DIALECT: return "a framework of `ckptresume help dialects`";
    case KIND_SWITCH:
    case KIND_PATTERN:
    case KIND_TEXT: break;
    }
    return "a value";
}

const char *option_words(const option *o)
{
    const char *s = o->kind == KIND_FORMAT ? format_words : o->words ? o->words : "";
    return s + (*s == ' ');
}

/* Edit distance of two words, both cut at 31 letters: enough to find a mistyped one. */
static size_t word_distance(const char *a, const char *b)
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

/* How far off a known word is from what was typed, a smaller number being nearer; SIZE_MAX when it
   is another word. One letter for another counts more than one too many: --dpp is --dp, not --pp.
   A part of a name is near. */
size_t word_miss(const char *typed, const char *known)
{
    const size_t d = word_distance(typed, known), n = strlen(typed), m = strlen(known);
    const size_t most = n < m ? n : m;
    size_t same = 0;
    if (n > 2 && strstr(known, typed)) return 2;
    if (d > (n + 2) / 3 || d >= most) return SIZE_MAX;
    while (typed[same] && typed[same] == known[same]) same++;
    return 64 * d - (same < 32 ? same : 31);
}

/* The nearest flag: of the verb when it has one that is near, else of any. NULL: none is. */
static const option *option_nearest(const job *j, const char *name)
{
    const option *best = NULL, *o;
    size_t least = SIZE_MAX, d;
    int all;
    for (all = !j->verb; all < 2 && !best; all++)
        for (o = all_options; o->name; o++) {
            if ((!all && !(o->verbs & j->verb->bit)) || (d = word_miss(name, o->name)) >= least)
                continue;
            least = d;
            best = o;
        }
    return best;
}

/* --to is a framework for most verbs, and for lr a step, too: the row that the verb takes, else the
   first one. */
static const option *option_find(const job *j, const char *name, size_t n)
{
    const option *first = NULL, *o;
    for (o = all_options; o->name; o++) {
        if (strlen(o->name) != n || memcmp(o->name, name, n) != 0) continue;
        if (j->verb && (o->verbs & j->verb->bit)) return o;
        if (!first) first = o;
    }
    return first;
}

/* What stands behind the last path can be no other path. */
static bool pattern_follows(const job *j, int argc, char **argv, int i)
{
    return j->verb && j->n_args == j->verb->n_args && i < argc && strncmp(argv[i], "--", 2) != 0;
}

/* One flag, argv[*i]; takes the next argument where it is the value. That it is one of the verb's
   is seen later, when the verb is known. */
static int option_take(job *j, int argc, char **argv, int *i)
{
    const char *arg = argv[*i] + 2, *equals = strchr(arg, '='), *value = "";
    const size_t n = equals ? (size_t)(equals - arg) : strlen(arg);
    const option *o = option_find(j, arg, n), *near = NULL;
    char flag[64];
    snprintf(flag, sizeof flag, "--%.*s", n > 60 ? 60 : (int)n, arg);
    if (!o && (near = option_nearest(j, flag + 2)) != NULL)
        return usage(j, flag, "there is no such flag; the nearest is --%s", near->name);
    if (!o) return usage(j, flag, "there is no such flag");
    if (!o->value && equals) return usage(j, flag, "this flag takes no value");
    if (equals) {
        value = equals + 1;
    } else if (o->kind == KIND_PATTERN && !pattern_follows(j, argc, argv, *i + 1)) {
        value = "";
    } else if (o->value) {
        if (*i + 1 >= argc || !strncmp(argv[*i + 1], "--", 2))
            return usage(j, flag, "the value is missing, expected %s%s", option_wants(o),
                         option_words(o));
        value = argv[++*i];
    }
    j->used[o - all_options] = true;
    if (option_store(o, &j->o, value)) return CODE_DONE;
    return usage(j, flag, "found \"%.100s\", expected %s%s", value, option_wants(o),
                 option_words(o));
}

static int take_word(job *j, const char *word)
{
    if (!j->verb) return verb_unknown(j, word);
    if (j->n_args >= j->verb->n_args)
        return usage(j, word, "found one argument too many, expected: ckptresume %s",
                     j->verb->usage);
    if (!*word) return usage(j, j->verb->usage, "found an empty path");
    j->args[j->n_args++] = word;
    return CODE_DONE;
}

/* Flags are checked against the verb at the end, because they may stand before it. */
static int check_flags(job *j)
{
    const option *o;
    const verb *v;
    for (o = all_options; o->name; o++) {
        text verbs;
        char flag[40];
        int code;
        if (!j->used[o - all_options] || (o->verbs & j->verb->bit)) continue;
        memset(&verbs, 0, sizeof verbs);
        for (v = all_verbs; v->name; v++)
            if (o->verbs & v->bit) text_fmt(&verbs, "%s%s", verbs.n ? ", " : "", v->name);
        text_put(&verbs, "", 1);
        snprintf(flag, sizeof flag, "--%s", o->name);
        code = usage(j, flag, "this is no flag of %s but of: %.200s", j->verb->name,
                     verbs.data ? verbs.data : "");
        text_free(&verbs);
        return code;
    }
    return CODE_DONE;
}

/* The first word that is no flag and no flag's value: it says which rows its flags mean. */
static int find_verb(const job *j, int argc, char **argv)
{
    int i;
    for (i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const option *o;
        if (argv[i][0] != '-') return i;
        if (argv[i][1] != '-' || strchr(argv[i], '=')) continue;
        o = option_find(j, argv[i] + 2, strlen(argv[i] + 2));
        if (o && o->value) i++;
    }
    return i + 1 < argc && argv[i][0] == '-' ? i + 1 : i;
}

static int parse_args(job *j, int argc, char **argv)
{
    const int at = find_verb(j, argc, argv);
    bool flags = true;
    int i, code = CODE_DONE;
    if (at < argc) j->verb = verb_find(argv[at]);
    for (i = 1; i < argc && code == CODE_DONE; i++) {
        if (i == at && j->verb) continue;
        if (flags && !strcmp(argv[i], "--")) flags = false;
        else if (flags && !strcmp(argv[i], "-h")) j->o.help = true;
        else if (flags && !strcmp(argv[i], "--version") && !j->verb) j->verb = verb_find("version");
        else if (flags && !strncmp(argv[i], "--", 2)) code = option_take(j, argc, argv, &i);
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
    j->out.width = terminal_columns(stdout, 100);
    j->note.width = terminal_columns(stderr, 0);       /* in a file an error is a line of it */
}

static bool was_used(const job *j, const char *name)
{
    const option *o;
    for (o = all_options; o->name; o++)
        if (j->used[o - all_options] && !strcmp(o->name, name)) return true;
    return false;
}

/* Flags that say something only beside another one: alone they would be passed over; a seed without
   reseed, and reseed without one would be the same for all. And one document has one form. */
static int check_together(job *j)
{
    const ckr_target *t = &j->o.target;
    const bool reseed = t->rng == CKR_RNG_RESEED, seed = was_used(j, "seed");
    if (reseed && !seed)
        return usage(j, "--rng", "reseed needs the seed of the new streams: --seed S");
    if (seed && !reseed)
        return usage(j, "--seed", "it is the seed of --rng reseed, which is not asked for");
    if (was_used(j, "rewarm-steps") && t->lr_policy != CKR_LR_REWARM)
        return usage(j, "--rewarm-steps", "it goes with --lr-policy rewarm, not asked for");
    if (j->o.stats && !j->o.tensors)
        return usage(j, "--stats", "it goes with --tensors, the list in which they stand");
    if (!j->o.data && (j->o.micro_batch || j->o.seq_len))
        return usage(j, j->o.micro_batch ? "--micro-batch" : "--seq-len",
                     "it goes with --data GLOB, from which the position is recomputed");
    if (j->o.commit && (j->o.part || j->o.parts.go_on))
        return usage(j, "--commit", "it ends what --part has written, and has no use for %s",
                     j->o.part ? "--part" : "--continue");
    if (j->o.json && j->o.csv)
        return usage(j, "--csv", "--json asks for another form of the same values");
    return CODE_DONE;
}

static int run_verb(job *j)
{
    int code;
    if (j->o.help || !j->verb) return help_about(j, j->verb);
    code = check_flags(j);
    if (code == CODE_DONE) code = check_together(j);
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
    int code;
    scan_output(j, argc, argv);
    code = parse_args(j, argc, argv);
    if (code != CODE_DONE) return code;
    list_options(&j->o);
    j->out.color = color_of(j->o.color, stdout);
    j->out.verbose = j->note.verbose = j->o.verbose;
    j->note.color = color_of(j->o.color, stderr);
    j->env.parallel.n_threads = j->o.threads;
    j->env.progress_fn = progress_hook;
    j->env.log_fn = log_hook;
    j->env.user = j;
    j->env.flags = true;
    code = run_verb(j);
    if (argc > 1 || code != CODE_DONE) return code;
    return CODE_USAGE;
}
