/* Native checkpoints: tensors are read back whole and in any slice, in any
 * layout; every damage is GPT_EDATA; an older complete iteration replaces a
 * damaged one. */
#include "checkpoint/native/manifest.h"
#include "checkpoint/native/native.h"
#include "checkpoint/source.h"

#include "base/io.h"
#include "base/memory.h"
#include "tests/lib/checkpoint.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[256];
static struct gpt_err err;

static struct gpt_config tiny(void)
{
    struct gpt_config c = gpt_config_default();

    c.num_layers = 2;
    c.hidden_size = 8;
    c.num_attention_heads = 2;
    c.max_positions = 16;
    c.vocab_size = 30;
    if (gpt_config_complete(&c, 32, 1, &err) != GPT_OK)
        abort();
    return c;
}

static float value(int64_t row, int64_t col)
{
    return (float)(row * 100 + col);
}

/* The 6x8 tensor "w" in the files that `cuts` row blocks make, "b" whole. */
static int save(int64_t iteration, int cuts, unsigned flags)
{
    struct gpt_checkpoint_writer *w;
    struct gpt_config c = tiny();
    float data[48], bias[5] = {1, 2, 3, 4, 5};
    cJSON *state = cJSON_CreateObject();

    cJSON_AddNumberToObject(state, "consumed_samples", 9007199254740991.0);
    int s = gpt_checkpoint_create(&w, root, iteration, flags, &err);
    for (int i = 0; s == GPT_OK && i < cuts; i++) {
        int64_t rows = 6 / cuts;
        char name[64];
        struct gpt_tensor_slice slices[] = {
            {"w", GPT_F32, 2, {6, 8}, {i * rows, 0}, {rows, 8}, data},
            {"b", GPT_F32, 1, {5}, {0}, {5}, bias},
        };

        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = 0; k < 8; k++)
                data[r * 8 + k] = value(i * rows + r, k);
        snprintf(name, sizeof(name), "model_tp%02d_pp00.safetensors", i);
        s = gpt_checkpoint_write(w, name, slices, i == 0 ? 2 : 1, &err);
    }
    if (s == GPT_OK)
        s = gpt_checkpoint_commit(w, &c, cuts, 1, state, &err);
    cJSON_Delete(state);
    return s;
}

/* Any part of w, as float or bfloat16. */
static bool reads(struct gpt_checkpoint *c, int64_t r0, int64_t c0, int64_t nr,
                  int64_t nc, enum gpt_dtype type)
{
    float got[48];
    uint16_t half[48];
    struct gpt_tensor_slice want = {
        "w", type, 2, {0}, {r0, c0}, {nr, nc}, NULL};

    if (checkpoint_read(c, &want, type == GPT_F32 ? (void *)got : half,
                            &err) != GPT_OK)
        return false;
    for (int64_t r = 0; r < nr; r++)
        for (int64_t k = 0; k < nc; k++) {
            float v = value(r0 + r, c0 + k);

            if (type == GPT_F32 ? got[r * nc + k] != v
                                : half[r * nc + k] != gpt_f32_to_bf16(v))
                return false;
        }
    return true;
}

static void test_round_trip(void)
{
    for (int cuts = 1; cuts <= 3; cuts++) {
        struct gpt_checkpoint *c = NULL;
        int64_t tp, pp;
        int bad = 0;

        is_int(save(cuts, cuts, 0), GPT_OK, "saves in %d files", cuts);
        is_int(checkpoint_open(&c, root, -1, true, &err), GPT_OK,
               "opens: %s", err.text);
        if (!c)
            return;
        for (int r0 = 0; r0 < 6; r0++)
            for (int nr = 0; nr <= 6 - r0; nr++)
                for (int c0 = 0; c0 < 8; c0++)
                    for (int nc = 0; nc <= 8 - c0; nc++)
                        bad += !reads(c, r0, c0, nr, nc, GPT_F32) +
                               !reads(c, r0, c0, nr, nc, GPT_BF16);
        is_int(bad, 0, "every slice reads back, cast too");
        gpt_checkpoint_layout(c, &tp, &pp);
        is_int(tp * 10 + pp, cuts * 10 + 1, "layout");
        is_int(gpt_checkpoint_iteration(c), cuts, "iteration");
        is_int(gpt_checkpoint_config(c)->vocab_size, 30, "config");
        is_near(cJSON_GetObjectItem(gpt_checkpoint_state(c),
                                    "consumed_samples")
                    ->valuedouble,
                9007199254740991.0, 0, 0, "state keeps its integers");
        ok(!reads(c, 0, 0, 7, 8, GPT_F32) && err.status == GPT_EDATA,
           "rows beyond the tensor are refused: %s", err.text);
        struct gpt_tensor_slice info, none = {.name = "no", .ndim = 1};
        const struct gpt_tensor *w = checkpoint_find(c, "w");

        ok(w && w->ndim == 2 && w->shape[0] == 6 && w->shape[1] == 8, "has w");
        is_int(checkpoint_read(c, &none, &info, &err), GPT_EDATA,
               "unknown tensor: %s", err.text);
        gpt_checkpoint_close(c);
    }
    is_int(save(2, 1, 0), GPT_EEXIST, "an iteration is not overwritten");
    is_int(save(2, 2, GPT_OUT_FORCE), GPT_OK, "except with force");
}

