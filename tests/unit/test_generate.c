/* Many requests in few slots: texts do not depend on other requests; every way
 * to end; failures that reach the caller; and the order and formats of the
 * writer, which need no model. */
#include "generate/generate.h"
#include "generate/beams.h"
#include "generate/prefix.h"
#include "cmd/generate/writer.h"
#include "generate/text.h"
#include "tests/lib/model.h"
#include "tests/lib/tap.h"

enum { MOST_REQUESTS = 9, MOST_TOKENS = 40 };

/* What the callbacks saw. */
struct seen {
    int32_t tokens[MOST_REQUESTS][MOST_TOKENS];
    int64_t n[MOST_REQUESTS];
    int finish[MOST_REQUESTS]; /* -1: not ended */
    int fail_after;            /* tokens until the callback fails */
    int64_t stop_at;           /* tokens after which it stops a text; 0: none */
};

static int see_token(void *user, int64_t request,
                     const struct gpt_chosen *chosen, bool *stop,
                     struct gpt_err *err)
{
    struct seen *s = user;

    *stop = s->stop_at > 0 && s->n[request] + 1 == s->stop_at;

    if (--s->fail_after == 0)
        return gpt_fail(err, GPT_EIO, "full");
    s->tokens[request][s->n[request]++] = chosen->id;
    return GPT_OK;
}

static int see_finish(void *user, int64_t request, enum gpt_finish finish,
                      struct gpt_err *err)
{
    struct seen *s = user;

    (void)err;
    if (s->finish[request] != -1)
        finish = 99; /* ended twice */
    s->finish[request] = (int)finish;
    return GPT_OK;
}

static struct gpt_config config(void)
{
    return (struct gpt_config){
        .num_layers = 2,
        .hidden_size = 32,
        .num_attention_heads = 4,
        .num_query_groups = 4,
        .head_size = 8,
        .ffn_hidden_size = 64,
        .max_positions = 48,
        .vocab_size = 257,
        .norm_epsilon = 1e-5,
        .init_std = 0.02,
        .tied_embeddings = true,
    };
}

static int32_t prompts[MOST_REQUESTS][16];

/* Request i: a prompt of 1 + i tokens, and i + 2 or more tokens. */
static void make_requests(struct gpt_request *requests)
{
    for (int i = 0; i < MOST_REQUESTS; i++) {
        struct gpt_rng rng = gpt_rng_open((uint64_t)i, "prompt");

        for (int k = 0; k < 16; k++)
            prompts[i][k] = (int32_t)(gpt_rng_u32(rng, (uint64_t)k) % 257);
        requests[i] = (struct gpt_request){
            .prompt = prompts[i],
            .n_prompt = 1 + i,
            .max_tokens = 2 + i * 3 % 14,
            .number = (uint64_t)i / 2,
            .stream = (uint64_t)i / 2,
            .sample = (uint64_t)i % 2,
        };
    }
}

/* Of all runs: how many tokens a step may guess. And of the last one: its
 * steps, and guesses that were right. */
static int64_t guesses, steps, right;

static int go(struct model *m, int64_t slots,
              const struct gpt_request *requests, int64_t n,
              struct gpt_sampling sampling, int32_t eod, struct seen *seen,
              struct gpt_err *err)
{
    struct gpt_decoder *d = decoder_of(m, slots, m->c.max_positions);
    struct gpt_speed speed;
    const struct gpt_choice choice = {
        .sampling = sampling,
        .ends = &eod,
        .n_ends = eod >= 0,
    };
    const struct gpt_sink sink = {see_token, see_finish, seen};
    struct gpt_request chosen[MOST_REQUESTS];

    for (int64_t i = 0; i < n; i++) {
        chosen[i] = requests[i];
        chosen[i].choice = &choice;
        chosen[i].seed = 42;
    }
    *seen =
        (struct seen){.fail_after = seen->fail_after, .stop_at = seen->stop_at};
    for (int i = 0; i < MOST_REQUESTS; i++)
        seen->finish[i] = -1;
    int rc = gpt_generate(d, chosen, n, guesses, &sink, &speed, err);
    steps = speed.steps;
    right = speed.right;
    gpt_decoder_close(d);
    return rc;
}

static const struct gpt_sampling greedy = {.temperature = 0},
                                 chance = {.temperature = 1,
                                           .top_k = 50,
                                           .top_p = 0.95};

