/* Data sets of other programs, read and written: the tokens stay the same
 * bytes, only what is beside them changes. Start at gpt_convert_set(). */
#ifndef GPT_CMD_DATASET_CONVERT_H
#define GPT_CMD_DATASET_CONVERT_H

#include "cmd/dataset/write_set.h"

enum gpt_set_format {
    GPT_SET_MMIDIDX, /* PREFIX.bin, PREFIX.idx: gpt-dataset(5) */
    GPT_SET_TNTIDX,  /* the same names: "lazy" and "cached" of Megatron-LM
                      * until 2023, GPT-NeoX */
    GPT_SET_DS,      /* PREFIX.ds, PREFIX.ds.index: nanotron, datatrove */
    GPT_SET_LLMC,    /* PREFIX.bin alone: llm.c */
    GPT_N_SET_FORMATS
};

/* A set of any format, read as one part with all of its tokens. What
 * gpt_foreign_open() leaves here is checked. */
struct gpt_foreign {
    enum gpt_set_format format;
    enum gpt_dtype dtype;
    struct gpt_set_range part;
    struct gpt_indexed *indexed; /* what `part` points to, by format */
    struct gpt_in *index, *data;
    char *data_path, *index_path;
    uint8_t *lengths, *documents;
};

/* Recognised by the files that are there and by their first bytes. `eod` >= 0
 * ends a document of an llm.c file, which has no other mark of one. GPT_EDATA
 * names file, offset, field, value and limit. Close in any case. */
int gpt_foreign_open(struct gpt_foreign *s, const char *prefix, int64_t eod,
                     struct gpt_err *err) GPT_MUST_USE;
void gpt_foreign_close(struct gpt_foreign *s);

/* Writes options->prefix in a format. GPT_EDATA when that cannot hold it. */
int gpt_convert_set(const struct gpt_foreign *s, enum gpt_set_format to,
                    const struct gpt_write_set_options *options,
                    struct gpt_err *err) GPT_MUST_USE;

/* llm.c: 256 words of 32 bits before the tokens. */
enum { GPT_LLMC_HEADER = 1024 };
#define GPT_LLMC_U16 UINT32_C(20240520) /* magic; version 1 */
#define GPT_LLMC_U32 UINT32_C(20240801) /* version 7 */

#endif
