/* JSON as Python's json.dumps(indent=4) writes it, for digests that depend on
 * each byte. */
#ifndef GPT_CMD_DATASET_PYTHON_JSON_H
#define GPT_CMD_DATASET_PYTHON_JSON_H

#include "base/memory.h"

#include <cjson/cJSON.h>

/* Appends `item`, nested `level` deep. */
int gpt_python_json(struct gpt_buf *b, const cJSON *item, int level)
    GPT_MUST_USE;
/* A string with its quotes; what is not ASCII becomes \uXXXX. */
int gpt_python_string(struct gpt_buf *b, const char *s) GPT_MUST_USE;
/* repr() of a float: the shortest digits that give it back. */
int gpt_python_float(struct gpt_buf *b, double v) GPT_MUST_USE;

#endif
