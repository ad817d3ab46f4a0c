/* The examples as a user runs them, from build/examples: the trainer killed and resumed on other
   numbers of processes, the checkpoint behind callbacks, what the tool prints of an LR, the MPI
   job, the GPU loader. What this machine cannot run is said, and counts nothing. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"

#if defined(_WIN32)
#  define BUILT "build/windows/examples/"
#  define EXE ".exe"
#else
#  define BUILT "build/examples/"
#  define EXE ""
#endif
#define CASE "tests/data/llmc/uneven/ckpt"

static const char *tmp;
static char said[65536];

/* The exit status of a program; its output is in `said`. */
static int run_args(const char *const *args)
{
    char out[600], note[600];
    FILE *f;
    size_t n;
    int code;
    snprintf(out, sizeof out, "%s/stdout", tmp);
    snprintf(note, sizeof note, "%s/stderr", tmp);
    code = os_run(args, out, note);
    f = fopen(out, "rb");
    n = f ? fread(said, 1, sizeof said - 1, f) : 0;
    if (f) fclose(f);
    said[n] = 0;
    return code;
}

/* Of a command of blank-separated words. No shell: those of Windows take words apart in other
   ways. */
static int run(const char *fmt, ...)
{
    char cmd[1024];
    const char *args[32];
    va_list ap;
    size_t n = 0;
    va_start(ap, fmt);
    vsnprintf(cmd, sizeof cmd, fmt, ap);
    va_end(ap);
    for (args[0] = strtok(cmd, " "); args[n] && n < 31;) args[++n] = strtok(NULL, " ");
    args[n] = NULL;
    return run_args(args);
}

#if !defined(_WIN32)
static int shell(const char *fmt, ...)
{
    char cmd[1400];
    const char *args[4] = { "/bin/sh", "-c", cmd, NULL };
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cmd, sizeof cmd, fmt, ap);
    va_end(ap);
    return run_args(args);
}
#endif

/* How often a word stands in a file. */
static int count(const char *name, const char *word)
{
    char path[600];
    size_t n;
    int found = 0;
    char *text, *p;
    snprintf(path, sizeof path, "%s/%s", tmp, name);
    text = (char *)t_slurp(path, &n);
    if (!text) return -1;
    for (p = text; (p = strstr(p, word)) != NULL; p++) found++;
    free(text);
    return found;
}

#if !defined(_WIN32)           /* the trainer forks; MPI and the GPU are not looked for there */
/* Tensors, streams that all ranks share, rank 0's own, the place in the data, the LR to the end: of
   two saved runs. */
static bool same(const char *a, const char *b)
{
    static const char *const streams[][2] = { { "numpy", "dropout" }, { "pcg64", "order" },
                                              { "philox", "noise" } };
    ckr_ckpt *c[2] = { NULL, NULL };
    ckr_rng_streams *s[2] = { NULL, NULL };
    uint8_t digest[2][16];
    double lr[2][40];
    int64_t at[2] = { -1, -2 };
    ckr_error e;
    bool equal = true;
    for (int i = 0; i < 2; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", tmp, i ? b : a);
        equal = ckr_ckpt_open(path, NULL, &c[i], &e) == CKR_OK && equal &&
                ckr_ckpt_digest(c[i], NULL, digest[i], &e) == CKR_OK &&
                ckr_ckpt_rng(c[i], NULL, &s[i], &e) == CKR_OK &&
                ckr_ckpt_data(c[i], -1, "sample", &at[i]) &&
                ckr_schedule_values(ckr_ckpt_schedule(c[i], 0), CKR_COLUMN_LR, 1, 40, lr[i], NULL,
                                    &e) == CKR_OK;
    }
    equal = equal && !memcmp(digest[0], digest[1], 16) && at[0] == at[1] &&
            !memcmp(lr[0], lr[1], sizeof lr[0]);
    for (int i = 0; equal && i < 3; i++) {
        const ckr_rng_given *x = ckr_rng_find(s[0], 0, streams[i][0], streams[i][1]),
                            *y = ckr_rng_find(s[1], 0, streams[i][0], streams[i][1]);
        equal = x && y && ckr_rng_equal(x->state, y->state);
    }
    for (int i = 0; i < 2; i++) {
        ckr_rng_streams_free(s[i]);
        ckr_ckpt_close(c[i]);
    }
    return equal;
}

