/* TikTokenizer: a file of ranks, a pattern, and special tokens. Those of a
 * .tiktoken come after the ranks, at the ids that the models have them at;
 * those of Megatron's JSON before, which moves the ranks up by their number.
 * There are no merges in such a file: vocab_from_ranks.c derives them. Start at
 * tiktoken_open(), then load_ranks(). */
#include "base/memory.h"
#include "tokenizer/tiktoken_file.h"
#include "tokenizer/family_bytelevel.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    JSON_SPECIAL = 1000, /* Megatron's default */
    JSON_SIZE = 1 << 17, /* of the vocabulary, special tokens included */
};

struct special {
    char name[256];
    int64_t id;
};

/* A file of ranks while a tokenizer is made of it. */
struct loading {
    struct gpt_bytelevel *t;
    const struct gpt_tokenizer_options *o;
    struct gpt_ranks ranks;
    int64_t shift; /* of the ranks */
    struct special *special;
    size_t n_special, cap_special;
    struct gpt_err *err;
};

/* Special tokens of published vocabularies, by pattern: "NAME" follows the
 * token before it, "NAME=ID" is at ID; the first one follows the ranks. */
static const struct {
    const char *pattern;
    const char *names[8];
} published[] = {
    {"gpt2", {"<|endoftext|>=50256"}},
    {"cl100k",
     {"<|endoftext|>=100257", "<|fim_prefix|>", "<|fim_middle|>",
      "<|fim_suffix|>", "<|endofprompt|>=100276"}},
    {"o200k", {"<|endoftext|>=199999", "<|endofprompt|>=200018"}},
    {"llama3", {"<|begin_of_text|>", "<|end_of_text|>"}},
    {"qwen2", {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}},
};

/* Megatron's own special tokens, which its JSON files must have. */
static const char *const megatron[] = {"<unk>",  "<s>",   "</s>", "<mask>",
                                       "<pad>", "<cls>", "<sep>"};

/* ---- special tokens ---- */

/* Adds the token that `word` names: "NAME=ID", or "NAME" at `next`. A word that
 * ends in something else than a number after its '=' is all name. */
static int add_special(struct loading *l, const char *word, int64_t next)
{
    const char *equals = strrchr(word, '=');
    size_t len = strlen(word);
    char *end = NULL;
    int64_t id = next;

    if (equals && equals > word && equals[1]) {
        int64_t given = strtoll(equals + 1, &end, 10);

        if (*end == '\0') {
            id = given;
            len = (size_t)(equals - word);
        }
    }
    /* a name from the command line or of ours: its errors are of usage */
    if (len == 0 || len >= sizeof(l->special->name))
        return gpt_fail(l->err, GPT_EUSAGE,
                        "special token '%.40s' is empty or longer than 255 "
                        "bytes", word);
    if (id < 0 || id >= GPT_VOCAB_MAX)
        return gpt_fail(l->err, GPT_EUSAGE, "special token '%.255s': id %lld "
                        "is out of range", word, (long long)id);
    GPT_TRY(gpt_grow(&l->special, &l->cap_special, l->n_special + 1,
                     sizeof(*l->special), "special tokens", l->err));
    struct special *s = &l->special[l->n_special++];
    memcpy(s->name, word, len);
    s->name[len] = '\0';
    s->id = id;
    return GPT_OK;
}

/* Adds words in a row, the first at `next` unless it names another id. */
static int add_specials(struct loading *l, const char *const *words, size_t n,
                        int64_t next)
{
    for (size_t i = 0; i < n && words[i]; i++) {
        GPT_TRY(add_special(l, words[i], next));
        next = l->special[l->n_special - 1].id + 1;
    }
    return GPT_OK;
}

/* Lists the special tokens of a .tiktoken: those that are given, else those of
 * the published vocabulary with the same pattern. */
static int specials_after(struct loading *l)
{
    const struct gpt_list *given = &l->o->special_tokens;

    if (given->n)
        return add_specials(l, given->items, (size_t)given->n, l->ranks.n);
    for (size_t i = 0; i < GPT_COUNT(published); i++)
        if (strcmp(published[i].pattern, l->o->tiktoken_pattern) == 0)
            return add_specials(l, published[i].names,
                                GPT_COUNT(published[i].names), l->ranks.n);
    return GPT_OK;
}

/* Lists the special tokens of Megatron's JSON: `shift` ids. A token without a
 * name is called by its number, as Megatron calls it. */
static int specials_before(struct loading *l)
{
    const struct gpt_list *given = &l->o->special_tokens;
    size_t n = given->n ? (size_t)given->n : GPT_COUNT(megatron);

    if ((int64_t)n > l->shift)
        return gpt_fail(l->err, GPT_EUSAGE, "%zu special tokens are named, but "
                        "only %lld ids are kept for them", n,
                        (long long)l->shift);
    GPT_TRY(add_specials(l, given->n ? given->items : megatron, n, 0));
    for (int64_t id = (int64_t)n; id < l->shift; id++) {
        char name[40];

        snprintf(name, sizeof(name), "<SPECIAL_%lld>", (long long)id);
        GPT_TRY(add_special(l, name, id));
    }
    return GPT_OK;
}

/* ---- the vocabulary ---- */

/* Puts the ranks into the vocabulary and the map, from which the merges follow.
 */
