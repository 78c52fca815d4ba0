/* See vocabulary.h. Start at gpt_train_check_data_vocabulary(). */
#include "cmd/train/vocabulary.h"

#include "base/log.h"
#include "checkpoint/run_state.h"
#include "data/blend.h"
#include "data/provenance.h"
#include "tokenizer/identity.h"

#include <stdio.h>

enum { TEXT = 300 }; /* two of them fit into a message */

/* What the options say about the vocabulary. */
struct vocabulary {
    bool named; /* there is a tokenizer, else only a size */
    struct gpt_tokenizer_identity id;
    const struct gpt_train_options *o;
};

/* A failure, or with the option to insist a warning. `other` is what `what`
 * was made with. Without a tokenizer there is only a size to go by: data may
 * hold no id above it, and reading finds those that are. */
static int report_mismatch(const struct vocabulary *v, const char *what,
                           const struct gpt_tokenizer_identity *other,
                           struct gpt_err *err)
{
    char mine[TEXT], its[TEXT];

    gpt_tokenizer_identity_text(mine, sizeof(mine), &v->id);
    gpt_tokenizer_identity_text(its, sizeof(its), other);
    if (v->o->allow_vocab_mismatch || !v->named) {
        gpt_warn("%s was made with %s, not with %s", what, its, mine);
        return GPT_OK;
    }
    gpt_fail(err, GPT_EDATA, "%s was made with %s, not with %s", what, its,
             mine);
    return gpt_hint(err, "name its tokenizer, tokenize the text anew, or "
                         "insist with --allow-vocab-mismatch");
}

/* Opens a tokenizer for as long as it takes to identify it. */
static int identify(struct gpt_tokenizer_identity *id,
                    const struct gpt_tokenizer_options *options,
                    struct gpt_err *err)
{
    struct gpt_tokenizer *tok;

    GPT_TRY(gpt_tokenizer_open_given(&tok, options, err));
    int status = gpt_tokenizer_identify(id, options, tok, err);
    gpt_tokenizer_close(tok);
    return status;
}

static int describe_own(struct vocabulary *v, const struct gpt_train_options *o,
                        int64_t vocab_size, struct gpt_err *err)
{
    struct gpt_tokenizer_options options = o->tokenizer;

    *v = (struct vocabulary){.o = o};
    v->named = gpt_tokenizer_named(&options);
    options.vocab_size = o->vocab_size;
    if (v->named)
        return identify(&v->id, &options, err);
    snprintf(v->id.type, sizeof(v->id.type), "a vocabulary");
    v->id.vocabulary = vocab_size;
    return GPT_OK;
}

/* A file that cannot be read is no failure: training needs the tokens, and the
 * file beside them only for this check. */
static int check_set(const struct vocabulary *v, const char *prefix,
                     struct gpt_err *err)
{
    struct gpt_tokenizer_identity made;
    cJSON *root = NULL;
    int status = GPT_OK;

    if (gpt_provenance_read(&root, prefix, NULL) != GPT_OK)
        gpt_warn("%s.json cannot be read: which tokenizer the data set was "
                 "made with is not checked",
                 prefix);
    if (gpt_tokenizer_identity_read(
            &made, cJSON_GetObjectItemCaseSensitive(root, "tokenizer")) &&
        (v->named ? !gpt_tokenizer_identity_equal(&made, &v->id)
                  : made.vocabulary > v->id.vocabulary))
        status = report_mismatch(v, prefix, &made, err);
    cJSON_Delete(root);
    return status;
}

/* The list of one option: prefixes, or weights and prefixes. What is wrong with
 * it is reported by the corpus. */
static int check_list(const struct vocabulary *v, const char *const *args,
                      int64_t n, struct gpt_err *err)
{
    struct gpt_blend_parts parts;
    int status = GPT_OK;

    if (n == 0 || gpt_blend_parse(&parts, args, n, NULL) != GPT_OK)
        return GPT_OK;
    for (int64_t i = 0; i < parts.n && status == GPT_OK; i++)
        status = check_set(v, parts.prefix[i], err);
    gpt_blend_parts_free(&parts);
    return status;
}

int gpt_train_check_data_vocabulary(const struct gpt_train_plan *plan,
                                    const struct gpt_train_options *o,
                                    struct gpt_err *err)
{
    const struct gpt_corpus_options *c = &plan->corpus;
    struct vocabulary v;

