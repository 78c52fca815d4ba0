/* The schedule of a run as JSON; see lr_schedule_json.h. Start at
 * `fields`: one row a number, for writing, reading and comparing. */
#include "cmd/train/lr_schedule_json.h"

#include "checkpoint/run_state.h"

#include <math.h>

struct field {
    const char *name;
    const char *option; /* that sets it */
    bool real;          /* double, or int64_t */
    size_t offset;      /* in struct gpt_lr_schedule */
    bool newer;         /* checkpoints of old programs lack it: then 0, which
                         * every style that they know leaves unread */
};

#define AT(member) offsetof(struct gpt_lr_schedule, member)
static const struct field fields[] = {
    {"max_lr", "lr", true, AT(max_lr), false},
    {"min_lr", "min-lr", true, AT(min_lr), false},
    /* 0 in checkpoints that lack them */
    {"decoupled_lr", "decoupled-lr", true, AT(decoupled_lr), false},
    {"decoupled_min_lr", "decoupled-min-lr", true, AT(decoupled_min_lr), false},
    {"init_lr", "lr-warmup-init", true, AT(init_lr), false},
    {"warmup_samples", "lr-warmup-iters/-samples/-fraction", true,
     AT(warmup_samples), false},
    {"decay_samples", "lr-decay-iters/-samples", false, AT(decay_samples),
     false},
    {"wsd_decay_samples", "lr-wsd-decay-iters", false, AT(wsd_decay_samples),
     false},
    {"start_wd", "weight-decay", true, AT(start_wd), false},
    {"end_wd", "weight-decay", true, AT(end_wd), false},
    {"wd_incr_samples", "train-iters", false, AT(wd_incr_samples), false},
    {"step_samples", "global-batch-size", false, AT(step_samples), true},
};

/* Counts of real runs are far below 2^53, so that a double holds them
 * exactly. */
static double field_value(const struct gpt_lr_schedule *s,
                          const struct field *f)
{
    const char *at = (const char *)s + f->offset;

    return f->real ? *(const double *)(const void *)at
                   : (double)*(const int64_t *)(const void *)at;
}

/* Styles are written as the names of the options, which stay when the enums
 * change. */
cJSON *gpt_lr_schedule_to_json(const struct gpt_lr_schedule *s)
{
    cJSON *json = cJSON_CreateObject();

    cJSON_AddStringToObject(json, "lr_decay_style",
                            gpt_lr_styles[s->style]);
    cJSON_AddStringToObject(json, "lr_warmup_style",
                            gpt_lr_warmups[s->warmup]);
    cJSON_AddStringToObject(json, "lr_wsd_decay_style",
                            gpt_wsd_styles[s->wsd_style]);
    cJSON_AddStringToObject(json, "weight_decay_incr_style",
                            gpt_wd_styles[s->wd_style]);
    for (size_t i = 0; i < GPT_COUNT(fields); i++)
        cJSON_AddNumberToObject(json, fields[i].name,
                                field_value(s, &fields[i]));
    return json;
}

static int parse_styles(struct gpt_lr_schedule *s, const cJSON *json,
                        const char *what, struct gpt_err *err)
{
    const cJSON *warmup =
        cJSON_GetObjectItemCaseSensitive(json, "lr_warmup_style");
    const char *style, *wsd, *wd;

    GPT_TRY(gpt_json_string(json, "lr_decay_style", &style, what, err));
    GPT_TRY(gpt_json_string(json, "lr_wsd_decay_style", &wsd, what, err));
    GPT_TRY(gpt_json_string(json, "weight_decay_incr_style", &wd, what, err));
    if (!gpt_lr_style_parse(style, &s->style))
        return gpt_fail(err, GPT_EDATA, "%s: unknown lr_decay_style '%s'", what,
                        style);
    if (cJSON_IsString(warmup) &&
        !gpt_lr_warmup_parse(warmup->valuestring, &s->warmup))
        return gpt_fail(err, GPT_EDATA, "%s: unknown lr_warmup_style '%s'",
                        what, warmup->valuestring);
    if (!gpt_wsd_style_parse(wsd, &s->wsd_style))
        return gpt_fail(err, GPT_EDATA, "%s: unknown lr_wsd_decay_style '%s'",
                        what, wsd);
    if (!gpt_wd_style_parse(wd, &s->wd_style))
        return gpt_fail(err, GPT_EDATA,
                        "%s: unknown weight_decay_incr_style '%s'", what, wd);
    return GPT_OK;
}

