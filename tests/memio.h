/* memio.h: ckr_io over a table of files in memory, and a wrapper that makes the n-th call of any
   ckr_io or allocator fail. For fault injection and fuzzing; any thread opens, syncs and closes
   files, one changes paths.

   memio  files and directories by path; knows what has been made durable, so that a test can see
   whether anything was renamed into place before it was safe there. faulty counts allocations and
   I/O calls, fails one of them (or all from it on), counts what is not given back. */
#ifndef CKR_MEMIO_H
#define CKR_MEMIO_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "os.h"

typedef struct memio_file {
    char    *path;
    bool     is_dir, dirty;    /* dirty: written and not yet synced                     */
    bool     named;            /* its directory was synced since it has its name        */
    uint8_t *data;
    size_t   size, cap;
    uint64_t id, changed;      /* changed: the number of the last change of its bytes   */
} memio_file;

typedef struct memio {
    memio_file **files;        /* a renamed or removed file may still be open: pointers  */
    size_t       n, cap;
    uint64_t     next_id, changes;
    uint64_t     locks[16];    /* ids of what is locked; 0: free                        */
    int          busy;         /* a thread is in the table of files                     */
    long         open_handles;
    unsigned long early;       /* files that were renamed while dirty                   */
    unsigned long parked;      /* calls of park_fn                                      */
} memio;

static char *memio_dup(const char *s, size_t n)
{
    char *p = (char *)malloc(n + 1);
    if (!p) exit(2);
    memcpy(p, s, n);
    p[n] = 0;
    return p;
}

static memio_file *memio_find(const memio *m, const char *path)
{
    size_t i, n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    for (i = 0; i < m->n; i++)
        if (strlen(m->files[i]->path) == n && !memcmp(m->files[i]->path, path, n))
            return m->files[i];
    return NULL;
}

static memio_file *memio_add(memio *m, const char *path, bool is_dir)
{
    memio_file *f = (memio_file *)calloc(1, sizeof *f);
    size_t n = strlen(path);
    if (m->n == m->cap) {
        m->cap = m->cap ? 2 * m->cap : 16;
        m->files = (memio_file **)realloc(m->files, m->cap * sizeof *m->files);
    }
    if (!f || !m->files) exit(2);
    while (n > 1 && path[n - 1] == '/') n--;
    f->path = memio_dup(path, n);
    f->is_dir = is_dir;
    f->id = ++m->next_id;
    f->changed = ++m->changes << 32;
    m->files[m->n++] = f;
    return f;
}

static void memio_drop(memio *m, memio_file *f)
{
    size_t i;
    for (i = 0; i < m->n && m->files[i] != f; i++) {}
    if (i < m->n) m->files[i] = m->files[--m->n];
    free(f->path);
    free(f->data);
    free(f);
}

/* A file with these bytes, and the directories above it. */
static memio_file *memio_put(memio *m, const char *path, const void *data, size_t n)
{
    memio_file *f;
    const char *s;
    for (s = strchr(path + 1, '/'); s; s = strchr(s + 1, '/')) {
        char *dir = memio_dup(path, (size_t)(s - path));
        if (!memio_find(m, dir)) memio_add(m, dir, true);
        free(dir);
    }
    f = memio_find(m, path);
    if (!f) f = memio_add(m, path, false);
    free(f->data);
    f->data = (uint8_t *)malloc(n ? n : 1);
    if (!f->data) exit(2);
    if (n) memcpy(f->data, data, n);
    f->size = f->cap = n;
    f->changed = ++m->changes << 32;
    return f;
}

static bool memio_below(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    return !strncmp(path, dir, n) && path[n] == '/';
}

/* Removes `path` and everything below it. */
static void memio_remove(memio *m, const char *path)
{
    size_t i;
    for (i = m->n; i-- > 0;)
        if (!strcmp(m->files[i]->path, path) || memio_below(m->files[i]->path, path))
            memio_drop(m, m->files[i]);
}

static void memio_free(memio *m)
{
    while (m->n) memio_drop(m, m->files[m->n - 1]);
    free(m->files);
    m->files = NULL;
    m->cap = 0;
}

