/* A loss of one's own for gpt-train(1), which says how to build a plug-in and
 * names the options. `make install` puts this header into PREFIX/include. It
 * needs no other; a plug-in is C, or anything that speaks its calling
 * convention. share/examples has two.
 *
 * The objective of a step is the mean over its microbatches of
 *
 *     sum over tokens t of  weight[t] * loss(nll[t])
 *
 * where nll[t] is the cross-entropy of token t over the whole vocabulary. The
 * plug-in may choose the weights (`weigh`), loss() (`losses`), or both. It
 * works on the host, so it is the same on CPUs and GPUs; and it sees whole rows
 * and whole vocabularies, so it is the same in every layout of ranks. Every
 * rank opens it, and those that share a microbatch call it with the same
 * numbers and must get the same. Logits it does not see: they stay on the
 * device, where ranks have parts of each row.
 *
 * Validation and test losses are plain cross-entropy, for comparison. */
#ifndef GPT_LOSS_H
#define GPT_LOSS_H

#include <stddef.h>
#include <stdint.h>

enum { GPT_LOSS_ABI = 1 };

/* A microbatch before it is computed: rows of `length` tokens. */
struct gpt_loss_rows {
    int64_t samples, length; /* B, T */
    int64_t first_sample;    /* number of the first row in the whole run */
    const int32_t *input;    /* (B, T) */
    const int32_t *target;   /* (B, T): the next token of each */
    /* (B, T). At the call: 1 / (tokens that count) where a token counts, and 0
     * where padding or a mask leaves it out. They may become any finite
     * numbers. */
    float *weight;
};

/* Tokens whose cross-entropy is known, in any number and from any rows. */
struct gpt_loss_tokens {
    int64_t n;
    const int32_t *target; /* (n) */
    const float *nll;      /* (n) */
    float *loss;           /* (n), to be written: loss(nll) */
    float *slope;          /* (n), to be written: its derivative by nll */
};

/* Functions return 0, or another number after they have written a message of
 * less than `room` bytes: the run then ends with it. Pointers that are NULL are
 * not called. */
struct gpt_loss {
    unsigned abi; /* GPT_LOSS_ABI */
    const char *name;
    /* args: the user's text, or "". *state goes to the others. */
    int (*open)(void **state, const char *args, char *message, size_t room);
    void (*close)(void *state);
    /* In a thread that reads ahead, beside `losses`. */
    int (*weigh)(void *state, const struct gpt_loss_rows *rows, char *message,
                 size_t room);
    /* In the middle of a forward pass, which waits for it. */
    int (*losses)(void *state, const struct gpt_loss_tokens *tokens,
                  char *message, size_t room);
};

/* The one function that is looked up. */
const struct gpt_loss *gpt_loss_plugin(void);

#endif
