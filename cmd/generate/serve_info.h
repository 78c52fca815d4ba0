/* Answers that need no model: what is served, tokens of texts, counters. */
#ifndef GPT_CMD_GENERATE_SERVE_INFO_H
#define GPT_CMD_GENERATE_SERVE_INFO_H

#include "cmd/generate/serve.h"

/* Each appends its answer to *out. `body` is that of the request. GPT_EDATA:
 * the client's mistake. */
typedef int gpt_informer(struct gpt_server *s, const struct gpt_buf *body,
                         struct gpt_buf *out, struct gpt_err *err);

gpt_informer gpt_info_health;     /* JSON */
gpt_informer gpt_info_models;     /* JSON, as OpenAI's: a list, */
gpt_informer gpt_info_model;      /* and what is in it */
gpt_informer gpt_info_tokenizer;  /* JSON: what lm-eval asks for */
gpt_informer gpt_info_metrics;    /* Prometheus' text format, version 0.0.4 */
gpt_informer gpt_info_tokenize;   /* JSON: a text's ids */
gpt_informer gpt_info_detokenize; /* JSON: the text of ids */
gpt_informer gpt_info_page;       /* HTML */

#endif