/* Is the directory that `path` would lie in there? A path without a slash lies in the root. */
static bool memio_has_parent(const memio *m, const char *path)
{
    const char *s = strrchr(path, '/');
    const memio_file *d;
    char *dir;
    if (!s || s == path) return true;
    dir = memio_dup(path, (size_t)(s - path));
    d = memio_find(m, dir);
    free(dir);
    return d && d->is_dir;
}

/* One thread at a time is in the table. */
static void memio_enter(memio *m)
{
    while (__sync_lock_test_and_set(&m->busy, 1)) {}
}
static int32_t memio_leave(memio *m, int32_t sys)
{
    __sync_lock_release(&m->busy);
    return sys;
}

static int32_t memio_opened(memio *m, const char *path, bool create, void **file, uint64_t *size)
{
    memio_file *f = memio_find(m, path);
    if (create) {
        if (f) return EEXIST;
        if (!memio_has_parent(m, path)) return ENOENT;
        f = memio_add(m, path, false);
        f->dirty = true;
    }
    if (!f) return ENOENT;
    if (f->is_dir) return EISDIR;
    m->open_handles++;
    *file = f;
    *size = f->size;
    return 0;
}

static int32_t memio_open(void *user, const char *path, bool create, void **file, uint64_t *size)
{
    memio *m = (memio *)user;
    memio_enter(m);
    return memio_leave(m, memio_opened(m, path, create, file, size));
}

static int32_t memio_share(void *user, const char *path, uint64_t size, void **file)
{
    memio *m = (memio *)user;
    memio_file *f;
    uint64_t was;
    memio_enter(m);
    f = memio_find(m, path);
    int32_t sys = memio_opened(m, path, !f, file, &was);
    f = (memio_file *)*file;
    if (sys) return memio_leave(m, sys);
    if (f->size < size) {
        f->data = (uint8_t *)realloc(f->data, (size_t)size);
        if (!f->data) exit(2);
        memset(f->data + f->size, 0, (size_t)size - f->size);
        f->size = f->cap = (size_t)size;
        f->dirty = true;
        f->changed = ++m->changes << 32;
    }
    return memio_leave(m, 0);
}

static int32_t memio_read(void *user, void *file, uint64_t offset, void *dst, size_t n)
{
    const memio_file *f = (const memio_file *)file;
    (void)user;
    if (offset > f->size || n > f->size - offset) return EIO;
    if (n) memcpy(dst, f->data + offset, n);
    return 0;
}

static int32_t memio_write(void *user, void *file, uint64_t offset, const void *src, size_t n)
{
    memio_file *f = (memio_file *)file;
    (void)user;
    if (offset + n > ((uint64_t)1 << 30)) return ENOSPC;
    if (offset + n > f->cap) {
        f->cap = (size_t)(offset + n) * 2;
        f->data = (uint8_t *)realloc(f->data, f->cap);
        if (!f->data) exit(2);
    }
    if (offset > f->size) memset(f->data + f->size, 0, (size_t)offset - f->size);
    memcpy(f->data + offset, src, n);
    if (offset + n > f->size) f->size = (size_t)(offset + n);
    f->dirty = true;
    f->changed++;              /* (of one file: others are written by other threads)    */
    return 0;
}

static int32_t memio_sync(void *user, void *file)
{
    (void)user;
    ((memio_file *)file)->dirty = false;
    return 0;
}

/* Parking is forgotten by the next read; only the fact is kept. */
static void memio_park(void *user, void *file)
{
    (void)file;
    ((memio *)user)->parked++;
}

static void memio_close(void *user, void *file)
{
    memio *m = (memio *)user;
    (void)file;
    memio_enter(m);
    m->open_handles--;
    memio_leave(m, 0);
}

static int32_t memio_stat(void *user, const char *path, ckr_stat *out)
{
    const memio_file *f = memio_find((const memio *)user, path);
    memset(out, 0, sizeof *out);
    if (!f) return 0;
    out->kind = f->is_dir ? CKR_FILE_DIR : CKR_FILE_REGULAR;
    out->size = f->size;
    out->id[1] = f->id;
    out->changed = f->changed;
    return 0;
}

