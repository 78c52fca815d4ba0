/* Reading of model.vocab of a unigram model: see unigram.h. Start at
 * gpt_unigram_read(). Scores are read as serde_json reads them, the library's
 * parser, which is off by a bit in one number of seven: where two ways to write
 * a text are as good as each other, that bit decides. */
#include "tokenizer/unigram.h"

#include "text/json_scan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_POWER = 308 }; /* of ten, in double precision */

/* ---- numbers ---- */

/* A number on its way: digits * 10^exponent. */
struct digits {
    uint64_t sum;
    int64_t exponent;
    bool full; /* no more digits fit; those of an integer still count */
};

static void take_digit(struct digits *d, unsigned digit, bool fraction)
{
    d->full = d->full || d->sum > (UINT64_MAX - digit) / 10;
    if (d->full) {
        d->exponent += !fraction;
        return;
    }
    d->sum = d->sum * 10 + digit;
    d->exponent -= fraction;
}

/* 1, 10, 100 and so on, each the nearest number of double precision. */
static void fill_powers(double powers[MOST_POWER + 1])
{
    char text[16];

    for (int i = 0; i <= MOST_POWER; i++) {
        snprintf(text, sizeof(text), "1e%d", i);
        powers[i] = strtod(text, NULL);
    }
}

/* Infinite for a number that is too large. */
static double value_of(const struct digits *d, const double *powers)
{
    double value = (double)d->sum;
    int64_t exponent = d->exponent;

    for (; exponent < -MOST_POWER && value != 0; exponent += MOST_POWER)
        value /= 1e308;
    if (value == 0)
        return value;
    if (exponent > MOST_POWER)
        return HUGE_VAL;
    return exponent >= 0 ? value * powers[exponent]
                         : value / powers[-exponent];
}

/* The exponent at p, which is limited: no number comes near. */
static int64_t read_exponent(const char *p, const char *end)
{
    const bool minus = *p == '-';
    int64_t exponent = 0;

    for (p += *p == '-' || *p == '+'; p < end; p++)
        exponent = exponent > 100000000 ? exponent : exponent * 10 + *p - '0';
    return minus ? -exponent : exponent;
}

/* The number that a text is, of which JSON's grammar was checked. */
static double read_number(const double *powers, const char *p, const char *end)
{
    const bool minus = p < end && *p == '-';
    struct digits d = {0};
    bool fraction = false;

    for (p += minus; p < end && *p != 'e' && *p != 'E'; p++) {
        if (*p != '.') {
            take_digit(&d, (unsigned)(*p - '0'), fraction);
            continue;
        }
        fraction = true;
        d.full = false; /* a smaller digit may fit */
    }
    if (p < end)
        d.exponent += read_exponent(p + 1, end);
    const double value = value_of(&d, powers);
    return minus ? -value : value;
}

/* ---- entries ---- */

struct reading {
    struct gpt_unigram *u;
    struct gpt_scan scan;
    char *text; /* scratch */
    size_t cap;
    double powers[MOST_POWER + 1]; /* of ten */
};

/* Makes room for one more entry. */
static int grow(struct reading *r)
{
    struct gpt_unigram *u = r->u;
    size_t cap = r->cap, cap_too = r->cap;

    if (u->n == GPT_VOCAB_MAX)
        return gpt_fail(r->scan.err, GPT_EDATA, "model.vocab has more than %d "
                        "tokens", GPT_VOCAB_MAX);
    GPT_TRY(gpt_grow(&u->texts, &cap, (size_t)u->n + 1, sizeof(*u->texts),
                     "a vocabulary", r->scan.err));
    GPT_TRY(gpt_grow(&u->scores, &cap_too, (size_t)u->n + 1,
                     sizeof(*u->scores), "a vocabulary", r->scan.err));
    r->cap = cap < cap_too ? cap : cap_too;
    return GPT_OK;
}

