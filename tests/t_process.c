/* The program around the library: its locale, rounding mode, flush to zero, traps, stack, signals,
   umask, errno, descriptors, working directory and forks. Whatever it set, the same bytes, LRs and
   draws come out, and it finds what it set as it was. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"

#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#if defined(__linux__)
#  include <dirent.h>
#  include <sys/inotify.h>
#endif

#define NANOTRON "tests/data/nanotron/tp2_pp1_dp1/ckpt"
#define DEEPSPEED "tests/data/deepspeed/robin/ckpt"

extern bool t_far; /* everything is on a network: of the object that tests are linked with */

static char g_top[400]; /* the repository, and a folder to write in       */
static const char *g_tmp;

/* FNV-1a of what came out. */
static void add(uint64_t *sum, const void *p, size_t n)
{
    const uint8_t *b = (const uint8_t *)p;
    size_t i;
    for (i = 0; i < n; i++) *sum = (*sum ^ b[i]) * 0x100000001b3u;
}

static void add_text(uint64_t *sum, const char *s)
{
    add(sum, s ? s : "-", s ? strlen(s) + 1 : 1);
}

static void add_file(uint64_t *sum, const char *path)
{
    size_t n;
    uint8_t *p = t_slurp(path, &n);
    CHECK(p != NULL);
    if (p) add(sum, p, n);
    free(p);
}

static void add_notes(uint64_t *sum, const ckr_note *n, uint64_t count)
{
    uint64_t i;
    for (i = 0; i < count; i++) {
        add_text(sum, n[i].code);
        add_text(sum, n[i].subject);
        add_text(sum, n[i].old_value);
        add_text(sum, n[i].new_value);
        add_text(sum, n[i].reason);
    }
}

static void add_lrs(uint64_t *sum, const ckr_schedule *s)
{
    double *v = s ? (double *)calloc(200 * s->n_lanes, sizeof *v) : NULL;
    if (v && ckr_schedule_values(s, CKR_COLUMN_LR, 1, 200, v, NULL, NULL) == CKR_OK)
        add(sum, v, (size_t)(200 * s->n_lanes) * sizeof *v);
    free(v);
}

typedef struct came {
    uint64_t files, notes, lrs, read, draws;
} came;

static const ckr_open_desc *g_desc;