static int32_t memio_list(void *user, const char *dir,
                          void (*each_fn)(void *arg, const char *name, bool is_dir), void *arg)
{
    const memio *m = (const memio *)user;
    const memio_file *d = memio_find(m, dir);
    size_t i, n;
    if (!d && strcmp(dir, ".")) return ENOENT;
    if (d && !d->is_dir) return ENOTDIR;
    n = d ? strlen(d->path) + 1 : 0;
    for (i = 0; i < m->n; i++) {
        const memio_file *f = m->files[i];
        if ((!d || memio_below(f->path, d->path)) && !strchr(f->path + n, '/'))
            each_fn(arg, f->path + n, f->is_dir);
    }
    return 0;
}

/* Moves one entry, or a directory with all below it. */
static void memio_move(memio *m, const char *from, const char *to)
{
    size_t i, n = strlen(from);
    for (i = 0; i < m->n; i++) {
        memio_file *f = m->files[i];
        char *path;
        if (strcmp(f->path, from) && !memio_below(f->path, from)) continue;
        if (f->dirty) m->early++;
        path = (char *)malloc(strlen(to) + strlen(f->path) - n + 1);
        if (!path) exit(2);
        strcpy(path, to);
        strcat(path, f->path + n);
        if (!f->path[n]) f->named = false;
        free(f->path);
        f->path = path;
    }
}

static bool memio_empty(const memio *m, const char *dir)
{
    size_t i;
    for (i = 0; i < m->n; i++)
        if (memio_below(m->files[i]->path, dir)) return false;
    return true;
}

static int32_t memio_path(void *user, ckr_path_op op, const char *path, const char *to)
{
    memio *m = (memio *)user;
    memio_file *f = memio_find(m, path), *t = to ? memio_find(m, to) : NULL;
    size_t i;
    switch (op) {
    case CKR_PATH_MKDIR:
        if (f) return EEXIST;
        if (!memio_has_parent(m, path)) return ENOENT;
        memio_add(m, path, true);
        return 0;
    case CKR_PATH_RENAME:
        if (!f) return ENOENT;
        if (t && (t->is_dir != f->is_dir || (t->is_dir && !memio_empty(m, to))))
            return t->is_dir ? ENOTEMPTY : ENOTDIR;
        if (t) memio_drop(m, t);
        memio_move(m, path, to);
        return 0;
    case CKR_PATH_REMOVE:
        if (!f) return ENOENT;
        if (f->is_dir) return EISDIR;
        memio_drop(m, f);
        return 0;
    case CKR_PATH_RMDIR:
        if (!f) return ENOENT;
        if (!f->is_dir) return ENOTDIR;
        if (!memio_empty(m, path)) return ENOTEMPTY;
        memio_drop(m, f);
        return 0;
    case CKR_PATH_SYNC_DIR:
        for (i = 0; i < m->n; i++)
            if (memio_below(m->files[i]->path, path) &&
                !strchr(m->files[i]->path + strlen(path) + 1, '/'))
                m->files[i]->named = true;
        return 0;
    case CKR_PATH_EXCHANGE:
        if (!f || !t) return ENOENT;
        memio_move(m, path, "/w.exchange");
        memio_move(m, to, path);
        memio_move(m, "/w.exchange", to);
        return 0;
    }
    return EINVAL;
}

/* Not among the hooks of memio_io: a test takes them, and holds a lock as another process would. */
OS_UNUSED static int32_t memio_lock(void *user, const char *path, void **lock)
{
    memio *m = (memio *)user;
    const memio_file *f = memio_find(m, path);
    uint64_t *free_one = NULL;
    size_t i;
    if (!f) return ENOENT;
    for (i = 0; i < sizeof m->locks / sizeof *m->locks; i++) {
        if (m->locks[i] == f->id) return EBUSY;
        if (!m->locks[i]) free_one = &m->locks[i];
    }
    if (!free_one) return ENOLCK;
    *free_one = f->id;
    *lock = free_one;
    return 0;
}

