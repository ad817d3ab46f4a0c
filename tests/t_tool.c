/* The tool's words: its help, manual page and completions, what it says of a mistyped flag, and
   what the ending of an output's name promises. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"

#define CKPT "tests/data/nanotron/tp2_pp1_dp1/ckpt"

static const char *tmp, *tool;
static char said[1 << 17], noted[4096];

static void slurp(const char *name, char *to, size_t cap)
{
    char path[600];
    FILE *f;
    size_t n;
    snprintf(path, sizeof path, "%s/%s", tmp, name);
    f = fopen(path, "rb");
    n = f ? fread(to, 1, cap - 1, f) : 0;
    if (f) fclose(f);
    to[n] = 0;
}

/* The tool with blank-separated words, of which @ is a folder to write in: its exit code; what it
   printed is in `said` and `noted`. */
static int run(const char *words)
{
    char line[1024], out[600], note[600];
    const char *args[32];
    size_t n = 1, at = 0;
    int code;
    for (; *words && at + 600 < sizeof line; words++) {
        if (*words == '@') at += (size_t)snprintf(line + at, 600, "%s", tmp);
        else line[at++] = *words;
    }
    line[at] = 0;
    args[0] = tool;
    for (args[n] = strtok(line, " "); args[n] && n < 31;) args[++n] = strtok(NULL, " ");
    args[n] = NULL;
    snprintf(out, sizeof out, "%s/stdout", tmp);
    snprintf(note, sizeof note, "%s/stderr", tmp);
    code = os_run(args, out, note);
    slurp("stdout", said, sizeof said);
    slurp("stderr", noted, sizeof noted);
    return code;
}

/* Exits with `code` and says `words`, on stdout when that is 0 and else on stderr. */
static void says(const char *command, int code, const char *words)
{
    const int got = run(command);
    t_check(got == code && strstr(code ? noted : said, words), __FILE__, __LINE__,
            "%s: exit %d, not %d: %.300s%.600s", command, got, code, noted, code ? "" : said);
}

static void words(void)
{
    static const struct { const char *command, *says; } wrong[] = {
        { "help foo", "no such verb or topic; there are inspect, tree, plan, convert" },
        { "help modess", "nearest is modes" },
        { "foo " CKPT, "there are inspect, tree" },
        { "inspekt " CKPT, "nearest is inspect" },
        { "plan " CKPT " --dpp 2", "nearest is --dp\n" },
        { "plan " CKPT " --zeroo 2", "nearest is --zero\n" },
        { "lr " CKPT " --steps 2", "nearest is --rewarm-steps\n" },
        { "plan " CKPT " --qqqqqq", "there is no such flag\n" },
        { "plan " CKPT " --mode back", "expected one of: continue recover transfer\n" },
        { "plan " CKPT " --only lr", "params optimizer groups schedule rng progress data" },
        { "plan " CKPT " --lr-policy", "expected one of: keep target splice" },
        { "inspect " CKPT " --format gguf", "safetensors torch_zip" },
        { "inspect " CKPT " --tp 2", "no flag of inspect but of: plan, convert, lr, rng" },
        { "lr " CKPT " --to megatroon", "megatron" },
        { "plan " CKPT " --to lit", "dcp, safetensors, torch\n" },
        { "rng " CKPT " --seed 3", "--rng reseed" },
        { "inspect", "an argument is missing" }
    };
    size_t i;
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) says(wrong[i].command, 2, wrong[i].says);
}

/* `--to` of lr is a framework, as everywhere, or the last update; before the verb, too. */
static void lr_to(void)
{
    const char *const same[] = { "lr " CKPT " --to megatron --csv",
                                 "--to megatron lr " CKPT " --csv",
                                 "lr --csv --to=megatron " CKPT };
    static char first[1 << 17];
    size_t i;
    for (i = 0; i < 3; i++) {
        CHECK(run(same[i]) == 0);
        if (!i) strcpy(first, said);
        CHECK(!strcmp(first, said));
    }
    CHECK(run("--to 20 lr " CKPT " --to megatron --csv") == 0);
    CHECK(strstr(said, "\n20,") && !strstr(said, "\n21,"));
    CHECK(run("lr " CKPT " --to megatron --tp 1 --dp 2 --quiet") == 0);
}