/* A conversion with an LR and a decay that a locale would spell otherwise: files, report, LRs. */
static void convert(came *x, const char *from, const char *to)
{
    const ckr_setting sets[] = { { NULL, "lr", "0.00125" }, { NULL, "weight_decay", "0.05" } };
    ckr_target t = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_error e = CKR_ZERO;
    const ckr_plan_facts *f;
    uint64_t i;
    t.mode = CKR_MODE_CONTINUE;
    t.topology.zero = -1;
    t.sets = sets;
    t.n_sets = 2;
    t.source = "here";
    if (ckr_ckpt_open(from, g_desc, &c, &e) != CKR_OK ||
        ckr_plan_create(c, &t, 0, &p, &e) != CKR_OK || ckr_plan_write(p, to, NULL, &e) != CKR_OK) {
        t_check(false, __FILE__, __LINE__, "%s: %s %s: %s", from, e.file, e.where, e.text);
    } else {
        char path[1200];
        f = ckr_plan_info(p);
        add_notes(&x->notes, f->notes, f->n_notes);
        for (i = 0; i < f->n_settings; i++) {
            double v = 0;
            ckr_node_f64(f->settings[i].value, &v);
            add_text(&x->notes, f->settings[i].key);
            add(&x->notes, &v, sizeof v);
        }
        add_lrs(&x->lrs, f->before);
        add_lrs(&x->lrs, f->after);
        for (i = 0; i < f->n_files; i++) {
            snprintf(path, sizeof path, "%s/%s", to, f->files[i].path);
            add_file(&x->files, path);
        }
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* Every tensor cast to three narrower types and to the widest. */
static void read_casts(came *x, const char *from)
{
    static const ckr_dtype as[] = { CKR_DTYPE_BF16, CKR_DTYPE_F16, CKR_DTYPE_F8_E4M3FN,
                                    CKR_DTYPE_F64 };
    ckr_ckpt *c = NULL;
    uint64_t i, k;
    if (ckr_ckpt_open(from, NULL, &c, NULL) != CKR_OK) {
        CHECK(c != NULL);
        return;
    }
    for (i = 0; i < ckr_ckpt_state(c)->n_tensors; i++)
        for (k = 0; k < 4; k++) {
            ckr_read r = CKR_ZERO;
            int64_t numel = 0;
            r.tensor = ckr_ckpt_state(c)->tensors[i];
            r.as = as[k];
            if (!ckr__numel(r.tensor->n_dims, r.tensor->shape, &numel)) continue;
            r.dst_size = (size_t)numel * ckr_dtype_size(as[k]);
            r.dst = malloc(r.dst_size + 1);
            if (r.dst && ckr_ckpt_read(c, &r, 1, NULL) == CKR_OK) add(&x->read, r.dst, r.dst_size);
            free(r.dst);
        }
    ckr_ckpt_close(c);
}

static void draws(came *x)
{
    static const ckr_rng_kind kinds[] = { CKR_RNG_TORCH_CPU, CKR_RNG_TORCH_CUDA, CKR_RNG_PYTHON,
                                          CKR_RNG_NUMPY,     CKR_RNG_PCG64,      CKR_RNG_LLMC_MT };
    static ckr_rng r;
    double d[64];
    float f[64];
    size_t k;
    for (k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        memset(d, 0, sizeof d);
        memset(f, 0, sizeof f);
        if (ckr_rng_seed(&r, kinds[k], 1234) != CKR_OK) continue;
        ckr_rng_uniform(&r, CKR_DTYPE_F64, 0.1, 0.7, 64, d);
        add(&x->draws, d, sizeof d);
        ckr_rng_normal(&r, CKR_DTYPE_F64, 0.3, 1.7, 64, d);
        add(&x->draws, d, sizeof d);
        ckr_rng_uniform(&r, CKR_DTYPE_F32, 0, 1, 64, f);
        ckr_rng_normal(&r, CKR_DTYPE_F32, 1e-42, 1e-41, 64, f);
        add(&x->draws, f, sizeof f);
    }
}

/* Counts of updates that are no whole numbers, or denormal, in a checkpoint made by hand: its
   digest takes them as numbers. And plain bytes. */
static void digests(came *x)
{
    static const float steps[] = { 0.5f, 1e-45f, 3 };
    const int64_t one = 1;
    uint8_t total[16], bytes[8];
    ckr_ckpt *c = NULL;
    size_t i;
    CHECK(ckr_ckpt_create(NULL, &c, NULL) == CKR_OK);
    for (i = 0; c && i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%u", (unsigned)i);
        CHECK(!ckr_ckpt_put(c, name, "param", CKR_DTYPE_F32, 1, &one, &steps[i], NULL));
        CHECK(!ckr_ckpt_put(c, name, "step", CKR_DTYPE_F32, 0, NULL, &steps[i], NULL));
    }
    CHECK(c && ckr_ckpt_digest(c, NULL, total, NULL) == CKR_OK);
    add(&x->read, total, sizeof total);
    ckr_ckpt_close(c);
    CHECK(ckr_ckpt_open(NANOTRON, NULL, &c, NULL) == CKR_OK);
    CHECK(c && ckr_ckpt_bytes(c, 0, 0, bytes, 1, NULL) == CKR_OK);
    add(&x->read, bytes, 1);
    ckr_ckpt_close(c);
}

/* Denormals as a file has them: parsed, printed, read. */
static void numbers(came *x)
{
    static const char *const s[] = { "4.9e-324", "2.2250738585072009e-308", "0.1", "1e23",
                                     "9007199254740993" };
    ckr_ckpt *c = NULL;
    char path[600], text[64];
    size_t i;
    FILE *f;
    snprintf(path, sizeof path, "%s/n.json", g_tmp);
    f = fopen(path, "wb");
    if (!f) return;
    fprintf(f, "[%s, %s, %s, %s, %s]", s[0], s[1], s[2], s[3], s[4]);
    fclose(f);
    if (ckr_tree_open(path, NULL, &c, NULL) == CKR_OK)
        for (i = 0; i < 5; i++) {
            double v = 0;
            ckr_node_f64(ckr_node_at(ckr_ckpt_root(c), i), &v);
            add(&x->notes, &v, sizeof v);
            add(&x->notes, text, ckr__sprint(text, sizeof text, "%.17g", v));
        }
    CHECK(c != NULL);
    ckr_ckpt_close(c);
}

static came all_of_it(void)
{
    static int number;
    came x;
    char to[600];
    memset(&x, 0, sizeof x);
    snprintf(to, sizeof to, "%s/out%d-%ld", g_tmp, number++, (long)getpid());
    convert(&x, NANOTRON, to);
    snprintf(to, sizeof to, "%s/out%d-%ld", g_tmp, number++, (long)getpid());
    convert(&x, DEEPSPEED, to);
    read_casts(&x, NANOTRON);
    draws(&x);
    numbers(&x);
    digests(&x);
    return x;
}

static came g_plain;

static void same_as_plain(const char *how)
{
    const came x = all_of_it();
    t_check(x.files == g_plain.files, __FILE__, __LINE__, "%s: other files", how);
    t_check(x.notes == g_plain.notes, __FILE__, __LINE__, "%s: another report", how);
    t_check(x.lrs == g_plain.lrs, __FILE__, __LINE__, "%s: other LRs", how);
    t_check(x.read == g_plain.read, __FILE__, __LINE__, "%s: other casts", how);
    t_check(x.draws == g_plain.draws, __FILE__, __LINE__, "%s: other draws", how);
}

/* A locale with a decimal comma, made where the system has none. */
static bool comma(void)
{
    static const char *const names[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE" };
    char text[16], cmd[1200];
    int tries;
    size_t i;
    for (tries = 0; tries < 2; tries++) {
        for (i = 0; i < sizeof names / sizeof *names; i++)
            if (setlocale(LC_ALL, names[i])) {
                snprintf(text, sizeof text, "%.1f", 0.5);
                if (!strcmp(text, "0,5")) return true;
            }
        snprintf(cmd, sizeof cmd,
                 "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' > '%s/locale.log' 2>&1", g_tmp,
                 g_tmp);
        if (tries == 0 && system(cmd) == 0) setenv("LOCPATH", g_tmp, 1);
    }
    return false;
}

static void locale_comma(void)
{
    const bool got = comma();
#ifdef __GLIBC__
    /* a locale's files are of one machine's make: not where another one is emulated */
    t_check(got || !getenv("CI") || t_times(1, 0) == 0, __FILE__, __LINE__,
            "no locale with a decimal comma, and localedef made none (Debian: apt-get install "
            "locales)");
#endif
    if (got)
        same_as_plain("decimal comma");
    else
        printf("skipped: no locale with a decimal comma\n");
    setlocale(LC_ALL, "C");
}

static void rounding(void)
{
    static const struct {
        int mode;
        const char *name;
    } modes[] = {
#ifdef FE_UPWARD
        { FE_UPWARD, "upward" },
#endif
#ifdef FE_DOWNWARD
        { FE_DOWNWARD, "downward" },
#endif
#ifdef FE_TOWARDZERO
        { FE_TOWARDZERO, "toward zero" },
#endif
        { FE_TONEAREST, "to nearest" }
    };
    size_t i;
    for (i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (fesetround(modes[i].mode) != 0) continue;
        same_as_plain(modes[i].name);
        t_check(fegetround() == modes[i].mode, __FILE__, __LINE__, "%s: not given back",
                modes[i].name);
    }
    fesetround(FE_TONEAREST);
}

#if defined(__SSE2__)
#    include <immintrin.h>
static unsigned long flush_get(void)
{
    return _mm_getcsr();
}
static void flush_set(unsigned long v)
{
    _mm_setcsr((unsigned)v);
}
#    define FLUSH (_mm_getcsr() | 0x8040u)
#elif defined(__aarch64__)
static unsigned long flush_get(void)
{
    unsigned long v;
    __asm__ volatile("mrs %0, fpcr" : "=r"(v));
    return v;
}
static void flush_set(unsigned long v)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(v));
}
#    define FLUSH (flush_get() | 1ul << 24)
#endif

/* What a program that is linked with -ffast-math sets before main. */
static void flush_to_zero(void)
{
#ifdef FLUSH
    const unsigned long was = flush_get();
    volatile double tiny = 4.9406564584124654e-324, twice;
    unsigned long set;
    flush_set(FLUSH);
    set = flush_get();
    twice = tiny * 3;
    same_as_plain("flush to zero");
    CHECK((flush_get() & ~0x3ful) == (set & ~0x3ful)); /* the flags below are sticky */
    flush_set(was);
#    ifdef __SSE2__
    CHECK(!(twice > 0)); /* it was in force */
#    endif
    (void)twice;
#endif
}

static void division_traps(void)
{
#if defined(__GLIBC__) && defined(__x86_64__)
    feclearexcept(FE_ALL_EXCEPT);
    _mm_setcsr(_mm_getcsr() & ~0x1f80u); /* every exception is a SIGFPE */
    same_as_plain("traps");
    CHECK((_mm_getcsr() & 0x1f80u) == 0);
    _mm_setcsr(_mm_getcsr() | 0x1f80u);
#endif
}

static void errno_and_umask(void)
{
    const mode_t was = umask(027);
    char path[600];
    struct stat st;
    came x;
    memset(&x, 0, sizeof x);
    errno = 4711;
    snprintf(path, sizeof path, "%s/masked", g_tmp);
    convert(&x, NANOTRON, path);
    CHECK_INT(errno, 4711);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == 0750);
    snprintf(path, sizeof path, "%s/masked/latest.txt", g_tmp);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == 0640);
    umask(was);
}

