/* What is Windows' own: names in UTF-8, drives and backslashes, long paths, an output over an old
   one, files beyond 4 GiB, handles, what the system says; the tool's command line and its bytes,
   which are those of POSIX. windows.sh runs it, with what the native tools say in DIR/native. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include <winioctl.h>

#define CASE "tests/data/nanotron/tp2_pp1_dp1/ckpt"
/* characters of one to four bytes */
#define NAME "caf\303\251-\320\266-\346\250\241\345\236\213-\360\237\232\200"
#define BUILT "build/windows/"

static const char *tmp, *self;
static char full[600];         /* tmp with its drive, and backslashes */
static ckr_error err;
static ckr_io io;

static const char *at(const char *fmt, ...)
{
    static char text[128][2000];
    static int turn;
    va_list ap;
    turn = (turn + 1) % 128;
    va_start(ap, fmt);
    vsnprintf(text[turn], sizeof text[turn], fmt, ap);
    va_end(ap);
    return text[turn];
}

static ckr_result convert(const char *from, const char *to, bool force, const char *dialect)
{
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_target t = CKR_ZERO;
    ckr_result r;
    t.mode = CKR_MODE_CONTINUE;
    t.topology.zero = -1;
    t.force = force;
    t.dialect = dialect;
    r = ckr_ckpt_open(from, NULL, &c, &err);
    if (r == CKR_OK) r = ckr_plan_create(c, &t, 0, &p, &err);
    if (r == CKR_OK) r = ckr_plan_write(p, to, NULL, &err);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    return r;
}

static ckr_file_kind kind(const char *path)
{
    ckr_stat st;
    return io.stat_fn(NULL, path, &st) == 0 ? st.kind : CKR_FILE_OTHER;
}

static bool opens(const char *path)
{
    ckr_ckpt *c = NULL;
    const ckr_result r = ckr_ckpt_open(path, NULL, &c, &err);
    ckr_ckpt_close(c);
    return t_check(r == CKR_OK, __FILE__, __LINE__, "%s: %s: %s", path, err.file, err.text);
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0) exit(2);
}

static void name_add(void *arg, const char *name, bool is_dir)
{
    (void)is_dir;
    strcat(strcat((char *)arg, name), "|");
}

static const char *names_in(const char *dir)
{
    static char names[4000];
    names[0] = 0;
    CHECK_INT(io.list_fn(NULL, dir, name_add, names), 0);
    return names;
}

