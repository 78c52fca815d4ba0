/* The memory of a rank by kind: what is predicted before it is allocated, and
 * whether it is memory of the device or of the host. The stage, the engine in
 * train/, the communicators and gpt-train each fill the kinds that they
 * allocate. */
#ifndef GPT_MODEL_MEMORY_KINDS_H
#define GPT_MODEL_MEMORY_KINDS_H

#include "backend.h"

enum gpt_memory_kind {
    GPT_MEM_PARAMETERS,
    GPT_MEM_GRADIENTS,
    GPT_MEM_OPTIMIZER,
    /* a stage allocates the next four; stage_internal.h names the range */
    GPT_MEM_ACTIVATIONS, /* kept from forward to backward, every slot */
    GPT_MEM_LOGITS,      /* one chunk of rows of the output layer */
    GPT_MEM_WORKSPACE,   /* used within a layer, shared by all */
    GPT_MEM_INPUTS,      /* tokens, targets, masks, losses */
    GPT_MEM_SAMPLES,     /* where in the data each sample of the run starts */
    GPT_MEM_BATCHES,     /* a global batch, and the next one */
    GPT_MEM_EXCHANGE,    /* on its way to other ranks and from them */
    GPT_MEM_SAVING,      /* what is saved in the background */
    GPT_N_MEMORY_KINDS
};

struct gpt_memory {
    int64_t bytes[GPT_N_MEMORY_KINDS];
};

const char *gpt_memory_kind_name(enum gpt_memory_kind kind);

/* Bytes of all kinds, and of those that the device holds: every kind where the
 * device computes in host memory. As double: predictions for absurd options
 * must not overflow. */
double gpt_memory_total(const struct gpt_memory *memory);
double gpt_memory_device(const struct gpt_memory *memory,
                         const struct gpt_backend *be);

#endif