static void test_batches(struct model *m)
{
    struct gpt_request requests[MOST_REQUESTS];
    struct seen alone, seen = {0};
    struct gpt_err err = {0};

    make_requests(requests);
    const struct gpt_sampling rules[] = {greedy, chance};
    for (int r = 0; r < 2; r++) {
        alone.fail_after = 0;
        must(go(m, 1, requests, MOST_REQUESTS, rules[r], -1, &alone, &err),
             &err);
        bool lengths = true;
        for (int i = 0; i < MOST_REQUESTS; i++)
            lengths &= alone.n[i] == requests[i].max_tokens &&
                       alone.finish[i] == GPT_FINISH_TOKENS;
        ok(lengths, "every request gets its tokens");
        for (int64_t slots = 2; slots <= 9; slots += 7) {
            must(go(m, slots, requests, MOST_REQUESTS, rules[r], -1, &seen,
                    &err),
                 &err);
            ok(memcmp(&seen.tokens, &alone.tokens, sizeof(seen.tokens)) == 0,
               "%lld slots give what one gives", (long long)slots);
        }
    }
    ok(memcmp(alone.tokens[2], alone.tokens[3], 3 * sizeof(int32_t)) != 0,
       "samples differ");
    must(go(m, 3, requests + 5, 1, chance, -1, &seen, &err), &err);
    ok(memcmp(seen.tokens[0], alone.tokens[5], sizeof(seen.tokens[0])) == 0,
       "a request alone is as among others");
}

static void test_ends(struct model *m)
{
    struct gpt_request requests[MOST_REQUESTS];
    struct seen plain = {0}, seen = {0};
    struct gpt_err err = {0};

    make_requests(requests);
    requests[4].max_tokens = 20;
    must(go(m, 2, requests + 4, 1, chance, -1, &plain, &err), &err);
    int32_t eod = plain.tokens[0][7];
    int64_t first = 0;
    while (plain.tokens[0][first] != eod)
        first++;
    must(go(m, 2, requests + 4, 1, chance, eod, &seen, &err), &err);
    is_int(seen.finish[0], GPT_FINISH_EOD, "the end of the document ends it");
    is_int(seen.n[0], first, "and is not part of it");
    ok(memcmp(seen.tokens[0], plain.tokens[0],
              (size_t)first * sizeof(int32_t)) == 0,
       "what comes before stays");

    requests[4].max_tokens = 1;
    must(go(m, 2, requests + 4, 1, greedy, -1, &seen, &err), &err);
    is_int(seen.n[0], 1, "one token");

    requests[4].n_prompt = 16;
    requests[4].max_tokens = 1000;
    must(go(m, 2, requests + 4, 1, greedy, -1, &seen, &err), &err);
    is_int(seen.finish[0], GPT_FINISH_POSITIONS, "positions end it");
    is_int(seen.n[0], 48 - 16 + 1, "the last one has no position of its own");
}

static int count_found(void *user, int64_t request,
                       const struct gpt_beam *beams, int64_t n,
                       struct gpt_err *err)
{
    (void)request, (void)beams, (void)n, (void)err;
    ++*(int *)user;
    return GPT_OK;
}

/* The best two of two beams of each request. */
static int search(struct model *m, const struct gpt_request *requests,
                  int64_t n, int *n_found, struct gpt_err *err)
{
    struct gpt_decoder *d = decoder_of(m, 2, m->c.max_positions);
    const struct gpt_choice choice = {.sampling = greedy};
    const struct gpt_beam_rule rule = {2, 1, GPT_STOP_FIRST, 2};
    struct gpt_request chosen[MOST_REQUESTS];
    struct gpt_speed speed;

    for (int64_t i = 0; i < n; i++) {
        chosen[i] = requests[i];
        chosen[i].choice = &choice;
    }
    int rc = gpt_search_beams(d, chosen, n, &rule, count_found, n_found, &speed,
                              err);
    gpt_decoder_close(d);
    return rc;
}

/* Computes a prompt of n tokens in the first slot, and keeps its beginning. */
static void keep(struct gpt_prefixes *p, struct gpt_decoder *d,
                 const int32_t *prompt, int64_t n)
{
    struct gpt_err err = {0};
    float logits[272];

    gpt_decoder_truncate(d, 0, 0);
    must(gpt_decoder_append(d, 0, prompt, n, GPT_LOGITS_LAST, logits, &err),
         &err);
    must(gpt_prefixes_keep(p, d, 0, prompt, n, &err), &err);
}