static void help(void)
{
    says("help", 0, "Topics of help");
    says("help plan", 0, "Topology of the coming run:\n  --to DIALECT");
    says("plan --help", 0, "Random streams:\n  --rng POLICY");
    says("help lr", 0, "--to DIALECT|STEP");
    says("help schedules", 0, "total_training_steps:i! lr:v\n");
    says("help schedules", 0, "lr and max_lr) one");
    says("help schedules", 0, "\ntorch:\n  StepLR             step_size:i! gamma:f");
    says("help dialects", 0, "layouts: torch torch_dist; --vpp");
    says("help dialects", 0, "torchtune          read only\n");
    says("help dialects", 0, "torch_ranks        read only\n");
    says("help modes", 0, "recover");
    says("help files", 0, "{\"groups\": [{\"params\"");
    CHECK(run("help convert --json") == 0 && !strncmp(said, "{\"version\":", 11));
}

/* What help says of the forms of --schedule, and of --names and --like, is taken. */
static void help_is_true(void)
{
    char path[600], like[700];
    FILE *f;
    ckr_schedule_form form;
    ckr_dialect_facts d;
    size_t i, n = 0;
    snprintf(path, sizeof path, "%s/like.json", tmp);
    f = fopen(path, "wb");
    CHECK(f != NULL);
    if (f) {
        fputs("{\"groups\": [{\"params\": [\"wte.weight\"], \"lr\": 0.001, "
              "\"weight_decay\": 0.0}]}", f);
        fclose(f);
    }
    snprintf(like, sizeof like, "plan %s --like %s", CKPT, path);
    CHECK(run(like) <= 1 && !strstr(noted, "--like"));
    CHECK(run("plan " CKPT " --to-schedule "
              "transformers:cosine,num_warmup_steps=15,num_training_steps=140") <= 1);
    for (i = 0; ckr_schedule_form_at(i, &form); i++) n += form.kinds && form.name && form.keys[0];
    CHECK(n == i && n > 40);
    CHECK(!ckr_schedule_form_at(n, &form) && !form.kinds && !ckr_schedule_form_at(SIZE_MAX, NULL));
    for (i = n = 0; ckr_dialect_at(i, &d); i++) n += d.name && d.name[0];
    CHECK(n == i && n >= 2 && !ckr_dialect_at(n, &d) && !d.name && !ckr_dialect_at(SIZE_MAX, NULL));
}

static void path(void)
{
    char dir[600];
#if !defined(_WIN32)
    says("inspect /dev/null", 3, "a device, a pipe or a socket");
#endif
    snprintf(dir, sizeof dir, "%s/loose", tmp);
    CHECK(mkdir(dir, 0777) == 0);
    says("inspect @/loose", 3, "holds nothing that a known framework writes");
    CHECK(run("convert " CKPT " @/loose/a.pt --to torch") == 0);
    says("inspect @/loose", 3, "it has 1 file of tensors: a.pt\n  remedy: name one of them");
    CHECK(run("export " CKPT " @/loose/b.bin") == 0);
    says("inspect @/loose", 3, "it has 2 files of tensors: a.pt, ...");
    CHECK(run("inspect @/loose/b.bin") == 0);
}

static void endings(void)
{
    static const struct { const char *command; int code; const char *says; } rows[] = {
        { "export " CKPT " @/a.safetensors", 0, "safetensors" },
        { "export " CKPT " @/a.pt", 0, "torch" },
        { "export " CKPT " @/a.npz", 2, "ends in .safetensors, or in .pt, .pth or .bin" },
        { "export " CKPT " @/b.pt --max-shard-size 10K", 2, "safetensors" },
        { "export " CKPT " @/b --max-shard-size 100K", 0, "safetensors" },
        { "convert " CKPT " @/c.pt", 2, "it will be a directory of" },
        { "convert " CKPT " @/c.pt --to safetensors", 2, "end it in .safetensors" },
        { "convert " CKPT " @/c.safetensors --to torch", 2, "end it in .pt" },
        { "convert " CKPT " @/c.bin --to dcp", 2, "it will be a directory of" },
        { "convert " CKPT " @/c.pth --to torch", 0, "torch" },
        { "convert " CKPT " @/d.pt/ --to dcp", 0, "dcp" }
    };
    char path[600];
    struct stat st;
    uint8_t *p;
    size_t n, i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++)
        says(rows[i].command, rows[i].code, rows[i].says);
    snprintf(path, sizeof path, "%s/a.pt", tmp);
    p = t_slurp(path, &n);
    CHECK(p && n > 4 && !memcmp(p, "PK\3\4", 4));
    free(p);
    for (i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/c.%s", tmp, i ? "bin" : "pt");
        CHECK(stat(path, &st) != 0);
    }
    /* the same tensors in both */
    CHECK(run("diff @/a.pt @/a.safetensors") == 0);
    CHECK(run("inspect @/b") == 0);
}