/* Slices of one tensor in one file: a part of a row, rows, a part of a row. */
static void several_in_a_file(void)
{
    static const struct {
        int64_t begin[2], shape[2];
    } cuts[] = {{{0, 0}, {1, 5}}, {{2, 0}, {3, 8}}, {{0, 5}, {1, 3}},
                {{5, 0}, {1, 2}}, {{1, 0}, {1, 8}}, {{5, 2}, {1, 6}}};
    const int per_file[] = {4, 2};
    struct gpt_tensor_slice slices[4];
    struct gpt_config config = tiny();
    struct gpt_checkpoint_writer *w = NULL;
    struct gpt_checkpoint *c = NULL;
    float data[4][24];
    int at = 0, bad = 0;

    is_int(gpt_checkpoint_create(&w, root, 9, 0, &err), GPT_OK, "create");
    for (int f = 0; f < 2; f++) {
        char name[40];

        for (int i = 0; i < per_file[f]; i++, at++) {
            int64_t cols = cuts[at].shape[1];

            slices[i] = (struct gpt_tensor_slice){
                "w", GPT_F32, 2, {6, 8},
                {cuts[at].begin[0], cuts[at].begin[1]},
                {cuts[at].shape[0], cols}, data[i]};
            for (int64_t k = 0; k < cuts[at].shape[0] * cols; k++)
                data[i][k] = value(cuts[at].begin[0] + k / cols,
                                   cuts[at].begin[1] + k % cols);
        }
        snprintf(name, sizeof(name), "model_dp%02d.safetensors", f);
        is_int(gpt_checkpoint_write(w, name, slices, per_file[f], &err),
               GPT_OK, "%d slices of a tensor in a file", per_file[f]);
    }
    is_int(gpt_checkpoint_commit(w, &config, 1, 1, NULL, &err), GPT_OK,
           "committed");
    is_int(checkpoint_open(&c, root, 9, true, &err), GPT_OK, "opens: %s",
           err.text);
    if (!c)
        return;
    for (int r0 = 0; r0 < 6; r0++)
        for (int nr = 1; nr <= 6 - r0; nr++)
            for (int c0 = 0; c0 < 8; c0++)
                for (int nc = 1; nc <= 8 - c0; nc++)
                    bad += !reads(c, r0, c0, nr, nc, GPT_F32);
    is_int(bad, 0, "every slice reads back");
    gpt_checkpoint_close(c);
}

