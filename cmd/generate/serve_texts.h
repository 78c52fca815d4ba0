/* The texts that a server makes: from calls into the batch, and from the batch
 * into answers. All of this is the main thread's. */
#ifndef GPT_CMD_GENERATE_SERVE_TEXTS_H
#define GPT_CMD_GENERATE_SERVE_TEXTS_H

#include "cmd/generate/serve.h"
#include "generate/score.h"

/* State of the main thread, which other threads do not touch. */
struct gpt_serving {
    struct gpt_server s;
    struct gpt_batch *batch;
    struct gpt_prefixes *prefixes; /* beginnings of prompts, or NULL */
    struct gpt_request *requests; /* (batch size) that begin together, */
    int64_t *names;               /* and their texts */
    struct gpt_scorer *scorer; /* for prompts whose probabilities are wanted */
    struct gpt_call_text *echo;   /* where they go to */
    bool scored; /* a prompt has gone through it since the last step */
    struct gpt_http *http;
    double swept;        /* when calls were last looked at for their time */
    double stop_by;      /* by when calls end after a signal */
    struct gpt_buf keys; /* text of the key file */
    char name[256];      /* the model's, where no option gives one */
};

/* Begins the texts that wait, from `t` on, as many as there is room for. */
int gpt_serving_begin(struct gpt_serving *w, struct gpt_call_text *t,
                      struct gpt_err *err) GPT_MUST_USE;

/* Callbacks of the batch's sink, with a struct gpt_serving as `user`. */
int gpt_serving_take(void *user, int64_t name, const struct gpt_chosen *chosen,
                     bool *stop, struct gpt_err *err);
int gpt_serving_end(void *user, int64_t name, enum gpt_finish finish,
                    struct gpt_err *err);

/* Writes the answer of a call that is over: it has left the queue, and no text
 * of it is under way. The call may then be no more. */
void gpt_serving_end_call(struct gpt_server *s, struct gpt_call *call);
/* True when the time of a call is over; its status then says why. */
bool gpt_serving_is_late(const struct gpt_serving *w, struct gpt_call *call);

#endif
