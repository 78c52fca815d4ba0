/* A corpus of small data sets: every token at its place, splits, blends, and
 * refusals. test_samples and test_blend test the order itself. */
#include "data/corpus.h"

#include "base/io.h"
#include "data/indexed.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"
#include "tests/lib/writer.h"

#include <sys/resource.h>

static char dir[] = "/tmp/gpt-test-corpus.XXXXXX";
static char paths[4][64]; /* a, b, c: data sets; d: not there */

/* n sequences; token t of sequence i is 100 * i + t, its length 1 + i % 7.
 * Set 1 counts its sequences from 500. */
static void make_set(int k, int n, int32_t bad)
{
    int32_t tokens[8], length, one = 1;
    struct gpt_indexed_writer *w;
    struct gpt_err err = {0};
    int status;

    status = writer_open(&w, paths[k], GPT_I32, GPT_OUT_FORCE,
                                     &err);
    for (int i = 0; status == GPT_OK && i < n; i++) {
        length = 1 + i % 7;
        for (int t = 0; t < length; t++)
            tokens[t] = 100 * (k == 1 ? 500 + i : i) + t;
        if (bad && i == n / 2)
            tokens[length - 1] = bad;
        const struct gpt_indexed_block b = {tokens, length, &length, 1, &one,
                                            1};
        status = gpt_indexed_writer_add(w, &b, &err);
    }
    if (status == GPT_OK)
        status = writer_commit(w, &err);
    if (status != GPT_OK) {
        printf("# %s\n", err.text);
        exit(1);
    }
}

static struct gpt_corpus_options options(const char *const *args, int64_t n)
{
    return (struct gpt_corpus_options){.data_path = args,
                                       .n_data_path = n,
                                       .seq_length = 8,
                                       .seed = 1234,
                                       .split = "6,3,1",
                                       .n_samples = {20, 3, 1}};
}

static struct gpt_corpus *open_or_die(const struct gpt_corpus_options *o)
{
    struct gpt_corpus *c;
    struct gpt_err err = {0};

    if (gpt_corpus_open(&c, o, &err) != GPT_OK) {
        printf("# %s\n", err.text);
        exit(1);
    }
    return c;
}

/* Each token is followed by the next one of its sequence or by the first of
 * another one, and belongs to sequences [begin, end). */
static bool well_formed(const int32_t *x, int n, int begin, int end)
{
    for (int t = 0; t < n; t++) {
        int sequence = x[t] / 100, at = x[t] % 100;

        if (sequence < begin || sequence >= end || at > sequence % 7)
            return false;
        if (t + 1 < n && x[t + 1] != x[t] + 1 &&
            (at != sequence % 7 || x[t + 1] % 100 != 0))
            return false;
    }
    return true;
}

static void test_tokens(void)
{
    static const char *const impls[] = {"mmap", "cached", "lazy"};
    static const int edge[] = {0, 60, 90, 100}; /* 6,3,1 of 100 */
    const char *const args[] = {paths[0]};
    int32_t first[9] = {0};

    for (size_t i = 0; i < GPT_COUNT(impls); i++) {
        struct gpt_corpus_options o = options(args, 1);
        struct gpt_err err = {0};

        o.impl = impls[i];
        struct gpt_corpus *c = open_or_die(&o);
        for (int k = 0; k < GPT_N_SPLITS; k++) {
            int64_t n = gpt_corpus_size(c, (enum gpt_split)k);
            int bad = 0;

            ok(n >= o.n_samples[k], "%s: split %d has enough", impls[i], k);
            for (int64_t s = 0; s < n; s++) {
                int32_t x[9];

                if (gpt_corpus_get(c, (enum gpt_split)k, s, x, &err) !=
                        GPT_OK || !well_formed(x, 9, edge[k], edge[k + 1]))
                    bad++;
                if (k == 0 && s == 0 && i == 0)
                    memcpy(first, x, sizeof(first));
                else if (k == 0 && s == 0)
                    ok(memcmp(first, x, sizeof(x)) == 0, "%s: same sample",
                       impls[i]);
            }
            is_int(bad, 0, "%s: all samples of split %d", impls[i], k);
            int32_t x[9];
            is_int(gpt_corpus_get(c, (enum gpt_split)k, n, x, &err),
                   GPT_EFAIL, "no sample past the last");
        }
        gpt_corpus_close(c);
    }
}

