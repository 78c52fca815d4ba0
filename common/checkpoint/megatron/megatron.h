/* Checkpoints of Megatron-LM in its classic format: a directory an iteration,
 * in it one mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt for each tensor parallel
 * rank of each stage, and of each part of the experts. Source:
 * megatron/training/checkpointing.py and tools/checkpoint of Megatron-LM, from
 * 2019 to 2026.
 *
 * open.c finds and opens the files, names.c knows what tensors were called over
 * the years, config.c makes a model's configuration of the arguments, read.c
 * merges the ranks' parts, copies.c compares what several ranks have, and
 * write.c writes a directory. Files that end in _experts have what models with
 * experts need beside. Start at gpt_megatron_open(). */
#ifndef GPT_CHECKPOINT_MEGATRON_H
#define GPT_CHECKPOINT_MEGATRON_H

#include "base/json.h"
#include "checkpoint/source.h"
#include "checkpoint/torch/torch.h"
#include "model/params.h"

#define GPT_MEGATRON_RELEASE "release"
#define GPT_MEGATRON_FILE "model_optim_rng.pt"
#define GPT_MEGATRON_SHARDS "distrib_optim.pt"
/* What a native run keeps beside tensors, as JSON. Megatron-LM reads
 * neither this nor any other key that it does not know. */
#define GPT_MEGATRON_RUN "gpt_run"
/* The argument that has Hugging Face's type of the model; the same holds. */
#define GPT_MEGATRON_FAMILY "hf_model_type"

enum { GPT_MEGATRON_CHUNKS = GPT_MAX_CHUNKS };

/* What an optimizer keeps of each parameter. */
enum {
    GPT_MEGATRON_EXP_AVG,
    GPT_MEGATRON_EXP_AVG_SQ,
    GPT_MEGATRON_MASTER, /* the weight in fp32 */
    GPT_MEGATRON_STATES
};

/* Consecutive layers of a stage, a state dict of its own. */
struct gpt_megatron_chunk {
    struct gpt_safetensors tensors; /* of the state dict; no file */
    bool *used;                     /* one a tensor: it became a part */
    /* One a tensor; NULL without optimizer state, no name where there is no
     * tensor of this kind. */
    struct gpt_safetensor *state[GPT_MEGATRON_STATES];
    int64_t n_layers, first_layer; /* first: global number */
};

/* The file of one rank. */
struct gpt_megatron_rank {
    const char *file; /* "mp_rank_00/model_optim_rng.pt"; NULL: not there */
    struct gpt_torch torch;
    struct gpt_torch shards; /* of a distributed optimizer; zero: none */
    struct gpt_in *state_in; /* that optimizer state is in */
    struct gpt_megatron_chunk *chunks;
    int64_t n_chunks; /* more than 1 when interleaved */
};

struct gpt_megatron_buckets;
struct gpt_megatron {
    char dir[GPT_PATH_BYTES]; /* of the iteration */
    int64_t tp_size, pp_size;
    int64_t ep_size;  /* ranks that share the experts of a layer, and have all
                       * the same of what is no expert's */
    int64_t etp_size; /* tensor parallel ranks that share an expert, the others
                       * have the same; divides tp_size */
    int64_t numbers;  /* most numbers in the name of a rank's directory */
    struct gpt_megatron_rank *ranks; /* (ep_size, pp_size, tp_size); not all of
                                      * them have a file */
    int64_t version;                 /* of the order in QKV: 0, 1, 2, 3 */
    int64_t iteration;
    struct gpt_config config;
    struct gpt_param_table table;
    struct gpt_tensor *tensors; /* one a parameter, in the table's order, then
                                 * one for each moment of each */
    int64_t n;
    bool checks_copies; /* by gpt_megatron_check_copies() */
    bool has_optimizer;
    int64_t step; /* of the optimizer */
    bool counted, steps_differ; /* a group had a count, and another one */
    cJSON *state;
    const char *left_out; /* as in struct gpt_source */
    struct gpt_megatron_buckets *buckets; /* of a distributed optimizer */
    struct gpt_dcp *dist; /* tensors of a checkpoint of torch_dist, or NULL;
                           * ranks[0] then has what is no tensor */
    struct gpt_arena arena;
};

/* The directory of an iteration at `path`: itself, or what its tracker names;
 * `iteration` < 0: the newest. False when there is none of this format. */