/* In a child, so that limits end with it. 0: all was well. */
static int in_child(int (*fn)(void))
{
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(120);
        _exit(fn());
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int with_files(rlim_t most)
{
    struct rlimit r;
    r.rlim_cur = r.rlim_max = most;
    if (setrlimit(RLIMIT_NOFILE, &r) != 0) return 70;
    t_now.failed = 0;
    same_as_plain("few descriptors");
    return t_now.failed ? 71 : 0;
}

static int with_16(void)
{
    return with_files(16);
}
static int with_10(void)
{
    return with_files(10);
}

static int none_left(void)
{
    ckr_ckpt *c = NULL;
    ckr_error e = CKR_ZERO;
    struct rlimit r;
    r.rlim_cur = r.rlim_max = 16;
    if (setrlimit(RLIMIT_NOFILE, &r) != 0) return 70;
    while (dup(0) >= 0) {
    }
    if (ckr_ckpt_open(NANOTRON, NULL, &c, &e) != CKR_E_IO || e.sys_error != EMFILE) return 72;
    return 0;
}

static void descriptors(void)
{
    CHECK_INT(in_child(with_16), 0);
    CHECK_INT(in_child(with_10), 0);
    CHECK_INT(in_child(none_left), 0);
}

static int past_file_size(void)
{
    ckr_target t = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_error e = CKR_ZERO;
    ckr_result r;
    struct rlimit most;
    char to[600];
    sigset_t pending;
    most.rlim_cur = most.rlim_max = 8192;
    t.mode = CKR_MODE_CONTINUE;
    t.topology.zero = -1;
    snprintf(to, sizeof to, "%s/large", g_tmp);
    if (ckr_ckpt_open(NANOTRON, NULL, &c, &e) != CKR_OK ||
        ckr_plan_create(c, &t, 0, &p, &e) != CKR_OK)
        return 70;
    if (setrlimit(RLIMIT_FSIZE, &most) != 0) return 71;
    r = ckr_plan_write(p, to, NULL, &e);
    if (r != CKR_E_IO || e.sys_error != EFBIG) return 72;
    if (access(to, F_OK) == 0) return 73;
    if (sigpending(&pending) != 0 || sigismember(&pending, SIGXFSZ)) return 74;
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    return 0;
}

/* A length that is refused where bytes are not: the write succeeds, and a part cannot begin. */
static int past_length(void)
{
    static const uint8_t zeros[1 << 16];
    struct rlimit most;
    char path[600];
    void *f = NULL;
    uint64_t size;
    most.rlim_cur = most.rlim_max = 1 << 18;
    snprintf(path, sizeof path, "%s/long", g_tmp);
    if (setrlimit(RLIMIT_FSIZE, &most) != 0) return 71;
    if (ckr__os_open(NULL, path, true, &f, &size) != 0) return 72;
    ckr__os_whole(f, 1 << 20, false);
    if (ckr__os_write(NULL, f, 0, zeros, sizeof zeros) != 0) return 73;
    ckr__os_close(NULL, f);
    if (ckr__os_share(NULL, path, 1 << 20, &f) != EFBIG) return 74;
    return remove(path);
}

static void file_size_limit(void)
{
    CHECK_INT(in_child(past_file_size), 0);
    CHECK_INT(in_child(past_length), 0);
}

static volatile sig_atomic_t g_strange;
static pthread_t g_main;

static void on_alarm(int number)
{
    (void)number;
    if (!pthread_equal(pthread_self(), g_main)) g_strange = 1;
}

/* The program's handlers never run in our threads, and calls that they interrupt go on. */
static void handlers(void)
{
    struct sigaction act, was;
    struct itimerval often, never;
    memset(&act, 0, sizeof act);
    memset(&often, 0, sizeof often);
    memset(&never, 0, sizeof never);
    act.sa_handler = on_alarm;
    g_main = pthread_self();
    sigaction(SIGALRM, &act, &was);
    often.it_interval.tv_usec = often.it_value.tv_usec = 300;
    setitimer(ITIMER_REAL, &often, NULL);
    same_as_plain("a timer's signals");
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &was, NULL);
    CHECK(!g_strange);
}