/* Training samples that come from set 1. */
static int count_second(const struct gpt_corpus *c)
{
    struct gpt_err err;
    int32_t x[9];
    int n = 0;

    for (int64_t i = 0; i < gpt_corpus_size(c, GPT_TRAIN); i++)
        n += gpt_corpus_get(c, GPT_TRAIN, i, x, &err) == GPT_OK &&
             x[0] >= 50000;
    return n;
}

static void test_blends(void)
{
    const char *const args[] = {"3", paths[0], "1", paths[1]};
    const char *const bare[] = {paths[0], paths[1], paths[2]};
    struct gpt_corpus_options o = options(args, 4);
    struct gpt_err err = {0};
    struct gpt_corpus *c = open_or_die(&o);

    is_int(gpt_corpus_size(c, GPT_TRAIN), 20, "a weighted blend");
    /* 24 samples are wanted; a member has a sample more, or an epoch more */
    ok(gpt_corpus_predict(&o) == 18 * 24 + 3 * 8 &&
           gpt_corpus_memory(c) > gpt_corpus_predict(&o) &&
           gpt_corpus_memory(c) < 5 * gpt_corpus_predict(&o),
       "its index: %d bytes", (int)gpt_corpus_memory(c));
    is_int(count_second(c), 5, "a quarter of it from the second");
    gpt_corpus_close(c);

    o = options(bare, 3);
    c = open_or_die(&o);
    is_int(gpt_corpus_size(c, GPT_TRAIN), 20, "a blend by size");
    is_int(count_second(c), 7, "80 of 220 sequences give 7 of 20 samples");
    gpt_corpus_close(c);
    o.n_samples[GPT_TRAIN] = 100000;
    is_int(gpt_corpus_open(&c, &o, &err), GPT_EDATA,
           "without weights nothing is repeated");
    ok(strstr(err.text, "100000 samples are wanted") && err.hint[0],
       "numbers: %s", err.text);

    /* one set with a weight: blended where splits share it, and else not */
    o = options(args, 2);
    is_int(gpt_corpus_predict(&o), 18 * 24 + 3 * 8, "a shared set of a weight");
    o = options(NULL, 0);
    o.split = NULL;
    o.n_samples[GPT_VALID] = o.n_samples[GPT_TEST] = 0;
    o.split_path[GPT_TRAIN] = args;
    o.n_split_path[GPT_TRAIN] = 2;
    is_int(gpt_corpus_predict(&o), 12 * 20 + 8, "a split's of a weight");
    o.split_path[GPT_TRAIN] = bare;
    is_int(gpt_corpus_predict(&o), 18 * 20 + 8, "two of a split");

    o = options(NULL, 0);
    o.split = NULL;
    o.split_path[GPT_TRAIN] = bare;
    o.n_split_path[GPT_TRAIN] = 1;
    o.split_path[GPT_TEST] = args;
    o.n_split_path[GPT_TEST] = 4;
    c = open_or_die(&o);
    ok(gpt_corpus_size(c, GPT_TRAIN) >= 20 &&
           gpt_corpus_size(c, GPT_VALID) == 0 &&
           gpt_corpus_size(c, GPT_TEST) == 2, /* ceil(.75) + ceil(.25) */
       "data sets for each split");
    gpt_corpus_close(c);
}

