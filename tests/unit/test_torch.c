/* Files of torch.save() with what PyTorch says is in them: DIR/NAME.pt beside
 * DIR/NAME.safetensors, of tests/golden/torch or of the directory given
 * (tests/golden/make_torch.py makes more). Then pickles by hand, one row for
 * each rule of the machine. */
#include "checkpoint/source.h"
#include "checkpoint/safetensors/entry.h"
#include "checkpoint/torch/torch.h"
#include "base/hash.h"

#include "tests/lib/tap.h"

#include <dirent.h>
#include <stdlib.h>

static struct gpt_err err;

/* ---- files ---- */

/* Folds dimensions until a tensor of the plan can hold them: every index of the
 * leading ones is one call. */
static int64_t compare_views(const struct gpt_safetensor *a, struct gpt_in *in,
                             const struct gpt_safetensor *b,
                             struct gpt_in *other)
{
    const int extra = a->ndim > GPT_TENSOR_DIMS ? a->ndim - GPT_TENSOR_DIMS : 0;
    const size_t size = gpt_dtype_bytes(a->dtype);
    int64_t outer = 1, inner = 1, bad = 0, zero[GPT_TENSOR_DIMS] = {0};

    for (int d = 0; d < a->ndim; d++)
        *(d < extra ? &outer : &inner) *= a->shape[d];
    if (inner * outer == 0)
        return 0;
    uint8_t *x = malloc((size_t)inner * size),
            *y = malloc((size_t)inner * size);
    for (int64_t i = 0; x && y && i < outer; i++) {
        struct gpt_safetensor part = *a;
        int64_t rest = i, strides[GPT_SAFETENSORS_DIMS] = {0};

        part.ndim -= extra;
        memmove(part.shape, a->shape + extra, (size_t)part.ndim * 8);
        for (int d = extra - 1; d >= 0; d--) {
            int64_t tight = (int64_t)size;

            for (int k = d + 1; k < a->ndim; k++)
                tight *= a->shape[k];
            part.begin +=
                rest % a->shape[d] * (a->strides ? a->strides[d] : tight);
            rest /= a->shape[d];
        }
        if (a->strides) {
            memcpy(strides, a->strides + extra, (size_t)part.ndim * 8);
            part.strides = strides;
        }
        struct gpt_tensor t =
            gpt_tensor_make(a->name, a->dtype, part.ndim, part.shape);
        if (gpt_stored_add(&t, in, &part, &err) ||
            gpt_tensor_gather(&t, zero, t.shape, t.dtype, x, &err) ||
            gpt_in_read(other, y, b->begin + i * inner * (int64_t)size,
                        (size_t)inner * size, &err) ||
            memcmp(x, y, (size_t)inner * size) != 0)
            bad++;
        gpt_tensor_free(&t);
    }
    free(x);
    free(y);
    return bad;
}

static bool same_tensors(const char *pt, const char *want)
{
    struct gpt_safetensors a, b;
    bool same = true;

    if (gpt_torch_open_tensors(&a, pt, &err) != GPT_OK) {
        printf("# %s\n", err.text);
        return false;
    }
    if (gpt_safetensors_open(&b, want, &err) != GPT_OK)
        return false;
    if (a.n != b.n) {
        printf("# %lld tensors, expected %lld\n", (long long)a.n,
               (long long)b.n);
        same = false;
    }
    for (int64_t i = 0; i < b.n; i++) {
        const struct gpt_safetensor *y = &b.tensors[i];
        const struct gpt_safetensor *x = gpt_safetensors_find(&a, y->name);

        if (x && x->ndim == y->ndim && x->dtype == y->dtype &&
            memcmp(x->shape, y->shape, (size_t)x->ndim * 8) == 0 &&
            compare_views(x, a.in, y, b.in) == 0)
            continue;
        printf("# tensor '%s' differs\n", y->name);
        same = false;
    }
    gpt_safetensors_close(&a);
    gpt_safetensors_close(&b);
    return same;
}

