/* Finding and opening the files of a Megatron checkpoint. A path is a root with
 * a tracker, or the directory of one iteration; the ranks are the directories
 * in it. Start at gpt_megatron_open(). */
#include "checkpoint/megatron/megatron.h"

#include "base/num.h"
#include "checkpoint/dcp/dcp.h"
#include "checkpoint/names.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 4096, TRACKER_BYTES = 64 };

/* model_rng.pt was the name with a distributed optimizer, until May 2023. */
static const char *const rank_files[] = {GPT_MEGATRON_FILE, "model_rng.pt"};

/* ---- the directory ---- */

/* The numbers in the name of a rank's directory: "mp_rank_TT",
 * "mp_rank_TT_PPP", "mp_rank_TT_PPP_EEE". */
struct place {
    int64_t tp, pp, ep;
    int64_t numbers;
};

/* Old directories of optimizer state have a number of the data parallel rank;
 * they hold no file of a model and are not looked at. */
static bool parse_rank(const char *name, struct place *place)
{
    int64_t value[3] = {0}, n;
    const char *at = name + strlen("mp_rank");

    if (strncmp(name, "mp_rank_", 8) != 0)
        return false;
    for (n = 0; n < 3 && *at == '_'; n++) {
        const size_t digits = strspn(at + 1, "0123456789");

        /* at least as many as Megatron-LM prints; more is no rank's number */
        if (digits < 2 || digits > 6)
            return false;
        value[n] = strtoll(at + 1, NULL, 10);
        at += 1 + digits;
    }
    *place = (struct place){value[0], value[1], value[2], n};
    return *at == '\0' && n > 0;
}

/* True when the directory of a rank holds a file of Megatron-LM's. */
static bool is_rank(const char *dir, const char *name)
{
    char file[GPT_PATH_BYTES];
    struct place place;

    if (!parse_rank(name, &place))
        return false;
    for (size_t k = 0; k < GPT_COUNT(rank_files); k++) {
        snprintf(file, sizeof(file), "%s/%s", name, rank_files[k]);
        if (gpt_path_holds(dir, file))
            return true;
    }
    snprintf(file, sizeof(file), "%s/%s", name, GPT_MEGATRON_SHARDS);
    return gpt_path_holds(dir, file);
}

/* A file of any rank makes one, and in a root, which names iterations, the
 * directory of a rank: what a copy in part lacks is reported when it is opened.
 */
static bool is_iteration(const char *dir, bool in_root)
{
    struct place place;
    bool found = gpt_megatron_is_dist(dir);
    DIR *d = found ? NULL : opendir(dir);

    for (struct dirent *e; d && !found && (e = readdir(d));)
        found = in_root ? parse_rank(e->d_name, &place)
                        : is_rank(dir, e->d_name);
    if (d)
        closedir(d);
    return found;
}

/* True when a root has an iteration of this format. The tracker of a root that
 * has none is another format's, and its reader's to read: a read that fails
 * there must not pass for "not this format". */
static bool has_iterations(const char *root)
{
    char path[GPT_PATH_BYTES];
    DIR *d = opendir(root);
    bool found = false;

    if (!d)
        return false;
    for (struct dirent *e; !found && (e = readdir(d)) != NULL;)
        found = (strncmp(e->d_name, "iter_", 5) == 0 ||
                 strcmp(e->d_name, GPT_MEGATRON_RELEASE) == 0) &&
                gpt_path_join(path, sizeof(path), root, e->d_name, NULL) ==
                    GPT_OK &&
                is_iteration(path, true);
    closedir(d);
    return found;
}

#define BLANKS " \t\r\n"

/* The tracker's word: "release", or a number. Its file is small, and one that
 * is not is no tracker. */
