/* The whole way in C: open a checkpoint of any topology, look at the plan, write it for another.
   usage: convert CHECKPOINT OUTPUT TP PP DP */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    ckr_error   err = CKR_ZERO;
    ckr_target  to = CKR_ZERO;
    ckr_receipt done = CKR_ZERO;
    ckr_ckpt   *ckpt = NULL;
    ckr_plan   *plan = NULL;
    uint64_t    i;

    if (argc != 6) return 2;
    to.topology.tp = (uint32_t)atoi(argv[3]);
    to.topology.pp = (uint32_t)atoi(argv[4]);
    to.topology.dp = (uint32_t)atoi(argv[5]);
    if (ckr_ckpt_open(argv[1], NULL, &ckpt, &err) != CKR_OK) goto done;
    if (ckr_plan_create(ckpt, &to, 0, &plan, &err) != CKR_OK) goto done;
    for (i = 0; i < ckr_plan_info(plan)->n_notes; i++) {
        const ckr_note *n = &ckr_plan_info(plan)->notes[i];
        printf("%s %s: %s\n", n->code, n->subject ? n->subject : "", n->reason);
    }
    if (ckr_plan_write(plan, argv[2], &done, &err) != CKR_OK) goto done;
    printf("%llu bytes in %llu files\n", (unsigned long long)done.bytes_written,
           (unsigned long long)done.n_files);
done:
    if (err.code != CKR_OK) fprintf(stderr, "%s: %s %s\n", err.file, err.text, err.where);
    ckr_plan_free(plan);
    ckr_ckpt_close(ckpt);
    return err.code != CKR_OK;
}
