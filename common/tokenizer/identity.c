/* See identity.h. Start at gpt_tokenizer_identity_equal(), which says what
 * counts. */
#include "tokenizer/identity.h"

#include "base/io.h"
#include "tokenizer/family.h"
#include "tokenizer/hf_files.h"

#include <stdio.h>
#include <string.h>

/* True for a file that is part of the identity. A configuration beside a
 * tokenizer.json names the end of a document and changes no other id; a chat
 * template changes none. Other programs rewrite both files, so they are left
 * out. */
static bool counts(const char *path)
{
    const char *name = gpt_path_name(path);

    return strcmp(name, GPT_HF_TOKENIZER_CONFIG) != 0 &&
           strcmp(name, GPT_HF_CHAT_TEMPLATE) != 0;
}

/* The digest is that of provenance, of the whole file as it is on disk, so that
 * the two can be compared. */
static int add_file(struct gpt_tokenizer_identity *id, const char *path,
                    struct gpt_err *err)
{
    int64_t bytes;

    if (!counts(path))
        return GPT_OK;
    GPT_TRY(gpt_sha256_file(id->files[id->n_files].sha256, &bytes, path, err));
    snprintf(id->files[id->n_files++].name, sizeof(id->files->name), "%.199s",
             gpt_path_name(path));
    return GPT_OK;
}

int gpt_tokenizer_identify(struct gpt_tokenizer_identity *id,
                           const struct gpt_tokenizer_options *o,
                           const struct gpt_tokenizer *tok,
                           struct gpt_err *err)
{
    struct gpt_tokenizer_file files[GPT_TOKENIZER_FILES];
    size_t n;

    *id = (struct gpt_tokenizer_identity){
        .vocabulary = gpt_tokenizer_vocab_size(tok)};
    snprintf(id->type, sizeof(id->type), "%s", o->type);
    GPT_TRY(gpt_tokenizer_files(o, files, &n, err));
    for (size_t i = 0; i < n; i++)
        GPT_TRY(add_file(id, files[i].path, err));
    return GPT_OK;
}

static const char *string_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsString(item) ? item->valuestring : "";
}

/* A file without a digest makes the object useless, rather than equal to
 * anything. */
bool gpt_tokenizer_identity_read(struct gpt_tokenizer_identity *id,
                                 const cJSON *tokenizer)
{
    const cJSON *n = cJSON_GetObjectItemCaseSensitive(tokenizer, "vocabulary");
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(tokenizer, "files");

    *id = (struct gpt_tokenizer_identity){0};
    snprintf(id->type, sizeof(id->type), "%s", string_of(tokenizer, "type"));
    if (!id->type[0] || !cJSON_IsNumber(n) || !(n->valuedouble >= 1) ||
        n->valuedouble > INT32_MAX)
        return false;
    id->vocabulary = (int64_t)n->valuedouble;
    for (const cJSON *f = files ? files->child : NULL; f; f = f->next) {
        const char *path = string_of(f, "path"), *sum = string_of(f, "sha256");

        if (!counts(path))
            continue;
        if (strlen(sum) != 64 || id->n_files == GPT_TOKENIZER_FILES)
            return false;
        snprintf(id->files[id->n_files].name, sizeof(id->files->name), "%.199s",
                 gpt_path_name(path));
        memcpy(id->files[id->n_files++].sha256, sum, 65);
    }
    return true;
}

/* SentencePiece's family has three names. */
static const char *family_of(const char *type)
{
    return strcmp(type, "GPTSentencePieceTokenizer") == 0 ||
                   strcmp(type, "Llama2Tokenizer") == 0
               ? "SentencePieceTokenizer"
               : type;
}

/* Files with the same digests are the same vocabulary, whatever they are
 * called; the number of tokens tells apart what options make of one file. */
bool gpt_tokenizer_identity_equal(const struct gpt_tokenizer_identity *a,
                                  const struct gpt_tokenizer_identity *b)
{
    if (strcmp(family_of(a->type), family_of(b->type)) != 0 ||
        a->vocabulary != b->vocabulary || a->n_files != b->n_files)
        return false;
    for (int i = 0; i < a->n_files; i++)
        if (strcmp(a->files[i].sha256, b->files[i].sha256) != 0)
            return false;
    return true;
}

