/* Documents of a data set as text or JSON lines. Start at gpt_dump(). */
#ifndef GPT_CMD_DATASET_DUMP_H
#define GPT_CMD_DATASET_DUMP_H

#include "base/io.h"
#include "data/indexed.h"
#include "data/provenance.h"
#include "tokenizer/tokenizer.h"

struct gpt_dump_options {
    int64_t begin, end; /* documents, within the set */
    const struct gpt_tokenizer *tokenizer; /* NULL: ids */
    bool jsonl;
    const struct gpt_sources *sources; /* say them, unless NULL */
    bool strip_eod; /* drop the tokenizer's end of document at its place */
};

/* Plain: a document and a line end; ids have blanks between them, and a tab
 * between sequences. JSON lines: {"document":N,"text":"..."}, or "ids":[...],
 * and a list of those when the document has several sequences; bytes that are
 * not UTF-8 become U+FFFD. With sources, file, line (when it is known) and
 * offset stand before that: as fields, or as one word and a tab. Memory does
 * not depend on the documents. GPT_EDATA names a token that is not in the
 * vocabulary. */
int gpt_dump(struct gpt_out *out, const struct gpt_indexed *set,
             const struct gpt_dump_options *options, struct gpt_err *err)
    GPT_MUST_USE;

/* Bytes as the inside of a JSON string, in pieces; a character may be cut
 * between two. Begin with a zeroed one, end with gpt_json_text_end(). */
struct gpt_json_text {
    char carry[4];
    size_t n;
};
int gpt_json_text_add(struct gpt_json_text *t, struct gpt_out *out,
                      const char *bytes, size_t n, struct gpt_err *err)
    GPT_MUST_USE;
int gpt_json_text_end(struct gpt_json_text *t, struct gpt_out *out,
                      struct gpt_err *err) GPT_MUST_USE;

#endif
