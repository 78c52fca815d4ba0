/* Reading of vocab_names.h, in two steps, as an id can be judged only when it
 * is known how many there are: one pass over the JSON makes a list of entries,
 * then each id gets its text. All letters go to one block that is as long as
 * the JSON, because no text is longer than it is written. Start at
 * gpt_vocab_names_read(). */
#include "tokenizer/vocab_names.h"

#include "base/utf8.h"
#include "text/json_scan.h"
#include "tokenizer/ids.h"

#include <assert.h>

enum {
    /* the most ids, where they may leave gaps: for each token, and in addition
     */
    MAX_SPREAD = 4,
    MIN_IDS = 1 << 16,
};

struct entry {
    const char *text;
    size_t len;
    int64_t id;
    bool integer; /* false: the value was something else */
};

struct reading {
    struct gpt_vocab_names *names;
    const struct gpt_vocab_ids *ids;
    const char *file;
    struct gpt_scan scan;
    struct entry *entries; /* (n) */
    size_t n, cap;
    struct gpt_err *err;
};

/* ---- the object ---- */

/* Reads an id. What is no integer is reported later, by check_id(). A number
 * too large stays so: it stops growing beyond any id. */
static void read_integer(struct entry *e, const char *p, const char *end)
{
    bool negative = *p == '-';

    for (p += negative; p < end; p++) {
        if (*p < '0' || *p > '9')
            return;
        if (e->id < INT32_MAX)
            e->id = e->id * 10 + (*p - '0');
    }
    e->integer = true;
    if (negative)
        e->id = -e->id;
}

/* Reads "text": id, with the cursor before the quote. */
static int read_entry(void *context)
{
    struct reading *r = context;
    struct gpt_scan *s = &r->scan;
    struct gpt_vocab_names *names = r->names;
    struct entry e = {.text = names->letters + names->n_letters};

    gpt_scan_space(s);
    if (!gpt_scan_at(s, '"'))
        return gpt_scan_unexpected(s, "a token");
    GPT_TRY(gpt_scan_text(s, names->letters + names->n_letters, &e.len));
    names->n_letters += e.len;
    GPT_TRY(gpt_scan_expect(s, ':', "':'"));
    /* any value is read, and judged when all ids are known */
    gpt_scan_space(s);
    const char *value = (const char *)s->p;
    GPT_TRY(gpt_scan_skip(s));
    read_integer(&e, value, (const char *)s->p);
    GPT_TRY(gpt_grow(&r->entries, &r->cap, r->n + 1, sizeof(*r->entries),
                     "a vocabulary", r->err));
    r->entries[r->n++] = e;
    return GPT_OK;
}

static int read_entries(struct reading *r)
{
    GPT_TRY(gpt_scan_items(&r->scan, '{', "an object", read_entry, r));
    return gpt_scan_end(&r->scan, "the end of the file");
}

/* The letters have room for the whole text from the beginning, as no token is
 * longer than its JSON. So they never move, and entries can point into them. */
static int read_object(struct reading *r, struct gpt_str json)
{
    struct gpt_scan *s = &r->scan;

    *s = gpt_scan_of(json, r->err);
    GPT_TRY(gpt_new(&r->names->letters, json.len + GPT_SCAN_SLACK, 1,
                    "a vocabulary", r->err));
    gpt_scan_space(s);
    /* No white space for JSON, and no editor shows it. */
    if (gpt_utf8_mark(s->p, (size_t)(s->end - s->p)) > 0)
        return gpt_fail(r->err, GPT_EDATA,
                        "%s: not JSON: byte order mark at byte %zu", r->file,
                        gpt_scan_column(s));
    if (s->p < s->end && !gpt_scan_at(s, '{'))
        return gpt_fail(r->err, GPT_EDATA,
                        "%s: not an object of tokens and ids", r->file);
    int status = read_entries(r);
    return status == GPT_OK ? GPT_OK : gpt_context(r->err, "%s", r->file);
}