/* Of two beginnings that are kept the longest is found, and the one that was
 * used least recently makes room. */
static void test_prefixes(void)
{
    enum { N = 2 * GPT_DECODE_CHUNK + 10 };
    static int32_t alike[3][N];
    struct gpt_config c = config();
    struct gpt_prefixes *p = NULL;
    struct gpt_err err = {0};
    struct model m;
    int64_t cached = 0;

    c.max_positions = N;
    open_model(&m, c);
    struct gpt_decoder *d = decoder_of(&m, 3, N);
    must(gpt_prefixes_open(&p, d, 1, 2, &err), &err);
    /* the second is like the first for one block, the third like none */
    for (int i = 0; i < N; i++) {
        alike[1][i] = i < GPT_DECODE_CHUNK + 5 ? 0 : 1;
        alike[2][i] = 2;
    }
    keep(p, d, alike[0], N);
    is_int(gpt_prefixes_find(p, alike[1], N), GPT_DECODE_CHUNK, "a beginning");
    keep(p, d, alike[1], N);
    is_int(gpt_prefixes_find(p, alike[1], N), 2 * GPT_DECODE_CHUNK,
           "the longest of two");
    is_int(gpt_prefixes_find(p, alike[0], N), 2 * GPT_DECODE_CHUNK,
           "whichever comes first");
    must(gpt_prefixes_copy(p, d, 0, alike[0], N, &cached, &err), &err);
    ok(cached == 2 * GPT_DECODE_CHUNK && gpt_decoder_length(d, 0) == cached,
       "is copied");
    keep(p, d, alike[2], N);
    is_int(gpt_prefixes_find(p, alike[0], N), 2 * GPT_DECODE_CHUNK,
           "what was copied stays");
    is_int(gpt_prefixes_find(p, alike[1], N), GPT_DECODE_CHUNK,
           "what was not makes room");
    gpt_prefixes_close(p);
    gpt_decoder_close(d);
    close_model(&m);
}

static void test_failures(struct model *m)
{
    struct gpt_request requests[MOST_REQUESTS];
    static int32_t longest[49];
    struct seen seen = {0};
    struct gpt_err err = {0};

    make_requests(requests);
    requests[1].prompt = longest;
    requests[1].n_prompt = 48;
    is_int(go(m, 2, requests, 2, greedy, -1, &seen, &err), GPT_OK,
           "a prompt may fill all positions");
    is_int(seen.n[1], 1, "and gets one token");
    int n_found = 0;
    is_int(search(m, requests, 2, &n_found, &err), GPT_OK, "or its beams do");
    is_int(n_found, 2, "and each request's are found");
    requests[1].n_prompt = 49;
    is_int(go(m, 2, requests, 2, greedy, -1, &seen, &err), GPT_EDATA,
           "but not more");
    ok(strstr(err.text, "49 tokens") && strstr(err.text, "48 positions"),
       "saying so: %s", err.text);
    is_int(seen.n[0], 0, "before anything is generated");
    n_found = 0;
    is_int(search(m, requests, 2, &n_found, &err), GPT_EDATA,
           "nor when searching by beams");
    is_int(n_found, 0, "before anything is found");
    make_requests(requests);
    seen.fail_after = 5;
    is_int(go(m, 2, requests, 4, greedy, -1, &seen, &err), GPT_EIO,
           "a callback's failure ends it");
}

