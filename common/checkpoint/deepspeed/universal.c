/* Universal checkpoints: a directory a parameter, in it a file for its fp32
 * weights and one for each moment. Start at gpt_deepspeed_open_universal(). */
#include "checkpoint/deepspeed/deepspeed.h"

#include "base/log.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PARAMS = 1 << 20 };

static const char *const files[GPT_N_ADAM_KINDS] = {
    [GPT_KIND_PARAMETERS] = "fp32.pt",
    [GPT_KIND_EXP_AVG] = "exp_avg.pt",
    [GPT_KIND_EXP_AVG_SQ] = "exp_avg_sq.pt",
};

/* A dict with the tensor and how ranks were joined, or, in old versions, the
 * tensor. */
static int take_tensor(struct gpt_deepspeed *d, struct gpt_deepspeed_param *p,
                       int kind, const char *name, struct gpt_err *err)
{
    struct gpt_torch *file;
    struct gpt_torch_tensor t;
    const struct gpt_pickle_value *v;

    GPT_TRY(gpt_deepspeed_add_file(d, name, &file, err));
    v = gpt_pickle_find(file->root, "param");
    if (!v)
        v = file->root;
    /* matrices and vectors are all that a model here has */
    if (!gpt_torch_is_tensor(v))
        return gpt_fail(err, GPT_EDATA, "%s/%s: no tensor 'param'", d->dir,
                        name);
    GPT_TRY(gpt_torch_tensor(file, p->name, v, &t, err));
    if (t.ndim > 2 || !gpt_dtype_is_float(t.dtype))
        return gpt_fail(err, GPT_EDATA, "%s/%s: %d dimensions of %s", d->dir,
                        name, t.ndim, t.type);
    /* views that are not tight have strides of their own */
    p->kinds[kind] = gpt_tensor_make(p->name, t.dtype, t.ndim, t.shape);
    struct gpt_file_box box = {
        .in = file->in, .offset = t.begin, .dtype = t.dtype};
    memcpy(box.shape, t.shape, sizeof(*t.shape) * (size_t)t.ndim);
    memcpy(box.stride, t.stride, sizeof(*t.stride) * (size_t)t.ndim);
    return gpt_tensor_add(&p->kinds[kind], &box, err);
}

/* The count of steps, which every parameter has. Its file is not read again. */
static int take_step(struct gpt_deepspeed *d, const char *param,
                     struct gpt_err *err)
{
    struct gpt_torch file;
    const struct gpt_pickle_value *v;
    char name[GPT_TORCH_PATH], path[GPT_PATH_BYTES];

    snprintf(name, sizeof(name), "zero/%s/step.pt", param);
    if (!gpt_path_holds(d->dir, name))
        return GPT_OK;
    GPT_TRY(gpt_path_join(path, sizeof(path), d->dir, name, err));
    GPT_TRY(gpt_torch_open(&file, path, err));
    v = gpt_pickle_find(file.root, "param");
    int status = gpt_deepspeed_take_step(d, &file, v ? v : file.root, err);
    gpt_torch_close(&file);
    return status;
}

/* The second name of a tied table has weights alone, so moments may be missing;
 * *moments tells whether there are any. */
static int take_param(struct gpt_deepspeed *d, const char *param,
                      bool optimizer, bool *moments, struct gpt_err *err)
{
    struct gpt_deepspeed_param *p = &d->params[d->n];
    char name[GPT_TORCH_PATH];

    p->name = gpt_arena_strdup(&d->arena, param);
    if (!p->name)
        return gpt_no_memory(err, "names of parameters");
    d->n++;
    for (int k = 0; k < (optimizer ? GPT_N_ADAM_KINDS : 1); k++) {
        snprintf(name, sizeof(name), "zero/%s/%s", param, files[k]);
        if (k > 0 && !gpt_path_holds(d->dir, name))
            continue;
        GPT_TRY(take_tensor(d, p, k, name, err));
        *moments |= k == GPT_KIND_EXP_AVG_SQ;
    }
    return optimizer ? take_step(d, param, err) : GPT_OK;
}

/* Names of parameters are names of directories: in any order, as a reader looks
 * them up by name. They are counted first, for the array. */
static int scan_params(struct gpt_deepspeed *d, bool count, bool optimizer,
                       bool *moments, int64_t *n, struct gpt_err *err)
{
    char top[GPT_PATH_BYTES], name[GPT_TORCH_PATH];
    DIR *dir;
    int status = GPT_OK;

    *n = 0;
    GPT_TRY(gpt_path_join(top, sizeof(top), d->dir, "zero", err));
    dir = opendir(top);
    if (!dir)
        return gpt_fail_errno(err, GPT_EIO, "%s: cannot read", top);
    for (struct dirent *e; status == GPT_OK && (e = readdir(dir));) {
        snprintf(name, sizeof(name), "%.600s/%s", e->d_name, files[0]);
        /* optimizer_state.pt lies beside the directories */
        if (*e->d_name == '.' || !gpt_path_holds(top, name))
            continue;
        if (++*n > MAX_PARAMS)
            status = gpt_fail(err, GPT_EDATA, "%s: more than %d parameters",
                              top, MAX_PARAMS);
        else if (!count && *n > d->n)
            status = take_param(d, e->d_name, optimizer, moments, err);
    }
    closedir(dir);
    return status;
}

/* Three files a parameter, all of them open, as any may be read at any time. */
int gpt_deepspeed_open_universal(struct gpt_deepspeed *d, bool optimizer,
                                 struct gpt_err *err)
{
    bool moments = false;
    int64_t n, found;

    GPT_TRY(scan_params(d, true, optimizer, &moments, &n, err));
    GPT_TRY(gpt_new(&d->params, (size_t)n, sizeof(*d->params), "parameters",
                    err));
    GPT_TRY(gpt_in_allow(3 * n + 1, err));
    GPT_TRY(scan_params(d, false, optimizer, &moments, &found, err));
    if (optimizer && !moments)
        gpt_warn("%s: its optimizer state is left out: it is not that of Adam",
                 d->dir);
    else if (d->steps_differ)
        gpt_warn("%s: its optimizer state is left out: %s", d->dir,
                 GPT_TORCH_STEPS_DIFFER);
    d->has_optimizer = moments && !d->steps_differ;
    for (int64_t i = 0; i < d->n; i++)
        for (int k = 0; k < GPT_N_ADAM_KINDS && d->params[i].kinds[k].name; k++)
            GPT_TRY(gpt_tensor_check(&d->params[i].kinds[k], d->dir, err));
    return GPT_OK;
}