static bool read_tracker(const char *path, char *word, size_t cap)
{
    char file[GPT_PATH_BYTES], *text;
    size_t len;

    if (gpt_path_join(file, sizeof(file), path, GPT_TRACKER, NULL) != GPT_OK ||
        gpt_path_is_dir(file) ||
        gpt_read_held(file, TRACKER_BYTES, &text, &len, NULL) != GPT_OK)
        return false;
    const char *at = text + strspn(text, BLANKS); /* Megatron-LM strips it */
    snprintf(word, cap, "%.*s", (int)strcspn(at, BLANKS), at);
    gpt_free(text);
    return *word != '\0';
}

bool gpt_megatron_find(char *dir, size_t cap, const char *path,
                       int64_t iteration)
{
    char word[TRACKER_BYTES];

    /* the directory of an iteration needs no tracker: users copy it alone */
    if (iteration < 0 && is_iteration(path, false)) {
        snprintf(dir, cap, "%s", path);
        return true;
    }
    if (iteration < 0) {
        if (!has_iterations(path) || !read_tracker(path, word, sizeof(word)))
            return false;
        if (strcmp(word, GPT_MEGATRON_RELEASE) == 0)
            return gpt_path_join(dir, cap, path, word, NULL) == GPT_OK &&
                   is_iteration(dir, true);
        if (!gpt_parse_int(word, &iteration) || iteration < 0)
            return false;
    }
    return gpt_checkpoint_path(dir, cap, path, iteration, NULL) == GPT_OK &&
           is_iteration(dir, true);
}

/* ---- the ranks ---- */

/* The file of a model in a rank's directory, or NULL. Both names in one
 * directory would be of different years; the newer one counts. */
static const char *rank_file(struct gpt_megatron *m, const char *name)
{
    for (size_t k = 0; k < GPT_COUNT(rank_files); k++) {
        const char *file =
            gpt_arena_printf(&m->arena, "%s/%s", name, rank_files[k]);

        if (file && gpt_path_holds(m->dir, file))
            return file;
    }
    return NULL;
}

/* NULL where sizes have grown since. */
static struct gpt_megatron_rank *find_rank(const struct gpt_megatron *m,
                                           const struct place *at)
{
    return at->tp < m->tp_size && at->pp < m->pp_size && at->ep < m->ep_size
               ? gpt_megatron_rank_of(m, at->ep, at->pp, at->tp)
               : NULL;
}

/* Sizes of the layout are the largest numbers; holes are found afterwards. The
 * names are read twice, since an array of ranks needs the sizes first. */
static int scan_ranks(struct gpt_megatron *m, bool place, struct gpt_err *err)
{
    DIR *d = opendir(m->dir);
    struct dirent *e;
    int status = GPT_OK;

    if (!d)
        return gpt_fail_errno(err, GPT_EIO, "%s: cannot read", m->dir);
    /* in any order: a rank's place comes from its name */
    while (status == GPT_OK && (e = readdir(d))) {
        struct gpt_megatron_rank *rank;
        struct place at;

        if (!parse_rank(e->d_name, &at))
            continue;
        const char *file = rank_file(m, e->d_name);
        if (!file) /* optimizer state alone, of the layout before 2023 */
            continue;
        rank = place ? find_rank(m, &at) : NULL;
        if (!place) {
            m->tp_size = gpt_max_i64(m->tp_size, at.tp + 1);
            m->pp_size = gpt_max_i64(m->pp_size, at.pp + 1);
            m->ep_size = gpt_max_i64(m->ep_size, at.ep + 1);
            m->numbers = gpt_max_i64(m->numbers, at.numbers);
        } else if (!rank || rank->file) {
            status = gpt_fail(err, GPT_EDATA,
                              "%s/%s: its rank is there twice, or ranks are "
                              "being added",
                              m->dir, e->d_name);
        } else {
            rank->file = file;
        }
    }
    closedir(d);
    return status;
}

/* Lists the tensors of a state dict, which is inside as many "module" keys as
 * the model had wrappers. */
