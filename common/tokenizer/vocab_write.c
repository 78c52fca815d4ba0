/* Writes vocab.json and merges.txt: see vocab_write.h. Both are written in the
 * letters of bytelevel.h, so the letters of every token are made first,
 * spell(). */
#include "tokenizer/vocab_write.h"

#include "base/memory.h"
#include "tokenizer/bytelevel.h"

#include <assert.h>

/* The letters of every token, one after the other; token i is
 * text[begin[i]..begin[i + 1]). */
struct spelling {
    struct gpt_buf text;
    size_t *begin;
    int64_t n;
};

/* The bytes, the merges, and the end of a text. */
int64_t gpt_vocab_size(const struct gpt_bpe_trained *model)
{
    return GPT_BPE_BYTES + model->n_merges + 1;
}

/* Appends the letters of an earlier token. */
static int append_token(struct spelling *s, int32_t id)
{
    size_t begin = s->begin[id], n = s->begin[id + 1] - begin;

    /* before the source's address is taken, as it is in the same buffer */
    GPT_TRY(gpt_buf_reserve(&s->text, n));
    return gpt_buf_add(&s->text, s->text.data + begin, n);
}

/* The first 256 ids are the bytes in the order of their letters. */
static int append_byte(struct spelling *s, int rank)
{
    char byte = (char)gpt_byte_of_rank(rank);
    char letter[GPT_BYTELEVEL_MAX];

    return gpt_buf_add(&s->text, letter,
                       gpt_bytelevel_encode(&byte, 1, letter));
}

static void spelling_free(struct spelling *s)
{
    gpt_buf_free(&s->text);
    gpt_free(s->begin);
}

/* A token comes after both of which it is made, so that one pass is enough. */
static int append_merged(struct spelling *s,
                         const struct gpt_bpe_trained *model, int64_t id)
{
    const struct gpt_bpe_merge *m = &model->merges[id - GPT_BPE_BYTES];

    assert(m->left < id && m->right < id);
    GPT_TRY(append_token(s, m->left));
    return append_token(s, m->right);
}

/* begin[0] is 0 from its allocation, and each token ends where the next one
 * begins. */
static int spell(struct spelling *s, const struct gpt_bpe_trained *model,
                 struct gpt_err *err)
{
    int64_t n = GPT_BPE_BYTES + model->n_merges;
    int status;

    *s = (struct spelling){.n = n};
    GPT_TRY(gpt_new(&s->begin, (size_t)n + 1, sizeof(*s->begin), "vocabulary",
                    err));
    for (int64_t i = 0; i < n; i++) {
        GPT_TRY_GOTO(status,
                     i < GPT_BPE_BYTES ? append_byte(s, (int)i)
                                       : append_merged(s, model, i), fail);
        s->begin[i + 1] = s->text.len;
    }
    return GPT_OK;
fail:
    spelling_free(s);
    return gpt_no_memory(err, "the text of the vocabulary");
}

static int write_token(struct gpt_out *out, const struct spelling *s,
                       int32_t id, struct gpt_err *err)
{
    return gpt_out_write(out, s->text.data + s->begin[id],
                         s->begin[id + 1] - s->begin[id], err);
}

/* Writes a token into a JSON string. Letters are printable, so that only the
 * quote and the backslash need an escape. */
static int write_json_token(struct gpt_out *out, const struct spelling *s,
                            int32_t id, struct gpt_err *err)
{
    const char *p = s->text.data + s->begin[id];
    const char *end = s->text.data + s->begin[id + 1];

    while (p < end) {
        const char *plain = p;

        while (p < end && *p != '"' && *p != '\\')
            p++;
        GPT_TRY(gpt_out_write(out, plain, (size_t)(p - plain), err));
        if (p < end) {
            const char escape[2] = {'\\', *p++};

            GPT_TRY(gpt_out_write(out, escape, sizeof(escape), err));
        }
    }
    return GPT_OK;
}

/* One object on one line, the ids in order, as GPT-2's own file is. */
static int write_json(struct gpt_out *out, const struct spelling *s,
                      struct gpt_err *err)
{
    for (int64_t i = 0; i < s->n; i++) {
        GPT_TRY(gpt_out_printf(out, err, i == 0 ? "{\"" : ",\""));
        GPT_TRY(write_json_token(out, s, (int32_t)i, err));
        GPT_TRY(gpt_out_printf(out, err, "\":%lld", (long long)i));
    }
    return gpt_out_printf(out, err, ",\"" GPT_END_OF_TEXT "\":%lld}\n",
                          (long long)s->n);
}

int gpt_vocab_write_json(struct gpt_out *out,
                         const struct gpt_bpe_trained *model,
                         struct gpt_err *err)
{
    struct spelling s;

    GPT_TRY(spell(&s, model, err));
    int status = write_json(out, &s, err);
    spelling_free(&s);
    return status;
}

/* The first line is what Hugging Face writes, and what readers skip. Merges are
 * in the order in which they were learned: to readers the number of a line is
 * the rank of its merge. */
static int write_merges(struct gpt_out *out, const struct spelling *s,
                        const struct gpt_bpe_trained *model,
                        struct gpt_err *err)
{
    GPT_TRY(gpt_out_printf(out, err, "#version: 0.2\n"));
    for (int64_t i = 0; i < model->n_merges; i++) {
        GPT_TRY(write_token(out, s, model->merges[i].left, err));
        GPT_TRY(gpt_out_write(out, " ", 1, err));
        GPT_TRY(write_token(out, s, model->merges[i].right, err));
        GPT_TRY(gpt_out_write(out, "\n", 1, err));
    }
    return GPT_OK;
}

int gpt_vocab_write_merges(struct gpt_out *out,
                           const struct gpt_bpe_trained *model,
                           struct gpt_err *err)
{
    struct spelling s;

    GPT_TRY(spell(&s, model, err));
    int status = write_merges(out, &s, model, err);
    spelling_free(&s);
    return status;
}