int gpt_lr_schedule_from_json(struct gpt_lr_schedule *s, const cJSON *state,
                              const char *what, struct gpt_err *err)
{
    const cJSON *json =
        cJSON_GetObjectItemCaseSensitive(state, GPT_RUN_SCHEDULE);

    *s = (struct gpt_lr_schedule){.max_lr = 0};
    if (!cJSON_IsObject(json))
        return gpt_fail(err, GPT_EDATA, "%s: no field 'schedule'", what);
    GPT_TRY(parse_styles(s, json, what, err));
    for (size_t i = 0; i < GPT_COUNT(fields); i++) {
        void *at = (char *)s + fields[i].offset;

        if (fields[i].newer)
            GPT_TRY(gpt_json_int_or(json, fields[i].name, 0, 0, GPT_JSON_EXACT,
                                    at, what, err));
        else if (fields[i].real)
            GPT_TRY(gpt_json_real_or(json, fields[i].name, 0, at, what, err));
        else
            GPT_TRY(gpt_json_int(json, fields[i].name, 0, GPT_JSON_EXACT, at,
                                 what, err));
    }
    /* The file may have been edited. A schedule that passes is defined at every
     * number of samples, so that no step checks again. The message names the
     * file alone: no option of this run is at fault. */
    if (gpt_lr_schedule_check(s, NULL, err) != GPT_OK)
        return gpt_fail(err, GPT_EDATA, "%s: its schedule is not valid", what);
    return GPT_OK;
}

/* Without what does not matter, so that only real differences count. A run with
 * a constant rate may then be made longer, as its decay has no meaning. */
static struct gpt_lr_schedule without_unused(struct gpt_lr_schedule s)
{
    if (s.style == GPT_LR_CONSTANT || s.style == GPT_LR_WARMUP)
        s.decay_samples = 0, s.min_lr = s.decoupled_min_lr = 0;
    /* these have no floor, and the others no steps */
    if (gpt_lr_counts_steps(s.style))
        s.min_lr = s.decoupled_min_lr = 0;
    else
        s.step_samples = 0, s.warmup = GPT_LR_WARMUP_LOG;
    if (s.style != GPT_LR_WSD)
        s.wsd_decay_samples = 0, s.wsd_style = GPT_WSD_LINEAR;
    if (s.warmup_samples == 0 && !gpt_lr_counts_steps(s.style))
        s.init_lr = 0;
    if (s.wd_style == GPT_WD_CONSTANT)
        s.wd_incr_samples = 0;
    return s;
}

/* A warm-up that is a share of the decay may end within a sample. Older
 * versions of this program dropped that fraction, and their checkpoints go
 * on. */
static bool same_value(const struct field *f, double here, double there)
{
    if (f->offset == AT(warmup_samples))
        return fabs(here - there) < 1;
    return !(here < there || here > there);
}

/* Styles come first: with another style the numbers differ for that reason, and
 * would be the wrong ones to report. Both schedules were checked, so that no
 * number is NaN. */
int gpt_lr_schedule_compare(const struct gpt_lr_schedule *here,
                            const struct gpt_lr_schedule *there,
                            const char *what, struct gpt_err *err)
{
    static const char advice[] = "--override-opt-param-scheduler takes this "
                                 "run's schedule, "
                                 "--use-checkpoint-opt-param-scheduler the "
                                 "checkpoint's";
    struct gpt_lr_schedule a = without_unused(*here),
                           b = without_unused(*there);
    const char *style = a.style != b.style           ? "lr-decay-style"
                        : a.warmup != b.warmup       ? "lr-warmup-style"
                        : a.wsd_style != b.wsd_style ? "lr-wsd-decay-style"
                        : a.wd_style != b.wd_style   ? "weight-decay-incr-style"
                                                     : NULL;

    if (style) {
        gpt_fail(err, GPT_EUSAGE, "--%s is not the one in %s", style, what);
        return gpt_hint(err, "%s", advice);
    }
    for (size_t i = 0; i < GPT_COUNT(fields); i++) {
        double x = field_value(&a, &fields[i]), y = field_value(&b, &fields[i]);

        if (!same_value(&fields[i], x, y)) {
            gpt_fail(err, GPT_EUSAGE, "--%s: %s is %.9g here and %.9g in %s",
                     fields[i].option, fields[i].name, x, y, what);
            return gpt_hint(err, "%s", advice);
        }
    }
    return GPT_OK;
}
