/* Checkpoints of torch.distributed.checkpoint: a directory with a pickle,
 * `.metadata`, and files of parts, each a whole file of torch.save() in a range
 * of bytes. Tensors are global: any reader finds all of one, whatever ranks
 * wrote it. Start at gpt_dcp_open(). Source: torch/distributed/checkpoint
 * (metadata.py, filesystem.py). */
#ifndef GPT_CHECKPOINT_DCP_H
#define GPT_CHECKPOINT_DCP_H

#include "base/memory.h"
#include "checkpoint/plan.h"

#define GPT_DCP_METADATA ".metadata"
/* What Megatron-LM puts beside it, which tells its checkpoints from others. */
#define GPT_DCP_COMMON "common.pt"
/* Directories of accelerate's, for the first model and the first optimizer. */
#define GPT_DCP_FSDP_MODEL "pytorch_model_fsdp_0"
#define GPT_DCP_FSDP_OLD_MODEL "pytorch_model_0" /* up to version 0.21 */
#define GPT_DCP_FSDP_OPTIMIZER "optimizer_0"

enum { GPT_DCP_FILES = 65536 };

struct gpt_dcp_file {
    const char *name;
    struct gpt_in *in;
    int64_t parts; /* of tensors */
};

/* Everything belongs to it until gpt_dcp_close(). */
struct gpt_dcp {
    struct gpt_tensor *tensors; /* by name; types of their first parts */
    bool *used; /* one a tensor, false at first: for a reader's own marks */
    int64_t n;
    const char **objects; /* names of what is no tensor, in the file's order */
    int64_t n_objects;
    struct gpt_dcp_file *files; /* in the order of first mention */
    int64_t n_files;

    /* private */
    size_t cap_files;
    struct gpt_arena arena;
};

/* Reads `.metadata` and the headers of all parts. GPT_EDATA names file and
 * offset; parts that are compressed, and tensors of more dimensions than
 * GPT_TENSOR_DIMS, are refused. */
int gpt_dcp_open(struct gpt_dcp **d, const char *dir,
                 struct gpt_err *err) GPT_MUST_USE;
void gpt_dcp_close(struct gpt_dcp *d); /* NULL is fine */

/* NULL when there is none of that name. */
const struct gpt_tensor *gpt_dcp_find(const struct gpt_dcp *d,
                                      const char *name);

#endif