static int open_chunk(struct gpt_megatron_rank *r,
                      const struct gpt_pickle_value *model, struct gpt_err *err)
{
    struct gpt_megatron_chunk *c = &r->chunks[r->n_chunks];
    const struct gpt_pickle_value *inner;

    for (int i = 0; i < 4 && (inner = gpt_pickle_find(model, "module")) &&
                    gpt_pickle_mapping(inner);
         i++)
        model = inner;
    GPT_TRY(gpt_torch_list(&c->tensors, &r->torch, model, err));
    r->n_chunks++;
    /* a chunk of a last stage may have no layers: an uneven pipeline */
    c->n_layers = gpt_megatron_layers(&c->tensors);
    return gpt_new(&c->used, (size_t)c->tensors.n, sizeof(*c->used), "tensors",
                   err);
}

/* "model", or "model0", "model1", ... of an interleaved schedule. */
static int open_rank(struct gpt_megatron *m, struct gpt_megatron_rank *r,
                     struct gpt_err *err)
{
    const struct gpt_pickle_value *model;
    char path[GPT_PATH_BYTES], key[32];

    GPT_TRY(gpt_path_join(path, sizeof(path), m->dir, r->file, err));
    GPT_TRY(gpt_torch_open(&r->torch, path, err));
    GPT_TRY(gpt_new(&r->chunks, GPT_MEGATRON_CHUNKS, sizeof(*r->chunks),
                    "chunks of a stage", err));
    model = gpt_pickle_find(r->torch.root, "model");
    if (model)
        return open_chunk(r, model, err);
    /* The tree of the file stays in memory until it is closed: arguments and
     * RNG states are small beside what the lists of tensors take. */
    while (r->n_chunks < GPT_MEGATRON_CHUNKS) {
        snprintf(key, sizeof(key), "model%lld", (long long)r->n_chunks);
        model = gpt_pickle_find(r->torch.root, key);
        if (!model)
            break;
        GPT_TRY(open_chunk(r, model, err));
    }
    if (r->n_chunks == 0) {
        gpt_fail(err, GPT_EDATA, "%s: no key 'model'", path);
        return gpt_hint(err, "'gpt-reshape inspect' shows what is in the file");
    }
    return GPT_OK;
}

/* Global numbers of layers: chunk after chunk, and in each stage after stage.
 * This order is right for even stages, uneven ones and interleaved ones, and
 * needs none of their options. */
static int number_layers(struct gpt_megatron *m, struct gpt_err *err)
{
    const int64_t chunks = m->ranks[0].n_chunks;
    int64_t first = 0;

    for (int64_t v = 0; v < chunks; v++)
        for (int64_t pp = 0; pp < m->pp_size; pp++) {
            const int64_t here =
                gpt_megatron_rank(m, pp, 0)->n_chunks > v
                    ? gpt_megatron_rank(m, pp, 0)->chunks[v].n_layers
                    : -1;

            for (int64_t i = 0; i < m->tp_size * m->ep_size; i++) {
                struct gpt_megatron_rank *r = gpt_megatron_rank_of(
                    m, i / m->tp_size, pp, i % m->tp_size);

                if (!r->file)
                    continue;
                if (r->n_chunks != chunks || r->chunks[v].n_layers != here)
                    return gpt_fail(err, GPT_EDATA,
                                    "%s/%s: has other layers than the ranks "
                                    "beside it: the files are of different "
                                    "runs",
                                    m->dir, r->file);
                /* the same on all ranks of a stage: they hold the same layers,
                 * each a part of them */
                r->chunks[v].first_layer = first;
            }
            first += here;
        }
    m->config.num_layers = first;
    return GPT_OK;
}

/* Opens the files of an iteration and lists their tensors. Every rank of the
 * layout must be there: a missing one would leave a hole in every tensor that
 * is cut. */
