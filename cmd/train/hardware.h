/* What ranks compute with and how they are connected, in numbers: for the
 * utilization of a run, and for the time of a layout that is only planned. */
#ifndef GPT_CMD_TRAIN_HARDWARE_H
#define GPT_CMD_TRAIN_HARDWARE_H

#include "backend.h"
#include "cmd/train/options.h"

/* One rank's device. Links are those of one rank, one way. */
struct gpt_hardware {
    const char *name;   /* of --hardware */
    const char *device; /* words in a GPU's own name, or NULL */
    int capability;     /* 10 times the compute capability; 0: no GPU */
    double narrow_peak; /* FLOP/s of products of bf16 and fp16, dense */
    double float_peak;  /* ... and of float */
    double efficiency;  /* share of the peak that large products reach */
    double units;       /* that compute a tile of a product each; 0: any */
    double bandwidth;   /* bytes/s of the device's memory */
    double total;       /* bytes of its memory, as its driver counts them */
    double memory;      /* ... that a run can get */
    double launch;      /* seconds of a kernel that does nothing */
    int64_t per_node;   /* ranks of a machine */
    double near_bandwidth, near_latency; /* within it: bytes/s, seconds */
    double far_bandwidth, far_latency;   /* between machines */
};

/* The names of all rows, NULL-terminated: choices of --hardware. */
extern const char *const gpt_hardware_names[];

/* The row of options: --hardware, and every number that an option replaces.
 * `be` is measured where the row is the CPU's. */
int gpt_hardware_choose(struct gpt_hardware *h,
                        const struct gpt_train_options *o,
                        const struct gpt_args *args, struct gpt_backend *be,
                        struct gpt_err *err) GPT_MUST_USE;

/* The backend of a plan for a row's GPU. */
void gpt_hardware_plan(struct gpt_backend *be, const struct gpt_hardware *h);

/* Peak of a rank that computes in `act`, FLOP/s. */
double gpt_hardware_peak(const struct gpt_hardware *h, enum gpt_dtype act);

/* The peak of an open device, FLOP/s, and in `text` what it is: of a GPU the
 * row whose words are in its name, of a CPU what products reach in some
 * milliseconds of trying. 0: not known. */
double gpt_device_peak(struct gpt_backend *be, enum gpt_dtype act, char *text,
                       size_t cap);

#endif