/* Exits with `code`, and stdout has all of `words`, which are separated by |. */
static void shows(const char *command, int code, const char *words)
{
    const int got = run(command);
    char list[400];
    const char *word;
    snprintf(list, sizeof list, "%s", words);
    for (word = strtok(list, "|"); word; word = strtok(NULL, "|"))
        t_check(got == code && strstr(said, word), __FILE__, __LINE__,
                "%s: exit %d, not %d, or no %s: %.300s%.1200s", command, got, code, word, noted,
                said);
}

#define MASTERS "tests/data/nanotron/tp2_pp1_dp2_zero1_bf16_master/ckpt"

/* What differs is said with dtype and place, in lines per slot and a list that has an end; two
   dtypes may be equal after the cast; nothing is called the same that neither has. */
static void diff(void)
{
    static const struct { const char *command; int code; const char *says; } rows[] = {
        { "diff " CKPT " " CKPT, 0,
          "the same: 84 tensors bit for bit, groups, schedules, random streams, progress\n"
          "|neither    has places in the data\n" },
        { "diff " CKPT " " MASTERS, 1,
          "  param            21         21       0       0   0.00781   over 2^7\n|  step   "
          "|A has the parameter only: |float32 -> bfloat16; as bfloat16 2 of 32 differ, 1 ulp, max "
          "abs 0.00781 at [14]: 1 -> 1.008\n|  and 74 more (--limit all lists them)\n" },
        { "diff " CKPT " " MASTERS " --limit 2", 1, "  and 82 more" },
        { "diff " CKPT " " MASTERS " --json", 1,
          "\"dtype\":[\"float32\",\"bfloat16\"]|\"as\":\"bfloat16\"|\"worst\":{\"index\":[14],"
          "\"a\":1.0,\"b\":1.0078125}|\"both\":[\"params\",\"optimizer\",\"groups\",\"schedule\","
          "\"rng\",\"progress\"],\"one\":[]" },
        { "export " CKPT " @/diff.safetensors", 0, "" },
        { "export " CKPT " @/half.safetensors --dtype bfloat16", 0, "" },
        { "diff @/diff.safetensors @/diff.safetensors", 0,
          "the same: 21 tensors bit for bit\n|has optimizer state, groups, schedules, random" },
        { "diff @/diff.safetensors @/half.safetensors", 1,
          "float32 -> bfloat16, equal as bfloat16\n" },
        { "diff @/diff.safetensors @/half.safetensors --tolerance 0", 1,
          "float32 -> bfloat16, equal as bfloat16\n" },
        { "diff @/diff.safetensors @/half.safetensors --tolerance 0ulp", 0,
          "within     0ulp: 21 tensors" },
        { "diff " CKPT " " MASTERS " --tolerance 1", 0, "the same: 21 tensors|within     1: 84 " },
        { "diff " CKPT " @/diff.safetensors", 1, "CKR_DIFF_GROUP|1 -> none" }
    };
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++)
        shows(rows[i].command, rows[i].code, rows[i].says);
    says("diff " CKPT " " CKPT " --tolerance lots", 2, "a number like 1e-6, or 2ulp");
    says("diff " CKPT " " CKPT " --limit 0", 2, "a whole number from 1, or all");
}

/* A target that keeps no schedule has no curve either: what the coming run starts with is told. */
static void lr_lost(void)
{
    shows("lr " CKPT " --to torch", 0, "    18   0.00132857  0.00184286    1.387\n"
          "|CKR_W_TENSORS_ONLY  schedule  nanotron\n"
          "|LR of its groups, 0.00184286, and keeps");
    shows("lr " CKPT " --to safetensors", 0, "    18   0.00132857           ?        ?\n"
          "|CKR_W_TENSORS_ONLY  schedule"
          "|script|sets; the saved run would |go on with 0.00184286\n");
    CHECK(run("lr " CKPT " --to dcp --json") == 0);
    CHECK(strstr(said, "{\"step\":14,\"lr\":[null,null") != NULL);
    CHECK(run("lr " CKPT " --to megatron") == 0 && !strstr(said, "TENSORS_ONLY"));
}

