/* Beam search for the filter; see filter_beams.h. Start at
 * gpt_answer_with_beams(): a search has a request for each prompt, the writer
 * one for each text. */
#include "cmd/generate/filter_beams.h"

#include "base/memory.h"
#include "generate/beams.h"

#include <string.h>

struct answers {
    struct gpt_writer *writer;
    int64_t samples;
    const struct gpt_request *requests; /* of the searches */
};

/* What a search would not obey is refused, so that the command means what it
 * says. */
int gpt_check_beam_options(const struct gpt_generate_options *o,
                           struct gpt_err *err)
{
    const struct {
        const char *name;
        bool given;
    } without_effect[] = {
        {"temperature", o->temperature != 1},
        {"top-k", o->top_k > 0},
        {"top-p", o->top_p > 0},
        {"min-p", o->min_p > 0},
        {"stop", o->stop.n > 0},
        {"logprobs", o->logprobs >= 0},
        {"return-logits", o->return_logits},
        {"stop-on-double-eol", o->stop_on_double_eol},
        {"speculate", o->speculate > 0},
    };

    if (o->num_beams == 1)
        return GPT_OK;
    for (size_t i = 0; i < GPT_COUNT(without_effect); i++)
        if (without_effect[i].given) {
            gpt_fail(err, GPT_EUSAGE, "--%s has no effect beside --num-beams",
                     without_effect[i].name);
            return gpt_hint(err, "a beam search does not obey it; leave one of "
                                 "the two out");
        }
    if (o->num_samples > o->num_beams)
        return gpt_fail(err, GPT_EUSAGE,
                        "--num-samples is %lld, but a search with --num-beams "
                        "%lld finds no more than its beams",
                        (long long)o->num_samples, (long long)o->num_beams);
    return GPT_OK;
}

/* A prompt that was refused gets its error in every place, and a search that a
 * signal ended has no texts. */
static int write_found(void *user, int64_t prompt, const struct gpt_beam *beams,
                       int64_t n, struct gpt_err *err)
{
    const struct answers *a = user;
    const enum gpt_finish none = a->requests[prompt].n_prompt == 0
                                     ? GPT_FINISH_REFUSED
                                     : GPT_FINISH_STOPPED;

    for (int64_t r = 0; r < a->samples; r++) {
        const int64_t text = prompt * a->samples + r;
        bool stop = false;

        for (int64_t k = 0; r < n && k < beams[r].n; k++) {
            const struct gpt_chosen chosen = {.id = beams[r].ids[k]};

            GPT_TRY(gpt_writer_token(a->writer, text, &chosen, &stop, err));
        }
        if (r < n)
            gpt_writer_score(a->writer, text, beams[r].score);
        GPT_TRY(gpt_writer_finish(a->writer, text,
                                  r < n ? beams[r].finish : none, err));
    }
    return GPT_OK;
}

/* The samples of a prompt have their requests side by side; the search takes
 * the first of them, since what tells samples apart is chance, which it has
 * none of. */
int gpt_answer_with_beams(const struct gpt_loaded *m, struct gpt_writer *writer,
                          const struct gpt_request *requests, int64_t n_prompts,
                          struct gpt_speed *speed, struct gpt_err *err)
{
    const struct gpt_generate_options *o = m->o;
    struct gpt_request *searches = NULL;
    const struct gpt_beam_rule rule = {
        .beams = o->num_beams,
        .length_penalty = o->length_penalty,
        .early = strcmp(o->early_stopping, "true") == 0    ? GPT_STOP_FIRST
                 : strcmp(o->early_stopping, "never") == 0 ? GPT_STOP_NEVER
                                                           : GPT_STOP_HEURISTIC,
        .n_best = o->num_samples,
    };

    GPT_TRY(gpt_new(&searches, (size_t)n_prompts, sizeof(*searches), "searches",
                    err));
    for (int64_t i = 0; i < n_prompts; i++)
        searches[i] = requests[i * o->num_samples];
    struct answers a = {writer, o->num_samples, searches};
    int status = gpt_search_beams(m->decoder, searches, n_prompts, &rule,
                                  write_found, &a, speed, err);
    gpt_free(searches);
    return status;
}
