/* custom_io.c DIR: a checkpoint behind callbacks. The hooks below are a stand-in for an object
   store: names begin with "store://bucket", a read is a range request, as HTTP has it, and nothing
   is ever downloaded whole. Put your client's calls where this uses fopen, fread and stat. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct store { const char *root; unsigned long requests; uint64_t bytes; } store;

/* "store://bucket/a/b" -> "root/a/b" */
static const char *place(const store *s, const char *path, char *out, size_t cap)
{
    if (strncmp(path, "store://bucket", 14) != 0) return NULL;
    snprintf(out, cap, "%s%s", s->root, path + 14);
    return out;
}

/* HEAD: is there such an object, and how long is it? */
static int32_t store_stat(void *user, const char *path, ckr_stat *out)
{
    char name[4096];
    struct stat st;
    memset(out, 0, sizeof *out);
    if (!place((store *)user, path, name, sizeof name) || stat(name, &st) != 0) return 0;
    out->kind = S_ISDIR(st.st_mode) ? CKR_FILE_DIR : CKR_FILE_REGULAR;
    out->size = (uint64_t)st.st_size;
    return 0;
}

static int32_t store_open(void *user, const char *path, bool create, void **file, uint64_t *size)
{
    char name[4096];
    ckr_stat st;
    if (create) return EROFS;
    store_stat(user, path, &st);
    if (st.kind != CKR_FILE_REGULAR) return ENOENT;
    *file = fopen(place((store *)user, path, name, sizeof name), "rb");
    *size = st.size;
    return *file ? 0 : EIO;
}

/* GET with "Range: bytes=offset-". A short answer is an error. One thread at a time: see main. */
static int32_t store_read(void *user, void *file, uint64_t offset, void *dst, size_t n)
{
    store *s = (store *)user;
    s->requests++;
    s->bytes += n;
    if (fseek((FILE *)file, (long)offset, SEEK_SET) != 0) return EIO;
    return fread(dst, 1, n, (FILE *)file) == n ? 0 : EIO;
}

static void store_close(void *user, void *file)
{
    (void)user;
    fclose((FILE *)file);
}

/* LIST with a prefix. */
static int32_t store_list(void *user, const char *dir,
                          void (*each_fn)(void *arg, const char *name, bool is_dir), void *arg)
{
    char name[4096];
    DIR *d = place((store *)user, dir, name, sizeof name) ? opendir(name) : NULL;
    struct dirent *e;
    if (!d) return ENOENT;
    while ((e = readdir(d)) != NULL) {
        char below[4096];
        struct stat st;
        if (e->d_name[0] == '.') continue;
        if (snprintf(below, sizeof below, "%s/%s", name, e->d_name) >= (int)sizeof below) continue;
        each_fn(arg, e->d_name, stat(below, &st) == 0 && S_ISDIR(st.st_mode));
    }
    closedir(d);
    return 0;
}

int main(int argc, char **argv)
{
    store s = CKR_ZERO;
    ckr_env env = CKR_ZERO;
    ckr_open_desc desc = CKR_ZERO;
    ckr_error e = CKR_ZERO;
    ckr_ckpt *c = NULL;
    uint8_t digest[16];
    uint64_t bytes;
    int i;
    if (argc != 2) return 2;
    s.root = argv[1];
    env.io.open_fn = store_open;
    env.io.read_fn = store_read;
    env.io.close_fn = store_close;
    env.io.stat_fn = store_stat;
    env.io.list_fn = store_list;
    env.io.user = &s;
    env.parallel.n_threads = 1;        /* this stand-in's handles have one position each */
    desc.env = &env;
    if (ckr_ckpt_open("store://bucket", &desc, &c, &e) != CKR_OK) {
        fprintf(stderr, "%s: %s %s\n", e.file, e.text, e.where);
        return 1;
    }
    printf("opened %u files of %s, step %lld: %lu requests, %llu bytes",
           ckr_ckpt_files(c, &bytes), ckr_ckpt_state(c)->dialect,
           (long long)ckr_ckpt_state(c)->progress.step, s.requests, (unsigned long long)s.bytes);
    printf(" of %llu\n", (unsigned long long)bytes);
    if (ckr_ckpt_digest(c, NULL, digest, &e) != CKR_OK) return 1;
    for (i = 0; i < 16; i++) printf("%02x", digest[i]);
    printf(" digest, %lu requests in all\n", s.requests);
    ckr_ckpt_close(c);
    return 0;
}