static void first_tensor(const ckr_ckpt *c, uint8_t digest[16])
{
    ckr_error e;
    CHECK_OK(ckr_ckpt_digest(c, NULL, digest, &e), &e);
}

/* Parent and child read one opened checkpoint at the same time. */
static void forks(void)
{
    uint8_t want[16], got[16];
    ckr_ckpt *c = NULL;
    ckr_error e;
    int status = 1, i;
    pid_t pid;
    CHECK_OK(ckr_ckpt_open(NANOTRON, NULL, &c, &e), &e);
    if (!c) return;
    first_tensor(c, want);
    pid = fork();
    if (pid == 0) {
        t_now.failed = 0;
        for (i = 0; i < 20; i++) first_tensor(c, got);
        i = t_now.failed || memcmp(want, got, 16);
        ckr_ckpt_close(c);
        _exit(i);
    }
    for (i = 0; i < 20; i++) first_tensor(c, got);
    CHECK(!memcmp(want, got, 16));
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    ckr_ckpt_close(c);
}

/* Opened by a relative path, used from elsewhere, as daemons and launchers do. 0: all was well. */
static int elsewhere_of(const char *path, const char *to)
{
    ckr_target t = CKR_ZERO;
    ckr_ckpt *c = NULL, *other = NULL;
    ckr_plan *p = NULL;
    ckr_diff *d = NULL;
    ckr_report *report = NULL;
    ckr_rng_streams *streams = NULL;
    ckr_error e = CKR_ZERO;
    uint8_t want[16], got[16];
    bool sound;
    t.mode = CKR_MODE_CONTINUE;
    t.topology.zero = -1;
    if (chdir(g_top) != 0) return 70;
    if (ckr_ckpt_open(path, NULL, &c, &e) != CKR_OK) return 71;
    if (ckr_ckpt_check(c, &report, &e) != CKR_OK) return 72;
    sound = report->sound;
    ckr_report_free(report);
    if (ckr_ckpt_digest(c, NULL, want, &e) != CKR_OK) return 73;
    if (chdir(g_tmp) != 0) return 74;
    if (ckr_ckpt_digest(c, NULL, got, &e) != CKR_OK || memcmp(want, got, 16)) return 75;
    if (ckr_plan_create(c, &t, 0, &p, &e) != CKR_OK) {
        printf("%s %s: %s\n", e.file, e.where, e.text);
        return 76;
    }
    if (ckr_plan_info(p)->verdict == CKR_VERDICT_REFUSED) return 77;
    if (ckr_plan_write(p, to, NULL, &e) != CKR_OK) return 78;
    if (ckr_ckpt_check(c, &report, &e) != CKR_OK || report->sound != sound) return 79;
    ckr_report_free(report);
    if (ckr_ckpt_rng(c, NULL, &streams, &e) != CKR_OK) return 80;
    ckr_rng_streams_free(streams);
    if (ckr_ckpt_open(to, NULL, &other, &e) != CKR_OK) return 81;
    if (chdir("/") != 0) return 82;
    if (ckr_ckpt_diff(c, other, &d, &e) != CKR_OK) return 83;
    if (d->n_tensors) return 84;
    ckr_diff_free(d);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    ckr_ckpt_close(other);
    return 0;
}