static void test_refused(void)
{
    const char *const one[] = {paths[0]}, *const absent[] = {paths[3]};
    struct gpt_corpus *c;
    struct gpt_err err = {0};
    struct gpt_corpus_options o;

    o = options(one, 1);
    o.split = "1,0,0";
    c = open_or_die(&o);
    is_int(gpt_corpus_size(c, GPT_VALID), 0, "a split without a share");
    gpt_corpus_close(c);

    o = options(one, 1);
    o.seq_length = 64;
    c = open_or_die(&o);
    struct gpt_repeat repeat;
    ok(!gpt_corpus_repeats(c, GPT_TRAIN, &repeat) &&
           gpt_corpus_repeats(c, GPT_TEST, &repeat) && repeat.begin == 90 &&
           repeat.end == 100 && repeat.tokens < 65,
       "too few tokens to test with are repeated");
    int32_t tokens[65];
    ok(gpt_corpus_size(c, GPT_TEST) >= 1 &&
           gpt_corpus_get(c, GPT_TEST, 0, tokens, &err) == GPT_OK,
       "a sample is full");
    gpt_corpus_close(c);
    /* a sample has one token more than it has inputs */
    for (int more = 0; more < 2; more++) {
        o.seq_length = repeat.tokens - 1 + more;
        c = open_or_die(&o);
        struct gpt_repeat again;
        ok(gpt_corpus_repeats(c, GPT_TEST, &again) == (more > 0),
           "the tokens of a sample%s", more ? " but one" : "");
        gpt_corpus_close(c);
    }
    o.seq_length = 100000;
    c = open_or_die(&o);
    ok(gpt_corpus_repeats(c, GPT_TRAIN, &repeat) && repeat.begin == 0,
       "too few tokens to train on are repeated");
    gpt_corpus_close(c);
    o.split = "0.0001,1,0";
    is_int(gpt_corpus_open(&c, &o, &err), GPT_EDATA, "none to train on");
    ok(strstr(err.text, "train split [0, 0)"), "says: %s", err.text);

    o.split = "0,100,0";
    is_int(gpt_corpus_open(&c, &o, &err), GPT_EUSAGE, "no share to train on");
    ok(strstr(err.text, "split '0,100,0' has no share for training"),
       "says: %s", err.text);

    o = options(absent, 1);
    is_int(gpt_corpus_open(&c, &o, &err), GPT_EIO, "no such data set");
    o = options(one, 0);
    is_int(gpt_corpus_open(&c, &o, &err), GPT_EUSAGE, "no data path");
    o = options(one, 1);
    o.split_path[0] = one;
    o.n_split_path[0] = 1;
    is_int(gpt_corpus_open(&c, &o, &err), GPT_EUSAGE, "both kinds of paths");
    o = options(one, 1);
    o.seed = UINT64_C(1) << 32;
    is_int(gpt_corpus_open(&c, &o, &err), GPT_EUSAGE, "a seed of 33 bits");
    o = options(one, 1);
    o.seq_length = 0;
    is_int(gpt_corpus_open(&c, &o, &err), GPT_EUSAGE, "no sequence length");
    o = options(one, 1);
    o.impl = "paper";
    is_int(gpt_corpus_open(&c, &o, &err), GPT_EUSAGE, "implementation");
    o = options(one, 1);
    o.n_samples[1] = -1;
    is_int(gpt_corpus_open(&c, &o, &err), GPT_EUSAGE, "-1 samples");
}

/* A token without a row in the embedding is found when it is read. */
static void test_vocabulary(void)
{
    static const struct {
        int32_t bad;
        int64_t vocab_size;
        const char *says;
    } rows[] = {
        {500000, 20000, "is 500000, must be from 0 to 19999"},
        {-1, 0, "is -1"},
        {20000, 20000, "is 20000"},
        {19999, 20000, NULL},
    };
    const char *const args[] = {paths[2]};

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        struct gpt_corpus_options o = options(args, 1);
        struct gpt_err err = {0};
        int status = GPT_OK;

        make_set(2, 40, rows[i].bad);
        o.split = "1";
        o.vocab_size = rows[i].vocab_size;
        struct gpt_corpus *c = open_or_die(&o);
        int32_t x[9];
        for (int64_t s = 0;
             s < gpt_corpus_size(c, GPT_TRAIN) && status == GPT_OK; s++)
            status = gpt_corpus_get(c, GPT_TRAIN, s, x, &err);
        is_int(status, rows[i].says ? GPT_EDATA : GPT_OK, "token %d of %lld",
               rows[i].bad, (long long)rows[i].vocab_size);
        ok(!rows[i].says || (strstr(err.text, rows[i].says) &&
                             strstr(err.text, "token 6 of sequence 20")),
           "says: %s", err.text);
        gpt_corpus_close(c);
    }
}

static uint64_t sets_digest_of(const struct gpt_corpus_options *o)
{
    struct gpt_corpus *c = open_or_die(o);
    uint64_t d = gpt_corpus_sets_digest(c);

    gpt_corpus_close(c);
    return d;
}

static uint64_t digest_of(const struct gpt_corpus_options *o)
{
    struct gpt_corpus *c = open_or_die(o);
    uint64_t d = gpt_corpus_digest(c);

    gpt_corpus_close(c);
    return d;
}

