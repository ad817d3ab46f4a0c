/* replay.c: a plain main for a fuzz target. Runs it once over each file that is named, and over
   each file of each directory; prints how many. Linked with fuzz_NAME.c; see run.sh. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *p = (uint8_t *)malloc(1 << 20);
    size_t n;
    if (!f || !p) {
        printf("cannot read %s\n", path);
        exit(1);
    }
    n = fread(p, 1, 1 << 20, f);
    fclose(f);
    p = (uint8_t *)realloc(p, n ? n : 1);      /* so that reading past the end is seen */
    LLVMFuzzerTestOneInput(p, n);
    free(p);
    return 1;
}

int main(int argc, char **argv)
{
    int i, n = 0;
    for (i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        struct dirent *e;
        if (!d) {
            n += replay(argv[i]);
            continue;
        }
        while ((e = readdir(d)) != NULL) {
            char path[1024];
            struct stat st;
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            if (stat(path, &st) == 0 && (st.st_mode & S_IFMT) == S_IFREG) n += replay(path);
        }
        closedir(d);
    }
    printf("%d passed, %d failed\n", n, n == 0);
    return n == 0;
}