bool gpt_megatron_find(char *dir, size_t cap, const char *path,
                       int64_t iteration);

/* Headers and pickles only. optimizer: also its state, and weights in fp32
 * where it has them. GPT_EDATA names file and what is wrong. */
int gpt_megatron_open(struct gpt_megatron **m, const char *path,
                      int64_t iteration, bool optimizer,
                      struct gpt_err *err) GPT_MUST_USE;
void gpt_megatron_close(struct gpt_megatron *m); /* NULL is fine */

static inline int64_t gpt_megatron_ranks(const struct gpt_megatron *m)
{
    return m->ep_size * m->pp_size * m->tp_size;
}

static inline struct gpt_megatron_rank *
gpt_megatron_rank_of(const struct gpt_megatron *m, int64_t ep, int64_t pp,
                     int64_t tp)
{
    return &m->ranks[(ep * m->pp_size + pp) * m->tp_size + tp];
}

/* The first that has what is no expert's. */
static inline struct gpt_megatron_rank *
gpt_megatron_rank(const struct gpt_megatron *m, int64_t pp, int64_t tp)
{
    int64_t ep = 0;

    while (ep + 1 < m->ep_size && !gpt_megatron_rank_of(m, ep, pp, tp)->file)
        ep++;
    return gpt_megatron_rank_of(m, ep, pp, tp);
}

/* ---- arguments ---- */

/* An argument of the run, a value of the dict or Namespace `args`. One that is
 * absent or None leaves *out as it is. */
void gpt_megatron_int(const struct gpt_pickle_value *args, const char *key,
                      int64_t *out);
void gpt_megatron_real(const struct gpt_pickle_value *args, const char *key,
                       double *out);
bool gpt_megatron_flag(const struct gpt_pickle_value *args, const char *key,
                       bool absent);
/* A word among `names`, whose number in the list becomes *out; absent or None
 * is the first. GPT_EDATA names another word. */
int gpt_megatron_choice(const struct gpt_pickle_value *args, const char *key,
                        const char *const *names, int64_t *out,
                        const char *what, struct gpt_err *err) GPT_MUST_USE;
/* GPT_EDATA names the first of n arguments that is there and neither None nor
 * False. */
int gpt_megatron_refuse(const struct gpt_pickle_value *args,
                        const char *const *keys, size_t n, const char *what,
                        struct gpt_err *err) GPT_MUST_USE;
/* Fills all that arguments say of a model; `what` is for messages. GPT_EDATA
 * names an argument that is not supported. */
int gpt_megatron_read_variants(struct gpt_config *c,
                               const struct gpt_pickle_value *args,
                               const char *what,
                               struct gpt_err *err) GPT_MUST_USE;
/* The same, written into the dict or Namespace that is open. */
struct gpt_pickle_out;
void gpt_megatron_put_variants(struct gpt_pickle_out *o,
                               const struct gpt_config *c);
/* What arguments say of experts, both ways; c->num_layers is known. */
int gpt_megatron_read_experts(struct gpt_config *c,
                              const struct gpt_pickle_value *args,
                              const char *what,
                              struct gpt_err *err) GPT_MUST_USE;
void gpt_megatron_put_experts(struct gpt_pickle_out *o,
                              const struct gpt_config *c);
/* The name of what experts have and no argument can say, or NULL. */
const char *gpt_megatron_odd_experts(const struct gpt_config *c);
/* GPT_EDATA when arguments cannot say what the model is. */
int gpt_megatron_check_variants(const struct gpt_config *c,
                                struct gpt_err *err) GPT_MUST_USE;

/* ---- torch_dist ---- */

/* True for the directory of an iteration in this format. */
bool gpt_megatron_is_dist(const char *dir);
/* Opens an iteration in this format: fills m->dist and m->ranks, which is one
 * rank. */
int gpt_megatron_open_dist(struct gpt_megatron *m,
                           struct gpt_err *err) GPT_MUST_USE;
/* The tensor of a parameter, or NULL; number: of the layer, or -1. *layer: its
 * index in the first dimension, -1 where the tensor is of one layer alone. */
const struct gpt_tensor *gpt_megatron_dist_tensor(const struct gpt_megatron *m,
                                                  const char *prefix,
                                                  enum gpt_param_role role,
                                                  int64_t number,
                                                  int64_t *layer);
