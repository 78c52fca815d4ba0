/* The device of a run: opened, or planned for with --hardware; what it must be
 * able to do; and what carries bytes between ranks. */
#include "cmd/train/run_parts.h"

#include "model/abilities.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CUDA loads a kernel at its first launch and may wait for the device to be
 * idle. With collectives of two groups under way, of which ranks come to one
 * each, that wait never ends. CUDA reads the variable when it starts; what the
 * user has set stays. */
static void load_kernels_early(const struct gpt_run *r)
{
    if (r->world->topology.world_size > 1)
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

/* A limit of memory is one of the run: the GPU has what it has. */
static int plan_device(struct gpt_run *r, struct gpt_err *err)
{
    struct gpt_train_options unlimited = *r->o;

    unlimited.memory_limit = 0;
    GPT_TRY(gpt_hardware_choose(&r->absent_has, &unlimited, &r->args, NULL,
                                err));
    gpt_hardware_plan(&r->absent, &r->absent_has);
    r->be = &r->absent;
    return GPT_OK;
}

/* With --hardware a dry run opens no GPU: what it plans is then the same on a
 * machine that has another one, or none. */
static int open_backend(struct gpt_run *r, struct gpt_err *err)
{
    const bool asked = r->o->dry_run && gpt_option_given(&r->args, "hardware");
    const char *device = asked ? "cpu" : r->o->device;

    if (asked && strcmp(r->o->hardware, "cpu") != 0)
        return plan_device(r, err);
    load_kernels_early(r);
    const int status = gpt_backend_open_rank(
        &r->be, device, r->world->launch.local_rank, err);
    if (status == GPT_EDEVICE && r->o->dry_run)
        gpt_hint(err, "%s%s--hardware NAME plans for a GPU that is not here",
                 err->hint, err->hint[0] ? "; " : "");
    return status;
}

/* The library names no options: a refusal gets the option's name here. */
static int choose_carrier(struct gpt_run *r, struct gpt_err *err)
{
    if (gpt_run_is_absent(r)) {
        if (!r->o->backend)
            r->own_options.backend = gpt_train_backends[GPT_NCCL];
        snprintf(r->carrier, sizeof(r->carrier), "%s",
                 gpt_train_choice(gpt_train_backends, r->o->backend) == GPT_GLOO
                     ? "Gloo" : "NCCL");
        return GPT_OK;
    }
    const int status =
        gpt_world_choose_carrier(r->world, r->be, r->o->backend, r->carrier,
                                 sizeof(r->carrier), err);

    if (status != GPT_EUSAGE || !r->o->backend)
        return status;
    gpt_context(err, "--distributed-backend %s", r->o->backend);
    return gpt_hint(err, "--distributed-backend gloo works on the CPU, and "
                         "lets ranks share a GPU");
}

/* The switch belongs to the backend and not to the plan: it is set before
 * anything is computed. */
static int set_tf32(const struct gpt_run *r, struct gpt_err *err)
{
    if (!r->o->tf32)
        return GPT_OK;
    if (!r->be->allow_tf32)
        return gpt_fail(err, GPT_EUSAGE, "--tf32: device %s has none",
                        r->be->name);
    r->be->allow_tf32(r->be, true);
    return GPT_OK;
}

/* Planning for other ranks computes nothing, so that this machine's device does
 * not limit it. */
static int check_type(const struct gpt_run *r, struct gpt_err *err)
{
    const enum gpt_dtype act = r->plan.replica.exec.act;

    if (r->planned || (r->be->act_types >> act & 1))
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE, "--%s: device %s does not compute in %s",
             act == GPT_F16 ? "fp16" : "bf16", r->be->name,
             gpt_dtype_name(act));
    return gpt_hint(err, act == GPT_F16
                             ? "--bf16 has the range of float and needs no "
                               "loss scale"
                             : "leave --bf16 out");
}

/* The same for products of eight bits. */
static int check_fp8(const struct gpt_run *r, struct gpt_err *err)
{
    if (!r->o->fp8_format || (r->planned && !gpt_run_is_absent(r)) ||
        (r->be->abilities & GPT_CAN_FP8))
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE,
             "--fp8-format: device %s has no products of eight bits",
             r->be->name);
    return gpt_hint(err, "GPUs of compute capability 8.9 and above have them; "
                         "the CPU computes the same, slowly");
}

int gpt_run_open_device(struct gpt_run *r, struct gpt_err *err)
{
    GPT_TRY(open_backend(r, err));
    /* Ranks that are only planned are not there to be connected to. */
    r->plan.replica.world =
        r->planned || gpt_run_is_absent(r) ? NULL : r->world;
    GPT_TRY(check_type(r, err));
    GPT_TRY(check_fp8(r, err));
    GPT_TRY(set_tf32(r, err));
    if (gpt_run_is_first(r))
        gpt_abilities_warn(&r->plan.replica.config, r->plan.replica.exec.act,
                           r->be);
    return choose_carrier(r, err);
}