static int place_ranks(struct loading *l)
{
    struct gpt_vocab *v = &l->t->vocab;

    GPT_TRY(gpt_token_map_open(&l->t->map, v->tokens, (size_t)l->ranks.n,
                               l->err));
    for (int64_t rank = 0; rank < l->ranks.n; rank++) {
        int32_t id = (int32_t)(rank + l->shift);

        v->tokens[id] = l->ranks.tokens[rank];
        if (!v->tokens[id].data)
            continue;
        int32_t same = gpt_token_map_add(&l->t->map, id);
        if (same >= 0)
            return gpt_fail(l->err, GPT_EDATA, "%s: ranks %lld and %lld are "
                            "the same token", l->o->model,
                            (long long)(same - l->shift), (long long)rank);
    }
    return gpt_vocab_rank_tokens(v, &l->t->map, l->o->model, l->err);
}

/* Puts the special tokens into the gaps that the ranks have left. They are not
 * in the map: no text becomes one by merging. */
static int place_specials(struct loading *l, struct gpt_added_token *added)
{
    struct gpt_bytelevel *t = l->t;

    for (size_t i = 0; i < l->n_special; i++) {
        const struct special *s = &l->special[i];
        struct gpt_str *place = &t->vocab.tokens[s->id];

        if (place->data)
            return gpt_fail(l->err, GPT_EUSAGE, "special token '%s': id %lld "
                            "has another token", s->name, (long long)s->id);
        char *name = gpt_arena_strdup(&t->vocab.arena, s->name);
        if (!name)
            return gpt_no_memory(l->err, "a vocabulary");
        *place = (struct gpt_str){name, strlen(name)};
        added[i] = (struct gpt_added_token){.text = name, .len = place->len,
                                            .id = (int32_t)s->id,
                                            .special = true};
        for (size_t k = 0; gpt_eod_names[k]; k++)
            if (t->base.eod < 0 && strcmp(name, gpt_eod_names[k]) == 0)
                t->base.eod = (int32_t)s->id;
    }
    return gpt_added_open(&t->added, added, l->n_special, l->o->model, l->err);
}

/* Decides how many ids there are, special tokens included. Megatron takes as
 * many ranks of a JSON as the size asks for, and leaves out the others. Of a
 * .tiktoken all ranks count, and a size given is only a check. */
static int size_vocabulary(struct loading *l)
{
    int64_t n = l->ranks.n + l->shift, size = l->o->vocab_size;

    if (l->ranks.json) {
        size = size ? size : JSON_SIZE;
        if (n < size || size <= l->shift)
            return gpt_fail(l->err, GPT_EUSAGE, "%s and %lld special tokens "
                            "make %lld tokens, the vocabulary size is %lld",
                            l->o->model, (long long)l->shift, (long long)n,
                            (long long)size);
        l->ranks.n = size - l->shift;
        l->t->vocab.n = size;
        return GPT_OK;
    }
    n += l->o->tiktoken_num_special;
    for (size_t i = 0; i < l->n_special; i++)
        n = l->special[i].id >= n ? l->special[i].id + 1 : n;
    if (size && size < n)
        return gpt_fail(l->err, GPT_EUSAGE, "%s has %lld tokens, the "
                        "vocabulary size is %lld", l->o->model, (long long)n,
                        (long long)size);
    l->t->vocab.n = n;
    return GPT_OK;
}

static int load_ranks(struct loading *l)
{
    const char *pattern = l->o->tiktoken_pattern;
    struct gpt_vocab *v = &l->t->vocab;
    struct gpt_added_token *added;

    /* the format of the file decides about pattern and special tokens */
    GPT_TRY(gpt_ranks_read(&l->ranks, l->o->model, l->err));
    if (!pattern && !l->ranks.json)
        return gpt_fail(l->err, GPT_EUSAGE, "TikTokenizer with %s needs the "
                        "name of a pattern", l->o->model);
    if (l->ranks.json)
        l->shift = l->o->tiktoken_num_special ? l->o->tiktoken_num_special
                                              : JSON_SPECIAL;
    GPT_TRY(l->ranks.json ? specials_before(l) : specials_after(l));
    GPT_TRY(size_vocabulary(l));
    GPT_TRY(gpt_new(&v->tokens, (size_t)v->n, sizeof(*v->tokens),
                    "a vocabulary", l->err));
    /* the tokens' bytes stay where they are, only their owner changes */
    v->arena = l->ranks.arena;
    l->ranks.arena = (struct gpt_arena){0};
    assert(l->ranks.n + l->shift <= v->n);
    GPT_TRY(place_ranks(l));
    GPT_TRY(gpt_new(&added, l->n_special, sizeof(*added), "special tokens",
                    l->err));
    int status = place_specials(l, added);
    gpt_free(added);
    GPT_TRY(status);
    return gpt_bytelevel_finish(l->t,
                                gpt_pretok_by_name(pattern ? pattern
                                                           : "v2")->cut,
                                true, l->o->model, l->err);
}

static int tiktoken_open(struct gpt_tokenizer **tok,
                         const struct gpt_tokenizer_options *o,
                         struct gpt_err *err)
{
    struct loading l = {.o = o, .err = err};

    if (!o->model)
        return gpt_fail(err, GPT_EUSAGE, "TikTokenizer needs a file of ranks");
    GPT_TRY(gpt_bytelevel_new(&l.t, &gpt_family_tiktoken, err));
    l.t->parse_special = gpt_tokenizer_parses_special(o);
    int status = load_ranks(&l);
    gpt_ranks_free(&l.ranks);
    gpt_free(l.special);
    if (status != GPT_OK) {
        gpt_bytelevel_close(&l.t->base);
        return status;
    }
    *tok = &l.t->base;
    return GPT_OK;
}

const struct gpt_tokenizer_family gpt_family_tiktoken = {
    .type = "TikTokenizer",
    .open = tiktoken_open,
    GPT_BYTELEVEL_FAMILY,
};