static int elsewhere(void)
{
    static const char *const paths[] = { NANOTRON,
                                         DEEPSPEED,
                                         "tests/data/dcp/tt_single/step-10",
                                         "tests/data/megatron/legacy_tp2_dp2_distopt/ckpt",
                                         "tests/data/accelerate/acc024_w2/ckpt",
                                         "tests/data/llmc/uneven/ckpt",
                                         "tests/data/plain/plain.pt" };
    struct rlimit few;
    size_t i;
    int r = 0;
    few.rlim_cur = few.rlim_max = 12; /* so that files are parked and opened again */
    if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 69;
    for (i = 0; i < sizeof paths / sizeof *paths && r == 0; i++) {
        char to[32];
        snprintf(to, sizeof to, "moved%d%s", (int)i, strstr(paths[i], ".pt") ? ".pt" : "");
        r = elsewhere_of(paths[i], to);
        if (r) printf("%s: step %d\n", paths[i], r);
    }
    fflush(stdout);
    return r;
}

static void directory_changed(void)
{
    CHECK_INT(in_child(elsewhere), 0);
}

/* 40 files where 24 descriptors are allowed: what was read last stays open, and where the program
   takes all that are left, one file makes room for another. */
static int few_left(void)
{
    enum { N = 40 };
    struct rlimit few;
    ckr__ctx c;
    ckr_error e = CKR_ZERO;
    char name[16], got[16];
    int i, k, open_files = 0, r = 0;
    few.rlim_cur = few.rlim_max = 24;
    if (chdir(g_tmp) != 0 || setrlimit(RLIMIT_NOFILE, &few) != 0) return 60;
    if (ckr__ctx_init(&c, NULL, NULL, &e) != CKR_OK) return 61;
    for (i = 0; i < N && !r; i++) {
        uint32_t index;
        FILE *f;
        snprintf(name, sizeof name, "few%02d", i);
        f = fopen(name, "wb");
        if (!f || fwrite(name, 1, 5, f) != 5 || fclose(f) != 0) r = 62;
        if (!r && ckr__file_open(&c, name, &index) != CKR_OK) r = 63;
    }
    for (i = 0; i < 4 * N && !r; i++) {
        const uint32_t at = (uint32_t)(i / 2 * 7 % N);
        const int fd = ((ckr__os_file *)c.files[at].handle)->fd;
        snprintf(name, sizeof name, "few%02d", (int)at);
        if (i == 2 * N) while (open("/dev/null", O_RDONLY) >= 0) {}
        if (ckr__file_read(&c, at, 0, got, 5) != CKR_OK || memcmp(name, got, 5)) r = 64;
        if (i % 2 && ((ckr__os_file *)c.files[at].handle)->fd != fd) r = 65;
    }
    for (k = 0; k < N && !r; k++) open_files += ((ckr__os_file *)c.files[k].handle)->fd >= 0;
    if (!r && (open_files < 1 || open_files > 12)) r = 66;
    ckr__ctx_free(&c);
    return r;
}

static void descriptors_are_few(void)
{
    CHECK_INT(in_child(few_left), 0);
}

