/* Linear layers; see linear.h. A layer of two parts makes two products into
 * rows of one buffer; its input's gradient is the sum of two. */
#include "model/linear.h"

static void *part_at(const struct gpt_pass *pass,
                     const struct gpt_linear_part *part, void *rows)
{
    return (char *)rows + (size_t)part->at * gpt_dtype_bytes(pass->act);
}

/* True when `count` elements at `a` end where `b` begins, or there is
 * neither. */
static bool are_neighbours(const struct gpt_pass *pass, const void *a,
                           const void *b, int64_t count)
{
    return !a || (const char *)a + (size_t)count * gpt_dtype_bytes(pass->act) ==
                     (const char *)b;
}

/* Gate and fc1 are one product wherever no gap is between them in the flat
 * buffer, which aligns slices to 64 elements: one large product is faster than
 * two, and its sum is rounded once. */
struct gpt_linear gpt_linear_before(const struct gpt_pass *pass,
                                    const struct gpt_roles *w,
                                    const struct gpt_linear_roles *roles,
                                    int64_t ffn)
{
    void *const *at = w->at;

    if (!pass->config->gated)
        return gpt_linear_one(roles->fc1, roles->fc1_bias, ffn);
    if (are_neighbours(pass, at[roles->gate], at[roles->fc1],
                       ffn * pass->widths.hidden) &&
        are_neighbours(pass, at[roles->gate_bias], at[roles->fc1_bias], ffn))
        return gpt_linear_one(roles->gate, roles->gate_bias, 2 * ffn);
    return (struct gpt_linear){
        .part = {{roles->gate, roles->gate_bias, ffn, 0},
                 {roles->fc1, roles->fc1_bias, ffn, ffn}},
        .n = 2,
        .width = 2 * ffn,
    };
}

/* ---- factors of eight bits ---- */

/* A tensor that ranks share has one scale: a product then rounds as that of one
 * rank would. The ranks have different parts of W in any case, so that one call
 * for all three costs no wait that could be left out. */
void gpt_linear_measure(const struct gpt_pass *pass, const struct gpt_roles *w,
                        const struct gpt_linear *parts, int64_t in,
                        const void *x, int64_t n_x, const void *dy,
                        int64_t n_dy)
{
    float *amax = pass->work.amax;

    if (w->fp8.forward == GPT_FP8_NONE)
        return;
    pass->be->zero(pass->q, amax, GPT_N_LINEAR_TENSORS * sizeof(*amax));
    pass->be->amax(pass->q, &amax[GPT_LINEAR_X], x, n_x);
    /* gate and fc1 are one matrix, with or without a gap between them */
    for (int i = 0; i < parts->n; i++)
        pass->be->amax(pass->q, &amax[GPT_LINEAR_W],
                       w->at[parts->part[i].weight], parts->part[i].out * in);
    if (dy)
        pass->be->amax(pass->q, &amax[GPT_LINEAR_DY], dy, n_dy);
    if (pass->tp)
        gpt_comm_all_reduce(pass->tp, pass->q, amax, GPT_N_LINEAR_TENSORS,
                            GPT_F32, GPT_MAX);
}

/* Chooses the types of eight bits. Sums forward may be coarse; gradients add up
 * over a whole step, and their errors with them. */
static struct gpt_fp8_factors factors(const struct gpt_pass *pass,
                                      const struct gpt_roles *w,
                                      enum gpt_linear_tensor a,
                                      enum gpt_linear_tensor b)
{
    if (w->fp8.forward == GPT_FP8_NONE)
        return (struct gpt_fp8_factors){.a = GPT_FP8_NONE};
    return (struct gpt_fp8_factors){
        .a = a == GPT_LINEAR_DY ? w->fp8.gradients : w->fp8.forward,
        .b = w->fp8.forward,
        .amax_a = &pass->work.amax[a],
        .amax_b = &pass->work.amax[b],
        .scratch = pass->work.scratch,
        .coarse = a == GPT_LINEAR_X,
    };
}

/* ---- forward ---- */

