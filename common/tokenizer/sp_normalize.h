/* What SentencePiece does to a text before it looks for pieces: a map of
 * characters, spaces to U+2581, one before the text, none too many. */
#ifndef GPT_TOKENIZER_SP_NORMALIZE_H
#define GPT_TOKENIZER_SP_NORMALIZE_H

#include "base/memory.h"
#include "tokenizer/sp_model.h"

#define GPT_SP_SPACE "\xe2\x96\x81" /* U+2581 */

/* The map of a model: a double array of units, and the texts that its values
 * are offsets of, each ended by a NUL. Source: darts-clone, normalizer.cc. */
struct gpt_sp_map {
    const uint8_t *units; /* little-endian, 4 bytes each; NULL: no map */
    size_t n_units;
    const char *texts;
    size_t n_text;
};

/* The map of a model's precompiled_charsmap, which is borrowed; an empty one is
 * no map. GPT_EDATA when the parts do not fit into the blob. */
int gpt_sp_map_open(struct gpt_sp_map *map, struct gpt_str blob,
                    const char *path, struct gpt_err *err) GPT_MUST_USE;

/* The result of the shortest rule that text begins with, as Hugging Face's
 * library takes it; false when there is none. */
bool gpt_sp_map_shortest(const struct gpt_sp_map *map, const char *text,
                         size_t len, struct gpt_str *result);

/* text[0..len), normalized, in *out, which is emptied before. */
int gpt_sp_normalize(const struct gpt_sp_model *m,
                     const struct gpt_sp_map *map, const char *text,
                     size_t len, struct gpt_buf *out, struct gpt_err *err)
    GPT_MUST_USE;

#endif