static void last_line(char *out, size_t cap)
{
    size_t n = strlen(said), k;
    while (n && said[n - 1] == '\n') said[--n] = 0;
    for (k = n; k && said[k - 1] != '\n'; k--) {}
    snprintf(out, cap, "%s", said + k);
}

/* 1 -> 2 -> 4 -> 1 processes with a kill after each but the last: every parameter and moment, the
   LR, the loss and what was drawn for it, rank 0's own draws and the place in the data are those of
   the run that nothing happened to. */
static void trainer(void)
{
    char whole[200], pieces[200];
    CHECK_INT(run(BUILT "trainer %s/a 1 40", tmp), 0);
    last_line(whole, sizeof whole);
    CHECK(strncmp(whole, "40 lr ", 6) == 0);
    CHECK(run(BUILT "trainer %s/b 1 40 13", tmp) != 0);
    CHECK(run(BUILT "trainer %s/b 2 40 22", tmp) != 0);
    CHECK(strstr(said, "11 lr ") == said);             /* 11 and 12 were lost with the kill */
    CHECK(run(BUILT "trainer %s/b 4 40 31", tmp) != 0);
    CHECK(!same("a", "b"));
    CHECK_INT(run(BUILT "trainer %s/b 1 40", tmp), 0);
    last_line(pieces, sizeof pieces);
    CHECK_STR(pieces, whole);
    CHECK(same("a", "b"));
    CHECK_INT(run(BUILT "trainer %s/c 3 40", tmp), 0);
    CHECK(same("a", "c"));
}
#endif

static bool blank_or_comment(const char *line)
{
    line += strspn(line, " ");
    return !*line || (!strncmp(line, "/*", 2) && !strcmp(line + strlen(line) - 2, "*/"));
}

/* What the trainer has only to save and resume: the lines between its marks, without blanks and
   comments, are at most 50. Outside of them it takes its generators and its LR from the header, and
   nothing else. */
static void glue(void)
{
    static const char *const marks[] = { "/* ckptresume: */", "/* end */" };
    static const char *const else_used[] = { "ckr_rng", "ckr_schedule_values" };
    char line[256];
    int lines = 0, pairs = 0;
    bool in = false;
    FILE *f = fopen("examples/trainer.c", "r");
    if (!CHECK(f != NULL)) return;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\r\n")] = 0;
        if (!strcmp(line, marks[in])) {
            pairs += in;
            in = !in;
            continue;
        }
        CHECK(strcmp(line, marks[!in]) != 0);          /* not one in the other */
        if (in) lines += !blank_or_comment(line);
        for (const char *p = line; !in && (p = strstr(p, "ckr_")) != NULL; p++)
            CHECK(!strncmp(p, else_used[0], strlen(else_used[0])) ||
                  !strncmp(p, else_used[1], strlen(else_used[1])));
    }
    fclose(f);
    CHECK(!in && pairs > 3);
    CHECK(lines > 20 && lines <= 50);
}

static void callbacks(void)
{
    ckr_ckpt *c = NULL;
    ckr_error e;
    uint8_t d[16];
    char hex[33];
    int i;
    CHECK_OK(ckr_ckpt_open(CASE, NULL, &c, &e), &e);
    CHECK_OK(ckr_ckpt_digest(c, NULL, d, &e), &e);
    for (i = 0; i < 16; i++) snprintf(hex + 2 * i, 3, "%02x", d[i]);
    ckr_ckpt_close(c);
    CHECK_INT(run(BUILT "custom_io" EXE " " CASE), 0);
    CHECK(strstr(said, "opened 4 files of llmc, step 8") == said);
    CHECK(strstr(said, hex) != NULL);
    CHECK_INT(run(BUILT "custom_io" EXE " tests/data/nanotron/tp2_pp1_dp1/ckpt"), 0);
    CHECK(strstr(said, "of nanotron") != NULL);
    CHECK_INT(run(BUILT "custom_io" EXE " tests/data/none"), 1);
}

