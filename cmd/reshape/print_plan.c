/* Showing what a conversion would do; see print_plan.h. A plan is the product
 * of a dry run, so it goes to standard output. Both forms have the same numbers
 * in the same order. */
#include "cmd/reshape/print_plan.h"

#include "base/num.h"

#include <stdio.h>

/* The time is a lower bound: the disk of the output may be slower than the
 * reading. */
void gpt_plan_print(const struct gpt_reshape *r, double rate)
{
    char size[32], time[32];

    printf("read   %s: %s%s\n", r->source.dir,
           gpt_text_bytes(size, (double)r->source.weight_bytes),
           r->source.n_adapters ? ", adapters included" : "");
    for (int64_t i = 0; i < r->source.n_adapters; i++)
        printf("merge  %s\n", r->source.adapters[i]);
    for (int64_t i = 0; i < r->target.n_files; i++) {
        const struct gpt_target_file *f = &r->target.files[i];

        printf("write  %s: %lld tensor%s, %s\n", f->name,
               (long long)f->tensors, gpt_plural(f->tensors),
               gpt_text_bytes(size, (double)f->bytes));
    }
    printf("total  %s to be written",
           gpt_text_bytes(size, (double)r->target.bytes));
    printf(", at most %s of memory\n",
           gpt_text_bytes(size, (double)gpt_reshape_memory(r)));
    if (rate > 0) {
        printf("time   %s at least, ",
               gpt_text_duration(time, (double)r->target.bytes / rate));
        printf("as the input is read and converted at %s a second\n",
               gpt_text_bytes(size, rate));
    }
}

/* Numbers are not rounded to units. The rate is left out where the input is too
 * small to measure one: 0 seconds would be a promise. */
int gpt_plan_print_json(const struct gpt_reshape *r, double rate,
                        struct gpt_err *err)
{
    cJSON *root = cJSON_CreateObject(), *files;

    cJSON_AddStringToObject(root, "input", r->source.dir);
    cJSON_AddStringToObject(root, "output", r->target.path);
    cJSON_AddStringToObject(root, "format", r->target.format->name);
    cJSON_AddNumberToObject(root, "read", (double)r->source.weight_bytes);
    cJSON_AddNumberToObject(root, "write", (double)r->target.bytes);
    cJSON_AddNumberToObject(root, "memory", (double)gpt_reshape_memory(r));
    if (r->source.n_adapters)
        gpt_json_add(root, "adapters",
                     cJSON_CreateStringArray(r->source.adapters,
                                             (int)r->source.n_adapters));
    if (rate > 0) {
        cJSON_AddNumberToObject(root, "bytes_per_second", rate);
        cJSON_AddNumberToObject(root, "seconds",
                                (double)r->target.bytes / rate);
    }
    /* in the order in which they are written */
    files = cJSON_AddArrayToObject(root, "files");
    for (int64_t i = 0; i < r->target.n_files; i++) {
        cJSON *item = cJSON_CreateObject();

        cJSON_AddStringToObject(item, "name", r->target.files[i].name);
        cJSON_AddNumberToObject(item, "bytes",
                                (double)r->target.files[i].bytes);
        cJSON_AddNumberToObject(item, "tensors",
                                (double)r->target.files[i].tensors);
        gpt_json_add(files, NULL, item);
    }
    char *text = gpt_json_print(root, false);
    if (text)
        puts(text);
    cJSON_Delete(root);
    int status = text ? GPT_OK : gpt_no_memory(err, "the plan");
    cJSON_free(text);
    return status;
}