/* The product y (N, out) = x (N, in) W^T + bias, to be changed and run. Without
 * a bias the epilogue must not read one. */
static struct gpt_matmul forward_op(const struct gpt_pass *pass,
                                    const struct gpt_roles *w,
                                    const struct gpt_linear_part *part,
                                    int64_t in, const void *x, void *y)
{
    return (struct gpt_matmul){
        .m = pass->n,
        .n = part->out,
        .k = in,
        .tb = true,
        .a = x,
        .b = w->at[part->weight],
        .c = y,
        .act = pass->act,
        .c_type = pass->act,
        .epilogue = w->at[part->bias] ? GPT_EPI_BIAS : GPT_EPI_NONE,
        .bias = w->at[part->bias],
        .quant = gpt_roles_quant(w, part->weight),
        .sums = pass->sums,
        .fp8 = factors(pass, w, GPT_LINEAR_X, GPT_LINEAR_W),
    };
}

/* Parts write columns of the same rows: `width` steps over the other part's. */
void gpt_linear_wide(const struct gpt_pass *pass, const struct gpt_roles *w,
                     const struct gpt_linear *parts, int64_t in, const void *x,
                     void *y)
{
    gpt_linear_measure(pass, w, parts, in, x, pass->n * in, NULL, 0);
    for (int i = 0; i < parts->n; i++) {
        const struct gpt_linear_part *part = &parts->part[i];
        struct gpt_matmul op =
            forward_op(pass, w, part, in, x, part_at(pass, part, y));

        op.ldc = parts->width;
        pass->be->matmul(pass->q, &op);
    }
}

void gpt_linear_gelu(const struct gpt_pass *pass, const struct gpt_roles *w,
                     const struct gpt_linear *parts, const void *x, void *pre,
                     void *y)
{
    const int64_t in = pass->widths.hidden;
    struct gpt_matmul op = forward_op(pass, w, &parts->part[0], in, x, y);

    op.epilogue = GPT_EPI_BIAS_GELU;
    op.aux = pre;
    gpt_linear_measure(pass, w, parts, in, x, pass->n * in, NULL, 0);
    pass->be->matmul(pass->q, &op);
}

/* Computes this rank's columns of the output, from the inputs of all ranks. The
 * bias is whole on every rank. */
static void whole_sums(const struct gpt_pass *pass, const struct gpt_roles *w,
                       const struct gpt_linear_part *part, int64_t in,
                       const void *x, bool add)
{
    const struct gpt_layout *layout = pass->layout;
    const int64_t tp = layout->size[GPT_TP];
    struct gpt_matmul op = forward_op(pass, w, part, in * tp,
                                      pass->columns->wide, pass->columns->own);

    gpt_pass_join_columns(pass, x, in, pass->columns->wide);
    op.n = part->out / tp;
    op.beta = add ? 1.0F : 0.0F;
    if (op.bias)
        op.bias = (const char *)op.bias + (size_t)(op.n * layout->at[GPT_TP]) *
                                              gpt_dtype_bytes(pass->act);
    pass->be->matmul(pass->q, &op);
}

/* The bias is whole on every rank: added to each part it would count once a
 * rank, so that it is added to their sum. */
void gpt_linear_partial(const struct gpt_pass *pass, const struct gpt_roles *w,
                        enum gpt_param_role weight, enum gpt_param_role bias,
                        int64_t in, const void *x, bool add)
{
    const struct gpt_linear one =
        gpt_linear_one(weight, bias, pass->widths.hidden);

    if (pass->columns) {
        whole_sums(pass, w, &one.part[0], in, x, add);
        return;
    }
    struct gpt_matmul op = forward_op(pass, w, &one.part[0], in, x,
                                      gpt_pass_part(pass, pass->work.x));

    gpt_linear_measure(pass, w, &one, in, x, pass->n * in, NULL, 0);
    op.beta = add ? 1.0F : 0.0F;
    if (pass->tp) {
        op.epilogue = GPT_EPI_NONE;
        op.bias = NULL;
    }
    pass->be->matmul(pass->q, &op);
}

