/* late.c: a file system that shows another folder, read-only, and answers each request of the
   kernel's after LATE_US microseconds, any number of them at once, as a network does.
   cc -O2 -o late bench/late.c $(pkg-config --cflags --libs fuse3)
   LATE_ROOT=FOLDER LATE_US=1000 ./late -o max_threads=64 MOUNTPOINT
   fusermount3 -u MOUNTPOINT ends it. */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *root;
static struct timespec late;

static const char *under(const char *path, char out[4096])
{
    nanosleep(&late, NULL);
    snprintf(out, 4096, "%s%s", root, path);
    return out;
}

static int late_getattr(const char *path, struct stat *st, struct fuse_file_info *info)
{
    char own[4096];
    (void)info;
    return lstat(under(path, own), st) ? -errno : 0;
}

static int late_readdir(const char *path, void *out, fuse_fill_dir_t fill, off_t offset,
                        struct fuse_file_info *info, enum fuse_readdir_flags flags)
{
    char own[4096];
    DIR *d = opendir(under(path, own));
    struct dirent *e;
    (void)offset, (void)info, (void)flags;
    if (!d) return -errno;
    while ((e = readdir(d)) != NULL) {
        struct stat st;
        memset(&st, 0, sizeof st);
        st.st_ino = e->d_ino;
        st.st_mode = (mode_t)(e->d_type << 12);
        fill(out, e->d_name, &st, 0, 0);
    }
    closedir(d);
    return 0;
}

static int late_open(const char *path, struct fuse_file_info *info)
{
    char own[4096];
    const int fd = open(under(path, own), O_RDONLY);
    if (fd < 0) return -errno;
    info->fh = (uint64_t)fd;
    return 0;
}

static int late_read(const char *path, char *out, size_t n, off_t offset,
                     struct fuse_file_info *info)
{
    (void)path;
    nanosleep(&late, NULL);
    const ssize_t got = pread((int)info->fh, out, n, offset);
    return got < 0 ? -errno : (int)got;
}

static int late_release(const char *path, struct fuse_file_info *info)
{
    (void)path;
    close((int)info->fh);
    return 0;
}

/* As a network's client does: what was read of a file stays, and many answers are waited for. */
static void *late_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
    conn->max_background = conn->congestion_threshold = 512;
    config->use_ino = config->kernel_cache = 1;
    return NULL;
}

int main(int argc, char **argv)
{
    static const struct fuse_operations ops = {
        .init = late_init, .getattr = late_getattr, .readdir = late_readdir, .open = late_open,
        .read = late_read, .release = late_release
    };
    const char *us = getenv("LATE_US");
    root = getenv("LATE_ROOT");
    if (!root || !us) return 2;
    late.tv_sec = atol(us) / 1000000;
    late.tv_nsec = atol(us) % 1000000 * 1000;
    return fuse_main(argc, argv, &ops, NULL);
}
