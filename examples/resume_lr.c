/* A trainer's own groups and schedule: what the checkpoint had, what the coming run asks for, what
   to set before its first update, and how the next save puts back what was decided, so that it goes
   on from there. usage: resume_lr */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include <stdio.h>
#include <stdlib.h>

static int fail(const ckr_error *e)
{
    fprintf(stderr, "%s: %s\n%s\n", e->where, e->text, e->remedy);
    return 1;
}

int main(void)
{
    static const char *const matrices[] = { "wte.weight", "h.0.mlp.weight" }, *const norms[] = {
        "h.0.ln.weight", "h.0.ln.bias"
    };
    static const ckr_hyper decay[] = { { "lr", 3e-4 }, { "weight_decay", 0.1 } };
    static const ckr_hyper plain[] = { { "lr", 3e-4 }, { "weight_decay", 0.0 } };
    static const ckr_setting longer = { NULL, "total_steps", "4000" };
    const ckr_plan_facts *f;
    ckr_error  err = CKR_ZERO;
    ckr_target to = CKR_ZERO;
    ckr_ckpt  *run = NULL, *next = NULL;
    ckr_plan  *plan = NULL;
    uint64_t   i;
    double     lrs[2];

    /* the run as it was saved, after 1,500 of 2,000 updates */
    if (ckr_ckpt_create(NULL, &run, &err) != CKR_OK ||
        ckr_ckpt_put_group(run, "decay", matrices, 2, decay, 2, &err) != CKR_OK ||
        ckr_ckpt_put_group(run, "plain", norms, 2, plain, 2, &err) != CKR_OK ||
        ckr_ckpt_put_schedule(
            run, "transformers:cosine,num_warmup_steps=100,num_training_steps=2000", 1500, &err) !=
            CKR_OK)
        return fail(&err);

    /* the coming run: twice as long, without a jump */
    to.sets = &longer;
    to.n_sets = 1;
    to.lr_policy = CKR_LR_SPLICE;
    if (ckr_plan_decide(run, &to, &plan, &err) != CKR_OK) return fail(&err);
    f = ckr_plan_info(plan);
    for (i = 0; i < f->n_notes; i++)
        printf("%s: %s -> %s, %s\n", f->notes[i].code,
               f->notes[i].old_value ? f->notes[i].old_value : "-",
               f->notes[i].new_value ? f->notes[i].new_value : "-", f->notes[i].reason);
    for (i = 0; i < f->n_groups; i++) {
        double lr = 0, weight_decay = 0;
        ckr_node_f64(ckr_node_get(f->groups[i].hyper, "lr"), &lr);
        ckr_node_f64(ckr_node_get(f->groups[i].hyper, "weight_decay"), &weight_decay);
        printf("update %lld, group %s: lr %.9g, weight decay %g\n", (long long)f->resume_at,
               f->groups[i].name, lr, weight_decay);
    }

    /* a hundred updates later: a text in a framework's names would begin anew */
    if (ckr_ckpt_create(NULL, &next, &err) != CKR_OK ||
        ckr_ckpt_put_group(next, "decay", matrices, 2, decay, 2, &err) != CKR_OK ||
        ckr_ckpt_put_group(next, "plain", norms, 2, plain, 2, &err) != CKR_OK ||
        ckr_ckpt_put_decided(next, f->after, 1600, &err) != CKR_OK ||
        ckr_schedule_values(ckr_ckpt_schedule(next, 0), CKR_COLUMN_LR, 1601, 1, lrs, NULL, &err) !=
            CKR_OK)
        return fail(&err);
    printf("update 1601: lr %.9g\n", lrs[0]);
    ckr_plan_free(plan);
    ckr_ckpt_close(run);
    ckr_ckpt_close(next);
    return 0;
}
