/* The tokens of a tokenizer of pieces: each as its decoder prints it, and added
 * ones with their places in the vocabulary and the two lists that are searched
 * for in texts. Start at gpt_hf_print_tokens() and gpt_hf_add_tokens(). */
#include "base/memory.h"
#include "base/num.h"
#include "tokenizer/family_hf_pieces.h"

#include <string.h>

/* ---- tokens ---- */

/* A failure of the steps, which do not know the file. */
static int in_file(const struct gpt_hf_load *f, int status)
{
    if (status != GPT_OK)
        gpt_context(f->err, "%s", f->path);
    return status;
}

/* Keeps what a token is printed as, as the first one of a text or not. */
static int print_as(struct gpt_hf_pieces *t, const struct gpt_hf_load *f,
                    bool first, struct gpt_str text, struct gpt_str *printed)
{
    struct gpt_buf b = {0};
    int status;

    GPT_TRY_GOTO(status,
                 in_file(f, gpt_hf_print(&t->steps.printing, first, text, &b,
                                         f->err)),
                 out);
    t->printed += b.len;
    if (t->printed > GPT_VOCAB_FILE_MAX) {
        status = gpt_fail(f->err, GPT_EDATA, "%s: the decoder makes more than "
                          "%d bytes of all tokens", f->path,
                          GPT_VOCAB_FILE_MAX);
        goto out;
    }
    char *copy = gpt_arena_alloc(&t->arena, b.len + 1, 1);
    if (!copy) {
        status = gpt_no_memory(f->err, "a vocabulary");
        goto out;
    }
    if (b.len)
        memcpy(copy, b.data, b.len);
    *printed = (struct gpt_str){copy, b.len};
out:
    gpt_buf_free(&b);
    return status;
}

static int print_token(struct gpt_hf_pieces *t, const struct gpt_hf_load *f,
                       int32_t id, struct gpt_str text)
{
    if (t->firsts)
        GPT_TRY(print_as(t, f, true, text, &t->firsts[id]));
    return print_as(t, f, false, text, &t->tokens[id]);
}

int gpt_hf_print_tokens(struct gpt_hf_pieces *t, const struct gpt_hf_load *f)
{
    const size_t n = (size_t)t->base.vocab_size;

    GPT_TRY(gpt_new(&t->tokens, n, sizeof(*t->tokens), "a vocabulary", f->err));
    if (t->steps.printing.joined)
        GPT_TRY(gpt_new(&t->firsts, n, sizeof(*t->firsts), "a vocabulary",
                        f->err));
    for (int64_t id = 0; id < t->n; id++)
        if (t->texts[id].data)
            GPT_TRY(print_token(t, f, (int32_t)id, t->texts[id]));
    return GPT_OK;
}

/* ---- added tokens ---- */

/* Added tokens on their way to two lists, by whether text is normalized before
 * they are searched for. */
struct added_lists {
    const struct gpt_hf_load *f;
    struct gpt_hf_pieces *t;
    struct gpt_added_token *raw, *normalized;
    size_t n_raw, n_normalized;
    int64_t next; /* the id of one that is not in the vocabulary */
    struct gpt_buf buffers[2];
};

/* A token that is in the vocabulary has its id there. */
static int place_token(const struct added_lists *l,
                       const struct gpt_added_token *token)
{
    const int32_t same =
        gpt_token_map_find(l->t->map, token->text, token->len);

    if (same == token->id)
        return GPT_OK;
    if (same >= 0 || (token->id < l->t->n && l->t->texts[token->id].data))
        return gpt_hf_refuse_id(l->f, token, same);
    return gpt_hf_check_next(l->f, token, l->next);
}

/* The form in which a token is searched for in normalized text, and printed
 * unless it is special. */
static int normalize_token(struct added_lists *l, struct gpt_added_token *token)
{
    struct gpt_hf_pieces *t = l->t;
    struct gpt_step_text text = {.s = {token->text, token->len}};

    GPT_TRY(in_file(l->f, gpt_text_steps_run(t->steps.normal,
                                             t->steps.n_normal, l->buffers,
                                             &text, l->f->err)));
    char *copy = gpt_arena_alloc(&t->arena, text.s.len + 1, 1);
    if (!copy)
        return gpt_no_memory(l->f->err, "a vocabulary");
    memcpy(copy, text.s.data, text.s.len);
    token->text = copy;
    token->len = text.s.len;
    return GPT_OK;
}

static int add_token(struct added_lists *l, const cJSON *item)
{
    const struct gpt_hf_load *f = l->f;
    struct gpt_added_token token;
    bool normalized;

    GPT_TRY(gpt_hf_read_token(f, item, l->t->base.vocab_size, &token,
                              &normalized));
    GPT_TRY(place_token(l, &token));
    l->next = gpt_max_i64(l->next, token.id + 1);
    struct gpt_str shown = {token.text, token.len};
    if (normalized) {
        GPT_TRY(normalize_token(l, &token));
        shown = token.special ? shown
                              : (struct gpt_str){token.text, token.len};
        l->normalized[l->n_normalized++] = token;
    } else {
        l->raw[l->n_raw++] = token;
    }
    return print_token(l->t, f, token.id, shown);
}

/* Both lists are as long as all added tokens, which is simpler than a count. */
static int fill_added(struct added_lists *l, const cJSON *added)
{
    const size_t n = (size_t)cJSON_GetArraySize(added);
    struct gpt_err *err = l->f->err;

    GPT_TRY(gpt_new(&l->raw, n, sizeof(*l->raw), "tokens", err));
    GPT_TRY(gpt_new(&l->normalized, n, sizeof(*l->raw), "tokens", err));
    for (const cJSON *i = added ? added->child : NULL; i; i = i->next)
        GPT_TRY(add_token(l, i));
    GPT_TRY(gpt_added_open(&l->t->added, l->raw, l->n_raw, l->f->path, err));
    return gpt_added_open(&l->t->added_normalized, l->normalized,
                          l->n_normalized, l->f->path, err);
}

int gpt_hf_add_tokens(struct gpt_hf_pieces *t, const struct gpt_hf_load *f,
                      const cJSON *added)
{
    struct added_lists l = {.f = f, .t = t, .next = t->n_listed};
    const int status = fill_added(&l, added);

    gpt_free(l.raw);
    gpt_free(l.normalized);
    gpt_buf_free(&l.buffers[0]);
    gpt_buf_free(&l.buffers[1]);
    return status;
}
