/* What a plan refuses, and what stands in the way of its output: on the real file system. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"

#define SOURCE "tests/data/nanotron/tp2_pp1_dp2_zero1_bf16_master/ckpt"

static ckr_ckpt *ckpt;
static ckr_error err;

static ckr_target target(void)
{
    ckr_target t = CKR_ZERO;
    t.mode = CKR_MODE_CONTINUE;
    t.topology.zero = -1;
    return t;
}

static bool has_note(const ckr_plan *p, const char *code)
{
    const ckr_plan_facts *f = ckr_plan_info(p);
    uint64_t i;
    for (i = 0; i < f->n_notes; i++)
        if (!strcmp(f->notes[i].code, code)) return true;
    return false;
}

/* A component that the framework cannot be without is refused, with a note of this code. */
static void refuses(uint32_t without, const char *code)
{
    ckr_target t = target();
    ckr_plan *p = NULL;
    t.without = without;
    if (!CHECK_OK(ckr_plan_create(ckpt, &t, 0, &p, &err), &err)) return;
    CHECK(ckr_plan_info(p)->verdict == CKR_VERDICT_REFUSED);
    CHECK(has_note(p, code));
    ckr_plan_free(p);
}

static void components(void)
{
    refuses(CKR_PARAMS, "CKR_E_PARAMS_WITHOUT");
    refuses(CKR_PROGRESS, "CKR_E_CLOCK_WITHOUT");
    refuses(CKR_GROUPS, "CKR_E_GROUPS_WITHOUT");
}

static void unknown_slot(void)
{
    ckr_target t = target();
    ckr_plan *p = NULL;
    t.dialect = "safetensors";
    t.slots = "bogus";
    CHECK(ckr_plan_create(ckpt, &t, 0, &p, &err) == CKR_E_ARG && !p);
    CHECK(err.item == CKR_ITEM_SLOT_UNKNOWN);
}

/* A file of tensors alone loses the rest, and says so - unless slots were chosen. */
static void tensors_only(void)
{
    ckr_target t = target();
    ckr_plan *p = NULL;
    t.dialect = "torch";
    if (!CHECK_OK(ckr_plan_create(ckpt, &t, 0, &p, &err), &err)) return;
    CHECK(ckr_plan_info(p)->verdict == CKR_VERDICT_APPROX && has_note(p, "CKR_W_TENSORS_ONLY"));
    ckr_plan_free(p);
    t.slots = "all";
    if (!CHECK_OK(ckr_plan_create(ckpt, &t, 0, &p, &err), &err)) return;
    CHECK(ckr_plan_info(p)->verdict == CKR_VERDICT_EXACT);
    ckr_plan_free(p);
}

/* The temporary name belongs to whoever holds its lock; a dead run's is taken over. */
static void busy_output(void)
{
    const ckr_io io = ckr__default_io();
    ckr_target t = target();
    ckr_plan *p = NULL;
    void *lock = NULL;
    mkdir("build", 0777);
    if (!CHECK_OK(ckr_plan_create(ckpt, &t, 0, &p, &err), &err)) return;
    CHECK(mkdir("build/.busy.ckptresume-tmp", 0777) == 0);
    CHECK(io.lock_fn(NULL, "build/.busy.ckptresume-tmp", &lock) == 0);
    CHECK(ckr_plan_write(p, "build/busy", NULL, &err) == CKR_E_REFUSED);
    CHECK(err.item == CKR_ITEM_OUTPUT_BUSY);
    CHECK(access("build/.busy.ckptresume-tmp", F_OK) == 0 && access("build/busy", F_OK) != 0);
    io.unlock_fn(NULL, lock);
    CHECK_OK(ckr_plan_write(p, "build/busy", NULL, &err), &err);
    CHECK(access("build/.busy.ckptresume-tmp", F_OK) != 0 && access("build/busy/13", F_OK) == 0);
    ckr_plan_free(p);
}

/* Parameters that are cast come from their masters, so that these round to them again. */
static void cast(void)
{
    ckr_target t = target();
    ckr_plan *p = NULL;
    ckr_ckpt *out = NULL;
    ckr_report report;
    t.dtype = CKR_DTYPE_F16;
    t.force = true;
    if (!CHECK_OK(ckr_plan_create(ckpt, &t, 0, &p, &err), &err)) return;
    CHECK_OK(ckr_plan_write(p, "build/busy", NULL, &err), &err);
    ckr_plan_free(p);
    if (!CHECK_OK(ckr_ckpt_open("build/busy", NULL, &out, &err), &err)) return;
    CHECK(ckr_ckpt_tensor(out, "model.lm_head.pp_block.weight", "param")->dtype == CKR_DTYPE_F16);
    if (CHECK_OK(ckr_ckpt_check(out, &report, &err), &err)) {
        CHECK(report.sound);
        ckr_report_free(&report);
    }
    ckr_ckpt_close(out);
}

static void remove_output(void)
{
    ckr__ctx c;
    ckr__ctx_init(&c, NULL, NULL, NULL);
    ckr__remove_tree(&c, "build/busy");
    ckr__ctx_free(&c);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    if (CHECK_OK(ckr_ckpt_open(SOURCE, NULL, &ckpt, &err), &err)) {
        remove_output();
        RUN(components);
        RUN(unknown_slot);
        RUN(tensors_only);
        RUN(busy_output);
        RUN(cast);
        remove_output();
        ckr_ckpt_close(ckpt);
    }
    return t_end();
}