    GPT_TRY(describe_own(&v, o, plan->replica.config.vocab_size, err));
    GPT_TRY(check_list(&v, c->data_path, c->mock ? 0 : c->n_data_path, err));
    for (int i = 0; i < GPT_N_SPLITS; i++)
        GPT_TRY(check_list(&v, c->split_path[i], c->n_split_path[i], err));
    for (int64_t i = 0; c->stages && i < c->stages->n; i++)
        GPT_TRY(check_list(&v, c->stages->stage[i].words,
                           c->stages->stage[i].n, err));
    return GPT_OK;
}

/* Opens the checkpoint's tokenizer as gpt-generate would. Files that do not
 * open are not this check's to report: NULL. `options` refer to the arena. */
static struct gpt_tokenizer *open_kept(struct gpt_tokenizer_options *options,
                                       const struct gpt_source *source,
                                       struct gpt_arena *arena)
{
    struct gpt_tokenizer *tok = NULL;
    const cJSON *kept =
        cJSON_GetObjectItemCaseSensitive(source->state, GPT_RUN_TOKENIZER);

    *options = (struct gpt_tokenizer_options){0};
    if ((!kept && gpt_tokenizer_type_in(&options->type, source->dir, NULL) !=
                      GPT_OK) ||
        gpt_tokenizer_from_json(options, kept, source->dir, arena, NULL) !=
            GPT_OK ||
        !options->type || !gpt_tokenizer_named(options) ||
        gpt_tokenizer_open_given(&tok, options, NULL) != GPT_OK)
        return NULL;
    return tok;
}

/* Tokens are compared, not files: a checkpoint of another program has the same
 * vocabulary in other files. */
static int compare_tokens(const struct vocabulary *v,
                          const struct gpt_tokenizer *kept,
                          const struct gpt_tokenizer_options *kept_options,
                          const char *dir, struct gpt_err *err)
{
    struct gpt_tokenizer_options options = v->o->tokenizer;
    struct gpt_tokenizer_identity there;
    struct gpt_tokenizer *own;
    bool agree;

    options.vocab_size = v->o->vocab_size;
    GPT_TRY(gpt_tokenizer_open_given(&own, &options, err));
    int status = gpt_tokenizers_agree(&agree, own, kept, err);
    gpt_tokenizer_close(own);
    if (status != GPT_OK || agree)
        return status;
    GPT_TRY(gpt_tokenizer_identify(&there, kept_options, kept, err));
    return report_mismatch(v, dir, &there, err);
}

int gpt_train_check_checkpoint_vocabulary(const struct gpt_source *source,
                                          const struct gpt_train_options *o,
                                          struct gpt_err *err)
{
    struct gpt_tokenizer_options options;
    struct gpt_arena arena = {0};
    struct gpt_tokenizer *kept = open_kept(&options, source, &arena);
    struct vocabulary v;
    int status = GPT_OK;

    if (kept)
        status = describe_own(&v, o, source->config.vocab_size, err);
    /* a model of another program may lie beside two tokenizers */
    if (kept && status == GPT_OK && v.named &&
        (cJSON_GetObjectItemCaseSensitive(source->state, GPT_RUN_TOKENIZER) ||
         !gpt_tokenizer_identity_in(&v.id, source->dir)))
        status = compare_tokens(&v, kept, &options, source->dir, err);
    gpt_tokenizer_close(kept);
    gpt_arena_free(&arena);
    return status;
}

void gpt_train_take_tokens(struct gpt_train_state *state,
                           const struct gpt_source *source,
                           const struct gpt_train_options *o, int64_t eod)
{
    const int64_t end = o->eos_token >= 0 ? o->eos_token : eod;
    struct gpt_end_ids *ends = &state->ends;

    state->has_tokens = true;
    state->bos_token_id =
        o->bos_token >= 0 ? o->bos_token : source->bos_token_id;
    state->eos_token_id =
        o->eos_token >= 0 ? o->eos_token : source->eos_token_id;
    *ends = source->ends;
    state->family = source->family;
    /* A source that names no ends leaves that to the tokenizer of what reads
     * the model: one end of the data alone would take its place. A full list
     * stays as it is. */
    if (end >= 0 && ends->n > 0 && ends->n < GPT_ENDS && !gpt_is_end(ends, end))
        ends->ids[ends->n++] = (int32_t)end;
}