/* Texts with guesses are those without, by fewer steps. */
static void test_guesses(struct model *m)
{
    const struct gpt_sampling rules[] = {
        greedy,
        chance,
        {.temperature = 0.4, .top_p = 0.9, .top_p_decay = 0.95},
        {.temperature = 0.2,
         .repetition_penalty = 1.1,
         .frequency_penalty = 0.3},
    };
    struct gpt_request requests[MOST_REQUESTS];
    struct seen plain = {0}, seen = {0};
    struct gpt_err err = {0};

    make_requests(requests);
    for (int i = 0; i < MOST_REQUESTS; i++) {
        requests[i].max_tokens = 30 + i;
        /* prompts that repeat themselves */
        for (int k = 4; k < 16; k++)
            prompts[i][k] = prompts[i][k - 4];
        requests[i].n_prompt = 9 + i % 6;
    }
    for (size_t r = 0; r < GPT_COUNT(rules); r++)
        for (int64_t slots = 1; slots <= 9; slots += 4) {
            must(go(m, slots, requests, MOST_REQUESTS, rules[r], 5, &plain,
                    &err),
                 &err);
            const int64_t before = steps;
            for (guesses = 1; guesses <= GPT_MOST_GUESSES; guesses += 3) {
                must(go(m, slots, requests, MOST_REQUESTS, rules[r], 5, &seen,
                        &err),
                     &err);
                ok(memcmp(&seen.tokens, &plain.tokens, sizeof(seen.tokens)) ==
                           0 &&
                       memcmp(&seen.finish, &plain.finish,
                              sizeof(seen.finish)) == 0,
                   "rule %zu, %lld slots, %lld guesses: the same texts", r,
                   (long long)slots, (long long)guesses);
            }
            if (r == 0)
                ok(steps < before && right > 0,
                   "greedy, %lld slots: %lld steps in place of %lld",
                   (long long)slots, (long long)steps, (long long)before);
            guesses = 0;
        }
}

static void test_damage(void)
{
    struct model m;
    struct gpt_request requests[MOST_REQUESTS];
    struct seen seen = {0};
    struct gpt_err err = {0};

    open_model_with(&m, config(), NAN);
    make_requests(requests);
    is_int(go(&m, 2, requests, 2, chance, -1, &seen, &err), GPT_EDIVERGED,
           "weights that are not numbers are reported");
    close_model(&m);
}

/* ---- the writer ---- */

enum { END = -1 };
struct event {
    int request, token; /* END: finish */
};

static void is_written(const char *what, bool jsonl, bool echo, int64_t n,
                       const struct event *events, size_t n_events,
                       const char *want)
{
    struct gpt_tokenizer *tok = NULL;
    struct gpt_tokenizer_options to = {.type = "ByteTokenizer"};
    struct gpt_prompts texts = {0};
    struct gpt_request requests[4];
    struct gpt_writer *w = NULL;
    struct gpt_err err = {0};
    char got[1024] = "";

    must(gpt_tokenizer_open(&tok, &to, &err), &err);
    must(gpt_prompts_add(&texts, "P\xC3\xA9", 3, &err), &err);
    must(gpt_prompts_add(&texts, "Q", 1, &err), &err);
    texts.items[1].id = "{\"k\":[1]}";
    for (int i = 0; i < 4; i++)
        requests[i] = (struct gpt_request){.n_prompt = 3,
                                           .number = (uint64_t)i / 2,
                                           .sample = (uint64_t)i % 2};
    const struct gpt_list no_stops = {0};
    struct gpt_writer_options o = {
        .file = tmpfile(),
        .jsonl = jsonl,
        .echo = echo,
        .tokenizer = tok,
        .stops = &no_stops,
        .prompts = &texts,
        .requests = requests,
        .n_requests = n,
    };
    if (!o.file)
        exit(1);
    must(gpt_writer_open(&w, &o, &err), &err);
    for (size_t i = 0; i < n_events; i++) {
        const struct gpt_chosen chosen = {.id = events[i].token};
        bool stop = false;

        must(events[i].token == END
                 ? gpt_writer_finish(w, events[i].request, GPT_FINISH_EOD, &err)
                 : gpt_writer_token(w, events[i].request, &chosen, &stop, &err),
             &err);
    }
    gpt_writer_close(w);
    rewind(o.file);
    got[fread(got, 1, sizeof(got) - 1, o.file)] = '\0';
    is_str(got, want, "%s", what);
    fclose(o.file);
    gpt_prompts_free(&texts);
    gpt_tokenizer_close(tok);
}

