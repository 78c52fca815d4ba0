/* Names of tensors as training scripts save them: the state_dict() of what
 * wraps a model has the wrapper's words in its names. Without these words the
 * names are the model's. Start at gpt_hf_unwrap_names(). */
#include "checkpoint/huggingface/huggingface.h"

#include "checkpoint/safetensors/internal.h"

#include <string.h>

/* Each ends with the dot that is behind it. */
static const struct {
    const char *word;
    bool anywhere; /* in front of parts of the model, too */
} wrappers[] = {
    {"module.", false},                    /* DistributedDataParallel */
    {"_orig_mod.", true},                  /* torch.compile() */
    {"_fsdp_wrapped_module.", true},       /* FullyShardedDataParallel */
    {"_checkpoint_wrapped_module.", true}, /* activation checkpointing */
};

/* Bytes of the wrapper's word at `at`, or 0; `first`: it begins the name, apart
 * from words before it. */
static size_t wrapper_at(const char *at, bool first)
{
    for (size_t i = 0; i < GPT_COUNT(wrappers); i++) {
        const size_t n = strlen(wrappers[i].word);

        if ((first || wrappers[i].anywhere) &&
            strncmp(at, wrappers[i].word, n) == 0)
            return n;
    }
    return 0;
}

/* Moves the words of the name that stay to its beginning. */
static void unwrap(char *name)
{
    char *to = name;
    bool first = true;

    for (const char *at = name; *at;) {
        const size_t word = strcspn(at, "."), skip = wrapper_at(at, first);
        const size_t n = skip ? skip : word + (at[word] == '.');

        if (!skip) {
            memmove(to, at, n);
            to += n;
            first = false;
        }
        at += n;
    }
    *to = '\0';
}

int gpt_hf_unwrap(const char **name, struct gpt_arena *arena,
                  struct gpt_err *err)
{
    char *copy = gpt_arena_strdup(arena, *name);

    if (!copy)
        return gpt_no_memory(err, "names of tensors");
    unwrap(copy);
    *name = copy;
    return GPT_OK;
}

/* The index by name is made anew: it would find nothing by names that were
 * changed, and two names that became one are refused. */
int gpt_hf_unwrap_names(struct gpt_safetensors *st, const char *path,
                        struct gpt_err *err)
{
    for (int64_t i = 0; i < st->n; i++)
        GPT_TRY(gpt_hf_unwrap(&st->tensors[i].name, &st->arena, err));
    gpt_free(st->by_name);
    st->by_name = NULL;
    return gpt_safetensors_index(st, path, err);
}
