/* Values of a GGUF file's keys; see gguf_file.h. The header was passed over by
 * gguf_file.c: numbers are known, strings and arrays are read here. A key that
 * is absent leaves the caller's default; one of another type is an error, as a
 * default in its place would be a guess. */
#include "tokenizer/gguf_file.h"

#include "base/num.h"

#include <math.h>
#include <string.h>

/* Both types are named: the file may be of a writer that has its own idea of
 * a key. */
static int wrong_type(const struct gpt_gguf *g, const struct gpt_gguf_key *k,
                      const char *need, struct gpt_err *err)
{
    return gpt_fail(err, GPT_EDATA, "%s: '%.200s' is of type %s, not %s",
                    gpt_in_path(g->in), k->name.data,
                    gpt_gguf_type_name(k->type), need);
}

/* A bool is none: 0 layers by a false would be no message. */
static bool is_whole(enum gpt_gguf_type type)
{
    return type != GPT_GGUF_F32 && type != GPT_GGUF_F64 &&
           type != GPT_GGUF_STRING && type != GPT_GGUF_ARRAY &&
           type != GPT_GGUF_BOOL;
}

/* Writers differ in the width and the sign that they give a number; its value
 * counts, within the range that the caller knows. */
int gpt_gguf_int(const struct gpt_gguf *g, const char *name, int64_t min,
                 int64_t max, int64_t *out, struct gpt_err *err)
{
    const struct gpt_gguf_key *k = gpt_gguf_find(g, name);

    if (!k)
        return GPT_OK;
    if (!is_whole(k->type))
        return wrong_type(g, k, "a whole number", err);
    /* wide unsigned numbers were cut to the largest signed one, which is beyond
     * every limit of a caller */
    if (k->whole < min || k->whole > max)
        return gpt_fail(err, GPT_EDATA,
                        "%s: '%.200s' is %lld, out of range: %lld to %lld",
                        gpt_in_path(g->in), name, (long long)k->whole,
                        (long long)min, (long long)max);
    *out = k->whole;
    return GPT_OK;
}

/* Whole numbers are not taken: no writer has them here, and llama.cpp refuses
 * them as well. */
int gpt_gguf_real(const struct gpt_gguf *g, const char *name, double *out,
                  struct gpt_err *err)
{
    const struct gpt_gguf_key *k = gpt_gguf_find(g, name);

    if (!k)
        return GPT_OK;
    if (k->type != GPT_GGUF_F32 && k->type != GPT_GGUF_F64)
        return wrong_type(g, k, "a number", err);
    /* an epsilon or a base that is none would spread through the model */
    if (!isfinite(k->real))
        return gpt_fail(err, GPT_EDATA, "%s: '%.200s' is not finite",
                        gpt_in_path(g->in), name);
    *out = k->real;
    return GPT_OK;
}

int gpt_gguf_bool(const struct gpt_gguf *g, const char *name, bool *out,
                  struct gpt_err *err)
{
    const struct gpt_gguf_key *k = gpt_gguf_find(g, name);

    if (!k)
        return GPT_OK;
    if (k->type != GPT_GGUF_BOOL)
        return wrong_type(g, k, "a bool", err);
    *out = k->whole != 0;
    return GPT_OK;
}

/* In the arena, so that a caller may keep it as long as the file is open. The
 * limit is that of a file of the same text, as a template of chats. */
int gpt_gguf_text(struct gpt_gguf *g, const char *name, const char **out,
                  struct gpt_err *err)
{
    const struct gpt_gguf_key *k = gpt_gguf_find(g, name);

    if (!k)
        return GPT_OK;
    if (k->type != GPT_GGUF_STRING)
        return wrong_type(g, k, "a string", err);
    if (k->bytes > GPT_FILE_LIMIT)
        return gpt_fail(err, GPT_EDATA, "%s: '%.200s' has %lld bytes, limit %d",
                        gpt_in_path(g->in), name, (long long)k->bytes,
                        GPT_FILE_LIMIT);
    char *text = gpt_arena_alloc(&g->arena, (size_t)k->bytes + 1, 1);
    if (!text)
        return gpt_no_memory(err, "strings");
    GPT_TRY(gpt_in_read(g->in, text, k->offset, (size_t)k->bytes, err));
    /* what is after a NUL would be compared with nothing */
    if (memchr(text, '\0', (size_t)k->bytes))
        return gpt_fail(err, GPT_EDATA, "%s: '%.200s' holds a NUL",
                        gpt_in_path(g->in), name);
    *out = text;
    return GPT_OK;
}

/* Lengths were checked when the header was passed over, but the file may have
 * been written to since then: what was read now is what counts. */
static int split_strings(const struct gpt_gguf *g, const struct gpt_gguf_key *k,
                         const char *text, struct gpt_str *list,
                         struct gpt_err *err)
{
    int64_t at = 0;

    for (int64_t i = 0; i < k->n; i++) {
        const int64_t rest = k->bytes - at - 8;
        const uint64_t n = rest < 0 ? UINT64_MAX : gpt_get_u64(text + at);

        if (rest < 0 || n > (uint64_t)rest)
            return gpt_fail(err, GPT_EDATA, "'%s' changed while it was read",
                            gpt_in_path(g->in));
        list[i] = (struct gpt_str){text + at + 8, (size_t)n};
        at += 8 + (int64_t)n;
    }
    return GPT_OK;
}

/* One block holds all of them, with their lengths between. */
int gpt_gguf_strings(struct gpt_gguf *g, const char *name,
                     struct gpt_str **list, int64_t *n, struct gpt_err *err)
{
    const struct gpt_gguf_key *k = gpt_gguf_find(g, name);
    int status;

    *list = NULL;
    *n = 0;
    if (!k)
        return GPT_OK;
    if (k->type != GPT_GGUF_ARRAY || k->element != GPT_GGUF_STRING)
        return wrong_type(g, k, "an array of strings", err);
    char *text = gpt_arena_alloc(&g->arena, (size_t)k->bytes + 1, 1);
    if (!text)
        return gpt_no_memory(err, "strings");
    GPT_TRY(gpt_in_read(g->in, text, k->offset, (size_t)k->bytes, err));
    GPT_TRY(gpt_new(list, (size_t)k->n, sizeof(**list), "strings", err));
    GPT_TRY_GOTO(status, split_strings(g, k, text, *list, err), fail);
    *n = k->n;
    return GPT_OK;
fail:
    gpt_free(*list);
    *list = NULL;
    return status;
}

/* Numbers are as they are in the file; all machines that this is built for
 * are little-endian, as the file is. */
int gpt_gguf_words(const struct gpt_gguf *g, const char *name,
                   enum gpt_gguf_type element, void **list, int64_t *n,
                   struct gpt_err *err)
{
    const struct gpt_gguf_key *k = gpt_gguf_find(g, name);

    *list = NULL;
    *n = 0;
    if (!k)
        return GPT_OK;
    /* 4 bytes each; the header's size check counted on their type */
    if (k->type != GPT_GGUF_ARRAY || k->element != element)
        return wrong_type(g, k, "an array of 32-bit numbers", err);
    GPT_TRY(gpt_new(list, (size_t)k->n, 4, "numbers", err));
    int status = gpt_in_read(g->in, *list, k->offset, (size_t)k->n * 4, err);
    if (status != GPT_OK) {
        gpt_free(*list);
        *list = NULL;
        return status;
    }
    *n = k->n;
    return GPT_OK;
}
