/* ckptresume: look into, compare, check and convert training checkpoints. On top of the public API
   of ckptresume.h; nothing here reads a file format or knows a framework. */

#ifndef CKPTRESUME_TOOL_H
#define CKPTRESUME_TOOL_H

/* before any include: strict -std=c99 hides isatty, realpath and clock_gettime otherwise */
#ifndef _DEFAULT_SOURCE
#  define _DEFAULT_SOURCE 1
#endif
#ifndef _FILE_OFFSET_BITS
#  define _FILE_OFFSET_BITS 64
#endif
#include "ckptresume.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#if defined(__GNUC__)
#  define TOOL_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#  define TOOL_PRINTF(f, a)
#endif

#define COUNT_OF(a) (sizeof(a) / sizeof *(a))

enum { CODE_DONE = 0, CODE_REFUSED = 1, CODE_USAGE = 2, CODE_INPUT = 3, CODE_SYSTEM = 4 };

/* ---- system.c ---- */

double now_seconds(void);
bool is_terminal(FILE *f);
size_t terminal_columns(FILE *f, size_t otherwise);
bool is_absolute(const char *path);
void files_allow(void);
bool working_directory(char *path, size_t cap);
#if defined(_WIN32)
FILE *file_open(const char *path, const char *mode);
void file_remove(const char *path);
bool file_rename(const char *from, const char *to);
FILE *file_temporary(void);
char **words_of(int *argc, char **argv);
#else
#  define file_open fopen
#  define file_remove remove
#  define file_rename(from, to) (rename(from, to) == 0)
#  define file_temporary tmpfile
#  define words_of(argc, argv) (argv)
#endif

/* ---- text.c ---- */

typedef struct text {
    char  *data;
    size_t n, cap;
    FILE  *to;                 /* NULL: grows                                         */
    size_t width;              /* columns of a line; 0: there is no end of it         */
    int    digits;             /* of floating point; 0: all that tell doubles apart   */
    bool   color, verbose, failed;
} text;

#define PAINT_BOLD    "1"
#define PAINT_DIM     "2"
#define PAINT_RED     "31"
#define PAINT_GREEN   "32"
#define PAINT_YELLOW  "33"
#define PAINT_MAGENTA "35"
#define PAINT_CYAN    "36"

/* exact: of strings that are UTF-8 but for lone surrogates, which stay such */
typedef struct json { text *t; bool comma, exact; } json;

void text_drain(text *t);
void text_put(text *t, const char *s, size_t n);
void text_str(text *t, const char *s);
void text_pad(text *t, size_t n);
TOOL_PRINTF(2, 3)
void text_fmt(text *t, const char *fmt, ...);
void text_free(text *t);
void text_clean_n(text *t, const char *s, size_t n);
void text_clean(text *t, const char *s);
void text_paint(text *t, const char *code);
void text_plain(text *t);
void text_painted(text *t, const char *code, const char *s);
size_t text_columns(const char *s, size_t n);
void text_size(text *t, uint64_t bytes);
void text_count(text *t, uint64_t n);
void text_double(text *t, double v);
void text_values(text *t, const char *was, const char *now);
void text_shape(text *t, uint32_t n_dims, const int64_t *shape);
void text_hex(text *t, const uint8_t *p, size_t n);
void text_wrap(text *t, size_t indent, size_t column, const char *s);
void text_wrapped(text *t, text *line, size_t indent, size_t column);
void json_comma(json *w);
void json_open(json *w, const char *bracket);
void json_close(json *w, const char *bracket);
void json_string_n(json *w, const char *s, size_t n);
void json_raw(json *w, const char *s);
void json_string(json *w, const char *s);
void json_key(json *w, const char *s);
void json_int(json *w, int64_t v);
void json_uint(json *w, uint64_t v);
void json_bool(json *w, bool v);
void json_double(json *w, double v);
void json_pair(json *w, const char *key, const char *value);
void json_hex(json *w, const uint8_t *p, size_t n);
void json_base64(json *w, const char *s, uint64_t n);
void json_shape(json *w, uint32_t n_dims, const int64_t *shape);

/* ---- job.c ---- */

/* One run of the tool: what was asked, and what every verb needs. Nothing is global. */

typedef enum color_mode { COLOR_AUTO = 0, COLOR_ALWAYS, COLOR_NEVER } color_mode;