static int read_score(struct reading *r, double *score)
{
    const char *begin = (const char *)r->scan.p;

    if (begin == (const char *)r->scan.end ||
        (*begin != '-' && (*begin < '0' || *begin > '9')))
        return gpt_scan_unexpected(&r->scan, "a score");
    GPT_TRY(gpt_scan_skip(&r->scan));
    *score = read_number(r->powers, begin, (const char *)r->scan.p);
    return isfinite(*score)
               ? GPT_OK
               : gpt_fail(r->scan.err, GPT_EDATA, "model.vocab: the score of "
                          "token %lld is too large", (long long)r->u->n);
}

/* ["text", -1.5] */
static int read_entry(void *context)
{
    struct reading *r = context;
    struct gpt_unigram *u = r->u;
    size_t len;

    GPT_TRY(grow(r));
    GPT_TRY(gpt_scan_expect(&r->scan, '[', "a list of a token and a score"));
    gpt_scan_space(&r->scan);
    if (!gpt_scan_at(&r->scan, '"'))
        return gpt_scan_unexpected(&r->scan, "a token");
    GPT_TRY(gpt_scan_text(&r->scan, r->text, &len));
    if (len > GPT_TOKEN_MAX)
        return gpt_fail(r->scan.err, GPT_EDATA, "model.vocab: token %lld has "
                        "%zu bytes, must have at most %d", (long long)u->n, len,
                        GPT_TOKEN_MAX);
    char *copy = gpt_arena_alloc(&u->arena, len + 1, 1);
    if (!copy)
        return gpt_no_memory(r->scan.err, "a vocabulary");
    memcpy(copy, r->text, len);
    u->texts[u->n] = (struct gpt_str){copy, len};
    GPT_TRY(gpt_scan_expect(&r->scan, ',', "a comma"));
    gpt_scan_space(&r->scan);
    GPT_TRY(read_score(r, &u->scores[u->n]));
    u->n++;
    return gpt_scan_expect(&r->scan, ']', "the end of a token's list");
}

/* ---- tables ---- */

/* The last one of two tokens with one text has its id. */
static int fill_tables(struct gpt_unigram *u, struct gpt_err *err)
{
    GPT_TRY(gpt_token_map_open(&u->map, u->texts, (size_t)u->n, err));
    u->lowest = HUGE_VAL;
    for (int64_t id = u->n; id-- > 0;) {
        (void)gpt_token_map_add(&u->map, (int32_t)id);
        u->lowest = u->scores[id] < u->lowest ? u->scores[id] : u->lowest;
    }
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        const int n = snprintf(name, sizeof(name), "<0x%02X>", byte);

        u->byte_id[byte] = gpt_token_map_find(&u->map, name, (size_t)n);
    }
    return gpt_sp_trie_of(&u->trie, u->texts, u->n, err);
}

int gpt_unigram_read(struct gpt_unigram *u, struct gpt_str vocab,
                     const char *what, struct gpt_err *err)
{
    struct reading r = {.u = u, .scan = gpt_scan_of(vocab, err)};
    int status;

    *u = (struct gpt_unigram){.unk = -1};
    fill_powers(r.powers);
    GPT_TRY(gpt_new(&r.text, vocab.len + GPT_SCAN_SLACK, 1, "a vocabulary",
                    err));
    status = gpt_scan_items(&r.scan, '[', "a list of tokens and scores",
                            read_entry, &r);
    gpt_free(r.text);
    if (status != GPT_OK) {
        gpt_context(err, "%s", what);
        return status;
    }
    if (u->n == 0)
        return gpt_fail(err, GPT_EDATA, "%s: model.vocab has no tokens", what);
    return fill_tables(u, err);
}

void gpt_unigram_close(struct gpt_unigram *u)
{
    gpt_sp_trie_close(&u->trie);
    gpt_token_map_close(&u->map);
    gpt_free(u->texts);
    gpt_free(u->scores);
    gpt_arena_free(&u->arena);
}