static void test_writer(void)
{
    static const struct event one[] = {{0, 'a'}, {0, 'b'}, {0, END}};
    static const struct event cut[] = {{0, 'a'}, {0, 0xC3}, {0, END}};
    static const struct event newline[] = {{0, 'a'}, {0, '\n'}, {0, END}};
    static const struct event two[] = {{1, 'x'}, {0, 'a'}, {1, END},
                                       {0, 'b'}, {0, END}, {2, 'c'}};
    static const struct event quotes[] = {
        {2, '"'},  {2, '\\'}, {2, '\n'}, {2, 1},   {2, 0},
        {2, 0xFF}, {0, 'a'},  {0, END},  {1, END}, {2, END}};

    is_written("a text ends with a newline", false, false, 1, one,
               GPT_COUNT(one), "ab\n");
    is_written("but not with two", false, false, 1, newline, GPT_COUNT(newline),
               "a\n");
    is_written("half a character at the end", false, false, 1, cut,
               GPT_COUNT(cut), "a\xEF\xBF\xBD\n");
    is_written("the prompt in front", false, true, 1, one, GPT_COUNT(one),
               "P\xC3\xA9"
               "ab\n");
    is_written("several, in order, the last under way", false, false, 3, two,
               GPT_COUNT(two), "ab\n---\nx\n---\nc");
    is_written("JSON lines", true, false, 3, quotes, GPT_COUNT(quotes),
               "{\"id\":1,\"sample\":1,\"text\":\"a\",\"prompt_tokens\":3,"
               "\"tokens\":1,\"finish\":\"eod\"}\n"
               "{\"id\":1,\"sample\":2,\"text\":\"\",\"prompt_tokens\":3,"
               "\"tokens\":0,\"finish\":\"eod\"}\n"
               "{\"id\":{\"k\":[1]},\"sample\":1,\"text\":\"\\\"\\\\\\n\\u0001"
               "\\u0000\xEF\xBF\xBD\",\"prompt_tokens\":3,\"tokens\":6,"
               "\"finish\":\"eod\"}\n");
}

/* ---- stop strings ---- */

/* The text of `bytes`, as tokens of a byte each, and what was given out after
 * each, divided by '|'. */
static void is_cut(const char *bytes, const char *stop, const char *other,
                   const char *want)
{
    struct gpt_tokenizer *tok = NULL;
    struct gpt_tokenizer_options to = {.type = "ByteTokenizer"};
    const char *words[] = {stop, other};
    const struct gpt_list stops = {words, 2};
    struct gpt_text text = {0};
    struct gpt_buf out = {0};
    struct gpt_err err = {0};

    must(gpt_tokenizer_open(&tok, &to, &err), &err);
    for (size_t i = 0; bytes[i] && !text.stopped; i++) {
        must(gpt_text_add(&text, tok, (unsigned char)bytes[i], &stops, &out),
             &err);
        must(gpt_buf_add(&out, "|", 1), &err);
    }
    must(gpt_text_end(&text, &stops, &out), &err);
    must(gpt_buf_add(&out, "", 1), &err);
    is_str(out.data, want, "'%s' up to '%s' or '%s'", bytes, stop, other);
    gpt_buf_free(&out);
    gpt_text_free(&text);
    gpt_tokenizer_close(tok);
}

static void test_stop_strings(struct model *m)
{
    struct gpt_request requests[MOST_REQUESTS];
    struct seen seen = {.stop_at = 2};
    struct gpt_err err = {0};

    is_cut("abcd", "cd", "", "a|b|||");
    is_cut("abce", "cd", "", "a|b||ce|");
    is_cut("abc", "cd", "", "a|b||c");
    is_cut("aab", "ab", "", "|a||");
    is_cut("ababc", "abc", "", "||ab|||");
    is_cut("xyz", "z", "yz", "x|||");
    is_cut("xabcd", "bc", "abcd", "x|||a|"); /* the first that is complete */
    is_cut("\xC3\xA9.", ".", "", "|\xC3\xA9||");
    is_cut("\xC3.", "\xEF\xBF\xBD", "", "||");
    is_cut("ab", "", "", "a|b|");
    make_requests(requests);
    must(go(m, 2, requests + 3, 2, greedy, -1, &seen, &err), &err);
    ok(seen.n[0] == 2 && seen.n[1] == 2 && seen.finish[0] == GPT_FINISH_STOP &&
           seen.finish[1] == seen.finish[0],
       "a receiver ends a text");
}

int main(void)
{
    struct model m;

    open_model(&m, config());
    test_batches(&m);
    test_ends(&m);
    test_failures(&m);
    test_guesses(&m);
    test_stop_strings(&m);
    close_model(&m);
    test_damage();
    test_prefixes();
    test_writer();
    return tap_done();
}