/* What a schedule does behind its end is told of the run that will have it. */
static void rebound(void)
{
#define COSINE " --to-schedule transformers:cosine,num_warmup_steps=2,num_training_steps=20 " \
    "--max-lr-jump 99"
    static const struct { const char *command; bool said; } rows[] = {
        { "plan tests/data/accelerate/acc024_w2/ckpt", true },
        { "lr tests/data/accelerate/acc024_w2/ckpt", true },
        { "plan tests/data/accelerate/acc024_w2/ckpt --to dcp", false },
        { "plan tests/data/accelerate/acc024_w2/ckpt --to safetensors", false },
        { "lr tests/data/accelerate/acc024_w2/ckpt --to safetensors", false },
        { "plan tests/data/accelerate/acc024_w2/ckpt --to torch", true },
        { "plan " CKPT " --to torch" COSINE, true },
        { "plan " CKPT " --to accelerate" COSINE, true },
        { "plan " CKPT " --to hf_trainer" COSINE, false }      /* its run ends with it      */
    };
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        run(rows[i].command);
        t_check((strstr(said, "CKR_W_LR_REBOUND") != NULL) == rows[i].said, __FILE__, __LINE__,
                "%s: %.1200s", rows[i].command, said);
    }
}

/* An export has no slots, and its moments are no parameters all the same. */
static void exported(void)
{
    static const char *const names[] = { "all.safetensors", "all.pt" };
    char line[200];
    size_t i;
    for (i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "export " CKPT " @/%s --slots all --quiet", names[i]);
        CHECK(run(line) == 0);
        snprintf(line, sizeof line, "inspect @/%s", names[i]);
        shows(line, 0, "  model      26.5 K parameters, complete\n|  param            21    26,464 "
                       "|  exp_avg          21    26,464 |  step             21        21 ");
        snprintf(line, sizeof line, "inspect @/%s --json --tensors", names[i]);
        shows(line, 0, "\"count\":84,\"params\":26464,|.exp_avg_sq\",\"slot\":\"param\"");
    }
}

/* What was found and what is lost have no arrow to nothing; two digests have a line each. */
static void values(void)
{
    const char *line, *end;
    shows("plan " CKPT " --to safetensors", 0, "CKR_W_PROGRESS  samples  52\n|  tokens  832\n");
    CHECK(!strstr(said, "-> none"));
    shows("convert " MASTERS " @/values.safetensors --to safetensors --without optimizer", 0,
          " read\n             | written\n");
    for (line = strstr(said, "\n  digest"); line && line[1]; line = end) {
        end = strchr(line + 1, '\n');
        if (CHECK(end != NULL)) CHECK(end - line <= 80);
        else break;
    }
}

/* --tensors takes a pattern behind the path; --stats reads what is listed. */
static void stats(void)
{
    const char *shown = "post_attention_layernorm.weight";
    shows("inspect " CKPT " --tensors", 0, shown);
    shows("inspect " CKPT " --tensors *embedding* --stats", 0, "token_embedding|not finite");
    CHECK(!strstr(said, shown));
    shows("inspect --tensors=final " CKPT, 0, "final_layer_norm");
    CHECK(!strstr(said, shown));
    CHECK(run("inspect " CKPT " --tensors --stats --json") == 0);
    CHECK(strstr(said, "\"stats\":{\"elements\":32,\"nan\":0,\"inf\":0,\"zeros\":0,\"min\":"));
    says("inspect " CKPT " --tensors=zzz", 2, "no tensor has a name like \"zzz\"");
    says("inspect " CKPT " --stats", 2, "goes with --tensors");
}

#define VERL "tests/data/verl/fsdp1_w2/ckpt"