enum { SETTINGS_MAX = 64, OPTIONS_MAX = 96 };

typedef struct options {
    const char *dialect, *format, *names, *select;
    const char *schedule, *optimizer, *svg, *like, *settings;
    const char *to_version, *data;
    uint32_t    vpp;
    int64_t     heads, kv_heads, fsdp_size, micro_batch, seq_len;
    uint64_t    max_shard_bytes;
    ckr_target  target;
    ckr_parts   parts;
    uint32_t    part, commit;  /* from 1; 0: not asked for                            */
    ckr_option  list[9];       /* the nine of these that are asked for               */
    char        numbers[9][24];
    ckr_setting sets[SETTINGS_MAX];
    int64_t     from, to;      /* updates                                             */
    ckr_column  column;
    bool        csv;
    const char *tolerance;     /* as written; NULL: none                                  */
    double      tolerate;
    uint64_t    limit;         /* 0: as usual                                         */
    const char *pattern;       /* of the tensors that are listed, or NULL             */
    uint64_t    memory;
    uint32_t    threads;
    color_mode  color;
    bool        json, quiet, verbose, progress, tensors, files, each, hash, help, man, bash, zsh;
    bool        stat, stats, tolerance_ulp;
} options;

typedef struct progress {
    double start, last;        /* seconds                                             */
    bool   wanted, terminal, shown;
} progress;

typedef struct verb verb;
typedef struct job {
    options     o;
    const verb *verb;
    const char *args[3];       /* after the verb                                      */
    uint32_t    n_args;
    bool        used[OPTIONS_MAX];         /* by the rows of all_options               */
    text        out, note;     /* stdout, stderr                                      */
    ckr_env     env;
    ckr_error   err;
    progress    progress;
} job;

struct verb {
    const char *name;
    uint32_t    bit, n_args;
    int       (*run_fn)(job *j);
    const char *usage, *summary, *detail, *example;
};

enum {
    VERB_INSPECT = 1, VERB_TREE = 2, VERB_PLAN = 4, VERB_CONVERT = 8, VERB_EXPORT = 16,
    VERB_DIGEST = 32, VERB_DIFF = 64, VERB_CHECK = 128, VERB_VERSION = 256, VERB_HELP = 512,
    VERB_LR = 1024, VERB_RNG = 2048,
    VERB_TARGET = VERB_PLAN | VERB_CONVERT,
    VERB_POLICY = VERB_TARGET | VERB_LR,
    VERB_OPENING = VERB_INSPECT | VERB_POLICY | VERB_EXPORT | VERB_DIGEST | VERB_DIFF |
                   VERB_CHECK | VERB_RNG,
    VERB_ANY = VERB_OPENING | VERB_TREE | VERB_VERSION | VERB_HELP
};

typedef struct class_name { ckr_result code; int exit_code; const char *name; } class_name;

bool color_of(color_mode mode, FILE *f);
const class_name *class_of(ckr_result code);
const char *or_null(const char *s);
int fail(job *j);
void error_set(ckr_error *e, ckr_result code, ckr_item item, const char *where);
TOOL_PRINTF(3, 4)
int usage(job *j, const char *where, const char *fmt, ...);
int out_of_memory(job *j);
void signals_catch(void);
void signals_heed(void);
void progress_begin(job *j);
bool progress_hook(void *user, uint64_t done, uint64_t total);
double progress_end(job *j);
void log_hook(void *user, const ckr_error *what);
void open_desc(const job *j, ckr_open_desc *d);
int open_format(job *j, const ckr_ckpt *c);
int open_checkpoint(job *j, const char *path, ckr_ckpt **out);

/* ---- show.c ---- */

#define TABLE_COLUMNS 8
#define SHOW_DEPTH    8        /* of dicts and lists in each other                     */

typedef struct table {
    const char *columns;
    text     cells;
    uint32_t n_columns, n_cells, right;    /* right: bits of right-aligned columns    */
    size_t   width[TABLE_COLUMNS];
} table;

typedef struct show_fact { const char *key; size_t at; } show_fact;
typedef struct show_scope { const char *key, *close; size_t n, words; } show_scope;

