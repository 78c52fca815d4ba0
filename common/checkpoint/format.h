/* The table of checkpoint formats. A format is one front end, a file that
 * defines a struct gpt_format, and one row of GPT_FORMAT_LIST. No other file
 * asks which format a checkpoint has: programs see struct gpt_source and struct
 * gpt_target.
 *
 * This folder reads and writes checkpoints: the native format (native.h),
 * Megatron-LM's (megatron.h), Hugging Face's (huggingface.h), GGUF files
 * (gguf.h), llm.c's, those of programs that save by torch.save() (pth.h), and
 * the moving of tensors between any two layouts
 * (plan.h). It knows a model's parameters and the names of optimizer state, and
 * computes nothing with them. Start here. */
#ifndef GPT_CHECKPOINT_FORMAT_H
#define GPT_CHECKPOINT_FORMAT_H

#include "checkpoint/source.h"
#include "checkpoint/target.h"

struct gpt_fill;
struct gpt_format {
    const char *name;  /* as users choose it: "hf" */
    const char *title; /* in reports: "huggingface" */
    /* Dummy rows of the vocabulary are stored, so a target is padded. */
    bool stores_padding;
    bool shares_dir; /* a checkpoint is added to its directory; else it replaces
                      * the directory */
    /* How many of the tokens that end a text are written. With the first goes
     * the token that begins one; 0: neither is. */
    int keeps_ends;
    bool keeps_state; /* optimizer state is written, too */
    bool shards_optimizer; /* ... in a second way: of a distributed one */
    bool shares_experts; /* more ranks than those of the layout share experts */
    bool has_shards;  /* tensors are spread over files of a limited size */
    /* Ways of naming tensors that a target can choose from, the default first;
     * NULL: there is one. NULL-terminated. */
    const char *const *styles;
    bool is_file;      /* a checkpoint is a file, not a directory */
    bool has_packings; /* matrices can be packed: packing.h */

    /* True when `path` is such a checkpoint, judged by the names of files. When
     * false, errno is why it could not look, or what it did not find. */
    bool (*recognises)(const char *path);
    /* Where a directory may hold several checkpoints, the first that is whole
     * for all peers is opened: fills s->data, or fails, on all peers alike.
     * NULL: a path names one. */
    int (*agree)(struct gpt_source *s, const char *path,
                 const struct gpt_source_options *options, struct gpt_err *err);
    /* Fills the public members of *s and s->data, on this rank alone. close()
     * also follows a failure. */
    int (*open)(struct gpt_source *s, const char *path,
                const struct gpt_source_options *options, struct gpt_err *err);
    void (*close)(struct gpt_source *s);
    /* gpt_source_check(); NULL: nothing can be found by reading alone. */
    int (*check)(const struct gpt_source *s, struct gpt_err *err);
    int (*list)(const struct gpt_source *s, gpt_stored_visit *visit,
                void *context, struct gpt_err *err);
    /* Gives the failure to open a directory that has files of such a
     * checkpoint, and not all, a hint. False where nothing is known to be
     * missing. NULL: nothing ever is. */
    bool (*explain)(const char *dir, struct gpt_err *err);

    /* Changes the sizes of *config that ranks divide, where they are not those
     * that gpt-train's do: each of several ranks may get an equal part of a
     * query group. NULL: they are. */
    void (*divide)(const struct gpt_target_options *options,
                   struct gpt_config *config);
    /* Fills t->path, files, n_tensors and data. free_plan() also follows a
     * failure. */
    int (*plan)(struct gpt_target *t, struct gpt_err *err);
    void (*free_plan)(struct gpt_target *t);
    /* Writes, and publishes under t->path, with fill->flags. */
    int (*write)(struct gpt_target *t, struct gpt_fill *fill,
                 struct gpt_err *err);
};

/* In the order in which they are asked; X(name) is gpt_format_NAME. A native
 * root and one of Megatron-LM have the same tracker, so Megatron's is asked
 * first: it looks at what the tracker names. */
#define GPT_FORMAT_LIST(X) \
    X(megatron)            \
    X(native)              \
    X(hf)                  \
    X(gguf)                \
    X(llmc)
/* Formats that are only read. They are asked before the others: a directory of
 * DeepSpeed may hold weights of Hugging Face as well, which lack the state of
 * the optimizer. */
#define GPT_FORMAT_READ_LIST(X) X(deepspeed) X(dcp) X(nanogpt) \
    X(litgpt) X(meta)

#define X(name) extern const struct gpt_format gpt_format_##name;
GPT_FORMAT_LIST(X)
GPT_FORMAT_READ_LIST(X)
#undef X

extern const struct gpt_format *const gpt_formats[]; /* NULL-terminated */
/* Names of those that are written, as choices of an option; NULL-terminated. */
extern const char *const gpt_format_names[];

/* NULL when there is none of that name. */
const struct gpt_format *gpt_format_named(const char *name);
/* *format is the one that recognises `path`, or NULL. GPT_EIO when the file
 * system does not let it look. */
int gpt_format_find(const struct gpt_format **format, const char *path,
                    struct gpt_err *err) GPT_MUST_USE;
/* The same for hints, where a failure is as good as nothing. */
const struct gpt_format *gpt_format_of(const char *path);

/* The first directory in `dir` that is a checkpoint; false when none is. */
bool gpt_format_below(const char *dir, char *path, size_t cap);

/* Gives the failure to open what is at `path` a hint, unless it has one. */
void gpt_source_explain(const char *path, struct gpt_err *err);

/* GPT_EEXIST when `dir` holds something that a checkpoint of the format must
 * not be mixed with, and must not replace: a checkpoint of another format, or
 * files that are none. GPT_EUSAGE when a new directory would be called as files
 * are. */
int gpt_format_check_place(const struct gpt_format *format, const char *dir,
                           struct gpt_err *err) GPT_MUST_USE;

#endif