/* In the framework's own form, and what happens without each. */
static void settings(void)
{
    static const char curve[] =
        " --schedule verl:constant,lr_warmup_steps=3 --max-lr-jump 9 --to-schedule "
        "verl:cosine,lr_warmup_steps=3,total_training_steps=40,min_lr_ratio=0.00001,"
        "zero_indexed_step=false";
    char line[400];
    snprintf(line, sizeof line, "plan " VERL "%s", curve);
    shows(line, 0, "\n    actor_rollout_ref.actor.optim.lr_scheduler_type=cosine\n"
                   "    actor_rollout_ref.actor.optim.lr_warmup_steps=3\n"
                   "    trainer.total_training_steps=40\n"
                   "    actor_rollout_ref.actor.optim.min_lr_ratio=1e-05\n"
                   "    actor_rollout_ref.actor.optim.zero_indexed_step=false\n"
                   "    trainer.default_local_dir=OUT\n"
                   "|\n      without trainer.default_local_dir: the run");
#if !defined(_WIN32)
    shows("convert " VERL " @/o=ut", 0, "\n    'trainer.default_local_dir=\"/|/o=ut\"'\n");
#endif
    shows("plan tests/data/lightning/onecycle.ckpt", 0, "\n      without ckpt_path: ");
    shows("plan tests/data/dcp/tt_single", 0, "\n      without checkpoint.load_step: ");
    shows("plan tests/data/accelerate/acc024_w2/ckpt --ranks 3", 0,
          "\n      without input_dir: load_state takes");
}

#if !defined(_WIN32)
static int shell(const char *fmt, ...)
{
    char cmd[2000];
    const char *args[4] = { "/bin/sh", "-c", cmd, NULL };
    char out[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cmd, sizeof cmd, fmt, ap);
    va_end(ap);
    snprintf(out, sizeof out, "%s/stdout", tmp);
    const int code = os_run(args, out, "/dev/null");
    slurp("stdout", said, sizeof said);
    return code;
}

/* The manual page has no complaint from the roff that is here, and names every verb and flag. */
static void man(void)
{
    CHECK(shell("%s help --man > %s/ckptresume.1", tool, tmp) == 0);
    if (shell("command -v groff") == 0) {
        CHECK(shell("groff -man -ww -Tascii %s/ckptresume.1 2>&1 > %s/man.txt", tmp, tmp) == 0);
        t_check(!said[0], __FILE__, __LINE__, "groff: %.300s", said);
        CHECK(shell("grep -q 'max-shard-size' %s/man.txt", tmp) == 0);
    } else {
        printf("skipped: the manual page's roff (no groff)\n");
    }
    if (shell("command -v mandoc") == 0)
        CHECK(shell("mandoc -T lint -W warning %s/ckptresume.1", tmp) == 0);
    CHECK(shell("for v in $(%s help --json | tr '{' '\\n' | cut -d'\"' -f4 | sed 1,2d); do"
                " grep -q \"^.B $v\" %s/ckptresume.1 || exit 1; echo $v; done", tool, tmp) == 0);
    CHECK(strstr(said, "inspect\n") && strstr(said, "rng\n"));
}

/* What bash offers for a line whose last word is being typed. */
static void offers(const char *line, const char *words)
{
    CHECK(shell("bash -c '. %s/complete.bash; COMP_WORDS=(%s); "
                "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _ckptresume; "
                "printf \"%%s \" \"${COMPREPLY[@]}\"'", tmp, line) == 0);
    t_check(!strcmp(said, words), __FILE__, __LINE__, "%s: offers %s, not %s", line, said, words);
}

static void bash(void)
{
    if (shell("command -v bash") != 0) {
        printf("skipped: completions (no bash)\n");
        return;
    }
    CHECK(shell("%s help --bash > %s/complete.bash", tool, tmp) == 0);
    CHECK(shell("bash -n %s/complete.bash", tmp) == 0);
    offers("ckptresume ins", "inspect ");
    offers("ckptresume plan ckpt --mo", "--mode ");
    offers("ckptresume plan --mode r", "recover ");
    offers("ckptresume plan --mode = t", "transfer ");
    offers("ckptresume --to nano", "nanotron ");
    offers("ckptresume plan ckpt --to torcht", "torchtitan ");
    offers("ckptresume plan ckpt --dialect torchtu", "torchtune ");
    offers("ckptresume lr ckpt --to megatron --lr-p", "--lr-policy ");
    offers("ckptresume plan ckpt --lr-policy sp", "splice ");
    offers("ckptresume convert a b --dtype bfl", "bfloat16 ");
    offers("ckptresume help sch", "schedules ");
    offers("ckptresume inspect --names fi", " ");
    offers("ckptresume version --t", "--threads ");
}

