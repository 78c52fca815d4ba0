/* Views between tensors of two dimensions here and of one or three there. Only
 * boxes and strides change; see plan.h. */
#include "checkpoint/huggingface/map_dims.h"

#include "base/num.h"

/* A vector as a matrix of one row, with the same pieces, appended. */
int gpt_hf_lift_vector(struct gpt_tensor *out, const struct gpt_tensor *vector,
                       struct gpt_err *err)
{
    for (size_t i = 0; i < vector->n; i++) {
        struct gpt_file_box box = vector->pieces[i];

        box.begin[1] = box.begin[0];
        box.shape[1] = box.shape[0];
        box.stride[1] = box.stride[0];
        box.begin[0] = box.stride[0] = 0;
        box.shape[0] = 1;
        GPT_TRY(gpt_tensor_add(out, &box, err));
    }
    return GPT_OK;
}

/* The reverse. */
int gpt_hf_lower_row(struct gpt_tensor *out, const struct gpt_tensor *row,
                     struct gpt_err *err)
{
    for (size_t i = 0; i < row->n; i++) {
        struct gpt_file_box box = row->pieces[i];

        box.begin[0] = box.begin[1];
        box.shape[0] = box.shape[1];
        box.stride[0] = box.stride[1];
        GPT_TRY(gpt_tensor_add(out, &box, err));
    }
    return GPT_OK;
}

/* One vector there and one row here, by a matrix of one row between them. */
int gpt_hf_view_row(struct gpt_tensor *out, const struct gpt_tensor *in,
                    const struct gpt_param *p, int64_t row, bool import,
                    struct gpt_err *err)
{
    const int64_t shape[] = {1, p->shape[1]};
    struct gpt_map m = {.shape = {1, p->shape[1]}, .perm = {0, 1, 2, 3}};
    struct gpt_tensor between =
        gpt_tensor_make(in->name, in->dtype, 2, shape);
    int status;

    if (import) {
        m.to[0] = row;
        status = gpt_hf_lift_vector(&between, in, err);
        if (status == GPT_OK)
            status = gpt_tensor_view(out, &between, &m, 1, err);
    } else {
        m.from[0] = row;
        status = gpt_tensor_view(&between, in, &m, 1, err);
        if (status == GPT_OK)
            status = gpt_hf_lower_row(out, &between, err);
    }
    gpt_tensor_free(&between);
    return status;
}

/* Matrices that lie apart, as one above the other: a piece of each. Where they
 * lie close, as in a file, they stay one piece. */
int gpt_hf_flatten(struct gpt_tensor *out, const struct gpt_tensor *in,
                   struct gpt_err *err)
{
    const int64_t rows = in->shape[1];

    for (size_t i = 0; i < in->n; i++) {
        const struct gpt_file_box *p = &in->pieces[i];
        const bool close = p->shape[1] == rows &&
                           p->stride[0] == rows * p->stride[1];
        struct gpt_file_box box = *p;

        box.begin[1] = p->begin[2];
        box.shape[0] = p->shape[1] * (close ? p->shape[0] : 1);
        box.shape[1] = p->shape[2];
        box.stride[0] = p->stride[1];
        box.stride[1] = p->stride[2];
        box.begin[2] = box.shape[2] = box.stride[2] = 0;
        for (int64_t k = 0; k < (close ? 1 : p->shape[0]); k++) {
            box.begin[0] = (p->begin[0] + k) * rows + p->begin[1];
            box.offset = p->offset + k * p->stride[0];
            GPT_TRY(gpt_tensor_add(out, &box, err));
        }
    }
    return GPT_OK;
}

/* The reverse: a piece of several matrices stays one, and its ends, if they are
 * less, are others. */
int gpt_hf_stack(struct gpt_tensor *out, const struct gpt_tensor *in,
                 struct gpt_err *err)
{
    const int64_t rows = out->shape[1];

    for (size_t i = 0; i < in->n; i++) {
        const struct gpt_file_box *p = &in->pieces[i];

        for (int64_t done = 0, n; done < p->shape[0]; done += n) {
            const int64_t row = p->begin[0] + done, rest = p->shape[0] - done;
            const int64_t whole = row % rows == 0 ? rest / rows : 0;
            struct gpt_file_box box = *p;

            n = whole > 0 ? whole * rows
                          : gpt_min_i64(rest, rows - row % rows);
            box.begin[0] = row / rows;
            box.begin[1] = row % rows;
            box.begin[2] = p->begin[1];
            box.shape[0] = whole > 0 ? whole : 1;
            box.shape[1] = n / box.shape[0];
            box.shape[2] = p->shape[1];
            box.stride[0] = rows * p->stride[0];
            box.stride[1] = p->stride[0];
            box.stride[2] = p->stride[1];
            box.offset += done * p->stride[0];
            GPT_TRY(gpt_tensor_add(out, &box, err));
        }
    }
    return GPT_OK;
}

int gpt_hf_turn_matrices(struct gpt_tensor *out, const struct gpt_tensor *in,
                         int64_t n, const int64_t here[2], bool import,
                         struct gpt_err *err)
{
    const int64_t shape[] = {n * here[1], here[0]};
    struct gpt_tensor between = gpt_tensor_make(in->name, in->dtype, 2, shape);
    int status = import ? gpt_hf_flatten(&between, in, err) : GPT_OK;

    for (int64_t e = 0; status == GPT_OK && e < n; e++) {
        struct gpt_map m = {.perm = {1, 0, 2, 3},
                            .shape = {here[!import], here[import]}};

        m.to[0] = e * here[!import];
        m.from[0] = e * here[import];
        status = gpt_tensor_view(import ? out : &between,
                                 import ? &between : in, &m, 1, err);
    }
    if (status == GPT_OK && !import)
        status = gpt_hf_stack(out, &between, err);
    gpt_tensor_free(&between);
    return status;
}