static void test_digest(void)
{
    const char *const one[] = {paths[0]}, *const other[] = {paths[1]};
    struct gpt_corpus_options o = options(one, 1);
    uint64_t d = digest_of(&o), sets = sets_digest_of(&o);

    ok(d == digest_of(&o), "the same again");
    o.n_samples[GPT_TRAIN] = 25;
    ok(d == digest_of(&o), "more samples of the same epoch");
    o.n_samples[GPT_TRAIN] = 200;
    ok(d != digest_of(&o), "more epochs");
    ok(sets == sets_digest_of(&o), "of the same sets");
    o = options(one, 1);
    o.seed = 1;
    ok(d != digest_of(&o), "another seed");
    ok(sets != sets_digest_of(&o), "which is another order of the sets, too");
    o = options(one, 1);
    o.seq_length = 7;
    ok(d != digest_of(&o), "another length");
    o = options(one, 1);
    o.split = "7,2,1";
    ok(d != digest_of(&o), "another split");
    o = options(other, 1);
    ok(d != digest_of(&o), "another data set");
}

static int32_t sample_of(const struct gpt_corpus *c, int64_t i)
{
    struct gpt_err err = {0};
    int32_t x[9];

    return gpt_corpus_get(c, GPT_TRAIN, i, x, &err) == GPT_OK ? x[0] : -1;
}

static struct gpt_corpus *open_staged(struct gpt_data_stages *s, int64_t n)
{
    struct gpt_corpus_options o = options(NULL, 0);

    o.split = NULL;
    o.stages = s;
    o.n_samples[GPT_TRAIN] = n;
    o.n_samples[GPT_VALID] = o.n_samples[GPT_TEST] = 0;
    return open_or_die(&o);
}

/* One stage is the blend of its words. Of several, each has its own share, and
 * a data set goes on where it stopped: within an epoch nothing comes twice. */
static void test_stages(void)
{
    const char *const blend[] = {"3", paths[0], "1", paths[1]};
    const char *const one[] = {paths[0]}, *const last[] = {paths[1]};
    struct gpt_data_stage stage[] = {{.first = 0, .words = blend, .n = 4},
                                     {.first = 12, .words = one, .n = 1},
                                     {.first = 20, .words = last, .n = 1}};
    struct gpt_data_stages s = {.stage = stage, .n = 1};
    struct gpt_corpus_options o = options(NULL, 0);
    int32_t seen[40];
    int same = 0, second = 0, twice = 0;

    o.split = NULL;
    o.split_path[GPT_TRAIN] = blend;
    o.n_split_path[GPT_TRAIN] = 4;
    o.n_samples[GPT_VALID] = o.n_samples[GPT_TEST] = 0;
    struct gpt_corpus *plain = open_or_die(&o);
    struct gpt_corpus *c = open_staged(&s, 20);
    for (int i = 0; i < 20; i++)
        same += sample_of(c, i) == sample_of(plain, i);
    is_int(same, 20, "one stage is the blend of its words");
    gpt_corpus_close(plain);
    gpt_corpus_close(c);
    /* the epochs of a set, which its order depends on, are as many */
    o.n_samples[GPT_TRAIN] = 3000;
    plain = open_or_die(&o);
    c = open_staged(&s, 3000);
    same = 0;
    for (int i = 0; i < 3000; i++)
        same += sample_of(c, i) == sample_of(plain, i);
    is_int(same, 3000, "over several epochs, too");
    gpt_corpus_close(plain);
    gpt_corpus_close(c);

    s.n = 3;
    c = open_staged(&s, 30);
    is_int(gpt_corpus_size(c, GPT_TRAIN), 30, "all samples of all stages");
    for (int i = 0; i < 30; i++) {
        seen[i] = sample_of(c, i);
        second += i < 12 && seen[i] >= 50000;
        for (int k = 0; k < i; k++)
            twice += seen[i] == seen[k];
    }
    is_int(second, 3, "a quarter of the first stage");
    for (int i = 12; i < 30; i++)
        ok((seen[i] >= 50000) == (i >= 20), "sample %d is of its stage", i);
    is_int(twice, 0, "no sample comes twice");
    const uint64_t digest = gpt_corpus_digest(c);
    gpt_corpus_close(c);

    c = open_staged(&s, 26);
    same = 0;
    for (int i = 0; i < 26; i++)
        same += sample_of(c, i) == seen[i];
    is_int(same, 26, "a shorter run has the same beginning");
    ok(gpt_corpus_digest(c) == digest, "and the same digest");
    gpt_corpus_close(c);
    c = open_staged(&s, 15);
    same = 0;
    for (int i = 0; i < 15; i++)
        same += sample_of(c, i) == seen[i];
    is_int(same, 15, "one that ends before the last stage, too");
    ok(gpt_corpus_digest(c) == digest, "with the same digest");
    gpt_corpus_close(c);
    stage[1].first = 13;
    c = open_staged(&s, 30);
    ok(gpt_corpus_digest(c) != digest, "other stages have another digest");
    gpt_corpus_close(c);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    if (!f || fputs(text, f) < 0 || fclose(f) != 0)
        exit(1);
}