bool gpt_tokenizer_identity_in(const struct gpt_tokenizer_identity *id,
                               const char *dir)
{
    for (int i = 0; i < id->n_files; i++) {
        char path[GPT_JOINED_BYTES], sha256[65];
        int64_t bytes;

        if (!gpt_path_holds(dir, id->files[i].name) ||
            gpt_path_join(path, sizeof(path), dir, id->files[i].name, NULL) !=
                GPT_OK ||
            gpt_sha256_file(sha256, &bytes, path, NULL) != GPT_OK ||
            strcmp(sha256, id->files[i].sha256) != 0)
            return false;
    }
    return id->n_files > 0;
}

/* A text that does not fit is cut: it is for messages. */
void gpt_tokenizer_identity_text(char *buf, size_t cap,
                                 const struct gpt_tokenizer_identity *id)
{
    int n = snprintf(buf, cap, "%s of %lld tokens", id->type,
                     (long long)id->vocabulary);

    for (int i = 0; i < id->n_files && n >= 0 && (size_t)n < cap; i++)
        n += snprintf(buf + n, cap - (size_t)n, "%s%.80s SHA-256 %.8s%s",
                      i ? ", " : " (", id->files[i].name, id->files[i].sha256,
                      i + 1 == id->n_files ? ")" : "");
}

static bool ids_equal(const struct gpt_ids *a, const struct gpt_ids *b)
{
    return a->len == b->len &&
           (a->len == 0 ||
            memcmp(a->data, b->data, a->len * sizeof(*a->data)) == 0);
}

/* The ids of one text by both. A text that is none to either, as that of a
 * NullTokenizer's token, which begins with a space, tells nothing. */
static int encode_one(bool *alike, struct gpt_encoder *a, struct gpt_ids *ids_a,
                      struct gpt_encoder *b, struct gpt_ids *ids_b,
                      const char *text, size_t len, struct gpt_err *err)
{
    ids_a->len = ids_b->len = 0;
    const int by_a = gpt_encode(a, text, len, ids_a, err);
    const int by_b = gpt_encode(b, text, len, ids_b, err);

    *alike = by_a == by_b && ids_equal(ids_a, ids_b);
    if (by_a != GPT_OK && by_a != GPT_EDATA)
        return by_a;
    return by_b == GPT_EDATA ? GPT_OK : by_b;
}

/* Encodes the text of each token by both. Another list of merges shows in the
 * token that it does not make, or makes of other parts. */
static int encode_both(bool *alike, struct gpt_encoder *a,
                       struct gpt_encoder *b, const struct gpt_tokenizer *tok,
                       struct gpt_err *err)
{
    struct gpt_ids ids_a = {0}, ids_b = {0};
    int status = GPT_OK;

    *alike = true;
    for (int64_t id = 0; *alike && id < gpt_tokenizer_vocab_size(tok); id++) {
        size_t len;
        const char *bytes = gpt_token_bytes(tok, (int32_t)id, &len);

        GPT_TRY_GOTO(status, encode_one(alike, a, &ids_a, b, &ids_b, bytes,
                                        len, err), out);
    }
out:
    gpt_free(ids_a.data);
    gpt_free(ids_b.data);
    return status;
}

/* Families treat a text differently before it is cut, so that only files of one
 * family are held to the same ids. */
static int merge_both(bool *alike, const struct gpt_tokenizer *a,
                      const struct gpt_tokenizer *b, struct gpt_err *err)
{
    struct gpt_encoder *encoder_a = NULL, *encoder_b = NULL;
    int status;

    *alike = true;
    if (a->family != b->family)
        return GPT_OK;
    GPT_TRY_GOTO(status, gpt_encoder_open(&encoder_a, a, err), out);
    GPT_TRY_GOTO(status, gpt_encoder_open(&encoder_b, b, err), out);
    status = encode_both(alike, encoder_a, encoder_b, a, err);
out:
    gpt_encoder_close(encoder_a);
    gpt_encoder_close(encoder_b);
    return status;
}

int gpt_tokenizers_agree(bool *agree, const struct gpt_tokenizer *a,
                         const struct gpt_tokenizer *b, struct gpt_err *err)
{
    const int64_t n = gpt_tokenizer_vocab_size(a);

    *agree = false;
    if (n != gpt_tokenizer_vocab_size(b))
        return GPT_OK;
    for (int64_t id = 0; id < n; id++) {
        size_t len_a, len_b;
        const char *bytes_a = gpt_token_bytes(a, (int32_t)id, &len_a);
        const char *bytes_b = gpt_token_bytes(b, (int32_t)id, &len_b);

        if (len_a != len_b || memcmp(bytes_a, bytes_b, len_a) != 0)
            return GPT_OK;
    }
    return merge_both(agree, a, b, err);
}
