/* Losses of one's own; see loss.h. Start at gpt_loss_weigh(); open_plugin() is
 * what a plug-in meets first. A plug-in is trusted, as the program is: it runs
 * in this process. What it returns is checked all the same, since a weight that
 * is not a number would be found in a gradient, far from its cause. */
#include "train/loss.h"

#include "base/hash.h"
#include "base/io.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE = 256 };

struct gpt_loss_rule {
    float *tokens; /* (V), what each adds to its sample's weight; or NULL */
    int64_t n_tokens;
    void *library;
    const struct gpt_loss *plugin; /* or NULL */
    void *state;                   /* the plug-in's */
    bool open;                     /* it was opened and is to be closed */
    struct gpt_token_loss of_tokens;
    char failure[MESSAGE]; /* of a call in a forward pass; "": none */
};

/* ---- weights of tokens ---- */

/* Reads one line, without its end: it is empty, a comment, or an id and a
 * number. */
static int read_line(struct gpt_loss_rule *r, const char *path, int64_t number,
                     char *line, struct gpt_err *err)
{
    char *end, *rest;

    line[strcspn(line, "#")] = '\0';
    if (line[strspn(line, " \t\r")] == '\0')
        return GPT_OK;
    const long long id = strtoll(line, &end, 10);
    const double weight = strtod(end, &rest);
    /* the id ends in a blank: 5.5 is not token 5 with 0.5 */
    if (end == line || rest == end || !strchr(" \t", *end) ||
        rest[strspn(rest, " \t\r")] != '\0')
        return gpt_fail(err, GPT_EDATA,
                        "%s:%" PRId64 ": must be a token's id and a number",
                        path, number);
    if (id < 0 || id >= r->n_tokens)
        return gpt_fail(err, GPT_EDATA,
                        "%s:%" PRId64 ": token %lld is not in 0..%" PRId64,
                        path, number, id, r->n_tokens - 1);
    if (!isfinite(weight) || fabs(weight) > 1e6)
        return gpt_fail(err, GPT_EDATA,
                        "%s:%" PRId64 ": %g is not in -1e6..1e6", path, number,
                        weight);
    r->tokens[id] = (float)weight;
    return GPT_OK;
}

/* Tokens that the file does not name add nothing. A token that it names twice
 * has the last number, as an option would. */
static int read_weights(struct gpt_loss_rule *r, const char *path,
                        struct gpt_err *err)
{
    char *text, *at;
    size_t len;
    int status = GPT_OK;

    GPT_TRY(gpt_new(&r->tokens, (size_t)r->n_tokens, sizeof(*r->tokens),
                    "weights of tokens", err));
    GPT_TRY(gpt_read_file(path, (int64_t)1 << 30, &text, &len, err));
    /* the reader ends the text with a zero byte; an earlier one would hide
     * lines */
    at = text;
    if (strlen(text) != len)
        status = gpt_fail(err, GPT_EDATA, "%s: holds a NUL byte", path);
    for (int64_t number = 1; status == GPT_OK && *at; number++) {
        char *end = at + strcspn(at, "\n");
        const bool last = *end == '\0';

        *end = '\0';
        status = read_line(r, path, number, at, err);
        at = last ? end : end + 1;
    }
    gpt_free(text);
    return status;
}

/* A sample's weight is 1 plus what its input tokens add, and is spread over its
 * unmasked tokens. A sample without any has no loss. Padding adds nothing: what
 * stands for it in the input may be a token that the file names. */
static void weigh_samples(const struct gpt_loss_rule *r,
                          const struct gpt_loss_rows *rows,
                          const int32_t *tokens)
{
    for (int64_t b = 0; b < rows->samples; b++) {
        const int32_t *input = tokens + b * (rows->length + 1);
        float *weight = rows->weight + b * rows->length;
        double sample = 1, unmasked = 0;

        for (int64_t t = 0; t < rows->length; t++) {
            sample += input[t] < 0 ? 0 : (double)r->tokens[input[t]];
            unmasked += (double)weight[t];
        }
        for (int64_t t = 0; unmasked > 0 && t < rows->length; t++)
            weight[t] *= (float)(sample / unmasked / (double)rows->samples);
    }
}

