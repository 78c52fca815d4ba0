/* See attached.h. Start at gpt_target_tokenizer(). */
#include "checkpoint/attached.h"

#include "checkpoint/run_state.h"
#include "tokenizer/gguf_tokens.h"
#include "tokenizer/hf_files.h"

#include <string.h>

/* Weights are no small file: a GGUF file can only mean the vocabulary in it. */
int gpt_attachment_read(const struct gpt_attachment *a, char **text,
                        size_t *len, struct gpt_err *err)
{
    return gpt_gguf_read(a->name, text, len, a->path, GPT_FILE_LIMIT, err);
}

const char *gpt_target_attached(const struct gpt_target *t, const char *name)
{
    for (int64_t i = 0; i < t->o.n_attached; i++)
        if (strcmp(t->o.attached[i].name, name) == 0)
            return t->o.attached[i].path;
    return NULL;
}

/* The tokenizer type that a run of this project kept, or NULL. A run on numbers
 * keeps no files: the files that are written along with it were given by the
 * user. */
static const char *kept_type(const struct gpt_target *t)
{
    const cJSON *kept =
        cJSON_GetObjectItemCaseSensitive(t->source->state, GPT_RUN_TOKENIZER);
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(kept, "type");

    return cJSON_IsString(type) &&
                   strcmp(type->valuestring, "NullTokenizer") != 0
               ? type->valuestring
               : NULL;
}

/* Opens the tokenizer of a type, if its files are there. Of several files, the
 * first that opens is it: a tokenizer.model of ranks is none of SentencePiece.
 * `last` keeps the reason of the one that does not. */
static bool open_type(struct gpt_tokenizer **tok,
                      struct gpt_tokenizer_options *o,
                      const struct gpt_target *t, const char *type,
                      struct gpt_err *last)
{
    const bool hf = strcmp(type, "HuggingFaceTokenizer") == 0;

    *o = (struct gpt_tokenizer_options){.type = type};
    if (strcmp(type, "GPT2BPETokenizer") == 0) {
        o->vocab_file = gpt_target_attached(t, GPT_HF_VOCAB);
        o->merge_file = gpt_target_attached(t, GPT_HF_MERGES);
        if (!o->vocab_file || !o->merge_file)
            return false;
    } else if (strcmp(type, "ByteTokenizer") != 0) {
        o->model =
            gpt_target_attached(t, hf ? GPT_HF_TOKENIZER : GPT_HF_PIECES);
        if (!o->model)
            return false;
    }
    return gpt_tokenizer_open(tok, o, last) == GPT_OK;
}

/* A run knows its type. Files of a hub do not, and several kinds may lie
 * beside each other: SentencePiece goes first, because llama.cpp takes Llama
 * 2's vocabulary in that form, and its tokenizer.json is one that a GGUF file
 * does not take. When none opens, the last reason is reported: a vocabulary
 * that is there and not written would be missed too late. */
int gpt_target_tokenizer(struct gpt_tokenizer **tok,
                         struct gpt_tokenizer_options *o,
                         const struct gpt_target *t, struct gpt_err *err)
{
    static const char *const types[] = {
        "SentencePieceTokenizer", "HuggingFaceTokenizer", "GPT2BPETokenizer"};
    const char *kept = kept_type(t);
    struct gpt_err last = {0};

    *tok = NULL;
    bool found = kept && open_type(tok, o, t, kept, &last);
    for (size_t i = 0; !kept && !found && i < GPT_COUNT(types); i++)
        found = open_type(tok, o, t, types[i], &last);
    if (found || !last.text[0])
        return GPT_OK;
    if (err)
        *err = last;
    return last.status;
}