/* Descriptors that are open. */
static int n_open(void)
{
    int n = 0;
    for (int fd = 0; fd < 4096; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* A hundred files of ranks, read in their order, backwards and in leaps, in a list that is sorted
   once the first is open: each is the one that was asked for; those that were opened ahead and not
   wanted are closed. */
static int opened_ahead(void)
{
    static const ckr__form forms[] = { { 1, "far_{rank}" }, { 0, NULL } };
    enum { N = 100 };
    static const int steps[] = { 1, 99, 37, 0 };
    const int before = n_open();
    char name[16], got[16];
    int r = chdir(g_tmp) == 0 && mkdir("far", 0700) == 0 ? 0 : 60;
    for (int i = 0; i < N && !r; i++) {
        FILE *f;
        snprintf(name, sizeof name, "far/far_%d", i);
        f = fopen(name, "wb");
        if (!f || fprintf(f, "%s%120s", name, "") < 0 || fclose(f) != 0) r = 61;
    }
    for (int k = 0; k < 4 && !r; k++) {
        ckr__fileset set = CKR_ZERO;
        ckr_error e = CKR_ZERO;
        ckr__ctx c;
        if (ckr__ctx_init(&c, NULL, NULL, &e) != CKR_OK) return 62;
        c.away = true;
        c.env.parallel.n_threads = 8;
        if (ckr__fileset_of(&set, &c, "far", forms, false) != CKR_OK || set.n_files[1] != N) r = 63;
        for (int i = 0; i < (steps[k] ? N : 40) && !r; i++) {
            const ckr__rankfile *f = set.files[1][i * (steps[k] ? steps[k] : 1) % N];
            uint32_t file;
            if (i == 3) ckr__fileset_every(&set, 1, false, NULL);
            if (i == 3) f = set.files[1][3 * (steps[k] ? steps[k] : 1) % N];
            if (ckr__fileset_open(&set, f, &file) != CKR_OK) r = 64;
            else if (ckr__file_read(&c, file, 0, got, strlen(f->path)) != CKR_OK ||
                     memcmp(got, f->path, strlen(f->path)) != 0) r = 65;
        }
        if (steps[k] == 1 && n_open() < before + N) r = 66;
        ckr__ctx_free(&c);
        if (n_open() != before) r = 67;
    }
    return r;
}

static int far_with_16(void)
{
    t_far = true;
    return with_files(16);
}

static void far_away(void)
{
    const int before = n_open();
    CHECK_INT(in_child(opened_ahead), 0);
    CHECK_INT(in_child(far_with_16), 0);
    t_far = true;
    same_as_plain("far away");
    ckr_ckpt *c = NULL;
    ckr_error e;
    CHECK_OK(ckr_ckpt_open(NANOTRON, NULL, &c, &e), &e);
    CHECK(c && c->ctx.away && c->ctx.ahead);
    ckr_ckpt_close(c);
    CHECK_INT(n_open(), before);
    t_far = false;
}

#if defined(__linux__)
/* The directories of a checkpoint: opens and closes in them are told to `in`. */
static void watch(int in, const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    struct stat st;
    char path[1200];
    while (d && (e = readdir(d)) != NULL) {
        if (e->d_name[0] == '.' && strchr("./", e->d_name[1])) continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) watch(in, path);
    }
    if (d) closedir(d);
    inotify_add_watch(in, dir, IN_OPEN | IN_CLOSE);
}

/* How often the file was opened that was opened most often. */
static int most_opens(int in)
{
    enum { MOST = 512 };
    static struct { int dir, n; char name[100]; } seen[MOST];
    static union { struct inotify_event e; char bytes[65536]; } buf;
    int n = 0, i, most = 0;
    ssize_t got;
    while ((got = read(in, buf.bytes, sizeof buf.bytes)) > 0) {
        const char *p = buf.bytes;
        while (p < buf.bytes + got) {
            struct inotify_event e;
            memcpy(&e, p, sizeof e);
            p += sizeof e;
            for (i = 0; i < n && (seen[i].dir != e.wd || strcmp(seen[i].name, p)); i++) {}
            if (i == n && n < MOST) {
                seen[n].dir = e.wd;
                seen[n].n = 0;
                snprintf(seen[n++].name, sizeof seen->name, "%s", e.len ? p : "");
            }
            if (i < n && e.len && (e.mask & IN_OPEN) && !(e.mask & IN_ISDIR)) seen[i].n++;
            p += e.len;
        }
    }
    for (i = 0; i < n; i++) {
        if (seen[i].n > 2) printf("%s: opened %d times\n", seen[i].name, seen[i].n);
        if (seen[i].n > most) most = seen[i].n;
    }
    fflush(stdout);
    return most;
}

/* Each file of the input is opened twice at most, by one thread: which files have to go for others
   is a matter of chance with more. Of a copy: other tests read the original meanwhile. */
static int opens_of(const char *from, rlim_t files)
{
    const int in = inotify_init1(IN_NONBLOCK);
    ckr_open_desc desc = CKR_ZERO;
    ckr_env env = CKR_ZERO;
    struct rlimit few;
    came x;
    int most;
    char to[600], copy[600], command[1600];
    if (in < 0) return 0;
    snprintf(copy, sizeof copy, "%s/input", g_tmp);
    snprintf(command, sizeof command, "cp -r '%s' '%s'", from, copy);
    if (system(command) != 0) return 69;
    few.rlim_cur = few.rlim_max = files;
    if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 70;
    watch(in, copy);
    env.parallel.n_threads = 1;
    desc.env = &env;
    g_desc = &desc;
    t_now.failed = 0;
    memset(&x, 0, sizeof x);
    snprintf(to, sizeof to, "%s/opens", g_tmp);
    convert(&x, copy, to);
    most = most_opens(in);
    t_remove_tree(to);
    t_remove_tree(copy);
    return t_now.failed ? 71 : most < 1 ? 72 : most > 2 ? 73 : 0;
}

static const char *g_from;

static int opens_with_24(void)
{
    return opens_of(g_from, 24);
}

static void opens(void)
{
    static const char *const from[] = { DEEPSPEED, NANOTRON,
                                        "tests/data/nanotron/tp2_pp1_dp2_zero1_bf16_master/ckpt",
                                        "tests/data/dcp/script_flat/ckpt" };
    size_t i;
    for (i = 0; i < 2 * sizeof from / sizeof *from; i++) {
        g_from = from[i / 2];
        t_far = i % 2;
        CHECK_INT(in_child(opens_with_24), 0);
    }
    t_far = false;
}
#endif

static uint64_t room_on(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_blocks * 512 : UINT64_MAX;
}

/* Can this file system tell holes? */
static bool has_holes(const char *path)
{
    void *f = NULL;
    const bool is = ckr__os_share(NULL, path, 1 << 20, &f) == 0 && ckr__os_holes(f) == 1 << 20;
    if (f) ckr__os_close(NULL, f);
    remove(path);
    return is;
}

/* Zeros behind bytes that end inside of a page, and over some that lie among them: of 4 MiB no more
   than a few pages are there, and all read as zeros. */
static void zeros_among(const char *path)
{
    const size_t size = 4 << 20, at[2] = { 0, 2 << 20 };
    uint8_t *v = (uint8_t *)calloc(1, size), full[5000], *is;
    void *f = NULL;
    size_t n = 0, k;
    memset(full, 7, sizeof full);
    CHECK_INT(ckr__os_share(NULL, path, size, &f), 0);
    if (f) ckr__os_whole(f, size, false);
    for (k = 0; f && k < 2; k++) CHECK_INT(ckr__os_write(NULL, f, at[k], full, sizeof full), 0);
    if (f) CHECK_INT(ckr__os_write(NULL, f, sizeof full, v, size - sizeof full), 0);
    if (f) ckr__os_close(NULL, f);
    CHECK(room_on(path) < 1 << 17);
    is = t_slurp(path, &n);
    CHECK(is && n == size && !memcmp(is, full, sizeof full) &&
          !memcmp(is + sizeof full, v, size - sizeof full));
    free(is);
    free(v);
    remove(path);
}

/* What a file that will be 1 MiB long holds after zeros were written to its end, over `was`. */
static void zeros_over(const char *path, int was)
{
    enum { N = 1 << 20, FROM = N / 2 + 100 };
    uint8_t *v = (uint8_t *)malloc(N), *got;
    void *f = NULL;
    size_t n = 0;
    memset(v, was, N);
    CHECK(ckr__os_share(NULL, path, N, &f) == 0 && ckr__os_write(NULL, f, 0, v, N) == 0);
    ckr__os_whole(f, N, false);
    memset(v, 0, N - FROM);
    CHECK(ckr__os_write(NULL, f, FROM, v, N - FROM) == 0);
    ckr__os_close(NULL, f);
    got = t_slurp(path, &n);
    memset(v, was, FROM);
    memset(v + FROM, 0, N - FROM);
    CHECK(got && n == N && !memcmp(got, v, N));
    free(got);
    free(v);
    remove(path);
}

/* How many pages of a file's first n bytes are in memory; 0 where that cannot be told. */
static size_t pages_of(int fd, size_t n)
{
    size_t sum = 0;
#if defined(SYS_mincore)
    static unsigned char in[1024];
    void *m = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0);
    size_t i;
    if (m == MAP_FAILED || n > sizeof in * CKR__PAGE) return 0;
    if (syscall(SYS_mincore, m, n, in) == 0)
        for (i = 0; i < n / CKR__PAGE; i++) sum += in[i] & 1;
    munmap(m, n);
#else
    (void)fd;
    (void)n;
#endif
    return sum;
}

