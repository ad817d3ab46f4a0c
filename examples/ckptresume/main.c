/* ckptresume: look into, compare, check and convert training checkpoints. `ckptresume help` lists
   the verbs. Exit codes: 0 done; 1 refused by policy, or different, or not sound; 2 usage; 3 bad,
   unsafe or unsupported input; 4 system. */

#define CKPTRESUME_IMPLEMENTATION
#include "tool.h"

int main(int argc, char **argv)
{
    job j;
    int code;
    memset(&j, 0, sizeof j);
    argv = words_of(&argc, argv);
    files_allow();
    code = run(&j, argc, argv);
    text_drain(&j.out);
    if (fflush(stdout) != 0 || ferror(stdout) || j.out.failed || j.note.failed) {
        fprintf(stderr, "ckptresume: standard output: cannot write: %s\n",
                errno ? strerror(errno) : "out of memory");
        code = CODE_SYSTEM;
    }
    text_free(&j.out);
    text_free(&j.note);
    signals_heed();
    return code;
}
