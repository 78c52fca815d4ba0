/* Models that read pictures or sound, too, as a table; see pictures.c, which
 * reads their text parts by it. */
#ifndef GPT_CHECKPOINT_HF_PICTURES_H
#define GPT_CHECKPOINT_HF_PICTURES_H

#include <stdbool.h>
#include <stddef.h>

/* What a type's files have beside keys and names. */
enum gpt_hf_peculiarity {
    GPT_HF_NOTHING_MORE,
    GPT_HF_CROSSED_LAYERS, /* layers that attend to pictures among the others,
                            * and 8 words for pictures */
    GPT_HF_TURNED_EXPERTS, /* matrices of experts are transposed */
};

/* Lists end in NULL. */
struct gpt_hf_outer {
    const char *model_type;
    const char *reads;       /* "pictures" */
    const char *text_config; /* the key of the text part's object, which may be
                              * that of another such type; NULL: its keys are
                              * beside the others */
    bool may_be_flat;        /* older files have no such object */
    const char *text_type;   /* model_type of an object that has none */
    const char *tied; /* tie_word_embeddings where it is absent: JSON, "null" as
                       * the part has it; NULL: the part says it, whatever the
                       * whole does */
    const char *const *keys; /* its others: they concern pictures alone; one
                              * that ends in '*' is all that begin so */
    const char *const *left; /* parts that see, by the beginnings of names, or
                              * by words in them, which begin with '.' */
    const struct gpt_hf_renaming {
        const char *from, *to;
    } *names; /* beginnings, too, or words; the first that fits counts */
    const char *const *text_keys; /* of the part, which are of pictures all the
                                   * same; NULL: none */
    const char *when; /* of several rows of a type the one whose file has this
                       * "version"; NULL: there is one */
    enum gpt_hf_peculiarity peculiar;
};
extern const struct gpt_hf_outer gpt_hf_outers[];
extern const size_t gpt_hf_n_outers;

/* Types of text parts that compute what a family does. */
struct gpt_hf_text_type {
    const char *type, *family;
    const char *defaults; /* JSON: those that are not the family's */
};
extern const struct gpt_hf_text_type gpt_hf_text_types[];
extern const size_t gpt_hf_n_text_types;

#endif
