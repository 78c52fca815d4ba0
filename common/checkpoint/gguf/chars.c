/* A vocabulary of characters (tokenizer/vocab_chars.h) as pieces with scores,
 * as llama.cpp has those of SentencePiece. A tokenizer.json of Llama 2, Mistral
 * or Gemma has pairs in the order in which they are merged; llama.cpp merges
 * what makes the piece of the highest score. Both are the same where all pairs
 * that make a token follow each other, and no pair that makes one is missing:
 * such files were made of a SentencePiece model. Others are refused. Start at
 * gpt_gguf_put_chars(). */
#include "checkpoint/gguf/internal.h"

#include "base/log.h"
#include "tokenizer/gguf_tokens.h"
#include "tokenizer/sp_normalize.h"
#include "tokenizer/token_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

struct pieces {
    const struct gpt_vocab *v; /* the tokens of the file */
    struct gpt_token_map map;
    struct gpt_merge *sorted; /* merges of the file, by both halves */
    size_t n;
    float *scores; /* by id; 0: no pair makes it */
    uint8_t *has_length; /* by bytes: whether a piece has that many */
    const char *what;
};

/* ---- scores ---- */

static bool is_byte(const struct gpt_vocab *v, int32_t id)
{
    const struct gpt_str *t = &v->tokens[id];

    return t->data && t->len == 1 && v->fallback_id[(uint8_t)*t->data] == id;
}

/* The first merges make characters of bytes, and what they make on the way is
 * behind the file's tokens: they are of this program alone. */
static bool is_of_file(const struct gpt_vocab *v, const struct gpt_merge *m)
{
    return m->result < v->n && m->left < v->n && m->right < v->n &&
           !is_byte(v, m->left) && !is_byte(v, m->right);
}

static int compare(const void *a, const void *b)
{
    const struct gpt_merge *x = a, *y = b;

    return x->left != y->left ? (x->left > y->left) - (x->left < y->left)
                              : (x->right > y->right) - (x->right < y->right);
}

static int refuse(const struct pieces *p, int32_t id, struct gpt_err *err)
{
    const struct gpt_str *t = &p->v->tokens[id];

    gpt_fail(err, GPT_EDATA,
             "%s: its merges are not those of pieces with scores, which GGUF "
             "files have of such a vocabulary: pairs that make '%.*s' are "
             "missing, or do not follow each other", p->what, (int)t->len,
             t->data);
    return gpt_hint(err, "leave its files out to write the weights alone");
}

/* A token's score falls with the rank of the first pair that makes it. */
static int rank(struct pieces *p, struct gpt_err *err)
{
    int32_t last = -1;

    for (size_t i = 0; i < p->v->n_merges; i++) {
        const struct gpt_merge *m = &p->v->merges[i];

        if (!is_of_file(p->v, m))
            continue;
        if (m->result != last && p->scores[m->result] < 0)
            return refuse(p, m->result, err);
        last = m->result;
        p->sorted[p->n++] = *m;
        if (!(p->scores[last] < 0))
            p->scores[last] = -(float)p->n;
    }
    if (p->n)
        qsort(p->sorted, p->n, sizeof(*p->sorted), compare);
    return GPT_OK;
}

/* Every cut of a token into two tokens is a pair of the file. Lengths that no
 * piece has are passed over, as looking a part up takes time by its length:
 * tokens of megabytes would take hours. */
static int check_token(const struct pieces *p, int32_t id, struct gpt_err *err)
{
    const struct gpt_str *t = &p->v->tokens[id];

    for (size_t n = 1; n < t->len; n++) {
        if (!p->has_length[n] || !p->has_length[t->len - n])
            continue;

        const struct gpt_merge pair = {
            .left = gpt_token_map_find(&p->map, t->data, n),
            .right = gpt_token_map_find(&p->map, t->data + n, t->len - n)};

        if (pair.left >= 0 && pair.right >= 0 &&
            !(p->n && bsearch(&pair, p->sorted, p->n, sizeof(pair), compare)))
            return refuse(p, id, err);
    }
    return GPT_OK;
}

/* A piece is of text: neither a byte, nor found by itself. */
static bool is_piece(const struct gpt_vocab *v, int32_t id,
                     const uint8_t *types)
{
    return v->tokens[id].data && types[id] == GPT_GGUF_NORMAL &&
           !is_byte(v, id);
}

static int check_pieces(struct pieces *p, const uint8_t *types,
                        struct gpt_err *err)
{
    const struct gpt_vocab *v = p->v;

    GPT_TRY(gpt_token_map_open(&p->map, v->tokens, (size_t)v->n, err));
    for (int32_t id = 0; id < v->n; id++)
        if (is_piece(v, id, types)) {
            gpt_token_map_add(&p->map, id);
            p->has_length[v->tokens[id].len] = true;
        }
    for (int32_t id = 0; id < v->n; id++)
        if (is_piece(v, id, types))
            GPT_TRY(check_token(p, id, err));
    return GPT_OK;
}