typedef struct show {
    json   w;                  /* w.t NULL: no JSON, but                               */
    text  *t;                  /* for the eye; NULL: nothing is printed                */
    text   facts, line;        /* the words of all facts; the line that is being made  */
    show_fact *fact;
    size_t n_facts, cap_facts;
    table  b;
    show_scope scope[SHOW_DEPTH];
    size_t depth;
} show;

void show_begin(show *s, text *out, bool is_json);
void show_job(show *s, job *j);
void show_end(show *s);
void show_null(show *s, const char *key);
void show_strn(show *s, const char *key, const char *v, size_t n);
void show_str(show *s, const char *key, const char *v);
void show_painted(show *s, const char *key, const char *v, const char *paint);
void show_flag(show *s, const char *key, bool v, const char *yes, const char *no,
               const char *no_paint);
void show_bool(show *s, const char *key, bool v);
void show_int(show *s, const char *key, int64_t v);
void show_least(show *s, const char *key, int64_t v, int64_t least);
void show_uint(show *s, const char *key, uint64_t v);
void show_count(show *s, const char *key, uint64_t v);
void show_size(show *s, const char *key, uint64_t v);
void show_double(show *s, const char *key, double v, const char *fmt);
void show_shape(show *s, const char *key, uint32_t n_dims, const int64_t *shape);
void show_hex(show *s, const char *key, const uint8_t *p, size_t n);
void show_base64(show *s, const char *key, const void *p, size_t n);
void show_node(show *s, const char *key, const ckr_ckpt *c, const ckr_node *n);
text *show_text(show *s, const char *key);
void show_word(show *s, const char *key, const char *word);
void show_dict(show *s, const char *key);
void show_list(show *s, const char *key);
void show_words_list(show *s, const char *key);
void show_close(show *s);
void show_leave(show *s);
void show_forget(show *s);
void show_words(show *s, const char *key, const char *words);
void show_close_as(show *s, const char *words);
bool show_room(const show *s, uint64_t i, uint64_t most);
uint64_t show_most(const show *s, uint64_t most);
size_t show_columns(const show *s, const char *key);
void show_put(show *s, const char *name, const char *words);
void show_line(show *s, const char *name, const char *words);
void show_wrap(show *s, size_t indent, size_t column, const char *words);
void show_below(show *s, size_t indent, const char *words);
void show_title(show *s, const char *title);
void show_rest(show *s, uint64_t n, const char *what);
void show_table(show *s, const char *columns);
void show_cells(show *s);
void show_table_end(show *s);

/* ---- values.c ---- */

bool value_is_list(const ckr_node *n);
const char *view_dtype(const ckr_view *v);
void json_node(json *w, const ckr_ckpt *c, const ckr_node *n);
void text_node(text *t, const ckr_ckpt *c, const ckr_node *n);

/* ---- report.c: what several verbs show ---- */

extern const char format_words[];      /* that a file may be said to have             */

/* Entries from two places: of the state or the plan, and of what was done with it. */
typedef struct report { const ckr_note *notes[2]; uint64_t n[2]; } report;

const char *format_name(ckr_format f);
void version_put(text *t);
void show_version(show *s);
void show_topology(show *s, const ckr_topology *t);
void show_progress(show *s, const ckr_state *from, bool kept);
void show_head(show *s, const ckr_ckpt *c);
void show_head_lines(show *s, const ckr_ckpt *c, const char *asked);
uint64_t tensor_elements(const ckr_tensor *t);
void show_above(show *s, const ckr_ckpt *c, const char *asked);
void show_tensor(show *s, const ckr_tensor *t);
report report_of(const ckr_note *a, uint64_t n_a, const ckr_note *b, uint64_t n_b);
uint64_t report_count(const report *r, ckr_severity severity);
void show_entry(show *s, const ckr_note *n);
void show_report(show *s, const report *r, const char *title);
void show_alikes(show *s, const report *r, const char *title);
void report_quietly(job *j, const report *r, const char *title);
void label(text *t, const char *name);

/* ---- tree_bytes.c ---- */

#define TREE_HEX_MAX 96        /* bytes of a tensor that are also printed              */

typedef struct tree_slot { const void *key; uint64_t value; } tree_slot;
typedef struct tree_map { tree_slot *slots; size_t cap, count; } tree_map;
typedef struct tree_digest { uint8_t b[32]; } tree_digest;