/* One sum over ranks serves both blocks where they are side by side, which
 * halves the waiting. */
void gpt_linear_sum(const struct gpt_pass *pass)
{
    if (pass->columns)
        gpt_pass_join_columns(pass, pass->columns->own,
                              pass->widths.hidden / pass->layout->size[GPT_TP],
                              pass->work.x);
    else
        gpt_pass_sum(pass, gpt_pass_part(pass, pass->work.x), pass->work.x);
}

void gpt_linear_add_bias(const struct gpt_pass *pass,
                         const struct gpt_roles *w, enum gpt_param_role bias)
{
    if (pass->tp && !pass->columns && w->at[bias])
        pass->be->bias_add(pass->q, pass->work.x, w->at[bias], pass->rows,
                           pass->widths.hidden, pass->act);
}

/* ---- backward ---- */

/* The second part adds to what the first has written, in `act`: rounded once
 * more than one product would be. */
void gpt_linear_dx(const struct gpt_pass *pass, const struct gpt_roles *w,
                   const struct gpt_linear *parts, int64_t in, void *dy,
                   void *dx, void *pre)
{
    for (int i = 0; i < parts->n; i++) {
        const struct gpt_linear_part *part = &parts->part[i];
        struct gpt_matmul op = {
            .m = pass->n,
            .n = in,
            .k = part->out,
            .a = part_at(pass, part, dy),
            .lda = parts->width,
            .b = w->at[part->weight],
            .c = dx,
            .act = pass->act,
            .c_type = pass->act,
            .beta = parts->add || i > 0 ? 1.0F : 0.0F,
            .epilogue = pre ? GPT_EPI_DGELU : GPT_EPI_NONE,
            .aux = pre,
            .fp8 = factors(pass, w, GPT_LINEAR_DY, GPT_LINEAR_W),
        };

        pass->be->matmul(pass->q, &op);
    }
}

/* Gradients of weights are float whatever `act` is: a step adds many small
 * terms. The first microbatch overwrites (beta 0). */
void gpt_linear_dw(const struct gpt_pass *pass, const struct gpt_roles *dw,
                   const struct gpt_linear *parts, int64_t in, void *dy,
                   const void *x)
{
    for (int i = 0; i < parts->n; i++) {
        const struct gpt_linear_part *part = &parts->part[i];
        struct gpt_matmul op = {
            .m = part->out,
            .n = in,
            .k = pass->n,
            .ta = true,
            .a = part_at(pass, part, dy),
            .lda = parts->width,
            .b = x,
            .c = dw->at[part->weight],
            .act = pass->act,
            .c_type = GPT_F32,
            .beta = pass->beta,
            .fp8 = factors(pass, dw, GPT_LINEAR_DY, GPT_LINEAR_X),
        };

        pass->be->matmul(pass->q, &op);
    }
}

void gpt_linear_bias_grad(const struct gpt_pass *pass, float *db,
                          const void *dy, int64_t rows, int64_t columns)
{
    if (db)
        pass->be->bias_grad(pass->q, db, dy, rows, columns, pass->act);
}

/* Biases of two parts may have a gap between them: columns are summed into
 * scratch, and each bias takes its own. */
void gpt_linear_bias_grads(const struct gpt_pass *pass,
                           const struct gpt_roles *dw,
                           const struct gpt_linear *parts, const void *dy)
{
    float *first = dw->at[parts->part[0].bias], *sums = pass->work.scratch;

    if (parts->n == 1 || !first) {
        gpt_linear_bias_grad(pass, first, dy, pass->n, parts->width);
        return;
    }
    pass->be->zero(pass->q, sums, (size_t)parts->width * sizeof(*sums));
    gpt_linear_bias_grad(pass, sums, dy, pass->n, parts->width);
    for (int i = 0; i < parts->n; i++)
        pass->be->bias_grad(pass->q, dw->at[parts->part[i].bias],
                            sums + parts->part[i].at, 1, parts->part[i].out,
                            GPT_F32);
}