/* ---- keys ---- */

/* With U+2581 for a space; tokens that are found by themselves are looked for
 * in the text as it is. */
static void put_piece(struct gpt_gguf_keys *k, const struct gpt_vocab *v,
                      int64_t id, uint8_t *type, char *buf)
{
    const struct gpt_str *t = id < v->n ? &v->tokens[id] : NULL;
    size_t n = 0;

    if (!t || !t->data) {
        *type = GPT_GGUF_UNUSED;
        n = (size_t)snprintf(buf, 32, "[PAD%lld]", (long long)id);
    } else if (*type == GPT_GGUF_NORMAL && is_byte(v, (int32_t)id)) {
        *type = GPT_GGUF_BYTE;
        n = (size_t)snprintf(buf, 32, "<0x%02X>", (unsigned)(uint8_t)*t->data);
    } else
        for (size_t i = 0; i < t->len; i++) {
            const bool space = t->data[i] == ' ' && *type == GPT_GGUF_NORMAL;

            if (space)
                memcpy(buf + n, GPT_SP_SPACE, strlen(GPT_SP_SPACE));
            else
                buf[n] = t->data[i];
            n += space ? strlen(GPT_SP_SPACE) : 1;
        }
    gpt_gguf_add_string(k, buf, n);
}

static void put_keys(struct gpt_gguf_keys *k, const struct pieces *p,
                     const struct gpt_bytelevel *t, int64_t rows,
                     uint8_t *types, char *buf)
{
    gpt_gguf_put_text(k, KEY("model"), "llama");
    gpt_gguf_put_text(k, KEY("pre"), "default");
    gpt_gguf_put_array(k, KEY("tokens"), GPT_GGUF_STRING, rows);
    for (int64_t id = 0; id < rows; id++)
        put_piece(k, p->v, id, &types[id], buf);
    gpt_gguf_put_array(k, KEY("scores"), GPT_GGUF_F32, rows);
    for (int64_t id = 0; id < rows; id++) {
        const float score = id < p->v->n ? p->scores[id] : 0;
        uint32_t bits;

        memcpy(&bits, &score, sizeof(bits));
        gpt_gguf_add_u32(k, bits);
    }
    for (int64_t id = 0; id < rows; id++)
        if (types[id] == GPT_GGUF_UNKNOWN)
            gpt_gguf_put_int(k, KEY("unknown_token_id"), GPT_GGUF_U32, id);
    gpt_gguf_put_int(k, KEY("add_space_prefix"), GPT_GGUF_BOOL,
                     t->prepend || t->prefix_space);
    gpt_gguf_put_int(k, KEY("remove_extra_whitespaces"), GPT_GGUF_BOOL, false);
}

int gpt_gguf_put_chars(struct gpt_gguf_keys *k, const struct gpt_bytelevel *t,
                       int64_t rows, uint8_t *types, const char *what,
                       struct gpt_err *err)
{
    struct gpt_vocab of_file = t->vocab;
    const struct gpt_vocab *v = &of_file;
    struct pieces p = {.v = v, .what = what};
    char *buf = NULL;
    size_t longest = 32;
    int status;

    of_file.n -= of_file.n_prefixes;
    for (int64_t id = 0; id < v->n; id++)
        if (v->tokens[id].len > longest)
            longest = v->tokens[id].len;
    GPT_TRY_GOTO(status, gpt_new(&buf, longest, strlen(GPT_SP_SPACE),
                                 "a vocabulary", err), out);
    GPT_TRY_GOTO(status, gpt_new(&p.scores, (size_t)v->n, sizeof(*p.scores),
                                 "a vocabulary", err), out);
    GPT_TRY_GOTO(status, gpt_new(&p.sorted, v->n_merges + 1,
                                 sizeof(*p.sorted), "merges", err), out);
    GPT_TRY_GOTO(status, gpt_new(&p.has_length, longest + 1,
                                 sizeof(*p.has_length), "a vocabulary", err),
                 out);
    GPT_TRY_GOTO(status, rank(&p, err), out);
    GPT_TRY_GOTO(status, check_pieces(&p, types, err), out);
    put_keys(k, &p, t, rows, types, buf);
    if (t->prefix_space)
        gpt_warn("%s: a text gets a space before it unless it begins with one; "
                 "llama.cpp puts one before any text, and after tokens that it "
                 "finds in it", what);
out:
    gpt_token_map_close(&p.map);
    gpt_free(p.has_length);
    gpt_free(p.sorted);
    gpt_free(p.scores);
    gpt_free(buf);
    return status;
}