static HANDLE hold(const char *path, DWORD access, DWORD share)
{
    return CreateFileA(path, access, share, NULL, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
}

/* Nobody has a file or a directory of the tree open: each can be had for oneself. */
static bool let_go(const char *path)
{
    const HANDLE h = hold(path, GENERIC_READ | DELETE, 0);
    DIR *d = opendir(path);
    struct dirent *e;
    bool ok = CHECK(h != INVALID_HANDLE_VALUE);
    if (ok) CloseHandle(h);
    while (d && (e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            ok = let_go(at("%s/%s", path, e->d_name)) && ok;
    if (d) closedir(d);
    return ok;
}

/* Any name that Windows can have, and back. */
static void utf8_names(void)
{
    ckr_ckpt *c = NULL;
    CHECK_INT(io.path_fn(NULL, CKR_PATH_MKDIR, at("%s/utf8", tmp), NULL), 0);
    CHECK_OK(convert(CASE, at("%s/utf8/" NAME, tmp), false, NULL), &err);
    CHECK_STR(names_in(at("%s/utf8", tmp)), NAME "|");
    opens(at("%s/utf8/" NAME, tmp));
    CHECK(convert(at("%s/utf8/" NAME, tmp), at("%s/utf8/" NAME "/13/x", tmp), false, NULL) ==
              CKR_E_ARG && err.item == CKR_ITEM_OUTPUT_INSIDE);
    CHECK(ckr_ckpt_open(at("%s/utf8/\303x", tmp), NULL, &c, &err) != CKR_OK);
    CHECK(convert(CASE, at("%s/utf8/\303x", tmp), false, NULL) == CKR_E_IO);
    CHECK_STR(names_in(at("%s/utf8", tmp)), NAME "|");
}

/* The ways in which people and programs write one place. */
static void spellings(void)
{
    char slashes[600], lower[600];
    const char *in[16];
    size_t i, n = 0, k;
    snprintf(slashes, sizeof slashes, "%s", full);
    snprintf(lower, sizeof lower, "%s", full);
    for (k = 0; slashes[k]; k++) if (slashes[k] == '\\') slashes[k] = '/';
    lower[0] |= 32;
    CHECK_INT(io.path_fn(NULL, CKR_PATH_MKDIR, at("%s/forms", tmp), NULL), 0);
    CHECK_OK(convert(CASE, at("%s/forms/in", tmp), false, NULL), &err);
    in[n++] = at("%s\\forms\\in", full);
    in[n++] = at("%s/forms\\in/", slashes);
    in[n++] = at("%s\\forms\\.\\x\\..\\in\\", lower);
    in[n++] = at("\\\\?\\%s\\forms\\in", full);
    in[n++] = at("%s\\forms\\in", full + 2);                   /* of the drive that is current */
    in[n++] = at("%.2stests\\data\\nanotron\\tp2_pp1_dp1\\ckpt", full);         /* Z:tests\... */
    in[n++] = at("%s\\FORMS\\IN", full);
    for (i = 0; i < n; i++) opens(in[i]);
    for (i = 0; i < 5; i++) {
        const char *to = at("%.*sout%u", (int)(strstr(in[i], "in") - in[i]), in[i], (unsigned)i);
        CHECK_OK(convert(in[i], to, false, NULL), &err);
        CHECK(kind(at("%s/forms/out%u/13", tmp, (unsigned)i)) == CKR_FILE_DIR);
        CHECK(convert(in[i], to, false, NULL) == CKR_E_REFUSED);
        CHECK_OK(convert(in[i], to, true, NULL), &err);
    }
    CHECK_STR(names_in(at("%s/forms", tmp)), "in|out0|out1|out2|out3|out4|");
    CHECK_OK(convert(CASE, at("%.2sbuild\\windows\\relative", full), true, "safetensors"), &err);
    CHECK(kind(BUILT "relative") == CKR_FILE_REGULAR);
    remove(BUILT "relative");
    CHECK(convert(in[0], at("%s\\forms\\IN\\x", full), false, NULL) == CKR_E_ARG);
    CHECK(convert(in[0], at("%s\\forms\\out1\\..\\in\\13\\x", full), false, NULL) == CKR_E_ARG);
    CHECK(convert(in[0], at("\\\\?\\%s\\forms\\in\\x", full), false, NULL) == CKR_E_ARG);
    CHECK(convert(in[0], at("%s\\forms\\..", full), true, NULL) == CKR_E_ARG);
}

static void parts_are(const char *path, const char *in, const char *parent, const char *sibling)
{
    ckr__ctx c;
    if (ckr__ctx_init(&c, NULL, NULL, &err) != CKR_OK) exit(2);
    CHECK_STR(ckr__path_in(&c, path), in);
    CHECK_STR(ckr__parent(&c, in), parent);
    CHECK_STR(ckr__sibling(&c, in, "s"), sibling);
    ckr__ctx_free(&c);
}

static void parts(void)
{
    parts_are("C:\\x\\y", "C:/x/y", "C:/x", "C:/x/.y.s");
    parts_are("C:\\x", "C:/x", "C:", "C:/.x.s");
    parts_are("C:x", "C:./x", "C:.", "C:./.x.s");
    parts_are("c:", "c:.", "c:.", ".c:..s");                   /* no name: refused later */
    parts_are("x\\y/z\\", "x/y/z/", "x/y", "x/y/.z.s");
    parts_are("\\\\server\\share\\x", "//server/share/x", "//server/share",
              "//server/share/.x.s");
    parts_are("\\\\?\\UNC\\server\\share\\x", "//server/share/x", "//server/share",
              "//server/share/.x.s");
    parts_are("\\\\?\\D:\\x\\y", "D:/x/y", "D:/x", "D:/x/.y.s");
    parts_are("store://bucket", "store://bucket", "store:", "store://.bucket.s");
}

static void wide_is(const char *path, const char *want)
{
    WCHAR *w = ckr__os_wide(path);
    char text[2000] = "";
    size_t i;
    for (i = 0; w && i < sizeof text - 1 && w[i]; i++) text[i] = (char)w[i];
    text[i] = 0;
    free(w);
    CHECK_STR(text, want);
}

static void wide(void)
{
    char part[251];
    memset(part, 'n', 250);
    part[250] = 0;
    wide_is("C:/x/../y", "C:\\y");
    wide_is("C:", "C:\\");
    wide_is("//server/share/y", "\\\\server\\share\\y");
    wide_is(at("C:/%s/y", part), at("\\\\?\\C:\\%s\\y", part));
    wide_is(at("//server/share/%s", part), at("\\\\?\\UNC\\server\\share\\%s", part));
    wide_is(at("C:/%sabcdef", part), "");
}

/* Names that lead elsewhere, or to no file, and may stand in a file that is read. */
static void odd_names(void)
{
    static const char *const names[] = { "a\\b", "..\\a", "a:b", "C:x", "x.", "x ", "...", ". .",
                                         "a*", "a?", "<a", "a|b", "a\001" };
    size_t i;
    void *f;
    uint64_t size;
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = at("%s/%s", tmp, names[i]);
        ckr_stat st;
        t_check(io.open_fn(NULL, path, true, &f, &size) == EILSEQ &&
                    io.stat_fn(NULL, path, &st) == EILSEQ &&
                    io.path_fn(NULL, CKR_PATH_MKDIR, path, NULL) == EILSEQ,
                __FILE__, __LINE__, "%s", names[i]);
    }
    CHECK(io.open_fn(NULL, "NUL", false, &f, &size) != 0);
    CHECK(io.open_fn(NULL, "//./pipe/x", false, &f, &size) != 0);
    CHECK(kind(at("%s/con", tmp)) != CKR_FILE_REGULAR);
    CHECK(convert(CASE, at("%s/out.", tmp), false, NULL) == CKR_E_IO);
    CHECK(err.item == CKR_ITEM_IO_OPEN && strstr(err.text, "no file can be called so"));
}

/* Over 260 characters, where only "\\?\" leads. */
static void long_paths(void)
{
    char path[1600], part[101];
    size_t n;
    int i;
    memset(part, 'd', 100);
    part[100] = 0;
    n = (size_t)snprintf(path, sizeof path, "%s", tmp);
    for (i = 0; i < 8; i++) {
        n += (size_t)snprintf(path + n, sizeof path - n, "/%s", part);
        CHECK_INT(io.path_fn(NULL, CKR_PATH_MKDIR, path, NULL), 0);
    }
    CHECK_OK(convert(CASE, at("%s/out", path), false, NULL), &err);
    CHECK(convert(at("%s/out", path), at("%s/out/x", path), true, NULL) == CKR_E_ARG);
    CHECK_OK(convert(CASE, at("%s/out", path), true, NULL), &err);
    opens(at("\\\\?\\%s%s/out/13", full, path + strlen(tmp)));
    CHECK_STR(names_in(path), "out|");
    {
        ckr__ctx c;
        if (ckr__ctx_init(&c, NULL, NULL, &err) != CKR_OK) exit(2);
        ckr__remove_tree(&c, at("%s/%s", tmp, part));
        ckr__ctx_free(&c);
    }
    CHECK(kind(at("%s/%s", tmp, part)) == CKR_FILE_ABSENT);
}

static DWORD WINAPI release(LPVOID h)
{
    Sleep(120);
    CloseHandle((HANDLE)h);
    return 0;
}

/* Over what is there: a directory, a file, what may not be written, what somebody else has open. */
static void force(void)
{
    HANDLE h, thread;
    const char *dir = at("%s/force", tmp);
    char out[700], one[700];
    CHECK_INT(mkdir(dir, 0777), 0);
    snprintf(out, sizeof out, "%s/out", dir);
    snprintf(one, sizeof one, "%s/one.safetensors", dir);
    CHECK_INT(mkdir(out, 0777), 0);
    put(at("%s/old", out), "what was there before");
    SetFileAttributesA(at("%s/old", out), FILE_ATTRIBUTE_READONLY);
    CHECK(convert(CASE, out, false, NULL) == CKR_E_REFUSED);
    CHECK_OK(convert(CASE, out, true, NULL), &err);
    CHECK(kind(at("%s/old", out)) == CKR_FILE_ABSENT && kind(at("%s/13", out)) == CKR_FILE_DIR);
    put(one, "what was there before");
    CHECK_OK(convert(CASE, one, true, "safetensors"), &err);
    opens(one);
    CHECK_STR(names_in(dir), "one.safetensors|out|");
    h = hold(one, GENERIC_READ, FILE_SHARE_READ);
    CHECK(convert(CASE, one, true, "safetensors") == CKR_E_IO && err.item == CKR_ITEM_IO_RENAME);
    CHECK(strstr(err.text, "another program has it open"));
    CHECK_STR(names_in(dir), "one.safetensors|out|");
    CHECK(kind(one) == CKR_FILE_REGULAR);
    thread = CreateThread(NULL, 0, release, h, 0, NULL);       /* as a scanner has it          */
    CHECK_OK(convert(CASE, one, true, "safetensors"), &err);
    WaitForSingleObject(thread, INFINITE);
    CloseHandle(thread);
    CHECK_STR(names_in(dir), "one.safetensors|out|");
}

/* An open checkpoint is in nobody's way; what somebody keeps for himself is said. */
static void sharing(void)
{
    const char *file = at("%s/share/13/model/model/token_position_embeddings/pp_block/"
                          "token_embedding/model_weight_pp-rank-0-of-1_tp-rank-0-of-2.safetensors",
                          tmp);
    ckr_ckpt *c = NULL;
    HANDLE h;
    CHECK_OK(convert(CASE, at("%s/share", tmp), false, NULL), &err);
    CHECK_OK(ckr_ckpt_open(at("%s/share", tmp), NULL, &c, &err), &err);
    h = hold(file, GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE |
             FILE_SHARE_DELETE);
    CHECK(h != INVALID_HANDLE_VALUE);
    CloseHandle(h);
    CHECK_INT(remove(file), 0);
    ckr_ckpt_close(c);
    CHECK_OK(convert(CASE, at("%s/share", tmp), true, NULL), &err);
    h = hold(file, GENERIC_READ | GENERIC_WRITE, 0);
    CHECK(h != INVALID_HANDLE_VALUE);
    CHECK(ckr_ckpt_open(at("%s/share", tmp), NULL, &c, &err) == CKR_E_IO);
    CHECK(strstr(err.text, "another program has it open") && strstr(err.file, ".safetensors"));
    CloseHandle(h);
}

static void handles(void)
{
    ckr_ckpt *c = NULL;
    int i;
    CHECK_OK(convert(CASE, at("%s/handles", tmp), false, NULL), &err);
    for (i = 0; i < 3; i++) {
        CHECK_OK(convert(at("%s/handles", tmp), at("%s/handles2", tmp), true, NULL), &err);
        CHECK(convert(at("%s/handles", tmp), at("%s/none/x", tmp), true, NULL) != CKR_OK);
        CHECK(ckr_ckpt_open(at("%s/handles/13/random", tmp), NULL, &c, &err) != CKR_OK);
    }
    let_go(at("%s/handles", tmp));
    let_go(at("%s/handles2", tmp));
}

/* Places beyond 4 GiB of a file that takes no room, read and written. */
static void big(void)
{
    static const char head[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[5368709120],\"data_offsets\":"
                               "[0,5368709120]},\"b\":{\"dtype\":\"F32\",\"shape\":[4],"
                               "\"data_offsets\":[5368709120,5368709136]}}";
    static const float want[4] = { 1, 2, 3, 4 };
    const uint64_t n = sizeof head - 1, end = 8 + n + 5368709120u;
    const int64_t start = 5368709118, count = 2;
    const char *path = at("%s/big.safetensors", tmp);
    uint8_t size[8], two[2] = { 0, 0 };
    float b[4] = { 0, 0, 0, 0 };
    ckr_ckpt *c = NULL;
    ckr_read r = CKR_ZERO;
    uint64_t bytes;
    DWORD got;
    void *f;
    HANDLE h = CreateFileA(path, GENERIC_WRITE, 0, NULL, CREATE_NEW, 0, NULL);
    CHECK(DeviceIoControl(h, FSCTL_SET_SPARSE, NULL, 0, NULL, 0, &got, NULL));
    CloseHandle(h);
    remove(path);
    CHECK_INT(io.open_fn(NULL, path, true, &f, &bytes), 0);
    ckr__store_u64(size, n);
    CHECK(io.write_fn(NULL, f, 0, size, 8) == 0 && io.write_fn(NULL, f, 8, head, n) == 0);
    CHECK(DeviceIoControl(((ckr__os_file *)f)->h, FSCTL_SET_SPARSE, NULL, 0, NULL, 0, &got, NULL));
    CHECK(io.write_fn(NULL, f, end - 2, "\7\10", 2) == 0);
    CHECK(io.write_fn(NULL, f, end, want, 16) == 0 && io.sync_fn(NULL, f) == 0);
    io.close_fn(NULL, f);
    if (CHECK_OK(ckr_ckpt_open(path, NULL, &c, &err), &err)) {
        ckr_ckpt_files(c, &bytes);
        CHECK(bytes == end + 16);
        r.tensor = ckr_ckpt_tensor(c, "a", "param");
        r.start = &start;
        r.count = &count;
        r.dst = two;
        r.dst_size = 2;
        CHECK_OK(ckr_ckpt_read(c, &r, 1, &err), &err);
        CHECK(two[0] == 7 && two[1] == 8);
        memset(&r, 0, sizeof r);
        r.tensor = ckr_ckpt_tensor(c, "b", "param");
        r.dst = b;
        r.dst_size = 16;
        CHECK_OK(ckr_ckpt_read(c, &r, 1, &err), &err);
        CHECK(!memcmp(b, want, 16));
    }
    ckr_ckpt_close(c);
    remove(path);
}

/* A file is durable before it has its name. */
static void sync(void)
{
    void *f;
    uint64_t size;
    put(at("%s/sync", tmp), "x");
    CHECK_INT(io.share_fn(NULL, at("%s/sync", tmp), 0, &f), 0);
    CHECK_INT(io.sync_fn(NULL, f), 0);
    io.close_fn(NULL, f);
    CHECK_INT(io.path_fn(NULL, CKR_PATH_SYNC_DIR, tmp, NULL), 0);
    CHECK(ckr__os_room(NULL, tmp, &size) == 0 && size > 0);
}

/* A lock goes with the process that had it, and leaves nothing. */
static void lock(void)
{
    const char *args[] = { self, "--lock", at("%s/lock/x", tmp), NULL };
    void *held;
    CHECK_INT(mkdir(at("%s/lock", tmp), 0777), 0);
    CHECK_INT(io.lock_fn(NULL, at("%s/lock/x", tmp), &held), ENOENT);
    CHECK_INT(mkdir(at("%s/lock/x", tmp), 0777), 0);
    CHECK_INT(os_run(args, at("%s/stdout", tmp), at("%s/stderr", tmp)), 137);
    CHECK_INT(io.lock_fn(NULL, at("%s/lock/x", tmp), &held), 0);
    CHECK_INT(os_run(args, at("%s/stdout", tmp), at("%s/stderr", tmp)), EBUSY);
    io.unlock_fn(NULL, held);
    CHECK_STR(names_in(at("%s/lock", tmp)), "x|");
}

/* A file that two have open to write: made by the first, as long as the longer wish, zeros where
   nobody wrote; a part's record is opened, locked and loaded at once, and its directory renamed
   when all is closed. */
static void shared(void)
{
    const char *dir = at("%s/" NAME, tmp), *path = at("%s/" NAME "/1", tmp);
    uint8_t got[6] = { 9, 9, 9, 9, 9, 9 };
    ckr_stat st, again;
    void *a, *b, *held;
    uint64_t size = 0;
    void *f;
    CHECK_INT(io.path_fn(NULL, CKR_PATH_MKDIR, dir, NULL), 0);
    CHECK(io.share_fn(NULL, dir, 4, &a) != 0);
    CHECK_INT(io.share_fn(NULL, at("%s/none/1", tmp), 4, &a), ENOENT);
    if (!CHECK_INT(io.share_fn(NULL, path, 4, &a), 0)) return;
    if (!CHECK_INT(io.share_fn(NULL, path, 6, &b), 0)) return;
    CHECK_INT(io.write_fn(NULL, a, 1, "ab", 2), 0);
    CHECK_INT(io.write_fn(NULL, b, 5, "c", 1), 0);
    CHECK_INT(io.read_fn(NULL, b, 0, got, 6), 0);
    CHECK(!memcmp(got, "\0ab\0\0c", 6));
    CHECK_INT(io.lock_fn(NULL, path, &held), 0);
    CHECK_INT(io.open_fn(NULL, path, false, &f, &size), 0);
    CHECK_INT(size, 6);
    io.close_fn(NULL, f);
    CHECK(io.sync_fn(NULL, a) == 0 && io.sync_fn(NULL, b) == 0);
    io.unlock_fn(NULL, held);
    io.close_fn(NULL, a);
    io.close_fn(NULL, b);
    CHECK_INT(io.share_fn(NULL, path, 2, &a), 0);
    io.close_fn(NULL, a);
    CHECK(io.stat_fn(NULL, path, &st) == 0 && st.size == 6 && st.changed != 0);
    CHECK_INT(io.path_fn(NULL, CKR_PATH_RENAME, dir, at("%s/shared", tmp)), 0);
    CHECK_STR(names_in(at("%s/shared", tmp)), "1|");
    Sleep(20);
    put(at("%s/shared/1", tmp), "other");
    CHECK(io.stat_fn(NULL, at("%s/shared/1", tmp), &again) == 0 && again.changed > st.changed);
}

static void says(const char *path, ckr_item item, const char *text)
{
    ckr_ckpt *c = NULL;
    CHECK(ckr_ckpt_open(path, NULL, &c, &err) != CKR_OK);
    t_check(err.item == item && strstr(err.text, text), __FILE__, __LINE__, "%s: %s %s: %s", path,
            ckr_item_name(err.item), err.file, err.text);
}

static void errors(void)
{
    ckr_ckpt *c = NULL;
    put(at("%s/file", tmp), "x");
    says("Q:\\none\\ckpt", CKR_ITEM_PATH_NOT_FOUND, "");
    says(at("%s\\none", full), CKR_ITEM_PATH_NOT_FOUND, "");
    says(at("%s\\file\\x", full), CKR_ITEM_PATH_NOT_FOUND, "");
    CHECK(ckr_tree_open(full, NULL, &c, &err) != CKR_OK && err.item == CKR_ITEM_IS_DIRECTORY);
    CHECK(convert(CASE, at("%s\\none\\out", full), false, NULL) != CKR_OK);
    CHECK(err.item == CKR_ITEM_PATH_NOT_FOUND && strstr(err.text, "parent directory"));
    CHECK(convert(CASE, at("%s\\file\\out", full), false, NULL) != CKR_OK);
    CHECK(err.item == CKR_ITEM_PATH_NOT_FOUND && strstr(err.text, "parent is no directory"));
    CHECK_INT(ckr__os_errno(ERROR_DISK_FULL), ENOSPC);
    CHECK_INT(ckr__os_errno(ERROR_HANDLE_EOF), EIO);
}

/* ---- the tool ---- */

static char said[400000];

/* Words apart by blanks; '@' stands for `to`. The exit code; stdout is in `said`. */
static int run(const char *line, const char *to)
{
    static char words[4000];
    const char *args[40];
    size_t i, n = 0;
    uint8_t *text;
    int code;
    snprintf(words, sizeof words, "%s", line);
    args[0] = strtok(words, " \n");
    args[0] = at(!strcmp(args[0], "ckptresume") ? BUILT "%s.exe" : BUILT "examples/%s.exe",
                 args[0]);
    for (i = 1; i < 39 && (args[i] = strtok(NULL, " \n")) != NULL; i++)
        if (!strcmp(args[i], "@")) args[i] = to;
    args[i] = NULL;
    code = os_run(args, at("%s/stdout", tmp), at("%s/stderr", tmp));
    text = t_slurp(at("%s/stdout", tmp), &n);
    snprintf(said, sizeof said, "%s", text ? (char *)text : "");
    free(text);
    return code;
}

static void command_line(void)
{
    const char *out;
    size_t n;
    uint8_t *text;
    CHECK_INT(mkdir(at("%s/a b", tmp), 0777), 0);
    out = at("%s\\a b\\" NAME, full);
    CHECK_INT(run("ckptresume convert " CASE " @ --tp=1 --json", out), 0);
    CHECK(strstr(said, NAME) != NULL && !strchr(said, '\r'));
    CHECK_INT(run("ckptresume inspect @", out), 0);
    CHECK(strstr(said, "nanotron") != NULL && !strchr(said, '\r'));
    CHECK_INT(run("ckptresume convert " CASE " @ --settings", out), 2);
    CHECK_INT(run("ckptresume lr " CASE " --svg @", at("%s\\a b\\" NAME ".svg", full)), 0);
    CHECK(kind(at("%s/a b/" NAME ".svg", tmp)) == CKR_FILE_REGULAR);
    CHECK_INT(run("ckptresume plan " CASE " --tp=1 --settings @",
                  at("%s\\a b\\" NAME ".txt", full)), 0);
    CHECK(kind(at("%s/a b/" NAME ".txt", tmp)) == CKR_FILE_REGULAR);
    CHECK_INT(run("ckptresume tree tests/data/resume/lambda.pt --json", NULL), 0);
    CHECK(said[0] == '{' && !strchr(said, '\r'));
    CHECK(run("ckptresume tree tests/data/resume/lambda.pt --select @", "tests/*") != 0);
    text = t_slurp(at("%s/stderr", tmp), &n);
    CHECK(text && strstr((char *)text, "tests/*") && !strchr((char *)text, '\r'));
    free(text);
    CHECK(run("ckptresume tree tests/data/resume/lambda.pt --select @", "a\\\"b\\\\\" c\\") != 0);
    text = t_slurp(at("%s/stderr", tmp), &n);
    CHECK(text && strstr((char *)text, "a\\\"b\\\\\" c\\"));
    free(text);
}

/* Each line of DIR/native/cases ran natively: into DIR/native/N, stdout in DIR/native/N.out. */
static void native(void)
{
    FILE *f = fopen(BUILT "native/cases", "r");
    char line[1000];
    int i;
    if (!CHECK(f != NULL)) return;
    for (i = 0; fgets(line, sizeof line, f); i++) {
        char here[100], there[100];
        const char *to = strchr(line, '@') ? here : NULL;
        unsigned long failed = t_now.failed;
        snprintf(here, sizeof here, BUILT "here/out");
        snprintf(there, sizeof there, BUILT "native/%d", i);
        mkdir(BUILT "here", 0777);
        CHECK_INT(run(line, here), 0);
        if (to) CHECK(os_same_tree(here, there));
        else CHECK(os_same_file(at("%s/stdout", tmp), at("%s.out", there)));
        if (failed != t_now.failed) printf("%s", line);
        os_remove_tree(BUILT "here");
    }
    CHECK(i >= 10);
    fclose(f);
}

int main(int argc, char **argv)
{
    io = ckr__default_io();
    self = BUILT "windows.exe";
    if (argc == 3 && !strcmp(argv[1], "--lock")) {
        void *held;
        const int32_t sys = io.lock_fn(NULL, argv[2], &held);
        if (sys == 0) os_die();
        return sys;
    }
    t_begin(argc, argv);
    tmp = t_tmpdir();
    GetFullPathNameA(tmp, sizeof full, full, NULL);
    RUN(utf8_names);
    RUN(spellings);
    RUN(parts);
    RUN(wide);
    RUN(odd_names);
    RUN(long_paths);
    RUN(force);
    RUN(sharing);
    RUN(handles);
    RUN(big);
    RUN(sync);
    RUN(lock);
    RUN(shared);
    RUN(errors);
    RUN(command_line);
    RUN(native);
    t_remove_tree(tmp);
    return t_end();
}