/* Weighs tokens as Megatron-LM does: by the mean over the microbatch. */
static void weigh_tokens(const struct gpt_loss_rows *rows)
{
    const int64_t n = rows->samples * rows->length;
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)rows->weight[i];
    for (int64_t i = 0; sum > 0 && i < n; i++)
        rows->weight[i] = (float)((double)rows->weight[i] / sum);
}

/* ---- plug-ins ---- */

/* Reports a failure of the plug-in. While the plug-in opens, what it was given
 * is to blame; later it is the plug-in itself. */
static int fail_plugin(const struct gpt_loss_rule *r, int status,
                       const char *what, const char *message,
                       struct gpt_err *err)
{
    return gpt_fail(err, status, "loss plug-in '%s': %s: %s",
                    r->plugin->name ? r->plugin->name : "?", what,
                    message[0] ? message : "it failed without a message");
}

/* ISO C has no cast from what dlsym() returns to a function. */
static const struct gpt_loss *ask_library(void *library)
{
    const struct gpt_loss *(*ask)(void);
    void *symbol = dlsym(library, "gpt_loss_plugin");

    memcpy(&ask, &symbol, sizeof(ask));
    return ask ? ask() : NULL;
}

/* A pass cannot fail in its middle: ranks wait for each other in it. The first
 * failure is kept, and later calls are left out. */
static void call_losses(void *context, const struct gpt_loss_tokens *tokens)
{
    struct gpt_loss_rule *r = context;
    char message[MESSAGE] = "";

    if (r->failure[0] ||
        r->plugin->losses(r->state, tokens, message, sizeof(message)) == 0)
        return;
    snprintf(r->failure, sizeof(r->failure), "%s",
             message[0] ? message : "it failed without a message");
    /* the pass goes to its end, and the step fails then */
    memset(tokens->loss, 0, (size_t)tokens->n * sizeof(*tokens->loss));
    memset(tokens->slope, 0, (size_t)tokens->n * sizeof(*tokens->slope));
}

/* Called once a step, on the thread that made the pass. */
static int check_losses(void *context, struct gpt_err *err)
{
    const struct gpt_loss_rule *r = context;

    if (!r->failure[0])
        return GPT_OK;
    return fail_plugin(r, GPT_EFAIL, "losses", r->failure, err);
}

/* Opens the library of a plug-in. A path without a slash would be looked for in
 * the system's folders. A file that cannot be read has its own failure:
 * dlopen() has one for all. */
static int open_plugin(struct gpt_loss_rule *r, const char *path,
                       const char *args, struct gpt_err *err)
{
    char message[MESSAGE] = "", place[GPT_PATH_BYTES];
    struct gpt_in *in;

    GPT_TRY(gpt_in_open(&in, path, err));
    gpt_in_close(in);
    snprintf(place, sizeof(place), "%s%s", strchr(path, '/') ? "" : "./", path);
    r->library = dlopen(place, RTLD_NOW | RTLD_LOCAL);
    if (!r->library)
        return gpt_fail(err, GPT_EUSAGE, "loss plug-in: %s", dlerror());
    r->plugin = ask_library(r->library);
    if (!r->plugin)
        return gpt_fail(err, GPT_EUSAGE, "%s: no function gpt_loss_plugin()",
                        path);
    if (r->plugin->abi != GPT_LOSS_ABI)
        return gpt_fail(err, GPT_EUSAGE,
                        "%s: made for version %u of gpt_loss.h, this program "
                        "has version %d", path, r->plugin->abi, GPT_LOSS_ABI);
    if (!r->plugin->weigh && !r->plugin->losses)
        return gpt_fail(err, GPT_EUSAGE,
                        "%s: neither weighs tokens nor has losses", path);
    if (r->plugin->open &&
        r->plugin->open(&r->state, args, message, sizeof(message)) != 0)
        return fail_plugin(r, GPT_EUSAGE, "open", message, err);
    /* `close` is called where `open` was, and not after a failure of it */
    r->open = true;
    r->of_tokens = (struct gpt_token_loss){
        .context = r, .call = call_losses, .check = check_losses};
    return GPT_OK;
}