int64_t gpt_megatron_dist_layers(const struct gpt_megatron *m);
/* Appends what there is of a parameter, of a kind of state, to *out. */
int gpt_megatron_merge_dist(struct gpt_megatron *m, const struct gpt_param *p,
                            struct gpt_tensor *out, int kind,
                            struct gpt_err *err) GPT_MUST_USE;
/* The default of torch_dist: state in the buckets of a distributed optimizer,
 * without names. Fills m->buckets when there are any; fits: all was found. */
int gpt_megatron_read_buckets(struct gpt_megatron *m, bool *found, bool *fits,
                              struct gpt_err *err) GPT_MUST_USE;
void gpt_megatron_free_buckets(struct gpt_megatron_buckets *b);
/* Appends what the buckets have of a kind of state of a parameter. */
int gpt_megatron_copy_bucket(const struct gpt_megatron_buckets *b,
                             const struct gpt_param *p, int kind,
                             struct gpt_tensor *out,
                             struct gpt_err *err) GPT_MUST_USE;
/* GPT_EDATA when a weight was not merged. */
int gpt_megatron_check_dist(const struct gpt_megatron *m,
                            struct gpt_err *err) GPT_MUST_USE;
/* True when there are moments with names of parameters; *other: there is state
 * of an optimizer, whether of this kind or not. */
bool gpt_megatron_dist_has_optimizer(const struct gpt_megatron *m, bool *other);

/* Fills config, version, iteration and state from the first rank's file. */
int gpt_megatron_configure(struct gpt_megatron *m,
                           struct gpt_err *err) GPT_MUST_USE;
/* The state dict of an optimizer in a file, of a chain of them the first. */
const struct gpt_pickle_value *
gpt_megatron_optimizer(const struct gpt_pickle_value *root);
/* Finds the optimizer state of each rank's parameters; has_optimizer says
 * whether all of it was found. */
int gpt_megatron_read_optimizer(struct gpt_megatron *m,
                                struct gpt_err *err) GPT_MUST_USE;
/* Allocates the state of a chunk's tensors; none is there yet. */
int gpt_megatron_make_states(struct gpt_megatron_chunk *c,
                             struct gpt_err *err) GPT_MUST_USE;
/* The same of a rank from the file that a distributed optimizer has beside the
 * model's: found says whether there is one, fits whether all was understood. */
int gpt_megatron_read_shards(struct gpt_megatron *m, int64_t rank, bool *found,
                             bool *fits, struct gpt_err *err) GPT_MUST_USE;
/* Adds to the state what a run needs to be resumed, when it is there. */
int gpt_megatron_add_run(struct gpt_megatron *m,
                         struct gpt_err *err) GPT_MUST_USE;
/* Settles ep_size and etp_size by the arguments in the first rank's file, and
 * finds that the files of all ranks are there. */
int gpt_megatron_settle_ranks(struct gpt_megatron *m,
                              struct gpt_err *err) GPT_MUST_USE;
/* What an optimizer keeps of a weight of a chunk, or the weight itself where
 * it keeps none in fp32. */
const struct gpt_safetensor *
gpt_megatron_choose(const struct gpt_megatron *m,
                    const struct gpt_megatron_chunk *c,
                    const struct gpt_safetensor *weight, int kind);
/* The first rank that has part `r` of the experts of rank ep, or NULL. */
struct gpt_megatron_rank *gpt_megatron_expert_rank(const struct gpt_megatron *m,
                                                   int64_t ep, int64_t pp,
                                                   int64_t r);
/* Appends what a stage's ranks have of all experts of a parameter, in chunk
 * v. */
int gpt_megatron_merge_experts(struct gpt_megatron *m,
                               const struct gpt_param *p,
                               struct gpt_tensor *out, int64_t pp, int64_t v,
                               int kind, struct gpt_err *err) GPT_MUST_USE;
/* Makes the tensors; every tensor of the files is used or known to be no
 * parameter. */
int gpt_megatron_merge(struct gpt_megatron *m,
                       struct gpt_err *err) GPT_MUST_USE;

/* Reads what several ranks have copies of, and warns when they differ: the
 * first rank's is what is converted. */
int gpt_megatron_check_copies(const struct gpt_megatron *m,
                              struct gpt_err *err) GPT_MUST_USE;