OS_UNUSED static void memio_unlock(void *user, void *lock)
{
    (void)user;
    *(uint64_t *)lock = 0;
}

static ckr_io memio_io(memio *m)
{
    ckr_io io;
    memset(&io, 0, sizeof io);
    io.open_fn = memio_open;
    io.read_fn = memio_read;
    io.write_fn = memio_write;
    io.sync_fn = memio_sync;
    io.park_fn = memio_park;
    io.close_fn = memio_close;
    io.stat_fn = memio_stat;
    io.list_fn = memio_list;
    io.path_fn = memio_path;
    io.share_fn = memio_share;
    io.user = m;
    return io;
}

/* ---- faults ---- */

enum {
    FAULT_ALLOC = 0,
    FAULT_OPEN,
    FAULT_CREATE,
    FAULT_SHARE,
    FAULT_LOCK,
    FAULT_READ,
    FAULT_WRITE,
    FAULT_SYNC,
    FAULT_STAT,
    FAULT_LIST,
    FAULT_MKDIR,
    FAULT_RENAME,
    FAULT_SYNC_DIR,
    FAULT_REMOVE,
    FAULT_KINDS
};

typedef struct faulty {
    ckr_io        io;          /* the real one                                          */
    int           kind;        /* which calls are counted and failed; -1: none          */
    unsigned long at;          /* the call that fails, from 1; 0: none                  */
    bool          for_good;    /* and every later one                                   */
    int32_t       sys;         /* the errno it fails with                               */
    unsigned long calls[FAULT_KINDS];
    unsigned long failed;
    unsigned long changes, kill_at; /* calls that change the disk; the process kills itself there */
    long          blocks, handles, locks;
    unsigned long long written;    /* bytes that write_fn was given                     */
    unsigned long long bytes;  /* allocated and not freed                               */
    bool          bad_size;    /* something was freed with another size than allocated  */
} faulty;

static bool faulty_changes(int kind)
{
    return kind == FAULT_CREATE || kind == FAULT_SHARE || kind == FAULT_WRITE ||
           kind == FAULT_SYNC || kind >= FAULT_MKDIR;
}

static bool faulty_now(faulty *f, int kind)
{
    unsigned long n = ++f->calls[kind];
    if (faulty_changes(kind) && ++f->changes == f->kill_at) {
        if (kind == FAULT_WRITE) return true;
        os_die();
    }
    bool hit = kind == f->kind && f->at && (n == f->at || (f->for_good && n > f->at));
    if (hit) f->failed++;
    return hit;
}

static void *faulty_alloc(void *user, size_t size, size_t align)
{
    faulty *f = (faulty *)user;
    size_t *p;
    (void)align;
    if (faulty_now(f, FAULT_ALLOC)) return NULL;
    p = (size_t *)malloc(size + 16);
    if (!p) exit(2);
    p[0] = size;
    f->blocks++;
    f->bytes += size;
    return (char *)p + 16;
}

static void faulty_free(void *user, void *ptr, size_t size, size_t align)
{
    faulty *f = (faulty *)user;
    size_t *p;
    (void)align;
    if (!ptr) return;
    p = (size_t *)(void *)((char *)ptr - 16);
    if (p[0] != size) f->bad_size = true;
    f->blocks--;
    f->bytes -= p[0];
    memset(p, 0xdd, p[0] + 16);
    free(p);
}

static int32_t faulty_open(void *user, const char *path, bool create, void **file, uint64_t *size)
{
    faulty *f = (faulty *)user;
    int32_t r;
    if (faulty_now(f, create ? FAULT_CREATE : FAULT_OPEN)) return f->sys;
    r = f->io.open_fn(f->io.user, path, create, file, size);
    if (r == 0) f->handles++;
    return r;
}

static int32_t faulty_share(void *user, const char *path, uint64_t size, void **file)
{
    faulty *f = (faulty *)user;
    int32_t r;
    if (faulty_now(f, FAULT_SHARE)) return f->sys;
    r = f->io.share_fn(f->io.user, path, size, file);
    if (r == 0) f->handles++;
    return r;
}

