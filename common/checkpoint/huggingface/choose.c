/* The family of a model that is written: the first in which it is the same
 * model when its config.json is read again. Start at gpt_hf_choose_family(). */
#include "checkpoint/huggingface/huggingface.h"
#include "checkpoint/nearest.h"

#include <string.h>

/* The round trip needs no list of what each family lacks. A model that a family
 * cannot even be asked for differs in its whole configuration, which is more
 * than any number of fields. Where memory was out there is no answer, as a
 * model that was not compared would be taken for one of the next family. */
static int find_misfit(struct gpt_misfit *m, const struct gpt_config *c,
                       const struct gpt_hf_family *family, struct gpt_err *err)
{
    struct gpt_hf_extra extra = {.family = family}, again;
    struct gpt_config read;
    cJSON *made = gpt_hf_config_make(c, &extra, GPT_F32);
    /* through text: what is compared is what a reader of the file sees, and
     * a number that is written in a way of its own is one there */
    char *text = gpt_json_print(made, false);
    cJSON *json = text ? cJSON_Parse(text) : NULL;
    int status = GPT_EFAIL;

    *m = (struct gpt_misfit){family->model_type, {GPT_HF_CONFIG}, SIZE_MAX};
    /* no message: that a family does not fit is an answer */
    if (json)
        status = gpt_hf_config_parse(&read, &again, json, GPT_HF_CONFIG, NULL);
    if (status == GPT_OK)
        m->n = gpt_config_differences(c, &read, m->fields, GPT_MISFIT_FIELDS);
    cJSON_free(text);
    cJSON_Delete(made);
    cJSON_Delete(json);
    return gpt_json_out_of_memory() || status == GPT_EFAIL
               ? gpt_no_memory(err, GPT_HF_CONFIG)
               : GPT_OK;
}

/* The row of a model type, of which some have several, that has the model; else
 * *family stays. */
static int choose_of_type(const struct gpt_config *c, const char *model_type,
                          const struct gpt_hf_family **family, bool *chosen,
                          struct gpt_err *err)
{
    struct gpt_misfit m;

    *chosen = false;
    for (size_t i = 0; i < gpt_hf_n_families && !*chosen; i++) {
        if (strcmp(gpt_hf_families[i]->model_type, model_type) != 0)
            continue;
        GPT_TRY(find_misfit(&m, c, gpt_hf_families[i], err));
        *chosen = m.n == 0;
        if (*chosen)
            *family = gpt_hf_families[i];
    }
    return GPT_OK;
}

/* Model types of the table. */
static size_t count_types(void)
{
    size_t n = 0;

    for (size_t i = 0; i < gpt_hf_n_families; i++) {
        size_t k = 0;

        while (strcmp(gpt_hf_families[k]->model_type,
                      gpt_hf_families[i]->model_type) != 0)
            k++;
        n += k == i;
    }
    return n;
}

/* What the class asks for beside the round trip: a file of such a model that
 * was read goes out as it came in, but no other model goes out that way. */
static void check_class(struct gpt_misfit *m, const struct gpt_config *c,
                        const struct gpt_hf_family *family)
{
    if (m->n > 0)
        return;
    if (c->rotary_scaling == GPT_SCALING_LONGROPE && !family->turns_again)
        m->fields[m->n++] = "rotary_scaling";
    else if (c->rotary_scaling == GPT_SCALING_LONGROPE &&
             c->head_size != c->hidden_size / c->num_attention_heads)
        m->fields[m->n++] = "head_size"; /* it counts factors by the width */
    else if (family->shares_width &&
             c->hidden_size % c->num_attention_heads != 0)
        m->fields[m->n++] = "hidden_size";
}

int gpt_hf_choose_family(const struct gpt_config *c,
                         const struct gpt_hf_family **family,
                         struct gpt_err *err)
{
    struct gpt_nearest near = {.n = 0};
    struct gpt_misfit m;
    bool chosen;

    if (*family) {
        GPT_TRY(choose_of_type(c, (*family)->model_type, family, &chosen, err));
        if (chosen)
            return GPT_OK;
    }
    for (size_t i = 0; i < gpt_hf_n_families; i++) {
        *family = gpt_hf_families[i];
        GPT_TRY(find_misfit(&m, c, *family, err));
        check_class(&m, c, *family);
        if (m.n == 0)
            return GPT_OK;
        gpt_nearest_keep(&near, &m);
    }
    return gpt_nearest_fail(&near, "family of Hugging Face", count_types(),
                            err);
}