/* ---- names ---- */

/* How a writer calls tensors. */
enum gpt_megatron_names {
    GPT_MEGATRON_TE,     /* megatron-core, layers of Transformer Engine */
    GPT_MEGATRON_CORE,   /* megatron-core, layers of its own */
    GPT_MEGATRON_LEGACY, /* before megatron-core */
};
/* "transformer_engine", "local", "legacy", NULL: in the order of the enum, in
 * the words of Megatron-LM's converter. */
extern const char *const gpt_megatron_styles[];

/* The tensor of a parameter in a chunk, under any of its names; local: number
 * of the layer in the chunk. NULL when there is none. */
const struct gpt_safetensor *
gpt_megatron_tensor(const struct gpt_megatron_chunk *chunk,
                    enum gpt_param_role role, int64_t local);
/* A gated model's two matrices are one tensor: the rows of the gate and, after
 * them, as many of linear_fc1, on each rank. The part of it, 0 or 1, that a
 * parameter is; *parts: how many there are. */
int64_t gpt_megatron_part(enum gpt_param_role role, bool gated, int64_t *parts);
/* True for matrices of experts, of which there is a tensor for each: its
 * number is where their names have a '%'. */
static inline bool gpt_megatron_is_expert(enum gpt_param_role role)
{
    return role == GPT_EXPERTS_FC1 || role == GPT_EXPERTS_FC2;
}
/* True for the name of such a tensor. */
bool gpt_megatron_names_expert(const char *name);
/* That of an expert, by its number among those of the rank. all: the tensor is
 * that of all of the rank's experts, under names of before 2026; see
 * read_experts.c. NULL when there is neither. */
const struct gpt_safetensor *
gpt_megatron_expert(const struct gpt_megatron_chunk *chunk,
                    enum gpt_param_role role, int64_t local, int64_t expert,
                    bool *all);
/* Name `i` of a parameter, after that of its layer; NULL after the last. */
const char *gpt_megatron_alias(enum gpt_param_role role, int i);
/* Layers that a chunk's names speak of: the largest number and one. */
int64_t gpt_megatron_layers(const struct gpt_safetensors *tensors);
/* True for what an optimizer has state of: not for constants. */
bool gpt_megatron_is_parameter(const char *name);
/* What a stage without the word table has of it, in old trees. */
#define GPT_MEGATRON_HEAD "word_embeddings_for_head."
/* True for what is in state dicts beside parameters. */
bool gpt_megatron_ignores(const char *name);
/* The path of a parameter in a state dict, its keys separated by '/'; false
 * when the format has none. sparse: its layer has experts; expert: the number
 * among those of the rank, where it is one's. */
bool gpt_megatron_path(char *buf, size_t cap, enum gpt_megatron_names style,
                       enum gpt_param_role role, int64_t local, bool sparse,
                       int64_t expert);

/* ---- writing ---- */
struct gpt_target;
struct gpt_target_options;
struct gpt_fill;

/* Puts the key "args" and its value into the dict that is open: the options
 * that a run of Megatron-LM with this model and layout has had. dtype: of the
 * parameters; file: the rank's, counted over all. */
void gpt_megatron_put_args(struct gpt_pickle_out *o, const struct gpt_target *t,
                           int64_t file, enum gpt_dtype dtype);

/* The names of a schedule's numbers, in Megatron-LM (`there`) and in
 * gpt-checkpoint(5) (`here`). The last row has none. */
struct gpt_megatron_field {
    const char *there, *here;
};
extern const struct gpt_megatron_field gpt_megatron_schedule[];
/* The names of a schedule's words, in the same way, and the word that an absent
 * one stands for. */
struct gpt_megatron_word {
    const char *there, *here, *absent;
};
extern const struct gpt_megatron_word gpt_megatron_schedule_words[];

int gpt_megatron_plan(struct gpt_target *t, struct gpt_err *err) GPT_MUST_USE;
/* True when ranks share query groups in this layout and naming. */
bool gpt_megatron_shares_groups(const struct gpt_target_options *options);
void gpt_megatron_free_plan(struct gpt_target *t);
int gpt_megatron_write(struct gpt_target *t, struct gpt_fill *fill,
                       struct gpt_err *err) GPT_MUST_USE;

#endif
