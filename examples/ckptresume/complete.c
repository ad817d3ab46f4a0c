/* Completions for bash and zsh, made of the tables of verbs and flags. */

#include "tool.h"

/* The words that a flag takes: of its row, or the library's frameworks; a target is written. */
static void complete_words(text *t, const option *o)
{
    ckr_dialect_facts f;
    size_t i;
    if (o->kind != KIND_DIALECT && o->kind != KIND_UNTIL) {
        text_str(t, option_words(o));
        return;
    }
    for (i = 0; ckr_dialect_at(i, &f); i++)
        if (f.writes || !strcmp(o->name, "dialect")) text_fmt(t, i ? " %s" : "%s", f.name);
}

static bool complete_has_words(const option *o)
{
    return o->kind == KIND_DIALECT || o->kind == KIND_UNTIL || option_words(o)[0];
}

/* A shell falls back to names of files where there is no word. */
void complete_bash(text *t)
{
    const option *o;
    const verb *v;
    bool any = false;
    text_str(t, "# bash completion of ckptresume, made by `ckptresume help --bash`\n"
                "_ckptresume()\n{\n"
                "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                "    local verb= words= i\n"
                "    COMPREPLY=()\n"
                "    if [[ $cur == = ]]; then cur=; fi\n"
                "    if [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
                "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                "        case ${COMP_WORDS[i]} in\n        ");
    for (v = all_verbs; v->name; v++) text_fmt(t, v == all_verbs ? "%s" : "|%s", v->name);
    text_str(t, ") verb=${COMP_WORDS[i]}; break ;;\n        esac\n    done\n"
                "    case $prev in\n");
    for (o = all_options; o->name; o++) {
        if (!complete_has_words(o) || o->kind == KIND_UNTIL) continue;
        text_fmt(t, "    --%s) words=\"", o->name);
        complete_words(t, o);
        text_str(t, "\" ;;\n");
    }
    text_str(t, "    help) words=\"");
    for (v = all_verbs; v->name; v++) text_fmt(t, "%s ", v->name);
    text_str(t, "schedules dialects modes files\" ;;\n    ");
    for (o = all_options; o->name; o++) {
        if (!o->value || complete_has_words(o)) continue;
        text_fmt(t, any ? "|--%s" : "--%s", o->name);
        any = true;
    }
    text_str(t, ") return ;;\n    esac\n"
                "    if [[ -z $words && $cur == -* ]]; then\n        case $verb in\n");
    for (v = all_verbs; v->name; v++) {
        text_fmt(t, "        %s) words=\"", v->name);
        for (o = all_options; o->name; o++)
            if (o->verbs & v->bit) text_fmt(t, "--%s ", o->name);
        text_str(t, "\" ;;\n");
    }
    text_str(t, "        esac\n    elif [[ -z $words && -z $verb ]]; then\n        words=\"");
    for (v = all_verbs; v->name; v++) text_fmt(t, "%s ", v->name);
    text_str(t, "\"\n    fi\n"
                "    if [[ -n $words ]]; then\n"
                "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n    fi\n"
                "    if [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2> /dev/null; fi\n"
                "}\n"
                "complete -o default -F _ckptresume ckptresume\n");
}

/* A text of _arguments or _describe in single quotes, in which : and brackets have a meaning. */
static void complete_zsh_text(text *t, const char *s)
{
    for (; *s; s++) {
        if (strchr(":[]\\", *s)) text_str(t, "\\");
        if (*s == '\'') text_str(t, "'\\''");
        else text_put(t, s, 1);
    }
}

void complete_zsh(text *t)
{
    const option *o;
    const verb *v;
    text_str(t, "#compdef ckptresume\n# made by `ckptresume help --zsh`\n"
                "local curcontext=$curcontext state line\n"
                "local -a verbs\nverbs=(\n");
    for (v = all_verbs; v->name; v++) {
        text_fmt(t, "    '%s:", v->name);
        complete_zsh_text(t, v->summary);
        text_str(t, "'\n");
    }
    text_str(t, ")\n_arguments -C '1:verb:->verb' '*::argument:->rest' && return\n"
                "case $state in\nverb) _describe verb verbs ;;\nrest)\n"
                "    case $words[1] in\n");
    for (v = all_verbs; v->name; v++) {
        text_fmt(t, "    %s) _arguments", v->name);
        for (o = all_options; o->name; o++) {
            if (!(o->verbs & v->bit)) continue;
            text_fmt(t, " \\\n        '%s--%s%s[", o->kind == KIND_SET ? "*" : "", o->name,
                     o->value ? "=" : "");
            complete_zsh_text(t, o->help);
            text_str(t, "]");
            if (o->value) {
                text_str(t, ":");
                complete_zsh_text(t, o->value);
                text_str(t, complete_has_words(o) ? ":(" : o->kind == KIND_FILE ? ":_files" : ":");
                complete_words(t, o);
                if (complete_has_words(o)) text_str(t, ")");
            }
            text_str(t, "'");
        }
        text_str(t, v->bit == VERB_HELP
                        ? " \\\n        '1:topic:(schedules dialects modes files)' ;;\n"
                        : " \\\n        '*:path:_files' ;;\n");
    }
    text_str(t, "    esac ;;\nesac\n");
}
