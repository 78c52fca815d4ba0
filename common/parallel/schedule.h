/* Pipeline schedules as pure functions: (stages, chunks, microbatches, stage)
 * gives a list of actions. 1F1B, interleaved 1F1B and plain accumulation are
 * such lists; one executor runs them, a checker proves them free of deadlock
 * and of use before receipt without running a model.
 *
 * What an executor provides, a stage: for every chunk `slots` places for an
 * input and the activations kept for its backward; and one buffer each, for
 * all chunks, for the output of the last forward, the gradient received, and
 * the gradient that the last backward made for the stage before. A group of
 * sends and receives may block until it is done; nothing more is assumed of
 * the transport than that messages between two stages arrive in order.
 *
 * Source: Narayanan et al., SC'21, section 2.2; order and warm-up as Megatron
 * core/pipeline_parallel/schedules.py. */
#ifndef GPT_PARALLEL_SCHEDULE_H
#define GPT_PARALLEL_SCHEDULE_H

#include "parallel/topology.h"

enum gpt_action_kind {
    GPT_ACT_FORWARD,       /* slot's input -> slot, output buffer */
    GPT_ACT_BACKWARD,      /* slot, gradient received -> gradient made */
    GPT_ACT_SEND_FORWARD,  /* output buffer to the next stage */
    GPT_ACT_RECV_FORWARD,  /* into slot's input */
    GPT_ACT_SEND_BACKWARD, /* gradient made, to the stage before */
    GPT_ACT_RECV_BACKWARD, /* gradient received */
    GPT_N_ACTIONS
};
const char *gpt_action_name(enum gpt_action_kind kind); /* "send-forward" */
bool gpt_action_sends(enum gpt_action_kind kind);
bool gpt_action_receives(enum gpt_action_kind kind);

/* Neighbouring actions of the same group > 0 are posted together (a send and a
 * receive that may not wait for one another): at most one of each kind. */
struct gpt_action {
    enum gpt_action_kind kind;
    int32_t microbatch, chunk; /* chunk: of this stage */
    int32_t slot;              /* activation slot that holds the microbatch */
    int32_t peer;              /* stage, for sends and receives; else -1 */
    int32_t group;
    bool last; /* a chunk's last backward of the step: each gradient is
                * complete as soon as this action has written it, and may be
                * summed over ranks while the others are computed */
};

enum { GPT_MAX_STAGES = 4096, GPT_GROUP_ACTIONS = 4 };

struct gpt_pipeline_plan {
    struct gpt_action *actions; /* freed by gpt_pipeline_plan_free() */
    int64_t n;
    int32_t slots[GPT_MAX_CHUNKS]; /* activation slots that a chunk needs */
    int32_t live; /* most slots in use at one time, all chunks together */
    bool forward_only;
};

/* chunks 1: 1F1B (stages 1: plain accumulation); > 1: interleaved, where
 * microbatches must be a multiple of stages. GPT_EUSAGE names the rule. */
int gpt_pipeline_plan_build(struct gpt_pipeline_plan *p, int64_t stages,
                            int64_t chunks, int64_t microbatches, int64_t stage,
                            struct gpt_err *err) GPT_MUST_USE;
/* The forwards alone, for evaluation: one slot a chunk, nothing is kept. */
int gpt_pipeline_plan_build_forward(struct gpt_pipeline_plan *p, int64_t stages,
                                    int64_t chunks, int64_t microbatches,
                                    int64_t stage,
                                    struct gpt_err *err) GPT_MUST_USE;
void gpt_pipeline_plan_free(struct gpt_pipeline_plan *p);

/* How many of n actions, from the first on, are transfers that are posted
 * together; 0: the first is none. */
int64_t gpt_pipeline_plan_group(const struct gpt_action *actions, int64_t n);

/* Seconds that each thing takes: one chunk's forward and backward; a transfer;
 * and gathering the weights of a chunk. Weights are gathered layer by layer
 * from the beginning of the step, and a chunk's first forward waits for each of
 * its `layers`. */
struct gpt_pipeline_plan_costs {
    double forward, backward, transfer;
    double weights; /* 0: they are there */
    int64_t layers;
    /* What the last of `chunks` of the last stage takes besides, as logits and
     * loss do. */
    double end_forward, end_backward;
    int64_t chunks;
};

/* Results of a simulation, seconds. */
struct gpt_pipeline_plan_result {
    double total;   /* length of the step */
    double bubble;  /* idle time of the busiest stage by its computing time */
    double weights; /* the most that a stage waited for weights */
};

/* Simulated start and end of every action of every stage. times: an array a
 * stage, as long as its plan; may be NULL. GPT_EFAIL when the plans wait for
 * each other. */
struct gpt_interval {
    double begin, end;
};
int gpt_pipeline_plan_simulate(const struct gpt_pipeline_plan *plans,
                               int64_t stages,
                               const struct gpt_pipeline_plan_costs *costs,
                               struct gpt_interval **times,
                               struct gpt_pipeline_plan_result *result,
                               struct gpt_err *err) GPT_MUST_USE;

#endif
