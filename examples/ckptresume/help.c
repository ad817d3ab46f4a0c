/* The verbs, and what `help` says of them and of their flags. */

#include "tool.h"

static int verb_version(job *j);
static int verb_help(job *j);

const verb all_verbs[] = {
    { "inspect", VERB_INSPECT, 1, verb_inspect, "inspect PATH",
      "what is in this checkpoint, and is it whole",
      "Reads only metadata, no tensor byte but for --stats: in --json elements, nan, inf, zeros, "
      "and of the finite ones min, max, mean, std (of a population). PATH is a "
      "file, a checkpoint directory, or a run directory: there the newest "
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
    { "export", VERB_EXPORT, 2, verb_export, "export PATH OUT.safetensors|OUT.pt",
      "unsharded tensors in one file",
      "OUT's ending says which: .safetensors, or .pt, .pth or .bin for torch. Parameters under "
      "their names; with --slots also optimizer.state.<name>.<slot>. Shapes are logical, "
      "without padding rows; dtypes are as stored unless --dtype is given.",
      "ckptresume export checkpoints/ model.safetensors --dtype bfloat16" },
    { "digest", VERB_DIGEST, 1, verb_digest, "digest PATH",
      "a digest that does not depend on topology or format",
      "Two checkpoints with the same digest hold the same tensors, however they are cut, ordered "
      "or stored.",
      "ckptresume digest checkpoints/ --quiet" },
    { "diff", VERB_DIFF, 2, verb_diff, "diff A B",
      "semantic difference of two checkpoints of any format and topology",
      "Tensors are compared bit for bit, those of two dtypes as the narrower one, a master with "
      "the fp32 parameter of a side that has none; groups per parameter; schedules of two "
      "frameworks by the LR to come. First a line per slot, then the worst tensors of each slot. "
      "--json has all of them: name, slot, dtype and shape of A and B; elements that differ; "
      "max_abs; max_ulp, steps from float to float and over 0 where signs differ; as, the dtype "
      "they were compared in, or null; signs that differ; worst, its index and values. `both` and "
      "`one` are the components that both have, or one; of others nothing is said. Exits 1 when "
      "anything differs.",
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
    { "help", VERB_HELP, 1, verb_help, "help [VERB|TOPIC]",
      "this text, one verb with its flags, or a topic",
      "Topics: schedules, dialects, modes, files.",
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

static int verb_version(job *j)
{
    show w;
    show_begin(&w, &j->out, j->o.json);
    show_version(&w);
    show_line(&w, NULL, "ckptresume {version}");
    show_end(&w);
    return CODE_DONE;
}

/* >>doc ----------------------------------------------------------------------- */
/* A text for the terminal, or the same as a manual page. */

typedef struct doc { text *t; bool man; } doc;

/* In roff a backslash, a dash of a flag, and a line's first dot or quote have a meaning. */
static void doc_roff(text *t, const char *s)
{
    if (*s == '.' || *s == '\'') text_str(t, "\\&");
    for (; *s; s++) {
        if (*s == '\\') text_str(t, "\\e");
        else if (*s == '-') text_str(t, "\\-");
        else text_put(t, s, 1);
    }
}

static void doc_head(const doc *d, const char *title)
{
    const char *s;
    text_str(d->t, d->man ? ".SH \"" : "\n");
    for (s = title; *s; s++) {
        const char upper = *s >= 'a' && *s <= 'z' ? (char)(*s - 'a' + 'A') : *s;
        text_put(d->t, d->man ? &upper : s, 1);
    }
    text_str(d->t, d->man ? "\"\n" : ":\n");
}

/* Below a head. */
static void doc_part(const doc *d, const char *title)
{
    text_fmt(d->t, d->man ? ".SS \"%s\"\n" : "\n%s:\n", title);
}

static void doc_para(const doc *d, const char *s)
{
    if (!d->man) {
        text_wrap(d->t, 0, 0, s);
        return;
    }
    text_str(d->t, ".PP\n");
    doc_roff(d->t, s);
    text_str(d->t, "\n");
}

/* A word or a flag, and what it is; `width` is the column of that. */
static void doc_item(const doc *d, size_t width, const char *term, const char *s)
{
    size_t n = strlen(term) + 2;
    if (!d->man) {
        text_str(d->t, "  ");
        text_str(d->t, term);
        if (n + 1 > width) text_str(d->t, "\n");
        text_pad(d->t, n + 1 > width ? width : width - n);
        text_wrap(d->t, width, width, s);
        return;
    }
    text_str(d->t, ".TP\n.B ");
    doc_roff(d->t, term);
    text_str(d->t, "\n");
    doc_roff(d->t, s);
    text_str(d->t, "\n");
}

static void doc_line(const doc *d, const char *s)
{
    text_str(d->t, d->man ? ".PP\n.RS\n.nf\n" : "  ");
    if (d->man) doc_roff(d->t, s);
    else text_str(d->t, s);
    text_str(d->t, d->man ? "\n.fi\n.RE\n" : "\n");
}

/* >>topics -------------------------------------------------------------------- */

static void topic_schedules(const doc *d)
{
    const char *last = "", *title;
    ckr_schedule_form f;
    size_t i;
    doc_para(d, "A schedule is KIND:key=value,... or, of a framework with several, "
             "KIND:NAME,key=value,... in the framework's own names. A key's type: i integer, f "
             "number, s text, b true or false, v a number or [one,per,group], m [numbers], d "
             "[{schedules}]; one with ! must be given, and of names for the same thing (steps and "
             "total_steps, lr and max_lr) one. updates_per_step=N: the script steps it once in N "
             "updates.");
    doc_line(d, "--schedule transformers:cosine,num_warmup_steps=15,num_training_steps=140");
    doc_line(d, "--to-schedule torchtitan:steps=2000,warmup_steps=40,decay_type=linear");
    for (i = 0; ckr_schedule_form_at(i, &f); i++) {
        title = f.name[0] ? f.kinds : "KIND:key=value,...";
        if (strcmp(title, last) != 0) doc_part(d, title);
        last = title;
        doc_item(d, 21, f.name[0] ? f.name : f.kinds, f.keys);
    }
}

static void topic_dialects(const doc *d)
{
    ckr_dialect_facts f;
    size_t i;
    doc_para(d, "What --to and --dialect take, with the layouts that --variant chooses from and "
             "the flags that single ones have a use for. The first that knows the files of a "
             "checkpoint has written it; those that can be read only are for --dialect.");
    for (i = 0; ckr_dialect_at(i, &f); i++) {
        const char *s = f.options ? f.options : "";
        text line;
        memset(&line, 0, sizeof line);
        if (f.variants) text_fmt(&line, "layouts: %s", f.variants);
        for (; *s; s += *s == ' ') {
            const size_t n = strcspn(s, " ");
            char key[32];
            const char *flag;
            snprintf(key, sizeof key, "%.*s", (int)n, s);
            flag = flag_of(key);
            if (flag) text_fmt(&line, "%s%s", line.n ? "; " : "", flag);
            s += n;
        }
        if (!line.n) text_str(&line, f.writes ? "one layout" : "read only");
        text_put(&line, "", 1);
        doc_item(d, 21, f.name, line.data ? line.data : "");
        text_free(&line);
    }
}

static void topic_modes(const doc *d)
{
    doc_para(d, "--mode says what may be another after the resume. Nothing falls back silently: "
             "what a mode does not allow is refused, and the report says what would allow it.");
    doc_item(d, 13, "continue", "the default: what you ask for changes, and what follows from it "
             "is told; all else stays as it was");
    doc_item(d, 13, "recover", "the run as if it had never stopped: every byte and every stream "
             "stays, and any difference is an error, but for what CKR_N_RECOVER counts: values "
             "that the framework must find changed to go on exactly, and what its script must "
             "bring");
    doc_item(d, 13, "transfer", "a new run with the weights of the old one: no optimizer, no "
             "schedule, no random streams; its progress starts at 0");
    doc_part(d, "how severe an entry of a report is");
    doc_item(d, 13, "exact", "it stays bit for bit, and nothing has to be done");
    doc_item(d, 13, "changed", "it will be another: you asked for that, or have to know it");
    doc_item(d, 13, "approx", "it will be nearly the same");
    doc_item(d, 13, "lost", "the coming run will not have it");
    doc_item(d, 13, "error", "the plan is refused for it");
}

static void topic_files(const doc *d)
{
    doc_para(d, "PATH is a file, a checkpoint directory, or a run directory: there the newest "
             "complete checkpoint is taken as the framework itself would choose it.");
    doc_part(d, "--names FILE");
    doc_para(d, "Parameter names in the optimizer's order, where its file has only numbers. A JSON "
             "list when FILE ends in .json, else a name a line:");
    doc_line(d, "[\"wte.weight\", \"wpe.weight\", \"h.0.ln_1.weight\"]");
    doc_line(d, "python -c 'print(*[n for n, _ in model.named_parameters()], sep=\"\\n\")'");
    doc_part(d, "--like FILE");
    doc_para(d, "The coming run's parameter groups. A checkpoint that has them, or JSON; lr and "
             "other values of a group are what the run asks for, and may be left out:");
    doc_line(d, "{\"groups\": [{\"params\": [\"wte.weight\"], \"lr\": 0.001, "
             "\"weight_decay\": 0.0}]}");
    doc_part(d, "ckptresume.json");
    doc_para(d, "convert leaves it in OUT: where the checkpoint came from, what the target's "
             "format cannot hold, and a digest of every tensor. No framework reads it.");
}

static const struct topic {
    const char *name, *summary;
    void      (*fn)(const doc *d);
} topics[] = {
    { "schedules", "what --schedule and --to-schedule take", topic_schedules },
    { "dialects", "what --to and --variant take", topic_dialects },
    { "modes", "what --mode allows, and the words of a report", topic_modes },
    { "files", "what PATH, --names and --like are", topic_files }
};

/* What was typed is no verb, and `about`: no topic either. Says the nearest, or all that there are.
   */
int verb_unknown(job *j, const char *name)
{
    const bool about = j->verb != NULL;
    const char *best = NULL;
    const verb *v;
    size_t least = SIZE_MAX, d, i;
    text all;
    int code;
    memset(&all, 0, sizeof all);
    for (v = all_verbs; v->name; v++) {
        text_fmt(&all, "%s%s", all.n ? ", " : "", v->name);
        if ((d = word_miss(name, v->name)) >= least) continue;
        least = d;
        best = v->name;
    }
    for (i = 0; about && i < COUNT_OF(topics); i++) {
        text_fmt(&all, ", %s", topics[i].name);
        if ((d = word_miss(name, topics[i].name)) >= least) continue;
        least = d;
        best = topics[i].name;
    }
    text_put(&all, "", 1);
    if (best) code = usage(j, name, "there is no such verb; the nearest is %s", best);
    else code = usage(j, name, "there is no such verb%s; there are %s", about ? " or topic" : "",
                      all.data ? all.data : "");
    text_free(&all);
    return code;
}

/* >>help ---------------------------------------------------------------------- */

/* The verb's flags, group by group; bit 0: of all verbs, with the verbs that take each. */
static void help_flags(const doc *d, uint32_t bit)
{
    static const char *const titles[] = { "Topology of the coming run", "What it keeps",
                                          "Learning rate and parameter groups", "Random streams",
                                          "What the files do not record", "Output", "Everywhere" };
    int shown = -1;
    const option *o;
    const verb *v;
    for (o = all_options; o->name; o++) {
        char flag[40];
        text line;
        if (bit && !(o->verbs & bit)) continue;
        if ((int)o->group != shown) doc_head(d, titles[o->group]);
        shown = (int)o->group;
        memset(&line, 0, sizeof line);
        text_fmt(&line, "%s", o->help);
        if (o->kind == KIND_DTYPE) text_fmt(&line, ": %s", o->words);
        for (v = all_verbs; !bit && o->verbs != VERB_ANY && v->name; v++)
            if (o->verbs & v->bit)
                text_fmt(&line, "%s%s", o->verbs & (v->bit - 1) ? ", " : " (", v->name);
        if (!bit && o->verbs != VERB_ANY) text_str(&line, ")");
        text_put(&line, "", 1);
        snprintf(flag, sizeof flag, "--%s%s%s", o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        doc_item(d, 21, flag, line.data ? line.data : "");
        text_free(&line);
    }
}

static void help_verb(text *t, const verb *v)
{
    const doc d = { t, false };
    text_fmt(t, "usage: ckptresume %s\n\n", v->usage);
    doc_para(&d, v->summary);
    if (v->detail[0]) doc_para(&d, v->detail);
    help_flags(&d, v->bit);
    doc_head(&d, "Example");
    doc_line(&d, v->example);
}

static const char tool_is[] =
    "looks into, compares, checks and converts training checkpoints";
static const char *const exit_codes[][2] = {
    { "0", "done" }, { "1", "refused by policy, different, or not sound" },
    { "2", "a mistake on the command line" }, { "3", "bad, unsafe or unsupported input" },
    { "4", "the system: files, memory, space" }
};

static void help_all(text *t)
{
    const doc d = { t, false };
    const verb *v;
    size_t i;
    text_fmt(t, "ckptresume %s.\n\nusage: ckptresume VERB PATH... [flags]\n\n", tool_is);
    for (v = all_verbs; v->name; v++) doc_item(&d, 39, v->usage, v->summary);
    doc_head(&d, "Topics of help");
    for (i = 0; i < COUNT_OF(topics); i++) doc_item(&d, 21, topics[i].name, topics[i].summary);
    help_flags(&d, VERB_VERSION);
    doc_head(&d, "Exit codes");
    for (i = 0; i < COUNT_OF(exit_codes); i++)
        doc_item(&d, 21, exit_codes[i][0], exit_codes[i][1]);
    doc_head(&d, "Examples");
    doc_line(&d, "ckptresume inspect checkpoints/");
    doc_line(&d, "ckptresume convert checkpoints/ resharded/ --tp 4 --dp 2");
}

/* The manual page: every table of this file and of args.c. */
static void help_man(text *t)
{
    const doc d = { t, true };
    const verb *v;
    size_t i;
    text_str(t, ".TH CKPTRESUME 1 \"\" \"ckptresume ");
    version_put(t);
    text_fmt(t, "\" \"User Commands\"\n.SH NAME\nckptresume \\- %s\n", tool_is);
    text_str(t, ".SH SYNOPSIS\n.B ckptresume\n.I VERB PATH\\fR... [\\fIflags\\fR]\n");
    doc_head(&d, "Verbs");
    for (v = all_verbs; v->name; v++) {
        text line;
        memset(&line, 0, sizeof line);
        text_fmt(&line, "%s. ", v->summary);
        text_str(&line, v->detail);
        text_put(&line, "", 1);
        doc_item(&d, 0, v->usage, line.data ? line.data : "");
        text_free(&line);
        text_str(t, ".IP\n.EX\n");
        doc_roff(t, v->example);
        text_str(t, "\n.EE\n");
    }
    help_flags(&d, 0);
    for (i = COUNT_OF(topics); i-- > 0;) {
        doc_head(&d, topics[i].name);
        topics[i].fn(&d);
    }
    doc_head(&d, "Exit status");
    for (i = 0; i < COUNT_OF(exit_codes); i++)
        doc_item(&d, 0, exit_codes[i][0], exit_codes[i][1]);
    doc_head(&d, "Environment");
    doc_item(&d, 0, "NO_COLOR", "not empty: no colors, unless --color always");
    doc_item(&d, 0, "COLUMNS", "columns of a line: else the terminal's, or 100 without one");
}

/* `about` NULL: everything. */
int help_about(job *j, const verb *about)
{
    const verb *v;
    show w;
    show_begin(&w, &j->out, j->o.json);
    if (w.t && about) help_verb(w.t, about);
    else if (w.t) help_all(w.t);
    show_version(&w);
    show_list(&w, "verbs");
    for (v = all_verbs; v->name && show_room(&w, 0, 0); v++) {
        if (about && v != about) continue;
        show_dict(&w, NULL);
        show_str(&w, "name", v->name);
        show_str(&w, "usage", v->usage);
        show_str(&w, "summary", v->summary);
        show_str(&w, "example", v->example);
        show_close(&w);
    }
    show_close(&w);
    show_end(&w);
    return CODE_DONE;
}

static int verb_help(job *j)
{
    const verb *v = j->n_args ? verb_find(j->args[0]) : NULL;
    const doc d = { &j->out, false };
    size_t i;
    if (j->o.man) help_man(&j->out);
    else if (j->o.bash) complete_bash(&j->out);
    else if (j->o.zsh) complete_zsh(&j->out);
    else if (!j->n_args || v) return help_about(j, v);
    for (i = 0; j->n_args && !v && i < COUNT_OF(topics); i++) {
        if (strcmp(topics[i].name, j->args[0]) != 0) continue;
        topics[i].fn(&d);
        return CODE_DONE;
    }
    return j->n_args && !v ? verb_unknown(j, j->args[0]) : CODE_DONE;
}
