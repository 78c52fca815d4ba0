/* The family of a model that is written: the first in which it is the same
 * model when its config.json is read again. Start at gpt_hf_choose_family(). */
#include "checkpoint/huggingface/huggingface.h"

#include <string.h>

enum {
    NEAREST = 3, /* families that a message names */
    FIELDS = 6,  /* and fields of each */
};

/* What a family lacks of a model. */
struct misfit {
    const char *model_type;
    const char *fields[FIELDS]; /* the first of n */
    size_t n;
};

/* The families with the fewest differences, these first; of equal ones the
 * first in the table. */
struct nearest {
    struct misfit rows[NEAREST];
    size_t n;
};

/* The round trip needs no list of what each family lacks. A model that a family
 * cannot even be asked for differs in its whole configuration, which is more
 * than any number of fields. Where memory was out there is no answer, as a
 * model that was not compared would be taken for one of the next family. */
static int find_misfit(struct misfit *m, const struct gpt_config *c,
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

    *m = (struct misfit){family->model_type, {GPT_HF_CONFIG}, SIZE_MAX};
    /* no message: that a family does not fit is an answer */
    if (json)
        status = gpt_hf_config_parse(&read, &again, json, GPT_HF_CONFIG, NULL);
    if (status == GPT_OK)
        m->n = gpt_config_differences(c, &read, m->fields, FIELDS);
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
    struct misfit m;

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

/* ---- the message when there is none ---- */

static void remove_row(struct nearest *to, size_t i)
{
    memmove(to->rows + i, to->rows + i + 1, (--to->n - i) * sizeof(*to->rows));
}

/* A model type that has several rows counts once, by its nearest. */
static void keep(struct nearest *to, const struct misfit *m)
{
    size_t at = 0;

    for (size_t i = 0; i < to->n; i++)
        if (strcmp(to->rows[i].model_type, m->model_type) == 0) {
            if (to->rows[i].n <= m->n)
                return;
            remove_row(to, i);
        }
    while (at < to->n && to->rows[at].n <= m->n)
        at++;
    if (at == NEAREST)
        return;
    if (to->n == NEAREST)
        to->n--;
    memmove(to->rows + at + 1, to->rows + at,
            (to->n++ - at) * sizeof(*to->rows));
    to->rows[at] = *m;
}

static int say_misfit(struct gpt_buf *b, const struct misfit *m)
{
    GPT_TRY(gpt_buf_printf(b, "%s%s in", b->len ? "; " : "", m->model_type));
    const size_t shown = m->n == SIZE_MAX ? 1 : m->n < FIELDS ? m->n : FIELDS;

    for (size_t i = 0; i < shown; i++)
        GPT_TRY(gpt_buf_printf(b, "%s %s", i ? "," : "", m->fields[i]));
    return m->n > shown && m->n < SIZE_MAX
               ? gpt_buf_printf(b, " and %zu more", m->n - shown)
               : GPT_OK;
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

/* Which family is meant, we cannot know: some that are near are a hint. */
static int fail_of_all(const struct nearest *near, struct gpt_err *err)
{
    struct gpt_buf b = {0};
    int status = GPT_OK;

    for (size_t i = 0; status == GPT_OK && i < near->n; i++)
        status = say_misfit(&b, &near->rows[i]);
    if (status != GPT_OK) {
        gpt_buf_free(&b);
        return gpt_no_memory(err, "a message");
    }
    status = gpt_fail(err, GPT_EDATA,
                      "no family of Hugging Face is this model; the nearest "
                      "of %zu differ: %s",
                      count_types(), b.data);
    gpt_buf_free(&b);
    return status;
}

int gpt_hf_choose_family(const struct gpt_config *c,
                         const struct gpt_hf_family **family,
                         struct gpt_err *err)
{
    struct nearest near = {.n = 0};
    struct misfit m;
    bool chosen;

    if (*family) {
        GPT_TRY(choose_of_type(c, (*family)->model_type, family, &chosen, err));
        if (chosen)
            return GPT_OK;
    }
    for (size_t i = 0; i < gpt_hf_n_families; i++) {
        *family = gpt_hf_families[i];
        GPT_TRY(find_misfit(&m, c, *family, err));
        if (m.n == 0 && c->rotary_scaling == GPT_SCALING_LONGROPE &&
            !(*family)->turns_again)
            m.fields[m.n++] = "rotary_scaling";
        if (m.n == 0)
            return GPT_OK;
        keep(&near, &m);
    }
    return fail_of_all(&near, err);
}