static int32_t faulty_lock(void *user, const char *path, void **lock)
{
    faulty *f = (faulty *)user;
    int32_t r;
    if (faulty_now(f, FAULT_LOCK)) return f->sys;
    r = f->io.lock_fn(f->io.user, path, lock);
    if (r == 0) f->locks++;
    return r;
}

static void faulty_unlock(void *user, void *lock)
{
    faulty *f = (faulty *)user;
    f->locks--;
    f->io.unlock_fn(f->io.user, lock);
}

static int32_t faulty_read(void *user, void *file, uint64_t offset, void *dst, size_t n)
{
    faulty *f = (faulty *)user;
    return faulty_now(f, FAULT_READ) ? f->sys : f->io.read_fn(f->io.user, file, offset, dst, n);
}

static int32_t faulty_write(void *user, void *file, uint64_t offset, const void *src, size_t n)
{
    faulty *f = (faulty *)user;
    if (faulty_now(f, FAULT_WRITE)) {      /* half of it arrives, as when a disk fills up */
        f->io.write_fn(f->io.user, file, offset, src, n / 2);
        if (f->kill_at) os_die();
        return f->sys;
    }
    f->written += n;
    return f->io.write_fn(f->io.user, file, offset, src, n);
}

static int32_t faulty_sync(void *user, void *file)
{
    faulty *f = (faulty *)user;
    return faulty_now(f, FAULT_SYNC) ? f->sys : f->io.sync_fn(f->io.user, file);
}

static void faulty_close(void *user, void *file)
{
    faulty *f = (faulty *)user;
    f->handles--;
    f->io.close_fn(f->io.user, file);
}

static int32_t faulty_stat(void *user, const char *path, ckr_stat *out)
{
    faulty *f = (faulty *)user;
    return faulty_now(f, FAULT_STAT) ? f->sys : f->io.stat_fn(f->io.user, path, out);
}

static int32_t faulty_list(void *user, const char *dir,
                           void (*each_fn)(void *arg, const char *name, bool is_dir), void *arg)
{
    faulty *f = (faulty *)user;
    return faulty_now(f, FAULT_LIST) ? f->sys : f->io.list_fn(f->io.user, dir, each_fn, arg);
}

static int32_t faulty_path(void *user, ckr_path_op op, const char *path, const char *to)
{
    faulty *f = (faulty *)user;
    const bool names = op == CKR_PATH_RENAME || op == CKR_PATH_EXCHANGE;
    int kind = op == CKR_PATH_MKDIR ? FAULT_MKDIR : names ? FAULT_RENAME
             : op == CKR_PATH_SYNC_DIR ? FAULT_SYNC_DIR : FAULT_REMOVE;
    if (faulty_now(f, kind)) return f->sys;
    return f->io.path_fn(f->io.user, op, path, to);
}

static void faulty_park(void *user, void *file)
{
    faulty *f = (faulty *)user;
    if (f->io.park_fn) f->io.park_fn(f->io.user, file);
}

/* An env over `io` whose calls go through f; one thread. */
static ckr_env faulty_env(faulty *f, ckr_io io)
{
    ckr_env env;
    memset(&env, 0, sizeof env);
    memset(f, 0, sizeof *f);
    f->io = io;
    f->kind = -1;
    env.alloc.alloc_fn = faulty_alloc;
    env.alloc.free_fn = faulty_free;
    env.alloc.user = f;
    env.io.open_fn = faulty_open;
    env.io.read_fn = faulty_read;
    env.io.write_fn = faulty_write;
    env.io.sync_fn = faulty_sync;
    env.io.park_fn = faulty_park;
    env.io.close_fn = faulty_close;
    env.io.stat_fn = faulty_stat;
    env.io.list_fn = faulty_list;
    env.io.path_fn = faulty_path;
    if (io.share_fn) env.io.share_fn = faulty_share;
    if (io.lock_fn) {
        env.io.lock_fn = faulty_lock;
        env.io.unlock_fn = faulty_unlock;
    }
    env.io.user = f;
    env.parallel.n_threads = 1;
    return env;
}

#endif
