/* tree.h: a directory of the disk into a memio. */
#ifndef CKR_TREE_H
#define CKR_TREE_H

#include <stdio.h>
#include "os.h"

static void memio_load_file(memio *m, const char *disk, const char *path)
{
    FILE *f = fopen(disk, "rb");
    struct stat st;
    void *p;
    if (!f || fstat(fileno(f), &st) != 0) exit(2);
    p = malloc((size_t)st.st_size + 1);
    if (!p || fread(p, 1, (size_t)st.st_size, f) != (size_t)st.st_size) exit(2);
    memio_put(m, path, p, (size_t)st.st_size);
    free(p);
    fclose(f);
}

static void memio_load(memio *m, const char *disk, const char *path)
{
    DIR *d = opendir(disk);
    struct dirent *e;
    if (!d) {
        printf("cannot open %s: run from the root of the repository\n", disk);
        exit(2);
    }
    while ((e = readdir(d)) != NULL) {
        char from[1024], to[1024];
        struct stat st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(from, sizeof from, "%s/%s", disk, e->d_name);
        snprintf(to, sizeof to, "%s/%s", path, e->d_name);
        if (stat(from, &st) != 0) exit(2);
        if (S_ISDIR(st.st_mode)) memio_load(m, from, to);
        else memio_load_file(m, from, to);
    }
    closedir(d);
}

#endif