/* The two that need no files of others. */
static void small(void)
{
    CHECK_INT(run(BUILT "save_load" EXE " %s/saved.safetensors", tmp), 0);
    CHECK(!strncmp(said, "row 2: 6 7 8", 12));
    CHECK_INT(run(BUILT "resume_lr" EXE), 0);
    CHECK(strstr(said, "lr") && !strstr(said, "CKR_W_LR_DRIFT") && strstr(said, "update 1601: "));
}

/* lr goes on to the run's end; what no file tells is a sentence, and null in JSON. */
static void tool_lr(void)
{
    static const char unknown[] = "the checkpoint does not record the learning rate of any step";
    const char *tool = getenv("TOOL") ? getenv("TOOL") : "./ckptresume";
    CHECK_INT(run("%s lr tests/data/resume/lambda.pt --svg %s/lr.svg", tool, tmp), 0);
    CHECK(strstr(said, unknown) != NULL && strchr(said, '?') == NULL);
    CHECK(count("lr.svg", unknown) > 0);
    CHECK(count("lr.svg", "x?") == 0 && count("lr.svg", "missing") == 0);
    CHECK_INT(run("%s lr tests/data/resume/lambda.pt --json", tool), 0);
    CHECK(strstr(said, "{\"step\":1,\"lr\":[null,null]}") != NULL);
    CHECK_INT(run("%s lr tests/data/resume/lambda.pt --to-schedule torch:StepLR,step_size=9 "
                    "--lr-policy target", tool), 0);
    CHECK(strstr(said, "\n    13 ") != NULL && strstr(said, "\n    12 ") == NULL);
    CHECK_INT(run("%s lr tests/data/nanotron/tp2_pp1_dp1/ckpt --set decay_steps=18 "
                    "--set total_steps=60 --lr-policy target", tool), 0);
    CHECK(strstr(said, "\n    60 ") != NULL);
}

#if !defined(_WIN32)
/* --settings replaces no file that is read or written, and where it cannot be had, nothing is. */
static void tool_settings(void)
{
    static const char *const inside[] = { "in/13/config.yaml", "in/new", "out", "out/new", "link" };
    const char *tool = getenv("TOOL") ? getenv("TOOL") : "./ckptresume";
    char call[400];
    size_t i;
    snprintf(call, sizeof call, "%s convert %s/in %s/out --dp 2 --quiet --settings", tool, tmp,
             tmp);
    CHECK_INT(shell("cp -r tests/data/nanotron/tp2_pp1_dp1/ckpt %s/in && cd %s && "
                    "ln -s in/latest.txt link", tmp, tmp), 0);
    for (i = 0; i < sizeof inside / sizeof *inside; i++)
        CHECK_INT(shell("%s %s/%s 2> /dev/null", call, tmp, inside[i]), 2);
    CHECK_INT(shell("%s %s/none/x", call, tmp), 1);
    if (access("/dev/full", W_OK) == 0) CHECK_INT(shell("%s /dev/full", call), 1);
    CHECK_INT(shell("ls %s/out 2> /dev/null", tmp), 2);
    CHECK_INT(shell("diff -r tests/data/nanotron/tp2_pp1_dp1/ckpt %s/in", tmp), 0);
    CHECK_INT(shell("%s %s/told > /dev/null && cat %s/told && ! ls %s/*.partial 2> /dev/null",
                    call, tmp, tmp, tmp), 0);
    CHECK(strstr(said, "micro_batch_size") != NULL);
    /* as OUT, it is replaced by --force only: refused, nothing is written */
    CHECK_INT(shell("cd %s && rm -r out && echo mine > told", tmp), 0);
    CHECK_INT(shell("%s %s/told 2>&1", call, tmp), 1);
    CHECK(strstr(said, "CKR_E_OUTPUT_EXISTS") && strstr(said, "told") && strstr(said, "--force"));
    CHECK_INT(shell("! ls %s/out 2> /dev/null && cat %s/told", tmp, tmp), 0);
    CHECK_STR(said, "mine\n");
    CHECK_INT(shell("%s %s/told --force && cat %s/told", call, tmp, tmp), 0);
    CHECK(strstr(said, "micro_batch_size") != NULL);
    CHECK_INT(shell("rm -r %s/out && : > %s/told && %s %s/told && test -s %s/told", tmp, tmp, call,
                    tmp, tmp), 0);
    CHECK_INT(shell("cd %s && rm -r in out link told", tmp), 0);
}