typedef struct tree_bytes {
    const ckr_ckpt *ckpt;
    ckr_error   *err;
    bool         failed;       /* no memory, or bytes that could not be read            */
    tree_map     digests, data;            /* of nodes; of storages that are counted   */
    tree_digest *digest;
    size_t       cap_digest;
    uint64_t     expanded, hashed, stored; /* spent; stored: of distinct storages      */
    uint8_t     *window;       /* of a file                                            */
    uint64_t     window_at;
    size_t       window_n;
    uint32_t     window_file;
} tree_bytes;

/* refused: by a budget, so that there is no digest. */
typedef struct tree_content {
    bool        refused, has_sha, has_head;
    tree_digest sha;
    size_t      n_head;
    uint8_t     head[TREE_HEX_MAX];
} tree_content;

bool array_grow(void **array, size_t *cap, size_t need, size_t size);
tree_slot *tree_find(tree_map *m, const void *key);
void tree_take(tree_map *m, tree_slot *s, const void *key, uint64_t value);
void tree_content_of(tree_bytes *t, const ckr_node *node, bool hash, tree_content *out);
void tree_storage_sha(tree_bytes *t, const ckr_view *v, tree_digest *sha);
void tree_bytes_free(tree_bytes *t);

/* ---- the verbs ---- */

int verb_inspect(job *j);
int verb_tree(job *j);
int verb_plan(job *j);
int verb_convert(job *j);
int verb_export(job *j);
int verb_digest(job *j);
int verb_diff(job *j);
int verb_check(job *j);
int verb_lr(job *j);
int verb_rng(job *j);

/* What --like names: its groups become the target's. */
typedef struct like_file { ckr_ckpt *file; ckr_group *groups; uint64_t n; } like_file;

void like_free(like_file *l);
int plan_ranks(job *j, const ckr_state *s);
int like_open(job *j, like_file *l);

bool settings_text(text *t, const ckr_plan_facts *f, const char *out, bool why);
void settings_show(show *s, const ckr_plan_facts *f, const char *out);

#define LR_UNIT "step"         /* of an update                                        */

typedef struct lr_series {
    const char *column;        /* "lr", "weight_decay", "momentum" or any other key    */
    size_t n_groups;
    const char *const *group_names;        /* [n_groups]; NULL, or entries NULL: none  */
    int64_t first;             /* update number of row 0; 1 is training's first        */
    size_t n_rows;
    const double *before, *after;          /* [n_rows][n_groups]; NaN, or NULL: unknown */
    int64_t resume_at;         /* first update after the resume: after counts from here */
} lr_series;

bool lr_table(text *o, const lr_series *s);
bool lr_csv(text *o, const lr_series *s);
bool lr_svg(text *o, const lr_series *s);

/* ---- args.c, help.c ---- */

typedef enum option_kind {
    KIND_SWITCH = 0, KIND_TEXT, KIND_FILE, KIND_COUNT, KIND_ROWS, KIND_STAGE, KIND_BYTES,
    KIND_RATIO, KIND_SEED, KIND_WORD, KIND_ONLY, KIND_WITHOUT, KIND_SET, KIND_DTYPE, KIND_FORMAT,
    KIND_DIALECT, KIND_SCHEDULE, KIND_UNTIL, KIND_LIMIT, KIND_TOLERANCE, KIND_PATTERN,
    KIND_PART
} option_kind;

typedef enum option_group {
    GROUP_RUN = 0, GROUP_KEEP, GROUP_LR, GROUP_RNG, GROUP_INPUT, GROUP_OUTPUT, GROUP_ALL
} option_group;

typedef struct option {
    const char  *name, *value; /* value: its name in help, NULL for a switch          */
    option_kind  kind;
    option_group group;
    size_t       at;           /* in `options`                                        */
    uint32_t     verbs;
    const char  *words;        /* that it takes, blanks between; an empty one: no word is 0 */
    const char  *help;
} option;

extern const option all_options[];     /* the last has no name                         */
extern const verb all_verbs[];

const char *flag_of(const char *key);
const char *option_words(const option *o);
int word_index(const char *words, const char *s, size_t n);
size_t word_miss(const char *typed, const char *known);
int run(job *j, int argc, char **argv);

const verb *verb_find(const char *name);
void complete_bash(text *t);
void complete_zsh(text *t);
int verb_unknown(job *j, const char *name);
int help_about(job *j, const verb *about);

#endif
