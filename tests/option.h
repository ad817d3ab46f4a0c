/* option.h: what a test puts into a target. */
#ifndef CKR_TEST_OPTION_H
#define CKR_TEST_OPTION_H

#include "ckptresume.h"
#include "t.h"

#include <stdio.h>
#include <string.h>

/* A ZeRO stage as a target asks for it; -1: the source's. */
T_UNUSED static int32_t stage_of(int32_t zero)
{
    return zero ? zero : CKR_ZERO_OFF;
}

/* One more option; the list has room for four, and is used again after 64 targets. */
T_UNUSED static void option_text(ckr_target *t, const char *key, const char *value)
{
    static ckr_option lists[64][4];
    static size_t next;
    ckr_option *l = lists[next++ % 64];
    if (t->n_options) memcpy(l, t->options, t->n_options * sizeof *l);
    l[t->n_options].key = key;
    l[t->n_options].value = value;
    t->options = l;
    t->n_options++;
}

T_UNUSED static void option_int(ckr_target *t, const char *key, int64_t value)
{
    static char texts[256][24];
    static size_t next;
    char *s = texts[next++ % 256];
    snprintf(s, sizeof texts[0], "%lld", (long long)value);
    option_text(t, key, s);
}

#endif