static int open_ranks(struct gpt_megatron *m, struct gpt_err *err)
{
    int64_t n;

    /* twice, since the array of ranks needs the sizes of the layout */
    GPT_TRY(scan_ranks(m, false, err));
    if (!gpt_mul(m->tp_size, m->pp_size, &n) ||
        !gpt_mul(m->ep_size, n, &n) || n > MAX_RANKS)
        return gpt_fail(err, GPT_EDATA,
                        "%s: %lld x %lld x %lld ranks, limit %d", m->dir,
                        (long long)m->tp_size, (long long)m->pp_size,
                        (long long)m->ep_size, MAX_RANKS);
    if (n == 0) {
        gpt_fail(err, GPT_EDATA, "%s: no %s in its directories mp_rank_*",
                 m->dir, GPT_MEGATRON_FILE);
        return gpt_hint(err, "copy the directory of the iteration whole");
    }
    GPT_TRY(gpt_new(&m->ranks, (size_t)n, sizeof(*m->ranks), "ranks", err));
    GPT_TRY(scan_ranks(m, true, err));
    /* All files stay open, since any tensor may be read from any of them, in
     * the order of the output; a rank may have two. */
    GPT_TRY(gpt_in_allow(2 * n, err));
    if (m->ranks[0].file)
        GPT_TRY(open_rank(m, &m->ranks[0], err));
    GPT_TRY(gpt_megatron_settle_ranks(m, err));
    for (int64_t i = 1; i < n; i++)
        if (m->ranks[i].file)
            GPT_TRY(open_rank(m, &m->ranks[i], err));
    return number_layers(m, err);
}

int gpt_megatron_open(struct gpt_megatron **out, const char *path,
                      int64_t iteration, bool optimizer, struct gpt_err *err)
{
    struct gpt_megatron *m;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&m, 1, sizeof(*m), "a checkpoint", err));
    errno = 0;
    if (!gpt_megatron_find(m->dir, sizeof(m->dir), path, iteration)) {
        /* It was found when the format was chosen. */
        status = gpt_path_hidden(errno)
                     ? gpt_fail_errno(err, GPT_EIO, "cannot look for a "
                                      "checkpoint in '%s'", path)
                     : gpt_fail(err, GPT_EDATA,
                                "%s: no checkpoint of Megatron-LM of iteration "
                                "%lld", path, (long long)iteration);
        goto fail;
    }
    GPT_TRY_GOTO(status,
                 gpt_megatron_is_dist(m->dir) ? gpt_megatron_open_dist(m, err)
                                              : open_ranks(m, err),
                 fail);
    GPT_TRY_GOTO(status, gpt_megatron_configure(m, err), fail);
    if (optimizer)
        GPT_TRY_GOTO(status, gpt_megatron_read_optimizer(m, err), fail);
    GPT_TRY_GOTO(status, gpt_megatron_add_run(m, err), fail);
    GPT_TRY_GOTO(status, gpt_megatron_merge(m, err), fail);
    *out = m;
    return GPT_OK;
fail:
    gpt_megatron_close(m);
    return status;
}

/* Also for what failed halfway; what was not made is zero. */
void gpt_megatron_close(struct gpt_megatron *m)
{
    if (!m)
        return;
    for (int64_t i = 0; i < m->n; i++)
        gpt_tensor_free(&m->tensors[i]);
    for (int64_t i = 0; m->ranks && i < gpt_megatron_ranks(m); i++) {
        struct gpt_megatron_rank *r = &m->ranks[i];

        for (int64_t v = 0; v < r->n_chunks; v++) {
            gpt_safetensors_close(&r->chunks[v].tensors);
            gpt_free(r->chunks[v].used);
            for (int k = 0; k < GPT_MEGATRON_STATES; k++)
                gpt_free(r->chunks[v].state[k]);
        }
        gpt_free(r->chunks);
        gpt_torch_close(&r->torch);
        gpt_torch_close(&r->shards);
    }
    gpt_megatron_free_buckets(m->buckets);
    gpt_dcp_close(m->dist);
    gpt_free(m->tensors);
    gpt_free(m->ranks);
    gpt_params_free(&m->table);
    cJSON_Delete(m->state);
    gpt_arena_free(&m->arena);
    gpt_free(m);
}