static void test_stage_files(void)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "holds no stage"},
        {"# nothing\n\n", "holds no stage"},
        {"5 a\n", ":1: the first stage begins at sample 0, not 5"},
        {"x a\n", ":1: a stage begins with the number of a sample, not "
                  "with 'x'"},
        {"-1 a\n", ":1: a stage begins with the number of a sample, not "
                   "with '-1'"},
        {"0 a\n\n10\n", ":3: a stage without data sets"},
        {"0 a\n10 b\n10 c\n", ":3: stage 3 begins at sample 10, but must"},
        {"0 a b\n", ":1: several data sets need a weight each"},
    };
    struct gpt_data_stages s;
    struct gpt_err err = {0};
    char path[80];

    snprintf(path, sizeof(path), "%s/stages", dir);
    write_text(path, "# two\n0 0.5 a 0.5 b # blend\r\n\t1K   c\n");
    is_int(gpt_data_stages_read(&s, path, &err), GPT_OK, "a file of stages");
    ok(s.n == 2 && s.stage[0].n == 4 && s.stage[1].first == 1000 &&
           s.stage[1].n == 1 && strcmp(s.stage[1].words[0], "c") == 0 &&
           strcmp(s.stage[0].words[3], "b") == 0,
       "its words");
    ok(gpt_data_stages_at(&s, 0) == 0 && gpt_data_stages_at(&s, 999) == 0 &&
           gpt_data_stages_at(&s, 1000) == 1 &&
           gpt_data_stages_at(&s, 1 << 30) == 1,
       "the stage of a sample");
    gpt_data_stages_free(&s);
    for (size_t i = 0; i < GPT_COUNT(bad); i++) {
        write_text(path, bad[i].text);
        is_int(gpt_data_stages_read(&s, path, &err), GPT_EDATA, "'%s'",
               bad[i].says);
        ok(strstr(err.text, bad[i].says) != NULL, "says: %s", err.text);
    }
}

/* Blends of thousands of sets must not run out of descriptors. */
static void test_many(void)
{
    enum { MANY = 200 };
    static char names[MANY][2 * MANY + 64];
    static const char *args[MANY];
    struct rlimit old, few;
    struct gpt_err err = {0};

    for (int i = 0; i < MANY; i++) { /* one set under many names */
        char *p = names[i] + sprintf(names[i], "%s/", dir);

        for (int k = 0; k < i; k++)
            p += sprintf(p, "/");
        sprintf(p, "a");
        args[i] = names[i];
    }
    struct gpt_corpus_options o = options(args, MANY);
    struct gpt_corpus *c = NULL;
    getrlimit(RLIMIT_NOFILE, &old);
    few = old;
    few.rlim_cur = 32;
    setrlimit(RLIMIT_NOFILE, &few);
    for (int i = 0; i < 2; i++) {
        o.impl = i ? "cached" : "mmap";
        is_int(gpt_corpus_open(&c, &o, &err), GPT_OK,
               "%d sets, 32 descriptors, %s %s", MANY, o.impl, err.text);
        gpt_corpus_close(c);
    }
    setrlimit(RLIMIT_NOFILE, &old);
}

int main(void)
{
    make_tree(dir);
    for (int k = 0; k < 4; k++)
        snprintf(paths[k], sizeof(paths[0]), "%s/%c", dir, 'a' + k);
    make_set(0, 100, 0);
    make_set(1, 80, 0);
    make_set(2, 40, 0);
    test_tokens();
    test_blends();
    test_refused();
    test_vocabulary();
    test_digest();
    test_stages();
    test_stage_files();
    test_many();
    remove_tree(dir);
    return tap_done();
}
