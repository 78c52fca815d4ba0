/* What the two halves of GGUF's front end share: read.c has its row of the
 * table of formats, write.c makes and writes targets. */
#ifndef GPT_CHECKPOINT_GGUF_INTERNAL_H
#define GPT_CHECKPOINT_GGUF_INTERNAL_H

#include "checkpoint/format.h"
#include "checkpoint/gguf/gguf.h"
#include "checkpoint/huggingface/huggingface.h"
#include "tokenizer/family_bytelevel.h"

/* A key of an architecture: a factor of sines and cosines. */
#define GPT_GGUF_ATTN_FACTOR "rope.scaling.attn_factor"

/* In the order in which a model to be written tries them. */
extern const struct gpt_gguf_arch gpt_gguf_archs[];
extern const size_t gpt_gguf_n_archs;

/* The shortest decimal that is this float: 1e-5 was written, and is meant. */
double gpt_gguf_shortest(double v);

/* Keys of an architecture: the window of attention, and the exponent of ALiBi's
 * smallest slope. */
#define GPT_GGUF_WINDOW "attention.sliding_window"
#define GPT_GGUF_ALIBI "attention.max_alibi_bias"
/* Which layers have the window, and the base of their rotary positions: newer
 * files have these where older ones leave them to the architecture. */
#define GPT_GGUF_PATTERN "attention.sliding_window_pattern"
#define GPT_GGUF_LOCAL_BASE "rope.freq_base_swa"

/* What follows of a window in such an architecture. */
void gpt_gguf_settle_window(struct gpt_config *c,
                            const struct gpt_gguf_arch *arch);
/* Once all other numbers are known. */
int gpt_gguf_read_window(struct gpt_config *c, const struct gpt_gguf_arch *arch,
                         const struct gpt_gguf *g,
                         struct gpt_err *err) GPT_MUST_USE;
int gpt_gguf_check_alibi(const struct gpt_gguf_arch *arch,
                         const struct gpt_gguf *g,
                         struct gpt_err *err) GPT_MUST_USE;
void gpt_gguf_put_window(struct gpt_gguf_keys *k, const struct gpt_config *c,
                         const struct gpt_gguf_arch *arch);

/* LongRoPE, if the file has its lists: once the positions of the model and what
 * turns are known; and its keys. */
int gpt_gguf_read_longrope(struct gpt_config *c,
                           const struct gpt_gguf_arch *arch, struct gpt_gguf *g,
                           const struct gpt_gguf_lists *lists,
                           struct gpt_err *err) GPT_MUST_USE;
void gpt_gguf_put_longrope(struct gpt_gguf_keys *k, const struct gpt_config *c,
                           const struct gpt_gguf_arch *arch);

/* Latent attention, of an architecture that has it; others are left as they
 * are: what keys say of it, after the numbers of others; what keys will say;
 * the field that they cannot say, or NULL; and keys that no field is alone. */
int gpt_gguf_read_latent(struct gpt_config *c, const struct gpt_gguf_arch *arch,
                         const struct gpt_gguf *g,
                         const struct gpt_gguf_seen *seen,
                         struct gpt_err *err) GPT_MUST_USE;
void gpt_gguf_take_latent(struct gpt_config *read, const struct gpt_config *c,
                          const struct gpt_gguf_arch *arch);
const char *gpt_gguf_latent_misfit(const struct gpt_config *c,
                                   const struct gpt_gguf_arch *arch);
void gpt_gguf_put_latent(struct gpt_gguf_keys *k, const struct gpt_config *c,
                         const struct gpt_gguf_arch *arch);

/* A key of a form from GPT_GGUF_EXPERTS_WIDE on, whose whole name is given. */
int gpt_gguf_read_other(struct gpt_config *c,
                        const struct gpt_gguf_field *field, const char *name,
                        const struct gpt_gguf *g,
                        struct gpt_err *err) GPT_MUST_USE;
void gpt_gguf_put_other(struct gpt_gguf_keys *k, const struct gpt_config *c,
                        const struct gpt_gguf_field *field, const char *name);

/* Pieces and scores of a vocabulary of characters, for `rows` ids. types (rows)
 * is filled but for bytes and places without a token. GPT_EDATA where scores
 * would give other tokens; `what` names the file. */
int gpt_gguf_put_chars(struct gpt_gguf_keys *k, const struct gpt_bytelevel *t,
                       int64_t rows, uint8_t *types, const char *what,
                       struct gpt_err *err) GPT_MUST_USE;

/* The key whose list is the parameters of a role, one a layer; NULL where they
 * are tensors. */
const char *gpt_gguf_xielu_key(enum gpt_param_role role);
/* Appends the element of p's layer to `here`. */
int gpt_gguf_read_alpha(struct gpt_tensor *here, const struct gpt_gguf *g,
                        const struct gpt_config *c, const struct gpt_param *p,
                        struct gpt_err *err) GPT_MUST_USE;
/* GPT_EDATA where constants of xIELU are not those of the formula here. */
int gpt_gguf_check_xielu(const struct gpt_config *c, const struct gpt_gguf *g,
                         struct gpt_err *err) GPT_MUST_USE;
/* All of its lists, of a model that has it. */
int gpt_gguf_put_xielu(struct gpt_gguf_keys *k, const struct gpt_target *t,
                       struct gpt_err *err) GPT_MUST_USE;

/* The tokens that begin and end texts, into the source, where one that the file
 * does not name, or that is not below the vocabulary's size, is GPT_TOKEN_NONE;
 * and into keys, where an id below 0 is none. There are keys for three tokens
 * that end texts: a warning names what is left out. */
int gpt_gguf_read_ends(struct gpt_source *s, struct gpt_gguf *g,
                       struct gpt_err *err) GPT_MUST_USE;
void gpt_gguf_put_ends(struct gpt_gguf_keys *k, int64_t bos, int64_t eos,
                       const struct gpt_end_ids *ends);
int gpt_gguf_plan(struct gpt_target *t, struct gpt_err *err) GPT_MUST_USE;
void gpt_gguf_free_plan(struct gpt_target *t);
int gpt_gguf_write(struct gpt_target *t, struct gpt_fill *fill,
                   struct gpt_err *err) GPT_MUST_USE;

#endif