/* What is too much to stay in memory goes past it where the disk can do that, from any byte to any;
   what is read so is not in memory afterwards, either. */
static void past_memory(void)
{
    enum { N = 3 << 20, FROM = 5000, SEAM = N / 2 + 77 };
    uint8_t *v = (uint8_t *)malloc(2 * N + 4 * CKR__PAGE), *got, *to;
    char path[600];
    void *f = NULL, *pool = NULL;
    uint64_t size;
    size_t k, n = 0;
    int fd;
    snprintf(path, sizeof path, "%s/past", g_tmp);
    for (k = 0; k < N; k++) v[k] = (uint8_t)(k * 13 + k / 251 + 1);
    CHECK(ckr__os_open(NULL, path, true, &f, &size) == 0);
    ckr__os_whole(f, N, true);
    const bool can = ((ckr__os_file *)f)->past >= 0;
    to = v + N + ckr__misplaced_of(v + N, FROM, CKR__PAGE);
    memcpy(to, v + FROM, N - FROM);
    CHECK(ckr__os_write(NULL, f, FROM, to, SEAM - FROM) == 0);
    CHECK(ckr__os_write(NULL, f, 0, v, FROM) == 0);
    CHECK(ckr__os_write(NULL, f, SEAM, to + (SEAM - FROM), N - SEAM) == 0);
    CHECK(!can || pages_of(((ckr__os_file *)f)->fd, N) < 64);
    ckr__os_close(NULL, f);
    got = t_slurp(path, &n);
    CHECK(got && n == N && !memcmp(got, v, N));
    free(got);

    fd = open(path, O_RDWR);
    CHECK(fd >= 0 && fsync(fd) == 0);
    ckr__os_forget(fd, 0, 0);
    CHECK(ckr__os_open_in(&pool, path, &f, &size) == 0 && size == N);
    ((ckr__os_pool *)pool)->bytes = CKR__MUCH;
    CHECK(!ckr__os_paged(f));          /* not by one that may read it again              */
    ckr__os_once(pool, true);
    const bool paged = ckr__os_paged(f);
#if defined(__linux__) && defined(__x86_64__) && defined(SYS_preadv2)
    CHECK(paged == can);
#else
    CHECK(!paged || can);              /* who cannot tell what is in memory takes it to be */
#endif
    memset(to, 0, N - FROM);
    CHECK(ckr__os_read(NULL, f, FROM, to, N - FROM) == 0 && !memcmp(to, v + FROM, N - FROM));
    CHECK(!paged || pages_of(fd, N) < 64);
    memset(to, 0, N - FROM);           /* misplaced: as any other                       */
    CHECK(ckr__os_read(NULL, f, FROM + 1, to, N - FROM - 1) == 0 &&
          !memcmp(to, v + FROM + 1, N - FROM - 1));
    ckr__os_once(pool, false);
    ckr__os_close(NULL, f);
    ckr__os_pool_free(pool);
    close(fd);
    free(v);
    remove(path);
}