static void check_files(const char *dir)
{
    struct dirent **names;
    int n = scandir(dir, &names, NULL, alphasort), files = 0;

    for (int i = 0; i < n; i++) {
        char pt[GPT_PATH_BYTES], want[GPT_PATH_BYTES];
        const char *name = names[i]->d_name;
        size_t len = strlen(name);

        if (len > 3 && strcmp(name + len - 3, ".pt") == 0) {
            snprintf(pt, sizeof(pt), "%s/%s", dir, name);
            snprintf(want, sizeof(want), "%s/%.*s.safetensors", dir,
                     (int)len - 3, name);
            ok(same_tensors(pt, want), "%s", name);
            files++;
        }
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    ok(files > 0, "%d files in %s", files, dir);
}

/* ---- values ---- */

static void check_values(const char *path)
{
    struct gpt_torch t;
    const struct gpt_pickle_value *args, *v;
    int64_t i = 0, sizes[2] = {0};
    double f = 0;
    int n = 0;

    if (gpt_torch_open(&t, path, &err) != GPT_OK) {
        ok(false, "%s", err.text);
        return;
    }
    args = gpt_pickle_find(t.root, "args");
    ok(gpt_pickle_int(gpt_pickle_find(args, "num_layers"), &i) && i == 2,
       "an attribute of a Namespace");
    ok(gpt_pickle_int(gpt_pickle_find(args, "more"), &i) && i == 1LL << 40,
       "an integer of 41 bits");
    ok(gpt_pickle_int(gpt_pickle_find(args, "less"), &i) && i == -5,
       "a negative one");
    v = gpt_pickle_find(args, "sizes");
    ok(gpt_pickle_sizes(v, 2, sizes, &n) && n == 2 && sizes[0] == 1 &&
       sizes[1] == 2, "a list as sizes");
    ok(!gpt_pickle_sizes(v, 1, sizes, &n), "more of them than a reader takes");
    v = gpt_pickle_find(args, "big");
    ok(v && v->kind == GPT_PICKLE_LONG && !gpt_pickle_int(v, &i),
       "one of 71 bits stays opaque");
    ok(gpt_pickle_is(gpt_pickle_find(args, "name"), "caf\xc3\xa9"),
       "a string of UTF-8");
    ok(gpt_pickle_is_global(gpt_pickle_find(args, "params_dtype"),
                            "torch.bfloat16"),
       "a type is a name");
    ok(gpt_pickle_real(gpt_pickle_find(args, "norm"), &f) && f > 0.99e-5 &&
           f < 1.01e-5,
       "a float");
    ok(gpt_pickle_real(gpt_pickle_find(t.root, "number"), &f) && f > 2.24 &&
           f < 2.26,
       "a scalar of numpy");
    v = gpt_pickle_find(gpt_pickle_find(t.root, "rng"), "np");
    ok(v && v->kind == GPT_PICKLE_TUPLE && v->n == 5 &&
           gpt_pickle_is(v->items[0], "MT19937"),
       "a state of numpy is a tree");
    gpt_torch_close(&t);
}

/* ---- pickles by hand ---- */

#define P(text) text, sizeof(text) - 1

static const struct {
    const char *data;
    size_t len;
    const char *want; /* its text, or a part of the error after '!' */
} cases[] = {
    {P("\x80\x02N."), "None"},
    {P("(I1\nI01\nF2.5\nL-12L\nt."), "(1, True, 2.5, -12)"},
    {P("(S'a'\nVb\nU\1cT\1\0\0\0dl."), "[a, b, c, d]"},
    {P("(dp0\nVk\ng0\ns."), "{k: {k: {k: {...}}}}"},
    {P("cos\nsystem\n(Vx\ntR."), "os.system(x)"},
    {P("(ios\nsystem\n."), "os.system()"},
    {P("(cm\nC\nK\1o."), "m.C(1)"},
    {P("\x80\4\x8c\1m\x8c\1n\x93)\x81}b."), "m.n() with {}"},
    {P("N2\x86\x94"
       "0h\0."),
     "(None, None)"},
    {P("(K\1K\2"
       "1N."),
     "None"},
    {P("K\1\x85R."), "!the stack is empty"},
    {P("Vpersistent\nQ."), "<persistent>"},
    {P("\x8a\1\xff."), "-1"},
    {P("\x8a\0."), "0"},
    {P("G\x3f\xf0\0\0\0\0\0\0."), "1.0"},
    {P("B\2\0\0\0ab."), "<2 bytes>"},
    {P("X\2\0\0\0\xff\xfe."), "<2 bytes>"},
    {P("\x8f(K\1\x90."), "{1}"},
    {P(""), "!the pickle ends here"},
    {P("\x80\6N."), "!protocol 6"},
    {P("\xff."), "!0xff is none of a pickle"},
    {P("NN."), "!2 values on the stack"},
    {P("(N."), "!values on the stack"},
    {P("0."), "!the stack is empty"},
    {P("h\0."), "!was never set"},
    {P("Nr\xff\xff\xff\x7f."), "!memo index 2147483647"},
    {P("NNs."), "!the stack is empty"},
    {P("NNNs."), "!takes no keys"},
    {P("NNa."), "!takes no items"},
    {P("(Nd."), "!a key without a value"},
    {P("}(Nu."), "!a key without a value"},
    {P("NN\x81."), "!no tuple"},
    {P("NNb."), "!takes no state"},
    {P("cm\nn\n)R}b}b."), "!a second state"},
    {P("cm\nn\n)RNa(NNu."), "!takes no keys"},
    {P("X\xff\xff\xff\x7f."), "!the pickle ends here"},
    {P("\x8e\xff\xff\xff\xff\xff\xff\xff\xff."), "!the pickle ends here"},
    {P("\x95\xff\0\0\0\0\0\0\0N."), "!the pickle ends here"},
    {P("\x8b\xff\xff\xff\xff."), "!the pickle ends here"},
    {P("\x82\1."), "!an opcode that no checkpoint has"},
    {P("\x97."), "!an opcode that no checkpoint has"},
    {P("Ix\n."), "!is no number"},
    {P("I99999999999999999999\n."), "!more than 64 bits"},
    {P("Fnan\n."), "!no finite number"},
    {P("Sa\n."), "!without quotes"},
    {P("NN\x93."), "!no string"},
    {P("t."), "!no mark"},
    {P("\x87."), "!fewer than 3"},
};

static void check_case(size_t i)
{
    struct gpt_pickle p;
    struct gpt_buf text = {0};
    const char *want = cases[i].want;

    err = (struct gpt_err){0};
    int status =
        gpt_pickle_parse(&p, cases[i].data, cases[i].len, "x.pt", 100, &err);
    if (*want == '!') {
        ok(status == GPT_EDATA && strstr(err.text, want + 1) &&
               strncmp(err.text, "x.pt: byte 1", 12) == 0 && err.hint[0],
           "case %zu: %s", i, err.text);
    } else if (status != GPT_OK) {
        ok(false, "case %zu: %s", i, err.text);
    } else {
        ok(gpt_pickle_print(&text, p.root, 3, 8) == GPT_OK &&
               strcmp(text.data, want) == 0,
           "case %zu: %s", i, text.data);
    }
    gpt_buf_free(&text);
    gpt_pickle_free(&p);
}

/* A pickle of n bytes that repeat: each must end within the limits. */
static void check_bomb(const char *what, const char *unit, size_t n_unit,
                       size_t n)
{
    struct gpt_pickle p;
    char *data = malloc(n + 1);

    if (!data)
        return;
    for (size_t i = 0; i < n; i++)
        data[i] = unit[i % n_unit];
    data[n] = '.';
    err = (struct gpt_err){0};
    int status = gpt_pickle_parse(&p, data, n + 1, "bomb", 0, &err);
    ok(status == GPT_EDATA, "%s: %s", what, err.text);
    gpt_pickle_free(&p);
    free(data);
}

/* The first value is zlib's. Lengths around the 64 bytes that are folded at
 * once. */
static void check_crc(void)
{
    enum { MOST = 1000 };
    uint8_t data[MOST + 3];
    int wrong = 0;

    for (int i = 0; i < MOST + 3; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 11);
    ok(gpt_crc32(0, "123456789", 9) == 0xcbf43926, "crc of \"123456789\"");
    for (size_t n = 0; n < MOST; n++)
        for (size_t at = 0; at < 3; at++)
            wrong += gpt_crc32((uint32_t)n, data + at, n) !=
                     gpt_crc32_portable((uint32_t)n, data + at, n);
    is_int(wrong, 0, "instructions and tables agree");
}

int main(int argc, char **argv)
{
    check_files(argc > 1 ? argv[1] : "tests/golden/torch");
    if (argc > 1)
        return tap_done();
    check_values("tests/golden/torch/zip.pt");
    check_values("tests/golden/torch/zip5.pt");
    check_values("tests/golden/torch/legacy.pt");
    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        check_case(i);
    check_crc();
    check_bomb("marks", P("("), 1 << 24);
    check_bomb("values", P("N"), 1 << 24);
    check_bomb("lists", P("]"), 1 << 24);
    check_bomb("duplicates", P("N2222222"), 1 << 24);
    check_bomb("memo", P("Nq\1"), 1 << 24);
    return tap_done();
}
