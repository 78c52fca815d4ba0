/* A config.json of Hugging Face that is being read, and what reading its values
 * has in common: every function returns GPT_EDATA with a message that names the
 * file, the key and what it must be. config.c has them but for those of rotary
 * positions, which are in rotary.c. */
#ifndef GPT_CHECKPOINT_HF_READER_H
#define GPT_CHECKPOINT_HF_READER_H

#include "checkpoint/huggingface/experts.h"
#include "checkpoint/huggingface/huggingface.h"

struct gpt_hf_reader {
    struct gpt_config *c;
    struct gpt_hf_extra *extra;
    const cJSON *json;
    const char *what;
    int64_t window; /* tokens, one's own included; 0: all */
    bool uses_window;
    const cJSON *layer_types; /* NULL: as the family has it */
    cJSON *expanded;          /* a list that is made of a pattern, or NULL */
    struct gpt_hf_experts experts;
};

/* need: what would be supported. */
int gpt_hf_refuse(const struct gpt_hf_reader *r, const char *key,
                  const cJSON *value, const char *need, struct gpt_err *err);
int gpt_hf_wrong_type(const struct gpt_hf_reader *r, const char *key,
                      const char *need, struct gpt_err *err);
/* Sets r->extra->family; GPT_EDATA says what models of an unknown type have. */
int gpt_hf_find_family(struct gpt_hf_reader *r,
                       struct gpt_err *err) GPT_MUST_USE;
/* Every key of the object is one of the family, or a note, or off: else
 * GPT_EDATA. outer: "", or "a." for the object a of the file. */
int gpt_hf_check_unknown(const struct gpt_hf_reader *r, const cJSON *object,
                         const char *outer, struct gpt_err *err) GPT_MUST_USE;
/* A key that models of the type do not have. */
int gpt_hf_unknown_key(const char *what, const char *key,
                       const char *model_type, struct gpt_err *err);
int gpt_hf_read_number(const struct gpt_hf_reader *r, const char *key,
                       const cJSON *item, double *out,
                       struct gpt_err *err) GPT_MUST_USE;
int gpt_hf_read_size(const struct gpt_hf_reader *r, const char *key,
                     const cJSON *item, int64_t *out,
                     struct gpt_err *err) GPT_MUST_USE;

/* query_pre_attn_scalar of a class that multiplies scores by YaRN's number. */
void gpt_hf_settle_scores(const struct gpt_hf_reader *r);
/* An object of rotary scaling; one of two such objects; the positions of
 * pretraining beside it, where item NULL is absence; and how many elements of a
 * head turn. */
int gpt_hf_read_scaling(const struct gpt_hf_reader *r, const char *key,
                        const cJSON *object, struct gpt_err *err) GPT_MUST_USE;
int gpt_hf_read_two_scalings(const struct gpt_hf_reader *r, const char *key,
                             const cJSON *object,
                             struct gpt_err *err) GPT_MUST_USE;
int gpt_hf_read_before(const struct gpt_hf_reader *r,
                       const struct gpt_hf_key *key, const cJSON *item,
                       struct gpt_err *err) GPT_MUST_USE;
int gpt_hf_read_rotary_size(const struct gpt_hf_reader *r, const char *key,
                            const cJSON *item,
                            struct gpt_err *err) GPT_MUST_USE;

#endif
