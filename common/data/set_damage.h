/* What can be wrong with a data set: the kinds of damage, their words, and a
 * collection of findings. data/idx.h and gpt-dataset verify report to it. */
#ifndef GPT_DATA_SET_DAMAGE_H
#define GPT_DATA_SET_DAMAGE_H

#include "base/status.h"

/* enumerator, word in reports */
#define GPT_DAMAGE_LIST(X)                                                     \
    X(GPT_DAMAGE_HEADER, "header") /* nothing after it can be read */          \
    X(GPT_DAMAGE_DTYPE, "dtype")                                               \
    X(GPT_DAMAGE_IDX_SIZE, "idx-size")                                         \
    X(GPT_DAMAGE_LENGTH, "length")                                             \
    X(GPT_DAMAGE_POINTER, "pointer")                                           \
    X(GPT_DAMAGE_POINTER_32, "pointer-32-bit")                                 \
    X(GPT_DAMAGE_BIN_SHORT, "bin-truncated")                                   \
    X(GPT_DAMAGE_BIN_LONG, "bin-too-long")                                     \
    X(GPT_DAMAGE_EOD_LENGTH, "eod-length")                                     \
    X(GPT_DAMAGE_DOCUMENT, "document-order")                                   \
    X(GPT_DAMAGE_DOCUMENTS, "documents-missing")                               \
    X(GPT_DAMAGE_TOKEN, "token-range")                                         \
    X(GPT_DAMAGE_EOD, "eod-missing")                                           \
    X(GPT_DAMAGE_TOKENIZER, "tokenizer") /* another one made the set */

enum gpt_damage {
#define X(name, word) name,
    GPT_DAMAGE_LIST(X)
#undef X
    GPT_N_DAMAGES
};

/* The word that reports have for a kind: "eod-missing". */
const char *gpt_damage_word(enum gpt_damage kind);

/* Counts findings by kind; the first `most` of a kind are handed to `found`,
 * each with its place, value, limit and hint. */
struct gpt_damages {
    int64_t count[GPT_N_DAMAGES];
    int64_t most;
    void (*found)(void *user, enum gpt_damage kind, const struct gpt_err *err);
    void *user;
};

/* Findings of all kinds. */
int64_t gpt_damages_total(const struct gpt_damages *all);

/* Reports a finding. With `all` it is counted and handed on, and GPT_OK is
 * returned; without, it is an error: fills *err, returns GPT_EDATA. So one
 * check serves a reader, which stops at the first, and a report of all. `hint`
 * may be NULL. */
int gpt_damage_found(struct gpt_damages *all, struct gpt_err *err,
                     enum gpt_damage kind, const char *hint, const char *fmt,
                     ...) GPT_PRINTF(5, 6);

#endif