/* A shell and Python read what is told as it is meant. */
static void tool_settings_pasted(void)
{
    const char *tool = getenv("TOOL") ? getenv("TOOL") : "./ckptresume";
    CHECK_INT(shell("%s convert tests/data/dcp/tt_single %s/'a$HOME `b'\\''s' --settings %s/told "
                    "> /dev/null && eval printf '%%s\\\\n' $(cat %s/told)",
                    tool, tmp, tmp, tmp), 0);
    CHECK(strstr(said, "/a$HOME `b's\n--checkpoint.load_step=10\n") != NULL);
    CHECK_INT(shell("%s plan tests/data/deepspeed/robin/ckpt --dp 1 --without schedule,rng "
                    "--force --settings %s/told > /dev/null && cat %s/told", tool, tmp, tmp), 0);
    CHECK(strstr(said, "ds_config = {\"train_micro_batch_size_per_gpu\": 24}\n") != NULL);
    CHECK(strstr(said, "load_checkpoint(load_lr_scheduler_states=False)\n") != NULL);
    CHECK_INT(shell("cd %s && rm -r a* told", tmp), 0);
}

/* torchtitan joins a relative folder to its own, and looks there for step-N: the settings name the
   folder that it finds, whatever OUT is called. */
static void tool_settings_folder(void)
{
    static const struct { const char *out, *options, *key, *dir; } x[] = {
        { "tt", "", "folder", "/tt" },
        { "./tt2/", "", "folder", "/tt2" },
        { "step-7", "", "folder", "/step-7" },              /* the step is 10: in it         */
        { "one/step-10", "", "folder", "/one" },            /* it is the step itself         */
        { "w", "--mode transfer", "initial_load_path", "/w" }
    };
    const char *tool = getenv("TOOL") ? getenv("TOOL") : "./ckptresume";
    char here[1024], exe[1100], want[400];
    size_t i;
    if (!getcwd(here, sizeof here)) exit(2);
    if (tool[0] == '/') snprintf(exe, sizeof exe, "%s", tool);
    else snprintf(exe, sizeof exe, "%s/%s", here, tool);
    CHECK_INT(shell("mkdir -p %s/one", tmp), 0);
    for (i = 0; i < sizeof x / sizeof *x; i++) {
        CHECK_INT(shell("cd %s && %s convert %s/tests/data/dcp/tt_single %s %s --settings told "
                        "> log && cat told && rm told", tmp, exe, here, x[i].out, x[i].options), 0);
        snprintf(want, sizeof want, "--checkpoint.%s=", x[i].key);
        CHECK(strstr(said, want) != NULL);
        snprintf(want, sizeof want, "%s%s", strrchr(tmp, '/'), x[i].dir);
        CHECK(strstr(said, want) != NULL && strstr(said, want)[strlen(want)] != '/');
    }
}

static void mpi(void)
{
    const char *how = "/usr/bin/env mpirun --allow-run-as-root --oversubscribe -n %d " BUILT
                      "mpi " CASE;
    char one[200], four[200];
    if (access(BUILT "mpi", X_OK) != 0 || run("/bin/sh -c mpirun") == 127) {
        if (!CHECK(!getenv("CI"))) return;
        printf("skipped: examples/mpi.c (no MPI here)\n");
        return;
    }
    CHECK_INT(run(how, 1), 0);
    snprintf(one, sizeof one, "%s", strstr(said, "together") ? strstr(said, "together") : "");
    CHECK(one[0] != 0);
    CHECK_INT(run(how, 4), 0);
    CHECK(strstr(said, "rank 3 of 4") != NULL);
    snprintf(four, sizeof four, "%.*s", (int)strlen(one),
             strstr(said, "together") ? strstr(said, "together") : "");
    CHECK_STR(four, one);
}

/* Of every dialect: ranks together write what one process does, and whoever else a rank's end takes
   with it, the next job goes on. */