/* A checkpoint of many ranks has more files than a process may usually open. */
static void many_files(void)
{
    enum { FILES = 40 };
    struct gpt_config config = tiny();
    struct gpt_checkpoint_writer *w = NULL;
    struct gpt_checkpoint *c = NULL;
    struct rlimit limit, low;
    float row[4] = {1, 2, 3, 4};
    int status = gpt_checkpoint_create(&w, root, 10, 0, &err);
    for (int i = 0; i < FILES && status == GPT_OK; i++) {
        struct gpt_tensor_slice slice = {
            "w", GPT_F32, 2, {FILES, 4}, {i, 0}, {1, 4}, row};
        char name[40];

        snprintf(name, sizeof(name), "model_dp%02d.safetensors", i);
        status = gpt_checkpoint_write(w, name, &slice, 1, &err);
    }
    is_int(status, GPT_OK, "%d files", FILES);
    is_int(gpt_checkpoint_commit(w, &config, 1, 1, NULL, &err), GPT_OK,
           "committed");
    getrlimit(RLIMIT_NOFILE, &limit);
    low = (struct rlimit){20, limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
    is_int(checkpoint_open(&c, root, 10, true, &err), GPT_OK,
           "opens where 20 files may be open: %s", err.text);
    gpt_checkpoint_close(c);
    low = (struct rlimit){20, 20};
    setrlimit(RLIMIT_NOFILE, &low);
    is_int(checkpoint_open(&c, root, 10, true, &err), GPT_EIO,
           "not where the system forbids more: %s", err.text);
}

static void incomplete(void)
{
    struct gpt_config config = tiny();
    struct gpt_checkpoint_writer *w = NULL;
    struct gpt_checkpoint *c = NULL;
    float x[8] = {0};
    struct gpt_tensor_slice half = {"w", GPT_F32, 1, {16}, {0}, {8}, x};

    is_int(gpt_checkpoint_create(&w, root, 50, 0, &err), GPT_OK, "create");
    is_int(gpt_checkpoint_write(w, "a.safetensors", &half, 1, &err), GPT_OK,
           "half a tensor");
    is_int(gpt_checkpoint_commit(w, &config, 1, 1, NULL, &err), GPT_OK,
           "committed");
    is_int(checkpoint_open(&c, root, 50, false, &err), GPT_EDATA,
           "a hole is refused: %s", err.text);
    gpt_checkpoint_close(c);
    is_int(gpt_checkpoint_create(&w, root, 51, 0, &err), GPT_OK, "create");
    is_int(gpt_checkpoint_write(w, "../a", &half, 1, &err), GPT_EFAIL,
           "no path as file name: %s", err.text);
    gpt_checkpoint_abort(w);
    c = NULL;
    is_int(checkpoint_open(&c, root, -1, true, &err), GPT_OK,
           "falls back from the hole");
    is_int(c ? gpt_checkpoint_iteration(c) : -1, 3, "to iteration 3");
    gpt_checkpoint_close(c);
}

/* Opens iteration 1 with byte `at` of a file changed, or cut there. */
static int open_damaged(const char *path, int64_t at, int how)
{
    struct gpt_checkpoint *c = NULL;
    struct gpt_out *out;
    char *data;
    size_t len;

    if (gpt_read_file(path, 1 << 24, &data, &len, &err) != GPT_OK)
        abort();
    char old = data[at];
    data[at] ^= (char)(how == 0);
    if (gpt_out_open(&out, path, GPT_OUT_FORCE | GPT_OUT_NOSYNC, 0, &err) ||
        gpt_out_write(out, data, how == 1 ? (size_t)at : len, &err) ||
        (how == 2 && gpt_out_write(out, "x", 1, &err)) ||
        gpt_out_commit(out, &err))
        abort();
    int status = checkpoint_open(&c, root, 1, true, &err);
    gpt_checkpoint_close(c);
    data[at] = old;
    if (gpt_out_open(&out, path, GPT_OUT_FORCE | GPT_OUT_NOSYNC, 0, &err) ||
        gpt_out_write(out, data, len, &err) || gpt_out_commit(out, &err))
        abort();
    gpt_free(data);
    return status;
}

static void test_damage(void)
{
    static const char *const files[] = {"manifest.json",
                                        "model_tp00_pp00.safetensors"};
    static const char *const what[] = {"one bit changed", "cut short",
                                       "one byte longer"};

    for (size_t f = 0; f < 2; f++) {
        char path[400];
        struct stat st;

        snprintf(path, sizeof(path), "%s/iter_0000001/%s", root, files[f]);
        stat(path, &st);
        for (int how = 0; how < 3; how++) {
            int wrong = 0;
            int64_t step = st.st_size / 97 + 1;

            for (int64_t at = 0; at < st.st_size; at += step)
                wrong += open_damaged(path, at, how) != GPT_EDATA;
            is_int(wrong, 0, "%s: %s: %s", files[f], what[how], err.text);
        }
    }
    struct gpt_checkpoint *c = NULL;
    is_int(checkpoint_open(&c, root, 1, true, &err), GPT_OK,
           "repaired, it opens");
    gpt_checkpoint_close(c);
}

/* Manifests with a valid checksum and false data. Each replaces the first
 * `from`. */
static const struct {
    const char *from, *to, *want;
} lies[] = {
    {"\"version\": 1", "\"version\": 3", "version 3"},
    {"gpt-checkpoint", "gpt-chequepoint", "'gpt-chequepoint'"},
    {"\"tensor_parallel\": 2", "\"tensor_parallel\": 0", "out of range"},
    {"\"layout\"", "\"layuot\"", "tensor_parallel"},
    {"\"hidden_size\":\t8", "\"hidden_size\":\t-8", "hidden_size"},
    {"\"hidden_size\":\t8", "\"hidden_siez\":\t8", "hidden_size"},
    {"\"state\": {", "\"sttae\": {", "state"},
    {"\"files\"", "\"flies\"", "files"},
    {"\"tensors\"", "\"tensro\"", "tensors"},
    {"\"size\": 4", "\"size\": 5", "truncated"},
    {"\"size\": 4", "\"size\": 1", "too long"},
    {"\"size\": 4", "\"size\": 1e30, \"x\": 4", "size"},
    {"\"crc32c\": \"", "\"crc32c\": \"f", "bad crc32c"},
    {"\"model_tp01_pp00.safetensors\": {\"size\"",
     "\"../../../etc/passwd\": {\"size\"", "bad file name"},
    {"\"model_tp01_pp00.safetensors\": {\"size\"",
     "\"model_tp02_pp00.safetensors\": {\"size\"", "no such file"},
    {"\"files\": {", "\"files\": {\"x.safetensors\": {\"size\": 1, "
     "\"crc32c\": \"00000000\"}, ", "missing"},
    {"\"begin\": [3,0]", "\"entry\": \"w@3,0\", \"begin\": [3,0]",
     "'w@3,0', it does not"},
    {"\"begin\": [3,0]", "\"entry\": 3, \"begin\": [3,0]", "string"},
    {"\"begin\": [0,0], \"shape\": [3,8]}",
     "\"begin\": [0,0], \"shape\": [3,8]},"
     "{\"file\": \"model_tp00_pp00.safetensors\", \"begin\": [3,0], "
     "\"shape\": [3,8]}", "overlap"},
    {"{\"file\": \"model_tp01_pp00.safetensors\", ",
     "{\"file\": \"model_tp00_pp00.safetensors\", ", "two slices"},
    {"\"slices\": [", "\"slices\": [], \"x\": [", "bad type or slices"},
    {"\"file\": \"model_tp01_pp00.safetensors\"",
     "\"file\": \"model_tp07_pp00.safetensors\"", "no such file"},
    {"\"file\": \"model_tp01_pp00.safetensors\"", "\"file\": 7", "string"},
    {"\"w\": {\"dtype\": \"F32\"", "\"w\": {\"dtype\": \"I32\"",
     "another type"},
    {"\"w\": {\"dtype\": \"F32\"", "\"w\": {\"dtype\": \"F31\"",
     "bad type"},
    {"\"shape\": [6,8]", "\"shape\": [6,9]", "48 of 54"},
    {"\"shape\": [6,8]", "\"shape\": [5,8]", "leaves"},
    {"\"shape\": [6,8]", "\"shape\": [9007199254740992,9007199254740992]",
     "overflows"},
    {"\"shape\": [6,8]", "\"shape\": [6,8,1]", "bad slice"},
    {"\"shape\": [6,8]", "\"shape\": [1,1,1,6,8]", "dimensions"},
    {"\"shape\": [6,8]", "\"shape\": [6,-8]", "dimensions"},
    {"\"shape\": [6,8]", "\"shape\": [6,8.5]", "dimensions"},
    {"\"shape\": [6,8]", "\"shape\": [6,1e300]", "dimensions"},
    {"\"shape\": [6,8]", "\"shape\": \"6x8\"", "dimensions"},
    {"\"begin\": [3,0]", "\"begin\": [2,0]", "overlap"},
    {"\"begin\": [3,0]", "\"begin\": [4,0]", "leaves"},
    {"\"begin\": [3,0]", "\"begin\": [3]", "bad slice"},
    {"\"shape\": [3,8]", "\"shape\": [3,7]", "another type or shape"},
    {"\"b\": {", "\"c\": {", "does not"},
    {"\"b\": {\"dtype\": \"F32\", \"shape\": [5], \"slices\": [\n"
     "    {\"file\": \"model_tp00_pp00.safetensors\", \"begin\": [0], "
     "\"shape\": [5]}]},\n  ",
     "", "knows 1"},
    {"\"iteration\": 2", "\"iteration\": -2", "iteration"},
    {"\"iteration\": 2", "\"iteration\": 2, \"iteration\": 2", "duplicate"},
    {"\"iteration\"", "iteration", "JSON"},
};

static void test_lies(void)
{
    char path[400], *text, *at;
    size_t len;

    snprintf(path, sizeof(path), "%s/iter_0000002/manifest.json", root);
    if (gpt_read_file(path, 1 << 20, &text, &len, &err) != GPT_OK)
        abort();
    for (size_t i = 0; i < GPT_COUNT(lies); i++) {
        struct gpt_checkpoint *c = NULL;
        struct gpt_buf b = {0};
        struct gpt_out *out;

        if (!ok((at = strstr(text, lies[i].from)) != NULL, "has %.40s",
                lies[i].from))
            continue;
        size_t skip = strlen(lies[i].from), tail = 23;
        if (gpt_buf_add(&b, text, (size_t)(at - text)) ||
            gpt_buf_printf(&b, "%s", lies[i].to) ||
            gpt_buf_add(&b, at + skip,
                        len - tail - (size_t)(at - text) - skip) ||
            gpt_manifest_seal(&b) ||
            gpt_out_open(&out, path, GPT_OUT_FORCE, 0, &err) ||
            gpt_out_write(out, b.data, b.len, &err) ||
            gpt_out_commit(out, &err))
            abort();
        int s = checkpoint_open(&c, root, 2, false, &err);
        ok(s == GPT_EDATA && strstr(err.text, lies[i].want), "%.40s: %d %s",
           lies[i].to, s, err.text);
        ok(strstr(err.text, "/iter_0000002/") ||
               strstr(err.text, "/iter_0000002: tensor '"),
           "and the file is named, or what is made of several");
        gpt_checkpoint_close(c);
        gpt_buf_free(&b);
    }
    struct gpt_out *out;
    struct gpt_checkpoint *c = NULL;
    if (gpt_out_open(&out, path, GPT_OUT_FORCE, 0, &err) ||
        gpt_out_write(out, text, len, &err) || gpt_out_commit(out, &err))
        abort();
    is_int(checkpoint_open(&c, root, 2, true, &err), GPT_OK,
           "the truth opens");
    gpt_checkpoint_close(c);
    gpt_free(text);
}

static void test_fall_back(void)
{
    struct gpt_checkpoint *c = NULL;
    char path[400];

    snprintf(path, sizeof(path), "%s/latest_checkpointed_iteration.txt", root);
    unlink(path);
    is_int(checkpoint_open(&c, root, -1, true, &err), GPT_OK,
           "no tracker: the newest complete one");
    is_int(c ? gpt_checkpoint_iteration(c) : -1, 3, "which is 3");
    gpt_checkpoint_close(c);
    snprintf(path, sizeof(path),
             "%s/iter_0000003/model_tp01_pp00.safetensors", root);
    unlink(path);
    is_int(checkpoint_open(&c, root, 3, false, &err), GPT_EDATA,
           "missing file: %s", err.text);
    c = NULL;
    is_int(checkpoint_open(&c, root, -1, false, &err), GPT_OK,
           "falls back again");
    is_int(c ? gpt_checkpoint_iteration(c) : -1, 2, "to 2");
    gpt_checkpoint_close(c);
    is_int(checkpoint_open(&c, "/nonexistent", -1, false, &err), GPT_EIO,
           "no directory: %s", err.text);
}

static void test_prune(void)
{
    struct gpt_checkpoint *c = NULL;

    char path[sizeof(root) + 32];

    is_int(save(7, 1, 0), GPT_OK, "saves 7");
    is_int(gpt_checkpoint_prune(root, 0, &err), GPT_OK, "keep 0: nothing");
    snprintf(path, sizeof(path), "%s/iter_0000001/notes", root);
    is_int(mkdir(path, 0777), 0, "someone's directory in 1");
    is_int(gpt_checkpoint_prune(root, 2, &err), GPT_OK, "keeps two");
    is_int(access(path, F_OK), 0, "and what cannot be removed");
    rmdir(path);
    is_int(gpt_checkpoint_prune(root, 2, &err), GPT_OK, "keeps two again");
    *strrchr(path, '/') = '\0';
    ok(access(path, F_OK) != 0, "removes the rest");
    is_int(checkpoint_open(&c, root, 1, false, &err), GPT_EDATA,
           "1 is gone: %s", err.text);
    is_int(checkpoint_open(&c, root, 7, false, &err), GPT_OK, "7 is not");
    gpt_checkpoint_close(c);
}

/* A run saves another one between two looks at its directory. */
static void test_again(void)
{
    struct gpt_source s;
    char at[GPT_PATH_BYTES];

    is_int(gpt_source_open(&s, root, NULL, &err), GPT_OK, "the newest");
    is_int(s.iteration, 7, "is 7");
    snprintf(at, sizeof(at), "%s", s.at);
    gpt_source_close(&s);
    is_int(save(8, 1, 0), GPT_OK, "saves 8");
    is_int(gpt_source_open(&s, at, NULL, &err), GPT_OK, "opened again");
    is_int(s.iteration, 7, "it still is 7");
    gpt_source_close(&s);
}

/* The best one stays whatever its age, and the link never names another. */
static void test_best(void)
{
    struct gpt_checkpoint *c = NULL;
    char link[sizeof(root) + 8];

    snprintf(link, sizeof(link), "%s/best", root);
    is_int(gpt_checkpoint_best(root), -1, "no checkpoint is marked");
    is_int(gpt_checkpoint_mark_best(root, 1234, &err), GPT_EDATA,
           "one that is not there: %s", err.text);
    is_int(gpt_checkpoint_mark_best(root, 7, &err), GPT_OK, "marks 7");
    is_int(gpt_checkpoint_best(root), 7, "which is the best then");
    is_int(save(17, 1, 0), GPT_OK, "saves 17");
    is_int(save(18, 1, 0), GPT_OK, "and 18");
    is_int(gpt_checkpoint_prune(root, 1, &err), GPT_OK, "keeps one");
    is_int(checkpoint_open(&c, root, 17, false, &err), GPT_EDATA,
           "17 is gone");
    is_int(checkpoint_open(&c, link, -1, false, &err), GPT_OK,
           "the link opens");
    is_int(c ? gpt_checkpoint_iteration(c) : -1, 7, "as 7");
    gpt_checkpoint_close(c);
    is_int(gpt_checkpoint_mark_best(root, 18, &err), GPT_OK, "marks 18");
    is_int(gpt_checkpoint_best(root), 18, "in its place");
    is_int(gpt_checkpoint_prune(root, 1, &err), GPT_OK, "keeps one again");
    is_int(checkpoint_open(&c, root, 7, false, &err), GPT_EDATA,
           "7 is gone");
    unlink(link);
    is_int(mkdir(link, 0777), 0, "a directory of that name");
    is_int(gpt_checkpoint_mark_best(root, 18, &err), GPT_EEXIST,
           "is not replaced: %s", err.text);
    rmdir(link);
}

/* Names come from files, which may have very many. */
static void test_left_out(void)
{
    struct gpt_source s = {0};
    bool added = true;

    for (int i = 0; i < 3000; i++) {
        char name[16];
        const int n = snprintf(name, sizeof(name), "name%d", i);

        added &= gpt_source_leave_out(&s, name, n, &err) == GPT_OK;
    }
    ok(added && strncmp(s.left_out, "name0, name1, ", 14) == 0 &&
           strcmp(s.left_out + strlen(s.left_out) - 12, ", and others") == 0,
       "a long list of what is left out: ...%s",
       s.left_out + strlen(s.left_out) - 12);
    ok(s.arena.used < 1 << 20, "takes %zu bytes", s.arena.used);
    gpt_arena_free(&s.arena);
}

int main(void)
{
    test_left_out();
    snprintf(root, sizeof(root), "%s/gpt-native.XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    make_tree(root);
    test_round_trip();
    test_damage();
    test_lies();
    incomplete();
    test_fall_back();
    test_prune();
    test_again();
    test_best();
    several_in_a_file();
    many_files(); /* last: the limit stays */
    remove_tree(root);
    return tap_done();
}
