/* The verbs, and what `help` says of them and of their flags. */

#include "tool.h"

static int verb_version(job *j);
static int verb_help(job *j);

const verb all_verbs[] = {
    { "inspect", VERB_INSPECT, 1, verb_inspect, "inspect PATH",
      "what is in this checkpoint, and is it whole",
      "Reads only metadata, no tensor byte. PATH is a file, a checkpoint directory, or a run "
      "directory: there the newest "
      "complete checkpoint is taken as the framework itself would choose it, and named.",
      "ckptresume inspect checkpoints/ --tensors" },
    { "tree", VERB_TREE, 1, verb_tree, "tree FILE [--select POINTER]",
      "one file as a tree, everything in it, nothing executed",
      "torch.save files, pickles, safetensors, .npy and .npz, JSON, YAML. Objects that Python "
      "would build by calling code "
      "are listed, never called.",
      "ckptresume tree optimizer.pt --select /param_groups/0" },
    { "plan", VERB_PLAN, 1, verb_plan, "plan PATH [target] [policy]",
      "what a resume would keep, change and lose; touches nothing",
      "The target is what the coming run looks like; what is not given is as in the checkpoint. "
      "Exits 1 when the plan is "
      "refused; the report says what would allow it.",
      "ckptresume plan checkpoints/ --tp 1 --pp 2" },
    { "convert", VERB_CONVERT, 2, verb_convert, "convert PATH OUT [target] [policy]",
      "the same, done: a checkpoint that the target framework loads unpatched",
      "OUT appears whole or not at all, and must not exist unless --force is given. It also holds "
      "ckptresume.json: where it "
      "came from, and a digest of every tensor.",
      "ckptresume convert checkpoints/ resharded/ --tp 4 --dp 2" },
    { "export", VERB_EXPORT, 2, verb_export, "export PATH OUT.safetensors",
      "unsharded tensors in one safetensors file",
      "Parameters under their names; with --slots also optimizer.state.<name>.<slot>. Shapes are "
      "logical, without padding "
      "rows; dtypes are as stored unless --dtype is given.",
      "ckptresume export checkpoints/ model.safetensors --dtype bfloat16" },
    { "digest", VERB_DIGEST, 1, verb_digest, "digest PATH",
      "topology-free and format-free digest, per tensor and in total",
      "Two checkpoints with the same digest hold the same tensors, however they are cut, ordered "
      "or stored.",
      "ckptresume digest checkpoints/ --quiet" },
    { "diff", VERB_DIFF, 2, verb_diff, "diff A B",
      "semantic difference of two checkpoints of any format and topology",
      "Tensors are compared bit for bit, groups per parameter. Exits 1 when anything differs.",
      "ckptresume diff checkpoints/ resharded/" },
    { "check", VERB_CHECK, 1, verb_check, "check PATH",
      "read every byte: checksums, completeness, replicas and ties equal, masters, digests",
      "Exits 1 when the content is wrong although it can be read, 3 when it cannot be read as what "
      "it claims to be.",
      "ckptresume check checkpoints/ --json" },
    { "lr", VERB_LR, 1, verb_lr, "lr PATH [policy]",
      "learning rate per update and group, before and after the resume",
      "What the saved run would have used at each optimizer update, and what the planned run will "
      "use. PATH may also be the file of a bare torch scheduler, with --optimizer FILE. Exits 1 "
      "when the policy refuses the change; the report says what would allow it.",
      "ckptresume lr checkpoints/ --set total_steps=40000 --lr-policy splice --svg lr.svg" },
    { "rng", VERB_RNG, 1, verb_rng, "rng PATH [--ranks N]",
      "which random stream goes to which rank, next draws, proof of disjointness",
      "Streams are matched by the axes over which they vary, never by raw rank; what has no place "
      "is carried along, what is missing is derived from a recorded key, never copied.",
      "ckptresume rng checkpoints/ --dp 6" },
    { "version", VERB_VERSION, 0, verb_version, "version", "the version of the tool", "",
      "ckptresume version" },
    { "help", VERB_HELP, 1, verb_help, "help [VERB]", "this text, or one verb with its flags", "",
      "ckptresume help convert" },
    { NULL, 0, 0, NULL, NULL, NULL, NULL, NULL }
};