static ckr_io g_io;
static uint64_t g_room;

static int32_t other_open(void *user, const char *path, bool create, void **file, uint64_t *size)
{
    return g_io.open_fn(user, path, create, file, size);
}

static int32_t room_of(void *user, const char *dir, uint64_t *bytes)
{
    (void)user;
    (void)dir;
    *bytes = g_room;
    return 0;
}

/* To one file of torch's, with hooks of the caller's or the system's, and so much room. */
static ckr_result to_torch(const char *from, const char *to, bool hooks, uint64_t room)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_env env = CKR_ZERO;
    ckr_target t = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_error e = CKR_ZERO;
    ckr_result r;
    env.io = g_io = ckr__default_io();
    if (hooks) env.io.open_fn = other_open;
    env.io.room_fn = room_of;
    g_room = room;
    d.env = &env;
    t.dialect = "torch";
    t.slots = "params";
    r = ckr_ckpt_open(from, &d, &c, &e);
    if (r == CKR_OK) r = ckr_plan_create(c, &t, 0, &p, &e);
    if (r == CKR_OK) r = ckr_plan_write(p, to, NULL, &e);
    if (r != CKR_OK && e.item != CKR_ITEM_IO_NO_SPACE) CHECK_OK(r, &e);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    return r;
}

/* A file in the safetensors format of one tensor: zeros, but for its first and last MiB. */
static void mostly_holes(const char *path, uint64_t size)
{
    const uint64_t at[2] = { 0, size - (1 << 20) };
    uint8_t *v = (uint8_t *)malloc(1 << 20);
    char head[200];
    size_t k;
    FILE *f = fopen(path, "wb");
    for (k = 0; k < 1 << 20; k++) v[k] = (uint8_t)(k * 7 + 1);
    snprintf(head + 8, sizeof head - 8,
             "{\"a\":{\"dtype\":\"F32\",\"shape\":[%lu],\"data_offsets\":[0,%lu]}}",
             (unsigned long)size / 4, (unsigned long)size);
    ckr__store_u64((uint8_t *)head, strlen(head + 8));
    CHECK(f && fwrite(head, 1, 8 + strlen(head + 8), f) == 8 + strlen(head + 8));
    for (k = 0; f && k < 2; k++)
        CHECK(fseek(f, (long)(8 + strlen(head + 8) + at[k]), SEEK_SET) == 0 &&
              fwrite(v, 1, 1 << 20, f) == 1 << 20);
    CHECK(f && fclose(f) == 0);
    free(v);
}

/* Zeros are not written where the file has a hole; a hook of the caller's sees them. Holes of the
   input need no room; the rest does. */
static void holes(void)
{
    const uint64_t size = 32 << 20, mib = 1 << 20;
    char in[600], out[600], plain[600];
    uint8_t *a, *b;
    size_t n = 0, m = 0;
    snprintf(in, sizeof in, "%s/holes.safetensors", g_tmp);
    snprintf(out, sizeof out, "%s/holes.pt", g_tmp);
    snprintf(plain, sizeof plain, "%s/holes-not.pt", g_tmp);
    zeros_over(out, 0xff);
    zeros_over(out, 0);
    if (!has_holes(out)) return;
    zeros_among(out);
    mostly_holes(in, size);
    CHECK(to_torch(in, out, false, mib) == CKR_E_IO && access(out, F_OK) != 0);
    CHECK_INT(to_torch(in, out, false, 4 * mib), CKR_OK);
    CHECK(to_torch(in, plain, true, 4 * mib) == CKR_E_IO);
    CHECK_INT(to_torch(in, plain, true, 2 * size), CKR_OK);
    a = t_slurp(out, &n);
    b = t_slurp(plain, &m);
    CHECK(a && b && n == m && n > size && !memcmp(a, b, n));
    CHECK(room_on(out) < 4 * mib && room_on(plain) >= size);
    free(a);
    free(b);
    remove(in);
    remove(out);
    remove(plain);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    g_tmp = t_tmpdir();
    if (!getcwd(g_top, sizeof g_top)) return 2;
    g_plain = all_of_it();
    CHECK(g_plain.files && g_plain.notes && g_plain.lrs && g_plain.read && g_plain.draws);
    RUN(locale_comma);
    RUN(rounding);
    RUN(flush_to_zero);
    RUN(division_traps);
    RUN(errno_and_umask);
    RUN(descriptors);
    RUN(file_size_limit);
    RUN(handlers);
    RUN(forks);
    RUN(directory_changed);
    RUN(descriptors_are_few);
    RUN(far_away);
    RUN(holes);
    RUN(past_memory);
#if defined(__linux__)
    RUN(opens);
#endif
    t_remove_tree(g_tmp);
    return t_end();
}