/* ---- the rule ---- */

/* A rule is the same object on every thread: after it is opened only `failure`
 * changes, which the thread of the passes alone writes and reads. What a
 * plug-in keeps in its own state is its own to protect. */

int gpt_loss_open(struct gpt_loss_rule **rule,
                  const struct gpt_loss_options *o, struct gpt_err *err)
{
    struct gpt_loss_rule *r;
    int status = GPT_OK;

    *rule = NULL;
    if (!o->token_weights && !o->plugin)
        return GPT_OK;
    GPT_TRY(gpt_new(&r, 1, sizeof(*r), "the loss", err));
    r->n_tokens = o->vocab_size;
    if (o->token_weights)
        GPT_TRY_GOTO(status, read_weights(r, o->token_weights, err), fail);
    if (o->plugin)
        GPT_TRY_GOTO(status,
                     open_plugin(r, o->plugin,
                                 o->plugin_args ? o->plugin_args : "", err),
                     fail);
    *rule = r;
    return GPT_OK;
fail:
    gpt_loss_close(r);
    return status;
}

void gpt_loss_close(struct gpt_loss_rule *r)
{
    if (!r)
        return;
    if (r->open && r->plugin->close)
        r->plugin->close(r->state);
    if (r->library)
        dlclose(r->library);
    gpt_free(r->tokens);
    gpt_free(r);
}

const char *gpt_loss_name(const struct gpt_loss_rule *r)
{
    return r && r->plugin ? r->plugin->name : NULL;
}

/* The file of a plug-in may differ: machines have libraries that were compiled
 * for their own processors. */
int gpt_loss_digest(const struct gpt_loss_rule *r, struct gpt_buf *lines)
{
    const char *name = r && r->plugin ? gpt_loss_name(r) : "none";

    if (r && r->tokens)
        GPT_TRY(gpt_buf_printf(
            lines, "weights of tokens = %016" PRIx64 "\n",
            gpt_hash64(r->tokens, (size_t)r->n_tokens * sizeof(*r->tokens),
                       0)));
    else
        GPT_TRY(gpt_buf_printf(lines, "weights of tokens = none\n"));
    return gpt_buf_printf(lines, "loss plug-in = %s\n", name ? name : "?");
}

/* A plug-in that has losses alone leaves the averages as they are. */
bool gpt_loss_weighs(const struct gpt_loss_rule *r)
{
    return r && (r->tokens || (r->plugin && r->plugin->weigh));
}

/* The masked tokens' cross-entropy may be anything, so that a weight that is
 * not finite would spoil a step without a trace of its cause. */
static int call_weigh(const struct gpt_loss_rule *r,
                      const struct gpt_loss_rows *rows, struct gpt_err *err)
{
    char message[MESSAGE] = "";

    if (r->plugin->weigh(r->state, rows, message, sizeof(message)) != 0)
        return fail_plugin(r, GPT_EFAIL, "weigh", message, err);
    for (int64_t i = 0; i < rows->samples * rows->length; i++)
        if (!isfinite(rows->weight[i]))
            return gpt_fail(err, GPT_EFAIL,
                            "loss plug-in '%s': weigh: the weight of token "
                            "%" PRId64 " of sample %" PRId64 " is not finite",
                            r->plugin->name ? r->plugin->name : "?",
                            i % rows->length,
                            rows->first_sample + i / rows->length);
    return GPT_OK;
}

int gpt_loss_weigh(const struct gpt_loss_rule *r,
                   const struct gpt_loss_rows *rows, const int32_t *tokens,
                   struct gpt_err *err)
{
    if (r->tokens)
        weigh_samples(r, rows, tokens);
    else
        weigh_tokens(rows);
    return r->plugin && r->plugin->weigh ? call_weigh(r, rows, err) : GPT_OK;
}

const struct gpt_token_loss *gpt_loss_of_tokens(struct gpt_loss_rule *r)
{
    return r && r->plugin && r->plugin->losses ? &r->of_tokens : NULL;
}