const verb *verb_find(const char *name)
{
    size_t i;
    for (i = 0; all_verbs[i].name; i++)
        if (!strcmp(all_verbs[i].name, name)) return &all_verbs[i];
    return NULL;
}

const char *verb_nearest(const char *name)
{
    size_t i, d, least = SIZE_MAX;
    const char *best = "";
    for (i = 0; all_verbs[i].name; i++) {
        d = word_distance(name, all_verbs[i].name);
        if (d < least) {
            least = d;
            best = all_verbs[i].name;
        }
    }
    return best;
}

static int verb_version(job *j)
{
    json w;
    w.t = &j->out;
    w.comma = false;
    if (j->o.json) {
        json_open(&w, "{");
        json_version(&w);
        json_close(&w, "}");
    } else {
        text_str(&j->out, "ckptresume ");
        version_put(&j->out);
    }
    text_str(&j->out, "\n");
    return CODE_DONE;
}

static void help_flag(text *t, const option *o)
{
    char flag[40];
    snprintf(flag, sizeof flag, "--%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
    text_fmt(t, "  %-18s ", flag);
    text_wrap(t, 21, 21, o->help);
}

/* Flags that every verb has come last, under their own title. */
static void help_flags(text *t, uint32_t bit)
{
    size_t i;
    int common;
    for (common = 0; common < 2; common++) {
        bool any = false;
        for (i = 0; all_options[i].name; i++) {
            const option *o = &all_options[i];
            if (o->kind == KIND_LATER || !(o->verbs & bit) ||
                (o->verbs == VERB_ANY) != (common == 1))
                continue;
            if (!any) text_fmt(t, "\n%s:\n", common ? "Everywhere" : "Flags");
            any = true;
            help_flag(t, o);
        }
    }
}

static void help_verb(text *t, const verb *v)
{
    text_fmt(t, "usage: ckptresume %s\n\n", v->usage);
    text_wrap(t, 0, 0, v->summary);
    if (v->detail[0]) text_wrap(t, 0, 0, v->detail);
    help_flags(t, v->bit);
    text_fmt(t, "\nExample:\n  %s\n", v->example);
}

static void help_all(text *t)
{
    size_t i;
    text_str(t, "ckptresume looks into, compares, checks and converts training checkpoints.\n\n"
                "usage: ckptresume VERB PATH... [flags]\n\n");
    for (i = 0; all_verbs[i].name; i++)
        text_fmt(t, "  %-37s%s\n", all_verbs[i].usage, all_verbs[i].summary);
    text_str(t, "\nPATH is a file, a checkpoint directory, or a run directory (its newest complete "
                "checkpoint).\n");
    help_flags(t, VERB_VERSION);
    text_str(
        t,
        "\nExit codes: 0 done; 1 refused, different or not sound; 2 usage; 3 bad input; 4 system.\n"
        "\nExamples:\n"
        "  ckptresume inspect checkpoints/\n"
        "  ckptresume convert checkpoints/ resharded/ --tp 4 --dp 2\n");
}

static int help_json(job *j, const verb *one)
{
    json w;
    size_t i;
    w.t = &j->out;
    w.comma = false;
    json_open(&w, "{");
    json_version(&w);
    json_key(&w, "verbs");
    json_open(&w, "[");
    for (i = 0; all_verbs[i].name; i++) {
        const verb *v = &all_verbs[i];
        if (one && v != one) continue;
        json_open(&w, "{");
        json_pair(&w, "name", v->name);
        json_pair(&w, "usage", v->usage);
        json_pair(&w, "summary", v->summary);
        json_pair(&w, "example", v->example);
        json_close(&w, "}");
    }
    json_close(&w, "]");
    json_close(&w, "}");
    text_str(&j->out, "\n");
    return CODE_DONE;
}

/* `about` NULL: everything. */
int help_about(job *j, const verb *about)
{
    if (j->o.json) return help_json(j, about);
    if (about) help_verb(&j->out, about);
    else help_all(&j->out);
    return CODE_DONE;
}

static int verb_help(job *j)
{
    const verb *v;
    if (!j->n_args) return help_about(j, NULL);
    v = verb_find(j->args[0]);
    if (!v)
        return usage(j, j->args[0], "there is no such verb; the nearest is %s",
                     verb_nearest(j->args[0]));
    return help_about(j, v);
}
