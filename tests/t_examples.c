/* The examples as a user runs them, from build/examples: the trainer killed and resumed on other
   numbers of processes, the checkpoint behind callbacks, what the tool prints of an LR, the MPI
   job, the GPU loader. What this machine cannot run is said, and counts nothing. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include <sys/wait.h>

#define BUILT "build/examples/"
#define CASE "tests/data/llmc/uneven/ckpt"

static const char *tmp;
static char said[65536];

/* The exit status of a shell command; its output is in `said`. */
static int shell(const char *fmt, ...)
{
    char cmd[1024];
    va_list ap;
    FILE *f;
    size_t n = 0;
    int status;
    va_start(ap, fmt);
    vsnprintf(cmd, sizeof cmd, fmt, ap);
    va_end(ap);
    f = popen(cmd, "r");
    if (!f) return -1;
    n = fread(said, 1, sizeof said - 1, f);
    said[n] = 0;
    status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool same(const char *a, const char *b)
{
    return shell("cmp -s %s/%s %s/%s", tmp, a, tmp, b) == 0;
}

static void last_line(char *out, size_t cap)
{
    size_t n = strlen(said), k;
    while (n && said[n - 1] == '\n') said[--n] = 0;
    for (k = n; k && said[k - 1] != '\n'; k--) {}
    snprintf(out, cap, "%s", said + k);
}

/* 1 -> 2 -> 4 -> 1 processes with a kill after each but the last: every parameter and moment, and
   the loss, are those of the run that nothing happened to. */
static void trainer(void)
{
    char whole[200], pieces[200];
    CHECK_INT(shell(BUILT "trainer %s/a 1 40", tmp), 0);
    last_line(whole, sizeof whole);
    CHECK(strncmp(whole, "40 lr ", 6) == 0);
    CHECK(shell(BUILT "trainer %s/b 1 40 13", tmp) != 0);
    CHECK(shell(BUILT "trainer %s/b 2 40 22", tmp) != 0);
    CHECK(strstr(said, "11 lr ") == said);             /* 11 and 12 were lost with the kill */
    CHECK(shell(BUILT "trainer %s/b 4 40 31", tmp) != 0);
    CHECK(!same("a", "b"));
    CHECK_INT(shell(BUILT "trainer %s/b 1 40", tmp), 0);
    last_line(pieces, sizeof pieces);
    CHECK_STR(pieces, whole);
    CHECK(same("a", "b"));
    CHECK_INT(shell(BUILT "trainer %s/c 3 40", tmp), 0);
    CHECK(same("a", "c"));
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
    CHECK_INT(shell(BUILT "custom_io " CASE), 0);
    CHECK(strstr(said, "opened 4 files of llmc, step 8") == said);
    CHECK(strstr(said, hex) != NULL);
    CHECK_INT(shell(BUILT "custom_io tests/data/nanotron/tp2_pp1_dp1/ckpt"), 0);
    CHECK(strstr(said, "of nanotron") != NULL);
    CHECK_INT(shell(BUILT "custom_io tests/data/none 2> /dev/null"), 1);
}

/* lr goes on to the run's end; what no file tells is a sentence, and null in JSON. */
static void tool_lr(void)
{
    static const char unknown[] = "the checkpoint does not tell the learning rate of any step";
    const char *tool = getenv("TOOL") ? getenv("TOOL") : "./ckptresume";
    CHECK_INT(shell("%s lr tests/data/resume/lambda.pt --svg %s/lr.svg", tool, tmp), 0);
    CHECK(strstr(said, unknown) != NULL && strchr(said, '?') == NULL);
    CHECK_INT(shell("grep -c '%s' %s/lr.svg", unknown, tmp), 0);
    CHECK_INT(shell("grep -c 'x?\\|missing' %s/lr.svg", tmp), 1);
    CHECK_INT(shell("%s lr tests/data/resume/lambda.pt --json", tool), 0);
    CHECK(strstr(said, "{\"step\":1,\"lr\":[null,null]}") != NULL);
    CHECK_INT(shell("%s lr tests/data/resume/lambda.pt --to-schedule torch:StepLR,step_size=9 "
                    "--lr-policy target", tool), 0);
    CHECK(strstr(said, "\n    13 ") != NULL && strstr(said, "\n    12 ") == NULL);
    CHECK_INT(shell("%s lr tests/data/nanotron/tp2_pp1_dp1/ckpt --set decay_steps=18 "
                    "--set total_steps=60 --lr-policy target", tool), 0);
    CHECK(strstr(said, "\n    60 ") != NULL);
}

static void mpi(void)
{
    const char *run = "mpirun --allow-run-as-root --oversubscribe -n %d " BUILT "mpi " CASE;
    char one[200], four[200];
    if (access(BUILT "mpi", X_OK) != 0 || shell("command -v mpirun") != 0) {
        printf("skipped: examples/mpi.c (no MPI here)\n");
        return;
    }
    CHECK_INT(shell(run, 1), 0);
    snprintf(one, sizeof one, "%s", strstr(said, "together") ? strstr(said, "together") : "");
    CHECK(one[0] != 0);
    CHECK_INT(shell(run, 4), 0);
    CHECK(strstr(said, "rank 3 of 4") != NULL);
    snprintf(four, sizeof four, "%.*s", (int)strlen(one),
             strstr(said, "together") ? strstr(said, "together") : "");
    CHECK_STR(four, one);
}

static void gpu(void)
{
    if (access(BUILT "gpu_load", X_OK) != 0) {
        printf("skipped: examples/gpu_load.cu (not built: make cuda)\n");
        return;
    }
    CHECK_INT(shell(BUILT "gpu_load " CASE), 0);
    if (!strncmp(said, "skipped", 7)) printf("%s", said);
    else CHECK(strstr(said, " 0 differ") != NULL);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    tmp = t_tmpdir();
    RUN(trainer);
    RUN(callbacks);
    RUN(tool_lr);
    RUN(mpi);
    RUN(gpu);
    t_remove_tree(tmp);
    return t_end();
}
