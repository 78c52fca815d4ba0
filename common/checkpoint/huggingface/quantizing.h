/* What the files share that make a quantized matrix of several tensors:
 * quantized_parts.c and quantized_bnb.c. */
#ifndef GPT_CHECKPOINT_HF_QUANTIZING_H
#define GPT_CHECKPOINT_HF_QUANTIZING_H

#include "checkpoint/huggingface/quantized.h"
#include "checkpoint/scaled.h"

/* What is being made. */
struct gpt_hf_quantizing {
    const struct gpt_hf_quantized *q;
    const struct gpt_hf_finder *parts;
    const char *name; /* "a.weight" */
    int base;         /* length of "a." */
    struct gpt_scaled s;
    struct gpt_hf_part main; /* the numbers */
    int64_t shape[2];        /* (out, in); zero: not quantized */
    bool turned;             /* the file has it as (in, out) */
};

/* The tensor beside: `tail` in place of "weight". */
bool gpt_hf_find_part(const struct gpt_hf_quantizing *b, const char *tail,
                      struct gpt_hf_part *part);
/* The same; GPT_EDATA where there is none. */
int gpt_hf_need_part(const struct gpt_hf_quantizing *b, const char *tail,
                     struct gpt_hf_part *part,
                     struct gpt_err *err) GPT_MUST_USE;
/* Marks the part as used. GPT_EDATA unless it is of this type, GPT_N_DTYPES: of
 * any, and shape; a vector has one column. */
int gpt_hf_check_part(const struct gpt_hf_quantizing *b,
                      const struct gpt_hf_part *part, enum gpt_dtype type,
                      int64_t rows, int64_t columns,
                      struct gpt_err *err) GPT_MUST_USE;
/* Sets where the numbers are, of b->main, which must be a matrix of this type;
 * GPT_N_DTYPES: of any. */
int gpt_hf_check_numbers(struct gpt_hf_quantizing *b, enum gpt_dtype type,
                         struct gpt_err *err) GPT_MUST_USE;
/* Rows and columns in the order of the file, and how many of them share a
 * scale; 0: all. */
void gpt_hf_set_groups(struct gpt_hf_quantizing *b, int64_t rows,
                       int64_t columns, int64_t group_rows,
                       int64_t group_columns);
int gpt_hf_set_scales(struct gpt_hf_quantizing *b,
                      const struct gpt_hf_part *scales,
                      struct gpt_err *err) GPT_MUST_USE;

#endif