/* What make install puts in place is used from there, and the README's CMake in both its forms. */
static void install(void)
{
    static const char *const with[] = { "cmake", "pkg-config" };
    int i;
    if (strcmp(tool, "./ckptresume") != 0) return;     /* of another machine, or sanitized */
    CHECK(shell("make -s install PREFIX=%s/to > /dev/null 2>&1", tmp) == 0);
    CHECK(shell("%s/to/bin/ckptresume version", tmp) == 0 && !strncmp(said, "ckptresume ", 11));
    CHECK(shell("cd %s/to && grep -q '^.TH CKPTRESUME 1' share/man/man1/ckptresume.1 && "
                "test -s share/bash-completion/completions/ckptresume && "
                "test -s share/zsh/site-functions/_ckptresume", tmp) == 0);
    for (i = 0; i < 2; i++)
        if (shell("command -v %s", with[i]) != 0) {
            printf("skipped: CMake (no %s)\n", with[i]);
            return;
        }
    for (i = 1; i <= 2; i++) {
        CHECK(shell("mkdir %s/cmake%d && cd %s/cmake%d && "
                    "printf '#include \"ckptresume.h\"\\n"
                    "int main(void) { return CKR_VERSION_MAJOR > 9; }\\n' > t.c", tmp, i, tmp,
                    i) == 0);
        CHECK(shell("{ printf 'cmake_minimum_required(VERSION 3.13)\\nproject(t C)\\n"
                    "add_executable(trainer t.c)\\n'; "
                    "awk '/^```/ { on = /cmake/; n += on; next } on && n == %d' README.md; "
                    "} > %s/cmake%d/CMakeLists.txt", i, tmp, i) == 0);
        CHECK(shell("cd %s/cmake%d && mkdir -p third_party && cp -r ../to/include "
                    "third_party/ckptresume && export PKG_CONFIG_PATH=%s/to/lib/pkgconfig && "
                    "cmake . > log 2>&1 && cmake --build . >> log 2>&1 && ./trainer || "
                    "{ tail -n 20 log; false; }", tmp, i, tmp) == 0);
        if (said[0]) printf("%s", said);
    }
}

static void zsh(void)
{
    CHECK(shell("%s help --zsh > %s/_ckptresume", tool, tmp) == 0);
    if (shell("command -v zsh") == 0) CHECK(shell("zsh -n %s/_ckptresume", tmp) == 0);
    else printf("skipped: zsh reads its completions (no zsh)\n");
    CHECK(shell("head -n 1 %s/_ckptresume | grep -qx '#compdef ckptresume'", tmp) == 0);
}
#endif

/* A document and its screen are one answer: what one says the other does, and with --quiet neither
   a line nor a blank is left of it. */
static void answers(void)
{
    static const char without[] = "plan tests/data/dcp/script_numbers/ckpt --without progress";
    char command[200];
    shows(without, 0, "progress   starts again at 0\n");
    snprintf(command, sizeof command, "%s --json", without);
    shows(command, 0, "\"progress\":{\"step\":0,\"samples\":0,\"tokens\":0,\"epoch\":0}},\"mode\"");
    snprintf(command, sizeof command, "%s --quiet", without);
    CHECK(run(command) == 0 && !*said && !*noted);
    CHECK(run("tree tests/data/megatron/no_impl_common.pt") == 0);
    CHECK(strstr(said, "wandb_project: str\n") && !strstr(said, " \n"));
    CHECK(run("rng " CKPT " --quiet") == 0 && !*said && !*noted);
    CHECK(run("digest " CKPT " --quiet --each") == 0 && strlen(said) == 33 && said[32] == '\n');
    CHECK(run("inspect @/none") == 4 && !*said && strstr(noted, "no such file"));
    CHECK(run("inspect @/none --json") == 4 && !*noted);
    CHECK(!strncmp(said, "{\"error\":{\"code\":\"CKR_E_", 24));
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    tmp = t_tmpdir();
    tool = getenv("TOOL") ? getenv("TOOL") : "./ckptresume";
    RUN(words);
    RUN(lr_to);
    RUN(help);
    RUN(help_is_true);
    RUN(path);
    RUN(endings);
    RUN(diff);
    RUN(lr_lost);
    RUN(values);
    RUN(exported);
    RUN(rebound);
    RUN(stats);
    RUN(answers);
    RUN(settings);
#if !defined(_WIN32)
    RUN(man);
    RUN(bash);
    RUN(zsh);
    RUN(install);
#endif
    t_remove_tree(tmp);
    return t_end();
}
