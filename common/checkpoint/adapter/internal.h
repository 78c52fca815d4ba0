/* What the files share that merge adapters: places.c finds what an adapter's
 * names mean in the model, change.c changes one tensor, merge_adapter.c decides
 * which. */
#ifndef GPT_CHECKPOINT_ADAPTER_INTERNAL_H
#define GPT_CHECKPOINT_ADAPTER_INTERNAL_H

#include "checkpoint/adapter/adapter.h"
#include "checkpoint/huggingface/huggingface.h"
#include "checkpoint/merge.h"

enum { GPT_PLACE_NAME = GPT_PARAM_NAME + 32 };

/* A tensor of transformers: a part of a parameter, or several. */
struct gpt_place {
    char name[GPT_PLACE_NAME];
    int64_t param;
    const struct gpt_hf_rule *rule;
    int64_t part; /* of its tensors */
    bool tied; /* it is the output layer's name, and the word table's tensor */
};

struct gpt_merged {
    struct gpt_source *s; /* whose tensors these become */
    struct gpt_config config;
    const struct gpt_hf_family *family;
    struct gpt_param_table table;
    struct gpt_tensor *tensors; /* one a parameter, in its order */
    struct gpt_place *places;   /* by name */
    size_t n_places;
    struct gpt_adapter *adapters; /* open, as their files are read later */
    int64_t n_adapters;
    struct gpt_product **products; /* that pieces refer to */
    size_t n_products, cap_products;
    cJSON *state; /* what the source's was, without its run; or NULL */
    struct gpt_arena arena;
};

/* ---- places.c ---- */

/* The place of "MODULE.LEAF", NULL when there is none: an adapter may have been
 * trained on the base model, which lacks the family's prefix, or on one that
 * reads pictures. Others of the same name follow it. */
int gpt_places_find(struct gpt_merged *m, const char *module, const char *leaf,
                    const struct gpt_place **place,
                    struct gpt_err *err) GPT_MUST_USE;
/* The same for a tensor of an adapter: GPT_EDATA when there is none. */
int gpt_places_need(struct gpt_merged *m, const struct gpt_adapter *a,
                    const struct gpt_adapter_entry *e, const char *leaf,
                    const struct gpt_place **place,
                    struct gpt_err *err) GPT_MUST_USE;
/* Builds table, tensors and places of the configuration as it is now, out of
 * the tensors that are there. Rows of a vocabulary that has another size now
 * are zeros. */
int gpt_places_rebuild(struct gpt_merged *m, struct gpt_err *err) GPT_MUST_USE;
/* The parameter of a role outside of layers, or -1. */
int64_t gpt_places_role(const struct gpt_merged *m, enum gpt_param_role role);
void gpt_places_free_tensors(struct gpt_tensor *tensors, int64_t n);

/* ---- change.c ---- */

/* Changes `there`, which has the shape and the pieces of the model's tensor. */
typedef int gpt_change_function(struct gpt_merged *m, struct gpt_tensor *there,
                                const struct gpt_place *place, void *context,
                                struct gpt_err *err);

/* What a change is made of. */
struct gpt_change {
    const struct gpt_adapter *adapter;
    const struct gpt_adapter_entry *entry;
    /* of a product: its two factors, or one and none; a scale */
    const struct gpt_safetensor *a, *b, *lengths;
    bool embedding;
    float scale;
    const cJSON *ids;
};

/* Changes all parameters that the tensor at the place is of. */
int gpt_change_all(struct gpt_merged *m, const struct gpt_place *place,
                   gpt_change_function *function, void *context,
                   struct gpt_err *err) GPT_MUST_USE;
/* The context of each is a struct gpt_change: a whole tensor, a product of
 * matrices, one that is added to a bias, and some rows. GPT_EDATA names both
 * shapes where they do not fit. */
gpt_change_function gpt_change_whole, gpt_change_sum, gpt_change_bias,
    gpt_change_rows;
/* All of a tensor of the adapter, with pieces. */
int gpt_change_take(struct gpt_tensor *t, const struct gpt_adapter *a,
                    const struct gpt_safetensor *st,
                    struct gpt_err *err) GPT_MUST_USE;

#endif
