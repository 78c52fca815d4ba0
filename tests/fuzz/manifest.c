/* Fuzz target: the files and slices of a manifest. A list that is accepted is
 * printed and read again; as the pieces of a tensor it is valid or refused. */
#include "checkpoint/native/manifest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool printable(const struct gpt_manifest_list *l)
{
    for (size_t i = 0; i < l->n_slices; i++)
        if (!gpt_name_is_safe(l->slices[i].s.name) ||
            !gpt_name_is_safe(l->slices[i].entry))
            return false;
    return true;
}

/* Prints the list as a whole manifest, which is parsed again. */
static void print_and_parse(struct gpt_manifest_list *l)
{
    struct gpt_manifest_list again = {0};
    struct gpt_buf b = {0};
    struct gpt_err err;
    cJSON *root;

    if (gpt_buf_printf(&b, "{\n") || gpt_manifest_print(&b, l) ||
        gpt_manifest_seal(&b) ||
        gpt_json_parse(&root, b.data, b.len, "again", &err) ||
        gpt_manifest_parse(&again, root, "again", &err) ||
        again.n_files != l->n_files || again.n_slices != l->n_slices)
        abort();
    for (size_t i = 0; i < l->n_slices; i++)
        if (strcmp(again.slices[i].entry, l->slices[i].entry) != 0)
            abort();
    gpt_manifest_free(&again);
    gpt_buf_free(&b);
    cJSON_Delete(root);
}

/* All slices as pieces of the first one's tensor. */
static void check_pieces(const struct gpt_manifest_list *l)
{
    struct gpt_tensor t;
    struct gpt_err err = {0};

    if (l->n_slices == 0)
        return;
    const struct gpt_tensor_slice *head = &l->slices[0].s;
    t = gpt_tensor_make(head->name, head->dtype, head->ndim, head->global);
    for (size_t i = 0; i < l->n_slices; i++) {
        const struct gpt_tensor_slice *s = &l->slices[i].s;

        if (s->ndim == t.ndim &&
            gpt_tensor_add_rows(&t, NULL, 0, t.dtype, s->begin, s->shape,
                                &err) != GPT_OK)
            break;
    }
    if (gpt_tensor_check(&t, "fuzz", &err) != GPT_OK &&
        err.status != GPT_EDATA)
        abort();
    gpt_tensor_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_manifest_list list = {0};
    struct gpt_err err = {0};
    cJSON *root;

    if (gpt_json_parse(&root, (const char *)data, size, "fuzz", &err))
        return 0;
    if (gpt_manifest_parse(&list, root, "fuzz", &err) == GPT_OK) {
        check_pieces(&list);
        if (printable(&list))
            print_and_parse(&list);
    } else if (err.status != GPT_EDATA) {
        abort();
    }
    gpt_manifest_free(&list);
    cJSON_Delete(root);
    return 0;
}