static void mpi_convert(void)
{
    static const char *const cases[][3] = {
        { "nanotron/tp2_pp1_dp1/ckpt", "tp=1 dp=2", "--tp 1 --dp 2" },
        { "dcp/tt_single", "dp=3", "--dp 3" },
        { "deepspeed/pipe/ckpt", "dp=3", "--dp 3" },
        { "megatron/v014_fsms_tp2_pp2/ckpt", "tp=1 pp=1", "--tp 1 --pp 1" },
        { "megatron/dr_pp2_vpp2/ckpt", "dp=2", "--dp 2" },
        { "accelerate/acc_w2_bin_tied_bf16/ckpt", "dp=3", "--dp 3" },
        { "fsdp/acc_fsdp2_rankfiles_w4/ckpt", "dp=3", "--dp 3" },
        { "verl/fsdp2_w2/ckpt", "dp=3", "--dp 3" },
        { "lightning/sharded.ckpt", "dp=2", "--dp 2" },
        { "llmc/uneven/ckpt", "dp=3", "--dp 3" },
        { "lightning/two.ckpt", "", "" }
    };
    static const int ranks[] = { 1, 2, 4, 7 };
    const char *how = "mpirun --allow-run-as-root --oversubscribe -n";
    size_t i, k;
    if (access(BUILT "mpi_convert", X_OK) != 0 || run("/bin/sh -c mpirun") == 127) {
        if (!CHECK(!getenv("CI"))) return;
        printf("skipped: examples/mpi_convert.c (no MPI here)\n");
        return;
    }
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_INT(shell("./ckptresume convert tests/data/%s %s/whole %s", cases[i][0], tmp,
                        cases[i][2]), 0);
        for (k = 0; k < sizeof ranks / sizeof *ranks; k++) {
            CHECK_INT(shell("%s %d " BUILT "mpi_convert tests/data/%s %s/all %s", how, ranks[k],
                            cases[i][0], tmp, cases[i][1]), 0);
            CHECK_INT(shell("diff -r %s/whole %s/all && rm -r %s/all", tmp, tmp, tmp), 0);
        }
        CHECK_INT(shell("rm -r %s/whole", tmp), 0);
    }
    /* rank 1 finds no such output, and says so; all end */
    CHECK(shell("%s 3 /bin/sh -c 'test $OMPI_COMM_WORLD_RANK != 1 || set none; exec " BUILT
                "mpi_convert tests/data/%s %s/$1/all %s' sh all", how, cases[0][0], tmp,
                cases[0][1]) != 0);
}

/* The README's job script, as it stands there but for its paths. */
static void slurm(void)
{
    int i;
    CHECK_INT(shell("awk '/^```sh/ { on = 1; next } /^```/ { on = 0 } on' README.md | sed "
                    "'s|^IN=.*|IN=tests/data/dcp/tt_single OUT=%s/job PARTS=3|' > %s/job.sh", tmp,
                    tmp), 0);
    CHECK_INT(count("job.sh", "PARTS=3"), 1);
    CHECK(shell("PATH=.:$PATH sh %s/job.sh", tmp) == 1);       /* no part is written         */
    for (i = 3; i > 0; i--)
        CHECK_INT(shell("PATH=.:$PATH SLURM_ARRAY_TASK_ID=%d sh %s/job.sh", i, tmp), 0);
    CHECK_INT(shell("PATH=.:$PATH sh %s/job.sh", tmp), 0);
    CHECK_INT(shell("./ckptresume convert tests/data/dcp/tt_single %s/job1 --dp 64 && "
                    "diff -r %s/job %s/job1", tmp, tmp, tmp), 0);
}

static void gpu(void)
{
    if (access(BUILT "gpu_load", X_OK) != 0) {
        if (!CHECK(!getenv("CI"))) return;
        printf("skipped: examples/gpu_load.cu (not built: make cuda)\n");
        return;
    }
    CHECK_INT(run(BUILT "gpu_load " CASE), 0);
    if (!strncmp(said, "skipped", 7)) printf("%s", said);
    else CHECK(strstr(said, " 0 differ") != NULL);
}
#endif

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    tmp = t_tmpdir();
#if !defined(_WIN32)
    RUN(trainer);
#endif
    RUN(glue);
    RUN(callbacks);
    RUN(small);
    RUN(tool_lr);
#if !defined(_WIN32)
    RUN(tool_settings);
    RUN(tool_settings_pasted);
    RUN(tool_settings_folder);
    RUN(mpi);
    RUN(mpi_convert);
    RUN(slurm);
    RUN(gpu);
#endif
    t_remove_tree(tmp);
    return t_end();
}