/* ---- ids ---- */

/* Decides how many ids there are. Where they may leave gaps there are no more
 * of them than the number of tokens can justify, so that one hostile id
 * allocates nothing; an id beyond is refused by check_id(). */
static int count_ids(struct reading *r)
{
    struct gpt_vocab_names *names = r->names;
    int64_t n = names->n_listed = (int64_t)r->n;
    int64_t limit = r->ids->gaps ? MAX_SPREAD * n + MIN_IDS : 0;

    for (size_t i = 0; i < r->n; i++)
        if (r->entries[i].id >= n && r->entries[i].id < limit)
            n = r->entries[i].id + 1;
    names->n = n > r->ids->least ? n : r->ids->least;
    if (names->n > GPT_VOCAB_MAX)
        return gpt_fail(r->err, GPT_EDATA, "%s: %lld tokens, limit %d",
                        r->file, (long long)names->n, GPT_VOCAB_MAX);
    return GPT_OK;
}

/* Two tokens with one id are refused, and so are two ids of one token, later.
 */
static int check_id(const struct reading *r, const struct entry *e)
{
    const struct gpt_vocab_names *names = r->names;

    if (!e->integer)
        return gpt_fail(r->err, GPT_EDATA, "%s: token '%.*s' has no integer id",
                        r->file, gpt_str_shown(e->len), e->text);
    if (e->id < 0 || e->id >= names->n)
        return gpt_fail(r->err, GPT_EDATA, "%s: token '%.*s' has id %lld; %lld "
                        "tokens have the ids 0 to %lld", r->file,
                        gpt_str_shown(e->len), e->text, (long long)e->id,
                        (long long)names->n_listed, (long long)names->n - 1);
    const struct gpt_str *other = &names->texts[e->id];
    if (other->data)
        return gpt_fail(r->err, GPT_EDATA, "%s: tokens '%.*s' and '%.*s' are "
                        "both id %lld", r->file, gpt_str_shown(other->len),
                        other->data, gpt_str_shown(e->len), e->text,
                        (long long)e->id);
    return GPT_OK;
}

/* Gives each id its text, and enters it in the map. */
static int place_texts(struct reading *r)
{
    struct gpt_vocab_names *names = r->names;

    GPT_TRY(count_ids(r));
    GPT_TRY(gpt_new(&names->texts, (size_t)names->n, sizeof(*names->texts),
                    "a vocabulary", r->err));
    GPT_TRY(gpt_token_map_open(&names->map, names->texts, r->n, r->err));
    for (size_t i = 0; i < r->n; i++) {
        const struct entry *e = &r->entries[i];

        GPT_TRY(check_id(r, e));
        assert(e->id >= 0 && e->id < names->n && !names->texts[e->id].data);
        names->texts[e->id] = (struct gpt_str){e->text, e->len};
        if (gpt_token_map_add(&names->map, (int32_t)e->id) >= 0)
            return gpt_fail(r->err, GPT_EDATA, "%s: token '%.*s' comes twice",
                            r->file, gpt_str_shown(e->len), e->text);
    }
    return GPT_OK;
}

/* What was read before a failure stays in *names, for gpt_vocab_names_close().
 */
int gpt_vocab_names_read(struct gpt_vocab_names *names, struct gpt_str json,
                         const struct gpt_vocab_ids *ids, const char *file,
                         struct gpt_err *err)
{
    struct reading r = {.names = names, .ids = ids, .file = file, .err = err};

    int status;

    *names = (struct gpt_vocab_names){0};
    GPT_TRY_GOTO(status, read_object(&r, json), out);
    status = place_texts(&r);
out:
    gpt_free(r.entries);
    return status;
}

void gpt_vocab_names_close(struct gpt_vocab_names *names)
{
    gpt_free(names->texts);
    gpt_free(names->letters);
    gpt_token_map_close(&names->map);
}
